//! Rows in 8 bits, each with a scale.

use tilewright::hardware::Element;
use tilewright::lang::E4m3;
use tilewright::ops::{Error, FloatItem, QuantItem, Quantise, RmsNorm, dequantise};

use super::super::case::{Case, Reading, Role, Tensor};
use super::super::library::Call;
use super::super::reference::{At, Expected, FEW, of_row};
use super::super::sizes::{SOME, large};
use super::norms::{EPSILON, scaled};
use super::{Op, calls};

/// What is quantised are activations, and these are of 16 bits.
const ACTIVATIONS: Op = Op { types: &[Element::BF16], bars: |element| large(SOME, element), ..Op::PLAIN };

pub(in super::super) static QUANTISE_E4M3: Op = Op {
    name: "quantise-e4m3",
    about: "Measure rows becoming E4M3, with a scale for each row",
    tensors: |case| [vec![case.matrix("x")], with_scales(case, Element::E4M3)].concat(),
    rows: |case, at, row| quantised_row::<E4m3>(case, at, row),
    calls: calls!(quantise, E4m3),
    ..ACTIVATIONS
};

pub(in super::super) static QUANTISE_I8: Op = Op {
    name: "quantise-i8",
    about: "Measure rows becoming 8-bit integers, with a scale for each row",
    tensors: |case| [vec![case.matrix("x")], with_scales(case, Element::I8)].concat(),
    rows: |case, at, row| quantised_row::<i8>(case, at, row),
    calls: calls!(quantise, i8),
    ..ACTIVATIONS
};

fn quantise<T: FloatItem, Q: QuantItem>(call: &Call<'_>) -> Result<(), Error> {
    let (q, scales) = (call.rows::<Q>(1)?, call.rows::<f32>(2)?);
    Quantise::per_row().run(call.device, call.rows::<T>(0)?, q, scales)
}

fn quantised_row<Q: QuantItem>(case: &Case, at: At<'_>, row: u32) -> Vec<Vec<Expected>> {
    quantised::<Q>(of_row(case, at, 0, row).into_iter().map(Expected::exact).collect())
}

pub(in super::super) static DEQUANTISE_E4M3: Op = Op {
    name: "dequantise-e4m3",
    about: "Measure rows of E4M3 becoming numbers again, by the scale of each row",
    tensors: |case| from_scales(case, Element::E4M3),
    rows: scaled_row,
    calls: calls!(dequantised, E4m3),
    ..ACTIVATIONS
};

pub(in super::super) static DEQUANTISE_I8: Op = Op {
    name: "dequantise-i8",
    about: "Measure rows of 8-bit integers becoming numbers again, by the scale of each row",
    tensors: |case| from_scales(case, Element::I8),
    rows: scaled_row,
    calls: calls!(dequantised, i8),
    ..ACTIVATIONS
};

fn dequantised<T: FloatItem, Q: QuantItem>(call: &Call<'_>) -> Result<(), Error> {
    dequantise(call.device, call.rows::<Q>(0)?, call.rows::<f32>(1)?, call.rows::<T>(2)?)
}

fn from_scales(case: &Case, element: Element) -> Vec<Tensor> {
    let scales = case.for_rows("scales").of(Element::F32);
    vec![case.matrix("q").of(element), scales, case.matrix("y").output()]
}

fn scaled_row(case: &Case, at: At<'_>, row: u32) -> Vec<Vec<Expected>> {
    let scale = at(1, row.into());
    let times = |q: f64| Expected { value: q * scale, slack: FEW / 8.0 * (q * scale).abs() };
    vec![of_row(case, at, 0, row).into_iter().map(times).collect()]
}

pub(in super::super) static RMSNORM_QUANTISE_E4M3: Op = Op {
    name: "rmsnorm-quantise-e4m3",
    about: "Measure RMSNorm whose result is E4M3, with a scale for each row",
    tensors: |case| {
        [vec![case.matrix("x"), case.for_columns("weight")], with_scales(case, Element::E4M3)].concat()
    },
    rows: |case, at, row| quantised_norm::<E4m3>(case, at, row),
    calls: calls!(rmsnorm_quantise, E4m3),
    ..ACTIVATIONS
};

pub(in super::super) static RMSNORM_QUANTISE_I8: Op = Op {
    name: "rmsnorm-quantise-i8",
    about: "Measure RMSNorm whose result is 8-bit integers, with a scale for each row",
    tensors: |case| {
        [vec![case.matrix("x"), case.for_columns("weight")], with_scales(case, Element::I8)].concat()
    },
    rows: |case, at, row| quantised_norm::<i8>(case, at, row),
    calls: calls!(rmsnorm_quantise, i8),
    ..ACTIVATIONS
};

fn rmsnorm_quantise<T: FloatItem, Q: QuantItem>(call: &Call<'_>) -> Result<(), Error> {
    let norm = RmsNorm::new(EPSILON).weight(call.rows::<T>(1)?);
    norm.quantise(call.device, call.rows::<T>(0)?, call.rows::<Q>(2)?, call.rows::<f32>(3)?)
}

fn quantised_norm<Q: QuantItem>(case: &Case, at: At<'_>, row: u32) -> Vec<Vec<Expected>> {
    quantised::<Q>(scaled(&of_row(case, at, 0, row), &of_row(case, at, 1, 0)))
}

/// The two results: numbers of a type, and what rows of them are multiplied by.
fn with_scales(case: &Case, element: Element) -> Vec<Tensor> {
    let q = case.matrix("q").of(element).with(Role::Output(Reading::Scaled(1)));
    vec![q, case.for_rows("scales").of(Element::F32).output()]
}

/// A row that is quantised, as what it stands for, and its scale.
fn quantised<Q: QuantItem>(row: Vec<Expected>) -> Vec<Vec<Expected>> {
    let most = row.iter().fold(0.0, |most: f64, number| most.max(number.value.abs()));
    let scale = if most == 0.0 { 1.0 } else { most / f64::from(Q::LARGEST) };
    // Numbers are divided in f32, by a scale that is rounded.
    let within = |number: Expected| Expected { slack: number.slack + FEW * number.value.abs(), ..number };
    vec![row.into_iter().map(within).collect(), vec![Expected { value: scale, slack: FEW * scale }]]
}
