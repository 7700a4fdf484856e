//! What ops compute, in f64, a row at a time; and how far arithmetic in f32 may be off.

use super::super::super::Failure;
use super::super::check::{Verdict, places};
use super::super::data::decode;
use super::super::timing::broken;
use super::case::{Case, DROPPED, EPS, Op, Role};
use super::memory::Memory;

/// A number of an input, by the input and its place.
pub(super) type At<'a> = &'a dyn Fn(usize, u64) -> f64;

/// An element of a result, and what arithmetic in f32 explains of a difference. That the result is rounded once comes on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    pub(super) value: f64,
    pub(super) slack: f64,
}

/// A few roundings in f32, and those of its fast functions, as a part of a number.
const FEW: f64 = 1.0 / (1 << 18) as f64;
/// One rounding in f32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// A row of the first output. Of a dropout, what is kept.
pub(super) fn row(case: &Case, at: At<'_>, row: u32) -> Vec<Expected> {
    let columns = u64::from(case.columns);
    let x = |column: u64| at(0, u64::from(row) * columns + column);
    let exact = |value: f64| Expected { value, slack: 0.0 };
    match case.op {
        Op::Softmax => softmax(case.columns, case.columns, x),
        Op::CausalSoftmax => softmax(case.columns, case.valid(row), x),
        Op::RmsNorm => {
            let squares: f64 = (0..columns).map(|column| x(column).powi(2)).sum();
            let scale = (squares / f64::from(case.columns) + EPS).sqrt().recip();
            let scaled = |column| x(column) * scale * at(1, column);
            (0..columns).map(scaled).map(|value| Expected { value, slack: FEW * value.abs() }).collect()
        }
        Op::LayerNorm => {
            let mean = (0..columns).map(x).sum::<f64>() / f64::from(case.columns);
            let squares: f64 = (0..columns).map(|column| (x(column) - mean).powi(2)).sum();
            let scale = (squares / f64::from(case.columns) + EPS).sqrt().recip();
            let scaled = |column| {
                let (weight, bias) = (scale * at(1, column), at(2, column));
                let slack = FEW * ((x(column).abs() + mean.abs()) * weight.abs() + bias.abs());
                Expected { value: (x(column) - mean) * weight + bias, slack }
            };
            (0..columns).map(scaled).collect()
        }
        Op::Reduce => running(columns, x).last().into_iter().collect(),
        Op::Scan => running(columns, x).collect(),
        Op::TopK => {
            let mut all: Vec<f64> = (0..columns).map(x).collect();
            all.sort_by(|a, b| b.total_cmp(a));
            all.into_iter().take(case.k as usize).map(exact).collect()
        }
        Op::ArgMax => vec![exact((0..columns).map(x).fold(f64::NEG_INFINITY, f64::max))],
        Op::Embedding => {
            // Numbers of rows are small integers.
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "below the vocabulary"
            )]
            let found = at(0, row.into()) as u64;
            (0..columns).map(|column| exact(at(1, found * columns + column))).collect()
        }
        Op::Dropout => (0..columns).map(|column| exact(x(column) / (1.0 - DROPPED))).collect(),
        Op::MatmulTile => {
            let depth = u64::from(case.depth);
            let sum = |column| {
                (0..depth).map(|k| at(0, u64::from(row) * depth + k) * at(1, k * columns + column)).sum()
            };
            (0..columns).map(sum).map(exact).collect()
        }
        Op::Copy => (0..columns).map(x).map(exact).collect(),
    }
}

fn softmax(columns: u32, valid: u32, x: impl Fn(u64) -> f64) -> Vec<Expected> {
    let most = (0..u64::from(valid)).map(&x).fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = (0..u64::from(valid)).map(|column| (x(column) - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let parts = powers.iter().map(|power| power / sum).chain(std::iter::repeat(0.0));
    // Small parts may become zero in f32.
    parts.take(columns as usize).map(|value| Expected { value, slack: FEW * value + 1e-37 }).collect()
}

/// Sums of the first elements. Errors of sums in f32 grow with the root of their number where roundings go either way, in whatever order.
fn running(columns: u64, x: impl Fn(u64) -> f64) -> impl Iterator<Item = Expected> {
    let (mut sum, mut squares, mut count) = (0.0, 0.0f64, 0.0f64);
    (0..columns).map(move |column| {
        let value = x(column);
        (sum, squares, count) = (sum + value, squares + value * value, count + 1.0);
        let slack = UNIT * (8.0 * count.sqrt() + 32.0) * squares.sqrt();
        Expected { value: sum, slack }
    })
}

/// Results of so many elements are compared in full.
const SMALL: u64 = 1 << 22;
/// Rows of a larger one that are compared.
const SOME: u32 = 32;

/// Compares the outputs of the first copy. Not for products, which have a check of their own.
pub(super) fn check(case: &Case, memory: &Memory) -> Result<Verdict, Failure> {
    let mut verdict = Verdict { error: 0.0, compared: 0, wrong: None };
    let tensors = case.tensors();
    let outputs: Vec<_> = tensors.iter().filter(|tensor| tensor.role == Role::Output).collect();
    let at = |input: usize, place: u64| memory.at(input, place);
    let most = if case.elements() <= SMALL { u32::MAX } else { SOME };
    let (mut dropped, mut all) = (0.0, 0.0);
    for row in places(case.rows, most) {
        // What each output has of this row.
        let found = outputs.iter().zip(memory.outputs(0)).map(|(tensor, buffer)| {
            let width = tensor.element.bytes() as usize;
            let each = usize::try_from(tensor.elements / u64::from(case.rows))
                .unwrap_or(usize::MAX)
                .saturating_mul(width);
            let start = (row as usize).saturating_mul(each);
            let bytes = buffer
                .slice(start..start.saturating_add(each))
                .and_then(|part| part.to_vec())
                .map_err(broken)?;
            Ok(bytes.chunks(width).map(|bytes| decode(tensor.element, bytes)).collect::<Vec<f64>>())
        });
        let found = found.collect::<Result<Vec<_>, Failure>>()?;
        let expected = self::row(case, &at, row);
        let unit = f64::exp2(-f64::from(case.element.mantissa_bits().unwrap_or(52)) - 1.0);
        let columns = u64::from(case.columns);
        let leads_to = |place: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside of the row")]
            let inside = (place >= 0.0 && place < f64::from(case.columns)).then_some(place as u64);
            inside.map_or(f64::NAN, |place| at(0, u64::from(row) * columns + place))
        };
        let values: Vec<f64> = match case.op {
            Op::ArgMax => found[0].iter().copied().map(leads_to).collect(),
            _ => found[0].clone(),
        };
        for (column, (&value, expected)) in (0..).zip(values.iter().zip(&expected)) {
            if case.op == Op::Dropout {
                all += 1.0;
                if value == 0.0 {
                    dropped += 1.0;
                    continue;
                }
            }
            let tolerance = unit * expected.value.abs() + expected.slack + f64::MIN_POSITIVE;
            verdict.compare((row, column), value, expected.value, tolerance);
        }
        if case.op == Op::TopK {
            let wrong = found[1].iter().zip(&values).position(|(&place, &value)| leads_to(place) != value);
            if let Some(wrong) = wrong {
                verdict.refute(format!("place {wrong} of row {row} does not lead to its value"));
            }
        }
    }
    let share: f64 = dropped / all;
    if case.op == Op::Dropout && (share - DROPPED).abs() > 6.0 * (DROPPED * (1.0 - DROPPED) / all).sqrt() {
        verdict.refute(format!("found {share:.3} of the elements dropped, expected {DROPPED}"));
    }
    Ok(verdict)
}
