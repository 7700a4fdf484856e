//! Findings: from what the machine sees to sentences with places.

use std::sync::Arc;

use crate::check::{Agent, Conflict, Finding, FindingKind, Hazard, Key, Place, Proxy, Source, likely_fix};
use crate::memory::window;
use crate::program::{Kind, TraceNote};
use tilewright_ptx::NoteKind;

use super::cluster::{Block, Cluster, Env, Stream, index};
use super::exec::At;
use super::sync::Logged;
use super::warp::{Path, Wait, Warp};

/// Who did what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Where {
    op: u32,
    block: usize,
    thread: Option<(u32, u32)>,
}

impl Where {
    /// A thread at an op.
    pub(crate) fn thread(at: At, warp: &Warp, lane: u32) -> Where {
        Where { op: at.op, block: at.block, thread: Some((warp.index, lane)) }
    }

    /// An op of a warp and lane of a block.
    pub(crate) fn op(op: u32, block: usize, thread: (u32, u32)) -> Where {
        Where { op, block, thread: Some(thread) }
    }
}

/// Where in memory, for a finding.
#[derive(Default)]
struct Spot {
    address: Option<u64>,
    space: Option<&'static str>,
    buffer: Option<String>,
    offset: Option<u64>,
}

impl Spot {
    /// In words.
    fn text(&self) -> String {
        match (&self.buffer, self.offset, self.address) {
            (Some(buffer), Some(offset), _) => {
                format!("{} memory `{buffer}`+{offset}", self.space.unwrap_or(""))
            }
            (_, _, Some(address)) => format!("{} memory at {address:#x}", self.space.unwrap_or("")),
            _ => "memory".to_owned(),
        }
    }
}

impl Cluster {
    fn place(&self, env: &Env<'_>, at: Where) -> Place {
        place(env, self.blocks[at.block].id, at.op, at.thread)
    }

    /// Reports something that concerns no particular address.
    pub(crate) fn report(
        &mut self,
        env: &Env<'_>,
        kind: FindingKind,
        first: Where,
        second: Option<Where>,
        message: String,
        fix: Option<&str>,
    ) {
        self.report_at(env, kind, first, second, message, fix, Spot::default());
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a finding")]
    fn report_at(
        &mut self,
        env: &Env<'_>,
        kind: FindingKind,
        first: Where,
        second: Option<Where>,
        message: String,
        fix: Option<&str>,
        spot: Spot,
    ) {
        let line = |at: Where| {
            let (function, pc) = env.op_at(at.op);
            function.lines.get(pc).copied().unwrap_or(0)
        };
        let key = self.next_key(env);
        let blocks = &self.blocks;
        self.findings.record(key, kind, line(first), second.map(line), || {
            let place = |at: Where| place(env, blocks[at.block].id, at.op, at.thread);
            let first = place(first);
            let mut finding = Finding::new(kind, sentence(&first, message), first);
            finding.second = second.map(place);
            finding.seed = env.options.seed;
            finding.address = spot.address;
            finding.space = spot.space.map(str::to_owned);
            finding.buffer = spot.buffer;
            finding.offset = spot.offset;
            if let Some(fix) = fix {
                finding.fix = fix.to_owned();
            }
            finding
        });
    }

    fn next_key(&mut self, env: &Env<'_>) -> Key {
        self.reported += 1;
        Key { round: env.round, cluster: self.id, sequence: self.reported }
    }

    /// A conflict in shared memory.
    pub(crate) fn conflict_shared(&mut self, env: &Env<'_>, conflict: &Conflict, block: usize, later: Where) {
        let offset = u32::try_from(conflict.offset).unwrap_or(0);
        let region = env.shared.find(offset, 1);
        let spot = Spot {
            address: Some(u64::from(offset | self.blocks[block].rank << window::BLOCK_SHIFT)),
            space: Some("shared"),
            buffer: region.map(|region| region.name.clone()),
            offset: region.map(|region| u64::from(offset - region.start)),
        };
        let proxy = proxy_of(env, later.op);
        self.conflict(env, conflict, later, proxy, spot);
    }

    /// A conflict in global memory, found at the end of a round.
    pub(crate) fn conflict_global(&mut self, env: &Env<'_>, conflict: &Conflict, logged: &Logged, lane: u32) {
        let buffer = env.memory.nearest(conflict.offset);
        let spot = Spot {
            address: Some(conflict.offset),
            space: Some("global"),
            buffer: buffer.map(|buffer| buffer.name.clone()),
            offset: buffer.map(|buffer| conflict.offset - buffer.address),
        };
        let later = Where { op: logged.op, block: logged.block, thread: Some((logged.warp, lane)) };
        self.conflict(env, conflict, later, logged.proxy, spot);
    }

    fn conflict(&mut self, env: &Env<'_>, conflict: &Conflict, later: Where, proxy: Proxy, spot: Spot) {
        let earlier = &conflict.earlier;
        let kind = FindingKind::of(conflict, proxy);
        let first = self.place(env, later);
        let second = agent_place(env, earlier.issuer, earlier.pc);
        let lines = (first.line, Some(second.line));
        let key = self.next_key(env);
        let seed = env.options.seed;
        let cluster = self.id;
        let own_warp = earlier.issuer.cluster == cluster
            && later.thread.is_some_and(|(warp, _)| {
                earlier.issuer.slot == self.slot(index(later.block), warp, Stream::Threads, env)
            });
        self.findings.record(key, kind, lines.0, lines.1, || {
            let message = conflict.hazard.message(&spot.text(), &who(&first, proxy), &who(&second, earlier.proxy));
            let mut finding = Finding::new(kind, message, first);
            finding.fix = if earlier.issuer.cluster != cluster && conflict.hazard != Hazard::MissingProxyFence {
                "give each block its own part of the buffer, use atomics, or order the blocks with a release (fence, then strong store or atomic) and an acquire".to_owned()
            } else if conflict.hazard == Hazard::ReadAfterWrite && is_copy(env, earlier.pc) {
                "wait for the copy (cp.async.wait_group or cp.async.wait_all, and a barrier if another thread made it) before reading what it writes".to_owned()
            } else if own_warp && proxy == Proxy::Generic && earlier.proxy == Proxy::Generic {
                "put bar.warp.sync (__syncwarp) between the two: the lanes of a warp are not ordered by themselves".to_owned()
            } else {
                likely_fix(kind, Some((conflict.hazard, earlier.proxy, proxy))).to_owned()
            };
            finding.second = Some(second);
            finding.seed = seed;
            finding.address = spot.address;
            finding.space = spot.space.map(str::to_owned);
            finding.buffer = spot.buffer;
            finding.offset = spot.offset;
            finding
        });
    }

    /// An address that is not a multiple of the size of its access.
    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    pub(crate) fn check_alignment(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        address: u64,
        bytes: usize,
        space: &'static str,
    ) {
        let unit = bytes.next_power_of_two().min(32) as u64;
        if !address.is_multiple_of(unit) {
            self.check_unit(env, warp, at, lane, address, unit, space);
        }
    }

    /// An address that is not a multiple of some unit.
    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    pub(crate) fn check_unit(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        address: u64,
        unit: u64,
        space: &'static str,
    ) {
        if address.is_multiple_of(unit) {
            return;
        }
        let message = format!("{space} address {address:#x} is not a multiple of {unit}");
        let spot = Spot { address: Some(address), space: Some(space), ..Spot::default() };
        self.report_at(
            env,
            FindingKind::Misaligned,
            Where::thread(at, warp, lane),
            None,
            message,
            None,
            spot,
        );
    }

    /// An access outside of all buffers.
    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    pub(crate) fn out_of_bounds_global(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        address: u64,
        bytes: usize,
        action: &str,
    ) {
        let near = env
            .memory
            .nearest(address)
            .filter(|near| address - near.address < (near.bytes.len() as u64).saturating_add(1 << 20));
        let message = match near {
            Some(near) if near.constant && (address - near.address) < near.bytes.len() as u64 => {
                format!("{action} {bytes} bytes of `{}`, which is constant memory", near.name)
            }
            Some(near) => format!(
                "{action} {bytes} bytes at offset {} of `{}`, which has {}",
                address - near.address,
                near.name,
                near.bytes.len()
            ),
            None if address < 1 << 20 => {
                format!("{action} {bytes} bytes at address {address:#x}, a null pointer or close to one")
            }
            None => format!("{action} {bytes} bytes at address {address:#x}, which belongs to no buffer"),
        };
        let spot = Spot {
            address: Some(address),
            space: Some("global"),
            buffer: near.map(|near| near.name.clone()),
            offset: near.map(|near| address - near.address),
        };
        self.report_at(
            env,
            FindingKind::OutOfBounds,
            Where::thread(at, warp, lane),
            None,
            message,
            None,
            spot,
        );
    }

    /// An access outside of all variables in shared memory.
    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    pub(crate) fn out_of_bounds_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        address: u32,
        bytes: usize,
        action: &str,
    ) {
        let (rank, offset) = (address >> window::BLOCK_SHIFT, address & ((1 << window::BLOCK_SHIFT) - 1));
        let near = env.shared.nearest(offset);
        let message = match near {
            _ if rank as usize >= self.blocks.len() || rank != self.blocks[at.block].rank => {
                format!(
                    "{action} {bytes} bytes at shared address {address:#x}, which is not in the shared memory of the block"
                )
            }
            Some(near) => format!(
                "{action} {bytes} bytes at offset {} of shared `{}`, which has {}",
                offset - near.start,
                near.name,
                near.end - near.start
            ),
            None => format!("{action} {bytes} bytes at shared address {address:#x}, where no variable lies"),
        };
        let spot = Spot {
            address: Some(u64::from(address)),
            space: Some("shared"),
            buffer: near.map(|near| near.name.clone()),
            offset: near.map(|near| u64::from(offset - near.start)),
        };
        self.report_at(
            env,
            FindingKind::OutOfBounds,
            Where::thread(at, warp, lane),
            None,
            message,
            None,
            spot,
        );
    }

    /// An access outside of a thread's frame.
    pub(crate) fn out_of_bounds_local(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        offset: u64,
        bytes: usize,
    ) {
        let message = format!(
            "touches {bytes} bytes at local address {offset:#x}, outside of the variables of the function"
        );
        let spot = Spot { address: Some(offset), space: Some("local"), ..Spot::default() };
        self.report_at(
            env,
            FindingKind::OutOfBounds,
            Where::thread(at, warp, lane),
            None,
            message,
            None,
            spot,
        );
    }

    /// A read of bytes that nobody has written.
    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    pub(crate) fn uninitialised(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        space: &'static str,
        address: u64,
        found: Option<usize>,
    ) {
        let (buffer, offset) = match space {
            "global" => {
                let buffer = found.map(|found| env.memory.get(found));
                (buffer.map(|buffer| buffer.name.clone()), buffer.map(|buffer| address - buffer.address))
            }
            "shared" => {
                let offset = u32::try_from(address).unwrap_or(0);
                let region = env.shared.find(offset, 1);
                (
                    region.map(|region| region.name.clone()),
                    region.map(|region| u64::from(offset - region.start)),
                )
            }
            _ => (None, None),
        };
        let spot = Spot { address: Some(address), space: Some(space), buffer, offset };
        let message = format!("reads {}, which nobody has written", spot.text());
        self.report_at(
            env,
            FindingKind::UninitialisedRead,
            Where::thread(at, warp, lane),
            None,
            message,
            None,
            spot,
        );
    }

    /// Operand values that the instruction does not allow.
    pub(crate) fn invalid(&mut self, env: &Env<'_>, warp: &Warp, at: At, lanes: u32, message: &str) {
        let at_thread = Where::thread(at, warp, lanes.trailing_zeros().min(31));
        self.report(env, FindingKind::InvalidInstruction, at_thread, None, message.to_owned(), None);
    }

    /// A thread touches the shared memory of a block that has exited.
    pub(crate) fn peer_gone(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        rank: usize,
        action: &str,
    ) {
        let message = format!("{action} shared memory of block {rank} of the cluster, which has exited");
        self.report(env, FindingKind::PeerNotRunning, Where::thread(at, warp, lane), None, message, None);
    }

    /// A thread touches the shared memory of a block that may not have started.
    pub(crate) fn peer_not_started(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        rank: usize,
        action: &str,
    ) {
        let message =
            format!("{action} shared memory of block {rank} of the cluster, which may not have started yet");
        self.report(env, FindingKind::PeerNotRunning, Where::thread(at, warp, lane), None, message, None);
    }

    /// A path goes through an `.aligned` instruction without the whole warp.
    pub(crate) fn divergent(&mut self, env: &Env<'_>, block: usize, warp: usize, path: usize) {
        let state = &self.blocks[block].warps[warp];
        let stands = &state.paths[path];
        let message = format!(
            "lanes {:#010x} of the warp execute it without lanes {:#010x}, which wait elsewhere",
            stands.lanes,
            state.live & !stands.lanes
        );
        let first = waiting_at(env, block, state, stands);
        let second = state
            .paths
            .iter()
            .find(|other| other.lanes & stands.lanes == 0)
            .map(|other| waiting_at(env, block, state, other));
        self.report(env, FindingKind::DivergentAligned, first, second, message, None);
    }

    /// The kernel has used up its budget.
    pub(crate) fn never_ends(&mut self, env: &Env<'_>, block: usize, warp: usize) {
        let state = &self.blocks[block].warps[warp];
        let Some(path) = state.paths.first() else { return };
        let first = waiting_at(env, block, state, path);
        let message = format!(
            "the warp has executed {} instructions, the budget of this run; it does not seem to end (raise the budget if it should)",
            state.executed
        );
        self.report(env, FindingKind::NeverEnds, first, None, message, None);
    }

    /// Nobody can go on.
    pub(crate) fn deadlock(&mut self, env: &Env<'_>) {
        self.unexpected_bytes(env);
        let mut first = None;
        let mut lines: Vec<String> = Vec::new();
        for (b, block) in self.blocks.iter().enumerate() {
            for warp in &block.warps {
                for path in &warp.paths {
                    let at = waiting_at(env, b, warp, path);
                    let line = env.op_at(at.op).0.lines.get(env.op_at(at.op).1).copied().unwrap_or(0);
                    let text = format!(
                        "warp {} of block {:?} waits {} (line {line})",
                        warp.index,
                        block.id,
                        self.reason(block, path)
                    );
                    if !lines.contains(&text) {
                        lines.push(text);
                    }
                    first.get_or_insert(at);
                }
            }
        }
        let Some(first) = first else { return };
        let more = lines.len().saturating_sub(12);
        lines.truncate(12);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        let message = format!("nobody can go on: {}", lines.join("; "));
        self.report(env, FindingKind::Deadlock, first, None, message, None);
    }

    /// Barriers that wait for bytes that no copy will bring.
    fn unexpected_bytes(&mut self, env: &Env<'_>) {
        let mut found = Vec::new();
        for (b, block) in self.blocks.iter().enumerate() {
            for (&offset, mbar) in &block.mbarriers {
                if mbar.bytes > 0 && mbar.pending == 0 && self.copies_towards(b, offset) == 0 {
                    found.push((b, offset, mbar.bytes, mbar.op));
                }
            }
        }
        found.sort_unstable();
        for (block, offset, bytes, op) in found {
            let name = env.shared.find(offset, 8).map_or_else(String::new, |region| {
                format!(" in `{}`+{}", region.name, offset - region.start)
            });
            let message = format!(
                "the mbarrier{name} expects {bytes} more bytes, but no copy is under way: expect_tx announced too many"
            );
            self.report(
                env,
                FindingKind::WrongExpectTx,
                Where { op, block, thread: None },
                None,
                message,
                None,
            );
        }
    }

    fn reason(&self, block: &Block, path: &Path) -> String {
        match &path.wait {
            Wait::None => "to run".to_owned(),
            Wait::Bar { id } => {
                let (arrived, expected) = block.bars[*id as usize].state(block.live_threads);
                format!("at barrier {id}, where {arrived} of {expected} threads have arrived")
            }
            Wait::Cluster { .. } => {
                let live: u32 = self.blocks.iter().map(|block| block.live_threads).sum();
                format!(
                    "at the cluster barrier, where {} of {live} threads have arrived",
                    self.barrier.arrived
                )
            }
            Wait::Converge { lanes, .. } | Wait::WarpSync { lanes } => {
                format!("for the lanes {:#010x} of its warp", lanes & !path.lanes)
            }
            Wait::Registers => "for registers that other warps hold (setmaxnreg)".to_owned(),
            Wait::Mbarrier { block: rank, offset } => match self.blocks[*rank as usize].mbarriers.get(offset)
            {
                Some(mbar) => format!(
                    "on the mbarrier at shared {offset:#x}, phase {} (parity {}): {} arrivals and {} bytes are missing",
                    mbar.phase,
                    mbar.phase & 1,
                    mbar.pending,
                    mbar.bytes
                ),
                None => format!("on the mbarrier at shared {offset:#x}, which does not exist"),
            },
            Wait::CpAsync { .. } => "for cp.async".to_owned(),
            Wait::Bulk { .. } => "for bulk copies".to_owned(),
            Wait::Wgmma { .. } => "for wgmma: the other warps of its warpgroup have not issued it".to_owned(),
            Wait::Serial => "for global memory".to_owned(),
        }
    }

    /// Everybody polls, and nothing changes.
    pub(crate) fn livelock(&mut self, env: &Env<'_>) {
        let mut first = None;
        let mut lines: Vec<String> = Vec::new();
        for (b, block) in self.blocks.iter().enumerate() {
            for warp in block.warps.iter().filter(|warp| !warp.is_done()) {
                let text = match warp.polled {
                    Some(op) => {
                        let (function, pc) = env.op_at(op);
                        first.get_or_insert(Where { op, block: b, thread: None });
                        format!(
                            "warp {} of block {:?} polls in line {}",
                            warp.index, block.id, function.lines[pc]
                        )
                    }
                    None => {
                        let Some(path) = warp.paths.first() else { continue };
                        format!(
                            "warp {} of block {:?} waits {}",
                            warp.index,
                            block.id,
                            self.reason(block, path)
                        )
                    }
                };
                lines.push(text);
            }
        }
        let Some(first) = first else { return };
        lines.dedup();
        let more = lines.len().saturating_sub(8);
        lines.truncate(8);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        let message = format!("everybody polls memory, and nobody changes it: {}", lines.join("; "));
        let fix = "check that the flag or lock that is polled is set by somebody who runs; all blocks of the grid must be resident for blocks to wait for each other";
        self.report(env, FindingKind::Deadlock, first, None, message, Some(fix));
    }

    /// `trap`
    pub(crate) fn trap(&mut self, env: &Env<'_>, warp: &Warp, at: At) {
        let lane = at.lanes.trailing_zeros().min(31);
        match &warp.note {
            Some(note) if note.note.kind == NoteKind::Assert => {
                let message = self.rendered(warp, at, note, lane);
                let message = if message.is_empty() { "assertion of the kernel".to_owned() } else { message };
                self.report(
                    env,
                    FindingKind::AssertFailed,
                    Where::thread(at, warp, lane),
                    None,
                    message,
                    None,
                );
            }
            _ => self.report(
                env,
                FindingKind::Trap,
                Where::thread(at, warp, lane),
                None,
                "executes trap".to_owned(),
                None,
            ),
        }
    }

    /// A label with a message.
    pub(crate) fn note(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, note: &Arc<TraceNote>) {
        match note.note.kind {
            NoteKind::Assert => warp.note = Some(note.clone()),
            NoteKind::Trace => {
                for lane in super::exec::bits(at.lanes) {
                    let text = self.rendered(warp, at, note, lane);
                    let thread = env.geometry.thread(warp.index * 32 + lane);
                    let block = self.blocks[at.block].id;
                    self.output.push_str(&format!("[block {block:?} thread {thread:?}] {text}\n"));
                }
            }
        }
    }

    fn rendered(&self, warp: &Warp, at: At, note: &TraceNote, lane: u32) -> String {
        let mut out = String::new();
        let mut pieces = note.note.text.split("{}");
        out.push_str(pieces.next().unwrap_or(""));
        for (i, piece) in pieces.enumerate() {
            let registers = note.registers.get(i).map_or(&[][..], |registers| registers);
            let values: Vec<u64> = registers
                .iter()
                .filter_map(|register| warp.registers.get((at.registers + register) as usize))
                .map(|lanes| lanes[lane as usize])
                .collect();
            let ty = note.note.values.get(i).map_or("", |value| &value.0);
            out.push_str(&super::printf::typed(ty, &values));
            out.push_str(piece);
        }
        out
    }

    /// Before threads exit: what they must not leave behind.
    pub(crate) fn before_exit(&mut self, env: &Env<'_>, block: usize, warp: &Warp, path: usize) {
        if !env.options.check {
            return;
        }
        let stands = &warp.paths[path];
        if let Some(lane) = self.unread_stores(warp, stands.lanes) {
            let at = waiting_at(env, block, warp, stands);
            let message = "exits while a bulk copy may still read its shared memory".to_owned();
            let fix = "execute cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 in the thread that issued the copy, before it exits";
            let at = Where { thread: Some((warp.index, lane)), ..at };
            self.report(env, FindingKind::OverwrittenWhileRead, at, None, message, Some(fix));
        }
        // Whoever visits from elsewhere must be done before the last thread goes.
        if self.blocks[block].live_threads == stands.lanes.count_ones()
            && !self.blocks[block].visitors.is_empty()
        {
            let known = |epoch| {
                warp.clock.views().any(|(_, know)| know.knows(epoch))
                    || self.blocks[block]
                        .warps
                        .iter()
                        .any(|other| other.clock.views().any(|(_, know)| know.knows(epoch)))
            };
            let unknown = self.blocks[block].visitors.iter().find(|(epoch, _)| !known(*epoch)).copied();
            if let Some((epoch, op)) = unknown {
                let at = waiting_at(env, block, warp, stands);
                let second = Where { op, block: epoch.agent.block as usize, thread: None };
                let message = "the block exits while its shared memory may still be accessed by another block or a copy".to_owned();
                self.report(env, FindingKind::PeerNotRunning, at, Some(second), message, None);
            }
        }
    }

    /// After threads have exited: who waited only for them goes on.
    pub(crate) fn after_exit(&mut self, env: &Env<'_>, block: usize, warp: &mut Warp) {
        self.retry_collectives(env, warp);
        self.retry_barriers(env, block, warp);
        if warp.is_done() {
            self.wake_where(false, |_, _, path| path.wait == Wait::Registers);
        }
    }

    /// Whether an address is in constant memory.
    pub(crate) fn is_constant(&self, env: &Env<'_>, address: u64) -> bool {
        env.memory.find(address, 1, 0).is_some_and(|found| env.memory.get(found).constant)
    }
}

/// Where a path stands.
fn waiting_at(env: &Env<'_>, block: usize, warp: &Warp, path: &Path) -> Where {
    let function = path.frames.last().map_or(0, |frame| frame.function);
    let last = index(env.program.functions[function as usize].code.len()).saturating_sub(1);
    let lane = path.lanes.trailing_zeros().min(31);
    Where { op: env.op_id(function, path.pc.min(last)), block, thread: Some((warp.index, lane)) }
}

fn place(env: &Env<'_>, block: [u32; 3], op: u32, thread: Option<(u32, u32)>) -> Place {
    let (function, pc) = env.op_at(op);
    let source = function.sources.get(pc).copied().flatten();
    Place {
        line: function.lines.get(pc).copied().unwrap_or(0),
        instruction: function.instruction_text(index(pc)),
        source: source.map(|source| Source {
            file: env.program.files.get(&source.file).cloned().unwrap_or_default(),
            line: source.line,
            column: source.column,
        }),
        block,
        thread: thread.map(|(warp, lane)| env.geometry.thread(warp * 32 + lane)),
        action: String::new(),
    }
}

/// Whether an op is a copy of a thread that goes on without it.
fn is_copy(env: &Env<'_>, op: u32) -> bool {
    let (function, pc) = env.op_at(op);
    matches!(function.code.get(pc).map(|op| &op.kind), Some(Kind::CpAsync { .. }))
}

/// The place of an access that the checker remembers.
fn agent_place(env: &Env<'_>, agent: Agent, op: u32) -> Place {
    let block = env.geometry.block_id(agent.cluster, u32::from(agent.block));
    let warp = env.geometry.warp_of_slot(agent.slot);
    place(env, block, op, warp.map(|warp| (warp, u32::from(agent.lane))))
}

/// The subject of a sentence about an access.
fn who(place: &Place, proxy: Proxy) -> String {
    let [x, y, z] = place.thread.unwrap_or_default();
    let [bx, by, bz] = place.block;
    let thread = format!("thread ({x},{y},{z}) of block ({bx},{by},{bz})");
    match proxy {
        Proxy::Generic => thread,
        Proxy::Async => format!("an asynchronous operation of {thread}"),
    }
}

/// The proxy of an op.
fn proxy_of(env: &Env<'_>, op: u32) -> Proxy {
    let (function, pc) = env.op_at(op);
    match function.code.get(pc).map(|op| &op.kind) {
        Some(Kind::Bulk(_) | Kind::Wgmma { .. }) => Proxy::Async,
        _ => Proxy::Generic,
    }
}

/// A sentence whose subject is the thread of a place.
fn sentence(place: &Place, message: String) -> String {
    match place.thread {
        Some([x, y, z])
            if message.starts_with(|c: char| c.is_ascii_lowercase())
                && !message.starts_with("the ")
                && !message.starts_with("nobody")
                && !message.starts_with("everybody")
                && !message.starts_with("lanes ") =>
        {
            let [bx, by, bz] = place.block;
            format!("thread ({x},{y},{z}) of block ({bx},{by},{bz}): {message}")
        }
        _ => message,
    }
}
