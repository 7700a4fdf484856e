//! Arithmetic against implementations made by others: `rustc_apfloat` for IEEE 754, `half` for 16-bit formats, 128-bit
//! integers, and models bit by bit.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "bits are cut to size"
)]

use rustc_apfloat::ieee::{BFloat, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};
use tilewright_ptx::Type;

use super::super::{Combine, Rounding, Small, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::values::{Random, edges, specials};
use super::*;

const MODES: [(&str, Round); 4] = [
    ("rn", Round::NearestTiesToEven),
    ("rz", Round::TowardZero),
    ("rm", Round::TowardNegative),
    ("rp", Round::TowardPositive),
];

/// `rustc_apfloat`'s result with the NaN that the hardware gives.
fn canonical<F: Float>(value: F, nan: u64) -> u64 {
    if value.is_nan() { nan } else { value.to_bits() as u64 }
}

fn against<F: Float>(ty: Type, nan: u64, modes: &[(&str, Round)]) {
    let mut values = edges(ty);
    values.extend(specials(ty));
    let mut random = Random(11);
    let keep = u64::MAX >> (64 - ty.bits());
    let of = |bits: u64| F::from_bits(u128::from(bits & keep));
    for _ in 0..6000 {
        let [a, b, c] = std::array::from_fn(|_| {
            if random.next().is_multiple_of(4) { random.next() } else { random.pick(&values) }
        });
        for &(mode, round) in modes {
            let (x, y, z) = (of(a), of(b), of(c));
            assert_eq!(
                run(&format!("add.{mode}.{ty}"), &[a, b]),
                canonical(x.add_r(y, round).value, nan),
                "{a:x}+{b:x}"
            );
            assert_eq!(
                run(&format!("sub.{mode}.{ty}"), &[a, b]),
                canonical(x.sub_r(y, round).value, nan),
                "{a:x}-{b:x}"
            );
            assert_eq!(
                run(&format!("mul.{mode}.{ty}"), &[a, b]),
                canonical(x.mul_r(y, round).value, nan),
                "{a:x}*{b:x}"
            );
            let fused = canonical(x.mul_add_r(y, z, round).value, nan);
            assert_eq!(run(&format!("fma.{mode}.{ty}"), &[a, b, c]), fused, "{a:x}*{b:x}+{c:x}");
            if ty == Type::F32 {
                assert_eq!(
                    run(&format!("div.{mode}.{ty}"), &[a, b]),
                    canonical(x.div_r(y, round).value, nan),
                    "{a:x}/{b:x}"
                );
            }
        }
    }
}

#[test]
fn single_precision_agrees_with_apfloat_in_all_modes() {
    against::<Single>(Type::F32, 0x7fff_ffff, &MODES);
}

#[test]
fn half_precision_agrees_with_apfloat() {
    against::<Half>(Type::F16, 0x7fff, &MODES[..1]);
    against::<BFloat>(Type::Bf16, 0x7fff, &MODES[..1]);
}

#[test]
fn both_compilations_of_fma_agree() {
    let mut random = Random(5);
    for _ in 0..200_000 {
        let [a, b, c] = std::array::from_fn(|_| f32::from_bits(random.value(Type::F32) as u32));
        let (slow, fast) = (super::super::float::fused::<false>(a, b, c), a.mul_add(b, c));
        assert!(slow.to_bits() == fast.to_bits() || (slow.is_nan() && fast.is_nan()), "{a:e} {b:e} {c:e}");
    }
}

#[test]
fn every_half_converts_as_crate_half_does() {
    for bits in 0..=u16::MAX {
        let (f16, bf16) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
        if !f16.is_nan() {
            assert_eq!(f16_to_f32(bits).to_bits(), f16.to_f32().to_bits(), "{bits:x}");
            assert_eq!(Small::F16.decode(u32::from(bits)).to_bits(), f16.to_f64().to_bits());
            assert_eq!(f32_to_f16(f16.to_f32()), bits);
        }
        if !bf16.is_nan() {
            assert_eq!(bf16_to_f32(bits).to_bits(), bf16.to_f32().to_bits(), "{bits:x}");
            assert_eq!(f32_to_bf16(bf16.to_f32()), bits);
        }
    }
}

#[test]
fn narrowing_agrees_with_apfloat_in_all_modes() {
    let mut random = Random(3);
    let modes = [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up];
    for _ in 0..20_000 {
        let bits = random.value(Type::F32) as u32;
        let value = f32::from_bits(bits);
        for (rounding, (_, round)) in modes.into_iter().zip(MODES) {
            let wide = Single::from_bits(u128::from(bits));
            let half: Half = wide.convert_r(round, &mut false).value;
            let brain: BFloat = wide.convert_r(round, &mut false).value;
            let ours = |format: Small| u64::from(format.encode(f64::from(value), rounding, false));
            assert_eq!(ours(Small::F16), canonical(half, 0x7fff), "{bits:x} {rounding:?}");
            assert_eq!(ours(Small::BF16), canonical(brain, 0x7fff), "{bits:x} {rounding:?}");
            if rounding == Rounding::Nearest {
                assert_eq!(u64::from(f32_to_f16(value)), canonical(half, 0x7fff), "{bits:x}");
                assert_eq!(u64::from(f32_to_bf16(value)), canonical(brain, 0x7fff), "{bits:x}");
            }
        }
    }
}

/// 8-bit floats after their definition: sign, exponent, fraction.
fn eight_bits(bits: u32, exponent_bits: u32, bias: i32) -> f64 {
    let fraction_bits = 7 - exponent_bits;
    let sign = if bits >> 7 == 1 { -1.0 } else { 1.0 };
    let exponent = (bits >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
    let (whole, exponent) = if exponent == 0 { (0.0, 1) } else { (1.0, exponent) };
    sign * (whole + fraction) * 2f64.powi(exponent - bias)
}

#[test]
fn every_8_bit_float_decodes_and_encodes() {
    for bits in 0..=255u32 {
        let (e4m3, e5m2) = (Small::E4M3.decode(bits), Small::E5M2.decode(bits));
        match bits & 0x7f {
            0x7f => assert!(e4m3.is_nan()),
            _ => assert_eq!(e4m3, eight_bits(bits, 4, 7), "{bits:x}"),
        }
        match bits & 0x7f {
            0x7c => assert!(e5m2.is_infinite()),
            0x7d.. => assert!(e5m2.is_nan()),
            _ => assert_eq!(e5m2, eight_bits(bits, 5, 15), "{bits:x}"),
        }
        for (format, value) in [(Small::E4M3, e4m3), (Small::E5M2, e5m2)] {
            if value.is_finite() {
                assert_eq!(format.encode(value, Rounding::Nearest, true), bits);
            }
        }
    }
    // Half way between two neighbours goes to the even one.
    for bits in 0..0x7d {
        let (low, high) = (Small::E4M3.decode(bits), Small::E4M3.decode(bits + 1));
        assert_eq!(Small::E4M3.encode((low + high) / 2.0, Rounding::Nearest, true), (bits + 1) & !1);
    }
}

#[test]
fn integers_agree_with_wide_arithmetic() {
    let mut random = Random(9);
    for _ in 0..3000 {
        for (ty, bits, signed) in [
            ("u16", 16, false),
            ("s16", 16, true),
            ("u32", 32, false),
            ("s32", 32, true),
            ("u64", 64, false),
            ("s64", 64, true),
        ] {
            let [a, b, c] = std::array::from_fn(|_| random.value(Type::U64));
            let wide = |value: u64| match signed {
                true => i128::from((value << (64 - bits)) as i64 >> (64 - bits)),
                false => i128::from(value & (u64::MAX >> (64 - bits))),
            };
            let cut = |value: i128| value as u64 & (u64::MAX >> (64 - bits));
            let (x, y, z) = (wide(a), wide(b), wide(c));
            // The product of two 64-bit numbers without sign needs all of 128 bits.
            let high = if signed { (x * y) >> bits } else { ((x as u128 * y as u128) >> bits) as i128 };
            assert_eq!(run(&format!("add.{ty}"), &[a, b]), cut(x + y));
            assert_eq!(run(&format!("sub.{ty}"), &[a, b]), cut(x - y));
            assert_eq!(run(&format!("mul.hi.{ty}"), &[a, b]), cut(high));
            assert_eq!(run(&format!("mad.lo.{ty}"), &[a, b, c]), cut(x.wrapping_mul(y).wrapping_add(z)));
            assert_eq!(run(&format!("min.{ty}"), &[a, b]), cut(x.min(y)));
            assert_eq!(run(&format!("max.{ty}"), &[a, b]), cut(x.max(y)));
            assert_eq!(run(&format!("sad.{ty}"), &[a, b, c]), cut(z + (x - y).abs()));
            if y != 0 {
                assert_eq!(run(&format!("div.{ty}"), &[a, b]), cut(x / y), "{x}/{y}");
                assert_eq!(run(&format!("rem.{ty}"), &[a, b]), cut(x % y), "{x}%{y}");
            }
        }
    }
}

#[test]
fn bit_operations_agree_with_models_bit_by_bit() {
    let mut random = Random(2);
    for _ in 0..5000 {
        let [a, b, c] = std::array::from_fn(|_| random.value(Type::U64) & 0xffff_ffff);
        let (at, width) = (random.amount() & 0xffff_ffff, random.amount() & 0xffff_ffff);
        let bit = |value: u64, at: u64| value >> at & 1;
        let table = random.next() & 0xff;
        let lop = (0..32).fold(0, |out, i| {
            let row = bit(a, i) << 2 | bit(b, i) << 1 | bit(c, i);
            out | (table >> row & 1) << i
        });
        assert_eq!(run("lop3.b32", &[a, b, c, table]), lop, "{table:x}");
        let (pos, len) = (at & 0xff, width & 0xff);
        let bfe = (0..32).fold(0, |out, i| {
            let there = i < len && pos + i <= 31;
            out | if there { bit(a, pos + i) << i } else { 0 }
        });
        assert_eq!(run("bfe.u32", &[a, at, width]), bfe);
        let bfi = (0..32).fold(b, |out, i| {
            if i < len && pos + i <= 31 { out & !(1 << (pos + i)) | bit(a, i) << (pos + i) } else { out }
        });
        assert_eq!(run("bfi.b32", &[a, b, at, width]), bfi);
        let both = b << 32 | a;
        let byte = |selector: u64| {
            let value = both >> (8 * (selector & 7)) & 0xff;
            if selector & 8 == 0 { value } else { 0xff * (value >> 7) }
        };
        assert_eq!(
            run("prmt.b32", &[a, b, c]),
            (0..4).fold(0, |out, i| out | byte(c >> (4 * i) & 15) << (8 * i))
        );
        let clamped = at.min(32);
        assert_eq!(
            run("shf.l.clamp.b32", &[a, b, at]),
            (0..32).fold(0, |out, i| out | bit(both, i + 32 - clamped) << i)
        );
        assert_eq!(
            run("shf.r.wrap.b32", &[a, b, at]),
            (0..32).fold(0, |out, i| out | bit(both, i + (at & 31)) << i)
        );
    }
}

#[test]
fn combining_is_what_the_instructions_do() {
    let mut random = Random(4);
    for (combine, text, ty) in [
        (Combine::Add, "add.u32", Type::U32),
        (Combine::Add, "add.f32", Type::F32),
        (Combine::Add, "add.f64", Type::F64),
        (Combine::Add, "add.f16x2", Type::F16x2),
        (Combine::Add, "add.bf16x2", Type::Bf16x2),
        (Combine::Add, "add.bf16", Type::Bf16),
        (Combine::Min, "min.s32", Type::S32),
        (Combine::Max, "max.s64", Type::S64),
        (Combine::Max, "max.u64", Type::U64),
        (Combine::Min, "min.f16", Type::F16),
        (Combine::Max, "max.bf16x2", Type::Bf16x2),
        (Combine::Xor, "xor.b64", Type::B64),
    ] {
        for _ in 0..2000 {
            let (a, b) = (random.value(ty), random.value(ty));
            assert_eq!(combine.apply(ty, a, b, 0), Some(run(text, &[a, b])), "{text} {a:x} {b:x}");
        }
    }
    for (old, value, inc, dec) in [(0, 3, 1, 3), (2, 3, 3, 1), (3, 3, 0, 2), (9, 3, 0, 3), (0, 0, 0, 0)] {
        assert_eq!(Combine::Inc.apply(Type::U32, old, value, 0), Some(inc));
        assert_eq!(Combine::Dec.apply(Type::U32, old, value, 0), Some(dec));
    }
    assert_eq!(Combine::Cas.apply(Type::B16, 0x1_0005, 7, 5), Some(7));
    assert_eq!(Combine::Cas.apply(Type::B64, 5, 7, 6), Some(5));
    for (combine, ty) in [
        (Combine::And, Type::F32),
        (Combine::Inc, Type::U64),
        (Combine::Add, Type::B32),
        (Combine::Exch, Type::B128),
    ] {
        assert_eq!(combine.apply(ty, 1, 1, 1), None);
    }
}
