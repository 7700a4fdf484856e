//! [`Epilogue`]: what happens to the sums of a product on their way to D.
//!
//! An epilogue is an expression over the sum, the matrix C, and operands and numbers that the run gives by name. The same expression
//! stages device code ([`Epilogue::stage`]) and computes the reference on the host.
//!
//! Contract: structure only. Names of operands and numbers are part of an epilogue, their values are not, so that plans can be shared.

mod device;

pub use super::matrix::Place;
pub use device::Staged;

use super::matrix::GlobalMatrix;
use super::problem::Problem;
use super::recipe::{Binding, Operand};

/// An expression over the elements at one place of D.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expr {
    /// The sum of products.
    Sum,
    /// The element of C.
    C,
    /// A number of the run, by name.
    Scalar(String),
    /// The sum of two expressions.
    Add(Box<Expr>, Box<Expr>),
    /// The product of two expressions.
    Multiply(Box<Expr>, Box<Expr>),
}

impl Expr {
    /// Every part of the expression, itself included.
    pub fn visit(&self, f: &mut impl FnMut(&Expr)) {
        f(self);
        match self {
            Expr::Sum | Expr::C | Expr::Scalar(_) => {}
            Expr::Add(x, y) | Expr::Multiply(x, y) => {
                x.visit(f);
                y.visit(f);
            }
        }
    }
}

/// What happens to the sums of a product on their way to D.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Epilogue {
    result: Expr,
}

impl Epilogue {
    /// `D = A * B`.
    #[must_use]
    pub fn identity() -> Epilogue {
        Epilogue { result: Expr::Sum }
    }

    /// `D = alpha * A * B + beta * C`, with the numbers `alpha` and `beta` of the run.
    #[must_use]
    pub fn linear() -> Epilogue {
        let times =
            |scalar: &str, what| Expr::Multiply(Box::new(Expr::Scalar(scalar.to_owned())), Box::new(what));
        Epilogue { result: Expr::Add(Box::new(times("alpha", Expr::Sum)), Box::new(times("beta", Expr::C))) }
    }

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

    /// Columns of the product that make one column of D.
    #[must_use]
    pub fn columns_for_one(&self) -> u32 {
        1
    }

    /// The numbers that a run must give, by name.
    #[must_use]
    pub fn scalars(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.result.visit(&mut |expr| {
            if let Expr::Scalar(name) = expr
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        });
        names
    }

    /// The epilogue of the transposed product: rows become columns.
    #[must_use]
    pub fn transposed(&self) -> Epilogue {
        self.clone()
    }

    /// What the parameters that [`stage`](Epilogue::stage) declares get.
    #[must_use]
    pub fn bindings(&self, problem: &Problem) -> Vec<(String, Binding)> {
        let mut bindings: Vec<_> =
            self.scalars().into_iter().map(|name| (name.clone(), Binding::Scalar(name))).collect();
        if self.reads_c() {
            bindings.extend(GlobalMatrix::bindings("c", Operand::C, &problem.c));
        }
        bindings
    }
}
