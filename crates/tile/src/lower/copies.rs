//! Factors that threads bring themselves, with `cp.async`: 16 bytes a copy, past the registers, while they multiply what came before.
//!
//! ```text
//! before the loop:  start rounds 0, 1, … of all slots but one, a group of copies each
//! every round:      wait for its group; barrier; start the round that the last slot is free for; multiply (mma.sync)
//! ```
//!
//! A round that the loop does not get to has an empty group, so that all count alike. Places in memory are those that the loop's body
//! computes, computed again from the counter of the round to come. Elements outside of the tensor are not read: the copy fills up with
//! zeros. In shared memory, units of 16 bytes are swizzled ([`Lines`](super::dot::Lines)).
//!
//! The same ring serves loops that do not multiply, where a thread reads nothing but what it has copied itself ([`rounds`](super::rounds)): there
//! is no barrier then, and a round starts the one to come before it waits for its own.

use std::ops::Range;
use std::rc::Rc;

use tilewright_ir::{Align, Bytes, Cmp, Count, Op, OpData, Opcode, Region, Space, Type, Value};

use super::assign::{Box3, Order, bytes};
use super::engine::Ring;
use super::factors::root;
use super::layout::Layout;
use super::pipeline::{Form, Loads, Mechanism};
use super::touched::Touched;
use super::{Held, Lowering};

const SHARED: Type = Type::Pointer(Space::Shared);

/// Bytes of a copy.
pub(super) const UNIT: u32 = 16;

/// What the ring is called among the pieces of shared memory: behind all exchanges.
const RING: Range<u32> = u32::MAX - 1..u32::MAX;

/// One copy of a thread.
pub(super) struct Copy {
    pub(super) to: Value,
    pub(super) from: Value,
    /// How many bytes are read, if not all.
    pub(super) read: Option<Value>,
    /// Whether it is this thread's to start.
    pub(super) here: Option<Value>,
}

/// What the threads bring ahead for a loop body.
#[derive(Debug, Clone)]
pub(super) struct Rounds {
    pub(super) loads: Loads,
    /// Slots of the ring, and bytes of one.
    pub(super) stages: u32,
    pub(super) slot_bytes: u32,
    /// Whether threads read what others have copied.
    pub(super) shared: bool,
}

impl Lowering<'_> {
    /// What the threads bring ahead of the factors of a loop body.
    pub(super) fn copied(&self, body: Region) -> Option<Rounds> {
        let pipeline = self.pipeline.as_ref().filter(|p| p.mechanism == Mechanism::Threads)?;
        let (stages, slot_bytes) = (pipeline.stages, pipeline.slot_bytes);
        pipeline.groups.get(&body).map(|loads| Rounds {
            loads: loads.clone(),
            stages,
            slot_bytes,
            shared: true,
        })
    }

    /// Starts the first rounds of a loop.
    pub(super) fn start_rounds(&mut self, data: &OpData, rounds: &Rounds) {
        let Rounds { loads, stages, slot_bytes, shared } = rounds;
        let (stages, slot_bytes) = (*stages, *slot_bytes);
        // Loops take turns with the ring that threads share: a barrier is between them.
        let tiles = match self.ring.filter(|_| *shared) {
            Some(ring) => ring.tiles,
            None => {
                let attrs = [Bytes(stages * slot_bytes).into(), Align(128).into()];
                self.early(Opcode::Shared, [], attrs, SHARED)
            }
        };
        let zero = self.u32(0);
        self.ring = Some(Ring::of_threads(tiles, (stages, slot_bytes), zero));
        for &load in &loads.loads {
            let root = root(self.source, self.source.op(load).operands[0]);
            self.touch_global(Touched { root, writes: false, place: None, in_text: false, by: None });
        }
        if *shared {
            self.touch(&RING, true);
        }
        let [low, _, step] = [0, 1, 2].map(|i| self.scalar(data.operands[i]));
        let mut counter = low;
        for slot in 0..stages - 1 {
            let slot = self.u32(slot);
            self.start_round(data, loads, counter, slot);
            counter = self.binary(Opcode::Add, counter, step);
        }
    }

    /// A round begins: what it loads is there, and the next one that has room is started.
    pub(super) fn enter_round(&mut self, data: &OpData, rounds: &Rounds, counter: Value) {
        let Some(ring) = self.ring else { return };
        if rounds.shared {
            self.push(Opcode::CpAsyncWait, [], [Count(ring.stages - 2).into()], []);
            self.block_barrier();
            self.use_of(&RING);
        }
        let step = self.scalar(data.operands[2]);
        let (ty, last) = (self.builder.func.ty(step), ring.stages - 1);
        let times = self.constant(ty, u64::from(last));
        let ahead = self.binary(Opcode::Mul, step, times);
        let counter = self.binary(Opcode::Add, counter, ahead);
        // The slot before this one, which the round before has read.
        let (zero, one, last) = (self.u32(0), self.u32(1), self.u32(last));
        let wraps = self.value(Opcode::Cmp, [ring.slot, zero], [Cmp::Eq.into()], Type::BOOL);
        let before = self.binary(Opcode::Sub, ring.slot, one);
        let free = self.value(Opcode::Select, [wraps, last, before], [], Type::U32);
        self.start_round(data, &rounds.loads, counter, free);
        if !rounds.shared {
            self.push(Opcode::CpAsyncWait, [], [Count(ring.stages - 1).into()], []);
        }
    }

    /// Starts the copies of the round with this counter, if there is one.
    fn start_round(&mut self, data: &OpData, loads: &Loads, counter: Value, slot: Value) {
        let (source, body, loc) = (self.source, data.regions[0], self.loc);
        let high = self.scalar(data.operands[1]);
        let here = self.value(Opcode::Cmp, [counter, high], [Cmp::Lt.into()], Type::BOOL);
        let of_body: Vec<Value> = std::iter::once(source.region(body).args[0])
            .chain(loads.scalars.iter().flat_map(|&op| source.op(op).results.iter().copied()))
            .collect();
        let held: Vec<Option<Held>> = of_body.iter().map(|value| self.held[value.index()].clone()).collect();
        self.hold(of_body[0], Held::Scalar(counter));
        for &op in &loads.scalars {
            self.copy(source.op(op));
        }
        let copies: Vec<Copy> = loads.loads.iter().flat_map(|&load| self.copies(load, slot)).collect();
        self.only_if(Some(here), |this| {
            for Copy { to, from, read, here } in copies {
                let operands: Vec<Value> = [to, from].into_iter().chain(read).collect();
                this.only_if(here, |this| {
                    this.push(Opcode::CpAsync, operands, [Bytes(UNIT).into()], []);
                });
            }
        });
        self.push(Opcode::CpAsyncCommit, [], [], []);
        for (value, held) in of_body.into_iter().zip(held) {
            self.held[value.index()] = held;
        }
        self.loc = loc;
    }

    /// The copies of this thread for a load.
    fn copies(&mut self, load: Op, slot: Value) -> Vec<Copy> {
        let data = self.source.op(load);
        self.loc = data.loc;
        let Some(ring) = self.ring else { return Vec::new() };
        if let Some(own) = self.own.get(&load).cloned() {
            return self.copies_ahead(data, &own, &ring, slot);
        }
        let Some(staged) = self.staged(load).cloned() else { return Vec::new() };
        let Form::Lines { lines, .. } = staged.form else { return Vec::new() };
        let (fast, slow) = (staged.fast, 1 - staged.fast);
        let element = self.element(data.results[0]);
        let vector = UNIT / bytes(element);
        let order = Order { axes: vec![fast, slow], vector };
        let layout = Layout::blocked(self.shape(data.results[0]), &order.axes, vector, self.team());
        let layout = Rc::new(layout);
        let runs = self.runs(data, &layout, &order, element);
        let parts = Box3::of(data, 2);
        let whole = self.align.at(parts.extents[fast], 0).is_multiple_of(u64::from(vector));
        let base = self.slot_at(&ring, slot, staged.offset);
        let (line, along) = (self.base(&layout, slow), self.base(&layout, fast));
        let shift = self.u32(vector.trailing_zeros());
        let unit = self.early(Opcode::Shr, [along, shift], [], Type::U32);
        let first = self.is_first(&layout);
        let mut copies = Vec::with_capacity(runs.len());
        for run in runs {
            let offset = layout.offset(run.registers[0]);
            let to = self.unit_address(base, lines, (line, offset[slow]), (unit, offset[fast] / vector));
            let read = run.inside.map(|inside| {
                let all = self.u32(UNIT);
                let some = if whole {
                    all
                } else {
                    // What is left of the row, in this vector.
                    let (start, extent) = (self.scalar(parts.starts[fast]), self.scalar(parts.extents[fast]));
                    let start = self.value(Opcode::Bitcast, [start], [], Type::U32);
                    let own = self.u32(offset[fast]);
                    let own = self.early(Opcode::Add, [along, own], [], Type::U32);
                    let at = self.binary(Opcode::Add, start, own);
                    let left = self.binary(Opcode::Sub, extent, at);
                    let most = self.u32(vector);
                    let left = self.binary(Opcode::Min, left, most);
                    let size = self.u32(bytes(element));
                    self.binary(Opcode::Mul, left, size)
                };
                let none = self.u32(0);
                self.value(Opcode::Select, [inside, some, none], [], Type::U32)
            });
            let own = self.is_inside(&layout, &offset);
            let here = self.both(own, first);
            copies.push(Copy { to, from: run.address, read, here });
        }
        copies
    }
}
