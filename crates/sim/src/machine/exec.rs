//! Executes ops: the loop over a path, values, and control flow. Everything else is a call away.

use tilewright_ptx::SpecialRegister;

use crate::SimError;
use crate::memory::window;
use crate::number::Lanes;
use crate::program::{Address, Kind, Op, PredSrc, Space, Src};

use super::cluster::{Cluster, Env, Stop, op_of};
use super::control::branch;
use super::warp::{Wait, Warp};

/// How an op ends.
pub(crate) enum Flow {
    /// The path goes on with the next op.
    Next,
    /// The path goes on with the next op, but others should run first.
    Yield,
    /// Paths have changed: choose again.
    Choose,
    /// The path waits at this op.
    Wait(Wait),
}

/// Where an op is executed: indices of block and path, the lanes that execute it, and its number.
#[derive(Clone, Copy)]
pub(crate) struct At {
    /// Index of the block.
    pub(crate) block: usize,
    /// Index of the path.
    pub(crate) path: usize,
    /// Lanes for which the guard holds.
    pub(crate) lanes: u32,
    /// Number of the op among all of the program.
    pub(crate) op: u32,
    /// First register of the function's window.
    pub(crate) registers: u32,
    /// First predicate.
    pub(crate) predicates: u32,
    /// Offset of the frame in local memory.
    pub(crate) frame: u32,
}

impl Cluster {
    /// Runs a warp for some ops, or until it cannot.
    pub(crate) fn execute(
        &mut self,
        env: &Env<'_>,
        block: usize,
        warp: &mut Warp,
        steps: u64,
    ) -> Result<(), Stop> {
        let mut left = steps;
        while left > 0 {
            let Some(path) = choose(env, warp) else { return Ok(()) };
            left = self.follow(env, block, warp, path, left)?;
        }
        Ok(())
    }

    /// Follows one path until another one should run; returns the steps that are left.
    fn follow(
        &mut self,
        env: &Env<'_>,
        block: usize,
        warp: &mut Warp,
        path: usize,
        steps: u64,
    ) -> Result<u64, Stop> {
        let mut left = steps;
        let state = &warp.paths[path];
        let lanes = state.lanes;
        let Some(frame) = state.frames.last() else { return Ok(0) };
        let function = &env.program.functions[frame.function as usize];
        let base = env.bases[frame.function as usize];
        let mut at = At {
            block,
            path,
            lanes,
            op: base,
            registers: frame.registers,
            predicates: frame.predicates,
            frame: frame.local,
        };
        let mut pc = state.pc;
        let others = warp.paths.len() > 1;
        // Paths at the same depth of calls that come later in the order wait until this one reaches them.
        let limit = if others { meeting(env, warp, path) } else { u32::MAX };
        loop {
            if left == 0 {
                warp.paths[path].pc = pc;
                return Ok(0);
            }
            left -= 1;
            let Some(op) = op_of(function, pc) else {
                // Falling off the end.
                warp.paths[path].pc = pc;
                self.exit_or_return(env, block, warp, path, lanes);
                return Ok(left);
            };
            at.op = base + pc;
            at.lanes = match op.guard {
                None => lanes,
                Some(guard) => lanes & predicate(warp, at, guard),
            };
            self.now += 1;
            warp.executed += 1;
            self.thread_ops += u64::from(at.lanes.count_ones());
            if env.options.count {
                self.sites.executed(at.op, at.lanes, warp.live);
            }
            if !warp.in_flight.is_empty() && at.lanes != 0 {
                self.touch_in_flight(env, warp, at, frame_function(warp, path), pc);
            }
            if env.options.count && matches!(op.kind, Kind::Bra { .. } | Kind::Brx { .. }) {
                self.sites.branched(at.op, at.lanes, lanes);
            }
            if let Kind::Bra { target, .. } = op.kind
                && at.lanes == lanes
            {
                pc = target;
                if others {
                    // What lies ahead may be different now.
                    warp.paths[path].pc = pc;
                    warp.merge(path);
                    return Ok(left);
                }
                continue;
            }
            if at.lanes != 0 && !self.fast(env, warp, at, op) {
                warp.paths[path].pc = pc;
                match self.slow(env, warp, at, op)? {
                    Flow::Next => {}
                    Flow::Yield => {
                        warp.paths[path].pc = pc + 1;
                        return Ok(0);
                    }
                    Flow::Choose => return Ok(left),
                    Flow::Wait(wait) => {
                        // Lanes whose guard is false are not part of it.
                        let waiting = if at.lanes == lanes {
                            path
                        } else {
                            let waiting = warp.split(path, at.lanes, pc);
                            warp.paths[path].pc = pc + 1;
                            waiting
                        };
                        warp.paths[waiting].wait = wait;
                        if env.options.count {
                            self.sites.waited(at.op);
                        }
                        return Ok(left);
                    }
                }
            }
            pc += 1;
            if others && function.order.get(pc as usize).is_none_or(|&order| order >= limit) {
                warp.paths[path].pc = pc;
                warp.merge(path);
                return Ok(left);
            }
        }
    }

    /// Ops that only compute, without calls; returns whether it was one.
    #[inline]
    fn fast(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, op: &Op) -> bool {
        let mut spare = [[0; 32]; 4];
        match &op.kind {
            Kind::Map { map, dst, src } => {
                let result = {
                    let [s0, s1, s2, s3] = &mut spare;
                    let get = |i: usize, spare| match src.get(i) {
                        Some(&src) => self.get(env, warp, at, src, spare),
                        None => spare,
                    };
                    map.apply([get(0, s0), get(1, s1), get(2, s2), get(3, s3)])
                };
                set(warp, at, *dst, &result);
            }
            Kind::Test { test, p, q, a, b, c } => {
                let [s0, s1, ..] = &mut spare;
                let c = predicate(warp, at, *c);
                let (first, second) =
                    test.apply(self.get(env, warp, at, *a, s0), self.get(env, warp, at, *b, s1), c);
                set_predicate(warp, at, *p, first);
                set_predicate(warp, at, *q, second);
            }
            Kind::Mov { dst, src } => {
                let value = *self.get(env, warp, at, *src, &mut spare[0]);
                set(warp, at, *dst, &value);
            }
            Kind::Select { dst, a, b, c } => {
                let c = predicate(warp, at, *c);
                let [s0, s1, ..] = &mut spare;
                let (a, b) = (self.get(env, warp, at, *a, s0), self.get(env, warp, at, *b, s1));
                let value = std::array::from_fn(|lane| if c >> lane & 1 == 1 { a[lane] } else { b[lane] });
                set(warp, at, *dst, &value);
            }
            Kind::Set { set: op, dst, a, b, c } => {
                let c = predicate(warp, at, *c);
                let [s0, s1, ..] = &mut spare;
                let value = op.apply(self.get(env, warp, at, *a, s0), self.get(env, warp, at, *b, s1), c);
                set(warp, at, *dst, &value);
            }
            Kind::MovPred { dst, src } => {
                let value = predicate(warp, at, *src);
                set_predicate(warp, at, Some(*dst), value);
            }
            Kind::PredLogic { dst, table, a, b } => {
                let (a, b) = (predicate(warp, at, *a), predicate(warp, at, *b));
                let bit = |i: u8| if table >> i & 1 == 1 { u32::MAX } else { 0 };
                let value = (!a & !b & bit(0)) | (a & !b & bit(1)) | (!a & b & bit(2)) | (a & b & bit(3));
                set_predicate(warp, at, Some(*dst), value);
            }
            Kind::Nop => {}
            _ => return false,
        }
        true
    }

    /// All other ops.
    fn slow(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, op: &Op) -> Result<Flow, Stop> {
        match &op.kind {
            Kind::Map { .. }
            | Kind::Test { .. }
            | Kind::Mov { .. }
            | Kind::Select { .. }
            | Kind::Set { .. }
            | Kind::MovPred { .. }
            | Kind::PredLogic { .. }
            | Kind::Nop => Ok(Flow::Next),
            Kind::Carry { .. }
            | Kind::Lop3Test { .. }
            | Kind::Pack { .. }
            | Kind::Unpack { .. }
            | Kind::Cvta { .. }
            | Kind::Isspacep { .. }
            | Kind::Mapa { .. }
            | Kind::Getctarank { .. }
            | Kind::MbarrierPending { .. } => {
                self.value(env, warp, at, &op.kind);
                Ok(Flow::Next)
            }
            Kind::Load { access, dst, bits } => self.load(env, warp, at, access, dst, *bits),
            Kind::Store { access, src } => self.store(env, warp, at, access, src),
            Kind::Atomic { .. } => self.atomic(env, warp, at, &op.kind, false),
            Kind::Alloca { .. } | Kind::StackSave { .. } | Kind::StackRestore { .. } => {
                self.stack(env, warp, at, &op.kind);
                Ok(Flow::Next)
            }
            Kind::Shfl { .. }
            | Kind::Vote { .. }
            | Kind::Match { .. }
            | Kind::Redux { .. }
            | Kind::Activemask { .. }
            | Kind::Elect { .. }
            | Kind::WarpSync { .. } => Ok(self.collective(env, warp, at, &op.kind)),
            Kind::Bar { id, threads, mode, aligned } => {
                Ok(self.bar(env, warp, at, *id, *threads, *mode, *aligned))
            }
            Kind::ClusterArrive { release, aligned } => {
                Ok(self.cluster_arrive(env, warp, at, *release, *aligned))
            }
            Kind::ClusterWait { acquire, aligned } => {
                Ok(self.cluster_wait(env, warp, at, *acquire, *aligned))
            }
            Kind::Fence(fence) => {
                self.fence(env, warp, at, *fence);
                Ok(Flow::Next)
            }
            Kind::Mbarrier { op, address, space } => Ok(self.mbarrier(env, warp, at, op, *address, *space)),
            Kind::CpAsync { .. }
            | Kind::CpAsyncCommit
            | Kind::CpAsyncWait { .. }
            | Kind::CpAsyncMbarrier { .. }
            | Kind::Bulk(_)
            | Kind::TensormapReplace { .. }
            | Kind::TensormapPublish { .. } => self.copy(env, warp, at, &op.kind),
            Kind::Ldmatrix { .. }
            | Kind::Stmatrix { .. }
            | Kind::Movmatrix { .. }
            | Kind::Mma { .. }
            | Kind::WmmaLoad { .. }
            | Kind::WmmaStore { .. }
            | Kind::WmmaMma { .. }
            | Kind::Wgmma { .. }
            | Kind::WgmmaFence
            | Kind::WgmmaCommit
            | Kind::WgmmaWait { .. }
            | Kind::Setmaxnreg { .. } => self.matrix(env, warp, at, &op.kind),
            Kind::Bra { target, .. } => Ok(branch(warp, at, *target)),
            Kind::Brx { index, targets } => self.branch_table(env, warp, at, *index, targets),
            Kind::Call { callee, arguments, results } => self.call(env, warp, at, callee, arguments, results),
            Kind::Ret | Kind::Exit => {
                let exit = matches!(op.kind, Kind::Exit);
                self.leave(env, warp, at, exit);
                Ok(Flow::Choose)
            }
            Kind::Trap | Kind::Brkpt => {
                self.trap(env, warp, at);
                Err(Stop::Dead)
            }
            Kind::Nanosleep => Ok(Flow::Yield),
            Kind::GridDependency { .. } => Ok(Flow::Next),
            Kind::Note(note) => {
                self.note(env, warp, at, note);
                Ok(Flow::Next)
            }
            Kind::Unsupported(what) => {
                let (function, pc) = env.op_at(at.op);
                Err(SimError::Unsupported { line: function.lines[pc], what: what.clone() }.into())
            }
        }
    }

    /// A source in all lanes: a register, or `spare` filled with it.
    #[inline]
    pub(crate) fn get<'a>(
        &self,
        env: &Env<'_>,
        warp: &'a Warp,
        at: At,
        src: Src,
        spare: &'a mut Lanes,
    ) -> &'a Lanes {
        match src {
            Src::Reg(register) => &warp.registers[(at.registers + register) as usize],
            Src::Imm(value) => {
                *spare = [value; 32];
                spare
            }
            other => {
                *spare = self.symbolic(env, warp, at, other);
                spare
            }
        }
    }

    /// A source in all lanes, by value.
    pub(crate) fn lanes(&self, env: &Env<'_>, warp: &Warp, at: At, src: Src) -> Lanes {
        *self.get(env, warp, at, src, &mut [0; 32])
    }

    /// A source of one lane.
    pub(crate) fn scalar(&self, env: &Env<'_>, warp: &Warp, at: At, src: Src, lane: u32) -> u64 {
        match src {
            Src::Reg(register) => warp.registers[(at.registers + register) as usize][lane as usize],
            Src::Imm(value) => value,
            other => self.symbolic(env, warp, at, other)[lane as usize],
        }
    }

    /// Addresses of all lanes; those of 32-bit spaces wrap there.
    pub(crate) fn addresses(
        &self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        address: Address,
        space: Space,
    ) -> Lanes {
        let mut lanes = self.lanes(env, warp, at, address.base);
        let narrow = !matches!(space, Space::Generic | Space::Global | Space::Const);
        let mask = if narrow { u64::from(u32::MAX) } else { u64::MAX };
        for lane in &mut lanes {
            *lane = lane.wrapping_add_signed(address.offset) & mask;
        }
        lanes
    }

    fn symbolic(&self, env: &Env<'_>, warp: &Warp, at: At, src: Src) -> Lanes {
        match src {
            Src::Shared(offset) => {
                let rank = self.blocks[at.block].rank;
                [u64::from(offset | rank << window::BLOCK_SHIFT); 32]
            }
            Src::Frame(offset) => [u64::from(at.frame + offset); 32],
            Src::Special(register) => self.special(env, warp, at, register),
            Src::Reg(_) | Src::Imm(_) => [0; 32],
        }
    }

    fn special(&self, env: &Env<'_>, warp: &Warp, at: At, register: SpecialRegister) -> Lanes {
        use SpecialRegister as R;
        let block = &self.blocks[at.block];
        let geometry = env.geometry;
        let thread = |axis: usize| -> Lanes {
            std::array::from_fn(|lane| {
                u64::from(geometry.thread(warp.index * 32 + super::cluster::index(lane))[axis])
            })
        };
        let lanes = |f: fn(u32) -> u32| -> Lanes {
            std::array::from_fn(|lane| u64::from(f(super::cluster::index(lane))))
        };
        let cluster_id = geometry.cluster_id(self.id);
        let in_cluster = geometry.in_cluster(block.rank);
        let uniform = match register {
            R::TidX => return thread(0),
            R::TidY => return thread(1),
            R::TidZ => return thread(2),
            R::Laneid => return lanes(|lane| lane),
            R::LanemaskEq => return lanes(|lane| 1 << lane),
            R::LanemaskLe => return lanes(|lane| u32::MAX >> (31 - lane)),
            R::LanemaskLt => return lanes(|lane| (1 << lane) - 1),
            R::LanemaskGe => return lanes(|lane| u32::MAX << lane),
            R::LanemaskGt => return lanes(|lane| u32::MAX.checked_shl(lane + 1).unwrap_or(0)),
            R::NtidX => geometry.block[0],
            R::NtidY => geometry.block[1],
            R::NtidZ => geometry.block[2],
            R::CtaidX => block.id[0],
            R::CtaidY => block.id[1],
            R::CtaidZ => block.id[2],
            R::NctaidX => geometry.grid[0],
            R::NctaidY => geometry.grid[1],
            R::NctaidZ => geometry.grid[2],
            R::ClusteridX => cluster_id[0],
            R::ClusteridY => cluster_id[1],
            R::ClusteridZ => cluster_id[2],
            R::NclusteridX => geometry.clusters()[0],
            R::NclusteridY => geometry.clusters()[1],
            R::NclusteridZ => geometry.clusters()[2],
            R::ClusterCtaidX => in_cluster[0],
            R::ClusterCtaidY => in_cluster[1],
            R::ClusterCtaidZ => in_cluster[2],
            R::ClusterNctaidX => geometry.cluster[0],
            R::ClusterNctaidY => geometry.cluster[1],
            R::ClusterNctaidZ => geometry.cluster[2],
            R::ClusterCtarank => block.rank,
            R::ClusterNctarank => geometry.cluster_blocks(),
            R::IsExplicitCluster => u32::from(geometry.explicit_cluster),
            R::Warpid => warp.index,
            R::Nwarpid => 64,
            R::Smid => (self.id * geometry.cluster_blocks() + block.rank) % geometry.multiprocessors,
            R::Nsmid => geometry.multiprocessors,
            // As an H200 answers: the first without what the system reserves, the second with it.
            R::TotalSmemSize => (geometry.static_shared + geometry.dynamic_shared).next_multiple_of(128),
            R::AggrSmemSize => geometry.static_shared + geometry.dynamic_shared + 1024,
            R::DynamicSmemSize => geometry.dynamic_shared,
            // Where cooperative groups find the workspace of a cooperative launch.
            R::Envreg1 => return [env.workspace >> 32; 32],
            R::Envreg2 => return [env.workspace & u64::from(u32::MAX); 32],
            R::ReservedSmemOffsetEnd | R::ReservedSmemOffsetCap => 1024,
            R::Clock | R::Clock64 | R::Globaltimer => return [self.now; 32],
            R::GlobaltimerLo => return [self.now & u64::from(u32::MAX); 32],
            R::ClockHi | R::GlobaltimerHi => return [self.now >> 32; 32],
            _ => 0,
        };
        [u64::from(uniform); 32]
    }

    fn value(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, kind: &Kind) {
        match kind {
            Kind::Carry { carry, dst, src } => {
                let sources: [Lanes; 4] = std::array::from_fn(|i| {
                    src.get(i).map_or([0; 32], |&src| self.lanes(env, warp, at, src))
                });
                let [a, b, c, d] = &sources;
                let (value, out) = carry.apply([a, b, c, d], warp.carry);
                set(warp, at, *dst, &value);
                warp.carry = (warp.carry & !at.lanes) | (out & at.lanes);
            }
            Kind::Lop3Test { map, dst, p, and, src, q } => {
                let sources: [Lanes; 4] = std::array::from_fn(|i| {
                    src.get(i).map_or([0; 32], |&src| self.lanes(env, warp, at, src))
                });
                let [a, b, c, d] = &sources;
                let value = map.apply([a, b, c, d]);
                let nonzero =
                    (0..32).filter(|&lane| value[lane] != 0).fold(0u32, |mask, lane| mask | 1 << lane);
                let q = predicate(warp, at, *q);
                if let Some(dst) = dst {
                    set(warp, at, *dst, &value);
                }
                set_predicate(warp, at, Some(*p), if *and { nonzero & q } else { nonzero | q });
            }
            Kind::Pack { dst, parts, bits } => {
                let bits = u32::from(*bits);
                let mut words = [[0; 32]; 2];
                for (i, &part) in parts.iter().enumerate() {
                    let value = self.lanes(env, warp, at, part);
                    let shift = super::cluster::index(i) * bits;
                    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
                    let word = &mut words[usize::from(shift >= 64)];
                    for lane in 0..32 {
                        word[lane] |= (value[lane] & mask) << (shift % 64);
                    }
                }
                set(warp, at, *dst, &words[0]);
                if super::cluster::index(parts.len()) * bits > 64 {
                    set(warp, at, *dst + 1, &words[1]);
                }
            }
            Kind::Unpack { dst, src, bits } => {
                let bits = u32::from(*bits);
                let low = self.lanes(env, warp, at, *src);
                let wide = super::cluster::index(dst.len()) * bits > 64;
                let high = match src {
                    Src::Reg(register) if wide => self.lanes(env, warp, at, Src::Reg(register + 1)),
                    _ => [0; 32],
                };
                for (i, &dst) in dst.iter().enumerate() {
                    let shift = super::cluster::index(i) * bits;
                    let word = if shift >= 64 { &high } else { &low };
                    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
                    if let Some(dst) = dst {
                        let value = std::array::from_fn(|lane| word[lane] >> (shift % 64) & mask);
                        set(warp, at, dst, &value);
                    }
                }
            }
            Kind::Cvta { dst, src, space, to_space } => {
                let base = window::base(*space);
                let mut value = self.lanes(env, warp, at, *src);
                for lane in &mut value {
                    *lane = if *to_space { lane.wrapping_sub(base) } else { lane.wrapping_add(base) };
                }
                set(warp, at, *dst, &value);
            }
            Kind::Isspacep { dst, src, space } => {
                let value = self.lanes(env, warp, at, *src);
                let rank = self.blocks[at.block].rank;
                let inside = |address: u64| {
                    let (found, offset) = window::resolve(address);
                    match space {
                        Space::SharedCta => {
                            found == Space::SharedCluster && offset >> window::BLOCK_SHIFT == u64::from(rank)
                        }
                        Space::Const => found == Space::Global && self.is_constant(env, address),
                        Space::Global => found == Space::Global && !self.is_constant(env, address),
                        other => found == *other,
                    }
                };
                let mask =
                    (0..32).filter(|&lane| inside(value[lane])).fold(0u32, |mask, lane| mask | 1 << lane);
                set_predicate(warp, at, Some(*dst), mask);
            }
            Kind::Mapa { dst, address, rank, generic } => {
                let (address, rank) = (self.lanes(env, warp, at, *address), self.lanes(env, warp, at, *rank));
                let base = if *generic { window::SHARED } else { 0 };
                let value = std::array::from_fn(|lane| {
                    let offset = address[lane].wrapping_sub(base) & ((1 << window::BLOCK_SHIFT) - 1);
                    base + (offset | (rank[lane] & 0xFF) << window::BLOCK_SHIFT)
                });
                set(warp, at, *dst, &value);
            }
            Kind::Getctarank { dst, address, generic } => {
                let address = self.lanes(env, warp, at, *address);
                let base = if *generic { window::SHARED } else { 0 };
                let value = address.map(|address| address.wrapping_sub(base) >> window::BLOCK_SHIFT & 0xFF);
                set(warp, at, *dst, &value);
            }
            Kind::MbarrierPending { dst, state } => {
                let value = self.lanes(env, warp, at, *state).map(super::mbarrier::pending_of_state);
                set(warp, at, *dst, &value);
            }
            _ => {}
        }
    }

    fn stack(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, kind: &Kind) {
        let top = warp.paths[at.path].frames.last().map_or(0, |frame| frame.top);
        let mut new = top;
        match kind {
            Kind::Alloca { dst, bytes } => {
                // Lanes that want less share the place of the one that wants most.
                let sizes = self.lanes(env, warp, at, *bytes);
                let bytes = bits(at.lanes).map(|lane| sizes[lane as usize]).max().unwrap_or(0).min(1 << 24);
                set(warp, at, *dst, &[u64::from(top); 32]);
                new = top.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX).next_multiple_of(16));
            }
            Kind::StackSave { dst } => set(warp, at, *dst, &[u64::from(top); 32]),
            Kind::StackRestore { src } => {
                let lane = at.lanes.trailing_zeros();
                new = u32::try_from(self.scalar(env, warp, at, *src, lane)).unwrap_or(top);
            }
            _ => {}
        }
        if let Some(frame) = warp.paths[at.path].frames.last_mut() {
            frame.top = new;
        }
    }
}

/// Chooses the path that runs next: the deepest in calls, then the first in the order of its function; after a while another one.
fn choose(env: &Env<'_>, warp: &mut Warp) -> Option<usize> {
    if let [only] = &warp.paths[..] {
        return (only.wait == Wait::None).then_some(0);
    }
    let key = |path: &super::warp::Path| {
        let function = path.frames.last().map_or(0, |frame| frame.function as usize);
        let order = env.program.functions[function].order.get(path.pc as usize).copied().unwrap_or(u32::MAX);
        (std::cmp::Reverse(path.frames.len()), order)
    };
    let ready = || warp.paths.iter().enumerate().filter(|(_, path)| path.wait == Wait::None);
    let (first, _) = ready().min_by_key(|(_, path)| key(path))?;
    if warp.turn.0 == first {
        warp.turn.1 += 1;
    } else {
        warp.turn = (first, 0);
    }
    if warp.turn.1 < 64 {
        return Some(first);
    }
    // Somebody may wait for what the others would do.
    let other = ready().map(|(i, _)| i).find(|&i| i > first).or_else(|| ready().map(|(i, _)| i).next());
    warp.turn = (first, if warp.turn.1 > 68 { 0 } else { warp.turn.1 });
    other
}

/// The order of the first place where another path of the same depth stands and waits for this one.
fn meeting(env: &Env<'_>, warp: &Warp, path: usize) -> u32 {
    let this = &warp.paths[path];
    let Some(frame) = this.frames.last() else { return u32::MAX };
    let order = &env.program.functions[frame.function as usize].order;
    let here = order.get(this.pc as usize).copied().unwrap_or(u32::MAX);
    warp.paths
        .iter()
        .enumerate()
        .filter(|(i, other)| *i != path && other.frames == this.frames)
        .filter_map(|(_, other)| order.get(other.pc as usize).copied())
        .filter(|&other| other > here)
        .min()
        .unwrap_or(u32::MAX)
}

fn frame_function(warp: &Warp, path: usize) -> u32 {
    warp.paths[path].frames.last().map_or(0, |frame| frame.function)
}

/// Unites all paths that stand at the same place.
pub(crate) fn merge_all(warp: &mut Warp) {
    let mut path = 0;
    while path < warp.paths.len() {
        let before = warp.paths.len();
        if warp.paths[path].wait == Wait::None {
            warp.merge(path);
        }
        if warp.paths.len() == before {
            path += 1;
        } else {
            path = 0;
        }
    }
}

/// The lanes of a mask.
pub(crate) fn bits(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros();
            mask &= mask - 1;
            lane
        })
    })
}

/// Writes a register in the lanes of an op.
#[inline]
pub(crate) fn set(warp: &mut Warp, at: At, register: u32, value: &Lanes) {
    let index = (at.registers + register) as usize;
    let target = &mut warp.registers[index];
    if at.lanes == u32::MAX {
        *target = *value;
    } else {
        for lane in 0..32 {
            if at.lanes >> lane & 1 == 1 {
                target[lane] = value[lane];
            }
        }
    }
}

/// The lanes in which a predicate holds.
#[inline]
pub(crate) fn predicate(warp: &Warp, at: At, src: PredSrc) -> u32 {
    match src {
        PredSrc::Imm(true) => u32::MAX,
        PredSrc::Imm(false) => 0,
        PredSrc::Reg { index, negated } => {
            let value = warp.predicates[(at.predicates + index) as usize];
            if negated { !value } else { value }
        }
    }
}

/// Writes a predicate in the lanes of an op.
#[inline]
pub(crate) fn set_predicate(warp: &mut Warp, at: At, dst: Option<u32>, value: u32) {
    if let Some(dst) = dst {
        let target = &mut warp.predicates[(at.predicates + dst) as usize];
        *target = (*target & !at.lanes) | (value & at.lanes);
    }
}
