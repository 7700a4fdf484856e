//! Kernels in the simulator against the CPU, on small matrices: dense, with gaps, turned, and of lengths that fill no tile.

use tilewright::device::{Device, Item};
use tilewright::kernels::gemm::epilogue::{Binary, Unary};
use tilewright::lang::{bf16, f16};
use tilewright::ops::{
    Arg, CrossEntropy, CumulativeSum, Dropout, Elementwise, Error, Glu, LayerNorm, Reduce, RmsNorm, Rows,
    Softmax, TopK, convert, embedding, transpose,
};

use super::common::{ALL_LIES, Lies, Matrix, Random, Sample, normals};

/// Rows and columns: one, odd ones, several rows for a program, one row for several steps of it.
const EXTENTS: &[(usize, usize)] = &[(1, 1), (5, 3), (9, 33), (3, 1000)];

/// Runs an operator of two inputs on CPU and simulator, and compares what it writes. `salt` adds special numbers.
fn agrees<T: Sample, U: Sample>(
    name: &str,
    tolerance: f64,
    shape: impl Fn((usize, usize)) -> (usize, usize),
    run: impl Fn(&Device, Rows<'_, T>, Rows<'_, T>, Rows<'_, U>) -> Result<(), Error>,
) {
    for (extents, lies) in EXTENTS.iter().zip(ALL_LIES) {
        let mut results = [Device::cpu(), Device::simulator()].into_iter().map(|device| {
            let numbers = |seed| -> Vec<T> {
                let mut random = Random::new(seed + 77);
                let mut all: Vec<T> =
                    normals(seed, extents.0 * extents.1, 2.0).into_iter().map(T::of).collect();
                for special in [f64::NEG_INFINITY, f64::NAN, -0.0] {
                    if all.len() > 20 {
                        let at = random.below(all.len());
                        all[at] = T::of(special);
                    }
                }
                all
            };
            let a = Matrix::new(&device, *extents, lies, &numbers(1), T::of(0.25));
            let b = Matrix::new(&device, *extents, Lies::Padded, &numbers(2), T::of(0.25));
            let out = shape(*extents);
            let y = Matrix::new(&device, out, lies, &vec![U::of(-7.0); out.0 * out.1], U::of(0.25));
            run(&device, a.view(), b.view(), y.view())
                .unwrap_or_else(|error| panic!("{name} {extents:?}: {error}"));
            y.read(U::of(0.25))
        });
        let (cpu, simulated) = (results.next().unwrap(), results.next().unwrap());
        for (i, (want, found)) in cpu.iter().zip(&simulated).enumerate() {
            let (want, found) = (want.value(), found.value());
            let same = want == found || (want.is_nan() && found.is_nan());
            let near = (want - found).abs() <= tolerance * (1.0 + want.abs()) + 2.0 * U::rounding(want);
            assert!(
                same || near,
                "{name} of {} {extents:?} {lies:?}: element {i} is {found}, on the CPU {want}",
                T::ELEMENT
            );
        }
    }
}

fn all_operators<T: Sample>() {
    let same = |extents| extents;
    agrees::<T, T>("softmax", 1e-6, same, |d, x, _, y| Softmax::new().scale(0.5).run(d, x, y));
    agrees::<T, f32>("log-softmax", 1e-6, same, |d, x, _, y| Softmax::new().log().run(d, x, y));
    agrees::<T, T>("causal softmax", 1e-6, same, |d, x, _, y| Softmax::new().causal(3).run(d, x, y));
    agrees::<T, T>("softmax with positions", 1e-6, same, |d, x, _, y| {
        let positions: Vec<i32> = (0..x.extents().0).map(|i| i as i32 * 2 - 1).collect();
        let positions = d.upload(&positions)?;
        Softmax::new().positions(&positions).run(d, x, y)
    });
    agrees::<T, T>("masked softmax", 1e-6, same, |d, x, _, y| {
        let (rows, columns) = x.extents();
        let mask: Vec<bool> = (0..rows * columns).map(|i| i % 3 != 0 && i / columns != 1).collect();
        let mask = d.upload(&mask)?;
        Softmax::new().mask(Rows::new(&mask, rows, columns)).run(d, x, y)
    });
    agrees::<T, T>("softmax, gradient", 1e-5, same, |d, x, dy, dx| Softmax::new().backward(d, x, dy, dx));
    agrees::<T, f32>(
        "cross entropy",
        1e-5,
        |(rows, _)| (rows, 1),
        |d, x, _, losses| {
            let (rows, columns) = x.extents();
            let targets: Vec<i64> =
                (0..rows).map(|i| if i == 3 { -100 } else { (i * 7 % (columns + 1)) as i64 }).collect();
            let targets = d.upload(&targets)?;
            CrossEntropy::new().smoothing(0.1).z_loss(0.01).run(d, x, &targets, losses)
        },
    );
    agrees::<T, T>("RMSNorm", 1e-5, same, |d, x, w, y| {
        RmsNorm::new(1e-5).weight(w.rows(0..1)).offset(1.0).run(d, x, y)
    });
    agrees::<T, T>("RMSNorm of a sum", 1e-5, same, |d, x, r, y| {
        let sum = d.alloc::<T>(x.extents().0 * x.extents().1)?;
        RmsNorm::new(1e-5).run_adding(d, x, r, Rows::new(&sum, x.extents().0, x.extents().1), y)
    });
    agrees::<T, T>("LayerNorm", 1e-5, same, |d, x, w, y| {
        LayerNorm::new(1e-5).affine(w.rows(0..1), w.rows(w.extents().0 - 1..w.extents().0)).run(d, x, y)
    });
    for glu in [Glu::swi(), Glu::ge(), Glu::ge_tanh()] {
        agrees::<T, T>("a gated linear unit", 1e-5, same, |d, gate, up, y| glu.run(d, gate, up, y));
    }
    for &reduce in Reduce::ALL {
        agrees::<T, f32>(
            &format!("{reduce:?}"),
            1e-5,
            |(rows, _)| (rows, 1),
            |d, x, _, y| reduce.rows(d, x, y),
        );
    }
    for (exclusive, reverse) in [(false, false), (true, true)] {
        agrees::<T, T>("a cumulative sum", 1e-4, same, |d, x, _, y| {
            let scan = if exclusive { CumulativeSum::new().exclusive() } else { CumulativeSum::new() };
            (if reverse { scan.reverse() } else { scan }).run(d, x, y)
        });
    }
    agrees::<T, T>(
        "a transposition",
        0.0,
        |(rows, columns)| (columns, rows),
        |d, x, _, y| transpose(d, x, y),
    );
    agrees::<T, f32>("a conversion", 0.0, same, |d, x, _, y| convert(d, x, y));
    agrees::<T, bf16>("a conversion", 0.0, same, |d, x, _, y| convert(d, x, y));
    agrees::<T, T>("dropout", 1e-6, same, |d, x, _, y| {
        Dropout::new(0.3, 0x1234_5678_9abc).stream(1 << 40).run(d, x, y)
    });
    agrees::<T, T>("a function", 1e-6, same, |d, x, _, y| Elementwise::new(Unary::Silu).run(d, &[x], y));
    agrees::<T, f32>("a function", 1e-6, same, |d, a, b, y| {
        Elementwise::new(Binary::Mul).run(d, &[a, b.rows(0..1)], y)
    });
    agrees::<T, T>(
        "an embedding",
        0.0,
        |(_, columns)| (4, columns),
        |d, table, _, y| {
            let indices = d.upload(&[0i32, -1, table.extents().0 as i32 - 1, 99])?;
            embedding(d, table, &indices, y)
        },
    );
    agrees::<T, T>(
        "top-k",
        0.0,
        |(rows, columns)| (rows, columns.min(3)),
        |d, x, _, y| {
            let (rows, k) = y.extents();
            let indices = d.alloc::<u32>(rows * k)?;
            TopK::new(k).run(d, x, y, Rows::new(&indices, rows, k))
        },
    );
}

#[test]
fn kernels_of_f32() {
    all_operators::<f32>();
}

#[test]
fn kernels_of_f16() {
    all_operators::<f16>();
}

#[test]
fn kernels_of_bf16() {
    all_operators::<bf16>();
}

/// Indices are the same, with equal numbers and NaN.
#[test]
fn indices_of_kernels() {
    fn on<T: Sample + Item>(device: &Device) -> Vec<Vec<u32>> {
        let mut random = Random::new(3);
        let mut values: Vec<T> = (0..6 * 70).map(|_| T::of(random.below(20) as f64 - 10.0)).collect();
        values[75] = T::of(f64::NAN);
        let x = device.upload(&values).unwrap();
        let x = Rows::new(&x, 6, 70);
        let (one, many, kept) = (
            device.alloc::<u32>(6).unwrap(),
            device.alloc::<u32>(48).unwrap(),
            device.alloc::<T>(48).unwrap(),
        );
        let mut found = Vec::new();
        for arg in [Arg::Max, Arg::Min] {
            arg.rows(device, x, &one).unwrap();
            found.push(one.to_vec().unwrap());
        }
        for top in [TopK::new(8), TopK::new(8).smallest()] {
            top.run(device, x, Rows::new(&kept, 6, 8), Rows::new(&many, 6, 8)).unwrap();
            found.push(many.to_vec().unwrap());
        }
        found
    }
    assert_eq!(on::<f32>(&Device::simulator()), on::<f32>(&Device::cpu()));
    assert_eq!(on::<bf16>(&Device::simulator()), on::<bf16>(&Device::cpu()));
}
