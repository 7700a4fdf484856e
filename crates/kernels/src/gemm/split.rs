//! Sums that several blocks make together, deterministically and without waiting.
//!
//! The steps of k are dealt out to `parts` blocks. Each writes its sums to a slot of its own in the workspace and counts itself; the one
//! that arrives last adds all slots, from the first part to the last, its own read back like the others. The order of additions is
//! thus always the same, whoever comes last.
//!
//! Workspace: one counter a tile, which must be zero before the first run and is zero again after each; then the slots.

use tilewright_lang::Argument;
use tilewright_lang::prelude::*;

use super::recipe::{Binding, Operand, Recipe};

/// Loads of shares that are under way at once.
const LOADS_AHEAD: usize = 8;

/// What the host must know about a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Blocks that share a tile.
    pub(super) parts: u32,
    /// Tiles of all members of the batch.
    pub(super) tiles: u64,
    /// Bytes of the sums of a tile.
    pub(super) bytes: u64,
}

impl Split {
    fn counters(&self) -> u64 {
        (self.tiles * 4).next_multiple_of(256)
    }

    /// Gives a recipe the workspace, and the parameters of [`Shares::declare`] their values.
    pub(super) fn provide(&self, recipe: &mut Recipe, bindings: &mut Vec<(String, Binding)>) {
        if self.parts <= 1 {
            return;
        }
        recipe.zeroed = self.counters();
        recipe.workspace = self.counters() + self.tiles * u64::from(self.parts) * self.bytes;
        bindings.extend([
            ("counters".to_owned(), Binding::Pointer(Operand::Workspace, 0)),
            ("shares".to_owned(), Binding::Pointer(Operand::Workspace, self.counters())),
        ]);
    }
}

/// The workspace of a split in a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares<T> {
    counters: Global<u32>,
    shares: Global<T>,
    arrived: Shared<u32>,
    threads: u32,
}

impl<T: Number> Shares<T> {
    /// Declares the parameters, and takes a word of shared memory.
    #[track_caller]
    pub(super) fn declare(threads: u32) -> Shares<T> {
        Shares {
            counters: Argument::declare("counters"),
            shares: Argument::declare("shares"),
            arrived: Shared::new("1:1"),
            threads,
        }
    }

    /// Hands in the sums of this block, one of `parts` that share the tile. Every thread of the block comes here with as many vectors
    /// of one length. Gives whether this block is the last, and if it is, the sums of all.
    #[track_caller]
    pub(super) fn combine(
        &self,
        tile: Val<u32>,
        (part, parts): (Val<u32>, Val<u32>),
        sums: &[Vector<T>],
    ) -> (Val<bool>, Vec<Vector<T>>) {
        combine(self, tile, part, parts, sums)
    }

    /// The vectors of this thread in a slot: `count` of `len` elements. Neighbouring threads have neighbouring vectors.
    #[track_caller]
    fn of_thread(&self, slot: Val<u64>, count: usize, len: u32) -> Vec<Global<T>> {
        let first = slot * (count as u64);
        let vector = |i: usize| (first + i as u64) * u64::from(self.threads) + thread_id(0).cast::<u64>();
        (0..count).map(|i| self.shares.at(vector(i) * u64::from(len))).collect()
    }
}

#[device]
fn combine<T: Number>(
    shares: &Shares<T>,
    tile: Val<u32>,
    part: Val<u32>,
    parts: Val<u32>,
    sums: &[Vector<T>],
) -> (Val<bool>, Vec<Vector<T>>) {
    let (count, len) = (sums.len(), sums[0].len());
    let first = tile.mul_wide(parts);
    for (to, sum) in
        shares.of_thread(first + part.cast::<u64>(), count, len).into_iter().zip(sums.iter().copied())
    {
        to.store_vector(sum);
    }
    // Whoever sees this block counted must see what all its threads have written.
    barrier();
    if thread_id(0) == 0 {
        let counter = shares.counters.at(tile);
        let before = counter.atomic(Combine::Add, 1u32, Order::AcqRel, Scope::Gpu);
        shares.arrived.ptr().store(before);
        if before == parts - 1 {
            counter.store_with(0u32, Access::new().relaxed(Scope::Gpu));
        }
    }
    barrier();
    let last = shares.arrived.ptr().load() == parts - 1;
    let mut totals = vec![Vector::splat(T::ZERO, len); count];
    if last {
        // Some at a time: the loads of all would take as many registers again as the sums.
        for some in (0..count).step_by(LOADS_AHEAD) {
            let some = some..count.min(some + LOADS_AHEAD);
            let mut sums = totals[some.clone()].to_vec();
            for part in 0..parts {
                let slot = shares.of_thread(first + part.cast::<u64>(), count, len);
                let loaded = slot[some.clone()].iter().map(|from| from.load_vector(len));
                sums = sums.iter().zip(loaded).map(|(&sum, more)| sum + more).collect();
            }
            totals.splice(some, sums);
        }
    }
    (last, totals)
}
