//! From sums to D: the epilogue, applied to some columns at a time so that few registers hold results.
//!
//! [`Sink`] is what happens to the results; `sink.rs` has those that there are.

use std::cell::RefCell;

use tilewright_hardware::{Element, TensorMapSpec};
use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Element as LangElement};

use super::plan::{BUFFERS, Carrier, Output, Plan, SLAB};
use super::schedule::{Corner, Numbers};
use super::sink::{Direct, Staging};
use crate::gemm::epilogue::{Lanes, Piece, Pieces, Place, Staged};
use crate::gemm::matrix::{GlobalMatrix, with_element};
use crate::gemm::problem::{Placement, Storage};
use crate::gemm::recipe::{Binding, MapBinding, Operand};

/// Some columns of 64 rows that go to D together.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// Where its first element lies in the product.
    pub(super) corner: Corner,
    /// The warpgroup that has it.
    pub(super) group: Val<u32>,
    /// How many units the warpgroup has brought to D.
    pub(super) round: Val<u32>,
    /// Its number among those of a unit, and how many there are.
    pub(super) number: u32,
    pub(super) of: u32,
}

/// Some columns of a chunk, as many as are computed at a time.
pub(super) struct Columns<R> {
    /// The first column in the chunk.
    pub(super) first: u32,
    /// The results of neighbours in a row, and where the first of them lies.
    pub(super) runs: Vec<(Place, Vector<R>)>,
    /// Which thread holds what.
    pub(super) shape: Fragment<R>,
}

/// What stores results.
pub(super) trait Sink<R> {
    /// Sends for what the first chunks of a unit need, long before they begin.
    fn prepare(&self, chunks: &[Chunk]);
    /// Makes room for a chunk.
    fn begin(&self, chunk: Chunk);
    /// The elements of C for some columns, in the places of a fragment, if they have been sent for.
    fn c(&self, chunk: Chunk, first: u32, shape: Fragment<R>) -> Option<Vector<R>>;
    /// Takes some columns of it.
    fn put(&self, chunk: Chunk, columns: Columns<R>);
    /// Sends it on its way, and for what a later one needs.
    fn end(&self, chunk: Chunk, later: Option<Chunk>);
    /// Waits for everything that is under way.
    fn finish(&self);
}

/// The way from sums to D.
pub(super) struct Results<R> {
    epilogue: RefCell<Staged<R>>,
    sink: Box<dyn Sink<R>>,
    /// Rows and columns of the product.
    bounds: (Val<u32>, Val<u32>),
    /// Columns of a tile, of a chunk and of what is computed at a time.
    columns: u32,
    chunk: u32,
    piece: u32,
    /// Groups of 64 rows of a warpgroup.
    slabs: u32,
    reduces: bool,
    stages_c: bool,
}

/// Rows of a slab that a warp has.
const ROWS_OF_WARP: u32 = SLAB / 4;

impl<R: Number> Results<R> {
    /// Declares the parameters and the shared memory; at the start of a kernel, before its first barrier.
    #[track_caller]
    pub(super) fn declare(plan: &Plan) -> Results<R> {
        let problem = &plan.problem;
        let bounds = (Argument::declare("m"), Argument::declare("n"));
        let sink: Box<dyn Sink<R>> = match plan.output {
            Output::Staged { columns, by, c } => {
                with_element!(problem.types.d, T => Box::new(Staging::<T>::declare(plan, columns, by, c, bounds)))
            }
            Output::Direct { .. } => Box::new(Direct::declare(problem)),
        };
        Results {
            epilogue: RefCell::new(problem.epilogue.stage(problem)),
            sink,
            bounds,
            columns: plan.config.columns_of_block(),
            chunk: plan.output.columns(),
            piece: plan.piece(),
            slabs: plan.rows_of_group() / SLAB,
            reduces: problem.epilogue.reduces(),
            stages_c: plan.output.stages_c(),
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
        bindings.extend(GlobalMatrix::bindings("d", Operand::D, &problem.d));
        let extents = (problem.m, problem.n / problem.epilogue.columns_for_one());
        let batch = (problem.batch > 1).then_some(problem.batch);
        let element = problem.types.d;
        if let Output::Staged { by: Carrier::Engine, c, .. } = plan.output {
            let map = matrix_map(Operand::D, &problem.d, element, extents, batch);
            bindings.push(("d_map".to_owned(), Binding::Map(map)));
            if c {
                let map = matrix_map(Operand::C, &problem.c, element, extents, batch);
                bindings.push(("c_map".to_owned(), Binding::Map(map)));
            }
        }
        bindings
    }

    /// Chunks of a unit.
    fn chunk_count(&self) -> u32 {
        self.slabs * self.columns / self.chunk
    }

    /// One of them.
    #[track_caller]
    fn chunk(&self, number: u32, corner: Corner, (group, round): (Val<u32>, Val<u32>)) -> Chunk {
        let (slab, left) = self.within(number);
        let (row, column) = (corner.row + slab * SLAB, corner.column + left);
        Chunk { corner: Corner { row, column, ..corner }, group, round, number, of: self.chunk_count() }
    }

    /// The slab of a chunk, and its first column in the tile.
    fn within(&self, number: u32) -> (u32, u32) {
        let across = self.columns / self.chunk;
        (number / across, number % across * self.chunk)
    }

    /// Sends for what results need besides sums. By a warpgroup, before it multiplies.
    #[track_caller]
    pub(super) fn prepare(&self, corner: Corner, who: (Val<u32>, Val<u32>)) {
        if self.stages_c {
            let first = (0..self.chunk_count().min(BUFFERS)).map(|number| self.chunk(number, corner, who));
            self.sink.prepare(&first.collect::<Vec<_>>());
        }
    }

    /// Brings the sums of a tile to D. By a warpgroup whose rows start at the corner; `who` is its number in the block, and how many
    /// units it has brought before. `sums(slab, first, columns)` gives them piece by piece.
    #[track_caller]
    pub(super) fn write(
        &self,
        corner: Corner,
        who: (Val<u32>, Val<u32>),
        sums: &mut dyn FnMut(u32, u32, u32) -> Fragment<R>,
    ) {
        let mut corner = corner;
        for number in 0..self.chunk_count() {
            let (slab, left) = self.within(number);
            if slab > 0 && left == 0 {
                // The same number, but the compiler must not know: it would keep everything that it has computed from it for the
                // columns of the last slab, and there are no registers for that.
                corner.column = broadcast(corner.column, 0);
            }
            let chunk = self.chunk(number, corner, who);
            self.sink.begin(chunk);
            for first in (0..self.chunk).step_by(self.piece as usize) {
                let shape = sums(slab, left + first, self.piece);
                let c = self.sink.c(chunk, first, shape);
                let column = if first == 0 { chunk.corner.column } else { chunk.corner.column + first };
                let runs = self.apply(Corner { column, ..chunk.corner }, shape, c);
                self.sink.put(chunk, Columns { first, runs, shape });
            }
            let later = number + BUFFERS;
            let wanted = self.stages_c && later < self.chunk_count();
            self.sink.end(chunk, wanted.then(|| self.chunk(later, corner, who)));
        }
    }

    /// The results of some columns, the first of which lies at the corner.
    #[track_caller]
    fn apply(&self, corner: Corner, sums: Fragment<R>, c: Option<Vector<R>>) -> Vec<(Place, Vector<R>)> {
        let Corner { batch, row, column } = corner;
        let mut epilogue = self.epilogue.borrow_mut();
        epilogue.begin();
        let mut runs = Vec::new();
        let mut start = 0;
        sums.for_each_run_from((row, column), |row, column, sums| {
            let place = Place { batch, row, column, bounds: Some(self.bounds) };
            let c = c.map(|c| c.slice(start, sums.len()));
            start += sums.len();
            runs.push((place, epilogue.apply(place, sums, c)));
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
    MapBinding { operand, offset: 0, dims, strides, shortened: None }
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
