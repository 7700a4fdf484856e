//! Numbers in 8 bits with a scale. `largest` is the largest number of the type that is used.

use tilewright_lang::tile::prelude::*;

use super::Tiling;

/// The nearest numbers of the type, none beyond the largest.
#[device]
pub(super) fn nearest<Q: Element>(x: Tile<f32>, largest: Val<f32>) -> Tile<Q> {
    let x = x.clamp(-largest, largest);
    if Q::ELEMENT.is_int() { x.cast_rounded(Round::Nearest) } else { x.cast() }
}

/// What numbers are multiplied by, and the scale of the results, from the largest absolute values. Where that is next to zero, the factor is 0.
#[device]
pub(super) fn factor_and_scale(most: Tile<f32>, largest: Val<f32>) -> (Tile<f32>, Tile<f32>) {
    let inverse = Tile::full(most.shape().extents(), largest) / most;
    let tiny = inverse == f32::INFINITY;
    (select(tiny, 0.0f32, inverse), select(tiny, 1.0f32, most / largest))
}

/// Rows with a scale each.
#[kernel]
pub fn quantise_rows<T: Float, Q: Element>(
    x: View<T, 2>,
    q: View<Q, 2>,
    scales: View<f32, 2>,
    largest: Val<f32>,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let numbers = x.tile(shape).block((i, 0)).load().cast::<f32>();
    let (factor, scale) = factor_and_scale(numbers.abs().max(1), largest);
    q.tile(shape).block((i, 0)).store(nearest::<Q>(numbers * factor, largest));
    scales.tile([shape[0], 1]).block((i, 0)).store(scale);
}

/// Numbers by what is known for each row: its scale, or, if it is the `most`, the largest absolute value of it or of all.
#[kernel]
pub fn quantise_by<T: Float, Q: Element>(
    x: View<T, 2>,
    known: View<f32, 2>,
    q: View<Q, 2>,
    largest: Val<f32>,
    most: bool,
    tiling: Tiling,
) {
    let column = [tiling.shape[0], 1];
    let numbers = tiling.mine(x).load().cast::<f32>();
    let known = known.tile(column).block((tiling.place().0, 0)).load();
    let factor = if most { factor_and_scale(known, largest).0 } else { Tile::ones(column) / known };
    tiling.mine(q).store(nearest::<Q>(numbers * factor, largest));
}

/// Scales from largest absolute values: one for everything, or one for each row.
#[kernel]
pub fn scale_of(most: View<f32, 2>, scales: View<f32, 2>, largest: Val<f32>, rows: u32) {
    let most = most.tile([rows, 1]).block((program_id(0), 0)).load();
    scales.tile([rows, 1]).block((program_id(0), 0)).store(factor_and_scale(most, largest).1);
}

/// The numbers that are meant.
#[kernel]
pub fn dequantise<Q: Element, T: Float>(q: View<Q, 2>, scales: View<f32, 2>, y: View<T, 2>, tiling: Tiling) {
    let scale = scales.tile([tiling.shape[0], 1]).block((tiling.place().0, 0)).load();
    tiling.mine(y).store((tiling.mine(q).load().cast::<f32>() * scale).cast());
}
