//! Device code of an epilogue.

use tilewright_lang::Argument;
use tilewright_lang::prelude::*;

use super::{Epilogue, Expr};
use crate::gemm::matrix::{GlobalMatrix, Place};
use crate::gemm::problem::Problem;

/// An epilogue inside of a kernel that is being staged. `R` is the type that it computes in.
#[derive(Debug)]
pub struct Staged<R> {
    result: Expr,
    scalars: Vec<(String, Val<R>)>,
    c: Option<GlobalMatrix>,
}

impl Epilogue {
    /// Declares the run-time parameters of the epilogue; at the start of a kernel. [`Epilogue::bindings`] says what they get.
    #[must_use]
    #[track_caller]
    pub fn stage<R: Number>(&self, problem: &Problem) -> Staged<R> {
        let scalars = self.scalars().into_iter().map(|name| {
            let value = Argument::declare(&name);
            (name, value)
        });
        Staged {
            result: self.result().clone(),
            scalars: scalars.collect(),
            c: self
                .reads_c()
                .then(|| GlobalMatrix::declare("c", &problem.c, problem.types.c, problem.batching)),
        }
    }
}

impl<R: Number> Staged<R> {
    /// The results for neighbours in a row, given their sums, and the elements of C if the kernel has them already.
    #[must_use]
    #[track_caller]
    pub fn apply(&mut self, place: Place, sums: Vector<R>, c: Option<Vector<R>>) -> Vector<R> {
        let element = |i: u32| self.evaluate(&self.result, &place, i, sums.get(i), c.map(|c| c.get(i)));
        Vector::new((0..sums.len()).map(element))
    }

    #[track_caller]
    fn evaluate(&self, expr: &Expr, place: &Place, i: u32, sum: Val<R>, c: Option<Val<R>>) -> Val<R> {
        let evaluate = |expr| self.evaluate(expr, place, i, sum, c);
        match expr {
            Expr::Sum => sum,
            Expr::C => match (c, &self.c) {
                (Some(c), _) => c,
                (None, Some(source)) => source.load(place, i),
                (None, None) => val(R::ZERO),
            },
            Expr::Scalar(name) => {
                self.scalars.iter().find(|(known, _)| known == name).map_or(val(R::ZERO), |&(_, value)| value)
            }
            Expr::Add(x, y) => evaluate(x) + evaluate(y),
            Expr::Multiply(x, y) => evaluate(x) * evaluate(y),
        }
    }
}
