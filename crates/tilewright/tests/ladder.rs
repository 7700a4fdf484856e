//! Every step of the ladder in the simulator: clean and exact, whatever the order of warps.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::path::Path;
use std::process::{Command, Output};

use tilewright::device::{Device, Options};
use tilewright::hardware::{Gpu, TensorKind};
use tilewright::kernels::ladder::{LADDER, Step, Takes};
use tilewright::ladder::Workbench;

/// Two tiles along the rows and enough steps of `k` that every buffer is used again.
fn small(step: &Step) -> [u32; 3] {
    let [m, n, k] = step.multiples();
    match step.takes {
        Takes::Tiles { .. } => [m, 2 * n, k * (step.tile.stages + 1)],
        _ => [2 * m, n, k.max(8) * (step.tile.stages + 2)],
    }
}

fn run(step: &Step) {
    for seed in [0, 1] {
        let device = Device::simulator_with(Options::with_seed(seed));
        // One cluster, so that it has two tiles to do.
        let bench = Workbench::new(&device, small(step), seed).unwrap().with_multiprocessors(1);
        bench.run(step).unwrap_or_else(|error| panic!("{}, seed {seed}: {error}", step.name));
    }
}

macro_rules! steps {
    ($($test:ident)*) => {
        $( #[test] fn $test() { run(tilewright::kernels::ladder::find(stringify!($test).trim_start_matches("r#")).unwrap()); } )*

        /// A step without a test would be tested nowhere.
        #[test]
        fn every_step_has_a_test() {
            let tested = [$( stringify!($test).trim_start_matches("r#") ),*];
            assert_eq!(tested.to_vec(), LADDER.iter().map(|step| step.name).collect::<Vec<_>>());
        }
    };
}

steps! { naive patch shared registers vectors tensor r#async wgmma specialised persistent cluster }

const CHAPTER: &str = include_str!("../../../docs/gemm.md");

/// Listings of the chapter: file and lines.
fn listings() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut listings = Vec::new();
    let mut lines = CHAPTER.lines();
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if let Some(file) = words.strip_prefix("rust ") {
                listings.push((file, text));
            } else {
                assert!(!words.starts_with("rust"), "a listing of Rust without its file: {text:?}");
            }
        }
    }
    listings
}

/// What the chapter shows is what the file says, line by line.
#[test]
fn the_chapter_shows_the_code() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/src/ladder");
    let listings = listings();
    for (file, shown) in &listings {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.windows(shown.len()).any(|window| window == &shown[..]), "{file} has no {shown:#?}");
    }
    for step in LADDER {
        let heading = format!("## {}. {}: ", step.number, step.name);
        assert!(CHAPTER.contains(&heading), "no section {heading}");
    }
    assert!(listings.len() > LADDER.len(), "a listing for each step");
}

/// The roofline that step 10 is about.
#[test]
fn the_chapter_knows_the_chip() {
    let gpu = Gpu::named("h200").unwrap();
    let tensor = f64::from(gpu.tensor_rate(TensorKind::F16)) * gpu.clock * f64::from(gpu.multiprocessors);
    let delivered = format!("DRAM delivers {:.1} bytes", 2000.0 / tensor * gpu.dram);
    let asked = format!("128 x 256 asks for {:.1}", 1000.0 * 2.0 * (128.0 + 256.0) / (128.0 * 256.0));
    for fact in [delivered, asked] {
        assert!(CHAPTER.contains(&fact), "the chapter does not say `{fact}`");
    }
}

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["bench", "ladder"]).args(arguments).output().unwrap()
}

/// The counts that the chapter argues with. The slow steps are left to whoever runs the command that writes them.
#[test]
fn the_chapter_shows_the_counts() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(&page, "<!-- ladder counts -->\n<!-- end -->\n").unwrap();
    let steps = ["registers", "vectors", "tensor", "async", "wgmma", "specialised", "persistent", "cluster"];
    let steps: Vec<&str> = steps.iter().flat_map(|step| ["--step", *step]).collect();
    let output = bench(&[&["--simulator", "--doc", page.to_str().unwrap()], &steps[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(page).unwrap();
    let advice = "tilewright bench ladder --simulator --doc docs/gemm.md";
    for line in page.lines() {
        assert!(CHAPTER.lines().any(|shown| shown == line), "the chapter lacks `{line}`; run `{advice}`");
    }
    assert!(page.lines().count() > 10, "{page}");
}

/// No number that was not measured: the table of times is that of the results, or there is none.
#[test]
fn the_chapter_shows_the_times() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/h200/ladder.json");
    if Path::new(results).exists() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        std::fs::write(&page, CHAPTER).unwrap();
        assert!(bench(&["--from", results, "--doc", page.to_str().unwrap()]).status.success());
        assert_eq!(
            std::fs::read_to_string(page).unwrap(),
            CHAPTER,
            "run `tilewright bench ladder --from .. --doc`"
        );
    } else {
        assert!(CHAPTER.contains("<!-- ladder times -->\n<!-- end -->\n"), "times without results");
    }
}

#[test]
fn results_are_kept_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, plot) = (path("ladder.json"), path("ladder.svg"));
    let arguments = ["--simulator", "--shape", "64x64x64", "--step", "patch", "--step", "3"];
    let output = bench(&[&arguments[..], &["--json", &json, "--plot", &plot]].concat());
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && shown.starts_with("64x64x64, H200 SXM, simulated\n"), "{shown}");
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&kept["counts"][0]["name"], &kept["counts"][1]["number"]), (&"patch".into(), &3.into()));
    // A warp of the patch asks for 4 + 8 sectors for 32 multiply-adds; the rest is the result.
    let bytes = kept["counts"][0]["global_bytes"].as_f64().unwrap();
    assert!((12_000.0..12_100.0).contains(&bytes), "{bytes}");
    let drawn = std::fs::read_to_string(plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.matches("class=\"ours\"").count() == 2, "{drawn}");

    // Counts are no times.
    let output = bench(&["--from", &json]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("found no times"), "{output:?}");
}

#[test]
fn wrong_input_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    std::fs::write(&page, "nothing").unwrap();
    let page = page.to_str().unwrap();
    for (arguments, expected) in [
        (&["--shape", "64x64"][..], "expected M x N x K"),
        (&["--shape", "0x64x64"], "expected M x N x K"),
        (&["--step", "frobnicate"], "expected one of naive, patch"),
        (&["--seconds=-1"], "expected a number of seconds"),
        (
            &["--simulator", "--shape", "100x64x64", "--step", "1"],
            "m is 100, expected a positive multiple of 32",
        ),
        (
            &["--simulator", "--shape", "32x8x8", "--step", "1", "--doc", page],
            "found no lines `<!-- ladder counts -->`",
        ),
        (&["--from", page], "expected what `tilewright bench ladder --json` writes"),
    ] {
        let output = bench(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
    }
    assert_eq!(bench(&["--from", "/nonexistent/ladder.json"]).status.code(), Some(1));
}
