//! [`RmsNorm`]: rows divided by the root of the mean of their squares.
//!
//! `y = x * rsqrt(mean(x^2) + epsilon) * (weight + offset)` for each row, perhaps of `x + residual`, perhaps quantised.
//!
//! * The sum `x + residual` is kept in f32 for the norm, and rounded once where it is stored.
//! * NaN in a row makes the row NaN; so does infinity, whose row is 0 elsewhere. A row of zeros stays zero where `epsilon` is above
//!   zero.
//! * Kernels square in f32: where numbers are beyond about 1e19 the mean of squares is infinite, and finite numbers become 0. The CPU squares
//!   in f64, which is right for all.
//! * Quantised rows have a scale each, as [`Quantise`](super::Quantise) describes.
//! * No rows: nothing is written but gradients of weights, which are 0. No columns: nothing is written, but for scales, which are 1.
//!
//! Works in place: `y` and `sum` may be exactly `x` or `residual`, and `dx` exactly `x` or `dy`.

use tilewright_kernels::ops as kernels;

use super::cpu::{Grid, count, on_cpu, rounded};
use super::launch::{Parts, STEP, key, launch, programs, rows_or_steps};
use super::quantise::quantise_row;
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, QuantItem, Quantise, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// RMSNorm of each row.
///
/// ```
/// use tilewright::ops::{RmsNorm, Rows};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let x = device.upload(&[3.0f32, -3.0, 0.0, 0.0])?; // 2 x 2
/// let (w, y) = (device.upload(&[1.0f32, 2.0])?, device.alloc::<f32>(4)?);
/// RmsNorm::new(1e-6).weight(&w).run(&device, Rows::new(&x, 2, 2), Rows::new(&y, 2, 2))?;
/// let expected = [1.0, -2.0, 0.0, 0.0];
/// assert!(y.to_vec()?.iter().zip(expected).all(|(y, expected)| (y - expected).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<'a, W = f32> {
    epsilon: f32,
    offset: f32,
    weight: Option<Rows<'a, W>>,
}

impl RmsNorm<'_> {
    /// Without weights.
    #[must_use]
    pub fn new(epsilon: f32) -> Self {
        RmsNorm { epsilon, offset: 0.0, weight: None }
    }
}

impl<'a, W: FloatItem> RmsNorm<'a, W> {
    /// With a weight for each column.
    #[must_use]
    pub fn weight<V: FloatItem>(self, weight: impl Into<Rows<'a, V>>) -> RmsNorm<'a, V> {
        RmsNorm { epsilon: self.epsilon, offset: self.offset, weight: Some(weight.into()) }
    }

    /// With this added to every weight; 1 for weights that were stored as differences from 1.
    #[must_use]
    pub fn offset(self, offset: f32) -> Self {
        RmsNorm { offset, ..self }
    }

    /// Computes `y` from `x`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        y: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        self.floats(device, x.into(), None, y.into())
    }

    /// Computes `sum = x + residual`, and `y` from it.
    ///
    /// ```
    /// use tilewright::ops::RmsNorm;
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::cpu();
    /// let (x, residual) = (device.upload(&[1.0f32, 2.0])?, device.upload(&[1.0f32, -4.0])?);
    /// let y = device.alloc::<f32>(2)?;
    /// RmsNorm::new(0.0).run_adding(&device, &x, &residual, &residual, &y)?; // the sum takes the place of the residual
    /// assert_eq!((residual.to_vec()?, y.to_vec()?), (vec![2.0, -2.0], vec![1.0, -1.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run_adding<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        residual: impl Into<Rows<'r, T>>,
        sum: impl Into<Rows<'r, T>>,
        y: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        self.floats(device, x.into(), Some((residual.into(), sum.into())), y.into())
    }

    /// Computes `y` from `x`, quantised with a scale for each row: what the result stands for is `y * scale`.
    ///
    /// ```
    /// use tilewright::ops::RmsNorm;
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::cpu();
    /// let x = device.upload(&[1.0f32, -1.0, 1.0, -1.0])?;
    /// let (y, scale) = (device.alloc::<i8>(4)?, device.alloc::<f32>(1)?);
    /// RmsNorm::new(0.0).quantise(&device, &x, &y, &scale)?;
    /// assert_eq!((y.to_vec()?, scale.to_vec()?), (vec![127, -127, 127, -127], vec![1.0 / 127.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn quantise<'r, T: FloatItem, Q: QuantItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        y: impl Into<Rows<'r, Q>>,
        scales: impl Into<Rows<'r, f32>>,
    ) -> Result<(), Error> {
        self.quantised(device, x.into(), None, y.into(), scales.into())
    }

    /// Computes `sum = x + residual`, and `y` from it, quantised with a scale for each row.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn quantise_adding<'r, T: FloatItem, Q: QuantItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        residual: impl Into<Rows<'r, T>>,
        sum: impl Into<Rows<'r, T>>,
        y: impl Into<Rows<'r, Q>>,
        scales: impl Into<Rows<'r, f32>>,
    ) -> Result<(), Error> {
        self.quantised(device, x.into(), Some((residual.into(), sum.into())), y.into(), scales.into())
    }

    /// Computes the gradient `dx` of `x` from that of the result, and adds up that of the weights over all rows, `dw`.
    ///
    /// With `n = x * rsqrt(mean(x^2) + epsilon)` and `g = dy * (weight + offset)`, `dx = rsqrt(..) * (g - n * mean(g * n))` and
    /// `dw = sum over rows of dy * n`.
    ///
    /// ```
    /// use tilewright::ops::RmsNorm;
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::cpu();
    /// let (x, dy) = (device.upload(&[2.0f32, -2.0])?, device.upload(&[1.0f32, 0.0])?);
    /// let (dx, dw) = (device.alloc::<f32>(2)?, device.alloc::<f32>(2)?);
    /// RmsNorm::new(0.0).backward(&device, &x, &dy, &dx, &dw)?;
    /// assert_eq!((dx.to_vec()?, dw.to_vec()?), (vec![0.25, 0.25], vec![1.0, 0.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn backward<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        dy: impl Into<Rows<'r, T>>,
        dx: impl Into<Rows<'r, U>>,
        dw: impl Into<Rows<'r, f32>>,
    ) -> Result<(), Error> {
        let (x, dy, dx) = (x.into(), dy.into(), dx.into());
        let (rows, columns) = x.extents();
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        operands.input_like("dy", &dy, &x)?;
        let norm = self.fitted(&mut operands, columns)?;
        operands.result_like("dx", &dx, &x)?;
        let dw = operands.of_columns("dw", dw.into(), columns)?;
        if device.kind() != DeviceKind::Cpu {
            return match &norm.weight {
                Some(weight) => norm.launch_backward(device, (&x, &dy), weight, &dx, &dw),
                // Nobody reads them.
                None => norm.launch_backward(device, (&x, &dy), &x, &dx, &dw),
            };
        }
        on_cpu(device, |mut host| {
            let (x, mut out) = (host.numbers(&x)?, host.numbers(&dy)?);
            let factors = norm.factors(norm.weight.map(|w| host.numbers(&w)).transpose()?, columns);
            let mut weights = vec![0.0f64; columns];
            for row in 0..rows {
                let inverse = norm.inverse(x.row(row));
                for ((sum, &x), &dy) in weights.iter_mut().zip(x.row(row)).zip(out.row(row)) {
                    *sum += f64::from(dy) * f64::from(x) * inverse;
                }
            }
            out.each_row(|row, dy| {
                let inverse = norm.inverse(x.row(row));
                let terms = || x.row(row).iter().zip(&factors).map(|(&x, &w)| (f64::from(x) * inverse, w));
                let mean = terms().zip(&*dy).map(|((n, w), &dy)| f64::from(dy) * w * n).sum::<f64>()
                    / count(columns);
                let all: Vec<f32> = terms()
                    .zip(&*dy)
                    .map(|((n, w), &dy)| rounded(inverse * (f64::from(dy) * w - n * mean)))
                    .collect();
                dy.copy_from_slice(&all);
            });
            host.write_numbers(&dx, &out)?;
            host.write(&dw, &Grid { values: weights.into_iter().map(rounded).collect(), columns })
        })
    }

    fn floats<T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: Rows<'_, T>,
        residual: Option<(Rows<'_, T>, Rows<'_, T>)>,
        y: Rows<'_, U>,
    ) -> Result<(), Error> {
        let mut operands = Operands::on(device);
        let norm = self.prepared(&mut operands, &x, residual.as_ref())?;
        operands.result_like("y", &y, &x)?;
        if device.kind() != DeviceKind::Cpu {
            return norm.launch(device, &x, residual.as_ref(), &y);
        }
        norm.compute(device, x, residual, |host, grid| host.write_numbers(&y, &grid))
    }

    fn quantised<T: FloatItem, Q: QuantItem>(
        &self,
        device: &Device,
        x: Rows<'_, T>,
        residual: Option<(Rows<'_, T>, Rows<'_, T>)>,
        y: Rows<'_, Q>,
        scales: Rows<'_, f32>,
    ) -> Result<(), Error> {
        let (rows, _) = x.extents();
        let scales = scales.as_column(rows);
        let mut operands = Operands::on(device);
        let norm = self.prepared(&mut operands, &x, residual.as_ref())?;
        expect_extents("y", &y, x.extents(), "as `x` has")?;
        operands.apart("y", &y)?;
        expect_extents("scales", &scales, (rows, 1), "one for each row of `x`")?;
        operands.apart("scales", &scales)?;
        if device.kind() != DeviceKind::Cpu {
            return match &norm.weight {
                Some(weight) => norm.launch_quantised(device, &x, residual.as_ref(), weight, (&y, &scales)),
                // Nobody reads them.
                None => norm.launch_quantised(device, &x, residual.as_ref(), &x, (&y, &scales)),
            };
        }
        norm.compute(device, x, residual, |host, mut grid| {
            let mut found = Grid::filled((rows, 1), 1.0);
            for (row, scale) in found.values.iter_mut().enumerate() {
                *scale = quantise_row::<Q>(&mut grid.values[row * grid.columns..][..grid.columns]);
            }
            host.write_numbers(&y, &grid)?;
            host.write(&scales, &found)
        })
    }

    /// Inputs and the sum, looked at.
    fn prepared<T: FloatItem>(
        &self,
        operands: &mut Operands<'_>,
        x: &Rows<'_, T>,
        residual: Option<&(Rows<'_, T>, Rows<'_, T>)>,
    ) -> Result<Self, Error> {
        operands.input("x", x)?;
        let norm = self.fitted(operands, x.extents().1)?;
        if let Some((residual, sum)) = residual {
            operands.input_like("residual", residual, x)?;
            operands.result_like("sum", sum, x)?;
        }
        Ok(norm)
    }

    fn fitted(&self, operands: &mut Operands<'_>, columns: usize) -> Result<Self, Error> {
        Ok(RmsNorm { weight: operands.for_columns("weight", self.weight, columns)?, ..*self })
    }

    fn compute<T: FloatItem>(
        &self,
        device: &Device,
        x: Rows<'_, T>,
        residual: Option<(Rows<'_, T>, Rows<'_, T>)>,
        write: impl FnOnce(&mut super::cpu::Host<'_>, Grid<f32>) -> Result<(), Error> + Send,
    ) -> Result<(), Error> {
        let (_, columns) = x.extents();
        on_cpu(device, |mut host| {
            let factors = self.factors(self.weight.map(|w| host.numbers(&w)).transpose()?, columns);
            let mut grid = host.numbers_adding(&x, residual.as_ref())?;
            grid.each_row(|_, row| {
                let inverse = self.inverse(row);
                for (x, w) in row.iter_mut().zip(&factors) {
                    *x = rounded(f64::from(*x) * inverse * w);
                }
            });
            write(&mut host, grid)
        })
    }

    fn launch<T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: &Rows<'_, T>,
        residual: Option<&(Rows<'_, T>, Rows<'_, T>)>,
        y: &Rows<'_, U>,
    ) -> Result<(), Error> {
        match &self.weight {
            Some(weight) => self.launch_with(device, x, residual, weight, y),
            // Nobody reads them.
            None => self.launch_with(device, x, residual, x, y),
        }
    }

    fn launch_with<T: FloatItem, V: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: &Rows<'_, T>,
        residual: Option<&(Rows<'_, T>, Rows<'_, T>)>,
        weight: &Rows<'_, V>,
        y: &Rows<'_, U>,
    ) -> Result<(), Error> {
        let (weighted, elements) = (self.weight.is_some(), [T::ELEMENT, V::ELEMENT, U::ELEMENT]);
        let (whole, shape) = rows_or_steps(device, x.extents(), 1);
        let programs = [programs(x.extents(), shape)[0], u32::from(!x.is_empty())];
        let (from, weight, to) = (x.tensor(), weight.tensor(), y.tensor());
        match residual {
            Some((residual, sum)) => {
                let name = if whole { "rms_norm_adding" } else { "rms_norm_adding_long" };
                let key = key(name, &elements, &[weighted.into()], shape);
                let (residual, sum) = (residual.tensor(), sum.tensor());
                let arguments: &[&dyn Argument] =
                    &[&from, &residual, &weight, &sum, &to, &self.epsilon, &self.offset];
                launch(device, &key, programs, arguments, || match whole {
                    true => kernels::rms_norm_adding::stage::<T, V, U>(weighted, shape),
                    false => kernels::rms_norm_adding_long::stage::<T, V, U>(weighted, STEP),
                })
            }
            None => {
                let name = if whole { "rms_norm" } else { "rms_norm_long" };
                let key = key(name, &elements, &[weighted.into()], shape);
                let arguments: &[&dyn Argument] = &[&from, &weight, &to, &self.epsilon, &self.offset];
                launch(device, &key, programs, arguments, || match whole {
                    true => kernels::rms_norm::stage::<T, V, U>(weighted, shape),
                    false => kernels::rms_norm_long::stage::<T, V, U>(weighted, STEP),
                })
            }
        }
    }

    fn launch_quantised<T: FloatItem, V: FloatItem, Q: QuantItem>(
        &self,
        device: &Device,
        x: &Rows<'_, T>,
        residual: Option<&(Rows<'_, T>, Rows<'_, T>)>,
        weight: &Rows<'_, V>,
        (y, scales): (&Rows<'_, Q>, &Rows<'_, f32>),
    ) -> Result<(), Error> {
        if x.extents().1 == 0 {
            // Nothing has no mean, but a scale.
            return Quantise::per_row().run(device, *x, *y, *scales);
        }
        let (weighted, adding) = (self.weight.is_some(), residual.is_some());
        // Nobody reads or writes them, either, where nothing is added.
        let (residual, sum) = residual.copied().unwrap_or((*x, *x));
        let (whole, shape) = rows_or_steps(device, x.extents(), 1);
        let name = if whole { "rms_norm_quantised" } else { "rms_norm_quantised_long" };
        let elements = [T::ELEMENT, V::ELEMENT, Q::ELEMENT];
        let key = key(name, &elements, &[adding.into(), weighted.into()], shape);
        let (from, residual, weight) = (x.tensor(), residual.tensor(), weight.tensor());
        let (sum, to, scales) = (sum.tensor(), y.tensor(), scales.tensor());
        let arguments: &[&dyn Argument] =
            &[&from, &residual, &weight, &sum, &to, &scales, &self.epsilon, &self.offset, &Q::LARGEST];
        launch(device, &key, [programs(x.extents(), shape)[0], 1], arguments, || match whole {
            true => kernels::rms_norm_quantised::stage::<T, V, Q>(adding, weighted, shape),
            false => kernels::rms_norm_quantised_long::stage::<T, V, Q>(adding, weighted, STEP),
        })
    }

    fn launch_backward<T: FloatItem, V: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        (x, dy): (&Rows<'_, T>, &Rows<'_, T>),
        weight: &Rows<'_, V>,
        dx: &Rows<'_, U>,
        dw: &Rows<'_, f32>,
    ) -> Result<(), Error> {
        let (whole, [_, width]) = rows_or_steps(device, x.extents(), 4);
        let name = if whole { "rms_norm_backward" } else { "rms_norm_backward_long" };
        let (weighted, parts) = (self.weight.is_some(), Parts::new(device, x.extents())?);
        let elements = [T::ELEMENT, V::ELEMENT, U::ELEMENT];
        let key = key(name, &elements, &[weighted.into()], [1, width]);
        let (from, given, weight, to) = (x.tensor(), dy.tensor(), weight.tensor(), dx.tensor());
        let sums = parts.rows();
        let arguments: &[&dyn Argument] =
            &[&from, &given, &weight, &to, &sums.tensor(), &self.epsilon, &self.offset];
        launch(device, &key, parts.programs(), arguments, || match whole {
            true => kernels::rms_norm_backward::stage::<T, V, U>(weighted, width),
            false => kernels::rms_norm_backward_long::stage::<T, V, U>(weighted, width),
        })?;
        parts.add_up(device, dw)
    }

    /// What every column is multiplied by.
    fn factors(&self, weight: Option<Grid<f32>>, columns: usize) -> Vec<f64> {
        match weight {
            Some(weight) => weight.values.iter().map(|&w| f64::from(w + self.offset)).collect(),
            None => vec![1.0; columns],
        }
    }

    /// One over the root of the mean of squares.
    fn inverse(&self, row: &[f32]) -> f64 {
        let squares: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        1.0 / (squares / count(row.len()) + f64::from(self.epsilon)).sqrt()
    }
}
