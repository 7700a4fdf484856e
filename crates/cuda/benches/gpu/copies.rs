//! Bandwidth of copies, from sizes where calls count to sizes where wires do.
#![allow(unsafe_code)]

use std::ffi::c_void;

use tilewright_cuda::cudarc::driver::sys;
use tilewright_cuda::{Buffer, Context, Stream};

use crate::measure::{Bar, Entry, Outcome, Settings, Turns, by_turns, seconds_each};
use crate::raw::{Pinned, ok};

const SIZES: [(&str, usize); 6] = [
    ("4 KiB", 4 << 10),
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
    ("16 MiB", 16 << 20),
    ("256 MiB", 256 << 20),
    ("1 GiB", 1 << 30),
];

/// Where `--quick` stops.
const QUICK: usize = 16 << 20;

/// The raw API's bandwidth, but for the noise of small copies.
const BAR: Bar = Bar::RatioAtLeast(0.95);

pub(crate) fn run(context: &Context, settings: &Settings) -> Outcome<Vec<Entry>> {
    let stream = context.stream()?;
    let sizes = SIZES.into_iter().filter(|(_, bytes)| !settings.quick || *bytes <= QUICK);
    let largest = if settings.quick { QUICK } else { 1 << 30 };
    let mut pageable = vec![1u8; largest];
    let mut pinned = Pinned::new(largest)?;
    let mut entries = Vec::new();
    for (size, bytes) in sizes {
        let plan = |rounds| Plan { size, bytes, samples: settings.choose(rounds, 5) };
        let (quiet, noisy) = if bytes > QUICK { (7, 15) } else { (31, 31) };
        let mut near = stream.alloc_zeroed::<u8>(bytes)?;
        // Both sides of a row copy the same memory, all of whose pages have been written. What the driver does to pageable memory varies by
        // a third from copy to copy where caches no longer hold it.
        let hosts = [
            ("pageable", &mut pageable[..bytes], plan(noisy)),
            ("pinned", &mut pinned.bytes()[..bytes], plan(quiet)),
        ];
        for (kind, host, plan) in hosts {
            entries.push(plan.to_device(kind, &stream, host, &mut near)?);
            entries.push(plan.to_host(kind, &stream, host, &near)?);
        }
        let mut far = stream.alloc_zeroed::<u8>(bytes)?;
        entries.push(plan(quiet).on_device(&stream, &near, &mut far)?);
    }
    Ok(entries)
}

/// One size.
#[derive(Clone, Copy)]
struct Plan {
    size: &'static str,
    bytes: usize,
    samples: usize,
}

impl Plan {
    /// Copies of one sample: a few megabytes, for the clock.
    fn repeats(self) -> usize {
        ((4 << 20) / self.bytes).clamp(1, 64)
    }

    fn entry(self, what: &str, turns: Turns) -> Entry {
        #[allow(clippy::cast_precision_loss, reason = "at most 1 GiB")]
        let gigabytes = self.bytes as f64 * 1e-9;
        let bandwidth = turns.map(|seconds| gigabytes / seconds, |ratio| 1.0 / ratio);
        Entry::against_raw(format!("copy: {what}, {}", self.size), "GB/s", bandwidth, BAR)
    }

    fn to_device(self, kind: &str, stream: &Stream, host: &[u8], device: &mut Buffer<u8>) -> Outcome<Entry> {
        let (from, to, handle) = (host.as_ptr().cast::<c_void>(), device.address(), stream.raw_handle());
        let taken = by_turns(
            self.samples,
            || seconds_each(self.repeats(), || Ok(stream.copy(host, &mut *device)?)),
            || {
                seconds_each(self.repeats(), || {
                    // SAFETY: both are so long, and are kept until the copy is done.
                    unsafe {
                        ok(sys::cuMemcpyHtoDAsync_v2(to, from, self.bytes, handle))?;
                        ok(sys::cuStreamSynchronize(handle))
                    }
                })
            },
        )?;
        Ok(self.entry(&format!("{kind} host to device"), taken))
    }

    fn to_host(self, kind: &str, stream: &Stream, host: &mut [u8], device: &Buffer<u8>) -> Outcome<Entry> {
        let (to, from, handle) = (host.as_mut_ptr().cast::<c_void>(), device.address(), stream.raw_handle());
        let taken = by_turns(
            self.samples,
            || seconds_each(self.repeats(), || Ok(stream.copy(device, &mut *host)?)),
            || {
                seconds_each(self.repeats(), || {
                    // SAFETY: both are so long, and are kept until the copy is done.
                    unsafe {
                        ok(sys::cuMemcpyDtoHAsync_v2(to, from, self.bytes, handle))?;
                        ok(sys::cuStreamSynchronize(handle))
                    }
                })
            },
        )?;
        Ok(self.entry(&format!("device to {kind} host"), taken))
    }

    /// Many copies, then one wait: copies inside a device overlap with the calls that ask for them.
    fn on_device(self, stream: &Stream, from: &Buffer<u8>, to: &mut Buffer<u8>) -> Outcome<Entry> {
        let (target, source, handle) = (to.address(), from.address(), stream.raw_handle());
        let repeats = self.repeats().max(8);
        #[allow(clippy::cast_precision_loss, reason = "at most 64")]
        let each = |seconds: f64| seconds / repeats as f64;
        let taken = by_turns(
            self.samples,
            || {
                let all = seconds_each(1, || {
                    (0..repeats).try_for_each(|_| stream.copy(from, &mut *to))?;
                    Ok(stream.synchronize()?)
                });
                all.map(each)
            },
            || {
                let all = seconds_each(1, || {
                    for _ in 0..repeats {
                        // SAFETY: both are so long, and are kept until the copies are done.
                        ok(unsafe { sys::cuMemcpyDtoDAsync_v2(target, source, self.bytes, handle) })?;
                    }
                    // SAFETY: the stream lives.
                    ok(unsafe { sys::cuStreamSynchronize(handle) })
                });
                all.map(each)
            },
        )?;
        Ok(self.entry("inside the device", taken))
    }
}
