//! Tables of the PTX manual, and the approximations.
#![allow(clippy::cast_possible_truncation, reason = "bits are cut to size")]

use tilewright_ptx::{Immediate, Type};

use super::super::{Carry, Test, immediate};
use super::values::Random;
use super::*;

const INF: f32 = f32::INFINITY;

fn single(text: &str, values: &[f32]) -> f32 {
    let bits: Vec<u64> = values.iter().map(|value| u64::from(value.to_bits())).collect();
    f32::from_bits(run(text, &bits) as u32)
}

/// The tables of PTX 9.7.3.13 to 9.7.3.22: input and result; NaN stands for any.
#[test]
fn approximations_have_the_special_cases_of_the_manual() {
    let tables: [(&str, &[(f32, f32)]); 8] = [
        ("rcp.approx.f32", &[(-INF, -0.0), (-0.0, -INF), (0.0, INF), (INF, 0.0), (f32::NAN, f32::NAN)]),
        ("sqrt.approx.f32", &[(-INF, f32::NAN), (-1.0, f32::NAN), (-0.0, -0.0), (0.0, 0.0), (INF, INF)]),
        ("rsqrt.approx.f32", &[(-INF, f32::NAN), (-1.0, f32::NAN), (-0.0, -INF), (0.0, INF), (INF, 0.0)]),
        ("sin.approx.f32", &[(-INF, f32::NAN), (-0.0, -0.0), (0.0, 0.0), (INF, f32::NAN)]),
        ("cos.approx.f32", &[(-INF, f32::NAN), (-0.0, 1.0), (0.0, 1.0), (INF, f32::NAN)]),
        (
            "lg2.approx.f32",
            &[(-INF, f32::NAN), (-1.0, f32::NAN), (-0.0, -INF), (0.0, -INF), (INF, INF), (8.0, 3.0)],
        ),
        (
            "ex2.approx.f32",
            &[
                (-INF, 0.0),
                (-0.0, 1.0),
                (0.0, 1.0),
                (INF, INF),
                (10.0, 1024.0),
                (-149.0, 1e-45),
                (128.0, INF),
            ],
        ),
        ("tanh.approx.f32", &[(-INF, -1.0), (-0.0, -0.0), (0.0, 0.0), (INF, 1.0), (1e-40, 1e-40)]),
    ];
    for (text, table) in tables {
        for &(input, result) in table {
            let found = single(text, &[input]);
            if result.is_nan() {
                assert_eq!(found.to_bits(), 0x7fff_ffff, "{text} {input}");
            } else {
                assert_eq!(found.to_bits(), result.to_bits(), "{text} {input}");
            }
        }
        assert_eq!(single(text, &[f32::NAN]).to_bits(), 0x7fff_ffff);
    }
    // PTX 9.7.3.8: with a divisor above 2^126, zero of the sign of the quotient, and NaN from infinity.
    assert_eq!(single("div.approx.f32", &[-1e38, 2e38]).to_bits(), (-0f32).to_bits());
    assert!(single("div.approx.f32", &[INF, 2e38]).is_nan());
    assert_eq!(single("div.full.f32", &[2e38, 2e38]), 1.0);
    assert_eq!(single("ex2.approx.ftz.f32", &[-127.0]), 0.0);
    assert_eq!(single("rcp.approx.ftz.f32", &[1e-40]), INF);
    assert_eq!(run("rcp.approx.ftz.f64", &[f64::NAN.to_bits()]), 0x7fff_ffff_0000_0000);
    assert_eq!(run("rcp.approx.ftz.f64", &[4f64.to_bits() | 0xffff_ffff]), 0.25f64.to_bits());
    assert_eq!(run("rsqrt.approx.ftz.f64", &[1 << 63 | 5]), f64::NEG_INFINITY.to_bits());
}

#[test]
fn approximations_are_the_nearest_number_or_one_beside_it() {
    let mut random = Random(8);
    for _ in 0..4000 {
        let x = (random.next() % 20_000_000) as f32 / 100_000.0 - 100.0;
        let (wide, positive) = (f64::from(x), f64::from(x.abs()));
        for (text, source, exact) in [
            ("ex2.approx.f32", x, wide.exp2()),
            ("lg2.approx.f32", x.abs(), positive.log2()),
            ("rsqrt.approx.f32", x.abs(), 1.0 / positive.sqrt()),
            ("sqrt.approx.f32", x.abs(), positive.sqrt()),
            ("sin.approx.f32", x, wide.sin()),
            ("tanh.approx.f32", x, wide.tanh()),
            ("rcp.approx.f32", x, 1.0 / wide),
        ] {
            let apart = single(text, &[source]).to_bits().abs_diff((exact as f32).to_bits());
            assert!(apart <= 1, "{text} {source}");
        }
    }
}

/// Undefined by PTX 9.7.1.8 and 9.7.1.9; what sm_90 gives.
#[test]
fn division_has_an_answer_for_everything() {
    for (ty, ones, least) in
        [("16", 0xffff, 1 << 15), ("32", 0xffff_ffff, 1 << 31), ("64", u64::MAX, 1 << 63)]
    {
        for sign in ["u", "s"] {
            assert_eq!(run(&format!("div.{sign}{ty}"), &[5, 0]), ones);
            assert_eq!(run(&format!("rem.{sign}{ty}"), &[5, 0]), ones);
        }
        assert_eq!(run(&format!("div.s{ty}"), &[least, u64::MAX]), least);
        assert_eq!(run(&format!("rem.s{ty}"), &[least, u64::MAX]), 0);
    }
}

/// PTX 9.7.9.21, integer notes.
#[test]
fn floats_become_integers_within_range() {
    let nan = u64::from(f32::NAN.to_bits());
    let double = f64::NAN.to_bits();
    for (text, source, result) in [
        ("cvt.rzi.s32.f32", nan, 0),
        ("cvt.rzi.s64.f32", nan, 1 << 63),
        ("cvt.rzi.u64.f32", nan, 1 << 63),
        ("cvt.rzi.s32.f64", double, 1 << 31),
        ("cvt.rzi.u8.f64", double, 0x80),
        ("cvt.rni.s32.f32", u64::from(2.5f32.to_bits()), 2),
        ("cvt.rmi.s32.f32", u64::from((-2.5f32).to_bits()), 0xffff_fffd),
        ("cvt.rpi.s8.f32", u64::from(1e9f32.to_bits()), 127),
        ("cvt.rzi.u32.f32", u64::from((-1f32).to_bits()), 0),
        ("cvt.s32.s8", 0x1_00ff, 0xffff_ffff),
        ("cvt.u32.u8", 0x1_00ff, 0xff),
        ("cvt.sat.u8.s32", 0xffff_fffe, 0),
        ("cvt.sat.s8.s32", 200, 127),
        ("cvt.u16.s32", 0xffff_8001, 0x8001),
    ] {
        assert_eq!(run(text, &[source]), result, "{text}");
    }
    // PTX 9.7.9.22: the first source goes above the second, and the third above both.
    assert_eq!(run("cvt.pack.sat.s8.s32.b32", &[300, 0xffff_ff00, 0x1234_5678]), 0x5678_7f80);
    assert_eq!(
        run("cvt.rn.bf16x2.f32", &[u64::from(1f32.to_bits()), u64::from(2f32.to_bits())]),
        0x3f80_4000
    );
}

#[test]
fn carries_chain() {
    let lanes = |value: u64| [value; 32];
    let apply = |text: &str, a: u64, b: u64, c: u64, carry: u32| {
        let (a, b, c) = (lanes(a), lanes(b), lanes(c));
        Carry::decode(&instruction(text)).unwrap().apply([&a, &b, &c, &c], carry)
    };
    let mut random = Random(6);
    for _ in 0..1000 {
        let (a, b) = (random.next(), random.next());
        let (low, carry) = apply("add.cc.u32", a & 0xffff_ffff, b & 0xffff_ffff, 0, 0);
        let (high, end) = apply("addc.u32", a >> 32, b >> 32, 0, carry);
        assert_eq!((high[3] << 32 | low[3], end), (a.wrapping_add(b), carry));
        let (low, borrow) = apply("sub.cc.u32", a & 0xffff_ffff, b & 0xffff_ffff, 0, 0);
        let (high, _) = apply("subc.cc.u32", a >> 32, b >> 32, 0, borrow);
        assert_eq!(high[3] << 32 | low[3], a.wrapping_sub(b));
    }
    assert_eq!(apply("madc.hi.cc.u32", 0xffff_ffff, 0xffff_ffff, 1, u32::MAX), (lanes(0), u32::MAX));
}

#[test]
fn comparisons_know_nan() {
    let test = |text: &str, a: f32, b: f32, c: u32| {
        let (a, b) = ([u64::from(a.to_bits()); 32], [u64::from(b.to_bits()); 32]);
        Test::decode(&instruction(text)).unwrap().apply(&a, &b, c)
    };
    for (text, nan, equal) in [
        ("setp.eq.f32", 0, 1),
        ("setp.ne.f32", 0, 0),
        ("setp.neu.f32", 1, 0),
        ("setp.equ.f32", 1, 1),
        ("setp.num.f32", 0, 1),
        ("setp.nan.f32", 1, 0),
        ("setp.geu.f32", 1, 1),
        ("setp.lt.f32", 0, 0),
    ] {
        assert_eq!(test(text, 1.0, f32::NAN, 0).0 & 1, nan, "{text}");
        assert_eq!(test(text, -0.0, 0.0, 0).0 & 1, equal, "{text}");
    }
    assert_eq!(test("setp.lt.and.f32", 1.0, 2.0, 0b101), (0b101, 0));
    assert_eq!(test("setp.lt.or.f32", 1.0, 2.0, 0b101), (u32::MAX, 0b101));
    assert_eq!(test("setp.eq.ftz.f32", 1e-40, 0.0, 0).0, u32::MAX);
    assert_eq!(test("testp.subnormal.f32", 1e-40, 0.0, 0).0, u32::MAX);
    assert_eq!(test("testp.normal.f32", 0.0, 0.0, 0).0, u32::MAX);
}

#[test]
fn constants_take_the_type_of_their_source() {
    for (value, ty, bits) in [
        (Immediate::Int(-1), Type::U32, 0xffff_ffff),
        (Immediate::Int(0x1_2345), Type::U16, 0x2345),
        (Immediate::Unsigned(u64::MAX), Type::B64, u64::MAX),
        (Immediate::WarpSize, Type::U32, 32),
        (Immediate::F32(0x3f80_0000), Type::F32, 0x3f80_0000),
        (Immediate::F32(0x3f80_0000), Type::F64, 1f64.to_bits()),
        (Immediate::F32(0x3f80_0000), Type::B32, 0x3f80_0000),
        (Immediate::F64(0.1f64.to_bits()), Type::F32, u64::from(0.1f32.to_bits())),
        (Immediate::F64(0.1f64.to_bits()), Type::B64, 0.1f64.to_bits()),
        (Immediate::F64(1f64.to_bits()), Type::F16, 0x3c00),
    ] {
        assert_eq!(immediate(value, ty), bits, "{value:?} {ty}");
    }
}

#[test]
fn what_is_no_arithmetic_does_not_decode() {
    for text in [
        "mov.u32",
        "selp.b32",
        "and.pred",
        "ld.global.u32",
        "add.f32.sat.sat.wide",
        "add.rn.u32",
        "mul.u32",
        "mad.u32",
        "fma.f32",
        "setp.lt.b32",
        "cvt.f32.f64",
        "cvt.s32.f32",
        "cvt.rn.s32.f32",
        "cvt.rs.f16x2.f32",
        "min.relu.u32",
        "shf.l.b32",
        "ex2.f32",
        "add.cc.f32",
        "div.f32",
        "add",
        "add.f32.f32",
        "mul.wide.u64",
    ] {
        let instruction = instruction(text);
        let nothing = Map::decode(&instruction).is_none()
            && Carry::decode(&instruction).is_none()
            && Test::decode(&instruction).is_none();
        assert!(nothing, "{text}");
    }
}
