//! Mbarriers: objects in shared memory that count arrivals and bytes.
//!
//! The state lives beside the memory; the eight bytes hold a token, so that an ordinary store over a barrier is noticed. For the checker
//! an mbarrier is an agent whose clock is the number of completed phases: data that a bulk copy brings is stamped with the barrier and the
//! phase it completes in, and whoever has seen that phase complete may use it.

use std::sync::Arc;

use crate::check::{Agent, Epoch, FindingKind, Kind as AccessKind, Knowledge};
use crate::number::Lanes;
use crate::program::{Address, Mbarrier, Order, Scope, Space, Strength};

use super::access::{ends_of_runs, low};
use super::cluster::{Cluster, Env, index, rank_of};
use super::exec::{At, Flow, bits, set, set_predicate};
use super::report::Where;
use super::sync::{Place, shared_location};
use super::warp::{Wait, Warp};
use crate::memory::window;

/// Most arrivals, and most bytes either way, that a barrier can count (PTX ISA, "Contents of the mbarrier object").
const MOST: i64 = (1 << 20) - 1;

/// Token in the memory of a barrier.
const TOKEN: u64 = 0x6D62_6172_7269_6572;

/// An mbarrier.
#[derive(Clone, Debug)]
pub(crate) struct Mbar {
    /// Arrivals that a phase needs.
    expected: i64,
    /// Arrivals still missing in this phase.
    pub(crate) pending: i64,
    /// Bytes still missing in this phase; negative when copies were faster than the expectation.
    pub(crate) bytes: i64,
    /// Completed phases.
    pub(crate) phase: u32,
    /// What all arrivals so far knew.
    gathered: Knowledge,
    /// The same at the completion of the last phase.
    published: Arc<Knowledge>,
    /// Number for the checker.
    slot: u16,
    /// Whether the initialisation has been made visible to other blocks.
    fenced: bool,
    /// The phase of the cluster barrier that tells others of the initialisation, even if the arrival was relaxed: the fence is enough.
    met: Option<u64>,
    /// Warp and lane that initialised it, in its block.
    owner: (u32, u32),
    /// Number of the op that initialised it.
    pub(crate) op: u32,
}

/// The state that `arrive` returns: the phase it counts in, and what is pending.
fn state_of(phase: u32, pending: i64) -> u64 {
    u64::from(phase) << 32 | (pending.clamp(0, MOST)).cast_unsigned()
}

/// `mbarrier.pending_count`
pub(crate) fn pending_of_state(state: u64) -> u64 {
    state & MOST.cast_unsigned()
}

impl Cluster {
    /// All operations on mbarriers.
    pub(crate) fn mbarrier(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        op: &Mbarrier,
        address: Address,
        space: Space,
    ) -> Flow {
        let addresses = self.shared_addresses(env, warp, at, address, space);
        let mut done = 0;
        let mut states = [0; 32];
        let mut waiting = None;
        let mut acquires = 0;
        let mut released = 0;
        let looked = ends_of_runs(at.lanes, |lane| u64::from(addresses[lane]));
        for lane in bits(at.lanes) {
            let address = addresses[lane as usize];
            let Some((block, offset)) = self.shared_place(
                env,
                warp,
                at,
                Space::SharedCluster,
                lane,
                address,
                8,
                "uses the mbarrier in",
            ) else {
                done |= 1 << lane;
                continue;
            };
            match op {
                Mbarrier::Init(count) => {
                    let count = self.scalar(env, warp, at, *count, lane);
                    self.init(env, warp, at, lane, block, offset, count);
                }
                Mbarrier::Inval => {
                    if self.live_mbarrier(env, warp, at, lane, block, offset) {
                        self.blocks[block].mbarriers.remove(&offset);
                        let from = offset as usize;
                        self.blocks[block].shared[from..from + 8].fill(crate::memory::POISON);
                    }
                }
                Mbarrier::Arrive { count, expect_tx, drop, no_complete, strength, .. } => {
                    if !self.live_mbarrier(env, warp, at, lane, block, offset) {
                        continue;
                    }
                    let count = count.map_or(1, |count| self.scalar(env, warp, at, count, lane));
                    let expect = expect_tx.map(|bytes| self.scalar(env, warp, at, bytes, lane));
                    if let Some(bytes) = expect {
                        self.expect(env, warp, at, lane, block, offset, bytes);
                    }
                    if let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) {
                        states[lane as usize] = state_of(mbar.phase, mbar.pending);
                        if *drop {
                            mbar.expected -= count.cast_signed();
                        }
                        if *no_complete && mbar.pending <= count.cast_signed() {
                            let message = "mbarrier.arrive.noComplete completes the phase".to_owned();
                            self.report(
                                env,
                                FindingKind::BarrierMisuse,
                                Where::thread(at, warp, lane),
                                None,
                                message,
                                None,
                            );
                        }
                    }
                    // Lanes that arrive at the same barrier release together.
                    let fellows =
                        if released >> lane & 1 == 1 { 0 } else { same_address(at.lanes, &addresses, lane) };
                    released |= fellows;
                    let fellows = if strength.order == Order::Relaxed { 0 } else { fellows };
                    self.arrive(env, warp, at, lane, block, offset, count, fellows);
                }
                Mbarrier::ExpectTx(bytes) => {
                    let bytes = self.scalar(env, warp, at, *bytes, lane);
                    if self.live_mbarrier(env, warp, at, lane, block, offset) {
                        self.expect(env, warp, at, lane, block, offset, bytes);
                        self.settle(block, offset);
                    }
                }
                Mbarrier::CompleteTx(bytes) => {
                    let bytes = self.scalar(env, warp, at, *bytes, lane);
                    if self.live_mbarrier(env, warp, at, lane, block, offset) {
                        if let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) {
                            mbar.bytes -= bytes.cast_signed();
                        }
                        self.settle(block, offset);
                    }
                }
                Mbarrier::Wait { phase, parity, suspend, strength, .. } => {
                    if block != at.block {
                        let message =
                            "waits on an mbarrier of another block; only the own block's can be waited for"
                                .to_owned();
                        self.report(
                            env,
                            FindingKind::BarrierMisuse,
                            Where::thread(at, warp, lane),
                            None,
                            message,
                            None,
                        );
                        continue;
                    }
                    // Who polls needs to be looked at once, and of lanes that do the same, two.
                    if warp.polls != (block, offset, at.lanes)
                        && looked >> lane & 1 == 1
                        && !self.live_mbarrier(env, warp, at, lane, block, offset)
                    {
                        done |= 1 << lane;
                        continue;
                    }
                    let phase = self.scalar(env, warp, at, *phase, lane);
                    let Some(mbar) = self.blocks[block].mbarriers.get(&offset) else { continue };
                    let complete = if *parity {
                        u64::from(mbar.phase & 1) != phase & 1
                    } else {
                        // Only the parity is compared: a state two phases old says no.
                        u64::from(mbar.phase & 1) != phase >> 32 & 1
                    };
                    if complete {
                        done |= 1 << lane;
                        acquires |= u32::from(strength.order != Order::Relaxed) << lane;
                    } else if *suspend {
                        waiting = Some((index(block), offset));
                    }
                }
            }
        }
        if env.options.check {
            self.acquire_phases(warp, at, &addresses, acquires);
        }
        match op {
            Mbarrier::Arrive { state: Some(dst), .. } => set(warp, at, *dst, &states),
            Mbarrier::Wait { done: dst, .. } => {
                if done == 0
                    && let Some((block, offset)) = waiting
                {
                    return Flow::Wait(Wait::Mbarrier { block, offset });
                }
                set_predicate(warp, at, Some(*dst), done);
                warp.polls = (usize::MAX, 0, 0);
                if done != at.lanes {
                    let first = at.lanes.trailing_zeros() as usize;
                    let (block, offset) = location(addresses[first]);
                    if done == 0 && bits(at.lanes).all(|lane| addresses[lane as usize] == addresses[first]) {
                        warp.polls = (block, offset, at.lanes);
                    }
                    warp.polled = Some(at.op);
                    return Flow::Yield;
                }
            }
            _ => {}
        }
        Flow::Next
    }

    /// 32-bit addresses in the shared window, whatever space an operand is written in.
    pub(crate) fn shared_addresses(
        &self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        address: Address,
        space: Space,
    ) -> [u32; 32] {
        let lanes: Lanes = self.addresses(env, warp, at, address, space);
        let base = if space == Space::Generic { window::SHARED } else { 0 };
        lanes.map(|address| {
            let offset = address.wrapping_sub(base);
            if offset >> 32 == 0 { low(offset) } else { u32::MAX }
        })
    }

    #[allow(clippy::too_many_arguments, reason = "one operation of a lane")]
    fn init(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        block: usize,
        offset: u32,
        count: u64,
    ) {
        if count == 0 || count > MOST.cast_unsigned() {
            let message =
                format!("initialises an mbarrier with a count of {count}; 1 to {MOST} are possible");
            self.report(env, FindingKind::BarrierMisuse, Where::thread(at, warp, lane), None, message, None);
        }
        if self.blocks[block].mbarriers.contains_key(&offset) && self.token_is_there(block, offset) {
            let message =
                "initialises an mbarrier that is already one; mbarrier.inval must come first".to_owned();
            self.report(env, FindingKind::BarrierMisuse, Where::thread(at, warp, lane), None, message, None);
        }
        if env.options.check {
            let strength = Strength { order: Order::Weak, scope: Scope::Cta };
            self.check_shared(env, warp, at, lane, block, offset, 8, AccessKind::Write, strength, None);
        }
        let slot = match self.blocks[block].mbarriers.get(&offset) {
            Some(old) => old.slot,
            None => self.mbarrier_slot(),
        };
        let phase = self.blocks[block].mbarriers.get(&offset).map_or(0, |old| old.phase.next_multiple_of(2));
        let count = count.cast_signed();
        let mbar = Mbar {
            expected: count,
            pending: count,
            bytes: 0,
            phase,
            gathered: Knowledge::new(self.id),
            published: Arc::new(Knowledge::new(self.id)),
            slot,
            fenced: false,
            met: None,
            owner: (warp.index, lane),
            op: at.op,
        };
        let state = &mut self.blocks[block];
        state.mbarriers.insert(offset, mbar);
        state.shared[offset as usize..offset as usize + 8].copy_from_slice(&TOKEN.to_le_bytes());
        self.progress += 1;
    }

    fn token_is_there(&self, block: usize, offset: u32) -> bool {
        self.blocks[block].shared[offset as usize..offset as usize + 8] == TOKEN.to_le_bytes()
    }

    /// Whether there is a barrier at an offset that a thread may use; reports what is wrong otherwise.
    pub(crate) fn live_mbarrier(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        block: usize,
        offset: u32,
    ) -> bool {
        let message = match self.blocks[block].mbarriers.get(&offset) {
            None => "uses an mbarrier that has not been initialised".to_owned(),
            Some(_) if !self.token_is_there(block, offset) => {
                "uses an mbarrier whose memory has been overwritten by other data".to_owned()
            }
            Some(mbar) => {
                if env.options.check && block != at.block && !mbar.fenced {
                    let message =
                        "uses an mbarrier of another block whose initialisation has not been published"
                            .to_owned();
                    let second = Some(Where::op(mbar.op, block, mbar.owner));
                    self.report(env, FindingKind::MissingProxyFence, Where::thread(at, warp, lane), second, message,
                        Some("execute fence.mbarrier_init.release.cluster after mbarrier.init and before the cluster barrier"));
                } else if env.options.check
                    && mbar.met.is_none_or(|phase| warp.cluster_acquired[lane as usize] < phase)
                {
                    // Arrivals and waits read the barrier: its initialisation must come before.
                    let strength = Strength { order: Order::Relaxed, scope: Scope::Cluster };
                    self.check_shared(
                        env,
                        warp,
                        at,
                        lane,
                        block,
                        offset,
                        8,
                        AccessKind::Atomic,
                        strength,
                        None,
                    );
                }
                return true;
            }
        };
        self.report(env, FindingKind::BarrierMisuse, Where::thread(at, warp, lane), None, message, None);
        false
    }

    #[allow(clippy::too_many_arguments, reason = "one operation of a lane")]
    fn expect(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        block: usize,
        offset: u32,
        bytes: u64,
    ) {
        let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) else { return };
        mbar.bytes += bytes.cast_signed() & i64::from(u32::MAX);
        if mbar.bytes > MOST {
            let message = format!(
                "expects {} bytes in one phase of an mbarrier; at most {MOST} can be counted",
                mbar.bytes
            );
            self.report(env, FindingKind::WrongExpectTx, Where::thread(at, warp, lane), None, message, None);
        }
    }

    /// Lanes that have seen a phase complete learn what its arrivals knew.
    fn acquire_phases(&self, warp: &mut Warp, at: At, addresses: &[u32; 32], lanes: u32) {
        let mut rest = lanes;
        while rest != 0 {
            let lane = rest.trailing_zeros();
            let same = same_address(rest, addresses, lane);
            rest &= !same;
            let (_, offset) = location(addresses[lane as usize]);
            if let Some(mbar) = self.blocks[at.block].mbarriers.get(&offset) {
                warp.clock.acquire(same, &mbar.published);
                warp.clock.learn(same, mbar.slot, u32::MAX, mbar.phase, true);
            }
        }
    }

    /// Arrivals of a thread, which releases what the lanes `releases` know.
    #[allow(clippy::too_many_arguments, reason = "one operation of a lane")]
    pub(crate) fn arrive(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        block: usize,
        offset: u32,
        count: u64,
        releases: u32,
    ) {
        let know = (env.options.check && releases != 0).then(|| warp.clock.release(releases));
        let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) else { return };
        mbar.pending -= count.cast_signed();
        if let Some(know) = know {
            mbar.gathered.join(&know);
        }
        if mbar.pending < 0 {
            let message = format!(
                "arrives at an mbarrier more often than a phase counts: {} too many of {}",
                -mbar.pending, mbar.expected
            );
            let second = Some(Where::op(mbar.op, block, mbar.owner));
            mbar.pending = 0;
            self.report(
                env,
                FindingKind::BarrierMisuse,
                Where::thread(at, warp, lane),
                second,
                message,
                None,
            );
        }
        self.settle(block, offset);
    }

    /// An arrival without a thread, as `cp.async.mbarrier.arrive` makes when the copies are done.
    pub(crate) fn arrive_async(&mut self, block: usize, offset: u32, know: Option<&Knowledge>) {
        if let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) {
            mbar.pending -= 1;
            if let Some(know) = know {
                mbar.gathered.join(know);
            }
        }
        self.settle(block, offset);
    }

    /// Who waits for the phase that is running will know this.
    pub(crate) fn know_of(&mut self, block: usize, offset: u32, know: &Knowledge) {
        if let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) {
            mbar.gathered.join(know);
        }
    }

    /// One more arrival is pending: `cp.async.mbarrier.arrive` without `.noinc`.
    pub(crate) fn one_more(&mut self, block: usize, offset: u32) {
        if let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) {
            mbar.pending += 1;
        }
    }

    /// Completes the phase if everything has come.
    pub(crate) fn settle(&mut self, block: usize, offset: u32) {
        self.progress += 1;
        let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) else { return };
        if mbar.pending != 0 || mbar.bytes != 0 {
            return;
        }
        mbar.phase += 1;
        mbar.pending = mbar.expected;
        mbar.published = Arc::new(mbar.gathered.clone());
        let block = index(block);
        self.wake_where(false, |_, _, path| path.wait == Wait::Mbarrier { block, offset });
    }

    /// The stamp of data that a copy brings for the phase that is running, and that phase.
    pub(crate) fn stamp(&self, block: usize, offset: u32) -> Option<(Epoch, u32)> {
        let mbar = self.blocks[block].mbarriers.get(&offset)?;
        let agent =
            Agent { cluster: self.id, slot: mbar.slot, block: rank_of(self.blocks[block].rank), lane: 0 };
        Some((Epoch { agent, clock: mbar.phase + 1 }, mbar.phase))
    }

    /// Bytes of a copy that has been issued in phase `phase` have come.
    pub(crate) fn complete_bytes(
        &mut self,
        env: &Env<'_>,
        block: usize,
        offset: u32,
        phase: u32,
        bytes: u64,
        from: Where,
    ) {
        let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) else {
            let message = "a copy completes on an mbarrier that does not exist any more".to_owned();
            self.report(env, FindingKind::BarrierMisuse, from, None, message, None);
            return;
        };
        let second = Some(Where::op(mbar.op, block, mbar.owner));
        if mbar.phase != phase {
            let message = format!(
                "{bytes} bytes arrive after the phase of the mbarrier they belong to is complete: more bytes are copied than expect_tx announced"
            );
            self.report(env, FindingKind::WrongExpectTx, from, second, message, None);
        }
        let Some(mbar) = self.blocks[block].mbarriers.get_mut(&offset) else { return };
        mbar.bytes -= bytes.cast_signed();
        if mbar.bytes < 0 && mbar.pending == 0 {
            let message =
                format!("{} more bytes are copied than expect_tx announced for this phase", -mbar.bytes);
            mbar.bytes = 0;
            self.report(env, FindingKind::WrongExpectTx, from, second, message, None);
        } else if mbar.bytes < -MOST {
            let message = "more bytes come without an expect_tx than an mbarrier can count".to_owned();
            self.report(env, FindingKind::WrongExpectTx, from, second, message, None);
        }
        self.settle(block, offset);
    }

    /// A fence has published the barriers that these lanes have initialised.
    pub(crate) fn mbarriers_fenced(&mut self, warp: &Warp, at: At) {
        for mbar in self.blocks[at.block].mbarriers.values_mut() {
            if mbar.owner.0 == warp.index && at.lanes >> mbar.owner.1 & 1 == 1 {
                mbar.fenced = true;
            }
        }
    }

    /// Threads arrive at the cluster barrier: whoever acquires its phase knows of the barriers that they have made and fenced.
    pub(crate) fn mbarriers_met(&mut self, warp: &Warp, at: At, phase: u64) {
        for mbar in self.blocks[at.block].mbarriers.values_mut() {
            if mbar.fenced && mbar.owner.0 == warp.index && at.lanes >> mbar.owner.1 & 1 == 1 {
                mbar.met.get_or_insert(phase);
            }
        }
    }

    /// Lets suspended waits of a warp return without success.
    pub(crate) fn time_out(&mut self, env: &Env<'_>, block: usize, warp: usize) {
        let mut woken = false;
        let state = &mut self.blocks[block].warps[warp];
        for path in 0..state.paths.len() {
            if !matches!(state.paths[path].wait, Wait::Mbarrier { .. }) {
                continue;
            }
            let Some(frame) = state.paths[path].frames.last() else { continue };
            let function = &env.program.functions[frame.function as usize];
            let (registers, predicates, lanes) = (frame.registers, frame.predicates, state.paths[path].lanes);
            let at = At { block, path, lanes, op: 0, registers, predicates, frame: 0 };
            if let Some(crate::program::Op {
                kind: crate::program::Kind::Mbarrier { op: Mbarrier::Wait { done, .. }, .. },
                ..
            }) = function.code.get(state.paths[path].pc as usize)
            {
                set_predicate(state, at, Some(*done), 0);
            }
            state.paths[path].wait = Wait::None;
            state.paths[path].pc += 1;
            woken = true;
        }
        if woken {
            self.wake(index(block), index(warp));
        }
    }
}

/// The lanes that have the same address as one of them.
fn same_address(lanes: u32, addresses: &[u32; 32], lane: u32) -> u32 {
    let address = addresses[lane as usize];
    bits(lanes).filter(|&other| addresses[other as usize] == address).fold(0, |mask, other| mask | 1 << other)
}

/// Where an mbarrier lies, from an address in the shared window.
pub(crate) fn location(address: u32) -> (usize, u32) {
    match shared_location(address) {
        Place::Shared(block, offset) => (block, offset),
        Place::Global(_) => (usize::MAX, 0),
    }
}
