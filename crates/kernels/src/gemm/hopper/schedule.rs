//! Which part of the product is computed next, and by whom.
//!
//! The unit of work is a tile of D and a stretch of k: `(tile, first step, steps)`. Without a split a unit is a whole tile. Split-K
//! cuts every tile into the same number of units, and so does a joint split, whose units are those of the blocks of one cluster. Stream-K hands each worker an equal stretch of all steps of the last tiles (those
//! that would not fill the chip), and whole tiles after that. That leaves workers at different steps of k, which costs what they find of
//! each other's data in L2. With assistance each of these tiles is begun by a worker, and the workers that have none share the rest of all:
//! two sets of workers, each at about the same step. A worker is a cluster of blocks; each block of it has a tile of its own
//! in the cluster's tile.
//!
//! Host and device compute the same numbers: [`Numbers`] are the arguments of a launch, [`Schedule`] is what a kernel makes of them.
//!
//! Tiles lie in bands (`group` tiles high or wide), and are walked across each band, so that blocks that run at the same time read few
//! different rows of A and B and find them in L2. Blocks that follow each other run on multiprocessors of one GPC, as far as it has any, and
//! these get from L2 only once what several of them ask for at a time (H200, 256 x 4096 x 14336 by tiles of 128 x 64: 46.6 us if neighbours
//! in that order read the same rows of the larger factor, 51 us if those do that are eight apart).

use tilewright_lang::Argument;
use tilewright_lang::prelude::*;

use super::plan::Plan;
use super::{Along, Config, Split};
use crate::gemm::recipe::Binding;

/// Among so many GPCs clusters are dealt out one by one.
const GPCS: u32 = 8;
/// What it costs in steps that the sums of a part of a tile go to memory and come from there.
const COST_OF_A_PART: u64 = 8;

/// The arguments of a launch that say how much work there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Tiles of a cluster along m and n.
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// All of them, those of the batch included.
    pub(super) tiles: u64,
    /// Steps of k of a tile.
    pub(super) steps: u64,
    /// Clusters that are launched.
    pub(super) workers: u64,
    /// Tiles of the front whose steps are dealt out evenly, and how many steps of each are not since a worker of its own begins with them.
    pub(super) streamed: u64,
    pub(super) begun: u64,
    /// Most parts of a tile that is begun so.
    pub(super) parts: u64,
    /// Steps that each of those gets to whom they are dealt, and how many get one more.
    pub(super) share: u64,
    pub(super) extra: u64,
    /// Tiles of a band.
    pub(super) band: u64,
}

/// Tiles are numbered with 32 bits, so that nobody computes as many or more; as many times the steps of k is still a number.
const TOO_MANY: u64 = 1 << 32;

impl Numbers {
    pub(super) fn new(plan: &Plan, multiprocessors: u32) -> Numbers {
        let (config, problem) = (&plan.config, &plan.problem);
        let count = |extent: u32, tile: u32| u64::from(extent.div_ceil(tile));
        let rows = count(problem.m, config.m * config.cluster.0);
        let columns = count(problem.n, config.n * config.cluster.1);
        let tiles = (rows * columns).saturating_mul(u64::from(problem.batch)).min(TOO_MANY);
        // A product without k is one step that adds nothing.
        let steps = count(problem.k, plan.depth).max(1);
        let units = match config.split {
            Split::None | Split::Joint(_) => tiles,
            Split::Parts(parts) => tiles * u64::from(parts),
            Split::Stream | Split::Assist => tiles * steps,
        };
        let chip = u64::from(multiprocessors / config.blocks_of_cluster()).max(1);
        let workers = if config.persistent { units.min(chip) } else { units };
        let streamed = match (config.split, tiles.checked_rem(workers)) {
            (Split::Stream, Some(left)) if left > 0 && tiles > workers => workers + left,
            (Split::Stream, Some(left)) if left > 0 => tiles,
            (Split::Assist, Some(left)) => left,
            _ => 0,
        };
        // Who begins a tile is done when those are who finish several.
        let begun = match config.split {
            Split::Assist if streamed > 0 => (streamed * (steps + COST_OF_A_PART) / workers).clamp(1, steps),
            _ => 0,
        };
        let dealt = streamed * (steps - begun);
        let dealers = if config.split == Split::Assist { workers - streamed } else { workers };
        let (share, extra) = match dealers {
            0 => (0, 0),
            _ => (dealt / dealers, dealt % dealers),
        };
        // The rest of a tile can lie across several shares.
        let parts = 1 + ((steps - begun) / share.max(1) + 2).min(dealers);
        // No more than there are, so that bands are no larger than everything.
        let across = if config.along == Along::M { rows } else { columns };
        let band = u64::from(config.group).min(across).max(1);
        Numbers { rows, columns, tiles, steps, workers, streamed, begun, parts, share, extra, band }
    }

    /// Blocks that are launched.
    pub(super) fn blocks(&self, config: &Config) -> u64 {
        self.workers * u64::from(config.blocks_of_cluster())
    }

    /// Tiles of blocks whose sums come from several units, and the units that write such sums.
    pub(super) fn split_tiles(&self, plan: &Plan) -> (u64, u64) {
        let blocks = u64::from(plan.config.cluster_size());
        match plan.config.split {
            Split::None | Split::Joint(_) => (0, 0),
            Split::Parts(parts) => (self.tiles * blocks, self.tiles * blocks * u64::from(parts)),
            // The first and the last stretch of a worker can be parts of tiles.
            Split::Stream if self.streamed == 0 => (0, 0),
            Split::Stream => (self.streamed * blocks, 2 * self.workers * blocks),
            Split::Assist => (self.streamed * blocks, self.streamed * self.parts * blocks),
        }
    }

    /// What the parameters that [`Schedule::declare`] declares get. The numbers fit: a configuration with larger ones is refused.
    pub(super) fn bindings(&self) -> Vec<(String, Binding)> {
        let all = [
            ("tile_rows", self.rows),
            ("tile_columns", self.columns),
            ("tiles", self.tiles),
            ("steps", self.steps),
            ("streamed", self.streamed),
            ("share", self.share),
            ("extra", self.extra),
            ("begun", self.begun),
            ("parts", self.parts),
            ("band", self.band),
        ];
        let number = |n: u64| Binding::U32(u32::try_from(n).unwrap_or(u32::MAX));
        all.into_iter().map(|(name, n)| (name.to_owned(), number(n))).collect()
    }
}

/// How a kernel finds its work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    split: Split,
    band: Val<u32>,
    along: Along,
    tile: (u32, u32),
    cluster: (u32, u32),
    rows: Val<u32>,
    columns: Val<u32>,
    tiles: Val<u32>,
    pub(super) steps: Val<u32>,
    stream: Option<Stream>,
    worker: Val<u32>,
    workers: Val<u32>,
    /// This block's number among those that share what they load.
    pub(super) rank: Option<Val<u32>>,
    /// This block's number among those that join their sums: which part of k it has.
    pub(super) joint: Option<Val<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    streamed: Val<u32>,
    share: Val<u32>,
    extra: Val<u32>,
    assist: Option<Assist>,
}

/// Of tiles that are begun by one worker and finished by others: the steps of the former, and most parts of a tile.
#[derive(Clone, Copy, Debug)]
struct Assist {
    begun: Val<u32>,
    parts: Val<u32>,
}

/// Where a worker stands. Without streams it is the number of a unit; with streams, a step among those of all tiles. With assistance the first
/// steps of all tiles that are begun come before the rest of them.
#[derive(Clone, Copy, Debug, Carry)]
pub(super) struct Cursor {
    at: Val<u32>,
    stretch: Option<Stretch>,
}

/// The end of the stretch of steps that a worker is in, and the tile that comes after it.
#[derive(Clone, Copy, Debug, Carry)]
struct Stretch {
    end: Val<u32>,
    tile: Val<u32>,
}

/// A tile of the cluster and a stretch of its steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) tile: Val<u32>,
    pub(super) first: Val<u32>,
    pub(super) count: Val<u32>,
    /// Which part of the tile it is, if tiles are split: where its sums go, and how those of the whole tile are found.
    pub(super) part: Option<Part>,
}

/// One part of a tile that is split among several units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Whether it is the only one after all.
    pub(super) whole: Option<Val<bool>>,
    /// The slot for its sums.
    pub(super) slot: Val<u32>,
    /// How many parts the tile has, and the slots of the first and of the second; the others follow `stride` apart.
    pub(super) parts: Val<u32>,
    pub(super) first_slot: Val<u32>,
    pub(super) second_slot: Val<u32>,
    pub(super) stride: u32,
}

/// The corner of a block's tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Corner {
    pub(super) batch: Val<u32>,
    pub(super) row: Val<u32>,
    pub(super) column: Val<u32>,
}

impl Schedule {
    /// Declares the parameters; at the start of a kernel.
    #[track_caller]
    pub(super) fn declare(plan: &Plan) -> Schedule {
        let config = &plan.config;
        let clustered = config.blocks_of_cluster() > 1;
        Schedule {
            split: config.split,
            band: Argument::declare("band"),
            along: config.along,
            tile: (config.m, config.n),
            cluster: config.cluster,
            rows: Argument::declare("tile_rows"),
            columns: Argument::declare("tile_columns"),
            tiles: Argument::declare("tiles"),
            steps: Argument::declare("steps"),
            stream: matches!(config.split, Split::Stream | Split::Assist).then(|| Stream {
                streamed: Argument::declare("streamed"),
                share: Argument::declare("share"),
                extra: Argument::declare("extra"),
                assist: (config.split == Split::Assist)
                    .then(|| Assist { begun: Argument::declare("begun"), parts: Argument::declare("parts") }),
            }),
            worker: if clustered { cluster_id(0) } else { block_id(0) },
            workers: if clustered { cluster_grid_size(0) } else { grid_size(0) },
            rank: (config.cluster_size() > 1).then(cluster_rank),
            joint: (config.joint() > 1).then(cluster_rank),
        }
    }

    /// Where this worker starts.
    #[device]
    pub(super) fn start(&self) -> Cursor {
        match self.stream {
            None => Cursor { at: self.worker, stretch: None },
            Some(stream) => {
                let (at, end) = match stream.assist {
                    None => (stream.start_of(self.worker), stream.start_of(self.worker + 1)),
                    Some(Assist { begun, .. }) => {
                        let begins = self.worker < stream.streamed;
                        let (first, assistant) = (stream.streamed * begun, self.worker - stream.streamed);
                        let start = select(begins, self.worker * begun, first + stream.start_of(assistant));
                        let rest = first + stream.start_of(assistant + 1);
                        (start, select(begins, start + begun, rest))
                    }
                };
                let tile = stream.streamed + self.worker;
                self.settle(Cursor { at, stretch: Some(Stretch { end, tile }) })
            }
        }
    }

    /// Whether there is anything left.
    #[device]
    pub(super) fn more(&self, cursor: Cursor) -> Val<bool> {
        match self.split {
            Split::None | Split::Joint(_) => cursor.at < self.tiles,
            Split::Parts(parts) => cursor.at < self.tiles * parts,
            Split::Stream | Split::Assist => cursor.at < self.tiles * self.steps,
        }
    }

    /// The unit that a worker stands at.
    #[device]
    pub(super) fn unit(&self, cursor: Cursor) -> Unit {
        match (self.split, self.stream, cursor.stretch) {
            (Split::Joint(parts), ..) => {
                let (first, count) = self.part_of_steps(self.joint.unwrap_or(val(0)), parts);
                Unit { tile: self.dealt(cursor.at), first, count, part: None }
            }
            (Split::Parts(parts), ..) => {
                // Neighbours have the same steps of other tiles, since these share what they load.
                let part = cursor.at / self.tiles;
                let tile = cursor.at - part * self.tiles;
                let (first, count) = self.part_of_steps(part, parts);
                let first_slot = tile * parts;
                let part = Part {
                    whole: None,
                    slot: first_slot + part,
                    parts: val(parts),
                    first_slot,
                    second_slot: first_slot + 1,
                    stride: 1,
                };
                Unit { tile, first, count, part: Some(part) }
            }
            (_, Some(stream @ Stream { assist: Some(assist), .. }), Some(stretch)) => {
                self.assisted(stream, assist, cursor.at, stretch)
            }
            (_, Some(stream), Some(stretch)) => {
                let tile = cursor.at / self.steps;
                let start = tile * self.steps;
                let first = cursor.at - start;
                let count = min(self.steps - first, stretch.end - cursor.at);
                // Who has the first and the last step of the tile; those between have nothing else.
                let (from, to) = (stream.worker_of(start), stream.worker_of(start + (self.steps - 1)));
                let late = stream.start_of(from) < start;
                let mine = stream.start_of(self.worker) == cursor.at;
                let part = Part {
                    whole: Some(count == self.steps),
                    slot: self.worker * 2 + select(mine, 0u32, 1u32),
                    parts: to - from + 1,
                    first_slot: from * 2 + select(late, 1u32, 0u32),
                    second_slot: (from + 1) * 2,
                    stride: 2,
                };
                Unit { tile, first, count, part: Some(part) }
            }
            _ => Unit { tile: cursor.at, first: val(0), count: self.steps, part: None },
        }
    }

    /// The unit at a step, if tiles are begun by some and finished by others.
    #[device]
    fn assisted(
        &self,
        stream: Stream,
        Assist { begun, parts }: Assist,
        at: Val<u32>,
        stretch: Stretch,
    ) -> Unit {
        let (first, rest) = (stream.streamed * begun, self.steps - begun);
        let (begins, whole) = (at < first, at >= stream.streamed * self.steps);
        // Among the steps that are dealt out, and those of one tile.
        let dealt = at - first;
        let of_dealt = dealt / max(rest, 1u32);
        let inside = dealt - of_dealt * rest;
        let tile = select(whole, at / self.steps, select(begins, at / max(begun, 1u32), of_dealt));
        let count = select(begins, begun, min(rest - inside, stretch.end - at));
        let count = select(whole, self.steps, count);
        // Who has the first and the last step of the rest of the tile.
        let from = stream.worker_of(tile * rest);
        let to = stream.worker_of(tile * rest + max(rest, 1u32) - 1);
        let part = Part {
            whole: Some(count == self.steps),
            slot: tile * parts + select(begins, 0u32, stream.worker_of(dealt) - from + 1),
            parts: to - from + 2,
            first_slot: tile * parts,
            second_slot: tile * parts + 1,
            stride: 1,
        };
        Unit { tile, first: select(begins | whole, 0u32, begun + inside), count, part: Some(part) }
    }

    /// The tile of a cluster of which each has one: those of one GPC have neighbours.
    #[device]
    fn dealt(&self, worker: Val<u32>) -> Val<u32> {
        let (gpc, among) = (worker % GPCS, worker / GPCS);
        gpc * (self.tiles / GPCS) + min(gpc, self.tiles % GPCS) + among
    }

    /// The first step of a part, and how many it has.
    #[device]
    fn part_of_steps(&self, part: Val<u32>, parts: u32) -> (Val<u32>, Val<u32>) {
        let (even, odd) = (self.steps / parts, self.steps % parts);
        (part * even + min(part, odd), even + select(part < odd, 1u32, 0u32))
    }

    /// Where a worker stands after a unit.
    #[device]
    pub(super) fn after(&self, cursor: Cursor, unit: &Unit) -> Cursor {
        match cursor.stretch {
            None => Cursor { at: cursor.at + self.workers, stretch: None },
            Some(_) => self.settle(Cursor { at: cursor.at + unit.count, ..cursor }),
        }
    }

    /// Goes on with the next whole tile if the stretch is done.
    #[device]
    fn settle(&self, cursor: Cursor) -> Cursor {
        let mut cursor = cursor;
        if let Some(Stretch { end, tile }) = cursor.stretch {
            let done = cursor.at == end;
            let start = min(tile, self.tiles) * self.steps;
            cursor = Cursor {
                at: select(done, start, cursor.at),
                stretch: Some(Stretch {
                    end: select(done, start + self.steps, end),
                    tile: select(done, tile + self.workers, tile),
                }),
            };
        }
        cursor
    }

    /// Where this block's part of a cluster's tile lies.
    #[device]
    pub(super) fn corner(&self, tile: Val<u32>) -> Corner {
        let (rows, columns) = (self.rows, self.columns);
        let in_product = rows * columns;
        let batch = tile / in_product;
        let tile = tile - batch * in_product;
        let (across, along) = match self.along {
            Along::M => banded(tile, rows, columns, self.band),
            Along::N => banded(tile, columns, rows, self.band),
        };
        let (row, column) = match self.along {
            Along::M => (across, along),
            Along::N => (along, across),
        };
        let (mut row, mut column) = (row * self.cluster.0, column * self.cluster.1);
        if let Some(rank) = self.rank {
            row += rank % self.cluster.0;
            column += rank / self.cluster.0;
        }
        Corner { batch, row: row * self.tile.0, column: column * self.tile.1 }
    }
}

/// Tile number `tile` of `height` times `length`, in bands of so many tiles, which are walked across the band first.
#[device]
fn banded(tile: Val<u32>, height: Val<u32>, length: Val<u32>, group: Val<u32>) -> (Val<u32>, Val<u32>) {
    let in_band = length * group;
    let band = tile / in_band;
    let inside = tile - band * in_band;
    let top = band * group;
    let wide = min(height - top, group);
    let along = inside / wide;
    (top + (inside - along * wide), along)
}

impl Stream {
    /// The first step of a worker's stretch.
    #[device]
    fn start_of(&self, worker: Val<u32>) -> Val<u32> {
        worker * self.share + min(worker, self.extra)
    }

    /// The worker whose stretch a step lies in.
    #[device]
    fn worker_of(&self, step: Val<u32>) -> Val<u32> {
        let longer = self.share + 1;
        let border = self.extra * longer;
        let among_shorter = self.extra + (step - border) / max(self.share, 1u32);
        select(step < border, step / longer, among_shorter)
    }
}

#[cfg(test)]
mod tests {
    use tilewright_hardware::Element;

    use super::*;
    use crate::gemm::hopper::Config;
    use crate::gemm::{Problem, Types};

    fn numbers(text: &str, (m, n, k): (u32, u32, u32), multiprocessors: u32) -> Numbers {
        let config: Config = text.parse().unwrap();
        let plan = Plan::new(&config, &Problem::new(m, n, k, Types::of(Element::BF16)));
        Numbers::new(&plan, multiprocessors)
    }

    #[test]
    fn streams_take_what_does_not_fill_the_chip() {
        let stream = "hopper 128x256x128B c1x1 s4 coop2 m8 stream";
        let all = numbers(stream, (1024, 1024, 512), 132);
        assert_eq!((all.tiles, all.steps, all.workers, all.streamed), (32, 8, 132, 32));
        assert_eq!((all.share, all.extra), (1, 124));
        let tail = numbers(stream, (1280, 256, 512), 4);
        assert_eq!((tail.tiles, tail.workers, tail.streamed), (10, 4, 6));
        let none = numbers(stream, (1024, 256, 512), 4);
        assert_eq!((none.tiles, none.streamed, none.share, none.extra), (8, 0, 0, 0));
    }

    #[test]
    fn assistants_are_done_when_those_are_who_begin() {
        let some = numbers("hopper 128x128x128B c2x1 s6 ping2 m8 assist", (2048, 8192, 8192), 132);
        assert_eq!((some.tiles, some.workers, some.streamed, some.steps), (512, 66, 50, 128));
        // 50 begin with 103 steps; 16 do the 25 that are left of each, three or four times with a cost of 8.
        assert_eq!((some.begun, some.share, some.extra, some.parts), (103, 78, 2, 3));
        let none = numbers("hopper 128x128x128B c2x1 s6 ping2 m8 assist", (2048, 1056 * 8, 8192), 132);
        assert_eq!((none.streamed, none.begun, none.share, none.extra), (0, 0, 0, 0));
    }

    #[test]
    fn clusters_share_the_multiprocessors() {
        let two = numbers("hopper 128x128x128B c2x1 s4 coop2 m8", (1000, 1000, 100), 131);
        assert_eq!((two.rows, two.columns, two.tiles, two.steps, two.workers), (4, 8, 32, 2, 32));
        let few = numbers("hopper 128x128x128B c2x1 s4 coop2 m8", (1000, 1000, 0), 31);
        assert_eq!((few.steps, few.workers), (1, 15));
    }
}
