//! `mma.sync` and `cp.async`: what runs on every chip since Ampere, for every type, storage and alignment.
//!
//! | file | what it does |
//! | --- | --- |
//! | this one | [`Config`]: which tiles, what is legal, the launch |
//! | `kernel` | the kernel from top to bottom |
//! | `load` | tiles from global to shared memory, at any alignment |
//! | `fragments` | operands from shared memory to registers |
//! | `result` | sums to D, through the epilogue |
//!
//! Contract: everything but extents, strides and numbers of the run is part of a kernel's key. Any extents work with any configuration;
//! a configuration is refused only for what the chip cannot do (types, shared memory, registers) or what a tile cannot be.

mod fragments;
mod kernel;
mod load;
mod result;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tilewright_hardware::{Element, Gpu, Major, mma};
use tilewright_lang::prelude::{E4m3, E5m2, Kernel, Tf32, bf16, f16};

use super::GemmError;
use super::epilogue::add_reductions;
use super::matrix::GlobalMatrix;
use super::problem::{Accumulation, Batching, Placement, Problem, Types};
use super::recipe::{Binding, KernelSource, Launch, MOST_BLOCKS, Operand, Recipe};
use super::split::Split;
use fragments::Order;
use load::{Reading, Side, major, reading};
use result::Strips;

/// How a product is cut into blocks, warps and steps.
///
/// ```
/// use tilewright_hardware::{Element, Gpu};
/// use tilewright_kernels::gemm::{Problem, Types, ampere::Config};
/// let config: Config = "ampere 128x128x32 w2x2 i16 s4 g8 p1".parse()?;
/// assert_eq!(config.to_string(), "ampere 128x128x32 w2x2 i16 s4 g8 p1");
/// let a100 = Gpu::named("a100").ok_or("a chip of the table")?;
/// let recipe = config.recipe(&Problem::new(1000, 500, 77, Types::of(Element::BF16)), a100)?;
/// assert_eq!(recipe.launches[0].grid, [8 * 4, 1, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Rows of D that a block computes. Extents of tiles and warps are powers of two.
    pub m: u32,
    /// Columns of D that a block computes.
    pub n: u32,
    /// Depth of a tile: 32, 64 or 128 bytes where k is contiguous.
    pub k: u32,
    /// Warps that share the rows.
    pub warps_m: u32,
    /// Warps that share the columns.
    pub warps_n: u32,
    /// Depth of one instruction.
    pub inner: u32,
    /// Tiles in shared memory: 2 to 8.
    pub stages: u32,
    /// Rows of tiles that are computed together, so that they find in L2 what others have read.
    pub group: u32,
    /// Blocks that share the depth of a tile of D. More than there are steps of k count as that many.
    pub parts: u32,
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { m, n, k, warps_m, warps_n, inner, stages, group, parts } = self;
        f.pad(&format!("ampere {m}x{n}x{k} w{warps_m}x{warps_n} i{inner} s{stages} g{group} p{parts}"))
    }
}

impl FromStr for Config {
    type Err = GemmError;

    fn from_str(text: &str) -> Result<Config, GemmError> {
        let numbers = |word: &str, prefix: &str, count: usize| -> Option<Vec<u32>> {
            let numbers: Option<Vec<u32>> =
                word.strip_prefix(prefix)?.split('x').map(|n| n.parse().ok()).collect();
            numbers.filter(|numbers| numbers.len() == count)
        };
        let read = || -> Option<Config> {
            let words: Vec<&str> = text.split_whitespace().collect();
            let ["ampere", tile, warps, inner, stages, group, parts] = words[..] else { return None };
            let (tile, warps) = (numbers(tile, "", 3)?, numbers(warps, "w", 2)?);
            let one = |word, prefix| numbers(word, prefix, 1).map(|numbers| numbers[0]);
            Some(Config {
                m: tile[0],
                n: tile[1],
                k: tile[2],
                warps_m: warps[0],
                warps_n: warps[1],
                inner: one(inner, "i")?,
                stages: one(stages, "s")?,
                group: one(group, "g")?,
                parts: one(parts, "p")?,
            })
        };
        read().ok_or_else(|| GemmError::Config {
            config: text.to_owned(),
            reason: "it cannot be read; expected a text such as `ampere 128x128x32 w2x2 i16 s4 g8 p1`"
                .to_owned(),
        })
    }
}

/// Registers of a thread that sums may take; the rest is for fragments and addresses.
const MOST_SUMS: u32 = 128;

impl Config {
    /// Threads of a block.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.warps_m.saturating_mul(self.warps_n).saturating_mul(32)
    }

    /// Rows and columns of one warp.
    fn warp_tile(&self) -> (u32, u32) {
        (self.m / self.warps_m.max(1), self.n / self.warps_n.max(1))
    }

    /// Whether this configuration computes the problem on that chip.
    ///
    /// # Errors
    /// If it does not: with the reason.
    pub fn check(&self, problem: &Problem, gpu: &Gpu) -> Result<(), GemmError> {
        self.plan(problem, gpu).map(|_| ())
    }

    fn refuse(&self, reason: impl Into<String>) -> GemmError {
        GemmError::Config { config: self.to_string(), reason: reason.into() }
    }

    /// Everything that is known before the kernel is staged.
    fn plan(&self, problem: &Problem, gpu: &Gpu) -> Result<Plan, GemmError> {
        problem.check()?;
        let types = problem.types;
        let extents = [self.m, self.n, self.k, self.warps_m, self.warps_n];
        if extents.iter().any(|extent| !extent.is_power_of_two()) {
            return Err(self.refuse("extents of tiles and warps must be powers of two"));
        }
        if self.m > 512 || self.n > 512 || self.k > 512 {
            return Err(self.refuse("extents of tiles are at most 512"));
        }
        if !(2..=8).contains(&self.stages) {
            return Err(self.refuse(format!("{} stages; expected 2 to 8", self.stages)));
        }
        if self.group == 0 || self.parts == 0 {
            return Err(self.refuse(format!(
                "groups of {} and {} parts; expected at least 1 of each",
                self.group, self.parts
            )));
        }
        if self.threads() > 1024 {
            return Err(self.refuse(format!("{} threads; a block has at most 1024", self.threads())));
        }
        let atom = self.atom(types, gpu)?;
        let shape = (atom.shape.m, atom.shape.n, atom.shape.k);
        let (warp_m, warp_n) = self.warp_tile();
        let (k_a, k_b) = problem.k_major();
        let (a, b) = (Types::in_memory(types.a), Types::in_memory(types.b));
        let unit = |element: Element, k_contiguous: bool| {
            if reading(element, major(k_contiguous)) == Reading::Bytes { 32 } else { 16 }
        };
        if warp_m < unit(a, k_a) || warp_n < unit(b, k_b) {
            return Err(self.refuse(format!(
                "a warp has {warp_m} x {warp_n} of D; expected at least {} x {}",
                unit(a, k_a),
                unit(b, k_b)
            )));
        }
        if self.k < self.inner || self.k * a.bytes() < 32 {
            return Err(self.refuse("the tile is shallower than an instruction, or than 32 bytes"));
        }
        let swizzled = |element, k_contiguous| {
            k_contiguous && reading(element, Major::K) == Reading::Matrices && self.k * element.bytes() > 128
        };
        if swizzled(a, k_a) || swizzled(b, k_b) {
            return Err(self.refuse("the tile is deeper than 128 bytes, where k is contiguous"));
        }
        let sets = if promoted(problem) { 2 } else { 1 };
        let sums = warp_m * warp_n / 32 * types.accumulate.bytes() / 4 * sets;
        if sums > MOST_SUMS {
            return Err(self.refuse(format!("{sums} registers of sums; expected at most {MOST_SUMS}")));
        }
        let vector = |placement: &Placement, element: Element| {
            let batch = if problem.batching == Batching::Strided { problem.batch } else { 1 };
            placement.vector(element, batch, 16 / element.bytes())
        };
        let left = Side::new(a, major(k_a), (self.m, warp_m, self.k), vector(&problem.a, a), None)?;
        let right =
            Side::new(b, major(k_b), (self.n, warp_n, self.k), vector(&problem.b, b), Some(left.bytes()))?;
        let plan = Plan {
            config: *self,
            shape,
            a: left,
            b: right,
            d_vector: vector(&problem.d, types.d),
            split: self.parts_for(problem) > 1,
            problem: problem.clone(),
        };
        let (shared, most) = (plan.shared_bytes() + 16, gpu.arch.limits().shared_per_block);
        if shared > most {
            return Err(self.refuse(format!("{shared} bytes of shared memory; {} has {most}", gpu.title)));
        }
        let blocks = self.tiles(problem).saturating_mul(self.parts_for(problem).into());
        if blocks > MOST_BLOCKS {
            return Err(self.refuse(format!("{blocks} blocks; a launch has at most {MOST_BLOCKS}")));
        }
        Ok(plan)
    }

    fn atom(&self, types: Types, gpu: &Gpu) -> Result<&'static mma::Mma, GemmError> {
        let Types { a, b, accumulate, d, .. } = types;
        let of_types = |atom: &&mma::Mma| {
            let wide = matches!(atom.c, Element::F32 | Element::F64 | Element::I32);
            wide && atom.group == mma::Group::Warp && (atom.a, atom.b, atom.c) == (a, b, accumulate)
        };
        let all: Vec<&'static mma::Mma> = mma::all().filter(of_types).collect();
        if all.is_empty() {
            return Err(GemmError::Types {
                a: a.name(),
                b: b.name(),
                accumulate: accumulate.name(),
                d: d.name(),
                expected: "tensor cores multiply bf16, f16, tf32, 8-bit floats (sums in f32), f64 and 8-bit integers (sums in i32)".to_owned(),
            });
        }
        let runs: Vec<_> = all.into_iter().filter(|atom| gpu.arch.supports(atom.needs)).collect();
        // The tallest: on Hopper f64 has instructions of 16 rows and, for Ampere's code, of 8.
        let found = runs.iter().filter(|atom| atom.shape.k == self.inner).max_by_key(|atom| atom.shape.m);
        found.copied().ok_or_else(|| {
            let depths: Vec<String> = runs.iter().map(|atom| atom.shape.k.to_string()).collect();
            self.refuse(match depths.is_empty() {
                true => format!("{} has no instruction for {a} and {b}", gpu.title),
                false => format!("no instruction is {} deep; expected {}", self.inner, depths.join(" or ")),
            })
        })
    }

    /// Steps of k of one part, and how many parts there are.
    fn parts_and_steps(&self, problem: &Problem) -> (u32, u32) {
        let steps = problem.k.div_ceil(self.k).max(1);
        let each = steps.div_ceil(self.parts.clamp(1, steps));
        (steps.div_ceil(each), each)
    }

    fn parts_for(&self, problem: &Problem) -> u32 {
        self.parts_and_steps(problem).0
    }

    /// Tiles of D, of all members.
    fn tiles(&self, problem: &Problem) -> u64 {
        let of = |extent: u32, tile: u32| u64::from(extent.div_ceil(tile));
        (of(problem.m, self.m) * of(problem.n, self.n)).saturating_mul(problem.batch.into())
    }

    /// The launch that computes a problem.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn recipe(&self, problem: &Problem, gpu: &Gpu) -> Result<Recipe, GemmError> {
        let plan = self.plan(problem, gpu)?;
        if problem.m == 0 || problem.n == 0 || problem.batch == 0 {
            return Ok(Recipe::default());
        }
        let (parts, steps) = self.parts_and_steps(problem);
        let tiles = self.tiles(problem);
        // No more than there are, so that groups are no larger than everything.
        let group = self.group.min(problem.m.div_ceil(self.m));
        let number = |name: &str, n: u32| (name.to_owned(), Binding::U32(n));
        let mut bindings = vec![
            number("m", problem.m),
            number("n", problem.n),
            number("k", problem.k),
            number("group", group),
            number("parts", parts),
            number("steps_of_part", steps),
        ];
        bindings.extend(GlobalMatrix::bindings("a", Operand::A, &problem.a));
        bindings.extend(GlobalMatrix::bindings("b", Operand::B, &problem.b));
        bindings.extend(GlobalMatrix::bindings("d", Operand::D, &problem.d));
        bindings.extend(problem.epilogue.bindings(problem));
        let mut recipe = Recipe::default();
        let bytes = u64::from(self.m * self.n * problem.types.accumulate.bytes());
        Split { parts, tiles, bytes }.provide(&mut recipe, &mut bindings);
        let blocks = u32::try_from(tiles * u64::from(parts)).map_err(|_| self.refuse("too many blocks"))?;
        let pieces =
            plan.strips().pieces(problem.m.next_multiple_of(self.m), problem.n.next_multiple_of(self.n));
        let kernel = KernelSource { key: plan.key(), stage: Arc::new(move || plan.stage()) };
        recipe.launches.push(Launch::new(kernel, [blocks, 1, 1], bindings));
        add_reductions(problem, pieces, &mut recipe);
        Ok(recipe)
    }

    /// The legal configurations that are worth trying.
    #[must_use]
    pub fn candidates(problem: &Problem, gpu: &Gpu) -> Vec<Config> {
        let mut found: Vec<Config> = Vec::new();
        let types = problem.types;
        let bytes = Types::in_memory(types.a).bytes();
        let inners: &[u32] = match (types.a, gpu.arch.number >= 90) {
            (Element::F64, true) => &[8, 4, 16],
            (Element::F64, false) => &[4],
            (Element::TF32, _) => &[8],
            _ if bytes == 1 => &[32],
            _ => &[16],
        };
        let tiles: &[(u32, u32, u32, u32)] = match types.a {
            Element::F64 => {
                &[(128, 128, 2, 4), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (32, 32, 2, 1)]
            }
            _ => &[
                (128, 256, 2, 4),
                (256, 128, 4, 2),
                (128, 128, 2, 2),
                (128, 128, 2, 4),
                (128, 64, 2, 2),
                (64, 128, 2, 2),
                (64, 64, 2, 2),
                (64, 32, 2, 1),
                (32, 128, 1, 4),
                (32, 64, 1, 2),
                (16, 128, 1, 4),
                (128, 16, 4, 1),
                (32, 32, 1, 1),
            ],
        };
        let depths = [64, 128];
        let blocks_at_once = u64::from(gpu.multiprocessors);
        // Tiles that are mostly empty are not worth trying, as long as there are others.
        let wasteful = |tile: u32, extent: u32| tile > 32 && tile / 2 >= extent;
        for &(m, n, warps_m, warps_n) in tiles {
            if wasteful(m, problem.m) || wasteful(n, problem.n) {
                continue;
            }
            for (&inner, &depth) in
                inners.iter().flat_map(|inner| depths.iter().map(move |depth| (inner, depth)))
            {
                for stages in [3, 4, 5] {
                    let whole = Config {
                        m,
                        n,
                        k: depth / bytes,
                        warps_m,
                        warps_n,
                        inner,
                        stages,
                        group: 8,
                        parts: 1,
                    };
                    let steps = problem.k.div_ceil(whole.k).max(1);
                    // Parts until every multiprocessor has a block, as long as each has some steps to itself.
                    let fill = (blocks_at_once / whole.tiles(problem).max(1)).min(u64::from(steps / 4));
                    let fill = u32::try_from(fill).unwrap_or(1);
                    for parts in [1, fill / 2, fill] {
                        let config = Config { parts: parts.max(1), ..whole };
                        if !found.contains(&config) && config.check(problem, gpu).is_ok() {
                            found.push(config);
                        }
                    }
                }
            }
        }
        found
    }
}

/// A configuration with its problem: what a kernel is staged from.
#[derive(Clone, Debug, PartialEq)]
struct Plan {
    config: Config,
    shape: (u32, u32, u32),
    a: Side,
    b: Side,
    /// Elements of D in one store.
    d_vector: u32,
    /// Whether blocks share the depth.
    split: bool,
    problem: Problem,
}

impl Plan {
    /// Bytes of a tile of A and one of B.
    fn stage_bytes(&self) -> u32 {
        self.a.bytes() + self.b.bytes()
    }

    /// Bytes of shared memory: tiles first, then strips of results.
    fn shared_bytes(&self) -> u32 {
        let warps = self.config.warps_m * self.config.warps_n;
        (self.config.stages * self.stage_bytes()).max(warps * self.strips().bytes())
    }

    fn strips(&self) -> Strips {
        Strips::new(self)
    }

    /// Products of a warp: rows and columns of instructions.
    fn products(&self) -> (u32, u32) {
        let (m, n) = self.config.warp_tile();
        (m / self.shape.0, n / self.shape.1)
    }

    /// Everything that decides what is staged.
    fn key(&self) -> String {
        let Config { m, n, k, warps_m, warps_n, inner, stages, .. } = self.config;
        let Problem { types, batching, batch, c, d, epilogue, .. } = &self.problem;
        let (rows, columns) = (Order::of(&self.a), Order::of(&self.b));
        format!(
            "ampere {m}x{n}x{k} w{warps_m}x{warps_n} i{inner} s{stages} shape {:?} types {types:?} a {} v{} {rows:?} b {} v{} {columns:?} \
             c {:?} v{} d {:?} v{} {batching:?} several {} split {} promoted {} epilogue {epilogue}",
            self.shape,
            self.a.major,
            self.a.vector,
            self.b.major,
            self.b.vector,
            c.storage,
            epilogue.c_vector(&self.problem),
            d.storage,
            self.d_vector,
            *batch > 1,
            self.split,
            promoted(&self.problem),
        )
    }

    fn stage(&self) -> Result<Kernel, tilewright_lang::Error> {
        use kernel::product;
        let plan = self.clone();
        macro_rules! bytes {
            ($A:ty, $B:ty) => {
                if self.problem.epilogue.computes_in(&self.problem.types) == Element::I32 {
                    product::stage::<$A, $B, i32, i32>(plan)
                } else {
                    product::stage::<$A, $B, i32, f32>(plan)
                }
            };
        }
        match (self.problem.types.a, self.problem.types.b) {
            (Element::F16, _) => product::stage::<f16, f16, f32, f32>(plan),
            (Element::TF32, _) => product::stage::<Tf32, Tf32, f32, f32>(plan),
            (Element::F64, _) => product::stage::<f64, f64, f64, f64>(plan),
            (Element::I8, Element::I8) => bytes!(i8, i8),
            (Element::I8, _) => bytes!(i8, u8),
            (Element::U8, Element::I8) => bytes!(u8, i8),
            (Element::U8, _) => bytes!(u8, u8),
            (Element::E4M3, Element::E4M3) => product::stage::<E4m3, E4m3, f32, f32>(plan),
            (Element::E4M3, _) => product::stage::<E4m3, E5m2, f32, f32>(plan),
            (Element::E5M2, Element::E4M3) => product::stage::<E5m2, E4m3, f32, f32>(plan),
            (Element::E5M2, _) => product::stage::<E5m2, E5m2, f32, f32>(plan),
            _ => product::stage::<bf16, bf16, f32, f32>(plan),
        }
    }
}

/// Whether sums are kept outside of the tensor core.
fn promoted(problem: &Problem) -> bool {
    let Types { a, .. } = problem.types;
    problem.accumulation == Accumulation::Promoted && a.bits() == 8 && a.is_float()
}
