//! Devices: memory, modules and launches under names that do not depend on where a kernel runs.
//!
//! | device | what it is | what it is for |
//! | --- | --- | --- |
//! | [`Device::cuda`] | a GPU, through [`cuda`](crate::cuda) | speed |
//! | [`Device::cpu`] | this computer, executing the same PTX, or kernels on tiles as they are written | results where there is no GPU |
//! | [`Device::simulator`] | the same, with every check of [`sim`](crate::sim) | finding out what is wrong |
//!
//! [`Device::best`] is the first GPU if it is of Ampere or newer, else the CPU; [`available`] are all. What runs on one runs on all, and says the same when arguments are
//! wrong:
//!
//! ```
//! use tilewright::prelude::*;
//!
//! /// out = a * x + y
//! #[kernel(threads = 256)]
//! fn axpy(a: Val<f32>, x: Global<f32>, y: Global<f32>, out: Global<f32>, n: Val<u32>) {
//!     let i = block_id(0) * 256 + thread_id(0);
//!     if i < n {
//!         out.at(i).store(a.mul_add(x.at(i).load(), y.at(i).load()));
//!     }
//! }
//!
//! let device = Device::best();
//! let axpy = device.compile(&axpy::stage()?)?;
//! let (x, y) = (device.upload(&[1.0f32; 1000])?, device.upload(&[0.5f32; 1000])?);
//! let out = device.alloc::<f32>(1000)?;
//! // Block, cluster and shared memory are the kernel's own: only the grid is given.
//! axpy.launch(4, &[&2.0f32, &x, &y, &out, &1000u32])?.expect_clean()?;
//! assert_eq!(out.to_vec()?, [2.5; 1000]);
//!
//! // Arguments are held against what the author wrote.
//! let error = axpy.launch(4, &[&2.0f64, &x, &y, &out, &1000u32]).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "argument 1 of kernel `axpy` (parameter `a`): found a number of type f64, expected a number of type f32"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Kernels on tiles are [programs](Program): they are launched with tensors in buffers, and compiled for what is true of these.
//!
//! PTX text of any origin is loaded the same way; what it does not say (the block, dynamic shared memory) is given:
//!
//! ```
//! use tilewright::prelude::*;
//!
//! let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
//!     .visible .entry mark(.param .u64 out)\n{\n\
//!     .reg .b64 %rd<4>;\n.reg .b32 %r<2>;\n\
//!     ld.param.u64 %rd1, [out];\ncvta.to.global.u64 %rd1, %rd1;\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n\
//!     add.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r1;\nret;\n}\n";
//! let device = Device::simulator();
//! let out = device.alloc::<u32>(4)?;
//! device.load(text)?.kernel("mark")?.with_block(4).launch(1, &[&out])?.expect_clean()?;
//! assert_eq!(out.to_vec()?, [0, 1, 2, 3]);
//! # Ok::<(), tilewright::device::DeviceError>(())
//! ```
//!
//! # Contract
//!
//! * A kernel of this compiler is launched with its own block, cluster and shared memory; its arguments are checked by number and
//!   type. [`Device::compile`], [`Device::compile_with`] and [`Device::cached`] know what pointers lead to and which boxes tensor maps
//!   must have. [`Device::load`] of a [`Build`](crate::compiler::Build) tells buffers, maps and numbers apart, and numbers by type, but
//!   not what pointers lead to. PTX text and [packs](Device::load_packed) by name say sizes, which parameters are pointers and which are
//!   floating-point numbers; those at the end that the code never looks at may be left out.
//! * Memory lives as long as its [`Buffer`] or a [`TensorMap`] over it, and on a GPU until all that was launched with it is done. It
//!   belongs to one device; an argument from another is refused.
//! * Operations of one device happen in the order in which they were asked for, also by several threads. A launch on the simulator or
//!   the CPU returns when the kernel has ended; on a GPU it returns at once, and [`Buffer::to_vec`], [`Report::expect_clean`] and
//!   [`Device::synchronize`] wait. [`cuda`](crate::cuda) has streams, events and graphs for those who need more than one order.
//! * What the kernel does wrong is in the [`Report`], and becomes an error only with [`Report::expect_clean`]. A GPU tells of a fault
//!   with the next operation that waits, and is lost to the process from then on.
//!
//! # Trust
//!
//! Loading code onto a GPU is `unsafe` in [`cuda`](crate::cuda): whoever loads vouches for it. Here it is not. The memory of these
//! devices holds plain numbers, of which any bits are valid, and none of it is memory of the host, so that a kernel which goes astray
//! breaks no promise that Rust relies on. It can still spoil other buffers on the same GPU, those of other libraries in the process
//! included, or end the context with a fault, and where the program or a library has mapped memory of the host (page-locked and managed
//! memory of [`cuda`](crate::cuda) is), reach that. So a kernel of
//! unknown origin, or one that is new, runs on [`Device::simulator`] first, which finds out what goes astray.

mod bound;
mod buffer;
mod cached;
mod code;
mod error;
mod gpu;
mod host;
mod kernel;
mod packed;
mod program;
mod recorder;
mod report;
mod temporary;
mod value;
mod view;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tilewright_compiler::Compiler;
use tilewright_cuda::{Context, Driver, Pack, SliceMut, Stream};
use tilewright_hardware::{self as hardware, Arch, TensorMapSpec};

pub use bound::DynBuffer;
pub(crate) use bound::{BoundLaunch, Given, Identity};
pub use buffer::{Buffer, TensorMap};
pub use cached::CacheKey;
use cached::Kernels;
pub use code::dense_facts;
pub use error::DeviceError;
use gpu::Gpu;
use host::Host;
pub use host::simulated_map;
use kernel::Body;
pub use kernel::{Code, Kernel, Module};
use packed::Packs;
pub use program::{Program, Variant};
pub(crate) use program::{apart, is_injective};
pub use recorder::Recorder;
use recorder::Recording;
pub use report::Report;
pub(crate) use temporary::Temporary;
pub use tilewright_cuda::Dim3;
pub use tilewright_sim::Options;
pub use tilewright_tile::Fact;
pub use value::{Argument, Item};
use value::{Map, Memory};
pub use view::BufferView;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A GPU.
    Cuda,
    /// This computer, for results.
    Cpu,
    /// This computer, for findings.
    Simulator,
}

/// Something that runs kernels. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Backend,
    kernels: Kernels,
    packs: Packs,
    /// Of a [`Recorder`]'s device.
    recording: Option<Recording>,
}

/// What does the work.
#[derive(Debug)]
enum Backend {
    Host(Arc<Host>),
    Gpu(Arc<Gpu>),
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:?})", self.shared.backend)
    }
}

/// Two handles are equal if they are of the same device.
impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Device {}

/// All devices of this machine: the simulator, the CPU, and every GPU that the driver shows and that can be used. A test that runs on
/// each of them is written once.
///
/// ```
/// for device in tilewright::device::available() {
///     let x = device.upload(&[1.0f32, 2.0])?;
///     assert_eq!(x.to_vec()?, [1.0, 2.0], "{}", device.name());
/// }
/// # Ok::<(), tilewright::device::DeviceError>(())
/// ```
#[must_use]
pub fn available() -> Vec<Device> {
    let gpus = Driver::load().and_then(|driver| driver.device_count()).unwrap_or(0);
    let gpus = (0..gpus).filter_map(|ordinal| Device::cuda(ordinal).ok());
    [Device::simulator(), Device::cpu()].into_iter().chain(gpus).collect()
}

impl Device {
    /// A GPU, by the number that the driver gives it. Everybody in the process who asks for the same GPU gets the same device, as long
    /// as somebody holds it.
    ///
    /// ```no_run
    /// use tilewright::device::Device;
    /// let gpu = Device::cuda(0)?;
    /// println!("{}, {}", gpu.name(), gpu.arch());
    /// # Ok::<(), tilewright::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no driver or no such GPU.
    pub fn cuda(ordinal: u32) -> Result<Device, DeviceError> {
        static LIVE: OnceLock<Mutex<HashMap<u32, Weak<Shared>>>> = OnceLock::new();
        let mut live = LIVE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = live.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(Device { shared });
        }
        let device = Device::new(Backend::Gpu(Arc::new(Gpu::open(ordinal)?)));
        live.insert(ordinal, Arc::downgrade(&device.shared));
        Ok(device)
    }

    /// This computer: it executes the same PTX as a GPU, by the engine of the simulator without its checks. What would end a kernel on
    /// a GPU is found all the same.
    #[must_use]
    pub fn cpu() -> Device {
        Device::new(Backend::Host(Arc::new(Host::new(DeviceKind::Cpu, Options::unchecked()))))
    }

    /// The first GPU if it can be used (Ampere or newer), else the CPU.
    ///
    /// ```
    /// let device = tilewright::device::Device::best();
    /// println!("runs on {}", device.name());
    /// ```
    #[must_use]
    pub fn best() -> Device {
        let able = |device: &Device| {
            device.context().is_some_and(|context| context.device().compute_capability.major >= 8)
        };
        Device::cuda(0).ok().filter(able).unwrap_or_else(Device::cpu)
    }

    /// A simulator with all checks on.
    #[must_use]
    pub fn simulator() -> Device {
        Device::simulator_with(Options::default())
    }

    /// A simulator that runs in a certain way: with a seed, without checks, with counts, as another chip.
    ///
    /// ```
    /// use tilewright::device::{Device, Options};
    /// use tilewright::hardware::Arch;
    ///
    /// let device = Device::simulator_with(Options { seed: 7, count: true, ..Options::default() });
    /// assert_eq!(device.arch(), Arch::SM_90A);
    /// // What an A100 would run: kernels are chosen and compiled for it.
    /// let device = Device::simulator_with(Options { chip: Some(Arch::SM_80), ..Options::default() });
    /// assert_eq!((device.arch(), device.chip().name), (Arch::SM_80, "a100"));
    /// ```
    #[must_use]
    pub fn simulator_with(options: Options) -> Device {
        Device::new(Backend::Host(Arc::new(Host::new(DeviceKind::Simulator, options))))
    }

    fn new(backend: Backend) -> Device {
        let (kernels, packs) = (Kernels::default(), Packs::default());
        Device { shared: Arc::new(Shared { backend, kernels, packs, recording: None }) }
    }

    /// The device of a [`Recorder`].
    fn recording(recording: Recording, options: Options) -> Device {
        let backend = Backend::Host(Arc::new(Host::idle(options)));
        let (kernels, packs) = (Kernels::default(), Packs::default());
        Device { shared: Arc::new(Shared { backend, kernels, packs, recording: Some(recording) }) }
    }

    fn backend(&self) -> &Backend {
        &self.shared.backend
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        match self.backend() {
            Backend::Host(host) => host.kind(),
            Backend::Gpu(_) => DeviceKind::Cuda,
        }
    }

    /// Its name, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.backend() {
            Backend::Gpu(gpu) => &gpu.context().device().name,
            Backend::Host(host) if host.kind() == DeviceKind::Cpu => "CPU",
            Backend::Host(_) if self.shared.recording.is_some() => "recorder",
            Backend::Host(_) => "simulator",
        }
    }

    /// The chip that [`compile`](Device::compile) compiles for. The CPU stands for a Hopper, and so does the simulator, unless its
    /// [options](Options::chip) name another chip.
    #[must_use]
    pub fn arch(&self) -> Arch {
        match (self.backend(), &self.shared.recording) {
            (_, Some(recording)) => recording.chip.arch,
            (Backend::Host(host), None) => host.arch(),
            (Backend::Gpu(gpu), None) => gpu.arch(),
        }
    }

    /// The CUDA context behind it, if it is a GPU: the way to streams, graphs and the cache on disk.
    #[must_use]
    pub fn context(&self) -> Option<&Context> {
        match self.backend() {
            Backend::Host(_) => None,
            Backend::Gpu(gpu) => Some(gpu.context()),
        }
    }

    /// The stream that everything of this device goes to, if it is a GPU: to time, capture and order what is launched here.
    #[must_use]
    pub fn stream(&self) -> Option<&Stream> {
        match self.backend() {
            Backend::Host(_) => None,
            Backend::Gpu(gpu) => Some(gpu.stream()),
        }
    }

    /// The chip as the table of [GPUs](hardware::Gpu) has it, with the sizes that the driver says. One that is not in the table is
    /// taken for the one that is most like it. The simulator and the CPU stand for an H200, or the simulator for the first of the table that
    /// has the chip of its [options](Options::chip).
    ///
    /// ```
    /// let chip = tilewright::device::Device::simulator().chip();
    /// assert_eq!((chip.name, chip.multiprocessors), ("h200", 132));
    /// ```
    #[must_use]
    pub fn chip(&self) -> hardware::Gpu {
        match (self.backend(), &self.shared.recording) {
            (_, Some(recording)) => recording.chip,
            (Backend::Host(host), None) => gpu::of_arch(host.arch()),
            (Backend::Gpu(gpu), None) => gpu::chip(gpu.context().device()),
        }
    }

    /// Works on the memory of a device that is this computer; nothing on a GPU.
    pub(crate) fn with_memory<R: Send>(
        &self,
        work: impl FnOnce(&mut tilewright_sim::Simulator) -> R + Send,
    ) -> Option<R> {
        match self.backend() {
            Backend::Host(host) => Some(host.with_memory(work)),
            Backend::Gpu(_) => None,
        }
    }

    /// Lends memory to another library that works on the [stream](Device::stream) of this GPU, such as cuBLAS; what it enqueues comes in
    /// the order of everything else here. `work` must not use the device itself: it has the device's turn.
    ///
    /// # Errors
    /// If this is no GPU, or a buffer is another device's.
    pub fn lend<R>(
        &self,
        buffers: &[&DynBuffer],
        work: impl FnOnce(&Stream, Vec<SliceMut<'_, u8>>) -> R,
    ) -> Result<R, DeviceError> {
        let Backend::Gpu(gpu) = self.backend() else {
            return Err(DeviceError::NoGpu { device: self.name().to_owned() });
        };
        let places = buffers.iter().map(|buffer| buffer.place()).collect::<Vec<_>>();
        gpu.lend(&places, work)
    }

    /// Waits until all that was asked of the device is done.
    ///
    /// # Errors
    /// If any of it failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        match self.backend() {
            // A launch returns when it is done.
            Backend::Host(_) => Ok(()),
            Backend::Gpu(gpu) => Ok(gpu.synchronize()?),
        }
    }

    /// New memory with these contents.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn upload<T: Item>(&self, data: &[T]) -> Result<Buffer<T>, DeviceError> {
        let bytes = T::encode(data);
        let memory = match self.backend() {
            Backend::Host(host) => Memory::Host(host.upload(&bytes)),
            Backend::Gpu(gpu) => Memory::Gpu(gpu.upload(&bytes)?),
        };
        Ok(Buffer::over(memory, data.len()))
    }

    /// New memory for so many elements, which nobody has written yet: it holds anything. The simulator reports whoever reads them first.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn alloc<T: Item>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let memory = match self.backend() {
            Backend::Host(host) => Memory::Host(host.alloc(room::<T>(len)?)),
            Backend::Gpu(gpu) => Memory::Gpu(gpu.alloc(bytes::<T>(len)?)?),
        };
        Ok(Buffer::over(memory, len))
    }

    /// New memory for so many elements, all zero.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn alloc_zeroed<T: Item>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let memory = match self.backend() {
            Backend::Host(host) => Memory::Host(host.upload(&vec![0; room::<T>(len)?])),
            Backend::Gpu(gpu) => Memory::Gpu(gpu.zeroed(bytes::<T>(len)?)?),
        };
        Ok(Buffer::over(memory, len))
    }

    /// The contents of memory of this device; the same as [`Buffer::to_vec`].
    ///
    /// # Errors
    /// If the memory belongs to another device.
    pub fn download<T: Item>(&self, buffer: &Buffer<T>) -> Result<Vec<T>, DeviceError> {
        if !self.owns(&buffer.memory) {
            return Err(DeviceError::OtherDevice);
        }
        buffer.to_vec()
    }

    /// Loads code: a [`Build`](crate::compiler::Build), a [`Compiled`](crate::codegen::Compiled) kernel, or PTX text.
    ///
    /// # Errors
    /// If the text is no PTX, or uses what the device does not have.
    pub fn load<C: Code + ?Sized>(&self, code: &C) -> Result<Module, DeviceError> {
        Module::load(self, code)
    }

    /// Loads a kernel of a [pack](Pack): machine code for this GPU if the pack has it, with no compilation at all, else PTX.
    ///
    /// ```no_run
    /// use tilewright::{cuda::Pack, device::Device};
    /// # const BYTES: &[u8] = &[];
    /// // const BYTES: &[u8] = include_bytes!("kernels.pack"); // by `tilewright compile --pack kernels.pack vector_add`
    /// let vector_add = Device::best().load_packed(&Pack::parse(BYTES)?, "vector_add")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the pack has no such kernel for this device.
    pub fn load_packed(&self, pack: &Pack<'_>, name: &str) -> Result<Kernel, DeviceError> {
        Ok(Kernel::new(self, Arc::new(Body::packed(self, pack, name)?)))
    }

    /// Gives the device a pack. From now on a kernel that is in it, for this chip and for what is true of its arguments, is not compiled:
    /// not by [`Device::program`], not by [`Device::compile`], [`Device::cached`] and [`Device::cached_program`], and so not by
    /// [`ops`](crate::ops) and [`gemm`](crate::gemm). With several packs the one that was given last comes first. [`Recorder`] makes packs.
    ///
    /// A kernel is known by its staged form, which depends on nothing but what it does: the pack need not be made by the same program. What a
    /// device has compiled already stays.
    ///
    /// ```no_run
    /// use tilewright::{cuda::Pack, device::Device};
    /// # const BYTES: &[u8] = &[];
    /// // const BYTES: &[u8] = include_bytes!("ops.pack"); // by `tilewright compile --pack ops.pack --ops softmax --columns 4096`
    /// let device = Device::best();
    /// device.add_pack(Pack::parse(BYTES)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_pack(&self, pack: Pack<'static>) {
        self.shared.packs.add(pack);
    }

    /// Whether what is in no [pack](Device::add_pack) of this device is an error that names it, rather than compiled. The CPU goes on
    /// interpreting kernels on tiles.
    ///
    /// ```
    /// use tilewright::ops::Softmax;
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::simulator();
    /// device.only_packed(true);
    /// let x = device.upload(&[1.0f32; 256])?;
    /// let error = Softmax::new().run(&device, &x, &x).unwrap_err().to_string();
    /// assert!(error.starts_with("kernel `softmax` for sm_90a") && error.contains("is in no pack of the device"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn only_packed(&self, only: bool) {
        self.shared.packs.set_only(only);
    }

    /// Compiles a staged kernel for this device and loads it; kernels on tiles are [programs](Device::program). Reports name lines of the Rust source. What a GPU's driver makes of it is
    /// kept in the [cache on disk](crate::cuda::DiskCache).
    ///
    /// # Errors
    /// If the chip cannot do what the kernel asks for.
    pub fn compile(&self, kernel: &tilewright_lang::Kernel) -> Result<Kernel, DeviceError> {
        self.compile_with(kernel, self.compiler())
    }

    /// The compiler of this device. Only reports name lines, and a GPU writes none; without them the cache on disk outlives edits of
    /// the source that do not change the kernel.
    fn compiler(&self) -> Compiler {
        if let Some(recording) = &self.shared.recording {
            return recording.compiler;
        }
        Compiler::new(self.arch()).line_info(self.context().is_none())
    }

    /// The kernel of this key, staged, compiled and loaded when it is asked for the first time and kept as long as the device. Asking
    /// again costs well below a microsecond and calls nothing. The key must say everything that decides what is staged, the kernel's
    /// name included.
    ///
    /// ```
    /// use tilewright::kernels::examples::vector_add;
    /// use tilewright::prelude::*;
    ///
    /// fn add(device: &Device, x: &Buffer<f32>, y: &Buffer<f32>, out: &Buffer<f32>, block: u32) -> Result<(), Box<dyn std::error::Error>> {
    ///     let kernel = device.cached(&("vector_add", block), || vector_add::stage::<f32>(block))?;
    ///     let n = u32::try_from(out.len())?;
    ///     kernel.launch(n.div_ceil(block), &[x, y, out, &n])?;
    ///     Ok(())
    /// }
    ///
    /// let device = Device::cpu();
    /// let (x, out) = (device.upload(&[1.0f32; 100])?, device.alloc::<f32>(100)?);
    /// add(&device, &x, &x, &out, 64)?;
    /// add(&device, &x, &out, &out, 64)?; // nothing is staged or compiled
    /// assert_eq!(out.to_vec()?, [3.0; 100]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the kernel cannot be staged or compiled; then nothing is kept.
    pub fn cached<K: CacheKey>(
        &self,
        key: &K,
        stage: impl FnOnce() -> Result<tilewright_lang::Kernel, tilewright_lang::Error>,
    ) -> Result<Kernel, DeviceError> {
        let make = || self.body(&stage()?, self.compiler());
        Ok(Kernel::new(self, self.shared.kernels.get(key, make)?))
    }

    /// The same with a compiler of your own: for another chip, without passes.
    ///
    /// # Errors
    /// If the chip cannot do what the kernel asks for.
    pub fn compile_with(
        &self,
        kernel: &tilewright_lang::Kernel,
        compiler: Compiler,
    ) -> Result<Kernel, DeviceError> {
        Ok(Kernel::new(self, Arc::new(self.body(kernel, compiler)?)))
    }

    fn body(&self, kernel: &tilewright_lang::Kernel, compiler: Compiler) -> Result<Body, DeviceError> {
        if kernel.func().is_tile_level() {
            return Err(DeviceError::TileKernel { kernel: kernel.name().to_owned() });
        }
        Body::made(self, kernel, &self.make(kernel, None, compiler)?)
    }

    /// A kernel on tiles, ready to be launched. It is compiled when it is launched, once for each set of facts about its arguments that make
    /// a difference; on the [CPU](Device::cpu) it is interpreted. [`Program`] has the details.
    ///
    /// ```
    /// use tilewright::lang::tile::prelude::*;
    /// use tilewright::prelude::Device;
    ///
    /// #[kernel]
    /// fn softmax(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    ///     let x = x.partition([1, columns]).load_or(f32::NEG_INFINITY);
    ///     let e = (x - x.max(1)).exp();
    ///     out.partition([1, columns]).store(e / e.sum(1));
    /// }
    ///
    /// let device = Device::best();
    /// let softmax = device.program(&softmax::stage(128)?)?;
    /// let (x, out) = (device.upload(&[1.0f32; 3 * 100])?, device.alloc::<f32>(3 * 100)?);
    /// softmax.run(&[&x.view([3, 100]), &out.view([3, 100])])?;
    /// assert!(out.to_vec()?.iter().all(|y| (y - 0.01).abs() < 1e-6));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it is a kernel for threads, which [`Device::compile`] takes, or the CPU cannot interpret it.
    pub fn program(&self, kernel: &tilewright_lang::Kernel) -> Result<Program, DeviceError> {
        self.program_with(kernel, self.compiler())
    }

    /// The same with a compiler of your own: for another chip, without passes.
    ///
    /// # Errors
    /// As [`Device::program`].
    pub fn program_with(
        &self,
        kernel: &tilewright_lang::Kernel,
        compiler: Compiler,
    ) -> Result<Program, DeviceError> {
        Ok(Program::new(self, Arc::new(program::Body::new(self, kernel, compiler)?)))
    }

    /// The program of this key, made when it is asked for the first time and kept, with all that is compiled of it, as long as the device:
    /// what [`Device::cached`] is to kernels for threads.
    ///
    /// # Errors
    /// If the kernel cannot be staged, or is none on tiles; then nothing is kept.
    pub fn cached_program<K: CacheKey>(
        &self,
        key: &K,
        stage: impl FnOnce() -> Result<tilewright_lang::Kernel, tilewright_lang::Error>,
    ) -> Result<Program, DeviceError> {
        let make = || program::Body::new(self, &stage()?, self.compiler());
        Ok(Program::new(self, self.shared.kernels.get(key, make)?))
    }

    /// A tensor map over a buffer: `dims` are the extents of the tensor in elements, *innermost first*, without gaps between rows.
    /// The specification is the kernel's own ([`lang::Kernel::tensor_map`](crate::lang::Kernel::tensor_map)), or made by hand.
    ///
    /// ```
    /// use tilewright::hardware::{Element, SwizzleMode, TensorMapSpec};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::simulator();
    /// let x = device.upload(&[0.0f32; 64 * 32])?;
    /// let spec = TensorMapSpec::new(Element::F32, &[32, 64], SwizzleMode::B128)?;
    /// let map = device.tensor_map(&spec, &x, &[32, 64])?;
    /// assert_eq!(map.dims(), [32, 64]);
    ///
    /// let error = device.tensor_map(&spec, &x, &[32, 65]).unwrap_err();
    /// assert!(error.to_string().contains("needs 8320 bytes, but the buffer has 8192"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the copy engine cannot address such a tensor, or the buffer has another type or is too small.
    pub fn tensor_map<T: Item>(
        &self,
        spec: &TensorMapSpec,
        buffer: &Buffer<T>,
        dims: &[u64],
    ) -> Result<TensorMap, DeviceError> {
        self.tensor_map_strided(spec, buffer, dims, &host::dense_strides(spec, dims))
    }

    /// The same for a tensor with gaps: `strides` are bytes between neighbours of each dimension but the innermost.
    ///
    /// ```
    /// use tilewright::hardware::{Element, SwizzleMode, TensorMapSpec};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::simulator();
    /// let x = device.upload(&[0.0f32; 64 * 40])?; // 64 rows of 32 elements, 40 apart
    /// let spec = TensorMapSpec::new(Element::F32, &[32, 64], SwizzleMode::B128)?;
    /// let map = device.tensor_map_strided(&spec, &x, &[32, 64], &[160])?;
    /// assert_eq!(map.dims(), [32, 64]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::tensor_map`].
    pub fn tensor_map_strided<T: Item>(
        &self,
        spec: &TensorMapSpec,
        buffer: &Buffer<T>,
        dims: &[u64],
        strides: &[u64],
    ) -> Result<TensorMap, DeviceError> {
        if !self.owns(&buffer.memory) {
            return Err(DeviceError::OtherDevice);
        }
        if spec.element() != T::ELEMENT {
            return Err(DeviceError::MapElement { found: T::ELEMENT, expected: spec.element() });
        }
        self.map_memory(spec, (&buffer.memory, buffer.offset, buffer.bytes()), dims, strides)
    }

    /// A map over memory whose type was checked, or does not matter.
    pub(crate) fn map_memory(
        &self,
        spec: &TensorMapSpec,
        (memory, offset, found): (&Arc<Memory>, usize, u64),
        dims: &[u64],
        strides: &[u64],
    ) -> Result<TensorMap, DeviceError> {
        let needed = reach(u64::from(spec.element().bytes()), dims, strides);
        match needed {
            Some(needed) if needed <= found => {}
            _ => return Err(DeviceError::MapBounds { dims: dims.to_vec(), needed, found }),
        }
        let map = match &**memory {
            Memory::Host(place) => {
                let address = place.address() + offset as u64;
                Map::Host(Box::new(host::strided_map(spec, address, dims, strides)?))
            }
            Memory::Gpu(place) => {
                let bytes = usize::try_from(found).unwrap_or(usize::MAX - offset);
                Map::Gpu(Box::new(place.map(spec, (offset, bytes), dims, strides)?))
            }
        };
        Ok(TensorMap { map, spec: spec.clone(), dims: dims.to_vec(), memory: memory.clone() })
    }

    fn owns(&self, memory: &Memory) -> bool {
        match (self.backend(), memory) {
            (Backend::Host(host), Memory::Host(memory)) => Arc::ptr_eq(host, memory.host()),
            (Backend::Gpu(gpu), Memory::Gpu(memory)) => Arc::ptr_eq(gpu, memory.gpu()),
            _ => false,
        }
    }
}

/// Bytes from the start of a tensor to its end; none if that is no number.
fn reach(width: u64, dims: &[u64], strides: &[u64]) -> Option<u64> {
    if dims.contains(&0) {
        return Some(0);
    }
    let steps = [width].into_iter().chain(strides.iter().copied());
    dims.iter()
        .zip(steps)
        .try_fold(width, |bytes, (&extent, step)| bytes.checked_add(step.checked_mul(extent - 1)?))
}

/// Bytes of so many elements, if that is a number.
fn bytes<T: Item>(len: usize) -> Result<usize, DeviceError> {
    let bytes = len.checked_mul(T::ELEMENT.bytes() as usize);
    bytes.ok_or(DeviceError::Memory { len, element: T::ELEMENT })
}

/// Bytes of so many elements, if this computer has room for them.
fn room<T: Item>(len: usize) -> Result<usize, DeviceError> {
    let fits = |bytes: &usize| Vec::<u8>::new().try_reserve_exact(*bytes).is_ok();
    Some(bytes::<T>(len)?).filter(fits).ok_or(DeviceError::Memory { len, element: T::ELEMENT })
}
