//! Grids that begin while the one before them ends.
#![allow(clippy::unwrap_used)]

mod common;

use tilewright_hardware::Arch;
use tilewright_lang::Kernel;
use tilewright_lang::tile::prelude::*;
use tilewright_tile::{Fact, lower, specialise};

/// y = x + 1, a row by a program.
#[kernel]
fn plain(x: View<f32, 2>, y: View<f32, 2>, width: u32) {
    let own = y.partition([1, width]);
    own.store(x.tile([1, width]).at((own.start(0), own.start(1))).load() + 1.0);
}

/// The same, for an author who knows that nothing before it writes `x`.
#[kernel]
fn informed(x: View<f32, 2>, y: View<f32, 2>, width: u32) {
    let own = y.partition([1, width]);
    grid_launch_dependents();
    grid_wait();
    own.store(x.tile([1, width]).at((own.start(0), own.start(1))).load() + 1.0);
}

/// How often the grid waits, and whether it may be launched early.
fn waits(kernel: &Kernel) -> (usize, bool) {
    let facts = common::facts(&["x", "y"]);
    let facts: Vec<(&str, Fact)> = facts.iter().map(|(name, fact)| (name.as_str(), *fact)).collect();
    let func = lower(&specialise(kernel.func(), &facts), Arch::SM_90A).unwrap().func;
    (func.to_string().matches("grid_wait").count(), func.waits_for_grids())
}

/// A grid whose blocks have something to do overlaps with its neighbours; where blocks are over at once it would only begin later.
#[test]
fn grids_overlap_if_blocks_are_worth_it() {
    assert_eq!(waits(&plain::stage(4096).unwrap()), (1, true));
    assert_eq!(waits(&plain::stage(256).unwrap()), (0, false));
}

/// Who says when to wait is not helped.
#[test]
fn authors_have_the_last_word() {
    assert_eq!(waits(&informed::stage(4096).unwrap()), (1, true));
    assert_eq!(waits(&informed::stage(256).unwrap()), (1, true));
}
