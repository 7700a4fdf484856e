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
}

/// What each row makes together.
#[kernel]
pub fn reduce_rows<T: Padded, U: Float>(x: View<T, 2>, results: View<U, 2>, kind: Kind, shape: [u32; 2]) {
    let i = program_id(0);
    let pad = match kind {
        Kind::Max => T::LOWEST,
        Kind::Min => T::HIGHEST,
        Kind::Product => T::ONE,
        _ => T::ZERO,
    };
    let numbers = x.tile(shape).block((i, 0)).load_or(pad).cast::<f32>();
    let result = match kind {
        Kind::Sum => numbers.sum(1),
        Kind::Mean => numbers.sum(1) / x.extent(1).cast::<f32>(),
        Kind::Product => numbers.product(1),
        Kind::Max => numbers.max(1),
        Kind::Min => numbers.min(1),
        Kind::AbsMax => numbers.abs().max(1),
        Kind::SumSquares => (numbers * numbers).sum(1),
        Kind::Norm => (numbers * numbers).sum(1).sqrt(),
    };
    results.tile([shape[0], 1]).block((i, 0)).store(result.cast());
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

/// The `k` largest numbers of each row, in order, and their columns: the largest is taken away `k` times.
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
    let numbers = from.load().cast::<f32>();
    let column = from.positions(1).bitcast::<u32>();
    let mut left = (column < x.extent(1)).broadcast_to(shape);
    for place in unroll(0..k) {
        let (_, _, chosen) = (left, numbers, column).reduce(1, |a, b| {
            let second = better(smallest, a, b);
            (select(second, b.0, a.0), select(second, b.1, a.1), select(second, b.2, a.2))
        });
        // The number itself, bit by bit.
        let value = x.points((from.positions(0), chosen)).load();
        values.tile([shape[0], 1]).at((i * shape[0], place)).store(value);
        indices.tile([shape[0], 1]).at((i * shape[0], place)).store(chosen);
        left &= column != chosen;
    }
}

/// Whether the second of two candidates (still there, number, column) comes first.
#[device]
fn better(
    smallest: bool,
    (here, x, i): (Val<bool>, Val<f32>, Val<u32>),
    (there, y, j): (Val<bool>, Val<f32>, Val<u32>),
) -> Val<bool> {
    let farther = if smallest { y < x } else { y > x };
    let (nan, other) = (x != x, y != y);
    let ahead = farther | (other & !nan);
    let equal = (x == y) | (nan & other);
    (there & !here) | ((there == here) & (ahead | (equal & (j < i))))
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
    let y = y.tile(shape);
    // Without the number itself, sums belong to the next one.
    let shift = match (exclusive, reverse) {
        (false, _) => 0i32,
        (true, false) => -1,
        (true, true) => 1,
    };
    let numbers = x.tile(shape).at((i * shape[0], shift)).load().cast::<f32>();
    let sums = if reverse { numbers.cumsum_reverse(1) } else { numbers.cumsum(1) };
    y.block((i, 0)).store(sums.cast());
}
