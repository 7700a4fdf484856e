//! Products with few rows: as fast as memory gives the right factor.
//!
//! With up to 16 rows a product does little more than read its right factor once, so the kernel is built around that stream. The right
//! factor, here called the weights, goes from memory past L1 to a queue of each thread in shared memory, 16 bytes at a time and many of
//! them in flight, and from there to registers. There the bytes are fragments already: any order of k gives the same sum as long as
//! both factors follow it, so the neighbours that a thread has loaded are handed to the tensor core as the elements that its
//! instruction wants from that thread, wherever they lie; and likewise the columns, where the weights lie along them. The weights are
//! the operand with 16 rows, the rows of the product are the columns of the instruction.
//!
//! Types without a tensor core instruction that keeps their precision (f32, f64) are multiplied by the CUDA cores from the same loads.
//!
//! The warps of a block share the steps of k, and blocks may do so too; both add in a fixed order.

mod kernel;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tilewright_hardware::{Arch, Element, Gpu};
use tilewright_lang::Element as LangElement;
use tilewright_lang::prelude::{E4m3, E5m2, Number, bf16, f16};

use super::epilogue::with_reductions;
use super::factor::Side;
use super::problem::{Placement, Problem, Storage, Types};
use super::recipe::{Binding, KernelSource, Launch, MOST_BLOCKS, Recipe, Stage};
use super::split::Split;
use super::{GemmError, result};

/// Most rows of a product.
pub const MOST_ROWS: u32 = 16;

/// How a product with few rows is computed.
///
/// ```
/// use tilewright_hardware::{Element, Gpu};
/// use tilewright_kernels::gemm::{Problem, Types, gemv};
///
/// let gpu = Gpu::named("h200").unwrap();
/// let problem = Problem::new(4, 4096, 4096, Types::of(Element::BF16));
/// let config: gemv::Config = "gemv t1 w8 s6 p1".parse()?;
/// let recipe = config.recipe(&problem, gpu)?;
/// assert_eq!(recipe.launches[0].grid, [4096 / 16, 1, 1]);
/// # Ok::<(), tilewright_kernels::gemm::GemmError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Operands of weights that a warp holds of a step: 16 columns of D each, or 8 times as many as 16 bytes hold where the weights lie
    /// along them.
    pub tiles: u32,
    /// Warps of a block, which share the steps of k.
    pub warps: u32,
    /// Steps of k of a warp that are on their way or in use.
    pub stages: u32,
    /// Blocks that share the steps of k of the same columns.
    pub parts: u32,
}

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Core {
    /// `mma.sync` with 16 rows and 8 columns, so many steps deep.
    Tensor(u32),
    /// The CUDA cores.
    Scalar,
}

/// How a warp divides a step among its lanes: eight along the columns of D, four along k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    core: Core,
    /// Whether the weights have k contiguous.
    k_major: bool,
    /// Weights of a load.
    piece: u32,
    /// Weights of a register.
    packed: u32,
    /// Steps of k of a thread, and loads that bring them.
    depth: u32,
    loads: u32,
    /// Such chunks of four lanes along k in a step.
    chunks: u32,
    /// Columns of D of one operand.
    columns: u32,
    /// Rows of the product that are computed: those of whole instructions, or just those that are there.
    rows: u32,
}

impl Shape {
    fn new(problem: &Problem, core: Core) -> Shape {
        let bytes = Side::B.element(problem).bytes();
        let (piece, packed, k_major) = (16 / bytes, (4 / bytes).max(1), Side::B.is_k_major(problem));
        let rows = match core {
            Core::Tensor(_) => problem.m.next_multiple_of(8),
            Core::Scalar => problem.m,
        };
        // An instruction takes two registers along k of each of two columns. Along k, two chunks are a line of memory: 128 bytes.
        let (depth, loads, chunks, columns) =
            if k_major { (piece, 2, 2, 16) } else { (2 * packed, 2 * packed, 1, 8 * piece) };
        Shape { core, k_major, piece, packed, depth, loads, chunks, columns, rows }
    }

    /// Steps of k of the lanes of a warp.
    fn chunk(&self) -> u32 {
        4 * self.depth
    }

    /// Steps of k that a warp takes at a time.
    fn step(&self) -> u32 {
        self.chunk() * self.chunks
    }

    /// Rows of the other factor that a lane reads.
    fn inputs(&self) -> u32 {
        match self.core {
            Core::Tensor(_) => self.rows / 8,
            Core::Scalar => self.rows,
        }
    }
}

/// What a block does and needs.
pub(super) struct Block {
    pub(super) threads: u32,
    /// Columns of the product.
    pub(super) columns: u32,
    /// Steps of k of each warp.
    pub(super) steps: u32,
    /// Bytes of its queues.
    pub(super) queue: u32,
    /// Bytes of shared memory in all.
    pub(super) shared: u32,
    /// Registers of a thread.
    pub(super) registers: u32,
}

impl Config {
    fn refuse(&self, reason: impl Into<String>) -> GemmError {
        GemmError::Config { config: self.to_string(), reason: reason.into() }
    }

    /// Threads of a block.
    #[must_use]
    pub fn threads(&self) -> u32 {
        32 * self.warps
    }

    /// Loads of weights of a thread in a step.
    fn loads(&self, shape: &Shape) -> u32 {
        shape.loads * shape.chunks * self.tiles
    }

    /// Bytes of shared memory of a block: the queues, the sums of the warps, and a little more.
    fn shared_bytes(&self, shape: &Shape, accumulate: Element) -> u32 {
        let queue = self.stages.saturating_mul(self.loads(shape)).saturating_mul(self.threads() * 16);
        let sums = self.warps * shape.rows * (shape.columns * self.tiles + 4) * accumulate.bytes();
        queue.saturating_add(sums + 512)
    }

    /// Whether this configuration computes that product on that chip.
    ///
    /// # Errors
    /// [`GemmError::Config`] with the reason if not; what is wrong with the problem itself otherwise.
    pub fn check(&self, problem: &Problem, gpu: &Gpu) -> Result<(), GemmError> {
        problem.check()?;
        let problem = &one_row(problem);
        let core = core(problem, gpu)?;
        let shape = Shape::new(problem, core);
        if problem.m > MOST_ROWS {
            return Err(self.refuse(format!("{} rows; expected at most {MOST_ROWS}", problem.m)));
        }
        let all = [self.tiles, self.warps, self.stages, self.parts];
        if all.contains(&0) || !self.tiles.is_power_of_two() || !self.warps.is_power_of_two() {
            return Err(self.refuse(format!(
                "{} tiles, {} warps, {} stages and {} parts; expected powers of two of the first two, and at least 1 of the others",
                self.tiles, self.warps, self.stages, self.parts
            )));
        }
        if self.warps > 16 || self.tiles > 8 {
            return Err(self.refuse("expected at most 16 warps and 8 tiles"));
        }
        if self.stages < 2 {
            return Err(self.refuse("two stages at least, one on its way and one in use"));
        }
        let needed = self.registers(&shape, problem.types.accumulate);
        let registers = (gpu.arch.limits().registers_per_sm / self.threads()).min(255);
        if needed > registers {
            return Err(self.refuse(format!("a thread needs {needed} registers, and has {registers}")));
        }
        let (bytes, most) =
            (self.shared_bytes(&shape, problem.types.accumulate), gpu.arch.limits().shared_per_block);
        if bytes > most {
            return Err(self.refuse(format!("{bytes} bytes of shared memory, {} has {most}", gpu.title)));
        }
        let blocks = self.blocks(problem, &shape);
        if blocks > MOST_BLOCKS {
            return Err(self.refuse(format!("{blocks} blocks, which no launch has")));
        }
        let steps = problem.k.div_ceil(shape.step());
        if self.parts > 1 && self.parts > steps {
            return Err(self.refuse(format!("{} parts of {steps} steps of k", self.parts)));
        }
        Ok(())
    }

    /// Registers of a thread, about: for weights in use, the other factor and its addresses, sums, and everything else.
    fn registers(&self, shape: &Shape, accumulate: Element) -> u32 {
        let words = accumulate.bytes() / 4;
        let columns = if shape.k_major { 2 } else { shape.piece };
        let (inputs, sums) = match shape.core {
            Core::Tensor(_) => (6 * shape.inputs(), columns * shape.rows / 4),
            Core::Scalar => (shape.rows * (shape.depth * words + 2), columns * shape.rows * words),
        };
        4 * self.loads(shape) + inputs + sums * self.tiles + 40
    }

    /// What a block does and needs, for the model. None if the chip cannot multiply such types.
    pub(super) fn block(&self, problem: &Problem, gpu: &Gpu) -> Option<Block> {
        let problem = &one_row(problem);
        let shape = Shape::new(problem, core(problem, gpu).ok()?);
        Some(Block {
            threads: self.threads(),
            columns: shape.columns * self.tiles,
            steps: problem.k.div_ceil(shape.step()).div_ceil((self.warps * self.parts).max(1)),
            queue: self.stages * self.loads(&shape) * self.threads() * 16,
            shared: self.shared_bytes(&shape, problem.types.accumulate),
            registers: self.registers(&shape, problem.types.accumulate),
        })
    }

    fn blocks(&self, problem: &Problem, shape: &Shape) -> u64 {
        if problem.m == 0 {
            return 0;
        }
        let tiles = u64::from(problem.n.div_ceil(shape.columns * self.tiles));
        tiles.saturating_mul(u64::from(problem.batch)).saturating_mul(u64::from(self.parts))
    }

    /// The launches that compute the product.
    ///
    /// # Errors
    /// If [`check`](Config::check) says no.
    pub fn recipe(&self, problem: &Problem, gpu: &Gpu) -> Result<Recipe, GemmError> {
        self.check(problem, gpu)?;
        with_reductions(problem, |problem| self.product(problem, gpu))
    }

    /// The launches for an epilogue that reduces nothing.
    fn product(&self, problem: &Problem, gpu: &Gpu) -> Result<Recipe, GemmError> {
        let problem = &one_row(problem);
        let shape = Shape::new(problem, core(problem, gpu)?);
        let mut recipe = Recipe::default();
        let blocks = self.blocks(problem, &shape);
        if blocks == 0 {
            return Ok(recipe);
        }
        let columns = shape.columns * self.tiles;
        // Every part but the last has the same number of whole steps.
        let share = problem.k.div_ceil(shape.step()).div_ceil(self.parts).max(1) * shape.step();
        let number = |name: &str, n: u32| (name.to_owned(), Binding::U32(n));
        let mut bindings = vec![
            number("m", problem.m),
            number("n", problem.n),
            number("k", problem.k),
            number("tiles_n", problem.n.div_ceil(columns)),
            number("parts", self.parts),
            number("share", share),
        ];
        bindings.extend(Side::A.bindings(problem));
        bindings.extend(Side::B.bindings(problem));
        bindings.extend(result::bindings(problem));
        let split = Split {
            parts: self.parts,
            tiles: blocks / u64::from(self.parts),
            bytes: u64::from(self.sums_in_shares(&shape)) * u64::from(problem.types.accumulate.bytes()),
        };
        split.provide(&mut recipe, &mut bindings);
        let stage = self.stage(problem, shape);
        let kernel = KernelSource { key: self.key(problem, &shape), stage };
        let grid = [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1];
        recipe.launches.push(Launch::new(kernel, grid, bindings));
        Ok(recipe)
    }

    /// Groups of four sums that every thread finishes.
    fn quads(&self, shape: &Shape) -> u32 {
        (shape.rows * shape.columns * self.tiles / 4).div_ceil(self.threads())
    }

    /// Sums that a block hands in when blocks share the steps of k.
    fn sums_in_shares(&self, shape: &Shape) -> u32 {
        self.quads(shape) * 4 * self.threads()
    }

    /// Stages the kernel for the types of the weights, the other factor, the sums and the epilogue.
    fn stage(&self, problem: &Problem, shape: Shape) -> Stage {
        use Element::{BF16, E4M3, E5M2, F16, F64, I8, I32, U8};
        // Integers stay what they are if nothing is computed with them on the way to an integer result.
        let exact = problem.epilogue.computes_in(&problem.types) == I32;
        match (Side::B.element(problem), Side::A.element(problem)) {
            (F64, _) => self.staged::<f64, f64, f64, f64>(problem, shape),
            (BF16, _) => self.staged::<bf16, bf16, f32, f32>(problem, shape),
            (F16, _) => self.staged::<f16, f16, f32, f32>(problem, shape),
            (E4M3, E5M2) => self.staged::<E4m3, E5m2, f32, f32>(problem, shape),
            (E4M3, _) => self.staged::<E4m3, E4m3, f32, f32>(problem, shape),
            (E5M2, E5M2) => self.staged::<E5m2, E5m2, f32, f32>(problem, shape),
            (E5M2, _) => self.staged::<E5m2, E4m3, f32, f32>(problem, shape),
            (I8, U8) if exact => self.staged::<i8, u8, i32, i32>(problem, shape),
            (I8, _) if exact => self.staged::<i8, i8, i32, i32>(problem, shape),
            (U8, U8) if exact => self.staged::<u8, u8, i32, i32>(problem, shape),
            (U8, _) if exact => self.staged::<u8, i8, i32, i32>(problem, shape),
            (I8, U8) => self.staged::<i8, u8, i32, f32>(problem, shape),
            (I8, _) => self.staged::<i8, i8, i32, f32>(problem, shape),
            (U8, U8) => self.staged::<u8, u8, i32, f32>(problem, shape),
            (U8, _) => self.staged::<u8, i8, i32, f32>(problem, shape),
            _ => self.staged::<f32, f32, f32, f32>(problem, shape),
        }
    }

    fn staged<W: LangElement, X: LangElement, C: Number, R: Number>(
        &self,
        problem: &Problem,
        shape: Shape,
    ) -> Stage {
        let (config, problem) = (*self, problem.clone());
        Arc::new(move || kernel::gemv::stage::<W, X, C, R>(problem.clone(), config, shape))
    }

    /// Everything that decides the code. How many parts there are is a number of the run; whether there are several is not.
    fn key(&self, problem: &Problem, shape: &Shape) -> String {
        let code = Config { parts: self.parts.min(2), ..*self };
        let factor = |side: Side| {
            let width = kernel::width(side, problem);
            format!("{side} {} {:?} w{width}", side.element(problem), side.placement(problem).storage)
        };
        format!(
            "{code} m{} | {} {} {:?} | {}",
            shape.rows,
            factor(Side::A),
            factor(Side::B),
            problem.batching,
            result::key(problem)
        )
    }

    /// Configurations worth trying.
    #[must_use]
    pub fn candidates(problem: &Problem, gpu: &Gpu) -> Vec<Config> {
        let problem = &one_row(problem);
        let Ok(core) = core(problem, gpu) else { return Vec::new() };
        let shape = Shape::new(problem, core);
        let mut candidates = Vec::new();
        for (tiles, warps, stages) in
            [(1, 4, 8), (1, 8, 4), (1, 8, 6), (1, 16, 4), (1, 16, 6), (2, 4, 6), (2, 8, 4), (2, 16, 3)]
        {
            let whole = Config { tiles, warps, stages, parts: 1 };
            let blocks = whole.blocks(problem, &shape);
            let steps = u64::from(problem.k.div_ceil(shape.step()));
            let enough = |parts: &u32| {
                // Parts are for products with too few columns to give every multiprocessor some blocks, and long enough to share: the longer, the more
                // sums the last block adds up.
                let (parts, each) = (u64::from(*parts), u64::from(warps));
                let least = if parts > 32 { 8 } else { 2 };
                let few = blocks.saturating_mul(parts) <= 6 * u64::from(gpu.multiprocessors);
                parts == 1 || (few && steps / parts >= least * each)
            };
            let parts = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128].into_iter().filter(enough);
            candidates.extend(parts.map(|parts| Config { parts, ..whole }));
        }
        candidates.retain(|config| config.check(problem, gpu).is_ok());
        candidates
    }
}

/// What multiplies these types on that chip.
fn core(problem: &Problem, gpu: &Gpu) -> Result<Core, GemmError> {
    let Types { a, b, accumulate, c: _, d } = problem.types;
    let eight_bit = |x| matches!(x, Element::E4M3 | Element::E5M2);
    let integer = |x| matches!(x, Element::I8 | Element::U8);
    let refuse = |expected: &str| GemmError::Types {
        a: a.name(),
        b: b.name(),
        accumulate: accumulate.name(),
        d: d.name(),
        expected: expected.to_owned(),
    };
    match (Types::in_memory(a), Types::in_memory(b), accumulate) {
        (Element::F16, Element::F16, Element::F32) | (Element::BF16, Element::BF16, Element::F32) => {
            Ok(Core::Tensor(16))
        }
        (a, b, Element::F32) if eight_bit(a) && eight_bit(b) => {
            if gpu.arch.supports(Arch::SM_89) {
                Ok(Core::Tensor(32))
            } else {
                Err(refuse("8-bit floats are multiplied from sm_89 on"))
            }
        }
        (a, b, Element::I32) if integer(a) && integer(b) => Ok(Core::Tensor(32)),
        (Element::F32, Element::F32, Element::F32) | (Element::F64, Element::F64, Element::F64) => {
            Ok(Core::Scalar)
        }
        _ => Err(refuse(
            "factors of one type, or both of 8 bits, with sums in f32, f64 for f64, i32 for integers",
        )),
    }
}

/// A single row or column lies side by side in either storage: the problem with the one that has k contiguous.
fn one_row(problem: &Problem) -> Problem {
    let along_k = |placement: &Placement, rows: u32, k_major: Storage| {
        if rows == 1 && placement.storage != k_major && placement.leading == 1 {
            Placement { storage: k_major, leading: u64::from(problem.k.max(1)), ..*placement }
        } else {
            *placement
        }
    };
    Problem {
        a: along_k(&problem.a, problem.m, Side::A.k_major()),
        b: along_k(&problem.b, problem.n, Side::B.k_major()),
        ..problem.clone()
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { tiles, warps, stages, parts } = self;
        write!(f, "gemv t{tiles} w{warps} s{stages} p{parts}")
    }
}

impl FromStr for Config {
    type Err = GemmError;

    fn from_str(text: &str) -> Result<Config, GemmError> {
        let refuse = || GemmError::Config {
            config: text.to_owned(),
            reason: "expected a text such as `gemv t1 w8 s6 p1`".to_owned(),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let ["gemv", tiles, warps, stages, parts] = words[..] else { return Err(refuse()) };
        let number = |text: &str, letter: char| {
            text.strip_prefix(letter).and_then(|n| n.parse().ok()).ok_or_else(refuse)
        };
        Ok(Config {
            tiles: number(tiles, 't')?,
            warps: number(warps, 'w')?,
            stages: number(stages, 's')?,
            parts: number(parts, 'p')?,
        })
    }
}
