//! `cse`: what has been computed is not computed again.
//!
//! ```text
//! %0 = mul_wide %i, %four : u64          %0 = mul_wide %i, %four : u64
//! %1 = ptr_add %x, %0 : ptr<global>      %1 = ptr_add %x, %0 : ptr<global>
//! %2 = mul_wide %i, %four : u64    →     %2 = ptr_add %y, %0 : ptr<global>
//! %3 = ptr_add %y, %2 : ptr<global>
//! ```
//!
//! An op is dropped for an equal one (same op, operands, attributes, types) of the same region or one around it. Loads count as equal
//! while nothing that may meet their memory is written and nothing orders accesses; a loop that writes somewhere in its body
//! has written when the body starts. Ops that involve other threads are merged within one region only. A half that is widened to f32 is
//! widened again after a barrier rather than kept in twice the register.
//!
//! Limits: no forwarding from stores to loads; commutative ops must have their operands in the same order ([`fold`](crate::fold) puts
//! constants to the right).

use std::hash::{Hash, Hasher};

use tilewright_ir::{Element, Func, Op, OpData, Opcode, Region, Type, Value};

use crate::context::Context;
use crate::effects::{Effect, Memory, effects, is_plain_load, load_memory};
use crate::rewrite::Replacements;

/// The name of the pass.
pub const NAME: &str = "cse";

/// Runs the pass; true if anything changed.
pub fn run(func: &mut Func, _cx: &mut Context) -> bool {
    let effects = effects(func);
    let with = Replacements::of(func);
    let size = func.op_count().next_power_of_two().max(16);
    let mut cse =
        Cse { func, effects, with, table: Table::new(size), written: [0; 8], now: 1, changed: false };
    cse.region(cse.func.body(), Effect::default());
    cse.changed
}

struct Cse<'a> {
    func: &'a mut Func,
    effects: Vec<Effect>,
    with: Replacements,
    table: Table,
    /// For each memory, when it was written last.
    written: [u32; 8],
    /// Counts writes.
    now: u32,
    changed: bool,
}

/// A hash table that forgets what was entered last, region by region.
struct Table {
    heads: Vec<u32>,
    entries: Vec<Entry>,
}

struct Entry {
    hash: u64,
    op: Op,
    region: Region,
    /// For loads: the time at which they were executed.
    time: u32,
    next: u32,
}

impl Table {
    fn new(size: usize) -> Table {
        Table { heads: vec![u32::MAX; size], entries: Vec::with_capacity(size / 2) }
    }

    fn slot(&self, hash: u64) -> usize {
        // The high bits of a multiplicative hash are the good ones.
        usize::try_from(hash >> 32).unwrap_or(0) & (self.heads.len() - 1)
    }

    fn find(&self, hash: u64, mut same: impl FnMut(&Entry) -> bool) -> Option<Op> {
        let mut at = self.heads[self.slot(hash)];
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.hash == hash && same(entry) {
                return Some(entry.op);
            }
            at = entry.next;
        }
        None
    }

    fn insert(&mut self, hash: u64, op: Op, region: Region, time: u32) {
        let slot = self.slot(hash);
        let next =
            std::mem::replace(&mut self.heads[slot], u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.push(Entry { hash, op, region, time, next });
    }

    fn forget(&mut self, length: usize) {
        while self.entries.len() > length {
            if let Some(entry) = self.entries.pop() {
                let slot = self.slot(entry.hash);
                self.heads[slot] = entry.next;
            }
        }
    }
}

/// A quick hash for small keys; nobody chooses them to collide.
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Cse<'_> {
    /// `entry` is what may happen before the region starts: for a loop, everything it does.
    fn region(&mut self, region: Region, entry: Effect) {
        self.write(entry.writes);
        let mark = self.table.entries.len();
        let mut ops = std::mem::take(&mut self.func.region_mut(region).ops);
        ops.retain(|&op| self.op(op, region));
        self.func.region_mut(region).ops = ops;
        self.table.forget(mark);
    }

    /// Visits an op; false if it is dropped.
    fn op(&mut self, op: Op, region: Region) -> bool {
        self.with.apply(self.func, op);
        let data = self.func.op(op);
        let row = data.info();
        if !data.regions.is_empty() {
            let regions = data.regions.clone();
            let repeats = matches!(data.code, Opcode::For | Opcode::While);
            let entry = if repeats { self.effects[op.index()] } else { Effect::default() };
            for inner in regions {
                self.region(inner, entry);
            }
            return true;
        }
        let load = is_plain_load(data);
        let pure = row.is_pure();
        let convergent =
            !pure && row.is_convergent() && row.is_removable() && row.effects.accesses.is_empty();
        if !(pure || load || convergent) {
            let effect = self.effects[op.index()];
            self.write(effect.writes);
            return true;
        }
        let hash = hash(self.func, data);
        let since = if load {
            self.last_write(load_memory(self.func, data))
        } else if is_cheap_widening(self.func, data) {
            self.written.iter().copied().max().unwrap_or(0)
        } else {
            0
        };
        let known = self.table.find(hash, |entry| {
            entry.time >= since
                && (!convergent || entry.region == region)
                && equal(self.func, self.func.op(entry.op), data)
        });
        let Some(known) = known else {
            self.table.insert(hash, op, region, self.now);
            return true;
        };
        self.changed = true;
        for i in 0..self.func.op(op).results.len() {
            let (from, to) = (self.func.op(op).results[i], self.func.op(known).results[i]);
            self.with.set(from, to);
        }
        false
    }

    fn write(&mut self, memory: Memory) {
        if memory == Memory::NONE {
            return;
        }
        self.now += 1;
        for (i, time) in self.written.iter_mut().enumerate() {
            if memory.0 >> i & 1 == 1 {
                *time = self.now;
            }
        }
    }

    fn last_write(&self, memory: Memory) -> u32 {
        let times = self.written.iter().enumerate();
        times.filter(|(i, _)| memory.0 >> i & 1 == 1).map(|(_, &time)| time).max().unwrap_or(0)
    }
}

/// A half that becomes an f32 costs one instruction, and twice the register for as long as it lives.
fn is_cheap_widening(func: &Func, data: &OpData) -> bool {
    let element = |value: Value| func.ty(value).element();
    data.code == Opcode::Cvt
        && data.attrs.is_empty()
        && matches!(element(data.operands[0]), Some(Element::F16 | Element::BF16))
        && data.results.first().is_some_and(|&result| func.ty(result) == Type::F32)
}

fn hash(func: &Func, data: &OpData) -> u64 {
    let mut mix = Mix(data.code as u64);
    for &operand in &data.operands {
        mix.write_u32(operand.0);
    }
    for attr in &data.attrs {
        attr.value.hash(&mut mix);
    }
    if let Some(&result) = data.results.first() {
        func.ty(result).hash(&mut mix);
    }
    mix.finish()
}

fn equal(func: &Func, a: &OpData, b: &OpData) -> bool {
    a.code == b.code
        && a.operands == b.operands
        && a.attrs == b.attrs
        && a.results.len() == b.results.len()
        && a.results.iter().zip(&b.results).all(|(&x, &y)| func.ty(x) == func.ty(y))
}
