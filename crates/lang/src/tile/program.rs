//! Which program this is, and in which order programs go over a matrix.

use crate::special::{block_id, grid_size};
use crate::trace;
use crate::value::{Operand, Val};

/// This program's position in the grid along an axis: 0, 1 or 2.
#[must_use]
#[track_caller]
pub fn program_id(axis: u32) -> Val<u32> {
    block_id(axis)
}

/// The programs of the grid along an axis: 0, 1 or 2.
#[must_use]
#[track_caller]
pub fn num_programs(axis: u32) -> Val<u32> {
    grid_size(axis)
}

/// Row and column of block number `index` when blocks of `rows` x `columns` are visited `group` rows at a time, column by column: blocks
/// that run at the same time then share rows and columns of the factors of a product, which stay in the L2 cache.
///
/// ```
/// use tilewright_lang::tile::prelude::*;
/// #[kernel]
/// fn k(c: View<f32, 2>) {
///     let (rows, columns) = (c.extent(0).div_ceil(128), c.extent(1).div_ceil(128));
///     let (i, j) = grouped_order(program_id(0), rows, columns, 8);
///     c.tile([128, 128]).block((i, j)).store(Tile::zeros([128, 128]));
/// }
/// k::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[must_use]
#[track_caller]
pub fn grouped_order(
    index: impl Operand<u32>,
    rows: impl Operand<u32>,
    columns: impl Operand<u32>,
    group: u32,
) -> (Val<u32>, Val<u32>) {
    trace::here();
    let (index, rows, columns) = (index.val(), rows.val(), columns.val());
    if group == 0 {
        trace::error("groups of 0 rows; expected at least 1");
        return (index, index);
    }
    let blocks = columns * group;
    let first = index / blocks * group;
    // The last group may have fewer rows.
    let height = (rows - first).min(group);
    let inside = index % blocks;
    (first + inside % height, inside / height)
}

/// Row and column of a program at `(i, j)` of a grid of `rows` x `columns` when programs go in [groups of rows](grouped_order). The
/// programs of a grid run roughly in the order of `i * columns + j`.
#[must_use]
#[track_caller]
pub fn swizzle2d(
    i: impl Operand<u32>,
    j: impl Operand<u32>,
    rows: impl Operand<u32>,
    columns: impl Operand<u32>,
    group: u32,
) -> (Val<u32>, Val<u32>) {
    trace::here();
    let (i, j, columns) = (i.val(), j.val(), columns.val());
    grouped_order(i * columns + j, rows, columns, group)
}
