//! Products on the CUDA cores.

use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::epilogue::Epilogue;
use tilewright::kernels::gemm::{Batching, GemmError, Placement, Problem, Storage, Types, simt};

use super::common::Case;
use Storage::{ColumnMajor, RowMajor};

fn h200() -> &'static Gpu {
    Gpu::named("h200").unwrap()
}

/// A small tile: two warps, each thread 8 times 4.
const SMALL: &str = "simt 64x32x8 8x4 s3 g2 p1";

fn check(problem: Problem, config: &str) {
    let config: simt::Config = config.parse().unwrap();
    let recipe = config.recipe(&problem, h200()).unwrap();
    Case::new(problem).check(&recipe);
}

/// A problem whose factors lie as told.
fn stored(m: u32, n: u32, k: u32, types: Types, a: Storage, b: Storage) -> Problem {
    let problem = Problem::new(m, n, k, types);
    Problem {
        a: Placement::dense(a, m as usize, k as usize),
        b: Placement::dense(b, k as usize, n as usize),
        ..problem
    }
}

#[test]
fn all_four_transposes_with_ragged_extents() {
    for a in [RowMajor, ColumnMajor] {
        for b in [RowMajor, ColumnMajor] {
            check(stored(70, 45, 37, Types::of(Element::F32), a, b), SMALL);
        }
    }
}

#[test]
fn wide_copies_where_the_alignment_allows() {
    let problem = stored(72, 44, 19, Types::of(Element::F32), ColumnMajor, RowMajor);
    let config: simt::Config = SMALL.parse().unwrap();
    let recipe = config.recipe(&problem, h200()).unwrap();
    assert!(recipe.launches[0].kernel.key.contains("a f32 ColumnMajor w4 b f32 RowMajor w4"));
    Case::new(problem).check(&recipe);
}

#[test]
fn narrow_copies_where_it_does_not() {
    let mut problem = stored(64, 32, 9, Types::of(Element::F32), ColumnMajor, RowMajor);
    (problem.a.leading, problem.b.alignment, problem.d.leading) = (65, 4, 35);
    check(problem, SMALL);
}

#[test]
fn results_in_columns_and_scaled_with_c() {
    let mut problem = Problem::new(66, 30, 12, Types::of(Element::F32));
    problem.d = Placement { leading: 68, ..Placement::dense(ColumnMajor, 66, 30) };
    problem.epilogue = Epilogue::linear();
    let config: simt::Config = SMALL.parse().unwrap();
    let recipe = config.recipe(&problem, h200()).unwrap();
    Case { alpha: 2.0, beta: -3.0, ..Case::new(problem) }.check(&recipe);
}

#[test]
fn the_tiles_that_large_products_take() {
    let problem = stored(130, 132, 21, Types::of(Element::F32), RowMajor, RowMajor);
    check(problem.clone(), "simt 128x128x16 8x8 s3 g8 p1");
    check(problem, "simt 256x128x8 16x8 s4 g8 p1");
}

#[test]
fn main_loops_of_any_length() {
    for unrolled in [1, 2, 8, 16] {
        for stages in [3, 5] {
            let config = format!("simt 64x32x16 8x4 s{stages} u{unrolled} g2 p1");
            check(stored(64, 32, 83, Types::of(Element::F32), RowMajor, RowMajor), &config);
        }
    }
    // A thread with so many products reads a whole step ahead.
    check(
        stored(33, 130, 40, Types::of(Element::F32), RowMajor, ColumnMajor),
        "simt 32x128x16 8x16 s3 g2 p1",
    );
}

#[test]
fn doubles() {
    for (a, b) in [(RowMajor, ColumnMajor), (ColumnMajor, RowMajor)] {
        check(stored(66, 34, 11, Types::of(Element::F64), a, b), "simt 64x32x8 8x4 s3 g8 p1");
    }
}

#[test]
fn results_of_another_type() {
    check(Problem::new(33, 40, 10, Types::of(Element::F32).with_result(Element::BF16)), SMALL);
}

#[test]
fn parts_of_k_are_added_in_order() {
    for parts in [2, 5] {
        let problem = Problem::new(65, 33, 40, Types::of(Element::F32));
        check(problem, &format!("simt 64x32x8 8x4 s3 g2 p{parts}"));
    }
}

#[test]
fn batches_by_stride_and_by_pointers() {
    for batching in [Batching::Strided, Batching::Pointers] {
        let problem = Problem { batch: 3, batching, ..Problem::new(20, 36, 10, Types::of(Element::F32)) };
        check(problem.clone(), SMALL);
        check(problem, "simt 64x32x8 8x4 s3 g2 p2");
    }
}

#[test]
fn products_without_elements_or_steps() {
    let config: simt::Config = SMALL.parse().unwrap();
    let types = Types::of(Element::F32);
    for (m, n) in [(0, 5), (5, 0)] {
        let recipe = config.recipe(&Problem::new(m, n, 7, types), h200()).unwrap();
        assert!(recipe.launches.is_empty());
    }
    let mut problem = Problem::new(7, 5, 0, types);
    problem.epilogue = Epilogue::linear();
    let recipe = config.recipe(&problem, h200()).unwrap();
    Case { beta: 2.0, ..Case::new(problem) }.check(&recipe);
}

#[test]
fn configurations_are_written_and_read_back() {
    for problem in [
        Problem::new(4096, 4096, 4096, Types::of(Element::F32)),
        Problem::new(100, 100, 10_000, Types::of(Element::F64)),
    ] {
        let candidates = simt::Config::candidates(&problem, h200());
        assert!(!candidates.is_empty());
        for config in candidates {
            assert_eq!(config.to_string().parse(), Ok(config));
        }
    }
    let told: simt::Config = "simt 128x256x16 8x16 s4 u4 g8 p1".parse().unwrap();
    assert_eq!((told.unrolled, told.to_string().as_str()), (4, "simt 128x256x16 8x16 s4 u4 g8 p1"));
    let error = "simt 128x128".parse::<simt::Config>().unwrap_err();
    assert!(error.to_string().contains("expected a text such as"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let problem = Problem::new(64, 64, 64, Types::of(Element::F32));
    let reason = |config: &str, problem: &Problem| {
        let config: simt::Config = config.parse().unwrap();
        config.check(problem, h200()).unwrap_err().to_string()
    };
    for (config, says) in [
        ("simt 96x32x8 8x4 s3 g2 p1", "powers of two"),
        ("simt 2147483648x2147483648x16 8x8 s3 g2 p1", "at most 512x512x128"),
        ("simt 64x32x8 2x4 s3 g2 p1", "at least 4 each way"),
        ("simt 16x32x8 8x4 s3 g2 p1", "must divide the tile"),
        ("simt 64x32x8 8x4 s2 g2 p1", "three stages"),
        ("simt 64x32x8 8x4 s3 u16 g2 p1", "16 steps at a time of 8"),
        ("simt 128x128x64 8x8 s4 g2 p1", "bytes of shared memory"),
        ("simt 64x32x8 8x4 s3 g2 p9", "9 parts of 8 steps"),
    ] {
        assert!(reason(config, &problem).contains(says), "{config}: {}", reason(config, &problem));
    }
    let half = Problem::new(64, 64, 64, Types::of(Element::F16));
    let config: simt::Config = SMALL.parse().unwrap();
    assert!(matches!(config.check(&half, h200()), Err(GemmError::Types { .. })));
}
