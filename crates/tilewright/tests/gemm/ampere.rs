//! `mma.sync` and `cp.async`: types, storages, alignments, edges, batches and split-K.

use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::ampere::Config;
use tilewright::kernels::gemm::epilogue::Epilogue;
use tilewright::kernels::gemm::{Accumulation, Batching, Placement, Problem, Storage, Types};

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
        a: Placement::dense(a, m, k),
        b: Placement::dense(b, k, n),
        c: Placement::dense(d, m, n),
        d: Placement::dense(d, m, n),
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
    all_storages(types, (50, 45, 77));
    let mixed = Types { b: Element::E5M2, ..types };
    check(small(Element::E4M3), Problem::new(50, 45, 77, mixed));
    let promoted = Problem { accumulation: Accumulation::Promoted, ..Problem::new(50, 45, 200, types) };
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
            for storage in BOTH {
                let types = Types::of(element);
                let mut problem = with_storages(Problem::new(40, 37, k, types), storage, storage, storage);
                problem.a.leading = leading(problem.a.leading).unwrap();
                problem.b.leading = leading(problem.b.leading).unwrap();
                problem.d.leading = leading(problem.d.leading).unwrap();
                check(small(element), problem);
            }
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
            let problem = with_storages(Problem::new(40, 37, 19, types), BOTH[0], BOTH[1], storage);
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
