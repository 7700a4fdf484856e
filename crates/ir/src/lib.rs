//! The compiler's intermediate representation: structured SSA.
//!
//! A [`Module`] holds functions; a [`Func`] holds regions of ops. Control flow is nested (`for`, `while`, `if`, `role` own
//! regions), there are no jumps and no phi nodes: a loop passes values to its next iteration as operands of `yield`. Every op is
//! described by one row of [`table`]: its operands, results, attributes, who executes it together, and what it does to memory.
//! Builder, printer, parser, verifier and the effect queries of the passes all read that row.
//!
//! The text form is exact: [`parse`] of what [`Module`] prints is the same module. Printed without locations it is what a cache
//! hashes.
//!
//! ```
//! use tilewright_ir::{parse, verify};
//!
//! let module = parse(
//!     "func @twice (%x: ptr<global>, %n: u32) {
//!        %0 = special reg(tid.x) : u32
//!        %1 = cmp %0, %n cmp(lt) : bool
//!        if %1 then {
//!          %2 = const value(4) : u32
//!          %3 = mul_wide %0, %2 : u64
//!          %4 = ptr_add %x, %3 : ptr<global>
//!          %5 = load %4 : f32
//!          %6 = add %5, %5 : f32
//!          store %4, %6
//!        } else {
//!        }
//!      }",
//! )?;
//! assert!(verify(&module).is_empty());
//! assert_eq!(parse(&module.to_string())?, module);
//! # Ok::<(), tilewright_ir::IrError>(())
//! ```
//!
//! Contract and limits: this crate knows element types, address spaces and the names of tensor-core shapes, and nothing of PTX.
//! Offsets into global memory are 64 bits wide, those into shared memory 32: `ptr_add` takes nothing else.

mod attr;
mod build;
mod diagnostic;
mod func;
mod loc;
mod parse;
mod print;
pub mod table;
mod types;
mod verify;

pub use attr::*;
pub use build::Builder;
pub use diagnostic::Diagnostic;
pub use func::{
    Attrs, Def, Func, Launch, Module, Op, OpData, Operands, Param, Region, RegionData, Uses, Value, ValueData,
};
pub use loc::{Frame, Loc, Location, Locations};
pub use parse::parse;
pub use print::PrintOptions;
pub use table::{Access, AccessKind, Group, OpInfo, Opcode, Proxy};
pub use tilewright_hardware::Element;
pub use types::{Shape, Space, Type};
pub use verify::{canonical, verify};

/// What can go wrong when text becomes IR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IrError {
    /// The text is not IR.
    #[error("line {line}, column {column}: found {found}, expected {expected}")]
    Syntax {
        /// Line, from 1.
        line: u32,
        /// Column, from 1.
        column: u32,
        /// The text at that place.
        found: String,
        /// What would have been accepted.
        expected: String,
    },
    /// A word that names nothing.
    #[error("{what} {found:?} is unknown; known are {known}")]
    Unknown {
        /// The kind of name.
        what: &'static str,
        /// The name as written.
        found: String,
        /// The names that exist.
        known: String,
    },
}
