//! Addresses that advance instead of being computed.

use std::collections::HashMap;

use smallvec::SmallVec;
use tilewright_ir::{Attr, Func, Loc, Op, Opcode, Region, Type, Value};

use crate::context::{Context, RemarkKind};
use crate::rewrite::{Replacements, constant, definition};

/// More carried pointers than this cost more registers than they save instructions.
const POINTERS: usize = 8;
/// Offsets are sums of a few terms; deeper expressions are left alone.
const DEPTH: u32 = 8;

pub(super) fn run(func: &mut Func, cx: &mut Context) -> bool {
    let mut numbers = Numbers { birth: vec![0; func.value_count()], next: 1 };
    let mut uses = vec![0; func.value_count()];
    let mut loops = false;
    for op in func.walk() {
        let data = func.op(op);
        data.operands.iter().for_each(|v| uses[v.index()] += 1);
        loops |= data.code == Opcode::For;
    }
    if !loops {
        return false;
    }
    numbers.region(func, func.body());
    let with = Replacements::of(func);
    let mut pass = Addresses { func, cx, with, birth: numbers.birth, uses, changed: false };
    pass.region(pass.func.body());
    pass.changed
}

/// Numbers values in the order of the text, so that what a loop defines is a range.
struct Numbers {
    birth: Vec<u32>,
    next: u32,
}

impl Numbers {
    fn region(&mut self, func: &Func, region: Region) {
        for &arg in &func.region(region).args {
            self.birth[arg.index()] = self.next;
        }
        for &op in &func.region(region).ops {
            self.next += 1;
            for &inner in &func.op(op).regions {
                self.region(func, inner);
            }
            for &result in &func.op(op).results {
                self.birth[result.index()] = self.next;
            }
        }
    }
}

struct Addresses<'a> {
    func: &'a mut Func,
    cx: &'a mut Context,
    with: Replacements,
    birth: Vec<u32>,
    uses: Vec<u32>,
    changed: bool,
}

/// The loop under consideration.
#[derive(Clone, Copy)]
struct Loop {
    counter: Value,
    lower: Value,
    step: Value,
    /// Values born before this are the same in every round.
    start: u32,
    /// Bits of the address.
    width: u32,
    loc: Loc,
}

impl Addresses<'_> {
    fn region(&mut self, region: Region) {
        let ops = std::mem::take(&mut self.func.region_mut(region).ops);
        let mut out = Vec::with_capacity(ops.len());
        for op in ops {
            if self.changed {
                self.with.apply(self.func, op);
            }
            for inner in self.func.op(op).regions.clone() {
                self.region(inner);
            }
            if self.func.op(op).code == Opcode::For {
                self.advance(op, &mut out);
            }
            out.push(op);
        }
        self.func.region_mut(region).ops = out;
    }

    /// Rewrites the addresses of one loop; `out` is where ops before the loop go.
    fn advance(&mut self, op: Op, out: &mut Vec<Op>) {
        let data = self.func.op(op);
        let body = data.regions[0];
        let counter = self.func.region(body).args[0];
        let mut around = Loop {
            counter,
            lower: data.operands[0],
            step: data.operands[2],
            start: self.birth[counter.index()],
            width: 0,
            loc: data.loc,
        };
        let found: Vec<Op> =
            self.func.region(body).ops.iter().copied().filter(|&op| self.is_candidate(op, around)).collect();
        // Where the offset is needed for something else, nothing is saved.
        let offset = |op: Op| self.func.op(op).operands[1];
        let mut wanted: HashMap<Value, u32> = HashMap::new();
        for &op in &found {
            *wanted.entry(offset(op)).or_default() += 1;
        }
        let pays = |op: &Op| wanted.get(&offset(*op)) == Some(&self.uses[offset(*op).index()]);
        let chosen: SmallVec<[Op; 8]> = found.iter().copied().filter(pays).take(POINTERS).collect();
        let rewrites = !chosen.is_empty();
        for address in chosen {
            self.changed = true;
            let data = self.func.op(address);
            let (base, offset, pointer, loc) =
                (data.operands[0], data.operands[1], data.results[0], data.loc);
            let ty = self.func.ty(base);
            around.width = ty.bits();
            around.loc = loc;
            let (Some(first), Some(increment)) =
                (self.at_start(offset, around, out), self.increment(offset, around, out))
            else {
                continue;
            };
            let init = self.emit(out, Opcode::PtrAdd, &[base, first], &[], ty, around);
            self.func.op_mut(op).operands.push(init);
            self.uses[init.index()] += 1;
            let last = self.func.add_result(op, ty);
            let arg = self.func.add_arg(body, ty);
            self.born(last, around.start);
            self.born(arg, around.start + 1);
            let mut ops = std::mem::take(&mut self.func.region_mut(body).ops);
            let end = ops.pop();
            ops.retain(|&inner| inner != address);
            let next = self.emit(&mut ops, Opcode::PtrAdd, &[arg, increment], &[], ty, around);
            if let Some(end) = end {
                self.func.op_mut(end).operands.push(next);
                ops.push(end);
            }
            self.func.region_mut(body).ops = ops;
            self.with.set(pointer, arg);
            let name = self.func.region(self.func.body()).args.iter().position(|&arg| arg == base);
            let into = name.map_or(String::new(), |i| format!(" into `{}`", self.func.params[i].name));
            let message = format!(
                "the address{into} is a pointer that advances each round instead of being computed from the counter"
            );
            self.cx.remark(super::NAME, self.func, loc, RemarkKind::Applied, message);
        }
        if rewrites {
            // The ops of this body were visited before the rewrite.
            let mut inside = Vec::new();
            self.func.walk_region(body, &mut inside);
            for inner in inside {
                self.with.apply(self.func, inner);
            }
        }
    }

    fn is_candidate(&self, op: Op, mut around: Loop) -> bool {
        let data = self.func.op(op);
        if data.code != Opcode::PtrAdd {
            return false;
        }
        let (base, offset) = (data.operands[0], data.operands[1]);
        around.width = self.func.ty(base).bits();
        self.is_invariant(base, around)
            && offset != around.counter
            && self.depends(offset, around, DEPTH) == Some(true)
    }

    fn is_invariant(&self, value: Value, around: Loop) -> bool {
        self.birth[value.index()] < around.start
    }

    /// The same in every round: from outside, or a constant, which can be made again outside.
    fn is_fixed(&self, value: Value, around: Loop) -> bool {
        self.is_invariant(value, around) || constant(self.func, value).is_some()
    }

    /// Does an offset depend on the counter, linearly? `None`: in another way.
    fn depends(&self, value: Value, around: Loop, depth: u32) -> Option<bool> {
        if self.is_fixed(value, around) {
            return Some(false);
        }
        if value == around.counter {
            return (self.func.ty(value).bits() == around.width).then_some(true);
        }
        let depth = depth.checked_sub(1)?;
        let data = definition(self.func, value).filter(|data| data.attrs.is_empty())?;
        let operand = |i: usize| self.depends(data.operands[i], around, depth);
        match data.code {
            Opcode::Add | Opcode::Sub => Some(operand(0)? | operand(1)?),
            Opcode::Mul => linear_product(operand(0)?, operand(1)?),
            Opcode::Shl if self.is_fixed(data.operands[1], around) => operand(0),
            Opcode::Fma => Some(linear_product(operand(0)?, operand(1)?)? | operand(2)?),
            Opcode::MulWide => {
                let [a, b] = [data.operands[0], data.operands[1]];
                let fits = |x: Value, y: Value| x == around.counter && self.is_fixed(y, around);
                (fits(a, b) || fits(b, a)).then_some(true)
            }
            Opcode::Cvt if data.operands[0] == around.counter => Some(true),
            _ => None,
        }
    }

    /// The offset for the first value of the counter.
    fn at_start(&mut self, value: Value, around: Loop, out: &mut Vec<Op>) -> Option<Value> {
        if self.is_invariant(value, around) {
            return Some(value);
        }
        if value == around.counter {
            return Some(around.lower);
        }
        let data = definition(self.func, value)?.clone();
        let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
        for &operand in &data.operands {
            operands.push(self.at_start(operand, around, out)?);
        }
        Some(self.emit(out, data.code, &operands, &data.attrs, self.func.ty(value), around))
    }

    /// What the offset grows by from round to round; `None` if by nothing.
    fn increment(&mut self, value: Value, around: Loop, out: &mut Vec<Op>) -> Option<Value> {
        if self.is_fixed(value, around) {
            return None;
        }
        if value == around.counter {
            return Some(around.step);
        }
        let data = definition(self.func, value)?.clone();
        let ty = self.func.ty(value);
        let [a, b] = [data.operands[0], data.operands.get(1).copied().unwrap_or(data.operands[0])];
        match data.code {
            Opcode::Add | Opcode::Sub => {
                let (da, db) = (self.increment(a, around, out), self.increment(b, around, out));
                match (da, db) {
                    (Some(da), Some(db)) => Some(self.emit(out, data.code, &[da, db], &[], ty, around)),
                    (None, Some(db)) if data.code == Opcode::Sub => {
                        Some(self.emit(out, Opcode::Neg, &[db], &[], ty, around))
                    }
                    (one, other) => one.or(other),
                }
            }
            Opcode::Mul => self.product(a, b, ty, around, out),
            Opcode::Fma => {
                let product = self.product(a, b, ty, around, out);
                let more = self.increment(data.operands[2], around, out);
                match (product, more) {
                    (Some(x), Some(y)) => Some(self.emit(out, Opcode::Add, &[x, y], &[], ty, around)),
                    (one, other) => one.or(other),
                }
            }
            Opcode::Shl => {
                let da = self.increment(a, around, out)?;
                let b = self.at_start(b, around, out)?;
                Some(self.emit(out, Opcode::Shl, &[da, b], &[], ty, around))
            }
            Opcode::MulWide => {
                let factor = self.at_start(if a == around.counter { b } else { a }, around, out)?;
                Some(self.emit(out, Opcode::MulWide, &[around.step, factor], &[], ty, around))
            }
            Opcode::Cvt => Some(self.emit(out, Opcode::Cvt, &[around.step], &[], ty, around)),
            _ => None,
        }
    }

    fn product(&mut self, a: Value, b: Value, ty: Type, around: Loop, out: &mut Vec<Op>) -> Option<Value> {
        let (varying, factor) = if self.depends(b, around, DEPTH) == Some(false) { (a, b) } else { (b, a) };
        let grows = self.increment(varying, around, out)?;
        let factor = self.at_start(factor, around, out)?;
        Some(self.emit(out, Opcode::Mul, &[grows, factor], &[], ty, around))
    }

    fn emit(
        &mut self,
        out: &mut Vec<Op>,
        code: Opcode,
        operands: &[Value],
        attrs: &[Attr],
        ty: Type,
        around: Loop,
    ) -> Value {
        let value = crate::rewrite::new_value(self.func, out, code, operands, attrs, ty, around.loc);
        operands.iter().for_each(|v| self.uses[v.index()] += 1);
        // In front of this loop, and inside the loops around it.
        self.born(value, around.start - 1);
        value
    }

    fn born(&mut self, value: Value, when: u32) {
        self.birth.resize(self.birth.len().max(value.index() + 1), 0);
        self.uses.resize(self.birth.len(), 0);
        self.birth[value.index()] = when;
    }
}

/// A product is linear if one factor at most depends on the counter.
fn linear_product(a: bool, b: bool) -> Option<bool> {
    (!(a && b)).then_some(a || b)
}
