//! Shapes: broadcast, reshape, transpose, cat, part, take, item. Where digits can say it, nothing moves.

use std::rc::Rc;

use tilewright_ir::{Axes, Axis, Cmp, Index, OpData, Opcode, Type, Value};

use super::assign::bytes;
use super::layout::{Holder, Layout, row_major};
use super::{Held, Lowering, Tile};

impl Lowering<'_> {
    pub(super) fn broadcast(&mut self, data: &OpData) {
        let (from, to) = (data.operands[0], data.results[0]);
        match self.held[from.index()] {
            Some(Held::Splat(value)) => return self.hold(to, Held::Splat(value)),
            Some(Held::Iota(axis)) if self.shape(from).extents()[axis] == self.shape(to).extents()[axis] => {
                return self.hold(to, Held::Iota(axis));
            }
            _ => {}
        }
        let layout = self.layout(to);
        let (small, large) = (self.shape(from), layout.shape);
        let grown: Vec<usize> =
            (0..large.rank()).filter(|&a| small.extents()[a] != large.extents()[a]).collect();
        let narrow = Rc::new(grown.iter().fold((*layout).clone(), |layout, &axis| layout.without(axis)));
        let tile = self.tile_in(from, &narrow);
        let places = narrow.offsets();
        let registers = layout
            .offsets()
            .into_iter()
            .map(|mut offset| {
                grown.iter().for_each(|&axis| offset[axis] = 0);
                let register = places.iter().position(|place| *place == offset).unwrap_or(0);
                tile.registers[register]
            })
            .collect();
        self.hold_tile(to, layout, registers);
    }

    pub(super) fn reshape(&mut self, data: &OpData) {
        let (from, to) = (data.operands[0], data.results[0]);
        if let Some(Held::Splat(value)) = self.held[from.index()] {
            return self.hold(to, Held::Splat(value));
        }
        let element = self.element(from);
        let tile = self.tile(from);
        let wanted = self.layout(to);
        let team = self.team();
        // Without moving: into the wanted layout if it comes out as that, else into what comes out, unless the wanted one comes from a
        // layout of the operand that costs less to reach.
        let tile = match tile.layout.reshaped(wanted.shape) {
            Some(natural) if natural.registers_for(&wanted, team).is_some() || self.is_large(&natural) => {
                let tile = Tile { layout: Rc::new(natural), registers: tile.registers };
                self.convert(tile, &wanted, element)
            }
            _ => self.through_memory(&tile, &wanted, element),
        };
        self.hold(to, Held::Tile(tile));
    }

    fn is_large(&self, layout: &Layout) -> bool {
        layout.shape.elements() > 1 << 16
    }

    pub(super) fn transpose(&mut self, data: &OpData) {
        let (from, to) = (data.operands[0], data.results[0]);
        let Some(axes) = data.get::<Axes>() else { return };
        let place = |axis: usize| axes.axes().iter().position(|&a| usize::from(a) == axis).unwrap_or(0);
        match self.held[from.index()] {
            Some(Held::Splat(value)) => return self.hold(to, Held::Splat(value)),
            Some(Held::Iota(axis)) => return self.hold(to, Held::Iota(place(axis))),
            _ => {}
        }
        let tile = self.tile(from);
        // Names of axes change, nothing else: whoever needs another layout asks for it.
        if let Some(layout) = tile.layout.transposed(axes.axes()) {
            self.hold_tile(to, Rc::new(layout), tile.registers);
        }
    }

    pub(super) fn part(&mut self, data: &OpData) {
        let (from, to) = (data.operands[0], data.results[0]);
        if let Some(Held::Splat(value)) = self.held[from.index()] {
            return self.hold(to, Held::Splat(value));
        }
        let axis = data.get::<Axis>().map_or(0, |Axis(axis)| usize::from(axis));
        let start = data.get::<Index>().map_or(0, |Index(start)| start);
        let element = self.element(from);
        let tile = self.tile(from);
        let whole = tile.layout.shape;
        let wanted = self.layout(to);
        let (piece, base) = self.scratch(whole.elements() * bytes(element));
        let strides = row_major(whole);
        let places = self.strided(&tile.layout, &strides, element);
        self.claim(&piece);
        self.leave(&tile, base, &places);
        let base = self.further(base, start * strides[axis] * bytes(element));
        let places = self.strided(&wanted, &strides, element);
        let tile = self.pick_up(&wanted, base, &piece, &places, element);
        self.hold(to, Held::Tile(tile));
    }

    pub(super) fn cat(&mut self, data: &OpData) {
        let to = data.results[0];
        let axis = data.get::<Axis>().map_or(0, |Axis(axis)| usize::from(axis));
        let element = self.element(to);
        let wanted = self.layout(to);
        let strides = row_major(wanted.shape);
        let (piece, base) = self.scratch(wanted.shape.elements() * bytes(element));
        let tiles: Vec<Tile> = data.operands.iter().map(|&from| self.tile(from)).collect();
        self.claim(&piece);
        let mut start = 0;
        for tile in tiles {
            let places = self.strided(&tile.layout, &strides, element);
            let base = self.further(base, start * strides[axis] * bytes(element));
            self.leave(&tile, base, &places);
            start += tile.layout.shape.extents()[axis];
        }
        let places = self.strided(&wanted, &strides, element);
        let tile = self.pick_up(&wanted, base, &piece, &places, element);
        self.hold(to, Held::Tile(tile));
    }

    /// All elements go to shared memory, where each is read by whoever wants it.
    pub(super) fn take(&mut self, data: &OpData) {
        let (from, indices, to) = (data.operands[0], data.operands[1], data.results[0]);
        let axis = data.get::<Axis>().map_or(0, |Axis(axis)| usize::from(axis));
        let element = self.element(from);
        let (tile, wanted) = (self.tile(from), self.layout(to));
        let indices = self.tile_in(indices, &wanted).registers;
        let (piece, base) = self.left_in_rows(&tile, element);
        let mut strides = row_major(tile.layout.shape);
        let along = self.u32(std::mem::take(&mut strides[axis]) * bytes(element));
        let extent = self.u32(tile.layout.shape.extents()[axis]);
        let mut places = self.strided(&wanted, &strides, element);
        let mut conditions = Vec::with_capacity(places.len());
        for (place, index) in places.iter_mut().zip(indices) {
            let distance = self.binary(Opcode::Mul, index, along);
            *place = self.binary(Opcode::Add, *place, distance);
            conditions.push(self.value(Opcode::Cmp, [index, extent], [Cmp::Lt.into()], Type::BOOL));
        }
        let tile = self.pick_up_where(&wanted, base, &piece, &places, &conditions, element);
        self.hold(to, Held::Tile(tile));
    }

    /// Leaves a tile in shared memory, row by row without gaps, for everybody to read once all have met.
    pub(super) fn left_in_rows(
        &mut self,
        tile: &Tile,
        element: tilewright_ir::Element,
    ) -> (std::ops::Range<u32>, Value) {
        let shape = tile.layout.shape;
        let (piece, base) = self.scratch(shape.elements() * bytes(element));
        let places = self.strided(&tile.layout, &row_major(shape), element);
        self.claim(&piece);
        self.leave(tile, base, &places);
        (piece, base)
    }

    /// Where each register's element lies with these strides, in bytes.
    fn strided(&mut self, layout: &Layout, strides: &[u32], element: tilewright_ir::Element) -> Vec<Value> {
        let size = bytes(element);
        let mut base = self.u32(0);
        for (axis, &stride) in strides.iter().enumerate() {
            let (own, stride) = (self.base(layout, axis), self.u32(stride * size));
            let moved = self.early(Opcode::Mul, [own, stride], [], Type::U32);
            base = self.early(Opcode::Add, [base, moved], [], Type::U32);
        }
        let offsets = layout.offsets().into_iter();
        offsets
            .map(|offset| {
                let further: u32 = offset.iter().zip(strides).map(|(o, s)| o * s * size).sum();
                let further = self.u32(further);
                self.early(Opcode::Add, [base, further], [], Type::U32)
            })
            .collect()
    }

    /// The only element of a tile, in all threads.
    pub(super) fn item(&mut self, data: &OpData) {
        let (from, to) = (data.operands[0], data.results[0]);
        let value = match self.held[from.index()] {
            Some(Held::Splat(value)) => value,
            Some(Held::Iota(_)) => self.u32(0),
            _ => {
                let element = self.element(from);
                let tile = self.tile(from);
                // All threads hold it, unless a layout gave it to some only.
                let shape = tile.layout.shape;
                let everywhere = everywhere(shape, self.team());
                let tile = self.convert(tile, &Rc::new(everywhere), element);
                tile.registers[0]
            }
        };
        self.hold(to, Held::Scalar(value));
    }
}

/// A layout in which every thread holds the one element.
fn everywhere(shape: tilewright_ir::Shape, team: super::layout::Team) -> Layout {
    let one = Layout::blocked(shape, &(0..shape.rank()).collect::<Vec<_>>(), 1, team);
    debug_assert!(Holder::ALL.iter().all(|&h| one.digits(h).iter().all(|d| d.axis.is_none())));
    one
}
