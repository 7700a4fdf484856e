//! [`CumulativeSum`]: each number of a row with all before it.
//!
//! NaN makes everything from it on NaN, and so do infinities of both signs. The sum before the first number is 0. Sums are kept more
//! precisely than results, which are rounded one by one. No rows, no columns: nothing is written.
//!
//! Works in place: `y` may be exactly `x`.

use tilewright_kernels::ops::{self as kernels, LONGEST};

use super::cpu::{on_cpu, rounded};
use super::launch::{STEP, key, launch, programs, whole_rows};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// Sums of the beginnings of each row.
///
/// ```
/// use tilewright::ops::CumulativeSum;
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let (x, y) = (device.upload(&[1.0f32, 2.0, 3.0])?, device.alloc::<f32>(3)?);
/// CumulativeSum::new().run(&device, &x, &y)?;
/// assert_eq!(y.to_vec()?, [1.0, 3.0, 6.0]);
/// CumulativeSum::new().exclusive().reverse().run(&device, &x, &y)?;
/// assert_eq!(y.to_vec()?, [5.0, 3.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CumulativeSum {
    exclusive: bool,
    reverse: bool,
}

impl CumulativeSum {
    /// From the first number to each, which is included.
    #[must_use]
    pub fn new() -> CumulativeSum {
        CumulativeSum::default()
    }

    /// Without the number itself.
    #[must_use]
    pub fn exclusive(self) -> Self {
        CumulativeSum { exclusive: true, ..self }
    }

    /// From the last number backwards.
    #[must_use]
    pub fn reverse(self) -> Self {
        CumulativeSum { reverse: true, ..self }
    }

    /// Computes `y` from `x`, row by row.
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
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        expect_extents("y", &y, x.extents(), "as `x` has")?;
        operands.result("y", &y)?;
        if device.kind() != DeviceKind::Cpu {
            // Blocks of a cluster would wait for each other.
            let (whole, shape) = match whole_rows(device, x.extents()).filter(|shape| shape[1] <= LONGEST) {
                Some(shape) => (true, shape),
                None => (false, [1, STEP]),
            };
            let name = if whole { "cumulative_sum" } else { "cumulative_sum_long" };
            let Self { exclusive, reverse } = *self;
            let key = key(name, &[T::ELEMENT, U::ELEMENT], &[exclusive.into(), reverse.into()], shape);
            let programs = [programs(x.extents(), shape)[0], u32::from(!x.is_empty())];
            let arguments: &[&dyn Argument] = &[&x.tensor(), &y.tensor()];
            return launch(device, &key, programs, arguments, || match whole {
                true => kernels::cumulative_sum::stage::<T, U>(exclusive, reverse, shape),
                false => kernels::cumulative_sum_long::stage::<T, U>(exclusive, reverse, STEP),
            });
        }
        on_cpu(device, |mut host| {
            let mut grid = host.numbers(&x)?;
            grid.each_row(|_, row| {
                let mut sum = 0.0f64;
                let add = |x: &mut f32| {
                    let before = sum;
                    sum += f64::from(*x);
                    *x = rounded(if self.exclusive { before } else { sum });
                };
                if self.reverse { row.iter_mut().rev().for_each(add) } else { row.iter_mut().for_each(add) }
            });
            host.write_numbers(&y, &grid)
        })
    }
}
