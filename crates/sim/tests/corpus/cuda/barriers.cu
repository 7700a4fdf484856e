// Barriers other than the plain one: named, divided between producers and consumers, over tiles and over the grid.
// ptx: barriers_sm80 13.0 compute_80
// ptx: barriers_sm90 13.4 compute_90
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
typedef unsigned int u32;

__device__ void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// The two halves of a block work on their own, each behind a barrier of its own.
extern "C" __global__ void halves(const int *in, int *out)
{
    __shared__ int values[128];
    int t = threadIdx.x, half = t / 64, own = t % 64;
    for (int round = 0; round < 3 + half; round++) {
        values[t] = in[t] + round;
        named_sync(1 + half, 64);
        int v = values[half * 64 + 63 - own];
        named_sync(1 + half, 64);
        if (round == 2 + half)
            out[t] = v;
    }
}

// Warp 0 fills slots, warps 1 and 2 use them. Barriers 1 and 2 say that a slot is full, 3 and 4 that it is free again.
template <int bug> __device__ void ring(const int *in, int *out, int rounds)
{
    __shared__ int slots[2][64];
    int warp = threadIdx.x / 32, t = threadIdx.x % 32;
    if (warp == 0) {
        for (int r = 0; r < rounds; r++) {
            int slot = r & 1;
            if (r >= 2 && bug != 3)
                named_sync(3 + slot, 96);
            slots[slot][t] = in[r * 64 + t];
            slots[slot][t + 32] = in[r * 64 + 32 + t];
            if (bug != 1 || r != 2)
                named_arrive(1 + slot, 96);
        }
    } else {
        int sum = 0;
        for (int r = 0; r < rounds; r++) {
            int slot = r & 1;
            named_sync(1 + slot, bug == 2 ? 128 : 96);
            sum += slots[slot][(warp - 1) * 32 + 31 - t] * (r + 1);
            if (r + 2 < rounds && bug != 3)
                named_arrive(3 + slot, 96);
        }
        out[(warp - 1) * 32 + t] = sum;
    }
}
extern "C" __global__ void producer_consumer(const int *in, int *out, int rounds) { ring<0>(in, out, rounds); }
extern "C" __global__ void producer_consumer_missing_arrive(const int *in, int *out, int rounds) { ring<1>(in, out, rounds); }
extern "C" __global__ void producer_consumer_wrong_count(const int *in, int *out, int rounds) { ring<2>(in, out, rounds); }
extern "C" __global__ void producer_consumer_no_release(const int *in, int *out, int rounds) { ring<3>(in, out, rounds); }

extern "C" __global__ void barrier_votes(const int *in, int *out)
{
    int t = threadIdx.x, odd = in[t] & 1;
    out[4 * t] = __syncthreads_count(odd);
    out[4 * t + 1] = __syncthreads_and(in[t] >= 0) != 0;
    out[4 * t + 2] = __syncthreads_or(in[t] > 90) != 0;
    out[4 * t + 3] = t;
}

extern "C" __global__ void divergent_barrier(const int *in, int *out)
{
    __shared__ int values[64];
    int t = threadIdx.x;
    values[t] = in[t];
    if (t < 48)
        __syncthreads();
    out[t] = values[63 - t];
}

// Both sides have a barrier, but not the same one: undefined for an aligned barrier inside a warp.
extern "C" __global__ void two_barriers_in_one_warp(const int *in, int *out)
{
    __shared__ int values[64];
    int t = threadIdx.x;
    values[t] = in[t];
    if (in[t] & 1) {
        asm volatile("bar.sync 0;" ::: "memory");
        out[t] = values[63 - t];
    } else {
        asm volatile("bar.sync 0;" ::: "memory");
        out[t] = -values[63 - t];
    }
}

// The unaligned form may stand in divergent code.
extern "C" __global__ void unaligned_barriers(const int *in, int *out)
{
    __shared__ int values[64];
    int t = threadIdx.x;
    values[t] = in[t];
    if (in[t] & 1) {
        asm volatile("barrier.sync 0;" ::: "memory");
        out[t] = values[63 - t];
    } else {
        asm volatile("barrier.sync 0;" ::: "memory");
        out[t] = -values[63 - t];
    }
}

extern "C" __global__ void tiles(const float *in, float *out)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    float v = in[block.thread_rank()];
    for (int step = tile.size() / 2; step; step /= 2)
        v += tile.shfl_xor(v, step);
    tile.sync();
    if (tile.thread_rank() == 0)
        out[block.thread_rank() / 8] = v;
    block.sync();
}

extern "C" __global__ void coalesced(const int *in, int *out, int *counter)
{
    int t = threadIdx.x;
    if (in[t] % 3 == 0) {
        cg::coalesced_group group = cg::coalesced_threads();
        int base = 0;
        if (group.thread_rank() == 0)
            base = atomicAdd(counter, (int)group.size());
        base = group.shfl(base, 0);
        out[base + group.thread_rank()] = in[t];
    }
}

// Needs a cooperative launch: all blocks present at once.
extern "C" __global__ void grid_sync(int *data, int *out)
{
    cg::grid_group grid = cg::this_grid();
    int i = grid.thread_rank(), n = grid.size();
    data[i] = i * 3;
    grid.sync();
    out[i] = data[n - 1 - i];
}

// The same by hand: a counter that every block's first thread raises and watches.
template <bool fences> __device__ void by_hand(int *data, int *out, u32 *arrived)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    data[i] = i * 3;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (fences)
            __threadfence();
        atomicAdd(arrived, 1);
        while (*(volatile u32 *)arrived < gridDim.x) {
        }
        if (fences)
            __threadfence();
    }
    __syncthreads();
    out[i] = data[n - 1 - i];
}
extern "C" __global__ void grid_barrier(int *data, int *out, u32 *arrived) { by_hand<true>(data, out, arrived); }
extern "C" __global__ void grid_barrier_unfenced(int *data, int *out, u32 *arrived) { by_hand<false>(data, out, arrived); }
