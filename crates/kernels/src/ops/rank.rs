//! Which numbers of a row are the largest: the place of the first, and some of them in order.
//!
//! A number and its column make one integer, its [`rank`], so that the order is total and the largest of two is one instruction.

use tilewright_hardware::Element as Kind;
use tilewright_lang::tile::prelude::*;

use super::Padded;

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
/// those of [`reduce_steps()`](super::reduce_steps()) do.
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

/// Most ranks that are sorted at a time: more do not fit into the registers of a block's threads.
pub const MOST_SORTED: u32 = 2048;

/// Columns, or ranks, of the longest part that [`top_k_of_parts()`] and [`top_k_of_ranks()`] are for.
pub const LONGEST_PART: u32 = 4096;

/// What one thread has of a part, of whose numbers the kernel keeps half of their rank, or of ranks; and how many such threads share a multiprocessor.
/// A rank, its place and where it goes take five registers.
const NUMBERS_OF_THREAD: u32 = 16;
const RANKS_OF_THREAD: u32 = 8;
const THREADS_OF_PARTS: u32 = 512;

/// Bits of integers that are ordered as numbers of a type are.
pub const fn order_bits(element: Kind) -> u32 {
    // Sign and exponent are those of f32.
    match element.mantissa_bits() {
        Some(mantissa) => 9 + mantissa,
        None => 32,
    }
}

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

/// The ranks of the `k` highest of each part of a row, `width` columns, one part by a program: what is among the highest of the row is among
/// those of its part. They stand side by side in `found`, in the order of columns, and [`top_k_of_ranks()`] goes on with them.
#[kernel(threads = width / NUMBERS_OF_THREAD, min_blocks = THREADS_OF_PARTS * NUMBERS_OF_THREAD / width)]
pub fn top_k_of_parts<T: Padded>(x: View<T, 2>, found: View<u64, 2>, k: u32, smallest: bool, width: u32) {
    let (row, part) = part_of_row(x.extent(1), width);
    let from = x.tile([1, width]).block((row, part));
    let orders = orders(from, x.extent(1), smallest, [1, width]);
    let (taken, place) = highest(orders, k, order_bits(T::ELEMENT));
    found.points((row, part * k + place)).only(taken).store(with_columns(orders, from));
}

/// The same of ranks that an earlier round has found, whose numbers are of a type with so many [bits](order_bits).
#[kernel(threads = width / RANKS_OF_THREAD, min_blocks = THREADS_OF_PARTS * RANKS_OF_THREAD / width)]
pub fn top_k_of_ranks(ranks: View<u64, 2>, found: View<u64, 2>, k: u32, bits: u32, width: u32) {
    let (row, part) = part_of_row(ranks.extent(1), width);
    let ranks = ranks.tile([1, width]).block((row, part)).load();
    let (taken, place) = highest((ranks >> 32u32).cast::<u32>(), k, bits);
    found.points((row, part * k + place)).only(taken).store(ranks);
}

/// The last round, of rows of up to `width` ranks: numbers and columns of the `k` highest.
#[kernel(min_blocks = 1)]
pub fn top_k_at_last<T: Padded>(
    x: View<T, 2>,
    ranks: View<u64, 2>,
    values: View<T, 2>,
    indices: View<u32, 2>,
    k: u32,
    width: u32,
) {
    let row = program_id(0);
    let sorted = ranks.tile([1, width]).block((row, 0)).load().sort_descending(1);
    let chosen = sorted.part(1, 0..k).map(column_of);
    let value = x.points((Tile::full([1, k], row), chosen)).load();
    values.tile([1, k]).block((row, 0)).store(value);
    indices.tile([1, k]).block((row, 0)).store(chosen);
}

/// The row of a program, and its part of it, where rows of so many columns are taken in parts.
#[device]
fn part_of_row(columns: Val<u32>, width: u32) -> (Val<u32>, Val<u32>) {
    let parts = columns.div_ceil(width);
    (program_id(0) / parts, program_id(0) % parts)
}

/// Which of a part, whose columns ascend, are the `k` highest, and where among them each stands in the order of columns.
///
/// Nothing is sorted, and nobody waits for another but to count: the bits of the highest number that `k` of them reach are found one after the other, and
/// with it which they are. Of equal numbers the first are taken, so that the columns need not be looked at.
#[device]
fn highest(orders: Tile<u32>, k: u32, bits: u32) -> (Tile<bool>, Tile<u32>) {
    let (mut least, mut bit, mut reached) = (val(0u32), val(1u32 << (bits - 1)), val(orders.extent(1)));
    while bit != 0 && reached != k {
        let count = (orders >= (least | bit)).count(1).item();
        least = select(count >= k, least | bit, least);
        reached = select(count >= k, count, reached);
        bit >>= 1;
    }
    // Both kinds are counted in one scan: those above in the upper half of a word, those that just reach it in the lower one.
    let (above, level) = (orders > least, orders == least);
    let one = select(above, 1u32 << 16, select(level, 1u32, Tile::zeros(orders.shape())));
    let before = one.cumsum(1) - one;
    let (above_before, level_before) = (before >> 16, before & 0xffff);
    let wanted = k - above.count(1).item();
    (above | (level & (level_before < wanted)), above_before + level_before.minimum(wanted))
}

/// The `k` largest numbers of rows of any length, for any `k`, one row by a program, `width` columns at a time: once through the row for each of the `k`, which is the one of
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

/// Number and column as one integer, so that the largest of these is what is looked for; lower than any number behind the end of the row.
#[device]
fn ranks<T: Padded>(from: Place<T, 2>, columns: Val<u32>, smallest: bool, shape: [u32; 2]) -> Tile<u64> {
    with_columns(orders(from, columns, smallest, shape), from)
}

/// Integers, above zero, that are larger for larger numbers; zero behind the end of the row.
#[device]
fn orders<T: Padded>(from: Place<T, 2>, columns: Val<u32>, smallest: bool, shape: [u32; 2]) -> Tile<u32> {
    let column = from.positions(1).bitcast::<u32>().broadcast_to(shape);
    (from.load().cast::<f32>(), column)
        .map(move |(x, j)| select(j < columns, order::<T>(if smallest { -x } else { x }), 0u32))
}

/// Ranks: of equal numbers the one in the first column is the highest.
fn with_columns<T: Padded>(orders: Tile<u32>, from: Place<T, 2>) -> Tile<u64> {
    let column = from.positions(1).bitcast::<u32>().broadcast_to(orders.shape());
    (orders, column).map(|(order, j)| (order.cast::<u64>() << 32u32) | (!j).cast::<u64>())
}

/// The column of a rank.
#[device]
fn column_of(rank: Val<u64>) -> Val<u32> {
    !rank.cast::<u32>()
}

/// An integer, above zero, that is larger for larger numbers, in as many [bits](order_bits) as numbers of the type take. NaN is the largest.
#[device]
fn order<T: Padded>(x: Val<f32>) -> Val<u32> {
    // Zero has one sign.
    let bits = (x + 0.0f32).bitcast::<u32>();
    let ordered = select((bits >> 31u32) == 1, !bits, bits | 0x8000_0000u32);
    select(x != x, u32::MAX, ordered) >> (32 - order_bits(T::ELEMENT))
}
