//! Softmax, its masks and its gradients.

use tilewright::device::Device;
use tilewright::lang::bf16;
use tilewright::ops::{Rows, Softmax};

use super::common::{Exact, Lies, Matrix, Random, Sample, check, every_case, input, normals, output};
use crate::for_each_type;

/// By its definition, over the columns that count.
fn exactly(x: &[f64], scale: f64, counts: &[bool], log: bool) -> Vec<Exact> {
    let seen: Vec<f64> = x.iter().zip(counts).filter(|(_, c)| **c).map(|(x, _)| scale * x).collect();
    let empty = seen.iter().all(|x| *x == f64::NEG_INFINITY);
    let most = seen.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = seen.iter().map(|x| (x - most).exp()).sum();
    let size = 1.0 + seen.iter().filter(|x| x.is_finite()).fold(0.0, |a: f64, x| a.max(x.abs()));
    x.iter()
        .zip(counts)
        .map(|(x, counts)| match (*counts && !empty, log) {
            (false, false) => Exact { value: 0.0, scale: 0.0 },
            (false, true) => Exact { value: f64::NEG_INFINITY, scale: 0.0 },
            (true, false) => {
                let value = (scale * x - most).exp() / total;
                Exact { value, scale: value * size }
            }
            (true, true) => Exact { value: scale * x - most - total.ln(), scale: size },
        })
        .collect()
}

fn rows_of<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let (x, exact) =
            input::<T>(&device, (rows, columns), lies, &normals(columns as u64, rows * columns, 4.0));
        let y = output::<T>(&device, (rows, columns), other);
        for log in [false, true] {
            let softmax = Softmax::new().scale(0.7);
            let softmax = if log { softmax.log() } else { softmax };
            softmax.run(&device, x.view(), y.view()).unwrap();
            let all = vec![true; columns];
            let scale = f64::from(0.7f32);
            let wanted: Vec<Exact> =
                exact.chunks(columns).flat_map(|row| exactly(row, scale, &all, log)).collect();
            let name = if log { "log-softmax" } else { "softmax" };
            check(name, &(rows, columns, lies), &y.read(T::of(0.25)), &wanted);
        }
    });
}

fn masked<T: Sample>() {
    let device = Device::cpu();
    let mut random = Random::new(7);
    for (rows, columns) in [(6, 1), (6, 7), (9, 33), (4, 1000)] {
        let (x, exact) = input::<T>(&device, (rows, columns), Lies::Padded, &normals(5, rows * columns, 3.0));
        let positions: Vec<i32> = (0..rows).map(|_| random.below(columns + 2) as i32 - 1).collect();
        let mask: Vec<bool> = (0..rows * columns).map(|i| i / columns != 1 && random.below(3) > 0).collect();
        let mask = Matrix::new(&device, (rows, columns), Lies::Scattered, &mask, true);
        let given = device.upload(&positions).unwrap();
        let seen = mask.read(true);
        let mask = Matrix::new(&device, (rows, columns), Lies::Scattered, &seen, true);
        // Which columns of a row count, in each setting.
        type Counts<'a> = Box<dyn Fn(usize, usize) -> bool + 'a>;
        let queries = 3;
        let (at, seen) = (&positions, &seen);
        let causal = move |i: usize, j: usize| j as i64 <= (columns + i % queries) as i64 - queries as i64;
        let settings: Vec<(Softmax<'_>, Counts<'_>)> = vec![
            (Softmax::new().causal(queries), Box::new(causal)),
            (Softmax::new().positions(&given), Box::new(move |i, j| j as i64 <= i64::from(at[i]))),
            (Softmax::new().mask(mask.view()), Box::new(move |i, j| seen[i * columns + j])),
            (Softmax::new().mask(mask.view().rows(0..1)), Box::new(move |_, j| seen[j])),
            (
                Softmax::new().mask(mask.view()).causal(queries),
                Box::new(move |i, j| seen[i * columns + j] && causal(i, j)),
            ),
        ];
        for (number, (softmax, counts)) in settings.iter().enumerate() {
            for log in [false, true] {
                let softmax = if log { softmax.log() } else { *softmax };
                let y = output::<T>(&device, (rows, columns), Lies::Dense);
                softmax.run(&device, x.view(), y.view()).unwrap();
                let wanted: Vec<Exact> = exact
                    .chunks(columns)
                    .enumerate()
                    .flat_map(|(i, row)| {
                        let counts: Vec<bool> = (0..columns).map(|j| counts(i, j)).collect();
                        exactly(row, 1.0, &counts, log)
                    })
                    .collect();
                let name = if log { "log-softmax" } else { "softmax" };
                check(name, &(rows, columns, number), &y.read(T::of(0.25)), &wanted);
            }
        }
    }
}

fn gradients<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let extents = (rows, columns);
        let scale = f64::from(0.3f32);
        for log in [false, true] {
            let all = vec![true; columns];
            let raw = normals(9, rows * columns, 2.0);
            let forward: Vec<f64> = raw
                .chunks(columns)
                .flat_map(|row| exactly(row, 1.0, &all, log))
                .map(|exact| exact.value)
                .collect();
            let (y, y_exact) = input::<T>(&device, extents, lies, &forward);
            let (dy, dy_exact) = input::<T>(&device, extents, other, &normals(11, rows * columns, 1.0));
            let dx = output::<T>(&device, extents, lies);
            let softmax = Softmax::new().scale(0.3);
            let softmax = if log { softmax.log() } else { softmax };
            softmax.backward(&device, y.view(), dy.view(), dx.view()).unwrap();
            let mut wanted = Vec::new();
            for (y, dy) in y_exact.chunks(columns).zip(dy_exact.chunks(columns)) {
                let terms = y.iter().zip(dy).map(|(y, dy)| if log { *dy } else { y * dy });
                let total: f64 = terms.clone().sum();
                let size: f64 = terms.map(f64::abs).sum();
                for (y, dy) in y.iter().zip(dy) {
                    let (value, terms) = match log {
                        true => (dy - y.exp() * total, dy.abs() + y.exp() * size),
                        false => (y * (dy - total), y * (dy.abs() + size)),
                    };
                    // What underflows to nothing has no gradient.
                    let value = if !log && *y == 0.0 { 0.0 } else { value };
                    wanted.push(Exact { value: scale * value, scale: scale * terms });
                }
            }
            let name = if log { "log-softmax, gradient" } else { "softmax, gradient" };
            check(name, &(extents, lies), &dx.read(T::of(0.25)), &wanted);
        }
    });
}

for_each_type!(rows_of masked gradients);

fn on(device: &Device, x: &[f32], softmax: Softmax<'_>) -> Vec<f32> {
    let x = device.upload(x).unwrap();
    softmax.run(device, &x, &x).unwrap();
    x.to_vec().unwrap()
}

#[test]
fn special_numbers() {
    const NONE: f32 = f32::NEG_INFINITY;
    let device = Device::cpu();
    let of = |x: &[f32], softmax: Softmax<'_>| on(&device, x, softmax);
    assert_eq!(of(&[NONE, 0.0, NONE, 0.0], Softmax::new()), [0.0, 0.5, 0.0, 0.5]);
    assert_eq!(of(&[NONE; 3], Softmax::new()), [0.0; 3]);
    assert_eq!(of(&[NONE; 3], Softmax::new().log()), [NONE; 3]);
    assert_eq!(of(&[NONE, 5.0], Softmax::new().log()), [NONE, 0.0]);
    for special in [f32::NAN, f32::INFINITY] {
        assert!(of(&[1.0, special, NONE], Softmax::new()).iter().all(|y| y.is_nan()), "{special}");
    }
    assert_eq!(of(&[f32::MAX, -f32::MAX], Softmax::new()), [1.0, 0.0]);
    assert_eq!(of(&[], Softmax::new()), []);
    // What does not count does not matter, whatever it is.
    let position = device.upload(&[0i32]).unwrap();
    assert_eq!(of(&[3.0, f32::NAN, f32::INFINITY], Softmax::new().positions(&position)), [1.0, 0.0, 0.0]);
    let mask = device.upload(&[false, true]).unwrap();
    assert_eq!(of(&[f32::NAN, 1.0], Softmax::new().mask(&mask).log()), [NONE, 0.0]);
}

#[test]
fn gradients_of_columns_that_do_not_count_are_zero() {
    let device = Device::cpu();
    let y = device.upload(&[0.0f32, 0.25, 0.75]).unwrap();
    let dy = device.upload(&[f32::NAN, 1.0, 1.0]).unwrap();
    Softmax::new().backward(&device, &y, &dy, &dy).unwrap();
    assert_eq!(dy.to_vec().unwrap(), [0.0, 0.0, 0.0]);
    let y = device.upload(&[f32::NEG_INFINITY, 0.0]).unwrap();
    let dy = device.upload(&[f32::INFINITY, 1.0]).unwrap();
    Softmax::new().log().backward(&device, &y, &dy, &dy).unwrap();
    assert_eq!(dy.to_vec().unwrap(), [0.0, 0.0]);
}

#[test]
fn works_in_place_and_between_types() {
    let device = Device::cpu();
    let x = device
        .upload(&normals(3, 6 * 50, 2.0).iter().map(|x| bf16::from_f64(*x)).collect::<Vec<_>>())
        .unwrap();
    let y = device.alloc::<f32>(6 * 50).unwrap();
    let rows = Rows::new(&x, 6, 50);
    Softmax::new().run(&device, rows, Rows::new(&y, 6, 50)).unwrap();
    Softmax::new().run(&device, rows, rows).unwrap();
    let expected: Vec<bf16> = y.to_vec().unwrap().into_iter().map(bf16::from_f32).collect();
    assert_eq!(x.to_vec().unwrap(), expected);
}

/// Rows of equal numbers, however large, and rows that end in a larger one: what is subtracted must not lose what is left.
fn of_large_numbers<T: Sample>() {
    let most = T::of(if T::DIGITS == 11 { 65504.0 } else { 3.38e38 }).value();
    for device in [Device::cpu(), Device::simulator()] {
        let positions = device.upload(&[1500i32, 99]).unwrap();
        let of = |columns: usize, x: f64, softmax: Softmax<'_>, scale: f32, log: bool| {
            let exact = T::of(x).value();
            // In the second row a finite number masks all but the last column that is seen.
            let mut values = vec![x; 2 * columns];
            values[columns..2 * columns - 1].fill(-most);
            let (x, _) = input::<T>(&device, (2, columns), Lies::Dense, &values);
            let y = output::<T>(&device, (2, columns), Lies::Dense);
            let softmax = softmax.scale(scale);
            let softmax = if log { softmax.log() } else { softmax };
            softmax.run(&device, x.view(), y.view()).unwrap();
            (exact, y.read(T::of(0.25)))
        };
        let near = |found: f64, wanted: f64| {
            found == wanted || (found - wanted).abs() <= T::rounding(wanted) + 2e-6 * wanted.abs().max(1e-4)
        };
        for x in [1e4, 1e6, 1e9, most] {
            for (x, scale) in [(x, 1.0), (-x, 1.0), (x, 0.3), (-x, -0.7)] {
                if T::of(x).value().is_infinite() {
                    continue;
                }
                for log in [false, true] {
                    let value = |n: f64| if log { -n.ln() } else { 1.0 / n };
                    let settings = [
                        ("plain", 2048, Softmax::new(), 2048),
                        ("causal", 2048, Softmax::new().causal(2), 2047),
                        ("positions", 2048, Softmax::new().positions(&positions), 1501),
                        ("causal, short", 100, Softmax::new().causal(2), 99),
                        ("positions, short", 100, Softmax::new().positions(&positions), 100),
                    ];
                    for (name, columns, softmax, seen) in settings {
                        let (exact, y) = of(columns, x, softmax, scale, log);
                        let context = format!("{} {name} of {exact} times {scale}, log {log}", device.name());
                        for (j, found) in y[..columns].iter().enumerate() {
                            let nothing = if log { f64::NEG_INFINITY } else { 0.0 };
                            let wanted = if j < seen { value(seen as f64) } else { nothing };
                            let found = found.value();
                            assert!(near(found, wanted), "{context}: column {j} is {found}, not {wanted}");
                        }
                        if scale > 0.0 && x > 0.0 && name != "positions" {
                            let found = y[2 * columns - 1].value();
                            assert!(near(found, value(1.0)), "{context}: beside masked columns {found}");
                        }
                    }
                }
            }
        }
    }
}

for_each_type!(of_large_numbers);
