//! [`Expr`]: what an epilogue computes, as a tree over the sum and the operands at one place of D.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops;

use tilewright_hardware::Element;

use super::formula::{Binary, Formula, Unary, UserFunction};
use super::real::Real;
use crate::gemm::Footprint;
use crate::gemm::problem::{Placement, Problem, Storage};

/// Where the elements of an operand belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One for each row.
    PerRow,
    /// One for each column.
    PerColumn,
    /// One for all.
    One,
    /// One for each place.
    Matrix(Placement),
}

/// What an epilogue does with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes each element once.
    Write,
    /// Writes what many values make together: those of a row, of a column, or all.
    Reduce(How),
}

/// What values make together. Values that are NaN do not count among the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The largest absolute value.
    AbsMax,
}

impl How {
    /// What no values at all make.
    #[must_use]
    pub fn start(self) -> f64 {
        match self {
            How::Sum | How::AbsMax => 0.0,
            How::Max => f64::NEG_INFINITY,
        }
    }

    /// What a value makes with those before it.
    #[must_use]
    #[track_caller]
    pub fn combine<R: Real>(self, before: R, value: R) -> R {
        match self {
            How::Sum => before + value,
            How::Max => before.max(value),
            How::AbsMax => before.max(value.abs()),
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            How::Sum => "sum",
            How::Max => "max",
            How::AbsMax => "absmax",
        })
    }
}

/// An operand of an epilogue besides C, in memory of the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtraOperand {
    /// Its name: the run gives its memory by it.
    pub name: String,
    /// The type of its elements.
    pub element: Element,
    /// Where they belong.
    pub shape: Shape,
    /// Elements from one member of a batch to the next, for all shapes but matrices, which say it themselves. Zero is one for all.
    pub batch_stride: u64,
    /// What happens to it.
    pub access: Access,
    /// Neighbours that one access may take, wherever it starts at a multiple of as many: its memory starts at a multiple of so many
    /// elements, and so do its lines and members; and the extent of its contiguous index is a multiple. A power of two; 1 if
    /// nothing is known. [`Epilogue::widened`](super::Epilogue::widened) finds it out.
    pub width: u32,
    /// Whether it has a column for each column of the product, where D has one for two of them.
    pub(super) before_pairs: bool,
    /// Whether element and batch stride are those that suit the problem, once it is known.
    pub(super) fits: bool,
}

impl ExtraOperand {
    /// An operand that is read, the same for all members of a batch unless its placement says otherwise.
    #[must_use]
    pub fn new(name: &str, element: Element, shape: Shape) -> ExtraOperand {
        let (name, access) = (name.to_owned(), Access::Read);
        ExtraOperand {
            name,
            element,
            shape,
            batch_stride: 0,
            access,
            width: 1,
            before_pairs: false,
            fits: false,
        }
    }

    /// The same with elements of its own for each member of a batch, so many after those of the one before. Matrices say this in their
    /// placement.
    #[must_use]
    pub fn each_batch(self, stride: usize) -> ExtraOperand {
        ExtraOperand { batch_stride: stride as u64, ..self }
    }

    /// Neighbours in a row that one access may take as far as lines of a matrix lie so; they may reach across its end.
    fn vector(&self) -> u32 {
        match self.shape {
            Shape::Matrix(placement) => placement.vector(self.element, 2, 16 / self.element.bytes()),
            _ => 1,
        }
    }

    /// How many neighbours in a row, of so many from a multiple of as many on, one access takes. Where places may lie outside,
    /// all of them are there or none.
    pub(super) fn access_width(&self, count: u32, bounded: bool) -> u32 {
        let most = match self.shape {
            Shape::PerColumn => self.width,
            Shape::Matrix(placement) if placement.storage == Storage::RowMajor => {
                if bounded {
                    self.width
                } else {
                    self.vector().max(self.width)
                }
            }
            _ => 1,
        };
        most.min(16 / self.element.bytes()).min(1 << count.trailing_zeros())
    }

    /// The extent of the contiguous index; 1 if there is none.
    pub(super) fn contiguous(&self, problem: &Problem) -> u32 {
        let (rows, columns) = self.extents(problem);
        match self.shape {
            Shape::PerRow => rows,
            Shape::PerColumn => columns,
            Shape::One => 1,
            Shape::Matrix(placement) => match placement.storage {
                Storage::RowMajor => columns,
                Storage::ColumnMajor => rows,
            },
        }
    }

    /// Bytes that its address must be a multiple of.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        match self.shape {
            Shape::Matrix(placement) => placement.alignment,
            _ => self.width * self.element.bytes(),
        }
    }

    /// The same where the address is known to be a multiple of so many bytes only. Vectors need no more than what they are accessed by.
    pub(super) fn with_alignment(&self, alignment: u32) -> ExtraOperand {
        let mut operand = self.clone();
        if let Shape::Matrix(placement) = &mut operand.shape {
            placement.alignment = placement.alignment.min(alignment);
        }
        operand
    }

    /// The width that follows from the problem, if the address is known to be a multiple of so many bytes.
    pub(super) fn widest(&self, problem: &Problem, alignment: u32) -> u32 {
        let placement = match self.shape {
            Shape::Matrix(placement) => placement,
            // Lines of a vector are its members.
            _ => Placement {
                storage: Storage::RowMajor,
                leading: self.batch_stride,
                batch_stride: self.batch_stride,
                alignment,
            },
        };
        let width = placement.vector(self.element, 2, 16 / self.element.bytes());
        width.min(1 << self.contiguous(problem).trailing_zeros().min(4))
    }

    /// Whether it belongs to the places of D, even where these are made of two columns of the product.
    #[must_use]
    pub fn matches_d(&self) -> bool {
        !self.before_pairs
    }

    /// Rows and columns that it belongs to.
    #[must_use]
    pub fn extents(&self, problem: &Problem) -> (u32, u32) {
        let merged = if self.before_pairs { 1 } else { problem.epilogue.columns_for_one() };
        (problem.m, problem.n / merged)
    }

    /// Which part of its memory a run touches, in elements. What reduces is written even where there is nothing to reduce.
    #[must_use]
    pub fn footprint(&self, problem: &Problem) -> Footprint {
        let (rows, columns) = self.extents(problem);
        let (batch, stride) = (problem.batch, self.batch_stride);
        let reduces = matches!(self.access, Access::Reduce(_));
        match self.shape {
            Shape::One if reduces => Footprint::of_vector(1, 1, 0),
            Shape::PerRow if reduces => Footprint::of_vector(rows, batch, stride),
            Shape::PerColumn if reduces => Footprint::of_vector(columns, batch, stride),
            Shape::Matrix(placement) => Footprint::of_matrix(&placement, (rows, columns), batch),
            _ if rows == 0 || columns == 0 => Footprint::of_vector(0, batch, stride),
            Shape::PerRow => Footprint::of_vector(rows, batch, stride),
            Shape::PerColumn => Footprint::of_vector(columns, batch, stride),
            Shape::One => Footprint::of_vector(1, batch, stride),
        }
    }

    /// Elements from the first to the last that a run touches: what its memory must have.
    #[must_use]
    pub fn elements(&self, problem: &Problem) -> u64 {
        self.footprint(problem).extent().unwrap_or(u64::MAX)
    }

    /// Where the element of a place lies, counted in elements.
    #[must_use]
    pub fn index(&self, batch: u32, row: u32, column: u32) -> u64 {
        let [batch, row, column] = [batch, row, column].map(u64::from);
        match self.shape {
            Shape::PerRow => batch * self.batch_stride + row,
            Shape::PerColumn => batch * self.batch_stride + column,
            Shape::One => batch * self.batch_stride,
            Shape::Matrix(Placement { storage, leading, batch_stride, .. }) => {
                let (slow, fast) = match storage {
                    Storage::RowMajor => (row, column),
                    Storage::ColumnMajor => (column, row),
                };
                batch * batch_stride + slow * leading + fast
            }
        }
    }

    fn transposed(&self) -> ExtraOperand {
        let shape = match self.shape {
            Shape::PerRow => Shape::PerColumn,
            Shape::PerColumn => Shape::PerRow,
            Shape::One => Shape::One,
            Shape::Matrix(placement) => Shape::Matrix(placement.transposed()),
        };
        ExtraOperand { shape, ..self.clone() }
    }
}

impl fmt::Display for ExtraOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, element) = (&self.name, self.element);
        match self.shape {
            Shape::PerRow => write!(f, "row {name}:{element}")?,
            Shape::PerColumn => write!(f, "column {name}:{element}")?,
            Shape::One => write!(f, "one {name}:{element}")?,
            Shape::Matrix(placement) => {
                write!(f, "matrix {name}:{element} {} v{}", placement.storage, self.vector())?;
            }
        }
        if self.batch_stride != 0 {
            f.write_str(" batched")?;
        }
        if self.width > 1 { write!(f, " w{}", self.width) } else { Ok(()) }
    }
}

/// A number that is part of an epilogue. Equal if the bits are.
#[derive(Clone, Copy, Debug)]
pub struct Constant(pub f64);

impl PartialEq for Constant {
    fn eq(&self, other: &Constant) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Constant {}

impl Hash for Constant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// One of two neighbours that make one element of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pick {
    /// The second of them.
    pub second: bool,
    /// Whether they are neighbours in a column, as after transposing. No kernel computes this.
    pub in_column: bool,
}

/// An expression over the elements at one place of D.
///
/// Operators and methods build it; [`Epilogue::from`](super::Epilogue) makes an epilogue of it.
///
/// ```
/// use tilewright_hardware::Element;
/// use tilewright_kernels::gemm::epilogue::{Epilogue, Expr};
///
/// let gate = Expr::per_row("gate", Element::F32).sigmoid();
/// let epilogue = Epilogue::from(gate * (Expr::Sum * Expr::scalar("alpha") + 1.0));
/// assert_eq!(epilogue.to_string(), "(sigmoid([row gate:f32]) * ((sum * $alpha) + 1.0))");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expr {
    /// The sum of products.
    Sum,
    /// The element of C.
    C,
    /// A number of the run, by name.
    Scalar(String),
    /// A number.
    Constant(Constant),
    /// The element of an operand.
    Read(ExtraOperand),
    /// A number of the run times an expression. Where the number is zero so is the product, whatever the expression would be, and
    /// what only the expression reads is not read.
    Weighted(String, Box<Expr>),
    /// A function of an expression.
    Unary(Unary, Box<Expr>),
    /// A function of two expressions.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// A user's function.
    User(UserFunction, Vec<Expr>),
    /// Of two neighbouring columns of the product, which make one of D, the value in one. Everything inside is about the product's
    /// columns, everything outside about those of D.
    Pick(Pick, Box<Expr>),
    /// The expression; its value is also written to an operand, or becomes part of what is written there.
    Store(ExtraOperand, Box<Expr>),
}

impl From<ExtraOperand> for Expr {
    fn from(operand: ExtraOperand) -> Expr {
        Expr::Read(operand)
    }
}

impl From<f64> for Expr {
    fn from(value: f64) -> Expr {
        Expr::Constant(Constant(value))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident),*) => {$(
        impl<E: Into<Expr>> ops::$trait<E> for Expr {
            type Output = Expr;
            fn $method(self, other: E) -> Expr {
                Expr::Binary(Binary::$trait, Box::new(self), Box::new(other.into()))
            }
        }
        impl ops::$trait<Expr> for f64 {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                Expr::Binary(Binary::$trait, Box::new(self.into()), Box::new(other))
            }
        }
    )*};
}
operators!(Add add, Sub sub, Mul mul, Div div);

impl ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        self.unary(Unary::Neg)
    }
}

macro_rules! unary_methods {
    ($( $(#[$doc:meta])* $name:ident $variant:ident; )*) => {
        impl Expr {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(self) -> Expr {
                self.unary(Unary::$variant)
            }
        )*}
    };
}

unary_methods! {
    /// The absolute value.
    abs Abs;
    /// Zero instead of a negative value.
    relu Relu;
    /// The square.
    square Square;
    /// One over the value.
    recip Recip;
    /// The nearest integral value, ties to even.
    round Round;
    /// The exponential.
    exp Exp;
    /// The natural logarithm.
    ln Ln;
    /// The square root.
    sqrt Sqrt;
    /// The hyperbolic tangent.
    tanh Tanh;
    /// The error function.
    erf Erf;
    /// The logistic function.
    sigmoid Sigmoid;
    /// `x * sigmoid(x)`.
    silu Silu;
    /// `x/2 * (1 + erf(x / sqrt(2)))`.
    gelu Gelu;
    /// The approximation of `gelu` by `tanh`.
    gelu_tanh GeluTanh;
}

impl Expr {
    /// A number of the run, by name.
    #[must_use]
    pub fn scalar(name: &str) -> Expr {
        Expr::Scalar(name.to_owned())
    }

    /// An operand with one element for each row.
    #[must_use]
    pub fn per_row(name: &str, element: Element) -> Expr {
        ExtraOperand::new(name, element, Shape::PerRow).into()
    }

    /// An operand with one element for each column.
    #[must_use]
    pub fn per_column(name: &str, element: Element) -> Expr {
        ExtraOperand::new(name, element, Shape::PerColumn).into()
    }

    /// An operand with one element, in memory of the device.
    #[must_use]
    pub fn one(name: &str, element: Element) -> Expr {
        ExtraOperand::new(name, element, Shape::One).into()
    }

    /// An operand with one element for each place.
    #[must_use]
    pub fn matrix(name: &str, element: Element, placement: Placement) -> Expr {
        ExtraOperand::new(name, element, Shape::Matrix(placement)).into()
    }

    /// A number of the run times this. Where the number is zero so is the product, and what only this reads is not read.
    #[must_use]
    pub fn weighted(self, scalar: &str) -> Expr {
        Expr::Weighted(scalar.to_owned(), Box::new(self))
    }

    /// The smaller of two.
    #[must_use]
    pub fn min(self, other: impl Into<Expr>) -> Expr {
        Expr::Binary(Binary::Min, Box::new(self), Box::new(other.into()))
    }

    /// The larger of two.
    #[must_use]
    pub fn max(self, other: impl Into<Expr>) -> Expr {
        Expr::Binary(Binary::Max, Box::new(self), Box::new(other.into()))
    }

    /// A built-in function of this.
    #[must_use]
    pub fn unary(self, function: Unary) -> Expr {
        Expr::Unary(function, Box::new(self))
    }

    /// A user's function of this.
    #[must_use]
    pub fn map(self, formula: impl Formula) -> Expr {
        Expr::formula(formula, [self])
    }

    /// A user's function.
    #[must_use]
    pub fn formula(formula: impl Formula, inputs: impl IntoIterator<Item = Expr>) -> Expr {
        Expr::User(UserFunction::new(formula), inputs.into_iter().collect())
    }

    /// This, also written to an operand with one element for each place.
    #[must_use]
    pub fn store(self, name: &str, element: Element, placement: Placement) -> Expr {
        let operand = ExtraOperand::new(name, element, Shape::Matrix(placement));
        Expr::Store(ExtraOperand { access: Access::Write, ..operand }, Box::new(self))
    }

    /// This, and what the values of each row, of each column or at all places make together goes to an operand of f32 (f64 if the
    /// product accumulates so): [`Shape::PerRow`], [`Shape::PerColumn`] or [`Shape::One`]. Always in the same order, so that every
    /// run gives the same bits.
    #[must_use]
    pub fn reduce(self, operand: ExtraOperand, how: How) -> Expr {
        Expr::Store(ExtraOperand { access: Access::Reduce(how), ..operand }, Box::new(self))
    }

    /// This in the first of the two columns of the product that make one of D.
    #[must_use]
    pub fn first_of_pair(self) -> Expr {
        Expr::Pick(Pick { second: false, in_column: false }, Box::new(self))
    }

    /// This in the second of the two columns of the product that make one of D.
    #[must_use]
    pub fn second_of_pair(self) -> Expr {
        Expr::Pick(Pick { second: true, in_column: false }, Box::new(self))
    }

    /// The expressions that this one is made of.
    pub(super) fn parts(&self) -> Vec<&Expr> {
        match self {
            Expr::Sum | Expr::C | Expr::Scalar(_) | Expr::Constant(_) | Expr::Read(_) => Vec::new(),
            Expr::Weighted(_, x) | Expr::Unary(_, x) | Expr::Pick(_, x) | Expr::Store(_, x) => vec![x],
            Expr::Binary(_, x, y) => vec![x, y],
            Expr::User(_, inputs) => inputs.iter().collect(),
        }
    }

    /// Every part of the expression, itself included.
    pub fn visit(&self, f: &mut impl FnMut(&Expr)) {
        f(self);
        for part in self.parts() {
            part.visit(f);
        }
    }

    /// The same with other operands and picks.
    pub(super) fn with_parts(
        &self,
        operand: &impl Fn(&ExtraOperand) -> ExtraOperand,
        pick: &impl Fn(&Pick) -> Pick,
    ) -> Expr {
        let of = |expr: &Expr| Box::new(expr.with_parts(operand, pick));
        match self {
            Expr::Sum | Expr::C | Expr::Scalar(_) | Expr::Constant(_) => self.clone(),
            Expr::Read(read) => Expr::Read(operand(read)),
            Expr::Weighted(name, x) => Expr::Weighted(name.clone(), of(x)),
            Expr::Unary(function, x) => Expr::Unary(*function, of(x)),
            Expr::Binary(function, x, y) => Expr::Binary(*function, of(x), of(y)),
            Expr::User(function, inputs) => {
                Expr::User(function.clone(), inputs.iter().map(|x| x.with_parts(operand, pick)).collect())
            }
            Expr::Pick(which, x) => Expr::Pick(pick(which), of(x)),
            Expr::Store(written, x) => Expr::Store(operand(written), of(x)),
        }
    }

    /// The same for the transposed product: rows become columns.
    pub(super) fn transposed(&self) -> Expr {
        self.with_parts(&ExtraOperand::transposed, &|pick| Pick { in_column: !pick.in_column, ..*pick })
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Sum => f.write_str("sum"),
            Expr::C => f.write_str("c"),
            Expr::Scalar(name) => write!(f, "${name}"),
            Expr::Constant(constant) => write!(f, "{:?}", constant.0),
            Expr::Read(operand) => write!(f, "[{operand}]"),
            Expr::Weighted(name, x) => write!(f, "weighted(${name}, {x})"),
            Expr::Unary(function, x) => write!(f, "{}({x})", function.name()),
            Expr::Binary(Binary::Add, x, y) => write!(f, "({x} + {y})"),
            Expr::Binary(Binary::Sub, x, y) => write!(f, "({x} - {y})"),
            Expr::Binary(Binary::Mul, x, y) => write!(f, "({x} * {y})"),
            Expr::Binary(Binary::Div, x, y) => write!(f, "({x} / {y})"),
            Expr::Binary(Binary::Min, x, y) => write!(f, "min({x}, {y})"),
            Expr::Binary(Binary::Max, x, y) => write!(f, "max({x}, {y})"),
            Expr::User(function, inputs) => {
                write!(f, "{}#{}(", function.name(), function.fingerprint())?;
                for (i, input) in inputs.iter().enumerate() {
                    write!(f, "{}{input}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
            Expr::Pick(Pick { second, in_column }, x) => {
                let which = if *second { "second" } else { "first" };
                write!(f, "{which}{}({x})", if *in_column { "_in_column" } else { "" })
            }
            Expr::Store(operand, x) => match operand.access {
                Access::Reduce(how) => write!(f, "reduce_{how}([{operand}], {x})"),
                _ => write!(f, "store([{operand}], {x})"),
            },
        }
    }
}
