//! Kernels on a GPU, or else in the simulator, against the CPU, on small matrices: dense, with gaps, turned, and of lengths that fill no tile.

use tilewright::device::{Argument, Buffer, Device, DeviceKind, Item};
use tilewright::hardware::Arch;
use tilewright::kernels::gemm::epilogue::{Binary, Unary};
use tilewright::kernels::ops;
use tilewright::lang::{E4m3, Error as LangError, Kernel, bf16, f16};
use tilewright::ops::{
    Arg, CrossEntropy, CumulativeSum, Dropout, Elementwise, Error, Glu, LayerNorm, QuantItem, Quantise,
    Reduce, RmsNorm, Rope, Rows, Softmax, TopK, convert, dequantise, embedding, permute, transpose,
};
use tilewright::sim::Options;

use super::common::{ALL_LIES, Lies, Matrix, Random, Sample, machine, normals};

/// Rows and columns: one, odd ones, several rows for a program, one row for several steps of it.
const EXTENTS: &[(usize, usize)] = &[(1, 1), (5, 3), (9, 33), (3, 1000)];

/// Runs an operator of two inputs on the CPU and by kernels, and compares what it writes. `salt` adds special numbers.
fn agrees<T: Sample, U: Sample>(
    name: &str,
    tolerance: f64,
    shape: impl Fn((usize, usize)) -> (usize, usize),
    run: impl Fn(&Device, Rows<'_, T>, Rows<'_, T>, Rows<'_, U>) -> Result<(), Error>,
) {
    for (extents, lies) in EXTENTS.iter().zip(ALL_LIES) {
        let mut results = [Device::cpu(), machine()].into_iter().map(|device| {
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
    for (log, by_position) in [(false, false), (true, true)] {
        agrees::<T, f32>("causal softmax with a mask", 1e-5, same, |d, x, _, y| {
            let (rows, columns) = x.extents();
            let mask: Vec<bool> = (0..rows * columns).map(|i| i % 3 != 0 && i / columns != 1).collect();
            let positions: Vec<i32> = (0..rows).map(|i| [i32::MAX, -1, 20, 0][i % 4]).collect();
            let (mask, positions) = (d.upload(&mask)?, d.upload(&positions)?);
            let softmax = Softmax::new().scale(-0.5).mask(Rows::new(&mask, rows, columns));
            let softmax = if log { softmax.log() } else { softmax };
            if by_position { softmax.positions(&positions) } else { softmax.causal(4) }.run(d, x, y)
        });
    }
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
    agrees::<T, T>("LayerNorm of a sum", 1e-5, same, |d, x, r, y| {
        let (rows, columns) = x.extents();
        let (sum, weight) = (d.alloc::<T>(rows * columns)?, d.upload(&vec![0.5f32; columns])?);
        LayerNorm::new(1e-3).affine(&weight, &weight).run_adding(d, x, r, Rows::new(&sum, rows, columns), y)
    });
    agrees::<T, T>("the sum of LayerNorm", 0.0, same, |d, x, r, sum| {
        let (rows, columns) = x.extents();
        let y = d.alloc::<f32>(rows * columns)?;
        LayerNorm::new(1e-3).run_adding(d, x, r, sum, Rows::new(&y, rows, columns))
    });
    agrees::<T, T>("LayerNorm", 1e-5, same, |d, x, w, y| {
        LayerNorm::new(1e-5).affine(w.rows(0..1), w.rows(w.extents().0 - 1..w.extents().0)).run(d, x, y)
    });
    for glu in [Glu::swiglu(), Glu::geglu(), Glu::geglu_tanh()] {
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

/// Gradients with sums over rows, reductions of everything, rotations and other orders.
fn more_operators<T: Sample>() {
    let same = |extents| extents;
    agrees::<T, T>("RMSNorm, gradient", 1e-4, same, |d, x, dy, dx| {
        let dw = d.alloc::<f32>(x.extents().1)?;
        RmsNorm::new(1e-5).weight(dy.rows(0..1)).offset(1.0).backward(d, x, dy, dx, &dw)
    });
    agrees::<T, f32>(
        "RMSNorm, gradient of weights",
        1e-4,
        |(_, n)| (1, n),
        |d, x, dy, dw| {
            let dx = d.alloc::<T>(x.extents().0 * x.extents().1)?;
            RmsNorm::new(1e-5).backward(d, x, dy, Rows::new(&dx, x.extents().0, x.extents().1), dw)
        },
    );
    agrees::<T, T>("LayerNorm, gradient", 1e-3, same, |d, x, dy, dx| {
        let (dw, db) = (d.alloc::<f32>(x.extents().1)?, d.alloc::<f32>(x.extents().1)?);
        LayerNorm::new(1e-2).weight(dy.rows(0..1)).backward(d, x, dy, dx, &dw, &db)
    });
    for biases in [false, true] {
        agrees::<T, f32>(
            "LayerNorm, gradients of weights and biases",
            1e-3,
            |(_, n)| (1, n),
            |d, x, dy, sums| {
                let (rows, columns) = x.extents();
                let (dx, other) = (d.alloc::<T>(rows * columns)?, d.alloc::<f32>(columns)?);
                let (dx, other) = (Rows::new(&dx, rows, columns), Rows::from(&other));
                let (dw, db) = if biases { (other, sums) } else { (sums, other) };
                LayerNorm::new(1e-2).backward(d, x, dy, dx, dw, db)
            },
        );
    }
    agrees::<T, T>("cross entropy, gradient", 1e-5, same, |d, x, _, dx| {
        let (rows, columns) = x.extents();
        let targets: Vec<i32> =
            (0..rows).map(|i| if i == 3 { -100 } else { (i * 7 % (columns + 1)) as i32 }).collect();
        let (targets, given) = (d.upload(&targets)?, d.upload(&[0.5f32])?);
        CrossEntropy::new().smoothing(0.1).z_loss(0.01).backward(d, x, &targets, &given, dx)
    });
    for &reduce in Reduce::ALL {
        let name = format!("{reduce:?} of all");
        agrees::<T, f32>(&name, 1e-5, |_| (1, 1), |d, x, _, y| reduce.all(d, x, y));
    }
    for rope in [Rope::new(8), Rope::new(10).rotary(4).interleaved().inverse(), Rope::new(5).rotary(2)] {
        agrees::<T, T>(
            "RoPE",
            1e-6,
            |(rows, _)| (rows, 40),
            |d, _, _, y| {
                let tokens = y.extents().0;
                let numbers: Vec<T> = normals(5, tokens * 40, 1.0).into_iter().map(T::of).collect();
                let x = d.upload(&numbers)?;
                let (cos, sin) = rope.tables(100.0, tokens);
                let pairs = cos.len() / tokens;
                let (cos, sin) = (d.upload(&cos)?, d.upload(&sin)?);
                let (cos, sin) = (Rows::new(&cos, tokens, pairs), Rows::new(&sin, tokens, pairs));
                rope.run(d, Rows::new(&x, tokens, 40), cos, sin, y)?;
                let positions: Vec<i32> = (0..tokens).map(|i| 2 - i as i32).collect();
                let positions = d.upload(&positions)?;
                // In place: small tiles, of which several threads hold copies.
                rope.positions(&positions).run(d, y, cos, sin, y)
            },
        );
    }
    quantised::<T, E4m3>();
    quantised::<T, i8>();
}

/// What numbers stand for after they were quantised: the same bits on all devices.
fn quantised<T: Sample, Q: QuantItem>() {
    for quantise in [Quantise::per_row(), Quantise::per_tensor(), Quantise::with_scale()] {
        agrees::<T, f32>(
            &format!("{quantise:?}"),
            0.0,
            |extents| extents,
            |d, x, _, y| {
                let (rows, columns) = x.extents();
                let q = d.alloc::<Q>(rows * columns)?;
                let q = Rows::new(&q, rows, columns);
                let scales =
                    d.upload(&vec![0.03f32; if quantise == Quantise::per_row() { rows } else { 1 }])?;
                quantise.run(d, x, q, &scales)?;
                dequantise(d, q, &scales, y)
            },
        );
    }
}

/// RMSNorm in 8 bits: scales of all rows, and numbers that are the same or next to each other, as the last bit of a norm may differ.
fn quantised_norms<T: Sample, Q: QuantItem + PartialEq + std::fmt::Debug>(next: impl Fn(f32) -> f32) {
    for (extents, lies) in [(1, 1), (7, 3), (9, 33), (6, 1000)].into_iter().zip(ALL_LIES) {
        for adding in [false, true] {
            let [cpu, simulated] = [Device::cpu(), machine()].map(|device| {
                let count = extents.0 * extents.1;
                let mut numbers: Vec<T> = normals(1, count, 2.0).into_iter().map(T::of).collect();
                if extents.0 > 5 {
                    // A row of zeros, one with NaN, with infinity, of numbers next to zero.
                    let row = |i: usize| i * extents.1..(i + 1) * extents.1;
                    numbers[row(1)].fill(T::of(0.0));
                    numbers[row(2)][0] = T::of(f64::NAN);
                    numbers[row(3)][extents.1 - 1] = T::of(f64::NEG_INFINITY);
                    numbers[row(4)].fill(T::of(6e-8));
                }
                let x = Matrix::new(&device, extents, lies, &numbers, T::of(0.25));
                // Nothing is added to zeros, so that they stay.
                let added: Vec<T> = numbers.iter().map(|x| T::of(x.value() * 0.5)).collect();
                let residual = Matrix::new(&device, extents, Lies::Padded, &added, T::of(0.25));
                let weights: Vec<T> = normals(3, extents.1, 1.0).into_iter().map(T::of).collect();
                let weights = device.upload(&weights).unwrap();
                let gap = Q::from_f32(1.0);
                let q = Matrix::new(&device, extents, lies, &vec![gap; count], gap);
                let scales = device.alloc::<f32>(extents.0).unwrap();
                let norm = RmsNorm::new(1e-5).weight(&weights).offset(1.0);
                if adding {
                    // In place: the sum takes the place of `x`.
                    norm.quantise_adding(&device, x.view(), residual.view(), x.view(), q.view(), &scales)
                } else {
                    norm.quantise(&device, x.view(), q.view(), &scales)
                }
                .unwrap();
                (q.read(gap), scales.to_vec().unwrap(), x.read(T::of(0.25)))
            });
            let context = format!("{} as {} {extents:?} {lies:?}, adding: {adding}", T::ELEMENT, Q::ELEMENT);
            for (want, found) in cpu.1.iter().zip(&simulated.1) {
                let near = (want - found).abs() <= 1e-5 * want.abs();
                assert!(near || (want.is_nan() && found.is_nan()), "{context}: {found}, on the CPU {want}");
            }
            for (i, (want, found)) in cpu.0.iter().zip(&simulated.0).enumerate() {
                let (want, found) = (want.to_f32(), found.to_f32());
                let same = want == found || (want.is_nan() && found.is_nan());
                assert!(same || (want - found).abs() <= next(want), "{context}: {i} is {found}, not {want}");
            }
            let bits = |sums: &[T]| sums.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let nan = |sums: &[T]| sums.iter().map(|x| x.value().is_nan()).collect::<Vec<_>>();
            assert_eq!(nan(&cpu.2), nan(&simulated.2), "{context}");
            if !nan(&cpu.2).contains(&true) {
                assert_eq!(bits(&cpu.2), bits(&simulated.2), "{context}");
            }
        }
    }
}

#[test]
fn quantised_norms_of_kernels() {
    let of_floats = |x: f32| 2f32.powf(x.abs().log2().floor().max(-6.0) - 2.0);
    quantised_norms::<f32, E4m3>(of_floats);
    quantised_norms::<bf16, E4m3>(of_floats);
    quantised_norms::<f32, i8>(|_| 1.0);
    quantised_norms::<f16, i8>(|_| 1.0);
    // No columns: scales of nothing.
    let device = machine();
    let (x, q) = (device.alloc::<f32>(0).unwrap(), device.alloc::<i8>(0).unwrap());
    let scales = device.alloc::<f32>(3).unwrap();
    RmsNorm::new(1e-5).quantise(&device, Rows::new(&x, 3, 0), Rows::new(&q, 3, 0), &scales).unwrap();
    assert_eq!(scales.to_vec().unwrap(), [1.0; 3]);
}

#[test]
fn more_kernels_of_f32() {
    more_operators::<f32>();
}

#[test]
fn more_kernels_of_bf16() {
    more_operators::<bf16>();
}

/// Rows that are a cluster's, and rows in steps, as GPUs without clusters take them.
#[test]
fn long_rows() {
    let (rows, columns) = (2, 33_001);
    let values: Vec<f32> = normals(9, rows * columns, 2.0).into_iter().map(f32::of).collect();
    type Run = fn(&Device, Rows<'_, f32>, Rows<'_, f32>) -> Result<(), Error>;
    let all: [(&str, Run); 5] = [
        ("softmax", |d, x, y| Softmax::new().run(d, x, y)),
        ("causal softmax", |d, x, y| Softmax::new().causal(20_000).run(d, x, y)),
        ("RMSNorm", |d, x, y| RmsNorm::new(1e-5).weight(x.rows(0..1)).run(d, x, y)),
        ("LayerNorm", |d, x, y| LayerNorm::new(1e-5).weight(x.rows(0..1)).run(d, x, y)),
        ("the sum of all", |d, x, y| Reduce::Sum.all(d, x, y.rows(0..1).columns(0..1))),
    ];
    for (name, run) in all {
        let [want, found] = [Device::cpu(), machine()].map(|device| {
            let (x, y) = (device.upload(&values).unwrap(), device.upload(&vec![0.0; values.len()]).unwrap());
            run(&device, Rows::new(&x, rows, columns), Rows::new(&y, rows, columns)).unwrap();
            y.to_vec().unwrap()
        });
        let wrong = |(want, found): (&f32, &f32)| (want - found).abs() > 1e-4 * (want.abs() + 1e-4);
        assert_eq!(want.iter().zip(&found).position(wrong), None, "{name}");
    }
}

/// Rows of which the first columns are seen, in parts, by a program each or a few: up to, at and behind the ends of parts, whatever stands in
/// columns that are not seen, with scales of either sign, in place, and where programs have rows of two matrices or less than others.
#[test]
fn rows_of_which_some_is_seen() {
    fn run<T: Sample>(columns: usize) {
        let seen = [0, 1, 7, 8, 255, 256, 257, 511, 512, 513, columns - 1, columns, columns + 5];
        let positions: Vec<i32> = seen.iter().map(|&seen| i32::try_from(seen).unwrap() - 1).collect();
        let mut values: Vec<T> = normals(21, seen.len() * columns, 2.0).into_iter().map(T::of).collect();
        for (row, &seen) in seen.iter().enumerate() {
            for (hidden, special) in (seen..columns).zip([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30]) {
                values[row * columns + hidden] = T::of(special);
            }
        }
        // Rows of nothing, of an infinity and of no number.
        values[8 * columns..][..512].fill(T::of(f64::NEG_INFINITY));
        values[9 * columns + 300] = T::of(f64::INFINITY);
        values[10 * columns + 3] = T::of(f64::NAN);
        let rows = seen.len();
        let (by_position, in_one, in_three) = (None, Some(rows), Some(5));
        for (scale, log, causal) in [
            (0.5, false, by_position),
            (-0.5, false, in_one),
            (1.0, true, in_one),
            (-2.0, true, by_position),
            (0.5, false, in_three),
            (1.0, true, Some(1)),
        ] {
            let [want, found] = [Device::cpu(), machine()].map(|device| {
                let x = device.upload(&values).unwrap();
                let positions = device.upload(&positions).unwrap();
                let all = Rows::new(&x, rows, columns);
                let softmax = Softmax::new().scale(scale);
                let softmax = if log { softmax.log() } else { softmax };
                let softmax = match causal {
                    Some(queries) => softmax.causal(queries),
                    None => softmax.positions(&positions),
                };
                softmax.run(&device, all, all).unwrap();
                x.to_vec().unwrap()
            });
            for (i, (want, found)) in want.iter().zip(&found).enumerate() {
                let (want, found) = (want.value(), found.value());
                let same = want == found || (want.is_nan() && found.is_nan());
                let near = (want - found).abs() <= 1e-6 * (1.0 + want.abs()) + 2.0 * T::rounding(want);
                let case = (T::ELEMENT, columns, scale, log, causal);
                assert!(
                    same || near,
                    "{case:?}: column {} of row {} is {found}, on the CPU {want}",
                    i % columns,
                    i / columns
                );
            }
        }
    }
    run::<f32>(1536);
    run::<bf16>(1536);
    run::<f16>(1003);
    run::<bf16>(520);
    run::<f32>(4099);
}

/// Programs that take several rows of a gradient one after the other: what they load runs ahead, ends with the rows, and may be written over.
#[test]
fn rows_that_a_program_takes_by_turns() {
    fn check<T: Sample>(rows: usize, columns: usize, programs: u32, in_place: bool) {
        let numbers = |seed, count: usize| normals(seed, count, 1.0).into_iter();
        let all = rows * columns;
        let (x, dy): (Vec<T>, Vec<T>) =
            (numbers(1, all).map(T::of).collect(), numbers(2, all).map(T::of).collect());
        let w: Vec<f32> = numbers(3, columns).map(|x| x as f32).collect();
        let want = {
            let device = Device::cpu();
            let [x, dy] = [&x, &dy].map(|values| device.upload(values).unwrap());
            let [x, dy] = [&x, &dy].map(|buffer| Rows::new(buffer, rows, columns));
            let w = device.upload(&w).unwrap();
            let ([rms, layer], [dw, of_weights, of_biases]) = (
                [0; 2].map(|_| device.alloc::<f32>(all).unwrap()),
                [0; 3].map(|_| device.alloc::<f32>(columns).unwrap()),
            );
            RmsNorm::new(1e-5)
                .weight(&w)
                .backward(&device, x, dy, Rows::new(&rms, rows, columns), &dw)
                .unwrap();
            LayerNorm::new(1e-5)
                .weight(&w)
                .backward(&device, x, dy, Rows::new(&layer, rows, columns), &of_weights, &of_biases)
                .unwrap();
            [rms, dw, layer, of_weights, of_biases].map(|buffer| buffer.to_vec().unwrap())
        };

        let device = machine();
        let parts = || device.alloc::<f32>(programs as usize * columns).unwrap();
        let sum = |parts: Buffer<f32>| -> Vec<f32> {
            let parts = parts.to_vec().unwrap();
            (0..columns).map(|j| parts.iter().skip(j).step_by(columns).sum()).collect()
        };
        let shape = [rows, columns];
        let of_parts = [programs as usize, columns];
        let w = device.upload(&w).unwrap();
        let width = columns as u32;
        let dx = |x: &Buffer<T>| if in_place { x.clone() } else { device.alloc::<T>(all).unwrap() };
        let run = |kernel: &Kernel, results: &[&Buffer<f32>], numbers: &[&dyn Argument]| -> Vec<f32> {
            let (x, dy) = (device.upload(&x).unwrap(), device.upload(&dy).unwrap());
            let dx = dx(&x);
            let (x, dy, w) = (x.view(shape), dy.view(shape), w.view([1, columns]));
            let results: Vec<_> = results.iter().map(|buffer| buffer.view(of_parts)).collect();
            let to = dx.view(shape);
            let mut arguments: Vec<&dyn Argument> = vec![&x, &dy, &w, &to];
            arguments.extend(results.iter().map(|view| view as &dyn Argument));
            arguments.extend(numbers);
            let report = device.program(kernel).unwrap().launch([programs, 1, 1], &arguments).unwrap();
            if device.kind() == DeviceKind::Simulator {
                report.expect_clean().unwrap();
            }
            dx.to_vec().unwrap().into_iter().map(T::to_f32).collect()
        };
        let kernel = ops::rms_norm_backward::stage::<T, f32, T>(true, width).unwrap();
        let dw = parts();
        let rms = run(&kernel, &[&dw], &[&1e-5f32, &0.0f32]);
        let kernel = ops::layer_norm_backward::stage::<T, f32, T>(true, width).unwrap();
        let (of_weights, of_biases) = (parts(), parts());
        let layer = run(&kernel, &[&of_weights, &of_biases], &[&1e-5f32]);
        let found = [rms, sum(dw), layer, sum(of_weights), sum(of_biases)];

        for (i, (want, found)) in want.iter().zip(&found).enumerate() {
            let close = |(a, b): (&f32, &f32)| {
                f64::from(a - b).abs() <= T::rounding((*a).into()) + f64::from(a.abs()) * 1e-5 + 1e-4
            };
            let wrong = want.iter().zip(found).position(|pair| !close(pair));
            assert_eq!(wrong, None, "result {i} of {rows} x {columns} by {programs}, in place: {in_place}");
        }
    }
    for (rows, programs) in [(1, 1), (2, 1), (3, 2), (5, 1), (9, 2)] {
        check::<bf16>(rows, 1536, programs, rows % 2 == 0);
        check::<f32>(rows, 1024, programs, rows % 2 == 1);
    }
    // Rows that vectors do not divide, and those of a cluster.
    check::<bf16>(5, 1537, 2, false);
    check::<bf16>(5, 16_384, 2, true);
    // So many rounds that every signal between blocks is used again.
    check::<bf16>(9, 16_384, 1, false);
}

/// Ampere has no instructions that convert 8-bit floats.
#[test]
fn eight_bit_floats_on_a_chip_without_them() {
    let options = Options { chip: Some(Arch::SM_80), ..Options::default() };
    let (rows, columns) = (5, 300);
    let values = normals(9, rows * columns, 3.0);
    let results = [Device::cpu(), Device::simulator_with(options)].map(|device| {
        let x: Vec<bf16> = values.iter().map(|&x| bf16::of(x)).collect();
        let x = device.upload(&x).unwrap();
        let (q, scales) = (device.alloc::<E4m3>(rows * columns).unwrap(), device.alloc::<f32>(rows).unwrap());
        let back = device.alloc::<f32>(rows * columns).unwrap();
        let all = Rows::new(&q, rows, columns);
        Quantise::per_row().run(&device, Rows::new(&x, rows, columns), all, &scales).unwrap();
        dequantise(&device, all, &scales, Rows::new(&back, rows, columns)).unwrap();
        let bits: Vec<u8> = q.to_vec().unwrap().into_iter().map(|q| q.0).collect();
        (bits, back.to_vec().unwrap())
    });
    assert_eq!(results[0].0, results[1].0);
    let far = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-6 * a.abs();
    assert_eq!(results[0].1.iter().zip(&results[1].1).position(far), None);
}

/// Rows whose sums, and whose gradients, the blocks of a cluster share, each with less in the last of them.
#[test]
fn rows_that_blocks_share() {
    fn check<T: Sample>(columns: usize) {
        let rows = 2;
        let values: Vec<T> = normals(5, rows * columns, 1.0).into_iter().map(T::of).collect();
        let [want, found] = [Device::cpu(), machine()].map(|device| {
            let backwards: Vec<T> = values.iter().rev().copied().collect();
            let (x, dy) = (device.upload(&values).unwrap(), device.upload(&backwards).unwrap());
            let [x, dy] = [&x, &dy].map(|buffer| Rows::new(buffer, rows, columns));
            let weight = dy.rows(1..2);
            let mut all = Vec::new();
            let mut kept = |y: Buffer<f32>| all.extend(y.to_vec().unwrap());
            let forwards = CumulativeSum::new();
            for scan in [forwards, forwards.exclusive(), forwards.reverse(), forwards.reverse().exclusive()] {
                let y = device.alloc::<f32>(rows * columns).unwrap();
                scan.run(&device, x, Rows::new(&y, rows, columns)).unwrap();
                kept(y);
            }
            let matrix = || device.alloc::<f32>(rows * columns).unwrap();
            let row = || device.alloc::<f32>(columns).unwrap();
            let (dx, dw) = (matrix(), row());
            let norm = RmsNorm::new(1e-5).weight(weight);
            norm.backward(&device, x, dy, Rows::new(&dx, rows, columns), &dw).unwrap();
            let (other, weights, biases) = (matrix(), row(), row());
            let norm = LayerNorm::new(1e-5).weight(weight);
            norm.backward(&device, x, dy, Rows::new(&other, rows, columns), &weights, &biases).unwrap();
            [dx, dw, other, weights, biases].into_iter().for_each(&mut kept);
            all
        });
        let wrong = |(want, found): (&f32, &f32)| (want - found).abs() > 1e-4 * (want.abs() + 10.0);
        assert_eq!(want.iter().zip(&found).position(wrong), None, "{columns}");
    }
    check::<f32>(20_004);
    check::<bf16>(16_399);
}

/// Few long rows, which programs share: the same as on the CPU, NaN and places of equal numbers included.
#[test]
fn few_long_rows() {
    fn run<T: Sample>(extents: (usize, usize), lies: Lies, kinds: &[Reduce]) {
        let mut values: Vec<T> = normals(4, extents.0 * extents.1, 1.0).into_iter().map(T::of).collect();
        // The largest twice in the last row, the second one in another program's part.
        let last = (extents.0 - 1) * extents.1;
        for at in [5000, 33_333] {
            values[last + at] = T::of(7.0);
            values[last + at + 1] = T::of(-7.0);
        }
        if extents.0 > 1 {
            values[30_000] = T::of(f64::NAN);
        }
        let [cpu, simulated] = [Device::cpu(), machine()].map(|device| {
            let x = Matrix::new(&device, extents, lies, &values, T::of(0.25));
            let (sums, indices) =
                (device.alloc::<f32>(extents.0).unwrap(), device.alloc::<u32>(extents.0).unwrap());
            let reduced = kinds.iter().map(|kind| {
                kind.rows(&device, x.view(), &sums).unwrap();
                sums.to_vec().unwrap()
            });
            let reduced: Vec<Vec<f32>> = reduced.collect();
            let places = [Arg::Max, Arg::Min].map(|arg| {
                arg.rows(&device, x.view(), &indices).unwrap();
                indices.to_vec().unwrap()
            });
            (reduced, places)
        });
        assert_eq!(cpu.1, simulated.1, "places in {extents:?} {lies:?}");
        assert_eq!(simulated.1[0].last(), Some(&5000));
        for ((kind, want), found) in kinds.iter().zip(&cpu.0).zip(&simulated.0) {
            for (want, found) in want.iter().zip(found) {
                let (want, found) = (f64::from(*want), f64::from(*found));
                // Sums of numbers that cancel are as exact as those of their absolute values.
                let near = (want - found).abs() <= 2e-7 * extents.1 as f64 + 1e-5 * want.abs();
                assert!(
                    near || want == found || (want.is_nan() && found.is_nan()),
                    "{kind:?} of {extents:?} {lies:?}: {found}, on the CPU {want}"
                );
            }
        }
    }
    run::<f32>((1, 1_000_000), Lies::Dense, &[Reduce::Mean]);
    run::<bf16>((3, 300_000), Lies::Dense, &[Reduce::Sum, Reduce::Max]);
    run::<f32>((2, 40_003), Lies::Padded, Reduce::ALL);
    run::<f16>((5, 33_400), Lies::Scattered, &[Reduce::Min, Reduce::Norm]);
    run::<f32>((3, 33_400), Lies::Turned, &[Reduce::Product, Reduce::SumSquares]);
}

/// Of nothing there is no largest.
#[test]
fn places_in_empty_rows() {
    let device = machine();
    let (x, indices) = (device.alloc::<f32>(0).unwrap(), device.alloc::<u32>(3).unwrap());
    Arg::Max.rows(&device, Rows::new(&x, 3, 0), &indices).unwrap();
    assert_eq!(indices.to_vec().unwrap(), [u32::MAX; 3]);
}

#[test]
fn rows_in_steps() {
    let (rows, columns, width) = (3usize, 200usize, 64);
    let values: Vec<f32> = normals(9, rows * columns, 2.0).into_iter().map(f32::of).collect();
    let (cpu, machine) = (Device::cpu(), super::common::machine());
    let [(x, y, w), (sx, sy, sw)] = [&cpu, &machine].map(|device| {
        let w = device.upload(&values[..columns]).unwrap();
        (device.upload(&values).unwrap(), device.upload(&vec![0.0f32; values.len()]).unwrap(), w)
    });
    let (x, y) = (Rows::new(&x, rows, columns), (Rows::new(&y, rows, columns), &y));
    let ([sx, sv], sw) = ([&sx, &sy].map(|buffer| buffer.view([rows, columns])), sw.view([1, columns]));
    let check = |name: &str, kernel: Result<Kernel, LangError>, arguments: &[&dyn Argument]| {
        let program = machine.program(&kernel.unwrap()).unwrap();
        program.launch([rows as u32, 1, 1], arguments).unwrap().expect_clean().unwrap();
        let (want, found) = (y.1.to_vec().unwrap(), sy.to_vec().unwrap());
        let wrong = |(want, found): (&f32, &f32)| (want - found).abs() > 1e-5 * (1.0 + want.abs());
        assert_eq!(want.iter().zip(&found).position(wrong), None, "{name}");
    };
    Softmax::new().log().causal(3).run(&cpu, x, y.0).unwrap();
    let kernel = ops::softmax_long::stage::<f32, f32>(ops::Form::Logarithms, true, width);
    // The last columns that the first rows do not see are -inf on both.
    let finite = |buffer: &Buffer<f32>| {
        let all: Vec<f32> = buffer.to_vec().unwrap().iter().map(|x| x.max(-1e30)).collect();
        buffer.write(&all).unwrap();
    };
    finite(y.1);
    let program = machine.program(&kernel.unwrap()).unwrap();
    program.launch([rows as u32, 1, 1], &[&sx, &sv, &1.0f32, &3u32]).unwrap().expect_clean().unwrap();
    finite(&sy);
    assert!(y.1.to_vec().unwrap().iter().zip(sy.to_vec().unwrap()).all(|(a, b)| (a - b).abs() <= 1e-4));

    let positions = machine.upload(&[-1i32, 70, 500]).unwrap();
    let on_cpu = cpu.upload(&[-1i32, 70, 500]).unwrap();
    Softmax::new().positions(&on_cpu).run(&cpu, x, y.0).unwrap();
    let kernel = ops::softmax_positions_long::stage::<f32, f32>(ops::Form::Probabilities, width);
    check("softmax with positions", kernel, &[&sx, &positions.view([rows, 1]), &sv, &1.0f32]);

    RmsNorm::new(1e-5).weight(&w).offset(1.0).run(&cpu, x, y.0).unwrap();
    let kernel = ops::rms_norm_long::stage::<f32, f32, f32>(true, width);
    check("RMSNorm", kernel, &[&sx, &sw, &sv, &1e-5f32, &1.0f32]);

    LayerNorm::new(1e-5).affine(&w, &w).run(&cpu, x, y.0).unwrap();
    let kernel = ops::layer_norm_long::stage::<f32, f32, f32>(true, true, width);
    check("LayerNorm", kernel, &[&sx, &sw, &sw, &sv, &1e-5f32]);

    let sum = cpu.alloc::<f32>(rows * columns).unwrap();
    RmsNorm::new(1e-5).run_adding(&cpu, x, x, Rows::new(&sum, rows, columns), y.0).unwrap();
    let sum = machine.alloc::<f32>(rows * columns).unwrap();
    let kernel = ops::rms_norm_adding_long::stage::<f32, f32, f32>(false, width);
    check("RMSNorm of a sum", kernel, &[&sx, &sx, &sw, &sum.view([rows, columns]), &sv, &1e-5f32, &0.0f32]);

    // The sum in the place of the residual, and the result in that of the sum's other part.
    let ([a, b], [sa, sb]) =
        ([&cpu; 2].map(|d| d.upload(&values).unwrap()), [&machine; 2].map(|d| d.upload(&values).unwrap()));
    let [av, bv] = [&a, &b].map(|buffer| Rows::new(buffer, rows, columns));
    LayerNorm::new(1e-5).affine(&w, &w).run_adding(&cpu, av, bv, bv, av).unwrap();
    let kernel = ops::layer_norm_adding_long::stage::<f32, f32, f32>(true, true, width);
    let program = machine.program(&kernel.unwrap()).unwrap();
    let [va, vb] = [&sa, &sb].map(|buffer| buffer.view([rows, columns]));
    let arguments: &[&dyn Argument] = &[&va, &vb, &sw, &sw, &vb, &va, &1e-5f32];
    program.launch([rows as u32, 1, 1], arguments).unwrap().expect_clean().unwrap();
    assert_eq!(b.to_vec().unwrap(), sb.to_vec().unwrap());
    let near = |(a, b): (f32, f32)| (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    assert!(a.to_vec().unwrap().into_iter().zip(sa.to_vec().unwrap()).all(near));
}

/// Axes in other orders are the same bits.
#[test]
fn permutations_of_kernels() {
    for (extents, axes) in [
        (&[5, 3, 40][..], &[1, 0, 2][..]),
        (&[2, 33, 5, 7], &[3, 1, 0, 2]),
        (&[6], &[0]),
        (&[40, 70], &[1, 0]),
    ] {
        let values: Vec<u32> = (0..).take(extents.iter().product()).collect();
        let [want, found] = [Device::cpu(), machine()].map(|device| {
            let (x, y) = (device.upload(&values).unwrap(), device.alloc::<u32>(values.len()).unwrap());
            permute(&device, &x, extents, axes, &y).unwrap();
            y.to_vec().unwrap()
        });
        assert_eq!(want, found, "{extents:?} {axes:?}");
    }
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
    assert_eq!(on::<f32>(&machine()), on::<f32>(&Device::cpu()));
    assert_eq!(on::<bf16>(&machine()), on::<bf16>(&Device::cpu()));
}

/// Many of a row, up to all: sorted, found in one round or several by programs that share the row, or taken away in a loop.
#[test]
fn many_of_a_row_in_order() {
    fn on<T: Sample + Item>(
        device: &Device,
        (rows, columns): (usize, usize),
        top: TopK,
        k: usize,
    ) -> (Vec<u64>, Vec<u32>) {
        let mut random = Random::new(5);
        let mut values: Vec<T> =
            (0..rows * columns).map(|_| T::of(random.below(500) as f64 - 250.0)).collect();
        values[columns - 1] = T::of(f64::NAN);
        values[columns / 2] = T::of(f64::NEG_INFINITY);
        values[columns / 3] = T::of(-0.0);
        let x = device.upload(&values).unwrap();
        let kept = device.alloc::<T>(rows * k).unwrap();
        let places = device.alloc::<u32>(rows * k).unwrap();
        top.run(device, Rows::new(&x, rows, columns), Rows::new(&kept, rows, k), Rows::new(&places, rows, k))
            .unwrap();
        (kept.to_vec().unwrap().into_iter().map(|x| x.value().to_bits()).collect(), places.to_vec().unwrap())
    }
    let (machine, cpu) = (machine(), Device::cpu());
    for (extents, k) in [
        ((9, 40), 33),
        ((3, 100), 100),
        ((2, 1000), 256),
        ((1, 2048), 2000),
        ((3, 9000), 40),
        ((2, 4100), 512),
        ((2, 33_000), 5),
        ((2, 33_000), 200),
        ((1, 2100), 513),
        ((2, 9000), 1500),
        ((1, 2100), 2050),
    ] {
        for top in [TopK::new(k), TopK::new(k).smallest()] {
            assert_eq!(
                on::<f32>(&machine, extents, top, k),
                on::<f32>(&cpu, extents, top, k),
                "{extents:?} {top:?}"
            );
            assert_eq!(
                on::<bf16>(&machine, extents, top, k),
                on::<bf16>(&cpu, extents, top, k),
                "{extents:?} {top:?}"
            );
        }
    }
}

/// Rows of several steps that are causal and have a mask, one for all of them.
#[test]
fn long_causal_rows_with_a_mask() {
    let (rows, columns) = (3, 5003);
    let values: Vec<f32> = normals(8, rows * columns, 2.0).into_iter().map(|x| x as f32).collect();
    let mask: Vec<bool> = (0..columns).map(|j| j % 7 != 0 && !(4000..4500).contains(&j)).collect();
    let [cpu, found] = [Device::cpu(), machine()].map(|device| {
        let (x, y) = (device.upload(&values).unwrap(), device.alloc::<f32>(rows * columns).unwrap());
        let (mask, positions) = (device.upload(&mask).unwrap(), device.upload(&[4999, 4100, 3]).unwrap());
        let softmax = Softmax::new().mask(&mask);
        let (x, y) = (Rows::new(&x, rows, columns), Rows::new(&y, rows, columns));
        let each = [softmax.causal(500), softmax.positions(&positions)].map(|softmax| {
            softmax.run(&device, x, y).unwrap();
            let (total, all) =
                (device.alloc::<f32>(rows).unwrap(), device.alloc::<f32>(rows * columns).unwrap());
            Reduce::Sum.rows(&device, y, &total).unwrap();
            assert!(total.to_vec().unwrap().iter().all(|sum| (sum - 1.0).abs() < 1e-5));
            convert(&device, y, Rows::new(&all, rows, columns)).unwrap();
            all.to_vec().unwrap()
        });
        each.concat()
    });
    for (i, (want, found)) in cpu.iter().zip(&found).enumerate() {
        assert!((want - found).abs() <= 1e-5 * want, "element {i} is {found}, on the CPU {want}");
    }
}
