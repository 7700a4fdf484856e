//! Whose files are read, and what becomes of a folder that cannot be written.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use libtest_mimic::Trial;
use tilewright_cuda::{DiskCache, Problem, Put};

use super::{entry, files, key, only_file, played, process, this_program, trial};

/// Somebody who is neither root nor this user.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("folders_and_files_are_private", private),
        trial("what_others_can_write_is_refused", others_can_write),
        trial("links_are_not_followed", links),
        trial("a_pipe_in_the_place_of_an_entry_does_not_hang", pipe),
        trial("the_named_folder_may_be_a_link_or_open_to_others", named_folder),
        trial("a_folder_that_cannot_be_written_is_still_read", read_only),
        // To give a folder away takes root.
        trial("what_belongs_to_others_is_refused", belongs_to_others).with_ignored_flag(!is_root()),
        trial("what_belongs_to_root_is_read_by_all", belongs_to_root).with_ignored_flag(!is_root()),
    ]
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A cache with one entry, its folder, the cache's own folder in that, and the entry's folder and file.
struct Example {
    _parent: tempfile::TempDir,
    folder: PathBuf,
    own: PathBuf,
    shard: PathBuf,
    file: PathBuf,
}

impl Example {
    fn new() -> Example {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("cache");
        let cache = DiskCache::at(&folder);
        assert_eq!(cache.put(&key(1), &entry(1, 100)), Put::Written);
        let file = only_file(&cache);
        let shard = file.parent().unwrap().to_owned();
        Example { _parent: parent, own: folder.join("v1"), folder, shard, file }
    }

    fn is_used(&self) -> bool {
        let cache = DiskCache::at(&self.folder);
        let found = cache.get(&key(1));
        assert!(found.is_none() || found == Some(entry(1, 100)));
        found.is_some()
    }

    /// Refused, counted, said, and not touched.
    fn is_refused(&self, words: &str) {
        let cache = DiskCache::at(&self.folder);
        assert_eq!(cache.get(&key(1)), None, "{words}");
        let stats = cache.stats();
        assert_eq!((stats.misses, stats.refused, stats.corrupt, stats.errors), (1, 1, 0, 0), "{words}");
        assert!(stats.last_error.as_ref().is_some_and(|text| text.contains(words)), "{stats:?}");
        let found = cache.repair();
        assert!(found.iter().any(|(_, problem)| problem.is_refusal()), "{words}: {found:?}");
        assert!(fs::symlink_metadata(&self.file).is_ok(), "{words}");
    }
}

fn private() {
    let example = Example::new();
    let modes = [&example.folder, &example.own, &example.shard, &example.file];
    let modes = modes.map(|path| fs::metadata(path).unwrap().mode() & 0o7777);
    assert_eq!(modes.map(|mode| format!("{mode:o}")), ["700", "700", "700", "600"]);
}

fn others_can_write() {
    let example = Example::new();
    for path in [&example.own, &example.shard, &example.file] {
        let before = fs::metadata(path).unwrap().mode();
        for others in [0o020, 0o002, 0o022, 0o077] {
            mode(path, before | others);
            example.is_refused("chmod go-w");
        }
        // Others may look.
        mode(path, before | 0o055);
        assert!(example.is_used());
        mode(path, before);
        assert!(example.is_used());
    }
    mode(&example.own, 0o777);
    let cache = DiskCache::at(&example.folder);
    assert_eq!(cache.check(), Err(Problem::Mode { found: 0o777 }));
    assert_eq!(cache.put(&key(2), &entry(2, 1)), Put::Failed);
    assert_eq!((cache.list(), cache.clear().files), (vec![], 0));
    assert_eq!(files(&example.folder).len(), 1);
}

fn links() {
    let elsewhere = tempfile::tempdir().unwrap();
    for part in [|example: &Example| &example.own, |example| &example.shard, |example| &example.file]
        as [fn(&_) -> &PathBuf; 3]
    {
        let example = Example::new();
        let path = part(&example);
        let moved = elsewhere.path().join(path.file_name().unwrap());
        fs::rename(path, &moved).unwrap();
        symlink(&moved, path).unwrap();
        example.is_refused("not a");
        let cache = DiskCache::at(&example.folder);
        assert_eq!(cache.clear().files, 0);
        assert_eq!(cache.list(), []);
        // A write may replace a link to a file, but never goes through a link.
        let outcome = cache.put(&key(1), &entry(1, 100));
        assert_eq!(outcome, if path == &example.file { Put::Written } else { Put::Failed });
        fs::remove_file(path).unwrap();
        fs::rename(&moved, path).unwrap();
        assert!(example.is_used(), "what the link led to is as it was");
    }
}

fn pipe() {
    let example = Example::new();
    fs::remove_file(&example.file).unwrap();
    played(&Command::new("mkfifo").arg(&example.file).output().unwrap());
    mode(&example.file, 0o600);
    // A reader that waits for a writer would wait for ever: a failure here must not hang the others.
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        example.is_refused("not a regular file");
        assert_eq!(DiskCache::at(&example.folder).verify(), [(example.file.clone(), Problem::NotAFile)]);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(30)).unwrap();
}

fn named_folder() {
    let example = Example::new();
    for open in [0o777, 0o1777, 0o775] {
        mode(&example.folder, open);
        assert!(example.is_used(), "{open:o}");
    }
    let link = example.folder.with_file_name("link");
    symlink(&example.folder, &link).unwrap();
    assert_eq!(DiskCache::at(link).get(&key(1)), Some(entry(1, 100)));
}

/// A copy of this program where anybody can start it.
fn program_for_all(folder: &Path) -> PathBuf {
    mode(folder, 0o755);
    let copy = folder.join("program");
    // By another process: one of ours that another thread starts meanwhile would keep a copy of our own open for writing, and what
    // is open for writing is not executed.
    let status = Command::new("install").args(["-m", "755"]).args([&this_program(), &copy]).status().unwrap();
    assert!(status.success());
    copy
}

/// In a cache with entry 1 that it can read and not write.
pub(super) fn read_without_writing(folder: &Path) {
    let cache = DiskCache::at(folder);
    assert_eq!(cache.get(&key(1)), Some(entry(1, 100)));
    assert_eq!(cache.put(&key(1), &entry(1, 100)), Put::Failed);
    assert_eq!(cache.put(&key(2), &entry(2, 100)), Put::Failed);
    assert_eq!(cache.get(&key(2)), None);
    assert_eq!(cache.list().len(), 1);
    assert_eq!(cache.verify(), []);
    assert_eq!(cache.clear().files, 0);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.writes, stats.refused, stats.corrupt), (1, 1, 0, 0, 0));
    assert_eq!(stats.errors, 3, "{stats:?}");
    assert!(stats.last_error.is_some_and(|text| text.contains("ermission denied")));
}

fn read_only() {
    let example = Example::new();
    let program_folder = tempfile::tempdir().unwrap();
    let program = program_for_all(program_folder.path());
    let mut reader = process(program, "reader", &example.folder, 0);
    if is_root() {
        // Nothing is read-only for root, so somebody else plays the owner.
        for path in [&example.folder, &example.own, &example.shard, &example.file] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        mode(example.folder.parent().unwrap(), 0o755);
        reader.uid(NOBODY).gid(NOBODY);
    }
    let folders = [&example.folder, &example.own, &example.shard];
    folders.iter().for_each(|path| mode(path, 0o500));
    let output = reader.output().unwrap();
    folders.iter().for_each(|path| mode(path, 0o700));
    played(&output);
}

fn belongs_to_others() {
    for part in [|example: &Example| &example.own, |example| &example.shard, |example| &example.file]
        as [fn(&_) -> &PathBuf; 3]
    {
        let example = Example::new();
        chown(part(&example), Some(NOBODY), None).unwrap();
        example.is_refused("belongs to user 65534, expected 0 or root");
        chown(part(&example), Some(0), None).unwrap();
        assert!(example.is_used());
    }
}

fn belongs_to_root() {
    let example = Example::new();
    let program_folder = tempfile::tempdir().unwrap();
    let program = program_for_all(program_folder.path());
    for path in [example.folder.parent().unwrap(), &example.folder, &example.own, &example.shard] {
        mode(path, 0o755);
    }
    mode(&example.file, 0o644);
    let before = fs::metadata(&example.file).unwrap().modified().unwrap();
    played(&process(program, "reader", &example.folder, 0).uid(NOBODY).gid(NOBODY).output().unwrap());
    assert_eq!(fs::metadata(&example.file).unwrap().modified().unwrap(), before);
}
