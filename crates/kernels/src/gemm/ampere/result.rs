//! From the sums of a warp to D.
//!
//! A warp hands its sums strip by strip through shared memory of its own, so that lanes get neighbours along the contiguous index of D
//! and store them as wide as D's alignment allows. Strips are rows of a row-major D and columns of a column-major one. No other warp
//! is waited for.

use std::cell::RefCell;

use tilewright_hardware::Element;
use tilewright_lang::Element as LangElement;
use tilewright_lang::prelude::*;

use super::Plan;
use super::fragments::Order;
use super::load::Spread;
use crate::gemm::epilogue::{Place, Staged};
use crate::gemm::matrix::{GlobalMatrix, narrow, with_element};
use crate::gemm::problem::Storage;

/// How the sums of one warp travel: what is known while staging.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strips {
    by_rows: bool,
    /// Lines of a strip: rows or columns of the product.
    lines: u32,
    /// Elements of a line.
    along: u32,
    /// Elements from one line to the next in shared memory.
    stride: u32,
    strips: u32,
    /// Columns of the product for one of D.
    for_one: u32,
    /// Elements of D that a lane stores at once.
    vector: u32,
    rows: Order,
    columns: Order,
    sum: Element,
}

impl Strips {
    pub(super) fn new(plan: &Plan) -> Strips {
        let problem = &plan.problem;
        let by_rows = problem.d.storage == Storage::RowMajor;
        let (rows, columns) = (Order::of(&plan.a), Order::of(&plan.b));
        let (m, n) = plan.config.warp_tile();
        let (lines, all, along) = if by_rows { (rows.unit(), m, n) } else { (columns.unit(), n, m) };
        let sum = problem.types.accumulate;
        // Rows: lanes store pairs, eight rows at once. Columns: lanes store single sums of two columns apart.
        let padding = if by_rows { 8 } else { 16 / sum.bytes() };
        let for_one = problem.epilogue.columns_for_one();
        let pieces = lines * along / 32 / for_one;
        Strips {
            by_rows,
            lines,
            along,
            stride: along + padding,
            strips: all / lines,
            for_one,
            vector: plan.d_vector.min(pieces).min(along / if by_rows { for_one } else { 1 }),
            rows,
            columns,
            sum,
        }
    }

    /// Bytes of shared memory for each warp.
    pub(super) fn bytes(&self) -> u32 {
        (self.lines * self.stride * self.sum.bytes()).next_multiple_of(16)
    }

    /// Strip, line in it and position in the line of an element of the product.
    fn place(&self, row: u32, column: u32) -> (u32, u32, u32) {
        let (line, along) = if self.by_rows { (row, column) } else { (column, row) };
        (line / self.lines, line % self.lines, along)
    }

    /// The neighbours in a row that a lane holds: the column of the first, and the product and the number in its pair of each.
    fn runs(&self, products: u32) -> Vec<(u32, Vec<(u32, u32)>)> {
        match self.columns {
            Order::Straight => (0..products).map(|j| (8 * j, vec![(j, 0), (j, 1)])).collect(),
            Order::Interleaved => {
                let fours = (0..products / 4).flat_map(|four| [(four, 0), (four, 1)]);
                fours
                    .map(|(four, e)| (32 * four + 4 * e, (4 * four..4 * four + 4).map(|j| (j, e)).collect()))
                    .collect()
            }
        }
    }
}

/// Where results go, and what they are made of.
pub(super) struct Output<R> {
    /// What it remembers of a tile is nothing that a region of the kernel would hand on.
    pub(super) epilogue: RefCell<Staged<R>>,
    pub(super) d: GlobalMatrix,
    pub(super) strips: Strips,
}

impl<R: Number> Output<R> {
    /// Stores the product of a warp, whose first element is at `corner`. `memory` is the warp's own.
    #[track_caller]
    pub(super) fn store<C: Number>(&self, sums: &[Vec<Fragment<C>>], corner: Place, memory: SharedPtr<C>) {
        for strip in 0..self.strips.strips {
            if strip > 0 {
                warp_barrier();
            }
            self.put(sums, strip, memory);
            warp_barrier();
            self.take(corner, strip, memory);
        }
    }

    /// The sums of a strip, to shared memory.
    #[track_caller]
    fn put<C: Number>(&self, sums: &[Vec<Fragment<C>>], strip: u32, memory: SharedPtr<C>) {
        let strips = self.strips;
        let (group, quarter) = (lane_id() / 4, lane_id() % 4);
        // The steps of groups and quarters are the same for all products.
        let ((row_step, _), (column_step, _)) = (strips.rows.rows(0), strips.columns.rows(0));
        let (down, across) = if strips.by_rows { (strips.stride, 1) } else { (1, strips.stride) };
        let mine = memory.at(group * (row_step * down) + quarter * (2 * column_step * across));
        for (i, products) in (0u32..).zip(sums) {
            let halves = products.first().map_or(0, |product| product.extents().0 / 8);
            let count = u32::try_from(products.len()).unwrap_or(0);
            let runs = strips.runs(count);
            for (half, (column, run)) in (0..halves).flat_map(|half| runs.iter().map(move |run| (half, run)))
            {
                let (_, row) = strips.rows.rows(i * halves + half);
                let values: Vec<Val<C>> =
                    run.iter().map(|&(j, e)| products[j as usize].values().get(2 * half + e)).collect();
                let store = |column: u32, values: &[Val<C>]| {
                    let (of, line, along) = strips.place(row, column);
                    if of == strip {
                        let values = Vector::new(values.iter().copied());
                        store_in_pieces(mine.at(line * strips.stride + along), values);
                    }
                };
                if strips.by_rows {
                    store(*column, &values);
                } else {
                    for (column, value) in (*column..).zip(&values) {
                        store(column, &[*value]);
                    }
                }
            }
        }
    }

    /// The results of a strip, from shared memory to D.
    #[track_caller]
    fn take<C: Number>(&self, corner: Place, strip: u32, memory: SharedPtr<C>) {
        let strips = self.strips;
        let (vector, for_one) = (strips.vector, strips.for_one);
        let (in_line, lines) = if strips.by_rows {
            (strips.along / (vector * for_one), strips.lines)
        } else {
            (strips.along / vector, strips.lines / for_one)
        };
        let spread = Spread::new(in_line, lines, 32);
        let (line, piece) =
            if in_line > 32 { (val(0), lane_id()) } else { (lane_id() / in_line, lane_id() % in_line) };
        for step in 0..spread.steps {
            let (more_lines, more_pieces) = spread.step(step);
            if strips.by_rows {
                let (down, run) = (line + more_lines, vector * for_one);
                let x = piece * run + more_pieces * run;
                let place = Place {
                    row: corner.row + (strip * strips.lines) + down,
                    column: corner.column + x,
                    ..corner
                };
                let sums = load_in_pieces(memory.at(down * strips.stride + x), run).cast::<R>();
                self.finish_row(place, sums);
            } else {
                let (first, x) = ((line + more_lines) * for_one, (piece + more_pieces) * vector);
                let place = Place {
                    row: corner.row + x,
                    column: corner.column + (strip * strips.lines) + first,
                    ..corner
                };
                let columns = (0..for_one)
                    .map(|c| load_in_pieces(memory.at((first + c) * strips.stride + x), vector).cast::<R>());
                self.finish_column(place, &columns.collect::<Vec<_>>());
            }
        }
    }

    /// Neighbours in a row.
    #[track_caller]
    fn finish_row(&self, place: Place, sums: Vector<R>) {
        let all = whole(&place, 1, sums.len());
        let for_one = self.strips.for_one;
        let each: Vec<Val<bool>> = (0..sums.len() / for_one).map(|i| place.inside(i * for_one)).collect();
        let results = self.epilogue.borrow_mut().apply(place, sums, None);
        self.store_d(&place, all, &each, results);
    }

    /// Neighbours in a column; one vector of sums for each column that makes the one of D.
    #[track_caller]
    fn finish_column(&self, place: Place, columns: &[Vector<R>]) {
        let len = columns[0].len();
        let all = whole(&place, len, self.strips.for_one);
        let places: Vec<Place> = (0..len).map(|i| Place { row: place.row + i, ..place }).collect();
        let each: Vec<Val<bool>> = places.iter().map(|place| place.inside(0)).collect();
        let results = (0u32..).zip(places).map(|(i, place)| {
            let sums = Vector::new(columns.iter().map(|column| column.get(i)));
            self.epilogue.borrow_mut().apply(place, sums, None).get(0)
        });
        let results = Vector::new(results.collect::<Vec<_>>());
        self.store_d(&place, all, &each, results);
    }

    #[track_caller]
    fn store_d(&self, place: &Place, all: Val<bool>, each: &[Val<bool>], results: Vector<R>) {
        let at = self.d.at(place.batch, place.row, place.column / self.strips.for_one);
        with_element!(self.d.element(), T => store_narrowed::<T, R>(at.cast(), all, each, results));
    }
}

/// Whether so many rows and columns from a place on exist.
#[device]
fn whole(place: &Place, rows: u32, columns: u32) -> Val<bool> {
    match place.bounds {
        None => val(true),
        Some((m, n)) => (place.row + rows <= m) & (place.column + columns <= n),
    }
}

/// Neighbours in one access where all exist, else those that do.
#[device]
fn store_narrowed<T: LangElement, R: Number>(
    at: Global<T>,
    all: Val<bool>,
    each: &[Val<bool>],
    results: Vector<R>,
) {
    let results: Vector<T> = match T::ELEMENT {
        Element::I8 | Element::U8 => results.map(narrow::<R, T>),
        _ => results.cast(),
    };
    if results.len() == 1 {
        at.store_if(all, results.get(0));
    } else {
        if all {
            at.store_vector(results);
        } else {
            for (i, inside) in (0u32..).zip(each) {
                at.at(i).store_if(*inside, results.get(i));
            }
        }
    }
}

/// Elements of one access to shared memory.
fn widest<C: LangElement>(len: u32) -> u32 {
    len.min(16 / C::ELEMENT.bytes())
}

#[track_caller]
fn store_in_pieces<C: Number>(to: SharedPtr<C>, values: Vector<C>) {
    let each = widest::<C>(values.len());
    for first in (0..values.len()).step_by(each as usize) {
        to.at(first).store_vector(values.slice(first, each));
    }
}

#[track_caller]
fn load_in_pieces<C: Number>(from: SharedPtr<C>, len: u32) -> Vector<C> {
    let each = widest::<C>(len);
    Vector::concat((0..len).step_by(each as usize).map(|first| from.at(first).load_vector(each)))
}
