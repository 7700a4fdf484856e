//! From shared memory to registers: the operands of `mma.sync`, whatever their size and whichever index is contiguous.
//!
//! 8-bit elements across the storage are the hard case, since a register holds four neighbours along k and memory has four along m or n.
//! A thread reads four words that are neighbours along k and transposes the four times four bytes in registers. It then has four rows
//! side by side, so rows 4g to 4g + 3 of each 32 become row g of four products: a permutation of the rows of a tile that
//! [`Order`] describes and that the way out undoes.

use tilewright_hardware::Element as Kind;
use tilewright_lang::prelude::*;

use super::load::{Pointers, Reading, Side, element_at};

/// Which rows of a tile the products of a warp have, in units of lanes: group g = lane / 4 has rows, t = lane % 4 pairs of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Order {
    /// As the instruction numbers them.
    Straight,
    /// Four rows of a lane lie side by side: row 4g + p of 32 is row g of the p-th eight.
    Interleaved,
}

impl Order {
    pub(super) fn of(side: &Side) -> Order {
        if side.reading() == Reading::Bytes { Order::Interleaved } else { Order::Straight }
    }

    /// Row `g` of eighth number `eight` is row `step * g + first`: the step and the first.
    pub(super) fn rows(self, eight: u32) -> (u32, u32) {
        match self {
            Order::Straight => (1, 8 * eight),
            Order::Interleaved => (4, eight / 4 * 32 + eight % 4),
        }
    }

    /// Rows that belong together: a strip of them is a whole number of products.
    pub(super) fn unit(self) -> u32 {
        match self {
            Order::Straight => 16,
            Order::Interleaved => 32,
        }
    }
}

/// Reads the fragments of one factor. Of its type only what makes fragments knows.
pub(super) struct Reader<'a> {
    side: &'a Side,
    memory: Shared<u8>,
    /// The warp's position among those that split the rows.
    warp: Val<u32>,
    /// For [`Reading::Elements`], the lane's first element. For [`Reading::Bytes`], its words: four for each 32 rows.
    pointers: Vec<(SharedPtr<u8>, u32)>,
}

impl<'a> Reader<'a> {
    /// `warps` says which warp of those that split the rows a warp of the block is: on the host and staged.
    #[track_caller]
    pub(super) fn new(
        side: &'a Side,
        memory: Shared<u8>,
        threads: u32,
        warps: (&dyn Fn(u32) -> u32, Val<u32>),
    ) -> Reader<'a> {
        let (of_warp, warp) = warps;
        let mut known = Pointers::new(side, threads);
        let (group, quarter) = (lane_id() / 4, lane_id() % 4);
        let mut at = |rows_of_group: u32, row: u32, k_of_quarter: u32, k: u32| {
            let host = |t: u32| {
                let lane = t % 32;
                let first = of_warp(t / 32) * side.warp_rows + row;
                (first + lane / 4 * rows_of_group, lane % 4 * k_of_quarter + k)
            };
            known.at(&host, &|| {
                let first = warp * side.warp_rows + row;
                element_at(side, memory, first + group * rows_of_group, quarter * k_of_quarter + k)
            })
        };
        let pointers = match side.reading() {
            Reading::Matrices => Vec::new(),
            Reading::Elements => vec![at(1, 0, 1, 0)],
            Reading::Bytes => {
                let words = (0..side.warp_rows / 32).flat_map(|block| (0..4).map(move |i| (block, i)));
                words.map(|(block, i)| at(4, block * 32, 4, i)).collect()
            }
        };
        Reader { side, memory, warp, pointers }
    }

    /// The fragments of A for one product along k.
    #[track_caller]
    pub(super) fn left<A: Element, B: Element, C: Number>(
        &self,
        mma: WarpMma<A, B, C>,
        stage: Val<u32>,
        k: u32,
    ) -> Vec<Fragment<A>> {
        let (rows, _, depth) = mma.shape();
        let count = self.side.warp_rows / rows;
        match self.side.reading() {
            Reading::Matrices => {
                let tile = self.tile(stage);
                (0..count).map(|i| rounded(mma.load_a(tile, i, k))).collect()
            }
            _ => {
                let runs = self.runs(stage, (rows, depth), k);
                runs.into_iter().map(|runs| in_order(&runs, |f| mma.gather_a(f))).collect()
            }
        }
    }

    /// The fragments of B for one product along k.
    #[track_caller]
    pub(super) fn right<A: Element, B: Element, C: Number>(
        &self,
        mma: WarpMma<A, B, C>,
        stage: Val<u32>,
        k: u32,
    ) -> Vec<Fragment<B>> {
        let (_, columns, depth) = mma.shape();
        let count = self.side.warp_rows / columns;
        match self.side.reading() {
            Reading::Matrices => {
                let tile = self.tile(stage);
                let pairs: Vec<[Fragment<B>; 2]> =
                    (0..count / 2).map(|j| mma.load_b_pair(tile, 2 * j, k).map(rounded)).collect();
                pairs.concat()
            }
            _ => {
                let runs = self.runs(stage, (columns, depth), k);
                runs.into_iter().map(|runs| in_order(&runs, |f| mma.gather_b(f))).collect()
            }
        }
    }

    /// The rows of this warp in a stage.
    #[track_caller]
    fn tile<T: Element>(&self, stage: Val<u32>) -> Shared<T> {
        let tile = self.memory.part::<T>(stage + self.side.offset, &self.side.layout);
        tile.row_block(self.warp, self.side.warp_rows)
    }

    /// For each product the runs of its fragment, in the order of its registers: eight rows after eight rows, then along k.
    #[track_caller]
    fn runs<T: Element>(&self, stage: Val<u32>, (rows, depth): (u32, u32), k: u32) -> Vec<Vec<Vector<T>>> {
        if self.side.reading() == Reading::Bytes {
            return self.transposed(stage, (rows, depth), k);
        }
        let (pointer, _) = self.pointers[0];
        let pointer = pointer.cast::<T>().byte_add(stage);
        let run = |row: u32, k: u32| {
            let at = self.side.place(row, k) - self.side.place(0, 0);
            Vector::new([load_rounded(pointer.byte_add(at))])
        };
        let mut products = vec![Vec::new(); (self.side.warp_rows / rows) as usize];
        for (i, runs) in (0u32..).zip(&mut products) {
            for j in 0..depth / 4 {
                for half in 0..rows / 8 {
                    runs.push(run(i * rows + 8 * half, k * depth + 4 * j));
                }
            }
        }
        products
    }

    /// The same for 8-bit elements across the storage.
    #[track_caller]
    fn transposed<T: Element>(
        &self,
        stage: Val<u32>,
        (rows, depth): (u32, u32),
        k: u32,
    ) -> Vec<Vec<Vector<T>>> {
        let halves = depth / 16;
        // eights[e][h]: the register of eight rows number e, half h of the depth.
        let mut eights = vec![Vec::new(); (self.side.warp_rows / 8) as usize];
        for block in 0..self.side.warp_rows / 32 {
            for half in 0..halves {
                // 16 along k lie on other lines, where the swizzle is the same.
                let more = self.side.place(0, 16 * half + depth * k);
                let words = [0, 1, 2, 3].map(|i| {
                    let (pointer, constant) = self.pointers[(4 * block + i) as usize];
                    pointer.cast::<u32>().byte_add(stage).byte_add(constant + more).load()
                });
                for (p, word) in transpose(words).into_iter().enumerate() {
                    eights[4 * block as usize + p].push(Vector::new([word]).bitcast::<T>());
                }
            }
        }
        let mut products = Vec::new();
        for eights in eights.chunks((rows / 8) as usize) {
            let mut runs = Vec::new();
            for half in 0..halves as usize {
                runs.extend(eights.iter().map(|eight| eight[half]));
            }
            products.push(runs);
        }
        products
    }
}

/// Byte `j` of word `i` becomes byte `i` of word `j`.
#[track_caller]
fn transpose(words: [Val<u32>; 4]) -> [Val<u32>; 4] {
    let [a, b, c, d] = words;
    let (ab_low, ab_high) = (a.permute_bytes(b, 0x5140u32), a.permute_bytes(b, 0x7362u32));
    let (cd_low, cd_high) = (c.permute_bytes(d, 0x5140u32), c.permute_bytes(d, 0x7362u32));
    [
        ab_low.permute_bytes(cd_low, 0x5410u32),
        ab_low.permute_bytes(cd_low, 0x7632u32),
        ab_high.permute_bytes(cd_high, 0x5410u32),
        ab_high.permute_bytes(cd_high, 0x7632u32),
    ]
}

/// The fragment of these runs.
#[track_caller]
fn in_order<T: Element>(
    runs: &[Vector<T>],
    gather: impl FnOnce(&mut dyn FnMut(Val<u32>, Val<u32>, u32) -> Vector<T>) -> Fragment<T>,
) -> Fragment<T> {
    let mut next = 0;
    gather(&mut |_, _, _| {
        next += 1;
        runs[(next - 1) % runs.len()]
    })
}

/// tf32 lies in memory as f32; tensor cores would drop the bits that it does not have.
#[track_caller]
fn rounded<T: Element>(fragment: Fragment<T>) -> Fragment<T> {
    if T::ELEMENT == Kind::TF32 { fragment.map(|x| x.bitcast::<f32>().cast::<T>()) } else { fragment }
}

#[track_caller]
fn load_rounded<T: Element>(at: SharedPtr<T>) -> Val<T> {
    if T::ELEMENT == Kind::TF32 { at.cast::<f32>().load().cast() } else { at.load() }
}
