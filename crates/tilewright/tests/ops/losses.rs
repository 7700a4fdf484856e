//! Cross entropy and its gradient.

use tilewright::device::Device;
use tilewright::ops::{CrossEntropy, Rows};

use super::common::{Exact, Random, Sample, check, every_case, input, normals, output};
use crate::for_each_type;

const SMOOTHING: f32 = 0.1;
const Z_LOSS: f32 = 0.01;

fn log_sum_exp(x: &[f64]) -> f64 {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + x.iter().map(|x| (x - most).exp()).sum::<f64>().ln()
}

/// Settings with and without what is optional.
fn settings() -> [(CrossEntropy, f64, f64); 2] {
    let plain = CrossEntropy::new();
    [(plain, 0.0, 0.0), (plain.smoothing(SMOOTHING).z_loss(Z_LOSS), SMOOTHING.into(), Z_LOSS.into())]
}

fn losses_of<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let mut random = Random::new(columns as u64);
        let (x, exact) = input::<T>(&device, (rows, columns), lies, &normals(21, rows * columns, 3.0));
        let targets: Vec<i64> = (0..rows).map(|_| random.below(columns) as i64).collect();
        let given = device.upload(&targets).unwrap();
        let dlosses: Vec<f32> = (0..rows).map(|_| random.normal() as f32).collect();
        let weights = device.upload(&dlosses).unwrap();
        for (entropy, smoothing, z) in settings() {
            let losses = device.alloc::<f32>(rows).unwrap();
            let dx = output::<T>(&device, (rows, columns), other);
            entropy.run(&device, x.view(), &given, &losses).unwrap();
            entropy.backward(&device, x.view(), &given, &weights, dx.view()).unwrap();
            let (mut wanted, mut gradient) = (Vec::new(), Vec::new());
            for (i, row) in exact.chunks(columns).enumerate() {
                let (lse, target) = (log_sum_exp(row), targets[i] as usize);
                let mean = row.iter().sum::<f64>() / columns as f64;
                let size = row.iter().map(|x| x.abs()).sum::<f64>() / columns as f64;
                let value = lse - (1.0 - smoothing) * row[target] - smoothing * mean + z * lse * lse;
                let scale = lse.abs() + row[target].abs() + smoothing * size + z * lse * lse;
                wanted.push(Exact { value, scale });
                for (j, x) in row.iter().enumerate() {
                    let p = (x - lse).exp();
                    let hit = if j == target { 1.0 - smoothing } else { 0.0 };
                    let share = smoothing / columns as f64;
                    let given = f64::from(dlosses[i]);
                    gradient.push(Exact {
                        value: given * (p + 2.0 * z * lse * p - hit - share),
                        scale: given.abs() * (p + 2.0 * z * lse.abs() * p + hit + share),
                    });
                }
            }
            check("cross entropy", &(rows, columns, lies), &losses.to_vec().unwrap(), &wanted);
            check("cross entropy, gradient", &(rows, columns, lies), &dx.read(T::of(0.25)), &gradient);
        }
    });
}

for_each_type!(losses_of);

#[test]
fn special_targets_and_numbers() {
    const NONE: f32 = f32::NEG_INFINITY;
    let device = Device::cpu();
    let rows = [
        [0.0, f32::NAN, 0.0], // ignored
        [1.0, 2.0, 3.0],      // no such column
        [1.0, 2.0, 3.0],      // no such column
        [0.0, NONE, 0.0],     // cannot be chosen
        [NONE, 5.0, NONE],    // certain
        [0.0, f32::NAN, 0.0],
        [NONE, NONE, NONE],
    ];
    let targets = device.upload(&[-100i32, 3, -1, 1, 1, 0, 0]).unwrap();
    let x = device.upload(rows.as_flattened()).unwrap();
    let (losses, one) = (device.alloc::<f32>(7).unwrap(), device.upload(&[1.0f32]).unwrap());
    let x = Rows::new(&x, 7, 3);
    for entropy in [CrossEntropy::new(), CrossEntropy::new().smoothing(0.0).z_loss(0.0)] {
        entropy.run(&device, x, &targets, &losses).unwrap();
        let found = losses.to_vec().unwrap();
        assert_eq!((found[0], found[3], found[4]), (0.0, f32::INFINITY, 0.0));
        assert!([1, 2, 5, 6].iter().all(|&i| found[i].is_nan()), "{found:?}");
    }
    let out = device.alloc::<f32>(21).unwrap();
    CrossEntropy::new().backward(&device, x, &targets, &one, Rows::new(&out, 7, 3)).unwrap();
    let found = out.to_vec().unwrap();
    assert_eq!(found[..3], [0.0; 3]);
    assert!(found[3..9].iter().all(|x| x.is_nan()));
    assert_eq!(found[9..12], [0.5, -1.0, 0.5]);
    assert_eq!(found[12..15], [0.0; 3]);
    assert!(found[15..].iter().all(|x| x.is_nan()));

    // Of nothing.
    let nothing = device.alloc::<f32>(0).unwrap();
    let none = device.alloc::<i32>(0).unwrap();
    CrossEntropy::new().run(&device, Rows::new(&nothing, 0, 5), &none, &nothing).unwrap();
    let (target, loss) = (device.upload(&[0u32]).unwrap(), device.alloc::<f32>(1).unwrap());
    CrossEntropy::new().run(&device, Rows::new(&nothing, 1, 0), &target, &loss).unwrap();
    assert!(loss.to_vec().unwrap()[0].is_nan());
    // With another number to ignore.
    CrossEntropy::new().ignore(0).run(&device, Rows::new(&nothing, 1, 0), &target, &loss).unwrap();
    assert_eq!(loss.to_vec().unwrap(), [0.0]);
}

#[test]
fn a_target_that_cannot_be_chosen_costs_infinitely_much_with_smoothing_too() {
    for device in [Device::cpu(), Device::simulator()] {
        // The second is as long as no program holds.
        for columns in [2, 300_000] {
            let mut x = vec![0.0f32; columns];
            x[0] = f32::NEG_INFINITY;
            let x = device.upload(&x).unwrap();
            let (targets, losses) = (device.upload(&[0i32]).unwrap(), device.alloc::<f32>(1).unwrap());
            for smoothing in [0.0, 0.1, 1.0] {
                let entropy = CrossEntropy::new().smoothing(smoothing);
                entropy.run(&device, Rows::new(&x, 1, columns), &targets, &losses).unwrap();
                assert_eq!(losses.to_vec().unwrap(), [f32::INFINITY], "{} {smoothing}", device.name());
            }
        }
    }
}

/// The loss of equal logits is the logarithm of their number, and the gradient is known, however large they are.
#[test]
fn large_logits_lose_nothing() {
    for device in [Device::cpu(), Device::simulator()] {
        for x in [1e4, 1e9, 3e38, -3e38] {
            let logits = device.upload(&[x; 2]).unwrap();
            let logits = Rows::new(&logits, 1, 2);
            let (targets, losses) = (device.upload(&[1i32]).unwrap(), device.alloc::<f32>(1).unwrap());
            let (ones, dx) = (device.upload(&[1.0f32]).unwrap(), device.alloc::<f32>(2).unwrap());
            for smoothing in [0.0, 0.2] {
                let entropy = CrossEntropy::new().smoothing(smoothing);
                entropy.run(&device, logits, &targets, &losses).unwrap();
                let found = losses.to_vec().unwrap()[0];
                assert!((found - 2f32.ln()).abs() < 1e-6, "{} {x} {smoothing}: {found}", device.name());
                entropy.backward(&device, logits, &targets, &ones, Rows::new(&dx, 1, 2)).unwrap();
                let (found, wanted) = (dx.to_vec().unwrap(), 0.5 - smoothing / 2.0);
                let near = (found[0] - wanted).abs() < 1e-6 && (found[1] + wanted).abs() < 1e-6;
                assert!(near, "{} {x} {smoothing}: {found:?}", device.name());
            }
        }
    }
}

/// Rows that are gone through in steps, by clusters where there are few: numbers that come late, special ones, targets anywhere.
fn long_rows_of<T: Sample>() {
    const ROWS: usize = 9;
    let columns = 40_003;
    let mut values: Vec<T> = normals(5, ROWS * columns, 3.0).into_iter().map(T::of).collect();
    let row = |i: usize| i * columns..(i + 1) * columns;
    // Each is larger than all before.
    values[row(1)].iter_mut().enumerate().for_each(|(i, x)| *x = T::of(i as f64 / 512.0));
    values[row(2)].fill(T::of(3e4));
    values[row(3)].fill(T::of(f64::NEG_INFINITY));
    values[row(4)][30_000] = T::of(f64::INFINITY);
    values[row(5)][columns - 1] = T::of(f64::NAN);
    values[row(6)][..columns - 2].fill(T::of(f64::NEG_INFINITY));
    values[row(7)].fill(T::of(-6e4));
    values[row(8)][..30_000].fill(T::of(f64::NEG_INFINITY));
    let targets = [0i64, 20_000, 40_002, 5, 6, 7, 40_001, 12_345, 0];
    for (smoothing, z_loss) in [(0.0, 0.0), (0.1, 1e-4), (1.0, 0.0)] {
        let entropy = CrossEntropy::new().smoothing(smoothing).z_loss(z_loss);
        let [want, found] = [Device::cpu(), Device::simulator()].map(|device| {
            let (x, targets) = (device.upload(&values).unwrap(), device.upload(&targets).unwrap());
            let losses = device.alloc::<f32>(ROWS).unwrap();
            entropy.run(&device, Rows::new(&x, ROWS, columns), &targets, &losses).unwrap();
            losses.to_vec().unwrap()
        });
        let near = |(want, found): (&f32, &f32)| {
            want == found
                || (want.is_nan() && found.is_nan())
                || (want - found).abs() < 1e-5 * (1.0 + want.abs())
        };
        let case = (T::ELEMENT, smoothing, z_loss);
        assert!(want.iter().zip(&found).all(near), "{case:?}: {found:?}, on the CPU {want:?}");
    }
}

for_each_type!(long_rows_of);

/// Gradients of such rows, of which one is ignored and one has no such column; aligned and not, in one step and in several, in place too.
fn gradients_of_long_rows_of<T: Sample>() {
    const ROWS: usize = 5;
    let targets = [16_500i64, -100, 40_000_000, 3, 0];
    let given = [0.5f32, 1.0, 2.0, -3.0, 1.0];
    // The longest take two steps.
    for (columns, smoothing, z_loss) in [(17_003, 0.1, 1e-4), (40_000, 0.0, 0.0), (140_000, 0.1, 0.0)] {
        let mut values: Vec<T> = normals(7, ROWS * columns, 3.0).into_iter().map(T::of).collect();
        values[columns..2 * columns].fill(T::of(f64::NAN));
        values[3 * columns] = T::of(f64::NEG_INFINITY);
        values[3 * columns + 3] = T::of(25.0);
        values[5 * columns - 1] = T::of(f64::INFINITY);
        let entropy = CrossEntropy::new().smoothing(smoothing).z_loss(z_loss);
        let [want, found] = [Device::cpu(), Device::simulator()].map(|device| {
            let (x, targets) = (device.upload(&values).unwrap(), device.upload(&targets).unwrap());
            let (given, dx) = (device.upload(&given).unwrap(), device.alloc::<T>(values.len()).unwrap());
            let of = |buffer| Rows::new(buffer, ROWS, columns);
            entropy.backward(&device, of(&x), &targets, &given, of(&dx)).unwrap();
            entropy.backward(&device, of(&x), &targets, &given, of(&x)).unwrap();
            let [apart, in_place] = [&dx, &x].map(|buffer| buffer.to_vec().unwrap());
            let same = |(a, b): (&T, &T)| a.to_f32().to_bits() == b.to_f32().to_bits();
            assert!(apart.iter().zip(&in_place).all(same), "{columns} columns in place: {}", device.name());
            apart
        });
        for (at, (want, found)) in want.iter().zip(&found).enumerate() {
            let (want, found, (row, column)) = (want.value(), found.value(), (at / columns, at % columns));
            // Where the target takes almost all away, what the difference is of counts.
            let slack = if targets[row] == column as i64 { 1e-5 } else { 1e-9 };
            let near = (want - found).abs() <= 1e-5 * want.abs() + 4.0 * T::rounding(want) + slack;
            let case = (T::ELEMENT, columns, row, column);
            assert!(near || (want.is_nan() && found.is_nan()), "{case:?}: {found}, on the CPU {want}");
        }
    }
}

for_each_type!(gradients_of_long_rows_of);
