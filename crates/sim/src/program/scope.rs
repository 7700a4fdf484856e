//! Names of a function: registers, variables and labels in nested blocks, where an inner one hides an outer one.
//!
//! A register gets its index when it is used first, so that `%r<10000>` costs nothing. Registers of vectors and of 128 bits are
//! consecutive. Labels are known in their whole block, also before they stand; other names from their declaration on.

use std::collections::HashMap;

use tilewright_ptx::{
    Names, RegisterName, Registers, Statement, StatementKind, Symbol, Type, Variable, VectorLength,
};

use super::op::{Pred, Reg};

/// A register as declared, in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register {
    /// Index of the first element's low part.
    pub(super) first: Reg,
    /// Bits of an element.
    pub(super) bits: u32,
    /// Elements of the vector; 1 for a scalar.
    pub(super) lanes: u32,
}

impl Register {
    /// Indices that an element takes.
    fn stride(bits: u32) -> u32 {
        if bits > 64 { 2 } else { 1 }
    }

    /// An element of the vector.
    pub(super) fn lane(self, lane: u32) -> Option<Reg> {
        (lane < self.lanes).then(|| self.first + lane * Register::stride(self.bits))
    }
}

/// Where a variable lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A variable in shared memory, by its number in the module.
    Shared(usize),
    /// A variable in global or constant memory, or a function, by its address.
    Memory {
        /// Where.
        address: u64,
        /// In constant memory.
        constant: bool,
    },
    /// Offset into the kernel's parameters.
    Param(u32),
    /// Offset into the frame.
    Frame {
        /// Where.
        offset: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// Declared, but defined in another module or in a space that has no memory here.
    Elsewhere,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entity {
    Register(Register),
    Predicate(Pred),
    Place(Place),
}

/// What a label before a list or prototype names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table<'a> {
    Branches(&'a [Symbol]),
    Prototype { params: &'a [Variable], returns: &'a [Variable] },
    Calls(&'a [Symbol]),
}

/// A label: where it stands is known at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'a> {
    pub(super) id: u32,
    pub(super) table: Option<Table<'a>>,
}

#[derive(Clone, Copy)]
enum Declared {
    Register { ty: Type, lanes: u32 },
    Known(Entity),
}

struct Range<'a> {
    prefix: &'a str,
    count: u32,
    ty: Type,
    lanes: u32,
}

#[derive(Default)]
struct Block<'a> {
    names: HashMap<Symbol, Declared>,
    ranges: Vec<Range<'a>>,
    labels: HashMap<Symbol, Label<'a>>,
}

/// The names that are visible at a place of a function.
pub(super) struct Scopes<'a> {
    names: &'a Names,
    blocks: Vec<Block<'a>>,
    /// Bits of each register that is used.
    pub(super) register_bits: Vec<u8>,
    /// Predicates that are used.
    pub(super) predicates: u32,
    /// Labels seen so far.
    pub(super) labels: u32,
}

impl<'a> Scopes<'a> {
    pub(super) fn new(names: &'a Names) -> Scopes<'a> {
        Scopes { names, blocks: vec![Block::default()], register_bits: Vec::new(), predicates: 0, labels: 0 }
    }

    /// Enters a block and learns its labels.
    pub(super) fn enter(&mut self, statements: &'a [Statement]) {
        let mut block = Block::default();
        for (at, statement) in statements.iter().enumerate() {
            let StatementKind::Label(name) = statement.kind else { continue };
            let table = match statements.get(at + 1).map(|next| &next.kind) {
                Some(StatementKind::BranchTargets(labels)) => Some(Table::Branches(labels)),
                Some(StatementKind::CallTargets(functions)) => Some(Table::Calls(functions)),
                Some(StatementKind::CallPrototype { returns, params, .. }) => {
                    Some(Table::Prototype { params, returns })
                }
                _ => None,
            };
            block.labels.insert(name, Label { id: self.labels, table });
            self.labels += 1;
        }
        self.blocks.push(block);
    }

    pub(super) fn leave(&mut self) {
        self.blocks.pop();
    }

    /// A label by name, as seen from here.
    pub(super) fn label(&self, name: Symbol) -> Option<Label<'a>> {
        self.blocks.iter().rev().find_map(|block| block.labels.get(&name)).copied()
    }

    pub(super) fn declare(&mut self, name: Symbol, place: Place) {
        if let Some(block) = self.blocks.last_mut() {
            block.names.insert(name, Declared::Known(Entity::Place(place)));
        }
    }

    pub(super) fn declare_registers(&mut self, registers: &Registers) {
        let lanes = lanes(registers.vector);
        let names = self.names;
        let Some(block) = self.blocks.last_mut() else { return };
        for RegisterName { name, count } in &registers.names {
            match count {
                Some(count) => {
                    let prefix = names.text(*name);
                    block.ranges.push(Range { prefix, count: *count, ty: registers.ty, lanes });
                }
                None => {
                    block.names.insert(*name, Declared::Register { ty: registers.ty, lanes });
                }
            }
        }
    }

    /// Declares a register parameter and gives it its index at once.
    pub(super) fn declare_parameter(&mut self, variable: &Variable) -> Option<Entity> {
        let entity = self.allocate(variable.ty, lanes(variable.vector))?;
        if let Some(block) = self.blocks.last_mut() {
            block.names.insert(variable.name, Declared::Known(entity));
        }
        Some(entity)
    }

    /// What a name stands for here; `None` if it is not declared.
    pub(super) fn resolve(&mut self, name: Symbol) -> Option<Entity> {
        let text = self.names.text(name);
        let (depth, ty, lanes) = self.blocks.iter().enumerate().rev().find_map(|(depth, block)| {
            match block.names.get(&name) {
                Some(Declared::Known(entity)) => return Some((depth, Err(*entity), 1)),
                Some(Declared::Register { ty, lanes }) => return Some((depth, Ok(*ty), *lanes)),
                None => {}
            }
            let range = block.ranges.iter().rev().find(|range| range.holds(text))?;
            Some((depth, Ok(range.ty), range.lanes))
        })?;
        let entity = match ty {
            Err(entity) => return Some(entity),
            Ok(ty) => self.allocate(ty, lanes)?,
        };
        self.blocks[depth].names.insert(name, Declared::Known(entity));
        Some(entity)
    }

    fn allocate(&mut self, ty: Type, lanes: u32) -> Option<Entity> {
        if ty == Type::Pred {
            let first = self.predicates;
            self.predicates += lanes;
            return (lanes == 1).then_some(Entity::Predicate(first));
        }
        let first = Reg::try_from(self.register_bits.len()).ok()?;
        let stride = Register::stride(ty.bits());
        let bits = u8::try_from(ty.bits().min(64)).unwrap_or(64);
        self.register_bits.extend(std::iter::repeat_n(bits, (lanes * stride) as usize));
        Some(Entity::Register(Register { first, bits: ty.bits(), lanes }))
    }
}

impl Range<'_> {
    /// Whether the name is the prefix and a number below the count, written without superfluous zeros.
    fn holds(&self, name: &str) -> bool {
        let Some(digits) = name.strip_prefix(self.prefix) else { return false };
        let plain = digits.bytes().all(|c| c.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        plain && digits.parse::<u32>().is_ok_and(|number| number < self.count)
    }
}

fn lanes(vector: Option<VectorLength>) -> u32 {
    match vector {
        None => 1,
        Some(VectorLength::V2) => 2,
        Some(VectorLength::V4) => 4,
    }
}
