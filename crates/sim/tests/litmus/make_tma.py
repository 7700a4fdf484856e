"""TMA: loads, stores, reductions, multicast, im2col; bulk copies and reductions without a tensor map."""
from common import MAP_BYTES, MAP_TYPES, Module, numbers

THREADS = 128
DATA = 1024  # Where the box may start in shared memory, relative to the dynamic part; its barrier is at 0.
SPANS = [0, 32, 64, 128]


def each_piece(k, body):
    """`body(i)` for the byte offsets i = 0, 16 ... below %span, shared among the threads."""
    i, p = k.new("r"), k.new("p")
    head, end = k.label(), k.label()
    k(f"mov.u32 {i}, %tid.x;\nshl.b32 {i}, {i}, 4;")
    k(f"{head}:\nsetp.ge.u32 {p}, {i}, %span;\n@{p} bra {end};")
    body(i)
    k(f"add.u32 {i}, {i}, {16 * THREADS};\nbra {head};\n{end}:")


def start(k, source):
    """Fills shared memory with 0xee, or from a buffer; then %data is its address and %bar that of a barrier."""
    k(".reg .b32 %data, %bar, %box;\n.reg .pred %first;\nmov.u32 %bar, smem;\nadd.u32 %data, %bar, 1024;")
    k("add.u32 %box, %data, %at;\n.reg .b32 %tx;\nmov.u32 %tx, %tid.x;\nsetp.eq.u32 %first, %tx, 0;")

    def fill(i):
        s, w, v = k.new("r"), k.new("rd"), k.new("r", 4)
        k(f"add.u32 {s}, {i}, %data;")
        if source:
            k(f"cvt.u64.u32 {w}, {i};\nadd.s64 {w}, {w}, %src;")
            k(f"ld.global.v4.b32 {{{', '.join(v)}}}, [{w}];")
        else:
            k("".join(f"mov.b32 {r}, 0xeeeeeeee;\n" for r in v))
        k(f"st.shared.v4.b32 [{s}], {{{', '.join(v)}}};")

    each_piece(k, fill)
    k("@%first mbarrier.init.shared::cta.b64 [%bar], 1;\nfence.mbarrier_init.release.cluster;")
    k("fence.proxy.async;\nbar.sync 0;")


def wait(k):
    """Waits, but not for ever; %done tells."""
    n, p, q = k.new("r"), k.new("p"), k.new("p")
    head, end = k.label(), k.label()
    k(f".reg .b32 %done;\nmov.u32 %done, 0;\nmov.u32 {n}, 0;")
    k(f"{head}:\nmbarrier.test_wait.parity.shared::cta.b64 {p}, [%bar], 0;\nselp.b32 %done, 1, 0, {p};\n@{p} bra {end};")
    k(f"add.u32 {n}, {n}, 1;\nsetp.lt.u32 {q}, {n}, 4000;\n@{q} bra {head};\n{end}:\nbar.sync 0;")


def dump(k, base):
    """Whether the copy came to an end, then shared memory, to `base`."""
    k(f"@%first st.global.b32 [{base}], %done;")

    def piece(i):
        s, w, v = k.new("r"), k.new("rd"), k.new("r", 4)
        k(f"add.u32 {s}, {i}, %data;\nld.shared.v4.b32 {{{', '.join(v)}}}, [{s}];")
        k(f"cvt.u64.u32 {w}, {i};\nadd.s64 {w}, {w}, {base};\nst.global.v4.b32 [{w}+16], {{{', '.join(v)}}};")

    each_piece(k, piece)


def coordinates(rank):
    return "{" + ", ".join(f"%c{i}" for i in range(rank)) + "}"


def c_params(rank):
    return [f"c{i}:u32" for i in range(rank)]


def load_kernel(m, rank):
    k = m.kernel(f"load{rank}", ["map:map", "out", "at:u32", "bytes:u32", "span:u32", *c_params(rank)])
    start(k, False)
    k(f"@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %bytes;")
    k(f"@%first cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      f" [%box], [%map, {coordinates(rank)}], [%bar];")
    wait(k)
    dump(k, "%out")


def im2col_kernel(m, rank):
    k = m.kernel(f"im2col{rank}", ["map:map", "out", "at:u32", "bytes:u32", "span:u32", *c_params(rank),
                                   *[f"o{i}:u16" for i in range(rank - 2)]])
    start(k, False)
    offsets = "{" + ", ".join(f"%o{i}" for i in range(rank - 2)) + "}"
    k(f"@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %bytes;")
    k(f"@%first cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
      f" [%box], [%map, {coordinates(rank)}], [%bar], {offsets};")
    wait(k)
    dump(k, "%out")


def multicast_kernel(m):
    k = m.kernel("multicast", ["map:map", "out", "at:u32", "bytes:u32", "span:u32", "mask:u32", *c_params(2)])
    start(k, False)
    rank, p, q, h, bit = k.new("r"), k.new("p"), k.new("p"), k.new("h"), k.new("r")
    k(f"mov.u32 {rank}, %cluster_ctarank;\nshr.u32 {bit}, %mask, {rank};\nand.b32 {bit}, {bit}, 1;")
    k(f"setp.ne.and.u32 {p}, {bit}, 0, %first;\n@{p} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %bytes;")
    k("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    k(f"cvt.u16.u32 {h}, %mask;\nsetp.eq.and.u32 {q}, {rank}, 1, %first;")
    k(f"@{q} cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      f" [%box], [%map, {coordinates(2)}], [%bar], {h};")
    # A block that gets nothing does not wait.
    other, skip = k.label(), k.new("p")
    k(f"setp.eq.u32 {skip}, {bit}, 0;\n@{skip} bra {other};")
    wait(k)
    k(f"{other}:\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    k(f"@{skip} mov.u32 %done, 7;")
    own, size = k.new("rd"), k.new("r")
    k(f"add.u32 {size}, %span, 16;\nmul.wide.u32 {own}, {rank}, {size};\nadd.s64 {own}, {own}, %out;")
    dump(k, own)


def store_kernel(m, rank, op):
    k = m.kernel(f"{op}{rank}", ["map:map", "src", "at:u32", "span:u32", *c_params(rank)])
    start(k, True)
    copy = "cp.async.bulk" if op == "store" else "cp.reduce.async.bulk"
    kind = "" if op == "store" else f".{op}"
    k(f"@%first {copy}.tensor.{rank}d.global.shared::cta{kind}.tile.bulk_group [%map, {coordinates(rank)}], [%box];")
    k("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;")


def bulk_kernel(m, name, op):
    k = m.kernel(name, ["dst", "src", "at:u32", "span:u32", "bytes:u32"])
    start(k, True)
    k(f"@%first {op} [%dst], [%box], %bytes;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;")


# tensormap.replace: name, words of the instruction before and after the address; %value and %wide are the new value.
REPLACED = [("address", "global_address.shared::cta.b1024.b64", "", "%wide"), ("rank", "rank.shared::cta.b1024.b32", "", "%value")]
REPLACED += [(f"{name}{i}", f"{field}.shared::cta.b1024.{ty}", f", {i}", value)
             for name, field, ty, value, ordinals in (("dim", "global_dim", "b32", "%value", 2), ("box", "box_dim", "b32", "%value", 2),
                                                     ("step", "element_stride", "b32", "%value", 2), ("stride", "global_stride", "b64", "%wide", 1))
             for i in range(ordinals)]
REPLACED += [(f"type{i}", "elemtype.shared::cta.b1024.b32", "", str(i)) for i in range(13)]
REPLACED += [(f"swizzle{i}", "swizzle_mode.shared::cta.b1024.b32", "", str(i)) for i in range(4)]
REPLACED += [(f"fill{i}", "fill_mode.shared::cta.b1024.b32", "", str(i)) for i in range(2)]


def replace_kernel(m, name, words, ordinal, value):
    """Copies a map, changes a field of the copy, loads a box with it."""
    k = m.kernel(f"replace_{name}", ["tensor", "map:map", "scratch", "out", "at:u32", "bytes:u32", "span:u32", "value:u32", *c_params(2)])
    start(k, False)
    lane, from_map, word, p, copy = k.new("r"), k.new("rd"), k.new("r"), k.new("p"), k.new("r")
    k(f"add.u32 {copy}, %bar, 128;\nmov.u32 {lane}, %tid.x;\nsetp.lt.u32 {p}, {lane}, 32;")
    k(f"mul.wide.u32 {from_map}, {lane}, 4;\nadd.s64 {from_map}, {from_map}, %map;\nshl.b32 {lane}, {lane}, 2;\nadd.u32 {lane}, {lane}, {copy};")
    k(f"@{p} ld.b32 {word}, [{from_map}];\n@{p} st.shared.b32 [{lane}], {word};\nbar.sync 0;")
    k(".reg .b64 %wide;\ncvt.u64.u32 %wide, %value;")
    if name == "address":
        k("add.s64 %wide, %wide, %tensor;")
    skip = k.label()
    k(f"@!{p} bra {skip};\n@%first tensormap.replace.tile.{words} [{copy}]{ordinal}, {value};\nbar.warp.sync 0xffffffff;")
    k(f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%scratch], [{copy}], 128;")
    k("fence.proxy.tensormap::generic.acquire.gpu [%scratch], 128;")
    k(f"@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %bytes;")
    k(f"@%first cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      f" [%box], [%scratch, {coordinates(2)}], [%bar];\n{skip}:")
    wait(k)
    dump(k, "%out")


def replaced(m):
    for field in REPLACED:
        replace_kernel(m, *field)

    def case(name, entry, value, bytes=768, kind=6, at_box=(0, 0), swizzle=0, room=3072):
        maps = Maps(kind, 64, 2, swizzle, dims=[96 // MAP_BYTES[kind], 11])
        args = [numbers("bytes", 16384, 7), maps.arg(0), numbers("bytes", 128, 8), {"out": room + 16}, u32(0), u32(bytes), u32(room),
                u32(value), *[u32(c) for c in at_box]]
        m.case(f"replace/{name}", f"replace_{entry}", args, block=[THREADS, 1, 1], shared=DATA + room)

    case("address", "address", 4096)
    case("rank", "rank", 1)
    case("dim0", "dim0", 20)
    case("dim1", "dim1", 5)
    case("stride0", "stride0", 256)
    case("box0", "box0", 16, bytes=384)
    case("box1", "box1", 5, bytes=320)
    case("step0", "step0", 2)
    case("step1", "step1", 2, bytes=384)
    # Types of all sizes: the box has as many elements, so that its bytes change.
    sizes = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2, 11: 4, 12: 4}
    for code, size in sizes.items():
        case(f"type{code}", f"type{code}", 0, bytes=384 * size)
    for code in range(4):
        case(f"swizzle{code}", f"swizzle{code}", 0, kind=6, bytes=768)
    for code in range(2):
        case(f"fill{code}", f"fill{code}", 0, at_box=(-8, 2))


def product(values):
    result = 1
    for value in values:
        result *= value
    return result


# Halfway cases of tf32, subnormals, numbers at the edge of the range, infinities, NaNs.
WORDS = [0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0xBF801000, 0xBF803000, 0xBF802FFF, 0x3F80F000, 0x00000001, 0x80000001,
         0x00001000, 0x00000FFF, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F7FEFFF, 0x7F7FF000,
         0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7F801000, 0x7FBFFFFF, 0x00000000, 0x80000000, 0x00400000,
         0x00003000, 0x3FFFF000]
# The like for two halves.
HALVES = [0x3C013C01, 0x10001000, 0x00010001, 0x80018001, 0x03FF03FF, 0x7BFF7BFF, 0xFBFFFBFF, 0x7C007C00, 0xFC00FC00, 0x7E007E00,
          0x7C017C01, 0x00000000, 0x80008000, 0x3F803F80, 0x3C003C00, 0x7F7F7F7F, 0x00800080, 0x007F807F, 0xFFFF7FFF, 0x80000000]


class Maps:
    """Makes tensors and boxes; `inner` is the bytes of a row of the box."""

    def __init__(self, kind, inner, rank, swizzle, fill=0, dims=None, box=None, steps=None):
        size = MAP_BYTES[kind]
        self.kind, self.size, self.rank = kind, size, rank
        self.box = [inner // size] + ([[12], [3, 4], [2, 3, 2], [2, 2, 2, 2]][rank - 2] if rank > 1 else [])
        self.box = box or self.box
        # Rows that end inside a box, and strides with a gap.
        tail = [[13], [5, 4], [3, 4, 3], [3, 3, 2, 3]][rank - 2] if rank > 1 else []
        self.dims = dims or [(3 * inner) // size - 1] + tail
        pitch = (self.dims[0] * size + 15) // 16 * 16 + 16
        self.strides = []
        for dim in self.dims[1:]:
            self.strides.append(pitch)
            pitch *= dim
        self.total = pitch
        self.steps = steps or [1] * rank
        self.swizzle, self.fill = swizzle, fill
        counts = [self.box[0]] + [-(-b // s) for b, s in zip(self.box[1:], self.steps[1:])]
        self.bytes = product(counts) * size
        # Rows are as far apart as the span of the swizzle, however narrow.
        self.room = product(counts[1:]) * max(counts[0] * size, SPANS[swizzle])

    def arg(self, of):
        spec = {"of": of, "type": self.kind, "dims": self.dims, "strides": self.strides, "box": self.box}
        if any(step != 1 for step in self.steps):
            spec["steps"] = self.steps
        if self.swizzle:
            spec["swizzle"] = self.swizzle
        if self.fill:
            spec["fill"] = self.fill
        return {"map": spec}


def u32(value):
    return {"u32": value & 0xFFFFFFFF}


def load(m, name, maps, at_box, at=0, data="bytes", span=None, words=None, **more):
    span = span or (at + maps.room + 128 + 15) // 16 * 16
    size = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}.get(data, 1)
    source = {"words": words, "hidden": True} if words else numbers(data, maps.total // size, 7, hidden=True)
    args = [source, maps.arg(0), {"out": span + 16}, u32(at),
            u32(maps.bytes), u32(span), *[u32(c) for c in at_box]]
    m.case(name, f"load{maps.rank}", args, block=[THREADS, 1, 1], shared=DATA + span, **more)


def store(m, name, op, maps, at_box, at=0, data="bytes", words=None):
    span = (at + maps.room + 15) // 16 * 16
    size = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "s32": 4}.get(data, 1)
    source = {"words": (words * (span // 4))[:span // 4]} if words else numbers(data, span // size, 5)
    target = numbers(data, maps.total // size, 3, hidden=True, keep=True)
    if words:
        target = {"words": (words[1:] * maps.total)[:maps.total // 4], "hidden": True, "keep": True}
    args = [target, maps.arg(0), source,
            u32(at), u32(span), *[u32(c) for c in at_box]]
    m.case(name, f"{op}{maps.rank}", args, block=[THREADS, 1, 1], shared=DATA + span)


def places(maps):
    """Boxes inside, across each end, outside."""
    unit = 16 // maps.size
    rank = maps.rank
    inside = [unit] + [1] * (rank - 1)
    low = [-unit] + [-1] * (rank - 1)
    high = [(maps.dims[0] - maps.box[0] // 2) // unit * unit] + [d - b // 2 for d, b in zip(maps.dims[1:], maps.box[1:])]
    out = [0] * (rank - 1) + [1000 * unit]
    return [("inside", inside), ("low", low), ("high", high), ("out", out)]


def make():
    m = Module("tma")
    for rank in range(1, 6):
        load_kernel(m, rank)
        store_kernel(m, rank, "store")
    multicast_kernel(m)
    for op in ("add", "min", "max", "inc", "dec", "and", "or", "xor"):
        store_kernel(m, 2, op)
    store_kernel(m, 3, "add")
    for rank in (3, 4, 5):
        im2col_kernel(m, rank)

    for rank in range(1, 6):
        for kind in (0, 6, 7, 8):
            for swizzle in range(4):
                maps = Maps(kind, SPANS[swizzle] or 48, rank, swizzle)
                for place, at in places(maps):
                    load(m, f"load/r{rank}/{MAP_TYPES[kind]}/s{SPANS[swizzle]}/{place}", maps, at)
        for swizzle in range(4):
            maps = Maps(6, SPANS[swizzle] or 48, rank, swizzle)
            for place, at in places(maps):
                if place != "low" or swizzle == 0:
                    store(m, f"store/r{rank}/s{SPANS[swizzle]}/{place}", "store", maps, at)
    # Bytes as they are? All types, any bits.
    for kind, ty in enumerate(MAP_TYPES):
        maps = Maps(kind, 64, 2, 0)
        load(m, f"load/types/{ty}", maps, [0, 0])
        store(m, f"store/types/{ty}", "store", maps, [0, 0])
        maps = Maps(kind, 64, 2, 0, fill=1)
        if kind >= 6:
            for place, at in places(maps):
                load(m, f"load/nan/{ty}/{place}", maps, at)
    # Boxes narrower than the span, and the start of the box off the boundary of the pattern.
    for swizzle in (1, 2, 3):
        for inner in range(16, SPANS[swizzle] + 1, 16):
            for kind in (6, 7):
                maps = Maps(kind, inner, 2, swizzle)
                load(m, f"load/narrow/s{SPANS[swizzle]}/{inner}/{MAP_TYPES[kind]}", maps, [0, 0])
            store(m, f"store/narrow/s{SPANS[swizzle]}/{inner}", "store", Maps(6, inner, 2, swizzle), [0, 0])
            maps = Maps(6, inner, 3, swizzle)
            load(m, f"load/narrow3/s{SPANS[swizzle]}/{inner}", maps, [0, 1, 1])
    for swizzle in range(4):
        for at in (128, 256, 384, 512, 896):
            load(m, f"load/start/s{SPANS[swizzle]}/{at}", Maps(6, SPANS[swizzle] or 48, 2, swizzle), [0, 0], at=at)
        store(m, f"store/start/s{SPANS[swizzle]}/384", "store", Maps(6, SPANS[swizzle] or 48, 2, swizzle), [0, 0], at=384)
        for at in (16, 64):
            load(m, f"load/misaligned/s{SPANS[swizzle]}/{at}", Maps(6, SPANS[swizzle] or 48, 2, swizzle), [0, 0], at=at)
            store(m, f"store/misaligned/s{SPANS[swizzle]}/{at}", "store", Maps(6, SPANS[swizzle] or 48, 2, swizzle), [0, 0], at=at)
    # Steps between elements: the innermost is not looked at.
    for steps in ([1, 2], [1, 3], [1, 8], [2, 1], [3, 2]):
        for swizzle in (0, 3):
            for place, at in (("inside", [8, 1]), ("low", [-8, -3]), ("high", [8, 6])):
                maps = Maps(6, SPANS[swizzle] or 48, 2, swizzle, steps=steps)
                load(m, f"load/steps/{steps[0]}_{steps[1]}/s{SPANS[swizzle]}/{place}", maps, at)
                if place != "low":
                    store(m, f"store/steps/{steps[0]}_{steps[1]}/s{SPANS[swizzle]}/{place}", "store", maps, at)
    for steps in ([1, 2, 2], [1, 1, 3]):
        load(m, f"load/steps/3d_{steps[1]}_{steps[2]}", Maps(7, 64, 3, 0, steps=steps), [0, -1, 1])
    # Which innermost coordinates are fine: those at multiples of 16 bytes.
    for kind in (0, 6, 7, 8):
        for swizzle in range(4):
            inner = SPANS[swizzle] or 48
            for x in (1, 2, 4, 8, 12, -1, -8, 70) if swizzle in (0, 3) else (4, 8):
                maps = Maps(kind, inner, 2, swizzle)
                load(m, f"load/x/{MAP_TYPES[kind]}/s{SPANS[swizzle]}/{x}", maps, [x, 1])
                if x in (1, 4, 8) and swizzle in (0, 3):
                    store(m, f"store/x/{MAP_TYPES[kind]}/s{SPANS[swizzle]}/{x}", "store", maps, [x, 1])
    for rank in (1, 3, 4, 5):
        for swizzle in (0, 3):
            load(m, f"load/x/r{rank}/s{SPANS[swizzle]}", Maps(6, SPANS[swizzle] or 48, rank, swizzle), [5] + [1] * (rank - 1))
    # A width of the box that fits, while the tensor is smaller than the box; far away coordinates.
    load(m, "load/small", Maps(7, 64, 2, 0, dims=[3, 2]), [0, 0])
    load(m, "load/small/s128", Maps(7, 128, 2, 3, dims=[3, 2]), [0, -1])
    for x in (0x7FFFFFFC, -0x80000000, 0x40000000, -0x40000000):
        load(m, f"load/far/x{x}", Maps(7, 64, 2, 0), [x, 0])
        load(m, f"load/far/y{x}", Maps(7, 64, 2, 0), [0, x])
    # Coordinates before the tensor, of stores and reductions.
    for x, y in ((0, -1), (0, -20), (-8, 0), (8, -1)):
        store(m, f"store/before/{x}_{y}", "store", Maps(6, 48, 2, 0), [x, y])
        store(m, f"reduce/before/{x}_{y}", "add", Maps(6, 48, 2, 0), [x, y], data="f16")
    store(m, "store/before/3d", "store", Maps(6, 48, 3, 0), [0, 0, -1])
    store(m, "store/before/far", "store", Maps(6, 48, 2, 0), [0, -0x40000000])
    store(m, "store/behind/far", "store", Maps(6, 48, 2, 0), [0, 0x40000000])
    store(m, "store/behind/far_x", "store", Maps(6, 48, 2, 0), [0x40000000, 0])
    # Where a row of the tensor ends inside a box.
    for kind, widths in ((0, range(1, 34)), (6, range(1, 18)), (7, range(1, 10)), (8, range(1, 6))):
        for width in widths:
            for swizzle in (0, 1):
                maps = Maps(kind, 32, 2, swizzle, dims=[width, 4], box=[32 // MAP_BYTES[kind], 3])
                for op in ("load", "store", "add"):
                    if op == "load":
                        load(m, f"load/end/{MAP_TYPES[kind]}/s{SPANS[swizzle]}/{width}", maps, [0, 0])
                    elif op == "store":
                        store(m, f"store/end/{MAP_TYPES[kind]}/s{SPANS[swizzle]}/{width}", "store", maps, [0, 0])
                    elif kind in (6, 7, 8) and swizzle == 0:
                        store(m, f"reduce/end/{MAP_TYPES[kind]}/{width}", "add", maps, [0, 0], data=MAP_TYPES[kind])
    # Rounding and subnormals of the types that say so.
    for kind in (7, 10, 11, 12):
        maps = Maps(kind, 64, 1, 0, dims=[32], box=[32])
        load(m, f"load/round/{MAP_TYPES[kind]}", maps, [0], words=WORDS)
        store(m, f"store/round/{MAP_TYPES[kind]}", "store", maps, [0], words=WORDS)
        maps = Maps(kind, 64, 2, 0, dims=[16, 2], box=[16, 2])
        store(m, f"reduce/round/{MAP_TYPES[kind]}", "add", maps, [0, 0], words=WORDS)
    for kind in (6, 9):
        store(m, f"reduce/round/{MAP_TYPES[kind]}", "add", Maps(kind, 64, 2, 0, dims=[32, 2], box=[32, 2]), [0, 0], words=HALVES)
    for op in ("min", "max"):
        for kind in (6, 9):
            store(m, f"reduce/{op}/round/{MAP_TYPES[kind]}", op, Maps(kind, 64, 2, 0, dims=[32, 2], box=[32, 2]), [0, 0], words=HALVES)
    # What the driver refuses.
    def refused(name, **change):
        maps = Maps(6, 64, 3, 0)
        for field, value in change.items():
            setattr(maps, field, value)
        load(m, f"map/{name}", maps, [0, 0, 0])

    refused("plain")
    refused("row24", box=[12, 3, 4])
    refused("row8", box=[4, 3, 4])
    refused("box257", box=[264, 1, 1])
    refused("box256", box=[256, 3, 4], room=256 * 24, bytes=256 * 24)
    refused("box0", box=[32, 0, 4])
    refused("dim0", dims=[95, 0, 4])
    refused("stride8", strides=[200, 1032])
    refused("stride_short", strides=[64, 1024], total=8192)
    refused("stride0", strides=[0, 1024], total=8192)
    refused("stride_order", strides=[2048, 208], total=16384)
    refused("step0", steps=[1, 0, 1])
    refused("step9", steps=[1, 9, 1])
    refused("step_inner9", steps=[9, 1, 1])
    refused("step_inner8", steps=[8, 1, 1])
    refused("step8", steps=[1, 8, 1], bytes=64 * 4, room=64 * 4)
    refused("fill_u16", kind=1, fill=1)
    refused("fill_f16", kind=6, fill=1)
    for swizzle in (1, 2, 3):
        refused(f"span_s{SPANS[swizzle]}", swizzle=swizzle, box=[SPANS[swizzle] // 2 + 8, 3, 4])
    replaced(m)
    # The sums are those of the box.
    data = {"f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64", "f32_ftz": "f32", "tf32": "f32", "tf32_ftz": "f32"}
    for kind, ty in enumerate(MAP_TYPES):
        for op in ("add", "min", "max", "inc", "dec", "and", "or", "xor"):
            store(m, f"reduce/{op}/{ty}", op, Maps(kind, 64, 2, 0), [16, 5], data=data.get(ty, "bytes"))
    for swizzle in (1, 2, 3):
        for place, at in places(Maps(2, SPANS[swizzle], 2, swizzle)):
            store(m, f"reduce/swizzled/s{SPANS[swizzle]}/{place}", "add", Maps(2, SPANS[swizzle], 2, swizzle), at)
    store(m, "reduce/3d", "add", Maps(6, 64, 3, 2), [8, 1, 1], data="f16")
    # Multicast.
    for mask in (0b1111, 0b1011, 0b0100, 0b0010):
        for swizzle in (0, 3):
            maps = Maps(6, SPANS[swizzle] or 48, 2, swizzle)
            span = (256 + maps.bytes + 15) // 16 * 16
            args = [numbers("bytes", maps.total, 7, hidden=True), maps.arg(0), {"out": 4 * (span + 16)}, u32(128),
                    u32(maps.bytes), u32(span), u32(mask), u32(8), u32(-2)]
            m.case(f"multicast/{mask:04b}/s{SPANS[swizzle]}", "multicast", args, block=[THREADS, 1, 1], grid=[4, 1, 1],
                   cluster=[4, 1, 1], shared=DATA + span)
    # im2col: images of 5x4(x3) pixels and 16 channels.
    forms = [
        (3, [16, 7, 3], [-1], [-1], [1], [[0, -1, 0], [0, 2, 1], [8, 5, 2]], [[0], [1], [2]]),
        (4, [16, 5, 4, 2], [-1, -1], [-1, -1], [1, 1], [[0, -1, -1, 0], [0, 1, 2, 0], [8, -1, 2, 1]], [[0, 0], [2, 1], [1, 2]]),
        (4, [16, 6, 5, 2], [0, 0], [-2, -2], [1, 1], [[0, 0, 0, 0], [0, 2, 1, 1]], [[0, 0], [2, 2], [1, 0]]),
        (4, [16, 7, 7, 2], [-1, -1], [-1, -1], [2, 2], [[0, -1, -1, 0], [0, 1, 3, 1]], [[0, 0], [1, 2]]),
        (5, [16, 4, 3, 3, 2], [-1, -1, -1], [-1, -1, -1], [1, 1, 1], [[0, -1, -1, -1, 0], [0, 1, 0, 1, 1]], [[0, 0, 0], [2, 1, 1]]),
    ]
    for number, (rank, dims, lower, upper, steps, corners, taps) in enumerate(forms):
        for swizzle, channels in ((0, 8), (0, 16), (1, 16), (3, 16)):
            strides, pitch = [], 32
            for dim in dims[1:]:
                strides.append(pitch)
                pitch *= dim
            pixels = 20
            total = pixels * channels * 2
            span = pixels * max(2 * channels, SPANS[swizzle]) + 128
            for c, corner in enumerate(corners):
                for t, tap in enumerate(taps):
                    spec = {"of": 0, "type": 6, "dims": dims, "strides": strides, "lower": lower, "upper": upper,
                            "channels": channels, "pixels": pixels, "steps": [1, *steps, 1], "swizzle": swizzle, "fill": 0}
                    args = [numbers("bytes", pitch, 7, hidden=True), {"map": spec}, {"out": span + 16}, u32(0), u32(total),
                            u32(span), *[u32(x) for x in corner], *[{"u16": x} for x in tap]]
                    m.case(f"im2col/{number}/s{SPANS[swizzle]}c{channels}/{c}{t}", f"im2col{rank}", args,
                           block=[THREADS, 1, 1], shared=DATA + span)

    b = Module("bulk")
    ops = {"store": ("cp.async.bulk.global.shared::cta.bulk_group", "bytes", 1)}
    for op, types in {"add": ["u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16"], "inc": ["u32"], "dec": ["u32"],
                      "min": ["u32", "s32", "u64", "s64", "f16", "bf16"], "max": ["u32", "s32", "u64", "s64", "f16", "bf16"],
                      "and": ["b32", "b64"], "or": ["b32", "b64"], "xor": ["b32", "b64"]}.items():
        for ty in types:
            kind = ty.split(".")[-1]
            kind = kind if kind[0] in "fb" and kind not in ("b32", "b64") else "bytes"
            ops[f"{op}_{ty.replace('.', '_')}"] = (f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{ty}", kind,
                                                  {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}.get(kind, 1))
    for name, (op, kind, size) in ops.items():
        bulk_kernel(b, name, op)
        args = [numbers(kind, 512 // size, 3, keep=True), numbers(kind, 512 // size, 5), u32(32), u32(512), u32(320)]
        b.case(name, name, args, block=[THREADS, 1, 1], shared=DATA + 512)
    args = [{"words": WORDS, "keep": True}, {"words": (WORDS[5:] + WORDS[:5] + [0] * 8)}, u32(0), u32(128), u32(128)]
    b.case("add_f32/round", "add_f32", args, block=[THREADS, 1, 1], shared=DATA + 512)
    for ty, kind in (("add_noftz_f16", 0), ("add_noftz_bf16", 0), ("min_f16", 0), ("max_f16", 0), ("min_bf16", 0), ("max_bf16", 0)):
        args = [{"words": HALVES[:16], "keep": True}, {"words": HALVES[4:] + HALVES[:4]}, u32(0), u32(64), u32(64)]
        b.case(f"{ty}/round", ty, args, block=[THREADS, 1, 1], shared=DATA + 512)
    # Misaligned and odd sizes.
    for at, size in ((8, 64), (4, 64), (0, 8), (0, 24), (0, 0)):
        args = [numbers("bytes", 512, 3, keep=True), numbers("bytes", 512, 5), u32(at), u32(512), u32(size)]
        b.case(f"odd/{at}_{size}", "store", args, block=[THREADS, 1, 1], shared=DATA + 512, undefined=size % 16 != 0)
    return [m, b]
