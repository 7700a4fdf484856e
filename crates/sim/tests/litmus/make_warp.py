"""Instructions of a warp, special registers, atomics of one thread, addresses."""
import itertools

from common import Module, numbers


def lane(k):
    r = k.new("r")
    k(f"mov.u32 {r}, %laneid;")
    return r


def value(k, factor=0x9E3779B1, add=12345):
    """A word that differs in each lane."""
    r = k.new("r")
    k(f"mov.u32 {r}, %laneid;\nmad.lo.u32 {r}, {r}, {factor}, {add};")
    return r


def make_shfl(m):
    for mode in ("idx", "up", "down", "bfly"):
        k = m.kernel(f"shfl_{mode}")
        v, l = value(k), lane(k)
        twice, back = k.new("r", 2)
        k(f"mul.lo.u32 {twice}, {l}, 3;\nsub.u32 {back}, 5, {l};")
        for c in (0x1F, 0, 0x1800 | (0x1F if mode != "up" else 0), 0x1C03, 0x101F, 0x0707, 0xFFFFFFFF, 0x1E1F):
            for b in ("0", "1", "5", "31", "32", "33", "0xffffffff", twice, back):
                d, p = k.new("r"), k.new("p")
                k(f"shfl.sync.{mode}.b32 {d}|{p}, {v}, {b}, {c}, 0xffffffff;")
                k.put(d)
                k.put_pred(p)
        m.case(f"shfl/{mode}", f"shfl_{mode}", ["out"])
        # Some lanes only: the others keep what they have.
        k = m.kernel(f"shfl_{mode}_part")
        v, l = value(k), lane(k)
        d, q, p, some = k.new("r"), k.new("r"), k.new("p"), k.new("p")
        k(f"mov.u32 {d}, 0xabc;\nmov.u32 {q}, 7;\nand.b32 {q}, {l}, 3;\nsetp.eq.u32 {some}, {q}, 1;\nsetp.eq.u32 {p}, {q}, 1;")
        # The lanes read are among those that take part.
        amount = {"idx": 13, "up": 4, "down": 8, "bfly": 12}[mode]
        clamp = 0 if mode == "up" else 0x1F
        k(f"@{some} shfl.sync.{mode}.b32 {d}|{p}, {v}, {amount}, {clamp}, 0x22222222;")
        k.put(d)
        k.put_pred(p)
        m.case(f"shfl/{mode}/part", f"shfl_{mode}_part", ["out"])


def make_votes(m):
    k = m.kernel("votes")
    l = lane(k)
    for a in ("0x55555555", "0xffffffff", "0", "0x80000001"):
        mask, bit, p = k.new("r"), k.new("r"), k.new("p")
        k(f"mov.u32 {mask}, {a};\nshr.u32 {bit}, {mask}, {l};\nand.b32 {bit}, {bit}, 1;\nsetp.ne.u32 {p}, {bit}, 0;")
        for sign in ("", "!"):
            for mode in ("all", "any", "uni"):
                q = k.new("p")
                k(f"vote.sync.{mode}.pred {q}, {sign}{p}, 0xffffffff;")
                k.put_pred(q)
            d = k.new("r")
            k(f"vote.sync.ballot.b32 {d}, {sign}{p}, 0xffffffff;")
            k.put(d)
        d, q, r = k.new("r"), k.new("p"), k.new("r")
        k(f"mov.u32 {d}, 99;\nmov.u32 {r}, 98;\nsetp.lt.u32 {q}, {l}, 12;\n@{q} vote.sync.ballot.b32 {d}, {p}, 0xfff;")
        k.put(d)
    m.case("vote", "votes", ["out"])

    k = m.kernel("matches")
    l = lane(k)
    for shift, mask in ((0, 31), (2, 7), (3, 3), (5, 0)):
        v, d = k.new("r"), k.new("r")
        k(f"shr.u32 {v}, {l}, {shift};\nand.b32 {v}, {v}, {mask};\nmatch.any.sync.b32 {d}, {v}, 0xffffffff;")
        k.put(d)
        e, p = k.new("r"), k.new("p")
        k(f"match.all.sync.b32 {e}|{p}, {v}, 0xffffffff;")
        k.put(e)
        k.put_pred(p)
        w, f = k.new("rd"), k.new("r")
        k(f"cvt.u64.u32 {w}, {v};\nshl.b64 {w}, {w}, 40;\nmatch.any.sync.b64 {f}, {w}, 0xffffffff;")
        k.put(f)
        g, q = k.new("r"), k.new("p")
        k(f"match.all.sync.b64 {g}|{q}, {w}, 0xffffffff;")
        k.put(g)
        k.put_pred(q)
        h, some = k.new("r"), k.new("p")
        k(f"mov.u32 {h}, 77;\nsetp.ge.u32 {some}, {l}, 20;\n@{some} match.any.sync.b32 {h}, {v}, 0xfff00000;")
        k.put(h)
    m.case("match", "matches", ["out"])

    k = m.kernel("reductions")
    l, v = lane(k), value(k)
    for op, ty in [("add", "u32"), ("add", "s32"), ("min", "u32"), ("min", "s32"), ("max", "u32"), ("max", "s32"), ("and", "b32"), ("or", "b32"), ("xor", "b32")]:
        d, e, p, low = k.new("r"), k.new("r"), k.new("p"), k.new("r")
        k(f"redux.sync.{op}.{ty} {d}, {v}, 0xffffffff;")
        k.put(d)
        k(f"mov.u32 {e}, 5;\nand.b32 {low}, {l}, 5;\nsetp.eq.u32 {p}, {low}, 1;\n@{p} redux.sync.{op}.{ty} {e}, {v}, 0x0a0a0a0a;")
        k.put(e)
    m.case("redux", "reductions", ["out"])

    k = m.kernel("elected")
    l = lane(k)
    for mask, first in (("0xffffffff", 0), ("0xfffffff0", 4), ("0x80000000", 31), ("0xff000", 12)):
        bits, bit, p, d, q, n = k.new("r"), k.new("r"), k.new("p"), k.new("r"), k.new("p"), k.new("r")
        k(f"mov.u32 {bits}, {mask};\nshr.u32 {bit}, {bits}, {l};\nand.b32 {bit}, {bit}, 1;\nsetp.ne.u32 {p}, {bit}, 0;")
        k(f"mov.u32 {d}, 55;\nsetp.ne.u32 {q}, {bit}, {bit};\n@{p} elect.sync {d}|{q}, {mask};")
        k.put(d)
        k.put_pred(q)
    m.case("elect", "elected", ["out"])

    k = m.kernel("active")
    l = lane(k)
    for limit in (1, 7, 16, 31):
        d, e, p = k.new("r"), k.new("r"), k.new("p")
        then, end = k.label(), k.label()
        k(f"mov.u32 {d}, 0;\nsetp.lt.u32 {p}, {l}, {limit};\n@{p} bra {then};\nactivemask.b32 {d};\nadd.u32 {d}, {d}, 1;\nbra {end};")
        k(f"{then}:\nactivemask.b32 {d};\n{end}:\nbar.warp.sync 0xffffffff;\nactivemask.b32 {e};")
        k.put(d)
        k.put(e)
    # Lanes that have exited are not active.
    d, p = k.new("r"), k.new("p")
    k(f"setp.ge.u32 {p}, {l}, 20;\n@{p} exit;\nactivemask.b32 {d};")
    k.put(d)
    e, f, q = k.new("r"), k.new("r"), k.new("p")
    k(f"vote.sync.ballot.b32 {e}, 1, 0xfffff;")
    k.put(e)
    m.case("activemask", "active", ["out"])


def make_bits(m):
    k = m.kernel("permutes")
    v = value(k)
    w = value(k, 0x85EBCA6B, 777)
    for selector in ("0x0000", "0x3210", "0x7654", "0x0123", "0x89ab", "0xcdef", "0xf080", "0x5af3", "0x12340", "0xffff8888"):
        d = k.new("r")
        k(f"prmt.b32 {d}, {v}, {w}, {selector};")
        k.put(d)
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        for selector in (0, 1, 2, 3, 4, 7, 0x32, "%laneid"):
            d, s = k.new("r", 2)
            k(f"mov.u32 {s}, {selector};\nprmt.b32.{mode} {d}, {v}, {w}, {s};")
            k.put(d)
    m.case("prmt", "permutes", ["out"])

    k = m.kernel("branches")
    l = lane(k)
    i, d = k.new("r", 2)
    labels = [k.label() for _ in range(5)]
    end = labels.pop()
    p = k.new("p")
    # An index beyond the end is not defined; a loop with one exit for each lane comes after it.
    k(f"and.b32 {i}, {l}, 3;\nmov.u32 {d}, 1;")
    k(f"TS: .branchtargets {', '.join(labels)};\nbrx.idx {i}, TS;")
    for n, label in enumerate(labels):
        k(f"{label}:\nadd.u32 {d}, {d}, {10 * (n + 1)};" + (f"\nbra {end};" if n != 1 else ""))
    k(f"{end}:")
    k.put(d)
    n, t, head = k.new("r"), k.new("r"), k.label()
    k(f"mov.u32 {n}, 0;\nmov.u32 {t}, 1;\n{head}:\nmad.lo.u32 {t}, {t}, 3, {n};\nadd.u32 {n}, {n}, 1;\nsetp.le.u32 {p}, {n}, {l};\n@{p} bra {head};")
    k.put(t)
    e = k.new("r")
    k(f"bar.warp.sync 0xffffffff;\nactivemask.b32 {e};")
    k.put(e)
    m.case("brx", "branches", ["out"])

    k = m.kernel("barriers")
    v, p, w = k.new("r"), k.new("p"), k.new("r")
    k(f"mov.u32 {v}, %tid.x;\nand.b32 {w}, {v}, 3;\nsetp.eq.u32 {p}, {w}, 2;")
    for sign in ("", "!"):
        d, q, r = k.new("r"), k.new("p"), k.new("p")
        k(f"barrier.cta.red.popc.aligned.u32 {d}, 0, {sign}{p};")
        k.put(d)
        k(f"bar.red.and.pred {q}, 1, {sign}{p};")
        k.put_pred(q)
        k(f"bar.red.or.pred {r}, 1, {sign}{p};")
        k.put_pred(r)
    # Two of the warps only.
    d, q, r = k.new("r"), k.new("p"), k.new("p")
    k(f"mov.u32 {d}, 1000;\nsetp.lt.u32 {q}, {v}, 64;\n@{q} bar.red.popc.u32 {d}, 3, 64, {p};")
    k.put(d)
    e, f = k.new("p"), k.new("r")
    k(f"setp.ge.u32 {e}, {v}, 32;\n@{e} bar.red.popc.u32 {d}, 2, 96, {e};")
    k.put(d)
    m.case("bar_red", "barriers", ["out"], block=[128, 1, 1])


SPECIAL = ["%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%laneid", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x",
           "%nctaid.y", "%nctaid.z", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%clusterid.x",
           "%clusterid.y", "%clusterid.z", "%nclusterid.x", "%nclusterid.y", "%nclusterid.z", "%cluster_ctaid.x", "%cluster_ctaid.y",
           "%cluster_ctaid.z", "%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z", "%cluster_ctarank", "%cluster_nctarank",
           "%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"]


def make_special(m):
    k = m.kernel("special")
    for name in SPECIAL:
        d = k.new("r")
        k(f"mov.u32 {d}, {name};")
        k.put(d)
    p, q, d = k.new("p"), k.new("r"), k.new("r")
    k(f"mov.pred {p}, %is_explicit_cluster;")
    k.put_pred(p)
    k(f"mov.u32 {d}, smem;")
    k.put(d)
    m.case("special/plain", "special", ["out"], grid=[2, 3, 2], block=[8, 4, 3], shared=1040)
    m.case("special/cluster", "special", ["out"], grid=[4, 6, 4], block=[5, 3, 1], cluster=[2, 3, 1], shared=64)
    m.case("special/cluster3", "special", ["out"], grid=[2, 4, 2], block=[4, 2, 2], cluster=[1, 2, 2])
    m.case("special/cluster2", "special", ["out"], grid=[2, 2, 4], block=[33, 1, 1], cluster=[2, 2, 2])

    # Which space an address is of, and addresses of the shared memory of peers.
    k = m.kernel("spaces", ["out"])
    k(".local .align 8 .b8 own[8];\n.shared .align 8 .b8 held[24];")
    addresses = []
    for text in ("mov.u64 {0}, held;\ncvta.shared.u64 {0}, {0};", "mov.u64 {0}, own;\ncvta.local.u64 {0}, {0};", "mov.u64 {0}, %out;",
                 "mov.u64 {0}, table;\ncvta.const.u64 {0}, {0};", "mov.u64 {0}, cell;\ncvta.global.u64 {0}, {0};"):
        a = k.new("rd")
        k(text.format(a))
        addresses.append(a)
    s, peer = k.new("r", 2)
    k(f"mov.u32 {s}, held;\nmapa.shared::cluster.u32 {peer}, {s}, 1;")
    far = k.new("rd")
    k(f"mapa.u64 {far}, {addresses[0]}, 1;")
    addresses.append(far)
    for a in addresses:
        for space in ("global", "shared", "shared::cta", "shared::cluster", "local", "const"):
            p = k.new("p")
            k(f"isspacep.{space} {p}, {a};")
            k.put_pred(p)
    for rank in range(2):
        a, b, r, t = k.new("rd"), k.new("r"), k.new("r"), k.new("r")
        k(f"mapa.u64 {a}, {addresses[0]}, {rank};\ngetctarank.u64 {r}, {a};")
        k.put(r)
        k(f"mapa.shared::cluster.u32 {b}, {s}, {rank};\ngetctarank.shared::cluster.u32 {t}, {b};")
        k.put(t)
        k(f"sub.u32 {b}, {b}, {s};")
        k.put(b)
        back, p = k.new("rd"), k.new("p")
        k(f"cvta.to.shared.u64 {back}, {a};\ncvt.u32.u64 {r}, {back};\nsub.u32 {r}, {r}, {s};")
        k.put(r)
    # Each block writes to the other one's memory, by both kinds of address, and reads its own.
    me, other, x = k.new("r", 3)
    k(f"mov.u32 {me}, %cluster_ctarank;\nxor.b32 {other}, {me}, 1;\nadd.u32 {x}, {me}, 70;")
    a, b = k.new("rd"), k.new("r")
    k("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    k(f"mapa.u64 {a}, {addresses[0]}, {other};\nmapa.shared::cluster.u32 {b}, {s}, {other};")
    k(f"st.u32 [{a}], {x};\nadd.u32 {x}, {x}, 10;\nst.shared::cluster.u32 [{b}+4], {x};\natom.add.shared::cluster.u32 {x}, [{b}+4], 3;")
    k.put(x)
    k("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    for at in (0, 4):
        d = k.new("r")
        k(f"ld.shared.u32 {d}, [held+{at}];")
        k.put(d)
    k("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    m.case("spaces", "spaces", ["out"], grid=[2, 1, 1], block=[1, 1, 1], cluster=[2, 1, 1])


def make_atomics(m):
    k = m.kernel("atomics", ["out", "cells"])
    k(".shared .align 16 .b8 held[64];")

    def try_one(space, ty, op, bits, first, *operands):
        at = "%cells" if space == "global" else "held"
        big = bits == 64
        kind = "rd" if big else "h" if bits == 16 else "r"
        old, now, was = k.new(kind), k.new(kind), k.new(kind)
        put = k.put_wide if big else k.put_half if bits == 16 else k.put
        k(f"mov.b{bits} {was}, {first};\nst.{space}.b{bits} [{at}], {was};")
        ops = []
        for x in operands:
            r = k.new(kind)
            k(f"mov.b{bits} {r}, {x};")
            ops.append(r)
        if ty in ("f32", "f64"):
            typed = []
            for r in [old, *ops]:
                f = k.new("f" if ty == "f32" else "d")
                typed.append(f)
            for r, f in zip(ops, typed[1:]):
                k(f"mov.b{bits} {f}, {r};")
            k(f"atom.{space}.{op}.{ty} {typed[0]}, [{at}], {', '.join(typed[1:])};\nmov.b{bits} {old}, {typed[0]};")
        else:
            k(f"atom.{space}.{op}.{ty} {old}, [{at}], {', '.join(ops)};")
        k(f"ld.{space}.b{bits} {now}, [{at}];")
        put(old)
        put(now)

    for space in ("global", "shared"):
        for first, operand in ((0, 0), (0, 5), (5, 5), (6, 5), (4, 5), ("0xffffffff", "0xffffffff"), (3, "0xffffffff")):
            for op in ("inc", "dec"):
                try_one(space, "u32", op, 32, first, operand)
        for a, b in (("0x80000000", "0x7fffffff"), (1, "0xffffffff"), (7, 7)):
            for op, ty in (("min", "u32"), ("min", "s32"), ("max", "u32"), ("max", "s32"), ("add", "u32"), ("add", "s32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("exch", "b32")):
                try_one(space, ty, op, 32, a, b)
        for a, b in (("0x8000000000000000", "0x7fffffffffffffff"), (1, "0xffffffffffffffff")):
            for op, ty in (("min", "u64"), ("min", "s64"), ("max", "u64"), ("max", "s64"), ("add", "u64"), ("and", "b64"), ("or", "b64"), ("xor", "b64"), ("exch", "b64")):
                try_one(space, ty, op, 64, a, b)
        for bits in (16, 32, 64):
            try_one(space, f"b{bits}", "cas", bits, 9, 9, 77)
            try_one(space, f"b{bits}", "cas", bits, 9, 8, 77)
        # f16 and bf16: subnormals, overflow, infinities, halfway cases.
        for a, b in (("0x00010001", "0x00018001"), ("0x3c003c00", "0x10001400"), ("0x7bff7bff", "0x7bff1000"), ("0x7c00fc00", "0x3c003c00"),
                     ("0x3c013c01", "0x10001000"), ("0x80000000", "0x80008000")):
            try_one(space, "f16x2", "add.noftz", 32, a, b)
            try_one(space, "bf16x2", "add.noftz", 32, a, b)
        for a, b in (("0x0001", "0x0001"), ("0x3c01", "0x1000"), ("0x7bff", "0x7bff"), ("0x8000", "0x8000")):
            try_one(space, "f16", "add.noftz", 16, a, b)
            try_one(space, "bf16", "add.noftz", 16, a, b)
        # f32: subnormal inputs and results, which global memory and shared memory may treat differently.
        for a, b in (("0x00000001", "0x00000001"), ("0x00400000", "0x00400000"), ("0x00800000", "0x80400000"), ("0x80000000", "0x80000000"),
                     ("0x7f7fffff", "0x7f7fffff"), ("0x3f800000", "0x33800000"), ("0x3f800001", "0x33800000"), ("0x7f800000", "0x3f800000"),
                     ("0x3f800000", "0x00000001"), ("0x80000001", "0x00000001"), ("0x00000000", "0x80000000")):
            try_one(space, "f32", "add", 32, a, b)
        for a, b in (("0x0000000000000001", "0x0000000000000001"), ("0x3ff0000000000000", "0x3ca0000000000000"), ("0x8000000000000000", "0x8000000000000000")):
            try_one(space, "f64", "add", 64, a, b)
    # Reductions without a result, and vectors.
    for op, ty, bits, a, b in (("inc", "u32", 32, 5, 5), ("dec", "u32", 32, 0, 5), ("min", "s32", 32, 3, "0xfffffff0"), ("add", "u64", 64, 3, "0xffffffffffffffff")):
        kind = "rd" if bits == 64 else "r"
        was, x, now = k.new(kind), k.new(kind), k.new(kind)
        k(f"mov.b{bits} {was}, {a};\nst.global.b{bits} [%cells], {was};\nmov.b{bits} {x}, {b};\nred.global.{op}.{ty} [%cells], {x};\nld.global.b{bits} {now}, [%cells];")
        (k.put_wide if bits == 64 else k.put)(now)
    was, x = k.new("r"), k.new("f")
    k(f"mov.b32 {was}, 0x00000001;\nst.global.b32 [%cells], {was};\nmov.b32 {x}, 0f00000001;\nred.global.add.f32 [%cells], {x};\nld.global.b32 {was}, [%cells];")
    k.put(was)
    old, add = k.new("f", 4), k.new("f", 4)
    for i, f in enumerate(add):
        k(f"mov.f32 {f}, 0f{0x3F800000 + (i << 21):08X};\nst.global.f32 [%cells+{4 * i}], {f};")
    k(f"atom.global.v4.f32.add {{{', '.join(old)}}}, [%cells], {{{', '.join(add)}}};")
    for i, f in enumerate(old):
        now = k.new("f")
        k(f"ld.global.f32 {now}, [%cells+{4 * i}];")
        k.put(f)
        k.put(now)
    # 128 bits.
    parts, result = k.new("rd", 6), k.new("x", 4)
    for i, r in enumerate(parts):
        k(f"mov.b64 {r}, {i + 1};")
    k(f"st.global.v2.b64 [%cells], {{{parts[0]}, {parts[1]}}};\nmov.b128 {result[0]}, {{{parts[0]}, {parts[1]}}};\nmov.b128 {result[1]}, {{{parts[2]}, {parts[3]}}};")
    k(f"atom.global.cas.b128 {result[2]}, [%cells], {result[0]}, {result[1]};\nmov.b128 {{{parts[4]}, {parts[5]}}}, {result[2]};")
    k.put_wide(parts[4])
    k.put_wide(parts[5])
    k(f"atom.global.exch.b128 {result[3]}, [%cells], {result[0]};\nmov.b128 {{{parts[4]}, {parts[5]}}}, {result[3]};")
    k.put_wide(parts[4])
    k.put_wide(parts[5])
    m.case("atomics", "atomics", ["out", numbers("bytes", 64, 51)], block=[1, 1, 1])


def make():
    m = Module("warp", head=".const .align 4 .b32 table[2] = {1, 2};\n.global .align 4 .b32 cell;\n")
    make_shfl(m)
    make_votes(m)
    make_bits(m)
    make_special(m)
    make_atomics(m)
    return [m]
