//! Arithmetic on values: operators, methods, conversions, vectors.

use tilewright_ir::Opcode;
use tilewright_lang::prelude::*;

use crate::{count, expect, lines};

#[kernel]
fn both_sides(x: Val<f32>, n: Val<i32>, out: Global<f32>, ints: Global<i32>) {
    let y = 2.0 * x + 1.0 - x / 3.0;
    out.store(1.0 - y);
    let mut m = ((7 % n) & 0xf) | (n ^ 1);
    m <<= 2;
    m += n * -1;
    ints.store(-m >> 1);
}

#[kernel]
fn compound(x: Val<u32>, out: Global<u32>) {
    let mut y = x;
    y += 1;
    y -= x;
    y *= 3;
    y /= x;
    y %= 5;
    y &= 6;
    y |= x;
    y ^= 7;
    y <<= x;
    y >>= 8;
    out.store(!y);
}

/// A constant on the left of every operator, for one element type.
macro_rules! left_operators {
    ($name:ident, $ty:ty, $one:expr; $($op:tt)*) => {
        #[kernel]
        fn $name(x: Val<$ty>, out: Global<$ty>) {
            $( out.store($one $op x); out.store(x $op $one); )*
        }
    };
}

left_operators!(left_i8, i8, 3i8; + - * / % & | ^);
left_operators!(left_i16, i16, 3i16; + - * / % & | ^);
left_operators!(left_i32, i32, 3i32; + - * / % & | ^);
left_operators!(left_i64, i64, 3i64; + - * / % & | ^);
left_operators!(left_u8, u8, 3u8; + - * / % & | ^);
left_operators!(left_u16, u16, 3u16; + - * / % & | ^);
left_operators!(left_u32, u32, 3u32; + - * / % & | ^);
left_operators!(left_u64, u64, 3u64; + - * / % & | ^);
left_operators!(left_f16, f16, f16::ONE; + - * /);
left_operators!(left_bf16, bf16, bf16::ONE; + - * /);
left_operators!(left_f32, f32, 1.0f32; + - * /);
left_operators!(left_f64, f64, 1.0f64; + - * /);
left_operators!(left_bool, bool, true; & | ^);

#[kernel]
fn comparisons(x: Val<f32>, n: Val<i32>, p: Val<bool>, out: Global<bool>) {
    out.store(x < 1.0);
    out.store(1.0f32 < x);
    out.store(n <= 2);
    out.store(2 >= n);
    out.store(n > n);
    out.store(x == 0.0);
    out.store(0 != n);
    out.store(p == true);
    out.store(false != p);
    out.store(x.is_nan());
}

#[kernel]
fn constants(out: Global<u8>) {
    out.cast::<bool>().store(true);
    out.cast::<i8>().store(-1i8);
    out.cast::<u16>().store(u16::MAX);
    out.cast::<i64>().store(i64::MIN);
    out.cast::<u64>().store(u64::MAX);
    out.cast::<f16>().store(f16::from_f32(1.5));
    out.cast::<bf16>().store(bf16::from_f32(-2.0));
    out.cast::<f32>().store(f32::INFINITY);
    out.cast::<f64>().store(0.1f64);
    out.cast::<Tf32>().store(Tf32(1.0));
    out.cast::<E4m3>().store(E4m3(0x38));
    out.cast::<E5m2>().store(E5m2(0x3c));
    out.cast::<Ue8m0>().store(Ue8m0(127));
}

#[kernel]
fn number_methods(x: Val<f32>, n: Val<i32>, out: Global<f32>, ints: Global<i32>) {
    out.store(x.min(1.0).max(x).abs().mul_add(2.0, x));
    out.store(min(x, 0.0) + max(x, 0.0));
    out.store(select(x < 0.0, x, 1.0));
    ints.store(n.min(1).max(2).abs().mul_add(n, 3));
    ints.store(div_ceil(n, 4));
}

#[kernel]
fn float_methods(x: Val<f32>, h: Val<f16>, out: Global<f32>, halves: Global<f16>) {
    out.store(x.min_nan(1.0));
    out.store(x.max_nan(1.0));
    out.store(x.copysign(-1.0));
    out.store(x.round_even());
    out.store(x.floor());
    out.store(x.ceil());
    out.store(x.trunc());
    out.store(x.add_rounded(1.0, Round::Up));
    out.store(x.mul_rounded(2.0, Round::Down));
    out.store(x.mul_add_rounded(2.0, 3.0, Round::Zero));
    out.store(x.add_saturating(0.5));
    halves.store(h.mul_add_relu(h, h));
}

#[kernel]
fn integer_methods(x: Val<u32>, n: Val<i32>, out: Global<u32>, wide: Global<i64>) {
    out.store(x.mul_hi(3u32));
    out.store(x.count_ones());
    out.store(n.leading_zeros());
    out.store(x.reverse_bits());
    out.store(n.find_high_bit());
    out.store(x.bit_field(4u32, x));
    out.store(x.insert_bit_field(7u32, 8u32, 3u32));
    out.store(x.permute_bytes(x, 0x3210u32));
    out.store(x.permute_bytes_in(Permute::Rc16, 0u32, x));
    out.store(x.logic3(1u32, x, |a, b, c| a & b | c));
    out.store(x.funnel_shift(x, 5u32, Funnel::LeftWrap));
    out.store(x.dot4(n, 0u32));
    out.store(n.dot2(x, Half::High, x).bitcast());
    wide.store(n.mul_wide(n));
}

#[kernel]
fn conversions(x: Val<f32>, n: Val<i32>, out: Global<f32>) {
    out.store(n.cast());
    out.cast::<bf16>().store(x.cast());
    out.cast::<i8>().store(n.cast_saturating());
    out.cast::<f16>().store(x.cast_rounded(Round::Zero));
    out.cast::<bf16>().store(x.cast_relu());
    out.cast::<Tf32>().store(x.cast_rounded(Round::Away));
    out.store(n.bitcast());
    // A conversion to the same type is none.
    out.store(x.cast::<f32>());
}

#[kernel]
fn vectors(x: Global<f32>, out: Global<f32>, halves: Global<bf16>) {
    let v = x.load_vector(4);
    let w = Vector::new([val(1.0f32), v.get(0), v.get(3), val(2.0)]);
    let sum = (v + w) * v - w / v;
    out.store_vector(sum.mul_add(v, Vector::splat(0.5, 4)).min(v).max(w));
    out.store_vector(Vector::concat([sum.slice(1, 3), w.slice(0, 1)]).with(2, 7.0));
    out.store(sum.sum());
    halves.store_vector(sum.cast::<bf16>());
    halves.store_vector(sum.cast_relu::<bf16>());
    halves.cast::<u32>().store_vector(sum.cast::<bf16>().bitcast::<u32>());
    out.store_vector(sum.map(|e| e * 2.0).exp2_fast());
    for e in v.elements() {
        out.store(e);
    }
}

/// The functions that are one instruction; what they compute is tested in `tests/math.rs`.
#[kernel]
fn elementary(x: Val<f32>, h: Val<f16>, out: Global<f32>, halves: Global<f16>) {
    out.store(x.recip_fast());
    out.store(x.sqrt());
    out.store(x.rsqrt_fast());
    out.store(x.sin_fast());
    out.store(x.cos_fast());
    out.store(x.exp2_fast());
    out.store(x.log2_fast());
    out.store(x.tanh_fast());
    halves.store(h.tanh_fast());
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [
        both_sides::stage(),
        compound::stage(),
        left_i8::stage(),
        left_i16::stage(),
        left_i32::stage(),
        left_i64::stage(),
        left_u8::stage(),
        left_u16::stage(),
        left_u32::stage(),
        left_u64::stage(),
        left_f16::stage(),
        left_bf16::stage(),
        left_f32::stage(),
        left_f64::stage(),
        left_bool::stage(),
        comparisons::stage(),
        constants::stage(),
        number_methods::stage(),
        float_methods::stage(),
        integer_methods::stage(),
        conversions::stage(),
        vectors::stage(),
        elementary::stage(),
    ]
    .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

#[test]
fn operators_take_constants_on_both_sides() {
    expect(
        &both_sides::stage().unwrap(),
        "
        func @both_sides (%x: f32, %n: i32, %out: ptr<global> align(4), %ints: ptr<global> align(4)) {
          %0 = const value(2.0) : f32
          %1 = mul %0, %x : f32
          %2 = const value(1.0) : f32
          %3 = add %1, %2 : f32
          %4 = const value(3.0) : f32
          %5 = div %x, %4 : f32
          %6 = sub %3, %5 : f32
          %7 = const value(1.0) : f32
          %8 = sub %7, %6 : f32
          store %out, %8
          %9 = const value(7) : i32
          %10 = rem %9, %n : i32
          %11 = const value(15) : i32
          %12 = and %10, %11 : i32
          %13 = const value(1) : i32
          %14 = xor %n, %13 : i32
          %15 = or %12, %14 : i32
          %16 = const value(2) : u32
          %17 = shl %15, %16 : i32
          %18 = const value(-1) : i32
          %19 = mul %n, %18 : i32
          %20 = add %17, %19 : i32
          %21 = neg %20 : i32
          %22 = const value(1) : u32
          %23 = shr %21, %22 : i32
          store %ints, %23
        }
        ",
    );
    expect(
        &compound::stage().unwrap(),
        "
        func @compound (%x: u32, %out: ptr<global> align(4)) {
          %0 = const value(1) : u32
          %1 = add %x, %0 : u32
          %2 = sub %1, %x : u32
          %3 = const value(3) : u32
          %4 = mul %2, %3 : u32
          %5 = div %4, %x : u32
          %6 = const value(5) : u32
          %7 = rem %5, %6 : u32
          %8 = const value(6) : u32
          %9 = and %7, %8 : u32
          %10 = or %9, %x : u32
          %11 = const value(7) : u32
          %12 = xor %10, %11 : u32
          %13 = shl %12, %x : u32
          %14 = const value(8) : u32
          %15 = shr %13, %14 : u32
          %16 = not %15 : u32
          store %out, %16
        }
        ",
    );
}

#[test]
fn every_element_type_has_its_operators() {
    for kernel in kernels().iter().filter(|kernel| kernel.name().starts_with("left_")) {
        let operators = match kernel.name() {
            "left_bool" => 3,
            "left_f16" | "left_bf16" | "left_f32" | "left_f64" => 4,
            _ => 8,
        };
        assert_eq!(count(kernel, Opcode::Store), 2 * operators, "{}", kernel.name());
        assert_eq!(kernel.func().walk().len(), 3 * 2 * operators, "{}: const, op, store", kernel.name());
    }
}

#[test]
fn comparisons_name_their_relation_and_keep_the_order_of_their_sides() {
    expect(
        &comparisons::stage().unwrap(),
        "
        func @comparisons (%x: f32, %n: i32, %p: bool, %out: ptr<global> align(1)) {
          %0 = const value(1.0) : f32
          %1 = cmp %x, %0 cmp(lt) : bool
          store %out, %1
          %2 = const value(1.0) : f32
          %3 = cmp %2, %x cmp(lt) : bool
          store %out, %3
          %4 = const value(2) : i32
          %5 = cmp %n, %4 cmp(le) : bool
          store %out, %5
          %6 = const value(2) : i32
          %7 = cmp %6, %n cmp(ge) : bool
          store %out, %7
          %8 = cmp %n, %n cmp(gt) : bool
          store %out, %8
          %9 = const value(0.0) : f32
          %10 = cmp %x, %9 cmp(eq) : bool
          store %out, %10
          %11 = const value(0) : i32
          %12 = cmp %11, %n cmp(ne) : bool
          store %out, %12
          %13 = const value(1) : bool
          %14 = cmp %p, %13 cmp(eq) : bool
          store %out, %14
          %15 = const value(0) : bool
          %16 = cmp %15, %p cmp(ne) : bool
          store %out, %16
          %17 = cmp %x, %x cmp(ne) : bool
          store %out, %17
        }
        ",
    );
}

#[test]
fn constants_have_the_bits_of_their_type() {
    assert_eq!(
        lines(&constants::stage().unwrap(), "const"),
        [
            "const value(1) : bool",
            "const value(-1) : i8",
            "const value(65535) : u16",
            "const value(-9223372036854775808) : i64",
            "const value(18446744073709551615) : u64",
            "const value(0x3e00) : f16",
            "const value(0xc000) : bf16",
            "const value(0x7f800000) : f32",
            "const value(0.1) : f64",
            "const value(0x3f800000) : tf32",
            "const value(0x38) : e4m3",
            "const value(0x3c) : e5m2",
            "const value(0x7f) : ue8m0"
        ]
    );
}

#[test]
fn methods_of_numbers() {
    expect(
        &number_methods::stage().unwrap(),
        "
        func @number_methods (%x: f32, %n: i32, %out: ptr<global> align(4), %ints: ptr<global> align(4)) {
          %0 = const value(1.0) : f32
          %1 = min %x, %0 : f32
          %2 = max %1, %x : f32
          %3 = abs %2 : f32
          %4 = const value(2.0) : f32
          %5 = fma %3, %4, %x : f32
          store %out, %5
          %6 = const value(0.0) : f32
          %7 = min %x, %6 : f32
          %8 = const value(0.0) : f32
          %9 = max %x, %8 : f32
          %10 = add %7, %9 : f32
          store %out, %10
          %11 = const value(0.0) : f32
          %12 = cmp %x, %11 cmp(lt) : bool
          %13 = const value(1.0) : f32
          %14 = select %12, %x, %13 : f32
          store %out, %14
          %15 = const value(1) : i32
          %16 = min %n, %15 : i32
          %17 = const value(2) : i32
          %18 = max %16, %17 : i32
          %19 = abs %18 : i32
          %20 = const value(3) : i32
          %21 = fma %19, %n, %20 : i32
          store %ints, %21
          %22 = const value(4) : i32
          %23 = add %n, %22 : i32
          %24 = const value(1) : i32
          %25 = sub %23, %24 : i32
          %26 = div %25, %22 : i32
          store %ints, %26
        }
        ",
    );
}

#[test]
fn methods_of_floats() {
    expect(
        &float_methods::stage().unwrap(),
        "
        func @float_methods (%x: f32, %h: f16, %out: ptr<global> align(4), %halves: ptr<global> align(2)) {
          %0 = const value(1.0) : f32
          %1 = min %x, %0 flags(nan) : f32
          store %out, %1
          %2 = const value(1.0) : f32
          %3 = max %x, %2 flags(nan) : f32
          store %out, %3
          %4 = const value(-1.0) : f32
          %5 = copysign %x, %4 : f32
          store %out, %5
          %6 = round_int %x round(rn) : f32
          store %out, %6
          %7 = round_int %x round(rm) : f32
          store %out, %7
          %8 = round_int %x round(rp) : f32
          store %out, %8
          %9 = round_int %x round(rz) : f32
          store %out, %9
          %10 = const value(1.0) : f32
          %11 = add %x, %10 round(rp) : f32
          store %out, %11
          %12 = const value(2.0) : f32
          %13 = mul %x, %12 round(rm) : f32
          store %out, %13
          %14 = const value(2.0) : f32
          %15 = const value(3.0) : f32
          %16 = fma %x, %14, %15 round(rz) : f32
          store %out, %16
          %17 = const value(0.5) : f32
          %18 = add %x, %17 flags(sat) : f32
          store %out, %18
          %19 = fma %h, %h, %h flags(relu) : f16
          store %halves, %19
        }
        ",
    );
}

#[test]
fn methods_of_integers() {
    expect(
        &integer_methods::stage().unwrap(),
        "
        func @integer_methods (%x: u32, %n: i32, %out: ptr<global> align(4), %wide: ptr<global> align(8)) {
          %0 = const value(3) : u32
          %1 = mul_hi %x, %0 : u32
          store %out, %1
          %2 = popc %x : u32
          store %out, %2
          %3 = clz %n : u32
          store %out, %3
          %4 = brev %x : u32
          store %out, %4
          %5 = bfind %n : u32
          store %out, %5
          %6 = const value(4) : u32
          %7 = bfe %x, %6, %x : u32
          store %out, %7
          %8 = const value(7) : u32
          %9 = const value(8) : u32
          %10 = const value(3) : u32
          %11 = bfi %8, %x, %9, %10 : u32
          store %out, %11
          %12 = const value(12816) : u32
          %13 = prmt %x, %x, %12 : u32
          store %out, %13
          %14 = const value(0) : u32
          %15 = prmt %x, %14, %x permute(rc16) : u32
          store %out, %15
          %16 = const value(1) : u32
          %17 = lop3 %x, %16, %x lut(234) : u32
          store %out, %17
          %18 = const value(5) : u32
          %19 = funnel_shift %x, %x, %18 funnel(l.wrap) : u32
          store %out, %19
          %20 = const value(0) : u32
          %21 = dp4a %x, %n, %20 : u32
          store %out, %21
          %22 = dp2a %n, %x, %x half(hi) : u32
          %23 = bitcast %22 : u32
          store %out, %23
          %24 = mul_wide %n, %n : i64
          store %wide, %24
        }
        ",
    );
}

#[test]
fn conversions_say_how() {
    expect(
        &conversions::stage().unwrap(),
        "
        func @conversions (%x: f32, %n: i32, %out: ptr<global> align(4)) {
          %0 = cvt %n : f32
          store %out, %0
          %1 = cvt %x : bf16
          store %out, %1
          %2 = cvt %n flags(sat) : i8
          store %out, %2
          %3 = cvt %x round(rz) : f16
          store %out, %3
          %4 = cvt %x flags(relu) : bf16
          store %out, %4
          %5 = cvt %x round(rna) : tf32
          store %out, %5
          %6 = bitcast %n : f32
          store %out, %6
          store %out, %x
        }
        ",
    );
}

#[test]
fn vectors_are_one_value() {
    expect(
        &vectors::stage().unwrap(),
        "
        func @vectors (%x: ptr<global> align(4), %out: ptr<global> align(4), %halves: ptr<global> align(2)) {
          %0 = load %x : 4xf32
          %1 = const value(1.0) : f32
          %2 = extract %0 index(0) : f32
          %3 = extract %0 index(3) : f32
          %4 = const value(2.0) : f32
          %5 = pack %1, %2, %3, %4 : 4xf32
          %6 = add %0, %5 : 4xf32
          %7 = mul %6, %0 : 4xf32
          %8 = div %5, %0 : 4xf32
          %9 = sub %7, %8 : 4xf32
          %10 = const value(0.5) : f32
          %11 = pack %10, %10, %10, %10 : 4xf32
          %12 = fma %9, %0, %11 : 4xf32
          %13 = min %12, %0 : 4xf32
          %14 = max %13, %5 : 4xf32
          store %out, %14
          %15 = slice %9 index(1) : 3xf32
          %16 = slice %5 index(0) : 1xf32
          %17 = concat %15, %16 : 4xf32
          %18 = const value(7.0) : f32
          %19 = insert %17, %18 index(2) : 4xf32
          store %out, %19
          %20 = extract %9 index(0) : f32
          %21 = extract %9 index(1) : f32
          %22 = extract %9 index(2) : f32
          %23 = extract %9 index(3) : f32
          %24 = add %20, %21 : f32
          %25 = add %24, %22 : f32
          %26 = add %25, %23 : f32
          store %out, %26
          %27 = cvt %9 : 4xbf16
          store %halves, %27
          %28 = cvt %9 flags(relu) : 4xbf16
          store %halves, %28
          %29 = cvt %9 : 4xbf16
          %30 = bitcast %29 : 2xu32
          store %halves, %30
          %31 = extract %9 index(0) : f32
          %32 = extract %9 index(1) : f32
          %33 = extract %9 index(2) : f32
          %34 = extract %9 index(3) : f32
          %35 = const value(2.0) : f32
          %36 = mul %31, %35 : f32
          %37 = const value(2.0) : f32
          %38 = mul %32, %37 : f32
          %39 = const value(2.0) : f32
          %40 = mul %33, %39 : f32
          %41 = const value(2.0) : f32
          %42 = mul %34, %41 : f32
          %43 = pack %36, %38, %40, %42 : 4xf32
          %44 = ex2 %43 flags(ftz approx) : 4xf32
          store %out, %44
          %45 = extract %0 index(0) : f32
          %46 = extract %0 index(1) : f32
          %47 = extract %0 index(2) : f32
          %48 = extract %0 index(3) : f32
          store %out, %45
          store %out, %46
          store %out, %47
          store %out, %48
        }
        ",
    );
}

#[test]
fn fast_functions_are_instructions() {
    expect(
        &elementary::stage().unwrap(),
        "
        func @elementary (%x: f32, %h: f16, %out: ptr<global> align(4), %halves: ptr<global> align(2)) {
          %0 = rcp %x flags(ftz approx) : f32
          store %out, %0
          %1 = sqrt %x round(rn) : f32
          store %out, %1
          %2 = rsqrt %x flags(ftz approx) : f32
          store %out, %2
          %3 = sin %x flags(ftz approx) : f32
          store %out, %3
          %4 = cos %x flags(ftz approx) : f32
          store %out, %4
          %5 = ex2 %x flags(ftz approx) : f32
          store %out, %5
          %6 = lg2 %x flags(ftz approx) : f32
          store %out, %6
          %7 = tanh %x : f32
          store %out, %7
          %8 = tanh %h : f16
          store %halves, %8
        }
        ",
    );
}
