//! The kernel: a ring of tiles filled by asynchronous copies, `mma.sync` on registers, one block for one tile of D (or, with split-K,
//! for a part of its depth).
//!
//! Fragments are read one product ahead of the multiplications, across the boundary of tiles too: the barrier that hands over the
//! next tile stands before the last product of the current one. Tiles beyond the end of k are copied like all others and become zero, so
//! nothing in the loop depends on where the end is.

use std::cell::RefCell;

use tilewright_lang::prelude::*;

use super::fragments::Reader;
use super::load::{Fetcher, Window};
use super::result::Output;
use super::{Plan, promoted};
use crate::gemm::epilogue::Place;
use crate::gemm::matrix::GlobalMatrix;
use crate::gemm::split::Shares;

/// What a block computes.
struct Work {
    member: Val<u32>,
    part: Val<u32>,
    /// Number of the tile in its product.
    tile: Val<u32>,
    row: Val<u32>,
    column: Val<u32>,
}

/// Tiles go in groups of `group` rows of tiles, each group column by column, so that blocks that run at the same time share
/// what they read of A and of B.
#[device]
fn work(m: Val<u32>, n: Val<u32>, group: Val<u32>, parts: Val<u32>, plan: &Plan) -> Work {
    let (down, across) = (div_ceil(m, plan.config.m), div_ceil(n, plan.config.n));
    let tiles = down * across;
    let several = plan.split || plan.problem.batch > 1;
    let (rest, tile) =
        if several { (block_id(0) / tiles, block_id(0) % tiles) } else { (val(0), block_id(0)) };
    let (member, part) = if plan.split { (rest / parts, rest % parts) } else { (rest, val(0)) };
    let (before, inside) = (tile / (group * across) * group, tile % (group * across));
    let rows = min(down - before, group);
    let (row, column) = (before + inside % rows, inside / rows);
    Work {
        member,
        part,
        tile: member * tiles + tile,
        row: row * plan.config.m,
        column: column * plan.config.n,
    }
}

/// `D = epilogue(A * B)`. Every extent is a parameter of the launch.
#[kernel(threads = plan.config.threads(), min_blocks = 1, name = "gemm_ampere")]
pub(super) fn product<A: Element, B: Element, C: Number, R: Number>(
    m: Val<u32>,
    n: Val<u32>,
    k: Val<u32>,
    group: Val<u32>,
    parts: Val<u32>,
    steps_of_part: Val<u32>,
    plan: Plan,
) {
    overlap_grids();
    let (problem, config) = (&plan.problem, plan.config);
    let a = GlobalMatrix::declare("a", &problem.a, plan.a.element, problem.batching);
    let b = GlobalMatrix::declare("b", &problem.b, plan.b.element, problem.batching);
    let d = GlobalMatrix::declare("d", &problem.d, problem.types.d, problem.batching);
    let epilogue = problem.epilogue.stage::<R>(problem).with_c_vector(problem.epilogue.c_vector(problem));
    let shares = plan.split.then(|| Shares::<C>::declare(plan.config.threads()));

    let mma = WarpMma::<A, B, C>::new(plan.shape);
    let (threads, stage_bytes) = (config.threads(), plan.stage_bytes());
    let memory = Shared::<u8>::new(format!("{}:1", plan.shared_bytes()).as_str());
    let work = work(m, n, group, parts, &plan);

    let steps = div_ceil(k, config.k);
    let first = work.part * steps_of_part;
    let steps = if plan.split { min(steps - first, steps_of_part) } else { steps };
    let depth = min(k, (first + steps) * config.k);
    let window = Window { member: work.member, row: work.row, rows: m, k: first * config.k, depth };
    let (fetch_a, mut next_a) = Fetcher::new(&plan.a, memory, threads, &a, window);
    let window = Window { row: work.column, rows: n, ..window };
    let (fetch_b, mut next_b) = Fetcher::new(&plan.b, memory, threads, &b, window);

    let (warp_row, warp_column) = (warp_id() / config.warps_n, warp_id() % config.warps_n);
    let reader_a = Reader::new(&plan.a, memory, threads, (&|warp| warp / config.warps_n, warp_row));
    let reader_b = Reader::new(&plan.b, memory, threads, (&|warp| warp % config.warps_n, warp_column));

    // All stages but one are filled ahead; the last is the one being used.
    for ahead in unroll(0..config.stages - 1) {
        next_a = fetch_a.fetch(next_a, val(ahead * stage_bytes));
        next_b = fetch_b.fetch(next_b, val(ahead * stage_bytes));
        copy_commit();
    }
    copy_wait(config.stages - 2);
    barrier();

    let last = (config.stages - 1) * stage_bytes;
    let (mut full, mut free) = (val(0u32), val(last));
    let mut left = reader_a.left(mma, full, 0);
    let mut right = reader_b.right(mma, full, 0);
    let (rows, columns) = plan.products();
    let zeros = || vec![vec![mma.zero(); columns as usize]; rows as usize];
    let promoted = promoted(problem);
    let mut sums = zeros();
    for _ in 0..steps {
        let mut recent = if promoted { zeros() } else { sums.clone() };
        for kk in unroll(0..config.k / config.inner) {
            if kk == 0 {
                next_a = fetch_a.fetch(next_a, free);
                next_b = fetch_b.fetch(next_b, free);
                copy_commit();
                free = select(free == last, 0, free + stage_bytes);
            }
            let ahead = (kk + 1) % (config.k / config.inner);
            if ahead == 0 {
                copy_wait(config.stages - 2);
                barrier();
                full = select(full == last, 0, full + stage_bytes);
            }
            let (left_ahead, right_ahead) =
                (reader_a.left(mma, full, ahead), reader_b.right(mma, full, ahead));
            for (row, a) in recent.iter_mut().zip(&left) {
                for (sum, b) in row.iter_mut().zip(&right) {
                    *sum = mma.multiply(*a, *b, *sum);
                }
            }
            (left, right) = (left_ahead, right_ahead);
        }
        sums = if promoted { added(&sums, &recent) } else { recent.clone() };
    }
    // The tiles are done with, and their memory gets another use.
    copy_wait(0);
    barrier();

    let (warp_m, warp_n) = config.warp_tile();
    let corner = Place {
        batch: work.member,
        row: work.row + warp_row * warp_m,
        column: work.column + warp_column * warp_n,
        bounds: Some((m, n)),
    };
    let strips = plan.strips();
    let scratch = memory.ptr().byte_add(warp_id() * strips.bytes()).cast::<C>();
    let output = Output { epilogue: RefCell::new(epilogue), d, strips };
    match shares {
        None => output.store(&sums, corner, scratch),
        Some(shares) => {
            let (last, total) = shares.combine(work.tile, (work.part, parts), &pieces(&sums));
            if last {
                output.store(&fragments(&sums, &total), corner, scratch);
            }
        }
    }
}

/// The sums of a thread in pieces of 16 bytes.
fn pieces<C: Number>(sums: &[Vec<Fragment<C>>]) -> Vec<Vector<C>> {
    let each = 16 / C::ELEMENT.bytes();
    let of = |sum: &Fragment<C>| {
        let values = (*sum).values();
        (0..values.len())
            .step_by(each as usize)
            .map(move |first| values.slice(first, each))
            .collect::<Vec<_>>()
    };
    sums.iter().flatten().flat_map(of).collect()
}

/// Fragments like those of `sums`, of other pieces.
#[track_caller]
fn fragments<C: Number>(sums: &[Vec<Fragment<C>>], pieces: &[Vector<C>]) -> Vec<Vec<Fragment<C>>> {
    let mut rest = pieces.iter().copied();
    let mut fragment = |sum: &Fragment<C>| {
        let count = (*sum).values().len() * C::ELEMENT.bytes() / 16;
        sum.with_values(Vector::concat(rest.by_ref().take(count as usize)))
    };
    sums.iter().map(|row| row.iter().map(&mut fragment).collect()).collect()
}

fn added<C: Number>(x: &[Vec<Fragment<C>>], y: &[Vec<Fragment<C>>]) -> Vec<Vec<Fragment<C>>> {
    let add = |(&x, &y): (&Fragment<C>, &Fragment<C>)| x.with_values(x.values() + y.values());
    x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(add).collect()).collect()
}
