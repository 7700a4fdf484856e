//! Operators whose result takes the place of an input: the same bits as elsewhere, by kernels on a GPU, or else in the simulator, and by the CPU.

use tilewright::device::Device;
use tilewright::kernels::gemm::epilogue::{Binary, Unary};
use tilewright::lang::bf16;
use tilewright::ops::{
    CrossEntropy, CumulativeSum, Dropout, Elementwise, Error, Glu, LayerNorm, RmsNorm, Rope, Rows, Softmax,
    convert,
};

use super::common::{ALL_LIES, Lies, Matrix, Sample, machine, normals};

/// Computes a matrix from two of the same extents.
type Run<T> = fn(&Device, Rows<'_, T>, Rows<'_, T>, Rows<'_, T>) -> Result<(), Error>;

/// The result may be the first input; of those of two, also the second.
fn of_one<T: Sample>() -> Vec<(&'static str, Run<T>)> {
    vec![
        ("a conversion", |d, x, _, y| convert(d, x, y)),
        ("dropout", |d, x, _, y| Dropout::new(0.4, 7).run(d, x, y)),
        ("a function", |d, x, _, y| Elementwise::new(Unary::Silu).run(d, &[x], y)),
        ("a function of rows", |d, x, b, y| Elementwise::new(Binary::Mul).run(d, &[x, b.rows(0..1)], y)),
        ("softmax", |d, x, _, y| Softmax::new().run(d, x, y)),
        ("causal log-softmax", |d, x, _, y| Softmax::new().log().causal(x.extents().0).run(d, x, y)),
        ("cross entropy, gradient", |d, x, _, dx| {
            let (rows, columns) = x.extents();
            let targets: Vec<i32> = (0..rows).map(|i| (i * 7 % columns) as i32).collect();
            let (targets, each) = (d.upload(&targets)?, d.upload(&[0.5f32])?);
            CrossEntropy::new().smoothing(0.1).backward(d, x, &targets, &each, dx)
        }),
        ("sums", |d, x, _, y| CumulativeSum::new().run(d, x, y)),
        ("sums from the end", |d, x, _, y| CumulativeSum::new().reverse().run(d, x, y)),
        ("sums before", |d, x, _, y| CumulativeSum::new().exclusive().run(d, x, y)),
        ("sums behind", |d, x, _, y| CumulativeSum::new().exclusive().reverse().run(d, x, y)),
        ("RMSNorm", |d, x, b, y| RmsNorm::new(1e-5).weight(b.rows(0..1)).run(d, x, y)),
        ("LayerNorm", |d, x, b, y| LayerNorm::new(1e-5).weight(b.rows(0..1)).run(d, x, y)),
        ("RoPE", |d, x, _, y| rotated(d, x, y, false)),
        ("RoPE of neighbours", |d, x, _, y| rotated(d, x, y, true)),
    ]
}

fn of_two<T: Sample>() -> Vec<(&'static str, Run<T>)> {
    vec![
        ("SwiGLU", |d, gate, up, y| Glu::swiglu().run(d, gate, up, y)),
        ("GeGLU", |d, gate, up, y| Glu::geglu().run(d, gate, up, y)),
        ("a function of two", |d, a, b, y| Elementwise::new(Binary::Mul).run(d, &[a, b], y)),
        ("softmax, gradient", |d, y, dy, dx| Softmax::new().backward(d, y, dy, dx)),
        ("RMSNorm, gradient", |d, x, dy, dx| {
            RmsNorm::new(1e-5).backward(d, x, dy, dx, &d.alloc::<f32>(x.extents().1)?)
        }),
        ("LayerNorm, gradient", |d, x, dy, dx| {
            let [dw, db] = [d.alloc::<f32>(x.extents().1)?, d.alloc::<f32>(x.extents().1)?];
            LayerNorm::new(1e-2).backward(d, x, dy, dx, &dw, &db)
        }),
        ("RMSNorm of a sum", |d, x, residual, y| {
            let (rows, columns) = x.extents();
            let sum = d.alloc::<T>(rows * columns)?;
            RmsNorm::new(1e-5).run_adding(d, x, residual, Rows::new(&sum, rows, columns), y)
        }),
        ("the sum of RMSNorm", |d, x, residual, sum| {
            let (rows, columns) = x.extents();
            let y = d.alloc::<T>(rows * columns)?;
            RmsNorm::new(1e-5).run_adding(d, x, residual, sum, Rows::new(&y, rows, columns))
        }),
        ("LayerNorm of a sum", |d, x, residual, y| {
            let (rows, columns) = x.extents();
            let sum = d.alloc::<T>(rows * columns)?;
            LayerNorm::new(1e-5).run_adding(d, x, residual, Rows::new(&sum, rows, columns), y)
        }),
        ("the sum of LayerNorm", |d, x, residual, sum| {
            let (rows, columns) = x.extents();
            let y = d.alloc::<T>(rows * columns)?;
            LayerNorm::new(1e-5).run_adding(d, x, residual, sum, Rows::new(&y, rows, columns))
        }),
    ]
}

/// Heads of up to 100 columns, as many as there are; of a matrix of one column, a copy.
fn rotated<T: Sample>(d: &Device, x: Rows<'_, T>, y: Rows<'_, T>, interleaved: bool) -> Result<(), Error> {
    let (rows, columns) = x.extents();
    let head = columns.min(100) / 2 * 2;
    if head == 0 {
        return convert(d, x, y);
    }
    let rope = if interleaved { Rope::new(head).interleaved() } else { Rope::new(head) };
    let (cos, sin) = rope.tables(100.0, rows);
    let (cos, sin) = (d.upload(&cos)?, d.upload(&sin)?);
    let [cos, sin] = [&cos, &sin].map(|table| Rows::new(table, rows, head / 2));
    let all = columns / head * head;
    rope.run(d, x.columns(0..all), cos, sin, y.columns(0..all))
}

/// Rows of a part of a warp, of a block, and of several blocks.
const EXTENTS: [(usize, usize); 5] = [(1, 1), (5, 3), (9, 33), (3, 1000), (2, 20_000)];

fn in_place<T: Sample>() {
    let replaced = |number: usize| move |(name, run)| (name, run, number);
    let all: Vec<(&str, Run<T>, usize)> = of_one::<T>()
        .into_iter()
        .map(replaced(1))
        .chain(
            of_two().into_iter().flat_map(|pair| [pair; 2].into_iter().zip(1..).map(|(p, i)| (p.0, p.1, i))),
        )
        .collect();
    for device in [Device::cpu(), machine()] {
        for (extents, lies) in EXTENTS.into_iter().zip(ALL_LIES.into_iter().cycle()) {
            let gap = T::of(0.25);
            let matrix = |seed| {
                let count = extents.0 * extents.1;
                let numbers: Vec<T> = normals(seed, count, 2.0).into_iter().map(T::of).collect();
                Matrix::new(&device, extents, lies, &numbers, gap)
            };
            let bits = |y: &Matrix<T>| y.read(gap).iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            for &(name, run, number) in &all {
                let [a, b] = [1, 2].map(matrix);
                // What no operator writes is what stands in the place of the result.
                let y = matrix(number as u64);
                let place = if number == 1 { &a } else { &b };
                let context = format!("{name} {number} {extents:?} {lies:?} {}", device.name());
                run(&device, a.view(), b.view(), y.view()).unwrap_or_else(|e| panic!("{context}: {e}"));
                run(&device, a.view(), b.view(), place.view()).unwrap_or_else(|e| panic!("{context}: {e}"));
                assert!(bits(place) == bits(&y), "{context}");
            }
        }
    }
}

#[test]
fn of_f32() {
    in_place::<f32>();
}

#[test]
fn of_bf16() {
    in_place::<bf16>();
}

/// Gradients in the place of two of the inputs.
#[test]
fn gradients_of_gates_take_the_place_of_two() {
    for device in [Device::cpu(), machine()] {
        for (extents, lies) in EXTENTS.into_iter().zip([Lies::Dense, Lies::Padded].into_iter().cycle()) {
            let matrix = |seed| {
                let numbers: Vec<f32> =
                    normals(seed, extents.0 * extents.1, 2.0).into_iter().map(f32::of).collect();
                Matrix::new(&device, extents, lies, &numbers, 0.25)
            };
            let [gate, up, dy, dgate, dup] = [1, 2, 3, 4, 5].map(matrix);
            let glu = Glu::geglu_tanh();
            glu.backward(&device, gate.view(), up.view(), dy.view(), dgate.view(), dup.view()).unwrap();
            glu.backward(&device, gate.view(), up.view(), dy.view(), up.view(), gate.view()).unwrap();
            let same = |a: &Matrix<f32>, b: &Matrix<f32>| {
                a.read(0.25).iter().zip(b.read(0.25)).all(|(a, b)| a.to_bits() == b.to_bits())
            };
            assert!(same(&up, &dgate) && same(&gate, &dup), "{extents:?} {lies:?} {}", device.name());
        }
    }
}
