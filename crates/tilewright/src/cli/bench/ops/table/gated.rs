//! Activations of feed-forward layers, and their gradients.

use tilewright::kernels::gemm::epilogue::{Formula, Real};
use tilewright::ops::{Elementwise, Error, FloatItem, Glu};

use super::super::case::{Case, Tensor};
use super::super::library::Call;
use super::super::reference::{At, Expected, FEW, of_row};
use super::super::sizes::{SOME, large};
use super::{Op, calls};

pub(in super::super) static SWIGLU: Op = Op {
    name: "swiglu",
    about: "Measure SwiGLU of a gate and what it lets through",
    tensors: forward_tensors,
    rows: |case, at, row| forward(case, at, row, silu),
    calls: calls!(swiglu),
    ..Op::PLAIN
};

fn swiglu<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Glu::swiglu().run(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?)
}

pub(in super::super) static SWIGLU_BACKWARD: Op = Op {
    name: "swiglu-backward",
    about: "Measure the gradients of SwiGLU, of the gate and of what it lets through",
    bars: |element| large(SOME, element),
    tensors: backward_tensors,
    rows: |case, at, row| backward(case, at, row, [silu, silu_slope]),
    calls: calls!(swiglu_backward),
    ..Op::PLAIN
};

fn swiglu_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (gate, up, dy) = (call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?);
    Glu::swiglu().backward(call.device, gate, up, dy, call.rows::<T>(3)?, call.rows::<T>(4)?)
}

pub(in super::super) static GEGLU: Op = Op {
    name: "geglu",
    about: "Measure GeGLU of a gate and what it lets through",
    tensors: forward_tensors,
    rows: |case, at, row| forward(case, at, row, gelu),
    calls: calls!(geglu),
    ..Op::PLAIN
};

fn geglu<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Glu::geglu().run(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?)
}

pub(in super::super) static GEGLU_BACKWARD: Op = Op {
    name: "geglu-backward",
    about: "Measure the gradients of GeGLU, of the gate and of what it lets through",
    bars: |element| large(SOME, element),
    tensors: backward_tensors,
    rows: |case, at, row| backward(case, at, row, [gelu, gelu_slope]),
    calls: calls!(geglu_backward),
    ..Op::PLAIN
};

fn geglu_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (gate, up, dy) = (call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?);
    Glu::geglu().backward(call.device, gate, up, dy, call.rows::<T>(3)?, call.rows::<T>(4)?)
}

fn forward_tensors(case: &Case) -> Vec<Tensor> {
    vec![case.matrix("gate"), case.matrix("up"), case.matrix("y").output()]
}

/// A row of what a gate with this activation lets through.
fn forward(case: &Case, at: At<'_>, row: u32, activation: fn(f64) -> Expected) -> Vec<Vec<Expected>> {
    let (gate, up) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
    vec![gate.iter().zip(&up).map(|(gate, up)| activation(*gate).times(*up)).collect()]
}

fn backward_tensors(case: &Case) -> Vec<Tensor> {
    let inputs = [case.matrix("gate"), case.matrix("up"), case.matrix("dy")];
    [&inputs[..], &[case.matrix("dgate").output(), case.matrix("dup").output()]].concat()
}

/// A row of the gradients of a gate with this activation and its slope, and of what it lets through.
fn backward(
    case: &Case,
    at: At<'_>,
    row: u32,
    [activation, slope]: [fn(f64) -> Expected; 2],
) -> Vec<Vec<Expected>> {
    let [gate, up, dy] = [0, 1, 2].map(|input| of_row(case, at, input, row));
    let dgate = |((gate, up), dy): ((&f64, &f64), &f64)| slope(*gate).times(dy * up);
    let dup = |(gate, dy): (&f64, &f64)| activation(*gate).times(*dy);
    vec![gate.iter().zip(&up).zip(&dy).map(dgate).collect(), gate.iter().zip(&dy).map(dup).collect()]
}

pub(in super::super) static BIAS_GELU: Op = Op {
    name: "bias-gelu",
    about: "Measure gelu(x + bias), a formula of one's own",
    tensors: |case| vec![case.matrix("x"), case.for_columns("bias"), case.matrix("y").output()],
    rows: |case, at, row| {
        let (x, bias) = (of_row(case, at, 0, row), of_row(case, at, 1, 0));
        let each = |(x, bias): (&f64, &f64)| {
            let Expected { value, slack } = gelu(x + bias);
            // The activation is never steeper than 1.2.
            Expected { value, slack: slack + FEW * (x.abs() + bias.abs()) }
        };
        vec![x.iter().zip(&bias).map(each).collect()]
    },
    calls: calls!(bias_gelu),
    ..Op::PLAIN
};

/// `gelu(x + bias)`.
struct BiasGelu;

impl Formula for BiasGelu {
    fn name(&self) -> String {
        "bias_gelu".to_owned()
    }

    fn inputs(&self) -> usize {
        2
    }

    fn apply<R: Real>(&self, x: &[R]) -> R {
        (x[0] + x[1]).gelu()
    }
}

fn bias_gelu<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Elementwise::new(BiasGelu).run(call.device, &[call.rows::<T>(0)?, call.rows::<T>(1)?], call.rows::<T>(2)?)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> Expected {
    let value = x * sigmoid(x);
    Expected { value, slack: FEW * value.abs() }
}

fn silu_slope(x: f64) -> Expected {
    let s = sigmoid(x);
    let rest = x * (1.0 - s);
    // The two terms may cancel.
    Expected { value: s * (1.0 + rest), slack: FEW * s * (1.0 + rest.abs()) }
}

/// `x/2 * (1 + erf(x / sqrt(2)))`. Far below zero the sum cancels, and its digits in f32 are those of one.
fn gelu(x: f64) -> Expected {
    Expected { value: x * normal(x), slack: FEW / 8.0 * x.abs() }
}

fn gelu_slope(x: f64) -> Expected {
    let density = (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    Expected { value: normal(x) + x * density, slack: FEW }
}

/// How probable it is that a normal variable is below `x`.
fn normal(x: f64) -> f64 {
    0.5 * (1.0 + Real::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}
