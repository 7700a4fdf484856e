//! Matrix products of Hopper through the assembler: no spills, no remark (such as multiplications that it puts in sequence), registers
//! that the block can have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_compiler::Compiler;
use tilewright_hardware::{Arch, Element, Gpu};
use tilewright_kernels::gemm::epilogue::Epilogue;
use tilewright_kernels::gemm::hopper::Config;
use tilewright_kernels::gemm::{Accumulation, Problem, Storage, Types};
use tilewright_kernels::tutorial;
use tilewright_ptxas::Assembler;
use tilewright_tile::{Fact, specialise};

/// What a kernel is staged for: the types, and what is unusual.
type Case = (&'static str, Element, &'static [Twist]);

#[derive(Clone, Copy, Debug)]
enum Twist {
    ColumnMajorA,
    RowMajorB,
    ColumnMajorD,
    UnalignedD,
    Batch,
    Linear,
    Promoted,
    BiasGelu,
    Swiglu,
    Scaled,
    Residual,
    Sums,
    Into(Element),
}

use Twist::{
    Batch, BiasGelu, ColumnMajorA, ColumnMajorD, Into as As, Linear, Promoted, Residual, RowMajorB, Scaled,
    Sums, Swiglu, UnalignedD,
};

const CASES: &[Case] = &[
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::BF16, &[]),
    ("hopper 128x256x128B c2x1 s4 coop2 n8", Element::BF16, &[]),
    ("hopper 128x256x128B c1x2 s4 coop2 m8", Element::F16, &[ColumnMajorA, RowMajorB, ColumnMajorD]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::BF16, &[Linear, Batch]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8 stream", Element::BF16, &[Linear]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8 split4", Element::BF16, &[]),
    ("hopper 128x96x32B c1x1 s16 ping2 n8", Element::BF16, &[]),
    ("hopper 128x256x32B c1x1 s16 coop2 m8", Element::BF16, &[BiasGelu]),
    ("hopper 128x128x64B c1x1 s12 ping2 m8", Element::BF16, &[Linear]),
    ("hopper 128x128x128B c2x1 s6 ping2 m8 stream", Element::BF16, &[]),
    ("hopper 128x128x128B c2x1 s6 ping2 m8 stream", Element::BF16, &[BiasGelu]),
    ("hopper 128x128x128B c2x1 s6 ping2 m8 assist", Element::BF16, &[]),
    ("hopper 128x128x128B c2x1 s6 ping2 m8 assist", Element::BF16, &[Linear]),
    ("hopper 128x128x128B c1x2 s6 ping2 m8 assist", Element::E4M3, &[Scaled]),
    ("hopper 64x16x128B c1x1 s16 coop1 m8 joint2 once", Element::BF16, &[]),
    ("hopper 64x128x128B c1x1 s8 coop1 m8 joint2 once", Element::BF16, &[BiasGelu]),
    ("hopper 128x128x128B c1x1 s5 coop2 m8 joint2 once", Element::BF16, &[Linear]),
    ("hopper 128x192x128B c1x1 s3 coop2 m8 joint4 once", Element::BF16, &[BiasGelu]),
    ("hopper 128x256x128B c1x1 s2 coop2 m8 joint4 once", Element::BF16, &[Residual]),
    ("hopper 256x128x128B c1x1 s2 coop2 m8 joint2 once", Element::BF16, &[]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::BF16, &[UnalignedD, Linear]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::BF16, &[As(Element::F32)]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8", Element::TF32, &[]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8", Element::TF32, &[ColumnMajorD]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8", Element::E4M3, &[]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8", Element::E5M2, &[Linear, As(Element::E5M2)]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8", Element::I8, &[]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8", Element::U8, &[Linear, As(Element::I8)]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::I8, &[As(Element::I8)]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::F16, &[UnalignedD]),
    ("hopper 256x128x128B c1x2 s4 coop2 m8", Element::BF16, &[]),
    ("hopper 256x192x128B c1x1 s3 coop2 m8", Element::BF16, &[]),
    ("hopper 256x208x128B c1x1 s3 coop2 m8", Element::BF16, &[]),
    ("hopper 256x128x128B c1x2 s4 coop2 m8", Element::BF16, &[Linear]),
    ("hopper 256x160x128B c1x1 s3 coop2 m8", Element::BF16, &[Linear]),
    ("hopper 128x152x128B c1x1 s3 ping2 m8", Element::BF16, &[Linear, UnalignedD]),
    ("hopper 128x208x128B c1x1 s4 coop2 m8", Element::BF16, &[]),
    ("hopper 192x192x128B c1x1 s3 coop3 m8", Element::BF16, &[]),
    ("hopper 192x176x128B c1x1 s3 coop3 m8", Element::BF16, &[Linear]),
    ("hopper 128x128x128B c1x1 s5 ping2 m8", Element::BF16, &[]),
    ("hopper 64x256x128B c2x1 s4 ping2 m8", Element::BF16, &[Linear]),
    ("hopper 64x192x128B c1x1 s4 ping3 m8", Element::BF16, &[]),
    ("hopper 64x256x128B c1x1 s4 coop1 m8", Element::BF16, &[]),
    ("hopper 128x128x128B c1x1 s5 coop2 m8", Element::E4M3, &[Promoted]),
    ("hopper 128x192x128B c1x1 s4 coop2 m8", Element::E4M3, &[Promoted, Linear]),
    ("hopper 64x128x128B c1x1 s5 ping2 m8", Element::E4M3, &[Promoted]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8", Element::BF16, &[BiasGelu]),
    ("hopper 64x256x128B c1x1 s4 ping2 m8", Element::BF16, &[BiasGelu, Batch]),
    ("hopper 128x128x128B c1x1 s5 ping2 m8", Element::BF16, &[BiasGelu, ColumnMajorD]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8 stream", Element::BF16, &[BiasGelu, UnalignedD]),
    ("hopper 256x128x128B c1x1 s4 coop2 m8", Element::BF16, &[BiasGelu]),
    ("hopper 256x160x128B c1x1 s3 coop2 m8", Element::BF16, &[BiasGelu]),
    ("hopper 192x176x128B c1x1 s3 coop3 m8", Element::BF16, &[BiasGelu]),
    ("hopper 128x168x128B c1x2 s5 coop2 m8", Element::BF16, &[ColumnMajorD]),
    ("hopper 128x200x128B c1x1 s5 coop2 m8", Element::BF16, &[ColumnMajorD, BiasGelu]),
    ("hopper 128x240x128B c1x1 s4 coop2 m8", Element::BF16, &[ColumnMajorD, Linear]),
    ("hopper 128x192x128B c1x1 s4 coop2 m8", Element::BF16, &[ColumnMajorD, Linear]),
    ("hopper 192x192x128B c1x1 s3 coop3 m8", Element::BF16, &[ColumnMajorD, Linear]),
    ("hopper 256x192x128B c1x1 s3 coop2 m8", Element::BF16, &[ColumnMajorD, As(Element::F32), Linear]),
    ("hopper 192x176x128B c1x2 s4 coop3 m8", Element::BF16, &[ColumnMajorD, BiasGelu]),
    ("hopper 256x144x128B c2x1 s4 coop2 m8", Element::BF16, &[ColumnMajorD, BiasGelu]),
    ("hopper 256x200x128B c1x1 s3 coop2 m8", Element::BF16, &[ColumnMajorD]),
    ("hopper 64x216x128B c1x1 s6 ping2 m8", Element::BF16, &[ColumnMajorD, BiasGelu]),
    ("hopper 64x216x128B c1x1 s6 ping2 m8", Element::E4M3, &[ColumnMajorD, Scaled]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::BF16, &[Swiglu]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::BF16, &[Residual]),
    ("hopper 128x256x128B c1x1 s4 coop2 m8", Element::BF16, &[Sums]),
    ("hopper 256x128x128B c1x1 s4 coop2 m8", Element::BF16, &[Sums]),
    ("hopper 128x256x128B c2x1 s4 coop2 m8", Element::E4M3, &[Scaled]),
    ("hopper 128x128x128B c1x1 s5 ping2 m8", Element::E4M3, &[Scaled]),
    ("hopper 128x192x128B c1x1 s4 coop2 m8", Element::E4M3, &[Promoted, Scaled]),
    ("hopper 256x192x128B c1x1 s3 coop2 m8", Element::BF16, &[Linear]),
    ("hopper 256x208x128B c1x1 s3 coop2 m8", Element::BF16, &[Linear, ColumnMajorD]),
    ("hopper 192x192x128B c1x1 s3 coop3 m8", Element::BF16, &[Linear]),
    ("hopper 64x16x128B c1x1 s10 coop1 m8 split4", Element::BF16, &[ColumnMajorD]),
    ("hopper 64x24x128B c1x1 s10 ping2 m8 stream", Element::BF16, &[ColumnMajorD, Linear]),
    ("hopper 64x8x64B c1x1 s10 coop1 m8", Element::F16, &[RowMajorB, UnalignedD]),
];

fn problem(element: Element, twists: &[Twist]) -> Problem {
    let mut problem = Problem::new(4096, 4096, 4096, Types::of(element));
    for twist in twists {
        match twist {
            ColumnMajorA => problem.a.storage = Storage::ColumnMajor,
            RowMajorB => problem.b.storage = Storage::RowMajor,
            ColumnMajorD => problem.d.storage = Storage::ColumnMajor,
            UnalignedD => problem.d.leading += 1,
            Batch => problem.batch = 2,
            Linear => problem.epilogue = Epilogue::linear(),
            Promoted => problem.accumulation = Accumulation::Promoted,
            BiasGelu => problem.epilogue = Epilogue::new().bias_per_column("bias", Element::BF16).gelu(),
            Swiglu => {
                problem.epilogue = Epilogue::new().swiglu();
                problem.d.leading /= 2;
                problem.d.batch_stride /= 2;
            }
            Scaled => {
                problem.epilogue =
                    Epilogue::new().scale_rows("rows", Element::F32).scale_columns("columns", Element::F32);
            }
            Residual => {
                problem.epilogue = Epilogue::new().alpha().residual("x", Element::BF16, problem.d);
            }
            Sums => problem.epilogue = Epilogue::new().relu().row_sums("rows").column_max("columns"),
            As(element) => problem.types = problem.types.with_result(*element),
        }
    }
    problem.c = problem.d;
    problem
}

fn main() -> ExitCode {
    let assembler = Assembler::find();
    if let (Err(problem), Ok("1")) =
        (&assembler, std::env::var(tilewright_ptxas::REQUIRE_VARIABLE).as_deref())
    {
        eprintln!("error: {problem}");
        return ExitCode::FAILURE;
    }
    let missing = assembler.is_err();
    let assembler: Option<&'static Assembler> = assembler.ok().map(|a| &*Box::leak(Box::new(a)));
    let trial = |&(config, element, twists): &'static Case| {
        let run = move || assembles(config, element, twists, assembler.expect("not ignored"));
        Trial::test(format!("{config} {element} {twists:?}"), run).with_ignored_flag(missing)
    };
    let of_tiles = |&(tile, leaky): &'static ([u32; 3], bool)| {
        let run = move || tiles_assemble(tile, leaky, assembler.expect("not ignored"));
        Trial::test(format!("tiles {tile:?} leaky {leaky}"), run).with_ignored_flag(missing)
    };
    let trials = CASES.iter().map(trial).chain(TILES.iter().map(of_tiles)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The product on tiles: two programs take turns in a block, or two warpgroups share one.
const TILES: &[([u32; 3], bool)] = &[
    ([128, 128, 64], false),
    ([128, 128, 64], true),
    ([64, 256, 64], true),
    ([128, 256, 64], false),
    ([128, 192, 64], false),
];

fn tiles_assemble(tile: [u32; 3], leaky: bool, assembler: &Assembler) -> Result<(), Failed> {
    let kernel = tutorial::matmul::stage(leaky, tile).map_err(|error| error.to_string())?;
    let facts = ["a", "b", "c"].map(|view| {
        [
            (view.to_owned(), Fact::MultipleOf(16)),
            (format!("{view}_stride0"), Fact::MultipleOf(16)),
            (format!("{view}_extent1"), Fact::MultipleOf(16)),
            (format!("{view}_stride1"), Fact::Is(1)),
        ]
    });
    let facts: Vec<(&str, Fact)> =
        facts.iter().flatten().map(|(name, fact)| (name.as_str(), *fact)).collect();
    let func = specialise(kernel.func(), &facts);
    let build = Compiler::new(Arch::SM_90A).compile(&func).map_err(|error| error.to_string())?;
    assert_eq!(build.func.launch.threads, Some([384, 1, 1]));
    let report = assembler.assemble(&build.code.text, "sm_90a").map_err(|error| error.to_string())?;
    let [used] = &report.entries[..] else { return Err(format!("{} entries", report.entries.len()).into()) };
    let local = used.spill_store_bytes + used.spill_load_bytes + used.stack_bytes;
    if !report.remarks.is_empty() || local > 0 {
        return Err(format!("{used:?}, expected no memory: {:?}", report.remarks).into());
    }
    Ok(())
}

fn assembles(config: &str, element: Element, twists: &[Twist], assembler: &Assembler) -> Result<(), Failed> {
    let config: Config = config.parse().map_err(|error| format!("{error}"))?;
    let recipe =
        config.recipe(&problem(element, twists), Gpu::named("h200").unwrap()).map_err(|e| e.to_string())?;
    let kernel = (recipe.launches[0].kernel.stage)().map_err(|error| error.to_string())?;
    let build = Compiler::new(Arch::SM_90A).compile(kernel.func()).map_err(|error| error.to_string())?;
    let report = assembler.assemble(&build.code.text, "sm_90a").map_err(|error| error.to_string())?;
    let [used] = &report.entries[..] else { return Err(format!("{} entries", report.entries.len()).into()) };
    let most = 65536 / (128 * (1 + config.consumers)) / 8 * 8;
    let local = used.spill_store_bytes + used.spill_load_bytes + used.stack_bytes;
    if !report.remarks.is_empty() || local > 0 || used.registers > most {
        return Err(
            format!("{used:?}, at most {most} registers and nothing else: {:?}", report.remarks).into()
        );
    }
    Ok(())
}
