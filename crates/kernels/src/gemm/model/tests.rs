//! What the model must get right whatever its numbers are, and single times that were measured.

use tilewright_hardware::{Element, Gpu, TensorKind};

use super::*;

fn predict(work: &Work, problem: &Problem, gpu: &Gpu) -> Prediction {
    Model::FITTED.predict(work, problem, gpu)
}

fn h200() -> &'static Gpu {
    Gpu::named("h200").unwrap()
}

fn wgmma(m: u32, n: u32) -> Tiled {
    Tiled {
        unit: Unit::Tensor(TensorKind::F16),
        tile: [m, n, 64],
        slab: [64, n],
        cluster: [1, 1],
        stages: 4,
        resident: 1,
        split: Split::Whole,
        overlapped: false,
        cooperates: false,
        band: Band::Rows(8),
        load: [None; 2],
    }
}

fn bf16(m: u32, n: u32, k: u32) -> Problem {
    Problem::new(m, n, k, Types::of(Element::BF16))
}

fn seconds(tiled: Tiled, problem: &Problem) -> f64 {
    predict(&Work::Tiled(tiled), problem, h200()).seconds()
}

#[test]
fn wide_tiles_are_best_for_large_squares_and_come_near_what_was_measured() {
    let problem = bf16(8192, 8192, 8192);
    let wide = predict(&Work::Tiled(wgmma(128, 256)), &problem, h200());
    for (m, n) in [(128, 128), (64, 256), (64, 128), (128, 64)] {
        assert!(wide.seconds() < seconds(wgmma(m, n), &problem), "{m}x{n}");
    }
    assert_eq!(wide.binding().name, "tensor cores");
    let rate = problem.flops() / wide.seconds() * 1e-12;
    // Measured: 652.
    assert!((620.0..690.0).contains(&rate), "{rate} TFLOP/s");
}

#[test]
fn sharing_what_is_loaded_costs_small_products_more_than_large_ones() {
    // Measured with 128x128, two tiles at a time: 2 to 3 % more with clusters for 2048 cubed, the same for 8192 cubed (1626 and 1624 us).
    let [alone, pair] =
        [[1, 1], [2, 1]].map(|cluster| Tiled { cluster, overlapped: true, ..wgmma(128, 128) });
    let l2 = |tiled: Tiled, problem: &Problem| {
        let predicted = predict(&Work::Tiled(tiled), problem, h200());
        predicted.terms.iter().find(|term| term.name == "loads from L2").unwrap().seconds
    };
    let (small, large) = (bf16(2048, 2048, 2048), bf16(8192, 8192, 8192));
    assert!(l2(pair, &large) < l2(alone, &large) * 0.8);
    assert!((seconds(pair, &large) / seconds(alone, &large) - 1.0).abs() < 0.005);
    assert!(seconds(pair, &small) > seconds(alone, &small) * 1.01);
}

#[test]
fn clusters_share_the_larger_factor_if_memory_binds() {
    // Measured: 17.7 us alone, 17.8 us if the larger factor is shared, 22.5 us if the other one is.
    let problem = bf16(128, 6144, 4096);
    let shared = |cluster| seconds(Tiled { cluster, stages: 9, ..wgmma(64, 112) }, &problem);
    assert!(shared([1, 2]) > shared([1, 1]) * 1.15);
    assert!(shared([2, 1]) < shared([1, 1]) * 1.05);
}

#[test]
fn a_vector_along_columns_costs_more_than_one_along_rows() {
    use crate::gemm::epilogue::Epilogue;
    // A bias with GELU, 4096 cubed: 205.3 us as it is, 200.6 us seen from the other side.
    let bias = |epilogue: Epilogue| Problem { epilogue, ..bf16(4096, 4096, 4096) };
    let columns = bias(Epilogue::new().bias_per_column("bias", Element::BF16));
    let rows = bias(Epilogue::new().bias_per_row("bias", Element::BF16));
    let gain = seconds(wgmma(128, 128), &columns) / seconds(wgmma(128, 128), &rows);
    assert!((1.005..1.04).contains(&gain), "{gain}");
}

#[test]
fn loads_go_on_while_the_engine_stores() {
    // Two tiles each, and memory binds: the results of the first cost nothing.
    let problem = bf16(64, 132 * 128 * 2, 4096);
    let tiled = Tiled { stages: 7, ..wgmma(64, 128) };
    let overlapped = seconds(Tiled { overlapped: true, ..tiled }, &problem);
    assert!(seconds(tiled, &problem) < overlapped * 1.001);
}

#[test]
fn few_tiles_want_their_depth_split() {
    let problem = bf16(128, 256, 16384);
    let split = |split| seconds(Tiled { split, ..wgmma(128, 256) }, &problem);
    assert!(split(Split::Parts(16)) < split(Split::Whole) / 2.0);
    // And many tiles do not.
    let problem = bf16(8192, 8192, 1024);
    let split = |split| seconds(Tiled { split, ..wgmma(128, 256) }, &problem);
    assert!(split(Split::Parts(4)) > split(Split::Whole));
}

#[test]
fn work_that_does_not_divide_by_the_multiprocessors_is_better_dealt_out_evenly() {
    // 133 tiles: two rounds for one tile too many.
    let problem = bf16(128 * 133, 256, 8192);
    let stream = seconds(Tiled { split: Split::Stream, ..wgmma(128, 256) }, &problem);
    assert!(stream < seconds(wgmma(128, 256), &problem) * 0.75);
}

#[test]
fn narrow_loads_cost() {
    let ampere = |load| Tiled { slab: [64, 64], resident: 2, load: [Some(load); 2], ..wgmma(128, 128) };
    let problem = bf16(4096, 4096, 4096);
    assert!(seconds(ampere(2), &problem) > 2.0 * seconds(ampere(16), &problem));
}

#[test]
fn one_row_is_a_matter_of_memory() {
    // `gemv t1 w8 s6 p1`.
    let work = Work::Streamed(Streamed {
        unit: Unit::Floats,
        per_element: 2.0,
        columns: 16,
        parts: 1,
        steps: 8,
        in_flight: 98304,
        resident: 2,
    });
    let problem = bf16(1, 28672, 4096);
    let one = predict(&work, &problem, h200());
    assert_eq!(one.binding().name, "DRAM");
    // Measured: 57.7 us, and 54.8 us by tiles of which all but a row is empty.
    assert!((one.seconds() / 57.7e-6 - 1.0).abs() < 0.11, "{one}");
    let by_tiles = seconds(wgmma(64, 256), &problem);
    assert!((by_tiles / 54.8e-6 - 1.0).abs() < 0.05, "{by_tiles}");
    assert!(by_tiles < one.seconds());
}

#[test]
fn blocks_that_come_in_more_rounds_take_longer() {
    // Of 16 columns each, 1536 blocks: two at a time (measured 22.1 us), or one with twice the warps (35.1 us).
    let of = |steps, resident| {
        let unit = Unit::Warps(TensorKind::F16);
        let (columns, parts, in_flight) = (16, 1, 196_608 / resident);
        let work = Streamed { unit, per_element: 4.0 / 3.0, columns, parts, steps, in_flight, resident };
        predict(&Work::Streamed(work), &bf16(3, 24576, 1536), h200()).seconds()
    };
    assert!(of(2, 1) > of(3, 2) * 1.1);
}

#[test]
fn nothing_takes_no_time() {
    let nothing = predict(&Work::Tiled(wgmma(128, 128)), &bf16(0, 5, 5), h200());
    assert_eq!((nothing.seconds(), nothing.binding().name), (0.0, "nothing"));
    assert!(seconds(wgmma(128, 128), &bf16(5, 5, 0)) > 0.0);
}

#[test]
fn an_explanation_names_what_binds() {
    let text = predict(&Work::Tiled(wgmma(128, 256)), &bf16(8192, 8192, 8192), h200()).to_string();
    let binds: Vec<&str> = text.lines().filter(|line| line.contains("binds")).collect();
    assert_eq!(binds.len(), 1);
    assert!(binds[0].contains("tensor cores"), "{text}");
    assert!(text.ends_with("us  in all"));
}
