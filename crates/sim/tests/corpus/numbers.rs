//! Elements of buffers, deterministic contents, and the few functions of mathematics that the standard library lacks.

use half::{bf16, f16};

/// What a buffer may hold.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    const SIZE: usize;
    fn put(self, to: &mut Vec<u8>);
    fn get(bytes: &[u8]) -> Self;
    fn bits(self) -> u64;
    fn number(self) -> f64;

    fn bytes(values: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(values.len() * Self::SIZE);
        values.iter().for_each(|value| value.put(&mut bytes));
        bytes
    }
    fn values(bytes: &[u8]) -> Vec<Self> {
        bytes.chunks_exact(Self::SIZE).map(Self::get).collect()
    }
}

macro_rules! elements {
    ($($type:ty, $bits:expr, $number:expr;)*) => {$(
        impl Element for $type {
            const SIZE: usize = size_of::<$type>();
            fn put(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("chunks have the size of the element"))
            }
            fn bits(self) -> u64 {
                $bits(self)
            }
            fn number(self) -> f64 {
                $number(self)
            }
        }
    )*};
}
elements! {
    u8, u64::from, f64::from;
    i8, |v: i8| u64::from(v as u8), f64::from;
    u16, u64::from, f64::from;
    u32, u64::from, f64::from;
    i32, |v: i32| u64::from(v as u32), f64::from;
    u64, u64::from, |v: u64| v as f64;
    i64, |v: i64| v as u64, |v: i64| v as f64;
    f32, |v: f32| u64::from(v.to_bits()), f64::from;
    f64, f64::to_bits, f64::from;
    f16, |v: f16| u64::from(v.to_bits()), f16::to_f64;
    bf16, |v: bf16| u64::from(v.to_bits()), bf16::to_f64;
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub(crate) fn u32s(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.next() as u32).collect()
    }
    pub(crate) fn u64s(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next()).collect()
    }
    /// In `low..high`.
    pub(crate) fn i32s(&mut self, count: usize, low: i32, high: i32) -> Vec<i32> {
        let span = u64::from(high.abs_diff(low));
        (0..count).map(|_| low.wrapping_add((self.next() % span) as i32)).collect()
    }
    pub(crate) fn f32s(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        (0..count).map(|_| low + (high - low) * ((self.next() >> 40) as f32 / 16_777_216.0)).collect()
    }
    pub(crate) fn f64s(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        (0..count)
            .map(|_| low + (high - low) * ((self.next() >> 11) as f64 / 9_007_199_254_740_992.0))
            .collect()
    }
    /// Quarters in -1..=1: their products and short sums are exact in every format used for matrices.
    pub(crate) fn quarters(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| f64::from((self.next() % 9) as i32 - 4) * 0.25).collect()
    }
}

pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}
pub(crate) fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&v| v as f32).collect()
}
pub(crate) fn halves(values: &[f64]) -> Vec<f16> {
    values.iter().map(|&v| f16::from_f64(v)).collect()
}
pub(crate) fn bfloats(values: &[f64]) -> Vec<bf16> {
    values.iter().map(|&v| bf16::from_f64(v)).collect()
}

/// The product of an `m` x `k` and a `k` x `n` matrix; `right(k, n)` reads the second one.
pub(crate) fn product(left: &[f64], right: impl Fn(usize, usize) -> f64, [m, n, k]: [usize; 3]) -> Vec<f64> {
    let cell = |i: usize, j: usize| (0..k).map(|l| left[i * k + l] * right(l, j)).sum();
    (0..m * n).map(|at| cell(at / n, at % n)).collect()
}

/// By its Taylor series, or by its continued fraction where that is better.
pub(crate) fn error_function(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for n in 1..80 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let fraction = (1..60).rev().fold(a, |rest, n| a + f64::from(n) / 2.0 / rest);
        1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

/// An eight-bit float with `mantissa` bits of fraction, as a number. No code stands for infinity in e4m3; NaN is given for
/// those that are none.
pub(crate) fn eight_bit_value(code: u8, mantissa: u32) -> f64 {
    let magnitude = u32::from(code & 0x7f);
    let (exponent, fraction) = ((magnitude >> mantissa) as i32, f64::from(magnitude & ((1 << mantissa) - 1)));
    let (bias, unit) = ((1 << (6 - mantissa)) - 1, f64::from(1 << mantissa));
    let special = if mantissa == 3 { magnitude == 0x7f } else { exponent == 31 };
    let value = match exponent {
        _ if special => f64::NAN,
        0 => fraction / unit * 2f64.powi(1 - bias),
        _ => (1.0 + fraction / unit) * 2f64.powi(exponent - bias),
    };
    if code & 0x80 == 0 { value } else { -value }
}

/// The nearest eight-bit float, the even one of two; too big ones give the biggest.
pub(crate) fn eight_bit_code(value: f32, mantissa: u32) -> u8 {
    let biggest = if mantissa == 3 { 448.0 } else { 57344.0 };
    let wanted = f64::from(value.abs()).min(biggest);
    let distance = |code: u8| (eight_bit_value(code, mantissa) - wanted).abs();
    let codes = (0..0x7f).filter(|&code| eight_bit_value(code, mantissa).is_finite());
    let best = codes.min_by(|&x, &y| distance(x).total_cmp(&distance(y)).then((x & 1).cmp(&(y & 1))));
    best.expect("there are finite codes") | if value.is_sign_negative() { 0x80 } else { 0 }
}
