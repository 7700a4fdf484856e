//! Tiles that the blocks of a cluster compute together: each multiplies its part of k, sends every other block the sums of the columns
//! which that one brings to D, and gets those of its own columns.
//!
//! Sums travel from registers to the shared memory of the other block, where they lie in the order of [`SumOrder`]. A barrier object of each
//! warpgroup counts the bytes that arrive. The parts are added in the order of k: the result is the same in every run.
//!
//! Contract: a block has one tile, so nobody writes where somebody may still read; and blocks of a cluster leave together.

use tilewright_lang::prelude::*;

use super::order::SumOrder;
use super::plan::{Plan, THREADS, VECTOR};

/// The place where the sums of other blocks arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Join<C> {
    /// The sums of each warpgroup: those of one other block after those of another.
    incoming: Shared<C>,
    /// One barrier object for each warpgroup: all of its sums are there.
    arrived: Mbarrier,
    /// This block's part of k.
    rank: Val<u32>,
    parts: u32,
    /// What one block sends to a warpgroup of another: the sums of the columns that the other brings to D.
    order: SumOrder,
}

impl<C: Number> Join<C> {
    /// Takes the shared memory; at the start of a kernel, before the first barrier of its cluster.
    #[device]
    pub(super) fn declare(plan: &Plan, rank: Val<u32>) -> Join<C> {
        let (parts, groups) = (plan.config.joint(), plan.groups_of_tile());
        let order = SumOrder::new(plan, plan.config.columns_of_block());
        let sums = groups * (parts - 1) * order.sums();
        let join = Join {
            incoming: Shared::new(format!("{sums}:1").as_str()),
            arrived: Mbarrier::array(groups, "joined"),
            rank,
            parts,
            order,
        };
        if thread_id(0) == 0 {
            for group in 0..groups {
                join.arrived.at(group).init(1u32);
            }
            fence_barrier_init();
        }
        join
    }

    /// The first column of the tile that this block brings to D.
    #[track_caller]
    pub(super) fn column(&self) -> Val<u32> {
        self.rank * self.order.columns
    }

    /// Where this thread of a warpgroup finds four of the sums that came from a block: the `slot`th of the others.
    #[track_caller]
    fn place(&self, group: Val<u32>, slot: Val<u32>, slab: u32, four: u32) -> SharedPtr<C> {
        let start = (group * (self.parts - 1) + slot) * self.order.sums() + self.order.of_thread();
        self.incoming.ptr().at(start + self.order.offset(slab, four))
    }

    /// Sends every other block its columns of the sums of a warpgroup, and waits for theirs.
    #[device]
    pub(super) fn exchange(&self, group: Val<u32>, sums: &[Fragment<C>]) {
        for other in 0..self.parts {
            if self.rank != other {
                // Others are counted without the block that receives.
                let slot = select(self.rank < other, self.rank, self.rank - 1);
                let arrived = self.arrived.at(group).in_block(other);
                for (slab, fragment) in (0..self.order.slabs).zip(sums.iter().copied()) {
                    let fours = self.order.fours();
                    let theirs = fragment.values().slice(other * fours * VECTOR, fours * VECTOR);
                    for four in 0..fours {
                        let to = self.place(group, slot, slab, four).in_block(other);
                        store_vector_async(to, theirs.slice(four * VECTOR, VECTOR), arrived);
                    }
                }
            }
        }
        if thread_id(0) % THREADS == 0 {
            self.arrived
                .at(group)
                .arrive_and_expect((self.parts - 1) * self.order.sums() * C::ELEMENT.bytes());
        }
        self.arrived.at(group).wait(0u32);
    }

    /// The sums of all parts for some of this block's columns, in the places of a fragment of these columns.
    #[device]
    pub(super) fn total(
        &self,
        group: Val<u32>,
        sums: &[Fragment<C>],
        (slab, first, columns): (u32, u32, u32),
    ) -> Fragment<C> {
        let of = |block: u32| sums[slab as usize].columns(block * self.order.columns + first, columns);
        let choose = |condition: Val<bool>, yes: Vector<C>, no: Vector<C>| {
            let pairs = yes.elements().into_iter().zip(no.elements());
            Vector::new(pairs.map(|(yes, no)| select(condition, yes, no)))
        };
        let own = (1..self.parts)
            .fold(of(0).values(), |own, block| choose(self.rank == block, of(block).values(), own));
        let part = |part: u32| {
            let slot = select(self.rank > part, part, part.saturating_sub(1));
            let four = |i: u32| self.place(group, slot, slab, first / 8 + i).load_vector(VECTOR);
            let sent = Vector::concat((0..own.len() / VECTOR).map(four));
            choose(self.rank == part, own, sent)
        };
        of(0).with_values((1..self.parts).fold(part(0), |sum, next| sum + part(next)))
    }
}
