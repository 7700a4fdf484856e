//! Tests of decoding: instructions, names, layout, flow, and whole files.

mod control;
mod files;
mod flow;
mod forms;
mod instructions;
mod names;
mod random;
mod variables;

use super::{Function, Kind, Op, Program, ProgramError};

/// Arithmetic and matrix instructions do not compare, but show all that they are.
impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.guard == other.guard && self.kind == other.kind
    }
}

/// A module around items.
fn module(items: &str) -> Result<Program, ProgramError> {
    let text = format!(".version 8.6\n.target sm_90a\n.address_size 64\n{items}");
    let module = tilewright_ptx::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Program::decode(&module, &text)
}

/// A module with one kernel.
fn kernel(body: &str) -> Function {
    let program = module(&format!(".visible .entry k(.param .u64 p, .param .u32 n)\n{{\n{body}\n}}\n"));
    program.unwrap_or_else(|error| panic!("{error}\n{body}")).functions.remove(0)
}

/// Registers for short bodies: indices follow the order of the first use.
const REGISTERS: &str = ".reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %d<9>;\n\
                         .reg .pred %p<9>; .reg .b128 %q<4>; .reg .v4 .b32 %v; .reg .v2 .b64 %w;\n";

/// The ops of some statements, without the final `exit`.
fn ops(statements: &str) -> Vec<Kind> {
    let mut code = kernel(&format!("{REGISTERS}{statements}")).code;
    assert_eq!(code.pop().map(|op| op.kind), Some(Kind::Exit));
    code.into_iter().map(|op| op.kind).collect()
}

/// The op of one statement.
fn op(statement: &str) -> Kind {
    let mut found = ops(statement);
    assert_eq!(found.len(), 1, "{statement}: {found:?}");
    found.remove(0)
}

/// What is not supported in a program.
fn unsupported(program: &Program) -> Vec<String> {
    let ops = program.functions.iter().flat_map(|function| function.code.iter().zip(&function.lines));
    ops.filter_map(|(op, line)| match &op.kind {
        Kind::Unsupported(what) => Some(format!("{line}: {what}")),
        _ => None,
    })
    .collect()
}
