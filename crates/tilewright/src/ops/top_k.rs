//! [`TopK`]: the largest numbers of each row, and where they are.
//!
//! Results are in order, the largest first. Of equal numbers the one with the lower index comes first; 0 and -0 are equal; NaN counts as
//! the largest of all, and as the smallest if the [smallest](TopK::smallest) are wanted. Results are in memory of their own.
//!
//! Kernels take up to 32 numbers away from a row one after the other, and sort rows that are short, or of which most is wanted. Other rows are a
//! tournament: programs find the highest of a part each, without sorting it, and then of what was found, until that is little enough to be sorted.
//! Where more than 2048 of a long row are wanted, a program goes through it once for each.

use tilewright_kernels::ops::{self as kernels, FEW, LONGEST_PART, MOST_SORTED, order_bits};

use super::cpu::{Grid, on_cpu, per_row};
use super::launch::{STEP, key, launch, programs, rows_or_steps};
use super::reduce::precedes;
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// The kernel of the first round of a tournament.
const TOURNAMENT: &str = "top_k_of_parts";

/// Numbers that are sorted at once although fewer may be wanted.
const SORTED_AT_ONCE: u32 = 512;

/// Programs of a first round that keep an H200 busy, and the shortest parts that they get instead of being fewer.
const ENOUGH_PROGRAMS: usize = 2 * 132;
const SHORTEST_PART: u32 = 1024;

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
        let (k, smallest) = (self.k(), self.smallest);
        if k == 0 {
            return Ok(());
        }
        let (name, shape) = self.by(device, x.extents());
        if name == TOURNAMENT {
            return self.hold_tournament(device, (k, shape[1]), x, values, indices);
        }
        let key = key(name, &[T::ELEMENT], &[k, smallest.into()], shape);
        let programs = [programs(x.extents(), shape)[0], 1];
        let arguments: &[&dyn Argument] = &[&x.tensor(), &values.tensor(), &indices.tensor()];
        launch(device, &key, programs, arguments, || match name {
            "top_k" => kernels::top_k::stage::<T>(k, smallest, shape),
            "top_k_sorted" => kernels::top_k_sorted::stage::<T>(k, smallest, shape),
            _ => kernels::top_k_long::stage::<T>(k, smallest, STEP),
        })
    }

    /// It fits: it is no more than the columns.
    fn k(&self) -> u32 {
        u32::try_from(self.k).unwrap_or(u32::MAX)
    }

    /// Which kernel is first, and what a program of it takes.
    pub(super) fn by(&self, device: &Device, extents: (usize, usize)) -> (&'static str, [u32; 2]) {
        let k = self.k();
        // Ranks are twice as wide as numbers, and each is looked at again and again.
        let (whole, rows) = rows_or_steps(device, extents, 8);
        match (whole, k <= FEW, rows[1] <= sorted_at_once(k)) {
            (true, true, _) => ("top_k", rows),
            (true, false, true) => ("top_k_sorted", rows),
            _ => match part_width(extents, k) {
                Some(width) => (TOURNAMENT, [1, width]),
                None => ("top_k_long", [1, STEP]),
            },
        }
    }

    /// Rounds that each leave `k` of every part of a row, until those left are few enough to be sorted.
    fn hold_tournament<T: FloatItem>(
        &self,
        device: &Device,
        (k, width): (u32, u32),
        x: &Rows<'_, T>,
        values: &Rows<'_, T>,
        indices: &Rows<'_, u32>,
    ) -> Result<(), Error> {
        let (rows, columns) = x.extents();
        let (smallest, bits) = (self.smallest, order_bits(T::ELEMENT));
        let mut left = after_round(columns, k, width);
        let mut ranks = device.temporary::<u64>(rows * left)?;
        let first = key(TOURNAMENT, &[T::ELEMENT], &[k, smallest.into()], [1, width]);
        let found = Rows::new(&ranks, rows, left);
        launch(device, &first, programs_of(rows * left, k), &[&x.tensor(), &found.tensor()], || {
            kernels::top_k_of_parts::stage::<T>(k, smallest, width)
        })?;
        while left > sorted_at_once(k) as usize {
            // No wider than it takes, and of few widths, so that few kernels are compiled.
            let width = power_of_two(left, LONGEST_PART);
            let fewer = after_round(left, k, width);
            let next = device.temporary::<u64>(rows * fewer)?;
            let (from, found) = (Rows::new(&ranks, rows, left), Rows::new(&next, rows, fewer));
            let round = key("top_k_of_ranks", &[], &[k, bits], [1, width]);
            launch(device, &round, programs_of(rows * fewer, k), &[&from.tensor(), &found.tensor()], || {
                kernels::top_k_of_ranks::stage(k, bits, width)
            })?;
            (ranks, left) = (next, fewer);
        }
        let width = power_of_two(left, MOST_SORTED);
        let last = key("top_k_at_last", &[T::ELEMENT], &[k], [1, width]);
        let ranks = Rows::new(&ranks, rows, left);
        let arguments: &[&dyn Argument] =
            &[&x.tensor(), &ranks.tensor(), &values.tensor(), &indices.tensor()];
        launch(device, &last, programs_of(rows, 1), arguments, || {
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

/// How many numbers are sorted at once if `k` are wanted: choosing those first would not make it less.
fn sorted_at_once(k: u32) -> u32 {
    k.min(MOST_SORTED).next_power_of_two().max(SORTED_AT_ONCE)
}

/// Ranks of a row that a round leaves of so many numbers.
fn after_round(numbers: usize, k: u32, width: u32) -> usize {
    numbers.div_ceil(width as usize) * k as usize
}

/// The least power of two that holds so many, and `most` if that is less.
fn power_of_two(numbers: usize, most: u32) -> u32 {
    u32::try_from(numbers.next_power_of_two()).unwrap_or(most).min(most)
}

/// As many programs as there are groups of `each`; [`part_width()`] has seen to it that they fit.
fn programs_of(numbers: usize, each: u32) -> [u32; 2] {
    [u32::try_from(numbers / each as usize).unwrap_or(u32::MAX), 1]
}

/// Columns of a part of the first round of a tournament: fewer where there would be few programs. None if a tournament is not worth while, because
/// rounds would leave most of what they get, or if there would be more programs than a launch can have.
fn part_width((rows, columns): (usize, usize), k: u32) -> Option<u32> {
    if k > MOST_SORTED {
        return None;
    }
    let programs = |width: u32| rows.saturating_mul(columns.div_ceil(width as usize));
    let shortest = (4 * k).next_power_of_two().clamp(SHORTEST_PART, LONGEST_PART);
    let mut width = power_of_two(columns, LONGEST_PART);
    while width > shortest && programs(width) < ENOUGH_PROGRAMS {
        width /= 2;
    }
    (programs(width) <= i32::MAX as usize).then_some(width)
}
