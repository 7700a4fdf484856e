//! Barriers of a block (`bar`, `barrier`) and of a cluster (`barrier.cluster`).

use std::sync::Arc;

use crate::check::{FindingKind, Knowledge};
use crate::program::{BarMode, Kind, Op, Src};

use super::cluster::{Cluster, Env, Stream, index};
use super::exec::{At, Flow, bits, predicate, set, set_predicate};
use super::report::Where;
use super::warp::{Wait, Warp};

/// A named barrier.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bar {
    /// Threads that have arrived.
    arrived: u32,
    /// Threads that are expected; `None` for all of the block that live.
    expected: Option<u32>,
    /// What the threads that have arrived know.
    know: Option<Knowledge>,
    /// Predicates so far: how many held, and how many did not.
    votes: (u32, u32),
    /// Op of the first arrival, for messages.
    pub(crate) first: Option<u32>,
}

impl Bar {
    /// Arrivals and expectation, for the report of a deadlock.
    pub(crate) fn state(&self, live: u32) -> (u32, u32) {
        (self.arrived, self.expected.unwrap_or(live))
    }
}

/// The barrier of the cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterBarrier {
    /// Completed phases.
    pub(crate) phase: u64,
    /// Threads that have arrived in this phase.
    pub(crate) arrived: u32,
    /// What those that released know.
    know: Option<Knowledge>,
    /// What the completed phases published.
    published: Option<Arc<Knowledge>>,
}

impl Cluster {
    /// `bar.{sync,arrive,red}`
    #[allow(clippy::too_many_arguments, reason = "the operands of the instruction")]
    pub(crate) fn bar(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        id: Src,
        threads: Option<Src>,
        mode: BarMode,
        aligned: bool,
    ) -> Flow {
        if let Some(wait) = self.gathered(env, warp, at, aligned) {
            return wait;
        }
        let lane = at.lanes.trailing_zeros();
        let id = self.scalar(env, warp, at, id, lane);
        let threads = threads.map(|threads| self.scalar(env, warp, at, threads, lane));
        let Some(id) = u32::try_from(id).ok().filter(|&id| id < 16) else {
            self.barrier_misuse(env, warp, at, &format!("barrier {id}: a block has barriers 0 to 15"));
            return Flow::Next;
        };
        let most = env.geometry.warps() * 32;
        let expected = match threads {
            None => None,
            Some(threads) if threads % 32 == 0 && threads > 0 && threads <= u64::from(most) => {
                u32::try_from(threads).ok()
            }
            Some(threads) => {
                let text = format!(
                    "barrier {id} for {threads} threads: a multiple of 32 from 32 to {most} is needed, the threads of the block"
                );
                self.barrier_misuse(env, warp, at, &text);
                None
            }
        };
        let bar = &self.blocks[at.block].bars[id as usize];
        if bar.arrived > 0 && bar.expected != expected && (bar.expected.is_some() || expected.is_some()) {
            let live = self.blocks[at.block].live_threads;
            let (there, here) = (bar.expected.unwrap_or(live), expected.unwrap_or(live));
            if there != here {
                let text =
                    format!("barrier {id}: comes with {here} threads, but others have come with {there}");
                self.barrier_misuse(env, warp, at, &text);
            }
        }
        let know = env.options.check.then(|| warp.clock.release(at.lanes));
        let missing = 32 - warp.live.count_ones();
        let bar = &mut self.blocks[at.block].bars[id as usize];
        bar.expected = expected;
        bar.first.get_or_insert(at.op);
        // With a count, a warp counts as a whole: lanes that have exited or never were, too.
        bar.arrived += at.lanes.count_ones();
        if expected.is_some() && at.lanes == warp.live {
            bar.arrived += missing;
        }
        if let Some(know) = know {
            bar.know.get_or_insert_with(|| Knowledge::new(self.id)).join(&know);
        }
        let vote = match mode {
            BarMode::Popc(_, p) | BarMode::And(_, p) | BarMode::Or(_, p) => predicate(warp, at, p) & at.lanes,
            BarMode::Sync | BarMode::Arrive => 0,
        };
        bar.votes.0 += vote.count_ones();
        bar.votes.1 += (at.lanes & !vote).count_ones();
        self.progress += 1;
        let arrives = matches!(mode, BarMode::Arrive);
        // This warp is not in its place while it runs, so it is told itself whether it may go on.
        if self.try_complete(env, at.block, id, Some((warp, at, !arrives))) || arrives {
            Flow::Next
        } else {
            Flow::Wait(Wait::Bar { id })
        }
    }

    /// Completes a barrier if all have come; `last` is the warp that runs, and whether it waits for the barrier.
    fn try_complete(
        &mut self,
        env: &Env<'_>,
        block: usize,
        id: u32,
        last: Option<(&mut Warp, At, bool)>,
    ) -> bool {
        let state = &self.blocks[block];
        let bar = &state.bars[id as usize];
        let expected = bar.expected.unwrap_or(state.live_threads);
        if bar.arrived == 0 || bar.arrived < expected {
            return false;
        }
        if bar.arrived > expected
            && let Some((warp, at, _)) = &last
        {
            let text =
                format!("barrier {id}: {} threads have come, but only {expected} are expected", bar.arrived);
            self.barrier_misuse(env, warp, *at, &text);
        }
        let bar = std::mem::take(&mut self.blocks[block].bars[id as usize]);
        let finish = |warp: &mut Warp, path: usize, lanes: u32| {
            if let Some(know) = &bar.know {
                warp.clock.acquire(lanes, know);
            }
            let Some(frame) = warp.paths[path].frames.last() else { return };
            let function = &env.program.functions[frame.function as usize];
            let (registers, predicates) = (frame.registers, frame.predicates);
            let at = At { block, path, lanes, op: 0, registers, predicates, frame: 0 };
            if let Some(Op { kind: Kind::Bar { mode, .. }, .. }) =
                function.code.get(warp.paths[path].pc as usize)
            {
                let mask = |yes: bool| if yes { u32::MAX } else { 0 };
                match *mode {
                    BarMode::Popc(dst, _) => set(warp, at, dst, &[u64::from(bar.votes.0); 32]),
                    BarMode::And(dst, _) => set_predicate(warp, at, Some(dst), mask(bar.votes.1 == 0)),
                    BarMode::Or(dst, _) => set_predicate(warp, at, Some(dst), mask(bar.votes.0 != 0)),
                    BarMode::Sync | BarMode::Arrive => {}
                }
            }
        };
        if let Some((warp, at, waits)) = last {
            for path in 0..warp.paths.len() {
                if (warp.paths[path].wait == Wait::Bar { id }) && path != at.path {
                    let lanes = warp.paths[path].lanes;
                    finish(warp, path, lanes);
                    warp.paths[path].wait = Wait::None;
                    warp.paths[path].pc += 1;
                }
            }
            if waits {
                finish(warp, at.path, at.lanes);
            }
        }
        for warp in 0..self.blocks[block].warps.len() {
            let mut woken = false;
            let state = &mut self.blocks[block].warps[warp];
            for path in 0..state.paths.len() {
                if state.paths[path].wait == (Wait::Bar { id }) {
                    let lanes = state.paths[path].lanes;
                    finish(state, path, lanes);
                    state.paths[path].wait = Wait::None;
                    state.paths[path].pc += 1;
                    woken = true;
                }
            }
            if woken {
                super::exec::merge_all(state);
                self.wake(index(block), index(warp));
            }
        }
        true
    }

    /// `barrier.cluster.arrive`
    pub(crate) fn cluster_arrive(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        release: bool,
        aligned: bool,
    ) -> Flow {
        if let Some(wait) = self.gathered(env, warp, at, aligned) {
            return wait;
        }
        let phase = self.barrier.phase + 1;
        if let Some(lane) = bits(at.lanes).find(|&lane| warp.cluster_arrived[lane as usize] == phase) {
            let message = "arrives twice at the cluster barrier without waiting in between".to_owned();
            self.report(env, FindingKind::BarrierMisuse, Where::thread(at, warp, lane), None, message, None);
            return Flow::Next;
        }
        for lane in bits(at.lanes) {
            warp.cluster_arrived[lane as usize] = phase;
        }
        if env.options.check {
            let know = warp.clock.release(at.lanes);
            let slot = self.slot(self.blocks[at.block].rank, warp.index, Stream::Life, env);
            let all = self.barrier.know.get_or_insert_with(|| Knowledge::new(self.id));
            // Even a relaxed arrival tells that the block runs.
            all.learn(slot, u32::MAX, 1, false);
            if release {
                all.join(&know);
            }
            self.mbarriers_met(warp, at, phase);
        }
        self.barrier.arrived += at.lanes.count_ones();
        self.progress += 1;
        self.complete_cluster_barrier();
        Flow::Next
    }

    /// `barrier.cluster.wait`
    pub(crate) fn cluster_wait(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        acquire: bool,
        aligned: bool,
    ) -> Flow {
        if let Some(wait) = self.gathered(env, warp, at, aligned) {
            return wait;
        }
        let lane = at.lanes.trailing_zeros();
        let arrived = warp.cluster_arrived[lane as usize];
        if arrived == 0 {
            let message = "waits at the cluster barrier without having arrived".to_owned();
            self.report(env, FindingKind::BarrierMisuse, Where::thread(at, warp, lane), None, message, None);
            return Flow::Next;
        }
        if self.barrier.phase < arrived {
            return Flow::Wait(Wait::Cluster { phase: arrived });
        }
        if env.options.check
            && acquire
            && let Some(know) = &self.barrier.published
        {
            warp.clock.acquire(at.lanes, know);
            for lane in bits(at.lanes) {
                warp.cluster_acquired[lane as usize] = arrived;
            }
        }
        Flow::Next
    }

    /// Completes the cluster barrier if all threads that live have arrived.
    pub(crate) fn complete_cluster_barrier(&mut self) {
        let live: u32 = self.blocks.iter().map(|block| block.live_threads).sum();
        if self.barrier.arrived == 0 || self.barrier.arrived < live {
            return;
        }
        self.barrier.phase += 1;
        self.barrier.arrived = 0;
        if let Some(mut know) = self.barrier.know.take() {
            if let Some(before) = &self.barrier.published {
                know.join(before);
            }
            self.barrier.published = Some(Arc::new(know));
        }
        let phase = self.barrier.phase;
        self.wake_where(
            false,
            |_, _, path| matches!(path.wait, Wait::Cluster { phase: wanted } if wanted <= phase),
        );
    }

    /// After threads of a block have exited: barriers that waited only for them are complete.
    pub(crate) fn retry_barriers(&mut self, env: &Env<'_>, block: usize, warp: &mut Warp) {
        for id in 0..16 {
            if self.blocks[block].bars[id as usize].arrived > 0
                && self.blocks[block].bars[id as usize].expected.is_none()
            {
                let at =
                    At { block, path: usize::MAX, lanes: 0, op: 0, registers: 0, predicates: 0, frame: 0 };
                self.try_complete(env, block, id, Some((warp, at, false)));
            }
        }
        self.complete_cluster_barrier();
    }

    fn barrier_misuse(&mut self, env: &Env<'_>, warp: &Warp, at: At, text: &str) {
        let lane = at.lanes.trailing_zeros().min(31);
        self.report(
            env,
            FindingKind::BarrierMisuse,
            Where::thread(at, warp, lane),
            None,
            text.to_owned(),
            None,
        );
    }
}
