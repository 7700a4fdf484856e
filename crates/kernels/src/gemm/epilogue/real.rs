//! [`Real`]: numbers as formulas see them, on the device and on the host, so that every formula is written once.
//!
//! | type | where | functions |
//! | --- | --- | --- |
//! | [`Fast`] | kernels whose result has 16 or 8 bits | the `_fast` forms of [`math`](tilewright_lang::math) |
//! | `Val<f32>` | kernels whose result has 32 bits | the accurate forms |
//! | `Val<f64>` | kernels that accumulate in f64 | none; an epilogue that needs one is refused |
//! | `f32` | the CPU | accurate to a few ulp |
//! | `f64` | the reference of tests | accurate to a few ulp |
//! | [`Fingerprint`] | keys of kernels | which they are, not what they give |
//!
//! The fast forms are within a few ulp of f32, or, where they cancel, within some 1e-7 ([`FUNCTIONS`](tilewright_lang::math::FUNCTIONS) has
//! their bounds): below the last bit of a 16-bit result but for results next to zero, as of `gelu` from -4.4 down, of which f16 has finer steps.
//! They take subnormal numbers for zero. `tanh` is the accurate one everywhere, since its fast form has the precision of a bf16 only.

use std::fmt;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

use tilewright_lang::prelude::*;

use super::formula::Formula;

/// A number of a formula.
///
/// ```
/// use tilewright_kernels::gemm::epilogue::Real;
///
/// fn hard_swish<R: Real>(x: R) -> R {
///     x * (x + R::of(3.0)).clamp(0.0, 6.0) / R::of(6.0)
/// }
///
/// assert_eq!(hard_swish(1.0f32), 4.0 / 6.0);
/// assert_eq!(hard_swish(-5.0f64), 0.0);
/// ```
pub trait Real:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// The result of a comparison.
    type Truth: Copy + BitAnd<Output = Self::Truth> + BitOr<Output = Self::Truth> + Not<Output = Self::Truth>;

    /// A constant.
    fn of(constant: f64) -> Self;
    /// The smaller; a number rather than NaN.
    #[must_use]
    fn min(self, other: Self) -> Self;
    /// The larger; a number rather than NaN.
    #[must_use]
    fn max(self, other: Self) -> Self;
    /// The absolute value.
    #[must_use]
    fn abs(self) -> Self;
    /// `self * b + c`, rounded once.
    #[must_use]
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// Rounds to an integral value, ties to even.
    #[must_use]
    fn round_even(self) -> Self;
    /// Whether `self < other`.
    fn less(self, other: Self) -> Self::Truth;
    /// `yes` where it holds, else `no`.
    fn choose(holds: Self::Truth, yes: Self, no: Self) -> Self;
    /// `e` to the power of `self`.
    #[must_use]
    fn exp(self) -> Self;
    /// The natural logarithm.
    #[must_use]
    fn ln(self) -> Self;
    /// The square root.
    #[must_use]
    fn sqrt(self) -> Self;
    /// The hyperbolic tangent.
    #[must_use]
    fn tanh(self) -> Self;
    /// The error function.
    #[must_use]
    fn erf(self) -> Self;
    /// The logistic function, `1 / (1 + exp(-x))`.
    #[must_use]
    fn sigmoid(self) -> Self;
    /// The sigmoid linear unit, `x * sigmoid(x)`.
    #[must_use]
    fn silu(self) -> Self;
    /// The Gaussian error linear unit, `x/2 * (1 + erf(x / sqrt(2)))`.
    #[must_use]
    fn gelu(self) -> Self;
    /// The Gaussian error linear unit by the approximation with `tanh`.
    #[must_use]
    fn gelu_tanh(self) -> Self;

    /// The number, or zero instead of a negative one. NaN stays what it is.
    #[must_use]
    fn relu(self) -> Self {
        Self::choose(self.less(Self::of(0.0)), Self::of(0.0), self)
    }

    /// The number, or the nearer end of a range that it lies outside of.
    #[must_use]
    fn clamp(self, lowest: f64, largest: f64) -> Self {
        self.max(Self::of(lowest)).min(Self::of(largest))
    }

    /// One over the number.
    #[must_use]
    fn recip(self) -> Self {
        Self::of(1.0) / self
    }

    /// The number times itself.
    #[must_use]
    fn square(self) -> Self {
        self * self
    }
}

/// From here down the fast forms give zero: a clamp saves minus infinity, of which they would make NaN.
const LOWEST_SILU: f32 = -128.0;
const LOWEST_GELU: f32 = -20.0;
const LOWEST_GELU_TANH: f32 = -11.0;

/// An f32 of a kernel whose results have 16 or 8 bits: functions are the fast ones.
#[derive(Clone, Copy, Debug)]
pub struct Fast(pub Val<f32>);

macro_rules! fast_operators {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait for Fast {
            type Output = Fast;
            #[track_caller]
            fn $method(self, other: Fast) -> Fast {
                Fast($trait::$method(self.0, other.0))
            }
        }
    )*};
}
fast_operators!(Add add, Sub sub, Mul mul);

impl Div for Fast {
    type Output = Fast;
    #[track_caller]
    fn div(self, other: Fast) -> Fast {
        Fast(self.0.div_fast(other.0))
    }
}

impl Neg for Fast {
    type Output = Fast;
    #[track_caller]
    fn neg(self) -> Fast {
        Fast(-self.0)
    }
}

#[device]
fn below<T: Number>(x: Val<T>, y: Val<T>) -> Val<bool> {
    x < y
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "constants of formulas, rounded to the type that computes"
)]
fn to_f32(constant: f64) -> f32 {
    constant as f32
}

impl Real for Fast {
    type Truth = Val<bool>;

    #[track_caller]
    fn of(constant: f64) -> Fast {
        Fast(val(to_f32(constant)))
    }
    #[track_caller]
    fn min(self, other: Fast) -> Fast {
        Fast(self.0.min(other.0))
    }
    #[track_caller]
    fn max(self, other: Fast) -> Fast {
        Fast(self.0.max(other.0))
    }
    #[track_caller]
    fn abs(self) -> Fast {
        Fast(self.0.abs())
    }
    #[track_caller]
    fn mul_add(self, b: Fast, c: Fast) -> Fast {
        Fast(self.0.mul_add(b.0, c.0))
    }
    #[track_caller]
    fn round_even(self) -> Fast {
        Fast(self.0.round_even())
    }
    #[track_caller]
    fn less(self, other: Fast) -> Val<bool> {
        below(self.0, other.0)
    }
    #[track_caller]
    fn choose(holds: Val<bool>, yes: Fast, no: Fast) -> Fast {
        Fast(select(holds, yes.0, no.0))
    }
    #[track_caller]
    fn exp(self) -> Fast {
        Fast(self.0.exp_fast())
    }
    #[track_caller]
    fn ln(self) -> Fast {
        Fast(self.0.log_fast())
    }
    #[track_caller]
    fn sqrt(self) -> Fast {
        Fast(self.0.sqrt_fast())
    }
    #[track_caller]
    fn tanh(self) -> Fast {
        Fast(self.0.tanh())
    }
    #[track_caller]
    fn erf(self) -> Fast {
        Fast(self.0.erf_fast())
    }
    #[track_caller]
    fn sigmoid(self) -> Fast {
        Fast(self.0.sigmoid_fast())
    }
    #[track_caller]
    fn silu(self) -> Fast {
        Fast(self.0.max_nan(LOWEST_SILU).silu_fast())
    }
    #[track_caller]
    fn gelu(self) -> Fast {
        Fast(self.0.max_nan(LOWEST_GELU).gelu_fast())
    }
    #[track_caller]
    fn gelu_tanh(self) -> Fast {
        Fast(self.0.max_nan(LOWEST_GELU_TANH).gelu_tanh_fast())
    }
    #[track_caller]
    fn relu(self) -> Fast {
        Fast(self.0.max_nan(0.0))
    }
}

impl Real for Val<f32> {
    type Truth = Val<bool>;

    #[track_caller]
    fn of(constant: f64) -> Val<f32> {
        val(to_f32(constant))
    }
    #[track_caller]
    fn min(self, other: Val<f32>) -> Val<f32> {
        Val::min(self, other)
    }
    #[track_caller]
    fn max(self, other: Val<f32>) -> Val<f32> {
        Val::max(self, other)
    }
    #[track_caller]
    fn abs(self) -> Val<f32> {
        Val::abs(self)
    }
    #[track_caller]
    fn mul_add(self, b: Val<f32>, c: Val<f32>) -> Val<f32> {
        Val::mul_add(self, b, c)
    }
    #[track_caller]
    fn round_even(self) -> Val<f32> {
        Val::round_even(self)
    }
    #[track_caller]
    fn less(self, other: Val<f32>) -> Val<bool> {
        below(self, other)
    }
    #[track_caller]
    fn choose(holds: Val<bool>, yes: Val<f32>, no: Val<f32>) -> Val<f32> {
        select(holds, yes, no)
    }
    #[track_caller]
    fn exp(self) -> Val<f32> {
        Val::<f32>::exp(self)
    }
    #[track_caller]
    fn ln(self) -> Val<f32> {
        self.log()
    }
    #[track_caller]
    fn sqrt(self) -> Val<f32> {
        Val::<f32>::sqrt(self)
    }
    #[track_caller]
    fn tanh(self) -> Val<f32> {
        Val::<f32>::tanh(self)
    }
    #[track_caller]
    fn erf(self) -> Val<f32> {
        Val::<f32>::erf(self)
    }
    #[track_caller]
    fn sigmoid(self) -> Val<f32> {
        Val::<f32>::sigmoid(self)
    }
    #[track_caller]
    fn silu(self) -> Val<f32> {
        Val::<f32>::silu(self)
    }
    #[track_caller]
    fn gelu(self) -> Val<f32> {
        Val::<f32>::gelu(self)
    }
    #[track_caller]
    fn gelu_tanh(self) -> Val<f32> {
        Val::<f32>::gelu_tanh(self)
    }
    #[track_caller]
    fn relu(self) -> Val<f32> {
        self.max_nan(0.0)
    }
}

/// Reports a function that `Val<f64>` does not have. Plans refuse such epilogues before.
#[track_caller]
fn no_f64(function: &str) -> Val<f64> {
    tilewright_lang::mistake(format!("there is no `{function}` of f64 on the device"));
    val(0.0)
}

impl Real for Val<f64> {
    type Truth = Val<bool>;

    #[track_caller]
    fn of(constant: f64) -> Val<f64> {
        val(constant)
    }
    #[track_caller]
    fn min(self, other: Val<f64>) -> Val<f64> {
        Val::min(self, other)
    }
    #[track_caller]
    fn max(self, other: Val<f64>) -> Val<f64> {
        Val::max(self, other)
    }
    #[track_caller]
    fn abs(self) -> Val<f64> {
        Val::abs(self)
    }
    #[track_caller]
    fn mul_add(self, b: Val<f64>, c: Val<f64>) -> Val<f64> {
        Val::mul_add(self, b, c)
    }
    #[track_caller]
    fn round_even(self) -> Val<f64> {
        Val::round_even(self)
    }
    #[track_caller]
    fn less(self, other: Val<f64>) -> Val<bool> {
        below(self, other)
    }
    #[track_caller]
    fn choose(holds: Val<bool>, yes: Val<f64>, no: Val<f64>) -> Val<f64> {
        select(holds, yes, no)
    }
    #[track_caller]
    fn exp(self) -> Val<f64> {
        no_f64("exp")
    }
    #[track_caller]
    fn ln(self) -> Val<f64> {
        no_f64("ln")
    }
    #[track_caller]
    fn sqrt(self) -> Val<f64> {
        no_f64("sqrt")
    }
    #[track_caller]
    fn tanh(self) -> Val<f64> {
        no_f64("tanh")
    }
    #[track_caller]
    fn erf(self) -> Val<f64> {
        no_f64("erf")
    }
    #[track_caller]
    fn sigmoid(self) -> Val<f64> {
        no_f64("sigmoid")
    }
    #[track_caller]
    fn silu(self) -> Val<f64> {
        no_f64("silu")
    }
    #[track_caller]
    fn gelu(self) -> Val<f64> {
        no_f64("gelu")
    }
    #[track_caller]
    fn gelu_tanh(self) -> Val<f64> {
        no_f64("gelu_tanh")
    }
}

impl Real for f64 {
    type Truth = bool;

    fn of(constant: f64) -> f64 {
        constant
    }
    fn min(self, other: f64) -> f64 {
        f64::min(self, other)
    }
    fn max(self, other: f64) -> f64 {
        f64::max(self, other)
    }
    fn abs(self) -> f64 {
        f64::abs(self)
    }
    fn mul_add(self, b: f64, c: f64) -> f64 {
        f64::mul_add(self, b, c)
    }
    fn round_even(self) -> f64 {
        self.round_ties_even()
    }
    fn less(self, other: f64) -> bool {
        self < other
    }
    fn choose(holds: bool, yes: f64, no: f64) -> f64 {
        if holds { yes } else { no }
    }
    fn exp(self) -> f64 {
        f64::exp(self)
    }
    fn ln(self) -> f64 {
        f64::ln(self)
    }
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }
    fn tanh(self) -> f64 {
        f64::tanh(self)
    }
    fn erf(self) -> f64 {
        if f64::abs(self) < 2.0 { erf_series(self) } else { (1.0 - erfc(f64::abs(self))).copysign(self) }
    }
    fn sigmoid(self) -> f64 {
        // The exponential of a negative number only, so that nothing overflows.
        let power = (-f64::abs(self)).exp();
        if self < 0.0 { power / (1.0 + power) } else { 1.0 / (1.0 + power) }
    }
    fn silu(self) -> f64 {
        product(self, self.sigmoid())
    }
    fn gelu(self) -> f64 {
        product(self, 0.5 * erfc(-self * std::f64::consts::FRAC_1_SQRT_2))
    }
    fn gelu_tanh(self) -> f64 {
        // (1 + tanh(y)) / 2 is the logistic function of 2 y.
        let y = (2.0 / std::f64::consts::PI).sqrt() * (self + 0.044_715 * self * self * self);
        product(self, Real::sigmoid(2.0 * y))
    }
}

/// `x * share`, where a share of zero wins over infinity.
fn product(x: f64, share: f64) -> f64 {
    if share == 0.0 { -0.0 } else { x * share }
}

/// One minus the error function, with a small relative error for every argument.
fn erfc(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x < 2.0 {
        return 1.0 - erf_series(x);
    }
    // The continued fraction e^(-x^2) / sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + (3/2) / ...))), from its end; from 2 on
    // so many terms give all bits.
    let below = (1..=120u32).rev().fold(x, |rest, n| x + 0.5 * f64::from(n) / rest);
    if x.is_infinite() { 0.0 } else { (-x * x).exp() / (std::f64::consts::PI.sqrt() * below) }
}

/// The error function as 2 / sqrt(pi) e^(-x^2) (x + 2/3 x^3 + 4/15 x^5 + ...): terms of one sign, so nothing cancels.
fn erf_series(x: f64) -> f64 {
    let square = x * x;
    if square > 40.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while f64::abs(term) > f64::abs(sum) * 1e-17 {
        n += 2.0;
        term *= 2.0 * square / n;
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-square).exp() * sum
}

impl Real for f32 {
    type Truth = bool;

    fn of(constant: f64) -> f32 {
        to_f32(constant)
    }
    fn min(self, other: f32) -> f32 {
        f32::min(self, other)
    }
    fn max(self, other: f32) -> f32 {
        f32::max(self, other)
    }
    fn abs(self) -> f32 {
        f32::abs(self)
    }
    fn mul_add(self, b: f32, c: f32) -> f32 {
        f32::mul_add(self, b, c)
    }
    fn round_even(self) -> f32 {
        self.round_ties_even()
    }
    fn less(self, other: f32) -> bool {
        self < other
    }
    fn choose(holds: bool, yes: f32, no: f32) -> f32 {
        if holds { yes } else { no }
    }
    fn exp(self) -> f32 {
        f32::exp(self)
    }
    fn ln(self) -> f32 {
        f32::ln(self)
    }
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    fn tanh(self) -> f32 {
        f32::tanh(self)
    }
    fn erf(self) -> f32 {
        to_f32(Real::erf(f64::from(self)))
    }
    fn sigmoid(self) -> f32 {
        let power = (-f32::abs(self)).exp();
        if self < 0.0 { power / (1.0 + power) } else { 1.0 / (1.0 + power) }
    }
    fn silu(self) -> f32 {
        to_f32(product(f64::from(self), f64::from(self.sigmoid())))
    }
    fn gelu(self) -> f32 {
        to_f32(f64::from(self).gelu())
    }
    fn gelu_tanh(self) -> f32 {
        to_f32(f64::from(self).gelu_tanh())
    }
}

/// A number of which only one thing is known: whether its formula takes functions that f64 does not have on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) functions: bool,
}

impl Probe {
    fn with(self, other: Probe) -> Probe {
        Probe { functions: self.functions | other.functions }
    }
    fn function(self) -> Probe {
        Probe { functions: true }
    }
}

macro_rules! probe_operators {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait for Probe {
            type Output = Probe;
            fn $method(self, other: Probe) -> Probe {
                self.with(other)
            }
        }
    )*};
}
probe_operators!(Add add, Sub sub, Mul mul, Div div, BitAnd bitand, BitOr bitor);

impl Neg for Probe {
    type Output = Probe;
    fn neg(self) -> Probe {
        self
    }
}

impl Not for Probe {
    type Output = Probe;
    fn not(self) -> Probe {
        self
    }
}

impl Real for Probe {
    type Truth = Probe;

    fn of(_constant: f64) -> Probe {
        Probe { functions: false }
    }
    fn min(self, other: Probe) -> Probe {
        self.with(other)
    }
    fn max(self, other: Probe) -> Probe {
        self.with(other)
    }
    fn abs(self) -> Probe {
        self
    }
    fn mul_add(self, b: Probe, c: Probe) -> Probe {
        self.with(b).with(c)
    }
    fn round_even(self) -> Probe {
        self
    }
    fn less(self, other: Probe) -> Probe {
        self.with(other)
    }
    fn choose(holds: Probe, yes: Probe, no: Probe) -> Probe {
        holds.with(yes).with(no)
    }
    fn exp(self) -> Probe {
        self.function()
    }
    fn ln(self) -> Probe {
        self.function()
    }
    fn sqrt(self) -> Probe {
        self.function()
    }
    fn tanh(self) -> Probe {
        self.function()
    }
    fn erf(self) -> Probe {
        self.function()
    }
    fn sigmoid(self) -> Probe {
        self.function()
    }
    fn silu(self) -> Probe {
        self.function()
    }
    fn gelu(self) -> Probe {
        self.function()
    }
    fn gelu_tanh(self) -> Probe {
        self.function()
    }
}

/// What a formula computes, as one number: two formulas with the same one are staged to the same code.
///
/// It is a number that formulas can be applied to, and what they make of it is mixed from all that they did: which functions, of what, with which
/// constants. So it sees fields and captured values that no name tells, costs a few nanoseconds for each operation, and needs nothing
/// of the formula but that it computes. 64 bits: of a million different formulas, two agree with a chance below one in ten million.
///
/// ```
/// use tilewright_kernels::gemm::epilogue::{Binary, Fingerprint, Formula, Real, Unary};
///
/// struct Times(f64);
/// impl Formula for Times {
///     fn name(&self) -> String {
///         "times".to_owned()
///     }
///     fn apply<R: Real>(&self, x: &[R]) -> R {
///         x[0] * R::of(self.0)
///     }
/// }
///
/// assert_eq!(Fingerprint::of(&Times(2.0)), Fingerprint::of(&Times(2.0)));
/// assert_ne!(Fingerprint::of(&Times(2.0)), Fingerprint::of(&Times(3.0)));
/// assert_ne!(Fingerprint::of(&Binary::Add), Fingerprint::of(&Binary::Mul));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Of a formula.
    #[must_use]
    pub fn of(formula: &impl Formula) -> Fingerprint {
        let inputs: Vec<Fingerprint> = (0u64..)
            .take(formula.inputs())
            .map(|i| Fingerprint::operation("input", &[Fingerprint(i)]))
            .collect();
        formula.apply(&inputs)
    }

    /// What an operation makes of its operands. The mixer is that of splitmix64, which loses nothing: with all but one operand the same,
    /// different ones give different results.
    fn operation(name: &str, operands: &[Fingerprint]) -> Fingerprint {
        let mix = |state: u64, word: u64| {
            let x = state.rotate_left(29).wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        let named = name.bytes().fold(0, |state, byte| mix(state, byte.into()));
        Fingerprint(operands.iter().fold(named, |state, operand| mix(state, operand.0)))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

macro_rules! fingerprint_operators {
    ($($trait:ident $method:ident ($($other:ident)?)),*) => {$(
        impl $trait for Fingerprint {
            type Output = Fingerprint;
            fn $method(self $(, $other: Fingerprint)?) -> Fingerprint {
                Fingerprint::operation(stringify!($method), &[self $(, $other)?])
            }
        }
    )*};
}
fingerprint_operators!(
    Add add (other), Sub sub (other), Mul mul (other), Div div (other), BitAnd bitand (other), BitOr bitor (other),
    Neg neg (), Not not ()
);

macro_rules! fingerprint_methods {
    ($($method:ident ($($other:ident),*)),*) => {$(
        fn $method(self $(, $other: Fingerprint)*) -> Fingerprint {
            Fingerprint::operation(stringify!($method), &[self $(, $other)*])
        }
    )*};
}

impl Real for Fingerprint {
    type Truth = Fingerprint;

    fn of(constant: f64) -> Fingerprint {
        Fingerprint::operation("constant", &[Fingerprint(constant.to_bits())])
    }
    fn choose(holds: Fingerprint, yes: Fingerprint, no: Fingerprint) -> Fingerprint {
        Fingerprint::operation("choose", &[holds, yes, no])
    }
    fn clamp(self, lowest: f64, largest: f64) -> Fingerprint {
        Fingerprint::operation("clamp", &[self, Real::of(lowest), Real::of(largest)])
    }
    // Those that have a default too: kinds of numbers may compute them in another way.
    fingerprint_methods!(
        min(other),
        max(other),
        abs(),
        mul_add(b, c),
        round_even(),
        less(other),
        exp(),
        ln(),
        sqrt(),
        tanh(),
        erf(),
        sigmoid(),
        silu(),
        gelu(),
        gelu_tanh(),
        relu(),
        recip(),
        square()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-14 * expected.abs(), "{found}, expected {expected}");
    }

    #[test]
    fn host_functions_are_accurate() {
        // From tables of the error function and its complement.
        close(Real::erf(1e-9), 1.128_379_167_095_512_6e-9);
        close(Real::erf(0.5), 0.520_499_877_813_046_5);
        close(Real::erf(-1.0), -0.842_700_792_949_714_9);
        close(erfc(0.5), 0.479_500_122_186_953_5);
        close(erfc(2.0), 0.004_677_734_981_047_266);
        close(erfc(3.0), 2.209_049_699_858_544e-5);
        close(erfc(5.0), 1.537_459_794_428_035e-12);
        close(Real::gelu(1.0), 0.841_344_746_068_542_9);
        close(Real::gelu(-1.0), -0.158_655_253_931_457_05);
        close(Real::sigmoid(0.0), 0.5);
        close(Real::silu(1.0), 0.731_058_578_630_004_9);
        close(Real::gelu_tanh(1.0), 0.841_191_990_608_276_8);
        close(Real::erf(-6.0), -1.0);
        assert_eq!(Real::gelu(f64::NEG_INFINITY), 0.0);
        assert_eq!(Real::silu(f32::NEG_INFINITY), 0.0);
        assert_eq!(Real::gelu(f64::INFINITY), f64::INFINITY);
        assert!(Real::erf(f64::NAN).is_nan() && Real::relu(-3.0f32) == 0.0);
        assert_eq!(Real::clamp(7.0f32, -1.0, 2.0), 2.0);
    }

    #[test]
    fn f32_agrees_with_f64() {
        for i in -80..=80i16 {
            let x = f32::from(i) / 8.0;
            let wide = f64::from(x);
            for (found, expected) in [
                (Real::erf(x), Real::erf(wide)),
                (x.sigmoid(), wide.sigmoid()),
                (x.silu(), wide.silu()),
                (x.gelu(), wide.gelu()),
                (x.gelu_tanh(), wide.gelu_tanh()),
            ] {
                let error = (f64::from(found) - expected).abs();
                assert!(error <= 4e-7 * expected.abs() + 1e-38, "{found}, expected {expected} at {x}");
            }
        }
    }
}
