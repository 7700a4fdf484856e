//! Functions of elements, a tile by a program.

use std::sync::Arc;

use tilewright_lang::tile::prelude::*;

use super::Tiling;
use super::exponential::LOG2_E;
use crate::gemm::epilogue::{Binary, Fingerprint, Formula, Real, Unary};

/// A function that is built in, as a formula of one number.
impl Formula for Unary {
    fn name(&self) -> String {
        Unary::name(*self).to_owned()
    }

    fn apply<R: Real>(&self, inputs: &[R]) -> R {
        Unary::apply(*self, inputs[0])
    }
}

/// The same of two numbers.
impl Formula for Binary {
    fn name(&self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn inputs(&self) -> usize {
        2
    }

    fn apply<R: Real>(&self, inputs: &[R]) -> R {
        Binary::apply(*self, inputs[0], inputs[1])
    }
}

/// A formula as a compile-time parameter: two are equal if they compute the same.
#[derive(Debug)]
pub struct SharedFormula<F>(pub Arc<F>);

impl<F> Clone for SharedFormula<F> {
    fn clone(&self) -> Self {
        SharedFormula(self.0.clone())
    }
}

impl<F: Formula> PartialEq for SharedFormula<F> {
    fn eq(&self, other: &Self) -> bool {
        Fingerprint::of(&*self.0) == Fingerprint::of(&*other.0)
    }
}

/// A formula of one matrix.
#[kernel]
pub fn elementwise1<T: Float, U: Float, F: Formula>(
    x: View<T, 2>,
    y: View<U, 2>,
    formula: SharedFormula<F>,
    tiling: Tiling,
) {
    let a = tiling.mine(x).load().cast::<f32>();
    tiling.mine(y).store(a.map(|a| formula.0.apply(&[a])).cast());
}

/// A formula of two.
#[kernel]
pub fn elementwise2<T: Float, U: Float, F: Formula>(
    x0: View<T, 2>,
    x1: View<T, 2>,
    y: View<U, 2>,
    formula: SharedFormula<F>,
    tiling: Tiling,
) {
    let (a, b) = (tiling.mine(x0).load().cast::<f32>(), tiling.mine(x1).load().cast::<f32>());
    tiling.mine(y).store((a, b).map(|(a, b)| formula.0.apply(&[a, b])).cast());
}

/// A formula of three.
#[kernel]
pub fn elementwise3<T: Float, U: Float, F: Formula>(
    x0: View<T, 2>,
    x1: View<T, 2>,
    x2: View<T, 2>,
    y: View<U, 2>,
    formula: SharedFormula<F>,
    tiling: Tiling,
) {
    let (a, b) = (tiling.mine(x0).load().cast::<f32>(), tiling.mine(x1).load().cast::<f32>());
    let c = tiling.mine(x2).load().cast::<f32>();
    tiling.mine(y).store((a, b, c).map(|(a, b, c)| formula.0.apply(&[a, b, c])).cast());
}

/// The function of the gate of a gated linear unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x/2 * (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// Its approximation by `tanh`.
    GeluTanh,
}

/// `sqrt(2 / pi)`.
const ROOT: f32 = 0.797_884_6;
/// Of the cube, in the approximation of `gelu` by `tanh`.
const CUBE: f32 = 0.044_715;
/// `(1 - Phi(t)) e^(t^2/2)`, Phi being the normal distribution, is this polynomial without a constant term in `u = 1 / (1 + TAIL_SLOPE t)`, highest
/// power first: `t` from 0 to 14, to a relative error of 2^-17.7.
const TAIL: [f32; 6] =
    [-0.073_931_105, 0.180_455_95, 0.015_738_733, 0.133_432_71, 0.120_440_62, 0.123_860_754];
const TAIL_SLOPE: f32 = 0.31;
/// From here on all slopes are 0 or 1 in f32, and functions their number or 0.
const FAR: f32 = 200.0;

/// The logistic function for results of 16 bits, in four instructions: a few parts in a million off, which such results do not show. Below -88,
/// where f32 itself runs out of digits, it is zero.
#[device]
fn quick_sigmoid(x: Tile<f32>) -> Tile<f32> {
    x.map(|x: Val<f32>| x.sigmoid_fast())
}

/// The normal distribution, and its density, for results of 16 bits: its tails are a few parts in a million off, and zero where their power is below the
/// normal numbers of f32.
#[device]
fn quick_normal(x: Tile<f32>) -> (Tile<f32>, Tile<f32>) {
    let power = (x * x).map(|square: Val<f32>| (square * (-0.5 * LOG2_E)).exp2_fast());
    let tail = x.map(|x: Val<f32>| {
        let u = x.abs().mul_add(TAIL_SLOPE, 1.0f32).recip_fast();
        TAIL[1..].iter().fold(val(TAIL[0]), |sum, &coefficient| sum.mul_add(u, coefficient)) * u
    });
    let tail = tail * power;
    (select(x < 0.0f32, tail, 1.0f32 - tail), power * (ROOT / 2.0))
}

/// The value of a function that is its number, far out to the right.
#[device]
fn unless_far(x: Tile<f32>, value: Tile<f32>) -> Tile<f32> {
    select(x > FAR, x, value)
}

/// The normal distribution of numbers, of which `gelu` is known.
#[device]
fn distribution(x: Tile<f32>, gelu: Tile<f32>) -> Tile<f32> {
    select(x.abs() < 1e-30f32, 0.5f32, gelu * x.recip_fast())
}

impl Activation {
    /// The function, exact enough for results of type `U`.
    fn value<U: Float>(self, x: Tile<f32>) -> Tile<f32> {
        if let Some((value, _)) = self.quick::<U>(x) {
            return value;
        }
        match self {
            Activation::Silu => x.silu(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
        }
    }

    /// The function and its slope, for results of 16 bits: exact ones take up to three times as long as memory does. All are their number times a
    /// distribution, mostly the logistic one.
    fn quick<U: Float>(self, x: Tile<f32>) -> Option<(Tile<f32>, Tile<f32>)> {
        if U::ELEMENT.bits() > 16 {
            return None;
        }
        // Farther out both are what they tend to, but infinity times zero is not.
        let right = x.map(|x: Val<f32>| x.max_nan(-FAR));
        let near = right.map(|x: Val<f32>| x.min_nan(FAR));
        let (s, inner) = match self {
            Activation::Silu => (quick_sigmoid(near), None),
            Activation::Gelu => {
                let (distribution, density) = quick_normal(near);
                return Some((right * distribution, near.mul_add(density, distribution)));
            }
            Activation::GeluTanh => {
                let square = near * near;
                let s = quick_sigmoid(near * square.mul_add(2.0 * ROOT * CUBE, 2.0 * ROOT));
                (s, Some(square.mul_add(6.0 * ROOT * CUBE, 2.0 * ROOT)))
            }
        };
        let tail = near * (1.0f32 - s);
        let tail = inner.map_or(tail, |inner| tail * inner);
        Some((right * s, s.mul_add(tail, s)))
    }

    /// The function and its slope, exact enough for results of type `U`.
    fn value_and_slope<U: Float>(self, x: Tile<f32>) -> (Tile<f32>, Tile<f32>) {
        if let Some(both) = self.quick::<U>(x) {
            return both;
        }
        // Farther out slopes are what they tend to, but infinity times zero is not.
        let near = x.map(|x: Val<f32>| x.max_nan(-FAR).min_nan(FAR));
        let value = self.value::<f32>(near);
        let slope = match self {
            Activation::Silu => {
                let s = near.sigmoid();
                s * (near * (1.0f32 - s) + 1.0f32)
            }
            Activation::Gelu => {
                let density = (near * near * -0.5f32).exp() * (ROOT / 2.0);
                // The normal distribution is what `gelu` multiplies its number by; one plus the error function would lose its digits where
                // that is close to minus one.
                distribution(near, value) + near * density
            }
            Activation::GeluTanh => {
                // One plus the hyperbolic tangent, halved.
                let s = ((near * near * near * CUBE + near) * (2.0 * ROOT)).sigmoid();
                let inner = (near * near * (3.0 * CUBE) + 1.0f32) * (2.0 * ROOT);
                s + near * s * (1.0f32 - s) * inner
            }
        };
        (unless_far(x, value), slope)
    }
}

/// `y = activation(gate) * up`.
#[kernel]
pub fn glu<T: Float, U: Float>(
    gate: View<T, 2>,
    up: View<T, 2>,
    y: View<U, 2>,
    activation: Activation,
    tiling: Tiling,
) {
    let gate = tiling.mine(gate).load().cast::<f32>();
    let up = tiling.mine(up).load().cast::<f32>();
    tiling.mine(y).store((activation.value::<U>(gate) * up).cast());
}

/// The gradients of gate and up.
#[kernel]
pub fn glu_backward<T: Float, U: Float>(
    gate: View<T, 2>,
    up: View<T, 2>,
    dy: View<T, 2>,
    dgate: View<U, 2>,
    dup: View<U, 2>,
    activation: Activation,
    tiling: Tiling,
) {
    let gate = tiling.mine(gate).load().cast::<f32>();
    let up = tiling.mine(up).load().cast::<f32>();
    let dy = tiling.mine(dy).load().cast::<f32>();
    let (value, slope) = activation.value_and_slope::<U>(gate);
    // A slope is about 1 at most, so what it multiplies first stays finite.
    tiling.mine(dgate).store((up * slope * dy).cast());
    tiling.mine(dup).store((dy * value).cast());
}

/// The same numbers in another type, through f32, rounded to the nearest.
#[kernel]
pub fn convert<T: Element, U: Element>(x: View<T, 2>, y: View<U, 2>, tiling: Tiling) {
    let numbers = tiling.mine(x).load().cast::<f32>();
    tiling.mine(y).store(if U::ELEMENT.is_int() {
        numbers.cast_rounded(Round::Nearest)
    } else {
        numbers.cast()
    });
}

/// Dropout: numbers whose random word is below a threshold become zero, the others are multiplied by `factor`. Four numbers share a
/// counter.
#[kernel]
pub fn dropout<T: Float, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    factor: Val<f32>,
    threshold: Val<u64>,
    seed: Val<u64>,
    stream: Val<u64>,
    tiling: Tiling,
) {
    let from = tiling.mine(x);
    let columns = x.extent(1).cast::<u64>();
    let numbers = from.load().cast::<f32>();
    let halves = |n: Val<u64>| [n.cast::<u32>(), (n >> 32u32).cast::<u32>()];
    let kept = (from.positions(0), from.positions(1), numbers).map(|(i, j, x)| {
        let n = i.cast::<u64>() * columns + j.cast::<u64>();
        let [low, high] = halves(n >> 2u32);
        let words = philox4x32([low, high, halves(stream)[0], halves(stream)[1]], halves(seed));
        let lane = n.cast::<u32>() & 3u32;
        let word = pick(lane, words);
        keep(word.cast::<u64>(), threshold, x * factor)
    });
    tiling.mine(y).store(kept.cast());
}

#[device]
fn pick(lane: Val<u32>, words: [Val<u32>; 4]) -> Val<u32> {
    let low = select(lane == 0, words[0], words[1]);
    let high = select(lane == 2, words[2], words[3]);
    select(lane < 2, low, high)
}

#[device]
fn keep(word: Val<u64>, threshold: Val<u64>, x: Val<f32>) -> Val<f32> {
    select(word >= threshold, x, 0.0f32)
}
