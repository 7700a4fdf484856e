//! Loads that begin before threads wait for each other, and those that must not.
#![allow(clippy::unwrap_used)]

mod common;

use tilewright_hardware::Arch;
use tilewright_ir::{Count, Func, Opcode};
use tilewright_lang::Kernel;
use tilewright_lang::tile::prelude::*;
use tilewright_tile::{Fact, lower, specialise};

fn lowered(kernel: &Kernel, arch: Arch) -> Func {
    let mut facts = common::facts(&["x", "w", "b", "y"]);
    facts.extend(["x", "w", "b", "y"].map(|view| (format!("{view}_extent1"), Fact::MultipleOf(8))));
    let facts: Vec<_> = facts.iter().map(|(name, fact)| (name.as_str(), *fact)).collect();
    lower(&specialise(kernel.func(), &facts), arch).unwrap().func
}

/// The ops of these kinds, in order, one for each row of equals.
fn course(func: &Func, kinds: &[Opcode]) -> Vec<Opcode> {
    let mut all: Vec<Opcode> = func.walk().into_iter().map(|op| func.op(op).code).collect();
    all.retain(|code| kinds.contains(code));
    all.dedup();
    all
}

const COURSE: [Opcode; 4] = [Opcode::CpAsync, Opcode::CpAsyncCommit, Opcode::Barrier, Opcode::CpAsyncWait];

/// Rows over their sums, times weights, plus biases.
#[kernel]
fn norm(x: View<f32, 2>, w: View<f32, 2>, b: View<f32, 2>, y: View<f32, 2>, width: u32) {
    let i = program_id(0);
    let numbers = x.tile([1, width]).block((i, 0)).load();
    let normal = numbers / numbers.sum(1);
    let weighted = normal * w.tile([1, width]).at((0, 0)).load();
    y.tile([1, width]).block((i, 0)).store(weighted + b.tile([1, width]).at((0, 0)).load());
}

#[test]
fn what_is_loaded_after_a_wait_begins_before_it() {
    use Opcode::{Barrier, CpAsync, CpAsyncCommit, CpAsyncWait};
    let kernel = norm::stage(4096).unwrap();
    for arch in [Arch::SM_80, Arch::SM_90A] {
        let func = lowered(&kernel, arch);
        let expected = [CpAsync, CpAsyncCommit, CpAsync, CpAsyncCommit, Barrier, CpAsyncWait];
        assert_eq!(course(&func, &COURSE), expected, "{arch}");
        let waits = func.walk().into_iter().filter(|&op| func.op(op).code == CpAsyncWait);
        // The weights do not wait for the biases.
        assert_eq!(waits.map(|op| func.op(op).get()).collect::<Vec<_>>(), [Some(Count(1)), Some(Count(0))]);
    }
}

#[test]
fn a_warp_has_nobody_to_wait_for() {
    assert_eq!(course(&lowered(&norm::stage(128).unwrap(), Arch::SM_90A), &COURSE), []);
}

/// The same where weights are changed first, of this tensor or of another.
#[kernel]
fn changed(x: View<f32, 2>, w: View<f32, 2>, y: View<f32, 2>, own: bool) {
    let i = program_id(0);
    let numbers = x.tile([1, 4096]).block((i, 0)).load();
    let normal = numbers / numbers.sum(1);
    let changed = if own { w } else { y };
    changed.tile([1, 4096]).at((0, 0)).store(normal);
    y.tile([1, 4096]).block((i, 0)).store(normal * w.tile([1, 4096]).at((0, 0)).load());
}

#[test]
fn what_is_written_before_it_is_read_does_not_begin() {
    assert!(
        course(&lowered(&changed::stage(true).unwrap(), Arch::SM_90A), &COURSE).contains(&Opcode::Barrier)
    );
    assert!(
        !course(&lowered(&changed::stage(true).unwrap(), Arch::SM_90A), &COURSE).contains(&Opcode::CpAsync)
    );
    assert!(
        course(&lowered(&changed::stage(false).unwrap(), Arch::SM_90A), &COURSE).contains(&Opcode::CpAsync)
    );
}

/// Weights that are changed afterwards, each by the thread that has read it, or by another one.
#[kernel]
fn updated(x: View<f32, 2>, w: View<f32, 2>, further: i32) {
    let sum = x.tile([1, 4096]).block((program_id(0), 0)).load().sum(1);
    let weights = w.tile([1, 4096]).at((0, 0)).load();
    w.tile([1, 4096]).at((0, further)).store(weights * sum);
}

#[test]
fn what_is_read_early_is_written_late() {
    use Opcode::{Barrier, CpAsync, CpAsyncCommit, CpAsyncWait};
    let course = |further: i32| course(&lowered(&updated::stage(further).unwrap(), Arch::SM_90A), &COURSE);
    assert_eq!(course(0), [CpAsync, CpAsyncCommit, Barrier, CpAsyncWait]);
    assert_eq!(course(1), [CpAsync, CpAsyncCommit, Barrier, CpAsyncWait, Barrier]);
}

/// Weights whose place follows from what is loaded, or from a scalar that is computed after the wait.
#[kernel]
fn chosen(x: View<f32, 2>, w: View<f32, 2>, y: View<f32, 2>, which: View<u32, 1>, loaded: bool) {
    let i = program_id(0);
    let numbers = x.tile([1, 4096]).block((i, 0)).load();
    let normal = numbers / numbers.sum(1);
    let row = if loaded { which.load_scalar((i,)) } else { i * 2 };
    y.tile([1, 4096]).block((i, 0)).store(normal * w.tile([1, 4096]).at((row, 0)).load());
}

#[test]
fn places_are_known_before() {
    assert!(
        !course(&lowered(&chosen::stage(true).unwrap(), Arch::SM_90A), &COURSE).contains(&Opcode::CpAsync)
    );
    assert!(
        course(&lowered(&chosen::stage(false).unwrap(), Arch::SM_90A), &COURSE).contains(&Opcode::CpAsync)
    );
}

/// Transposed numbers need shared memory of their own.
#[kernel(threads = 512)]
fn turned(x: View<f32, 2>, w: View<f32, 2>, y: View<f32, 2>) {
    let numbers = x.tile([128, 128]).block((program_id(0), 0)).load();
    let normal = numbers / numbers.sum(0);
    let weight = w.tile([128, 256]).at((0, 0)).load();
    let (left, right) = (weight.part(1, 0..128), weight.part(1, 128..256));
    y.tile([128, 128]).block((0, program_id(0))).store(normal.transpose() * left + right);
}

#[test]
fn exchanges_come_first() {
    let func = lowered(&turned::stage().unwrap(), Arch::SM_90A);
    let shared = func.walk().into_iter().filter(|&op| func.op(op).code == Opcode::Shared);
    let bytes: u32 =
        shared.filter_map(|op| func.op(op).get::<tilewright_ir::Bytes>()).map(|bytes| bytes.0).sum();
    assert!(bytes > 64 * 1024 && bytes <= Arch::SM_90A.limits().shared_per_block, "{bytes}");
}
