//! State spaces and access widths.

use tilewright_sim::FindingKind::UninitialisedRead;

use crate::case::Case;
use crate::numbers::{Element, Random, wide};

const FILES: [&str; 3] = ["memory_sm80", "memory_sm90", "memory_sm70"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(5);
    let case = |entry| Case::new(&FILES, entry);
    let x = random.f32s(100, -1.0, 1.0);
    let values: Vec<f64> = wide(&x).into_iter().enumerate().map(|(i, x)| constant_table(i, x)).collect();

    let words: [&[u8]; 3] = [b"left", b"right", b"centre"];
    let variables: Vec<i32> = (0..64)
        .map(|i| {
            let square = ((i & 7) * (i & 7)) as i32;
            2 * square + i as i32 + 1 + i32::from(words[i % 3][i & 3])
        })
        .collect();

    let rows: Vec<Vec<f32>> = (0..4).map(|_| random.f32s(32, 0.0, 1.0)).collect();
    let reversed: Vec<f32> = rows.iter().flat_map(|row| row.iter().rev().copied()).collect();
    let mut pointer_table = case("pointer_table").grid(4, 1);
    for row in &rows {
        pointer_table = pointer_table.input(row).held();
    }

    let (particles, permuted) = particles(&mut random, 70);
    let indices = random.i32s(100, 0, 1000);
    let settings = settings();
    let looked_up: Vec<f32> = indices.iter().map(|i| 0.5 * (((i % 12) * 37 - 100) >> 2) as f32).collect();

    let numbers = random.i32s(128, -1000, 1000);
    let staged: Vec<i32> =
        (0..128).map(|i| numbers[i / 64 * 64 + 63 - i % 64] + (((i % 64 + 1) % 64) * 3) as i32).collect();
    let pairs = random.f32s(128, 0.0, 1.0);
    let odd: Vec<f32> = pairs.chunks(4).flat_map(|v| [0.0, 1.0, v[3], v[2]]).collect();
    let bytes: Vec<u8> = random.u32s(61).iter().map(|&v| v as u8).collect();
    let glued: Vec<u32> = (0..20)
        .map(|i| u32::from_le_bytes([bytes[3 * i], bytes[3 * i + 1], bytes[3 * i + 2], bytes[3 * i + 3]]))
        .collect();
    let doubled: Vec<f32> = random.f32s(4 * 64, -1.0, 1.0);
    let twice: Vec<f32> = doubled.iter().map(|v| v + v).collect();
    let noisy: Vec<i32> = (2..66).collect();
    let generic: Vec<i32> = (0..64)
        .map(|i| match i % 3 {
            0 => numbers[i ^ 1] * 2 + 1000,
            1 => (i + (i & 3)) as i32 + 2000,
            _ => numbers[i] + 4000,
        })
        .collect();
    let heap: Vec<i32> = (0..32).map(|i: i32| (0..16).step_by(3).map(|k| ((k + i) & 15) * i).sum()).collect();
    let raised: Vec<u32> = (1..129).collect();

    vec![
        case("constant_tables").block(100, 1).input(&x).near::<f32>(&values, 1e-5, 1e-5).u32(100),
        case("device_variables").block(64, 1).exact(&variables),
        pointer_table.addresses(&[0, 1, 2, 3]).exact(&reversed).u32(32),
        case("struct_permutation").block(96, 1).input(&particles).exact_where(&permuted).u32(70),
        case("struct_parameter")
            .block(100, 1)
            .bytes(settings.clone())
            .input(&indices)
            .exact(&looked_up)
            .u32(100),
        case("grid_constant_parameter")
            .block(100, 1)
            .bytes(settings)
            .input(&indices)
            .exact(&looked_up)
            .u32(100),
        case("dynamic_shared").grid(2, 1).block(64, 1).shared(64 * 6).input(&numbers).exact(&staged),
        case("odd_pairs").input(&pairs).exact(&odd),
        case("bytewise").input(&bytes).exact(&glued).u32(20),
        case("cache_hints").grid(2, 1).input(&doubled).exact(&twice).exact(&noisy),
        case("generic_pointers").block(64, 1).input(&numbers[..64]).exact(&generic),
        case("device_heap").exact(&heap),
        case("copy_words").grid(2, 1).block(64, 1).input(&(0..128).collect::<Vec<u32>>()).exact(&raised),
        case("copy_words")
            .named("never_written")
            .grid(2, 1)
            .block(64, 1)
            .poison(512)
            .poison(512)
            .finds(&[UninitialisedRead]),
    ]
}

fn constant_table(i: usize, x: f64) -> f64 {
    let coefficients = [1.0, -0.5, 0.25, 2.0, -1.5, 0.125, 3.0, -0.75];
    let polynomial = (0..8).fold(0.0, |sum, k| sum * x + coefficients[(k + i) & 7]);
    polynomial + 2.5 * [3.0, 1.0, 4.0, 1.0][i & 3] + f64::from(b"tile\0"[i % 5])
}

/// The table of twelve numbers, a factor, a shift, and the padding behind it.
fn settings() -> Vec<u8> {
    let mut bytes = i32::bytes(&(0..12).map(|k| k * 37 - 100).collect::<Vec<i32>>());
    0.5f32.put(&mut bytes);
    bytes.extend([2, 0, 0, 0]);
    bytes
}

/// Structs of 40 bytes with holes after the first two and the last 33, and the same as the kernel turns them round.
fn particles(random: &mut Random, count: usize) -> (Vec<u8>, Vec<Option<u8>>) {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let mut bytes: Vec<u8> = random.u32s(10).iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes[8..16].copy_from_slice(&random.f64s(1, 1.0, 2.0)[0].to_le_bytes());
        all.push(bytes);
    }
    let turned = (0..count).flat_map(|i| {
        let mut bytes = all[count - 1 - i].clone();
        let mass = f64::get(&bytes[8..16]) * 2.0;
        bytes[8..16].copy_from_slice(&mass.to_le_bytes());
        bytes[28 + i % 5] ^= 0x55;
        let hole = |at: usize| (2..8).contains(&at) || at >= 33;
        bytes.into_iter().enumerate().map(|(at, byte)| (!hole(at)).then_some(byte)).collect::<Vec<_>>()
    });
    let turned = turned.collect();
    (all.concat(), turned)
}
