//! Epilogues through the real assembler: no spills, and few registers beyond the sums. Ignored, visibly, where there is no assembler;
//! `TILEWRIGHT_REQUIRE_PTXAS=1` makes that a failure.

use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright::compiler::Compiler;
use tilewright::hardware::{Arch, Element};
use tilewright::kernels::gemm::epilogue::{Epilogue, Lanes, Piece, Place, with_reductions};
use tilewright::kernels::gemm::{KernelSource, Launch, Placement, Problem, Recipe, Storage, Types};
use tilewright::lang::prelude::*;
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE};

/// Sums of a thread: 64 columns in two rows.
const SUMS: u32 = 32;

/// The end of a product on tensor cores: a warp has 16 rows and 64 columns.
#[kernel(threads = 128)]
fn end_of_product(sums: Global<f32>, out: Global<bf16>, m: Val<u32>, n: Val<u32>, problem: Problem) {
    let mut epilogue = problem.epilogue.stage::<f32>(&problem);
    let merged = problem.epilogue.columns_for_one();
    let (top, left) = (block_id(1) * 64u32 + warp_id() * 16u32, block_id(0) * 64u32);
    let first = sums.at((block_id(0) * 128u32 + thread_id(0)) * SUMS);
    let mine: Vec<Val<f32>> = (0..SUMS / 4).flat_map(|i| first.at(i * 4).load_vector(4).elements()).collect();
    for i in unroll(0..SUMS / 2) {
        let row = top + lane_id() / 4u32 + i % 2 * 8;
        let column = left + lane_id() % 4u32 * 2u32 + i / 2 * 8;
        let place = Place { batch: block_id(2), row, column, bounds: Some((m, n)) };
        let pair = Vector::new([mine[2 * i as usize], mine[2 * i as usize + 1]]);
        let results = epilogue.apply(place, pair, None);
        let at = out.matrix(n / merged).at(row, column / merged);
        at.store_vector_if(place.inside(0), results.cast::<bf16>());
    }
    epilogue.finish(Lanes::FRAGMENT, Piece { batch: block_id(2), across: block_id(0), down: top / 16u32 });
}

fn epilogues() -> Vec<(&'static str, Element, Epilogue)> {
    use Element::{BF16, F32};
    let new = Epilogue::new;
    let dense = |n| Placement::dense(Storage::RowMajor, 4096, n);
    vec![
        ("linear", BF16, Epilogue::linear()),
        ("bias and gelu", BF16, new().alpha().bias_per_column("bias", BF16).gelu()),
        ("bias and accurate gelu", F32, new().alpha().bias_per_column("bias", F32).gelu()),
        ("scales", BF16, new().scale_rows("sa", F32).scale_columns("sb", F32).scale("s").silu()),
        ("residual", BF16, new().residual("x", BF16, dense(4096)).store("pre", BF16, dense(4096)).relu()),
        ("swiglu", BF16, new().bias_per_column("bias", BF16).swiglu()),
        ("amax", BF16, new().bias_per_column("bias", BF16).gelu_tanh().amax("largest")),
        ("row sums", BF16, new().alpha().row_sums("rows")),
        ("column sums", BF16, new().alpha().column_sums("columns")),
    ]
}

fn problem(d: Element, epilogue: Epilogue) -> Problem {
    let plain = Problem { epilogue, ..Problem::new(4096, 4096, 64, Types::of(Element::BF16).with_result(d)) };
    let epilogue = plain.epilogue.widened(&plain, |_| 256);
    Problem { epilogue, ..plain }
}

/// The most registers: those of the sums and as many again, with some for addresses.
const REGISTERS: u32 = 80;

fn assemble(kernel: &Kernel) -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    for arch in ["sm_80", "sm_89", "sm_90a"] {
        let build = Compiler::new(arch.parse::<Arch>()?).compile(kernel.func())?;
        let report = assembler.assemble(&build.code.text, arch)?;
        for entry in report.entries {
            println!("{arch} {}: {} registers", entry.name, entry.registers);
            let spilled = entry.spill_store_bytes + entry.spill_load_bytes;
            if spilled != 0 || entry.registers > REGISTERS {
                return Err(format!("{arch}: {} registers, {spilled} bytes spilled", entry.registers).into());
            }
        }
    }
    Ok(())
}

/// The launches that follow a product whose kernel does not reduce.
fn launches_that_reduce() -> Result<(), Failed> {
    let all = Epilogue::new().row_sums("a").column_max("b").amax("c");
    let recipe = with_reductions(&problem(Element::BF16, all), |plain| {
        let plain = plain.clone();
        let stage = Arc::new(move || end_of_product::stage(plain.clone()));
        let kernel = KernelSource { key: "product".to_owned(), stage };
        let launches = vec![Launch::new(kernel, [1, 1, 1], Vec::new())];
        Ok(Recipe { launches, ..Recipe::default() })
    })?;
    if recipe.launches.len() != 5 {
        return Err(format!("{:?}", recipe.launches).into());
    }
    recipe.launches.iter().try_for_each(|launch| assemble(&(launch.kernel.stage)()?))
}

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let mut trials = vec![Trial::test("launches_that_reduce", launches_that_reduce)];
    for (name, d, epilogue) in epilogues() {
        let stage = move || assemble(&end_of_product::stage(problem(d, epilogue))?);
        trials.push(Trial::test(name, stage));
    }
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
