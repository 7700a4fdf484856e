// Classic block algorithms, and the same with a barrier or an atomic left out.
// ptx: block_sm80 13.0 compute_80
// ptx: block_sm90_lineinfo 13.4 compute_90 -lineinfo
// ptx: block_sm70 12.8 compute_70
typedef unsigned int u32;

template <bool sync> __device__ void block_sum(const float *in, float *out)
{
    __shared__ float partial[256];
    int t = threadIdx.x;
    partial[t] = in[blockIdx.x * 256 + t];
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (t < step)
            partial[t] += partial[t + step];
        if (sync)
            __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = partial[0];
}
extern "C" __global__ void sum(const float *in, float *out) { block_sum<true>(in, out); }
extern "C" __global__ void sum_missing_barrier(const float *in, float *out) { block_sum<false>(in, out); }

extern "C" __global__ void two_level_sum(const float *in, float *out, int n)
{
    __shared__ float warps[32];
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v += in[i];
    for (int step = 16; step; step /= 2)
        v += __shfl_xor_sync(~0u, v, step);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.0f;
        for (int step = 16; step; step /= 2)
            v += __shfl_xor_sync(~0u, v, step);
        if (threadIdx.x == 0)
            out[blockIdx.x] = v;
    }
}

// One buffer for both sides of a step needs a barrier between reading and writing; two buffers in turn do not.
template <bool between> __device__ void scan_in_place(const int *in, int *out)
{
    __shared__ int values[128];
    int t = threadIdx.x;
    values[t] = in[blockIdx.x * 128 + t];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        int other = t >= step ? values[t - step] : 0;
        if (between)
            __syncthreads();
        values[t] += other;
        __syncthreads();
    }
    out[blockIdx.x * 128 + t] = values[t];
}
extern "C" __global__ void scan(const int *in, int *out) { scan_in_place<true>(in, out); }
extern "C" __global__ void scan_missing_barrier(const int *in, int *out) { scan_in_place<false>(in, out); }

extern "C" __global__ void scan_two_buffers(const int *in, int *out)
{
    __shared__ int values[2][128];
    int t = threadIdx.x, side = 0;
    values[0][t] = in[blockIdx.x * 128 + t];
    for (int step = 1; step < 128; step *= 2) {
        __syncthreads();
        values[side ^ 1][t] = values[side][t] + (t >= step ? values[side][t - step] : 0);
        side ^= 1;
    }
    out[blockIdx.x * 128 + t] = values[side][t];
}

extern "C" __global__ void blelloch(const int *in, int *out)
{
    __shared__ int values[256];
    int t = threadIdx.x, n = 256, offset = 1;
    values[2 * t] = in[2 * t];
    values[2 * t + 1] = in[2 * t + 1];
    for (int d = n / 2; d; d /= 2, offset *= 2) {
        __syncthreads();
        if (t < d)
            values[offset * (2 * t + 2) - 1] += values[offset * (2 * t + 1) - 1];
    }
    if (t == 0)
        values[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            int low = offset * (2 * t + 1) - 1, high = offset * (2 * t + 2) - 1, v = values[low];
            values[low] = values[high];
            values[high] += v;
        }
    }
    __syncthreads();
    out[2 * t] = values[2 * t];
    out[2 * t + 1] = values[2 * t + 1];
}

template <bool sync> __device__ void transposition(const float *in, float *out, int width, int height)
{
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    if (sync)
        __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width)
            out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void transpose(const float *in, float *out, int w, int h) { transposition<true>(in, out, w, h); }
extern "C" __global__ void transpose_missing_barrier(const float *in, float *out, int w, int h)
{
    transposition<false>(in, out, w, h);
}

template <bool atomic, bool zero_sync> __device__ void count(const u32 *in, u32 *out, int n)
{
    __shared__ u32 bins[64];
    if (threadIdx.x < 64)
        bins[threadIdx.x] = 0;
    if (zero_sync)
        __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (atomic)
            atomicAdd(&bins[in[i] & 63], 1);
        else
            bins[in[i] & 63]++;
    __syncthreads();
    if (threadIdx.x < 64)
        atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}
extern "C" __global__ void histogram(const u32 *in, u32 *out, int n) { count<true, true>(in, out, n); }
extern "C" __global__ void histogram_plain(const u32 *in, u32 *out, int n) { count<false, true>(in, out, n); }
extern "C" __global__ void histogram_zeroed_late(const u32 *in, u32 *out, int n) { count<true, false>(in, out, n); }

extern "C" __global__ void bitonic_sort(const int *in, int *out)
{
    __shared__ int values[256];
    int t = threadIdx.x;
    values[t] = in[blockIdx.x * 256 + t];
#pragma unroll 1
    for (int size = 2; size <= 256; size *= 2)
#pragma unroll 1
        for (int stride = size / 2; stride; stride /= 2) {
            __syncthreads();
            int other = t ^ stride;
            if (other > t && (values[t] > values[other]) == ((t & size) == 0)) {
                int v = values[t];
                values[t] = values[other];
                values[other] = v;
            }
        }
    __syncthreads();
    out[blockIdx.x * 256 + t] = values[t];
}

template <bool sync> __device__ void smooth(const float *in, float *out, int n)
{
    __shared__ float tile[128 + 4];
    int i = blockIdx.x * 128 + threadIdx.x, t = threadIdx.x + 2;
    tile[t] = in[i];
    if (threadIdx.x < 2) {
        tile[threadIdx.x] = i >= 2 ? in[i - 2] : 0.0f;
        tile[t + 128] = i + 128 < n ? in[i + 128] : 0.0f;
    }
    if (sync)
        __syncthreads();
    out[i] = 0.1f * tile[t - 2] + 0.2f * tile[t - 1] + 0.4f * tile[t] + 0.2f * tile[t + 1] + 0.1f * tile[t + 2];
}
extern "C" __global__ void stencil(const float *in, float *out, int n) { smooth<true>(in, out, n); }
extern "C" __global__ void stencil_missing_barrier(const float *in, float *out, int n) { smooth<false>(in, out, n); }

template <bool before, bool after>
__device__ void product(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[16][16], right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        if (before)
            __syncthreads();
        for (int j = 0; j < 16; j++)
            sum += left[threadIdx.y][j] * right[j][threadIdx.x];
        if (after)
            __syncthreads();
    }
    c[row * n + column] = sum;
}
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) { product<true, true>(a, b, c, n); }
extern "C" __global__ void matmul_missing_first_barrier(const float *a, const float *b, float *c, int n)
{
    product<false, true>(a, b, c, n);
}
extern "C" __global__ void matmul_missing_second_barrier(const float *a, const float *b, float *c, int n)
{
    product<true, false>(a, b, c, n);
}

// Two buffers: one barrier a round is enough when it stands between filling a buffer and using it, and the buffer filled
// is not the one still in use. The broken one fills the buffer in use.
template <int wrong> __device__ void rounds(const float *in, float *out, int count)
{
    __shared__ float stage[2][128];
    int t = threadIdx.x;
    float sum = 0.0f;
    stage[0][t] = in[t];
    __syncthreads();
    for (int r = 0; r < count; r++) {
        float next = r + 1 < count ? in[(r + 1) * 128 + t] : 0.0f;
        sum += stage[r & 1][127 - t] + stage[r & 1][(t + 1) & 127];
        stage[(r + 1 + wrong) & 1][t] = next;
        __syncthreads();
    }
    out[t] = sum;
}
extern "C" __global__ void double_buffer(const float *in, float *out, int count) { rounds<0>(in, out, count); }
extern "C" __global__ void double_buffer_overwritten(const float *in, float *out, int count) { rounds<1>(in, out, count); }

// Each block also writes the first element of its neighbour's share.
extern "C" __global__ void neighbour_write(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
    out[i + 1] = in[i] * 0.5f;
}

// In place: reads the neighbour while it may already have been written.
extern "C" __global__ void shift_in_place(float *data)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = data[i + 1];
}
