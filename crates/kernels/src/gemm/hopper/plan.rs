//! [`Plan`]: what a configuration means for a problem. Everything that decides the staged code, and nothing else, goes into its key.

use tilewright_hardware::{Element, Gpu, HardwareError, Major, SwizzleMode, smem_tile};
use tilewright_layout::Composed;

use super::factor::{Overhang, Side};
use super::schedule::Numbers;
use super::{Config, Pace};
use crate::gemm::problem::{Accumulation, Problem, Storage};

/// Staged results of a warpgroup: while one buffer is copied to D, the other is filled.
pub(super) const BUFFERS: u32 = 2;
/// Rows of a multiplication.
pub(super) const SLAB: u32 = 64;
/// Threads of a warpgroup.
pub(super) const THREADS: u32 = 128;
/// Sums that a thread moves at once, to other blocks and from them.
pub(super) const VECTOR: u32 = 4;
/// Bytes of a factor that a block asks for early.
const ASKED: u32 = 64 << 10;
/// Most bytes of one buffer of staged results.
const BUFFER: u32 = 8192;

/// A configuration applied to a problem.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) config: Config,
    /// Its extents decide nothing that is staged, except whether tiles overhang.
    pub(super) problem: Problem,
    /// Elements of k in one step.
    pub(super) depth: u32,
    pub(super) output: Output,
    /// Whether sums are promoted on the way.
    pub(super) promoted: bool,
    /// Steps of A and of B that a block asks for before the launch before it has ended.
    pub(super) asks: [u32; 2],
}

/// How results get to D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Through a tile in shared memory.
    Staged {
        /// Columns of the product that go into one tile.
        columns: u32,
        /// How the tile gets to D.
        by: Carrier,
        /// Whether the elements of C come the same way.
        c: bool,
    },
    /// Every thread stores its own.
    Direct {
        /// Columns that are computed at a time.
        columns: u32,
    },
}

/// Who copies a tile from shared memory to D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// The copy engine.
    Engine,
    /// All threads, line by line, so many elements at a time.
    Threads {
        /// Elements of an access.
        vector: u32,
    },
}

impl Plan {
    pub(super) fn new(config: &Config, problem: &Problem) -> Plan {
        let types = problem.types;
        let eight_bit_floats = matches!(types.a, Element::E4M3 | Element::E5M2);
        Plan {
            config: *config,
            problem: problem.clone(),
            depth: config.k_bytes / types.a.bytes(),
            output: Output::new(config, problem),
            promoted: problem.accumulation == Accumulation::Promoted && eight_bit_floats,
            asks: [0; 2],
        }
    }

    /// The plan of a launch that begins before the one before it has ended. It asks for the first steps of a factor of which no other block
    /// reads the same part. The copy engine takes as long to ask as to load: asking for what others ask for as well costs more than it
    /// brings, and so does asking where blocks share what they load (128 x 4096 x 4096 in pairs: 3 %). Where it pays it is worth 8 % of a
    /// product of 16 rows and 4096 x 4096.
    pub(super) fn early(self, numbers: &Numbers) -> Plan {
        let Config { m, n, k_bytes, stages, .. } = self.config;
        let alone = self.config.cluster_size() == 1;
        let steps = |rows: u32, readers: u64| {
            if alone && readers == 1 { (ASKED / (rows * k_bytes)).min(stages) } else { 0 }
        };
        Plan { asks: [steps(m, numbers.columns), steps(n, numbers.rows)], ..self }
    }

    /// Rows of a tile that one warpgroup multiplies.
    pub(super) fn rows_of_group(&self) -> u32 {
        match self.config.pace {
            Pace::Cooperative => self.config.m / self.config.consumers,
            Pace::PingPong => self.config.m,
        }
    }

    /// Warpgroups that work on one tile.
    pub(super) fn groups_of_tile(&self) -> u32 {
        match self.config.pace {
            Pace::Cooperative => self.config.consumers,
            Pace::PingPong => 1,
        }
    }

    /// Registers of a thread that hold sums.
    pub(super) fn sum_registers(&self) -> u32 {
        self.rows_of_group() / SLAB * self.config.n / 2 * if self.promoted { 2 } else { 1 }
    }

    /// Registers of every thread if all get the same.
    fn even_registers(&self) -> u32 {
        match self.config.consumers {
            1 => 255,
            2 => 168,
            _ => 128,
        }
    }

    /// Registers of a thread of the loader and of the others, if they cannot all have the same. Only then: the driver's linker, whose
    /// code can be kept on disk, does not deal them out.
    ///
    /// Two consumers: 24 + 2 * 240 or 40 + 2 * 232 registers fill the file. With the former the loader has fewer than its address
    /// arithmetic likes, so it is for sums that fit in no other way.
    pub(super) fn registers(&self) -> Option<(u32, u32)> {
        // Elements of C that wait for their sums.
        let c = if self.output.stages_c() { 16 } else { 0 };
        if self.sum_registers() + self.result_registers() + c <= self.even_registers() {
            return None;
        }
        match self.config.consumers {
            1 => None,
            2 if self.sum_registers() > 192 => Some((24, 240)),
            2 => Some((40, 232)),
            _ => Some((32, 160)),
        }
    }

    /// Most registers that sums may take: fewer if they are promoted, or if elements of C wait for them that have a register each.
    pub(super) fn most_sum_registers(&self) -> u32 {
        let wide_c = self.output.stages_c() && self.problem.types.c.bytes() == 4;
        match self.config.consumers {
            1 | 2 if self.promoted || wide_c => 192,
            1 | 2 => 208,
            _ => 96,
        }
    }

    /// Registers of a thread that are free while results are computed.
    pub(super) fn free_registers(&self) -> u32 {
        let sums = self.rows_of_group() / SLAB * self.config.n / 2;
        self.registers().map_or(self.even_registers(), |(_, many)| many).saturating_sub(sums)
    }

    /// Registers that computing results takes: addresses and elements of what the epilogue reads, if it reads anything, and of sums that
    /// were in memory.
    pub(super) fn result_registers(&self) -> u32 {
        let epilogue = &self.problem.epilogue;
        let from_memory = epilogue.reads_c() && !self.output.stages_c() || !epilogue.operands().is_empty();
        match (from_memory, self.config.exchanges()) {
            (true, _) => 72,
            (false, true) => 48,
            (false, false) => 32,
        }
    }

    /// Columns that are computed at a time: few enough for what the epilogue needs to fit into the registers that sums leave.
    pub(super) fn piece(&self) -> u32 {
        let most = if self.free_registers() >= 72 || self.registers().is_none() { 32 } else { 8 };
        let columns = self.output.columns();
        let whole = |piece: &u32| *piece <= most && columns.is_multiple_of(*piece);
        [columns, 32, 24, 16].into_iter().find(whole).unwrap_or(8)
    }

    pub(super) fn threads(&self) -> u32 {
        128 * (1 + self.config.consumers)
    }

    /// Whether the matrices of A and of B differ from member to member of the batch.
    pub(super) fn batched(&self) -> (bool, bool) {
        let own = |stride: u64| self.problem.batch > 1 && stride > 0;
        (own(self.problem.a.batch_stride), own(self.problem.b.batch_stride))
    }

    /// The tile of A in shared memory.
    pub(super) fn tile_a(&self) -> Result<Composed, HardwareError> {
        let (k_major, _) = self.problem.k_major();
        self.tile(self.config.m, self.config.m / self.config.cluster.1, k_major)
    }

    /// The tile of B in shared memory, by columns.
    pub(super) fn tile_b(&self) -> Result<Composed, HardwareError> {
        let (_, k_major) = self.problem.k_major();
        self.tile(self.config.n, self.config.n / self.config.cluster.0, k_major)
    }

    /// A tile that is loaded in parts of so many rows.
    fn tile(&self, rows: u32, part: u32, k_major: bool) -> Result<Composed, HardwareError> {
        let (element, depth) = (self.problem.types.a, self.depth);
        if k_major {
            let swizzle = swizzle(self.config.k_bytes).unwrap_or(SwizzleMode::None);
            smem_tile(Major::K, rows, depth, element, swizzle)
        } else {
            let swizzle = swizzle(self.span(part)).unwrap_or(SwizzleMode::None);
            smem_tile(Major::Mn, rows, depth, element, swizzle)
        }
    }

    /// Bytes of the boxes that load so many rows that are contiguous in memory.
    pub(super) fn span(&self, rows: u32) -> u32 {
        let fits = |span: &u32| (rows * self.problem.types.a.bytes()).is_multiple_of(*span);
        [128, 64, 32, 16].into_iter().find(fits).unwrap_or(16)
    }

    /// Whether parts of tiles that do not have k contiguous are whole lines of 128 bytes, unless tiles are no larger anyway. Others are read
    /// from shared memory with conflicts.
    pub(super) fn loads_whole_lines(&self) -> bool {
        let (a, b) = self.problem.k_major();
        let whole = |k_major: bool, extent: u32, sharing: u32| {
            let bytes = extent * self.problem.types.a.bytes();
            k_major || bytes <= 128 || bytes.is_multiple_of(128 * sharing)
        };
        let Config { m, n, cluster, .. } = self.config;
        whole(a, m, cluster.1) && whole(b, n, cluster.0)
    }

    /// Bytes of staged results, of all warpgroups.
    pub(super) fn staging_bytes(&self) -> u32 {
        let columns_for_one = self.problem.epilogue.columns_for_one();
        match self.output {
            Output::Staged { columns, .. } => {
                let tile = SLAB * columns / columns_for_one * self.problem.types.d.bytes();
                self.config.consumers * BUFFERS * tile
            }
            Output::Direct { .. } => 0,
        }
    }

    /// Bytes of shared memory of a block: what is declared, and room for barriers and alignment.
    pub(super) fn shared_bytes(&self) -> u32 {
        // Tiles of the ring are multiples of 1024 bytes unless k is cut in halves and n is odd.
        let ring = |rows: u32| (rows * self.config.k_bytes).next_multiple_of(1024) * self.config.stages;
        ring(self.config.m) + ring(self.config.n) + self.staging_bytes() + self.joint_bytes() + 1024
    }

    /// Bytes of sums that come from other blocks of a cluster.
    fn joint_bytes(&self) -> u32 {
        let sums = self.config.m * self.config.columns_of_block() * self.problem.types.accumulate.bytes();
        (self.config.joint() - 1) * sums
    }

    /// Whether a multiprocessor holds one block only.
    pub(super) fn fills_multiprocessor(&self, gpu: &Gpu) -> bool {
        let limits = gpu.arch.limits();
        2 * (self.shared_bytes() + limits.shared_reserved) > limits.shared_per_sm
    }

    /// The stages that fit, at most `most`.
    pub(super) fn stages_that_fit(&self, gpu: &Gpu, most: u32) -> u32 {
        let fits = |stages: &u32| {
            let config = Config { stages: *stages, ..self.config };
            Plan { config, ..self.clone() }.shared_bytes() <= gpu.arch.limits().shared_per_block
        };
        (1..=most).rev().find(fits).unwrap_or(0)
    }

    /// Everything that decides what is staged, as text.
    pub(super) fn key(&self) -> String {
        let Problem { types, a, b, c, d, epilogue, batch, .. } = &self.problem;
        let storage = |storage: Storage| if storage == Storage::RowMajor { 'r' } else { 'c' };
        let (batched_a, batched_b) = self.batched();
        let flag = |set: bool| u8::from(set);
        // How wide a band is the launch says.
        let config = Config { group: 1, ..self.config };
        format!(
            "{config} {}*{}+{}->{} {}{}{} batch{}{}{} over{}{} {:?} promoted{} asks{:?} c {} {} v{} {epilogue:?}",
            types.a,
            types.b,
            types.accumulate,
            types.d,
            storage(a.storage),
            storage(b.storage),
            storage(d.storage),
            flag(*batch > 1),
            flag(batched_a),
            flag(batched_b),
            flag(Overhang::new(self, Side::A).is_some()),
            flag(Overhang::new(self, Side::B).is_some()),
            self.output,
            flag(self.promoted),
            self.asks,
            types.c,
            storage(c.storage),
            c.vector(types.c, *batch, 16),
        )
    }
}

impl Output {
    fn new(config: &Config, problem: &Problem) -> Output {
        let (d, element, merged) = (&problem.d, problem.types.d, problem.epilogue.columns_for_one());
        let all = config.columns_of_block();
        let whole = |columns: &u32| columns.is_multiple_of(8) && all.is_multiple_of(*columns);
        let bytes = element.bytes();
        // Lines of a tile are lines of a box, which have 16 bytes at least, and of which there can be any number.
        let staged = match d.storage {
            Storage::RowMajor => {
                [128, 64, 32, 16].into_iter().map(|width| width / bytes * merged).find(whole)
            }
            // The swizzle repeats after eight lines.
            Storage::ColumnMajor => {
                (8..=BUFFER / SLAB / bytes).rev().filter(|n| n % 8 == 0).map(|n| n * merged).find(whole)
            }
        };
        let Some(columns) = staged.filter(|_| bytes <= 4) else {
            return Output::Direct { columns: [32, 16].into_iter().find(whole).unwrap_or(8) };
        };
        let (contiguous, line) = match d.storage {
            Storage::RowMajor => (problem.n / merged, columns / merged),
            Storage::ColumnMajor => (problem.m, SLAB),
        };
        // The copy engine writes whole pieces of 16 bytes, even where the matrix ends inside of one.
        let by = if d.suits_copy_engine(element, problem.batch) && contiguous.is_multiple_of(16 / bytes) {
            Carrier::Engine
        } else {
            let mut vector = d.vector(element, problem.batch, 16 / bytes);
            while !contiguous.is_multiple_of(vector) || !line.is_multiple_of(vector) {
                vector /= 2;
            }
            Carrier::Threads { vector }
        };
        let alike = problem.c.storage == d.storage && problem.types.c == element;
        let c = problem.epilogue.reads_c()
            && alike
            && merged == 1
            && by == Carrier::Engine
            && !config.exchanges()
            && problem.c.suits_copy_engine(element, problem.batch);
        Output::Staged { columns, by, c }
    }

    /// Columns that go to D together.
    pub(super) fn columns(self) -> u32 {
        match self {
            Output::Staged { columns, .. } | Output::Direct { columns } => columns,
        }
    }

    /// Whether elements of C come through shared memory.
    pub(super) fn stages_c(self) -> bool {
        matches!(self, Output::Staged { c: true, .. })
    }
}

/// The swizzle of rows of so many bytes.
pub(super) fn swizzle(bytes: u32) -> Option<SwizzleMode> {
    SwizzleMode::ALL.into_iter().find(|mode| mode.span() == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Types;

    #[test]
    fn blocks_ask_early_for_what_no_other_block_reads() {
        let asks = |config: &str, m: u32, n: u32| {
            let config: Config = config.parse().unwrap();
            let plan = Plan::new(&config, &Problem::new(m, n, 4096, Types::of(Element::BF16)));
            let numbers = Numbers::new(&plan, 132);
            plan.early(&numbers).asks
        };
        let narrow = "hopper 64x16x128B c1x1 s16 coop1 m8 once";
        // 8 KiB of A a step, and all blocks read B.
        assert_eq!(asks(narrow, 8192, 16), [8, 0]);
        assert_eq!(asks(narrow, 64, 1024), [0, 16]);
        assert_eq!(asks("hopper 64x16x128B c1x1 s5 coop1 m8 joint2 once", 8192, 16), [5, 0]);
        // Neighbours in both directions, or such that share what they load.
        assert_eq!(asks(narrow, 8192, 32), [0, 0]);
        assert_eq!(asks("hopper 64x16x128B c2x1 s16 coop1 m8", 8192, 16), [0, 0]);
    }
}
