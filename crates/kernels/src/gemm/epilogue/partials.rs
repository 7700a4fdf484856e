//! Reductions inside of a kernel: what the values of a warp make together, in memory of its own.

use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Inside, mistake, same};

use super::expr::{ExtraOperand, How, Shape};
use crate::gemm::matrix::Place;

/// Which lanes of a warp hold elements of the same rows and columns of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Bits of the lane's number that do not matter for its rows.
    pub row: u32,
    /// Bits of the lane's number that do not matter for its columns.
    pub column: u32,
}

impl Lanes {
    /// Results of tensor cores: the row is `lane / 4`, the columns go by `lane % 4`.
    pub const FRAGMENT: Lanes = Lanes { row: 0b00011, column: 0b11100 };
}

/// A piece of the product: the elements of a warp between [`begin`](super::Staged::begin) and [`finish`](super::Staged::finish). No two
/// warps have the same.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Member of the batch.
    pub batch: Val<u32>,
    /// Which part of the columns.
    pub across: Val<u32>,
    /// Which part of the rows.
    pub down: Val<u32>,
}

/// What this thread's values make together, for an operand that reduces.
#[derive(Debug)]
pub(super) struct Partials<R> {
    shape: Shape,
    how: How,
    /// `[batch][slot][index]`, one slot for each part of what is reduced.
    origin: Global<R>,
    slots: Val<u32>,
    extent: Val<u32>,
    /// By row or column, with the place in the kernel where they were computed.
    values: Vec<(Inside, Val<u32>, Val<R>)>,
}

impl<R: Number> Partials<R> {
    #[track_caller]
    pub(super) fn declare(parameter: &str, operand: &ExtraOperand, how: How) -> Partials<R> {
        Partials {
            shape: operand.shape,
            how,
            origin: Argument::declare(parameter),
            slots: Argument::declare(&format!("{parameter}_slots")),
            extent: Argument::declare(&format!("{parameter}_extent")),
            values: Vec::new(),
        }
    }

    /// Takes in the values of a run.
    #[track_caller]
    pub(super) fn add(&mut self, place: &Place, values: &[Val<R>]) {
        for (i, &value) in (0u32..).zip(values) {
            let key = match self.shape {
                Shape::PerColumn => place.column + i,
                Shape::PerRow => place.row,
                _ => val(0),
            };
            let value = match place.bounds {
                None => value,
                Some(_) => select(place.inside(i), value, start(self.how)),
            };
            let known = self.values.iter_mut().find(|(_, known, _)| same(*known, key));
            match known {
                Some((inside, _, total)) if *inside == Inside::here() => {
                    *total = combine(self.how, *total, value);
                }
                Some(_) => return lost(),
                None => self.values.push((Inside::here(), key, combine(self.how, start(self.how), value))),
            }
        }
    }

    /// Writes what the values of the warp make together.
    #[track_caller]
    pub(super) fn finish(&mut self, lanes: Lanes, piece: Piece) {
        let (mask, slot) = match self.shape {
            Shape::PerRow => (lanes.row, piece.across),
            Shape::PerColumn => (lanes.column, piece.down),
            _ => (31, piece.down),
        };
        let slot = piece.batch.mul_wide(self.slots) + slot.cast::<u64>();
        let start = slot * self.extent.cast::<u64>();
        for (inside, key, value) in std::mem::take(&mut self.values) {
            if inside != Inside::here() {
                return lost();
            }
            let mut total = value;
            for bit in (0..5).map(|bit| 1u32 << bit).filter(|bit| mask & bit != 0) {
                total = combine(self.how, total, shuffle_xor(total, bit));
            }
            let index = if self.shape == Shape::One { piece.across } else { key };
            let first = writes(lane_id() & mask, index, self.extent);
            self.origin.at(start + index.cast::<u64>()).store_if(first, total);
        }
    }
}

impl<R> Partials<R> {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[track_caller]
fn lost() {
    mistake(
        "values that are reduced were computed inside of another `if` or loop than the one that is open here; \
         call `begin`, `apply` and `finish` in the same one",
    );
}

/// Whether a lane is the first of those that share an index, and the index exists.
#[device]
fn writes(among: Val<u32>, index: Val<u32>, extent: Val<u32>) -> Val<bool> {
    (among == 0) & (index < extent)
}

/// What no values make together.
#[track_caller]
pub(super) fn start<R: Number>(how: How) -> Val<R> {
    val(how.start()).cast()
}

/// What a value makes with those before it.
#[track_caller]
pub(super) fn combine<R: Number>(how: How, before: Val<R>, value: Val<R>) -> Val<R> {
    match how {
        How::Sum => before + value,
        How::Max => before.max(value),
        How::AbsMax => before.max(value.abs()),
    }
}
