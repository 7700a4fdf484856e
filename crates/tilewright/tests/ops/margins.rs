//! Numbers at the margins of their types, and none at all, by kernels on a GPU, or else in the simulator, and by the CPU.

use tilewright::device::Device;
use tilewright::lang::{E4m3, E5m2, bf16, f16};
use tilewright::ops::{Glu, LayerNorm, NumberItem, Reduce, Rows, convert};

use super::common::machine;

/// Logarithms of sums of exponentials that f32 has no room for, and of infinities, in one go and by programs that share a row.
#[test]
fn logarithms_of_sums_of_exponentials() {
    const INF: f32 = f32::INFINITY;
    for device in [Device::cpu(), machine()] {
        for columns in [5, 40_000] {
            let padded = |start: &[f32], rest: f32| {
                let mut row = vec![rest; columns];
                row[columns - start.len()..].copy_from_slice(start);
                row
            };
            let rows = [
                (padded(&[1000.0, 1000.0], -INF), 1000.0 + 2f32.ln()),
                (padded(&[-1000.0], -INF), -1000.0),
                (padded(&[-INF], -INF), -INF),
                (padded(&[INF, 3.0], 0.0), INF),
                (padded(&[INF, f32::NAN], 0.0), f32::NAN),
                (padded(&[], 0.0), (columns as f32).ln()),
            ];
            let x = device.upload(&rows.iter().flat_map(|(row, _)| row.clone()).collect::<Vec<_>>()).unwrap();
            let results = device.alloc::<f32>(rows.len()).unwrap();
            Reduce::LogSumExp.rows(&device, Rows::new(&x, rows.len(), columns), &results).unwrap();
            for (found, (_, want)) in results.to_vec().unwrap().into_iter().zip(rows) {
                let same = found == want || (found.is_nan() && want.is_nan());
                let near = (found - want).abs() <= 2e-6 * want.abs();
                assert!(same || near, "{} {columns}: {found}, expected {want}", device.name());
            }
        }
    }
}

/// Numbers beside and in the middle of two results, too large ones and none, from and to every type.
#[test]
fn conversions_are_the_same_everywhere() {
    fn all<T: NumberItem + PartialEq + std::fmt::Debug>(of: impl Fn(f64) -> T) {
        to::<T, f32>(&of);
        to::<T, f16>(&of);
        to::<T, bf16>(&of);
        to::<T, E4m3>(&of);
        to::<T, E5m2>(&of);
        to::<T, i8>(&of);
        to::<T, u8>(&of);
    }
    fn to<T: NumberItem, U: NumberItem + PartialEq + std::fmt::Debug>(of: impl Fn(f64) -> T) {
        let numbers: Vec<T> =
            [0.0, -0.0, 0.4, 0.5, 0.6, 0.9, -0.9, 1.5, 2.5, -1.5, -2.5, 126.5, 127.5, 254.5, 255.5, -128.5]
                .into_iter()
                .chain([
                    300.0,
                    -1000.0,
                    1e9,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    2f64.powi(-10),
                    17.0,
                    18.5,
                    1.0 + 2f64.powi(-8),
                ])
                .map(of)
                .collect();
        let [cpu, found] = [Device::cpu(), machine()].map(|device| {
            let (x, y) = (device.upload(&numbers).unwrap(), device.alloc::<U>(numbers.len()).unwrap());
            convert(&device, &x, &y).unwrap();
            y.to_vec().unwrap()
        });
        assert_eq!(cpu, found, "{} to {}", T::ELEMENT, U::ELEMENT);
    }
    all(|x| x as f32);
    all(f16::from_f64);
    all(bf16::from_f64);
    all(E4m3::from_f64);
    all(E5m2::from_f64);
    all(|x| x as i8);
    all(|x| x as u8);
    // As they should be, whoever agrees.
    let device = machine();
    let x = device.upload(&[1.5f32, 2.5, -1000.0, f32::NAN, 0.9, -0.9]).unwrap();
    let y = device.alloc::<i8>(6).unwrap();
    convert(&device, &x, &y).unwrap();
    assert_eq!(y.to_vec().unwrap(), [2, 2, -128, 0, 1, -1]);
}

/// A product of what is beyond f32 with a slope of zero.
#[test]
fn gradients_of_gates_far_out_stay_finite() {
    for device in [Device::cpu(), machine()] {
        for glu in [Glu::swiglu(), Glu::geglu(), Glu::geglu_tanh()] {
            let (gate, large) =
                (device.upload(&[-300.0f32, -20.0]).unwrap(), device.upload(&[1e25f32; 2]).unwrap());
            let (dgate, dup) = (device.alloc::<f32>(2).unwrap(), device.alloc::<f32>(2).unwrap());
            glu.backward(&device, &gate, &large, &large, &dgate, &dup).unwrap();
            let found = [dgate.to_vec().unwrap(), dup.to_vec().unwrap()].concat();
            assert!(
                found.iter().take(1).chain(&found[2..]).all(|x| x.is_finite()),
                "{glu:?} {}: {found:?}",
                device.name()
            );
            assert!(!found[1].is_nan(), "{glu:?} {}: {found:?}", device.name());
        }
    }
}

/// The mean of equal numbers, as kernels add them, may be some last digits off: by how much that shows.
#[test]
fn rows_of_equal_numbers_are_nearly_zero() {
    for (number, columns) in [(1000.1f32, 768), (12345.678, 1536), (3.3, 40_000), (0.1, 70_000), (-7.7, 5003)]
    {
        for epsilon in [1e-5f32, 1e-12] {
            for (device, digits) in [(Device::cpu(), 0.0), (machine(), 2f64.powi(-20))] {
                let (x, y) =
                    (device.upload(&vec![number; columns]).unwrap(), device.alloc::<f32>(columns).unwrap());
                LayerNorm::new(epsilon).run(&device, &x, &y).unwrap();
                let most = digits * f64::from(number.abs()) / f64::from(epsilon).sqrt();
                for y in y.to_vec().unwrap() {
                    assert!(
                        f64::from(y.abs()) <= most,
                        "{columns} times {number}, {epsilon}: {y}, at most {most}"
                    );
                }
            }
        }
    }
}

/// Sums of nothing are zero and not minus zero.
#[test]
fn sums_of_nothing_are_zero() {
    for device in [Device::cpu(), machine()] {
        let nothing = device.alloc::<f32>(0).unwrap();
        for reduce in [Reduce::Sum, Reduce::SumSquares, Reduce::Norm] {
            let result = device.upload(&[7.0f32]).unwrap();
            reduce.all(&device, &nothing, &result).unwrap();
            assert_eq!(result.to_vec().unwrap()[0].to_bits(), 0, "{reduce:?} {}", device.name());
        }
    }
}
