//! Asynchronous copies of Ampere, pipelines, barriers in shared memory.

use tilewright_sim::FindingKind::{
    BarrierMisuse, Deadlock, NeverEnds, OverwrittenWhileRead, Race, UninitialisedRead,
};

use crate::case::Case;
use crate::numbers::Random;

const FILES: [&str; 2] = ["async_sm80", "async_sm90"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(10);
    let case = |entry| Case::new(&FILES, entry);
    let mut cases = Vec::new();

    let rounds = 6;
    let x = random.f32s(rounds * 256, -1.0, 1.0);
    let weigh = |t: usize, r: usize| {
        (0..4).map(|c| f64::from(x[(r * 64 + 63 - t) * 4 + c]) * (c as f64 + 1.0)).sum::<f64>()
    };
    let sums: Vec<f64> = (0..64).map(|t| (0..rounds).map(|r| weigh(t, r)).sum()).collect();
    for entry in ["two_stages", "three_stages"] {
        cases.push(case(entry).block(64, 1).input(&x).near::<f32>(&sums, 1e-5, 1e-5).u32(rounds as u32));
    }
    let unready = [Race, UninitialisedRead, OverwrittenWhileRead];
    for entry in ["three_stages_waits_too_little", "three_stages_missing_barrier", "three_stages_wrong_slot"]
    {
        cases.push(case(entry).block(64, 1).input(&x).poison(256).u32(rounds as u32).finds(&unready));
    }
    cases.push(case("copy_never_awaited").input(&x[..128]).poison(512).finds(&unready));

    let filled: Vec<f32> = (0..64)
        .rev()
        .flat_map(|t| (0..4).map(move |c| t * 4 + c))
        .map(|i| if i < 150 { x[i] } else { 0.0 })
        .collect();
    cases.push(case("zero_fill").block(64, 1).input(&x[..150]).exact(&filled).u32(150));

    let numbers = random.i32s(512, -1000, 1000);
    let weighed: Vec<i32> =
        (0..128).map(|t| (0..4).map(|r| numbers[r * 128 + (t ^ 5)] * (r as i32 + 1)).sum()).collect();
    cases.push(case("pipeline_primitives").block(128, 1).input(&numbers).exact(&weighed));

    let first = &numbers[..128];
    let exchanged =
        (0..3).fold(first.to_vec(), |v, _| (0..128).map(|t| v[t] * 3 + v[(t + 33) & 127]).collect());
    cases.push(case("shared_barrier").block(128, 1).input(first).exact(&exchanged));
    let reversed: Vec<i32> = first.iter().rev().copied().collect();
    cases.push(case("barrier_memcpy").block(128, 1).input(first).exact(&reversed));

    let doubled: Vec<i32> = first.chunks(32).flat_map(|row| row.iter().rev().map(|v| v * 2)).collect();
    cases.push(case("mbarrier_ring").block(64, 1).input(first).exact(&doubled).u32(4));
    let broken = |entry| case(entry).block(64, 1).input(first).poison(512).u32(4);
    cases.push(broken("mbarrier_wrong_count").finds(&[Deadlock, NeverEnds]));
    cases.push(broken("mbarrier_wrong_parity").finds(&[Race, UninitialisedRead, Deadlock]));
    cases.push(broken("mbarrier_uninitialised").finds(&[BarrierMisuse, UninitialisedRead]));
    cases.push(broken("mbarrier_initialised_unseen").finds(&[Race, BarrierMisuse, UninitialisedRead]));
    cases
}
