//! Positions in a view: one number for each axis, staged or known.

use crate::trace;
use crate::value::{Operand, Val};

/// One coordinate of a position: `u32` or `i32`, staged or constant, or a constant `usize`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a coordinate",
    note = "coordinates are 32-bit integers: `Val<u32>`, `Val<i32>` or constants; convert with `.cast::<i32>()`"
)]
pub trait TileCoordinate: Copy {
    /// `by` times the coordinate.
    #[doc(hidden)]
    #[track_caller]
    fn scaled(self, by: u32) -> Val<i32>;
}

#[diagnostic::do_not_recommend]
impl TileCoordinate for Val<u32> {
    #[track_caller]
    fn scaled(self, by: u32) -> Val<i32> {
        if by == 1 { self.bitcast() } else { (self * by).bitcast() }
    }
}

#[diagnostic::do_not_recommend]
impl TileCoordinate for Val<i32> {
    #[track_caller]
    fn scaled(self, by: u32) -> Val<i32> {
        if by == 1 { self } else { self * by.cast_signed() }
    }
}

macro_rules! constant_coordinates {
    ($($ty:ty)*) => {$(
        #[diagnostic::do_not_recommend]
        impl TileCoordinate for $ty {
            #[track_caller]
            fn scaled(self, by: u32) -> Val<i32> {
                let product = i32::try_from(self).ok().and_then(|this| this.checked_mul(i32::try_from(by).ok()?));
                if product.is_none() {
                    let what = if by == 1 { "position" } else { "block" };
                    trace::error(format!("{what} {self} of an axis; positions are below 2^31"));
                }
                product.unwrap_or(0).val()
            }
        }
    )*};
}

constant_coordinates!(u32 i32 usize);

/// A position in `R` dimensions: an array or a tuple of [coordinates](TileCoordinate), outermost first; in one dimension a coordinate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a position in {R} dimensions",
    note = "give one 32-bit integer for each axis, as in `(row, 0)`: `Val<u32>`, `Val<i32>` or constants"
)]
pub trait Position<const R: usize>: Copy {
    /// The coordinates, each times the extent of its axis.
    #[doc(hidden)]
    #[track_caller]
    fn scaled(self, by: [u32; R]) -> [Val<i32>; R];
}

#[diagnostic::do_not_recommend]
impl<C: TileCoordinate, const R: usize> Position<R> for [C; R] {
    #[track_caller]
    fn scaled(self, by: [u32; R]) -> [Val<i32>; R] {
        trace::here();
        std::array::from_fn(|i| self[i].scaled(by[i]))
    }
}

#[diagnostic::do_not_recommend]
impl<C: TileCoordinate> Position<1> for C {
    #[track_caller]
    fn scaled(self, by: [u32; 1]) -> [Val<i32>; 1] {
        [TileCoordinate::scaled(self, by[0])]
    }
}

macro_rules! tuple_positions {
    ($( $rank:literal ($($name:ident $i:tt),*) )*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($name: TileCoordinate),*> Position<$rank> for ($($name,)*) {
            #[track_caller]
            fn scaled(self, by: [u32; $rank]) -> [Val<i32>; $rank] {
                [$( self.$i.scaled(by[$i]) ),*]
            }
        }
    )*};
}

tuple_positions! {
    1 (A 0)
    2 (A 0, B 1)
    3 (A 0, B 1, C 2)
    4 (A 0, B 1, C 2, D 3)
    5 (A 0, B 1, C 2, D 3, E 4)
}
