//! From sums in registers to D: the epilogue, the conversion, and the widest stores that D allows.

use tilewright_hardware::Element;
use tilewright_lang::Element as LangElement;
use tilewright_lang::prelude::*;

use super::epilogue::{Place, Staged};
use super::matrix::{GlobalMatrix, narrow, with_element};
use super::problem::{Problem, Storage};
use super::recipe::{Binding, Operand};

/// The end of a kernel whose threads hold blocks of neighbouring sums.
#[derive(Debug)]
pub(super) struct Output<R> {
    epilogue: Staged<R>,
    d: GlobalMatrix,
    storage: Storage,
    element: Element,
    width: u32,
    /// Columns of the product that make one of D.
    merged: u32,
    extents: (Val<u32>, Val<u32>),
}

/// Elements of D that one store can take wherever it starts at a multiple of as many, without leaving the matrix; at most 16 bytes.
pub(super) fn width(problem: &Problem) -> u32 {
    let contiguous = match problem.d.storage {
        Storage::RowMajor => problem.n / problem.epilogue.columns_for_one(),
        Storage::ColumnMajor => problem.m,
    };
    let vector = problem.d.vector(problem.types.d, problem.batch, 16 / problem.types.d.bytes());
    vector.min(1 << contiguous.trailing_zeros().min(4))
}

/// What the parameters that [`Output::declare`] declares get.
pub(super) fn bindings(problem: &Problem) -> Vec<(String, Binding)> {
    let mut bindings = problem.epilogue.bindings(problem);
    bindings.extend(GlobalMatrix::bindings("d", Operand::D, &problem.d));
    bindings
}

/// Everything that decides the code of an [`Output`], for the keys of kernels.
pub(super) fn key(problem: &Problem) -> String {
    let (c, d) = (&problem.types.c, &problem.types.d);
    format!(
        "{} c {c} {:?} d {d} {:?} w{}",
        problem.epilogue,
        problem.c.storage,
        problem.d.storage,
        width(problem)
    )
}

impl<R: Number> Output<R> {
    /// Declares the parameters of D and of the epilogue. The product has `extents` rows and columns.
    #[track_caller]
    pub(super) fn declare(problem: &Problem, extents: (Val<u32>, Val<u32>)) -> Output<R> {
        Output {
            epilogue: problem.epilogue.stage(problem),
            d: GlobalMatrix::declare("d", &problem.d, problem.types.d, problem.batching),
            storage: problem.d.storage,
            element: problem.types.d,
            width: width(problem),
            merged: problem.epilogue.columns_for_one(),
            extents,
        }
    }

    /// Stores a block: for each of some rows, neighbours in that row. The block starts at `(row, column)`; its extents are powers of
    /// two, and both coordinates multiples of them. What lies outside of D is left out.
    #[track_caller]
    pub(super) fn store(
        &mut self,
        batch: Val<u32>,
        (row, column): (Val<u32>, Val<u32>),
        sums: &[Vec<Val<R>>],
    ) {
        let bounds = Some(self.extents);
        let mut results = Vec::with_capacity(sums.len());
        for (i, sums) in (0u32..).zip(sums) {
            let place = Place { batch, row: row + i, column, bounds };
            results.push(self.epilogue.apply(place, Vector::new(sums.iter().copied()), None).elements());
        }
        let column = if self.merged == 1 { column } else { column / self.merged };
        let (rows, columns) = (to_u32(results.len()), results.first().map_or(0, |row| to_u32(row.len())));
        let at = |i: u32, j: u32| results[i as usize][j as usize];
        match self.storage {
            Storage::RowMajor => {
                for i in 0..rows {
                    for j in (0..columns).step_by(self.width as usize) {
                        let piece = (j..columns.min(j + self.width)).map(|j| at(i, j));
                        self.put(batch, row + i, column + j, piece.collect());
                    }
                }
            }
            Storage::ColumnMajor => {
                for j in 0..columns {
                    for i in (0..rows).step_by(self.width as usize) {
                        let piece = (i..rows.min(i + self.width)).map(|i| at(i, j));
                        self.put(batch, row + i, column + j, piece.collect());
                    }
                }
            }
        }
    }

    /// Stores neighbours in memory. They are all in D or all outside, since their number divides its extent.
    #[track_caller]
    fn put(&self, batch: Val<u32>, row: Val<u32>, column: Val<u32>, results: Vec<Val<R>>) {
        let (rows, columns) = self.extents;
        let columns = if self.merged == 1 { columns } else { columns / self.merged };
        let inside = below((row, column), (rows, columns));
        let at = self.d.at(batch, row, column);
        with_element!(self.element, T => put_as::<R, T>(at, inside, results));
    }
}

#[track_caller]
fn put_as<R: Number, T: LangElement>(at: Global<u8>, inside: Val<bool>, results: Vec<Val<R>>) {
    let results = results.into_iter().map(narrow::<R, T>);
    at.cast::<T>().store_vector_if(inside, Vector::new(results));
}

/// Whether a place exists.
#[device]
pub(super) fn below(place: (Val<u32>, Val<u32>), extents: (Val<u32>, Val<u32>)) -> Val<bool> {
    (place.0 < extents.0) & (place.1 < extents.1)
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
