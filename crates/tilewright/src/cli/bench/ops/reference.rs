//! Whether results are what the [table](super::table) says in f64, within what arithmetic in f32 and one rounding explain.

use tilewright::device::Buffer;
use tilewright::hardware::Element;

use super::super::super::Failure;
use super::super::check::{Verdict, places};
use super::super::data::decode;
use super::super::timing::broken;
use super::case::{Case, Reading, Role, Tensor};
use super::memory::Memory;

/// A number of an input, by the input and its place.
pub(super) type At<'a> = &'a dyn Fn(usize, u64) -> f64;

/// A row of an input that is as wide as the case.
pub(super) fn of_row(case: &Case, at: At<'_>, input: usize, row: u32) -> Vec<f64> {
    let first = u64::from(row) * u64::from(case.columns);
    (first..first + u64::from(case.columns)).map(|place| at(input, place)).collect()
}

/// An element of a result, and what arithmetic in f32 explains of a difference. That the result is rounded once comes on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    pub(super) value: f64,
    pub(super) slack: f64,
}

impl Expected {
    pub(super) fn exact(value: f64) -> Expected {
        Expected { value, slack: 0.0 }
    }

    /// Both scaled by a factor.
    pub(super) fn times(self, factor: f64) -> Expected {
        Expected { value: self.value * factor, slack: self.slack * factor.abs() }
    }
}

/// A few roundings in f32, and those of its fast functions, as a part of a number.
pub(super) const FEW: f64 = 1.0 / (1 << 18) as f64;
/// One rounding in f32.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// How many elements dropout makes zero; `peers.py` has the same.
pub(super) const DROPPED: f64 = 0.5;

/// A sum, and what is known of its terms.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) value: f64,
    /// The absolute values of the terms, added.
    pub(super) size: f64,
    squares: f64,
    count: f64,
}

impl Sum {
    pub(super) fn add(&mut self, term: f64) {
        self.value += term;
        self.size += term.abs();
        self.squares += term * term;
        self.count += 1.0;
    }

    /// Errors of sums in f32 grow with the root of their number where roundings go either way, in whatever order.
    pub(super) fn slack(&self) -> f64 {
        UNIT * (8.0 * self.count.sqrt() + 32.0) * self.squares.sqrt()
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Sum {
        let mut sum = Sum::default();
        terms.into_iter().for_each(|term| sum.add(term));
        sum
    }
}

/// How far the nearest number of a type may be.
fn rounding(element: Element, value: f64) -> f64 {
    let smallest: f64 = match element {
        Element::F32 => -149.0,
        Element::F16 => -24.0,
        Element::BF16 => -133.0,
        Element::E4M3 => -9.0,
        Element::I8 => return 0.5,
        // Places are exact.
        _ => return 0.0,
    };
    let unit = f64::exp2(-f64::from(element.mantissa_bits().unwrap_or(52)) - 1.0);
    unit * value.abs() + smallest.exp2() / 2.0
}

/// Results of so many elements are compared in full.
const SMALL: u64 = 1 << 22;
/// Rows of a larger one that are compared, and columns of what is added up over them.
const SOME: u32 = 32;

/// Compares the outputs of the first copy, all of them. Not for products, which have a check of their own.
pub(super) fn check(case: &Case, memory: &Memory) -> Result<Verdict, Failure> {
    let outputs = case.tensors().into_iter().filter(Tensor::is_output).zip(memory.outputs(0));
    let (sums, by_row): (Vec<_>, Vec<_>) = outputs.partition(|(tensor, _)| matches!(tensor.role, Role::Sums));
    let at = |input: usize, place: u64| memory.at(input, place);
    let mut judge = Judge {
        case,
        at: &at,
        several: sums.len() + by_row.len() > 1,
        verdict: Verdict { error: 0.0, compared: 0, wrong: None },
        dropped: 0.0,
        all: 0.0,
    };
    let most = if case.elements() <= SMALL { u32::MAX } else { SOME };
    for row in places(by_row.first().map_or(0, |(tensor, _)| tensor.rows), most) {
        let found = by_row.iter().map(|(tensor, buffer)| numbers(tensor, buffer, row));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let expected = (case.op.rows)(case, &at, row);
        judge.same_number(found.len(), expected.len());
        for (((tensor, _), numbers), expected) in by_row.iter().zip(&found).zip(&expected) {
            judge.same_number(numbers.len(), expected.len());
            judge.row(tensor, row, numbers, expected, &found);
        }
    }
    if !sums.is_empty() {
        let columns: Vec<u32> = places(case.columns, most).collect();
        let expected = (case.op.sums)(case, &at, &columns);
        judge.same_number(sums.len(), expected.len());
        for ((tensor, buffer), expected) in sums.iter().zip(&expected) {
            judge.same_number(columns.len(), expected.len());
            let numbers = numbers(tensor, buffer, 0)?;
            for (&column, expected) in columns.iter().zip(expected) {
                let number = numbers.get(column as usize).copied().unwrap_or(f64::NAN);
                judge.number(tensor, (0, column.into()), number, *expected, 1.0);
            }
        }
    }
    judge.dropout();
    Ok(judge.verdict)
}

/// A row of an output.
fn numbers(tensor: &Tensor, buffer: &Buffer<u8>, row: u32) -> Result<Vec<f64>, Failure> {
    let width = tensor.element.bytes() as usize;
    let each = (tensor.columns as usize).saturating_mul(width);
    let start = (row as usize).saturating_mul(each);
    let bytes = buffer.slice(start..start.saturating_add(each)).and_then(|part| part.to_vec());
    let bytes = bytes.map_err(broken)?;
    Ok(bytes.chunks(width).map(|bytes| decode(tensor.element, bytes)).collect())
}

/// Who compares.
struct Judge<'a> {
    case: &'a Case,
    at: At<'a>,
    /// Whether results must be told apart.
    several: bool,
    verdict: Verdict,
    /// Of results of dropout, how many elements are zero, of how many.
    dropped: f64,
    all: f64,
}

impl Judge<'_> {
    /// A row of an output, beside the same row of all.
    fn row(&mut self, output: &Tensor, row: u32, found: &[f64], expected: &[Expected], all: &[Vec<f64>]) {
        let reading = match output.role {
            Role::Output(reading) => reading,
            _ => Reading::Numbers,
        };
        let scale = match reading {
            Reading::Scaled(by) => all.get(by).and_then(|scales| scales.first()).copied().unwrap_or(f64::NAN),
            _ => 1.0,
        };
        for (column, (&number, expected)) in (0..).zip(found.iter().zip(expected)) {
            let number = match reading {
                Reading::Places => self.there(row, number),
                Reading::Dropped => {
                    self.all += 1.0;
                    if number == 0.0 {
                        self.dropped += 1.0;
                        continue;
                    }
                    number
                }
                Reading::Numbers | Reading::Scaled(_) => number * scale,
            };
            self.number(output, (row, column), number, *expected, scale);
        }
        if reading == Reading::Places {
            let twice = (1..found.len()).find(|&column| found[..column].contains(&found[column]));
            if let Some(column) = twice {
                self.verdict.refute(format!("place {column} of row {row} is there twice"));
            }
        }
    }

    /// A number that stands for what it is in its type times a scale.
    fn number(&mut self, output: &Tensor, place: (u32, u64), found: f64, expected: Expected, scale: f64) {
        let right = self.verdict.wrong.is_none();
        let rounding = rounding(output.element, expected.value / scale) * scale.abs();
        let tolerance = rounding + expected.slack + f64::MIN_POSITIVE;
        self.verdict.compare(place, found, expected.value, tolerance);
        if let (true, true, Some(wrong)) = (self.several, right, &mut self.verdict.wrong) {
            *wrong = format!("{}, {wrong}", output.name);
        }
    }

    /// What a place of a row of the first input leads to.
    fn there(&self, row: u32, place: f64) -> f64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside of the row")]
        let inside = (place >= 0.0 && place < f64::from(self.case.columns)).then_some(place as u64);
        inside.map_or(f64::NAN, |place| (self.at)(0, u64::from(row) * u64::from(self.case.columns) + place))
    }

    /// What is compared in pairs must have as many on both sides, or the rest would go unseen.
    fn same_number(&mut self, found: usize, expected: usize) {
        if expected != found {
            self.verdict.refute(format!("found {found} numbers or results to compare, expected {expected}"));
        }
    }

    /// Whether dropout drops as many as it should.
    fn dropout(&mut self) {
        let share: f64 = self.dropped / self.all;
        if self.all > 0.0 && (share - DROPPED).abs() > 6.0 * (DROPPED * (1.0 - DROPPED) / self.all).sqrt() {
            self.verdict.refute(format!("found {share:.3} of the elements dropped, expected {DROPPED}"));
        }
    }
}
