//! Recipes with memory: every kernel compiled, every argument in its place, ready to run many times.

use std::collections::HashMap;

use tilewright_kernels::gemm::{Binding, MapBinding, Operand, Recipe};

use crate::device::{BoundLaunch, Device, DeviceError, DynBuffer, Given, Report};

/// The memory and the numbers that a recipe takes.
#[derive(Clone, Debug, Default)]
pub struct Operands {
    memory: HashMap<Operand, DynBuffer>,
    scalars: HashMap<String, f64>,
}

impl Operands {
    /// None yet.
    #[must_use]
    pub fn new() -> Operands {
        Operands::default()
    }

    /// With memory for an operand.
    #[must_use]
    pub fn with(mut self, operand: Operand, buffer: impl Into<DynBuffer>) -> Operands {
        self.memory.insert(operand, buffer.into());
        self
    }

    /// With a number.
    #[must_use]
    pub fn with_scalar(mut self, name: &str, value: f64) -> Operands {
        self.scalars.insert(name.to_owned(), value);
        self
    }

    fn give(&self, binding: &Binding) -> Option<Given> {
        Some(match binding {
            Binding::U32(n) => Given::U32(*n),
            Binding::U64(n) => Given::U64(*n),
            Binding::Scalar(name) => Given::Number(*self.scalars.get(name)?),
            Binding::Pointer(operand, offset) => Given::Pointer(self.memory.get(operand)?.clone(), *offset),
            Binding::Map(MapBinding { operand, offset, dims, strides, shortened }) => Given::Tensor {
                buffer: self.memory.get(operand)?.clone(),
                offset: *offset,
                dims: dims.clone(),
                strides: strides.clone(),
                shortened: *shortened,
            },
        })
    }
}

/// The launches of a recipe on a device, with their memory, which this keeps.
#[derive(Clone, Debug)]
pub struct Prepared {
    launches: Launches,
    #[allow(dead_code, reason = "held, not looked at")]
    operands: Operands,
}

impl Prepared {
    /// Compiles the kernels of a recipe, unless the device has them already, and binds their arguments.
    ///
    /// # Errors
    /// If a kernel does not compile for the device, or an operand is missing or too small.
    pub fn new(device: &Device, recipe: &Recipe, operands: &Operands) -> Result<Prepared, DeviceError> {
        Ok(Prepared { launches: Launches::new(device, recipe, operands)?, operands: operands.clone() })
    }

    /// Launches everything in order.
    ///
    /// # Errors
    /// If a launch fails.
    pub fn run(&self) -> Result<Vec<Report>, DeviceError> {
        self.launches.run()
    }
}

/// The launches of a recipe on a device with their memory, which others hold.
#[derive(Clone, Debug)]
pub(super) struct Launches {
    launches: Vec<BoundLaunch>,
}

impl Launches {
    pub(super) fn new(
        device: &Device,
        recipe: &Recipe,
        operands: &Operands,
    ) -> Result<Launches, DeviceError> {
        let launches = recipe.launches.iter().map(|launch| {
            let kernel = device.cached(&launch.kernel.key, || (launch.kernel.stage)())?;
            BoundLaunch::new(kernel.with_overlap(launch.overlaps), launch.grid, |name| {
                let (_, binding) = launch.bindings.iter().find(|(known, _)| known == name)?;
                operands.give(binding)
            })
        });
        Ok(Launches { launches: launches.collect::<Result<_, _>>()? })
    }

    pub(super) fn run(&self) -> Result<Vec<Report>, DeviceError> {
        self.launches.iter().map(BoundLaunch::launch).collect()
    }
}
