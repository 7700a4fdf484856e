//! Kernels that exercise every part of the language, checked by the code that they stage.
//!
//! Each module holds kernels of one topic. Small ones are compared with their exact text, larger ones by the lines of the ops
//! that matter. All of them together must use every op of the IR, so that an op without a function in the language is noticed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod carried;
mod control;
mod copies;
mod functions;
mod launch;
mod matrices;
mod memory;
mod nests;
mod synchronisation;
mod tiles;
mod values;
mod warps;

use std::collections::HashSet;

use tilewright_compiler::Compiler;
use tilewright_hardware::Arch;
use tilewright_ir::table::TABLE;
use tilewright_ir::{Module, Opcode, PrintOptions, parse, verify};
use tilewright_lang::Kernel;

/// Ops that no kernel stages, and why.
const NOT_STAGED: &[(Opcode, &str)] = &[
    (Opcode::Poison, "stands for a value after a mistake, and a kernel with a mistake is not staged"),
    (Opcode::Call, "device functions are inlined by staging; calls come from IR text"),
    (Opcode::Return, "kernels return nothing; functions that do come from IR text"),
];

/// Compares the code of a kernel with its text; indentation does not matter.
#[track_caller]
fn expect(kernel: &Kernel, text: &str) {
    let lines = |text: &str| text.trim().lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    assert!(lines(&kernel.ir()) == lines(text), "the kernel is\n{}\nexpected\n{text}", kernel.ir());
}

/// How often a kernel uses an op.
fn count(kernel: &Kernel, code: Opcode) -> usize {
    let func = kernel.func();
    func.walk().into_iter().filter(|&op| func.op(op).code == code).count()
}

/// The lines of a kernel with this op, without the names of values: `mnemonic attributes : types`.
fn lines(kernel: &Kernel, mnemonic: &str) -> Vec<String> {
    let is_value = |word: &&str| word.starts_with('%');
    let text = kernel.ir();
    let words = text.lines().map(|line| line.split_whitespace().skip_while(|w| is_value(w) || *w == "="));
    let found = words.filter(|words| words.clone().next() == Some(mnemonic));
    found.map(|words| words.filter(|word| !is_value(word)).collect::<Vec<_>>().join(" ")).collect()
}

fn all_kernels() -> Vec<Kernel> {
    [
        carried::kernels,
        control::kernels,
        copies::kernels,
        functions::kernels,
        launch::kernels,
        matrices::kernels,
        memory::kernels,
        synchronisation::kernels,
        tiles::kernels,
        values::kernels,
        warps::kernels,
    ]
    .iter()
    .flat_map(|kernels| kernels())
    .collect()
}

#[test]
fn every_op_of_the_table_is_staged_by_some_kernel() {
    let kernels = all_kernels();
    let functions = kernels.iter().map(Kernel::func);
    let used: HashSet<Opcode> =
        functions.flat_map(|func| func.walk().into_iter().map(|op| func.op(op).code)).collect();
    let is_excused = |code: Opcode| NOT_STAGED.iter().any(|(excused, _)| *excused == code);
    let missing: Vec<&str> = TABLE
        .iter()
        .filter(|row| !used.contains(&row.code) && !is_excused(row.code))
        .map(|row| row.mnemonic)
        .collect();
    assert!(missing.is_empty(), "no kernel here stages {missing:?}; give the op a function, or say why not");
    for (code, reason) in NOT_STAGED {
        assert!(
            !used.contains(code),
            "{} is staged after all: not true that it {reason}",
            code.info().mnemonic
        );
    }
}

#[test]
fn staged_kernels_survive_their_text() {
    for kernel in all_kernels() {
        let module = Module::from(kernel.func().clone());
        for locations in [false, true] {
            let text = module.to_text(PrintOptions { locations });
            let read = parse(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", kernel.name()));
            assert!(verify(&read).is_empty(), "{}", kernel.name());
            assert_eq!(read.to_text(PrintOptions { locations }), text, "{}", kernel.name());
        }
    }
}

#[test]
fn every_op_has_its_place_in_the_kernel() {
    let sources = std::path::Path::new(file!()).parent().unwrap();
    for kernel in all_kernels() {
        let func = kernel.func();
        for op in func.walk() {
            let at = func.locations.get(func.op(op).loc).unwrap();
            let name = func.op(op).info().mnemonic;
            assert!(
                at.file.starts_with(sources.to_str().unwrap()),
                "{} of {} is at {at}",
                name,
                kernel.name()
            );
        }
    }
}

#[test]
fn staging_twice_gives_the_same_code() {
    let text = |kernels: Vec<Kernel>| kernels.iter().map(Kernel::ir).collect::<Vec<_>>();
    assert_eq!(text(all_kernels()), text(all_kernels()));
}

/// With all passes, the verifier and the legality table on: for Hopper, and what only Blackwell has for Blackwell.
#[test]
fn every_kernel_becomes_ptx() {
    for kernel in all_kernels() {
        let build = |arch| Compiler::new(arch).compile(kernel.func());
        let code = build(Arch::SM_90A).or_else(|_| build(Arch::SM_100A)).unwrap_or_else(|_| {
            panic!("{}: {}\n{}", kernel.name(), build(Arch::SM_90A).unwrap_err(), kernel.ir())
        });
        assert!(tilewright_ir::verify(&code.func.clone().into()).is_empty(), "{}", kernel.name());
    }
}
