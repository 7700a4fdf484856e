//! Sums: within a thread, a warp, a block, a cluster, and over the grid by one atomic addition.

use tilewright_lang::prelude::*;

/// The sum of this thread's share of `x`: every `threads`-th group of four elements, and the rest one by one.
#[device]
fn thread_sum(x: Global<f32>, n: Val<u32>, first: Val<u32>, threads: Val<u32>) -> Val<f32> {
    let mut sum = Vector::splat(0.0f32, 4);
    for group in (first..n / 4).step_by(threads) {
        sum = sum + x.at(group.mul_wide(4)).load_vector(4);
    }
    let mut total = sum.sum();
    for i in (n / 4 * 4 + first..n).step_by(threads) {
        total += x.at(i).load();
    }
    total
}

/// The sum over the block, in every thread. `scratch` holds one value a warp.
#[device]
fn sum_over_block(value: Val<f32>, scratch: Shared<f32>, warps: u32) -> Val<f32> {
    let (warp, lane) = (warp_id(), lane_id());
    let sum = warp_sum(value);
    if lane == 0 {
        scratch.at([warp]).store(sum);
    }
    barrier();
    let mine = scratch.at([lane]).load_if(lane < warps, 0.0);
    warp_sum(mine)
}

/// Adds the sum of `x` to `out[0]`. `x` must be aligned to 16 bytes; any number of blocks.
#[kernel(threads = 32 * warps)]
pub fn block_sum(x: Global<f32>, out: Global<f32>, n: Val<u32>, warps: u32) {
    let scratch = Shared::<f32>::new("32:1");
    let block = 32 * warps;
    let first = block_id(0) * block + thread_id(0);
    let mine = thread_sum(x.aligned(16), n, first, grid_size(0) * block);
    let total = sum_over_block(mine, scratch, warps);
    if thread_id(0) == 0 {
        out.reduce_add(total);
    }
}

/// The same with one atomic addition a cluster: the blocks send their sums to the first one's shared memory.
#[kernel(threads = 32 * warps, cluster = (blocks, 1, 1))]
pub fn cluster_sum(x: Global<f32>, out: Global<f32>, n: Val<u32>, warps: u32, blocks: u32) {
    let scratch = Shared::<f32>::new("32:1");
    let sums = Shared::<f32>::new("16:1");
    // A block's shared memory exists once it runs: all say that they are here, and look back before the first reaches over.
    cluster_arrive_relaxed();
    let block = 32 * warps;
    let first = block_id(0) * block + thread_id(0);
    let mine = thread_sum(x.aligned(16), n, first, grid_size(0) * block);
    let total = sum_over_block(mine, scratch, warps);

    cluster_wait();
    if thread_id(0) == 0 {
        sums.at([cluster_rank()]).in_block(0u32).store(total);
    }
    cluster_barrier();
    if cluster_rank() == 0 && thread_id(0) == 0 {
        let mut sum = val(0.0f32);
        for rank in unroll(0..blocks) {
            sum += sums.at([rank]).load();
        }
        out.reduce_add(sum);
    }
}
