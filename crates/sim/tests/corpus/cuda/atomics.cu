// Atomic operations of all types, and what is built of them: locks, last-block reductions, look-back scans, flags.
// ptx: atomics_sm80 13.0 compute_80
// ptx: atomics_sm90 13.4 compute_90
// ptx: atomics_sm70 12.8 compute_70
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void words(const u32 *in, u32 *out, int *signed_out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    u32 v = in[i];
    atomicAdd(out, v);
    atomicSub(out + 1, v);
    atomicMin(out + 2, v);
    atomicMax(out + 3, v);
    atomicAnd(out + 4, v | 0xffff);
    atomicOr(out + 5, v & 0xff00ff);
    atomicXor(out + 6, v);
    atomicInc(out + 7, 9);
    atomicDec(out + 8, 6);
    atomicMin(signed_out, (int)v);
    atomicMax(signed_out + 1, (int)v);
}

extern "C" __global__ void long_words(const u64 *in, u64 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    atomicAdd(out, in[i]);
    atomicMin(out + 1, in[i]);
    atomicMax(out + 2, in[i]);
    atomicXor(out + 3, in[i]);
    atomicMax((long long *)out + 4, (long long)in[i]);
    u64 seen = *(volatile u64 *)(out + 5), expected;
    do {
        expected = seen;
        seen = atomicCAS(out + 5, expected, expected + in[i] % 1000);
    } while (seen != expected);
}

extern "C" __global__ void floats(const float *in, float *out, double *wide, __half2 *halves, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    atomicAdd(out, in[i]);
    atomicAdd(wide, (double)in[i]);
    atomicAdd(halves, __floats2half2_rn(1.0f, 0.5f));
    // A float maximum by compare and swap.
    int *bits = (int *)(out + 1), seen = *(volatile int *)bits;
    while (__int_as_float(seen) < in[i]) {
        int expected = seen;
        seen = atomicCAS(bits, expected, __float_as_int(in[i]));
        if (seen == expected)
            break;
    }
}

// Before Hopper a loop around a compare and swap, which begins with a plain read.
extern "C" __global__ void bfloats(__nv_bfloat162 *sums)
{
    atomicAdd(sums, __floats2bfloat162_rn(1.0f, -1.0f));
}

extern "C" __global__ void tickets(u32 *counter, u32 *owner, u32 *swapped)
{
    u32 ticket = atomicAdd(counter, 1);
    owner[ticket] = blockIdx.x * blockDim.x + threadIdx.x;
    u32 before = atomicExch(swapped, ticket + 1);
    if (before == ~0u)
        owner[gridDim.x * blockDim.x] = 1;
}

// kind 0: right. 1: no fence before the release. 2: released by a plain store. 3: no lock at all.
template <int kind> __device__ void locked(int *lock, int *shared_counter)
{
    if (threadIdx.x == 0) {
        if (kind != 3)
            while (atomicCAS(lock, 0, 1) != 0) {
            }
        if (kind != 1)
            __threadfence();
        *shared_counter = *shared_counter + 1 + blockIdx.x;
        if (kind == 0)
            __threadfence();
        if (kind == 2)
            *lock = 0;
        else if (kind != 3)
            atomicExch(lock, 0);
    }
}
extern "C" __global__ void spin_lock(int *lock, int *counter) { locked<0>(lock, counter); }
extern "C" __global__ void spin_lock_unfenced(int *lock, int *counter) { locked<1>(lock, counter); }
extern "C" __global__ void spin_lock_plain_release(int *lock, int *counter) { locked<2>(lock, counter); }
extern "C" __global__ void no_lock(int *lock, int *counter) { locked<3>(lock, counter); }

// Every thread of a warp takes the lock in turn: needs that the lanes make progress one by one.
extern "C" __global__ void lock_a_lane(int *lock, int *counter)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *counter = *counter + threadIdx.x;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

extern "C" __global__ void scoped_lock(int *lock, int *counter)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(*lock);
    if (threadIdx.x == 0) {
        int expected = 0;
        while (!flag.compare_exchange_weak(expected, 1, cuda::memory_order_acquire))
            expected = 0;
        *counter = *counter + 1 + blockIdx.x;
        flag.store(0, cuda::memory_order_release);
    }
}

template <bool fence> __device__ void last_block(const float *in, float *partial, float *out, u32 *done)
{
    __shared__ float values[64];
    __shared__ bool last;
    int t = threadIdx.x;
    values[t] = in[blockIdx.x * 64 + t];
    __syncthreads();
    for (int step = 32; step; step /= 2) {
        if (t < step)
            values[t] += values[t + step];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = values[0];
        if (fence)
            __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        if (fence)
            __threadfence();
        float sum = 0.0f;
        for (int b = 0; b < gridDim.x; b++)
            sum += partial[b];
        *out = sum;
    }
}
extern "C" __global__ void last_block_sum(const float *in, float *partial, float *out, u32 *done)
{
    last_block<true>(in, partial, out, done);
}
extern "C" __global__ void last_block_sum_unfenced(const float *in, float *partial, float *out, u32 *done)
{
    last_block<false>(in, partial, out, done);
}

// A scan in one pass: each block adds up what its predecessors published. States: 0 nothing, 1 own sum, 2 prefix.
template <bool fence>
__device__ void look_back(const int *in, int *out, int *sums, int *prefixes, volatile int *states, u32 *next)
{
    __shared__ int values[128], block, before;
    int t = threadIdx.x;
    if (t == 0)
        block = atomicAdd(next, 1);
    __syncthreads();
    values[t] = in[block * 128 + t];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        int other = t >= step ? values[t - step] : 0;
        __syncthreads();
        values[t] += other;
        __syncthreads();
    }
    if (t == 0) {
        sums[block] = values[127];
        if (fence)
            __threadfence();
        states[block] = 1;
        int sum = 0;
        for (int b = block - 1; b >= 0; b--) {
            int state;
            while ((state = states[b]) == 0) {
            }
            if (fence)
                __threadfence();
            if (state == 2) {
                sum += prefixes[b];
                break;
            }
            sum += sums[b];
        }
        prefixes[block] = sum + values[127];
        if (fence)
            __threadfence();
        states[block] = 2;
        before = sum;
    }
    __syncthreads();
    out[block * 128 + t] = before + values[t];
}
extern "C" __global__ void look_back_scan(const int *in, int *out, int *sums, int *prefixes, int *states, u32 *next)
{
    look_back<true>(in, out, sums, prefixes, states, next);
}
extern "C" __global__ void look_back_scan_unfenced(const int *in, int *out, int *sums, int *prefixes, int *states, u32 *next)
{
    look_back<false>(in, out, sums, prefixes, states, next);
}

// Block 0 sends a message, the others read it. kind 0: fences. 1: none. 2: release and acquire. 3: relaxed. 4: a plain flag.
template <int kind> __device__ void message(int *data, int *flag, int *out)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> atomic_flag(*flag);
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x * 7 + 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            if (kind == 0)
                __threadfence();
            if (kind == 2)
                atomic_flag.store(1, cuda::memory_order_release);
            else if (kind == 3)
                atomic_flag.store(1, cuda::memory_order_relaxed);
            else if (kind == 4)
                *flag = 1;
            else
                *(volatile int *)flag = 1;
        }
        out[threadIdx.x] = 0;
    } else {
        if (threadIdx.x == 0) {
            if (kind == 2)
                while (!atomic_flag.load(cuda::memory_order_acquire)) {
                }
            else if (kind == 3)
                while (!atomic_flag.load(cuda::memory_order_relaxed)) {
                }
            else
                while (!*(volatile int *)flag) {
                }
            if (kind == 0)
                __threadfence();
        }
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = data[threadIdx.x];
    }
}
extern "C" __global__ void message_fenced(int *data, int *flag, int *out) { message<0>(data, flag, out); }
extern "C" __global__ void message_unfenced(int *data, int *flag, int *out) { message<1>(data, flag, out); }
extern "C" __global__ void message_release(int *data, int *flag, int *out) { message<2>(data, flag, out); }
extern "C" __global__ void message_relaxed(int *data, int *flag, int *out) { message<3>(data, flag, out); }
extern "C" __global__ void message_plain(int *data, int *flag, int *out) { message<4>(data, flag, out); }

// The scope is too narrow: the flag is released to the own block only.
extern "C" __global__ void message_block_scope(int *data, int *flag, int *out)
{
    cuda::atomic_ref<int, cuda::thread_scope_block> narrow(*flag);
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) {
            data[0] = 42;
            narrow.store(1, cuda::memory_order_release);
        }
    } else if (threadIdx.x == 0) {
        while (!narrow.load(cuda::memory_order_acquire)) {
        }
        out[blockIdx.x] = data[0];
    }
}
