//! Bulk copies, tensor maps, clusters.

use tilewright_hardware::SwizzleMode;
use tilewright_sim::FindingKind::{
    Deadlock, InvalidInstruction, Misaligned, MissingProxyFence, NeverEnds, OverwrittenWhileRead,
    PeerNotRunning, Race, UninitialisedRead, WrongExpectTx,
};
use tilewright_sim::tensor::tensor_map::DataType;

use crate::case::Case;
use crate::numbers::{Random, wide};

const FILES: [&str; 2] = ["hopper_sm90", "hopper_sm90_lineinfo"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(11);
    let case = |entry| Case::new(&FILES, entry);
    let mut cases = Vec::new();

    let x = random.f32s(768, -1.0, 1.0);
    let reversed: Vec<f32> = x[..512].chunks(256).flat_map(|row| row.iter().rev().copied()).collect();
    let load = |entry| case(entry).grid(2, 1).block(256, 1).input(&x[..512]);
    cases.push(load("bulk_in").exact(&reversed));
    cases.push(load("bulk_in_too_few").poison(2048).finds(&[WrongExpectTx, Race]));
    cases.push(load("bulk_in_too_many").poison(2048).finds(&[WrongExpectTx, Deadlock, NeverEnds]));
    cases.push(load("bulk_in_no_wait").poison(2048).finds(&[Race, UninitialisedRead, OverwrittenWhileRead]));

    let doubled: Vec<f32> = x[..512].iter().map(|v| v * 2.0).collect();
    let store = |entry| case(entry).block(256, 1).input(&x[..512]);
    cases.push(store("bulk_out").exact(&doubled));
    cases.push(store("bulk_out_no_proxy_fence").poison(2048).finds(&[MissingProxyFence]));
    cases.push(store("bulk_out_overwritten").poison(2048).finds(&[OverwrittenWhileRead, Race]));
    let missing = store("bulk_out_missing_barrier").poison(2048);
    cases.push(missing.finds(&[Race, OverwrittenWhileRead, MissingProxyFence, UninitialisedRead]));

    let before = random.f32s(256, -1.0, 1.0);
    let sums: Vec<f64> = (0..256)
        .map(|t| f64::from(before[t]) + (0..3).map(|b| f64::from(x[b * 256 + t])).sum::<f64>())
        .collect();
    cases
        .push(case("bulk_reduce").grid(3, 1).block(256, 1).input(&x).update_near(&before, &sums, 1e-6, 1e-6));

    let numbers = random.i32s(384, -1000, 1000);
    let crossed: Vec<i32> = (0..384).map(|i| numbers[i ^ 3]).collect();
    cases.push(case("library_barrier").block(128, 1).input(&numbers).exact(&crossed));

    let (columns, rows) = (64usize, 96usize);
    let image = random.f32s(columns * rows, 0.0, 1.0);
    let turned: Vec<f32> = (0..columns * rows).map(|i| image[i % rows * columns + i / rows]).collect();
    let maps = |case: Case| {
        let size = |x: usize, y: usize| [x as u64, y as u64];
        case.matrix_map(
            0,
            DataType::F32,
            size(columns, rows),
            columns as u64 * 4,
            [32, 32],
            SwizzleMode::None,
        )
        .matrix_map(
            1,
            DataType::F32,
            size(rows, columns),
            rows as u64 * 4,
            [32, 32],
            SwizzleMode::None,
        )
    };
    let transpose = |entry| case(entry).grid(2, 3).block(128, 1).input(&image).held();
    cases.push(maps(transpose("tensor_transpose").exact(&turned).held()));
    let wrong = maps(transpose("tensor_transpose_no_proxy_fence").poison(columns * rows * 4).held());
    cases.push(wrong.finds(&[MissingProxyFence]));

    // 100 of 104 columns and 20 rows belong to the tensor; outside of them the load gives zeros. The first byte of a row of
    // the box must be a multiple of 16 away from the tensor's, or the hardware stops with an illegal instruction.
    let words: Vec<u16> = (0..20 * 104).collect();
    let swizzle = |name| {
        let case = case("tensor_swizzle").named(name).block(64, 1).input(&words).held();
        case.matrix_map(0, DataType::F16, [100, 20], 208, [64, 16], SwizzleMode::B128)
    };
    for (name, x, y) in [("inside", 8, 2), ("over_the_corner", 64, 8), ("before_the_first", -8, -3)] {
        let at = |row: i32, column: i32| {
            let inside = (0..20).contains(&row) && (0..100).contains(&column);
            if inside { words[(row * 104 + column) as usize] } else { 0 }
        };
        let tile: Vec<u16> = (0..1024).map(|i| at(y + i / 64, x + i % 64)).collect();
        cases.push(swizzle(name).exact(&tile).u32(x as u32).u32(y as u32));
    }
    cases.push(swizzle("at_odd_column").poison(2048).u32(5).u32(2).finds(&[InvalidInstruction, Misaligned]));

    let sums: Vec<i32> = numbers[..256].chunks(64).map(|row| row.iter().sum()).collect();
    let totals: Vec<i32> = (0..4).map(|b| sums[b / 2 * 2] + 2 * sums[b / 2 * 2 + 1]).collect();
    let cluster = |entry| case(entry).grid(4, 1).block(64, 1).cluster(2).input(&numbers[..256]);
    cases.push(cluster("cluster_sum").exact(&totals));
    cases.push(cluster("cluster_sum_missing_sync").poison(16).finds(&[
        Race,
        UninitialisedRead,
        PeerNotRunning,
    ]));
    cases.push(cluster("cluster_sum_leaves_early").poison(16).finds(&[PeerNotRunning]));
    cases.push(cluster("cluster_sum_absent_block").poison(16).finds(&[
        PeerNotRunning,
        UninitialisedRead,
        Deadlock,
    ]));

    // These bring their cluster's shape along.
    let swapped: Vec<i32> = (0..256).map(|i| numbers[((i / 64) ^ 1) * 64 + 63 - i % 64]).collect();
    cases.push(case("cluster_dims").grid(4, 1).block(64, 1).input(&numbers[..256]).exact(&swapped));
    let pushed: Vec<i32> = (0..256).map(|i| numbers[((i / 64) ^ 1) * 64 + i % 64] * 3).collect();
    cases.push(case("push").grid(4, 1).block(64, 1).input(&numbers[..256]).exact(&pushed));
    let strip = random.f32s(2048, 0.0, 1.0);
    let copies: Vec<f64> = (0..4)
        .flat_map(|b| wide(&strip[b / 2 * 1024..][..1024]).into_iter().map(move |v| v + (b % 2) as f64))
        .collect();
    let multicast = case("multicast").grid(4, 1).block(128, 1).input(&strip).held();
    let multicast = multicast.matrix_map(0, DataType::F32, [32, 64], 128, [32, 32], SwizzleMode::None);
    cases.push(multicast.near::<f32>(&copies, 1e-6, 0.0));
    cases
}
