//! `licm`: what is the same in every round of a loop is computed once, before it.
//!
//! ```text
//! for %lo, %hi, %one do {               %0 = mul %a, %b : u32
//!   (%i: u32)                           for %lo, %hi, %one do {
//!   %0 = mul %a, %b : u32         →       (%i: u32)
//!   %1 = add %0, %i : u32                 %1 = add %0, %i : u32
//!   ...                                   ...
//! ```
//!
//! Moves pure ops that no other thread takes part in, out of as many loops as their operands allow, in one forward walk. Such an op may
//! then be executed although the loop has no round; nobody can tell. A load moves only out of a loop that is known to go round at
//! least once (or out of the test of a `while`), that cannot stop the program, and that neither writes what the load may
//! read nor orders accesses; a load through the read-only path needs the first two alone.
//!
//! What stands behind an inner loop stays there if it is much: moved in front, it would take registers while the inner loop goes round, to save
//! work that is done once for all of its rounds.
//!
//! Limits: only what stands directly in a loop moves, not what an `if` in the loop holds; register pressure is not looked at otherwise.

use std::collections::HashSet;

use tilewright_ir::{Element, Func, Op, OpData, Opcode, Region, Value};

use crate::context::Context;
use crate::effects::{Effect, effects, is_plain_load, load_memory};
use crate::rewrite::constant;

/// The name of the pass.
pub const NAME: &str = "licm";

/// Runs the pass; true if anything changed.
pub fn run(func: &mut Func, _cx: &mut Context) -> bool {
    let effects = effects(func);
    let level = vec![0; func.value_count()];
    let mut licm = Licm { func, effects, level, stack: Vec::new(), changed: false };
    licm.region(licm.func.body(), None, true);
    licm.changed
}

struct Licm<'a> {
    func: &'a mut Func,
    effects: Vec<Effect>,
    /// How deep the region is that holds the definition of a value.
    level: Vec<u32>,
    stack: Vec<Frame>,
    changed: bool,
}

/// A region on the way from the body to here.
struct Frame {
    out: Vec<Op>,
    /// The loop whose region this is.
    repeats: Option<Op>,
    /// Is this executed whenever the loop is?
    always: bool,
    /// Ops that stay although they could move.
    stay: HashSet<Op>,
}

/// Values from behind an inner loop that may wait in registers while it goes round.
const LATE: usize = 64;

impl Licm<'_> {
    fn region(&mut self, region: Region, repeats: Option<Op>, always: bool) {
        let ops = std::mem::take(&mut self.func.region_mut(region).ops);
        let depth = depth(self.stack.len());
        for &arg in &self.func.region(region).args {
            self.level[arg.index()] = depth;
        }
        let stay = if repeats.is_some() { self.late(region, &ops) } else { HashSet::new() };
        self.stack.push(Frame { out: Vec::with_capacity(ops.len()), repeats, always, stay });
        for op in ops {
            self.op(op);
        }
        if let Some(frame) = self.stack.pop() {
            self.func.region_mut(region).ops = frame.out;
        }
    }

    fn op(&mut self, op: Op) {
        let data = self.func.op(op);
        let here = self.stack.len() - 1;
        if !data.regions.is_empty() {
            let code = data.code;
            let runs = code == Opcode::For && goes_round(self.func, data);
            for (i, region) in data.regions.clone().into_iter().enumerate() {
                let repeats = matches!(code, Opcode::For | Opcode::While).then_some(op);
                self.region(region, repeats, runs || (code == Opcode::While && i == 0));
            }
        }
        let data = self.func.op(op);
        let mut target = here;
        if (data.info().is_pure() || is_plain_load(data)) && !self.stack[here].stay.contains(&op) {
            let deepest = data.operands.iter().map(|&v| self.level[v.index()]).max().unwrap_or(0) as usize;
            let load = !data.info().is_pure();
            while target > deepest && self.leaves(target, load.then_some(data)) {
                target -= 1;
            }
        }
        for &result in &self.func.op(op).results {
            self.level[result.index()] = depth(target);
        }
        self.changed |= target != here;
        self.stack[target].out.push(op);
    }

    /// Of the ops of a loop: those behind an inner loop that carries values, which could move in front of both, if they are too many.
    fn late(&self, region: Region, ops: &[Op]) -> HashSet<Op> {
        // Loops that carry nothing, such as copies, leave registers free.
        let is_crowded = |op: &Op| {
            let data = self.func.op(*op);
            matches!(data.code, Opcode::For | Opcode::While) && !data.results.is_empty()
        };
        let Some(first) = ops.iter().position(is_crowded) else { return HashSet::new() };
        // Values of this region that change; all others come from outside or could.
        let mut own: HashSet<Value> = self.func.region(region).args.iter().copied().collect();
        let mut late: HashSet<Op> = HashSet::new();
        let mut kept: HashSet<Value> = HashSet::new();
        for (i, &op) in ops.iter().enumerate() {
            let data = self.func.op(op);
            let changes = data.operands.iter().any(|value| own.contains(value));
            if data.info().is_pure() && data.regions.is_empty() && !changes {
                if i > first {
                    late.insert(op);
                }
                continue;
            }
            own.extend(&data.results);
            let used = |value: &&Value| self.func.def_op(**value).is_some_and(|by| late.contains(&by));
            kept.extend(data.operands.iter().filter(used));
        }
        if kept.len() > LATE { late } else { HashSet::new() }
    }

    /// May an op leave the region at this depth for the one around it?
    fn leaves(&self, at: usize, load: Option<&OpData>) -> bool {
        let frame = &self.stack[at];
        let Some(repeats) = frame.repeats else { return false };
        let Some(load) = load else { return true };
        let inside = self.effects[repeats.index()];
        frame.always && !inside.stops && !inside.writes.meets(load_memory(self.func, load))
    }
}

fn depth(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Is a `for` known to go round at least once?
fn goes_round(func: &Func, data: &OpData) -> bool {
    let signed = func.ty(data.operands[0]).element().is_some_and(Element::is_signed);
    match (constant(func, data.operands[0]), constant(func, data.operands[1])) {
        (Some(lower), Some(upper)) if signed => lower.cast_signed() < upper.cast_signed(),
        (Some(lower), Some(upper)) => lower < upper,
        _ => false,
    }
}
