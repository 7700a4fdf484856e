//! `tilewright bench` as its users call it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.arg("bench").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn error(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(text.starts_with("error: ") && text.lines().count() == 1, "{text:?}");
    text
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench").join(name)
}

#[test]
fn results_become_the_same_picture_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("plot.svg");
    let output =
        bench(&["plot", fixture("results.json").to_str().unwrap(), "--out", picture.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let (found, expected) =
        (std::fs::read_to_string(&picture).unwrap(), std::fs::read_to_string(fixture("plot.svg")).unwrap());
    assert_eq!(
        found, expected,
        "tests/bench/plot.svg is what `tilewright bench plot` drew when somebody last looked at it"
    );
    // Texts are escaped, failed products are counted, both colour schemes are there.
    for mark in [
        "Example &lt;GPU&gt; &amp; Co",
        "1 product failed",
        "prefers-color-scheme: dark",
        "1.10×",
        "4094 GB/s",
    ] {
        assert!(found.contains(mark), "{mark}");
    }
}

#[test]
fn wrong_input_is_one_line_and_exit_code_2() {
    for (arguments, mark) in [
        (&["gemm"][..], "expected --shape, --shapes or --set"),
        (&["gemm", "--shape", "1x2"], "found `1x2`"),
        (&["gemm", "--set", "round"], "expected one of squares, llama, odd"),
        (&["gemm", "--shape", "8x8x8", "--dtype", "bf17"], "expected one of bf16"),
        (&["gemm", "--shape", "8x8x8", "--layout", "xy"], "expected tn, nn, tt or nt"),
        (&["gemm", "--shape", "8x8x8", "--epilogue", "softmax"], "expected one of none, bias"),
        (&["gemm", "--shape", "8x8x8", "--device", "tpu"], "expected cpu or a number"),
        (&["gemm", "--shape", "4294967295x8x8", "--device", "cpu"], "m is 4294967295"),
        (&["gemm", "--shape", "8x8x8", "--rounds", "0"], "--rounds"),
        (&["plot", "Cargo.toml", "--out", "unused.svg"], "expected results of `tilewright bench`"),
        (
            &["plot", "tests/bench/results.json", "--out", "unused.svg", "--doc", "Cargo.toml"],
            "Cargo.toml: found no lines `<!-- gemm results -->`",
        ),
    ] {
        let output = bench(arguments);
        let error = error(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(mark), "{arguments:?}: {error}");
    }
    assert!(!Path::new("unused.svg").exists());
}

#[test]
fn what_the_machine_lacks_is_exit_code_1() {
    for (arguments, mark) in [
        (&["gemm", "--shapes", "no/such/file"][..], "reading no/such/file"),
        (
            &["gemm", "--shape", "8x8x8", "--device", "cpu", "--peer", "cublas"],
            "cuBLASLt needs a GPU, found CPU",
        ),
        (
            &["gemm", "--shape", "8x8x8", "--device", "cpu", "--json", "no/such/folder/file.json"],
            "writing no/such",
        ),
        (&["gemm", "--shape", "8x8x8", "--device", "4000000000"], ""),
        (&["plot", "no/such/file", "--out", "unused.svg"], "reading no/such/file"),
    ] {
        let output = bench(arguments);
        let error = error(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(mark), "{arguments:?}: {error}");
    }
}

/// Rows of results that were kept.
fn rows(path: &Path) -> Vec<serde_json::Value> {
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    results["entries"].as_array().unwrap().clone()
}

#[test]
fn without_a_gpu_the_computer_is_measured_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (json, picture) = (folder.path().join("r.json"), folder.path().join("r.svg"));
    let shapes = folder.path().join("shapes");
    std::fs::write(&shapes, "# two\n7x5x9*2+1\n16x8x24").unwrap();
    let output = bench(&[
        "gemm",
        "--device",
        "cpu",
        "--shapes",
        shapes.to_str().unwrap(),
        "--dtype",
        "f32,bf16",
        "--layout",
        "tn,nt",
        "--epilogue",
        "none,bias+gelu",
        "--check",
        "--rounds",
        "1",
        "--sample",
        "0",
        "--json",
        json.to_str().unwrap(),
        "--plot",
        picture.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("CPU, no GPU: times are this computer's\n"), "{text}");
    let rows = rows(&json);
    assert_eq!(rows.len(), 2 * 2 * 2 * 2);
    for row in &rows {
        assert!(row["ours_us"].as_f64().unwrap() > 0.0 && row["error"].as_f64().unwrap() < 1.0, "{row}");
        assert!(row["compared"].as_u64().unwrap() >= 70 && row["ratio"].is_null(), "{row}");
    }
    assert!(std::fs::read_to_string(&picture).unwrap().contains("bf16 nt, bias+gelu"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nothing else is left behind");
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_gpu_both_take_turns_on_the_same_memory() {
    use tilewright_fake_driver::Fake;

    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args([
        "bench",
        "gemm",
        "--shape",
        "20x10x12*2",
        "--dtype",
        "bf16",
        "--epilogue",
        "none,bias,gelu",
    ]);
    command.args([
        "--candidates",
        "2",
        "--copies",
        "3",
        "--rounds",
        "2",
        "--sample",
        "0",
        "--json",
        json.to_str().unwrap(),
    ]);
    command.env("TILEWRIGHT_CACHE", "off").stdin(Stdio::null());
    let _driver = Fake::new().with_cublaslt().prepare(&mut command).unwrap();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let rows = rows(&json);
    for row in &rows[..2] {
        for number in ["ours_us", "peer_us", "peer_best_us", "ratio", "ratio_best", "roofline_us"] {
            assert!(row[number].as_f64().unwrap() > 0.0, "{number}: {row}");
        }
        assert!(row["peer_algorithm"].as_str().unwrap().starts_with("algo "), "{row}");
    }
    // What the peer cannot do is said, and no reason to fail.
    assert!(rows[2]["peer_failure"].as_str().unwrap().contains("CUBLAS_STATUS_NOT_SUPPORTED"), "{}", rows[2]);
    assert!(rows[2]["ours_us"].as_f64().unwrap() > 0.0);
    assert!(String::from_utf8(output.stdout).unwrap().contains("geometric mean of the ratios: "));
}

#[cfg(target_os = "linux")]
#[test]
fn a_wrong_result_is_told_from_a_right_one() {
    use tilewright_fake_driver::Fake;

    // Kernels do not run on that GPU: D stays as it was.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args([
        "bench", "gemm", "--shape", "8x8x8", "--check", "--copies", "1", "--rounds", "1", "--sample", "0",
    ]);
    command.env("TILEWRIGHT_CACHE", "off").stdin(Stdio::null());
    let _driver = Fake::new().with_cublaslt().prepare(&mut command).unwrap();
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(error(&output).contains("the result is wrong: element (0, 0) was not written"), "{output:?}");
}

#[test]
fn rows_that_are_done_survive_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    let partial = folder.path().join("r.json.partial");
    // The second product would take for ever.
    let mut child = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .args(["bench", "gemm", "--device", "cpu", "--dtype", "f32", "--shape", "4x4x4,8192x8192x8192"])
        .args(["--rounds", "1", "--sample", "0", "--json", json.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !partial.exists() || rows(&partial).is_empty() {
        assert!(std::time::Instant::now() < deadline, "no row in a minute");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(rows(&partial)[0]["shape"], "4x4x4");
    assert!(!json.exists());
}

/// No number that was not measured: the README has the table of the results, or none.
#[test]
fn the_readme_shows_what_was_measured() {
    const README: &str = include_str!("../../../README.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = root.join("results/h200/gemm.json");
    if !results.exists() {
        assert!(README.contains("<!-- gemm results -->\n<!-- end -->\n"), "a table without results");
        assert!(README.contains("Not measured yet"), "it says that there are none");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (page, picture) = (folder.path().join("README.md"), "docs/images/gemm.svg");
    std::fs::create_dir_all(folder.path().join("docs/images")).unwrap();
    std::fs::write(&page, README).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["bench", "plot", results.to_str().unwrap(), "--out", picture, "--doc", "README.md"]);
    assert!(command.current_dir(&folder).status().unwrap().success());
    let advice =
        "run `tilewright bench plot results/h200/gemm.json --out docs/images/gemm.svg --doc README.md`";
    assert_eq!(std::fs::read_to_string(page).unwrap(), README, "{advice}");
    let drawn = |folder: &Path| std::fs::read_to_string(folder.join(picture)).unwrap();
    assert!(drawn(folder.path()) == drawn(&root), "the picture is another: {advice}");
    assert!(!README.contains("Not measured yet"), "there are results now");
}
