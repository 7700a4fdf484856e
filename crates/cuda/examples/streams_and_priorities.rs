//! Streams: work at the same time, and work that goes first.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use common::{Outcome, expect, load, run};
use tilewright_cuda::{Context, LaunchConfig, StreamOptions};

const SPIN: &str = include_str!("kernels/spin.ptx");

fn main() -> ExitCode {
    run(|context| {
        at_the_same_time(context)?;
        first_things_first(context)
    })
}

/// Eight kernels of 5 ms, each on a stream of its own, take about 5 ms together; on one stream they take 40.
fn at_the_same_time(context: &Context) -> Outcome {
    let spin = load(context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    let mut times = Vec::new();
    for count in [1, 8] {
        let streams: Vec<_> = (0..count).map(|_| context.stream()).collect::<Result<_, _>>()?;
        let mut words = Vec::new();
        for stream in streams.iter().cycle().take(8) {
            words.push(stream.alloc_zeroed::<u32>(1)?);
        }
        context.synchronize()?;
        let start = std::time::Instant::now();
        for (stream, word) in streams.iter().cycle().zip(&mut words) {
            // Each has a word of its own; on the same word they would wait for each other.
            spin.launch(stream, &one, (word, 1u32, 5_000_000u32))?;
        }
        context.synchronize()?;
        times.push(start.elapsed());
        println!(
            "8 kernels of 5 ms, number of streams {count}: {:.1} ms",
            start.elapsed().as_secs_f64() * 1e3
        );
    }
    expect(times[1] * 2 < times[0], "streams did not run at the same time")
}

/// A small kernel on a stream of the greatest priority does not wait for the long queue of blocks of another.
fn first_things_first(context: &Context) -> Outcome {
    let (least, greatest) = context.stream_priorities()?;
    println!("priorities: {least} (least) to {greatest} (greatest)");
    let low = context.stream_with(&StreamOptions { priority: least, ..Default::default() })?;
    let high = context.stream_with(&StreamOptions { priority: greatest, ..Default::default() })?;
    expect(high.priority()? == greatest, "the stream has another priority")?;
    let refused = context.stream_with(&StreamOptions { priority: greatest - 1, ..Default::default() });
    println!("greater than that: {}", refused.err().ok_or("accepted")?);

    let spin = load(context, SPIN)?.kernel("spin")?;
    let (mut a, mut b) = (low.alloc_zeroed::<u32>(1)?, high.alloc_zeroed::<u32>(1)?);
    let (high_end, low_end) = (context.event()?, context.event()?);
    context.synchronize()?;
    // Enough blocks of 1 ms to keep the device busy for 20.
    let full = context.device().multiprocessors * 2;
    spin.launch(&low, &LaunchConfig::new(full * 20, 1024), (&mut a, 1u32, 1_000_000u32))?;
    low_end.record(&low)?;
    spin.launch(&high, &LaunchConfig::new(1, 32), (&mut b, 1u32, 0u32))?;
    high_end.record(&high)?;
    context.synchronize()?;
    let ahead = low_end.since(&high_end)?;
    println!("the urgent kernel, asked for last, ended {:.1} ms before the other", ahead.as_secs_f64() * 1e3);
    expect(ahead > Duration::from_millis(5), "priority had no effect")
}
