//! What rows make together: reductions and running sums.

use tilewright_lang::tile::prelude::*;

use super::Padded;

/// What numbers make together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The sum.
    Sum,
    /// The sum over the count.
    Mean,
    /// The product.
    Product,
    /// The largest; NaN if one is.
    Max,
    /// The smallest; NaN if one is.
    Min,
    /// The largest absolute value; NaN if one is.
    AbsMax,
    /// The sum of squares.
    SumSquares,
    /// The root of the sum of squares.
    Norm,
    /// The root of the sum.
    Root,
    /// The logarithm of the sum of exponentials.
    LogSumExp,
}

/// What numbers are taken relative to, of which this is the largest: itself, if it is finite.
#[device]
fn reference(most: Tile<f32>) -> Tile<f32> {
    select(most.abs() == f32::INFINITY, 0.0f32, most)
}

impl Kind {
    /// What a number that is not there counts as.
    fn nothing<T: Padded>(self) -> T {
        match self {
            Kind::Max | Kind::LogSumExp => T::LOWEST,
            Kind::Min => T::HIGHEST,
            Kind::Product => T::ONE,
            _ => T::ZERO,
        }
    }

    /// What of each number is put together.
    fn of(self, x: Tile<f32>) -> Tile<f32> {
        match self {
            Kind::AbsMax => x.abs(),
            Kind::SumSquares | Kind::Norm => x * x,
            _ => x,
        }
    }

    /// Two put together, element by element.
    fn both(self, a: Tile<f32>, b: Tile<f32>) -> Tile<f32> {
        match self {
            Kind::Product => a * b,
            Kind::Max | Kind::AbsMax => a.maximum(b),
            Kind::Min => a.minimum(b),
            Kind::LogSumExp => {
                let shift = reference(a.maximum(b));
                ((a - shift).exp() + (b - shift).exp()).log() + shift
            }
            _ => a + b,
        }
    }

    /// A row of them put together, as the result of so many numbers.
    fn row(self, x: Tile<f32>, count: Val<f32>) -> Tile<f32> {
        match self {
            Kind::Sum | Kind::SumSquares => x.sum(1),
            Kind::Mean => x.sum(1) / count,
            Kind::Norm | Kind::Root => x.sum(1).sqrt(),
            Kind::Product => x.product(1),
            Kind::Max | Kind::AbsMax => x.max(1),
            Kind::Min => x.min(1),
            Kind::LogSumExp => {
                let shift = reference(x.max(1));
                (x - shift).exp().sum(1).log() + shift
            }
        }
    }
}

/// What each row makes together; `count` is how many numbers it stands for.
#[kernel]
pub fn reduce_rows<T: Padded, U: Float>(
    x: View<T, 2>,
    results: View<U, 2>,
    count: Val<f32>,
    kind: Kind,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let numbers = x.tile(shape).block((i, 0)).load_or(kind.nothing::<T>()).cast::<f32>();
    results.tile([shape[0], 1]).block((i, 0)).store(kind.row(kind.of(numbers), count).cast());
}

/// The same of rows of any length, `width` columns at a time. Programs along y share a row: each takes every so many-th step, and leaves a
/// column of results.
#[kernel]
pub fn reduce_steps<T: Padded, U: Float>(
    x: View<T, 2>,
    results: View<U, 2>,
    count: Val<f32>,
    kind: Kind,
    width: u32,
) {
    let (row, first, apart) = (program_id(0), program_id(1), num_programs(1));
    let mut all = kind.of(Tile::full([1, width], kind.nothing::<f32>()));
    for step in 0..x.extent(1).div_ceil(apart * width) {
        let from = x.tile([1, width]).block((row, step * apart + first));
        all = kind.both(all, kind.of(from.load_or(kind.nothing::<T>()).cast::<f32>()));
    }
    results.tile([1, 1]).block((row, first)).store(kind.row(all, count).cast());
}

/// Sums of the beginnings of each row.
#[kernel]
pub fn cumulative_sum<T: Float, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    exclusive: bool,
    reverse: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let numbers = x.tile(shape).at((i * shape[0], shift(exclusive, reverse))).load().cast::<f32>();
    y.tile(shape).block((i, 0)).store(sums(numbers, reverse).cast());
}

/// Where the numbers are that are added: without the number itself, sums belong to the next one.
fn shift(exclusive: bool, reverse: bool) -> i32 {
    match (exclusive, reverse) {
        (false, _) => 0,
        (true, false) => -1,
        (true, true) => 1,
    }
}

fn sums(x: Tile<f32>, reverse: bool) -> Tile<f32> {
    if reverse { x.cumsum_reverse(1) } else { x.cumsum(1) }
}

/// The same of rows of any length, one by a program, `width` columns at a time: each step begins with the sum of those before it. What a step
/// reads no other writes, so that results can take the place of numbers.
#[kernel(min_blocks = 2)]
pub fn cumulative_sum_long<T: Float, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    exclusive: bool,
    reverse: bool,
    width: u32,
) {
    let (row, shape) = (program_id(0), [1, width]);
    let steps = x.extent(1).div_ceil(width);
    let mut before = Tile::<f32>::zeros([1, 1]);
    for i in 0..steps {
        let step = if reverse { steps - 1 - i } else { i };
        let part = x.slice(1, step * width, width).tile(shape);
        let numbers = part.at((row, 0)).load().cast::<f32>();
        let added =
            if exclusive { part.at((row, shift(exclusive, reverse))).load().cast::<f32>() } else { numbers };
        y.tile(shape).block((row, step)).store((sums(added, reverse) + before).cast());
        before += numbers.sum(1);
    }
}
