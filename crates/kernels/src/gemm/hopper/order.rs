//! [`SumOrder`]: how the sums of a warpgroup lie in memory while others add to them.

use tilewright_lang::prelude::*;

use super::plan::{Plan, SLAB, THREADS, VECTOR};

/// The order of registers: four of each thread side by side, threads side by side, so that all accesses are whole lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct SumOrder {
    /// Groups of 64 rows of a warpgroup.
    pub(super) slabs: u32,
    /// Columns whose sums lie there, of each row.
    pub(super) columns: u32,
}

impl SumOrder {
    pub(super) fn new(plan: &Plan, columns: u32) -> SumOrder {
        SumOrder { slabs: plan.rows_of_group() / SLAB, columns }
    }

    /// Sums of a warpgroup.
    pub(super) fn sums(self) -> u32 {
        self.slabs * THREADS * self.fours() * VECTOR
    }

    /// How often a thread moves four sums of a slab.
    pub(super) fn fours(self) -> u32 {
        self.columns / 2 / VECTOR
    }

    /// The first sum of this thread.
    #[track_caller]
    pub(super) fn of_thread(self) -> Val<u32> {
        thread_id(0) % THREADS * VECTOR
    }

    /// From there to one of the fours of a slab.
    pub(super) fn offset(self, slab: u32, four: u32) -> u32 {
        (slab * self.fours() + four) * VECTOR * THREADS
    }
}
