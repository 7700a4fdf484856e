//! [`Tile`] and what makes one.

use std::fmt;
use std::marker::PhantomData;

use tilewright_ir::{Axis, Opcode, Shape, Type, Value};

use super::elementwise::binary;
use crate::element::{Element, Number};
use crate::stage::Carry;
use crate::trace;
use crate::value::{Operand, Val};

/// Elements of type `T` that a program holds together, in one to five dimensions.
///
/// Its extents are fixed while staging: [`Tile::shape`] gives them. Operators work on all elements at once, with the broadcasting of
/// numpy: missing outer dimensions count as 1, and extents of 1 grow.
///
/// ```
/// use tilewright_lang::tile::prelude::*;
/// #[kernel]
/// fn distances(x: View<f32, 1>, out: View<f32, 2>) {
///     let x = x.tile([64]).at(0).load();
///     let d = x.unsqueeze(1) - x; // 64x1 and 64: 64x64
///     assert_eq!(d.shape().extents(), [64, 64]);
///     out.tile([64, 64]).at((0, 0)).store((d * d).sqrt());
/// }
/// distances::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
pub struct Tile<T> {
    pub(crate) id: Value,
    ty: PhantomData<fn() -> T>,
}

impl<T> Clone for Tile<T> {
    fn clone(&self) -> Tile<T> {
        *self
    }
}

impl<T> Copy for Tile<T> {}

impl<T> fmt::Debug for Tile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

#[diagnostic::do_not_recommend]
impl<T> Carry for Tile<T> {
    fn values(&self, out: &mut Vec<Value>) {
        out.push(self.id);
    }
    fn replace(&mut self, from: &mut dyn Iterator<Item = Value>) {
        if let Some(id) = from.next() {
            self.id = id;
        }
    }
}

/// What can stand beside a value or a tile of type `T`: a [`Tile`] of it, or one value for all elements (a [`Val`] or a constant).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a value of type `{T}`",
    label = "expected `{T}`, `Val<{T}>` or `Tile<{T}>`",
    note = "there are no implicit conversions: write `.cast::<{T}>()`, or give a constant its type as in `1u32` or `0.5f32`"
)]
pub trait TileOperand<T>: Copy {
    /// What an operator with a [`Val`] on its left gives: a tile if this is one.
    type Output;
    /// The tile, or the scalar.
    #[doc(hidden)]
    #[track_caller]
    fn id(self) -> Value;
    /// `left code self`.
    #[doc(hidden)]
    #[track_caller]
    fn after(self, left: Val<T>, code: Opcode) -> Self::Output;
}

#[diagnostic::do_not_recommend]
impl<T> TileOperand<T> for Tile<T> {
    type Output = Tile<T>;
    fn id(self) -> Value {
        self.id
    }
    #[track_caller]
    fn after(self, left: Val<T>, code: Opcode) -> Tile<T> {
        binary(left, self, |a: Val<T>, b: Val<T>| a.binary(code, b, []))
    }
}

#[diagnostic::do_not_recommend]
impl<T> TileOperand<T> for Val<T> {
    type Output = Val<T>;
    fn id(self) -> Value {
        self.id
    }
    #[track_caller]
    fn after(self, left: Val<T>, code: Opcode) -> Val<T> {
        left.binary(code, self, [])
    }
}

#[diagnostic::do_not_recommend]
impl<T: Element> TileOperand<T> for T {
    type Output = Val<T>;
    #[track_caller]
    fn id(self) -> Value {
        self.val().id
    }
    #[track_caller]
    fn after(self, left: Val<T>, code: Opcode) -> Val<T> {
        left.binary(code, self, [])
    }
}

/// What can be the extents of a tile: an array or a slice of `u32`, outermost first, or one `u32`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the shape of a tile",
    note = "a shape is an array of `u32`, such as `[128, 64]`, known while staging"
)]
pub trait Extents: Copy {
    /// The extents.
    #[doc(hidden)]
    fn extents(&self) -> &[u32];
}

impl<const N: usize> Extents for [u32; N] {
    fn extents(&self) -> &[u32] {
        self
    }
}

impl Extents for &[u32] {
    fn extents(&self) -> &[u32] {
        self
    }
}

impl Extents for u32 {
    fn extents(&self) -> &[u32] {
        std::slice::from_ref(self)
    }
}

impl Extents for Shape {
    fn extents(&self) -> &[u32] {
        Shape::extents(self)
    }
}

/// The shape of these extents, or a report and a shape to go on with.
#[track_caller]
pub(super) fn shape_of(extents: &[u32]) -> Shape {
    // Not in a closure, which would not know the caller.
    if let Some(shape) = Shape::new(extents) {
        return shape;
    }
    let text = extents.iter().map(u32::to_string).collect::<Vec<_>>().join(" x ");
    trace::error(format!(
        "a tile of {}; expected 1 to {} extents of at least 1, and at most 2^31 elements",
        if text.is_empty() { "no extents".to_owned() } else { text },
        Shape::MAX_RANK
    ));
    // With as many extents, so that what follows does not fail for another reason.
    let rank = extents.len().clamp(1, Shape::MAX_RANK);
    [1; Shape::MAX_RANK].get(..rank).and_then(Shape::new).unwrap_or_else(one)
}

/// A shape of one element.
#[allow(clippy::panic, reason = "one element makes a shape")]
fn one() -> Shape {
    Shape::new(&[1]).unwrap_or_else(|| panic!("a tile of one element"))
}

/// The shape of a tile; of a scalar none.
pub(super) fn shape_in_trace(value: Value) -> Option<Shape> {
    trace::with(|t| t.ty(value)).shape()
}

/// The axis with this number, counted from the end if it is negative; or a report.
#[track_caller]
pub(super) fn axis_of(axis: i32, rank: usize) -> Option<usize> {
    let from_start = if axis < 0 { i64::from(axis) + rank as i64 } else { i64::from(axis) };
    let found = usize::try_from(from_start).ok().filter(|&axis| axis < rank);
    if found.is_none() {
        trace::error(format!(
            "axis {axis} of {rank} dimension{}; expected {} to {}",
            if rank == 1 { "" } else { "s" },
            -(rank as i64),
            rank as i64 - 1
        ));
    }
    found
}

/// The attribute that names an axis.
pub(super) fn axis_attr(axis: usize) -> Axis {
    // A tile has few axes.
    Axis(u8::try_from(axis).unwrap_or(u8::MAX))
}

impl<T> Tile<T> {
    pub(crate) fn of(id: Value) -> Tile<T> {
        Tile { id, ty: PhantomData }
    }

    /// The shape, known while staging.
    #[must_use]
    pub fn shape(self) -> Shape {
        shape_in_trace(self.id).unwrap_or_else(one)
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(self) -> usize {
        self.shape().rank()
    }

    /// The extent along an axis, known while staging.
    #[must_use]
    #[track_caller]
    pub fn extent(self, axis: i32) -> u32 {
        let shape = self.shape();
        axis_of(axis, shape.rank()).map_or(1, |axis| shape.extents()[axis])
    }
}

impl<T: Element> Tile<T> {
    pub(super) fn ty(shape: Shape) -> Type {
        Type::Tile(T::ELEMENT, shape)
    }

    /// A tile to go on with after a mistake.
    #[track_caller]
    pub(super) fn poison(shape: Shape) -> Tile<T> {
        Tile::of(trace::poison(Tile::<T>::ty(shape)))
    }

    /// A tile of one value.
    ///
    /// ```
    /// # use tilewright_lang::tile::prelude::*;
    /// # #[kernel] fn k(limit: Val<i32>) {
    /// let lowest = Tile::full([16, 32], f32::NEG_INFINITY);
    /// let limits = Tile::full([16, 32], limit);
    /// # }
    /// # k::stage().unwrap();
    /// ```
    #[must_use]
    #[track_caller]
    pub fn full(shape: impl Extents, value: impl Operand<T>) -> Tile<T> {
        trace::here();
        let shape = shape_of(shape.extents());
        let value = value.val();
        Tile::of(trace::value(Opcode::Splat, [value.id], [], Tile::<T>::ty(shape)))
    }
}

impl<T: Number> Tile<T> {
    /// Zeros.
    #[must_use]
    #[track_caller]
    pub fn zeros(shape: impl Extents) -> Tile<T> {
        Tile::full(shape, T::ZERO)
    }

    /// Ones.
    #[must_use]
    #[track_caller]
    pub fn ones(shape: impl Extents) -> Tile<T> {
        Tile::full(shape, T::ONE)
    }
}

impl Tile<u32> {
    /// Positions along an axis: 0, 1, 2, ... in its direction, the same along all others.
    #[must_use]
    #[track_caller]
    pub fn iota(axis: i32, shape: impl Extents) -> Tile<u32> {
        let shape = shape_of(shape.extents());
        match axis_of(axis, shape.rank()) {
            Some(axis) => {
                Tile::of(trace::value(Opcode::Iota, [], [axis_attr(axis).into()], Tile::<u32>::ty(shape)))
            }
            None => Tile::poison(shape),
        }
    }
}

/// The numbers from 0 to `n - 1`, in one dimension.
#[must_use]
#[track_caller]
pub fn arange(n: u32) -> Tile<u32> {
    Tile::iota(0, [n])
}

/// A scalar as a tile of this shape, or a tile grown to it: missing outer dimensions are added, extents of 1 repeated. The caller knows
/// that it fits.
pub(super) fn grown(value: Value, to: Shape) -> Value {
    let ty = trace::with(|t| t.ty(value));
    let Some(element) = ty.element() else { return value };
    let Some(from) = ty.shape() else {
        return trace::value(Opcode::Splat, [value], [], Type::Tile(element, to));
    };
    let missing = to.rank().saturating_sub(from.rank());
    let extents: Vec<u32> = std::iter::repeat_n(1, missing).chain(from.extents().iter().copied()).collect();
    let mut value = value;
    if let (Some(shape), true) = (Shape::new(&extents), missing > 0) {
        value = trace::value(Opcode::Reshape, [value], [], Type::Tile(element, shape));
    }
    if extents != to.extents() {
        value = trace::value(Opcode::Broadcast, [value], [], Type::Tile(element, to));
    }
    value
}

/// The shape that all tiles among these values broadcast to; none if all are scalars. A tile that does not fit is reported, and stands
/// for itself no longer.
#[track_caller]
pub(super) fn common_shape(values: &mut [Value]) -> Option<Shape> {
    let mut common: Option<Shape> = None;
    let mut misfits = Vec::new();
    for (i, &value) in values.iter().enumerate() {
        let Some(shape) = shape_in_trace(value) else { continue };
        match common.map_or(Some(shape), |common| common.broadcast(&shape)) {
            Some(both) => common = Some(both),
            None => {
                let common = common.unwrap_or(shape);
                trace::error(format!(
                    "tiles of {common} and {shape} elements: extents must be equal, or one of them 1; `unsqueeze` adds an axis"
                ));
                misfits.push(i);
            }
        }
    }
    let common = common?;
    for i in misfits {
        let element = trace::with(|t| t.ty(values[i])).element();
        values[i] = element.map_or(values[i], |element| trace::poison(Type::Tile(element, common)));
    }
    Some(common)
}
