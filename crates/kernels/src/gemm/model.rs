//! [`Prediction`]: how long a product takes, as far as arithmetic can tell before anything is measured.
//!
//! A configuration is reduced to what the hardware sees of it ([`Tiled`] or [`Streamed`]); the model holds that against the rates of a
//! chip and gives one [`Term`] for each thing that takes time. Of terms that happen at the same time the longest binds, and others that
//! come near it get in its way; the rest add up.
//!
//! Limits: nothing of power but the clocks that it leaves in the long run, no details of a pipeline. It is meant to put candidates into an order
//! whose head is worth measuring, and to say what binds; it does not replace a measurement.

use std::fmt;

use tilewright_hardware::{Arch, Gpu, TensorKind};

use super::epilogue::{ExtraOperand, Shape};
use super::problem::{Placement, Problem, Types};

/// What is known of chips beyond the table of [`Gpu`]s, and of how well kernels of a kind use them. Rates are for each multiprocessor and
/// clock. The test `model` of the front crate holds it against what was measured on an H200.
struct Constants {
    /// Bytes between registers or tensor cores and shared memory: what its banks give.
    shared: f64,
    /// Bytes from L2 to one multiprocessor while others rest, and to each of them if all ask; and what gets to each of them by way of its GPC, to
    /// which comes only once what several of its multiprocessors ask for.
    l2: f64,
    l2_of_chip: f64,
    l2_of_gpc: f64,
    /// Bytes of results that a multiprocessor stores.
    store: f64,
    /// Bytes that a multiprocessor reads and writes when it copies a matrix that stays in L2.
    copy: f64,
    /// Part of the peak of DRAM that products reach.
    dram: f64,
    /// What it costs if many blocks ask for the same part of the larger factor instead of sharing it in a cluster, as a part of its bytes:
    /// requests that meet on their way to DRAM are not always answered together.
    asked_again: f64,
    /// The same if those who ask are clusters. Each keeps its own pace, since its blocks wait for each other, and gets away from the others.
    asked_apart: f64,
    /// What it costs DRAM that blocks read the same again from L2, as a part of those bytes: both come the same way.
    in_the_way: f64,
    /// Part of the peak of tensor cores that main loops reach if nothing else gets in their way, at the clocks that power allows in the long run.
    tensor: f64,
    /// How much terms that happen at the same time get in each other's way: they add up as numbers raised to this power do.
    contention: i32,
    /// Part of the multiprocessors that must ask for data to keep DRAM busy, in a first round of blocks and in a last one.
    askers: f64,
    late_askers: f64,
    /// Part of the rate of tensor cores that instructions of warps reach on Hopper, whose full rate takes those of warpgroups (published:
    /// about 62 %).
    warps_on_hopper: f64,
    /// Part of the peak of f32 and f64 lanes that main loops reach; the rest are loads and addresses.
    lanes: f64,
    /// Clocks that a load of a warp takes from multiplications of lanes (f32, 4096 cubed: both factors by 4 bytes cost 8 %).
    load_turns: f64,
    /// Clocks from a request of memory to its arrival, under load.
    latency: f64,
    /// Seconds from the end of one kernel to the first instruction of the next in a stream.
    launch: f64,
    /// Seconds that clusters take to start together, and that their blocks wait for each other at the start and at the end.
    cluster: f64,
    /// Instructions for each element of the result in the simplest epilogue: convert, stage, store.
    epilogue: f64,
    /// Clocks for each element of the result and each vector that has an element for every column. A thread holds two rows and many
    /// columns: elements of a row are loaded once, those of columns again and again. Seen from the other side columns are rows.
    vector: f64,
    /// Clocks until partial sums are known to be complete, and the bytes of them that a multiprocessor writes and reads.
    partial_latency: f64,
    partial_store: f64,
    partial_load: f64,
    /// What is left of that where warpgroups take turns: one writes while another multiplies.
    partial_in_turns: f64,
    /// Clocks that blocks of a cluster take to find each other, and the bytes of sums that one gets from the others.
    joint_latency: f64,
    joint: f64,
    /// How much longer main loops take whose blocks are at different steps of k: where a factor is not shared by blocks anyway; and where both
    /// are, so that blocks find less of each other's data in L2, if each loads for itself.
    out_of_step: f64,
    out_of_step_alone: f64,
    /// What is lost if clusters load, and as much again by the square of what they read over L2 (8192 x 8192 x 8192: 0.2 in all; 2048 x 4096 x
    /// 14336: 0.4).
    out_of_step_in_clusters: f64,
    /// The same where tiles are begun by some blocks and finished by others.
    assist: f64,
    /// Part of the L2 cache that one operand can count on.
    l2_part: f64,
    /// How much longer loads from L2 take of rows that all lie across two lines of the cache.
    across_lines: f64,
    /// How much longer it takes warpgroups to multiply one tile together than each its own.
    cooperation: f64,
    /// Bytes through L1 that are loaded when they are needed and not before.
    l1: f64,
}

/// Kernels that the copy engine feeds: one warp asks for tiles, warpgroups multiply them, and neither takes the other's turns. So what happens
/// at the same time hardly gets in each other's way, and limits are those of the hardware.
///
/// Fitted to some 6300 times on an H200 (56 shapes of Llama's layers, 176 other shapes, 9 squares; about 28 configurations each), such that
/// configurations of one shape come out in the order that was measured. `dram` and `l2_part` were left as they were; `out_of_step_alone`,
/// `out_of_step_in_clusters` and `vector` were set by single comparisons on the same chip: what streams lose differs from run to run
/// (8192 cubed of tf32: 2930 us in one and 3900 us in another), and the fit saw too little of it. A time also depends on the power that was drawn before, by 15 % where samples take
/// 1 ms (256 x 28672 x 4096: 92 us by 9 samples of 1 ms, 107 us by as many of 5 ms, whatever the order of tiles); these took 4 ms.
const ENGINE: Constants = Constants {
    shared: 128.0,
    l2: 116.0,
    l2_of_chip: 62.6,
    l2_of_gpc: 44.2,
    store: 19.4,
    copy: 20.0,
    dram: 0.95,
    asked_again: 0.612,
    asked_apart: 1.4,
    in_the_way: 0.0666,
    tensor: 0.725,
    contention: 15,
    askers: 0.819,
    late_askers: 0.857,
    warps_on_hopper: 0.62,
    lanes: 0.78,
    load_turns: 1.2,
    latency: 2751.0,
    launch: 0.0726e-6,
    cluster: 1.54e-6,
    epilogue: 6.95,
    vector: 0.04,
    partial_latency: 2278.0,
    partial_store: 8.65,
    partial_load: 17.6,
    partial_in_turns: 0.651,
    joint_latency: 225.0,
    joint: 4.34,
    out_of_step: 1.13,
    out_of_step_alone: 2.9,
    out_of_step_in_clusters: 0.30,
    assist: 1.17,
    l2_part: 0.6,
    across_lines: 2.32,
    cooperation: 1.01,
    l1: 14.0,
};

/// Kernels whose threads load what they multiply: instructions for one are turns that the other does not get.
///
/// Set by comparisons of single products on an H200, and published numbers. Products of up to 10 us take 3 us longer than they would by the rest
/// (217 of them), which is in `launch`.
const THREADS: Constants = Constants {
    shared: 240.0,
    l2: 83.0,
    l2_of_chip: f64::INFINITY,
    l2_of_gpc: f64::INFINITY,
    store: 20.0,
    copy: 20.0,
    dram: 0.87,
    asked_again: 0.4,
    asked_apart: 0.4,
    in_the_way: 0.0,
    tensor: 0.81,
    contention: 4,
    askers: 0.72,
    late_askers: 0.8,
    warps_on_hopper: 0.62,
    lanes: 0.78,
    load_turns: 1.2,
    latency: 1440.0,
    launch: 3.6e-6,
    cluster: 0.57e-6,
    epilogue: 5.0,
    vector: 0.0,
    partial_latency: 2300.0,
    partial_store: 9.8,
    partial_load: 33.0,
    partial_in_turns: 1.0,
    joint_latency: 450.0,
    joint: 12.0,
    out_of_step: 1.12,
    out_of_step_alone: 2.0,
    out_of_step_in_clusters: 0.1,
    assist: 1.05,
    l2_part: 0.6,
    across_lines: 3.0,
    cooperation: 1.02,
    l1: 14.0,
};

/// Kernels that read one factor once, straight to where it is multiplied, on Hopper: they get as much from DRAM as the engine does (1 row,
/// 8192 x 57344: 214 us). `l1` is from what 16 rows take (7 shapes). Elsewhere nothing was measured, and they are like others whose threads load.
const STREAMED: Constants = Constants { dram: 0.93, l1: 9.0, launch: 1.6e-6, ..THREADS };

/// Multiprocessors that get from L2 only once what several of them ask for at a time. They are those of a GPC, which has 16 or 18; they are not
/// always at the same step, so it is as if there were fewer.
const GPC: u32 = 12;
/// Part of the latency that the first load has: nothing else is under way.
const FIRST_LOAD: f64 = 0.8;

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Tensor cores, by instructions of warpgroups where the chip has them.
    Tensor(TensorKind),
    /// Tensor cores, by instructions of warps.
    Warps(TensorKind),
    /// Lanes of f32.
    Floats,
    /// Lanes of f64.
    Doubles,
}

impl Unit {
    /// Operations a clock of a multiprocessor that main loops reach.
    fn rate(self, gpu: &Gpu, constants: &Constants) -> f64 {
        let rate = match self {
            Unit::Tensor(kind) => f64::from(gpu.tensor_rate(kind)) * constants.tensor,
            Unit::Warps(kind) => {
                // Only f64 is as fast either way on Hopper.
                let whole = !gpu.arch.supports(Arch::SM_90A) || kind == TensorKind::F64;
                let part = if whole { 1.0 } else { constants.warps_on_hopper };
                f64::from(gpu.tensor_rate(kind)) * constants.tensor * part
            }
            Unit::Floats => f64::from(2 * gpu.float_lanes) * constants.lanes,
            Unit::Doubles => f64::from(2 * gpu.double_lanes) * constants.lanes,
        };
        // A unit that the chip does not have is no candidate; if somebody asks all the same, it is slow and not infinitely fast.
        rate.max(1.0)
    }
}

/// How the steps of k are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// All steps of a tile in one block.
    Whole,
    /// Each tile in so many parts.
    Parts(u32),
    /// The same number of steps to every block, wherever tiles end.
    Stream,
    /// The same, but tiles are begun by some blocks and finished by others.
    Assist,
    /// Each tile in so many parts, whose sums blocks of a cluster send each other.
    Joint(u32),
}

/// Tiles that are worked on together: so many rows of tiles, or so many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// Rows of tiles. B is read anew for each band.
    Rows(u32),
    /// Columns of tiles. A is read anew for each band.
    Columns(u32),
}

/// A product by tiles, as the hardware sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiled {
    /// What multiplies.
    pub unit: Unit,
    /// Rows, columns and depth that a block works on at a time.
    pub tile: [u32; 3],
    /// Rows and columns for which one instruction (or warp) reads its operands from shared memory.
    pub slab: [u32; 2],
    /// Blocks that share what they load: neighbours in m, in n.
    pub cluster: [u32; 2],
    /// Steps that are on their way at a time.
    pub stages: u32,
    /// Blocks that a multiprocessor holds.
    pub resident: u32,
    /// Who does which steps of k.
    pub split: Split,
    /// Whether results of one tile are stored while the next is being multiplied.
    pub overlapped: bool,
    /// Whether several warpgroups multiply one tile.
    pub cooperates: bool,
    /// Which tiles are worked on together, so that what they load is still in L2.
    pub band: Band,
    /// Bytes that one thread loads at a time of A and of B; nothing if the copy engine does it.
    pub load: [Option<u32>; 2],
}

/// A product that reads one factor once, straight to where it is multiplied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streamed {
    /// What multiplies.
    pub unit: Unit,
    /// Instructions of a lane for each element of the large factor and each of the few rows, if lanes multiply.
    pub per_element: f64,
    /// Columns of the product that a block computes.
    pub columns: u32,
    /// Blocks that share the steps of k of the same columns.
    pub parts: u32,
    /// Bytes that a block has under way at a time.
    pub in_flight: u32,
    /// Blocks that a multiprocessor holds.
    pub resident: u32,
}

/// A configuration, as the hardware sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// By tiles.
    Tiled(Tiled),
    /// By one pass over the large factor.
    Streamed(Streamed),
}

/// How a term counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// These are the main part, at the same time.
    Together,
    /// Before or after the main part.
    Added,
}

/// One thing that takes time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// What it is.
    pub name: &'static str,
    /// How long it takes by itself.
    pub seconds: f64,
    /// How it counts.
    pub counts: Counts,
}

/// How long a product takes, and why.
///
/// ```
/// use tilewright_hardware::{Element, Gpu};
/// use tilewright_kernels::gemm::{Problem, Types, plan};
///
/// let problem = Problem::new(8192, 8192, 8192, Types::of(Element::BF16));
/// let best = plan(&problem, Gpu::named("h200").unwrap())?;
/// assert_eq!(best.predicted.binding().name, "tensor cores");
/// println!("{}", best.predicted);
/// # Ok::<(), tilewright_kernels::gemm::GemmError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Everything that takes time.
    pub terms: Vec<Term>,
    /// How much terms that happen at the same time get in each other's way.
    contention: i32,
}

/// What nothing takes.
const NOTHING: Term = Term { name: "nothing", seconds: 0.0, counts: Counts::Added };

impl Prediction {
    /// All in all.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let of =
            |counts| self.terms.iter().filter(move |term| term.counts == counts).map(|term| term.seconds);
        let power = self.contention.max(1);
        let longest = of(Counts::Together).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let together: f64 = of(Counts::Together).map(|seconds| (seconds / longest).powi(power)).sum();
        longest * together.powf(1.0 / f64::from(power)) + of(Counts::Added).sum::<f64>()
    }

    /// The term that takes longest of those that count.
    #[must_use]
    pub fn binding(&self) -> Term {
        self.terms.iter().copied().max_by(|x, y| x.seconds.total_cmp(&y.seconds)).unwrap_or(NOTHING)
    }

    /// Nothing yet, of a kernel of this kind.
    fn of(constants: &Constants) -> Prediction {
        Prediction { terms: Vec::new(), contention: constants.contention }
    }

    fn with(mut self, counts: Counts, name: &'static str, seconds: f64) -> Prediction {
        if seconds > 0.0 {
            self.terms.push(Term { name, seconds, counts });
        }
        self
    }

    /// With what happens before: another launch that reads and writes memory.
    #[must_use]
    pub(super) fn after_copy(self, gpu: &Gpu, name: &'static str, bytes: f64) -> Prediction {
        // A matrix that fits is still in the cache when it is read again, and is written there first.
        let from_cache = bytes / 2.0 < l2(gpu) * THREADS.l2_part;
        let rate = if from_cache {
            chip(gpu, THREADS.copy)
        } else {
            dram(gpu, &THREADS, gpu.multiprocessors.into(), THREADS.askers)
        };
        self.with(Counts::Added, name, bytes / rate + THREADS.launch)
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binding = self.binding();
        for term in &self.terms {
            let how = match term.counts {
                Counts::Together => "at once",
                Counts::Added => "added",
            };
            let mark = if *term == binding { "  <- binds" } else { "" };
            writeln!(f, "{:>12.2} us  {how:<8} {}{mark}", term.seconds * 1e6, term.name)?;
        }
        write!(f, "{:>12.2} us  in all", self.seconds() * 1e6)
    }
}

/// Bytes a second of all multiprocessors.
fn chip(gpu: &Gpu, bytes_a_clock: f64) -> f64 {
    bytes_a_clock * gpu.clock * f64::from(gpu.multiprocessors)
}

/// Bytes of DRAM a second, if so many multiprocessors ask and such a part of all is needed.
fn dram(gpu: &Gpu, constants: &Constants, askers: f64, needed: f64) -> f64 {
    let enough = f64::from(gpu.multiprocessors) * needed;
    gpu.dram * constants.dram * (askers / enough).min(1.0)
}

#[allow(clippy::cast_precision_loss, reason = "an estimate")]
fn l2(gpu: &Gpu) -> f64 {
    gpu.l2 as f64
}

/// Bytes of the matrices: A, B, what is read for the result, what is written.
struct Traffic {
    a: f64,
    b: f64,
    results: f64,
}

impl Traffic {
    fn of(problem: &Problem) -> Traffic {
        let bytes = |rows: u32, columns: u32, element| {
            f64::from(rows) * f64::from(columns) * f64::from(Types::in_memory(element).bytes())
        };
        let batch = f64::from(problem.batch);
        let columns = problem.n / problem.epilogue.columns_for_one();
        let c = if problem.epilogue.reads_c() { bytes(problem.m, columns, problem.types.c) } else { 0.0 };
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let extra =
            |operand: &ExtraOperand| operand.elements(problem) as f64 * f64::from(operand.element.bytes());
        let extras: f64 = problem.epilogue.operands().iter().map(extra).sum();
        Traffic {
            a: batch * bytes(problem.m, problem.k, problem.types.a),
            b: batch * bytes(problem.k, problem.n, problem.types.b),
            results: batch * (bytes(problem.m, columns, problem.types.d) + c) + extras,
        }
    }
}

/// How long a configuration takes for a problem, as the kernel sees it: after transposing and repacking.
#[must_use]
pub fn predict(work: &Work, problem: &Problem, gpu: &Gpu) -> Prediction {
    if problem.m == 0 || problem.n == 0 || problem.batch == 0 {
        return Prediction::default();
    }
    match work {
        Work::Tiled(tiled) => tiled.predict(problem, gpu),
        Work::Streamed(streamed) => streamed.predict(problem, gpu),
    }
}

/// Bytes of a line of the cache.
const LINE: u32 = 128;

/// How much longer a factor takes from L2 because some of its rows, of which a line is loaded at a time, do not begin with lines of the cache.
fn lines(placement: &Placement, bytes: u32, constants: &Constants) -> f64 {
    // Of rows that begin at multiples of so many bytes, each of the places in a line is as likely as any other.
    let apart = (placement.leading * u64::from(bytes)) | u64::from(placement.alignment) | u64::from(LINE);
    let begins = 1 << apart.trailing_zeros();
    let across = 1.0 - f64::from(begins) / f64::from(LINE);
    1.0 + (constants.across_lines - 1.0) * across
}

impl Tiled {
    /// Rows and columns of clusters that run in one GPC and are at the same step.
    fn of_a_gpc(&self, [rows, columns]: [u32; 2], cluster: f64) -> [f64; 2] {
        let [rows, columns] =
            [rows / self.cluster[0].max(1), columns / self.cluster[1].max(1)].map(f64::from);
        let clusters = (f64::from(GPC) / cluster).max(1.0);
        let fit = |band: u32, across: f64, along: f64| {
            let across = f64::from(band.max(1)).min(across).min(clusters).max(1.0);
            (across, (clusters / across).max(1.0).min(along).max(1.0))
        };
        match self.band {
            Band::Rows(high) => {
                let (high, wide) = fit(high / self.cluster[0].max(1), rows, columns);
                [high, wide]
            }
            Band::Columns(wide) => {
                let (wide, high) = fit(wide / self.cluster[1].max(1), columns, rows);
                [high, wide]
            }
        }
    }

    fn predict(&self, problem: &Problem, gpu: &Gpu) -> Prediction {
        let engine = self.load == [None; 2];
        let constants = if engine { &ENGINE } else { &THREADS };
        let [bm, bn, bk] = self.tile;
        let width = |element| f64::from(Types::in_memory(element).bytes());
        let (a_bytes, b_bytes) = (width(problem.types.a), width(problem.types.b));
        // Blocks of a cluster that have no tile of their own go through the motions all the same.
        let count = |extent: u32, tile: u32, sharing: u32| {
            extent.div_ceil(tile.max(1)).next_multiple_of(sharing.max(1))
        };
        let (rows, columns) = (count(problem.m, bm, self.cluster[0]), count(problem.n, bn, self.cluster[1]));
        let tiles = f64::from(rows) * f64::from(columns) * f64::from(problem.batch);
        let steps = f64::from(problem.k.div_ceil(bk.max(1)));

        // Who works: clusters take whole groups of multiprocessors.
        let joint = match self.split {
            Split::Joint(parts) => parts.max(1),
            _ => 1,
        };
        let cluster = (self.cluster[0] * self.cluster[1]).max(1) * joint;
        let workers = f64::from((gpu.multiprocessors / cluster * cluster).max(1));
        let (units, steps_of_one) = match self.split {
            Split::Whole => (tiles, steps),
            Split::Parts(parts) | Split::Joint(parts) => {
                (tiles * f64::from(parts), (steps / f64::from(parts)).ceil())
            }
            Split::Stream | Split::Assist => {
                let units = (workers * f64::from(self.resident)).min(tiles * steps).max(1.0);
                (units, (tiles * steps / units).ceil())
            }
        };
        let busiest = (units / workers).ceil();
        let busiest_steps = busiest * steps_of_one;
        // Of streams, whole tiles come after those that are dealt out, and all blocks are at the same step again.
        let in_step = match self.split {
            Split::Stream => ((tiles / workers).floor() - 1.0).max(0.0) * steps,
            Split::Assist => (tiles / workers).floor() * steps,
            _ => busiest_steps,
        };
        let lost = match ((rows / self.cluster[0].max(1)).min(columns / self.cluster[1].max(1)), cluster) {
            (..=1, _) => constants.out_of_step,
            _ if self.split == Split::Assist => constants.assist,
            (_, 1) => constants.out_of_step_alone,
            _ => {
                // What blocks that run at the same time read, whichever step of k each is at.
                let (high, wide) = match self.band {
                    Band::Rows(high) => (f64::from(high.min(rows)), workers / f64::from(high.min(rows))),
                    Band::Columns(wide) => {
                        (workers / f64::from(wide.min(columns)), f64::from(wide.min(columns)))
                    }
                };
                let read = f64::from(problem.k)
                    * (high.min(rows.into()) * f64::from(bm) * a_bytes
                        + wide.min(columns.into()) * f64::from(bn) * b_bytes);
                1.0 + constants.out_of_step_in_clusters * (1.0 + (read / l2(gpu)).powi(2))
            }
        };
        let paced_steps = in_step + (busiest_steps - in_step) * lost;
        let clocks = |clocks: f64| clocks / gpu.clock;

        // One step of a tile.
        let [m, n, k] = self.tile.map(f64::from);
        let multiply = 2.0 * m * n * k / self.unit.rate(gpu, constants);
        let slabs = (m / f64::from(self.slab[0])).max(1.0) * (n / f64::from(self.slab[1])).max(1.0);
        let reads = slabs * k * (f64::from(self.slab[0]) * a_bytes + f64::from(self.slab[1]) * b_bytes);
        let writes = k * (m * a_bytes + n * b_bytes);
        let shared = (reads + writes) / constants.shared;
        // A cluster of neighbours in m shares B, one of neighbours in n shares A.
        let fetched_a = k * m * a_bytes / f64::from(self.cluster[1]);
        let fetched_b = k * n * b_bytes / f64::from(self.cluster[0]);
        let bytes = |element| Types::in_memory(element).bytes();
        let lines_a = lines(&problem.a, bytes(problem.types.a), constants);
        let lines_b = lines(&problem.b, bytes(problem.types.b), constants);
        let from_l2 = fetched_a * lines_a + fetched_b * lines_b;
        // With one tile each there is nothing to take turns for.
        let pace = if self.cooperates && units > workers { constants.cooperation } else { 1.0 };
        let under_way = f64::from(self.stages.max(1)) * busiest.min(f64::from(self.resident.max(1)));
        let load = |bytes: f64, load: Option<u32>| {
            // Loads narrower than 4 bytes pass through registers: addresses, bounds, load, merge, store; and somebody waits for them.
            load.map_or(0.0, |wide| bytes / (32.0 * f64::from(wide)) * if wide < 4 { 24.0 } else { 1.0 })
        };
        let instructions = load(k * m * a_bytes, self.load[0]) + load(k * n * b_bytes, self.load[1]);
        // Loads take the turns of multiplications that are instructions of lanes themselves.
        let multiply = match self.unit {
            Unit::Floats | Unit::Doubles => multiply + constants.load_turns * instructions,
            Unit::Tensor(_) | Unit::Warps(_) => multiply,
        };

        // Beyond the tile.
        let traffic = Traffic::of(problem);
        let (bands, whole) = match self.band {
            Band::Rows(high) => (rows.div_ceil(high.max(1)), traffic.b),
            Band::Columns(wide) => (columns.div_ceil(wide.max(1)), traffic.a),
        };
        let room = l2(gpu) * constants.l2_part;
        let missing = (whole - room).max(0.0);
        // Neighbours that need the same part of the larger factor at the same time, and do not share it.
        let (larger, readers, sharing) = if traffic.a > traffic.b {
            (traffic.a, columns, self.cluster[1])
        } else {
            (traffic.b, rows, self.cluster[0])
        };
        let apart = (1.0 - f64::from(sharing) / f64::from(readers.max(1))).max(0.0);
        let again = apart * larger * if cluster > 1 { constants.asked_apart } else { constants.asked_again };
        // Rows that do not exist are not loaded.
        let depth = f64::from(problem.batch) * steps * k;
        let loaded_a = depth * f64::from(problem.m) * f64::from(columns / self.cluster[1]) * a_bytes;
        let loaded_b = depth * f64::from(problem.n) * f64::from(rows / self.cluster[0]) * b_bytes;
        let in_the_way = constants.in_the_way * (loaded_a + loaded_b - traffic.a - traffic.b).max(0.0);
        let read = traffic.a + traffic.b + (f64::from(bands) - 1.0) * missing + again + in_the_way;
        // Rounds that keep all busy, and the last one.
        let last = units % workers;
        let bytes = (read + traffic.results) / units;
        let late = if last < units { constants.late_askers } else { constants.askers };
        let dram = bytes * (units - last) / dram(gpu, constants, workers, constants.askers)
            + if last > 0.0 { bytes * last / dram(gpu, constants, last, late) } else { 0.0 };

        // The end of a tile.
        let d_bytes = width(problem.types.d);
        let c_bytes = if problem.epilogue.reads_c() { width(problem.types.c) } else { 0.0 };
        let elements = m * n / f64::from(joint);
        let finish = elements * (d_bytes + c_bytes) / constants.store
            + elements * constants.epilogue / f64::from(gpu.float_lanes.max(1));
        let tiles_of_one = (tiles / workers).ceil();
        // While results are stored nothing is multiplied, unless that overlaps; but the engine goes on with loads for the next tile. Only
        // the last has nothing after it.
        let (storing, exposed) = match (self.overlapped, engine) {
            (true, _) => (0.0, finish),
            (false, true) => ((tiles_of_one - 1.0) * finish, finish),
            (false, false) => (0.0, tiles_of_one * finish),
        };
        let along_columns = |operand: &ExtraOperand| operand.shape == Shape::PerColumn;
        let vectors = problem.epilogue.operands().iter().filter(|operand| along_columns(operand)).count();
        #[allow(clippy::cast_precision_loss, reason = "a few")]
        let vectors = tiles_of_one * elements * constants.vector * vectors as f64;
        // Partial sums are written by all, and the last of each tile reads them all.
        let partial = elements * width(problem.types.accumulate);
        let reduction = match self.split {
            Split::Whole | Split::Parts(1) | Split::Joint(1) => 0.0,
            // Every block gets its columns from all others.
            Split::Joint(parts) => constants.joint_latency + f64::from(parts - 1) * partial / constants.joint,
            Split::Parts(parts) => {
                constants.partial_latency
                    + busiest * partial / constants.partial_store
                    + tiles_of_one * f64::from(parts) * partial / constants.partial_load
            }
            Split::Stream => {
                let parts = (units / tiles).ceil() + 1.0;
                // If whole tiles come after, nobody waits for it, and some of it happens while others multiply.
                let hidden = tiles > workers;
                let latency = if hidden { 0.0 } else { constants.partial_latency };
                let moved =
                    2.0 * partial / constants.partial_store + parts * partial / constants.partial_load;
                latency + moved * if self.overlapped { constants.partial_in_turns } else { 1.0 }
            }
            // Main loops are long enough to hide it all.
            Split::Assist => 0.0,
        };

        let slower = pace * paced_steps / busiest_steps.max(1.0);
        let all_from_l2 =
            slower * (loaded_a * lines_a + loaded_b * lines_b) / chip(gpu, constants.l2_of_chip);
        let [high, wide] = self.of_a_gpc([rows, columns], f64::from(cluster));
        let of_gpcs = tiles * steps * (fetched_a * lines_a / wide + fetched_b * lines_b / high);
        let of_gpcs = slower * of_gpcs / chip(gpu, constants.l2_of_gpc);
        let multiplying = match self.unit {
            Unit::Tensor(_) | Unit::Warps(_) => "tensor cores",
            Unit::Floats | Unit::Doubles => "arithmetic",
        };
        Prediction::of(constants)
            .with(Counts::Together, multiplying, clocks(pace * paced_steps * multiply + storing))
            .with(Counts::Together, "shared memory", clocks(busiest_steps * shared))
            .with(Counts::Together, "loads from L2", clocks(pace * paced_steps * from_l2 / constants.l2))
            .with(Counts::Together, "loads of all from L2", all_from_l2)
            .with(Counts::Together, "loads of GPCs from L2", of_gpcs)
            .with(Counts::Together, "load instructions", clocks(busiest_steps * instructions))
            .with(Counts::Together, "latency of loads", clocks(busiest_steps * constants.latency / under_way))
            .with(Counts::Together, "DRAM", dram)
            .with(Counts::Added, "first load", clocks(FIRST_LOAD * constants.latency))
            .with(Counts::Added, "cluster", if cluster > joint { constants.cluster } else { 0.0 })
            .with(Counts::Added, "epilogue", clocks(exposed))
            .with(Counts::Added, "vectors of the epilogue", clocks(vectors))
            .with(Counts::Added, "reduction of partial sums", clocks(reduction))
            .with(Counts::Added, "launch", constants.launch)
    }
}

impl Streamed {
    fn predict(&self, problem: &Problem, gpu: &Gpu) -> Prediction {
        let constants = if gpu.arch.supports(Arch::SM_90A) { &STREAMED } else { &THREADS };
        let traffic = Traffic::of(problem);
        let blocks = f64::from(problem.n.div_ceil(self.columns.max(1)))
            * f64::from(problem.batch)
            * f64::from(self.parts.max(1));
        let workers = f64::from(gpu.multiprocessors * self.resident.max(1));
        let rounds = (blocks / workers).ceil();
        // The busiest does a whole number of blocks; with few of them the others wait.
        let balance = rounds * workers / blocks;
        let busy = blocks.min(workers);
        let width = f64::from(Types::in_memory(problem.types.b).bytes());
        let elements = f64::from(problem.k) * f64::from(problem.n) * f64::from(problem.batch);
        let multiply = match self.unit {
            Unit::Tensor(_) | Unit::Warps(_) => {
                problem.flops() * 16.0 / f64::from(problem.m.clamp(1, 16)) / self.unit.rate(gpu, constants)
            }
            Unit::Floats | Unit::Doubles => {
                elements * f64::from(problem.m) * self.per_element * 2.0 / self.unit.rate(gpu, constants)
            }
        };
        let seconds = |clocks: f64| clocks / gpu.clock;
        // Each block reads all of the few rows for its columns, many steps ahead of nothing.
        let rows_again = if problem.m > 1 {
            elements * width * f64::from(problem.m) / f64::from(self.columns.max(1))
        } else {
            0.0
        };
        let under_way = busy * f64::from(self.in_flight.max(1));
        // Write, fence, count, and for the last one: read what all have written.
        let reduction =
            if self.parts > 1 { (2.0 + f64::from(self.parts) / 8.0) * constants.latency } else { 0.0 };
        Prediction::of(constants)
            .with(
                Counts::Together,
                "DRAM",
                (traffic.a + traffic.b + traffic.results) / dram(gpu, constants, blocks, constants.askers),
            )
            .with(
                Counts::Together,
                "arithmetic",
                seconds(multiply / f64::from(gpu.multiprocessors) * balance),
            )
            .with(
                Counts::Together,
                "latency of loads",
                seconds(elements * width * constants.latency / under_way),
            )
            .with(Counts::Together, "rows again for other columns", rows_again / chip(gpu, constants.l1))
            .with(Counts::Together, "loads from L2", elements * width * balance / chip(gpu, constants.l2))
            .with(Counts::Added, "first load", seconds(2.0 * constants.latency))
            .with(Counts::Added, "reduction of partial sums", seconds(reduction))
            .with(Counts::Added, "launch", constants.launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_hardware::Element;

    fn h200() -> &'static Gpu {
        Gpu::named("h200").unwrap()
    }

    fn wgmma(m: u32, n: u32) -> Tiled {
        Tiled {
            unit: Unit::Tensor(TensorKind::F16),
            tile: [m, n, 64],
            slab: [64, n],
            cluster: [1, 1],
            stages: 4,
            resident: 1,
            split: Split::Whole,
            overlapped: false,
            cooperates: false,
            band: Band::Rows(8),
            load: [None; 2],
        }
    }

    fn bf16(m: u32, n: u32, k: u32) -> Problem {
        Problem::new(m, n, k, Types::of(Element::BF16))
    }

    fn seconds(tiled: Tiled, problem: &Problem) -> f64 {
        predict(&Work::Tiled(tiled), problem, h200()).seconds()
    }

    #[test]
    fn wide_tiles_are_best_for_large_squares_and_come_near_what_was_measured() {
        let problem = bf16(8192, 8192, 8192);
        let wide = predict(&Work::Tiled(wgmma(128, 256)), &problem, h200());
        for (m, n) in [(128, 128), (64, 256), (64, 128), (128, 64)] {
            assert!(wide.seconds() < seconds(wgmma(m, n), &problem), "{m}x{n}");
        }
        assert_eq!(wide.binding().name, "tensor cores");
        let rate = problem.flops() / wide.seconds() * 1e-12;
        // Measured: 652.
        assert!((620.0..690.0).contains(&rate), "{rate} TFLOP/s");
    }

    #[test]
    fn sharing_what_is_loaded_costs_small_products_more_than_large_ones() {
        // Measured with 128x128, two tiles at a time: 2 to 3 % more with clusters for 2048 cubed, the same for 8192 cubed (1626 and 1624 us).
        let [alone, pair] =
            [[1, 1], [2, 1]].map(|cluster| Tiled { cluster, overlapped: true, ..wgmma(128, 128) });
        let l2 = |tiled: Tiled, problem: &Problem| {
            let predicted = predict(&Work::Tiled(tiled), problem, h200());
            predicted.terms.iter().find(|term| term.name == "loads from L2").unwrap().seconds
        };
        let (small, large) = (bf16(2048, 2048, 2048), bf16(8192, 8192, 8192));
        assert!(l2(pair, &large) < l2(alone, &large) * 0.8);
        assert!((seconds(pair, &large) / seconds(alone, &large) - 1.0).abs() < 0.005);
        assert!(seconds(pair, &small) > seconds(alone, &small) * 1.01);
    }

    #[test]
    fn clusters_share_the_larger_factor_if_memory_binds() {
        // Measured: 17.7 us alone, 17.8 us if the larger factor is shared, 22.5 us if the other one is.
        let problem = bf16(128, 6144, 4096);
        let shared = |cluster| seconds(Tiled { cluster, stages: 9, ..wgmma(64, 112) }, &problem);
        assert!(shared([1, 2]) > shared([1, 1]) * 1.15);
        assert!(shared([2, 1]) < shared([1, 1]) * 1.05);
    }

    #[test]
    fn a_vector_along_columns_costs_more_than_one_along_rows() {
        use crate::gemm::epilogue::Epilogue;
        // A bias with GELU, 4096 cubed: 205.3 us as it is, 200.6 us seen from the other side.
        let bias = |epilogue: Epilogue| Problem { epilogue, ..bf16(4096, 4096, 4096) };
        let columns = bias(Epilogue::new().bias_per_column("bias", Element::BF16));
        let rows = bias(Epilogue::new().bias_per_row("bias", Element::BF16));
        let gain = seconds(wgmma(128, 128), &columns) / seconds(wgmma(128, 128), &rows);
        assert!((1.005..1.04).contains(&gain), "{gain}");
    }

    #[test]
    fn loads_go_on_while_the_engine_stores() {
        // Two tiles each, and memory binds: the results of the first cost nothing.
        let problem = bf16(64, 132 * 128 * 2, 4096);
        let tiled = Tiled { stages: 7, ..wgmma(64, 128) };
        let overlapped = seconds(Tiled { overlapped: true, ..tiled }, &problem);
        assert!(seconds(tiled, &problem) < overlapped * 1.001);
    }

    #[test]
    fn few_tiles_want_their_depth_split() {
        let problem = bf16(128, 256, 16384);
        let split = |split| seconds(Tiled { split, ..wgmma(128, 256) }, &problem);
        assert!(split(Split::Parts(16)) < split(Split::Whole) / 2.0);
        // And many tiles do not.
        let problem = bf16(8192, 8192, 1024);
        let split = |split| seconds(Tiled { split, ..wgmma(128, 256) }, &problem);
        assert!(split(Split::Parts(4)) > split(Split::Whole));
    }

    #[test]
    fn work_that_does_not_divide_by_the_multiprocessors_is_better_dealt_out_evenly() {
        // 133 tiles: two rounds for one tile too many.
        let problem = bf16(128 * 133, 256, 8192);
        let stream = seconds(Tiled { split: Split::Stream, ..wgmma(128, 256) }, &problem);
        assert!(stream < seconds(wgmma(128, 256), &problem) * 0.75);
    }

    #[test]
    fn narrow_loads_cost() {
        let ampere = |load| Tiled { slab: [64, 64], resident: 2, load: [Some(load); 2], ..wgmma(128, 128) };
        let problem = bf16(4096, 4096, 4096);
        assert!(seconds(ampere(2), &problem) > 2.0 * seconds(ampere(16), &problem));
    }

    #[test]
    fn one_row_is_a_matter_of_memory() {
        let work = Work::Streamed(Streamed {
            unit: Unit::Floats,
            per_element: 1.5,
            columns: 8,
            parts: 1,
            in_flight: 16384,
            resident: 4,
        });
        let problem = bf16(1, 28672, 4096);
        let one = predict(&work, &problem, h200());
        assert_eq!(one.binding().name, "DRAM");
        // Measured: 58 us, and 56 us by tiles of which all but a row is empty.
        let by_tiles = seconds(wgmma(64, 256), &problem);
        assert!((1.0..1.06).contains(&(one.seconds() / by_tiles)), "{by_tiles}");
    }

    #[test]
    fn nothing_takes_no_time() {
        let nothing = predict(&Work::Tiled(wgmma(128, 128)), &bf16(0, 5, 5), h200());
        assert_eq!((nothing.seconds(), nothing.binding().name), (0.0, "nothing"));
        assert!(seconds(wgmma(128, 128), &bf16(5, 5, 0)) > 0.0);
    }

    #[test]
    fn an_explanation_names_what_binds() {
        let text = predict(&Work::Tiled(wgmma(128, 256)), &bf16(8192, 8192, 8192), h200()).to_string();
        let binds: Vec<&str> = text.lines().filter(|line| line.contains("binds")).collect();
        assert_eq!(binds.len(), 1);
        assert!(binds[0].contains("tensor cores"), "{text}");
        assert!(text.ends_with("us  in all"));
    }
}
