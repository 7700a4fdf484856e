//! Exponentials of numbers relative to the largest of their row, and their sums: what softmax and cross entropy are made of.

use tilewright_lang::tile::prelude::*;

use super::Padded;

/// Exponentials of what is not above zero, in seven instructions: the hardware's power of two of the rounded product with log2(e), corrected
/// by what rounding left out. Within 3 ulp, and zero below the normal numbers.
#[device]
pub(super) fn exponential(x: Tile<f32>) -> Tile<f32> {
    /// log2(e) is the sum of these two.
    const HIGH: f32 = LOG2_E;
    const LOW: f32 = 1.925_963e-8;
    x.map(|x: Val<f32>| {
        // Far below, and at -inf, there is nothing left to correct.
        let x = x.max_nan(-150.0);
        let power = x * HIGH;
        let rest = x.mul_add(HIGH, -power) + x * LOW;
        let e = power.exp2_fast();
        e.mul_add(rest * std::f32::consts::LN_2, e)
    })
}

/// log2(e), rounded.
pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// Exponentials of numbers that the largest was already taken from, for results of 16 bits, in two instructions: a few parts in a million off
/// where they count, which such results do not show. Taking the largest away within the product with log2(e) would save one, and lose all
/// digits of large numbers: products of the largest round differently.
#[device]
pub(super) fn quick_exponential(shifted: Tile<f32>, scale: Val<f32>) -> Tile<f32> {
    (shifted * (scale * LOG2_E)).map(|power: Val<f32>| power.exp2_fast())
}

/// What is known of the numbers of a row: the largest, though no less than the lowest finite one, and relative to it the sum of exponentials,
/// and by how much all are smaller together, if that is asked for. Of nothing but -inf the sum of exponentials is zero.
#[derive(Clone, Copy)]
pub(super) struct Known<T> {
    pub(super) most: Tile<T>,
    pub(super) sum: Tile<f32>,
    pub(super) below: Tile<f32>,
}

/// All that is [`Known`] of a row, from one time through it. It comes in tiles of a width, `together` of them at a time: `numbers` gives the
/// tile so many columns behind the one that begins at a column.
///
/// Each column of the tile has a largest number and sums of its own until the row ends. So threads wait for each other once rather than at
/// each step, and memory has something to read all the time. Sums are corrected when a larger number has come, once for as many tiles as
/// come together, all of which are asked for before the first is used.
#[device]
pub(super) fn known_of<T: Padded>(
    numbers: impl Fn(Val<u32>, u32) -> Tile<T> + Copy,
    columns: Val<u32>,
    (width, together): (u32, u32),
    with_below: bool,
) -> Known<f32> {
    let (shape, stride) = ([1, width], width * together);
    // Not -inf: from that nothing can be taken away, and it would have to be told apart each time.
    let (mut most, mut sum) = (Tile::<T>::full(shape, T::LEAST), Tile::<f32>::zeros(shape));
    let mut below = Tile::<f32>::zeros(shape);
    let whole = columns / stride;
    for step in 0..whole {
        let tiles = (0..together).map(|i| (numbers(step * stride, i * width), Tile::full(shape, true)));
        let before = (step * together).cast::<f32>();
        let next = and_more(Known { most, sum, below }, before, tiles.collect(), with_below);
        most = next.most;
        sum = next.sum;
        below = next.below;
    }
    let rest = columns - whole * stride;
    if rest > 0 {
        let inside = |i: u32| Tile::<u32>::iota(1, shape) + i * width < rest;
        let tiles = (0..together).map(|i| (numbers(whole * stride, i * width), inside(i)));
        let before = (whole * together).cast::<f32>();
        let next = and_more(Known { most, sum, below }, before, tiles.collect(), with_below);
        most = next.most;
        sum = next.sum;
        below = next.below;
    }
    let of_columns = most.cast::<f32>();
    let most = of_columns.max(1);
    let sum = (sum * exponential(of_columns - most)).sum(1);
    if with_below {
        let count = (columns + (width - 1) - Tile::<u32>::iota(1, shape)) / width;
        below = (below + lowered(of_columns, most) * count.cast::<f32>()).sum(1);
    }
    Known { most, sum, below }
}

/// What is known when more tiles have come, of which some columns are inside of the row; `before` is how many there were.
#[device]
pub(super) fn and_more<T: Padded>(
    known: Known<T>,
    before: Val<f32>,
    tiles: Vec<(Tile<T>, Tile<bool>)>,
    with_below: bool,
) -> Known<T> {
    let most = tiles.iter().fold(known.most, |most, &(x, _)| most.maximum(x));
    let (old, shift) = (known.most.cast::<f32>(), most.cast::<f32>());
    let mut sum = known.sum * quick_exponential(old - shift, val(1.0));
    let mut below = known.below;
    if with_below {
        below += lowered(old, shift) * before;
    }
    for (x, inside) in tiles {
        let lower = x.cast::<f32>() - shift;
        sum += quick_exponential(lower, val(1.0));
        if with_below {
            below -= select(inside, lower, 0.0f32);
        }
    }
    Known { most, sum, below }
}

/// By how much numbers are smaller, finite so that nothing of it is nothing.
#[device]
pub(super) fn lowered(x: Tile<f32>, most: Tile<f32>) -> Tile<f32> {
    (most - x).minimum(f32::MAX)
}
