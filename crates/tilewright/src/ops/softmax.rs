//! [`Softmax`]: rows become probabilities, or their logarithms; some columns of a row may count as not there.
//!
//! `y = exp(scale * x - m) / sum(exp(scale * x - m))` with the largest `m = max(scale * x)` of the row, over the columns that count.
//!
//! | input | softmax | logarithm |
//! | --- | --- | --- |
//! | a column that does not count | 0 | -inf |
//! | a row in which no column counts, or all that do are -inf | 0 | -inf |
//! | a row with NaN or +inf in a column that counts | NaN in all columns that count | the same |
//! | -inf beside finite numbers | 0 | -inf |
//! | no rows, no columns | nothing is written | nothing is written |
//!
//! Works in place: `y` may be exactly `x`, and `dx` may be exactly `dy` or `y`.

use tilewright_hardware::Arch;
use tilewright_kernels::ops::{self as kernels, Form, InParts, Tiling};

use super::cpu::{Host, largest, on_cpu, rounded, sum};
use super::launch::{STEP, key, launch, programs, rows_or_steps, whole_rows};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// Softmax of each row.
///
/// ```
/// use tilewright::ops::{Rows, Softmax};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let x = device.upload(&[0.0f32, 0.0, 1.0, 3.0])?; // 2 x 2
/// let y = device.alloc::<f32>(4)?;
/// let (scores, weights) = (Rows::new(&x, 2, 2), Rows::new(&y, 2, 2));
/// Softmax::new().run(&device, scores, weights)?;
/// assert_eq!(y.to_vec()?[..2], [0.5, 0.5]);
/// // The first query sees the first key only.
/// Softmax::new().causal(2).run(&device, scores, weights)?;
/// assert_eq!(y.to_vec()?[..2], [1.0, 0.0]);
///
/// let error = Softmax::new().run(&device, scores, weights.columns(0..1)).unwrap_err();
/// assert_eq!(error.to_string(), "`y`: found 2 x 1, expected 2 x 2, as `x` has; give a view of that shape");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Softmax<'a> {
    scale: f32,
    log: bool,
    sees: Sees<'a>,
    mask: Option<Rows<'a, bool>>,
}

/// Which columns of a row count, but for the mask.
#[derive(Clone, Copy, Debug)]
enum Sees<'a> {
    All,
    /// Matrices of so many rows, whose last row sees all.
    Causal(usize),
    /// Each row up to its own position.
    Positions(Rows<'a, i32>),
}

impl Default for Softmax<'_> {
    fn default() -> Self {
        Softmax::new()
    }
}

impl<'a> Softmax<'a> {
    /// Of numbers as they are, all columns.
    #[must_use]
    pub fn new() -> Softmax<'a> {
        Softmax { scale: 1.0, log: false, sees: Sees::All, mask: None }
    }

    /// Of numbers times this.
    #[must_use]
    pub fn scale(self, scale: f32) -> Self {
        Softmax { scale, ..self }
    }

    /// The logarithm of the probabilities.
    #[must_use]
    pub fn log(self) -> Self {
        Softmax { log: true, ..self }
    }

    /// Causal: the rows are queries, `queries` for each matrix, and the columns are keys. Of a matrix the last query sees all keys, the
    /// one before all but the last, and so on. A query for which no key is left sees none. No queries count as one.
    #[must_use]
    pub fn causal(self, queries: usize) -> Self {
        Softmax { sees: Sees::Causal(queries.max(1)), ..self }
    }

    /// Causal with a position for each row: it sees the columns up to and including that one, none if it is negative.
    #[must_use]
    pub fn positions(self, positions: impl Into<Rows<'a, i32>>) -> Self {
        Softmax { sees: Sees::Positions(positions.into()), ..self }
    }

    /// Only columns where the mask is true count. A mask of one row is for all rows.
    #[must_use]
    pub fn mask(self, mask: impl Into<Rows<'a, bool>>) -> Self {
        Softmax { mask: Some(mask.into()), ..self }
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
        let (x, y) = (x.into(), y.into());
        let extents = x.extents();
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        expect_extents("y", &y, extents, "as `x` has")?;
        let softmax = self.fitted(&mut operands, extents)?;
        operands.result("y", &y)?;
        match device.kind() {
            DeviceKind::Cpu => on_cpu(device, |host| softmax.compute(host, &x, &y)),
            _ => softmax.launch(device, &x, &y),
        }
    }

    /// Computes the gradient `dx` from that of the result, `dy`, and the result `y` itself, which must be of the same settings.
    ///
    /// `dx = scale * y * (dy - sum(dy * y))`, of the logarithm `scale * (dy - exp(y) * sum(dy))`. Where a column does not count (`y` is 0,
    /// or -inf), `dx` is 0 and `dy` does not matter.
    ///
    /// ```
    /// use tilewright::ops::Softmax;
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::cpu();
    /// let (y, dy) = (device.upload(&[0.25f32, 0.75])?, device.upload(&[1.0f32, 0.0])?);
    /// let dx = device.alloc::<f32>(2)?;
    /// Softmax::new().backward(&device, &y, &dy, &dx)?;
    /// assert_eq!(dx.to_vec()?, [0.1875, -0.1875]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn backward<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        y: impl Into<Rows<'r, T>>,
        dy: impl Into<Rows<'r, T>>,
        dx: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let (y, dy, dx) = (y.into(), dy.into(), dx.into());
        let mut operands = Operands::on(device);
        operands.input("y", &y)?;
        expect_extents("dy", &dy, y.extents(), "as `y` has")?;
        operands.input("dy", &dy)?;
        expect_extents("dx", &dx, y.extents(), "as `y` has")?;
        operands.result("dx", &dx)?;
        let (scale, log) = (self.scale, self.log);
        if device.kind() != DeviceKind::Cpu {
            let (whole, shape) = rows_or_steps(device, y.extents(), 2);
            let ((causal, queries), form) = (self.queries(), self.form());
            let name = if whole { "softmax_backward" } else { "softmax_backward_long" };
            let key = key(name, &[T::ELEMENT, U::ELEMENT], &[log.into(), causal.into()], shape);
            let arguments: &[&dyn Argument] = &[&y.tensor(), &dy.tensor(), &dx.tensor(), &scale, &queries];
            let programs = [programs(y.extents(), shape)[0], 1];
            return launch(device, &key, programs, arguments, || match whole {
                true => kernels::softmax_backward::stage::<T, U>(form, causal, shape),
                false => kernels::softmax_backward_long::stage::<T, U>(form, causal, STEP),
            });
        }
        on_cpu(device, |mut host| {
            let (y, mut out) = (host.numbers(&y)?, host.numbers(&dy)?);
            out.each_row(|row, out| differentiate(scale, log, y.row(row), out));
            host.write_numbers(&dx, &out)
        })
    }

    /// With operands that were looked at.
    fn fitted(&self, operands: &mut Operands<'_>, (rows, columns): (usize, usize)) -> Result<Self, Error> {
        let mut softmax = *self;
        if let Sees::Positions(positions) = &mut softmax.sees {
            *positions = positions.as_column(rows);
            expect_extents("positions", positions, (rows, 1), "one for each row of `x`")?;
            operands.input("positions", positions)?;
        }
        if let Some(mask) = &mut softmax.mask {
            *mask = mask.broadcast_rows(rows);
            expect_extents("mask", mask, (rows, columns), "as `x` has, or one row for all")?;
            operands.input("mask", mask)?;
        }
        Ok(softmax)
    }

    fn form(&self) -> Form {
        if self.log { Form::Logarithms } else { Form::Probabilities }
    }

    /// Whether it is causal, and how many queries a matrix has.
    fn queries(&self) -> (bool, u32) {
        match self.sees {
            // No more than a view has rows.
            Sees::Causal(queries) => {
                (true, u32::try_from(queries).unwrap_or(u32::MAX).min(i32::MAX.cast_unsigned()))
            }
            _ => (false, 0),
        }
    }

    fn launch<T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: &Rows<'_, T>,
        y: &Rows<'_, U>,
    ) -> Result<(), Error> {
        let (form, elements) = (self.form(), [T::ELEMENT, U::ELEMENT]);
        let (causal, queries) = self.queries();
        let settings = [self.log.into(), causal.into()];
        let count = |shape| [programs(x.extents(), shape)[0], u32::from(!x.is_empty())];
        let (from, to) = (x.tensor(), y.tensor());
        let step = [1, STEP];
        let part = [1, u32::try_from(x.extents().1).unwrap_or(STEP).clamp(1, STEP)];
        // Rows of which not all columns may be seen, one by a program or a few.
        let row = |width: u32| InParts::of(width, T::ELEMENT.bytes(), device.arch().supports(Arch::SM_90));
        let falls = self.scale < 0.0;
        match (self.sees, self.mask, whole_rows(device, x.extents())) {
            (Sees::Positions(positions), None, Some(shape @ [1, width])) => {
                let row = row(width);
                let key =
                    (key("softmax_to_position", &elements, &[self.log.into(), falls.into()], shape), row);
                let arguments: &[&dyn Argument] = &[&from, &positions.tensor(), &to, &self.scale];
                launch(device, &key, count([row.rows, width]), arguments, || {
                    kernels::softmax_to_position::stage::<T, U>(form, falls, row)
                })
            }
            (Sees::Causal(_), None, Some(shape @ [1, width])) => {
                let (row, of_matrix) = (row(width), x.extents().0.min(queries as usize));
                let matrices = x.extents().0.div_ceil(of_matrix.max(1));
                let tiling = Tiling::of([row.rows, 1], matrices);
                let settings = [self.log.into(), falls.into(), tiling.turned.into()];
                let key = (key("softmax_causal", &elements, &settings, shape), row);
                let groups = u32::try_from(of_matrix).unwrap_or(u32::MAX).div_ceil(row.rows).max(1);
                let ahead = row.ahead(T::ELEMENT.bytes());
                let (matrices_later, groups_later) = (ahead / groups, ahead % groups);
                let arguments: &[&dyn Argument] =
                    &[&from, &to, &self.scale, &queries, &matrices_later, &groups_later];
                let columns = if x.is_empty() { 0 } else { matrices };
                launch(device, &key, tiling.programs((of_matrix, columns)), arguments, || {
                    kernels::softmax_causal::stage::<T, U>(form, falls, tiling.turned, row)
                })
            }
            (Sees::Positions(positions), None, Some(shape)) => {
                let key = key("softmax_positions", &elements, &settings, shape);
                let arguments: &[&dyn Argument] = &[&from, &positions.tensor(), &to, &self.scale];
                launch(device, &key, count(shape), arguments, || {
                    kernels::softmax_positions::stage::<T, U>(form, shape)
                })
            }
            (Sees::All, Some(mask), Some(shape)) => {
                let key = key("softmax_masked", &elements, &settings, shape);
                let arguments: &[&dyn Argument] = &[&from, &mask.tensor(), &to, &self.scale];
                launch(device, &key, count(shape), arguments, || {
                    kernels::softmax_masked::stage::<T, U>(form, shape)
                })
            }
            (Sees::All | Sees::Causal(_), None, Some(shape)) => {
                let key = key("softmax", &elements, &settings, shape);
                launch(device, &key, count(shape), &[&from, &to, &self.scale, &queries], || {
                    kernels::softmax::stage::<T, U>(form, causal, shape)
                })
            }
            (Sees::All | Sees::Causal(_), None, None) => {
                let key = key("softmax_long", &elements, &settings, step);
                launch(device, &key, count(step), &[&from, &to, &self.scale, &queries], || {
                    kernels::softmax_long::stage::<T, U>(form, causal, STEP)
                })
            }
            (Sees::Positions(positions), None, None) => {
                let key = key("softmax_positions_long", &elements, &settings, step);
                let arguments: &[&dyn Argument] = &[&from, &positions.tensor(), &to, &self.scale];
                launch(device, &key, count(step), arguments, || {
                    kernels::softmax_positions_long::stage::<T, U>(form, STEP)
                })
            }
            (Sees::All, Some(mask), None) => {
                let key = key("softmax_masked_long", &elements, &settings, step);
                let arguments: &[&dyn Argument] = &[&from, &mask.tensor(), &to, &self.scale];
                launch(device, &key, count(step), arguments, || {
                    kernels::softmax_masked_long::stage::<T, U>(form, STEP)
                })
            }
            // Both: in steps, of which short rows take one.
            (Sees::Causal(_), Some(mask), _) => {
                let key = key("softmax_masked_causal", &elements, &settings, part);
                let arguments: &[&dyn Argument] = &[&from, &mask.tensor(), &to, &self.scale, &queries];
                launch(device, &key, count(part), arguments, || {
                    kernels::softmax_masked_causal::stage::<T, U>(form, part[1])
                })
            }
            (Sees::Positions(positions), Some(mask), _) => {
                let key = key("softmax_masked_positions", &elements, &settings, part);
                let arguments: &[&dyn Argument] =
                    &[&from, &mask.tensor(), &positions.tensor(), &to, &self.scale];
                launch(device, &key, count(part), arguments, || {
                    kernels::softmax_masked_positions::stage::<T, U>(form, part[1])
                })
            }
        }
    }

    fn compute<T: FloatItem, U: FloatItem>(
        &self,
        mut host: Host<'_>,
        x: &Rows<'_, T>,
        y: &Rows<'_, U>,
    ) -> Result<(), Error> {
        let (_, columns) = x.extents();
        let mut grid = host.numbers(x)?;
        let mask = self.mask.map(|mask| host.read(&mask)).transpose()?;
        let positions = match self.sees {
            Sees::Positions(positions) => Some(host.read(&positions)?.values),
            _ => None,
        };
        let visible = |row: usize| match (self.sees, &positions) {
            (Sees::Causal(queries), _) => (columns + row % queries + 1).saturating_sub(queries).min(columns),
            (_, Some(positions)) => usize::try_from(i64::from(positions[row]) + 1).unwrap_or(0).min(columns),
            _ => columns,
        };
        let (scale, log) = (self.scale, self.log);
        grid.each_row(|row, values| {
            let seen = visible(row);
            let counts: Vec<bool> =
                (0..columns).map(|j| j < seen && mask.as_ref().is_none_or(|mask| mask.row(row)[j])).collect();
            normalise(scale, log, &counts, values);
        });
        host.write_numbers(y, &grid)
    }
}

/// Replaces a row by its softmax, over the columns that count.
fn normalise(scale: f32, log: bool, counts: &[bool], row: &mut [f32]) {
    let seen = |row: &[f32]| -> Vec<f32> {
        row.iter().zip(counts).filter(|(_, counts)| **counts).map(|(x, _)| scale * x).collect()
    };
    let seen = seen(row);
    let most = largest(seen.iter().copied());
    let nothing = most == f32::NEG_INFINITY;
    let total = sum(seen.iter().map(|x| (x - most).exp()));
    for (value, counts) in row.iter_mut().zip(counts) {
        let shifted = scale * *value - most;
        *value = match (*counts && !nothing, log) {
            (false, false) => 0.0,
            (false, true) => f32::NEG_INFINITY,
            (true, false) => rounded(f64::from(shifted.exp()) / total),
            (true, true) => rounded(f64::from(shifted) - total.ln()),
        };
    }
}

/// Replaces the gradient of a row of results by that of the row.
fn differentiate(scale: f32, log: bool, y: &[f32], dy: &mut [f32]) {
    let counts = |y: f32| if log { y != f32::NEG_INFINITY } else { y != 0.0 };
    let seen = y.iter().zip(&*dy).filter(|(y, _)| counts(**y));
    let total: f64 =
        seen.map(|(&y, &dy)| if log { f64::from(dy) } else { f64::from(dy) * f64::from(y) }).sum();
    for (&y, dy) in y.iter().zip(dy) {
        let (given, weight) = (f64::from(*dy), f64::from(y));
        let inner = if log { given - weight.exp() * total } else { weight * (given - total) };
        *dy = if counts(y) { rounded(f64::from(scale) * inner) } else { 0.0 };
    }
}
