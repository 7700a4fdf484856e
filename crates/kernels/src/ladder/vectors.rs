//! Step 5, wide accesses: 16 bytes an instruction, from global memory, from shared memory and (8 of them) to the result.

use tilewright_lang::prelude::*;

/// Threads of a block: 16 by 16.
const THREADS: u32 = 256;
/// Rows and columns of the block's tile.
const SIDE: u32 = 128;
/// Depth of a step.
const DEPTH: u32 = 32;

/// Copies rows `row..` and columns `k..` of a matrix into a tile, 8 elements a thread at a time.
#[device]
fn fetch(from: Matrix<bf16>, row: Val<u32>, k: Val<u32>, tile: Shared<f32>) {
    for step in val(0u32)..SIDE * DEPTH / 8 / THREADS {
        let chunk = thread_id(0) + step * THREADS;
        let (r, c) = (chunk / (DEPTH / 8), chunk % (DEPTH / 8) * 8);
        let elements = from.at(row + r, k + c).load_vector(8).cast::<f32>().elements();
        for (i, element) in (0u32..).zip(elements) {
            tile.at((r, c + i)).store(element);
        }
    }
}

/// `c = a * b^T`. A block computes 128 rows and 128 columns; a thread four rows, and the four that lie 64 further, likewise columns.
#[kernel(threads = THREADS, min_blocks = 2)]
pub fn ladder_vectors(a: Global<bf16>, b: Global<bf16>, c: Global<bf16>, n: Val<u32>, k: Val<u32>) {
    // Rows lie side by side, so that four of them are one load; the gap after every 8 steps of `k` puts the four chunks that a warp
    // stores at a time into different banks.
    let tile_a = Shared::<f32>::new("(128,(8,4)):(1,(128,1032))");
    let tile_b = Shared::<f32>::new("(128,(8,4)):(1,(128,1032))");
    let (a, b, c) = (a.aligned(16).matrix(k), b.aligned(16).matrix(k), c.aligned(16).matrix(n));
    let (top, left) = (block_id(1) * SIDE, block_id(0) * SIDE);
    let (y, x) = (thread_id(0) / 16, thread_id(0) % 16);
    let mine_a = [0, 1].map(|half| tile_a.row_block(half, 64).row_block(y, 4));
    let mine_b = [0, 1].map(|half| tile_b.row_block(half, 64).row_block(x, 4));

    let mut sums = vec![vec![Vector::splat(0.0f32, 4); 2]; 8];
    for start in (val(0u32)..k).step_by(DEPTH) {
        fetch(a, top, start, tile_a);
        fetch(b, left, start, tile_b);
        barrier();
        for i in unroll(0..DEPTH) {
            let column = mine_a.map(|rows| rows.at((0, i)).load_vector(4).elements()).concat();
            let row = mine_b.map(|rows| rows.at((0, i)).load_vector(4));
            for (sums, a) in sums.iter_mut().zip(column) {
                for (sum, b) in sums.iter_mut().zip(row) {
                    *sum = Vector::splat(a, 4).mul_add(b, *sum);
                }
            }
        }
        barrier();
    }

    for (r, sums) in (0u32..).zip(&sums) {
        for (half, four) in (0u32..).zip(sums) {
            let (row, column) = (top + r / 4 * 64 + y * 4 + r % 4, left + half * 64 + x * 4);
            c.at(row, column).store_vector(four.cast::<bf16>());
        }
    }
}
