//! [`Config`]: the numbers that make one kernel of the family, their text, and the choices worth trying.

use std::fmt;
use std::str::FromStr;

use tilewright_hardware::Gpu;

use super::plan::{Plan, SLAB};
use super::schedule::Numbers;
use crate::gemm::GemmError;
use crate::gemm::problem::{Accumulation, Problem, Storage};

/// How the warpgroups of a block share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// All of them multiply rows of one tile.
    Cooperative,
    /// Each has tiles of its own, and they take turns at the tensor cores.
    PingPong,
}

/// Along which extent tiles are walked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Along {
    /// Down the rows of a band.
    M,
    /// Across the columns of a band.
    N,
}

impl Along {
    fn other(self) -> Along {
        match self {
            Along::M => Along::N,
            Along::N => Along::M,
        }
    }
}

/// How k is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Not at all.
    None,
    /// Every tile into so many parts.
    Parts(u32),
    /// The tiles that would not fill the chip into equal shares for all multiprocessors.
    Stream,
    /// The tiles that would not fill the chip begin in a cluster each, and the clusters that have none of them finish them.
    Assist,
    /// Every tile into so many parts, which the blocks of one cluster compute: they send each other their sums, and each brings some
    /// columns of the tile to D.
    Joint(u32),
}

/// One kernel of the family.
///
/// ```
/// use tilewright_kernels::gemm::hopper::Config;
/// let config: Config = "hopper 128x256x128B c2x1 s4 coop2 m8".parse()?;
/// assert_eq!((config.m, config.n, config.cluster), (128, 256, (2, 1)));
/// assert_eq!(config.to_string(), "hopper 128x256x128B c2x1 s4 coop2 m8");
/// # Ok::<(), tilewright_kernels::gemm::GemmError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Rows of a tile: a multiple of 64 up to 256.
    pub m: u32,
    /// Columns of a tile: a multiple of 8 up to 256.
    pub n: u32,
    /// Bytes of k in a step: 128, or 64 or 32, which suit products that have no more.
    pub k_bytes: u32,
    /// Steps that are loaded ahead.
    pub stages: u32,
    /// Warpgroups that multiply: one to three.
    pub consumers: u32,
    /// How they share the work.
    pub pace: Pace,
    /// Blocks of a cluster along m and n: one, or two along one of them.
    pub cluster: (u32, u32),
    /// Tiles of a band.
    pub group: u32,
    /// How a band is walked.
    pub along: Along,
    /// How k is divided.
    pub split: Split,
    /// Whether blocks take unit after unit, or one each.
    pub persistent: bool,
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { m, n, k_bytes, stages, consumers, cluster, group, .. } = self;
        let pace = if self.pace == Pace::Cooperative { "coop" } else { "ping" };
        let along = if self.along == Along::M { 'm' } else { 'n' };
        write!(
            f,
            "hopper {m}x{n}x{k_bytes}B c{}x{} s{stages} {pace}{consumers} {along}{group}",
            cluster.0, cluster.1
        )?;
        match self.split {
            Split::None => {}
            Split::Parts(parts) => write!(f, " split{parts}")?,
            Split::Stream => f.write_str(" stream")?,
            Split::Assist => f.write_str(" assist")?,
            Split::Joint(parts) => write!(f, " joint{parts}")?,
        }
        f.write_str(if self.persistent { "" } else { " once" })
    }
}

impl FromStr for Config {
    type Err = GemmError;

    fn from_str(text: &str) -> Result<Config, GemmError> {
        read(text).ok_or_else(|| GemmError::Config {
            config: text.to_owned(),
            reason: "expected a text such as `hopper 128x256x128B c2x1 s4 coop2 m8`, then perhaps `split3`, `stream`, `assist` or `joint2`, and `once`".to_owned(),
        })
    }
}

fn read(text: &str) -> Option<Config> {
    let mut words = text.split_whitespace();
    (words.next()? == "hopper").then_some(())?;
    let (m, rest) = words.next()?.split_once('x')?;
    let (n, k_bytes) = rest.strip_suffix('B')?.split_once('x')?;
    let (x, y) = words.next()?.strip_prefix('c')?.split_once('x')?;
    let stages = words.next()?.strip_prefix('s')?.parse().ok()?;
    let workers = words.next()?;
    let (pace, consumers) = match workers.strip_prefix("coop") {
        Some(consumers) => (Pace::Cooperative, consumers),
        None => (Pace::PingPong, workers.strip_prefix("ping")?),
    };
    let raster = words.next()?;
    let (along, group) = match raster.strip_prefix('m') {
        Some(group) => (Along::M, group),
        None => (Along::N, raster.strip_prefix('n')?),
    };
    let mut config = Config {
        m: m.parse().ok()?,
        n: n.parse().ok()?,
        k_bytes: k_bytes.parse().ok()?,
        stages,
        consumers: consumers.parse().ok()?,
        pace,
        cluster: (x.parse().ok()?, y.parse().ok()?),
        group: group.parse().ok()?,
        along,
        split: Split::None,
        persistent: true,
    };
    for word in words {
        let parts = |name: &str| word.strip_prefix(name).and_then(|parts| parts.parse().ok());
        match (parts("split"), parts("joint"), word) {
            (Some(parts), ..) => config.split = Split::Parts(parts),
            (_, Some(parts), _) => config.split = Split::Joint(parts),
            (.., "stream") => config.split = Split::Stream,
            (.., "assist") => config.split = Split::Assist,
            (.., "once") => config.persistent = false,
            _ => return None,
        }
    }
    Some(config)
}

impl Config {
    /// Such tiles, each by a block for itself.
    fn of_tile((m, n, consumers, pace): Tile) -> Config {
        Config {
            m,
            n,
            k_bytes: 128,
            stages: 2,
            consumers,
            pace,
            cluster: (1, 1),
            group: 1,
            along: Along::M,
            split: Split::None,
            persistent: true,
        }
    }

    /// Blocks that share what they load.
    #[must_use]
    pub fn cluster_size(&self) -> u32 {
        self.cluster.0 * self.cluster.1
    }

    /// Blocks that join their sums.
    pub(super) fn joint(&self) -> u32 {
        match self.split {
            Split::Joint(parts) => parts.max(1),
            _ => 1,
        }
    }

    /// Blocks that are launched as one cluster.
    pub(super) fn blocks_of_cluster(&self) -> u32 {
        self.cluster_size() * self.joint()
    }

    /// Whether sums go through global memory.
    pub(super) fn exchanges(&self) -> bool {
        matches!(self.split, Split::Parts(_) | Split::Stream | Split::Assist)
    }

    /// Most tiles of a band: about as many rows as columns of tiles should fit into a GPC where blocks have one tile each, and rows of more
    /// should stay in L2 where they have several.
    fn most_of_band(&self) -> u64 {
        match self.joint() {
            1 => 8,
            2 => 3,
            _ => 2,
        }
    }

    /// The same with an order of tiles: across the side that has fewer of them, so that neighbours share what they load of the larger factor;
    /// in equal bands if it has many.
    fn walked(self, numbers: &Numbers) -> Config {
        let (along, across) = if numbers.rows <= numbers.columns {
            (Along::M, numbers.rows)
        } else {
            (Along::N, numbers.columns)
        };
        let across = across.max(1);
        let group = across.div_ceil(across.div_ceil(self.most_of_band()));
        Config { along, group: u32::try_from(group).unwrap_or(1), ..self }
    }

    /// Columns of a tile that a block brings to D.
    pub(super) fn columns_of_block(&self) -> u32 {
        self.n / self.joint()
    }

    /// Whether the numbers make sense at all.
    pub(super) fn shape(&self) -> Result<(), String> {
        let Config { m, n, k_bytes, stages, consumers, cluster, .. } = *self;
        let expect = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("expected {what}")) };
        expect((1..=3).contains(&consumers), "one to three consumers")?;
        expect((SLAB..=256).contains(&m) && m.is_multiple_of(SLAB), "m to be a multiple of 64 up to 256")?;
        expect((8..=256).contains(&n) && n.is_multiple_of(8), "n to be a multiple of 8 up to 256")?;
        expect(STEPS.contains(&k_bytes), "steps of 32, 64 or 128 bytes of k")?;
        expect((2..=32).contains(&stages), "2 to 32 stages")?;
        expect(self.group > 0 && self.group <= 1 << 16, "a band of 1 to 65536 tiles")?;
        expect(matches!(cluster, (1, 1) | (2, 1) | (1, 2)), "a cluster of 1x1, 2x1 or 1x2 blocks")?;
        let parts = |extent: u32, sharing: u32| extent.is_multiple_of(8 * sharing);
        expect(
            parts(m, cluster.1) && parts(n, cluster.0),
            "blocks of a cluster to load multiples of 8 rows each",
        )?;
        match self.pace {
            Pace::Cooperative => {
                expect(m.is_multiple_of(SLAB * consumers), "m to be a multiple of 64 for each consumer")?;
            }
            Pace::PingPong => expect(consumers > 1, "two consumers or more to take turns")?,
        }
        match self.split {
            Split::Parts(parts) => expect((2..=256).contains(&parts), "2 to 256 parts of k")?,
            Split::Stream | Split::Assist => expect(self.persistent, "streams to be persistent")?,
            Split::Joint(parts) => {
                expect(matches!(parts, 2 | 4), "2 or 4 blocks to join their sums")?;
                expect(
                    n.is_multiple_of(8 * parts),
                    "blocks that join their sums to have multiples of 8 columns each",
                )?;
                expect(cluster == (1, 1), "blocks that join their sums to share nothing else: c1x1")?;
                expect(self.pace == Pace::Cooperative, "blocks that join their sums to cooperate")?;
                expect(!self.persistent, "blocks that join their sums to have one tile: `once`")?;
            }
            Split::None => {}
        }
        Ok(())
    }

    /// The configurations worth trying: for every tile that suits the extents as many stages as fit, clusters where there are
    /// neighbours to share with, and k divided where tiles alone would leave much of the chip without work.
    #[must_use]
    pub fn candidates(problem: &Problem, gpu: &Gpu) -> Vec<Config> {
        let mut found = Vec::new();
        // Where larger tiles keep everybody busy for some rounds, small ones move more bytes for nothing.
        let each = u64::from(problem.m / 128) * u64::from(problem.n / 128);
        let large = each.saturating_mul(problem.batch.into()) >= 4 * u64::from(gpu.multiprocessors);
        for tile @ (m, n, ..) in tiles(problem, gpu) {
            if large && m == SLAB {
                continue;
            }
            for cluster in [(1, 1), (2, 1), (1, 2)] {
                let fewest = (m * (cluster.0 - 1) + 1, n * (cluster.1 - 1) + 1);
                if cluster != (1, 1) && (problem.m < fewest.0 || problem.n < fewest.1) {
                    continue;
                }
                let config = Config { cluster, k_bytes: step(problem), ..Config::of_tile(tile) };
                let plan = Plan::new(&config, problem);
                let config = config.walked(&Numbers::new(&plan, gpu.multiprocessors));
                if !plan.loads_whole_lines() {
                    continue;
                }
                for config in splits(&config, &plan, gpu) {
                    let plan = Plan::new(&config, problem);
                    let blocks = Numbers::new(&plan, gpu.multiprocessors).blocks(&config);
                    let most = if fills(blocks, gpu) { MOST_STAGES } else { ENOUGH_STAGES };
                    found.push(Config { stages: plan.stages_that_fit(gpu, most), ..config });
                }
            }
        }
        found.retain(|config| config.check(problem, gpu).is_ok());
        found
    }
}

/// More stages than this hide no more latency.
const ENOUGH_STAGES: u32 = 10;
/// As many make even the smallest tiles fill more than half of a multiprocessor, so that it holds one block, and blocks of the next kernel
/// can begin early without taking the place of others.
const MOST_STAGES: u32 = 16;

/// Bytes of k that a step can have: what the tensor cores take at once, and twice and four times as much.
const STEPS: [u32; 3] = [32, 64, 128];

/// The step of a product: the longest, unless a shorter one has all of k. What a step has beyond k the copy engine fills with zeros, a fourth as fast
/// as it loads. (Measured: 4096 x 4096 x 8 in steps of 128 bytes takes half as long again as 4096 x 4096 x 16.)
fn step(problem: &Problem) -> u32 {
    let (k, bytes) = (u64::from(problem.k), u64::from(problem.types.a.bytes()));
    let longest = STEPS[STEPS.len() - 1];
    // Promoted sums are added up every 128 bytes.
    match problem.accumulation {
        Accumulation::Promoted => longest,
        Accumulation::Fast => STEPS.into_iter().find(|step| k * bytes <= u64::from(*step)).unwrap_or(longest),
    }
}

/// Whether so many blocks leave few multiprocessors without one.
pub(super) fn fills(blocks: u64, gpu: &Gpu) -> bool {
    blocks * 16 >= u64::from(gpu.multiprocessors) * 15
}
/// Steps of k that a part should have at least.
const LEAST_STEPS: u64 = 4;
/// Steps of k that tiles should have which others finish.
const LEAST_STEPS_OF_ASSISTED: u64 = 112;

/// Tiles of so many rows, and how warpgroups share them.
struct Kind {
    m: u32,
    consumers: u32,
    pace: Pace,
    /// Columns that are always worth trying, and whose times are known.
    widths: &'static [u32],
    /// Most columns.
    widest: u32,
    /// Whether such tiles are for products of few columns, too.
    narrow: bool,
}

/// The kinds of tiles.
const KINDS: [Kind; 6] = {
    const fn kind(
        m: u32,
        consumers: u32,
        pace: Pace,
        widths: &'static [u32],
        widest: u32,
        narrow: bool,
    ) -> Kind {
        Kind { m, consumers, pace, widths, widest, narrow }
    }
    [
        kind(128, 2, Pace::Cooperative, &[256, 224, 192, 160, 128, 112, 96], 256, true),
        kind(64, 2, Pace::PingPong, &[256, 192, 160, 128, 96], 256, true),
        kind(64, 1, Pace::Cooperative, &[256, 192, 160, 128, 112, 96], 256, true),
        kind(128, 2, Pace::PingPong, &[128, 96], 128, false),
        kind(256, 2, Pace::Cooperative, &[128, 96], 200, false),
        kind(192, 3, Pace::Cooperative, &[192, 128], 192, false),
    ]
};
/// Columns of tiles for few of them.
const NARROW: [u32; 8] = [8, 16, 24, 32, 48, 64, 96, 128];
/// Fewer columns than this are for products that have no more.
const LEAST_COLUMNS: u32 = 72;
/// With more rounds than this, little is left idle by the last.
const ROUNDS: u64 = 6;

impl Kind {
    /// The columns that tiles need such that one, two and more whole rounds of them are all.
    fn fitted(&self, problem: &Problem, gpu: &Gpu) -> impl Iterator<Item = u32> {
        let rows = u64::from(problem.m.div_ceil(self.m)) * u64::from(problem.batch);
        let (chip, columns, widest) = (u64::from(gpu.multiprocessors), u64::from(problem.n), self.widest);
        let fit = move |rounds: u64| {
            let tiles = (rounds * chip).checked_div(rows).filter(|tiles| *tiles > 0)?;
            u32::try_from(columns.div_ceil(tiles).next_multiple_of(8)).ok()
        };
        (1..=ROUNDS).filter_map(fit).filter(move |n| (LEAST_COLUMNS..=widest).contains(n))
    }

    fn tile(&self, n: u32) -> Tile {
        (self.m, n, self.consumers, self.pace)
    }
}

/// Rows and columns of a tile, consumers and their pace.
type Tile = (u32, u32, u32, Pace);

/// Tiles worth trying.
fn tiles(problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
    let mut tiles = Vec::new();
    // Few columns: tiles no wider than needed, and the next wider ones if that is not enough.
    // Blocks that join their sums have at least 8 columns each.
    let enough = NARROW.into_iter().find(|n| *n >= problem.n.max(16));
    for n in NARROW.into_iter().filter(|n| enough.is_some_and(|enough| *n <= enough && 2 * n >= enough)) {
        tiles.extend(KINDS.iter().filter(|kind| kind.narrow).map(|kind| kind.tile(n)));
    }
    if problem.n > 64 {
        for kind in &KINDS {
            tiles.extend(kind.widths.iter().map(|n| kind.tile(*n)));
            let fitted = kind.fitted(problem, gpu).map(|n| kind.tile(n));
            tiles.extend(fitted.filter(|tile| stores_well(tile, problem)));
        }
    }
    // Few rows want no tiles that are mostly empty.
    tiles.retain(|&(m, ..)| m == SLAB || m - SLAB < problem.m);
    tiles.sort_by_key(|&(m, n, consumers, pace)| (m, n, consumers, pace == Pace::PingPong));
    tiles.dedup();
    tiles
}

/// Whether results of such a tile go to D in pieces of some size: of half a line of the cache at least, or of 16 lines. What divides the columns
/// of a tile decides that.
fn stores_well(tile: &Tile, problem: &Problem) -> bool {
    let columns = Plan::new(&Config::of_tile(*tile), problem).output.columns();
    match problem.d.storage {
        Storage::RowMajor => columns * problem.types.d.bytes() >= 64,
        Storage::ColumnMajor => columns >= 16,
    }
}

/// The ways to divide the work of a configuration, and to walk its tiles.
fn splits(config: &Config, plan: &Plan, gpu: &Gpu) -> Vec<Config> {
    let numbers = Numbers::new(plan, gpu.multiprocessors);
    let chip = u64::from(gpu.multiprocessors / config.cluster_size()).max(1);
    let mut found = vec![*config];
    if numbers.rows.min(numbers.columns) > config.most_of_band() {
        found.push(Config { along: config.along.other(), ..*config });
    }
    let waves = numbers.tiles.div_ceil(chip).max(1);
    // What the last wave leaves idle is much of the whole, or is more than what clusters lose that are not at the same step of k.
    let idle = waves * chip - numbers.tiles;
    let least = if waves <= 4 { 8 } else { 64 };
    let shares = config.cluster_size() > 1 && numbers.rows.min(numbers.columns) > 1;
    if (waves <= 4 || shares) && idle * least > waves * chip {
        found.push(Config { split: Split::Stream, ..*config });
    }
    // Those that have nothing to do in the last wave can help the others, if they are fewer, and main loops so long that exchanging sums costs
    // less (measured: 2 % won at k = 8192 and above, 3 % lost at k = 4096). With one row or column of tiles, or with
    // low ones, it is memory that binds.
    let long = waves > 2 && numbers.steps >= LEAST_STEPS_OF_ASSISTED;
    let neighbours = plan.problem.m > config.m && plan.problem.n > config.n;
    let multiplies = config.cluster_size() > 1 && neighbours && config.m > SLAB;
    if multiplies && long && config.pace == Pace::PingPong && idle * 2 <= chip && idle * 64 > waves * chip {
        found.push(Config { split: Split::Assist, ..*config });
    }
    // Where blocks of a cluster suffice, their sums need not go through global memory. (Measured: one warpgroup is slow at wide tiles.)
    let suits = config.n <= 128 * config.consumers;
    if suits && config.cluster == (1, 1) && config.pace == Pace::Cooperative {
        let fits = |parts: &u32| {
            let blocks = u64::from(*parts) * numbers.tiles;
            // Larger clusters do not find room for all of their blocks everywhere (measured: 32 clusters of 4 take two rounds).
            let room = if *parts == 2 { chip } else { chip * 3 / 4 };
            blocks <= room && numbers.steps >= u64::from(*parts) * LEAST_STEPS
        };
        let joint =
            |parts: u32| Config { split: Split::Joint(parts), persistent: false, ..*config }.walked(&numbers);
        found.extend([2, 4].into_iter().filter(fits).map(joint));
    }
    let most = (chip / numbers.tiles.max(1)).min(numbers.steps / LEAST_STEPS).min(32);
    let mut parts: Vec<u64> = [most, most / 2].into_iter().filter(|parts| *parts >= 2).collect();
    parts.dedup();
    found.extend(parts.into_iter().map(|parts| {
        let parts = u32::try_from(parts).unwrap_or(2);
        Config { split: Split::Parts(parts), ..*config }
    }));
    found
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tilewright_hardware::Element;

    use super::*;
    use crate::gemm::{Accumulation, KernelConfig, Types, plan};

    fn h200() -> &'static Gpu {
        Gpu::named("h200").unwrap()
    }

    #[test]
    fn texts_are_read_back() {
        for text in [
            "hopper 128x256x128B c2x1 s4 coop2 m8",
            "hopper 64x24x64B c1x1 s12 ping2 n16 split3",
            "hopper 64x8x128B c1x2 s2 coop1 m1 stream",
            "hopper 192x192x128B c1x1 s3 coop3 m8 split2 once",
            "hopper 128x64x128B c1x1 s3 coop2 m8 joint4 once",
            "hopper 128x128x128B c2x1 s6 ping2 m8 assist",
        ] {
            assert_eq!(text.parse::<Config>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "hopper",
            "ampere 128x256x128B c2x1 s4 coop2 m8",
            "hopper 128x256x128B c2x1 s4 coop2 m8 twice",
        ] {
            let message = text.parse::<Config>().unwrap_err().to_string();
            assert!(message.contains("expected a text such as"), "{message}");
        }
    }

    #[test]
    fn there_are_candidates_for_every_shape() {
        let extents = [1, 8, 63, 64, 200, 4096, 100_000];
        for element in [Element::BF16, Element::TF32, Element::E4M3, Element::I8] {
            for m in extents {
                for n in extents {
                    for k in [16, 64, 8192] {
                        let mut problem = Problem::new(m, n, k, Types::of(element));
                        problem.accumulation = Accumulation::Promoted;
                        let found = Config::candidates(&problem, h200());
                        assert!(!found.is_empty(), "{m} x {n} x {k} of {element}");
                        let texts: HashSet<String> = found.iter().map(ToString::to_string).collect();
                        assert_eq!(texts.len(), found.len(), "{m} x {n} x {k} of {element}");
                        for config in &found {
                            assert_eq!(config.to_string().parse::<Config>().unwrap(), *config);
                        }
                    }
                }
            }
        }
    }

    /// Whether its tiles have a width that is tried for all products. Others are as wide as extents make them.
    fn is_usual(config: &Config) -> bool {
        let is_of = |kind: &&Kind| kind.tile(config.n) == (config.m, config.n, config.consumers, config.pace);
        let has = |kind: &Kind| kind.widths.contains(&config.n) || kind.narrow && NARROW.contains(&config.n);
        KINDS.iter().find(is_of).is_some_and(has)
    }

    /// Products whose tiles of the usual widths leave much of the last round idle, and those whose tiles do not.
    #[test]
    fn tiles_are_fitted_where_that_fills_whole_rounds() {
        for (m, n, k, tile, rounds) in [
            (600, 5120, 27648, (128, 200), 1),
            (2072, 1400, 5440, (128, 176), 1),
            (681, 6440, 3544, (256, 144), 1),
            (3400, 2480, 4488, (192, 176), 2),
        ] {
            let problem = Problem::new(m, n, k, Types::of(Element::BF16));
            // Seen from the other side, results are stored in lines along the rows of a tile, which any width suits.
            let best = plan(&problem, h200()).unwrap().algorithm;
            let KernelConfig::Hopper(config) = best.kernel else { panic!("{best}") };
            assert_eq!((config.m, config.n, is_usual(&config)), (tile.0, tile.1, false), "{best}");
            let tiles = n.div_ceil(config.m) * m.div_ceil(config.n);
            assert!(best.transposed && tiles.div_ceil(132) == rounds, "{best}: {tiles}");
        }
        for (m, n, k) in [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 28672, 4096), (64, 8192, 8192)] {
            let problem = Problem::new(m, n, k, Types::of(Element::BF16));
            let best = plan(&problem, h200()).unwrap().algorithm;
            let KernelConfig::Hopper(config) = best.kernel else { panic!("{best}") };
            assert!(is_usual(&config), "{best}");
        }
        // Row-major results in pieces of less than half a line, or column-major ones of a few columns, are not worth it.
        let mut problem = Problem::new(64, 64, 64, Types::of(Element::BF16));
        for (storage, fits) in [
            (Storage::RowMajor, [false, true, false, false, true]),
            (Storage::ColumnMajor, [false, true, true, true, true]),
        ] {
            problem.d.storage = storage;
            let found =
                [152, 160, 168, 176, 192].map(|n| stores_well(&(128, n, 2, Pace::Cooperative), &problem));
            assert_eq!(found, fits, "{storage:?}");
        }
    }

    #[test]
    fn steps_are_no_longer_than_k_needs() {
        for (element, accumulation, k, bytes) in [
            (Element::BF16, Accumulation::Fast, 8, 32),
            (Element::BF16, Accumulation::Fast, 16, 32),
            (Element::BF16, Accumulation::Fast, 24, 64),
            (Element::BF16, Accumulation::Fast, 40, 128),
            (Element::BF16, Accumulation::Fast, 80, 128),
            (Element::TF32, Accumulation::Fast, 12, 64),
            (Element::E4M3, Accumulation::Fast, 16, 32),
            (Element::E4M3, Accumulation::Promoted, 16, 128),
        ] {
            let problem = Problem { accumulation, ..Problem::new(512, 512, k, Types::of(element)) };
            let found = Config::candidates(&problem, h200());
            assert!(
                !found.is_empty() && found.iter().all(|config| config.k_bytes == bytes),
                "{k}: {found:?}"
            );
        }
    }

    #[test]
    fn large_and_small_products_get_what_suits_them() {
        let texts = |m, n, k| -> Vec<String> {
            let problem = Problem::new(m, n, k, Types::of(Element::BF16));
            Config::candidates(&problem, h200()).iter().map(ToString::to_string).collect()
        };
        let large = texts(8192, 8192, 8192);
        for text in ["hopper 128x256x128B c2x1 s4 coop2 m8", "hopper 128x128x128B c2x1 s6 ping2 m8"] {
            assert!(large.iter().any(|found| found == text), "{text} is not in {large:?}");
        }
        assert!(large.iter().all(|found| !found.contains("split") && !found.contains("joint")));
        // 31 waves and 4 tiles: the fraction is dealt out where clusters share what they load.
        assert!(
            large.iter().any(|found| found == "hopper 128x128x128B c2x1 s6 ping2 m8 stream"),
            "{large:?}"
        );
        assert!(large.iter().all(|found| !found.contains("stream") || !found.contains("c1x1")));
        // 7 waves and 100 tiles.
        let assisted = texts(2048, 8192, 8192);
        assert!(
            assisted.iter().any(|found| found == "hopper 128x128x128B c2x1 s6 ping2 m8 assist"),
            "{assisted:?}"
        );
        assert!(texts(4096, 4096, 4096).iter().all(|found| !found.contains("assist")));
        let small = texts(4096, 16, 4096);
        assert!(small.iter().any(|found| found == "hopper 64x16x128B c1x1 s16 coop1 n1 split2"), "{small:?}");
        assert!(small.iter().all(|found| !found.contains("x256x")));
    }

    #[test]
    fn what_is_refused_is_explained() {
        let problem = |element| Problem::new(512, 512, 512, Types::of(element));
        let bf16 = problem(Element::BF16);
        let refusal = |text: &str, problem: &Problem| {
            text.parse::<Config>().unwrap().check(problem, h200()).unwrap_err().to_string()
        };
        let good = "hopper 128x256x128B c2x1 s4 coop2 m8";
        for (text, reason) in [
            ("hopper 100x256x128B c1x1 s4 coop2 m8", "m to be a multiple of 64 up to 256"),
            ("hopper 128x260x128B c1x1 s4 coop2 m8", "n to be a multiple of 8 up to 256"),
            ("hopper 128x256x16B c1x1 s4 coop2 m8", "steps of 32, 64 or 128 bytes of k"),
            ("hopper 128x256x128B c1x1 s5 coop2 m8", "bytes of shared memory"),
            ("hopper 256x256x128B c1x1 s2 coop2 m8", "sums take 256 registers"),
            ("hopper 192x256x128B c1x1 s2 coop3 m8", "sums take 128 registers"),
            ("hopper 128x256x128B c4x1 s4 coop2 m8", "a cluster of 1x1, 2x1 or 1x2"),
            ("hopper 128x8x128B c2x1 s4 coop2 m8", "multiples of 8 rows each"),
            ("hopper 64x256x128B c1x1 s4 coop2 m8", "64 for each consumer"),
            ("hopper 64x256x128B c1x1 s4 ping1 m8", "two consumers or more"),
            ("hopper 128x256x128B c1x1 s4 coop2 m8 split9", "k has 8 steps"),
            ("hopper 128x256x128B c1x1 s4 coop2 m8 stream once", "streams to be persistent"),
        ] {
            let message = refusal(text, &bf16);
            assert!(message.starts_with(&format!("configuration {text}: ")), "{message}");
            assert!(message.contains(reason), "{message}");
        }
        let mut row_major = problem(Element::E4M3);
        row_major.b.storage = Storage::RowMajor;
        assert!(refusal(good, &row_major).contains("matrix B of e4m3 must have k contiguous"));
        let mut unaligned = bf16.clone();
        unaligned.a.leading = 513;
        assert!(
            refusal(good, &unaligned).contains("matrix A does not start its rows at multiples of 16 bytes")
        );
        assert!(refusal(good, &problem(Element::F64)).contains("f64"));
        let promoted = Problem { accumulation: Accumulation::Promoted, ..problem(Element::E4M3) };
        assert!(refusal(good, &promoted).contains("sums take 256 registers"));
        let a100 = good.parse::<Config>().unwrap().check(&bf16, Gpu::named("a100").unwrap());
        assert!(a100.unwrap_err().to_string().contains("it needs sm_90a"));
    }
}
