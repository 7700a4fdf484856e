//! [`Sites`]: what the machine counts while it runs, op by op.

use serde::Serialize;

use super::TensorKind;
use super::pattern::{self, Sectors, Wavefronts};

/// What every op has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Issue {
    pub(super) warps: u64,
    pub(super) active: u64,
    pub(super) live: u64,
    pub(super) waits: u64,
}

/// Requests, sectors and bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Warp instructions that asked.
    pub requests: u64,
    /// Sectors of 32 bytes they touched.
    pub sectors: u64,
    /// Sectors their bytes would fill side by side.
    pub ideal_sectors: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

impl Traffic {
    fn add(&mut self, sectors: Sectors, bytes: u64) {
        self.requests += 1;
        self.sectors += u64::from(sectors.touched);
        self.ideal_sectors += u64::from(sectors.ideal);
        self.bytes += bytes;
    }

    pub(super) fn join(&mut self, other: &Traffic) {
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.ideal_sectors += other.ideal_sectors;
        self.bytes += other.bytes;
    }
}

/// What memory accesses, copies, tensor ops and branches have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) shared_requests: u64,
    pub(super) wavefronts: u64,
    pub(super) ideal_wavefronts: u64,
    pub(super) shared_read: u64,
    pub(super) shared_written: u64,
    pub(super) global_read: Traffic,
    pub(super) global_written: Traffic,
    pub(super) copies: u64,
    pub(super) copied_shared: u64,
    pub(super) copied_global: u64,
    pub(super) copied_sectors: u64,
    pub(super) tensor: u64,
    pub(super) tensor_kind: TensorKind,
    pub(super) branches: u64,
    pub(super) diverged: u64,
}

impl Work {
    fn shared(&mut self, cost: Wavefronts, bytes: u64, write: bool) {
        self.shared_requests += 1;
        self.wavefronts += u64::from(cost.taken);
        self.ideal_wavefronts += u64::from(cost.ideal);
        *(if write { &mut self.shared_written } else { &mut self.shared_read }) += bytes;
    }

    fn join(&mut self, other: &Work) {
        self.shared_requests += other.shared_requests;
        self.wavefronts += other.wavefronts;
        self.ideal_wavefronts += other.ideal_wavefronts;
        self.shared_read += other.shared_read;
        self.shared_written += other.shared_written;
        self.global_read.join(&other.global_read);
        self.global_written.join(&other.global_written);
        self.copies += other.copies;
        self.copied_shared += other.copied_shared;
        self.copied_global += other.copied_global;
        self.copied_sectors += other.copied_sectors;
        if other.tensor > 0 {
            self.tensor_kind = other.tensor_kind;
        }
        self.tensor += other.tensor;
        self.branches += other.branches;
        self.diverged += other.diverged;
    }
}

/// One entry for each op of a program, by its global index. Cheap to add to; several can be merged, so that each worker of the
/// machine has its own.
///
/// ```
/// use tilewright_sim::count::Sites;
/// let mut sites = Sites::new(2);
/// sites.executed(0, 0x0000_ffff, u32::MAX);
/// sites.shared(1, &std::array::from_fn(|lane| 1024 + lane as u64 * 8), u32::MAX, 4, false);
/// assert_eq!((sites.warp_instructions(), sites.thread_instructions()), (1, 16));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Sites {
    // Apart, because every op has the one and few have the other: the hot part of a long program stays in the cache.
    issues: Vec<Issue>,
    work: Vec<Work>,
}

impl Sites {
    /// Nothing counted, for so many ops.
    pub fn new(ops: usize) -> Sites {
        Sites { issues: vec![Issue::default(); ops], work: vec![Work::default(); ops] }
    }

    /// A warp ran the op in the lanes `active`, of those that have not exited, `live`.
    #[inline]
    pub fn executed(&mut self, op: u32, active: u32, live: u32) {
        if let Some(issue) = self.issues.get_mut(op as usize) {
            issue.warps += 1;
            issue.active += u64::from(active.count_ones());
            issue.live += u64::from(live.count_ones());
        }
    }

    /// A branch of the lanes `active` was taken by the lanes `taken`.
    #[inline]
    pub fn branched(&mut self, op: u32, taken: u32, active: u32) {
        if let Some(work) = self.work.get_mut(op as usize) {
            work.branches += 1;
            work.diverged += u64::from(taken & active != 0 && active & !taken != 0);
        }
    }

    /// The lanes accessed so many bytes each (1 to 16) of shared memory.
    pub fn shared(&mut self, op: u32, addresses: &[u64; 32], lanes: u32, bytes: u32, write: bool) {
        let Some(work) = self.work.get_mut(op as usize).filter(|_| lanes != 0) else { return };
        let cost = if write {
            pattern::wavefronts(addresses, lanes, bytes)
        } else {
            pattern::load_wavefronts(addresses, lanes, bytes)
        };
        work.shared(cost, u64::from(lanes.count_ones()) * u64::from(bytes), write);
    }

    /// The lanes accessed so many bytes each (1 to 32) of global memory. An atomic is a write.
    pub fn global(&mut self, op: u32, addresses: &[u64; 32], lanes: u32, bytes: u32, write: bool) {
        let Some(work) = self.work.get_mut(op as usize).filter(|_| lanes != 0) else { return };
        let sectors = pattern::sectors(addresses, lanes, bytes);
        let traffic = if write { &mut work.global_written } else { &mut work.global_read };
        traffic.add(sectors, u64::from(lanes.count_ones()) * u64::from(bytes));
    }

    /// `ldmatrix` or `stmatrix` of 1, 2 or 4 matrices: lane `i` gives the address of a row of 16 bytes, eight rows a matrix, and
    /// each matrix is a phase.
    pub fn matrix(&mut self, op: u32, rows: &[u32; 32], matrices: u32, write: bool) {
        let lanes = match matrices {
            0 => return,
            1..=3 => (1 << (8 * matrices)) - 1,
            _ => u32::MAX,
        };
        self.shared(op, &rows.map(u64::from), lanes, 16, write);
    }

    /// A copy by the copy engines or `cp.async`, or shared memory that tensor cores read by themselves (`wgmma`): bytes on the
    /// shared side, bytes and sectors on the global side. The instruction says in which direction.
    pub fn copied(&mut self, op: u32, shared_bytes: u64, global_bytes: u64, global_sectors: u64) {
        if let Some(work) = self.work.get_mut(op as usize) {
            work.copies += 1;
            work.copied_shared += shared_bytes;
            work.copied_global += global_bytes;
            work.copied_sectors += global_sectors;
        }
    }

    /// So many operations of tensor cores, a multiply-add being two.
    #[inline]
    pub fn tensor(&mut self, op: u32, operations: u64, rate: TensorKind) {
        if let Some(work) = self.work.get_mut(op as usize) {
            work.tensor += operations;
            work.tensor_kind = rate;
        }
    }

    /// A warp had to wait here.
    #[inline]
    pub fn waited(&mut self, op: u32) {
        if let Some(issue) = self.issues.get_mut(op as usize) {
            issue.waits += 1;
        }
    }

    /// Adds what another counted of the same program.
    pub fn merge(&mut self, other: &Sites) {
        let ops = self.issues.len().max(other.issues.len());
        self.issues.resize(ops, Issue::default());
        self.work.resize(ops, Work::default());
        for (mine, theirs) in self.issues.iter_mut().zip(&other.issues) {
            mine.warps += theirs.warps;
            mine.active += theirs.active;
            mine.live += theirs.live;
            mine.waits += theirs.waits;
        }
        for (mine, theirs) in self.work.iter_mut().zip(&other.work) {
            mine.join(theirs);
        }
    }

    /// Warp instructions so far.
    pub fn warp_instructions(&self) -> u64 {
        self.issues.iter().map(|issue| issue.warps).sum()
    }

    /// Instructions of single threads so far.
    pub fn thread_instructions(&self) -> u64 {
        self.issues.iter().map(|issue| issue.active).sum()
    }

    /// The ops in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Issue, &Work)> {
        self.issues.iter().zip(&self.work)
    }
}
