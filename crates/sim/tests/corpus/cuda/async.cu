// Asynchronous copies of Ampere: groups, pipelines of two and three stages, barriers in shared memory.
// ptx: async_sm80 13.0 compute_80
// ptx: async_sm90 13.4 compute_90
#include <cuda/barrier>
#include <cuda_pipeline.h>
typedef unsigned int u32;

__device__ void copy16(void *to, const void *from)
{
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n> __device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); }

// `stages` buffers, `stages - 1` copies ahead. pending: how many groups may be open when a stage is used; barrier: whether
// the others' copies are waited for, too; reuse: whether a stage is refilled before all have left it.
template <int stages, int pending, bool barrier, bool reuse>
__device__ void pipeline(const float4 *in, float *out, int rounds)
{
    __shared__ float4 ring[stages][64];
    int t = threadIdx.x;
    for (int s = 0; s < stages - 1; s++) {
        if (s < rounds)
            copy16(&ring[s][t], in + s * 64 + t);
        commit();
    }
    float sum = 0.0f;
    for (int r = 0; r < rounds; r++) {
        wait<pending>();
        if (barrier)
            __syncthreads();
        int ahead = reuse ? r + stages - 2 : r + stages - 1;
        if (r + stages - 1 < rounds)
            copy16(&ring[ahead % stages][t], in + (r + stages - 1) * 64 + t);
        commit();
        float4 v = ring[r % stages][63 - t];
        sum += v.x * 1.0f + v.y * 2.0f + v.z * 3.0f + v.w * 4.0f;
    }
    wait<0>();
    out[t] = sum;
}
extern "C" __global__ void two_stages(const float4 *in, float *out, int n) { pipeline<2, 0, true, false>(in, out, n); }
extern "C" __global__ void three_stages(const float4 *in, float *out, int n) { pipeline<3, 1, true, false>(in, out, n); }
extern "C" __global__ void three_stages_waits_too_little(const float4 *in, float *out, int n)
{
    pipeline<3, 2, true, false>(in, out, n);
}
extern "C" __global__ void three_stages_missing_barrier(const float4 *in, float *out, int n)
{
    pipeline<3, 1, false, false>(in, out, n);
}
extern "C" __global__ void three_stages_wrong_slot(const float4 *in, float *out, int n)
{
    pipeline<3, 1, true, true>(in, out, n);
}

// Never waits at all.
extern "C" __global__ void copy_never_awaited(const float4 *in, float4 *out)
{
    __shared__ float4 stage[32];
    copy16(&stage[threadIdx.x], in + threadIdx.x);
    commit();
    __syncthreads();
    out[threadIdx.x] = stage[threadIdx.x];
}

// The source size is smaller than the copy: the rest is filled with zeros.
extern "C" __global__ void zero_fill(const float *in, float4 *out, int n)
{
    __shared__ float4 stage[64];
    int t = threadIdx.x, left = max(0, min(16, (n - 4 * t) * 4));
    u32 at = (u32)__cvta_generic_to_shared(&stage[t]);
    const float *from = left ? in + 4 * t : in;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(left) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[t] = stage[63 - t];
}

extern "C" __global__ void pipeline_primitives(const int *in, int *out)
{
    __shared__ int stage[2][128];
    int t = threadIdx.x, sum = 0;
    __pipeline_memcpy_async(&stage[0][t], in + t, 4);
    __pipeline_commit();
    for (int r = 0; r < 4; r++) {
        if (r + 1 < 4)
            __pipeline_memcpy_async(&stage[(r + 1) & 1][t], in + (r + 1) * 128 + t, 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += stage[r & 1][t ^ 5] * (r + 1);
        __syncthreads();
    }
    out[t] = sum;
}

using Barrier = cuda::barrier<cuda::thread_scope_block>;

extern "C" __global__ void shared_barrier(const int *in, int *out)
{
    __shared__ Barrier barrier;
    __shared__ int values[128];
    int t = threadIdx.x;
    if (t == 0)
        init(&barrier, blockDim.x);
    __syncthreads();
    int v = in[t];
    for (int r = 0; r < 3; r++) {
        values[t] = v;
        Barrier::arrival_token token = barrier.arrive();
        int own = v * 3;
        barrier.wait(std::move(token));
        v = own + values[(t + 33) & 127];
        barrier.arrive_and_wait();
    }
    out[t] = v;
}

extern "C" __global__ void barrier_memcpy(const int *in, int *out)
{
    __shared__ Barrier barrier;
    __shared__ alignas(16) int values[128];
    int t = threadIdx.x;
    if (t == 0)
        init(&barrier, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(values + t, in + t, sizeof(int), barrier);
    barrier.arrive_and_wait();
    out[t] = values[127 - t];
}

__device__ u32 address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Producers and consumers through two barriers in shared memory. bug 1: the consumers' count is one too high. 2: the
// wait is for the wrong parity. 3: not initialised. 4: initialised without a barrier for the others to see it.
template <int bug> __device__ void exchange(const int *in, int *out, int rounds)
{
    __shared__ alignas(8) unsigned long long full, empty;
    __shared__ int stage[32];
    int warp = threadIdx.x / 32, t = threadIdx.x % 32;
    if (threadIdx.x == 0 && bug != 3) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(&full)), "r"(32) : "memory");
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(&empty)), "r"(bug == 1 ? 33 : 32) : "memory");
    }
    if (bug != 4)
        __syncthreads();
    u32 mine = warp == 0 ? address(&empty) : address(&full), theirs = warp == 0 ? address(&full) : address(&empty);
    for (int r = 0; r < rounds; r++) {
        u32 parity = warp == 0 ? (r & 1) ^ 1 : r & 1, done = 0;
        if (bug == 2 && warp == 1)
            parity ^= 1;
        if (warp == 1 || r > 0 || bug == 2)
            while (!done)
                asm volatile("{\n\t.reg .pred p;\n\tmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                             : "=r"(done)
                             : "r"(mine), "r"(parity)
                             : "memory");
        if (warp == 0)
            stage[t] = in[r * 32 + t] * 2;
        else
            out[r * 32 + t] = stage[31 - t];
        asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(theirs) : "memory");
    }
}
extern "C" __global__ void mbarrier_ring(const int *in, int *out, int n) { exchange<0>(in, out, n); }
extern "C" __global__ void mbarrier_wrong_count(const int *in, int *out, int n) { exchange<1>(in, out, n); }
extern "C" __global__ void mbarrier_wrong_parity(const int *in, int *out, int n) { exchange<2>(in, out, n); }
extern "C" __global__ void mbarrier_uninitialised(const int *in, int *out, int n) { exchange<3>(in, out, n); }
extern "C" __global__ void mbarrier_initialised_unseen(const int *in, int *out, int n) { exchange<4>(in, out, n); }
