use proptest::prelude::*;
use tilewright_ptx::Operand;

use super::super::testing::{
    Random, bits, element, encode, encode_accumulator, instruction, nanoseconds, put, samples,
};
use super::*;

fn decode(text: &str) -> Mma {
    Mma::decode(&instruction(text)).unwrap_or_else(|| panic!("{text}"))
}

/// All forms that Hopper has, by text: the table of the checker must not be the only list.
fn texts() -> Vec<String> {
    let mut texts = Vec::new();
    let mut add = |shapes: &[&str], types: &[String]| {
        for shape in shapes {
            texts.extend(types.iter().map(|types| format!("mma.sync.aligned.{shape}.row.col.{types}")));
        }
    };
    let one = |text: &str| vec![text.to_string()];
    add(
        &["m16n8k8", "m16n8k16"],
        &["f16.f16.f16.f16", "f32.f16.f16.f32", "f32.bf16.bf16.f32"].map(String::from),
    );
    add(&["m16n8k4", "m16n8k8"], &one("f32.tf32.tf32.f32"));
    add(&["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"], &one("f64.f64.f64.f64"));
    let pairs = |d: &str, types: [&str; 2]| {
        let all = types.into_iter().flat_map(|a| types.into_iter().map(move |b| (a, b)));
        all.map(|(a, b)| format!("{d}.{a}.{b}.{}", d.trim_start_matches("satfinite."))).collect::<Vec<_>>()
    };
    for d in ["s32", "satfinite.s32"] {
        add(&["m8n8k16", "m16n8k16", "m16n8k32"], &pairs(d, ["s8", "u8"]));
        add(&["m8n8k32", "m16n8k32", "m16n8k64"], &pairs(d, ["s4", "u4"]));
    }
    for operation in ["xor", "and"] {
        let types = one(&format!("s32.b1.b1.s32.{operation}.popc"));
        add(&["m8n8k128", "m16n8k128", "m16n8k256"], &types);
    }
    for d in ["f32", "f16"] {
        add(&["m16n8k16", "m16n8k32"], &pairs(d, ["e4m3", "e5m2"]));
    }
    texts
}

/// Row and column of element `i` of a lane in A, as the instruction set words it for each shape.
fn place_a(m: usize, k: usize, format: Format, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane >> 2, lane % 4);
    let row = |below: bool| if below { group + 8 } else { group };
    match (m, format.bits()) {
        (8, 64) => (group, thread),
        (8, 8) => (group, thread * 4 + i),
        (8, 4) => (group, thread * 8 + i),
        (8, 1) => (group, thread * 32 + i),
        (_, 64) if k == 16 => (row(i & 1 == 1), if i & 1 == 0 { i * 2 + thread } else { i * 2 - 2 + thread }),
        (_, 32 | 64) => (row(i == 1 || i == 3), if i < 2 { thread } else { thread + 4 }),
        (_, 16) if k == 8 => (row(i >= 2), thread * 2 + (i & 1)),
        (_, 16) => {
            let upper = i < 2 || (4..6).contains(&i);
            (row(!upper), thread * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
        }
        (_, 8) if k == 16 => (row(i >= 4), thread * 4 + (i & 3)),
        (_, 8) => {
            let upper = i < 4 || (8..12).contains(&i);
            (row(!upper), thread * 4 + (i & 3) + if i >= 8 { 16 } else { 0 })
        }
        (_, 4) if k == 32 => (row(i >= 8), thread * 8 + (i & 7)),
        (_, 4) => {
            let upper = i < 8 || (16..24).contains(&i);
            (row(!upper), thread * 8 + (i & 7) + if i >= 16 { 32 } else { 0 })
        }
        (_, 1) if k == 128 => (row(i >= 32), thread * 32 + (i & 31)),
        _ => {
            let upper = i < 32 || (64..96).contains(&i);
            (row(!upper), thread * 32 + (i & 31) + if i >= 64 { 128 } else { 0 })
        }
    }
}

/// k and column of element `i` of a lane in B.
fn place_b(format: Format, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane >> 2, lane % 4);
    let k = match format.bits() {
        32 | 64 => thread + 4 * i,
        16 => thread * 2 + (i & 1) + 8 * (i / 2),
        8 => thread * 4 + (i & 3) + 16 * (i / 4),
        4 => thread * 8 + (i & 7) + 32 * (i / 8),
        _ => thread * 32 + (i & 31) + 128 * (i / 32),
    };
    (k, group)
}

/// Row and column of element `i` of a lane in C and D.
fn place_c(lane: usize, i: usize) -> (usize, usize) {
    ((lane >> 2) + if i >= 2 { 8 } else { 0 }, lane % 4 * 2 + (i & 1))
}

/// Packs a matrix given as a function, with `elements` in each lane.
fn pack(
    count: usize,
    bits: usize,
    elements: usize,
    place: impl Fn(usize, usize) -> (usize, usize),
    value: impl Fn(usize, usize) -> u64,
) -> Vec<Lanes> {
    let mut registers = vec![[0; 32]; count];
    for lane in 0..32 {
        for i in 0..elements {
            let (row, column) = place(lane, i);
            put(&mut registers, bits, lane, i, value(row, column));
        }
    }
    registers
}

#[test]
fn every_form_multiplies_small_integers_exactly() {
    let mut random = Random(1);
    for text in texts() {
        let mma = decode(&text);
        let &Product { m, n, k, a, b, c, d, xor, .. } = &mma.product;
        let left: Vec<Vec<i32>> = (0..m).map(|_| (0..k).map(|_| random.element(a)).collect()).collect();
        let right: Vec<Vec<i32>> = (0..k).map(|_| (0..n).map(|_| random.element(b)).collect()).collect();
        let old: Vec<Vec<i32>> = (0..m).map(|_| (0..n).map(|_| random.between(-50, 50)).collect()).collect();
        let counts = mma.registers();
        let ra = pack(
            counts[0],
            a.bits(),
            m * k / 32,
            |l, i| place_a(m, k, a, l, i),
            |r, c| encode(a, left[r][c]),
        );
        let rb =
            pack(counts[1], b.bits(), n * k / 32, |l, i| place_b(b, l, i), |r, c| encode(b, right[r][c]));
        let rc = pack(counts[2], bits(c), m * n / 32, place_c, |row, column| {
            encode_accumulator(c, old[row][column])
        });
        let found = mma.apply(&ra, &rb, &rc, None);
        assert_eq!(found.len(), counts[3]);
        for lane in 0..32 {
            for i in 0..m * n / 32 {
                let (row, column) = place_c(lane, i);
                let product = |k: usize| match xor {
                    true => i32::from(left[row][k] != right[k][column]),
                    false => left[row][k] * right[k][column],
                };
                let expected = old[row][column] + (0..k).map(product).sum::<i32>();
                let expected = encode_accumulator(d, expected);
                assert_eq!(element(&found, bits(d), lane, i), expected, "{text} ({row},{column})");
            }
        }
    }
}

#[test]
fn quad_pairs_of_volta() {
    let mut random = Random(2);
    for (a_layout, b_layout) in [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")] {
        for types in ["f16.f16.f16.f16", "f32.f16.f16.f16", "f32.f16.f16.f32"] {
            let mma = decode(&format!("mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{types}"));
            let (c, d) = (mma.product.c, mma.product.d);
            let mut matrix = |rows: usize, columns: usize| -> Vec<Vec<i32>> {
                (0..rows).map(|_| (0..columns).map(|_| random.between(-4, 4)).collect()).collect()
            };
            let products: [_; 4] = std::array::from_fn(|_| (matrix(8, 4), matrix(4, 8), matrix(8, 8)));
            let counts = mma.registers();
            let [mut ra, mut rb, mut rc] = [0, 1, 2].map(|operand| vec![[0; 32]; counts[operand]]);
            // Row and column of an accumulator, as the instruction set words it.
            let accumulator = |ty: Accumulator, lane: usize, i: usize| match ty {
                Accumulator::F16 => (if lane < 16 { lane % 4 } else { lane % 4 + 4 }, i),
                _ => {
                    let x = (lane & 0b1) + (i & 0b10);
                    (if lane < 16 { x } else { x + 4 }, (i & 0b100) + (lane & 0b10) + (i & 0b1))
                }
            };
            for lane in 0..32 {
                let (left, right, old) = &products[lane % 16 / 4];
                let half = if lane < 16 { 0 } else { 4 };
                for i in 0..4 {
                    let (row, k) =
                        if a_layout == "row" { (lane % 4 + half, i) } else { (i % 4 + half, lane % 4) };
                    put(&mut ra, 16, lane, i, encode(Format::F16, left[row][k]));
                    let (k, column) =
                        if b_layout == "row" { (lane % 4, i + half) } else { (i, lane % 4 + half) };
                    put(&mut rb, 16, lane, i, encode(Format::F16, right[k][column]));
                }
                for i in 0..8 {
                    let (row, column) = accumulator(c, lane, i);
                    put(&mut rc, bits(c), lane, i, encode_accumulator(c, old[row][column]));
                }
            }
            let found = mma.apply(&ra, &rb, &rc, None);
            for lane in 0..32 {
                let (left, right, old) = &products[lane % 16 / 4];
                for i in 0..8 {
                    let (row, column) = accumulator(d, lane, i);
                    let sum: i32 = (0..4).map(|k| left[row][k] * right[k][column]).sum();
                    let expected = encode_accumulator(d, old[row][column] + sum);
                    assert_eq!(element(&found, bits(d), lane, i), expected, "{a_layout} {b_layout} {types}");
                }
            }
        }
    }
}

#[test]
fn sparse_products_equal_dense_ones() {
    let mut random = Random(3);
    let forms = [
        ("m16n8k16", "f16.f16.f16.f16"),
        ("m16n8k32", "f16.f16.f16.f16"),
        ("m16n8k16", "f32.bf16.bf16.f32"),
        ("m16n8k32", "f32.f16.f16.f32"),
        ("m16n8k8", "f32.tf32.tf32.f32"),
        ("m16n8k16", "f32.tf32.tf32.f32"),
        ("m16n8k32", "s32.s8.u8.s32"),
        ("m16n8k64", "s32.u8.s8.s32"),
        ("m16n8k64", "f32.e4m3.e5m2.f32"),
    ];
    for (shape, types) in forms {
        let mma = decode(&format!("mma.sp.sync.aligned.{shape}.row.col.{types}"));
        assert!(mma.is_sparse());
        let &Product { m, n, k, a, b, d, .. } = &mma.product;
        let group = if a == Format::Tf32 { 2 } else { 4 };
        for selector in 0..=mma.last_selector() {
            // Which elements of each group are stored: a pair in order, or one of two.
            let mut kept = vec![vec![(0, 0); k / group]; m];
            let mut left = vec![vec![0; k]; m];
            let mut stored = vec![vec![0; k / 2]; m];
            for row in 0..m {
                for index in 0..k / group {
                    let pairs = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)];
                    let pair = if group == 2 {
                        [(0, 1), (2, 3)][random.bits() as usize % 2]
                    } else {
                        pairs[random.bits() as usize % 6]
                    };
                    kept[row][index] = pair;
                    for (position, place) in [pair.0, pair.1].into_iter().enumerate().take(group / 2) {
                        let value = random.element(a);
                        left[row][index * group + if group == 2 { place / 2 } else { place }] = value;
                        stored[row][index * group / 2 + position] = value;
                    }
                }
            }
            let right: Vec<Vec<i32>> = (0..k).map(|_| (0..n).map(|_| random.element(b)).collect()).collect();
            let mut metadata = [0xffff_ffff; 32];
            for row in 0..m {
                for (index, pair) in kept[row].iter().enumerate() {
                    let nibble = (pair.0 | pair.1 << 2) as u64;
                    let choice = selector as usize;
                    let (thread, shift) = match (a.bits(), k / group) {
                        // One thread of four, two of four; rows g and g+8 in its halves.
                        (16 | 32, 4) => (choice, 16 * (row / 8) + 4 * index),
                        (16 | 32, _) => (2 * choice + index / 4, 16 * (row / 8) + 4 * (index % 4)),
                        // Even threads row g, odd ones row g+8; 32 columns each.
                        (_, 8) => (2 * choice + row / 8, 4 * index),
                        _ => (2 * (index / 8) + row / 8, 4 * (index % 8)),
                    };
                    let word = &mut metadata[4 * (row % 8) + thread];
                    *word = *word & !(0xf << shift) | nibble << shift;
                }
            }
            let counts = mma.registers();
            let place = |lane: usize, i: usize| place_a(m, k / 2, a, lane, i);
            let ra = pack(counts[0], a.bits(), m * k / 64, place, |r, c| encode(a, stored[r][c]));
            let rb =
                pack(counts[1], b.bits(), n * k / 32, |l, i| place_b(b, l, i), |r, c| encode(b, right[r][c]));
            let found = mma.apply(&ra, &rb, &vec![[0; 32]; counts[2]], Some((&metadata, selector)));
            for lane in 0..32 {
                for i in 0..m * n / 32 {
                    let (row, column) = place_c(lane, i);
                    let expected: i32 = (0..k).map(|k| left[row][k] * right[k][column]).sum();
                    let expected = encode_accumulator(d, expected);
                    assert_eq!(element(&found, bits(d), lane, i), expected, "{shape} {types} {selector}");
                }
            }
        }
    }
}

#[test]
fn every_form_of_the_table_decodes_with_its_registers() {
    let mut seen = 0;
    for sample in samples(Opcode::Mma) {
        let text = format!("{:?}", sample.modifiers);
        let mma = Mma::decode(&sample).unwrap_or_else(|| panic!("{text}"));
        let listed: Vec<usize> = sample
            .operands
            .iter()
            .filter_map(|operand| if let Operand::List(list) = operand { Some(list.len()) } else { None })
            .collect();
        let [a, b, c, d] = mma.registers();
        assert_eq!(listed, [d, a, b, c], "{text}");
        seen += 1;
    }
    assert!(seen > 80, "{seen}");
}

#[test]
fn what_hopper_does_not_have_is_refused() {
    for text in [
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32",
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16",
        "mma.sync.aligned.row.col.f32.f16.f16.f32",
        "wgmma.mma_async.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ] {
        assert!(Mma::decode(&instruction(text)).is_none(), "{text}");
    }
}

#[test]
fn integers_wrap_or_saturate() {
    let ones = [0x0101_0101; 32];
    let high = [u64::from(i32::MAX.cast_unsigned()); 32];
    let low = [u64::from(i32::MIN.cast_unsigned()); 32];
    let wrap = decode("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32");
    let clamp = decode("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32");
    let minus = [0xffff_ffff; 32];
    let wrapped = u64::from(i32::MAX.wrapping_add(16).cast_unsigned());
    assert_eq!(wrap.apply(&[ones; 2], &[ones], &[high; 4], None), [[wrapped; 32]; 4]);
    assert_eq!(clamp.apply(&[ones; 2], &[ones], &[high; 4], None), [high; 4]);
    assert_eq!(clamp.apply(&[minus; 2], &[ones], &[low; 4], None), [low; 4]);
    assert_eq!(clamp.apply(&[minus; 2], &[ones], &[[16; 32]; 4], None), [[0; 32]; 4]);
}

#[test]
fn doubles_round_as_asked() {
    // 1/3 rounded, times 3, is less than one by less than one unit in its last place.
    let third = [(1f64 / 3.0).to_bits(); 32];
    let three = [3f64.to_bits(); 32];
    let mut only = third;
    // Column 0 of A: lanes whose number is a multiple of four.
    only.iter_mut().enumerate().filter(|(lane, _)| lane % 4 != 0).for_each(|(_, value)| *value = 0);
    let below = 1.0 - f64::EPSILON / 2.0;
    for (mode, expected) in [("", 1.0), ("rn.", 1.0), ("rz.", below), ("rm.", below), ("rp.", 1.0)] {
        let mma = decode(&format!("mma.sync.aligned.m8n8k4.row.col.{mode}f64.f64.f64.f64"));
        let d = mma.apply(&[only], &[three], &[[0; 32]; 2], None);
        assert_eq!(d, [[f64::to_bits(expected); 32]; 2], "{mode}");
    }
    let mma = decode("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64");
    let infinite = [f64::INFINITY.to_bits(); 32];
    assert_eq!(mma.apply(&[infinite], &[[0; 32]], &[[0; 32]; 2], None), [[0xfff8_0000_0000_0000; 32]; 2]);
}

#[test]
fn special_values() {
    let mma = decode("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32");
    let infinite = [0x7c00_7c00; 32];
    let one = [0x3c00_3c00; 32];
    let zero = [0; 32];
    assert_eq!(mma.apply(&[infinite; 2], &[zero], &[zero; 4], None), [[0x7fff_ffff; 32]; 4]);
    assert_eq!(mma.apply(&[infinite; 2], &[one], &[zero; 4], None), [[0x7f80_0000; 32]; 4]);
    // Subnormal f16 numbers count: 8 * 2^-24.
    let tiny = [0x0001_0001; 32];
    let expected = u64::from(2f32.powi(-21).to_bits());
    assert_eq!(mma.apply(&[tiny; 2], &[one], &[zero; 4], None), [[expected; 32]; 4]);
    let half = decode("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16");
    assert_eq!(half.apply(&[infinite; 2], &[zero], &[zero; 2], None), [[0x7fff_7fff; 32]; 2]);
    // 8 * 8192 is beyond the range of f16.
    let large = [0x7000_7000; 32];
    assert_eq!(half.apply(&[large; 2], &[one], &[zero; 2], None), [[0x7c00_7c00; 32]; 2]);
    // Missing registers hold zeros.
    assert_eq!(mma.apply(&[], &[one], &[one], None).len(), 4);
}

proptest! {
    /// Any numbers: close to the exact sum, by the bound that the module promises.
    #[test]
    fn random_sums_are_close(seed in any::<u64>()) {
        let mut random = Random(seed);
        let mma = decode("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
        let mut number = || f64::from(random.between(-20000, 20000)) * f64::from(random.between(1, 9999)) / 1e5;
        let rounded = |value: f64| f64::from(half::bf16::from_f64(value).to_f32());
        let left: Vec<Vec<f64>> = (0..16).map(|_| (0..16).map(|_| rounded(number())).collect()).collect();
        let right: Vec<Vec<f64>> = (0..16).map(|_| (0..8).map(|_| rounded(number())).collect()).collect();
        let bf16 = |value: f64| u64::from(half::bf16::from_f64(value).to_bits());
        let ra = pack(4, 16, 8, |l, i| place_a(16, 16, Format::Bf16, l, i), |r, c| bf16(left[r][c]));
        let rb = pack(2, 16, 4, |l, i| place_b(Format::Bf16, l, i), |r, c| bf16(right[r][c]));
        let found = mma.apply(&ra, &rb, &[[0; 32]; 4], None);
        for (i, register) in found.iter().enumerate() {
            for (lane, value) in register.iter().enumerate() {
                let (row, column) = place_c(lane, i);
                let products = (0..16).map(|k| left[row][k] * right[k][column]);
                let exact: f64 = products.clone().sum();
                let largest: f64 = products.map(f64::abs).sum();
                let value = f64::from(f32::from_bits(word(*value)));
                prop_assert!((value - exact).abs() <= 16.0 * largest * f64::from(f32::EPSILON) / 2.0);
            }
        }
    }
}

/// `cargo test --release -p tilewright-sim mma_speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn mma_speed() {
    for text in [
        "m16n8k16.row.col.f32.bf16.bf16.f32",
        "m16n8k16.row.col.f32.f16.f16.f32",
        "m16n8k32.row.col.s32.s8.s8.s32",
    ] {
        let mma = decode(&format!("mma.sync.aligned.{text}"));
        let ones = [0x3f80_3f80; 32];
        let (a, b, c) = ([ones; 4], [ones; 2], [[0; 32]; 4]);
        let time = nanoseconds(|| {
            std::hint::black_box(mma.apply(&a, &b, &c, None));
        });
        println!("{text}: {time:.0} ns");
    }
}
