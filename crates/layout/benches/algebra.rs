//! How long the algebra takes on the layouts of a Hopper GEMM tile. `cargo bench -p tilewright-layout`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a broken benchmark may panic

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tilewright_layout::{Composed, Coord, FlatLayout, Layout, TiledCopy, Tiler, TvLayout};

fn parse<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("a valid literal")
}

fn algebra(c: &mut Criterion) {
    // A row-major 128x64 bf16 tile, its accumulator fragment, and a 4x64 copy in 16-byte vectors.
    let tile: Layout = parse("(128,64):(64,1)");
    let fragment: Layout = parse("((4,8),(2,2)):((32,1),(16,8))");
    let copy_tv: Layout = parse("((8,16),8):((1024,1),128)");
    let matrix: Layout = parse("(4096,8192):(8192,1)");
    let tiler = Tiler::shape((128, 64)).expect("a shape");
    let nested: Layout = parse("((2,4,8),(2,(4,2))):((1,16,128),(2,(4,64)))");
    let smem: Composed = parse("S<3,3,3> o 0 o (128,64):(64,1)");
    let tv = TvLayout::new(fragment.clone(), (16, 8)).expect("fits");

    let mut group = c.benchmark_group("algebra");
    group.bench_function("compose tile with copy", |b| {
        b.iter(|| black_box(&tile).compose(black_box(&copy_tv)));
    });
    group.bench_function("compose 16x8 with fragment", |b| {
        let piece: Layout = parse("(16,8):(64,1)");
        b.iter(|| black_box(&piece).compose(black_box(&fragment)));
    });
    group.bench_function("zipped_divide matrix", |b| {
        b.iter(|| black_box(&matrix).zipped_divide(black_box(&tiler)));
    });
    group.bench_function("complement", |b| b.iter(|| black_box(&nested).complement_in(4096)));
    group.bench_function("left_inverse", |b| b.iter(|| black_box(&nested).left_inverse()));
    group.bench_function("right_inverse", |b| b.iter(|| black_box(&nested).right_inverse()));
    group.bench_function("coalesce", |b| b.iter(|| black_box(&nested).coalesce()));
    group.bench_function("raked_product", |b| {
        let (threads, values): (Layout, Layout) = (parse("(16,8):(8,1)"), parse("(1,8):(8,1)"));
        b.iter(|| black_box(&threads).raked_product(black_box(&values)));
    });
    group.finish();

    let mut group = c.benchmark_group("eval");
    let coord: Coord = parse("((1,3,5),(1,(2,1)))");
    group.bench_function("by index", |b| b.iter(|| black_box(&nested).at(black_box(777))));
    group.bench_function("by nested coordinate", |b| b.iter(|| black_box(&nested).eval(black_box(&coord))));
    group.bench_function("swizzled", |b| b.iter(|| black_box(&smem).at(black_box(777))));
    const FLAT: FlatLayout<2> = FlatLayout::row_major([128, 64]).unwrap();
    group.bench_function("flat", |b| b.iter(|| black_box(FLAT).eval(black_box([17, 9]))));
    group.bench_function("owner of an element", |b| b.iter(|| tv.owner(black_box(&(9, 3).into()))));
    group.finish();

    let mut group = c.benchmark_group("text");
    group.bench_function("parse", |b| {
        b.iter(|| black_box("((2,4,8),(2,(4,2))):((1,16,128),(2,(4,64)))").parse::<Layout>());
    });
    group.bench_function("print", |b| b.iter(|| black_box(&nested).to_string()));
    group.finish();

    let mut group = c.benchmark_group("analysis");
    let copy = TiledCopy::new(&parse("(16,8):(8,1)"), &parse("(1,8):(8,1)"), 8).expect("fits");
    let tile: Composed = parse("S<3,3,3> o 0 o (16,64):(64,1)");
    group.bench_function("bank conflicts of a copy", |b| b.iter(|| copy.bank_conflicts(black_box(&tile), 2)));
    group.finish();
}

criterion_group!(benches, algebra);
criterion_main!(benches);
