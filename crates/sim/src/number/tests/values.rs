//! Values for tests: the edges of every type, and random bits.
#![allow(clippy::cast_possible_truncation, reason = "random bits are cut to size")]

use tilewright_ptx::Type;

/// Random numbers that are the same everywhere and always (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }

    /// A value of a type: an edge, an edge with its last bits changed, or any bits.
    pub(super) fn value(&mut self, ty: Type) -> u64 {
        let edges = edges(ty);
        let kind = self.next() % 8;
        let edge = self.pick(&edges);
        match kind {
            0..=3 => edge,
            4 => edge.wrapping_add(self.next() % 5).wrapping_sub(2),
            // Numbers of similar size, so that sums and differences meet.
            5 if ty == Type::F32 => (self.next() & 0x83ff_ffff) | 0x3c00_0000,
            5 if ty == Type::F64 => (self.next() & 0x807f_ffff_ffff_ffff) | 0x3f80_0000_0000_0000,
            _ => self.next(),
        }
    }

    /// A shift amount, position or width.
    pub(super) fn amount(&mut self) -> u64 {
        match self.next() % 4 {
            0 => self.pick(&[0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 0xffff_ffff]),
            1 => self.next(),
            _ => self.next() % 40,
        }
    }
}

/// A few values that are worth combining with each other: zeros, infinities, NaNs quiet and signalling, the smallest numbers,
/// and factors whose product is just below the smallest normal number.
pub(super) fn specials(ty: Type) -> Vec<u64> {
    match ty {
        Type::F32 => vec![
            0,
            0x8000_0000,
            0x3f80_0000,
            0xbf80_0000,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0001,
            0xffc0_0002,
            0x7f80_0003,
            1,
            0x8000_0001,
            0x80_0000,
            0x3f7f_ffff,
            0x3f7f_f800,
            0x80_0400,
            0x7f7f_ffff,
        ],
        Type::F64 => vec![
            0,
            1 << 63,
            0x3ff0_0000_0000_0000,
            0xbff0_0000_0000_0000,
            0x7ff0_0000_0000_0000,
            0xfff0_0000_0000_0000,
            0x7ff8_0000_0000_0001,
            0xfff8_0000_0000_0002,
            0x7ff0_0000_0000_0003,
            0xfff0_0000_0000_0004,
            1,
            1 << 63 | 1,
            0x10_0000_0000_0000,
            0x3fef_ffff_ffff_ffff,
            0x3810_0000_0000_0000,
            0x380f_ffff_ffff_ffff,
        ],
        Type::F16 => vec![
            0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e01, 0xfe02, 0x7c03, 1, 0x8001, 0x400, 0x3bff,
            0x3be0, 0x410, 0x7ff7,
        ],
        Type::Bf16 => vec![
            0, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc1, 0xffc2, 0x7f83, 1, 0x8001, 0x80, 0x3f7f,
            0x3f78, 0x84, 0x7ff7,
        ],
        Type::F16x2 => spread(&specials(Type::F16)),
        Type::Bf16x2 => spread(&specials(Type::Bf16)),
        _ => Vec::new(),
    }
}

/// Each value in the low half, another in the high half.
fn spread(values: &[u64]) -> Vec<u64> {
    values.iter().enumerate().map(|(at, &low)| low | values[(at * 5 + 3) % values.len()] << 16).collect()
}

/// `f32` values where something happens, without sign.
pub(super) const SINGLES: [f64; 46] = [
    0.0,
    1.0,
    2.0,
    3.0,
    0.5,
    1.5,
    2.5,
    3.5,
    0.25,
    0.75,
    0.1,
    10.0,
    126.5,
    127.5,
    128.0,
    128.5,
    254.5,
    255.5,
    256.0,
    447.0,
    448.0,
    463.9,
    464.0,
    464.1,
    57344.0,
    61440.0,
    61441.0,
    65504.0,
    65519.99,
    65520.0,
    32767.5,
    32768.5,
    65535.5,
    65536.0,
    2147483520.0,
    2147483648.0,
    4294967040.0,
    4294967296.0,
    9.223_371_5e18,
    9.223_372_036_854_776e18,
    1.844_674_297e19,
    1.844_674_407_370_955_2e19,
    8_388_608.0,
    16_777_216.0,
    8_388_607.5,
    1e30,
];

/// Bits of values of a type where something happens.
pub(super) fn edges(ty: Type) -> Vec<u64> {
    let signed = |bits: &[u64], sign: u64| bits.iter().flat_map(|&bits| [bits, bits | sign]).collect();
    match ty {
        Type::F32 | Type::Tf32 => {
            let mut bits: Vec<u64> =
                SINGLES.iter().map(|&value| u64::from((value as f32).to_bits())).collect();
            bits.extend([
                1,
                2,
                0x7f_ffff,
                0x80_0000,
                0x80_0001,
                0xff_ffff,
                0x3f7f_ffff,
                0x3f80_0001,
                0x7f7f_ffff,
                0x7f7f_fffe,
                0x7f80_0000,
                0x7f80_0001,
                0x7fc0_0000,
                0x7fff_ffff,
                0x7fa1_2345,
                0x3300_0000,
                0x3300_0001,
                0x3380_0000,
                0x3880_0000,
                0x387f_ffff,
                0x387f_e000,
                0x7f7f_8000,
                0x7f00_0000,
                0x7e80_0000,
                0x7e80_0001,
                0x3f80_8000,
                0x3f81_8000,
                0x3f80_1000,
                0x3f80_3000,
                0x0000_8000,
                0x3b00_0000,
                0x3a80_0000,
                0x3780_0000,
                0x3700_0000,
            ]);
            signed(&bits, 1 << 31)
        }
        Type::F64 => {
            let mut bits: Vec<u64> = SINGLES.iter().map(|value| value.to_bits()).collect();
            bits.extend([
                1,
                0xf_ffff_ffff_ffff,
                0x10_0000_0000_0000,
                0x10_0000_0000_0001,
                0x3fef_ffff_ffff_ffff,
                0x3ff0_0000_0000_0001,
                0x7fef_ffff_ffff_ffff,
                0x7ff0_0000_0000_0000,
                0x7ff0_0000_0000_0001,
                0x7ff8_0000_0000_0000,
                0x7fff_ffff_ffff_ffff,
                0x7ff4_5678_9abc_def0,
                0x47ef_ffff_e000_0000,
                0x47ef_ffff_f000_0000,
                0x47ef_ffff_efff_ffff,
                0x36a0_0000_0000_0000,
                0x3690_0000_0000_0000,
                0x3690_0000_0000_0001,
                0x3810_0000_0000_0000,
                0x380f_ffff_ffff_ffff,
                0x3ff0_0000_1000_0000,
                0x3ff0_0000_1000_0001,
                0x41df_ffff_ffc0_0000,
                0x41ef_ffff_ffe0_0000,
                0x43df_ffff_ffff_ffff,
                0x43ef_ffff_ffff_ffff,
                0x3e50_0000_0000_0000,
                0x3e60_0000_0000_0000,
            ]);
            signed(&bits, 1 << 63)
        }
        Type::F16 => signed(&HALVES, 1 << 15),
        Type::Bf16 => signed(&BRAINS, 1 << 15),
        Type::F16x2 => doubled(&signed(&HALVES, 1 << 15)),
        Type::Bf16x2 => doubled(&signed(&BRAINS, 1 << 15)),
        _ => {
            let mut values = vec![0, 1, 2, 3, 7, 10, 100, 0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa];
            for bits in [4, 8, 11, 15, 16, 23, 24, 25, 31, 32, 53, 54, 63] {
                let power = 1u64 << bits;
                values.extend([power - 1, power, power + 1, power.wrapping_neg(), power.wrapping_neg() - 1]);
            }
            values.extend([u64::MAX, u64::MAX - 1, 0x8000_0000_8000_0000, 0x7fff_ffff_7fff_ffff]);
            values
        }
    }
}

const HALVES: [u64; 24] = [
    0, 1, 2, 0x3ff, 0x400, 0x401, 0x3c00, 0x3c01, 0x3bff, 0x3800, 0x3e00, 0x4100, 0x4248, 0x5bff, 0x5800,
    0x63ff, 0x77ff, 0x7800, 0x7bfe, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7fff,
];

const BRAINS: [u64; 24] = [
    0, 1, 2, 0x7f, 0x80, 0x81, 0x3f80, 0x3f81, 0x3f7f, 0x3f00, 0x3fc0, 0x4020, 0x4049, 0x42ff, 0x4300,
    0x437f, 0x4f00, 0x5f00, 0x7f7e, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fff,
];

fn doubled(values: &[u64]) -> Vec<u64> {
    let last = values.len() - 1;
    values.iter().enumerate().map(|(at, &low)| low | values[(at * 7 + 3) % last] << 16).collect()
}
