//! The kernels of `gemm::ampere` through the real assembler: no spills, and registers that let enough warps live. Ignored, visibly,
//! where there is no assembler; `TILEWRIGHT_REQUIRE_PTXAS=1` makes that a failure.

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright::compiler::Compiler;
use tilewright::hardware::{Arch, Element, Gpu};
use tilewright::kernels::gemm::ampere::Config;
use tilewright::kernels::gemm::epilogue::Epilogue;
use tilewright::kernels::gemm::{Accumulation, Placement, Problem, Storage, Types};
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE};

/// Configuration, type of the factors, whether A and B have k contiguous.
type Row = (&'static str, Element, (bool, bool));

const ROWS: &[Row] = &[
    ("ampere 128x128x32 w2x2 i16 s4 g8 p4", Element::BF16, (true, true)),
    ("ampere 128x128x64 w2x2 i32 s4 g8 p4", Element::I8, (false, false)),
    ("ampere 128x128x16 w2x2 i8 s4 g8 p4", Element::TF32, (false, false)),
    ("ampere 128x128x16 w2x2 i8 s4 g8 p4", Element::TF32, (true, true)),
    ("ampere 128x128x64 w2x2 i32 s4 g8 p4", Element::E4M3, (true, true)),
    ("ampere 128x64x16 w2x2 i16 s4 g8 p3", Element::F64, (false, true)),
    ("ampere 128x256x32 w2x4 i16 s3 g8 p1", Element::BF16, (true, true)),
    ("ampere 256x128x32 w4x2 i16 s3 g8 p1", Element::BF16, (true, false)),
    ("ampere 128x128x64 w2x2 i16 s3 g8 p1", Element::F16, (false, true)),
    ("ampere 128x128x32 w2x2 i16 s4 g8 p4", Element::BF16, (false, false)),
    ("ampere 64x64x32 w2x2 i16 s5 g8 p1", Element::BF16, (true, true)),
    ("ampere 128x128x16 w2x2 i8 s4 g8 p1", Element::TF32, (true, true)),
    ("ampere 128x128x16 w2x4 i8 s4 g8 p1", Element::TF32, (false, false)),
    ("ampere 128x128x64 w2x2 i32 s4 g8 p1", Element::I8, (true, true)),
    ("ampere 128x128x64 w2x4 i32 s4 g8 p1", Element::I8, (false, false)),
    ("ampere 128x128x64 w2x4 i32 s4 g8 p1", Element::E4M3, (true, true)),
    ("ampere 128x64x16 w2x2 i4 s4 g8 p1", Element::F64, (true, true)),
    ("ampere 128x128x16 w2x4 i4 s4 g8 p1", Element::F64, (true, false)),
    ("ampere 64x64x8 w2x2 i4 s4 g8 p2", Element::F64, (false, true)),
    ("ampere 128x128x16 w2x4 i8 s4 g8 p1", Element::F64, (true, true)),
    ("ampere 128x64x16 w2x2 i16 s4 g8 p1", Element::F64, (true, true)),
];

fn problem(element: Element, (a, b): (bool, bool)) -> Problem {
    let (m, n, k) = (4096, 4096, 4096);
    let storage = |row_major: bool| if row_major { Storage::RowMajor } else { Storage::ColumnMajor };
    let accumulation = if element == Element::E4M3 { Accumulation::Promoted } else { Accumulation::Fast };
    Problem {
        a: Placement::dense(storage(a), m as usize, k as usize),
        b: Placement::dense(storage(!b), k as usize, n as usize),
        epilogue: if element.is_int() { Epilogue::identity() } else { Epilogue::linear() },
        accumulation,
        ..Problem::new(m, n, k, Types::of(element))
    }
}

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let mut trials = Vec::new();
    for &(text, element, majors) in ROWS {
        for chip in ["a100", "l40s", "h200"] {
            let Some(gpu) = Gpu::named(chip) else { continue };
            let Ok(config) = text.parse::<Config>() else { continue };
            // Ada's code is Ampere's but for 8-bit floats.
            if chip == "l40s" && element != Element::E4M3 {
                continue;
            }
            // Instructions that only later chips have.
            if config.check(&problem(element, majors), gpu).is_err() {
                continue;
            }
            let name = format!("{chip} {element} {majors:?} {config}");
            trials.push(
                Trial::test(name, move || assemble(config, element, majors, gpu)).with_ignored_flag(ignored),
            );
        }
    }
    assert!(trials.len() > ROWS.len(), "most configurations run on both chips");
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn assemble(config: Config, element: Element, majors: (bool, bool), gpu: &Gpu) -> Result<(), Failed> {
    let recipe = config.recipe(&problem(element, majors), gpu)?;
    let kernel = (recipe.launches[0].kernel.stage)()?;
    // Hopper's own instructions are not used, so that one kernel serves all later chips.
    let arch = if gpu.arch == Arch::SM_90A { Arch::SM_90 } else { gpu.arch };
    let code = Compiler::new(arch).compile(kernel.func())?.code;
    let report = Assembler::find()?.assemble(&code.text, &arch.to_string())?;
    let [entry] = &report.entries[..] else { return Err(format!("{:?}", report.entries).into()) };
    println!("{config} {element} {majors:?} {arch}: {} registers", entry.registers);
    if entry.spill_store_bytes + entry.spill_load_bytes > 0 {
        return Err(format!("{entry:?}").into());
    }
    Ok(())
}
