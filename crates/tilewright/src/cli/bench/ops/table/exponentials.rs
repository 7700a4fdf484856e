//! Softmax, cross entropy, and their gradients.

use tilewright::hardware::Element;
use tilewright::ops::{CrossEntropy, Error, FloatItem, Softmax};

use super::super::case::{Case, Role};
use super::super::library::Call;
use super::super::reference::{At, Expected, FEW, Sum, of_row};
use super::super::sizes::{PROMISED, SOME, Size, large};
use super::{Op, calls};

/// Lengths of rows of logits.
const VOCABULARIES: &[u32] = &[32_768, 128_256];

pub(in super::super) static SOFTMAX: Op = Op {
    name: "softmax",
    about: "Measure the softmax of rows, beside torch and Triton",
    bars: |element| large(PROMISED, element),
    rows: |case, at, row| vec![parts(&of_row(case, at, 0, row), |_| true)],
    calls: calls!(softmax),
    ..Op::PLAIN
};

fn softmax<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Softmax::new().run(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?)
}

pub(in super::super) static LOG_SOFTMAX: Op = Op {
    name: "log-softmax",
    about: "Measure the logarithm of the softmax of rows",
    bars: |element| large(SOME, element),
    rows: |case, at, row| {
        let x = of_row(case, at, 0, row);
        let (most, log) = log_sum_exp(&x);
        let logarithm = |x: &f64| {
            let value = x - most - log;
            Expected { value, slack: FEW * (1.0 + x.abs() + most.abs() + log) }
        };
        vec![x.iter().map(logarithm).collect()]
    },
    calls: calls!(log_softmax),
    ..Op::PLAIN
};

fn log_softmax<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Softmax::new().log().run(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?)
}

pub(in super::super) static CAUSAL_SOFTMAX: Op = Op {
    name: "causal-softmax",
    about: "Measure the softmax of rows that see their own position and those before",
    bars: |element| large(PROMISED, element).into_iter().map(whole_squares).collect(),
    tensors: |case| {
        let last = case.for_rows("positions").of(Element::I32);
        vec![case.matrix("x"), last.with(Role::Computed(position)), case.matrix("y").output()]
    },
    // What is not seen need not be read, and positions follow from the size.
    bytes: |case| {
        let seen: u64 = (0..case.rows).map(|row| u64::from(visible(case, row))).sum();
        (seen + case.elements()) * u64::from(case.element.bytes())
    },
    rows: |case, at, row| {
        let seen = visible(case, row) as usize;
        vec![parts(&of_row(case, at, 0, row), |column| column < seen)]
    },
    calls: calls!(causal_softmax),
    ..Op::PLAIN
};

fn causal_softmax<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (x, y) = (call.rows::<T>(0)?, call.rows::<T>(2)?);
    let (rows, columns) = (call.case.rows as usize, call.case.columns as usize);
    match rows.min(columns) {
        queries if rows.is_multiple_of(queries) => Softmax::new().causal(queries).run(call.device, x, y),
        _ => Softmax::new().positions(call.rows::<i32>(1)?).run(call.device, x, y),
    }
}

/// How many columns a row of a causal softmax sees: the rows are the last ones of squares that are stacked.
fn visible(case: &Case, row: u32) -> u32 {
    let (rows, columns) = (u64::from(case.rows), u64::from(case.columns.max(1)));
    let first = rows.next_multiple_of(columns) - rows;
    u32::try_from((u64::from(row) + first) % columns + 1).unwrap_or(case.columns)
}

/// The last column that a row sees.
fn position(case: &Case, row: u64) -> f64 {
    u32::try_from(row).map_or(0.0, |row| f64::from(visible(case, row)) - 1.0)
}

/// Whole squares, or the last rows of one.
fn whole_squares((rows, columns, depth): Size) -> Size {
    (if rows > columns { rows.next_multiple_of(columns) } else { rows }, columns, depth)
}

pub(in super::super) static MASKED_SOFTMAX: Op = Op {
    name: "masked-softmax",
    about: "Measure the softmax of what a mask shows, about half of each row",
    bars: |element| large(SOME, element),
    tensors: |case| vec![case.matrix("x"), case.matrix("mask").of(Element::Bool), case.matrix("y").output()],
    rows: |case, at, row| {
        let mask = of_row(case, at, 1, row);
        vec![parts(&of_row(case, at, 0, row), |column| mask[column] != 0.0)]
    },
    calls: calls!(masked_softmax),
    ..Op::PLAIN
};

fn masked_softmax<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let softmax = Softmax::new().mask(call.rows::<bool>(1)?);
    softmax.run(call.device, call.rows::<T>(0)?, call.rows::<T>(2)?)
}

pub(in super::super) static SOFTMAX_BACKWARD: Op = Op {
    name: "softmax-backward",
    about: "Measure the gradient of the softmax of rows, from its result",
    bars: |element| large(SOME, element),
    // Any numbers do in place of probabilities: the formula is the same, and so is the work.
    tensors: |case| vec![case.matrix("y"), case.matrix("dy"), case.matrix("dx").output()],
    rows: |case, at, row| {
        let (y, dy) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
        let sum: Sum = y.iter().zip(&dy).map(|(y, dy)| y * dy).collect();
        let gradient = |(y, dy): (&f64, &f64)| {
            let slack = FEW * (dy.abs() + sum.value.abs()) + sum.slack();
            Expected { value: y * (dy - sum.value), slack: y.abs() * slack }
        };
        vec![y.iter().zip(&dy).map(gradient).collect()]
    },
    calls: calls!(softmax_backward),
    ..Op::PLAIN
};

fn softmax_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Softmax::new().backward(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?)
}

pub(in super::super) static LOG_SOFTMAX_BACKWARD: Op = Op {
    name: "log-softmax-backward",
    about: "Measure the gradient of the logarithm of the softmax of rows, from its result",
    bars: |element| large(SOME, element),
    tensors: |case| vec![case.matrix("y"), case.matrix("dy"), case.matrix("dx").output()],
    rows: |case, at, row| {
        let (y, dy) = (of_row(case, at, 0, row), of_row(case, at, 1, row));
        let sum: Sum = dy.iter().copied().collect();
        let gradient = |(y, dy): (&f64, &f64)| {
            let slack = FEW * dy.abs() + y.exp() * (FEW * sum.value.abs() + sum.slack());
            Expected { value: dy - y.exp() * sum.value, slack }
        };
        vec![y.iter().zip(&dy).map(gradient).collect()]
    },
    calls: calls!(log_softmax_backward),
    ..Op::PLAIN
};

fn log_softmax_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Softmax::new().log().backward(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?, call.rows::<T>(2)?)
}

pub(in super::super) static CROSS_ENTROPY: Op = Op {
    name: "cross-entropy",
    about: "Measure the cross entropy of rows of logits, a loss for each row",
    bars: |element| large(VOCABULARIES, element),
    tensors: |case| {
        let targets = case.for_rows("targets").of(Element::I32).with(Role::Places(case.columns));
        vec![case.matrix("x"), targets, case.for_rows("losses").of(Element::F32).output()]
    },
    rows: |case, at, row| {
        let x = of_row(case, at, 0, row);
        let (most, log) = log_sum_exp(&x);
        let chosen = x.get(target(at, row)).copied().unwrap_or(f64::NAN);
        let slack = FEW * (1.0 + most.abs() + log + chosen.abs());
        vec![vec![Expected { value: most + log - chosen, slack }]]
    },
    calls: calls!(cross_entropy),
    ..Op::PLAIN
};

fn cross_entropy<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    CrossEntropy::new().run(call.device, call.rows::<T>(0)?, call.rows::<i32>(1)?, call.rows::<f32>(2)?)
}

pub(in super::super) static CROSS_ENTROPY_BACKWARD: Op = Op {
    name: "cross-entropy-backward",
    about: "Measure the gradient of the cross entropy of rows of logits",
    bars: |element| large(VOCABULARIES, element),
    tensors: |case| {
        let targets = case.for_rows("targets").of(Element::I32).with(Role::Places(case.columns));
        vec![case.matrix("x"), targets, case.for_rows("dlosses").of(Element::F32), case.matrix("dx").output()]
    },
    rows: |case, at, row| {
        let (target, given) = (target(at, row), at(2, row.into()));
        let mut gradient = parts(&of_row(case, at, 0, row), |_| true);
        for (column, part) in gradient.iter_mut().enumerate() {
            let value = part.value - if column == target { 1.0 } else { 0.0 };
            // Where the target takes almost all away, what the difference is of counts.
            *part = Expected { value: given * value, slack: given.abs() * (part.slack + FEW * value.abs()) };
        }
        vec![gradient]
    },
    calls: calls!(cross_entropy_backward),
    ..Op::PLAIN
};

fn cross_entropy_backward<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (x, dx) = (call.rows::<T>(0)?, call.rows::<T>(3)?);
    CrossEntropy::new().backward(call.device, x, call.rows::<i32>(1)?, call.rows::<f32>(2)?, dx)
}

/// The column that a row should have chosen.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a column")]
fn target(at: At<'_>, row: u32) -> usize {
    at(1, row.into()) as usize
}

/// The softmax over the columns that are seen; zero in the others.
fn parts(x: &[f64], sees: impl Fn(usize) -> bool) -> Vec<Expected> {
    let seen = || x.iter().enumerate().filter(|(column, _)| sees(*column)).map(|(_, x)| *x);
    let most = seen().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = seen().map(|x| (x - most).exp()).sum();
    let part = |(column, x): (usize, &f64)| {
        let value = if sees(column) { (x - most).exp() / sum } else { 0.0 };
        // Small parts may become zero in f32.
        Expected { value, slack: FEW * value + 1e-37 }
    };
    x.iter().enumerate().map(part).collect()
}

/// The largest number, and the logarithm of the sum of the powers relative to it.
fn log_sum_exp(x: &[f64]) -> (f64, f64) {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (most, x.iter().map(|x| (x - most).exp()).sum::<f64>().ln())
}

#[cfg(test)]
mod tests {
    use super::super::super::super::peer::Clock;
    use super::*;

    #[test]
    fn causal_rows_are_the_last_of_squares() {
        let seen = |rows, columns| {
            let (op, element) = (&CAUSAL_SOFTMAX, Element::BF16);
            let case = Case { op, element, rows, columns, depth: 0, k: 0, clock: Clock::Device };
            (0..rows).map(|row| visible(&case, row)).collect::<Vec<_>>()
        };
        assert_eq!(seen(4, 4), [1, 2, 3, 4]);
        assert_eq!(seen(2, 4), [3, 4]);
        assert_eq!(seen(6, 4), [3, 4, 1, 2, 3, 4]);
    }
}
