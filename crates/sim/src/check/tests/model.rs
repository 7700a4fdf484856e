//! The shadow against a reference that keeps, byte by byte, a list of everything and applies the rules literally.

// The numbers are small.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;

use crate::check::{
    Access, Agent, Conflict, Epoch, GlobalShadow, Hazard, Kind, Knowledge, Past, Proxy, Scope, Shadow,
    WarpClock,
};

const BYTES: usize = 24;
/// Warps 0..3 are in cluster 0 (blocks 0, 0, 1), 3..6 in cluster 1; slots 3 and 4 of each cluster are streams.
const WARPS: usize = 6;
const LANES: u8 = 4;
/// Lies across pages.
const BASE: u64 = 5 * 1024 - 12;

#[derive(Clone, Debug)]
enum Op {
    Touch {
        warp: usize,
        lane: u8,
        start: usize,
        len: usize,
        kind: Kind,
        strong: Option<Scope>,
        how: How,
    },
    /// Lanes that share their knowledge, each at its own place (or all at one), in one call.
    Together {
        warp: usize,
        lanes: u32,
        start: usize,
        stride: usize,
        bytes: usize,
        kind: Kind,
        strong: Option<Scope>,
    },
    Release {
        warp: usize,
        lanes: u32,
        mailbox: usize,
    },
    Acquire {
        warp: usize,
        lanes: u32,
        mailbox: usize,
    },
    Sync {
        warp: usize,
    },
    Fence {
        warp: usize,
        lanes: u32,
    },
    /// A warp waits for a stream of its cluster, which then begins a new phase.
    Wait {
        warp: usize,
        lanes: u32,
        stream: usize,
    },
    Forget {
        start: usize,
        len: usize,
    },
    Collect,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Now,
    /// Like `cp.async`: generic, completed by a stream, per lane.
    Deferred(usize),
    /// Like TMA.
    Async(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let warp = || 0..WARPS;
    let lanes = || prop_oneof![Just(u32::MAX), 1u32..16];
    let kind = prop_oneof![4 => Just(Kind::Read), 3 => Just(Kind::Write), 1 => Just(Kind::Atomic)];
    let strong = prop_oneof![4 => Just(None), 1 => Just(Some(Scope::Cta)), 1 => Just(Some(Scope::Cluster)),
        2 => Just(Some(Scope::Gpu))];
    let how = prop_oneof![5 => Just(How::Now), 1 => (0..2usize).prop_map(How::Deferred),
        2 => (0..2usize).prop_map(How::Async)];
    let len = prop_oneof![Just(1), Just(2), Just(4), Just(4), Just(8), 1..=BYTES];
    let touch = (warp(), 0..LANES, 0..BYTES, len, kind.clone(), strong.clone(), how).prop_map(
        |(warp, lane, start, len, kind, strong, how)| {
            // Mostly aligned, as programs are.
            let start = if len.is_power_of_two() { start / len * len } else { start };
            Op::Touch { warp, lane, start, len, kind, strong, how }
        },
    );
    let together =
        (warp(), lanes(), 0..BYTES, 0..5usize, prop_oneof![Just(1), Just(2), Just(4), Just(8)], kind, strong)
            .prop_map(|(warp, lanes, start, stride, bytes, kind, strong)| Op::Together {
                warp,
                lanes,
                start,
                stride,
                bytes,
                kind,
                strong,
            });
    prop_oneof![
        30 => touch,
        8 => together,
        6 => (warp(), lanes(), 0..3usize).prop_map(|(warp, lanes, mailbox)| Op::Release { warp, lanes, mailbox }),
        8 => (warp(), lanes(), 0..3usize).prop_map(|(warp, lanes, mailbox)| Op::Acquire { warp, lanes, mailbox }),
        2 => warp().prop_map(|warp| Op::Sync { warp }),
        4 => (warp(), lanes()).prop_map(|(warp, lanes)| Op::Fence { warp, lanes }),
        4 => (warp(), lanes(), 0..2usize).prop_map(|(warp, lanes, stream)| Op::Wait { warp, lanes, stream }),
        1 => (0..BYTES, 1..9usize).prop_map(|(start, len)| Op::Forget { start, len }),
        1 => Just(Op::Collect),
    ]
}

fn spans(scope: Scope, a: Agent, b: Agent) -> bool {
    match scope {
        Scope::Cta => a.cluster == b.cluster && a.block == b.block,
        Scope::Cluster => a.cluster == b.cluster,
        Scope::Gpu | Scope::Sys => true,
    }
}

/// The rules, for one byte: which of `past` the access conflicts with; then `past` as it is afterwards.
fn reference(past: &mut Vec<Past>, a: &Access<'_>, own_fence: u32) -> Vec<(Hazard, Past)> {
    let mut conflicts = Vec::new();
    let mut kept = Vec::new();
    for &e in past.iter() {
        let synchronous = e.proxy == Proxy::Generic && e.epoch.agent == e.issuer;
        let own = synchronous && e.issuer == a.issuer;
        let together = match (e.strong, a.strong) {
            (Some(x), Some(y)) => spans(x, e.issuer, a.issuer) && spans(y, e.issuer, a.issuer),
            _ => false,
        };
        let hazard = if !own && !a.know.knows(e.epoch) {
            match (e.kind.writes(), a.kind.writes()) {
                (false, false) => None,
                (true, false) => Some(Hazard::ReadAfterWrite),
                (false, true) => Some(Hazard::WriteAfterRead),
                (true, true) => Some(Hazard::WriteAfterWrite),
            }
        } else {
            let proxied = a.know.knows_proxied(e.epoch) || own && e.epoch.clock <= own_fence;
            let crosses = e.proxy == Proxy::Generic && e.kind.writes() && a.proxy == Proxy::Async;
            (crosses && !proxied).then_some(Hazard::MissingProxyFence)
        };
        if let (Some(hazard), false) = (hazard, together) {
            conflicts.push((hazard, e));
        }
        let replaced = a.kind.writes() && a.strong <= e.strong && !(hazard.is_some() && together);
        if !replaced {
            kept.push(e);
        }
    }
    kept.push(Past {
        epoch: a.epoch,
        issuer: a.issuer,
        pc: a.pc,
        kind: a.kind,
        proxy: a.proxy,
        strong: a.strong,
    });
    *past = kept;
    conflicts
}

struct World {
    warps: Vec<WarpClock>,
    fences: Vec<[u32; 32]>,
    phases: [[u32; 2]; 2],
    mailboxes: Vec<Arc<Knowledge>>,
    shadow: Shadow,
    global: GlobalShadow,
    past: Vec<Vec<Past>>,
    written: [bool; BYTES],
}

impl World {
    fn new() -> World {
        World {
            warps: (0..WARPS).map(|w| WarpClock::new((w / 3) as u32, (w % 3) as u16, u32::MAX)).collect(),
            fences: vec![[0; 32]; WARPS],
            phases: [[1; 2]; 2],
            mailboxes: (0..3).map(|_| Arc::new(Knowledge::new(0))).collect(),
            shadow: Shadow::new(BYTES),
            // As many readers as in shared memory, so that both must find the same.
            global: GlobalShadow::remembering(64),
            past: vec![Vec::new(); BYTES],
            written: [false; BYTES],
        }
    }

    fn step(&mut self, pc: u32, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Touch { warp, lane, start, len, kind, strong, how } => {
                self.touch(pc, (warp, lane), start..BYTES.min(start + len), (kind, strong, how))?;
            }
            Op::Together { warp, lanes, start, stride, bytes, kind, strong } => {
                self.together(pc, (warp, lanes), (start, stride, bytes), (kind, strong))?;
            }
            Op::Release { warp, lanes, mailbox } => self.mailboxes[mailbox] = self.warps[warp].release(lanes),
            Op::Acquire { warp, lanes, mailbox } => self.warps[warp].acquire(lanes, &self.mailboxes[mailbox]),
            Op::Sync { warp } => self.warps[warp].sync(u32::MAX),
            Op::Fence { warp, lanes } => {
                let clock = self.warps[warp].clock();
                (0..32)
                    .filter(|lane| lanes >> lane & 1 == 1)
                    .for_each(|lane| self.fences[warp][lane] = clock);
                self.warps[warp].proxy_fence(lanes);
            }
            Op::Wait { warp, lanes, stream } => {
                let phase = &mut self.phases[warp / 3][stream];
                self.warps[warp].learn(lanes, 3 + stream as u16, u32::MAX, *phase, stream == 1);
                *phase += 1;
            }
            Op::Forget { start, len } => {
                self.shadow.forget(start..start + len);
                self.global.forget(BASE + start as u64, len as u64);
                for byte in start..BYTES.min(start + len) {
                    self.past[byte].clear();
                    self.written[byte] = false;
                }
            }
            Op::Collect => {
                self.shadow.collect();
                self.global.collect();
            }
        }
        Ok(())
    }

    /// What the reference finds at the first byte in conflict.
    fn expect(&mut self, warp: usize, range: Range<usize>, access: &Access<'_>) -> Vec<(u64, Hazard, Past)> {
        let fence = self.fences[warp][usize::from(access.issuer.lane)];
        let mut expected = Vec::new();
        for byte in range {
            let conflicts = reference(&mut self.past[byte], access, fence);
            if !conflicts.is_empty() && expected.is_empty() {
                expected = conflicts.into_iter().map(|(hazard, past)| (byte as u64, hazard, past)).collect();
            }
            self.written[byte] |= access.kind.writes();
        }
        expected
    }

    fn together(
        &mut self,
        pc: u32,
        (warp, lanes): (usize, u32),
        (start, stride, bytes): (usize, usize, usize),
        (kind, strong): (Kind, Option<Scope>),
    ) -> Result<(), TestCaseError> {
        let (class, know) =
            self.warps[warp].views().last().map(|(mask, view)| (mask, Arc::clone(view))).unwrap();
        let lanes = lanes & class & 0xff;
        let agent = Agent {
            cluster: (warp / 3) as u32,
            slot: (warp % 3) as u16,
            block: u16::from(warp % 3 == 2),
            // Whatever lane stands here is replaced.
            lane: 9,
        };
        let epoch = Epoch { agent, clock: self.warps[warp].clock() };
        let access = Access { strong, ..Access::plain(epoch, &know, pc, kind) };
        let place = |lane: u32| start + stride * lane as usize;
        let mut found = [None; 32];
        self.shadow.access_lanes(lanes, bytes, place, &access, |lane, c| found[lane as usize] = Some(c));
        let mut global = [None; 32];
        let address = |lane: u32| BASE + place(lane).min(BYTES) as u64;
        for lane in (0..32u32).filter(|lane| lanes >> lane & 1 == 1) {
            let range = place(lane).min(BYTES)..BYTES.min(place(lane) + bytes);
            // Cut to the region by hand: global memory has no end there.
            let note = |lane: u32, c: Conflict| {
                global[lane as usize] = Some(Conflict { offset: c.offset - BASE, ..c });
            };
            self.global.access_lanes(1 << lane, range.len(), address, &access, note);
            let agent = Agent { lane: lane as u8, ..agent };
            let alone = Access { epoch: Epoch { agent, ..epoch }, issuer: agent, ..access };
            let expected = self.expect(warp, range, &alone);
            for found in [found[lane as usize], global[lane as usize]] {
                prop_assert_eq!(
                    found.is_some(),
                    !expected.is_empty(),
                    "lane {}: {:?}, {:?}",
                    lane,
                    found,
                    expected
                );
                let one_of = |c: Conflict| expected.contains(&(c.offset, c.hazard, c.earlier));
                prop_assert!(
                    found.is_none_or(one_of),
                    "lane {}: {:?}, expected one of {:?}",
                    lane,
                    found,
                    expected
                );
            }
        }
        Ok(())
    }

    fn touch(
        &mut self,
        pc: u32,
        (warp, lane): (usize, u8),
        range: Range<usize>,
        (kind, strong, how): (Kind, Option<Scope>, How),
    ) -> Result<(), TestCaseError> {
        let cluster = warp / 3;
        let block = u16::from(warp % 3 == 2);
        let issuer = Agent { cluster: cluster as u32, slot: (warp % 3) as u16, block, lane };
        let stream = |stream: usize, lane| Epoch {
            agent: Agent { slot: 3 + stream as u16, lane, ..issuer },
            clock: self.phases[cluster][stream],
        };
        let (epoch, proxy) = match how {
            How::Now => (Epoch { agent: issuer, clock: self.warps[warp].clock() }, Proxy::Generic),
            How::Deferred(s) => (stream(s, lane), Proxy::Generic),
            How::Async(s) => (stream(s, 0), Proxy::Async),
        };
        let know = Arc::clone(self.warps[warp].view(u32::from(lane)));
        let strong = if kind == Kind::Atomic { strong.or(Some(Scope::Gpu)) } else { strong };
        let access = Access { epoch, issuer, know: &know, pc, kind, strong, proxy };
        let expected = self.expect(warp, range.clone(), &access);
        let global = self.global.access(BASE + range.start as u64, range.len(), &access);
        let found = self.shadow.access(range, &access);
        prop_assert_eq!(found.is_some(), !expected.is_empty(), "found {:?}, expected {:?}", found, expected);
        for conflict in found.iter().copied().chain(global.map(|c| Conflict { offset: c.offset - BASE, ..c }))
        {
            prop_assert!(
                expected.contains(&(conflict.offset, conflict.hazard, conflict.earlier)),
                "found {:?}, expected one of {:?}",
                conflict,
                expected
            );
        }
        prop_assert_eq!(found.is_some(), global.is_some());
        let missing = (0..BYTES).find(|&byte| !self.written[byte]);
        prop_assert_eq!(self.shadow.first_uninitialised(0..BYTES), missing);
        prop_assert_eq!(self.global.first_uninitialised(BASE, BYTES), missing.map(|byte| BASE + byte as u64));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn agrees_with_the_reference(ops in prop::collection::vec(op(), 1..150)) {
        let mut world = World::new();
        for (pc, op) in (1..).zip(&ops) {
            world.step(pc, op)?;
        }
    }
}
