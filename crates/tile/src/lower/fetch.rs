//! Loads that begin before their place in the text.
//!
//! Weights are written where they are used: after the sums of a row are known, that is, after threads have waited for each other. A load that
//! began only there would have everybody wait for memory once more, and one that began at the start would hold registers all the while. So it
//! begins before the first wait and leaves its elements in shared memory, with `cp.async`: a thread's own elements in the thread's own place, so
//! that it waits for nobody but itself.
//!
//! ```text
//! before the first reduction or scan:  start the copies of each such load, a group for each
//! at its place in the text:            wait for its group; read what it left
//! ```
//!
//! A load takes part if it stands in the body of the function, is accessed in vectors of 16 bytes, nothing between that reduction and it writes
//! to its tensor, and there is shared memory for it with as many blocks on a multiprocessor as there are without.

use std::rc::Rc;

use tilewright_hardware::Arch;
use tilewright_ir::{
    Align, Bytes, Cache, Count, Element, Func, Index, Op, OpData, Opcode, Space, Special, Type, Value,
};
use tilewright_passes::RemarkKind;

use super::assign::{Order, bytes, constant};
use super::copies::{Copy, UNIT};
use super::factors::{follows, is_written};
use super::layout::Layout;
use super::memory::Run;
use super::{Held, Lowering, Tile, shared_bytes};

const SHARED: Type = Type::Pointer(Space::Shared);

/// What shared memory for copies is aligned to: lines of global memory. 16 bytes beside that, a row of 256 KB takes half as long again.
const LINE: u32 = 128;

/// Shared memory that is left for exchanges, unless they are known to need more.
pub(super) const EXCHANGES: u32 = 4 << 10;

/// Bytes up to which L1 keeps what is loaded: so little that other blocks of the multiprocessor, which load the same weights, find it there.
const SHORT: u32 = 16 << 10;

/// Elements that are on their way to a thread.
pub(super) struct Fetched {
    layout: Rc<Layout>,
    runs: Vec<Run>,
    /// Where the thread's first vector will be; the others follow, a round of all threads apart.
    place: Value,
    /// How many loads had begun when this one had, with it.
    number: u32,
}

impl Lowering<'_> {
    /// Begins the loads of a function's body that stand behind the first op for which threads wait for each other.
    pub(super) fn fetch(&mut self, ops: &[Op]) {
        if !self.arch.supports(Arch::SM_80) || self.pipeline.is_some() || self.team().warps == 1 {
            return;
        }
        let mut room = self.room();
        let (source, loc) = (self.source, self.loc);
        for (i, &op) in ops.iter().enumerate() {
            let before = || inside_of(source, &ops[..i]);
            let waits = |op: &Op| source.op(*op).code == Opcode::GridWait;
            if source.op(op).code == Opcode::TileLoad
                && let Some(scalars) = needed(source, op, ops)
                && !before().iter().any(waits)
                && !is_written(source, op, &before())
            {
                self.loc = source.op(op).loc;
                room -= self.begin(op, &scalars, room).unwrap_or(0);
            }
        }
        self.loc = loc;
    }

    /// Shared memory that is left, with as many blocks on a multiprocessor as the kernel asks for.
    pub(super) fn room(&self) -> u32 {
        let limits = self.arch.limits();
        let blocks = self.builder.func.launch.min_blocks.unwrap_or(1).max(1);
        let all = (limits.shared_per_sm / blocks).saturating_sub(limits.shared_reserved);
        let taken = shared_bytes(&self.builder.func, &self.prologue) + self.exchanges;
        all.min(limits.shared_per_block).saturating_sub(taken)
    }

    /// Begins a load, if it fits into so many bytes of shared memory; gives how many it takes.
    fn begin(&mut self, op: Op, scalars: &[Op], room: u32) -> Option<u32> {
        let data = self.source.op(op);
        let element = self.element(data.results[0]);
        let (layout, order) = (self.layout(data.results[0]), self.order(data));
        let threads = 32 * self.team().warps;
        let size = u32::try_from(layout.count()).ok()?.checked_mul(bytes(element))?.checked_mul(threads)?;
        if size > room || !in_units(&layout, &order, element) {
            return None;
        }
        // What the program has stored so far is there. Whoever writes after the load waits for it when it is at its place.
        self.come_to(&self.access_to_box(data, &layout, element, None));
        for &scalar in scalars {
            self.copy(self.source.op(scalar));
        }
        let runs = self.runs(data, &layout, &order, element);
        let base = self.early(Opcode::Shared, [], [Bytes(size).into(), Align(LINE).into()], SHARED);
        let own = self.own_distance();
        let place = self.early(Opcode::PtrAdd, [base, own], [], SHARED);
        let keeps = size <= SHORT && self.team().blocks == 1;
        let cache = if keeps { Cache::All } else { Cache::Global };
        for (i, run) in (0u32..).zip(&runs) {
            let Copy { to, from, read, .. } = self.own_copy(place, i, run);
            let operands = [to, from].into_iter().chain(read);
            self.push(Opcode::CpAsync, operands, [Bytes(UNIT).into(), cache.into()], []);
        }
        self.push(Opcode::CpAsyncCommit, [], [], []);
        let what = format!("loaded before threads wait for each other, into {size} bytes of shared memory");
        self.remark(RemarkKind::Applied, what);
        self.begun += 1;
        self.fetched.insert(op, Fetched { layout, runs, place, number: self.begun });
        Some(size)
    }

    /// Reads what a load has brought that has begun before; false if it has not.
    pub(super) fn pick_fetched(&mut self, op: Op, data: &OpData) -> bool {
        let Some(Fetched { layout, runs, place, number }) = self.fetched.remove(&op) else { return false };
        let (result, pad) = (data.results[0], data.operands[data.operands.len() - 1]);
        let element = self.element(result);
        let is_zero = constant(self.source, pad) == Some(0);
        let pad = self.scalar(pad);
        // Whoever writes to the tensor after this place waits for those who read here.
        self.touch_box(data, &layout, element, None);
        self.push(Opcode::CpAsyncWait, [], [Count(self.begun - number).into()], []);
        // What is outside was filled with zeros.
        let masks = runs.into_iter().map(|run| run.inside.filter(|_| !is_zero).map(|inside| (inside, pad)));
        let registers = self.own_elements(place, element, &masks.collect::<Vec<_>>());
        self.hold(result, Held::Tile(Tile { layout, registers }));
        true
    }

    /// How far behind the place of the first thread that of this one is.
    pub(super) fn own_distance(&mut self) -> Value {
        let thread = self.early(Opcode::Special, [], [Special::TidX.into()], Type::U32);
        let unit = self.u32(UNIT);
        self.early(Opcode::Mul, [thread, unit], [], Type::U32)
    }

    /// The copy of a run to a thread's own place: the first is there, the others a round of all threads apart.
    pub(super) fn own_copy(&mut self, place: Value, number: u32, run: &Run) -> Copy {
        let to = self.further(place, number * 32 * self.team().warps * UNIT);
        let read = run.inside.map(|inside| {
            let (unit, none) = (self.u32(UNIT), self.u32(0));
            self.value(Opcode::Select, [inside, unit, none], [], Type::U32)
        });
        Copy { to, from: run.address, read, here: None }
    }

    /// The elements at such a place, vector by vector; where a mask does not hold, what comes with it.
    pub(super) fn own_elements(
        &mut self,
        place: Value,
        element: Element,
        masks: &[Option<(Value, Value)>],
    ) -> Vec<Value> {
        let (vector, round) = (UNIT / bytes(element).min(UNIT), 32 * self.team().warps * UNIT);
        let ty = Type::Vector(element, u16::try_from(vector).unwrap_or(1));
        let mut registers = Vec::with_capacity(masks.len() * vector as usize);
        for (i, mask) in (0u32..).zip(masks) {
            let from = self.further(place, i * round);
            let loaded = match *mask {
                None => self.value(Opcode::Load, [from], [], ty),
                Some((inside, pad)) => {
                    let other = self.value(Opcode::Pack, vec![pad; vector as usize], [], ty);
                    self.value(Opcode::LoadIf, [from, inside, other], [], ty)
                }
            };
            for i in 0..vector {
                let one = Type::Scalar(element);
                registers.push(self.value(Opcode::Extract, [loaded], [Index(i).into()], one));
            }
        }
        registers
    }
}

/// Whether a layout has all elements in vectors of [`UNIT`], side by side in memory.
pub(super) fn in_units(layout: &Layout, order: &Order, element: Element) -> bool {
    let along = layout.registers.first().filter(|d| d.axis == Some(order.fast()) && d.stride == 1);
    let vector = UNIT / bytes(element).min(UNIT);
    order.vector == vector && along.is_some_and(|digit| digit.extent.is_multiple_of(vector))
}

/// The scalars among some ops that a load's place follows from; none if it follows from anything else that is not known yet.
fn needed(func: &Func, load: Op, ops: &[Op]) -> Option<Vec<Op>> {
    let mut found = Vec::new();
    let mut operands = func.op(load).operands.iter();
    operands.all(|&value| follows(func, ops, value, &mut found).is_ok()).then_some(found)
}

/// Ops and what is inside of them.
fn inside_of(func: &Func, ops: &[Op]) -> Vec<Op> {
    let mut all = ops.to_vec();
    for &op in ops {
        func.op(op).regions.iter().for_each(|&region| func.walk_region(region, &mut all));
    }
    all
}
