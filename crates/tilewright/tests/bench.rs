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

/// Pages name pictures from where they are.
#[test]
fn a_page_names_the_picture_from_its_own_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (page, picture) = (folder.path().join("page.md"), folder.path().join("images/plot.svg"));
    std::fs::create_dir(folder.path().join("images")).unwrap();
    for (results, mark) in [("results.json", "<!-- gemm results -->"), ("ops.json", "<!-- ops results -->")] {
        std::fs::write(&page, format!("{mark}\n<!-- end -->\n")).unwrap();
        let (results, out) = (fixture(results), picture.to_str().unwrap());
        let output =
            bench(&["plot", results.to_str().unwrap(), "--out", out, "--doc", page.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("](images/plot.svg)"), "{text}");
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
        (&["softmax", "--rows", "8"], "found --rows or --columns alone, expected both"),
        (&["softmax", "--rows", "0", "--columns", "8"], "found 0 x 8 elements"),
        (&["rope", "--rows", "4000000000", "--columns", "4000000000"], "expected at most 2^40 in all"),
        (&["softmax", "--set", "round"], "expected one of bars, quick"),
        (&["softmax", "--dtype", "f64"], "expected one of f32, f16, bf16"),
        (&["softmax", "--peer", "none,torch"], "found none beside others"),
        (&["softmax", "--peer", "jax"], "torch, triton, none"),
        (&["softmax", "--k", "3"], "--k: found a number, expected none but for topk"),
        (&["rmsnorm", "--depth", "3"], "--depth: found a number, expected none but for matmul-tile"),
        (&["copy", "--tile", "128x128x64"], "--tile: found a tile, expected none but for matmul-tile"),
        (&["matmul-tile", "--tile", "128x128"], "--tile"),
        (&["topk", "--rows", "8", "--columns", "4"], "--k: found 8, expected 1 to the 4 columns"),
        (&["matmul-tile", "--rows", "8", "--columns", "8", "--depth", "0"], "--depth: found 0"),
        (&["rope", "--rows", "8", "--columns", "100"], "--columns: found 100, expected whole heads of 128"),
        (&["cross-entropy", "--k", "3"], "--k: found a number, expected none but for topk"),
        (&["copy", "--device", "tpu"], "expected cpu or a number"),
        (&["small", "--peer-timeout", "0"], "--peer-timeout"),
        (&["softmin"], "unrecognized subcommand 'softmin'"),
        (
            &["plot", "tests/bench/ops.json", "--out", "unused.svg", "--doc", "Cargo.toml"],
            "Cargo.toml: found no lines `<!-- ops results -->`",
        ),
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
        (&["softmax", "--device", "cpu", "--json", "no/such/folder/file.json"], "writing no/such"),
    ] {
        let output = bench(arguments);
        let error = error(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(mark), "{arguments:?}: {error}");
    }
}

#[test]
fn results_of_ops_become_the_same_picture_and_table_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(&page, "before\n<!-- ops results -->\nold\n<!-- end -->\nafter\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args([
        "bench",
        "plot",
        fixture("ops.json").to_str().unwrap(),
        "--out",
        "ops.svg",
        "--doc",
        "page.md",
    ]);
    let output = command.current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for (name, found) in [("ops.svg", folder.path().join("ops.svg")), ("ops.md", page)] {
        let found = std::fs::read_to_string(found).unwrap();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(fixture(name), &found).unwrap();
        }
        assert_eq!(
            found,
            std::fs::read_to_string(fixture(name)).unwrap(),
            "tests/bench/{name}; BLESS=1 writes it"
        );
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

/// An interpreter that is a shell script and plays a peer: a time of 1000 us for everything, in all but what it is told to do wrong.
#[cfg(unix)]
fn peer(folder: &Path, wrong: &str) -> PathBuf {
    let script = format!(
        "#!/bin/sh\nwhile read -r request; do case \"$request\" in\n{wrong}\n\
         *hello*) echo '{{\"protocol\": 1, \"torch\": \"9.9\", \"triton\": \"8.8\"}}' ;;\n\
         *'\"op\":'*) echo '{{\"copies\": 1}}' ;;\n\
         *check*) echo '{{\"relative_error\": 1e-7}}' ;;\n\
         *measure*) echo '{{\"us\": 1000.0}}' ;;\nesac; done\n"
    );
    let (written, path) = (folder.join("text"), folder.join("python"));
    std::fs::write(&written, script).unwrap();
    // By another process: what one of ours may still have open for writing is not executed.
    let status = Command::new("install").args(["-m", "755"]).args([&written, &path]).status().unwrap();
    assert!(status.success());
    path
}

/// An op on this computer beside such a peer: what was printed, and the results.
#[cfg(unix)]
fn beside(wrong: &str, arguments: &[&str]) -> (Output, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.arg("bench").args(arguments).args(["--device", "cpu", "--rounds", "3", "--sample", "0"]);
    command.args(["--rows", "6", "--columns", "10", "--dtype", "bf16", "--check"]);
    command.arg("--json").arg(&json).env("TILEWRIGHT_PYTHON", peer(folder.path(), wrong));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let results = std::fs::read(&json).unwrap();
    (output, serde_json::from_slice(&results).unwrap())
}

/// Who reads the results of ops finds these fields, of these types.
#[cfg(unix)]
#[test]
fn results_of_ops_have_a_schema() {
    let (output, results) = beside("", &["topk", "--k", "3"]);
    assert!(output.status.success(), "{output:?}");
    fn schema(value: &serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), schema(value))).collect()
            }
            Value::Array(values) => values.iter().map(schema).collect(),
            Value::Number(_) => "number".into(),
            Value::String(_) => "text".into(),
            other => other.clone(),
        }
    }
    let theirs = serde_json::json!({
        "us": "number", "us_10_to_90_percent": ["number", "number"], "gbps": "number", "ratio": "number", "relative_error": "number",
    });
    let expected = serde_json::json!({
        "what": "text", "gpu": "text", "driver": null, "cublaslt": null, "torch": "text", "triton": "text", "tilewright": "text",
        "date": "text", "command": "text", "complete": true,
        "entries": [{
            "op": "text", "dtype": "text", "rows": "number", "columns": "number", "k": "number", "clock": "text", "subject": "text",
            "ours_us": "number", "ours_10_to_90_percent": ["number", "number"], "gbps": "number", "error": "number",
            "compared": "number", "torch": theirs, "triton": theirs,
        }],
    });
    assert_eq!(schema(&results), expected);
    let row = &results["entries"][0];
    assert_eq!((&row["op"], &row["k"], &row["clock"]), (&"topk".into(), &3.into(), &"device".into()));
    assert_eq!((&results["torch"], &results["triton"]), (&"9.9".into(), &"8.8".into()));
    assert_eq!((&row["torch"]["us"], &row["compared"]), (&1000.0.into(), &36.into()));
    let ratio = row["torch"]["ratio"].as_f64().unwrap() * row["ours_us"].as_f64().unwrap();
    assert!(ratio > 100.0, "the peer's time over ours: {row}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("CPU, torch 9.9, Triton 8.8, no GPU: times are this computer's\n"), "{text}");
    assert!(text.contains("geometric mean of torch's time over ours: "), "{text}");
}

/// Who does not know the ops finds them in the help, each with its line and all options.
#[test]
fn the_help_lists_every_op() {
    let help = |arguments: &[&str]| {
        let output = bench(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = help(&["--help"]);
    for (name, line) in [
        ("gemm", "Measure matrix products"),
        ("ladder", "Run every step"),
        ("softmax", "Measure the softmax of rows, beside torch and Triton"),
        ("cross-entropy-backward", "Measure the gradient of the cross entropy"),
        ("rmsnorm-quantise-e4m3", "Measure RMSNorm whose result is E4M3"),
        ("transpose", "Measure rows becoming columns"),
        ("small", "Measure calls on few rows"),
        ("plot", "Draw what was kept"),
    ] {
        let found = all.lines().find(|line| line.trim_start().split(' ').next() == Some(name));
        assert!(found.is_some_and(|found| found.contains(line)), "{name}: {all}");
    }
    for op in ["softmax", "swiglu-backward", "small"] {
        let own = help(&[op, "--help"]);
        for mark in ["Measure ", "--dtype <DTYPE>", "--peer-timeout", "Sets of sizes:", "  bars "] {
            assert!(own.contains(mark), "{op}, {mark}: {own}");
        }
        assert!(own.contains(&format!("Usage: tilewright bench {op} [OPTIONS]")), "{own}");
    }
}

/// One op of each family beside a peer: everything that is written is compared, and the picture shows it.
#[cfg(unix)]
#[test]
fn other_ops_are_measured_in_the_same_way() {
    for (op, compared) in [
        ("cross-entropy", 6),
        ("masked-softmax", 60),
        ("add-rmsnorm", 120),
        ("add-layernorm", 120),
        ("rmsnorm-quantise-e4m3", 66),
        ("quantise-i8", 66),
        ("layernorm-backward", 80),
        ("swiglu-backward", 120),
        ("bias-gelu", 60),
        ("transpose", 60),
        ("convert", 60),
    ] {
        let (output, results) = beside("", &[op]);
        assert!(output.status.success(), "{output:?}");
        let row = &results["entries"][0];
        assert_eq!((&row["op"], &row["subject"]), (&op.into(), &"library".into()), "{row}");
        assert_eq!((&row["compared"], &row["torch"]["us"]), (&compared.into(), &1000.0.into()), "{row}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(op) && text.contains("geometric mean of Triton's time over ours: "), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn few_rows_are_measured_with_the_host() {
    let (output, results) = beside("", &["small", "--peer", "triton"]);
    assert!(output.status.success(), "{output:?}");
    let ops: Vec<&str> =
        results["entries"].as_array().unwrap().iter().map(|row| row["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["softmax", "rmsnorm", "layernorm"]);
    let row = &results["entries"][0];
    assert!(row["clock"] == "host" && row["triton"]["us"] == 1000.0 && row["torch"].is_null(), "{row}");
}

/// A peer that fails costs its own times, and nobody else's.
#[cfg(unix)]
#[test]
fn a_peer_that_fails_is_told_and_ours_goes_on() {
    for (wrong, field, mark) in [
        ("*measure*) echo oops ;;", "failure", "found the line `oops`, expected an answer in JSON"),
        (
            "*measure*) echo 'out of memory' >&2; exit 7 ;;",
            "failure",
            "torch ended, exit status: 7: out of memory",
        ),
        ("*measure*) sleep 100 ;;", "failure", "torch gave no answer in 1s; it was ended"),
        (
            "*check*) echo '{\"relative_error\": 0.5}' ;;",
            "failure",
            "its result is wrong: the relative error is 5.0e-1",
        ),
        ("*'\"op\":'*) echo '{\"failed\": \"no memory\"}' ;;", "failure", "no memory"),
        ("*'\"op\":'*) echo '{\"unsupported\": \"not here\"}' ;;", "unsupported", "not here"),
    ] {
        let (output, results) = beside(wrong, &["scan", "--peer", "torch", "--peer-timeout", "1"]);
        assert!(output.status.success(), "{output:?}");
        let row = &results["entries"][0];
        assert!(row["torch"][field].as_str().unwrap().contains(mark), "{mark}: {row}");
        assert!(row["torch"]["us"].is_null() && row["ours_us"].as_f64().unwrap() > 0.0, "{row}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.contains(mark), field == "failure", "{text}");
        // All that it had to say is shown.
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.contains("torch: out of memory"), mark.contains("exit status"), "{said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_gpu_speeds_are_held_against_a_copy() {
    use tilewright_fake_driver::Fake;

    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    let python =
        peer(folder.path(), "*hello*'\"device\":null'*) echo '{\"missing\": \"no number of a GPU\"}' ;;");
    // That driver executes no kernels: only of a copy the result is right.
    for (op, subject, check) in [("copy", "runtime", true), ("softmax", "library", false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(["bench", op, "--rows", "8", "--columns", "64", "--dtype", "f32", "--copies", "2"]);
        command.args(check.then_some("--check"));
        command.args(["--rounds", "2", "--sample", "0", "--yardstick", "1"]).arg("--json").arg(&json);
        command.env("TILEWRIGHT_CACHE", "off").env("TILEWRIGHT_PYTHON", &python).stdin(Stdio::null());
        let _driver = Fake::new().prepare(&mut command).unwrap();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let results: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert!(results["copy_gbps"].as_f64().unwrap() > 0.0, "{results}");
        let row = &results["entries"][0];
        assert_eq!(row["subject"], subject, "{row}");
        assert!(row["of_copy"].is_number() && row["torch"]["ratio"].is_number(), "{row}");
        assert_eq!(row["torch"]["us"], 1000.0, "{row}");
    }
}

/// Each has kernels for the types and sizes that are asked for, which are compiled and launched, by a driver that does not execute them.
#[cfg(target_os = "linux")]
#[test]
fn on_a_gpu_the_library_has_kernels_for_every_op() {
    use tilewright_fake_driver::Fake;

    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    for op in [
        "log-softmax",
        "masked-softmax",
        "softmax-backward",
        "log-softmax-backward",
        "cross-entropy",
        "cross-entropy-backward",
        "add-rmsnorm",
        "add-layernorm",
        "rmsnorm-quantise-e4m3",
        "rmsnorm-quantise-i8",
        "rmsnorm-backward",
        "layernorm-backward",
        "swiglu",
        "swiglu-backward",
        "geglu",
        "geglu-backward",
        "bias-gelu",
        "rope",
        "quantise-e4m3",
        "quantise-i8",
        "dequantise-e4m3",
        "dequantise-i8",
        "convert",
        "transpose",
        "permute",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(["bench", op, "--rows", "8", "--columns", "256", "--dtype", "f32,bf16"]);
        command.args([
            "--copies",
            "2",
            "--rounds",
            "1",
            "--sample",
            "0",
            "--yardstick",
            "1",
            "--peer",
            "none",
            "--json",
        ]);
        command.arg(&json).env("TILEWRIGHT_CACHE", "off").stdin(Stdio::null());
        let _driver = Fake::new().prepare(&mut command).unwrap();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{op}: {output:?}");
        let rows = rows(&json);
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row["subject"] == "library" && row["of_copy"].is_number()), "{rows:?}");
    }
}

/// A program that does not outlive the test, however that ends.
struct EndedWithTheTest(std::process::Child);

impl Drop for EndedWithTheTest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn rows_that_are_done_survive_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    let partial = folder.path().join("r.json.partial");
    // The second product would take for ever.
    let child = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .args(["bench", "gemm", "--device", "cpu", "--dtype", "f32", "--shape", "4x4x4,8192x8192x8192"])
        .args(["--rounds", "1", "--sample", "0", "--json", json.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let child = EndedWithTheTest(child);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !partial.exists() || rows(&partial).is_empty() {
        assert!(std::time::Instant::now() < deadline, "no row in a minute");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(child);
    assert_eq!(rows(&partial)[0]["shape"], "4x4x4");
    assert!(!json.exists());
}

#[test]
fn a_bias_of_bytes_is_measured_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    let output = bench(
        &[
            &["gemm", "--device", "cpu", "--dtype", "i8", "--epilogue", "none,bias,bias+relu,bias+gelu"][..],
            &[
                "--shape",
                "20x10x300",
                "--check",
                "--rounds",
                "1",
                "--sample",
                "0",
                "--json",
                json.to_str().unwrap(),
            ],
        ]
        .concat(),
    );
    assert!(output.status.success(), "{output:?}");
    assert_eq!(rows(&json).len(), 4);
}

#[test]
fn what_would_be_ignored_or_lost_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    let run = |more: &[&str]| {
        let shape = [
            "gemm", "--device", "cpu", "--dtype", "f32", "--shape", "4x4x4", "--rounds", "1", "--sample", "0",
        ];
        bench(&[&shape[..], &["--json", json.to_str().unwrap()], more].concat())
    };
    for option in ["--candidates", "--kinds"] {
        let output = run(&[option, "3"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(error(&output).contains(&format!("{option}: found 3 on ")), "{output:?}");
    }
    let output = run(&["--plot", folder.path().join("no/such/x.svg").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error(&output).contains("writing ") && error(&output).contains("x.svg"), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was measured");
    // Rows of a run that was interrupted stay.
    let partial = folder.path().join("r.json.partial");
    std::fs::write(&partial, "rows").unwrap();
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        error(&output).contains("r.json.partial: found rows of a run that was interrupted"),
        "{output:?}"
    );
    assert_eq!(std::fs::read_to_string(&partial).unwrap(), "rows");
    std::fs::remove_file(&partial).unwrap();
    let picture = folder.path().join("x.svg");
    assert!(run(&["--plot", picture.to_str().unwrap()]).status.success());
    assert!(json.exists() && picture.exists() && !partial.exists());
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

/// As for `sim`: the results alone, for the program that comes next.
#[test]
fn results_go_to_the_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["gemm", "--shape", "8x8x8", "--json", "-"][..],
        &["softmax", "--rows", "4", "--columns", "64", "--dtype", "f32", "--json", "-"],
        &["ladder", "--shape", "128x128x64", "--step", "1", "--json", "-"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tilewright"))
            .arg("bench")
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let found: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        assert!(found.is_ok_and(|found| found.is_object()), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file was asked for");
}

/// A processor does a small part of a TFLOP/s, which is not 0.00.
#[test]
fn pictures_of_slow_machines_have_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("plot.svg");
    let output = bench(&["gemm", "--device", "cpu", "--shape", "8x8x8", "--plot", picture.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&picture).unwrap();
    assert!(text.contains(" TFLOP/s<") && !text.contains(">0.00"), "{text}");
}
