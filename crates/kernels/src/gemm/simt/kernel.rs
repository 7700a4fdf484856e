//! The kernel: copies some steps ahead, elements of a step as vectors, sums in registers.

use tilewright_lang::prelude::*;

use super::{Config, LANES};
use crate::gemm::factor::{Factor, Side};
use crate::gemm::problem::Problem;
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
#[derive(Clone, Copy, Debug)]
struct Loader<T> {
    factor: Factor<T>,
    /// Rows and depth of the tile in shared memory, and threads that fill it.
    tile: (u32, u32),
    threads: u32,
    /// First row of the tile, and rows of the matrix.
    top: Val<u32>,
    rows: Val<u32>,
    /// Elements of a copy.
    width: u32,
}

impl<T: Number> Loader<T> {
    /// Row and step of this thread's first copy.
    #[track_caller]
    fn first(&self) -> (Val<u32>, Val<u32>) {
        let thread = thread_id(0);
        if self.factor.is_k_major() {
            // Eight steps of four rows a warp: whole sectors of global memory, and 32 different banks of shared memory.
            (thread / 8 % self.tile.0, thread % 8 + thread / (8 * self.tile.0) * 8)
        } else {
            let across = self.tile.0 / self.width;
            (thread % across * self.width, thread / across)
        }
    }

    /// How far copy `i` lies from the first, in rows and steps. All extents are powers of two.
    fn further(&self, i: u32) -> (u32, u32) {
        let number = i * self.threads;
        if self.factor.is_k_major() {
            (number / 8 % self.tile.0, number / (8 * self.tile.0) * 8)
        } else {
            let across = self.tile.0 / self.width;
            (number % across * self.width, number / across)
        }
    }

    fn copies(&self) -> u32 {
        self.tile.0 * self.tile.1 / (self.width * self.threads)
    }
}

/// Starts to copy the tile at step `k`; what lies outside of the matrix, or at `end` and beyond, becomes zero.
#[device]
fn fetch<T: Number>(loader: Loader<T>, k: Val<u32>, end: Val<u32>, to: Shared<T>) {
    let (row, step) = loader.first();
    let (row, k) = (row, k + step);
    let from = loader.factor.at(loader.top + row, k);
    let place = |i: u32| {
        let (rows, steps) = loader.further(i);
        let from = from.at(loader.factor.offset(val(rows), val(steps)));
        ((rows, steps), to.at((row + rows, step + steps)), from)
    };
    let whole = (loader.top + loader.tile.0 <= loader.rows) & (k - step + loader.tile.1 <= end);
    if whole {
        for i in unroll(0..loader.copies()) {
            let (_, to, from) = place(i);
            copy_async(to, from, loader.width);
        }
    } else {
        for i in unroll(0..loader.copies()) {
            let ((rows, steps), to, from) = place(i);
            let inside = below((loader.top + row + rows, k + steps), (loader.rows, end));
            copy_async_if(inside, to, from, loader.width);
        }
    }
}

/// The elements of a step: `count` rows of a thread, in vectors of 16 bytes that lie `apart` rows apart.
#[device]
fn read<T: Number>(tile: Shared<T>, row: Val<u32>, apart: u32, step: u32, count: u32) -> Vec<Val<T>> {
    let vector = 16 / T::ELEMENT.bytes();
    let piece = |i: u32| tile.at((row + i * apart, val(step))).load_vector(vector).elements();
    (0..count / vector).flat_map(piece).collect()
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
    let ring = |rows: u32| Ring::<T>::new(stages, format!("({rows},{depth}):(1,{})", rows + vector).as_str());
    let (ring_a, ring_b) = (ring(rows), ring(columns));
    let loader = |side: Side, tile: u32, top: Val<u32>, extent: Val<u32>| {
        let factor = Factor::<T>::declare(side, &problem, batch);
        let width = if factor.is_k_major() { 1 } else { side.width(&problem) };
        Loader { factor, tile: (tile, depth), threads, top, rows: extent, width }
    };
    let (load_a, load_b) = (loader(Side::A, rows, top, m), loader(Side::B, columns, left, n));
    let fetch_step = |step: Val<u32>, slot: Val<u32>| {
        fetch(load_a, start + step * depth, end, ring_a.at(slot));
        fetch(load_b, start + step * depth, end, ring_b.at(slot));
    };

    // Lanes are dealt such that neighbours (in bit 0) share a vector of A and others (in bit 1) one of B: two wavefronts a read.
    let lane = lane_id();
    let (lane_m, lane_n) = (lane >> 1u32 & 3u32, (lane & 1u32) | (lane >> 3u32 << 1u32));
    let warps_m = rows / (LANES.0 * thread_m);
    let (warp_m, warp_n) = (warp_id() % warps_m, warp_id() / warps_m);
    let (apart_m, apart_n) = (LANES.0 * vector, LANES.1 * vector);
    let row = warp_m * (LANES.0 * thread_m) + lane_m * vector;
    let column = warp_n * (LANES.1 * thread_n) + lane_n * vector;
    let read_step = |slot: Val<u32>, step: u32| {
        let a = read(ring_a.at(slot), row, apart_m, step, thread_m);
        let b = read(ring_b.at(slot), column, apart_n, step, thread_n);
        (a, b)
    };

    // All slots but one are filled ahead; the last is the one being used.
    for ahead in unroll(0..stages - 1) {
        fetch_step(val(ahead), val(ahead));
        copy_commit();
    }
    copy_wait(stages - 2);
    barrier();

    let mut sums = vec![vec![val(T::ZERO); thread_n as usize]; thread_m as usize];
    let (mut full, mut free) = (val(0u32), val(stages - 1));
    let (mut a, mut b) = read_step(full, 0);
    for step in 0..steps {
        for kk in unroll(0..depth) {
            if kk == depth - 1 {
                // The next tile must have arrived, and everybody be done with this one.
                copy_wait(stages - 2);
                barrier();
                full = select(full == stages - 1, 0, full + 1);
            }
            let (next_a, next_b) = read_step(full, (kk + 1) % depth);
            if kk == 0 {
                // One tile more than there are, of zeros: reading runs a step ahead.
                if step + (stages - 1) <= steps {
                    fetch_step(step + (stages - 1), free);
                }
                copy_commit();
                free = select(free == stages - 1, 0, free + 1);
            }
            for (sums, &a) in sums.iter_mut().zip(&a) {
                for (sum, &b) in sums.iter_mut().zip(&b) {
                    *sum = a.mul_add(b, *sum);
                }
            }
            (a, b) = (next_a, next_b);
        }
    }

    let mut output = Output::<T>::declare(&problem, (m, n));
    // The thread's elements lie in square blocks of neighbours.
    let mut finish = |sums: &[Vec<Val<T>>]| {
        for i in (0..thread_m).step_by(vector as usize) {
            for j in (0..thread_n).step_by(vector as usize) {
                let line = |r: u32| (j..j + vector).map(|c| sums[(i + r) as usize][c as usize]).collect();
                let block: Vec<Vec<Val<T>>> = (0..vector).map(line).collect();
                let at = (top + row + i / vector * apart_m, left + column + j / vector * apart_n);
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
