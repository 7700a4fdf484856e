//! Which memory an op touches, as a set of address spaces: the alias analysis of this crate.
//!
//! Two accesses may meet if their sets do. Generic pointers lead anywhere but to constant memory; shared memory is part of the
//! cluster's. An access with a memory order, a fence, a barrier and whatever else `orders` touches everything.

use tilewright_ir::{AccessKind, Cache, Func, Op, OpData, Opcode, Order, Region, Space, Type};

/// A set of memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Memory(pub(crate) u8);

impl Memory {
    pub(crate) const NONE: Memory = Memory(0);
    /// Everything that can be written.
    pub(crate) const ALL: Memory = Memory(0b1_1111);
    const GLOBAL: Memory = Memory(1);
    const SHARED: Memory = Memory(2);
    const CLUSTER: Memory = Memory(4);
    const LOCAL: Memory = Memory(8);
    const ACCUMULATOR: Memory = Memory(16);

    pub(crate) fn with(self, other: Memory) -> Memory {
        Memory(self.0 | other.0)
    }

    pub(crate) fn meets(self, other: Memory) -> bool {
        self.0 & other.0 != 0
    }

    /// What an operand of this type leads to.
    pub(crate) fn of(ty: Type) -> Memory {
        match ty {
            Type::Pointer(Space::Global) | Type::TensorMap => Memory::GLOBAL,
            // Another block's shared memory can be this block's own.
            Type::Pointer(Space::Shared | Space::Cluster) => Memory(Memory::SHARED.0 | Memory::CLUSTER.0),
            Type::Pointer(Space::Local) => Memory::LOCAL,
            Type::Pointer(Space::Constant) => Memory::NONE,
            Type::Pointer(Space::Generic) => {
                Memory(Memory::GLOBAL.0 | Memory::SHARED.0 | Memory::CLUSTER.0 | Memory::LOCAL.0)
            }
            Type::Accumulator(..) => Memory::ACCUMULATOR,
            // Descriptors are addresses of shared memory in disguise.
            Type::Scalar(_) | Type::Vector(..) => Memory(Memory::SHARED.0 | Memory::CLUSTER.0),
            Type::Tile(..) => Memory::NONE,
        }
    }
}

/// What an op, or all ops of a region, may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effect {
    /// Memory that may be read.
    pub(crate) reads: Memory,
    /// Memory that may change, or across which accesses must not move.
    pub(crate) writes: Memory,
    /// The program may stop here.
    pub(crate) stops: bool,
}

impl Effect {
    pub(crate) fn join(self, other: Effect) -> Effect {
        Effect {
            reads: self.reads.with(other.reads),
            writes: self.writes.with(other.writes),
            stops: self.stops || other.stops,
        }
    }
}

/// The effect of an op without its regions.
pub(crate) fn effect(func: &Func, data: &OpData) -> Effect {
    let row = data.info();
    if row.is_pure() {
        return Effect::default();
    }
    let mut out = Effect::default();
    if row.effects.orders || data.code == Opcode::Call || is_ordered(data) {
        out.reads = Memory::ALL;
        out.writes = Memory::ALL;
    }
    out.stops = matches!(data.code, Opcode::Trap | Opcode::Assert | Opcode::Call);
    for access in row.effects.accesses {
        let Some(&operand) = data.operands.get(usize::from(access.operand)) else { continue };
        let memory = Memory::of(func.ty(operand));
        if access.kind != AccessKind::Write {
            out.reads = out.reads.with(memory);
        }
        if access.kind != AccessKind::Read {
            out.writes = out.writes.with(memory);
        }
    }
    out
}

/// Effects of every op, regions included, in a table by op.
pub(crate) fn effects(func: &Func) -> Vec<Effect> {
    let mut table = vec![Effect::default(); func.op_count()];
    region_effect(func, func.body(), &mut table);
    table
}

fn region_effect(func: &Func, region: Region, table: &mut [Effect]) -> Effect {
    let mut all = Effect::default();
    for &op in &func.region(region).ops {
        all = all.join(op_effect(func, op, table));
    }
    all
}

fn op_effect(func: &Func, op: Op, table: &mut [Effect]) -> Effect {
    let data = func.op(op);
    let mut own = effect(func, data);
    for &region in &data.regions {
        own = own.join(region_effect(func, region, table));
    }
    table[op.index()] = own;
    own
}

/// The access has a memory order, so that others must not move across it.
pub(crate) fn is_ordered(data: &OpData) -> bool {
    data.get::<Order>().is_some_and(|order| order != Order::Weak)
}

/// A load that nothing but its address decides about, until memory is written.
pub(crate) fn is_plain_load(data: &OpData) -> bool {
    matches!(data.code, Opcode::Load | Opcode::LoadIf)
        && !is_ordered(data)
        && data.get::<Cache>() != Some(Cache::Volatile)
}

/// What a plain load depends on: nothing if nobody writes there while the kernel runs.
pub(crate) fn load_memory(func: &Func, data: &OpData) -> Memory {
    if data.get::<Cache>() == Some(Cache::ReadOnly) {
        return Memory::NONE;
    }
    data.operands.first().map_or(Memory::ALL, |&pointer| Memory::of(func.ty(pointer)))
}
