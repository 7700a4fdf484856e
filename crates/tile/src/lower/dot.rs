//! `dot`: matrix products.
//!
//! Factors that the [`engine`](super::engine) loads ahead are multiplied where they lie, by the tensor cores of warpgroups (`wgmma`), and the
//! sums stay in the accumulator for as long as a loop does nothing else with them. Where the tensor core of a warp (`mma.sync`) knows the types
//! and the shape divides, warps share the sums as a grid: both factors go to shared memory, unless threads have [copied](super::copies) them
//! there ahead, every warp loads the fragments of its rows and columns (`ldmatrix`) and multiplies. Everything else (exact f32, f64, odd
//! shapes) is done by each thread for its own sums, element by element. Of many matrices ([`Extents`]), a warp or thread has its own as well.
//!
//! In shared memory the eight rows of a matrix lie in different banks ([`Lines`]).

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use tilewright_hardware::mma::{self, Mma as Atom};
use tilewright_hardware::{Arch, Group};
use tilewright_ir::{Count, Element, Flags, Func, Index, Mma, Op, OpData, Opcode, Shape, Space, Type, Value};
use tilewright_passes::RemarkKind;

use super::assign::bytes;
use super::layout::{Digit, Holder, Layout, Team};
use super::pipeline::{Form, Product, Staged};
use super::{Held, Lowering, Result, Tile, Turn};

const SHARED: Type = Type::Pointer(Space::Shared);

/// Warps of a function with products: enough for the largest of them.
pub(super) fn warps(func: &Func) -> u32 {
    let sums = func.walk().into_iter().filter(|&op| func.op(op).code == Opcode::Dot);
    let largest = sums.filter_map(|op| func.ty(func.op(op).operands[2]).shape()).map(|s| s.elements()).max();
    match largest.unwrap_or(0) {
        0..=4096 => 4,
        _ => 8,
    }
}

/// The instruction for a product, if warps have one.
pub(super) fn atom(func: &Func, data: &OpData, arch: Arch) -> Option<&'static Atom> {
    let element = |i: usize| func.ty(data.operands[i]).element();
    let tf32 = data.flags().has(Flags::TF32);
    let factor = |e: Element| match e {
        Element::F32 if tf32 => Some(Element::TF32),
        Element::F32 | Element::F64 => None,
        other => Some(other),
    };
    let (a, b, c) = (factor(element(0)?)?, factor(element(1)?)?, element(2)?);
    let Extents { m, n, k, .. } = Extents::of(func, data)?;
    mma::best(arch, Group::Warp, a, b, c, (m, n, k))
        .ok()
        .filter(|atom| atom.shape.m == 16 && atom.shape.n == 8)
}

/// How large a product is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extents {
    /// How many matrices there are of each, along a first axis if it is there.
    pub(super) matrices: u32,
    pub(super) m: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    /// The axis of rows; that of columns is the next.
    pub(super) rows: usize,
}

impl Extents {
    /// Of a `dot`.
    pub(super) fn of(func: &Func, data: &OpData) -> Option<Extents> {
        let (left, sums) = (func.ty(data.operands[0]).shape()?, func.ty(data.operands[2]).shape()?);
        let [many @ .., m, n] = sums.extents() else { return None };
        let k = *left.extents().last()?;
        Some(Extents { matrices: many.iter().product(), m: *m, n: *n, k, rows: many.len() })
    }
}

/// Whether a `dot` multiplies many matrices.
pub(super) fn is_batched(func: &Func, data: &OpData) -> bool {
    Extents::of(func, data).is_some_and(|extents| extents.rows > 0)
}

/// How the warps of a team share a product: matrices, and rows and columns of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    apart: u32,
    down: u32,
    across: u32,
}

impl Grid {
    /// As few idle warps as possible, then as little as possible for each to load, which is whole matrices, or squares of them; then rows
    /// rather than columns.
    fn of(extents: Extents, team: Team) -> Grid {
        let Extents { matrices, m, n, .. } = extents;
        let divisors = |of: u32, divides: u32| {
            (1..=of).filter(move |d| of.is_multiple_of(*d) && divides.is_multiple_of(*d))
        };
        let all = divisors(team.warps, matrices).flat_map(|apart| {
            divisors(team.warps / apart, m / 16).map(move |down| {
                let across = largest_divisor(team.warps / (apart * down), n / 8);
                Grid { apart, down, across }
            })
        });
        let cost = |grid: &Grid| {
            let Grid { apart, down, across } = *grid;
            (team.warps / (apart * down * across), matrices / apart * (m / down + n / across), across)
        };
        all.min_by_key(cost).unwrap_or(Grid { apart: 1, down: 1, across: 1 })
    }
}

fn largest_divisor(of: u32, divides: u32) -> u32 {
    (1..=of).rev().find(|d| of.is_multiple_of(*d) && divides.is_multiple_of(*d)).unwrap_or(1)
}

/// The layout of the sums of a product, if it dictates one.
pub(super) fn accumulator(func: &Func, data: &OpData, arch: Arch, team: Team) -> Option<Layout> {
    atom(func, data, arch)?;
    let shape = func.ty(data.results[0]).shape()?;
    let extents = Extents::of(func, data)?;
    let Extents { matrices, m, n, rows, .. } = extents;
    let Grid { apart, down, across } = Grid::of(extents, team);
    let columns = rows + 1;
    let digit = |axis: usize, extent: u32, stride: u32| Digit { axis: Some(axis), extent, stride };
    let keep = |digits: Vec<Digit>| digits.into_iter().filter(|d| d.extent > 1).collect::<Vec<_>>();
    let registers = vec![
        digit(columns, 2, 1),
        digit(rows, 2, 8),
        digit(columns, n / across / 8, 8),
        digit(rows, m / down / 16, 16),
        digit(0, matrices / apart, 1),
    ];
    let lanes = vec![digit(columns, 4, 2), digit(rows, 8, 1)];
    let copies = |extent: u32| Digit { axis: None, extent, stride: 0 };
    let warps = vec![
        digit(0, apart, matrices / apart),
        digit(rows, down, m / down),
        digit(columns, across, n / across),
        copies(team.warps / (apart * down * across)),
    ];
    Some(Layout::of(shape, keep(registers), [lanes, keep(warps), keep(vec![copies(team.blocks)])]))
}

/// The layout of the sums of warpgroups, each of which has as many rows; and of left factors of 16 bits in registers.
pub(super) fn warpgroup_rows(shape: Shape, groups: u32) -> Option<Layout> {
    let [m, n] = shape.extents() else { return None };
    let digit = |axis: usize, extent: u32, stride: u32| Digit { axis: Some(axis), extent, stride };
    let keep = |digits: Vec<Digit>| digits.into_iter().filter(|d| d.extent > 1).collect::<Vec<_>>();
    let registers = vec![digit(1, 2, 1), digit(0, 2, 8), digit(1, n / 8, 8), digit(0, m / groups / 64, 64)];
    let lanes = vec![digit(1, 4, 2), digit(0, 8, 1)];
    let warps = vec![digit(0, 4, 16), digit(0, groups, m / groups)];
    Some(Layout::of(shape, keep(registers), [lanes, keep(warps), Vec::new()]))
}

/// Lines of 16-byte units in shared memory, such that the same unit of eight neighbouring lines lies in different banks.
///
/// Lines whose units are a power of two, up to eight, or a multiple of eight, are swizzled: units trade places by the number of their
/// line. Others are padded to an odd number of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    pitch: u32,
    /// Which bits of a unit's number the line changes.
    mask: u32,
    /// How many lines, as a power of two, are alike.
    alike: u32,
}

impl Lines {
    /// Lines of so many bytes, without gaps if that can be.
    pub(super) fn swizzled(bytes: u32) -> Lines {
        let (mask, alike) = match bytes.div_ceil(UNIT) {
            2 => (1, 2),
            4 => (3, 1),
            units if units % 8 == 0 => (7, 0),
            _ => return Lines::padded(bytes),
        };
        Lines { pitch: bytes, mask, alike }
    }

    /// Lines of so many bytes, an odd number of units apart.
    fn padded(bytes: u32) -> Lines {
        Lines { pitch: (bytes.div_ceil(UNIT) | 1) * UNIT, mask: 0, alike: 0 }
    }

    /// Bytes from line to line.
    pub(super) fn pitch(self) -> u32 {
        self.pitch
    }
}

/// Bytes of what tensor cores read of a line at once.
const UNIT: u32 = 16;

/// A factor in shared memory: lines of neighbours along k, or along the other axis.
#[derive(Clone)]
struct Stored {
    /// Its place among exchanges, unless it was loaded ahead.
    piece: Option<Range<u32>>,
    base: Value,
    lines: Lines,
    along_k: bool,
    /// Bytes from matrix to matrix, where there are many.
    matrix: u32,
    /// What is there, and what the tensor core takes it for.
    held: Element,
    element: Element,
}

impl Lowering<'_> {
    pub(super) fn dot(&mut self, op: Op, data: &OpData) {
        let product = self.pipeline.as_ref().and_then(|pipeline| pipeline.products.get(&op));
        if let Some(product) = product.copied() {
            return self.dot_of_warpgroups(op, data, product);
        }
        match atom(self.source, data, self.arch) {
            Some(atom) if self.team().blocks == 1 => self.dot_of_warps(data, atom),
            _ => self.dot_of_threads(data),
        }
    }

    /// How large a product is.
    fn extents(&self, data: &OpData) -> Extents {
        // Whatever the verifier lets pass has extents.
        Extents::of(self.source, data).unwrap_or_else(|| unreachable!())
    }

    /// How a load runs ahead, if it does.
    pub(super) fn staged(&self, load: Op) -> Option<&Staged> {
        self.pipeline.as_ref().and_then(|pipeline| pipeline.loads.get(&load))
    }

    /// Whether a tile is a factor that was loaded ahead, or such a factor transposed: it is never in registers.
    pub(super) fn is_staged(&self, value: Value) -> bool {
        self.source.def_op(value).is_some_and(|op| {
            let data = self.source.op(op);
            self.staged(op).is_some() || data.code == Opcode::Transpose && self.is_staged(data.operands[0])
        })
    }

    /// Makes accumulators for the sums that stay in them while a loop runs. They are not set to what the loop starts from: the first product
    /// overwrites them, and that is added at the end, unless it is zero.
    pub(super) fn start_sums(&mut self, places: &HashMap<usize, Op>) {
        let mut sorted: Vec<(usize, Op)> = places.iter().map(|(&i, &op)| (i, op)).collect();
        sorted.sort_unstable();
        for (_, op) in sorted {
            let own = self.accumulators(op);
            self.places.insert(op, own);
        }
    }

    /// Takes the sums out of the accumulators when the loop has ended; if it had no round, they are what the loop starts from.
    pub(super) fn end_sums(&mut self, data: &OpData, places: &HashMap<usize, Op>, any: Value) {
        let mut sorted: Vec<(usize, Op)> = places.iter().map(|(&i, &op)| (i, op)).collect();
        sorted.sort_unstable();
        for (i, op) in sorted {
            let Some(own) = self.places.remove(&op) else { continue };
            let (from, result) = (data.operands[3 + i], data.results[i]);
            if matches!(self.held[from.index()], Some(Held::Splat(value)) if self.is_zero(value)) {
                let none = self.push(Opcode::If, [any], [], []);
                let _ = self.fill(none, |_, _| Ok(Vec::new()));
                let _ = self.fill(none, |this, _| {
                    this.set_sums(op, &own, from);
                    Ok(Vec::new())
                });
                self.take_sums(op, &own, result);
                continue;
            }
            self.take_sums(op, &own, result);
            let (tile, element) = (self.tile(result), self.element(result));
            let start = self.tile_in(from, &tile.layout).registers;
            let registers = tile
                .registers
                .iter()
                .zip(start)
                .map(|(&sum, start)| {
                    let ty = Type::Scalar(element);
                    let whole = self.value(Opcode::Add, [sum, start], [], ty);
                    self.value(Opcode::Select, [any, whole, start], [], ty)
                })
                .collect();
            self.hold_tile(result, tile.layout, registers);
        }
    }

    /// Whether a value is the constant zero.
    fn is_zero(&self, value: Value) -> bool {
        self.constants.iter().any(|(&(_, bits), &known)| known == value && bits == 0)
    }

    /// How warpgroups hold the sums of a product, whatever layout the rest of the program has for these.
    fn sums_layout(&self, result: Value) -> Rc<Layout> {
        warpgroup_rows(self.shape(result), self.team().warps / 4).map_or_else(|| self.layout(result), Rc::new)
    }

    fn accumulators(&mut self, op: Op) -> Vec<Value> {
        let result = self.source.op(op).results[0];
        let (n, element) = (self.shape(result).extents()[1], self.element(result));
        let ty = Type::Accumulator(element, u16::try_from(n / 2).unwrap_or(0));
        let count = self.sums_layout(result).count() / (n / 2) as usize;
        (0..count).map(|_| self.value(Opcode::MakeAccumulator, [], [], ty)).collect()
    }

    fn set_sums(&mut self, op: Op, places: &[Value], sums: Value) {
        let result = self.source.op(op).results[0];
        let (layout, element) = (self.sums_layout(result), self.element(result));
        let registers = self.tile_in(sums, &layout).registers;
        let each = registers.len() / places.len();
        for (&place, part) in places.iter().zip(registers.chunks(each)) {
            let ty = Type::Vector(element, u16::try_from(each).unwrap_or(0));
            let whole = self.value(Opcode::Pack, part.to_vec(), [], ty);
            self.push(Opcode::AccWrite, [place, whole], [], []);
        }
    }

    fn take_sums(&mut self, op: Op, places: &[Value], result: Value) {
        let own = self.source.op(op).results[0];
        let (layout, element) = (self.sums_layout(own), self.element(own));
        let each = layout.count() / places.len();
        let mut registers = Vec::with_capacity(layout.count());
        for &place in places {
            let ty = Type::Vector(element, u16::try_from(each).unwrap_or(0));
            let whole = self.value(Opcode::AccRead, [place], [], ty);
            for i in 0..u32::try_from(each).unwrap_or(0) {
                registers.push(self.value(
                    Opcode::Extract,
                    [whole],
                    [Index(i).into()],
                    Type::Scalar(element),
                ));
            }
        }
        self.hold(result, Held::Tile(Tile { layout, registers }));
    }

    fn dot_of_warpgroups(&mut self, op: Op, data: &OpData, product: Product) {
        let Some(turn) = self.turn else { return };
        if turn.left == turn.all {
            self.wait_full();
        }
        match self.places.get(&op).cloned() {
            Some(places) => self.multiply_staged(product, &places, turn.again),
            None => {
                let places = self.accumulators(op);
                let from = data.operands[2];
                let zero = matches!(self.held[from.index()], Some(Held::Splat(value)) if self.is_zero(value));
                if !zero {
                    self.set_sums(op, &places, from);
                }
                let no = self.constant(Type::BOOL, 0);
                self.multiply_staged(product, &places, zero.then_some(no));
                self.push(Opcode::WgmmaWait, [], [Count(0).into()], []);
                self.take_sums(op, &places, data.results[0]);
            }
        }
        let left = turn.left - 1;
        self.turn = Some(Turn { left, ..turn });
        if left > 0 {
            return;
        }
        match turn.last {
            Some(last) => {
                // One multiplication stays in flight, so the slot of the one before can go.
                self.push(Opcode::WgmmaWait, [], [Count(1).into()], []);
                self.release(last, turn.again);
            }
            None => {
                self.push(Opcode::WgmmaWait, [], [Count(0).into()], []);
                if let Some(ring) = self.ring {
                    self.release(ring.slot, None);
                }
            }
        }
        self.next_slot();
    }

    fn dot_of_warps(&mut self, data: &OpData, atom: &'static Atom) {
        let [a, b, c] = [data.operands[0], data.operands[1], data.operands[2]];
        let extents = self.extents(data);
        let Grid { apart, down, across } = Grid::of(extents, self.team());
        // How warps hold them: sums that meet those of warpgroups may be laid out like these.
        let own = accumulator(self.source, data, self.arch, self.team()).map(Rc::new);
        let layout = own.unwrap_or_else(|| self.layout(data.results[0]));
        let sums = self.tile_in(c, &layout);
        let room = |this: &Self, value: Value| {
            let shape = this.shape(value);
            let longest = shape.extents()[extents.rows..].iter().copied().max().unwrap_or(1);
            shape.elements() * bytes(this.element(value)) + 32 * longest * extents.matrices
        };
        let stored: Vec<Value> = [a, b].into_iter().filter(|&factor| !self.is_staged(factor)).collect();
        let rooms = stored.iter().map(|&factor| room(self, factor)).sum();
        self.scratch.make_room(rooms, self.loc);
        let (left, right) =
            (self.stored(a, extents.rows, 1, atom.a), self.stored(b, extents.rows, 0, atom.b));
        let pieces: Vec<_> = [&left, &right].into_iter().filter_map(|one| one.piece.as_ref()).collect();
        self.touch_all(&pieces, false);
        let (m, n) = (extents.m / down, extents.n / across);
        let first = |this: &mut Self, axis: usize| this.warp_base(&layout, axis);
        let (row, column) = (first(self, extents.rows), first(self, extents.rows + 1));
        let matrix = (extents.rows > 0).then(|| first(self, 0));
        let id =
            Mma { m: 16, n: 8, k: u16::try_from(atom.shape.k).unwrap_or(0), c: atom.c, a: atom.a, b: atom.b };
        let sums_type = Type::Vector(atom.c, 4);
        let mut registers = sums.registers;
        let mut blocks: Vec<Value> = registers
            .chunks(4)
            .map(<[Value]>::to_vec)
            .collect::<Vec<_>>()
            .into_iter()
            .map(|four| self.value(Opcode::Pack, four, [], sums_type))
            .collect();
        let of_matrix = (m / 16 * (n / 8)) as usize;
        for (i, blocks) in (0..extents.matrices / apart).zip(blocks.chunks_mut(of_matrix)) {
            let (left, right) = (self.matrix_of(&left, matrix, i), self.matrix_of(&right, matrix, i));
            for k in (0..extents.k).step_by(atom.shape.k as usize) {
                let of_a: Vec<Value> =
                    (0..m / 16).map(|i| self.fragment_a(&left, row, i * 16, k, atom)).collect();
                let of_b = self.fragments_b(&right, column, n, k, atom);
                for (j, &of_b) in of_b.iter().enumerate() {
                    for (i, &of_a) in of_a.iter().enumerate() {
                        let at = i * (n / 8) as usize + j;
                        blocks[at] =
                            self.value(Opcode::Mma, [of_a, of_b, blocks[at]], [id.into()], sums_type);
                    }
                }
            }
        }
        for (i, register) in registers.iter_mut().enumerate() {
            let part = Index(u32::try_from(i % 4).unwrap_or(0));
            *register = self.value(Opcode::Extract, [blocks[i / 4]], [part.into()], Type::Scalar(atom.c));
        }
        self.hold(data.results[0], Held::Tile(Tile { layout, registers }));
    }

    /// Of a factor of many matrices, the one that is `further` than the first of this thread's warp.
    fn matrix_of(&mut self, stored: &Stored, first: Option<Value>, further: u32) -> Stored {
        let Some(first) = first else { return stored.clone() };
        let size = self.u32(stored.matrix);
        let own = self.early(Opcode::Mul, [first, size], [], Type::U32);
        let base = self.value(Opcode::PtrAdd, [stored.base, own], [], SHARED);
        Stored { base: self.further(base, further * stored.matrix), ..stored.clone() }
    }

    /// Where the matrices, rows or columns of this thread's warp begin.
    fn warp_base(&mut self, layout: &Layout, axis: usize) -> Value {
        let own = layout.digits(Holder::Warp).to_vec();
        let none = vec![Digit { axis: None, extent: 32, stride: 0 }];
        let only = Layout::of(layout.shape, Vec::new(), [none, own, Vec::new()]);
        self.base(&only, axis)
    }

    /// Leaves a factor in shared memory, neighbours along k side by side unless its registers hold neighbours along the other axis and the
    /// tensor core can turn them. The axis of k is the first or second (`k_side`) of the two from `rows` on.
    fn stored(&mut self, factor: Value, rows: usize, k_side: usize, as_element: Element) -> Stored {
        let element = self.element(factor);
        if let Some(stored) = self.loaded_ahead(factor, element) {
            return stored;
        }
        let tile = self.tile(factor);
        let tile = self.rounded(tile, element, as_element);
        let shape = tile.layout.shape;
        let run = tile.layout.registers.first().filter(|d| d.stride == 1).and_then(|d| d.axis);
        let (k_axis, other) = (rows + k_side, rows + 1 - k_side);
        let along_k = run == Some(k_axis) || as_element.bits() != 16;
        let (line_axis, fast) = if along_k { (other, k_axis) } else { (k_axis, other) };
        let size = bytes(as_element);
        let lines = Lines::padded(shape.extents()[fast] * size);
        let pitch = lines.pitch;
        let matrix = pitch * shape.extents()[line_axis];
        let (piece, base) = self.scratch(matrix * shape.extents()[..rows].iter().product::<u32>());
        self.touch(&piece, true);
        let vector = match tile.layout.registers.first() {
            Some(d) if d.axis == Some(fast) && d.stride == 1 => largest_divisor(16 / size, d.extent),
            _ => 1,
        };
        let (own_line, own_fast) = (self.base(&tile.layout, line_axis), self.base(&tile.layout, fast));
        let (pitch_value, size_value) = (self.u32(pitch), self.u32(size));
        let down = self.early(Opcode::Mul, [own_line, pitch_value], [], Type::U32);
        let along = self.early(Opcode::Mul, [own_fast, size_value], [], Type::U32);
        let mut own = self.early(Opcode::Add, [down, along], [], Type::U32);
        if rows > 0 {
            let (own_matrix, size) = (self.base(&tile.layout, 0), self.u32(matrix));
            let before = self.early(Opcode::Mul, [own_matrix, size], [], Type::U32);
            own = self.early(Opcode::Add, [own, before], [], Type::U32);
        }
        let place = self.value(Opcode::PtrAdd, [base, own], [], SHARED);
        let writer = self.is_first(&tile.layout);
        for start in (0..tile.registers.len()).step_by(vector as usize) {
            let offset = tile.layout.offset(start);
            let before = offset[..rows].iter().sum::<u32>() * matrix;
            let address = self.further(place, before + offset[line_axis] * pitch + offset[fast] * size);
            let parts = tile.registers[start..start + vector as usize].to_vec();
            let whole = match parts[..] {
                [one] => one,
                _ => self.value(
                    Opcode::Pack,
                    parts,
                    [],
                    Type::Vector(as_element, u16::try_from(vector).unwrap_or(1)),
                ),
            };
            let inside = self.is_inside(&tile.layout, &offset);
            match self.both(writer, inside) {
                None => self.push(Opcode::Store, [address, whole], [], []),
                Some(here) => self.push(Opcode::StoreIf, [address, whole, here], [], []),
            };
        }
        Stored { piece: Some(piece), base, lines, along_k, matrix, held: as_element, element: as_element }
    }

    /// A factor that threads have copied to the slot of this round.
    fn loaded_ahead(&mut self, factor: Value, held: Element) -> Option<Stored> {
        let op = self.source.def_op(factor)?;
        let data = self.source.op(op);
        if data.code == Opcode::Transpose {
            return self.loaded_ahead(data.operands[0], held);
        }
        let (staged, ring) = (self.staged(op)?.clone(), self.ring?);
        let Form::Lines { lines, along_k } = staged.form else { return None };
        let base = self.slot_at(&ring, ring.slot, staged.offset);
        Some(Stored { piece: None, base, lines, along_k, matrix: 0, held, element: staged.element })
    }

    /// f32 factors as tf32.
    fn rounded(&mut self, tile: Tile, from: Element, to: Element) -> Tile {
        if from == to {
            return tile;
        }
        let each = tile.registers.into_iter();
        let registers = each.map(|value| self.value(Opcode::Cvt, [value], [], Type::Scalar(to))).collect();
        Tile { layout: tile.layout, registers }
    }

    /// The address of a unit of a line, each of which is something known early and a constant beyond. Constants of lines are multiples of
    /// eight, wherever lines are many.
    pub(super) fn unit_address(
        &mut self,
        base: Value,
        lines: Lines,
        (mut line, mut down): (Value, u32),
        (mut unit, mut along): (Value, u32),
    ) -> Value {
        if lines.mask != 0 {
            if !down.is_multiple_of(8) {
                let further = self.u32(std::mem::take(&mut down));
                line = self.early(Opcode::Add, [line, further], [], Type::U32);
            }
            if along != 0 {
                let further = self.u32(std::mem::take(&mut along));
                unit = self.early(Opcode::Add, [unit, further], [], Type::U32);
            }
            let (alike, mask) = (self.u32(lines.alike), self.u32(lines.mask));
            let pattern = self.early(Opcode::Shr, [line, alike], [], Type::U32);
            let pattern = self.early(Opcode::And, [pattern, mask], [], Type::U32);
            unit = self.early(Opcode::Xor, [unit, pattern], [], Type::U32);
        }
        let (pitch, size) = (self.u32(lines.pitch), self.u32(UNIT));
        let lines_down = self.early(Opcode::Mul, [line, pitch], [], Type::U32);
        let units_along = self.early(Opcode::Mul, [unit, size], [], Type::U32);
        let offset = self.early(Opcode::Add, [lines_down, units_along], [], Type::U32);
        let place = self.value(Opcode::PtrAdd, [base, offset], [], SHARED);
        self.further(place, down * lines.pitch + along * UNIT)
    }

    /// A bit of the lane's number.
    fn lane_bit(&mut self, bit: u32) -> Value {
        let (lane, shift, one) = (self.number(Holder::Lane), self.u32(bit), self.u32(1));
        let shifted = self.early(Opcode::Shr, [lane, shift], [], Type::U32);
        self.early(Opcode::And, [shifted, one], [], Type::U32)
    }

    /// Loads matrices of eight lines of 16 bytes: the lanes 8 * i to 8 * i + 7 give the lines of matrix i. `line` and `unit` are where the
    /// block starts, and `steps` which bit of the lane's number goes to the next eight lines, and which to the next unit.
    fn matrices(
        &mut self,
        stored: &Stored,
        (line, down): (Value, u32),
        (unit, along): (Value, u32),
        steps: (u32, u32),
        count: u32,
    ) -> Value {
        let (lane, seven, eight) = (self.number(Holder::Lane), self.u32(7), self.u32(8));
        let own = self.early(Opcode::And, [lane, seven], [], Type::U32);
        let (block, next) = (self.lane_bit(steps.0), self.lane_bit(steps.1));
        let further = self.early(Opcode::Mul, [block, eight], [], Type::U32);
        let line = self.early(Opcode::Add, [line, own], [], Type::U32);
        let line = self.early(Opcode::Add, [line, further], [], Type::U32);
        let unit = self.early(Opcode::Add, [unit, next], [], Type::U32);
        let address = self.unit_address(stored.base, stored.lines, (line, down), (unit, along));
        let values = u16::try_from(32 * count / stored.held.bits()).unwrap_or(0);
        let flags = Flags::TRANS.when(!stored.along_k);
        let loaded = self.value(
            Opcode::LdMatrix,
            [address],
            [Count(count).into(), flags.into()],
            Type::Vector(stored.held, values),
        );
        if stored.held == stored.element {
            return loaded;
        }
        // What was copied as it lies in memory is rounded here.
        let parts: Vec<Value> = (0..u32::from(values))
            .map(|i| {
                let part =
                    self.value(Opcode::Extract, [loaded], [Index(i).into()], Type::Scalar(stored.held));
                self.value(Opcode::Cvt, [part], [], Type::Scalar(stored.element))
            })
            .collect();
        self.value(Opcode::Pack, parts, [], Type::Vector(stored.element, values))
    }

    /// Rows `row + i` to 15 further, `k` and what an instruction takes from there. Matrices are in the order of the fragment: eight rows
    /// further first, then 16 bytes along k.
    fn fragment_a(&mut self, left: &Stored, row: Value, i: u32, k: u32, atom: &Atom) -> Value {
        let count = 2 * atom.shape.k * left.element.bits() / 128;
        let size = bytes(left.element);
        let zero = self.u32(0);
        if left.along_k {
            return self.matrices(left, (row, i), (zero, k * size / UNIT), (3, 4), count);
        }
        let unit = self.in_units(row, size);
        self.matrices(left, (zero, k), (unit, i * size / UNIT), (4, 3), count)
    }

    /// All columns of a warp, `k` and what an instruction takes from there, in pieces of eight columns; two pieces at a time where that
    /// makes four matrices. Matrices are 16 bytes along k apart, then eight columns.
    fn fragments_b(&mut self, right: &Stored, column: Value, n: u32, k: u32, atom: &Atom) -> Vec<Value> {
        let count = atom.shape.k * right.element.bits() / 128;
        let size = bytes(right.element);
        let ty = Type::Vector(right.element, u16::try_from(8 * atom.shape.k / 32).unwrap_or(0));
        let zero = self.u32(0);
        let mut fragments = Vec::new();
        let mut j = 0;
        while j < n {
            let pair = count == 2 && j + 16 <= n;
            let matrices = if pair { 2 * count } else { count };
            let loaded = if right.along_k {
                self.matrices(right, (column, j), (zero, k * size / UNIT), (4, 3), matrices)
            } else {
                let unit = self.in_units(column, size);
                self.matrices(right, (zero, k), (unit, j * size / UNIT), (3, 4), matrices)
            };
            if pair {
                for half in 0..2 {
                    let from = Index(half * ty.lanes());
                    fragments.push(self.value(Opcode::Slice, [loaded], [from.into()], ty));
                }
            } else {
                fragments.push(loaded);
            }
            j += if pair { 16 } else { 8 };
        }
        fragments
    }

    /// Elements as units of 16 bytes.
    fn in_units(&mut self, elements: Value, size: u32) -> Value {
        let shift = self.u32((UNIT / size).trailing_zeros());
        self.early(Opcode::Shr, [elements, shift], [], Type::U32)
    }

    /// Every thread multiplies for its own sums.
    fn dot_of_threads(&mut self, data: &OpData) {
        let [a, b, c] = [data.operands[0], data.operands[1], data.operands[2]];
        self.remark(
            RemarkKind::Missed,
            format!(
                "no tensor core multiplies {} by {} here; threads do, at a fraction of its speed",
                self.source.ty(a),
                self.source.ty(b)
            ),
        );
        let layout = self.layout(data.results[0]);
        let sums = self.tile_in(c, &layout);
        let room = |this: &Self, value: Value| this.shape(value).elements() * bytes(this.element(value)) + 16;
        self.scratch.make_room(room(self, a) + room(self, b), self.loc);
        let ((piece_a, left), (piece_b, right)) = (self.in_rows(a), self.in_rows(b));
        if self.team().blocks > 1 {
            self.cluster_barrier();
        }
        self.touch_all(&[&piece_a, &piece_b], false);
        let (Extents { m, n, k, rows, .. }, sum) = (self.extents(data), self.element(c));
        let [size_a, size_b] = [bytes(self.element(a)), bytes(self.element(b))];
        // How far a matrix, a row and a column of the sums go in each factor, in bytes.
        let steps_a = [m * k * size_a, k * size_a, 0];
        let steps_b = [k * n * size_b, 0, size_b];
        let first_a = self.place_of(&layout, &steps_a[1 - rows..]);
        let first_b = self.place_of(&layout, &steps_b[1 - rows..]);
        let (zero, end, one) = (self.u32(0), self.u32(k), self.u32(1));
        let mut operands = vec![zero, end, one];
        operands.extend(&sums.registers);
        let types = vec![Type::Scalar(sum); layout.count()];
        let op = self.push(Opcode::For, operands, [], types);
        let offsets = layout.offsets();
        let body = |this: &mut Self, region: tilewright_ir::Region| -> Result<Vec<Value>> {
            let k = this.builder.func.add_arg(region, Type::U32);
            let own: Vec<Value> =
                offsets.iter().map(|_| this.builder.func.add_arg(region, Type::Scalar(sum))).collect();
            let (step_a, step_b) = (this.u32(size_a), this.u32(n * size_b));
            let deeper = this.binary(Opcode::Mul, k, step_a);
            let place = this.binary(Opcode::Add, first_a, deeper);
            let of_a = this.value(Opcode::PtrAdd, [left, place], [], SHARED);
            let deeper = this.binary(Opcode::Mul, k, step_b);
            let place = this.binary(Opcode::Add, first_b, deeper);
            let of_b = this.value(Opcode::PtrAdd, [right, place], [], SHARED);
            let mut known: HashMap<(bool, u32), Value> = HashMap::new();
            let mut out = Vec::with_capacity(own.len());
            for (offset, own) in offsets.iter().zip(own) {
                // Behind the end of the tile there is nothing to read; the last line stands in.
                let inside = this.is_inside(&layout, offset);
                let mut factors = Vec::new();
                let further = |steps: &[u32]| offset.iter().zip(steps).map(|(o, s)| o * s).sum::<u32>();
                for (is_a, at) in
                    [(true, further(&steps_a[1 - rows..])), (false, further(&steps_b[1 - rows..]))]
                {
                    let factor = match known.get(&(is_a, at)).filter(|_| inside.is_none()) {
                        Some(&factor) => factor,
                        None => {
                            let (base, from) = if is_a { (of_a, a) } else { (of_b, b) };
                            let ty = Type::Scalar(this.element(from));
                            let address = this.further(base, at);
                            let loaded = match inside {
                                None => this.value(Opcode::Load, [address], [], ty),
                                Some(inside) => {
                                    let zero = this.constant(ty, 0);
                                    this.value(Opcode::LoadIf, [address, inside, zero], [], ty)
                                }
                            };
                            let wide = if this.element(from) == sum {
                                loaded
                            } else {
                                this.value(Opcode::Cvt, [loaded], [], Type::Scalar(sum))
                            };
                            known.insert((is_a, at), wide);
                            wide
                        }
                    };
                    factors.push(factor);
                }
                out.push(this.value(Opcode::Fma, [factors[0], factors[1], own], [], Type::Scalar(sum)));
            }
            Ok(out)
        };
        // The region of a loop that this file writes cannot fail.
        let _ = self.fill(op, body);
        let registers = self.builder.func.op(op).results.to_vec();
        self.hold(data.results[0], Held::Tile(Tile { layout, registers }));
    }

    /// How far the thread's own place is from that of the first element, with these steps along the axes.
    fn place_of(&mut self, layout: &Layout, steps: &[u32]) -> Value {
        let mut place = None;
        for (axis, &step) in steps.iter().enumerate().filter(|(_, step)| **step > 0) {
            let (own, step) = (self.base(layout, axis), self.u32(step));
            let moved = self.early(Opcode::Mul, [own, step], [], Type::U32);
            place = Some(match place {
                None => moved,
                Some(place) => self.early(Opcode::Add, [place, moved], [], Type::U32),
            });
        }
        place.unwrap_or_else(|| self.u32(0))
    }

    /// A tile in shared memory, row by row without gaps.
    fn in_rows(&mut self, factor: Value) -> (Range<u32>, Value) {
        let element = self.element(factor);
        let tile = self.tile(factor);
        self.left_in_rows(&tile, element)
    }
}
