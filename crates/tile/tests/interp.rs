//! Kernels in the text of the IR, run by the interpreter and compared with plain Rust.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_precision_loss)]

use half::bf16;
use tilewright_ir::{Constant, Func, parse};
use tilewright_tile::interp::{Argument, InterpError, Program};

fn func(text: &str) -> Func {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")).funcs.remove(0)
}

fn program(text: &str) -> Program {
    Program::new(&func(text)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

fn integers(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|chunk| u32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

fn scalar(value: u32) -> Argument<'static> {
    Argument::Scalar(Constant(u64::from(value)))
}

/// Numbers between -2 and 2.
fn noise(count: usize, seed: u32) -> Vec<f32> {
    (0u32..)
        .take(count)
        .map(|i| {
            let x = (i ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
            ((x ^ x >> 13).wrapping_mul(0xc2b2_ae35) >> 16) as f32 / 16384.0 - 2.0
        })
        .collect()
}

#[test]
fn softmax_of_rows_with_a_tail() {
    let text = "func @softmax (%x: ptr<global>, %out: ptr<global>, %rows: u32, %columns: u32, %stride: i64 align(4)) {
        %0 = special reg(ctaid.x) : u32
        %1 = bitcast %0 : i32
        %2 = const value(0) : i32
        %3 = const value(1) : i64
        %4 = const value(0xff800000) : f32
        %5 = tile_load %x, %1, %2, %rows, %columns, %stride, %3, %4 : tile<1x64xf32>
        %6 = tile_reduce %5 axis(1) : tile<1x1xf32> do {
          (%7: f32, %8: f32)
          %9 = max %7, %8 : f32
          yield %9
        }
        %10 = item %6 : f32
        %11 = const value(1.442695) : f32
        %12 = map %5 : tile<1x64xf32> do {
          (%13: f32)
          %14 = sub %13, %10 : f32
          %15 = mul %14, %11 : f32
          %16 = ex2 %15 : f32
          yield %16
        }
        %17 = tile_reduce %12 axis(1) : tile<1x1xf32> do {
          (%18: f32, %19: f32)
          %20 = add %18, %19 : f32
          yield %20
        }
        %21 = broadcast %17 : tile<1x64xf32>
        %22 = map %12, %21 : tile<1x64xf32> do {
          (%23: f32, %24: f32)
          %25 = div %23, %24 : f32
          yield %25
        }
        tile_store %out, %22, %1, %2, %rows, %columns, %stride, %3
      }";
    let (rows, columns, stride) = (5, 50, 52);
    let x = noise(rows * stride, 1);
    let (input, mut out) = (bytes(&x), vec![0xee; rows * stride * 4]);
    let arguments =
        &mut [Argument::Shared(&input), Argument::Memory(&mut out), scalar(5), scalar(50), scalar(52)];
    program(text).run([5, 1, 1], arguments).unwrap();
    for row in 0..rows {
        let line = &x[row * stride..][..columns];
        let top = line.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = line.iter().map(|&x| f64::from(x - top).exp()).sum();
        let found = floats(&out[row * stride * 4..][..stride * 4]);
        for (x, y) in line.iter().zip(&found) {
            let expected = f64::from(x - top).exp() / sum;
            assert!((expected - f64::from(*y)).abs() < 1e-6, "{expected} {y}");
        }
        // What lies between the rows is not touched.
        assert_eq!(out[(row * stride + columns) * 4..][..8], [0xee; 8]);
    }
}

#[test]
fn matrix_product_in_steps_of_k() {
    let text = "func @matmul (%a: ptr<global>, %b: ptr<global>, %c: ptr<global>, %m: u32, %n: u32, %k: u32) {
        %0 = special reg(ctaid.x) : u32
        %1 = special reg(ctaid.y) : u32
        %t = const value(16) : u32
        %2 = mul %0, %t : u32
        %3 = mul %1, %t : u32
        %4 = bitcast %2 : i32
        %5 = bitcast %3 : i32
        %6 = cvt %k : i64
        %7 = cvt %n : i64
        %one = const value(1) : i64
        %zero = const value(0x0) : bf16
        %8 = const value(0.0) : f32
        %9 = splat %8 : tile<16x16xf32>
        %10 = const value(0) : u32
        %11 = const value(8) : u32
        %12 = for %10, %k, %11, %9 : tile<16x16xf32> do {
          (%13: u32, %14: tile<16x16xf32>)
          %15 = bitcast %13 : i32
          %16 = tile_load %a, %4, %15, %m, %k, %6, %one, %zero : tile<16x8xbf16>
          %17 = tile_load %b, %15, %5, %k, %n, %7, %one, %zero : tile<8x16xbf16>
          %18 = dot %16, %17, %14 : tile<16x16xf32>
          yield %18
        }
        tile_store %c, %12, %4, %5, %m, %n, %7, %one
      }";
    let (m, n, k) = (20usize, 35usize, 21usize);
    let [a, b] = [(m * k, 2), (k * n, 3)]
        .map(|(count, seed)| noise(count, seed).into_iter().map(bf16::from_f32).collect::<Vec<_>>());
    let raw = |values: &[bf16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let (left, right, mut out) = (raw(&a), raw(&b), vec![0; m * n * 4]);
    let arguments = &mut [
        Argument::Shared(&left),
        Argument::Shared(&right),
        Argument::Memory(&mut out),
        scalar(20),
        scalar(35),
        scalar(21),
    ];
    program(text).run([2, 3, 1], arguments).unwrap();
    for (i, found) in floats(&out).into_iter().enumerate() {
        let (row, column) = (i / n, i % n);
        let expected: f64 = (0..k).map(|l| f64::from(a[row * k + l]) * f64::from(b[l * n + column])).sum();
        assert!((expected - f64::from(found)).abs() < 1e-5, "{row} {column}: {expected} {found}");
    }
}

#[test]
fn running_sums_both_ways_and_along_both_axes() {
    let text = |axis: u32, flags: &str| {
        format!(
            "func @sums (%x: ptr<global>, %out: ptr<global>) {{
               %0 = const value(0) : i32
               %3 = const value(3) : u32
               %5 = const value(5) : u32
               %1 = const value(1) : i64
               %w = const value(5) : i64
               %p = const value(0) : u32
               %4 = tile_load %x, %0, %0, %3, %5, %w, %1, %p : tile<3x5xu32>
               %6 = tile_scan %4 axis({axis}) {flags} : tile<3x5xu32> do {{
                 (%7: u32, %8: u32)
                 %9 = add %7, %8 : u32
                 yield %9
               }}
               tile_store %out, %6, %0, %0, %3, %5, %w, %1
             }}"
        )
    };
    let x: Vec<u32> = (0..15).map(|i| i * i + 1).collect();
    let input = words(&x);
    for (axis, flags) in [(0, ""), (1, ""), (0, "flags(reverse)"), (1, "flags(reverse)")] {
        let mut out = vec![0; 60];
        let arguments = &mut [Argument::Shared(&input), Argument::Memory(&mut out)];
        program(&text(axis, flags)).run([1, 1, 1], arguments).unwrap();
        for (at, found) in integers(&out).into_iter().enumerate() {
            let takes = |other: usize| {
                let (here, there) = ((at / 5, at % 5), (other / 5, other % 5));
                let (line, a, b) = if axis == 0 {
                    (here.1 == there.1, there.0, here.0)
                } else {
                    (here.0 == there.0, there.1, here.1)
                };
                line && if flags.is_empty() { a <= b } else { a >= b }
            };
            let expected: u32 = (0..15).filter(|&other| takes(other)).map(|other| x[other]).sum();
            assert_eq!(found, expected, "axis {axis} {flags} at {at}");
        }
    }
}

/// What is combined first is the first argument, also when neither order nor place can be swapped.
#[test]
fn scans_keep_the_order_of_their_arguments() {
    let text = |flags: &str| {
        format!(
            "func @digits (%out: ptr<global>) {{
               %0 = iota axis(0) : tile<4xu32>
               %1 = tile_scan %0 axis(0) {flags} : tile<4xu32> do {{
                 (%2: u32, %3: u32)
                 %4 = const value(10) : u32
                 %5 = fma %2, %4, %3 : u32
                 yield %5
               }}
               %6 = const value(0) : i32
               %7 = const value(4) : u32
               %8 = const value(1) : i64
               tile_store %out, %1, %6, %7, %8
             }}"
        )
    };
    for (flags, expected) in [("", [0, 1, 12, 123]), ("flags(reverse)", [3210, 321, 32, 3])] {
        let mut out = vec![0; 16];
        program(&text(flags)).run([1, 1, 1], &mut [Argument::Memory(&mut out)]).unwrap();
        assert_eq!(integers(&out), expected);
    }
}

#[test]
fn transposes_through_a_box_that_sticks_out() {
    let text = "func @transpose (%x: ptr<global>, %out: ptr<global>, %rows: u32, %columns: u32) {
        %0 = special reg(ctaid.x) : u32
        %1 = special reg(ctaid.y) : u32
        %2 = const value(4) : u32
        %3 = mul %0, %2 : u32
        %4 = mul %1, %2 : u32
        %one = const value(1) : i32
        %i = bitcast %3 : i32
        %j = bitcast %4 : i32
        %5 = sub %i, %one : i32
        %6 = sub %j, %one : i32
        %7 = cvt %columns : i64
        %8 = cvt %rows : i64
        %9 = const value(1) : i64
        %10 = const value(0) : u32
        %11 = tile_load %x, %5, %6, %rows, %columns, %7, %9, %10 : tile<4x4xu32>
        %12 = transpose %11 axes(1,0) : tile<4x4xu32>
        tile_store %out, %12, %6, %5, %columns, %rows, %8, %9
      }";
    let x: Vec<u32> = (0..6 * 9).collect();
    let (input, mut out) = (words(&x), vec![0; 6 * 9 * 4]);
    let arguments = &mut [Argument::Shared(&input), Argument::Memory(&mut out), scalar(6), scalar(9)];
    program(text).run([2, 3, 1], arguments).unwrap();
    let found = integers(&out);
    for row in 0..6 {
        for column in 0..9 {
            assert_eq!(found[column * 6 + row], x[row * 9 + column]);
        }
    }
}

#[test]
fn argmax_is_a_reduction_of_pairs() {
    let text = "func @argmax (%x: ptr<global>, %out: ptr<global>) {
        %0 = const value(0) : i32
        %1 = const value(6) : u32
        %2 = const value(7) : u32
        %3 = const value(7) : i64
        %4 = const value(1) : i64
        %5 = const value(0.0) : f32
        %6 = tile_load %x, %0, %0, %1, %2, %3, %4, %5 : tile<6x7xf32>
        %7 = iota axis(1) : tile<6x7xu32>
        %8, %9 = tile_reduce %6, %7 axis(1) : tile<6x1xf32>, tile<6x1xu32> do {
          (%10: f32, %11: u32, %12: f32, %13: u32)
          %14 = cmp %12, %10 cmp(gt) : bool
          %15, %16 = if %14 : f32, u32 then {
            yield %12, %13
          } else {
            yield %10, %11
          }
          yield %15, %16
        }
        %17 = reshape %9 : tile<6xu32>
        tile_store %out, %17, %0, %1, %4
      }";
    let x = noise(42, 9);
    let (input, mut out) = (bytes(&x), vec![0; 24]);
    program(text).run([1, 1, 1], &mut [Argument::Shared(&input), Argument::Memory(&mut out)]).unwrap();
    for (row, found) in integers(&out).into_iter().enumerate() {
        let line = &x[row * 7..][..7];
        let best = (0..7).rev().max_by(|&a, &b| line[a].total_cmp(&line[b])).unwrap();
        assert_eq!(found as usize, best, "{line:?}");
    }
}

#[test]
fn masked_elements_touch_no_memory() {
    let text = "func @pick (%x: ptr<global>, %out: ptr<global>, %counts: ptr<global>, %n: u32) {
        %0 = iota axis(0) : tile<8xu32>
        %1, %2 = map %0 : tile<8xu32>, tile<8xbool> do {
          (%3: u32)
          %4 = const value(3) : u32
          %5 = mul %3, %4 : u32
          %6 = cmp %5, %n cmp(lt) : bool
          %7 = const value(4000000000) : u32
          %8 = select %6, %5, %7 : u32
          yield %8, %6
        }
        %9 = const value(-1.0) : f32
        %10 = splat %9 : tile<8xf32>
        %11 = gather %x, %1, %2, %10 : tile<8xf32>
        %12 = const value(0) : i32
        %13 = const value(8) : u32
        %14 = const value(1) : i64
        tile_store %out, %11, %12, %13, %14
        %15 = map %0 : tile<8xu32> do {
          (%16: u32)
          %17 = const value(1) : u32
          %18 = and %16, %17 : u32
          yield %18
        }
        %19 = tile_atomic %counts, %15, %2, %0 op(add) : tile<8xu32>
      }";
    let x: Vec<f32> = (0..14).map(|i| i as f32).collect();
    let (input, mut out, mut counts) = (bytes(&x), vec![0; 32], vec![0; 8]);
    let arguments = &mut [
        Argument::Shared(&input),
        Argument::Memory(&mut out),
        Argument::Memory(&mut counts),
        scalar(14),
    ];
    program(text).run([1, 1, 1], arguments).unwrap();
    assert_eq!(floats(&out), [0.0, 3.0, 6.0, 9.0, 12.0, -1.0, -1.0, -1.0]);
    assert_eq!(integers(&counts), [2 + 4, 1 + 3]);
}

/// Elements that loop a different number of times, and elements that must not enter a loop that would not end for them.
#[test]
fn elements_go_their_own_ways() {
    let text = "func @collatz (%out: ptr<global>) {
        %0 = iota axis(0) : tile<12xu32>
        %1 = map %0 : tile<12xu32> do {
          (%2: u32)
          %3 = const value(0) : u32
          %4 = const value(1) : u32
          %5 = cmp %2, %3 cmp(ne) : bool
          %6 = if %5 : u32 then {
            %7, %8 = while %2, %3 : u32, u32 test {
              (%9: u32, %10: u32)
              %11 = cmp %9, %4 cmp(ne) : bool
              condition %11, %9, %10
            } do {
              (%12: u32, %13: u32)
              %14 = and %12, %4 : u32
              %15 = cmp %14, %4 cmp(eq) : bool
              %16 = if %15 : u32 then {
                %17 = const value(3) : u32
                %18 = fma %12, %17, %4 : u32
                yield %18
              } else {
                %19 = shr %12, %4 : u32
                yield %19
              }
              %20 = add %13, %4 : u32
              yield %16, %20
            }
            yield %8
          } else {
            %21 = const value(99) : u32
            yield %21
          }
          yield %6
        }
        %22 = const value(0) : i32
        %23 = const value(12) : u32
        %24 = const value(1) : i64
        tile_store %out, %1, %22, %23, %24
      }";
    let mut out = vec![0; 48];
    program(text).run([1, 1, 1], &mut [Argument::Memory(&mut out)]).unwrap();
    assert_eq!(integers(&out), [99, 0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14]);
}

/// A vector takes several words an element; both halves of a pair are kept apart.
#[test]
fn elements_may_be_vectors_on_the_way() {
    let text = "func @halves (%out: ptr<global>) {
        %0 = iota axis(0) : tile<4xu32>
        %1 = map %0 : tile<4xu32> do {
          (%2: u32)
          %3 = const value(65537) : u32
          %4 = mul %2, %3 : u32
          %5 = bitcast %4 : 2xu16
          %6 = add %5, %5 : 2xu16
          %7 = const value(2) : u32
          %8 = cmp %2, %7 cmp(lt) : bool
          %9 = if %8 : 2xu16 then {
            yield %5
          } else {
            yield %6
          }
          %10 = bitcast %9 : u32
          yield %10
        }
        %11 = const value(0) : i32
        %12 = const value(4) : u32
        %13 = const value(1) : i64
        tile_store %out, %1, %11, %12, %13
      }";
    let mut out = vec![0; 16];
    program(text).run([1, 1, 1], &mut [Argument::Memory(&mut out)]).unwrap();
    assert_eq!(integers(&out), [0, 0x1_0001, 0x4_0004, 0x6_0006]);
}

#[test]
fn pointers_can_be_computed_with_and_loaded() {
    let text = "func @far (%x: ptr<global>, %y: ptr<global>, %out: ptr<global>) {
        %0 = ptr_to_int %x : u64
        %1 = const value(8) : u64
        %2 = add %0, %1 : u64
        %3 = int_to_ptr %2 : ptr<global>
        %4 = load %3 : u32
        %5 = load %y : u32
        %6 = add %4, %5 : u32
        %7 = splat %6 : tile<1xu32>
        %8 = const value(0) : i32
        %9 = const value(1) : u32
        %10 = const value(1) : i64
        tile_store %out, %7, %8, %9, %10
      }";
    let (x, mut out) = (words(&[1, 2, 3, 4]), vec![0; 4]);
    let arguments =
        &mut [Argument::Shared(&x), Argument::Within { argument: 0, offset: 12 }, Argument::Memory(&mut out)];
    program(text).run([1, 1, 1], arguments).unwrap();
    assert_eq!(integers(&out), [7]);
}

const COPY: &str = "func @copy (%x: ptr<global> align(8), %n: u32 align(2)) {
    %0 = special reg(ctaid.x) : u32
    %1 = bitcast %0 : i32
    %2 = const value(1) : i64
    %3 = const value(0) : u32
    %4 = tile_load %x, %1, %n, %2, %3 : tile<2xu32> loc(\"src/copy.rs\":3:9)
    tile_store %x, %4, %1, %n, %2 loc(\"src/copy.rs\":4:9)
  }";

#[test]
fn errors_name_op_place_and_buffer() {
    let run = |arguments: &mut [Argument<'_>]| {
        program(COPY).run([3, 1, 1], arguments).map_err(|error| error.to_string())
    };
    let mut x = vec![0; 12];
    assert_eq!(run(&mut [Argument::Memory(&mut x), scalar(2)]), Ok(()));
    for (arguments, expected) in [
        (
            &mut [Argument::Memory(&mut x.clone()), scalar(4)],
            "`tile_load` at src/copy.rs:3:9 in program (2, 0, 0) reads 4 bytes at 0x1000000000c, 12 bytes from the start of argument 0 (\"x\", 12 bytes) and not inside",
        ),
        (
            &mut [Argument::Shared(&x), scalar(2)],
            "`tile_store` at src/copy.rs:4:9 in program (0, 0, 0) writes 4 bytes at 0x10000000000, 0 bytes from the start of argument 0 (\"x\", 12 bytes), which may only be read",
        ),
        (
            &mut [Argument::Memory(&mut x.clone()), scalar(3)],
            "argument 1 (\"n\") of kernel \"copy\" is 3, expected a multiple of 2",
        ),
        (&mut [scalar(1), scalar(3)], "argument 0 (\"x\") of kernel \"copy\" is a scalar, expected memory"),
        (
            &mut [Argument::Memory(&mut x.clone()), Argument::Shared(&x)],
            "argument 1 (\"n\") of kernel \"copy\" is memory, expected a scalar of u32",
        ),
        (
            &mut [Argument::Within { argument: 1, offset: 0 }, scalar(2)],
            "is an offset into argument 1, expected an offset into an argument that is memory",
        ),
        (
            &mut [Argument::Within { argument: 0, offset: 4 }, scalar(2)],
            "is 4 bytes into argument 0, expected an offset that is a multiple of 8",
        ),
        (
            &mut [Argument::Memory(&mut x.clone()), Argument::Scalar(Constant(1 << 32))],
            "is 0x100000000, expected the bits of u32",
        ),
    ] {
        let found = run(arguments).unwrap_err();
        assert!(found.contains(expected), "{found}\nexpected {expected}");
    }
    let counted = run(&mut [scalar(1)]).unwrap_err();
    assert_eq!(counted, "kernel \"copy\" takes 2 arguments, 1 were given");
    for more in [scalar(0), Argument::Shared(&[])] {
        let counted = run(&mut [Argument::Memory(&mut x.clone()), scalar(2), more]).unwrap_err();
        assert_eq!(counted, "kernel \"copy\" takes 2 arguments, 3 were given");
    }
}

#[test]
fn memory_that_is_no_parameter_of_its_own() {
    let mut all = words(&[7, 8, 1, 2, 3]);
    let arguments = &mut [Argument::Within { argument: 2, offset: 8 }, scalar(4), Argument::Memory(&mut all)];
    // The fourth element is behind the end; messages name the parameter that leads there.
    let error = program(COPY).run([3, 1, 1], arguments).unwrap_err().to_string();
    assert!(
        error.contains("20 bytes from the start of argument 0 (\"x\", 20 bytes) and not inside"),
        "{error}"
    );
    arguments[1] = scalar(2);
    program(COPY).run([2, 1, 1], arguments).unwrap();
    assert_eq!(integers(&all), [7, 8, 1, 2, 3]);
}

#[test]
fn a_pointer_from_nowhere_and_a_crooked_one() {
    let text = |address: &str| {
        format!(
            "func @wild (%x: ptr<global>) {{
               %0 = iota axis(0) : tile<1xu32>
               {address}
               %5 = load %4 : u32
             }}"
        )
    };
    let nowhere = "%3 = const value(64) : u64 %4 = int_to_ptr %3 : ptr<global>";
    let crooked = "%3 = const value(2) : u64 %4 = ptr_add %x, %3 : ptr<global>";
    let before = "%3 = const value(-4) : i64 %4 = ptr_add %x, %3 : ptr<global>";
    for (address, expected) in [
        (nowhere, "`load` in program (0, 0, 0) reads 4 bytes at 0x40, where no buffer is"),
        (
            crooked,
            "2 bytes from the start of argument 0 (\"x\", 8 bytes), which is no multiple of the size of u32",
        ),
        (before, "-4 bytes from the start of argument 0 (\"x\", 8 bytes) and not inside"),
    ] {
        let found = program(&text(address)).run([1, 1, 1], &mut [Argument::Shared(&[0; 8])]).unwrap_err();
        assert!(found.to_string().contains(expected), "{found}\nexpected {expected}");
    }
}

#[test]
fn what_does_not_end_is_stopped() {
    let text = "func @endless (%go: bool) {
        %0 = iota axis(0) : tile<4xu32>
        while test {
          condition %go
        } do {
        }
        assert %go text(\"never\")
      }";
    let endless = program(text).steps(1000);
    let found = endless.run([1, 1, 1], &mut [scalar(1)]).unwrap_err();
    assert!(matches!(found, InterpError::Endless { limit: 1000, .. }), "{found}");
    let found = endless.run([1, 1, 1], &mut [scalar(0)]).unwrap_err();
    assert_eq!(found.to_string(), "`assert` in program (0, 0, 0) failed: never");
}

#[test]
fn what_cannot_be_interpreted_is_refused_before_it_runs() {
    let wrong = func("func @k (%f: f32) { %0 = splat %f : tile<4xu32> }");
    assert!(matches!(Program::new(&wrong), Err(InterpError::Invalid { .. })));
    let threads = func("func @k () { %0 = shared bytes(16) align(16) : ptr<shared> }");
    assert!(matches!(Program::new(&threads), Err(InterpError::Unsupported { op: "shared", .. })));
    let small = func("func @k (%x: e2m1) { %0 = splat %x : tile<4xe2m1> }");
    assert!(matches!(Program::new(&small), Err(InterpError::Unsupported { op: "splat", .. })));
    // What the compiler says of it for the largest chip, up to the largest that can be written.
    for n in [8192, 1 << 15] {
        let large = func(&format!(
            "func @k (%x: ptr<global>, %n: u32) {{
               %0 = const value(0) : i32
               %1 = const value(1) : i64
               %2 = const value(0) : u8
               %3 = tile_load %x, %0, %0, %n, %n, %1, %1, %2 : tile<65536x{n}xu8>
               tile_store %x, %3, %0, %0, %n, %n, %1, %1
             }}"
        ));
        let refused = tilewright_tile::lower(&large, tilewright_hardware::Arch::SM_90A).unwrap_err();
        let found = Program::new(&large).unwrap_err().to_string();
        assert_eq!(found, format!("kernel \"k\": {refused}"));
        assert!(found.contains(&format!("makes a tile<65536x{n}xu8>")), "{found}");
    }
}

/// The results that nobody may depend on are the same every time, and a quotient by zero is what the hardware gives.
#[test]
fn poison_is_zero_and_a_quotient_by_zero_all_ones() {
    let text = "func @k (%out: ptr<global>, %x: u32) {
        %0 = poison : tile<2xu32>
        %1 = const value(0) : u32
        %2 = div %x, %1 : u32
        %3 = splat %2 : tile<2xu32>
        %4 = cat %0, %3 axis(0) : tile<4xu32>
        %5 = const value(0) : i32
        %6 = const value(4) : u32
        %7 = const value(1) : i64
        tile_store %out, %4, %5, %6, %7
      }";
    let mut out = vec![1; 16];
    program(text).run([1, 1, 1], &mut [Argument::Memory(&mut out), scalar(7)]).unwrap();
    assert_eq!(out, [[0; 8], [255; 8]].concat());
}

/// The product is summed in f64: what f32 would lose on the way stays.
#[test]
fn dot_rounds_once_before_it_adds() {
    let text = "func @k (%a: ptr<global>, %b: ptr<global>, %out: ptr<global>) {
        %0 = const value(0) : i32
        %1 = const value(1) : u32
        %2 = const value(3) : u32
        %3 = const value(1) : i64
        %4 = const value(3) : i64
        %5 = const value(0.0) : f32
        %6 = tile_load %a, %0, %0, %1, %2, %4, %3, %5 : tile<1x3xf32>
        %7 = tile_load %b, %0, %0, %2, %1, %3, %3, %5 : tile<3x1xf32>
        %8 = const value(0.5) : f32
        %9 = splat %8 : tile<1x1xf32>
        %10 = dot %6, %7, %9 flags(tf32) : tile<1x1xf32>
        tile_store %out, %10, %0, %0, %1, %1, %3, %3
      }";
    let (a, b, mut out) = (bytes(&[1e8, 1.0, -1e8]), bytes(&[1.0, 1.25, 1.0]), vec![0; 4]);
    let arguments = &mut [Argument::Shared(&a), Argument::Shared(&b), Argument::Memory(&mut out)];
    program(text).run([1, 1, 1], arguments).unwrap();
    assert_eq!(floats(&out), [1.75]);
}

/// Many programs side by side: each reads its own part, and the second round of neighbours sees what the first has stored.
#[test]
fn neighbours_store_in_order() {
    let text = "func @k (%x: ptr<global>, %n: u32) {
        %0 = special reg(ctaid.x) : u32
        %1 = bitcast %0 : i32
        %2 = const value(1) : i64
        %3 = const value(0) : u32
        %4 = tile_load %x, %1, %n, %2, %3 : tile<1xu32>
        %5 = map %4 : tile<1xu32> do {
          (%6: u32)
          %7 = add %6, %0 : u32
          yield %7
        }
        tile_store %x, %5, %1, %n, %2
        %8 = special reg(nctaid.x) : u32
        %9 = cmp %0, %n cmp(lt) : bool
        assert %9 text(\"too many programs\")
      }";
    let x: Vec<u32> = (0..1000).map(|i| i * 3).collect();
    let both = [false, true].map(|parallel| {
        let mut memory = words(&x);
        let arguments = &mut [Argument::Memory(&mut memory), scalar(700)];
        let outcome = program(text).parallel(parallel).run([900, 1, 1], arguments);
        let error = outcome.unwrap_err().to_string();
        assert_eq!(error, "`assert` in program (700, 0, 0) failed: too many programs");
        memory
    });
    assert_eq!(both[0], both[1]);
    let expected: Vec<u32> = (0..1000).map(|i| if i < 700 { i * 4 } else { i * 3 }).collect();
    assert_eq!(integers(&both[0]), expected);
}
