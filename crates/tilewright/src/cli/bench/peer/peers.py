"""Torch and Triton as peers of `tilewright bench`.

Reads one JSON object a line from standard input and answers each with one line on standard output:

    {"hello": 1, "peer": "torch", "device": 0}            {"protocol": 1, "python": .., "torch": .., "triton": .., "name": ..}
                                                          {"missing": why} if the peer cannot be imported
    {"op": "softmax", "peer": "torch", "dtype": "bf16", "rows": 128, "columns": 4096, "depth": 0, "k": 0,
     "copies": 3, "clock": "device", "seed": 1}           {"copies": 3}
    {"check": true}                                       {"relative_error": |found - expected| / |expected|, in float64}
    {"measure": 3.0}                                      {"us": of one launch, "launches": of the sample, "graph": true}

What fails is answered with {"failed": why}, what the peer does not have with {"unsupported": why}. `device` is the number of a GPU,
or null for this computer. The clock "device" is that of two events around a graph of many launches, which go through copies of the
operands, so that none finds its own in the cache; the clock "host" is that of many calls from Python and the wait for the last of them.
The program ends with its input. Whatever libraries print goes to standard error.
"""

import json
import os
import sys
import time

PROTOCOL = 1
EPS = 1e-5
DROPPED = 0.5
VOCABULARY = 32768
HEAD = 128
BASE = 10000.0
MOST_LAUNCHES = 4096
CHECKED_ROWS = 64

torch = None
triton = None
tl = None


class Unsupported(Exception):
    """The peer does not have this."""


def valid_columns(case, device):
    """How many columns each row of a causal softmax sees: the rows are the last ones of squares that are stacked."""
    rows, columns = case["rows"], case["columns"]
    first = -rows % columns
    return (torch.arange(rows, device=device) + first) % columns + 1


# What each op reads, and what it writes: names of arrays, which `Operands` makes.
ARRAYS = {
    "softmax": ("x", "y"),
    "log-softmax": ("x", "y"),
    "causal-softmax": ("x", "y"),
    "masked-softmax": ("x mask", "y"),
    "softmax-backward": ("probabilities dy", "dx"),
    "log-softmax-backward": ("logarithms dy", "dx"),
    "cross-entropy": ("x targets", "losses"),
    "cross-entropy-backward": ("x targets dlosses", "dx"),
    "rmsnorm": ("x w", "y"),
    "add-rmsnorm": ("x residual w", "sum y"),
    "rmsnorm-quantise-e4m3": ("x w", "e4m3 scales"),
    "rmsnorm-quantise-i8": ("x w", "i8 scales"),
    "rmsnorm-backward": ("x dy w", "dx dw"),
    "layernorm": ("x w b", "y"),
    "add-layernorm": ("x residual w b", "sum y"),
    "layernorm-backward": ("x dy w", "dx dw db"),
    "swiglu": ("gate up", "y"),
    "swiglu-backward": ("gate up dy", "dgate dup"),
    "geglu": ("gate up", "y"),
    "geglu-backward": ("gate up dy", "dgate dup"),
    "bias-gelu": ("x b", "y"),
    "rope": ("x cos sin", "y"),
    "reduce": ("x", "y"),
    "scan": ("x", "y"),
    "topk": ("x", "y"),
    "argmax": ("x", "y"),
    "embedding": ("indices table", "y"),
    "dropout": ("x", "y"),
    "quantise-e4m3": ("x", "e4m3 scales"),
    "quantise-i8": ("x", "i8 scales"),
    "dequantise-e4m3": ("e4m3 scales", "y"),
    "dequantise-i8": ("i8 scales", "y"),
    "convert": ("x", "y"),
    "transpose": ("x", "y"),
    "permute": ("x", "y"),
    "matmul-tile": ("factor other", "y"),
    "copy": ("x", "y"),
}

# The largest number of each type that rows are quantised to.
LARGEST = {"e4m3": 448.0, "i8": 127.0}


def converted(dtype):
    """What numbers of a type become."""
    return torch.bfloat16 if dtype == torch.float32 else torch.float32


def angles(rows, device):
    """By which pairs of a head are turned at each position."""
    pair = torch.arange(HEAD // 2, device=device, dtype=torch.float64)
    position = torch.arange(rows, device=device, dtype=torch.float64)
    return position[:, None] * BASE ** (-2.0 * pair / HEAD)[None, :]


class Operands:
    """The inputs of one launch, and the outputs of those that write where they are told to."""

    def __init__(self, case, device, dtype, shared):
        self.case, self.device, self.dtype, self.shared = case, device, dtype, shared
        self.inputs, self.outputs = (names.split() for names in ARRAYS[case["op"]])
        # What is computed once, before time is taken.
        self.saved = None
        for name in self.inputs:
            setattr(self, name, self.input(name))

    def input(self, name):
        rows, columns, depth, device = self.case["rows"], self.case["columns"], self.case["depth"], self.device

        def normal(*shape):
            return torch.randn(*shape, device=device, dtype=self.dtype)

        if name in ("w", "b"):
            return normal(columns)
        if name == "dlosses":
            return normal(rows)
        if name == "probabilities":
            return torch.softmax(normal(rows, columns), -1)
        if name == "logarithms":
            return torch.log_softmax(normal(rows, columns), -1)
        if name == "scales":
            return torch.randn(rows, 1, device=device)
        if name == "i8":
            return torch.randint(-127, 128, (rows, columns), device=device, dtype=torch.int8)
        if name == "e4m3":
            return normal(rows, columns).to(torch.float8_e4m3fn)
        if name == "mask":
            # Torch has NaN for rows of which nothing shows.
            mask = torch.rand(rows, columns, device=device) < 0.5
            mask[:, 0] = True
            return mask
        if name == "targets":
            return torch.randint(0, columns, (rows,), device=device)
        if name == "indices":
            return torch.randint(0, VOCABULARY, (rows,), device=device)
        if name == "table":
            return normal(VOCABULARY, columns)
        if name == "factor":
            return normal(rows, depth)
        if name == "other":
            return normal(depth, columns)
        if name in ("cos", "sin"):
            return getattr(torch, name)(angles(rows, device)).to(self.dtype)
        return normal(rows, columns)

    def with_outputs(self):
        rows, columns = self.case["rows"], self.case["columns"]
        for name in self.outputs:
            shape, dtype = (rows, columns), self.dtype
            if name in ("losses", "scales"):
                shape, dtype = (rows,), torch.float32
            elif name in ("dw", "db"):
                shape, dtype = (columns,), torch.float32
            elif name in ("e4m3", "i8"):
                dtype = torch.int8 if name == "i8" else torch.float8_e4m3fn
            setattr(self, name, torch.empty(shape, device=self.device, dtype=dtype))

    def results(self):
        return tuple(getattr(self, name) for name in self.outputs)

    def spoil(self):
        """So that whoever computes outputs must write them: a NaN of every float."""
        for name in self.outputs:
            if hasattr(self, name):
                getattr(self, name).view(torch.uint8).fill_(0xFF)


# Torch: a function of the operands for each op, in eager mode, by fused functions where it has them. Results are new memory, as everybody calls
# it, except for the copy. Gradients are the functions that autograd calls: autograd itself runs on the stream of the forward pass, which a graph
# cannot record.


def torch_causal(o):
    return torch.softmax(o.x.masked_fill(o.shared["hidden"], float("-inf")), -1)


def torch_masked(o):
    return torch.softmax(o.x.masked_fill(o.saved, float("-inf")), -1)


def torch_copy(o):
    return o.y.copy_(o.x)


def torch_softmax_backward(o):
    return torch.ops.aten._softmax_backward_data(o.dy, o.probabilities, -1, o.dtype)


def torch_log_softmax_backward(o):
    return torch.ops.aten._log_softmax_backward_data(o.dy, o.logarithms, -1, o.dtype)


def torch_cross_entropy_backward(o):
    logarithms, count = o.saved
    chosen = torch.ops.aten.nll_loss_backward(o.dlosses, logarithms, o.targets, None, 0, -100, count)
    return torch.ops.aten._log_softmax_backward_data(chosen, logarithms, -1, o.dtype)


def torch_add_rmsnorm(o):
    total = o.x + o.residual
    return total, torch.nn.functional.rms_norm(total, (total.shape[-1],), o.w, EPS)


def torch_add_layernorm(o):
    total = o.x + o.residual
    return total, torch.nn.functional.layer_norm(total, (total.shape[-1],), o.w, o.b, EPS)


def torch_quantise(x, name):
    largest = LARGEST[name]
    scales = x.abs().amax(-1, keepdim=True).float() / largest
    if name == "i8":
        return torch.round(x / scales).clamp(-largest, largest).to(torch.int8), scales
    return (x / scales).clamp(-largest, largest).to(torch.float8_e4m3fn), scales


def torch_rmsnorm_backward(o):
    inverse, fused = o.saved
    if fused:
        return torch.ops.aten._fused_rms_norm_backward(o.dy, o.x, [o.x.shape[-1]], inverse, o.w, [True, True])
    # What older versions, and this computer, have no function for.
    normed = o.x * inverse
    given = o.dy * o.w
    dx = inverse * (given - normed * (given * normed).mean(-1, keepdim=True))
    return dx.to(o.dtype), (o.dy * normed).sum(0)


def torch_layernorm_backward(o):
    mean, inverse, bias = o.saved
    shape = [o.x.shape[-1]]
    return torch.ops.aten.native_layer_norm_backward(o.dy, o.x, shape, mean, inverse, o.w, bias, [True, True, True])


def torch_swiglu_backward(o):
    dgate = torch.ops.aten.silu_backward(o.dy * o.up, o.gate)
    return dgate, o.dy * torch.nn.functional.silu(o.gate)


def torch_geglu_backward(o):
    dgate = torch.ops.aten.gelu_backward(o.dy * o.up, o.gate)
    return dgate, o.dy * torch.nn.functional.gelu(o.gate)


def torch_permute(o):
    rows, columns = o.x.shape
    return o.x.view(rows, columns // HEAD, HEAD).transpose(0, 1).contiguous()


def torch_rope(o):
    rows, columns = o.x.shape
    x = o.x.view(rows, columns // HEAD, HEAD)
    cos, sin = o.cos[:, None, :], o.sin[:, None, :]
    first, second = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).view(rows, columns)


def torch_saved(o):
    """What is known before: of gradients, what the forward pass leaves to them."""
    op, x = o.case["op"], getattr(o, "x", None)
    if op == "masked-softmax":
        return ~o.mask
    if op == "cross-entropy-backward":
        return torch.log_softmax(x, -1), torch.zeros((), device=o.device, dtype=o.dtype)
    if op == "rmsnorm-backward":
        name, key = "_fused_rms_norm_backward", "CUDA" if o.device.type == "cuda" else "CPU"
        known = torch._C._dispatch_has_kernel_for_dispatch_key
        fused = hasattr(torch.ops.aten, name) and known(f"aten::{name}", key)
        return torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS), fused
    if op == "layernorm-backward":
        if o.device.type == "cpu" and o.dtype != torch.float32:
            raise Unsupported("torch adds up gradients of weights in 16 bits on this device, which is not the same")
        bias = torch.zeros_like(o.w)
        return *torch.ops.aten.native_layer_norm(x, [x.shape[-1]], o.w, bias, EPS)[1:], bias
    return None


def torch_ops():
    f = torch.nn.functional

    def normed(o):
        return f.rms_norm(o.x, (o.x.shape[-1],), o.w, EPS)

    return {
        "softmax": lambda o: torch.softmax(o.x, -1),
        "log-softmax": lambda o: f.log_softmax(o.x, -1),
        "causal-softmax": torch_causal,
        "masked-softmax": torch_masked,
        "softmax-backward": torch_softmax_backward,
        "log-softmax-backward": torch_log_softmax_backward,
        "cross-entropy": lambda o: f.cross_entropy(o.x, o.targets, reduction="none"),
        "cross-entropy-backward": torch_cross_entropy_backward,
        "rmsnorm": normed,
        "add-rmsnorm": torch_add_rmsnorm,
        "rmsnorm-quantise-e4m3": lambda o: torch_quantise(normed(o), "e4m3"),
        "rmsnorm-quantise-i8": lambda o: torch_quantise(normed(o), "i8"),
        "rmsnorm-backward": torch_rmsnorm_backward,
        "layernorm": lambda o: f.layer_norm(o.x, (o.x.shape[-1],), o.w, o.b, EPS),
        "add-layernorm": torch_add_layernorm,
        "layernorm-backward": torch_layernorm_backward,
        "swiglu": lambda o: f.silu(o.gate) * o.up,
        "swiglu-backward": torch_swiglu_backward,
        "geglu": lambda o: f.gelu(o.gate) * o.up,
        "geglu-backward": torch_geglu_backward,
        "bias-gelu": lambda o: f.gelu(o.x + o.b),
        "rope": torch_rope,
        "reduce": lambda o: o.x.sum(-1),
        "scan": lambda o: torch.cumsum(o.x, -1),
        "topk": lambda o: torch.topk(o.x, o.shared["k"], -1),
        "argmax": lambda o: torch.argmax(o.x, -1),
        "embedding": lambda o: f.embedding(o.indices, o.table),
        "dropout": lambda o: f.dropout(o.x, DROPPED, True),
        "quantise-e4m3": lambda o: torch_quantise(o.x, "e4m3"),
        "quantise-i8": lambda o: torch_quantise(o.x, "i8"),
        "dequantise-e4m3": lambda o: (o.e4m3.float() * o.scales).to(o.dtype),
        "dequantise-i8": lambda o: (o.i8 * o.scales).to(o.dtype),
        "convert": lambda o: o.x.to(converted(o.dtype)),
        "transpose": lambda o: o.x.t().contiguous(),
        "permute": torch_permute,
        "matmul-tile": lambda o: torch.matmul(o.factor, o.other),
        "copy": torch_copy,
    }


# Triton: kernels in the manner of its tutorials, a row in one block. They are made when Triton is there.


def triton_ops():
    # Kernels look names up in their module.
    global tl
    from triton import language

    tl = language

    def row_configs():
        return [triton.Config({}, num_warps=warps) for warps in (4, 8, 16, 32)]

    def row_kernel(kernel):
        return triton.autotune(configs=row_configs(), key=["columns", "BLOCK"])(triton.jit(kernel))

    @row_kernel
    def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(value - tl.max(value, axis=0))
        result = numerator / tl.sum(numerator, axis=0)
        tl.store(y + row * columns + column, result, mask=inside)

    @row_kernel
    def causal_kernel(x, y, first, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        seen = column <= (row + first) % columns
        value = tl.load(x + row * columns + column, mask=seen, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(value - tl.max(value, axis=0))
        result = numerator / tl.sum(numerator, axis=0)
        tl.store(y + row * columns + column, result, mask=column < columns)

    @row_kernel
    def rms_kernel(x, w, y, columns, eps, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
        tl.store(y + row * columns + column, value * scale * weight, mask=inside)

    @row_kernel
    def layer_kernel(x, w, b, y, columns, eps, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(value, axis=0) / columns
        centred = tl.where(inside, value - mean, 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
        weight = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(b + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row * columns + column, centred * scale * weight + bias, mask=inside)

    @row_kernel
    def log_softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=-float("inf")).to(tl.float32)
        value -= tl.max(value, axis=0)
        tl.store(y + row * columns + column, value - tl.log(tl.sum(tl.exp(value), axis=0)), mask=inside)

    @row_kernel
    def masked_kernel(x, mask, y, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        shown = tl.load(mask + row * columns + column, mask=inside, other=0) != 0
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        value = tl.where(shown, value, -float("inf"))
        numerator = tl.exp(value - tl.max(value, axis=0))
        tl.store(y + row * columns + column, numerator / tl.sum(numerator, axis=0), mask=inside)

    @row_kernel
    def softmax_backward_kernel(y, dy, dx, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        part = tl.load(y + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        given = tl.load(dy + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        result = part * (given - tl.sum(part * given, axis=0))
        tl.store(dx + row * columns + column, result, mask=inside)

    @row_kernel
    def log_softmax_backward_kernel(y, dy, dx, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        logarithm = tl.load(y + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        given = tl.load(dy + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        result = given - tl.exp(logarithm) * tl.sum(given, axis=0)
        tl.store(dx + row * columns + column, result, mask=inside)

    # Vocabularies are long: the largest logit and the sum are found in one pass over blocks, as Liger does.

    @row_kernel
    def cross_entropy_kernel(x, targets, losses, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        most = -float("inf")
        total = 0.0
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            value = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
            larger = tl.maximum(most, tl.max(value, axis=0))
            total = total * tl.exp(most - larger) + tl.sum(tl.exp(value - larger), axis=0)
            most = larger
        chosen = tl.load(x + row * columns + tl.load(targets + row)).to(tl.float32)
        tl.store(losses + row, most + tl.log(total) - chosen)

    @row_kernel
    def cross_entropy_backward_kernel(x, targets, dlosses, dx, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        most = -float("inf")
        total = 0.0
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            value = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
            larger = tl.maximum(most, tl.max(value, axis=0))
            total = total * tl.exp(most - larger) + tl.sum(tl.exp(value - larger), axis=0)
            most = larger
        target = tl.load(targets + row)
        given = tl.load(dlosses + row).to(tl.float32)
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            inside = column < columns
            value = tl.load(x + row * columns + column, mask=inside, other=-float("inf")).to(tl.float32)
            result = tl.exp(value - most) / total - tl.where(column == target, 1.0, 0.0)
            tl.store(dx + row * columns + column, given * result, mask=inside)

    @row_kernel
    def add_rms_kernel(x, residual, w, total, y, columns, eps, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        value += tl.load(residual + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(total + row * columns + column, value, mask=inside)
        weight = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
        tl.store(y + row * columns + column, value * scale * weight, mask=inside)

    @row_kernel
    def add_layer_kernel(x, residual, w, b, total, y, columns, eps, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        value += tl.load(residual + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(total + row * columns + column, value, mask=inside)
        weight = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(b + column, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, value - tl.sum(value, axis=0) / columns, 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
        tl.store(y + row * columns + column, centred * scale * weight + bias, mask=inside)

    @row_kernel
    def quantise_kernel(x, w, q, scales, columns, eps, largest, NORM: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            weight = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
            value = value * tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps) * weight
        most = tl.max(tl.abs(value), axis=0)
        tl.store(scales + row, most / largest)
        value = value * (largest / most)
        if WHOLE:
            value = tl.floor(value + 0.5)
        tl.store(q + row * columns + column, value.to(q.dtype.element_ty), mask=inside)

    @row_kernel
    def dequantise_kernel(q, scales, y, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(q + row * columns + column, mask=inside).to(tl.float32)
        tl.store(y + row * columns + column, value * tl.load(scales + row), mask=inside)

    # Gradients of weights: each program adds up some rows, and what they have is added up after, as in the tutorial and in Liger.

    @row_kernel
    def norm_backward_kernel(
        x, dy, w, dx, dw, db, rows, columns, eps, CENTRED: tl.constexpr, BLOCK: tl.constexpr
    ):
        program = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        weight = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        of_weights = tl.zeros((BLOCK,), dtype=tl.float32)
        of_biases = tl.zeros((BLOCK,), dtype=tl.float32)
        for row in range(program, rows, tl.num_programs(0)):
            value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
            given = tl.load(dy + row * columns + column, mask=inside, other=0.0).to(tl.float32)
            if CENTRED:
                value = tl.where(inside, value - tl.sum(value, axis=0) / columns, 0.0)
            scale = tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
            normed = value * scale
            weighted = given * weight
            result = weighted - normed * (tl.sum(weighted * normed, axis=0) / columns)
            if CENTRED:
                result -= tl.sum(weighted, axis=0) / columns
                of_biases += given
            tl.store(dx + row * columns + column, result * scale, mask=inside)
            of_weights += given * normed
        tl.store(dw + program * columns + column, of_weights, mask=inside)
        if CENTRED:
            tl.store(db + program * columns + column, of_biases, mask=inside)

    @row_kernel
    def glu_kernel(gate, up, y, columns, GELU: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(gate + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(up + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        if GELU:
            value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
        else:
            value = value * tl.sigmoid(value)
        tl.store(y + row * columns + column, value * other, mask=inside)

    @row_kernel
    def glu_backward_kernel(gate, up, dy, dgate, dup, columns, GELU: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(gate + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(up + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        given = tl.load(dy + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        if GELU:
            part = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
            slope = part + value * tl.exp(-0.5 * value * value) * 0.3989422804014327
        else:
            part = tl.sigmoid(value)
            slope = part * (1.0 + value * (1.0 - part))
        tl.store(dup + row * columns + column, given * value * part, mask=inside)
        tl.store(dgate + row * columns + column, given * other * slope, mask=inside)

    @row_kernel
    def bias_gelu_kernel(x, b, y, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        value += tl.load(b + column, mask=inside, other=0.0).to(tl.float32)
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
        tl.store(y + row * columns + column, value, mask=inside)

    @row_kernel
    def rope_kernel(x, cos, sin, y, columns, HALF: tl.constexpr, BLOCK: tl.constexpr):
        # A block is the first halves of all heads of a row.
        row = tl.program_id(0).to(tl.int64)
        number = tl.arange(0, BLOCK)
        inside = number < columns // 2
        pair = number % HALF
        first = row * columns + (number // HALF) * (2 * HALF) + pair
        c = tl.load(cos + row * HALF + pair, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + row * HALF + pair, mask=inside, other=0.0).to(tl.float32)
        a = tl.load(x + first, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(x + first + HALF, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + first, a * c - b * s, mask=inside)
        tl.store(y + first + HALF, b * c + a * s, mask=inside)

    # The blocks that the tutorial tries on NVIDIA GPUs: M, N, K, stages, warps.
    blocks = [
        (128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4), (128, 32, 32, 4, 4), (64, 32, 32, 5, 2), (32, 64, 32, 5, 2),
        (128, 256, 128, 3, 8), (256, 128, 128, 3, 8), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4),
        (128, 128, 128, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 32, 64, 4, 4),
    ]
    matmul_configs = [
        triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)
        for bm, bn, bk, stages, warps in blocks
    ]

    @triton.autotune(configs=matmul_configs, key=["m", "n", "k"])
    @triton.jit
    def matmul_kernel(
        a, b, c, m, n, k, stride_a, stride_b, stride_c,
        BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    ):
        # Programs that run at the same time share rows of A and columns of B: GROUP rows of blocks at a time.
        program = tl.program_id(0)
        across = tl.cdiv(n, BN)
        group = program // (GROUP * across)
        top = group * GROUP
        height = min(tl.cdiv(m, BM) - top, GROUP)
        block_m = top + (program % (GROUP * across)) % height
        block_n = (program % (GROUP * across)) // height
        # What lies outside is computed from what lies inside, and not stored.
        row = (block_m * BM + tl.arange(0, BM)) % m
        column = (block_n * BN + tl.arange(0, BN)) % n
        depth = tl.arange(0, BK)
        from_a = a + row[:, None] * stride_a + depth[None, :]
        from_b = b + depth[:, None] * stride_b + column[None, :]
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(0, tl.cdiv(k, BK)):
            left = k - step * BK
            left_a = tl.load(from_a, mask=depth[None, :] < left, other=0.0)
            left_b = tl.load(from_b, mask=depth[:, None] < left, other=0.0)
            total = tl.dot(left_a, left_b, total)
            from_a += BK
            from_b += BK * stride_b
        row = block_m * BM + tl.arange(0, BM)
        column = block_n * BN + tl.arange(0, BN)
        place = c + stride_c * row[:, None].to(tl.int64) + column[None, :]
        tl.store(place, total.to(c.dtype.element_ty), mask=(row[:, None] < m) & (column[None, :] < n))

    def over_rows(launch, longest=131072):
        def run(o):
            rows, columns = o.case["rows"], o.case["columns"]
            if columns > longest:
                raise Unsupported(f"the kernels of the tutorials keep a row in one block, and {columns} columns do not fit")
            launch(o, (rows,), columns, triton.next_power_of_2(columns))
            return o.results()

        return run

    def in_blocks(launch):
        def run(o):
            rows, columns = o.case["rows"], o.case["columns"]
            launch(o, (rows,), columns, min(triton.next_power_of_2(columns), 32768))
            return o.results()

        return run

    def quantise(name, norm):
        def launch(o, grid, n, block):
            w, q = o.w if norm else o.x, getattr(o, name)
            whole = name == "i8"
            quantise_kernel[grid](o.x, w, q, o.scales, n, EPS, LARGEST[name], NORM=norm, WHOLE=whole, BLOCK=block)

        return over_rows(launch)

    def norm_backward(centred):
        def launch(o, grid, n, block):
            # The programs that run at the same time, no more.
            programs = min(grid[0], multiprocessors(o.device))
            if o.saved is None:
                o.saved = [torch.empty(programs, n, device=o.device, dtype=torch.float32) for _ in range(2)]
            dw, db = o.saved
            norm_backward_kernel[(programs,)](
                o.x, o.dy, o.w, o.dx, dw, db, grid[0], n, EPS, CENTRED=centred, BLOCK=block
            )
            torch.sum(dw, 0, out=o.dw)
            if centred:
                torch.sum(db, 0, out=o.db)

        return over_rows(launch, 65536)

    def glu(gelu):
        return over_rows(
            lambda o, grid, n, block: glu_kernel[grid](o.gate, o.up, o.y, n, GELU=gelu, BLOCK=block)
        )

    def glu_backward(gelu):
        return over_rows(
            lambda o, grid, n, block: glu_backward_kernel[grid](
                o.gate, o.up, o.dy, o.dgate, o.dup, n, GELU=gelu, BLOCK=block
            )
        )

    def matmul(o):
        (m, k), n = o.factor.shape, o.other.shape[1]

        def grid(meta):
            return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

        matmul_kernel[grid](
            o.factor, o.other, o.y, m, n, k, o.factor.stride(0), o.other.stride(0), o.y.stride(0)
        )
        return o.results()

    return {
        "softmax": over_rows(lambda o, grid, n, block: softmax_kernel[grid](o.x, o.y, n, BLOCK=block)),
        "log-softmax": over_rows(lambda o, grid, n, block: log_softmax_kernel[grid](o.x, o.y, n, BLOCK=block)),
        "causal-softmax": over_rows(
            lambda o, grid, n, block: causal_kernel[grid](o.x, o.y, o.shared["first"], n, BLOCK=block)
        ),
        "masked-softmax": over_rows(
            lambda o, grid, n, block: masked_kernel[grid](o.x, o.mask, o.y, n, BLOCK=block)
        ),
        "softmax-backward": over_rows(
            lambda o, grid, n, block: softmax_backward_kernel[grid](o.probabilities, o.dy, o.dx, n, BLOCK=block)
        ),
        "log-softmax-backward": over_rows(
            lambda o, grid, n, block: log_softmax_backward_kernel[grid](o.logarithms, o.dy, o.dx, n, BLOCK=block)
        ),
        "cross-entropy": in_blocks(
            lambda o, grid, n, block: cross_entropy_kernel[grid](o.x, o.targets, o.losses, n, BLOCK=block)
        ),
        "cross-entropy-backward": in_blocks(
            lambda o, grid, n, block: cross_entropy_backward_kernel[grid](
                o.x, o.targets, o.dlosses, o.dx, n, BLOCK=block
            )
        ),
        "rmsnorm": over_rows(lambda o, grid, n, block: rms_kernel[grid](o.x, o.w, o.y, n, EPS, BLOCK=block)),
        "add-rmsnorm": over_rows(
            lambda o, grid, n, block: add_rms_kernel[grid](
                o.x, o.residual, o.w, o.sum, o.y, n, EPS, BLOCK=block
            )
        ),
        "rmsnorm-quantise-e4m3": quantise("e4m3", True),
        "rmsnorm-quantise-i8": quantise("i8", True),
        "rmsnorm-backward": norm_backward(False),
        "layernorm": over_rows(
            lambda o, grid, n, block: layer_kernel[grid](o.x, o.w, o.b, o.y, n, EPS, BLOCK=block)
        ),
        "add-layernorm": over_rows(
            lambda o, grid, n, block: add_layer_kernel[grid](
                o.x, o.residual, o.w, o.b, o.sum, o.y, n, EPS, BLOCK=block
            )
        ),
        "layernorm-backward": norm_backward(True),
        "swiglu": glu(False),
        "swiglu-backward": glu_backward(False),
        "geglu": glu(True),
        "geglu-backward": glu_backward(True),
        "bias-gelu": over_rows(lambda o, grid, n, block: bias_gelu_kernel[grid](o.x, o.b, o.y, n, BLOCK=block)),
        "rope": over_rows(
            lambda o, grid, n, block: rope_kernel[grid](o.x, o.cos, o.sin, o.y, n, HALF=HEAD // 2, BLOCK=block // 2)
        ),
        "quantise-e4m3": quantise("e4m3", False),
        "quantise-i8": quantise("i8", False),
        "dequantise-e4m3": over_rows(
            lambda o, grid, n, block: dequantise_kernel[grid](o.e4m3, o.scales, o.y, n, BLOCK=block)
        ),
        "dequantise-i8": over_rows(
            lambda o, grid, n, block: dequantise_kernel[grid](o.i8, o.scales, o.y, n, BLOCK=block)
        ),
        "matmul-tile": matmul,
    }


def multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


# The same in float64, on some rows: a tensor for each result, those that add up over rows in full.


def in_parts(o):
    """All rows, some at a time: in float64 they may not fit into memory."""
    for start in range(0, o.x.shape[0], CHECKED_ROWS):
        part = slice(start, start + CHECKED_ROWS)
        yield o.x[part].double(), o.dy[part].double()


def moments(x, centred):
    """A row less its mean, which RMSNorm keeps, and one over its size."""
    centre = x - x.mean(-1, keepdim=True) if centred else x
    return centre, torch.rsqrt((centre * centre).mean(-1, keepdim=True) + EPS)


def norm_gradients(o, picked, centred):
    x, inverse = moments(o.x[picked].double(), centred)
    normed, given = x * inverse, o.dy[picked].double() * o.w.double()
    first = given.mean(-1, keepdim=True) if centred else 0.0
    dx = inverse * (given - first - normed * (given * normed).mean(-1, keepdim=True))
    dw = db = 0.0
    for x, dy in in_parts(o):
        x, inverse = moments(x, centred)
        dw = dw + (dy * x * inverse).sum(0)
        db = db + dy.sum(0)
    return (dx, dw, db) if centred else (dx, dw)


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x * 0.5**0.5))


def normed(o, x):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * o.w.double()


def expected(case, o, picked):
    op = case["op"]
    x, gate, up, dy = (
        getattr(o, name)[picked].double() if name in o.inputs else None for name in ("x", "gate", "up", "dy")
    )
    if op == "softmax":
        return torch.softmax(x, -1)
    if op == "log-softmax":
        return torch.log_softmax(x, -1)
    if op == "causal-softmax":
        column = torch.arange(case["columns"], device=x.device)
        hidden = column[None, :] >= valid_columns(case, x.device)[picked][:, None]
        return torch.softmax(x.masked_fill(hidden, float("-inf")), -1)
    if op == "masked-softmax":
        return torch.softmax(x.masked_fill(~o.mask[picked], float("-inf")), -1)
    if op == "softmax-backward":
        y = o.probabilities[picked].double()
        return y * (dy - (y * dy).sum(-1, keepdim=True))
    if op == "log-softmax-backward":
        return dy - torch.exp(o.logarithms[picked].double()) * dy.sum(-1, keepdim=True)
    if op == "cross-entropy":
        return torch.logsumexp(x, -1) - x.gather(-1, o.targets[picked][:, None])[:, 0]
    if op == "cross-entropy-backward":
        hit = torch.nn.functional.one_hot(o.targets[picked], case["columns"])
        return o.dlosses[picked].double()[:, None] * (torch.softmax(x, -1) - hit)
    if op in ("rmsnorm", "rmsnorm-quantise-e4m3", "rmsnorm-quantise-i8"):
        return normed(o, x)
    if op == "add-rmsnorm":
        total = x + o.residual[picked].double()
        return total, normed(o, total)
    if op == "rmsnorm-backward":
        return norm_gradients(o, picked, False)
    if op in ("layernorm", "add-layernorm"):
        total = x if op == "layernorm" else x + o.residual[picked].double()
        centred, scale = moments(total, True)
        y = centred * scale * o.w.double() + o.b.double()
        return y if op == "layernorm" else (total, y)
    if op == "layernorm-backward":
        return norm_gradients(o, picked, True)
    if op == "swiglu":
        return gate * torch.sigmoid(gate) * up
    if op == "swiglu-backward":
        part = torch.sigmoid(gate)
        return dy * up * part * (1 + gate * (1 - part)), dy * gate * part
    if op == "geglu":
        return gelu(gate) * up
    if op == "geglu-backward":
        part = 0.5 * (1 + torch.erf(gate * 0.5**0.5))
        slope = part + gate * torch.exp(-0.5 * gate * gate) / (2 * torch.pi) ** 0.5
        return dy * up * slope, dy * gate * part
    if op == "bias-gelu":
        return gelu(x + o.b.double())
    if op == "rope":
        turn = angles(case["rows"], x.device)[picked]
        pairs = x.view(len(picked), -1, 2, HEAD // 2)
        cos, sin = torch.cos(turn)[:, None], torch.sin(turn)[:, None]
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        return torch.stack((first * cos - second * sin, first * sin + second * cos), 2).view(x.shape)
    if op == "reduce":
        return x.sum(-1)
    if op == "scan":
        return torch.cumsum(x, -1)
    if op in ("topk", "argmax"):
        return torch.sort(x, -1, descending=True).values[:, : max(case["k"], 1)]
    if op == "embedding":
        return o.table[o.indices[picked]].double()
    if op in ("dequantise-e4m3", "dequantise-i8"):
        return getattr(o, o.inputs[0])[picked].to(torch.float32).double() * o.scales[picked].double()
    if op == "permute":
        return x.view(len(picked), -1, HEAD)
    if op == "matmul-tile":
        return o.factor[picked].double() @ o.other.double()
    return x


def dequantised(o, want, found, scales):
    """What quantised rows stand for, beside their scales: where it is as near as it can be, what is wanted."""
    name = o.outputs[0]
    scales = scales.double().view(-1, 1)
    value = found.to(torch.float32).double() * scales
    # Half a step of the type; and the norm before may have been rounded to the type of the input.
    step = 0.5 * scales if name == "i8" else want.abs() / 16 + scales / 1024
    step = step * 1.01 + want.abs() / (1 << (20 if o.dtype == torch.float32 else 7))
    largest = want.abs().amax(-1, keepdim=True) / LARGEST[name]
    return (want, largest), (torch.where((value - want).abs() <= step, want, value), scales)


def relative_error(case, o, result):
    """The largest of all results."""
    rows, op = case["rows"], case["op"]
    picked = torch.unique(torch.linspace(0, rows - 1, min(rows, CHECKED_ROWS), device=o.device).long())
    want = expected(case, o, picked)
    if op == "topk":
        # The places must lead to the values.
        found = result.values[picked].double()
        if not torch.equal(o.x[picked].gather(-1, result.indices[picked]).double(), found):
            return float("inf")
    elif op == "argmax":
        found = o.x[picked].gather(-1, result[picked][:, None]).double()
    elif op == "dropout":
        found = result[picked].double()
        want = torch.where(found == 0, 0.0, want / (1 - DROPPED))
        share = (result == 0).double().mean().item()
        if abs(share - DROPPED) > 6 / (result.numel() ** 0.5):
            return float("inf")
    elif op == "transpose":
        found = result.t()[picked].double()
    elif op == "permute":
        found = result.transpose(0, 1)[picked].double()
    elif o.outputs[0] in LARGEST:
        want, found = dequantised(o, want, *(part[picked] for part in result))
    else:
        every = result if isinstance(result, tuple) else (result,)
        found = tuple(
            part.double() if name in ("dw", "db") else part[picked].double() for name, part in zip(o.outputs, every)
        )
    want, found = (part if isinstance(part, tuple) else (part,) for part in (want, found))
    if len(want) != len(found):
        return float("inf")
    return max((distance(one, other) for one, other in zip(want, found)), key=lambda error: (error != error, error))


def distance(want, found):
    if want.shape != found.shape:
        return float("inf")
    size = torch.linalg.vector_norm(want).item()
    return torch.linalg.vector_norm(found - want).item() / max(size, 1e-300)


class Bench:
    """An op of a peer on several copies of its operands."""

    def __init__(self, case, device, ops):
        op = case["op"]
        if op not in ops:
            raise Unsupported(f"{case['peer']} has no {op} here")
        if case["clock"] not in ("device", "host"):
            raise ValueError(f"found the clock {case['clock']!r}, expected device or host")
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[case["dtype"]]
        torch.manual_seed(case["seed"])
        rows, columns = case["rows"], case["columns"]
        shared = {"k": case["k"], "first": -rows % max(columns, 1)}
        if op == "causal-softmax" and case["peer"] == "torch":
            column = torch.arange(columns, device=device)
            shared["hidden"] = column[None, :] >= valid_columns(case, device)[:, None]
        self.case, self.device, self.run = case, device, ops[op]
        self.copies = [Operands(case, device, dtype, shared) for _ in range(max(case["copies"], 1))]
        for copy in self.copies:
            if case["peer"] == "triton" or op == "copy":
                copy.with_outputs()
            if case["peer"] == "torch":
                copy.saved = torch_saved(copy)
        self.held = [None] * len(self.copies)
        self.timers = {}
        # Loads, compiles and tunes whatever is.
        for _ in range(2):
            self.launch(len(self.copies))
        self.synchronize()

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def launch(self, count):
        # Results live until their copy comes again: else all would be written to the same memory, which stays in the cache.
        copies, held, run = self.copies, self.held, self.run
        for number in range(count):
            place = number % len(copies)
            held[place] = run(copies[place])

    def check(self):
        o = self.copies[0]
        o.spoil()
        return relative_error(self.case, o, self.run(o))

    def launches(self, seconds, of_one):
        count = int(min(max(seconds / max(of_one, 1e-9), 1), MOST_LAUNCHES))
        copies = len(self.copies)
        return -(-count // copies) * copies

    def on_host(self, count):
        """Seconds of a call."""
        self.synchronize()
        begin = time.perf_counter()
        self.launch(count)
        self.synchronize()
        return (time.perf_counter() - begin) / count

    def between_events(self, count, work):
        """Seconds of a launch."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / count

    def timer(self, seconds):
        """Launches of a sample, whether they are a graph, and what runs them and tells the seconds of one."""
        copies = len(self.copies)
        if self.case["clock"] == "host" or self.device.type == "cpu":
            count = self.launches(seconds, self.on_host(copies))
            return count, False, lambda: self.on_host(count)
        count = self.launches(seconds, self.between_events(copies, lambda: self.launch(copies)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.launch(count)
        # The first replay also uploads the graph.
        graph.replay()
        self.synchronize()
        return count, True, lambda: self.between_events(count, graph.replay)

    def measure(self, milliseconds):
        if milliseconds not in self.timers:
            self.timers[milliseconds] = self.timer(milliseconds * 1e-3)
        count, graph, run = self.timers[milliseconds]
        return {"us": run() * 1e6, "launches": count, "graph": graph}


class Peer:
    """What answers requests."""

    def __init__(self):
        self.device = None
        self.bench = None
        self.ops = None

    def hello(self, request):
        global torch, triton
        facts = {"protocol": PROTOCOL, "python": sys.version.split()[0], "torch": None, "triton": None}
        try:
            import torch as found_torch

            torch = found_torch
            facts["torch"] = torch.__version__
            if request["peer"] == "triton":
                import triton as found_triton

                triton = found_triton
                facts["triton"] = triton.__version__
        except Exception as error:  # whatever a broken installation raises
            return {"missing": one_line(error)}
        if request["device"] is None:
            if request["peer"] == "triton":
                return {"missing": "Triton needs a GPU"}
            self.device = torch.device("cpu")
            facts["name"] = "CPU"
        else:
            if not torch.cuda.is_available():
                return {"missing": "torch finds no GPU"}
            self.device = torch.device("cuda", request["device"])
            torch.cuda.set_device(self.device)
            facts["name"] = torch.cuda.get_device_name(self.device)
        return facts

    def prepare(self, case):
        self.bench = None
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
        if self.ops is None:
            self.ops = triton_ops() if case["peer"] == "triton" else torch_ops()
        self.bench = Bench(case, self.device, self.ops)
        return {"copies": len(self.bench.copies)}

    def answer(self, request):
        if "hello" in request:
            return self.hello(request)
        if self.device is None:
            raise ValueError("found a request before hello")
        with torch.no_grad():
            if "op" in request:
                return self.prepare(request)
            if self.bench is None:
                raise ValueError("found a request before an op")
            if "check" in request:
                return {"relative_error": finite(self.bench.check())}
            if "measure" in request:
                return self.bench.measure(request["measure"])
        raise ValueError(f"found an unknown request, {sorted(request)}")


def finite(number):
    """JSON has neither infinity nor NaN."""
    return number if abs(number) < float("inf") else sys.float_info.max


def one_line(error):
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"[:2000]


def main():
    # Whatever libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer()
    for line in iter(sys.stdin.readline, ""):
        try:
            answer = peer.answer(json.loads(line))
        except Unsupported as error:
            answer = {"unsupported": str(error)}
        except Exception as error:  # the other side decides what to do about it
            answer = {"failed": one_line(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        # The file is a copy for this process alone, if it says so.
        if sys.argv[1:] == ["--temporary"]:
            try:
                os.unlink(__file__)
            except OSError:
                pass
