//! The factors of a product, seen alike from both sides: rows times k, with one of the two contiguous.
//!
//! Rows of the left factor are those of the product, rows of the right one its columns. What is said for one side then holds for the
//! other: a kernel that copies, transposes or streams a factor does not ask which one it has.

use std::fmt;

use tilewright_hardware::Element;
use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Element as LangElement};

use super::matrix::GlobalMatrix;
use super::problem::{Batching, Placement, Problem, Storage, Types};
use super::recipe::{Binding, Operand};

/// Which factor of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The left one, A: its rows are those of the product.
    A,
    /// The right one, B: its rows are the columns of the product.
    B,
}

impl Side {
    /// The memory that holds it.
    #[must_use]
    pub fn operand(self) -> Operand {
        match self {
            Side::A => Operand::A,
            Side::B => Operand::B,
        }
    }

    /// How it lies in memory.
    #[must_use]
    pub fn placement(self, problem: &Problem) -> &Placement {
        match self {
            Side::A => &problem.a,
            Side::B => &problem.b,
        }
    }

    /// Its elements, as memory holds them.
    #[must_use]
    pub fn element(self, problem: &Problem) -> Element {
        Types::in_memory(match self {
            Side::A => problem.types.a,
            Side::B => problem.types.b,
        })
    }

    /// Its rows.
    #[must_use]
    pub fn rows(self, problem: &Problem) -> u32 {
        match self {
            Side::A => problem.m,
            Side::B => problem.n,
        }
    }

    /// Whether its elements lie side by side along k.
    #[must_use]
    pub fn is_k_major(self, problem: &Problem) -> bool {
        self.placement(problem).storage == self.k_major()
    }

    /// The storage that has k contiguous.
    #[must_use]
    pub fn k_major(self) -> Storage {
        match self {
            Side::A => Storage::RowMajor,
            Side::B => Storage::ColumnMajor,
        }
    }

    /// Elements that one access can take wherever it starts at a multiple of as many, without leaving the matrix; at most 16 bytes.
    pub(super) fn width(self, problem: &Problem) -> u32 {
        let (placement, element) = (self.placement(problem), self.element(problem));
        let contiguous = if self.is_k_major(problem) { problem.k } else { self.rows(problem) };
        let vector = placement.vector(element, problem.batch, 16 / element.bytes());
        vector.min(1 << contiguous.trailing_zeros().min(4))
    }

    /// The parameters that [`Factor::declare`] declares.
    pub(super) fn bindings(self, problem: &Problem) -> [(String, Binding); 3] {
        GlobalMatrix::bindings(&self.to_string(), self.operand(), self.placement(problem))
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::A => "a",
            Side::B => "b",
        })
    }
}

/// One member of a batch of factors in global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor<T> {
    origin: Global<T>,
    /// Has 32 bits by the contract of [`Problem::check`].
    leading: Val<u32>,
    k_major: bool,
}

impl<T: LangElement> Factor<T> {
    /// Declares the parameters `a`, `a_leading` and `a_batch` (or of `b`), and finds the member.
    #[track_caller]
    pub(super) fn declare(side: Side, problem: &Problem, batch: Val<u32>) -> Factor<T> {
        let origin: Global<T> = Argument::declare(&side.to_string());
        let leading: Val<u64> = Argument::declare(&format!("{side}_leading"));
        let stride: Val<u64> = Argument::declare(&format!("{side}_batch"));
        let origin = match problem.batching {
            Batching::Strided => origin.at(batch.cast::<u64>() * stride),
            Batching::Pointers => Global::from_address(origin.cast::<u64>().at(batch).load()),
        };
        Factor { origin, leading: leading.cast(), k_major: side.is_k_major(problem) }
    }

    /// Whether elements lie side by side along k.
    pub(super) fn is_k_major(&self) -> bool {
        self.k_major
    }

    /// The address of an element.
    #[track_caller]
    pub(super) fn at(&self, row: Val<u32>, k: Val<u32>) -> Global<T> {
        self.origin.at(self.offset(row, k))
    }

    /// How far so many lines lie apart, in elements: rows if k is contiguous, and steps otherwise.
    #[track_caller]
    pub(super) fn lines(&self, count: u32) -> Val<u64> {
        val(count).mul_wide(self.leading)
    }

    /// How far an element lies from the first, in elements.
    #[track_caller]
    pub(super) fn offset(&self, row: Val<u32>, k: Val<u32>) -> Val<u64> {
        let (slow, fast) = if self.k_major { (row, k) } else { (k, row) };
        slow.mul_wide(self.leading) + fast.cast::<u64>()
    }
}

/// Loads `len` neighbours, `width` at a time where `inside` says that those from an index on exist; zeros elsewhere.
#[track_caller]
pub(super) fn load_pieces<T: LangElement>(
    from: Global<T>,
    len: u32,
    width: u32,
    inside: impl Fn(u32) -> Val<bool>,
) -> Vector<T> {
    let width = width.min(len);
    let zeros =
        Vector::<u32>::splat(0u32, (width * T::ELEMENT.bytes()).div_ceil(4)).bitcast::<T>().slice(0, width);
    let piece = |i: u32| from.at(i).load_vector_if(inside(i), zeros);
    Vector::concat((0..len).step_by(width as usize).map(piece))
}
