//! The hyperbolic tangent.

use tilewright_ir::Opcode;
use tilewright_macros::device;

use super::exponential::exp_in_range;
use super::pieces::{polynomial, quotient};
use crate::value::{Val, select, val};

/// (tanh(x) - x) / x^3 in x^2, x up to 0.6: tanh(x) to a relative error of 2^-28.4.
const TANH: [f32; 5] = [-0.333_333, 0.133_319_36, -0.053_784_717, 0.020_798_625, -0.005_897_966_7];

#[device]
pub(super) fn tanh(x: Val<f32>) -> Val<f32> {
    let z = x * x;
    let near = (x * z).mul_add(polynomial(z, &TANH), x);
    // 1 - 2 / (e^2x + 1); from 10 on it rounds to one.
    let double = x.abs().min_nan(10.0) * 2.0;
    let far = 1.0 - quotient(val(2.0), exp_in_range(double) + 1.0);
    select(x.abs() < 0.6, near, far).copysign(x)
}

#[device]
pub(super) fn tanh_fast(x: Val<f32>) -> Val<f32> {
    x.unary(Opcode::Tanh, [])
}
