//! Step 8, Hopper's engines: one thread asks the copy engine for whole tiles, a warpgroup multiplies them straight from shared memory.

use tilewright_lang::prelude::*;

use crate::examples::GemmTile;

/// `c = a * b^T`. One warpgroup computes the block's tile; while it multiplies from one buffer, the other is being filled.
#[kernel(threads = 128)]
pub fn ladder_wgmma(
    a: TensorMap<bf16>,
    b: TensorMap<bf16>,
    c: TensorMap<bf16>,
    steps: Val<u32>,
    tile: GemmTile,
) {
    let ring_a = Ring::<bf16>::new(2, k_major::<bf16>(tile.m, tile.k, SwizzleMode::B128));
    let ring_b = Ring::<bf16>::new(2, k_major::<bf16>(tile.n, tile.k, SwizzleMode::B128));
    let result = Shared::<bf16>::new(k_major::<bf16>(tile.m, tile.n, SwizzleMode::B128));
    let arrived = Mbarrier::array(2, "arrived");
    let (top, left) = (block_id(1) * tile.m, block_id(0) * tile.n);
    let one = warp_id() == 0 && elect();
    let fetch = |step: Val<u32>| {
        let (buffer, arrived) = (step % 2, arrived.at(step % 2));
        arrived.arrive_and_expect((tile.m + tile.n) * tile.k * 2);
        a.load(top, step * tile.k, ring_a.at(buffer), arrived);
        b.load(left, step * tile.k, ring_b.at(buffer), arrived);
    };

    if one {
        arrived.at(0).init(1);
        arrived.at(1).init(1);
        fence_barrier_init();
    }
    barrier();
    if one {
        fetch(val(0));
    }

    let sums = Accumulator::<f32>::new(tile.m, tile.n);
    for step in 0..steps {
        // The product before has read its buffer, which can be filled again.
        sums.wait(0);
        if one && step + 1 < steps {
            fetch(step + 1);
        }
        // A buffer is filled every other step, so its barrier changes parity every other step.
        arrived.at(step % 2).wait(step / 2 % 2);
        sums.multiply(ring_a.at(step % 2), ring_b.at(step % 2), step > 0);
    }

    for (i, part) in (0u32..).zip(sums.finish()) {
        part.cast::<bf16>().store_matrix(result.row_block(i, 64));
    }
    // The copy engine must see what the threads stored.
    fence_async();
    barrier();
    if one {
        c.store(top, left, result);
        bulk_commit();
        bulk_wait(0);
    }
}
