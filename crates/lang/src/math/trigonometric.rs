//! Sine and cosine.
//!
//! The argument is reduced to a quarter turn around zero: up to 2^16 by subtracting a multiple of pi/2 in three parts, beyond that by
//! multiplying with as many bits of 2/pi as the exponent asks for, in integers. Beyond 2^16 is a branch, for it costs about sixty
//! instructions.

use tilewright_ir::{Funnel, Opcode};
use tilewright_macros::device;

use super::pieces::{TO_INTEGER, approximate, polynomial};
use crate::value::{Val, select};

/// (sin(x) - x) / x^3 in x^2, x up to 1.02 pi/4: sin(x) to a relative error of 2^-32.4.
const SIN: [f32; 4] = [-0.166_666_67, 0.008_333_378, -0.000_198_520_6, 2.820_213e-6];

/// cos(x) in x^2, x up to 1.02 pi/4, to a relative error of 2^-32.6.
const COS: [f32; 5] = [1.0, -0.5, 0.041_666_64, -0.001_388_713_1, 2.441_237e-5];

/// pi/2 in three parts of 24 bits, each rounded down.
const HALF_PI: [f32; 3] =
    [f32::from_bits(std::f32::consts::FRAC_PI_2.to_bits() - 1), 7.549_789_4e-8, 5.390_302_5e-15];

/// Up to here the three parts suffice, and the reduced argument is at most 1.01 pi/4.
const SMALL: f32 = 65536.0;

/// The bits of 2/pi after the point, behind a word of zeros.
const TWO_OVER_PI: [u32; 7] =
    [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041];

/// `x = r + q pi/2` for x not negative: r, and q of which the low two bits count.
#[device]
fn reduce(x: Val<f32>) -> (Val<f32>, Val<u32>) {
    let shifted = x.mul_add(std::f32::consts::FRAC_2_PI, TO_INTEGER);
    let turns = shifted - TO_INTEGER;
    let mut rest = HALF_PI.iter().fold(x, |rest, &part| turns.mul_add(-part, rest));
    let mut quadrant = shifted.bitcast::<u32>();
    // Infinity stays here and becomes NaN.
    if (x > SMALL) & (x < f32::INFINITY) {
        (rest, quadrant) = reduce_large(x);
    }
    (rest, quadrant)
}

/// The same for finite x of 2 and more.
#[device]
fn reduce_large(x: Val<f32>) -> (Val<f32>, Val<u32>) {
    let bits = x.bitcast::<u32>();
    // x = mantissa * 2^(exponent - 31). Bits of 2/pi that make a multiple of four with the mantissa are left out: the first that
    // counts is number `exponent - 1` of the table.
    let mantissa = (bits << 8u32) | 0x8000_0000u32;
    let first = (bits >> 23u32) - 128u32;
    let (odd, upper) = ((first & 32u32) != 0, (first & 64u32) != 0);
    let word = |i: usize| {
        let at = |i: usize| TWO_OVER_PI.get(i).copied().unwrap_or(0);
        let pick = |i: usize| select(odd, at(i + 1), at(i));
        select(upper, pick(i + 2), pick(i))
    };
    let words = [word(0), word(1), word(2), word(3)];
    let window = |i: usize| words[i + 1].funnel_shift(words[i], first, Funnel::LeftWrap);
    let [a, b, c] = [window(0), window(1), window(2)];
    // The product in units of 2^-62 quarter turns, modulo four of them.
    let high = (mantissa * a).cast::<u64>() << 32u32;
    let product = high + mantissa.mul_wide(b) + (mantissa.mul_wide(c) >> 32u32);
    let quadrant = (product + (1u64 << 61)) >> 62u32;
    let fraction = (product << 2u32).bitcast::<i64>() >> 2u32;
    let unit = std::f64::consts::FRAC_PI_2 / (1u64 << 62) as f64;
    ((fraction.cast::<f64>() * unit).cast::<f32>(), quadrant.cast::<u32>())
}

/// Sine and cosine of an angle within an eighth of a turn.
#[device]
fn near_zero(x: Val<f32>) -> (Val<f32>, Val<f32>) {
    let z = x * x;
    ((x * z).mul_add(polynomial(z, &SIN), x), polynomial(z, &COS))
}

/// The sine from the quadrant, and from the sign of the argument: also of zero.
#[device]
fn turn_sine(x: Val<f32>, quadrant: Val<u32>, sine: Val<f32>, cosine: Val<f32>) -> Val<f32> {
    let magnitude = select((quadrant & 1u32) != 0, cosine, sine).bitcast::<u32>();
    let sign = x.bitcast::<u32>() & 0x8000_0000u32;
    (magnitude ^ ((quadrant & 2u32) << 30u32) ^ sign).bitcast::<f32>()
}

#[device]
fn turn_cosine(quadrant: Val<u32>, sine: Val<f32>, cosine: Val<f32>) -> Val<f32> {
    let magnitude = select((quadrant & 1u32) != 0, sine, cosine).bitcast::<u32>();
    (magnitude ^ (((quadrant + 1u32) & 2u32) << 30u32)).bitcast::<f32>()
}

#[device]
pub(super) fn sin(x: Val<f32>) -> Val<f32> {
    let (rest, quadrant) = reduce(x.abs());
    let (sine, cosine) = near_zero(rest);
    turn_sine(x, quadrant, sine, cosine)
}

#[device]
pub(super) fn cos(x: Val<f32>) -> Val<f32> {
    let (rest, quadrant) = reduce(x.abs());
    let (sine, cosine) = near_zero(rest);
    turn_cosine(quadrant, sine, cosine)
}

#[device]
pub(super) fn sin_cos(x: Val<f32>) -> (Val<f32>, Val<f32>) {
    let (rest, quadrant) = reduce(x.abs());
    let (sine, cosine) = near_zero(rest);
    (turn_sine(x, quadrant, sine, cosine), turn_cosine(quadrant, sine, cosine))
}

#[device]
pub(super) fn sin_fast(x: Val<f32>) -> Val<f32> {
    approximate(Opcode::Sin, x)
}

#[device]
pub(super) fn cos_fast(x: Val<f32>) -> Val<f32> {
    approximate(Opcode::Cos, x)
}
