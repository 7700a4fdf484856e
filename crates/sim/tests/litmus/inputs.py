"""Inputs by formula; the test has the same in Rust."""
import struct

E4M3 = [0x00, 0x38, 0x40, 0x44, 0x48, 0x4A, 0x4C, 0x4E, 0x50]
E5M2 = [0x00, 0x3C, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x48]
# Two different positions of four, in order; and one of two, of double width.
PAIRS = [0x4, 0x8, 0xC, 0x9, 0xD, 0xE]


def numbers(kind, count, seed):
    """`count` numbers: whole ones from -8 to 7 in floating-point and signed types, 0 to 15 in `u8`, else any bits."""
    out = bytearray()
    x = seed & 0xFFFFFFFF
    for _ in range(count):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        top = x >> 24
        n = (top & 15) - 8
        if kind == "bytes":
            out.append(top)
        elif kind == "s8":
            out += struct.pack("<b", n)
        elif kind == "u8":
            out.append(top & 15)
        elif kind == "e4m3":
            out.append(E4M3[abs(n)] | (0x80 if n < 0 else 0))
        elif kind == "e5m2":
            out.append(E5M2[abs(n)] | (0x80 if n < 0 else 0))
        elif kind == "f16":
            out += struct.pack("<e", n)
        elif kind == "bf16":
            out += struct.pack("<f", n)[2:]
        elif kind == "f32":
            out += struct.pack("<f", n)
        elif kind == "f64":
            out += struct.pack("<d", n)
        elif kind == "s32":
            out += struct.pack("<i", n)
        elif kind == "edge":
            out += struct.pack("<I", (0x7FFFFFFF - top) if top & 1 else 0x80000000 + top)
        elif kind == "pairs":
            word = 0
            for nibble in range(8):
                x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
                word |= PAIRS[(x >> 24) % 6] << (4 * nibble)
            out += struct.pack("<I", word)
        elif kind == "halves":
            word = 0
            for nibble in range(8):
                x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
                word |= (0xE if x >> 31 else 0x4) << (4 * nibble)
            out += struct.pack("<I", word)
        else:
            raise ValueError(kind)
    return bytes(out)
