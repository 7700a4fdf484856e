//! [`Recorder`]: finds out what a program launches, and compiles it ahead of time.

use std::sync::{Mutex, PoisonError};

use tilewright_compiler::Compiler;
use tilewright_cuda::{Form, PackedKernel};
use tilewright_hardware::{self as hardware, Arch};
use tilewright_lang::Kernel;

use super::packed::{self, Facts};
use super::{Device, DeviceError, Options, code, dense_facts};

/// A device that runs nothing and keeps what it was asked to run, compiled for a chip: what goes into a [pack](crate::cuda::PackBuilder).
///
/// A kernel on tiles has a variant for each set of facts about its arguments, and an operator chooses its kernel by the extents of what it is
/// given. So a pack is made by doing what the program will do, with tensors of the same extents: in a build script, or before shipping.
///
/// ```
/// use tilewright::cuda::{Pack, PackBuilder};
/// use tilewright::device::{Device, Recorder};
/// use tilewright::ops::{Error, Rows, Softmax};
/// use tilewright::prelude::*;
///
/// /// What the program does.
/// fn work(device: &Device) -> Result<Buffer<f32>, Error> {
///     let x = device.upload(&[1.0f32; 8 * 1536])?;
///     Softmax::new().run(device, Rows::new(&x, 8, 1536), Rows::new(&x, 8, 1536))?;
///     Ok(x)
/// }
///
/// // Ahead of time, on any machine:
/// let mut pack = PackBuilder::new();
/// for arch in [Arch::SM_80, Arch::SM_90A] {
///     let recorder = Recorder::new(arch);
///     work(recorder.device())?;
///     pack.extend(recorder.kernels());
/// }
/// let bytes: &'static [u8] = pack.write().leak(); // include_bytes!("kernels.pack")
///
/// // In the program, where nothing is compiled:
/// let device = Device::simulator();
/// device.add_pack(Pack::parse(bytes)?);
/// device.only_packed(true);
/// let x = work(&device)?.to_vec()?;
/// assert!(x.iter().all(|x| (x * 1536.0 - 1.0).abs() < 1e-5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Memory of this device holds what the host writes to it; results are never computed. Kernels that are given a compiler of their own
/// ([`Device::compile_with`], [`Device::program_with`]) are not kept, as they are not looked for in packs.
#[derive(Clone, Debug)]
pub struct Recorder {
    device: Device,
}

/// What a recorder's device keeps.
pub(super) struct Recording {
    pub(super) compiler: Compiler,
    pub(super) chip: hardware::Gpu,
    any_tensor: bool,
    kernels: Mutex<Vec<PackedKernel>>,
}

impl Recording {
    /// Keeps a kernel; once, however often it is asked for.
    pub(super) fn keep(
        &self,
        kernel: &Kernel,
        facts: Option<&Facts>,
        build: &tilewright_compiler::Build,
    ) -> Result<(), DeviceError> {
        let arch = self.chip.arch;
        let mut made = vec![packed::pack(kernel, facts, build, arch)];
        if self.any_tensor && facts.is_some_and(|facts| !facts.is_empty()) {
            let build = code::compile(kernel, Some(&[]), self.compiler)?;
            made.push(packed::pack(kernel, Some(&[]), &build, arch));
        }
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        for kernel in made {
            if !kernels.contains(&kernel) {
                kernels.push(kernel);
            }
        }
        Ok(())
    }
}

impl Recorder {
    /// For an architecture; plans that depend on the size of a chip are those of the first GPU in the [table](hardware::Gpu::ALL) that has
    /// it.
    #[must_use]
    pub fn new(arch: Arch) -> Recorder {
        let exactly = hardware::Gpu::ALL.iter().find(|gpu| gpu.arch == arch);
        let gpu = exactly.or_else(|| hardware::Gpu::ALL.iter().rev().find(|gpu| arch.supports(gpu.arch)));
        Recorder::for_chip(hardware::Gpu { arch, ..*gpu.unwrap_or(&hardware::Gpu::ALL[0]) })
    }

    /// For a certain GPU.
    ///
    /// ```
    /// use tilewright::{device::Recorder, hardware::Gpu};
    /// let recorder = Recorder::for_chip(*Gpu::named("h100").ok_or("not in the table")?);
    /// assert_eq!(recorder.device().arch().to_string(), "sm_90a");
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn for_chip(chip: hardware::Gpu) -> Recorder {
        Recorder::with(Compiler::new(chip.arch).line_info(false), chip, false)
    }

    fn with(compiler: Compiler, chip: hardware::Gpu, any_tensor: bool) -> Recorder {
        let recording = Recording { compiler, chip, any_tensor, kernels: Mutex::default() };
        let options = Options { chip: Some(chip.arch), ..Options::unchecked() };
        Recorder { device: Device::recording(recording, options) }
    }

    /// Compiled in another way: with lines, without passes. Nothing is kept yet.
    #[must_use]
    pub fn with_compiler(self, compiler: Compiler) -> Recorder {
        self.with_recording(|recording| Recorder::with(compiler, recording.chip, recording.any_tensor))
    }

    /// Each kernel on tiles a second time, for tensors of any strides and alignment: slower, but there for all that nobody thought of.
    /// Nothing is kept yet.
    #[must_use]
    pub fn any_tensor(self) -> Recorder {
        self.with_recording(|recording| Recorder::with(recording.compiler, recording.chip, true))
    }

    fn with_recording<R>(&self, read: impl FnOnce(&Recording) -> R) -> R {
        #[expect(clippy::expect_used, reason = "made with one, which nobody takes away")]
        read(self.device.shared.recording.as_ref().expect("a recording"))
    }

    /// What is asked to do the work. It is a [simulator](super::DeviceKind::Simulator) to those who ask.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Adds a kernel that is not launched: one for threads as it is, one on tiles for [dense](dense_facts) tensors.
    ///
    /// # Errors
    /// If the chip cannot do what the kernel asks for.
    pub fn add(&self, kernel: &Kernel) -> Result<(), DeviceError> {
        let facts = kernel.func().is_tile_level().then(|| dense_facts(kernel));
        self.with_recording(|recording| {
            let build = code::compile(kernel, facts.as_deref(), recording.compiler)?;
            recording.keep(kernel, facts.as_deref(), &build)
        })
    }

    /// All that was asked for so far, as PTX.
    #[must_use]
    pub fn kernels(&self) -> Vec<PackedKernel> {
        self.with_recording(|recording| {
            recording.kernels.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }

    /// The same with machine code beside the PTX, by what an assembler makes of the text for a chip. `by` is its name, for people.
    ///
    /// # Errors
    /// What the assembler says.
    pub fn assembled<E>(
        &self,
        by: &str,
        mut assemble: impl FnMut(&str, Arch) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<PackedKernel>, E> {
        let arch = self.device.arch();
        let mut all = Vec::new();
        for kernel in self.kernels() {
            let code = assemble(&String::from_utf8_lossy(&kernel.code), arch)?;
            let producer = format!("{}, {by}", kernel.producer);
            let target = arch.to_string().parse().unwrap_or(kernel.target);
            all.extend([
                kernel.clone(),
                PackedKernel { form: Form::Cubin, target, code, producer, ..kernel },
            ]);
        }
        Ok(all)
    }
}
