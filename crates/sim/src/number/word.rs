//! The types that lanes are read as, and loops over lanes.
//!
//! Every loop takes a closure without branches on the operation, so that it can be compiled to vector instructions; the
//! choice of the operation is made once, outside.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "reading a lane means taking its low bits"
)]

use super::Lanes;

/// A value in the low bits of a lane.
pub(super) trait Word: Copy {
    /// The value in a lane; higher bits are ignored.
    fn of(lane: u64) -> Self;
    /// The lane with the value, zero-extended.
    fn lane(self) -> u64;
}

macro_rules! words {
    ($($ty:ty, $unsigned:ty;)*) => {$(
        impl Word for $ty {
            #[inline(always)]
            fn of(lane: u64) -> $ty {
                lane as $ty
            }
            #[inline(always)]
            fn lane(self) -> u64 {
                u64::from(self as $unsigned)
            }
        }
    )*};
}

words! { u8, u8; i8, u8; u16, u16; i16, u16; u32, u32; i32, u32; u64, u64; i64, u64; }

impl Word for f32 {
    #[inline(always)]
    fn of(lane: u64) -> f32 {
        f32::from_bits(lane as u32)
    }
    #[inline(always)]
    fn lane(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Word for f64 {
    #[inline(always)]
    fn of(lane: u64) -> f64 {
        f64::from_bits(lane)
    }
    #[inline(always)]
    fn lane(self) -> u64 {
        self.to_bits()
    }
}

/// One source.
#[inline(always)]
pub(super) fn map1<A: Word, D: Word>(a: &Lanes, f: impl Fn(A) -> D) -> Lanes {
    let mut out = [0; 32];
    for i in 0..32 {
        out[i] = f(A::of(a[i])).lane();
    }
    out
}

/// Two sources.
#[inline(always)]
pub(super) fn map2<A: Word, B: Word, D: Word>(a: &Lanes, b: &Lanes, f: impl Fn(A, B) -> D) -> Lanes {
    let mut out = [0; 32];
    for i in 0..32 {
        out[i] = f(A::of(a[i]), B::of(b[i])).lane();
    }
    out
}

/// Three sources.
#[inline(always)]
pub(super) fn map3<A: Word, B: Word, C: Word, D: Word>(
    [a, b, c]: [&Lanes; 3],
    f: impl Fn(A, B, C) -> D,
) -> Lanes {
    let mut out = [0; 32];
    for i in 0..32 {
        out[i] = f(A::of(a[i]), B::of(b[i]), C::of(c[i])).lane();
    }
    out
}

/// Four sources.
#[inline(always)]
pub(super) fn map4<A: Word, B: Word, C: Word, E: Word, D: Word>(
    [a, b, c, e]: [&Lanes; 4],
    f: impl Fn(A, B, C, E) -> D,
) -> Lanes {
    let mut out = [0; 32];
    for i in 0..32 {
        out[i] = f(A::of(a[i]), B::of(b[i]), C::of(c[i]), E::of(e[i])).lane();
    }
    out
}

/// The lanes in which two values compare as asked, as a mask.
#[inline(always)]
pub(super) fn test2<A: Word>(a: &Lanes, b: &Lanes, f: impl Fn(A, A) -> bool) -> u32 {
    let mut mask = 0;
    for i in 0..32 {
        mask |= if f(A::of(a[i]), A::of(b[i])) { 1u32 << i } else { 0 };
    }
    mask
}
