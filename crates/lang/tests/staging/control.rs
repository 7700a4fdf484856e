//! Control flow: what is decided while staging, and what becomes a region.

use tilewright_ir::Opcode;
use tilewright_lang::prelude::*;

use crate::{count, expect};

#[kernel]
fn if_value(n: Val<u32>, out: Global<f32>) {
    let x = if n < 10 {
        val(1.0f32)
    } else if n < 20 {
        val(2.0)
    } else {
        val(3.0)
    };
    out.store(x);
}

#[kernel]
fn if_assigned(n: Val<u32>, out: Global<u32>) {
    let (mut changed, kept, mut both) = (n, n + 1, n);
    if n > 5 {
        changed = n * 2;
        both += 1;
    } else {
        both += 2;
    }
    out.store(changed);
    out.store(kept);
    out.store(both);
}

/// Without `else`, and without anything to hand on.
#[kernel]
fn if_only(n: Val<u32>, out: Global<u32>) {
    if n == 0 {
        out.store(1u32);
    }
}

#[kernel]
fn nested(n: Val<u32>, out: Global<u32>) {
    let mut sum = val(0u32);
    let mut left = n;
    while left > 0 {
        for i in 0..left {
            if i % 2 == 0 {
                sum += i;
            }
        }
        left >>= 1;
    }
    out.store(sum);
}

#[kernel]
fn swapped(n: Val<u32>, out: Global<u32>) {
    let (mut a, mut b) = (val(0u32), val(1u32));
    for _ in 0..n {
        (a, b) = (b, a + b);
    }
    out.store(a);
}

#[kernel]
fn stepped(first: Val<i32>, n: Val<i32>, stride: Val<i32>, out: Global<i32>) {
    for i in (first..n).step_by(stride) {
        out.at(i).store(i);
    }
    for i in (0..n).step_by(2) {
        out.at(i).store(first);
    }
    for i in first..100 {
        out.at(i).store(n);
    }
}

/// The condition of a `while` may work, too: what it changes is seen by the body and after the loop.
#[kernel]
fn busy_condition(n: Val<u32>, out: Global<u32>) {
    let mut i = val(0u32);
    while {
        i += 1;
        i < n
    } {
        out.at(i).store(i);
    }
    out.store(i);
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Twice,
    Plus(u32),
    Sum(u32),
}

/// Everything here is decided while staging.
#[kernel]
fn host(n: Val<u32>, out: Global<u32>, flag: bool, rounds: u32, way: Way) {
    let mut x = n;
    if flag && rounds > 1 || rounds == 7 {
        x += 1;
    } else {
        x += 2;
    }
    for i in 0..rounds {
        x += i;
    }
    for i in unroll(0..=2) {
        x *= i;
    }
    let mut left = rounds;
    while left > 0 {
        x ^= left;
        left -= 1;
    }
    match way {
        Way::Twice => x += x,
        Way::Plus(k) if k > 100 => x -= k,
        Way::Plus(k) => x += k,
        Way::Sum(times) => {
            for i in 0..n {
                x += i * times;
            }
        }
    }
    let sizes = [4u32, 5, 6];
    for size in &sizes[1..rounds as usize] {
        x += *size;
    }
    if let Some(last) = sizes.last() {
        x += *last;
    }
    out.store(x);
}

/// `#[host]` leaves code as it is, so it may jump.
#[kernel]
fn host_jumps(out: Global<u32>, limit: u32) {
    #[host]
    for i in 0..100u32 {
        if i == 1 {
            continue;
        }
        if i > limit {
            break;
        }
        out.at(i).store(i);
    }
    let mut i = 0;
    #[host]
    let first = loop {
        if i > limit {
            break i;
        }
        i += 1;
    };
    out.store(first);
}

#[kernel]
fn guarded(i: Val<u32>, n: Val<u32>, x: Global<f32>, out: Global<u32>) {
    if i < n && x.at(i).load() > 0.0 {
        out.store(1u32);
    }
    if i >= n || x.at(i).load() < 0.0 {
        out.store(2u32);
    }
}

/// A host operand decides while staging, even beside a staged one.
#[kernel]
fn half_host(p: Val<bool>, out: Global<bool>, on: bool) {
    out.store(on && p);
    out.store(on || p);
    out.store(p && on);
    out.store(p || on);
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [
        if_value::stage(),
        if_assigned::stage(),
        if_only::stage(),
        nested::stage(),
        swapped::stage(),
        stepped::stage(),
        busy_condition::stage(),
        host::stage(true, 3, Way::Sum(2)),
        host_jumps::stage(3),
        guarded::stage(),
        half_host::stage(true),
    ]
    .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

#[test]
fn the_value_of_an_if_is_its_result() {
    expect(
        &if_value::stage().unwrap(),
        "
        func @if_value (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(10) : u32
          %1 = cmp %n, %0 cmp(lt) : bool
          %2 = if %1 : f32 then {
            %3 = const value(1.0) : f32
            yield %3
          } else {
            %4 = const value(20) : u32
            %5 = cmp %n, %4 cmp(lt) : bool
            %6 = if %5 : f32 then {
              %7 = const value(2.0) : f32
              yield %7
            } else {
              %8 = const value(3.0) : f32
              yield %8
            }
            yield %6
          }
          store %out, %2
        }
        ",
    );
}

#[test]
fn variables_that_an_arm_changes_are_results_and_others_are_not() {
    expect(
        &if_assigned::stage().unwrap(),
        "
        func @if_assigned (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(1) : u32
          %1 = add %n, %0 : u32
          %2 = const value(5) : u32
          %3 = cmp %n, %2 cmp(gt) : bool
          %4, %5 = if %3 : u32, u32 then {
            %6 = const value(2) : u32
            %7 = mul %n, %6 : u32
            %8 = const value(1) : u32
            %9 = add %n, %8 : u32
            yield %7, %9
          } else {
            %10 = const value(2) : u32
            %11 = add %n, %10 : u32
            yield %n, %11
          }
          store %out, %4
          store %out, %1
          store %out, %5
        }
        ",
    );
    expect(
        &if_only::stage().unwrap(),
        "
        func @if_only (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(0) : u32
          %1 = cmp %n, %0 cmp(eq) : bool
          if %1 then {
            %2 = const value(1) : u32
            store %out, %2
          } else {
          }
        }
        ",
    );
}

#[test]
fn regions_nest() {
    expect(
        &nested::stage().unwrap(),
        "
        func @nested (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(0) : u32
          %1, %2 = while %0, %n : u32, u32 test {
            (%3: u32, %4: u32)
            %5 = const value(0) : u32
            %6 = cmp %4, %5 cmp(gt) : bool
            condition %6, %3, %4
          } do {
            (%7: u32, %8: u32)
            %9 = const value(0) : u32
            %10 = const value(1) : u32
            %11 = for %9, %8, %10, %7 : u32 do {
              (%12: u32, %13: u32)
              %14 = const value(2) : u32
              %15 = rem %12, %14 : u32
              %16 = const value(0) : u32
              %17 = cmp %15, %16 cmp(eq) : bool
              %18 = if %17 : u32 then {
                %19 = add %13, %12 : u32
                yield %19
              } else {
                yield %13
              }
              yield %18
            }
            %20 = const value(1) : u32
            %21 = shr %8, %20 : u32
            yield %11, %21
          }
          store %out, %1
        }
        ",
    );
}

#[test]
fn two_variables_can_trade_places_in_a_loop() {
    expect(
        &swapped::stage().unwrap(),
        "
        func @swapped (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(0) : u32
          %1 = const value(1) : u32
          %2 = const value(0) : u32
          %3 = const value(1) : u32
          %4, %5 = for %2, %n, %3, %0, %1 : u32, u32 do {
            (%6: u32, %7: u32, %8: u32)
            %9 = add %7, %8 : u32
            yield %8, %9
          }
          store %out, %4
        }
        ",
    );
}

#[test]
fn ranges_have_staged_and_constant_ends_and_steps() {
    expect(
        &stepped::stage().unwrap(),
        "
        func @stepped (%first: i32, %n: i32, %stride: i32, %out: ptr<global> align(4)) {
          for %first, %n, %stride do {
            (%0: i32)
            %1 = const value(4) : i32
            %2 = mul_wide %0, %1 : i64
            %3 = ptr_add %out, %2 : ptr<global>
            store %3, %0
          }
          %4 = const value(0) : i32
          %5 = const value(2) : i32
          for %4, %n, %5 do {
            (%6: i32)
            %7 = const value(4) : i32
            %8 = mul_wide %6, %7 : i64
            %9 = ptr_add %out, %8 : ptr<global>
            store %9, %first
          }
          %10 = const value(100) : i32
          %11 = const value(1) : i32
          for %first, %10, %11 do {
            (%12: i32)
            %13 = const value(4) : i32
            %14 = mul_wide %12, %13 : i64
            %15 = ptr_add %out, %14 : ptr<global>
            store %15, %n
          }
        }
        ",
    );
}

#[test]
fn a_condition_may_change_variables() {
    expect(
        &busy_condition::stage().unwrap(),
        "
        func @busy_condition (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(0) : u32
          %1 = while %0 : u32 test {
            (%2: u32)
            %3 = const value(1) : u32
            %4 = add %2, %3 : u32
            %5 = cmp %4, %n cmp(lt) : bool
            condition %5, %4
          } do {
            (%6: u32)
            %7 = const value(4) : u32
            %8 = mul_wide %6, %7 : u64
            %9 = ptr_add %out, %8 : ptr<global>
            store %9, %6
            yield %6
          }
          store %out, %1
        }
        ",
    );
}

#[test]
fn host_conditions_leave_no_trace() {
    expect(
        &host::stage(true, 2, Way::Twice).unwrap(),
        "
        func @host (%n: u32, %out: ptr<global> align(4)) {
          %0 = const value(1) : u32
          %1 = add %n, %0 : u32
          %2 = const value(0) : u32
          %3 = add %1, %2 : u32
          %4 = const value(1) : u32
          %5 = add %3, %4 : u32
          %6 = const value(0) : u32
          %7 = mul %5, %6 : u32
          %8 = const value(1) : u32
          %9 = mul %7, %8 : u32
          %10 = const value(2) : u32
          %11 = mul %9, %10 : u32
          %12 = const value(2) : u32
          %13 = xor %11, %12 : u32
          %14 = const value(1) : u32
          %15 = xor %13, %14 : u32
          %16 = add %15, %15 : u32
          %17 = const value(5) : u32
          %18 = add %16, %17 : u32
          %19 = const value(6) : u32
          %20 = add %18, %19 : u32
          store %out, %20
        }
        ",
    );
    for (way, adds, subs) in [(Way::Plus(5), 6, 0), (Way::Plus(500), 5, 1)] {
        let kernel = host::stage(false, 2, way).unwrap();
        assert_eq!(
            count(&kernel, Opcode::If) + count(&kernel, Opcode::For) + count(&kernel, Opcode::While),
            0
        );
        assert_eq!((count(&kernel, Opcode::Add), count(&kernel, Opcode::Sub)), (adds, subs));
    }
    assert_eq!(count(&host::stage(false, 2, Way::Sum(2)).unwrap(), Opcode::For), 1);
}

#[test]
fn host_code_may_jump() {
    expect(
        &host_jumps::stage(3).unwrap(),
        "
        func @host_jumps (%out: ptr<global> align(4)) {
          %0 = const value(0) : i64
          %1 = ptr_add %out, %0 : ptr<global>
          %2 = const value(0) : u32
          store %1, %2
          %3 = const value(8) : i64
          %4 = ptr_add %out, %3 : ptr<global>
          %5 = const value(2) : u32
          store %4, %5
          %6 = const value(12) : i64
          %7 = ptr_add %out, %6 : ptr<global>
          %8 = const value(3) : u32
          store %7, %8
          %9 = const value(4) : u32
          store %out, %9
        }
        ",
    );
}

#[test]
fn logic_is_lazy() {
    expect(
        &guarded::stage().unwrap(),
        "
        func @guarded (%i: u32, %n: u32, %x: ptr<global> align(4), %out: ptr<global> align(4)) {
          %0 = cmp %i, %n cmp(lt) : bool
          %1 = if %0 : bool then {
            %2 = const value(4) : u32
            %3 = mul_wide %i, %2 : u64
            %4 = ptr_add %x, %3 : ptr<global>
            %5 = load %4 : f32
            %6 = const value(0.0) : f32
            %7 = cmp %5, %6 cmp(gt) : bool
            yield %7
          } else {
            %8 = const value(0) : bool
            yield %8
          }
          if %1 then {
            %9 = const value(1) : u32
            store %out, %9
          } else {
          }
          %10 = cmp %i, %n cmp(ge) : bool
          %11 = if %10 : bool then {
            %12 = const value(1) : bool
            yield %12
          } else {
            %13 = const value(4) : u32
            %14 = mul_wide %i, %13 : u64
            %15 = ptr_add %x, %14 : ptr<global>
            %16 = load %15 : f32
            %17 = const value(0.0) : f32
            %18 = cmp %16, %17 cmp(lt) : bool
            yield %18
          }
          if %11 then {
            %19 = const value(2) : u32
            store %out, %19
          } else {
          }
        }
        ",
    );
}

#[test]
fn a_host_operand_of_logic_is_decided_while_staging() {
    expect(
        &half_host::stage(true).unwrap(),
        "
        func @half_host (%p: bool, %out: ptr<global> align(1)) {
          store %out, %p
          %0 = const value(1) : bool
          store %out, %0
          %1 = if %p : bool then {
            %2 = const value(1) : bool
            yield %2
          } else {
            %3 = const value(0) : bool
            yield %3
          }
          store %out, %1
          %4 = if %p : bool then {
            %5 = const value(1) : bool
            yield %5
          } else {
            %6 = const value(1) : bool
            yield %6
          }
          store %out, %4
        }
        ",
    );
    expect(
        &half_host::stage(false).unwrap(),
        "
        func @half_host (%p: bool, %out: ptr<global> align(1)) {
          %0 = const value(0) : bool
          store %out, %0
          store %out, %p
          %1 = if %p : bool then {
            %2 = const value(0) : bool
            yield %2
          } else {
            %3 = const value(0) : bool
            yield %3
          }
          store %out, %1
          %4 = if %p : bool then {
            %5 = const value(1) : bool
            yield %5
          } else {
            %6 = const value(0) : bool
            yield %6
          }
          store %out, %4
        }
        ",
    );
}
