//! Kernels of matrix products through the assembler: no spills, no remarks, registers within budget. Ignored, visibly, where there is
//! no assembler.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::ExitCode;

use Storage::{ColumnMajor, RowMajor};
use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_compiler::Compiler;
use tilewright_hardware::{Arch, Element, Gpu};
use tilewright_kernels::gemm::{
    Contiguous, Placement, Problem, Recipe, Side, Storage, Types, gemv, repack, simt,
};
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE};

fn main() -> ExitCode {
    let assembler = Assembler::find();
    if let (Err(problem), Ok("1")) = (&assembler, std::env::var(REQUIRE_VARIABLE).as_deref()) {
        eprintln!("error: {problem}");
        return ExitCode::FAILURE;
    }
    let missing = assembler.is_err();
    let assembler: Option<&'static Assembler> = assembler.ok().map(|a| &*Box::leak(Box::new(a)));
    let trials = cases().into_iter().map(|case| {
        let name = format!("{} {}", case.name, case.gpu.arch);
        Trial::test(name, move || case.assemble(assembler.expect("not ignored"))).with_ignored_flag(missing)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// A recipe whose kernels must assemble with so many registers at most.
struct Case {
    name: String,
    gpu: &'static Gpu,
    recipe: Recipe,
    registers: u32,
}

impl Case {
    fn assemble(&self, assembler: &Assembler) -> Result<(), Failed> {
        for launch in &self.recipe.launches {
            let kernel = (launch.kernel.stage)().map_err(|error| error.to_string())?;
            let build = Compiler::new(self.gpu.arch).compile(kernel.func()).map_err(|e| e.to_string())?;
            let report = assembler.assemble(&build.code.text, &self.gpu.arch.to_string())?;
            let [used] = &report.entries[..] else {
                return Err(format!("{} entries", report.entries.len()).into());
            };
            let spilled = used.spill_store_bytes + used.spill_load_bytes + used.stack_bytes > 0;
            if spilled || used.registers > self.registers || !report.remarks.is_empty() {
                return Err(format!("{used:?} {:?}, allowed are {}", report.remarks, self.registers).into());
            }
        }
        Ok(())
    }
}

/// A problem whose factors lie as told.
fn stored(m: u32, n: u32, k: u32, element: Element, a: Storage, b: Storage) -> Problem {
    let problem = Problem::new(m, n, k, Types::of(element));
    Problem {
        a: Placement::dense(a, m as usize, k as usize),
        b: Placement::dense(b, k as usize, n as usize),
        ..problem
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for gpu in ["a100", "h200"].map(|name| Gpu::named(name).unwrap()) {
        // Two blocks a multiprocessor need 128 registers, one has 255.
        for (config, registers) in [
            ("simt 128x128x16 8x8 s3 g8 p1", 128),
            ("simt 128x128x8 8x8 s4 g8 p2", 128),
            ("simt 128x128x8 8x8 s4 u8 g8 p1", 128),
            ("simt 128x128x16 8x8 s4 u16 g8 p1", 128),
            ("simt 256x128x16 16x8 s3 g8 p1", 255),
            ("simt 128x256x16 8x16 s4 g8 p1", 255),
            ("simt 128x256x16 8x16 s3 u16 g8 p1", 255),
            ("simt 64x64x16 8x4 s3 g8 p1", 128),
        ] {
            let d_of = |(a, b)| [(a, b, RowMajor), (a, b, ColumnMajor)];
            for (a, b, d) in [(RowMajor, ColumnMajor), (ColumnMajor, RowMajor)].into_iter().flat_map(d_of) {
                let mut problem = stored(4096, 4096, 4096, Element::F32, a, b);
                problem.d.storage = d;
                let recipe = config.parse::<simt::Config>().unwrap().recipe(&problem, gpu).unwrap();
                cases.push(Case { name: format!("{config} {a:?} {b:?} {d:?}"), gpu, recipe, registers });
            }
        }
        let doubles = stored(4096, 4096, 4096, Element::F64, RowMajor, ColumnMajor);
        let config: simt::Config = "simt 128x64x16 8x4 s3 g8 p1".parse().unwrap();
        let recipe = config.recipe(&doubles, gpu).unwrap();
        cases.push(Case { name: format!("{config} f64"), gpu, recipe, registers: 168 });

        for element in [Element::BF16, Element::E4M3, Element::I8, Element::F32, Element::F64] {
            if element == Element::E4M3 && !gpu.arch.supports(Arch::SM_89) {
                continue;
            }
            for b in [ColumnMajor, RowMajor] {
                for m in [1, 16] {
                    let problem = stored(m, 4096, 4096, element, RowMajor, b);
                    // The largest that the check lets through is the one to worry about.
                    let candidates = gemv::Config::candidates(&problem, gpu).into_iter();
                    let config = candidates.max_by_key(|c| (c.tiles, c.parts > 1)).unwrap();
                    let recipe = config.recipe(&problem, gpu).unwrap();
                    cases.push(Case {
                        name: format!("{config} {element} {b:?} m{m}"),
                        gpu,
                        recipe,
                        registers: 255,
                    });
                }
            }
        }
        for element in [Element::I8, Element::BF16, Element::F32, Element::F64] {
            for b in [ColumnMajor, RowMajor] {
                for leading in [4096, 4097] {
                    let mut problem = stored(64, 4096, 4096, element, RowMajor, b);
                    problem.b.leading = leading;
                    let launches = repack(&problem, Side::B, Contiguous::K, 0).launch.into_iter().collect();
                    let recipe = Recipe { launches, ..Recipe::default() };
                    cases.push(Case {
                        name: format!("repack {element} {b:?} {leading}"),
                        gpu,
                        recipe,
                        registers: 64,
                    });
                }
            }
        }
    }
    cases
}
