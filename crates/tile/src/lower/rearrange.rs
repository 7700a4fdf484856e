//! Shapes: broadcast, reshape, transpose, cat, part, item. Where digits can say it, nothing moves.

use std::rc::Rc;

use tilewright_ir::{Axes, Axis, Index, OpData, Opcode, Space, Type, Value};

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
        self.leave(&tile, base, &piece, &row_major(whole), 0, element);
        let skipped = start * row_major(whole)[axis] * bytes(element);
        let base = self.further(base, skipped);
        let tile = self.pick_up(&wanted, base, &piece, &row_major(whole), element);
        self.hold(to, Held::Tile(tile));
    }

    pub(super) fn cat(&mut self, data: &OpData) {
        let to = data.results[0];
        let axis = data.get::<Axis>().map_or(0, |Axis(axis)| usize::from(axis));
        let element = self.element(to);
        let wanted = self.layout(to);
        let strides = row_major(wanted.shape);
        let (piece, base) = self.scratch(wanted.shape.elements() * bytes(element));
        let mut start = 0;
        for &from in &data.operands {
            let tile = self.tile(from);
            self.leave(&tile, base, &piece, &strides, start * strides[axis] * bytes(element), element);
            start += tile.layout.shape.extents()[axis];
        }
        let tile = self.pick_up(&wanted, base, &piece, &strides, element);
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
        self.leave(tile, base, &piece, &row_major(shape), 0, element);
        (piece, base)
    }

    /// Writes the elements of a tile to shared memory with these strides, of every block of the program.
    fn leave(
        &mut self,
        tile: &Tile,
        base: Value,
        piece: &std::ops::Range<u32>,
        strides: &[u32],
        skipped: u32,
        element: tilewright_ir::Element,
    ) {
        let places = self.strided(&tile.layout, strides, element);
        let first = self.is_first(&tile.layout);
        let offsets = tile.layout.offsets();
        let blocks = self.team().blocks;
        let mut targets = vec![base];
        if blocks > 1 {
            self.touch_remote(piece);
            let cluster = Type::Pointer(Space::Cluster);
            let all = (0..blocks).map(|block| {
                let block = self.u32(block);
                self.value(Opcode::MapCluster, [base, block], [], cluster)
            });
            targets = all.collect();
        } else {
            self.touch(piece, true);
        }
        for target in targets {
            let target = self.further(target, skipped);
            let ty = self.builder.func.ty(target);
            for ((&register, &place), offset) in tile.registers.iter().zip(&places).zip(&offsets) {
                let address = self.value(Opcode::PtrAdd, [target, place], [], ty);
                let inside = self.is_inside(&tile.layout, offset);
                match self.both(first, inside) {
                    None => self.push(Opcode::Store, [address, register], [], []),
                    Some(here) => self.push(Opcode::StoreIf, [address, register, here], [], []),
                };
            }
        }
    }

    fn pick_up(
        &mut self,
        to: &Rc<Layout>,
        base: Value,
        piece: &std::ops::Range<u32>,
        strides: &[u32],
        element: tilewright_ir::Element,
    ) -> Tile {
        if self.team().blocks > 1 {
            self.cluster_barrier();
        }
        self.touch(piece, false);
        let places = self.strided(to, strides, element);
        let zero = self.constant(Type::Scalar(element), 0);
        let each = places.into_iter().zip(to.offsets());
        let registers = each
            .map(|(place, offset)| {
                let address = self.value(Opcode::PtrAdd, [base, place], [], Type::Pointer(Space::Shared));
                match self.is_inside(to, &offset) {
                    None => self.value(Opcode::Load, [address], [], Type::Scalar(element)),
                    Some(inside) => {
                        self.value(Opcode::LoadIf, [address, inside, zero], [], Type::Scalar(element))
                    }
                }
            })
            .collect();
        Tile { layout: to.clone(), registers }
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
