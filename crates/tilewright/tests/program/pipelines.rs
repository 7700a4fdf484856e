//! Products whose factors are loaded ahead, however a program is written: in any order, at any place, in loops inside of loops. On every
//! device, and for chips that copy by their engine and by threads.

use tilewright::device::Buffer;
use tilewright::lang::Kernel;
use tilewright::lang::tile::prelude::*;

use super::chips;

/// Small numbers, so that sums are exact.
fn small(count: usize, by: usize) -> Vec<bf16> {
    (0..count).map(|i| bf16::from_f64(((i * 7 + i / 13) % by) as f64 - (by / 2) as f64)).collect()
}

/// Runs a kernel of a (128 x 192), b (192 x 64), c (128 x 64) and counts on all devices, and compares c and the counts.
fn agrees(name: &str, kernel: &Kernel, counts: &[u32]) {
    let mut results = chips().into_iter().map(|device| {
        let (a, b) =
            (device.upload(&small(128 * 192, 5)).unwrap(), device.upload(&small(192 * 64, 7)).unwrap());
        let c: Buffer<f32> = device.upload(&vec![7.0; 128 * 64 + 64]).unwrap();
        let counts = device.upload(counts).unwrap();
        let program = device.program(kernel).unwrap();
        let (n, of_c) = (counts.view([counts.len()]), c.view([128, 64]));
        let report = program.launch(2, &[&a.view([128, 192]), &b.view([192, 64]), &of_c, &n]).unwrap();
        report.expect_clean().unwrap_or_else(|error| panic!("{name} on {}: {error}", device.name()));
        (c.to_vec().unwrap(), counts.to_vec().unwrap())
    });
    let expected = results.next().unwrap();
    for found in results {
        assert!(found == expected, "{name}");
    }
}

/// 64 rows of the product, step by step: what it loads in which order, and where from.
#[kernel]
fn of_order(
    a: View<bf16, 2>,
    b: View<bf16, 2>,
    c: View<f32, 2>,
    _counts: View<u32, 1>,
    right_first: bool,
    shift: i32,
) {
    let own = c.partition([64, 64]);
    let mut sum = Tile::<f32>::zeros([64, 64]);
    for step in 0..a.extent(1).div_ceil(64) {
        let k = (step * 64).bitcast::<i32>() + shift;
        if right_first {
            let right = b.tile([64, 64]).at((k, own.start(1))).load();
            let left = a.tile([64, 64]).at((own.start(0), k)).load();
            sum = dot(left, right, sum);
        } else {
            let left = a.tile([64, 64]).at((own.start(0), k)).load();
            let right = b.tile([64, 64]).at((k, own.start(1) + shift)).load();
            sum = dot(left, right, sum);
        }
    }
    own.store(sum);
}

#[test]
fn factors_come_in_any_order_and_from_any_place() {
    agrees("the right one first", &of_order::stage(true, 0).unwrap(), &[0]);
    for shift in [-3, -8, 1, 5, 17, 64] {
        agrees(&format!("from {shift} on"), &of_order::stage(false, shift).unwrap(), &[0]);
    }
}

/// 64 rows of the product, by a counter of 16 or of 8 bits.
#[kernel]
fn of_narrow_counters(
    a: View<bf16, 2>,
    b: View<bf16, 2>,
    c: View<f32, 2>,
    _counts: View<u32, 1>,
    of_bytes: bool,
) {
    let own = c.partition([64, 64]);
    let mut sum = Tile::<f32>::zeros([64, 64]);
    let steps = a.extent(1).div_ceil(64);
    if of_bytes {
        for step in 0i8..steps.cast::<i8>() {
            let k = step.cast::<u32>() * 64;
            let left = a.tile([64, 64]).at((own.start(0), k)).load();
            sum = dot(left, b.tile([64, 64]).at((k, own.start(1))).load(), sum);
        }
    } else {
        for step in 0u16..steps.cast::<u16>() {
            let k = step.cast::<u32>() * 64;
            let left = a.tile([64, 64]).at((own.start(0), k)).load();
            sum = dot(left, b.tile([64, 64]).at((k, own.start(1))).load(), sum);
        }
    }
    own.store(sum);
}

#[test]
fn steps_are_counted_by_any_integer() {
    for of_bytes in [true, false] {
        agrees(&format!("bytes: {of_bytes}"), &of_narrow_counters::stage(of_bytes).unwrap(), &[0]);
    }
}

/// Two products whose sums meet: of factors as they are, and of one that was computed.
#[kernel]
fn of_both_kinds(
    a: View<bf16, 2>,
    b: View<bf16, 2>,
    c: View<f32, 2>,
    _counts: View<u32, 1>,
    in_one_loop: bool,
) {
    let own = c.partition([64, 64]);
    let (row, column) = (own.start(0), own.start(1));
    let mut plain = Tile::<f32>::zeros([64, 64]);
    let mut computed = Tile::<f32>::zeros([64, 64]);
    for step in 0..a.extent(1).div_ceil(64) {
        let doubled = b.tile([64, 64]).at((step * 64, column)).load() * bf16::from_f32(2.0);
        computed = dot(a.tile([64, 64]).at((row, step * 64)).load(), doubled, computed);
        if in_one_loop {
            plain = dot(
                a.tile([64, 64]).at((row, step * 64)).load(),
                b.tile([64, 64]).at((step * 64, column)).load(),
                plain,
            );
        }
    }
    if !in_one_loop {
        for step in 0..a.extent(1).div_ceil(64) {
            plain = dot(
                a.tile([64, 64]).at((row, step * 64)).load(),
                b.tile([64, 64]).at((step * 64, column)).load(),
                plain,
            );
        }
    }
    own.store(computed + plain * 3.0);
}

#[test]
fn sums_of_warps_and_warpgroups_meet() {
    for in_one_loop in [false, true] {
        agrees("both kinds", &of_both_kinds::stage(in_one_loop).unwrap(), &[0]);
    }
}

/// A loop with products inside of one: before, between or after what the outer one loads and multiplies. How often it turns is only known then.
#[kernel]
fn nested(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, counts: View<u32, 1>, way: u32) {
    let own = c.partition([64, 64]);
    let (row, column) = (own.start(0), own.start(1));
    let mut outer = Tile::<f32>::zeros([64, 64]);
    let mut inner = Tile::<f32>::zeros([64, 64]);
    for step in 0..a.extent(1).div_ceil(64) {
        let (mut left, mut right) = (Tile::<bf16>::zeros([64, 64]), Tile::<bf16>::zeros([64, 64]));
        if way == 0 {
            left = a.tile([64, 64]).at((row, step * 64)).load();
            right = b.tile([64, 64]).at((step * 64, column)).load();
        }
        if way == 2 {
            let (left, right) = (
                a.tile([64, 64]).at((row, step * 64)).load(),
                b.tile([64, 64]).at((step * 64, column)).load(),
            );
            outer = dot(left, right, outer);
        }
        for turn in 0..counts.load_scalar(step) {
            let right = b.tile([64, 64]).at((turn * 64, column)).load();
            inner = dot(a.tile([64, 64]).at((row, turn * 64)).load(), right, inner);
        }
        if way == 1 {
            left = a.tile([64, 64]).at((row, step * 64)).load();
            right = b.tile([64, 64]).at((step * 64, column)).load();
        }
        if way < 2 {
            outer = dot(left, right, outer);
        }
    }
    own.store(outer + inner * 2.0);
}

#[test]
fn loops_with_products_may_stand_anywhere_in_another() {
    for way in 0..3 {
        for counts in [[2, 0, 3], [20, 20, 20]] {
            agrees(&format!("nested, way {way}"), &nested::stage(way).unwrap(), &counts);
        }
    }
}

/// Places and counts that the program itself writes: nobody may read them before.
#[kernel]
fn of_own_numbers(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, counts: View<u32, 1>, way: u32) {
    let own = c.partition([64, 64]);
    let mut sum = Tile::<f32>::zeros([64, 64]);
    let mine = program_id(0) * 8;
    if way == 0 {
        counts.store_scalar(mine, counts.load_scalar(mine) + 1u32);
    }
    for step in 0..counts.load_scalar(mine) {
        let at = if way == 1 { counts.load_scalar(mine + step) } else { step };
        let right = b.tile([64, 64]).at((step * 64, own.start(1))).load();
        sum = dot(a.tile([64, 64]).at((own.start(0), at * 64)).load(), right, sum);
        if way == 1 {
            counts.store_scalar(mine + step + 1, (at + 1) % 3u32);
        }
    }
    own.store(sum);
}

#[test]
fn numbers_that_are_written_are_read_in_order() {
    for way in 0..2 {
        agrees(&format!("own numbers, way {way}"), &of_own_numbers::stage(way).unwrap(), &[2; 16]);
    }
}

/// A result that begins somewhere inside of a piece of 16 bytes.
#[kernel]
fn put_aside(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, _counts: View<u32, 1>, columns: u32) {
    let row = program_id(0) * 64;
    let mut sum = Tile::<f32>::zeros([64, 64]);
    for step in 0..a.extent(1).div_ceil(64) {
        let right = b.tile([64, 64]).at((step * 64, 0)).load();
        sum = dot(a.tile([64, 64]).at((row, step * 64)).load(), right, sum);
    }
    c.tile([64, 64]).at((row, columns)).store(sum);
}

#[test]
fn results_may_begin_anywhere() {
    for columns in [0, 1, 3, 4, 60] {
        agrees(&format!("from column {columns} on"), &put_aside::stage(columns).unwrap(), &[0]);
    }
}
