//! The kinds of instructions in a body, each once.
//!
//! What an instruction needs of a chip depends on its modifiers and on the kinds of its operands, not on which registers they
//! are. A kernel has thousands of instructions of a few dozen kinds; judging one of each takes a tenth of the time. Debug builds
//! judge all of them again (see [`crate::compile`]).

use std::collections::HashSet;

use smallvec::SmallVec;
use tilewright_ptx::{
    Guard, Instruction, Modifiers, Names, Opcode, Operand, Statement, StatementKind, Symbol,
};

/// What tells kinds apart.
#[derive(PartialEq, Eq, Hash)]
struct Kind {
    opcode: Opcode,
    modifiers: Modifiers,
    operands: SmallVec<[u32; 12]>,
}

/// Everything but instructions, and the first instruction of each kind.
pub(crate) fn one_of_each(body: &[Statement], names: &Names) -> Vec<Statement> {
    let mut seen = HashSet::new();
    let is_new = |statement: &&Statement| match &statement.kind {
        StatementKind::Instruction(instruction) => seen.insert(kind(instruction, names)),
        _ => true,
    };
    body.iter().filter(is_new).cloned().collect()
}

fn kind(instruction: &Instruction, names: &Names) -> Kind {
    let mut operands = SmallVec::new();
    if let Some(Guard { register, .. }) = instruction.guard {
        operands.push(class(register, names));
    }
    for operand in &instruction.operands {
        describe(operand, names, &mut operands);
    }
    Kind { opcode: instruction.opcode, modifiers: instruction.modifiers.clone(), operands }
}

/// The class of a register is the letter behind `%`; what is no register stands for itself.
fn class(symbol: Symbol, names: &Names) -> u32 {
    match names.text(symbol).as_bytes() {
        [b'%', letter, ..] => u32::from(*letter),
        _ => 0x100 + symbol.0,
    }
}

fn describe(operand: &Operand, names: &Names, out: &mut SmallVec<[u32; 12]>) {
    // Tags above every register number keep the parts of a list apart.
    const TAG: u32 = 0xffff_ff00;
    match operand {
        Operand::Symbol(symbol) => out.push(class(*symbol, names)),
        Operand::Element(symbol, _) => out.extend([TAG, class(*symbol, names)]),
        Operand::Offset(symbol, _) => out.extend([TAG + 1, class(*symbol, names)]),
        Operand::Special(register) => out.extend([TAG + 2, *register as u32]),
        Operand::Immediate(value) => {
            // Some immediates are parts of the instruction, such as the number of groups to wait for.
            let (kind, bits) = match value {
                tilewright_ptx::Immediate::Int(value) => (0, value.cast_unsigned().min(0x1000)),
                tilewright_ptx::Immediate::Unsigned(value) => (1, (*value).min(0x1000)),
                tilewright_ptx::Immediate::F32(_) => (2, 0),
                tilewright_ptx::Immediate::F64(_) => (3, 0),
                tilewright_ptx::Immediate::WarpSize => (4, 0),
            };
            out.extend([TAG + 3, kind, u32::try_from(bits).unwrap_or(u32::MAX)]);
        }
        Operand::Address(address) => {
            out.push(TAG + 4);
            out.extend(address.base.map(|base| class(base, names)));
        }
        Operand::Tuple(parts) | Operand::List(parts) | Operand::Group(parts) => {
            out.push(TAG + 5);
            for part in parts {
                describe(part, names, out);
            }
            out.push(TAG + 6);
        }
        Operand::Not(symbol) => out.extend([TAG + 7, class(*symbol, names)]),
        Operand::Pair(a, b) => {
            let side = |symbol: &Option<Symbol>| symbol.map_or(TAG + 8, |symbol| class(symbol, names));
            out.extend([TAG + 9, side(a), side(b)]);
        }
        Operand::Sink => out.push(TAG + 10),
    }
}
