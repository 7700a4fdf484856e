//! Tools that rewrites share: replacements of values, and loops with fewer carried values.
//!
//! In structured SSA every use stands after its definition in the order of the text. So a pass walks forward once, replaces operands
//! as it meets them, and never has to sweep the function for uses.

use smallvec::SmallVec;
use tilewright_ir::{Attribute, Constant, Func, Loc, Op, OpData, Opcode, Region, Type, Value};

/// Which value stands for which. Values without an entry stand for themselves.
#[derive(Debug, Default)]
pub(crate) struct Replacements(Vec<u32>);

impl Replacements {
    pub(crate) fn of(func: &Func) -> Replacements {
        Replacements(vec![u32::MAX; func.value_count()])
    }

    /// From now on `to` stands for `from`.
    pub(crate) fn set(&mut self, from: Value, to: Value) {
        if from.index() >= self.0.len() {
            self.0.resize(from.index() + 1, u32::MAX);
        }
        self.0[from.index()] = to.0;
    }

    pub(crate) fn get(&self, mut value: Value) -> Value {
        while let Some(&to) = self.0.get(value.index())
            && to != u32::MAX
        {
            value = Value(to);
        }
        value
    }

    /// Replaces the operands of an op.
    pub(crate) fn apply(&self, func: &mut Func, op: Op) {
        for operand in &mut func.op_mut(op).operands {
            *operand = self.get(*operand);
        }
    }
}

/// The bits of a value that a `const` defines.
pub(crate) fn constant(func: &Func, value: Value) -> Option<u64> {
    let data = func.op(func.def_op(value)?);
    if data.code != Opcode::Const {
        return None;
    }
    data.get::<Constant>().map(Attribute::encode)
}

/// A new `const`, appended to a list of ops.
pub(crate) fn new_constant(func: &mut Func, out: &mut Vec<Op>, ty: Type, bits: u64, loc: Loc) -> Value {
    new_value(func, out, Opcode::Const, &[], &[Constant(bits).into()], ty, loc)
}

/// A new op with one result, appended to a list of ops.
pub(crate) fn new_value(
    func: &mut Func,
    out: &mut Vec<Op>,
    code: Opcode,
    operands: &[Value],
    attrs: &[tilewright_ir::Attr],
    ty: Type,
    loc: Loc,
) -> Value {
    let op = func.new_op(code, operands.iter().copied(), attrs.iter().cloned(), [ty], loc);
    out.push(op);
    // The op was made with one result just now.
    func.op(op).results[0]
}

/// The op that defines a value, with its data.
pub(crate) fn definition(func: &Func, value: Value) -> Option<&OpData> {
    func.def_op(value).map(|op| func.op(op))
}

/// A copy of a `for`, `while` or `if` without some of its values. The regions' ops move over; `with` learns the new results and
/// arguments, so the caller must still walk the regions to apply it.
///
/// `carried` are the slots of operands, arguments and `yield` of a loop; `results` those of results, and for a `while` of what
/// `condition` passes on. A `for` takes `carried` for both, an `if` uses `results` alone.
pub(crate) fn without_slots(
    func: &mut Func,
    op: Op,
    carried: &dyn Fn(usize) -> bool,
    results: &dyn Fn(usize) -> bool,
    with: &mut Replacements,
) -> Op {
    let data = func.op(op).clone();
    let fixed = match data.code {
        Opcode::For => 3,
        Opcode::If => 1,
        _ => 0,
    };
    let kept_operands = data.operands.iter().enumerate();
    let kept_operands = kept_operands.filter(|&(i, _)| i < fixed || carried(i - fixed)).map(|(_, &v)| v);
    let kept_operands: SmallVec<[Value; 8]> = kept_operands.collect();
    let kept_results: SmallVec<[Value; 8]> = filter(&data.results, results);
    let types: SmallVec<[Type; 8]> = kept_results.iter().map(|&v| func.ty(v)).collect();
    let new = func.new_op(data.code, kept_operands, data.attrs.iter().cloned(), types, data.loc);
    for (i, old) in kept_results.into_iter().enumerate() {
        let result = func.op(new).results[i];
        with.set(old, result);
    }
    for (which, &old) in data.regions.iter().enumerate() {
        // In a `while` the second region takes what the first passes on, in a `for` the counter comes first.
        let region = func.new_region(new);
        let keep_arg = |i: usize| match (data.code, which) {
            (Opcode::For, _) => i == 0 || carried(i - 1),
            (Opcode::While, 0) => carried(i),
            _ => results(i),
        };
        let args: SmallVec<[Value; 8]> = filter(&func.region(old).args, &keep_arg);
        for arg in args {
            let ty = func.ty(arg);
            let fresh = func.add_arg(region, ty);
            with.set(arg, fresh);
        }
        adopt(func, old, region);
        if let Some(end) = func.terminator(region) {
            let condition = func.op(end).code == Opcode::Condition;
            let keep = |i: usize| match data.code {
                Opcode::While if condition => i == 0 || results(i - 1),
                Opcode::If => results(i),
                _ => carried(i),
            };
            let operands: SmallVec<[Value; 4]> = filter(&func.op(end).operands, &keep);
            func.op_mut(end).operands = operands;
        }
    }
    new
}

fn filter<const N: usize>(values: &[Value], keep: &dyn Fn(usize) -> bool) -> SmallVec<[Value; N]> {
    values.iter().enumerate().filter(|&(i, _)| keep(i)).map(|(_, &v)| v).collect()
}

/// Moves the ops of one region to another.
fn adopt(func: &mut Func, from: Region, to: Region) {
    let ops = std::mem::take(&mut func.region_mut(from).ops);
    func.region_mut(to).ops = ops;
}
