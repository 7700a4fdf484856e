//! The cache on disk: a content-addressed store that many processes share without locks.
//!
//! An entry is the file `v1/ab/abcd….bin` under the folder, and is never changed: a writer fills a file of its own beside
//! it and renames that into place, so that a reader sees nothing or all. There is no fsync: after a loss of power a file may
//! be empty or torn, which the checksum finds, and what is lost is one compilation; a disk flush for every kernel would
//! cost more than it saves.
//!
//! Every failure is soft. A bad file is a miss and is removed; a folder that cannot be used is a miss each time. All of it
//! is counted in [`CacheStats`], with the last reason in words.
//!
//! # Limits
//!
//! * Size is that of the files, not of the blocks under them. Between two looks at the folder a process may add a tenth of
//!   the cap, so that many writers can pass it by that much each for a while.
//! * The least recently *used* entry goes first where a reader may set the time of a file, else the oldest (files of root,
//!   Windows).
//! * A network file system without an atomic rename can tear an entry; it is then found bad and made again.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::entry::{self, Bad, Entry, Identity, Problem};
use super::folder::CacheFolder;
use super::key::Key;
use super::{trust, upkeep};

/// Names the size that the disk cache may have: bytes, or with `K`, `M`, `G` or `T` behind (powers of 1024).
pub const CACHE_SIZE_VARIABLE: &str = "TILEWRIGHT_CACHE_SIZE";

/// The size that the disk cache may have where nobody says otherwise: 1 GiB.
pub const DEFAULT_CAP: u64 = 1 << 30;

/// The layout of the folder; a later one gets another name, and both can be used at the same time.
const LAYOUT: &str = "v1";

/// What happened to an entry that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Put {
    /// It is on disk.
    Written,
    /// The cache is off.
    Off,
    /// It is larger than the cap.
    TooLarge,
    /// The folder is not to be trusted or could not be written; see [`CacheStats::last_error`].
    Failed,
}

/// What one [`DiskCache`] has done since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Entries found.
    pub hits: u64,
    /// Entries not found, for whatever reason.
    pub misses: u64,
    /// Entries written.
    pub writes: u64,
    /// Entries removed to keep below the cap.
    pub evictions: u64,
    /// Entries found damaged.
    pub corrupt: u64,
    /// Files and folders that were not used because they are not to be trusted.
    pub refused: u64,
    /// Failures of the system, and settings that cannot be read.
    pub errors: u64,
    /// The last damage, refusal or failure, in words.
    pub last_error: Option<String>,
}

/// A store of compiled kernels on disk, shared by all processes of a user.
///
/// ```
/// use tilewright_cuda::{DiskCache, Entry, Key, Put};
///
/// # let folder = tempfile::tempdir()?;
/// let cache = DiskCache::at(folder.path());
/// let key = Key::builder().field("ptx", ".version 8.0 …").field("target", "sm_90a").finish();
/// assert_eq!(cache.get(&key), None);
/// let entry = Entry { meta: vec![("kernel".into(), "gemm".into())], payload: b"cubin".to_vec() };
/// assert_eq!(cache.put(&key, &entry), Put::Written);
/// assert_eq!(cache.get(&key), Some(entry));
/// assert_eq!(cache.stats().hits, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DiskCache {
    folder: Option<PathBuf>,
    cap: u64,
    counters: Counters,
    ledger: Mutex<Ledger>,
}

/// What is known of the size of the folder without looking.
#[derive(Debug, Default)]
struct Ledger {
    /// The size at the last look, and what this process has added since.
    total: Option<u64>,
    since_look: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    writes: AtomicU64,
    evictions: AtomicU64,
    corrupt: AtomicU64,
    refused: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
}

impl Counters {
    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a problem by its kind.
    pub(super) fn note(&self, path: &Path, problem: &Problem) {
        Counters::count(match problem {
            problem if problem.is_damage() => &self.corrupt,
            problem if problem.is_refusal() => &self.refused,
            _ => &self.errors,
        });
        *lock(&self.last_error) = Some(format!("{}: {problem}", path.display()));
    }

    pub(super) fn evicted(&self) {
        Counters::count(&self.evictions);
    }
}

/// A panic while one of these locks is held leaves numbers and a text that are still of use.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskCache {
    /// The cache of this user: in the folder that [`CacheFolder::locate`] finds, with the cap that
    /// [`CACHE_SIZE_VARIABLE`] names. A size that cannot be read counts as an error, and [`DEFAULT_CAP`] holds.
    pub fn from_environment() -> DiskCache {
        let Some(folder) = CacheFolder::locate() else { return DiskCache::off() };
        let cache = DiskCache::at(folder.path());
        match std::env::var_os(CACHE_SIZE_VARIABLE) {
            None => cache,
            Some(text) => cache.with_setting(&text.to_string_lossy()),
        }
    }

    fn with_setting(self, text: &str) -> DiskCache {
        match parse_size(text) {
            Some(cap) => self.with_cap(cap),
            None => {
                Counters::count(&self.counters.errors);
                *lock(&self.counters.last_error) = Some(format!(
                    "{CACHE_SIZE_VARIABLE} is `{text}`, expected bytes such as 512M or 2G; {DEFAULT_CAP} bytes are used"
                ));
                self
            }
        }
    }

    /// A cache in this folder, which is made when something is stored.
    pub fn at(folder: impl Into<PathBuf>) -> DiskCache {
        DiskCache { folder: Some(folder.into()), ..DiskCache::off() }
    }

    /// A cache that keeps nothing.
    pub fn off() -> DiskCache {
        DiskCache { folder: None, cap: DEFAULT_CAP, counters: Counters::default(), ledger: Mutex::default() }
    }

    /// The same cache with another limit to the bytes of all entries together.
    #[must_use]
    pub fn with_cap(self, bytes: u64) -> DiskCache {
        DiskCache { cap: bytes, ..self }
    }

    /// The folder; `None` where the cache is off.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The bytes that all entries together may have.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// What has been done so far.
    pub fn stats(&self) -> CacheStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        CacheStats {
            hits: read(&counters.hits),
            misses: read(&counters.misses),
            writes: read(&counters.writes),
            evictions: read(&counters.evictions),
            corrupt: read(&counters.corrupt),
            refused: read(&counters.refused),
            errors: read(&counters.errors),
            last_error: lock(&counters.last_error).clone(),
        }
    }

    /// The part of the folder that is the cache's own.
    pub(super) fn root(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(LAYOUT))
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The entry of this key, if there is a sound one. A damaged file is removed.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        let found = self.root().and_then(|root| self.read(&root, key));
        Counters::count(if found.is_some() { &self.counters.hits } else { &self.counters.misses });
        found
    }

    fn read(&self, root: &Path, key: &Key) -> Option<Entry> {
        let place = Place::of(root, key);
        for folder in [root, &place.folder] {
            match trust::check_folder(folder) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(problem) => {
                    self.counters.note(folder, &problem);
                    return None;
                }
            }
        }
        match entry::read(&place.file, key) {
            Ok(found) => {
                let (file, entry) = found?;
                // Marks it as used; where that is not allowed, it only leaves the cache earlier.
                let _ = file.set_modified(SystemTime::now());
                Some(entry)
            }
            Err(bad) => {
                self.counters.note(&place.file, &bad.problem);
                remove_bad(&place.file, &bad);
                None
            }
        }
    }

    /// Stores an entry, in place of any other of this key. Entries that were not used for long go where the cap is
    /// passed, never this one.
    pub fn put(&self, key: &Key, entry: &Entry) -> Put {
        let Some(root) = self.root() else { return Put::Off };
        let bytes = entry::encode(key, entry);
        let length = bytes.len() as u64;
        if length > self.cap.min(entry::MAX_BYTES) {
            return Put::TooLarge;
        }
        let place = Place::of(&root, key);
        match write(&root, &place, &bytes) {
            Ok(()) => {
                Counters::count(&self.counters.writes);
                self.account(&root, &place.file, length);
                Put::Written
            }
            Err(problem) => {
                self.counters.note(&place.file, &problem);
                Put::Failed
            }
        }
    }

    /// Keeps below the cap. Looking at every file for every entry would make a thousand kernels cost a million looks, so
    /// sizes are added up here, and others' entries are seen at the next look.
    fn account(&self, root: &Path, written: &Path, bytes: u64) {
        let mut ledger = lock(&self.ledger);
        let since_look = ledger.since_look + bytes;
        *ledger = match ledger.total.map(|total| total + bytes) {
            Some(total) if total <= self.cap && since_look <= self.cap / 10 => {
                Ledger { total: Some(total), since_look }
            }
            _ => Ledger { total: Some(upkeep::tidy(root, self.cap, written, &self.counters)), since_look: 0 },
        };
    }
}

/// Where an entry lies.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) file: PathBuf,
}

impl Place {
    fn of(root: &Path, key: &Key) -> Place {
        let name = key.to_string();
        let folder = root.join(&name[..2]);
        let file = folder.join(format!("{name}.{EXTENSION}"));
        Place { folder, file }
    }
}

/// What follows the key in the name of an entry's file.
pub(super) const EXTENSION: &str = "bin";

/// How the name of an unfinished file begins.
pub(super) const UNFINISHED: &str = ".tmp-";

/// A name that no other writer has, in this process, another, or another machine on the same disk.
fn unfinished_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().build_hasher().finish();
    format!("{UNFINISHED}{}-{count}-{random:016x}", std::process::id())
}

fn write(root: &Path, place: &Place, bytes: &[u8]) -> Result<(), Problem> {
    // Another process may clear the cache between any two steps: then begin again, but not for ever.
    const ATTEMPTS: usize = 4;
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        last = write_once(root, place, bytes);
        match &last {
            Err(Problem::Io { kind: io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists, .. }) => {}
            _ => break,
        }
    }
    last
}

fn write_once(root: &Path, place: &Place, bytes: &[u8]) -> Result<(), Problem> {
    trust::make_folder(root)?;
    trust::make_folder(&place.folder)?;
    let unfinished = place.folder.join(unfinished_name());
    let fill = |mut file: File| {
        file.write_all(bytes)?;
        // The clock of `touch on use`, finer than the one that the system stamps files with.
        let _ = file.set_modified(SystemTime::now());
        drop(file);
        fs::rename(&unfinished, &place.file)
    };
    let file = trust::create_file(&unfinished)?;
    fill(file).map_err(|error| {
        let _ = fs::remove_file(&unfinished);
        error.into()
    })
}

/// Removes a damaged file, unless a good one has taken its place meanwhile.
pub(super) fn remove_bad(path: &Path, bad: &Bad) -> bool {
    let Some(file) = bad.file.as_ref().filter(|_| bad.problem.is_damage()) else { return false };
    let still = fs::symlink_metadata(path).is_ok_and(|metadata| Identity::of(&metadata) == *file);
    still && fs::remove_file(path).is_ok()
}

/// `512M`, `2G`, `1GiB`, `4096`.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_uppercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim_start() {
        "" | "B" => 0,
        unit => {
            let rest = unit.get(1..)?;
            ["", "B", "IB"].contains(&rest).then_some(())?;
            "KMGT".find(unit.get(..1)?)? + 1
        }
    };
    number.parse::<u64>().ok()?.checked_mul(1 << (10 * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("512M", 512 << 20),
            ("2G", 2 << 30),
            (" 3 gib ", 3 << 30),
            ("1t", 1 << 40),
            ("7KB", 7 << 10),
            ("9b", 9),
        ] {
            assert_eq!(parse_size(text), Some(size), "{text}");
        }
        for text in
            ["", "M", "-1", "1.5G", "1X", "1MM", "1 M B", "99999999999999999999", "17179869184G", "1Ä", "é"]
        {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_that_cannot_be_read_is_said_and_the_default_holds() {
        let cache = DiskCache::at("nowhere").with_setting("lots");
        assert_eq!(cache.cap(), DEFAULT_CAP);
        let stats = cache.stats();
        assert_eq!(stats.errors, 1);
        let reason = stats.last_error.unwrap();
        assert!(reason.starts_with("TILEWRIGHT_CACHE_SIZE is `lots`, expected"), "{reason}");
        assert_eq!(DiskCache::at("nowhere").with_setting("2G").cap(), 2 << 30);
    }

    #[test]
    fn names_of_unfinished_files_differ_and_are_recognised() {
        let names: std::collections::BTreeSet<_> = (0..1000).map(|_| unfinished_name()).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| upkeep::is_unfinished(name)));
    }

    #[test]
    fn a_bad_file_is_removed_only_while_it_is_the_bad_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let key = Key::builder().finish();
        fs::write(&path, b"bad").unwrap();
        let Err(bad) = entry::read(&path, &key) else { panic!("a bad file was read") };
        // Another writer's good entry arrives by rename between the read and the removal.
        fs::write(folder.path().join("new"), entry::encode(&key, &Entry::default())).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(!remove_bad(&path, &bad));
        assert!(path.exists());
        fs::write(&path, b"bad again").unwrap();
        let Err(bad) = entry::read(&path, &key) else { panic!("a bad file was read") };
        assert!(remove_bad(&path, &bad));
        assert!(!path.exists());
    }
}
