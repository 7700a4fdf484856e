//! [`TopK`]: the largest numbers of each row, and where they are.
//!
//! Results are in order, the largest first. Of equal numbers the one with the lower index comes first; 0 and -0 are equal; NaN counts as
//! the largest of all, and as the smallest if the [smallest](TopK::smallest) are wanted. Results are in memory of their own.
//!
//! Kernels take up to 32 numbers away from a row one after the other. For more than that, they sort rows of up to 2048 columns, and go through
//! longer ones once for each number.

use tilewright_kernels::ops::{self as kernels, FEW, LONGEST_SORTED};

use super::cpu::{Grid, on_cpu, per_row};
use super::launch::{STEP, key, launch, programs, rows_or_steps};
use super::reduce::precedes;
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// The largest numbers of each row.
///
/// ```
/// use tilewright::ops::{Rows, TopK};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 7.0, 3.0, 7.0])?;
/// let (values, indices) = (device.alloc::<f32>(3)?, device.alloc::<u32>(3)?);
/// TopK::new(3).run(&device, &x, &values, &indices)?;
/// assert_eq!((values.to_vec()?, indices.to_vec()?), (vec![7.0, 7.0, 3.0], vec![1, 3, 2]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopK {
    k: usize,
    smallest: bool,
}

impl TopK {
    /// The `k` largest.
    #[must_use]
    pub fn new(k: usize) -> TopK {
        TopK { k, smallest: false }
    }

    /// The `k` smallest, the smallest first.
    #[must_use]
    pub fn smallest(self) -> TopK {
        TopK { smallest: true, ..self }
    }

    /// Of each row of `x`: the numbers, and their columns.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run<'r, T: FloatItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        values: impl Into<Rows<'r, T>>,
        indices: impl Into<Rows<'r, u32>>,
    ) -> Result<(), Error> {
        let (x, values, indices) = (x.into(), values.into(), indices.into());
        let (rows, columns) = x.extents();
        if self.k > columns {
            let expected = format!("at most {columns}, the columns of `x`");
            return Err(Error::argument("k", self.k.to_string(), expected, "ask for fewer"));
        }
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        expect_extents("values", &values, (rows, self.k), "k for each row of `x`")?;
        operands.apart("values", &values)?;
        expect_extents("indices", &indices, (rows, self.k), "k for each row of `x`")?;
        operands.apart("indices", &indices)?;
        if device.kind() != DeviceKind::Cpu {
            // k fits: it is no more than the columns.
            let (k, smallest) = (u32::try_from(self.k).unwrap_or(u32::MAX), self.smallest);
            // Ranks are twice as wide as numbers, and each is looked at again and again.
            let (whole, rows) = rows_or_steps(device, x.extents(), 8);
            let (name, shape) = match (whole, k <= FEW, rows[1] <= LONGEST_SORTED) {
                (true, true, _) => ("top_k", rows),
                (true, false, true) => ("top_k_sorted", rows),
                _ => ("top_k_long", [1, STEP]),
            };
            let key = key(name, &[T::ELEMENT], &[k, smallest.into()], shape);
            let programs = [programs(x.extents(), shape)[0], k.min(1)];
            let arguments: &[&dyn Argument] = &[&x.tensor(), &values.tensor(), &indices.tensor()];
            return launch(device, &key, programs, arguments, || match name {
                "top_k" => kernels::top_k::stage::<T>(k, smallest, shape),
                "top_k_sorted" => kernels::top_k_sorted::stage::<T>(k, smallest, shape),
                _ => kernels::top_k_long::stage::<T>(k, smallest, STEP),
            });
        }
        on_cpu(device, |mut host| {
            let (elements, numbers) = (host.read(&x)?, host.numbers(&x)?);
            let chosen = per_row(rows, |row| self.of(numbers.row(row)));
            let taken = |row: usize| chosen.values[row].iter().map(move |&j| (row, j));
            let all = || (0..rows).flat_map(taken);
            let found = all().map(|(row, j)| elements.row(row)[j as usize]).collect();
            host.write(&values, &Grid { values: found, columns: self.k })?;
            host.write(&indices, &Grid { values: all().map(|(_, j)| j).collect(), columns: self.k })
        })
    }

    /// The chosen columns, in order.
    fn of(&self, row: &[f32]) -> Vec<u32> {
        let signed = |j: &u32| if self.smallest { -row[*j as usize] } else { row[*j as usize] };
        let mut all: Vec<u32> = (0..).take(row.len()).collect();
        all.sort_by(|a, b| {
            let (x, y) = (signed(a), signed(b));
            precedes(y, x).cmp(&precedes(x, y))
        });
        all.truncate(self.k);
        all
    }
}
