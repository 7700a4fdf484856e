//! The same elements in another order.

use tilewright_lang::tile::prelude::*;

use super::exponential::AxisNumber;

/// Rows become columns, a tile of `side` x `side` at a time.
#[kernel]
pub fn transpose<T: Element>(x: View<T, 2>, y: View<T, 2>, side: u32) {
    let (i, j) = (program_id(0), program_id(1));
    let tile = x.tile([side, side]).block((i, j)).load();
    y.tile([side, side]).block((j, i)).store(tile.transpose());
}

/// Rows of a table by index, one by a program along x and `width` columns along y; zeros where there is no such row.
#[kernel]
pub fn embedding<T: Number, I: AxisNumber>(
    table: View<T, 2>,
    indices: View<I, 2>,
    y: View<T, 2>,
    width: u32,
) {
    let (i, j) = (program_id(0), program_id(1));
    let index = indices.load_scalar((i, 0)).cast::<i64>();
    // One that is no row is beyond all of them.
    let known = (index >= 0i64) & (index < table.extent(0).cast::<i64>());
    let row = select(known, index, table.extent(0).cast::<i64>()).cast::<u32>();
    y.tile([1, width]).block((i, j)).store(table.tile([1, width]).at((row, j * width)).load());
}
