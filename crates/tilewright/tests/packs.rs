//! Packs from the command line to a device. Machine code needs the assembler: ignored, visibly, where there is none;
//! `TILEWRIGHT_REQUIRE_PTXAS=1` makes that a failure.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright::cuda::{ComputeCapability, Form, Pack};
use tilewright::device::{Device, DeviceKind, available};
use tilewright::ops::{RmsNorm, Rows, Softmax};
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE, VARIABLE};

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let trials = vec![
        Trial::test("a_pack_runs_on_every_device", a_pack_runs_on_every_device),
        Trial::test("a_kernel_keeps_what_its_launch_needs", a_kernel_keeps_what_its_launch_needs),
        Trial::test("operators_need_no_compiler", operators_need_no_compiler),
        Trial::test("what_cannot_be_packed_is_said", what_cannot_be_packed_is_said),
        Trial::test("a_pack_is_replaced_whole_or_not_at_all", a_pack_is_replaced_whole_or_not_at_all)
            .with_ignored_flag(!cfg!(unix)),
        Trial::test("all_operators_are_those_that_there_are", all_operators_are_those_that_there_are),
        Trial::test("with_an_assembler_there_is_machine_code", with_an_assembler_there_is_machine_code)
            .with_ignored_flag(ignored),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn ensure(condition: bool, what: impl std::fmt::Display) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(what.to_string().into()) }
}

fn compile(arguments: &[&str], pack: &Path) -> Result<Output, Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    Ok(command.args(["compile", "--pack"]).arg(pack).args(arguments).output()?)
}

/// The bytes of a pack that could be made.
fn packed(arguments: &[&str]) -> Result<Vec<u8>, Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("kernels.pack");
    let output = compile(arguments, &file)?;
    ensure(output.status.success(), String::from_utf8_lossy(&output.stderr))?;
    let info = Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .args(["compile", "--json", "--pack-info"])
        .arg(&file)
        .output()?;
    let (bytes, listed) = (std::fs::read(&file)?, serde_json::from_slice::<serde_json::Value>(&info.stdout)?);
    let kernels = Pack::parse(&bytes)?.kernels().len();
    ensure(listed.as_array().map(Vec::len) == Some(kernels), &listed)?;
    Ok(bytes)
}

/// A file that may not become longer than a kilobyte is as good as a full disk.
fn a_pack_is_replaced_whole_or_not_at_all() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("kernels.pack");
    std::fs::write(&file, "as it was")?;
    let limited =
        "trap '' XFSZ; ulimit -f 2; exec \"$0\" compile --cubin=never --pack \"$1\" vector_add transpose";
    let program = env!("CARGO_BIN_EXE_tilewright");
    let output = Command::new("sh").args(["-c", limited, program]).arg(&file).output()?;
    ensure(output.status.code() == Some(1), String::from_utf8_lossy(&output.stderr))?;
    ensure(std::fs::read(&file)? == b"as it was", "the pack that was there is lost")?;
    ensure(std::fs::read_dir(folder.path())?.count() == 1, "something is left behind")
}

fn a_pack_runs_on_every_device() -> Result<(), Failed> {
    let bytes = packed(&["vector_add", "transpose", "--cubin=never"])?;
    let pack = Pack::parse(&bytes)?;
    ensure(pack.kernels().all(|kernel| kernel.form == Form::Ptx), "machine code that nobody asked for")?;
    for device in available() {
        let kernel = device.load_packed(&pack, "vector_add")?;
        ensure(kernel.block() == Some([256, 1, 1]), format!("{:?}", kernel.block()))?;
        let (x, out) = (device.upload(&[1.25f32; 1000])?, device.alloc::<f32>(1000)?);
        kernel.launch(4, &[&x, &x, &out, &1000u32])?.expect_clean()?;
        ensure(out.to_vec()? == [2.5; 1000], format!("wrong on {}", device.name()))?;
        let Err(error) = device.load_packed(&pack, "vector_sub") else { return Err("found".into()) };
        ensure(error.to_string().contains("vector_add ("), &error)?;
    }
    Ok(())
}

/// Clusters and dynamic shared memory are the kernel's own, in a pack as well.
fn a_kernel_keeps_what_its_launch_needs() -> Result<(), Failed> {
    let bytes = packed(&["cluster_sum", "gemm_hopper", "--arch", "sm_90a", "--cubin=never"])?;
    let pack = Pack::parse(&bytes)?;
    let device = Device::cpu();
    let sum = device.load_packed(&pack, "cluster_sum")?;
    ensure(sum.cluster() == Some([4, 1, 1]), format!("{:?}", sum.cluster()))?;
    let (x, out) = (device.upload(&[0.5f32; 5000])?, device.alloc_zeroed::<f32>(1)?);
    sum.launch(8, &[&x, &out, &5000u32])?.expect_clean()?;
    ensure(out.to_vec()? == [2500.0], "wrong sum")?;
    let product = device.load_packed(&pack, "gemm_hopper")?;
    ensure(product.shared_bytes() > 48 << 10, product.shared_bytes())
}

/// Operators of the library and kernels on tiles, for chosen chips, on a device that must not compile.
fn operators_need_no_compiler() -> Result<(), Failed> {
    let operators = ["--ops", "softmax,rmsnorm", "--columns", "256,100", "--types", "f32"];
    let rest = ["ops/softmax", "tutorial/matmul", "--arch", "sm_80,sm_90a", "--any-tensor", "--cubin=never"];
    let bytes = packed(&[&operators[..], &rest[..]].concat())?;
    let pack = Pack::parse(bytes.leak())?;
    let targets: BTreeSet<String> = pack.kernels().map(|kernel| kernel.target.to_string()).collect();
    ensure(targets == ["sm_80", "sm_90", "sm_90a"].map(String::from).into(), format!("{targets:?}"))?;
    let device = Device::simulator();
    device.add_pack(pack.clone());
    device.only_packed(true);
    for (rows, columns) in [(4, 256), (33, 256), (64, 100)] {
        let x = device.upload(&vec![1.0f32; rows * columns])?;
        let x = Rows::new(&x, rows, columns);
        let weight = device.upload(&vec![1.0f32; columns])?;
        RmsNorm::new(1e-6).weight(&weight).run(&device, x, x)?;
        Softmax::new().run(&device, x, x)?;
    }
    let x = device.upload(&[1.0f32; 64 * 128])?;
    let Err(error) = Softmax::new().run(&device, Rows::new(&x, 64, 128), Rows::new(&x, 64, 128)) else {
        return Err("compiled".into());
    };
    ensure(error.to_string().contains("is in no pack of the device"), &error)?;
    // Kernels on tiles have variants, so a name alone does not say which.
    let Err(error) = device.load_packed(&pack, "softmax") else { return Err("found by name".into()) };
    ensure(error.to_string().contains("softmax (PTX for sm_90"), &error)
}

/// Rows that cannot be turned in pairs leave out what turns them, and nothing else.
fn all_operators_are_those_that_there_are() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("kernels.pack");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args([
        "compile",
        "--ops",
        "all",
        "--columns",
        "33",
        "--types",
        "f32",
        "--arch",
        "sm_80",
        "--cubin=never",
    ]);
    let output = command.arg("--pack").arg(&file).output()?;
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure(output.status.success(), &error)?;
    let left_out: Vec<&str> = said.lines().filter(|line| line.starts_with("left out: ")).collect();
    ensure(left_out.len() == 1 && left_out[0].contains("rope of 33 columns of f32: `rotary`"), &said)?;
    let bytes = std::fs::read(&file)?;
    let pack = Pack::parse(&bytes)?;
    ensure(pack.kernels().any(|kernel| kernel.name.contains("softmax")), "no softmax")?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["compile", "--ops", "all", "--columns", "64", "--types", "u8", "--pack"]).arg(&file);
    let error = String::from_utf8_lossy(&command.output()?.stderr).into_owned();
    ensure(error.contains("f32, f16 or bf16"), error)
}

fn what_cannot_be_packed_is_said() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("kernels.pack");
    let refused = |output: Output, code: i32, part: &str| {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = error.lines().count() == 1 && error.contains(part);
        ensure(output.status.code() == Some(code) && said, format!("{:?}: {error}", output.status))
    };
    refused(compile(&["no_such_kernel"], &file)?, 2, "`tilewright compile --list` lists all")?;
    refused(compile(&["vector_add", "gemm_hopper", "--arch", "sm_80"], &file)?, 2, "needs sm_90a")?;
    let operator = |name| compile(&["--ops", name, "--columns", "64"], &file);
    refused(operator("softmin")?, 2, "there are softmax, log-softmax, ")?;
    refused(compile(&["--ops", "softmax"], &file)?, 2, "--columns")?;
    refused(
        compile(&["--ops", "softmax", "--columns", "64", "--types", "u8"], &file)?,
        2,
        "f32, f16 or bf16",
    )?;
    refused(
        compile(&["--ops", "rope", "--columns", "63"], &file)?,
        2,
        "rope of 63 columns of f32: `rotary`",
    )?;
    refused(compile(&["--ops", "all", "--columns", "64,0"], &file)?, 2, "--columns: found 0")?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["compile", "vector_add", "--cubin", "--pack"]).arg(&file);
    refused(command.env(VARIABLE, "/no/such/ptxas").output()?, 1, "/no/such/ptxas")?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["compile", "vector_add", "--cubin", "--pack"]).arg(&file);
    refused(command.env(VARIABLE, "/no/such/ptxas").output()?, 1, "or leave out `--cubin`")?;
    ensure(!file.exists(), "half a pack was written")?;
    std::fs::write(&file, "something else")?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    refused(command.args(["compile", "--pack-info"]).arg(&file).output()?, 2, "not a pack")
}

fn with_an_assembler_there_is_machine_code() -> Result<(), Failed> {
    let bytes = packed(&["vector_add", "--arch", "sm_80,sm_90a", "--cubin"])?;
    let pack = Pack::parse(&bytes)?;
    let on = |major, minor| {
        pack.select("vector_add", ComputeCapability { major, minor }).map(|kernel| kernel.form)
    };
    ensure(on(9, 0) == Some(Form::Cubin) && on(8, 0) == Some(Form::Cubin), "no machine code")?;
    ensure(on(10, 0) == Some(Form::Ptx), "no PTX for later chips")?;
    let cubins: Vec<_> = pack.kernels().filter(|kernel| kernel.form == Form::Cubin).collect();
    ensure(cubins.iter().all(|kernel| kernel.code.starts_with(b"\x7fELF")), "no ELF")?;
    let operators =
        ["--ops", "softmax", "--columns", "1536", "--types", "bf16", "--arch", "sm_90a", "--cubin"];
    let bytes_of_operators = packed(&operators)?;
    let variants = Pack::parse(&bytes_of_operators)?;
    let forms =
        |form| variants.kernels().filter(|kernel| kernel.form == form && kernel.variant.is_some()).count();
    ensure(
        forms(Form::Cubin) > 0 && forms(Form::Cubin) == forms(Form::Ptx),
        "operators without machine code",
    )?;
    // A computer takes the PTX, whatever else there is.
    let kernel = Device::cpu().load_packed(&pack, "vector_add")?;
    ensure(kernel.device().kind() == DeviceKind::Cpu, "elsewhere")
}
