// Warp primitives, and reductions through shared memory inside a warp, right and wrong.
// ptx: warp_sm80 13.0 compute_80
// ptx: warp_sm90_lineinfo 13.4 compute_90 -lineinfo
typedef unsigned int u32;

extern "C" __global__ void shuffle_sum(const float *in, float *out)
{
    float v = in[blockIdx.x * 32 + threadIdx.x];
    for (int step = 16; step; step /= 2)
        v += __shfl_down_sync(~0u, v, step);
    if (threadIdx.x == 0)
        out[blockIdx.x] = v;
}

extern "C" __global__ void shuffle_scan(const int *in, int *out)
{
    int lane = threadIdx.x & 31, i = blockIdx.x * blockDim.x + threadIdx.x, v = in[i];
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(~0u, v, step);
        if (lane >= step)
            v += other;
    }
    out[i] = v;
}

extern "C" __global__ void shuffle_segments(const double *in, double *out)
{
    int lane = threadIdx.x;
    double v = in[lane];
    v += __shfl_xor_sync(~0u, v, 3, 8);
    v += 2.0 * __shfl_sync(~0u, v, lane * 5, 16);
    v += __shfl_down_sync(~0u, v, 2, 4);
    out[lane] = v;
}

// Keeps the positive elements, in order; the count goes behind the last warp's share.
extern "C" __global__ void compact(const int *in, int *out, int *counts)
{
    int lane = threadIdx.x & 31, i = blockIdx.x * 32 + lane, v = in[i];
    u32 keep = __ballot_sync(~0u, v > 0);
    if (v > 0)
        out[blockIdx.x * 32 + __popc(keep & ((1u << lane) - 1))] = v;
    if (lane == 0)
        counts[blockIdx.x] = __popc(keep);
}

extern "C" __global__ void votes(const int *in, u32 *out)
{
    int lane = threadIdx.x, v = in[lane];
    u32 *o = out + lane * 6;
    o[0] = __match_any_sync(~0u, v);
    int same;
    o[1] = __match_all_sync(~0u, v / 1000, &same);
    o[2] = same;
    o[3] = __all_sync(~0u, v < 100) << 1 | __any_sync(~0u, v == 3);
    o[4] = __reduce_add_sync(~0u, v) ^ __reduce_max_sync(~0u, v);
    o[5] = __reduce_xor_sync(lane & 1 ? 0xaaaaaaaau : 0x55555555u, v);
}

extern "C" __global__ void divergent_masks(const int *in, u32 *out)
{
    int lane = threadIdx.x;
    u32 seen;
    if (in[lane] & 1) {
        seen = __activemask();
        __syncwarp(seen);
        seen = __ballot_sync(seen, lane & 2);
    } else {
        u32 mask = __activemask();
        seen = __shfl_sync(mask, 100 + lane, 31 - __clz(mask));
    }
    __syncwarp();
    out[lane] = seen;
}

template <bool sync> __device__ void reduce(const int *in, int *out, int *partial)
{
    int lane = threadIdx.x;
    partial[lane] = in[lane] + in[lane + 32];
    for (int step = 16; step; step /= 2) {
        if (sync)
            __syncwarp();
        int other = partial[(lane + step) & 31];
        if (sync)
            __syncwarp();
        partial[lane] += other;
    }
    out[lane] = partial[lane];
}

extern "C" __global__ void shared_reduction(const int *in, int *out)
{
    __shared__ int partial[32];
    reduce<true>(in, out, partial);
}

extern "C" __global__ void shared_reduction_unsynchronised(const int *in, int *out)
{
    __shared__ int partial[32];
    reduce<false>(in, out, partial);
}

// The idiom of before Volta: volatile shared memory and lockstep.
extern "C" __global__ void shared_reduction_volatile(const int *in, int *out)
{
    __shared__ volatile int partial[64];
    int lane = threadIdx.x;
    partial[lane] = in[lane];
    partial[lane + 32] = in[lane + 32];
    partial[lane] += partial[lane + 32];
    partial[lane] += partial[lane + 16];
    partial[lane] += partial[lane + 8];
    partial[lane] += partial[lane + 4];
    partial[lane] += partial[lane + 2];
    partial[lane] += partial[lane + 1];
    if (lane == 0)
        out[0] = partial[0];
}
