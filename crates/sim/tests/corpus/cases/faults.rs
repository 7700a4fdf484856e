//! Things that go wrong, and the calls of the device runtime that say so.

use tilewright_sim::FindingKind::{
    AssertFailed, BarrierMisuse, Deadlock, InvalidInstruction, Misaligned, NeverEnds, OutOfBounds, Race,
    ResourcesExceeded, Trap, UninitialisedRead,
};

use crate::case::Case;
use crate::numbers::Random;

const FILES: [&str; 2] = ["faults_sm80", "faults_sm90_lineinfo"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(14);
    let case = |entry| Case::new(&FILES, entry);
    let reals = random.f32s(129, -1.0, 1.0);
    let numbers = random.i32s(64, 0, 100);
    let mut negative = numbers.clone();
    negative[37] = -1;
    let lines: Vec<String> = [7, 47, 87, 127]
        .into_iter()
        .map(|i: i32| {
            let word = if i > 60 { "late" } else { "early" };
            let letter = char::from(b'a' + (i % 26) as u8);
            let (quarter, high) = (f64::from(i) * 0.25, (i as u64) << 36);
            format!("thread {i} of 128: {word} {quarter:.3} {letter}|{i:5}|{:<4}|{high:x}%", -i)
        })
        .collect();
    let bytes: Vec<u8> = random.u32s(768).iter().map(|&v| v as u8).collect();
    let pairs: Vec<i32> = (0..64).map(|i| i ^ 1).collect();
    let range = |name| Case::new(&FILES[1..], "bulk_range").named(name).block(64, 1).input(&bytes);

    vec![
        case("prints").grid(2, 1).block(64, 1).u32(60).prints(lines),
        case("asserts").block(64, 1).input(&numbers).exact(&numbers),
        case("asserts").named("and_fails").block(64, 1).input(&negative).poison(256).finds(&[AssertFailed]),
        case("traps").block(64, 1).input(&numbers).exact(&numbers),
        case("traps").named("and_stops").block(64, 1).input(&negative).poison(256).finds(&[Trap]),
        case("off_by_one").block(128, 1).input(&reals[..100]).poison(400).u32(100).finds(&[OutOfBounds]),
        case("reads_before").input(&reals[..32]).poison(128).finds(&[OutOfBounds]),
        case("null_pointer").u64(0).poison(128).finds(&[OutOfBounds]),
        case("shared_overrun").block(64, 1).shared(256).input(&numbers).poison(256).finds(&[OutOfBounds]),
        case("local_overrun").input(&[1_000_000; 32]).poison(128).finds(&[OutOfBounds]),
        case("misaligned").input(&reals).poison(512).finds(&[Misaligned]),
        case("atomic_outside")
            .scratch(&[0u32; 16])
            .input(&(0..32u32).collect::<Vec<_>>())
            .finds(&[OutOfBounds]),
        case("shared_never_written").block(64, 1).poison(256).finds(&[UninitialisedRead]),
        case("everybody_writes").poison(4).finds(&[Race]),
        case("endless").block(1, 1).input(&[0]).poison(4).finds(&[NeverEnds, Deadlock]),
        case("lost_producer").block(64, 1).input(&[0]).poison(256).finds(&[Deadlock, NeverEnds]),
        case("embrace").grid(2, 1).scratch(&[0, 0]).scratch(&[0]).poison(8).finds(&[Deadlock, NeverEnds]),
        case("barrier_odd_count")
            .block(64, 1)
            .poison(256)
            .u32(40)
            .finds(&[BarrierMisuse, InvalidInstruction]),
        case("barrier_no_such").block(64, 1).poison(256).u32(17).finds(&[BarrierMisuse, InvalidInstruction]),
        case("much_shared").block(64, 1).shared(100_000).exact(&pairs),
        case("much_shared")
            .named("and_more")
            .block(64, 1)
            .shared(300_000)
            .poison(256)
            .finds(&[ResourcesExceeded]),
        range("inside").exact(&bytes[16..528]).u32(16).u32(512),
        range("at_odd_address").poison(1024).u32(4).u32(512).finds(&[Misaligned]),
        range("of_odd_size").poison(1024).u32(16).u32(500).finds(&[Misaligned, InvalidInstruction]),
        range("over_the_end").poison(1024).u32(512).u32(512).finds(&[OutOfBounds]),
    ]
}
