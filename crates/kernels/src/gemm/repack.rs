//! Copies of factors that a faster kernel can read: contiguous the way it likes, every line at a multiple of 16 bytes.
//!
//! Tensor cores of Hopper read 8-bit and 32-bit elements with k contiguous only, and the copy engine addresses lines at multiples of 16
//! bytes only; CUDA cores are fed best from rows that lie side by side. Where a large product has a factor that lies otherwise, one pass
//! over that factor is cheap.
//!
//! A line is what the copy has contiguous: a row along k, or a step of k along the rows.
//!
//! Contract: any storage, leading dimension, alignment and batch; elements of 1, 2, 4 or 8 bytes, which are moved and never looked at.
//! Lines of the copy are padded with zeros. Reads are as wide as the source allows, writes are 16 bytes.

use std::sync::Arc;

use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Element as LangElement, Error};

use super::factor::{Factor, Side, load_pieces};
use super::problem::{Batching, Placement, Problem};
use super::recipe::{Binding, KernelSource, Launch, Operand};
use super::result::below;

/// What a copy has contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contiguous {
    /// Steps of k.
    K,
    /// Rows of the factor: those of the product for A, its columns for B.
    Rows,
}

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
                    (*operand, *offset) = (Operand::Workspace, offset.saturating_add(self.offset));
                }
                Binding::Map(map) if map.operand == factor => {
                    (map.operand, map.offset) = (Operand::Workspace, map.offset.saturating_add(self.offset));
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
/// Lines and pieces of a tile whose lines are copied as they are.
const STRAIGHT: (u32, u32) = (THREADS * PIECES / 32, 32);
/// How long the lines of a tile are that is transposed. As many lines as fill 128 bytes: all banks of shared memory.
const DEPTH: u32 = 128;

/// A copy of a factor with that contiguous, at `offset` bytes into the workspace, which is rounded up to a multiple of 256.
///
/// ```
/// use tilewright_hardware::Element;
/// use tilewright_kernels::gemm::{Contiguous, Problem, Side, Storage, Types, repack};
///
/// let mut problem = Problem::new(100, 80, 77, Types::of(Element::E4M3));
/// problem.b.storage = Storage::RowMajor;
/// problem.b.leading = 81;
/// let copy = repack(&problem, Side::B, Contiguous::K, 0);
/// assert_eq!((copy.placement.storage, copy.placement.leading), (Storage::ColumnMajor, 80));
/// assert_eq!(copy.bytes, 80 * 80);
/// ```
#[must_use]
pub fn repack(problem: &Problem, side: Side, contiguous: Contiguous, offset: u64) -> Repacked {
    let (element, source) = (side.element(problem), *side.placement(problem));
    let (lines, length) = match contiguous {
        Contiguous::K => (side.rows(problem), problem.k),
        Contiguous::Rows => (problem.k, side.rows(problem)),
    };
    let piece = 16 / element.bytes();
    let leading = u64::from(length).next_multiple_of(u64::from(piece)).max(u64::from(piece));
    // A factor that all members of a batch share is copied once.
    let shared = problem.batching == Batching::Strided && source.batch_stride == 0;
    let members = if shared { 1 } else { problem.batch };
    // What is more than a number is more than any memory: nobody has room for such a copy.
    let size = u64::from(lines).saturating_mul(leading);
    let placement = Placement {
        storage: match contiguous {
            Contiguous::K => side.k_major(),
            Contiguous::Rows => side.k_major().transposed(),
        },
        leading,
        batch_stride: if shared { 0 } else { size },
        alignment: 256,
    };
    let start = offset.checked_next_multiple_of(256).unwrap_or(u64::MAX);
    let list = match problem.batching {
        Batching::Strided => 0,
        Batching::Pointers => (u64::from(members) * 8).next_multiple_of(256),
    };
    let data = start.saturating_add(list);
    let room = u64::from(members).saturating_mul(size).saturating_mul(u64::from(element.bytes()));
    let bytes = data.saturating_add(room) - offset;

    let straight = is_straight(problem, side, contiguous);
    let (tile_lines, tile_length) =
        if straight { (STRAIGHT.0, STRAIGHT.1 * piece) } else { (128 / element.bytes(), DEPTH) };
    let tiles_along = u64_to_u32(leading.div_ceil(u64::from(tile_length)));
    // Copies in a batch of pointers are listed even where there is nothing to copy: somebody reads the list.
    let listed = list > 0;
    let tiles_lines = lines.div_ceil(tile_lines).max(u32::from(listed));
    let mut bindings = vec![
        ("lines".to_owned(), Binding::U32(lines)),
        ("length".to_owned(), Binding::U32(length)),
        ("tiles_lines".to_owned(), Binding::U32(tiles_lines)),
        ("tiles_along".to_owned(), Binding::U32(tiles_along)),
        ("to".to_owned(), Binding::Pointer(Operand::Workspace, data)),
        ("to_leading".to_owned(), Binding::U64(leading)),
        ("list".to_owned(), Binding::Pointer(Operand::Workspace, start)),
    ];
    bindings.extend(side.bindings(problem));
    let width = side.width(problem);
    let key = format!(
        "repack {side} {contiguous:?} {} bytes {} w{width} {:?}",
        element.bytes(),
        if straight { "straight" } else { "transposed" },
        problem.batching
    );
    let staged = problem.clone();
    let stage = Arc::new(move || match element.bytes() {
        1 => stage::<u8>(&staged, side, contiguous),
        2 => stage::<u16>(&staged, side, contiguous),
        4 => stage::<u32>(&staged, side, contiguous),
        _ => stage::<u64>(&staged, side, contiguous),
    });
    let launch = (members > 0 && (size > 0 || listed)).then(|| {
        let blocks = tiles_along.saturating_mul(tiles_lines).saturating_mul(members);
        Launch::new(KernelSource { key, stage }, [blocks, 1, 1], bindings)
    });
    Repacked { side, launch, placement, offset: start, bytes }
}

/// Whether what the copy has contiguous is contiguous already.
fn is_straight(problem: &Problem, side: Side, contiguous: Contiguous) -> bool {
    side.is_k_major(problem) == (contiguous == Contiguous::K)
}

fn u64_to_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn stage<T: Number>(problem: &Problem, side: Side, contiguous: Contiguous) -> Result<Kernel, Error> {
    if is_straight(problem, side, contiguous) {
        repack_straight::stage::<T>(problem.clone(), side, contiguous)
    } else {
        repack_transposed::stage::<T>(problem.clone(), side, contiguous)
    }
}

/// Where a block works, and the matrix that it writes.
#[derive(Clone, Copy, Debug)]
struct Work<T> {
    /// First line of the tile, and where it begins in its lines.
    top: Val<u32>,
    start: Val<u32>,
    from: Factor<T>,
    contiguous: Contiguous,
    to: Global<T>,
    to_leading: Val<u64>,
}

impl<T: LangElement> Work<T> {
    /// Declares the parameters, takes the block's tile, and in a batch of pointers lists where the copies are.
    #[track_caller]
    fn declare(
        problem: &Problem,
        (side, contiguous): (Side, Contiguous),
        (tile_lines, tile_length): (u32, u32),
        lines: Val<u32>,
    ) -> Work<T> {
        let (tiles_lines, tiles_along): (Val<u32>, Val<u32>) =
            (Argument::declare("tiles_lines"), Argument::declare("tiles_along"));
        let to: Global<T> = Argument::declare("to");
        let to_leading: Val<u64> = Argument::declare("to_leading");
        let tile = block_id(0);
        let (along, rest) = (tile % tiles_along, tile / tiles_along);
        let (down, batch) = (rest % tiles_lines, rest / tiles_lines);
        let to = to.at(batch.cast::<u64>() * (lines.cast::<u64>() * to_leading));
        if problem.batching == Batching::Pointers {
            let list: Global<u64> = Argument::declare("list");
            announce(list.at(batch), to.address(), along + down);
        }
        Work {
            top: down * tile_lines,
            start: along * tile_length,
            from: Factor::declare(side, problem, batch),
            contiguous,
            to,
            to_leading,
        }
    }

    /// The address of an element of the factor.
    #[track_caller]
    fn at(&self, line: Val<u32>, along: Val<u32>) -> Global<T> {
        match self.contiguous {
            Contiguous::K => self.from.at(line, along),
            Contiguous::Rows => self.from.at(along, line),
        }
    }

    /// Stores a piece of a line of the copy, unless it lies outside.
    #[track_caller]
    fn store(&self, line: Val<u32>, along: Val<u32>, lines: Val<u32>, piece: Vector<T>) {
        let inside = below((line, along), (lines, self.to_leading.cast()));
        let at = self.to.at(line.cast::<u64>() * self.to_leading + along.cast::<u64>());
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

/// Copies lines as they are.
#[kernel(threads = THREADS)]
fn repack_straight<T: Number>(
    lines: Val<u32>,
    length: Val<u32>,
    problem: Problem,
    side: Side,
    contiguous: Contiguous,
) {
    overlap_grids();
    let piece = 16 / T::ELEMENT.bytes();
    let width = side.width(&problem);
    let work = Work::<T>::declare(&problem, (side, contiguous), (STRAIGHT.0, STRAIGHT.1 * piece), lines);
    let along = work.start + thread_id(0) % 32 * piece;
    let line = |i: u32| work.top + thread_id(0) / 32 + i * (THREADS / 32);

    let load = |i: u32| {
        let from = work.at(line(i), along);
        load_pieces(from, piece, width, |j| below((line(i), along + j), (lines, length)))
    };
    let pieces: Vec<Vector<T>> = (0..PIECES).map(load).collect();
    for (i, piece) in (0..PIECES).zip(pieces) {
        work.store(line(i), along, lines, piece);
    }
}

/// Copies a factor whose elements lie side by side across the lines: reads across them, turns the tile in shared memory, writes along them.
#[kernel(threads = THREADS)]
fn repack_transposed<T: Number>(
    lines: Val<u32>,
    length: Val<u32>,
    problem: Problem,
    side: Side,
    contiguous: Contiguous,
) {
    overlap_grids();
    let piece = 16 / T::ELEMENT.bytes();
    let width = side.width(&problem);
    let tile_lines = 8 * piece;
    let work = Work::<T>::declare(&problem, (side, contiguous), (tile_lines, DEPTH), lines);
    // A step along the lines fills all banks with its elements. The eight lanes that read one line each `piece` steps further find them
    // in different banks, because the 16-byte pieces of a step are exchanged by the number of that group of steps.
    let bits = piece.trailing_zeros();
    let tile = Shared::<T>::new(
        format!("S<3,{bits},{}> o 0 o ({DEPTH},{tile_lines}):({tile_lines},1)", 3 + bits).as_str(),
    );

    let (line, step) = (thread_id(0) % 8 * piece, thread_id(0) / 8);
    let load = |i: u32| {
        let at = work.start + step + i * (THREADS / 8);
        let from = work.at(work.top + line, at);
        load_pieces(from, piece, width, |j| below((work.top + line + j, at), (lines, length)))
    };
    let pieces: Vec<Vector<T>> = (0..PIECES).map(load).collect();
    for (i, piece) in (0..PIECES).zip(pieces) {
        tile.at((step + i * (THREADS / 8), line)).store_vector(piece);
    }
    barrier();

    for i in unroll(0..PIECES) {
        let number = thread_id(0) + i * THREADS;
        let (line, group) = (number / 8 % tile_lines, number % 8 + number / (8 * tile_lines) * 8);
        let step = group * piece;
        let elements = (0..piece).map(|j| tile.at((step + j, line)).load());
        work.store(work.top + line, work.start + step, lines, Vector::new(elements));
    }
}
