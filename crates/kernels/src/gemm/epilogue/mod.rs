//! [`Epilogue`]: what happens to the sums of a product on their way to D.
//!
//! An epilogue is an [expression](Expr) over the sum, the matrix C, and operands and numbers that the run gives by name. The same
//! expression stages device code ([`Epilogue::stage`]) and computes on the host ([`Reference`]).
//!
//! ```
//! use tilewright_hardware::Element::{BF16, F32};
//! use tilewright_kernels::gemm::epilogue::Epilogue;
//!
//! // D = gelu(alpha * A * B + bias)
//! let epilogue = Epilogue::new().alpha().bias_per_column("bias", BF16).gelu();
//! assert_eq!(epilogue.to_string(), "gelu((($alpha * sum) + [column bias:bf16]))");
//!
//! // 8-bit floats with a scale for each row of A and each column of B.
//! let scaled = Epilogue::new().scale_rows("scale_a", F32).scale_columns("scale_b", F32);
//! assert_eq!(scaled.operands().len(), 2);
//! ```
//!
//! Contract: structure only. Names of operands and numbers are part of an epilogue, their values are not, so that plans can be shared.
//! Epilogues compute in f32, or in f64 if the product accumulates so; sums of integers are converted to f32 (exact up to 2^24) unless
//! nothing is computed at all. Results of 16 and 8 bits come from the fast forms of functions ([`Fast`]), wider ones from the accurate
//! forms. [`Epilogue::check`] says what cannot be computed.

mod check;
mod device;
mod expr;
mod formula;
mod partials;
mod real;
mod reduce;
mod reference;
mod walk;

use std::fmt;

use tilewright_hardware::Element;

pub use super::matrix::Place;
pub use device::Staged;
pub use expr::{Access, Constant, Expr, ExtraOperand, How, Pick, Shape};
pub use formula::{Binary, Formula, Unary, UserFunction};
pub use partials::{Lanes, Piece};
pub use real::{Fast, Fingerprint, Real};
pub(super) use reduce::reductions_of_nothing;
pub use reduce::{Pieces, add_reductions, with_reductions};
pub use reference::{HostNumber, HostOperands, Reference, decode, encode};

use super::matrix::GlobalMatrix;
use super::problem::{Batching, Placement, Problem, Storage, Types};
use super::recipe::{Binding, Operand};

/// What happens to the sums of a product on their way to D.
///
/// Methods apply to what was there before: `Epilogue::new().alpha().relu()` is `relu(alpha * sum)`.
///
/// ```
/// use tilewright_hardware::Element;
/// use tilewright_kernels::gemm::epilogue::Epilogue;
///
/// let epilogue = Epilogue::new().alpha().bias_per_column("bias", Element::BF16).relu();
/// assert_eq!(epilogue.to_string(), "relu((($alpha * sum) + [column bias:bf16]))");
/// assert_eq!(epilogue.scalars(), ["alpha"]);
/// assert_eq!(epilogue.operands()[0].name, "bias");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Epilogue {
    result: Expr,
}

impl Default for Epilogue {
    fn default() -> Epilogue {
        Epilogue::identity()
    }
}

impl From<Expr> for Epilogue {
    fn from(result: Expr) -> Epilogue {
        Epilogue { result }
    }
}

/// Everything that decides what is computed and how, but no extents: part of the keys of kernels.
impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.result.fmt(f)
    }
}

impl fmt::Debug for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A run-time parameter of a kernel with an epilogue. Its name cannot be that of one of the kernel's own.
enum Parameter {
    Scalar { parameter: String, name: String },
    Operand { parameter: String, operand: ExtraOperand },
}

/// How epilogues are made.
impl Epilogue {
    /// `D = A * B`, to be continued.
    #[must_use]
    pub fn new() -> Epilogue {
        Epilogue::identity()
    }

    /// `D = A * B`.
    #[must_use]
    pub fn identity() -> Epilogue {
        Expr::Sum.into()
    }

    /// `D = alpha * A * B + beta * C`, with the numbers `alpha` and `beta` of the run. C is not read where `beta` is zero.
    #[must_use]
    pub fn linear() -> Epilogue {
        Epilogue::new().alpha().beta_c()
    }

    /// Any expression of what was there before.
    #[must_use]
    pub fn then(self, f: impl FnOnce(Expr) -> Expr) -> Epilogue {
        f(self.result).into()
    }

    /// Times the number `alpha` of the run.
    #[must_use]
    pub fn alpha(self) -> Epilogue {
        self.then(|x| Expr::scalar("alpha") * x)
    }

    /// Plus `beta * C`, `beta` being a number of the run. C is not read where `beta` is zero.
    #[must_use]
    pub fn beta_c(self) -> Epilogue {
        self.then(|x| x + Expr::C.weighted("beta"))
    }

    /// Plus a vector with one element for each column, of this type: `f32::ELEMENT`, with the prelude, is that of f32.
    #[must_use]
    pub fn bias_per_column(self, name: &str, element: Element) -> Epilogue {
        self.then(|x| x + Expr::per_column(name, element))
    }

    /// Plus a vector with one element for each row.
    #[must_use]
    pub fn bias_per_row(self, name: &str, element: Element) -> Epilogue {
        self.then(|x| x + Expr::per_row(name, element))
    }

    /// Times a vector with one element for each row.
    #[must_use]
    pub fn scale_rows(self, name: &str, element: Element) -> Epilogue {
        self.then(|x| x * Expr::per_row(name, element))
    }

    /// Times a vector with one element for each column.
    #[must_use]
    pub fn scale_columns(self, name: &str, element: Element) -> Epilogue {
        self.then(|x| x * Expr::per_column(name, element))
    }

    /// Times one f32 in memory of the device: the scale of a tensor of 8-bit floats.
    #[must_use]
    pub fn scale(self, name: &str) -> Epilogue {
        self.then(|x| x * Expr::one(name, Element::F32))
    }

    /// Plus a matrix.
    #[must_use]
    pub fn residual(self, name: &str, element: Element, placement: Placement) -> Epilogue {
        self.then(|x| x + Expr::matrix(name, element, placement))
    }

    /// Writes what was there before to a matrix, for the backward pass for example, and goes on with it.
    #[must_use]
    pub fn store(self, name: &str, element: Element, placement: Placement) -> Epilogue {
        self.then(|x| x.store(name, element, placement))
    }

    /// Writes the sum of each row of what was there before, and goes on with it: f32, or f64 where sums are. Members of a batch have rows
    /// of their own, which lie one after the other; [`Expr::reduce`] takes other strides.
    #[must_use]
    pub fn row_sums(self, name: &str) -> Epilogue {
        self.reduce(name, Shape::PerRow, How::Sum)
    }

    /// Writes the largest value of each row of what was there before, and goes on with it.
    #[must_use]
    pub fn row_max(self, name: &str) -> Epilogue {
        self.reduce(name, Shape::PerRow, How::Max)
    }

    /// Writes the sum of each column of what was there before, and goes on with it.
    #[must_use]
    pub fn column_sums(self, name: &str) -> Epilogue {
        self.reduce(name, Shape::PerColumn, How::Sum)
    }

    /// Writes the largest value of each column of what was there before, and goes on with it.
    #[must_use]
    pub fn column_max(self, name: &str) -> Epilogue {
        self.reduce(name, Shape::PerColumn, How::Max)
    }

    /// Writes the largest absolute value of what was there before, and goes on with it: from it follows the next scale of
    /// an 8-bit D.
    #[must_use]
    pub fn amax(self, name: &str) -> Epilogue {
        self.reduce(name, Shape::One, How::AbsMax)
    }

    fn reduce(self, name: &str, shape: Shape, how: How) -> Epilogue {
        let operand = ExtraOperand { fits: true, ..ExtraOperand::new(name, Element::F32, shape) };
        self.then(|x| x.reduce(operand, how))
    }

    /// Zero instead of negative values.
    #[must_use]
    pub fn relu(self) -> Epilogue {
        self.then(Expr::relu)
    }

    /// `x/2 * (1 + erf(x / sqrt(2)))`.
    #[must_use]
    pub fn gelu(self) -> Epilogue {
        self.then(Expr::gelu)
    }

    /// The approximation of `gelu` by `tanh`.
    #[must_use]
    pub fn gelu_tanh(self) -> Epilogue {
        self.then(Expr::gelu_tanh)
    }

    /// `x * sigmoid(x)`.
    #[must_use]
    pub fn silu(self) -> Epilogue {
        self.then(Expr::silu)
    }

    /// The logistic function.
    #[must_use]
    pub fn sigmoid(self) -> Epilogue {
        self.then(Expr::sigmoid)
    }

    /// The hyperbolic tangent.
    #[must_use]
    pub fn tanh(self) -> Epilogue {
        self.then(Expr::tanh)
    }

    /// A user's function.
    #[must_use]
    pub fn map(self, formula: impl Formula) -> Epilogue {
        self.then(|x| x.map(formula))
    }

    /// `silu(gate) * up` of pairs of columns: even ones are gates, odd ones are ups. D has half as many columns as the product.
    #[must_use]
    pub fn swiglu(self) -> Epilogue {
        self.then(|x| x.clone().first_of_pair().silu() * x.second_of_pair())
    }
}

/// What epilogues say of themselves.
impl Epilogue {
    /// What D gets.
    #[must_use]
    pub fn result(&self) -> &Expr {
        &self.result
    }

    fn any(&self, mut predicate: impl FnMut(&Expr) -> bool) -> bool {
        let mut found = false;
        self.result.visit(&mut |expr| found |= predicate(expr));
        found
    }

    /// Whether it does nothing at all.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.result == Expr::Sum
    }

    /// Whether it reads C.
    #[must_use]
    pub fn reads_c(&self) -> bool {
        self.any(|expr| *expr == Expr::C)
    }

    /// Whether it writes what many values make together. Kernels that do not [finish](Staged::finish) such epilogues get others in
    /// their place from [`with_reductions`].
    #[must_use]
    pub fn reduces(&self) -> bool {
        self.any(|expr| matches!(expr, Expr::Store(ExtraOperand { access: Access::Reduce(_), .. }, _)))
    }

    /// Neighbours in a row of C that one access may take wherever it starts at a multiple of as many; 1 if C is not read.
    #[must_use]
    pub fn c_vector(&self, problem: &Problem) -> u32 {
        let batch = if problem.batching == Batching::Strided { problem.batch } else { 1 };
        match problem.c.storage {
            Storage::RowMajor if self.reads_c() => {
                problem.c.vector(problem.types.c, batch, 16 / problem.types.c.bytes())
            }
            _ => 1,
        }
    }

    /// Columns of the product that make one column of D.
    #[must_use]
    pub fn columns_for_one(&self) -> u32 {
        if self.any(|expr| matches!(expr, Expr::Pick(..))) { 2 } else { 1 }
    }

    /// The type that it computes in, and that its [device code](Epilogue::stage) takes sums in: i32 if sums are i32 and go to a D of
    /// integers as they are, f64 if sums are f64, else f32.
    #[must_use]
    pub fn computes_in(&self, types: &Types) -> Element {
        match types.accumulate {
            Element::I32 if self.is_identity() && types.d.is_int() => Element::I32,
            Element::F64 => Element::F64,
            _ => Element::F32,
        }
    }

    /// Whether it writes more than 16 bits anywhere besides D.
    fn stores_wide(&self) -> bool {
        self.any(|expr| matches!(expr, Expr::Store(operand, _) if operand.element.bytes() >= 4))
    }

    /// The numbers that a run must give, by name.
    #[must_use]
    pub fn scalars(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.result.visit(&mut |expr| {
            if let Expr::Scalar(name) | Expr::Weighted(name, _) = expr
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        });
        names
    }

    /// The operands besides C that a run must give, by name, each once.
    #[must_use]
    pub fn operands(&self) -> Vec<ExtraOperand> {
        let mut operands: Vec<ExtraOperand> = Vec::new();
        for operand in self.all_operands() {
            if operands.iter().all(|known| known.name != operand.name) {
                operands.push(operand);
            }
        }
        operands
    }

    /// The operands of all parts of the expression, in order.
    fn all_operands(&self) -> Vec<ExtraOperand> {
        fn collect(expr: &Expr, before_pairs: bool, operands: &mut Vec<ExtraOperand>) {
            if let Expr::Read(operand) | Expr::Store(operand, _) = expr {
                // What has no columns is the same on both sides.
                let same =
                    operand.access == Access::Read && matches!(operand.shape, Shape::PerRow | Shape::One);
                operands.push(ExtraOperand { before_pairs: before_pairs && !same, ..operand.clone() });
            }
            for part in expr.parts() {
                collect(part, before_pairs || matches!(expr, Expr::Pick(..)), operands);
            }
        }
        let mut operands = Vec::new();
        collect(&self.result, false, &mut operands);
        operands
    }

    /// The same where results of [`row_sums`](Epilogue::row_sums) and its like are of the type that the epilogue computes in, those of a
    /// member of the batch right after those of the one before.
    #[must_use]
    pub fn fitted(&self, problem: &Problem) -> Epilogue {
        let (described, element) = (self.operands(), self.computes_in(&problem.types));
        let fit = |operand: &ExtraOperand| {
            if !operand.fits {
                return operand.clone();
            }
            let known = described.iter().find(|known| known.name == operand.name).unwrap_or(operand);
            let (rows, columns) = known.extents(problem);
            let batch_stride = match known.shape {
                Shape::PerRow if problem.batch > 1 => rows.into(),
                Shape::PerColumn if problem.batch > 1 => columns.into(),
                _ => 0,
            };
            ExtraOperand { element, batch_stride, fits: false, ..operand.clone() }
        };
        self.result.with_parts(&fit, &|pick| *pick).into()
    }

    /// The same with operands that are accessed as widely as the problem allows: `alignment` says for each how many bytes its
    /// address is known to be a multiple of (of matrices, if it is fewer than their placement says). [`ExtraOperand::alignment`] of the
    /// result is what runs must then give. Without this everything but the inside of matrices is accessed element by element.
    #[must_use]
    pub fn widened(&self, problem: &Problem, alignment: impl Fn(&ExtraOperand) -> u32) -> Epilogue {
        let described = self.operands();
        let wide = |operand: &ExtraOperand| {
            let known = described.iter().find(|known| known.name == operand.name).unwrap_or(operand);
            let alignment = alignment(known);
            let lowered = known.with_alignment(alignment);
            ExtraOperand { width: lowered.widest(problem, alignment), ..operand.with_alignment(alignment) }
        };
        self.result.with_parts(&wide, &|pick| *pick).into()
    }

    /// The epilogue of the transposed product: rows become columns.
    #[must_use]
    pub fn transposed(&self) -> Epilogue {
        self.result.transposed().into()
    }

    fn parameters(&self) -> Vec<Parameter> {
        let scalars = self
            .scalars()
            .into_iter()
            .map(|name| Parameter::Scalar { parameter: format!("scalar_{name}"), name });
        let operands = (0u32..).zip(self.operands()).map(|(i, operand)| Parameter::Operand {
            parameter: format!("extra{i}_{}", operand.name),
            operand,
        });
        scalars.chain(operands).collect()
    }

    /// What the parameters that [`stage`](Epilogue::stage) declares get, but for those of reductions: [`add_reductions`] adds them.
    #[must_use]
    pub fn bindings(&self, problem: &Problem) -> Vec<(String, Binding)> {
        let mut bindings = Vec::new();
        for parameter in self.parameters() {
            match parameter {
                Parameter::Scalar { parameter, name } => bindings.push((parameter, Binding::Scalar(name))),
                Parameter::Operand { operand, .. } if matches!(operand.access, Access::Reduce(_)) => {}
                Parameter::Operand { parameter, operand } => {
                    let memory = Operand::Extra(operand.name);
                    match operand.shape {
                        Shape::Matrix(placement) => {
                            bindings.extend(GlobalMatrix::bindings(&parameter, memory, &placement));
                        }
                        _ => {
                            let stride = Binding::U64(operand.batch_stride);
                            let strides =
                                (operand.batch_stride != 0).then(|| (format!("{parameter}_batch"), stride));
                            bindings.push((parameter, Binding::Pointer(memory, 0)));
                            bindings.extend(strides);
                        }
                    }
                }
            }
        }
        if self.reads_c() {
            bindings.extend(GlobalMatrix::bindings("c", Operand::C, &problem.c));
        }
        bindings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::problem::Storage;
    use Element::{BF16, F32};

    #[test]
    fn texts_tell_epilogues_apart() {
        let dense = |m, n| Placement::dense(Storage::RowMajor, m, n);
        assert_eq!(Epilogue::linear().to_string(), "(($alpha * sum) + weighted($beta, c))");
        let text = |epilogue: Epilogue| epilogue.to_string();
        assert_eq!(
            text(Epilogue::new().store("pre", BF16, dense(8, 8)).swiglu()),
            "(silu(first(store([matrix pre:bf16 row-major v8], sum))) * second(store([matrix pre:bf16 row-major v8], sum)))"
        );
        // Extents are no part of it, what changes the code is.
        let residual = |m, n| text(Epilogue::new().residual("x", F32, dense(m, n)));
        assert_eq!(residual(8, 8), residual(16, 4));
        assert_ne!(residual(8, 8), residual(8, 7));
        let shared = ExtraOperand::new("b", F32, Shape::PerRow);
        assert_ne!(text(Expr::from(shared.clone()).into()), text(Expr::from(shared.each_batch(7)).into()));
    }

    #[test]
    fn transposing_swaps_rows_and_columns() {
        let placement = Placement::dense(Storage::RowMajor, 4, 6);
        let epilogue =
            Epilogue::linear().bias_per_column("b", BF16).scale_rows("s", F32).residual("x", BF16, placement);
        let transposed = epilogue.transposed();
        let shapes: Vec<Shape> = transposed.operands().iter().map(|operand| operand.shape).collect();
        assert_eq!(shapes, [Shape::PerRow, Shape::PerColumn, Shape::Matrix(placement.transposed())]);
        assert_eq!(transposed.transposed(), epilogue);
        assert!(transposed.reads_c() && transposed.scalars() == ["alpha", "beta"]);
    }

    #[test]
    fn operands_say_how_much_memory_they_need() {
        let x = Placement { leading: 9, batch_stride: 100, ..Placement::dense(Storage::ColumnMajor, 4, 3) };
        let bias = Expr::from(ExtraOperand::new("bias", BF16, Shape::PerColumn).each_batch(8));
        let epilogue =
            Epilogue::new().then(|sum| sum + bias).swiglu().scale_columns("s", F32).residual("x", F32, x);
        let problem = Problem { batch: 3, epilogue, ..Problem::new(4, 6, 2, Types::of(BF16)) };
        let sizes: Vec<(String, u64)> = problem
            .epilogue
            .operands()
            .into_iter()
            .map(|operand| (operand.name.clone(), operand.elements(&problem)))
            .collect();
        let expected = [("bias", 2 * 8 + 6), ("s", 3), ("x", 2 * 100 + 2 * 9 + 4)];
        assert_eq!(sizes, expected.map(|(name, size)| (name.to_owned(), size)));
        assert_eq!(problem.epilogue.columns_for_one(), 2);
        assert_eq!(problem.epilogue.bindings(&problem).len(), 2 + 1 + 3);
    }

    #[test]
    fn operands_are_as_wide_as_everything_about_them_allows() {
        let width = |n: u32, operand: ExtraOperand, alignment: u32| {
            let epilogue = Epilogue::from(Expr::Sum + operand);
            let problem = Problem { batch: 2, epilogue, ..Problem::new(24, n, 4, Types::of(BF16)) };
            let wide = problem.epilogue.widened(&problem, |_| alignment);
            assert_eq!(wide.check(&problem), Ok(()));
            wide.operands()[0].width
        };
        let column = || ExtraOperand::new("x", BF16, Shape::PerColumn);
        assert_eq!([64, 12, 13].map(|n| width(n, column(), 256)), [8, 4, 1]);
        assert_eq!([64, 12, 13].map(|n| width(n, column(), 4)), [2, 2, 1]);
        assert_eq!(width(64, column().each_batch(66), 256), 2);
        assert_eq!(width(64, ExtraOperand::new("x", F32, Shape::PerRow), 16), 4);
        assert_eq!(width(64, ExtraOperand::new("x", F32, Shape::One), 16), 1);
        let aligned = |n, leading, storage, alignment| {
            let placement = Placement { leading, ..Placement::dense(storage, 24, n as usize) };
            width(n, ExtraOperand::new("x", BF16, Shape::Matrix(placement)), alignment)
        };
        let matrix = |n, leading, storage| aligned(n, leading, storage, 256);
        assert_eq!(matrix(64, 64, Storage::RowMajor), 8);
        assert_eq!(matrix(64, 66, Storage::RowMajor), 2);
        assert_eq!([8, 4, 2].map(|alignment| aligned(64, 64, Storage::RowMajor, alignment)), [4, 2, 1]);
        // The lines are long enough, but the last one ends in the middle of an access.
        assert_eq!(matrix(62, 64, Storage::RowMajor), 2);
        assert_eq!(matrix(61, 24, Storage::ColumnMajor), 8);
    }

    #[test]
    fn integers_stay_integers_only_if_nothing_is_computed() {
        let types = Types::of(Element::I8);
        assert_eq!(Epilogue::identity().computes_in(&types), Element::I32);
        assert_eq!(Epilogue::new().alpha().computes_in(&types), Element::F32);
        assert_eq!(Epilogue::identity().computes_in(&types.with_result(BF16)), Element::F32);
        assert_eq!(Epilogue::linear().computes_in(&Types::of(Element::F64)), Element::F64);
    }
}
