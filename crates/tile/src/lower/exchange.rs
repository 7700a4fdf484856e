//! Elements move between threads through shared memory.
//!
//! All exchanges share one stretch of shared memory. [`Scratch`] hands out pieces of it in turn and remembers which bytes were written or
//! read since the last barrier, so that a barrier stands wherever two threads could meet at a byte, and nowhere else. Loops are entered as if
//! everything had just been read and written: what the end of one iteration touches, the start of the next one meets.

use std::ops::Range;
use std::rc::Rc;

use tilewright_ir::{Align, Bytes, Element, Flags, Loc, OpData, Opcode, Space, Type, Value};
use tilewright_passes::RemarkKind;

use super::assign::bytes;
use super::layout::{Layout, row_major};
use super::touched::Touched;
use super::{Lowering, Tile};

const SHARED: Type = Type::Pointer(Space::Shared);

/// Shared memory that exchanges take turns in.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The pointer, once somebody needs it.
    base: Option<Value>,
    /// Bytes in all, and where the next piece starts.
    size: u32,
    next: u32,
    /// The line of the source that made it as large as it is.
    cause: Loc,
    pending: Vec<(Range<u32>, bool)>,
    /// Whether this block has told the others that it runs, and nobody has waited for them yet.
    pub(super) announced: bool,
    /// What blocks have written to or read since they all met last: each other's memory, or their own up to their last barrier.
    remote: Vec<Range<u32>>,
    /// What threads have stored to since a fence that made this known to asynchronous stores.
    stored: Vec<Range<u32>>,
    /// What this program did to global memory since its threads met last.
    pub(super) global: Vec<Touched>,
}

/// What has happened since the last barrier.
#[derive(Debug, Clone)]
pub(super) struct State {
    pending: Vec<(Range<u32>, bool)>,
    remote: Vec<Range<u32>>,
    stored: Vec<Range<u32>>,
    global: Vec<Touched>,
}

/// Adds what is not there yet: what happened before ways part is known to each of them.
fn add<T: PartialEq>(to: &mut Vec<T>, more: Vec<T>) {
    for item in more {
        if !to.contains(&item) {
            to.push(item);
        }
    }
}

/// Up to here the pieces of exchanges follow each other before they start over: the more, the fewer barriers.
const TURN: u32 = 24 * 1024;

impl Scratch {
    pub(super) fn state(&self) -> State {
        State {
            pending: self.pending.clone(),
            remote: self.remote.clone(),
            stored: self.stored.clone(),
            global: self.global.clone(),
        }
    }

    pub(super) fn restore(&mut self, state: State) {
        let State { pending, remote, stored, global } = state;
        (self.pending, self.remote, self.stored, self.global) = (pending, remote, stored, global);
    }

    /// Bytes that exchanges take.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// What may have happened where several ways meet.
    pub(super) fn join(&mut self, states: Vec<State>) {
        self.restore(State {
            pending: Vec::new(),
            remote: Vec::new(),
            stored: Vec::new(),
            global: Vec::new(),
        });
        for state in states {
            add(&mut self.pending, state.pending);
            add(&mut self.remote, state.remote);
            add(&mut self.stored, state.stored);
            add(&mut self.global, state.global);
        }
    }

    /// Enters a loop, whose rounds follow each other: `global` is what they do to global memory.
    pub(super) fn enter_loop(&mut self, global: Vec<Touched>) {
        self.pending.push((0..u32::MAX, true));
        self.remote.push(0..u32::MAX);
        self.stored.push(0..u32::MAX);
        self.global.extend(global);
    }

    /// Makes sure that the next pieces, so many bytes together, do not overlap each other.
    pub(super) fn make_room(&mut self, bytes: u32, cause: Loc) {
        if self.next + bytes > TURN.max(self.size) {
            self.next = 0;
        }
        self.grow(self.next + bytes, cause);
    }

    fn grow(&mut self, end: u32, cause: Loc) {
        if end > self.size {
            (self.size, self.cause) = (end, cause);
        }
    }

    fn take(&mut self, bytes: u32, cause: Loc) -> Range<u32> {
        let bytes = bytes.next_multiple_of(16);
        if self.next + bytes > TURN.max(self.size) {
            self.next = 0;
        }
        let piece = self.next..self.next + bytes;
        self.next = piece.end;
        self.grow(piece.end, cause);
        piece
    }

    /// All threads of all blocks have met.
    pub(super) fn all_met(&mut self) {
        self.pending.clear();
        self.remote.clear();
        self.global.clear();
    }

    /// Whether somebody may still use a piece that other blocks are about to write to, or asynchronous stores not know of what threads
    /// have stored there.
    pub(super) fn meets_remote(&self, piece: &Range<u32>) -> bool {
        let meets = |other: &Range<u32>| other.start < piece.end && piece.start < other.end;
        self.remote.iter().chain(&self.stored).any(meets) || self.meets(piece, true)
    }

    pub(super) fn use_by_others(&mut self, piece: &Range<u32>) {
        self.remote.push(piece.clone());
        self.stored.push(piece.clone());
    }

    /// All threads have made known what they have stored, and met.
    pub(super) fn all_known(&mut self) {
        self.stored.clear();
    }

    fn meets(&self, piece: &Range<u32>, write: bool) -> bool {
        self.pending
            .iter()
            .any(|(other, written)| (write || *written) && other.start < piece.end && piece.start < other.end)
    }
}

impl Lowering<'_> {
    /// A piece of shared memory for an exchange, and its address.
    pub(super) fn scratch(&mut self, bytes: u32) -> (Range<u32>, Value) {
        let piece = self.scratch.take(bytes, self.loc);
        let base = match self.scratch.base {
            Some(base) => base,
            None => {
                // The size is set when it is known.
                let base = self.early(Opcode::Shared, [], [Bytes(16).into(), Align(16).into()], SHARED);
                self.scratch.base = Some(base);
                base
            }
        };
        let offset = self.constant(Type::U32, u64::from(piece.start));
        let address = self.early(Opcode::PtrAdd, [base, offset], [], SHARED);
        (piece, address)
    }

    /// Gives the scratch memory its final size, and the line that needs so much.
    pub(super) fn place_scratch(&mut self) {
        if let Some(op) = self.scratch.base.and_then(|base| self.builder.func.def_op(base)) {
            let data = self.builder.func.op_mut(op);
            data.set(Bytes(self.scratch.size.max(16)));
            data.loc = self.scratch.cause;
        }
    }

    /// Says that a piece is about to be read or written.
    pub(super) fn touch(&mut self, piece: &Range<u32>, write: bool) {
        self.touch_all(&[piece], write);
    }

    /// The same of several that are read or written together: one by one, a barrier for the second would forget that the first is still to be.
    pub(super) fn touch_all(&mut self, pieces: &[&Range<u32>], write: bool) {
        if pieces.iter().any(|piece| self.scratch.meets(piece, write)) {
            self.block_barrier();
        }
        for &piece in pieces {
            self.scratch.pending.push((piece.clone(), write));
            if write && self.team().blocks > 1 {
                self.scratch.stored.push(piece.clone());
            }
        }
    }

    /// Says that a piece is in use until the next barrier, and that there was one since its last use.
    pub(super) fn use_of(&mut self, piece: &Range<u32>) {
        self.scratch.pending.push((piece.clone(), true));
    }

    pub(super) fn block_barrier(&mut self) {
        if self.specialises {
            // The warp that loads takes no part.
            let (id, threads) = (self.own_barrier(), self.u32(32 * self.team().warps));
            self.push(Opcode::Barrier, [id, threads], [Flags::ALIGNED.into()], []);
        } else if self.team().warps == 1 {
            let all = self.u32(u32::MAX);
            self.push(Opcode::WarpSync, [all], [], []);
        } else {
            let zero = self.u32(0);
            self.push(Opcode::Barrier, [zero], [Flags::ALIGNED.into()], []);
        }
        let done = std::mem::take(&mut self.scratch.pending);
        if self.team().blocks == 1 {
            self.scratch.global.clear();
        } else {
            // Another block may be behind: what this one has done with a piece, that one may still do.
            self.scratch.remote.extend(done.into_iter().map(|(piece, _)| piece));
        }
    }

    /// Orders what the program did before with what it does after, as seen by other programs: threads meet on both sides of their fences, so
    /// that each of them speaks for all.
    pub(super) fn fence(&mut self, data: &OpData) {
        self.meet();
        self.copy(data);
        self.meet();
    }

    /// All threads of the program wait for each other.
    pub(super) fn meet(&mut self) {
        if self.team().blocks == 1 { self.block_barrier() } else { self.cluster_barrier() }
    }

    pub(super) fn further(&mut self, pointer: Value, distance: u32) -> Value {
        if distance == 0 {
            return pointer;
        }
        let ty = self.builder.func.ty(pointer);
        let distance = self.u32(distance);
        self.value(Opcode::PtrAdd, [pointer, distance], [], ty)
    }

    /// The tile in another layout.
    pub(super) fn convert(&mut self, tile: Tile, to: &Rc<Layout>, element: Element) -> Tile {
        if tile.layout == *to {
            return tile;
        }
        if let Some(registers) = tile.layout.registers_for(to, self.team()) {
            let registers = registers.into_iter().map(|register| tile.registers[register]).collect();
            return Tile { layout: to.clone(), registers };
        }
        if self.rounds > 0 {
            self.remark(
                RemarkKind::Missed,
                format!(
                    "a tile of {} goes through shared memory in every round of the loop, from{} to{}; make it before the loop if it stays the same",
                    to.shape, tile.layout, to
                ),
            );
        } else {
            self.remark(
                RemarkKind::Applied,
                format!("a tile of {} changes hands from{} to{}", to.shape, tile.layout, to),
            );
        }
        self.through_memory(&tile, to, element)
    }

    /// The elements of a tile in a layout of a shape with as many elements, in row-major order.
    pub(super) fn through_memory(&mut self, tile: &Tile, to: &Rc<Layout>, element: Element) -> Tile {
        // One word is left free after each 32, so that columns of powers of two do not fall on one bank.
        let (piece, base) = self.scratch(padded(to.shape.elements(), element) * bytes(element));
        let (from_places, to_places) = (self.places(&tile.layout, element), self.places(to, element));
        self.claim(&piece);
        self.leave(tile, base, &from_places);
        self.pick_up(to, base, &piece, &to_places, element)
    }

    /// Says that every block of the program is about to write its elements to a piece of the memory of all of them.
    pub(super) fn claim(&mut self, piece: &Range<u32>) {
        if self.team().blocks > 1 {
            self.touch_remote(piece);
        } else {
            self.touch(piece, true);
        }
    }

    /// Writes the elements of a tile to places in a claimed piece of shared memory, of every block of the program.
    pub(super) fn leave(&mut self, tile: &Tile, base: Value, places: &[Value]) {
        let first = self.is_first(&tile.layout);
        let blocks = self.team().blocks;
        let mut targets = vec![base];
        if blocks > 1 {
            let there = |block: u32| {
                let block = self.u32(block);
                self.value(Opcode::MapCluster, [base, block], [], Type::Pointer(Space::Cluster))
            };
            targets = (0..blocks).map(there).collect();
        }
        let offsets = tile.layout.offsets();
        for target in targets {
            let space = self.builder.func.ty(target);
            for ((&register, &place), offset) in tile.registers.iter().zip(places).zip(&offsets) {
                let address = self.value(Opcode::PtrAdd, [target, place], [], space);
                let inside = self.is_inside(&tile.layout, offset);
                match self.both(first, inside) {
                    None => self.push(Opcode::Store, [address, register], [], []),
                    Some(here) => self.push(Opcode::StoreIf, [address, register, here], [], []),
                };
            }
        }
    }

    /// Reads the elements of a layout from places in a piece of shared memory, when all have left theirs.
    pub(super) fn pick_up(
        &mut self,
        to: &Rc<Layout>,
        base: Value,
        piece: &Range<u32>,
        places: &[Value],
        element: Element,
    ) -> Tile {
        self.pick_up_where(to, base, piece, places, &[], element)
    }

    /// The same where conditions hold, if there are any, and zeros elsewhere.
    pub(super) fn pick_up_where(
        &mut self,
        to: &Rc<Layout>,
        base: Value,
        piece: &Range<u32>,
        places: &[Value],
        conditions: &[Value],
        element: Element,
    ) -> Tile {
        if self.team().blocks > 1 {
            self.cluster_barrier();
        }
        self.touch(piece, false);
        let zero = self.constant(Type::Scalar(element), 0);
        let each = places.iter().zip(to.offsets()).enumerate();
        let registers = each
            .map(|(i, (&place, offset))| {
                let address = self.value(Opcode::PtrAdd, [base, place], [], SHARED);
                let inside = self.is_inside(to, &offset);
                match self.both(conditions.get(i).copied(), inside) {
                    None => self.value(Opcode::Load, [address], [], Type::Scalar(element)),
                    Some(inside) => {
                        self.value(Opcode::LoadIf, [address, inside, zero], [], Type::Scalar(element))
                    }
                }
            })
            .collect();
        Tile { layout: to.clone(), registers }
    }

    /// Where each register's element lies in a row-major copy of the tile in shared memory, in bytes.
    fn places(&mut self, layout: &Layout, element: Element) -> Vec<Value> {
        let strides = row_major(layout.shape);
        let mut base = self.u32(0);
        for (axis, &stride) in strides.iter().enumerate() {
            let (own, stride) = (self.base(layout, axis), self.u32(stride));
            let moved = self.early(Opcode::Mul, [own, stride], [], Type::U32);
            base = self.early(Opcode::Add, [base, moved], [], Type::U32);
        }
        let group = padding_group(element);
        let (shift, size) = (self.u32(group.trailing_zeros()), self.u32(bytes(element)));
        let extra = self.u32(4 / bytes(element).min(4));
        layout
            .offsets()
            .into_iter()
            .map(|offset| {
                let further: u32 = offset.iter().zip(&strides).map(|(o, s)| o * s).sum();
                let further = self.u32(further);
                let flat = self.early(Opcode::Add, [base, further], [], Type::U32);
                let groups = self.early(Opcode::Shr, [flat, shift], [], Type::U32);
                let gap = self.early(Opcode::Mul, [groups, extra], [], Type::U32);
                let place = self.early(Opcode::Add, [flat, gap], [], Type::U32);
                self.early(Opcode::Mul, [place, size], [], Type::U32)
            })
            .collect()
    }

    /// What the first of the threads that hold copies has, for all of them.
    pub(super) fn shared_by_first(&mut self, tile: &Tile, element: Element) -> Tile {
        let layout = tile.layout.clone();
        self.through_memory(tile, &layout, element)
    }
}

/// Elements after which one word is left free.
fn padding_group(element: Element) -> u32 {
    128 / bytes(element).clamp(1, 8)
}

/// Elements that a row-major copy takes with its gaps.
fn padded(elements: u32, element: Element) -> u32 {
    elements + elements / padding_group(element) * (4 / bytes(element).min(4)) + 4
}
