//! Floating-point functions against double precision.

use crate::case::Case;
use crate::numbers::{Random, error_function};

const COUNT: usize = 240;

/// `out[f * n + i] = f(x[i])`.
fn table<T: Copy>(x: &[T], functions: &[fn(T) -> f64]) -> Vec<f64> {
    functions.iter().flat_map(|f| x.iter().map(|&x| f(x))).collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(3);
    let precise = ["math_sm80", "math_sm70_nofmad"];
    let n = COUNT as u32;

    let exponentials: [fn(f32) -> f64; 8] = [
        |x| f64::from(x).exp(),
        |x| shifted(x).ln(),
        |x| f64::from(x).exp2(),
        |x| shifted(x).log2(),
        |x| shifted(x).powf(f64::from(1.7f32)),
        |x| f64::from(x).tanh(),
        |x| shifted(x).ln_1p(),
        |x| f64::from(x).exp_m1(),
    ];
    let x = random.f32s(COUNT, -10.0, 10.0);
    let near_zero = random.f32s(COUNT, -3.0, 3.0);

    // Small angles, and ones that take many words of 2/pi to reduce.
    let mut angles = random.f32s(COUNT, -7.0, 7.0);
    for (i, angle) in angles.iter_mut().enumerate() {
        *angle *= [1.0, 1.0, 1e3, 1e6, 1e12, 1e37][i % 6];
    }
    let trigonometry: [fn(f32) -> f64; 4] = [
        |x| f64::from(x).sin(),
        |x| f64::from(x).cos(),
        |x| f64::from(x).sin().atan2(f64::from(x).cos() + 2.0),
        |x| f64::from(x).sin().asin(),
    ];

    let roots: [fn(f32) -> f64; 8] = [
        |x| shifted(x).sqrt(),
        |x| 1.0 / shifted(x).sqrt(),
        |x| f64::from(x).cbrt(),
        |x| 1.0 / shifted(x),
        |x| f64::from(x) / shifted(x),
        |x| f64::from(x % 0.37),
        |x| error_function(f64::from(x)),
        |x| f64::from(x.round_ties_even() + x.trunc() * 0.5),
    ];

    // The second half has results that are denormal.
    let mut a = random.f32s(COUNT, -100.0, 100.0);
    let mut b = random.f32s(COUNT, 0.5, 90.0);
    for i in COUNT / 2..COUNT {
        a[i] *= 1e-38;
        b[i] *= if i % 2 == 0 { 1e-2 } else { -0.3 };
    }
    let rounded: Vec<f32> = (0..7)
        .flat_map(|f| a.iter().zip(&b).map(move |(&a, &b)| rounding(f, a, b)).collect::<Vec<_>>())
        .collect();

    let (p, q) = (random.f64s(COUNT, -50.0, 50.0), random.f64s(COUNT, -9.0, 9.0));
    let doubles: [fn(f64, f64) -> f64; 8] = [
        |a, b| a / b,
        |a, _| a.abs().sqrt(),
        |_, b| b.exp(),
        |a, _| (a.abs() + 0.5).ln(),
        |a, b| a.mul_add(b, a),
        |a, _| a.sin(),
        |a, b| a.floor() + b.round_ties_even(),
        |a, b| (a.abs() + 0.5).powf(b),
    ];
    let doubled: Vec<f64> =
        doubles.iter().flat_map(|f| p.iter().zip(&q).map(|(&a, &b)| f(a, b)).collect::<Vec<_>>()).collect();

    let case = |entry| Case::new(&precise, entry).grid(2, 1).block(128, 1);
    let fast = |entry| Case::new(&["math_sm90_fast"], entry).grid(2, 1).block(128, 1);
    vec![
        case("exponentials").input(&x).near::<f32>(&table(&x, &exponentials), 1e-6, 1e-7).u32(n),
        fast("exponentials")
            .input(&near_zero)
            .near::<f32>(&table(&near_zero, &exponentials), 2e-3, 1e-3)
            .u32(n),
        // The arc sine is steep at its ends, where the rounding of its argument shows.
        case("trigonometry").input(&angles).near::<f32>(&table(&angles, &trigonometry), 1e-6, 6e-4).u32(n),
        case("roots").input(&x).near::<f32>(&table(&x, &roots), 1e-6, 1e-7).u32(n),
        case("rounding").input(&a).input(&b).exact(&rounded).u32(n),
        case("doubles").input(&p).input(&q).near::<f64>(&doubled, 1e-14, 1e-14).u32(n),
        fast("doubles").input(&p).input(&q).near::<f64>(&doubled, 1e-14, 1e-14).u32(n),
    ]
}

/// The argument of functions that want a positive one, rounded as the kernel rounds it.
fn shifted(x: f32) -> f64 {
    f64::from(x.abs() + 0.01)
}

fn rounding(function: usize, a: f32, b: f32) -> f32 {
    let (wide_a, wide_b) = (f64::from(a), f64::from(b));
    match function {
        0 => a.mul_add(b, -a),
        1 => {
            // What a double does not hold of the sum is what is left of the smaller number.
            let (big, small) = if wide_a.abs() > wide_b.abs() { (wide_a, wide_b) } else { (wide_b, wide_a) };
            let sum = big + small;
            let nearest = sum as f32;
            let rest = (sum - f64::from(nearest)) + (small - (sum - big));
            // One step towards zero if rounding went away from it.
            let away = rest != 0.0 && (rest < 0.0) != (nearest < 0.0);
            if away { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
        }
        2 => {
            let nearest = (wide_a * wide_b) as f32;
            if f64::from(nearest) < wide_a * wide_b { nearest.next_up() } else { nearest }
        }
        3 => a / b,
        4 => a.abs().sqrt(),
        5 => a.min(b) - a.max(b),
        _ => a.copysign(b),
    }
}
