//! The program as its users call it: results, exit codes, one-line errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn tilewright(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Exit code 2 and a single line that starts with `error: `.
fn refused(arguments: &[&str]) -> String {
    let output = tilewright(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.starts_with("error: ") && error.ends_with('\n') && error.lines().count() == 1, "{error:?}");
    error
}

#[test]
fn an_expression_prints_its_value() {
    for (expression, value) in [
        ("compose((4,3):(3,1), 6:2)", "(2,3):(6,1)\n"),
        ("compose(coalesce((12,(4,8)):(59,(13,1)), (1,1)), <2:1, 4:1>)", "(2,4):(59,13)\n"),
        ("(4):(1)", "(4):(1)\n"),
        ("eval((4,3):(3,1), 13)", "6\n"),
        ("banks((32):(32), 4)", "32\n"),
        ("-3", "-3\n"),
    ] {
        let output = tilewright(&["layout", expression]);
        assert!(output.status.success(), "{expression}");
        assert_eq!(stdout(&output), value);
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn wrong_input_is_one_line_and_exit_code_2() {
    for arguments in [
        &["frobnicate"][..],
        &["layout"],
        &["layout", "frobnicate(4:1)"],
        &["layout", "(4,2:(1,2)"],
        &["layout", "compose((6,2):(1,7), (3,2):(2,3))"],
        &["layout", "eval(S<4,0,2>, 1)"],
        &["layout", "4:1", "--frobnicate"],
        &["layout", "4:1", "--colour", "blue"],
        &["layout", "4:1", "--svg", "x.svg", "--bytes", "0"],
        &["layout", "4:1", "--batch", "x"],
        &["layout", "--batch", "no/such/file"],
        &["layout", "size(4:1)", "--svg", "unused.svg"],
        &["layout", "(1000000,1000000):(1,1)", "--svg", "unused.svg"],
        &["doctor", "too", "many"],
        &["layout", ""],
    ] {
        refused(arguments);
    }
    assert!(refused(&["layout", "complement((2,4):(1,1))"]).contains("not injective"));
    assert!(
        refused(&["cache"]).contains("`cache` takes a command, and none was given; expected one of list, ")
    );
    assert!(refused(&["bench"]).contains("gemm, "));
    assert!(!Path::new("unused.svg").exists());
}

#[test]
fn batch_answers_every_line_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expressions");
    // A failing line, an empty one, Windows line ends, bytes that are no text, and no newline at the end.
    std::fs::write(&file, b"coalesce((2,4):(1,2))\nnonsense\n\nsize(4:1)\r\n\xff\xfe\n(4,2):(1,16)").unwrap();
    let output = tilewright(&["layout", "--batch", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines.len(), 6);
    assert_eq!([lines[0], lines[3], lines[5]], ["8:1", "4", "(4,2):(1,16)"]);
    assert!([lines[1], lines[2], lines[4]].iter().all(|line| line.starts_with("error: ")));
}

#[test]
fn batch_reads_standard_input() {
    let mut child = command(&["layout", "--batch", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"size(4:1)\nnonsense\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["value"], "4");
    assert!(lines[1]["error"].as_str().unwrap().contains("nonsense"));
}

#[test]
fn json_of_a_layout_and_of_an_error() {
    let value = json(&tilewright(&["layout", "(4,2):(1,16)", "--json"]));
    assert_eq!((&value["kind"], &value["size"], &value["cosize"]), (&"layout".into(), &8.into(), &20.into()));
    let output = tilewright(&["layout", "(4,2:", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(json(&output)["error"].is_string());
}

#[test]
fn pictures_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for (name, expression, marks) in [
        ("value", "(4,8):(8,1)", &[">31<"][..]),
        ("bank", "S<3,0,3> o 0 o (8,8):(8,1)", &[">63<", "bank"]),
        ("thread", "tv(((4,8),(2,2)):((32,1),(16,8)), (16,8))", &[">T31<", ">V3<", "thread"]),
    ] {
        let file = folder.path().join(name);
        let output = tilewright(&["layout", expression, "--svg", file.to_str().unwrap()]);
        assert!(output.status.success());
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(marks.iter().all(|mark| svg.contains(mark)), "{name}");
    }
    // A path that cannot be written is the machine's fault, not the user's grammar.
    let output = tilewright(&["layout", "4:1", "--svg", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_pictures_in_the_docs_are_what_the_program_draws() {
    let folder = tempfile::tempdir().unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let chapter = std::fs::read_to_string(docs.join("layouts.md")).unwrap();
    let mut pictures = 0;
    for line in
        chapter.lines().filter(|line| line.starts_with("tilewright layout '") && line.contains("--svg"))
    {
        let words: Vec<&str> = line.split('\'').collect();
        let file = folder.path().join("picture.svg");
        let mut arguments = vec!["layout", words[1]];
        let options: Vec<&str> = words[2].split_whitespace().collect();
        let target = options[options.iter().position(|option| *option == "--svg").unwrap() + 1];
        arguments.extend(options.iter().filter(|option| **option != target && **option != "--svg"));
        arguments.extend(["--svg", file.to_str().unwrap()]);
        assert!(tilewright(&arguments).status.success(), "{line}");
        let stored = docs.join("images").join(Path::new(target).file_name().unwrap());
        let (drawn, stored) = (std::fs::read(&file).unwrap(), std::fs::read(&stored).unwrap());
        assert!(drawn == stored, "{target} is out of date: run {line}");
        pictures += 1;
    }
    assert!(pictures >= 3, "{pictures} pictures in the chapter");
}

#[test]
fn doctor_reports_and_advises() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::write(cache.join("kernel"), [0; 2048]).unwrap();
    let mut doctor = command(&["doctor", "--json"]);
    let report = json(
        &doctor
            .env("TILEWRIGHT_CACHE_DIR", &cache)
            .env("TILEWRIGHT_PTXAS", "/no/such/ptxas")
            .output()
            .unwrap(),
    );
    assert_eq!((&report["cache"]["files"], &report["cache"]["bytes"]), (&1.into(), &2048.into()));
    assert_eq!((&report["cache"]["entries"], &report["cache"]["cap_bytes"]), (&0.into(), &(1 << 30).into()));
    assert!(report["processor"]["threads"].as_u64().unwrap() >= 1);
    assert!(report["gpus"].is_array());
    let problems = report["problems"].as_array().unwrap();
    let assembler = problems.iter().find(|problem| problem["part"] == "assembler").unwrap();
    assert!(assembler["remedy"].as_str().unwrap().contains("nvidia-cuda-nvcc"));
    let driverless = problems.iter().any(|problem| problem["part"] == "driver");
    assert_eq!(report["gpus"].as_array().unwrap().is_empty(), driverless);

    let text = tilewright(&["doctor"]);
    assert!(text.status.success());
    for part in ["driver", "GPUs", "PTX", "assembler", "cache", "packs"] {
        assert!(stdout(&text).contains(part), "{part}");
    }
}

#[test]
fn doctor_survives_a_cache_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "in the way").unwrap();
    for setting in [blocked.join("below"), blocked, "off".into()] {
        let output = command(&["doctor", "--json"]).env("TILEWRIGHT_CACHE_DIR", setting).output().unwrap();
        assert!(output.status.success());
        let report = json(&output);
        assert!(report["problems"].as_array().unwrap().iter().any(|problem| problem["part"] == "cache"));
    }
}

/// A cache with one entry, and its file.
fn filled_cache(folder: &Path) -> std::path::PathBuf {
    use tilewright::cuda::{DiskCache, Entry, Key, Put};
    let cache = DiskCache::at(folder);
    let meta = [("kernels", "gemm"), ("device", "sm_90"), ("driver", "CUDA 13.0")];
    let meta = meta.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let entry = Entry { meta, payload: vec![7; 3000] };
    assert_eq!(cache.put(&Key::builder().field("ptx", "text").finish(), &entry), Put::Written);
    cache.list().remove(0).path
}

#[test]
fn the_cache_is_listed_verified_and_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = command(&[&["cache"], arguments].concat());
        command
            .env("TILEWRIGHT_CACHE_DIR", folder.path())
            .env("TILEWRIGHT_CACHE_SIZE", "1M")
            .output()
            .unwrap()
    };
    let empty = run(&["list"]);
    assert!(empty.status.success() && stdout(&empty).starts_with("0 entries, 0 B of at most 1.0 MiB"));
    let file = filled_cache(folder.path());

    let listed = json(&run(&["list", "--json"]));
    let entry = &listed["entries"][0];
    assert_eq!((&entry["kernels"], &entry["device"]), (&"gemm".into(), &"sm_90".into()));
    assert_eq!((&entry["problem"], &listed["cap_bytes"]), (&serde_json::Value::Null, &(1 << 20).into()));
    assert_eq!(listed["bytes"], entry["bytes"]);
    assert!(entry["bytes"].as_u64().unwrap() > 3000);
    let text = run(&["list"]);
    for part in ["gemm", "sm_90", "just now", "readable", "1 entry, 3."] {
        assert!(stdout(&text).contains(part), "{part}: {}", stdout(&text));
    }
    assert!(stdout(&run(&["verify"])).contains("all sound"));

    // One bit.
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let damaged = run(&["verify"]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(stdout(&damaged).contains("checksum"), "{}", stdout(&damaged));
    assert!(String::from_utf8_lossy(&damaged.stderr).contains("1 problem"));
    assert!(file.exists());
    let removed = run(&["verify", "--remove", "--json"]);
    assert_eq!(removed.status.code(), Some(1));
    assert_eq!(json(&removed)["problems"][0]["removed"], true);
    assert!(!file.exists() && run(&["verify"]).status.success());

    filled_cache(folder.path());
    let cleared = json(&run(&["clear", "--json"]));
    assert_eq!(cleared["files"], 1);
    assert!(stdout(&run(&["clear"])).contains("removed 0 files"));
}

#[test]
fn a_cache_that_cannot_be_used_is_said_in_one_line() {
    let off = command(&["cache", "list"]).env("TILEWRIGHT_CACHE_DIR", "off").output().unwrap();
    assert_eq!(off.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&off.stderr).contains("turned off"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("v1"), "in the way").unwrap();
    let blocked = command(&["cache", "verify"]).env("TILEWRIGHT_CACHE_DIR", folder.path()).output().unwrap();
    assert_eq!(blocked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&blocked.stderr).contains("not a folder"));
    let doctor = command(&["doctor", "--json"]).env("TILEWRIGHT_CACHE_DIR", folder.path()).output().unwrap();
    let problems = json(&doctor)["problems"].clone();
    assert!(problems.as_array().unwrap().iter().any(|problem| {
        problem["part"] == "cache" && problem["found"].as_str().unwrap().contains("not a folder")
    }));
    refused(&["cache"]);
    refused(&["cache", "frobnicate"]);
}

#[test]
fn the_main_job_verifies_its_results() {
    let output = tilewright(&[]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    let said = [
        "Matrix products on ",
        "findings       none",
        " 0 wrong",
        "  roofline       On H200 SXM ",
        " binds: ",
        "0 failed",
    ];
    for said in said {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn the_main_job_as_json_has_every_number() {
    let outcome = json(&tilewright(&["demo", "--json"]));
    let device = tilewright::device::Device::best();
    assert_eq!(outcome["device"], device.name());

    let products = outcome["products"]["entries"].as_array().unwrap();
    assert!(products.len() >= 5);
    for product in products {
        let number = |name: &str| product[name].as_f64().unwrap_or_else(|| panic!("{name}: {product}"));
        assert!(number("ours_us") > 0.0 && number("tflops") > 0.0 && number("compared") > 0.0);
        assert!(number("error") < 1.0, "{product}");
    }

    // What is multiplied is what the product has, by the kernel of Hopper, and nothing else happens in shared memory than it wants.
    let simulated = &outcome["simulated"];
    assert!(simulated["algorithm"].as_str().unwrap().starts_with("hopper "));
    assert_eq!(simulated["findings"].as_array().unwrap().len(), 0);
    assert_eq!(simulated["wrong"], 0);
    let [m, n, k] = [0, 1, 2].map(|i| simulated["product"][i].as_u64().unwrap());
    assert_eq!(simulated["compared"], m * n);
    assert_eq!(simulated["counts"]["tensor"][0]["operations"], 2 * m * n * k);

    let steps = outcome["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["ok"] == true));
    for place in [format!("on {}", device.name()), "in the simulator".to_owned()] {
        let runs = |step: &&serde_json::Value| step["what"].as_str().unwrap().ends_with(&place);
        assert!(steps.iter().find(runs).unwrap()["compared"].as_u64().unwrap() > 30_000, "{place}");
    }
}

#[test]
fn kernels_are_listed_compiled_and_explained() {
    let listed = json(&tilewright(&["compile", "--list", "--json"]));
    let listed: Vec<&str> = listed.as_array().unwrap().iter().map(|k| k["name"].as_str().unwrap()).collect();
    assert!(listed.contains(&"vector_add") && listed.contains(&"gemm_hopper"), "{listed:?}");
    assert!(listed.contains(&"tutorial/attention") && listed.contains(&"ops/softmax"), "{listed:?}");
    for name in listed {
        if name.contains('/') {
            // Kernels on tiles, of which there are many and some are long.
            let ptx = tilewright(&["explain", name, "--stage", "ptx"]);
            assert!(ptx.status.success(), "{name}: {}", String::from_utf8_lossy(&ptx.stderr));
            assert!(tilewright::ptx::parse(stdout(&ptx)).is_ok(), "{name}");
            continue;
        }
        let ptx = tilewright(&["compile", name]);
        assert!(ptx.status.success(), "{name}: {}", String::from_utf8_lossy(&ptx.stderr));
        assert!(tilewright::ptx::parse(stdout(&ptx)).is_ok(), "{name}");
        let ir = tilewright(&["compile", name, "--emit", "ir"]);
        assert!(tilewright::ir::parse(stdout(&ir)).is_ok(), "{name}");
        let explained = json(&tilewright(&["explain", name, "--json", "--diff"]));
        assert!(explained["ptx"]["instructions"].as_u64().unwrap() > 5, "{name}");
        assert!(!explained["diffs"].as_array().unwrap().is_empty(), "{name}");
        let table = tilewright(&["explain", name]);
        assert!(stdout(&table).contains("shared memory"), "{name}");
    }
}

#[test]
fn a_kernel_on_tiles_is_shown_in_its_stages() {
    let stage = |stages: &str| {
        let output = tilewright(&["explain", "tutorial/softmax", "--arch", "sm_80", "--stage", stages]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output).to_owned()
    };
    let (tile, threads, ptx) = (stage("tile"), stage("threads"), stage("ptx"));
    let parsed = |text: &str| tilewright::ir::parse(text).unwrap().funcs.swap_remove(0);
    assert!(parsed(&tile).is_tile_level() && !parsed(&threads).is_tile_level());
    assert!(tilewright::ptx::parse(&ptx).is_ok());
    // Several come one after the other, in the order asked for.
    let both = format!("--- PTX ---\n{ptx}\n--- tile IR ---\n{tile}");
    assert_eq!(stage("ptx,tile"), both);

    // With the tables come all stages and what was taken to be true, unless nothing is.
    let table = tilewright(&["explain", "tutorial/softmax", "--arch", "sm_80"]);
    let table = stdout(&table);
    for text in [&tile, &threads, &ptx] {
        assert!(table.contains(text.trim_end()));
    }
    assert!(table.contains("x is a multiple of 16, ") && table.contains("x_stride1 is 1, "));
    let any = json(&tilewright(&["explain", "tutorial/softmax", "--any-tensor", "--json"]));
    assert!(any["facts"].is_null());
    assert_eq!(any["stages"][0]["stage"], "tile");
    assert!(!any["stages"][0]["text"].as_str().unwrap().contains("align(16)"));

    // A remark has its line.
    let product = json(&tilewright(&["explain", "tutorial/matmul", "--arch", "sm_80", "--json"]));
    let remarks = product["remarks"].as_array().unwrap();
    let lines = remarks.iter().filter(|remark| remark["pass"] == "tile").map(|remark| &remark["location"]);
    assert!(lines.clone().count() > 0);
    for line in lines {
        assert!(line.as_str().unwrap().contains("tutorial/product.rs:"), "{line}");
    }

    let refused = refused(&["explain", "vector_add", "--stage", "tile"]);
    assert!(refused.contains("written for threads"), "{refused}");
    let mut command = command(&["explain", "vector_add", "--stage", "sass"]);
    for variable in ["TILEWRIGHT_PTXAS", "TILEWRIGHT_NVDISASM", "CUDA_HOME", "CUDA_PATH"] {
        command.env_remove(variable);
    }
    let output = command.env("TILEWRIGHT_PTXAS", "no/such/ptxas").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("nvidia-cuda-nvdisasm") && message.lines().count() == 1, "{message}");
}

/// A matrix product, for GPUs that are not here: what the library would launch, and why.
#[test]
fn a_product_is_explained_for_any_gpu() {
    let explain = |arguments: &[&str]| {
        let mut command = command(&[&["explain", "gemm", "--shape"], arguments].concat());
        let output = command.env("TILEWRIGHT_PTXAS", "no/such/ptxas").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    };
    let best = json(&explain(&["512x512x512", "--epilogue", "bias+gelu", "--candidates", "4", "--json"]));
    assert_eq!(best["gpu"], "H200 SXM");
    assert!(best["algorithm"].as_str().unwrap().starts_with("hopper "), "{best}");
    assert_eq!(best["product"]["epilogue"], "bias+gelu");
    let others = best["others"].as_array().unwrap();
    assert_eq!(others.len(), 3);
    let predicted = |of: &serde_json::Value| of["predicted_us"].as_f64().unwrap();
    assert!(others.iter().all(|other| predicted(other) >= predicted(&best)));
    let terms = best["terms"].as_array().unwrap();
    assert_eq!(terms.iter().filter(|term| term["binds"] == true).count(), 1);
    let launch = &best["launches"][0];
    assert!(launch["kernel"] == "gemm_hopper" && launch["key"].as_str().unwrap().starts_with("hopper "));
    let names = launch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap());
    assert!(names.clone().any(|name| name.ends_with("_bias")), "{:?}", names.collect::<Vec<_>>());
    // What the table says is what the object says.
    let table = explain(&["512x512x512", "--epilogue", "bias+gelu"]);
    let table = stdout(&table);
    assert!(table.contains(best["algorithm"].as_str().unwrap()) && table.contains("in all"), "{table}");
    assert!(table.contains("launch 1: ") && table.contains("shared memory"), "{table}");

    // Another chip, type and layout; an algorithm with two launches, of which one can be picked.
    let ampere = json(&explain(&["512x512x512", "--gpu", "A100", "--json"]));
    assert!(ampere["algorithm"].as_str().unwrap().starts_with("ampere "), "{ampere}");
    let repacked = ["256x256x256", "--dtype", "f32", "--algorithm", "simt 128x128x8 8x8 s4 u8 g8 p1 repackB"];
    let both = json(&explain(&[&repacked[..], &["--json"]].concat()));
    assert_eq!(both["launches"].as_array().unwrap().len(), 2);
    let stage = |launch: &[&str]| {
        let output = explain(&[&repacked[..], &["--stage", "ptx"], launch].concat());
        stdout(&output).to_owned()
    };
    let (first, second) = (stage(&["--launch", "1"]), stage(&["--launch", "2"]));
    assert!(tilewright::ptx::parse(&first).is_ok() && tilewright::ptx::parse(&second).is_ok());
    assert_eq!(stage(&[]), format!("=== launch 1 ===\n{first}\n=== launch 2 ===\n{second}"));
    // Nothing to compute takes no launch.
    assert_eq!(json(&explain(&["0x8x8", "--json"]))["launches"].as_array().unwrap().len(), 0);

    for (arguments, says) in [
        (&["gemm"][..], "add --shape"),
        (&["vector_add", "--shape", "8x8x8"], "explain gemm --shape 8x8x8"),
        (&["vector_add", "--gpu", "a100"], "--shape"),
        (&["gemm", "--shape", "8x8"], "expected MxNxK"),
        (&["gemm", "--shape", "4294967296x8x8"], "expected MxNxK with extents below 2^31"),
        (&["gemm", "--shape", "2147483392x2147483392x8"], "compute it in parts"),
        (&["gemm", "--shape", "8x8x8", "--gpu", "voodoo2"], "expected one of h200"),
        (&["gemm", "--shape", "8x8x8", "--arch", "sm_80"], "--gpu NAME"),
        (&["gemm", "--shape", "8x8x8", "--algorithm", "magic"], "the name of a family"),
        (&["gemm", "--shape", "8x8x8", "--dtype", "e4m3", "--gpu", "a100"], "there is no product of e4m3"),
        (&["gemm", "--shape", "8x8x8", "--launch", "9"], "expected a number up to that"),
        (&["gemm", "--shape", "0x8x8", "--stage", "ptx"], "nothing is launched"),
        (&["gemm", "--shape", "8x8x8", "--launch", "0"], "--launch"),
        (&[&["gemm", "--shape"], &repacked[..], &["--html", "unused.html"]].concat(), "--launch N"),
    ] {
        let refused = refused(&[&["explain"], arguments].concat());
        assert!(refused.contains(says), "{arguments:?}: {refused}");
    }
    assert!(!Path::new("unused.html").exists());
}

/// What became of each line of the source, in columns.
#[test]
fn stages_stand_side_by_side() {
    let explain = |arguments: &[&str]| {
        let mut command =
            command(&[&["explain", "tutorial/normalise", "--arch", "sm_90a"], arguments].concat());
        let output = command.env("TILEWRIGHT_PTXAS", "no/such/ptxas").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output).to_owned()
    };
    let width = 240;
    let text = explain(&["--side-by-side", "--width", &width.to_string()]);
    assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    let mut parts = text.split("\n\n");
    assert_eq!(parts.next(), Some("tutorial/normalise for sm_90a"));
    let titles: Vec<&str> = parts.next().unwrap().lines().next().unwrap().split('│').map(str::trim).collect();
    assert_eq!(titles, ["tile IR", "thread IR", "PTX"]);
    let parts: Vec<(&str, Vec<Vec<&str>>)> = parts
        .map(|part| {
            let (head, rest) = part.split_once('\n').unwrap();
            (head, rest.lines().map(|line| line.split('│').map(str::trim).collect()).collect())
        })
        .collect();
    // The two lines of the kernel, as they are written, and what belongs to none.
    let [(load, loaded), (store, stored), (rest, _)] = &parts[..] else { panic!("{text}") };
    let file = "crates/kernels/src/tutorial/rows.rs:";
    assert!(load.starts_with(file) && load.ends_with("let x = x.partition([1, columns]).load();"), "{load}");
    assert!(store.starts_with(file) && store.ends_with(".store(x / x.sum(1));"), "{store}");
    assert!(rest.starts_with("of no line"), "{rest}");
    let has =
        |rows: &[Vec<&str>], column: usize, word: &str| rows.iter().any(|row| row[column].contains(word));
    for (column, words) in
        [["tile_load", "tile_store"], ["load_if", "store_if"], ["ld.global", "st.global"]].iter().enumerate()
    {
        assert!(has(loaded, column, words[0]) && has(stored, column, words[1]), "{words:?}");
        assert!(!has(stored, column, words[0]) && !has(loaded, column, words[1]), "{words:?}");
    }
    // Nothing is lost on the way.
    let ptx = explain(&["--stage", "ptx"]);
    let shown: Vec<&str> = parts.iter().flat_map(|(_, rows)| rows.iter().map(|row| row[2])).collect();
    for line in ptx.lines().map(str::trim).filter(|line| !line.is_empty()) {
        assert!(shown.contains(&line), "{line}");
    }

    // Kernels for threads have no tiles; stages can be chosen, and go to a page.
    let threads = tilewright(&["explain", "vector_add", "--side-by-side", "--stage", "threads,ptx"]);
    assert!(stdout(&threads).contains("thread IR") && !stdout(&threads).contains("tile IR"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("normalise.html");
    let said = explain(&["--stage", "tile,ptx", "--html", file.to_str().unwrap()]);
    assert!(
        said.ends_with("normalise.html: tutorial/normalise for sm_90a, 2 stages side by side\n"),
        "{said}"
    );
    let page = std::fs::read_to_string(file).unwrap();
    assert!(
        page.contains("<thead><tr><th>tile IR</th><th>PTX</th></tr></thead>")
            && page.contains("tile&lt;1x128xf32&gt;")
    );
    assert!(refused(&["explain", "vector_add", "--side-by-side", "--json"]).contains("--json"));
}

/// The tools of NVIDIA are programs that are found and run: two scripts in their places.
#[cfg(unix)]
#[test]
fn machine_code_comes_from_the_disassembler() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let (written, path) = (folder.path().join("text"), folder.path().join(name));
        std::fs::write(&written, format!("#!/bin/sh\n{text}\n")).unwrap();
        // By another process: what one of ours may still have open for writing is not executed.
        let status = Command::new("install").args(["-m", "755"]).args([&written, &path]).status().unwrap();
        assert!(status.success());
        path
    };
    let version = "echo 'ptxas: an assembler, V13.0.0'; for last; do :; done; echo cubin > \"$last\"";
    let assembler = script("ptxas", &format!("[ \"$1\" = --version ] && cd \"$(mktemp -d)\"; {version}"));
    let explain = || {
        let mut command = command(&["explain", "vector_add", "--stage", "sass"]);
        command.env_remove("TILEWRIGHT_NVDISASM").env("TILEWRIGHT_PTXAS", &assembler).output().unwrap()
    };
    script("nvdisasm", "echo \"instructions of $(cat $2)\"");
    assert_eq!(stdout(&explain()), "instructions of cubin\n");
    script("nvdisasm", "echo 'no such chip' >&2; exit 3");
    let output = explain();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nvdisasm failed: no such chip"));
}

#[test]
fn a_kernel_goes_to_a_file_with_line_information() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.ptx");
    let path = file.to_str().unwrap();
    assert!(
        tilewright(&["compile", "transpose", "--arch", "sm_80", "--line-info", "-o", path]).status.success()
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(".loc 1 ") && text.contains("swizzle.rs"), "{text}");
    let missing = folder.path().join("no/such/folder/k.ptx");
    let output = tilewright(&["compile", "transpose", "-o", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_cannot_be_compiled_is_said_in_one_line() {
    assert!(refused(&["compile", "no_such_kernel"]).contains("`tilewright compile --list` lists all"));
    assert!(refused(&["compile", "vector_ad"]).contains("there are vector_add"));
    assert!(
        refused(&["bench", "gemm", "--shape", "64x64"]).ends_with("; see `tilewright bench gemm --help`\n")
    );
    assert!(refused(&["frobnicate"]).ends_with("; see `tilewright --help`\n"));
    assert!(refused(&["compile", "gemm_hopper", "--arch", "sm_80"]).contains("needs sm_90a"));
    assert!(refused(&["compile", "vector_add", "--arch", "sm_5"]).contains("not an architecture"));
    assert!(refused(&["explain", "vector_add", "--diff=frobnicate"]).contains("known are inline"));
    refused(&["compile"]);
    assert!(refused(&["compile", "vector_add", "transpose"]).contains("--pack"));
    assert!(refused(&["compile", "vector_add", "--arch", "sm_80,sm_90a"]).contains("--pack"));
    refused(&["compile", "vector_add", "--cubin"]);
    refused(&["compile", "vector_add", "--pack", "unused.pack", "-o", "unused"]);
    assert!(!Path::new("unused.pack").exists());
}

/// The kernels that the tutorial shows are those of the registry, word for word.
#[test]
fn the_tutorial_shows_the_kernels_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tutorial = std::fs::read_to_string(root.join("docs/kernels.md")).unwrap();
    for (file, function) in [
        ("elementwise", "vector_add"),
        ("swizzle", "transpose"),
        ("reduction", "sum_over_block"),
        ("hopper", "gemm_hopper"),
    ] {
        let path = root.join(format!("crates/kernels/src/examples/{file}.rs"));
        let source = std::fs::read_to_string(path).unwrap();
        let start = source.find(&format!("fn {function}")).unwrap();
        let end = start + source[start..].find("\n}\n").unwrap() + 3;
        assert!(
            tutorial.contains(&source[start..end]),
            "docs/kernels.md does not show {function} as in {file}.rs"
        );
    }
}

/// What was measured on a GPU lies within what the documentation promises, for every function and type.
#[test]
fn the_measured_errors_of_math_functions_are_within_their_bounds() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/h200/math.json");
    let results: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let measured = results["functions"].as_array().unwrap();
    for function in tilewright::lang::math::FUNCTIONS {
        for name in [function.name.to_owned(), format!("{}_fast", function.name)] {
            let rows: Vec<_> = measured.iter().filter(|row| row["function"] == name.as_str()).collect();
            assert_eq!(rows.len(), 3, "{name} was not measured for f32, f16 and bf16");
            for row in rows {
                assert!(row["share"].as_f64().unwrap() <= 1.0, "{row}");
                if row["type"] == "f32" && name == function.name {
                    assert_eq!(row["bound"]["ulp"].as_f64().unwrap(), function.accurate, "{row}");
                }
            }
        }
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child =
        command(&["layout", "--functions"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}
