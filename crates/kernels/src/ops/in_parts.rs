//! [`InParts`]: how a program takes rows of which it may need only the first columns.
//!
//! The row is cut into parts that follow each other, and all threads of the program share each of them. So all have equally much to do however
//! many columns are needed, and what comes behind those costs one test for each part.

use super::ahead::rows_ahead;

/// How a program takes a row, or a few short ones side by side: part by part, each of them by all threads.
///
/// ```
/// use tilewright_kernels::ops::InParts;
///
/// // 128 threads read 16 bytes each, four times.
/// let row = InParts::of(4096, 2, true);
/// assert_eq!((row.parts, row.width, row.threads, row.blocks), (4, 1024, 128, 1));
/// // A row of 256 KiB takes a cluster.
/// assert_eq!(InParts::of(65536, 4, true).blocks, 8);
/// assert_eq!(InParts::of(65536, 4, false).blocks, 1);
/// // Two rows of 3 KiB keep a block busy that one would not.
/// let row = InParts::of(1536, 2, true);
/// assert_eq!((row.rows, row.parts, row.width, row.threads), (2, 6, 256, 32));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InParts {
    /// How many rows a program takes side by side.
    pub rows: u32,
    /// How many parts there are.
    pub parts: u32,
    /// Columns of each.
    pub width: u32,
    /// Threads of a block for each row.
    pub threads: u32,
    /// Blocks of a program.
    pub blocks: u32,
}

/// Bytes that a thread reads at a time.
const AT_A_TIME: u32 = 16;

/// Bytes of a row that a thread holds, of short rows and of others: the more, the less the work weighs that each thread has once. Rows of at
/// least [`LONG`] keep a multiprocessor busy with fewer threads.
const HELD: u32 = 64;
const HELD_OF_LONG: u32 = 128;
const LONG: u32 = 16 << 10;

/// Bytes that a program takes at least, in as many rows as that needs. Blocks with less have ended before the chip has begun as many as it
/// can hold, and are not worth an early start: rows of 1536 halves by themselves were 1 percent slower.
const OF_PROGRAM: u32 = 4 << 10;

/// Bytes from which on a row takes a cluster, and of which each of its blocks has that many.
const OF_BLOCK: u32 = 32 << 10;
const OF_CLUSTERED: u32 = 16 << 10;

/// What an H200 was fastest with, among one to sixteen warps, one to eight blocks and 40 to 128 registers, on rows of 1536 to 65536 columns.
const MOST_THREADS: u32 = 512;
const MOST_BLOCKS: u32 = 8;
const REGISTERS: u32 = 80;
const REGISTERS_OF_MANY: u32 = 96;
const REGISTERS_OF_MOST_BLOCKS: u32 = 64;

/// Threads of programs that go through rows in steps, and what each asks for at a time: of rows of up to so many bytes, and of longer ones of f32.
/// Blocks of short rows begin and end all the time, so there are more of them; long rows are faster the more is on its way (524 rows of
/// 128256 f32: 61 us on an H200 with eight parts, 72 with four), but so many numbers of 16 bits have no registers.
const SHORT_FOR_STEPS: u32 = 32 << 10;
const THREADS_OF_STEPS: [u32; 2] = [128, 256];
const PARTS_OF_STEPS: [u32; 2] = [4, 8];
const REGISTERS_OF_STEPS: u32 = 64;

/// Multiprocessors of an H200.
const MULTIPROCESSORS: u32 = 132;

/// Bytes of a row for each thread of a program that goes through it twice: 160 KiB of a multiprocessor of 1024 such threads stay in its L1 until they
/// are read again.
const CACHED: u32 = 160;

/// The part of the places that shall have a block to the end, in percent.
const TAKEN: usize = 85;

impl InParts {
    /// A step of a row that no program holds: its parts are asked for together. Where there are few rows, or a few more than fill the chip
    /// evenly, clusters share them. How many blocks that are follows from the rows alone, so that sums are the same on every chip that has
    /// clusters.
    ///
    /// ```
    /// use tilewright_kernels::ops::InParts;
    ///
    /// let blocks = |rows| InParts::of_steps((rows, 128256), 4, false, true).blocks;
    /// assert_eq!([8, 64, 130, 260, 520].map(blocks), [8, 8, 4, 2, 1]);
    /// // Twice as many as have room, and a few more.
    /// assert_eq!([1056, 1100].map(blocks), [1, 4]);
    /// // What is added up besides takes registers, so less is asked for at a time.
    /// assert_eq!(InParts::of_steps((8, 128256), 4, true, true).parts, 4);
    /// ```
    #[must_use]
    pub fn of_steps((rows, columns): (usize, usize), bytes: u32, with_more: bool, clusters: bool) -> InParts {
        let long = bytes >= 4 && columns.saturating_mul(bytes as usize) > SHORT_FOR_STEPS as usize;
        let threads = THREADS_OF_STEPS[usize::from(long)];
        let parts = PARTS_OF_STEPS[usize::from(long && !with_more)];
        InParts::of_blocks(1, (threads, parts), (rows, bytes), with_more, clusters)
    }

    /// The same where rows are gone through twice: so few are under way that each is still in L1 the second time, or at least in L2.
    ///
    /// ```
    /// use tilewright_kernels::ops::InParts;
    ///
    /// let of = |columns, bytes| InParts::of_steps_twice(4096, columns, bytes, true);
    /// let blocks = [(32768, 2), (32768, 4), (128_256, 2), (128_256, 4)].map(|(n, bytes)| of(n, bytes).blocks);
    /// assert_eq!(blocks, [2, 4, 8, 8]);
    /// assert_eq!([2, 4].map(|bytes| of(128_256, bytes).threads), [256, 512]);
    /// ```
    #[must_use]
    pub fn of_steps_twice(rows: usize, columns: u32, bytes: u32, clusters: bool) -> InParts {
        let most = if clusters { MOST_BLOCKS } else { 1 };
        let ([_, of_block], [parts, _]) = (THREADS_OF_STEPS, PARTS_OF_STEPS);
        // Threads that have so much together.
        let threads = (columns / CACHED).saturating_mul(bytes).clamp(1, most * MOST_THREADS);
        let blocks = threads.div_ceil(of_block).next_power_of_two().min(most);
        let threads = threads.div_ceil(blocks).next_power_of_two().clamp(of_block, MOST_THREADS);
        InParts::of_blocks(blocks, (threads, parts), (rows, bytes), false, clusters)
    }

    /// Programs of at least so many blocks of so many threads and parts.
    fn of_blocks(
        least: u32,
        (threads, parts): (u32, u32),
        (rows, bytes): (usize, u32),
        with_more: bool,
        clusters: bool,
    ) -> InParts {
        let of = |blocks: u32| {
            let width = threads * blocks * (AT_A_TIME / bytes.max(1)).max(1);
            InParts { rows: 1, parts, width, threads, blocks }
        };
        let places = (MULTIPROCESSORS * of(1).resident_in_steps(with_more)) as usize;
        let fills = |blocks: &u32| {
            let all = rows.saturating_mul(*blocks as usize);
            all.saturating_mul(100) >= (all.div_ceil(places) * places).saturating_mul(TAKEN)
        };
        let most = if clusters { MOST_BLOCKS } else { 1 };
        let mut some = [1, 2, 4].into_iter().filter(|blocks| (least..most).contains(blocks));
        of(some.find(fills).unwrap_or(most))
    }

    /// For rows of so many columns of so many bytes each, on a chip that may have clusters.
    #[must_use]
    pub fn of(columns: u32, bytes: u32, clusters: bool) -> InParts {
        let row = columns.saturating_mul(bytes);
        let blocks = if clusters && row >= OF_BLOCK {
            row.div_ceil(OF_CLUSTERED).next_power_of_two().min(MOST_BLOCKS)
        } else {
            1
        };
        let held = if row < LONG { HELD } else { HELD_OF_LONG };
        let threads = (row / (blocks * held * 32) * 32).clamp(32, MOST_THREADS);
        let width = threads * blocks * (AT_A_TIME / bytes.max(1)).max(1);
        let rows = OF_PROGRAM.div_ceil(row.max(1)).min(MOST_THREADS / threads);
        InParts { rows, parts: columns.div_ceil(width).max(1), width, threads, blocks }
    }

    /// Whether a program holds rows of so many bytes for each number, as they are, in the registers of its threads.
    #[must_use]
    pub fn holds_all(&self, bytes: u32) -> bool {
        self.parts * AT_A_TIME.max(bytes) <= HELD_OF_LONG
    }

    /// How many programs later the rows are read that a program asks for, if elements have so many bytes.
    #[must_use]
    pub fn ahead(&self, bytes: u32) -> u32 {
        (rows_ahead(self.parts.saturating_mul(self.width).saturating_mul(bytes)) / self.rows).max(1)
    }

    /// Blocks that shall share a multiprocessor.
    pub(super) fn resident(&self) -> u32 {
        let held = self.parts * self.width / (self.threads * self.blocks);
        let registers = match (held, self.blocks) {
            (33.., _) => REGISTERS_OF_MANY,
            (_, MOST_BLOCKS) => REGISTERS_OF_MOST_BLOCKS,
            _ => REGISTERS,
        };
        sharing(registers, self.threads * self.rows)
    }

    /// The same of programs in steps; what is added up beside exponentials takes more registers than four of them have.
    pub(super) fn resident_in_steps(&self, with_more: bool) -> u32 {
        let registers = if with_more { REGISTERS } else { REGISTERS_OF_STEPS };
        sharing(registers, self.threads)
    }
}

/// Blocks of so many threads that a multiprocessor has registers for: each of its four parts has a quarter of them for whole warps.
fn sharing(registers: u32, threads: u32) -> u32 {
    (65536 / 4 / (registers * 32) * 4 / threads.div_ceil(32)).max(1)
}
