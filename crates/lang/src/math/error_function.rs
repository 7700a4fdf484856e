//! The error function.

use tilewright_macros::device;

use super::exponential::{exp2_fast, exp2_in_range};
use super::pieces::polynomial;
use crate::value::{Val, select};

/// erf(x) / x - 1 in x^2, x up to 1: erf(x) to a relative error of 2^-29.4.
pub(super) const ERF: [f32; 7] = [
    0.128_379_17,
    -0.376_126_26,
    0.112_835_79,
    -0.026_853_347,
    0.005_187_162,
    -0.000_799_785_25,
    7.806_896_6e-5,
];

/// log2(1 - erf(x)) on [0.9, 4]: erf(x) to a relative error of 2^-33.9.
const LOG2_ERFC: [f32; 8] = [
    0.000_244_109_2,
    -1.629_507_3,
    -0.913_804_35,
    -0.156_128_82,
    0.036_183_465,
    -0.005_996_075,
    0.000_622_327_56,
    -3.004_415_2e-5,
];

/// log2(1 - erf(x)) / x on [0, 4]: erf(x) to an absolute error of 2^-23.3.
const LOG2_ERFC_FROM_ZERO: [f32; 7] = [
    -1.627_913_7,
    -0.918_332,
    -0.148_946_39,
    0.029_413_83,
    -0.002_258_106,
    -0.000_485_036_26,
    0.000_104_720_64,
];

#[device]
pub(super) fn erf(x: Val<f32>) -> Val<f32> {
    let near = x.mul_add(polynomial(x * x, &ERF), x);
    // From 4 on it rounds to one.
    let size = x.abs().min_nan(4.0);
    let far = 1.0 - exp2_in_range(polynomial(size, &LOG2_ERFC));
    select(x.abs() < 1.0, near, far.copysign(x))
}

#[device]
pub(super) fn erf_fast(x: Val<f32>) -> Val<f32> {
    let size = x.abs().min_nan(4.0);
    let log = size * polynomial(size, &LOG2_ERFC_FROM_ZERO);
    (1.0 - exp2_fast(log)).copysign(x)
}
