//! The elements of operators, and what they are to this computer.
//!
//! Operators compute in f32. What they read becomes f32 without loss; what they write is rounded once, to the nearest, ties to even.

use tilewright_kernels::ops::{AxisNumber, Padded};
use tilewright_lang::{E4m3, E5m2, bf16, f16};

use crate::device::Item;

/// An element that f32 holds: f32, f16, bf16, and those of 8 bits, E4m3, E5m2, i8 and u8.
///
/// Integers and 8-bit floats take the nearest number that they have, the largest instead of anything beyond it; an integer takes NaN
/// for zero.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element that operators convert",
    note = "those are f32, f16, bf16, E4m3, E5m2, i8 and u8"
)]
pub trait NumberItem: Item + Send + Sync + sealed::Sealed {
    /// The number.
    fn to_f32(self) -> f32;
    /// The nearest number.
    fn from_f32(value: f32) -> Self;
}

/// Floats that operators compute with: f32, f16 and bf16.
#[diagnostic::on_unimplemented(
    message = "operators do not compute with `{Self}`",
    note = "they take f32, f16 and bf16; `convert` makes these of others"
)]
pub trait FloatItem: NumberItem + Padded {}

/// Elements of 8 bits that stand for numbers with a scale: E4m3, E5m2 and i8.
#[diagnostic::on_unimplemented(
    message = "nothing is quantised to `{Self}`",
    note = "quantised elements are E4m3, E5m2 and i8"
)]
pub trait QuantItem: NumberItem {
    /// The largest number that is used.
    const LARGEST: f32;
}

/// Integers that say which row or column is meant: i32, i64 and u32.
#[diagnostic::on_unimplemented(message = "`{Self}` is no index", note = "indices are i32, i64 and u32")]
pub trait IndexItem: Item + AxisNumber + Send + Sync + sealed::Sealed {
    /// As a number; less than zero is no index.
    fn index(self) -> i64;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($ty:ty, |$x:ident| $to:expr, |$y:ident| $from:expr;)*) => {$(
        impl sealed::Sealed for $ty {}
        impl NumberItem for $ty {
            fn to_f32(self) -> f32 {
                let $x = self;
                $to
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
            fn from_f32($y: f32) -> $ty {
                $from
            }
        }
    )*};
}

numbers! {
    f32, |x| x, |y| y;
    f16, |x| f16::to_f32(x), |y| f16::from_f32(y);
    bf16, |x| bf16::to_f32(x), |y| bf16::from_f32(y);
    E4m3, |x| E4m3::to_f32(x), |y| E4m3::from_f32(y);
    E5m2, |x| E5m2::to_f32(x), |y| E5m2::from_f32(y);
    i8, |x| f32::from(x), |y| y.round_ties_even() as i8;
    u8, |x| f32::from(x), |y| y.round_ties_even() as u8;
}

impl FloatItem for f32 {}
impl FloatItem for f16 {}
impl FloatItem for bf16 {}

impl QuantItem for E4m3 {
    const LARGEST: f32 = 448.0;
}
impl QuantItem for E5m2 {
    const LARGEST: f32 = 57344.0;
}
/// Symmetric: -128 is not used.
impl QuantItem for i8 {
    const LARGEST: f32 = 127.0;
}

macro_rules! indices {
    ($($ty:ty)*) => {$(
        impl sealed::Sealed for $ty {}
        impl IndexItem for $ty {
            fn index(self) -> i64 {
                self.into()
            }
        }
    )*};
}

indices!(i32 i64 u32);
