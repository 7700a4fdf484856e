//! Banks and sectors against plain models, over structured and random patterns.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

/// Word by word and lane by lane, as the rule is written in the module head.
fn naive_wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32) -> Wavefronts {
    let phase = if bytes <= 4 { 32 } else { 128 / bytes as usize };
    let mut cost = Wavefronts::default();
    for first in (0..32).step_by(phase) {
        let mut banks: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for lane in (first..first + phase).filter(|lane| lanes >> lane & 1 == 1) {
            let start = addresses[lane] / u64::from(bytes) * u64::from(bytes);
            for word in start / 4..(start + u64::from(bytes)).div_ceil(4) {
                banks.entry(word % 32).or_default().insert(word);
            }
        }
        cost.ideal += u32::from(!banks.is_empty());
        cost.taken += banks.values().map(|words| u32::try_from(words.len()).unwrap()).max().unwrap_or(0);
    }
    cost
}

fn naive_sectors(addresses: &[u64; 32], lanes: u32, bytes: u32) -> u32 {
    let active = (0..32).filter(|lane| lanes >> lane & 1 == 1);
    let touched =
        active.flat_map(|lane| (0..u64::from(bytes)).map(move |byte| (addresses[lane] + byte) / 32));
    u32::try_from(touched.collect::<BTreeSet<u64>>().len()).unwrap()
}

fn compare(addresses: &[u64; 32], lanes: u32, bytes: u32) {
    let expected = naive_wavefronts(addresses, lanes, bytes);
    assert_eq!(wavefronts(addresses, lanes, bytes), expected, "{addresses:?} {lanes:#x} {bytes}");
    let found = sectors(addresses, lanes, bytes);
    assert_eq!(found.touched, naive_sectors(addresses, lanes, bytes), "{addresses:?} {lanes:#x} {bytes}");
    assert!(found.ideal <= found.touched && (found.ideal > 0) == (lanes != 0));
}

const MASKS: [u32; 9] =
    [u32::MAX, 0, 1, 1 << 31, 0x0000_ffff, 0xffff_0000, 0x5555_5555, 0x0f0f_00f0, 0x8000_0001];
const SIZES: [u32; 5] = [1, 2, 4, 8, 16];

fn strided(base: u64, stride: u64) -> [u64; 32] {
    std::array::from_fn(|lane| base + lane as u64 * stride)
}

#[test]
fn strides_masks_and_sizes() {
    for bytes in SIZES {
        for stride in 0..=33 {
            for base in [1024, 1024 + u64::from(bytes), 4096 - u64::from(bytes), 1 << 40] {
                for mask in MASKS {
                    compare(&strided(base, stride * u64::from(bytes)), mask, bytes);
                }
            }
        }
    }
}

#[test]
fn broadcasts_swaps_and_transposes() {
    for bytes in SIZES {
        let size = u64::from(bytes);
        let patterns: [fn(u64) -> u64; 6] = [
            |_| 7,
            |lane| lane / 2,
            |lane| lane ^ 1,
            |lane| 31 - lane,
            |lane| lane % 4 * 32 + lane / 4,
            |lane| lane * 33 % 97,
        ];
        for pattern in patterns {
            let addresses = std::array::from_fn(|lane| 2048 + pattern(lane as u64) * size);
            MASKS.iter().for_each(|mask| compare(&addresses, *mask, bytes));
        }
    }
}

/// The figures of the programming guide: a stride of one word is free, of two words is a two-way conflict, of three words is free;
/// random permutations are free, and any lanes may read the same word. And the usual consequences.
#[test]
fn known_numbers() {
    let taken = |stride: u64, bytes| wavefronts(&strided(0, stride), u32::MAX, bytes).taken;
    assert_eq!(
        [1_u64, 2, 3, 4, 8, 16, 31, 32, 33].map(|words| taken(words * 4, 4)),
        [1, 2, 1, 4, 8, 16, 1, 32, 1]
    );
    // Bytes and halves: four and two lanes to a word.
    assert_eq!((taken(1, 1), taken(2, 2), taken(4, 2), taken(64, 2)), (1, 1, 1, 16));
    assert_eq!((taken(8, 8), taken(16, 16)), (2, 4));
    // A column of a row-major tile of 64 f64: all lanes of a half warp in one pair of banks.
    assert_eq!(taken(64 * 8, 8), 32);
    assert_eq!(wavefronts(&[512; 32], u32::MAX, 4).taken, 1);
    // Rows of 128 bytes read by pieces of 16 (ldmatrix without a swizzle): eight lanes in four banks. With it: free.
    assert_eq!(taken(128, 16), 32);
    let swizzled = std::array::from_fn(|row| row as u64 * 128 + (row as u64 % 8) * 16);
    assert_eq!(wavefronts(&swizzled, u32::MAX, 16), Wavefronts { taken: 4, ideal: 4 });

    let touched = |base, stride, bytes| sectors(&strided(base, stride), u32::MAX, bytes).touched;
    // The best practices guide: a warp of aligned words is four sectors, one word off is five.
    assert_eq!((touched(0, 4, 4), touched(4, 4, 4), touched(0, 8, 4), touched(0, 128, 4)), (4, 5, 8, 32));
    assert_eq!((touched(0, 16, 16), touched(0, 2, 2), touched(0, 1, 1), touched(0, 0, 4)), (16, 2, 1, 1));
}

#[test]
fn nothing_panics() {
    for bytes in [0, 1, 3, 5, 12, 16, 17, 32, 64, 128, 129, u32::MAX] {
        for base in [0, u64::MAX, u64::MAX - 63] {
            let addresses = std::array::from_fn(|lane| base.wrapping_add(lane as u64 * 7919));
            for mask in MASKS {
                black_box((wavefronts(&addresses, mask, bytes), sectors(&addresses, mask, bytes)));
            }
        }
    }
}

proptest! {
    #[test]
    fn random_aligned(words in prop::array::uniform32(0_u64..700), lanes: u32, size in 0_usize..5, dense: bool) {
        let bytes = SIZES[size];
        let limit = if dense { 40 } else { 700 };
        compare(&words.map(|word| 1024 + word % limit * u64::from(bytes)), lanes, bytes);
    }

    #[test]
    fn random_misaligned_sectors(addresses in prop::array::uniform32(0_u64..3000), lanes: u32, bytes in 1_u32..=32) {
        prop_assert_eq!(sectors(&addresses, lanes, bytes).touched, naive_sectors(&addresses, lanes, bytes));
    }
}

#[test]
#[ignore = "prints times; run with --release --ignored --nocapture"]
fn timing() {
    const ROUNDS: u32 = 2_000_000;
    let shuffled: [u64; 32] = std::array::from_fn(|lane| 1024 + (lane as u64 * 37 % 101) * 4);
    for (name, addresses, bytes, lanes) in [
        ("unit stride, 4 bytes", strided(1024, 4), 4, u32::MAX),
        ("unit stride, 16 bytes", strided(1024, 16), 16, u32::MAX),
        ("broadcast", strided(1024, 0), 4, u32::MAX),
        ("half of the lanes", strided(1024, 4), 4, 0x5555_5555),
        ("32-way conflict", strided(1024, 128), 4, u32::MAX),
        ("ldmatrix swizzled", std::array::from_fn(|i| i as u64 * 128 + (i as u64 % 8) * 16), 16, u32::MAX),
        ("scattered words", shuffled, 4, u32::MAX),
        (
            "rows of a tile, 8-way",
            std::array::from_fn(|i| 1024 + i as u64 / 4 * 256 + i as u64 % 4 * 4),
            4,
            u32::MAX,
        ),
        ("one lane off, 31-way", std::array::from_fn(|i| 1024 + (i as u64).min(30) * 128), 4, u32::MAX),
    ] {
        let time = |run: &dyn Fn() -> u32| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                black_box(run());
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        };
        let banks = time(&|| wavefronts(black_box(&addresses), black_box(lanes), black_box(bytes)).taken);
        let memory = time(&|| sectors(black_box(&addresses), black_box(lanes), black_box(bytes)).touched);
        println!("{name:24} wavefronts {banks:6.1} ns   sectors {memory:6.1} ns");
    }
}
