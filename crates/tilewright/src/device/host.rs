//! Devices that are this computer: the simulator, and the CPU, which is the simulator's engine without its checks.
//!
//! Whoever works on the memory has it locked, and all cores take part in the work. Those are threads of our own, which lock nothing: threads
//! of the caller's that took part could all be waiting for the lock already. And a thread of rayon's that waits takes up other work
//! meanwhile, which may want the very lock that it holds; so such a thread has another one wait in its place ([`apart`]).

use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::{fmt, thread};

use rayon::{ThreadPool, ThreadPoolBuilder};
use tilewright_hardware::{Arch, TensorMapSpec};
use tilewright_sim::tensor::tensor_map::{Access, DataType, Spec};
use tilewright_sim::{Arg, Launch, Module, Options, Report, SimError, Simulator, TensorMap};

use super::value::{Map, Memory, Passed};
use super::{DeviceError, DeviceKind};

/// A simulator that is shared.
pub(super) struct Host {
    kind: DeviceKind,
    /// Whether it runs what it is told to.
    runs: bool,
    /// The chip that it stands for.
    arch: Arch,
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
    pub(super) fn new(kind: DeviceKind, mut options: Options) -> Host {
        // Kernels are compiled for the oldest chip that can run them; they run on the one that the device stands for.
        let arch = *options.chip.get_or_insert(Arch::SM_90A);
        Host { kind, runs: true, arch, simulator: Mutex::new(Simulator::new(options)) }
    }

    /// One that takes kernels and runs none.
    pub(super) fn idle(options: Options) -> Host {
        Host { runs: false, ..Host::new(DeviceKind::Simulator, options) }
    }

    pub(super) fn runs(&self) -> bool {
        self.runs
    }

    pub(super) fn kind(&self) -> DeviceKind {
        self.kind
    }

    pub(super) fn arch(&self) -> Arch {
        self.arch
    }

    pub(super) fn alloc(self: &Arc<Host>, bytes: usize) -> HostMemory {
        let place = self.lock().alloc(bytes);
        HostMemory { host: self.clone(), place }
    }

    pub(super) fn upload(self: &Arc<Host>, bytes: &[u8]) -> HostMemory {
        let place = self.lock().upload_owned(bytes.to_vec());
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
            Passed::Buffer(_, memory, offset) => match &***memory {
                Memory::Host(memory) => Ok(Arg::U64(memory.address() + *offset as u64)),
                Memory::Gpu(_) => Err(DeviceError::OtherDevice),
            },
            Passed::Map(_, Map::Host(map), _) => Ok(Arg::TensorMap((**map).clone())),
            // Views are a program's, which has made pointers and numbers of them.
            Passed::Map(_, Map::Gpu(_), _) | Passed::View(_) => Err(DeviceError::OtherDevice),
        });
        let arguments: Vec<Arg> = arguments.collect::<Result<_, _>>()?;
        // The simulator has threads of its own for each launch.
        Ok(apart(|| self.lock().launch(module, name, launch, &arguments))?)
    }

    /// Works on the memory itself, with all cores. Nothing else happens on the device meanwhile.
    pub(super) fn with_memory<R: Send>(&self, work: impl FnOnce(&mut Simulator) -> R + Send) -> R {
        apart(|| {
            let simulator = &mut *self.lock();
            match &*CORES {
                Some(cores) => cores.install(|| work(simulator)),
                // Without threads of our own there are still those of everybody.
                None => work(simulator),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Simulator> {
        // A panic elsewhere leaves the memory as it was.
        self.simulator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads that work on memory. They are all devices': work never waits for another device.
static CORES: LazyLock<Option<ThreadPool>> = LazyLock::new(|| ThreadPoolBuilder::new().build().ok());

/// Does work that waits for other threads, on a thread that does nothing else while it waits.
fn apart<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_thread_index().is_none() {
        return work();
    }
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

impl HostMemory {
    pub(super) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub(super) fn address(&self) -> u64 {
        self.place.address()
    }

    /// All of it.
    pub(super) fn place(&self) -> tilewright_sim::Buffer {
        self.place
    }

    /// A part of it, which is inside: that is the buffers' part.
    fn part(&self, offset: usize, bytes: usize) -> Result<tilewright_sim::Buffer, SimError> {
        self.place.part(offset, bytes).ok_or(SimError::NoBuffer { address: self.address() + offset as u64 })
    }

    pub(super) fn read(&self, offset: usize, bytes: usize) -> Result<Vec<u8>, SimError> {
        self.host.lock().read(self.part(offset, bytes)?)
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), SimError> {
        self.host.lock().write(self.part(offset, bytes.len())?, bytes)
    }

    pub(super) fn copy_from(
        &self,
        offset: usize,
        from: &HostMemory,
        from_offset: usize,
        bytes: usize,
    ) -> Result<(), SimError> {
        self.host.lock().copy(from.part(from_offset, bytes)?, self.part(offset, bytes)?)
    }
}

/// A tensor map as the simulator takes it, for those who use [`sim`](crate::sim) without a [`Device`](super::Device): extents
/// innermost first, without gaps.
///
/// # Errors
/// If the copy engine cannot address such a tensor.
pub fn simulated_map(spec: &TensorMapSpec, address: u64, dims: &[u64]) -> Result<TensorMap, DeviceError> {
    strided_map(spec, address, dims, &dense_strides(spec, dims))
}

/// Bytes between neighbours of each dimension but the innermost, of a tensor without gaps.
pub(super) fn dense_strides(spec: &TensorMapSpec, dims: &[u64]) -> Vec<u64> {
    let grow = |stride: &mut u64, extent: &u64| {
        *stride = stride.saturating_mul(*extent);
        Some(*stride)
    };
    dims.iter().take(dims.len().saturating_sub(1)).scan(u64::from(spec.element().bytes()), grow).collect()
}

/// The same with gaps.
pub(super) fn strided_map(
    spec: &TensorMapSpec,
    address: u64,
    dims: &[u64],
    strides: &[u64],
) -> Result<TensorMap, DeviceError> {
    spec.check_tensor(address, dims, strides)?;
    let mut extents = [1; 5];
    extents.iter_mut().zip(spec.box_dims()).for_each(|(extent, given)| *extent = *given);
    let data_type = DataType::from_driver(spec.data_type()).map_err(SimError::from)?;
    let whole = Spec {
        data_type,
        address,
        dims,
        strides,
        access: Access::Tile { extents },
        element_strides: spec.element_strides(),
        interleave: 0,
        swizzle: spec.swizzle(),
        fill: spec.oob_fill(),
    };
    Ok(TensorMap::new(&whole).map_err(SimError::from)?)
}
