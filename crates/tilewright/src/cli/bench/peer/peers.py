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


class Operands:
    """The inputs of one launch, and the outputs of those that write where they are told to."""

    def __init__(self, case, device, dtype, shared):
        rows, columns, depth, op = case["rows"], case["columns"], case["depth"], case["op"]

        def normal(*shape):
            return torch.randn(*shape, device=device, dtype=dtype)

        self.shared = shared
        self.y = None
        if op == "matmul-tile":
            self.x = normal(rows, depth)
            self.w = normal(depth, columns)
        elif op == "embedding":
            self.x = torch.randint(0, VOCABULARY, (rows,), device=device, dtype=torch.int64)
            self.w = normal(VOCABULARY, columns)
        else:
            self.x = normal(rows, columns)
            if op in ("rmsnorm", "layernorm"):
                self.w = normal(columns)
            if op == "layernorm":
                self.b = normal(columns)

    def with_output(self, *shape):
        self.y = torch.full(shape, float("nan"), device=self.x.device, dtype=self.x.dtype)


# Torch: a function of the operands for each op. Results are new memory, as everybody calls it, except for the copy.


def torch_causal(o):
    return torch.softmax(o.x.masked_fill(o.shared["hidden"], float("-inf")), -1)


def torch_copy(o):
    return o.y.copy_(o.x)


def torch_ops():
    f = torch.nn.functional
    return {
        "softmax": lambda o: torch.softmax(o.x, -1),
        "causal-softmax": torch_causal,
        "rmsnorm": lambda o: f.rms_norm(o.x, (o.x.shape[-1],), o.w, EPS),
        "layernorm": lambda o: f.layer_norm(o.x, (o.x.shape[-1],), o.w, o.b, EPS),
        "reduce": lambda o: o.x.sum(-1),
        "scan": lambda o: torch.cumsum(o.x, -1),
        "topk": lambda o: torch.topk(o.x, o.shared["k"], -1),
        "argmax": lambda o: torch.argmax(o.x, -1),
        "embedding": lambda o: f.embedding(o.x, o.w),
        "dropout": lambda o: f.dropout(o.x, DROPPED, True),
        "matmul-tile": lambda o: torch.matmul(o.x, o.w),
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

    def over_rows(launch):
        def run(o):
            rows, columns = o.x.shape
            if columns > 131072:
                raise Unsupported(f"the kernels of the tutorials keep a row in one block, and {columns} columns do not fit")
            launch(o, (rows,), columns, triton.next_power_of_2(columns))
            return o.y

        return run

    def matmul(o):
        (m, k), n = o.x.shape, o.w.shape[1]

        def grid(meta):
            return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

        matmul_kernel[grid](o.x, o.w, o.y, m, n, k, o.x.stride(0), o.w.stride(0), o.y.stride(0))
        return o.y

    return {
        "softmax": over_rows(lambda o, grid, n, block: softmax_kernel[grid](o.x, o.y, n, BLOCK=block)),
        "causal-softmax": over_rows(
            lambda o, grid, n, block: causal_kernel[grid](o.x, o.y, o.shared["first"], n, BLOCK=block)
        ),
        "rmsnorm": over_rows(lambda o, grid, n, block: rms_kernel[grid](o.x, o.w, o.y, n, EPS, BLOCK=block)),
        "layernorm": over_rows(
            lambda o, grid, n, block: layer_kernel[grid](o.x, o.w, o.b, o.y, n, EPS, BLOCK=block)
        ),
        "matmul-tile": matmul,
    }


# The same in float64, on some rows.


def expected(case, o, picked):
    x = None if case["op"] == "embedding" else o.x[picked].double()
    op = case["op"]
    if op == "softmax":
        return torch.softmax(x, -1)
    if op == "causal-softmax":
        column = torch.arange(case["columns"], device=x.device)
        hidden = column[None, :] >= valid_columns(case, x.device)[picked][:, None]
        return torch.softmax(x.masked_fill(hidden, float("-inf")), -1)
    if op == "rmsnorm":
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * o.w.double()
    if op == "layernorm":
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + EPS)
        return centred * scale * o.w.double() + o.b.double()
    if op == "reduce":
        return x.sum(-1)
    if op == "scan":
        return torch.cumsum(x, -1)
    if op in ("topk", "argmax"):
        return torch.sort(x, -1, descending=True).values[:, : max(case["k"], 1)]
    if op == "embedding":
        return o.w[o.x[picked]].double()
    if op == "matmul-tile":
        return x @ o.w.double()
    return x


def relative_error(case, o, result):
    rows = case["rows"]
    picked = torch.unique(torch.linspace(0, rows - 1, min(rows, CHECKED_ROWS), device=o.x.device).long())
    want = expected(case, o, picked)
    if case["op"] == "topk":
        # The places must lead to the values.
        values = result.values[picked].double()
        if not torch.equal(o.x[picked].gather(-1, result.indices[picked]).double(), values):
            return float("inf")
        found = values
    elif case["op"] == "argmax":
        found = o.x[picked].gather(-1, result[picked][:, None]).double()
    elif case["op"] == "dropout":
        found = result[picked].double()
        want = torch.where(found == 0, 0.0, want / (1 - DROPPED))
        share = (result == 0).double().mean().item()
        if abs(share - DROPPED) > 6 / (result.numel() ** 0.5):
            return float("inf")
    else:
        found = result[picked].double()
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
        if case["peer"] == "triton" or op == "copy":
            for copy in self.copies:
                copy.with_output(rows, columns)
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
        if o.y is not None:
            o.y.fill_(float("nan"))
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
