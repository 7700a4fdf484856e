//! Where threads wait for each other because of global memory, and where they need not.
#![allow(clippy::unwrap_used)]

use tilewright_hardware::Arch;
use tilewright_ir::Opcode;
use tilewright_lang::Kernel;
use tilewright_lang::tile::prelude::*;
use tilewright_tile::{Fact, lower, specialise};

/// Barriers in the code of a kernel for 128 threads or more.
fn barriers(kernel: &Kernel) -> usize {
    let facts = [("y_stride1", Fact::Is(1)), ("x_stride1", Fact::Is(1))];
    let func = lower(&specialise(kernel.func(), &facts), Arch::SM_90A).unwrap().func;
    func.walk().into_iter().filter(|&op| func.op(op).code == Opcode::Barrier).count()
}

/// Two stores, the second so many columns further on.
#[kernel(threads = 128)]
fn stores(x: View<f32, 2>, y: View<f32, 2>, further: i32) {
    let row: Val<i32> = program_id(0).bitcast();
    let numbers = x.tile([1, 512]).at((row, 0)).load();
    y.tile([1, 512]).at((row, 0)).store(numbers);
    y.tile([1, 512]).at((row, further)).store(numbers + 1.0f32);
}

#[test]
fn stores_beside_each_other_do_not_wait() {
    assert_eq!(barriers(&stores::stage(512).unwrap()), 0);
    assert_eq!(barriers(&stores::stage(-512).unwrap()), 0);
    // Others wrote there.
    assert_eq!(barriers(&stores::stage(511).unwrap()), 1);
    assert_eq!(barriers(&stores::stage(-1).unwrap()), 1);
    // Each thread writes to its own elements again.
    assert_eq!(barriers(&stores::stage(0).unwrap()), 0);
}

/// A store, and a load of the columns beside it or of some that it wrote.
#[kernel(threads = 128)]
fn loads_back(y: View<f32, 2>, further: i32) {
    let row: Val<i32> = program_id(0).bitcast();
    y.tile([1, 512]).at((row, 0)).store(Tile::<f32>::ones([1, 512]));
    let numbers = y.tile([1, 512]).at((row, further)).load();
    y.tile([1, 512]).at((row, further)).store(numbers * 2.0f32);
}

#[test]
fn loads_of_what_others_stored_wait() {
    assert_eq!(barriers(&loads_back::stage(512).unwrap()), 0);
    assert_eq!(barriers(&loads_back::stage(100).unwrap()), 1);
}

/// As many branches as there are bits, one after the other, each with an access.
#[kernel(threads = 128)]
fn branches(x: View<f32, 2>, y: View<f32, 2>, bits: Val<u32>) {
    let mut sum = Tile::<f32>::zeros([1, 512]);
    for bit in 0..32u32 {
        if (bits >> bit) & 1 == 1 {
            sum += x.tile([1, 512]).block((bit, 0)).load();
        }
    }
    y.tile([1, 512]).block((0, 0)).store(sum);
}

/// What happened before a branch is known once after it, not once for each way: with 32 of them that would be 2^32 times.
#[test]
fn many_branches_take_no_longer_than_their_number() {
    assert_eq!(barriers(&branches::stage().unwrap()), 0);
}

/// Rows stored one a round, and rows that each begin some columns further on.
#[kernel(threads = 128)]
fn rows_in_rounds(y: View<f32, 2>, further: bool) {
    for i in 0..y.extent(0) {
        y.tile([1, 512]).at((i, if further { i } else { val(0) })).store(Tile::<f32>::ones([1, 512]));
    }
}

#[test]
fn rows_stored_in_rounds_do_not_wait() {
    assert_eq!(barriers(&rows_in_rounds::stage(false).unwrap()), 0);
    // Should two rounds come to one row, other threads would write its elements.
    assert_eq!(barriers(&rows_in_rounds::stage(true).unwrap()), 1);
}
