//! Loads of later rounds, in loops whose threads wait for each other.
//!
//! A loop that combines what it loads, row by row, has everybody wait for memory, then for each other, and memory has nothing to do meanwhile.
//! So the loads of rounds to come begin before, with `cp.async`, into the ring of [`copies`](super::copies): a thread's own elements in the
//! thread's own places, so that it waits for nobody but itself, and holds no registers for what is on its way.
//!
//! A loop takes part if it stands in the body of the function and something is combined along an axis in it. A load of it does if its place
//! follows from the loop's counter, it is accessed in vectors of 16 bytes, what is outside of the tensor counts as zero, and the loop does not
//! write to its tensor. There must be shared memory for two slots with as many blocks on a multiprocessor as there are without.

use std::rc::Rc;

use tilewright_hardware::Arch;
use tilewright_ir::{Element, Op, OpData, Opcode, Region, Space, Type, Value};
use tilewright_passes::RemarkKind;

use super::assign::{Order, bytes, constant};
use super::copies::{Copy, Rounds, UNIT};
use super::engine::Ring;
use super::factors::{follows, is_written};
use super::fetch::in_units;
use super::layout::Layout;
use super::pipeline::Loads;
use super::{Held, Lowering, Tile};

/// Bytes that a block should have on their way; two blocks with as much keep the memory of a multiprocessor busy.
const AHEAD: u32 = 32 << 10;

/// Slots of a ring, at most.
const MOST_STAGES: u32 = 4;

/// A load of which a thread copies what it reads itself.
#[derive(Debug, Clone)]
pub(super) struct Own {
    layout: Rc<Layout>,
    order: Order,
    element: Element,
    /// Where it is in its slot.
    offset: u32,
}

impl Lowering<'_> {
    /// What the threads bring ahead for a loop body, each for itself.
    pub(super) fn own_rounds(&mut self, body: Region) -> Option<Rounds> {
        let alone = self.team().warps == 1 && self.team().blocks == 1;
        if self.pipeline.is_some() || alone || self.rounds > 0 || !self.arch.supports(Arch::SM_80) {
            return None;
        }
        let source = self.source;
        let mut inside = Vec::new();
        source.walk_region(body, &mut inside);
        let waits = |op: &Op| matches!(source.op(*op).code, Opcode::TileReduce | Opcode::TileScan);
        if !inside.iter().any(waits) {
            return None;
        }
        let (mut loads, mut slot_bytes) = (Loads::default(), 0);
        for &op in &source.region(body).ops {
            let mut scalars = loads.scalars.clone();
            if let Some((own, bytes)) = self.own_load(body, op, &inside, &mut scalars) {
                loads.scalars = scalars;
                loads.loads.push(op);
                self.own.insert(op, Own { offset: slot_bytes, ..own });
                slot_bytes += bytes;
            }
        }
        let wanted = 1 + AHEAD.div_ceil(slot_bytes.max(1));
        let stages = wanted.clamp(2, MOST_STAGES).min(self.room() / slot_bytes.max(1));
        if loads.loads.is_empty() || stages < 2 {
            loads.loads.iter().for_each(|op| drop(self.own.remove(op)));
            return None;
        }
        for &op in &loads.loads {
            self.loc = source.op(op).loc;
            let rounds = if stages == 2 { "a round".to_owned() } else { format!("{} rounds", stages - 1) };
            let what = format!("loaded {rounds} ahead, into {slot_bytes} bytes of shared memory for each");
            self.remark(RemarkKind::Applied, what);
        }
        Some(Rounds { loads, stages, slot_bytes, shared: false })
    }

    /// How a load takes part, and the bytes of all threads; the scalars that its place follows from go to the others.
    fn own_load(&self, body: Region, op: Op, inside: &[Op], scalars: &mut Vec<Op>) -> Option<(Own, u32)> {
        let (source, data) = (self.source, self.source.op(op));
        let pad = *data.operands.last()?;
        if data.code != Opcode::TileLoad || constant(source, pad) != Some(0) || is_written(source, op, inside)
        {
            return None;
        }
        let element = self.element(data.results[0]);
        let (layout, order) = (self.layout(data.results[0]), self.order(data));
        let ops = &source.region(body).ops;
        let is_known = |&value: &Value| follows(source, ops, value, scalars).is_ok();
        if !in_units(&layout, &order, element) || !data.operands.iter().all(is_known) {
            return None;
        }
        let of_thread = u32::try_from(layout.count()).ok()?.checked_mul(bytes(element))?;
        let bytes = of_thread.checked_mul(32 * self.team().warps)?;
        Some((Own { layout, order, element, offset: 0 }, bytes))
    }

    /// The copies of this thread for such a load.
    pub(super) fn copies_ahead(&mut self, data: &OpData, own: &Own, ring: &Ring, slot: Value) -> Vec<Copy> {
        let runs = self.runs(data, &own.layout, &own.order, own.element);
        let place = self.own_place(ring, slot, own);
        (0u32..).zip(&runs).map(|(i, run)| self.own_copy(place, i, run)).collect()
    }

    /// Reads what this thread has copied for the round; false if the load is no such.
    pub(super) fn pick_own(&mut self, op: Op, data: &OpData) -> bool {
        let (Some(own), Some(ring)) = (self.own.get(&op).cloned(), self.ring) else { return false };
        // Whoever writes to the tensor after the loop waits for those who read here.
        self.touch_box(data, &own.layout, own.element, None);
        let place = self.own_place(&ring, ring.slot, &own);
        // What is outside of the tensor was filled with zeros, which is what it counts as.
        let all = vec![None; own.layout.count() / (UNIT / bytes(own.element)) as usize];
        let registers = self.own_elements(place, own.element, &all);
        self.hold(data.results[0], Held::Tile(Tile { layout: own.layout, registers }));
        true
    }

    fn own_place(&mut self, ring: &Ring, slot: Value, own: &Own) -> Value {
        let start = self.slot_at(ring, slot, own.offset);
        let distance = self.own_distance();
        self.value(Opcode::PtrAdd, [start, distance], [], Type::Pointer(Space::Shared))
    }
}
