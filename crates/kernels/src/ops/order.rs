//! The same elements in another order.

use tilewright_lang::tile::prelude::*;

use super::{AxisNumber, Tiling};

/// Rows become columns, a tile of `x` at a time.
#[kernel]
pub fn transpose<T: Element>(x: View<T, 2>, y: View<T, 2>, tiling: Tiling) {
    let ((i, j), [height, width]) = (tiling.place(), tiling.shape);
    let tile = tiling.mine(x).load();
    y.tile([width, height]).block((j, i)).store(tile.transpose());
}

/// Rows of a table by index, a part of one by a program; zeros where there is no such row.
#[kernel]
pub fn embedding<T: Number, I: AxisNumber>(
    table: View<T, 2>,
    indices: View<I, 2>,
    y: View<T, 2>,
    tiling: Tiling,
) {
    let ((i, j), [_, width]) = (tiling.place(), tiling.shape);
    let index = indices.load_scalar_unchecked((i, 0)).cast::<i64>();
    // One that is no row is beyond all of them.
    let known = (index >= 0i64) & (index < table.extent(0).cast::<i64>());
    let row = select(known, index, table.extent(0).cast::<i64>()).cast::<u32>();
    tiling.mine(y).store(table.tile([1, width]).at((row, j * width)).load());
}

/// Elements in the order of `y`, whose axes are those of `x`: a tile of `shape` by a program, which are numbered along x, innermost first.
#[kernel]
pub fn permute<T: Element>(x: View<T, 4>, y: View<T, 4>, shape: [u32; 4]) {
    let blocks = |axis: usize| y.tile(shape).blocks([0, 1, 2, 3][axis]);
    let n = program_id(0);
    let (l, n) = (n % blocks(3), n / blocks(3));
    let (k, n) = (n % blocks(2), n / blocks(2));
    let at = (n / blocks(1), n % blocks(1), k, l);
    y.tile(shape).block(at).store(x.tile(shape).block(at).load());
}
