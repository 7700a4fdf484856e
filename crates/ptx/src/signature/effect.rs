//! What each instruction does with the values of parameters: how it passes them on, and what it uses them for.
//!
//! Whatever is not known to be harmless lets its operands escape.

use smallvec::SmallVec;

use super::family::{Family, Mode, family};
use super::names::{Place, Scopes};
use super::{PointerSpace, Touch, may_point, plain};
use crate::ast::{Function, Instruction, Module, Operand, Statement, StatementKind, Symbol, Variable};
use crate::words::{Modifier, Opcode, Type};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Register(u32),
    /// The value of a parameter that can point, or a part of its bits.
    Value {
        param: u32,
        whole: bool,
    },
    /// The address of a parameter.
    Address(u32),
    /// The address of a variable or function.
    Variable,
    /// Memory, or an instruction that is not followed.
    Memory,
    /// Something that holds no address.
    Number,
}

/// A definition of a register.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) register: u32,
    pub(super) mode: Mode,
    pub(super) sources: SmallVec<[Source; 4]>,
}

/// What a value is used for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// The address of an access to memory.
    Access(Touch, PointerSpace),
    /// The address of a tensor map, through which memory is touched.
    Tensor(Touch),
    /// Converted to or from an address in a space.
    Cast(PointerSpace),
    /// Goes where it is not followed.
    Escape,
}

/// Everything that the body of a kernel does with its parameters, in no order.
pub(super) struct Effects {
    pub(super) definitions: Vec<Definition>,
    pub(super) uses: Vec<(Source, Use)>,
    pub(super) named: Vec<bool>,
    pub(super) registers: u32,
}

impl Effects {
    pub(super) fn of(module: &Module, kernel: &Function) -> Effects {
        let mut reader = Reader {
            scopes: Scopes::new(&module.names, kernel),
            params: &kernel.params,
            address_size: module.address_size,
            definitions: Vec::new(),
            uses: Vec::new(),
            named: vec![false; kernel.params.len()],
        };
        if let Some(body) = &kernel.body {
            reader.block(body);
        } else {
            // Only declared here: everything may happen elsewhere.
            for (param, named) in (0..).zip(&mut reader.named) {
                *named = true;
                reader.uses.push((Source::Address(param), Use::Escape));
            }
        }
        let Reader { scopes, definitions, uses, named, .. } = reader;
        Effects { definitions, uses, named, registers: scopes.registers }
    }
}

struct Reader<'m> {
    scopes: Scopes<'m>,
    params: &'m [Variable],
    address_size: u32,
    definitions: Vec<Definition>,
    uses: Vec<(Source, Use)>,
    named: Vec<bool>,
}

impl Reader<'_> {
    fn block(&mut self, statements: &[Statement]) {
        self.scopes.enter();
        for statement in statements {
            match &statement.kind {
                StatementKind::Block(inner) => self.block(inner),
                StatementKind::Registers(registers) => self.scopes.declare_registers(registers),
                StatementKind::Variable(variable) => self.scopes.declare_variable(variable.name),
                StatementKind::Instruction(instruction) => self.instruction(instruction),
                _ => {}
            }
        }
        self.scopes.leave();
    }

    fn instruction(&mut self, i: &Instruction) {
        let [first, rest @ ..] = &i.operands[..] else { return };
        match family(i) {
            Family::Memory => self.memory(i, first, rest),
            Family::Data(mode, count) => {
                let sources = self.sources(head(rest, count));
                self.define(first, mode, &sources);
            }
            Family::Product => {
                let mut sources = self.sources(rest.get(2..3).unwrap_or_default());
                sources.push(Source::Number);
                self.define(first, Mode::Sum, &sources);
            }
            Family::Number => {
                self.define(first, Mode::Copy, &[Source::Number]);
                self.name(rest);
            }
            Family::Control => {}
        }
    }

    fn memory(&mut self, i: &Instruction, first: &Operand, rest: &[Operand]) {
        use Opcode as O;
        match i.opcode {
            O::Ld | O::Ldu => self.load(i, first, rest),
            O::St => {
                self.touch(first, Touch::WRITE, space(i));
                // `st.bulk` stores zeros, and its second operand is a size.
                if !i.has(Modifier::Bulk) {
                    self.escape(rest);
                }
            }
            O::Atom => {
                self.define(first, Mode::Copy, &[Source::Memory]);
                self.touch_first(rest, Touch::BOTH, space(i));
            }
            O::Red => {
                self.touch(first, Touch::BOTH, space(i));
                self.escape(rest);
            }
            O::Multimem if i.has(Modifier::LdReduce) => {
                self.define(first, Mode::Copy, &[Source::Memory]);
                self.touch_first(rest, Touch::READ, space(i));
            }
            O::Multimem => {
                let touch = if i.has(Modifier::StOp) { Touch::WRITE } else { Touch::BOTH };
                self.touch(first, touch, space(i));
                self.escape(rest);
            }
            O::Prefetch if i.has(Modifier::Tensormap) => self.tensor(first, Touch::READ),
            O::Prefetch | O::Prefetchu | O::Applypriority => self.touch(first, Touch::READ, space(i)),
            // What was there is lost.
            O::Discard => self.touch(first, Touch::WRITE, space(i)),
            O::Createpolicy => {
                self.define(first, Mode::Copy, &[Source::Number]);
                if i.has(Modifier::Range) {
                    self.touch_first(rest, Touch::READ, space(i));
                }
            }
            O::Cp => self.copy(i, first, rest),
            O::Tensormap => {
                let touch = if i.has(Modifier::Replace) { Touch::BOTH } else { Touch::WRITE };
                self.touch(first, touch, space(i));
                self.escape(rest);
            }
            // `fence.proxy.tensormap` alone has an address.
            O::Fence => self.tensor(first, Touch::READ),
            O::Mbarrier => {
                self.define(first, Mode::Copy, &[Source::Memory]);
                for operand in &i.operands {
                    if matches!(operand, Operand::Address(_)) {
                        self.touch(operand, Touch::BOTH, space(i));
                    }
                }
            }
            O::Ldmatrix => {
                self.define(first, Mode::Copy, &[Source::Memory]);
                self.touch_first(rest, Touch::READ, PointerSpace::Shared);
            }
            O::Stmatrix => {
                self.touch(first, Touch::WRITE, PointerSpace::Shared);
                self.escape(rest);
            }
            O::Wmma if i.has(Modifier::Load) => {
                self.define(first, Mode::Copy, &[Source::Memory]);
                if let [address, ..] = rest {
                    self.touch(address, Touch::READ, space(i));
                }
            }
            O::Wmma if i.has(Modifier::Store) => {
                self.touch(first, Touch::WRITE, space(i));
                self.escape(head(rest, 1));
            }
            O::Cvta => {
                // An address of a parameter stays one in whatever space it is written.
                if !i.has(Modifier::Param) && !i.has(Modifier::ParamEntry) {
                    for source in self.sources(rest) {
                        self.uses.push((source, Use::Cast(space(i))));
                    }
                }
                let sources = self.sources(rest);
                self.define(first, Mode::Copy, &sources);
            }
            // A texture or surface is reached through a handle, which is no address.
            O::Tex | O::Tld4 | O::Suld | O::Txq | O::Suq => {
                self.define(first, Mode::Copy, &[Source::Memory]);
                self.name(rest);
            }
            O::Sust | O::Sured => {
                self.name(head(&i.operands, 1));
                self.escape(rest);
            }
            O::Wmma => self.define(first, Mode::Copy, &[Source::Number]),
            O::Alloca => self.define(first, Mode::Copy, &[Source::Variable]),
            // Calls, and whatever is not known to be harmless.
            _ => {
                self.define(first, Mode::Copy, &[Source::Memory]);
                self.escape(&i.operands);
            }
        }
    }

    fn load(&mut self, i: &Instruction, result: &Operand, rest: &[Operand]) {
        let base = match rest {
            [Operand::Address(address), ..] => address.base.map(|base| (self.place(base), address.offset)),
            _ => None,
        };
        let Some((Place::Param(param), offset)) = base else {
            self.define(result, Mode::Copy, &[Source::Memory]);
            if let [address, ..] = rest {
                self.touch(address, Touch::READ, space(i));
            }
            return;
        };
        let declared = &self.params[param as usize];
        let source = if may_point(declared, self.address_size) {
            let bits = i.types().map(Type::bits).sum::<u32>();
            let several = matches!(result, Operand::List(parts) if parts.len() > 1);
            let whole = offset == 0 && bits == self.address_size && !several;
            Source::Value { param, whole }
        } else if plain(declared) {
            Source::Number
        } else {
            self.uses.push((Source::Address(param), Use::Escape));
            Source::Memory
        };
        self.define(result, Mode::Copy, &[source]);
    }

    /// The family of `cp`: what is global is the first address, the second, or behind a tensor map.
    fn copy(&mut self, i: &Instruction, first: &Operand, rest: &[Operand]) {
        let spaces = i.modifiers.iter().filter_map(|&modifier| state_space(modifier));
        let spaces: SmallVec<[PointerSpace; 2]> = spaces.collect();
        let outwards = spaces.first() == Some(&PointerSpace::Global) && !i.has(Modifier::Prefetch);
        let written = if i.has(Modifier::Reduce) { Touch::BOTH } else { Touch::WRITE };
        if i.has(Modifier::Tensor) {
            let touch = if outwards { written } else { Touch::READ };
            for operand in &i.operands {
                if matches!(operand, Operand::Tuple(_)) {
                    self.tensor(operand, touch);
                }
            }
        } else if i.has(Modifier::Prefetch) {
            self.touch(first, Touch::READ, PointerSpace::Global);
        } else if let ([to, from, ..], [source, ..]) = (&spaces[..], rest) {
            self.touch(first, written, *to);
            self.touch(source, Touch::READ, *from);
        } else if let ([PointerSpace::Global], [source, ..]) = (&spaces[..], rest) {
            self.touch(source, Touch::READ, PointerSpace::Global);
        }
    }

    /// The register or variable of a name; a parameter is marked as named.
    fn place(&mut self, symbol: Symbol) -> Place {
        let place = self.scopes.resolve(symbol);
        if let Place::Param(param) = place {
            self.named[param as usize] = true;
        }
        place
    }

    fn symbol(&mut self, symbol: Symbol) -> Source {
        match self.place(symbol) {
            Place::Register(register) => Source::Register(register),
            Place::Param(param) => Source::Address(param),
            Place::Elsewhere => Source::Variable,
        }
    }

    /// What operands hold; addresses count with what they are made of.
    fn sources(&mut self, operands: &[Operand]) -> SmallVec<[Source; 4]> {
        let mut sources = SmallVec::new();
        for operand in operands {
            match operand {
                Operand::Symbol(symbol) | Operand::Element(symbol, _) | Operand::Offset(symbol, _) => {
                    sources.push(self.symbol(*symbol));
                }
                Operand::Address(address) => {
                    sources.extend(address.base.map(|base| self.symbol(base)));
                }
                Operand::List(parts) | Operand::Tuple(parts) | Operand::Group(parts) => {
                    sources.extend(self.sources(parts));
                }
                Operand::Immediate(_) | Operand::Special(_) | Operand::Not(_) => sources.push(Source::Number),
                Operand::Pair(..) | Operand::Sink => {}
            }
        }
        sources
    }

    /// Marks the parameters among the operands as named.
    fn name(&mut self, operands: &[Operand]) {
        self.sources(operands);
    }

    fn define(&mut self, result: &Operand, mode: Mode, sources: &[Source]) {
        match result {
            Operand::Symbol(symbol) | Operand::Element(symbol, _) => {
                if let Place::Register(register) = self.place(*symbol) {
                    let sources = SmallVec::from_slice(sources);
                    self.definitions.push(Definition { register, mode, sources });
                }
            }
            Operand::Pair(a, b) => {
                for symbol in a.iter().chain(b) {
                    self.define(&Operand::Symbol(*symbol), mode, sources);
                }
            }
            Operand::List(parts) | Operand::Group(parts) => {
                parts.iter().for_each(|part| self.define(part, mode, sources));
            }
            _ => {}
        }
    }

    fn use_address(&mut self, operand: &Operand, used: Use) {
        let address = match operand {
            Operand::Tuple(parts) => parts.first(),
            other => Some(other),
        };
        if let Some(address) = address {
            for source in self.sources(std::slice::from_ref(address)) {
                self.uses.push((source, used));
            }
        }
    }

    fn touch(&mut self, address: &Operand, touch: Touch, space: PointerSpace) {
        self.use_address(address, Use::Access(touch, space));
    }

    /// The address at the head of operands, the rest of which are data.
    fn touch_first(&mut self, operands: &[Operand], touch: Touch, space: PointerSpace) {
        if let [address, data @ ..] = operands {
            self.touch(address, touch, space);
            self.escape(data);
        }
    }

    fn tensor(&mut self, address: &Operand, touch: Touch) {
        self.use_address(address, Use::Tensor(touch));
    }

    fn escape(&mut self, operands: &[Operand]) {
        for source in self.sources(operands) {
            self.uses.push((source, Use::Escape));
        }
    }
}

/// The first operands, as many as there are.
fn head(operands: &[Operand], count: usize) -> &[Operand] {
    operands.get(..count).unwrap_or(operands)
}

/// The space that an instruction names; generic where it names none.
fn space(i: &Instruction) -> PointerSpace {
    i.modifiers.iter().find_map(|&modifier| state_space(modifier)).unwrap_or(PointerSpace::Generic)
}

fn state_space(modifier: Modifier) -> Option<PointerSpace> {
    Some(match modifier {
        Modifier::Global => PointerSpace::Global,
        Modifier::Shared | Modifier::SharedCta | Modifier::SharedCluster => PointerSpace::Shared,
        Modifier::Local => PointerSpace::Local,
        Modifier::Const => PointerSpace::Const,
        _ => return None,
    })
}
