//! [`Prediction`]: how long a product takes, as far as arithmetic can tell before anything is measured.
//!
//! A configuration is reduced to what the hardware sees of it ([`Tiled`] or [`Streamed`]); the model holds that against the rates of a
//! chip and gives one [`Term`] for each thing that takes time. Of terms that happen at the same time the longest binds, and others that
//! come near it get in its way; the rest add up.
//!
//! Limits: nothing of power but the clocks that it leaves in the long run, no details of a pipeline. It is meant to put candidates into an order
//! whose head is worth measuring, and to say what binds; it does not replace a measurement.

mod constants;
mod streamed;
#[cfg(test)]
mod tests;
mod tiled;

use std::fmt;

use tilewright_hardware::{Arch, Gpu, TensorKind};

use super::epilogue::ExtraOperand;
use super::problem::{Problem, Types};
pub use constants::{Constants, Model};

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
    /// Steps of k that a warp takes, one after the other.
    pub steps: u32,
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
    contention: f64,
}

/// What nothing takes.
const NOTHING: Term = Term { name: "nothing", seconds: 0.0, counts: Counts::Added };

impl Prediction {
    /// All in all.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let of =
            |counts| self.terms.iter().filter(move |term| term.counts == counts).map(|term| term.seconds);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a small whole number, which is quicker to raise to"
        )]
        let power = self.contention.max(1.0) as i32;
        let longest = of(Counts::Together).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let together: f64 = of(Counts::Together).map(|seconds| (seconds / longest).powi(power)).sum();
        // A sum of nothing would be -0.
        longest * together.powf(1.0 / f64::from(power))
            + of(Counts::Added).fold(0.0, |sum, seconds| sum + seconds)
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
    pub(super) fn after_copy(self, model: &Model, gpu: &Gpu, name: &'static str, bytes: f64) -> Prediction {
        let threads = &model.threads;
        // A matrix that fits is still in the cache when it is read again, and is written there first.
        let from_cache = bytes / 2.0 < l2(gpu) * threads.l2_part;
        let rate = if from_cache {
            chip(gpu, threads.copy)
        } else {
            dram(gpu, threads, gpu.multiprocessors.into(), threads.askers)
        };
        self.with(Counts::Added, name, bytes / rate + threads.launch)
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

impl Model {
    /// How long a configuration takes for a problem, as the kernel sees it: after transposing and repacking.
    #[must_use]
    pub fn predict(&self, work: &Work, problem: &Problem, gpu: &Gpu) -> Prediction {
        if problem.m == 0 || problem.n == 0 || problem.batch == 0 {
            return Prediction::default();
        }
        match work {
            Work::Tiled(tiled) => tiled.predict(self, problem, gpu),
            Work::Streamed(streamed) => streamed.predict(self, problem, gpu),
        }
    }
}
