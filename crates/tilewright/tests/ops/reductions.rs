//! Reductions, indices of extremes, top-k and cumulative sums.

use tilewright::device::Device;
use tilewright::ops::{Arg, CumulativeSum, Reduce, Rows, TopK};

use super::common::{Exact, Lies, Matrix, Random, Sample, check, every_case, input, normals, output};
use crate::for_each_type;

fn exactly(reduce: Reduce, x: &[f64]) -> (&'static str, Exact) {
    let sum = |f: &dyn Fn(f64) -> f64| x.iter().map(|x| f(*x)).sum::<f64>();
    let fold = |start: f64, f: fn(f64, f64) -> f64| x.iter().copied().fold(start, f);
    let count = x.len() as f64;
    let (name, value, scale) = match reduce {
        Reduce::Sum => ("sum, mean, sum of squares, norm", sum(&|x| x), sum(&f64::abs)),
        Reduce::Mean => ("sum, mean, sum of squares, norm", sum(&|x| x) / count, sum(&f64::abs) / count),
        Reduce::SumSquares => ("sum, mean, sum of squares, norm", sum(&|x| x * x), sum(&|x| x * x)),
        Reduce::Norm => ("sum, mean, sum of squares, norm", sum(&|x| x * x).sqrt(), sum(&|x| x * x).sqrt()),
        Reduce::Product => ("product", x.iter().product(), x.iter().product::<f64>().abs()),
        Reduce::Max => ("largest, smallest, argmax, top-k", fold(f64::NEG_INFINITY, f64::max), 0.0),
        Reduce::Min => ("largest, smallest, argmax, top-k", fold(f64::INFINITY, f64::min), 0.0),
        Reduce::AbsMax => ("largest, smallest, argmax, top-k", fold(0.0, |a, b| a.max(b.abs())), 0.0),
        Reduce::LogSumExp => {
            let most = fold(f64::NEG_INFINITY, f64::max);
            let log = sum(&|x| (x - most).exp()).ln();
            ("logarithm of the sum of exponentials", most + log, most.abs() + log)
        }
        other => panic!("{other:?} is not tested"),
    };
    (name, Exact { value, scale })
}

fn reductions<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, _| {
        // Products stay numbers.
        let values: Vec<f64> = normals(3, rows * columns, 0.1)
            .iter()
            .map(|x| if *x < 0.0 { x - 0.9 } else { x + 0.9 })
            .collect();
        let (x, exact) = input::<T>(&device, (rows, columns), lies, &values);
        for &reduce in Reduce::ALL {
            if reduce == Reduce::Product && columns > 1000 {
                continue;
            }
            let (each, all) = (output::<T>(&device, (rows, 1), Lies::Padded), device.alloc::<T>(1).unwrap());
            reduce.rows(&device, x.view(), each.view()).unwrap();
            reduce.all(&device, x.view(), &all).unwrap();
            let wanted: Vec<Exact> = exact.chunks(columns).map(|row| exactly(reduce, row).1).collect();
            let (name, of_all) = exactly(reduce, &exact);
            check(name, &(reduce, rows, columns, lies), &each.read(T::of(0.25)), &wanted);
            check(name, &(reduce, "all", columns, lies), &all.to_vec().unwrap(), &[of_all]);
        }
    });
}

/// Columns in descending order, the first of equal ones first, by definition.
fn ranked(row: &[f64], smallest: bool) -> Vec<usize> {
    let mut left: Vec<usize> = (0..row.len()).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let better = |a: usize, b: usize| if smallest { row[a] < row[b] } else { row[a] > row[b] };
        let best = left.iter().copied().reduce(|a, b| if better(b, a) { b } else { a }).unwrap();
        left.retain(|j| *j != best);
        order.push(best);
    }
    order
}

fn extremes<T: Sample>() {
    let device = Device::cpu();
    let mut random = Random::new(5);
    for columns in [1, 2, 3, 31, 33, 256, 1000] {
        // Few different numbers, so that there are equal ones.
        let values: Vec<f64> = (0..4 * columns).map(|_| random.below(40) as f64 - 20.0).collect();
        for lies in [Lies::Dense, Lies::Scattered] {
            let (x, exact) = input::<T>(&device, (4, columns), lies, &values);
            for smallest in [false, true] {
                let wanted: Vec<Vec<usize>> =
                    exact.chunks(columns).map(|row| ranked(row, smallest)).collect();
                let indices = device.alloc::<u32>(4).unwrap();
                let arg = if smallest { Arg::Min } else { Arg::Max };
                arg.rows(&device, x.view(), &indices).unwrap();
                let first: Vec<u32> = wanted.iter().map(|order| order[0] as u32).collect();
                assert_eq!(indices.to_vec().unwrap(), first, "{columns} {smallest}");
                for k in [1, 8.min(columns), columns] {
                    let found = output::<T>(&device, (4, k), Lies::Padded);
                    let indices = Matrix::new(&device, (4, k), Lies::Turned, &vec![0u32; 4 * k], 9);
                    let top = if smallest { TopK::new(k).smallest() } else { TopK::new(k) };
                    top.run(&device, x.view(), found.view(), indices.view()).unwrap();
                    let chosen: Vec<usize> = wanted.iter().flat_map(|order| order[..k].to_vec()).collect();
                    assert_eq!(indices.read(9), chosen.iter().map(|j| *j as u32).collect::<Vec<_>>());
                    let values: Vec<f64> =
                        chosen.iter().enumerate().map(|(i, j)| exact[i / k * columns + j]).collect();
                    let found: Vec<f64> = found.read(T::of(0.25)).into_iter().map(T::value).collect();
                    assert_eq!(found, values);
                }
            }
        }
    }
}

fn cumulative<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let (x, exact) = input::<T>(&device, (rows, columns), lies, &normals(8, rows * columns, 1.0));
        for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
            let y = output::<T>(&device, (rows, columns), other);
            let mut scan = CumulativeSum::new();
            scan = if exclusive { scan.exclusive() } else { scan };
            scan = if reverse { scan.reverse() } else { scan };
            scan.run(&device, x.view(), y.view()).unwrap();
            let mut wanted = vec![Exact { value: 0.0, scale: 0.0 }; rows * columns];
            for i in 0..rows {
                let (mut value, mut scale) = (0.0, 0.0);
                for step in 0..columns {
                    let at = i * columns + if reverse { columns - 1 - step } else { step };
                    let after = (value + exact[at], scale + exact[at].abs());
                    let (v, s) = if exclusive { (value, scale) } else { after };
                    wanted[at] = Exact { value: v, scale: s };
                    (value, scale) = after;
                }
            }
            check("cumulative sum", &(rows, columns, exclusive, reverse), &y.read(T::of(0.25)), &wanted);
        }
    });
}

for_each_type!(reductions extremes cumulative);

#[test]
fn nothing_and_nan() {
    let device = Device::cpu();
    let nothing = device.alloc::<f32>(0).unwrap();
    let (one, index) = (device.alloc::<f32>(2).unwrap(), device.alloc::<u32>(2).unwrap());
    let x = device.upload(&[1.0f32, f32::NAN, 3.0, f32::NAN, -0.0, 0.0, -0.0, 0.0]).unwrap();
    let x = Rows::new(&x, 2, 4);
    for (reduce, empty) in Reduce::ALL.iter().zip([
        0.0,
        f32::NAN,
        1.0,
        f32::NEG_INFINITY,
        f32::INFINITY,
        0.0,
        0.0,
        0.0,
        f32::NEG_INFINITY,
    ]) {
        reduce.rows(&device, Rows::new(&nothing, 2, 0), &one).unwrap();
        let found = one.to_vec().unwrap();
        assert!(found.iter().all(|x| *x == empty || (x.is_nan() && empty.is_nan())), "{reduce:?}: {found:?}");
        reduce.rows(&device, x, &one).unwrap();
        assert!(one.to_vec().unwrap()[0].is_nan(), "{reduce:?}");
        reduce.rows(&device, Rows::new(&nothing, 0, 4), &nothing).unwrap();
    }
    for arg in [Arg::Max, Arg::Min] {
        arg.rows(&device, x, &index).unwrap();
        assert_eq!(index.to_vec().unwrap(), [1, 0]);
        arg.rows(&device, Rows::new(&nothing, 2, 0), &index).unwrap();
        assert_eq!(index.to_vec().unwrap(), [u32::MAX; 2]);
    }
    let (values, indices) = (device.alloc::<f32>(6).unwrap(), device.alloc::<u32>(6).unwrap());
    TopK::new(3).run(&device, x, Rows::new(&values, 2, 3), Rows::new(&indices, 2, 3)).unwrap();
    assert_eq!(indices.to_vec().unwrap(), [1, 3, 2, 0, 1, 2]);
    TopK::new(0)
        .run(&device, x, Rows::new(&nothing, 2, 0), Rows::new(&device.alloc::<u32>(0).unwrap(), 2, 0))
        .unwrap();
}
