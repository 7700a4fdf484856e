// Floating-point functions. Sine and cosine of big arguments reduce them with a table in constant memory and an array in
// local memory.
// ptx: math_sm80 13.0 compute_80
// ptx: math_sm70_nofmad 12.8 compute_70 --fmad=false
// ptx: math_sm90_fast 13.4 compute_90 -use_fast_math -lineinfo
extern "C" __global__ void exponentials(const float *x, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    float v = x[i], positive = fabsf(v) + 0.01f;
    out[i] = expf(v);
    out[n + i] = logf(positive);
    out[2 * n + i] = exp2f(v);
    out[3 * n + i] = log2f(positive);
    out[4 * n + i] = powf(positive, 1.7f);
    out[5 * n + i] = tanhf(v);
    out[6 * n + i] = log1pf(positive);
    out[7 * n + i] = expm1f(v);
}

extern "C" __global__ void trigonometry(const float *x, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    float s, c;
    sincosf(x[i], &s, &c);
    out[i] = s;
    out[n + i] = c;
    out[2 * n + i] = atan2f(s, c + 2.0f);
    out[3 * n + i] = asinf(s);
}

extern "C" __global__ void roots(const float *x, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    float v = x[i], positive = fabsf(v) + 0.01f;
    out[i] = sqrtf(positive);
    out[n + i] = rsqrtf(positive);
    out[2 * n + i] = cbrtf(v);
    out[3 * n + i] = 1.0f / positive;
    out[4 * n + i] = v / positive;
    out[5 * n + i] = fmodf(v, 0.37f);
    out[6 * n + i] = erff(v);
    out[7 * n + i] = rintf(v) + truncf(v) * 0.5f;
}

// Correctly rounded in every direction, denormal numbers included.
extern "C" __global__ void rounding(const float *x, const float *y, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    float a = x[i], b = y[i];
    out[i] = __fmaf_rn(a, b, -a);
    out[n + i] = __fadd_rz(a, b);
    out[2 * n + i] = __fmul_ru(a, b);
    out[3 * n + i] = __fdiv_rn(a, b);
    out[4 * n + i] = __fsqrt_rn(fabsf(a));
    out[5 * n + i] = fminf(a, b) - fmaxf(a, b);
    out[6 * n + i] = copysignf(a, b);
}

extern "C" __global__ void doubles(const double *x, const double *y, double *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    double a = x[i], b = y[i];
    out[i] = a / b;
    out[n + i] = sqrt(fabs(a));
    out[2 * n + i] = exp(b);
    out[3 * n + i] = log(fabs(a) + 0.5);
    out[4 * n + i] = fma(a, b, a);
    out[5 * n + i] = sin(a);
    out[6 * n + i] = floor(a) + rint(b);
    out[7 * n + i] = pow(fabs(a) + 0.5, b);
}
