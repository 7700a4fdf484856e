//! The number formats of tensor cores, and how elements of them are taken out of registers and memory.

use tilewright_ptx::Type;

/// The type of the factors of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    Bf16,
    /// The upper 19 bits of an `f32`.
    Tf32,
    /// IEEE double precision.
    F64,
    /// 8-bit float with 4 bits of exponent, without infinities.
    E4m3,
    /// The upper half of an `f16`.
    E5m2,
    /// 8-bit two's complement.
    S8,
    /// 8-bit unsigned.
    U8,
    /// 4-bit two's complement.
    S4,
    /// 4-bit unsigned.
    U4,
    /// One bit.
    B1,
}

impl Format {
    /// The format that a PTX type names, if tensor cores have it.
    pub fn of(ty: Type) -> Option<Format> {
        Some(match ty {
            Type::F16 => Format::F16,
            Type::Bf16 => Format::Bf16,
            Type::Tf32 => Format::Tf32,
            Type::F64 => Format::F64,
            Type::E4m3 => Format::E4m3,
            Type::E5m2 => Format::E5m2,
            Type::S8 => Format::S8,
            Type::U8 => Format::U8,
            Type::S4 => Format::S4,
            Type::U4 => Format::U4,
            Type::B1 => Format::B1,
            _ => return None,
        })
    }

    /// The size of an element in registers and memory.
    pub const fn bits(self) -> usize {
        match self {
            Format::F64 => 64,
            Format::Tf32 => 32,
            Format::F16 | Format::Bf16 => 16,
            Format::E4m3 | Format::E5m2 | Format::S8 | Format::U8 => 8,
            Format::S4 | Format::U4 => 4,
            Format::B1 => 1,
        }
    }

    /// Elements in a register: of 32 bits, or of 64 bits with one `f64`.
    pub const fn per_register(self) -> usize {
        if self.bits() > 32 { 1 } else { 32 / self.bits() }
    }

    /// Whether products are integers.
    pub const fn is_integer(self) -> bool {
        matches!(self, Format::S8 | Format::U8 | Format::S4 | Format::U4 | Format::B1)
    }
}

/// The type of an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accumulator {
    /// IEEE half precision, two in a register.
    F16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// 32-bit two's complement.
    S32,
}

impl Accumulator {
    /// The accumulator that a PTX type names, if tensor cores have it.
    pub fn of(ty: Type) -> Option<Accumulator> {
        Some(match ty {
            Type::F16 => Accumulator::F16,
            Type::F32 => Accumulator::F32,
            Type::F64 => Accumulator::F64,
            Type::S32 => Accumulator::S32,
            _ => return None,
        })
    }

    /// Elements in a register.
    pub const fn per_register(self) -> usize {
        if matches!(self, Accumulator::F16) { 2 } else { 1 }
    }
}

/// Calls `$function::<BITS>(arguments, decode)` with the size and the decoder of a format. Every format but `f64` has
/// one: its numbers, and the products of two of them that an instruction sums up, are exact in `f32`.
macro_rules! with_decoder {
    ($format:expr, $function:ident($($argument:expr),*)) => {{
        use $crate::tensor::format::{Format, decode};
        match $format {
            Format::F16 => $function::<16>($($argument,)* decode::f16),
            Format::Bf16 => $function::<16>($($argument,)* decode::bf16),
            Format::Tf32 => $function::<32>($($argument,)* decode::tf32),
            Format::E4m3 => $function::<8>($($argument,)* decode::e4m3),
            Format::E5m2 => $function::<8>($($argument,)* decode::e5m2),
            Format::S8 => $function::<8>($($argument,)* decode::s8),
            Format::U8 => $function::<8>($($argument,)* decode::u8),
            Format::S4 => $function::<4>($($argument,)* decode::s4),
            Format::U4 => $function::<4>($($argument,)* decode::u4),
            Format::B1 => $function::<1>($($argument,)* decode::b1),
            // Has its own arithmetic, and no narrower stand-in.
            Format::F64 => {}
        }
    }};
}
pub(super) use with_decoder;

/// One element, in the low bits of a word whose other bits are zero, as `f32`. Without branches, so that loops of them
/// vectorise.
pub(super) mod decode {
    const INFINITE: u32 = 0x7f80_0000;

    #[inline(always)]
    pub(in crate::tensor) fn f16(bits: u32) -> f32 {
        // The exponent moves into place as it is; the product with 2^112 corrects its bias and makes subnormals normal.
        let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
        let special = if bits & 0x7c00 == 0x7c00 { INFINITE } else { 0 };
        f32::from_bits(magnitude.to_bits() | special | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    pub(in crate::tensor) fn bf16(bits: u32) -> f32 {
        f32::from_bits(bits << 16)
    }

    #[inline(always)]
    pub(in crate::tensor) fn tf32(bits: u32) -> f32 {
        // A NaN whose payload is in the dropped bits stays one.
        let kept = bits & 0xffff_e000;
        let nan = if bits & 0x7fff_ffff > INFINITE { 0x0040_0000 } else { 0 };
        f32::from_bits(kept | nan)
    }

    #[inline(always)]
    pub(in crate::tensor) fn e4m3(bits: u32) -> f32 {
        let magnitude = f32::from_bits((bits & 0x7f) << 20) * f32::from_bits(0x7b80_0000);
        let special = if bits & 0x7f == 0x7f { INFINITE } else { 0 };
        f32::from_bits(magnitude.to_bits() | special | (bits & 0x80) << 24)
    }

    #[inline(always)]
    pub(in crate::tensor) fn e5m2(bits: u32) -> f32 {
        f16(bits << 8)
    }

    #[inline(always)]
    pub(in crate::tensor) fn s8(bits: u32) -> f32 {
        signed(bits << 24) / 16_777_216.0
    }

    #[inline(always)]
    pub(in crate::tensor) fn u8(bits: u32) -> f32 {
        unsigned(bits)
    }

    #[inline(always)]
    pub(in crate::tensor) fn s4(bits: u32) -> f32 {
        signed(bits << 28) / 268_435_456.0
    }

    #[inline(always)]
    pub(in crate::tensor) fn u4(bits: u32) -> f32 {
        unsigned(bits)
    }

    #[inline(always)]
    pub(in crate::tensor) fn b1(bits: u32) -> f32 {
        unsigned(bits)
    }

    /// The number with few significant bits whose two's complement this is.
    #[inline(always)]
    fn signed(bits: u32) -> f32 {
        bits.cast_signed() as f32
    }

    /// A small number: as a signed one, which has an instruction.
    #[inline(always)]
    fn unsigned(bits: u32) -> f32 {
        signed(bits)
    }
}

/// The bits of an `f32` result, its NaN the hardware's.
#[inline(always)]
pub(super) fn f32_bits(value: f32) -> u32 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

/// The bits of a result that is rounded to the nearest `f16`, its NaN the hardware's. Without branches, as the
/// decoders.
#[inline(always)]
pub(super) fn f16_bits(value: f32) -> u32 {
    let magnitude = value.to_bits() & 0x7fff_ffff;
    // The last place of a number next to a half is that of a subnormal f16, so the addition rounds.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let odd = magnitude >> 13 & 1;
    let normal = (magnitude.wrapping_add(0xfff + odd) >> 13).wrapping_sub(112 << 10);
    let finite = if magnitude < 0x3880_0000 { subnormal } else { normal };
    let number = if magnitude < 0x4780_0000 { finite } else { 0x7c00 };
    if value.is_nan() { 0x7fff } else { number | value.to_bits() >> 16 & 0x8000 }
}

/// A sum of products of small integers, which `f32` holds exactly.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "an integer below 2^24")]
pub(super) fn integer(value: f32) -> i32 {
    value as i32
}

/// The low 32 bits of a register.
#[inline(always)]
pub(super) fn word(register: u64) -> u32 {
    (register & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::{decode, f16_bits};

    #[test]
    fn results_are_rounded_to_f16_as_by_the_library() {
        for bits in 0..=u16::MAX {
            let (value, next) = (half::f16::from_bits(bits), half::f16::from_bits(bits.wrapping_add(1)));
            let middle = f32::midpoint(value.to_f32(), next.to_f32()).to_bits();
            let near = (middle - middle.min(2)..=middle.saturating_add(2)).map(f32::from_bits);
            for number in near.chain([value.to_f32(), f32::from_bits(u32::from(bits) << 16 | 0x1234)]) {
                let expected =
                    if number.is_nan() { 0x7fff } else { half::f16::from_f32(number).to_bits().into() };
                assert_eq!(f16_bits(number), expected, "{number:e}");
            }
        }
    }

    #[test]
    fn sixteen_bit_floats_agree_with_the_library() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
            for (found, expected) in
                [(decode::f16(bits.into()), half.to_f32()), (decode::bf16(bits.into()), brain.to_f32())]
            {
                let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
                assert!(same, "{bits:#x}: {found} is not {expected}");
            }
        }
    }

    #[test]
    fn eight_bit_floats_agree_with_their_definition() {
        for bits in 0..=255u32 {
            let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
            let value = |mantissa_bits: u32, bias: i32| {
                let (exponent, mantissa) =
                    ((bits & 0x7f) >> mantissa_bits, f64::from(bits & ((1 << mantissa_bits) - 1)));
                let fraction = mantissa / f64::from(1 << mantissa_bits);
                match exponent.cast_signed() {
                    0 => sign * fraction * 2f64.powi(1 - bias),
                    e => sign * (1.0 + fraction) * 2f64.powi(e - bias),
                }
            };
            let e4m3 = f64::from(decode::e4m3(bits));
            if bits & 0x7f == 0x7f {
                assert!(e4m3.is_nan());
            } else {
                assert_eq!(e4m3.to_bits(), value(3, 7).to_bits(), "e4m3 {bits:#x}");
            }
            let e5m2 = f64::from(decode::e5m2(bits));
            match bits & 0x7f {
                0x7c => assert_eq!(e5m2, sign * f64::INFINITY),
                0x7d..=0x7f => assert!(e5m2.is_nan()),
                _ => assert_eq!(e5m2.to_bits(), value(2, 15).to_bits(), "e5m2 {bits:#x}"),
            }
        }
    }

    #[test]
    fn integers_and_tf32() {
        for bits in 0..=255u8 {
            assert_eq!(decode::u8(bits.into()), f32::from(bits));
            assert_eq!(decode::s8(bits.into()), f32::from(bits.cast_signed()));
        }
        for bits in 0..16u8 {
            assert_eq!(decode::u4(bits.into()), f32::from(bits));
            let signed = i16::from(bits) - if bits >= 8 { 16 } else { 0 };
            assert_eq!(decode::s4(bits.into()), f32::from(signed));
        }
        assert_eq!(decode::tf32(0x3f80_1fff), 1.0);
        assert_eq!(decode::tf32(0xbf80_2000), -(1.0 + 2f32.powi(-10)));
        assert!(decode::tf32(0x7f80_0001).is_nan() && decode::tf32(0x7f80_0000).is_infinite());
    }
}
