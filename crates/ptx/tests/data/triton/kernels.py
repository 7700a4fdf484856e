import triton, triton.language as tl, sys
from triton.compiler import ASTSource
from triton.backends.compiler import GPUTarget

@triton.jit
def scaled_add(a, b, c, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    x = tl.load(a + at, mask=keep, other=0.0)
    y = tl.load(b + at, mask=keep, other=0.0)
    tl.store(c + at, x * scale + y, mask=keep)

@triton.jit
def softmax(x, y, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keep = at < columns
    v = tl.load(x + row * stride + at, mask=keep, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * stride + at, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=keep)

@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + depth[:, None] * N + cols[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * N
    tl.store(c + rows[:, None] * N + cols[None, :], acc.to(tl.float16))

out = sys.argv[1]
def build(kernel, signature, constants, cc, name, **options):
    src = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    k = triton.compile(src, target=GPUTarget("cuda", cc, 32), options=options)
    open(f"{out}/{name}.ptx", "w").write(k.asm["ptx"])
    print(name, len(k.asm["ptx"]))
for cc in (80, 90):
    build(scaled_add, {"a": "*fp32", "b": "*fp32", "c": "*fp32", "n": "i32", "scale": "fp32", "BLOCK": "constexpr"}, {"BLOCK": 1024}, cc, f"scaled_add_sm{cc}", ptx_version=80 if cc < 90 else 86)
    build(softmax, {"x": "*bf16", "y": "*bf16", "columns": "i32", "stride": "i32", "BLOCK": "constexpr"}, {"BLOCK": 1024}, cc, f"softmax_sm{cc}", ptx_version=80 if cc < 90 else 86)
    build(matmul, {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32", "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"}, {"BM": 64, "BN": 64, "BK": 32}, cc, f"matmul_sm{cc}", num_warps=4, num_stages=3, ptx_version=80 if cc < 90 else 86)
