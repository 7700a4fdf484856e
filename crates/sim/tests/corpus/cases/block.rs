//! Classic block algorithms, and the same with a barrier or an atomic left out.

use tilewright_sim::FindingKind::{OutOfBounds, Race, UninitialisedRead};

use crate::case::Case;
use crate::numbers::{Random, product, wide};

const FILES: [&str; 3] = ["block_sm80", "block_sm90_lineinfo", "block_sm70"];

fn running(row: &[i32]) -> Vec<i32> {
    let mut sum = 0;
    row.iter()
        .map(|v| {
            sum += v;
            sum
        })
        .collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(7);
    let mut cases = Vec::new();
    let case = |entry| Case::new(&FILES, entry);

    let reals = random.f32s(512, -1.0, 1.0);
    let sums: Vec<f64> = wide(&reals).chunks(256).map(|row| row.iter().sum()).collect();
    cases.push(case("sum").grid(2, 1).block(256, 1).input(&reals).near::<f32>(&sums, 1e-5, 1e-5));
    cases.push(case("sum_missing_barrier").grid(2, 1).block(256, 1).input(&reals).poison(8).finds(&[Race]));
    let strided: Vec<f64> = (0..2)
        .map(|b| {
            reals[..500].iter().enumerate().filter(|(i, _)| i / 96 % 2 == b).map(|(_, &v)| f64::from(v)).sum()
        })
        .collect();
    cases.push(
        case("two_level_sum")
            .grid(2, 1)
            .block(96, 1)
            .input(&reals[..500])
            .near::<f32>(&strided, 1e-5, 1e-5)
            .u32(500),
    );

    let numbers = random.i32s(256, -100, 100);
    let scanned: Vec<i32> = numbers.chunks(128).flat_map(running).collect();
    for entry in ["scan", "scan_two_buffers"] {
        cases.push(case(entry).grid(2, 1).block(128, 1).input(&numbers).exact(&scanned));
    }
    cases.push(
        case("scan_missing_barrier").grid(2, 1).block(128, 1).input(&numbers).poison(1024).finds(&[Race]),
    );
    let exclusive: Vec<i32> = running(&numbers).iter().zip(&numbers).map(|(sum, v)| sum - v).collect();
    cases.push(case("blelloch").block(128, 1).input(&numbers).exact(&exclusive));

    let image = random.f32s(70 * 50, 0.0, 1.0);
    let turned: Vec<f32> = (0..70 * 50).map(|i| image[i % 50 * 70 + i / 50]).collect();
    cases.push(case("transpose").grid(3, 2).block(32, 8).input(&image).exact(&turned).u32(70).u32(50));
    let broken =
        case("transpose_missing_barrier").grid(3, 2).block(32, 8).input(&image).poison(14000).u32(70).u32(50);
    cases.push(broken.finds(&[Race]));

    let keys = random.u32s(1000);
    let mut bins = vec![0u32; 64];
    keys.iter().for_each(|key| bins[(key & 63) as usize] += 1);
    let zeros = [0u32; 64];
    cases.push(case("histogram").grid(2, 1).block(128, 1).input(&keys).update(&zeros, &bins).u32(1000));
    for entry in ["histogram_plain", "histogram_zeroed_late"] {
        let broken = case(entry).grid(2, 1).block(128, 1).input(&keys).scratch(&zeros).u32(1000);
        cases.push(broken.finds(&[Race, UninitialisedRead]));
    }

    let unsorted = random.i32s(512, -9999, 9999);
    let sorted: Vec<i32> = unsorted
        .chunks(256)
        .flat_map(|row| {
            let mut row = row.to_vec();
            row.sort_unstable();
            row
        })
        .collect();
    cases.push(case("bitonic_sort").grid(2, 1).block(256, 1).input(&unsorted).exact(&sorted));

    let line = random.f32s(384, -1.0, 1.0);
    let at = |i: usize, step: usize| {
        (i + step).checked_sub(2).and_then(|i| line.get(i)).map_or(0.0, |&v| f64::from(v))
    };
    let smoothed: Vec<f64> = (0..384)
        .map(|i| [0.1, 0.2, 0.4, 0.2, 0.1].iter().enumerate().map(|(step, w)| w * at(i, step)).sum())
        .collect();
    cases.push(
        case("stencil").grid(3, 1).block(128, 1).input(&line).near::<f32>(&smoothed, 1e-6, 1e-6).u32(384),
    );
    let broken = case("stencil_missing_barrier").grid(3, 1).block(128, 1).input(&line).poison(1536).u32(384);
    cases.push(broken.finds(&[Race, UninitialisedRead]));

    let (a, b) = (random.f32s(48 * 48, -1.0, 1.0), random.f32s(48 * 48, -1.0, 1.0));
    let c = product(&wide(&a), |k, n| f64::from(b[k * 48 + n]), [48; 3]);
    cases.push(
        case("matmul").grid(3, 3).block(16, 16).input(&a).input(&b).near::<f32>(&c, 1e-5, 1e-5).u32(48),
    );
    for entry in ["matmul_missing_first_barrier", "matmul_missing_second_barrier"] {
        let broken = case(entry).grid(3, 3).block(16, 16).input(&a).input(&b).poison(48 * 48 * 4).u32(48);
        cases.push(broken.finds(&[Race]));
    }

    let rounds = random.f32s(5 * 128, -1.0, 1.0);
    let totals: Vec<f64> = (0..128)
        .map(|t| {
            (0..5)
                .map(|r| f64::from(rounds[r * 128 + 127 - t]) + f64::from(rounds[r * 128 + (t + 1) % 128]))
                .sum()
        })
        .collect();
    cases.push(case("double_buffer").block(128, 1).input(&rounds).near::<f32>(&totals, 1e-5, 1e-5).u32(5));
    cases.push(
        case("double_buffer_overwritten").block(128, 1).input(&rounds).poison(512).u32(5).finds(&[Race]),
    );

    // With a buffer long enough for the last write, and with one that ends where the grid does.
    cases.push(
        case("neighbour_write").grid(2, 1).block(64, 1).input(&reals[..128]).poison(129 * 4).finds(&[Race]),
    );
    let short = case("neighbour_write")
        .named("and_beyond")
        .grid(2, 1)
        .block(64, 1)
        .input(&reals[..128])
        .poison(128 * 4);
    cases.push(short.finds(&[OutOfBounds]));
    cases.push(case("shift_in_place").grid(2, 1).block(64, 1).scratch(&reals[..129]).finds(&[Race]));
    cases
}
