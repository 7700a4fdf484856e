//! The disk cache when things go wrong: damaged files, killed writers, many processes, full disks, wrong permissions.
//!
//! Some of it needs processes that can be killed or limited: they are this program again, with a role in the environment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod damage;
mod disk;
#[cfg(unix)]
mod permissions;
mod processes;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_cuda::{DiskCache, Entry, Key};

/// Which part a process plays, and in which folder.
const ROLE: &str = "TILEWRIGHT_TEST_ROLE";
const FOLDER: &str = "TILEWRIGHT_TEST_FOLDER";
/// A number that makes processes of one role differ.
const SEED: &str = "TILEWRIGHT_TEST_SEED";

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
        let seed = std::env::var(SEED).map_or(0, |seed| seed.parse().unwrap());
        play(&role, &folder, seed);
        return ExitCode::SUCCESS;
    }
    let mut trials = damage::trials();
    trials.extend(disk::trials());
    trials.extend(processes::trials());
    #[cfg(unix)]
    trials.extend(permissions::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn play(role: &str, folder: &Path, seed: u64) {
    match role {
        "writer" => processes::write_for_ever(folder, seed),
        "hammer" => processes::hammer(folder, seed),
        "vandal" => processes::vandalise(folder, seed),
        "small disk" => disk::on_a_small_disk(folder),
        #[cfg(unix)]
        "reader" => permissions::read_without_writing(folder),
        other => panic!("no role {other}"),
    }
}

/// A trial that fails by panicking.
fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok::<(), Failed>(())
    })
}

/// This program in another role.
fn process(program: impl AsRef<OsStr>, role: &str, folder: &Path, seed: u64) -> Command {
    let mut command = Command::new(program);
    command.env(ROLE, role).env(FOLDER, folder).env(SEED, seed.to_string());
    command
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// What a process that played its part to the end has written.
fn played(output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

fn key(number: u64) -> Key {
    Key::builder().field("number", number.to_le_bytes()).finish()
}

/// What belongs to a key: any mixture of two entries would show.
fn entry(number: u64, bytes: usize) -> Entry {
    let mut random = Random(number + 1);
    let payload = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(bytes).collect();
    Entry { meta: vec![("number".into(), number.to_string())], payload }
}

/// The files under the cache's own folder, whatever they are.
fn files(folder: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
    };
    list(&folder.join("v1")).iter().flat_map(|shard| list(shard)).collect()
}

fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp-"))
}

/// The file of the only entry.
fn only_file(cache: &DiskCache) -> PathBuf {
    let [info] = &cache.list()[..] else { panic!("expected one entry") };
    info.path.clone()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
