//! A matrix product for Hopper: one warpgroup drives the copy engine, two drive the tensor cores.

use super::GemmTile;
use tilewright_lang::prelude::*;

/// `c = a * b^T` for row-major `a` (m, k) and `b` (n, k), `c` (m, n); one block computes one tile of 128 rows.
#[kernel(threads = 384, min_blocks = 1)]
pub fn gemm_hopper(
    a: TensorMap<bf16>,
    b: TensorMap<bf16>,
    c: TensorMap<bf16>,
    steps: Val<u32>,
    tile: GemmTile,
) {
    let loader = Role { name: "loader", warps: 0..4, registers: Some(40) };
    let math = Role { name: "math", warps: 4..12, registers: Some(232) };

    let ring_a = Ring::<bf16>::new(tile.stages, k_major::<bf16>(tile.m, tile.k, SwizzleMode::B128));
    let ring_b = Ring::<bf16>::new(tile.stages, k_major::<bf16>(tile.n, tile.k, SwizzleMode::B128));
    let result = Shared::<bf16>::new(k_major::<bf16>(tile.m, tile.n, SwizzleMode::B128));
    let pipe = Pipeline::new(tile.stages, 2);
    let (top, left) = (block_id(1) * tile.m, block_id(0) * tile.n);
    barrier();

    role(&loader, || {
        if warp_id() == 0 && elect() {
            let mut slot = pipe.producer();
            for step in 0..steps {
                let full = pipe.acquire(slot, (tile.m + tile.n) * tile.k * 2);
                a.load(top, step * tile.k, ring_a.at(slot.index), full);
                b.load(left, step * tile.k, ring_b.at(slot.index), full);
                slot = slot.next();
            }
        }
    });

    role(&math, || {
        let group = warpgroup_id() - 1;
        let first = thread_id(0) % 128 == 0;
        let sums = Accumulator::<f32>::new(tile.m / 2, tile.n);
        let mut slot = pipe.consumer();
        let mut before = slot;
        for step in 0..steps {
            pipe.wait(slot);
            let my_rows = ring_a.at(slot.index).row_block(group, tile.m / 2);
            sums.multiply(my_rows, ring_b.at(slot.index), step > 0);
            // One product stays in flight, so the slot of the one before can go.
            sums.wait(1);
            if step > 0 && first {
                pipe.release(before);
            }
            before = slot;
            slot = slot.next();
        }

        let mine = result.row_block(group, tile.m / 2);
        for (i, part) in (0u32..).zip(sums.finish()) {
            part.cast::<bf16>().store_matrix(mine.row_block(i, 64));
        }
        // The copy engine must see what the threads stored.
        fence_async();
        NamedBarrier::new(group + 1, 128).wait();
        if first {
            c.store(top + group * (tile.m / 2), left, mine);
            bulk_commit();
            bulk_wait(0);
        }
    });
}
