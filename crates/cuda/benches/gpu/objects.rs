//! Small things that programs do all the time: events, memory in the order of a stream, kernels from the cache of the process.
#![allow(unsafe_code)]

use std::ptr;

use tilewright_cuda::cudarc::driver::sys;
use tilewright_cuda::{Context, CudaError, EventOptions, Kernel, KernelCache};

use crate::launches::{EMPTY, kernel};
use crate::measure::{Bar, Entry, NANOSECONDS, Outcome, Settings, Spread, by_turns, seconds_each, times};
use crate::raw::ok;

const BATCH: usize = 500;

/// Bytes of an allocation.
const BLOCK: usize = 1 << 20;

pub(crate) fn run(context: &Context, settings: &Settings) -> Outcome<Vec<Entry>> {
    let (stream, other) = (context.stream()?, context.stream()?);
    let (handle, other_handle) = (stream.raw_handle(), other.raw_handle());
    let samples = settings.choose(200, 20);
    let event = context.event_with(&EventOptions { timing: false, blocking: false })?;
    let raw_event = RawEvent::new()?;
    let drain = || stream.synchronize().and_then(|()| other.synchronize());

    let record = by_turns(
        samples,
        || {
            drain()?;
            seconds_each(BATCH, || Ok(event.record(&stream)?))
        },
        || {
            drain()?;
            // SAFETY: both handles live.
            seconds_each(BATCH, || ok(unsafe { sys::cuEventRecord(raw_event.0, handle) }))
        },
    )?;
    let wait = by_turns(
        samples,
        || {
            drain()?;
            seconds_each(BATCH, || Ok(other.wait(&event)?))
        },
        || {
            drain()?;
            // SAFETY: both handles live.
            seconds_each(BATCH, || ok(unsafe { sys::cuStreamWaitEvent(other_handle, raw_event.0, 0) }))
        },
    )?;
    let memory = by_turns(
        samples,
        || {
            drain()?;
            seconds_each(BATCH, || {
                drop(stream.alloc::<u8>(BLOCK)?);
                Ok(())
            })
        },
        || {
            drain()?;
            seconds_each(BATCH, || {
                let mut address = 0;
                // SAFETY: the pointer is valid for the call; what was allocated is freed once, unused.
                unsafe {
                    ok(sys::cuMemAllocAsync(&raw mut address, BLOCK, handle))?;
                    ok(sys::cuMemFreeAsync(address, handle))
                }
            })
        },
    )?;
    drain()?;
    Ok(vec![
        times("event: record", NANOSECONDS, record, Bar::None),
        times("event: wait", NANOSECONDS, wait, Bar::None),
        times("memory: alloc and free of 1 MiB in order", NANOSECONDS, memory, Bar::None),
        cache_hit(context, samples)?,
    ])
}

/// A kernel from the cache of the process, by name and specialisation, among others.
fn cache_hit(context: &Context, samples: usize) -> Outcome<Entry> {
    let cache = KernelCache::<(String, [u32; 4]), Kernel>::new();
    let keys: Vec<(String, [u32; 4])> = (0..64).map(|n| ("gemm".to_owned(), [128, 256, 64, n])).collect();
    let empty = kernel(context, EMPTY)?;
    for key in &keys {
        cache.get_or_try_insert_with(key, || Ok::<_, CudaError>(empty.clone()))?;
    }
    let mut taken = Vec::with_capacity(samples);
    for _ in 0..samples {
        let mut next = keys.iter().cycle();
        taken.push(seconds_each(10 * BATCH, || {
            let key = next.next().ok_or("no keys")?;
            let kernel = cache.get_or_try_insert_with(key, || Err("a key is missing"))?;
            std::hint::black_box(&kernel);
            Ok(())
        })?);
    }
    let ours = Spread::of(taken).map(|seconds| seconds * 1e9);
    // Well under a microsecond.
    Ok(Entry {
        name: "cache: hit in the process".to_owned(),
        unit: "ns",
        ours,
        raw: None,
        bar: Bar::Ours(500.0),
    })
}

/// An event without timing.
struct RawEvent(sys::CUevent);

impl RawEvent {
    fn new() -> Outcome<RawEvent> {
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the pointer is valid for the call; a context is bound to this thread.
        ok(unsafe { sys::cuEventCreate(&raw mut event, flags) })?;
        Ok(RawEvent(event))
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}
