//! The pack as a folder: `run.sh`, the list that it works through, and the programs.
//!
//! `programs.tsv` has a line for each: kind, name, seconds, sanitizers, tests with threads, data, arguments, what it proves, with tabs
//! between and `-` for nothing. Data is `VARIABLE=FOLDER`, and the folder is in `data`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::targets::{Data, Item};

const RUNNER: &str = include_str!("run.sh");

const LIST: &str = "programs.tsv";
const FOLDER: &str = "bin";
const DATA: &str = "data";

/// Where a program goes.
pub(crate) fn program_path(out: &Path, item: &Item<'_>) -> PathBuf {
    out.join(FOLDER).join(item.name())
}

/// Where it is if it is compressed.
pub(crate) fn compressed(program: &Path) -> PathBuf {
    let mut path = program.as_os_str().to_owned();
    path.push(".gz");
    path.into()
}

/// What a folder of the checkout is called in the pack.
fn data_name(data: Data) -> String {
    data.folder.replace('/', "-")
}

/// Makes the folder, without what an earlier pack had.
pub(crate) fn prepare(out: &Path) -> Result<(), Failure> {
    for folder in [FOLDER, DATA].map(|name| out.join(name)) {
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(Failure::file(&folder))?;
        }
        fs::create_dir_all(&folder).map_err(Failure::file(&folder))?;
    }
    Ok(())
}

/// Copies what a program reads; the bytes of it.
pub(crate) fn copy_data(out: &Path, root: &Path, data: Data) -> Result<u64, Failure> {
    copy_folder(&root.join(data.folder), &out.join(DATA).join(data_name(data)))
}

fn copy_folder(from: &Path, to: &Path) -> Result<u64, Failure> {
    fs::create_dir_all(to).map_err(Failure::file(to))?;
    let mut bytes = 0;
    for entry in fs::read_dir(from).map_err(Failure::file(from))? {
        let entry = entry.map_err(Failure::file(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        bytes += if path.is_dir() {
            copy_folder(&path, &target)?
        } else {
            fs::copy(&path, &target).map_err(Failure::file(&path))?
        };
    }
    Ok(bytes)
}

/// Writes the runner and its list.
pub(crate) fn write(out: &Path, items: &[Item<'_>]) -> Result<(), Failure> {
    let list = out.join(LIST);
    fs::write(&list, items.iter().map(line).collect::<String>()).map_err(Failure::file(&list))?;
    let runner = out.join("run.sh");
    fs::write(&runner, RUNNER).map_err(Failure::file(&runner))?;
    make_executable(&runner)
}

fn line(item: &Item<'_>) -> String {
    let some = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join(" ") };
    let sanitizers = some(item.rule.sanitizers.iter().map(ToString::to_string).collect());
    let threaded = some(item.rule.threaded.iter().map(ToString::to_string).collect());
    let arguments = some(item.rule.arguments.iter().map(ToString::to_string).collect());
    let data = item.rule.data.map_or("-".to_owned(), |data| format!("{}={}", data.variable, data_name(data)));
    let (kind, name, seconds, proves) = (item.target.kind, item.name(), item.rule.seconds, item.rule.proves);
    format!("{kind}\t{name}\t{seconds}\t{sanitizers}\t{threaded}\t{data}\t{arguments}\t{proves}\n")
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(Failure::file(path))
}

#[cfg(not(unix))]
fn make_executable(_path: &Path) -> Result<(), Failure> {
    Ok(())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::cargo::{BuildTarget, Kind};
    use crate::targets;
    use std::process::{Command, Output, Stdio};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Held while a program is written, and while one is started. A process that starts in the meantime would keep the file open for
    /// writing for a moment, in which nobody can execute it.
    fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pack whose programs are scripts.
    struct Pack {
        folder: tempfile::TempDir,
    }

    impl Pack {
        fn new(programs: &[(&str, &str, u32, &str, &str)]) -> Pack {
            let folder = tempfile::tempdir().unwrap();
            prepare(folder.path()).unwrap();
            {
                let _turn = turn();
                write(folder.path(), &[]).unwrap();
            }
            let mut list = String::new();
            for (kind, name, seconds, sanitizers, script) in programs {
                list += &format!("{kind}\t{name}\t{seconds}\t{sanitizers}\t-\t-\t-\tsomething\n");
                Pack::script(&folder.path().join(FOLDER).join(name), script);
            }
            fs::write(folder.path().join(LIST), list).unwrap();
            Pack { folder }
        }

        fn script(path: &Path, text: &str) {
            let _turn = turn();
            fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
            make_executable(path).unwrap();
        }

        /// Runs it from elsewhere, with `tools` before all other programs.
        fn run(&self, arguments: &[&str]) -> (Output, String) {
            let tools = self.folder.path().join("tools");
            let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
            let mut command = Command::new("sh");
            command
                .arg(self.folder.path().join("run.sh"))
                .args(arguments)
                .current_dir("/")
                .env("PATH", path)
                .env("OUT", self.folder.path().join("out"))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let running = {
                let _turn = turn();
                command.spawn().unwrap()
            };
            let output = running.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            (output, text)
        }

        fn log(&self, name: &str) -> String {
            fs::read_to_string(self.folder.path().join("out/logs").join(name)).unwrap_or_default()
        }
    }

    #[test]
    fn the_list_has_all_that_the_runner_needs() {
        let target =
            BuildTarget { package: "tilewright".to_owned(), kind: Kind::Bin, name: "tilewright".to_owned() };
        let rule = targets::RULES.iter().find(|rule| rule.kind == Kind::Bin).unwrap();
        let item = Item { target: &target, rule };
        assert_eq!(
            line(&item),
            "bin\tbin.tilewright\t60\t-\t-\t-\tdoctor\tthe program finds driver and GPU\n"
        );
    }

    #[test]
    fn data_travels_and_is_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("tests/ptx/deep")).unwrap();
        fs::write(root.path().join("tests/ptx/deep/one.ptx"), "text").unwrap();
        let data = Data { variable: "CORPUS", folder: "tests/ptx" };
        let pack =
            Pack::new(&[("test", "reads", 20, "-", "test \"$(cat \"$CORPUS/deep/one.ptx\")\" = text")]);
        let list = pack.folder.path().join(LIST);
        let text = fs::read_to_string(&list).unwrap();
        fs::write(&list, text.replace("\t-\t-\t-\t-\t", "\t-\t-\tCORPUS=tests-ptx\t-\t")).unwrap();
        assert_eq!(pack.run(&[]).0.status.code(), Some(1), "without the data");
        assert_eq!(copy_data(pack.folder.path(), root.path(), data).unwrap(), 4);
        let (output, text) = pack.run(&[]);
        assert_eq!(output.status.code(), Some(0), "{text}");
    }

    #[test]
    fn everything_is_run_and_failures_are_counted() {
        let pack = Pack::new(&[
            ("test", "good", 20, "-", "test \"$TILEWRIGHT_REQUIRE_GPU\" = 1"),
            ("test", "bad", 20, "-", "echo because of this; exit 3"),
            ("test", "slow", 1, "-", "sleep 30"),
            ("bench", "speed", 20, "-", "exit 9"),
        ]);
        let (output, text) = pack.run(&[]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("because of this"), "{text}");
        let table: Vec<Vec<&str>> = text
            .lines()
            .skip_while(|line| !line.starts_with("result"))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(table[1][..1], ["ok"], "{text}");
        assert_eq!(table[2][..2], ["exit", "3"], "{text}");
        assert_eq!(table[3][..2], ["timed", "out"], "{text}");
        assert!(text.contains("2 of 3 failed"), "{text}");
        assert_eq!(pack.log("bad.log"), "because of this\n");
    }

    #[test]
    fn benches_run_when_asked_and_are_told_where_to_write() {
        let pack = Pack::new(&[
            ("test", "good", 20, "-", "exit 0"),
            ("bench", "speed", 20, "-", "test \"$1\" = --json && echo '{}' > \"$2\""),
        ]);
        let (output, text) = pack.run(&["--bench"]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(!text.contains("good"), "{text}");
        assert!(pack.folder.path().join("out/speed.json").is_file(), "{text}");
    }

    #[test]
    fn sanitizers_run_what_they_may() {
        let pack = Pack::new(&[
            ("test", "clean", 20, "memcheck racecheck", "exit 0"),
            ("test", "never", 20, "-", "exit 1"),
        ]);
        let (output, text) = pack.run(&["--sanitize"]);
        // There may be a real one on this machine, which then refuses a program without CUDA; either is a failure that is told.
        assert_ne!(output.status.code(), Some(0), "{text}");
        fs::create_dir(pack.folder.path().join("tools")).unwrap();
        Pack::script(
            &pack.folder.path().join("tools/compute-sanitizer"),
            "echo \"$*\"; while [ \"${1#-}\" != \"$1\" ]; do shift; done; exec \"$@\"",
        );
        let (output, text) = pack.run(&["--sanitize"]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let memcheck = pack.log("clean.memcheck.log");
        assert!(memcheck.contains("--tool=memcheck --leak-check=full"), "{memcheck}");
        assert!(memcheck.contains("--error-exitcode=99"), "{memcheck}");
        assert!(!pack.log("clean.racecheck.log").contains("leak-check"), "{text}");
        assert!(!text.contains("never"), "{text}");
    }

    #[test]
    fn sanitizers_see_one_test_at_a_time_and_none_with_threads() {
        let pack = Pack::new(&[
            ("test", "tests", 20, "memcheck racecheck", "echo \"given: $*\""),
            ("example", "shows", 20, "racecheck", "echo \"given: $*\""),
        ]);
        let list = pack.folder.path().join(LIST);
        let text = fs::read_to_string(&list).unwrap();
        fs::write(&list, text.replacen("racecheck\t-\t", "racecheck\ta::many b::many\t", 1)).unwrap();
        fs::create_dir(pack.folder.path().join("tools")).unwrap();
        Pack::script(
            &pack.folder.path().join("tools/compute-sanitizer"),
            "while [ \"${1#-}\" != \"$1\" ]; do shift; done; exec \"$@\"",
        );
        let (output, text) = pack.run(&["--sanitize"]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert_eq!(pack.log("tests.memcheck.log"), "given: --test-threads=1\n");
        assert_eq!(
            pack.log("tests.racecheck.log"),
            "given: --test-threads=1 --skip=a::many --skip=b::many\n"
        );
        assert_eq!(pack.log("shows.racecheck.log"), "given: \n");
        // Without one, all at once.
        assert_eq!(pack.run(&[]).0.status.code(), Some(0));
        assert_eq!(pack.log("tests.log"), "given: \n");
    }

    #[test]
    fn compressed_programs_are_unpacked_by_who_runs_them() {
        let pack = Pack::new(&[("test", "good", 20, "-", "exit 0"), ("bench", "speed", 20, "-", "exit 0")]);
        let programs = pack.folder.path().join(FOLDER);
        for name in ["good", "speed"] {
            assert!(Command::new("gzip").arg(programs.join(name)).status().unwrap().success());
            assert!(compressed(&programs.join(name)).is_file());
        }
        for _ in 0..2 {
            let (output, text) = pack.run(&[]);
            assert_eq!(output.status.code(), Some(0), "{text}");
        }
        assert!(programs.join("good").is_file() && !programs.join("speed").exists());
        // One that cannot be unpacked is a failure.
        fs::write(compressed(&programs.join("speed")), "no archive").unwrap();
        let (output, text) = pack.run(&["--bench"]);
        assert_eq!(output.status.code(), Some(1), "{text}");
    }

    #[test]
    fn the_program_itself_gets_the_arguments_behind_two_dashes() {
        let pack = Pack::new(&[("bin", "bin.tilewright", 20, "-", "echo \"$# $2\"; exit 7")]);
        let (output, text) = pack.run(&["--", "bench", "two words", "--only"]);
        assert_eq!((output.status.code(), text.as_str()), (Some(7), "3 two words\n"));
        let (output, _) = Pack::new(&[]).run(&["--", "doctor"]);
        assert_eq!(output.status.code(), Some(126));
    }

    #[test]
    fn a_choice_that_fits_nothing_and_a_wrong_option_are_failures() {
        let pack = Pack::new(&[("test", "good", 20, "-", "exit 0")]);
        assert_eq!(pack.run(&["--only", "goo"]).0.status.code(), Some(0));
        let (output, text) = pack.run(&["--only", "nothing"]);
        assert_ne!(output.status.code(), Some(0), "{text}");
        let (output, _) = pack.run(&["--fast"]);
        assert_ne!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stderr).contains("--fast"));
    }
}
