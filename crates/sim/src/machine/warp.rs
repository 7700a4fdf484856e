//! A warp: registers, paths of execution, and what its threads have under way.
//!
//! The lanes of a warp are partitioned into *paths*: sets of lanes at the same place of the program. A branch splits a path, and
//! two paths that meet at the same place become one again. Among several paths the one that comes first in the order of the
//! function runs first, which makes them meet as early as they can; now and then another one gets its turn, so that a lane that
//! spins cannot keep the others from the work that it waits for.

use std::sync::Arc;

use crate::check::{Knowledge, Scope, WarpClock};
use crate::number::Lanes;
use crate::program::Pc;

/// An activation of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Index of the function.
    pub(crate) function: u32,
    /// First register of its window.
    pub(crate) registers: u32,
    /// First predicate of its window.
    pub(crate) predicates: u32,
    /// Offset of its frame in local memory.
    pub(crate) local: u32,
    /// End of its frame, moved by `alloca`.
    pub(crate) top: u32,
    /// Where the caller goes on.
    pub(crate) back: Pc,
}

/// Why a path does not run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wait {
    /// It runs.
    None,
    /// At a named barrier.
    Bar { id: u32 },
    /// At the cluster barrier.
    Cluster { phase: u64 },
    /// For the other lanes of the warp to reach the same instruction; `aligned` if they all must.
    Converge { lanes: u32, aligned: bool },
    /// At `bar.warp.sync`, which lanes may reach in different places.
    WarpSync { lanes: u32 },
    /// `setmaxnreg.inc`: for other warps to give registers back.
    Registers,
    /// `mbarrier.try_wait`: block rank and offset of the barrier.
    Mbarrier { block: u32, offset: u32 },
    /// For groups of `cp.async`.
    CpAsync { pending: u32, all: bool },
    /// For bulk groups.
    Bulk { pending: u32, read: bool },
    /// For `wgmma` groups.
    Wgmma { pending: u32 },
    /// For the end of the round, to work on global memory alone.
    Serial,
}

impl Wait {
    /// Whether the op is executed again when the wait is over, so that ending it too early does no harm.
    pub(crate) fn asks_again(&self) -> bool {
        matches!(
            self,
            Wait::Cluster { .. }
                | Wait::Registers
                | Wait::Mbarrier { .. }
                | Wait::CpAsync { .. }
                | Wait::Bulk { .. }
                | Wait::Wgmma { .. }
        )
    }
}

/// Lanes at the same place.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Next op.
    pub(crate) pc: Pc,
    /// Which lanes.
    pub(crate) lanes: u32,
    /// Activations, the running one last.
    pub(crate) frames: Vec<Frame>,
    /// Why it does not run.
    pub(crate) wait: Wait,
    /// Set when the op must go through although lanes are missing: they will not come.
    pub(crate) forced: bool,
}

/// Asynchronous groups of one lane: how many it has committed, and what it has issued since.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Groups {
    /// Committed groups; the group being filled has this number plus one.
    pub(crate) committed: u32,
    /// Operations of the group being filled.
    pub(crate) open: u32,
}

/// What a fence has made ready, or a strong load has brought, for some lanes.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Whose.
    pub(crate) lanes: u32,
    /// What.
    pub(crate) know: Arc<Knowledge>,
    /// How far it reaches.
    pub(crate) scope: Scope,
}

/// A message that waits for the next `trap`.
pub(crate) type LastNote = Option<Arc<crate::program::TraceNote>>;

/// A warp.
pub(crate) struct Warp {
    /// Index in the block.
    pub(crate) index: u32,
    /// Lanes that have not exited.
    pub(crate) live: u32,
    /// Registers of all activations.
    pub(crate) registers: Vec<Lanes>,
    /// Predicates of all activations.
    pub(crate) predicates: Vec<u32>,
    /// Carry flags.
    pub(crate) carry: u32,
    /// Where its lanes are.
    pub(crate) paths: Vec<Path>,
    /// Index of the path that ran last and for how many slices.
    pub(crate) turn: (usize, u32),
    /// Clocks of the race checker; of no use when it is off.
    pub(crate) clock: WarpClock,
    /// Local memory of each lane, and which bytes have been written.
    pub(crate) local: Vec<(Vec<u8>, Vec<bool>)>,
    /// Executed ops.
    pub(crate) executed: u64,
    /// `cp.async` groups of each lane.
    pub(crate) cp_async: [Groups; 32],
    /// Bulk groups of each lane.
    pub(crate) bulk: [Groups; 32],
    /// Bulk groups of each lane whose reads are known to be done.
    pub(crate) bulk_read: [u32; 32],
    /// `wgmma` that it has issued.
    pub(crate) wgmma_issued: u32,
    /// How many it had issued at the end of each committed group.
    pub(crate) wgmma_ends: Vec<u32>,
    /// Groups that it knows to be complete.
    pub(crate) wgmma_known: u32,
    /// Whether it has executed `wgmma.fence`.
    pub(crate) wgmma_fenced: bool,
    /// Of each register, the last group that accumulates in it and the last that reads its A from it; empty before the first `wgmma`.
    pub(crate) in_flight: Vec<(u32, u32)>,
    /// What fences have released, per lane.
    pub(crate) released: Vec<Held>,
    /// What strong loads have seen, to be acquired by a fence.
    pub(crate) seen: Vec<Held>,
    /// The message before a trap.
    pub(crate) note: LastNote,
    /// Phase of the cluster barrier that each lane has arrived at, plus one; 0 for none.
    pub(crate) cluster_arrived: [u64; 32],
    /// Phase of the cluster barrier up to which each lane knows what others did before.
    pub(crate) cluster_acquired: [u64; 32],
    /// Registers allowed by `setmaxnreg`; 0 before the first.
    pub(crate) max_registers: u32,
    /// The mbarrier it polls in vain, by block and offset, and in which lanes.
    pub(crate) polls: (usize, u32, u32),
    /// Whether it polled something in this round.
    pub(crate) polled: Option<Pc>,
    /// A counter of the allocation that the last global access hit.
    pub(crate) hint: usize,
}

impl Warp {
    /// A warp at the start of a kernel.
    pub(crate) fn new(
        index: u32,
        lanes: u32,
        clock: WarpClock,
        function: u32,
        registers: u32,
        predicates: u32,
        frame: u32,
    ) -> Warp {
        let first = Frame { function, registers: 0, predicates: 0, local: 0, top: frame, back: 0 };
        Warp {
            index,
            live: lanes,
            registers: vec![[0; 32]; registers as usize],
            predicates: vec![0; predicates as usize],
            carry: 0,
            paths: vec![Path { pc: 0, lanes, frames: vec![first], wait: Wait::None, forced: false }],
            turn: (0, 0),
            clock,
            local: Vec::new(),
            executed: 0,
            cp_async: [Groups::default(); 32],
            bulk: [Groups::default(); 32],
            bulk_read: [0; 32],
            wgmma_issued: 0,
            wgmma_ends: Vec::new(),
            wgmma_known: 0,
            wgmma_fenced: false,
            in_flight: Vec::new(),
            released: Vec::new(),
            seen: Vec::new(),
            note: None,
            cluster_arrived: [0; 32],
            cluster_acquired: [0; 32],
            max_registers: 0,
            polls: (usize::MAX, 0, 0),
            polled: None,
            hint: 0,
        }
    }

    /// Whether all its threads have exited.
    pub(crate) fn is_done(&self) -> bool {
        self.live == 0
    }

    /// Whether some path can run.
    pub(crate) fn is_ready(&self) -> bool {
        self.paths.iter().any(|path| path.wait == Wait::None)
    }

    /// The first register and predicate behind all activations.
    pub(crate) fn tops(&self, sizes: impl Fn(u32) -> (u32, u32)) -> (u32, u32) {
        let frames = self.paths.iter().flat_map(|path| &path.frames);
        frames.fold((0, 0), |(registers, predicates), frame| {
            let (r, p) = sizes(frame.function);
            (registers.max(frame.registers + r), predicates.max(frame.predicates + p))
        })
    }

    /// Takes `lanes` out of a path and lets them stand at `pc`; returns the index of the new path, or the old one when it has no
    /// other lanes.
    pub(crate) fn split(&mut self, path: usize, lanes: u32, pc: Pc) -> usize {
        if self.paths[path].lanes == lanes {
            self.paths[path].pc = pc;
            return path;
        }
        let mut other = self.paths[path].clone();
        self.paths[path].lanes &= !lanes;
        other.lanes = lanes;
        other.pc = pc;
        other.wait = Wait::None;
        other.forced = false;
        self.paths.push(other);
        self.paths.len() - 1
    }

    /// Unites `path` with another one at the same place; returns where it is now. Paths that wait for the warp unite with those that
    /// run, which then try again.
    pub(crate) fn merge(&mut self, path: usize) -> usize {
        let at = &self.paths[path];
        let found = self.paths.iter().enumerate().position(|(i, other)| {
            i != path
                && other.pc == at.pc
                && matches!(other.wait, Wait::None | Wait::Converge { .. })
                && other.frames == at.frames
                && !other.forced
                && !at.forced
        });
        let Some(other) = found else { return path };
        let lanes = self.paths[path].lanes;
        self.paths[other].lanes |= lanes;
        self.paths[other].wait = Wait::None;
        self.paths.swap_remove(path);
        if other == self.paths.len() { path } else { other }
    }
}
