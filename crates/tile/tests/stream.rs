//! Long rows that stream through shared memory while programs take turns, in the simulator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

use half::bf16;
use tilewright_codegen::Options as Codegen;
use tilewright_hardware::Arch;
use tilewright_ir::{Func, Module, Opcode, verify};
use tilewright_lang::Kernel;
use tilewright_lang::tile::prelude::*;
use tilewright_passes::Pipeline;
use tilewright_sim::{Arg, Launch, Options, Simulator};
use tilewright_tile::{Fact, Lowered, lower, specialise};

/// Two exchanges between blocks, and a row that is asked for ahead.
#[kernel]
fn softmax(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    let row = program_id(0);
    x.tile([1, columns]).at((row + 2, 0)).prefetch();
    let row = (row, 0);
    let x = x.tile([1, columns]).at(row).load_or(f32::NEG_INFINITY);
    let e = (x - x.max(1)).map(|v: Val<f32>| v.exp2_fast());
    out.tile([1, columns]).at(row).store(e * e.sum(1).recip());
}

/// Weights that all programs share.
#[kernel]
fn weighted(x: View<bf16, 2>, w: View<bf16, 2>, out: View<bf16, 2>, columns: u32) {
    let row = (program_id(0), 0);
    let x = x.tile([1, columns]).at(row).load().cast::<f32>();
    let most = x.abs().max(1);
    let w = w.tile([1, columns]).at((0, 0)).load().cast::<f32>();
    out.tile([1, columns]).at(row).store((x * most + w).cast::<bf16>());
}

/// Two rows for each program, which is a piece of a longer one.
#[kernel]
fn pieces(x: View<f32, 2>, y: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    let at = (program_id(1), program_id(0));
    let x = x.tile([1, columns]).block(at).load();
    let total = x.sum(1);
    let y = y.tile([1, columns]).block(at).load();
    out.tile([1, columns]).block(at).store(x * y + total);
}

/// A row that begins before the tensor does, and an exchange that only some programs make.
#[kernel]
fn shifted(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    let i = program_id(0);
    let x = x.tile([1, columns]).at((i, -1024)).load_or(1.0f32);
    let mut total = Tile::<f32>::zeros([1, 1]);
    if i % 3 != 1 {
        total = x.sum(1);
    }
    out.tile([1, columns]).at((i, 0)).store(x + total);
}

/// A view as arguments: what is known of it, and what is passed.
struct Given {
    name: &'static str,
    rows: usize,
    columns: usize,
}

fn lowered(kernel: &Kernel, views: &[Given], bytes: u32, cluster: u32, threads: u32, exact: bool) -> Lowered {
    let facts: Vec<(String, Fact)> = views
        .iter()
        .flat_map(|view| {
            let name = view.name;
            let wide = Fact::MultipleOf(16 / bytes);
            [
                (name.to_owned(), Fact::MultipleOf(16)),
                (format!("{name}_stride1"), Fact::Is(1)),
                (format!("{name}_stride0"), wide),
                (format!("{name}_extent1"), if exact { Fact::Is(view.columns as i64) } else { wide }),
            ]
        })
        .collect();
    let facts: Vec<(&str, Fact)> = facts.iter().map(|(name, fact)| (name.as_str(), *fact)).collect();
    let mut func = specialise(kernel.func(), &facts);
    func.launch.cluster = Some([cluster, 1, 1]);
    func.launch.threads = Some([threads, 1, 1]);
    // Few, so that each has room for its rows.
    func.launch.min_blocks = Some(4);
    let lowered = lower(&func, Arch::SM_90A).unwrap();
    let problems = verify(&Module::from(lowered.func.clone()));
    assert!(problems.is_empty(), "{problems:?}\n{}", lowered.func);
    lowered
}

fn count(func: &Func, code: Opcode) -> usize {
    func.walk().into_iter().filter(|&op| func.op(op).code == code).count()
}

/// Runs all programs on a number of clusters, as often as there are ways to compile and to schedule; all come to the same. In place, the last
/// view is the first.
fn run<T: tilewright_sim::Sample + PartialEq + std::fmt::Debug>(
    lowered: &Lowered,
    views: &[Given],
    inputs: &[Vec<T>],
    (programs, clusters): ([u32; 3], u32),
    in_place: bool,
) -> Vec<T> {
    assert!(lowered.resident.is_some(), "programs take turns");
    let mut all: Vec<Vec<T>> = Vec::new();
    for (seed, pipeline) in [(1, Pipeline::standard()), (2, Pipeline::standard()), (3, Pipeline::of(&[]))] {
        let mut module = Module::from(lowered.func.clone());
        pipeline.run(&mut module).unwrap();
        let code = tilewright_codegen::compile(&module.funcs[0], &Codegen::new(Arch::SM_90A)).unwrap();
        let ptx = tilewright_sim::Module::parse(&code.text).unwrap();
        let mut sim = Simulator::new(Options { seed, chip: Some(Arch::SM_90A), ..Options::default() });
        let mut args = Vec::new();
        let mut out = None;
        for (i, view) in views.iter().enumerate() {
            let size = view.rows * view.columns * size_of::<T>();
            let buffer = match (inputs.get(i), out) {
                (Some(data), _) => sim.upload(data),
                (None, Some(first)) if in_place => first,
                (None, _) => sim.alloc(size),
            };
            args.push(Arg::Buffer(buffer));
            args.extend([Arg::U32(view.rows as u32), Arg::U32(view.columns as u32)]);
            args.extend([Arg::I64(view.columns as i64), Arg::I64(1)]);
            out = Some(buffer);
        }
        args.extend(programs.map(Arg::U32));
        let launch = module.funcs[0].launch;
        let cluster = launch.cluster.unwrap()[0];
        let shape =
            Launch::new(clusters * cluster, launch.total_threads().unwrap()).shared(code.shared.dynamic);
        let report = sim.launch(&ptx, &code.entry, &shape, &args).unwrap();
        assert!(report.findings.is_empty(), "{:#?}\n{}", report.findings, code.text);
        all.push(sim.download::<T>(out.unwrap()).unwrap());
    }
    assert_eq!(all[0], all[1], "the order of threads changes results");
    assert_eq!(all[0], all[2], "passes change results");
    all.swap_remove(0)
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 31) % 97) as f32 / 8.0 - 6.0).collect()
}

#[test]
fn rows_are_normalised() {
    // Programs and clusters; the tile and the row, which may end anywhere; blocks of a program and their threads.
    for (rows, clusters, tile, columns, (cluster, threads)) in [
        (3, 1, 4096, 4096, (2, 64)),
        (5, 2, 4096, 4096, (2, 32)),
        (5, 2, 4096, 3012, (2, 64)),
        (3, 1, 8192, 2004, (4, 64)),
        (4, 4, 8192, 5004, (4, 64)),
        (3, 2, 6144, 6144, (2, 64)),
        (3, 2, 4096, 4096, (2, 96)),
    ] {
        for exact in [false, true] {
            let views = [Given { name: "x", rows, columns }, Given { name: "out", rows, columns }];
            let lowered = lowered(&softmax::stage(tile).unwrap(), &views, 4, cluster, threads, exact);
            assert_eq!(count(&lowered.func, Opcode::BulkLoad), 2, "the first row, and the next");
            assert_eq!(count(&lowered.func, Opcode::BulkPrefetch), 0, "it is on its way already");
            let x = numbers(rows * columns, 1);
            let found =
                run(&lowered, &views, std::slice::from_ref(&x), ([rows as u32, 1, 1], clusters), exact);
            for (line, found) in x.chunks(columns).zip(found.chunks(columns)) {
                let most = line.iter().copied().fold(f32::MIN, f32::max);
                let sum: f64 = line.iter().map(|&v| f64::from(v - most).exp2()).sum();
                for (&v, &found) in line.iter().zip(found) {
                    let expected = f64::from(v - most).exp2() / sum;
                    let near = (f64::from(found) - expected).abs() <= 1e-5 * expected;
                    assert!(near, "{tile} {columns}: {found} {expected}");
                }
            }
        }
    }
}

/// One exchange in a turn: its place is written again in the next. What all programs share does not stream.
#[test]
fn weights_stay() {
    let (rows, columns) = (5, 8192);
    let views = [
        Given { name: "x", rows, columns },
        Given { name: "w", rows: 1, columns },
        Given { name: "out", rows, columns },
    ];
    let lowered = lowered(&weighted::stage(8192).unwrap(), &views, 2, 2, 64, true);
    assert_eq!(count(&lowered.func, Opcode::BulkLoad), 2, "rows of x");
    let narrow = |data: Vec<f32>| data.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
    // Integers up to 2^8, so that nothing is rounded; each row has another maximum.
    let x = (0..rows * columns)
        .map(|i| (i % 5) as f32 + (if i % columns == 17 { i / columns } else { 0 }) as f32);
    let (x, w) = (narrow(x.collect()), narrow((0..columns).map(|i| (i % 3) as f32).collect()));
    let found = run(&lowered, &views, &[x.clone(), w.clone()], ([rows as u32, 1, 1], 2), false);
    for (line, found) in x.chunks(columns).zip(found.chunks(columns)) {
        let most = line.iter().map(|v| v.to_f32()).fold(0.0, f32::max);
        let expected: Vec<f32> = line.iter().zip(&w).map(|(x, w)| x.to_f32() * most + w.to_f32()).collect();
        assert_eq!(found, narrow(expected));
    }
}

/// Two rows at once, of programs that are numbered along two axes, the last of which lie partly outside.
#[test]
fn pieces_of_longer_rows() {
    let (rows, columns, tile) = (2, 4096 * 2 + 1500, 4096);
    let views = ["x", "y", "out"].map(|name| Given { name, rows, columns });
    let lowered = lowered(&pieces::stage(tile).unwrap(), &views, 4, 2, 64, false);
    assert_eq!(count(&lowered.func, Opcode::BulkLoad), 4, "rows of x and of y");
    let integers =
        |seed: usize| (0..rows * columns).map(|i| ((i * 13 + seed) % 7) as f32).collect::<Vec<_>>();
    let (x, y) = (integers(1), integers(2));
    let found = run(&lowered, &views, &[x.clone(), y.clone()], ([3, rows as u32, 1], 2), false);
    for row in 0..rows {
        let line = |data: &[f32]| data[row * columns..(row + 1) * columns].to_vec();
        let (x, y, found) = (line(&x), line(&y), line(&found));
        for start in (0..columns).step_by(tile as usize) {
            let piece = start..(start + tile as usize).min(columns);
            let total: f32 = x[piece.clone()].iter().sum();
            for i in piece {
                assert_eq!(found[i], x[i] * y[i] + total, "row {row}, column {i}");
            }
        }
    }
}

/// What stands before the tensor takes the padding; programs that exchange nothing still leave the memory of others alone.
#[test]
fn rows_may_begin_outside() {
    let (rows, columns, tile) = (7, 4096, 4096);
    let views = ["x", "out"].map(|name| Given { name, rows, columns });
    let lowered = lowered(&shifted::stage(tile).unwrap(), &views, 4, 2, 64, false);
    assert_eq!(count(&lowered.func, Opcode::BulkLoad), 2, "rows of x");
    let x: Vec<f32> = (0..rows * columns).map(|i| ((i * 5) % 11) as f32).collect();
    let found = run(&lowered, &views, std::slice::from_ref(&x), ([rows as u32, 1, 1], 1), false);
    for (row, (line, found)) in x.chunks(columns).zip(found.chunks(columns)).enumerate() {
        let seen: Vec<f32> = (0..columns).map(|i| if i < 1024 { 1.0 } else { line[i - 1024] }).collect();
        let total: f32 = if row % 3 == 1 { 0.0 } else { seen.iter().sum() };
        let expected: Vec<f32> = seen.iter().map(|x| x + total).collect();
        assert_eq!(found, expected, "row {row}");
    }
}
