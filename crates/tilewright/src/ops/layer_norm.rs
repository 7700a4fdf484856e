//! [`LayerNorm`]: rows with their mean taken away, divided by their standard deviation.
//!
//! `y = (x - mean) * rsqrt(variance + epsilon) * weight + bias` for each row, with the variance as the mean of `(x - mean)^2`, perhaps of
//! `x + residual`.
//!
//! * The sum `x + residual` is kept in f32 for the norm, and rounded once where it is stored.
//! * NaN or infinity in a row makes the row NaN. A row of equal numbers is `bias` where `epsilon` is above zero: on the CPU
//!   exactly; of kernels, which add up in f32, the mean of numbers `x` may be some last digits off, and results by `2^-20 |x weight| / sqrt(epsilon)`.
//! * Kernels square in f32: where numbers are farther than about 1e19 from the mean the variance is infinite, and the row becomes `bias`. The
//!   CPU squares in f64, which is right for all.
//! * No rows: nothing is written but gradients of weights and biases, which are 0. No columns: nothing is written.
//!
//! Works in place: `y` and `sum` may be exactly `x` or `residual`, and `dx` exactly `x` or `dy`.

use std::marker::PhantomData;

use tilewright_kernels::ops as kernels;

use super::cpu::{Grid, count, on_cpu, rounded, sum};
use super::launch::{Parts, STEP, key, launch, programs, rows_or_steps};
use super::rows::Operands;
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// LayerNorm of each row.
///
/// ```
/// use tilewright::ops::{LayerNorm, Rows};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 3.0, 7.0, 5.0])?; // 2 x 2
/// let (b, y) = (device.upload(&[0.5f32, 0.5])?, device.alloc::<f32>(4)?);
/// LayerNorm::new(0.0).bias(&b).run(&device, Rows::new(&x, 2, 2), Rows::new(&y, 2, 2))?;
/// assert_eq!(y.to_vec()?, [-0.5, 1.5, 1.5, -0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a, W = f32, S = Plain> {
    epsilon: f32,
    weight: Option<Rows<'a, W>>,
    bias: Option<Rows<'a, W>>,
    state: PhantomData<fn() -> S>,
}

/// A [`LayerNorm`] that was given neither weights nor biases: either may be of any type.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// A [`LayerNorm`] that was given weights or biases: the other must be of the same type.
#[derive(Clone, Copy, Debug)]
pub struct Affine;

impl LayerNorm<'_> {
    /// Without weights and biases.
    #[must_use]
    pub fn new(epsilon: f32) -> Self {
        LayerNorm { epsilon, weight: None, bias: None, state: PhantomData }
    }
}

/// Settings before types are known.
impl<'a> LayerNorm<'a> {
    /// With a weight for each column.
    #[must_use]
    pub fn weight<V: FloatItem>(self, weight: impl Into<Rows<'a, V>>) -> LayerNorm<'a, V, Affine> {
        self.with(Some(weight.into()), None)
    }

    /// With a bias for each column.
    #[must_use]
    pub fn bias<V: FloatItem>(self, bias: impl Into<Rows<'a, V>>) -> LayerNorm<'a, V, Affine> {
        self.with(None, Some(bias.into()))
    }

    /// With a weight and a bias for each column.
    #[must_use]
    pub fn affine<V: FloatItem>(
        self,
        weight: impl Into<Rows<'a, V>>,
        bias: impl Into<Rows<'a, V>>,
    ) -> LayerNorm<'a, V, Affine> {
        self.with(Some(weight.into()), Some(bias.into()))
    }

    fn with<V>(self, weight: Option<Rows<'a, V>>, bias: Option<Rows<'a, V>>) -> LayerNorm<'a, V, Affine> {
        LayerNorm { epsilon: self.epsilon, weight, bias, state: PhantomData }
    }
}

/// The other of weights and biases, or another instead.
impl<'a, W: FloatItem> LayerNorm<'a, W, Affine> {
    /// With a weight for each column, beside the biases if there are any.
    #[must_use]
    pub fn weight(self, weight: impl Into<Rows<'a, W>>) -> Self {
        LayerNorm { weight: Some(weight.into()), ..self }
    }

    /// With a bias for each column, beside the weights if there are any.
    #[must_use]
    pub fn bias(self, bias: impl Into<Rows<'a, W>>) -> Self {
        LayerNorm { bias: Some(bias.into()), ..self }
    }
}

impl<W: FloatItem, S> LayerNorm<'_, W, S> {
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
    /// use tilewright::ops::{LayerNorm, Rows};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::cpu();
    /// let (x, residual) = (device.upload(&[1.0f32, 2.0])?, device.upload(&[0.0f32, 1.0])?);
    /// let y = device.alloc::<f32>(2)?;
    /// LayerNorm::new(0.0).run_adding(&device, &x, &residual, &residual, &y)?; // the sum takes the place of the residual
    /// assert_eq!((residual.to_vec()?, y.to_vec()?), (vec![1.0, 3.0], vec![-1.0, 1.0]));
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

    /// Computes the gradient `dx` of `x` from that of the result, and adds up those of weights and biases over all rows, `dw` and `db`.
    ///
    /// With `n = (x - mean) * rsqrt(..)` and `g = dy * weight`, `dx = rsqrt(..) * (g - mean(g) - n * mean(g * n))`,
    /// `dw = sum over rows of dy * n` and `db = sum over rows of dy`.
    ///
    /// ```
    /// use tilewright::ops::{LayerNorm, Rows};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::cpu();
    /// let (x, dy) = (device.upload(&[1.0f32, 3.0, 0.0, 2.0])?, device.upload(&[1.0f32, 1.0, 0.0, 4.0])?);
    /// let (x, dy) = (Rows::new(&x, 2, 2), Rows::new(&dy, 2, 2));
    /// let [dx, dw, db] = [4, 2, 2].map(|len| device.alloc::<f32>(len));
    /// let (dx, dw, db) = (dx?, dw?, db?);
    /// LayerNorm::new(0.0).backward(&device, x, dy, Rows::new(&dx, 2, 2), &dw, &db)?;
    /// assert_eq!((dw.to_vec()?, db.to_vec()?), (vec![-1.0, 5.0], vec![1.0, 5.0]));
    /// assert_eq!(dx.to_vec()?, [0.0; 4]); // the norm of two columns is always -1 and 1
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
        db: impl Into<Rows<'r, f32>>,
    ) -> Result<(), Error> {
        let (x, dy, dx) = (x.into(), dy.into(), dx.into());
        let (rows, columns) = x.extents();
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        operands.input_like("dy", &dy, &x)?;
        let norm = self.fitted(&mut operands, columns)?;
        operands.result_like("dx", &dx, &x)?;
        let dw = operands.of_columns("dw", dw.into(), columns)?;
        let db = operands.of_columns("db", db.into(), columns)?;
        if device.kind() != DeviceKind::Cpu {
            return match &norm.weight {
                Some(weight) => norm.launch_backward(device, (&x, &dy), weight, &dx, (&dw, &db)),
                // Nobody reads them.
                None => norm.launch_backward(device, (&x, &dy), &x, &dx, (&dw, &db)),
            };
        }
        on_cpu(device, |mut host| {
            let (x, mut out) = (host.numbers(&x)?, host.numbers(&dy)?);
            let weight = norm.weight.map(|w| host.numbers(&w)).transpose()?;
            let (mut weights, mut biases) = (vec![0.0f64; columns], vec![0.0f64; columns]);
            for row in 0..rows {
                let (mean, inverse) = norm.moments(x.row(row));
                for (j, (&x, &dy)) in x.row(row).iter().zip(out.row(row)).enumerate() {
                    weights[j] += f64::from(dy) * (f64::from(x) - mean) * inverse;
                    biases[j] += f64::from(dy);
                }
            }
            out.each_row(|row, dy| {
                let x = x.row(row);
                let (mean, inverse) = norm.moments(x);
                let g = |j: usize, dy: f32| {
                    f64::from(dy) * weight.as_ref().map_or(1.0, |w| f64::from(w.values[j]))
                };
                let n = |j: usize| (f64::from(x[j]) - mean) * inverse;
                let all = || dy.iter().enumerate().map(|(j, &dy)| (g(j, dy), n(j)));
                let first = all().map(|(g, _)| g).sum::<f64>() / count(columns);
                let second = all().map(|(g, n)| g * n).sum::<f64>() / count(columns);
                let all: Vec<f32> = all().map(|(g, n)| rounded(inverse * (g - first - n * second))).collect();
                dy.copy_from_slice(&all);
            });
            host.write_numbers(&dx, &out)?;
            for (to, sums) in [(&dw, weights), (&db, biases)] {
                host.write(to, &Grid { values: sums.into_iter().map(rounded).collect(), columns })?;
            }
            Ok(())
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
        operands.input("x", &x)?;
        let norm = self.fitted(&mut operands, x.extents().1)?;
        if let Some((residual, sum)) = &residual {
            operands.input_like("residual", residual, &x)?;
            operands.result_like("sum", sum, &x)?;
        }
        operands.result_like("y", &y, &x)?;
        if device.kind() != DeviceKind::Cpu {
            return match (norm.weight.or(norm.bias), norm.bias.or(norm.weight)) {
                (Some(weight), Some(bias)) => {
                    norm.launch(device, &x, residual.as_ref(), (&weight, &bias), &y)
                }
                // Nobody reads them.
                _ => norm.launch(device, &x, residual.as_ref(), (&x, &x), &y),
            };
        }
        on_cpu(device, |mut host| {
            let weight = norm.weight.map(|w| host.numbers(&w)).transpose()?;
            let bias = norm.bias.map(|b| host.numbers(&b)).transpose()?;
            let mut grid = host.numbers_adding(&x, residual.as_ref())?;
            grid.each_row(|_, row| {
                let (mean, inverse) = norm.moments(row);
                for (j, x) in row.iter_mut().enumerate() {
                    let weight = weight.as_ref().map_or(1.0, |w| f64::from(w.values[j]));
                    let bias = bias.as_ref().map_or(0.0, |b| f64::from(b.values[j]));
                    *x = rounded((f64::from(*x) - mean) * inverse * weight + bias);
                }
            });
            host.write_numbers(&y, &grid)
        })
    }

    fn launch<T: FloatItem, V: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: &Rows<'_, T>,
        residual: Option<&(Rows<'_, T>, Rows<'_, T>)>,
        (weight, bias): (&Rows<'_, V>, &Rows<'_, V>),
        y: &Rows<'_, U>,
    ) -> Result<(), Error> {
        let (weighted, biased) = (self.weight.is_some(), self.bias.is_some());
        // Two rows are read at a time where they are added.
        let (whole, shape) = rows_or_steps(device, x.extents(), if residual.is_some() { 2 } else { 1 });
        let (elements, settings) = ([T::ELEMENT, V::ELEMENT, U::ELEMENT], [weighted.into(), biased.into()]);
        let programs = [programs(x.extents(), shape)[0], u32::from(!x.is_empty())];
        let (from, weight, bias, to) = (x.tensor(), weight.tensor(), bias.tensor(), y.tensor());
        match residual {
            Some((residual, sum)) => {
                let name = if whole { "layer_norm_adding" } else { "layer_norm_adding_long" };
                let key = key(name, &elements, &settings, shape);
                let (residual, sum) = (residual.tensor(), sum.tensor());
                let arguments: &[&dyn Argument] =
                    &[&from, &residual, &weight, &bias, &sum, &to, &self.epsilon];
                launch(device, &key, programs, arguments, || match whole {
                    true => kernels::layer_norm_adding::stage::<T, V, U>(weighted, biased, shape),
                    false => kernels::layer_norm_adding_long::stage::<T, V, U>(weighted, biased, STEP),
                })
            }
            None => {
                let name = if whole { "layer_norm" } else { "layer_norm_long" };
                let key = key(name, &elements, &settings, shape);
                let arguments: &[&dyn Argument] = &[&from, &weight, &bias, &to, &self.epsilon];
                launch(device, &key, programs, arguments, || match whole {
                    true => kernels::layer_norm::stage::<T, V, U>(weighted, biased, shape),
                    false => kernels::layer_norm_long::stage::<T, V, U>(weighted, biased, STEP),
                })
            }
        }
    }

    fn launch_backward<T: FloatItem, V: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        (x, dy): (&Rows<'_, T>, &Rows<'_, T>),
        weight: &Rows<'_, V>,
        dx: &Rows<'_, U>,
        (dw, db): (&Rows<'_, f32>, &Rows<'_, f32>),
    ) -> Result<(), Error> {
        let (whole, [_, width]) = rows_or_steps(device, x.extents(), 4);
        let name = if whole { "layer_norm_backward" } else { "layer_norm_backward_long" };
        let weighted = self.weight.is_some();
        let (weights, biases) = (Parts::new(device, x.extents())?, Parts::new(device, x.extents())?);
        let elements = [T::ELEMENT, V::ELEMENT, U::ELEMENT];
        let key = key(name, &elements, &[weighted.into()], [1, width]);
        let (from, given, weight, to) = (x.tensor(), dy.tensor(), weight.tensor(), dx.tensor());
        let (of_weights, of_biases) = (weights.rows(), biases.rows());
        let arguments: &[&dyn Argument] =
            &[&from, &given, &weight, &to, &of_weights.tensor(), &of_biases.tensor(), &self.epsilon];
        launch(device, &key, weights.programs(), arguments, || match whole {
            true => kernels::layer_norm_backward::stage::<T, V, U>(weighted, width),
            false => kernels::layer_norm_backward_long::stage::<T, V, U>(weighted, width),
        })?;
        weights.add_up(device, dw)?;
        biases.add_up(device, db)
    }

    fn fitted(&self, operands: &mut Operands<'_>, columns: usize) -> Result<Self, Error> {
        let weight = operands.for_columns("weight", self.weight, columns)?;
        let bias = operands.for_columns("bias", self.bias, columns)?;
        Ok(LayerNorm { weight, bias, ..*self })
    }

    /// The mean, and one over the standard deviation.
    fn moments(&self, row: &[f32]) -> (f64, f64) {
        let mean = sum(row.iter().copied()) / count(row.len());
        let squares: f64 = row.iter().map(|&x| (f64::from(x) - mean) * (f64::from(x) - mean)).sum();
        (mean, 1.0 / (squares / count(row.len()) + f64::from(self.epsilon)).sqrt())
    }
}
