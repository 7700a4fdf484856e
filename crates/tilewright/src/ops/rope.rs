//! [`Rope`]: rotary position embedding, pairs of numbers turned by an angle that depends on the position of their row.
//!
//! A row of `x` is a token: heads of `head` numbers each, side by side. Of each head the first `rotary` numbers are turned in pairs,
//! `(a, b)` to `(a cos - b sin, a sin + b cos)`, and the rest is copied. Pair `i` is numbers `i` and `i + rotary / 2` of the head, or `2 i` and
//! `2 i + 1` if they are [interleaved](Rope::interleaved). Angles come from tables with a row for each position and a column for each pair.
//!
//! * Row `i` has position `i`, unless [positions](Rope::positions) are given. A position that the tables do not have turns numbers into NaN.
//! * NaN and infinity stay in their pair.
//! * No rows, no columns: nothing is written.
//!
//! Works in place: `y` may be exactly `x`. The gradient of a rotation is the [rotation back](Rope::inverse).

use tilewright_kernels::ops::{self as kernels, Pairs, Tiling};

use super::cpu::{on_cpu, rounded};
use super::launch::{STEP, launch, programs};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Device, DeviceKind};

/// Rotary position embedding.
///
/// ```
/// use tilewright::ops::{Rope, Rows};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let (tokens, heads, head) = (5, 2, 8);
/// let rope = Rope::new(head);
/// let (cos, sin) = rope.tables(10_000.0, tokens);
/// let (cos, sin) = (device.upload(&cos)?, device.upload(&sin)?);
/// let (cos, sin) = (Rows::new(&cos, tokens, head / 2), Rows::new(&sin, tokens, head / 2));
/// let q = device.upload(&vec![1.0f32; tokens * heads * head])?;
/// let q = Rows::new(&q, tokens, heads * head);
/// rope.run(&device, q, cos, sin, q)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a> {
    head: usize,
    rotary: usize,
    interleaved: bool,
    inverse: bool,
    positions: Option<Rows<'a, i32>>,
}

impl<'a> Rope<'a> {
    /// Of heads of so many numbers, all of which are turned.
    #[must_use]
    pub fn new(head: usize) -> Rope<'a> {
        Rope { head, rotary: head, interleaved: false, inverse: false, positions: None }
    }

    /// Only the first so many numbers of each head are turned.
    #[must_use]
    pub fn rotary(self, rotary: usize) -> Self {
        Rope { rotary, ..self }
    }

    /// Neighbours are a pair.
    #[must_use]
    pub fn interleaved(self) -> Self {
        Rope { interleaved: true, ..self }
    }

    /// Turned back.
    #[must_use]
    pub fn inverse(self) -> Self {
        Rope { inverse: !self.inverse, ..self }
    }

    /// With a position for each row.
    #[must_use]
    pub fn positions(self, positions: impl Into<Rows<'a, i32>>) -> Self {
        Rope { positions: Some(positions.into()), ..self }
    }

    /// Cosines and sines of the angles `position * base^(-2 i / rotary)` for the first so many positions and every pair `i`.
    #[must_use]
    pub fn tables(&self, base: f64, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let count = super::cpu::count;
        let angle =
            |position: usize, pair: usize| count(position) * base.powf(-count(2 * pair) / count(self.rotary));
        let angles = (0..positions).flat_map(|p| (0..self.rotary / 2).map(move |pair| (p, pair)));
        angles
            .map(|(p, pair)| angle(p, pair).sin_cos())
            .map(|(sin, cos)| (rounded(cos), rounded(sin)))
            .unzip()
    }

    /// Computes `y` from `x` with tables of cosines and sines.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        cos: impl Into<Rows<'r, f32>>,
        sin: impl Into<Rows<'r, f32>>,
        y: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let (x, cos, sin, y) = (x.into(), cos.into(), sin.into(), y.into());
        let (rows, columns) = x.extents();
        if self.head == 0 {
            return Err(Error::argument("head", "0", "at least 1", "give the size of a head"));
        }
        if !columns.is_multiple_of(self.head) {
            let expected = format!("rows of whole heads, of {} numbers each", self.head);
            return Err(Error::argument(
                "x",
                format!("{columns} columns"),
                expected,
                "give the size of a head",
            ));
        }
        if !self.rotary.is_multiple_of(2) || self.rotary > self.head {
            let expected = format!("an even number up to {}, the size of a head", self.head);
            return Err(Error::argument("rotary", self.rotary.to_string(), expected, "give whole pairs"));
        }
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        let table = (cos.extents().0, self.rotary / 2);
        for (name, angles) in [("cos", &cos), ("sin", &sin)] {
            expect_extents(name, angles, table, "a row for each position, a column for each pair")?;
            operands.input(name, angles)?;
        }
        let positions = self.positions.map(|positions| positions.as_column(rows));
        if let Some(positions) = &positions {
            expect_extents("positions", positions, (rows, 1), "one for each row of `x`")?;
            operands.input("positions", positions)?;
        }
        expect_extents("y", &y, x.extents(), "as `x` has")?;
        operands.result("y", &y)?;
        if device.kind() != DeviceKind::Cpu {
            return self.launch(device, &x, (&cos, &sin), positions.as_ref(), &y);
        }
        on_cpu(device, |mut host| {
            let mut grid = host.numbers(&x)?;
            let (cos, sin) = (host.read(&cos)?, host.read(&sin)?);
            let positions = positions.map(|positions| host.read(&positions)).transpose()?;
            grid.each_row(|row, values| {
                let position = positions.as_ref().map_or(Some(row), |p| usize::try_from(p.values[row]).ok());
                for head in values.chunks_mut(self.head) {
                    for pair in 0..self.rotary / 2 {
                        let (i, j) = self.pair(pair);
                        let (cos, sin) = match position.filter(|position| *position < table.0) {
                            Some(position) => (cos.row(position)[pair], sin.row(position)[pair]),
                            None => (f32::NAN, f32::NAN),
                        };
                        (head[i], head[j]) = self.turned((head[i], head[j]), (cos, sin));
                    }
                }
            });
            host.write_numbers(&y, &grid)
        })
    }

    fn launch<T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: &Rows<'_, T>,
        (cos, sin): (&Rows<'_, f32>, &Rows<'_, f32>),
        positions: Option<&Rows<'_, i32>>,
        y: &Rows<'_, U>,
    ) -> Result<(), Error> {
        let (rows, columns) = x.extents();
        let (Ok(head), Ok(rotary)) = (u32::try_from(self.head), u32::try_from(self.rotary)) else {
            return Err(Error::no_kernel("RoPE of so large heads", device));
        };
        if head > STEP {
            return Err(Error::no_kernel("RoPE of so large heads", device));
        }
        let heads = columns / self.head;
        let together = (STEP as usize / self.head).clamp(1, heads.max(1));
        let tiling = Tiling::of([1, u32::try_from(together).unwrap_or(1)], heads);
        let pairs = Pairs { head, rotary, interleaved: self.interleaved, inverse: self.inverse };
        let key = (pairs, tiling, T::ELEMENT, U::ELEMENT, positions.is_some());
        let programs = programs((rows, heads), tiling);
        let (from, to) = (x.parts(heads, self.head), y.parts(heads, self.head));
        let (cos, sin) = (cos.tensor(), sin.tensor());
        match positions {
            Some(positions) => {
                launch(device, &key, programs, &[&from, &cos, &sin, &positions.tensor(), &to], || {
                    kernels::rope_positions::stage::<T, U>(pairs, tiling)
                })
            }
            None => launch(device, &key, programs, &[&from, &cos, &sin, &to], || {
                kernels::rope::stage::<T, U>(pairs, tiling)
            }),
        }
    }

    /// Which two numbers of a head are a pair.
    fn pair(&self, pair: usize) -> (usize, usize) {
        if self.interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + self.rotary / 2) }
    }

    fn turned(&self, (a, b): (f32, f32), (cos, sin): (f32, f32)) -> (f32, f32) {
        let (a, b, cos, sin) = (f64::from(a), f64::from(b), f64::from(cos), f64::from(sin));
        let sin = if self.inverse { -sin } else { sin };
        (rounded(a * cos - b * sin), rounded(a * sin + b * cos))
    }
}
