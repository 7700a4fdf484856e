//! How long a warp takes: `cargo test --release -p tilewright-sim --lib -- --ignored --nocapture speed`.

use std::hint::black_box;
use std::time::Instant;

use super::super::Test;
use super::values::Random;
use super::*;

#[test]
#[ignore = "prints times"]
fn speed() {
    let mut random = Random(1);
    let floats: [Lanes; 4] = std::array::from_fn(|_| {
        std::array::from_fn(|_| u64::from(((random.next() % 4096) as f32 / 512.0 + 0.01).to_bits()))
    });
    let time = |name: &str, run: &mut dyn FnMut()| {
        let rounds = 200_000;
        for _ in 0..rounds / 10 {
            run();
        }
        let start = Instant::now();
        for _ in 0..rounds {
            run();
        }
        println!("{name:24} {:6.1} ns", start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds));
    };
    for text in [
        "add.u32",
        "mad.lo.u32",
        "mul.wide.u32",
        "mul.lo.u64",
        "shl.b32",
        "shr.s32",
        "shr.s64",
        "and.b32",
        "lop3.b32",
        "prmt.b32",
        "bfe.u32",
        "div.u32",
        "add.f32",
        "fma.rn.f32",
        "fma.rn.ftz.f32",
        "fma.rz.f32",
        "div.rn.f32",
        "max.f32",
        "ex2.approx.f32",
        "ex2.approx.ftz.f32",
        "lg2.approx.f32",
        "sin.approx.f32",
        "tanh.approx.f32",
        "rcp.approx.f32",
        "rsqrt.approx.f32",
        "fma.rn.f64",
        "add.f16x2",
        "fma.rn.f16x2",
        "fma.rn.bf16x2",
        "max.bf16x2",
        "cvt.rn.bf16x2.f32",
        "cvt.rn.f16x2.f32",
        "cvt.rn.f16.f32",
        "cvt.f32.f16",
        "cvt.f32.bf16",
        "cvt.s64.s32",
        "cvt.rn.f32.s32",
        "cvt.rzi.s32.f32",
        "cvt.rni.s32.f32",
        "cvt.rn.satfinite.e4m3x2.f32",
    ] {
        let map = Map::decode(&instruction(text)).unwrap();
        time(text, &mut || {
            black_box(map.apply(black_box([&floats[0], &floats[1], &floats[2], &floats[3]])));
        });
    }
    for text in ["setp.lt.u32", "setp.lt.and.s64", "setp.gt.f32", "setp.lt.f16x2"] {
        let test = Test::decode(&instruction(text)).unwrap();
        time(text, &mut || {
            black_box(test.apply(black_box(&floats[0]), &floats[1], 5));
        });
    }
}
