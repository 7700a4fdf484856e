//! A GPU behind the names of this module: one context, one stream.
//!
//! Buffers here are shared (clones are the same memory), while [`tilewright_cuda`] wants `&mut` for what is written. The two meet in
//! `Gpu::writable`: whoever enqueues something that writes holds the device's turn until it is enqueued, and everything goes to one
//! stream, so that operations happen in the order in which threads asked for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tilewright_cuda::{
    Arg, Buffer, Code, ComputeCapability, Context, CudaError, Kernel, LaunchConfig, Module, PackedKernelRef,
    SliceMut, Stream, TensorMap,
};
use tilewright_hardware::{self as hardware, Arch, TensorMapSpec};

use super::DeviceError;
use super::value::{Map, Memory, Passed};

/// A GPU in use.
#[derive(Debug)]
pub(super) struct Gpu {
    context: Context,
    stream: Stream,
    turn: Mutex<()>,
    /// What its code is compiled for: every launch asks.
    arch: Arch,
}

/// Held while something that writes is enqueued.
struct Turn<'a>(#[allow(dead_code, reason = "held, not looked at")] MutexGuard<'a, ()>);

/// Memory of a GPU; it goes, in the order of the stream, when nobody holds it any more.
#[derive(Debug)]
pub struct GpuMemory {
    gpu: Arc<Gpu>,
    buffer: Buffer<u8>,
}

impl Gpu {
    pub(super) fn open(ordinal: u32) -> Result<Gpu, CudaError> {
        let context = Context::new(ordinal)?;
        let stream = context.stream()?;
        let arch = arch(context.device().compute_capability);
        Ok(Gpu { context, stream, turn: Mutex::default(), arch })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Lends memory, given as what it is in, where it starts and how many bytes it has, to others who enqueue on the stream.
    pub(super) fn lend<R>(
        &self,
        places: &[(&Memory, usize, usize)],
        work: impl FnOnce(&Stream, Vec<SliceMut<'_, u8>>) -> R,
    ) -> Result<R, DeviceError> {
        let turn = self.turn();
        let slices = places.iter().map(|&(memory, start, bytes)| match memory {
            Memory::Gpu(memory) => Ok(self.writable(memory, &turn)?.slice(start..start + bytes)?),
            Memory::Host(_) => Err(DeviceError::OtherDevice),
        });
        let slices = slices.collect::<Result<_, _>>()?;
        Ok(work(&self.stream, slices))
    }

    pub(super) fn arch(&self) -> Arch {
        self.arch
    }

    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        self.stream.synchronize()
    }

    pub(super) fn alloc(self: &Arc<Gpu>, bytes: usize) -> Result<GpuMemory, CudaError> {
        Ok(GpuMemory { gpu: self.clone(), buffer: self.stream.alloc(bytes)? })
    }

    pub(super) fn zeroed(self: &Arc<Gpu>, bytes: usize) -> Result<GpuMemory, CudaError> {
        Ok(GpuMemory { gpu: self.clone(), buffer: self.stream.alloc_zeroed(bytes)? })
    }

    pub(super) fn upload(self: &Arc<Gpu>, bytes: &[u8]) -> Result<GpuMemory, CudaError> {
        Ok(GpuMemory { gpu: self.clone(), buffer: self.stream.upload(bytes)? })
    }

    #[allow(unsafe_code)]
    pub(super) fn load(&self, text: &str) -> Result<Module, CudaError> {
        // SAFETY: this device reaches plain numbers only, and maps no memory of the host: see `Trust` in the module `device`.
        unsafe { self.context.load(&Code::ptx(text)) }
    }

    #[allow(unsafe_code)]
    pub(super) fn load_packed(&self, kernel: &PackedKernelRef<'_>) -> Result<Module, CudaError> {
        // SAFETY: as in `load`.
        unsafe { self.context.load_packed_kernel(kernel) }
    }

    /// Enqueues a kernel.
    pub(super) fn launch(
        &self,
        kernel: &Kernel,
        config: &LaunchConfig,
        passed: &[Passed<'_>],
    ) -> Result<(), DeviceError> {
        let turn = self.turn();
        // As many as most kernels take need no heap.
        let mut arguments: SmallVec<[Arg<'_>; 24]> = SmallVec::new();
        for passed in passed {
            arguments.push(match passed {
                Passed::Number(number) => Arg::bytes(number.bytes()),
                Passed::Bytes(bytes) => Arg::bytes(bytes),
                Passed::Buffer(_, memory, offset) => match &***memory {
                    Memory::Gpu(memory) => self.writable(memory, &turn)?.slice(*offset..)?.into(),
                    Memory::Host(_) => return Err(DeviceError::OtherDevice),
                },
                Passed::Map(_, Map::Gpu(map), _) => (&**map).into(),
                // Views are a program's, which has made pointers and numbers of them.
                Passed::Map(_, Map::Host(_), _) | Passed::View(_) => return Err(DeviceError::OtherDevice),
            });
        }
        Ok(kernel.launch(&self.stream, config, arguments.as_slice())?)
    }

    fn turn(&self) -> Turn<'_> {
        // There is nothing behind the lock that a panic could spoil.
        Turn(self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Memory of this device to be written by what is enqueued during the turn.
    #[allow(unsafe_code)]
    fn writable<'a>(&self, memory: &'a GpuMemory, _: &'a Turn<'_>) -> Result<SliceMut<'a, u8>, DeviceError> {
        if !std::ptr::eq(self, Arc::as_ptr(&memory.gpu)) {
            return Err(DeviceError::OtherDevice);
        }
        // SAFETY: the buffer never leaves this module, where all that is done to it goes to the one stream of its device; those it is lent
        // to have the turn, so that only downloads of plain numbers could come between.
        Ok(unsafe { memory.buffer.shared_mut() })
    }
}

impl GpuMemory {
    pub(super) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub(super) fn address(&self) -> u64 {
        self.buffer.address()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    pub(super) fn read(&self, offset: usize, bytes: usize) -> Result<Vec<u8>, CudaError> {
        self.gpu.stream.download(self.buffer.slice(offset..offset + bytes)?)
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let turn = self.gpu.turn();
        let part = self.gpu.writable(self, &turn)?.slice(offset..offset + bytes.len())?;
        Ok(self.gpu.stream.copy(bytes, part)?)
    }

    /// Elements of 1, 2, 4 or 8 bytes.
    pub(super) fn fill(&self, offset: usize, bytes: usize, element: &[u8]) -> Result<(), DeviceError> {
        let turn = self.gpu.turn();
        let part = self.gpu.writable(self, &turn)?.slice(offset..offset + bytes)?;
        let stream = &self.gpu.stream;
        match *element {
            [a] => stream.fill(part, a),
            [a, b] => stream.fill(part.cast()?, u16::from_le_bytes([a, b])),
            [a, b, c, d] => stream.fill(part.cast()?, u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => {
                stream.fill(part.cast()?, u64::from_le_bytes([a, b, c, d, e, f, g, h]))
            }
            ref other => Err(CudaError::Length {
                what: "the bytes of the value to fill with",
                found: other.len(),
                expected: 8,
            }),
        }?;
        Ok(())
    }

    pub(super) fn copy_from(
        &self,
        offset: usize,
        from: &GpuMemory,
        from_offset: usize,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let turn = self.gpu.turn();
        let part = self.gpu.writable(self, &turn)?.slice(offset..offset + bytes)?;
        Ok(self.gpu.stream.copy(from.buffer.slice(from_offset..from_offset + bytes)?, part)?)
    }

    /// A map through which kernels load and store.
    pub(super) fn map(
        &self,
        spec: &TensorMapSpec,
        (offset, bytes): (usize, usize),
        dims: &[u64],
        strides: &[u64],
    ) -> Result<TensorMap, DeviceError> {
        let turn = self.gpu.turn();
        let part = self.buffer.slice(offset..offset + bytes)?;
        Ok(TensorMap::strided(spec, part, dims, strides)?.writable(self.gpu.writable(self, &turn)?)?)
    }
}

/// The most that kernels for a chip may use: everything of a chip that is known, what all have in common of one that is not.
fn arch(chip: ComputeCapability) -> Arch {
    let number = chip.major * 10 + chip.minor;
    let specific: Result<Arch, _> = format!("sm_{number}a").parse();
    let plain: Result<Arch, _> = format!("sm_{number}").parse();
    specific.or(plain).unwrap_or(if number > Arch::SM_90.number { Arch::SM_90 } else { Arch::SM_80 })
}

/// A chip by the table: the row of its name with the sizes that the driver says, or that of the chip most like it.
pub(super) fn chip(device: &tilewright_cuda::Device) -> hardware::Gpu {
    let (row, known) = row(&device.name, device.compute_capability);
    // The driver says the highest clock; the table, for chips that it has, that under load.
    let clock = if known { row.clock } else { f64::from(device.clock_khz) * 1e3 };
    hardware::Gpu {
        arch: arch(device.compute_capability),
        multiprocessors: device.multiprocessors,
        clock,
        memory: device.memory_bytes,
        l2: device.l2_bytes,
        ..*row
    }
}

/// A row of the table, and whether it is that of this very chip.
fn row(name: &str, chip: ComputeCapability) -> (&'static hardware::Gpu, bool) {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let named = hardware::Gpu::ALL.iter().filter(|gpu| plain.contains(gpu.name));
    // The longest: an L40S is no L4.
    if let Some(gpu) = named.max_by_key(|gpu| gpu.name.len()) {
        return (gpu, true);
    }
    (like(chip.major * 10 + chip.minor), false)
}

/// The row of the chip that is most like those of this number.
fn like(number: u32) -> &'static hardware::Gpu {
    let name = match number {
        80 => "a100",
        81..90 => "l40s",
        _ => "h100",
    };
    hardware::Gpu::named(name).unwrap_or(&hardware::Gpu::ALL[0])
}

/// The chip that stands for all of an architecture: the first of the table, or the one most like it.
pub(super) fn of_arch(arch: Arch) -> hardware::Gpu {
    let first = hardware::Gpu::ALL.iter().find(|gpu| gpu.arch.number == arch.number);
    hardware::Gpu { arch, ..*first.unwrap_or_else(|| like(arch.number)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_compiled_for_as_far_as_they_are_known() {
        for (major, minor, expected) in [
            (7, 5, Arch::SM_80),
            (8, 0, Arch::SM_80),
            (8, 6, Arch::SM_86),
            (8, 9, Arch::SM_89),
            (9, 0, Arch::SM_90A),
            (10, 0, Arch::SM_100A),
            (12, 0, Arch::SM_120A),
            (13, 7, Arch::SM_90),
        ] {
            assert_eq!(arch(ComputeCapability { major, minor }), expected, "{major}.{minor}");
        }
    }

    #[test]
    fn chips_are_found_in_the_table() {
        for (name, (major, minor), expected) in [
            ("NVIDIA H200", (9, 0), ("h200", true)),
            ("NVIDIA H100 80GB HBM3", (9, 0), ("h100", true)),
            ("NVIDIA A100-SXM4-80GB", (8, 0), ("a100", true)),
            ("NVIDIA L40S", (8, 9), ("l40s", true)),
            ("NVIDIA L4", (8, 9), ("l4", true)),
            ("NVIDIA GeForce RTX 4090", (8, 9), ("rtx4090", true)),
            ("NVIDIA A30", (8, 0), ("a100", false)),
            ("NVIDIA RTX A4000", (8, 6), ("l40s", false)),
            ("NVIDIA B200", (10, 0), ("h100", false)),
        ] {
            let (gpu, known) = row(name, ComputeCapability { major, minor });
            assert_eq!((gpu.name, known), expected, "{name}");
        }
    }

    #[test]
    fn architectures_have_a_chip_that_stands_for_them() {
        for (arch, expected) in [
            (Arch::SM_80, "a100"),
            (Arch::SM_86, "l40s"),
            (Arch::SM_89, "l40s"),
            (Arch::SM_90, "h200"),
            (Arch::SM_90A, "h200"),
            (Arch::SM_120A, "h100"),
        ] {
            let gpu = of_arch(arch);
            assert_eq!((gpu.name, gpu.arch), (expected, arch), "{arch}");
        }
    }

    #[test]
    fn without_a_gpu_there_is_an_error() {
        // A number that no machine has; without a driver, any.
        assert!(Gpu::open(u32::MAX).is_err());
    }
}
