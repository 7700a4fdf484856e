// What the other files leave out: special registers, library collectives, wide atomics, remote barriers, more of TMA.
// ptx: extras_sm90 13.0 compute_90
// ptx: extras_sm90_lineinfo 13.4 compute_90 -lineinfo
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/atomic>
#include <cuda/pipeline>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap {
    u64 opaque[16];
};

__device__ u32 address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

#define REGISTER(name, to) asm volatile("mov.u32 %0, %%" name ";" : "=r"(to))
extern "C" __global__ void special_registers(u32 *out)
{
    extern __shared__ int unused[];
    u32 *o = out + 12 * ((blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x);
    REGISTER("laneid", o[0]);
    REGISTER("lanemask_lt", o[1]);
    REGISTER("lanemask_ge", o[2]);
    REGISTER("ntid.y", o[3]);
    REGISTER("nctaid.x", o[4]);
    REGISTER("dynamic_smem_size", o[5]);
    REGISTER("cluster_nctarank", o[6]);
    u32 sm, count, leader;
    REGISTER("smid", sm);
    REGISTER("nsmid", count);
    o[7] = sm < count;
    long long before = clock64();
    __nanosleep(100);
    o[8] = clock64() > before;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(leader));
    o[9] = __popc(__ballot_sync(~0u, leader));
    asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
    o[10] = threadIdx.y;
    o[11] = blockIdx.y;
}

extern "C" __global__ void library_collectives(const int *in, int *out)
{
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    auto small = cg::tiled_partition<4>(tile);
    int i = threadIdx.x, v = in[i];
    out[4 * i] = cg::reduce(tile, v, cg::plus<int>());
    out[4 * i + 1] = cg::reduce(small, v, cg::greater<int>());
    out[4 * i + 2] = cg::inclusive_scan(tile, v, cg::plus<int>());
    out[4 * i + 3] = cg::exclusive_scan(small, v, cg::plus<int>());
}

extern "C" __global__ void library_pipeline(const int *in, int *out)
{
    __shared__ int stage[2][64];
    auto pipe = cuda::make_pipeline();
    int t = threadIdx.x, sum = 0;
    pipe.producer_acquire();
    cuda::memcpy_async(&stage[0][t], in + t, sizeof(int), pipe);
    pipe.producer_commit();
    for (int r = 0; r < 4; r++) {
        if (r + 1 < 4) {
            pipe.producer_acquire();
            cuda::memcpy_async(&stage[(r + 1) & 1][t], in + (r + 1) * 64 + t, sizeof(int), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        __syncthreads();
        sum += stage[r & 1][63 - t] << r;
        pipe.consumer_release();
        __syncthreads();
    }
    out[t] = sum;
}

extern "C" __global__ void wide_atomics(const float4 *in, float4 *sums, unsigned short *lock, ulonglong2 *pair, __half *half_sum)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    atomicAdd(sums, in[i]);
    atomicAdd(half_sum, __float2half(0.25f));
    unsigned short before = atomicCAS(lock, (unsigned short)7, (unsigned short)(i + 100));
    if (before == 7)
        asm volatile("{\n\t.reg .b128 want, put, got;\n\t.reg .b64 low, high;\n\tmov.b128 want, {%1, %2};\n\tmov.b128 put, {%3, %4};\n\t"
                     "atom.global.relaxed.gpu.cas.b128 got, [%0], want, put;\n\t}" ::"l"(pair), "l"(1ull), "l"(2ull), "l"(30ull), "l"(40ull)
                     : "memory");
    cuda::atomic_ref<float, cuda::thread_scope_device> total(((float *)pair)[4]);
    total.fetch_add(1.0f, cuda::memory_order_relaxed);
}

__device__ void barrier_init(u64 *barrier, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(address(barrier)), "r"(count) : "memory");
}
__device__ void wait(u64 *barrier, u32 parity)
{
    asm volatile("{\n\t.reg .pred done;\n\twaiting:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra waiting;\n\t}" ::"r"(address(barrier)),
                 "r"(parity)
                 : "memory");
}
__device__ void cluster_barrier() { asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory"); }
__device__ u32 remote(const void *p, u32 rank)
{
    u32 to;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address(p)), "r"(rank));
    return to;
}

// Each thread writes a word into the other block and arrives at the other block's barrier. `ordered`: with release.
template <bool ordered> __device__ void signal(const int *in, int *out)
{
    __shared__ int received[64];
    __shared__ alignas(8) u64 barrier;
    u32 rank, t = threadIdx.x;
    REGISTER("cluster_ctarank", rank);
    if (t == 0)
        barrier_init(&barrier, 64);
    cluster_barrier();
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote(&received[63 - t], rank ^ 1)), "r"(in[blockIdx.x * 64 + t]) : "memory");
    if (ordered)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote(&barrier, rank ^ 1)) : "memory");
    else
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address(&barrier)) : "memory");
    wait(&barrier, 0);
    out[blockIdx.x * 64 + t] = received[t];
    cluster_barrier();
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) remote_arrive(const int *in, int *out) { signal<true>(in, out); }
// Everybody arrives at home, which says nothing about the other block's writes.
extern "C" __global__ void __cluster_dims__(2, 1, 1) remote_arrive_at_home(const int *in, int *out) { signal<false>(in, out); }

// Stores that count themselves at the barrier of their destination.
extern "C" __global__ void __cluster_dims__(2, 1, 1) asynchronous_stores(const int *in, int *out)
{
    __shared__ int received[64];
    __shared__ alignas(8) u64 barrier;
    u32 rank, t = threadIdx.x;
    REGISTER("cluster_ctarank", rank);
    if (t == 0) {
        barrier_init(&barrier, 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(address(&barrier)) : "memory");
    }
    cluster_barrier();
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(remote(&received[63 - t], rank ^ 1)),
                 "r"(in[blockIdx.x * 64 + t]), "r"(remote(&barrier, rank ^ 1))
                 : "memory");
    wait(&barrier, 0);
    out[blockIdx.x * 64 + t] = received[t];
    cluster_barrier();
}

// A box of 8 x 4 x 2 in, added to another place of another tensor.
extern "C" __global__ void tensor_reduce(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to)
{
    __shared__ alignas(128) int box[64];
    __shared__ alignas(8) u64 barrier;
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(address(&barrier)) : "memory");
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                         address(box)),
                     "l"(&from), "r"((int)blockIdx.x * 8), "r"(1), "r"(2), "r"(address(&barrier))
                     : "memory");
    }
    __syncthreads();
    wait(&barrier, 0);
    box[threadIdx.x] += 1000;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&to), "r"(0), "r"(0),
                     "r"(0), "r"(address(box))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
    }
}
