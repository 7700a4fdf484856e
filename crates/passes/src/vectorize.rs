//! `vectorize`: accesses next to each other become one wide access.
//!
//! ```text
//! %0 = load %x : f32                         %0 = load %x : 4xf32
//! %1 = ptr_add %x, %four : ptr<global>       %1 = extract %0 index(0) : f32
//! %2 = load %1 : f32                   →     %2 = extract %0 index(1) : f32
//! ...                                        ...
//! ```
//!
//! Loads (and stores) of one region, of one type and with the same attributes, at constant distances from one pointer, are joined into
//! accesses of up to 16 bytes where the alignment is known to suffice: from what parameters and `shared` promise, and from offsets
//! that are multiples, also of pointers that a loop advances. Joined loads stand where the first stood, joined stores where the last
//! stood, so nothing that may meet their memory, orders accesses or stops the program may lie between.
//!
//! Where only the alignment is missing, a remark says which promise would help.
//!
//! Limits: pointers from different computations are not compared, even if they are equal; predicated accesses and those with a
//! memory order stay.

use smallvec::SmallVec;
use tilewright_ir::{Cache, Element, Func, Index, Op, OpData, Opcode, Region, Type, Value};

use crate::align::Alignment;
use crate::context::{Context, RemarkKind};
use crate::effects::{Effect, Memory, effects, is_ordered, is_plain_load, load_memory};
use crate::rewrite::{Replacements, constant, definition, new_constant, new_value};

/// The name of the pass.
pub const NAME: &str = "vectorize";

/// The widest access in bytes.
const WIDEST: u32 = 16;

/// Runs the pass; true if anything changed.
pub fn run(func: &mut Func, cx: &mut Context) -> bool {
    let accesses =
        func.walk().into_iter().filter(|&op| matches!(func.op(op).code, Opcode::Load | Opcode::Store));
    if accesses.count() < 2 {
        return false;
    }
    let (effects, alignment, with) = (effects(func), Alignment::of(func), Replacements::of(func));
    let mut pass = Vectorize { func, cx, effects, alignment, with, changed: false };
    pass.region(pass.func.body());
    pass.changed
}

struct Vectorize<'a> {
    func: &'a mut Func,
    cx: &'a mut Context,
    effects: Vec<Effect>,
    alignment: Alignment,
    with: Replacements,
    changed: bool,
}

/// A load or store that may be joined with others.
#[derive(Debug, Clone, Copy)]
struct Access {
    op: Op,
    /// Position in the region.
    at: usize,
    /// The pointer without its constant offset.
    root: Value,
    offset: i64,
    ty: Type,
    memory: Memory,
}

/// Accesses that wait for neighbours.
#[derive(Default)]
struct Open {
    accesses: Vec<Access>,
    /// What they touch together, so that most ops can be passed over without a look at each.
    memory: Memory,
    /// The pointer and the highest end of all, while they have one pointer.
    reach: Option<(Value, i64)>,
}

impl Open {
    fn push(&mut self, access: Access) {
        let end = access.end();
        self.reach = match self.reach {
            _ if self.accesses.is_empty() => Some((access.root, end)),
            Some((root, reach)) if root == access.root => Some((root, reach.max(end))),
            _ => None,
        };
        self.memory = self.memory.with(access.memory);
        self.accesses.push(access);
    }

    /// May a new store meet one of these?
    fn clashes(&self, new: &Access) -> bool {
        if self.reach.is_some_and(|(root, end)| root == new.root && new.offset >= end) {
            return false;
        }
        let apart =
            |old: &Access| old.root == new.root && (old.end() <= new.offset || new.end() <= old.offset);
        self.accesses.iter().any(|old| old.memory.meets(new.memory) && !apart(old))
    }
}

impl Access {
    fn end(&self) -> i64 {
        self.offset.saturating_add(i64::from(self.ty.bytes()))
    }
}

/// Accesses that become one, in the order of their addresses.
struct Join {
    parts: Vec<Access>,
    /// Where it goes.
    at: usize,
}

impl Vectorize<'_> {
    fn region(&mut self, region: Region) {
        let ops = std::mem::take(&mut self.func.region_mut(region).ops);
        let mut joins = self.plan(&ops);
        joins.sort_by_key(|join| join.at);
        let mut gone = vec![false; if joins.is_empty() { 0 } else { ops.len() }];
        for join in &joins {
            join.parts.iter().for_each(|part| gone[part.at] = true);
        }
        let mut joins = joins.into_iter().peekable();
        let mut out = Vec::with_capacity(ops.len());
        for (at, &op) in ops.iter().enumerate() {
            if self.changed {
                self.with.apply(self.func, op);
            }
            while let Some(join) = joins.next_if(|join| join.at == at) {
                self.changed = true;
                if self.func.op(op).code == Opcode::Load {
                    self.load(&join, &mut out);
                } else {
                    self.store(&join, &mut out);
                }
            }
            if gone.get(at) == Some(&true) {
                continue;
            }
            for inner in self.func.op(op).regions.clone() {
                self.region(inner);
            }
            out.push(op);
        }
        self.func.region_mut(region).ops = out;
    }

    fn plan(&mut self, ops: &[Op]) -> Vec<Join> {
        let mut joins = Vec::new();
        let (mut loads, mut stores) = (Open::default(), Open::default());
        for (at, &op) in ops.iter().enumerate() {
            let effect = self.effects[op.index()];
            let access = self.access(op, at);
            if effect == Effect::default() && access.is_none() {
                continue;
            }
            // What moves must not cross an op that it may meet.
            match access {
                Some(access) if self.func.op(op).code == Opcode::Load => {
                    self.close(&mut stores, &mut joins, access.memory);
                    loads.push(access);
                }
                Some(access) => {
                    self.close(&mut loads, &mut joins, access.memory);
                    if stores.clashes(&access) {
                        self.close(&mut stores, &mut joins, access.memory);
                    }
                    stores.push(access);
                }
                None if effect.stops => {
                    self.close_all(&mut loads, &mut joins);
                    self.close_all(&mut stores, &mut joins);
                }
                None => {
                    self.close(&mut loads, &mut joins, effect.writes);
                    self.close(&mut stores, &mut joins, effect.writes.with(effect.reads));
                }
            }
        }
        self.close_all(&mut loads, &mut joins);
        self.close_all(&mut stores, &mut joins);
        joins
    }

    /// An access that can be joined, taken apart.
    fn access(&self, op: Op, at: usize) -> Option<Access> {
        let data = self.func.op(op);
        let (ty, memory) = match data.code {
            Opcode::Load if is_plain_load(data) => {
                (self.func.ty(data.results[0]), load_memory(self.func, data))
            }
            Opcode::Store if !is_ordered(data) && data.get::<Cache>() != Some(Cache::Volatile) => {
                (self.func.ty(data.operands[1]), Memory::of(self.func.ty(data.operands[0])))
            }
            _ => return None,
        };
        let whole = match ty {
            Type::Scalar(element) | Type::Vector(element, _) => {
                element.bits() >= 8 && element != Element::Bool
            }
            _ => false,
        };
        if !whole || !ty.bytes().is_power_of_two() || ty.bytes() >= WIDEST {
            return None;
        }
        let (root, offset) = self.root(data.operands[0]);
        Some(Access { op, at, root, offset, ty, memory })
    }

    /// A pointer as another plus a constant.
    fn root(&self, mut pointer: Value) -> (Value, i64) {
        let mut offset = 0i64;
        while let Some(data) = definition(self.func, pointer)
            && data.code == Opcode::PtrAdd
            && let Some(bits) = constant(self.func, data.operands[1])
        {
            // Offsets of 32-bit pointers are taken modulo 2^32, as the addresses are.
            let narrow = self.func.ty(data.operands[1]).bits() == 32;
            let step = if narrow { (bits.cast_signed() << 32) >> 32 } else { bits.cast_signed() };
            offset = offset.wrapping_add(step);
            pointer = data.operands[0];
        }
        (pointer, offset)
    }

    /// Joins what can be joined of the accesses that may meet `touched`, and forgets them.
    fn close(&mut self, open: &mut Open, joins: &mut Vec<Join>, touched: Memory) {
        if open.memory.meets(touched) {
            let (ready, left): (Vec<Access>, Vec<Access>) =
                std::mem::take(open).accesses.into_iter().partition(|access| access.memory.meets(touched));
            left.into_iter().for_each(|access| open.push(access));
            self.join(ready, joins);
        }
    }

    fn close_all(&mut self, open: &mut Open, joins: &mut Vec<Join>) {
        self.join(std::mem::take(open).accesses, joins);
    }

    fn join(&mut self, mut ready: Vec<Access>, joins: &mut Vec<Join>) {
        if ready.len() < 2 {
            return;
        }
        ready.sort_by_key(|access| (access.root, access.ty, access.offset, access.at));
        let mut start = 0;
        while start < ready.len() {
            let mut end = start + 1;
            while end < ready.len() && self.follows(&ready[end - 1], &ready[end]) {
                end += 1;
            }
            self.join_run(&ready[start..end], joins);
            start = end;
        }
    }

    /// Is `b` the neighbour of `a`?
    fn follows(&self, a: &Access, b: &Access) -> bool {
        let (x, y) = (self.func.op(a.op), self.func.op(b.op));
        a.root == b.root
            && a.ty == b.ty
            && a.end() == b.offset
            && x.attrs == y.attrs
            && policy(x) == policy(y)
    }

    /// Cuts a run of neighbours into the widest accesses that are aligned.
    fn join_run(&mut self, run: &[Access], joins: &mut Vec<Join>) {
        let Some(first) = run.first() else { return };
        let bytes = first.ty.bytes();
        let mut at = 0;
        let mut missed = None;
        while at < run.len() {
            let left = u32::try_from(run.len() - at).unwrap_or(u32::MAX);
            let known = self.alignment.at(run[at].root, run[at].offset);
            let most = (WIDEST / bytes).min(1 << left.ilog2());
            let mut count = most;
            while count > 1 && u64::from(count * bytes) > known {
                count /= 2;
            }
            if count < most {
                missed.get_or_insert((most, known, at));
            }
            let parts = run[at..at + count as usize].to_vec();
            at += count as usize;
            if count > 1 {
                let store = self.func.op(parts[0].op).code == Opcode::Store;
                let places = parts.iter().map(|part| part.at);
                let place = if store { places.max() } else { places.min() };
                joins.push(Join { parts, at: place.unwrap_or(0) });
            }
        }
        if let Some((count, known, at)) = missed {
            self.explain(&run[at], count, known);
        }
    }

    fn explain(&mut self, access: &Access, count: u32, known: u64) {
        let func = &*self.func;
        // An offset that breaks the alignment cannot be helped by a promise.
        let wanted = u64::from(count * access.ty.bytes());
        if !access.offset.cast_unsigned().is_multiple_of(wanted) {
            return;
        }
        let data = func.op(access.op);
        let mut base = access.root;
        while let Some(inner) = definition(func, base).filter(|d| d.code == Opcode::PtrAdd) {
            base = inner.operands[0];
        }
        let param = func.region(func.body()).args.iter().position(|&arg| arg == base);
        let help = match param {
            Some(i) if u64::from(func.params[i].align) < wanted => {
                format!("promise align({wanted}) on parameter `{}`", func.params[i].name)
            }
            _ => format!("make its offset a multiple of {wanted}"),
        };
        let message = format!(
            "{count} neighbouring {}s of {} could be one of {wanted} bytes, but the address is known to be a multiple of {known} only; {help}",
            data.info().mnemonic,
            access.ty
        );
        let loc = data.loc;
        self.cx.remark(NAME, self.func, loc, RemarkKind::Missed, message);
    }

    fn wide_type(join: &Join) -> Option<Type> {
        let ty = join.parts.first()?.ty;
        let lanes = u16::try_from(ty.lanes() * u32::try_from(join.parts.len()).ok()?).ok()?;
        Some(Type::Vector(ty.element()?, lanes))
    }

    fn load(&mut self, join: &Join, out: &mut Vec<Op>) {
        let Some(wide) = Self::wide_type(join) else { return };
        let lowest = join.parts[0];
        let data = self.func.op(lowest.op).clone();
        let (pointer_ty, loc) = (self.func.ty(data.operands[0]), data.loc);
        let pointer = if lowest.at == join.at || lowest.offset == 0 {
            if lowest.offset == 0 { lowest.root } else { data.operands[0] }
        } else {
            // The pointer of the lowest part may be computed only later.
            let offset_ty = if pointer_ty.bits() == 32 { Type::I32 } else { Type::I64 };
            let offset = new_constant(self.func, out, offset_ty, lowest.offset.cast_unsigned(), loc);
            let root = self.with.get(lowest.root);
            new_value(self.func, out, Opcode::PtrAdd, &[root, offset], &[], pointer_ty, loc)
        };
        let mut operands: SmallVec<[Value; 2]> = SmallVec::from_elem(self.with.get(pointer), 1);
        operands.extend(policy(&data).map(|v| self.with.get(v)));
        let vector = new_value(self.func, out, Opcode::Load, &operands, &data.attrs, wide, loc);
        let lanes = lowest.ty.lanes();
        for (i, part) in (0u32..).zip(&join.parts) {
            let inner = self.func.op(part.op);
            let (result, loc) = (inner.results[0], inner.loc);
            let code = if matches!(part.ty, Type::Scalar(_)) { Opcode::Extract } else { Opcode::Slice };
            let piece = new_value(self.func, out, code, &[vector], &[Index(i * lanes).into()], part.ty, loc);
            self.with.set(result, piece);
        }
    }

    fn store(&mut self, join: &Join, out: &mut Vec<Op>) {
        let Some(wide) = Self::wide_type(join) else { return };
        let lowest = join.parts[0];
        let data = self.func.op(lowest.op).clone();
        let values: SmallVec<[Value; 16]> =
            join.parts.iter().map(|part| self.with.get(self.func.op(part.op).operands[1])).collect();
        let code = if matches!(lowest.ty, Type::Scalar(_)) { Opcode::Pack } else { Opcode::Concat };
        let vector = new_value(self.func, out, code, &values, &[], wide, data.loc);
        let pointer = self.with.get(data.operands[0]);
        let operands = [Some(pointer), Some(vector), policy(&data).map(|v| self.with.get(v))];
        let op = self.func.new_op(Opcode::Store, operands.into_iter().flatten(), data.attrs, [], data.loc);
        out.push(op);
    }
}

/// The L2 policy of a load or store.
fn policy(data: &OpData) -> Option<Value> {
    data.operands.get(if data.code == Opcode::Store { 2 } else { 1 }).copied()
}
