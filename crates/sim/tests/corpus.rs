//! Kernels of other compilers (CUDA C++ through NVRTC, Triton) run in the simulator: right ones must give the results of
//! an independent reference without a finding, broken ones must be found out. Each case runs with several seeds, that is,
//! with several orders of warps and blocks. `corpus/README.txt` tells where the PTX comes from.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // References compute with wrapping casts, as C does.

use std::path::PathBuf;

use libtest_mimic::{Arguments, Trial};
use tilewright_hardware::OobFill;
use tilewright_sim::tensor::tensor_map::{Access, Spec};
use tilewright_sim::{Arg, Buffer, FindingKind, Launch, Module, Options, Simulator, TensorMap};

#[path = "corpus/case.rs"]
mod case;
#[path = "corpus/cases/mod.rs"]
mod cases;
#[path = "corpus/numbers.rs"]
mod numbers;

use case::{Case, Input, Verdict};

const SEEDS: [u64; 3] = [1, 2, 77];

fn main() {
    let mut trials = Vec::new();
    for case in cases::all() {
        let case = std::sync::Arc::new(case);
        for file in case.files.clone() {
            let case = case.clone();
            let name = format!("{file}::{}", case.name);
            trials.push(Trial::test(name, move || {
                SEEDS.into_iter().try_for_each(|seed| {
                    run(&case, file, seed).map_err(|e| format!("seed {seed}: {e}").into())
                })
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// One launch with one seed. Everything that knows the simulator's interface is in here.
fn run(case: &Case, file: &str, seed: u64) -> Result<(), String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/ptx/{file}.ptx"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let module = Module::parse(&text).map_err(|e| format!("the module does not parse: {e}"))?;
    let mut sim = Simulator::new(Options::with_seed(seed));

    let mut buffers: Vec<Option<Buffer>> = Vec::new();
    let mut arguments = Vec::new();
    for (input, passed) in &case.inputs {
        let (buffer, argument) = prepare(&mut sim, &buffers, input)?;
        buffers.push(buffer);
        if *passed {
            arguments.push(argument);
        }
    }
    let launch =
        Launch { grid: case.grid, block: case.block, cluster: case.cluster, shared_bytes: case.shared };
    let report = match sim.launch(&module, &case.entry, &launch, &arguments) {
        Ok(report) => report,
        Err(_) if case.verdict.allows(FindingKind::ResourcesExceeded) => return Ok(()),
        Err(error) => return Err(format!("the launch is refused: {error}")),
    };
    match &case.verdict {
        Verdict::Finds(kinds) => {
            if report.findings.iter().any(|finding| kinds.contains(&finding.kind)) {
                return Ok(());
            }
            let found: Vec<_> = report.findings.iter().map(|finding| finding.message.as_str()).collect();
            return Err(format!("expected one of {kinds:?}, found {found:#?}"));
        }
        Verdict::Clean => {
            if let Some(finding) = report.findings.first() {
                return Err(format!(
                    "{} findings where none should be: {:?}: {}",
                    report.findings.len(),
                    finding.kind,
                    finding.message
                ));
            }
        }
    }
    for (index, ((input, _), buffer)) in case.inputs.iter().zip(&buffers).enumerate() {
        if let (Input::Buffer { check: Some(check), .. }, Some(buffer)) = (input, buffer) {
            let bytes: Vec<u8> =
                sim.download(*buffer).map_err(|e| format!("input {index} cannot be read back: {e}"))?;
            check(&bytes).map_err(|e| format!("input {index}: {e}"))?;
        }
    }
    if let Some(expected) = &case.printed {
        let mut lines: Vec<&str> = report.output.lines().collect();
        lines.sort_unstable();
        if lines != *expected {
            return Err(format!("printed {lines:#?}, expected {expected:#?}"));
        }
    }
    Ok(())
}

/// The buffer behind an input, where it has one, and the argument that stands for it.
fn prepare(
    sim: &mut Simulator,
    buffers: &[Option<Buffer>],
    input: &Input,
) -> Result<(Option<Buffer>, Arg), String> {
    let address = |of: usize| buffers[of].as_ref().expect("refers to a buffer").address();
    Ok(match input {
        Input::Buffer { initial: Some(bytes), .. } => {
            let buffer = sim.upload(bytes.as_slice());
            (Some(buffer), Arg::Buffer(buffer))
        }
        Input::Buffer { initial: None, bytes, .. } => {
            let buffer = sim.alloc(*bytes);
            (Some(buffer), Arg::Buffer(buffer))
        }
        Input::Addresses(of) => {
            let table: Vec<u64> = of.iter().map(|&of| address(of)).collect();
            let buffer = sim.upload(table.as_slice());
            (Some(buffer), Arg::Buffer(buffer))
        }
        Input::U32(value) => (None, Arg::U32(*value)),
        Input::U64(value) => (None, Arg::U64(*value)),
        Input::F32(value) => (None, Arg::F32(*value)),
        Input::Bytes(bytes) => (None, Arg::Bytes(bytes.clone())),
        Input::Map { of, element, dims, strides, tile, swizzle } => {
            let mut extents = [1; 5];
            extents[..tile.len()].copy_from_slice(tile);
            let map = TensorMap::new(&Spec {
                data_type: *element,
                address: address(*of),
                dims,
                strides,
                access: Access::Tile { extents },
                element_strides: &vec![1; dims.len()],
                interleave: 0,
                swizzle: *swizzle,
                fill: OobFill::Zeros,
            });
            (None, Arg::TensorMap(map.map_err(|e| format!("the tensor map is refused: {e}"))?))
        }
    })
}
