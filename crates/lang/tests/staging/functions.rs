//! Functions: generics, configurations, closures, device functions and methods.

use tilewright_ir::Opcode;
use tilewright_lang::prelude::*;

use crate::{count, expect};

#[kernel]
fn generic<T: Number, const N: usize>(x: Global<T>, out: Global<T>, extra: T) {
    let mut sum = [val(T::ZERO); N];
    for (i, one) in (0u32..).zip(&mut sum) {
        *one = x.at(i).load() * T::ONE + extra;
    }
    for one in sum {
        out.store(one);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Config {
    threads: u32,
    unroll: u32,
    negate: bool,
}

impl Config {
    #[device]
    fn prepare(self, x: Val<f32>) -> Val<f32> {
        if self.negate { -x } else { x }
    }
}

#[kernel(threads = config.threads)]
fn configured(x: Global<f32>, out: Global<f32>, config: Config) {
    for i in unroll(0..config.unroll) {
        let at = thread_id(0) + i * config.threads;
        out.at(at).store(config.prepare(x.at(at).load()));
    }
}

#[kernel]
fn closures(n: Val<u32>, out: Global<u32>) {
    let offset = n * 2;
    let place = |i: Val<u32>| out.at(i + offset);
    let put = |i: Val<u32>, x: Val<u32>| {
        if x > 0 {
            place(i).store(x);
        }
    };
    for i in 0..n {
        put(i, i * i);
    }
    let values: Vec<Val<u32>> = (0..2u32).map(|i| n + i).collect();
    put(values[0], values[1]);
}

/// A clamp with control flow.
#[device]
fn clamp(x: Val<i32>, low: i32, high: i32) -> Val<i32> {
    let mut clamped = x;
    if x < low {
        clamped = val(low);
    } else if x > high {
        clamped = val(high);
    }
    clamped
}

/// A function of operators needs no attribute.
fn square<T: Number>(x: Val<T>) -> Val<T> {
    x * x
}

/// A function may take a function.
#[device]
fn fold<T: Element>(first: Val<T>, n: Val<u32>, f: impl Fn(Val<T>, Val<u32>) -> Val<T>) -> Val<T> {
    let mut total = first;
    for i in 0..n {
        total = f(total, i);
    }
    total
}

#[kernel]
fn helpers(x: Val<i32>, n: Val<u32>, out: Global<i32>) {
    out.store(square(clamp(x, -5, 5)));
    out.store(fold(x, n, |sum, i| sum + i.bitcast::<i32>()));
}

/// A kernel is a function, so that other kernels can call it.
#[kernel]
fn outer(x: Val<i32>, out: Global<i32>) {
    let n = val(3u32);
    helpers(x, n, out);
}

/// An alias hides the type from the attribute, so the parameter says what it is.
type Scalar = Val<f32>;

#[kernel]
fn sorted_by_hand(#[runtime] x: Scalar, out: Global<f32>, #[constant] scale: f32) {
    out.store(x * scale);
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [
        generic::stage::<f32, 2>(0.5),
        generic::stage::<i64, 1>(-1),
        configured::stage(Config { threads: 64, unroll: 2, negate: true }),
        closures::stage(),
        helpers::stage(),
        outer::stage(),
        sorted_by_hand::stage(2.0),
    ]
    .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

#[test]
fn kernels_are_generic_over_types_and_numbers() {
    expect(
        &generic::stage::<f32, 2>(0.5).unwrap(),
        "
        func @generic (%x: ptr<global> align(4), %out: ptr<global> align(4)) {
          %0 = const value(0.0) : f32
          %1 = const value(0) : i64
          %2 = ptr_add %x, %1 : ptr<global>
          %3 = load %2 : f32
          %4 = const value(1.0) : f32
          %5 = mul %3, %4 : f32
          %6 = const value(0.5) : f32
          %7 = add %5, %6 : f32
          %8 = const value(4) : i64
          %9 = ptr_add %x, %8 : ptr<global>
          %10 = load %9 : f32
          %11 = const value(1.0) : f32
          %12 = mul %10, %11 : f32
          %13 = const value(0.5) : f32
          %14 = add %12, %13 : f32
          store %out, %7
          store %out, %14
        }
        ",
    );
    expect(
        &generic::stage::<i64, 1>(-1).unwrap(),
        "
        func @generic (%x: ptr<global> align(8), %out: ptr<global> align(8)) {
          %0 = const value(0) : i64
          %1 = const value(0) : i64
          %2 = ptr_add %x, %1 : ptr<global>
          %3 = load %2 : i64
          %4 = const value(1) : i64
          %5 = mul %3, %4 : i64
          %6 = const value(-1) : i64
          %7 = add %5, %6 : i64
          store %out, %7
        }
        ",
    );
}

#[test]
fn a_configuration_decides_while_staging() {
    expect(
        &configured::stage(Config { threads: 64, unroll: 1, negate: true }).unwrap(),
        "
        func @configured threads(64,1,1) (%x: ptr<global> align(4), %out: ptr<global> align(4)) {
          %0 = special reg(tid.x) : u32
          %1 = const value(0) : u32
          %2 = add %0, %1 : u32
          %3 = const value(4) : u32
          %4 = mul_wide %2, %3 : u64
          %5 = ptr_add %out, %4 : ptr<global>
          %6 = const value(4) : u32
          %7 = mul_wide %2, %6 : u64
          %8 = ptr_add %x, %7 : ptr<global>
          %9 = load %8 : f32
          %10 = neg %9 : f32
          store %5, %10
        }
        ",
    );
    let plain = configured::stage(Config { threads: 32, unroll: 3, negate: false }).unwrap();
    assert_eq!((count(&plain, Opcode::Neg), count(&plain, Opcode::Store)), (0, 3));
    assert_eq!(plain.launch().threads, Some([32, 1, 1]));
}

#[test]
fn closures_are_helpers_that_see_their_surroundings() {
    expect(
        &closures::stage().unwrap(),
        "
        func @closures (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(2) : u32
          %1 = mul %n, %0 : u32
          %2 = const value(0) : u32
          %3 = const value(1) : u32
          for %2, %n, %3 do {
            (%4: u32)
            %5 = mul %4, %4 : u32
            %6 = const value(0) : u32
            %7 = cmp %5, %6 cmp(gt) : bool
            if %7 then {
              %8 = add %4, %1 : u32
              %9 = const value(4) : u32
              %10 = mul_wide %8, %9 : u64
              %11 = ptr_add %out, %10 : ptr<global>
              store %11, %5
            } else {
            }
          }
          %12 = const value(0) : u32
          %13 = add %n, %12 : u32
          %14 = const value(1) : u32
          %15 = add %n, %14 : u32
          %16 = const value(0) : u32
          %17 = cmp %15, %16 cmp(gt) : bool
          if %17 then {
            %18 = add %13, %1 : u32
            %19 = const value(4) : u32
            %20 = mul_wide %18, %19 : u64
            %21 = ptr_add %out, %20 : ptr<global>
            store %21, %15
          } else {
          }
        }
        ",
    );
}

#[test]
fn device_functions_are_inlined() {
    expect(
        &helpers::stage().unwrap(),
        "
        func @helpers (%x: i32, %n: u32, %out: ptr<global> align(4)) {
          %0 = const value(-5) : i32
          %1 = cmp %x, %0 cmp(lt) : bool
          %2 = if %1 : i32 then {
            %3 = const value(-5) : i32
            yield %3
          } else {
            %4 = const value(5) : i32
            %5 = cmp %x, %4 cmp(gt) : bool
            %6 = if %5 : i32 then {
              %7 = const value(5) : i32
              yield %7
            } else {
              yield %x
            }
            yield %6
          }
          %8 = mul %2, %2 : i32
          store %out, %8
          %9 = const value(0) : u32
          %10 = const value(1) : u32
          %11 = for %9, %n, %10, %x : i32 do {
            (%12: u32, %13: i32)
            %14 = bitcast %12 : i32
            %15 = add %13, %14 : i32
            yield %15
          }
          store %out, %11
        }
        ",
    );
    assert_eq!(count(&outer::stage().unwrap(), Opcode::For), 1);
}

#[test]
fn attributes_sort_parameters_that_names_do_not() {
    let kernel = sorted_by_hand::stage(2.0).unwrap();
    let names: Vec<&str> = kernel.parameters().map(|(name, ..)| name).collect();
    assert_eq!(names, ["x", "out"]);
}

/// Each statement on a line of its own; what the language does inside belongs to that line.
#[rustfmt::skip]
#[kernel(threads = 128)]
fn placed(n: Val<u32>, out: Global<f32>) {
    let first = line!() + 1;
    let sums = Accumulator::<f32>::new(128, 8);
    let v = Vector::new([1.0f32, 2.0]).map(|x|
        x * 2.0);
    for i in 0..n {
        out.at(i).store(warp_sum(v.sum())); }
    clamp(n.bitcast(), 0, 1);
    for part in sums.finish() {
        part.for_each_run(|row, _, pair|
            out.at(row).store_vector(pair)); }
    assert_eq!(first + 8, line!() - 1);
}

#[test]
fn ops_made_by_the_language_belong_to_the_call_in_the_kernel() {
    let kernel = placed::stage().unwrap();
    let func = kernel.func();
    let line = |op| func.locations.get(func.op(op).loc).unwrap().line;
    let ops = func.walk();
    let first = line(ops[0]);
    let of = |code: Opcode| -> Vec<u32> {
        let mut found: Vec<u32> =
            ops.iter().filter(|&&op| func.op(op).code == code).map(|&op| line(op) - first).collect();
        found.dedup();
        found
    };
    assert_eq!(of(Opcode::MakeAccumulator), [0]);
    assert_eq!(of(Opcode::Pack), [1]);
    assert_eq!(of(Opcode::Mul)[0], 2);
    assert_eq!(of(Opcode::For), [3]);
    assert_eq!(of(Opcode::Shuffle), [4]);
    assert_eq!(of(Opcode::AccRead), [6]);
    assert_eq!(of(Opcode::Slice), [7]);
}
