//! Shared memory with a swizzle: reads and writes of global memory are both contiguous, and no bank is hit twice.

use tilewright_lang::prelude::*;

/// `out` is the transpose of `x`, which has `rows` times `columns` elements. A block moves a tile of 32 by 32.
#[kernel(threads = (32, 8))]
pub fn transpose(x: Global<f32>, out: Global<f32>, rows: Val<u32>, columns: Val<u32>) {
    // Element (r, c) lies in bank c ^ r: a row and a column of the tile both touch all 32 banks.
    let tile = Shared::<f32>::new("S<5,0,5> o 0 o (32,32):(32,1)");
    let (x, out) = (x.matrix(columns), out.matrix(rows));
    let (top, left) = (block_id(1) * 32, block_id(0) * 32);
    let lane = thread_id(0);

    for step in unroll(0..4) {
        let r = thread_id(1) + 8 * step;
        if top + r < rows && left + lane < columns {
            tile.at((r, lane)).store(x.at(top + r, left + lane).load());
        }
    }
    barrier();
    for step in unroll(0..4) {
        let c = thread_id(1) + 8 * step;
        if left + c < columns && top + lane < rows {
            out.at(left + c, top + lane).store(tile.at((lane, c)).load());
        }
    }
}
