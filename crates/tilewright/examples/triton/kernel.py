"""A fused softmax in Triton, compiled ahead of time to PTX; needs Triton (3.6 made what is here) and no GPU.

    python kernel.py            # writes softmax.ptx and softmax.json beside this file
"""
import json, os, pathlib

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # no folders of this machine in the PTX
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(x, out, scale, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf")) * scale
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


types = {"x": "*fp32", "out": "*fp32", "scale": "fp32", "columns": "i32", "BLOCK": "constexpr"}
source = ASTSource(softmax, signature=types, constexprs={"BLOCK": 1024})
built = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 4})
# What a launch must know and the PTX does not say. Two pointers to scratch memory follow the author's parameters.
wanted = ["name", "num_warps", "shared", "global_scratch_size", "profile_scratch_size"]
facts = {name: getattr(built.metadata, name) for name in wanted}
here = pathlib.Path(__file__).resolve().parent
(here / "softmax.ptx").write_text(built.asm["ptx"].rstrip() + "\n")
(here / "softmax.json").write_text(json.dumps({**facts, "block": 1024}, indent=2) + "\n")
