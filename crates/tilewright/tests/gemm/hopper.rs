//! The kernels of Hopper: types, layouts, schedules, edges.

use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::epilogue::Epilogue;
use tilewright::kernels::gemm::hopper::Config;
use tilewright::kernels::gemm::{Accumulation, Placement, Problem, Storage, Types};

use crate::common::Case;

/// An H200 with so many multiprocessors.
fn h200(multiprocessors: u32) -> Gpu {
    Gpu { multiprocessors, ..*Gpu::named("h200").unwrap() }
}

/// A product of bf16, or of another type, with everything where the copy engine wants it.
fn product(m: u32, n: u32, k: u32, element: Element) -> Problem {
    let mut problem = Problem::new(m, n, k, Types::of(element));
    let whole = u64::from(16 / element.bytes());
    problem.a.leading = problem.a.leading.next_multiple_of(whole);
    problem.b.leading = problem.b.leading.next_multiple_of(whole);
    problem.d.leading = problem.d.leading.next_multiple_of(16);
    problem.c = problem.d;
    problem
}

#[track_caller]
fn run_on(gpu: &Gpu, config: &str, problem: Problem) {
    let config: Config = config.parse().unwrap();
    let recipe = config.recipe(&problem, gpu).unwrap_or_else(|error| panic!("{error}"));
    Case::new(problem).check(&recipe);
}

#[track_caller]
fn run(config: &str, problem: Problem) {
    run_on(&h200(2), config, problem);
}

const SMALL: &str = "hopper 64x64x128B c1x1 s3 coop1 m8";
const NARROW: &str = "hopper 64x16x128B c1x1 s3 coop1 m8";

/// The same product with A, B and D stored in other ways.
fn stored(mut problem: Problem, a: Storage, b: Storage, d: Storage) -> Problem {
    let place = |storage, rows: u32, columns: u32, element: Element| {
        let whole = u64::from(16 / element.bytes());
        let dense = Placement::dense(storage, rows as usize, columns as usize);
        Placement { leading: dense.leading.next_multiple_of(whole), ..dense }
    };
    problem.a = place(a, problem.m, problem.k, problem.types.a);
    problem.b = place(b, problem.k, problem.n, problem.types.b);
    problem.d = place(d, problem.m, problem.n, problem.types.d);
    problem.c = problem.d;
    problem
}

/// A batch of a product, with a gap between its members.
fn batched(mut problem: Problem, batch: u32) -> Problem {
    problem.batch = batch;
    let span = |placement: &Placement, rows: u32, columns: u32| {
        let lines = if placement.storage == Storage::RowMajor { rows } else { columns };
        placement.leading * u64::from(lines) + 32
    };
    problem.a.batch_stride = span(&problem.a, problem.m, problem.k);
    problem.b.batch_stride = span(&problem.b, problem.k, problem.n);
    problem.d.batch_stride = span(&problem.d, problem.m, problem.n);
    problem.c = problem.d;
    problem
}

use Storage::{ColumnMajor, RowMajor};

#[test]
fn one_tile() {
    run(SMALL, product(64, 64, 128, Element::BF16));
}

#[test]
fn sixteen_bit_factors_lie_in_any_way() {
    for (a, b) in [(RowMajor, RowMajor), (ColumnMajor, ColumnMajor), (ColumnMajor, RowMajor)] {
        run(SMALL, stored(product(72, 56, 136, Element::F16), a, b, RowMajor));
    }
    run(
        "hopper 128x96x128B c1x1 s2 coop2 m8",
        stored(product(128, 96, 64, Element::BF16), ColumnMajor, RowMajor, ColumnMajor),
    );
    run(
        "hopper 64x32x64B c1x1 s2 coop1 m8",
        stored(product(64, 32, 64, Element::BF16), ColumnMajor, RowMajor, RowMajor),
    );
}

#[test]
fn other_types() {
    run(NARROW, product(60, 20, 70, Element::TF32));
    run(NARROW, stored(product(60, 20, 70, Element::TF32), RowMajor, ColumnMajor, ColumnMajor));
    for (a, b) in [(Element::I8, Element::I8), (Element::I8, Element::U8), (Element::U8, Element::I8)] {
        let types = Types { b, ..Types::of(a) };
        run(NARROW, Problem { types, ..product(64, 16, 160, a) });
    }
    run(NARROW, product(64, 16, 144, Element::U8));
    for (a, b) in [
        (Element::E4M3, Element::E4M3),
        (Element::E4M3, Element::E5M2),
        (Element::E5M2, Element::E4M3),
        (Element::E5M2, Element::E5M2),
    ] {
        let types = Types { b, ..Types::of(a) };
        run(NARROW, Problem { types, ..product(64, 16, 160, a) });
    }
}

#[test]
fn other_results() {
    let as_type = |d: Element, storage| {
        let mut problem = product(64, 80, 64, Element::BF16);
        problem.types = problem.types.with_result(d);
        stored(problem, RowMajor, ColumnMajor, storage)
    };
    for storage in [RowMajor, ColumnMajor] {
        run(SMALL, as_type(Element::F32, storage));
        run(SMALL, as_type(Element::E5M2, storage));
    }
    // Requantised without a scale: sums are clamped.
    for storage in [RowMajor, ColumnMajor] {
        let mut problem = product(64, 80, 64, Element::I8);
        problem.types = problem.types.with_result(Element::I8);
        run(SMALL, stored(problem, RowMajor, ColumnMajor, storage));
    }
}

#[test]
fn sums_of_eight_bit_floats_are_promoted() {
    let promoted =
        |m, n, k| Problem { accumulation: Accumulation::Promoted, ..product(m, n, k, Element::E4M3) };
    run(NARROW, promoted(64, 16, 400));
    run_on(&h200(1), "hopper 128x8x128B c1x1 s3 ping2 m8", promoted(250, 8, 144));
}

/// What lies outside of A and B is not loaded: nothing of a block that has no tile, a few rows of one that overhangs, half of what two
/// blocks share; in the first round of the ring and in later ones.
#[test]
fn tiles_that_overhang() {
    let wide = "hopper 64x64x128B c2x1 s2 coop1 m8";
    let tall = "hopper 64x64x128B c1x2 s2 coop1 m8";
    for (config, m, n, k) in [
        (wide, 192, 64, 200),
        (wide, 129, 33, 200),
        (wide, 60, 31, 64),
        (tall, 64, 192, 200),
        (tall, 33, 129, 200),
        (tall, 31, 60, 64),
    ] {
        run(config, product(m, n, k, Element::BF16));
        // Two tiles of a cluster, the first of which is whole.
        run(config, product(m + 128, n + 128, k, Element::BF16));
    }
    for (a, b) in [(RowMajor, RowMajor), (ColumnMajor, ColumnMajor), (ColumnMajor, RowMajor)] {
        let config = "hopper 128x128x128B c2x1 s2 coop2 m8";
        run(config, stored(product(264, 40, 200, Element::BF16), a, b, RowMajor));
        run(config, stored(product(72, 136, 200, Element::BF16), a, b, ColumnMajor));
    }
    run(NARROW, batched(product(65, 17, 200, Element::BF16), 3));
    run_on(&h200(3), "hopper 64x64x128B c1x1 s2 coop1 m8 stream", product(130, 70, 300, Element::BF16));
    run_on(&h200(1), "hopper 64x24x128B c1x1 s3 ping2 m8", product(200, 50, 100, Element::TF32));
    run("hopper 64x16x64B c1x1 s3 coop1 m8", product(1, 3, 200, Element::E4M3));
}

#[test]
fn narrow_and_odd_tiles() {
    for n in [8, 24, 40, 200] {
        let config = format!("hopper 64x{n}x128B c1x1 s2 coop1 m8");
        run(&config, product(64, n, 72, Element::BF16));
        run(&config, stored(product(64, n, 72, Element::BF16), RowMajor, ColumnMajor, ColumnMajor));
    }
    run("hopper 64x16x64B c1x1 s4 coop1 m8", product(64, 20, 100, Element::BF16));
    run("hopper 64x48x128B c1x1 s2 coop1 m8", product(64, 48, 128, Element::I8));
}

/// Steps of 32 bytes, the least that the tensor cores multiply: for factors of all types and storages, alone and several of them.
#[test]
fn short_steps() {
    for element in [Element::BF16, Element::F16, Element::TF32, Element::E4M3, Element::I8] {
        let least = 32 / element.bytes();
        for k in [16 / element.bytes(), least, 3 * least + 16 / element.bytes()] {
            run("hopper 64x24x32B c1x1 s3 coop1 m8", product(70, 40, k, element));
            run("hopper 128x96x32B c1x1 s4 ping2 n8", product(200, 100, k, element));
        }
    }
    for (a, b) in [(RowMajor, RowMajor), (ColumnMajor, ColumnMajor), (ColumnMajor, RowMajor)] {
        for k in [8, 16, 40] {
            run(
                "hopper 128x128x32B c2x1 s2 coop2 m8",
                stored(product(264, 136, k, Element::BF16), a, b, RowMajor),
            );
            run(
                "hopper 64x48x32B c1x2 s3 coop1 m8",
                stored(product(72, 104, k, Element::F16), a, b, ColumnMajor),
            );
        }
    }
    run("hopper 64x16x32B c1x1 s3 coop1 m8 split2", product(64, 16, 64, Element::BF16));
    run("hopper 64x16x32B c1x1 s3 coop1 m8 joint2 once", product(64, 16, 64, Element::BF16));
    run_on(&h200(3), "hopper 64x64x32B c1x1 s2 coop1 m8 stream", product(130, 70, 40, Element::BF16));
}

/// Tiles as wide as extents make them, whose columns go to D in pieces of what divides them.
#[test]
fn tiles_that_are_fitted() {
    for (config, m, n) in [
        ("hopper 128x168x128B c1x2 s2 coop2 m8", 250, 330),
        ("hopper 128x200x128B c1x1 s2 coop2 n3", 128, 600),
        ("hopper 192x176x128B c1x2 s2 coop3 m5", 200, 350),
        ("hopper 192x80x128B c1x2 s2 coop3 n1", 192, 160),
        ("hopper 256x144x128B c2x1 s2 coop2 n5", 300, 140),
        ("hopper 64x216x128B c1x1 s2 ping2 m7", 130, 216),
    ] {
        run(config, stored(product(m, n, 72, Element::BF16), RowMajor, ColumnMajor, ColumnMajor));
    }
    run("hopper 192x160x128B c1x1 s2 coop3 m4", product(190, 320, 72, Element::BF16));
    run("hopper 128x240x128B c1x1 s2 coop2 m8", product(128, 240, 96, Element::I8));
}

#[test]
fn results_of_any_alignment() {
    for storage in [RowMajor, ColumnMajor] {
        let mut problem = stored(product(67, 61, 64, Element::BF16), RowMajor, ColumnMajor, storage);
        problem.d.leading = 71;
        problem.c = problem.d;
        run(SMALL, problem);
    }
    let mut pairs = product(65, 62, 64, Element::BF16);
    pairs.d = Placement { leading: 66, alignment: 4, ..pairs.d };
    run(SMALL, pairs);
}

#[test]
fn no_steps_at_all() {
    run(SMALL, product(64, 40, 0, Element::BF16));
    run(SMALL, batched(product(64, 40, 0, Element::E4M3), 2));
    let nothing = product(0, 64, 64, Element::BF16);
    let config: Config = SMALL.parse().unwrap();
    assert!(config.recipe(&nothing, &h200(2)).unwrap().launches.is_empty());
}

#[test]
fn batches() {
    run(SMALL, batched(product(70, 40, 72, Element::BF16), 3));
    let mut shared = batched(stored(product(64, 40, 72, Element::F16), RowMajor, RowMajor, ColumnMajor), 3);
    shared.b.batch_stride = 0;
    run(SMALL, shared);
    let mut unaligned = batched(product(64, 40, 64, Element::BF16), 2);
    unaligned.d.batch_stride += 1;
    unaligned.c = unaligned.d;
    run("hopper 64x40x128B c1x1 s2 coop1 m8", unaligned);
}

#[test]
fn many_tiles_in_every_order() {
    for raster in ["m1", "m2", "n2", "n8"] {
        run_on(
            &h200(3),
            &format!("hopper 64x32x64B c1x1 s3 coop1 {raster}"),
            product(64 * 5, 32 * 3, 32, Element::BF16),
        );
    }
    run("hopper 64x32x64B c1x1 s3 coop1 m8 once", product(64 * 2, 32 * 3, 32, Element::BF16));
}

#[test]
fn warpgroups_together_and_in_turns() {
    run("hopper 128x32x64B c1x1 s3 coop2 m8", product(300, 64, 100, Element::BF16));
    run("hopper 256x32x64B c1x1 s3 coop2 m8", product(300, 32, 100, Element::BF16));
    run("hopper 192x32x64B c1x1 s2 coop3 m8", product(200, 64, 100, Element::BF16));
    for tiles in [1, 2, 5] {
        run_on(&h200(1), "hopper 64x32x64B c1x1 s3 ping2 m8", product(64 * tiles, 32, 164, Element::BF16));
    }
    run_on(&h200(1), "hopper 128x32x64B c1x1 s2 ping3 m8", product(512, 30, 40, Element::BF16));
}

#[test]
fn clusters() {
    for cluster in ["2x1", "1x2"] {
        for pace in ["coop2", "ping2"] {
            run_on(
                &h200(4),
                &format!("hopper 128x32x64B c{cluster} s2 {pace} m2"),
                product(300, 72, 72, Element::BF16),
            );
        }
        run_on(
            &h200(2),
            &format!("hopper 64x64x128B c{cluster} s3 coop1 n2"),
            stored(product(64, 128, 72, Element::F16), ColumnMajor, RowMajor, RowMajor),
        );
    }
}

#[test]
fn parts_of_k() {
    run_on(&h200(4), "hopper 64x32x64B c1x1 s3 coop1 m8 split3", product(100, 60, 32 * 7, Element::BF16));
    run_on(&h200(2), "hopper 128x32x128B c1x1 s2 coop2 m8 split2", product(128, 32, 300, Element::I8));
    run_on(&h200(2), "hopper 64x32x64B c1x1 s3 ping2 m8 split2", product(128, 30, 96, Element::BF16));
    run_on(&h200(4), "hopper 64x32x64B c2x1 s3 coop1 m8 split2", product(128, 64, 96, Element::BF16));
}

#[test]
fn clusters_join_their_sums() {
    for (config, m, n, k) in [
        ("hopper 64x32x64B c1x1 s3 coop1 m8 joint2 once", 100, 60, 32 * 7),
        ("hopper 128x32x64B c1x1 s3 coop2 m2 joint4 once", 130, 72, 32 * 9),
        ("hopper 64x64x64B c1x1 s2 coop1 m8 joint4 once", 64, 64, 32 * 4),
        ("hopper 128x48x64B c1x1 s2 coop1 m8 joint2 once", 120, 48, 32 * 2),
    ] {
        run_on(&h200(8), config, product(m, n, k, Element::BF16));
    }
    run_on(&h200(2), "hopper 128x32x128B c1x1 s2 coop2 m8 joint2 once", product(128, 32, 300, Element::I8));
    let mut promoted = product(64, 32, 128 * 3, Element::E4M3);
    promoted.accumulation = Accumulation::Promoted;
    run_on(&h200(2), "hopper 64x32x128B c1x1 s2 coop1 m8 joint2 once", promoted);
    run_on(
        &h200(4),
        "hopper 64x32x64B c1x1 s3 coop1 m8 joint2 once",
        batched(product(64, 32, 32 * 3, Element::F16), 3),
    );
    run_on(
        &h200(2),
        "hopper 64x64x128B c1x1 s3 coop1 n2 joint2 once",
        stored(product(64, 128, 136, Element::F16), ColumnMajor, RowMajor, ColumnMajor),
    );
}

#[test]
fn streams() {
    // Tiles, steps of each and workers that fit together in different ways: stretches of several tiles, of less than one, whole tiles.
    for (tiles, steps, workers) in [(5, 4, 3), (1, 7, 3), (2, 3, 4), (7, 2, 3), (4, 3, 2), (1, 2, 5)] {
        run_on(
            &h200(workers),
            "hopper 64x16x64B c1x1 s3 coop1 m8 stream",
            product(64 * tiles, 16, 32 * steps, Element::BF16),
        );
    }
    run_on(&h200(3), "hopper 64x16x64B c1x1 s3 ping2 m8 stream", product(64 * 5, 16, 32 * 3, Element::BF16));
    run_on(&h200(6), "hopper 128x32x64B c1x2 s3 coop2 m8 stream", product(128, 300, 32 * 3, Element::BF16));
    run_on(
        &h200(3),
        "hopper 64x16x64B c1x1 s3 coop1 m8 stream",
        batched(product(64, 16, 32 * 3, Element::F16), 4),
    );
}

#[test]
fn assistance() {
    // Tiles, steps of each and workers: one tile is begun and many assist, most are begun, fewer tiles than workers, nothing is left.
    for (tiles, steps, workers) in
        [(5, 8, 4), (7, 9, 4), (3, 12, 5), (1, 7, 3), (4, 3, 2), (11, 5, 6), (2, 1, 3)]
    {
        for pace in ["coop1", "ping2"] {
            run_on(
                &h200(workers),
                &format!("hopper 64x16x64B c1x1 s3 {pace} m8 assist"),
                product(64 * tiles, 16, 32 * steps, Element::BF16),
            );
        }
    }
    run_on(
        &h200(8),
        "hopper 128x32x64B c1x2 s3 coop2 m8 assist",
        product(128, 64 * 7, 32 * 9, Element::BF16),
    );
    run_on(
        &h200(3),
        "hopper 64x16x64B c1x1 s3 ping2 m8 assist",
        batched(product(64, 16, 32 * 6, Element::F16), 5),
    );
}

#[test]
fn a_matrix_is_added() {
    const PING: &str = "hopper 128x64x128B c1x1 s2 ping2 m8";
    const FITTED: &str = "hopper 128x168x128B c1x1 s2 coop2 m8";
    // By the threads that add it, or by the copy engine where lines of it lie at multiples of 16 bytes.
    for (config, (m, n), d, element, by_engine) in [
        (SMALL, (70, 50), RowMajor, Element::BF16, false),
        (SMALL, (70, 50), ColumnMajor, Element::BF16, false),
        (PING, (70, 50), RowMajor, Element::BF16, false),
        ("hopper 64x64x128B c1x1 s2 coop1 m8 split2", (70, 50), RowMajor, Element::BF16, false),
        ("hopper 64x64x128B c1x1 s2 coop1 m8 joint2 once", (70, 50), RowMajor, Element::BF16, false),
        ("hopper 64x64x128B c1x1 s2 coop1 m8 joint2 once", (72, 56), ColumnMajor, Element::BF16, true),
        (SMALL, (72, 56), RowMajor, Element::BF16, true),
        (SMALL, (72, 56), ColumnMajor, Element::BF16, true),
        (SMALL, (72, 56), RowMajor, Element::F32, true),
        (SMALL, (72, 56), ColumnMajor, Element::F32, true),
        (PING, (264, 72), ColumnMajor, Element::BF16, true),
        (FITTED, (136, 176), ColumnMajor, Element::BF16, true),
        (FITTED, (136, 176), RowMajor, Element::BF16, true),
    ] {
        let mut problem = product(m, n, 136, Element::BF16);
        problem.types = problem.types.with_result(element);
        let mut problem = stored(problem, RowMajor, ColumnMajor, d);
        problem.epilogue = Epilogue::linear();
        let recipe = config.parse::<Config>().unwrap().recipe(&problem, &h200(2)).unwrap();
        let staged = recipe.launches[0].bindings.iter().any(|(name, _)| name == "c_map");
        assert_eq!(staged, by_engine, "{config} {m} x {n} {d:?} {element}");
        Case { alpha: 2.0, beta: -3.0, ..Case::new(problem) }.check(&recipe);
    }
}

/// Scaled sums of integers, as floats and as integers.
#[test]
fn sums_of_integers_are_scaled() {
    for d in [Element::F32, Element::I32, Element::I8] {
        let mut problem = product(64, 64, 128, Element::I8);
        problem.types = problem.types.with_result(d);
        problem.epilogue = Epilogue::linear();
        let recipe = SMALL.parse::<Config>().unwrap().recipe(&problem, &h200(2)).unwrap();
        Case { alpha: 2.0, beta: 1.0, ..Case::new(problem) }.check(&recipe);
    }
}

#[test]
fn large_tiles() {
    run("hopper 128x256x128B c1x1 s4 coop2 m8", product(128, 256, 72, Element::BF16));
    run("hopper 128x256x128B c2x1 s4 coop2 m8", product(250, 256, 40, Element::BF16));
    run("hopper 256x192x128B c1x1 s3 coop2 m8", product(256, 192, 40, Element::BF16));
}
