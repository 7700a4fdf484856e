//! What the lanes of a warp do together.

use tilewright_ir::Opcode;
use tilewright_lang::prelude::*;

use crate::{count, expect, lines};

#[kernel]
fn shuffles(x: Val<f32>, n: Val<u32>, out: Global<f32>, flags: Global<bool>) {
    out.store(shuffle_index(x, 3u32));
    out.store(broadcast(x, n));
    out.store(shuffle_xor(x, 1u32));
    let (up, valid) = shuffle_up(x, 1u32);
    out.store_if(valid, up);
    let (down, valid) = shuffle_down(x, n);
    out.store_if(valid, down);
    let (y, valid) = shuffle_in(Shuffle::Up, x, 1u32, 0xffu32, 8);
    out.store(y);
    flags.store(valid);
    // Two halves travel as one word.
    let pair = Vector::splat(bf16::ONE, 2);
    out.cast::<bf16>().store_vector(shuffle_xor(pair, 16u32));
}

#[kernel]
fn votes(x: Val<u32>, out: Global<u32>, flags: Global<bool>) {
    let p = x > 3;
    flags.store(vote_all(p));
    flags.store(vote_any(p));
    flags.store(vote_uniform(p));
    out.store(ballot(p));
    out.store(match_any(x));
    flags.store(match_all(x));
    flags.store(elect());
    out.store(active_mask());
    warp_barrier();
}

#[kernel]
fn reductions(x: Val<f32>, n: Val<i32>, out: Global<f32>, ints: Global<i32>) {
    out.store(warp_sum(x));
    out.store(warp_max(x));
    out.store(warp_reduce_among(x, 4, |a, b| a * b));
    for op in [Combine::Add, Combine::Min, Combine::Max, Combine::And, Combine::Or, Combine::Xor] {
        ints.store(redux(op, n));
    }
    out.store(warp_reduce(Vector::splat(x, 2), |a, b| a + b).get(1));
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [shuffles::stage(), votes::stage(), reductions::stage()]
        .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
        .into()
}

#[test]
fn shuffles_name_their_lanes() {
    expect(
        &shuffles::stage().unwrap(),
        "
        func @shuffles (%x: f32, %n: u32, %out: ptr<global> align(4), %flags: ptr<global> align(1)) {
          %0 = const value(4294967295) : u32
          %1 = const value(3) : u32
          %2, %3 = shuffle %x, %1, %0 mode(idx) : f32, bool
          store %out, %2
          %4 = const value(4294967295) : u32
          %5, %6 = shuffle %x, %n, %4 mode(idx) : f32, bool
          store %out, %5
          %7 = const value(4294967295) : u32
          %8 = const value(1) : u32
          %9, %10 = shuffle %x, %8, %7 mode(bfly) : f32, bool
          store %out, %9
          %11 = const value(4294967295) : u32
          %12 = const value(1) : u32
          %13, %14 = shuffle %x, %12, %11 mode(up) : f32, bool
          store_if %out, %13, %14
          %15 = const value(4294967295) : u32
          %16, %17 = shuffle %x, %n, %15 mode(down) : f32, bool
          store_if %out, %16, %17
          %18 = const value(255) : u32
          %19 = const value(1) : u32
          %20, %21 = shuffle %x, %19, %18 mode(up) width(8) : f32, bool
          store %out, %20
          store %flags, %21
          %22 = const value(0x3f80) : bf16
          %23 = pack %22, %22 : 2xbf16
          %24 = const value(4294967295) : u32
          %25 = const value(16) : u32
          %26, %27 = shuffle %23, %25, %24 mode(bfly) : 2xbf16, bool
          store %out, %26
        }
        ",
    );
}

#[test]
fn votes_ask_all_lanes() {
    expect(
        &votes::stage().unwrap(),
        "
        func @votes (%x: u32, %out: ptr<global> align(4), %flags: ptr<global> align(1)) {
          %0 = const value(3) : u32
          %1 = cmp %x, %0 cmp(gt) : bool
          %2 = const value(4294967295) : u32
          %3 = vote %1, %2 vote(all) : bool
          store %flags, %3
          %4 = const value(4294967295) : u32
          %5 = vote %1, %4 vote(any) : bool
          store %flags, %5
          %6 = const value(4294967295) : u32
          %7 = vote %1, %6 vote(uni) : bool
          store %flags, %7
          %8 = const value(4294967295) : u32
          %9 = vote %1, %8 vote(ballot) : u32
          store %out, %9
          %10 = const value(4294967295) : u32
          %11 = match_any %x, %10 : u32
          store %out, %11
          %12 = const value(4294967295) : u32
          %13, %14 = match_all %x, %12 : u32, bool
          store %flags, %14
          %15 = const value(4294967295) : u32
          %16 = elect %15 : bool
          store %flags, %16
          %17 = active_mask : u32
          store %out, %17
          %18 = const value(4294967295) : u32
          warp_sync %18
        }
        ",
    );
}

#[test]
fn reductions_take_a_step_for_each_bit_of_the_lane() {
    let kernel = reductions::stage().unwrap();
    assert_eq!(count(&kernel, Opcode::Shuffle), 5 + 5 + 2 + 5);
    assert_eq!((count(&kernel, Opcode::Max), count(&kernel, Opcode::Mul)), (5, 2));
    assert_eq!(
        lines(&kernel, "redux"),
        [
            "redux op(add) : i32",
            "redux op(min) : i32",
            "redux op(max) : i32",
            "redux op(and) : i32",
            "redux op(or) : i32",
            "redux op(xor) : i32"
        ]
    );
}
