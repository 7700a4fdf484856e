//! `fold`: what is known at compile time is computed at compile time.
//!
//! ```text
//! %0 = const value(6) : u32                %0 = const value(2) : u32
//! %1 = add %n, %0 : u32                    %1 = add %n, %0 : u32
//! %2 = const value(4) : u32
//! %3 = sub %1, %2 : u32              →
//! %4 = if %c : u32 then {                  %2 = select %c, %1, %n : u32
//!   yield %3
//! } else {
//!   yield %n
//! }
//! ```
//!
//! * Ops on constants become constants, as [`evaluate`] says.
//! * Identities that are exact: `x + 0`, `x * 1`, `x & x`, `select c, x, x`, comparisons of a value with itself, conversions there and
//!   back, parts of packed vectors, and the like. Constants go to the right of commutative ops; `sub` of a constant is `add`; chains
//!   of constant offsets become one, the constant outermost, where the code generator finds an immediate.
//! * An `if` on a constant is its arm. An `if` that only chooses between cheap values is a `select`, or `and`/`or` of truth values.
//! * A `for` of no or one round is gone; what a loop hands to its next round unchanged is not carried; a `while` that never goes on is
//!   its test.
//! * Predicated accesses on a constant are plain ones or nothing.
//!
//! One forward walk; what it makes possible for earlier ops (a value that turned out to be carried unchanged) is left to the next
//! run. Ops that lost their users stay for [`dce`](crate::dce).
//!
//! Limits: floats are folded only where the result is the same on every machine; no reassociation of floats; ranges of values are [`range`](crate::range)'s.

mod control;
mod identities;
mod vectors;

use smallvec::SmallVec;
use tilewright_ir::{Attr, Constant, Element, Func, Loc, Op, Opcode, Region, Type, Value, canonical};

use crate::context::Context;
use crate::eval::{Approximate, evaluate};
use crate::rewrite::{Replacements, constant, new_constant, new_value};

/// The name of the pass.
pub const NAME: &str = "fold";

/// Runs the pass; true if anything changed.
pub fn run(func: &mut Func, _cx: &mut Context) -> bool {
    let with = Replacements::of(func);
    let mut folder = Folder { func, with, changed: false };
    folder.region(folder.func.body());
    folder.changed
}

struct Folder<'a> {
    func: &'a mut Func,
    with: Replacements,
    changed: bool,
}

/// What became of an op.
enum Step {
    /// It stays as it is.
    Keep,
    /// It was changed in place; look again.
    Again,
    /// Its first result is this value.
    Is(Value),
    /// Its first result is this constant.
    Constant(u64),
    /// It does nothing.
    Drop,
}

/// An identity may enable another, but each makes the op simpler: this many in a row are more than any op needs.
const ROUNDS: usize = 8;

impl Folder<'_> {
    fn region(&mut self, region: Region) {
        let ops = std::mem::take(&mut self.func.region_mut(region).ops);
        let mut out = Vec::with_capacity(ops.len());
        self.block(&ops, &mut out);
        self.func.region_mut(region).ops = out;
    }

    fn block(&mut self, ops: &[Op], out: &mut Vec<Op>) {
        for &op in ops {
            self.op(op, out);
        }
    }

    fn op(&mut self, op: Op, out: &mut Vec<Op>) {
        self.with.apply(self.func, op);
        match self.func.op(op).code {
            Opcode::If => return self.fold_if(op, out),
            Opcode::For => return self.fold_for(op, out),
            Opcode::While => return self.fold_while(op, out),
            Opcode::Const => return out.push(op),
            _ if !self.func.op(op).regions.is_empty() => {
                for inner in self.func.op(op).regions.clone() {
                    self.region(inner);
                }
                return out.push(op);
            }
            _ => {}
        }
        for _ in 0..ROUNDS {
            match self.simplify(op, out) {
                Step::Keep => break,
                Step::Again => self.changed = true,
                Step::Drop => {
                    self.changed = true;
                    return;
                }
                Step::Is(value) => {
                    self.changed = true;
                    let result = self.func.op(op).results[0];
                    return self.with.set(result, value);
                }
                Step::Constant(bits) => {
                    self.changed = true;
                    let data = self.func.op_mut(op);
                    data.code = Opcode::Const;
                    data.operands.clear();
                    data.attrs = SmallVec::from_iter([Attr::of(Constant(bits))]);
                    break;
                }
            }
        }
        out.push(op);
    }

    fn simplify(&mut self, op: Op, out: &mut Vec<Op>) -> Step {
        let data = self.func.op(op);
        if data.operands.is_empty() {
            return Step::Keep;
        }
        if !data.info().is_pure() {
            return self.predicated(op);
        }
        let [result] = data.results[..] else { return Step::Keep };
        let constants: SmallVec<[Option<u64>; 4]> =
            data.operands.iter().map(|&v| constant(self.func, v)).collect();
        let ty = self.func.ty(result);
        if matches!(ty, Type::Scalar(_)) && constants.iter().all(Option::is_some) {
            let operands = data.operands.iter().zip(&constants);
            let operands: SmallVec<[(Type, Constant); 4]> =
                operands.map(|(&v, bits)| (self.func.ty(v), Constant(bits.unwrap_or(0)))).collect();
            if let Some(Constant(bits)) = evaluate(data.code, &data.attrs, &operands, ty, Approximate::Refuse)
            {
                return Step::Constant(bits);
            }
        }
        self.identity(op, ty, &constants, out)
    }

    /// A constant of a scalar type.
    fn constant(&mut self, out: &mut Vec<Op>, ty: Type, bits: u64, loc: Loc) -> Value {
        new_constant(self.func, out, ty, ty.element().map_or(bits, |e| canonical(e, bits)), loc)
    }

    /// A new op of one result, simplified in turn.
    fn emit(
        &mut self,
        out: &mut Vec<Op>,
        code: Opcode,
        operands: &[Value],
        attrs: &[Attr],
        ty: Type,
        loc: Loc,
    ) -> Value {
        let mut made = Vec::with_capacity(1);
        let value = new_value(self.func, &mut made, code, operands, attrs, ty, loc);
        self.block(&made, out);
        self.with.get(value)
    }
}

/// All ones, as a constant of the element.
fn ones(element: Element) -> u64 {
    canonical(element, !0)
}
