//! The simulator's corpus of other compilers' kernels (CUDA C++, Triton) on a real GPU, through the runtime: what the simulator calls right
//! must be right there, and no launch may be refused. Ignored, visibly, without a GPU; `TILEWRIGHT_REQUIRE_GPU=1` makes that a failure.
//!
//! On a machine that has the binary only, `TILEWRIGHT_CORPUS` names the folder with the PTX.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, unreachable_pub, dead_code)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_cuda::{
    Arg, Buffer, Code, Context, Driver, Kernel, LaunchConfig, ParameterKind, Stream, TensorMap,
};
use tilewright_fake_driver::Fake;
use tilewright_hardware::{Element, TensorMapSpec};
use tilewright_sim::tensor::tensor_map::DataType;

#[path = "../../sim/tests/corpus/case.rs"]
mod case;
#[path = "../../sim/tests/corpus/cases/mod.rs"]
mod cases;
#[path = "../../sim/tests/corpus/numbers.rs"]
mod numbers;

use case::{Case, Input, Verdict};

/// Set in a process of this program that runs on the fake driver, where launches are checked and recorded but nothing is computed.
const FAKE: &str = "TILEWRIGHT_TEST_FAKE";

fn main() {
    let required = std::env::var_os("TILEWRIGHT_REQUIRE_GPU").is_some_and(|value| value == "1");
    let fake = std::env::var_os(FAKE).is_some();
    let ignored = Driver::load().is_err() && !required;
    let mut trials = Vec::new();
    // Kernels with a bug would end the context for all others.
    for case in cases::all().into_iter().filter(|case| matches!(case.verdict, Verdict::Clean)) {
        let case = Arc::new(case);
        for file in case.files.clone() {
            let case = case.clone();
            let name = format!("{file}::{}", case.name);
            trials.push(Trial::test(name, move || run(&case, file, !fake)).with_ignored_flag(ignored));
        }
    }
    if ignored {
        trials.push(Trial::test("every_launch_is_accepted", every_launch_is_accepted));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Without a GPU: signatures read off other compilers' PTX take the arguments that these kernels are meant to have.
fn every_launch_is_accepted() -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(FAKE, "1").env("TILEWRIGHT_CACHE_DIR", "off").args(["--test-threads", "2"]);
    let _library = Fake::new().prepare(&mut command)?;
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ran = text.lines().filter(|line| line.ends_with("... ok")).count();
    if output.status.success() && ran > 300 { Ok(()) } else { Err(format!("{ran} accepted\n{text}").into()) }
}

fn folder() -> PathBuf {
    match std::env::var_os("TILEWRIGHT_CORPUS") {
        Some(folder) => folder.into(),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../sim/tests/corpus/ptx"),
    }
}

/// The text, with a version that the driver takes: compilers state their own, not what the instructions need.
fn text(context: &Context, file: &str) -> Result<String, Failed> {
    let path = folder().join(format!("{file}.ptx"));
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let newest = context.driver().ptx_version().ok_or("a driver before CUDA 10")?;
    let line = text.lines().find(|line| line.starts_with(".version")).ok_or("no version")?;
    let stated: Vec<u32> = line[8..].trim().split('.').filter_map(|part| part.parse().ok()).collect();
    if stated[..] > [newest.major, newest.minor][..] {
        return Ok(text.replacen(line, &format!(".version {newest}"), 1));
    }
    Ok(text)
}

#[allow(unsafe_code)]
fn run(case: &Case, file: &str, computes: bool) -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let text = text(&context, file)?;
    // SAFETY: the simulator found nothing wrong with these kernels, launched as they are here.
    let kernel = unsafe { context.load(&Code::ptx(&text)) }?.kernel(&case.entry)?;

    let mut buffers = Vec::new();
    for (input, _) in &case.inputs {
        buffers.push(buffer(&stream, &buffers, input)?);
    }
    let mut maps = Vec::new();
    for (input, _) in &case.inputs {
        maps.push(map(&mut buffers, input)?);
    }
    let mut arguments = Vec::new();
    for (((input, passed), buffer), map) in case.inputs.iter().zip(&mut buffers).zip(&maps) {
        if !passed {
            continue;
        }
        arguments.push(match (input, buffer, map) {
            (_, Some(buffer), _) => Arg::from(buffer),
            (_, _, Some(map)) => Arg::from(map),
            (Input::U32(value), ..) => Arg::from(*value),
            // Triton's scratch memory, of which these kernels need none.
            (Input::U64(0), ..) if is_pointer(&kernel, arguments.len()) => Arg::null(),
            (Input::U64(value), ..) => Arg::from(*value),
            (Input::F32(value), ..) => Arg::from(*value),
            (Input::Bytes(bytes), ..) => Arg::bytes(bytes),
            _ => return Err("an input without an argument".into()),
        });
    }
    let mut config = LaunchConfig::new(case.grid, case.block).shared(case.shared);
    if let Some(cluster) = case.cluster {
        config = config.cluster(cluster);
    }
    // All blocks wait for each other.
    if case.entry == "grid_sync" {
        config = config.cooperative();
    }
    kernel.launch(&stream, &config, &arguments[..])?;
    drop(arguments);
    stream.synchronize()?;
    if !computes {
        return Ok(());
    }
    for (index, ((input, _), buffer)) in case.inputs.iter().zip(&buffers).enumerate() {
        if let (Input::Buffer { check: Some(check), .. }, Some(buffer)) = (input, buffer) {
            check(&stream.download(buffer)?).map_err(|error| format!("input {index}: {error}"))?;
        }
    }
    Ok(())
}

fn is_pointer(kernel: &Kernel, parameter: usize) -> bool {
    matches!(kernel.signature().parameters[parameter].kind, ParameterKind::Pointer(_))
}

/// The memory behind an input, where it has some; what nobody wrote is poison.
fn buffer(
    stream: &Stream,
    before: &[Option<Buffer<u8>>],
    input: &Input,
) -> Result<Option<Buffer<u8>>, Failed> {
    Ok(match input {
        Input::Buffer { initial: Some(bytes), .. } => Some(stream.upload(bytes)?),
        Input::Buffer { initial: None, bytes, .. } => {
            let mut buffer = stream.alloc::<u8>(*bytes)?;
            stream.fill(&mut buffer, 0xcd)?;
            Some(buffer)
        }
        Input::Addresses(of) => {
            let table: Vec<u8> = of
                .iter()
                .filter_map(|&of| before[of].as_ref())
                .flat_map(|buffer| buffer.address().to_le_bytes())
                .collect();
            Some(stream.upload(&table)?)
        }
        _ => None,
    })
}

/// The tensor map that an input is, if it is one.
fn map(buffers: &mut [Option<Buffer<u8>>], input: &Input) -> Result<Option<TensorMap>, Failed> {
    let Input::Map { of, element, dims, strides, tile, swizzle } = input else { return Ok(None) };
    let element = match element {
        DataType::U8 => Element::U8,
        DataType::U16 => Element::U16,
        DataType::U32 => Element::U32,
        DataType::S32 => Element::I32,
        DataType::U64 => Element::U64,
        DataType::S64 => Element::I64,
        DataType::F16 => Element::F16,
        DataType::F32 | DataType::F32Ftz => Element::F32,
        DataType::F64 => Element::F64,
        DataType::Bf16 => Element::BF16,
        DataType::Tf32 | DataType::Tf32Ftz => Element::TF32,
    };
    let spec = TensorMapSpec::new(element, tile, *swizzle)?;
    let buffer = buffers[*of].as_mut().ok_or("a map of no buffer")?;
    let map = TensorMap::strided(&spec, buffer.as_slice(), dims, strides)?;
    Ok(Some(map.writable(buffer.as_mut_slice())?))
}
