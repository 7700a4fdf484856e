//! From global to shared memory: tiles of A and B, at any alignment.
//!
//! A tile has `rows` lines of m or n and `depth` of k. Threads walk over it in pieces that lie side by side in global memory, as wide as
//! the matrix allows: 16, 8 or 4 bytes by `cp.async`, single elements of 1 or 2 bytes through registers. What lies outside of the
//! matrix becomes zero and is not read, down to the element.
//!
//! Layouts in shared memory are chosen for how fragments are read ([`Reading`]): swizzled for matrix loads, padded where single
//! elements are gathered, so that neither copies nor reads of fragments meet in a bank.

use tilewright_hardware::{Element, Major, SwizzleMode, smem_tile};
use tilewright_lang::prelude::*;
use tilewright_layout::{Composed, Coord, Tree};

use crate::gemm::GemmError;
use crate::gemm::matrix::GlobalMatrix;

/// Loads through registers that are under way at once.
const LOADS_AHEAD: usize = 16;

/// How fragments come out of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reading {
    /// By `ldmatrix`, transposing if the other index is contiguous.
    Matrices,
    /// Element by element: 64-bit elements, and 32-bit ones across the storage.
    Elements,
    /// Words of four rows that are transposed in registers: 8-bit elements across the storage.
    Bytes,
}

/// One factor as the tiles see it: rows are those of m or n, depth is k.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Side {
    /// Elements in memory.
    pub(super) element: Element,
    /// Whether k is contiguous.
    pub(super) major: Major,
    /// Rows of a tile.
    pub(super) rows: u32,
    /// Rows that one warp multiplies.
    pub(super) warp_rows: u32,
    /// Depth of a tile.
    pub(super) depth: u32,
    /// Elements of one copy.
    pub(super) vector: u32,
    /// Whether it is the right factor, whose matrix has k first.
    pub(super) right: bool,
    /// Where its tiles start in a stage, in bytes.
    pub(super) offset: u32,
    /// Where elements lie in a tile.
    pub(super) layout: Composed,
}

impl Side {
    /// The left factor, or the right one `after` so many bytes of tiles of the left one.
    pub(super) fn new(
        element: Element,
        major: Major,
        (rows, warp_rows, depth): (u32, u32, u32),
        vector: u32,
        after: Option<u32>,
    ) -> Result<Side, GemmError> {
        // Narrower copies than `cp.async` has go element by element.
        let vector = if vector * element.bytes() < 4 { 1 } else { vector };
        let layout = layout(element, major, rows, warp_rows, depth)?;
        let (right, offset) = (after.is_some(), after.unwrap_or(0));
        Ok(Side { element, major, rows, warp_rows, depth, vector, right, offset, layout })
    }

    pub(super) fn reading(&self) -> Reading {
        reading(self.element, self.major)
    }

    /// Extents of a tile along and across the contiguous index.
    fn extents(&self) -> (u32, u32) {
        match self.major {
            Major::K => (self.depth, self.rows),
            Major::Mn => (self.rows, self.depth),
        }
    }

    /// Bytes of a tile, such that the next can follow.
    pub(super) fn bytes(&self) -> u32 {
        let end = |at: u32| at + self.element.bytes();
        let corner = self.place(self.rows - 1, self.depth - 1);
        // Swizzles permute within whole lines, so the last line may end before its last element.
        let (along, across) = self.extents();
        end(corner).max(along * across * self.element.bytes()).next_multiple_of(128)
    }

    /// Where an element lies, in bytes.
    pub(super) fn place(&self, row: u32, k: u32) -> u32 {
        match self.layout.eval(&Coord::from((i64::from(row), i64::from(k)))) {
            Ok(Tree::Leaf(index)) => u32::try_from(index).unwrap_or(0) * self.element.bytes(),
            _ => 0,
        }
    }
}

/// Which index of a factor is contiguous.
pub(super) fn major(k_contiguous: bool) -> Major {
    if k_contiguous { Major::K } else { Major::Mn }
}

pub(super) fn reading(element: Element, major: Major) -> Reading {
    match (element.bytes(), major) {
        (8, _) | (4, Major::Mn) => Reading::Elements,
        (1, Major::Mn) => Reading::Bytes,
        _ => Reading::Matrices,
    }
}

fn layout(
    element: Element,
    major: Major,
    rows: u32,
    warp_rows: u32,
    depth: u32,
) -> Result<Composed, GemmError> {
    let parse = |text: String| text.parse::<Composed>().map_err(|error| GemmError::Kernel(error.to_string()));
    let span = |bytes: u32| match bytes {
        0..64 => SwizzleMode::B32,
        64..128 => SwizzleMode::B64,
        _ => SwizzleMode::B128,
    };
    match (reading(element, major), major) {
        (Reading::Matrices, _) => {
            let contiguous = if major == Major::K { depth } else { warp_rows };
            smem_tile(major, rows, depth, element, span(contiguous * element.bytes()))
                .map_err(|error| GemmError::Kernel(error.to_string()))
        }
        // Lanes read four neighbours along k in eight rows. Lines that are 32 bytes longer than a multiple of 128 put them in
        // different banks, whichever index is contiguous.
        (Reading::Elements, Major::K) => {
            let line = depth + 32 / element.bytes();
            parse(format!("S<0,0,0> o 0 o ({rows},{depth}):({line},1)"))
        }
        (Reading::Elements, Major::Mn) => {
            let line = rows + 32 / element.bytes();
            parse(format!("S<0,0,0> o 0 o ({rows},{depth}):(1,{line})"))
        }
        // Lanes read words of four rows in lines that are four apart: those get different 32 bytes of the banks.
        (Reading::Bytes, _) => {
            let shift = rows.ilog2() - 3;
            parse(format!("S<2,5,{shift}> o 0 o ({rows},{depth}):(1,{rows})"))
        }
    }
}

/// How threads share lines of pieces: the pieces of thread `t` in step `s` are at
/// `(t / in_line + line(s), t % in_line + piece(s))`. All numbers are powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// Pieces of a line.
    pub(super) in_line: u32,
    /// Steps that all threads take; the last ones idle if there are too few pieces.
    pub(super) steps: u32,
    threads: u32,
}

impl Spread {
    pub(super) fn new(in_line: u32, lines: u32, threads: u32) -> Spread {
        Spread { in_line, steps: (in_line * lines).div_ceil(threads), threads }
    }

    /// Lines and pieces from those of the first step.
    pub(super) fn step(self, step: u32) -> (u32, u32) {
        let piece = step * self.threads;
        (piece / self.in_line, piece % self.in_line)
    }
}

/// Addresses in a tile that differ by a constant share one staged pointer.
pub(super) struct Pointers<'a> {
    side: &'a Side,
    threads: u32,
    known: Vec<(Vec<u32>, SharedPtr<u8>)>,
}

impl<'a> Pointers<'a> {
    pub(super) fn new(side: &'a Side, threads: u32) -> Pointers<'a> {
        Pointers { side, threads, known: Vec::new() }
    }

    /// The address of the element that is `place(thread)` in every thread; `staged` computes it if it is far from all others.
    #[track_caller]
    pub(super) fn at(
        &mut self,
        place: &dyn Fn(u32) -> (u32, u32),
        staged: &dyn Fn() -> SharedPtr<u8>,
    ) -> (SharedPtr<u8>, u32) {
        let offset = |thread| {
            let (row, k) = place(thread);
            self.side.place(row, k)
        };
        let table: Vec<u32> = (0..self.threads).map(offset).collect();
        for (known, pointer) in &self.known {
            let Some(step) = table[0].checked_sub(known[0]) else { continue };
            if table.iter().zip(known).all(|(a, b)| a.checked_sub(*b) == Some(step)) {
                return (*pointer, step);
            }
        }
        let pointer = staged();
        self.known.push((table, pointer));
        (pointer, 0)
    }
}

/// Where a factor is read next.
#[derive(Clone, Copy, Debug, Carry)]
pub(super) struct Cursor {
    from: Global<u8>,
    /// Elements of k from the thread's first piece to the end; may be negative.
    left: Val<i32>,
}

/// The part of a factor that a block multiplies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Member of the batch.
    pub(super) member: Val<u32>,
    /// First row.
    pub(super) row: Val<u32>,
    /// Rows of the matrix.
    pub(super) rows: Val<u32>,
    /// First k.
    pub(super) k: Val<u32>,
    /// Where k ends.
    pub(super) depth: Val<u32>,
}

/// What a thread copies in every step of k.
pub(super) struct Fetcher<'a> {
    side: &'a Side,
    pieces: Vec<Piece>,
    /// Whether there are fewer pieces than threads, and how many.
    few: Option<u32>,
    /// Bytes from the lines of one step to those of the next.
    line_step: Val<u64>,
    /// Bytes of global memory from one tile to the next along k.
    tile_step: Val<u64>,
    /// Rows from the thread's first piece to the end of the matrix; may be negative.
    rows_left: Val<i32>,
}

/// One copy.
struct Piece {
    to: (SharedPtr<u8>, u32),
    line: u32,
    along: u32,
}

impl<'a> Fetcher<'a> {
    /// For the tiles of a window, to go to `memory`.
    #[track_caller]
    pub(super) fn new(
        side: &'a Side,
        memory: Shared<u8>,
        threads: u32,
        matrix: &GlobalMatrix,
        window: Window,
    ) -> (Fetcher<'a>, Cursor) {
        let (along, across) = side.extents();
        let spread = Spread::new(along / side.vector, across, threads);
        let (line, x) = (thread_id(0) / spread.in_line, thread_id(0) % spread.in_line * side.vector);
        let (line, x) =
            if spread.in_line > threads { (val(0), thread_id(0) * side.vector) } else { (line, x) };
        let place = |line, along| match side.major {
            Major::K => (line, along),
            Major::Mn => (along, line),
        };
        let mut pointers = Pointers::new(side, threads.min(spread.in_line * across));
        let pieces = (0..spread.steps).map(|step| {
            let (lines, more) = spread.step(step);
            let host = |t: u32| {
                place(t / spread.in_line + lines, t % spread.in_line * side.vector + more * side.vector)
            };
            let to = pointers.at(&host, &|| {
                let (r, k) = match side.major {
                    Major::K => (line + lines, x + more * side.vector),
                    Major::Mn => (x + more * side.vector, line + lines),
                };
                element_at(side, memory, r, k)
            });
            Piece { to, line: lines, along: more * side.vector }
        });
        let pieces = pieces.collect();

        let bytes = u64::from(side.element.bytes());
        let line_bytes = matrix.leading() * bytes;
        let (first_row, first_k) = match side.major {
            Major::K => (window.row + line, window.k + x),
            Major::Mn => (window.row + x, window.k + line),
        };
        let from = if side.right {
            matrix.at(window.member, first_k, first_row)
        } else {
            matrix.at(window.member, first_row, first_k)
        };
        let tile_step = match side.major {
            Major::K => val(u64::from(side.depth) * bytes),
            Major::Mn => line_bytes * u64::from(side.depth),
        };
        let lines_a_step = (threads / spread.in_line).max(1);
        let fetcher = Fetcher {
            side,
            pieces,
            few: (spread.in_line * across < threads).then_some(spread.in_line * across),
            line_step: line_bytes * u64::from(lines_a_step),
            tile_step,
            rows_left: window.rows.cast::<i32>() - first_row.cast::<i32>(),
        };
        (fetcher, Cursor { from, left: window.depth.cast::<i32>() - first_k.cast::<i32>() })
    }

    /// Copies the tile at the cursor to the stage that starts so many bytes after the first, and moves the cursor on.
    #[device]
    pub(super) fn fetch(&self, cursor: Cursor, stage: Val<u32>) -> Cursor {
        match self.few {
            None => self.copy(cursor, stage),
            Some(pieces) => {
                if thread_id(0) < pieces {
                    self.copy(cursor, stage);
                }
            }
        }
        Cursor {
            from: cursor.from.byte_add(self.tile_step),
            left: cursor.left - self.side.depth.cast_signed(),
        }
    }

    #[track_caller]
    fn copy(&self, cursor: Cursor, stage: Val<u32>) {
        if self.side.vector * self.side.element.bytes() >= 4 {
            self.copy_async(cursor, stage);
        } else {
            self.copy_through_registers(cursor, stage);
        }
    }

    /// Lines and elements that are left.
    fn left(&self, cursor: Cursor) -> (Val<i32>, Val<i32>) {
        match self.side.major {
            Major::K => (self.rows_left, cursor.left),
            Major::Mn => (cursor.left, self.rows_left),
        }
    }

    /// The source of each piece.
    #[track_caller]
    fn sources(&self, cursor: Cursor) -> Vec<Global<u8>> {
        let (mut from, mut line) = (cursor.from, 0);
        let mut sources = Vec::new();
        for piece in &self.pieces {
            if piece.line != line {
                (from, line) = (from.byte_add(self.line_step), piece.line);
            }
            let along = piece.along * self.side.element.bytes();
            sources.push(if along == 0 { from } else { from.byte_add(along) });
        }
        sources
    }

    #[device]
    fn copy_async(&self, cursor: Cursor, stage: Val<u32>) {
        let (lines, along) = self.left(cursor);
        let (vector, bytes) = (self.side.vector, self.side.element.bytes());
        for (piece, from) in self.pieces.iter().zip(self.sources(cursor)) {
            let inside = (along - piece.along.cast_signed()).max(0).min(vector.cast_signed());
            let size = select(lines > piece.line.cast_signed(), inside.cast::<u32>() * bytes, 0);
            copy_async_part(piece.destination(stage), from, vector * bytes, size);
        }
    }

    #[device]
    fn copy_through_registers(&self, cursor: Cursor, stage: Val<u32>) {
        let (lines, along) = self.left(cursor);
        let sources = self.sources(cursor);
        let all: Vec<(&Piece, Global<u8>)> = self.pieces.iter().zip(sources).collect();
        for some in all.chunks(LOADS_AHEAD) {
            let inside =
                |piece: &Piece| (lines > piece.line.cast_signed()) & (along > piece.along.cast_signed());
            if self.side.element.bytes() == 1 {
                let loaded: Vec<_> =
                    some.iter().map(|(piece, from)| from.load_if(inside(piece), 0u8)).collect();
                for ((piece, _), value) in some.iter().zip(loaded) {
                    piece.destination(stage).store(value);
                }
            } else {
                let loaded: Vec<_> = some
                    .iter()
                    .map(|(piece, from)| from.cast::<u16>().load_if(inside(piece), 0u16))
                    .collect();
                for ((piece, _), value) in some.iter().zip(loaded) {
                    piece.destination(stage).cast::<u16>().store(value);
                }
            }
        }
    }
}

impl Piece {
    #[track_caller]
    fn destination(&self, stage: Val<u32>) -> SharedPtr<u8> {
        let (pointer, more) = self.to;
        let at = pointer.byte_add(stage);
        if more == 0 { at } else { at.byte_add(more) }
    }
}

/// The address of an element of the first stage.
#[track_caller]
pub(super) fn element_at(side: &Side, memory: Shared<u8>, row: Val<u32>, k: Val<u32>) -> SharedPtr<u8> {
    macro_rules! at {
        ($T:ty) => {
            memory.part::<$T>(side.offset, &side.layout).at((row, k)).cast::<u8>()
        };
    }
    match side.element.bytes() {
        1 => at!(u8),
        2 => at!(u16),
        4 => at!(u32),
        _ => at!(u64),
    }
}
