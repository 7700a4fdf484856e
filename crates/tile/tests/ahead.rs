//! Matrix products whose factors are loaded ahead, in the simulator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

use half::bf16;
use tilewright_codegen::Options as Codegen;
use tilewright_hardware::Arch;
use tilewright_ir::{Module, Opcode, verify};
use tilewright_lang::tile::prelude::*;
use tilewright_passes::Pipeline;
use tilewright_ptx::Type;
use tilewright_sim::{Arg, Launch, Options, Simulator, TensorMap};
use tilewright_tile::{Fact, Number, lower, specialise};

/// c = a * b; with `turned`, b is given by columns.
#[kernel]
fn matmul(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, m: u32, n: u32, k: u32, turned: bool) {
    let (i, j) = (program_id(0), program_id(1));
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        let left = a.tile([m, k]).block((i, step)).load();
        let right = if turned {
            b.tile([n, k]).block((j, step)).load().transpose()
        } else {
            b.tile([k, n]).block((step, j)).load()
        };
        acc = dot(left, right, acc);
    }
    c.tile([m, n]).block((i, j)).store(acc);
}

/// The same with sums that are scaled in every round, so that they cannot stay in the accumulator.
#[kernel]
fn decay(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, m: u32, n: u32, k: u32) {
    let (i, j) = (program_id(0), program_id(1));
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        let left = a.tile([m, k]).block((i, step)).load();
        let right = b.tile([k, n]).block((step, j)).load();
        acc = dot(left, right, acc * 0.5f32);
    }
    c.tile([m, n]).block((i, j)).store(acc);
}

/// The same in groups of two rows of tiles: neighbours share a factor but at the edges of a group.
#[kernel]
fn grouped(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, m: u32, n: u32, k: u32) {
    let own = c.partition_grouped([m, n], 2);
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        let left = a.tile([m, k]).at((own.start(0), step * k)).load();
        let right = b.tile([k, n]).at((step * k, own.start(1))).load();
        acc = dot(left, right, acc);
    }
    own.store(acc);
}

/// The same along a diagonal, one column of tiles further in each row: neighbours have nothing in common.
#[kernel]
fn diagonal(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, m: u32, n: u32, k: u32) {
    let (i, j) = (program_id(0), (program_id(1) + program_id(0)) % num_programs(1));
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        let left = a.tile([m, k]).block((i, step)).load();
        let right = b.tile([k, n]).block((step, j)).load();
        acc = dot(left, right, acc);
    }
    c.tile([m, n]).block((i, j)).store(acc);
}

/// How programs are numbered and what they compute.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    Turned,
    Decays,
    Grouped,
    Diagonal,
}

struct Case {
    arch: Arch,
    extents: (usize, usize, usize),
    tile: (u32, u32, u32),
    way: Way,
    /// Whether the result is wide enough to leave through shared memory.
    leaves: bool,
    /// If neighbours may share factors: how many rows of the left and columns of the right one all programs load.
    loaded: Option<[usize; 2]>,
}

fn check(case: &Case) {
    let ((m, n, k), (tm, tn, tk)) = (case.extents, case.tile);
    let (turned, decays) = (case.way == Way::Turned, case.way == Way::Decays);
    let kernel = match case.way {
        Way::Plain | Way::Turned => matmul::stage(tm, tn, tk, turned),
        Way::Decays => decay::stage(tm, tn, tk),
        Way::Grouped => grouped::stage(tm, tn, tk),
        Way::Diagonal => diagonal::stage(tm, tn, tk),
    };
    let kernel = kernel.unwrap();
    let facts: Vec<(String, Fact)> = ["a", "b", "c"]
        .iter()
        .flat_map(|view| {
            [
                ((*view).to_owned(), Fact::MultipleOf(16)),
                (format!("{view}_stride1"), Fact::Is(1)),
                (format!("{view}_stride0"), Fact::MultipleOf(8)),
            ]
        })
        .collect();
    let facts: Vec<(&str, Fact)> = facts.iter().map(|(name, fact)| (name.as_str(), *fact)).collect();
    let lowered = lower(&specialise(kernel.func(), &facts), case.arch).unwrap();
    let by_engine = case.arch == Arch::SM_90A;
    let pointers: Vec<&str> = lowered.maps.iter().map(|map| map.pointer.as_str()).collect();
    let copied: &[&str] = match (by_engine, case.leaves) {
        (true, true) => &["a", "b", "c"],
        (true, false) => &["a", "b"],
        (false, _) => &[],
    };
    assert_eq!(pointers, copied, "copied by the engine");
    assert_eq!(lowered.resident.is_some(), by_engine, "programs take turns");
    let cluster = lowered.func.launch.cluster.map_or(1, |[blocks, ..]| blocks);
    assert_eq!(cluster, if case.loaded.is_some() { 2 } else { 1 }, "blocks come in pairs");
    let ops: Vec<Opcode> = lowered.func.walk().iter().map(|&op| lowered.func.op(op).code).collect();
    assert_eq!(ops.contains(&Opcode::CpAsync), !by_engine, "both factors are loaded ahead");
    assert!(
        !ops.contains(&Opcode::Load) && !ops.contains(&Opcode::LoadIf),
        "no factor goes through registers"
    );
    let problems = verify(&Module::from(lowered.func.clone()));
    assert!(problems.is_empty(), "{problems:?}\n{}", lowered.func);

    let left: Vec<f32> = (0..m * k).map(|i| ((i * 7) % 5) as f32 - 2.0).collect();
    let right: Vec<f32> = (0..k * n).map(|i| ((i * 11) % 7) as f32 - 3.0).collect();
    let at = |l: usize, j: usize| if turned { right[j * k + l] } else { right[l * n + j] };
    let mut expected = vec![0.0f32; m * n];
    for i in 0..m {
        for j in 0..n {
            let mut sum = 0.0;
            for step in (0..k).step_by(tk as usize) {
                let part: f32 = (step..(step + tk as usize).min(k)).map(|l| left[i * k + l] * at(l, j)).sum();
                sum = if decays { sum * 0.5 + part } else { sum + part };
            }
            expected[i * n + j] = sum;
        }
    }

    for (seed, pipeline) in [(1, Pipeline::standard()), (2, Pipeline::standard()), (3, Pipeline::of(&[]))] {
        let mut module = Module::from(lowered.func.clone());
        pipeline.run(&mut module).unwrap();
        let code = tilewright_codegen::compile(&module.funcs[0], &Codegen::new(case.arch)).unwrap();
        let ptx = tilewright_sim::Module::parse(&code.text).unwrap();
        let mut sim = Simulator::new(Options {
            seed,
            count: case.loaded.is_some(),
            chip: Some(case.arch),
            ..Options::default()
        });
        let narrow = |data: &[f32]| data.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>();
        let buffers = [sim.upload(&narrow(&left)), sim.upload(&narrow(&right)), sim.alloc(4 * m * n)];
        let shapes = [[m, k], if turned { [n, k] } else { [k, n] }, [m, n]];
        let mut args = Vec::new();
        for (buffer, [rows, columns]) in buffers.iter().zip(shapes) {
            args.push(Arg::Buffer(*buffer));
            args.extend([Arg::U32(rows as u32), Arg::U32(columns as u32)]);
            args.extend([Arg::I64(columns as i64), Arg::I64(1)]);
        }
        for map in &lowered.maps {
            let view = ["a", "b", "c"].iter().position(|name| *name == map.pointer).unwrap();
            let named = |number: &Number| match number {
                Number::Constant(value) => value.cast_unsigned(),
                Number::All => panic!("no matrix is one of many"),
                Number::Parameter(name) => {
                    let [rows, columns] = shapes[view];
                    let last = name.chars().last().unwrap();
                    (if name.contains("extent") && last == '0' { rows } else { columns }) as u64
                }
            };
            let dims: Vec<u64> = map.extents.iter().map(named).collect();
            let (ty, bytes) = if map.pointer == "c" { (Type::F32, 4) } else { (Type::Bf16, 2) };
            let strides: Vec<u64> = map.strides[1..].iter().map(|s| bytes * named(s)).collect();
            let (address, spec) = (buffers[view].address(), &map.spec);
            let made = TensorMap::tiled(ty, address, &dims, &strides, spec.box_dims(), spec.swizzle());
            args.push(Arg::TensorMap(made.unwrap()));
        }
        let programs = [(m as u32).div_ceil(tm), (n as u32).div_ceil(tn), 1];
        args.extend(programs.map(Arg::U32).into_iter().filter(|_| by_engine));
        // One block for all, or as many as there are programs, or some that have different numbers of turns.
        let all: u32 = programs.iter().product();
        let turns = [1, all, all.div_ceil(2)][seed as usize - 1];
        let turns = [turns.next_multiple_of(cluster), 1, 1];
        let grid = if by_engine { turns } else { programs };
        let threads = module.funcs[0].launch.total_threads().unwrap();
        let mut launch = Launch::new(1, threads).shared(code.shared.dynamic);
        launch.grid = grid;
        let report = sim.launch(&ptx, &code.entry, &launch, &args).unwrap();
        assert!(report.findings.is_empty(), "{:#?}\n{}", report.findings, code.text);
        assert_eq!(sim.download::<f32>(buffers[2]).unwrap(), expected, "seed {seed}");
        if let Some([rows, columns]) = case.loaded {
            let bytes = 2 * k * (rows + columns);
            assert_eq!(report.counts.global_reads.bytes, bytes as u64, "seed {seed}");
        }
    }
}

fn run_ahead(arch: Arch) {
    let case = |extents, tile, way| {
        check(&Case { arch, extents, tile, way, leaves: true, loaded: None });
    };
    for way in [Way::Plain, Way::Turned] {
        case((128, 64, 320), (128, 64, 64), way);
        case((200, 72, 136), (64, 64, 64), way);
    }
    case((128, 128, 192), (128, 128, 32), Way::Plain);
    case((256, 64, 128), (256, 64, 64), Way::Turned);
    case((128, 64, 256), (128, 64, 64), Way::Decays);
}

#[test]
fn the_copy_engine_runs_ahead() {
    run_ahead(Arch::SM_90A);
}

#[test]
fn copies_of_threads_run_ahead() {
    run_ahead(Arch::SM_80);
    // Lines of 2, 4, 12 and 16 units, and a tile that threads do not divide evenly.
    for (n, k) in [(16, 16), (32, 32), (96, 96), (128, 16), (24, 48)] {
        for way in [Way::Plain, Way::Turned] {
            let (extents, tile) = ((40, n as usize + 8, 4 * k as usize), (32, n, k));
            check(&Case { arch: Arch::SM_86, extents, tile, way, leaves: false, loaded: None });
        }
    }
}

/// Large products of neighbours load what both need once: programs `2i` and `2i + 1`, the rows of tiles first.
#[test]
fn neighbours_share_factors() {
    let case = |(rows, columns): (usize, usize), k, way, [left, right]: [usize; 2]| {
        let loaded = [128 * left, 256 * right];
        let (tile, extents) = ((128, 256, 64), (128 * rows, 256 * columns, k));
        check(&Case { arch: Arch::SM_90A, extents, tile, way, leaves: true, loaded: Some(loaded) });
    };
    // One program has no neighbour.
    case((1, 1), 384, Way::Plain, [1, 1]);
    // Two in a column have the right factor in common, two in a row the left one; the last of an odd number has it for itself.
    case((2, 1), 384, Way::Plain, [2, 1]);
    case((2, 1), 320, Way::Turned, [2, 1]);
    case((1, 2), 128, Way::Plain, [1, 2]);
    case((3, 1), 192, Way::Turned, [3, 2]);
    case((1, 3), 192, Way::Turned, [2, 3]);
    // The second pair is the last of one column and the first of the next: of rows 2 and 0.
    case((3, 2), 128, Way::Plain, [6, 4]);
    // Groups of two rows, and what is left is a row: pairs share the right factor, and then, but for the last, the left one.
    case((3, 3), 128, Way::Grouped, [8, 6]);
    // No two neighbours have anything in common.
    case((2, 2), 128, Way::Diagonal, [4, 4]);
}

/// Tiles that lie over the edge of a tensor are shared like others.
#[test]
fn neighbours_share_tiles_at_edges() {
    for (way, loaded) in
        [(Way::Plain, [2 * 312, 528]), (Way::Turned, [2 * 312, 528]), (Way::Grouped, [512 + 56, 528])]
    {
        let (extents, tile) = ((312, 264, 136), (128, 256, 64));
        check(&Case { arch: Arch::SM_90A, extents, tile, way, leaves: true, loaded: Some(loaded) });
    }
}
