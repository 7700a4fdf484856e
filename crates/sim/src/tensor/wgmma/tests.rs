use std::collections::BTreeSet;

use tilewright_hardware::{Element, Major, MatrixDescriptor, mma, smem_tile};
use tilewright_ptx::Operand;

use super::super::testing::{
    Random, bits, element, encode, encode_accumulator, instruction, nanoseconds, put, samples,
};
use super::*;

fn form(n: usize, k: usize, types: &str) -> Wgmma {
    let text = format!("wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types}");
    Wgmma::decode(&instruction(&text)).unwrap_or_else(|| panic!("{text}"))
}

/// The register files of four warps, with nothing but the accumulators.
struct Files {
    files: [Vec<Lanes>; 4],
    list: Vec<u32>,
}

impl Files {
    fn new(wgmma: &Wgmma) -> Files {
        let count = wgmma.registers();
        // Backwards and with a gap, so that the list is looked at.
        let list = (0..u32::try_from(count).unwrap()).rev().map(|index| index + 3).collect();
        Files { files: [(); 4].map(|()| vec![[0xdead; 32]; count + 3]), list }
    }

    fn apply(&mut self, wgmma: &Wgmma, a: &A<'_>, b: u64, shared: &[u8], flags: Flags) -> Result<()> {
        let mut files = self.files.iter_mut();
        let mut d = [(); 4].map(|()| Registers::new(files.next().unwrap(), &self.list).unwrap());
        wgmma.apply(a, b, shared, flags, &mut d)
    }

    /// The accumulators of a warp, in order.
    fn registers(&self, warp: usize) -> Vec<Lanes> {
        self.list.iter().map(|index| self.files[warp][*index as usize]).collect()
    }

    fn fill(&mut self, wgmma: &Wgmma, value: impl Fn(usize, usize) -> i32) {
        let width = bits(wgmma.d);
        for warp in 0..4 {
            let mut registers = vec![[0; 32]; wgmma.registers()];
            for (lane, i) in (0..32).flat_map(|lane| (0..wgmma.n / 2).map(move |i| (lane, i))) {
                let (row, column) = place(warp, lane, i);
                put(&mut registers, width, lane, i, encode_accumulator(wgmma.d, value(row, column)));
            }
            for (index, register) in self.list.iter().zip(registers) {
                self.files[warp][*index as usize] = register;
            }
        }
    }

    fn expect(&self, wgmma: &Wgmma, context: &str, value: impl Fn(usize, usize) -> i32) {
        for warp in 0..4 {
            let registers = self.registers(warp);
            for (lane, i) in (0..32).flat_map(|lane| (0..wgmma.n / 2).map(move |i| (lane, i))) {
                let (row, column) = place(warp, lane, i);
                let found = element(&registers, bits(wgmma.d), lane, i);
                let expected = encode_accumulator(wgmma.d, value(row, column));
                assert_eq!(found, expected, "{context}: ({row},{column})");
            }
        }
    }
}

/// Row and column of element `i` of a lane of the accumulator.
fn place(warp: usize, lane: usize, i: usize) -> (usize, usize) {
    (16 * warp + lane / 4 + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * (lane % 4) + (i & 1))
}

/// A matrix of small integers, row by row.
#[derive(Clone)]
struct Matrix {
    columns: usize,
    values: Vec<i32>,
}

impl Matrix {
    fn random(random: &mut Random, rows: usize, columns: usize, format: Format) -> Matrix {
        Matrix { columns, values: (0..rows * columns).map(|_| random.element(format)).collect() }
    }

    fn at(&self, row: usize, column: usize) -> i32 {
        self.values[row * self.columns + column]
    }

    fn dot(&self, row: usize, other: &Matrix, other_row: usize) -> i32 {
        (0..self.columns).map(|k| self.at(row, k) * other.at(other_row, k)).sum()
    }
}

/// Writes an element of `bits` bits that is number `index` from `base`.
fn write(shared: &mut [u8], base: usize, index: usize, bits: usize, value: u64) {
    if bits >= 8 {
        let bytes = bits / 8;
        shared[base + index * bytes..][..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    } else {
        shared[base + index * bits / 8] |= u8::try_from(value << (index * bits % 8)).unwrap();
    }
}

/// Puts a matrix of `rows` by k without a swizzle, k contiguous: cores of 8 rows of 16 bytes, those of a row group
/// first. Gives the descriptor.
fn cores(shared: &mut [u8], base: usize, rows: usize, matrix: &Matrix, format: Format) -> u64 {
    let per = 128 / format.bits();
    for row in 0..rows {
        for k in 0..matrix.columns {
            let core = row / 8 * 2 + k / per;
            let index = (core * 8 + row % 8) * per + k % per;
            write(shared, base, index, format.bits(), encode(format, matrix.at(row, k)));
        }
    }
    (base >> 4) as u64 | (128 >> 4) << 16 | (256 >> 4) << 32
}

const KINDS: [(&str, usize, Format, Format); 12] = [
    ("f32.f16.f16", 16, Format::F16, Format::F16),
    ("f16.f16.f16", 16, Format::F16, Format::F16),
    ("f32.bf16.bf16", 16, Format::Bf16, Format::Bf16),
    ("f32.tf32.tf32", 8, Format::Tf32, Format::Tf32),
    ("f32.e4m3.e5m2", 32, Format::E4m3, Format::E5m2),
    ("f32.e5m2.e5m2", 32, Format::E5m2, Format::E5m2),
    ("f16.e4m3.e4m3", 32, Format::E4m3, Format::E4m3),
    ("s32.s8.s8", 32, Format::S8, Format::S8),
    ("s32.u8.u8", 32, Format::U8, Format::U8),
    ("s32.s8.u8", 32, Format::S8, Format::U8),
    ("s32.u8.s8.satfinite", 32, Format::U8, Format::S8),
    ("s32.b1.b1.and.popc", 256, Format::B1, Format::B1),
];

#[test]
fn every_type_and_width_multiplies_small_integers_exactly() {
    let mut random = Random(4);
    for (types, k, a, b) in KINDS {
        for n in (8..=256).step_by(8).filter(|n| !a.is_integer() || *n <= 32 || n % 16 == 0) {
            if k == 256 && !matches!(n, 8 | 48 | 256) {
                continue;
            }
            let wgmma = form(n, k, types);
            let left = Matrix::random(&mut random, M, k, a);
            let right = Matrix::random(&mut random, n, k, b);
            let mut shared = vec![0; 16 * 1024];
            let a_bits = cores(&mut shared, 1024, M, &left, a);
            let b_bits = cores(&mut shared, 4096, n, &right, b);
            let mut files = Files::new(&wgmma);
            // Without accumulation what was there does not matter.
            files.apply(&wgmma, &A::Descriptor(a_bits), b_bits, &shared, Flags::default()).unwrap();
            files.expect(&wgmma, types, |row, column| left.dot(row, &right, column));
            assert!(files.files.iter().all(|file| file[..3] == [[0xdead; 32]; 3]), "wrote elsewhere");
            let old = |row: usize, column: usize| i32::try_from(row * 3 + column).unwrap() % 41 - 20;
            files.fill(&wgmma, old);
            let flags = Flags { accumulate: true, ..Flags::default() };
            files.apply(&wgmma, &A::Descriptor(a_bits), b_bits, &shared, flags).unwrap();
            files.expect(&wgmma, types, |row, column| old(row, column) + left.dot(row, &right, column));
        }
    }
}

#[test]
fn a_from_registers_and_signs() {
    let mut random = Random(5);
    for (types, k, a, b) in KINDS {
        let wgmma = form(16, k, types);
        let left = Matrix::random(&mut random, M, k, a);
        let right = Matrix::random(&mut random, 16, k, b);
        let mut shared = vec![0; 4096];
        let bits_b = cores(&mut shared, 1024, 16, &right, b);
        let mut registers = [[[0; 32]; 4]; 4];
        for (warp, registers) in registers.iter_mut().enumerate() {
            for (lane, e) in (0..32).flat_map(|lane| (0..k / 2).map(move |e| (lane, e))) {
                let (l, w) = (lane, 16 * warp + lane / 4);
                let (row, k) = match a.bits() {
                    16 => (w + 8 * ((e >> 1) & 1), 2 * (l % 4) + (e & 1) + 8 * (e >> 2)),
                    32 => (w + 8 * (e & 1), l % 4 + 4 * (e >> 1)),
                    8 => (w + 8 * ((e >> 2) & 1), 4 * (l % 4) + (e & 3) + 16 * (e >> 3)),
                    _ => (w + 8 * ((e >> 5) & 1), 32 * (l % 4) + (e & 31) + 128 * (e >> 6)),
                };
                put(registers, a.bits(), lane, e, encode(a, left.at(row, k)));
            }
        }
        let operand = A::Registers(std::array::from_fn(|w| std::array::from_fn(|r| &registers[w][r])));
        for (negate_a, negate_b, sign) in
            [(false, false, 1), (true, false, -1), (false, true, -1), (true, true, 1)]
        {
            let flags = Flags { accumulate: true, negate_a, negate_b, ..Flags::default() };
            let mut files = Files::new(&wgmma);
            files.fill(&wgmma, |row, _| i32::try_from(row).unwrap());
            files.apply(&wgmma, &operand, bits_b, &shared, flags).unwrap();
            let expected = |row, column| i32::try_from(row).unwrap() + sign * left.dot(row, &right, column);
            files.expect(&wgmma, types, expected);
        }
        let transposed = Flags { transpose_a: true, ..Flags::default() };
        let refused = Files::new(&wgmma).apply(&wgmma, &operand, bits_b, &shared, transposed);
        assert!(refused.unwrap_err().to_string().contains("transposed A"), "{types}");
    }
}

/// Tiles and descriptors from the crate that knows the hardware: all majors, swizzles and types, several steps of k,
/// several groups of rows.
#[test]
fn descriptors_of_the_hardware_read_its_tiles() {
    let mut random = Random(6);
    let mut seen = 0;
    let kinds = [
        ("f32.bf16.bf16", Element::BF16, Format::Bf16),
        ("f32.f16.f16", Element::F16, Format::F16),
        ("f32.tf32.tf32", Element::TF32, Format::Tf32),
        ("f32.e4m3.e4m3", Element::E4M3, Format::E4m3),
        ("s32.s8.s8", Element::I8, Format::S8),
    ];
    for (types, element, format) in kinds {
        let size = element.bytes() as usize;
        let step = STEP / size;
        let depth = 4 * step;
        for (a_major, b_major) in
            [(Major::K, Major::K), (Major::K, Major::Mn), (Major::Mn, Major::K), (Major::Mn, Major::Mn)]
        {
            if format.bits() != 16 && (a_major, b_major) != (Major::K, Major::K) {
                continue;
            }
            for a_mode in SwizzleMode::ALL {
                for (b_mode, n) in
                    SwizzleMode::ALL.into_iter().flat_map(|mode| [(mode, 8), (mode, 64), (mode, 192)])
                {
                    // Wide and narrow ones need not meet every form of A.
                    if n != 64 && a_mode != b_mode {
                        continue;
                    }
                    let tile = |major, rows: usize, mode| {
                        smem_tile(
                            major,
                            u32::try_from(rows).unwrap(),
                            u32::try_from(depth).unwrap(),
                            element,
                            mode,
                        )
                    };
                    // A has two groups of rows, the second of which is read.
                    let a_tile = tile(a_major, 2 * M, a_mode).unwrap();
                    let Ok(b_tile) = tile(b_major, n, b_mode) else {
                        assert!(n == 8 && b_major == Major::Mn);
                        continue;
                    };
                    let descriptor = |tile, rows: usize| {
                        MatrixDescriptor::for_operand(tile, element, u32::try_from(rows).unwrap()).unwrap()
                    };
                    let (a_form, b_form) = (descriptor(&a_tile, M), descriptor(&b_tile, n));
                    let left = Matrix::random(&mut random, 2 * M, depth, format);
                    let right = Matrix::random(&mut random, n, depth, format);
                    let mut shared = vec![0xff; 128 * 1024];
                    let (a_base, b_base) = (2048, 64 * 1024);
                    for (tile, base, rows, matrix) in
                        [(&a_tile, a_base, 2 * M, &left), (&b_tile, b_base, n, &right)]
                    {
                        for (row, k) in (0..rows).flat_map(|row| (0..depth).map(move |k| (row, k))) {
                            let index = tile.at(i64::try_from(row + rows * k).unwrap()).unwrap();
                            let value = encode(format, matrix.at(row, k));
                            write(&mut shared, base, usize::try_from(index).unwrap(), 8 * size, value);
                        }
                    }
                    let wgmma = form(n, step, types);
                    let mut files = Files::new(&wgmma);
                    for j in 0..4 {
                        let flags = Flags {
                            accumulate: j > 0,
                            transpose_a: a_form.major == Major::Mn,
                            transpose_b: b_form.major == Major::Mn,
                            ..Flags::default()
                        };
                        let a_at =
                            u32::try_from(a_base).unwrap() + a_form.row_offsets[1] + a_form.k_offsets[j];
                        let b_at = u32::try_from(b_base).unwrap() + b_form.k_offsets[j];
                        let (a, b) = (a_form.encode(a_at), b_form.encode(b_at));
                        files.apply(&wgmma, &A::Descriptor(a), b, &shared, flags).unwrap();
                        let bytes: BTreeSet<u32> = (0..n)
                            .flat_map(|row| (j * step..(j + 1) * step).map(move |k| (row, k)))
                            .flat_map(|(row, k)| {
                                let index = b_tile.at(i64::try_from(row + n * k).unwrap()).unwrap();
                                let start = b_base + usize::try_from(index).unwrap() * size;
                                (start..start + size).map(|byte| u32::try_from(byte).unwrap())
                            })
                            .collect();
                        let ranges = wgmma.reads_b(b, flags.transpose_b).unwrap();
                        assert!(
                            ranges.windows(2).all(|pair| pair[0].end < pair[1].start),
                            "in order and merged"
                        );
                        assert!(ranges.into_iter().flatten().eq(bytes), "{types} {b_mode} {b_major} {n}");
                    }
                    let context = format!("{types} A {a_mode} {a_major}, B {b_mode} {b_major}, n {n}");
                    files.expect(&wgmma, &context, |row, column| left.dot(M + row, &right, column));
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 200, "{seen}");
}

/// The formulas here against the fragments of the crate that knows the hardware.
#[test]
fn accumulators_are_those_of_the_hardware() {
    let wide = mma::find(Element::BF16, Element::BF16, Element::F32, (64, 256, 16)).unwrap();
    let fragment = wide.fragment(tilewright_hardware::Operand::C).unwrap();
    for thread in 0..128 {
        for i in 0..128 {
            let (row, column) = place(thread / 32, thread % 32, i);
            let index = fragment.index(i64::try_from(thread).unwrap(), i64::try_from(i).unwrap()).unwrap();
            assert_eq!(usize::try_from(index).unwrap(), row + 64 * column);
        }
    }
}

#[test]
fn a_tile_may_start_anywhere_in_the_pattern() {
    // Rows of 128 bytes, swizzled by their address; B starts at row 4 of the pattern, and at the third step of k.
    let mut random = Random(7);
    let wgmma = form(8, 16, "f32.bf16.bf16");
    let (left, right) =
        (Matrix::random(&mut random, M, 16, Format::Bf16), Matrix::random(&mut random, 8, 16, Format::Bf16));
    let mut shared = vec![0; 16 * 1024];
    let a = cores(&mut shared, 1024, M, &left, Format::Bf16);
    for base in [0, 1, 5] {
        let start = 8192 + 4 * 128;
        for row in 0..8 {
            for k in 0..16 {
                let linear = start + row * 128 + 64 + 2 * k;
                let swizzled = linear ^ (((linear >> 7) - base) & 7) << 4;
                write(&mut shared, swizzled, 0, 16, encode(Format::Bf16, right.at(row, k)));
            }
        }
        let b = ((start + 64) >> 4) as u64 | (1024 >> 4) << 32 | (base as u64) << 49 | 1 << 62;
        let mut files = Files::new(&wgmma);
        files.apply(&wgmma, &A::Descriptor(a), b, &shared, Flags::default()).unwrap();
        files.expect(&wgmma, "inside the pattern", |row, column| left.dot(row, &right, column));
    }
}

#[test]
fn integers_saturate_or_wrap() {
    let mut shared = vec![0; 8192];
    let ones = Matrix { columns: 32, values: vec![1; 64 * 32] };
    let a = A::Descriptor(cores(&mut shared, 1024, 64, &ones, Format::S8));
    let b = cores(&mut shared, 4096, 8, &ones, Format::S8);
    let flags = Flags { accumulate: true, ..Flags::default() };
    for (types, expected) in [("s32.s8.s8", i32::MAX.wrapping_add(31)), ("s32.s8.s8.satfinite", i32::MAX)] {
        let wgmma = form(8, 32, types);
        let mut files = Files::new(&wgmma);
        files.fill(&wgmma, |_, _| i32::MAX - 1);
        files.apply(&wgmma, &a, b, &shared, flags).unwrap();
        files.expect(&wgmma, types, |_, _| expected);
    }
}

#[test]
fn wrong_descriptors_are_named() {
    let wgmma = form(64, 16, "f32.bf16.bf16");
    let shared = vec![0; 8192];
    let good = 1024 >> 4 | (128 >> 4) << 16 | (256 >> 4) << 32;
    let message = |a: u64, b: u64| {
        let mut files = Files::new(&wgmma);
        let error = files.apply(&wgmma, &A::Descriptor(a), b, &shared, Flags::default()).unwrap_err();
        assert!(files.files.iter().flatten().flatten().all(|value| *value == 0xdead), "nothing is written");
        error.to_string()
    };
    assert!(message(good | 1 << 46, good).contains("of A has ones in the reserved bits 46"));
    assert!(message(good, good | 3 << 52).contains("of B has ones in the reserved bits 52, 53"));
    assert!(message(good, good & !0x3fff | (8192 - 1024) >> 4).contains("of B has bytes up to 0x2400"));
    assert!(message(good & !0x3fff, good | 0x3fff).contains("shared memory"));
    // 16 bytes before the end of a row of 128.
    assert!(message(good, good & !0x3fff | (1024 + 112) >> 4 | 1 << 62).contains("112 bytes into a row"));
    let tf32 = form(64, 8, "f32.tf32.tf32");
    assert!(tf32.reads_b(good, true).unwrap_err().to_string().contains("16-bit"));
    assert!(Registers::new(&mut [[0; 32]; 2], &[0, 2]).is_none());
    let mut files = Files::new(&form(8, 16, "f32.bf16.bf16"));
    let short = files.apply(&wgmma, &A::Descriptor(good), good, &shared, Flags::default()).unwrap_err();
    assert!(short.to_string().contains("4 accumulator registers, expected 32"), "{short}");
}

#[test]
fn every_form_of_the_table_decodes_with_its_registers() {
    let mut seen = 0;
    for sample in samples(Opcode::Wgmma) {
        if !sample.has(Modifier::MmaAsync) {
            assert!(Wgmma::decode(&sample).is_none());
            continue;
        }
        let wgmma = Wgmma::decode(&sample).unwrap_or_else(|| panic!("{:?}", sample.modifiers));
        let Some(Operand::List(list)) = sample.operands.first() else { panic!("{:?}", sample.operands) };
        assert_eq!(list.len(), wgmma.registers(), "{:?}", sample.modifiers);
        seen += 1;
    }
    assert!(seen > 300, "{seen}");
    for text in
        ["m64n40k32.s32.s8.s8", "m64n12k16.f32.f16.f16", "m64n8k16.f16.bf16.bf16", "m64n8k8.f32.f16.f16"]
    {
        assert!(
            Wgmma::decode(&instruction(&format!("wgmma.mma_async.sync.aligned.{text}"))).is_none(),
            "{text}"
        );
    }
}

/// `cargo test --release -p tilewright-sim wgmma_speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn wgmma_speed() {
    for (types, k) in [
        ("f32.bf16.bf16", 16),
        ("f32.f16.f16", 16),
        ("f16.f16.f16", 16),
        ("f32.e4m3.e4m3", 32),
        ("f32.tf32.tf32", 8),
        ("s32.s8.s8", 32),
    ] {
        let wgmma = form(256, k, types);
        let shared = vec![0; 64 * 1024];
        let b = 8192 >> 4 | (1024 >> 4) << 32 | 1 << 62;
        for transposed in [false, true].into_iter().filter(|transposed| !transposed || k == 16) {
            let flags = Flags { accumulate: true, transpose_b: transposed, ..Flags::default() };
            let b = b | if transposed { (8192 >> 4) << 16 } else { 0 };
            let mut files = Files::new(&wgmma);
            files.fill(&wgmma, |_, _| 0);
            let a = A::Descriptor(1024 >> 4 | (1024 >> 4) << 32 | 1 << 62);
            let time = nanoseconds(|| files.apply(&wgmma, &a, b, &shared, flags).unwrap());
            println!("m64n256k{k}.{types} transposed {transposed}: {:.1} us", time / 1e3);
        }
    }
}
