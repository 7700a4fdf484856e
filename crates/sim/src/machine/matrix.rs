//! Matrix instructions: `ldmatrix` and its kin, `mma`, `wmma`, `wgmma`, `setmaxnreg`.
//!
//! A `wgmma` is issued by four warps, each when it gets there; it starts when the last of them has issued its part, and happens at a
//! time that the seed decides, in the order of issue. Until then its registers and the shared memory it reads belong to the tensor
//! cores.

use std::collections::VecDeque;
use std::ops::Range;

use crate::check::{Access as Checked, Epoch, FindingKind, Kind as AccessKind, Proxy};
use crate::count::TensorKind;
use crate::number::Lanes;
use crate::program::{Access, Address, Kind, Order, PredSrc, Scope, Space, Src, Strength, WgmmaA};
use crate::tensor::Format;
use crate::tensor::copy::{MatrixCopy, transpose};
use crate::tensor::wgmma::{A, Flags, Registers, Wgmma};
use crate::tensor::wmma::{Transfer, Wmma};
use tilewright_ptx::Type;

use super::access::number;
use super::cluster::{Block, Cluster, Env, Stop, Stream, index};
use super::exec::{At, Flow, predicate, set};
use super::report::Where;
use super::warp::{Wait, Warp};

/// What one warp gives to a `wgmma`.
#[derive(Clone)]
struct Part {
    op: u32,
    wgmma: Wgmma,
    accumulators: Vec<u32>,
    a: PartA,
    b: u64,
    flags: Flags,
}

#[derive(Clone)]
enum PartA {
    Descriptor(u64),
    Registers(Box<[Lanes; 4]>),
}

/// The queue of a warpgroup.
#[derive(Default)]
pub(crate) struct Warpgroup {
    /// Products that not all warps have issued, from number `first` on.
    waiting: VecDeque<[Option<Part>; 4]>,
    first: u32,
    /// Products that are done.
    pub(crate) finished: u32,
    /// When the last one started is due.
    due: u64,
}

/// A product under way.
pub(crate) struct WgmmaWork {
    block: usize,
    warpgroup: usize,
    parts: [Part; 4],
}

impl Cluster {
    /// All matrix instructions.
    pub(crate) fn matrix(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        kind: &Kind,
    ) -> Result<Flow, Stop> {
        if let Some(wait) = self.gathered(env, warp, at, true) {
            return Ok(wait);
        }
        if at.lanes != u32::MAX && !matches!(kind, Kind::Setmaxnreg { .. }) {
            let lane = at.lanes.trailing_zeros().min(31);
            let message = format!(
                "a matrix instruction needs all 32 lanes of the warp, but {:#010x} execute it",
                at.lanes
            );
            self.report(
                env,
                FindingKind::DivergentAligned,
                Where::thread(at, warp, lane),
                None,
                message,
                None,
            );
        }
        match kind {
            Kind::Ldmatrix { dst, address, space, transposed } => {
                let copy = MatrixCopy::load_of(dst.len(), *transposed);
                let rows = first_lanes(8 * dst.len());
                let addresses = self.addresses(env, warp, at, *address, *space);
                let mut halves = [[0; 32]; 2];
                let rows_at = At { lanes: at.lanes & rows, ..at };
                self.gather(env, warp, rows_at, &row_access(*space), &addresses, &mut halves);
                let rows: [[u8; 16]; 32] = std::array::from_fn(|lane| {
                    (u128::from(halves[1][lane]) << 64 | u128::from(halves[0][lane])).to_le_bytes()
                });
                for (&dst, value) in dst.iter().zip(&copy.load(&rows)) {
                    set(warp, at, dst, value);
                }
            }
            Kind::Stmatrix { address, space, src, transposed } => {
                let copy = MatrixCopy::store_of(src.len(), *transposed);
                let registers: Vec<Lanes> = src.iter().map(|&src| self.lanes(env, warp, at, src)).collect();
                let rows = copy.store(&registers);
                let halves = [0, 8].map(|from| rows.map(|row| number(&row[from..from + 8])));
                let addresses = self.addresses(env, warp, at, *address, *space);
                let rows_at = At { lanes: at.lanes & first_lanes(8 * src.len()), ..at };
                self.scatter(env, warp, rows_at, &row_access(*space), &addresses, &halves);
            }
            Kind::Movmatrix { dst, src } => {
                let value = transpose(&self.lanes(env, warp, at, *src));
                set(warp, at, *dst, &value);
            }
            Kind::Mma { mma, d, a, b, c, sparse } => {
                let all = |sources: &[Src]| -> Vec<Lanes> {
                    sources.iter().map(|&src| self.lanes(env, warp, at, src)).collect()
                };
                let (a, b, c) = (all(a), all(b), all(c));
                let metadata = sparse.map(|(src, selector)| (self.lanes(env, warp, at, src), selector));
                let result =
                    mma.apply(&a, &b, &c, metadata.as_ref().map(|(lanes, selector)| (lanes, *selector)));
                if env.options.count {
                    self.sites.tensor(at.op, mma.operations(), kind_of(mma.factors().0));
                }
                for (&dst, value) in d.iter().zip(&result) {
                    set(warp, at, dst, value);
                }
            }
            Kind::WmmaMma { wmma: Wmma::Multiply(wmma), d, a, b, c } => {
                let all = |sources: &[Src]| -> Vec<Lanes> {
                    sources.iter().map(|&src| self.lanes(env, warp, at, src)).collect()
                };
                let result = wmma.apply(&all(a), &all(b), &all(c));
                if env.options.count {
                    self.sites.tensor(at.op, wmma.operations(), kind_of(wmma.factors().0));
                }
                for (&dst, value) in d.iter().zip(&result) {
                    set(warp, at, dst, value);
                }
            }
            Kind::WmmaLoad { wmma: Wmma::Load(wmma), dst, address, space, stride } => {
                self.wmma_load(env, warp, at, wmma, dst, *address, *space, *stride);
            }
            Kind::WmmaStore { wmma: Wmma::Store(wmma), address, space, src, stride } => {
                self.wmma_store(env, warp, at, wmma, src, *address, *space, *stride);
            }
            Kind::WgmmaFence => warp.wgmma_fenced = true,
            Kind::WgmmaCommit => warp.wgmma_ends.push(warp.wgmma_issued),
            Kind::WgmmaWait { pending } => return Ok(self.wgmma_wait(env, warp, at, *pending)),
            Kind::Wgmma { .. } => self.wgmma(env, warp, at, kind),
            Kind::Setmaxnreg { increase, registers } => {
                return Ok(self.setmaxnreg(env, warp, at, *increase, *registers));
            }
            _ => {}
        }
        Ok(Flow::Next)
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of the instruction")]
    fn wmma_load(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        wmma: &Transfer,
        dst: &[u32],
        address: Address,
        space: Space,
        stride: Option<Src>,
    ) {
        let base = self.addresses(env, warp, at, address, space);
        let stride = self.wmma_stride(env, warp, at, wmma, stride);
        let (units, bytes) = (wmma.units_per_register(), wmma.unit_bytes());
        for (register, &dst) in dst.iter().enumerate() {
            let mut value = [0u64; 32];
            for unit in 0..units {
                let addresses: Lanes = std::array::from_fn(|lane| {
                    base[lane].wrapping_add(wmma.offset(lane, register * units + unit, stride))
                });
                let mut part = [[0; 32]];
                self.gather(env, warp, at, &unit_access(space, bytes), &addresses, &mut part);
                for lane in 0..32 {
                    value[lane] |= part[0][lane] << (unit * bytes * 8);
                }
            }
            set(warp, at, dst, &value);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of the instruction")]
    fn wmma_store(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        wmma: &Transfer,
        src: &[Src],
        address: Address,
        space: Space,
        stride: Option<Src>,
    ) {
        let base = self.addresses(env, warp, at, address, space);
        let stride = self.wmma_stride(env, warp, at, wmma, stride);
        let (units, bytes) = (wmma.units_per_register(), wmma.unit_bytes());
        for (register, &src) in src.iter().enumerate() {
            let value = self.lanes(env, warp, at, src);
            for unit in 0..units {
                let addresses: Lanes = std::array::from_fn(|lane| {
                    base[lane].wrapping_add(wmma.offset(lane, register * units + unit, stride))
                });
                let part = [value.map(|value| value >> (unit * bytes * 8))];
                self.scatter(env, warp, at, &unit_access(space, bytes), &addresses, &part);
            }
        }
    }

    fn wmma_stride(&self, env: &Env<'_>, warp: &Warp, at: At, wmma: &Transfer, stride: Option<Src>) -> u32 {
        let lane = at.lanes.trailing_zeros().min(31);
        stride.map_or(wmma.default_stride(), |src| super::access::low(self.scalar(env, warp, at, src, lane)))
    }

    fn wgmma(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, kind: &Kind) {
        let Kind::Wgmma { wgmma, d, a, b, scale_d, negate_a, negate_b, transpose_a, transpose_b } = kind
        else {
            return;
        };
        let lane = at.lanes.trailing_zeros().min(31);
        let group = index(warp.wgmma_ends.len()) + 1;
        let flags = Flags {
            accumulate: *scale_d == PredSrc::Imm(true) || predicate(warp, at, *scale_d) >> lane & 1 == 1,
            negate_a: *negate_a,
            negate_b: *negate_b,
            transpose_a: *transpose_a,
            transpose_b: *transpose_b,
        };
        let accumulators: Vec<u32> = d.iter().map(|register| at.registers + register).collect();
        let a_registers: Vec<u32> = match a {
            WgmmaA::Descriptor(_) => Vec::new(),
            WgmmaA::Registers(sources) => sources
                .iter()
                .filter_map(
                    |src| if let Src::Reg(register) = src { Some(at.registers + register) } else { None },
                )
                .collect(),
        };
        self.check_wgmma_fence(env, warp, at);
        if warp.in_flight.len() < warp.registers.len() {
            warp.in_flight.resize(warp.registers.len(), (0, 0));
        }
        for &register in &accumulators {
            warp.in_flight[register as usize].0 = group;
        }
        for &register in &a_registers {
            warp.in_flight[register as usize].1 = group;
        }
        let b = self.scalar(env, warp, at, *b, lane);
        let a = match a {
            WgmmaA::Descriptor(src) => PartA::Descriptor(self.scalar(env, warp, at, *src, lane)),
            WgmmaA::Registers(sources) => {
                PartA::Registers(Box::new(std::array::from_fn(|i| self.lanes(env, warp, at, sources[i]))))
            }
        };
        if env.options.count && warp.index.is_multiple_of(4) {
            self.sites.tensor(at.op, wgmma.operations(), kind_of(wgmma.factors().0));
            let bytes = 32 * (wgmma.n() + if matches!(a, PartA::Descriptor(_)) { 64 } else { 0 });
            self.sites.copied(at.op, bytes as u64, 0, 0);
        }
        if !self.wgmma_reads(env, warp, at, lane, group, wgmma, &a, b, flags) {
            return;
        }
        let part = Part { op: at.op, wgmma: *wgmma, accumulators, a, b, flags };
        self.issue_part(env, warp, at, lane, part);
    }

    /// Checks what a product reads from shared memory; whether its descriptors can be used.
    #[allow(clippy::too_many_arguments, reason = "one instruction of a warp")]
    fn wgmma_reads(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        group: u32,
        wgmma: &Wgmma,
        a: &PartA,
        b: u64,
        flags: Flags,
    ) -> bool {
        let mut ranges = match wgmma.reads_b(b, flags.transpose_b) {
            Ok(ranges) => ranges,
            Err(error) => {
                self.invalid(env, warp, at, 1 << lane, &error.to_string());
                return false;
            }
        };
        if let PartA::Descriptor(descriptor) = a {
            match wgmma.reads_a(*descriptor, flags.transpose_a) {
                Ok(more) => ranges.extend(more),
                Err(error) => {
                    self.invalid(env, warp, at, 1 << lane, &error.to_string());
                    return false;
                }
            }
        }
        let rank = self.blocks[at.block].rank;
        for range in &ranges {
            let address = range.start | rank << crate::memory::window::BLOCK_SHIFT;
            let bytes = (range.end - range.start) as usize;
            if self
                .shared_place(env, warp, at, Space::SharedCta, lane, address, bytes, "wgmma reads")
                .is_none()
            {
                return false;
            }
        }
        if env.options.check {
            self.check_wgmma_reads(env, warp, at, group, &ranges);
        }
        true
    }

    /// Holds what a product reads against what the lanes of this warp know. The four warps are one reader, whose first thread stands for
    /// all.
    fn check_wgmma_reads(&mut self, env: &Env<'_>, warp: &Warp, at: At, group: u32, ranges: &[Range<u32>]) {
        let first = warp.index / 4 * 4;
        let epoch = Epoch { agent: self.stream_agent(at.block, first, 0, Stream::Wgmma, env), clock: group };
        let issuer = self.agent(at.block, first, 0, env);
        let mut conflicts = Vec::new();
        let Some(shadow) = &mut self.blocks[at.block].shadow else { return };
        for (lanes, know) in warp.clock.views() {
            if lanes & at.lanes == 0 {
                continue;
            }
            let access = Checked {
                epoch,
                issuer,
                know,
                pc: at.op,
                kind: AccessKind::Read,
                strong: None,
                proxy: Proxy::Async,
            };
            let lane = (lanes & at.lanes).trailing_zeros();
            shadow.access_ranges(ranges, &access, |conflict| conflicts.push((lane, conflict)));
        }
        let blank = ranges
            .iter()
            .find_map(|range| shadow.first_uninitialised(range.start as usize..range.end as usize));
        if let Some(place) = blank {
            self.uninitialised(
                env,
                warp,
                at,
                at.lanes.trailing_zeros().min(31),
                "shared",
                place as u64,
                None,
            );
        }
        for (lane, conflict) in conflicts {
            self.conflict_shared(env, &conflict, at.block, Where::thread(at, warp, lane));
        }
    }

    /// The first `wgmma` needs a `wgmma.fence` before it. Later ones do, too, where registers were written in between; but compilers move
    /// such writes across the fence, and the assembler sees to it that they are done, so that is not reported.
    fn check_wgmma_fence(&mut self, env: &Env<'_>, warp: &Warp, at: At) {
        if env.options.check && !warp.wgmma_fenced {
            let lane = at.lanes.trailing_zeros().min(31);
            let message = "is the first wgmma of this warp, and no wgmma.fence comes before it".to_owned();
            let fix = "execute wgmma.fence.sync.aligned between the last write of the accumulator registers and the wgmma";
            self.report(
                env,
                FindingKind::AccumulatorInFlight,
                Where::thread(at, warp, lane),
                None,
                message,
                Some(fix),
            );
        }
    }

    fn issue_part(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, lane: u32, part: Part) {
        let group = (warp.index / 4) as usize;
        let seat = (warp.index % 4) as usize;
        if group * 4 + 4 > self.blocks[at.block].warps.len() {
            self.invalid(
                env,
                warp,
                at,
                1 << lane,
                "wgmma needs four warps, and the last warpgroup of the block has fewer",
            );
            return;
        }
        let number = warp.wgmma_issued;
        warp.wgmma_issued += 1;
        let queue = &mut self.blocks[at.block].warpgroups[group];
        let place = (number - queue.first) as usize;
        while queue.waiting.len() <= place {
            queue.waiting.push_back([None, None, None, None]);
        }
        let parts = &mut queue.waiting[place];
        let differs = parts.iter().flatten().any(|other| {
            other.op != part.op
                || other.b != part.b
                || other.flags != part.flags
                || matches!((&other.a, &part.a), (PartA::Descriptor(x), PartA::Descriptor(y)) if x != y)
        });
        parts[seat] = Some(part);
        if differs {
            self.invalid(env, warp, at, 1 << lane, "the warps of a warpgroup issue different wgmma: instruction, descriptors and flags must be the same in all four");
        }
        self.start_complete(at.block, group);
    }

    /// Starts the products whose parts are complete.
    fn start_complete(&mut self, block: usize, group: usize) {
        loop {
            let queue = &mut self.blocks[block].warpgroups[group];
            if !queue.waiting.front().is_some_and(|parts| parts.iter().all(Option::is_some)) {
                return;
            }
            let Some([Some(p0), Some(p1), Some(p2), Some(p3)]) = queue.waiting.pop_front() else { return };
            queue.first += 1;
            let earliest = queue.due;
            let due =
                self.start_wgmma(earliest, WgmmaWork { block, warpgroup: group, parts: [p0, p1, p2, p3] });
            self.blocks[block].warpgroups[group].due = due;
        }
    }

    /// The tensor cores do a product.
    pub(crate) fn finish_wgmma(&mut self, env: &Env<'_>, work: &WgmmaWork) {
        let Block { shared, warps, warpgroups, .. } = &mut self.blocks[work.block];
        warpgroups[work.warpgroup].finished += 1;
        let first = work.warpgroup * 4;
        let mut error = None;
        if let [w0, w1, w2, w3] = &mut warps[first..first + 4] {
            let [p0, p1, p2, p3] = &work.parts;
            let registers = (
                Registers::new(&mut w0.registers, &p0.accumulators),
                Registers::new(&mut w1.registers, &p1.accumulators),
                Registers::new(&mut w2.registers, &p2.accumulators),
                Registers::new(&mut w3.registers, &p3.accumulators),
            );
            let a = match (&p0.a, &p1.a, &p2.a, &p3.a) {
                (PartA::Registers(a0), PartA::Registers(a1), PartA::Registers(a2), PartA::Registers(a3)) => {
                    A::Registers([a0, a1, a2, a3].map(|a| std::array::from_fn(|i| &a[i])))
                }
                (PartA::Descriptor(descriptor), ..) => A::Descriptor(*descriptor),
                _ => return,
            };
            if let (Some(r0), Some(r1), Some(r2), Some(r3)) = registers {
                let mut d = [r0, r1, r2, r3];
                error = p0.wgmma.apply(&a, p0.b, shared, p0.flags, &mut d).err();
            }
        }
        if let Some(error) = error {
            let from = Where::op(work.parts[0].op, work.block, (index(first), 0));
            self.report(env, FindingKind::InvalidInstruction, from, None, error.to_string(), None);
        }
        let (block, group) = (work.block, index(work.warpgroup));
        self.wake_where(false, |at, warp, path| {
            at.rank as usize == block && warp.index / 4 == group && matches!(path.wait, Wait::Wgmma { .. })
        });
    }

    fn wgmma_wait(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, pending: u32) -> Flow {
        let group = index(warp.wgmma_ends.len()).saturating_sub(pending);
        let needed = group.checked_sub(1).map_or(0, |last| warp.wgmma_ends[last as usize]);
        if self.blocks[at.block].warpgroups[(warp.index / 4) as usize].finished < needed {
            return Flow::Wait(Wait::Wgmma { pending });
        }
        warp.wgmma_known = warp.wgmma_known.max(group);
        if env.options.check {
            let slot = self.slot(self.blocks[at.block].rank, warp.index / 4 * 4, Stream::Wgmma, env);
            warp.clock.learn(at.lanes, slot, u32::MAX, group, true);
        }
        Flow::Next
    }

    /// Reports an op that touches registers of a product that is not known to be complete.
    pub(crate) fn touch_in_flight(&mut self, env: &Env<'_>, warp: &Warp, at: At, function: u32, pc: u32) {
        if !env.options.check
            || index(warp.wgmma_ends.len()) + u32::from(warp.wgmma_ends.last() != Some(&warp.wgmma_issued))
                <= warp.wgmma_known
        {
            return;
        }
        let Some(uses) = env.uses.get(function as usize).and_then(|uses| uses.get(pc as usize)) else {
            return;
        };
        for &(register, write) in uses {
            let (accumulates, reads) =
                warp.in_flight.get((at.registers + register) as usize).copied().unwrap_or((0, 0));
            if accumulates > warp.wgmma_known || (write && reads > warp.wgmma_known) {
                let message = if accumulates > warp.wgmma_known {
                    "touches an accumulator of a wgmma that is not known to be complete"
                } else {
                    "overwrites a register from which a wgmma may still read A"
                };
                let lane = at.lanes.trailing_zeros().min(31);
                self.report(
                    env,
                    FindingKind::AccumulatorInFlight,
                    Where::thread(at, warp, lane),
                    None,
                    message.to_owned(),
                    None,
                );
                return;
            }
        }
    }

    fn setmaxnreg(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, increase: bool, registers: u32) -> Flow {
        let lane = at.lanes.trailing_zeros().min(31);
        if !(24..=256).contains(&registers) || !registers.is_multiple_of(8) {
            self.invalid(
                env,
                warp,
                at,
                1 << lane,
                &format!("setmaxnreg {registers}: a multiple of 8 from 24 to 256 is needed"),
            );
            return Flow::Next;
        }
        let start = env.geometry.entry_registers();
        let current = |warp: &Warp| if warp.max_registers == 0 { start } else { warp.max_registers };
        if increase {
            // The pool is what one block may have; warps that are gone have given theirs back.
            let others: u32 = self.blocks[at.block]
                .warps
                .iter()
                .filter(|other| other.index != warp.index && !other.paths.is_empty())
                .map(|other| current(other) * 32)
                .sum();
            if others + registers * 32 > env.geometry.register_file {
                return Flow::Wait(Wait::Registers);
            }
        }
        warp.max_registers = registers;
        self.progress += 1;
        self.wake_where(false, |_, _, path| path.wait == Wait::Registers);
        Flow::Next
    }
}

/// The first lanes, as many as there are rows.
fn first_lanes(count: usize) -> u32 {
    if count >= 32 { u32::MAX } else { (1 << count) - 1 }
}

fn weak() -> Strength {
    Strength { order: Order::Weak, scope: Scope::Cta }
}

/// The access to a row of a matrix of `ldmatrix`.
fn row_access(space: Space) -> Access {
    Access {
        space,
        address: Address { base: Src::Imm(0), offset: 0 },
        ty: Type::B64,
        count: 2,
        strength: weak(),
    }
}

/// The access to a unit of a fragment of `wmma`.
fn unit_access(space: Space, bytes: usize) -> Access {
    let ty = match bytes {
        1 => Type::B8,
        2 => Type::B16,
        4 => Type::B32,
        _ => Type::B64,
    };
    Access { space, address: Address { base: Src::Imm(0), offset: 0 }, ty, count: 1, strength: weak() }
}

/// How fast the tensor cores are with a type.
fn kind_of(format: Format) -> TensorKind {
    match format {
        Format::F16 | Format::Bf16 => TensorKind::F16,
        Format::Tf32 => TensorKind::Tf32,
        Format::F64 => TensorKind::F64,
        Format::E4m3 | Format::E5m2 => TensorKind::Fp8,
        Format::S8 | Format::U8 | Format::S4 | Format::U4 => TensorKind::Int8,
        Format::B1 => TensorKind::B1,
    }
}
