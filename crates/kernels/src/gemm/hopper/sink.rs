//! How results get to global memory.
//!
//! [`Staging`]: through small tiles of shared memory, two for each warpgroup, in the layout that the copy engine reads. The engine copies
//! them, and clips what lies outside of D; or, where D does not suit it, the threads do, whole lines of the tile at a time. Elements
//! of C can come the same way: the engine fills a tile with them, and results take their places.
//!
//! [`Direct`]: every thread stores the elements that it holds. For what no tile can be made for.

use tilewright_hardware::Element;
use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Element as LangElement};

use super::plan::{BUFFERS, Carrier, Plan, SLAB, THREADS, swizzle};
use super::result::{Chunk, Columns, Sink, boxes};
use super::schedule::Corner;
use crate::gemm::epilogue::Place;
use crate::gemm::matrix::{GlobalMatrix, narrow, with_element};
use crate::gemm::problem::{Problem, Storage};

/// Results through shared memory.
pub(super) struct Staging<T> {
    tiles: Ring<T>,
    storage: Storage,
    /// Columns of the product that make one of D.
    merged: u32,
    way: Way<T>,
    c: Option<Incoming<T>>,
    batched: bool,
}

/// From a tile to D.
enum Way<T> {
    Engine(TensorMap<T>),
    Threads {
        d: GlobalMatrix,
        vector: u32,
        /// Rows and columns of D.
        bounds: (Val<u32>, Val<u32>),
        /// Columns of a tile.
        columns: u32,
    },
}

/// From C to a tile.
#[derive(Clone, Copy)]
struct Incoming<T> {
    map: TensorMap<T>,
    /// One barrier object for each tile: its elements of C are there.
    arrived: Mbarrier,
}

impl<T: LangElement> Staging<T> {
    #[device]
    pub(super) fn declare(
        plan: &Plan,
        columns: u32,
        by: Carrier,
        c: bool,
        bounds: (Val<u32>, Val<u32>),
    ) -> Staging<T> {
        let problem: &Problem = &plan.problem;
        let merged = problem.epilogue.columns_for_one();
        let columns = columns / merged;
        let width =
            |extent: u32| swizzle((extent * T::ELEMENT.bytes()).min(128)).unwrap_or(SwizzleMode::None);
        let tile = match problem.d.storage {
            Storage::RowMajor => k_major::<T>(SLAB, columns, width(columns)),
            Storage::ColumnMajor => mn_major::<T>(SLAB, columns, width(SLAB)),
        };
        let tiles = Ring::new(BUFFERS * plan.config.consumers, tile);
        let way = match by {
            Carrier::Engine => Way::Engine(Argument::declare("d_map")),
            Carrier::Threads { vector } => Way::Threads {
                d: GlobalMatrix::declare("d", &problem.d, problem.types.d, problem.batching),
                vector,
                bounds: (bounds.0, bounds.1 / merged),
                columns,
            },
        };
        let c = c.then(|| Incoming {
            map: Argument::declare("c_map"),
            arrived: Mbarrier::array(tiles.stages(), "c"),
        });
        if let Some(c) = c {
            if thread_id(0) == 0 {
                for i in 0..tiles.stages() {
                    c.arrived.at(i).init(1);
                }
                fence_barrier_init();
            }
        }
        Staging { tiles, storage: problem.d.storage, merged, way, c, batched: problem.batch > 1 }
    }

    /// The number of a chunk's tile.
    #[track_caller]
    fn index(chunk: Chunk) -> Val<u32> {
        chunk.group * BUFFERS + chunk.number % BUFFERS
    }

    /// The tile of a chunk.
    #[track_caller]
    fn tile(&self, chunk: Chunk) -> Shared<T> {
        self.tiles.at(Self::index(chunk))
    }

    /// Where a chunk lies in D.
    #[track_caller]
    fn place(&self, chunk: Chunk) -> (Val<u32>, Val<u32>) {
        let Corner { row, column, .. } = chunk.corner;
        (row, if self.merged == 1 { column } else { column / self.merged })
    }

    /// In which member of the batch, if there are several.
    fn member(&self, chunk: Chunk) -> Option<Val<u32>> {
        self.batched.then_some(chunk.corner.batch)
    }

    /// Starts to fill a tile with elements of C. By one thread.
    #[track_caller]
    fn send_for(&self, c: Incoming<T>, chunk: Chunk) {
        let tile = self.tile(chunk);
        let arrived = c.arrived.at(Self::index(chunk));
        arrived.arrive_and_expect(tile.bytes());
        for (to, coordinates) in boxes(c.map, tile, self.place(chunk), self.member(chunk)) {
            c.map.load_box(to, arrived, &coordinates, CopyOptions::new());
        }
    }

    /// Copies a tile to D, by all threads of a warpgroup: neighbours take neighbouring elements of a line.
    #[device]
    fn carry(&self, chunk: Chunk, d: GlobalMatrix, vector: u32, bounds: (Val<u32>, Val<u32>), columns: u32) {
        // Lengths of lines are powers of two.
        let (lines, length) = match self.storage {
            Storage::RowMajor => (SLAB, columns),
            Storage::ColumnMajor => (columns, SLAB),
        };
        let (tile, (top, left)) = (self.tile(chunk), self.place(chunk));
        let (in_line, thread) = (length / vector, thread_id(0) % THREADS);
        let (at_once, along) = (THREADS / in_line, thread % in_line * vector);
        let none = Vector::<T>::splat(val(0.0f32).cast::<T>(), vector);
        // A loop of the kernel, since written out it would keep too many addresses.
        for step in (thread / in_line..val(lines)).step_by(at_once * UNROLLED) {
            for i in unroll(0..UNROLLED) {
                let line = step + i * at_once;
                let (row, column) = match self.storage {
                    Storage::RowMajor => (line, along),
                    Storage::ColumnMajor => (along, line),
                };
                let place = Place {
                    batch: chunk.corner.batch,
                    row: top + row,
                    column: left + column,
                    bounds: Some(bounds),
                };
                let inside = (line < lines) & place.inside(0);
                let elements = tile.at((row, column)).load_vector_if(inside, none);
                d.at(place.batch, place.row, place.column).cast::<T>().store_vector_if(inside, elements);
            }
        }
    }
}

/// Accesses of a thread that are under way at the same time.
const UNROLLED: u32 = 4;

/// The threads of a warpgroup.
#[track_caller]
fn together(chunk: Chunk) -> NamedBarrier {
    NamedBarrier::new(chunk.group + 1, THREADS)
}

/// Converts results, several at once where there are instructions for that.
#[track_caller]
fn narrowed<R: Number, T: LangElement>(results: Vector<R>) -> Vector<T> {
    if T::ELEMENT.is_int() { results.map(narrow::<R, T>) } else { results.cast() }
}

impl<R: Number, T: LangElement> Sink<R> for Staging<T> {
    #[device]
    fn prepare(&self, chunks: &[Chunk]) {
        if let Some(c) = self.c {
            if thread_id(0) % THREADS == 0 {
                bulk_wait_read(0);
                for chunk in chunks {
                    self.send_for(c, *chunk);
                }
            }
        }
    }

    #[device]
    fn begin(&self, chunk: Chunk) {
        // Every unit starts with the first tile, which the last unit may have used last.
        let in_turn = chunk.number > 0 || chunk.of.is_multiple_of(BUFFERS);
        match (self.c, &self.way) {
            (Some(c), _) => {
                // How often this tile has been filled before.
                let in_unit = (chunk.of - chunk.number % BUFFERS).div_ceil(BUFFERS);
                let fills = chunk.round * in_unit + chunk.number / BUFFERS;
                c.arrived.at(Self::index(chunk)).wait(fills & 1);
            }
            (None, Way::Engine(_)) => {
                // The engine may still be reading the other tile.
                if thread_id(0) % THREADS == 0 {
                    bulk_wait_read(if in_turn { BUFFERS - 1 } else { 0 });
                }
                together(chunk).wait();
            }
            // The barrier before the last tile was copied says that the one before it has been.
            (None, Way::Threads { .. }) => {
                if !in_turn {
                    together(chunk).wait();
                }
            }
        }
    }

    #[track_caller]
    fn c(&self, chunk: Chunk, first: u32, shape: Fragment<R>) -> Option<Vector<R>> {
        self.c?;
        let tile = self.tile(chunk);
        let elements = if T::ELEMENT.bits() == 16 {
            shape.load_matrix_at(tile, 0, first).values()
        } else {
            let mut elements: Vec<Vector<T>> = Vec::new();
            shape.for_each_run_from((val(0), val(first)), |row, column, run| {
                elements.push(match self.storage {
                    Storage::RowMajor => tile.at((row, column)).load_vector(run.len()),
                    Storage::ColumnMajor => {
                        Vector::new((0..run.len()).map(|i| tile.at((row, column + i)).load()))
                    }
                });
            });
            Vector::concat(elements)
        };
        // Other lanes of the warp will store where this one has read.
        warp_barrier();
        Some(elements.cast())
    }

    #[track_caller]
    fn put(&self, chunk: Chunk, columns: Columns<R>) {
        let tile = self.tile(chunk);
        if T::ELEMENT.bits() == 16 && self.merged == 1 {
            let results = Vector::concat(columns.runs.iter().map(|&(_, results)| results));
            columns.shape.with_values(results).cast::<T>().store_matrix_at(tile, 0, columns.first);
            return;
        }
        let mut runs = columns.runs.into_iter();
        columns.shape.for_each_run_from((val(0), val(columns.first)), |row, column, _| {
            let Some((_, results)) = runs.next() else { return };
            let results = narrowed::<R, T>(results);
            let column = if self.merged == 1 { column } else { column / self.merged };
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
    fn end(&self, chunk: Chunk, later: Option<Chunk>) {
        match &self.way {
            Way::Engine(map) => {
                // The copy engine must see what the threads stored.
                fence_async();
                together(chunk).wait();
                let (place, member) = (self.place(chunk), self.member(chunk));
                if thread_id(0) % THREADS == 0 {
                    for (from, coordinates) in boxes(*map, self.tile(chunk), place, member) {
                        map.store_box(from, &coordinates, None);
                    }
                    bulk_commit();
                    if let (Some(c), Some(later)) = (self.c, later) {
                        // As soon as this tile has been read it can take the next elements of C.
                        bulk_wait_read(0);
                        self.send_for(c, later);
                    }
                }
            }
            Way::Threads { d, vector, bounds, columns } => {
                together(chunk).wait();
                self.carry(chunk, *d, *vector, *bounds, *columns);
            }
        }
    }

    #[device]
    fn finish(&self) {
        if let Way::Engine(_) = self.way {
            if thread_id(0) % THREADS == 0 {
                // The end of the kernel waits for D; until then only the memory that it is copied from must stay.
                bulk_wait_read(0);
            }
        }
    }
}

/// Results by the threads that hold them.
pub(super) struct Direct {
    d: GlobalMatrix,
    element: Element,
    merged: u32,
}

impl Direct {
    #[track_caller]
    pub(super) fn declare(problem: &Problem) -> Direct {
        Direct {
            d: GlobalMatrix::declare("d", &problem.d, problem.types.d, problem.batching),
            element: problem.types.d,
            merged: problem.epilogue.columns_for_one(),
        }
    }

    /// Stores a run, as far as it lies in D. Converted together: conversions of single sums would keep the assembler from letting
    /// multiplications overlap.
    #[track_caller]
    fn store<T: LangElement>(&self, place: &Place, results: Vector<T>) {
        for i in 0..results.len() {
            let at = self.d.at(place.batch, place.row, place.column + i);
            at.cast::<T>().store_if(place.inside(i), results.get(i));
        }
    }
}

impl<R: Number> Sink<R> for Direct {
    fn prepare(&self, _chunks: &[Chunk]) {}

    fn begin(&self, _chunk: Chunk) {}

    fn c(&self, _chunk: Chunk, _first: u32, _shape: Fragment<R>) -> Option<Vector<R>> {
        None
    }

    #[track_caller]
    fn put(&self, _chunk: Chunk, columns: Columns<R>) {
        for (place, results) in columns.runs {
            let place = match self.merged {
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

    fn end(&self, _chunk: Chunk, _later: Option<Chunk>) {}

    fn finish(&self) {}
}
