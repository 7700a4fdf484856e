// Control flow: divergence, jump tables, loops left early, calls of every sort.
// ptx: control_sm70 12.8 compute_70
// ptx: control_sm80 13.0 compute_80
// ptx: control_sm90_debug 13.4 compute_90 -G
typedef unsigned int u32;

extern "C" __global__ void collatz(const u32 *x, u32 *steps, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    u32 v = x[i], count = 0;
    while (true) {
        if (v == 1)
            break;
        v = v & 1 ? 3 * v + 1 : v / 2;
        if (++count == 300)
            break;
    }
    steps[i] = count;
}

extern "C" __global__ void nested(const int *x, int *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    int v = x[i], sum = 0;
    for (int j = 0; j < (v & 15); j++) {
        if (j % 3 == 0) {
            if (v & 32)
                continue;
            for (int k = j; k < 10; k++) {
                if (k == (v & 7))
                    break;
                sum += k * j + 1;
            }
        } else if (v & 64) {
            sum ^= j;
            if (sum > 40) {
                out[i] = -sum;
                return;
            }
        } else {
            sum -= v & 3;
        }
    }
    out[i] = sum;
}

extern "C" __global__ void switches(const int *ops, const float *x, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    float v = x[i];
#pragma unroll 1
    for (int step = 0; step < 4; step++) {
        switch (ops[i * 4 + step]) {
        case 0: v = v + 1.0f; break;
        case 1: v = v * 0.5f; break;
        case 2: v = -v; // falls through
        case 3: v = v * v; break;
        case 4: v = fabsf(v) - 3.0f; break;
        case 5: out[n + i] = v; break;
        case 6: v = fminf(v, 2.0f); break;
        case 7: step++; break;
        case 8: v = truncf(v); break;
        case 9: out[i] = v; return;
        default: v = 0.25f;
        }
    }
    out[i] = v;
}

__device__ __noinline__ u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void recursion(u32 *out)
{
    out[threadIdx.x] = fibonacci(threadIdx.x & 15);
}

__device__ int add(int a, int b) { return a + b; }
__device__ int subtract(int a, int b) { return a - b; }
__device__ int multiply(int a, int b) { return a * b; }
__device__ int mix(int a, int b) { return a ^ (b << 3); }
typedef int (*Operation)(int, int);
__device__ Operation operations[4] = {add, subtract, multiply, mix};

extern "C" __global__ void function_pointers(const int *x, int *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n)
        out[i] = operations[x[i] & 3](x[i], i);
}

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual int corners() const { return 4; }
};
struct Box : Shape {
    float width, height;
    __device__ Box(float w, float h) : width(w), height(h) {}
    __device__ float area() const override { return width * height; }
};
struct Triangle : Shape {
    float base, height;
    __device__ Triangle(float b, float h) : base(b), height(h) {}
    __device__ float area() const override { return 0.5f * base * height; }
    __device__ int corners() const override { return 3; }
};
__device__ __noinline__ float weigh(const Shape *shape) { return shape->area() + shape->corners(); }

extern "C" __global__ void virtual_calls(const float *x, float *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n)
        return;
    Box box(x[i], 2.0f);
    Triangle triangle(x[i], 4.0f);
    const Shape *shapes[2] = {&box, &triangle};
    out[i] = weigh(shapes[i % 2]) + weigh(shapes[i / 2 % 2]);
}

struct Vector3 {
    float x, y, z;
};
__device__ __noinline__ Vector3 cross(Vector3 a, Vector3 b)
{
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

extern "C" __global__ void struct_arguments(const Vector3 *a, const Vector3 *b, Vector3 *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n)
        out[i] = cross(a[i], b[i]);
}

extern "C" __global__ void local_sort(const int *in, int *out)
{
    int values[16], i = threadIdx.x + blockIdx.x * blockDim.x;
    for (int k = 0; k < 16; k++)
        values[k] = in[i * 16 + k];
#pragma unroll 1
    for (int k = 1; k < 16; k++) {
        int v = values[k], at = k;
        while (at > 0 && values[at - 1] > v) {
            values[at] = values[at - 1];
            at--;
        }
        values[at] = v;
    }
    for (int k = 0; k < 16; k++)
        out[i * 16 + k] = values[k];
}

extern "C" __global__ void stack_allocation(const int *lengths, int *out)
{
    int i = threadIdx.x, length = lengths[i], sum = 0, v;
    unsigned long long saved, scratch;
    asm volatile("stacksave.u64 %0;" : "=l"(saved));
    asm volatile("alloca.u64 %0, %1, 8;" : "=l"(scratch) : "l"((unsigned long long)length * 4));
    for (int k = 0; k < length; k++)
        asm volatile("st.local.u32 [%0], %1;" ::"l"(scratch + 4 * k), "r"(k * i) : "memory");
    for (int k = length - 1; k >= 0; k -= 2) {
        asm volatile("ld.local.u32 %0, [%1];" : "=r"(v) : "l"(scratch + 4 * k) : "memory");
        sum += v;
    }
    asm volatile("stackrestore.u64 %0;" ::"l"(saved));
    out[i] = sum;
}

// The compiler makes chains of comparisons of a switch; a table of targets has to be written by hand.
__device__ __noinline__ int choose(int which, int v)
{
    int r;
    asm volatile("{\n\ttargets: .branchtargets first, second, third;\n\t"
                 "brx.idx %1, targets;\n\t"
                 "first: add.s32 %0, %2, 1;\n\tbra.uni done;\n\t"
                 "second: mul.lo.s32 %0, %2, 3;\n\tbra.uni done;\n\t"
                 "third: neg.s32 %0, %2;\n\tdone:\n\t}"
                 : "=r"(r)
                 : "r"(which), "r"(v));
    return r;
}

extern "C" __global__ void branch_targets(const int *which, int *out)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    out[i] = choose(which[i], i) + choose(2 - which[i], i);
}
