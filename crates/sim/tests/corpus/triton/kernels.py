"""Triton kernels for the corpus; compiling them needs no GPU.

    python kernels.py OUTPUT_FOLDER

Every entry of BUILDS makes one NAME.ptx: kernel, architecture, types of the arguments, constants, options.
"""
import pathlib, sys
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from plain import without_folders


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    tl.store(out + at, tl.load(x + at, mask=keep) + tl.load(y + at, mask=keep), mask=keep)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < columns
    v = tl.load(x + row * columns + at, mask=keep, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * columns + at, e / tl.sum(e, 0), mask=keep)


@triton.jit
def layer_norm(x, weight, bias, out, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < columns
    v = tl.load(x + row * columns + at, mask=keep, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / columns
    centred = tl.where(keep, v - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    w = tl.load(weight + at, mask=keep)
    b = tl.load(bias + at, mask=keep)
    tl.store(out + row * columns + at, (centred * scale * w + b).to(tl.bfloat16), mask=keep)


@triton.jit
def row_sums(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row[:, None] * columns + at[None, :], mask=(row[:, None] < rows) & (at[None, :] < columns), other=0.0)
        total += tl.sum(v, 1)
    tl.store(out + row, total, mask=row < rows)


@triton.jit
def arg_max(x, values, places, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf"))
    tl.store(values + row, tl.max(v, 0))
    tl.store(places + row, tl.argmax(v, 0))


@triton.jit
def cumulative(x, sums, products, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(v, 0))
    tl.store(products + at, tl.cumsum(v * v, 0, reverse=True))


@triton.jit
def sort_rows(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def atomics(x, total, largest, bins, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    v = tl.load(x + at, mask=keep, other=0)
    tl.atomic_add(total, tl.sum(v, 0))
    tl.atomic_max(largest, tl.max(v, 0))
    tl.atomic_add(bins + v % 16, 1, mask=keep, sem="relaxed")


# A lock around a sum kept in memory, as in Triton's tutorial on layer normalisation.
@triton.jit
def locked_sum(x, out, lock, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at) + v)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


# The same without the lock: every program reads and writes the same places.
@triton.jit
def unlocked_sum(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + at)
    tl.store(out + at, tl.load(out + at) + v)


# No mask: the last program reads and writes behind the end.
@triton.jit
def scale_unmasked(x, out, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * factor)


@triton.jit
def dropout(x, out, n, keep_probability, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    chosen = tl.rand(seed, at) < keep_probability
    v = tl.load(x + at, mask=keep)
    tl.store(out + at, tl.where(chosen, v / keep_probability, 0.0), mask=keep)


@triton.jit
def conversions(x, bfloats, halves, eights, back, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    v = tl.load(x + at, mask=keep)
    tl.store(bfloats + at, v.to(tl.bfloat16), mask=keep)
    tl.store(halves + at, v.to(tl.float16), mask=keep)
    tl.store(eights + at, v.to(tl.float8e5), mask=keep)
    tl.store(back + at, v.to(tl.bfloat16).to(tl.float32) * 0.5, mask=keep)


@triton.jit
def matmul(a, b, c, M, N, K, SUM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + depth[:, None] * N + columns[None, :]
    sum = tl.zeros((BM, BN), dtype=SUM)
    for k in range(0, K, BK):
        x = tl.load(pa, mask=depth[None, :] < K - k, other=0.0)
        y = tl.load(pb, mask=depth[:, None] < K - k, other=0.0)
        sum = tl.dot(x, y, sum)
        pa += BK
        pb += BK * N
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], sum.to(c.dtype.element_ty), mask=inside)


# b is given row by row of n, as [N][K]; tensor descriptors made in the kernel, in a workspace.
@triton.jit
def matmul_host_descriptors(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        sum = tl.dot(a.load([row, k]), b.load([column, k]).T, sum)
    c.store([row, column], sum.to(tl.float16))


@triton.jit
def matmul_device_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    result = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        sum = tl.dot(left.load([row, k]), right.load([column, k]).T, sum)
    result.store([row, column], sum.to(tl.float16))


# Fewer programs than tiles, tiles in groups of rows.
@triton.jit
def matmul_persistent(a, b, c, M, N, K, PROGRAMS: tl.constexpr, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS):
        group = tile // (GROUP * tiles_n)
        first = group * GROUP
        height = tl.minimum(tiles_m - first, GROUP)
        rows = (first + tile % (GROUP * tiles_n) % height) * BM + tl.arange(0, BM)
        columns = (tile % (GROUP * tiles_n) // height) * BN + tl.arange(0, BN)
        depth = tl.arange(0, BK)
        sum = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            x = tl.load(a + rows[:, None] * K + (k + depth)[None, :], mask=rows[:, None] < M, other=0.0)
            y = tl.load(b + (k + depth)[:, None] * N + columns[None, :], mask=columns[None, :] < N, other=0.0)
            sum = tl.dot(x, y, sum)
        tl.store(c + rows[:, None] * N + columns[None, :], sum, mask=(rows[:, None] < M) & (columns[None, :] < N))


# softmax(q k' scale) v for one head a program column; causal.
@triton.jit
def attention(q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inner = tl.arange(0, D)
    x = tl.load(q + base + rows[:, None] * D + inner[None, :])
    largest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    sum = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        at = start + tl.arange(0, BN)
        y = tl.load(k + base + at[None, :] * D + inner[:, None])
        scores = tl.dot(x, y) * (scale * 1.4426950408889634)
        scores = tl.where(rows[:, None] >= at[None, :], scores, float("-inf"))
        next = tl.maximum(largest, tl.max(scores, 1))
        shrink = tl.math.exp2(largest - next)
        p = tl.math.exp2(scores - next[:, None])
        total = total * shrink + tl.sum(p, 1)
        z = tl.load(v + base + at[:, None] * D + inner[None, :])
        sum = tl.dot(p.to(tl.float16), z, sum * shrink[:, None])
        largest = next
    tl.store(out + base + rows[:, None] * D + inner[None, :], (sum / total[:, None]).to(tl.float16))


BUILDS = []


def build(kernel, name, capability, signature, constants, **options):
    BUILDS.append((kernel, name, capability, signature, constants, options))


for cc in (80, 90):
    build(vector_add, f"vector_add_sm{cc}", cc, "*fp32 *fp32 *fp32 i32", dict(BLOCK=512))
    build(softmax, f"softmax_sm{cc}", cc, "*fp32 *fp32 i32", dict(BLOCK=256))
    build(layer_norm, f"layer_norm_sm{cc}", cc, "*fp16 *fp32 *fp32 *bf16 i32 fp32", dict(BLOCK=512))
    build(conversions, f"conversions_sm{cc}", cc, "*fp32 *bf16 *fp16 *fp8e5 *fp32 i32", dict(BLOCK=256))
    build(matmul, f"matmul_sm{cc}", cc, "*fp16 *fp16 *fp16 i32 i32 i32", dict(SUM=tl.float32, BM=64, BN=64, BK=32), num_stages=3)
    build(attention, f"attention_sm{cc}", cc, "*fp16 *fp16 *fp16 *fp16 i32 fp32", dict(BM=64, BN=32, D=32), num_stages=2)
build(row_sums, "row_sums_sm80", 80, "*fp32 *fp32 i32 i32", dict(ROWS=8, BLOCK=64))
build(arg_max, "arg_max_sm80", 80, "*fp32 *fp32 *i32 i32", dict(BLOCK=256))
build(cumulative, "cumulative_sm80", 80, "*i32 *i32 *i32", dict(BLOCK=512))
build(sort_rows, "sort_rows_sm80", 80, "*i32 *i32", dict(BLOCK=128), num_warps=2)
build(atomics, "atomics_sm80", 80, "*i32 *i32 *i32 *i32 i32", dict(BLOCK=256))
build(locked_sum, "locked_sum_sm80", 80, "*fp32 *fp32 *i32", dict(BLOCK=128))
build(unlocked_sum, "unlocked_sum_sm80", 80, "*fp32 *fp32", dict(BLOCK=128))
build(scale_unmasked, "scale_unmasked_sm80", 80, "*fp32 *fp32 fp32", dict(BLOCK=256))
build(dropout, "dropout_sm80", 80, "*fp32 *fp32 i32 fp32 i32", dict(BLOCK=256))
build(matmul, "matmul_tf32_sm80", 80, "*fp32 *fp32 *fp32 i32 i32 i32", dict(SUM=tl.float32, BM=32, BN=32, BK=32), num_stages=2)
build(matmul, "matmul_bytes_sm80", 80, "*i8 *i8 *i32 i32 i32 i32", dict(SUM=tl.int32, BM=32, BN=32, BK=32), num_stages=2)
build(matmul, "matmul_fp8_sm90", 90, "*fp8e4nv *fp8e4nv *fp32 i32 i32 i32", dict(SUM=tl.float32, BM=64, BN=64, BK=64), num_stages=2)
build(matmul_persistent, "matmul_persistent_sm90", 90, "*bf16 *bf16 *fp32 i32 i32 i32",
      dict(PROGRAMS=4, GROUP=2, BM=64, BN=64, BK=32), num_stages=2)
build(matmul_host_descriptors, "matmul_host_descriptors_sm90", 90,
      "tensordesc<fp16[64,64]> tensordesc<fp16[64,64]> tensordesc<fp16[64,64]> i32", dict(BM=64, BN=64, BK=64), num_stages=3)
build(matmul_device_descriptors, "matmul_device_descriptors_sm90", 90, "*fp16 *fp16 *fp16 i32 i32 i32",
      dict(BM=64, BN=64, BK=64), num_stages=2)

for kernel, name, capability, signature, constants, options in BUILDS:
    names = [word for word in kernel.arg_names if word not in constants]
    types = dict(zip(names, signature.split(), strict=True)) | {word: "constexpr" for word in constants}
    # Pointers and sizes that are multiples of 16, as Triton finds them at run time.
    aligned = {(i,): [["tt.divisibility", 16]] for i, word in enumerate(kernel.arg_names)
               if types[word].startswith("*") or word in ("M", "N", "K", "length")}
    compiled = triton.compile(ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned),
                              target=GPUTarget("cuda", capability, 32), options=options)
    ptx = without_folders(compiled.asm["ptx"])
    with open(f"{sys.argv[1]}/triton_{name}.ptx", "w") as file:
        file.write(ptx)
    print(name, len(ptx), compiled.metadata.name, "warps", compiled.metadata.num_warps, "shared", compiled.metadata.shared,
          "scratch", compiled.metadata.global_scratch_size, getattr(compiled.metadata, "profile_scratch_size", 0))
