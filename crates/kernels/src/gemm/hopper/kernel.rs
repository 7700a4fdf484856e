//! The kernel: one warpgroup drives the copy engine, the others drive the tensor cores and bring their sums to D.
//!
//! The loader runs ahead over all units of its block as far as the ring of tiles allows. Consumers follow: together on the rows of
//! one tile (cooperative), or in turns on tiles of their own (ping-pong), where one multiplies while another stores. Blocks of a cluster
//! share a tile: each loads a part of it and delivers it to all.

use tilewright_lang::prelude::*;

use super::Pace;
use super::factor::{Factor, Side};
use super::join::Join;
use super::plan::{Plan, THREADS};
use super::reduce::Exchange;
use super::result::Results;
use super::schedule::{Corner, Cursor, Part, Schedule, Unit};

/// Stages the kernel of a plan for elements `A` and `B`, sums `C`, and an epilogue that computes in `R`.
pub(super) fn stage<A: Element, B: Element, C: Number, R: Number>(plan: &Plan) -> Result<Kernel, Error> {
    let plan = plan.clone();
    match plan.config.blocks_of_cluster() {
        1 => gemm::stage::<A, B, C, R>(plan),
        _ => gemm_cluster::stage::<A, B, C, R>(plan),
    }
}

#[kernel(threads = plan.threads(), min_blocks = 1, name = "gemm_hopper")]
fn gemm<A: Element, B: Element, C: Number, R: Number>(plan: Plan) {
    product::<A, B, C, R>(&plan);
}

#[kernel(threads = plan.threads(), min_blocks = 1, cluster = (plan.config.blocks_of_cluster(), 1, 1), name = "gemm_hopper")]
fn gemm_cluster<A: Element, B: Element, C: Number, R: Number>(plan: Plan) {
    product::<A, B, C, R>(&plan);
}

#[device]
fn product<A: Element, B: Element, C: Number, R: Number>(plan: &Plan) {
    let config = &plan.config;
    // The next kernel may set itself up while this one works; it waits before it reads anything.
    grid_launch_dependents();
    let schedule = Schedule::declare(plan);
    let results = Results::<R>::declare(plan);
    let exchange = config.exchanges().then(|| Exchange::<C>::declare(plan));
    let join = schedule.joint.map(|rank| Join::<C>::declare(plan, rank));

    let rank = schedule.rank.unwrap_or(val(0));
    let a = Factor::<A>::declare(plan, Side::A, rank / config.cluster.0);
    let b = Factor::<B>::declare(plan, Side::B, rank % config.cluster.0);
    if thread_id(0) == 0 {
        a.prefetch();
        b.prefetch();
    }
    if plan.asks != [0; 2] {
        // While the kernel before ends, memory has little to do. Its results may be among the factors, so nothing is read yet; but L2 is
        // where everybody sees the same bytes, and what lies there early is right when they are written.
        if (warp_id() == 1) && elect() {
            let cursor = schedule.start();
            if schedule.more(cursor) {
                let unit = schedule.unit(cursor);
                let corner = schedule.corner(unit.tile);
                a.ask(plan.asks[0], plan.depth, &unit, corner.row, corner.batch);
                b.ask(plan.asks[1], plan.depth, &unit, corner.column, corner.batch);
            }
        }
    }
    let pipe = Pipeline::new(config.stages, plan.groups_of_tile() * config.cluster_size());
    clear(plan, &schedule, (&a, &b), true);
    let clustered = config.blocks_of_cluster() > 1;
    if clustered {
        cluster_barrier();
    } else {
        barrier();
    }
    clear(plan, &schedule, (&a, &b), false);
    grid_wait();

    let (few, many) = plan.registers().unzip();
    let loader = Role { name: "loader", warps: 0..4, registers: few };
    let math = Role { name: "math", warps: 4..4 + 4 * config.consumers, registers: many };

    role(&loader, || {
        if warp_id() == 0 && elect() {
            let mut slot = pipe.producer();
            let mut cursor = schedule.start();
            // Every other unit goes through k from its end: what the unit before has read last is what L2 still holds.
            let mut backwards = val(false);
            while schedule.more(cursor) {
                let unit = schedule.unit(cursor);
                let corner = schedule.corner(unit.tile);
                let (first, last) = (unit.first * plan.depth, (unit.first + unit.count - 1) * plan.depth);
                let mut k = select(backwards, last, first);
                let stride = select(backwards, val(plan.depth.wrapping_neg()), val(plan.depth));
                let bytes = a.bytes(corner.row) + b.bytes(corner.column);
                for _ in 0..unit.count {
                    let full = pipe.acquire(slot, bytes);
                    a.load(slot, (corner.row, k), corner.batch, full);
                    b.load(slot, (corner.column, k), corner.batch, full);
                    k += stride;
                    slot = slot.next();
                }
                cursor = schedule.after(cursor, &unit);
                backwards = !backwards;
            }
        }
    });

    role(&math, || {
        let group = warpgroup_id() - 1;
        let consumer = Consumer::<A, B> { plan, pipe, group, a: a.ring, b: b.ring };
        let sums = Accumulator::<C>::new(plan.rows_of_group(), config.n);
        let mut slot = pipe.consumer();
        let mut cursor = schedule.start();
        let mut turn = group;
        let mut round = val(0u32);
        if a.overhangs() || b.overhangs() {
            NamedBarrier::new(val(CLEARED), THREADS * config.consumers).wait();
        }
        if config.pace == Pace::PingPong {
            for _ in 0..group {
                (cursor, slot) = leave_out(&schedule, cursor, slot);
            }
        }
        while schedule.more(cursor) {
            let unit = schedule.unit(cursor);
            cursor = schedule.after(cursor, &unit);
            // Before the products, so that nobody waits for these divisions after them.
            let mut corner = consumer.rows_from(schedule.corner(unit.tile));
            if let Some(join) = join {
                corner.column += join.column();
            }
            results.prepare(corner, (group, round));
            if config.pace == Pace::PingPong {
                // Tiles are multiplied one after the other; only what follows overlaps.
                if turn > 0 {
                    NamedBarrier::new(group + TURNS, 256).wait();
                }
            }
            let (last, next, promoted) = consumer.multiply(&sums, &unit, slot);
            slot = next;
            if config.pace == Pace::PingPong {
                if schedule.more(cursor) {
                    NamedBarrier::new((group + 1) % config.consumers + TURNS, 256).arrive();
                }
            }
            let parts = consumer.finish(&sums, last, promoted);
            let to = (&results, corner, round);
            match join {
                Some(join) => consumer.join(to, join, &parts),
                None => consumer.deliver(to, exchange.zip(unit.part), (&unit, schedule.rank), &parts),
            }
            round += 1;

            if config.pace == Pace::PingPong {
                turn += config.consumers;
                for _ in 1..config.consumers {
                    (cursor, slot) = leave_out(&schedule, cursor, slot);
                }
            }
        }
        results.finish();
    });

    if clustered {
        // Nobody may leave while another block of the cluster can still write to it or arrive at its barriers.
        warp_barrier();
        cluster_barrier();
    }
}

/// The first of the barriers by which warpgroups take turns; those before are each warpgroup's own.
const TURNS: u32 = 4;
/// The barrier after which slots have been cleared.
const CLEARED: u32 = 7;

/// Writes once to what copies leave out: before there are any, or while the first are under way and those who multiply have nothing to do.
#[device]
fn clear<A: Element, B: Element>(
    plan: &Plan,
    schedule: &Schedule,
    (a, b): (&Factor<A>, &Factor<B>),
    before: bool,
) {
    if a.overhangs() || b.overhangs() {
        let cursor = schedule.start();
        if (warp_id() >= 4) & schedule.more(cursor) {
            let unit = schedule.unit(cursor);
            let corner = schedule.corner(unit.tile);
            // A unit of few steps does not fill the ring, and the copies of the next may leave out more.
            let several = (unit.count < plan.config.stages) & schedule.more(schedule.after(cursor, &unit));
            if several == before {
                let of = |row: Val<u32>| (!before).then_some(row);
                let who = (thread_id(0) - THREADS, THREADS * plan.config.consumers);
                a.clear(of(corner.row), who);
                b.clear(of(corner.column), who);
            }
        }
    }
}

/// Passes over the unit of another warpgroup.
#[device]
fn leave_out(schedule: &Schedule, cursor: Cursor, slot: Slot) -> (Cursor, Slot) {
    let (mut cursor, mut slot) = (cursor, slot);
    if schedule.more(cursor) {
        let unit = schedule.unit(cursor);
        slot = slot.skip(unit.count);
        cursor = schedule.after(cursor, &unit);
    }
    (cursor, slot)
}

/// A warpgroup that multiplies.
struct Consumer<'a, A, B> {
    plan: &'a Plan,
    pipe: Pipeline,
    /// Its number among those of the block.
    group: Val<u32>,
    a: Ring<A>,
    b: Ring<B>,
}

impl<A: Element, B: Element> Consumer<'_, A, B> {
    /// Its number among those of a tile.
    fn member(&self) -> Val<u32> {
        match self.plan.config.pace {
            Pace::Cooperative => self.group,
            Pace::PingPong => val(0),
        }
    }

    /// The tiles of a slot: its rows of A, and B.
    #[track_caller]
    fn tiles(&self, slot: Slot) -> (Shared<A>, Shared<B>) {
        let (a, rows) = (self.a.at(slot.index), self.plan.rows_of_group());
        let a = if rows == self.plan.config.m { a } else { a.row_block(self.group, rows) };
        (a, self.b.at(slot.index))
    }

    /// Lets go of a slot, in all blocks that load into it.
    #[device]
    fn release_if(&self, condition: Val<bool>, slot: Slot) {
        let (thread, blocks) = (thread_id(0) % 128, self.plan.config.cluster_size());
        if condition & (thread < blocks) {
            if blocks == 1 {
                self.pipe.release(slot);
            } else {
                self.pipe.release_in_block(slot, thread);
            }
        }
    }

    /// Multiplies a unit, from a slot on. The last product stays in flight and keeps its slot, which is given back together with the
    /// slot that comes next, and the sums so far if they are promoted.
    #[device]
    fn multiply<C: Number>(
        &self,
        sums: &Accumulator<C>,
        unit: &Unit,
        slot: Slot,
    ) -> (Slot, Slot, Vec<Fragment<C>>) {
        let (mut last, mut next) = (slot, slot);
        let mut totals: Vec<Fragment<C>> = Vec::new();
        if self.plan.promoted {
            let zeros = |part: Fragment<C>| part.map(|_| val(C::ZERO));
            totals = sums.drain().into_iter().map(zeros).collect();
            for _ in 0..unit.count {
                self.pipe.wait(next);
                let (a, b) = self.tiles(next);
                sums.multiply(a, b, false);
                let parts = sums.drain();
                self.release_if(val(true), next);
                let add = |(total, part): (Fragment<C>, Fragment<C>)| {
                    total.with_values(total.values() + part.values())
                };
                totals = totals.iter().copied().zip(parts).map(add).collect();
                next = next.next();
            }
        } else {
            for step in 0..unit.count {
                self.pipe.wait(next);
                let (a, b) = self.tiles(next);
                sums.multiply(a, b, step > 0);
                // One product stays in flight, so the slot of the one before can go.
                sums.wait(1);
                self.release_if(step > 0, last);
                last = next;
                next = next.next();
            }
        }
        (last, next, totals)
    }

    /// Waits for the last product of a unit, and gives its sums.
    #[track_caller]
    fn finish<C: Number>(
        &self,
        sums: &Accumulator<C>,
        last: Slot,
        promoted: Vec<Fragment<C>>,
    ) -> Vec<Fragment<C>> {
        if self.plan.promoted {
            return promoted;
        }
        sums.wait(0);
        self.release_if(val(true), last);
        sums.drain()
    }

    /// The corner of its rows of a tile.
    #[track_caller]
    fn rows_from(&self, corner: Corner) -> Corner {
        Corner { row: corner.row + self.member() * self.plan.rows_of_group(), ..corner }
    }

    /// Brings this block's columns of a tile to D, the sums of which it gets from all blocks of the cluster.
    #[track_caller]
    fn join<C: Number, R: Number>(
        &self,
        (results, corner, round): (&Results<R>, Corner, Val<u32>),
        join: Join<C>,
        parts: &[Fragment<C>],
    ) {
        join.exchange(self.group, parts);
        results.write(corner, (self.group, round), &mut |slab, first, columns| {
            join.total(self.group, parts, (slab, first, columns)).cast()
        });
    }

    /// Brings the sums of a unit to D, by way of the workspace if they are not those of a whole tile.
    #[device]
    fn deliver<C: Number, R: Number>(
        &self,
        (results, corner, round): (&Results<R>, Corner, Val<u32>),
        exchange: Option<(Exchange<C>, Part)>,
        (unit, rank): (&Unit, Option<Val<u32>>),
        parts: &[Fragment<C>],
    ) {
        let own = |slab: u32, first, columns| parts[slab as usize].columns(first, columns);
        let direct = || {
            results.write(corner, (self.group, round), &mut |slab, first, columns| {
                own(slab, first, columns).cast()
            });
        };
        let combined = |exchange: Exchange<C>, part: Part| {
            let (last, slots) = exchange.leave(unit, part, rank, (self.member(), self.group), parts);
            if last {
                results.write(corner, (self.group, round), &mut |slab, first, columns| {
                    slots.total(slab, first, own(slab, first, columns)).cast()
                });
            }
        };
        match exchange {
            None => direct(),
            Some((exchange, part)) => match part.whole {
                None => combined(exchange, part),
                Some(whole) => {
                    if whole {
                        direct();
                    } else {
                        combined(exchange, part);
                    }
                }
            },
        }
    }
}
