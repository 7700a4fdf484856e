//! Folders that cannot take what is to be stored: full, gone, or not folders at all.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use libtest_mimic::Trial;
use tilewright_cuda::{DiskCache, Problem, Put};

use super::{FOLDER, ROLE, entry, files, key, played, this_program, trial};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("a_full_disk_is_survived", full_disk).with_ignored_flag(!can_mount()),
        trial("a_limit_to_the_size_of_files_is_survived", limited_files).with_ignored_flag(!cfg!(unix)),
        trial("a_folder_removed_while_in_use_is_made_again", removed_while_in_use),
        trial("a_file_where_the_folder_should_be_is_survived", file_in_the_way),
    ]
}

/// A shell that becomes this program on a small disk, after what `prepare` says.
fn on_small_disk(mut shell: Command, prepare: &str, folder: &Path) -> String {
    let script = format!("{prepare} && exec \"$0\"");
    shell.args(["-c", &script]).arg(this_program()).env(ROLE, "small disk").env(FOLDER, folder);
    played(&shell.output().unwrap())
}

/// Stores what fits and what does not; says why the latter failed.
pub(super) fn on_a_small_disk(folder: &Path) {
    let cache = DiskCache::at(folder);
    assert_eq!(cache.put(&key(1), &entry(1, 1000)), Put::Written);
    for _ in 0..3 {
        assert_eq!(cache.put(&key(2), &entry(2, 1 << 20)), Put::Failed);
        assert_eq!(cache.get(&key(2)), None);
    }
    // What did not fit takes no room, and the rest goes on.
    assert_eq!(files(folder).len(), 1, "{:?}", files(folder));
    assert_eq!(cache.put(&key(3), &entry(3, 1000)), Put::Written);
    assert_eq!((cache.get(&key(1)), cache.get(&key(3))), (Some(entry(1, 1000)), Some(entry(3, 1000))));
    // An entry that cannot be replaced stays what it was.
    assert_eq!(cache.put(&key(1), &entry(1, 1 << 20)), Put::Failed);
    assert_eq!(cache.get(&key(1)), Some(entry(1, 1000)));
    assert_eq!(cache.verify(), []);
    let stats = cache.stats();
    assert_eq!((stats.writes, stats.errors, stats.corrupt), (2, 4, 0));
    println!("{}", stats.last_error.unwrap());
}

/// Whether a disk of a few pages can be mounted here, in a name space of its own.
fn can_mount() -> bool {
    let script = "mount -t tmpfs -o size=64k none \"$0\"";
    let folder = tempfile::tempdir().unwrap();
    let mount = Command::new("unshare").args(["-Urm", "sh", "-c", script]).arg(folder.path()).output();
    mount.is_ok_and(|output| output.status.success())
}

fn full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("unshare");
    shell.args(["-Urm", "sh"]);
    let mount = format!("mount -t tmpfs -o size=256k,mode=0700 none \"${FOLDER}\"");
    let text = on_small_disk(shell, &mount, folder.path());
    assert!(text.contains("No space left on device"), "{text}");
}

fn limited_files() {
    let folder = tempfile::tempdir().unwrap();
    // Without the trap the system would end the process before it sees an error.
    let text = on_small_disk(Command::new("sh"), "trap '' XFSZ && ulimit -f 64", folder.path());
    assert!(text.contains("File too large"), "{text}");
}

fn removed_while_in_use() {
    const ROUNDS: u64 = 1000;
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("cache");
    let cache = DiskCache::at(&folder);
    let done = AtomicBool::new(false);
    let mut removals = 0u64;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let number = (round * 2 + worker) % 50;
                        let _ = cache.put(&key(number), &entry(number, 100));
                        let found = cache.get(&key(number));
                        assert!(found.is_none_or(|found| found == entry(number, 100)));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Moved away first: to remove it where it is would fail whenever a file arrives meanwhile.
                let aside = parent.path().join(format!("aside {removals}"));
                if fs::rename(&folder, &aside).is_ok() {
                    // A file that was on its way may still arrive; the rest is removed with the parent.
                    let _ = fs::remove_dir_all(&aside);
                    removals += 1;
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let stats = cache.stats();
    assert!(stats.corrupt == 0 && stats.refused == 0, "{stats:?}");
    // A writer that finds its folder gone begins again. To fail it must be struck at every attempt, which is rare; were
    // there one attempt only, more than one removal in ten would do it.
    assert!(stats.errors * 10 < removals, "{stats:?} after {removals} removals");
    assert_eq!(cache.put(&key(1), &entry(1, 1)), Put::Written);
    assert_eq!(cache.get(&key(1)), Some(entry(1, 1)));
}

fn file_in_the_way() {
    let parent = tempfile::tempdir().unwrap();
    for (in_the_way, folder) in [("cache", "cache"), ("cache", "cache/deeper"), ("other/v1", "other")] {
        let in_the_way = parent.path().join(in_the_way);
        fs::create_dir_all(in_the_way.parent().unwrap()).unwrap();
        fs::write(&in_the_way, b"mine").unwrap();
        let cache = DiskCache::at(parent.path().join(folder));
        assert!(cache.check().is_err());
        assert_eq!(cache.put(&key(1), &entry(1, 1)), Put::Failed);
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(cache.list(), []);
        let [(path, problem)] = &cache.verify()[..] else { panic!("{:?}", cache.verify()) };
        assert!(matches!(problem, Problem::NotAFolder | Problem::Io { .. }), "{}: {problem}", path.display());
        assert_eq!(cache.clear().files, 0);
        let stats = cache.stats();
        assert_eq!((stats.errors + stats.refused, stats.misses), (2, 1), "{stats:?}");
        assert!(stats.last_error.is_some());
        assert_eq!(fs::read(&in_the_way).unwrap(), b"mine");
    }
    let nowhere = DiskCache::at(PathBuf::new());
    assert_eq!(nowhere.get(&key(1)), None);
}
