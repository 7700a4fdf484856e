//! Which parameters may flow into which registers, and what becomes of them.
//!
//! The order of instructions does not count: the set of a register only grows. Registers are not in static single
//! assignment, so that one may hold a pointer here and an index there; its set then has both.
//!
//! A sum of two parameters is the difficulty: which is the pointer, and which the index? A parameter is *known* to
//! point if it is declared so, or is the only one in some address. A register is *pure* if whatever is assigned to it is
//! a known pointer, or one plus an index. What is added to a pure register and holds no known pointer itself is an index
//! and is dropped; in any other sum both sides are kept. New knowledge makes new registers pure, so this repeats.

use std::collections::VecDeque;

use super::effect::{Definition, Effects, Source, Use};
use super::family::Mode;
use super::{Facts, PointerSpace, may_point};
use crate::ast::{Function, Module};

/// The effects of a kernel, with what they need to know of its parameters.
pub(super) struct Flow {
    effects: Effects,
    /// Declared as pointers.
    declared: Vec<bool>,
    /// Can hold a pointer.
    candidates: Vec<bool>,
    /// For each register, the definitions that use it.
    users: Vec<Vec<usize>>,
}

impl Flow {
    pub(super) fn of(module: &Module, kernel: &Function) -> Flow {
        let effects = Effects::of(module, kernel);
        let mut users = vec![Vec::new(); effects.registers as usize];
        for (index, definition) in effects.definitions.iter().enumerate() {
            for source in &definition.sources {
                if let Source::Register(register) = source {
                    users[*register as usize].push(index);
                }
            }
        }
        let declared = kernel.params.iter().map(|param| param.pointer.is_some()).collect();
        let candidates = kernel.params.iter().map(|param| may_point(param, module.address_size)).collect();
        Flow { effects, declared, candidates, users }
    }

    /// What becomes of each parameter.
    pub(super) fn facts(&self) -> Vec<Facts> {
        let mut known = self.declared.clone();
        loop {
            let state = State::new(self, &known);
            let news: Vec<usize> = state.alone().into_iter().filter(|&param| !known[param]).collect();
            if news.is_empty() {
                return state.facts();
            }
            news.into_iter().for_each(|param| known[param] = true);
        }
    }

    /// The registers that may hold something made of one of these parameters, or of the address of something.
    fn made_of(&self, params: &[bool]) -> Vec<bool> {
        let mut made = vec![false; self.users.len()];
        self.settle(|definition| {
            let new = definition.sources.iter().any(|&source| points(params, &made, source));
            new && !std::mem::replace(&mut made[definition.register as usize], true)
        });
        made
    }

    /// Runs definitions until nothing changes; `step` says whether it changed the register of its definition.
    fn settle(&self, mut step: impl FnMut(&Definition) -> bool) {
        let mut queue: VecDeque<usize> = (0..self.effects.definitions.len()).collect();
        let mut queued = vec![true; queue.len()];
        while let Some(index) = queue.pop_front() {
            queued[index] = false;
            let definition = &self.effects.definitions[index];
            if step(definition) {
                for &user in &self.users[definition.register as usize] {
                    if !std::mem::replace(&mut queued[user], true) {
                        queue.push_back(user);
                    }
                }
            }
        }
    }
}

/// What registers hold, under some knowledge of which parameters are pointers.
struct State<'f> {
    flow: &'f Flow,
    known: &'f [bool],
    /// Registers that may hold something made of a known pointer.
    pointing: Vec<bool>,
    /// Registers that may hold something made of a pointer, known or not.
    suspect: Vec<bool>,
    pure: Vec<bool>,
    /// Two rows a register: what it may hold, and what it may hold parts of.
    sets: Sets,
}

impl<'f> State<'f> {
    fn new(flow: &'f Flow, known: &'f [bool]) -> State<'f> {
        let pointing = flow.made_of(known);
        let suspect = flow.made_of(&flow.candidates);
        let mut state = State { flow, known, pointing, suspect, pure: Vec::new(), sets: Sets::default() };
        state.pure = state.find_pure();
        state.sets = state.fill();
        state
    }

    /// Starts with every register that is assigned and takes away, because a pointer that goes round a loop is pure only
    /// if it may be assumed to be.
    fn find_pure(&self) -> Vec<bool> {
        let mut pure = vec![false; self.pointing.len()];
        for definition in &self.flow.effects.definitions {
            pure[definition.register as usize] = true;
        }
        self.flow.settle(|definition| {
            let keeps = match definition.mode {
                Mode::Copy => definition.sources.iter().all(|&source| self.is_pure(&pure, source)),
                Mode::Sum => (0..definition.sources.len()).any(|at| self.is_base(&pure, definition, at)),
                // Two pointers apart is no pointer, but may lead from one to the other.
                Mode::Difference => match definition.sources[..] {
                    [from, taken] => {
                        self.is_pure(&pure, from) && !points(&self.flow.candidates, &self.suspect, taken)
                    }
                    _ => false,
                },
                Mode::Bits | Mode::Left => false,
            };
            !keeps && std::mem::replace(&mut pure[definition.register as usize], false)
        });
        pure
    }

    fn is_pure(&self, pure: &[bool], source: Source) -> bool {
        match source {
            Source::Register(register) => pure[register as usize],
            Source::Value { param, whole } => whole && self.known[param as usize],
            Source::Address(_) | Source::Variable => true,
            Source::Memory | Source::Number => false,
        }
    }

    /// Whether one source of a sum is a pointer and the others are not.
    fn is_base(&self, pure: &[bool], definition: &Definition, at: usize) -> bool {
        definition.sources.iter().enumerate().all(|(other, &source)| {
            if other == at { self.is_pure(pure, source) } else { !points(self.known, &self.pointing, source) }
        })
    }

    /// Whether a source is added to one that is a pointer.
    fn is_index(&self, definition: &Definition, at: usize) -> bool {
        definition.mode == Mode::Sum
            && (0..definition.sources.len())
                .any(|base| base != at && self.is_base(&self.pure, definition, base))
    }

    fn fill(&self) -> Sets {
        let mut sets = Sets::new(self.pointing.len() * 2, self.known.len() * 2 + 2);
        self.flow.settle(|definition| {
            let (whole, parts) = rows(definition.register);
            let mut changed = false;
            for (at, &source) in definition.sources.iter().enumerate() {
                if self.is_index(definition, at) {
                    continue;
                }
                let keep = if definition.mode == Mode::Bits { parts } else { whole };
                changed |= match (source, definition.mode) {
                    (Source::Register(register), Mode::Left) => sets.join(parts, rows(register).1),
                    (Source::Register(register), _) => {
                        let (from, from_parts) = rows(register);
                        sets.join(keep, from) | sets.join(parts, from_parts)
                    }
                    (Source::Value { whole: true, .. }, Mode::Left) => false,
                    (Source::Value { whole: false, .. }, _) => self.insert(&mut sets, parts, source),
                    _ => self.insert(&mut sets, keep, source),
                };
            }
            changed
        });
        sets
    }

    fn insert(&self, sets: &mut Sets, row: usize, source: Source) -> bool {
        self.bit(source).is_some_and(|bit| sets.insert(row, bit))
    }

    /// The member of the sets that stands for a source.
    fn bit(&self, source: Source) -> Option<usize> {
        let params = self.known.len();
        match source {
            Source::Value { param, .. } => Some(param as usize),
            Source::Address(param) => Some(params + param as usize),
            Source::Variable => Some(params * 2),
            Source::Memory => Some(params * 2 + 1),
            Source::Register(_) | Source::Number => None,
        }
    }

    fn holds(&self, source: Source, bit: usize) -> bool {
        match source {
            Source::Register(register) => {
                let (whole, parts) = rows(register);
                self.sets.contains(whole, bit) || self.sets.contains(parts, bit)
            }
            other => self.bit(other) == Some(bit),
        }
    }

    /// Parameters that are used as an address with nothing beside them that could be the pointer.
    fn alone(&self) -> Vec<usize> {
        let params = self.known.len();
        let mut alone = Vec::new();
        for &(source, used) in &self.flow.effects.uses {
            match used {
                // A number may well be an offset in shared memory or on the stack.
                Use::Access(_, PointerSpace::Shared | PointerSpace::Local)
                | Use::Cast(PointerSpace::Shared | PointerSpace::Local)
                | Use::Escape => continue,
                Use::Access(..) | Use::Cast(_) | Use::Tensor(_) => {}
            }
            let mut held = (0..params * 2 + 2).filter(|&bit| self.holds(source, bit));
            if let (Some(only), None) = (held.next(), held.next())
                && only < params
            {
                alone.push(only);
            }
        }
        alone
    }

    fn facts(&self) -> Vec<Facts> {
        let params = self.known.len();
        let mut facts: Vec<Facts> = vec![Facts::default(); params];
        for (param, facts) in facts.iter_mut().enumerate() {
            (facts.named, facts.points) = (self.flow.effects.named[param], self.known[param]);
        }
        for &(source, used) in &self.flow.effects.uses {
            for (param, facts) in facts.iter_mut().enumerate() {
                if self.holds(source, param) {
                    of_value(facts, self.flow.declared[param], used);
                }
                if self.holds(source, params + param) {
                    of_address(facts, used);
                }
            }
        }
        facts
    }
}

/// Whether a source is one of these parameters or registers, or the address of something.
fn points(params: &[bool], registers: &[bool], source: Source) -> bool {
    match source {
        Source::Register(register) => registers[register as usize],
        Source::Value { param, .. } => params[param as usize],
        Source::Address(_) | Source::Variable => true,
        Source::Memory | Source::Number => false,
    }
}

/// The value of a parameter is used.
fn of_value(facts: &mut Facts, declared: bool, used: Use) {
    match used {
        // A number may well be an offset in shared memory or on the stack.
        Use::Access(_, PointerSpace::Shared | PointerSpace::Local) if !declared => {}
        Use::Access(touch, space) => {
            facts.memory.add(touch);
            facts.address.push(space);
        }
        // The map itself is read; where it points is not ours to say.
        Use::Tensor(_) => {
            facts.memory.read = true;
            facts.address.push(PointerSpace::Generic);
        }
        Use::Cast(space) => facts.address.push(space),
        Use::Escape => facts.escapes = true,
    }
}

/// The address of a parameter is used.
fn of_address(facts: &mut Facts, used: Use) {
    match used {
        Use::Tensor(touch) => facts.tensor.get_or_insert_default().add(touch),
        Use::Access(..) | Use::Escape => facts.escapes = true,
        Use::Cast(_) => {}
    }
}

/// The rows of what a register may hold, and of what it may hold parts of.
fn rows(register: u32) -> (usize, usize) {
    (register as usize * 2, register as usize * 2 + 1)
}

/// Rows of bits.
#[derive(Default)]
struct Sets {
    words: usize,
    bits: Vec<u64>,
}

impl Sets {
    fn new(rows: usize, members: usize) -> Sets {
        let words = members.div_ceil(64);
        Sets { words, bits: vec![0; rows * words] }
    }

    fn insert(&mut self, row: usize, member: usize) -> bool {
        let word = &mut self.bits[row * self.words + member / 64];
        let before = *word;
        *word |= 1 << (member % 64);
        *word != before
    }

    fn contains(&self, row: usize, member: usize) -> bool {
        self.bits[row * self.words + member / 64] >> (member % 64) & 1 == 1
    }

    /// Adds the members of another row.
    fn join(&mut self, row: usize, from: usize) -> bool {
        let mut changed = false;
        for word in 0..self.words {
            let added = self.bits[from * self.words + word];
            let word = &mut self.bits[row * self.words + word];
            changed |= added & !*word != 0;
            *word |= added;
        }
        changed
    }
}
