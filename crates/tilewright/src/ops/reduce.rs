//! [`Reduce`] and [`Arg`]: what the numbers of each row, or all of them, make together, and where the largest is.
//!
//! | of | none | NaN |
//! | --- | --- | --- |
//! | sum, sum of squares | 0 | NaN |
//! | mean | NaN | NaN |
//! | product | 1 | NaN |
//! | largest, logarithm of the sum of exponentials | -inf | NaN |
//! | smallest | +inf | NaN |
//! | largest absolute value, Euclidean norm | 0 | NaN |
//! | index of the largest or smallest | `u32::MAX` | the first NaN |
//!
//! Of equal numbers the first one's index counts; 0 and -0 are equal. Results are in memory of their own. Products that leave the range of f32
//! (on the CPU f64) before all numbers are multiplied do not come back: infinity times a zero is NaN.

use tilewright_kernels::ops::{self as kernels, Kind};

use super::cpu::{Grid, count, largest, on_cpu, per_row, rounded, sum};
use super::launch::{STEP, key, launch, parts, programs, whole_rows};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// What numbers make together.
///
/// ```
/// use tilewright::ops::{Reduce, Rows};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
/// let (sums, largest) = (device.alloc::<f32>(2)?, device.alloc::<f32>(1)?);
/// Reduce::Sum.rows(&device, Rows::new(&x, 2, 2), &sums)?;
/// Reduce::Max.all(&device, &x, &largest)?;
/// assert_eq!((sums.to_vec()?, largest.to_vec()?), (vec![3.0, 7.0], vec![4.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduce {
    /// The sum.
    Sum,
    /// The sum over the count.
    Mean,
    /// The product.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The largest absolute value.
    AbsMax,
    /// The sum of squares.
    SumSquares,
    /// The root of the sum of squares.
    Norm,
    /// The logarithm of the sum of exponentials, which no exponential is too large or too small for. Infinite numbers are what they are
    /// elsewhere: +inf gives +inf, and nothing but -inf gives -inf.
    LogSumExp,
}

impl Reduce {
    /// All of them.
    pub const ALL: &[Reduce] = &[
        Reduce::Sum,
        Reduce::Mean,
        Reduce::Product,
        Reduce::Max,
        Reduce::Min,
        Reduce::AbsMax,
        Reduce::SumSquares,
        Reduce::Norm,
        Reduce::LogSumExp,
    ];

    /// Of each row of `x`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn rows<'r, T: FloatItem, U: FloatItem>(
        self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        results: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let x = x.into();
        let (rows, _) = x.extents();
        let results = results.into().as_column(rows);
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        expect_extents("results", &results, (rows, 1), "one for each row of `x`")?;
        operands.apart("results", &results)?;
        if device.kind() != DeviceKind::Cpu {
            return reduce_rows(device, self.kind(), count(x.extents().1), &x, &results);
        }
        on_cpu(device, |mut host| {
            let x = host.numbers(&x)?;
            let out = per_row(rows, |row| rounded(self.of(x.row(row))));
            host.write_numbers(&results, &out)
        })
    }

    /// Of all elements of `x`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn all<'r, T: FloatItem, U: FloatItem>(
        self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        result: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let (x, result) = (x.into(), result.into());
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        expect_extents("result", &result, (1, 1), "one for all")?;
        operands.apart("result", &result)?;
        if device.kind() != DeviceKind::Cpu {
            return self.launch_all(device, &x, &result);
        }
        on_cpu(device, |mut host| {
            let x = host.numbers(&x)?;
            host.write_numbers(&result, &Grid::filled((1, 1), rounded(self.of(&x.values))))
        })
    }

    fn launch_all<T: FloatItem, U: FloatItem>(
        self,
        device: &Device,
        x: &Rows<'_, T>,
        result: &Rows<'_, U>,
    ) -> Result<(), Error> {
        let ((rows, columns), (down, right)) = (x.extents(), x.strides());
        let (elements, total) = (rows.saturating_mul(columns), count(rows) * count(columns));
        let without_gaps = rows <= 1 || x.is_empty() || right == 1 && down == columns;
        if without_gaps && elements <= MOST {
            return reduce_rows(device, self.kind(), total, &x.flat(elements), result);
        }
        // What rows make is one row without gaps.
        let parts = device.temporary::<f32>(rows)?;
        reduce_rows(device, of_parts(self.kind()), 1.0, x, &Rows::new(&parts, rows, 1))?;
        reduce_rows(device, of_results(self.kind()), total, &Rows::new(&parts, 1, rows), result)
    }

    fn kind(self) -> Kind {
        match self {
            Reduce::Sum => Kind::Sum,
            Reduce::Mean => Kind::Mean,
            Reduce::Product => Kind::Product,
            Reduce::Max => Kind::Max,
            Reduce::Min => Kind::Min,
            Reduce::AbsMax => Kind::AbsMax,
            Reduce::SumSquares => Kind::SumSquares,
            Reduce::Norm => Kind::Norm,
            Reduce::LogSumExp => Kind::LogSumExp,
        }
    }

    fn of(self, numbers: &[f32]) -> f64 {
        let all = || numbers.iter().copied();
        let squares = || 0.0 + all().map(|x| f64::from(x) * f64::from(x)).sum::<f64>();
        match self {
            Reduce::Sum => sum(all()),
            Reduce::Mean => sum(all()) / count(numbers.len()),
            Reduce::Product => all().map(f64::from).product(),
            Reduce::Max => largest(all()).into(),
            Reduce::Min => (-largest(all().map(|x| -x))).into(),
            Reduce::AbsMax => largest(std::iter::once(0.0).chain(all().map(f32::abs))).into(),
            Reduce::SumSquares => squares(),
            Reduce::Norm => squares().sqrt(),
            Reduce::LogSumExp => {
                let most = f64::from(largest(all()));
                let shift = if most.is_infinite() { 0.0 } else { most };
                all().map(|x| (f64::from(x) - shift).exp()).sum::<f64>().ln() + shift
            }
        }
    }
}

/// Elements of a row that one program reduces alone.
const ALONE: usize = 32768;
/// Programs that share long rows: always as many, so that sums are the same on every device.
const PROGRAMS: usize = 1024;
/// Elements that a view can have along an axis.
const MOST: usize = i32::MAX.cast_unsigned() as usize;

/// What parts of the numbers make, so that
fn of_parts(kind: Kind) -> Kind {
    match kind {
        Kind::Mean | Kind::Root => Kind::Sum,
        Kind::Norm => Kind::SumSquares,
        kind => kind,
    }
}

/// this makes of their results what the numbers make together.
fn of_results(kind: Kind) -> Kind {
    match kind {
        Kind::SumSquares => Kind::Sum,
        Kind::Norm => Kind::Root,
        kind => kind,
    }
}

/// How many programs share each row: one, unless there are few rows, which are long.
fn sharers((rows, columns): (usize, usize)) -> usize {
    if columns <= ALONE { 1 } else { columns.div_ceil(STEP as usize).min(PROGRAMS / rows.max(1)).max(1) }
}

/// Reduces each row, which stands for so many numbers. Where programs share rows, one more puts together what they have of each.
fn reduce_rows<T: FloatItem, U: FloatItem>(
    device: &Device,
    kind: Kind,
    numbers: f64,
    x: &Rows<'_, T>,
    results: &Rows<'_, U>,
) -> Result<(), Error> {
    let ((rows, _), sharers) = (x.extents(), sharers(x.extents()));
    if sharers == 1 {
        return reduce_alone(device, kind, numbers, x, results);
    }
    let parts = device.temporary::<f32>(rows * sharers)?;
    let parts = Rows::new(&parts, rows, sharers);
    reduce_steps(device, of_parts(kind), 1.0, x, &parts)?;
    reduce_alone(device, of_results(kind), numbers, &parts, results)
}

/// The same with a program for each row, or for several.
fn reduce_alone<T: FloatItem, U: FloatItem>(
    device: &Device,
    kind: Kind,
    numbers: f64,
    x: &Rows<'_, T>,
    results: &Rows<'_, U>,
) -> Result<(), Error> {
    let Some(shape) = whole_rows(device, x.extents()) else {
        return reduce_steps(device, kind, numbers, x, results);
    };
    let key = key("reduce_rows", &[T::ELEMENT, U::ELEMENT], &[kind as u32], shape);
    let arguments: &[&dyn Argument] = &[&x.tensor(), &results.tensor(), &rounded(numbers)];
    launch(device, &key, [programs(x.extents(), shape)[0], 1], arguments, || {
        kernels::reduce_rows::stage::<T, U>(kind, shape)
    })
}

/// The same in steps, with a program for each column of results.
fn reduce_steps<T: FloatItem, U: FloatItem>(
    device: &Device,
    kind: Kind,
    numbers: f64,
    x: &Rows<'_, T>,
    results: &Rows<'_, U>,
) -> Result<(), Error> {
    let key = key("reduce_steps", &[T::ELEMENT, U::ELEMENT], &[kind as u32], [1, STEP]);
    let arguments: &[&dyn Argument] = &[&x.tensor(), &results.tensor(), &rounded(numbers)];
    launch(device, &key, programs(results.extents(), [1, 1]), arguments, || {
        kernels::reduce_steps::stage::<T, U>(kind, STEP)
    })
}

/// Where the largest or smallest number of a row is.
///
/// ```
/// use tilewright::ops::{Arg, Rows};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 7.0, 7.0, 0.0])?;
/// let index = device.alloc::<u32>(1)?;
/// Arg::Max.rows(&device, &x, &index)?;
/// assert_eq!(index.to_vec()?, [1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// Of the largest.
    Max,
    /// Of the smallest.
    Min,
}

impl Arg {
    /// The index in each row of `x`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn rows<'r, T: FloatItem>(
        self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        indices: impl Into<Rows<'r, u32>>,
    ) -> Result<(), Error> {
        let x = x.into();
        let (rows, _) = x.extents();
        let indices = indices.into().as_column(rows);
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        expect_extents("indices", &indices, (rows, 1), "one for each row of `x`")?;
        operands.apart("indices", &indices)?;
        if device.kind() != DeviceKind::Cpu {
            return self.launch(device, &x, &indices);
        }
        on_cpu(device, |mut host| {
            let x = host.numbers(&x)?;
            let out = per_row(rows, |row| self.of(x.row(row)));
            host.write(&indices, &out)
        })
    }

    fn launch<T: FloatItem>(
        self,
        device: &Device,
        x: &Rows<'_, T>,
        indices: &Rows<'_, u32>,
    ) -> Result<(), Error> {
        let ((rows, columns), sharers) = (x.extents(), sharers(x.extents()));
        let smallest = self == Arg::Min;
        // The place of padding is no place, so that rows need a column.
        let whole = whole_rows(device, x.extents()).filter(|_| sharers == 1 && columns > 0);
        if let Some(shape) = whole {
            let key = key("arg_rows", &[T::ELEMENT], &[smallest.into()], shape);
            let arguments: &[&dyn Argument] = &[&x.tensor(), &indices.tensor()];
            return launch(device, &key, [programs(x.extents(), shape)[0], 1], arguments, || {
                kernels::arg_rows::stage::<T>(smallest, shape)
            });
        }
        let ranks = device.temporary::<u64>(rows * sharers)?;
        let ranks = Rows::new(&ranks, rows, sharers);
        let first = key("arg_steps", &[T::ELEMENT], &[smallest.into()], [1, STEP]);
        let arguments: &[&dyn Argument] = &[&x.tensor(), &ranks.tensor()];
        launch(device, &first, programs(ranks.extents(), [1, 1]), arguments, || {
            kernels::arg_steps::stage::<T>(smallest, STEP)
        })?;
        // As many as share a row are few.
        let shape = parts(ranks.extents()).shape;
        let arguments: &[&dyn Argument] = &[&ranks.tensor(), &indices.tensor()];
        launch(
            device,
            &key("arg_of_ranks", &[], &[], shape),
            programs(ranks.extents(), shape),
            arguments,
            || kernels::arg_of_ranks::stage(shape),
        )
    }

    fn of(self, row: &[f32]) -> u32 {
        let signed = |x: f32| if self == Arg::Max { x } else { -x };
        let mut best: Option<(u32, f32)> = None;
        for (index, x) in (0..).zip(row.iter().map(|&x| signed(x))) {
            if best.is_none_or(|(_, most)| precedes(x, most)) {
                best = Some((index, x));
            }
        }
        best.map_or(u32::MAX, |(index, _)| index)
    }
}

/// Whether a number comes before another one in descending order, in which NaN is first.
pub(super) fn precedes(x: f32, other: f32) -> bool {
    x > other || (x.is_nan() && !other.is_nan())
}
