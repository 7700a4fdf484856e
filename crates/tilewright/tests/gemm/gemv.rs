//! Products with few rows.

use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::epilogue::Epilogue;
use tilewright::kernels::gemm::{
    Batching, GemmError, KernelConfig, Placement, Problem, Storage, Types, gemv, plan,
};

use super::common::Case;
use Storage::{ColumnMajor, RowMajor};

fn h200() -> &'static Gpu {
    Gpu::named("h200").unwrap()
}

const SMALL: &str = "gemv t1 w2 s3 p1";

fn check(problem: Problem, config: &str) {
    let config: gemv::Config = config.parse().unwrap();
    let recipe = config.recipe(&problem, h200()).unwrap();
    Case::new(problem).check(&recipe);
}

/// Weights in both storages, ragged in both directions.
fn both(m: u32, types: Types) -> [Problem; 2] {
    let (n, k) = (45, 301);
    [ColumnMajor, RowMajor].map(|storage| {
        let leading = u64::from(if storage == ColumnMajor { k } else { n }).next_multiple_of(16);
        let b = Placement { leading, ..Placement::dense(storage, k as usize, n as usize) };
        let a = Placement { leading: 304, ..Placement::dense(RowMajor, m as usize, k as usize) };
        Problem { a, b, ..Problem::new(m, n, k, types) }
    })
}

#[test]
fn weights_of_every_type() {
    for element in [Element::BF16, Element::F16, Element::E4M3, Element::I8, Element::F32, Element::F64] {
        let types = Types::of(element);
        let types = if element == Element::E4M3 { types.with_result(Element::F32) } else { types };
        for problem in both(3, types) {
            check(problem, SMALL);
        }
    }
}

#[test]
fn factors_of_two_types() {
    for (a, b) in [(Element::E4M3, Element::E5M2), (Element::U8, Element::I8)] {
        let types = Types { a, ..Types::of(b) };
        let [problem, _] = both(2, types);
        check(problem, SMALL);
    }
}

#[test]
fn every_number_of_rows() {
    for m in [1, 7, 8, 9, 16] {
        let [problem, _] = both(m, Types::of(Element::BF16));
        check(problem, SMALL);
    }
    for m in [1, 5, 16] {
        let [problem, other] = both(m, Types::of(Element::F32));
        check(problem, SMALL);
        check(other, SMALL);
    }
}

#[test]
fn wide_loads_of_whole_steps() {
    for storage in [ColumnMajor, RowMajor] {
        let mut problem = Problem::new(4, 128, 512, Types::of(Element::BF16));
        problem.b = Placement::dense(storage, 512, 128);
        let config: gemv::Config = "gemv t2 w4 s4 p1".parse().unwrap();
        let recipe = config.recipe(&problem, h200()).unwrap();
        assert!(recipe.launches[0].kernel.key.contains(" w8 "), "{}", recipe.launches[0].kernel.key);
        Case::new(problem).check(&recipe);
    }
}

#[test]
fn any_alignment() {
    for (leading, alignment) in [(301, 2), (302, 4), (304, 8)] {
        let [mut problem, _] = both(2, Types::of(Element::BF16));
        (problem.b.leading, problem.b.alignment, problem.a.leading) = (leading, alignment, leading);
        check(problem, SMALL);
    }
    let [_, mut problem] = both(2, Types::of(Element::I8));
    problem.b.leading = 45;
    check(problem, SMALL);
}

#[test]
fn inputs_and_results_in_columns() {
    let [mut problem, _] = both(5, Types::of(Element::BF16));
    problem.a = Placement::dense(ColumnMajor, 5, 301);
    problem.d = Placement { leading: 6, ..Placement::dense(ColumnMajor, 5, 45) };
    check(problem, SMALL);
    // One row lies the same way in both storages, and is read in wide pieces.
    let [mut problem, _] = both(1, Types::of(Element::BF16));
    problem.a = Placement::dense(ColumnMajor, 1, 301);
    let config: gemv::Config = SMALL.parse().unwrap();
    let recipe = config.recipe(&problem, h200()).unwrap();
    assert!(recipe.launches[0].kernel.key.contains("a bf16 RowMajor"), "{}", recipe.launches[0].kernel.key);
    Case::new(problem).check(&recipe);
}

#[test]
fn parts_of_k_are_added_in_order() {
    for problem in both(3, Types::of(Element::BF16)) {
        check(problem, "gemv t1 w2 s2 p3");
    }
    // As many as a chip has multiprocessors.
    check(Problem::new(2, 3, 16_500, Types::of(Element::BF16)), "gemv t1 w1 s2 p128");
}

/// Long sums of few columns keep the whole chip busy.
#[test]
fn long_sums_have_many_parts() {
    for (m, n, k) in [(1, 1, 16_777_216), (3, 5, 1_000_003)] {
        let problem = Problem::new(m, n, k, Types::of(Element::BF16));
        let best = plan(&problem, h200()).unwrap().algorithm;
        let KernelConfig::Gemv(config) = best.kernel else { panic!("{best}") };
        assert_eq!(config.parts, 128, "{best}");
    }
    // Short ones do not: the last block adds up what all have.
    let short = gemv::Config::candidates(&Problem::new(1, 1, 65_536, Types::of(Element::BF16)), h200());
    assert!(short.iter().all(|config| config.parts <= 64) && short.iter().any(|config| config.parts > 16));
}

#[test]
fn batches_by_stride_and_by_pointers() {
    for batching in [Batching::Strided, Batching::Pointers] {
        let problem = Problem { batch: 2, batching, ..Problem::new(2, 20, 150, Types::of(Element::F16)) };
        check(problem.clone(), SMALL);
        check(problem, "gemv t1 w2 s2 p2");
    }
}

#[test]
fn scaled_with_c_and_requantised() {
    let config: gemv::Config = SMALL.parse().unwrap();
    let mut problem = Problem::new(3, 20, 40, Types::of(Element::BF16).with_result(Element::F32));
    problem.epilogue = Epilogue::linear();
    let recipe = config.recipe(&problem, h200()).unwrap();
    Case { alpha: 0.5, beta: 2.0, ..Case::new(problem) }.check(&recipe);

    let mut problem = Problem::new(3, 20, 40, Types::of(Element::I8).with_result(Element::I8));
    problem.epilogue = Epilogue::linear();
    let recipe = config.recipe(&problem, h200()).unwrap();
    Case { alpha: 0.5, ..Case::new(problem) }.check(&recipe);
}

#[test]
fn products_without_elements_or_steps() {
    let config: gemv::Config = SMALL.parse().unwrap();
    let types = Types::of(Element::BF16);
    for (m, n) in [(0, 5), (5, 0)] {
        let recipe = config.recipe(&Problem::new(m, n, 7, types), h200()).unwrap();
        assert!(recipe.launches.is_empty());
    }
    check(Problem::new(3, 5, 0, types), SMALL);
}

#[test]
fn configurations_are_written_and_read_back() {
    for (n, k) in [(4096, 4096), (1024, 16384), (28672, 8192)] {
        let problem = Problem::new(4, n, k, Types::of(Element::BF16));
        let candidates = gemv::Config::candidates(&problem, h200());
        assert!(!candidates.is_empty());
        for config in candidates {
            assert_eq!(config.to_string().parse(), Ok(config));
        }
    }
    let error = "gemv t1".parse::<gemv::Config>().unwrap_err();
    assert!(error.to_string().contains("expected a text such as"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let reason = |config: &str, problem: &Problem, gpu: &str| {
        let config: gemv::Config = config.parse().unwrap();
        config.check(problem, Gpu::named(gpu).unwrap()).unwrap_err()
    };
    let problem = Problem::new(4, 64, 64, Types::of(Element::BF16));
    for (config, says) in [
        ("gemv t3 w2 s3 p1", "powers of two"),
        ("gemv t1 w2147483648 s3 p1", "at most 16 warps"),
        ("gemv t1 w2 s1 p1", "two stages"),
        ("gemv t1 w16 s4000000000 p1", "bytes of shared memory"),
        ("gemv t8 w16 s2 p1", "registers, and has 128"),
        ("gemv t1 w2 s3 p5", "5 parts of 1 steps"),
    ] {
        assert!(reason(config, &problem, "h200").to_string().contains(says), "{config}");
    }
    let many = Problem::new(17, 64, 64, Types::of(Element::BF16));
    assert!(reason(SMALL, &many, "h200").to_string().contains("17 rows; expected at most 16"));
    let small = Problem::new(4, 64, 64, Types::of(Element::E4M3));
    assert!(matches!(reason(SMALL, &small, "a100"), GemmError::Types { .. }));
}
