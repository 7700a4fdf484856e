//! A launch: clusters in rounds.
//!
//! In a round, all resident clusters run for some time against the global memory of the round's beginning, in parallel. Then, one
//! after the other in an order that the seed decides, each commits what it has written, and does its atomics on global memory. So the
//! outcome does not depend on the number of cores, and what clusters see of each other changes only between rounds, which is an
//! execution that the memory model of PTX allows.

use rayon::prelude::*;
use tilewright_hardware::{Arch, occupancy};

use crate::check::{
    Access as Checked, Agent, Conflict, Finding, FindingKind, Findings, GlobalShadow, Hazard,
    Kind as AccessKind, Place,
};
use crate::count::Sites;
use crate::memory::{GlobalMemory, NumberMap, POISON};
use crate::program::{Callee, Kind, Program, Role};
use crate::{Options, SimError};

use super::cluster::{Cluster, Env, Random, RegisterUses, Stop, index};
use super::exec::{At, Flow};
use super::shared::SharedMap;
use super::sync::{Addresses, Logged, PART_SHIFT, PARTS, SyncVar, part_of};
use super::warp::{Wait, Warp};

/// Ops that a cluster may execute in a round.
const QUANTUM: u64 = 20_000;
/// Clusters that are resident at first; more join when these only wait.
const FIRST_RESIDENT: usize = 64;
/// Rounds without any change after which everybody who polls is stuck.
const STUCK_ROUNDS: u32 = 150;
/// Most bytes that one call of `malloc` gives: the default heap of a device.
const HEAP: usize = 8 << 20;
/// Most text that a kernel can print.
const MOST_OUTPUT: usize = 16 << 20;

/// The shape of a launch, and of the chip it runs on.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    /// Blocks.
    pub(crate) grid: [u32; 3],
    /// Threads of a block.
    pub(crate) block: [u32; 3],
    /// Blocks of a cluster.
    pub(crate) cluster: [u32; 3],
    /// Whether the launch has clusters.
    pub(crate) explicit_cluster: bool,
    /// Bytes of shared memory that the kernel declares.
    pub(crate) static_shared: u32,
    /// Bytes of shared memory that the launch asks for.
    pub(crate) dynamic_shared: u32,
    /// Multiprocessors of the chip.
    pub(crate) multiprocessors: u32,
    /// Registers of a multiprocessor.
    pub(crate) register_file: u32,
    /// `.maxnreg`
    pub(crate) max_registers: Option<u32>,
    /// Clusters that fit on the chip.
    pub(crate) capacity: usize,
    /// Ops of the program.
    pub(crate) ops: usize,
}

impl Geometry {
    /// Threads of a block.
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Warps of a block.
    pub(crate) fn warps(&self) -> u32 {
        self.threads().div_ceil(32)
    }

    /// Blocks of a cluster.
    pub(crate) fn cluster_blocks(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// Clusters along each axis.
    pub(crate) fn clusters(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid[axis] / self.cluster[axis])
    }

    /// All clusters.
    fn total(&self) -> u64 {
        self.clusters().iter().map(|&count| u64::from(count)).product()
    }

    /// Coordinates of a cluster.
    pub(crate) fn cluster_id(&self, cluster: u32) -> [u32; 3] {
        unflatten(cluster, self.clusters())
    }

    /// Coordinates of a block in its cluster.
    pub(crate) fn in_cluster(&self, rank: u32) -> [u32; 3] {
        unflatten(rank, self.cluster)
    }

    /// Coordinates of a block.
    pub(crate) fn block_id(&self, cluster: u32, rank: u32) -> [u32; 3] {
        let (cluster, inside) = (self.cluster_id(cluster), self.in_cluster(rank));
        std::array::from_fn(|axis| cluster[axis] * self.cluster[axis] + inside[axis])
    }

    /// Coordinates of a thread.
    pub(crate) fn thread(&self, flat: u32) -> [u32; 3] {
        unflatten(flat, self.block)
    }

    /// The warp that a slot of the checker belongs to.
    pub(crate) fn warp_of_slot(&self, slot: u16) -> Option<u32> {
        let flat = u32::from(slot) / super::cluster::STREAMS;
        (flat < self.cluster_blocks() * self.warps()).then(|| flat % self.warps())
    }

    /// Registers that each thread has when the kernel starts and `setmaxnreg` is used.
    pub(crate) fn entry_registers(&self) -> u32 {
        let fair = self.register_file / (self.warps() * 32) / 8 * 8;
        self.max_registers.map_or(fair, |limit| limit.min(fair)).min(248)
    }
}

fn unflatten(flat: u32, extents: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = extents.map(|extent| extent.max(1));
    [flat % x, flat / x % y, flat / x / y]
}

/// What a launch leaves behind.
pub(crate) struct Outcome {
    /// Findings in a fixed order.
    pub(crate) findings: Vec<Finding>,
    /// Counts by op.
    pub(crate) sites: Sites,
    /// What the kernel printed.
    pub(crate) output: String,
    /// Instructions of single threads.
    pub(crate) thread_ops: u64,
    /// Instructions of warps.
    pub(crate) warp_ops: u64,
}

/// How many clusters fit on a chip at once.
pub(crate) fn capacity(
    arch: Arch,
    threads: u32,
    registers: u32,
    shared: u32,
    cluster_blocks: u32,
    multiprocessors: u32,
) -> usize {
    let blocks = occupancy(arch, threads, registers.clamp(16, 255), shared).blocks_per_sm.max(1);
    (blocks * multiprocessors / cluster_blocks.max(1)).max(1) as usize
}

/// Runs a kernel to its end.
pub(crate) fn run(
    program: &Program,
    entry: usize,
    geometry: &Geometry,
    params: &[u8],
    memory: &mut GlobalMemory,
    options: &Options,
) -> Result<Outcome, SimError> {
    let bases: Vec<u32> = program
        .functions
        .iter()
        .scan(0, |next, function| {
            let base = *next;
            *next += index(function.code.len());
            Some(base)
        })
        .collect();
    let uses = register_uses(program);
    let shared = SharedMap::new(&program.functions[entry], geometry.dynamic_shared);
    let mut launch = Launch {
        program,
        entry,
        geometry,
        params,
        options,
        bases,
        uses,
        shared,
        workspace: memory.allocate("the workspace of cooperative groups".to_owned(), vec![0; 64], true),
        sync: NumberMap::default(),
        shadows: if options.check { (0..PARTS).map(|_| GlobalShadow::new()).collect() } else { Vec::new() },
        random: Random::new(options.seed ^ 0x5EED),
        outcome: Outcome {
            findings: Vec::new(),
            sites: Sites::new(if options.count { geometry.ops } else { 0 }),
            output: String::new(),
            thread_ops: 0,
            warp_ops: 0,
        },
        findings: Findings::default(),
        round: 0,
    };
    let mut pool = rayon::ThreadPoolBuilder::new();
    if let Some(threads) = options.threads {
        pool = pool.num_threads(threads.max(1));
    }
    match pool.build() {
        Ok(pool) => pool.install(|| launch.rounds(memory))?,
        // Without threads of our own there are still those of everybody.
        Err(_) => launch.rounds(memory)?,
    }
    let Launch { findings, mut outcome, workspace, .. } = launch;
    memory.remove(workspace);
    outcome.findings = findings.into_sorted();
    Ok(outcome)
}

/// For programs with `wgmma`: the registers that each op reads and writes.
fn register_uses(program: &Program) -> Vec<Vec<RegisterUses>> {
    let mut ops = program.functions.iter().flat_map(|function| &function.code);
    if !ops.any(|op| matches!(op.kind, Kind::Wgmma { .. })) {
        return Vec::new();
    }
    let of_op = |op: &crate::program::Op| -> RegisterUses {
        if matches!(op.kind, Kind::Wgmma { .. }) {
            return Box::default();
        }
        let mut uses = Vec::new();
        op.kind.for_each_register(|register, role| uses.push((register, role == Role::Write)));
        uses.into_boxed_slice()
    };
    program.functions.iter().map(|function| function.code.iter().map(of_op).collect()).collect()
}

struct Launch<'a> {
    program: &'a Program,
    entry: usize,
    geometry: &'a Geometry,
    params: &'a [u8],
    options: &'a Options,
    bases: Vec<u32>,
    uses: Vec<Vec<RegisterUses>>,
    shared: SharedMap,
    workspace: u64,
    sync: NumberMap<u64, SyncVar>,
    shadows: Vec<GlobalShadow>,
    random: Random,
    outcome: Outcome,
    findings: Findings,
    round: u64,
}

/// A conflict that the checker found in the log of a cluster.
struct Found {
    cluster: usize,
    entry: usize,
    lane: u32,
    conflict: Conflict,
}

impl Launch<'_> {
    fn env<'a>(&'a self, memory: &'a GlobalMemory) -> Env<'a> {
        Env {
            program: self.program,
            entry: &self.program.functions[self.entry],
            entry_index: index(self.entry),
            bases: &self.bases,
            uses: &self.uses,
            geometry: self.geometry,
            shared: &self.shared,
            params: self.params,
            workspace: self.workspace,
            memory,
            sync: &self.sync,
            options: self.options,
            round: self.round,
        }
    }

    fn rounds(&mut self, memory: &mut GlobalMemory) -> Result<(), SimError> {
        let total = self.geometry.total();
        let mut next = 0u64;
        let mut resident = FIRST_RESIDENT.min(self.geometry.capacity);
        let mut live: Vec<Cluster> = Vec::new();
        let mut stuck = 0;
        while next < total || !live.is_empty() {
            self.round += 1;
            {
                let env = self.env(memory);
                while next < total && live.len() < resident {
                    live.push(Cluster::new(u32::try_from(next).unwrap_or(u32::MAX), &env));
                    next += 1;
                }
                // A lone cluster waits for nobody, and those that only poll need no time to do it.
                let quantum = if stuck > 0 {
                    QUANTUM / 2
                } else if total == 1 {
                    QUANTUM * 16
                } else {
                    QUANTUM
                };
                let before: Vec<u64> = live.iter().map(|cluster| cluster.progress).collect();
                live.par_iter_mut().for_each(|cluster| cluster.run(&env, quantum));
                let moved = live.iter().zip(&before).any(|(cluster, &before)| cluster.progress != before);
                stuck = if moved || !live.iter().all(polls) { 0 } else { stuck + 1 };
            }
            let changed = self.commit(memory, &mut live);
            if changed {
                stuck = 0;
            }
            let dead = self.collect(&mut live)?;
            if dead {
                return Ok(());
            }
            if stuck > 4 && next < total && resident < self.geometry.capacity {
                // They may wait for clusters that are not there yet.
                resident = (resident * 2).min(self.geometry.capacity);
                stuck = 0;
            }
            if stuck > STUCK_ROUNDS {
                self.livelock(memory, &mut live);
                return Ok(());
            }
            if self.outcome.warp_ops + live.iter().map(|cluster| cluster.now).sum::<u64>()
                > self.options.budget
            {
                self.exhausted(memory, &mut live);
                return Ok(());
            }
        }
        Ok(())
    }

    /// The end of a round: the checker looks at the log, then each cluster in turn commits and does its atomics.
    fn commit(&mut self, memory: &mut GlobalMemory, live: &mut [Cluster]) -> bool {
        let count = live.len();
        let start = usize::try_from(self.random.below(count as u64)).unwrap_or(0);
        let order: Vec<usize> = (0..count).map(|i| (start + i) % count).collect();
        let found = if self.options.check { self.check_log(live, &order) } else { Vec::new() };
        let mut changed = false;
        let mut found = found.into_iter().peekable();
        for &at in &order {
            let cluster = &mut live[at];
            while let Some(found) = found.next_if(|found| found.cluster == at) {
                let env = self.env(memory);
                report_found(&env, cluster, &found);
            }
            cluster.log.clear();
            changed |= cluster.overlay.commit(memory);
            self.take_released(cluster);
            cluster.heap(self.program, memory);
            if self.turn(memory, cluster) {
                changed |= cluster.overlay.commit(memory);
                self.take_released(cluster);
            }
        }
        changed
    }

    fn take_released(&mut self, cluster: &mut Cluster) {
        for (address, var) in cluster.released.drain() {
            match var {
                Some(var) => self.sync.insert(address, var),
                None => self.sync.remove(&address),
            };
        }
    }

    /// A cluster's turn: atomics and reductions on global memory; whether there were any.
    fn turn(&self, memory: &GlobalMemory, cluster: &mut Cluster) -> bool {
        let env = self.env(memory);
        let mut any = !cluster.reductions.is_empty();
        cluster.reduce(&env);
        for block in 0..cluster.blocks.len() {
            for warp in 0..cluster.blocks[block].warps.len() {
                if cluster.stopped.is_some() {
                    return any;
                }
                if cluster.blocks[block].warps[warp].paths.iter().any(|path| path.wait == Wait::Serial) {
                    any = true;
                    if let Err(stop) = cluster.serial(&env, block, warp) {
                        cluster.stopped = Some(stop);
                    }
                }
            }
        }
        any
    }

    /// Judges the accesses to global memory of this round, in the order of the clusters.
    fn check_log(&mut self, live: &[Cluster], order: &[usize]) -> Vec<Found> {
        let parts: Vec<Vec<Found>> = self
            .shadows
            .par_iter_mut()
            .enumerate()
            .map(|(part, shadow)| {
                let mut found = Vec::new();
                for &at in order {
                    check_cluster(part, shadow, at, &live[at], &mut found);
                }
                found
            })
            .collect();
        let position: Vec<usize> = {
            let mut position = vec![0; order.len()];
            for (i, &at) in order.iter().enumerate() {
                position[at] = i;
            }
            position
        };
        let mut all: Vec<Found> = parts.into_iter().flatten().collect();
        all.sort_by_key(|found| (position[found.cluster], found.entry, found.lane, found.conflict.offset));
        all
    }

    /// Takes what the clusters have to say; removes those that are done. Whether the kernel is dead.
    fn collect(&mut self, live: &mut Vec<Cluster>) -> Result<bool, SimError> {
        let mut dead = false;
        for cluster in live.iter_mut() {
            if self.outcome.output.len() < MOST_OUTPUT {
                self.outcome.output.push_str(&cluster.output);
            }
            cluster.output.clear();
            dead |= cluster.stopped.is_some();
            if let Some(Stop::Error(_)) = &cluster.stopped
                && let Some(Stop::Error(error)) = cluster.stopped.take()
            {
                return Err(error);
            }
        }
        let outcome = &mut self.outcome;
        let findings = &mut self.findings;
        live.retain_mut(|cluster| {
            if !dead && !cluster.is_done() {
                return true;
            }
            findings.merge(std::mem::take(&mut cluster.findings));
            outcome.sites.merge(&cluster.sites);
            outcome.thread_ops += cluster.thread_ops;
            outcome.warp_ops += cluster.warp_ops();
            false
        });
        Ok(dead)
    }

    fn livelock(&mut self, memory: &GlobalMemory, live: &mut Vec<Cluster>) {
        let env = self.env(memory);
        if let Some(cluster) = live.first_mut() {
            cluster.livelock(&env);
        }
        self.drop_all(live);
    }

    fn exhausted(&mut self, memory: &GlobalMemory, live: &mut Vec<Cluster>) {
        let env = self.env(memory);
        if let Some(cluster) = live.first_mut()
            && let Some(block) = cluster.blocks.iter().position(|block| block.live_threads > 0)
            && let Some(warp) = cluster.blocks[block].warps.iter().position(|warp| !warp.is_done())
        {
            cluster.never_ends(&env, block, warp);
        }
        self.drop_all(live);
    }

    fn drop_all(&mut self, live: &mut Vec<Cluster>) {
        for cluster in live.drain(..) {
            self.outcome.sites.merge(&cluster.sites);
            self.outcome.thread_ops += cluster.thread_ops;
            self.outcome.warp_ops += cluster.warp_ops();
            self.findings.merge(cluster.findings);
        }
    }
}

/// Whether every warp of a cluster that lives polls or waits.
fn polls(cluster: &Cluster) -> bool {
    let mut warps =
        cluster.blocks.iter().flat_map(|block| &block.warps).filter(|warp| !warp.is_done()).peekable();
    warps.peek().is_some() && warps.all(|warp| warp.polled.is_some() || !warp.is_ready())
}

/// Holds the log of a cluster against one part of the shadow memory.
fn check_cluster(
    part: usize,
    shadow: &mut GlobalShadow,
    at: usize,
    cluster: &Cluster,
    found: &mut Vec<Found>,
) {
    for (entry, logged) in cluster.log.iter().enumerate().filter(|(_, logged)| logged.parts >> part & 1 == 1)
    {
        for (lanes, know) in &logged.views {
            let mut access = Checked {
                epoch: logged.epoch,
                issuer: logged.issuer,
                know,
                pc: logged.op,
                kind: logged.kind,
                strong: logged.strong,
                proxy: logged.proxy,
            };
            let lanes = lanes & logged.lanes;
            if let Addresses::Ranges(ranges) = &logged.addresses {
                let lane = lanes.trailing_zeros().min(31);
                access.issuer = Agent { lane: u8::try_from(lane).unwrap_or(0), ..logged.issuer };
                for &(address, bytes) in ranges {
                    // Each part has its own pages of memory.
                    let (mut from, end) = (address, address + u64::from(bytes));
                    while from < end {
                        let to = (((from >> PART_SHIFT) + 1) << PART_SHIFT).min(end);
                        if part_of(from) == part
                            && let Some(conflict) =
                                shadow.access(from, usize::try_from(to - from).unwrap_or(0), &access)
                        {
                            found.push(Found { cluster: at, entry, lane, conflict });
                        }
                        from = to;
                    }
                }
            } else {
                let mine = if logged.parts.is_power_of_two() {
                    lanes
                } else {
                    super::exec::bits(lanes)
                        .filter(|&lane| part_of(logged.addresses.of(lane)) == part)
                        .fold(0, |mask, lane| mask | 1 << lane)
                };
                shadow.access_lanes(
                    mine,
                    logged.bytes as usize,
                    |lane| logged.addresses.of(lane),
                    &access,
                    |lane, conflict| {
                        found.push(Found { cluster: at, entry, lane, conflict });
                    },
                );
            }
        }
    }
}

/// Reports a conflict in global memory, unless two blocks store the same bytes there.
fn report_found(env: &Env<'_>, cluster: &mut Cluster, found: &Found) {
    let log = std::mem::take(&mut cluster.log);
    if let Some(logged) = log.get(found.entry)
        && !agree(env, cluster, logged, found)
    {
        cluster.conflict_global(env, &found.conflict, logged, found.lane);
    }
    cluster.log = log;
}

/// Whether a store of this cluster leaves the bytes that another cluster has stored there as they are.
fn agree(env: &Env<'_>, cluster: &Cluster, logged: &Logged, found: &Found) -> bool {
    let earlier = &found.conflict.earlier;
    if found.conflict.hazard != Hazard::WriteAfterWrite
        || logged.kind != AccessKind::Write
        || earlier.kind != AccessKind::Write
        || earlier.epoch.agent.cluster == cluster.id
        || logged.bytes == 0
    {
        return false;
    }
    let address = logged.addresses.of(found.lane);
    let Some(at) = env.memory.find(address, logged.bytes as usize, 0) else { return false };
    let allocation = env.memory.get(at);
    let from = usize::try_from(address - allocation.address).unwrap_or(0);
    let before = &allocation.bytes[from..from + logged.bytes as usize];
    let mut after = vec![0; before.len()];
    cluster.overlay.read(env.memory, at, address, &mut after);
    before == after && allocation.is_written(from, before.len())
}

impl Cluster {
    /// Does the calls of `malloc` and `free` for which warps wait.
    fn heap(&mut self, program: &Program, memory: &mut GlobalMemory) {
        for block in 0..self.blocks.len() {
            for warp in 0..self.blocks[block].warps.len() {
                if !self.blocks[block].warps[warp].paths.iter().any(|path| path.wait == Wait::Serial) {
                    continue;
                }
                let spare = self.take_spare();
                let mut running = std::mem::replace(&mut self.blocks[block].warps[warp], spare);
                for path in 0..running.paths.len() {
                    self.heap_call(program, memory, &mut running, path);
                }
                self.put_back(block, warp, running);
                if self.blocks[block].warps[warp].is_ready() {
                    self.wake(index(block), index(warp));
                }
            }
        }
    }

    fn heap_call(&mut self, program: &Program, memory: &mut GlobalMemory, warp: &mut Warp, path: usize) {
        let state = &warp.paths[path];
        let Some(frame) = state.frames.last().filter(|_| state.wait == Wait::Serial) else { return };
        let (local, lanes) = (frame.local, state.lanes);
        let op = program.functions[frame.function as usize].code.get(state.pc as usize);
        let Some(Kind::Call { callee, .. }) = op.map(|op| &op.kind) else { return };
        let mut word = [0; 8];
        for lane in super::exec::bits(lanes) {
            match *callee {
                Callee::Malloc(size, result) => {
                    self.read_local(warp, lane, local + size, &mut word);
                    // More than the heap has gives a null pointer, as on hardware.
                    let size = usize::try_from(u64::from_le_bytes(word)).unwrap_or(usize::MAX);
                    let address = if size > HEAP {
                        0
                    } else {
                        memory.allocate("malloc".to_owned(), vec![POISON; size], false)
                    };
                    self.write_local(warp, lane, local + result, &address.to_le_bytes());
                }
                Callee::Free(address) => {
                    self.read_local(warp, lane, local + address, &mut word);
                    memory.empty(u64::from_le_bytes(word));
                }
                _ => return,
            }
        }
        self.progress += 1;
        warp.paths[path].wait = Wait::None;
        warp.paths[path].pc += 1;
    }

    /// Executes the atomics on global memory for which a warp waits.
    fn serial(&mut self, env: &Env<'_>, block: usize, warp: usize) -> Result<(), Stop> {
        let spare = self.take_spare();
        let mut running = std::mem::replace(&mut self.blocks[block].warps[warp], spare);
        let mut result = Ok(());
        for path in 0..running.paths.len() {
            let state = &running.paths[path];
            if state.wait != Wait::Serial {
                continue;
            }
            let Some(frame) = state.frames.last() else { continue };
            let at = At {
                block,
                path,
                lanes: state.lanes,
                op: env.op_id(frame.function, state.pc),
                registers: frame.registers,
                predicates: frame.predicates,
                frame: frame.local,
            };
            let Some(op) = env.program.functions[frame.function as usize].code.get(state.pc as usize) else {
                continue;
            };
            match self.atomic(env, &mut running, at, &op.kind, true) {
                Ok(Flow::Next) => {
                    running.paths[path].wait = Wait::None;
                    running.paths[path].pc += 1;
                }
                Ok(_) => {}
                Err(stop) => result = Err(stop),
            }
        }
        super::exec::merge_all(&mut running);
        self.put_back(block, warp, running);
        self.wake(index(block), index(warp));
        result
    }
}

/// A finding about a launch that cannot be made.
pub(crate) fn refused(kind: FindingKind, message: String, fix: &str, line: u32, seed: u64) -> Finding {
    let mut finding = Finding::new(kind, message, Place { line, ..Place::default() });
    finding.seed = seed;
    finding.fix = fix.to_owned();
    finding
}
