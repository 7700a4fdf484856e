"""Bank conflicts and sectors: patterns of addresses whose counters are compared."""
from common import Module


def make():
    m = Module("banks")

    def pattern(k):
        """The place of a lane; -1 if it takes no part."""
        r, at = k.new("r"), k.new("rd")
        k(f"mov.u32 {r}, %tid.x;\nmul.wide.u32 {at}, {r}, 4;\nadd.s64 {at}, {at}, %table;\nld.global.b32 {r}, [{at}];")
        k(f".reg .pred %on;\nsetp.ne.u32 %on, {r}, -1;")
        return r

    for size, vector in ((1, "u8"), (2, "u16"), (4, "b32"), (8, "v2.b32"), (16, "v4.b32")):
        for op in ("ld", "st"):
            for space in ("shared", "global"):
                k = m.kernel(f"{op}_{space}_{size}", ["out", "table"] + (["data"] if space == "global" else []))
                r = pattern(k)
                regs = k.new("h" if size < 4 else "r", max(1, size // 4))
                for i, register in enumerate(regs):
                    k(f"mov.b{16 if size < 4 else 32} {register}, {i};")
                if space == "shared":
                    base = k.new("r")
                    k(f"mov.u32 {base}, smem;\nadd.u32 {base}, {base}, {r};")
                else:
                    base = k.new("rd")
                    k(f"cvt.u64.u32 {base}, {r};\nadd.s64 {base}, {base}, %data;")
                what = "{" + ", ".join(regs) + "}" if size > 4 else regs[0]
                if op == "ld":
                    k(f"@%on ld.volatile.{space}.{vector} {what}, [{base}];")
                else:
                    k(f"@%on st.{space}.{vector} [{base}], {what};")
    for count in (1, 2, 4):
        for op in ("ldmatrix", "stmatrix"):
            k = m.kernel(f"{op}_{count}", ["out", "table"])
            r, base, regs = pattern(k), k.new("r"), k.new("r", count)
            k(f"mov.u32 {base}, smem;\nadd.u32 {base}, {base}, {r};")
            for i, register in enumerate(regs):
                k(f"mov.b32 {register}, {i};")
            what = "{" + ", ".join(regs) + "}"
            if op == "ldmatrix":
                k(f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {what}, [{base}];")
                for register in regs[1:]:
                    k(f"xor.b32 {regs[0]}, {regs[0]}, {register};")
                k(f"st.shared.b32 [smem], {regs[0]};")
            else:
                k(f"stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [{base}], {what};")

    def case(name, entry, table):
        args = [{"out": 16}, {"words": table}]
        if "global" in entry:
            args.append({"numbers": "bytes", "count": 65536, "seed": 1})
        m.case(name, entry, args, shared=65536, counters=True)

    for op in ("ld", "st"):
        for size in (1, 2, 4, 8, 16):
            for stride in (1, 2, 3, 4, 8, 16, 32, 33):
                table = [lane * stride * size for lane in range(32)]
                case(f"shared/{op}{size}/stride{stride}", f"{op}_shared_{size}", table)
            for stride in (1, 2, 3, 8, 32):
                table = [lane * stride * size for lane in range(32)]
                case(f"global/{op}{size}/stride{stride}", f"{op}_global_{size}", table)
            if op == "ld":
                case(f"shared/{op}{size}/same", f"{op}_shared_{size}", [64] * 32)
                case(f"shared/{op}{size}/pairs", f"{op}_shared_{size}", [lane // 2 * size for lane in range(32)])
                case(f"shared/{op}{size}/halves", f"{op}_shared_{size}", [lane % 16 * size for lane in range(32)])
                case(f"shared/{op}{size}/quarters", f"{op}_shared_{size}", [lane % 8 * size for lane in range(32)])
                case(f"shared/{op}{size}/reverse", f"{op}_shared_{size}", [(31 - lane) * size for lane in range(32)])
                case(f"shared/{op}{size}/mixed", f"{op}_shared_{size}", [(lane * 7 % 32) * 128 + lane % 4 * size for lane in range(32)])
                case(f"shared/{op}{size}/random", f"{op}_shared_{size}", [(lane * 2654435761 >> 7) % 4096 // size * size for lane in range(32)])
                case(f"shared/{op}{size}/swizzled", f"{op}_shared_{size}", [lane * 128 + (lane % 8) * 16 for lane in range(32)])
                case(f"global/{op}{size}/offset", f"{op}_global_{size}", [lane * size + size for lane in range(32)])
    # Lanes that ask for the same, in all the ways that could make one wavefront of two.
    off = 0xFFFFFFFF
    for size in (4, 8, 16):
        shapes = {
            "apart2": [(lane & 1 | lane >> 2 << 1) * size for lane in range(32)],
            "apart4": [(lane & 3 | lane >> 3 << 2) * size for lane in range(32)],
            "apart8": [(lane & 7 | lane >> 4 << 3) * size for lane in range(32)],
            "fours": [lane // 4 * size for lane in range(32)],
            "eights": [lane // 8 * size for lane in range(32)],
            "pairs_far": [lane // 2 * 128 for lane in range(32)],
            "pairs_even": [lane // 2 * 2 * size for lane in range(32)],
            "pairs_swapped": [(lane // 2 ^ 5) * size for lane in range(32)],
            "both": [(lane // 2 if lane < 16 else (lane & 1 | lane >> 2 << 1)) * size for lane in range(32)],
            "broken": [(lane // 2 if lane < 31 else 40) * size for lane in range(32)],
            "even": [lane * size if lane % 2 == 0 else off for lane in range(32)],
            "even_dense": [lane // 2 * size if lane % 2 == 0 else off for lane in range(32)],
            "first_half": [lane * size if lane < 16 else off for lane in range(32)],
            "first_quarter": [lane * size if lane < 8 else off for lane in range(32)],
            "ends": [lane * size if lane in (0, 31) else off for lane in range(32)],
            "ends_same": [64 if lane in (0, 31) else off for lane in range(32)],
            "one": [64 if lane == 9 else off for lane in range(32)],
            "halves_same": [lane // 16 * 256 for lane in range(32)],
            "quarters_same": [lane // 8 * 256 for lane in range(32)],
        }
        for name, table in shapes.items():
            case(f"shared/ld{size}/{name}", f"ld_shared_{size}", table)
            if name in ("even", "even_dense", "first_half", "ends", "one"):
                case(f"shared/st{size}/{name}", f"st_shared_{size}", table)
    for op in ("ldmatrix", "stmatrix"):
        for count in (1, 2, 4):
            case(f"{op}/x{count}/rows128", f"{op}_{count}", [lane * 128 for lane in range(32)])
            case(f"{op}/x{count}/swizzled", f"{op}_{count}", [lane * 128 + (lane % 8) * 16 for lane in range(32)])
            case(f"{op}/x{count}/rows64", f"{op}_{count}", [lane * 64 for lane in range(32)])
            case(f"{op}/x{count}/rows16", f"{op}_{count}", [lane * 16 for lane in range(32)])
            case(f"{op}/x{count}/rows80", f"{op}_{count}", [lane * 80 for lane in range(32)])
    return [m]
