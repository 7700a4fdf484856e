//! Copies of factors that a faster kernel can read: k contiguous, every row at a multiple of 16 bytes.
//!
//! Tensor cores of Hopper read 8-bit and 32-bit elements with k contiguous only, and the copy engine addresses rows at multiples of 16
//! bytes only. Where a large product has a factor that lies otherwise, one pass over that factor is cheap.
//!
//! Contract: any storage, leading dimension, alignment and batch; elements of 1, 2, 4 or 8 bytes, which are moved and never looked at.
//! Rows of the copy are padded with zeros. Reads are as wide as the source allows, writes are 16 bytes.

use std::sync::Arc;

use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Element as LangElement, Error};

use super::factor::{Factor, Side, load_pieces};
use super::problem::{Batching, Placement, Problem};
use super::recipe::{Binding, KernelSource, Launch, Operand};
use super::result::below;

/// A copy of a factor in the workspace.
#[derive(Clone, Debug)]
pub struct Repacked {
    /// Which factor it replaces.
    pub side: Side,
    /// Makes the copy. None if the factor has no elements.
    pub launch: Option<Launch>,
    /// How the copy lies in memory.
    pub placement: Placement,
    /// Where the kernel that reads the copy finds it in the workspace: its first element, or, in a batch of pointers, their list.
    pub offset: u64,
    /// Bytes of the workspace that it takes, from the offset that it was given on.
    pub bytes: u64,
}

impl Repacked {
    /// The problem that is left when the copy has taken the place of the factor.
    #[must_use]
    pub fn replace(&self, problem: &Problem) -> Problem {
        let mut problem = problem.clone();
        match self.side {
            Side::A => problem.a = self.placement,
            Side::B => problem.b = self.placement,
        }
        problem
    }

    /// A launch for that problem, reading the copy instead of the factor.
    #[must_use]
    pub fn redirect(&self, mut launch: Launch) -> Launch {
        let factor = self.side.operand();
        for (_, binding) in &mut launch.bindings {
            match binding {
                Binding::Pointer(operand, offset) if *operand == factor => {
                    (*operand, *offset) = (Operand::Workspace, *offset + self.offset);
                }
                Binding::Map(map) if map.operand == factor => {
                    (map.operand, map.offset) = (Operand::Workspace, map.offset + self.offset);
                }
                _ => {}
            }
        }
        launch
    }
}

/// Threads of a block, and the 16-byte pieces that each moves.
const THREADS: u32 = 256;
const PIECES: u32 = 4;
/// Rows and pieces of a tile whose rows are copied as they are.
const STRAIGHT: (u32, u32) = (THREADS * PIECES / 32, 32);
/// Steps of k of a tile that is transposed. Its rows fill 128 bytes: all banks of shared memory.
const DEPTH: u32 = 128;

/// A copy of a factor at `offset` bytes into the workspace, which is rounded up to a multiple of 256.
///
/// ```
/// use tilewright_hardware::Element;
/// use tilewright_kernels::gemm::{Problem, Side, Storage, Types, repack};
///
/// let mut problem = Problem::new(100, 80, 77, Types::of(Element::E4M3));
/// problem.b.storage = Storage::RowMajor;
/// problem.b.leading = 81;
/// let copy = repack(&problem, Side::B, 0);
/// assert_eq!((copy.placement.storage, copy.placement.leading), (Storage::ColumnMajor, 80));
/// assert_eq!(copy.bytes, 80 * 80);
/// ```
#[must_use]
pub fn repack(problem: &Problem, side: Side, offset: u64) -> Repacked {
    let (element, source) = (side.element(problem), *side.placement(problem));
    let (rows, k) = (side.rows(problem), problem.k);
    let piece = 16 / element.bytes();
    let leading = u64::from(k).next_multiple_of(u64::from(piece)).max(u64::from(piece));
    // A factor that all members of a batch share is copied once.
    let shared = problem.batching == Batching::Strided && source.batch_stride == 0;
    let members = if shared { 1 } else { problem.batch };
    let size = u64::from(rows) * leading;
    let placement = Placement {
        storage: side.k_major(),
        leading,
        batch_stride: if shared { 0 } else { size },
        alignment: 256,
    };
    let start = offset.next_multiple_of(256);
    let list = match problem.batching {
        Batching::Strided => 0,
        Batching::Pointers => (u64::from(members) * 8).next_multiple_of(256),
    };
    let data = start + list;
    let bytes = data + u64::from(members) * size * u64::from(element.bytes()) - offset;

    let straight = side.is_k_major(problem);
    let (tile_rows, tile_k) =
        if straight { (STRAIGHT.0, STRAIGHT.1 * piece) } else { (128 / element.bytes(), DEPTH) };
    let tiles_k = u64_to_u32(leading.div_ceil(u64::from(tile_k)));
    let tiles_rows = rows.div_ceil(tile_rows);
    let mut bindings = vec![
        ("rows".to_owned(), Binding::U32(rows)),
        ("k".to_owned(), Binding::U32(k)),
        ("tiles_rows".to_owned(), Binding::U32(tiles_rows)),
        ("tiles_k".to_owned(), Binding::U32(tiles_k)),
        ("to".to_owned(), Binding::Pointer(Operand::Workspace, data)),
        ("to_leading".to_owned(), Binding::U64(leading)),
        ("list".to_owned(), Binding::Pointer(Operand::Workspace, start)),
    ];
    bindings.extend(side.bindings(problem));
    let width = side.width(problem);
    let key = format!(
        "repack {side} {} bytes {} w{width} {:?}",
        element.bytes(),
        if straight { "straight" } else { "transposed" },
        problem.batching
    );
    let staged = problem.clone();
    let stage = Arc::new(move || match element.bytes() {
        1 => stage::<u8>(&staged, side),
        2 => stage::<u16>(&staged, side),
        4 => stage::<u32>(&staged, side),
        _ => stage::<u64>(&staged, side),
    });
    let launch = (members > 0 && size > 0).then(|| {
        let blocks = tiles_k.saturating_mul(tiles_rows).saturating_mul(members);
        Launch::new(KernelSource { key, stage }, [blocks, 1, 1], bindings)
    });
    Repacked { side, launch, placement, offset: start, bytes }
}

fn u64_to_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn stage<T: Number>(problem: &Problem, side: Side) -> Result<Kernel, Error> {
    if side.is_k_major(problem) {
        repack_straight::stage::<T>(problem.clone(), side)
    } else {
        repack_transposed::stage::<T>(problem.clone(), side)
    }
}

/// Where a block works, and the matrix that it writes.
#[derive(Clone, Copy, Debug)]
struct Work<T> {
    /// First row and first step of k of the tile.
    top: Val<u32>,
    start: Val<u32>,
    from: Factor<T>,
    to: Global<T>,
    to_leading: Val<u64>,
}

impl<T: LangElement> Work<T> {
    /// Declares the parameters, takes the block's tile, and in a batch of pointers lists where the copies are.
    #[track_caller]
    fn declare(problem: &Problem, side: Side, (tile_rows, tile_k): (u32, u32), rows: Val<u32>) -> Work<T> {
        let (tiles_rows, tiles_k): (Val<u32>, Val<u32>) =
            (Argument::declare("tiles_rows"), Argument::declare("tiles_k"));
        let to: Global<T> = Argument::declare("to");
        let to_leading: Val<u64> = Argument::declare("to_leading");
        let tile = block_id(0);
        let (tile_of_k, rest) = (tile % tiles_k, tile / tiles_k);
        let (tile_of_rows, batch) = (rest % tiles_rows, rest / tiles_rows);
        let to = to.at(batch.cast::<u64>() * (rows.cast::<u64>() * to_leading));
        if problem.batching == Batching::Pointers {
            let list: Global<u64> = Argument::declare("list");
            announce(list.at(batch), to.address(), tile_of_k + tile_of_rows);
        }
        Work {
            top: tile_of_rows * tile_rows,
            start: tile_of_k * tile_k,
            from: Factor::declare(side, problem, batch),
            to,
            to_leading,
        }
    }

    /// Stores a piece of a row of the copy, unless it lies outside.
    #[track_caller]
    fn store(&self, row: Val<u32>, k: Val<u32>, rows: Val<u32>, piece: Vector<T>) {
        let inside = below((row, k), (rows, self.to_leading.cast()));
        let at = self.to.at(row.cast::<u64>() * self.to_leading + k.cast::<u64>());
        at.store_vector_if(inside, piece);
    }
}

/// One thread of the first tile of a member says where the member's copy is.
#[device]
fn announce(entry: Global<u64>, address: Val<u64>, tile: Val<u32>) {
    if tile + thread_id(0) == 0 {
        entry.store(address);
    }
}

/// Copies rows whose elements lie side by side along k.
#[kernel(threads = THREADS)]
fn repack_straight<T: Number>(rows: Val<u32>, k: Val<u32>, problem: Problem, side: Side) {
    overlap_grids();
    let piece = 16 / T::ELEMENT.bytes();
    let width = side.width(&problem);
    let work = Work::<T>::declare(&problem, side, (STRAIGHT.0, STRAIGHT.1 * piece), rows);
    let column = work.start + thread_id(0) % 32 * piece;
    let row = |i: u32| work.top + thread_id(0) / 32 + i * (THREADS / 32);

    let load = |i: u32| {
        let from = work.from.at(row(i), column);
        load_pieces(from, piece, width, |j| below((row(i), column + j), (rows, k)))
    };
    let pieces: Vec<Vector<T>> = (0..PIECES).map(load).collect();
    for (i, piece) in (0..PIECES).zip(pieces) {
        work.store(row(i), column, rows, piece);
    }
}

/// Copies a factor whose elements lie side by side along the rows: reads along the rows, turns the tile in shared memory, writes along k.
#[kernel(threads = THREADS)]
fn repack_transposed<T: Number>(rows: Val<u32>, k: Val<u32>, problem: Problem, side: Side) {
    overlap_grids();
    let piece = 16 / T::ELEMENT.bytes();
    let width = side.width(&problem);
    let tile_rows = 8 * piece;
    let work = Work::<T>::declare(&problem, side, (tile_rows, DEPTH), rows);
    // Step k of the tile fills all banks with its rows. The eight lanes that read one row each `piece` steps further find them in
    // different banks, because the 16-byte pieces of a step are exchanged by the number of that group of steps.
    let bits = piece.trailing_zeros();
    let tile = Shared::<T>::new(
        format!("S<3,{bits},{}> o 0 o ({DEPTH},{tile_rows}):({tile_rows},1)", 3 + bits).as_str(),
    );

    let (r, step) = (thread_id(0) % 8 * piece, thread_id(0) / 8);
    let load = |i: u32| {
        let at = work.start + step + i * (THREADS / 8);
        let from = work.from.at(work.top + r, at);
        load_pieces(from, piece, width, |j| below((work.top + r + j, at), (rows, k)))
    };
    let pieces: Vec<Vector<T>> = (0..PIECES).map(load).collect();
    for (i, piece) in (0..PIECES).zip(pieces) {
        tile.at((step + i * (THREADS / 8), r)).store_vector(piece);
    }
    barrier();

    for i in unroll(0..PIECES) {
        let number = thread_id(0) + i * THREADS;
        let (r, group) = (number / 8 % tile_rows, number % 8 + number / (8 * tile_rows) * 8);
        let step = group * piece;
        let column = (0..piece).map(|j| tile.at((step + j, r)).load());
        work.store(work.top + r, work.start + step, rows, Vector::new(column));
    }
}
