//! Split-K: blocks that share a tile of D leave their sums in scratch memory, and the last to arrive adds them up.
//!
//! Nobody waits. The sums are added in the order of k whoever is last, its own included, so the result is the same in every run.

use tilewright_lang::Argument;
use tilewright_lang::prelude::*;

/// The scratch memory of a product: one slot for each tile and part, and how many parts of each tile have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partials {
    slots: Global<u8>,
    counters: Global<u32>,
}

/// Loads of partial sums that are under way at once.
const PIECES_AHEAD: u32 = 8;

/// The sums of a warp, product by product.
pub(super) type Sums<C> = Vec<Vec<Fragment<C>>>;

impl Partials {
    /// Declares the parameters `partials` and `counters`.
    pub(super) fn declare() -> Partials {
        Partials { slots: Argument::declare("partials"), counters: Argument::declare("counters") }
    }

    /// Where this thread keeps its sums of a part of a tile.
    #[track_caller]
    fn slot(self, tile: Val<u32>, parts: Val<u32>, part: Val<u32>, bytes: u32, threads: u32) -> Global<u8> {
        let slot = tile.cast::<u64>() * parts.cast::<u64>() + part.cast::<u64>();
        self.slots.byte_add(slot * u64::from(bytes * threads)).byte_add(thread_id(0) * 16)
    }

    /// Leaves the sums of a part. Says whether all other parts of the tile have arrived before.
    #[device]
    pub(super) fn leave<C: Number>(
        self,
        tile: Val<u32>,
        parts: Val<u32>,
        part: Val<u32>,
        sums: &Sums<C>,
        threads: u32,
    ) -> Val<bool> {
        let to = self.slot(tile, parts, part, bytes(sums), threads);
        for (i, piece) in (0u32..).zip(pieces(sums)) {
            to.byte_add(i * threads * 16).cast::<C>().store_vector(piece);
        }
        // The sums of all threads come before the count, and the count before what the last block reads.
        let arrived = Shared::<u32>::new("1:1").ptr();
        fence(Order::AcqRel, Scope::Gpu);
        barrier();
        if thread_id(0) == 0 {
            let before = self.counters.at(tile).atomic(Combine::Add, 1, Order::AcqRel, Scope::Gpu);
            if before + 1 == parts {
                self.counters.at(tile).store_with(0, Access::new().relaxed(Scope::Gpu));
            }
            arrived.store(before);
        }
        barrier();
        fence(Order::AcqRel, Scope::Gpu);
        arrived.load() + 1 == parts
    }

    /// The sums of all parts of a tile, added in the order of k.
    #[device]
    pub(super) fn total<C: Number>(
        self,
        tile: Val<u32>,
        parts: Val<u32>,
        sums: &Sums<C>,
        threads: u32,
    ) -> Sums<C> {
        let each = 16 / C::ELEMENT.bytes();
        let count = u32::try_from(pieces(sums).len()).unwrap_or(0);
        let mut total = Vec::new();
        // One loop for some pieces at a time: the loads of all would not fit in registers beside the sums.
        for first in (0..count).step_by(PIECES_AHEAD as usize) {
            let some = first..count.min(first + PIECES_AHEAD);
            let load = |part: Val<u32>| -> Vec<Vector<C>> {
                let from = self.slot(tile, parts, part, bytes(sums), threads);
                let load = |i| from.byte_add(i * threads * 16).cast::<C>().load_vector(each);
                some.clone().map(load).collect()
            };
            let mut sum = load(val(0));
            for part in val(1)..parts {
                sum = sum.into_iter().zip(load(part)).map(|(sum, more)| sum + more).collect();
            }
            total.extend(sum);
        }
        like(sums, &total)
    }
}

/// Fragments like those of `sums` with other pieces.
#[track_caller]
fn like<C: Number>(sums: &Sums<C>, pieces: &[Vector<C>]) -> Sums<C> {
    let mut rest = pieces.iter().copied();
    let mut fragment = |sum: &Fragment<C>| {
        let count = (*sum).values().len() * C::ELEMENT.bytes() / 16;
        sum.with_values(Vector::concat(rest.by_ref().take(count as usize)))
    };
    sums.iter().map(|row| row.iter().map(&mut fragment).collect()).collect()
}

/// Bytes of the sums of a thread.
fn bytes<C: Number>(sums: &Sums<C>) -> u32 {
    sums.iter().flatten().map(|sum| (*sum).values().len() * C::ELEMENT.bytes()).sum()
}

/// The sums of a thread in pieces of 16 bytes.
fn pieces<C: Number>(sums: &Sums<C>) -> Vec<Vector<C>> {
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
