//! Step 3, shared memory: a block fetches each element once and its threads use it 32 times.

use tilewright_lang::prelude::*;

/// Rows, columns and depth of the tile.
const SIDE: u32 = 32;

/// `c = a * b^T`. A block computes 32 rows and 32 columns, one element a thread, 32 steps of `k` at a time.
#[kernel(threads = SIDE * SIDE)]
pub fn ladder_shared(a: Global<bf16>, b: Global<bf16>, c: Global<bf16>, n: Val<u32>, k: Val<u32>) {
    // Rows lie 33 words apart: 32 lanes that read a column of the tile then hit 32 banks.
    let tile_a = Shared::<f32>::new("(32,32):(33,1)");
    let tile_b = Shared::<f32>::new("(32,32):(33,1)");
    let (a, b, c) = (a.matrix(k), b.matrix(k), c.matrix(n));
    let (top, left) = (block_id(1) * SIDE, block_id(0) * SIDE);
    let (y, x) = (thread_id(0) / SIDE, thread_id(0) % SIDE);
    let (my_row, my_column) = (tile_a.row_block(y, 1), tile_b.row_block(x, 1));

    let mut sum = val(0.0f32);
    for start in (val(0u32)..k).step_by(SIDE) {
        tile_a.at((y, x)).store(a.at(top + y, start + x).load().cast::<f32>());
        tile_b.at((y, x)).store(b.at(left + y, start + x).load().cast::<f32>());
        barrier();
        for i in unroll(0..SIDE) {
            sum = my_row.at((0, i)).load().mul_add(my_column.at((0, i)).load(), sum);
        }
        barrier();
    }
    c.at(top + y, left + x).store(sum.cast::<bf16>());
}
