// Vector addition with a tail, a tiled transpose, asynchronous copies, a tensor-core product, a device function that is
// called, a switch, constant memory, atomics, shuffles, and vector loads.
typedef unsigned int u32;
typedef unsigned long long u64;

__constant__ float weights[4] = {0.25f, 0.5f, 0.75f, 1.0f};
__device__ int counter = 7;
__device__ int *counter_address = &counter;

extern "C" __global__ void vector_add(const float *__restrict__ a, const float *__restrict__ b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

extern "C" __global__ void __launch_bounds__(256, 2) transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
#pragma unroll 1
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width)
            out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void staged_copy(const float4 *in, float4 *out)
{
    extern __shared__ float4 stage[];
    u32 to = (u32)__cvta_generic_to_shared(&stage[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    float4 v = stage[threadIdx.x ^ 1];
    v.x *= weights[threadIdx.x & 3];
    out[threadIdx.x] = v;
}

extern "C" __global__ void product(const u32 *a, const u32 *b, float *d)
{
    u32 lane = threadIdx.x;
    u32 a0 = a[lane], a1 = a[lane + 32], a2 = a[lane + 64], a3 = a[lane + 96], b0 = b[lane], b1 = b[lane + 32];
    float d0, d1, d2, d3;
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
    reinterpret_cast<float4 *>(d)[lane] = make_float4(d0, d1, d2, d3);
}

struct Pair {
    double low, high;
};

__device__ __noinline__ Pair widen(Pair p, int by)
{
    Pair q;
    q.low = p.low / (by + 1);
    q.high = sqrt(p.high) * by;
    return q;
}

extern "C" __global__ void mixed(double *data, int *flags, u64 *stamps)
{
    Pair p = {data[0], data[1]};
    p = widen(p, flags[0]);
    switch (flags[1]) {
    case 0: p.low += 1; break;
    case 1: p.low = fma(p.low, p.high, 3.0); break;
    case 2: p.high = fmin(p.low, p.high); break;
    case 3: p.low = floor(p.high); break;
    case 4: p.low = -p.high; break;
    case 5: p.high = exp2(p.low); break;
    default: p.high = __popc(flags[2]);
    }
    data[threadIdx.x] = p.low + p.high;
    int sum = flags[threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    if (__any_sync(0xffffffff, sum > 3) && threadIdx.x == 0)
        atomicAdd(counter_address, sum);
    flags[threadIdx.x] = __reduce_max_sync(0xffffffffu, sum) + (char)(sum % 7) + __brev(sum) + __clz(sum);
    stamps[threadIdx.x] = clock64() + (u64)sum * 0xffffffffffULL;
    __threadfence();
}
