//! Reductions and running combinations along an axis.
//!
//! A reduction keeps its axis, with extent 1, so that its result broadcasts against what it was made of: `x / x.sum(1)`. In which order
//! elements are combined is the compiler's choice, so sums of floats may differ in their last bits from one compilation to another.
//! Elements are combined in their own type; `x.cast::<f32>().sum(1)` adds halves precisely.
//!
//! `max`, `min`, `argmax` and `argmin` treat NaN as torch does: a NaN among the elements is the result.

use tilewright_ir::{Flags, Opcode, Type, Value};

use super::elementwise::{Elements, Tiles, extreme};
use super::value::{Tile, axis_attr, axis_of, common_shape, grown};
use crate::element::{Element, Logic, Number};
use crate::stage::compare;
use crate::trace;
use crate::value::{Val, select};

/// What is combined with what.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// All elements along the axis.
    All,
    /// Each element with those before it.
    Forward,
    /// Each element with those after it.
    Reverse,
}

#[track_caller]
pub(super) fn combine<I: Tiles>(
    tiles: I,
    axis: i32,
    direction: Direction,
    f: impl FnOnce(I::Elements, I::Elements) -> I::Elements,
) -> I {
    let mut f = Some(f);
    let results = combine_once(tiles.ids(), axis, direction, &mut |first, second| {
        let combined = f.take().map(|f| f(I::Elements::of_ids(first), I::Elements::of_ids(second)));
        combined.map(|combined| combined.ids()).unwrap_or_default()
    });
    results.map_or(tiles, |results| I::of_ids(&results))
}

/// From two elements one, each of as many values as there are tiles.
type Combiner<'f> = &'f mut dyn FnMut(&[Value], &[Value]) -> Vec<Value>;

/// Apart from the types of `combine`, so that it is compiled once. None after a mistake.
#[track_caller]
fn combine_once(mut ids: Vec<Value>, axis: i32, direction: Direction, f: Combiner<'_>) -> Option<Vec<Value>> {
    trace::here();
    let shape = common_shape(&mut ids)?;
    let axis = axis_of(axis, shape.rank())?;
    let ids: Vec<Value> = ids.into_iter().map(|id| grown(id, shape)).collect();
    let elements: Vec<_> = ids.iter().filter_map(|&id| trace::with(|t| t.ty(id)).element()).collect();

    let code = if direction == Direction::All { Opcode::TileReduce } else { Opcode::TileScan };
    let flags = Flags::REVERSE.when(direction == Direction::Reverse);
    let flags = (flags != Flags::NONE).then(|| flags.into());
    let attrs = std::iter::once(axis_attr(axis).into()).chain(flags);
    let op = trace::push(code, &ids, attrs, []);
    let region = trace::open(op);
    let arguments: Vec<Value> = trace::with(|t| {
        let twice = elements.iter().chain(&elements);
        twice.map(|&element| t.builder.func.add_arg(region, Type::Scalar(element))).collect()
    });
    let (first, second) = arguments.split_at(ids.len());
    trace::close(Opcode::Yield, f(first, second));

    let after = if direction == Direction::All { shape.with(axis, 1).unwrap_or(shape) } else { shape };
    Some(trace::with(|t| {
        elements.iter().map(|&element| t.builder.func.add_result(op, Type::Tile(element, after))).collect()
    }))
}

/// The axes that a reduction to one element must go along, the last first.
fn all_axes<T>(tile: Tile<T>) -> Vec<i32> {
    let shape = tile.shape();
    let axes = (0i32..).zip(shape.extents()).filter(|&(_, &extent)| extent > 1).map(|(axis, _)| axis);
    let mut axes: Vec<i32> = axes.collect();
    axes.reverse();
    axes
}

/// A reduction along an axis, and the same of all elements.
macro_rules! reductions {
    ([$($generics:tt)*] $ty:ty: $( $(#[$doc:meta])* $name:ident, $all:ident = |$a:ident, $b:ident| $combined:expr; )*) => {
        impl<$($generics)*> Tile<$ty> {$(
            $(#[$doc])*
            #[must_use]
            #[track_caller]
            pub fn $name(self, axis: i32) -> Tile<$ty> {
                self.reduce(axis, |$a: Val<$ty>, $b: Val<$ty>| $combined)
            }

            #[doc = concat!("[`", stringify!($name), "`](Tile::", stringify!($name), ") of all elements, as a scalar.")]
            #[must_use]
            #[track_caller]
            pub fn $all(self) -> Val<$ty> {
                trace::here();
                all_axes(self).into_iter().fold(self, |tile, axis| tile.$name(axis)).item()
            }
        )*}
    };
}

reductions! { [T: Number] T:
    /// The sum along an axis.
    sum, sum_all = |a, b| a + b;
    /// The product along an axis.
    product, product_all = |a, b| a * b;
    /// The largest along an axis; NaN if one is. [`Tile::maximum`] is that of two tiles.
    max, max_all = |a, b| extreme(Opcode::Max, a, b);
    /// The smallest along an axis; NaN if one is. [`Tile::minimum`] is that of two tiles.
    min, min_all = |a, b| extreme(Opcode::Min, a, b);
}

reductions! { [] bool:
    /// Whether some along an axis hold.
    any, any_all = |a, b| a | b;
    /// Whether all along an axis hold.
    all, all_all = |a, b| a & b;
}

reductions! { [T: Logic] T:
    /// The bits that all along an axis have.
    bit_and, bit_and_all = |a, b| a & b;
    /// The bits that some along an axis have.
    bit_or, bit_or_all = |a, b| a | b;
    /// The bits that an odd number along an axis have.
    bit_xor, bit_xor_all = |a, b| a ^ b;
}

/// Whether `b` is beyond `a`; for floats NaN is beyond all numbers.
fn beyond<T: Number>(largest: bool, a: Val<T>, b: Val<T>) -> Val<bool> {
    use tilewright_ir::Cmp;
    let farther = compare(b, a, if largest { Cmp::Gt } else { Cmp::Lt });
    if !T::ELEMENT.is_float() {
        return farther;
    }
    farther | (compare(b, b, Cmp::Ne) & compare(a, a, Cmp::Eq))
}

impl<T: Number> Tile<T> {
    #[track_caller]
    fn extreme_with_place(self, axis: i32, largest: bool) -> (Tile<T>, Tile<u32>) {
        trace::here();
        let Some(along) = axis_of(axis, self.rank()) else { return (self, Tile::poison(self.shape())) };
        // It was found, so that it fits.
        let places = Tile::iota(i32::try_from(along).unwrap_or(0), self.shape());
        (self, places).reduce(axis, |(v, i), (w, j)| {
            // Not beyond each other: equal, or both NaN. Then the first place counts.
            let second =
                beyond(largest, v, w) | (!beyond(largest, w, v) & compare(j, i, tilewright_ir::Cmp::Lt));
            (select(second, w, v), select(second, j, i))
        })
    }

    /// The largest along an axis and its place, the first one among equals. A NaN is larger than all numbers.
    #[must_use]
    #[track_caller]
    pub fn max_with_place(self, axis: i32) -> (Tile<T>, Tile<u32>) {
        self.extreme_with_place(axis, true)
    }

    /// The smallest along an axis and its place, the first one among equals. A NaN is smaller than all numbers.
    #[must_use]
    #[track_caller]
    pub fn min_with_place(self, axis: i32) -> (Tile<T>, Tile<u32>) {
        self.extreme_with_place(axis, false)
    }

    /// The place of the largest along an axis, the first one among equals. A NaN is larger than all numbers.
    #[must_use]
    #[track_caller]
    pub fn argmax(self, axis: i32) -> Tile<u32> {
        self.max_with_place(axis).1
    }

    /// The place of the smallest along an axis, the first one among equals. A NaN is smaller than all numbers.
    #[must_use]
    #[track_caller]
    pub fn argmin(self, axis: i32) -> Tile<u32> {
        self.min_with_place(axis).1
    }
}

/// Running combinations along an axis, from its start and from its end.
macro_rules! scans {
    ($( $(#[$doc:meta])* $name:ident, $reverse:ident = |$a:ident, $b:ident| $combined:expr; )*) => {
        impl<T: Number> Tile<T> {$(
            $(#[$doc])*
            #[must_use]
            #[track_caller]
            pub fn $name(self, axis: i32) -> Tile<T> {
                self.scan(axis, |$a: Val<T>, $b: Val<T>| $combined)
            }

            #[doc = concat!("[`", stringify!($name), "`](Tile::", stringify!($name), ") from the end of the axis.")]
            #[must_use]
            #[track_caller]
            pub fn $reverse(self, axis: i32) -> Tile<T> {
                self.scan_reverse(axis, |$a: Val<T>, $b: Val<T>| $combined)
            }
        )*}
    };
}

scans! {
    /// Running sums along an axis: each element plus all before it.
    cumsum, cumsum_reverse = |a, b| a + b;
    /// Running products along an axis.
    cumprod, cumprod_reverse = |a, b| a * b;
    /// The largest so far along an axis; NaN from the first one on.
    cummax, cummax_reverse = |a, b| extreme(Opcode::Max, a, b);
    /// The smallest so far along an axis; NaN from the first one on.
    cummin, cummin_reverse = |a, b| extreme(Opcode::Min, a, b);
}

impl Tile<bool> {
    /// How many along an axis hold.
    #[must_use]
    #[track_caller]
    pub fn count(self, axis: i32) -> Tile<u32> {
        trace::here();
        select(self, Val::<u32>::of(trace::u32_const(1)), Val::<u32>::of(trace::u32_const(0))).sum(axis)
    }
}

impl<T: Element> Tile<T> {
    /// The only element of a tile that has one, as a scalar.
    #[must_use]
    #[track_caller]
    pub fn item(self) -> Val<T> {
        let shape = self.shape();
        let ty = Type::Scalar(T::ELEMENT);
        if shape.elements() == 1 {
            return Val::of(trace::value(Opcode::Item, [self.id], [], ty));
        }
        trace::error(format!("`item` of a tile of {shape} elements; expected one, reduce it first"));
        Val::of(trace::poison(ty))
    }
}
