//! Activations of feed-forward layers, and their gradients.

use tilewright::kernels::gemm::epilogue::{Formula, Real};
use tilewright::ops::{Elementwise, Error, FloatItem, Glu};

use super::super::library::Call;
use super::super::reference::{Expected, FEW, of_row};
use super::super::sizes::{SOME, large};
use super::{Op, calls};

pub(in super::super) static SWIGLU: Op = Op {
    name: "swiglu",
    about: "Measure SwiGLU of a gate and what it lets through",
    tensors: |case| vec![case.matrix("gate"), case.matrix("up"), case.matrix("y").output()],
    rows: |case, at, row| {
        let (gate, up) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
        vec![gate.iter().zip(&up).map(|(gate, up)| within_few(gate * sigmoid(*gate) * up)).collect()]
    },
    calls: calls!(swiglu),
    ..Op::PLAIN
};

fn swiglu<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Glu::swi().run(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?)
}

pub(in super::super) static SWIGLU_BACKWARD: Op = Op {
    name: "swiglu-backward",
    about: "Measure the gradients of SwiGLU, of the gate and of what it lets through",
    bars: |element| large(SOME, element),
    tensors: |case| {
        let inputs = [case.matrix("gate"), case.matrix("up"), case.matrix("dy")];
        [&inputs[..], &[case.matrix("dgate").output(), case.matrix("dup").output()]].concat()
    },
    rows: |case, at, row| {
        let [gate, up, dy] = [0, 1, 2].map(|input| of_row(case, at, input, row));
        let dgate = |((gate, up), dy): ((&f64, &f64), &f64)| {
            let s = sigmoid(*gate);
            let (value, rest) = (dy * up * s * (1.0 + gate * (1.0 - s)), gate * (1.0 - s));
            // The two terms of the slope may cancel.
            Expected { value, slack: FEW * (dy * up * s).abs() * (1.0 + rest.abs()) }
        };
        let dup = |(gate, dy): (&f64, &f64)| within_few(dy * gate * sigmoid(*gate));
        vec![gate.iter().zip(&up).zip(&dy).map(dgate).collect(), gate.iter().zip(&dy).map(dup).collect()]
    },
    calls: calls!(swiglu_backward),
    ..Op::PLAIN
};

fn swiglu_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (gate, up, dy) = (call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?);
    Glu::swi().backward(call.device, gate, up, dy, call.rows::<T>(3)?, call.rows::<T>(4)?)
}

pub(in super::super) static GEGLU: Op = Op {
    name: "geglu",
    about: "Measure GeGLU of a gate and what it lets through",
    tensors: |case| vec![case.matrix("gate"), case.matrix("up"), case.matrix("y").output()],
    rows: |case, at, row| {
        let (gate, up) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
        let each = |(gate, up): (&f64, &f64)| {
            let Expected { value, slack } = gelu(*gate);
            Expected { value: value * up, slack: slack * up.abs() }
        };
        vec![gate.iter().zip(&up).map(each).collect()]
    },
    calls: calls!(geglu),
    ..Op::PLAIN
};

fn geglu<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Glu::ge().run(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?)
}

pub(in super::super) static GEGLU_BACKWARD: Op = Op {
    name: "geglu-backward",
    about: "Measure the gradients of GeGLU, of the gate and of what it lets through",
    bars: |element| large(SOME, element),
    tensors: |case| {
        let inputs = [case.matrix("gate"), case.matrix("up"), case.matrix("dy")];
        [&inputs[..], &[case.matrix("dgate").output(), case.matrix("dup").output()]].concat()
    },
    rows: |case, at, row| {
        let [gate, up, dy] = [0, 1, 2].map(|input| of_row(case, at, input, row));
        let dgate = |((gate, up), dy): ((&f64, &f64), &f64)| {
            let density = (-0.5 * gate * gate).exp() / std::f64::consts::TAU.sqrt();
            let slope = 0.5 * (1.0 + Real::erf(gate * std::f64::consts::FRAC_1_SQRT_2)) + gate * density;
            Expected { value: dy * up * slope, slack: FEW * (dy * up).abs() }
        };
        let dup = |(gate, dy): (&f64, &f64)| {
            let Expected { value, slack } = gelu(*gate);
            Expected { value: value * dy, slack: slack * dy.abs() }
        };
        vec![gate.iter().zip(&up).zip(&dy).map(dgate).collect(), gate.iter().zip(&dy).map(dup).collect()]
    },
    calls: calls!(geglu_backward),
    ..Op::PLAIN
};

fn geglu_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (gate, up, dy) = (call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?);
    Glu::ge().backward(call.device, gate, up, dy, call.rows::<T>(3)?, call.rows::<T>(4)?)
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

/// `x/2 * (1 + erf(x / sqrt(2)))`. Far below zero the sum cancels, and its digits in f32 are those of one.
fn gelu(x: f64) -> Expected {
    let value = 0.5 * x * (1.0 + Real::erf(x * std::f64::consts::FRAC_1_SQRT_2));
    Expected { value, slack: FEW / 8.0 * x.abs() }
}

/// What a few functions in f32 give.
fn within_few(value: f64) -> Expected {
    Expected { value, slack: FEW * value.abs() }
}
