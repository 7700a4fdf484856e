//! [`Quantise`]: numbers in 8 bits with a scale for each row or one for all, and [`dequantise`], the way back.
//!
//! With the largest absolute value `a` of a row (or of all) and the largest number `L` of the type that is used (448 for E4m3, 57344 for
//! E5m2, 127 for i8), the scale is `a / L`, and the result the number nearest to `x * (L / a)`. What it stands for is `result * scale`.
//!
//! * Zeros have the scale 1. So has nothing at all, and numbers so small that `L / a` is no finite f32, which become zeros.
//! * NaN or infinity makes the scale NaN or infinite, and what the results stand for NaN.
//! * With a scale that is [given](Quantise::with_scale), results are nearest to `x * (1 / scale)`, and the largest number of the type for
//!   anything beyond; i8 has -127 to 127, and 0 for NaN.
//! * A scale for each block of columns, such as 1 x 128, is one for each row of [groups](Rows::groups).
//!
//! Results are in memory of their own.

use tilewright_kernels::ops as kernels;

use super::cpu::{Grid, largest, on_cpu, rounded};
use super::launch::{key, launch, parts, programs, whole_rows};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, QuantItem, Reduce, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// Numbers in 8 bits with a scale.
///
/// ```
/// use tilewright::ops::{Quantise, Rows, dequantise};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, -0.5, 254.0, 0.0])?; // 2 x 2
/// let (q, scales) = (device.alloc::<i8>(4)?, device.alloc::<f32>(2)?);
/// let (x, matrix) = (Rows::new(&x, 2, 2), Rows::new(&q, 2, 2));
/// Quantise::per_row().run(&device, x, matrix, &scales)?;
/// assert_eq!((q.to_vec()?, scales.to_vec()?), (vec![127, -64, 127, 0], vec![1.0 / 127.0, 2.0]));
/// dequantise(&device, matrix, &scales, x)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantise {
    scales: Scales,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scales {
    PerRow,
    PerTensor,
    Given,
}

impl Quantise {
    /// With a scale for each row.
    #[must_use]
    pub fn per_row() -> Quantise {
        Quantise { scales: Scales::PerRow }
    }

    /// With one scale for all.
    #[must_use]
    pub fn per_tensor() -> Quantise {
        Quantise { scales: Scales::PerTensor }
    }

    /// With scales that are read, not computed: one for each row, or one for all.
    #[must_use]
    pub fn with_scale() -> Quantise {
        Quantise { scales: Scales::Given }
    }

    /// Computes `q` and the scales from `x`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run<'r, T: FloatItem, Q: QuantItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        q: impl Into<Rows<'r, Q>>,
        scales: impl Into<Rows<'r, f32>>,
    ) -> Result<(), Error> {
        let (x, q) = (x.into(), q.into());
        let (rows, _) = x.extents();
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        expect_extents("q", &q, x.extents(), "as `x` has")?;
        let scales = match self.scales {
            Scales::PerRow => scales.into().as_column(rows),
            Scales::PerTensor => scales.into(),
            Scales::Given => scales.into().as_column(rows).broadcast_rows(rows),
        };
        match self.scales {
            Scales::PerTensor => expect_extents("scales", &scales, (1, 1), "one for all")?,
            _ => expect_extents("scales", &scales, (rows, 1), "one for each row of `x`")?,
        }
        match self.scales {
            Scales::Given => operands.input("scales", &scales)?,
            _ => operands.apart("scales", &scales)?,
        }
        operands.apart("q", &q)?;
        if device.kind() != DeviceKind::Cpu {
            return self.launch(device, &x, &q, &scales);
        }
        on_cpu(device, |mut host| {
            let mut grid = host.numbers(&x)?;
            let columns = grid.columns;
            match self.scales {
                Scales::PerRow => {
                    let each = |row: usize, grid: &mut Grid<f32>| {
                        quantise_row::<Q>(&mut grid.values[row * columns..][..columns])
                    };
                    let found = (0..rows).map(|row| each(row, &mut grid)).collect();
                    host.write(&scales, &Grid { values: found, columns: 1 })?;
                }
                Scales::PerTensor => {
                    let found = quantise_row::<Q>(&mut grid.values);
                    host.write(&scales, &Grid::filled((1, 1), found))?;
                }
                Scales::Given => {
                    let given = host.read(&scales)?;
                    grid.each_row(|row, values| {
                        let inverse = 1.0 / given.values[row];
                        values.iter_mut().for_each(|x| *x = limited::<Q>(*x * inverse));
                    });
                }
            }
            host.write_numbers(&q, &grid)
        })
    }

    fn launch<T: FloatItem, Q: QuantItem>(
        &self,
        device: &Device,
        x: &Rows<'_, T>,
        q: &Rows<'_, Q>,
        scales: &Rows<'_, f32>,
    ) -> Result<(), Error> {
        let (elements, largest) = ([T::ELEMENT, Q::ELEMENT], Q::LARGEST);
        let (from, to) = (x.tensor(), q.tensor());
        let whole = whole_rows(device, x.extents()).filter(|_| self.scales == Scales::PerRow);
        if let Some(shape) = whole {
            let key = key("quantise_rows", &elements, &[], shape);
            let programs = [programs(x.extents(), shape)[0], 1];
            return launch(device, &key, programs, &[&from, &to, &scales.tensor(), &largest], || {
                kernels::quantise_rows::stage::<T, Q>(shape)
            });
        }
        let (shape, most) = (parts(x.extents()), self.scales != Scales::Given);
        let (rows, _) = scales.extents();
        let found = device.temporary::<f32>(rows)?;
        let found = Rows::new(&found, rows, 1);
        match self.scales {
            Scales::PerRow => Reduce::AbsMax.rows(device, *x, found)?,
            Scales::PerTensor => Reduce::AbsMax.all(device, *x, found)?,
            Scales::Given => {}
        }
        if most {
            let shape = parts(scales.extents());
            let arguments: &[&dyn Argument] = &[&found.tensor(), &scales.tensor(), &largest];
            let key = key("scale_of", &[], &[], shape);
            launch(device, &key, programs(scales.extents(), shape), arguments, || {
                kernels::scale_of::stage(shape.shape[0])
            })?;
        }
        let known = if most { found.broadcast_rows(x.extents().0) } else { *scales };
        let key = key("quantise_by", &elements, &[most.into()], shape);
        let arguments: &[&dyn Argument] = &[&from, &known.tensor(), &to, &largest];
        launch(device, &key, programs(x.extents(), shape), arguments, || {
            kernels::quantise_by::stage::<T, Q>(most, shape)
        })
    }
}

/// The numbers that `q` stands for: `y = q * scale`, with a scale for each row or one for all.
///
/// ```
/// use tilewright::ops::{Rows, dequantise};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let q = device.upload(&[1i8, -2, 100, 50])?; // 2 x 2
/// let (scales, y) = (device.upload(&[0.5f32, 0.01])?, device.alloc::<f32>(4)?);
/// dequantise(&device, Rows::new(&q, 2, 2), &scales, Rows::new(&y, 2, 2))?;
/// assert_eq!(y.to_vec()?, [0.5, -1.0, 1.0, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the operands do not fit together, or the device fails.
pub fn dequantise<'r, Q: QuantItem, T: FloatItem>(
    device: &Device,
    q: impl Into<Rows<'r, Q>>,
    scales: impl Into<Rows<'r, f32>>,
    y: impl Into<Rows<'r, T>>,
) -> Result<(), Error> {
    let (q, y) = (q.into(), y.into());
    let (rows, _) = q.extents();
    let scales = scales.into().as_column(rows).broadcast_rows(rows);
    let mut operands = Operands::on(device);
    operands.input("q", &q)?;
    expect_extents("scales", &scales, (rows, 1), "one for each row of `q`, or one for all")?;
    operands.input("scales", &scales)?;
    expect_extents("y", &y, q.extents(), "as `q` has")?;
    operands.apart("y", &y)?;
    if device.kind() != DeviceKind::Cpu {
        let shape = parts(q.extents());
        let key = key("dequantise", &[Q::ELEMENT, T::ELEMENT], &[], shape);
        let arguments: &[&dyn Argument] = &[&q.tensor(), &scales.tensor(), &y.tensor()];
        return launch(device, &key, programs(q.extents(), shape), arguments, || {
            kernels::dequantise::stage::<Q, T>(shape)
        });
    }
    on_cpu(device, |mut host| {
        let (mut grid, scales) = (host.numbers(&q)?, host.read(&scales)?);
        grid.each_row(|row, values| values.iter_mut().for_each(|x| *x *= scales.values[row]));
        host.write_numbers(&y, &grid)
    })
}

/// Divides numbers by their scale, and says it.
pub(super) fn quantise_row<Q: QuantItem>(row: &mut [f32]) -> f32 {
    let most = largest(std::iter::once(0.0).chain(row.iter().map(|x| x.abs())));
    let inverse = Q::LARGEST / most;
    // No finite reciprocal: zeros, or next to it.
    if inverse.is_infinite() {
        row.fill(0.0);
        return 1.0;
    }
    row.iter_mut().for_each(|x| *x = limited::<Q>(*x * inverse));
    rounded(f64::from(most) / f64::from(Q::LARGEST))
}

/// A number that the type has, or is between two that it has.
fn limited<Q: QuantItem>(x: f32) -> f32 {
    if x.is_nan() { x } else { x.clamp(-Q::LARGEST, Q::LARGEST) }
}
