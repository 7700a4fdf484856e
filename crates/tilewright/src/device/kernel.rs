//! Loaded code, and launches that are checked against what the code says.

use std::ops::Deref;
use std::sync::Arc;

use tilewright_codegen::Compiled;
use tilewright_compiler::Build;
use tilewright_hardware::{Element, TensorMapSpec};
use tilewright_ir::{Space, Type};
use tilewright_sim::{Launch, Module as SimulatedModule, SimError};

use super::value::{Passed, boxes};
use super::{Argument, Device, DeviceError};

/// Extents along x, y and z; `4` and `(4, 2)` stand for `(4, 1, 1)` and `(4, 2, 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim3(pub [u32; 3]);

impl From<u32> for Dim3 {
    fn from(x: u32) -> Dim3 {
        Dim3([x, 1, 1])
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Dim3 {
        Dim3([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Dim3 {
        Dim3([x, y, z])
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from(extents: [u32; 3]) -> Dim3 {
        Dim3(extents)
    }
}

/// What can be loaded onto a device: PTX text, or a kernel of this compiler, which knows more about itself.
pub trait Code: sealed::Code {}

impl<C: sealed::Code + ?Sized> Code for C {}

mod sealed {
    use super::Compiled;

    pub trait Code {
        /// The PTX.
        fn text(&self) -> &str;
        /// What the compiler knows of it.
        fn compiled(&self) -> Option<&Compiled> {
            None
        }
    }
}

impl sealed::Code for str {
    fn text(&self) -> &str {
        self
    }
}

impl sealed::Code for String {
    fn text(&self) -> &str {
        self
    }
}

impl sealed::Code for Compiled {
    fn text(&self) -> &str {
        &self.text
    }

    fn compiled(&self) -> Option<&Compiled> {
        Some(self)
    }
}

impl sealed::Code for Build {
    fn text(&self) -> &str {
        &self.code.text
    }

    fn compiled(&self) -> Option<&Compiled> {
        Some(&self.code)
    }
}

/// What is known of a parameter.
#[derive(Clone, Debug)]
struct Parameter {
    name: String,
    needs: Needs,
}

/// What an argument must be.
#[derive(Clone, Debug)]
enum Needs {
    /// A buffer; of that type, if it is known.
    Buffer(Option<Element>),
    Number(Element),
    Map(Option<TensorMapSpec>),
    /// So many bytes, whatever they mean.
    Bytes(usize),
}

impl Needs {
    fn of(ty: Type, bytes: u32) -> Needs {
        match ty {
            Type::Pointer(Space::Global | Space::Generic) => Needs::Buffer(None),
            Type::Scalar(element) => Needs::Number(element),
            Type::TensorMap => Needs::Map(None),
            _ => Needs::Bytes(bytes as usize),
        }
    }

    fn describe(&self) -> String {
        match self {
            Needs::Buffer(None) => "a buffer".to_owned(),
            Needs::Buffer(Some(element)) => format!("a buffer of {element}"),
            Needs::Number(element) => format!("a number of type {element}"),
            Needs::Map(None) => "a tensor map".to_owned(),
            Needs::Map(Some(spec)) => format!("a tensor map {}", boxes(spec)),
            Needs::Bytes(1) => "an argument of 1 byte".to_owned(),
            Needs::Bytes(8) => "an argument of 8 bytes, such as a buffer or a 64-bit number".to_owned(),
            Needs::Bytes(bytes) => format!("an argument of {bytes} bytes"),
        }
    }

    fn takes(&self, passed: &Passed<'_>) -> bool {
        match (self, passed) {
            (Needs::Buffer(needed), Passed::Buffer(given, _)) => needed.is_none_or(|needed| needed == *given),
            (Needs::Number(needed), Passed::Number(given, _)) => needed == given,
            (Needs::Map(None), Passed::Map(..)) => true,
            // How the cache fetches is no part of what the kernel relies on.
            (Needs::Map(Some(needed)), Passed::Map(given, ..)) => {
                let shape = |spec: &TensorMapSpec| {
                    (
                        spec.element(),
                        spec.box_dims().to_vec(),
                        spec.element_strides().to_vec(),
                        spec.swizzle(),
                    )
                };
                shape(needed) == shape(given)
            }
            (Needs::Bytes(bytes), passed) => *bytes == passed.bytes(),
            _ => false,
        }
    }
}

/// Code on a device.
#[derive(Clone, Debug)]
pub struct Module {
    device: Device,
    code: Arc<SimulatedModule>,
    /// The one kernel of a compiled module.
    compiled: Option<Kernel>,
}

impl Module {
    pub(super) fn load<C: Code + ?Sized>(device: &Device, code: &C) -> Result<Module, DeviceError> {
        let module = Arc::new(SimulatedModule::parse(code.text())?);
        let compiled = code.compiled().map(|compiled| {
            let parameters = compiled
                .signature
                .iter()
                .map(|info| Parameter { name: info.name.clone(), needs: Needs::of(info.ty, info.bytes) });
            Kernel::compiled(device, module.clone(), compiled, parameters.collect())
        });
        Ok(Module { device: device.clone(), code: module, compiled })
    }

    /// The names of its kernels.
    #[must_use]
    pub fn kernels(&self) -> Vec<&str> {
        self.code.entries()
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn kernel(&self, name: &str) -> Result<Kernel, DeviceError> {
        if let Some(kernel) = self.compiled.as_ref().filter(|kernel| kernel.name == name) {
            return Ok(kernel.clone());
        }
        let Some(parameters) = self.code.parameters(name) else {
            let known = if self.kernels().is_empty() { "none".to_owned() } else { self.kernels().join(", ") };
            return Err(SimError::NoKernel { name: name.to_owned(), known }.into());
        };
        let parameters = parameters
            .into_iter()
            .map(|p| Parameter { name: p.name, needs: Needs::Bytes(p.bytes as usize) })
            .collect();
        Ok(Kernel {
            device: self.device.clone(),
            name: name.to_owned(),
            parameters,
            fixed_block: self.code.required_block(name),
            fixed_cluster: self.code.required_cluster(name),
            block: None,
            cluster: None,
            shared_bytes: 0,
            code: self.code.clone(),
        })
    }
}

/// A kernel on a device, ready to be launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    device: Device,
    code: Arc<SimulatedModule>,
    name: String,
    parameters: Vec<Parameter>,
    /// What the code itself fixes.
    fixed_block: Option<[u32; 3]>,
    fixed_cluster: Option<[u32; 3]>,
    /// What was given.
    block: Option<[u32; 3]>,
    cluster: Option<[u32; 3]>,
    shared_bytes: u32,
}

impl Kernel {
    fn compiled(
        device: &Device,
        code: Arc<SimulatedModule>,
        compiled: &Compiled,
        parameters: Vec<Parameter>,
    ) -> Kernel {
        Kernel {
            device: device.clone(),
            code,
            name: compiled.entry.clone(),
            parameters,
            fixed_block: compiled.launch.threads,
            fixed_cluster: compiled.launch.cluster,
            block: None,
            cluster: None,
            shared_bytes: compiled.shared.dynamic,
        }
    }

    /// A kernel whose author's types are known.
    pub(super) fn staged(
        device: &Device,
        kernel: &tilewright_lang::Kernel,
        compiled: &Compiled,
    ) -> Result<Kernel, DeviceError> {
        let code = Arc::new(SimulatedModule::parse(&compiled.text)?);
        let parameters = compiled.signature.iter().map(|info| {
            let needs = match Needs::of(info.ty, info.bytes) {
                Needs::Buffer(_) => Needs::Buffer(kernel.element(&info.name)),
                Needs::Map(_) => Needs::Map(kernel.tensor_map(&info.name).cloned()),
                needs => needs,
            };
            Parameter { name: info.name.clone(), needs }
        });
        Ok(Kernel::compiled(device, code, compiled, parameters.collect()))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Threads of a block, if they are known.
    #[must_use]
    pub fn block(&self) -> Option<[u32; 3]> {
        self.block.or(self.fixed_block)
    }

    /// Blocks of a cluster, if it has clusters.
    #[must_use]
    pub fn cluster(&self) -> Option<[u32; 3]> {
        self.cluster.or(self.fixed_cluster)
    }

    /// Bytes of dynamic shared memory that a launch asks for.
    #[must_use]
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// With so many threads in a block, where the code does not fix them.
    #[must_use]
    pub fn with_block(self, block: impl Into<Dim3>) -> Kernel {
        Kernel { block: Some(block.into().0), ..self }
    }

    /// With clusters of so many blocks, where the code does not fix them.
    #[must_use]
    pub fn with_cluster(self, cluster: impl Into<Dim3>) -> Kernel {
        Kernel { cluster: Some(cluster.into().0), ..self }
    }

    /// With so many bytes of dynamic shared memory; a compiled kernel knows its own.
    #[must_use]
    pub fn with_shared(self, bytes: u32) -> Kernel {
        Kernel { shared_bytes: bytes, ..self }
    }

    /// Runs it to its end on so many blocks.
    ///
    /// # Errors
    /// If number or types of the arguments are wrong, or the launch has no possible shape, or an instruction cannot be simulated. What
    /// the kernel does wrong is in the report.
    pub fn launch(&self, grid: impl Into<Dim3>, arguments: &[&dyn Argument]) -> Result<Report, DeviceError> {
        let passed: Vec<Passed<'_>> = arguments.iter().map(|argument| argument.pass()).collect();
        self.check(&passed)?;
        let block = self.block().ok_or_else(|| DeviceError::NoBlock { kernel: self.name.clone() })?;
        for (what, found, fixed) in
            [("the block", self.block, self.fixed_block), ("the cluster", self.cluster, self.fixed_cluster)]
        {
            if let (Some(found), Some(expected)) = (found, fixed)
                && found != expected
            {
                return Err(DeviceError::Fixed { kernel: self.name.clone(), what, found, expected });
            }
        }
        let launch =
            Launch { grid: grid.into().0, block, cluster: self.cluster(), shared_bytes: self.shared_bytes };
        let arguments: Vec<_> = passed.iter().map(Passed::simulated).collect();
        let report = self.device.lock().launch(&self.code, &self.name, &launch, &arguments)?;
        Ok(Report { kernel: self.name.clone(), report })
    }

    fn check(&self, passed: &[Passed<'_>]) -> Result<(), DeviceError> {
        if passed.len() != self.parameters.len() {
            let parameters: Vec<String> =
                self.parameters.iter().map(|p| format!("`{}`, {}", p.name, p.needs.describe())).collect();
            return Err(DeviceError::ArgumentCount {
                kernel: self.name.clone(),
                found: passed.len(),
                expected: self.parameters.len(),
                parameters: if parameters.is_empty() { "none".to_owned() } else { parameters.join("; ") },
            });
        }
        for (number, (parameter, passed)) in (1..).zip(self.parameters.iter().zip(passed)) {
            let refuse = |found, expected| {
                let (kernel, name) = (self.name.clone(), parameter.name.clone());
                Err(DeviceError::Argument { kernel, number, name, found, expected })
            };
            if !parameter.needs.takes(passed) {
                return refuse(passed.describe(), parameter.needs.describe());
            }
            if passed.memory().is_some_and(|memory| !self.device.owns(memory)) {
                let expected = "memory of the device that the kernel is loaded on".to_owned();
                return refuse(format!("{} of another device", passed.describe()), expected);
            }
        }
        Ok(())
    }
}

/// What a run has shown: all of the simulator's [report](tilewright_sim::Report).
#[derive(Clone, Debug)]
pub struct Report {
    kernel: String,
    report: tilewright_sim::Report,
}

impl Report {
    /// The report if nothing was found, else an error with the findings.
    ///
    /// # Errors
    /// If something was found.
    pub fn expect_clean(self) -> Result<Report, DeviceError> {
        if self.report.findings.is_empty() {
            Ok(self)
        } else {
            Err(DeviceError::Findings { kernel: self.kernel, findings: self.report.findings })
        }
    }
}

impl Deref for Report {
    type Target = tilewright_sim::Report;

    fn deref(&self) -> &tilewright_sim::Report {
        &self.report
    }
}
