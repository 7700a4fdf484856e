//! A cluster: blocks that share memory, their warps, and the scheduler.
//!
//! A cluster is the unit of parallel work. Inside it everything happens in one thread, in an order that the seed decides: which warp
//! runs next, for how many ops, and when asynchronous work is done. Time is counted in executed ops.

use crate::check::{Agent, Findings, Shadow, WarpClock};
use crate::count::Sites;
use crate::memory::{GlobalMemory, NumberMap, Overlay};
use crate::program::{Function, Op, Pc, Program};
use crate::{Options, SimError};

use super::asynchronous::{Async, Reduction};
use super::barrier::{Bar, ClusterBarrier};
use super::grid::Geometry;
use super::matrix::Warpgroup;
use super::mbarrier::Mbar;
use super::shared::SharedMap;
use super::sync::{Logged, SyncVar};
use super::warp::{Wait, Warp};

/// The registers that an op reads (false) and writes (true).
pub(crate) type RegisterUses = Box<[(u32, bool)]>;

/// What all clusters of a launch share, unchanged during a round.
pub(crate) struct Env<'a> {
    /// The code.
    pub(crate) program: &'a Program,
    /// The kernel.
    pub(crate) entry: &'a Function,
    /// Its index.
    pub(crate) entry_index: u32,
    /// Number of the first op of each function among all ops of the program.
    pub(crate) bases: &'a [u32],
    /// Registers that each op reads and writes, for programs with `wgmma`.
    pub(crate) uses: &'a [Vec<RegisterUses>],
    /// Grid, block, cluster.
    pub(crate) geometry: &'a Geometry,
    /// Variables in shared memory.
    pub(crate) shared: &'a SharedMap,
    /// The bytes of the kernel's parameters.
    pub(crate) params: &'a [u8],
    /// Address of the workspace of a cooperative launch.
    pub(crate) workspace: u64,
    /// Global memory at the start of the round.
    pub(crate) memory: &'a GlobalMemory,
    /// What strong writes to global memory have released.
    pub(crate) sync: &'a NumberMap<u64, SyncVar>,
    /// Settings.
    pub(crate) options: &'a Options,
    /// Number of the round.
    pub(crate) round: u64,
}

impl Env<'_> {
    /// The number of an op among all of the program.
    pub(crate) fn op_id(&self, function: u32, pc: Pc) -> u32 {
        self.bases[function as usize] + pc
    }

    /// Function and place of an op from its number.
    pub(crate) fn op_at(&self, id: u32) -> (&Function, usize) {
        let function = self.bases.partition_point(|&base| base <= id).saturating_sub(1);
        (&self.program.functions[function], (id - self.bases[function]) as usize)
    }
}

/// Why the launch ends before the kernel does.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something that the simulator cannot do.
    Error(SimError),
    /// The kernel is dead: a trap, a deadlock, an exhausted budget; a finding says why.
    Dead,
}

impl From<SimError> for Stop {
    fn from(error: SimError) -> Stop {
        Stop::Error(error)
    }
}

/// A block.
pub(crate) struct Block {
    /// Rank in the cluster.
    pub(crate) rank: u32,
    /// Coordinates in the grid.
    pub(crate) id: [u32; 3],
    /// Its shared memory, indexed by the address in its window.
    pub(crate) shared: Vec<u8>,
    /// What the checker knows of it.
    pub(crate) shadow: Option<Shadow>,
    /// Its warps; boxed, because a warp leaves its place while it runs.
    #[allow(clippy::vec_box, reason = "moved for every slice of time")]
    pub(crate) warps: Vec<Box<Warp>>,
    /// Named barriers.
    pub(crate) bars: Vec<Bar>,
    /// Mbarriers by offset.
    pub(crate) mbarriers: NumberMap<u32, Mbar>,
    /// What strong writes to shared memory have released, by offset.
    pub(crate) sync: NumberMap<u32, SyncVar>,
    /// The tensor-core queues of its warpgroups.
    pub(crate) warpgroups: Vec<Warpgroup>,
    /// Threads that have not exited.
    pub(crate) live_threads: u32,
    /// Accesses by other blocks that this one must know of before it exits: who, when, which op.
    pub(crate) visitors: Vec<(crate::check::Epoch, u32)>,
}

/// A cluster of blocks.
pub(crate) struct Cluster {
    /// Number in the grid.
    pub(crate) id: u32,
    /// Its blocks, by rank.
    pub(crate) blocks: Vec<Block>,
    /// Warps that may run: block and warp.
    pub(crate) ready: Vec<(u32, u32)>,
    /// Random numbers of the scheduler.
    pub(crate) random: Random,
    /// Ops executed so far, the time of asynchronous work.
    pub(crate) now: u64,
    /// Asynchronous work that is under way.
    pub(crate) asyncs: Vec<Async>,
    /// When the next of it is due.
    pub(crate) next_due: u64,
    /// Number of the last piece of it.
    pub(crate) sequence: u64,
    /// Reductions to global memory that wait for the end of the round.
    pub(crate) reductions: Vec<Reduction>,
    /// Writes of this round.
    pub(crate) overlay: Overlay,
    /// Accesses to global memory of this round, for the checker.
    pub(crate) log: Vec<Logged>,
    /// Strong writes to global memory of this round: what they released, or that they released nothing.
    pub(crate) released: NumberMap<u64, Option<SyncVar>>,
    /// The cluster barrier.
    pub(crate) barrier: ClusterBarrier,
    /// What was found.
    pub(crate) findings: Findings,
    /// Counts.
    pub(crate) sites: Sites,
    /// What the kernel has printed.
    pub(crate) output: String,
    /// Next slot for an mbarrier.
    pub(crate) next_slot: u16,
    /// Things that have changed for others to see: the measure of progress.
    pub(crate) progress: u64,
    /// Rounds of waking suspended waits without progress in between, and the progress at the last.
    stuck: (u32, u64),
    /// Stands in for the warp that runs.
    spare: Option<Box<Warp>>,
    /// Executed thread instructions.
    pub(crate) thread_ops: u64,
    /// Findings so far, to tell them apart.
    pub(crate) reported: u64,
    /// Why it cannot go on.
    pub(crate) stopped: Option<Stop>,
}

/// Slots of a warp among the agents of the checker.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    /// Its threads.
    Threads = 0,
    /// Its `cp.async` groups.
    CpAsync = 1,
    /// Bulk groups: reads of the source.
    BulkRead = 2,
    /// Bulk groups: writes.
    BulkWrite = 3,
    /// `wgmma` groups, at the first warp of a warpgroup.
    Wgmma = 4,
    /// That it runs at all.
    Life = 5,
}

/// How many streams a warp has.
pub(crate) const STREAMS: u32 = 6;

/// Most mbarriers of a cluster that the checker tells apart.
const MBARRIER_SLOTS: u16 = 16_384;

impl Cluster {
    /// A cluster at the start of the kernel.
    pub(crate) fn new(id: u32, env: &Env<'_>) -> Cluster {
        let geometry = env.geometry;
        let warps = geometry.warps();
        let mut cluster = Cluster {
            id,
            blocks: Vec::new(),
            ready: Vec::new(),
            random: Random::new(env.options.seed ^ u64::from(id).wrapping_mul(0xA24B_AED4_963E_E407)),
            now: 0,
            asyncs: Vec::new(),
            next_due: u64::MAX,
            sequence: 0,
            reductions: Vec::new(),
            overlay: Overlay::default(),
            log: Vec::new(),
            released: NumberMap::default(),
            barrier: ClusterBarrier::default(),
            findings: Findings::default(),
            sites: Sites::new(if env.options.count { geometry.ops } else { 0 }),
            output: String::new(),
            next_slot: slot_limit(geometry.cluster_blocks() * warps * STREAMS),
            progress: 0,
            stuck: (0, 0),
            spare: None,
            thread_ops: 0,
            reported: 0,
            stopped: None,
        };
        for rank in 0..geometry.cluster_blocks() {
            let block = cluster.new_block(rank, env);
            cluster.blocks.push(block);
        }
        cluster.ready = (0..geometry.cluster_blocks())
            .flat_map(|block| (0..warps).map(move |warp| (block, warp)))
            .collect();
        cluster
    }

    fn new_block(&self, rank: u32, env: &Env<'_>) -> Block {
        let geometry = env.geometry;
        let bytes = env.shared.end as usize;
        let threads = geometry.threads();
        let warps = (0..geometry.warps()).map(|index| {
            let lanes = threads - index * 32;
            let lanes = if lanes >= 32 { u32::MAX } else { (1 << lanes) - 1 };
            let clock = WarpClock::new(self.id, self.slot(rank, index, Stream::Threads, env), lanes);
            let entry = env.entry;
            Box::new(Warp::new(
                index,
                lanes,
                clock,
                env.entry_index,
                entry.registers,
                entry.predicates,
                entry.frame_bytes,
            ))
        });
        Block {
            rank,
            id: geometry.block_id(self.id, rank),
            shared: vec![crate::memory::POISON; bytes],
            shadow: env.options.check.then(|| Shadow::new(bytes)),
            warps: warps.collect(),
            bars: vec![Bar::default(); 16],
            mbarriers: NumberMap::default(),
            sync: NumberMap::default(),
            warpgroups: (0..geometry.warps().div_ceil(4)).map(|_| Warpgroup::default()).collect(),
            live_threads: threads,
            visitors: Vec::new(),
        }
    }

    /// The checker's number of a stream of a warp.
    #[allow(clippy::unused_self, reason = "reads as a property of the cluster")]
    pub(crate) fn slot(&self, block: u32, warp: u32, stream: Stream, env: &Env<'_>) -> u16 {
        slot_limit((block * env.geometry.warps() + warp) * STREAMS + stream as u32)
    }

    /// The streams of a block.
    pub(crate) fn slots(&self, block: u32, env: &Env<'_>) -> std::ops::Range<u16> {
        let first = self.slot(block, 0, Stream::Threads, env);
        first..first + slot_limit(env.geometry.warps() * STREAMS)
    }

    /// A slot for a new mbarrier.
    pub(crate) fn mbarrier_slot(&mut self) -> u16 {
        let slot = self.next_slot;
        self.next_slot = (slot + 1).min(u16::MAX - 1).min(slot_limit(u32::from(MBARRIER_SLOTS)) + slot);
        slot
    }

    /// A thread as the checker's agent.
    pub(crate) fn agent(&self, block: usize, warp: u32, lane: u32, env: &Env<'_>) -> Agent {
        self.stream_agent(block, warp, lane, Stream::Threads, env)
    }

    /// An asynchronous stream of a thread as an agent.
    pub(crate) fn stream_agent(
        &self,
        block: usize,
        warp: u32,
        lane: u32,
        stream: Stream,
        env: &Env<'_>,
    ) -> Agent {
        let rank = self.blocks[block].rank;
        Agent {
            cluster: self.id,
            slot: self.slot(rank, warp, stream, env),
            block: rank_of(rank),
            lane: u8::try_from(lane).unwrap_or(0),
        }
    }

    /// Whether the kernel is over here: all threads have exited and all asynchronous work is done.
    pub(crate) fn is_done(&self) -> bool {
        self.stopped.is_some()
            || (self.asyncs.is_empty()
                && self.reductions.is_empty()
                && self.blocks.iter().all(|block| block.live_threads == 0))
    }

    /// Runs until the time for this round is used up, all warps wait for its end, or the cluster is done.
    pub(crate) fn run(&mut self, env: &Env<'_>, quantum: u64) {
        let end = self.now + quantum;
        for warp in self.blocks.iter_mut().flat_map(|block| &mut block.warps) {
            warp.polled = None;
        }
        while self.stopped.is_none() && self.now < end {
            self.finish_due(env);
            if self.ready.is_empty() && !self.unblock(env) {
                break;
            }
            if self.ready.is_empty() {
                continue;
            }
            let at = self.random.below(self.ready.len() as u64);
            let (block, warp) = self.ready[usize::try_from(at).unwrap_or(0)];
            // Short and long slices alternate: short ones mix the warps, long ones let one run ahead of the others.
            let steps = if self.ready.len() == 1 {
                256
            } else {
                1 + self.random.below(4).pow(2) * self.random.below(24)
            };
            let result = self.slice(env, block as usize, warp as usize, steps);
            if let Err(stop) = result {
                self.stopped = Some(stop);
                return;
            }
            let state = &self.blocks[block as usize].warps[warp as usize];
            if !state.is_ready()
                && let Some(at) = self.ready.iter().position(|&entry| entry == (block, warp))
            {
                self.ready.swap_remove(at);
            }
        }
    }

    /// Lets one warp run for some ops.
    fn slice(&mut self, env: &Env<'_>, block: usize, warp: usize, steps: u64) -> Result<(), Stop> {
        let spare = self.take_spare();
        let mut running = std::mem::replace(&mut self.blocks[block].warps[warp], spare);
        let before = self.progress;
        let result = self.execute(env, block, &mut running, steps);
        if self.progress != before {
            // What this path has done may be what another path of the same warp waits for.
            for path in running.paths.iter_mut().filter(|path| path.wait.asks_again()) {
                path.wait = Wait::None;
            }
        }
        let exhausted = running.executed > env.options.warp_budget;
        self.put_back(block, warp, running);
        result?;
        if exhausted {
            self.never_ends(env, block, warp);
            return Err(Stop::Dead);
        }
        Ok(())
    }

    /// Something to stand in for a warp while it runs.
    pub(crate) fn take_spare(&mut self) -> Box<Warp> {
        self.spare.take().unwrap_or_else(placeholder)
    }

    /// Puts a warp that has run back into its place.
    pub(crate) fn put_back(&mut self, block: usize, warp: usize, running: Box<Warp>) {
        self.spare = Some(std::mem::replace(&mut self.blocks[block].warps[warp], running));
    }

    /// Executed ops of all warps.
    pub(crate) fn warp_ops(&self) -> u64 {
        self.blocks.iter().flat_map(|block| &block.warps).map(|warp| warp.executed).sum()
    }

    /// Marks a warp as ready to run.
    pub(crate) fn wake(&mut self, block: u32, warp: u32) {
        if !self.ready.contains(&(block, warp)) {
            self.ready.push((block, warp));
        }
    }

    /// Ends the waits for which `test` holds; the ops are executed again. `advance` moves them behind the op instead.
    pub(crate) fn wake_where(
        &mut self,
        advance: bool,
        mut test: impl FnMut(&Block, &Warp, &super::warp::Path) -> bool,
    ) {
        for block in 0..self.blocks.len() {
            for warp in 0..self.blocks[block].warps.len() {
                let mut woken = false;
                for path in 0..self.blocks[block].warps[warp].paths.len() {
                    let state = &self.blocks[block];
                    if test(state, &state.warps[warp], &state.warps[warp].paths[path]) {
                        let path = &mut self.blocks[block].warps[warp].paths[path];
                        path.wait = Wait::None;
                        path.pc += u32::from(advance);
                        woken = true;
                    }
                }
                if woken {
                    self.wake(index(block), index(warp));
                }
            }
        }
    }

    /// When no warp can run: waits for asynchronous work, gives up waiting for lanes that do not come, ends suspended waits, or
    /// finds a deadlock. Returns whether to go on with this round.
    fn unblock(&mut self, env: &Env<'_>) -> bool {
        if let Some(due) = self.asyncs.iter().map(|work| work.due).min() {
            self.now = self.now.max(due);
            return true;
        }
        let mut serial = !self.reductions.is_empty();
        let mut live = false;
        for warp in self.blocks.iter().flat_map(|block| &block.warps) {
            live |= !warp.is_done();
            serial |= warp.paths.iter().any(|path| path.wait == Wait::Serial);
        }
        if serial || !live {
            return false;
        }
        if self.force_divergent(env) {
            return true;
        }
        let suspended = |wait: &Wait| matches!(wait, Wait::Mbarrier { .. });
        let any = self.blocks.iter().flat_map(|block| &block.warps).flat_map(|warp| &warp.paths);
        if any.clone().any(|path| suspended(&path.wait)) {
            self.stuck = if self.stuck.1 == self.progress {
                (self.stuck.0 + 1, self.progress)
            } else {
                (1, self.progress)
            };
            if self.stuck.0 <= 3 {
                // The hardware returns from `try_wait` after a while, too.
                for block in 0..self.blocks.len() {
                    for warp in 0..self.blocks[block].warps.len() {
                        self.time_out(env, block, warp);
                    }
                }
                return true;
            }
        }
        self.deadlock(env);
        self.stopped = Some(Stop::Dead);
        false
    }

    /// Lets paths go on without the lanes they wait for, because these lanes wait elsewhere; reports it.
    fn force_divergent(&mut self, env: &Env<'_>) -> bool {
        let mut any = false;
        for block in 0..self.blocks.len() {
            for warp in 0..self.blocks[block].warps.len() {
                for path in 0..self.blocks[block].warps[warp].paths.len() {
                    let state = &mut self.blocks[block].warps[warp].paths[path];
                    if matches!(state.wait, Wait::Converge { aligned: true, .. }) {
                        state.wait = Wait::None;
                        state.forced = true;
                        any = true;
                        self.divergent(env, block, warp, path);
                        self.wake(index(block), index(warp));
                    }
                }
            }
        }
        any
    }
}

/// A stand-in for a warp while it runs.
fn placeholder() -> Box<Warp> {
    let mut warp = Warp::new(0, 0, WarpClock::new(0, 0, 0), 0, 0, 0, 0);
    warp.paths.clear();
    Box::new(warp)
}

/// Blocks, warps and paths are few.
#[allow(clippy::cast_possible_truncation, reason = "at most 16 blocks of 32 warps")]
pub(crate) fn index(value: usize) -> u32 {
    value as u32
}

fn slot_limit(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX - 1)
}

/// A rank in the cluster as the checker has it.
pub(crate) fn rank_of(rank: u32) -> u16 {
    slot_limit(rank)
}

/// A small generator of random numbers (SplitMix64): the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }
}

/// The op at a place, if there is one.
pub(crate) fn op_of(function: &Function, pc: Pc) -> Option<&Op> {
    function.code.get(pc as usize)
}
