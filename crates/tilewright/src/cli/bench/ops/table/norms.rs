//! RMSNorm and LayerNorm, with what is often done beside them, and their gradients.

use tilewright::hardware::Element;
use tilewright::ops::{Error, FloatItem, LayerNorm, RmsNorm};

use super::super::case::{Case, Role};
use super::super::library::Call;
use super::super::reference::{At, Expected, FEW, Sum, of_row};
use super::super::sizes::{PROMISED, SOME, large};
use super::{Op, calls};

/// What norms add to the mean of squares; `peers.py` has the same.
const EPS: f64 = 1e-5;

#[allow(clippy::cast_possible_truncation, reason = "a constant that f32 holds well enough")]
pub(super) const EPSILON: f32 = EPS as f32;

pub(in super::super) static RMSNORM: Op = Op {
    name: "rmsnorm",
    about: "Measure RMSNorm",
    bars: |element| large(PROMISED, element),
    tensors: |case| vec![case.matrix("x"), case.for_columns("weight"), case.matrix("y").output()],
    rows: |case, at, row| {
        let (x, weight) = (of_row(case, at, 0, row), of_row(case, at, 1, 0));
        vec![scaled(&x, &weight)]
    },
    calls: calls!(rmsnorm),
    ..Op::PLAIN
};

fn rmsnorm<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let norm = RmsNorm::new(EPSILON).weight(call.rows::<T>(1)?);
    norm.run(call.device, call.rows::<T>(0)?, call.rows::<T>(2)?)
}

pub(in super::super) static ADD_RMSNORM: Op = Op {
    name: "add-rmsnorm",
    about: "Measure RMSNorm of a sum with the residual stream, which is kept as well",
    bars: |element| large(SOME, element),
    tensors: |case| {
        let inputs = [case.matrix("x"), case.matrix("residual"), case.for_columns("weight")];
        let outputs = [case.matrix("sum").output(), case.matrix("y").output()];
        [&inputs[..], &outputs].concat()
    },
    rows: |case, at, row| {
        let (x, residual) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
        let sum: Vec<f64> = x.iter().zip(&residual).map(|(x, residual)| x + residual).collect();
        let mut normed = scaled(&sum, &of_row(case, at, 2, 0));
        // Where the terms of the sum cancel, its rounding in f32 is more than a part of it.
        for ((normed, sum), (x, residual)) in normed.iter_mut().zip(&sum).zip(x.iter().zip(&residual)) {
            let growth = if *sum == 0.0 { 0.0 } else { (x.abs() + residual.abs()) / sum.abs() };
            normed.slack *= growth.max(1.0);
        }
        vec![sum.into_iter().map(Expected::exact).collect(), normed]
    },
    calls: calls!(add_rmsnorm),
    ..Op::PLAIN
};

fn add_rmsnorm<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let norm = RmsNorm::new(EPSILON).weight(call.rows::<T>(2)?);
    let (x, residual) = (call.rows::<T>(0)?, call.rows::<T>(1)?);
    norm.run_adding(call.device, x, residual, call.rows::<T>(3)?, call.rows::<T>(4)?)
}

pub(in super::super) static RMSNORM_BACKWARD: Op = Op {
    name: "rmsnorm-backward",
    about: "Measure the gradients of RMSNorm, that of the weights summed over all rows",
    bars: |element| large(SOME, element),
    tensors: |case| {
        let inputs = [case.matrix("x"), case.matrix("dy"), case.for_columns("weight")];
        let dw = case.for_columns("dw").of(Element::F32).with(Role::Sums);
        [&inputs[..], &[case.matrix("dx").output(), dw]].concat()
    },
    rows: |case, at, row| {
        let (x, dy) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
        vec![gradient(&Moments::of_squares(&x), &x, &dy, &of_row(case, at, 2, 0))]
    },
    sums: |case, at, columns| vec![weight_gradients(case, at, columns, Moments::of_squares)],
    calls: calls!(rmsnorm_backward),
    ..Op::PLAIN
};

fn rmsnorm_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let norm = RmsNorm::new(EPSILON).weight(call.rows::<T>(2)?);
    let (x, dy) = (call.rows::<T>(0)?, call.rows::<T>(1)?);
    norm.backward(call.device, x, dy, call.rows::<T>(3)?, call.rows::<f32>(4)?)
}

pub(in super::super) static LAYERNORM: Op = Op {
    name: "layernorm",
    about: "Measure LayerNorm",
    bars: |element| large(PROMISED, element),
    tensors: |case| {
        let inputs = [case.matrix("x"), case.for_columns("weight"), case.for_columns("bias")];
        [&inputs[..], &[case.matrix("y").output()]].concat()
    },
    rows: |case, at, row| {
        let x = of_row(case, at, 0, row);
        vec![centred(&x, &x.iter().map(|x| x.abs()).collect::<Vec<_>>(), at, [1, 2])]
    },
    calls: calls!(layernorm),
    ..Op::PLAIN
};

fn layernorm<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let norm = LayerNorm::new(EPSILON).affine(call.rows::<T>(1)?, call.rows::<T>(2)?);
    norm.run(call.device, call.rows::<T>(0)?, call.rows::<T>(3)?)
}

pub(in super::super) static ADD_LAYERNORM: Op = Op {
    name: "add-layernorm",
    about: "Measure LayerNorm of a sum with the residual stream, which is kept as well",
    bars: |element| large(SOME, element),
    tensors: |case| {
        let inputs =
            [case.matrix("x"), case.matrix("residual"), case.for_columns("weight"), case.for_columns("bias")];
        [&inputs[..], &[case.matrix("sum").output(), case.matrix("y").output()]].concat()
    },
    rows: |case, at, row| {
        let (x, residual) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
        let (sum, sizes): (Vec<f64>, Vec<f64>) =
            x.iter().zip(&residual).map(|(x, residual)| (x + residual, x.abs() + residual.abs())).unzip();
        let normed = centred(&sum, &sizes, at, [2, 3]);
        vec![sum.into_iter().map(Expected::exact).collect(), normed]
    },
    calls: calls!(add_layernorm),
    ..Op::PLAIN
};

fn add_layernorm<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let norm = LayerNorm::new(EPSILON).affine(call.rows::<T>(2)?, call.rows::<T>(3)?);
    let (x, residual) = (call.rows::<T>(0)?, call.rows::<T>(1)?);
    norm.run_adding(call.device, x, residual, call.rows::<T>(4)?, call.rows::<T>(5)?)
}

/// LayerNorm of a row, whose numbers are as exact as numbers of these sizes, with the weights and biases of two tensors.
fn centred(x: &[f64], sizes: &[f64], at: At<'_>, [weights, biases]: [usize; 2]) -> Vec<Expected> {
    let Moments { mean, inverse, .. } = Moments::around_mean(x);
    let normed = |(column, (x, size)): (u64, (&f64, &f64))| {
        let (weight, bias) = (inverse * at(weights, column), at(biases, column));
        let slack = FEW * ((size + mean.abs()) * weight.abs() + bias.abs());
        Expected { value: (x - mean) * weight + bias, slack }
    };
    (0..).zip(x.iter().zip(sizes)).map(normed).collect()
}

pub(in super::super) static LAYERNORM_BACKWARD: Op = Op {
    name: "layernorm-backward",
    about: "Measure the gradients of LayerNorm, those of weights and biases summed over all rows",
    bars: |element| large(SOME, element),
    tensors: |case| {
        let inputs = [case.matrix("x"), case.matrix("dy"), case.for_columns("weight")];
        let sums = |name| case.for_columns(name).of(Element::F32).with(Role::Sums);
        [&inputs[..], &[case.matrix("dx").output(), sums("dw"), sums("db")]].concat()
    },
    rows: |case, at, row| {
        let (x, dy) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
        vec![gradient(&Moments::around_mean(&x), &x, &dy, &of_row(case, at, 2, 0))]
    },
    sums: |case, at, columns| {
        let bias = |&column: &u32| {
            let places =
                (0..u64::from(case.rows)).map(|row| row * u64::from(case.columns) + u64::from(column));
            let sum: Sum = places.map(|place| at(1, place)).collect();
            Expected { value: sum.value, slack: sum.slack() }
        };
        vec![weight_gradients(case, at, columns, Moments::around_mean), columns.iter().map(bias).collect()]
    },
    calls: calls!(layernorm_backward),
    ..Op::PLAIN
};

fn layernorm_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let norm = LayerNorm::new(EPSILON).weight(call.rows::<T>(2)?);
    let (x, dy, dx) = (call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(3)?);
    norm.backward(call.device, x, dy, dx, call.rows::<f32>(4)?, call.rows::<f32>(5)?)
}

/// What a row is normalised by: what is taken away, which is nothing for RMSNorm, and what is multiplied by.
struct Moments {
    centred: bool,
    mean: f64,
    inverse: f64,
}

impl Moments {
    fn of_squares(x: &[f64]) -> Moments {
        Moments { centred: false, mean: 0.0, inverse: inverse(x, 0.0) }
    }

    fn around_mean(x: &[f64]) -> Moments {
        let mean = average(x.iter().copied());
        Moments { centred: true, mean, inverse: inverse(x, mean) }
    }

    fn normed(&self, x: f64) -> f64 {
        (x - self.mean) * self.inverse
    }
}

fn inverse(x: &[f64], mean: f64) -> f64 {
    (average(x.iter().map(|x| (x - mean).powi(2))) + EPS).sqrt().recip()
}

fn average(numbers: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for number in numbers {
        (sum, count) = (sum + number, count + 1.0);
    }
    sum / count
}

/// RMSNorm.
pub(super) fn scaled(x: &[f64], weight: &[f64]) -> Vec<Expected> {
    let scale = inverse(x, 0.0);
    let scaled = x.iter().zip(weight).map(|(x, weight)| x * scale * weight);
    scaled.map(|value| Expected { value, slack: FEW * value.abs() }).collect()
}

/// The gradient of a row.
fn gradient(moments: &Moments, x: &[f64], dy: &[f64], weight: &[f64]) -> Vec<Expected> {
    let g: Vec<f64> = dy.iter().zip(weight).map(|(dy, weight)| dy * weight).collect();
    let n: Vec<f64> = x.iter().map(|x| moments.normed(*x)).collect();
    let products = || g.iter().zip(&n).map(|(g, n)| g * n);
    // Without a mean that is taken away, that of the gradient is not, either.
    let centred = f64::from(u8::from(moments.centred));
    let (first, second) = (centred * average(g.iter().copied()), average(products()));
    let sizes = (centred * average(g.iter().map(|g| g.abs())), average(products().map(f64::abs)));
    let each = |((g, n), x): ((&f64, &f64), &f64)| {
        // What a normalised number is the difference of.
        let spread = (x.abs() + moments.mean.abs()) * moments.inverse;
        Expected {
            value: moments.inverse * (g - first - n * second),
            slack: FEW * moments.inverse * (g.abs() + sizes.0 + spread * sizes.1),
        }
    };
    g.iter().zip(&n).zip(x).map(each).collect()
}

/// The gradients of the weights of these columns.
fn weight_gradients(
    case: &Case,
    at: At<'_>,
    columns: &[u32],
    moments: fn(&[f64]) -> Moments,
) -> Vec<Expected> {
    let mut sums: Vec<Sum> = columns.iter().map(|_| Sum::default()).collect();
    for row in 0..case.rows {
        let x = of_row(case, at, 0, row);
        let moments = moments(&x);
        for (sum, &column) in sums.iter_mut().zip(columns) {
            let place = u64::from(row) * u64::from(case.columns) + u64::from(column);
            sum.add(at(1, place) * x.get(column as usize).map_or(f64::NAN, |x| moments.normed(*x)));
        }
    }
    // Each term is rounded a few times before it is added.
    let expected = |sum: &Sum| Expected { value: sum.value, slack: sum.slack() + FEW / 8.0 * sum.size };
    sums.iter().map(expected).collect()
}
