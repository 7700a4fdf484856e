use super::super::testing::{Random, bits, element, encode, encode_accumulator, instruction, put};
use super::*;

fn decode(text: &str) -> Wmma {
    Wmma::decode(&instruction(text)).unwrap_or_else(|| panic!("{text}"))
}

fn transfer(text: &str) -> Transfer {
    match decode(text) {
        Wmma::Load(transfer) | Wmma::Store(transfer) => transfer,
        Wmma::Multiply(_) => panic!("{text} moves nothing"),
    }
}

/// Carries out a load, byte by byte.
fn load(transfer: &Transfer, memory: &[u8], stride: u32) -> Vec<Lanes> {
    let mut registers = vec![[0; 32]; transfer.registers()];
    let (per, bytes) = (transfer.units_per_register(), transfer.unit_bytes());
    for lane in 0..32 {
        for index in 0..transfer.registers() * per {
            let at = usize::try_from(transfer.offset(lane, index, stride)).unwrap();
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(&memory[at..at + bytes]);
            put(&mut registers, 8 * bytes, lane, index, u64::from_le_bytes(value));
        }
    }
    registers
}

/// A matrix in memory, `columns` as in the instruction, with padding between its lines.
fn store(
    values: &[Vec<i32>],
    columns: bool,
    width: usize,
    stride: usize,
    encode: impl Fn(i32) -> u64,
) -> Vec<u8> {
    let mut memory = vec![0u8; 64 * 1024];
    for (row, line) in values.iter().enumerate() {
        for (column, value) in line.iter().enumerate() {
            let index = if columns { column * stride + row } else { row * stride + column };
            let bits = encode(*value) << (index * width % 8);
            for (byte, part) in bits.to_le_bytes().iter().enumerate().take(width.div_ceil(8)) {
                memory[index * width / 8 + byte] |= part;
            }
        }
    }
    memory
}

#[test]
fn loads_products_and_stores_of_every_type() {
    let mut random = Random(8);
    let kinds: [(&str, &[&str], &[&str]); 9] = [
        ("f16", &["m16n16k16", "m8n32k16", "m32n8k16"], &["f16.f16", "f32.f16", "f16.f32", "f32.f32"]),
        ("bf16", &["m16n16k16", "m8n32k16", "m32n8k16"], &["f32.bf16.bf16.f32"]),
        ("s8", &["m16n16k16", "m8n32k16", "m32n8k16"], &["s32.s8.s8.s32", "s32.s8.s8.s32.satfinite"]),
        ("u8", &["m16n16k16", "m8n32k16", "m32n8k16"], &["s32.u8.u8.s32"]),
        ("tf32", &["m16n16k8"], &["f32.tf32.tf32.f32"]),
        ("f64", &["m8n8k4"], &["f64.f64.f64.f64", "rz.f64.f64.f64.f64"]),
        ("s4", &["m8n8k32"], &["s32.s4.s4.s32"]),
        ("u4", &["m8n8k32"], &["s32.u4.u4.s32"]),
        ("b1", &["m8n8k128"], &["s32.b1.b1.s32.xor.popc", "s32.b1.b1.s32.and.popc"]),
    ];
    for (ty, shapes, products) in kinds {
        for shape in shapes {
            for types in products {
                for (a_layout, b_layout) in [("row", "col"), ("col", "row"), ("row", "row"), ("col", "col")] {
                    let text = format!("wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}.{types}");
                    if matches!(ty, "s4" | "u4" | "b1") && (a_layout, b_layout) != ("row", "col") {
                        assert!(Wmma::decode(&instruction(&text)).is_none());
                        continue;
                    }
                    let Wmma::Multiply(multiply) = decode(&text) else { panic!("{text}") };
                    let &Product { m, n, k, a, b, c, d, xor, .. } = &multiply.product;
                    let mut matrix = |rows: usize, columns: usize, format: Option<Format>| -> Vec<Vec<i32>> {
                        let mut value = || match format {
                            Some(format) => random.element(format),
                            None => random.between(-9, 9),
                        };
                        (0..rows).map(|_| (0..columns).map(|_| value()).collect()).collect()
                    };
                    let (left, right, old) =
                        (matrix(m, k, Some(a)), matrix(k, n, Some(b)), matrix(m, n, None));
                    let operand = |which: &str, layout: &str, ty: &str| {
                        transfer(&format!("wmma.load.{which}.sync.aligned.{layout}.{shape}.global.{ty}"))
                    };
                    let accumulator = |ty| match ty {
                        Accumulator::F16 => "f16",
                        Accumulator::F32 => "f32",
                        Accumulator::F64 => "f64",
                        Accumulator::S32 => "s32",
                    };
                    let loads = [
                        operand("a", a_layout, ty),
                        operand("b", b_layout, ty),
                        operand("c", "row", accumulator(c)),
                    ];
                    let registers: Vec<usize> = loads.iter().map(Transfer::registers).collect();
                    assert_eq!(registers, multiply.registers()[..3], "{text}");
                    let stride = |load: &Transfer| load.default_stride() + if ty == "b1" { 128 } else { 8 };
                    let [a_stride, b_stride, c_stride] = loads.each_ref().map(stride);
                    let memory = |values, layout: &str, width, stride: u32, code: &dyn Fn(i32) -> u64| {
                        store(values, layout == "col", width, stride as usize, code)
                    };
                    let ra = load(
                        &loads[0],
                        &memory(&left, a_layout, a.bits(), a_stride, &|v| encode(a, v)),
                        a_stride,
                    );
                    let rb = load(
                        &loads[1],
                        &memory(&right, b_layout, b.bits(), b_stride, &|v| encode(b, v)),
                        b_stride,
                    );
                    let rc = load(
                        &loads[2],
                        &memory(&old, "row", bits(c), c_stride, &|v| encode_accumulator(c, v)),
                        c_stride,
                    );
                    let found = multiply.apply(&ra, &rb, &rc);
                    let stored =
                        transfer(&format!("wmma.store.d.sync.aligned.col.{shape}.shared.{}", accumulator(d)));
                    let stride = stored.default_stride();
                    let product = |row: usize, column: usize, k: usize| match xor {
                        true => i32::from(left[row][k] != right[k][column]),
                        false => left[row][k] * right[k][column],
                    };
                    let expected: Vec<Vec<i32>> = (0..m)
                        .map(|row| {
                            let sum = |column| (0..k).map(|k| product(row, column, k)).sum::<i32>();
                            (0..n).map(|column| old[row][column] + sum(column)).collect()
                        })
                        .collect();
                    let memory = memory(&expected, "col", bits(d), stride, &|v| encode_accumulator(d, v));
                    for lane in 0..32 {
                        for index in 0..stored.registers() * stored.units_per_register() {
                            let at = usize::try_from(stored.offset(lane, index, stride)).unwrap();
                            let mut value = [0; 8];
                            value[..bits(d) / 8].copy_from_slice(&memory[at..at + bits(d) / 8]);
                            let value = u64::from_le_bytes(value);
                            assert_eq!(element(&found, bits(d), lane, index), value, "{text} {lane} {index}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn fragments_have_the_registers_of_the_instruction_set() {
    for (text, registers) in [
        ("wmma.load.a.sync.aligned.row.m16n16k16.u8", 2),
        ("wmma.load.a.sync.aligned.row.m8n32k16.s8", 1),
        ("wmma.load.b.sync.aligned.row.m8n32k16.s8", 4),
        ("wmma.load.a.sync.aligned.row.m32n8k16.f16", 8),
        ("wmma.load.b.sync.aligned.row.m32n8k16.f16", 8),
        ("wmma.load.c.sync.aligned.row.m32n8k16.f16", 4),
        ("wmma.load.c.sync.aligned.row.m8n32k16.f32", 8),
        ("wmma.load.a.sync.aligned.row.m32n8k16.bf16", 8),
        ("wmma.load.b.sync.aligned.row.m32n8k16.bf16", 2),
        ("wmma.load.a.sync.aligned.row.m16n16k8.tf32", 4),
        ("wmma.load.b.sync.aligned.col.m8n8k32.s4", 1),
        ("wmma.load.c.sync.aligned.col.m8n8k128.s32", 2),
        ("wmma.load.a.sync.aligned.col.m8n8k4.f64", 1),
        ("wmma.store.d.sync.aligned.row.m8n8k4.f64", 2),
    ] {
        assert_eq!(transfer(text).registers(), registers, "{text}");
    }
    // The order of words is free, as in the examples of the instruction set.
    assert_eq!(transfer("wmma.load.a.sync.aligned.m16n16k16.row.f16").alignment(), 32);
    for text in [
        "wmma.load.a.sync.aligned.row.m16n16k8.f16",
        "wmma.load.a.sync.aligned.col.m8n8k32.s4",
        "wmma.load.d.sync.aligned.row.m16n16k16.f32",
        "wmma.store.c.sync.aligned.row.m16n16k16.f32",
        "wmma.load.c.sync.aligned.row.m16n16k16.s8",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f16.bf16.bf16.f16",
        "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
        "wmma.mma.sync.aligned.row.m16n16k16.f32.f32",
    ] {
        assert!(Wmma::decode(&instruction(text)).is_none(), "{text}");
    }
}
