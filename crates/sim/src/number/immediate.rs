//! Constants as sources.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "constants are cut to the width of the source"
)]

use tilewright_ptx::{Immediate, Type};

use super::format::{Rounding, Small, f64_to_f32};

/// The bits of a constant as a source of a type, zero-extended to 64 bits.
///
/// Integers are cut to the width of the type, also where the type is a float: they are its bits. A float becomes the
/// nearest number of a float type; for other types of 32 and 64 bits it is the bits of the `f32` or `f64` of that width.
///
/// ```
/// use tilewright_ptx::{Immediate, Type};
/// use tilewright_sim::number::immediate;
/// assert_eq!(immediate(Immediate::Int(-1), Type::U16), 0xffff);
/// assert_eq!(immediate(Immediate::F64(1.5f64.to_bits()), Type::F32), u64::from(1.5f32.to_bits()));
/// ```
pub fn immediate(value: Immediate, ty: Type) -> u64 {
    let keep = if ty.bits() >= 64 { u64::MAX } else { (1 << ty.bits()) - 1 };
    match value {
        Immediate::Int(value) => value as u64 & keep,
        Immediate::Unsigned(value) => value & keep,
        Immediate::WarpSize => 32,
        Immediate::F32(bits) => match ty {
            Type::F64 => f64::from(f32::from_bits(bits)).to_bits(),
            Type::F16 | Type::Bf16 => float(f64::from(f32::from_bits(bits)), ty),
            _ => u64::from(bits) & keep,
        },
        Immediate::F64(bits) => match ty.bits() {
            64 => bits,
            _ => float(f64::from_bits(bits), ty) & keep,
        },
    }
}

/// A number as a float of at most 32 bits; `f32` for types that are not floats.
fn float(value: f64, ty: Type) -> u64 {
    u64::from(match ty {
        Type::F16 => Small::F16.encode(value, Rounding::Nearest, false),
        Type::Bf16 => Small::BF16.encode(value, Rounding::Nearest, false),
        _ => f64_to_f32(value, Rounding::Nearest).to_bits(),
    })
}
