//! Small floats to and from `f64`, and sums that round once.
//!
//! Every format narrower than f64 converts to it exactly, so a conversion is a decode to f64 and one rounding. Sums of 16-bit floats
//! are not exact in f64; they are rounded *to odd* there (the last bit records that something was lost), which makes the second
//! rounding give what a single one would.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "fields of an encoding are cut out of wider words on purpose"
)]

use tilewright_ir::{Element, Round};

/// The value that an encoding stands for; `None` if the element is no float.
pub fn decode(element: Element, bits: u64) -> Option<f64> {
    match element {
        Element::F64 => return Some(f64::from_bits(bits)),
        Element::F32 => return Some(f64::from(f32::from_bits(bits as u32))),
        Element::TF32 => return Some(f64::from(f32::from_bits(bits as u32 & !0x1fff))),
        Element::UE8M0 => return Some(if bits == 0xff { f64::NAN } else { 2f64.powi(bits as i32 - 127) }),
        _ => {}
    }
    let (exponent_bits, mantissa_bits) = (element.exponent_bits()?, element.mantissa_bits()?);
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let top = (1 << exponent_bits) - 1;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let magnitude = match element {
        Element::E4M3 if bits & 0x7f == 0x7f => f64::NAN,
        Element::F16 | Element::BF16 | Element::E5M2 if exponent == top => {
            if mantissa == 0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        _ if exponent == 0 => mantissa as f64 * 2f64.powi(1 - bias - mantissa_bits as i32),
        _ => {
            (mantissa + (1 << mantissa_bits)) as f64
                * 2f64.powi(exponent as i32 - bias - mantissa_bits as i32)
        }
    };
    let negative = bits >> (exponent_bits + mantissa_bits) & 1 == 1;
    Some(if negative { -magnitude } else { magnitude })
}

/// The NaN that results are: the hardware's where it has one of its own. Which NaN a result is, is not part of an op's meaning.
pub(crate) fn nan(element: Element) -> Option<u64> {
    Some(match element {
        Element::F64 => 0x7ff8_0000_0000_0000,
        Element::F32 | Element::TF32 => 0x7fff_ffff,
        Element::F16 | Element::BF16 => 0x7fff,
        Element::E4M3 | Element::E5M2 => 0x7f,
        _ => return None,
    })
}

/// The largest finite number of a format, without its sign.
fn largest(element: Element) -> Option<u64> {
    Some(match element {
        Element::F64 => 0x7fef_ffff_ffff_ffff,
        Element::F32 => 0x7f7f_ffff,
        Element::TF32 => 0x7f7f_e000,
        Element::F16 => 0x7bff,
        Element::BF16 => 0x7f7f,
        Element::E4M3 => 0x7e,
        Element::E5M2 => 0x7b,
        Element::E2M1 => 0x7,
        _ => return None,
    })
}

/// The encoding nearest to `value` by `mode`. What lies beyond the largest number becomes infinity, or that number if `finite`;
/// `None` if the format has neither infinity nor NaN for it.
pub fn encode(element: Element, value: f64, mode: Round, finite: bool) -> Option<u64> {
    if value.is_nan() {
        return nan(element);
    }
    let largest = largest(element)?;
    if element == Element::F64 {
        return Some(if finite && value.is_infinite() {
            (value.to_bits() & 1 << 63) | largest
        } else {
            value.to_bits()
        });
    }
    let negative = value.is_sign_negative();
    let (exponent_bits, mantissa_bits) = (element.exponent_bits()?, element.mantissa_bits()?);
    // A tf32 sits in the upper bits of an f32.
    let unused = if element == Element::TF32 { 13 } else { 0 };
    let sign = u64::from(negative) << (exponent_bits + mantissa_bits + unused);
    let has_infinity = !matches!(element, Element::E4M3 | Element::E2M1);
    let over = |rounds_away: bool| {
        if finite || !rounds_away {
            Some(sign | largest)
        } else if has_infinity {
            Some(sign | ((1 << exponent_bits) - 1) << (mantissa_bits + unused))
        } else {
            None
        }
    };
    if value.is_infinite() {
        return over(true);
    }
    let magnitude = value.abs();
    let raw = magnitude.to_bits();
    let lowest = 2 - (1 << (exponent_bits - 1));
    let (digits, scale) = match raw >> 52 {
        0 => (raw, -1074),
        e => ((raw & ((1 << 52) - 1)) | 1 << 52, e as i32 - 1075),
    };
    let power = scale + 63 - digits.leading_zeros() as i32;
    let quantum = power.max(lowest) - mantissa_bits as i32;
    let shift = (quantum - scale).clamp(0, 63);
    let (kept, rest, half) = if shift == 0 {
        (digits, 0, 1)
    } else {
        (digits >> shift, digits & ((1 << shift) - 1), 1u64 << (shift - 1))
    };
    let up = match mode {
        Round::Nearest => rest > half || (rest == half && kept & 1 == 1),
        Round::Away => rest >= half && rest > 0,
        Round::Zero => false,
        Round::Down => negative && rest > 0,
        Round::Up => !negative && rest > 0,
    };
    let kept = kept + u64::from(up);
    // A carry out of the mantissa runs into the exponent, as it must.
    let bits = if digits == 0 || power < lowest {
        kept
    } else {
        (((power - lowest) as u64) << mantissa_bits) + kept
    } << unused;
    if bits > largest {
        let rounds_away = match mode {
            Round::Nearest | Round::Away => true,
            Round::Zero => false,
            Round::Down => negative,
            Round::Up => !negative,
        };
        return over(rounds_away);
    }
    Some(sign | bits)
}

/// `a + b`, rounded to odd.
pub fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let back = sum - a;
    let lost = (a - (sum - back)) + (b - back);
    odd(sum, lost)
}

/// An integer as f64, rounded to odd.
pub(crate) fn from_int(value: i128) -> f64 {
    let near = value as f64;
    let lost = value - near as i128;
    odd(near, lost as f64)
}

fn odd(near: f64, lost: f64) -> f64 {
    if lost == 0.0 || near.to_bits() & 1 == 1 {
        return near;
    }
    let away = (lost > 0.0) == (near > 0.0);
    f64::from_bits(if away { near.to_bits() + 1 } else { near.to_bits() - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_formats_round_trip() {
        for element in [Element::F16, Element::BF16, Element::E4M3, Element::E5M2, Element::E2M1] {
            for bits in 0..1u64 << element.bits() {
                let value = decode(element, bits).unwrap();
                if !value.is_nan() {
                    assert_eq!(
                        encode(element, value, Round::Nearest, false),
                        Some(bits),
                        "{element} {bits:#x}"
                    );
                    assert_eq!(encode(element, value, Round::Zero, false), Some(bits), "{element} {bits:#x}");
                }
            }
        }
    }

    #[test]
    fn f32_agrees_with_the_processor() {
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(state ^ state >> 29);
            // Exponents of all f32, subnormals included, come up often enough only if they are forced.
            let value =
                f64::from_bits(value.to_bits() & !(0x7ff << 52) | (1023 - 160 + (state >> 33) % 300) << 52);
            let expected = value as f32;
            assert_eq!(
                encode(Element::F32, value, Round::Nearest, false),
                Some(u64::from(expected.to_bits())),
                "{value:e}"
            );
        }
    }

    #[test]
    fn ties_and_directions() {
        let f16 = |value, mode| encode(Element::F16, value, mode, false).unwrap();
        let tie = 1.0 + 2f64.powi(-11);
        assert_eq!(f16(tie, Round::Nearest), 0x3c00);
        assert_eq!(f16(tie, Round::Away), 0x3c01);
        assert_eq!(f16(-tie, Round::Down), 0xbc01);
        assert_eq!(f16(-tie, Round::Up), 0xbc00);
        assert_eq!(f16(tie + 2f64.powi(-52), Round::Nearest), 0x3c01);
        assert_eq!(f16(65520.0, Round::Nearest), 0x7c00);
        assert_eq!(f16(65520.0, Round::Zero), 0x7bff);
        assert_eq!(encode(Element::E4M3, 1e9, Round::Nearest, true), Some(0x7e));
        assert_eq!(encode(Element::E4M3, 1e9, Round::Nearest, false), None);
    }

    #[test]
    fn sums_keep_the_sticky_bit() {
        // 1 + 2^-8 is a tie in bf16; the tiny third part decides, and f64 alone would lose it.
        let exact = add_odd(1.0 + 2f64.powi(-8), 2f64.powi(-120));
        assert_eq!(encode(Element::BF16, exact, Round::Nearest, false), Some(0x3f81));
        assert_eq!(from_int((1 << 60) + 1), ((1i64 << 60) + 256) as f64);
    }
}
