//! Loads of later rounds, and reductions that become one.
#![allow(clippy::unwrap_used)]

mod common;

use tilewright_hardware::Arch;
use tilewright_ir::{Count, Func, Opcode};
use tilewright_lang::Kernel;
use tilewright_lang::tile::prelude::*;
use tilewright_passes::{Remark, RemarkKind};
use tilewright_tile::{Fact, Lowered, lower, specialise};

fn lowered(kernel: &Kernel, arch: Arch) -> Lowered {
    let views = ["x", "w", "y"];
    let mut facts = common::facts(&views);
    facts.extend(views.map(|view| (format!("{view}_extent1"), Fact::MultipleOf(8))));
    let facts: Vec<_> = facts.iter().map(|(name, fact)| (name.as_str(), *fact)).collect();
    lower(&specialise(kernel.func(), &facts), arch).unwrap()
}

fn count(func: &Func, code: Opcode) -> usize {
    func.walk().into_iter().filter(|&op| func.op(op).code == code).count()
}

fn starts(func: &Func) -> usize {
    count(func, Opcode::CpAsyncCommit)
}

/// How a loop over rows differs from one whose loads run ahead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Loop {
    Plain,
    /// The place of the next row is carried.
    Carried,
    /// Results go where rows are loaded from.
    Rewritten,
    /// Nothing is combined.
    Summed,
    /// There are ones outside of the tensor.
    Padded,
}

/// Sums over rows, each over its own sum.
#[kernel]
fn sums(x: View<f32, 2>, y: View<f32, 2>, how: Loop, width: u32) {
    let shape = [1, width];
    let mut sum = Tile::<f32>::zeros(shape);
    let mut next = program_id(0);
    for i in 0..x.extent(0) {
        let place = x.tile(shape).block((if how == Loop::Carried { next } else { i }, 0));
        let row = if how == Loop::Padded { place.load_or(1.0f32) } else { place.load() };
        sum += if how == Loop::Summed { row } else { row / row.sum(1) };
        if how == Loop::Rewritten {
            place.store(sum);
        }
        next += 1;
    }
    y.tile(shape).at((0, 0)).store(sum);
}

#[test]
fn rows_are_loaded_ahead() {
    let kernel = sums::stage(Loop::Plain, 2048).unwrap();
    for arch in [Arch::SM_80, Arch::SM_90A] {
        let Lowered { func, remarks, .. } = lowered(&kernel, arch);
        assert_eq!(starts(&func), 4, "three before the loop, and one in each round");
        let waits = func.walk().into_iter().filter(|&op| func.op(op).code == Opcode::CpAsyncWait);
        assert_eq!(waits.map(|op| func.op(op).get()).collect::<Vec<_>>(), [Some(Count(3))]);
        assert_eq!(count(&func, Opcode::Barrier), 2, "one before sums are left, one before they are read");
        let is_it = |remark: &&Remark| remark.message.starts_with("loaded 3 rounds ahead, into 8192 bytes");
        assert_eq!(remarks.iter().find(is_it).map(|remark| remark.kind), Some(RemarkKind::Applied));
    }
    // Longer rows fill memory with fewer of them, and of the longest not even two fit.
    let rounds = |width: u32| starts(&lowered(&sums::stage(Loop::Plain, width).unwrap(), Arch::SM_80).func);
    assert_eq!([4096, 8192].map(rounds), [3, 0]);
}

#[test]
fn what_cannot_run_ahead_stays() {
    for how in [Loop::Carried, Loop::Rewritten, Loop::Summed, Loop::Padded] {
        let func = lowered(&sums::stage(how, 2048).unwrap(), Arch::SM_90A).func;
        assert_eq!(starts(&func), 0, "{how:?}");
    }
    let alone = lowered(&sums::stage(Loop::Plain, 128).unwrap(), Arch::SM_90A).func;
    assert_eq!(starts(&alone), 0, "one warp waits for nobody");
}

/// The sum of a row and that of its squares, or of its distances from the mean, which the first sum decides.
#[kernel]
fn moments(x: View<f32, 2>, y: View<f32, 2>, central: bool, store: bool) {
    let place: Val<i32> = program_id(0).bitcast();
    let row = x.tile([1, 2048]).at((place, 0)).load();
    let sum = row.sum(1);
    if store {
        y.tile([1, 2048]).at((place, 0)).store(row * sum);
    }
    let distance = if central { row - sum } else { row };
    let squares = (distance * distance).sum(1);
    y.tile([1, 2048]).at((place, 0)).store(row * (sum + squares));
}

#[test]
fn reductions_that_do_not_depend_on_each_other_meet_once() {
    let barriers = |central, store| {
        let func = lowered(&moments::stage(central, store).unwrap(), Arch::SM_90A).func;
        (count(&func, Opcode::Barrier), count(&func, Opcode::Shuffle))
    };
    assert_eq!(barriers(false, false), (1, 10));
    assert_eq!(barriers(true, false), (2, 10));
    // What is stored in between stays there.
    assert_eq!(barriers(false, true), (1, 10));
}

/// The largest with its place, and the sum.
#[kernel]
fn largest(x: View<f32, 2>, y: View<f32, 2>) {
    let row = x.tile([1, 2048]).block((program_id(0), 0)).load();
    let (_, place) = row.max_with_place(1);
    y.tile([1, 2048]).block((program_id(0), 0)).store(row * (place.cast::<f32>() + row.sum(1)));
}

#[test]
fn what_decides_by_order_stays_apart() {
    let func = lowered(&largest::stage().unwrap(), Arch::SM_90A).func;
    assert_eq!(count(&func, Opcode::Barrier), 2);
}

/// Rows over their sums, one in each round, or in every other one.
#[kernel]
fn normalised(x: View<f32, 2>, y: View<f32, 2>, always: bool, width: u32) {
    for i in 0..x.extent(0) {
        let (row, to) = (x.tile([1, width]).block((i, 0)).load(), y.tile([1, width]).block((i, 0)));
        if always {
            to.store(row / row.sum(1));
        } else if i % 2 == 0 {
            to.store(row / row.sum(1));
        }
    }
}

#[test]
fn blocks_send_each_other_sums_in_every_round() {
    let lowered = |always: bool| lowered(&normalised::stage(always, 40_000).unwrap(), Arch::SM_90A).func;
    let meets = |func: &Func| {
        let rounds = func.walk().into_iter().find(|&op| func.op(op).code == Opcode::For).unwrap();
        let mut inside = Vec::new();
        func.walk_region(func.op(rounds).regions[0], &mut inside);
        inside.into_iter().filter(|&op| func.op(op).code == Opcode::ClusterWait).count()
    };
    let func = lowered(true);
    assert!(func.launch.cluster.is_some());
    assert_eq!((count(&func, Opcode::MbarWait), meets(&func)), (1, 0));
    // Which of two places has its turn is counted by rounds, and this is not done in all of them.
    let func = lowered(false);
    assert_eq!(count(&func, Opcode::MbarWait), 0);
    assert!(meets(&func) > 0);
}

/// The sums of squares of rows, or of something else.
#[kernel(threads = 128)]
fn squares(x: View<f32, 2>, y: View<f32, 2>, squared: bool) {
    let row = x.tile([1, 2048]).block((program_id(0), 0)).load();
    let row = if squared { row * row } else { row + 1.0f32 };
    y.tile([1, 1]).block((program_id(0), 0)).store(row.sum(1));
}

#[test]
fn products_are_added_as_they_are_multiplied() {
    let counts = |squared: bool| {
        let func = lowered(&squares::stage(squared).unwrap(), Arch::SM_90A).func;
        (count(&func, Opcode::Fma), count(&func, Opcode::Add))
    };
    // Sixteen a thread, of which four begin the sums.
    let ((fused, adds), (none, all)) = (counts(true), counts(false));
    assert_eq!((fused, none), (12, 0));
    assert_eq!(all - adds, 16 + 12);
}
