//! Warp primitives, and reductions through shared memory inside a warp, right and wrong.

use tilewright_sim::FindingKind::Race;

use crate::case::Case;
use crate::numbers::{Random, wide};

const FILES: [&str; 2] = ["warp_sm80", "warp_sm90_lineinfo"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(6);
    let case = |entry| Case::new(&FILES, entry);
    let reals = random.f32s(96, -1.0, 1.0);
    let sums: Vec<f64> = wide(&reals).chunks(32).map(|row| row.iter().sum()).collect();
    let numbers = random.i32s(128, -100, 100);
    let running = |row: &[i32]| {
        row.iter()
            .scan(0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
            .collect::<Vec<i32>>()
    };
    let scanned: Vec<i32> = numbers.chunks(32).flat_map(running).collect();
    let doubles = random.f64s(32, -1.0, 1.0);

    let mut compacted = vec![None; 128];
    let mut counts = Vec::new();
    for (block, row) in numbers.chunks(32).enumerate() {
        let kept: Vec<i32> = row.iter().copied().filter(|&v| v > 0).collect();
        kept.iter().enumerate().for_each(|(i, &v)| compacted[block * 32 + i] = Some(v));
        counts.push(kept.len() as i32);
    }
    let few = random.i32s(32, 0, 6);
    let total: i32 = numbers[..64].iter().sum();

    vec![
        case("shuffle_sum").grid(3, 1).input(&reals).near::<f32>(&sums, 1e-6, 1e-5),
        case("shuffle_scan").grid(2, 1).block(64, 1).input(&numbers).exact(&scanned),
        case("shuffle_segments").input(&doubles).near::<f64>(&segments(&doubles), 1e-14, 1e-14),
        case("compact").grid(4, 1).input(&numbers).exact_where(&compacted).exact(&counts),
        case("votes").input(&few).exact(&votes(&few)),
        case("divergent_masks").input(&few).exact(&masks(&few)),
        case("shared_reduction").input(&numbers[..64]).exact(&[total; 32]),
        case("shared_reduction_unsynchronised").input(&numbers[..64]).poison(128).finds(&[Race]),
        // Every access is volatile, so nothing is a race in the sense of the memory model; lanes in step give the sum.
        case("shared_reduction_volatile").input(&numbers[..64]).exact(&[total]),
    ]
}

fn segments(v: &[f64]) -> Vec<f64> {
    let first: Vec<f64> = (0..32).map(|l| v[l] + v[l ^ 3]).collect();
    let second: Vec<f64> = (0..32).map(|l| first[l] + 2.0 * first[(l & 16) | ((l * 5) & 15)]).collect();
    (0..32).map(|l| second[l] + second[if l % 4 < 2 { l + 2 } else { l }]).collect()
}

fn votes(v: &[i32]) -> Vec<u32> {
    let mask =
        |keep: &dyn Fn(usize) -> bool| (0..32).filter(|&l| keep(l)).fold(0u32, |mask, l| mask | 1 << l);
    let sum: i32 = v.iter().sum();
    let largest = *v.iter().max().expect("32 lanes");
    (0..32)
        .flat_map(|l| {
            let same_parity = v.iter().skip(l % 2).step_by(2).fold(0, |x, v| x ^ v);
            [
                mask(&|k| v[k] == v[l]),
                u32::MAX,
                1,
                2 | u32::from(v.contains(&3)),
                (sum ^ largest) as u32,
                same_parity as u32,
            ]
        })
        .collect()
}

fn masks(v: &[i32]) -> Vec<u32> {
    let odd = (0..32).filter(|&l| v[l] & 1 == 1 && l & 2 != 0).fold(0u32, |mask, l| mask | 1 << l);
    let last_even = (0..32).rfind(|&l| v[l] & 1 == 0).map_or(0, |l| 100 + l as u32);
    v.iter().map(|v| if v & 1 == 1 { odd } else { last_even }).collect()
}
