//! The generator of random kernels: what it makes is valid, runs, and covers the tile level.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;

use tilewright_hardware::Arch;
use tilewright_ir::{Group, Module, Op, Opcode, parse, table, verify};
use tilewright_passes::{Options, Pass, Pipeline};
use tilewright_tile::fuzz::{Case, Given};
use tilewright_tile::interp::{Argument, Program};

#[test]
fn cases_are_valid_and_run() {
    let mut used: HashSet<Opcode> = HashSet::new();
    for seed in 0..600 {
        let case = Case::new(seed, 3 + u32::try_from(seed % 16).unwrap());
        let module = Module::from(case.func.clone());
        assert_eq!(verify(&module), [], "seed {seed}\n{module}");
        let again =
            parse(&module.to_string()).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{module}"));
        assert_eq!(again, module, "seed {seed}");
        case.interpret().unwrap_or_else(|error| panic!("seed {seed}: {error}\n{module}"));
        used.extend(case.func.walk().into_iter().map(|op| case.func.op(op).code));
    }
    for row in table::TABLE.iter().filter(|row| row.group == Group::Program) {
        assert!(used.contains(&row.code), "no case has `{}`", row.mnemonic);
    }
    for code in [Opcode::For, Opcode::While, Opcode::If, Opcode::Load, Opcode::Fence] {
        assert!(used.contains(&code), "no case has {code:?}");
    }
}

/// What the compiler does to some kernels only, by its remarks.
#[test]
fn cases_reach_what_is_done_to_few() {
    for what in ["rounds ahead, into", "load this ahead"] {
        let reaches = |seed: u64| {
            let case = Case::new(seed, 24);
            let lowered = tilewright_tile::lower(&case.func, Arch::SM_90A).unwrap();
            lowered.remarks.iter().any(|remark| remark.message.contains(what))
        };
        assert!((0..400).any(reaches), "no case has loads with `{what}`");
    }
}

/// Products of many matrices, by tensor cores and without.
#[test]
fn cases_multiply_many_matrices() {
    let multiplies = |tensor_cores: bool| {
        move |seed: u64| {
            let case = Case::new(seed, 24);
            let is_product = |op: &Op| case.func.op(*op).code == Opcode::Dot;
            let rank = |op: Op| case.func.ty(case.func.op(op).results[0]).shape().unwrap().rank();
            let ranks: Vec<usize> = case.func.walk().into_iter().filter(is_product).map(rank).collect();
            let lowered = tilewright_tile::lower(&case.func, Arch::SM_90A).unwrap().func;
            let uses = |op: Op| matches!(lowered.op(op).code, Opcode::Mma | Opcode::Wgmma);
            let has_some = lowered.walk().into_iter().any(uses);
            !ranks.is_empty() && ranks.iter().all(|&rank| rank == 3) && has_some == tensor_cores
        }
    };
    assert!((0..400).any(multiplies(true)) && (0..400).any(multiplies(false)));
}

#[test]
fn a_seed_is_a_kernel() {
    for seed in [1, 2, 1 << 40] {
        let (a, b) = (Case::new(seed, 20), Case::new(seed, 20));
        assert_eq!((a.func, a.arguments, a.grid), (b.func, b.arguments, b.grid));
    }
}

#[test]
fn a_smaller_budget_makes_a_smaller_kernel() {
    let case = Case::new(11, 40);
    let has_map = |case: &Case| case.func.walk().into_iter().any(|op| case.func.op(op).code == Opcode::Map);
    assert!(has_map(&case));
    let whole = case.func.walk().len();
    let small = case.smallest(has_map);
    assert!(has_map(&small) && small.func.walk().len() < whole);
    let unchanged = Case::new(11, 5).smallest(|_| false);
    assert_eq!(unchanged.budget, 5);
}

/// Programs side by side store what they store one after the other, also if they read it again.
#[test]
fn programs_do_not_disturb_each_other() {
    let mut several = 0;
    for seed in 0..150 {
        let case = Case::new(seed, 8);
        several += u32::from(case.grid != [1, 1, 1]);
        let mut buffers: Vec<Vec<u8>> = case.buffers().map(|(_, bytes, _)| bytes.to_vec()).collect();
        let mut memory = buffers.iter_mut();
        let given = case.arguments.iter().map(|given| match given {
            Given::Scalar(_, value) => Argument::Scalar(*value),
            Given::Buffer { .. } => Argument::Memory(memory.next().unwrap()),
        });
        let mut arguments: Vec<Argument<'_>> = given.collect();
        Program::new(&case.func).unwrap().parallel(true).run(case.grid, &mut arguments).unwrap();
        drop(arguments);
        assert_eq!(case.difference(&case.interpret().unwrap(), &buffers), None, "seed {seed}");
    }
    assert!(several > 50, "{several} kernels with several programs");
}

/// Every pass leaves kernels valid and their results what they were, also at this level.
#[test]
fn passes_keep_what_kernels_do() {
    let mut pipelines: Vec<(&str, Pipeline)> =
        Pass::ALL.iter().map(|&pass| (pass.name(), Pipeline::of(&[pass]))).collect();
    pipelines.push(("standard", Pipeline::standard()));
    let mut changed = HashSet::new();
    for seed in 0..60 {
        let case = Case::new(seed, 3 + u32::try_from(seed % 16).unwrap());
        let expected = case.interpret().unwrap();
        for (name, pipeline) in &pipelines {
            let mut module = Module::from(case.func.clone());
            let pipeline = pipeline.clone().with(Options { verify: true, dump: false });
            let report =
                pipeline.run(&mut module).unwrap_or_else(|error| panic!("seed {seed}, {name}: {error}"));
            if !report.changed {
                continue;
            }
            changed.insert(*name);
            let after = Case { func: module.funcs.remove(0), ..case.clone() };
            let found = after.interpret().unwrap_or_else(|error| panic!("seed {seed}, {name}: {error}"));
            assert_eq!(case.difference(&expected, &found), None, "seed {seed}, {name}\n{}", after.func);
        }
    }
    for name in ["fold", "cse", "dce", "licm", "standard"] {
        assert!(changed.contains(name), "`{name}` did nothing");
    }
}
