//! What an atomic operation or a reduction does to one element.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "elements are the low bits of a word"
)]

use tilewright_ptx::{Modifier, Type};

use super::float::{Binary16, Brain16, Half, quiet};
use super::format::{CANONICAL, canonical};

/// The operation of `atom`, `red`, `redux`, `cp.reduce.async.bulk` and `multimem`.
///
/// ```
/// use tilewright_ptx::Type;
/// use tilewright_sim::number::Combine;
/// assert_eq!(Combine::Max.apply(Type::S32, 5, u64::from(-1i32 as u32), 0), Some(5));
/// assert_eq!(Combine::Inc.apply(Type::U32, 7, 7, 0), Some(0));
/// assert_eq!(Combine::Xor.apply(Type::F32, 0, 0, 0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Sum; floats are rounded to nearest even, with subnormal numbers.
    Add,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// One more, and 0 behind the value.
    Inc,
    /// One less, and the value before 0 and from above it.
    Dec,
    /// The value.
    Exch,
    /// The value where the old one is `compare`.
    Cas,
    /// Bits of both.
    And,
    /// Bits of either.
    Or,
    /// Bits of one.
    Xor,
}

impl Combine {
    /// The operation that a modifier names.
    pub fn of(word: Modifier) -> Option<Combine> {
        Some(match word {
            Modifier::AddOp => Combine::Add,
            Modifier::MinOp => Combine::Min,
            Modifier::MaxOp => Combine::Max,
            Modifier::Inc => Combine::Inc,
            Modifier::Dec => Combine::Dec,
            Modifier::Exch => Combine::Exch,
            Modifier::Cas => Combine::Cas,
            Modifier::AndOp => Combine::And,
            Modifier::OrOp => Combine::Or,
            Modifier::XorOp => Combine::Xor,
            _ => return None,
        })
    }

    /// The new element; `None` where the operation does not exist for the type. Bits above the type are ignored.
    ///
    /// `atom.add.f32` in global memory flushes subnormal numbers on hardware; this does not, as in shared memory.
    pub fn apply(self, ty: Type, old: u64, value: u64, compare: u64) -> Option<u64> {
        if ty.bits() > 64 || ty.bits() < 16 {
            return None;
        }
        let keep = u64::MAX >> (64 - ty.bits());
        let (old, value, compare) = (old & keep, value & keep, compare & keep);
        let bits = matches!(ty, Type::B16 | Type::B32 | Type::B64);
        let new = match (self, ty) {
            (Combine::Exch, _) => value,
            (Combine::Cas, _) => {
                if old == compare {
                    value
                } else {
                    old
                }
            }
            (Combine::And, _) if bits => old & value,
            (Combine::Or, _) if bits => old | value,
            (Combine::Xor, _) if bits => old ^ value,
            (Combine::Inc, Type::U32) => {
                if old >= value {
                    0
                } else {
                    old + 1
                }
            }
            (Combine::Dec, Type::U32) => {
                if old == 0 || old > value {
                    value
                } else {
                    old - 1
                }
            }
            (Combine::Add, Type::U32 | Type::S32 | Type::U64 | Type::S64) => old.wrapping_add(value) & keep,
            (Combine::Min, Type::U32 | Type::U64) => old.min(value),
            (Combine::Max, Type::U32 | Type::U64) => old.max(value),
            (Combine::Min, Type::S32) => u64::from((old as i32).min(value as i32) as u32),
            (Combine::Max, Type::S32) => u64::from((old as i32).max(value as i32) as u32),
            (Combine::Min, Type::S64) => (old as i64).min(value as i64) as u64,
            (Combine::Max, Type::S64) => (old as i64).max(value as i64) as u64,
            (Combine::Add, Type::F32) => {
                let sum = f32::from_bits(old as u32) + f32::from_bits(value as u32);
                u64::from(canonical(sum).to_bits())
            }
            (Combine::Add, Type::F64) => {
                let (old, value) = (f64::from_bits(old), f64::from_bits(value));
                quiet(old + value, [value, old]).to_bits()
            }
            (Combine::Min | Combine::Max, Type::F32) => {
                let (old, value) = (f32::from_bits(old as u32), f32::from_bits(value as u32));
                u64::from(self.extreme(old, value).to_bits())
            }
            (Combine::Add | Combine::Min | Combine::Max, Type::F16) => self.half::<Binary16>(old, value),
            (Combine::Add | Combine::Min | Combine::Max, Type::Bf16) => self.half::<Brain16>(old, value),
            (Combine::Add | Combine::Min | Combine::Max, Type::F16x2) => {
                self.half::<Binary16>(old, value) | self.half::<Binary16>(old >> 16, value >> 16) << 16
            }
            (Combine::Add | Combine::Min | Combine::Max, Type::Bf16x2) => {
                self.half::<Brain16>(old, value) | self.half::<Brain16>(old >> 16, value >> 16) << 16
            }
            _ => return None,
        };
        Some(new)
    }

    /// The low half.
    fn half<H: Half>(self, old: u64, value: u64) -> u64 {
        let (old, value) = (H::up(old as u16), H::up(value as u16));
        u64::from(H::down(if self == Combine::Add { old + value } else { self.extreme(old, value) }))
    }

    /// The smaller or larger number; a NaN gives way to a number, and -0 is below +0.
    fn extreme(self, a: f32, b: f32) -> f32 {
        let below = a < b || (a == b && a.is_sign_negative());
        match (a.is_nan(), b.is_nan()) {
            (true, true) => CANONICAL,
            (true, false) => b,
            (false, true) => a,
            _ if below == (self == Combine::Min) => a,
            _ => b,
        }
    }
}
