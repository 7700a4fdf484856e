//! [`TopK`]: the largest numbers of each row, and where they are.
//!
//! Results are in order, the largest first. Of equal numbers the one with the lower index comes first; 0 and -0 are equal; NaN counts as
//! the largest of all, and as the smallest if the [smallest](TopK::smallest) are wanted. Results are in memory of their own.
//!
//! Kernels take up to 32 numbers away from a row one after the other, and sort rows of up to 2048 columns for more. Longer rows are a
//! tournament: programs find the largest of 2048 columns each, and then of what was found, until one is left. Where more than 512 of a long row are wanted, a program
//! goes through it once for each.

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
            return self.launch(device, &x, &values, &indices);
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

    fn launch<T: FloatItem>(
        &self,
        device: &Device,
        x: &Rows<'_, T>,
        values: &Rows<'_, T>,
        indices: &Rows<'_, u32>,
    ) -> Result<(), Error> {
        // k fits: it is no more than the columns.
        let (k, smallest) = (u32::try_from(self.k).unwrap_or(u32::MAX), self.smallest);
        if k == 0 {
            return Ok(());
        }
        // Ranks are twice as wide as numbers, and each is looked at again and again.
        let (whole, rows) = rows_or_steps(device, x.extents(), 8);
        let (name, shape) = match (whole, k <= FEW, rows[1] <= LONGEST_SORTED) {
            (true, true, _) => ("top_k", rows),
            (true, false, true) => ("top_k_sorted", rows),
            _ => match tournament(x.extents(), k) {
                Some(programs) => return self.hold_tournament(device, (k, programs), x, values, indices),
                None => ("top_k_long", [1, STEP]),
            },
        };
        let key = key(name, &[T::ELEMENT], &[k, smallest.into()], shape);
        let programs = [programs(x.extents(), shape)[0], 1];
        let arguments: &[&dyn Argument] = &[&x.tensor(), &values.tensor(), &indices.tensor()];
        launch(device, &key, programs, arguments, || match name {
            "top_k" => kernels::top_k::stage::<T>(k, smallest, shape),
            "top_k_sorted" => kernels::top_k_sorted::stage::<T>(k, smallest, shape),
            _ => kernels::top_k_long::stage::<T>(k, smallest, STEP),
        })
    }

    /// Rounds of programs that each leave `k` of up to [`LONGEST_SORTED`] ranks; the first has so many programs.
    fn hold_tournament<T: FloatItem>(
        &self,
        device: &Device,
        (k, programs): (u32, u32),
        x: &Rows<'_, T>,
        values: &Rows<'_, T>,
        indices: &Rows<'_, u32>,
    ) -> Result<(), Error> {
        let (rows, columns) = x.extents();
        let (smallest, width) = (self.smallest, LONGEST_SORTED);
        let mut left = after_round(columns, self.k);
        let mut ranks = device.temporary::<u64>(rows * left)?;
        let first = key("top_k_of_parts", &[T::ELEMENT], &[k, smallest.into()], [1, width]);
        let found = Rows::new(&ranks, rows, left);
        launch(device, &first, [programs, 1], &[&x.tensor(), &found.tensor()], || {
            kernels::top_k_of_parts::stage::<T>(k, smallest, width)
        })?;
        while left > width as usize {
            let (before, fewer) = (left, after_round(left, self.k));
            let next = device.temporary::<u64>(rows * fewer)?;
            let (from, found) = (Rows::new(&ranks, rows, before), Rows::new(&next, rows, fewer));
            let round = key("top_k_of_ranks", &[], &[k], [1, width]);
            // No more than in the round before.
            let programs = u32::try_from(rows * (fewer / self.k)).unwrap_or(u32::MAX);
            launch(device, &round, [programs, 1], &[&from.tensor(), &found.tensor()], || {
                kernels::top_k_of_ranks::stage(k, width)
            })?;
            (ranks, left) = (next, fewer);
        }
        // No wider than it takes, and of few widths, so that few kernels are compiled.
        let width = u32::try_from(left.next_power_of_two()).unwrap_or(width);
        let last = key("top_k_at_last", &[T::ELEMENT], &[k], [1, width]);
        let ranks = Rows::new(&ranks, rows, left);
        let arguments: &[&dyn Argument] =
            &[&x.tensor(), &ranks.tensor(), &values.tensor(), &indices.tensor()];
        launch(device, &last, [u32::try_from(rows).unwrap_or(u32::MAX), 1], arguments, || {
            kernels::top_k_at_last::stage::<T>(k, width)
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

/// Ranks of a row that a round leaves of so many numbers.
fn after_round(numbers: usize, k: usize) -> usize {
    numbers.div_ceil(LONGEST_SORTED as usize) * k
}

/// Programs of the first round of a tournament; none if it is not worth while, because rounds would leave most of what they get, or if there would be more programs
/// than a launch can have.
fn tournament((rows, columns): (usize, usize), k: u32) -> Option<u32> {
    let programs = rows.checked_mul(columns.div_ceil(LONGEST_SORTED as usize))?;
    let most = i32::MAX as usize;
    (k <= LONGEST_SORTED / 4 && programs <= most).then(|| u32::try_from(programs).ok())?
}
