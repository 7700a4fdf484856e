//! Epilogues on the host: [`Reference`], for the CPU and as the oracle of tests.

use std::collections::HashMap;

use half::{bf16, f16};
use tilewright_hardware::Element;
use tilewright_lang::{E4m3, E5m2, nearest_bf16, nearest_f16};

use super::Epilogue;
use super::expr::{Access, ExtraOperand};
use super::formula::Callable;
use super::walk::{Grid, Machine, Walk};
use crate::gemm::GemmError;
use crate::gemm::problem::Problem;

/// Numbers that epilogues compute with on the host: `f32` as the device does, `f64` as the oracle of tests.
#[allow(private_bounds, reason = "f32 and f64 are all there are")]
pub trait HostNumber: Callable<Truth = bool> + PartialEq + Into<f64> {}

impl HostNumber for f32 {}
impl HostNumber for f64 {}

/// The operands of an epilogue in memory of the host, and the numbers of a run. C is not among them: rows of it are given
/// to [`Reference::row`].
#[derive(Clone, Debug, Default)]
pub struct HostOperands<'m> {
    memory: HashMap<String, &'m [u8]>,
    scalars: HashMap<String, f64>,
}

impl<'m> HostOperands<'m> {
    /// None yet.
    #[must_use]
    pub fn new() -> HostOperands<'m> {
        HostOperands::default()
    }

    /// With the bytes of an operand that is read.
    #[must_use]
    pub fn with(mut self, name: &str, bytes: &'m [u8]) -> HostOperands<'m> {
        self.memory.insert(name.to_owned(), bytes);
        self
    }

    /// With a number.
    #[must_use]
    pub fn with_scalar(mut self, name: &str, value: f64) -> HostOperands<'m> {
        self.scalars.insert(name.to_owned(), value);
        self
    }
}

/// An epilogue on the host.
///
/// ```
/// use tilewright_hardware::Element;
/// use tilewright_kernels::gemm::epilogue::{Epilogue, HostOperands, Reference};
/// use tilewright_kernels::gemm::{Problem, Types};
///
/// let epilogue = Epilogue::new().bias_per_column("bias", Element::F32).relu();
/// let problem = Problem { epilogue, ..Problem::new(1, 3, 8, Types::of(Element::F32)) };
/// let bias: Vec<u8> = [10.0f32, 20.0, 30.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// let reference = Reference::new(&problem, &HostOperands::new().with("bias", &bias))?;
/// let sums = [1.0f64, -25.0, 3.0];
/// assert_eq!(reference.row((0, 0, 0), &sums, &[], &mut |_, _, _| {}), [11.0, 0.0, 33.0]);
/// # Ok::<(), tilewright_kernels::gemm::GemmError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reference<'m> {
    epilogue: Epilogue,
    merged: usize,
    whole: bool,
    scalars: Vec<(String, f64)>,
    operands: Vec<(ExtraOperand, &'m [u8])>,
}

impl<'m> Reference<'m> {
    /// The epilogue of a problem with its operands.
    ///
    /// # Errors
    /// If the epilogue does not suit the problem, or an operand or a number is missing or too short.
    pub fn new(problem: &Problem, given: &HostOperands<'m>) -> Result<Reference<'m>, GemmError> {
        let epilogue = problem.epilogue.clone();
        epilogue.check(problem)?;
        let missing = |name: &str| GemmError::Epilogue { reason: format!("`{name}` was not given") };
        let mut scalars = Vec::new();
        for name in epilogue.scalars() {
            let value = given.scalars.get(&name).copied().ok_or_else(|| missing(&name))?;
            scalars.push((name, value));
        }
        let mut operands = Vec::new();
        for operand in epilogue.operands() {
            if operand.access != Access::Read {
                continue;
            }
            let bytes = given.memory.get(&operand.name).copied().ok_or_else(|| missing(&operand.name))?;
            let needed = operand.elements(problem).saturating_mul(operand.element.bytes().into());
            if (bytes.len() as u64) < needed {
                return Err(GemmError::Matrix {
                    matrix: format!("operand `{}`", operand.name),
                    what: "its size in bytes",
                    found: bytes.len() as u64,
                    expected: format!("at least {needed}"),
                });
            }
            operands.push((operand, bytes));
        }
        let merged = epilogue.columns_for_one() as usize;
        // Sums of integers that go to D as they are stay whole by themselves.
        let whole = problem.types.d.is_int() && !epilogue.is_identity();
        Ok(Reference { epilogue, merged, whole, scalars, operands })
    }

    /// The results for neighbours in a row of the product, before they are converted to D's type.
    ///
    /// `at` is batch, row and column of the first sum; `c` has an element for each result, and may be empty if C is not read. What the
    /// epilogue writes besides D goes to `write`: the operand, the index of the element in it, and the value. Values that
    /// are [reduced](Access::Reduce) come one by one, to be [combined](super::How::combine).
    pub fn row<X: HostNumber>(
        &self,
        at: (u32, u32, u32),
        sums: &[X],
        c: &[X],
        write: &mut dyn FnMut(&ExtraOperand, u64, X),
    ) -> Vec<X> {
        if self.epilogue.is_identity() {
            return sums.to_vec();
        }
        let machine = OnHost { reference: self, at, c, write, zeros: Vec::new() };
        let results = Walk::new(machine, sums.to_vec(), self.merged).run(self.epilogue.result());
        if self.whole { results.into_iter().map(X::round_even).collect() } else { results }
    }
}

/// A run on the host.
struct OnHost<'r, 'm, X> {
    reference: &'r Reference<'m>,
    at: (u32, u32, u32),
    c: &'r [X],
    write: &'r mut dyn FnMut(&ExtraOperand, u64, X),
    /// Whether the factors around here are zero, each with those before it.
    zeros: Vec<bool>,
}

impl<X> OnHost<'_, '_, X> {
    fn columns(&self, grid: Grid, count: usize) -> impl Iterator<Item = u32> + use<X> {
        let first = match grid {
            Grid::Product => self.at.2,
            Grid::Result => self.at.2 / u32::try_from(self.reference.merged).unwrap_or(1),
        };
        (first..).take(count)
    }

    fn skips(&self) -> bool {
        self.zeros.last() == Some(&true)
    }
}

impl<X: HostNumber> Machine for OnHost<'_, '_, X> {
    type Number = X;

    fn scalar(&mut self, name: &str) -> X {
        let known = self.reference.scalars.iter().find(|(known, _)| known == name);
        X::of(known.map_or(0.0, |&(_, value)| value))
    }

    fn c(&mut self, count: usize) -> Vec<X> {
        let element = |i| self.c.get(i).copied().unwrap_or(X::of(0.0));
        if self.skips() { vec![X::of(0.0); count] } else { (0..count).map(element).collect() }
    }

    fn read(&mut self, operand: &ExtraOperand, grid: Grid, count: usize) -> Vec<X> {
        let known = self.reference.operands.iter().find(|(known, _)| known.name == operand.name);
        let Some((operand, bytes)) = known.filter(|_| !self.skips()) else {
            return vec![X::of(0.0); count];
        };
        let (batch, row, _) = self.at;
        let element = |column| X::of(decode(operand.element, bytes, operand.index(batch, row, column)));
        self.columns(grid, count).map(element).collect()
    }

    fn store(&mut self, operand: &ExtraOperand, grid: Grid, values: &[X]) {
        let (batch, row, _) = self.at;
        for (column, &value) in self.columns(grid, values.len()).zip(values) {
            (self.write)(operand, operand.index(batch, row, column), value);
        }
    }

    fn enter(&mut self, factor: X) {
        self.zeros.push(self.skips() || factor == X::of(0.0));
    }

    fn leave(&mut self, factor: X, values: Vec<X>) -> Vec<X> {
        self.zeros.pop();
        if factor == X::of(0.0) {
            return vec![X::of(0.0); values.len()];
        }
        values.into_iter().map(|x| factor * x).collect()
    }
}

/// The number at an index of a matrix in memory of the host.
///
/// # Panics
/// If the index lies outside.
#[must_use]
pub fn decode(element: Element, bytes: &[u8], index: u64) -> f64 {
    let width = element.bytes() as usize;
    let start = usize::try_from(index).unwrap_or(usize::MAX / 16) * width;
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[start..start + width]);
    let word = u64::from_le_bytes(word);
    #[allow(clippy::cast_possible_truncation, reason = "the upper bytes are zero")]
    match element {
        Element::F64 => f64::from_bits(word),
        Element::F32 | Element::TF32 => f64::from(f32::from_bits(word as u32)),
        Element::BF16 => bf16::from_bits(word as u16).to_f64(),
        Element::F16 => f16::from_bits(word as u16).to_f64(),
        Element::E4M3 => E4m3(word as u8).to_f64(),
        Element::E5M2 => E5m2(word as u8).to_f64(),
        Element::I8 => f64::from((word as u8).cast_signed()),
        Element::U8 => f64::from(word as u8),
        Element::I32 => f64::from((word as u32).cast_signed()),
        _ => f64::from(word as u32),
    }
}

/// Writes the element nearest to a number, as kernels convert results: ties to even, and the largest finite number of integers and of
/// 8-bit floats instead of anything beyond it.
///
/// # Panics
/// If the index lies outside.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded and clamped, as kernels do"
)]
pub fn encode(element: Element, bytes: &mut [u8], index: u64, value: f64) {
    let width = element.bytes() as usize;
    let start = usize::try_from(index).unwrap_or(usize::MAX / 16) * width;
    let whole = value.round_ties_even();
    let word = match element {
        Element::F64 => value.to_bits(),
        Element::F32 | Element::TF32 => u64::from((value as f32).to_bits()),
        Element::BF16 => u64::from(nearest_bf16(value).to_bits()),
        Element::F16 => u64::from(nearest_f16(value).to_bits()),
        Element::E4M3 => u64::from(E4m3::from_f64(value).0),
        Element::E5M2 => u64::from(E5m2::from_f64(value).0),
        Element::I8 => u64::from((whole as i8).cast_unsigned()),
        Element::U8 => u64::from(whole as u8),
        Element::I32 => u64::from((whole as i32).cast_unsigned()),
        _ => u64::from(whole as u32),
    };
    bytes[start..start + width].copy_from_slice(&word.to_le_bytes()[..width]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::epilogue::{Expr, Formula, Real};
    use crate::gemm::problem::{Placement, Storage, Types};

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn problem(m: u32, n: u32, epilogue: impl Into<Epilogue>) -> Problem {
        Problem { epilogue: epilogue.into(), ..Problem::new(m, n, 4, Types::of(Element::F32)) }
    }

    /// Row 1, columns from 2 on, of a product with 3 rows and 6 columns; what it writes comes second.
    fn evaluate(
        epilogue: impl Into<Epilogue>,
        given: &HostOperands<'_>,
        sums: &[f64],
        c: &[f64],
    ) -> (Vec<f64>, Vec<(u64, f64)>) {
        let reference = Reference::new(&problem(3, 6, epilogue), given).unwrap();
        let mut written = Vec::new();
        let results = reference.row((0, 1, 2), sums, c, &mut |_, index, value| written.push((index, value)));
        (results, written)
    }

    #[test]
    fn scalars_vectors_and_matrices_meet_at_their_places() {
        let given = HostOperands::new().with_scalar("alpha", 2.0).with_scalar("beta", 3.0);
        assert_eq!(evaluate(Epilogue::linear(), &given, &[1.0, 2.0], &[5.0, 7.0]).0, [17.0, 25.0]);

        let (row, column) = (bytes(&[10.0, 20.0, 30.0]), bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let one = bytes(&[0.5]);
        let given = HostOperands::new().with("row", &row).with("column", &column).with("one", &one);
        let epilogue = Epilogue::new()
            .scale_rows("row", Element::F32)
            .bias_per_column("column", Element::F32)
            .scale("one");
        assert_eq!(evaluate(epilogue, &given, &[1.0, 2.0], &[]).0, [11.5, 22.0]);

        // Column-major with gaps: element (1, 2) lies at 2 * 4 + 1.
        let placement = Placement { leading: 4, ..Placement::dense(Storage::ColumnMajor, 3, 6) };
        let x: Vec<f32> = (0..24u8).map(f32::from).collect();
        let x = bytes(&x);
        let epilogue = Epilogue::new().residual("x", Element::F32, placement);
        assert_eq!(evaluate(epilogue, &HostOperands::new().with("x", &x), &[1.0, 2.0], &[]).0, [10.0, 15.0]);
    }

    #[test]
    fn nothing_is_read_where_its_weight_is_zero() {
        let given = HostOperands::new().with_scalar("alpha", 2.0).with_scalar("beta", 0.0);
        assert_eq!(evaluate(Epilogue::linear(), &given, &[1.0], &[f64::NAN]).0, [2.0]);
        // The same C read without a weight counts.
        let twice = Epilogue::from(Expr::C.weighted("beta") + Expr::C);
        assert_eq!(evaluate(twice, &given, &[1.0], &[4.0]).0, [4.0]);
    }

    #[test]
    fn functions_and_formulas_are_applied() {
        struct Difference;
        impl Formula for Difference {
            fn name(&self) -> String {
                "difference".to_owned()
            }
            fn inputs(&self) -> usize {
                2
            }
            fn apply<R: Real>(&self, x: &[R]) -> R {
                R::choose(x[0].less(x[1]), R::of(-1.0), x[0] - x[1])
            }
        }
        let none = HostOperands::new();
        assert_eq!(
            evaluate(Expr::formula(Difference, [Expr::Sum, Expr::from(2.0)]), &none, &[5.0, 1.0], &[]).0,
            [3.0, -1.0]
        );
        let clipped = (1.0 - Expr::Sum).max(-2.0).min(0.5).abs() / 2.0;
        assert_eq!(evaluate(clipped, &none, &[5.0, 0.0, 2.0], &[]).0, [1.0, 0.25, 0.5]);
        assert_eq!(evaluate(-Expr::Sum.relu().square(), &none, &[3.0, -3.0], &[]).0, [-9.0, 0.0]);
    }

    #[test]
    fn intermediate_values_are_stored_once() {
        let placement = Placement { leading: 8, ..Placement::dense(Storage::RowMajor, 3, 6) };
        let saved = Expr::Sum + 1.0;
        let saved = saved.store("saved", Element::F32, placement);
        let (results, written) = evaluate(saved.clone() * saved, &HostOperands::new(), &[1.0, 2.0], &[]);
        assert_eq!(results, [4.0, 9.0]);
        assert_eq!(written, [(10, 2.0), (11, 3.0)]);
    }

    #[test]
    fn pairs_of_columns_become_one() {
        let column = bytes(&[0.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        let outer = bytes(&[0.0, 100.0, 200.0]);
        let given = HostOperands::new().with("inner", &column).with("outer", &outer);
        let x = Expr::Sum + Expr::per_column("inner", Element::F32);
        let epilogue =
            x.clone().first_of_pair() * x.second_of_pair() + Expr::per_column("outer", Element::F32);
        // Columns 2 to 5 of the product are 1 and 2 of D: (10 + 1) (20 + 2) + 100 and (30 + 3) (40 + 4) + 200.
        assert_eq!(evaluate(epilogue, &given, &[10.0, 20.0, 30.0, 40.0], &[]).0, [342.0, 1652.0]);
        let swiglu = evaluate(Epilogue::new().swiglu(), &HostOperands::new(), &[1.0, 2.0], &[]).0;
        assert!((swiglu[0] - 2.0 * 0.731_058_578_630_004_9).abs() < 1e-15);
    }

    #[test]
    fn the_transposed_epilogue_gives_the_same_elements() {
        let numbers = |count: u8| bytes(&(0..count).map(f32::from).collect::<Vec<_>>());
        let (row, column, x) = (numbers(3), numbers(6), numbers(24));
        let given = HostOperands::new().with("row", &row).with("column", &column).with("x", &x);
        let placement = Placement { leading: 7, ..Placement::dense(Storage::RowMajor, 3, 6) };
        let epilogue = Epilogue::new()
            .scale_rows("row", Element::F32)
            .bias_per_column("column", Element::F32)
            .residual("x", Element::F32, placement);
        let problem = problem(3, 6, epilogue);
        let here = Reference::new(&problem, &given).unwrap();
        let there = Reference::new(&problem.transposed(), &given).unwrap();
        for (row, column) in [(0, 5), (1, 2), (2, 0)] {
            let at = |of: &Reference<'_>, at| of.row(at, &[10.0f64], &[], &mut |_, _, _| {});
            let expected = 10.0 * f64::from(row) + f64::from(column) + f64::from(7 * row + column);
            assert_eq!(at(&here, (0, row, column)), [expected]);
            assert_eq!(at(&there, (0, column, row)), [expected]);
        }
    }

    #[test]
    fn results_of_integer_type_are_whole() {
        let types = Types { d: Element::I8, ..Types::of(Element::I8) };
        let problem = Problem { epilogue: Epilogue::new().alpha(), ..Problem::new(1, 4, 4, types) };
        let reference = Reference::new(&problem, &HostOperands::new().with_scalar("alpha", 0.5)).unwrap();
        assert_eq!(
            reference.row((0, 0, 0), &[1.0f32, 3.0, -5.0, 7.5], &[], &mut |_, _, _| {}),
            [0.0, 2.0, -2.0, 4.0]
        );
    }

    #[test]
    fn what_is_missing_or_short_is_named() {
        let message = |epilogue: Epilogue, given: &HostOperands<'_>| {
            Reference::new(&problem(3, 6, epilogue), given).unwrap_err().to_string()
        };
        let none = HostOperands::new();
        assert_eq!(
            message(Epilogue::new().alpha(), &none),
            "the epilogue cannot be computed: `alpha` was not given"
        );
        let short = [0; 20];
        assert_eq!(
            message(Epilogue::new().bias_per_column("bias", Element::F32), &none.with("bias", &short)),
            "operand `bias`: its size in bytes is 20, expected at least 24"
        );
    }

    #[test]
    fn elements_are_written_as_they_are_read() {
        let mut memory = [0; 32];
        for (element, value, stored) in [
            (Element::F64, 0.1, 0.1),
            (Element::F32, 0.1, f64::from(0.1f32)),
            (Element::BF16, 1.0 + 1.0 / 256.0, 1.0),
            (Element::F16, 70000.0, f64::INFINITY),
            (Element::E4M3, -1000.0, -448.0),
            (Element::E5M2, 0.3, 0.3125),
            (Element::I8, 2.5, 2.0),
            (Element::I8, -500.0, -128.0),
            (Element::U8, -3.0, 0.0),
            (Element::I32, 1e10, 2_147_483_647.0),
        ] {
            encode(element, &mut memory, 3, value);
            assert_eq!(decode(element, &memory, 3), stored, "{value} as {element}");
        }
    }
}
