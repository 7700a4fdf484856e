// Integer arithmetic and bit tricks.
// ptx: integer_sm70 12.8 compute_70
// ptx: integer_sm80 13.0 compute_80
// ptx: integer_sm90 13.4 compute_90
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void bits(const u32 *x, const u32 *y, u32 *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    u32 a = x[i], b = y[i];
    u32 *o = out + i * 10;
    o[0] = __brev(a);
    o[1] = __popc(a);
    o[2] = __clz(a);
    o[3] = __ffs(a);
    o[4] = __funnelshift_l(a, b, b & 31);
    o[5] = __funnelshift_rc(a, b, b >> 27 | 32);
    o[6] = __byte_perm(a, b, b & 0x7777);
    o[7] = a >> (b & 31) | a << (-b & 31);
    o[8] = (a ^ b) & (a | ~b);
    o[9] = __vadd4(a, b);
}

extern "C" __global__ void products(const u64 *x, const u64 *y, u64 *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    u64 a = x[i], b = y[i];
    u64 *o = out + i * 8;
    o[0] = a * b;
    o[1] = __umul64hi(a, b);
    o[2] = (u64)__mul64hi((long long)a, (long long)b);
    o[3] = (u64)(u32)a * (u32)b;
    o[4] = (u64)((long long)(int)a * (int)b);
    o[5] = __umulhi((u32)a, (u32)b);
    o[6] = (u64)__clzll(a) << 32 | (u32)__popcll(b);
    o[7] = __brevll(a);
}

extern "C" __global__ void divisions(const int *x, const int *y, int *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    int a = x[i], b = y[i];
    int *o = out + i * 6;
    o[0] = a / b;
    o[1] = a % b;
    o[2] = (int)((u32)a / (u32)b);
    o[3] = a / 7;
    o[4] = (int)((u32)a % 1000u);
    o[5] = a / 16;
}

extern "C" __global__ void long_divisions(const long long *x, const long long *y, long long *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    out[4 * i] = x[i] / y[i];
    out[4 * i + 1] = x[i] % y[i];
    out[4 * i + 2] = (long long)((u64)x[i] / (u64)y[i]);
    out[4 * i + 3] = (long long)((u64)x[i] % 1000000007ull);
}

extern "C" __global__ void dot_products(const int *x, const int *y, int *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    out[3 * i] = __dp4a(x[i], y[i], i);
    out[3 * i + 1] = (int)__dp4a((u32)x[i], (u32)y[i], (u32)i);
    out[3 * i + 2] = __dp2a_lo(x[i], y[i], i);
}

// A sum and a product of 128-bit numbers, through the carry chain and through __int128.
extern "C" __global__ void wide_sum(const ulonglong2 *x, const ulonglong2 *y, ulonglong2 *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    ulonglong2 a = x[i], b = y[i], c;
    asm("add.cc.u64 %0, %2, %4; addc.u64 %1, %3, %5;" : "=l"(c.x), "=l"(c.y) : "l"(a.x), "l"(a.y), "l"(b.x), "l"(b.y));
    out[2 * i] = c;
    c.x = a.x * b.x;
    c.y = __umul64hi(a.x, b.x) + a.x * b.y + a.y * b.x;
    out[2 * i + 1] = c;
}

extern "C" __global__ void saturating(const int *x, const int *y, int *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    int a = x[i], b = y[i], r;
    asm("add.sat.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    out[7 * i] = r;
    asm("sub.sat.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    out[7 * i + 1] = r;
    asm("bfe.s32 %0, %1, 5, 9;" : "=r"(r) : "r"(a));
    out[7 * i + 2] = r;
    asm("bfi.b32 %0, %1, %2, 7, 11;" : "=r"(r) : "r"(a), "r"(b));
    out[7 * i + 3] = r;
    asm("mad24.lo.s32 %0, %1, %2, %1;" : "=r"(r) : "r"(a), "r"(b));
    out[7 * i + 4] = r;
    asm("sad.s32 %0, %1, %2, 3;" : "=r"(r) : "r"(a), "r"(b));
    out[7 * i + 5] = r;
    asm("bfind.s32 %0, %1;" : "=r"(r) : "r"(a));
    out[7 * i + 6] = r;
}
