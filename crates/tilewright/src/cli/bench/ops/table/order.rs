//! Sums of rows, and what is largest in them.

use tilewright::hardware::Element;
use tilewright::ops::{Arg, CumulativeSum, Error, FloatItem, Reduce, TopK};

use super::super::case::{Reading, Role, Tensor};
use super::super::library::Call;
use super::super::reference::{Expected, Sum, of_row};
use super::super::sizes::large;
use super::{Op, calls};

pub(in super::super) static REDUCE: Op = Op {
    name: "reduce",
    about: "Measure sums of rows; with one row, of everything",
    types: &[Element::F32],
    bars: |element| [&[(1, 1 << 28, 0)], &large(&[4096], element)[..]].concat(),
    tensors: |case| vec![case.matrix("x"), case.for_rows("y").output()],
    rows: |case, at, row| {
        // One by one: a row may be all there is.
        let first = u64::from(row) * u64::from(case.columns);
        let sum: Sum = (0..u64::from(case.columns)).map(|column| at(0, first + column)).collect();
        vec![vec![Expected { value: sum.value, slack: sum.slack() }]]
    },
    calls: calls!(reduce),
    ..Op::PLAIN
};

fn reduce<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Reduce::Sum.rows(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?)
}

pub(in super::super) static SCAN: Op = Op {
    name: "scan",
    about: "Measure running sums of rows",
    types: &[Element::F32],
    bars: |element| large(&[1024, 4096, 16_384, 65_536], element),
    rows: |case, at, row| {
        let mut sum = Sum::default();
        let mut running = |value: f64| {
            sum.add(value);
            Expected { value: sum.value, slack: sum.slack() }
        };
        vec![of_row(case, at, 0, row).into_iter().map(&mut running).collect()]
    },
    calls: calls!(scan),
    ..Op::PLAIN
};

fn scan<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    CumulativeSum::new().run(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?)
}

pub(in super::super) static TOPK: Op = Op {
    name: "topk",
    about: "Measure the largest of each row, with their places",
    types: &[Element::F32],
    bars: |_| vec![(16_384, 256, 0)],
    fits: |case| match case.k {
        k if (1..=case.columns).contains(&k) => Ok(()),
        k => Err(format!("--k: found {k}, expected 1 to the {} columns", case.columns)),
    },
    tensors: |case| {
        let values = Tensor { columns: case.k, ..case.matrix("values").output() };
        let places = Tensor { name: "places", role: Role::Output(Reading::Places), ..values };
        vec![case.matrix("x"), values, places.of(Element::U32)]
    },
    rows: |case, at, row| {
        let mut all = of_row(case, at, 0, row);
        all.sort_by(|a, b| b.total_cmp(a));
        let largest: Vec<Expected> = all.into_iter().take(case.k as usize).map(Expected::exact).collect();
        vec![largest.clone(), largest]
    },
    calls: calls!(topk),
    ..Op::PLAIN
};

fn topk<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (values, places) = (call.rows::<T>(1)?, call.rows::<u32>(2)?);
    TopK::new(call.case.k as usize).run(call.device, call.rows::<T>(0)?, values, places)
}

pub(in super::super) static ARGMAX: Op = Op {
    name: "argmax",
    about: "Measure the place of the largest of each row",
    tensors: |case| {
        let places = case.for_rows("places").of(Element::U32);
        vec![case.matrix("x"), places.with(Role::Output(Reading::Places))]
    },
    rows: |case, at, row| {
        let x = of_row(case, at, 0, row);
        vec![vec![Expected::exact(x.into_iter().fold(f64::NEG_INFINITY, f64::max))]]
    },
    calls: calls!(argmax),
    ..Op::PLAIN
};

fn argmax<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Arg::Max.rows(call.device, call.rows::<T>(0)?, call.rows::<u32>(1)?)
}
