//! Integer arithmetic and bit tricks.

use crate::case::Case;
use crate::numbers::Random;

const FILES: [&str; 3] = ["integer_sm70", "integer_sm80", "integer_sm90"];
const COUNT: usize = 200;

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(2);
    let case = |entry| Case::new(&FILES, entry).grid(2, 1).block(128, 1);
    let mut words = |count| {
        let mut words = random.u32s(count);
        words[..6].copy_from_slice(&[0, 1, u32::MAX, 0x8000_0000, 0x7fff_ffff, 0x0001_0000]);
        words
    };
    let (x, y) = (words(COUNT), {
        let mut y = words(COUNT);
        y.rotate_right(3);
        y
    });
    let pairs = || x.iter().copied().zip(y.iter().copied());
    let signed: Vec<i32> = x.iter().map(|&v| v as i32).collect();
    // Neither zero nor -1, whose quotients are undefined or overflow.
    let divisors: Vec<i32> =
        y.iter().map(|&v| (v as i32) >> (v % 29)).map(|v| if v == 0 || v == -1 { 3 } else { v }).collect();

    let bits: Vec<u32> = pairs().flat_map(|(a, b)| bit_tricks(a, b)).collect();
    let quotients: Vec<i32> = signed
        .iter()
        .zip(&divisors)
        .flat_map(|(&a, &b)| {
            let unsigned = (a as u32 / b as u32) as i32;
            [a / b, a % b, unsigned, a / 7, (a as u32 % 1000) as i32, a / 16]
        })
        .collect();

    let longs = random.u64s(2 * COUNT);
    let (p, q) = longs.split_at(COUNT);
    let products: Vec<u64> = p.iter().zip(q).flat_map(|(&a, &b)| long_products(a, b)).collect();
    let long_divisors: Vec<i64> = q.iter().map(|&v| (v as i64 >> (v % 60)) | 2).collect();
    let long_quotients: Vec<i64> = p
        .iter()
        .zip(&long_divisors)
        .flat_map(|(&a, &b)| [a as i64 / b, a as i64 % b, (a / b as u64) as i64, (a % 1_000_000_007) as i64])
        .collect();

    let dots: Vec<i32> = pairs().enumerate().flat_map(|(i, (a, b))| dot_products(a, b, i as i32)).collect();
    let sums: Vec<u64> = (0..COUNT / 2)
        .flat_map(|i| {
            let number = |v: &[u64]| u128::from(v[2 * i]) | u128::from(v[2 * i + 1]) << 64;
            let (a, b) = (number(p), number(q));
            [a.wrapping_add(b), a.wrapping_mul(b)]
        })
        .flat_map(|v| [v as u64, (v >> 64) as u64])
        .collect();
    let second: Vec<i32> = y.iter().map(|&v| v as i32).collect();
    let saturated: Vec<i32> = pairs().flat_map(|(a, b)| saturating(a as i32, b as i32)).collect();

    vec![
        case("bits").input(&x).input(&y).exact(&bits).u32(COUNT as u32),
        case("products").input(p).input(q).exact(&products).u32(COUNT as u32),
        case("divisions").input(&signed).input(&divisors).exact(&quotients).u32(COUNT as u32),
        case("long_divisions").input(p).input(&long_divisors).exact(&long_quotients).u32(COUNT as u32),
        case("dot_products").input(&x).input(&y).exact(&dots).u32(COUNT as u32),
        case("wide_sum").input(p).input(q).exact(&sums).u32(COUNT as u32 / 2),
        case("saturating").input(&signed).input(&second).exact(&saturated).u32(COUNT as u32),
    ]
}

fn bit_tricks(a: u32, b: u32) -> [u32; 10] {
    let pair = u64::from(b) << 32 | u64::from(a);
    let bytes = pair.to_le_bytes();
    let picked = std::array::from_fn(|i| bytes[(b >> (4 * i) & 7) as usize]);
    let added = std::array::from_fn(|i| a.to_le_bytes()[i].wrapping_add(b.to_le_bytes()[i]));
    [
        a.reverse_bits(),
        a.count_ones(),
        a.leading_zeros(),
        if a == 0 { 0 } else { a.trailing_zeros() + 1 },
        ((pair << (b & 31)) >> 32) as u32,
        b,
        u32::from_le_bytes(picked),
        a.rotate_right(b & 31),
        (a ^ b) & (a | !b),
        u32::from_le_bytes(added),
    ]
}

fn long_products(a: u64, b: u64) -> [u64; 8] {
    [
        a.wrapping_mul(b),
        ((u128::from(a) * u128::from(b)) >> 64) as u64,
        ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64,
        u64::from(a as u32) * u64::from(b as u32),
        (i64::from(a as i32) * i64::from(b as i32)) as u64,
        (u64::from(a as u32) * u64::from(b as u32)) >> 32,
        u64::from(a.leading_zeros()) << 32 | u64::from(b.count_ones()),
        a.reverse_bits(),
    ]
}

fn dot_products(a: u32, b: u32, c: i32) -> [i32; 3] {
    let (x, y) = (a.to_le_bytes(), b.to_le_bytes());
    let signed: i32 = (0..4).map(|i| i32::from(x[i] as i8) * i32::from(y[i] as i8)).sum();
    let unsigned: u32 = (0..4).map(|i| u32::from(x[i]) * u32::from(y[i])).sum();
    let halves =
        i32::from(a as i16) * i32::from(y[0] as i8) + i32::from((a >> 16) as i16) * i32::from(y[1] as i8);
    [signed + c, (unsigned as i32) + c, halves + c]
}

fn saturating(a: i32, b: i32) -> [i32; 7] {
    let field = 0x7ff << 7;
    let low = |v: i32| i64::from(v << 8 >> 8);
    let from_sign = if a < 0 { !a } else { a };
    [
        a.saturating_add(b),
        a.saturating_sub(b),
        a << 18 >> 23,
        (b & !field) | (a << 7 & field),
        ((low(a) * low(b)) as i32).wrapping_add(a),
        (if a < b { b.wrapping_sub(a) } else { a.wrapping_sub(b) }).wrapping_add(3),
        31 - from_sign.leading_zeros() as i32,
    ]
}
