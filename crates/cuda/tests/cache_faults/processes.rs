//! Many processes in one folder, some of which are killed and some of which do harm.
//!
//! That these can fail: with entries written in place, without the rename, killed writers leave torn files and readers see
//! half an entry, both of which are counted as damage here; without the checksum, what the vandal does would be returned.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use tilewright_cuda::{CacheStats, DiskCache, Put};

use super::{Random, entry, files, is_unfinished, key, played, process, this_program, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("killed_writers_leave_nothing_torn", killed_writers),
        trial("processes_share_a_folder", processes_share_a_folder),
        trial("processes_survive_damage_while_they_work", processes_survive_damage),
    ]
}

/// Large enough that the writing takes a while.
const LARGE: usize = 1 << 20;
const KEYS: u64 = 3;
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that does not outlive the test, however that ends.
struct Mortal(Child);

impl Mortal {
    fn start(command: &mut Command) -> Mortal {
        Mortal(command.spawn().unwrap())
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        // Fails only where it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn write_for_ever(folder: &Path, seed: u64) {
    let cache = DiskCache::at(folder);
    let mut random = Random(seed);
    let entries: Vec<_> = (0..KEYS).map(|number| entry(number, LARGE)).collect();
    // Not quite for ever: should the test end without having killed it.
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let number = random.below(KEYS);
        assert_eq!(cache.put(&key(number), &entries[usize::try_from(number).unwrap()]), Put::Written);
    }
}

fn killed_writers() {
    const ROUNDS: u64 = 15;
    let folder = tempfile::tempdir().unwrap();
    let mut in_the_act = 0;
    for seed in 0..ROUNDS {
        let before = unfinished(folder.path());
        let writer = Mortal::start(&mut process(this_program(), "writer", folder.path(), seed));
        // Struck as soon as it is seen to write, which is when it matters.
        let start = Instant::now();
        while unfinished(folder.path()) == before {
            assert!(start.elapsed() < PATIENCE, "the writer does not write");
        }
        drop(writer);
        in_the_act += usize::from(unfinished(folder.path()) > before);
    }
    assert!(in_the_act > 0, "no writer was struck while it wrote: nothing was tested");
    let cache = DiskCache::at(folder.path());
    assert_eq!(cache.verify(), []);
    let found = (0..KEYS).filter_map(|number| Some((number, cache.get(&key(number))?)));
    found.for_each(|(number, found)| assert!(found == entry(number, LARGE), "{number}"));
    // What they left is in nobody's way, and goes when it is old.
    assert_eq!(cache.put(&key(0), &entry(0, LARGE)), Put::Written);
    assert_eq!(unfinished(folder.path()), in_the_act);
    for path in files(folder.path()).iter().filter(|path| is_unfinished(path)) {
        let old = std::time::SystemTime::now() - Duration::from_secs(2 * 60 * 60);
        File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }
    assert_eq!(DiskCache::at(folder.path()).put(&key(0), &entry(0, 1)), Put::Written);
    assert_eq!(unfinished(folder.path()), 0);
    assert_eq!(cache.verify(), []);
}

fn unfinished(folder: &Path) -> usize {
    files(folder).iter().filter(|path| is_unfinished(path)).count()
}

/// The entries of the hammers together are several times as large.
const CAP: u64 = 256 << 10;
const HAMMER_KEYS: u64 = 100;
const HAMMER_BLOWS: usize = 400;

fn size(number: u64) -> usize {
    usize::try_from(number * 149 % 20_000).unwrap()
}

/// Reads and writes whatever comes; what is read must be right. Ends with what it counted, one number a word.
pub(super) fn hammer(folder: &Path, seed: u64) {
    let cache = DiskCache::at(folder).with_cap(CAP);
    let mut random = Random(seed);
    for _ in 0..HAMMER_BLOWS {
        let number = random.below(HAMMER_KEYS);
        match cache.get(&key(number)) {
            Some(found) => assert!(found == entry(number, size(number)), "a wrong value for {number}"),
            None => drop(cache.put(&key(number), &entry(number, size(number)))),
        }
        if random.below(300) == 0 {
            cache.clear();
        }
    }
    let CacheStats { hits, writes, evictions, corrupt, refused, errors, last_error, .. } = cache.stats();
    println!("{hits} {writes} {evictions} {corrupt} {refused} {errors}");
    last_error.into_iter().for_each(|text| eprintln!("{text}"));
}

/// Cuts off and overwrites entries in place, as a failing disk would, until it is killed.
pub(super) fn vandalise(folder: &Path, seed: u64) {
    let mut random = Random(seed);
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let files = files(folder);
        let Some(path) = files.get(usize::try_from(random.below(files.len().max(1) as u64)).unwrap()) else {
            continue;
        };
        let mut harm = || {
            let mut file = File::options().write(true).open(path)?;
            let length = file.metadata()?.len().max(1);
            if random.below(2) == 0 {
                return file.set_len(random.below(length));
            }
            file.seek(SeekFrom::Start(random.below(length)))?;
            file.write_all(&random.next().to_le_bytes())
        };
        // Others remove and rename files all the time.
        let _: std::io::Result<()> = harm();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs hammers and perhaps a vandal in one folder; the sums of what the hammers counted.
fn run(folder: &Path, vandals: u64) -> [u64; 6] {
    const HAMMERS: u64 = 4;
    let start = |role| move |seed| process(this_program(), role, folder, seed);
    let _vandals: Vec<_> =
        (1..=vandals).map(start("vandal")).map(|mut vandal| Mortal::start(&mut vandal)).collect();
    let piped = |mut command: Command| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let hammers: Vec<_> = (1..=HAMMERS).map(start("hammer")).map(piped).collect();
    let mut sums = [0; 6];
    for hammer in hammers {
        let text = played(&hammer.wait_with_output().unwrap());
        let words = text.lines().next().unwrap_or_default().split(' ');
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += word.parse::<u64>().unwrap());
    }
    sums
}

fn processes_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let [hits, writes, evictions, corrupt, refused, errors] = run(folder.path(), 0);
    println!("{hits} hits, {writes} writes, {evictions} evictions, {errors} errors");
    assert!(hits > 50 && writes > 100 && evictions > 50, "{hits} {writes} {evictions}");
    // Nobody ever sees a torn or foreign entry. A write may fail where others clear the folder again and again.
    assert_eq!((corrupt, refused), (0, 0));
    assert!(errors * 20 < writes, "{errors} errors in {writes} writes");
    let cache = DiskCache::at(folder.path()).with_cap(CAP);
    assert_eq!(cache.verify(), []);
    assert_eq!(unfinished(folder.path()), 0);
    // Each of the four may be a tenth of the cap ahead of what it has seen, and one entry.
    let bytes: u64 = cache.list().iter().map(|info| info.bytes).sum();
    assert!(bytes <= CAP + 4 * (CAP / 10 + 20_500), "{bytes} bytes, the cap is {CAP}");
}

fn processes_survive_damage() {
    let folder = tempfile::tempdir().unwrap();
    let [hits, writes, _, corrupt, ..] = run(folder.path(), 2);
    println!("{hits} hits, {writes} writes, {corrupt} damaged");
    assert!(hits > 50 && corrupt > 0, "{hits} {corrupt}");
    let cache = DiskCache::at(folder.path());
    cache.repair();
    assert_eq!(cache.verify(), []);
    assert!(fs::read_dir(folder.path()).unwrap().count() <= 1);
}
