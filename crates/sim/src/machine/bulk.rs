//! Bulk copies and TMA: how they are issued, checked and awaited.
//!
//! A copy is checked when it is issued, because it may happen at any time between its issue and its completion: that is when it must
//! not conflict with anybody.

use tilewright_ptx::Type;

use crate::check::{Access as Checked, Agent, Epoch, FindingKind, Kind as AccessKind, Proxy, Scope};
use crate::memory::window;
use crate::number::Combine;
use crate::program::{Address, Bulk, Kind, Space, Src, TensorMode};
use crate::tensor::tensor_map::DataType;
use crate::tensor::{Run, TensorMap};

use super::access::low;
use super::asynchronous::{Fill, Issuer, Reduce, Target, Work};
use super::cluster::{Cluster, Env, Stop, Stream, index};
use super::exec::{At, Flow, bits};
use super::mbarrier::location;
use super::report::Where;
use super::sync::{Addresses, Logged};
use super::warp::{Wait, Warp};

impl Cluster {
    /// All copies.
    pub(crate) fn copy(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, kind: &Kind) -> Result<Flow, Stop> {
        Ok(match kind {
            Kind::CpAsync { dst, src, bytes, read, ignore } => {
                let read = read.map(|read| self.lanes(env, warp, at, read));
                let ignore = ignore.map_or(0, |ignore| super::exec::predicate(warp, at, ignore));
                self.cp_async(env, warp, at, *dst, *src, usize::from(*bytes), read, ignore);
                Flow::Next
            }
            Kind::CpAsyncCommit => {
                for lane in bits(at.lanes) {
                    let groups = &mut warp.cp_async[lane as usize];
                    groups.committed += 1;
                    groups.open = 0;
                }
                Flow::Next
            }
            Kind::CpAsyncWait { pending, all } => self.cp_async_wait(env, warp, at, *pending, *all),
            Kind::CpAsyncMbarrier { address, space, noinc } => {
                self.cp_async_arrive(env, warp, at, *address, *space, *noinc);
                Flow::Next
            }
            Kind::Bulk(Bulk::Commit) => {
                for lane in bits(at.lanes) {
                    let groups = &mut warp.bulk[lane as usize];
                    groups.committed += 1;
                    groups.open = 0;
                }
                Flow::Next
            }
            Kind::Bulk(Bulk::Wait { pending, read }) => self.bulk_wait(env, warp, at, *pending, *read),
            Kind::Bulk(bulk) => {
                for lane in bits(at.lanes) {
                    self.bulk(env, warp, at, lane, bulk);
                }
                Flow::Next
            }
            Kind::TensormapReplace { address, space, field, ordinal, value } => {
                for lane in bits(at.lanes) {
                    let value = self.scalar(env, warp, at, *value, lane);
                    self.change_map(env, warp, at, lane, *address, *space, |map| {
                        map.replace(*field, *ordinal, value)
                    });
                }
                Flow::Next
            }
            Kind::TensormapPublish { dst, src, strength } => {
                if let Some(wait) = self.gathered(env, warp, at, true) {
                    return Ok(wait);
                }
                self.publish_map(env, warp, at, *dst, *src, *strength);
                Flow::Next
            }
            _ => Flow::Next,
        })
    }

    fn bulk_wait(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, pending: u32, read: bool) -> Flow {
        let mine = |issuer: &Issuer| {
            issuer.block == at.block
                && issuer.warp == warp.index
                && at.lanes >> issuer.lane & 1 == 1
                && issuer.group <= warp.bulk[issuer.lane as usize].committed.saturating_sub(pending)
        };
        let busy = self.asyncs.iter().any(|work| match &work.work {
            Work::StoreRead { issuer, .. } => mine(issuer),
            Work::StoreWrite { issuer, .. } => !read && mine(issuer),
            _ => false,
        }) || (!read && self.reductions.iter().any(|reduction| mine(&reduction.issuer)));
        if busy {
            return Flow::Wait(Wait::Bulk { pending, read });
        }
        let rank = self.blocks[at.block].rank;
        for lane in bits(at.lanes) {
            let done = warp.bulk[lane as usize].committed.saturating_sub(pending);
            warp.bulk_read[lane as usize] = warp.bulk_read[lane as usize].max(done);
            if env.options.check {
                let slot = self.slot(rank, warp.index, Stream::BulkRead, env);
                warp.clock.learn(1 << lane, slot, 1 << lane, done, true);
                if !read {
                    let slot = self.slot(rank, warp.index, Stream::BulkWrite, env);
                    warp.clock.learn(1 << lane, slot, 1 << lane, done, true);
                }
            }
        }
        Flow::Next
    }

    /// One bulk copy of one lane.
    fn bulk(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, lane: u32, bulk: &Bulk) {
        match bulk {
            Bulk::Load { dst, dst_space, src, bytes, mbarrier, multicast } => {
                let bytes = low(self.scalar(env, warp, at, *bytes, lane));
                let src = self.addresses(env, warp, at, *src, Space::Global)[lane as usize];
                let dst = self.shared_addresses(env, warp, at, *dst, *dst_space)[lane as usize];
                if !self.bulk_size(env, warp, at, lane, bytes) {
                    return;
                }
                self.check_unit(env, warp, at, lane, src, 16, "global");
                self.check_unit(env, warp, at, lane, u64::from(dst), 16, "shared");
                let runs = vec![Run { shared: dst, global: Some(src), bytes }];
                self.bulk_load(
                    env,
                    warp,
                    at,
                    lane,
                    dst,
                    (bytes, bytes),
                    runs,
                    (*mbarrier, *dst_space),
                    *multicast,
                    Fill::default(),
                );
            }
            Bulk::TensorLoad { dst, dst_space, map, coordinates, mbarrier, multicast, mode } => {
                let Some(map) = self.tensor_map(env, warp, at, lane, *map) else { return };
                let dst = self.shared_addresses(env, warp, at, *dst, *dst_space)[lane as usize];
                self.check_unit(env, warp, at, lane, u64::from(dst), 128, "shared");
                let coordinates = self.coordinates(env, warp, at, lane, coordinates);
                let Some(runs) = self.box_runs(env, warp, at, lane, &map, &coordinates, mode, dst) else {
                    return;
                };
                let Some(bytes) = self.box_bytes(env, warp, at, lane, &map) else { return };
                let fill = Fill {
                    outside: map.fill_bits(),
                    size: map.data_type().bytes() as usize,
                    rounds: map.element_type() == Type::Tf32,
                };
                self.bulk_load(
                    env,
                    warp,
                    at,
                    lane,
                    dst,
                    bytes,
                    runs,
                    (*mbarrier, *dst_space),
                    *multicast,
                    fill,
                );
            }
            Bulk::Push { dst, src, bytes, mbarrier, combine } => {
                let bytes = low(self.scalar(env, warp, at, *bytes, lane));
                if !self.bulk_size(env, warp, at, lane, bytes) {
                    return;
                }
                self.push(env, warp, at, lane, *dst, *src, bytes, *mbarrier, combine.map(Reduce::plain));
            }
            Bulk::Element { dst, src, ty, mbarrier, combine } => {
                self.element(env, warp, at, lane, *dst, src, *ty, *mbarrier, *combine);
            }
            Bulk::Store { dst, src, bytes, combine, mask } => {
                let bytes = low(self.scalar(env, warp, at, *bytes, lane));
                let dst = self.addresses(env, warp, at, *dst, Space::Global)[lane as usize];
                let src = self.shared_addresses(env, warp, at, *src, Space::SharedCta)[lane as usize];
                if !self.bulk_size(env, warp, at, lane, bytes) {
                    return;
                }
                self.check_unit(env, warp, at, lane, dst, 16, "global");
                self.check_unit(env, warp, at, lane, u64::from(src), 16, "shared");
                let mask = mask.map_or(u64::MAX, |mask| self.scalar(env, warp, at, mask, lane));
                let runs = if mask == u64::MAX {
                    vec![Run { shared: src, global: Some(dst), bytes }]
                } else {
                    // One bit for each byte of every 16.
                    (0..bytes)
                        .filter(|i| mask >> (i % 16) & 1 == 1)
                        .map(|i| Run { shared: src + i, global: Some(dst + u64::from(i)), bytes: 1 })
                        .collect()
                };
                self.bulk_store(env, warp, at, lane, src, (bytes, bytes), runs, combine.map(Reduce::plain));
            }
            Bulk::TensorStore { map, coordinates, src, combine, mode } => {
                let Some(map) = self.tensor_map(env, warp, at, lane, *map) else { return };
                let src = self.shared_addresses(env, warp, at, *src, Space::SharedCta)[lane as usize];
                self.check_unit(env, warp, at, lane, u64::from(src), 128, "shared");
                let coordinates = self.coordinates(env, warp, at, lane, coordinates);
                if let Some(bad) = coordinates.iter().find(|&&coordinate| coordinate < 0) {
                    let message = format!(
                        "stores a box at the coordinate {bad}: a TMA store must not start before the tensor"
                    );
                    self.report(
                        env,
                        FindingKind::InvalidInstruction,
                        Where::thread(at, warp, lane),
                        None,
                        message,
                        None,
                    );
                    return;
                }
                let Some(runs) =
                    self.box_runs(env, warp, at, lane, &map.for_store(), &coordinates, mode, src)
                else {
                    return;
                };
                let Some(bytes) = self.box_bytes(env, warp, at, lane, &map) else { return };
                let combine = match combine {
                    None => None,
                    Some(combine) => match reduction(*combine, map.element_type()) {
                        Some(ty) => {
                            let flush = matches!(map.data_type(), DataType::F32Ftz | DataType::Tf32Ftz);
                            Some(Reduce { combine: *combine, ty, flush })
                        }
                        None => {
                            let message =
                                format!("TMA has no reduction {combine:?} of {}", map.element_type());
                            self.invalid(env, warp, at, 1 << lane, &message);
                            return;
                        }
                    },
                };
                self.bulk_store(env, warp, at, lane, src, bytes, runs, combine);
            }
            Bulk::Commit | Bulk::Wait { .. } => {}
        }
    }

    fn coordinates(&self, env: &Env<'_>, warp: &Warp, at: At, lane: u32, sources: &[Src]) -> Vec<i32> {
        sources.iter().map(|&src| low(self.scalar(env, warp, at, src, lane)).cast_signed()).collect()
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of the instruction")]
    fn box_runs(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        map: &TensorMap,
        coordinates: &[i32],
        mode: &TensorMode,
        shared: u32,
    ) -> Option<Vec<Run>> {
        let first = i64::from(coordinates.first().copied().unwrap_or(0)) * i64::from(map.data_type().bytes());
        if first % 16 != 0 {
            let message = format!(
                "the innermost coordinate is {first} bytes into the tensor; TMA needs a multiple of 16"
            );
            self.report(
                env,
                FindingKind::InvalidInstruction,
                Where::thread(at, warp, lane),
                None,
                message,
                None,
            );
            return None;
        }
        let runs = match mode {
            TensorMode::Tile => map.tile(coordinates, shared),
            TensorMode::Im2col(offsets) => {
                let offsets: Vec<u16> = offsets
                    .iter()
                    .map(|&src| u16::try_from(self.scalar(env, warp, at, src, lane) & 0xFFFF).unwrap_or(0))
                    .collect();
                map.im2col(coordinates, &offsets, shared)
            }
        };
        match runs {
            Ok(runs) => Some(runs),
            Err(error) => {
                self.report(
                    env,
                    FindingKind::InvalidInstruction,
                    Where::thread(at, warp, lane),
                    None,
                    error.to_string(),
                    None,
                );
                None
            }
        }
    }

    /// Bytes that a copy moves, and those of shared memory that it reaches over.
    fn box_bytes(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        map: &TensorMap,
    ) -> Option<(u32, u32)> {
        match map.box_bytes().and_then(|bytes| Ok((bytes, map.shared_bytes()?))) {
            Ok(sizes) => Some(sizes),
            Err(error) => {
                self.invalid(env, warp, at, 1 << lane, &error.to_string());
                None
            }
        }
    }

    /// Sizes of bulk copies are multiples of 16.
    fn bulk_size(&mut self, env: &Env<'_>, warp: &Warp, at: At, lane: u32, bytes: u32) -> bool {
        if !bytes.is_multiple_of(16) {
            let message = format!("copies {bytes} bytes; the size of a bulk copy is a multiple of 16");
            self.report(env, FindingKind::Misaligned, Where::thread(at, warp, lane), None, message, None);
            return false;
        }
        bytes > 0
    }

    /// A copy from global to shared memory that completes on mbarriers.
    #[allow(clippy::too_many_arguments, reason = "one copy")]
    fn bulk_load(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        dst: u32,
        (bytes, reach): (u32, u32),
        mut runs: Vec<Run>,
        mbarrier: (Address, Space),
        multicast: Option<Src>,
        fill: Fill,
    ) {
        let (own, offset) = location(dst);
        let (_, mbarrier) =
            location(self.shared_addresses(env, warp, at, mbarrier.0, mbarrier.1)[lane as usize]);
        let blocks: Vec<usize> = match multicast {
            None => vec![own],
            Some(mask) => {
                let mask = self.scalar(env, warp, at, mask, lane);
                (0..16).filter(|&rank| mask >> rank & 1 == 1).collect()
            }
        };
        if let Some(rank) = blocks.iter().find(|&&rank| rank >= self.blocks.len()) {
            let message = format!("copies to block {rank} of the cluster, which has {}", self.blocks.len());
            self.report(env, FindingKind::OutOfBounds, Where::thread(at, warp, lane), None, message, None);
            return;
        }
        let from = Where::thread(at, warp, lane);
        self.check_sources(env, warp, at, lane, &mut runs);
        let mut targets = Vec::new();
        for rank in blocks {
            let address = offset | index(rank) << window::BLOCK_SHIFT;
            let place = self.shared_place_of_copy(
                env,
                warp,
                at,
                Space::SharedCluster,
                lane,
                address,
                reach as usize,
                "copies to",
            );
            if place.is_none() || !self.copy_target(env, warp, at, lane, rank, mbarrier) {
                return;
            }
            let Some((epoch, phase)) = self.stamp(rank, mbarrier) else { return };
            if env.options.check {
                for (from, bytes) in pieces(offset, bytes, reach, &runs) {
                    self.async_shared(env, warp, at, lane, rank, from, bytes, AccessKind::Write, epoch);
                }
                self.add_visitor(rank, epoch, at.op);
            }
            targets.push(Target { block: rank, mbarrier, phase });
        }
        let ranges: Vec<(u64, u32)> = merged(&runs);
        if env.options.count {
            let total: u64 = ranges.iter().map(|&(_, bytes)| u64::from(bytes)).sum();
            let sectors = ranges
                .iter()
                .map(|&(address, bytes)| (address + u64::from(bytes)).div_ceil(32) - address / 32)
                .sum();
            self.sites.copied(at.op, u64::from(bytes) * targets.len() as u64, total, sectors);
        }
        if env.options.check
            && let Some(target) = targets.first()
            && let Some((epoch, _)) = self.stamp(target.block, target.mbarrier)
        {
            self.log_ranges(env, warp, at, lane, AccessKind::Read, Proxy::Async, epoch, ranges, None);
        }
        self.start(Work::Load { runs, targets, bytes: u64::from(bytes), fill, from });
    }

    /// Reports parts of a copy that lie in no buffer, and takes them out.
    fn check_sources(&mut self, env: &Env<'_>, warp: &Warp, at: At, lane: u32, runs: &mut [Run]) {
        for run in runs {
            if let Some(address) = run.global
                && env.memory.find(address, run.bytes as usize, warp.hint).is_none()
            {
                self.out_of_bounds_global(env, warp, at, lane, address, run.bytes as usize, "copies");
                run.global = None;
            }
        }
    }

    /// Whether an mbarrier can be the target of a copy.
    fn copy_target(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        block: usize,
        mbarrier: u32,
    ) -> bool {
        let address = mbarrier | index(block) << window::BLOCK_SHIFT;
        self.shared_place_of_copy(
            env,
            warp,
            at,
            Space::SharedCluster,
            lane,
            address,
            8,
            "uses the mbarrier in",
        )
        .is_some()
            && self.live_mbarrier(env, warp, at, lane, block, mbarrier)
    }

    /// Checks and records the access of a copy to shared memory.
    #[allow(clippy::too_many_arguments, reason = "one access")]
    pub(crate) fn async_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        block: usize,
        offset: u32,
        bytes: u32,
        kind: AccessKind,
        epoch: Epoch,
    ) {
        let access = Checked {
            epoch,
            issuer: self.agent(at.block, warp.index, lane, env),
            know: warp.clock.view(lane),
            pc: at.op,
            kind,
            strong: (kind == AccessKind::Atomic).then_some(Scope::Cluster),
            proxy: Proxy::Async,
        };
        let range = offset as usize..offset as usize + bytes as usize;
        let Some(shadow) = &mut self.blocks[block].shadow else { return };
        let uninitialised =
            if kind == AccessKind::Read { shadow.first_uninitialised(range.clone()) } else { None };
        let conflict = shadow.access(range, &access);
        if let Some(first) = uninitialised {
            self.uninitialised(env, warp, at, lane, "shared", first as u64, None);
        }
        if let Some(conflict) = conflict {
            self.conflict_shared(env, &conflict, block, Where::thread(at, warp, lane));
        }
    }

    /// A copy from shared to global memory that completes as a group.
    #[allow(clippy::too_many_arguments, reason = "one copy")]
    fn bulk_store(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        src: u32,
        (bytes, reach): (u32, u32),
        mut runs: Vec<Run>,
        combine: Option<Reduce>,
    ) {
        let Some((block, offset)) = self.shared_place_of_copy(
            env,
            warp,
            at,
            Space::SharedCta,
            lane,
            src,
            reach as usize,
            "copies from",
        ) else {
            return;
        };
        self.check_sources(env, warp, at, lane, &mut runs);
        let group = warp.bulk[lane as usize].committed + 1;
        warp.bulk[lane as usize].open += 1;
        let ranges = merged(&runs);
        if env.options.count {
            let total: u64 = ranges.iter().map(|&(_, bytes)| u64::from(bytes)).sum();
            let sectors = ranges
                .iter()
                .map(|&(address, bytes)| (address + u64::from(bytes)).div_ceil(32) - address / 32)
                .sum();
            self.sites.copied(at.op, u64::from(bytes), total, sectors);
        }
        if env.options.check {
            let epoch = |agent: Agent| Epoch { agent, clock: group };
            let reads = epoch(self.stream_agent(at.block, warp.index, lane, Stream::BulkRead, env));
            for (from, bytes) in pieces(offset, bytes, reach, &runs) {
                self.async_shared(env, warp, at, lane, block, from, bytes, AccessKind::Read, reads);
            }
            let writes = epoch(self.stream_agent(at.block, warp.index, lane, Stream::BulkWrite, env));
            let (kind, scope) = match combine {
                Some(_) => (AccessKind::Atomic, Some(Scope::Gpu)),
                None => (AccessKind::Write, None),
            };
            self.log_ranges(env, warp, at, lane, kind, Proxy::Async, writes, ranges, scope);
        }
        let issuer = Issuer { block: at.block, warp: warp.index, lane, group };
        self.start(Work::StoreRead { issuer, runs, combine });
    }

    #[allow(clippy::too_many_arguments, reason = "one copy")]
    fn push(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        dst: Address,
        src: Address,
        bytes: u32,
        mbarrier: Address,
        combine: Option<Reduce>,
    ) {
        let dst = self.shared_addresses(env, warp, at, dst, Space::SharedCluster)[lane as usize];
        let src = self.shared_addresses(env, warp, at, src, Space::SharedCta)[lane as usize];
        let (target, mbarrier) =
            location(self.shared_addresses(env, warp, at, mbarrier, Space::SharedCluster)[lane as usize]);
        self.check_unit(env, warp, at, lane, u64::from(dst), 16, "shared");
        self.check_unit(env, warp, at, lane, u64::from(src), 16, "shared");
        let size = bytes as usize;
        let to = self.shared_place_of_copy(env, warp, at, Space::SharedCluster, lane, dst, size, "copies to");
        let from = self.shared_place_of_copy(env, warp, at, Space::SharedCta, lane, src, size, "copies from");
        let (Some(to), Some(from)) = (to, from) else { return };
        if target >= self.blocks.len() || !self.copy_target(env, warp, at, lane, target, mbarrier) {
            return;
        }
        let Some((epoch, phase)) = self.stamp(target, mbarrier) else { return };
        if env.options.check {
            self.async_shared(env, warp, at, lane, from.0, from.1, bytes, AccessKind::Read, epoch);
            self.async_shared(env, warp, at, lane, to.0, to.1, bytes, AccessKind::Write, epoch);
            self.add_visitor(to.0, epoch, at.op);
        }
        let target = Target { block: target, mbarrier, phase };
        let at = Where::thread(at, warp, lane);
        self.start(Work::Push { block: from.0, src: from.1, bytes, dst: to, target, combine, from: at });
    }

    /// `st.async` and `red.async` of one lane.
    #[allow(clippy::too_many_arguments, reason = "the operands of the instruction")]
    fn element(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        dst: Address,
        src: &[Src],
        ty: Type,
        mbarrier: Address,
        combine: Option<Combine>,
    ) {
        let size = ty.bits().div_ceil(8) as usize;
        let mut data = Vec::new();
        for &src in src {
            data.extend_from_slice(&self.scalar(env, warp, at, src, lane).to_le_bytes()[..size.min(8)]);
        }
        let dst = self.shared_addresses(env, warp, at, dst, Space::SharedCluster)[lane as usize];
        let (target, mbarrier) =
            location(self.shared_addresses(env, warp, at, mbarrier, Space::SharedCluster)[lane as usize]);
        let Some(to) = self.shared_place_of_copy(
            env,
            warp,
            at,
            Space::SharedCluster,
            lane,
            dst,
            data.len(),
            "stores to",
        ) else {
            return;
        };
        if target >= self.blocks.len() || !self.copy_target(env, warp, at, lane, target, mbarrier) {
            return;
        }
        let Some((epoch, phase)) = self.stamp(target, mbarrier) else { return };
        if env.options.check {
            // Its completion has release semantics (PTX ISA, `st.async`, `red.async`): who waits knows what the thread did before.
            let know = warp.clock.release(1 << lane);
            self.know_of(target, mbarrier, &know);
            let kind = if combine.is_some() { AccessKind::Atomic } else { AccessKind::Write };
            self.async_shared(env, warp, at, lane, to.0, to.1, index(data.len()), kind, epoch);
            self.add_visitor(to.0, epoch, at.op);
        }
        let target = Target { block: target, mbarrier, phase };
        let from = Where::thread(at, warp, lane);
        let combine = combine.map(|combine| Reduce::plain((combine, ty)));
        self.start(Work::Element { dst: to, data, target, combine, from });
    }

    /// Notes an access of a copy to global memory for the end of the round.
    #[allow(clippy::too_many_arguments, reason = "one access")]
    pub(crate) fn log_ranges(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        kind: AccessKind,
        proxy: Proxy,
        epoch: Epoch,
        ranges: Vec<(u64, u32)>,
        strong: Option<Scope>,
    ) {
        let issuer = self.agent(at.block, warp.index, lane, env);
        let addresses = Addresses::Ranges(ranges.into_boxed_slice());
        self.log.push(Logged {
            op: at.op,
            block: at.block,
            warp: warp.index,
            lanes: 1 << lane,
            parts: addresses.parts(1 << lane),
            addresses,
            bytes: 0,
            kind,
            strong,
            proxy,
            epoch,
            issuer,
            views: std::iter::once((1 << lane, warp.clock.view(lane).clone())).collect(),
        });
    }
}

/// The type that a reduction of TMA computes with, if there is such a reduction (measured on an H200).
fn reduction(combine: Combine, element: Type) -> Option<Type> {
    use Combine::{Add, And, Dec, Inc, Max, Min, Or, Xor};
    match (element, combine) {
        (Type::U32, And | Or | Xor) | (Type::S32, And | Or | Xor) => Some(Type::B32),
        (Type::U64, And | Or | Xor) => Some(Type::B64),
        (Type::U32, Add | Min | Max | Inc | Dec)
        | (Type::S32 | Type::U64 | Type::F16 | Type::Bf16, Add | Min | Max)
        | (Type::S64, Min | Max)
        | (Type::F32 | Type::F64, Add) => Some(element),
        (Type::Tf32, Add) => Some(Type::F32),
        _ => None,
    }
}

/// The parts of shared memory that a copy touches: all of it in one piece, or row by row if rows lie apart.
fn pieces(offset: u32, bytes: u32, reach: u32, runs: &[Run]) -> Vec<(u32, u32)> {
    if bytes == reach {
        return vec![(offset, bytes)];
    }
    let inside = (1 << window::BLOCK_SHIFT) - 1;
    runs.iter().map(|run| (run.shared & inside, run.bytes)).collect()
}

/// The parts of a copy that lie in global memory, neighbours united.
fn merged(runs: &[Run]) -> Vec<(u64, u32)> {
    let mut pieces: Vec<(u64, u32)> = runs.iter().filter_map(|run| Some((run.global?, run.bytes))).collect();
    pieces.sort_unstable();
    let mut ranges: Vec<(u64, u32)> = Vec::new();
    for (address, bytes) in pieces {
        match ranges.last_mut() {
            Some((from, len)) if *from + u64::from(*len) == address => *len += bytes,
            _ => ranges.push((address, bytes)),
        }
    }
    ranges
}
