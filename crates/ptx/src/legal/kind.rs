//! Kinds of instructions.
//!
//! Whether an instruction is an instance of a form depends on its modifiers, on the shape of its operands, on the types of its
//! registers and on its numbers, but not on which registers they are. A kernel has thousands of instructions of a few dozen kinds,
//! so one of each is judged and the others share the verdict.

use smallvec::SmallVec;

use super::matching::{Register, Scope};
use crate::ast::{Immediate, Instruction, Modifiers, Operand, Symbol};
use crate::words::{Opcode, SpecialRegister};

/// What tells instructions apart that may have different verdicts.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Kind {
    opcode: Opcode,
    modifiers: Modifiers,
    parts: SmallVec<[Part; 12]>,
}

/// A piece of an operand; lists are the pieces between `Open` and `Close`.
#[derive(PartialEq, Eq, Hash)]
enum Part {
    Symbol(Register),
    Element(Register),
    Offset(Register),
    Special(SpecialRegister),
    Number(Immediate),
    Address(Option<Register>),
    Not(Register),
    Pair(Option<Register>, Option<Register>),
    Sink,
    Open(Brackets),
    Close,
}

#[derive(PartialEq, Eq, Hash)]
enum Brackets {
    Tuple,
    List,
    Group,
}

impl Kind {
    /// The kind of an instruction among these declarations.
    pub(super) fn of(instruction: &Instruction, scope: &impl Scope) -> Kind {
        let mut parts = SmallVec::new();
        for operand in &instruction.operands {
            describe(operand, scope, &mut parts);
        }
        Kind { opcode: instruction.opcode, modifiers: instruction.modifiers.clone(), parts }
    }
}

fn describe(operand: &Operand, scope: &impl Scope, out: &mut SmallVec<[Part; 12]>) {
    let register = |symbol: Symbol| scope.register(symbol);
    let mut inside = |brackets: Brackets, operands: &[Operand]| {
        out.push(Part::Open(brackets));
        operands.iter().for_each(|operand| describe(operand, scope, out));
        out.push(Part::Close);
    };
    match operand {
        Operand::Tuple(operands) => inside(Brackets::Tuple, operands),
        Operand::List(operands) => inside(Brackets::List, operands),
        Operand::Group(operands) => inside(Brackets::Group, operands),
        Operand::Symbol(symbol) => out.push(Part::Symbol(register(*symbol))),
        Operand::Element(symbol, _) => out.push(Part::Element(register(*symbol))),
        Operand::Offset(symbol, _) => out.push(Part::Offset(register(*symbol))),
        Operand::Special(special) => out.push(Part::Special(*special)),
        Operand::Immediate(number) => out.push(Part::Number(*number)),
        Operand::Address(address) => out.push(Part::Address(address.base.map(register))),
        Operand::Not(symbol) => out.push(Part::Not(register(*symbol))),
        Operand::Pair(a, b) => out.push(Part::Pair(a.map(register), b.map(register))),
        Operand::Sink => out.push(Part::Sink),
    }
}
