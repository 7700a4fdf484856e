//! Every way in which the bytes of a file can be wrong is a miss, is counted, and the file goes.

use std::fs;

use libtest_mimic::Trial;
use tilewright_cuda::{DiskCache, Problem, Put};

use super::{Random, entry, files, key, only_file, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_file_cut_off_anywhere_is_a_miss", cut_off_anywhere),
        trial("a_file_with_any_bit_flipped_is_a_miss", any_bit_flipped),
        trial("a_file_with_more_behind_it_is_a_miss", more_behind_it),
        trial("absurd_lengths_ask_for_no_memory", absurd_lengths),
        trial("a_file_under_another_name_is_a_miss", another_name),
        trial("noise_is_a_miss", noise),
    ]
}

/// Puts each damaged file in the place of a good one, asks for it, and stores the entry anew.
fn each_is_a_miss(damaged: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    let good = entry(1, 24);
    assert_eq!(cache.put(&key(1), &good), Put::Written);
    let path = only_file(&cache);
    let bytes = fs::read(&path).unwrap();
    let damaged = damaged(&bytes);
    assert!(!damaged.is_empty());
    for (index, file) in damaged.iter().enumerate() {
        fs::write(&path, file).unwrap();
        let [(_, problem)] = &cache.verify()[..] else { panic!("case {index} was not found by verify") };
        assert!(problem.is_damage(), "case {index}: {problem}");
        assert_eq!(cache.get(&key(1)), None, "case {index}");
        assert!(!path.exists(), "case {index} was left in place");
        let stats = cache.stats();
        assert_eq!(stats.corrupt, index as u64 + 1, "case {index}");
        assert!(stats.last_error.is_some_and(|text| text.contains(&problem.to_string())), "case {index}");
        // What comes next is as if nothing had been.
        assert_eq!(cache.put(&key(1), &good), Put::Written);
        assert_eq!(cache.get(&key(1)).as_ref(), Some(&good), "case {index}");
    }
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

fn cut_off_anywhere() {
    each_is_a_miss(|bytes| (0..bytes.len()).map(|length| bytes[..length].to_vec()).collect());
}

fn any_bit_flipped() {
    each_is_a_miss(|bytes| {
        let flip = |bit: usize| {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        (0..8 * bytes.len()).map(flip).collect()
    });
}

fn more_behind_it() {
    each_is_a_miss(|bytes| vec![[bytes, b"\0"].concat(), [bytes, bytes].concat()]);
}

fn noise() {
    each_is_a_miss(|bytes| {
        let mut random = Random(7);
        let mut noise =
            |length: usize| (0..length).map(|_| random.next().to_le_bytes()[0]).collect::<Vec<_>>();
        let behind_a_beginning = [&bytes[..12], &noise(300)].concat();
        (0..200).map(noise).chain([behind_a_beginning]).collect()
    });
}

fn absurd_lengths() {
    const META: usize = 44;
    const PAYLOAD: usize = 52;
    each_is_a_miss(|bytes| {
        let with = |at: usize, length: u64| {
            let mut bytes = bytes.to_vec();
            bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
            bytes
        };
        let lengths = [u64::MAX, u64::MAX - 91, 1 << 63, 1 << 40, 0];
        lengths.iter().flat_map(|&length| [with(META, length), with(PAYLOAD, length)]).collect()
    });

    // A file with a hole, as long as its header says: two terabytes that are not there.
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    assert_eq!(cache.put(&key(1), &entry(1, 8)), Put::Written);
    let path = only_file(&cache);
    let mut bytes = fs::read(&path).unwrap();
    let length = 2u64 << 40;
    let payload = 8 + length - bytes.len() as u64;
    bytes[PAYLOAD..PAYLOAD + 8].copy_from_slice(&payload.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    if fs::File::options().write(true).open(&path).unwrap().set_len(length).is_ok() {
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(cache.stats().corrupt, 1);
        assert_eq!(files(folder.path()), Vec::<std::path::PathBuf>::new());
    }
}

fn another_name() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    assert_eq!(cache.put(&key(1), &entry(1, 100)), Put::Written);
    let right = only_file(&cache);
    assert_eq!(cache.put(&key(2), &entry(2, 100)), Put::Written);
    let wrong = cache.list().into_iter().find(|info| info.key == key(2)).unwrap().path;
    fs::copy(&right, &wrong).unwrap();
    assert_eq!(cache.verify(), [(wrong, Problem::Key { found: key(1) })]);
    assert_eq!(cache.get(&key(2)), None);
    assert_eq!(cache.get(&key(1)), Some(entry(1, 100)));
}
