//! Streams and events: order, priorities, functions of the host.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use tilewright_cuda::{Context, CudaError, EventOptions, LaunchConfig, StreamOptions};

use crate::ensure;
use crate::launch::load;

const SPIN: &str = include_str!("../../examples/kernels/spin.ptx");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("stream::priorities", priorities),
        Trial::test("stream::functions_are_called_in_order", functions_are_called_in_order),
        Trial::test("stream::a_function_that_panics_harms_nobody", a_function_that_panics_harms_nobody),
        Trial::test("stream::idle_or_not", idle_or_not),
        Trial::test("stream::waiting_without_shared_memory", waiting_without_shared_memory),
        Trial::test("stream::a_dropped_stream_finishes", a_dropped_stream_finishes),
        Trial::test("stream::captures_refuse_what_they_cannot_have", captures_refuse_what_they_cannot_have),
    ]
}

fn priorities() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (least, greatest) = context.stream_priorities()?;
    ensure(greatest <= least, "the greatest is the smaller number")?;
    for priority in greatest..=least {
        let stream = context.stream_with(&StreamOptions { priority, blocking: false })?;
        ensure(stream.priority()? == priority, "another priority")?;
    }
    for priority in [greatest - 1, least + 1] {
        let made = context.stream_with(&StreamOptions { priority, blocking: false });
        ensure(matches!(made, Err(CudaError::Priority { .. })), format!("{made:?}"))?;
    }
    Ok(())
}

fn functions_are_called_in_order() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    for step in 0..10u32 {
        spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, step, 1_000_000u32))?;
        let sender = sender.clone();
        stream.host_call(move || {
            let _ = sender.send((step, start.elapsed()));
        })?;
    }
    drop(sender);
    let steps: Vec<(u32, Duration)> = receiver.into_iter().collect();
    ensure(steps.iter().map(|(step, _)| *step).eq(0..10), format!("{steps:?}"))?;
    let early = |(step, time): &(u32, Duration)| *time < Duration::from_micros(900) * (step + 1);
    ensure(!steps.iter().any(early), format!("called before its kernel ended: {steps:?}"))
}

fn a_function_that_panics_harms_nobody() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    // Without the hook that prints: the trial is about what comes after.
    stream.host_call(|| std::panic::resume_unwind(Box::new("on purpose")))?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    stream.fill(&mut word, 5)?;
    ensure(stream.download(&word)? == [5], "the stream does not go on")
}

fn idle_or_not() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    stream.synchronize()?;
    ensure(stream.is_idle()?, "busy without work")?;
    let done = context.event_with(&EventOptions { timing: false, blocking: true })?;
    spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, 1u32, 50_000_000u32))?;
    done.record(&stream)?;
    // A sanitizer waits for every launch.
    let sanitized = std::env::var_os("TILEWRIGHT_SANITIZED").is_some();
    ensure(sanitized || !stream.is_idle()? && !done.is_done()?, "done at once")?;
    done.synchronize()?;
    ensure(stream.is_idle()? && done.is_done()?, "not done after waiting")
}

fn waiting_without_shared_memory() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (a, b) = (context.stream()?, context.stream()?);
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    let (mut x, mut y) = (a.alloc_zeroed::<u32>(1)?, b.alloc_zeroed::<u32>(1)?);
    let (first, second) = (context.event()?, context.event()?);
    context.synchronize()?;
    for _ in 0..5 {
        spin.launch(&a, &one, (&mut x, 1u32, 3_000_000u32))?;
        first.record(&a)?;
        b.wait_for(&a)?;
        spin.launch(&b, &one, (&mut y, 1u32, 1_000_000u32))?;
        second.record(&b)?;
        second.synchronize()?;
        let after = second.since(&first)?;
        ensure(after >= Duration::from_micros(900), format!("b did not wait for a: {after:?}"))?;
    }
    Ok(())
}

fn a_dropped_stream_finishes() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let keeper = context.stream()?;
    let spin = load(&context, SPIN)?.kernel("spin")?;
    for round in 1..=10u32 {
        let mut word = keeper.alloc_zeroed::<u32>(1)?;
        let gone = context.stream()?;
        spin.launch(&gone, &LaunchConfig::new(1, 1), (&mut word, round, 1_000_000u32))?;
        drop(gone);
        ensure(keeper.download(&word)? == [round], "the work of a dropped stream was lost")?;
    }
    Ok(())
}

fn captures_refuse_what_they_cannot_have() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    let graph = stream.capture(|| -> Result<(), Failed> {
        let refused = |result: Result<(), CudaError>| {
            ensure(matches!(result, Err(CudaError::Capture { .. })), format!("{result:?}"))
        };
        refused(stream.synchronize())?;
        refused(stream.alloc::<u32>(1).map(|_| ()))?;
        refused(stream.copy(&[1u32][..], &mut word))?;
        refused(stream.host_call(|| ()))?;
        refused(stream.capture(|| Ok::<(), CudaError>(())).map(|_| ()))?;
        Ok(stream.fill(&mut word, 3)?)
    })?;
    graph.instantiate()?.launch(&stream)?;
    ensure(stream.download(&word)? == [3], "the capture was harmed")
}
