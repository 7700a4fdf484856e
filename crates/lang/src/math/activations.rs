//! Activation functions of neural networks.
//!
//! For large negative arguments these are products of something small with an exponential. The accurate forms keep the relative error
//! there too, down to subnormal results: exponents are carried as sums of two floats, and the power of two is multiplied in last.

use tilewright_ir::Opcode;
use tilewright_macros::device;

use super::error_function::{ERF, erf_fast};
use super::exponential::{LOG2_E, exp_fast, exp_parts, exp_parts_of_sum, exp2_fast};
use super::pieces::{Scaled, approximate, exact_sum, polynomial, quotient};
use crate::value::{Val, select, val};

/// 2 sqrt(2/pi) and 0.044715 of it: the logistic function of `x (A + B x^2)` is close to that of the normal distribution. Both in
/// two floats.
const TANH_FORM_A: [f32; 2] = [1.595_769_2, -4.534_068e-8];
const TANH_FORM_B: [f32; 2] = [0.071_354_814, 2.398_832_5e-9];

/// (t + k) e^(t^2/2) (1 - Phi(t)), Phi being the normal distribution, in (t - k) / (t + k), t from 0.98 to 15, to a relative error
/// of 2^-28.4. The offset k is one for which the first two coefficients are close to floats.
const NORMAL_TAIL: [f32; 9] = [
    0.713_040_7,
    -0.454_474_33,
    0.157_044_28,
    -0.002_713_237_2,
    -0.017_181_864,
    0.000_788_456_3,
    0.002_771_701_7,
    0.000_179_073_88,
    -0.000_520_168_6,
];
const NORMAL_TAIL_OFFSET: f32 = 2.623_046_9;

/// e^v / (1 + e^v) for v < 0, but without the power of two of e^v, and 1 / (1 + e^v) for others; `power` is e^-|v|.
#[device]
fn logistic(negative: Val<bool>, power: Scaled) -> Val<f32> {
    quotient(select(negative, power.mantissa, 1.0f32), power.value() + 1.0)
}

/// `x` times the logistic function of v, which has the sign of x; `power` is e^-|v|.
#[device]
fn gated(x: Val<f32>, lowest: f32, power: Scaled) -> Val<f32> {
    let negative = x < 0.0;
    // Below the lowest the result is -0; the clamp saves minus infinity from becoming NaN.
    let product = x.max_nan(lowest) * logistic(negative, power);
    select(negative, power.scale(product), product)
}

#[device]
pub(super) fn sigmoid(x: Val<f32>) -> Val<f32> {
    let negative = x < 0.0;
    let power = exp_parts(-x.abs().min_nan(128.0));
    let ratio = logistic(negative, power);
    select(negative, power.scale(ratio), ratio)
}

#[device]
pub(super) fn sigmoid_fast(x: Val<f32>) -> Val<f32> {
    approximate(Opcode::Rcp, exp_fast(-x) + 1.0)
}

#[device]
pub(super) fn silu(x: Val<f32>) -> Val<f32> {
    gated(x, -128.0, exp_parts(-x.abs().min_nan(128.0)))
}

#[device]
pub(super) fn silu_fast(x: Val<f32>) -> Val<f32> {
    x * sigmoid_fast(x)
}

#[device]
pub(super) fn gelu(x: Val<f32>) -> Val<f32> {
    // Near zero the distribution is 1/2 + erf(x / sqrt(2)) / 2.
    let part = x * (std::f32::consts::FRAC_1_SQRT_2 * 0.5);
    let near = x * (part.mul_add(polynomial(x * x * 0.5, &ERF), part) + 0.5);
    // Elsewhere it is its tail, or one minus that.
    let size = x.abs().min_nan(15.0);
    // 1 / (t + k) by the hardware, and by what part of itself it is too small.
    let below = size + NORMAL_TAIL_OFFSET;
    let below_lost = size - (below - NORMAL_TAIL_OFFSET);
    let inverse = approximate(Opcode::Rcp, below);
    let missing = (-below_lost).mul_add(inverse, (-below).mul_add(inverse, 1.0));
    let double = inverse * (-2.0 * NORMAL_TAIL_OFFSET);
    let tail = polynomial(double.mul_add(missing, double + 1.0), &NORMAL_TAIL) * inverse;
    let square = size * size;
    let square_low = size.mul_add(size, -square);
    // One plus so little is its exponential.
    let power = exp_parts_of_sum(square * -0.5, square_low.mul_add(-0.5, missing));
    let tail = tail * power.mantissa;
    let left = power.scale(x.max_nan(-15.0) * tail);
    let right = x * (1.0 - power.scale(tail));
    select(x.abs() < 1.0, near, select(x < 0.0, left, right))
}

#[device]
pub(super) fn gelu_fast(x: Val<f32>) -> Val<f32> {
    let half = x * 0.5;
    half.mul_add(erf_fast(x * std::f32::consts::FRAC_1_SQRT_2), half)
}

#[device]
pub(super) fn gelu_tanh(x: Val<f32>) -> Val<f32> {
    let size = x.abs().min_nan(11.0);
    let square = size * size;
    let square_low = size.mul_add(size, -square);
    let cubic = square * TANH_FORM_B[0];
    let cubic_low = square.mul_add(TANH_FORM_B[0], -cubic);
    let small = square_low.mul_add(TANH_FORM_B[0], square.mul_add(TANH_FORM_B[1], TANH_FORM_A[1]));
    let (slope, lost) = exact_sum(val(TANH_FORM_A[0]), cubic);
    let slope_low = lost + (cubic_low + small);
    let product = -(size * slope);
    let product_low = -size.mul_add(slope_low, size.mul_add(slope, product));
    gated(x, -11.0, exp_parts_of_sum(product, product_low))
}

#[device]
pub(super) fn gelu_tanh_fast(x: Val<f32>) -> Val<f32> {
    // The factor log2(e) of the exponential is in the coefficients.
    let slope = (x * x).mul_add(-LOG2_E * TANH_FORM_B[0], -LOG2_E * TANH_FORM_A[0]);
    x * approximate(Opcode::Rcp, exp2_fast(x * slope) + 1.0)
}
