//! The checker checked: of each kernel, every fence, wait, arrival, commit and barrier is taken out in turn. Each mutant must be found
//! out by the simulator, or stand in the list of those that are harmless, with the reason why.
//!
//! A wrong result without a finding is a hole in the checker, never a harmless mutant. A wait on an mbarrier is taken out by letting
//! it succeed at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Case, Product};
use tilewright_hardware::Arch;
use tilewright_kernels::examples::{self, GemmTile};
use tilewright_kernels::ladder;
use tilewright_ptx::{Instruction, Item, Modifier, Module, Opcode, Operand, Statement, StatementKind};
use tilewright_sim::Options;

const SEEDS: [u64; 3] = [0, 1, 2];

/// A mutant that nobody can tell from the kernel.
struct Harmless {
    kernel: &'static str,
    /// Which occurrence of the text in the kernel, from 0.
    occurrence: usize,
    /// A part of the instruction.
    text: &'static str,
    #[allow(dead_code, reason = "for readers")]
    why: &'static str,
}

/// `fence.mbarrier_init` publishes to the *other* blocks of a cluster.
const ALONE: &str = "the block is alone in its cluster: whoever uses the barriers is ordered behind their initialisation by the \
    barrier of the block that follows";

const HARMLESS: &[Harmless] = &[
    Harmless { kernel: "gemm_hopper", occurrence: 0, text: "fence.mbarrier_init", why: ALONE },
    Harmless { kernel: "ladder_wgmma", occurrence: 0, text: "fence.mbarrier_init", why: ALONE },
    Harmless { kernel: "ladder_persistent", occurrence: 0, text: "fence.mbarrier_init", why: ALONE },
    Harmless { kernel: "hopper_proof_1", occurrence: 0, text: "fence.mbarrier_init", why: ALONE },
];

/// An instruction to take out.
struct Target {
    /// Number of the statement, depth first.
    index: usize,
    text: String,
    occurrence: usize,
}

/// Visits every statement, inside of blocks, too.
fn visit(
    statements: &mut Vec<Statement>,
    number: &mut usize,
    change: &mut dyn FnMut(usize, &mut Statement) -> bool,
) {
    statements.retain_mut(|statement| {
        if let StatementKind::Block(inner) = &mut statement.kind {
            visit(inner, number, change);
            return true;
        }
        *number += 1;
        change(*number, statement)
    });
}

/// Visits the statements of all functions; those for which `change` is false are taken out.
fn for_each(module: &mut Module, mut change: impl FnMut(usize, &mut Statement) -> bool) {
    let mut number = 0;
    for item in &mut module.items {
        if let Item::Function(function) = item
            && let Some(body) = &mut function.body
        {
            visit(body, &mut number, &mut change);
        }
    }
}

/// Whether an instruction orders anything.
fn orders(instruction: &Instruction) -> bool {
    let any = |modifiers: &[Modifier]| modifiers.iter().any(|&modifier| instruction.has(modifier));
    match instruction.opcode {
        Opcode::Fence | Opcode::Membar | Opcode::Bar | Opcode::Barrier => true,
        Opcode::Mbarrier => !any(&[Modifier::Init, Modifier::Inval]),
        Opcode::Cp => any(&[Modifier::CommitGroup, Modifier::WaitGroup, Modifier::WaitAll, Modifier::Arrive]),
        Opcode::Wgmma => any(&[Modifier::Fence, Modifier::CommitGroup, Modifier::WaitGroup]),
        _ => false,
    }
}

fn is_wait(instruction: &Instruction) -> bool {
    instruction.opcode == Opcode::Mbarrier
        && (instruction.has(Modifier::TryWait) || instruction.has(Modifier::TestWait))
}

fn targets(module: &Module) -> Vec<Target> {
    let mut module = module.clone();
    let names = module.names.clone();
    let mut found: Vec<Target> = Vec::new();
    for_each(&mut module, |index, statement| {
        if let StatementKind::Instruction(instruction) = &statement.kind
            && orders(instruction)
        {
            let text = instruction.display(&names).to_string();
            let occurrence = found.iter().filter(|other| other.text == text).count();
            found.push(Target { index, text, occurrence });
        }
        true
    });
    found
}

/// The kernel without one instruction.
fn without(module: &Module, target: &Target) -> String {
    let mut module = module.clone();
    for_each(&mut module, |index, statement| {
        if index != target.index {
            return true;
        }
        match &mut statement.kind {
            StatementKind::Instruction(instruction) if is_wait(instruction) => {
                let done = instruction.operands[0].clone();
                let succeed = Instruction::new(Opcode::Mov, &[Modifier::PRED], [done, Operand::from(1)]);
                *instruction = Instruction { guard: instruction.guard, ..succeed };
                true
            }
            _ => false,
        }
    });
    module.to_string()
}

/// Runs all mutants of a kernel.
fn mutate(case: &Case) {
    let module = tilewright_ptx::parse(&case.text).unwrap();
    let mut longest = 0;
    for seed in SEEDS {
        let outcome = case.run(&case.text, Options::with_seed(seed)).unwrap();
        let found: String = outcome.report.findings.iter().map(|finding| format!("{finding}\n")).collect();
        assert!(
            found.is_empty() && outcome.wrong.is_none(),
            "{}, seed {seed}: {:?}\n{found}",
            case.name,
            outcome.wrong
        );
        longest = longest.max(outcome.report.warp_instructions);
    }
    let mut missed = String::new();
    let mut used = 0;
    for target in targets(&module) {
        let text = without(&module, &target);
        let mut wrong = None;
        let mut found = false;
        for seed in SEEDS {
            let outcome = case.run(&text, Options::with_seed(seed).budget(longest * 4 + 10_000)).unwrap();
            if outcome.report.findings.is_empty() {
                wrong = wrong.or(outcome.wrong);
            } else {
                found = true;
            }
        }
        let harmless = HARMLESS.iter().any(|entry| {
            entry.kernel == case.name
                && target.text.contains(entry.text)
                && entry.occurrence == target.occurrence
        });
        used += usize::from(harmless);
        let name = format!("{}: `{}`, occurrence {}", case.name, target.text, target.occurrence);
        match (wrong, found, harmless) {
            (Some(wrong), ..) => missed += &format!("{name}: WRONG RESULT without a finding: {wrong}\n"),
            (None, false, false) => missed += &format!("{name}: no finding\n"),
            (None, true, true) => missed += &format!("{name}: in the list of the harmless, but found out\n"),
            (None, true, false) | (None, false, true) => {}
        }
    }
    assert!(missed.is_empty(), "{missed}");
    let listed = HARMLESS.iter().filter(|entry| entry.kernel == case.name).count();
    assert_eq!(used, listed, "{}: entries of the list that fit nothing", case.name);
}

#[test]
fn vector_add() {
    mutate(&common::vector_add(&examples::vector_add::stage::<f32>(256).unwrap(), Arch::SM_80));
}

#[test]
fn transpose() {
    mutate(&common::transpose(&examples::transpose::stage().unwrap(), Arch::SM_80));
}

#[test]
fn block_sum() {
    mutate(&common::sum("block_sum", &examples::block_sum::stage(4).unwrap(), Arch::SM_80, 2));
}

#[test]
fn cluster_sum() {
    mutate(&common::sum("cluster_sum", &examples::cluster_sum::stage(2, 4).unwrap(), Arch::SM_90A, 8));
}

#[test]
fn gemm_ampere() {
    let kernel = examples::gemm_ampere::stage(GemmTile { m: 32, n: 32, k: 32, stages: 3 }).unwrap();
    let size = Product { m: 32, n: 32, k: 192 };
    mutate(&common::product_by_pointers("gemm_ampere", &kernel, Arch::SM_80, (32, 32), size));
}

#[test]
fn gemm_hopper() {
    let kernel = examples::gemm_hopper::stage(GemmTile { m: 128, n: 64, k: 64, stages: 2 }).unwrap();
    let size = Product { m: 128, n: 64, k: 320 };
    mutate(&common::product_by_maps("gemm_hopper", &kernel, Arch::SM_90A, (128, 64, 64), size));
}

#[test]
fn ladder_shared() {
    let kernel = ladder::ladder_shared::stage().unwrap();
    let size = Product { m: 32, n: 32, k: 96 };
    mutate(&common::product_by_pointers("ladder_shared", &kernel, Arch::SM_80, (32, 32), size));
}

#[test]
fn ladder_vectors() {
    let kernel = ladder::ladder_vectors::stage().unwrap();
    let size = Product { m: 128, n: 128, k: 64 };
    mutate(&common::product_by_pointers("ladder_vectors", &kernel, Arch::SM_80, (128, 128), size));
}

#[test]
fn ladder_tensor() {
    let kernel = ladder::ladder_tensor::stage(GemmTile { m: 32, n: 32, k: 32, stages: 1 }).unwrap();
    let size = Product { m: 32, n: 32, k: 128 };
    mutate(&common::product_by_pointers("ladder_tensor", &kernel, Arch::SM_80, (32, 32), size));
}

#[test]
fn ladder_wgmma() {
    let kernel = ladder::ladder_wgmma::stage(GemmTile { m: 64, n: 64, k: 64, stages: 2 }).unwrap();
    let size = Product { m: 64, n: 64, k: 320 };
    mutate(&common::product_by_maps("ladder_wgmma", &kernel, Arch::SM_90A, (64, 64, 64), size));
}

/// One block, three tiles: the second and the third reuse the shared memory of a result.
#[test]
fn ladder_persistent() {
    let kernel = ladder::ladder_persistent::stage(GemmTile { m: 128, n: 64, k: 64, stages: 2 }).unwrap();
    let size = Product { m: 128, n: 192, k: 192 };
    mutate(&common::product_by_tiles("ladder_persistent", &kernel, 1, (128, 64, 64), size));
}

/// One cluster of two blocks, two tiles each.
#[test]
fn ladder_cluster() {
    let kernel = ladder::ladder_cluster::stage(GemmTile { m: 128, n: 64, k: 64, stages: 2 }).unwrap();
    let size = Product { m: 256, n: 128, k: 192 };
    mutate(&common::product_by_tiles("ladder_cluster", &kernel, 2, (128, 64, 64), size));
}

/// One block, two tiles: the second reuses the shared memory of the first one's result.
#[test]
fn hopper_proof_1() {
    mutate(&common::hopper_proof("hopper_proof_1", 1, 1, Product { m: 128, n: 128, k: 256 }));
}

/// One cluster of two blocks, two tiles each.
#[test]
fn hopper_proof_2() {
    mutate(&common::hopper_proof("hopper_proof_2", 2, 2, Product { m: 256, n: 128, k: 256 }));
}
