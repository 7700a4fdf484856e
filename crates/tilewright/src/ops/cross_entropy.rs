//! [`CrossEntropy`]: how far rows of logits are from the columns that should have been chosen.
//!
//! With `lse = log(sum(exp(x)))` of a row of `x`, its target `t`, smoothing `s` and weight `z`, the loss of the row is
//! `lse - (1 - s) * x[t] - s * mean(x) + z * lse^2`.
//!
//! * A row whose target is the one to [ignore](CrossEntropy::ignore) has the loss 0 and the gradient 0, whatever the row holds.
//! * A target that is no column gives NaN, as loss and as gradient of the whole row.
//! * NaN or +inf in a row gives NaN. -inf is a column that cannot be chosen: a row that should have chosen it has the loss
//!   +inf, and one of nothing but -inf NaN.
//! * No rows: nothing is written. No columns: every target is none of them.
//!
//! Gradients work in place: `dx` may be exactly `x`.

use tilewright_hardware::{Arch, Element};
use tilewright_kernels::ops::{self as kernels, InParts, LONGEST};

use super::cpu::{count, largest, on_cpu, per_row, rounded};
use super::launch::{key, launch, programs, rows_of_block};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, IndexItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// Columns of the longest row that a program takes as a whole. For a loss everything is read once in either way, and steps have more on their way;
/// a gradient needs the row twice, and has it in registers the second time.
const LONGEST_OF_LOSS: u32 = LONGEST / 8;
const LONGEST_OF_GRADIENT: u32 = LONGEST / 2;

/// How the programs of a kernel take rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum By {
    /// Whole, in tiles of so many rows and columns.
    Rows([u32; 2]),
    /// One at a time, all of it at once.
    Parts(InParts),
    /// One at a time, in steps.
    Steps(InParts),
}

impl By {
    /// What a program takes at a time.
    fn shape(&self) -> [u32; 2] {
        match self {
            By::Rows(shape) => *shape,
            By::Parts(row) | By::Steps(row) => [1, row.width],
        }
    }
}

/// Cross entropy of each row with its target.
///
/// ```
/// use tilewright::ops::{CrossEntropy, Rows};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let logits = device.upload(&[0.0f32, 0.0, 100.0, 0.0])?; // 2 x 2
/// let (targets, losses) = (device.upload(&[1i32, 0])?, device.alloc::<f32>(2)?);
/// CrossEntropy::new().run(&device, Rows::new(&logits, 2, 2), &targets, &losses)?;
/// assert_eq!(losses.to_vec()?, [2f32.ln(), 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    ignore: i64,
    smoothing: f32,
    z_loss: f32,
}

impl Default for CrossEntropy {
    fn default() -> Self {
        CrossEntropy::new()
    }
}

impl CrossEntropy {
    /// Without smoothing; targets of -100 are ignored.
    #[must_use]
    pub fn new() -> CrossEntropy {
        CrossEntropy { ignore: -100, smoothing: 0.0, z_loss: 0.0 }
    }

    /// With another target that is ignored.
    #[must_use]
    pub fn ignore(self, target: i64) -> Self {
        CrossEntropy { ignore: target, ..self }
    }

    /// With so much of the target spread over all columns.
    #[must_use]
    pub fn smoothing(self, smoothing: f32) -> Self {
        CrossEntropy { smoothing, ..self }
    }

    /// With this weight for the square of `lse`, which keeps logits small.
    #[must_use]
    pub fn z_loss(self, weight: f32) -> Self {
        CrossEntropy { z_loss: weight, ..self }
    }

    /// Computes the loss of each row of `x`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run<'r, T: FloatItem, I: IndexItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        targets: impl Into<Rows<'r, I>>,
        losses: impl Into<Rows<'r, f32>>,
    ) -> Result<(), Error> {
        let x = x.into();
        let (rows, _) = x.extents();
        let (targets, losses) = (targets.into().as_column(rows), losses.into().as_column(rows));
        let mut operands = self.operands(device, &x, &targets)?;
        expect_extents("losses", &losses, (rows, 1), "one for each row of `x`")?;
        operands.apart("losses", &losses)?;
        if device.kind() != DeviceKind::Cpu {
            let (smooth, squares) = (self.smoothing != 0.0, self.z_loss != 0.0);
            let by = self.losses_by(device, T::ELEMENT, x.extents());
            let shape = by.shape();
            let key =
                key("cross_entropy", &[T::ELEMENT, I::ELEMENT], &[smooth.into(), squares.into()], shape);
            let key = (key, by);
            let programs = [programs(x.extents(), shape)[0], 1];
            let arguments: &[&dyn Argument] = &[
                &x.tensor(),
                &targets.tensor(),
                &losses.tensor(),
                &self.ignore,
                &self.smoothing,
                &self.z_loss,
            ];
            return launch(device, &key, programs, arguments, || match by {
                By::Rows(shape) => kernels::cross_entropy::stage::<T, I>(smooth, squares, shape),
                By::Parts(step) | By::Steps(step) => {
                    kernels::cross_entropy_long::stage::<T, I>(smooth, squares, step)
                }
            });
        }
        on_cpu(device, |mut host| {
            let (x, targets) = (host.numbers(&x)?, host.read(&targets)?);
            let out = per_row(rows, |row| self.loss(x.row(row), targets.values[row].index()));
            host.write(&losses, &out)
        })
    }

    /// Computes the gradient `dx` of `x` from that of the losses, one for each row or one for all.
    ///
    /// ```
    /// use tilewright::ops::{CrossEntropy, Rows};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::cpu();
    /// let x = device.upload(&[0.0f32, 0.0, 1000.0, 0.0])?;
    /// let (targets, each) = (device.upload(&[1i32, 0])?, device.upload(&[0.5f32])?); // the mean of two losses
    /// let logits = Rows::new(&x, 2, 2);
    /// CrossEntropy::new().backward(&device, logits, &targets, &each, logits)?; // in place
    /// assert_eq!(x.to_vec()?, [0.25, -0.25, 0.0, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn backward<'r, T: FloatItem, I: IndexItem, U: FloatItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        targets: impl Into<Rows<'r, I>>,
        dlosses: impl Into<Rows<'r, f32>>,
        dx: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let (x, dx) = (x.into(), dx.into());
        let (rows, _) = x.extents();
        let targets = targets.into().as_column(rows);
        let dlosses = dlosses.into().as_column(rows).broadcast_rows(rows);
        let mut operands = self.operands(device, &x, &targets)?;
        expect_extents("dlosses", &dlosses, (rows, 1), "one for each row of `x`, or one for all")?;
        operands.input("dlosses", &dlosses)?;
        expect_extents("dx", &dx, x.extents(), "as `x` has")?;
        operands.result("dx", &dx)?;
        if device.kind() != DeviceKind::Cpu {
            let by = self.gradient_by(device, T::ELEMENT, x.extents());
            let shape = by.shape();
            let key = key("cross_entropy_backward", &[T::ELEMENT, I::ELEMENT, U::ELEMENT], &[], shape);
            let key = (key, by);
            let programs = [programs(x.extents(), shape)[0], u32::from(!x.is_empty())];
            let arguments: &[&dyn Argument] = &[
                &x.tensor(),
                &targets.tensor(),
                &dlosses.tensor(),
                &dx.tensor(),
                &self.ignore,
                &self.smoothing,
                &self.z_loss,
            ];
            return launch(device, &key, programs, arguments, || match by {
                By::Rows(shape) => kernels::cross_entropy_backward::stage::<T, I, U>(shape),
                By::Parts(row) => kernels::cross_entropy_backward_in_parts::stage::<T, I, U>(row),
                By::Steps(step) => kernels::cross_entropy_backward_long::stage::<T, I, U>(step),
            });
        }
        on_cpu(device, |mut host| {
            let (mut grid, targets, given) = (host.numbers(&x)?, host.read(&targets)?, host.read(&dlosses)?);
            grid.each_row(|row, values| {
                self.gradient(values, targets.values[row].index(), given.values[row]);
            });
            host.write_numbers(&dx, &grid)
        })
    }

    /// How kernels take rows for their losses.
    pub(super) fn losses_by(&self, device: &Device, element: Element, extents: (usize, usize)) -> By {
        let clusters = device.arch().supports(Arch::SM_90);
        match rows_of_block(LONGEST_OF_LOSS, extents) {
            Some(shape) => By::Rows(shape),
            None => By::Steps(InParts::of_steps(extents, element.bytes(), self.smoothing != 0.0, clusters)),
        }
    }

    /// The same for their gradient.
    pub(super) fn gradient_by(
        &self,
        device: &Device,
        element: Element,
        (rows, columns): (usize, usize),
    ) -> By {
        if let Some(shape) = rows_of_block(LONGEST_OF_GRADIENT, (rows, columns)) {
            return By::Rows(shape);
        }
        let (clusters, bytes) = (device.arch().supports(Arch::SM_90), element.bytes());
        let columns = u32::try_from(columns).unwrap_or(u32::MAX);
        let row = InParts::of(columns, bytes, clusters);
        if clusters && row.holds_all(bytes) {
            By::Parts(row)
        } else {
            By::Steps(InParts::of_steps_twice(rows, columns, bytes, clusters))
        }
    }

    fn operands<'d, T: FloatItem, I: IndexItem>(
        &self,
        device: &'d Device,
        x: &Rows<'_, T>,
        targets: &Rows<'_, I>,
    ) -> Result<Operands<'d>, Error> {
        if !(0.0..=1.0).contains(&self.smoothing) {
            let found = self.smoothing.to_string();
            return Err(Error::argument(
                "smoothing",
                found,
                "a number from 0 to 1",
                "give a part of the target",
            ));
        }
        let mut operands = Operands::on(device);
        operands.input("x", x)?;
        expect_extents("targets", targets, (x.extents().0, 1), "one for each row of `x`")?;
        operands.input("targets", targets)?;
        Ok(operands)
    }

    fn loss(&self, x: &[f32], target: i64) -> f32 {
        if target == self.ignore {
            return 0.0;
        }
        let Some(&chosen) = usize::try_from(target).ok().and_then(|target| x.get(target)) else {
            return f32::NAN;
        };
        // Relative to the largest number, terms are not negative: nothing cancels, and +inf stays what it is.
        let (most, total) = sum_exp(x);
        let below = |x: f32| most - f64::from(x);
        let (log, smoothing) = (total.ln(), f64::from(self.smoothing));
        let mut loss = log;
        // What is not asked for is left out, rather than multiplied by zero: zero times infinity is NaN.
        if smoothing != 1.0 {
            loss += (1.0 - smoothing) * below(chosen);
        }
        if smoothing != 0.0 {
            loss += smoothing * x.iter().map(|x| below(*x)).sum::<f64>() / count(x.len());
        }
        if self.z_loss != 0.0 {
            loss += f64::from(self.z_loss) * (most + log) * (most + log);
        }
        rounded(loss)
    }

    fn gradient(&self, x: &mut [f32], target: i64, given: f32) {
        let column = usize::try_from(target).ok().filter(|column| *column < x.len());
        let ((most, total), share) = (sum_exp(x), f64::from(self.smoothing) / count(x.len()));
        let steeper = 1.0 + 2.0 * f64::from(self.z_loss) * (most + total.ln());
        for (j, value) in x.iter_mut().enumerate() {
            *value = match column {
                _ if target == self.ignore => 0.0,
                None => f32::NAN,
                Some(column) => {
                    let hit = if j == column { 1.0 - f64::from(self.smoothing) } else { 0.0 };
                    let weight = (f64::from(*value) - most).exp() / total * steeper;
                    rounded(f64::from(given) * (weight - hit - share))
                }
            };
        }
    }
}

/// The largest number `m`, and `sum(exp(x - m))`.
fn sum_exp(x: &[f32]) -> (f64, f64) {
    let most = f64::from(largest(x.iter().copied()));
    (most, x.iter().map(|x| (f64::from(*x) - most).exp()).sum())
}
