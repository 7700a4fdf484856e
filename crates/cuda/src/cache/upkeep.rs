//! Looking after the folder: what is in it, is it sound, and what goes when it is full.
//!
//! Only files whose names the cache gives are ever removed, only inside folders that are to be trusted, and links are
//! never followed: a cache folder that was set to somebody's home loses nothing.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::entry::{self, Bad, Problem};
use super::folder::CacheUsage;
use super::key::Key;
use super::store::{self, Counters, DiskCache};
use super::trust;

/// An unfinished file that nobody has written to for so long has no writer any more.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// An entry as [`DiskCache::list`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryInfo {
    /// Its name.
    pub key: Key,
    /// Its file.
    pub path: PathBuf,
    /// The size of the file.
    pub bytes: u64,
    /// The facts stored with it; none where they cannot be read.
    pub meta: Vec<(String, String)>,
    /// When it was written or last used.
    pub modified: SystemTime,
    /// Whether it looks sound.
    pub state: EntryState,
}

/// Whether an entry looks sound without reading all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Name, lengths and facts are right. The checksum was not computed; [`DiskCache::verify`] does that.
    Readable,
    /// It will not be used.
    Bad(Problem),
}

/// Everything in the folder, by what it is.
#[derive(Default)]
struct Contents {
    entries: Vec<Found>,
    unfinished: Vec<Found>,
    problems: Vec<(PathBuf, Problem)>,
    folders: Vec<PathBuf>,
}

struct Found {
    path: PathBuf,
    /// `None` for an unfinished file.
    key: Option<Key>,
    bytes: u64,
    modified: SystemTime,
}

impl Found {
    fn is_abandoned(&self) -> bool {
        self.modified.elapsed().is_ok_and(|age| age > ABANDONED)
    }
}

/// Whether the name is one of a file that a writer has not finished: process, counter and 16 random digits.
pub(super) fn is_unfinished(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Option<Vec<_>> = name.strip_prefix(store::UNFINISHED).map(|rest| rest.split('-').collect());
    matches!(parts.as_deref(), Some([process, count, random])
        if number(process) && number(count) && random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The key that a file is named for, if it lies in the right folder.
fn entry_key(folder: &str, name: &str) -> Option<Key> {
    let (stem, extension) = name.split_once('.')?;
    stem.parse().ok().filter(|_| extension == store::EXTENSION && stem.starts_with(folder))
}

fn is_shard(name: &str) -> bool {
    name.len() == 2 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl Contents {
    fn of(root: &Path) -> Contents {
        let mut contents = Contents::default();
        for entry in contents.open(root) {
            match entry.file_name().to_str() {
                Some(shard) if is_shard(shard) => contents.add_shard(&entry.path(), shard),
                _ => contents.problems.push((entry.path(), Problem::Stranger)),
            }
        }
        contents
    }

    /// What is in a folder, if that is to be trusted.
    fn open(&mut self, folder: &Path) -> Vec<DirEntry> {
        let list = || match trust::check_folder(folder)? {
            true => Ok::<_, Problem>(fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?),
            false => Ok(Vec::new()),
        };
        match list() {
            Ok(list) => {
                self.folders.push(folder.to_owned());
                list
            }
            // Another process has cleared the cache since the look.
            Err(Problem::Io { kind: io::ErrorKind::NotFound, .. }) => Vec::new(),
            Err(problem) => {
                self.problems.push((folder.to_owned(), problem));
                Vec::new()
            }
        }
    }

    fn add_shard(&mut self, path: &Path, shard: &str) {
        for entry in self.open(path) {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let key = entry_key(shard, name);
            if key.is_none() && !is_unfinished(name) {
                self.problems.push((entry.path(), Problem::Stranger));
                continue;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    let found = Found { path: entry.path(), key, bytes: metadata.len(), modified };
                    if key.is_some() { &mut self.entries } else { &mut self.unfinished }.push(found);
                }
                Ok(_) => self.problems.push((entry.path(), Problem::NotAFile)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.problems.push((entry.path(), error.into())),
            }
        }
    }
}

/// Sweeps up after killed writers and, where the cap is passed, removes what was not used for longest until nine tenths
/// are left, so that the next entries do not come here again. `keep` stays. Returns the bytes that are left.
pub(super) fn tidy(root: &Path, cap: u64, keep: &Path, counters: &Counters) -> u64 {
    let mut contents = Contents::of(root);
    for (path, problem) in contents.problems.iter().filter(|(_, problem)| *problem != Problem::Stranger) {
        counters.note(path, problem);
    }
    for found in contents.unfinished.iter().filter(|found| found.is_abandoned()) {
        let _ = fs::remove_file(&found.path);
    }
    let mut total = contents.entries.iter().map(|found| found.bytes).sum();
    if total <= cap {
        return total;
    }
    let goal = cap - cap / 10;
    contents.entries.sort_by_key(|found| found.modified);
    for found in contents.entries.iter().filter(|found| found.path != keep) {
        if total <= goal {
            break;
        }
        match fs::remove_file(&found.path) {
            Ok(()) => counters.evicted(),
            // Another process was faster: the bytes are gone all the same.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                counters.note(&found.path, &error.into());
                continue;
            }
        }
        total -= found.bytes;
    }
    total
}

impl DiskCache {
    fn contents(&self) -> Contents {
        self.root().map_or_else(Contents::default, |root| Contents::of(&root))
    }

    /// Whether the folder, if it exists, may be used; for a diagnosis before anything is stored.
    pub fn check(&self) -> Result<(), Problem> {
        self.root().map_or(Ok(()), |root| trust::check_folder(&root).map(|_| ()))
    }

    /// All entries, the last used first. Reads the beginning of each file only.
    pub fn list(&self) -> Vec<EntryInfo> {
        let info = |found: Found| {
            let key = found.key?;
            let (meta, state) = match entry::read_meta(&found.path, &key) {
                Ok(meta) => (meta?, EntryState::Readable),
                Err(bad) => (Vec::new(), EntryState::Bad(bad.problem)),
            };
            Some(EntryInfo {
                key,
                path: found.path,
                bytes: found.bytes,
                meta,
                modified: found.modified,
                state,
            })
        };
        let mut list: Vec<_> = self.contents().entries.into_iter().filter_map(info).collect();
        list.sort_by_key(|info| std::cmp::Reverse(info.modified));
        list
    }

    /// Reads every entry and says what is wrong in the folder: damage, what is not to be trusted, what killed writers left,
    /// and files that are not the cache's. Changes nothing.
    pub fn verify(&self) -> Vec<(PathBuf, Problem)> {
        self.inspect().into_iter().map(|(path, bad)| (path, bad.problem)).collect()
    }

    /// Like [`verify`](DiskCache::verify), and removes damaged entries and what killed writers left. What could not be
    /// removed, and what is not the cache's to remove, is there to be found again.
    pub fn repair(&self) -> Vec<(PathBuf, Problem)> {
        let repair = |(path, bad): (PathBuf, Bad)| {
            match bad.problem {
                Problem::Leftover => drop(fs::remove_file(&path)),
                _ => drop(store::remove_bad(&path, &bad)),
            }
            (path, bad.problem)
        };
        self.inspect().into_iter().map(repair).collect()
    }

    fn inspect(&self) -> Vec<(PathBuf, Bad)> {
        let contents = self.contents();
        let plain = |(path, problem)| (path, Bad { problem, file: None });
        let mut findings: Vec<_> = contents.problems.into_iter().map(plain).collect();
        for found in contents.unfinished.into_iter().filter(Found::is_abandoned) {
            findings.push(plain((found.path, Problem::Leftover)));
        }
        for found in contents.entries {
            let Some(key) = found.key else { continue };
            if let Err(bad) = entry::read(&found.path, &key) {
                findings.push((found.path, bad));
            }
        }
        findings.sort_by(|(one, _), (other, _)| one.cmp(other));
        findings
    }

    /// Removes every entry and unfinished file, and says how many and how large they were. What is not the cache's stays.
    pub fn clear(&self) -> CacheUsage {
        let contents = self.contents();
        let mut removed = CacheUsage::default();
        for found in contents.entries.iter().chain(&contents.unfinished) {
            match fs::remove_file(&found.path) {
                Ok(()) => {
                    removed.files += 1;
                    removed.bytes += found.bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.counters().note(&found.path, &error.into()),
            }
        }
        // Innermost first; one that is not empty stays, which is what should happen.
        for folder in contents.folders.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_cache_are_taken_for_its_files() {
        let key = Key::builder().finish();
        let name = key.to_string();
        let shard = &name[..2];
        assert_eq!(entry_key(shard, &format!("{name}.bin")), Some(key));
        for wrong in [name.clone(), format!("{name}.txt"), format!("{name}.bin.bin"), format!("x{name}.bin")]
        {
            assert_eq!(entry_key(shard, &wrong), None, "{wrong}");
        }
        assert_eq!(entry_key("zz", &format!("{name}.bin")), None);
        for wrong in
            [".tmp-", ".tmp-1-2", ".tmp-1-2-3", ".tmp-1-2-000000000000000g", "tmp-1-2-0000000000000000"]
        {
            assert!(!is_unfinished(wrong), "{wrong}");
        }
        assert!(is_unfinished(".tmp-1-2-0123456789abcdef"));
        assert!(is_shard("0f") && !is_shard("0F") && !is_shard("0") && !is_shard("é"));
    }
}
