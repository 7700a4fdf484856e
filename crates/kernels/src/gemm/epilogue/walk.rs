//! The one walk over an [`Expr`] that stages device code and computes on the host.
//!
//! It goes over a *run*: neighbours in a row. Parts that occur twice are computed, and stored, once.

use super::expr::{Expr, ExtraOperand};
use super::formula::Callable;
use super::real::Real;

/// Which columns a part of an expression is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    /// Those of the product: inside of [`Expr::Pick`].
    Product,
    /// Those of D.
    Result,
}

/// What gives and takes the elements of a run.
pub(super) trait Machine {
    type Number: Callable;

    fn scalar(&mut self, name: &str) -> Self::Number;
    fn c(&mut self, count: usize) -> Vec<Self::Number>;
    fn read(&mut self, operand: &ExtraOperand, grid: Grid, count: usize) -> Vec<Self::Number>;
    fn store(&mut self, operand: &ExtraOperand, grid: Grid, values: &[Self::Number]);
    /// Until [`leave`](Machine::leave), nothing must be read where the factor is zero.
    fn enter(&mut self, factor: Self::Number);
    /// The values times the factor; zero where the factor is.
    fn leave(&mut self, factor: Self::Number, values: Vec<Self::Number>) -> Vec<Self::Number>;
}

/// A walk over the expression of an epilogue for one run.
pub(super) struct Walk<'e, M: Machine> {
    machine: M,
    sums: Vec<M::Number>,
    /// Columns of the product that make one of D.
    merged: usize,
    known: Vec<(&'e Expr, Grid, Vec<M::Number>)>,
    /// How many factors may be zero around here.
    factors: u32,
}

impl<'e, M: Machine> Walk<'e, M> {
    pub(super) fn new(machine: M, sums: Vec<M::Number>, merged: usize) -> Walk<'e, M> {
        Walk { machine, sums, merged, known: Vec::new(), factors: 0 }
    }

    /// The values of the expression for each element of D in the run.
    #[track_caller]
    pub(super) fn run(&mut self, expr: &'e Expr) -> Vec<M::Number> {
        self.values(expr, Grid::Result)
    }

    #[track_caller]
    fn values(&mut self, expr: &'e Expr, grid: Grid) -> Vec<M::Number> {
        // What is read under a factor is zero where the factor is, and good for nothing else.
        let remembers = self.factors == 0 && !matches!(expr, Expr::Sum | Expr::Scalar(_) | Expr::Constant(_));
        if remembers
            && let Some((.., values)) = self.known.iter().find(|(known, at, _)| *at == grid && *known == expr)
        {
            return values.clone();
        }
        let values = self.compute(expr, grid);
        if remembers {
            self.known.push((expr, grid, values.clone()));
        }
        values
    }

    #[track_caller]
    fn compute(&mut self, expr: &'e Expr, grid: Grid) -> Vec<M::Number> {
        let count = match grid {
            Grid::Product => self.sums.len(),
            Grid::Result => self.sums.len() / self.merged,
        };
        match expr {
            Expr::Sum => self.sums.clone(),
            Expr::C => self.machine.c(count),
            Expr::Scalar(name) => vec![self.machine.scalar(name); count],
            Expr::Constant(constant) => vec![M::Number::of(constant.0); count],
            Expr::Read(operand) => self.machine.read(operand, grid, count),
            Expr::Weighted(name, x) => {
                let factor = self.machine.scalar(name);
                self.machine.enter(factor);
                self.factors += 1;
                let values = self.values(x, grid);
                self.factors -= 1;
                self.machine.leave(factor, values)
            }
            Expr::Unary(function, x) => self.values(x, grid).into_iter().map(|x| function.apply(x)).collect(),
            Expr::Binary(function, x, y) => {
                let pairs = self.values(x, grid).into_iter().zip(self.values(y, grid));
                pairs.map(|(x, y)| function.apply(x, y)).collect()
            }
            Expr::User(function, inputs) => {
                let inputs: Vec<_> = inputs.iter().map(|input| self.values(input, grid)).collect();
                let call = |i| M::Number::call(function, &inputs.iter().map(|x| x[i]).collect::<Vec<_>>());
                (0..count).map(call).collect()
            }
            Expr::Pick(pick, x) => {
                let values = self.values(x, Grid::Product);
                values.into_iter().skip(usize::from(pick.second)).step_by(self.merged).collect()
            }
            Expr::Store(operand, x) => {
                let values = self.values(x, grid);
                self.machine.store(operand, grid, &values);
                values
            }
        }
    }
}
