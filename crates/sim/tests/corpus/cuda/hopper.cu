// Hopper: bulk copies, tensor maps, clusters.
// ptx: hopper_sm90 13.0 compute_90
// ptx: hopper_sm90_lineinfo 13.4 compute_90 -lineinfo
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <cuda/barrier>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap {
    u64 opaque[16];
};

__device__ u32 address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void barrier_init(u64 *barrier, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count) : "memory");
}
__device__ void expect(u64 *barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(u64 *barrier, u32 parity)
{
    asm volatile("{\n\t.reg .pred done;\n\twaiting:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra waiting;\n\t}" ::"r"(address(barrier)),
                 "r"(parity)
                 : "memory");
}
__device__ void bulk_load(void *to, const void *from, u32 bytes, u64 *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)),
                 "l"(from), "r"(bytes), "r"(address(barrier))
                 : "memory");
}
__device__ void bulk_store(void *to, const void *from, u32 bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(address(from)), "r"(bytes) : "memory");
}
__device__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ void store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ void init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// A bulk copy in; `announced` says how many of the 1024 bytes the barrier is told of.
template <int announced, bool waits> __device__ void load(const float *in, float *out)
{
    __shared__ alignas(128) float stage[256];
    __shared__ alignas(8) u64 barrier;
    int t = threadIdx.x;
    if (t == 0) {
        barrier_init(&barrier, 1);
        init_fence();
    }
    __syncthreads();
    if (t == 0) {
        expect(&barrier, announced);
        bulk_load(stage, in + blockIdx.x * 256, 1024, &barrier);
    }
    if (waits)
        wait(&barrier, 0);
    out[blockIdx.x * 256 + t] = stage[255 - t];
}
extern "C" __global__ void bulk_in(const float *in, float *out) { load<1024, true>(in, out); }
extern "C" __global__ void bulk_in_too_few(const float *in, float *out) { load<512, true>(in, out); }
extern "C" __global__ void bulk_in_too_many(const float *in, float *out) { load<2048, true>(in, out); }
extern "C" __global__ void bulk_in_no_wait(const float *in, float *out) { load<1024, false>(in, out); }

// A bulk copy out. bug 1: no proxy fence. 2: the buffer is changed before it was read. 3: no barrier.
template <int bug> __device__ void store(const float *in, float *out)
{
    __shared__ alignas(128) float stage[256];
    int t = threadIdx.x;
    for (int round = 0; round < 2; round++) {
        stage[t] = in[round * 256 + t] * 2.0f;
        if (bug != 1)
            proxy_fence();
        if (bug != 3)
            __syncthreads();
        if (t == 0) {
            bulk_store(out + round * 256, stage, 1024);
            store_commit();
            if (bug != 2)
                store_wait_read();
        }
        __syncthreads();
    }
    if (t == 0)
        store_wait();
}
extern "C" __global__ void bulk_out(const float *in, float *out) { store<0>(in, out); }
extern "C" __global__ void bulk_out_no_proxy_fence(const float *in, float *out) { store<1>(in, out); }
extern "C" __global__ void bulk_out_overwritten(const float *in, float *out) { store<2>(in, out); }
extern "C" __global__ void bulk_out_missing_barrier(const float *in, float *out) { store<3>(in, out); }

extern "C" __global__ void bulk_reduce(const float *in, float *sums)
{
    __shared__ alignas(128) float stage[256];
    stage[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
    proxy_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(sums), "r"(address(stage)),
                     "r"(1024)
                     : "memory");
        store_commit();
        store_wait();
    }
}

// The library's own wrappers.
extern "C" __global__ void library_barrier(const int *in, int *out)
{
    __shared__ alignas(128) int stage[128];
    __shared__ alignas(8) u64 barrier;
    u32 parity = 0;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&barrier, blockDim.x);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    for (int round = 0; round < 3; round++) {
        if (threadIdx.x == 0) {
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage, in + round * 128, 512, &barrier);
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier, 512);
        } else {
            ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier);
        }
        while (!ptx::mbarrier_try_wait_parity(&barrier, parity)) {
        }
        parity ^= 1;
        out[round * 128 + threadIdx.x] = stage[threadIdx.x ^ 3];
        __syncthreads();
    }
}

__device__ void tensor_load(void *to, const TensorMap *map, int x, int y, u64 *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                     "r"(address(to)),
                 "l"(map), "r"(x), "r"(y), "r"(address(barrier))
                 : "memory");
}
__device__ void tensor_store(const TensorMap *map, int x, int y, const void *from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y),
                 "r"(address(from))
                 : "memory");
}

// A 32 x 32 tile of floats in, transposed in registers, out through the second map. bug 1: no proxy fence before the store.
template <int bug> __device__ void turn(const TensorMap *from, const TensorMap *to)
{
    __shared__ alignas(128) float tile[32][32], turned[32][32];
    __shared__ alignas(8) u64 barrier;
    int t = threadIdx.x;
    if (t == 0) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(from) : "memory");
        barrier_init(&barrier, 1);
        init_fence();
    }
    __syncthreads();
    if (t == 0) {
        expect(&barrier, 4096);
        tensor_load(tile, from, blockIdx.x * 32, blockIdx.y * 32, &barrier);
    }
    wait(&barrier, 0);
    for (int i = t; i < 1024; i += blockDim.x)
        turned[i % 32][i / 32] = tile[i / 32][i % 32];
    if (bug != 1)
        proxy_fence();
    __syncthreads();
    if (t == 0) {
        tensor_store(to, blockIdx.y * 32, blockIdx.x * 32, turned);
        store_commit();
        store_wait();
    }
}
extern "C" __global__ void tensor_transpose(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to)
{
    turn<0>(&from, &to);
}
extern "C" __global__ void tensor_transpose_no_proxy_fence(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to)
{
    turn<1>(&from, &to);
}

// A box of 16 rows of 64 halves with the 128-byte swizzle, read back by hand; it may hang over the edge of the tensor.
extern "C" __global__ void tensor_swizzle(const __grid_constant__ TensorMap map, unsigned short *out, int x, int y)
{
    __shared__ alignas(1024) unsigned short tile[16 * 64];
    __shared__ alignas(8) u64 barrier;
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&barrier, 2048);
        tensor_load(tile, &map, x, y, &barrier);
    }
    wait(&barrier, 0);
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
        int row = i / 64, column = i % 64;
        out[i] = tile[row * 64 + (((column / 8) ^ (row % 8)) * 8 | column % 8)];
    }
}

// Each block of a cluster adds up its share, then reads the others' sums. bug 1: no barrier before reading. 2: a block may
// be gone while its memory is read. 3: rank 1 leaves at once.
template <int bug> __device__ void cluster_total(const int *in, int *out)
{
    __shared__ int sum;
    cg::cluster_group cluster = cg::this_cluster();
    int t = threadIdx.x, rank = cluster.block_rank();
    if (bug == 3 && rank == 1)
        return;
    if (t == 0)
        sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + t]);
    if (bug != 1)
        cluster.sync();
    else
        __syncthreads();
    if (t == 0) {
        int total = 0;
        for (int r = 0; r < cluster.num_blocks(); r++)
            total += *cluster.map_shared_rank(&sum, r) * (r + 1);
        out[blockIdx.x] = total;
    }
    if (bug != 2)
        cluster.sync();
}
extern "C" __global__ void cluster_sum(const int *in, int *out) { cluster_total<0>(in, out); }
extern "C" __global__ void cluster_sum_missing_sync(const int *in, int *out) { cluster_total<1>(in, out); }
extern "C" __global__ void cluster_sum_leaves_early(const int *in, int *out) { cluster_total<2>(in, out); }
extern "C" __global__ void cluster_sum_absent_block(const int *in, int *out) { cluster_total<3>(in, out); }

extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_dims(const int *in, int *out)
{
    __shared__ int stage[64];
    u32 rank, peer, value;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    stage[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address(&stage[63 - threadIdx.x])), "r"(rank ^ 1));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(peer) : "memory");
    out[blockIdx.x * 64 + threadIdx.x] = value;
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

// Rank 0 loads a tile into both blocks of the cluster at once.
extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast(const __grid_constant__ TensorMap map, float *out)
{
    __shared__ alignas(128) float tile[32][32];
    __shared__ alignas(8) u64 barrier;
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        init_fence();
        expect(&barrier, 4096);
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x == 0 && rank == 0)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(tile)),
                     "l"(&map), "r"(0), "r"((int)blockIdx.x / 2 * 32), "r"(address(&barrier)), "h"((short)3)
                     : "memory");
    wait(&barrier, 0);
    for (int i = threadIdx.x; i < 1024; i += blockDim.x)
        out[blockIdx.x * 1024 + i] = tile[i / 32][i % 32] + rank;
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

// A bulk copy from one block's shared memory into the other's, which waits on its own barrier.
extern "C" __global__ void __cluster_dims__(2, 1, 1) push(const int *in, int *out)
{
    __shared__ alignas(128) int own[64], received[64];
    __shared__ alignas(8) u64 barrier;
    u32 rank, to, remote;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        init_fence();
        expect(&barrier, 256);
    }
    own[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x] * 3;
    proxy_fence();
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x == 0) {
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address(received)), "r"(rank ^ 1));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address(&barrier)), "r"(rank ^ 1));
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                     "r"(address(own)), "r"(256), "r"(remote)
                     : "memory");
    }
    wait(&barrier, 0);
    out[blockIdx.x * 64 + threadIdx.x] = received[threadIdx.x];
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}
