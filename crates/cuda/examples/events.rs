//! Events: how long work takes, whether it is done, and waiting for it.

mod common;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::{Outcome, expect, load, run};
use tilewright_cuda::{Context, EventOptions, LaunchConfig};

const SPIN: &str = include_str!("kernels/spin.ptx");

fn main() -> ExitCode {
    run(|context| {
        timing(context)?;
        asking(context)?;
        inside_of_a_graph(context)
    })
}

/// Time on the device between two points of a stream.
fn timing(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let spin = load(context, SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    let (start, end) = (context.event()?, context.event()?);
    for milliseconds in [1u32, 5, 10] {
        start.record(&stream)?;
        spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, 1u32, milliseconds * 1_000_000))?;
        end.record(&stream)?;
        end.synchronize()?;
        let took = end.since(&start)?;
        println!("a kernel of {milliseconds} ms took {:.3} ms", took.as_secs_f64() * 1e3);
        let wanted = Duration::from_millis(milliseconds.into());
        expect(took >= wanted * 9 / 10, "the time is wrong")?;
    }
    // An event without timing is cheaper, and says so when it is asked for the time.
    let plain = context.event_with(&EventOptions { timing: false, blocking: false })?;
    plain.record(&stream)?;
    println!("without timing: {}", plain.since(&start).err().ok_or("it has a time")?);
    Ok(())
}

/// The host goes on while the device works, asks now and then, and at last sleeps until it is done.
fn asking(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let spin = load(context, SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    stream.synchronize()?;
    let done = context.event_with(&EventOptions { timing: true, blocking: true })?;
    expect(done.is_done()?, "an event that was never recorded is done")?;
    let start = Instant::now();
    spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, 1u32, 20_000_000u32))?;
    done.record(&stream)?;
    let mut asked = 0;
    while !done.is_done()? && asked < 10 {
        asked += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    // A sanitizer waits for every launch; then it is done when first asked.
    let word = if done.is_done()? { "done" } else { "not done" };
    println!("asked {asked} times, {word} after {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    done.synchronize()?;
    println!("done after {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    expect(start.elapsed() >= Duration::from_millis(19), "the wait was too short")
}

/// Events that a graph records at every launch.
fn inside_of_a_graph(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let spin = load(context, SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    let (start, end) = (context.event()?, context.event()?);
    let graph = stream.capture(|| {
        start.record_in_graph(&stream)?;
        spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, 1u32, 3_000_000u32))?;
        end.record_in_graph(&stream)
    })?;
    let ready = graph.instantiate()?;
    for round in 1..=2 {
        ready.launch(&stream)?;
        stream.synchronize()?;
        let took = end.since(&start)?;
        println!("launch {round} of the graph: its kernel took {:.3} ms", took.as_secs_f64() * 1e3);
        expect(took >= Duration::from_micros(2700), "the time is wrong")?;
    }
    Ok(())
}
