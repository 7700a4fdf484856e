//! How long an access takes. Run with `cargo test --release -- --ignored --nocapture timing`.

// The numbers are small.
#![allow(clippy::cast_possible_truncation)]

use std::time::{Duration, Instant};

use crate::check::{Access, Agent, Conflict, Epoch, GlobalShadow, Kind, Knowledge, Proxy, Shadow, WarpClock};

const ALL: u32 = u32::MAX;
const WARPS: u16 = 8;

fn barrier(warps: &mut [WarpClock]) {
    let told: Vec<_> = warps.iter_mut().map(|warp| warp.release(ALL)).collect();
    let mut sum = (*told[0]).clone();
    told[1..].iter().for_each(|from| sum.join(from));
    warps.iter_mut().for_each(|warp| warp.acquire(ALL, &sum));
}

fn warps() -> Vec<WarpClock> {
    (0..WARPS).map(|slot| WarpClock::new(0, slot, ALL)).collect()
}

fn lanes(warps: &[WarpClock], kind: Kind, mut access: impl FnMut(usize, usize, &Access<'_>)) {
    for (slot, warp) in (0..).zip(warps) {
        for lane in 0..32u8 {
            let epoch = Epoch { agent: Agent { cluster: 0, slot, block: 0, lane }, clock: warp.clock() };
            let a = Access::plain(epoch, warp.view(u32::from(lane)), 7, kind);
            access(usize::from(slot), usize::from(lane), &a);
        }
    }
}

/// An asynchronous access started by the first thread.
fn stream(slot: u16, phase: u32, kind: Kind, know: &Knowledge) -> Access<'_> {
    let issuer = Agent { cluster: 0, slot: 0, block: 0, lane: 0 };
    let epoch = Epoch { agent: Agent { slot, ..issuer }, clock: phase };
    Access { issuer, proxy: Proxy::Async, ..Access::plain(epoch, know, 3, kind) }
}

/// Adds up the time of what is measured, without the barriers in between.
#[derive(Default)]
struct Watch(Duration);

impl Watch {
    fn time(&mut self, what: impl FnOnce()) {
        let started = Instant::now();
        what();
        self.0 += started.elapsed();
    }

    fn report(&self, what: &str, count: usize) {
        println!("{what:52} {:6.2} ns", self.0.as_secs_f64() * 1e9 / count as f64);
    }
}

/// One call a warp.
fn together(warps: &[WarpClock], kind: Kind, mut access: impl FnMut(usize, &Access<'_>)) {
    for (slot, warp) in (0..).zip(warps) {
        let epoch = Epoch { agent: Agent { cluster: 0, slot, block: 0, lane: 0 }, clock: warp.clock() };
        access(usize::from(slot), &Access::plain(epoch, warp.view(0), 7, kind));
    }
}

#[test]
#[ignore = "measures"]
fn timing() {
    const ROUNDS: usize = 4000;
    let accesses = ROUNDS * usize::from(WARPS) * 32;
    let surprise = |lane: u32, conflict: Conflict| panic!("lane {lane}: {conflict:?}");

    let (mut watch, mut group) = (Watch::default(), warps());
    watch.time(|| (0..ROUNDS).for_each(|_| barrier(&mut group)));
    watch.report("barrier of 8 warps, a warp", ROUNDS * usize::from(WARPS));

    for bytes in [4, 2, 16] {
        let (mut shadow, mut group, mut watch) = (Shadow::new(64 * 1024), warps(), Watch::default());
        for round in 0..2 * ROUNDS {
            let (base, kind) = (round / 2 % 8 * 4096, [Kind::Write, Kind::Read][round % 2]);
            watch.time(|| {
                lanes(&group, kind, |warp, lane, a| {
                    let row = if kind == Kind::Write { warp } else { 7 - warp };
                    let at = base + (row * 32 + lane) * bytes;
                    assert!(shadow.access(at..at + bytes, a).is_none());
                });
            });
            barrier(&mut group);
        }
        watch.report(&format!("{bytes} B a lane, writes and reads between barriers"), 2 * accesses);

        let (mut shadow, mut group, mut watch) = (Shadow::new(64 * 1024), warps(), Watch::default());
        for round in 0..2 * ROUNDS {
            let (base, kind) = (round / 2 % 8 * 4096, [Kind::Write, Kind::Read][round % 2]);
            watch.time(|| {
                together(&group, kind, |warp, a| {
                    let row = if kind == Kind::Write { warp } else { 7 - warp };
                    let start = |lane| base + (row * 32 + lane as usize) * bytes;
                    shadow.access_lanes(ALL, bytes, start, a, surprise);
                });
            });
            barrier(&mut group);
        }
        watch.report("    in one call a warp", 2 * accesses);
    }

    let (mut global, mut group, mut watch) = (GlobalShadow::new(), warps(), Watch::default());
    for round in 0..ROUNDS {
        watch.time(|| {
            together(&group, Kind::Write, |warp, a| {
                let address = |lane| (round % 64 * 1024 + warp * 128) as u64 + u64::from(lane) * 4;
                global.access_lanes(ALL, 4, address, a, surprise);
            });
        });
        barrier(&mut group);
    }
    watch.report("4 B a lane in global memory, one call a warp", accesses);

    let (mut shadow, mut group) = (Shadow::new(64 * 1024), warps());
    let (mut single, mut warpwise) = (Watch::default(), Watch::default());
    for round in 0..ROUNDS {
        let at = round % 16 * 4;
        single.time(|| lanes(&group, Kind::Read, |_, _, a| assert!(shadow.access(at..at + 4, a).is_none())));
        let at = 1024 + at;
        warpwise
            .time(|| together(&group, Kind::Read, |_, a| shadow.access_lanes(ALL, 4, |_| at, a, surprise)));
        if round % 64 == 63 {
            barrier(&mut group);
        }
    }
    single.report("broadcast reads by 8 warps", accesses);
    warpwise.report("    in one call a warp", accesses);

    let (mut shadow, mut group, mut watch) = (Shadow::new(64 * 1024), warps(), Watch::default());
    for round in 0..ROUNDS {
        let (stage, phase) = (round % 4 * 16384, (round / 4) as u32 + 1);
        let (full, wgmma) = (20 + round as u16 % 4, 30);
        let load = stream(full, phase, Kind::Write, group[0].view(0));
        watch.time(|| assert!(shadow.access(stage..stage + 16384, &load).is_none()));
        group.iter_mut().for_each(|warp| warp.learn(ALL, full, ALL, phase, true));
        for reader in 0..2 {
            let read = stream(wgmma + reader, phase, Kind::Read, group[4].view(0));
            watch.time(|| assert!(shadow.access(stage..stage + 16384, &read).is_none()));
        }
        group.iter_mut().for_each(|warp| (0..2).for_each(|r| warp.learn(ALL, wgmma + r, ALL, phase, true)));
    }
    watch.report("16 KiB written by TMA, read by 2 wgmma, a granule", ROUNDS * 3 * 4096);

    let (mut shadow, mut group, mut watch) = (Shadow::new(64 * 1024), warps(), Watch::default());
    for round in 0..ROUNDS {
        together(&group, Kind::Write, |warp, a| {
            (0..16).for_each(|row| {
                let start = |lane| row * 1024 + (warp * 32 + lane as usize) * 4;
                shadow.access_lanes(ALL, 4, start, a, surprise);
            });
        });
        group.iter_mut().for_each(|warp| warp.proxy_fence(ALL));
        barrier(&mut group);
        let phase = round as u32 + 1;
        let store = stream(40, phase, Kind::Read, group[0].view(0));
        watch.time(|| assert!(shadow.access(0..16384, &store).is_none()));
        group.iter_mut().for_each(|warp| warp.learn(ALL, 40, ALL, phase, true));
        barrier(&mut group);
    }
    watch.report("16 KiB written by lanes, read by TMA, a granule", ROUNDS * 4096);
}
