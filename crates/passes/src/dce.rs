//! `dce`: what nobody needs goes.
//!
//! ```text
//! %0, %1 = for %lo, %hi, %one, %a, %b : f32, u32 do {      %0 = for %lo, %hi, %one, %a : f32 do {
//!   (%2: u32, %3: f32, %4: u32)                              (%1: u32, %2: f32)
//!   %5 = add %4, %2 : u32                             →      %3 = add %2, %2 : f32
//!   %6 = add %3, %3 : f32                                    yield %3
//!   yield %6, %5                                           }
//! }                                                        store %p, %0
//! store %p, %0
//! ```
//!
//! Marks from the ops that do something (writes, orders, stops) backwards through operands, then rebuilds: ops without a mark go, and
//! with them results of `if` and values carried by loops, also those that only feed themselves. An `if`, and a `for`, in which nothing
//! marked is left goes as a whole; a `while` stays, for it might not end, and so does a `role`, for it sets registers. Loads go when nobody uses them, unless they have
//! a memory order.
//!
//! Limits: stores to memory that nobody reads stay. A `map`, `tile_reduce` or `tile_scan` stays with all its results or goes.

use tilewright_ir::{Cache, Def, Func, Group, Op, OpData, Opcode, Region, Value};

use crate::context::Context;
use crate::effects::is_ordered;
use crate::rewrite::{Replacements, without_slots};

/// The name of the pass.
pub const NAME: &str = "dce";

/// Runs the pass; true if anything changed.
pub fn run(func: &mut Func, _cx: &mut Context) -> bool {
    let mut marks = Marks {
        func,
        values: vec![false; func.value_count()],
        ops: vec![false; func.op_count()],
        work: Vec::new(),
    };
    marks.roots(func.body());
    marks.spread();
    let Marks { values, ops, .. } = marks;
    let with = Replacements::of(func);
    let mut sweep = Sweep { func, values, ops, with, renamed: false, changed: false };
    sweep.region(sweep.func.body());
    sweep.changed
}

struct Marks<'a> {
    func: &'a Func,
    values: Vec<bool>,
    ops: Vec<bool>,
    work: Vec<Value>,
}

impl Marks<'_> {
    /// Marks ops that must stay whatever their results are; true if the region has any.
    fn roots(&mut self, region: Region) -> bool {
        let func = self.func;
        let mut any = false;
        for &op in &func.region(region).ops {
            let data = func.op(op);
            let stays = match data.code {
                Opcode::Yield | Opcode::Condition => false,
                _ if !data.regions.is_empty() => {
                    let mut inside = matches!(data.code, Opcode::While | Opcode::Role);
                    for &inner in &data.regions {
                        inside |= self.roots(inner);
                    }
                    inside
                }
                // Places: needed only by those who use them.
                Opcode::Shared | Opcode::Local | Opcode::MakeAccumulator => false,
                _ => {
                    !data.info().is_removable()
                        || is_ordered(data)
                        || data.get::<Cache>() == Some(Cache::Volatile)
                }
            };
            if stays {
                any = true;
                self.keep(op);
            }
        }
        any
    }

    /// Marks an op and what it takes to execute it.
    fn keep(&mut self, op: Op) {
        if std::mem::replace(&mut self.ops[op.index()], true) {
            return;
        }
        let func = self.func;
        let data = func.op(op);
        match data.code {
            // Carried values are needed one by one.
            Opcode::For => data.operands[..3].iter().for_each(|&v| self.need(v)),
            Opcode::If => self.need(data.operands[0]),
            Opcode::While => {
                if let Some(end) = func.terminator(data.regions[0]) {
                    self.need(func.op(end).operands[0]);
                }
            }
            _ => data.operands.iter().for_each(|&v| self.need(v)),
        }
        if works_on_elements(data) {
            let ends = data.regions.iter().filter_map(|&region| func.terminator(region));
            ends.for_each(|end| func.op(end).operands.iter().for_each(|&v| self.need(v)));
        }
    }

    fn need(&mut self, value: Value) {
        if !std::mem::replace(&mut self.values[value.index()], true) {
            self.work.push(value);
        }
    }

    fn spread(&mut self) {
        while let Some(value) = self.work.pop() {
            match self.func.value(value).def {
                Def::Result(op, i) => {
                    self.keep(op);
                    self.result(op, i as usize);
                }
                Def::Arg(region, i) => self.argument(region, i as usize),
            }
        }
    }

    fn handed_over(&mut self, region: Region, i: usize) {
        if let Some(end) = self.func.terminator(region) {
            self.need(self.func.op(end).operands[i]);
        }
    }

    /// A result is needed, so are its sources inside the regions.
    fn result(&mut self, op: Op, i: usize) {
        let func = self.func;
        let data = func.op(op);
        match data.code {
            Opcode::If => data.regions.iter().for_each(|&arm| self.handed_over(arm, i)),
            Opcode::For => {
                self.need(data.operands[3 + i]);
                self.handed_over(data.regions[0], i);
            }
            Opcode::While => self.handed_over(data.regions[0], i + 1),
            _ => {}
        }
    }

    fn argument(&mut self, region: Region, i: usize) {
        let func = self.func;
        let Some(op) = func.region(region).parent else { return };
        self.keep(op);
        let data = func.op(op);
        match data.code {
            Opcode::For if i > 0 => {
                self.need(data.operands[2 + i]);
                self.handed_over(region, i - 1);
            }
            Opcode::While if region == data.regions[0] => {
                self.need(data.operands[i]);
                self.handed_over(data.regions[1], i);
            }
            Opcode::While => self.handed_over(data.regions[0], i + 1),
            _ => {}
        }
    }
}

/// The op has a region for the elements of tiles: each of its results needs all of that region.
fn works_on_elements(data: &OpData) -> bool {
    data.info().group == Group::Program && !data.regions.is_empty()
}

struct Sweep<'a> {
    func: &'a mut Func,
    values: Vec<bool>,
    ops: Vec<bool>,
    with: Replacements,
    /// Has a loop been rebuilt, so that operands need a look?
    renamed: bool,
    changed: bool,
}

impl Sweep<'_> {
    fn needed(&self, value: Value) -> bool {
        self.values[value.index()]
    }

    fn region(&mut self, region: Region) {
        let ops = std::mem::take(&mut self.func.region_mut(region).ops);
        let mut out = Vec::with_capacity(ops.len());
        for &op in &ops {
            let row = self.func.op(op).info();
            if !self.ops[op.index()] && !matches!(row.code, Opcode::Yield | Opcode::Condition) {
                continue;
            }
            if self.renamed {
                self.with.apply(self.func, op);
            }
            if row.regions.is_empty() {
                out.push(op);
                continue;
            }
            let op = if works_on_elements(self.func.op(op)) { op } else { self.slots(op) };
            for inner in self.func.op(op).regions.clone() {
                self.region(inner);
            }
            out.push(op);
        }
        self.changed |= out.len() != ops.len();
        self.func.region_mut(region).ops = out;
    }

    /// Drops the slots of a region op that nobody needs.
    fn slots(&mut self, op: Op) -> Op {
        let data = self.func.op(op);
        let results: Vec<bool> = match data.code {
            // The body takes what the test passes on: needed there or after the loop.
            Opcode::While => {
                let inner = &self.func.region(data.regions[1]).args;
                data.results.iter().zip(inner).map(|(&r, &a)| self.needed(r) || self.needed(a)).collect()
            }
            Opcode::For => {
                let inner = &self.func.region(data.regions[0]).args[1..];
                data.results.iter().zip(inner).map(|(&r, &a)| self.needed(r) || self.needed(a)).collect()
            }
            _ => data.results.iter().map(|&r| self.needed(r)).collect(),
        };
        let carried: Vec<bool> = match data.code {
            Opcode::While => self.func.region(data.regions[0]).args.iter().map(|&a| self.needed(a)).collect(),
            Opcode::For => results.clone(),
            _ => Vec::new(),
        };
        if results.iter().chain(&carried).all(|&kept| kept) {
            return op;
        }
        self.changed = true;
        self.renamed = true;
        without_slots(self.func, op, &|i| carried[i], &|i| results[i], &mut self.with)
    }
}
