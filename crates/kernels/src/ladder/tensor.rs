//! Step 6, tensor cores: a warp multiplies 16 x 8 x 16 elements in one instruction, from fragments that it loads with `ldmatrix`.

use tilewright_lang::prelude::*;

use crate::examples::GemmTile;

/// Threads of a block: four warps, two by two.
const THREADS: u32 = 128;

/// Copies rows `row..` and columns `k..` of a matrix into a tile, 16 bytes a thread at a time.
#[device]
fn fetch(from: Matrix<bf16>, row: Val<u32>, k: Val<u32>, tile: Shared<bf16>, rows: u32, depth: u32) {
    let chunks_in_row = depth / 8;
    for step in unroll(0..rows * chunks_in_row / THREADS) {
        let chunk = thread_id(0) + step * THREADS;
        let (r, c) = (chunk / chunks_in_row, chunk % chunks_in_row * 8);
        tile.at((r, c)).store_vector(from.at(row + r, k + c).load_vector(8));
    }
}

/// `c = a * b^T`. A block computes `tile.m` rows and `tile.n` columns, each of its four warps a quarter.
#[kernel(threads = THREADS)]
pub fn ladder_tensor(
    a: Global<bf16>,
    b: Global<bf16>,
    c: Global<bf16>,
    n: Val<u32>,
    k: Val<u32>,
    tile: GemmTile,
) {
    let mma = WarpMma::<bf16, bf16, f32>::new((16, 8, 16));
    let (warp_m, warp_n) = (tile.m / 2, tile.n / 2);
    let (rows, columns, depth) = (warp_m / 16, warp_n / 8, tile.k / 16);

    let tile_a = Shared::<bf16>::new(k_major::<bf16>(tile.m, tile.k, SwizzleMode::B64));
    let tile_b = Shared::<bf16>::new(k_major::<bf16>(tile.n, tile.k, SwizzleMode::B64));
    let (a, b, c) = (a.aligned(16).matrix(k), b.aligned(16).matrix(k), c.aligned(16).matrix(n));
    let (top, left) = (block_id(1) * tile.m, block_id(0) * tile.n);
    let mine_a = tile_a.row_block(warp_id() / 2, warp_m);
    let mine_b = tile_b.row_block(warp_id() % 2, warp_n);

    let mut sums = vec![vec![mma.zero(); columns as usize]; rows as usize];
    for start in (val(0u32)..k).step_by(tile.k) {
        fetch(a, top, start, tile_a, tile.m, tile.k);
        fetch(b, left, start, tile_b, tile.n, tile.k);
        barrier();
        for kk in unroll(0..depth) {
            let left: Vec<_> = (0..rows).map(|i| mma.load_a(mine_a, i, kk)).collect();
            let right: Vec<_> = (0..columns / 2).flat_map(|j| mma.load_b_pair(mine_b, 2 * j, kk)).collect();
            for (row, a) in sums.iter_mut().zip(left) {
                for (sum, b) in row.iter_mut().zip(&right) {
                    *sum = mma.multiply(a, *b, *sum);
                }
            }
        }
        barrier();
    }

    let (top, left) = (top + warp_id() / 2 * warp_m, left + warp_id() % 2 * warp_n);
    for (i, row) in (0..rows).zip(&sums) {
        for (j, sum) in (0..columns).zip(row) {
            sum.cast::<bf16>().for_each_run(|r, column, pair| {
                c.at(top + i * 16 + r, left + j * 8 + column).store_vector(pair);
            });
        }
    }
}
