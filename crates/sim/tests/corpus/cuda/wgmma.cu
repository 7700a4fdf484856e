// Products of a warpgroup: operands stored by the threads themselves, or loaded by a producer through tensor maps.
// ptx: wgmma_sm90a 13.0 compute_90a
// ptx: wgmma_sm90a_lineinfo 13.4 compute_90a -lineinfo
#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap {
    u64 opaque[16];
};

__device__ u32 address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Rows of 128 bytes with the 128-byte swizzle, eight rows a kilobyte.
__device__ u64 descriptor(const void *tile)
{
    return (u64)((address(tile) & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}

#define ACCUMULATORS "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
// d += a b for 64 x 64 x 16; `turned`: b lies row by row of k.
template <int turned> __device__ void multiply(float (&d)[32], u64 a, u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " ACCUMULATORS ", %32, %33, 1, 1, 1, 0, %34;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "n"(turned));
}
__device__ void multiply_registers(float (&d)[32], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATORS ", {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int n> __device__ void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory"); }
__device__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ void write_tile(const float (&d)[32], float *c, int stride)
{
    int t = threadIdx.x % 128, lane = t % 32;
    for (int i = 0; i < 32; i++)
        c[(t / 32 * 16 + lane / 4 + i / 2 % 2 * 8) * stride + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}

// Writes a 64 x 64 tile of 16-bit elements into its swizzled place.
__device__ void fill(unsigned short *tile, const unsigned short *from, int stride)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < 64 * 8; i += 128) {
        int row = i / 8, chunk = i % 8;
        *(uint4 *)(tile + row * 64 + (chunk ^ row % 8) * 8) = *(const uint4 *)(from + row * stride + chunk * 8);
    }
}

// c[64][64] = a[64][k] b[64][k]', or b[k][64] if turned. bug 1: no proxy fence. 2: no wait. 3: no barrier before refilling.
template <int turned, int bug> __device__ void product(const unsigned short *a, const unsigned short *b, float *c, int k)
{
    __shared__ alignas(1024) unsigned short left[64 * 64], right[64 * 64];
    float d[32] = {};
#pragma unroll 1
    for (int at = 0; at < k; at += 64) {
        fill(left, a + at, k);
        if (turned)
            fill(right, b + at * 64, 64);
        else
            fill(right, b + at, k);
        if (bug != 1)
            proxy_fence();
        __syncthreads();
        group_fence();
        for (int step = 0; step < 4; step++)
            multiply<turned>(d, descriptor(left + step * 16), descriptor(turned ? right + step * 16 * 64 : right + step * 16));
        group_commit();
        if (bug != 2)
            group_wait<0>();
        if (bug != 3)
            __syncthreads();
    }
    write_tile(d, c, 64);
}
#define PRODUCT(name, turned, bug) \
    extern "C" __global__ void __launch_bounds__(128) name(const unsigned short *a, const unsigned short *b, float *c, int k) \
    { \
        product<turned, bug>(a, b, c, k); \
    }
PRODUCT(group_product, 0, 0)
PRODUCT(group_product_turned, 1, 0)
PRODUCT(group_product_no_proxy_fence, 0, 1)
PRODUCT(group_product_no_wait, 0, 2)
PRODUCT(group_product_missing_barrier, 0, 3)

// The left operand in registers, 64 x 16 of it; the right one 64 x 64, of which the first 16 columns are used.
extern "C" __global__ void __launch_bounds__(128) group_product_registers(const u32 *a, const unsigned short *b, float *c)
{
    __shared__ alignas(1024) unsigned short right[64 * 64];
    int t = threadIdx.x, lane = t % 32, row = t / 32 * 16 + lane / 4, pair = lane % 4;
    u32 x[4] = {a[row * 8 + pair], a[(row + 8) * 8 + pair], a[row * 8 + pair + 4], a[(row + 8) * 8 + pair + 4]};
    float d[32] = {};
    fill(right, b, 64);
    proxy_fence();
    __syncthreads();
    group_fence();
    multiply_registers(d, x, descriptor(right));
    group_commit();
    group_wait<0>();
    write_tile(d, c, 64);
}

__device__ void barrier_init(u64 *barrier, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count) : "memory");
}
__device__ void barrier_wait(u64 *barrier, u32 parity)
{
    asm volatile("{\n\t.reg .pred done;\n\twaiting:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@done bra.uni finished;\n\tbra.uni waiting;\n\tfinished:\n\t}" ::"r"(address(barrier)),
                 "r"(parity)
                 : "memory");
}
__device__ void tensor_load(void *to, const TensorMap *map, int x, int y, u64 *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
                     address(to)),
                 "l"(map), "r"(address(barrier)), "r"(x), "r"(y)
                 : "memory");
}

// A producer warpgroup with few registers, a consumer with many, three stages between them. bug 1: a stage is given back
// while the product still reads it. 2: the consumer does not wait for the load. 3: the bytes announced are too few. 4: the
// producer starts with the parity of a consumer.
template <int bug> __device__ void specialised(const TensorMap *left, const TensorMap *right, float *c, int n, int k)
{
    extern __shared__ __align__(1024) unsigned char stages[];
    __shared__ alignas(8) u64 full[3], empty[3];
    unsigned short *ring = (unsigned short *)stages;
    int rounds = k / 64;
    if (threadIdx.x == 0) {
        for (int s = 0; s < 3; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0)
#pragma unroll 1
            for (int r = 0; r < rounds; r++) {
                int s = r % 3;
                barrier_wait(&empty[s], (r / 3 & 1) ^ (bug == 4 ? 0 : 1));
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&full[s])),
                             "r"(bug == 3 ? 8192 : 16384)
                             : "memory");
                tensor_load(ring + s * 8192, left, r * 64, blockIdx.y * 64, &full[s]);
                tensor_load(ring + s * 8192 + 4096, right, r * 64, blockIdx.x * 64, &full[s]);
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
        float d[32] = {};
#pragma unroll 1
        for (int r = 0; r < rounds; r++) {
            int s = r % 3;
            if (bug != 2)
                barrier_wait(&full[s], r / 3 & 1);
            group_fence();
            for (int step = 0; step < 4; step++)
                multiply<0>(d, descriptor(ring + s * 8192 + step * 16), descriptor(ring + s * 8192 + 4096 + step * 16));
            group_commit();
            if (bug != 1)
                group_wait<0>();
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&empty[s])) : "memory");
        }
        group_wait<0>();
        write_tile(d, c + blockIdx.y * 64 * n + blockIdx.x * 64, n);
    }
}
#define SPECIALISED(name, bug) \
    extern "C" __global__ void __launch_bounds__(256, 1) name(const __grid_constant__ TensorMap left, \
                                                              const __grid_constant__ TensorMap right, float *c, int n, int k) \
    { \
        specialised<bug>(&left, &right, c, n, k); \
    }
SPECIALISED(pipelined_product, 0)
SPECIALISED(pipelined_product_released_early, 1)
SPECIALISED(pipelined_product_no_wait, 2)
SPECIALISED(pipelined_product_too_few_bytes, 3)
SPECIALISED(pipelined_product_wrong_parity, 4)
