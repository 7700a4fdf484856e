//! Devices that are this computer: the simulator, and the CPU, which is the simulator's engine without its checks.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tilewright_hardware::TensorMapSpec;
use tilewright_sim::tensor::tensor_map::{Access, DataType, Spec};
use tilewright_sim::{Arg, Launch, Module, Options, Report, SimError, Simulator, TensorMap};

use super::value::{Map, Memory, Passed};
use super::{DeviceError, DeviceKind};

/// A simulator that is shared.
pub(super) struct Host {
    kind: DeviceKind,
    simulator: Mutex<Simulator>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.kind, self.lock().options())
    }
}

/// Memory of a simulator, given back when nobody holds it any more.
#[derive(Debug)]
pub struct HostMemory {
    host: Arc<Host>,
    place: tilewright_sim::Buffer,
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // It is there: only this frees it, and only once.
        let _ = self.host.lock().free(self.place);
    }
}

impl Host {
    pub(super) fn new(kind: DeviceKind, options: Options) -> Host {
        Host { kind, simulator: Mutex::new(Simulator::new(options)) }
    }

    pub(super) fn kind(&self) -> DeviceKind {
        self.kind
    }

    pub(super) fn alloc(self: &Arc<Host>, bytes: usize) -> HostMemory {
        let place = self.lock().alloc(bytes);
        HostMemory { host: self.clone(), place }
    }

    pub(super) fn upload(self: &Arc<Host>, bytes: &[u8]) -> HostMemory {
        let place = self.lock().upload(bytes);
        HostMemory { host: self.clone(), place }
    }

    /// Runs a kernel to its end.
    pub(super) fn launch(
        &self,
        (module, name): (&Module, &str),
        launch: &Launch,
        passed: &[Passed<'_>],
    ) -> Result<Report, DeviceError> {
        let arguments = passed.iter().map(|passed| match passed {
            Passed::Number(number) => Ok(Arg::Bytes(number.bytes().to_vec())),
            Passed::Bytes(bytes) => Ok(Arg::Bytes(bytes.to_vec())),
            Passed::Buffer(_, memory) => match &***memory {
                Memory::Host(memory) => Ok(Arg::Buffer(memory.place)),
                Memory::Gpu(_) => Err(DeviceError::OtherDevice),
            },
            Passed::Map(_, Map::Host(map), _) => Ok(Arg::TensorMap((**map).clone())),
            Passed::Map(_, Map::Gpu(_), _) => Err(DeviceError::OtherDevice),
        });
        let arguments: Vec<Arg> = arguments.collect::<Result<_, _>>()?;
        Ok(self.lock().launch(module, name, launch, &arguments)?)
    }

    fn lock(&self) -> MutexGuard<'_, Simulator> {
        // A panic elsewhere leaves the memory as it was.
        self.simulator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostMemory {
    pub(super) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub(super) fn address(&self) -> u64 {
        self.place.address()
    }

    pub(super) fn bytes(&self) -> usize {
        self.place.bytes()
    }

    pub(super) fn read(&self) -> Result<Vec<u8>, SimError> {
        self.host.lock().read(self.place)
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), SimError> {
        self.host.lock().write(self.place, bytes)
    }

    pub(super) fn copy_from(&self, from: &HostMemory) -> Result<(), SimError> {
        self.host.lock().copy(from.place, self.place)
    }
}

/// A tensor map as the simulator takes it, for those who use [`sim`](crate::sim) without a [`Device`](super::Device): extents
/// innermost first, without gaps.
///
/// # Errors
/// If the copy engine cannot address such a tensor.
pub fn simulated_map(spec: &TensorMapSpec, address: u64, dims: &[u64]) -> Result<TensorMap, DeviceError> {
    let mut strides = Vec::new();
    let mut stride = u64::from(spec.element().bytes());
    for extent in dims.iter().take(dims.len().saturating_sub(1)) {
        stride = stride.saturating_mul(*extent);
        strides.push(stride);
    }
    spec.check_tensor(address, dims, &strides)?;
    let mut extents = [1; 5];
    extents.iter_mut().zip(spec.box_dims()).for_each(|(extent, given)| *extent = *given);
    let data_type = DataType::from_driver(spec.data_type()).map_err(SimError::from)?;
    let whole = Spec {
        data_type,
        address,
        dims,
        strides: &strides,
        access: Access::Tile { extents },
        element_strides: spec.element_strides(),
        interleave: 0,
        swizzle: spec.swizzle(),
        fill: spec.oob_fill(),
    };
    Ok(TensorMap::new(&whole).map_err(SimError::from)?)
}
