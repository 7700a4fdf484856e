//! From sums to D: the epilogue, and the way of its results to global memory.
//!
//! A warpgroup takes its sums some columns at a time, so that few registers hold results. Where D allows it, they go through a small
//! buffer of shared memory in the layout that the copy engine reads; it clips what lies outside of D. Otherwise every thread stores its
//! own, element by element or two at a time, and looks where D ends.

use std::cell::RefCell;

use tilewright_hardware::{Element, TensorMapSpec};
use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Element as LangElement};

use super::plan::{BUFFERS, Output, Plan, SLAB, swizzle};
use super::schedule::{Corner, Numbers};
use crate::gemm::epilogue::{Lanes, Piece, Pieces, Place, Staged};
use crate::gemm::matrix::{GlobalMatrix, narrow, with_element};
use crate::gemm::problem::{Placement, Problem, Storage};
use crate::gemm::recipe::{Binding, MapBinding, Operand};

/// Some columns of 64 rows that go to D together.
#[derive(Clone, Copy)]
struct Chunk {
    /// Where its first element lies in D.
    corner: Corner,
    /// The warpgroup that has it.
    group: Val<u32>,
    /// Its number among those of a unit, and how many there are.
    number: u32,
    of: u32,
}

/// Some columns of a chunk, as many as are computed at a time.
struct Columns<R> {
    /// The first column in the chunk.
    first: u32,
    /// The results of neighbours in a row, and where the first of them lies.
    runs: Vec<(Place, Vector<R>)>,
    /// Which thread holds what.
    shape: Fragment<R>,
}

/// What stores results.
trait Sink<R> {
    /// Makes room for a chunk.
    fn begin(&self, chunk: Chunk);
    /// Takes a piece of it.
    fn put(&self, chunk: Chunk, columns: Columns<R>);
    /// Sends it on its way.
    fn end(&self, chunk: Chunk);
    /// Waits for everything that is under way.
    fn finish(&self);
}

/// The way from sums to D.
pub(super) struct Results<R> {
    epilogue: RefCell<Staged<R>>,
    sink: Box<dyn Sink<R>>,
    /// Rows and columns of the product.
    bounds: (Val<u32>, Val<u32>),
    /// Columns of a tile, of a chunk and of a piece.
    columns: u32,
    chunk: u32,
    piece: u32,
    /// Groups of 64 rows of a warpgroup.
    slabs: u32,
    reduces: bool,
}

/// Rows of a slab that a warp has.
const ROWS_OF_WARP: u32 = SLAB / 4;

impl<R: Number> Results<R> {
    /// Declares the parameters and the shared memory; at the start of a kernel.
    #[track_caller]
    pub(super) fn declare(plan: &Plan) -> Results<R> {
        let problem = &plan.problem;
        let sink: Box<dyn Sink<R>> = match plan.output {
            Output::Engine { columns } => {
                with_element!(problem.types.d, T => Box::new(Engine::<T>::declare(plan, columns)))
            }
            Output::Direct { pairs, .. } => Box::new(Direct {
                d: GlobalMatrix::declare("d", &problem.d, problem.types.d, problem.batching),
                element: problem.types.d,
                pairs,
                columns_for_one: problem.epilogue.columns_for_one(),
            }),
        };
        Results {
            epilogue: RefCell::new(problem.epilogue.stage(problem)),
            sink,
            bounds: (Argument::declare("m"), Argument::declare("n")),
            columns: plan.config.n,
            chunk: plan.output.columns(),
            piece: plan.piece(),
            slabs: plan.rows_of_group() / SLAB,
            reduces: problem.epilogue.reduces(),
        }
    }

    /// Into how many pieces warps divide the product, those of tiles beyond its end included.
    pub(super) fn pieces(plan: &Plan, numbers: &Numbers) -> Pieces {
        let (config, number) = (&plan.config, |n: u64| u32::try_from(n).unwrap_or(u32::MAX));
        let down = numbers.rows * u64::from(config.cluster.0 * config.m / ROWS_OF_WARP);
        let across = numbers.columns * u64::from(config.cluster.1 * config.n / plan.piece());
        Pieces { across: number(across), down: number(down) }
    }

    /// What the parameters get.
    pub(super) fn bindings(plan: &Plan) -> Vec<(String, Binding)> {
        let problem = &plan.problem;
        let mut bindings = problem.epilogue.bindings(problem);
        bindings.push(("m".to_owned(), Binding::U32(problem.m)));
        bindings.push(("n".to_owned(), Binding::U32(problem.n)));
        match plan.output {
            Output::Engine { .. } => {
                let map = matrix_map(Operand::D, &problem.d, problem.types.d, (problem.m, problem.n), {
                    (problem.batch > 1).then_some(problem.batch)
                });
                bindings.push(("d_map".to_owned(), Binding::Map(map)));
            }
            Output::Direct { .. } => {
                bindings.extend(GlobalMatrix::bindings("d", Operand::D, &problem.d));
            }
        }
        bindings
    }

    /// Brings the sums of a tile to D. By a warpgroup, number `group` of the block, whose rows start at the corner.
    /// `sums(slab, first, columns)` gives them piece by piece.
    #[track_caller]
    pub(super) fn write(
        &self,
        corner: Corner,
        group: Val<u32>,
        mut sums: impl FnMut(u32, u32, u32) -> Fragment<R>,
    ) {
        let across = self.columns / self.chunk;
        let of = self.slabs * across;
        let mut corner = corner;
        for number in 0..of {
            let (slab, left) = (number / across, number % across * self.chunk);
            if slab > 0 && left == 0 {
                // The same number, but the compiler must not know: it would keep everything that it has computed from it for the
                // columns of the last slab, and there are no registers for that.
                corner.column = broadcast(corner.column, 0);
            }
            let corner = Corner { row: corner.row + slab * SLAB, column: corner.column + left, ..corner };
            let chunk = Chunk { corner, group, number, of };
            self.sink.begin(chunk);
            for first in (0..self.chunk).step_by(self.piece as usize) {
                let shape = sums(slab, left + first, self.piece);
                let runs = self.apply(Corner { column: corner.column + first, ..corner }, shape);
                self.sink.put(chunk, Columns { first, runs, shape });
            }
            self.sink.end(chunk);
        }
    }

    /// The results of some columns, the first of which lies at the corner.
    #[track_caller]
    fn apply(&self, corner: Corner, sums: Fragment<R>) -> Vec<(Place, Vector<R>)> {
        let Corner { batch, row, column } = corner;
        let mut epilogue = self.epilogue.borrow_mut();
        epilogue.begin();
        let mut runs = Vec::new();
        sums.for_each_run_from((row, column), |row, column, sums| {
            let place = Place { batch, row, column, bounds: Some(self.bounds) };
            runs.push((place, epilogue.apply(place, sums, None)));
        });
        if self.reduces {
            let down = row / ROWS_OF_WARP + warp_id() % 4;
            epilogue.finish(Lanes::FRAGMENT, Piece { batch, across: column / self.piece, down });
        }
        runs
    }

    /// Waits for everything that is under way. By every warpgroup, at its end.
    pub(super) fn finish(&self) {
        self.sink.finish();
    }
}

/// A matrix as the copy engine sees it: contiguous index first.
pub(super) fn matrix_map(
    operand: Operand,
    placement: &Placement,
    element: Element,
    (rows, columns): (u32, u32),
    batch: Option<u32>,
) -> MapBinding {
    let (inner, outer) = match placement.storage {
        Storage::RowMajor => (columns, rows),
        Storage::ColumnMajor => (rows, columns),
    };
    let bytes = u64::from(element.bytes());
    let mut dims = vec![u64::from(inner), u64::from(outer)];
    let mut strides = vec![placement.leading * bytes];
    if let Some(batch) = batch {
        dims.push(u64::from(batch));
        strides.push(placement.batch_stride * bytes);
    }
    MapBinding { operand, offset: 0, dims, strides }
}

/// The copies that a tile takes, for a tensor with or without a dimension of members: where in the tile, and which coordinates.
#[track_caller]
pub(super) fn boxes<T: LangElement>(
    map: TensorMap<T>,
    tile: Shared<T>,
    (row, column): (Val<u32>, Val<u32>),
    member: Option<Val<u32>>,
) -> Vec<(SharedPtr<T>, Vec<Val<i32>>)> {
    let Ok(plan) = TensorMapSpec::for_tile(&tile.layout(), T::ELEMENT) else {
        // The language reports what is wrong with it.
        map.prefetch_tile(row, column, tile);
        return Vec::new();
    };
    let mut dims = plan.spec.box_dims().to_vec();
    dims.extend(member.map(|_| 1));
    if let Ok(spec) = TensorMapSpec::new(T::ELEMENT, &dims, plan.spec.swizzle()) {
        map.describe(&spec);
    }
    let origin = match plan.major {
        Major::K => [column, row],
        Major::Mn => [row, column],
    };
    let further = |start: Val<u32>, offset: u32| if offset == 0 { start } else { start + offset };
    let one = |part: &tilewright_hardware::TileBox| {
        let at = if part.offset == 0 { tile.ptr() } else { tile.ptr().byte_add(part.offset) };
        let [x, y] = part.coordinates;
        let mut coordinates = vec![further(origin[0], x), further(origin[1], y)];
        coordinates.extend(member);
        (at, coordinates.into_iter().map(Coordinate::coordinate).collect())
    };
    plan.boxes.iter().map(one).collect()
}

/// Results by the copy engine.
struct Engine<T> {
    map: TensorMap<T>,
    staging: Ring<T>,
    storage: Storage,
    batched: bool,
}

impl<T: LangElement> Engine<T> {
    #[track_caller]
    fn declare(plan: &Plan, columns: u32) -> Engine<T> {
        let problem: &Problem = &plan.problem;
        let width =
            |extent: u32| swizzle((extent * T::ELEMENT.bytes()).min(128)).unwrap_or(SwizzleMode::None);
        let staging = match problem.d.storage {
            Storage::RowMajor => k_major::<T>(SLAB, columns, width(columns)),
            Storage::ColumnMajor => mn_major::<T>(SLAB, columns, width(SLAB)),
        };
        let map: TensorMap<T> = Argument::declare("d_map");
        Engine {
            map,
            staging: Ring::new(BUFFERS * plan.config.consumers, staging),
            storage: problem.d.storage,
            batched: problem.batch > 1,
        }
    }

    /// The buffer of a chunk.
    #[track_caller]
    fn tile(&self, chunk: Chunk) -> Shared<T> {
        self.staging.at(chunk.group * BUFFERS + chunk.number % BUFFERS)
    }
}

/// Converts results, several at once where there are instructions for that.
#[track_caller]
fn narrowed<R: Number, T: LangElement>(results: Vector<R>) -> Vector<T> {
    if T::ELEMENT.is_int() { results.map(narrow::<R, T>) } else { results.cast() }
}

/// The threads of a warpgroup.
#[track_caller]
fn together(chunk: Chunk) -> NamedBarrier {
    NamedBarrier::new(chunk.group + 1, 128)
}

impl<R: Number, T: LangElement> Sink<R> for Engine<T> {
    #[device]
    fn begin(&self, chunk: Chunk) {
        // The buffer was last used so many copies ago; those after it may be under way. Every unit starts with the first buffer.
        let in_turn = chunk.number > 0 || chunk.of.is_multiple_of(BUFFERS);
        if thread_id(0) % 128 == 0 {
            bulk_wait_read(if in_turn { BUFFERS - 1 } else { 0 });
        }
        together(chunk).wait();
    }

    #[track_caller]
    fn put(&self, chunk: Chunk, columns: Columns<R>) {
        let tile = self.tile(chunk);
        if T::ELEMENT.bits() == 16 {
            let results = Vector::concat(columns.runs.iter().map(|&(_, results)| results));
            columns.shape.with_values(results).cast::<T>().store_matrix_at(tile, 0, columns.first);
            return;
        }
        let mut runs = columns.runs.into_iter();
        columns.shape.for_each_run_from((val(0), val(columns.first)), |row, column, _| {
            let Some((_, results)) = runs.next() else { return };
            let results = narrowed::<R, T>(results);
            match self.storage {
                Storage::RowMajor => tile.at((row, column)).store_vector(results),
                Storage::ColumnMajor => {
                    for i in 0..results.len() {
                        tile.at((row, column + i)).store(results.get(i));
                    }
                }
            }
        });
    }

    #[device]
    fn end(&self, chunk: Chunk) {
        // The copy engine must see what the threads stored.
        fence_async();
        together(chunk).wait();
        let Corner { batch, row, column } = chunk.corner;
        if thread_id(0) % 128 == 0 {
            let member = self.batched.then_some(batch);
            for (from, coordinates) in boxes(self.map, self.tile(chunk), (row, column), member) {
                self.map.store_box(from, &coordinates, None);
            }
            bulk_commit();
        }
    }

    #[device]
    fn finish(&self) {
        if thread_id(0) % 128 == 0 {
            bulk_wait(0);
        }
    }
}

/// Results by ordinary stores.
struct Direct {
    d: GlobalMatrix,
    element: Element,
    pairs: bool,
    columns_for_one: u32,
}

impl Direct {
    /// Stores a run, as far as it lies in D.
    #[track_caller]
    fn store<T: LangElement>(&self, place: &Place, results: Vector<T>) {
        let at = |further: u32| self.d.at(place.batch, place.row, place.column + further).cast::<T>();
        if self.pairs {
            at(0).store_vector_if(place.inside(0), results);
            return;
        }
        for i in 0..results.len() {
            at(i).store_if(place.inside(i), results.get(i));
        }
    }
}

impl<R: Number> Sink<R> for Direct {
    fn begin(&self, _chunk: Chunk) {}

    #[track_caller]
    fn put(&self, _chunk: Chunk, columns: Columns<R>) {
        for (place, results) in columns.runs {
            let place = match self.columns_for_one {
                1 => place,
                several => Place {
                    column: place.column / several,
                    bounds: place.bounds.map(|(rows, columns)| (rows, columns / several)),
                    ..place
                },
            };
            with_element!(self.element, T => self.store(&place, narrowed::<R, T>(results)));
        }
    }

    fn end(&self, _chunk: Chunk) {}

    fn finish(&self) {}
}
