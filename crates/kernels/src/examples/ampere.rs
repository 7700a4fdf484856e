//! A matrix product for Ampere and Ada: asynchronous copies into a ring of swizzled tiles, `mma.sync` on registers.

use super::GemmTile;
use tilewright_lang::prelude::*;

/// Threads of a block: four warps, two by two.
const THREADS: u32 = 128;

/// Starts to copy rows `row..` and columns `k..` of a matrix into a tile, 16 bytes a thread at a time.
#[device]
fn fetch(from: Matrix<bf16>, row: Val<u32>, k: Val<u32>, tile: Shared<bf16>, rows: u32, depth: u32) {
    let chunks_in_row = depth / 8;
    for step in 0..rows * chunks_in_row / THREADS {
        let chunk = thread_id(0) + step * THREADS;
        let (r, c) = (chunk / chunks_in_row, chunk % chunks_in_row * 8);
        copy_async(tile.at((r, c)), from.at(row + r, k + c), 8);
    }
}

/// `c = a * b^T` for row-major `a` (m, k) and `b` (n, k), `c` (m, n). Extents are multiples of the tile's.
#[kernel(threads = THREADS)]
pub fn gemm_ampere(
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

    let ring_a = Ring::<bf16>::new(tile.stages, k_major::<bf16>(tile.m, tile.k, SwizzleMode::B64));
    let ring_b = Ring::<bf16>::new(tile.stages, k_major::<bf16>(tile.n, tile.k, SwizzleMode::B64));
    let (a, b, c) = (a.aligned(16).matrix(k), b.aligned(16).matrix(k), c.aligned(16).matrix(n));
    let (top, left) = (block_id(1) * tile.m, block_id(0) * tile.n);
    let steps = k / tile.k;
    let fetch_step = |step: Val<u32>, slot: Val<u32>| {
        fetch(a, top, step * tile.k, ring_a.at(slot), tile.m, tile.k);
        fetch(b, left, step * tile.k, ring_b.at(slot), tile.n, tile.k);
    };

    // All slots but one are filled ahead; the last is the one being used.
    for ahead in unroll(0..tile.stages - 1) {
        if ahead < steps {
            fetch_step(val(ahead), val(ahead));
        }
        copy_commit();
    }

    let mut sums = vec![vec![mma.zero(); columns as usize]; rows as usize];
    let (mut full, mut free) = (val(0u32), val(tile.stages - 1));
    for step in 0..steps {
        copy_wait(tile.stages - 2);
        barrier();
        if step + (tile.stages - 1) < steps {
            fetch_step(step + (tile.stages - 1), free);
        }
        copy_commit();

        let mine_a = ring_a.at(full).row_block(warp_id() / 2, warp_m);
        let mine_b = ring_b.at(full).row_block(warp_id() % 2, warp_n);
        for kk in unroll(0..depth) {
            let left: Vec<_> = (0..rows).map(|i| mma.load_a(mine_a, i, kk)).collect();
            let right: Vec<_> = (0..columns / 2).flat_map(|j| mma.load_b_pair(mine_b, 2 * j, kk)).collect();
            for (row, a) in sums.iter_mut().zip(left) {
                for (sum, b) in row.iter_mut().zip(&right) {
                    *sum = mma.multiply(a, *b, *sum);
                }
            }
        }
        full = select(full == tile.stages - 1, 0, full + 1);
        free = select(free == tile.stages - 1, 0, free + 1);
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
