//! Square roots and reciprocals.

use tilewright_ir::{Flags, Opcode, Round};
use tilewright_macros::device;

use super::pieces::approximate;
use crate::value::{Val, select};

#[device]
pub(super) fn sqrt(x: Val<f32>) -> Val<f32> {
    x.unary(Opcode::Sqrt, [Round::Nearest.into()])
}

#[device]
pub(super) fn sqrt_fast(x: Val<f32>) -> Val<f32> {
    approximate(Opcode::Sqrt, x)
}

#[device]
pub(super) fn rsqrt(x: Val<f32>) -> Val<f32> {
    let guess = x.unary(Opcode::Rsqrt, [Flags::APPROX.into()]);
    // 1 - x guess^2, with the product in two parts.
    let root = x * guess;
    let root_low = x.mul_add(guess, -root);
    let remainder = (-root_low).mul_add(guess, (-root).mul_add(guess, 1.0));
    let better = (guess * 0.5).mul_add(remainder, guess);
    // Of zero and infinity the hardware's answer is exact, and there is no remainder.
    select((x > 0.0) & (x < f32::INFINITY), better, guess)
}

#[device]
pub(super) fn rsqrt_fast(x: Val<f32>) -> Val<f32> {
    approximate(Opcode::Rsqrt, x)
}

#[device]
pub(super) fn recip(x: Val<f32>) -> Val<f32> {
    x.unary(Opcode::Rcp, [Round::Nearest.into()])
}

#[device]
pub(super) fn recip_fast(x: Val<f32>) -> Val<f32> {
    approximate(Opcode::Rcp, x)
}
