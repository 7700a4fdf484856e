//! The program that torch and Triton are peers through, as far as an interpreter without them runs it; with torch, its functions on this
//! computer. Where there is no interpreter, or no torch, these tests are shown as ignored.
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
    let found = python.clone().unwrap_or_default();
    let with_torch = python.is_some_and(|python| runs(&python, "import torch"));
    let torch = Trial::test("torch_is_right_in_every_op", move || torch_is_right_in_every_op(&found))
        .with_ignored_flag(!with_torch);
    libtest_mimic::run(&arguments, trials.into_iter().chain([torch]).collect()).exit_code()
}

/// Whether an interpreter runs these words.
fn runs(python: &Path, words: &str) -> bool {
    let output = Command::new(python).args(["-c", words]).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// The first in the path that runs.
fn python() -> Option<PathBuf> {
    let works = |path: &PathBuf| runs(path, "import json, os, sys, time");
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

/// What torch computes is what the names say, in float64, and time is taken of it.
fn torch_is_right_in_every_op(python: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("peers.py");
    std::fs::write(&path, PEERS)?;
    let mut child = Command::new(python)
        .arg("-u")
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut ask = |request: String| -> Result<serde_json::Value, Failed> {
        writeln!(input, "{request}")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    let hello = ask("{\"hello\": 1, \"peer\": \"torch\", \"device\": null}".to_owned())?;
    assert_eq!(hello["protocol"], 1, "{hello}");
    let (_, arrays) = PEERS.split_once("ARRAYS = {\n").unwrap();
    let (arrays, _) = arrays.split_once("\n}\n").unwrap();
    let ops: Vec<&str> = arrays.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert!(ops.len() > 30, "{ops:?}");
    for op in ops {
        for (dtype, most) in [("f32", 1e-3), ("bf16", 1e-2)] {
            // To bf16.
            let most = if op == "convert" { 1e-2 } else { most };
            let depth = if op == "matmul-tile" { 48 } else { 0 };
            let k = if op == "topk" { 8 } else { 0 };
            let case = serde_json::json!({
                "op": op, "peer": "torch", "dtype": dtype, "rows": 33, "columns": 256, "depth": depth, "k": k, "copies": 2,
                "clock": "device", "seed": 1,
            });
            let ready = ask(case.to_string())?;
            // What torch does in another way is said.
            if op == "layernorm-backward" && dtype == "bf16" {
                assert!(ready["unsupported"].as_str().unwrap_or_default().contains("in 16 bits"), "{ready}");
                continue;
            }
            assert_eq!(ready["copies"], 2, "{op} {dtype}: {ready}");
            let checked = ask("{\"check\": true}".to_owned())?;
            let error = checked["relative_error"].as_f64().unwrap_or(f64::NAN);
            assert!(error < most, "{op} {dtype}: {checked}");
            let measured = ask("{\"measure\": 0.0}".to_owned())?;
            assert!(measured["us"].as_f64().unwrap_or(0.0) > 0.0, "{op} {dtype}: {measured}");
        }
    }
    drop(input);
    assert!(child.wait()?.success());
    Ok(())
}
