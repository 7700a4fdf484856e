//! Signatures that `tilewright-ptx` reads off foreign kernels, held against what the kernels of the corpus do when they run.
//!
//! A launcher trusts them in three ways, and each is tried: memory that a run changes is never called read-only; memory
//! that is called write-only may be uninitialised; and an unused parameter may have any value.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // References compute with wrapping casts, as C does.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tilewright_hardware::OobFill;
use tilewright_ptx::{Access, Parameter, ParameterKind, Signature};
use tilewright_sim::tensor::tensor_map::{self, Spec};
use tilewright_sim::{Arg, Buffer, Launch, Module, Options, Simulator, TensorMap};

#[allow(dead_code, reason = "shared with the test that looks at results")]
#[path = "corpus/case.rs"]
mod case;
#[path = "corpus/cases/mod.rs"]
mod cases;
#[allow(dead_code, reason = "shared with the test that looks at results")]
#[path = "corpus/numbers.rs"]
mod numbers;

use case::{Case, Input, Verdict};

/// How often each access was claimed of a buffer that a clean run changed, and of one that it did not.
type Tally = BTreeMap<(String, bool), usize>;

#[test]
fn what_a_run_does_to_memory_is_in_the_signature() {
    let (mut faults, mut tally) = (Vec::new(), Tally::new());
    for case in cases::all() {
        for file in &case.files {
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/ptx/{file}.ptx"));
            let text = std::fs::read_to_string(path).unwrap();
            let signatures = tilewright_ptx::parse(&text).unwrap().signatures();
            let signature = signatures.iter().find(|signature| signature.name == case.entry).unwrap();
            if let Err(fault) = run(&case, &text, signature, &mut tally) {
                faults.push(format!("{file}::{}: {fault}\n{signature}", case.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));

    println!("{tally:#?}");
    let count = |wanted: &dyn Fn(&str, bool) -> bool| -> usize {
        tally.iter().filter(|((access, changed), _)| wanted(access, *changed)).map(|(_, count)| count).sum()
    };
    let all = count(&|_, _| true);
    let precise =
        count(&|access, changed| matches!(access, "write" | "read-write") == changed && access != "unknown");
    println!("{precise} of {all} buffers are called written if and only if the run changes them");
    assert!(all > 800 && precise * 100 >= all * 95, "{precise} of {all}");
}

fn run(case: &Case, text: &str, signature: &Signature, tally: &mut Tally) -> Result<(), String> {
    let passed = case.inputs.iter().filter(|(_, passed)| *passed).count();
    if passed != signature.parameters.len() {
        return Err(format!("{passed} arguments, {} parameters", signature.parameters.len()));
    }
    let module = Module::parse(text).unwrap();
    let mut sim = Simulator::new(Options::with_seed(1));
    let mut parameters = signature.parameters.iter();
    let mut buffers: Vec<Option<Buffer>> = Vec::new();
    let mut arguments = Vec::new();
    // Through which parameters each buffer is reached.
    let mut ways: Vec<Vec<Access>> = vec![Vec::new(); case.inputs.len()];
    for (at, (input, passed)) in case.inputs.iter().enumerate() {
        let parameter = if *passed { parameters.next() } else { None };
        let once = !case.inputs.iter().any(|(other, _)| refers(other, at));
        let fresh = once && parameter.is_some_and(|parameter| parameter.access == Access::Write);
        let (buffer, argument) = prepare(&mut sim, &buffers, input, fresh);
        buffers.push(buffer);
        let Some(parameter) = parameter else { continue };
        fits(input, parameter).map_err(|error| format!("argument {at}: {error}"))?;
        match input {
            Input::Buffer { .. } | Input::Addresses(_) => ways[at].push(parameter.access),
            Input::Map { of, .. } => ways[*of].push(parameter.access),
            _ => {}
        }
        arguments.push(if parameter.access == Access::Unused { garbage(parameter) } else { argument });
    }
    let before: Vec<_> =
        buffers.iter().map(|buffer| buffer.map(|buffer| sim.read(buffer).unwrap())).collect();
    let launch =
        Launch { grid: case.grid, block: case.block, cluster: case.cluster, shared_bytes: case.shared };
    let Ok(report) = sim.launch(&module, &case.entry, &launch, &arguments) else {
        return Ok(()); // A launch that is refused does nothing; which may be refused is for the other test.
    };
    let clean = matches!(case.verdict, Verdict::Clean);
    if let (true, Some(finding)) = (clean, report.findings.first()) {
        return Err(finding.to_string());
    }
    for (at, (buffer, before)) in buffers.iter().zip(before).enumerate() {
        let (Some(buffer), Some(before)) = (buffer, before) else { continue };
        if case.inputs.iter().any(|(other, _)| matches!(other, Input::Addresses(of) if of.contains(&at))) {
            continue; // Pointers in memory are outside the contract.
        }
        let changed = sim.read(*buffer).unwrap() != before;
        if changed && !ways[at].iter().any(|access| access.may_write()) {
            return Err(format!("buffer {at} is changed, but claimed {:?}", ways[at]));
        }
        if let (true, [access]) = (clean, &ways[at][..]) {
            *tally.entry((access.to_string(), changed)).or_default() += 1;
        }
    }
    if clean {
        check_results(case, &sim, &buffers)?;
    }
    Ok(())
}

/// Whether an input leads to the buffer of another.
fn refers(input: &Input, to: usize) -> bool {
    match input {
        Input::Addresses(of) => of.contains(&to),
        Input::Map { of, .. } => *of == to,
        _ => false,
    }
}

/// Results must be right in spite of the garbage in what is unused.
fn check_results(case: &Case, sim: &Simulator, buffers: &[Option<Buffer>]) -> Result<(), String> {
    for (at, ((input, _), buffer)) in case.inputs.iter().zip(buffers).enumerate() {
        if let (Input::Buffer { check: Some(check), .. }, Some(buffer)) = (input, buffer) {
            check(&sim.read(*buffer).unwrap()).map_err(|error| format!("input {at}: {error}"))?;
        }
    }
    Ok(())
}

/// Whether the kind of a parameter is that of what is passed.
fn fits(input: &Input, parameter: &Parameter) -> Result<(), String> {
    let vague = matches!(parameter.access, Access::Unused | Access::Unknown);
    let right = match (input, parameter.kind, parameter.bytes) {
        (
            Input::Buffer { .. } | Input::Addresses(_),
            ParameterKind::Pointer(_) | ParameterKind::Either(_),
            8,
        ) => true,
        (Input::Buffer { .. } | Input::Addresses(_), ParameterKind::Scalar(_), 8) => vague,
        (Input::U32(_) | Input::F32(_), ParameterKind::Scalar(_), 1..=4) => true,
        (Input::U64(_), ParameterKind::Scalar(_) | ParameterKind::Either(_), 8) => true,
        // A workspace that is not needed.
        (Input::U64(0), ParameterKind::Pointer(_), 8) => true,
        (Input::Map { .. }, ParameterKind::TensorMap, 128) => true,
        (Input::Map { .. }, ParameterKind::Bytes, 128) => vague,
        (Input::Bytes(bytes), ParameterKind::Bytes, size) => bytes.len() == size as usize,
        _ => false,
    };
    if right { Ok(()) } else { Err(format!("is not what the signature says: {parameter}")) }
}

/// A value that would be noticed if it were used.
fn garbage(parameter: &Parameter) -> Arg {
    match parameter.bytes {
        4 => Arg::U32(0xdead_beef),
        8 => Arg::U64(0xdead_beef_dead_beef),
        bytes => Arg::Bytes(vec![0xa5; bytes as usize]),
    }
}

/// The buffer behind an input, where it has one, and the argument that stands for it; `fresh` leaves it uninitialised.
fn prepare(
    sim: &mut Simulator,
    buffers: &[Option<Buffer>],
    input: &Input,
    fresh: bool,
) -> (Option<Buffer>, Arg) {
    let address = |of: usize| buffers[of].as_ref().expect("refers to a buffer").address();
    let buffer = match input {
        Input::Buffer { initial: Some(bytes), .. } if !fresh => sim.upload(bytes.as_slice()),
        Input::Buffer { bytes, .. } => sim.alloc(*bytes),
        Input::Addresses(of) => {
            let table: Vec<u64> = of.iter().map(|&of| address(of)).collect();
            sim.upload(table.as_slice())
        }
        Input::U32(value) => return (None, Arg::U32(*value)),
        Input::U64(value) => return (None, Arg::U64(*value)),
        Input::F32(value) => return (None, Arg::F32(*value)),
        Input::Bytes(bytes) => return (None, Arg::Bytes(bytes.clone())),
        Input::Map { of, element, dims, strides, tile, swizzle } => {
            let mut extents = [1; 5];
            extents[..tile.len()].copy_from_slice(tile);
            let map = TensorMap::new(&Spec {
                data_type: *element,
                address: address(*of),
                dims,
                strides,
                access: tensor_map::Access::Tile { extents },
                element_strides: &vec![1; dims.len()],
                interleave: 0,
                swizzle: *swizzle,
                fill: OobFill::Zeros,
            });
            return (None, Arg::TensorMap(map.unwrap()));
        }
    };
    (Some(buffer), Arg::Buffer(buffer))
}
