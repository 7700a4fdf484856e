//! Peers that are scripts of these tests, with everything that can go wrong, and the real program as far as it runs without torch.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;

use super::super::timing::turns;
use super::*;

/// Enough for a shell on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

const HELLO: &str = r#"{"protocol": 1, "torch": "9.9", "triton": "8.8"}"#;

fn work() -> Work {
    Work {
        op: "softmax",
        dtype: "f32",
        rows: 4,
        columns: 8,
        depth: 0,
        k: 0,
        copies: 2,
        clock: Clock::Device,
        seed: 1,
    }
}

/// An interpreter that is a shell script: it is called with the program's path, which it ignores.
fn script(lines: &str) -> (TempDir, OsString) {
    let folder = tempfile::tempdir().unwrap();
    let (written, path) = (folder.path().join("text"), folder.path().join("python"));
    fs::write(&written, format!("#!/bin/sh\n{lines}\n")).unwrap();
    // By another process: what one of ours may still have open for writing is not executed.
    let status = Command::new("install").args(["-m", "755"]).args([&written, &path]).status().unwrap();
    assert!(status.success());
    (folder, path.into())
}

/// Answers every request with the next of these lines, then with silence.
fn answers(lines: &[&str]) -> (TempDir, OsString) {
    let each: Vec<String> = lines.iter().map(|line| format!("read -r request\necho '{line}'")).collect();
    script(&format!("{}\nread -r request\nsleep 100", each.join("\n")))
}

fn start(interpreter: &OsString, patience: Duration) -> Result<Peer, String> {
    Peer::start_with(interpreter.clone(), Name::Torch, Some(0), patience)
}

fn is_alive(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

fn pid(peer: &Peer) -> u32 {
    peer.child.as_ref().unwrap().0.id()
}

#[test]
fn a_peer_is_asked_by_turns() {
    let (_folder, interpreter) = answers(&[
        HELLO,
        r#"{"copies": 2}"#,
        r#"{"relative_error": 1e-7}"#,
        r#"{"us": 2.5, "launches": 4}"#,
        r#"{"us": 3.5}"#,
        r#"{"us": 4.5}"#,
    ]);
    let mut peer = start(&interpreter, PATIENT).unwrap();
    assert_eq!((peer.name(), peer.version()), (Name::Torch, "9.9"));
    peer.prepare(work()).unwrap();
    assert_eq!(peer.check(), Ok(1e-7));
    let mut entrant = peer.entrant(Duration::from_millis(1));
    let times = turns(&mut [&mut entrant], 2).remove(0).unwrap();
    // The first round is one of warming up.
    assert_eq!(times, [3.5e-6, 4.5e-6]);
}

#[test]
fn who_is_not_installed_says_why() {
    let (_folder, interpreter) = answers(&[r#"{"missing": "ModuleNotFoundError: No module named torch"}"#]);
    let error = start(&interpreter, PATIENT).unwrap_err();
    assert_eq!(error, "ModuleNotFoundError: No module named torch");
    let error = start(&"/no/such/python".into(), PATIENT).unwrap_err();
    assert!(error.starts_with("starting /no/such/python: "), "{error}");
    let (_folder, interpreter) = answers(&[r#"{"protocol": 2, "torch": "9.9"}"#]);
    let error = start(&interpreter, PATIENT).unwrap_err();
    assert!(error.contains("protocol: 2") && error.ends_with("expected its versions"), "{error}");
}

#[test]
fn silence_ends_when_the_time_is_up_and_so_does_the_process() {
    let (_folder, interpreter) = answers(&[HELLO]);
    let mut peer = start(&interpreter, PATIENT).unwrap();
    peer.patience = Duration::from_millis(100);
    let (pid, begin) = (pid(&peer), Instant::now());
    let failure = Absence::Failed("torch gave no answer in 100ms; it was ended".to_owned());
    assert_eq!(peer.prepare(work()), Err(failure));
    assert!(begin.elapsed() < Duration::from_secs(50));
    assert!(!is_alive(pid), "the process is gone, also from the table of processes");
    // The next case begins anew: with hello.
    peer.patience = PATIENT;
    assert!(peer.open().is_ok());
}

#[test]
fn a_process_ends_with_its_peer() {
    let (_folder, interpreter) = answers(&[HELLO]);
    let peer = start(&interpreter, PATIENT).unwrap();
    let (pid, program) = (pid(&peer), peer.child.as_ref().unwrap().1.path().to_owned());
    assert!(is_alive(pid) && program.exists());
    drop(peer);
    assert!(!is_alive(pid) && !program.exists());
}

#[test]
fn last_words_are_in_the_message() {
    let (_folder, interpreter) = script(&format!(
        "read -r request\necho '{HELLO}'\nread -r request\necho Traceback >&2\necho 'CUDA error: gone' >&2\nexit 3"
    ));
    let mut peer = start(&interpreter, PATIENT).unwrap();
    let failure = "torch ended, exit status: 3: CUDA error: gone".to_owned();
    assert_eq!(peer.prepare(work()), Err(Absence::Failed(failure)));
    let (_folder, interpreter) = script("exit 0");
    let error = start(&interpreter, PATIENT).unwrap_err();
    assert_eq!(error, "torch ended, exit status: 0, without a word");
}

#[test]
fn nonsense_is_no_answer() {
    let long = format!(
        "read -r request\necho '{HELLO}'\nread -r request\nwhile :; do printf aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done"
    );
    for (lines, message) in [
        (
            format!("read -r r\necho '{HELLO}'\nread -r r\necho 'hi \"you\"'\nsleep 100"),
            "found the line `hi \\\"you\\\"`, expected an answer in JSON",
        ),
        (
            format!("read -r r\necho '{HELLO}'\nread -r r\necho '{{\"us\": 1.0}}'\nsleep 100"),
            "found the answer Measured { us: 1.0 }, expected that it is ready",
        ),
        (
            format!("read -r r\necho '{HELLO}'\nread -r r\nprintf '\\377\\376\\n'\nsleep 100"),
            "expected an answer in JSON",
        ),
        (long, "found a line of more than 65536 bytes"),
    ] {
        let (_folder, interpreter) = script(&lines);
        let mut peer = start(&interpreter, PATIENT).unwrap();
        let Err(Absence::Failed(error)) = peer.prepare(work()) else { panic!("{message}") };
        assert!(error.contains(message), "{error}");
        assert!(peer.child.is_none(), "nobody knows what it would say next");
    }
}

#[test]
fn times_that_are_none_are_not_taken() {
    for us in ["0", "-1", "1e999"] {
        let (_folder, interpreter) = answers(&[HELLO, r#"{"copies": 1}"#, &format!("{{\"us\": {us}}}")]);
        let mut peer = start(&interpreter, PATIENT).unwrap();
        peer.prepare(work()).unwrap();
        assert!(matches!(peer.measure(Duration::ZERO), Err(Absence::Failed(_))), "{us}");
    }
}

#[test]
fn what_a_peer_does_not_have_is_no_failure() {
    let (_folder, interpreter) =
        answers(&[HELLO, r#"{"unsupported": "no scan"}"#, r#"{"failed": "no memory"}"#]);
    let mut peer = start(&interpreter, PATIENT).unwrap();
    assert_eq!(peer.prepare(work()), Err(Absence::Unsupported("no scan".to_owned())));
    assert!(peer.child.is_some(), "it can be asked for something else");
    assert_eq!(peer.prepare(work()), Err(Absence::Failed("no memory".to_owned())));
    assert!(peer.child.is_none(), "its GPU may be in any state");
}

#[test]
fn much_on_standard_error_blocks_nobody() {
    let noise = "i=0; while [ $i -lt 3000 ]; do echo 'a warning of some length, again and again and again' >&2; i=$((i+1)); done";
    let (_folder, interpreter) =
        script(&format!("{noise}\nread -r request\necho '{HELLO}'\nread -r request\nsleep 100"));
    assert!(start(&interpreter, PATIENT).is_ok());
}

#[test]
fn the_interpreter_is_the_named_one_or_the_first_in_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python3");
    let choose = |named: Option<&str>, path: &str, last: &str| {
        choose(named.map(OsString::from), Some(path.as_ref()), Path::new(last))
    };
    let path = format!("/no/such/folder:{}", folder.path().display());
    assert!(choose(None, &path, "/no/such/python3").unwrap_err().contains(VARIABLE));
    assert!(choose(Some(""), &path, "/no/such/python3").is_err(), "an empty name is none");
    fs::write(&python, "").unwrap();
    assert_eq!(choose(None, &path, "/no/such/python3").unwrap(), python);
    assert_eq!(choose(None, "", python.to_str().unwrap()).unwrap(), python);
    assert_eq!(choose(Some("/opt/python"), &path, "").unwrap(), "/opt/python");
}

/// Constants that both sides have.
#[test]
fn both_sides_agree() {
    for line in ["PROTOCOL = 1\n", "EPS = 1e-5\n", "DROPPED = 0.5\n", "VOCABULARY = 32768\n"] {
        assert!(source::PEERS.contains(line), "{line}");
    }
    assert_eq!(PROTOCOL, 1);
}
