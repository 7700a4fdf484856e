//! The disk cache in ordinary use: keeps, lists, verifies, forgets, and stays below its cap.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use tilewright_cuda::{CacheUsage, DiskCache, Entry, EntryState, Key, Problem, Put};

fn key(number: usize) -> Key {
    Key::builder().field("number", number.to_le_bytes()).finish()
}

fn entry(bytes: usize) -> Entry {
    Entry {
        meta: vec![("kernel".into(), "gemm".into()), ("target".into(), "sm_90a".into())],
        payload: vec![7; bytes],
    }
}

/// The size of the file of `entry(0)`.
const FRAME: u64 = 60 + 4 * 8 + 22 + 32;

fn age(cache: &DiskCache, key: &Key, minutes: u64) {
    let info = cache.list().into_iter().find(|info| info.key == *key).unwrap();
    let time = SystemTime::now() - Duration::from_secs(60 * minutes);
    File::open(info.path).unwrap().set_modified(time).unwrap();
}

fn present(cache: &DiskCache) -> Vec<usize> {
    let keys: Vec<_> = cache.list().into_iter().map(|info| info.key).collect();
    (0..100).filter(|&number| keys.contains(&key(number))).collect()
}

#[test]
fn entries_come_back_and_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path().join("not/there/yet"));
    assert_eq!((cache.list(), cache.verify(), cache.check()), (vec![], vec![], Ok(())));
    assert_eq!(cache.get(&key(0)), None);
    for number in 0..20 {
        assert_eq!(cache.put(&key(number), &entry(number)), Put::Written);
    }
    assert_eq!(cache.put(&key(3), &entry(300)), Put::Written);
    // Another process sees the same.
    let other = DiskCache::at(cache.folder().unwrap());
    assert_eq!(other.get(&key(3)), Some(entry(300)));
    assert_eq!(other.get(&key(4)).unwrap().get("target"), Some("sm_90a"));
    assert_eq!(other.get(&key(20)), None);
    let list = other.list();
    assert_eq!(list.len(), 20);
    assert_eq!(list[0].key, key(4), "the last used comes first");
    for info in &list {
        assert_eq!((&info.meta, &info.state), (&entry(0).meta, &EntryState::Readable));
        assert_eq!(info.bytes, fs::metadata(&info.path).unwrap().len());
    }
    assert_eq!(list[0].bytes, FRAME + 4);
    assert_eq!(other.verify(), vec![]);
    let stats = other.stats();
    assert_eq!((stats.hits, stats.misses, stats.writes, stats.corrupt, stats.errors), (2, 1, 0, 0, 0));
    assert_eq!(cache.stats().writes, 21);
}

#[test]
fn a_cache_that_is_off_keeps_nothing() {
    let cache = DiskCache::off();
    assert_eq!(cache.put(&key(1), &entry(1)), Put::Off);
    assert_eq!(cache.get(&key(1)), None);
    assert_eq!((cache.list(), cache.verify(), cache.clear()), (vec![], vec![], CacheUsage::default()));
    assert_eq!((cache.stats().misses, cache.stats().errors), (1, 0));
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let size = FRAME + 1000;
    let cache = DiskCache::at(folder.path()).with_cap(10 * size);
    for number in 0..10 {
        assert_eq!(cache.put(&key(number), &entry(1000)), Put::Written);
        age(&cache, &key(number), 100 - number as u64);
    }
    assert_eq!(cache.stats().evictions, 0, "exactly at the cap is not past it");
    // A use makes an old one young.
    assert!(cache.get(&key(0)).is_some());
    assert_eq!(cache.put(&key(10), &entry(1000)), Put::Written);
    // Nine tenths are left: of eleven, the two that were not used for longest are gone.
    assert_eq!(present(&cache), [0, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(cache.stats().evictions, 2);
    assert_eq!(cache.verify(), vec![]);
}

#[test]
fn what_was_just_written_stays_and_what_can_never_fit_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path()).with_cap(FRAME + 1000);
    assert_eq!(cache.put(&key(0), &entry(10)), Put::Written);
    // In the future by another machine's clock: younger than anything written now.
    let info = cache.list().remove(0);
    File::open(info.path).unwrap().set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    assert_eq!(cache.put(&key(1), &entry(1000)), Put::Written);
    assert_eq!(
        present(&cache),
        [1],
        "the one just written is kept although it alone is more than nine tenths"
    );
    assert_eq!(cache.put(&key(2), &entry(1001)), Put::TooLarge);
    assert_eq!(present(&cache), [1]);
    assert_eq!(DiskCache::at(folder.path()).with_cap(0).put(&key(3), &entry(0)), Put::TooLarge);
}

#[test]
fn the_folder_is_not_looked_through_for_every_entry() {
    let folder = tempfile::tempdir().unwrap();
    let size = FRAME + 1000;
    let cache = DiskCache::at(folder.path()).with_cap(100 * size);
    assert_eq!(cache.put(&key(0), &entry(1000)), Put::Written);
    // Another process fills the folder behind our back, without a cap of its own.
    let other = DiskCache::at(folder.path());
    for number in 1..=100 {
        assert_eq!(other.put(&key(number), &entry(1000)), Put::Written);
    }
    // Within a tenth of the cap nobody looks; then everything is found, and brought below the cap again.
    for number in 101..=110 {
        assert_eq!(cache.put(&key(number), &entry(1000)), Put::Written);
        assert_eq!(cache.stats().evictions, 0, "{number}");
    }
    assert_eq!(cache.put(&key(111), &entry(1000)), Put::Written);
    assert_eq!(cache.stats().evictions, 22);
    assert_eq!(cache.list().len(), 90);
}

#[test]
fn leftovers_of_killed_writers_are_swept_up_when_they_are_old() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    assert_eq!(cache.put(&key(0), &entry(0)), Put::Written);
    let shard = cache.list().remove(0).path.parent().unwrap().to_owned();
    let leave = |name: &str, minutes: u64| {
        let path = shard.join(name);
        fs::write(&path, b"half an entry").unwrap();
        let time = SystemTime::now() - Duration::from_secs(60 * minutes);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        path
    };
    let old = leave(".tmp-1-0-0123456789abcdef", 61);
    let young = leave(".tmp-1-1-0123456789abcdef", 59);
    let stranger = leave(".tmp-mine", 1000);
    let found = [(stranger.clone(), Problem::Stranger), (old.clone(), Problem::Leftover)];
    let mut verified = cache.verify();
    verified.sort_by_key(|(path, _)| *path == old);
    assert_eq!(verified, found);
    // The first entry of a process looks through the folder.
    let next = DiskCache::at(folder.path());
    assert_eq!(next.put(&key(1), &entry(0)), Put::Written);
    assert_eq!([&old, &young, &stranger].map(|path| path.exists()), [false, true, true]);
}

#[test]
fn repair_removes_what_is_damaged_and_clear_everything_that_is_ours() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    for number in 0..3 {
        assert_eq!(cache.put(&key(number), &entry(number)), Put::Written);
    }
    let path = |number| cache.list().into_iter().find(|info| info.key == key(number)).unwrap().path;
    let (first, second, third) = (path(0), path(1), path(2));
    // One is cut off, one has the content of another.
    let bytes = fs::read(&first).unwrap();
    fs::write(&first, &bytes[..bytes.len() - 1]).unwrap();
    fs::copy(&third, &second).unwrap();
    let strangers =
        [folder.path().join("notes.txt"), folder.path().join("v1/readme"), first.with_extension("txt")];
    strangers.iter().for_each(|path| fs::write(path, b"mine").unwrap());

    let list = cache.list();
    let bad = list.iter().filter(|info| matches!(info.state, EntryState::Bad(_))).count();
    assert_eq!((list.len(), bad), (3, 2));
    let length = bytes.len() as u64;
    let expected = |path: &Path| {
        let cases = [
            (first.as_path(), Problem::Length { found: length - 1, expected: length }),
            (&second, Problem::Key { found: key(2) }),
            (&strangers[1], Problem::Stranger),
            (&strangers[2], Problem::Stranger),
        ];
        cases.into_iter().find(|(case, _)| *case == path).map(|(_, problem)| problem)
    };
    for found in [cache.verify(), cache.repair()] {
        assert_eq!(found.len(), 4, "{found:?}");
        for (path, problem) in found {
            assert_eq!(Some(problem), expected(&path), "{}", path.display());
        }
    }
    assert_eq!([&first, &second, &third].map(|path| path.exists()), [false, false, true]);
    assert_eq!(cache.verify().len(), 2, "strangers are found again");

    assert_eq!(cache.clear(), CacheUsage { files: 1, bytes: FRAME + 2 });
    assert!(strangers.iter().all(|path| path.exists()));
    assert_eq!(cache.list(), vec![]);
    assert_eq!(cache.put(&key(0), &entry(0)), Put::Written);
    assert_eq!(present(&cache), [0]);
}

#[test]
fn clearing_leaves_no_folder_of_ours_behind() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    for number in 0..50 {
        assert_eq!(cache.put(&key(number), &entry(1)), Put::Written);
    }
    assert_eq!(cache.clear().files, 50);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
