//! Matrix products of a warp. The elements are small multiples of a quarter, so that results are exact.

use tilewright_sim::FindingKind::{Race, UninitialisedRead};

use crate::case::Case;
use crate::numbers::{Random, bfloats, halves, narrow, product};

const FILES: [&str; 2] = ["tensor_sm80", "tensor_sm90_lineinfo"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(12);
    let case = |entry| Case::new(&FILES, entry);
    let mut cases = Vec::new();

    let (a, b) = (random.quarters(512), random.quarters(512));
    let half: Vec<f64> = product(&a, |k, n| b[n * 32 + k] * 0.5, [16, 16, 32]);
    cases.push(case("wmma_half").input(&halves(&a)).input(&halves(&b)).near::<f32>(&half, 0.0, 0.0).u32(32));
    let c = product(&a[..128], |k, n| b[k * 16 + n], [16, 16, 8]);
    let turned: Vec<f64> = (0..256).map(|i| c[i % 16 * 16 + i / 16] + 1.0).collect();
    cases.push(
        case("wmma_tf32").input(&narrow(&a[..128])).input(&narrow(&b[..128])).near::<f32>(&turned, 0.0, 0.0),
    );

    let small = |values: Vec<i32>| -> Vec<i8> { values.into_iter().map(|v| v as i8).collect() };
    let (p, q) = (small(random.i32s(512, -128, 128)), small(random.i32s(256, -128, 128)));
    let dot = |row: &[i8], column: &[i8]| {
        row.iter().zip(column).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum::<i32>()
    };
    let bytes: Vec<i32> =
        (0..256).map(|i| dot(&p[i / 16 * 16..][..16], &q[i % 16 * 16..][..16]) + 5).collect();
    cases.push(case("wmma_bytes").input(&p[..256]).input(&q).exact(&bytes));
    let started = |i: usize| (i / 64 * 2 + i % 2 + 1) as i32;
    let bytes: Vec<i32> =
        (0..128).map(|i| dot(&p[i / 8 * 32..][..32], &q[i % 8 * 32..][..32]) + started(i)).collect();
    cases.push(case("mma_bytes").input(&p).input(&q).exact(&bytes));

    let (x, y) = (random.f64s(32, -1.0, 1.0), random.f64s(32, -1.0, 1.0));
    cases.push(case("wmma_double").input(&x).input(&y).near::<f64>(
        &product(&x, |k, n| y[n * 4 + k], [8, 8, 4]),
        1e-14,
        1e-15,
    ));

    let c = product(&a[..256], |k, n| b[k * 16 + n], [16; 3]);
    let shared = |entry| case(entry).block(64, 1).input(&bfloats(&a[..256])).input(&bfloats(&b[..256]));
    cases.push(shared("wmma_shared").near::<f32>(&c, 0.0, 0.0));
    cases.push(shared("wmma_shared_missing_barrier").poison(1024).finds(&[Race, UninitialisedRead]));

    let (a, b) = (random.quarters(4096), random.quarters(4096));
    let c = product(&a, |k, n| b[k * 64 + n], [64; 3]);
    let tiled = |entry| case(entry).grid(2, 2).block(128, 1).input(&halves(&a)).input(&halves(&b));
    cases.push(tiled("mma_product").near::<f32>(&c, 0.0, 0.0).u32(64).u32(64).u32(64));
    cases.push(tiled("mma_product_missing_barrier").poison(16384).u32(64).u32(64).u32(64).finds(&[Race]));

    // Two elements of 16 bits a word.
    let matrix: Vec<u16> = random.u32s(64).iter().map(|&v| v as u16).collect();
    let packed = |at: &dyn Fn(usize) -> u16| -> Vec<u32> {
        (0..32).map(|l| u32::from(at(2 * l)) | u32::from(at(2 * l + 1)) << 16).collect()
    };
    let plain = packed(&|i| matrix[i]);
    let transposed = packed(&|i| matrix[i % 8 * 8 + i / 8]);
    cases.push(Case::new(&FILES[..1], "matrix_moves").input(&plain).exact(&transposed));
    let both = [transposed, plain.clone()].concat();
    cases.push(Case::new(&FILES[1..], "matrix_moves").input(&plain).exact(&both));
    cases
}
