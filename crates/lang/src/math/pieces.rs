//! What the functions are made of: polynomials, the hardware's approximations, division, sums and powers of two.

use tilewright_ir::{Flags, Opcode};

use crate::value::Val;

/// Adding and subtracting this rounds a float below 2^22 to an integer, which then stands in the low bits of the sum.
pub(super) const TO_INTEGER: f32 = 12_582_912.0;
/// Its bits.
pub(super) const TO_INTEGER_BITS: i32 = 0x4b40_0000;

/// A polynomial by Horner's rule; coefficients from the constant one up, at least two.
#[track_caller]
pub(super) fn polynomial(x: Val<f32>, coefficients: &[f32]) -> Val<f32> {
    let mut from_the_top = coefficients.iter().rev();
    let top = from_the_top.next().copied().unwrap_or(0.0);
    let next = from_the_top.next().copied().unwrap_or(0.0);
    from_the_top.fold(x.mul_add(top, next), |sum, &c| sum.mul_add(x, c))
}

/// An approximation of the hardware that takes subnormal numbers for zero.
#[track_caller]
pub(super) fn approximate(code: Opcode, x: Val<f32>) -> Val<f32> {
    x.unary(code, [Flags::APPROX.with(Flags::FTZ).into()])
}

/// `a / b` without the cases that need care: `b` and the quotient are far from overflow and underflow.
///
/// Newton's step makes the reciprocal right to little more than half an ulp, whatever the hardware's approximation errs (one ulp),
/// and the remainder corrects the quotient, so that all chips give the same.
#[track_caller]
pub(super) fn quotient(a: Val<f32>, b: Val<f32>) -> Val<f32> {
    let minus_b = -b;
    let guess = approximate(Opcode::Rcp, b);
    let reciprocal = guess.mul_add(minus_b.mul_add(guess, 1.0), guess);
    let quotient = a * reciprocal;
    minus_b.mul_add(quotient, a).mul_add(reciprocal, quotient)
}

/// `a + b` as a rounded sum and what rounding lost.
#[track_caller]
pub(super) fn exact_sum(a: Val<f32>, b: Val<f32>) -> (Val<f32>, Val<f32>) {
    let sum = a + b;
    let from_b = sum - a;
    (sum, (a - (sum - from_b)) + (b - from_b))
}

/// 2^n, for n from -126 to 127.
#[track_caller]
pub(super) fn power_of_two(n: Val<i32>) -> Val<f32> {
    ((n << 23u32) + 0x3f80_0000i32).bitcast::<f32>()
}

/// A number below its place value: `mantissa * 2^a * 2^b`. Multiplying by the two one after the other rounds once, also where the
/// result is subnormal, and overflows when it should.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scaled {
    pub(super) mantissa: Val<f32>,
    pub(super) scales: [Val<f32>; 2],
}

impl Scaled {
    /// With an exponent from -252 to 254.
    #[track_caller]
    pub(super) fn new(mantissa: Val<f32>, exponent: Val<i32>) -> Scaled {
        let half = exponent >> 1u32;
        Scaled { mantissa, scales: [power_of_two(half), power_of_two(exponent - half)] }
    }

    /// The number.
    #[track_caller]
    pub(super) fn value(self) -> Val<f32> {
        self.scale(self.mantissa)
    }

    /// Another mantissa in place of this one.
    #[track_caller]
    pub(super) fn scale(self, mantissa: Val<f32>) -> Val<f32> {
        mantissa * self.scales[0] * self.scales[1]
    }
}
