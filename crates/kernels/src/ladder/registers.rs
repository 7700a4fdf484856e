//! Step 4, register blocking: a thread computes 8 x 8 elements, so that each element it reads from shared memory is used 8 times.

use tilewright_lang::prelude::*;

/// Threads of a block: 16 by 16.
const THREADS: u32 = 256;
/// Rows and columns of the block's tile.
const SIDE: u32 = 128;
/// Depth of a step.
const DEPTH: u32 = 32;

/// Copies rows `row..` and columns `k..` of a matrix into a tile, one element a thread at a time.
#[device]
fn fetch(from: Matrix<bf16>, row: Val<u32>, k: Val<u32>, tile: Shared<f32>) {
    for step in val(0u32)..SIDE * DEPTH / THREADS {
        let element = thread_id(0) + step * THREADS;
        let (r, c) = (element / DEPTH, element % DEPTH);
        tile.at((r, c)).store(from.at(row + r, k + c).load().cast::<f32>());
    }
}

/// `c = a * b^T`. A block computes 128 rows and 128 columns; a thread every 16th row and every 16th column of them.
#[kernel(threads = THREADS, min_blocks = 2)]
pub fn ladder_registers(a: Global<bf16>, b: Global<bf16>, c: Global<bf16>, n: Val<u32>, k: Val<u32>) {
    // Rows lie side by side, and one word more than 128 lies between steps of `k`: a warp stores along `k` and reads along the rows.
    let tile_a = Shared::<f32>::new("(128,32):(1,129)");
    let tile_b = Shared::<f32>::new("(128,32):(1,129)");
    let (a, b, c) = (a.matrix(k), b.matrix(k), c.matrix(n));
    let (top, left) = (block_id(1) * SIDE, block_id(0) * SIDE);
    let (y, x) = (thread_id(0) / 16, thread_id(0) % 16);

    let mut sums = vec![vec![val(0.0f32); 8]; 8];
    for start in (val(0u32)..k).step_by(DEPTH) {
        fetch(a, top, start, tile_a);
        fetch(b, left, start, tile_b);
        barrier();
        for i in unroll(0..DEPTH) {
            let column: Vec<_> = (0..8).map(|r| tile_a.at((y + 16 * r, i)).load()).collect();
            let row: Vec<_> = (0..8).map(|c| tile_b.at((x + 16 * c, i)).load()).collect();
            for (sums, a) in sums.iter_mut().zip(&column) {
                for (sum, b) in sums.iter_mut().zip(&row) {
                    *sum = a.mul_add(*b, *sum);
                }
            }
        }
        barrier();
    }

    for (r, sums) in (0u32..).zip(&sums) {
        for (column, sum) in (0u32..).zip(sums) {
            c.at(top + y + 16 * r, left + x + 16 * column).store(sum.cast::<bf16>());
        }
    }
}
