//! Accesses, and the rules by which two of them conflict.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use super::clock::{Agent, Epoch};
use super::knowledge::Knowledge;

/// Whom a strong operation is morally strong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Threads of the same block.
    Cta,
    /// Threads of the same cluster.
    Cluster,
    /// Threads of the same device.
    Gpu,
    /// Everything.
    Sys,
}

impl Scope {
    /// Whether the scope of an operation in one place includes a thread in another.
    fn spans(self, same_cluster: bool, same_block: bool) -> bool {
        match self {
            Scope::Cta => same_cluster && same_block,
            Scope::Cluster => same_cluster,
            Scope::Gpu | Scope::Sys => true,
        }
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads, modifies and writes in one step.
    Atomic,
}

impl Kind {
    /// Whether it changes memory.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Kind::Read
    }
}

/// The path to memory that an access takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proxy {
    /// Ordinary loads, stores, atomics, and `cp.async`.
    Generic,
    /// Bulk copies, TMA, wgmma.
    Async,
}

/// One access to a range of bytes.
///
/// Of two accesses to a byte, at least one of which writes, the earlier must be *ordered* before the later one:
///
/// * its epoch is in the knowledge of the later one's issuer, or
/// * the same thread made both, and the earlier one is synchronous: generic, and its epoch is its issuer's own. (An
///   asynchronous access is ordered by what completes it only, also for its issuer.)
///
/// If the earlier is a generic write and the later goes through the async proxy, a proxy fence must lie between them, for
/// accesses of the same thread, too. The other direction needs none: completion implies it.
///
/// Two strong accesses whose scopes both include the other's thread never conflict, whatever their order.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// When it will be complete: for an asynchronous operation of the stream that completes it, e.g. (mbarrier, phase).
    /// In the same cluster as the issuer.
    pub epoch: Epoch,
    /// The thread that made or started it; equals `epoch.agent` for ordinary accesses.
    pub issuer: Agent,
    /// What the issuer knows at that time.
    pub know: &'a Knowledge,
    /// The instruction.
    pub pc: u32,
    /// What it does.
    pub kind: Kind,
    /// The scope of a strong operation; `None` for a weak one.
    pub strong: Option<Scope>,
    /// The path it takes.
    pub proxy: Proxy,
}

impl<'a> Access<'a> {
    /// A weak access of a thread itself through the generic proxy.
    #[must_use]
    pub fn plain(epoch: Epoch, know: &'a Knowledge, pc: u32, kind: Kind) -> Self {
        Access { epoch, issuer: epoch.agent, know, pc, kind, strong: None, proxy: Proxy::Generic }
    }
}

/// How two accesses get in each other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hazard {
    /// Reads what may not have been written yet.
    ReadAfterWrite,
    /// Overwrites what may not have been read yet.
    WriteAfterRead,
    /// Two writes in no particular order.
    WriteAfterWrite,
    /// Ordered, but the async proxy may not see the generic write.
    MissingProxyFence,
}

/// An access that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// When it is complete.
    pub epoch: Epoch,
    /// Who made or started it.
    pub issuer: Agent,
    /// The instruction.
    pub pc: u32,
    /// What it did.
    pub kind: Kind,
    /// The path it took.
    pub proxy: Proxy,
    /// Its scope, if strong.
    pub strong: Option<Scope>,
}

/// An access conflicts with an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// How.
    pub hazard: Hazard,
    /// With what.
    pub earlier: Past,
    /// The first byte concerned: an offset into the region, or an address for global memory.
    pub offset: u64,
}

/// All of an access but its lane, so that the lanes of a warp share one.
///
/// Three words, because it is built and compared for every access of a lane: fields of their own would be stored narrow
/// and loaded wide, which stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Cluster, clock.
    when: u64,
    /// Instruction, slot, issuer's slot.
    what: u64,
    /// Block, issuer's block, the issuer's lane relative to the epoch's (0 for all lanes of an ordinary access), kind,
    /// strength (0 for weak), proxy.
    how: u64,
}

// Each takes out a field of the width that was put in.
#[allow(clippy::cast_possible_truncation)]
impl Record {
    #[inline(always)]
    pub(super) fn of(a: &Access<'_>) -> Self {
        let Agent { cluster, slot, block, lane } = a.epoch.agent;
        let lane_xor = (a.issuer.lane ^ lane) & 31;
        let strength = a.strong.map_or(0, |scope| scope as u64 + 1);
        Record {
            when: u64::from(cluster) << 32 | u64::from(a.epoch.clock),
            what: u64::from(a.pc) << 32 | u64::from(slot) << 16 | u64::from(a.issuer.slot),
            how: u64::from(block) << 48
                | u64::from(a.issuer.block) << 32
                | u64::from(lane_xor) << 24
                | (a.kind as u64) << 16
                | strength << 8
                | a.proxy as u64,
        }
    }

    #[inline]
    pub(super) fn cluster(&self) -> u32 {
        (self.when >> 32) as u32
    }

    #[inline]
    pub(super) fn clock(&self) -> u32 {
        self.when as u32
    }

    #[inline]
    pub(super) fn slot(&self) -> u16 {
        (self.what >> 16) as u16
    }

    /// Cluster and slot in one.
    #[inline]
    pub(super) fn stream(&self) -> u64 {
        self.when >> 32 << 16 | u64::from(self.slot())
    }

    #[inline]
    fn issuer_slot(&self) -> u16 {
        self.what as u16
    }

    fn issuer_block(&self) -> u16 {
        (self.how >> 32) as u16
    }

    #[inline]
    fn issuer_lane_xor(&self) -> u8 {
        (self.how >> 24) as u8
    }

    #[inline]
    fn kind(&self) -> Kind {
        match (self.how >> 16) as u8 {
            0 => Kind::Read,
            1 => Kind::Write,
            _ => Kind::Atomic,
        }
    }

    #[inline]
    pub(super) fn writes(&self) -> bool {
        (self.how >> 16) as u8 != Kind::Read as u8
    }

    /// 0 for weak, more for wider scopes.
    #[inline]
    fn strength(&self) -> u8 {
        (self.how >> 8) as u8
    }

    fn strong(&self) -> Option<Scope> {
        [None, Some(Scope::Cta), Some(Scope::Cluster), Some(Scope::Gpu), Some(Scope::Sys)]
            .get(usize::from(self.strength()))
            .copied()
            .flatten()
    }

    #[inline]
    fn is_async(&self) -> bool {
        self.how as u8 == Proxy::Async as u8
    }

    pub(super) fn past(&self, lane: u8) -> Past {
        let agent =
            Agent { cluster: self.cluster(), slot: self.slot(), block: (self.how >> 48) as u16, lane };
        let issuer = Agent {
            slot: self.issuer_slot(),
            block: self.issuer_block(),
            lane: lane ^ self.issuer_lane_xor(),
            ..agent
        };
        Past {
            epoch: Epoch { agent, clock: self.clock() },
            issuer,
            pc: (self.what >> 32) as u32,
            kind: self.kind(),
            proxy: if self.is_async() { Proxy::Async } else { Proxy::Generic },
            strong: self.strong(),
        }
    }

    /// Complete when its instruction is: program order holds.
    #[inline]
    fn synchronous(&self) -> bool {
        !self.is_async() && self.slot() == self.issuer_slot() && self.issuer_lane_xor() == 0
    }

    fn may_run_together(&self, other: &Record) -> bool {
        let (Some(a), Some(b)) = (self.strong(), other.strong()) else { return false };
        let same_cluster = self.cluster() == other.cluster();
        let same_block = self.issuer_block() == other.issuer_block();
        a.spans(same_cluster, same_block) && b.spans(same_cluster, same_block)
    }

    /// Whether whatever gets in the way of `earlier` also gets in the way of this one, as far as strength goes.
    #[inline]
    fn stands_for(&self, earlier: &Record) -> bool {
        self.strength() <= earlier.strength()
    }

    pub(super) fn as_strong_as(&self, other: &Record) -> bool {
        self.strength() == other.strength()
    }

    /// Whether this read makes `earlier`, a read of the same lanes of the same slot, superfluous.
    pub(super) fn repeats(&self, earlier: &Record) -> bool {
        !self.writes()
            && !earlier.writes()
            && earlier.is_async() == self.is_async()
            && earlier.clock() <= self.clock()
            && earlier.synchronous() == self.synchronous()
            && self.stands_for(earlier)
            // Blocks share a stream, but not what may run together with them.
            && (self.strength() == 0 || self.issuer_block() == earlier.issuer_block())
    }

    /// Whether this read makes `earlier`, a read that it knows of, superfluous: who knows of this one knows of that one.
    /// Only between weak ones, which nothing may run together with.
    pub(super) fn inherits(&self, earlier: &Record) -> bool {
        let weak_read = |record: &Record| !record.writes() && record.strength() == 0;
        weak_read(self) && self.synchronous() && weak_read(earlier)
    }
}

/// An access that is about to be recorded.
pub(super) struct Later<'a> {
    pub(super) record: Record,
    /// The record's number in the history.
    pub(super) id: u32,
    pub(super) lane: u32,
    /// All lanes that make this access: `lane`, and for a read of the same bytes perhaps others.
    pub(super) lanes: u32,
    /// The lane of the issuer whose own accesses are in program order; none where several lanes act, since what one did is not in the
    /// program order of the others.
    pub(super) own: u32,
    pub(super) know: &'a Knowledge,
    /// Numbers of records found settled, for the last write and for another access: neighbours tend to have the same.
    pub(super) settled: [Cell<u32>; 2],
}

/// How a later access stands to an earlier one of some lanes.
pub(super) struct Order {
    /// The lanes whose access is not properly ordered before.
    pub(super) loose: u32,
    /// Present if that is a conflict.
    pub(super) hazard: Option<Hazard>,
}

impl Later<'_> {
    /// The next of several lanes that make this access.
    #[inline]
    pub(super) fn set_lane(&mut self, lane: u32) {
        self.lane = lane;
        self.lanes = 1 << lane;
        self.own = self.lanes;
    }

    /// Several lanes that read the same bytes.
    #[inline]
    pub(super) fn set_lanes(&mut self, lanes: u32) {
        self.lane = lanes.trailing_zeros() & 31;
        self.lanes = lanes;
        self.own = if lanes.is_power_of_two() { lanes } else { 0 };
    }

    /// Whether `earlier` is properly ordered before, whichever lane made it, and need not be remembered beyond this access
    /// if that is a write. The common case; [`Self::order`] tells the rest apart.
    #[inline(always)]
    pub(super) fn settles(&self, earlier: &Record) -> bool {
        let (cluster, slot, clock) = (earlier.cluster(), earlier.slot(), earlier.clock());
        self.know.unknown(cluster, slot, u32::MAX, clock) == 0
            && (!self.crosses_proxies(earlier)
                || self.know.unknown_proxied(cluster, slot, u32::MAX, clock) == 0)
            && (!self.record.writes() || self.record.stands_for(earlier))
    }

    #[inline(always)]
    fn crosses_proxies(&self, earlier: &Record) -> bool {
        self.record.is_async() && !earlier.is_async() && earlier.writes()
    }

    /// Judges the accesses that `lanes` made as `earlier`; at least one side writes.
    pub(super) fn order(&self, earlier: &Record, lanes: u32) -> Order {
        let mine = if earlier.issuer_slot() == self.record.issuer_slot()
            && earlier.cluster() == self.record.cluster()
            && earlier.synchronous()
        {
            lanes & self.own
        } else {
            0
        };
        let others = lanes & !mine;
        if others != 0 {
            let loose = self.know.unknown(earlier.cluster(), earlier.slot(), others, earlier.clock());
            if loose != 0 {
                return self.loose(earlier, loose, false);
            }
        }
        if self.crosses_proxies(earlier) {
            let mut bare =
                self.know.unknown_proxied(earlier.cluster(), earlier.slot(), lanes, earlier.clock());
            if earlier.clock() <= self.know.own_fence() {
                bare &= !mine;
            }
            if bare != 0 {
                return self.loose(earlier, bare, true);
            }
        }
        Order { loose: 0, hazard: None }
    }

    #[cold]
    fn loose(&self, earlier: &Record, loose: u32, ordered: bool) -> Order {
        let hazard = match (earlier.writes(), self.record.writes()) {
            _ if self.record.may_run_together(earlier) => None,
            _ if ordered => Some(Hazard::MissingProxyFence),
            (true, false) => Some(Hazard::ReadAfterWrite),
            (true, true) => Some(Hazard::WriteAfterWrite),
            (false, _) => Some(Hazard::WriteAfterRead),
        };
        Order { loose, hazard }
    }

    /// The lanes of `earlier` that have to be remembered beyond this write.
    pub(super) fn outlive(&self, earlier: &Record, lanes: u32, order: &Order) -> u32 {
        match order.hazard {
            _ if !self.record.stands_for(earlier) => lanes,
            Some(_) => 0,
            None => order.loose,
        }
    }
}
