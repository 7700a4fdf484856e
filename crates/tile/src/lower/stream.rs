//! Long rows stream through shared memory: while a program computes with a row in registers, the copy engine brings the row of the next one.
//!
//! Programs of several blocks wait for each other again and again, and then nobody asks memory for anything. So they take [`turns`](super::turns),
//! and each load of a row has a slot in shared memory with a barrier object:
//!
//! ```text
//! before:     one thread starts the copy of the first program's row
//! each turn:  wait until the slot is full; read own elements to registers; block barrier;
//!             one thread starts the copy of the next program's row; everything else as ever
//! ```
//!
//! Each block copies its own share of a row, which lies in one piece: one bulk copy. Registers and slot are a double buffer.
//!
//! A load takes part if it stands in the body of the program, before anything is written, and its box is a row: contiguous, in full vectors of
//! 16 bytes, held as it is loaded, by one thread each. The box must depend on the number of the program by plain arithmetic, which is done
//! again for the next number; what is the same for all programs stays in the caches anyway. And the program does not write to that tensor.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use tilewright_hardware::Arch;
use tilewright_ir::{
    AccessKind, Align, Bytes, Cmp, Def, Func, Group, Op, OpData, Opcode, Space, Special, Type, Value,
};
use tilewright_passes::{Alignment, RemarkKind};

use super::assign::{Box3, Plan, bytes, constant, memory_order};
use super::layout::{Digit, Holder, Layout, Team};
use super::memory::Run;
use super::pipeline::root;
use super::turns::Queue;
use super::{Held, Lowering, Result, Tile};

const SHARED: Type = Type::Pointer(Space::Shared);

/// Bytes of one access.
const VECTOR: u32 = 16;

/// What a block must have of a row for a copy to be worth its barriers.
const LEAST_SHARE: u32 = 8 * 1024;

/// Shared memory that barrier objects and the gaps between pieces may take.
const SLACK: u32 = 256;

/// Whether rows are long enough to stream: where several blocks have to wait for each other.
fn is_worth_it(team: Team) -> bool {
    team.blocks > 1
}

/// A load whose rows stream.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    op: Op,
    pointer: Option<Value>,
    layout: Rc<Layout>,
    fast: usize,
    /// Elements that one block has.
    share: u32,
    size: u32,
    /// The ops that make its box, in order.
    scalars: Vec<Op>,
    /// Where the slot starts.
    offset: u32,
}

/// Where a block stands.
#[derive(Debug, Clone, Copy)]
struct Standing {
    queue: Queue,
    /// Slots, and their barrier objects.
    slots: Value,
    full: Value,
    /// The parity of this turn.
    phase: Value,
    /// The number of its program; none before the first.
    number: Option<Value>,
}

/// All of it for one function.
#[derive(Debug, Default)]
pub(super) struct Streams {
    loads: Vec<Stream>,
    standing: Option<Standing>,
}

impl Streams {
    /// The loads that can stream if so many blocks share a multiprocessor, with so much shared memory for exchanges.
    pub(super) fn of(
        func: &Func,
        arch: Arch,
        align: &Alignment,
        plan: &Plan,
        (blocks, scratch): (u32, u32),
    ) -> Streams {
        let others =
            |&op: &Op| matches!(func.op(op).code, Opcode::Dot | Opcode::GridWait | Opcode::GridLaunch);
        if !arch.supports(Arch::SM_90) || !is_worth_it(plan.team) || func.walk().iter().any(others) {
            return Streams::default();
        }
        let limits = arch.limits();
        let most = (limits.shared_per_sm / blocks.max(1)).saturating_sub(limits.shared_reserved);
        let room = most.min(limits.shared_per_block).saturating_sub(scratch + SLACK);
        let mut loads = Vec::new();
        let mut used = 0;
        for &op in &func.region(func.body()).ops {
            if writes(func, op) {
                break;
            }
            if let Some(stream) = Stream::of(func, align, plan, op)
                && used + stream.bytes() <= room
            {
                used += stream.bytes();
                loads.push(Stream { offset: used - stream.bytes(), ..stream });
            }
        }
        Streams { loads, standing: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// Whether a pointer goes to a tensor whose rows stream.
    pub(super) fn bring(&self, func: &Func, pointer: Value) -> bool {
        let pointer = root(func, pointer);
        pointer.is_some() && self.loads.iter().any(|stream| stream.pointer == pointer)
    }
}

impl Stream {
    fn of(func: &Func, align: &Alignment, plan: &Plan, op: Op) -> Option<Stream> {
        let data = func.op(op);
        if data.code != Opcode::TileLoad {
            return None;
        }
        let result = data.results[0];
        let (shape, size) = (func.ty(result).shape()?, bytes(func.ty(result).element()?));
        let order = memory_order(func, align, data)?;
        let fast = order.fast();
        let is_row = (0..shape.rank()).all(|axis| axis == fast || shape.extents()[axis] == 1);
        let parts = Box3::of(data, shape.rank());
        let contiguous =
            constant(func, parts.strides[fast]) == Some(1) && order.vector.checked_mul(size) == Some(VECTOR);
        let layout = plan.layout(result)?;
        let share = share(&layout, fast, order.vector)?;
        let pointer = root(func, data.operands[0]);
        let (scalars, depends) = scalars(func, &data.operands[..data.operands.len() - 1])?;
        let fits = is_row
            && contiguous
            && share * size >= LEAST_SHARE
            && depends
            && pointer.is_some_and(|pointer| !is_written(func, pointer));
        fits.then_some(Stream { op, pointer, layout, fast, share, size, scalars, offset: 0 })
    }

    fn bytes(&self) -> u32 {
        self.share * self.size
    }
}

/// What a block has along an axis, if that is one piece, held by one thread each, in vectors of which neighbouring lanes have neighbours.
fn share(layout: &Layout, fast: usize, vector: u32) -> Option<u32> {
    let along = |digit: &&Digit| digit.axis == Some(fast);
    let first = layout.registers.first().filter(along)?;
    let lane = layout.digits(Holder::Lane).first().filter(along)?;
    let side_by_side =
        first.stride == 1 && first.extent.is_multiple_of(vector) && lane.stride == first.extent;
    let reach = layout.reach(fast);
    let share = match layout.digits(Holder::Block) {
        [] => reach,
        // Digits count every position once: what lies below the stride of this one is all that the others count.
        [block] if block.axis == Some(fast) && block.stride * block.extent == reach => block.stride,
        _ => return None,
    };
    (side_by_side && !layout.has_copies()).then_some(share)
}

fn is_write(func: &Func, op: Op) -> bool {
    func.op(op).info().effects.accesses.iter().any(|access| access.kind != AccessKind::Read)
}

/// Whether an op writes to memory, or one inside of it does.
fn writes(func: &Func, op: Op) -> bool {
    let mut inside = Vec::new();
    func.op(op).regions.iter().for_each(|&region| func.walk_region(region, &mut inside));
    is_write(func, op) || inside.into_iter().any(|op| is_write(func, op))
}

/// Whether the function may write through a pointer.
fn is_written(func: &Func, pointer: Value) -> bool {
    func.walk().into_iter().filter(|&op| is_write(func, op)).any(|op| {
        let to = func.op(op).operands.first().and_then(|&to| root(func, to));
        to.is_none_or(|to| to == pointer)
    })
}

/// The ops of the body that scalars are made by, in order, and whether the number of the program is among them; none if they do more than
/// arithmetic.
fn scalars(func: &Func, values: &[Value]) -> Option<(Vec<Op>, bool)> {
    let mut found = HashSet::new();
    let mut left = values.to_vec();
    let mut depends = false;
    while let Some(value) = left.pop() {
        let op = match func.value(value).def {
            Def::Arg(region, _) if region == func.body() => continue,
            Def::Arg(..) => return None,
            Def::Result(op, _) => op,
        };
        let data = func.op(op);
        let effects = &data.info().effects;
        let special = data.get::<Special>();
        let number = |which: Special| matches!(which, Special::CtaidX | Special::CtaidY | Special::CtaidZ);
        let count = |which: Special| matches!(which, Special::NctaidX | Special::NctaidY | Special::NctaidZ);
        let plain = effects.accesses.is_empty()
            && !effects.orders
            && !effects.control
            && data.regions.is_empty()
            && data.info().group != Group::Program
            && special.is_none_or(|which| number(which) || count(which));
        if !plain {
            return None;
        }
        depends |= special.is_some_and(number);
        if found.insert(op) {
            left.extend_from_slice(&data.operands);
        }
    }
    let body = &func.region(func.body()).ops;
    let ordered: Vec<Op> = body.iter().copied().filter(|op| found.contains(op)).collect();
    (ordered.len() == found.len()).then_some((ordered, depends))
}

impl Lowering<'_> {
    /// All programs of this block, the row of the next always on its way.
    pub(super) fn streamed(&mut self) -> Result<()> {
        let body = self.source.body();
        self.announce();
        let Some(queue) = self.queue() else { return self.region(body) };
        let loads = self.streams.loads.clone();
        let all: u32 = loads.iter().map(Stream::bytes).sum();
        let shared = |this: &mut Self, bytes: u32, align: u32| {
            this.early(Opcode::Shared, [], [Bytes(bytes).into(), Align(align).into()], SHARED)
        };
        let slots = shared(self, all, 128);
        let full = shared(self, 8 * u32::try_from(loads.len()).unwrap_or(1), 8);
        let (zero, one) = (self.u32(0), self.u32(1));
        let before = Standing { queue, slots, full, phase: zero, number: None };
        self.streams.standing = Some(before);
        self.on_first(|this| {
            for index in 0..loads.len() {
                let barrier = this.barrier_of(full, index);
                this.push(Opcode::MbarInit, [barrier, one], [], []);
            }
            this.push(Opcode::FenceMbarInit, [], [], []);
        });
        self.block_barrier();
        for index in 0..loads.len() {
            self.bring_next(index);
        }
        self.await_others();
        self.take_turns(&queue, &[zero], |this, number, carried| {
            let phase = carried[0];
            this.streams.standing = Some(Standing { phase, number: Some(number), ..before });
            this.begin_turn(phase);
            this.afresh(|this| this.region(body))?;
            this.end_turn();
            Ok(vec![this.binary(Opcode::Xor, phase, one)])
        })
    }

    fn barrier_of(&mut self, full: Value, index: usize) -> Value {
        self.further(full, 8 * u32::try_from(index).unwrap_or(0))
    }

    /// Loads a row that streams: reads its slot, and has the row of the next program brought there. Whether it is one.
    pub(super) fn stream_in(&mut self, op: Op, data: &OpData) -> Result<bool> {
        let found = self.streams.loads.iter().position(|stream| stream.op == op);
        let (Some(index), Some(at)) = (found, self.streams.standing) else { return Ok(false) };
        let Stream { layout, fast, size, offset, .. } = self.streams.loads[index].clone();
        let result = data.results[0];
        let element = self.checked_element(data, result)?;
        self.remark(
            RemarkKind::Applied,
            "programs take turns, and the row of the next one is copied to shared memory meanwhile"
                .to_owned(),
        );
        self.touch_box(data, &data.operands[1..data.operands.len() - 1], &layout, element, false);
        let barrier = self.barrier_of(at.full, index);
        self.push(Opcode::MbarWait, [barrier, at.phase], [], []);

        let pad = self.scalar(data.operands[data.operands.len() - 1]);
        let parts = Box3::of(data, layout.shape.rank());
        let (base, of_block) = (self.base(&layout, fast), self.share_start(index));
        let own = self.early(Opcode::Sub, [base, of_block], [], Type::U32);
        let size_value = self.u32(size);
        let distance = self.early(Opcode::Mul, [own, size_value], [], Type::U32);
        let own = self.early(Opcode::PtrAdd, [at.slots, distance], [], SHARED);
        let mut bounds = self.bounds(&parts, &layout);
        let mut registers = vec![pad; layout.count()];
        let vector = (VECTOR / size) as usize;
        for first in (0..layout.count()).step_by(vector) {
            let place = layout.offset(first);
            let address = self.further(own, offset + place[fast] * size);
            let inside = self.inside(&mut bounds, &parts, &layout, &place);
            let run = Run { registers: first..first + vector, address, inside };
            self.read(&run, pad, element, &[], &mut registers);
        }
        self.hold(result, Held::Tile(Tile { layout, registers }));
        self.block_barrier();
        self.bring_next(index);
        Ok(true)
    }

    /// Where this block's share of a row starts, in elements.
    fn share_start(&mut self, index: usize) -> Value {
        let Stream { layout, share, .. } = self.streams.loads[index].clone();
        let Some(&block) = layout.digits(Holder::Block).first() else { return self.u32(0) };
        let (number, share) =
            (self.digit(Holder::Block, 1, block, layout.digits(Holder::Block)), self.u32(share));
        self.early(Opcode::Mul, [number, share], [], Type::U32)
    }

    /// If there is another program, one thread starts the copy of its row.
    fn bring_next(&mut self, index: usize) {
        let Some(at) = self.streams.standing else { return };
        let source = self.source;
        let scalars = self.streams.loads[index].scalars.clone();
        self.on_first(|this| {
            let next = match at.number {
                Some(number) => this.binary(Opcode::Add, number, at.queue.apart),
                None => at.queue.first,
            };
            let more = this.value(Opcode::Cmp, [next, at.queue.all], [Cmp::Lt.into()], Type::BOOL);
            this.when(more, |this| {
                let program = this.numbered(&at.queue, next);
                let before = this.program.replace(program);
                let results = || scalars.iter().flat_map(|&op| source.op(op).results.iter().copied());
                let held: HashMap<Value, Option<Held>> =
                    results().map(|value| (value, this.held[value.index()].clone())).collect();
                for &op in &scalars {
                    this.copy(source.op(op));
                }
                this.start_row(index, at);
                for (value, held) in held {
                    this.held[value.index()] = held;
                }
                this.program = before;
            });
        });
    }

    /// Starts the copy of a row whose box is that of the scalars as they stand.
    fn start_row(&mut self, index: usize, at: Standing) {
        let Stream { op, layout, fast, share, size, offset, .. } = self.streams.loads[index].clone();
        let data = self.source.op(op);
        let parts = Box3::of(data, layout.shape.rank());
        let size = i64::from(size);
        let others: Vec<usize> = (0..layout.shape.rank()).filter(|&axis| axis != fast).collect();

        // The row itself may lie outside of the tensor.
        let mut exists = None;
        for &axis in &others {
            if self.never_leaves(&parts, &layout, axis) {
                continue;
            }
            let start = self.scalar(parts.starts[axis]);
            let start = self.value(Opcode::Bitcast, [start], [], Type::U32);
            let extent = self.scalar(parts.extents[axis]);
            let inside = self.value(Opcode::Cmp, [start, extent], [Cmp::Lt.into()], Type::BOOL);
            exists = self.both(exists, Some(inside));
        }
        // Elements of the share that are inside, from where on, and how far that is from its start.
        let (start, own) = (self.scalar(parts.starts[fast]), self.share_start(index));
        let [start, own] = [start, own].map(|value| self.value(Opcode::Cvt, [value], [], Type::I64));
        let low = self.binary(Opcode::Add, start, own);
        let whole = self.never_leaves(&parts, &layout, fast) && !layout.is_padded(fast);
        let (from, skipped, count) = if whole {
            (low, None, self.i64(i64::from(share)))
        } else {
            let (share, tile) = (self.i64(share.into()), self.i64(layout.shape.extents()[fast].into()));
            let extent = self.scalar(parts.extents[fast]);
            let extent = self.value(Opcode::Cvt, [extent], [], Type::I64);
            let zero = self.i64(0);
            let ends = [self.binary(Opcode::Add, low, share), self.binary(Opcode::Add, start, tile)];
            let end = ends.into_iter().fold(extent, |end, other| self.binary(Opcode::Min, end, other));
            let from = self.binary(Opcode::Max, low, zero);
            let count = self.binary(Opcode::Sub, end, from);
            let skipped = self.binary(Opcode::Sub, from, low);
            (from, Some(skipped), self.binary(Opcode::Max, count, zero))
        };
        let size = self.i64(size);
        let bytes = self.binary(Opcode::Mul, count, size);
        let mut bytes = self.value(Opcode::Cvt, [bytes], [], Type::U32);
        let zero = self.u32(0);
        if let Some(exists) = exists {
            bytes = self.value(Opcode::Select, [exists, bytes, zero], [], Type::U32);
        }
        let barrier = self.barrier_of(at.full, index);
        self.push(Opcode::MbarArriveExpect, [barrier, bytes], [], []);

        let mut distance = from;
        for axis in others {
            let (start, stride) = (self.scalar(parts.starts[axis]), self.scalar(parts.strides[axis]));
            let start = self.value(Opcode::Cvt, [start], [], Type::I64);
            let across = self.binary(Opcode::Mul, start, stride);
            distance = self.binary(Opcode::Add, distance, across);
        }
        let distance = self.binary(Opcode::Mul, distance, size);
        let pointer = self.scalar(data.operands[0]);
        let address = self.value(Opcode::PtrAdd, [pointer, distance], [], Type::Pointer(Space::Global));
        let mut to = self.further(at.slots, offset);
        if let Some(skipped) = skipped {
            let skipped = self.binary(Opcode::Mul, skipped, size);
            let skipped = self.value(Opcode::Cvt, [skipped], [], Type::U32);
            to = self.value(Opcode::PtrAdd, [to, skipped], [], SHARED);
        }
        let any = self.value(Opcode::Cmp, [bytes, zero], [Cmp::Ne.into()], Type::BOOL);
        self.when(any, |this| {
            this.push(Opcode::BulkLoad, [to, address, bytes, barrier], [], []);
        });
    }
}
