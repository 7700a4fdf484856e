//! What a product must give, and how far from it a result may be.
//!
//! Sums are computed in f64, and go through the same epilogue in f64 ([`Reference`]). Then, with `u` for the roundoff of the type that
//! sums are kept in and `S = sum |a * b|` for an element:
//!
//! - **Sums.** An addition to a sum `s` errs by `2 u |s|` at most, since tensor cores truncate. The factors have random signs, so that
//!   partial sums wander: all of them are below `4 sqrt(k) r` but for one product in many thousands, where `r`, the mean of `|a * b|` in
//!   squares, is at most `4/3 S / k` for evenly distributed factors. k such errors make `11 sqrt(k) u S`; the least of this and `2 k u S`,
//!   which holds for all numbers, is the bound. The order of additions does not matter to either, nor does splitting k.
//! - **8-bit floats.** Sums in Hopper's tensor cores have 13 bits behind the point. Within an instruction products are truncated
//!   each, with the random sign of the product, which makes `sqrt(k)` instead of `k` errors: `11/2 * 2^-13 S`; between instructions, each
//!   of 32 steps, the sum is, with its own sign: `11/2 sqrt(k) / 32 * 2^-13 S`. Promoted sums do this for 128 steps and are f32 beyond.
//! - **tf32.** Tensor cores may round or truncate f32 to ten bits of mantissa: `2^-10` for each factor.
//! - **Integers.** Sums are exact. The conversion to f32 for an epilogue rounds once.
//! - **Epilogue.** The error of a sum goes through: the epilogue is computed for sums that are too large and too small by it
//!   (independently for two neighbours, of which swiglu makes one), and the largest difference, a quarter more for curvature,
//!   is what it makes. Rounding on the way is relative to what is on the way, and that is bounded by the same epilogue of absolute values:
//!   all its operations and functions grow with those. 64 roundoffs of f32 are more than its dozen operations and the fast
//!   forms of functions make.
//! - **D.** Half a unit in the last place of its type; saturated where the type saturates.
//!
//! Whole numbers that are small have no errors at all, and must come out so.

use rayon::prelude::*;
use tilewright::hardware::Element;
use tilewright::kernels::gemm::epilogue::{
    Access, ExtraOperand, HostOperands, How, Reference, decode, encode,
};
use tilewright::kernels::gemm::{Accumulation, Problem, Types};

use crate::case::{Case, Extra, Matrix};
use crate::memory::Contents;

/// A number, and how far from it a result may be.
#[derive(Clone, Copy, Debug)]
struct Expected {
    value: f64,
    error: f64,
}

/// What a row of a product gives: its part of D, and what the epilogue writes elsewhere.
struct Row {
    results: Vec<Expected>,
    written: Vec<(String, usize, Expected)>,
}

/// The case, and what is needed for any row of it.
pub(crate) struct Oracle<'a> {
    case: &'a Case,
    reference: Reference<'a>,
    of_absolutes: Reference<'a>,
}

/// The operands of an epilogue with their absolute values.
pub(crate) struct Absolutes(Vec<(String, Vec<u8>)>);

impl Absolutes {
    pub(crate) fn of(case: &Case) -> Absolutes {
        let absolute = |extra: &Extra| {
            let element = extra.operand.element;
            let mut bytes = own_bytes(extra).to_vec();
            for index in 0..bytes.len() as u64 / u64::from(element.bytes()) {
                let value = decode(element, &bytes, index).abs();
                encode(element, &mut bytes, index, value);
            }
            (extra.operand.name.clone(), bytes)
        };
        Absolutes(
            case.extras.iter().filter(|extra| extra.operand.access == Access::Read).map(absolute).collect(),
        )
    }
}

/// The bytes that the run is told of.
fn own_bytes(extra: &Extra) -> &[u8] {
    &extra.contents.bytes()[extra.offset * extra.operand.element.bytes() as usize..]
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(case: &'a Case, absolutes: &'a Absolutes) -> Result<Oracle<'a>, String> {
        // Results as they are before they become whole: rounding is for the comparison.
        let types = Types { d: Element::F32, ..case.problem.types };
        let problem = Problem { types, ..case.problem.clone() };
        let read = case.extras.iter().filter(|extra| extra.operand.access == Access::Read);
        let mut operands = HostOperands::new();
        for extra in read {
            operands = operands.with(&extra.operand.name, own_bytes(extra));
        }
        let mut of_absolutes = HostOperands::new();
        for (name, bytes) in &absolutes.0 {
            of_absolutes = of_absolutes.with(name, bytes);
        }
        for (name, value) in &case.scalars {
            operands = operands.with_scalar(name, *value);
            of_absolutes = of_absolutes.with_scalar(name, value.abs());
        }
        let reference = |operands: &HostOperands<'a>| {
            Reference::new(&problem, operands).map_err(|error| format!("the reference refuses: {error}"))
        };
        Ok(Oracle { case, reference: reference(&operands)?, of_absolutes: reference(&of_absolutes)? })
    }

    /// How far a sum may be from the exact one; `size` is the sum of absolute products.
    fn error_of_sum(&self, sum: f64, size: f64) -> f64 {
        let problem = &self.case.problem;
        let k = f64::from(problem.k);
        let additions = |u: f64| size * u * (2.0 * k).min(11.0 * k.sqrt());
        let Types { a, accumulate, .. } = problem.types;
        match accumulate {
            _ if self.case.exact => 0.0,
            Element::I32 if problem.epilogue.is_identity() => 0.0,
            Element::I32 => sum.abs() * F32,
            // The reference errs as well.
            Element::F64 => 2.0 * additions(F64),
            _ if a == Element::TF32 => additions(F32) + size * 2.0 / 1024.0,
            _ if a.bytes() == 1 => {
                let steps = if problem.accumulation == Accumulation::Promoted { k.min(128.0) } else { k };
                additions(F32) + size / 8192.0 * 5.5 * (1.0 + steps.sqrt() / 32.0)
            }
            _ => additions(F32),
        }
    }

    /// A row of the product, of a member of the batch.
    fn row(&self, factors: &Factors, member: usize, row: usize) -> Row {
        let case = self.case;
        let (sums, sizes): (Vec<f64>, Vec<f64>) = factors.row(row).unzip();
        let errors: Vec<f64> =
            sums.iter().zip(&sizes).map(|(&sum, &size)| self.error_of_sum(sum, size)).collect();
        let c: Vec<f64> =
            case.c.iter().flat_map(|c| (0..c.lies.columns).map(move |j| c.value(member, row, j))).collect();
        let at = (u32::try_from(member).unwrap_or(0), u32::try_from(row).unwrap_or(0), 0);
        let evaluate = |reference: &Reference<'_>, sums: &[f64], c: &[f64]| {
            let mut written = Vec::new();
            let mut write = |operand: &ExtraOperand, index: u64, value: f64| {
                written.push((operand.name.clone(), usize::try_from(index).unwrap_or(usize::MAX), value));
            };
            (reference.row(at, sums, c, &mut write), written)
        };
        let (exact, exact_written) = evaluate(&self.reference, &sums, &c);
        let mut results: Vec<Expected> = exact.iter().map(|&value| Expected { value, error: 0.0 }).collect();
        let mut written: Vec<(String, usize, Expected)> = exact_written
            .into_iter()
            .map(|(name, index, value)| (name, index, Expected { value, error: 0.0 }))
            .collect();
        if case.exact {
            return Row { results, written };
        }
        for signs in [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]] {
            let moved: Vec<f64> =
                (0..sums.len()).map(|column| sums[column] + signs[column % 2] * errors[column]).collect();
            let (other, other_written) = evaluate(&self.reference, &moved, &c);
            let pairs = results.iter_mut().zip(&other);
            let pairs =
                pairs.chain(written.iter_mut().map(|(.., x)| x).zip(other_written.iter().map(|(.., y)| y)));
            for (expected, other) in pairs {
                expected.error = expected.error.max(1.25 * (other - expected.value).abs());
            }
        }
        let u = if case.problem.types.accumulate == Element::F64 { F64 } else { F32 };
        let absolute = |values: &[f64]| -> Vec<f64> { values.iter().map(|value| value.abs()).collect() };
        if !case.problem.epilogue.is_identity() {
            let (sizes, written_sizes) = evaluate(&self.of_absolutes, &absolute(&sums), &absolute(&c));
            let pairs = results.iter_mut().zip(&sizes);
            let pairs =
                pairs.chain(written.iter_mut().map(|(.., x)| x).zip(written_sizes.iter().map(|(.., y)| y)));
            for (expected, size) in pairs {
                expected.error += 64.0 * u * size;
            }
        }
        Row { results, written }
    }

    /// Compares what a run has left with what it must have left: of D `rows` (all if they are not given), and what it writes elsewhere.
    pub(crate) fn check(
        &self,
        d: &Contents,
        extras: &[Contents],
        rows: Option<&[usize]>,
    ) -> Result<(), String> {
        let case = self.case;
        let all: Vec<usize> = (0..case.d.lies.rows).collect();
        let rows = rows.unwrap_or(&all);
        let mut reductions: Vec<Vec<Reduction>> =
            case.extras.iter().map(|extra| vec![Reduction::default(); extra.contents.len()]).collect();
        for member in 0..case.d.lies.starts.len() {
            let factors = Factors::new(case, member);
            let found: Vec<Row> = rows.par_iter().map(|&row| self.row(&factors, member, row)).collect();
            for (&row, expected) in rows.iter().zip(found) {
                for (column, expected) in expected.results.iter().enumerate() {
                    let found = d.get(case.d.lies.at(member, row, column));
                    compare(d.element, found, *expected, case.exact)
                        .map_err(|what| format!("D[{member}, {row}, {column}] {what}"))?;
                }
                for (name, index, expected) in expected.written {
                    let known = case.extras.iter().position(|extra| extra.operand.name == name);
                    let i = known.ok_or_else(|| format!("there is no operand {name}"))?;
                    let (extra, at) = (&case.extras[i], case.extras[i].offset + index);
                    match extra.operand.access {
                        Access::Reduce(how) => reductions[i][at].add(how, expected),
                        _ => compare(extras[i].element, extras[i].get(at), expected, case.exact)
                            .map_err(|what| format!("{name}[{index}] {what}"))?,
                    }
                }
            }
        }
        let u = if case.problem.types.accumulate == Element::F64 { F64 } else { F32 };
        for ((extra, contents), reductions) in case.extras.iter().zip(extras).zip(reductions) {
            let Access::Reduce(how) = extra.operand.access else { continue };
            let written = extra.written(&case.problem);
            for (at, reduction) in reductions.into_iter().enumerate().filter(|&(at, _)| written[at]) {
                let error =
                    if case.exact { 0.0 } else { reduction.error + reduction.count * u * reduction.size };
                let nothing = reduction.count == 0.0;
                let expected = Expected { value: if nothing { how.start() } else { reduction.value }, error };
                compare(contents.element, contents.get(at), expected, case.exact)
                    .map_err(|what| format!("{}[{}] {what}", extra.operand.name, at - extra.offset))?;
            }
        }
        Ok(())
    }
}

/// Half a unit in the last place of 1.
const F32: f64 = 1.0 / (1u64 << 24) as f64;
const F64: f64 = 1.0 / (1u64 << 53) as f64;

/// What values make together.
#[derive(Clone, Copy, Debug, Default)]
struct Reduction {
    count: f64,
    value: f64,
    /// What the values' own errors make.
    error: f64,
    /// What rounding is relative to.
    size: f64,
}

impl Reduction {
    fn add(&mut self, how: How, x: Expected) {
        let before = if self.count == 0.0 { how.start() } else { self.value };
        self.value = how.combine(before, x.value);
        self.count += 1.0;
        match how {
            How::Sum => {
                self.error += x.error;
                self.size += x.value.abs();
            }
            // The largest of numbers is no further off than one of them.
            _ => self.error = self.error.max(x.error),
        }
    }
}

/// Roundoff, least positive number and largest number of a float type; the last is infinite where it does not saturate.
fn float(element: Element) -> (f64, f64, f64) {
    match element {
        Element::F64 => (F64, 0.0, f64::INFINITY),
        Element::BF16 => (2f64.powi(-8), 2f64.powi(-133), f64::INFINITY),
        Element::F16 => (2f64.powi(-11), 2f64.powi(-24), f64::INFINITY),
        Element::E4M3 => (2f64.powi(-4), 2f64.powi(-9), 448.0),
        Element::E5M2 => (2f64.powi(-3), 2f64.powi(-16), 57344.0),
        _ => (F32, 2f64.powi(-149), f64::INFINITY),
    }
}

/// NaN is close to nothing.
fn compare(element: Element, found: f64, expected: Expected, exact: bool) -> Result<(), String> {
    let Expected { value, error } = expected;
    let (nearest, tolerance) = if element.is_int() {
        let (least, most) = match element {
            Element::I8 => (-128.0, 127.0),
            Element::U8 => (0.0, 255.0),
            _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
        };
        (value.clamp(least, most), error + 0.5)
    } else {
        let (u, least, most) = float(element);
        // Close to its largest number f16 rounds to infinity, and that is right.
        let beyond = element == Element::F16 && value.abs() + error >= 65504.0;
        if beyond && (found.is_infinite() || found.abs() > 65000.0) && found * value > 0.0 {
            return Ok(());
        }
        (value.clamp(-most, most), error + ((value.abs() + error) * u).max(least / 2.0))
    };
    let fine = if found == nearest {
        // Also where both are infinite.
        true
    } else if exact && !element.is_int() {
        let mut bytes = [0; 8];
        encode(element, &mut bytes, 0, value);
        found == decode(element, &bytes, 0)
    } else {
        (found - nearest).abs() <= tolerance
    };
    if fine {
        Ok(())
    } else {
        let within = if exact { 0.0 } else { tolerance };
        Err(format!(
            "is {found}, expected {value} within {within:.3e}, off by {:.3e}",
            (found - nearest).abs()
        ))
    }
}

impl Matrix {
    fn value(&self, member: usize, row: usize, column: usize) -> f64 {
        self.contents.get(self.lies.at(member, row, column))
    }
}

/// The factors of a member in f64, with k contiguous.
struct Factors {
    columns: usize,
    k: usize,
    a: Vec<f64>,
    b: Vec<f64>,
}

impl Factors {
    fn new(case: &Case, member: usize) -> Factors {
        let (a, b, k) = (&case.a, &case.b, case.problem.k as usize);
        let (rows, columns) = (a.lies.rows, b.lies.columns);
        let a = (0..rows * k).into_par_iter().map(|i| a.value(member, i / k, i % k)).collect();
        let b = (0..columns * k).into_par_iter().map(|i| b.value(member, i % k, i / k)).collect();
        Factors { columns, k, a, b }
    }

    /// For each column the sum of products, and that of their absolute values.
    fn row(&self, row: usize) -> impl Iterator<Item = (f64, f64)> {
        let a = &self.a[row * self.k..][..self.k];
        (0..self.columns).map(move |column| {
            let b = &self.b[column * self.k..][..self.k];
            // Several sums, so that additions need not wait for each other.
            let (mut sums, mut sizes) = ([0.0; 8], [0.0; 8]);
            for (a, b) in a.chunks(8).zip(b.chunks(8)) {
                for (i, (a, b)) in a.iter().zip(b).enumerate() {
                    sums[i] += a * b;
                    sizes[i] += (a * b).abs();
                }
            }
            (sums.iter().sum(), sizes.iter().sum())
        })
    }
}
