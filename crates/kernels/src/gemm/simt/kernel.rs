//! The kernel: copies some tiles ahead, elements of a step as vectors, sums in registers.
//!
//! The main loop takes [`Config::unrolled`] steps of k at a time. Two steps are some hundred products, which fit into the first cache of
//! instructions; a whole tile saves what a loop costs. The order of the products of a step decides what registers an assembler gives
//! them, and so how often three operands come from one bank: see [`Products::place`].

use tilewright_lang::prelude::*;

use super::{Config, LANES};
use crate::gemm::factor::{Factor, Side};
use crate::gemm::problem::{Problem, Storage};
use crate::gemm::result::{Output, below};
use crate::gemm::split::Shares;

/// The tile of a block: its number becomes row and column such that neighbours share rows and columns of tiles, and L2 their factors.
#[device]
fn raster(tile: Val<u32>, tiles_m: Val<u32>, tiles_n: Val<u32>, group: u32) -> (Val<u32>, Val<u32>) {
    let in_group = tiles_n * group;
    let first = tile / in_group * group;
    let height = min(tiles_m - first, group);
    let inside = tile % in_group;
    (first + inside % height, inside / height)
}

/// One factor on its way to shared memory: what a thread copies of each tile.
///
/// All threads together copy `lanes` pieces side by side of each of some lines in memory, which are rows if k is contiguous, and go on
/// from there.
#[derive(Clone, Copy, Debug)]
struct Loader<T> {
    factor: Factor<T>,
    /// The thread's first element of the first tile, as row of the tile, step, and address.
    first: (Val<u32>, Val<u32>, Global<T>),
    /// Bytes from one of its lines to the next.
    apart: Val<u64>,
    /// First row of the tile, and rows of the matrix.
    top: Val<u32>,
    rows: Val<u32>,
    /// Rows and depth of the tile.
    tile: (u32, u32),
    /// Elements of a copy, copies side by side, lines at a time.
    width: u32,
    lanes: u32,
    lines: u32,
}

impl<T: Number> Loader<T> {
    #[track_caller]
    fn new(
        factor: Factor<T>,
        (top, rows): (Val<u32>, Val<u32>),
        tile: (u32, u32),
        (width, threads): (u32, u32),
    ) -> Loader<T> {
        // Eight steps of four rows a warp: whole sectors of global memory, and 32 different banks of shared memory.
        let lanes =
            if factor.is_k_major() { (threads / tile.0).max(8) } else { (tile.0 / width).min(threads) };
        let lines = threads / lanes;
        let (line, along) = (thread_id(0) / lanes, thread_id(0) % lanes * width);
        let (row, step) = if factor.is_k_major() { (line, along) } else { (along, line) };
        let apart = factor.lines(lines) * u64::from(T::ELEMENT.bytes());
        let first = (row, step, factor.at(top + row, step));
        Loader { factor, first, apart, top, rows, tile, width, lanes, lines }
    }

    /// The copies of the tile that lies so many elements beyond the first: rows and steps beyond the thread's first element, and where
    /// they start. Addresses follow from each other, which takes an addition for each line.
    #[track_caller]
    fn copies(&self, beyond: Val<u64>) -> Vec<((u32, u32), Global<T>)> {
        let (rows, depth) = self.tile;
        let (high, wide) = if self.factor.is_k_major() { (rows, depth) } else { (depth, rows) };
        let mut copies = Vec::new();
        let mut from = self.first.2.at(beyond);
        for line in (0..high).step_by(self.lines as usize) {
            if line > 0 {
                from = from.byte_add(self.apart);
            }
            for along in (0..wide).step_by((self.lanes * self.width) as usize) {
                let place = if self.factor.is_k_major() { (line, along) } else { (along, line) };
                copies.push((place, from.at(along)));
            }
        }
        copies
    }
}

/// Starts to copy the tile at step `k`; what lies outside of the matrix, or at `end` and beyond, becomes zero.
#[device]
fn fetch<T: Number>(loader: Loader<T>, k: Val<u32>, end: Val<u32>, (to, line): (Shared<T>, Val<u32>)) {
    let (row, step, _) = loader.first;
    let beyond = loader.factor.offset(val(0), k);
    let whole = (loader.top + loader.tile.0 <= loader.rows) & (k + loader.tile.1 <= end);
    if whole {
        for ((rows, steps), from) in loader.copies(beyond) {
            copy_async(to.at((row + rows, line + step + steps)), from, loader.width);
        }
    } else {
        for ((rows, steps), from) in loader.copies(beyond) {
            let inside = below((loader.top + row + rows, k + step + steps), (loader.rows, end));
            copy_async_if(inside, to.at((row + rows, line + step + steps)), from, loader.width);
        }
    }
}

/// One factor in shared memory as a thread reads it: in vectors of 16 bytes along its rows.
#[derive(Clone, Copy, Debug)]
struct Reader<T> {
    ring: Shared<T>,
    /// First row of the thread's first vector, and rows from one vector to the next.
    row: Val<u32>,
    apart: u32,
    /// Elements from one line to the next.
    pitch: u32,
}

impl<T: Number> Reader<T> {
    /// Where the thread's part of a line starts.
    #[track_caller]
    fn at(&self, line: Val<u32>) -> SharedPtr<T> {
        self.ring.at((self.row, line))
    }

    /// One vector, some lines further.
    #[track_caller]
    fn read(&self, from: SharedPtr<T>, lines: u32, vector: u32) -> Vec<Val<T>> {
        from.at(lines * self.pitch + vector * self.apart).load_vector(16 / T::ELEMENT.bytes()).elements()
    }
}

/// What a thread has in registers: sums, and the elements of A and B that have been read ahead.
type Held<T> = (Vec<Vec<Val<T>>>, Vec<Val<T>>, Vec<Val<T>>);

/// The products of a step of a thread.
#[derive(Clone, Copy, Debug)]
struct Products {
    rows: u32,
    columns: u32,
    /// Elements of a vector.
    vector: u32,
    /// Whether results are stored in vectors along the columns of D.
    stored_down: bool,
}

/// Row and column of place `x` on a way through lines of so many: there along one line, back along the next.
fn serpentine(x: u32, wide: u32) -> (u32, u32) {
    let (line, along) = (x / wide, x % wide);
    (line, if line % 2 == 0 { along } else { wide - 1 - along })
}

impl Products {
    fn count(self) -> u32 {
        self.rows * self.columns
    }

    /// How many products before the first that needs it a vector is read. It takes some thirty of them to arrive; where a thread has
    /// registers for a second set of vectors, all are read a whole step before.
    fn lead(self) -> u32 {
        if self.count() < 128 { self.count().min(32) } else { self.count() }
    }

    /// Row and column of a product in the order in which they are computed.
    ///
    /// An assembler keeps that order. It deals out registers by it and by the vectors that results are stored in, and decides with them
    /// how far reads from shared memory lie apart. Counted in the code of NVIDIA's assembler 13.0 for Hopper, main loop of 2048
    /// products of 8x16 a thread, D row-major: row after row, 97 products have three operands in one bank and 1718 two; along
    /// serpentines 25 and 345. D column-major: row after row, reads come in bunches that cost 170 clocks more; along serpentines
    /// through blocks of 2x8, they do not. Threads of 8x8, with half of the registers, spill row after row; through blocks of 2x8 if D is
    /// column-major, and of a vector each way if it is row-major, they do not, on Ampere either. Where they had not spilled (nt on Hopper),
    /// that order has more clashes, 114 of 1024 instead of 87.
    fn place(self, product: u32) -> (u32, u32) {
        let (high, wide) = match self.stored_down {
            true => (2, self.columns.min(8)),
            false if self.count() < 128 => (self.vector, self.vector),
            false => (self.rows, self.columns),
        };
        let (block, inside) = (product / (high * wide), product % (high * wide));
        let (down, along) = serpentine(block, self.columns / wide);
        let (row, column) = serpentine(inside, wide);
        (down * high + row, along * wide + column)
    }

    /// The vectors of A and of B that a product would be the first to need if they came row after row. Where [`place`](Products::place)
    /// says otherwise, none is needed earlier.
    fn needs(self, product: u32) -> (Option<u32>, Option<u32>) {
        let (i, j) = (product / self.columns, product % self.columns);
        let vector_of = |x: u32| x.is_multiple_of(self.vector).then(|| x / self.vector);
        (vector_of(i).filter(|_| j == 0), vector_of(j).filter(|_| i == 0))
    }

    /// Multiplies some steps. `read_a` and `read_b` read a vector of a step, and are asked for those of one step more as well.
    #[track_caller]
    fn multiply<T: Number>(
        self,
        (mut sums, mut a, mut b): Held<T>,
        steps: u32,
        read_a: impl Fn(u32, u32) -> Vec<Val<T>>,
        read_b: impl Fn(u32, u32) -> Vec<Val<T>>,
    ) -> Held<T> {
        for step in 0..steps {
            let (mut next_a, mut next_b) = (Vec::new(), Vec::new());
            for product in 0..self.count() {
                let coming = product + self.lead();
                let (needs_a, needs_b) = self.needs(coming % self.count());
                if coming < self.count() {
                    a.extend(needs_a.into_iter().flat_map(|vector| read_a(step, vector)));
                    b.extend(needs_b.into_iter().flat_map(|vector| read_b(step, vector)));
                } else {
                    next_a.extend(needs_a.into_iter().flat_map(|vector| read_a(step + 1, vector)));
                    next_b.extend(needs_b.into_iter().flat_map(|vector| read_b(step + 1, vector)));
                }
                let (i, j) = self.place(product);
                let (i, j) = (i as usize, j as usize);
                sums[i][j] = a[i].mul_add(b[j], sums[i][j]);
            }
            (a, b) = (next_a, next_b);
        }
        (sums, a, b)
    }
}

/// `D = epilogue(A * B)`, one tile (or one part of its steps) a block.
#[kernel(threads = config.threads(), min_blocks = config.resident(T::ELEMENT))]
pub(super) fn simt<T: Number>(
    m: Val<u32>,
    n: Val<u32>,
    k: Val<u32>,
    tiles_m: Val<u32>,
    tiles_n: Val<u32>,
    parts: Val<u32>,
    share: Val<u32>,
    problem: Problem,
    config: Config,
) {
    overlap_grids();
    let Config { m: rows, n: columns, k: depth, thread_m, thread_n, stages, .. } = config;
    let threads = config.threads();
    let vector = 16 / T::ELEMENT.bytes();

    // Which tile of which member of the batch, and which steps of k.
    let tiles = tiles_m * tiles_n;
    let unit = block_id(0) / parts;
    let (part, batch) = (block_id(0) % parts, unit / tiles);
    let (tile_m, tile_n) = raster(unit % tiles, tiles_m, tiles_n, config.group);
    let (top, left) = (tile_m * rows, tile_n * columns);
    let start = min(part * share, k);
    let end = min(start + share, k);
    let steps = div_ceil(end - start, depth);

    // Rows contiguous, and 16 bytes more from step to step: a thread reads vectors along the rows, and copies that turn a factor hit
    // different banks.
    let lines = stages * depth;
    let ring = |rows: u32| Shared::<T>::new(format!("({rows},{lines}):(1,{})", rows + vector).as_str());
    let (ring_a, ring_b) = (ring(rows), ring(columns));
    let loader = |side: Side, tile: u32, top: Val<u32>, extent: Val<u32>| {
        let factor = Factor::<T>::declare(side, &problem, batch);
        let width = if factor.is_k_major() { 1 } else { side.width(&problem) };
        Loader::new(factor, (top, extent), (tile, depth), (width, threads))
    };
    let (load_a, load_b) = (loader(Side::A, rows, top, m), loader(Side::B, columns, left, n));
    let fetch_tile = |k: Val<u32>, line: Val<u32>| {
        fetch(load_a, k, end, (ring_a, line));
        fetch(load_b, k, end, (ring_b, line));
    };

    // Lanes are dealt such that neighbours (in bit 0) share a vector of A and others (in bit 1) one of B: two wavefronts a read.
    let lane = lane_id();
    let (lane_m, lane_n) = (lane >> 1u32 & 3u32, (lane & 1u32) | (lane >> 3u32 << 1u32));
    let warps_m = rows / (LANES.0 * thread_m);
    let (warp_m, warp_n) = (warp_id() % warps_m, warp_id() / warps_m);
    let row = warp_m * (LANES.0 * thread_m) + lane_m * vector;
    let column = warp_n * (LANES.1 * thread_n) + lane_n * vector;
    let read_a = Reader { ring: ring_a, row, apart: LANES.0 * vector, pitch: rows + vector };
    let read_b = Reader { ring: ring_b, row: column, apart: LANES.1 * vector, pitch: columns + vector };

    // All slots but one are filled ahead; the last is that of the tile before.
    for ahead in unroll(0..stages - 1) {
        fetch_tile(start + ahead * depth, val(ahead * depth));
        copy_commit();
    }
    copy_wait(stages - 2);
    barrier();

    let stored_down = problem.d.storage == Storage::ColumnMajor;
    let products = Products { rows: thread_m, columns: thread_n, vector, stored_down };
    let unrolled = config.unrolled;
    let turns = depth / unrolled;
    let (mut at_a, mut at_b) = (read_a.at(val(0)), read_b.at(val(0)));
    let early = (0..products.lead()).map(|product| products.needs(product));
    let mut a: Vec<Val<T>> =
        early.clone().filter_map(|(a, _)| a).flat_map(|i| read_a.read(at_a, 0, i)).collect();
    let mut b: Vec<Val<T>> = early.filter_map(|(_, b)| b).flat_map(|i| read_b.read(at_b, 0, i)).collect();
    let mut sums = vec![vec![val(T::ZERO); thread_n as usize]; thread_m as usize];
    let (mut line, mut ahead) = (val(0u32), start + (stages - 1) * depth);
    for turn in 0..steps * turns {
        if turn % turns == turns - 1 {
            // The next tile must have arrived, and everybody be done with the one before: its place is free. After the last tile come
            // some of zeros, since reading runs ahead.
            copy_wait(stages - 3);
            barrier();
            fetch_tile(ahead, select(line < depth, line + lines, line) - (2 * depth - unrolled));
            copy_commit();
            ahead += depth;
        }
        line = select(line == lines - unrolled, 0, line + unrolled);
        let (next_a, next_b) = (read_a.at(line), read_b.at(line));
        let read = |reader: Reader<T>, now: SharedPtr<T>, next: SharedPtr<T>| {
            move |step: u32, vector: u32| match step {
                step if step < unrolled => reader.read(now, step, vector),
                _ => reader.read(next, 0, vector),
            }
        };
        let (from_a, from_b) = (read(read_a, at_a, next_a), read(read_b, at_b, next_b));
        (sums, a, b) = products.multiply((sums, a, b), unrolled, from_a, from_b);
        (at_a, at_b) = (next_a, next_b);
    }

    let mut output = Output::<T>::declare(&problem, (m, n));
    // The thread's elements lie in square blocks of neighbours.
    let mut finish = |sums: &[Vec<Val<T>>]| {
        for i in (0..thread_m).step_by(vector as usize) {
            for j in (0..thread_n).step_by(vector as usize) {
                let line = |r: u32| (j..j + vector).map(|c| sums[(i + r) as usize][c as usize]).collect();
                let block: Vec<Vec<Val<T>>> = (0..vector).map(line).collect();
                let at = (top + row + i / vector * read_a.apart, left + column + j / vector * read_b.apart);
                output.store(batch, at, &block);
            }
        }
    };
    if config.parts == 1 {
        finish(&sums);
    } else {
        let shares = Shares::<T>::declare(threads);
        let mut mine = Vec::new();
        for line in &sums {
            for piece in line.chunks(vector as usize) {
                mine.push(Vector::new(piece.iter().copied()));
            }
        }
        let (last, total) = shares.combine(unit, (part, parts), &mine);
        let each = (thread_n / vector) as usize;
        let line =
            |pieces: &[Vector<T>]| pieces.iter().flat_map(|piece| piece.elements()).collect::<Vec<_>>();
        let total: Vec<Vec<Val<T>>> = total.chunks(each).map(line).collect();
        if last {
            finish(&total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every product once, and nothing before what it needs has been read.
    #[test]
    fn products_come_in_an_order_that_reads_suffice_for() {
        for (rows, columns) in [(8, 16), (16, 8), (4, 32), (32, 4), (8, 8), (8, 4)] {
            for (vector, stored_down) in [(4, false), (4, true), (2, false), (2, true)] {
                let products = Products { rows, columns, vector, stored_down };
                let (mut a, mut b, mut seen) = (0, 0, std::collections::HashSet::new());
                for product in 0..products.count() {
                    let (needs_a, needs_b) = products.needs(product);
                    a += u32::from(needs_a.is_some()) * vector;
                    b += u32::from(needs_b.is_some()) * vector;
                    let (i, j) = products.place(product);
                    assert!(i < a && j < b, "{products:?}: {product} is ({i}, {j})");
                    assert!(seen.insert((i, j)), "{products:?}: ({i}, {j}) comes twice");
                }
                assert_eq!((a, b), (rows, columns));
            }
        }
    }
}
