//! What one stream must wait for of another: by itself where memory says so, by events where only you know.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use common::{Outcome, expect, load, run};
use tilewright_cuda::{Context, LaunchConfig};

const SPIN: &str = include_str!("kernels/spin.ptx");
const SAXPY: &str = include_str!("kernels/saxpy.ptx");

fn main() -> ExitCode {
    run(|context| {
        by_memory(context)?;
        by_events(context)?;
        fork_and_join(context)
    })
}

/// Nothing to say: what reads memory waits for who writes it, and memory is freed when the last is done with it.
fn by_memory(context: &Context) -> Outcome {
    let (a, b) = (context.stream()?, context.stream()?);
    let spin = load(context, SPIN)?.kernel("spin")?;
    let mut word = a.alloc_zeroed::<u32>(1)?;
    for round in 1..=5u32 {
        // Stream a takes 2 ms until it writes; stream b reads at once, as far as the program can see.
        spin.launch(&a, &LaunchConfig::new(1, 1), (&mut word, round, 2_000_000u32))?;
        let read = b.download(&word)?;
        expect(read == [round], "read before it was written")?;
    }
    println!("5 words written on one stream were read on another, in order");
    Ok(())
}

/// An order between operations that share no memory.
fn by_events(context: &Context) -> Outcome {
    let (a, b) = (context.stream()?, context.stream()?);
    let spin = load(context, SPIN)?.kernel("spin")?;
    let (mut x, mut y) = (a.alloc_zeroed::<u32>(1)?, b.alloc_zeroed::<u32>(1)?);
    let (begin, first_done, second_done) = (context.event()?, context.event()?, context.event()?);
    let one = LaunchConfig::new(1, 1);
    for ordered in [false, true] {
        context.synchronize()?;
        begin.record(&a)?;
        spin.launch(&a, &one, (&mut x, 1u32, 5_000_000u32))?;
        first_done.record(&a)?;
        if ordered {
            b.wait(&first_done)?;
        }
        spin.launch(&b, &one, (&mut y, 1u32, 5_000_000u32))?;
        second_done.record(&b)?;
        context.synchronize()?;
        let took = second_done.since(&begin)?;
        let word = if ordered { "one after the other" } else { "at the same time" };
        println!("two kernels of 5 ms {word}: {:.1} ms", took.as_secs_f64() * 1e3);
        let wanted = if ordered { took >= Duration::from_millis(9) } else { took < Duration::from_millis(9) };
        expect(wanted, "the order is not what was asked for")?;
    }
    Ok(())
}

/// One stream prepares, four work on parts of it, one collects: only memory says what waits for what.
fn fork_and_join(context: &Context) -> Outcome {
    let main = context.stream()?;
    let saxpy = load(context, SAXPY)?.kernel("saxpy")?;
    let n = 1 << 16;
    let mut x = main.alloc::<f32>(n)?;
    main.fill(&mut x, 2.0)?;
    let streams: Vec<_> = (0..4).map(|_| context.stream()).collect::<Result<_, _>>()?;
    let mut parts = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        let mut y = stream.alloc_zeroed::<f32>(n)?;
        let (factor, count) = (number as f32, u32::try_from(n)?);
        saxpy.launch(stream, &LaunchConfig::cover(count, 256), (factor, &x, &mut y, count))?;
        parts.push(y);
    }
    let mut total = main.alloc_zeroed::<f32>(n)?;
    for part in &parts {
        let count = u32::try_from(n)?;
        saxpy.launch(&main, &LaunchConfig::cover(count, 256), (1.0f32, part, &mut total, count))?;
    }
    let sums = main.download(&total)?;
    println!("four streams and one that collects: {} (expected 12)", sums[0]);
    expect(sums.iter().all(|sum| *sum == 12.0), "wrong sums")
}
