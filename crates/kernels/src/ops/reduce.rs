//! What rows make together: reductions, the place of the largest, the largest in order, running sums.

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

/// The column of the largest, or the smallest, number of each row: the first of equal ones.
#[kernel]
pub fn arg_rows<T: Padded>(x: View<T, 2>, indices: View<u32, 2>, smallest: bool, shape: [u32; 2]) {
    let i = program_id(0);
    let from = x.tile(shape).block((i, 0));
    // Padding comes after all columns, so that it is never the first of equal ones.
    let index = if smallest { from.load_or(T::HIGHEST).argmin(1) } else { from.load_or(T::LOWEST).argmax(1) };
    indices.tile([shape[0], 1]).block((i, 0)).store(index);
}

/// The rank of the number that [`arg_rows()`] looks for, in rows of any length, `width` columns at a time. Programs along y share a row as
/// those of [`reduce_steps()`] do.
#[kernel]
pub fn arg_steps<T: Padded>(x: View<T, 2>, found: View<u64, 2>, smallest: bool, width: u32) {
    let (row, first, apart) = (program_id(0), program_id(1), num_programs(1));
    let mut best = Tile::<u64>::zeros([1, width]);
    for step in 0..x.extent(1).div_ceil(apart * width) {
        let from = x.tile([1, width]).block((row, step * apart + first));
        best = best.maximum(ranks(from, x.extent(1), smallest, [1, width]));
    }
    found.tile([1, 1]).block((row, first)).store(best.max(1));
}

/// The column of the highest rank of each row; `u32::MAX` if there was no number.
#[kernel]
pub fn arg_of_ranks(ranks: View<u64, 2>, indices: View<u32, 2>, shape: [u32; 2]) {
    let i = program_id(0);
    let best = ranks.tile(shape).block((i, 0)).load().max(1);
    indices.tile([shape[0], 1]).block((i, 0)).store(best.map(column_of));
}

/// The largest `k` that [`top_k()`] is for: its code is written out for each of them.
pub const FEW: u32 = 32;

/// Columns of the longest row that [`top_k_sorted()`] is for: ranks of more do not fit into the registers of its threads.
pub const LONGEST_SORTED: u32 = 2048;

/// The `k` largest numbers of each row, in order, and their columns: the one of the highest rank is taken away `k` times.
#[kernel]
pub fn top_k<T: Padded>(
    x: View<T, 2>,
    values: View<T, 2>,
    indices: View<u32, 2>,
    k: u32,
    smallest: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let from = x.tile(shape).block((i, 0));
    let mut left = ranks(from, x.extent(1), smallest, shape);
    for place in unroll(0..k) {
        let first = left.max(1);
        let chosen = first.map(column_of);
        // The number itself, bit by bit.
        let value = x.points((from.positions(0), chosen)).load();
        values.tile([shape[0], 1]).at((i * shape[0], place)).store(value);
        indices.tile([shape[0], 1]).at((i * shape[0], place)).store(chosen);
        left = select(left == first, 0u64, left);
    }
}

/// The same of many of a row that is not long: all are sorted.
#[kernel(min_blocks = 1)]
pub fn top_k_sorted<T: Padded>(
    x: View<T, 2>,
    values: View<T, 2>,
    indices: View<u32, 2>,
    k: u32,
    smallest: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let from = x.tile(shape).block((i, 0));
    let sorted = ranks(from, x.extent(1), smallest, shape).sort_descending(1);
    let chosen = sorted.part(1, 0..k).map(column_of);
    let value = x.points((from.positions(0), chosen)).load();
    values.tile([shape[0], k]).block((i, 0)).store(value);
    indices.tile([shape[0], k]).block((i, 0)).store(chosen);
}

/// The same of rows of any length, one by a program, `width` columns at a time: once through the row for each of the `k`, which is the one of
/// the highest rank below that of the last.
#[kernel]
pub fn top_k_long<T: Padded>(
    x: View<T, 2>,
    values: View<T, 2>,
    indices: View<u32, 2>,
    k: u32,
    smallest: bool,
    width: u32,
) {
    let (row, shape) = (program_id(0), [1, width]);
    let mut last = Tile::<u64>::full([1, 1], u64::MAX);
    for place in 0..val(k) {
        let mut best = Tile::<u64>::zeros(shape);
        for step in 0..x.extent(1).div_ceil(width) {
            let ranks = ranks(x.tile(shape).block((row, step)), x.extent(1), smallest, shape);
            best = best.maximum(select(ranks < last, ranks, 0u64));
        }
        last = best.max(1);
        let chosen = last.map(column_of);
        let value = x.points((Tile::full([1, 1], row), chosen)).load();
        values.tile([1, 1]).at((row, place)).store(value);
        indices.tile([1, 1]).at((row, place)).store(chosen);
    }
}

/// Number and column as one integer, so that the largest of these is what is looked for; zero behind the end of the row.
#[device]
fn ranks<T: Padded>(from: Place<T, 2>, columns: Val<u32>, smallest: bool, shape: [u32; 2]) -> Tile<u64> {
    let column = from.positions(1).bitcast::<u32>().broadcast_to(shape);
    (from.load().cast::<f32>(), column)
        .map(move |(x, j)| select(j < columns, rank(if smallest { -x } else { x }, j), 0u64))
}

/// The column of a rank.
#[device]
fn column_of(rank: Val<u64>) -> Val<u32> {
    !rank.cast::<u32>()
}

/// An integer, above zero, that is larger for larger numbers, and of equal ones for the first column. NaN is the largest.
#[device]
fn rank(x: Val<f32>, column: Val<u32>) -> Val<u64> {
    // Zero has one sign.
    let bits = (x + 0.0f32).bitcast::<u32>();
    let ordered = select((bits >> 31u32) == 1, !bits, bits | 0x8000_0000u32);
    let ordered = select(x != x, u32::MAX, ordered);
    (ordered.cast::<u64>() << 32u32) | (!column).cast::<u64>()
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
