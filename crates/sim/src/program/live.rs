//! Which registers an op reads and writes, and how many are alive at once.

use super::flow::{Graph, is_guarded};
use super::op::{
    Address, BarMode, Bulk, Callee, Fence, Kind, Mbarrier, Op, Passed, Reg, Src, TensorMode, Vote, WgmmaA,
};

/// What an op does with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It reads it.
    Read,
    /// It writes it.
    Write,
}

impl Kind {
    /// Calls `f` with every register that the op reads or writes; one that it does both with comes twice. Values that a note shows do
    /// not count.
    pub fn for_each_register(&self, mut f: impl FnMut(Reg, Role)) {
        Visit { f: &mut f }.kind(self);
    }
}

struct Visit<'f> {
    f: &'f mut dyn FnMut(Reg, Role),
}

impl Visit<'_> {
    fn read(&mut self, src: &Src) {
        if let Src::Reg(reg) = src {
            (self.f)(*reg, Role::Read);
        }
    }

    fn reads<'a>(&mut self, all: impl IntoIterator<Item = &'a Src>) {
        all.into_iter().for_each(|src| self.read(src));
    }

    fn write(&mut self, reg: Reg) {
        (self.f)(reg, Role::Write);
    }

    fn writes<'a>(&mut self, all: impl IntoIterator<Item = &'a Reg>) {
        all.into_iter().for_each(|reg| self.write(*reg));
    }

    fn at(&mut self, address: &Address) {
        self.read(&address.base);
    }

    /// A source of 128 bits is two registers.
    fn read_wide(&mut self, src: &Src) {
        self.read(src);
        if let Src::Reg(low) = src {
            (self.f)(low + 1, Role::Read);
        }
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            Kind::Map { dst, src, .. } | Kind::Carry { dst, src, .. } => {
                self.reads(src);
                self.write(*dst);
            }
            Kind::Lop3Test { dst, src, .. } => {
                self.reads(src);
                self.writes(dst);
            }
            Kind::Set { dst, a, b, .. } | Kind::Select { dst, a, b, .. } => {
                self.reads([a, b]);
                self.write(*dst);
            }
            Kind::Test { a, b, .. } => self.reads([a, b]),
            Kind::Mov { dst, src }
            | Kind::Cvta { dst, src, .. }
            | Kind::Movmatrix { dst, src }
            | Kind::MbarrierPending { dst, state: src }
            | Kind::Getctarank { dst, address: src, .. }
            | Kind::Alloca { dst, bytes: src } => {
                self.read(src);
                self.write(*dst);
            }
            Kind::Mapa { dst, address, rank, .. } => {
                self.reads([address, rank]);
                self.write(*dst);
            }
            Kind::Pack { dst, parts, bits } => {
                self.reads(parts);
                self.write(*dst);
                if u32::from(*bits) * u32::try_from(parts.len()).unwrap_or(0) > 64 {
                    self.write(dst + 1);
                }
            }
            Kind::Unpack { dst, src, bits } => {
                if u32::from(*bits) * u32::try_from(dst.len()).unwrap_or(0) > 64 {
                    self.read_wide(src);
                } else {
                    self.read(src);
                }
                self.writes(dst.iter().flatten());
            }
            Kind::Load { access, dst, .. } => {
                self.at(&access.address);
                self.writes(dst.iter().flatten());
            }
            Kind::Store { access, src } => {
                self.at(&access.address);
                self.reads(src);
            }
            Kind::Atomic { access, dst, value, compare, .. } => {
                self.at(&access.address);
                self.reads(value);
                match compare {
                    Some(compare) if access.ty.bits() > 64 => self.read_wide(compare),
                    compare => self.reads(compare),
                }
                self.writes(dst.iter().flatten());
            }
            Kind::Shfl { dst, a, b, c, mask, .. } => {
                self.reads([a, b, c, mask]);
                self.write(*dst);
            }
            Kind::Vote { vote, mask, .. } => {
                self.read(mask);
                if let Vote::Ballot(dst) = vote {
                    self.write(*dst);
                }
            }
            Kind::Match { dst, a, mask, .. } | Kind::Redux { dst, a, mask, .. } => {
                self.reads([a, mask]);
                self.write(*dst);
            }
            Kind::Activemask { dst } | Kind::StackSave { dst } => self.write(*dst),
            Kind::Elect { dst, mask, .. } => {
                self.read(mask);
                self.writes(dst);
            }
            Kind::Isspacep { src, .. }
            | Kind::StackRestore { src }
            | Kind::WarpSync { mask: src }
            | Kind::Brx { index: src, .. } => self.read(src),
            Kind::Bar { id, threads, mode, .. } => {
                self.read(id);
                self.reads(threads);
                if let BarMode::Popc(dst, _) = mode {
                    self.write(*dst);
                }
            }
            Kind::Fence(Fence::ProxyTensormap(_, Some(address))) | Kind::CpAsyncMbarrier { address, .. } => {
                self.at(address);
            }
            Kind::Mbarrier { op, address, .. } => {
                self.at(address);
                self.mbarrier(op);
            }
            Kind::CpAsync { dst, src, read, .. } => {
                self.at(dst);
                self.at(src);
                self.reads(read);
            }
            Kind::Bulk(bulk) => self.bulk(bulk),
            Kind::TensormapReplace { address, value, .. } => {
                self.at(address);
                self.read(value);
            }
            Kind::TensormapPublish { dst, src, .. } => {
                self.at(dst);
                self.at(src);
            }
            Kind::Ldmatrix { dst, address, .. } => {
                self.at(address);
                self.writes(dst);
            }
            Kind::Stmatrix { address, src, .. } => {
                self.at(address);
                self.reads(src);
            }
            Kind::Mma { d, a, b, c, sparse, .. } => {
                self.reads(a.iter().chain(b).chain(c));
                self.reads(sparse.iter().map(|(metadata, _)| metadata));
                self.writes(d);
            }
            Kind::WmmaMma { d, a, b, c, .. } => {
                self.reads(a.iter().chain(b).chain(c));
                self.writes(d);
            }
            Kind::WmmaLoad { dst, address, stride, .. } => {
                self.at(address);
                self.reads(stride);
                self.writes(dst);
            }
            Kind::WmmaStore { address, src, stride, .. } => {
                self.at(address);
                self.reads(src.iter().chain(stride));
            }
            Kind::Wgmma { d, a, b, .. } => {
                match a {
                    WgmmaA::Descriptor(descriptor) => self.read(descriptor),
                    WgmmaA::Registers(registers) => self.reads(registers),
                }
                self.read(b);
                // The accumulators are also sources, unless `scale_d` is false.
                d.iter().for_each(|reg| self.read(&Src::Reg(*reg)));
                self.writes(d);
            }
            Kind::Call { callee, arguments, results } => {
                if let Callee::Indirect { address, .. } = callee {
                    self.read(address);
                }
                for argument in arguments {
                    if let Passed::Register { from, .. } = argument {
                        self.read(from);
                    }
                }
                for result in results {
                    if let Passed::Register { to, .. } = result {
                        self.write(*to);
                    }
                }
            }
            Kind::MovPred { .. }
            | Kind::PredLogic { .. }
            | Kind::Nop
            | Kind::ClusterArrive { .. }
            | Kind::ClusterWait { .. }
            | Kind::Fence(_)
            | Kind::CpAsyncCommit
            | Kind::CpAsyncWait { .. }
            | Kind::WgmmaFence
            | Kind::WgmmaCommit
            | Kind::WgmmaWait { .. }
            | Kind::Setmaxnreg { .. }
            | Kind::Bra { .. }
            | Kind::Ret
            | Kind::Exit
            | Kind::Trap
            | Kind::Brkpt
            | Kind::Nanosleep
            | Kind::GridDependency { .. }
            | Kind::Note(_)
            | Kind::Unsupported(_) => {}
        }
    }

    fn mbarrier(&mut self, op: &Mbarrier) {
        match op {
            Mbarrier::Init(src) | Mbarrier::ExpectTx(src) | Mbarrier::CompleteTx(src) => self.read(src),
            Mbarrier::Inval => {}
            Mbarrier::Arrive { state, count, expect_tx, .. } => {
                self.reads(count.iter().chain(expect_tx));
                self.writes(state);
            }
            Mbarrier::Wait { phase, .. } => self.read(phase),
        }
    }

    fn bulk(&mut self, bulk: &Bulk) {
        match bulk {
            Bulk::Load { dst, src, bytes, mbarrier, multicast, .. } => {
                [dst, src, mbarrier].into_iter().for_each(|address| self.at(address));
                self.read(bytes);
                self.reads(multicast);
            }
            Bulk::Push { dst, src, bytes, mbarrier, .. } => {
                [dst, src, mbarrier].into_iter().for_each(|address| self.at(address));
                self.read(bytes);
            }
            Bulk::Element { dst, src, mbarrier, .. } => {
                [dst, mbarrier].into_iter().for_each(|address| self.at(address));
                self.reads(src);
            }
            Bulk::Store { dst, src, bytes, mask, .. } => {
                [dst, src].into_iter().for_each(|address| self.at(address));
                self.read(bytes);
                self.reads(mask);
            }
            Bulk::TensorLoad { dst, map, coordinates, mbarrier, multicast, mode, .. } => {
                [dst, map, mbarrier].into_iter().for_each(|address| self.at(address));
                self.reads(coordinates.iter().chain(multicast));
                self.mode(mode);
            }
            Bulk::TensorStore { map, coordinates, src, mode, .. } => {
                [map, src].into_iter().for_each(|address| self.at(address));
                self.reads(coordinates);
                self.mode(mode);
            }
            Bulk::Commit | Bulk::Wait { .. } => {}
        }
    }

    fn mode(&mut self, mode: &TensorMode) {
        if let TensorMode::Im2col(offsets) = mode {
            self.reads(offsets);
        }
    }
}

/// A set of registers.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn has(&self, reg: Reg) -> bool {
        self.0.get(reg as usize / 64).is_some_and(|word| word >> (reg % 64) & 1 == 1)
    }

    fn put(&mut self, reg: Reg, present: bool) {
        if let Some(word) = self.0.get_mut(reg as usize / 64) {
            *word = *word & !(1 << (reg % 64)) | u64::from(present) << (reg % 64);
        }
    }
}

/// The most 32-bit registers that are alive between two ops; registers of 64 bits count twice, predicates not.
pub(super) fn live_registers(code: &[Op], bits: &[u8]) -> u32 {
    let graph = Graph::new(code);
    let blocks = graph.successors.len();
    let empty = Set(vec![0; bits.len().div_ceil(64)]);
    let mut before = vec![empty.clone(); blocks];
    let mut predecessors = vec![Vec::new(); blocks];
    for (from, targets) in graph.successors.iter().enumerate() {
        targets.iter().for_each(|to| predecessors[*to].push(from));
    }
    let behind = |before: &[Set], block: usize| {
        let mut live = empty.clone();
        for to in &graph.successors[block] {
            live.0.iter_mut().zip(&before[*to].0).for_each(|(word, other)| *word |= other);
        }
        live
    };
    let mut waiting = vec![true; blocks];
    let mut work: Vec<usize> = (0..blocks).collect();
    while let Some(block) = work.pop() {
        waiting[block] = false;
        let mut live = behind(&before, block);
        graph.range(block).rev().for_each(|pc| step(&code[pc], &mut live, |_, _| {}));
        if live != before[block] {
            before[block] = live;
            for from in &predecessors[block] {
                if !std::mem::replace(&mut waiting[*from], true) {
                    work.push(*from);
                }
            }
        }
    }
    let weight = |reg: Reg| if bits.get(reg as usize).is_some_and(|bits| *bits > 32) { 2 } else { 1 };
    let mut most = 0;
    for block in 0..blocks {
        let mut live = behind(&before, block);
        let words = u32::try_from(bits.len()).unwrap_or(0);
        let mut count: u32 = (0..words).filter(|reg| live.has(*reg)).map(weight).sum();
        most = most.max(count);
        for pc in graph.range(block).rev() {
            step(&code[pc], &mut live, |reg, now| {
                count = if now { count + weight(reg) } else { count - weight(reg) };
                most = most.max(count);
            });
        }
    }
    most
}

/// From what is alive behind an op to what is alive before it; `changed` learns every change. A guarded write keeps the old value alive.
fn step(op: &Op, live: &mut Set, mut changed: impl FnMut(Reg, bool)) {
    let mut set = |live: &mut Set, reg: Reg, now: bool| {
        if live.has(reg) != now {
            live.put(reg, now);
            if live.has(reg) == now {
                changed(reg, now);
            }
        }
    };
    let kills = !is_guarded(op);
    op.kind.for_each_register(|reg, role| match role {
        Role::Write if kills => set(live, reg, false),
        _ => {}
    });
    op.kind.for_each_register(|reg, role| {
        if role == Role::Read {
            set(live, reg, true);
        }
    });
}
