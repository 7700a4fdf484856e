//! Functions of the host in the order of a stream, once or at every launch of a graph.

mod common;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use common::{Outcome, expect, load, run};
use tilewright_cuda::{Context, LaunchConfig};

const SPIN: &str = include_str!("kernels/spin.ptx");

fn main() -> ExitCode {
    run(|context| {
        progress(context)?;
        every_launch(context)
    })
}

/// The host hears of each step when it is done, without waiting for the stream.
fn progress(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let spin = load(context, SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    for step in 1..=5u32 {
        spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, step, 2_000_000u32))?;
        let sender = sender.clone();
        // On a thread of the driver: quick, and without CUDA.
        stream.host_call(move || {
            let _ = sender.send((step, start.elapsed()));
        })?;
    }
    drop(sender);
    println!("all enqueued after {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    let mut steps = Vec::new();
    for (step, time) in receiver {
        println!("step {step} done after {:.2} ms", time.as_secs_f64() * 1e3);
        steps.push(step);
    }
    expect(steps == [1, 2, 3, 4, 5], "steps out of order")?;
    expect(start.elapsed().as_millis() >= 10, "the steps did not wait for their kernels")
}

/// A function in a graph is called again at every launch.
fn every_launch(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    let calls = Arc::new(AtomicU32::new(0));
    let counter = calls.clone();
    let graph = stream.capture(|| {
        stream.fill(&mut word, 7)?;
        stream.host_call_in_graph(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        })
    })?;
    let ready = graph.instantiate()?;
    for _ in 0..3 {
        ready.launch(&stream)?;
    }
    stream.synchronize()?;
    println!("3 launches of a graph, {} calls", calls.load(Ordering::Relaxed));
    expect(calls.load(Ordering::Relaxed) == 3, "wrong number of calls")
}
