//! Loaded code, and launches that are checked against what the code says.

use std::sync::Arc;

use tilewright_codegen::Compiled;
use tilewright_compiler::Build;
use tilewright_cuda::{Dim3, Form, LaunchConfig, Pack, PackedKernelRef};
use tilewright_hardware::{Element, TensorMapSpec};
use tilewright_ir::{Space, Type};
use tilewright_ptx::{Access, Class, ParameterKind, PointerSpace, Signature, signatures_from_text};
use tilewright_sim::{Launch, Module as SimulatedModule, SimError};

use super::code::Made;
use super::gpu::Gpu;
use super::host::Host;
use super::value::{Passed, boxes};
use super::{Argument, Backend, Device, DeviceError, Report};

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

/// What parameters get that nobody gives anything.
const NOTHING: [u8; 16] = [0; 16];

/// What is known of a parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) needs: Needs,
}

/// What an argument must be.
#[derive(Debug)]
pub(super) enum Needs {
    /// A buffer; of that type, if it is known.
    Buffer(Option<Element>),
    Number(Element),
    /// A floating-point number of so many bytes.
    Float(usize),
    /// An integer of so many bytes.
    Integer(usize),
    Map(Option<TensorMapSpec>),
    /// So many bytes, whatever they mean.
    Bytes(usize),
}

impl Needs {
    pub(super) fn of(ty: Type, bytes: u32) -> Needs {
        match ty {
            Type::Pointer(Space::Global | Space::Generic) => Needs::Buffer(None),
            Type::Scalar(element) => Needs::Number(element),
            Type::TensorMap => Needs::Map(None),
            _ => Needs::Bytes(bytes as usize),
        }
    }

    /// What PTX says of a parameter, and what its code shows.
    fn of_ptx(parameter: &tilewright_ptx::Parameter) -> Needs {
        let bytes = parameter.bytes as usize;
        match parameter.kind {
            ParameterKind::Pointer(PointerSpace::Global | PointerSpace::Generic) if bytes == 8 => {
                Needs::Buffer(None)
            }
            ParameterKind::Scalar(ty) if ty.class() == Class::Float => Needs::Float(bytes),
            // One of the size of an address may be a pointer that the code does not follow.
            ParameterKind::Scalar(ty) if ty.class() == Class::Integer && bytes != 8 => Needs::Integer(bytes),
            _ => Needs::Bytes(bytes),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Needs::Buffer(None) => "a buffer".to_owned(),
            Needs::Buffer(Some(element)) => format!("a buffer of {element}"),
            Needs::Number(element) => format!("a number of type {element}"),
            Needs::Float(bytes) => format!("a floating-point number of {bytes} bytes"),
            Needs::Integer(bytes) => format!("an integer of {bytes} bytes"),
            Needs::Map(None) => "a tensor map".to_owned(),
            Needs::Map(Some(spec)) => format!("a tensor map {}", boxes(spec)),
            Needs::Bytes(1) => "an argument of 1 byte".to_owned(),
            Needs::Bytes(8) => "an argument of 8 bytes, such as a buffer or a 64-bit number".to_owned(),
            Needs::Bytes(bytes) => format!("an argument of {bytes} bytes"),
        }
    }

    pub(super) fn takes(&self, passed: &Passed<'_>) -> bool {
        match (self, passed) {
            (Needs::Buffer(needed), Passed::Buffer(given, ..)) => {
                needed.is_none_or(|needed| needed == *given)
            }
            (Needs::Number(needed), Passed::Number(given)) => *needed == given.element(),
            (Needs::Float(bytes) | Needs::Integer(bytes), Passed::Bytes(given)) => *bytes == given.len(),
            (Needs::Float(bytes), Passed::Number(given)) => {
                *bytes == passed.bytes() && given.element().is_float()
            }
            (Needs::Integer(bytes), Passed::Number(given)) => {
                *bytes == passed.bytes() && !given.element().is_float()
            }
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
            (Needs::Bytes(bytes), passed) => !matches!(passed, Passed::View(_)) && *bytes == passed.bytes(),
            _ => false,
        }
    }
}

/// Code on a device.
#[derive(Clone, Debug)]
pub struct Module {
    device: Device,
    code: Loaded,
    /// The one kernel of a compiled module.
    compiled: Option<Kernel>,
    /// What the text says of its kernels, where nobody else knows.
    signatures: Arc<[Signature]>,
}

/// Code as its device has it.
#[derive(Clone, Debug)]
enum Loaded {
    Host(Arc<Host>, Arc<SimulatedModule>),
    Gpu(Arc<Gpu>, tilewright_cuda::Module),
}

impl Loaded {
    fn new(device: &Device, text: &str) -> Result<Loaded, DeviceError> {
        Ok(match device.backend() {
            Backend::Host(host) => Loaded::Host(host.clone(), Arc::new(SimulatedModule::parse(text)?)),
            Backend::Gpu(gpu) => Loaded::Gpu(gpu.clone(), gpu.load(text)?),
        })
    }

    fn packed(device: &Device, packed: &PackedKernelRef<'_>) -> Result<Loaded, DeviceError> {
        match device.backend() {
            Backend::Host(_) => {
                let text = std::str::from_utf8(packed.code).map_err(|error| DeviceError::Packed {
                    name: packed.name.to_owned(),
                    found: error.to_string(),
                    expected: "PTX as text",
                })?;
                Loaded::new(device, text)
            }
            Backend::Gpu(gpu) => Ok(Loaded::Gpu(gpu.clone(), gpu.load_packed(packed)?)),
        }
    }

    fn kernels(&self) -> Vec<&str> {
        match self {
            Loaded::Host(_, module) => module.entries(),
            Loaded::Gpu(_, module) => module.signatures().iter().map(|kernel| kernel.name.as_str()).collect(),
        }
    }

    /// A kernel of it, of which no more is known than the code says; a driver says it itself.
    fn body(&self, name: &str, signatures: &[Signature]) -> Result<Body, DeviceError> {
        let entry = self.entry(name)?;
        let said = match &entry {
            Entry::Host(..) => signatures.iter().find(|signature| signature.name == name),
            Entry::Gpu(_, kernel) => Some(kernel.signature()),
        };
        let said = said.ok_or_else(|| DeviceError::Packed {
            name: name.to_owned(),
            found: "no signature".to_owned(),
            expected: "one for each kernel",
        })?;
        let unused =
            |p: &&tilewright_ptx::Parameter| p.access == Access::Unused && p.bytes as usize <= NOTHING.len();
        let left_out: Vec<usize> =
            said.parameters.iter().rev().take_while(unused).map(|p| p.bytes as usize).collect();
        let parameter =
            |p: &tilewright_ptx::Parameter| Parameter { name: p.name.clone(), needs: Needs::of_ptx(p) };
        Ok(Body {
            name: name.into(),
            parameters: said.parameters.iter().map(parameter).collect(),
            left_out: left_out.into_iter().rev().collect(),
            block: said.required_block,
            cluster: said.required_cluster,
            shared_bytes: 0,
            overlaps: false,
            entry,
        })
    }

    fn entry(&self, name: &str) -> Result<Entry, DeviceError> {
        match self {
            Loaded::Host(host, module) if module.parameters(name).is_some() => {
                Ok(Entry::Host(host.clone(), module.clone()))
            }
            Loaded::Host(..) => {
                let known = self.kernels();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(SimError::NoKernel { name: name.to_owned(), known }.into())
            }
            Loaded::Gpu(gpu, module) => Ok(Entry::Gpu(gpu.clone(), module.kernel(name)?)),
        }
    }
}

impl Module {
    pub(super) fn load<C: Code + ?Sized>(device: &Device, code: &C) -> Result<Module, DeviceError> {
        let loaded = Loaded::new(device, code.text())?;
        let compiled = code.compiled().map(|compiled| {
            let parameters = compiled
                .signature
                .iter()
                .map(|info| Parameter { name: info.name.clone(), needs: Needs::of(info.ty, info.bytes) });
            Body::compiled(&loaded, compiled, parameters.collect())
        });
        let compiled = compiled.transpose()?.map(|body| Kernel::new(device, Arc::new(body)));
        let signatures = match (&compiled, &loaded) {
            (None, Loaded::Host(..)) => {
                let module = tilewright_ptx::parse(code.text()).map_err(SimError::from)?;
                module.signatures().into()
            }
            _ => Arc::default(),
        };
        Ok(Module { device: device.clone(), code: loaded, compiled, signatures })
    }

    /// The names of its kernels.
    #[must_use]
    pub fn kernels(&self) -> Vec<&str> {
        self.code.kernels()
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn kernel(&self, name: &str) -> Result<Kernel, DeviceError> {
        if let Some(kernel) = self.compiled.as_ref().filter(|kernel| kernel.name() == name) {
            return Ok(kernel.clone());
        }
        Ok(Kernel::new(&self.device, Arc::new(self.code.body(name, &self.signatures)?)))
    }
}

/// All of a kernel but what is decided launch by launch. It does not hold its [`Device`], whose cache may hold it.
#[derive(Debug)]
pub(super) struct Body {
    name: Arc<str>,
    parameters: Vec<Parameter>,
    /// Bytes of each parameter at the end that the code does not look at: launches may do without.
    left_out: Vec<usize>,
    /// What the code itself fixes.
    block: Option<[u32; 3]>,
    cluster: Option<[u32; 3]>,
    shared_bytes: u32,
    /// Whether it waits by itself for the kernels before it.
    overlaps: bool,
    entry: Entry,
}

/// Where a kernel is.
#[derive(Debug)]
enum Entry {
    Host(Arc<Host>, Arc<SimulatedModule>),
    Gpu(Arc<Gpu>, tilewright_cuda::Kernel),
}

impl Body {
    fn compiled(
        loaded: &Loaded,
        compiled: &Compiled,
        parameters: Vec<Parameter>,
    ) -> Result<Body, DeviceError> {
        Ok(Body {
            name: compiled.entry.as_str().into(),
            parameters,
            left_out: Vec::new(),
            block: compiled.launch.threads,
            cluster: compiled.launch.cluster,
            shared_bytes: compiled.shared.dynamic,
            overlaps: compiled.overlaps,
            entry: loaded.entry(&compiled.entry)?,
        })
    }

    /// A kernel whose author's types are known.
    pub(super) fn made(
        device: &Device,
        kernel: &tilewright_lang::Kernel,
        made: &Made,
    ) -> Result<Body, DeviceError> {
        let parameter = |name: &str, ty: Type, bytes: u32| {
            let needs = match Needs::of(ty, bytes) {
                Needs::Buffer(_) => Needs::Buffer(kernel.element(name)),
                Needs::Map(_) => Needs::Map(kernel.tensor_map(name).cloned()),
                needs => needs,
            };
            Parameter { name: name.to_owned(), needs }
        };
        match made {
            Made::Compiled(build) => {
                let loaded = Loaded::new(device, &build.code.text)?;
                let signature = build.code.signature.iter();
                let parameters = signature.map(|info| parameter(&info.name, info.ty, info.bytes)).collect();
                Body::compiled(&loaded, &build.code, parameters)
            }
            Made::Packed(found) => {
                let packed = &found.kernel;
                // Programs pass more behind these, which is theirs to get right.
                let written = kernel.parameters().map(|(name, ty, _)| parameter(name, ty, ty.bytes()));
                Ok(Body {
                    name: packed.name.into(),
                    parameters: written.collect(),
                    left_out: Vec::new(),
                    block: packed.block,
                    cluster: packed.cluster,
                    shared_bytes: packed.shared_dynamic,
                    overlaps: packed.overlaps,
                    entry: Loaded::packed(device, packed)?.entry(packed.name)?,
                })
            }
        }
    }

    /// Launches it with arguments that were checked, in the shape that it was compiled for.
    pub(super) fn launch(&self, grid: [u32; 3], passed: &[Passed<'_>]) -> Result<Report, DeviceError> {
        let block = self.block.ok_or_else(|| DeviceError::NoBlock { kernel: self.name.to_string() })?;
        let launch = Launch { grid, block, cluster: self.cluster, shared_bytes: self.shared_bytes };
        self.enqueue(&launch, self.overlaps, passed)
    }

    fn enqueue(&self, launch: &Launch, overlaps: bool, passed: &[Passed<'_>]) -> Result<Report, DeviceError> {
        let name = self.name.clone();
        match &self.entry {
            Entry::Host(host, _) if !host.runs() => Ok(Report::done(name)),
            Entry::Host(host, module) => {
                let given = (passed.len() + self.left_out.len()).saturating_sub(self.parameters.len());
                let missing = self.left_out.iter().skip(given).map(|bytes| Passed::Bytes(&NOTHING[..*bytes]));
                let all: Vec<_> = passed.iter().copied().chain(missing).collect();
                let report = host.launch((module, &name), launch, &all)?;
                Ok(Report::simulated(name, report))
            }
            Entry::Gpu(gpu, kernel) => {
                let config = LaunchConfig::new(launch.grid, launch.block).shared(launch.shared_bytes);
                let config = launch.cluster.map_or(config, |cluster| config.cluster(cluster));
                let config = if overlaps { config.programmatic() } else { config };
                gpu.launch(kernel, &config, passed)?;
                Ok(Report::enqueued(name, gpu.clone()))
            }
        }
    }

    /// A kernel of a pack by its name: machine code for this GPU if the pack has it, else PTX.
    pub(super) fn packed(device: &Device, pack: &Pack<'_>, name: &str) -> Result<Body, DeviceError> {
        let named = pack.named(name);
        let readable = |packed: &PackedKernelRef<'_>| device.context().is_some() || packed.form == Form::Ptx;
        let wish = |packed: &PackedKernelRef<'_>| named(packed).filter(|()| readable(packed));
        let Some(packed) = pack.select_by(device.capability(), wish) else {
            return Err(DeviceError::NotPacked {
                name: name.to_owned(),
                arch: device.arch(),
                known: pack
                    .kernels()
                    .map(|kernel| format!("{} ({} for {})", kernel.name, kernel.form, kernel.target))
                    .collect(),
            });
        };
        let signatures = signatures_from_text(packed.signatures).map_err(|error| DeviceError::Packed {
            name: name.to_owned(),
            found: error.to_string(),
            expected: "signatures as `tilewright compile --pack` writes them",
        })?;
        let body = Loaded::packed(device, packed)?.body(name, &signatures)?;
        Ok(Body {
            block: body.block.or(packed.block),
            cluster: body.cluster.or(packed.cluster),
            shared_bytes: packed.shared_dynamic,
            overlaps: packed.overlaps,
            ..body
        })
    }
}

/// A kernel on a device, ready to be launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    device: Device,
    body: Arc<Body>,
    /// What was given.
    block: Option<[u32; 3]>,
    cluster: Option<[u32; 3]>,
    shared_bytes: u32,
    overlaps: bool,
}

impl Kernel {
    pub(super) fn new(device: &Device, body: Arc<Body>) -> Kernel {
        let (shared_bytes, overlaps) = (body.shared_bytes, body.overlaps);
        Kernel { device: device.clone(), body, block: None, cluster: None, shared_bytes, overlaps }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.body.name
    }

    /// The device that it is loaded on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Threads of a block, if they are known.
    #[must_use]
    pub fn block(&self) -> Option<[u32; 3]> {
        self.block.or(self.body.block)
    }

    /// Blocks of a cluster, if it has clusters.
    #[must_use]
    pub fn cluster(&self) -> Option<[u32; 3]> {
        self.cluster.or(self.body.cluster)
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
    /// ```
    /// use tilewright::prelude::*;
    ///
    /// // PTX of another compiler, which does not say how large its array is, nor the block.
    /// let text = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 4 .b8 array[];\n\
    ///     .visible .entry turn(.param .u64 x)\n{\n.reg .b64 %rd<4>;\n.reg .b32 %r<6>;\n\
    ///     ld.param.u64 %rd1, [x];\ncvta.to.global.u64 %rd1, %rd1;\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n\
    ///     add.s64 %rd3, %rd1, %rd2;\nld.global.u32 %r2, [%rd3];\nmov.u32 %r3, array;\nmad.lo.u32 %r4, %r1, 4, %r3;\n\
    ///     st.shared.u32 [%r4], %r2;\nbar.sync 0;\nmov.u32 %r5, %ntid.x;\nsub.u32 %r5, %r5, %r1;\nsub.u32 %r5, %r5, 1;\n\
    ///     mad.lo.u32 %r4, %r5, 4, %r3;\nld.shared.u32 %r2, [%r4];\nst.global.u32 [%rd3], %r2;\nret;\n}\n";
    /// let device = Device::simulator();
    /// let x = device.upload(&[1u32, 2, 3, 4])?;
    /// let turn = device.load(text)?.kernel("turn")?.with_block(4).with_shared(16);
    /// turn.launch(1, &[&x])?.expect_clean()?;
    /// assert_eq!(x.to_vec()?, [4, 3, 2, 1]);
    /// # Ok::<(), tilewright::device::DeviceError>(())
    /// ```
    ///
    #[must_use]
    pub fn with_shared(self, bytes: u32) -> Kernel {
        Kernel { shared_bytes: bytes, ..self }
    }

    /// Begun, if this is false, only after the kernel before it has ended. Otherwise, a kernel that waits by itself (`grid_wait` in the
    /// language) begins on a GPU while the one before it ends.
    #[must_use]
    pub fn with_overlap(self, overlaps: bool) -> Kernel {
        Kernel { overlaps: overlaps && self.body.overlaps, ..self }
    }

    /// Bytes of each parameter at the end that launches may do without, because the code does not look at it: of PTX that other compilers
    /// made. They get zeros.
    #[must_use]
    pub fn optional_parameters(&self) -> &[usize] {
        &self.body.left_out
    }

    /// Runs it on so many blocks: to its end on the simulator and the CPU, some time from now on a GPU. What comes after on the same
    /// device comes after it in any case.
    ///
    /// # Errors
    /// If number or types of the arguments are wrong, or the launch has no possible shape, or an instruction cannot be simulated. What
    /// the kernel does wrong is in the report.
    pub fn launch(&self, grid: impl Into<Dim3>, arguments: &[&dyn Argument]) -> Result<Report, DeviceError> {
        let passed: Vec<Passed<'_>> = arguments.iter().map(|argument| argument.pass()).collect();
        self.launch_passed(grid.into(), &passed)
    }

    pub(super) fn launch_passed(&self, grid: Dim3, passed: &[Passed<'_>]) -> Result<Report, DeviceError> {
        self.check(passed)?;
        let block = self.block().ok_or_else(|| DeviceError::NoBlock { kernel: self.name().to_owned() })?;
        for (what, found, fixed) in
            [("the block", self.block, self.body.block), ("the cluster", self.cluster, self.body.cluster)]
        {
            if let (Some(found), Some(expected)) = (found, fixed)
                && found != expected
            {
                return Err(DeviceError::Fixed { kernel: self.name().to_owned(), what, found, expected });
            }
        }
        let launch = Launch { grid: grid.0, block, cluster: self.cluster(), shared_bytes: self.shared_bytes };
        self.body.enqueue(&launch, self.overlaps, passed)
    }

    pub(super) fn parameters(&self) -> &[Parameter] {
        &self.body.parameters
    }

    fn check(&self, passed: &[Passed<'_>]) -> Result<(), DeviceError> {
        let (all, left_out) = (&self.body.parameters, self.body.left_out.len());
        let needed = all.len() - left_out;
        if !(needed..=all.len()).contains(&passed.len()) {
            let parameters: Vec<String> =
                all[..needed].iter().map(|p| format!("`{}`, {}", p.name, p.needs.describe())).collect();
            return Err(DeviceError::ArgumentCount {
                kernel: self.name().to_owned(),
                found: passed.len(),
                expected: needed,
                parameters: if parameters.is_empty() { "none".to_owned() } else { parameters.join("; ") },
            });
        }
        for (number, (parameter, passed)) in (1..).zip(self.body.parameters.iter().zip(passed)) {
            let refuse = |found, expected| {
                let (kernel, name) = (self.name().to_owned(), parameter.name.clone());
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
