//! Folding of control flow.

use smallvec::SmallVec;
use tilewright_ir::{Element, Op, Opcode, Region, Type, Value};

use super::{Folder, Step};
use crate::rewrite::{constant, without_slots};

/// So many ops may be executed in vain to save a branch.
const SPECULATED: usize = 4;
/// So many values may be selected instead of branched for.
const SELECTED: usize = 4;

type Values = SmallVec<[Value; 8]>;

impl Folder<'_> {
    /// Accesses and assertions under a condition that is known.
    pub(super) fn predicated(&mut self, op: Op) -> Step {
        let data = self.func.op(op);
        let (at, plain) = match data.code {
            Opcode::LoadIf => (1, Opcode::Load),
            Opcode::StoreIf => (2, Opcode::Store),
            Opcode::Assert => {
                let holds = constant(self.func, data.operands[0]) == Some(1);
                return if holds { Step::Drop } else { Step::Keep };
            }
            _ => return Step::Keep,
        };
        match data.operands.get(at).and_then(|&v| constant(self.func, v)) {
            None => Step::Keep,
            Some(0) if plain == Opcode::Store => Step::Drop,
            Some(0) => Step::Is(data.operands[2]),
            Some(_) => {
                let data = self.func.op_mut(op);
                data.code = plain;
                data.operands.remove(at);
                if plain == Opcode::Load {
                    data.operands.remove(at);
                }
                Step::Again
            }
        }
    }

    /// Puts the ops of a region into `out`; gives what its terminator hands over.
    fn splice(&mut self, region: Region, out: &mut Vec<Op>) -> Values {
        let mut ops = std::mem::take(&mut self.func.region_mut(region).ops);
        let end = ops.pop();
        self.block(&ops, out);
        end.map_or_else(Values::new, |end| {
            self.func.op(end).operands.iter().map(|&v| self.with.get(v)).collect()
        })
    }

    fn replace_all(&mut self, from: &[Value], to: &[Value]) {
        for (&from, &to) in from.iter().zip(to) {
            self.with.set(from, to);
        }
    }

    /// What the terminator of a region hands over.
    fn handed_over(&self, region: Region) -> Values {
        let end = self.func.terminator(region);
        end.map_or_else(Values::new, |end| {
            self.func.op(end).operands.iter().map(|&v| self.with.get(v)).collect()
        })
    }

    pub(super) fn fold_if(&mut self, op: Op, out: &mut Vec<Op>) {
        let data = self.func.op(op);
        let [then, other] = data.regions[..] else { return out.push(op) };
        let condition = data.operands[0];
        let results = data.results.clone();
        if let Some(holds) = constant(self.func, condition) {
            self.changed = true;
            let values = self.splice(if holds == 0 { other } else { then }, out);
            return self.replace_all(&results, &values);
        }
        self.region(then);
        self.region(other);
        let arms = [self.handed_over(then), self.handed_over(other)];
        if results.is_empty() {
            if [then, other].iter().all(|&arm| self.func.region(arm).ops.len() <= 1) {
                self.changed = true;
                return;
            }
            return out.push(op);
        }
        if self.can_select(&results, [then, other]) {
            self.changed = true;
            let arms = [self.splice(then, out), self.splice(other, out)];
            for (i, &result) in results.iter().enumerate() {
                let value = self.choose(op, condition, arms[0][i], arms[1][i], out);
                self.with.set(result, value);
            }
            return;
        }
        // Values that are the same on both ways need no `if`.
        let loc = self.func.op(op).loc;
        let mut dropped: SmallVec<[bool; 8]> = SmallVec::from_elem(false, results.len());
        for (i, &result) in results.iter().enumerate() {
            let (a, b) = (arms[0][i], arms[1][i]);
            let same = match (constant(self.func, a), constant(self.func, b)) {
                (Some(x), Some(y)) if x == y => Some(self.constant(out, self.func.ty(a), x, loc)),
                _ if a == b => Some(a),
                _ => None,
            };
            if let Some(value) = same {
                dropped[i] = true;
                self.with.set(result, value);
            }
        }
        if dropped.contains(&true) {
            self.changed = true;
            let new = without_slots(self.func, op, &|_| true, &|i| !dropped[i], &mut self.with);
            return out.push(new);
        }
        out.push(op);
    }

    /// Only cheap ops that nobody notices, and values that fit in registers a `select` can name.
    fn can_select(&self, results: &[Value], arms: [Region; 2]) -> bool {
        let selectable = |ty: Type| match ty {
            Type::Scalar(_) | Type::Pointer(_) => true,
            Type::Vector(..) => ty.bits() <= 64,
            Type::TensorMap | Type::Accumulator(..) | Type::Tile(..) => false,
        };
        if results.len() > SELECTED || !results.iter().all(|&v| selectable(self.func.ty(v))) {
            return false;
        }
        let mut count = 0;
        for arm in arms {
            let Some((_, ops)) = self.func.region(arm).ops.split_last() else { return false };
            for &op in ops {
                let data = self.func.op(op);
                if !data.info().is_pure() || !is_cheap(data.code) {
                    return false;
                }
                count += usize::from(data.code != Opcode::Const);
            }
            if count > SPECULATED {
                return false;
            }
        }
        true
    }

    fn choose(&mut self, op: Op, condition: Value, a: Value, b: Value, out: &mut Vec<Op>) -> Value {
        let loc = self.func.op(op).loc;
        let ty = self.func.ty(a);
        if ty == Type::Scalar(Element::Bool) {
            match (constant(self.func, a), constant(self.func, b)) {
                (Some(1), Some(0)) => return condition,
                (None, Some(0)) => return self.emit(out, Opcode::And, &[condition, a], &[], ty, loc),
                (Some(1), None) => return self.emit(out, Opcode::Or, &[condition, b], &[], ty, loc),
                (Some(0), None) => {
                    let not = self.emit(out, Opcode::Not, &[condition], &[], ty, loc);
                    return self.emit(out, Opcode::And, &[not, b], &[], ty, loc);
                }
                _ => {}
            }
        }
        self.emit(out, Opcode::Select, &[condition, a, b], &[], ty, loc)
    }

    pub(super) fn fold_for(&mut self, op: Op, out: &mut Vec<Op>) {
        let data = self.func.op(op);
        let body = data.regions[0];
        let results = data.results.clone();
        let inits: Values = data.operands[3..].iter().copied().collect();
        let lower = data.operands[0];
        match self.trips(op) {
            Some(Trips::None) => {
                self.changed = true;
                return self.replace_all(&results, &inits);
            }
            Some(Trips::One) => {
                self.changed = true;
                let args: Values = self.func.region(body).args.iter().copied().collect();
                self.with.set(args[0], lower);
                self.replace_all(&args[1..], &inits);
                let values = self.splice(body, out);
                return self.replace_all(&results, &values);
            }
            None => {}
        }
        let args: Values = self.func.region(body).args.iter().copied().collect();
        let next = self.handed_over(body);
        let unchanged = |i: usize| {
            next[i] == args[i + 1]
                || next[i] == inits[i]
                || constant(self.func, next[i])
                    .is_some_and(|bits| constant(self.func, inits[i]) == Some(bits))
        };
        let same: SmallVec<[bool; 8]> = (0..inits.len()).map(unchanged).collect();
        let mut op = op;
        if same.contains(&true) {
            self.changed = true;
            for i in (0..same.len()).filter(|&i| same[i]) {
                self.with.set(args[i + 1], inits[i]);
                self.with.set(results[i], inits[i]);
            }
            op = without_slots(self.func, op, &|i| !same[i], &|i| !same[i], &mut self.with);
        }
        let body = self.func.op(op).regions[0];
        self.region(body);
        out.push(op);
    }

    /// How often a `for` goes round, if that is never or once.
    fn trips(&self, op: Op) -> Option<Trips> {
        let operands = &self.func.op(op).operands;
        if operands[0] == operands[1] {
            return Some(Trips::None);
        }
        let element = self.func.ty(operands[0]).element()?;
        let number = |i: usize| {
            let bits = constant(self.func, operands[i])?;
            Some(if element.is_signed() { i128::from(bits.cast_signed()) } else { i128::from(bits) })
        };
        let (lower, upper) = (number(0)?, number(1)?);
        if lower >= upper {
            return Some(Trips::None);
        }
        let step = number(2).filter(|&step| step > 0)?;
        (lower + step >= upper).then_some(Trips::One)
    }

    pub(super) fn fold_while(&mut self, op: Op, out: &mut Vec<Op>) {
        let data = self.func.op(op);
        let [test, body] = data.regions[..] else { return out.push(op) };
        let inits: Values = data.operands.iter().copied().collect();
        let results = data.results.clone();
        let args: Values = self.func.region(test).args.iter().copied().collect();
        let inner: Values = self.func.region(body).args.iter().copied().collect();
        let passed = self.handed_over(test);
        let next = self.handed_over(body);
        // A value comes round unchanged if the body yields it, directly or as what the test passed on.
        let comes_round = |i: usize| {
            let through = inner.iter().position(|&arg| arg == next[i]).map(|j| passed[j + 1]);
            [Some(next[i]), through].into_iter().flatten().any(|v| v == args[i] || v == inits[i])
        };
        let same: SmallVec<[bool; 8]> = (0..inits.len()).map(comes_round).collect();
        let mut op = op;
        if same.contains(&true) {
            self.changed = true;
            let mut known: SmallVec<[bool; 8]> = SmallVec::from_elem(false, results.len());
            for i in (0..same.len()).filter(|&i| same[i]) {
                self.with.set(args[i], inits[i]);
                for j in (0..results.len()).filter(|&j| passed[j + 1] == args[i]) {
                    known[j] = true;
                    self.with.set(results[j], inits[i]);
                    self.with.set(inner[j], inits[i]);
                }
            }
            op = without_slots(self.func, op, &|i| !same[i], &|j| !known[j], &mut self.with);
        }
        let data = self.func.op(op);
        let [test, body] = data.regions[..] else { return out.push(op) };
        self.region(test);
        if self.handed_over(test).first().and_then(|&v| constant(self.func, v)) == Some(0) {
            self.changed = true;
            let data = self.func.op(op);
            let (inits, results) = (data.operands.clone(), data.results.clone());
            let args = self.func.region(test).args.clone();
            self.replace_all(&args, &inits);
            let values = self.splice(test, out);
            return self.replace_all(&results, &values[1..]);
        }
        self.region(body);
        out.push(op);
    }
}

enum Trips {
    None,
    One,
}

/// Worth executing in vain: one or two instructions.
fn is_cheap(code: Opcode) -> bool {
    !matches!(
        code,
        Opcode::Div
            | Opcode::Rem
            | Opcode::Rcp
            | Opcode::Sqrt
            | Opcode::Rsqrt
            | Opcode::Sin
            | Opcode::Cos
            | Opcode::Tanh
            | Opcode::Ex2
            | Opcode::Lg2
    )
}
