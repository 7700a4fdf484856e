// State spaces and access widths: constant tables, device variables, pointers to pointers, shared memory of both kinds,
// structs, cache hints, the device heap.
// ptx: memory_sm80 13.0 compute_80
// ptx: memory_sm90 13.4 compute_90
// ptx: memory_sm70 12.8 compute_70
typedef unsigned char u8;
typedef unsigned int u32;

__constant__ float coefficients[8] = {1.0f, -0.5f, 0.25f, 2.0f, -1.5f, 0.125f, 3.0f, -0.75f};
__constant__ struct {
    int offsets[4];
    char letters[5];
    double scale;
} settings = {{3, 1, 4, 1}, {'t', 'i', 'l', 'e', 0}, 2.5};
__device__ int squares[8] = {0, 1, 4, 9, 16, 25, 36, 49};
__device__ int *middle = &squares[4];
__device__ u32 zeroed[64];
__device__ const char *const words[3] = {"left", "right", "centre"};

extern "C" __global__ void constant_tables(const float *x, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < 8; k++)
        sum = sum * x[i] + coefficients[(k + i) & 7];
    out[i] = sum + (float)(settings.scale * settings.offsets[i & 3]) + settings.letters[i % 5];
}

extern "C" __global__ void device_variables(int *out)
{
    int i = threadIdx.x;
    zeroed[i] += i + 1;
    out[i] = squares[i & 7] + middle[(i & 7) - 4] + zeroed[i] + words[i % 3][i & 3];
}

extern "C" __global__ void pointer_table(const float *const *rows, float *out, int columns)
{
    out[blockIdx.x * columns + threadIdx.x] = rows[blockIdx.x][columns - 1 - threadIdx.x];
}

struct Particle {
    short tag;
    double mass;
    float position[3];
    u8 flags[5];
};

extern "C" __global__ void struct_permutation(const Particle *in, Particle *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    Particle p = in[n - 1 - i];
    p.mass *= 2.0;
    p.flags[i % 5] ^= 0x55;
    out[i].tag = p.tag;
    out[i].mass = p.mass;
    for (int k = 0; k < 3; k++)
        out[i].position[k] = p.position[k];
    for (int k = 0; k < 5; k++)
        out[i].flags[k] = p.flags[k];
}

struct Settings {
    int table[12];
    float scale;
    u8 shift;
};

extern "C" __global__ void struct_parameter(Settings s, const int *x, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n)
        out[i] = s.scale * (s.table[x[i] % 12] >> s.shift);
}

extern "C" __global__ void grid_constant_parameter(const __grid_constant__ Settings s, const int *x, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    const int *table = s.table;
    if (i < n)
        out[i] = s.scale * (table[x[i] % 12] >> s.shift);
}

extern "C" __global__ void dynamic_shared(const int *in, int *out)
{
    extern __shared__ int stage[];
    short *narrow = (short *)(stage + blockDim.x);
    int i = threadIdx.x, n = blockDim.x;
    stage[i] = in[blockIdx.x * n + i];
    narrow[i] = (short)(i * 3);
    __syncthreads();
    out[blockIdx.x * n + i] = stage[n - 1 - i] + narrow[(i + 1) % n];
}

// Pairs of floats at odd pair offsets: eight-byte aligned, never sixteen.
extern "C" __global__ void odd_pairs(const float *in, float *out)
{
    int i = threadIdx.x;
    float2 v = *(const float2 *)(in + 4 * i + 2);
    *(float2 *)(out + 4 * i + 2) = make_float2(v.y, v.x);
    *(float2 *)(out + 4 * i) = make_float2(0.0f, 1.0f);
}

extern "C" __global__ void bytewise(const u8 *in, u32 *out, int n)
{
    int i = threadIdx.x;
    u32 v = 0;
    if (i < n) {
        for (int k = 0; k < 4; k++)
            v |= (u32)in[3 * i + k] << 8 * k;
        out[i] = v;
    }
}

extern "C" __global__ void cache_hints(const float4 *in, float4 *out, volatile int *noisy)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    float4 a = __ldg(in + i), b = __ldcs(in + i), c = __ldca(in + i), d = __ldlu(in + i);
    __stcs(out + i, make_float4(a.x + b.x, a.y + c.y, a.z + d.z, b.w + c.w));
    noisy[i] = i;
    noisy[i] += 2;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in + i));
}

extern "C" __global__ void generic_pointers(const int *in, int *out)
{
    __shared__ int near[64];
    int own[4], i = threadIdx.x;
    near[i] = in[i] * 2;
    for (int k = 0; k < 4; k++)
        own[k] = i + k;
    __syncthreads();
    const int *from = i % 3 == 0 ? near + (i ^ 1) : i % 3 == 1 ? own + (i & 3) : in + i;
    out[i] = *from + (__isShared(from) ? 1000 : 0) + (__isLocal(from) ? 2000 : 0) + (__isGlobal(from) ? 4000 : 0);
}

extern "C" __global__ void device_heap(int *out)
{
    int i = threadIdx.x;
    int *list = (int *)malloc(16 * sizeof(int));
    if (!list) {
        out[i] = -1;
        return;
    }
    for (int k = 0; k < 16; k++)
        list[k] = k * i;
    int sum = 0;
    for (int k = 0; k < 16; k += 3)
        sum += list[(k + i) & 15];
    out[i] = sum;
    free(list);
}

// The input is large enough for the accesses but has never been written in its second half by the host: see the cases.
extern "C" __global__ void copy_words(const u32 *in, u32 *out)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    out[i] = in[i] + 1;
}
