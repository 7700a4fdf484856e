//! What regions hand on: arrays, vectors, tuples, options, pointers, slots.

use tilewright_ir::Opcode;
use tilewright_lang::prelude::*;

use crate::{count, expect};

#[kernel]
fn array(x: Global<f32>, n: Val<u32>, out: Global<f32>) {
    let mut sums = [val(0.0f32); 2];
    for i in 0..n {
        sums[0] += x.at(i).load();
        sums[1] *= 2.0;
    }
    out.store(sums[0] + sums[1]);
}

#[kernel]
fn tuple_and_vec(n: Val<u32>, out: Global<u32>, width: usize) {
    let mut pair = (n, (val(true), val(1.0f32)));
    let mut many = vec![val(0u32); width];
    let mut i = val(0u32);
    while i < n {
        pair.0 += 1;
        pair.1.0 = pair.0 > 3;
        for one in &mut many {
            *one += pair.0;
        }
        i += 1;
    }
    if pair.1.0 {
        many[0] = val(9);
    }
    out.store(pair.0);
    for (i, one) in (1u32..).zip(&many) {
        out.at(i).store(*one);
    }
}

#[kernel]
fn option(n: Val<u32>, out: Global<u32>, given: Option<u32>) {
    let mut maybe = given.map(val);
    for i in 0..n {
        maybe = maybe.map(|x| x + i);
    }
    if let Some(x) = maybe {
        out.store(x);
    }
}

/// Pointers, vectors, slots and fragments are carried like values.
#[kernel(threads = 32)]
fn pointers(x: Global<f32>, n: Val<u32>, out: Global<f32>) {
    let tile = Shared::<bf16>::new(k_major::<bf16>(16, 16, SwizzleMode::B32));
    let mma = WarpMma::<bf16, bf16, f32>::new((16, 8, 16));
    let pipe = Pipeline::new(2, 1);
    let mut bar = pipe.full(pipe.consumer());
    let (mut from, mut sum, mut slot, mut c) = (x, Vector::splat(0.0f32, 4), pipe.consumer(), mma.zero());
    for _ in 0..n {
        sum = sum + from.load_vector(4);
        from = from.at(4);
        bar = pipe.empty(slot);
        slot = slot.next();
        c = mma.multiply(mma.load_a(tile, 0, 0), mma.load_b(tile, 0, 0), c);
    }
    bar.arrive();
    from.store(sum.sum());
    out.store_vector(c.values());
}

#[derive(Debug, Clone, Copy, Carry)]
struct Best {
    value: Val<f32>,
    place: (Val<u32>, [Val<bool>; 1]),
    #[host]
    scale: f32,
}

#[kernel]
fn structs(x: Global<f32>, n: Val<u32>, out: Global<f32>, scale: f32) {
    let mut best = Best { value: val(0.0), place: (n, [val(false)]), scale };
    for i in 0..n {
        let new = x.at(i).load() * best.scale;
        if new > best.value {
            best = Best { value: new, place: (i, [val(true)]), ..best };
        }
    }
    out.at(best.place.0).store_if(best.place.1[0], best.value);
}

/// A value that a region does not change stays what it was: no result.
#[kernel]
fn through_a_reference(n: Val<u32>, out: Global<u32>) {
    let mut x = n;
    let y = &mut x;
    if n > 1 {
        *y = n + 1;
    }
    bump(y);
    out.store(x);
}

#[device]
fn bump(x: &mut Val<u32>) {
    if *x == 3 {
        *x += 1;
    }
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [
        array::stage(),
        tuple_and_vec::stage(2),
        option::stage(Some(1)),
        option::stage(None),
        pointers::stage(),
        structs::stage(2.0),
        through_a_reference::stage(),
    ]
    .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

#[test]
fn arrays_are_carried_element_by_element() {
    expect(
        &array::stage().unwrap(),
        "
        func @array (%x: ptr<global> align(4), %n: u32, %out: ptr<global> align(4)) {
          %0 = const value(0.0) : f32
          %1 = const value(0) : u32
          %2 = const value(1) : u32
          %3, %4 = for %1, %n, %2, %0, %0 : f32, f32 do {
            (%5: u32, %6: f32, %7: f32)
            %8 = const value(4) : u32
            %9 = mul_wide %5, %8 : u64
            %10 = ptr_add %x, %9 : ptr<global>
            %11 = load %10 : f32
            %12 = add %6, %11 : f32
            %13 = const value(2.0) : f32
            %14 = mul %7, %13 : f32
            yield %12, %14
          }
          %15 = add %3, %4 : f32
          store %out, %15
        }
        ",
    );
}

#[test]
fn tuples_and_vecs_are_carried() {
    expect(
        &tuple_and_vec::stage(2).unwrap(),
        "
        func @tuple_and_vec (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(1) : bool
          %1 = const value(1.0) : f32
          %2 = const value(0) : u32
          %3 = const value(0) : u32
          %4, %5, %6, %7, %8, %9 = while %n, %0, %1, %2, %2, %3 : u32, bool, f32, u32, u32, u32 test {
            (%10: u32, %11: bool, %12: f32, %13: u32, %14: u32, %15: u32)
            %16 = cmp %15, %n cmp(lt) : bool
            condition %16, %10, %11, %12, %13, %14, %15
          } do {
            (%17: u32, %18: bool, %19: f32, %20: u32, %21: u32, %22: u32)
            %23 = const value(1) : u32
            %24 = add %17, %23 : u32
            %25 = const value(3) : u32
            %26 = cmp %24, %25 cmp(gt) : bool
            %27 = add %20, %24 : u32
            %28 = add %21, %24 : u32
            %29 = const value(1) : u32
            %30 = add %22, %29 : u32
            yield %24, %26, %19, %27, %28, %30
          }
          %31 = if %5 : u32 then {
            %32 = const value(9) : u32
            yield %32
          } else {
            yield %7
          }
          store %out, %4
          %33 = const value(4) : i64
          %34 = ptr_add %out, %33 : ptr<global>
          store %34, %31
          %35 = const value(8) : i64
          %36 = ptr_add %out, %35 : ptr<global>
          store %36, %8
        }
        ",
    );
}

#[test]
fn options_carry_what_they_have() {
    expect(
        &option::stage(Some(5)).unwrap(),
        "
        func @option (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(5) : u32
          %1 = const value(0) : u32
          %2 = const value(1) : u32
          %3 = for %1, %n, %2, %0 : u32 do {
            (%4: u32, %5: u32)
            %6 = add %5, %4 : u32
            yield %6
          }
          store %out, %3
        }
        ",
    );
    expect(
        &option::stage(None).unwrap(),
        "
        func @option (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(0) : u32
          %1 = const value(1) : u32
          for %0, %n, %1 do {
            (%2: u32)
          }
        }
        ",
    );
}

#[test]
fn pointers_vectors_slots_and_fragments_are_carried() {
    let kernel = pointers::stage().unwrap();
    let func = kernel.func();
    let loops = func.walk().into_iter().map(|op| func.op(op)).find(|op| op.code == Opcode::For).unwrap();
    let types: Vec<String> = loops.results.iter().map(|&v| func.ty(v).to_string()).collect();
    assert_eq!(types, ["ptr<global>", "4xf32", "ptr<shared>", "u32", "u32", "4xf32"]);
}

#[test]
fn structs_are_carried_field_by_field() {
    expect(
        &structs::stage(2.0).unwrap(),
        "
        func @structs (%x: ptr<global> align(4), %n: u32, %out: ptr<global> align(4)) {
          %0 = const value(0.0) : f32
          %1 = const value(0) : bool
          %2 = const value(0) : u32
          %3 = const value(1) : u32
          %4, %5, %6 = for %2, %n, %3, %0, %n, %1 : f32, u32, bool do {
            (%7: u32, %8: f32, %9: u32, %10: bool)
            %11 = const value(4) : u32
            %12 = mul_wide %7, %11 : u64
            %13 = ptr_add %x, %12 : ptr<global>
            %14 = load %13 : f32
            %15 = const value(2.0) : f32
            %16 = mul %14, %15 : f32
            %17 = cmp %16, %8 cmp(gt) : bool
            %18, %19, %20 = if %17 : f32, u32, bool then {
              %21 = const value(1) : bool
              yield %16, %7, %21
            } else {
              yield %8, %9, %10
            }
            yield %18, %19, %20
          }
          %22 = const value(4) : u32
          %23 = mul_wide %5, %22 : u64
          %24 = ptr_add %out, %23 : ptr<global>
          store_if %24, %4, %6
        }
        ",
    );
}

#[test]
fn assignments_through_references_are_seen() {
    let kernel = through_a_reference::stage().unwrap();
    assert_eq!(count(&kernel, Opcode::If), 2);
    expect(
        &kernel,
        "
        func @through_a_reference (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(1) : u32
          %1 = cmp %n, %0 cmp(gt) : bool
          %2 = if %1 : u32 then {
            %3 = const value(1) : u32
            %4 = add %n, %3 : u32
            yield %4
          } else {
            yield %n
          }
          %5 = const value(3) : u32
          %6 = cmp %2, %5 cmp(eq) : bool
          %7 = if %6 : u32 then {
            %8 = const value(1) : u32
            %9 = add %2, %8 : u32
            yield %9
          } else {
            yield %2
          }
          store %out, %7
        }
        ",
    );
}
