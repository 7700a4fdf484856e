//! A machine of one thread for the integer instructions that control flow is made of.

use std::collections::HashMap;

use tilewright_codegen::Compiled;
use tilewright_ptx::{Immediate, Instruction, Item, Modifier, Opcode, Operand, StatementKind, Symbol, Type};

/// Runs a kernel with these parameters and gives everything that it stores, in order.
pub(crate) fn run(compiled: &Compiled, params: &[u64]) -> Vec<u64> {
    let function = compiled
        .module
        .items
        .iter()
        .find_map(|item| if let Item::Function(function) = item { Some(function) } else { None })
        .unwrap();
    let params: HashMap<Symbol, u64> =
        function.params.iter().map(|p| p.name).zip(params.iter().copied()).collect();
    let body: Vec<&StatementKind> = function.body.as_ref().unwrap().iter().map(|s| &s.kind).collect();
    let label = |name: Symbol| body.iter().position(|kind| **kind == StatementKind::Label(name)).unwrap();
    let mut registers: HashMap<Symbol, u64> = HashMap::new();
    let mut stored = Vec::new();
    let mut at = 0;
    for _ in 0..100_000 {
        let StatementKind::Instruction(i) = body[at] else {
            at += 1;
            continue;
        };
        at += 1;
        if let Some(guard) = i.guard
            && (registers[&guard.register] == 1) == guard.negated
        {
            continue;
        }
        let value = |operand: &Operand| match operand {
            Operand::Symbol(symbol) => *registers
                .get(symbol)
                .unwrap_or_else(|| panic!("{} is not set", compiled.module.names.text(*symbol))),
            Operand::Immediate(Immediate::Int(value)) => value.cast_unsigned(),
            Operand::Immediate(Immediate::Unsigned(value)) => *value,
            other => panic!("operand {other:?}"),
        };
        match i.opcode {
            Opcode::Ret => return stored,
            Opcode::Bra => {
                let Operand::Symbol(target) = i.operands[0] else { panic!("{i:?}") };
                at = label(target);
            }
            Opcode::St => stored.push(cut(value(&i.operands[1]), bits(i), false)),
            _ => {
                let Operand::Symbol(to) = i.operands[0] else { panic!("{i:?}") };
                let result = match i.opcode {
                    Opcode::Ld => match &i.operands[1] {
                        Operand::Address(address) => params[&address.base.unwrap()],
                        other => panic!("{other:?}"),
                    },
                    _ => compute(i, &value),
                };
                registers.insert(to, result);
            }
        }
    }
    panic!("does not end\n{}", compiled.text);
}

fn bits(i: &Instruction) -> u32 {
    i.types().next().unwrap().bits()
}

fn cut(value: u64, bits: u32, signed: bool) -> u64 {
    let shift = 64 - bits;
    if signed { (value.cast_signed() << shift >> shift).cast_unsigned() } else { value << shift >> shift }
}

fn compute(i: &Instruction, value: &dyn Fn(&Operand) -> u64) -> u64 {
    let ty = i.types().next().unwrap();
    let signed = matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64);
    let source = |k: usize| cut(value(&i.operands[k]), ty.bits(), signed);
    let result = match i.opcode {
        Opcode::Mov => source(1),
        Opcode::Cvt => {
            let from = i.types().nth(1).unwrap();
            let from_signed = matches!(from, Type::S8 | Type::S16 | Type::S32 | Type::S64);
            cut(value(&i.operands[1]), from.bits(), from_signed)
        }
        Opcode::Add => source(1).wrapping_add(source(2)),
        Opcode::Sub => source(1).wrapping_sub(source(2)),
        Opcode::Mul => source(1).wrapping_mul(source(2)),
        Opcode::Mad => source(1).wrapping_mul(source(2)).wrapping_add(source(3)),
        Opcode::Rem => source(1) % source(2),
        Opcode::And => source(1) & source(2),
        Opcode::Or => source(1) | source(2),
        Opcode::Xor => source(1) ^ source(2),
        Opcode::Not => !source(1),
        Opcode::Selp => {
            if value(&i.operands[3]) == 1 {
                source(1)
            } else {
                source(2)
            }
        }
        Opcode::Setp => {
            let (a, b) = (source(1), source(2));
            let order = if signed { a.cast_signed().cmp(&b.cast_signed()) } else { a.cmp(&b) };
            return u64::from(match i.modifiers[0] {
                Modifier::Eq => order.is_eq(),
                Modifier::Ne => order.is_ne(),
                Modifier::Lt => order.is_lt(),
                Modifier::Le => order.is_le(),
                Modifier::Gt => order.is_gt(),
                Modifier::Ge => order.is_ge(),
                other => panic!("{other:?}"),
            });
        }
        other => panic!("the machine does not have `{other}`"),
    };
    cut(result, ty.bits(), false)
}
