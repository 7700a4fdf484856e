//! Graphs: captured from streams or built node by node, changed, and launched for less than their operations one by one.

mod common;

use std::process::ExitCode;
use std::time::Instant;

use common::{Outcome, expect, load, run};
use tilewright_cuda::{Context, LaunchConfig};

const SAXPY: &str = include_str!("kernels/saxpy.ptx");
const N: u32 = 1024;

fn main() -> ExitCode {
    run(|context| {
        captured(context)?;
        built(context)?;
        updated(context)?;
        cost(context)
    })
}

/// What a closure does on a stream becomes a graph, with a fork to a second stream and back.
fn captured(context: &Context) -> Outcome {
    let (stream, side) = (context.stream()?, context.stream()?);
    let saxpy = load(context, SAXPY)?.kernel("saxpy")?;
    let config = LaunchConfig::cover(N, 256);
    let x = stream.upload(&[1.0f32; N as usize])?;
    let (mut y, mut z) = (stream.alloc_zeroed::<f32>(N as usize)?, stream.alloc_zeroed::<f32>(N as usize)?);
    let graph = stream.capture(|| {
        side.wait_for(&stream)?;
        saxpy.launch(&stream, &config, (1.0f32, &x, &mut y, N))?;
        saxpy.launch(&side, &config, (2.0f32, &x, &mut z, N))?;
        stream.wait_for(&side)?;
        saxpy.launch(&stream, &config, (1.0f32, &z, &mut y, N))
    })?;
    println!("captured: {} nodes, edges {:?}", graph.node_count()?, graph.edges()?);
    print!("{}", graph.dot()?);
    let ready = graph.instantiate()?;
    for _ in 0..3 {
        ready.launch(&stream)?;
    }
    // Each launch adds 1 to y and 2 to z, and then z to y: 1 + 2, 1 + 4, 1 + 6.
    let sums = stream.download(&y)?;
    println!("after three launches: {}", sums[0]);
    expect(sums.iter().all(|sum| *sum == 15.0), "wrong sums")
}

/// The same by hand. A dependency that is missing is found before anything runs.
fn built(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let saxpy = load(context, SAXPY)?.kernel("saxpy")?;
    let config = LaunchConfig::cover(N, 256);
    let x = stream.upload(&[1.0f32; N as usize])?;
    let (mut y, mut z) = (stream.alloc_zeroed::<f32>(N as usize)?, stream.alloc_zeroed::<f32>(N as usize)?);

    let mut graph = context.graph()?;
    let first = graph.kernel(&saxpy, &config, (1.0f32, &x, &mut y, N), &[])?;
    graph.kernel(&saxpy, &config, (2.0f32, &x, &mut z, N), &[])?;
    graph.kernel(&saxpy, &config, (1.0f32, &z, &mut y, N), &[first])?;
    println!("built with a mistake: {}", graph.finish().err().ok_or("the mistake was not found")?);

    let mut graph = context.graph()?;
    let first = graph.kernel(&saxpy, &config, (1.0f32, &x, &mut y, N), &[])?;
    let second = graph.kernel(&saxpy, &config, (2.0f32, &x, &mut z, N), &[])?;
    let third = graph.kernel(&saxpy, &config, (1.0f32, &z, &mut y, N), &[first, second])?;
    let mut ready = graph.finish()?.instantiate()?;
    ready.launch(&stream)?;
    expect(stream.download(&y)?.iter().all(|sum| *sum == 3.0), "wrong sums")?;

    // Other arguments for one of its kernels.
    ready.set_kernel_arguments(third, (10.0f32, &z, &mut y, N))?;
    ready.launch(&stream)?;
    let sums = stream.download(&y)?;
    println!("built, launched, changed, launched: {}", sums[0]);
    expect(sums.iter().all(|sum| *sum == 44.0), "wrong sums after the change")
}

/// One that is ready to run takes over the arguments of another graph of the same shape.
fn updated(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let mut data = stream.alloc::<u32>(N as usize)?;
    let mut step = |value: u32| stream.capture(|| stream.fill(&mut data, value));
    let first = step(1)?;
    let begin = Instant::now();
    let mut ready = first.instantiate()?;
    let instantiated = begin.elapsed();
    ready.launch(&stream)?;
    let second = step(2)?;
    let begin = Instant::now();
    ready.update(&second)?;
    println!("instantiate: {instantiated:?}, update: {:?}", begin.elapsed());
    ready.launch(&stream)?;
    let other = stream.capture(|| stream.host_call_in_graph(|| ()))?;
    println!("another shape: {}", ready.update(&other).err().ok_or("accepted")?);
    expect(stream.download(&data)?.iter().all(|value| *value == 2), "the update had no effect")
}

/// 1000 kernels that do next to nothing: one by one, and as a graph.
fn cost(context: &Context) -> Outcome {
    const KERNELS: u32 = 1000;
    let stream = context.stream()?;
    let saxpy = load(context, SAXPY)?.kernel("saxpy")?;
    let config = LaunchConfig::new(1, 32);
    let x = stream.upload(&[1.0f32; 32])?;
    let mut y = stream.alloc_zeroed::<f32>(32)?;
    let mut all = || -> Result<(), tilewright_cuda::CudaError> {
        (0..KERNELS).try_for_each(|_| saxpy.launch(&stream, &config, (1.0f32, &x, &mut y, 32u32)))
    };
    all()?;
    stream.synchronize()?;
    let begin = Instant::now();
    all()?;
    stream.synchronize()?;
    let one_by_one = begin.elapsed();
    let ready = stream.capture(&mut all)?.instantiate()?;
    ready.upload(&stream)?;
    ready.launch(&stream)?;
    stream.synchronize()?;
    let begin = Instant::now();
    ready.launch(&stream)?;
    let launched = begin.elapsed();
    stream.synchronize()?;
    let replayed = begin.elapsed();
    println!("{KERNELS} kernels one by one: {one_by_one:?}");
    println!("{KERNELS} kernels as a graph: {replayed:?}, of which the host was busy for {launched:?}");
    expect(stream.download(&y)?.iter().all(|sum| *sum == 4.0 * KERNELS as f32), "wrong sums")
}
