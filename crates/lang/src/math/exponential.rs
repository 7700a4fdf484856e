//! Exponentials, logarithms and powers.
//!
//! Exponentials split off the nearest power of two and evaluate a polynomial on what is left; logarithms split off the exponent, so
//! that the rest is in [sqrt(1/2), sqrt(2)). Powers carry the logarithm as a sum of two floats. Coefficients are minimax fits on the
//! intervals given, rounded to f32 one after the other.

use tilewright_ir::Opcode;
use tilewright_macros::device;

use super::pieces::{Scaled, TO_INTEGER, TO_INTEGER_BITS, approximate, exact_sum, polynomial, power_of_two};
use crate::value::{Val, select, val};

pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LOG2_E_LOW: f32 = 1.925_963e-8;
pub(super) const LN_2: f32 = std::f32::consts::LN_2;
const LN_2_LOW: f32 = -1.904_654_2e-9;

/// (2^x - 1) / x on [-1/2, 1/2]: 2^x to a relative error of 2^-28.3.
const EXP2: [f32; 6] = [LN_2, 0.240_226_48, 0.055_503_596, 0.009_618_499, 0.001_339_097, 0.000_153_292_79];

/// (e^x - 1 - x) / x^2 on [-ln(2)/2, ln(2)/2]: e^x - 1 to a relative error of 2^-31.
const EXP: [f32; 6] = [0.5, 0.166_666_66, 0.041_666_493, 0.008_333_548, 0.001_393_231_8, 0.000_197_599_64];

/// The same on [-0.35, 0.35], to 2^-26.
const EXP_SHORT: [f32; 5] = [0.5, 0.166_665_43, 0.041_666_84, 0.008_366_735, 0.001_390_043_3];

/// (ln(1 + x) - x) / x^2 on [sqrt(1/2) - 1, sqrt(2) - 1]: ln(1 + x) to a relative error of 2^-27.3.
const LOG: [f32; 9] = [
    -0.5,
    0.333_333_3,
    -0.250_008_2,
    0.200_012_42,
    -0.166_234_09,
    0.142_015_89,
    -0.131_596_3,
    0.127_621_01,
    -0.076_361_686,
];

/// The same on [-1/4, 1/4], to 2^-25.7.
const LOG_SHORT: [f32; 7] =
    [-0.5, 0.333_338_7, -0.250_007_27, 0.199_475_7, -0.166_085, 0.157_114_61, -0.138_998_37];

/// (log2(1 + x) - x log2(e)) / x^2 on [sqrt(1/2) - 1, sqrt(2) - 1]: log2(1 + x) to a relative error of 2^-27.7.
const LOG2: [f32; 9] = [
    -0.721_347_33,
    0.480_898_17,
    -0.360_698_5,
    0.288_573_86,
    -0.239_578_72,
    0.204_440_61,
    -0.191_209_54,
    0.187_318_73,
    -0.111_070_976,
];

/// log2((1 + s) / (1 - s)) / s = `ATANH_0` + z (`ATANH_1` + z `ATANH`(z)), z = s^2 up to (sqrt(2) - 1)^4, to a relative error of
/// 2^-36.7. The first two coefficients are those of the series, in two floats each.
const ATANH: [f32; 3] = [0.577_080_2, 0.411_849_92, 0.337_820_8];
const ATANH_0: [f32; 2] = [2.885_39, 3.851_926e-8];
const ATANH_1: [f32; 2] = [0.961_796_7, -7.028_462e-9];

/// 2^(n + fraction) for |fraction| not much above 1/2.
#[track_caller]
pub(super) fn exp2_mantissa(fraction: Val<f32>) -> Val<f32> {
    fraction.mul_add(polynomial(fraction, &EXP2), 1.0)
}

/// The nearest integer as a float and as an integer, of `x * factor`, below 2^22.
#[track_caller]
fn nearest(x: Val<f32>, factor: f32) -> (Val<f32>, Val<i32>) {
    let shifted = if factor == 1.0 { x + TO_INTEGER } else { x.mul_add(factor, TO_INTEGER) };
    (shifted - TO_INTEGER, shifted.bitcast::<i32>() - TO_INTEGER_BITS)
}

/// 2^x for x from -252 to 254.
#[device]
pub(super) fn exp2_parts(x: Val<f32>) -> Scaled {
    let (whole, exponent) = nearest(x, 1.0);
    Scaled::new(exp2_mantissa(x - whole), exponent)
}

/// 2^x for x from -126 to 127.
#[device]
pub(super) fn exp2_in_range(x: Val<f32>) -> Val<f32> {
    let (whole, exponent) = nearest(x, 1.0);
    exp2_mantissa(x - whole) * power_of_two(exponent)
}

/// x - n ln(2), with n the nearest integer to x / ln(2), as an exact part and a small one; and n.
#[track_caller]
fn without_powers_of_two(x: Val<f32>) -> (Val<f32>, Val<f32>, Val<i32>) {
    let (whole, exponent) = nearest(x, LOG2_E);
    (whole.mul_add(-LN_2, x), whole * -LN_2_LOW, exponent)
}

/// e^(rest + low) for |rest| up to ln(2) / 2 and a `low` that is small against it. Only the last sum rounds to an ulp of the result.
#[track_caller]
fn exp_mantissa(rest: Val<f32>, low: Val<f32>) -> Val<f32> {
    let whole = rest + low;
    let sum = rest + 1.0;
    let lost = (rest - (sum - 1.0)) + low;
    sum + (whole * whole).mul_add(polynomial(whole, &EXP), lost)
}

/// e^x for x from -174 to 176.
#[device]
pub(super) fn exp_parts(x: Val<f32>) -> Scaled {
    let (rest, low, exponent) = without_powers_of_two(x);
    Scaled::new(exp_mantissa(rest, low), exponent)
}

/// e^(x + low) for x from -174 to 176 and a `low` of the size of an ulp of x.
#[device]
pub(super) fn exp_parts_of_sum(x: Val<f32>, low: Val<f32>) -> Scaled {
    let (rest, rest_low, exponent) = without_powers_of_two(x);
    Scaled::new(exp_mantissa(rest, rest_low + low), exponent)
}

/// e^x for x from -87 to 88.
#[device]
pub(super) fn exp_in_range(x: Val<f32>) -> Val<f32> {
    let (rest, low, exponent) = without_powers_of_two(x);
    exp_mantissa(rest, low) * power_of_two(exponent)
}

#[device]
pub(super) fn exp(x: Val<f32>) -> Val<f32> {
    // Beyond these the result is 0 or infinite; the clamp keeps NaN.
    exp_parts(x.max_nan(-104.0).min_nan(89.0)).value()
}

#[device]
pub(super) fn exp_fast(x: Val<f32>) -> Val<f32> {
    exp2_fast(x * LOG2_E)
}

#[device]
pub(super) fn exp2(x: Val<f32>) -> Val<f32> {
    exp2_parts(x.max_nan(-151.0).min_nan(129.0)).value()
}

#[device]
pub(super) fn exp2_fast(x: Val<f32>) -> Val<f32> {
    approximate(Opcode::Ex2, x)
}

#[device]
pub(super) fn exp_m1(x: Val<f32>) -> Val<f32> {
    let (rest, low, exponent) = without_powers_of_two(x.max_nan(-30.0).min_nan(89.0));
    let rest = rest + low;
    // Half of the power and twice the sum: the power itself may be 2^128.
    let half = power_of_two(exponent - 1);
    let sum = (rest * rest).mul_add(polynomial(rest, &EXP), rest).mul_add(half, half - 0.5);
    // So close to zero the function is its argument, and halving it could lose a bit, or the sign of zero.
    select(x.abs() < 2f32.powi(-26), x, sum + sum)
}

#[device]
pub(super) fn exp_m1_fast(x: Val<f32>) -> Val<f32> {
    let near = (x * x).mul_add(polynomial(x, &EXP_SHORT), x);
    select(x.abs() < 0.35, near, exp_fast(x) - 1.0)
}

/// A positive number as 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)): e and f. Subnormal numbers too.
#[device]
fn split(x: Val<f32>) -> (Val<f32>, Val<f32>) {
    let subnormal = x < f32::MIN_POSITIVE;
    let bits = select(subnormal, x * 2f32.powi(23), x).bitcast::<i32>();
    let (exponent, rest) = split_normal(bits);
    (exponent.cast::<f32>() - select(subnormal, 23.0f32, 0.0f32), rest)
}

/// The same of the bits of a normal number.
#[device]
fn split_normal(bits: Val<i32>) -> (Val<i32>, Val<f32>) {
    let sqrt_half = std::f32::consts::FRAC_1_SQRT_2.to_bits().cast_signed();
    let exponent = (bits - sqrt_half) >> 23u32;
    (exponent, (bits - (exponent << 23u32)).bitcast::<f32>() - 1.0)
}

/// The logarithm where it is not computed: of infinity, NaN, zero and negative numbers.
#[device]
fn at_the_edges_of_log(x: Val<f32>, inside: Val<f32>) -> Val<f32> {
    let right = select(x < f32::INFINITY, inside, x);
    select(x > 0.0, right, select(x == 0.0, f32::NEG_INFINITY, f32::NAN))
}

#[device]
pub(super) fn log(x: Val<f32>) -> Val<f32> {
    let (exponent, f) = split(x);
    // ln(2) is so close to a float that one product is enough.
    let sum = exponent.mul_add(LN_2, (f * f).mul_add(polynomial(f, &LOG), f));
    at_the_edges_of_log(x, sum)
}

#[device]
pub(super) fn log_fast(x: Val<f32>) -> Val<f32> {
    log2_fast(x) * LN_2
}

#[device]
pub(super) fn log2(x: Val<f32>) -> Val<f32> {
    let (exponent, f) = split(x);
    let linear = f * LOG2_E;
    let lost = f.mul_add(LOG2_E_LOW, f.mul_add(LOG2_E, -linear));
    let rest = (f * f).mul_add(polynomial(f, &LOG2), lost);
    at_the_edges_of_log(x, exponent + (linear + rest))
}

#[device]
pub(super) fn log2_fast(x: Val<f32>) -> Val<f32> {
    approximate(Opcode::Lg2, x)
}

#[device]
pub(super) fn ln_1p(x: Val<f32>) -> Val<f32> {
    let (sum, lost) = exact_sum(val(1.0f32), x);
    let (exponent, rest) = split_normal(sum.bitcast::<i32>());
    // Above 2^126 nothing was lost that matters.
    let f = lost.mul_add(power_of_two((-exponent).max(-126)), rest);
    let inside = exponent.cast::<f32>().mul_add(LN_2, (f * f).mul_add(polynomial(f, &LOG), f));
    at_the_edges_of_log(sum, inside).copysign(x)
}

#[device]
pub(super) fn ln_1p_fast(x: Val<f32>) -> Val<f32> {
    let near = (x * x).mul_add(polynomial(x, &LOG_SHORT), x);
    select(x.abs() < 0.25, near, log_fast(x + 1.0))
}

/// log2 of a positive number as a sum of two floats, to a relative error of 2^-36.
#[device]
fn log2_of_power(x: Val<f32>) -> (Val<f32>, Val<f32>) {
    let (exponent, f) = split(x);
    // s = f / (2 + f) and what it lacks.
    let below = f + 2.0;
    let below_lost = f - (below - 2.0);
    let reciprocal = approximate(Opcode::Rcp, below);
    let s = f * reciprocal;
    let s_low = (-s).mul_add(below_lost, (-s).mul_add(below, f)) * reciprocal;
    let z = s * s;
    let z_low = (s + s).mul_add(s_low, s.mul_add(s, -z));
    // b = ATANH_1 + z ATANH(z)
    let rest = polynomial(z, &ATANH);
    let b = z.mul_add(rest, ATANH_1[0]);
    let b_low = z.mul_add(rest, ATANH_1[0] - b) + ATANH_1[1];
    // a = ATANH_0 + z b
    let zb = z * b;
    let zb_low = z_low.mul_add(b, z.mul_add(b_low, z.mul_add(b, -zb)));
    let a = zb + ATANH_0[0];
    let a_low = ((ATANH_0[0] - a) + zb) + (zb_low + ATANH_0[1]);
    // s a, then the exponent on top.
    let product = s * a;
    let product_low = s_low.mul_add(a, s.mul_add(a_low, s.mul_add(a, -product)));
    let sum = exponent + product;
    (sum, ((exponent - sum) + product) + product_low)
}

#[device]
pub(super) fn pow(x: Val<f32>, y: Val<f32>) -> Val<f32> {
    let base = x.abs();
    let (log, log_low) = log2_of_power(base);
    // Infinity and NaN are their own logarithms; zero has minus infinity.
    let log = select(base < f32::INFINITY, select(base == 0.0, f32::NEG_INFINITY, log), base);
    let product = y * log;
    let product_low = y.mul_add(log_low, y.mul_add(log, -product));
    // Beyond 160 the result is 0 or infinite whatever the low part.
    let low = select(product.abs() < 160.0, product_low, 0.0f32);
    let clamped = product.max_nan(-160.0).min_nan(160.0);
    let (whole, exponent) = nearest(clamped, 1.0);
    let magnitude = Scaled::new(exp2_mantissa((clamped - whole) + low), exponent).value();

    let integral = y.trunc() == y;
    let half = y * 0.5;
    let odd = integral & (half.trunc() != half);
    let negative = x.bitcast::<i32>() < 0;
    let signed = select(odd & negative, -magnitude, magnitude);
    let undefined = (x < 0.0) & (x > f32::NEG_INFINITY) & !integral & (y == y);
    let one = (x == 1.0) | (y == 0.0) | ((x == -1.0) & (y.abs() == f32::INFINITY));
    select(one, 1.0f32, select(undefined, f32::NAN, signed))
}

#[device]
pub(super) fn pow_fast(x: Val<f32>, y: Val<f32>) -> Val<f32> {
    exp2_fast(y * log2_fast(x))
}
