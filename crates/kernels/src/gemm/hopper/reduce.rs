//! Tiles that several units compute together: every unit leaves its sums in global memory, and whoever comes last adds them up.
//!
//! Sums lie in slots of the workspace, in the order of [`SumOrder`]. A counter for each tile and warpgroup says how many parts are there.
//! Nobody waits for anybody, and the parts are added in the order of k whoever comes last: the result is the same in every run.

use tilewright_lang::Argument;
use tilewright_lang::prelude::*;

use super::order::SumOrder;
use super::plan::{Plan, THREADS, VECTOR};
use super::schedule::{Numbers, Part, Unit};
use crate::gemm::recipe::{Binding, Operand};

/// Memory that a split takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Workspace {
    /// Bytes of counters, which are zero between runs.
    pub(super) counters: u64,
    /// Bytes of sums.
    pub(super) sums: u64,
}

impl Workspace {
    pub(super) fn new(plan: &Plan, numbers: &Numbers) -> Workspace {
        let (tiles, slots) = numbers.split_tiles(plan);
        // A kernel that may split tiles takes counters, even for a product of which it splits none.
        let tiles = if plan.config.exchanges() { tiles.max(1) } else { 0 };
        let counters = tiles * u64::from(plan.groups_of_tile()) * 4;
        let tile = u64::from(plan.config.m) * u64::from(plan.config.n) * 4;
        Workspace { counters: counters.next_multiple_of(256), sums: slots * tile }
    }

    /// What the parameters that [`Exchange::declare`] declares get, if the workspace starts so many bytes into the operand.
    pub(super) fn bindings(&self, start: u64) -> Vec<(String, Binding)> {
        vec![
            ("counters".to_owned(), Binding::Pointer(Operand::Workspace, start)),
            ("sums".to_owned(), Binding::Pointer(Operand::Workspace, start + self.counters)),
        ]
    }
}

/// The place where units leave their sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange<C> {
    counters: Global<u32>,
    sums: Global<C>,
    /// One word for each warpgroup: whether it came last.
    verdicts: Shared<u32>,
    groups: u32,
    order: SumOrder,
    blocks: u32,
}

/// The sums of one tile: where those of this warpgroup start in each slot, and which slots there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots<C> {
    origin: Global<C>,
    part: Part,
    blocks: u32,
    slot_elements: u32,
    order: SumOrder,
}

impl<C: Number> Exchange<C> {
    /// Declares the parameters, and shared memory for the verdicts.
    #[track_caller]
    pub(super) fn declare(plan: &Plan) -> Exchange<C> {
        Exchange {
            counters: Argument::declare("counters"),
            sums: Argument::declare("sums"),
            verdicts: Shared::new("4:1"),
            groups: plan.groups_of_tile(),
            order: SumOrder::new(plan, plan.config.n),
            blocks: plan.config.cluster_size(),
        }
    }

    /// Leaves the sums of a unit, and tells whether all parts of its tile are there now. By a warpgroup: number `member` of those of
    /// the tile, number `group` of the block.
    #[device]
    pub(super) fn leave(
        &self,
        unit: &Unit,
        part: Part,
        rank: Option<Val<u32>>,
        (member, group): (Val<u32>, Val<u32>),
        sums: &[Fragment<C>],
    ) -> (Val<bool>, Slots<C>) {
        let thread = thread_id(0) % THREADS;
        let of_group = self.order.sums();
        let rank = rank.unwrap_or(val(0));
        let within = member * of_group + self.order.of_thread();
        let slots = Slots {
            origin: self.sums.at(rank.mul_wide(of_group * self.groups) + within.cast::<u64>()),
            part,
            blocks: self.blocks,
            slot_elements: of_group * self.groups,
            order: self.order,
        };
        let mine = slots.at(part.slot);
        for (slab, fragment) in (0..self.order.slabs).zip(sums.iter().copied()) {
            for i in 0..self.order.fours() {
                let four = fragment.values().slice(i * VECTOR, VECTOR);
                mine.at(self.order.offset(slab, i)).store_vector(four);
            }
        }

        let together = NamedBarrier::new(group + 1, THREADS);
        let counter = self.counters.at((unit.tile * self.blocks + rank) * self.groups + member);
        let verdict = self.verdicts.at([group]);
        // The barrier collects the stores of the warpgroup, and the atomic of one thread publishes them all.
        together.wait();
        if thread == 0 {
            // Counts up to the last part, and then starts again with zero.
            let before = counter.atomic(Combine::Inc, part.parts - 1, Order::AcqRel, Scope::Gpu);
            verdict.store(select(before + 1 == part.parts, 1u32, 0u32));
        }
        together.wait();
        (verdict.load() == 1, slots)
    }
}

impl<C: Number> Slots<C> {
    /// This thread's part of a slot.
    #[track_caller]
    fn at(&self, slot: Val<u32>) -> Global<C> {
        self.origin.at((slot * self.blocks).mul_wide(self.slot_elements))
    }

    /// The sums of all parts for some columns of a slab, in the places of a fragment of these columns.
    #[device]
    pub(super) fn total(&self, slab: u32, first: u32, shape: Fragment<C>) -> Fragment<C> {
        let load = |slot: Val<u32>| -> Vector<C> {
            let from = self.at(slot);
            let four = |i: u32| from.at(self.order.offset(slab, first / 8 + i)).load_vector(VECTOR);
            Vector::concat((0..shape.values().len() / VECTOR).map(four))
        };
        // There are two at least, which are on their way at the same time.
        let mut total = load(self.part.first_slot) + load(self.part.second_slot);
        let mut slot = self.part.second_slot;
        for _ in 2..self.part.parts {
            slot += self.part.stride;
            total = total + load(slot);
        }
        shape.with_values(total)
    }
}

#[cfg(test)]
mod tests {
    use tilewright_hardware::{Element, Gpu};

    use crate::gemm::hopper::Config;
    use crate::gemm::{Problem, Types};

    #[test]
    fn kernels_that_may_split_always_have_scratch_memory() {
        let h200 = Gpu::named("h200").unwrap();
        let problem = Problem::new(8, 32, 16, Types::of(Element::E4M3));
        let workspace = |words: &str| {
            let config: Config = format!("hopper 64x24x128B c1x2 s10 ping2 m8{words}").parse().unwrap();
            config.recipe(&problem, h200).unwrap().workspace
        };
        // One tile and one worker for it: nothing is split.
        assert_eq!((workspace(""), workspace(" stream")), (0, 256));
    }
}
