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
use crate::gemm::epilogue::{Lanes, Piece, Pieces, Place, Staged};
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
    /// Whether lanes take 32 bytes of sums. The halves of these then lie apart, all first ones and all second ones side by side, so that
    /// lanes read 16 bytes that are neighbours.
    halves: bool,
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
        let vector = plan.d_vector.min(pieces).min(along / if by_rows { for_one } else { 1 });
        let run = if by_rows { vector * for_one } else { vector };
        Strips {
            by_rows,
            lines,
            along,
            stride: along + padding,
            strips: all / lines,
            for_one,
            vector,
            halves: run == 8 && sum.bytes() == 4,
            rows,
            columns,
            sum,
        }
    }

    /// Rows and columns of a warp's product.
    fn extents(&self) -> (u32, u32) {
        let lines = self.lines * self.strips;
        if self.by_rows { (lines, self.along) } else { (self.along, lines) }
    }

    /// Strips of all warps, for a product with so many rows and columns.
    pub(super) fn pieces(&self, rows: u32, columns: u32) -> Pieces {
        let (down, across) = if self.by_rows { (self.lines, self.along) } else { (self.along, self.lines) };
        Pieces { down: rows / down, across: columns / across }
    }

    /// Bytes of shared memory for each warp.
    pub(super) fn bytes(&self) -> u32 {
        (self.lines * self.stride * self.sum.bytes()).next_multiple_of(16)
    }

    /// Strip of an element of the product, and where in the shared memory of a strip it lies.
    fn place(&self, row: u32, column: u32) -> (u32, u32) {
        let (line, along) = if self.by_rows { (row, column) } else { (column, row) };
        let along = match self.halves {
            true => along / 8 * 4 + along % 4 + along / 4 % 2 * self.second_half(),
            false => along,
        };
        (line / self.lines, line % self.lines * self.stride + along)
    }

    /// The same for the part of an element's place that depends on the lane. The parts can be added, since no bit is in both.
    #[track_caller]
    fn staged_place(&self, row: Val<u32>, column: Val<u32>) -> Val<u32> {
        let (line, along) = if self.by_rows { (row, column) } else { (column, row) };
        let along = match self.halves {
            true => along / 8 * 4 + along % 4 + along / 4 % 2 * self.second_half(),
            false => along,
        };
        line * self.stride + along
    }

    /// From the first halves of a line to the second ones: four elements apart, so that pairs of both fall on different banks.
    fn second_half(&self) -> u32 {
        self.along / 2 + 4
    }

    /// The sums of one lane that start at a multiple of their number.
    #[track_caller]
    fn load<C: Number>(&self, memory: SharedPtr<C>, line: Val<u32>, along: Val<u32>, run: u32) -> Vector<C> {
        let (row, column) = if self.by_rows { (line, along) } else { (along, line) };
        let from = memory.at(self.staged_place(row, column));
        if self.halves {
            Vector::concat([from.load_vector(4), from.at(self.second_half()).load_vector(4)])
        } else {
            load_in_pieces(from, run)
        }
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
    ///
    /// Twice in the code: for warps that lie inside of D, which ask no questions, and for those at its edges.
    #[device]
    pub(super) fn store<C: Number>(&self, sums: &[Vec<Fragment<C>>], corner: Place, memory: SharedPtr<C>) {
        let (rows, columns) = self.strips.extents();
        if whole(&corner, rows, columns) {
            self.store_strips(sums, Place { bounds: None, ..corner }, memory);
        } else {
            self.store_strips(sums, corner, memory);
        }
    }

    #[track_caller]
    fn store_strips<C: Number>(&self, sums: &[Vec<Fragment<C>>], corner: Place, memory: SharedPtr<C>) {
        self.epilogue.borrow_mut().begin();
        for strip in 0..self.strips.strips {
            if strip > 0 {
                warp_barrier();
            }
            self.put(sums, strip, memory);
            warp_barrier();
            self.take(corner, strip, memory);
        }
    }

    /// What the values of a strip make together.
    #[track_caller]
    fn finish(&self, corner: Place, strip: u32, spread: Spread) {
        let Strips { by_rows, lines, along, .. } = self.strips;
        // Neighbouring lanes share a line, as many as have a piece of it.
        let (same_line, other_line) = (spread.in_line.min(32) - 1, 32 - spread.in_line.min(32));
        let (lanes, piece) = if by_rows {
            let piece = (corner.row / lines + strip, corner.column / along);
            (Lanes { row: same_line, column: other_line }, piece)
        } else {
            let piece = (corner.row / along, corner.column / lines + strip);
            (Lanes { row: other_line, column: same_line }, piece)
        };
        let piece = Piece { batch: corner.batch, down: piece.0, across: piece.1 };
        self.epilogue.borrow_mut().finish(lanes, piece);
    }

    /// The sums of a strip, to shared memory.
    #[track_caller]
    fn put<C: Number>(&self, sums: &[Vec<Fragment<C>>], strip: u32, memory: SharedPtr<C>) {
        let strips = self.strips;
        let (group, quarter) = (lane_id() / 4, lane_id() % 4);
        // The steps of groups and quarters are the same for all products.
        let ((row_step, _), (column_step, _)) = (strips.rows.rows(0), strips.columns.rows(0));
        let mine = memory.at(strips.staged_place(group * row_step, quarter * (2 * column_step)));
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
                    let (of, place) = strips.place(row, column);
                    if of == strip {
                        store_in_pieces(mine.at(place), Vector::new(values.iter().copied()));
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
                let sums = strips.load(memory, down, x, run).cast::<R>();
                self.finish_row(place, sums);
            } else {
                let (first, x) = ((line + more_lines) * for_one, (piece + more_pieces) * vector);
                let place = Place {
                    row: corner.row + x,
                    column: corner.column + (strip * strips.lines) + first,
                    ..corner
                };
                let columns = (0..for_one).map(|c| strips.load(memory, first + c, x, vector).cast::<R>());
                self.finish_column(place, &columns.collect::<Vec<_>>());
            }
        }
        self.finish(corner, strip, spread);
    }

    /// Neighbours in a row.
    #[track_caller]
    fn finish_row(&self, place: Place, sums: Vector<R>) {
        let for_one = self.strips.for_one;
        let inside = place.bounds.map(|_| Inside {
            all: whole(&place, 1, sums.len()),
            each: (0..sums.len() / for_one).map(|i| place.inside(i * for_one)).collect(),
        });
        let results = self.epilogue.borrow_mut().apply(place, sums, None);
        self.store_run(&place, inside, results);
    }

    /// Neighbours in a column; one vector of sums for each column that makes the one of D.
    #[track_caller]
    fn finish_column(&self, place: Place, columns: &[Vector<R>]) {
        let len = columns[0].len();
        let places: Vec<Place> = (0..len).map(|i| Place { row: place.row + i, ..place }).collect();
        let inside = place.bounds.map(|_| Inside {
            all: whole(&place, len, self.strips.for_one),
            each: places.iter().map(|place| place.inside(0)).collect(),
        });
        let results = (0u32..).zip(places).map(|(i, place)| {
            let sums = Vector::new(columns.iter().map(|column| column.get(i)));
            self.epilogue.borrow_mut().apply(place, sums, None).get(0)
        });
        self.store_run(&place, inside, Vector::new(results.collect::<Vec<_>>()));
    }

    #[track_caller]
    fn store_run(&self, place: &Place, inside: Option<Inside>, results: Vector<R>) {
        let at = self.d.at(place.batch, place.row, place.column / self.strips.for_one);
        with_element!(self.d.element(), T => store_narrowed::<T, R>(at.cast(), inside, results));
    }
}

/// Which of some neighbours exist.
struct Inside {
    all: Val<bool>,
    each: Vec<Val<bool>>,
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
#[track_caller]
fn store_narrowed<T: LangElement, R: Number>(at: Global<T>, inside: Option<Inside>, results: Vector<R>) {
    let results: Vector<T> = match T::ELEMENT {
        Element::I8 | Element::U8 | Element::I32 => results.map(narrow::<R, T>),
        _ => results.cast(),
    };
    match inside {
        None => at.store_vector(results),
        Some(inside) if results.len() == 1 => at.store_if(inside.all, results.get(0)),
        Some(inside) => store_existing(at, &inside, results),
    }
}

#[device]
fn store_existing<T: LangElement>(at: Global<T>, inside: &Inside, results: Vector<T>) {
    if inside.all {
        at.store_vector(results);
    } else {
        for (i, exists) in (0u32..).zip(&inside.each) {
            at.at(i).store_if(*exists, results.get(i));
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
