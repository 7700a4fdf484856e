// Matrix products of a warp: the wmma interface, mma.sync with ldmatrix, and a small product of tiles.
// ptx: tensor_sm80 13.0 compute_80
// ptx: tensor_sm90_lineinfo 13.4 compute_90 -lineinfo
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
typedef unsigned int u32;

__device__ u32 address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// c = a b, 16 x 16 x k, row-major a, column-major b.
extern "C" __global__ void wmma_half(const __half *a, const __half *b, float *c, int k)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int at = 0; at < k; at += 16) {
        wmma::load_matrix_sync(left, a + at, k);
        wmma::load_matrix_sync(right, b + at, k);
        wmma::mma_sync(sum, left, right, sum);
    }
    for (int i = 0; i < sum.num_elements; i++)
        sum.x[i] *= 0.5f;
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_tf32(const float *a, const float *b, float *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    wmma::fill_fragment(sum, 1.0f);
    wmma::load_matrix_sync(left, a, 8);
    wmma::load_matrix_sync(right, b, 16);
    for (int i = 0; i < left.num_elements; i++)
        left.x[i] = wmma::__float_to_tf32(left.x[i]);
    for (int i = 0; i < right.num_elements; i++)
        right.x[i] = wmma::__float_to_tf32(right.x[i]);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_col_major);
}

extern "C" __global__ void wmma_bytes(const signed char *a, const signed char *b, int *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
    wmma::fill_fragment(sum, 5);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_double(const double *a, const double *b, double *c)
{
    wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 8, 8, 4, double> sum;
    wmma::fill_fragment(sum, 0.0);
    wmma::load_matrix_sync(left, a, 4);
    wmma::load_matrix_sync(right, b, 4);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, 8, wmma::mem_row_major);
}

// The same kernel of bf16 through shared memory, with and without the barrier between filling and use.
template <bool sync> __device__ void through_shared(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c)
{
    __shared__ alignas(32) __nv_bfloat16 left_tile[16 * 24], right_tile[16 * 24];
    for (int i = threadIdx.x; i < 256; i += 64) {
        left_tile[i / 16 * 24 + i % 16] = a[i];
        right_tile[i / 16 * 24 + i % 16] = b[i];
    }
    if (sync)
        __syncthreads();
    if (threadIdx.x < 32) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> right;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
        wmma::fill_fragment(sum, 0.0f);
        wmma::load_matrix_sync(left, left_tile, 24);
        wmma::load_matrix_sync(right, right_tile, 24);
        wmma::mma_sync(sum, left, right, sum);
        wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
    }
}
extern "C" __global__ void wmma_shared(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c)
{
    through_shared<true>(a, b, c);
}
extern "C" __global__ void wmma_shared_missing_barrier(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c)
{
    through_shared<false>(a, b, c);
}

// c[m][n] = a[m][k] b[k][n] in tiles of 32 x 32 x 32, four warps of 16 x 16 each; ldmatrix, transposed for b.
template <bool second> __device__ void tiled(const __half *a, const __half *b, float *c, int m, int n, int k)
{
    __shared__ alignas(16) __half left[32][40], right[32][40];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    int row = blockIdx.y * 32, column = blockIdx.x * 32, at_row = warp / 2 * 16, at_column = warp % 2 * 16;
    float sum[2][4] = {};
    for (int step = 0; step < k; step += 32) {
        int r = t / 4, q = t % 4 * 8;
        *(uint4 *)&left[r][q] = *(const uint4 *)&a[(row + r) * k + step + q];
        *(uint4 *)&right[r][q] = *(const uint4 *)&b[(step + r) * n + column + q];
        __syncthreads();
        for (int kk = 0; kk < 32; kk += 16) {
            u32 x[4], y[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                         : "r"(address(&left[at_row + lane % 16][kk + lane / 16 * 8]))
                         : "memory");
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
                         : "r"(address(&right[kk + lane % 16][at_column + lane / 16 * 8]))
                         : "memory");
            for (int j = 0; j < 2; j++)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                             : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[2 * j]), "r"(y[2 * j + 1]));
        }
        if (second)
            __syncthreads();
    }
    for (int j = 0; j < 2; j++)
        for (int e = 0; e < 4; e++)
            c[(row + at_row + lane / 4 + e / 2 * 8) * n + column + at_column + j * 8 + lane % 4 * 2 + e % 2] = sum[j][e];
}
extern "C" __global__ void mma_product(const __half *a, const __half *b, float *c, int m, int n, int k)
{
    tiled<true>(a, b, c, m, n, k);
}
extern "C" __global__ void mma_product_missing_barrier(const __half *a, const __half *b, float *c, int m, int n, int k)
{
    tiled<false>(a, b, c, m, n, k);
}

// m16n8k32 of bytes, m16n8k8 of tf32, m16n8k16 of bf16 with half of the work done twice, straight from registers.
extern "C" __global__ void mma_bytes(const u32 *a, const u32 *b, int *c)
{
    int lane = threadIdx.x, group = lane / 4, quad = lane % 4, d[4] = {1, 2, 3, 4};
    u32 x[4] = {a[group * 8 + quad], a[(group + 8) * 8 + quad], a[group * 8 + quad + 4], a[(group + 8) * 8 + quad + 4]};
    u32 y[2] = {b[group * 8 + quad], b[group * 8 + quad + 4]};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int e = 0; e < 4; e++)
        c[(group + e / 2 * 8) * 8 + quad * 2 + e % 2] = d[e];
}

extern "C" __global__ void matrix_moves(const u32 *in, u32 *out)
{
    u32 v;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(v) : "r"(in[threadIdx.x]));
    out[threadIdx.x] = v;
#if __CUDA_ARCH__ >= 900
    __shared__ alignas(16) u32 tile[32];
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address(&tile[threadIdx.x % 8 * 4])), "r"(v)
                 : "memory");
    __syncwarp();
    out[32 + threadIdx.x] = tile[threadIdx.x];
#endif
}
