//! Ten thousand cycles of making and dropping everything that the runtime hands out leave nothing behind: no memory of the device, no
//! memory of the process, no open files.
//!
//! A program of its own that does one thing after the other, since whatever else ran would be counted too; other users of the same GPU
//! are. Ignored, visibly, where there is no GPU; `TILEWRIGHT_REQUIRE_GPU=1` makes that a failure. About half a minute on an H200.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_cuda::cudarc::driver::CudaContext;
use tilewright_cuda::{
    Buffer, Code, Context, CudaError, DiskCache, Driver, Kernel, LaunchConfig, Module, Origin, PoolOptions,
    TensorMap,
};
use tilewright_hardware::{Element, SwizzleMode, TensorMapSpec};

const SAXPY: &str = include_str!("../examples/kernels/saxpy.ptx");

/// Cycles of one round.
const CYCLES: usize = 10_000;

/// Cycles before the first look, in which allocators and the driver's pools grow to the size that they keep.
const WARM_UP: usize = 1_000;

/// Rounds that may be tried. A pool that grows once more does not grow each time; a leak does.
const ROUNDS: usize = 3;

/// More bytes of the device than this after a round are a leak: the driver gives memory in pieces of this size.
const DEVICE_BYTES: i64 = 2 << 20;

/// More bytes of the process than this after a round are a leak: about 100 bytes a cycle.
const PROCESS_BYTES: i64 = 1 << 20;

/// More open files than this after a round are a leak.
const FILES: i64 = 8;

fn main() {
    let required = std::env::var_os("TILEWRIGHT_REQUIRE_GPU").is_some_and(|value| value == "1");
    let device = Driver::load().and_then(|driver| driver.device(0));
    let ignored = device.is_err() && !required;
    // Only devices of compute capability 9.0 and newer have tensor maps.
    let old = device.as_ref().is_ok_and(|device| device.compute_capability.major < 9);
    let alone = device.is_ok_and(|device| !device.concurrent_managed);
    let trials = [
        Trial::test("contexts", contexts),
        Trial::test("streams", streams),
        Trial::test("events", events),
        Trial::test("buffers_in_order", buffers_in_order),
        Trial::test("buffers_at_once", buffers_at_once),
        Trial::test("buffers_of_two_streams", buffers_of_two_streams),
        Trial::test("pinned", pinned),
        Trial::test("pitched", pitched),
        Trial::test("pools", pools),
        Trial::test("launches", launches),
        Trial::test("host_calls", host_calls),
        Trial::test("modules", modules),
        Trial::test("graphs", graphs),
        Trial::test("graphs_by_hand", graphs_by_hand),
        Trial::test("failures", failures),
    ];
    let on_new = Trial::test("tensor_maps", tensor_maps).with_ignored_flag(ignored || old);
    let on_shared = Trial::test("managed", managed).with_ignored_flag(ignored || alone);
    let everywhere = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored));
    let trials = everywhere.chain([on_new, on_shared]).collect();
    let one_by_one = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&one_by_one, trials).exit();
}

/// What is in use.
#[derive(Clone, Copy)]
struct InUse {
    device: i64,
    process: i64,
    files: i64,
}

impl InUse {
    fn look() -> Result<InUse, Failed> {
        let context = Context::new(0)?;
        context.synchronize()?;
        let (free, total) = context.memory()?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        let kibibytes: i64 = resident.trim().trim_end_matches(" kB").parse()?;
        let files = std::fs::read_dir("/proc/self/fd")?.count();
        Ok(InUse {
            device: i64::try_from(total - free)?,
            process: kibibytes << 10,
            files: i64::try_from(files)?,
        })
    }

    fn since(self, before: InUse) -> InUse {
        InUse {
            device: self.device - before.device,
            process: self.process - before.process,
            files: self.files - before.files,
        }
    }

    fn is_leak(self) -> bool {
        self.device > DEVICE_BYTES || self.process > PROCESS_BYTES || self.files > FILES
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InUse { device, process, files } = self;
        write!(f, "{device} bytes of the device, {process} bytes of the process, {files} files")
    }
}

/// Makes things and drops them; fails if every round of cycles leaves something behind.
fn expect_no_leak<T, E: Into<Failed>>(mut cycle: impl FnMut() -> Result<T, E>) -> Result<(), Failed> {
    let mut run = |count: usize| (0..count).try_for_each(|_| cycle().map(drop).map_err(Into::into));
    run(WARM_UP)?;
    let mut left = Vec::new();
    for _ in 0..ROUNDS {
        let before = InUse::look()?;
        run(CYCLES)?;
        let grown = InUse::look()?.since(before);
        if !grown.is_leak() {
            return Ok(());
        }
        left.push(grown.to_string());
    }
    Err(format!("{CYCLES} cycles left behind, each time: {}", left.join("; ")).into())
}

/// Loads the kernel of these tests.
#[allow(unsafe_code)]
fn load(context: &Context) -> Result<Module, CudaError> {
    // SAFETY: it stays within what it is given.
    unsafe { context.load(&Code::ptx(SAXPY)) }
}

/// The device's context is taken and released each time. Somebody else keeps it, or each cycle would make and destroy the context
/// itself, which takes a large part of a second.
fn contexts() -> Result<(), Failed> {
    Driver::load()?;
    let _keeper = CudaContext::new(0).map_err(|error| format!("{error:?}"))?;
    expect_no_leak(|| Context::new(0))
}

fn streams() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let mut word = context.stream()?.alloc_zeroed::<u32>(1)?;
    expect_no_leak(|| {
        let stream = context.stream()?;
        // Memory remembers who used it last.
        stream.fill(&mut word, 7)
    })
}

fn events() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (stream, other) = (context.stream()?, context.stream()?);
    expect_no_leak(|| {
        let timed = context.event()?;
        timed.record(&stream)?;
        other.wait(&timed)?;
        other.wait_for(&stream)
    })
}

/// Room for a few numbers, or for more than a page.
fn sizes() -> impl FnMut() -> usize {
    let mut sizes = [16usize, 100_000].into_iter().cycle();
    move || sizes.next().unwrap_or(1)
}

fn buffers_in_order() -> Result<(), Failed> {
    let stream = Context::new(0)?.stream()?;
    let mut size = sizes();
    expect_no_leak(|| stream.alloc_zeroed::<u32>(size()))
}

fn buffers_at_once() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let mut size = sizes();
    expect_no_leak(|| {
        let mut buffer: Buffer<u32> = context.alloc(size())?;
        stream.fill(&mut buffer, 7)
    })
}

fn buffers_of_two_streams() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (a, b) = (context.stream()?, context.stream()?);
    expect_no_leak(|| {
        let from = a.alloc_zeroed::<u32>(64)?;
        let mut to = b.alloc::<u32>(64)?;
        b.copy(&from, &mut to)?;
        a.fill(&mut to, 7)
    })
}

fn launches() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let kernel = load(&context)?.kernel("saxpy")?;
    let config = LaunchConfig::new(1, 64);
    expect_no_leak(|| {
        let x = stream.alloc_zeroed::<f32>(64)?;
        let mut y = stream.alloc_zeroed::<f32>(64)?;
        kernel.launch(&stream, &config, (2.0f32, &x, &mut y, 64u32))
    })
}

fn host_calls() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let called = Arc::new(AtomicUsize::new(0));
    let mut asked = 0;
    expect_no_leak(|| {
        let called = called.clone();
        // Large enough to be seen if it stays.
        let luggage = [1usize; 64];
        asked += 1;
        stream.host_call(move || {
            called.fetch_add(luggage[0], Ordering::Relaxed);
        })
    })?;
    stream.synchronize()?;
    let called = called.load(Ordering::Relaxed);
    if called == asked { Ok(()) } else { Err(format!("{called} of {asked} functions were called").into()) }
}

/// Compiled once, then from the cache on disk: what a cycle loads is a cubin.
fn modules() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let folder = tempfile::tempdir()?;
    context.set_cache(DiskCache::at(folder.path().join("cache")));
    load(&context)?;
    expect_no_leak(|| -> Result<Kernel, Failed> {
        let module = load(&context)?;
        if module.origin() == Origin::Disk {
            Ok(module.kernel("saxpy")?)
        } else {
            Err("it was compiled again".into())
        }
    })
}

fn graphs() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (stream, side) = (context.stream()?, context.stream()?);
    let kernel = load(&context)?.kernel("saxpy")?;
    let config = LaunchConfig::new(1, 64);
    expect_no_leak(|| -> Result<(), CudaError> {
        let x = stream.alloc_zeroed::<f32>(64)?;
        let mut y = stream.alloc_zeroed::<f32>(64)?;
        let graph = stream.capture(|| {
            kernel.launch(&stream, &config, (2.0f32, &x, &mut y, 64u32))?;
            side.wait_for(&stream)?;
            side.fill(&mut y, 0.0)?;
            stream.wait_for(&side)?;
            stream.host_call_in_graph(|| {})
        })?;
        let ready = graph.instantiate()?;
        drop(graph);
        ready.launch(&stream)
    })
}

/// Page-locked memory, with a copy from it that may be under way when it goes.
fn pinned() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let mut target = stream.alloc::<u32>(1024)?;
    expect_no_leak(|| {
        let source = context.pinned::<u32>(1024)?;
        stream.copy(&source, &mut target)
    })
}

fn managed() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    expect_no_leak(|| {
        let mut memory = context.managed::<u32>(1024)?;
        stream.fill(memory.as_mut_slice(), 7)
    })
}

fn pitched() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    expect_no_leak(|| {
        let mut memory = context.alloc_pitched::<f32>(8, 100)?;
        stream.fill_2d(&mut memory, 1.0)
    })
}

/// Pools of one's own, each with memory that outlives the handle of the pool.
fn pools() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    expect_no_leak(|| {
        let pool = context.pool(&PoolOptions::default())?;
        let memory = pool.alloc::<u32>(&stream, 64)?;
        drop(pool);
        drop(memory);
        // What the pool holds is the driver's until the free has run.
        stream.synchronize()
    })
}

fn graphs_by_hand() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let kernel = load(&context)?.kernel("saxpy")?;
    let config = LaunchConfig::new(1, 64);
    expect_no_leak(|| -> Result<(), Failed> {
        let x = stream.alloc_zeroed::<f32>(64)?;
        let mut y = stream.alloc_zeroed::<f32>(64)?;
        let mut graph = context.graph()?;
        let first = graph.fill(&mut y, 1.0, &[])?;
        let second = graph.kernel(&kernel, &config, (1.0f32, &x, &mut y, 64u32), &[first])?;
        graph.host_call(|| (), &[second])?;
        graph.finish()?.instantiate()?.launch(&stream)?;
        Ok(())
    })
}

fn tensor_maps() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let spec = TensorMapSpec::new(Element::BF16, &[64, 128], SwizzleMode::B128)?;
    expect_no_leak(|| {
        let matrix = stream.alloc::<u16>(512 * 128)?;
        // The map keeps the memory.
        TensorMap::new(&spec, &matrix, &[512, 128])
    })
}

/// What is refused must not stay half made.
fn failures() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let kernel = load(&context)?.kernel("saxpy")?;
    let config = LaunchConfig::new(1, 64);
    expect_no_leak(|| -> Result<(), Failed> {
        let x = stream.alloc_zeroed::<f32>(64)?;
        let mut y = stream.alloc_zeroed::<f32>(64)?;
        let refused = [
            stream.alloc::<u8>(1 << 50).map(drop),
            context.alloc::<u8>(1 << 50).map(drop),
            kernel.launch(&stream, &config, (2.0f32, &x, &mut y)),
            kernel.launch(&stream, &LaunchConfig::new(1, 4096), (2.0f32, &x, &mut y, 64u32)),
            // Ordinary memory cannot be copied in a capture, and the stream is live again afterwards.
            stream.capture(|| stream.download(&x).map(drop)).map(drop),
        ];
        match refused.iter().position(Result::is_ok) {
            Some(n) => Err(format!("failure {n} was none").into()),
            None => Ok(()),
        }
    })
}
