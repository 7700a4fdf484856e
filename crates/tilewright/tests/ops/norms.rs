//! RMSNorm and LayerNorm, with residuals, quantised results and gradients.

use tilewright::device::Device;
use tilewright::lang::{E4m3, E5m2, bf16};
use tilewright::ops::{LayerNorm, QuantItem, RmsNorm, Rows};

use super::common::{Exact, Lies, Matrix, Sample, check, every_case, input, itself, normals, output};
use crate::for_each_type;

const EPSILON: f32 = 1e-5;

/// One over the root of the mean of squares.
fn inverse(row: &[f64]) -> f64 {
    let squares: f64 = row.iter().map(|x| x * x).sum();
    1.0 / (squares / row.len() as f64 + f64::from(EPSILON)).sqrt()
}

fn rms<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let extents = (rows, columns);
        let (x, exact) = input::<T>(&device, extents, lies, &normals(1, rows * columns, 2.0));
        let (w, weights) = input::<T>(&device, (1, columns), Lies::Padded, &normals(2, columns, 1.0));
        let y = output::<T>(&device, extents, other);
        let wanted = |offset: f64| -> Vec<Exact> {
            exact
                .chunks(columns)
                .flat_map(|row| {
                    let inverse = inverse(row);
                    row.iter().zip(&weights).map(move |(x, w)| itself(x * inverse * (w + offset)))
                })
                .collect()
        };
        RmsNorm::new(EPSILON).weight(w.view()).run(&device, x.view(), y.view()).unwrap();
        check("RMSNorm", &(extents, lies), &y.read(T::of(0.25)), &wanted(0.0));
        let y = output::<T>(&device, extents, other);
        RmsNorm::new(EPSILON).weight(w.view()).offset(1.0).run(&device, x.view(), y.view()).unwrap();
        check("RMSNorm", &(extents, lies), &y.read(T::of(0.25)), &wanted(1.0));
    });
}

fn rms_of_sums<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let extents = (rows, columns);
        let (x, a) = input::<T>(&device, extents, lies, &normals(1, rows * columns, 2.0));
        let (r, b) = input::<T>(&device, extents, other, &normals(2, rows * columns, 2.0));
        let (sum, y) = (output::<T>(&device, extents, lies), output::<T>(&device, extents, other));
        RmsNorm::new(EPSILON).run_adding(&device, x.view(), r.view(), sum.view(), y.view()).unwrap();
        let sums: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        let stored: Vec<Exact> = sums.iter().map(|&x| itself(x)).collect();
        check("RMSNorm of a sum", &(extents, lies), &sum.read(T::of(0.25)), &stored);
        let mut wanted = Vec::new();
        for (i, row) in sums.chunks(columns).enumerate() {
            let inverse = inverse(row);
            for (j, x) in row.iter().enumerate() {
                let at = i * columns + j;
                wanted.push(Exact { value: x * inverse, scale: (a[at].abs() + b[at].abs()) * inverse });
            }
        }
        check("RMSNorm of a sum", &(extents, lies), &y.read(T::of(0.25)), &wanted);
    });
}

fn rms_gradients<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let extents = (rows, columns);
        let (x, exact) = input::<T>(&device, extents, lies, &normals(1, rows * columns, 2.0));
        let (dy, given) = input::<T>(&device, extents, other, &normals(2, rows * columns, 1.0));
        let (w, weights) = input::<T>(&device, (1, columns), Lies::Dense, &normals(3, columns, 1.0));
        let (dx, dw) =
            (output::<T>(&device, extents, other), output::<f32>(&device, (1, columns), Lies::Padded));
        let norm = RmsNorm::new(EPSILON).weight(w.view()).offset(1.0);
        norm.backward(&device, x.view(), dy.view(), dx.view(), dw.view()).unwrap();
        let (mut wanted, mut sums) = (Vec::new(), vec![Exact { value: 0.0, scale: 0.0 }; columns]);
        for (row, dy) in exact.chunks(columns).zip(given.chunks(columns)) {
            let inverse = inverse(row);
            let g: Vec<f64> = dy.iter().zip(&weights).map(|(dy, w)| dy * (w + 1.0)).collect();
            let terms = || row.iter().zip(&g).map(|(x, g)| x * inverse * g);
            let mean = terms().sum::<f64>() / columns as f64;
            let size = terms().map(f64::abs).sum::<f64>() / columns as f64;
            for (j, x) in row.iter().enumerate() {
                let n = x * inverse;
                wanted.push(Exact {
                    value: inverse * (g[j] - n * mean),
                    scale: inverse * (g[j].abs() + (n * size).abs()),
                });
                sums[j].value += dy[j] * n;
                sums[j].scale += (dy[j] * n).abs();
            }
        }
        check("RMSNorm, gradient", &(extents, lies), &dx.read(T::of(0.25)), &wanted);
        check("RMSNorm, gradient", &(extents, "weights"), &dw.read(0.25), &sums);
    });
}

fn layer_of_sums<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let extents = (rows, columns);
        let (x, a) = input::<T>(&device, extents, lies, &normals(1, rows * columns, 2.0));
        let (r, b) = input::<T>(&device, extents, other, &normals(2, rows * columns, 2.0));
        let (w, weights) = input::<T>(&device, (1, columns), Lies::Dense, &normals(3, columns, 1.0));
        let (sum, y) = (output::<T>(&device, extents, lies), output::<T>(&device, extents, other));
        let norm = LayerNorm::new(EPSILON).weight(w.view());
        norm.run_adding(&device, x.view(), r.view(), sum.view(), y.view()).unwrap();
        let sums: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        let stored: Vec<Exact> = sums.iter().map(|&x| itself(x)).collect();
        check("LayerNorm of a sum", &(extents, lies), &sum.read(T::of(0.25)), &stored);
        let mut wanted = Vec::new();
        for (i, row) in sums.chunks(columns).enumerate() {
            let mean = row.iter().sum::<f64>() / columns as f64;
            let size = row.iter().map(|x| x.abs()).sum::<f64>() / columns as f64;
            let centred: Vec<f64> = row.iter().map(|x| x - mean).collect();
            let inverse = inverse(&centred);
            for (j, x) in centred.iter().enumerate() {
                let (at, factor) = (i * columns + j, inverse * weights[j]);
                let scale = (a[at].abs() + b[at].abs() + size) * factor.abs();
                wanted.push(Exact { value: x * factor, scale });
            }
        }
        check("LayerNorm of a sum", &(extents, lies), &y.read(T::of(0.25)), &wanted);
    });
}

fn layer<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let extents = (rows, columns);
        let shifted: Vec<f64> = normals(1, rows * columns, 2.0).iter().map(|x| x + 3.0).collect();
        let (x, exact) = input::<T>(&device, extents, lies, &shifted);
        let (dy, given) = input::<T>(&device, extents, other, &normals(2, rows * columns, 1.0));
        let (w, weights) = input::<T>(&device, (1, columns), Lies::Scattered, &normals(3, columns, 1.0));
        let (b, biases) = input::<T>(&device, (1, columns), Lies::Dense, &normals(4, columns, 1.0));
        let (y, dx) = (output::<T>(&device, extents, other), output::<T>(&device, extents, lies));
        let (dw, db) = (device.alloc::<f32>(columns).unwrap(), device.alloc::<f32>(columns).unwrap());
        let norm = LayerNorm::new(EPSILON).affine(w.view(), b.view());
        norm.run(&device, x.view(), y.view()).unwrap();
        norm.backward(&device, x.view(), dy.view(), dx.view(), &dw, &db).unwrap();

        let (mut wanted, mut gradient) = (Vec::new(), Vec::new());
        let mut sums = [
            vec![Exact { value: 0.0, scale: 0.0 }; columns],
            vec![Exact { value: 0.0, scale: 0.0 }; columns],
        ];
        for (row, dy) in exact.chunks(columns).zip(given.chunks(columns)) {
            let mean = row.iter().sum::<f64>() / columns as f64;
            let centred: Vec<f64> = row.iter().map(|x| x - mean).collect();
            let inverse = inverse(&centred);
            let g: Vec<f64> = dy.iter().zip(&weights).map(|(dy, w)| dy * w).collect();
            let average = |f: &dyn Fn(usize) -> f64| (0..columns).map(f).sum::<f64>() / columns as f64;
            let (first, first_size) = (average(&|j| g[j]), average(&|j| g[j].abs()));
            let n = |j: usize| centred[j] * inverse;
            let (second, second_size) = (average(&|j| g[j] * n(j)), average(&|j| (g[j] * n(j)).abs()));
            for j in 0..columns {
                let scaled = n(j) * weights[j];
                wanted.push(Exact { value: scaled + biases[j], scale: scaled.abs() + biases[j].abs() });
                gradient.push(Exact {
                    value: inverse * (g[j] - first - n(j) * second),
                    scale: inverse * (g[j].abs() + first_size + n(j).abs() * second_size),
                });
                for (sum, term) in sums.iter_mut().zip([dy[j] * n(j), dy[j]]) {
                    sum[j].value += term;
                    sum[j].scale += term.abs();
                }
            }
        }
        check("LayerNorm", &(extents, lies), &y.read(T::of(0.25)), &wanted);
        check("LayerNorm, gradient", &(extents, lies), &dx.read(T::of(0.25)), &gradient);
        check("LayerNorm, gradient", &(extents, "weights"), &dw.to_vec().unwrap(), &sums[0]);
        check("LayerNorm, gradient", &(extents, "biases"), &db.to_vec().unwrap(), &sums[1]);
    });
}

/// What quantised results stand for is within half a step of the exact result; the scale is the largest over the largest number.
fn quantised_to<T: Sample, Q: QuantItem + std::fmt::Debug>(steps: impl Fn(f64) -> f64) {
    let device = Device::cpu();
    for columns in [1, 3, 33, 1000, 1536] {
        let extents = (4, columns);
        let (x, a) = input::<T>(&device, extents, Lies::Padded, &normals(1, 4 * columns, 2.0));
        let (r, b) = input::<T>(&device, extents, Lies::Dense, &normals(2, 4 * columns, 2.0));
        let (w, weights) = input::<T>(&device, (1, columns), Lies::Dense, &normals(3, columns, 1.0));
        let norm = RmsNorm::new(EPSILON).weight(w.view());
        for adding in [false, true] {
            let gap = Q::from_f32(1.0);
            let q = Matrix::new(&device, extents, Lies::Scattered, &vec![gap; 4 * columns], gap);
            let (sum, scales) =
                (output::<T>(&device, extents, Lies::Turned), device.alloc::<f32>(4).unwrap());
            if adding {
                norm.quantise_adding(&device, x.view(), r.view(), sum.view(), q.view(), &scales).unwrap();
            } else {
                norm.quantise(&device, x.view(), q.view(), &scales).unwrap();
            }
            let (found, scales) = (q.read(gap), scales.to_vec().unwrap());
            let inputs: Vec<f64> = a.iter().zip(&b).map(|(a, b)| if adding { a + b } else { *a }).collect();
            for (i, row) in inputs.chunks(columns).enumerate() {
                let inverse = inverse(row);
                let exact: Vec<f64> = row.iter().zip(&weights).map(|(x, w)| x * inverse * w).collect();
                let most = exact.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
                let scale = f64::from(scales[i]);
                if adding {
                    // Terms that cancel keep their errors.
                    assert!((scale * f64::from(Q::LARGEST) / most - 1.0).abs() < 1e-5, "{scale} {most}");
                } else {
                    let exact = itself(most / f64::from(Q::LARGEST));
                    check("RMSNorm in 8 bits, scales", &(extents, Q::ELEMENT), &scales[i..=i], &[exact]);
                }
                for (j, exact) in exact.iter().enumerate() {
                    let found = f64::from(found[i * columns + j].to_f32());
                    let allowed = steps(exact / scale) + 1e-5 * f64::from(Q::LARGEST);
                    assert!(
                        (found - exact / scale).abs() <= allowed,
                        "{} {columns}: {found} {}",
                        Q::ELEMENT,
                        exact / scale
                    );
                }
            }
        }
    }
}

fn quantised<T: Sample>() {
    quantised_to::<T, i8>(|_| 0.5);
    quantised_to::<T, E4m3>(|x| 2f64.powf(x.abs().log2().floor().max(-6.0) - 4.0));
    quantised_to::<T, E5m2>(|x| 2f64.powf(x.abs().log2().floor().max(-14.0) - 3.0));
}

for_each_type!(rms rms_of_sums rms_gradients layer quantised layer_of_sums);

#[test]
fn special_rows() {
    let device = Device::cpu();
    let rows = [[0.0f32, 0.0], [f32::NAN, 1.0], [f32::INFINITY, 1.0], [2.0, 2.0]];
    let x = device.upload(rows.as_flattened()).unwrap();
    let (y, dw) = (device.alloc::<f32>(8).unwrap(), device.alloc::<f32>(2).unwrap());
    let (x, out) = (Rows::new(&x, 4, 2), Rows::new(&y, 4, 2));
    RmsNorm::new(EPSILON).run(&device, x, out).unwrap();
    let found = y.to_vec().unwrap();
    assert_eq!(found[..2], [0.0, 0.0]);
    assert!(found[2].is_nan() && found[3].is_nan() && found[4].is_nan());
    assert_eq!(found[5], 0.0);
    LayerNorm::new(EPSILON).run(&device, x, out).unwrap();
    let found = y.to_vec().unwrap();
    assert_eq!((&found[..2], &found[6..]), (&[0.0, 0.0][..], &[0.0, 0.0][..]));
    assert!(found[2..6].iter().all(|y| y.is_nan()));

    // No rows: the sums of nothing.
    dw.fill(7.0).unwrap();
    let nothing = x.rows(0..0);
    RmsNorm::new(EPSILON).backward(&device, nothing, nothing, out.rows(0..0), &dw).unwrap();
    assert_eq!(dw.to_vec().unwrap(), [0.0, 0.0]);
    // No columns: scales of nothing.
    let (q, scales) = (device.alloc::<E4m3>(0).unwrap(), device.alloc::<f32>(4).unwrap());
    RmsNorm::new(EPSILON).quantise(&device, x.columns(0..0), Rows::new(&q, 4, 0), &scales).unwrap();
    assert_eq!(scales.to_vec().unwrap(), [1.0; 4]);
}

/// The sum may replace the residual, and the result the input, as layers of a model do it.
#[test]
fn sums_and_results_may_replace_their_inputs() {
    let device = Device::cpu();
    let numbers = |seed| -> Vec<bf16> { normals(seed, 60, 1.0).iter().map(|x| bf16::from_f64(*x)).collect() };
    let (x, r) = (device.upload(&numbers(1)).unwrap(), device.upload(&numbers(2)).unwrap());
    let (sum, y) = (device.alloc::<bf16>(60).unwrap(), device.alloc::<bf16>(60).unwrap());
    let view = |buffer| Rows::new(buffer, 4, 15);
    let norm = RmsNorm::new(EPSILON);
    norm.run_adding(&device, view(&x), view(&r), view(&sum), view(&y)).unwrap();
    norm.run_adding(&device, view(&x), view(&r), view(&r), view(&x)).unwrap();
    assert_eq!((x.to_vec().unwrap(), r.to_vec().unwrap()), (y.to_vec().unwrap(), sum.to_vec().unwrap()));
}

#[test]
fn weights_and_biases_may_be_given_one_after_the_other() {
    for device in [Device::cpu(), Device::simulator()] {
        let x = device.upload(&[1.0f32, 3.0, 7.0, 5.0]).unwrap();
        let x = Rows::new(&x, 2, 2);
        let (w, b) = (device.upload(&[2.0f32, 3.0]).unwrap(), device.upload(&[0.5f32, 0.25]).unwrap());
        let norm = LayerNorm::new(0.0);
        for norm in [norm.weight(&w).bias(&b), norm.bias(&b).weight(&w), norm.affine(&w, &b)] {
            let y = device.alloc::<f32>(4).unwrap();
            norm.run(&device, x, Rows::new(&y, 2, 2)).unwrap();
            assert_eq!(y.to_vec().unwrap(), [-1.5, 3.25, 2.5, -2.75], "{norm:?}");
        }
        // The later one counts.
        let y = device.alloc::<f32>(4).unwrap();
        norm.weight(&b).bias(&b).weight(&w).run(&device, x, Rows::new(&y, 2, 2)).unwrap();
        assert_eq!(y.to_vec().unwrap(), [-1.5, 3.25, 2.5, -2.75]);
    }
}

/// As the documentation says: kernels square in f32.
#[test]
fn squares_beyond_f32() {
    let of = |device: &Device| {
        let x = device.upload(&[1e20f32, -1e20]).unwrap();
        let (rms, layer) = (device.alloc::<f32>(2).unwrap(), device.alloc::<f32>(2).unwrap());
        RmsNorm::new(EPSILON).run(device, &x, &rms).unwrap();
        let bias = device.upload(&[0.5f32, 0.25]).unwrap();
        LayerNorm::new(EPSILON).bias(&bias).run(device, &x, &layer).unwrap();
        (rms.to_vec().unwrap(), layer.to_vec().unwrap())
    };
    assert_eq!(of(&Device::cpu()), (vec![1.0, -1.0], vec![1.5, -0.75]));
    assert_eq!(of(&Device::simulator()), (vec![0.0, 0.0], vec![0.5, 0.25]));
}
