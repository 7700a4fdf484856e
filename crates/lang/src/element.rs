//! Which Rust types stand for which element types.

use half::{bf16, f16};
use tilewright_ir::Element as Kind;

/// A Rust type that staged values can have: it names an [element type](Kind) and its constants have bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of the kernel language",
    note = "element types are bool, i8 to i64, u8 to u64, f16, bf16, f32, f64, Tf32, E4m3, E5m2, E2m1 and Ue8m0"
)]
pub trait Element: Copy + PartialEq + 'static {
    /// The element type as a value, for all that takes one so: `f32::ELEMENT` for a bias of a matrix product.
    const ELEMENT: Kind;
    /// The bits of a constant; only as many as the element has count.
    fn to_bits(self) -> u64;
}

/// Elements with arithmetic: integers and the floats f16, bf16, f32 and f64.
#[diagnostic::on_unimplemented(
    message = "there is no arithmetic on `{Self}`",
    note = "arithmetic exists for integers, f16, bf16, f32 and f64; convert with `.cast::<f32>()` first"
)]
pub trait Number: Element {
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
}

/// Integers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer",
    note = "integers are i8 to i64 and u8 to u64"
)]
pub trait Integer: Number {}

/// Integers of 32 bits: what most warp instructions take.
#[diagnostic::on_unimplemented(message = "`{Self}` is not an integer of 32 bits", note = "use u32 or i32")]
pub trait Word: Integer {}

/// Floats with arithmetic.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a float with arithmetic",
    note = "those are f16, bf16, f32 and f64"
)]
pub trait Float: Number {}

/// Integers and `bool`.
#[diagnostic::on_unimplemented(message = "`{Self}` has no bitwise logic", note = "integers and bool have")]
pub trait Logic: Element {}

macro_rules! elements {
    ($( $ty:ty = $kind:ident, |$x:ident| $bits:expr; $($role:ident)* ),* $(,)?) => {$(
        #[diagnostic::do_not_recommend]
        impl Element for $ty {
            const ELEMENT: Kind = Kind::$kind;
            fn to_bits(self) -> u64 {
                let $x = self;
                $bits
            }
        }
        $( elements!(@ $role $ty); )*
    )*};
    (@ int $ty:ty) => {
        impl Number for $ty { const ZERO: $ty = 0; const ONE: $ty = 1; }
        impl Integer for $ty {}
        impl Logic for $ty {}
    };
    (@ word $ty:ty) => { impl Word for $ty {} };
    (@ float $ty:ty) => {
        impl Number for $ty { const ZERO: $ty = 0.0; const ONE: $ty = 1.0; }
        impl Float for $ty {}
    };
    (@ half $ty:ty) => {
        impl Number for $ty { const ZERO: $ty = <$ty>::ZERO; const ONE: $ty = <$ty>::ONE; }
        impl Float for $ty {}
    };
    (@ logic $ty:ty) => { impl Logic for $ty {} };
}

elements! {
    bool = Bool, |x| u64::from(x); logic,
    i8 = I8, |x| i64::from(x).cast_unsigned(); int,
    i16 = I16, |x| i64::from(x).cast_unsigned(); int,
    i32 = I32, |x| i64::from(x).cast_unsigned(); int word,
    i64 = I64, |x| x.cast_unsigned(); int,
    u8 = U8, |x| u64::from(x); int,
    u16 = U16, |x| u64::from(x); int,
    u32 = U32, |x| u64::from(x); int word,
    u64 = U64, |x| x; int,
    f16 = F16, |x| u64::from(x.to_bits()); half,
    bf16 = BF16, |x| u64::from(x.to_bits()); half,
    f32 = F32, |x| u64::from(x.to_bits()); float,
    f64 = F64, |x| x.to_bits(); float,
    Tf32 = TF32, |x| u64::from(x.0.to_bits());,
    E4m3 = E4M3, |x| u64::from(x.0);,
    E5m2 = E5M2, |x| u64::from(x.0);,
    E2m1 = E2M1, |x| u64::from(x.0);,
    Ue8m0 = UE8M0, |x| u64::from(x.0);,
}

/// An f32 of which tensor cores read the upper 19 bits.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Tf32(pub f32);

macro_rules! narrow {
    ($( $(#[$doc:meta])* $name:ident )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub u8);
    )*};
}

narrow! {
    /// An 8-bit float with 4 exponent bits, by its bits. Finite up to 448; there is no infinity.
    ///
    /// ```
    /// use tilewright_lang::prelude::*;
    /// assert_eq!(E4m3::from_f32(1.0), E4m3(0x38));
    /// assert_eq!(E4m3::from_f32(1000.0).to_f32(), 448.0);
    /// ```
    E4m3
    /// An 8-bit float with 5 exponent bits, by its bits. Finite up to 57344.
    ///
    /// ```
    /// use tilewright_lang::prelude::*;
    /// assert_eq!(E5m2::from_f32(0.75).to_f32(), 0.75);
    /// assert_eq!(E5m2::from_f32(f32::INFINITY).to_f32(), 57344.0);
    /// ```
    E5m2
    /// A 4-bit float, by its bits. Two share a byte.
    E2m1
    /// A power of two in 8 bits: the scale of a block of small floats.
    Ue8m0
}

/// The format of an 8-bit float: a sign, then exponent and mantissa.
struct Format {
    mantissa_bits: u32,
    bias: i32,
    /// Bits of the largest finite number.
    largest: u8,
    /// Bits of plus infinity, if it exists. What lies beyond, or beyond `largest`, is NaN.
    infinity: Option<u8>,
}

const E4M3: Format = Format { mantissa_bits: 3, bias: 7, largest: 0x7e, infinity: None };
const E5M2: Format = Format { mantissa_bits: 2, bias: 15, largest: 0x7b, infinity: Some(0x7c) };
/// The one NaN that conversions give, in both formats.
const NAN: u8 = 0x7f;

impl Format {
    /// The nearest number, of two the even one; the largest finite one instead of anything beyond it.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 16 steps, and positive"
    )]
    fn encode(&self, value: f64) -> u8 {
        if value.is_nan() {
            return NAN;
        }
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let size = value.abs().min(self.decode(self.largest));
        // All subnormal numbers have the exponent of the smallest normal ones.
        let lowest = 1 - self.bias;
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(lowest);
        let steps = (size * self.power(-exponent)).round_ties_even() as u32;
        // A normal number has its leading one among the steps, so that it counts as one exponent; carries work by themselves.
        let below = (exponent - lowest) as u32;
        sign | ((below << self.mantissa_bits) + steps) as u8
    }

    /// Two to the power of `exponent`, times the steps from one to two.
    fn power(&self, exponent: i32) -> f64 {
        f64::from(exponent).exp2() * f64::from(1u32 << self.mantissa_bits)
    }

    fn decode(&self, bits: u8) -> f64 {
        let magnitude = bits & 0x7f;
        let (exponent, mantissa) = (
            i32::from(magnitude >> self.mantissa_bits),
            u32::from(magnitude) & ((1 << self.mantissa_bits) - 1),
        );
        let size = if Some(magnitude) == self.infinity {
            f64::INFINITY
        } else if magnitude > self.largest {
            f64::NAN
        } else {
            let leading = if exponent == 0 { 0 } else { 1 << self.mantissa_bits };
            f64::from(leading + mantissa) / self.power(self.bias - exponent.max(1))
        };
        if bits & 0x80 == 0 { size } else { -size }
    }
}

macro_rules! small_floats {
    ($($ty:ident $format:ident),*) => {$(
        impl $ty {
            /// The nearest number, ties to even; beyond the largest finite number that one, as kernels convert.
            #[must_use]
            pub fn from_f32(value: f32) -> $ty {
                $ty($format.encode(f64::from(value)))
            }

            /// The nearest number, ties to even; beyond the largest finite number that one.
            #[must_use]
            pub fn from_f64(value: f64) -> $ty {
                $ty($format.encode(value))
            }

            /// The number, exactly.
            #[must_use]
            #[allow(clippy::cast_possible_truncation, reason = "f32 has every number of eight bits")]
            pub fn to_f32(self) -> f32 {
                $format.decode(self.0) as f32
            }

            /// The number, exactly.
            #[must_use]
            pub fn to_f64(self) -> f64 {
                $format.decode(self.0)
            }
        }
    )*};
}

small_floats!(E4m3 E4M3, E5m2 E5M2);

/// The number of 16 bits that is nearest to one of 64, ties to even. The conversions of the crate `half` drop bits first.
///
/// ```
/// use tilewright_lang::{nearest_f16, f16};
///
/// let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-50); // above the middle between 1 and the next number
/// assert_eq!(nearest_f16(above).to_bits(), f16::ONE.to_bits() + 1);
/// ```
#[must_use]
pub fn nearest_f16(value: f64) -> f16 {
    f16::from_f32(odd(value))
}

/// The number of 16 bits that is nearest to one of 64, ties to even. The conversions of the crate `half` drop bits first.
///
/// ```
/// use tilewright_lang::{nearest_bf16, bf16};
///
/// let above = 1.0 + 2f64.powi(-8) + 2f64.powi(-50); // above the middle between 1 and the next number
/// assert_eq!(nearest_bf16(above).to_bits(), bf16::ONE.to_bits() + 1);
/// ```
#[must_use]
pub fn nearest_bf16(value: f64) -> bf16 {
    bf16::from_f32(odd(value))
}

/// As f32, and of two neighbours the one with an odd last bit: rounded once more to fewer bits, it gives what the number itself would.
#[allow(clippy::cast_possible_truncation, reason = "rounded")]
fn odd(value: f64) -> f32 {
    let near = value as f32;
    let (bits, wide) = (near.to_bits(), f64::from(near));
    match bits & 1 {
        0 if wide.abs() > value.abs() => f32::from_bits(bits - 1),
        0 if wide.abs() < value.abs() => f32::from_bits(bits + 1),
        _ => near,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_are_what_their_formats_say() {
        for (bits, value) in
            [(0x00, 0.0), (0x01, 0.001_953_125), (0x08, 0.015_625), (0x38, 1.0), (0x7e, 448.0)]
        {
            assert_eq!(E4m3(bits).to_f32(), value);
            assert_eq!(E4m3(bits | 0x80).to_f32(), -value);
        }
        for (bits, value) in [(0x01, 2f32.powi(-16)), (0x04, 2f32.powi(-14)), (0x3c, 1.0), (0x7b, 57344.0)] {
            assert_eq!(E5m2(bits).to_f32(), value);
        }
        assert!(E4m3(0x7f).to_f32().is_nan() && E4m3(0xff).to_f32().is_nan());
        assert_eq!(E5m2(0xfc).to_f32(), f32::NEG_INFINITY);
        assert!((0x7d..=0x7f).all(|bits| E5m2(bits).to_f32().is_nan()));
    }

    /// Every number comes back; between neighbours the nearer one is chosen, and of two equally near the even one.
    fn rounds_to_nearest(from: fn(f64) -> u8, to: fn(u8) -> f64, largest: u8) {
        for sign in [0, 0x80] {
            for bits in 0..=largest {
                assert_eq!(from(to(bits | sign)), bits | sign);
                if bits == largest {
                    continue;
                }
                let (low, high) = (to(bits | sign), to((bits + 1) | sign));
                let middle = f64::midpoint(low, high);
                let even = if bits % 2 == 0 { bits } else { bits + 1 };
                assert_eq!(from(middle), even | sign, "the middle of {low} and {high}");
                assert_eq!(from(f64::midpoint(low, middle)), bits | sign);
                assert_eq!(from(f64::midpoint(middle, high)), (bits + 1) | sign);
                // One bit of an f64 off the middle decides, too: there is no rounding in between.
                let nudge = |by: f64| middle * (1.0 + by * f64::EPSILON);
                assert_eq!(from(nudge(-2.0)), bits | sign);
                assert_eq!(from(nudge(2.0)), (bits + 1) | sign);
            }
            let beyond = if sign == 0 { f64::INFINITY } else { f64::NEG_INFINITY };
            assert_eq!(from(beyond), largest | sign);
            assert_eq!(from(to(largest | sign) * 3.0), largest | sign);
        }
        assert_eq!(from(f64::NAN), NAN);
        assert_eq!(from(1e-300), 0);
        assert_eq!(from(-1e-300), 0x80);
    }

    /// Sixteen bits, between all neighbours: the middle goes to the even one, and one bit of an f64 beside it decides.
    #[test]
    fn every_sixteen_bit_float_is_rounded_to() {
        type Way = (fn(f64) -> u16, fn(u16) -> f64, u16);
        let ways: [Way; 2] = [
            (|x| nearest_f16(x).to_bits(), |bits| f16::from_bits(bits).to_f64(), f16::INFINITY.to_bits()),
            (|x| nearest_bf16(x).to_bits(), |bits| bf16::from_bits(bits).to_f64(), bf16::INFINITY.to_bits()),
        ];
        for (from, to, infinity) in ways {
            for bits in 0..infinity {
                let low = to(bits);
                // The place of infinity is where the next number would be.
                let high = if bits + 1 == infinity { 2.0 * low - to(bits - 1) } else { to(bits + 1) };
                let middle = f64::midpoint(low, high);
                let even = bits + (bits & 1);
                for (value, expected) in [
                    (low, bits),
                    (middle, even),
                    (middle.next_down(), bits),
                    (middle.next_up(), bits + 1),
                    (f64::midpoint(low, middle), bits),
                    (f64::midpoint(middle, high), bits + 1),
                ] {
                    assert_eq!(from(value), expected, "{value:e} between {low:e} and {high:e}");
                    assert_eq!(from(-value), expected | 0x8000);
                }
            }
            assert_eq!(from(f64::INFINITY), infinity);
            assert_eq!(from(f64::MAX), infinity);
            assert_eq!(from(f64::MIN_POSITIVE), 0);
            assert!(to(from(f64::NAN)).is_nan());
        }
    }

    #[test]
    fn every_eight_bit_float_is_rounded_to() {
        rounds_to_nearest(|x| E4m3::from_f64(x).0, |bits| E4m3(bits).to_f64(), 0x7e);
        rounds_to_nearest(|x| E5m2::from_f64(x).0, |bits| E5m2(bits).to_f64(), 0x7b);
        assert_eq!(E4m3::from_f32(-0.0), E4m3(0x80));
        assert_eq!((E4m3::from_f32(464.0), E5m2::from_f32(3.0)), (E4m3(0x7e), E5m2(0x42)));
    }
}
