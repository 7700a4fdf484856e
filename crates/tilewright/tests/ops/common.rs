//! Matrices of all types and strides, and results held against exact ones.

use std::fmt::Debug;

use tilewright::device::{Buffer, Device, Item};
use tilewright::lang::{bf16, f16};
use tilewright::ops::{Bound, FloatItem, Rows};

/// Row lengths: the smallest, odd ones around warps, what models have, and one beyond 2^16.
pub(crate) const LENGTHS: &[usize] = &[1, 2, 3, 31, 33, 1000, 1536, 4097, 65537];

/// What runs kernels: the first GPU if there is one, else the simulator.
pub(crate) fn machine() -> Device {
    thread_local! {
        // As long as the test goes on: without anybody who has the device, its context ends, and a new one takes longer than most kernels here.
        static GPU: Option<Device> = Device::cuda(0).ok();
    }
    GPU.with(Option::clone).unwrap_or_else(Device::simulator)
}

/// A float of an operand, with what its type makes of exact numbers.
pub(crate) trait Sample: FloatItem + Debug {
    const DIGITS: i32;
    const SMALLEST: i32;
    fn of(value: f64) -> Self;

    fn value(self) -> f64 {
        self.to_f32().into()
    }

    /// The largest error of rounding a number to the type.
    fn rounding(exact: f64) -> f64 {
        let exponent = if exact == 0.0 {
            Self::SMALLEST
        } else {
            (exact.abs().log2().floor() as i32).max(Self::SMALLEST)
        };
        2f64.powi(exponent - Self::DIGITS)
    }
}

macro_rules! samples {
    ($($ty:ty, $digits:literal, $lowest:literal, |$x:ident| $of:expr;)*) => {$(
        impl Sample for $ty {
            const DIGITS: i32 = $digits;
            const SMALLEST: i32 = $lowest;
            #[allow(clippy::cast_possible_truncation)]
            fn of($x: f64) -> $ty {
                $of
            }
        }
    )*};
}

samples! {
    f32, 24, -126, |x| x as f32;
    f16, 11, -14, |x| f16::from_f64(x);
    bf16, 8, -126, |x| bf16::from_f64(x);
}

/// A small generator: the same numbers on every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / 2f64.powi(53)
    }

    /// Roughly normally distributed, from -3 to 3.
    pub(crate) fn normal(&mut self) -> f64 {
        2.0 * ((0..3).map(|_| self.unit()).sum::<f64>() - 1.5)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.word() % n.max(1) as u64) as usize
    }
}

/// How a matrix lies in its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lies {
    Dense,
    /// Rows some elements apart, from some element on.
    Padded,
    /// Columns are contiguous.
    Turned,
    /// Every third element of rows with gaps.
    Scattered,
}

pub(crate) const ALL_LIES: [Lies; 4] = [Lies::Dense, Lies::Padded, Lies::Turned, Lies::Scattered];

/// A matrix on a device in a buffer that holds a known number everywhere else.
pub(crate) struct Matrix<T> {
    pub(crate) buffer: Buffer<T>,
    rows: usize,
    columns: usize,
    lies: Lies,
}

impl<T: Item + Debug> Matrix<T> {
    pub(crate) fn new(
        device: &Device,
        (rows, columns): (usize, usize),
        lies: Lies,
        values: &[T],
        gap: T,
    ) -> Matrix<T> {
        assert_eq!(values.len(), rows * columns);
        let mut all = vec![gap; 3 * rows * columns + 5 * rows + 16];
        for (i, value) in values.iter().enumerate() {
            all[place((rows, columns), lies, i / columns, i % columns)] = *value;
        }
        Matrix { buffer: device.upload(&all).unwrap(), rows, columns, lies }
    }

    pub(crate) fn view(&self) -> Rows<'_, T> {
        let (rows, columns) = (self.rows, self.columns);
        match self.lies {
            Lies::Dense => Rows::new(&self.buffer, rows, columns),
            Lies::Padded => Rows::new(&self.buffer, rows, columns).stride(columns + 3).offset(5),
            Lies::Turned => Rows::new(&self.buffer, columns, rows).transposed(),
            Lies::Scattered => {
                Rows::new(&self.buffer, rows, columns).stride(3 * columns + 1).column_stride(3).offset(2)
            }
        }
    }

    /// The elements, and whether all else is as it was.
    pub(crate) fn read(&self, gap: T) -> Vec<T> {
        let mut all = self.buffer.to_vec().unwrap();
        let extents = (self.rows, self.columns);
        let each = (0..self.rows).flat_map(|i| (0..self.columns).map(move |j| (i, j)));
        let values =
            each.map(|(i, j)| std::mem::replace(&mut all[place(extents, self.lies, i, j)], gap)).collect();
        assert!(all.iter().all(|x| *x == gap), "{:?}: something beside the result was written", self.lies);
        values
    }
}

fn place((rows, columns): (usize, usize), lies: Lies, i: usize, j: usize) -> usize {
    match lies {
        Lies::Dense => i * columns + j,
        Lies::Padded => 5 + i * (columns + 3) + j,
        Lies::Turned => j * rows + i,
        Lies::Scattered => 2 + i * (3 * columns + 1) + 3 * j,
    }
}

/// Numbers as a type holds them, on the device and as f64.
pub(crate) fn input<T: Sample>(
    device: &Device,
    extents: (usize, usize),
    lies: Lies,
    values: &[f64],
) -> (Matrix<T>, Vec<f64>) {
    let typed: Vec<T> = values.iter().map(|&x| T::of(x)).collect();
    let exact = typed.iter().map(|x| x.value()).collect();
    (Matrix::new(device, extents, lies, &typed, T::of(0.25)), exact)
}

pub(crate) fn output<T: Sample>(device: &Device, extents: (usize, usize), lies: Lies) -> Matrix<T> {
    Matrix::new(device, extents, lies, &vec![T::of(-77.0); extents.0 * extents.1], T::of(0.25))
}

pub(crate) fn normals(seed: u64, count: usize, spread: f64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..count).map(|_| spread * random.normal()).collect()
}

/// An exact result, and the size of what its error is measured against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    pub(crate) value: f64,
    pub(crate) scale: f64,
}

/// Results that are measured against themselves.
pub(crate) fn itself(value: f64) -> Exact {
    Exact { value, scale: value.abs() }
}

/// Holds results to the bound of their operator.
pub(crate) fn check<T: Sample>(operator: &str, context: &dyn Debug, found: &[T], exact: &[Exact]) {
    let bound = Bound::of(operator).unwrap_or_else(|| panic!("no bound for {operator}"));
    assert_eq!(found.len(), exact.len(), "{operator} {context:?}");
    for (i, (found, exact)) in found.iter().zip(exact).enumerate() {
        let (got, want) = (found.value(), exact.value);
        let same = got == want || (got.is_nan() && want.is_nan());
        // A number that is too large for the type is infinite, or its largest.
        let beyond = T::of(want).value().is_infinite()
            && got.abs() >= T::of(want * 0.99).value().abs()
            && got * want > 0.0;
        let allowed = bound.error(exact.scale) + T::rounding(want);
        let near = (got - want).abs() <= allowed * (1.0 + 1e-9);
        assert!(
            same || beyond || near,
            "{operator} of {} {context:?}: element {i} is {got}, exactly {want}; the difference {:e} is above {allowed:e}",
            T::ELEMENT,
            (got - want).abs()
        );
    }
}

/// Runs a test for every type, length and way to lie.
pub(crate) fn every_case(mut test: impl FnMut(usize, usize, Lies, Lies)) {
    for (i, &columns) in LENGTHS.iter().enumerate() {
        let rows = if columns > 50_000 { 2 } else { 5 };
        for (j, &lies) in ALL_LIES.iter().enumerate() {
            // Long rows are slow to make: each length meets one way to lie, each way a long one.
            if columns >= 1000 && i % 4 != j {
                continue;
            }
            test(rows, columns, lies, ALL_LIES[(i + 2 * j) % 4]);
        }
    }
}

/// A test of each name for every type.
#[macro_export]
macro_rules! for_each_type {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn f32() {
                super::$name::<f32>();
            }
            #[test]
            fn f16() {
                super::$name::<tilewright::lang::f16>();
            }
            #[test]
            fn bf16() {
                super::$name::<tilewright::lang::bf16>();
            }
        }
    )*};
}
