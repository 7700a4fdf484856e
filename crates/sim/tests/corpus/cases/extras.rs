//! Special registers, library collectives, wide atomics, remote barriers, more of TMA.

use half::f16;
use tilewright_hardware::SwizzleMode;
use tilewright_sim::FindingKind::{Race, UninitialisedRead};
use tilewright_sim::tensor::tensor_map::DataType;

use crate::case::Case;
use crate::numbers::Random;

const FILES: [&str; 2] = ["extras_sm90", "extras_sm90_lineinfo"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(16);
    let case = |entry| Case::new(&FILES, entry);

    let registers: Vec<u32> = (0..4 * 64)
        .flat_map(|i| {
            let (block, thread) = (i / 64, i % 64);
            let below = (1 << (thread % 32)) - 1;
            [thread % 32, below, !below, 4, 2, 48, 1, 1, 1, 1, thread / 16, block / 2]
        })
        .collect();

    let numbers = random.i32s(256, -1000, 1000);
    let collected: Vec<i32> = (0..64)
        .flat_map(|i: usize| {
            let (warp, four) = (&numbers[i / 32 * 32..][..32], &numbers[i / 4 * 4..][..4]);
            let largest = *four.iter().max().expect("four lanes");
            [warp.iter().sum(), largest, warp[..=i % 32].iter().sum(), four[..i % 4].iter().sum()]
        })
        .collect();
    let piped: Vec<i32> = (0..64).map(|t| (0..4).map(|r| numbers[r * 64 + 63 - t] << r).sum()).collect();

    let reals = random.f32s(256, -1.0, 1.0);
    let sums: Vec<f64> =
        (0..4).map(|c| reals.iter().skip(c).step_by(4).map(|&v| f64::from(v)).sum()).collect();
    let counted = u64::from(64f32.to_bits());

    let received: Vec<i32> = (0..256).map(|i| numbers[((i / 64) ^ 1) * 64 + 63 - i % 64]).collect();
    let exchange = |entry| case(entry).grid(4, 1).block(64, 1).input(&numbers);

    // 16 x 6 x 5, of which two blocks take 8 x 4 x 2 each, from row 1 of plane 2.
    let volume = random.i32s(16 * 6 * 5, -100, 100);
    let before = random.i32s(64, -100, 100);
    let taken = |block: usize, i: usize| volume[((2 + i / 32) * 6 + 1 + i / 8 % 4) * 16 + block * 8 + i % 8];
    let after: Vec<i32> = (0..64).map(|i| before[i] + taken(0, i) + taken(1, i) + 2000).collect();

    vec![
        case("special_registers").grid(2, 2).block(16, 4).shared(48).exact(&registers),
        case("library_collectives").block(64, 1).input(&numbers[..64]).exact(&collected),
        case("library_pipeline").block(64, 1).input(&numbers).exact(&piped),
        case("wide_atomics")
            .grid(2, 1)
            .input(&reals)
            .update_near(&[0f32; 4], &sums, 1e-5, 1e-5)
            .scratch(&[7u16, 0])
            .update(&[1u64, 2, 0], &[30, 40, counted])
            .update(&[f16::ZERO], &[f16::from_f32(16.0)]),
        exchange("remote_arrive").exact(&received),
        exchange("remote_arrive_at_home").poison(1024).finds(&[Race, UninitialisedRead]),
        exchange("asynchronous_stores").exact(&received),
        case("tensor_reduce")
            .grid(2, 1)
            .block(64, 1)
            .input(&volume)
            .held()
            .update(&before, &after)
            .held()
            .map(0, DataType::S32, &[16, 6, 5], &[64, 384], &[8, 4, 2], SwizzleMode::None)
            .map(1, DataType::S32, &[8, 4, 2], &[32, 128], &[8, 4, 2], SwizzleMode::None),
    ]
}
