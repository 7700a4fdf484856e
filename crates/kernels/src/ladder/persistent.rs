//! Step 10, persistent blocks: one block a multiprocessor walks over many tiles, in an order that L2 likes, and stores one tile while
//! it multiplies the next.

use tilewright_lang::prelude::*;

use crate::examples::GemmTile;

/// Rows of tiles that are walked together, column by column.
const GROUP: u32 = 8;

/// Row and column of tile number `index`. Tiles that are computed at the same time form a patch of the result, so that they share
/// rows of `a` and rows of `b` in L2.
#[device]
pub(super) fn place(index: Val<u32>, rows: Val<u32>, columns: Val<u32>) -> (Val<u32>, Val<u32>) {
    let first = index / (columns * GROUP) * GROUP;
    let within = index % (columns * GROUP);
    let height = min(rows - first, GROUP);
    (first + within % height, within / height)
}

/// `c = a * b^T`, a result of `rows` times `columns` tiles. Any number of blocks.
#[kernel(threads = 384, min_blocks = 1)]
pub fn ladder_persistent(
    a: TensorMap<bf16>,
    b: TensorMap<bf16>,
    c: TensorMap<bf16>,
    rows: Val<u32>,
    columns: Val<u32>,
    steps: Val<u32>,
    tile: GemmTile,
) {
    let loader = Role { name: "loader", warps: 0..4, registers: Some(40) };
    let math = Role { name: "math", warps: 4..12, registers: Some(232) };

    let ring_a = Ring::<bf16>::new(tile.stages, k_major::<bf16>(tile.m, tile.k, SwizzleMode::B128));
    let ring_b = Ring::<bf16>::new(tile.stages, k_major::<bf16>(tile.n, tile.k, SwizzleMode::B128));
    let result = Shared::<bf16>::new(k_major::<bf16>(tile.m, tile.n, SwizzleMode::B128));
    let pipe = Pipeline::new(tile.stages, 2);
    let tiles = rows * columns;
    barrier();

    // The loader runs ahead: while the others store a tile, the ring fills with the next one.
    role(&loader, || {
        if warp_id() == 0 && elect() {
            let mut slot = pipe.producer();
            for index in (block_id(0)..tiles).step_by(grid_size(0)) {
                let (row, column) = place(index, rows, columns);
                for step in 0..steps {
                    let full = pipe.acquire(slot, (tile.m + tile.n) * tile.k * 2);
                    a.load(row * tile.m, step * tile.k, ring_a.at(slot.index), full);
                    b.load(column * tile.n, step * tile.k, ring_b.at(slot.index), full);
                    slot = slot.next();
                }
            }
        }
    });

    role(&math, || {
        let group = warpgroup_id() - 1;
        let first = thread_id(0) % 128 == 0;
        let together = NamedBarrier::new(group + 1, 128);
        let mine = result.row_block(group, tile.m / 2);
        let mut slot = pipe.consumer();
        for index in (block_id(0)..tiles).step_by(grid_size(0)) {
            let sums = Accumulator::<f32>::new(tile.m / 2, tile.n);
            let mut before = slot;
            for step in 0..steps {
                pipe.wait(slot);
                let my_rows = ring_a.at(slot.index).row_block(group, tile.m / 2);
                sums.multiply(my_rows, ring_b.at(slot.index), step > 0);
                sums.wait(1);
                if step > 0 && first {
                    pipe.release(before);
                }
                before = slot;
                slot = slot.next();
            }
            let parts = sums.finish();
            if first {
                pipe.release(before);
                // The copy engine has read the tile before this one, so its memory is free.
                bulk_wait_read(0);
            }
            together.wait();

            for (i, part) in (0u32..).zip(parts) {
                part.cast::<bf16>().store_matrix(mine.row_block(i, 64));
            }
            fence_async();
            together.wait();
            if first {
                let (row, column) = place(index, rows, columns);
                c.store(row * tile.m + group * (tile.m / 2), column * tile.n, mine);
                bulk_commit();
            }
        }
        if first {
            bulk_wait(0);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tilewright_compiler::Compiler;
    use tilewright_hardware::Arch;
    use tilewright_sim::{Arg, Launch, Module, Options, Simulator};

    use super::*;

    /// Rows and columns of all tiles, in order.
    #[kernel(threads = 128)]
    fn order(out: Global<u32>, rows: Val<u32>, columns: Val<u32>) {
        for index in (thread_id(0)..rows * columns).step_by(128) {
            let (row, column) = place(index, rows, columns);
            out.at(index * 2).store(row);
            out.at(index * 2 + 1).store(column);
        }
    }

    fn places(rows: u32, columns: u32) -> Vec<(u32, u32)> {
        let code = Compiler::new(Arch::SM_90A).compile(order::stage().unwrap().func()).unwrap().code;
        let mut sim = Simulator::new(Options::default());
        let out = sim.alloc_named("out", (rows * columns * 8) as usize);
        let arguments = [Arg::Buffer(out), Arg::U32(rows), Arg::U32(columns)];
        let module = Module::parse(&code.text).unwrap();
        let report = sim.launch(&module, "order", &Launch::new(1, 128), &arguments).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        sim.download::<u32>(out).unwrap().chunks(2).map(|place| (place[0], place[1])).collect()
    }

    #[test]
    fn every_tile_is_computed_once() {
        for (rows, columns) in [(1, 1), (8, 3), (13, 5), (7, 4), (24, 1)] {
            let all: BTreeSet<_> = places(rows, columns).into_iter().collect();
            let expected = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            assert!(all.into_iter().eq(expected), "{rows} x {columns}");
        }
    }

    /// What `docs/gemm.md` says about 8192 x 8192.
    #[test]
    fn tiles_of_one_round_share_rows_and_columns() {
        let round = &places(64, 32)[..132];
        let (rows, columns): (BTreeSet<u32>, BTreeSet<u32>) = round.iter().copied().unzip();
        assert_eq!((rows.len(), columns.len()), (8, 17));
        assert_eq!(rows.len() * 128 + columns.len() * 256, 5376);
    }
}
