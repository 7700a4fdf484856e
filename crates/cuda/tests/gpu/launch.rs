//! Loading, launching, ordering, faults.

use std::process::Command;

use libtest_mimic::{Failed, Trial};
use tilewright_cuda::{Code, Context, CudaError, DiskCache, LaunchConfig, Module, Origin};

use crate::ensure;

const SAXPY: &str = include_str!("../../examples/kernels/saxpy.ptx");
const SPIN: &str = include_str!("../../examples/kernels/spin.ptx");
const CRASH: &str = include_str!("../../examples/kernels/crash.ptx");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("launch::saxpy", saxpy),
        Trial::test("launch::arguments_are_checked", arguments_are_checked),
        Trial::test("launch::streams_wait_for_each_other", streams_wait_for_each_other),
        Trial::test("launch::memory_outlives_its_owner", memory_outlives_its_owner),
        Trial::test("launch::a_graph_keeps_what_it_needs", a_graph_keeps_what_it_needs),
        Trial::test("launch::the_second_load_comes_from_disk", the_second_load_comes_from_disk),
        Trial::test("launch::a_fault_names_its_suspects", a_fault_names_its_suspects),
        Trial::test("launch::sixteen_threads", sixteen_threads),
    ]
}

/// Loads one of the kernels above.
#[allow(unsafe_code)]
pub(crate) fn load(context: &Context, ptx: &str) -> Result<Module, CudaError> {
    // SAFETY: these kernels stay within what they are given, but for `crash`, which has a process of its own.
    unsafe { context.load(&Code::ptx(ptx).without_cache()) }
}

fn saxpy() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let kernel = load(&context, SAXPY)?.kernel("saxpy")?;
    for n in [1usize, 31, 256, 1000, 100_003] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let dx = stream.upload(&x)?;
        let mut dy = stream.upload(&vec![1.0f32; n])?;
        let size = u32::try_from(n)?;
        kernel.launch(&stream, &LaunchConfig::cover(size, 256), (2.0f32, &dx, &mut dy, size))?;
        let y = stream.download(&dy)?;
        ensure(y.iter().zip(&x).all(|(y, x)| *y == 2.0 * x + 1.0), format!("wrong at n = {n}"))?;
    }
    Ok(())
}

fn arguments_are_checked() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let kernel = load(&context, SAXPY)?.kernel("saxpy")?;
    let x = stream.alloc_zeroed::<f32>(4)?;
    let mut y = stream.alloc_zeroed::<f32>(4)?;
    let config = LaunchConfig::new(1, 32);
    let says = |result: Result<(), CudaError>, text: &str| match result {
        Ok(()) => Err(Failed::from(format!("accepted, expected: {text}"))),
        Err(error) => ensure(error.to_string().contains(text), format!("{error}\nexpected: {text}")),
    };
    says(kernel.launch(&stream, &config, (1.0f32, &x, &mut y)), "was given 3 arguments, expected 4")?;
    says(
        kernel.launch(&stream, &config, (1.0f32, &x, &y, 4u32)),
        "argument 3 of kernel `saxpy` (parameter `y`): found memory to read, expected memory to write (`&mut`)",
    )?;
    says(kernel.launch(&stream, &config, (1.0f64, &x, &mut y, 4u32)), "argument 1 of kernel `saxpy`")?;
    says(
        kernel.launch(&stream, &config, (1u32, &x, &mut y, 4u32)),
        "expected a floating-point number of 32 bits",
    )?;
    says(
        kernel.launch(&stream, &config, (1.0f32, 7u64, &mut y, 4u32)),
        "found an integer of 64 bits, expected memory",
    )?;
    says(kernel.launch(&stream, &config, (1.0f32, &x, &mut y, &x)), "argument 4")?;
    let launch = |config: LaunchConfig, y: &mut _| kernel.launch(&stream, &config, (1.0f32, &x, y, 4u32));
    says(launch(LaunchConfig::new(1, 2048), &mut y), "the block of kernel `saxpy`: found 2048x1x1")?;
    says(launch(LaunchConfig::new(0, 32), &mut y), "the grid of kernel `saxpy`: found 0x1x1")?;
    says(launch(LaunchConfig::new((1, 70000), 32), &mut y), "expected 1x1x1 to 2147483647x65535x65535")?;
    says(launch(LaunchConfig::new(1, 32).shared(1 << 20), &mut y), "shared memory of kernel `saxpy`")?;
    says(launch(LaunchConfig::grid(1), &mut y), "the block of kernel `saxpy`: found nothing")?;
    says(launch(LaunchConfig::new(3, 32).cluster(2), &mut y), "expected a multiple of the cluster, 2x1x1")?;
    // All that failed before it reached the driver; this is in order.
    launch(LaunchConfig::new(1, 32).shared(100 << 10), &mut y)?;
    launch(LaunchConfig::new(4, 32).cluster(2), &mut y)?;
    launch(LaunchConfig::new(16, 32).cluster(16), &mut y)?;
    launch(LaunchConfig::new(4, 32).cooperative(), &mut y)?;
    launch(LaunchConfig::new(4, 32).programmatic(), &mut y)?;
    says(launch(LaunchConfig::new(1_000_000, 32).cooperative(), &mut y), "the grid of a cooperative launch")?;
    Ok(stream.synchronize()?)
}

fn streams_wait_for_each_other() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (a, b) = (context.stream()?, context.stream()?);
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    let mut word = a.alloc_zeroed::<u32>(1)?;
    for round in 0..20u32 {
        // The write takes 2 ms on one stream; the other reads it without being told to wait.
        spin.launch(&a, &one, (&mut word, round + 100, 2_000_000u32))?;
        ensure(b.download(&word)? == [round + 100], "read before written")?;
        spin.launch(&b, &one, (&mut word, round + 200, 1_000_000u32))?;
        spin.launch(&a, &one, (&mut word, round + 300, 0u32))?;
        ensure(b.download(&word)? == [round + 300], "writes out of order")?;
    }
    Ok(())
}

fn memory_outlives_its_owner() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (a, b) = (context.stream()?, context.stream()?);
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    for _ in 0..50 {
        let mut early = a.alloc::<u32>(1)?;
        // Used on b for 1 ms, dropped at once: a must not reuse the memory before b is done.
        spin.launch(&b, &one, (&mut early, 0xdead_beefu32, 1_000_000u32))?;
        drop(early);
        let mut late = a.alloc::<u32>(1)?;
        spin.launch(&a, &one, (&mut late, 1u32, 0u32))?;
        b.synchronize()?;
        ensure(a.download(&late)? == [1], "memory was given away while in use")?;
    }
    Ok(())
}

fn a_graph_keeps_what_it_needs() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (stream, side) = (context.stream()?, context.stream()?);
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let mut out = stream.alloc_zeroed::<f32>(64)?;
    let config = LaunchConfig::new(1, 64);
    let graph = {
        let x = stream.upload(&[1.0f32; 64])?;
        let mut y = stream.upload(&[0.0f32; 64])?;
        stream.capture(|| {
            saxpy.launch(&stream, &config, (1.0f32, &x, &mut y, 64u32))?;
            // A fork: the copy waits for the kernel because both use `y`.
            side.wait_for(&stream)?;
            side.copy(&y, &mut out)?;
            stream.wait_for(&side)
        })?
        // x, y and the kernel's module are dropped here.
    };
    drop(saxpy);
    let ready = graph.instantiate()?;
    drop(graph);
    let noise = stream.upload(&vec![7u8; 1 << 20])?;
    for round in 1..=10u32 {
        ready.launch(&stream)?;
        let out = stream.download(&out)?;
        ensure(out.iter().all(|value| *value == round as f32), format!("round {round}: {:?}", &out[..4]))?;
    }
    drop(noise);
    ensure(!stream.is_capturing() && !side.is_capturing(), "a stream is still being captured")
}

#[allow(unsafe_code)]
fn the_second_load_comes_from_disk() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let _alone = crate::CACHE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    context.set_cache(DiskCache::at(folder.path().join("cache")));
    // SAFETY: as in `load`.
    let load = || unsafe { context.load(&Code::ptx(SAXPY)) };
    let first = load()?;
    let second = load()?;
    context.set_cache(DiskCache::off());
    ensure(matches!(first.origin(), Origin::Compiled(_)), format!("{:?}", first.origin()))?;
    ensure(second.origin() == Origin::Disk, format!("{:?}", second.origin()))?;
    ensure(first.signatures() == second.signatures(), "other signatures")?;
    let stream = context.stream()?;
    let x = stream.upload(&[1.0f32; 8])?;
    let mut y = stream.upload(&[1.0f32; 8])?;
    second.kernel("saxpy")?.launch(&stream, &LaunchConfig::new(1, 8), (2.0f32, &x, &mut y, 8u32))?;
    ensure(stream.download(&y)? == [3.0; 8], "wrong result")
}

/// A fault ends the context of a process, so it happens in another one: this program again.
fn a_fault_names_its_suspects() -> Result<(), Failed> {
    const CHILD: &str = "TILEWRIGHT_TEST_FAULT";
    if std::env::var_os(CHILD).is_none() {
        let me = std::env::current_exe()?;
        let name = "launch::a_fault_names_its_suspects";
        let output = Command::new(me).args(["--exact", name]).env(CHILD, "1").output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        return ensure(output.status.success(), text);
    }
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let crash = load(&context, CRASH)?.kernel("crash")?;
    let x = stream.upload(&[1.0f32; 4])?;
    let mut y = stream.upload(&[1.0f32; 4])?;
    let config = LaunchConfig::new(1, 4);
    saxpy.launch(&stream, &config, (1.0f32, &x, &mut y, 4u32))?;
    stream.synchronize()?;
    crash.launch(&stream, &config, ())?;
    let Err(error @ CudaError::Fault(_)) = stream.synchronize() else { return Err("no fault".into()) };
    let text = error.to_string();
    ensure(text.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), &text)?;
    ensure(text.ends_with("the launch pending then: `crash` (1x1x1 blocks of 4x1x1, stream 1)"), &text)?;
    ensure(error.is_sticky() && error.remedy().contains("restarted"), error.remedy())?;
    let Err(after @ CudaError::ContextLost { .. }) = stream.upload(&[1u8]).map(|_| ()) else {
        return Err("the context lives on".into());
    };
    ensure(after.to_string().contains("lost since an earlier fault"), after)
}

fn sixteen_threads() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let kernel = load(&context, SAXPY)?.kernel("saxpy")?;
    let shared = context.stream()?;
    let run = |seed: u32| -> Result<(), CudaError> {
        let own = context.stream()?;
        for round in 0..200u32 {
            let stream = if round % 4 == 0 { &shared } else { &own };
            let x = stream.upload(&[seed as f32; 100])?;
            let mut y = stream.upload(&[round as f32; 100])?;
            for _ in 0..5 {
                kernel.launch(&own, &LaunchConfig::new(1, 128), (1.0f32, &x, &mut y, 100u32))?;
            }
            let expected = seed as f32 * 5.0 + round as f32;
            if stream.download(&y)?.iter().any(|value| *value != expected) {
                return Err(CudaError::Length {
                    what: "wrong results",
                    found: seed as usize,
                    expected: round as usize,
                });
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|seed| scope.spawn(move || run(seed))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => Ok(result?),
            Err(_) => Err(Failed::from("a thread panicked")),
        })
    })
}
