//! What it costs to run a graph again.
#![allow(unsafe_code)]

use tilewright_cuda::cudarc::driver::sys;
use tilewright_cuda::{Context, CudaError, LaunchConfig};

use crate::launches::{SAXPY, kernel};
use crate::measure::{Bar, Entry, MICROSECONDS, Outcome, Settings, by_turns, seconds_each, times};
use crate::raw::ok;

const NODES: usize = 1000;

/// Replays that are enqueued one after the other, as a program does that has more of them than one.
const AT_ONCE: usize = 10;

pub(crate) fn run(context: &Context, settings: &Settings) -> Outcome<Vec<Entry>> {
    let stream = context.stream()?;
    let saxpy = kernel(context, SAXPY)?;
    let x = stream.alloc_zeroed::<f32>(128)?;
    let mut y = stream.alloc_zeroed::<f32>(128)?;
    let config = LaunchConfig::new(1, 128);
    let graph = stream.capture(|| {
        (0..NODES).try_for_each(|_| saxpy.launch(&stream, &config, (2.0f32, &x, &mut y, 128u32)))?;
        Ok::<(), CudaError>(())
    })?;
    let nodes = graph.node_count()?;
    if nodes != NODES {
        return Err(format!("the graph has {nodes} nodes, expected {NODES}").into());
    }
    let ready = graph.instantiate()?;
    ready.upload(&stream)?;
    let (exec, handle) = (ready.raw_handle(), stream.raw_handle());
    // SAFETY: graph and stream live, and so does all that its nodes reach.
    let raw = || ok(unsafe { sys::cuGraphLaunch(exec, handle) });
    let ours = || Ok(ready.launch(&stream)?);
    let drain = || stream.synchronize();
    let samples = settings.choose(200, 20);
    let host = by_turns(
        samples,
        || {
            drain()?;
            seconds_each(AT_ONCE, ours)
        },
        || {
            drain()?;
            seconds_each(AT_ONCE, raw)
        },
    )?;
    let whole = by_turns(
        samples,
        || {
            drain()?;
            seconds_each(1, || ours().and_then(|()| Ok(drain()?)))
        },
        || {
            drain()?;
            seconds_each(1, || raw().and_then(|()| Ok(drain()?)))
        },
    )?;
    drain()?;
    Ok(vec![
        times(format!("graph: replay of {NODES} kernels, host"), MICROSECONDS, host, Bar::Ratio(1.05)),
        times(format!("graph: replay of {NODES} kernels, to the end"), MICROSECONDS, whole, Bar::Ratio(1.05)),
    ])
}
