"""What the generators share: kernels as lists of lines with their own registers, modules, cases."""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))

# Bits of the numbers of a tensor map's types, in the order of the driver.
MAP_TYPES = ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz"]
MAP_BYTES = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4]

KINDS = {"r": "b32", "rd": "b64", "p": "pred", "h": "b16", "f": "f32", "d": "f64", "x": "b128"}


class Kernel:
    """The body of a kernel. Each thread has its own row of words in the buffer `out`; `put` writes the next."""

    def __init__(self, module, name, params=("out",), shared=None):
        self.module, self.name, self.params, self.shared = module, name, list(params), shared
        self.lines, self.counts, self.words = [], dict.fromkeys(KINDS, 0), 0

    def new(self, kind, count=None):
        if count is not None:
            return [self.new(kind) for _ in range(count)]
        self.counts[kind] += 1
        return f"%{kind}{self.counts[kind] - 1}"

    def __call__(self, line):
        self.lines.append(line)

    def label(self):
        self.counts.setdefault("label", 0)
        self.counts["label"] += 1
        return f"L{self.counts['label']}"

    def put(self, register):
        """A 32-bit register."""
        self(f"st.global.b32 [%row+{4 * self.words}], {register};")
        self.words += 1

    def put_wide(self, register):
        low, high = self.new("r", 2)
        self(f"mov.b64 {{{low}, {high}}}, {register};")
        self.put(low)
        self.put(high)

    def put_half(self, register):
        word = self.new("r")
        self(f"cvt.u32.u16 {word}, {register};")
        self.put(word)

    def put_pred(self, register):
        word = self.new("r")
        self(f"selp.b32 {word}, 1, 0, {register};")
        self.put(word)

    def const(self, value):
        register = self.new("r")
        self(f"mov.b32 {register}, {value};")
        return register

    def close(self):
        """The text."""
        declared = []
        head = []
        for name in self.params:
            kind = name.split(":")[1] if ":" in name else "u64"
            name = name.split(":")[0]
            if kind == "map":
                declared.append(f".param .align 64 .b8 {name}[128]")
                head.append(f".reg .b64 %{name};\nmov.b64 %{name}, {name};\ncvta.param.u64 %{name}, %{name};")
            else:
                declared.append(f".param .{kind} {name}")
                head.append(f".reg .{kind} %{name};\nld.param.{kind} %{name}, [{name}];")
        registers = [f".reg .{KINDS[k]} %{k}<{n}>;" for k, n in self.counts.items() if k in KINDS and n]
        if self.words:
            head.append(
                ".reg .b64 %row;\n.reg .b32 %z0, %z1, %z2;\n"
                "mov.u32 %z0, %ctaid.z;\nmov.u32 %z1, %nctaid.y;\nmov.u32 %z2, %ctaid.y;\nmad.lo.u32 %z0, %z0, %z1, %z2;\n"
                "mov.u32 %z1, %nctaid.x;\nmov.u32 %z2, %ctaid.x;\nmad.lo.u32 %z0, %z0, %z1, %z2;\n"
                "mov.u32 %z1, %ntid.x;\nmov.u32 %z2, %tid.x;\nmad.lo.u32 %z0, %z0, %z1, %z2;\n"
                "mov.u32 %z1, %ntid.y;\nmov.u32 %z2, %tid.y;\nmad.lo.u32 %z0, %z0, %z1, %z2;\n"
                "mov.u32 %z1, %ntid.z;\nmov.u32 %z2, %tid.z;\nmad.lo.u32 %z0, %z0, %z1, %z2;\n"
                f"mul.wide.u32 %row, %z0, {4 * self.words};\nadd.s64 %row, %row, %out;"
            )
        text = f".visible .entry {self.name}({', '.join(declared)})\n{{\n"
        return text + "\n".join(registers + head + self.lines) + "\nret;\n}\n"


class Module:
    def __init__(self, name, version="8.6", head=""):
        self.name, self.version, self.head = name, version, head
        self.kernels, self.cases = {}, []

    def kernel(self, name, params=("out",)):
        assert name not in self.kernels, name
        self.kernels[name] = Kernel(self, name, params)
        return self.kernels[name]

    def case(self, name, entry, args, **launch):
        """`launch`: grid, block, cluster, shared; `counters` if they are compared; `undefined` if PTX forbids what is
        done although the GPU lets it pass: a finding is as good as the same result. An argument `out` without size is filled in."""
        block = launch.get("block", [32, 1, 1])
        grid = launch.get("grid", [1, 1, 1])
        threads = block[0] * block[1] * block[2] * grid[0] * grid[1] * grid[2]
        args = [{"out": 4 * threads * self.kernels[entry].words} if a == "out" else a for a in args]
        # What is left out is 1, or 32 threads, or 0.
        case = {"name": f"{self.name}/{name}", "entry": entry}
        for field in ("grid", "block", "cluster", "shared"):
            if launch.get(field):
                case[field] = launch[field]
        if "counters" in launch:
            case["counters"] = True
        if launch.get("undefined"):
            case["undefined"] = True
        case["args"] = args
        self.cases.append(case)

    def write(self):
        # The extern array is the dynamic shared memory of all kernels.
        text = (
            f".version {self.version}\n.target sm_90a\n.address_size 64\n"
            ".extern .shared .align 1024 .b8 smem[];\n" + self.head
        )
        text += "".join(kernel.close() for kernel in self.kernels.values())
        with open(os.path.join(HERE, "ptx", self.name + ".ptx"), "w") as file:
            file.write(text)


def write(modules):
    names = set()
    lines = []
    for module in modules:
        module.write()
        for case in module.cases:
            assert case["name"] not in names, case["name"]
            names.add(case["name"])
            lines.append(json.dumps(case, separators=(",", ":")))
    with open(os.path.join(HERE, "cases.json"), "w") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
    return len(lines)


def numbers(kind, count, seed, hidden=False, keep=False):
    """A buffer of numbers that both sides make alike; `keep`: compared afterwards; `hidden`: no argument itself."""
    arg = {"numbers": kind, "count": count, "seed": seed}
    if hidden:
        arg["hidden"] = True
    if keep:
        arg["keep"] = True
    return arg
