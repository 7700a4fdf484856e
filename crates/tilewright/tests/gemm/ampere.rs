//! `mma.sync` and `cp.async`: types, storages, alignments, edges, batches and split-K.

use tilewright::device::{Device, Options};
use tilewright::gemm::{Operands, Prepared};
use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::ampere::Config;
use tilewright::kernels::gemm::epilogue::{Access, Epilogue, HostOperands, Reference, decode, encode};
use tilewright::kernels::gemm::{Accumulation, Batching, Operand, Placement, Problem, Storage, Types};

use crate::common::Case;

const BOTH: [Storage; 2] = [Storage::RowMajor, Storage::ColumnMajor];

fn h200() -> &'static Gpu {
    Gpu::named("h200").unwrap()
}

/// A small configuration for a type: two warps or four, two steps of k in a ragged problem.
fn small(element: Element) -> Config {
    let text = match element {
        Element::F64 => "ampere 32x32x8 w2x1 i4 s3 g2 p1",
        Element::TF32 => "ampere 32x32x16 w1x2 i8 s3 g2 p1",
        Element::BF16 | Element::F16 => "ampere 32x32x32 w2x2 i16 s3 g2 p1",
        _ => "ampere 64x32x64 w2x1 i32 s2 g2 p1",
    };
    text.parse().unwrap()
}

fn with_storages(problem: Problem, a: Storage, b: Storage, d: Storage) -> Problem {
    let (m, n, k) = (problem.m, problem.n, problem.k);
    Problem {
        a: Placement::dense(a, m as usize, k as usize),
        b: Placement::dense(b, k as usize, n as usize),
        c: Placement::dense(d, m as usize, n as usize),
        d: Placement::dense(d, m as usize, n as usize),
        ..problem
    }
}

fn check(config: Config, problem: Problem) {
    let recipe = config.recipe(&problem, h200()).unwrap();
    Case::new(problem).check(&recipe);
}

/// One type in all four combinations of storage; D alternates.
fn all_storages(types: Types, (m, n, k): (u32, u32, u32)) {
    for (i, (a, b)) in BOTH.into_iter().flat_map(|a| BOTH.map(|b| (a, b))).enumerate() {
        let problem = with_storages(Problem::new(m, n, k, types), a, b, BOTH[i % 2]);
        check(small(types.a), problem);
    }
}

#[test]
fn bf16_in_all_storages() {
    all_storages(Types::of(Element::BF16), (70, 45, 37));
}

#[test]
fn f16_in_all_storages() {
    all_storages(Types::of(Element::F16).with_result(Element::F32), (40, 45, 37));
}

#[test]
fn tf32_in_all_storages() {
    all_storages(Types::of(Element::TF32), (40, 45, 37));
}

#[test]
fn f64_in_all_storages() {
    all_storages(Types::of(Element::F64), (40, 45, 19));
}

#[test]
fn signed_bytes_in_all_storages() {
    all_storages(Types::of(Element::I8), (70, 45, 77));
}

#[test]
fn mixed_bytes_in_all_storages() {
    let types = Types::of(Element::I8);
    all_storages(Types { b: Element::U8, ..types }, (50, 45, 77));
    let types = Types::of(Element::U8);
    check(small(Element::U8), Problem::new(50, 45, 77, types));
    check(small(Element::U8), Problem::new(50, 45, 77, Types { b: Element::I8, ..types }));
}

#[test]
fn eight_bit_floats_in_all_storages() {
    let types = Types::of(Element::E4M3);
    all_storages(types, (34, 33, 70));
    let mixed = Types { b: Element::E5M2, ..types };
    check(small(Element::E4M3), Problem::new(34, 33, 70, mixed));
    let promoted = Problem { accumulation: Accumulation::Promoted, ..Problem::new(20, 20, 150, types) };
    check(small(Element::E4M3), promoted);
}

/// Rows that are longer than they need be, so that vectors shrink: 16, 8, 4, 2 and 1 bytes.
#[test]
fn every_width_of_copies() {
    for (element, k) in [(Element::BF16, 37), (Element::TF32, 21), (Element::F64, 11), (Element::I8, 77)] {
        let bytes = u64::from(element.bytes());
        for width in [16u64, 8, 4, 2, 1].into_iter().filter(|width| *width >= bytes) {
            let odd = width / bytes;
            // The shortest leading dimension that this width divides and the next does not.
            let leading =
                |extent: u64| (extent..).find(|n| n % odd == 0 && (odd * bytes == 16 || n % (2 * odd) != 0));
            let storage = BOTH[(width.ilog2() % 2) as usize];
            let problem = Problem::new(36, 33, k, Types::of(element));
            let mut problem = with_storages(problem, storage, storage, storage);
            problem.a.leading = leading(problem.a.leading).unwrap();
            problem.b.leading = leading(problem.b.leading).unwrap();
            problem.d.leading = leading(problem.d.leading).unwrap();
            check(small(element), problem);
        }
    }
}

/// A matrix that is aligned worse than its rows are.
#[test]
fn addresses_that_are_hardly_aligned() {
    let mut problem = Problem::new(33, 34, 40, Types::of(Element::BF16));
    problem.a.alignment = 2;
    problem.b.alignment = 4;
    problem.d.alignment = 2;
    check(small(Element::BF16), problem);
}

#[test]
fn alpha_and_beta() {
    for storage in BOTH {
        for (element, d) in
            [(Element::BF16, Element::BF16), (Element::F64, Element::F64), (Element::I8, Element::F32)]
        {
            let types = Types::of(element).with_result(d);
            let problem = with_storages(Problem::new(40, 40, 19, types), BOTH[0], BOTH[1], storage);
            let problem = Problem { epilogue: Epilogue::linear(), ..problem };
            let recipe = small(element).recipe(&problem, h200()).unwrap();
            Case { alpha: 2.0, beta: -1.0, ..Case::new(problem) }.check(&recipe);
        }
    }
}

#[test]
fn bytes_requantised() {
    let types = Types::of(Element::I8).with_result(Element::I8);
    check(small(Element::I8), Problem::new(40, 64, 30, types));
}

#[test]
fn batches_at_a_distance_and_by_address() {
    for batching in [Batching::Strided, Batching::Pointers] {
        for (element, parts) in [(Element::BF16, 1), (Element::TF32, 2)] {
            let mut problem = Problem::new(40, 24, 40, Types::of(element));
            problem.batch = 3;
            problem.batching = batching;
            problem.epilogue = Epilogue::linear();
            problem.d.batch_stride += 8;
            // One B for all.
            problem.b.batch_stride = 0;
            let recipe = Config { parts, ..small(element) }.recipe(&problem, h200()).unwrap();
            Case { alpha: 1.0, beta: 1.0, ..Case::new(problem) }.check(&recipe);
        }
    }
}

#[test]
fn parts_of_the_depth() {
    for (element, parts) in [(Element::BF16, 3), (Element::F64, 2), (Element::I8, 9)] {
        let problem = Problem::new(40, 37, 140, Types::of(element));
        let config = Config { parts, ..small(element) };
        let recipe = config.recipe(&problem, h200()).unwrap();
        assert!(recipe.zeroed > 0 && recipe.workspace > recipe.zeroed);
        Case::new(problem).check(&recipe);
    }
}

#[test]
fn nothing_to_add_and_nothing_to_store() {
    let problem = Problem::new(33, 20, 0, Types::of(Element::BF16));
    let recipe = small(Element::BF16).recipe(&problem, h200()).unwrap();
    Case::new(problem).check(&recipe);
    for (m, n) in [(0, 5), (5, 0)] {
        let problem = Problem::new(m, n, 7, Types::of(Element::F64));
        let recipe = small(Element::F64).recipe(&problem, h200()).unwrap();
        assert!(recipe.launches.is_empty() && recipe.workspace == 0);
    }
    let problem = Problem { batch: 0, ..Problem::new(5, 5, 5, Types::of(Element::F64)) };
    assert!(small(Element::F64).recipe(&problem, h200()).unwrap().launches.is_empty());
}

/// The instructions of Ampere: f64 in eights of rows.
#[test]
fn f64_as_on_ampere() {
    let problem = Problem::new(40, 37, 19, Types::of(Element::F64));
    let recipe = small(Element::F64).recipe(&problem, Gpu::named("a100").unwrap()).unwrap();
    assert!(recipe.launches[0].kernel.key.contains("shape (8, 8, 4)"));
    Case::new(problem).check(&recipe);
}

/// The deeper instructions of Hopper.
#[test]
fn f64_as_on_hopper() {
    for inner in [8, 16] {
        let config = Config { inner, k: 16, ..small(Element::F64) };
        check(config, Problem::new(40, 37, 19, Types::of(Element::F64)));
    }
}

/// The tiles that large products take, once each, in a problem of two of them.
#[test]
fn large_tiles() {
    for (text, element) in [
        ("ampere 128x256x32 w2x4 i16 s3 g8 p1", Element::BF16),
        ("ampere 128x128x32 w2x2 i16 s4 g8 p1", Element::F16),
        ("ampere 16x128x32 w1x4 i16 s5 g8 p1", Element::BF16),
        ("ampere 128x128x64 w2x2 i32 s3 g8 p1", Element::I8),
        ("ampere 128x64x16 w2x2 i16 s4 g8 p1", Element::F64),
    ] {
        let config: Config = text.parse().unwrap();
        check(config, Problem::new(config.m + 3, config.n - 7, config.k + 8, Types::of(element)));
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let bf16 = Problem::new(64, 64, 64, Types::of(Element::BF16));
    let (h200, a100) = (h200(), Gpu::named("a100").unwrap());
    let message = |text: &str, problem: &Problem, gpu: &Gpu| {
        text.parse::<Config>().and_then(|config| config.check(problem, gpu)).unwrap_err().to_string()
    };
    for (text, problem, gpu, part) in [
        ("ampere 128x128", &bf16, h200, "expected a text such as"),
        ("ampere 96x64x32 w2x2 i16 s3 g8 p1", &bf16, h200, "powers of two"),
        ("ampere 128x128x32 w2x2 i8 s9 g8 p1", &bf16, h200, "9 stages"),
        ("ampere 128x128x32 w2x2 i32 s3 g8 p1", &bf16, h200, "no instruction is 32 deep"),
        ("ampere 256x256x32 w2x2 i16 s3 g8 p1", &bf16, h200, "registers of sums"),
        ("ampere 128x256x64 w2x4 i16 s4 g8 p1", &bf16, a100, "bytes of shared memory"),
        ("ampere 16x16x32 w2x1 i16 s3 g8 p1", &bf16, h200, "at least 16 x 16"),
        ("ampere 64x64x128 w2x2 i16 s3 g8 p1", &bf16, h200, "deeper than 128 bytes"),
        (
            "ampere 64x64x64 w2x2 i32 s3 g8 p1",
            &Problem::new(64, 64, 64, Types::of(Element::E4M3)),
            a100,
            "no instruction for e4m3",
        ),
        (
            "ampere 64x64x64 w2x2 i32 s3 g8 p1",
            &Problem::new(64, 64, 64, Types::of(Element::F32)),
            h200,
            "tensor cores multiply",
        ),
        (
            "ampere 64x64x64 w2x2 i16 s3 g8 p1",
            &Problem::new(64, 64, 64, Types { accumulate: Element::F16, ..Types::of(Element::F16) }),
            h200,
            "there is no product of f16 and f16 that accumulates in f16",
        ),
    ] {
        let found = message(text, problem, gpu);
        assert!(found.contains(part), "{text}: {found}");
    }
}

#[test]
fn candidates_are_legal_and_different() {
    for gpu in Gpu::ALL {
        for element in [Element::BF16, Element::TF32, Element::I8, Element::F64] {
            for (m, n, k) in [(4096, 4096, 4096), (64, 512, 8192), (3, 5, 0)] {
                let problem = Problem::new(m, n, k, Types::of(element));
                let found = Config::candidates(&problem, gpu);
                assert!(found.len() >= 4, "{} {element} {m}x{n}x{k}: {found:?}", gpu.name);
                for config in found {
                    assert_eq!(config.to_string().parse(), Ok(config));
                    assert!(config.recipe(&problem, gpu).is_ok());
                }
            }
        }
    }
}

/// Wavefronts of shared memory that bank conflicts add, for each one that is needed. Fragments must have none.
fn conflicts(config: Config, problem: &Problem) -> f64 {
    let device = Device::simulator_with(Options { count: true, check: false, ..Options::default() });
    let zeros = |placement: &Placement, lines: u32, element: Element| {
        let bytes = placement.leading * u64::from(lines) * u64::from(element.bytes());
        device.alloc_zeroed::<u8>(usize::try_from(bytes).unwrap()).unwrap()
    };
    let (a, b) = (&problem.a, &problem.b);
    let lines = |placement: &Placement, rows, columns| {
        if placement.storage == Storage::RowMajor { rows } else { columns }
    };
    let operands = Operands::new()
        .with(Operand::A, &zeros(a, lines(a, problem.m, problem.k), problem.types.a))
        .with(Operand::B, &zeros(b, lines(b, problem.k, problem.n), problem.types.b))
        .with(Operand::D, &zeros(&problem.d, lines(&problem.d, problem.m, problem.n), problem.types.d));
    let recipe = config.recipe(problem, h200()).unwrap();
    let reports = Prepared::new(&device, &recipe, &operands).unwrap().run().unwrap();
    let counts = &reports[0].simulation().unwrap().counts;
    // Fragments are read by matrix loads or element by element, results by vectors.
    let fragments =
        |text: &str| text.starts_with("ldmatrix") || (text.starts_with("ld.shared") && !text.contains(".v"));
    let mut reads = counts.sites().iter().filter(|site| fragments(&site.instruction)).peekable();
    assert!(reads.peek().is_some());
    assert!(reads.all(|site| site.bank_conflicts == 0), "fragments of {config} meet in a bank");
    counts.shared.conflicts as f64 / (counts.shared.wavefronts - counts.shared.conflicts) as f64
}

#[test]
fn tiles_hardly_meet_in_banks() {
    for (text, element) in [
        ("ampere 128x128x32 w2x2 i16 s3 g8 p1", Element::BF16),
        ("ampere 64x64x64 w2x2 i16 s3 g8 p1", Element::BF16),
        ("ampere 128x64x16 w2x2 i8 s3 g8 p1", Element::TF32),
        ("ampere 128x64x64 w2x2 i32 s3 g8 p1", Element::I8),
        ("ampere 64x64x16 w2x2 i8 s3 g8 p1", Element::F64),
    ] {
        let config: Config = text.parse().unwrap();
        for (i, (a, b)) in BOTH.into_iter().flat_map(|a| BOTH.map(|b| (a, b))).enumerate() {
            let problem = Problem::new(config.m, config.n, 4 * config.k, Types::of(element));
            let problem = with_storages(problem, a, b, BOTH[i % 2]);
            let added = conflicts(config, &problem);
            println!("{config} {element} A {a:?} B {b:?}: {added:.3}");
            assert!(added < 0.2, "{config} {element} A {a:?} B {b:?}: {added}");
        }
    }
}

/// Elements of a dense matrix or vector: multiples of a quarter, exact in every type.
fn numbers(salt: u64, element: Element, count: u64) -> Vec<u8> {
    let whole = if element.is_int() { 1.0 } else { 4.0 };
    let mut memory = vec![0; usize::try_from(count).unwrap() * element.bytes() as usize];
    for i in 0..count {
        let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt.wrapping_mul(0xD134_2543_DE82_EF95);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let value = f64::from(u32::try_from((mixed >> 33) % 9).unwrap()) - 4.0;
        encode(element, &mut memory, i, value / whole);
    }
    memory
}

fn index(placement: &Placement, row: u32, column: u32) -> u64 {
    let (slow, fast) = if placement.storage == Storage::RowMajor { (row, column) } else { (column, row) };
    u64::from(slow) * placement.leading + u64::from(fast)
}

/// One product of dense matrices with any epilogue, against the host's in f64. Errors are relative, and absolute below one.
fn check_epilogue(config: Config, types: Types, epilogue: Epilogue, d: Storage, tolerance: f64) {
    let (m, n, k) = (40, 42, 24);
    let merged = epilogue.columns_for_one();
    let d = Placement::dense(d, m as usize, (n / merged) as usize);
    let problem = Problem { epilogue, d, c: d, ..Problem::new(m, n, k, types) };
    let (a, b) = (numbers(1, types.a, u64::from(m * k)), numbers(2, types.b, u64::from(k * n)));
    let device = Device::simulator();
    let d_count = u64::from(m * n / merged);
    let result = device.alloc::<u8>(usize::try_from(d_count * u64::from(types.d.bytes())).unwrap()).unwrap();
    let recipe = config.recipe(&problem, h200()).unwrap();
    // What must be zero is, and the rest is anything.
    let workspace: Vec<u8> =
        (0..recipe.workspace.max(1)).map(|i| u8::from(i >= recipe.zeroed) * 0x7f).collect();
    let mut operands = Operands::new()
        .with(Operand::A, &device.upload(&a).unwrap())
        .with(Operand::B, &device.upload(&b).unwrap())
        .with(Operand::D, &result)
        .with(Operand::Workspace, &device.upload(&workspace).unwrap())
        .with_scalar("alpha", 0.5);
    let extras = problem.epilogue.operands();
    let memory: Vec<Vec<u8>> = extras
        .iter()
        .zip(3..)
        .map(|(extra, salt)| numbers(salt, extra.element, extra.elements(&problem)))
        .collect();
    let mut given = HostOperands::new().with_scalar("alpha", 0.5);
    let mut written = Vec::new();
    for (extra, memory) in extras.iter().zip(&memory) {
        let buffer = device.upload(memory).unwrap();
        operands = operands.with(Operand::Extra(extra.name.clone()), &buffer);
        match extra.access {
            Access::Read => given = given.with(&extra.name, memory),
            _ => written.push((extra, buffer, vec![None; memory.len()])),
        }
    }
    for report in Prepared::new(&device, &recipe, &operands).unwrap().run().unwrap() {
        report.expect_clean().unwrap_or_else(|error| panic!("{error}"));
    }

    let close = |what: &str, found: f64, expected: f64| {
        let error = (found - expected).abs() / expected.abs().max(1.0);
        assert!(error <= tolerance, "{what} is {found}, expected {expected}; {config} {}", problem.epilogue);
    };
    let reference = Reference::new(&problem, &given).unwrap();
    let found = result.to_vec().unwrap();
    for row in 0..m {
        let sum = |column: u32| -> f64 {
            let at = |k_| {
                decode(types.a, &a, index(&problem.a, row, k_))
                    * decode(types.b, &b, index(&problem.b, k_, column))
            };
            (0..k).map(at).sum()
        };
        let sums: Vec<f64> = (0..n).map(sum).collect();
        let expected = reference.row((0, row, 0), &sums, &[], &mut |operand, i, value: f64| {
            let (.., values) = written.iter_mut().find(|(known, ..)| known.name == operand.name).unwrap();
            let known = &mut values[usize::try_from(i).unwrap()];
            *known = Some(match operand.access {
                Access::Reduce(how) => how.combine(known.unwrap_or(how.start()), value),
                _ => value,
            });
        });
        for (column, expected) in (0..).zip(expected) {
            let found = decode(types.d, &found, index(&problem.d, row, column));
            close(&format!("D({row}, {column})"), found, expected);
        }
    }
    for (extra, buffer, values) in written {
        let found = buffer.to_vec().unwrap();
        for (i, expected) in (0..).zip(values).filter_map(|(i, value)| Some((i, value?))) {
            close(&format!("{} of {}", i, extra.name), decode(extra.element, &found, i), expected);
        }
    }
}

#[test]
fn epilogues_with_operands_pairs_and_reductions() {
    for d in BOTH {
        let bf16 = Types::of(Element::BF16);
        let config = small(Element::BF16);
        let bias = Epilogue::new().alpha().bias_per_column("bias", Element::BF16);
        check_epilogue(config, bf16, bias.gelu(), d, 1e-2);
        check_epilogue(config, bf16.with_result(Element::F32), Epilogue::new().swiglu(), d, 1e-5);
        let x = Placement::dense(Storage::RowMajor, 40, 42);
        let all = Epilogue::new().residual("x", Element::F32, x).store("before", Element::BF16, x).relu();
        let all = all.row_sums("sums").column_max("columns").amax("largest");
        check_epilogue(
            Config { parts: 2, k: 16, ..config },
            bf16.with_result(Element::F32),
            all.clone(),
            d,
            1e-2,
        );
        check_epilogue(small(Element::F64), Types::of(Element::F64), Epilogue::new().alpha(), d, 0.0);
        let scaled = Epilogue::new().scale_rows("sa", Element::F32).scale_columns("sb", Element::F32);
        check_epilogue(
            small(Element::I8),
            Types::of(Element::I8).with_result(Element::BF16),
            scaled,
            d,
            1e-2,
        );
    }
}
