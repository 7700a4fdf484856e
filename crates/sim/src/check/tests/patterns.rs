//! Classic patterns, right and wrong.

// The numbers are small.
#![allow(clippy::cast_possible_truncation)]

use std::sync::Arc;

use crate::check::{
    Access, Agent, Conflict, Epoch, GlobalShadow, Hazard, Kind, Knowledge, Proxy, Scope, Shadow, WarpClock,
};

const ALL: u32 = u32::MAX;

fn agent(cluster: u32, slot: u16, lane: u8) -> Agent {
    Agent { cluster, slot, block: 0, lane }
}

/// A block of warps in cluster 0 whose slots are 0.. and whose shared memory is `shadow`.
struct Block {
    warps: Vec<WarpClock>,
    shadow: Shadow,
}

impl Block {
    fn new(warps: u16) -> Block {
        Block {
            warps: (0..warps).map(|slot| WarpClock::new(0, slot, ALL)).collect(),
            shadow: Shadow::new(64 * 1024),
        }
    }

    fn touch(&mut self, warp: u16, lane: u8, at: usize, bytes: usize, kind: Kind) -> Option<Conflict> {
        self.strong(warp, lane, at, bytes, kind, None)
    }

    fn strong(
        &mut self,
        warp: u16,
        lane: u8,
        at: usize,
        bytes: usize,
        kind: Kind,
        strong: Option<Scope>,
    ) -> Option<Conflict> {
        let clock = &self.warps[usize::from(warp)];
        let epoch = Epoch { agent: agent(0, warp, lane), clock: clock.clock() };
        let access = Access { strong, ..Access::plain(epoch, clock.view(u32::from(lane)), 0, kind) };
        self.shadow.access(at..at + bytes, &access)
    }

    /// Started by lane 0 of a warp, completed by a stream.
    fn launch(
        &mut self,
        warp: u16,
        at: usize,
        bytes: usize,
        kind: Kind,
        stream: u16,
        phase: u32,
    ) -> Option<Conflict> {
        let know = self.warps[usize::from(warp)].view(0);
        let epoch = Epoch { agent: agent(0, stream, 0), clock: phase };
        let access =
            Access { epoch, issuer: agent(0, warp, 0), know, pc: 0, kind, strong: None, proxy: Proxy::Async };
        self.shadow.access(at..at + bytes, &access)
    }

    fn barrier(&mut self) {
        let told: Vec<_> = self.warps.iter_mut().map(|warp| warp.release(ALL)).collect();
        for warp in &mut self.warps {
            told.iter().for_each(|from| warp.acquire(ALL, from));
        }
    }
}

fn hazard(conflict: Option<Conflict>) -> Option<Hazard> {
    conflict.map(|conflict| conflict.hazard)
}

#[test]
fn a_barrier_orders_a_transpose_through_shared_memory() {
    for with_barriers in [true, false] {
        let mut block = Block::new(4);
        let mut found = Vec::new();
        for _ in 0..3 {
            for warp in 0..4 {
                for lane in 0..32 {
                    let at = usize::from(warp) * 128 + usize::from(lane) * 4;
                    found.extend(hazard(block.touch(warp, lane, at, 4, Kind::Write)));
                }
            }
            if with_barriers {
                block.barrier();
            }
            for warp in 0..4 {
                for lane in 0..32u8 {
                    let at = usize::from(lane % 4) * 128 + usize::from(warp) * 32 + usize::from(lane / 4) * 4;
                    found.extend(hazard(block.touch(warp, lane, at, 4, Kind::Read)));
                }
            }
            if with_barriers {
                block.barrier();
            }
        }
        assert_eq!(found.is_empty(), with_barriers);
        assert_eq!(found.contains(&Hazard::ReadAfterWrite), !with_barriers);
        assert_eq!(found.contains(&Hazard::WriteAfterRead), !with_barriers);
    }
}

#[test]
fn a_barrier_leaves_no_lane_clocks_behind() {
    let mut block = Block::new(8);
    block.barrier();
    assert!(block.warps.iter().all(|warp| warp.views().count() == 1));
    let text = format!("{:?}", block.warps[0].view(0));
    assert!(text.contains("least: [1, 1, 1, 1, 1, 1, 1, 1], lanes: []"), "{text}");
}

#[test]
fn a_partial_warp_is_as_compact_as_a_whole_one() {
    let mut warp = WarpClock::new(0, 0, 0xffff);
    let told = warp.release(0xffff);
    assert!(format!("{told:?}").contains("least: [1], lanes: []"));
    assert!(!format!("{:?}", warp.release(0xff)).contains("least: [2]"));
}

#[test]
fn a_flag_with_release_and_acquire_hands_data_over() {
    for acquired in [true, false] {
        let mut global = GlobalShadow::new();
        let (mut producer, mut consumer) = (WarpClock::new(0, 0, ALL), WarpClock::new(1, 0, ALL));
        let (data, flag) = (0x1000u64, 0x2000u64);
        let mut go = |warp: &WarpClock, cluster: u32, at: u64, kind: Kind, strong: Option<Scope>| {
            let epoch = Epoch { agent: agent(cluster, 0, 0), clock: warp.clock() };
            hazard(global.access(at, 4, &Access { strong, ..Access::plain(epoch, warp.view(0), 0, kind) }))
        };
        assert_eq!(go(&consumer, 1, flag, Kind::Read, Some(Scope::Gpu)), None, "polls before");
        assert_eq!(go(&producer, 0, data, Kind::Write, None), None);
        let told = producer.release(1);
        assert_eq!(go(&producer, 0, flag, Kind::Write, Some(Scope::Gpu)), None);
        assert_eq!(
            go(&consumer, 1, flag, Kind::Read, Some(Scope::Gpu)),
            None,
            "strong accesses never conflict"
        );
        if acquired {
            consumer.acquire(1, &told);
        }
        let expected = if acquired { None } else { Some(Hazard::ReadAfterWrite) };
        assert_eq!(go(&consumer, 1, data, Kind::Read, None), expected);
        assert_eq!(
            go(&consumer, 1, flag, Kind::Read, Some(Scope::Cta)),
            Some(Hazard::ReadAfterWrite),
            "scope too small"
        );
    }
}

#[test]
fn a_weak_store_before_an_atomic_is_not_forgotten() {
    // One thread resets a counter and counts itself; another counts without waiting for the reset.
    let mut block = Block::new(2);
    assert_eq!(block.touch(0, 0, 0, 4, Kind::Write), None);
    assert_eq!(block.strong(0, 0, 0, 4, Kind::Atomic, Some(Scope::Gpu)), None);
    let conflict = block.strong(1, 0, 0, 4, Kind::Atomic, Some(Scope::Gpu));
    assert_eq!(conflict.map(|c| (c.hazard, c.earlier.kind)), Some((Hazard::WriteAfterWrite, Kind::Write)));
}

#[test]
fn a_plain_read_must_be_ordered_after_every_concurrent_atomic() {
    let mut block = Block::new(3);
    for warp in 0..2 {
        for lane in 0..32 {
            assert_eq!(block.strong(warp, lane, 0, 4, Kind::Atomic, Some(Scope::Cta)), None);
        }
    }
    // The reader waits for the second warp only.
    let told = block.warps[1].release(ALL);
    block.warps[2].acquire(ALL, &told);
    let conflict = block.touch(2, 0, 0, 4, Kind::Read);
    assert_eq!(conflict.map(|c| (c.hazard, c.earlier.issuer.slot)), Some((Hazard::ReadAfterWrite, 0)));
    block.barrier();
    assert_eq!(block.touch(2, 0, 0, 4, Kind::Read), None);
}

#[test]
fn an_asynchronous_store_needs_a_proxy_fence() {
    const BULK: u16 = 9;
    for fence in ["nobody", "writers", "issuer after the barrier", "issuer before the barrier"] {
        let mut block = Block::new(2);
        for warp in 0..2 {
            for lane in 0..32 {
                let at = usize::from(warp) * 128 + usize::from(lane) * 4;
                assert_eq!(block.touch(warp, lane, at, 4, Kind::Write), None);
            }
        }
        match fence {
            "writers" => block.warps.iter_mut().for_each(|warp| warp.proxy_fence(ALL)),
            "issuer before the barrier" => block.warps[0].proxy_fence(ALL),
            _ => {}
        }
        block.barrier();
        if fence == "issuer after the barrier" {
            block.warps[0].proxy_fence(1);
        }
        let conflict = block.launch(0, 0, 256, Kind::Read, BULK, 1);
        let expected = match fence {
            "nobody" => Some((Hazard::MissingProxyFence, 0)),
            "issuer before the barrier" => Some((Hazard::MissingProxyFence, 128)),
            _ => None,
        };
        assert_eq!(conflict.map(|c| (c.hazard, c.offset)), expected, "{fence}");
    }
}

#[test]
fn a_thread_must_fence_its_own_stores_and_only_those_before_the_fence_count() {
    let mut block = Block::new(1);
    block.touch(0, 0, 0, 4, Kind::Write);
    block.warps[0].proxy_fence(ALL);
    block.touch(0, 0, 4, 4, Kind::Write);
    let conflict = block.launch(0, 0, 8, Kind::Read, 5, 1);
    assert_eq!(conflict.map(|c| (c.hazard, c.offset)), Some((Hazard::MissingProxyFence, 4)));
    // The fence of lane 0 says nothing about an order between the lanes.
    block.touch(0, 1, 8, 4, Kind::Write);
    block.warps[0].proxy_fence(ALL);
    assert_eq!(hazard(block.launch(0, 8, 4, Kind::Read, 5, 1)), Some(Hazard::ReadAfterWrite));
}

#[test]
fn cp_async_is_not_ordered_by_program_order() {
    const GROUPS: u16 = 7;
    let mut block = Block::new(1);
    for lane in 0..32u8 {
        let know = Arc::clone(block.warps[0].view(u32::from(lane)));
        let epoch = Epoch { agent: agent(0, GROUPS, lane), clock: 1 };
        let copy = Access { issuer: agent(0, 0, lane), ..Access::plain(epoch, &know, 0, Kind::Write) };
        let at = usize::from(lane) * 16;
        assert_eq!(block.shadow.access(at..at + 16, &copy), None);
    }
    let early = block.touch(0, 3, 48, 4, Kind::Read);
    assert_eq!(early.map(|c| (c.hazard, c.earlier.issuer)), Some((Hazard::ReadAfterWrite, agent(0, 0, 3))));
    // wait_group: each lane learns of its own copies.
    for lane in 0..32 {
        block.warps[0].learn(1 << lane, GROUPS, 1 << lane, 1, false);
    }
    assert_eq!(block.touch(0, 3, 48, 4, Kind::Read), None);
    assert_eq!(hazard(block.touch(0, 4, 48, 4, Kind::Read)), Some(Hazard::ReadAfterWrite));
    block.warps[0].sync(ALL);
    assert_eq!(block.touch(0, 4, 48, 4, Kind::Read), None);
    assert_eq!(block.warps[0].views().count(), 1);
}

/// A producer warp loads tiles by TMA into a ring, two consumer warps read them; `slip` leaves one wait out.
fn ring(slip: Option<&str>) -> Vec<Hazard> {
    const STAGES: usize = 2;
    const TILE: usize = 4096;
    let mut block = Block::new(3);
    let (full, empty) = (|stage: usize| 10 + stage as u16, |stage: usize| 20 + stage as u16);
    let mut arrivals: Vec<Vec<Arc<Knowledge>>> = vec![Vec::new(); STAGES];
    let mut found = Vec::new();
    for tile in 0..8 {
        let (stage, phase) = (tile % STAGES, (tile / STAGES) as u32 + 1);
        if phase > 1 && slip != Some("empty") {
            for told in arrivals[stage].drain(..) {
                block.warps[0].acquire(1, &told);
            }
            block.warps[0].learn(1, empty(stage), 1, phase - 1, true);
        }
        found.extend(hazard(block.launch(0, stage * TILE, TILE, Kind::Write, full(stage), phase)));
        for warp in 1..3u16 {
            if slip != Some("full") || warp == 1 {
                block.warps[usize::from(warp)].learn(ALL, full(stage), 1, phase, true);
            }
            for lane in 0..32 {
                let at = stage * TILE + usize::from(lane) * 16;
                found.extend(hazard(block.touch(warp, lane, at, 16, Kind::Read)));
            }
            arrivals[stage].push(block.warps[usize::from(warp)].release(ALL));
        }
    }
    found
}

#[test]
fn a_ring_of_tiles_needs_both_waits() {
    assert_eq!(ring(None), []);
    assert!(ring(Some("full")).contains(&Hazard::ReadAfterWrite));
    assert!(ring(Some("empty")).contains(&Hazard::WriteAfterRead));
}

#[test]
fn wgmma_operands_may_not_be_reused_before_the_group_is_waited_for() {
    const WGMMA: u16 = 30;
    for waited in [true, false] {
        let mut block = Block::new(1);
        assert_eq!(block.launch(0, 0, 16384, Kind::Read, WGMMA, 1), None);
        if waited {
            block.warps[0].learn(ALL, WGMMA, 1, 1, true);
        }
        let conflict = block.launch(0, 8192, 16384, Kind::Write, 10, 1);
        let expected = if waited { None } else { Some((Hazard::WriteAfterRead, 8192)) };
        assert_eq!(conflict.map(|c| (c.hazard, c.offset)), expected);
    }
}

#[test]
fn every_reader_of_a_broadcast_must_be_waited_for() {
    // All 32 warps of a block read one word, again and again; a write must wait for the last lane of the last of them.
    let mut block = Block::new(33);
    for _ in 0..6 {
        for warp in 0..32 {
            for lane in 0..32 {
                assert_eq!(block.touch(warp, lane, 64, 4, Kind::Read), None);
            }
            block.warps[usize::from(warp)].release(1);
        }
    }
    for missing in 0..32u16 {
        let mut block = Block { warps: block.warps.clone(), shadow: block.shadow.clone() };
        for warp in 0..32u16 {
            let lanes = if warp == missing { ALL ^ 1 << 17 } else { ALL };
            let told = block.warps[usize::from(warp)].release(lanes);
            block.warps[32].acquire(ALL, &told);
        }
        let conflict = block.touch(32, 0, 64, 4, Kind::Write);
        let reader = conflict.map(|c| (c.hazard, c.earlier.issuer));
        assert_eq!(reader, Some((Hazard::WriteAfterRead, agent(0, missing, 17))));
    }
    block.barrier();
    assert_eq!(block.touch(32, 0, 64, 4, Kind::Write), None);
}

#[test]
fn a_lane_that_reads_again_does_not_hide_the_others() {
    let mut block = Block::new(3);
    for warp in 0..2 {
        (0..32).for_each(|lane| assert_eq!(block.touch(warp, lane, 0, 4, Kind::Read), None));
        block.warps[usize::from(warp)].release(ALL ^ 1 << 5);
    }
    assert_eq!(block.touch(0, 0, 0, 4, Kind::Read), None);
    for (warp, lanes) in [(0, ALL ^ 1 << 5), (1, ALL)] {
        let told = block.warps[warp].release(lanes);
        block.warps[2].acquire(ALL, &told);
    }
    let conflict = block.touch(2, 0, 0, 4, Kind::Write);
    assert_eq!(conflict.map(|c| c.earlier.issuer), Some(agent(0, 0, 5)));
}

#[test]
fn every_lane_of_an_atomic_counts() {
    let mut block = Block::new(2);
    (0..3).for_each(|lane| assert_eq!(block.strong(0, lane, 0, 4, Kind::Atomic, Some(Scope::Gpu)), None));
    let told = block.warps[0].release(0b101);
    block.warps[1].acquire(ALL, &told);
    let conflict = block.touch(1, 0, 0, 4, Kind::Read);
    assert_eq!(conflict.map(|c| c.earlier.issuer), Some(agent(0, 0, 1)));
}

#[test]
fn neighbours_in_a_word_do_not_disturb_each_other() {
    for bytes in [1, 2] {
        let mut block = Block::new(2);
        for round in 0..3 {
            for lane in 0..32u8 {
                let warp = u16::from(lane % 2);
                let at = usize::from(lane) * bytes;
                assert_eq!(block.touch(warp, lane, at, bytes, Kind::Write), None, "round {round}");
                assert_eq!(block.touch(warp, lane, at, bytes, Kind::Read), None);
            }
        }
        let conflict = block.touch(0, 0, 0, 8, Kind::Read);
        assert_eq!(conflict.map(|c| (c.hazard, c.offset)), Some((Hazard::ReadAfterWrite, bytes as u64)));
        block.barrier();
        assert_eq!(block.touch(1, 9, 0, 64, Kind::Write), None);
        assert_eq!(hazard(block.touch(0, 0, 3, 1, Kind::Write)), Some(Hazard::WriteAfterWrite));
    }
}

#[test]
fn a_long_run_keeps_what_matters() {
    // Enough instructions for many collections; the oldest writer must still be known at the end.
    let mut block = Block::new(3);
    block.touch(0, 5, 0, 4, Kind::Write);
    block.touch(0, 6, 6, 2, Kind::Write);
    for step in 0..200_000usize {
        assert_eq!(block.touch(1, 0, 64 + step % 4096 * 4, 4, Kind::Write), None);
        if step % 3 == 0 {
            block.warps[1].release(1);
        }
    }
    let conflict = block.touch(2, 0, 0, 8, Kind::Read);
    assert_eq!(conflict.map(|c| (c.offset, c.earlier.issuer)), Some((0, agent(0, 0, 5))));
    let conflict = block.touch(2, 0, 4, 4, Kind::Read);
    assert_eq!(conflict.map(|c| (c.offset, c.earlier.issuer)), Some((6, agent(0, 0, 6))));
}

#[test]
fn nonsense_does_not_panic() {
    let mut block = Block::new(1);
    assert_eq!(block.touch(0, 0, 64 * 1024 - 2, 4, Kind::Write), None);
    assert_eq!(block.touch(0, 255, usize::MAX - 8, 4, Kind::Write), None);
    assert_eq!(block.touch(0, 0, 8, 0, Kind::Write), None);
    block.shadow.forget(0..usize::MAX);
    assert_eq!(block.shadow.first_uninitialised(0..usize::MAX), Some(0));
    assert!(block.warps[0].release(0).knows(Epoch { agent: agent(9, 9, 9), clock: 0 }));
    let mut global = GlobalShadow::new();
    let know = block.warps[0].view(0);
    let epoch = Epoch { agent: agent(0, 0, 0), clock: 1 };
    assert_eq!(global.access(u64::MAX - 5, 64, &Access::plain(epoch, know, 0, Kind::Write)), None);
    assert_eq!(global.first_uninitialised(u64::MAX - 8, 100), Some(u64::MAX - 8));
    global.initialise(u64::MAX - 8, u64::MAX);
    assert_eq!(global.first_uninitialised(u64::MAX - 8, 100), None);
    global.forget(0, u64::MAX);
    assert_eq!(global.first_uninitialised(u64::MAX - 8, 100), Some(u64::MAX - 8));
}

#[test]
fn host_ranges_unite_and_split() {
    let mut global = GlobalShadow::new();
    global.initialise(1000, 500);
    global.initialise(3000, 1000);
    global.initialise(1500, 1500);
    assert_eq!(global.first_uninitialised(1000, 3001), Some(4000));
    global.forget(2000, 10);
    assert_eq!(global.first_uninitialised(1000, 1000), None);
    assert_eq!(global.first_uninitialised(1000, 2000), Some(2000));
    assert_eq!(global.first_uninitialised(2010, 1990), None);
    // A page that appears later agrees with the ranges.
    let warp = WarpClock::new(0, 0, ALL);
    let epoch = Epoch { agent: agent(0, 0, 0), clock: 1 };
    global.access(1100, 1000, &Access::plain(epoch, warp.view(0), 0, Kind::Read));
    assert_eq!(global.first_uninitialised(1000, 2000), Some(2000));
    assert_eq!(global.first_uninitialised(2010, 1990), None);
    assert_eq!(global.first_uninitialised(990, 20), Some(990));
    global.access(2000, 10, &Access::plain(epoch, warp.view(0), 0, Kind::Write));
    assert_eq!(global.first_uninitialised(1000, 3000), None);
}
