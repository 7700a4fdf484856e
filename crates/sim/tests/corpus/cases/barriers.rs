//! Named barriers, tiles, grids.

use tilewright_sim::FindingKind::{BarrierMisuse, Deadlock, DivergentAligned, Race};

use crate::case::Case;
use crate::numbers::{Random, wide};

const FILES: [&str; 2] = ["barriers_sm80", "barriers_sm90"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(8);
    let case = |entry| Case::new(&FILES, entry);
    let numbers = random.i32s(320, 0, 100);
    let turned: Vec<i32> =
        (0..128).map(|t| numbers[t / 64 * 64 + 63 - t % 64] + 2 + (t / 64) as i32).collect();
    let consumed: Vec<i32> = (0..64)
        .map(|t| (0..5).map(|r| numbers[r * 64 + t / 32 * 32 + 31 - t % 32] * (r as i32 + 1)).sum())
        .collect();
    let ring = |entry| case(entry).block(96, 1).input(&numbers);
    let odd = numbers[..128].iter().filter(|&v| v & 1 == 1).count() as i32;
    let any = i32::from(numbers[..128].iter().any(|&v| v > 90));
    let votes: Vec<i32> = (0..128).flat_map(|t| [odd, 1, any, t]).collect();
    let signed: Vec<i32> =
        (0..64).map(|t| if numbers[t] & 1 == 1 { numbers[63 - t] } else { -numbers[63 - t] }).collect();
    let reals = random.f32s(64, -1.0, 1.0);
    let sums: Vec<f64> = wide(&reals).chunks(8).map(|row| row.iter().sum()).collect();
    let kept: Vec<i32> = numbers[..96].iter().copied().filter(|v| v % 3 == 0).collect();
    let count = kept.len();
    let mut sorted = kept;
    sorted.sort_unstable();
    let written: Vec<i32> = (0..256).map(|i| i * 3).collect();
    let read: Vec<i32> = written.iter().rev().copied().collect();

    vec![
        case("halves").block(128, 1).input(&numbers[..128]).exact(&turned),
        ring("producer_consumer").exact(&consumed).u32(5),
        ring("producer_consumer_missing_arrive").poison(256).u32(5).finds(&[Deadlock]),
        ring("producer_consumer_wrong_count").poison(256).u32(5).finds(&[BarrierMisuse, Deadlock]),
        ring("producer_consumer_no_release").poison(256).u32(5).finds(&[Race, BarrierMisuse, Deadlock]),
        case("barrier_votes").block(128, 1).input(&numbers[..128]).exact(&votes),
        case("divergent_barrier").block(64, 1).input(&numbers[..64]).poison(256).finds(&[DivergentAligned]),
        case("two_barriers_in_one_warp")
            .block(64, 1)
            .input(&numbers[..64])
            .poison(256)
            .finds(&[DivergentAligned]),
        case("unaligned_barriers").block(64, 1).input(&numbers[..64]).exact(&signed),
        case("tiles").block(64, 1).input(&reals).near::<f32>(&sums, 1e-6, 1e-6),
        // Groups take their places in any order.
        case("coalesced")
            .block(96, 1)
            .input(&numbers[..96])
            .checked::<i32>(96, move |out| {
                let mut out = out[..sorted.len()].to_vec();
                out.sort_unstable();
                if out == sorted { Ok(()) } else { Err(format!("kept {out:?}, expected {sorted:?}")) }
            })
            .update(&[0], &[count as i32]),
        case("grid_sync").grid(4, 1).block(64, 1).exact(&written).exact(&read),
        case("grid_barrier").grid(4, 1).block(64, 1).exact(&written).exact(&read).update(&[0u32], &[4]),
        case("grid_barrier_unfenced")
            .grid(4, 1)
            .block(64, 1)
            .poison(1024)
            .poison(1024)
            .scratch(&[0u32])
            .finds(&[Race]),
    ]
}
