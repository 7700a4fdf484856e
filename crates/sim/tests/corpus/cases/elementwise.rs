//! Vector types, grid strides, packed halves, eight-bit floats.

use half::{bf16, f16};

use crate::case::Case;
use crate::numbers::{Random, eight_bit_code, eight_bit_value, wide};

const FILES: [&str; 4] =
    ["elementwise_sm70", "elementwise_sm80", "elementwise_sm90_lineinfo", "elementwise_sm80_debug"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(1);
    let mut cases = Vec::new();
    let case = |entry| Case::new(&FILES, entry).grid(2, 1).block(128, 1);

    let (x, y) = (random.f32s(1000, -8.0, 8.0), random.f32s(1000, -8.0, 8.0));
    let sums: Vec<f64> = x.iter().zip(&y).map(|(&x, &y)| 2.5 * f64::from(x) + f64::from(y)).collect();
    cases.push(case("saxpy").f32(2.5).input(&x).update_near(&y, &sums, 1e-6, 2e-6).u32(1000));

    let scaled: Vec<f32> = x[..400].iter().map(|v| v * 0.3).collect();
    cases.push(case("scale4").input(&x[..400]).exact(&scaled).f32(0.3).u32(100));

    let (a, b) = (wide(&x), wide(&y));
    let products: Vec<f64> = (0..200)
        .flat_map(|i| {
            let (p, q) = (2 * i, 2 * i + 1);
            [a[p] * b[p] - a[q] * b[q], a[p] * b[q] + a[q] * b[p]]
        })
        .collect();
    cases.push(
        case("complex_product").input(&x[..400]).input(&y[..400]).near::<f32>(&products, 1e-6, 1e-5).u32(200),
    );

    let pixels: Vec<u8> = random.u32s(600).iter().map(|&v| v as u8).collect();
    let gray: Vec<u8> = pixels
        .chunks(3)
        .map(|p| ((77 * u32::from(p[0]) + 150 * u32::from(p[1]) + 29 * u32::from(p[2])) >> 8) as u8)
        .collect();
    cases.push(case("gray").input(&pixels).exact(&gray).u32(200));

    let mut some_halves =
        |count| -> Vec<f16> { random.f32s(count, -4.0, 4.0).into_iter().map(f16::from_f32).collect() };
    let (ha, hb, hc) = (some_halves(400), some_halves(400), some_halves(400));
    let fused: Vec<f16> =
        (0..400).map(|i| f16::from_f64(ha[i].to_f64() * hb[i].to_f64() + hc[i].to_f64())).collect();
    cases.push(case("half2_multiply_add").input(&ha).input(&hb).input(&hc).exact(&fused).u32(200));

    // Every 257th pattern and its neighbours: denormals, infinities and NaNs among them.
    let patterns: Vec<f16> = (0..255u16).map(|i| f16::from_bits(i.wrapping_mul(257))).collect();
    let floats: Vec<f32> = patterns.iter().map(|v| v.to_f32()).collect();
    cases.push(case("half_to_float").input(&patterns).exact(&floats).u32(255));

    let mut some_bfloats =
        |count| -> Vec<bf16> { random.f32s(count, -9.0, 9.0).into_iter().map(bf16::from_f32).collect() };
    let (p, q) = (some_bfloats(250), some_bfloats(250));
    let averages: Vec<bf16> =
        p.iter().zip(&q).map(|(p, q)| bf16::from_f32(0.5 * (p.to_f32() + q.to_f32()))).collect();
    cases.push(case("bfloat_average").input(&p).input(&q).exact(&averages).u32(250));
    let maxima: Vec<bf16> = p.iter().zip(&q).map(|(p, q)| if p > q { *p } else { *q }).collect();
    cases.push(case("bfloat2_maximum").input(&p).input(&q).exact(&maxima).u32(125));

    // From far below the smallest to above the biggest of both formats.
    let mut spread: Vec<f32> =
        (0..240).map(|i| 1.37f32.powi(i / 2 - 70) * if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    spread.extend([0.0, -0.0, 1.0625, 1.1875, 448.0, 464.0, 500.0, 57344.0, 61440.0, 1e30]);
    let e4m3: Vec<u8> = spread.iter().map(|&v| eight_bit_code(v, 3)).collect();
    let e5m2: Vec<u8> = spread.iter().map(|&v| eight_bit_code(v, 2)).collect();
    let back: Vec<f32> = e4m3.iter().map(|&code| eight_bit_value(code, 3) as f32).collect();
    cases.push(case("eight_bit_floats").input(&spread).exact(&e4m3).exact(&e5m2).exact(&back).u32(250));

    let reals = random.f32s(250, -300.0, 300.0);
    let bytes: Vec<i8> = reals.iter().map(|v| v.round_ties_even().clamp(-128.0, 127.0) as i8).collect();
    let words: Vec<u16> = reals.iter().map(|v| v.abs() as u16).collect();
    let longs: Vec<i64> = reals.iter().map(|v| (v * 1024.0).floor() as i64).collect();
    cases.push(case("narrowing").input(&reals).exact(&bytes).exact(&words).exact(&longs).u32(250));
    cases
}
