//! What comes after the product.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright::gemm::Formula;

use super::*;

#[test]
fn epilogues_read_and_write_what_they_are_given() {
    for device in available() {
        let (m, n, k) = (6, 5, 7);
        let values: Vec<Vec<f32>> =
            (0..4).map(|i| numbers([m * k, k * n, n, m * n][i], i, f32::of)).collect();
        let epilogue = Epilogue::new()
            .alpha()
            .bias_per_column("bias", Element::F32)
            .store("before", Element::F32, Placement::dense(Storage::RowMajor, m, n))
            .relu()
            .residual("x", Element::F32, Placement::dense(Storage::RowMajor, m, n))
            .row_sums("sums")
            .amax("largest");
        for storage in [Storage::RowMajor, Storage::ColumnMajor] {
            let plan = Gemm::new(m, n, k).element::<f32>().d(storage).epilogue(epilogue.clone());
            let plan = plan.plan(&device).unwrap();
            let buffers: Vec<_> = values.iter().map(|values| device.upload(values).unwrap()).collect();
            let [a, b, bias, x] = &buffers[..] else { panic!() };
            let (before, d) = (device.alloc::<f32>(m * n).unwrap(), device.alloc::<f32>(m * n).unwrap());
            let (sums, largest) = (device.alloc::<f32>(m).unwrap(), device.alloc::<f32>(1).unwrap());
            let arguments = Arguments::new(a, b, &d).alpha(2.0).extra("bias", bias).extra("x", x);
            let arguments =
                arguments.extra("before", &before).extra("sums", &sums).extra("largest", &largest);
            plan.run(&arguments).unwrap();

            let (a, b) = (&values[0], &values[1]);
            let product = |row: usize, column: usize| -> f32 {
                (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum()
            };
            let biased = |i: usize| 2.0 * product(i / n, i % n) + values[2][i % n];
            let expected: Vec<f32> = (0..m * n).map(|i| biased(i).max(0.0) + values[3][i]).collect();
            let found = d.to_vec().unwrap();
            let leading = if storage == Storage::RowMajor { n } else { m };
            let found: Vec<f32> = (0..m * n).map(|i| found[at(storage, leading, i / n, i % n)]).collect();
            assert_eq!(found, expected, "{storage:?} on {}", device.name());
            assert_eq!(before.to_vec().unwrap(), (0..m * n).map(biased).collect::<Vec<_>>());
            let rows: Vec<f32> = expected.chunks(n).map(|row| row.iter().sum()).collect();
            assert_eq!(sums.to_vec().unwrap(), rows, "{}", device.name());
            let most = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            assert_eq!(largest.to_vec().unwrap(), [most]);
        }
    }
}

#[test]
fn what_is_written_may_lie_between_the_elements_of_something_else_that_is() {
    for device in available() {
        let (m, n, k, batch) = (3, 2, 4, 2);
        let (a, b) = (vec![1.0f32; batch * m * k], vec![0.5f32; batch * k * n]);
        let (a, b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        // Lines of six: two columns of D, two of what was there before, two of what was there before that.
        let all = device.upload(&[9.0f32; 2 * 3 * 6]).unwrap();
        let third = Placement {
            leading: 6,
            batch_stride: 18,
            alignment: 4,
            ..Placement::dense(Storage::RowMajor, m, n)
        };
        // And the largest, before sums of rows.
        let reduced = device.upload(&[9.0f32; 1 + 2 * 3]).unwrap();
        let epilogue = Epilogue::new()
            .store("first", Element::F32, third)
            .then(|x| x * 10.0)
            .store("second", Element::F32, third)
            .then(|x| x * 10.0)
            .row_sums("sums")
            .amax("largest");
        let gemm = Gemm::new(m, n, k).batch(batch).leading_d(6).stride_d(18).epilogue(epilogue);
        let arguments = Arguments::new(&a, &b, &all)
            .extra("second", &all.slice(2..).unwrap())
            .extra("first", &all.slice(4..).unwrap())
            .extra("largest", &reduced)
            .extra("sums", &reduced.slice(1..).unwrap());
        Planner::new(&device).run(&gemm, &arguments).unwrap();
        let name = device.name();
        assert_eq!(all.to_vec().unwrap(), [200.0, 200.0, 20.0, 20.0, 2.0, 2.0].repeat(6), "{name}");
        assert_eq!(reduced.to_vec().unwrap(), [200.0, 400.0, 400.0, 400.0, 400.0, 400.0, 400.0], "{name}");
    }
}

#[test]
fn eight_bit_floats_are_scaled() {
    for device in available() {
        let (m, n, k) = (5, 6, 32);
        let small = |salt: usize, len: usize| numbers(len, salt, E4m3::from_f64);
        let (a, b) = (small(1, m * k), small(2, n * k));
        let epilogue =
            Epilogue::new().scale_rows("rows", Element::F32).scale_columns("columns", Element::F32);
        let gemm = Gemm::new(m, n, k).element::<E4m3>().b(Storage::ColumnMajor).epilogue(epilogue);
        let plan = gemm.plan(&device).unwrap_or_else(|error| panic!("{}: {error}", device.name()));
        let (rows, columns) = (device.upload(&[0.5f32; 5]).unwrap(), device.upload(&[2.0f32; 6]).unwrap());
        let d = device.alloc::<bf16>(m * n).unwrap();
        let arguments = Arguments::new(&device.upload(&a).unwrap(), &device.upload(&b).unwrap(), &d);
        plan.run(&arguments.extra("rows", &rows).extra("columns", &columns)).unwrap();
        let sum = |row: usize, column: usize| -> f64 {
            (0..k).map(|i| a[row * k + i].to_f64() * b[column * k + i].to_f64()).sum()
        };
        let expected: Vec<bf16> = (0..m * n).map(|i| bf16::from_f64(sum(i / n, i % n))).collect();
        assert_eq!(d.to_vec().unwrap(), expected, "{}", device.name());
    }
}

#[test]
fn reductions_of_nothing_are_written() {
    for device in available() {
        let dirty = |len: usize| device.upload(&vec![7.0f32; len]).unwrap();
        for (m, n, batch) in [(0, 3, 1), (3, 0, 1), (3, 3, 0), (0, 3, 2), (0, 0, 1)] {
            let each = |shape, how, len: usize| {
                let operand = ExtraOperand::new(
                    if shape == Shape::PerRow { "rows" } else { "columns" },
                    Element::F32,
                    shape,
                );
                move |x: Expr| x.reduce(operand.each_batch(len), how)
            };
            let epilogue = Epilogue::new()
                .then(each(Shape::PerRow, How::Sum, 3))
                .then(each(Shape::PerColumn, How::Max, 3))
                .amax("largest");
            let gemm = Gemm::new(m, n, 2).element::<f32>().batch(batch).epilogue(epilogue);
            let (a, b, d) = (dirty(16), dirty(16), dirty(16));
            let (rows, columns, largest) = (dirty(6), dirty(6), dirty(1));
            let arguments = Arguments::new(&a, &b, &d);
            let arguments =
                arguments.extra("rows", &rows).extra("columns", &columns).extra("largest", &largest);
            gemm.plan(&device).unwrap().run(&arguments).unwrap();
            let expected = |extent: usize, value: f32| {
                let written = |i: usize| i / 3 < batch && i % 3 < extent;
                (0..6).map(|i| if written(i) { value } else { 7.0 }).collect::<Vec<f32>>()
            };
            let case = format!("{m}x{n}, {batch} on {}", device.name());
            assert_eq!(rows.to_vec().unwrap(), expected(m, 0.0), "{case}");
            assert_eq!(columns.to_vec().unwrap(), expected(n, f32::NEG_INFINITY), "{case}");
            assert_eq!(largest.to_vec().unwrap(), [0.0], "{case}");
            assert_eq!(d.to_vec().unwrap(), [7.0; 16], "{case}");
        }
    }
}

#[test]
fn reductions_before_two_columns_become_one_begin_anew() {
    for device in available() {
        let epilogue = Epilogue::new().column_sums("sums").swiglu();
        let plan = Gemm::new(2, 4, 1).element::<f32>().epilogue(epilogue).plan(&device).unwrap();
        let (a, b) = (device.upload(&[1.0f32; 2]).unwrap(), device.upload(&[1.0f32, 2.0, 3.0, 4.0]).unwrap());
        let (d, sums) = (device.alloc::<f32>(4).unwrap(), device.upload(&[7.0f32; 4]).unwrap());
        plan.run(&Arguments::new(&a, &b, &d).extra("sums", &sums)).unwrap();
        assert_eq!(sums.to_vec().unwrap(), [2.0, 4.0, 6.0, 8.0], "{}", device.name());
    }
}

#[test]
fn relu_keeps_nan() {
    fn check<T: Sample, R: Sample>(device: &Device) {
        let factors = [-2.0, 3.0, f64::NAN, f64::NEG_INFINITY].map(T::of);
        let (a, b) = (device.upload(&factors).unwrap(), device.upload(&[T::of(1.0)]).unwrap());
        let types = Types::of(T::ELEMENT).with_result(R::ELEMENT);
        let d = Gemm::new(4, 1, 1).types(types).epilogue(Epilogue::new().relu()).run(device, &a, &b).unwrap();
        let found: Vec<f64> = d.to_vec::<R>().unwrap().into_iter().map(Sample::value).collect();
        assert!(found[2].is_nan(), "{} {}: {found:?}", T::ELEMENT, device.name());
        assert_eq!([found[0], found[1], found[3]], [0.0, 3.0, 0.0], "{}", device.name());
    }
    for device in available() {
        check::<f32, f32>(&device);
        check::<f64, f64>(&device);
        check::<bf16, bf16>(&device);
        check::<bf16, f32>(&device);
    }
}

#[test]
fn activations_of_infinity_and_quotients_of_large_numbers_are_right() {
    use tilewright::kernels::gemm::epilogue::Real;
    type Function = fn(f64) -> f64;
    let infinite =
        [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -3e38, 3e38, -30.0, -1.0, 0.5].map(bf16::from_f32);
    let large = [(3e38, 2e38), (2e-38, 2e-38), (-1e38, 3e38), (1.0, 0.0), (6.0, 3.0)];
    for device in available() {
        let one = device.upload(&[bf16::from_f32(1.0)]).unwrap();
        let x = device.upload(&infinite).unwrap();
        let functions: [(Epilogue, Function); 3] = [
            (Epilogue::new().silu(), Real::silu),
            (Epilogue::new().gelu(), Real::gelu),
            (Epilogue::new().gelu_tanh(), Real::gelu_tanh),
        ];
        for (epilogue, function) in functions {
            let text = epilogue.to_string();
            let d = Gemm::new(8, 1, 1).epilogue(epilogue).run(&device, &x, &one).unwrap();
            for (x, found) in infinite.iter().zip(d.to_vec::<bf16>().unwrap()) {
                let (expected, found) = (function(x.to_f64()), found.to_f64());
                let near = (found - expected).abs() <= 0.01 * expected.abs() + 1e-6;
                let same = found == expected || near || found.is_nan() && expected.is_nan();
                assert!(same, "{text} of {x}: {found}, {expected} on {}", device.name());
            }
        }
        let (above, below): (Vec<f32>, Vec<f32>) = large.into_iter().unzip();
        let divide = Epilogue::from(Expr::Sum / Expr::per_row("below", Element::F32));
        let plan = Gemm::new(5, 1, 1).element::<bf16>().epilogue(divide).plan(&device).unwrap();
        let a: Vec<bf16> = above.iter().copied().map(bf16::from_f32).collect();
        let (a, below_it) = (device.upload(&a).unwrap(), device.upload(&below).unwrap());
        let d = device.alloc::<bf16>(5).unwrap();
        plan.run(&Arguments::new(&a, &one, &d).extra("below", &below_it)).unwrap();
        for ((above, below), found) in above.iter().zip(&below).zip(d.to_vec().unwrap()) {
            let (expected, found) = (above / below, found.to_f32());
            let same = found == expected || (found - expected).abs() <= 0.01 * expected.abs();
            assert!(same, "{above} / {below}: {found} on {}", device.name());
        }
    }
}

#[test]
fn reductions_suit_batches_and_types() {
    fn check<T: Sample>(device: &Device) {
        let epilogue = Epilogue::new().row_sums("rows").column_max("columns").amax("largest");
        let plan = Gemm::new(2, 3, 1).element::<T>().batch(2).epilogue(epilogue).plan(device).unwrap();
        let upload =
            |values: &[f64]| device.upload(&values.iter().map(|&x| T::of(x)).collect::<Vec<T>>()).unwrap();
        let (a, b) = (upload(&[1.0, 2.0, 3.0, -4.0]), upload(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let (d, rows, columns, largest) =
            (upload(&[7.0; 12]), upload(&[7.0; 4]), upload(&[7.0; 6]), upload(&[7.0]));
        let arguments = Arguments::new(&a, &b, &d).extra("rows", &rows);
        plan.run(&arguments.extra("columns", &columns).extra("largest", &largest)).unwrap();
        let numbers = |buffer: &tilewright::device::Buffer<T>| -> Vec<f64> {
            buffer.to_vec().unwrap().into_iter().map(Sample::value).collect()
        };
        assert_eq!(numbers(&rows), [6.0, 12.0, 45.0, -60.0], "{} {}", T::ELEMENT, device.name());
        assert_eq!(numbers(&columns), [2.0, 4.0, 6.0, 12.0, 15.0, 18.0], "{} {}", T::ELEMENT, device.name());
        assert_eq!(numbers(&largest), [24.0], "{} {}", T::ELEMENT, device.name());
    }
    for device in available() {
        check::<f32>(&device);
        check::<f64>(&device);
    }
}

/// A formula whose name does not tell its constant, which may change.
struct Times(Arc<AtomicU32>);

impl Times {
    fn of(factor: u32) -> Times {
        Times(Arc::new(AtomicU32::new(factor)))
    }
}

impl Formula for Times {
    fn name(&self) -> String {
        "times".to_owned()
    }
    fn apply<R: tilewright::gemm::Real>(&self, x: &[R]) -> R {
        x[0] * R::of(self.0.load(Ordering::Relaxed).into())
    }
}

#[test]
fn formulas_of_one_name_compute_with_their_own_constants() {
    for device in available() {
        let (a, b) = (device.upload(&[1.0f32; 4]).unwrap(), device.upload(&[1.0f32; 4]).unwrap());
        let run = |epilogue: Epilogue| {
            Gemm::new(2, 2, 2).epilogue(epilogue).run(&device, &a, &b).unwrap().to_vec::<f32>().unwrap()
        };
        for factor in [3u8, 5, 3] {
            let found = run(Epilogue::new().map(Times::of(factor.into())));
            assert_eq!(found, [2.0 * f32::from(factor); 4], "{}", device.name());
        }
        // Both in one expression: neither is taken for the other.
        let found = run(Epilogue::new().then(|x| x.clone().map(Times::of(3)) - x.map(Times::of(10))));
        assert_eq!(found, [-14.0; 4], "{}", device.name());
    }
}

#[test]
fn formulas_that_have_changed_are_refused() {
    let device = Device::cpu();
    let factor = Arc::new(AtomicU32::new(2));
    let gemm = Gemm::new(2, 2, 2).element::<f32>().epilogue(Epilogue::new().map(Times(factor.clone())));
    gemm.plan(&device).unwrap();
    factor.store(3, Ordering::Relaxed);
    let message = gemm.plan(&device).unwrap_err().to_string();
    assert!(message.contains("`times` computes something else than when it was given"), "{message}");
}

/// Sums of more numbers than f32 could add one by one.
#[test]
fn sums_of_many_rows_lose_no_digits_on_the_cpu() {
    let device = Device::cpu();
    let (rows, columns) = (1 << 16, 8);
    let (a, b) =
        (device.upload(&vec![0.1f32; rows]).unwrap(), device.upload(&vec![1.0f32; columns]).unwrap());
    let (d, sums) = (device.alloc::<f32>(rows * columns).unwrap(), device.alloc::<f32>(columns).unwrap());
    let all = device.upload(&[7.0f32]).unwrap();
    let epilogue = Epilogue::new().column_sums("sums");
    let whole = ExtraOperand::new("all", Element::F32, Shape::One);
    let epilogue = Epilogue::from(epilogue.result().clone().reduce(whole, How::Sum));
    let plan = Gemm::new(rows, columns, 1).element::<f32>().epilogue(epilogue).plan(&device).unwrap();
    plan.run(&Arguments::new(&a, &b, &d).extra("sums", &sums).extra("all", &all)).unwrap();
    let expected = rows as f32 * 0.1;
    for sum in sums.to_vec().unwrap() {
        assert!((sum - expected).abs() <= expected * f32::EPSILON, "{sum}, expected {expected}");
    }
    let sum = all.to_vec().unwrap()[0];
    let expected = expected * columns as f32;
    assert!((sum - expected).abs() <= expected * f32::EPSILON, "{sum}, expected {expected}");
}
