//! PTX as data: typed syntax tree, printer, parser, and the table of what is legal where.
//!
//! ```
//! use tilewright_ptx::{check, parse};
//!
//! let mut module = parse(
//!     ".version 8.4\n.target sm_90a\n.address_size 64\n\
//!      .visible .entry scale(.param .u64 data)\n{\n\
//!      .reg .b64 %rd<2>;\n.reg .f32 %f<3>;\n\
//!      ld.param.u64 %rd1, [data];\nld.global.f32 %f1, [%rd1];\n\
//!      mul.f32 %f2, %f1, 0f40000000;\nst.global.f32 [%rd1], %f2;\nret;\n}\n",
//! )?;
//! assert_eq!(check(&module), []);
//! module.lower_to_minimum();
//! assert_eq!((module.version.to_string(), module.target.to_string()), ("6.0".into(), "sm_50".into()));
//! # Ok::<(), tilewright_ptx::PtxError>(())
//! ```
//!
//! # Contract
//!
//! * [`parse`] reads what NVIDIA's compilers and Triton emit; `parse(&module.to_string())` gives an equal module back.
//! * [`check`] lists every instruction that fits no row of the table, and everything that the module's `.version` or
//!   `.target` is too low for. The table is proved against the assembler by the tests; it does not know what depends on
//!   values (alignment, ranges of registers) or on control flow.
//! * No input panics, and nesting is limited so that no text can exhaust the stack.

pub mod ast;
mod error;
mod legal;
mod note;
mod parse;
mod print;
pub mod signature;
mod symbols;
mod target;
mod words;

pub use ast::{
    Address, Attribute, Component, Directive, Function, FunctionKind, Guard, Immediate, Initializer, Inlined,
    Instruction, Item, Line, Linkage, Location, Modifiers, Module, Names, Operand, Operands, Pointer,
    RegisterName, Registers, Space, Statement, StatementKind, Symbol, Variable, VectorLength,
};
pub use error::PtxError;
pub use legal::{Fault, Form, Need, Problem, Requirement, Sample, check, forms, requirements};
pub use note::{Note, NoteKind};
pub use parse::parse;
pub use print::Printed;
pub use signature::{
    Access, Parameter, ParameterKind, PointerSpace, Signature, signatures_from_text, signatures_to_text,
};
pub use target::{Specificity, Target, TargetOption, Version};
pub use words::{Class, Modifier, Opcode, Shape, SpecialRegister, Type};
