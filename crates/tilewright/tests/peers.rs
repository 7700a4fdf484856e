//! The program that torch and Triton are peers through, as far as an interpreter without them runs it. Where there is no interpreter, these
//! tests are shown as ignored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};

const PEERS: &str = include_str!("../src/cli/bench/peer/peers.py");

/// A test with the path of an interpreter.
type Test = fn(&Path) -> Result<(), Failed>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let python = python();
    let tests: [(&str, Test); 4] = [
        ("the_program_compiles", the_program_compiles),
        ("requests_are_answered_whatever_they_are", requests_are_answered_whatever_they_are),
        ("a_broken_installation_is_none", a_broken_installation_is_none),
        ("nothing_temporary_stays", nothing_temporary_stays),
    ];
    let trials = tests.map(|(name, test)| {
        let found = python.clone().unwrap_or_default();
        Trial::test(name, move || test(&found)).with_ignored_flag(python.is_none())
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// The first in the path that runs.
fn python() -> Option<PathBuf> {
    let works = |path: &PathBuf| {
        let output =
            Command::new(path).args(["-c", "import json, os, sys, time"]).stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("python3")).find(works)
}

fn the_program_compiles(python: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("peers.py");
    std::fs::write(&path, PEERS)?;
    let output = Command::new(python).args(["-W", "error", "-m", "py_compile"]).arg(&path).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A folder with a torch that cannot be imported, for machines that have one.
fn without_torch() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("torch.py"), "print('noise')\nraise OSError('libcudart is missing')\n")
        .unwrap();
    folder
}

fn requests_are_answered_whatever_they_are(python: &Path) -> Result<(), Failed> {
    let folder = without_torch();
    let path = folder.path().join("peers.py");
    std::fs::write(&path, PEERS)?;
    let mut child = Command::new(python)
        .arg("-u")
        .arg(&path)
        .arg("--temporary")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for (request, answer) in [
        ("{\"op\": \"softmax\"}", "{\"failed\": \"ValueError: found a request before hello\"}\n"),
        ("no json", "{\"failed\": \"JSONDecodeError: "),
        ("[1]", "{\"failed\": \""),
        // What torch prints is no answer.
        (
            "{\"hello\": 1, \"peer\": \"torch\", \"device\": null}",
            "{\"missing\": \"OSError: libcudart is missing\"}\n",
        ),
    ] {
        writeln!(input, "{request}")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        assert!(line.starts_with(answer), "{request}: {line}");
    }
    // It ends with its input, and takes the file with it.
    drop(input);
    assert!(child.wait()?.success());
    assert!(!path.exists());
    Ok(())
}

/// `bench` with this interpreter and a torch that is broken.
fn bench(python: &Path, temporary: &Path) -> std::process::Output {
    let torch = without_torch();
    Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .args(["bench", "softmax", "--device", "cpu", "--rows", "3", "--columns", "5", "--rounds", "1"])
        .args(["--sample", "0", "--dtype", "f32"])
        .env("TILEWRIGHT_PYTHON", python)
        .env("PYTHONPATH", torch.path())
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn a_broken_installation_is_none(python: &Path) -> Result<(), Failed> {
    let output = bench(python, &std::env::temp_dir());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout)?;
    let first = text.lines().next().unwrap_or_default();
    let why = "not installed (OSError: libcudart is missing)";
    assert_eq!(first, format!("CPU, torch {why}, triton {why}, no GPU: times are this computer's"));
    assert!(!text.contains("time over ours"), "no ratio without a peer: {text}");
    Ok(())
}

fn nothing_temporary_stays(python: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    assert!(bench(python, folder.path()).status.success());
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
    Ok(())
}
