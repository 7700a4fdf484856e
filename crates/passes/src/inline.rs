//! `inline`: calls become the body of the function they call.
//!
//! ```text
//! func @k (%p: ptr<global>, %x: f32) {          func @k (%p: ptr<global>, %x: f32) {
//!   %0 = call %x text("square") : f32             %0 = mul %x, %x : f32
//!   store %p, %0                            →     store %p, %0
//! }                                             }
//! func @square (%a: f32) -> f32 { ... }
//! ```
//!
//! All calls go, innermost first, and with them the functions that were called: a kernel has no stack. Places in the source keep
//! the way they were reached: each call is a frame named after the function.
//!
//! Limits: recursion is an error. Shared memory that a function declares exists once for each call of it.

use std::collections::HashMap;

use smallvec::SmallVec;
use tilewright_ir::{Frame, Func, Loc, Module, Op, Opcode, Region, Type, Value};

use crate::PassError;
use crate::rewrite::Replacements;

/// The name of the pass.
pub const NAME: &str = "inline";

/// Runs the pass; true if anything changed.
///
/// # Errors
/// [`PassError::Recursion`] if a function calls itself on some way, [`PassError::BadCall`] if a call has no or another callee.
pub fn run(module: &mut Module) -> Result<bool, PassError> {
    let calls: Vec<Vec<usize>> =
        module.funcs.iter().map(|func| callees(module, func)).collect::<Result<_, _>>()?;
    if calls.iter().all(Vec::is_empty) {
        return Ok(false);
    }
    let mut order =
        Order { calls: &calls, state: vec![State::New; calls.len()], way: Vec::new(), done: Vec::new() };
    for i in 0..calls.len() {
        order.visit(i, module)?;
    }
    // Callees come first in this order, so each body that is copied has no calls left.
    for i in order.done {
        if calls[i].is_empty() {
            continue;
        }
        let mut caller = std::mem::replace(&mut module.funcs[i], Func::new(""));
        let with = Replacements::of(&caller);
        let body = caller.body();
        Inliner { module, caller: &mut caller, with }.region(body);
        module.funcs[i] = caller;
    }
    let mut called = vec![false; calls.len()];
    for &i in calls.iter().flatten() {
        called[i] = true;
    }
    let mut called = called.into_iter();
    module.funcs.retain(|_| !called.next().unwrap_or(false));
    Ok(true)
}

/// The functions that `func` calls, checked against the calls.
fn callees(module: &Module, func: &Func) -> Result<Vec<usize>, PassError> {
    let mut out = Vec::new();
    for op in func.walk() {
        let data = func.op(op);
        if data.code != Opcode::Call {
            continue;
        }
        let name = data.text().unwrap_or("");
        let bad =
            |problem| PassError::BadCall { caller: func.name.clone(), callee: name.to_owned(), problem };
        let Some(i) = module.funcs.iter().position(|f| f.name == name) else {
            return Err(bad("the module does not have"));
        };
        let callee = &module.funcs[i];
        let types = |func: &Func, values: &[Value]| {
            values.iter().map(|&v| func.ty(v)).collect::<SmallVec<[Type; 8]>>()
        };
        let returned = callee.terminator(callee.body()).map_or(0, |end| callee.op(end).operands.len());
        if types(func, &data.operands) != types(callee, &callee.region(callee.body()).args)
            || types(func, &data.results)[..] != callee.results[..]
            || returned != callee.results.len()
        {
            return Err(bad("has another signature"));
        }
        if !out.contains(&i) {
            out.push(i);
        }
    }
    Ok(out)
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}

struct Order<'a> {
    calls: &'a [Vec<usize>],
    state: Vec<State>,
    way: Vec<usize>,
    done: Vec<usize>,
}

impl Order<'_> {
    fn visit(&mut self, i: usize, module: &Module) -> Result<(), PassError> {
        match self.state[i] {
            State::Done => return Ok(()),
            State::Open => {
                let start = self.way.iter().position(|&k| k == i).unwrap_or(0);
                let cycle = self.way[start..].iter().chain([&i]).map(|&k| module.funcs[k].name.clone());
                return Err(PassError::Recursion { cycle: cycle.collect() });
            }
            State::New => {}
        }
        self.state[i] = State::Open;
        self.way.push(i);
        for &callee in &self.calls[i] {
            self.visit(callee, module)?;
        }
        self.way.pop();
        self.state[i] = State::Done;
        self.done.push(i);
        Ok(())
    }
}

struct Inliner<'a> {
    module: &'a Module,
    caller: &'a mut Func,
    with: Replacements,
}

impl Inliner<'_> {
    fn region(&mut self, region: Region) {
        let ops = std::mem::take(&mut self.caller.region_mut(region).ops);
        let mut out = Vec::with_capacity(ops.len());
        for op in ops {
            self.with.apply(self.caller, op);
            let data = self.caller.op(op);
            if data.code == Opcode::Call {
                self.call(op, &mut out);
                continue;
            }
            for inner in data.regions.clone() {
                self.region(inner);
            }
            out.push(op);
        }
        self.caller.region_mut(region).ops = out;
    }

    fn call(&mut self, op: Op, out: &mut Vec<Op>) {
        let data = self.caller.op(op).clone();
        let Some(callee) = data.text().and_then(|name| self.module.func(name)) else { return };
        let frame = self.caller.locations.add_frame(&callee.name, data.loc);
        let mut copy = Copy {
            caller: self.caller,
            callee,
            values: vec![Value(u32::MAX); callee.value_count()],
            frames: HashMap::new(),
            frame,
        };
        for (&arg, &operand) in callee.region(callee.body()).args.iter().zip(&data.operands) {
            copy.values[arg.index()] = operand;
        }
        let mut returned: SmallVec<[Value; 4]> = SmallVec::new();
        for &inner in &callee.region(callee.body()).ops {
            let data = callee.op(inner);
            if data.code == Opcode::Return {
                returned = data.operands.iter().map(|&v| copy.values[v.index()]).collect();
            } else {
                let new = copy.op(inner);
                out.push(new);
            }
        }
        for (&result, value) in data.results.iter().zip(returned) {
            self.with.set(result, value);
        }
    }
}

struct Copy<'a> {
    caller: &'a mut Func,
    callee: &'a Func,
    values: Vec<Value>,
    frames: HashMap<Frame, Frame>,
    frame: Frame,
}

impl Copy<'_> {
    fn op(&mut self, op: Op) -> Op {
        let data = self.callee.op(op);
        let operands: SmallVec<[Value; 8]> = data.operands.iter().map(|&v| self.values[v.index()]).collect();
        let types: SmallVec<[Type; 4]> = data.results.iter().map(|&v| self.callee.ty(v)).collect();
        let loc = self.loc(data.loc);
        let new = self.caller.new_op(data.code, operands, data.attrs.iter().cloned(), types, loc);
        for (&old, &fresh) in data.results.iter().zip(&self.caller.op(new).results) {
            self.values[old.index()] = fresh;
        }
        for &region in &data.regions {
            let target = self.caller.new_region(new);
            for &arg in &self.callee.region(region).args {
                self.values[arg.index()] = self.caller.add_arg(target, self.callee.ty(arg));
            }
            let ops = self.callee.region(region).ops.iter().map(|&inner| self.op(inner)).collect();
            self.caller.region_mut(target).ops = ops;
        }
        new
    }

    fn loc(&mut self, loc: Loc) -> Loc {
        let Copy { caller, callee, frames, frame, .. } = self;
        caller.locations.import(&callee.locations, loc, frames, *frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_ir::parse;

    #[test]
    fn calls_that_do_not_fit_are_refused() {
        for (text, problem) in [
            ("func @k () { call text(\"f\") }", "which the module does not have"),
            ("func @k () { call text(\"f\") } func @f (%x: u32) { }", "which has another signature"),
            (
                "func @k () { call text(\"f\") } func @f () -> u32 { %0 = const value(1) : u32 return %0 }",
                "which has another",
            ),
        ] {
            let error = run(&mut parse(text).unwrap()).unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn a_function_that_calls_itself_is_a_cycle_of_one() {
        let mut module = parse("func @k () { call text(\"k\") }").unwrap();
        assert_eq!(run(&mut module), Err(PassError::Recursion { cycle: vec!["k".into(), "k".into()] }));
    }
}
