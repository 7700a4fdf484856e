//! What a kernel does to the memory behind its parameters.
//!
//! Pointers are followed forwards from a parameter through everything that takes pointers and gives pointers, loops and `if`s included.
//! The answer errs on the safe side: a pointer that becomes a number may be read and written from there on.

use std::collections::HashSet;

use tilewright_ir::{AccessKind, Func, Op, Opcode, Type, Value};

use crate::trace::Partition;

/// How memory is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Uses {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// How the memory behind a pointer among the parameters is used.
pub(crate) fn of_pointer(func: &Func, pointer: Value) -> Uses {
    let ops = func.walk();
    let derived = derived(func, &ops, pointer);
    let mut uses = Uses::default();
    for &op in &ops {
        let data = func.op(op);
        let is_derived = |operand: usize| data.operands.get(operand).is_some_and(|v| derived.contains(v));
        for access in
            data.info().effects.accesses.iter().filter(|access| is_derived(usize::from(access.operand)))
        {
            uses.reads |= access.kind != AccessKind::Write;
            uses.writes |= access.kind != AccessKind::Read;
        }
        if data.code == Opcode::PtrToInt && is_derived(0) {
            uses = Uses { reads: true, writes: true };
        }
    }
    uses
}

/// An op that may write to a view elsewhere than to the tiles of its partition.
pub(crate) fn stray_store(func: &Func, pointer: Value, partition: &Partition) -> Option<Op> {
    let ops = func.walk();
    let derived = derived(func, &ops, pointer);
    let rank = partition.tile.len();
    let is_stray = |&op: &Op| {
        let data = func.op(op);
        let is_derived = |operand: usize| data.operands.get(operand).is_some_and(|v| derived.contains(v));
        let mut accesses = data.info().effects.accesses.iter();
        let writes = accesses.any(|a| a.kind != AccessKind::Read && is_derived(usize::from(a.operand)))
            || data.code == Opcode::PtrToInt && is_derived(0);
        let own = data.code == Opcode::TileStore
            && data.operands[0] == pointer
            && func.ty(data.operands[1]).shape().is_some_and(|shape| *shape.extents() == *partition.tile)
            && partition.starts.iter().any(|starts| data.operands.get(2..2 + rank) == Some(starts));
        writes && !own
    };
    ops.iter().copied().find(is_stray)
}

/// The values that may be this pointer, moved or not.
fn derived(func: &Func, ops: &[Op], pointer: Value) -> HashSet<Value> {
    let flows: Vec<(Value, Value)> = ops.iter().flat_map(|&op| flows(func, op)).collect();
    let mut found = HashSet::from([pointer]);
    loop {
        let before = found.len();
        for &(from, to) in &flows {
            if found.contains(&from) {
                found.insert(to);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Which pointers an op hands on, and as which values.
fn flows(func: &Func, op: Op) -> Vec<(Value, Value)> {
    let data = func.op(op);
    let arguments = |region: usize| &func.region(data.regions[region]).args[..];
    let handed = |region: usize| match func.terminator(data.regions[region]) {
        Some(end) => &func.op(end).operands[..],
        None => &[],
    };
    let pairs = |from: &[Value], to: &[Value]| -> Vec<(Value, Value)> {
        from.iter().copied().zip(to.iter().copied()).collect()
    };
    let results = &data.results[..];
    let flows = match data.code {
        Opcode::For => {
            let (start, carried) =
                (data.operands.get(3..).unwrap_or(&[]), arguments(0).get(1..).unwrap_or(&[]));
            let round = handed(0);
            [pairs(start, carried), pairs(start, results), pairs(round, carried), pairs(round, results)]
                .concat()
        }
        Opcode::While => {
            let tested = handed(0).get(1..).unwrap_or(&[]);
            [
                pairs(&data.operands, arguments(0)),
                pairs(tested, arguments(1)),
                pairs(tested, results),
                pairs(handed(1), arguments(0)),
            ]
            .concat()
        }
        Opcode::If => [pairs(handed(0), results), pairs(handed(1), results)].concat(),
        _ => data.operands.iter().flat_map(|&from| results.iter().map(move |&to| (from, to))).collect(),
    };
    let is_pointer = |value: Value| matches!(func.ty(value), Type::Pointer(_));
    flows.into_iter().filter(|&(from, to)| is_pointer(from) && is_pointer(to)).collect()
}
