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
