//! Operators on this computer: matrices out of its memory and back, and rows for all cores.
//!
//! All inputs are copied out before anything is written, so that results may lie anywhere. Operators are plain loops over f32, with
//! sums in f64.

use rayon::prelude::*;
use tilewright_sim::{SimError, Simulator};

use super::{Error, NumberItem, Rows};
use crate::device::{Device, DeviceError, DynBuffer, Item};

/// Elements for which it takes longer to wake other cores than to do the work.
const FEW: usize = 1024;

/// A matrix without gaps.
#[derive(Clone, Debug)]
pub(super) struct Grid<T> {
    pub(super) values: Vec<T>,
    pub(super) columns: usize,
}

impl<T: Copy> Grid<T> {
    pub(super) fn filled((rows, columns): (usize, usize), value: T) -> Grid<T> {
        Grid { values: vec![value; rows * columns], columns }
    }

    pub(super) fn row(&self, row: usize) -> &[T] {
        &self.values[row * self.columns..][..self.columns]
    }
}

impl<T: Copy + Send> Grid<T> {
    /// All rows with their numbers, for all cores.
    pub(super) fn each_row(&mut self, work: impl Fn(usize, &mut [T]) + Send + Sync) {
        self.share_rows(&work);
    }

    /// Not generic over the work: rayon's machinery is long, and this way it is compiled once for each type of elements.
    fn share_rows(&mut self, work: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let columns = self.columns.max(1);
        if self.values.len() <= FEW {
            self.values.chunks_mut(columns).enumerate().for_each(|(row, values)| work(row, values));
        } else {
            self.values.par_chunks_mut(columns).enumerate().for_each(|(row, values)| work(row, values));
        }
    }
}

/// A number for each of so many rows, by all cores.
pub(super) fn per_row<T: Send>(rows: usize, value: impl Fn(usize) -> T + Send + Sync) -> Grid<T> {
    // As in `share_rows`.
    let value: &(dyn Fn(usize) -> T + Sync) = &value;
    Grid { values: (0..rows).into_par_iter().map(value).collect(), columns: 1 }
}

/// What becomes of each number, by all cores.
fn each<A: Copy + Sync, B: Send>(values: &[A], of: fn(A) -> B) -> Vec<B> {
    let one = |value: &A| of(*value);
    if values.len() <= FEW { values.iter().map(one).collect() } else { values.par_iter().map(one).collect() }
}

/// The memory of a device that is this computer.
pub(super) struct Host<'m>(&'m mut Simulator);

/// Computes with the memory of the CPU.
pub(super) fn on_cpu<R: Send>(
    device: &Device,
    work: impl FnOnce(Host<'_>) -> Result<R, Error> + Send,
) -> Result<R, Error> {
    device.with_memory(|memory| work(Host(memory))).ok_or(DeviceError::OtherDevice)?
}

fn failed(error: SimError) -> Error {
    DeviceError::from(error).into()
}

impl Host<'_> {
    /// The elements of a matrix, row by row.
    pub(super) fn read<T: Item>(&self, rows: &Rows<'_, T>) -> Result<Grid<T>, Error> {
        let (count, columns) = rows.extents();
        let memory = DynBuffer::from(&rows.memory()?);
        if rows.is_empty() {
            return Ok(Grid { values: Vec::new(), columns });
        }
        let bytes = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let place = self.0.at(memory.address(), bytes).map_err(failed)?;
        let all = T::decode(self.0.bytes(place).map_err(failed)?);
        let (down, right) = rows.strides();
        if (down, right) == (columns, 1) {
            return Ok(Grid { values: all, columns });
        }
        // Views that repeat elements may have more of them than there is memory.
        let mut values = Vec::new();
        if values.try_reserve_exact(count.saturating_mul(columns)).is_err() {
            return Err(Error::argument(
                "a view",
                format!("{count} x {columns} elements"),
                "as many as fit into the memory of this computer",
                "take fewer rows at a time",
            ));
        }
        let places = (0..count).flat_map(|i| (0..columns).map(move |j| i * down + j * right));
        values.extend(places.map(|at| all[at]));
        Ok(Grid { values, columns })
    }

    /// The same as f32.
    pub(super) fn numbers<T: NumberItem>(&self, rows: &Rows<'_, T>) -> Result<Grid<f32>, Error> {
        let Grid { values, columns } = self.read(rows)?;
        Ok(Grid { values: each(&values, T::to_f32), columns })
    }

    /// The same; where there are a residual and a place for the sum, the residual is added and the sum written there.
    pub(super) fn numbers_adding<T: NumberItem>(
        &mut self,
        x: &Rows<'_, T>,
        residual: Option<&(Rows<'_, T>, Rows<'_, T>)>,
    ) -> Result<Grid<f32>, Error> {
        let mut grid = self.numbers(x)?;
        if let Some((residual, sum)) = residual {
            let added = self.numbers(residual)?;
            grid.values.iter_mut().zip(&added.values).for_each(|(x, r)| *x += r);
            self.write_numbers(sum, &grid)?;
        }
        Ok(grid)
    }

    /// Puts elements where they belong; what lies between them stays as it is.
    pub(super) fn write<T: Item>(&mut self, rows: &Rows<'_, T>, grid: &Grid<T>) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let memory = DynBuffer::from(&rows.memory()?);
        let bytes = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let place = self.0.at(memory.address(), bytes).map_err(failed)?;
        let (columns, (down, right)) = (grid.columns, rows.strides());
        if (down, right) == (columns, 1) {
            return self.0.write(place, &T::encode(&grid.values)).map_err(failed);
        }
        let mut all = T::decode(self.0.bytes(place).map_err(failed)?);
        for (i, row) in grid.values.chunks(columns).enumerate() {
            row.iter().enumerate().for_each(|(j, value)| all[i * down + j * right] = *value);
        }
        self.0.write(place, &T::encode(&all)).map_err(failed)
    }

    /// Rounds numbers and puts them where they belong.
    pub(super) fn write_numbers<T: NumberItem>(
        &mut self,
        rows: &Rows<'_, T>,
        grid: &Grid<f32>,
    ) -> Result<(), Error> {
        self.write(rows, &Grid { values: each(&grid.values, T::from_f32), columns: grid.columns })
    }
}

/// Rounds a sum.
#[allow(clippy::cast_possible_truncation, reason = "rounded to the nearest")]
pub(super) fn rounded(value: f64) -> f32 {
    value as f32
}

/// A count as a divisor.
#[allow(clippy::cast_precision_loss, reason = "below 2^32")]
pub(super) fn count(n: usize) -> f64 {
    n as f64
}

/// The sum of numbers, in f64.
pub(super) fn sum(numbers: impl Iterator<Item = f32>) -> f64 {
    // That of nothing would be minus zero.
    0.0 + numbers.map(f64::from).sum::<f64>()
}

/// The largest number; NaN if there is one, minus infinity if there is nothing.
pub(super) fn largest(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.fold(f32::NEG_INFINITY, |a, b| if a.is_nan() || b <= a { a } else { b })
}
