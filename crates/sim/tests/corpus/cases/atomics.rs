//! Atomic operations of all types, and what is built of them.

use half::{bf16, f16};
use tilewright_sim::FindingKind::{Race, UninitialisedRead};

use crate::case::Case;
use crate::numbers::{Random, wide};

const FILES: [&str; 3] = ["atomics_sm80", "atomics_sm90", "atomics_sm70"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(9);
    let case = |entry| Case::new(&FILES, entry);
    let mut cases = Vec::new();

    let x = random.u32s(200);
    let before = [0u32, 0, u32::MAX, 0, u32::MAX, 0, 0, 0, 5];
    let mut after = before;
    let mut signed = [i32::MAX, i32::MIN];
    for &v in &x {
        after[0] = after[0].wrapping_add(v);
        after[1] = after[1].wrapping_sub(v);
        after[2] = after[2].min(v);
        after[3] = after[3].max(v);
        after[4] &= v | 0xffff;
        after[5] |= v & 0x00ff_00ff;
        after[6] ^= v;
        after[7] = if after[7] >= 9 { 0 } else { after[7] + 1 };
        after[8] = if after[8] == 0 || after[8] > 6 { 6 } else { after[8] - 1 };
        signed = [signed[0].min(v as i32), signed[1].max(v as i32)];
    }
    let words = case("words").grid(2, 1).block(128, 1).input(&x).update(&before, &after);
    cases.push(words.update(&[i32::MAX, i32::MIN], &signed).u32(200));

    let x = random.u64s(200);
    let before = [0, u64::MAX, 0, 0, i64::MIN as u64, 7];
    let mut after = before;
    for &v in &x {
        after[0] = after[0].wrapping_add(v);
        after[1] = after[1].min(v);
        after[2] = after[2].max(v);
        after[3] ^= v;
        after[4] = (after[4] as i64).max(v as i64) as u64;
        after[5] += v % 1000;
    }
    cases.push(case("long_words").grid(2, 1).block(128, 1).input(&x).update(&before, &after).u32(200));

    let x = random.f32s(200, -10.0, 10.0);
    let sum: f64 = wide(&x).iter().sum();
    let largest = wide(&x).into_iter().fold(f64::MIN, f64::max);
    let floats = case("floats").grid(2, 1).block(128, 1).input(&x).update_near(
        &[0f32, -1e30],
        &[sum, largest],
        1e-5,
        1e-3,
    );
    let floats = floats.update_near(&[0f64], &[sum], 1e-12, 1e-9);
    cases.push(floats.update(&[f16::ZERO; 2], &[f16::from_f32(200.0), f16::from_f32(100.0)]).u32(200));
    let bfloats = Case::new(&["atomics_sm90"], "bfloats").grid(2, 1).block(100, 1);
    cases.push(bfloats.update(&[bf16::ZERO; 2], &[bf16::from_f32(200.0), bf16::from_f32(-200.0)]));

    let tickets = case("tickets").grid(3, 1).block(64, 1).update(&[0u32], &[192]);
    let tickets = tickets.checked::<u32>(193, |owners| {
        let mut owners = owners[..192].to_vec();
        owners.sort_unstable();
        if owners.into_iter().eq(0..192) { Ok(()) } else { Err("a ticket was given twice or never".into()) }
    });
    cases.push(tickets.scratch(&[0u32]));

    for entry in ["spin_lock", "scoped_lock"] {
        cases.push(case(entry).grid(8, 1).update(&[0], &[0]).update(&[0], &[36]));
    }
    for entry in ["spin_lock_unfenced", "spin_lock_plain_release", "no_lock"] {
        cases.push(case(entry).grid(8, 1).scratch(&[0]).scratch(&[0]).finds(&[Race]));
    }
    cases.push(case("lock_a_lane").block(48, 1).update(&[0], &[0]).update(&[0], &[47 * 24]));

    let x = random.f32s(6 * 64, -1.0, 1.0);
    let partial: Vec<f64> = wide(&x).chunks(64).map(|row| row.iter().sum()).collect();
    let right = case("last_block_sum").grid(6, 1).block(64, 1).input(&x).near::<f32>(&partial, 1e-5, 1e-5);
    cases.push(right.near::<f32>(&[partial.iter().sum()], 1e-5, 1e-5).update(&[0u32], &[6]));
    let wrong = case("last_block_sum_unfenced")
        .grid(6, 1)
        .block(64, 1)
        .input(&x)
        .poison(24)
        .poison(4)
        .scratch(&[0u32]);
    cases.push(wrong.finds(&[Race]));

    let x = random.i32s(5 * 128, -100, 100);
    let scanned: Vec<i32> = (0..x.len()).map(|i| x[..=i].iter().sum()).collect();
    let sums: Vec<i32> = x.chunks(128).map(|row| row.iter().sum()).collect();
    let prefixes: Vec<i32> = (0..5).map(|b| scanned[b * 128 + 127]).collect();
    let right = case("look_back_scan").grid(5, 1).block(128, 1).input(&x).exact(&scanned).exact(&sums);
    cases.push(right.exact(&prefixes).update(&[0; 5], &[2; 5]).update(&[0u32], &[5]));
    let wrong =
        case("look_back_scan_unfenced").grid(5, 1).block(128, 1).input(&x).poison(2560).poison(20).poison(20);
    cases.push(wrong.scratch(&[0; 5]).scratch(&[0u32]).finds(&[Race]));

    let data: Vec<i32> = (0..32).map(|i| i * 7 + 1).collect();
    let out: Vec<i32> = [vec![0; 32], data.clone(), data.clone()].concat();
    for entry in ["message_fenced", "message_release"] {
        cases.push(case(entry).grid(3, 1).exact(&data).update(&[0], &[1]).exact(&out));
    }
    for entry in ["message_unfenced", "message_relaxed", "message_plain", "message_block_scope"] {
        let broken = case(entry).grid(3, 1).poison(128).scratch(&[0]).poison(384);
        cases.push(broken.finds(&[Race, UninitialisedRead]));
    }
    cases
}
