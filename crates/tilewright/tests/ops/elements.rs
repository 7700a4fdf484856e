//! Operators on single elements: rotations, gates, formulas, orders, choices, other types.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tilewright::device::{Device, Recorder};
use tilewright::hardware::Arch;
use tilewright::kernels::gemm::epilogue::{Binary, Formula, Real, Unary};
use tilewright::kernels::ops::{self as kernels, Pairs, Tiling};
use tilewright::lang::{E4m3, E5m2, bf16, f16};
use tilewright::ops::{
    Dropout, Elementwise, Glu, NumberItem, QuantItem, Quantise, Rope, Rows, convert, dequantise, embedding,
    permute, philox, transpose,
};

use super::common::{
    ALL_LIES, Exact, Lies, Matrix, Random, Sample, check, every_case, input, itself, machine, normals, output,
};
use crate::for_each_type;

fn rotations<T: Sample>() {
    let device = Device::cpu();
    let mut random = Random::new(2);
    for (rows, heads, head, rotary) in
        [(1, 1, 2, 2), (5, 3, 8, 8), (7, 2, 64, 64), (4, 3, 10, 6), (3, 1, 128, 0), (3, 512, 128, 128)]
    {
        let columns = heads * head;
        let (x, exact) = input::<T>(&device, (rows, columns), Lies::Padded, &normals(1, rows * columns, 2.0));
        let positions: Vec<i32> = (0..rows).map(|_| random.below(50) as i32).collect();
        let given = device.upload(&positions).unwrap();
        let rope = Rope::new(head).rotary(rotary);
        let (cos, sin) = rope.tables(10_000.0, 50);
        let (cos_buffer, sin_buffer) = (device.upload(&cos).unwrap(), device.upload(&sin).unwrap());
        let tables = (Rows::new(&cos_buffer, 50, rotary / 2), Rows::new(&sin_buffer, 50, rotary / 2));
        for (interleaved, inverse, own) in
            [(false, false, true), (true, false, false), (false, true, false), (true, true, true)]
        {
            let mut rope = if own { rope.positions(&given) } else { rope };
            rope = if interleaved { rope.interleaved() } else { rope };
            rope = if inverse { rope.inverse() } else { rope };
            let y = output::<T>(&device, (rows, columns), Lies::Scattered);
            rope.run(&device, x.view(), tables.0, tables.1, y.view()).unwrap();
            let mut wanted: Vec<Exact> = exact.iter().map(|&x| itself(x)).collect();
            for i in 0..rows {
                let position = if own { positions[i] as usize } else { i };
                for h in 0..heads {
                    for pair in 0..rotary / 2 {
                        let first = i * columns + h * head;
                        let (a, b) = if interleaved {
                            (first + 2 * pair, first + 2 * pair + 1)
                        } else {
                            (first + pair, first + pair + rotary / 2)
                        };
                        // The complex number a + bi times e^(i angle).
                        let cos = f64::from(cos[position * rotary / 2 + pair]);
                        let sin =
                            f64::from(sin[position * rotary / 2 + pair]) * if inverse { -1.0 } else { 1.0 };
                        let angle = position as f64 / 10_000f64.powf(2.0 * pair as f64 / rotary as f64);
                        assert!(
                            (cos - angle.cos()).abs() < 1e-7 && (sin.abs() - angle.sin().abs()).abs() < 1e-7
                        );
                        let (p, q) = (exact[a], exact[b]);
                        wanted[a] =
                            Exact { value: p * cos - q * sin, scale: (p * cos).abs() + (q * sin).abs() };
                        wanted[b] =
                            Exact { value: p * sin + q * cos, scale: (p * sin).abs() + (q * cos).abs() };
                    }
                }
            }
            check("RoPE", &(rows, heads, head, rotary, interleaved), &y.read(T::of(0.25)), &wanted);
        }
    }
}

/// The error function by its series, and far out by its continued fraction.
fn erf(x: f64) -> f64 {
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let mut tail = x.abs();
    for n in (1..200).rev() {
        tail = x.abs() + f64::from(n) / 2.0 / tail;
    }
    (1.0 - (-x * x).exp() / (tail * std::f64::consts::PI.sqrt())).copysign(x)
}

fn activation(kind: usize, x: f64) -> f64 {
    match kind {
        0 => x / (1.0 + (-x).exp()),
        1 => x / 2.0 * (1.0 + erf(x / 2f64.sqrt())),
        _ => x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh()),
    }
}

fn gates<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        if columns > 5000 {
            return;
        }
        let extents = (rows, columns);
        let (gate, g) = input::<T>(&device, extents, lies, &normals(1, rows * columns, 2.0));
        let (up, u) = input::<T>(&device, extents, other, &normals(2, rows * columns, 2.0));
        let (dy, d) = input::<T>(&device, extents, lies, &normals(3, rows * columns, 1.0));
        for (kind, glu) in [Glu::swiglu(), Glu::geglu(), Glu::geglu_tanh()].into_iter().enumerate() {
            let y = output::<T>(&device, extents, other);
            glu.run(&device, gate.view(), up.view(), y.view()).unwrap();
            // The reference's own error function cancels where its result is small.
            let slack = |x: f64, other: f64| 1e-9 * (x * other).abs();
            let wanted: Vec<Exact> = g
                .iter()
                .zip(&u)
                .map(|(g, u)| {
                    let value = activation(kind, *g) * u;
                    Exact { value, scale: value.abs() + slack(*g, *u) / 2f64.powi(-24) }
                })
                .collect();
            check("SwiGLU, GeGLU", &(kind, extents), &y.read(T::of(0.25)), &wanted);

            let (dgate, dup) = (output::<T>(&device, extents, lies), output::<T>(&device, extents, other));
            glu.backward(&device, gate.view(), up.view(), dy.view(), dgate.view(), dup.view()).unwrap();
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for ((g, u), d) in g.iter().zip(&u).zip(&d) {
                // The slope by differences, good to ten digits.
                let h = 1e-3;
                let at = |steps: f64| activation(kind, g + steps * h);
                let slope = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h);
                let error = 1e-9 / 2f64.powi(-24);
                first.push(Exact { value: d * u * slope, scale: (d * u).abs() * (slope.abs() + error) });
                let value = activation(kind, *g) * d;
                second.push(Exact { value, scale: value.abs() + slack(*g, *d) / 2f64.powi(-24) });
            }
            check("SwiGLU, GeGLU, gradient", &(kind, extents, "gate"), &dgate.read(T::of(0.25)), &first);
            check("SwiGLU, GeGLU, gradient", &(kind, extents, "up"), &dup.read(T::of(0.25)), &second);
        }
    });
}

/// `a * b + c`, rounded once.
struct MulAdd;
impl Formula for MulAdd {
    fn name(&self) -> String {
        "mul_add".to_owned()
    }
    fn inputs(&self) -> usize {
        3
    }
    fn apply<R: Real>(&self, x: &[R]) -> R {
        x[0].mul_add(x[1], x[2])
    }
}

fn formulas<T: Sample>() {
    let device = Device::cpu();
    for lies in ALL_LIES {
        let (x, a) = input::<T>(&device, (7, 33), lies, &normals(1, 7 * 33, 2.0));
        let (row, b) = input::<T>(&device, (1, 33), Lies::Scattered, &normals(2, 33, 2.0));
        let (column, c) = input::<T>(&device, (7, 1), Lies::Dense, &normals(3, 7, 2.0));
        let y = output::<T>(&device, (7, 33), Lies::Padded);
        Elementwise::new(MulAdd).run(&device, &[x.view(), row.view(), column.view()], y.view()).unwrap();
        let found = y.read(T::of(0.25));
        for (i, found) in found.iter().enumerate() {
            // Exact in f64 but for one rounding, to f32 and to the type.
            let exact = a[i].mul_add(b[i % 33], c[i / 33]) as f32;
            assert_eq!(*found, T::from_f32(exact), "{i}");
        }
        let y = output::<T>(&device, (7, 33), lies);
        Elementwise::new(Binary::Max).run(&device, &[x.view(), column.view()], y.view()).unwrap();
        let wanted: Vec<f64> = (0..7 * 33).map(|i| a[i].max(c[i / 33])).collect();
        assert_eq!(y.read(T::of(0.25)).into_iter().map(T::value).collect::<Vec<_>>(), wanted);
        Elementwise::new(Unary::Neg).run(&device, &[x.view()], x.view()).unwrap();
        let wanted: Vec<f64> = a.iter().map(|x| -x).collect();
        assert_eq!(x.read(T::of(0.25)).into_iter().map(T::value).collect::<Vec<_>>(), wanted);
    }
}

fn orders<T: Sample>() {
    let device = Device::cpu();
    for (lies, (rows, columns)) in ALL_LIES.into_iter().zip([(1, 5), (33, 31), (4, 1000), (65, 3)]) {
        let (x, exact) = input::<T>(&device, (rows, columns), lies, &normals(1, rows * columns, 2.0));
        let y = output::<T>(&device, (columns, rows), lies);
        transpose(&device, x.view(), y.view()).unwrap();
        let wanted: Vec<f64> = (0..rows * columns).map(|i| exact[i % rows * columns + i / rows]).collect();
        assert_eq!(y.read(T::of(0.25)).into_iter().map(T::value).collect::<Vec<_>>(), wanted);
    }
    let extents = [3, 4, 5, 2];
    let data: Vec<T> = (0..120).map(|i| T::of(f64::from(i))).collect();
    let x = device.upload(&data).unwrap();
    for axes in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 0, 1, 3]] {
        let y = device.alloc::<T>(120).unwrap();
        permute(&device, &x, &extents, &axes, &y).unwrap();
        let found = y.to_vec().unwrap();
        let shape = axes.map(|axis| extents[axis]);
        let mut at = 0;
        for a in 0..shape[0] {
            for b in 0..shape[1] {
                for c in 0..shape[2] {
                    for d in 0..shape[3] {
                        let mut index = [0; 4];
                        for (axis, i) in axes.into_iter().zip([a, b, c, d]) {
                            index[axis] = i;
                        }
                        let from = ((index[0] * 4 + index[1]) * 5 + index[2]) * 2 + index[3];
                        assert_eq!(found[at], data[from], "{axes:?}");
                        at += 1;
                    }
                }
            }
        }
    }
}

fn choices<T: Sample>() {
    let device = Device::cpu();
    for (lies, columns) in ALL_LIES.into_iter().zip([1, 33, 1000, 1536]) {
        let (table, exact) = input::<T>(&device, (10, columns), lies, &normals(1, 10 * columns, 2.0));
        let indices = [3i64, 0, 9, 9, -1, 10, i64::MAX, 5];
        let given = device.upload(&indices).unwrap();
        let y = output::<T>(&device, (8, columns), Lies::Padded);
        embedding(&device, table.view(), &given, y.view()).unwrap();
        let row = |index: &i64| match usize::try_from(*index) {
            Ok(index) if index < 10 => exact[index * columns..][..columns].to_vec(),
            _ => vec![0.0; columns],
        };
        let wanted: Vec<f64> = indices.iter().flat_map(row).collect();
        assert_eq!(y.read(T::of(0.25)).into_iter().map(T::value).collect::<Vec<_>>(), wanted);
    }
}

fn chances<T: Sample>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        let (x, exact) = input::<T>(&device, (rows, columns), lies, &normals(1, rows * columns, 2.0));
        for p in [0.0f32, 0.1, 1.0] {
            if columns > 5000 && p != 0.1 {
                continue;
            }
            let (seed, stream) = (0x0123_4567_89ab_cdef_u64, 0x11_2233_4455_u64);
            let y = output::<T>(&device, (rows, columns), other);
            Dropout::new(p, seed).stream(stream).run(&device, x.view(), y.view()).unwrap();
            let word = |n: u64| {
                let counter = [(n / 4) as u32, ((n / 4) >> 32) as u32, stream as u32, (stream >> 32) as u32];
                philox(counter, [seed as u32, (seed >> 32) as u32])[(n % 4) as usize]
            };
            let keeps = |n: usize| f64::from(word(n as u64)) / 2f64.powi(32) >= f64::from(p);
            let wanted: Vec<Exact> = (0..rows * columns)
                .map(|n| itself(if keeps(n) { exact[n] / (1.0 - f64::from(p)) } else { 0.0 }))
                .collect();
            check("dropout", &(rows, columns, p), &y.read(T::of(0.25)), &wanted);
        }
    });
}

/// With scales of its own and with one that is given.
fn quantised_to<T: Sample, Q: QuantItem + std::fmt::Debug>() {
    let device = Device::cpu();
    every_case(|rows, columns, lies, other| {
        if columns > 5000 {
            return;
        }
        let extents = (rows, columns);
        let (x, exact) = input::<T>(&device, extents, lies, &normals(1, rows * columns, 3.0));
        let gap = Q::from_f32(1.0);
        let most = |numbers: &[f64]| numbers.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        let all = [most(&exact)];
        let each: Vec<f64> = exact.chunks(columns).map(most).collect();
        let given = [f64::from(0.7f32) * f64::from(Q::LARGEST)];
        for (quantise, most) in [
            (Quantise::per_row(), &each[..]),
            (Quantise::per_tensor(), &all),
            (Quantise::with_scale(), &given),
        ] {
            let q = Matrix::new(&device, extents, other, &vec![gap; rows * columns], gap);
            let scales = device.upload(&vec![0.7f32; most.len()]).unwrap();
            quantise.run(&device, x.view(), q.view(), &scales).unwrap();
            let found = q.read(gap);
            let steps = scales.to_vec().unwrap();
            for (scale, most) in steps.iter().zip(most) {
                assert!((f64::from(*scale) * f64::from(Q::LARGEST) / most - 1.0).abs() < 1e-6);
            }
            let step = |i: usize| f64::from(steps[if steps.len() == 1 { 0 } else { i / columns }]);
            for (i, found) in found.iter().enumerate() {
                let ratio = (exact[i] / step(i)).clamp(-f64::from(Q::LARGEST), f64::from(Q::LARGEST));
                // The nearest number, or its neighbour where the ratio is as near to both as f32 can tell.
                let near = [1.0 - 3e-7, 1.0, 1.0 + 3e-7].map(|by| Q::from_f32((ratio * by) as f32));
                assert!(near.contains(found), "{} {extents:?}: {found:?} for {ratio}", Q::ELEMENT);
            }
            let q = Matrix::new(&device, extents, other, &found, gap);
            let y = output::<T>(&device, extents, lies);
            dequantise(&device, q.view(), &scales, y.view()).unwrap();
            let wanted: Vec<Exact> =
                found.iter().enumerate().map(|(i, q)| itself(f64::from(q.to_f32()) * step(i))).collect();
            check("quantise, dequantise", &(extents, lies), &y.read(T::of(0.25)), &wanted);
        }
    });
}

fn quantised<T: Sample>() {
    quantised_to::<T, i8>();
    quantised_to::<T, E4m3>();
    quantised_to::<T, E5m2>();
}

for_each_type!(rotations gates formulas orders choices chances quantised);

/// Every bit pattern of 16 bits, and numbers of all sizes, in every other type.
#[test]
fn conversions_round_once() {
    fn all<T: NumberItem + std::fmt::Debug, U: NumberItem + std::fmt::Debug>(
        values: &[T],
        exactly: impl Fn(f32) -> U,
    ) {
        let device = Device::cpu();
        let (x, y) = (device.upload(values).unwrap(), device.alloc::<U>(values.len()).unwrap());
        convert(&device, &x, &y).unwrap();
        for (x, y) in values.iter().zip(y.to_vec().unwrap()) {
            let wanted = exactly(x.to_f32());
            let nan = wanted.to_f32().is_nan() && y.to_f32().is_nan();
            assert!(nan || y == wanted, "{x:?} is {y:?}, exactly {wanted:?}");
        }
    }
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let brains: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let mut random = Random::new(1);
    let floats: Vec<f32> = (0..100_000).map(|_| f32::from_bits(random.word() as u32)).collect();
    all::<f16, bf16>(&halves, bf16::from_f32);
    all::<bf16, f16>(&brains, f16::from_f32);
    all::<f16, f32>(&halves, |x| x);
    all::<bf16, E4m3>(&brains, E4m3::from_f32);
    all::<f32, E5m2>(&floats, E5m2::from_f32);
    all::<f32, bf16>(&floats, bf16::from_f32);
    let whole =
        |x: f32, low: f32, high: f32| if x.is_nan() { 0.0 } else { x.round_ties_even().clamp(low, high) };
    all::<bf16, i8>(&brains, |x| whole(x, -128.0, 127.0) as i8);
    all::<f16, u8>(&halves, |x| whole(x, 0.0, 255.0) as u8);
    let bytes: Vec<i8> = (i8::MIN..=i8::MAX).collect();
    all::<i8, bf16>(&bytes, bf16::from_f32);
    all::<E4m3, f16>(&(0..=u8::MAX).map(E4m3).collect::<Vec<_>>(), f16::from_f32);
}

#[test]
fn special_numbers() {
    let device = Device::cpu();
    let run = |x: &[f32], f: &dyn Fn(Rows<'_, f32>)| {
        let x = device.upload(x).unwrap();
        f((&x).into());
        x.to_vec().unwrap()
    };
    // What is dropped is zero, whatever it was.
    let found = run(&[f32::NAN, f32::INFINITY], &|x| Dropout::new(1.0, 3).run(&device, x, x).unwrap());
    assert_eq!(found, [0.0, 0.0]);
    // Gates far out are what they tend to.
    let gate = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -1e30, 1e30];
    let ones = device.upload(&[1.0f32; 5]).unwrap();
    for glu in [Glu::swiglu(), Glu::geglu(), Glu::geglu_tanh()] {
        let found = run(&gate, &|x| glu.run(&device, x, &ones, x).unwrap());
        assert_eq!((found[0], found[1], found[3], found[4]), (0.0, f32::INFINITY, 0.0, 1e30), "{glu:?}");
        assert!(found[2].is_nan());
        let (dgate, dup) = (device.alloc::<f32>(5).unwrap(), device.alloc::<f32>(5).unwrap());
        let x = device.upload(&gate).unwrap();
        glu.backward(&device, &x, &ones, &ones, &dgate, &dup).unwrap();
        let found = dgate.to_vec().unwrap();
        assert_eq!((found[0], found[1], found[3], found[4]), (0.0, 1.0, 0.0, 1.0), "{glu:?}");
    }
    // Positions that tables do not have.
    let (table, positions) = (device.upload(&[1.0f32, 1.0]).unwrap(), device.upload(&[2i32, -1, 1]).unwrap());
    let table = Rows::new(&table, 2, 1);
    let x = device.upload(&[1.0f32; 6]).unwrap();
    let rows = Rows::new(&x, 3, 2);
    Rope::new(2).positions(&positions).run(&device, rows, table, table, rows).unwrap();
    let found = x.to_vec().unwrap();
    assert!(found[..4].iter().all(|x| x.is_nan()) && found[4..] == [0.0, 2.0], "{found:?}");
    // Scales of zeros, of next to nothing, of NaN and of infinity.
    let x = device.upload(&[0.0f32, 0.0, 1e-40, 0.0, f32::NAN, 1.0, f32::INFINITY, 1.0]).unwrap();
    let (q, scales, y) =
        (device.alloc::<i8>(8).unwrap(), device.alloc::<f32>(4).unwrap(), device.alloc::<f32>(8).unwrap());
    Quantise::per_row().run(&device, Rows::new(&x, 4, 2), Rows::new(&q, 4, 2), &scales).unwrap();
    dequantise(&device, Rows::new(&q, 4, 2), &scales, Rows::new(&y, 4, 2)).unwrap();
    let (scales, y) = (scales.to_vec().unwrap(), y.to_vec().unwrap());
    assert_eq!((&scales[..2], scales[3]), (&[1.0, 1.0][..], f32::INFINITY));
    assert!(scales[2].is_nan() && y[4..].iter().all(|y| y.is_nan()) && y[..4] == [0.0; 4], "{y:?}");
}

#[test]
fn nothing_is_done_to_nothing() {
    let device = Device::cpu();
    let nothing = device.alloc::<f32>(0).unwrap();
    for (rows, columns) in [(0, 0), (0, 8), (8, 0)] {
        let x = Rows::new(&nothing, rows, columns);
        Glu::swiglu().run(&device, x, x, x).unwrap();
        Dropout::new(0.5, 0).run(&device, x, x).unwrap();
        Elementwise::new(Unary::Exp).run(&device, &[x], x).unwrap();
        transpose(&device, x, x.transposed()).unwrap();
        convert(&device, x, x).unwrap();
        Rope::new(2).run(&device, x, Rows::new(&nothing, 0, 1), Rows::new(&nothing, 0, 1), x).unwrap();
    }
    permute(&device, &nothing, &[3, 0, 2], &[2, 1, 0], &nothing).unwrap();
}

/// Slopes at the ends are what they tend to, and far out they keep their digits. Exact ones are from series with 30 digits.
#[test]
fn slopes_of_gates_far_out() {
    let far = f32::INFINITY;
    // Of SwiGLU, GeGLU and GeGLU by `tanh`, at -12, -8 and -6.
    let exact = [
        [-6.758_547e-5, -2.346_551e-3, -1.232_643e-2],
        [-2.557_896e-31, -3.979_607e-14, -3.546_871e-8],
        [-5.290_403e-60, -4.714_785e-20, -7.709_974e-10],
    ];
    for device in [Device::cpu(), Device::simulator()] {
        let gate = device.upload(&[-far, far, f32::NAN, -1e30, 1e30, f32::MAX, -12.0, -8.0, -6.0]).unwrap();
        let ones = device.upload(&[1.0f32; 9]).unwrap();
        for (glu, exact) in [Glu::swiglu(), Glu::geglu(), Glu::geglu_tanh()].into_iter().zip(exact) {
            let (dgate, dup) = (device.alloc::<f32>(9).unwrap(), device.alloc::<f32>(9).unwrap());
            glu.backward(&device, &gate, &ones, &ones, &dgate, &dup).unwrap();
            let found = dgate.to_vec().unwrap();
            let context = format!("{} {glu:?}: {found:?}", device.name());
            assert_eq!((found[0], found[1]), (0.0, 1.0), "{context}");
            assert!(found[2].is_nan(), "{context}");
            assert_eq!((found[3], found[4], found[5]), (0.0, 1.0, 1.0), "{context}");
            for (found, exact) in found[6..].iter().zip(exact) {
                assert!((f64::from(*found) - exact).abs() <= 1e-5 * exact.abs() + 1e-45, "{context}");
            }
        }
    }
}

/// Every number of 16 bits through the functions that kernels take for such results, against the CPU in f32.
#[test]
fn gates_of_all_halves() {
    fn all<T: Sample>(values: &[T]) {
        let (cpu, machine) = (Device::cpu(), machine());
        let wide: Vec<f32> = values.iter().map(|x| x.to_f32()).collect();
        let count = values.len();
        // A number times a distribution that is not a normal number.
        let nothing = 128.0 * f64::from(f32::MIN_POSITIVE);
        for glu in [Glu::swiglu(), Glu::geglu(), Glu::geglu_tanh()] {
            let (gate, ones) = (cpu.upload(&wide).unwrap(), cpu.upload(&vec![1.0f32; count]).unwrap());
            let exact = [(); 2].map(|()| cpu.alloc::<f32>(count).unwrap());
            glu.backward(&cpu, &gate, &ones, &ones, &exact[0], &exact[1]).unwrap();
            let (gate, ones) =
                (machine.upload(values).unwrap(), machine.upload(&vec![T::of(1.0); count]).unwrap());
            let found = [(); 3].map(|()| machine.alloc::<T>(count).unwrap());
            glu.backward(&machine, &gate, &ones, &ones, &found[0], &found[1]).unwrap();
            glu.run(&machine, &gate, &ones, &found[2]).unwrap();
            for (found, exact) in found.iter().zip([&exact[0], &exact[1], &exact[1]]) {
                for ((found, exact), x) in
                    found.to_vec().unwrap().iter().zip(exact.to_vec().unwrap()).zip(&wide)
                {
                    let (found, exact) = (found.value(), f64::from(exact));
                    let same = found == T::of(exact).value() || found.is_nan() && exact.is_nan();
                    // Slopes are sums of two terms that are about a half where they cancel.
                    let near = T::rounding(exact)
                        + 2f64.powi(-16) * exact.abs()
                        + if *x > -1.0 && *x < -0.5 { 2e-6 } else { 0.0 };
                    assert!(
                        same || (found - exact).abs() <= near || exact.abs() < nothing,
                        "{glu:?} of {} {x}: {found}, exactly {exact}",
                        T::ELEMENT
                    );
                }
            }
        }
    }
    all(&(0..=u16::MAX).map(f16::from_bits).collect::<Vec<_>>());
    all(&(0..=u16::MAX).map(bf16::from_bits).collect::<Vec<_>>());
}

/// A formula with a constant that its name does not tell, of one number or, by another type of the same name, of two.
struct Times(f64);
impl Formula for Times {
    fn name(&self) -> String {
        "times".to_owned()
    }
    fn apply<R: Real>(&self, x: &[R]) -> R {
        x[0] * R::of(self.0)
    }
}
struct Product;
impl Formula for Product {
    fn name(&self) -> String {
        "times".to_owned()
    }
    fn inputs(&self) -> usize {
        2
    }
    fn apply<R: Real>(&self, x: &[R]) -> R {
        x[0] * x[1]
    }
}

#[test]
fn formulas_of_one_name_and_two_types_are_two() {
    for device in [Device::cpu(), Device::simulator()] {
        let x = device.upload(&[3.0f32, 5.0]).unwrap();
        let y = device.alloc::<f32>(2).unwrap();
        let row = Rows::from(&x);
        Elementwise::new(Times(2.0)).run(&device, &[row], &y).unwrap();
        assert_eq!(y.to_vec().unwrap(), [6.0, 10.0]);
        Elementwise::new(Product).run(&device, &[row, row], &y).unwrap();
        assert_eq!(y.to_vec().unwrap(), [9.0, 25.0]);
    }
}

/// Other constants are another kernel, whatever the name says.
#[test]
fn formulas_of_one_type_and_name_compute_with_their_own_constants() {
    for device in [Device::cpu(), Device::simulator()] {
        let x = device.upload(&[3.0f32, 5.0]).unwrap();
        let y = device.alloc::<f32>(2).unwrap();
        for factor in [2.0f32, 4.0, -0.5, 2.0] {
            Elementwise::new(Times(factor.into())).run(&device, &[Rows::from(&x)], &y).unwrap();
            assert_eq!(y.to_vec().unwrap(), [3.0 * factor, 5.0 * factor], "{}", device.name());
        }
    }
}

/// A formula that is not the same with every run, nor is its kernel.
#[test]
fn formulas_may_change_between_runs() {
    struct Shift(Arc<AtomicU32>);
    impl Formula for Shift {
        fn name(&self) -> String {
            "shift".to_owned()
        }
        fn apply<R: Real>(&self, x: &[R]) -> R {
            x[0] + R::of(self.0.load(Ordering::Relaxed).into())
        }
    }
    for device in [Device::cpu(), Device::simulator()] {
        let x = device.upload(&[3.0f32]).unwrap();
        let y = device.alloc::<f32>(1).unwrap();
        let by = Arc::new(AtomicU32::new(0));
        let shift = Elementwise::new(Shift(by.clone()));
        for n in [1u8, 7] {
            by.store(n.into(), Ordering::Relaxed);
            shift.run(&device, &[Rows::from(&x)], &y).unwrap();
            assert_eq!(y.to_vec().unwrap(), [3.0 + f32::from(n)], "{}", device.name());
        }
    }
}

/// More columns than the second axis of a grid has programs for.
#[test]
fn rows_of_more_tiles_than_an_axis_has_programs() {
    for device in [Device::cpu(), Device::simulator()] {
        let columns = 32 * 65535 + 1;
        let x: Vec<u8> = (0..columns).map(|i| (i % 251) as u8).collect();
        let (from, to) = (device.upload(&x).unwrap(), device.alloc::<u8>(columns).unwrap());
        transpose(&device, Rows::new(&from, 1, columns), Rows::new(&to, columns, 1)).unwrap();
        assert!(to.to_vec().unwrap() == x, "{}", device.name());
    }
}

/// Tokens of more groups of heads than that: they are numbered along the axis with room. What a program does then is tested on a few.
#[test]
fn tokens_of_more_heads_than_an_axis_has_programs() {
    // Heads of which one fills a program, in memory that nobody touches.
    let (head, heads) = (2049, 65536);
    let recorder = Recorder::new(Arch::SM_90A);
    let device = recorder.device();
    let x = device.alloc::<bf16>(heads * head).unwrap();
    let angles = device.alloc::<f32>(1).unwrap();
    Rope::new(head).rotary(2).run(device, &x, &angles, &angles, &x).unwrap();

    let (tokens, heads, head) = (3u32, 5u32, 4u32);
    let elements = (tokens * heads * head) as usize;
    for device in [Device::cpu(), Device::simulator()] {
        let x =
            device.upload(&normals(3, elements, 1.0).iter().map(|&x| x as f32).collect::<Vec<_>>()).unwrap();
        let [cos, sin] = [[0.5f32, 1.0, 2.0, 3.0, 0.0, 5.0], [1.0, -2.0, 0.5, 0.0, 1.0, 2.0]]
            .map(|angles| device.upload(&angles).unwrap());
        let position = device.upload(&[2i32, 0, 1]).unwrap();
        for positions in [false, true] {
            let found = [false, true].map(|turned| {
                let pairs = Pairs { head, rotary: head, interleaved: false, inverse: false };
                let tiling = Tiling { shape: [1, 2], turned };
                let kernel = match positions {
                    false => kernels::rope::stage::<f32, f32>(pairs, tiling).unwrap(),
                    true => kernels::rope_positions::stage::<f32, f32>(pairs, tiling).unwrap(),
                };
                let y = device.alloc::<f32>(elements).unwrap();
                let extents = [3usize, 5, 4];
                let (x, to) = (x.view(extents), y.view(extents));
                let (cos, sin, position) = (cos.view([3, 2]), sin.view([3, 2]), position.view([3, 1]));
                let [across, down] = tiling.programs((3, 5));
                let program = device.program(&kernel).unwrap();
                let report = match positions {
                    false => program.launch([across, down, 1], &[&x, &cos, &sin, &to]),
                    true => program.launch([across, down, 1], &[&x, &cos, &sin, &position, &to]),
                };
                report.unwrap().expect_clean().unwrap();
                y.to_vec().unwrap()
            });
            assert_eq!(found[0], found[1], "{}", device.name());
        }
    }
}

#[test]
fn nothing_is_permuted_whatever_the_other_extents() {
    for device in [Device::cpu(), Device::simulator()] {
        let nothing = device.alloc::<f32>(0).unwrap();
        for extents in [[0, usize::MAX, usize::MAX], [usize::MAX, usize::MAX, 0], [usize::MAX, 0, 2]] {
            permute(&device, &nothing, &extents, &[2, 1, 0], &nothing).unwrap();
        }
    }
}
