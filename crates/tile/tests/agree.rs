//! Random kernels of the tile level: what the simulator computes, with passes and without, is what the interpreter says, without a finding.
//!
//! `TILEWRIGHT_FUZZ=10000` tries that many kernels, `TILEWRIGHT_TEST_SEED=n` starts at another one, `TILEWRIGHT_FUZZ_BUDGET=n` fixes their
//! size. A kernel that fails is named by seed and budget, after a search for a smaller one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use tilewright_codegen::Options as Codegen;
use tilewright_hardware::Arch;
use tilewright_ir::{Constant, Element, Module, Opcode, Value, parse, verify};
use tilewright_passes::Pipeline;
use tilewright_ptx::Type;
use tilewright_sim::{Arg, Buffer, Launch, Options, Simulator, TensorMap};
use tilewright_tile::fuzz::{Case, Given, Rule};
use tilewright_tile::{Lowered, MapParameter, Number};

fn wrong(what: impl std::fmt::Display) -> String {
    what.to_string()
}

/// The tensor map that a launch makes for a kernel that loads ahead.
fn tensor_map(case: &Case, map: &MapParameter, buffers: &[Buffer]) -> Result<TensorMap, String> {
    let position = |name: &str| case.func.params.iter().position(|param| param.name == name).unwrap();
    let number = |number: &Number| match number {
        Number::Constant(value) => value.cast_unsigned(),
        Number::All => 1 << 20,
        Number::Parameter(name) => match case.arguments[position(name)] {
            Given::Scalar(_, Constant(bits)) => bits,
            Given::Buffer { .. } => panic!("`{name}` is a pointer"),
        },
    };
    let pointer = position(&map.pointer);
    let is_buffer = |given: &&Given| matches!(given, Given::Buffer { .. });
    let buffer = buffers[case.arguments[..pointer].iter().filter(is_buffer).count()];
    let Given::Buffer { element, .. } = &case.arguments[pointer] else { panic!("a map of a number") };
    let ty = match element {
        Element::F16 => Type::F16,
        Element::BF16 => Type::Bf16,
        Element::F32 => Type::F32,
        other => panic!("a map of {other}"),
    };
    let dims: Vec<u64> = map.extents.iter().map(number).collect();
    let bytes = u64::from(element.bytes());
    let strides: Vec<u64> = map.strides[1..].iter().map(|stride| bytes * number(stride)).collect();
    let (boxes, swizzle) = (map.spec.box_dims(), map.spec.swizzle());
    TensorMap::tiled(ty, buffer.address(), &dims, &strides, boxes, swizzle).map_err(wrong)
}

/// Compiles the code for threads and runs it; gives the contents of all buffers.
fn simulate(case: &Case, lowered: &Lowered, arch: Arch, pipeline: &Pipeline) -> Result<Vec<Vec<u8>>, String> {
    let mut module = Module::from(lowered.func.clone());
    pipeline.run(&mut module).map_err(wrong)?;
    let code = tilewright_codegen::compile(&module.funcs[0], &Codegen::new(arch)).map_err(wrong)?;
    let ptx = tilewright_sim::Module::parse(&code.text).map_err(wrong)?;
    let launch = module.funcs[0].launch;
    let [x, y, z] = case.grid;
    let [width, height, depth] = launch.cluster.unwrap_or([1; 3]);
    let mut shape = Launch {
        grid: [x * width, y * height, z * depth],
        block: launch.threads.ok_or_else(|| wrong("the number of threads is open"))?,
        cluster: None,
        shared_bytes: code.shared.dynamic,
    };
    let mut sim = Simulator::new(Options { seed: case.seed, chip: Some(arch), ..Options::default() });
    let mut buffers = Vec::new();
    let mut arguments: Vec<Arg> = case
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
    for map in &lowered.maps {
        arguments.push(Arg::TensorMap(tensor_map(case, map, &buffers)?));
    }
    if lowered.resident.is_some() {
        // Few blocks, so that programs do take turns.
        arguments.extend([x, y, z].map(Arg::U32));
        shape.grid = [(x * y * z).div_ceil(2), 1, 1];
    }
    let report = sim.launch(&ptx, &code.entry, &shape, &arguments).map_err(wrong)?;
    if let Some(finding) = report.findings.first() {
        return Err(wrong(format!("{} findings, the first: {finding}", report.findings.len())));
    }
    buffers.into_iter().map(|buffer| sim.read(buffer).map_err(wrong)).collect()
}

fn agrees(case: &Case, arch: Arch) -> Result<(), String> {
    let expected = case.interpret().map_err(wrong)?;
    let lowered = tilewright_tile::lower(&case.func, arch).map_err(wrong)?;
    let problems = verify(&Module::from(lowered.func.clone()));
    if !problems.is_empty() {
        return Err(format!("the lowered kernel is not valid: {:?}", problems[0]));
    }
    for (name, pipeline) in [("without passes", Pipeline::of(&[])), ("with passes", Pipeline::standard())] {
        let found = simulate(case, &lowered, arch, &pipeline).map_err(|what| format!("{name}: {what}"))?;
        if let Some(difference) = case.difference(&expected, &found) {
            return Err(format!("{name}: {difference}"));
        }
    }
    Ok(())
}

/// Whether a kernel has floats of 8 bits, which convert from sm_89 on.
fn has_bytes(case: &Case) -> bool {
    let func = &case.func;
    let of =
        |value: &Value| func.ty(*value).element().is_some_and(|e| matches!(e, Element::E4M3 | Element::E5M2));
    func.walk().into_iter().any(|op| func.op(op).operands.iter().chain(&func.op(op).results).any(&of))
}

/// The same, with a panic as a failure.
fn outcome(case: &Case, arch: Arch) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| agrees(case, arch))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
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
    let mut ran = 0;
    let mut failures = Vec::new();
    for seed in first..first + count {
        let case = Case::new(seed, budget.unwrap_or(2 + u32::try_from(seed % 17).unwrap()));
        if !wanted(&case) {
            continue;
        }
        ran += 1;
        let arch = if seed % 2 == 0 || has_bytes(&case) { Arch::SM_90A } else { Arch::SM_80 };
        if outcome(&case, arch).is_err() {
            let fits = |case: &Case| arch == Arch::SM_90A || !has_bytes(case);
            let case = case.smallest(|case| wanted(case) && fits(case) && outcome(case, arch).is_err());
            if let Err(what) = outcome(&case, arch) {
                failures.push(format!("seed {seed}, budget {}, {arch}: {what}\n{}", case.budget, case.func));
            }
        }
        if failures.len() == 5 {
            break;
        }
    }
    assert!(failures.is_empty(), "{} kernels disagree\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(ran > 0, "none of {count} kernels is of this kind");
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
        if let Err(failure) = agrees_in(&text, vec![(Element::U32, vec![0; 8])], Arch::SM_80) {
            panic!("extent {extent}: {failure}");
        }
    }
}

/// Where the second of two values that are reduced together takes the place of something that is still being read, nobody forgets that the first
/// has just been written.
#[test]
fn reduced_values_meet_together() {
    // Twice the same, and between them a tile as large as one of the values, and then a small one.
    let text = "func @twice (%out: ptr<global>) {
       %0 = iota axis(0) : tile<64x128xu32>
       %1 = iota axis(1) : tile<64x128xu32>
       %2, %3 = tile_reduce %0, %1 axis(0) : tile<1x128xu32>, tile<1x128xu32> do {
         (%4: u32, %5: u32, %6: u32, %7: u32)
         yield %4, %7
       }
       %8 = iota axis(0) : tile<4096xu32>
       %9 = cat %8, %8 axis(0) : tile<8192xu32>
       %10 = iota axis(0) : tile<256xu32>
       %11 = cat %10, %10 axis(0) : tile<512xu32>
       %12, %13 = tile_reduce %0, %1 axis(0) : tile<1x128xu32>, tile<1x128xu32> do {
         (%14: u32, %15: u32, %16: u32, %17: u32)
         yield %14, %17
       }
       %18 = const value(0) : i32
       %19 = const value(1) : i64
       %20 = const value(8192) : u32
       tile_store %out, %9, %18, %20, %19
       %21 = const value(32768) : i64
       %22 = ptr_add %out, %21 : ptr<global>
       %23 = const value(512) : u32
       tile_store %22, %11, %18, %23, %19
       %24 = cat %2, %3 axis(0) : tile<2x128xu32>
       %25 = cat %12, %13 axis(0) : tile<2x128xu32>
       %26 = cat %24, %25 axis(0) : tile<4x128xu32>
       %27 = const value(34816) : i64
       %28 = ptr_add %out, %27 : ptr<global>
       %29 = const value(4) : u32
       %30 = const value(128) : u32
       %31 = const value(128) : i64
       tile_store %28, %26, %18, %18, %29, %30, %31, %19
     }";
    let out = vec![(Element::U32, vec![0; 36864])];
    agrees_in(text, out, Arch::SM_80).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Loads that begin before threads wait for each other bring what those at their place would: also where the tensor ends, and what stands for
/// the elements behind that, zero or not.
#[test]
fn early_loads_are_the_same() {
    for (extent, pad) in [(1024, 0), (1000, 0), (1000, 7), (24, 9)] {
        let text = format!(
            "func @early (%x: ptr<global> align(16), %w: ptr<global> align(16), %out: ptr<global> align(16)) {{
               %0 = const value(0) : i32
               %1 = const value({extent}) : u32
               %2 = const value(1) : i64
               %3 = const value({pad}) : u32
               %4 = const value(1024) : u32
               %5 = tile_load %x, %0, %4, %2, %3 : tile<1024xu32>
               %6 = tile_reduce %5 axis(0) : tile<1xu32> do {{
                 (%7: u32, %8: u32)
                 %9 = add %7, %8 : u32
                 yield %9
               }}
               %10 = broadcast %6 : tile<1024xu32>
               %11 = tile_load %w, %0, %1, %2, %3 : tile<1024xu32>
               %12 = map %10, %11 : tile<1024xu32> do {{
                 (%13: u32, %14: u32)
                 %15 = add %13, %14 : u32
                 yield %15
               }}
               tile_store %out, %12, %0, %4, %2
             }}"
        );
        let numbers = |from: u32| (from..from + 1024).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes());
        let buffers = [numbers(0).collect(), numbers(5000).collect(), vec![0; 4096]];
        let buffers: Vec<_> = buffers.into_iter().map(|bytes| (Element::U32, bytes)).collect();
        for arch in [Arch::SM_80, Arch::SM_90A] {
            if let Err(failure) = agrees_in(&text, buffers.clone(), arch) {
                panic!("{extent} elements, else {pad}, {arch}: {failure}");
            }
        }
    }
}

/// A kernel in text, whose parameters are buffers.
fn agrees_in(text: &str, buffers: Vec<(Element, Vec<u8>)>, arch: Arch) -> Result<(), String> {
    let func = parse(text).unwrap().funcs.remove(0);
    let given = |(element, bytes)| Given::Buffer { element, bytes, rule: Rule::Exact };
    let arguments = buffers.into_iter().map(given).collect();
    let case = Case { seed: 0, budget: 0, func, grid: [1, 1, 1], arguments, rereads: false };
    outcome(&case, arch)
}

/// The factors of a second product take the place of the first one's, which other warps may still be reading.
#[test]
fn products_follow_each_other() {
    let text = "func @twice (%out: ptr<global>) {
       %0 = iota axis(0) : tile<64x64xu32>
       %1 = iota axis(1) : tile<64x64xu32>
       %2, %3 = map %0, %1 : tile<64x64xf16>, tile<64x64xf16> do {
         (%4: u32, %5: u32)
         %6 = const value(7) : u32
         %7 = fma %4, %6, %5 : u32
         %8 = const value(5) : u32
         %9 = rem %7, %8 : u32
         %10 = cvt %9 : f16
         %11 = rem %7, %6 : u32
         %12 = cvt %11 : f16
         yield %10, %12
       }
       %13 = const value(0) : f32
       %14 = splat %13 : tile<64x64xf32>
       %15 = dot %2, %3, %14 : tile<64x64xf32>
       %16 = dot %3, %2, %15 : tile<64x64xf32>
       %17 = const value(0) : i32
       %18 = const value(64) : u32
       %19 = const value(64) : i64
       %20 = const value(1) : i64
       tile_store %out, %16, %17, %17, %18, %18, %19, %20
     }";
    for arch in [Arch::SM_80, Arch::SM_90A] {
        agrees_in(text, vec![(Element::F32, vec![0; 64 * 64 * 4])], arch).unwrap();
    }
}

/// Boxes with the same numbers but other pointers are not the same elements: a thread must not store what its neighbour has yet to load.
#[test]
fn boxes_of_other_pointers_are_others() {
    let text = "func @shift (%x: ptr<global>) {
       %0 = const value(0) : i32
       %1 = const value(1024) : u32
       %2 = const value(1) : i64
       %3 = const value(0) : u32
       %4 = tile_load %x, %0, %1, %2, %3 : tile<1024xu32>
       %5 = const value(4) : i64
       %6 = ptr_add %x, %5 : ptr<global>
       tile_store %6, %4, %0, %1, %2
     }";
    let bytes = (0u32..1025).flat_map(u32::to_le_bytes).collect();
    agrees_in(text, vec![(Element::U32, bytes)], Arch::SM_80).unwrap();
}

/// Products that a loop sums up, with factors that are loaded ahead where that can be: by the copy engine, or by threads.
#[test]
fn factors_are_loaded_ahead() {
    let (mut ahead, mut from_registers) = ([0; 2], 0);
    for seed in 0..900 {
        let case = Case::new(seed, 6);
        let func = &case.func;
        let sums_up = func.walk().into_iter().any(|op| {
            let data = func.op(op);
            let is_dot = |op: &tilewright_ir::Op| func.op(*op).code == Opcode::Dot;
            data.code == Opcode::For && func.region(data.regions[0]).ops.iter().any(is_dot)
        });
        if !sums_up {
            continue;
        }
        for (arch, code) in [(Arch::SM_90A, Opcode::TmaLoad), (Arch::SM_86, Opcode::CpAsync)] {
            if arch == Arch::SM_86 && has_bytes(&case) {
                continue;
            }
            outcome(&case, arch).unwrap_or_else(|what| panic!("seed {seed}, {arch}: {what}\n{func}"));
            let lowered = tilewright_tile::lower(func, arch).unwrap().func;
            let copies = lowered.walk().into_iter().any(|op| lowered.op(op).code == code);
            ahead[usize::from(code == Opcode::CpAsync)] += u32::from(copies);
            from_registers += u32::from(lowered.walk().into_iter().any(|op| {
                let data = lowered.op(op);
                let left = data.operands.get(1).map(|&left| lowered.ty(left));
                data.code == Opcode::Wgmma && matches!(left, Some(tilewright_ir::Type::Vector(..)))
            }));
        }
    }
    assert!(ahead[0] >= 5 && ahead[1] >= 5, "{ahead:?} kernels load ahead");
    assert!(from_registers >= 3, "{from_registers} kernels multiply from registers");
}
