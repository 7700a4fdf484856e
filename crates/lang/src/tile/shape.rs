//! Other shapes for the same elements, and tiles put together from others.

use std::ops::Range;

use tilewright_ir::{Axes, Index, Opcode, Shape};

use super::elementwise::Tiles;
use super::value::{Extents, Tile, axis_attr, axis_of, grown, shape_of};
use crate::element::Element;
use crate::trace;
use crate::value::Val;

impl<T: Element> Tile<T> {
    /// The same elements in row-major order, with other extents.
    #[must_use]
    #[track_caller]
    pub fn reshape(self, shape: impl Extents) -> Tile<T> {
        let (from, to) = (self.shape(), shape_of(shape.extents()));
        if from.elements() != to.elements() {
            trace::error(format!(
                "a tile of {from} has {} elements, and {to} are {}; both must be equal",
                from.elements(),
                to.elements()
            ));
            return Tile::poison(to);
        }
        if from == to {
            return self;
        }
        Tile::of(trace::value(Opcode::Reshape, [self.id], [], Tile::<T>::ty(to)))
    }

    /// Axes in another order: axis `i` of the result is axis `order[i]` of this tile.
    #[must_use]
    #[track_caller]
    pub fn permute<const R: usize>(self, order: [i32; R]) -> Tile<T> {
        trace::here();
        let shape = self.shape();
        let found: Option<Vec<u8>> = order
            .iter()
            .map(|&axis| axis_of(axis, shape.rank()).and_then(|axis| u8::try_from(axis).ok()))
            .collect();
        let Some(found) = found else { return self };
        let Some(axes) = Axes::new(&found).filter(|_| R == shape.rank()) else {
            trace::error(format!(
                "an order of axes {order:?} for a tile of {shape}; expected each axis once"
            ));
            return self;
        };
        let extents: Vec<u32> = found.iter().map(|&axis| shape.extents()[usize::from(axis)]).collect();
        let to = shape_of(&extents);
        Tile::of(trace::value(Opcode::Transpose, [self.id], [axes.into()], Tile::<T>::ty(to)))
    }

    /// The last two axes swapped.
    #[must_use]
    #[track_caller]
    pub fn transpose(self) -> Tile<T> {
        match self.rank() {
            2 => self.permute([1, 0]),
            3 => self.permute([0, 2, 1]),
            4 => self.permute([0, 1, 3, 2]),
            5 => self.permute([0, 1, 2, 4, 3]),
            _ => {
                trace::error("a tile of one dimension has no second axis to swap; `unsqueeze` adds one");
                self
            }
        }
    }

    /// Repeated to a larger shape: missing outer dimensions are added, extents of 1 grow.
    #[must_use]
    #[track_caller]
    pub fn broadcast_to(self, shape: impl Extents) -> Tile<T> {
        trace::here();
        let (from, to) = (self.shape(), shape_of(shape.extents()));
        if from.broadcast(&to) != Some(to) {
            trace::error(format!("a tile of {from} cannot be broadcast to {to}: only extents of 1 grow"));
            return Tile::poison(to);
        }
        Tile::of(grown(self.id, to))
    }

    /// Without an axis of extent 1.
    #[must_use]
    #[track_caller]
    pub fn squeeze(self, axis: i32) -> Tile<T> {
        let shape = self.shape();
        let Some(at) = axis_of(axis, shape.rank()) else { return self };
        let mut extents = shape.extents().to_vec();
        if extents[at] != 1 || extents.len() == 1 {
            trace::error(format!(
                "axis {axis} of a tile of {shape} cannot go; expected an extent of 1, and another axis besides"
            ));
            return self;
        }
        extents.remove(at);
        self.reshape(&extents[..])
    }

    /// With a new axis of extent 1, which gets this number.
    ///
    /// ```
    /// # use tilewright_lang::tile::prelude::*;
    /// # #[kernel] fn k() {
    /// let (rows, columns) = (arange(8).unsqueeze(1), arange(4).unsqueeze(0));
    /// let diagonal = rows == columns; // 8x4
    /// assert_eq!(diagonal.shape().extents(), [8, 4]);
    /// # }
    /// # k::stage().unwrap();
    /// ```
    #[must_use]
    #[track_caller]
    pub fn unsqueeze(self, axis: i32) -> Tile<T> {
        let shape = self.shape();
        let Some(at) = axis_of(axis, shape.rank() + 1) else { return self };
        let mut extents = shape.extents().to_vec();
        extents.insert(at, 1);
        self.reshape(&extents[..])
    }

    /// This tile, and then another, along an axis. All other extents are the same.
    #[must_use]
    #[track_caller]
    pub fn cat(self, other: Tile<T>, axis: i32) -> Tile<T> {
        let (a, b) = (self.shape(), other.shape());
        let Some(at) = axis_of(axis, a.rank()) else { return self };
        let along = |shape: Shape| shape.extents().get(at).copied().unwrap_or(0);
        let sum = along(a).checked_add(along(b)).and_then(|sum| a.with(at, sum));
        let Some(to) = sum.filter(|_| a.with(at, along(b)) == Some(b)) else {
            trace::error(format!("tiles of {a} and {b} along axis {axis}; all other extents must be equal"));
            return self;
        };
        let attrs = [axis_attr(at).into()];
        Tile::of(trace::value(Opcode::Cat, [self.id, other.id], attrs, Tile::<T>::ty(to)))
    }

    /// Pairs of elements of two tiles of one shape, along a new last axis of extent 2.
    #[must_use]
    #[track_caller]
    pub fn join(self, other: Tile<T>) -> Tile<T> {
        self.unsqueeze(-1).cat(other.unsqueeze(-1), -1)
    }

    /// The first and the second elements of the last axis, whose extent is 2 and which goes: what [`join`](Tile::join) put together.
    #[must_use]
    #[track_caller]
    pub fn split(self) -> (Tile<T>, Tile<T>) {
        let shape = self.shape();
        if shape.rank() < 2 || self.extent(-1) != 2 {
            trace::error(format!(
                "`split` of a tile of {shape}; expected two dimensions or more, the last with extent 2; `halves` cuts any axis"
            ));
            return (self, self);
        }
        (self.part(-1, 0..1).squeeze(-1), self.part(-1, 1..2).squeeze(-1))
    }

    /// The first and the second half along an axis.
    #[must_use]
    #[track_caller]
    pub fn halves(self, axis: i32) -> (Tile<T>, Tile<T>) {
        let extent = self.extent(axis);
        if !extent.is_multiple_of(2) {
            trace::error(format!("halves of an extent of {extent}; expected an even one"));
            return (self, self);
        }
        (self.part(axis, 0..extent / 2), self.part(axis, extent / 2..extent))
    }

    /// The elements at indices along an axis, zero where there is none. Along all other axes the indices have the extents of this tile, or 1. Of a tile of
    /// one dimension, a table, they may have any shape.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    ///
    /// /// Weights of 4 bits, two in a byte, each the number of a value in a table of 16.
    /// #[kernel]
    /// fn decode(codes: View<u8, 2>, table: View<f32, 1>, out: View<f32, 2>) {
    ///     let codes = codes.partition([16, 64]).load().cast::<u32>();
    ///     let codes = (codes & 15u32).interleave(codes >> 4u32); // 16x128
    ///     out.partition([16, 128]).store(table.tile([16]).at(0).load().take(codes, 0));
    /// }
    ///
    /// /// Each row of x in the order of another one of keys.
    /// #[kernel]
    /// fn ordered(keys: View<i32, 2>, x: View<f32, 2>) {
    ///     let order = keys.partition([1, 128]).load().argsort(1);
    ///     x.partition([1, 128]).store(x.partition([1, 128]).load().take(order, 1));
    /// }
    /// decode::stage()?;
    /// ordered::stage()?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn take(self, indices: Tile<u32>, axis: i32) -> Tile<T> {
        trace::here();
        let (from, of) = (self.shape(), indices.shape());
        let Some(at) = axis_of(axis, from.rank()) else { return self };
        if from.rank() == 1 && of.rank() > 1 {
            return self.take(indices.reshape([of.elements()]), 0).reshape(of);
        }
        let along = of.extents().get(at).copied().unwrap_or(1);
        let to = from.with(at, along);
        let Some(to) = to.filter(|to| of.rank() == from.rank() && of.broadcast(to) == Some(*to)) else {
            trace::error(format!(
                "elements of a tile of {from} at indices of {of} along axis {axis}; expected as many axes, and equal extents or 1 along all others"
            ));
            return self;
        };
        let operands = [self.id, grown(indices.id, to)];
        Tile::of(trace::value(Opcode::Take, operands, [axis_attr(at).into()], Tile::<T>::ty(to)))
    }

    /// The elements from the last to the first along an axis.
    #[must_use]
    #[track_caller]
    pub fn flip(self, axis: i32) -> Tile<T> {
        trace::here();
        let shape = self.shape();
        let Some(at) = axis_of(axis, shape.rank()) else { return self };
        let last = shape.extents()[at] - 1;
        let places = Tile::iota(axis, shape);
        self.take(places.map(|place| Val::<u32>::of(trace::u32_const(last)) - place), axis)
    }

    /// The elements of two tiles by turns along the last axis, which becomes twice as long.
    #[must_use]
    #[track_caller]
    pub fn interleave(self, other: Tile<T>) -> Tile<T> {
        trace::here();
        let mut extents = self.shape().extents().to_vec();
        if let Some(last) = extents.last_mut() {
            *last = last.saturating_mul(2);
        }
        let joined = self.join(other);
        if self.shape() == other.shape() { joined.reshape(&extents[..]) } else { self }
    }

    /// The elements of a range along an axis.
    #[must_use]
    #[track_caller]
    pub fn part(self, axis: i32, range: Range<u32>) -> Tile<T> {
        let shape = self.shape();
        let Some(at) = axis_of(axis, shape.rank()) else { return self };
        let extent = shape.extents()[at];
        let to = range.end.checked_sub(range.start).and_then(|length| shape.with(at, length));
        let Some(to) = to.filter(|_| range.end <= extent) else {
            trace::error(format!(
                "elements {range:?} of an extent of {extent}; expected some of those that exist"
            ));
            return self;
        };
        if to == shape {
            return self;
        }
        let attrs = [axis_attr(at).into(), Index(range.start).into()];
        Tile::of(trace::value(Opcode::Part, [self.id], attrs, Tile::<T>::ty(to)))
    }
}
