//! How many threads a program has, and how many registers they can have.
//!
//! A kernel may say so itself. If it does not, [`team`] looks at what it does with its largest tile, and [`resident`] at what its threads then
//! hold. The numbers are those that an H200 was fastest with, among some hundreds of others for each of softmax, RMSNorm and LayerNorm of rows of
//! 1536 to 65536 columns, and of causal softmax, gradients and scans for what differs there. That loops of short rows hold as much as those of
//! long ones, how many registers they then have, and how many three products or more need, follows from counts alone.

use tilewright_hardware::Arch;
use tilewright_ir::{Func, Op, Opcode, Type, Value};
use tilewright_passes::Alignment;

use super::assign::{Plan, accessed, bytes, memory_order, repeated, tiles};
use super::dot;
use super::layout::Team;
use super::pressure::{fan_out, finds_places, kept_by_loops, moves_halves};

/// What one thread should hold of the largest tile: four accesses of 16 bytes keep memory busy. Half of that is enough where threads combine
/// what they hold and do little else: then there are twice as many, and some compute while others wait for memory. So it is where they make
/// several tiles of several others.
const BYTES_OF_THREAD: u32 = 64;

/// What one block should hold of the largest tile: an H200 was fastest with this much, alone or in a cluster. Less of it where threads combine
/// what they hold, since they wait for each other, and where they do little else.
const ELEMENTS_OF_BLOCK: u32 = 1 << 14;
const ELEMENTS_OF_SMALL_BLOCK: u32 = 1 << 13;
const BYTES_OF_LIGHT_BLOCK: u32 = 16 << 10;

/// What one thread can hold of the largest tile, with registers left for what it computes.
const ELEMENTS_OF_THREAD: u32 = 64;

/// What one thread can keep in registers while a loop goes round, if it has 128 of them; and how many such threads a multiprocessor has registers
/// for. On an H200, half as many with twice the registers were slower by a quarter, and two blocks that share them by a twentieth.
const BYTES_OF_LOOP: u32 = 96 * 4;
const THREADS_OF_LOOP: u32 = 512;

/// What such a loop keeps for each element at least, where that decides about registers: four words, as loops over rows that add up gradients.
const CROWD: u32 = 4 * 4;

/// How many threads a program gets: what the kernel says, or what suits its largest tile.
pub(super) fn team(func: &Func, arch: Arch, align: &Alignment) -> Team {
    let work = Work::of(func, align);
    let blocks = func.launch.cluster.map(|cluster| cluster.iter().product::<u32>());
    let blocks = blocks.unwrap_or_else(|| work.blocks(arch));
    let warps = func.launch.total_threads().map(|threads| threads.div_ceil(32));
    let warps = warps.unwrap_or_else(|| if work.multiplies { dot::warps(func) } else { work.warps(blocks) });
    Team { warps, blocks }
}

/// What a program does to its largest tile.
struct Work {
    elements: u32,
    /// Of an element and of the tile, and elements of one access.
    of_element: u32,
    bytes: u32,
    vector: u32,
    /// Loads of tiles of about that size.
    loads: usize,
    multiplies: bool,
    scans: bool,
    combines: bool,
    /// Whether it combines elements and does little else. Masks take registers and time: then threads hold more, and there are fewer of them.
    light: bool,
    /// How much of it a thread has registers for, if a loop carries tiles: those stay where they are.
    crowded: Option<u32>,
    fan_out: usize,
}

impl Work {
    fn of(func: &Func, align: &Alignment) -> Work {
        let repeated = repeated(func);
        let accesses = func.walk().into_iter().filter_map(|op| {
            let tile = accessed(func.op(op))?;
            Some((repeated.contains(&op), func.ty(tile), memory_order(func, align, func.op(op))?))
        });
        let all = tiles(func).map(|(value, _)| func.ty(value));
        let (ty, vector) = match accesses.max_by_key(|(again, ty, _)| (*again, ty.bits())) {
            Some((_, ty, order)) => (ty, order.vector),
            None => (all.max_by_key(|ty| ty.bits()).unwrap_or(Type::F32), 1),
        };
        let elements = ty.shape().map_or(1, |shape| shape.elements());
        let has = |code: Opcode| func.walk().into_iter().any(|op| func.op(op).code == code);
        let (multiplies, scans) = (has(Opcode::Dot), has(Opcode::TileScan));
        let combines = has(Opcode::TileReduce) && !scans;
        let is_wide = |op: &Op| {
            let data = func.op(*op);
            let shape = data.results.first().and_then(|&tile| func.ty(tile).shape());
            data.code == Opcode::TileLoad && shape.is_some_and(|shape| shape.elements() > elements / 2)
        };
        let kept = kept_by_loops(func, elements);
        Work {
            elements,
            of_element: ty.element().map_or(4, bytes),
            bytes: ty.bits() / 8,
            vector,
            loads: func.walk().iter().filter(|op| is_wide(op)).count(),
            multiplies,
            scans,
            combines,
            light: combines && !has(Opcode::Iota),
            crowded: (kept > 0 && !multiplies)
                .then(|| 1 << (BYTES_OF_LOOP / kept).clamp(1, ELEMENTS_OF_THREAD).ilog2()),
            fan_out: fan_out(func, elements),
        }
    }

    /// Blocks of a program.
    fn blocks(&self, arch: Arch) -> u32 {
        let of_block = match self.crowded {
            Some(of_thread) => of_thread * THREADS_OF_LOOP,
            None if self.light => BYTES_OF_LIGHT_BLOCK / self.of_element,
            None if (self.combines || self.scans) && self.elements > ELEMENTS_OF_BLOCK => {
                ELEMENTS_OF_SMALL_BLOCK
            }
            None => ELEMENTS_OF_BLOCK,
        };
        let clusters = arch.supports(Arch::SM_90) && !self.multiplies;
        if clusters { self.elements.div_ceil(of_block).next_power_of_two().min(8) } else { 1 }
    }

    /// Warps of a block, of so many that a program has.
    fn warps(&self, blocks: u32) -> u32 {
        let wanted =
            if blocks == 1 { self.warps_alone().clamp(1, 16) } else { self.warps_of_cluster(blocks) };
        let least = self.elements.div_ceil(blocks * self.crowded.unwrap_or(ELEMENTS_OF_THREAD) * 32).min(32);
        let fills = self.crowded.is_some() && least * 32 >= THREADS_OF_LOOP;
        let wanted = if fills { least } else { wanted.max(least).min(32) };
        // Pieces of one warp each; a number of warps that divides them leaves nobody idle.
        let pieces = self.elements.div_ceil(self.vector * 32 * blocks);
        let fits = |w: &u32| pieces.is_multiple_of(*w) && 2 * w >= wanted && *w <= 2 * wanted;
        let near = (1..=32).filter(|w| fits(w) && (self.crowded.is_none() || *w >= least));
        near.min_by_key(|w| w.abs_diff(wanted)).unwrap_or(wanted)
    }

    fn warps_alone(&self) -> u32 {
        let holding = |bytes: u32| self.bytes.div_ceil(bytes * 32);
        let is_long = self.elements > ELEMENTS_OF_SMALL_BLOCK / 2;
        if self.light && !is_long {
            return self.bytes / (BYTES_OF_THREAD / 2 * 32);
        }
        if self.combines && is_long {
            return match (self.loads, self.elements) {
                (3.., 0..=ELEMENTS_OF_SMALL_BLOCK) => holding(BYTES_OF_THREAD),
                _ => self.elements.div_ceil(ELEMENTS_OF_THREAD / 2 * 32).min(16),
            };
        }
        holding(if self.fan_out > 4 { BYTES_OF_THREAD / 2 } else { BYTES_OF_THREAD })
    }

    /// A block of a cluster takes as much as it can hold, with few warps that wait for each other; of halves fewer than of words.
    fn warps_of_cluster(&self, blocks: u32) -> u32 {
        let least = if self.of_element < 4 && (self.light || self.loads > 2) { 4 } else { 8 };
        self.elements.div_ceil(blocks * ELEMENTS_OF_THREAD * 32).max(least)
    }
}

/// Blocks that shall share a multiprocessor, so that some load while others compute: as many as leave each thread room for what it loads,
/// which stays packed, and for what it computes.
pub(super) fn resident(plan: &Plan, func: &Func) -> u32 {
    let held = |value: Value| plan.layout(value).map_or(0, |layout| layout.count());
    let most = tiles(func).map(|(value, _)| held(value)).max().unwrap_or(0);
    // How many elements of two words a thread holds at most. There may be more of them than there is room for otherwise.
    let is_double = |value: Value| func.ty(value).element().is_some_and(|e| bytes(e) > 4);
    let doubles = tiles(func).map(|(value, _)| value).filter(|&value| is_double(value)).map(held).max();
    let doubles = doubles.unwrap_or(0);
    let doubled = doubles > 16;
    let is_load = |op: &Op| func.op(*op).code == Opcode::TileLoad;
    let loaded = |op: Op| {
        let tile = accessed(func.op(op))?;
        let count = u32::try_from(plan.layout(tile)?.count()).ok()?;
        Some(count * bytes(func.ty(tile).element()?))
    };
    let words = func.walk().into_iter().filter(is_load).filter_map(loaded).sum::<u32>().div_ceil(4);
    let largest = tiles(func).map(|(_, shape)| shape.elements()).max().unwrap_or(0);
    let fan_out = fan_out(func, largest);
    let dots = func.walk().into_iter().map(|op| func.op(op)).filter(|data| data.code == Opcode::Dot);
    let (dots, sums) = dots.fold((0, 0), |(n, sums), data| (n + 1, sums + held(data.results[0])));
    let crowded = dots == 0 && kept_by_loops(func, largest) >= CROWD;
    let registers = match (most, words) {
        // Sums of several products, of which one may go on while the other is used.
        _ if sums > 96 => 255,
        // With three or more, as in gradients of attention, results of some are factors of others: next to nothing of it can go meanwhile.
        _ if dots > 2 && sums > 32 => (u32::try_from(sums).unwrap_or(0) + words + 64).min(255),
        _ if crowded => 65536 / THREADS_OF_LOOP,
        _ if doubles >= 32 => 168,
        // Of small blocks there are many, with more registers as well.
        (0..=32, _) if doubled && plan.team.warps <= 4 => 96,
        (17..=32, _) if fan_out > 0 => 96,
        (0..=32, _) if doubled || plan.team.blocks > 1 && finds_places(func) => 80,
        (17..=32, 33..=48) if plan.team.warps <= 4 => 96,
        (0..=32, 0..=48) => 64,
        (0..=32, _) => 80,
        // What is loaded as halves and stored as halves needs little beside.
        (33..=64, 0..=96) if plan.team.blocks > 1 && moves_halves(func) => 96,
        _ => 128,
    };
    (65536 / (registers * 32 * plan.team.warps)).clamp(1, 16)
}
