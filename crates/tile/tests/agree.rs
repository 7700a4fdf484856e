//! Random kernels of the tile level: what the simulator computes, with passes and without, is what the interpreter says, without a finding.
//!
//! `TILEWRIGHT_FUZZ=10000` tries that many kernels, `TILEWRIGHT_TEST_SEED=n` starts at another one, `TILEWRIGHT_FUZZ_BUDGET=n` fixes their
//! size. A kernel that fails is named by seed and budget, after a search for a smaller one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use tilewright_codegen::Options as Codegen;
use tilewright_hardware::Arch;
use tilewright_ir::{Element, Func, Module, parse, verify};
use tilewright_passes::Pipeline;
use tilewright_sim::{Arg, Launch, Options, Simulator};
use tilewright_tile::LowerError;
use tilewright_tile::fuzz::{Case, Given, Rule};

/// How a kernel did not agree.
#[derive(Debug)]
enum Failure {
    /// It has a matrix product, and the compiler no code for one like it.
    Unsupported,
    /// A fault.
    Wrong(String),
}

fn wrong(what: impl std::fmt::Display) -> Failure {
    Failure::Wrong(what.to_string())
}

/// Compiles the code for threads and runs it; gives the contents of all buffers.
fn simulate(case: &Case, lowered: &Func, arch: Arch, pipeline: &Pipeline) -> Result<Vec<Vec<u8>>, Failure> {
    let mut module = Module::from(lowered.clone());
    pipeline.run(&mut module).map_err(wrong)?;
    let code = tilewright_codegen::compile(&module.funcs[0], &Codegen::new(arch)).map_err(wrong)?;
    let ptx = tilewright_sim::Module::parse(&code.text).map_err(wrong)?;
    let launch = module.funcs[0].launch;
    let [x, y, z] = case.grid;
    let [width, height, depth] = launch.cluster.unwrap_or([1; 3]);
    let shape = Launch {
        grid: [x * width, y * height, z * depth],
        block: launch.threads.ok_or_else(|| wrong("the number of threads is open"))?,
        cluster: None,
        shared_bytes: code.shared.dynamic,
    };
    let mut sim = Simulator::new(Options { seed: case.seed, chip: Some(arch), ..Options::default() });
    let mut buffers = Vec::new();
    let arguments: Vec<Arg> = case
        .arguments
        .iter()
        .map(|given| match given {
            Given::Scalar(element, value) => {
                Arg::Bytes(value.0.to_le_bytes()[..element.bytes() as usize].to_vec())
            }
            Given::Buffer { bytes, .. } => {
                buffers.push(sim.upload_owned(bytes.clone()));
                Arg::Buffer(buffers[buffers.len() - 1])
            }
        })
        .collect();
    let report = sim.launch(&ptx, &code.entry, &shape, &arguments).map_err(wrong)?;
    if let Some(finding) = report.findings.first() {
        return Err(wrong(format!("{} findings, the first: {finding}", report.findings.len())));
    }
    buffers.into_iter().map(|buffer| sim.read(buffer).map_err(wrong)).collect()
}

fn agrees(case: &Case, arch: Arch) -> Result<(), Failure> {
    let expected = case.interpret().map_err(wrong)?;
    let lowered = tilewright_tile::lower(&case.func, arch);
    let lowered = lowered.map_err(|error| match error {
        LowerError::Unsupported { op: "dot", .. } => Failure::Unsupported,
        other => wrong(other),
    })?;
    let lowered = lowered.func;
    let problems = verify(&Module::from(lowered.clone()));
    if !problems.is_empty() {
        return Err(wrong(format!("the lowered kernel is not valid: {:?}", problems[0])));
    }
    for (name, pipeline) in [("without passes", Pipeline::of(&[])), ("with passes", Pipeline::standard())] {
        let found = match simulate(case, &lowered, arch, &pipeline) {
            Err(Failure::Wrong(what)) => return Err(wrong(format!("{name}: {what}"))),
            other => other?,
        };
        if let Some(difference) = case.difference(&expected, &found) {
            return Err(wrong(format!("{name}: {difference}")));
        }
    }
    Ok(())
}

/// The same, with a panic as a failure.
fn outcome(case: &Case, arch: Arch) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(|| agrees(case, arch))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(wrong(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?"))))
    })
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Runs kernels that are `wanted`, and fails with the smallest forms of those that disagree.
fn compare(wanted: impl Fn(&Case) -> bool) {
    let count = setting("TILEWRIGHT_FUZZ").unwrap_or(150);
    let first = setting("TILEWRIGHT_TEST_SEED").unwrap_or(0);
    let budget = setting("TILEWRIGHT_FUZZ_BUDGET").map(|budget| u32::try_from(budget).unwrap());
    let (mut tried, mut ran) = (0, 0);
    let mut failures = Vec::new();
    for seed in first..first + count {
        let case = Case::new(seed, budget.unwrap_or(2 + u32::try_from(seed % 17).unwrap()));
        if !wanted(&case) {
            continue;
        }
        tried += 1;
        let arch = if seed % 2 == 0 { Arch::SM_90A } else { Arch::SM_80 };
        match outcome(&case, arch) {
            Ok(()) => ran += 1,
            Err(Failure::Unsupported) => {}
            Err(Failure::Wrong(_)) => {
                let fails =
                    |case: &Case| wanted(case) && matches!(outcome(case, arch), Err(Failure::Wrong(_)));
                let case = case.smallest(fails);
                if let Err(Failure::Wrong(what)) = outcome(&case, arch) {
                    failures
                        .push(format!("seed {seed}, budget {}, {arch}: {what}\n{}", case.budget, case.func));
                }
            }
        }
        if failures.len() == 5 {
            break;
        }
    }
    assert!(failures.is_empty(), "{} kernels disagree\n\n{}", failures.len(), failures.join("\n\n"));
    // A lowering that refused most kernels would pass otherwise.
    assert!(ran * 2 > tried, "only {ran} of {tried} kernels have code");
}

#[test]
fn compiled_kernels_do_what_the_interpreter_does() {
    compare(|case| !case.rereads);
}

/// What a program has stored, it loads again: by other threads than those that stored it.
#[test]
fn programs_see_their_own_stores() {
    compare(|case| case.rereads);
}

/// A closure that is associative needs no more: the first of all and the last of all, at every extent.
#[test]
fn reductions_keep_the_order() {
    for extent in (1..140).chain([255, 511, 1000, 1536, 4097]) {
        let text = format!(
            "func @ends (%out: ptr<global>) {{
               %0 = iota axis(0) : tile<{extent}xu32>
               %1, %2 = tile_reduce %0, %0 axis(0) : tile<1xu32>, tile<1xu32> do {{
                 (%3: u32, %4: u32, %5: u32, %6: u32)
                 yield %3, %6
               }}
               %7 = cat %1, %2 axis(0) : tile<2xu32>
               %8 = const value(0) : i32
               %9 = const value(2) : u32
               %10 = const value(1) : i64
               tile_store %out, %7, %8, %9, %10
             }}"
        );
        let func = parse(&text).unwrap().funcs.remove(0);
        let out = Given::Buffer { element: Element::U32, bytes: vec![0; 8], rule: Rule::Exact };
        let case = Case { seed: 0, budget: 0, func, grid: [1, 1, 1], arguments: vec![out], rereads: false };
        if let Err(failure) = outcome(&case, Arch::SM_80) {
            panic!("extent {extent}: {failure:?}");
        }
    }
}
