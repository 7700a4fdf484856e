// Things that go wrong, one a kernel, and the calls of the device runtime that say so.
// ptx: faults_sm80 13.0 compute_80
// ptx: faults_sm90_lineinfo 13.4 compute_90 -lineinfo
#include <cuda/std/cassert>
extern "C" __device__ int printf(const char *, ...);
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void prints(int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 40 == 7)
        printf("thread %d of %u: %s %.3f %c|%5d|%-4d|%llx%%\n", i, gridDim.x * blockDim.x, i > n ? "late" : "early", i * 0.25, 'a' + i % 26,
               i, -i, (u64)i << 36);
}

extern "C" __global__ void asserts(const int *in, int *out)
{
    int i = threadIdx.x;
    assert(in[i] >= 0 && "negative");
    out[i] = in[i];
}

extern "C" __global__ void traps(const int *in, int *out)
{
    if (in[threadIdx.x] < 0)
        __trap();
    out[threadIdx.x] = in[threadIdx.x];
}

extern "C" __global__ void off_by_one(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        out[i] = in[i];
}

extern "C" __global__ void reads_before(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] - in[i - 1];
}

extern "C" __global__ void null_pointer(const float *in, float *out)
{
    out[threadIdx.x] = in[threadIdx.x];
}

extern "C" __global__ void shared_overrun(const int *in, int *out)
{
    extern __shared__ int stage[];
    stage[threadIdx.x + 1] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x > 0)
        out[threadIdx.x] = stage[threadIdx.x];
}

extern "C" __global__ void local_overrun(const int *in, int *out)
{
    int own[8];
    for (int k = 0; k < 8; k++)
        own[k] = k * in[threadIdx.x];
    out[threadIdx.x] = own[in[threadIdx.x]];
}

extern "C" __global__ void misaligned(const float *in, float4 *out)
{
    out[threadIdx.x] = *(const float4 *)(in + 4 * threadIdx.x + 1);
}

extern "C" __global__ void atomic_outside(u32 *bins, const u32 *in)
{
    atomicAdd(&bins[in[threadIdx.x]], 1);
}

extern "C" __global__ void shared_never_written(int *out)
{
    __shared__ int stage[64];
    if (threadIdx.x < 63)
        stage[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = stage[threadIdx.x];
}

extern "C" __global__ void everybody_writes(int *out)
{
    out[0] = threadIdx.x;
}

// Busy, and without a way out: nobody sets the flag.
extern "C" __global__ void endless(const int *flag, int *out)
{
    int i = 0;
    while (*flag == 0) {
        out[0] = i++;
    }
    out[0] = -1;
}

// Nobody ever sets the flag.
extern "C" __global__ void lost_producer(int *flag, int *out)
{
    if (threadIdx.x == 0)
        while (*(volatile int *)flag == 0) {
        }
    __syncthreads();
    out[threadIdx.x] = *flag;
}

// Takes two locks in an order that depends on the block.
extern "C" __global__ void embrace(int *locks, int *met, int *out)
{
    if (threadIdx.x == 0) {
        int first = blockIdx.x & 1;
        while (atomicCAS(&locks[first], 0, 1) != 0) {
        }
        __threadfence();
        atomicAdd(met, 1);
        while (*(volatile int *)met < 2) {
        }
        while (atomicCAS(&locks[first ^ 1], 0, 1) != 0) {
        }
        out[blockIdx.x] = 1;
        atomicExch(&locks[first ^ 1], 0);
        atomicExch(&locks[first], 0);
    }
}

// A barrier for 40 threads: not a multiple of the warp.
extern "C" __global__ void barrier_odd_count(int *out, int threads)
{
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
    out[threadIdx.x] = 1;
}

extern "C" __global__ void barrier_no_such(int *out, int id)
{
    asm volatile("bar.sync %0;" ::"r"(id) : "memory");
    out[threadIdx.x] = 1;
}

extern "C" __global__ void much_shared(int *out)
{
    extern __shared__ int stage[];
    stage[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = stage[threadIdx.x ^ 1];
}

#if __CUDA_ARCH__ >= 900
__device__ u32 address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// offset and bytes as given: both must be multiples of 16, and the range inside the buffer.
extern "C" __global__ void bulk_range(const char *in, char *out, u32 offset, u32 bytes)
{
    __shared__ alignas(128) char stage[1024];
    __shared__ alignas(8) u64 barrier;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barrier)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&barrier)), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(stage)),
                     "l"(in + offset), "r"(bytes), "r"(address(&barrier))
                     : "memory");
    }
    __syncthreads();
    asm volatile("{\n\t.reg .pred done;\n\twaiting:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n\t"
                 "@!done bra waiting;\n\t}" ::"r"(address(&barrier))
                 : "memory");
    for (u32 i = threadIdx.x; i < bytes; i += blockDim.x)
        out[i] = stage[i];
}
#endif
