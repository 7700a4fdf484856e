//! Graphs: captured, built, changed, launched from everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use tilewright_cuda::{Context, CudaError, Graph, InstantiateOptions, LaunchConfig, NodeKind, StreamOptions};

use crate::ensure;
use crate::launch::load;

const SAXPY: &str = include_str!("../../examples/kernels/saxpy.ptx");
const SPIN: &str = include_str!("../../examples/kernels/spin.ptx");
const RELAY: &str = include_str!("../../examples/kernels/relay.ptx");
const NEIGHBOURS: &str = include_str!("../../examples/kernels/neighbours.ptx");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("graph::dependencies_are_kept", dependencies_are_kept),
        Trial::test("graph::a_missing_dependency_is_found", a_missing_dependency_is_found),
        Trial::test("graph::every_kind_of_node", every_kind_of_node),
        Trial::test("graph::arguments_can_be_changed", arguments_can_be_changed),
        Trial::test("graph::updates_and_their_refusals", updates_and_their_refusals),
        Trial::test("graph::memory_of_a_launch_outlives_an_update", memory_of_a_launch_outlives_an_update),
        Trial::test("graph::functions_outlive_their_launches", functions_outlive_their_launches),
        Trial::test("graph::programmatic_launch_in_a_capture", programmatic_launch_in_a_capture),
        Trial::test("graph::programmatic_launch_by_hand", programmatic_launch_by_hand),
        Trial::test("graph::clusters_and_priorities_by_hand", clusters_and_priorities_by_hand),
        Trial::test("graph::events_at_every_launch", events_at_every_launch),
        Trial::test("graph::sixteen_threads", sixteen_threads),
        Trial::test("graph::nothing_leaks", nothing_leaks),
    ]
}

/// Long kernels first, quick ones after: without the edges the quick ones would win.
fn dependencies_are_kept() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    let (mut a, mut b) = (stream.alloc_zeroed::<u32>(1)?, stream.alloc_zeroed::<u32>(1)?);
    let mut out = stream.alloc_zeroed::<u32>(2)?;
    let mut graph = context.graph()?;
    let slow_a = graph.kernel(&spin, &one, (&mut a, 1u32, 2_000_000u32), &[])?;
    let slow_b = graph.kernel(&spin, &one, (&mut b, 2u32, 3_000_000u32), &[])?;
    let quick_a = graph.kernel(&spin, &one, (&mut a, 3u32, 0u32), &[slow_a])?;
    let joined = graph.join(&[quick_a, slow_b])?;
    graph.copy(&a, out.slice_mut(..1)?, &[joined])?;
    graph.copy(&b, out.slice_mut(1..)?, &[joined])?;
    let ready = graph.finish()?.instantiate()?;
    for round in 0..10 {
        stream.fill(&mut out, 0)?;
        ready.launch(&stream)?;
        ensure(stream.download(&out)? == [3, 2], format!("wrong in round {round}"))?;
    }
    Ok(())
}

fn a_missing_dependency_is_found() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let config = LaunchConfig::new(1, 32);
    let x = stream.alloc_zeroed::<f32>(32)?;
    let mut y = stream.alloc_zeroed::<f32>(32)?;
    let mut graph = context.graph()?;
    graph.kernel(&saxpy, &config, (1.0f32, &x, &mut y, 32u32), &[])?;
    graph.fill(y.slice_mut(31..)?, 1.0, &[])?;
    let Err(error @ CudaError::GraphOrder { .. }) = graph.finish() else { return Err("accepted".into()) };
    let text = error.to_string();
    ensure(text.starts_with("node 0 (kernel `saxpy`, which writes its `y`) and node 1 (a filling)"), &text)?;
    ensure(text.contains("bytes 124..128 of the 128 bytes"), &text)
}

fn every_kind_of_node() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let config = LaunchConfig::new(1, 64);
    let x = stream.upload(&[1.0f32; 64])?;
    let (mut y, mut z) = (stream.alloc_zeroed::<f32>(64)?, stream.alloc_zeroed::<f32>(64)?);
    let mut bytes = stream.alloc_zeroed::<u8>(101)?;
    let mut halves = stream.alloc_zeroed::<u16>(101)?;
    let mut doubles = stream.alloc_zeroed::<f64>(1001)?;
    let inner = {
        let mut graph = context.graph()?;
        graph.kernel(&saxpy, &config, (2.0f32, &x, &mut y, 64u32), &[])?;
        graph.finish()?
    };
    let (begin, end) = (context.event()?, context.event()?);
    let calls = Arc::new(AtomicU32::new(0));
    let counter = calls.clone();
    let mut graph = context.graph()?;
    let waited = graph.wait(&end, &[])?;
    let begun = graph.record(&begin, &[waited])?;
    let fills = [
        graph.fill(&mut bytes, 3, &[begun])?,
        graph.fill(&mut halves, 500, &[begun])?,
        graph.fill(&mut doubles, 0.1, &[begun])?,
        graph.fill(&mut y, 1.0, &[begun])?,
    ];
    let filled = graph.join(&fills)?;
    let child = graph.graph(&inner, &[filled])?;
    let copied = graph.copy(&y, &mut z, &[child])?;
    let called = graph.host_call(
        move || {
            counter.fetch_add(1, Ordering::Relaxed);
        },
        &[copied],
    )?;
    graph.record(&end, &[called])?;
    let graph = graph.finish()?;
    let kinds = graph.nodes()?;
    for kind in [
        NodeKind::Wait,
        NodeKind::Record,
        NodeKind::Fill,
        NodeKind::Empty,
        NodeKind::Graph,
        NodeKind::Copy,
        NodeKind::HostCall,
    ] {
        ensure(kinds.contains(&kind), format!("{kind} is missing among {kinds:?}"))?;
    }
    ensure(graph.edges()?.len() == kinds.len() - 1 + fills.len() - 1, format!("{:?}", graph.edges()?))?;
    ensure(inner.nodes()? == [NodeKind::Kernel(Some("saxpy".into()))], format!("{:?}", inner.nodes()?))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("graph.dot");
    graph.write_dot(&path)?;
    ensure(std::fs::read_to_string(path)?.contains("digraph"), "no drawing")?;

    let options = InstantiateOptions { node_priorities: true, upload: Some(stream.clone()) };
    let ready = graph.instantiate_with(&options)?;
    drop((graph, inner, saxpy, x));
    for _ in 0..5 {
        ready.launch(&stream)?;
    }
    ensure(stream.download(&z)?.iter().all(|value| *value == 3.0), "wrong sums")?;
    ensure(stream.download(&bytes)?.iter().all(|value| *value == 3), "wrong bytes")?;
    ensure(stream.download(&halves)?.iter().all(|value| *value == 500), "wrong halves")?;
    ensure(stream.download(&doubles)?.iter().all(|value| *value == 0.1), "wrong doubles")?;
    ensure(calls.load(Ordering::Relaxed) == 5, "wrong number of calls")?;
    ensure(end.since(&begin)? > Duration::ZERO, "no time passed")
}

fn arguments_can_be_changed() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let x = stream.upload(&[1.0f32; 256])?;
    let mut y = stream.alloc_zeroed::<f32>(256)?;
    let mut graph = context.graph()?;
    let node = graph.kernel(&saxpy, &LaunchConfig::new(1, 64), (1.0f32, &x, &mut y, 64u32), &[])?;
    let mut ready = graph.finish()?.instantiate()?;
    ready.launch(&stream)?;
    ready.set_kernel_arguments(node, (10.0f32, &x, &mut y, 32u32))?;
    ready.launch(&stream)?;
    ready.set_kernel(node, &LaunchConfig::new(4, 64), (100.0f32, &x, &mut y, 256u32))?;
    ready.launch(&stream)?;
    let y = stream.download(&y)?;
    let right = |(i, value): (usize, &f32)| match i {
        0..32 => *value == 111.0,
        32..64 => *value == 101.0,
        _ => *value == 100.0,
    };
    ensure(y.iter().enumerate().all(right), format!("{y:?}"))
}

fn updates_and_their_refusals() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let x = stream.upload(&[1.0f32; 64])?;
    let mut y = stream.alloc_zeroed::<f32>(64)?;
    let mut with = |factor: f32, threads: u32| {
        let config = LaunchConfig::new(1, threads);
        stream.capture(|| saxpy.launch(&stream, &config, (factor, &x, &mut y, threads)))
    };
    let mut ready = with(1.0, 64)?.instantiate()?;
    ready.launch(&stream)?;
    ready.update(&with(10.0, 32)?)?;
    ready.launch(&stream)?;
    let mut twice = |fill: bool| -> Result<Graph, CudaError> {
        stream.capture(|| if fill { stream.fill(&mut y, 0.0) } else { stream.host_call_in_graph(|| ()) })
    };
    for other in [twice(true)?, twice(false)?] {
        let Err(error @ CudaError::GraphUpdate { .. }) = ready.update(&other) else {
            return Err("accepted a node of another kind".into());
        };
        let text = error.to_string();
        ensure(text.starts_with("the graph was not updated: a node is of another kind"), text)?;
    }
    let empty = context.graph()?.finish()?;
    let Err(error @ CudaError::GraphUpdate { .. }) = ready.update(&empty) else {
        return Err("accepted an empty graph".into());
    };
    ensure(error.to_string().contains("other nodes or other dependencies"), error)?;
    // It is still what it was before the refusals.
    ready.launch(&stream)?;
    let y = stream.download(&y)?;
    ensure(y[0] == 21.0 && y[63] == 1.0, format!("{} {}", y[0], y[63]))
}

fn memory_of_a_launch_outlives_an_update() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (stream, side) = (context.stream()?, context.stream()?);
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    for round in 0..20u32 {
        let with = |value: u32| -> Result<Graph, CudaError> {
            let mut word = side.alloc_zeroed::<u32>(1)?;
            stream.capture(|| spin.launch(&stream, &one, (&mut word, value, 1_000_000u32)))
        };
        let mut ready = with(0xdead_beef)?.instantiate()?;
        ready.launch(&stream)?;
        ready.update(&with(1)?)?;
        // The old word is of nobody now but of the launch under way; new memory must not be there.
        let mut fresh = side.alloc::<u32>(1)?;
        spin.launch(&side, &one, (&mut fresh, round, 0u32))?;
        stream.synchronize()?;
        ensure(side.download(&fresh)? == [round], "memory was given away while in use")?;
    }
    Ok(())
}

fn functions_outlive_their_launches() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    for _ in 0..20 {
        let calls = Arc::new(AtomicU32::new(0));
        let counter = calls.clone();
        let mut graph = context.graph()?;
        let slow = graph.kernel(&spin, &LaunchConfig::new(1, 1), (&mut word, 1u32, 500_000u32), &[])?;
        graph.host_call(
            move || {
                counter.fetch_add(1, Ordering::Relaxed);
            },
            &[slow],
        )?;
        let ready = graph.finish()?.instantiate()?;
        ready.launch(&stream)?;
        ready.launch(&stream)?;
        drop(ready);
        ensure(calls.load(Ordering::Relaxed) == 2, "the function went before it was called")?;
    }
    Ok(())
}

/// Launches the pair of kernels of `relay.ptx`, as a graph that `build` makes, and checks that the second began before the first ended.
fn relay(build: impl FnOnce(&mut Relay) -> Result<Graph, CudaError>) -> Result<(), Failed> {
    let context = Context::new(0)?;
    if !context.device().clusters {
        return Ok(());
    }
    let stream = context.stream()?;
    let module = load(&context, RELAY)?;
    let mut relay = Relay {
        hand_over: module.kernel("hand_over")?,
        take_over: module.kernel("take_over")?,
        data: stream.alloc_zeroed(256)?,
        out: stream.alloc_zeroed(256)?,
        ended: stream.alloc_zeroed(1)?,
        began: stream.alloc_zeroed(1)?,
        stream,
    };
    let graph = build(&mut relay)?;
    ensure(graph.edges()? == [(0, 1)], format!("{:?}", graph.edges()?))?;
    let ready = graph.instantiate()?;
    let Relay { stream, out, ended, began, .. } = &mut relay;
    for _ in 0..5 {
        stream.fill(&mut *out, 0)?;
        ready.launch(stream)?;
        ensure(stream.download(&*out)?.iter().all(|value| *value == 42), "read before it was written")?;
    }
    let (ended, began) = (stream.download(&*ended)?[0], stream.download(&*began)?[0]);
    // Under a sanitizer kernels run one by one.
    ensure(
        began + 1_000_000 < ended || std::env::var_os("TILEWRIGHT_SANITIZED").is_some(),
        format!("the second kernel began at {began}, the first ended at {ended}"),
    )
}

struct Relay {
    hand_over: tilewright_cuda::Kernel,
    take_over: tilewright_cuda::Kernel,
    data: tilewright_cuda::Buffer<u32>,
    out: tilewright_cuda::Buffer<u32>,
    ended: tilewright_cuda::Buffer<u64>,
    began: tilewright_cuda::Buffer<u64>,
    stream: tilewright_cuda::Stream,
}

fn programmatic_launch_in_a_capture() -> Result<(), Failed> {
    relay(|Relay { hand_over, take_over, data, out, ended, began, stream }| {
        let config = LaunchConfig::new(1, 256);
        stream.capture(|| {
            hand_over.launch(stream, &config, (&mut *data, ended, 41u32, 3_000_000u32, 256u32))?;
            take_over.launch(stream, &config.programmatic(), (&*data, out, began, 256u32))
        })
    })
}

fn programmatic_launch_by_hand() -> Result<(), Failed> {
    relay(|Relay { hand_over, take_over, data, out, ended, began, stream }| {
        let config = LaunchConfig::new(1, 256);
        let mut graph = stream.context().graph()?;
        let first =
            graph.kernel(hand_over, &config, (&mut *data, ended, 41u32, 3_000_000u32, 256u32), &[])?;
        graph.kernel(take_over, &config.programmatic(), (&*data, out, began, 256u32), &[first])?;
        graph.finish()
    })
}

fn clusters_and_priorities_by_hand() -> Result<(), Failed> {
    let context = Context::new(0)?;
    if !context.device().clusters {
        return Ok(());
    }
    let (_, greatest) = context.stream_priorities()?;
    let stream = context.stream_with(&StreamOptions { priority: greatest, ..StreamOptions::default() })?;
    let neighbours = load(&context, NEIGHBOURS)?.kernel("neighbours")?;
    for size in [1, 4, 16] {
        let mut out = stream.alloc_zeroed::<u32>(32)?;
        let mut graph = context.graph()?;
        let config = LaunchConfig::new(32, 32).cluster(size).priority(greatest);
        graph.kernel(&neighbours, &config, (&mut out,), &[])?;
        let options = InstantiateOptions { node_priorities: true, upload: None };
        graph.finish()?.instantiate_with(&options)?.launch(&stream)?;
        let expected = (0..32).map(|block| block / size * size + (block + 1) % size);
        ensure(stream.download(&out)?.into_iter().eq(expected), format!("wrong for clusters of {size}"))?;
    }
    Ok(())
}

fn events_at_every_launch() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (stream, side) = (context.stream()?, context.stream()?);
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    let (mut word, mut other) = (stream.alloc_zeroed::<u32>(1)?, side.alloc_zeroed::<u32>(1)?);
    let (start, end, gate) = (context.event()?, context.event()?, context.event()?);
    let graph = stream.capture(|| {
        stream.wait_in_graph(&gate)?;
        start.record_in_graph(&stream)?;
        spin.launch(&stream, &one, (&mut word, 1u32, 2_000_000u32))?;
        end.record_in_graph(&stream)
    })?;
    let ready = graph.instantiate()?;
    let gate_opened = context.event()?;
    for _ in 0..3 {
        spin.launch(&side, &one, (&mut other, 1u32, 3_000_000u32))?;
        gate_opened.record(&side)?;
        gate.record(&side)?;
        ready.launch(&stream)?;
        stream.synchronize()?;
        let took = end.since(&start)?;
        ensure(took >= Duration::from_micros(1900), format!("{took:?}"))?;
        let waited = end.since(&gate_opened)?;
        ensure(waited >= Duration::from_micros(1900), format!("the graph did not wait: {waited:?}"))?;
    }
    Ok(())
}

fn sixteen_threads() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let x = stream.upload(&[1.0f32; 64])?;
    let mut y = stream.alloc_zeroed::<f32>(64)?;
    let mut graph = context.graph()?;
    let config = LaunchConfig::new(1, 64);
    let first = graph.kernel(&saxpy, &config, (1.0f32, &x, &mut y, 64u32), &[])?;
    graph.kernel(&saxpy, &config, (1.0f32, &x, &mut y, 64u32), &[first])?;
    let ready = graph.finish()?.instantiate()?;
    let run = || -> Result<(), CudaError> {
        let own = context.stream()?;
        (0..100).try_for_each(|_| ready.launch(&own))?;
        own.synchronize()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => Ok(result?),
            Err(_) => Err(Failed::from("a thread panicked")),
        })
    })?;
    // Every launch adds 2, and no two ran at the same time.
    ensure(stream.download(&y)?.iter().all(|value| *value == 3200.0), "launches were lost")
}

fn nothing_leaks() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let cycle = || -> Result<(), CudaError> {
        let x = stream.alloc_zeroed::<f32>(1 << 18)?;
        let mut y = stream.alloc_zeroed::<f32>(1 << 18)?;
        let mut graph = context.graph()?;
        let fill = graph.fill(&mut y, 1.0, &[])?;
        graph.kernel(&saxpy, &LaunchConfig::new(1, 64), (1.0f32, &x, &mut y, 64u32), &[fill])?;
        let graph = graph.finish()?;
        let mut ready = graph.instantiate()?;
        ready.launch(&stream)?;
        ready.update(&graph)?;
        ready.launch(&stream)
    };
    let settle = || -> Result<u64, CudaError> {
        (0..200).try_for_each(|_| cycle())?;
        context.synchronize()?;
        Ok(context.memory()?.0)
    };
    let before = settle()?;
    for _ in 0..10 {
        settle()?;
    }
    let after = settle()?;
    // 2000 rounds of 2 MiB each; other trials run at the same time, so only a leak of everything would show.
    let lost = before.saturating_sub(after);
    ensure(lost < 2 << 30, format!("{lost} bytes are gone"))
}
