"""Matrix products: descriptors of wgmma, fragments of mma, wmma, ldmatrix and its kin."""
import itertools

from common import Module, numbers

# What the buffers of a type hold, and the bytes of one.
DATA = {"f16": ("f16", 2), "bf16": ("bf16", 2), "tf32": ("f32", 4), "f32": ("f32", 4), "f64": ("f64", 8), "s32": ("s32", 4),
        "s8": ("s8", 1), "u8": ("u8", 1), "e4m3": ("e4m3", 1), "e5m2": ("e5m2", 1), "s4": ("bytes", 1), "u4": ("bytes", 1),
        "b1": ("bytes", 1)}


def buffer(ty, size, seed, **more):
    kind, each = DATA[ty]
    return numbers(kind, size // each, seed, **more)


def listed(registers):
    return "{" + ", ".join(registers) + "}"


# ---- wgmma -------------------------------------------------------------------------------------------------------------
SPAN = 65536
SECOND = 32768  # Where B starts.
SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}


def wgmma_kernel(m, name, n, acc, a, b, tail, registers=False):
    depth = {"f16": 16, "bf16": 16, "tf32": 8, "b1": 256}.get(a, 32)
    k = m.kernel(name, ["out", "src", "ad", "bd", "aat:u32", "bat:u32", "add:u32"])
    tid, i, s, w, v, p = k.new("r"), k.new("r"), k.new("r"), k.new("rd"), k.new("r", 4), k.new("p")
    head = k.label()
    k(f".reg .b32 %data;\nmov.u32 %data, smem;\nmov.u32 {tid}, %tid.x;\nshl.b32 {i}, {tid}, 4;")
    k(f"{head}:\nadd.u32 {s}, %data, {i};\ncvt.u64.u32 {w}, {i};\nadd.s64 {w}, {w}, %src;")
    k(f"ld.global.v4.b32 {listed(v)}, [{w}];\nst.shared.v4.b32 [{s}], {listed(v)};")
    k(f"add.u32 {i}, {i}, 2048;\nsetp.lt.u32 {p}, {i}, {SPAN};\n@{p} bra {head};")
    k("fence.proxy.async;\nbar.sync 0;")
    descriptors = []
    for operand in "ab":
        r, d = k.new("r"), k.new("rd")
        k(f"add.u32 {r}, %data, %{operand}at;\nshr.u32 {r}, {r}, 4;\ncvt.u64.u32 {d}, {r};\nor.b64 {d}, {d}, %{operand}d;")
        descriptors.append(d)
    kind = "f" if acc == "f32" else "r"
    count = n // 4 if acc == "f16" else n // 2
    d = k.new(kind, count)
    for j, register in enumerate(d):
        r = k.new("r")
        k(f"add.u32 {r}, {tid}, {j};\nand.b32 {r}, {r}, 7;")
        if acc == "f32":
            k(f"cvt.rn.f32.s32 {register}, {r};")
        elif acc == "s32":
            k(f"mov.b32 {register}, {r};")
        else:
            h = k.new("h")
            k(f"cvt.rn.f16.s32 {h}, {r};\nmov.b32 {register}, {{{h}, {h}}};")
    left = descriptors[0]
    if registers:
        x, q = k.new("r", 4), k.new("rd")
        k(f"mul.wide.u32 {q}, {tid}, 16;\nadd.s64 {q}, {q}, %src;\nld.global.v4.b32 {listed(x)}, [{q}];")
        left = listed(x)
    q = k.new("p")
    k(f"setp.ne.u32 {q}, %add, 0;\nwgmma.fence.sync.aligned;")
    logic = ".and.popc" if a == "b1" else ""
    sat = ".satfinite" if "sat" in name else ""
    k(f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{acc}.{a}.{b}{logic}{sat} {listed(d)}, {left}, {descriptors[1]}, {q}{tail};")
    k("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")
    for register in d:
        k.put(register)


def descriptor(swizzle, lbo, sbo, base=0):
    return {"u64": SWIZZLES[swizzle] << 62 | base << 49 | (sbo >> 4) << 32 | (lbo >> 4) << 16}


def walks(major, swizzle, rows, extra):
    """Descriptors to try: (name, start, lbo, sbo, base)."""
    s = swizzle
    found = []
    if s and major == "k":
        found += [("plain", 0, 16, 8 * s, 0), ("lbo0", 0, 0, 8 * s, 0), ("lbo1k", 0, 1024, 8 * s, 0), ("wide", 0, 16, 16 * s, 0)]
        found += [(f"k{at}", at, 16, 8 * s, 0) for at in range(32, s, 32)]
        found += [("half", 16, 16, 8 * s, 0)]
        if extra:
            found += [("narrow", 0, 16, 4 * s, 0), ("flat", 0, 16, 0, 0)]
            found += [(f"row{r}", 128 * r, 16, 8 * s, 0) for r in range(1, 8)]
            found += [(f"row{r}base", 128 * r, 16, 8 * s, r) for r in range(1, 8)]
            found += [(f"base{r}", 0, 16, 8 * s, r) for r in range(1, 8)]
            found += [("k32base3", 32, 16, 8 * s, 3)]
    elif s:
        found += [("plain", 0, 16 * s, 8 * s, 0), ("lbo", 0, 64 * s, 8 * s, 0), ("sbo", 0, 8 * s, 32 * s, 0), ("step", 16 * s, 64 * s, 8 * s, 0)]
        if extra:
            found += [("same", 0, 8 * s, 8 * s, 0), ("zero", 0, 0, 0, 0), ("half", 32, 32 * s, 8 * s, 0)]
            found += [(f"row{r}", 128 * r, 32 * s, 8 * s, 0) for r in (1, 3, 4, 7)]
            found += [(f"row{r}base", 128 * r, 32 * s, 8 * s, r) for r in (1, 3, 4, 7)]
            found += [(f"base{r}", 0, 32 * s, 8 * s, r) for r in (1, 2, 5)]
    else:
        found += [("plain", 0, rows * 16, 128, 0), ("swapped", 0, 128, 256, 0), ("apart", 0, 384, 1024, 0), ("far", 48, 8192, 272, 0)]
        if extra:
            found += [("zero", 0, 0, 0, 0), ("at16", 16, 128, 256, 0), ("base", 0, 128, 256, 5)]
    return found


def make_wgmma():
    m = Module("wgmma")

    def case(name, entry, ty, a, b, add=0):
        # A row of the pattern that is read from its middle on.
        undefined = name.endswith("/half")
        (aat, ad), (bat, bd) = a, b
        args = ["out", buffer(ty, SPAN, 11), ad, bd, {"u32": aat}, {"u32": SECOND + bat}, {"u32": add}]
        m.case(name, entry, args, block=[128, 1, 1], shared=SPAN, undefined=undefined)

    plain = (0, descriptor(128, 16, 1024))
    plain_mn = (0, descriptor(128, 8192, 1024))
    for ty, n in (("f16", 64), ("bf16", 64), ("f16", 8), ("f16", 24), ("f16", 256)):
        for ta, tb in itertools.product((0, 1), (0, 1)):
            entry = f"{ty}_n{n}_{ta}{tb}"
            wgmma_kernel(m, entry, n, "f32", ty, ty, f", 1, 1, {ta}, {tb}")
            all_walks = ty == "f16" and n == 64
            for swizzle in SWIZZLES:
                a = plain_mn if ta else plain
                b = (0, descriptor(128, 4096, 1024)) if tb else plain
                if all_walks and ta == tb or n == 8 and swizzle in (32, 128):
                    for name, at, lbo, sbo, base in walks("mn" if ta else "k", swizzle, 64, all_walks):
                        case(f"{entry}/a/s{swizzle}/{name}", entry, ty, (at, descriptor(swizzle, lbo, sbo, base)), b)
                for name, at, lbo, sbo, base in walks("mn" if tb else "k", swizzle, n, all_walks and ta != tb):
                    if n == 256 and max(lbo, sbo) * 31 + at > SECOND:
                        continue  # Would leave shared memory.
                    case(f"{entry}/b/s{swizzle}/{name}", entry, ty, a, (at, descriptor(swizzle, lbo, sbo, base)))
    others = [("tf32_n64", 64, "f32", "tf32", "tf32", ", 1, 1"), ("tf32_n8", 8, "f32", "tf32", "tf32", ", 1, 1"),
              ("e4m3_n64", 64, "f32", "e4m3", "e4m3", ", 1, 1"), ("e5m2_n64", 64, "f32", "e5m2", "e5m2", ", 1, 1"),
              ("e4m3_e5m2_n32", 32, "f32", "e4m3", "e5m2", ", 1, 1"), ("e4m3_f16_n64", 64, "f16", "e4m3", "e4m3", ", 1, 1"),
              ("s8_n64", 64, "s32", "s8", "s8", ""), ("u8_n64", 64, "s32", "u8", "u8", ""), ("s8_u8_n32", 32, "s32", "s8", "u8", ""),
              ("u8_s8_sat_n32", 32, "s32", "u8", "s8", ""), ("b1_n64", 64, "s32", "b1", "b1", ""),
              ("f16_f16_n64", 64, "f16", "f16", "f16", ", 1, 1, 0, 0"), ("f16_f16_n16_11", 16, "f16", "f16", "f16", ", 1, 1, 1, 1"),
              ("f16_minus_n16", 16, "f32", "f16", "f16", ", -1, 1, 0, 0"), ("f16_minus2_n16", 16, "f32", "f16", "f16", ", -1, -1, 0, 0"),
              ("bf16_minus_n16", 16, "f32", "bf16", "bf16", ", 1, -1, 0, 1")]
    for entry, n, acc, a, b, tail in others:
        wgmma_kernel(m, entry, n, acc, a, b, tail)
        transposed = entry.endswith("_11")
        for swizzle in SWIZZLES:
            for add in (0, 1):
                if transposed:
                    ds = (0, descriptor(swizzle, 2048, 1024)), (0, descriptor(swizzle, 2048, 1024))
                else:
                    second = (0, descriptor(swizzle, 2048, 8 * swizzle or 128))
                    ds = (32 if swizzle > 32 else 0, descriptor(swizzle, 2048, 8 * swizzle or 128)), second
                case(f"{entry}/s{swizzle}/{add}", entry, a, *ds, add=add)
    for entry, n, acc, a, b, tail in (("f16_rs", 64, "f32", "f16", "f16", ", 1, 1, 0"), ("f16_rs_t", 64, "f32", "f16", "f16", ", 1, 1, 1"),
                                      ("bf16_rs", 16, "f32", "bf16", "bf16", ", -1, 1, 0"), ("tf32_rs", 32, "f32", "tf32", "tf32", ", 1, 1"),
                                      ("e4m3_rs", 32, "f32", "e4m3", "e4m3", ", 1, 1"), ("s8_rs", 32, "s32", "s8", "s8", ""),
                                      ("b1_rs", 32, "s32", "b1", "b1", ""), ("f16_f16_rs", 16, "f16", "f16", "f16", ", 1, 1, 0")):
        wgmma_kernel(m, entry, n, acc, a, b, tail, registers=True)
        for swizzle in SWIZZLES:
            case(f"{entry}/s{swizzle}", entry, a, plain, (0, descriptor(swizzle, 2048, 8 * swizzle or 128)), add=1)
    return m


# ---- mma ---------------------------------------------------------------------------------------------------------------
def fragment(k, name, ty, count):
    """Registers of a lane from a buffer: `count` for each, one after the other."""
    wide = ty == "f64"
    kind = {"f64": "d", "f32": "f"}.get(ty, "r")
    registers = k.new(kind, count)
    lane, at = k.new("r"), k.new("rd")
    k(f"mov.u32 {lane}, %tid.x;\nmul.wide.u32 {at}, {lane}, {count * (8 if wide else 4)};\nadd.s64 {at}, {at}, %{name};")
    for i, register in enumerate(registers):
        k(f"ld.global.{'f64' if wide else 'f32' if kind == 'f' else 'b32'} {register}, [{at}+{i * (8 if wide else 4)}];")
    return registers


def put_all(k, registers):
    for register in registers:
        if register[1] == "d":
            bits = k.new("rd")
            k(f"mov.b64 {bits}, {register};")
            k.put_wide(bits)
        else:
            k.put(register)


def mma_case(m, words, a, b, c, d, counts, selector=None, saturating=False):
    na, nb, nc, nd = counts
    name = words.replace(".", "_").replace("::", "_") + ("" if selector is None else f"_{selector}")
    sparse = words.startswith("sp")
    k = m.kernel("mma_" + name, ["out", "a", "b", "c"] + (["e"] if sparse else []))
    ra, rb, rc = fragment(k, "a", "b32" if a != "f64" else a, na), fragment(k, "b", "b32" if b != "f64" else b, nb), fragment(k, "c", c if c != "f16" else "b32", nc)
    rd = k.new({"f64": "d", "f32": "f"}.get(d, "r"), nd)
    tail = ""
    if sparse:
        tail = f", {fragment(k, 'e', 'b32', 1)[0]}, {selector}"
    head, _, rest = words.partition(".")
    opcode = f"mma.{head}.sync.aligned.{rest}" if sparse else f"mma.sync.aligned.{words}"
    k(f"{opcode} {listed(rd)}, {listed(ra)}, {listed(rb)}, {listed(rc)}{tail};")
    put_all(k, rd)

    def held(ty, count, seed):
        return buffer(ty, 32 * count * (8 if ty == "f64" else 4), seed)

    args = ["out", held(a, na, 21), held(b, nb, 22), numbers("edge", 32 * nc, 23) if saturating else held(c, nc, 23)]
    if sparse:
        args.append(numbers("halves" if a == "tf32" else "pairs", 32, 24))
    m.case(name, "mma_" + name, args)


def make_mma():
    m = Module("mma", version="8.7")
    for la, lb in itertools.product(("row", "col"), ("row", "col")):
        for d, c, nc, nd in (("f16", "f16", 4, 4), ("f32", "f16", 4, 8), ("f32", "f32", 8, 8)):
            mma_case(m, f"m8n8k4.{la}.{lb}.{d}.f16.f16.{c}", "f16", "f16", c, d, (2, 2, nc, nd))
    for ty, size, accs in (("f16", 2, ("f16", "f32")), ("bf16", 2, ("f32",)), ("tf32", 4, ("f32",))):
        for depth in (16, 32):
            for acc in accs:
                n = 2 if acc == "f16" else 4
                mma_case(m, f"m16n8k{depth // size}.row.col.{acc}.{ty}.{ty}.{acc}", ty, ty, acc, acc, (depth // 8, depth // 16, n, n))
    for shape, counts in (("m8n8k4", (1, 1, 2, 2)), ("m16n8k4", (2, 1, 4, 4)), ("m16n8k8", (4, 2, 4, 4)), ("m16n8k16", (8, 4, 4, 4))):
        mma_case(m, f"{shape}.row.col.f64.f64.f64.f64", "f64", "f64", "f64", "f64", counts)
    for pair, bits in ((("s8", "u8"), 8), (("s4", "u4"), 4)):
        for a, b in itertools.product(pair, pair):
            for rows, depth, counts in ((8, 128, (1, 1, 2, 2)), (16, 128, (2, 1, 4, 4)), (16, 256, (4, 2, 4, 4))):
                shape = f"m{rows}n8k{depth // bits}.row.col"
                mma_case(m, f"{shape}.s32.{a}.{b}.s32", a, b, "s32", "s32", counts)
                if a == b:
                    mma_case(m, f"{shape}.satfinite.s32.{a}.{b}.s32", a, b, "s32", "s32", counts, saturating=True)
    for rows, depth, counts in ((8, 128, (1, 1, 2, 2)), (16, 128, (2, 1, 4, 4)), (16, 256, (4, 2, 4, 4))):
        for logic in ("xor", "and"):
            mma_case(m, f"m{rows}n8k{depth}.row.col.s32.b1.b1.s32.{logic}.popc", "b1", "b1", "s32", "s32", counts)
    for a, b in itertools.product(("e4m3", "e5m2"), ("e4m3", "e5m2")):
        for acc, n in (("f32", 4), ("f16", 2)):
            for depth, counts in ((16, (2, 1, n, n)), (32, (4, 2, n, n))):
                mma_case(m, f"m16n8k{depth}.row.col.{acc}.{a}.{b}.{acc}", a, b, acc, acc, counts)
    for order in ("sp", "sp::ordered_metadata"):
        for ty, size, accs in (("f16", 2, ("f16", "f32")), ("bf16", 2, ("f32",)), ("tf32", 4, ("f32",))):
            for deep in (0, 1):
                for acc in accs:
                    for selector in range(2 if deep else 4):
                        n = 2 if acc == "f16" else 4
                        mma_case(m, f"{order}.m16n8k{(32 << deep) // size}.row.col.{acc}.{ty}.{ty}.{acc}", ty, ty, acc, acc,
                                 (2 << deep, 2 << deep, n, n), selector)
        for a, b in (("s8", "s8"), ("u8", "s8")):
            for selector in range(2):
                mma_case(m, f"{order}.m16n8k32.row.col.s32.{a}.{b}.s32", a, b, "s32", "s32", (2, 2, 4, 4), selector)
            mma_case(m, f"{order}.m16n8k64.row.col.s32.{a}.{b}.s32", a, b, "s32", "s32", (4, 4, 4, 4), 0)
        mma_case(m, f"{order}.m16n8k64.row.col.f32.e4m3.e5m2.f32", "e4m3", "e5m2", "f32", "f32", (4, 4, 4, 4), 0)
    return m


# ---- wmma --------------------------------------------------------------------------------------------------------------
def make_wmma():
    m = Module("wmma")
    shapes = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16), "m16n16k8": (16, 16, 8), "m8n8k4": (8, 8, 4),
              "m8n8k32": (8, 8, 32), "m8n8k128": (8, 8, 128)}
    forms = []
    for shape in ("m16n16k16", "m8n32k16", "m32n8k16"):
        small = {"m16n16k16": (1, 1), "m8n32k16": (0.5, 2), "m32n8k16": (2, 0.5)}[shape]
        for c, d in itertools.product(("f16", "f32"), ("f16", "f32")):
            forms.append((shape, "f16", c, d, 8, 8))
        forms.append((shape, "bf16", "f32", "f32", int(4 * small[0]), int(4 * small[1])))
        for ty in ("s8", "u8"):
            forms.append((shape, ty, "s32", "s32", int(2 * small[0]), int(2 * small[1])))
    forms += [("m16n16k8", "tf32", "f32", "f32", 4, 4), ("m8n8k4", "f64", "f64", "f64", 1, 1), ("m8n8k32", "s4", "s32", "s32", 1, 1),
              ("m8n8k32", "u4", "s32", "s32", 1, 1), ("m8n8k128", "b1", "s32", "s32", 1, 1)]
    for shape, ty, c, d, na, nb in forms:
        rows, columns, depth = shapes[shape]
        layouts = [("row", "col")] if ty in ("s4", "u4", "b1") else itertools.product(("row", "col"), ("row", "col"))
        for index, (la, lb) in enumerate(layouts):
            lc, ld = (("row", "col"), ("col", "row"), ("row", "row"), ("col", "col"))[index]
            name = f"{shape}_{ty}_{c}_{d}_{la}_{lb}"
            k = m.kernel(name, ["out", "a", "b", "c"])
            bits = {"s4": 4, "u4": 4, "b1": 1}.get(ty, 8 * DATA[ty][1])
            pad = 128 // bits
            la_stride = (depth if la == "row" else rows) + pad
            lb_stride = (columns if lb == "row" else depth) + pad
            lc_stride = (columns if lc == "row" else rows) + 4 * (4 if c != "f64" else 1)
            ld_stride = columns if ld == "row" else rows
            kind = {"f64": "d", "f32": "f"}

            def size(x):
                return {"f16": 4, "f64": 2}.get(x, 8) if shape not in ("m8n8k32", "m8n8k128") else 2

            ra = k.new("d" if ty == "f64" else "r", na)
            rb = k.new("d" if ty == "f64" else "r", nb)
            rc, rd = k.new(kind.get(c, "r"), size(c)), k.new(kind.get(d, "r"), size(d))
            k(f"wmma.load.a.sync.aligned.{la}.{shape}.global.{ty} {listed(ra)}, [%a], {la_stride};")
            k(f"wmma.load.b.sync.aligned.{lb}.{shape}.global.{ty} {listed(rb)}, [%b], {lb_stride};")
            k(f"wmma.load.c.sync.aligned.{lc}.{shape}.global.{c} {listed(rc)}, [%c], {lc_stride};")
            logic = "xor.popc." if ty == "b1" else ""
            types = f"{d}.{c}" if ty == "f16" else f"{d}.{ty}.{ty}.{c}"
            k(f"wmma.mma.{logic}sync.aligned.{la}.{lb}.{shape}.{types} {listed(rd)}, {listed(ra)}, {listed(rb)}, {listed(rc)};")
            k(f"wmma.store.d.sync.aligned.{ld}.{shape}.global.{d} [%out], {listed(rd)}, {ld_stride};")
            a_bytes = (rows if la == "row" else depth) * la_stride * bits // 8
            b_bytes = (depth if lb == "row" else columns) * lb_stride * bits // 8
            c_bytes = (rows if lc == "row" else columns) * lc_stride * DATA[c][1]
            m.case(name, name, [{"out": rows * columns * DATA[d][1]}, buffer(ty, a_bytes, 31), buffer(ty, b_bytes, 32), buffer(c, c_bytes, 33)])
    return m


# ---- ldmatrix, stmatrix, movmatrix -------------------------------------------------------------------------------------
def make_matrices():
    m = Module("matrices")

    def fill(k):
        lane, s, v, at, p = k.new("r"), k.new("r"), k.new("r"), k.new("rd"), k.new("p")
        head = k.label()
        k(f"mov.u32 {lane}, %tid.x;\nshl.b32 {lane}, {lane}, 2;\n{head}:\nmov.u32 {s}, smem;\nadd.u32 {s}, {s}, {lane};")
        k(f"cvt.u64.u32 {at}, {lane};\nadd.s64 {at}, {at}, %src;\nld.global.b32 {v}, [{at}];\nst.shared.b32 [{s}], {v};")
        k(f"add.u32 {lane}, {lane}, 128;\nsetp.lt.u32 {p}, {lane}, 2048;\n@{p} bra {head};\nbar.sync 0;")

    def address(k, scale):
        """A different row for each lane: 16 bytes times (lane * scale mod 128)."""
        r = k.new("r")
        k(f"mov.u32 {r}, %tid.x;\nmul.lo.u32 {r}, {r}, {scale};\nand.b32 {r}, {r}, 127;\nshl.b32 {r}, {r}, 4;")
        base = k.new("r")
        k(f"mov.u32 {base}, smem;\nadd.u32 {r}, {r}, {base};")
        return r

    for count, trans in itertools.product((1, 2, 4), ("", ".trans")):
        for scale in (1, 37):
            name = f"ldmatrix_x{count}{trans.replace('.', '_')}_{scale}"
            k = m.kernel(name, ["out", "src"])
            fill(k)
            d = k.new("r", count)
            k(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {listed(d)}, [{address(k, scale)}];")
            put_all(k, d)
            m.case(name, name, ["out", numbers("bytes", 2048, 41)], shared=2048)
            name = f"stmatrix_x{count}{trans.replace('.', '_')}_{scale}"
            k = m.kernel(name, ["out", "src"])
            fill(k)
            d = []
            for i in range(count):
                r = k.new("r")
                k(f"mov.u32 {r}, %tid.x;\nmad.lo.u32 {r}, {r}, 0x20002, {0x10000 + i * 0x400040};")
                d.append(r)
            k(f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [{address(k, scale)}], {listed(d)};\nbar.sync 0;")
            r = k.new("r")
            k(f"mov.u32 {r}, %tid.x;\nshl.b32 {r}, {r}, 6;")
            base = k.new("r")
            k(f"mov.u32 {base}, smem;\nadd.u32 {r}, {r}, {base};")
            for i in range(16):
                v = k.new("r")
                k(f"ld.shared.b32 {v}, [{r}+{4 * i}];")
                k.put(v)
            m.case(name, name, ["out", numbers("bytes", 2048, 41)], shared=2048)
    k = m.kernel("movmatrix", ["out", "src"])
    v, d = fragment(k, "src", "b32", 1)[0], k.new("r")
    k(f"movmatrix.sync.aligned.m8n8.trans.b16 {d}, {v};")
    k.put(d)
    m.case("movmatrix", "movmatrix", ["out", numbers("bytes", 128, 42)])
    return m


def make():
    return [make_wgmma(), make_mma(), make_wmma(), make_matrices()]
