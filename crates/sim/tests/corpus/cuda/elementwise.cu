// Elementwise kernels: vector types, grid strides, packed halves, eight-bit floats.
// ptx: elementwise_sm70 12.8 compute_70
// ptx: elementwise_sm80 13.0 compute_80
// ptx: elementwise_sm90_lineinfo 13.4 compute_90 -lineinfo
// ptx: elementwise_sm80_debug 13.0 compute_80 -G
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void saxpy(float a, const float *__restrict__ x, float *__restrict__ y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = a * x[i] + y[i];
}

extern "C" __global__ void scale4(const float4 *in, float4 *out, float scale, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float4 v = in[i];
    out[i] = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
}

extern "C" __global__ void complex_product(const float2 *a, const float2 *b, float2 *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float2 x = a[i], y = b[i];
        c[i] = make_float2(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
    }
}

extern "C" __global__ void gray(const uchar3 *in, unsigned char *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = (77 * in[i].x + 150 * in[i].y + 29 * in[i].z) >> 8;
}

extern "C" __global__ void half2_multiply_add(const __half2 *a, const __half2 *b, const __half2 *c, __half2 *d, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        d[i] = __hfma2(a[i], b[i], c[i]);
}

extern "C" __global__ void half_to_float(const __half *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __half2float(in[i]);
}

extern "C" __global__ void bfloat_average(const __nv_bfloat16 *x, const __nv_bfloat16 *y, __nv_bfloat16 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __float2bfloat16(0.5f * (__bfloat162float(x[i]) + __bfloat162float(y[i])));
}

extern "C" __global__ void bfloat2_maximum(const __nv_bfloat162 *x, const __nv_bfloat162 *y, __nv_bfloat162 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __hmax2(x[i], y[i]);
}

extern "C" __global__ void eight_bit_floats(const float *in, unsigned char *e4m3, unsigned char *e5m2, float *back, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __nv_fp8_e4m3 narrow(in[i]);
    __nv_fp8_e5m2 wide(in[i]);
    e4m3[i] = narrow.__x;
    e5m2[i] = wide.__x;
    back[i] = float(narrow);
}

extern "C" __global__ void narrowing(const float *in, signed char *bytes, unsigned short *words, long long *wide, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    bytes[i] = (signed char)max(-128, min(127, __float2int_rn(in[i])));
    words[i] = (unsigned short)__float2uint_rz(fabsf(in[i]));
    wide[i] = (long long)floorf(in[i] * 1024.0f);
}
