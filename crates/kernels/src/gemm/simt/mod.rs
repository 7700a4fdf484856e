//! Products on the CUDA cores: f32 and f64 with every addition and multiplication in that type.
//!
//! A block computes a tile of D, a thread a block of it in registers, fed from a ring of tiles in shared memory that asynchronous copies
//! fill some steps ahead. Both factors lie in shared memory with their rows contiguous, so that a thread reads the elements of a step
//! as 16-byte vectors; a factor with k contiguous is turned on the way in, element by element, which asynchronous copies do for free.
//!
//! Any extents, leading dimensions, alignments and batches; D in both storages; k split over blocks deterministically.

mod kernel;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tilewright_hardware::{Element, Gpu};

use super::epilogue::with_reductions;
use super::factor::Side;
use super::problem::{Problem, Types};
use super::recipe::{Binding, KernelSource, Launch, MOST_BLOCKS, Recipe, Stage};
use super::split::Split;
use super::{GemmError, result};

/// How a product is computed on the CUDA cores.
///
/// ```
/// use tilewright_hardware::{Element, Gpu};
/// use tilewright_kernels::gemm::{Problem, Types, simt};
///
/// let gpu = Gpu::named("h200").unwrap();
/// let problem = Problem::new(4096, 4096, 4096, Types::of(Element::F32));
/// let config: simt::Config = "simt 128x128x16 8x8 s3 g8 p1".parse()?;
/// let recipe = config.recipe(&problem, gpu)?;
/// assert_eq!(recipe.launches[0].grid, [32 * 32, 1, 1]);
/// # Ok::<(), tilewright_kernels::gemm::GemmError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Rows of D of a block.
    pub m: u32,
    /// Columns of D of a block.
    pub n: u32,
    /// Steps of k of a tile in shared memory.
    pub k: u32,
    /// Rows of D of a thread.
    pub thread_m: u32,
    /// Columns of D of a thread.
    pub thread_n: u32,
    /// Tiles of each factor in shared memory.
    pub stages: u32,
    /// Steps of k that the main loop takes at a time.
    pub unrolled: u32,
    /// Rows of tiles that neighbouring blocks walk through together, for the sake of L2.
    pub group: u32,
    /// Blocks that share the steps of k of a tile.
    pub parts: u32,
}

/// Steps of k that the main loop takes at a time if nobody says otherwise.
const UNROLLED: u32 = 2;

/// Threads of a warp along the rows and along the columns of D.
const LANES: (u32, u32) = (4, 8);

impl Config {
    /// Threads of a block.
    #[must_use]
    pub fn threads(&self) -> u32 {
        (self.m / self.thread_m) * (self.n / self.thread_n)
    }

    /// Blocks that a multiprocessor should hold at a time: sixteen warps hide latencies better than eight, if sums and two steps of the
    /// factors leave registers for everything else.
    fn resident(&self, element: Element) -> u32 {
        let elements = self.thread_m * self.thread_n + 2 * (self.thread_m + self.thread_n);
        let threads = if elements * element.bytes() / 4 > 96 { 256 } else { 512 };
        (threads / self.threads()).max(1)
    }

    /// Bytes of shared memory of a block.
    #[must_use]
    pub fn shared_bytes(&self, element: Element) -> u32 {
        let pitch = |rows: u32| rows * element.bytes() + 16;
        let ring = |rows: u32| (pitch(rows) * self.k).next_multiple_of(128) * self.stages;
        ring(self.m) + ring(self.n) + 128
    }

    fn refuse(&self, reason: impl Into<String>) -> GemmError {
        GemmError::Config { config: self.to_string(), reason: reason.into() }
    }

    /// Whether this configuration computes that product on that chip.
    ///
    /// # Errors
    /// [`GemmError::Config`] with the reason if not; what is wrong with the problem itself otherwise.
    pub fn check(&self, problem: &Problem, gpu: &Gpu) -> Result<(), GemmError> {
        problem.check()?;
        let element = self.check_types(problem)?;
        let vector = 16 / element.bytes();
        let extents = [self.m, self.n, self.k, self.thread_m, self.thread_n, self.unrolled];
        let counts = [self.stages, self.group, self.parts];
        if counts.contains(&0) || extents.iter().any(|n| !n.is_power_of_two()) {
            return Err(self.refuse(format!(
                "extents {extents:?} and counts {counts:?}; expected powers of two, and counts of at least 1"
            )));
        }
        if self.m > 512 || self.n > 512 || self.k > 128 || self.stages > 16 || self.group > 32 {
            return Err(self.refuse("expected at most 512x512x128, 16 stages and groups of 32"));
        }
        let held = self.thread_m.saturating_mul(self.thread_n);
        if self.thread_m < vector || self.thread_n < vector || held > 128 {
            return Err(self.refuse(format!(
                "a thread has {} times {} elements; expected at least {vector} each way and at most 128 in all",
                self.thread_m, self.thread_n
            )));
        }
        if held * element.bytes() > 512 {
            return Err(self.refuse("the sums of a thread take more than 128 registers"));
        }
        let warp = (LANES.0 * self.thread_m, LANES.1 * self.thread_n);
        if !self.m.is_multiple_of(warp.0) || !self.n.is_multiple_of(warp.1) {
            return Err(self.refuse(format!(
                "a warp has {} times {} elements, which must divide the tile",
                warp.0, warp.1
            )));
        }
        let limits = gpu.arch.limits();
        if self.threads() > 512 {
            return Err(self.refuse(format!("{} threads; expected at most 512", self.threads())));
        }
        if self.k < 8
            || self.m * self.k < self.threads() * vector
            || self.n * self.k < self.threads() * vector
        {
            return Err(
                self.refuse("tiles of 8 steps of k at least, with 16 bytes of each factor for every thread")
            );
        }
        if self.stages < 3 {
            return Err(self.refuse("three stages at least: one that is used, the next, and one to fill"));
        }
        if self.unrolled > self.k {
            return Err(self.refuse(format!("{} steps at a time of {}", self.unrolled, self.k)));
        }
        if self.shared_bytes(element) > limits.shared_per_block {
            return Err(self.refuse(format!(
                "{} bytes of shared memory, {} has {}",
                self.shared_bytes(element),
                gpu.title,
                limits.shared_per_block
            )));
        }
        if self.blocks(problem) > MOST_BLOCKS {
            return Err(self.refuse(format!("{} blocks, which no launch has", self.blocks(problem))));
        }
        if self.parts > 1 && self.parts > problem.k.div_ceil(self.k) {
            return Err(self.refuse(format!(
                "{} parts of {} steps of k",
                self.parts,
                problem.k.div_ceil(self.k)
            )));
        }
        Ok(())
    }

    fn check_types(&self, problem: &Problem) -> Result<Element, GemmError> {
        let Types { a, b, accumulate, c: _, d } = problem.types;
        match (Types::in_memory(a), Types::in_memory(b), accumulate) {
            (Element::F32, Element::F32, Element::F32) => Ok(Element::F32),
            (Element::F64, Element::F64, Element::F64) => Ok(Element::F64),
            _ => Err(GemmError::Types {
                a: a.name(),
                b: b.name(),
                accumulate: accumulate.name(),
                d: d.name(),
                expected: "CUDA cores multiply f32 with f32 and f64 with f64".to_owned(),
            }),
        }
    }

    /// Tiles of D along its rows and along its columns.
    fn tiles(&self, problem: &Problem) -> (u32, u32) {
        (problem.m.div_ceil(self.m), problem.n.div_ceil(self.n))
    }

    fn blocks(&self, problem: &Problem) -> u64 {
        let (rows, columns) = self.tiles(problem);
        let tiles = u64::from(rows) * u64::from(columns);
        tiles.saturating_mul(u64::from(problem.batch)).saturating_mul(u64::from(self.parts))
    }

    /// The launches that compute the product.
    ///
    /// # Errors
    /// If [`check`](Config::check) says no.
    pub fn recipe(&self, problem: &Problem, gpu: &Gpu) -> Result<Recipe, GemmError> {
        self.check(problem, gpu)?;
        with_reductions(problem, |problem| Ok(self.product(problem)))
    }

    /// The launches for an epilogue that reduces nothing.
    fn product(&self, problem: &Problem) -> Recipe {
        let mut recipe = Recipe::default();
        let blocks = self.blocks(problem);
        if blocks == 0 {
            return recipe;
        }
        let element = Types::in_memory(problem.types.a);
        let (tiles_m, tiles_n) = self.tiles(problem);
        // Every part but the last has the same number of whole tiles of k.
        let share = problem.k.div_ceil(self.k).div_ceil(self.parts).max(1) * self.k;
        let number = |name: &str, n: u32| (name.to_owned(), Binding::U32(n));
        let mut bindings = vec![
            number("m", problem.m),
            number("n", problem.n),
            number("k", problem.k),
            number("tiles_m", tiles_m),
            number("tiles_n", tiles_n),
            number("parts", self.parts),
            number("share", share),
        ];
        bindings.extend(Side::A.bindings(problem));
        bindings.extend(Side::B.bindings(problem));
        bindings.extend(result::bindings(problem));
        let split = Split {
            parts: self.parts,
            tiles: blocks / u64::from(self.parts),
            bytes: u64::from(self.m * self.n * element.bytes()),
        };
        split.provide(&mut recipe, &mut bindings);

        let (config, staged) = (*self, problem.clone());
        let stage: Stage = match element {
            Element::F64 => Arc::new(move || kernel::simt::stage::<f64>(staged.clone(), config)),
            _ => Arc::new(move || kernel::simt::stage::<f32>(staged.clone(), config)),
        };
        let kernel = KernelSource { key: self.key(problem), stage };
        let grid = [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1];
        recipe.launches.push(Launch::new(kernel, grid, bindings));
        recipe
    }

    /// Everything that decides the code. How many parts there are is a number of the run; whether there are several is not.
    fn key(&self, problem: &Problem) -> String {
        let code = Config { parts: self.parts.min(2), ..*self };
        let factor = |side: Side| {
            format!(
                "{side} {} {:?} w{}",
                side.element(problem),
                side.placement(problem).storage,
                side.width(problem)
            )
        };
        format!(
            "{code} | {} {} {:?} | {}",
            factor(Side::A),
            factor(Side::B),
            problem.batching,
            result::key(problem)
        )
    }

    /// Configurations worth trying.
    #[must_use]
    pub fn candidates(problem: &Problem, gpu: &Gpu) -> Vec<Config> {
        let double = problem.types.accumulate == Element::F64;
        let (a, b) = problem.k_major();
        let shapes: &[[u32; 6]] = match (double, a && b) {
            (true, _) => &DOUBLE_SHAPES,
            (false, true) => &TURNED_SHAPES,
            (false, false) => &SHAPES,
        };
        let mut candidates = Vec::new();
        for &[m, n, k, thread_m, thread_n, unrolled] in shapes {
            for stages in [4, 3] {
                let whole = Config { m, n, k, thread_m, thread_n, stages, unrolled, group: 8, parts: 1 };
                let tiles = whole.blocks(problem);
                let steps = u64::from(problem.k.div_ceil(k));
                let enough = |parts: &u32| {
                    // Fewer tiles than multiprocessors leave some idle; parts shorter than a few steps do not pay.
                    *parts == 1
                        || (tiles.saturating_mul((*parts).into()) <= 2 * u64::from(gpu.multiprocessors)
                            && steps / u64::from(*parts) >= 8)
                };
                let parts = [1, 2, 3, 4, 6, 8, 12, 16, 32].into_iter().filter(enough);
                candidates.extend(parts.map(|parts| Config { parts, ..whole }));
            }
        }
        candidates.retain(|config| config.check(problem, gpu).is_ok());
        candidates
    }
}

/// Tiles worth trying: rows, columns and depth of a block, rows and columns of a thread, steps at a time. The largest thread tiles read
/// least, and leave a multiprocessor with eight warps; those of 8x8 let it have sixteen. On an H200, 4096 cubed, the first took 2770 to
/// 2850 us and the second 2820 to 3030; main loops of two steps took 6 to 10 % longer than long ones.
const SHAPES: [[u32; 6]; 4] =
    [[128, 256, 16, 8, 16, 16], [128, 128, 8, 8, 8, 8], [64, 128, 16, 8, 8, 2], [64, 64, 16, 8, 4, 2]];

/// The same where both factors are turned on the way in, element by element: more warps hide that better (2980 us, and 3220 with the
/// largest thread tiles).
const TURNED_SHAPES: [[u32; 6]; 4] =
    [[128, 128, 16, 8, 8, 16], [128, 128, 8, 8, 8, 8], [64, 128, 16, 8, 8, 2], [64, 64, 16, 8, 4, 2]];

/// The same for f64, whose sums take two registers each.
const DOUBLE_SHAPES: [[u32; 6]; 3] = [[128, 64, 16, 8, 4, 2], [64, 64, 16, 8, 4, 2], [64, 64, 8, 8, 8, 2]];

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { m, n, k, thread_m, thread_n, stages, unrolled, group, parts } = *self;
        write!(f, "simt {m}x{n}x{k} {thread_m}x{thread_n} s{stages}")?;
        if unrolled != UNROLLED {
            write!(f, " u{unrolled}")?;
        }
        write!(f, " g{group} p{parts}")
    }
}

impl FromStr for Config {
    type Err = GemmError;

    fn from_str(text: &str) -> Result<Config, GemmError> {
        let extents = |text: &str| text.split('x').map(|n| n.parse().ok()).collect::<Option<Vec<u32>>>();
        let number = |text: &str, letter: char| text.strip_prefix(letter).and_then(|n| n.parse().ok());
        let read = || {
            let words: Vec<&str> = text.split_whitespace().collect();
            let (unrolled, words) = match words[..] {
                [a, b, c, d, unrolled, e, f] => (Some(number(unrolled, 'u')?), [a, b, c, d, e, f]),
                _ => (None, words.try_into().ok()?),
            };
            let ["simt", tile, thread, stages, group, parts] = words else { return None };
            let (tile, thread) = (extents(tile)?, extents(thread)?);
            let ([m, n, k], [thread_m, thread_n]) = (tile[..].try_into().ok()?, thread[..].try_into().ok()?);
            let (stages, group, parts) = (number(stages, 's')?, number(group, 'g')?, number(parts, 'p')?);
            let unrolled = unrolled.unwrap_or(UNROLLED);
            Some(Config { m, n, k, thread_m, thread_n, stages, unrolled, group, parts })
        };
        read().ok_or_else(|| GemmError::Config {
            config: text.to_owned(),
            reason: "expected a text such as `simt 128x128x16 8x8 s3 g8 p1`".to_owned(),
        })
    }
}
