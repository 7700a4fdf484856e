//! `tilewright sim` as its users call it: arrays in files, findings, counts, exit codes, one-line errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// `y = 2 x`, an element a thread.
const TWICE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra $done;
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd5], %f2;
$done:
    ret;
}
";

/// Threads write their word of shared memory and read that of a neighbour in another warp, without a barrier.
const RACE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry race(.param .u64 y)
{
    .shared .align 4 .b8 tile[512];
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.s32 %r4, %r2, %r3;
    st.shared.u32 [%r4], %r1;
    xor.b32 %r5, %r3, 128;
    add.s32 %r6, %r2, %r5;
    ld.shared.u32 %r7, [%r6];
    ld.param.u64 %rd1, [y];
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r7;
    ret;
}
";

const ENDLESS: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry endless()
{
$again:
    bra $again;
}
";

/// Line 7 is an instruction that the simulator does not have.
const UNSUPPORTED: &str = ".version 8.6
.target sm_100a
.address_size 64

.visible .entry unsupported()
{
    tcgen05.fence::before_thread_sync;
    ret;
}
";

/// A folder with kernels and arrays.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, text) in
            [("twice", TWICE), ("race", RACE), ("endless", ENDLESS), ("unsupported", UNSUPPORTED)]
        {
            fs::write(folder.path(&format!("{name}.ptx")), text).unwrap();
        }
        let values: Vec<u8> = values().flat_map(f32::to_le_bytes).collect();
        fs::write(folder.path("x.npy"), npy("<f4", "(100,)", &values)).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs in the folder, so that arguments can name files without it.
    fn sim(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tilewright"))
            .arg("sim")
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Exit code 1 and a single line that starts with `error: `.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.sim(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.lines().count() == 1, "{error:?}");
        error
    }
}

fn values() -> impl Iterator<Item = f32> {
    (0..100_u8).map(|i| f32::from(i) - 7.5)
}

fn npy(ty: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{ty}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap();
    [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// The header and the data of a file.
fn read(path: &Path) -> (String, Vec<u8>) {
    let file = fs::read(path).unwrap();
    assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
    let end = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    (String::from_utf8(file[10..end].to_vec()).unwrap(), file[end..].to_vec())
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn json(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).unwrap()
}

/// Everything for `twice` but `--arg`s.
const LAUNCH: [&str; 5] = ["twice.ptx", "--grid", "2", "--block", "64"];

fn twice<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    LAUNCH.iter().chain(arguments).copied().collect()
}

#[test]
fn a_clean_run_writes_the_array() {
    let folder = Folder::new();
    let output =
        folder.sim(&twice(&["--arg", "in:x.npy", "--arg", "out:y:1.npy:f32:4x25", "--arg", "u32:100"]));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
    let (header, data) = read(&folder.path("y:1.npy"));
    assert!(header.contains("'<f4'") && header.contains("(4, 25,)"), "{header}");
    assert_eq!(data, values().flat_map(|value| (2.0 * value).to_le_bytes()).collect::<Vec<u8>>());
    for part in [
        "twice, 2x1x1 blocks of 64x1x1 threads",
        "findings",
        "none",
        "thread instructions",
        "million a second",
    ] {
        assert!(stdout(&output).contains(part), "{part}: {}", stdout(&output));
    }
}

#[test]
fn seeds_run_on_fresh_copies_and_agree() {
    let folder = Folder::new();
    let arguments = [
        "--arg",
        "inout:x.npy:x2.npy",
        "--arg",
        "out:y.npy:f32:100",
        "--arg",
        "i32:100",
        "--seed",
        "5",
        "--seeds",
        "3",
    ];
    let output = folder.sim(&twice(&[&arguments[..], &["--json", "-"]].concat()));
    assert_eq!(output.status.code(), Some(0));
    let value = json(&output.stdout);
    assert_eq!((&value["ok"], &value["outputs_agree"]), (&true.into(), &true.into()));
    assert_eq!(value["seeds"], serde_json::json!([5, 6, 7]));
    assert_eq!((value["kernel"].as_str(), value["output"].as_str()), (Some("twice"), Some("")));
    assert!(value["instructions_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(read(&folder.path("x.npy")).1, read(&folder.path("x2.npy")).1);
    assert!(stdout(&folder.sim(&twice(&arguments))).contains("5 to 7: all wrote the same"));
}

#[test]
fn counts_and_roofline() {
    let folder = Folder::new();
    let arguments =
        twice(&["--arg", "in:x.npy", "--arg", "out:y.npy:f32:100", "--arg", "u32:100", "--gpu", "RTX 4090"]);
    let output = folder.sim(&[&arguments[..], &["--json", "result.json"]].concat());
    assert_eq!(output.status.code(), Some(0));
    for part in ["warp instructions", "occupancy", "sectors/request", "On GeForce RTX 4090"] {
        assert!(stdout(&output).contains(part), "{part}");
    }
    let value = json(&fs::read(folder.path("result.json")).unwrap());
    assert!(value["counts"]["thread_instructions"].as_u64().unwrap() > 0);
    assert_eq!(value["counts"]["launch"]["grid"], serde_json::json!([2, 1, 1]));
    assert_eq!(value["roofline"]["gpu"], "GeForce RTX 4090");
}

/// 100 of 128 threads: three full warps and one of four lanes, one request each way.
#[test]
fn counts_of_a_known_kernel() {
    let folder = Folder::new();
    let output = folder.sim(&twice(&[
        "--arg",
        "in:x.npy",
        "--arg",
        "out:y.npy:f32:100",
        "--arg",
        "u32:100",
        "--json",
        "-",
    ]));
    let counts = &json(&output.stdout)["counts"];
    let reads = serde_json::json!({"requests": 4, "sectors": 13, "ideal_sectors": 13, "bytes": 400});
    assert_eq!((&counts["global_reads"], &counts["global_writes"]), (&reads, &reads));
    assert_eq!((&counts["flow"]["branches"], &counts["flow"]["diverged_branches"]), (&4.into(), &1.into()));
    let lines: Vec<u64> =
        counts["sites"].as_array().unwrap().iter().map(|s| s["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [25, 27]);
}

#[test]
fn a_race_is_found() {
    let folder = Folder::new();
    let arguments = ["race.ptx", "--grid", "1", "--block", "128", "--arg", "out:y.npy:u32:128"];
    let output = folder.sim(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("race"), "{}", stdout(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("in `race`"));
    let output = folder.sim(&[&arguments[..], &["--json", "-", "--seeds", "2"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let value = json(&output.stdout);
    assert_eq!(value["ok"], false);
    let findings = value["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["kind"] == "race"));
    for seed in [0, 1] {
        assert!(findings.iter().any(|finding| finding["seed"] == seed), "{findings:?}");
    }
    // For people, the same finding of another seed is one line.
    let output = folder.sim(&[&arguments[..], &["--seeds", "3"]].concat());
    assert!(stdout(&output).contains("also with seed"), "{}", stdout(&output));
    // The array is there all the same, to look at.
    assert_eq!(read(&folder.path("y.npy")).1.len(), 512);
}

#[test]
fn an_endless_loop_is_stopped() {
    let folder = Folder::new();
    let output =
        folder.sim(&["endless.ptx", "--grid", "1", "--block", "32", "--budget", "100000", "--json", "-"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(json(&output.stdout)["findings"][0]["kind"], "never_ends");
}

#[test]
fn an_unsupported_instruction_is_named_with_its_line() {
    let folder = Folder::new();
    let error = folder.refused(&["unsupported.ptx", "--grid", "1", "--block", "32"]);
    assert!(error.contains("tcgen05") && error.contains('7'), "{error}");
}

#[test]
fn wrong_arguments_are_named() {
    let folder = Folder::new();
    fs::write(folder.path("broken.npy"), b"\x93NUMPY").unwrap();
    for (arguments, parts) in [
        (&["--arg", "in:x.npy"][..], &["found 1 arguments", "expected 3", "x (8 bytes)", "n (4 bytes)"][..]),
        (
            &["--arg", "u32:1", "--arg", "u64:1", "--arg", "u32:1"],
            &["argument 1", "`u32:1`", "`x`", "expected 8 bytes"],
        ),
        (&["--arg", "u64:1", "--arg", "u64:1", "--arg", "f64:1"], &["argument 3", "`n`", "expected 4 bytes"]),
        (&["--arg", "u64:1", "--arg", "u64:1", "--arg", "in:x.npy"], &["argument 3", "`n`", "array"]),
        (&["--arg", "u64:1", "--arg", "seven"], &["argument 2", "`seven`"]),
        (&["--arg", "in:none.npy", "--arg", "u64:1", "--arg", "u32:1"], &["argument 1", "none.npy"]),
        (
            &["--arg", "in:broken.npy", "--arg", "u64:1", "--arg", "u32:1"],
            &["broken.npy", "expected a header"],
        ),
        (&["--arg", "tmap:x.npy:4:none", "--arg", "u64:1", "--arg", "u32:1"], &["argument 1", "tensor map"]),
    ] {
        let error = folder.refused(&twice(arguments));
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

/// What would keep results from being written is said before the run.
#[test]
fn outputs_are_checked_first() {
    let folder = Folder::new();
    let rest = ["--arg", "u32:100"];
    for (arguments, part) in [
        (&["--arg", "in:x.npy", "--arg", "out:none/y.npy:f32:100"][..], "no folder none"),
        (&["--arg", "inout:x.npy:y.npy", "--arg", "out:y.npy:f32:100"], "y.npy twice"),
        (&["--json", "y.npy", "--arg", "in:x.npy", "--arg", "out:y.npy:f32:100"], "y.npy twice"),
        (&["--json", "none/r.json", "--arg", "in:x.npy", "--arg", "out:y.npy:f32:100"], "no folder none"),
    ] {
        let error = folder.refused(&twice(&[arguments, &rest].concat()));
        assert!(error.contains(part), "{part}: {error}");
        assert!(!folder.path("y.npy").exists());
    }
}

/// A device is written to and stays a device.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let folder = Folder::new();
    symlink("/dev/full", folder.path("full.npy")).unwrap();
    let arguments = ["--arg", "in:x.npy", "--arg", "out:full.npy:f32:100", "--arg", "u32:100"];
    assert!(folder.refused(&twice(&arguments)).contains("full.npy"));
    assert!(fs::metadata(folder.path("full.npy")).unwrap().file_type().is_char_device());
}

#[test]
fn what_a_kernel_requires_need_not_be_given() {
    let folder = Folder::new();
    let required = TWICE.replace("u32 n)", "u32 n)\n.reqntid 64, 1, 1");
    fs::write(folder.path("required.ptx"), required).unwrap();
    let arguments = ["--arg", "in:x.npy", "--arg", "out:y.npy:f32:100", "--arg", "u32:100"];
    let output = folder.sim(&[&["required.ptx", "--grid", "2"], &arguments[..]].concat());
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("blocks of 64x1x1 threads"));
    fs::remove_file(folder.path("y.npy")).unwrap();

    // A launch that the driver would refuse is a finding, and writes nothing.
    let output = folder.sim(&[&["required.ptx", "--grid", "2", "--block", "32"], &arguments[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("resources exceeded"), "{}", stdout(&output));
    assert!(!folder.path("y.npy").exists());
    let error = folder.refused(&[&["twice.ptx", "--grid", "2"], &arguments[..]].concat());
    assert!(error.contains("--block"), "{error}");
}

/// What a kernel prints comes first; a finding names the file.
#[test]
fn output_and_places_are_shown() {
    let folder = Folder::new();
    let print = "
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 values);
.global .align 1 .b8 text[10] = {104, 101, 108, 108, 111, 32, 37, 117, 10, 0};
.visible .entry print()
{
    .local .align 8 .b8 values[8];
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    st.local.u32 [values], %r1;
    mov.u64 %rd1, values;
    cvta.local.u64 %rd1, %rd1;
    mov.u64 %rd2, text;
    cvta.global.u64 %rd2, %rd2;
    {
        .param .b64 a;
        .param .b64 b;
        .param .b32 c;
        st.param.b64 [a], %rd2;
        st.param.b64 [b], %rd1;
        call.uni (c), vprintf, (a, b);
        ld.param.b32 %r2, [c];
    }
    trap;
}
";
    fs::write(folder.path("print.ptx"), print).unwrap();
    let output = folder.sim(&["print.ptx", "--grid", "1", "--block", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout(&output).starts_with("hello 0\n"), "{}", stdout(&output));
    assert!(stdout(&output).contains("--> print.ptx:27: trap;"), "{}", stdout(&output));
    let output = folder.sim(&["print.ptx", "--grid", "1", "--block", "1", "--json", "-"]);
    let value = json(&output.stdout);
    assert_eq!(value["output"], "hello 0\n");
    assert_eq!(value["findings"][0]["file"], "print.ptx");
}

/// Nobody ever sees half a file, however many write it.
#[test]
fn processes_may_write_the_same_file() {
    let folder = Folder::new();
    let arguments = twice(&["--arg", "in:x.npy", "--arg", "out:y.npy:f32:100", "--arg", "u32:100"]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(folder.sim(&arguments).status.code(), Some(0)));
        }
    });
    assert_eq!(read(&folder.path("y.npy")).1.len(), 400);
    let hidden = fs::read_dir(folder.path("")).unwrap().flatten();
    assert_eq!(hidden.filter(|file| file.file_name().to_string_lossy().ends_with(".tmp")).count(), 0);
}

#[test]
fn bad_usage_is_exit_code_1() {
    let folder = Folder::new();
    let (_, other) = ENDLESS.split_once(".address_size 64").unwrap();
    fs::write(folder.path("two.ptx"), [TWICE, other].concat()).unwrap();
    fs::write(folder.path("bad.ptx"), ".version 8.0\n.target sm_80\nnonsense").unwrap();
    fs::write(folder.path("binary.ptx"), b"\x7fELF\xff").unwrap();
    for (arguments, part) in [
        (&["twice.ptx"][..], "--grid"),
        (&["--grid", "1", "--block", "1"], "KERNEL.ptx"),
        (&["none.ptx", "--grid", "1", "--block", "1"], "none.ptx"),
        (&["bad.ptx", "--grid", "1", "--block", "1"], "bad.ptx"),
        (&["binary.ptx", "--grid", "1", "--block", "1"], "expected PTX"),
        (&[".", "--grid", "1", "--block", "1"], "directory"),
        (&["twice.ptx", "--grid", "0", "--block", "1"], "--grid"),
        (&["twice.ptx", "--grid", "1,2,3,4", "--block", "1"], "--grid"),
        (&["twice.ptx", "--grid", "1", "--block", "1", "--gpu", "voodoo2"], "h200"),
        (&["twice.ptx", "--grid", "1", "--block", "1", "--seeds", "0"], "--seeds"),
        (&["twice.ptx", "--grid", "1", "--block", "1", "--entry", "thrice"], "twice"),
        (&["two.ptx", "--grid", "1", "--block", "1"], "--entry"),
    ] {
        let error = folder.refused(arguments);
        assert!(error.contains(part), "{part}: {error}");
    }
}
