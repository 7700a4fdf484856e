//! Facts about a function that decide where copies are needed: the order of ops, and how long each value is read.
//!
//! Ops are numbered in program order; an op that owns regions has a second number, behind them. A value's *last use* is the
//! highest number at which its registers may be read, with two extensions:
//!
//! * a use inside a loop that does not contain the definition lasts until the end of that loop, because the next iteration
//!   reads again;
//! * ops that may leave their result in the registers of an operand (slices, casts, pointers with constant offsets) pass the
//!   last use of the result on to the operand.

use std::collections::HashMap;

use tilewright_ir::{Def, Func, Op, Opcode, Region, Uses, Value};

/// What is known before code is emitted.
pub(crate) struct Analysis {
    uses: Uses,
    position: Vec<u32>,
    end: Vec<u32>,
    region_of: Vec<Option<Region>>,
    last_use: Vec<u32>,
    only_yielded: Vec<bool>,
    /// Positions at which each accumulator is written.
    writes: HashMap<Value, Vec<u32>>,
}

/// May the result share registers with operands?
fn aliases(code: Opcode) -> bool {
    use Opcode as O;
    matches!(
        code,
        O::PtrAdd
            | O::PtrToInt
            | O::IntToPtr
            | O::CastSpace
            | O::Bitcast
            | O::Cvt
            | O::Pack
            | O::Extract
            | O::Insert
            | O::Slice
            | O::Concat
            | O::Abs
    )
}

/// Ops whose code reads every operand before it writes the result, or works on one element after the other.
fn in_place(code: Opcode) -> bool {
    use Opcode as O;
    matches!(
        code,
        O::Add
            | O::Sub
            | O::Mul
            | O::Div
            | O::Rem
            | O::Fma
            | O::Neg
            | O::Min
            | O::Max
            | O::And
            | O::Or
            | O::Xor
            | O::Not
            | O::Shl
            | O::Shr
            | O::Select
            | O::PtrAdd
            | O::Mma
            | O::For
            | O::If
    )
}

impl Analysis {
    pub(crate) fn of(func: &Func) -> Analysis {
        let mut analysis = Analysis {
            uses: Uses::of(func),
            position: vec![0; func.op_count()],
            end: vec![0; func.op_count()],
            region_of: vec![None; func.op_count()],
            last_use: vec![0; func.value_count()],
            only_yielded: vec![false; func.value_count()],
            writes: HashMap::new(),
        };
        let mut next = 1;
        analysis.number(func, func.body(), &mut next);
        let order = func.walk();
        for &op in &order {
            analysis.uses_of(func, op);
        }
        for &op in order.iter().rev() {
            analysis.pass_on(func, op);
        }
        analysis
    }

    fn number(&mut self, func: &Func, region: Region, next: &mut u32) {
        for &op in &func.region(region).ops {
            self.position[op.index()] = *next;
            self.region_of[op.index()] = Some(region);
            *next += 1;
            for &inner in &func.op(op).regions {
                self.number(func, inner, next);
            }
            self.end[op.index()] = *next;
            *next += 1;
        }
    }

    fn uses_of(&mut self, func: &Func, op: Op) {
        let data = func.op(op);
        let own = self.position[op.index()];
        if matches!(data.code, Opcode::Wgmma | Opcode::AccWrite)
            && let Some(&accumulator) = data.operands.first()
        {
            self.writes.entry(accumulator).or_default().push(own);
        }
        for (i, &value) in data.operands.iter().enumerate() {
            // Limit and step of a loop are read after every iteration.
            let again = data.code == Opcode::For && (i == 1 || i == 2);
            let mut at = if again { self.end[op.index()] } else { own };
            let defined_in = self.region_defining(func, value);
            let mut region = self.region_of[op.index()];
            while region != defined_in {
                let Some(owner) = region.and_then(|region| func.region(region).parent) else { break };
                if matches!(func.op(owner).code, Opcode::For | Opcode::While) {
                    at = at.max(self.end[owner.index()]);
                }
                region = self.region_of[owner.index()];
            }
            let last = &mut self.last_use[value.index()];
            *last = (*last).max(at);
            self.only_yielded[value.index()] = data.code == Opcode::Yield && self.uses.count(value) == 1;
        }
    }

    fn pass_on(&mut self, func: &Func, op: Op) {
        let data = func.op(op);
        let raise = |last_use: &mut Vec<u32>, operand: Value, by: Value| {
            last_use[operand.index()] = last_use[operand.index()].max(last_use[by.index()]);
        };
        if data.code == Opcode::Condition {
            let Some(owner) = self.region_of[op.index()].and_then(|region| func.region(region).parent) else {
                return;
            };
            let outer = func.op(owner);
            let Some(&body) = outer.regions.get(1) else { return };
            for (i, &value) in data.operands.iter().skip(1).enumerate() {
                if let Some(&arg) = func.region(body).args.get(i) {
                    raise(&mut self.last_use, value, arg);
                }
                // What the loop defines itself is not written after its end; what comes from outside lives on under the result's name.
                if self.region_defining(func, value) != self.region_of[op.index()]
                    && let Some(&result) = outer.results.get(i)
                {
                    raise(&mut self.last_use, value, result);
                }
            }
            return;
        }
        if aliases(data.code)
            && let Some(&result) = data.results.first()
            && !(data.code == Opcode::PtrAdd && self.only_yielded(result))
        {
            for &operand in &data.operands {
                raise(&mut self.last_use, operand, result);
            }
        }
    }

    fn region_defining(&self, func: &Func, value: Value) -> Option<Region> {
        match func.value(value).def {
            Def::Arg(region, _) => Some(region),
            Def::Result(op, _) => self.region_of[op.index()],
        }
    }

    /// Is the value read at all?
    pub(crate) fn is_used(&self, value: Value) -> bool {
        self.uses.count(value) > 0
    }

    /// Is the only reader the `yield` at the end of a region?
    pub(crate) fn only_yielded(&self, value: Value) -> bool {
        self.only_yielded[value.index()]
    }

    /// Can `yielded`, handed over at the end of `region`, be computed right into the registers of its result? There it
    /// overwrites `carried`, which holds the value of this round, if there is one.
    pub(crate) fn can_write_early(
        &self,
        func: &Func,
        region: Region,
        yielded: Value,
        carried: Option<Value>,
    ) -> bool {
        let Some(op) = func.def_op(yielded) else { return false };
        let data = func.op(op);
        let here = self.only_yielded(yielded) && self.region_of[op.index()] == Some(region);
        if !here || (aliases(data.code) && data.code != Opcode::PtrAdd) {
            return false;
        }
        let Some(carried) = carried else { return true };
        let (last, own) = (self.last_use[carried.index()], self.position[op.index()]);
        // A vector in the registers of another value, at other positions, would be overwritten element by element while it is read.
        let shuffled = |value: Value| func.def_op(value).is_some_and(|def| aliases(func.op(def).code));
        last < own
            || (last == own
                && in_place(data.code)
                && (data.code == Opcode::Mma || !data.operands.iter().any(|&v| v != carried && shuffled(v))))
    }

    /// Can the vector that `read` takes from an accumulator stay in its registers: does nobody write them while it is in use?
    pub(crate) fn can_stay(&self, func: &Func, read: Op) -> bool {
        let data = func.op(read);
        let (Some(accumulator), Some(result)) = (data.operands.first(), data.results.first()) else {
            return false;
        };
        let (from, to) = (self.position[read.index()], self.last_use[result.index()]);
        let writes = self.writes.get(accumulator).map(Vec::as_slice).unwrap_or_default();
        !writes.iter().any(|&at| from < at && at <= to)
    }
}
