//! Matrix products whose factors are loaded ahead, in the simulator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

mod common;

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

struct Case {
    arch: Arch,
    extents: (usize, usize, usize),
    tile: (u32, u32, u32),
    turned: bool,
    decays: bool,
    /// Whether the result is wide enough to leave through shared memory.
    leaves: bool,
}

fn check(case: &Case) {
    let ((m, n, k), (tm, tn, tk)) = (case.extents, case.tile);
    let kernel =
        if case.decays { decay::stage(tm, tn, tk) } else { matmul::stage(tm, tn, tk, case.turned) }.unwrap();
    let mut facts = common::facts(&["a", "b", "c"]);
    // Whole pieces of what the copy engine stores.
    facts.push(("c_extent1".to_owned(), Fact::MultipleOf(8)));
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
    let at = |l: usize, j: usize| if case.turned { right[j * k + l] } else { right[l * n + j] };
    let mut expected = vec![0.0f32; m * n];
    for i in 0..m {
        for j in 0..n {
            let mut sum = 0.0;
            for step in (0..k).step_by(tk as usize) {
                let part: f32 = (step..(step + tk as usize).min(k)).map(|l| left[i * k + l] * at(l, j)).sum();
                sum = if case.decays { sum * 0.5 + part } else { sum + part };
            }
            expected[i * n + j] = sum;
        }
    }

    for (seed, pipeline) in [(1, Pipeline::standard()), (2, Pipeline::standard()), (3, Pipeline::of(&[]))] {
        let mut module = Module::from(lowered.func.clone());
        pipeline.run(&mut module).unwrap();
        let code = tilewright_codegen::compile(&module.funcs[0], &Codegen::new(case.arch)).unwrap();
        let ptx = tilewright_sim::Module::parse(&code.text).unwrap();
        let mut sim = Simulator::new(Options { seed, chip: Some(case.arch), ..Options::default() });
        let narrow = |data: &[f32]| data.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>();
        let buffers = [sim.upload(&narrow(&left)), sim.upload(&narrow(&right)), sim.alloc(4 * m * n)];
        let shapes = [[m, k], if case.turned { [n, k] } else { [k, n] }, [m, n]];
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
        let turns = [[1, all, all.div_ceil(2)][seed as usize - 1], 1, 1];
        let grid = if by_engine { turns } else { programs };
        let threads = module.funcs[0].launch.total_threads().unwrap();
        let mut launch = Launch::new(1, threads).shared(code.shared.dynamic);
        launch.grid = grid;
        let report = sim.launch(&ptx, &code.entry, &launch, &args).unwrap();
        assert!(report.findings.is_empty(), "{:#?}\n{}", report.findings, code.text);
        assert_eq!(sim.download::<f32>(buffers[2]).unwrap(), expected, "seed {seed}");
    }
}

fn run_ahead(arch: Arch) {
    let case = |extents, tile, turned, decays| {
        check(&Case { arch, extents, tile, turned, decays, leaves: true });
    };
    for turned in [false, true] {
        case((128, 64, 320), (128, 64, 64), turned, false);
        case((200, 72, 136), (64, 64, 64), turned, false);
    }
    case((128, 128, 192), (128, 128, 32), false, false);
    case((256, 64, 128), (256, 64, 64), true, false);
    case((128, 64, 256), (128, 64, 64), false, true);
}

#[test]
fn the_copy_engine_runs_ahead() {
    run_ahead(Arch::SM_90A);
    // Columns that are no power of two, and a tile of them that is mostly outside.
    let (extents, tile) = ((128, 200, 192), (128, 192, 64));
    check(&Case { arch: Arch::SM_90A, extents, tile, turned: false, decays: false, leaves: true });
}

#[test]
fn copies_of_threads_run_ahead() {
    run_ahead(Arch::SM_80);
    // Lines of 2, 4, 12 and 16 units, and a tile that threads do not divide evenly.
    for (n, k) in [(16, 16), (32, 32), (96, 96), (128, 16), (24, 48)] {
        for turned in [false, true] {
            let (extents, tile) = ((40, n as usize + 8, 4 * k as usize), (32, n, k));
            check(&Case { arch: Arch::SM_86, extents, tile, turned, decays: false, leaves: false });
        }
    }
}
