//! The kinds of memory, each with what it is for, what it costs to move, and a check that the right bytes arrived.
//!
//! `cargo run --release --example memory_kinds`

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tilewright_cuda::{Code, Context, CudaError, HostRect, LaunchConfig, PoolOptions, Stream};

const SAXPY: &str = include_str!("kernels/saxpy.ptx");
const LEN: usize = 16 << 20;

fn main() -> ExitCode {
    let context = match Context::new(0) {
        Ok(context) => context,
        Err(problem) => {
            eprintln!("{problem}\n{}", problem.remedy());
            return ExitCode::from(2);
        }
    };
    match run(&context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(context: &Context) -> Result<(), Box<dyn Error>> {
    println!("{}: arrays of {} MiB", context.device().name, (LEN * 4) >> 20);
    let stream = context.stream()?;
    let values: Vec<u32> = (0u32..).take(LEN).collect();

    // Ordinary host memory goes through a buffer of the driver, and the copy is waited for.
    let mut device = stream.alloc::<u32>(LEN)?;
    let time = timed(&stream, || stream.copy(&values, &mut device))?;
    say("ordinary host memory to device", time);
    let mut other = context.alloc::<u32>(LEN)?;
    let time = timed(&stream, || stream.copy(&device, &mut other))?;
    say("device to device", time);
    check("device", stream.download(&other)? == values)?;

    // Page-locked memory: the device reads it by itself, while the host goes on.
    let mut pinned = context.pinned_from(&values)?;
    let time = timed(&stream, || stream.copy(&pinned, &mut device))?;
    say("page-locked memory to device", time);
    stream.fill(&mut device, 7)?;
    let time = timed(&stream, || stream.copy(&device, &mut pinned))?;
    say("device to page-locked memory", time);
    check("page-locked", pinned.read()?.iter().all(|value| *value == 7))?;

    // A vector that is there already can be locked instead; that takes time itself.
    let start = Instant::now();
    let locked = tilewright_cuda::Pinned::from_vec(context, values)?;
    println!("{:>44} {:8.2} ms", "to lock a vector", start.elapsed().as_secs_f64() * 1e3);
    let time = timed(&stream, || stream.copy(&locked, &mut device))?;
    say("locked vector to device", time);
    let values = locked.into_vec()?;
    check("locked vector", stream.download(&device)? == values)?;

    in_order(context, &stream)?;
    zero_copy(context, &stream)?;
    managed(context, &stream, &values)?;
    rows(context, &stream)?;
    println!("all contents are right");
    Ok(())
}

/// Memory in the order of a stream: allocating and freeing cost next to nothing if a pool keeps the memory.
fn in_order(context: &Context, stream: &Stream) -> Result<(), Box<dyn Error>> {
    for (name, keep_bytes) in [("a pool that gives back", 0), ("a pool that keeps", u64::MAX)] {
        let pool = context.pool(&PoolOptions { keep_bytes, ..PoolOptions::default() })?;
        let mut time = Duration::ZERO;
        for round in 0..20u32 {
            let start = Instant::now();
            let mut scratch = pool.alloc::<u32>(stream, LEN)?;
            time += start.elapsed();
            stream.fill(scratch.slice_mut(..4)?, round)?;
            check("pool", stream.download(scratch.slice(..4)?)? == [round; 4])?;
        }
        println!("{:>44} {:8.2} us for an allocation", name, time.as_secs_f64() * 1e6 / 20.0);
    }
    Ok(())
}

/// A kernel that reads and writes memory of the host, over the bus.
#[allow(unsafe_code)]
fn zero_copy(context: &Context, stream: &Stream) -> Result<(), Box<dyn Error>> {
    // SAFETY: `saxpy` touches x and y below n only.
    let saxpy = unsafe { context.load(&Code::ptx(SAXPY)) }?.kernel("saxpy")?;
    let size = u32::try_from(LEN)?;
    let config = LaunchConfig::cover(size, 256);
    let x = context.pinned_from(&vec![1.5f32; LEN])?;
    let mut y = context.pinned::<f32>(LEN)?;
    let time = timed(stream, || saxpy.launch(stream, &config, (2.0f32, &x, &mut y, size)))?;
    say("a kernel on page-locked memory", time * 2 / 3); // three arrays cross the bus; as if it were two
    check("zero copy", y.read()?.iter().all(|value| *value == 3.0))
}

/// Managed memory moves by itself; telling it to in advance is faster.
fn managed(context: &Context, stream: &Stream, values: &[u32]) -> Result<(), Box<dyn Error>> {
    let mut managed = match context.managed::<u32>(LEN) {
        Ok(managed) => managed,
        Err(CudaError::Unsupported { what, .. }) => {
            println!("{:>44} {what}", "managed memory: not here:");
            return Ok(());
        }
        Err(other) => return Err(other.into()),
    };
    let mut device = stream.alloc::<u32>(LEN)?;
    managed.write()?.copy_from_slice(values);
    let time = timed(stream, || stream.copy(&managed, &mut device))?;
    say("managed memory, found on the host", time);
    managed.write()?[0] = 1;
    let time = timed(stream, || managed.prefetch(stream))?;
    say("managed memory, moved in advance", time);
    let time = timed(stream, || stream.copy(&managed, &mut device))?;
    say("managed memory, found on the device", time);
    check("managed", managed.read()?[1..] == values[1..] && stream.download(device.slice(..2)?)? == [1, 1])
}

/// Rows that begin where the device reads fast, and copies of parts of them.
fn rows(context: &Context, stream: &Stream) -> Result<(), Box<dyn Error>> {
    let (rows, columns) = (1000, 1001);
    let picture: Vec<u8> = (0..rows * columns).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect();
    let mut padded = context.alloc_pitched::<u8>(rows, columns)?;
    stream.copy_2d(HostRect::new(&picture, columns)?, &mut padded)?;
    println!("{:>44} {} bytes for {columns}", "a padded row:", padded.pitch_bytes());
    stream.fill_2d(padded.rect_mut(100..200, 10..20)?, 255)?;
    let back = stream.download_2d(&padded)?;
    let right = back.iter().zip(&picture).enumerate().all(|(n, (found, before))| {
        let inside = (100..200).contains(&(n / columns)) && (10..20).contains(&(n % columns));
        *found == if inside { 255 } else { *before }
    });
    check("padded rows", right)
}

/// How long the device takes.
fn timed(stream: &Stream, work: impl FnOnce() -> Result<(), CudaError>) -> Result<Duration, CudaError> {
    let (start, end) = (stream.context().event()?, stream.context().event()?);
    start.record(stream)?;
    work()?;
    end.record(stream)?;
    end.synchronize()?;
    end.since(&start)
}

fn say(what: &str, time: Duration) {
    let seconds = time.as_secs_f64().max(1e-9);
    println!("{what:>44} {:8.1} GB/s", (LEN * 4) as f64 / seconds * 1e-9);
}

fn check(what: &str, right: bool) -> Result<(), Box<dyn Error>> {
    if right { Ok(()) } else { Err(format!("{what}: wrong contents").into()) }
}
