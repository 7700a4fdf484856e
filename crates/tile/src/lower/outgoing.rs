//! A store that the copy engine makes: on Hopper, sums of products leave registers for shared memory, and from there go their own way while
//! the next program's products are under way.
//!
//! The tile is written panel by panel, 128 bytes of every row, in the swizzle that the tensor map names: neighbouring lanes of an accumulator
//! hold different rows, and without it they would meet at the same banks. A ring of panels is enough, as each is free again when the engine
//! has read it; a warp of its own does better, where there is one ([`storer`](super::storer)). What lies outside of the tensor the engine leaves
//! out.
//!
//! Where warpgroups have programs of their own, so each has panels, of half the rows: while one stores, the other multiplies, and what matters
//! are the slots that the panels leave room for.
//!
//! Contract: the store stands in the body of the program, once, does not start before its tensor, and nothing else touches that: the copies
//! are not ordered with other accesses of the program. One store of a function has this; others are made by threads.

use std::ops::Range;

use tilewright_hardware::{Major, SwizzleMode, TensorMapSpec, TileBoxes, smem_tile};
use tilewright_ir::{
    AccessKind, Bytes, Cmp, Count, Element, FenceProxy, Flags, Func, Op, OpData, Opcode, Rank, Space, Type,
    Value,
};
use tilewright_passes::Alignment;

use super::assign::{Box3, bytes, constant, memory_order};
use super::factors::{from_host, root};
use super::layout::{Digit, Holder, Layout};
use super::{Lowering, Tile};

const SHARED: Type = Type::Pointer(Space::Shared);

/// Bytes of a row in a panel: the span of the swizzle.
const SPAN: u32 = 128;

/// Rows after which the pattern of the swizzle repeats, and the bytes it moves.
const PATTERN: u32 = 8;
const CHUNK: u32 = 16;

/// Rows of a panel where each team has its own: those that a warpgroup multiplies at once.
const SLAB: u32 = 64;

/// The store that leaves through shared memory.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) op: Op,
    /// How the engine sees some rows of the tile, and how many those are.
    pub(super) boxes: TileBoxes,
    pub(super) rows: u32,
    /// Panels of all rows, and how many of them some rows have.
    pub(super) panels: u32,
    pub(super) across: u32,
    pub(super) panel_bytes: u32,
    /// Panels that shared memory has room for.
    pub(super) slots: u32,
    /// Whether a warp of its own stores, for which there is room for all.
    pub(super) by_storer: bool,
    /// How many times: once for each team.
    pub(super) teams: u32,
    /// Which of the tensor maps.
    pub(super) map: usize,
}

/// How threads write the tile that they hold.
pub(super) struct Writer {
    tile: Tile,
    element: Element,
    vector: u32,
    as_matrices: bool,
    down: Value,
    across: Value,
}

impl Outgoing {
    /// The store of a function's body that the engine can make: of a tile with the shape of a product, to rows without gaps.
    pub(super) fn of(
        func: &Func,
        align: &Alignment,
        teams: u32,
        is_product: impl Fn(&[u32]) -> bool,
    ) -> Option<Outgoing> {
        func.region(func.body()).ops.iter().find_map(|&op| {
            let data = func.op(op);
            if data.code != Opcode::TileStore {
                return None;
            }
            let Type::Tile(element, shape) = func.ty(data.operands[1]) else { return None };
            let [all_rows, columns] = *shape.extents() else { return None };
            let rows = if teams > 1 { SLAB } else { all_rows };
            let parts = Box3::of(data, 2);
            // The engine begins and ends at no column inside of a piece of 16 bytes.
            // Both factors are powers of two; zero is a multiple of the largest.
            let whole = |value| align.at(value, 0).saturating_mul(bytes(element).into()) >= 16;
            let aligned = align.at(data.operands[0], 0) >= 16
                && [parts.strides[0], parts.starts[1], parts.extents[1]].into_iter().all(whole);
            let fits = is_product(shape.extents())
                && all_rows.is_multiple_of(rows)
                && memory_order(func, align, data)?.fast() == 1
                && constant(func, parts.strides[1]) == Some(1)
                && !element.is_bool()
                && element.bits() % 8 == 0
                && aligned
                && from_host(func, data)
                && parts.starts.iter().all(|&start| is_never_negative(func, start))
                && is_alone(func, op);
            let tile =
                smem_tile(Major::K, rows, columns, element, SwizzleMode::B128).ok().filter(|_| fits)?;
            let boxes = TensorMapSpec::for_tile(&tile, element).ok()?;
            let (across, panel_bytes) = (columns * bytes(element) / SPAN, rows * SPAN);
            let panels = across * (all_rows / rows);
            let whole = boxes.major == Major::K && boxes.spec.swizzle() == SwizzleMode::B128;
            whole.then_some(Outgoing {
                op,
                boxes,
                rows,
                panels,
                across,
                panel_bytes,
                slots: 0,
                by_storer: false,
                teams,
                map: 0,
            })
        })
    }

    /// Numbers of panels that go around in a ring, most first.
    pub(super) fn rings(&self) -> impl Iterator<Item = u32> + use<> {
        let panels = self.panels;
        (1..=panels).rev().filter(move |slots| panels.is_multiple_of(*slots))
    }

    /// Where in shared memory a panel goes, which others may have before and after it.
    fn place_of(&self, panel: u32) -> u32 {
        panel % self.slots * self.panel_bytes
    }

    /// Shared memory that it takes.
    pub(super) fn bytes(&self) -> u32 {
        self.teams * self.slots * self.panel_bytes
    }

    /// Elements that a thread writes at once, if threads hold a tile so that the swizzle moves whole pieces of a thread: its registers lie
    /// whole patterns of rows and whole pieces of all threads apart.
    fn vector(&self, layout: &Layout, size: u32) -> Option<u32> {
        let own = layout.registers.first().filter(|digit| digit.axis == Some(1) && digit.stride == 1)?.extent;
        let along = layout.thread_digits().filter(|(.., digit)| digit.axis == Some(1));
        let reach = (own + along.map(|(.., d)| (d.extent - 1) * d.stride).sum::<u32>()).next_power_of_two();
        let down = layout.thread_digits().filter(|(.., digit)| digit.axis == Some(0));
        let lowest: u32 = down.map(|(.., digit)| (digit.extent - 1) * digit.stride).sum();
        let apart = |register: usize| {
            let offset = layout.offset(register);
            let in_panel = offset[0] % self.rows + lowest < self.rows;
            in_panel && offset[0].is_multiple_of(PATTERN) && offset[1].is_multiple_of(reach)
        };
        let padded = (0..2).any(|axis| layout.is_padded(axis)) || layout.has_copies();
        let fits = !padded && own * size <= CHUNK && reach * size <= SPAN;
        (fits && (0..layout.count()).step_by(own as usize).all(apart)).then_some(own)
    }
}

/// Elements of four matrices that a thread holds.
const MATRICES: u32 = 8;

/// Whether a warp holds four matrices of 8 x 8 halves at a time, two above two, as its instruction for storing such takes them.
fn holds_matrices(layout: &Layout, element: Element) -> bool {
    let digit = |axis: usize, extent: u32, stride: u32| Digit { axis: Some(axis), extent, stride };
    let pair = matches!(layout.registers[..], [own, below, right, ..]
        if (own, below) == (digit(1, 2, 1), digit(0, 2, 8))
            && right.axis == Some(1) && right.stride == 8 && right.extent.is_multiple_of(2));
    element.bits() == 16 && pair && layout.digits(Holder::Lane) == [digit(1, 4, 2), digit(0, 8, 1)]
}

/// Whether a start is not before the tensor, as far as one can tell from the ops that make it: the engine leaves out what lies behind the end of
/// a tensor, but must not start before it. Numbers without a sign count as what they are meant for, unless something is taken from them.
fn is_never_negative(func: &Func, value: Value) -> bool {
    let Some(op) = func.def_op(value) else { return func.ty(value) == Type::U32 };
    let data = func.op(op);
    let all = || data.operands.iter().all(|&operand| is_never_negative(func, operand));
    match data.code {
        Opcode::Const => constant(func, value).is_some_and(|bits| bits < 1 << 31),
        Opcode::Special => true,
        Opcode::Bitcast | Opcode::Add | Opcode::Mul | Opcode::Max => all(),
        Opcode::Rem | Opcode::Min => func.ty(value) == Type::U32,
        Opcode::Div => {
            let halved = constant(func, data.operands[1]).is_some_and(|by| (2..1 << 31).contains(&by));
            func.ty(value) == Type::U32 && (halved || is_never_negative(func, data.operands[0]))
        }
        _ => false,
    }
}

/// Whether no other access of the program may be to the same tensor.
fn is_alone(func: &Func, store: Op) -> bool {
    let pointer = func.op(store).operands[0];
    let parameters = &func.region(func.body()).args;
    func.walk().into_iter().filter(|&op| op != store).all(|op| {
        let data = func.op(op);
        let mut accesses = data.info().effects.accesses.iter();
        let Some(access) = accesses.next() else { return true };
        let Some(&other) = data.operands.first() else { return true };
        let (Some(own), Some(others)) = (root(func, pointer), root(func, other)) else { return false };
        // A tensor that is only read may be given twice; that it is written in between is up to the caller.
        own != others && (access.kind == AccessKind::Read || parameters.contains(&other))
    })
}

impl Lowering<'_> {
    /// Shared memory for the panels.
    pub(super) fn panels(&mut self) -> Option<Value> {
        let bytes = self.pipeline.as_ref()?.outgoing.as_ref()?.bytes();
        Some(self.early(Opcode::Shared, [], [Bytes(bytes).into(), tilewright_ir::Align(1024).into()], SHARED))
    }

    /// The panels of a team among those of all.
    pub(super) fn panels_of(&mut self, panels: Value, team: Value) -> Value {
        let outgoing = self.pipeline.as_ref().and_then(|pipeline| pipeline.outgoing.as_ref());
        let bytes = outgoing.map_or(0, |out| out.bytes() / out.teams.max(1));
        let bytes = self.u32(bytes);
        let distance = self.binary(Opcode::Mul, team, bytes);
        self.value(Opcode::PtrAdd, [panels, distance], [], SHARED)
    }

    /// Whether a store is the one that the copy engine makes.
    pub(super) fn is_outgoing(&self, op: Op) -> bool {
        let outgoing = self.pipeline.as_ref().and_then(|pipeline| pipeline.outgoing.as_ref());
        outgoing.is_some_and(|out| out.op == op)
    }

    /// Makes a store by the copy engine, if it is the one and its tile is held as it must be.
    pub(super) fn copy_out(&mut self, op: Op, data: &OpData) -> bool {
        let outgoing = self.pipeline.as_ref().and_then(|pipeline| pipeline.outgoing.clone());
        let Some(out) = outgoing.filter(|out| out.op == op) else { return false };
        let value = data.operands[1];
        let (Some(layout), size) = (self.held_layout(value), bytes(self.element(value))) else {
            return false;
        };
        let Some(vector) = out.vector(&layout, size) else { return false };
        if out.by_storer {
            self.hand_out(&out, (value, vector));
            return true;
        }
        let writer = self.writer(value, vector);
        let starts = self.starts_of(data);
        for panel in 0..out.panels {
            self.on_first(|this| this.await_reads(out.slots - 1));
            self.block_barrier();
            self.write_panels(&out, &writer, panel..panel + 1);
            self.block_barrier();
            self.on_first(|this| this.send_panels(&out, starts, panel..panel + 1));
        }
        true
    }

    /// How threads that hold a tile write it to panels, so many elements at once: where each writes first, and how the swizzle moves that. That
    /// are its own elements, or a line of the warp's matrices.
    pub(super) fn writer(&mut self, value: Value, vector: u32) -> Writer {
        let tile = self.tile(value);
        let (element, layout) = (self.element(value), tile.layout.clone());
        let size = bytes(element);
        let as_matrices = holds_matrices(&layout, element);
        let vector = if as_matrices { MATRICES } else { vector };
        let (row, column) = (self.base(&layout, 0), self.base(&layout, 1));
        let [span, size_value, mask, shift] =
            [SPAN, size, PATTERN - 1, CHUNK.trailing_zeros()].map(|number| self.u32(number));
        let (row, across) = if as_matrices {
            let lane = self.number(Holder::Lane);
            let [two, four, fifteen] = [2, 4, 15].map(|number| self.u32(number));
            let own = self.binary(Opcode::Shr, lane, two);
            let first = self.binary(Opcode::Sub, row, own);
            let line = self.binary(Opcode::And, lane, fifteen);
            let right = self.binary(Opcode::Shr, lane, four);
            (self.binary(Opcode::Add, first, line), self.binary(Opcode::Shl, right, shift))
        } else {
            (row, self.binary(Opcode::Mul, column, size_value))
        };
        let down = self.binary(Opcode::Mul, row, span);
        let pattern = self.binary(Opcode::And, row, mask);
        let pattern = self.binary(Opcode::Shl, pattern, shift);
        let across = self.binary(Opcode::Xor, across, pattern);
        Writer { tile, element, vector, as_matrices, down, across }
    }

    /// Writes some panels, and makes that visible to the engine.
    pub(super) fn write_panels(&mut self, out: &Outgoing, writer: &Writer, panels: Range<u32>) {
        let Some(base) = self.panels else { return };
        let Writer { tile, element, vector, .. } = writer;
        let size = bytes(*element);
        let line = self.value(Opcode::PtrAdd, [base, writer.down], [], SHARED);
        let chunk = |chunk: u32| {
            let further = self.u32(chunk * CHUNK);
            let place = self.binary(Opcode::Xor, writer.across, further);
            self.value(Opcode::PtrAdd, [line, place], [], SHARED)
        };
        let chunks: Vec<Value> = (0..SPAN / CHUNK).map(chunk).collect();
        for first in (0..tile.layout.count()).step_by(*vector as usize) {
            let place = tile.layout.offset(first);
            let across = place[1] * size;
            let panel = place[0] / out.rows * out.across + across / SPAN;
            if !panels.contains(&panel) {
                continue;
            }
            let chunk = chunks[(across % SPAN / CHUNK) as usize];
            let offset = out.place_of(panel) + place[0] % out.rows * SPAN + across % CHUNK;
            let place = self.further(chunk, offset);
            let values = tile.registers[first..first + *vector as usize].to_vec();
            if writer.as_matrices {
                let matrices = self.packed(values, Type::Vector(*element, 8));
                self.push(Opcode::StMatrix, [place, matrices], [Count(4).into()], []);
                continue;
            }
            let whole = match values[..] {
                [one] => one,
                _ => {
                    let count = u16::try_from(*vector).unwrap_or(1);
                    self.value(Opcode::Pack, values, [], Type::Vector(*element, count))
                }
            };
            self.push(Opcode::Store, [place, whole], [], []);
        }
        self.push(Opcode::FenceProxy, [], [FenceProxy::AsyncShared.into()], []);
    }

    /// Where a store begins, along the columns and along the rows.
    pub(super) fn starts_of(&mut self, data: &OpData) -> [Value; 2] {
        let parts = Box3::of(data, 2);
        [parts.starts[1], parts.starts[0]].map(|start| self.scalar(start))
    }

    /// One thread: starts the copies of some panels.
    pub(super) fn send_panels(&mut self, out: &Outgoing, starts: [Value; 2], panels: Range<u32>) {
        let (Some(base), map) = (self.panels, self.map_values[out.map]) else { return };
        for panel in panels {
            let (down, right) = (panel / out.across, panel % out.across);
            for part in out.boxes.boxes.iter().filter(|part| part.offset / out.panel_bytes == right) {
                let from = self.further(base, out.place_of(panel) + part.offset % out.panel_bytes);
                let mut operands = vec![map, from];
                let [column, row] = part.coordinates;
                for (start, offset) in starts.into_iter().zip([column, row + down * out.rows]) {
                    let offset = self.constant(Type::I32, u64::from(offset));
                    operands.push(self.binary(Opcode::Add, start, offset));
                }
                self.push(Opcode::TmaStore, operands, [Rank(2).into()], []);
            }
        }
        self.push(Opcode::BulkCommit, [], [], []);
    }

    /// One thread: waits until the engine has read all but what it was sent the last so many times.
    pub(super) fn await_reads(&mut self, but: u32) {
        self.push(Opcode::BulkWait, [], [Count(but).into(), Flags::READ.into()], []);
    }

    /// Before the block ends, the engine must have read all that it is to copy.
    pub(super) fn end_copies(&mut self) {
        let outgoing = self.pipeline.as_ref().and_then(|pipeline| pipeline.outgoing.as_ref());
        if outgoing.is_some_and(|out| !out.by_storer) {
            self.on_first(|this| this.await_reads(0));
        }
    }

    /// What the first thread of those that multiply does.
    fn on_first(&mut self, body: impl FnOnce(&mut Self)) {
        let (lane, warp) = (self.number(Holder::Lane), self.number(Holder::Warp));
        let zero = self.u32(0);
        let either = self.early(Opcode::Or, [lane, warp], [], Type::U32);
        let first = self.early(Opcode::Cmp, [either, zero], [Cmp::Eq.into()], Type::BOOL);
        self.only_if(Some(first), body);
    }
}
