//! Step 11, clusters: two blocks compute two tiles with the same columns; each fetches half of the tile of `b` and the copy engine
//! delivers it to both.

use tilewright_lang::prelude::*;

use super::persistent::place;
use crate::examples::GemmTile;

/// Blocks of a cluster.
const BLOCKS: u32 = 2;

/// `c = a * b^T`, a result of `rows` times `columns` *pairs* of tiles, one above the other. Any number of clusters.
#[kernel(threads = 384, min_blocks = 1, cluster = (BLOCKS, 1, 1))]
pub fn ladder_cluster(
    a: TensorMap<bf16>,
    b: TensorMap<bf16>,
    c: TensorMap<bf16>,
    rows: Val<u32>,
    columns: Val<u32>,
    steps: Val<u32>,
    tile: GemmTile,
) {
    let loader = Role { name: "loader", warps: 0..4, registers: Some(40) };
    let math = Role { name: "math", warps: 4..12, registers: Some(232) };

    let ring_a = Ring::<bf16>::new(tile.stages, k_major::<bf16>(tile.m, tile.k, SwizzleMode::B128));
    let ring_b = Ring::<bf16>::new(tile.stages, k_major::<bf16>(tile.n, tile.k, SwizzleMode::B128));
    let result = Shared::<bf16>::new(k_major::<bf16>(tile.m, tile.n, SwizzleMode::B128));
    // A slot is free when both warpgroups of both blocks have let go of it: a copy fills it in both.
    let pipe = Pipeline::new(tile.stages, 2 * BLOCKS);
    let (pairs, rank) = (rows * columns, cluster_rank());
    cluster_barrier();

    role(&loader, || {
        if warp_id() == 0 && elect() {
            let both = CopyOptions::new().multicast(0b11);
            let mut slot = pipe.producer();
            for index in (cluster_id(0)..pairs).step_by(cluster_grid_size(0)) {
                let (row, column) = place(index, rows, columns);
                let (top, left) =
                    ((row * BLOCKS + rank) * tile.m, column * tile.n + rank * (tile.n / BLOCKS));
                for step in 0..steps {
                    // This block's tile of `a`, and both halves of the tile of `b`.
                    let full = pipe.acquire(slot, (tile.m + tile.n) * tile.k * 2);
                    let half = ring_b.at(slot.index).row_block(rank, tile.n / BLOCKS);
                    a.load(top, step * tile.k, ring_a.at(slot.index), full);
                    b.load_with(left, step * tile.k, half, full, both);
                    slot = slot.next();
                }
            }
        }
    });

    role(&math, || {
        let group = warpgroup_id() - 1;
        let thread = thread_id(0) % 128;
        let together = NamedBarrier::new(group + 1, 128);
        let mine = result.row_block(group, tile.m / 2);
        let mut slot = pipe.consumer();
        for index in (cluster_id(0)..pairs).step_by(cluster_grid_size(0)) {
            let sums = Accumulator::<f32>::new(tile.m / 2, tile.n);
            let mut before = slot;
            for step in 0..steps {
                pipe.wait(slot);
                let my_rows = ring_a.at(slot.index).row_block(group, tile.m / 2);
                sums.multiply(my_rows, ring_b.at(slot.index), step > 0);
                sums.wait(1);
                // One thread tells each block.
                if step > 0 && thread < BLOCKS {
                    pipe.release_in_block(before, thread);
                }
                before = slot;
                slot = slot.next();
            }
            let parts = sums.finish();
            if thread < BLOCKS {
                pipe.release_in_block(before, thread);
            }
            if thread == 0 {
                bulk_wait_read(0);
            }
            together.wait();

            for (i, part) in (0u32..).zip(parts) {
                part.cast::<bf16>().store_matrix(mine.row_block(i, 64));
            }
            fence_async();
            together.wait();
            if thread == 0 {
                let (row, column) = place(index, rows, columns);
                let top = (row * BLOCKS + rank) * tile.m + group * (tile.m / 2);
                c.store(top, column * tile.n, mine);
                bulk_commit();
            }
        }
        if thread == 0 {
            bulk_wait(0);
        }
    });

    // A block's shared memory must outlive what its neighbour sends there.
    cluster_barrier();
}
