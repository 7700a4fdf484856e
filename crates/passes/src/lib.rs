//! Rewrites of the IR, one file each, with remarks as data.
//!
//! A pass is a function from a [`Func`](tilewright_ir::Func) to a changed one (`run(func, cx) -> bool`: did anything change?); only
//! [`inline`] sees the whole module. Each file starts with what its pass does, an example before and after, and its limits.
//! [`Pipeline::standard`] puts them in order, checks the IR after each in debug builds, and collects [`Remark`]s, dumps and times.
//!
//! ```
//! use tilewright_ir::parse;
//! use tilewright_passes::Pipeline;
//!
//! let mut module = parse(
//!     "func @f (%out: ptr<global>, %n: u32) {
//!        %0 = const value(0) : u32
//!        %1 = add %n, %0 : u32
//!        %2 = const value(8) : u32
//!        %3 = div %1, %2 : u32
//!        store %out, %3
//!      }",
//! )?;
//! Pipeline::standard().run(&mut module)?;
//! let expected = "func @f (%out: ptr<global>, %n: u32) {
//!        %0 = const value(3) : u32
//!        %1 = shr %n, %0 : u32
//!        store %out, %1
//!      }";
//! assert_eq!(module, parse(expected)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Contract: passes take IR that the verifier accepts, and panic or produce nonsense on anything else; a pipeline with
//! [`Options::verify`] checks its input too. A pass never changes what a program computes. Programs may not depend on which NaN a float op gives, nor on `poison`;
//! an integer division by zero is left to the hardware, and everything else is kept bit by bit. [`interp`] executes scalar functions, so that tests can
//! hold passes to this.
//!
//! Limits: memory is told apart by address space only; there is no alias analysis.

mod align;
mod context;
pub mod cse;
pub mod dce;
mod effects;
mod eval;
pub mod float;
pub mod fold;
pub mod inline;
pub mod interp;
pub mod licm;
mod magic;
mod manager;
pub mod range;
mod rewrite;
pub mod strength;
pub mod uniform;
pub mod vectorize;

pub use align::Alignment;
pub use context::{Context, Remark, RemarkKind};
pub use eval::{Approximate, evaluate};
pub use manager::{Dump, Options, Pass, Pipeline, Report, Timing};
pub use uniform::Uniformity;

/// What can go wrong in a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PassError {
    /// A function calls itself, directly or through others: it cannot be inlined.
    #[error("recursive call {}; a kernel has no stack, so rewrite the recursion as a loop", .cycle.join(" -> "))]
    Recursion {
        /// The functions on the way, first and last being the same.
        cycle: Vec<String>,
    },
    /// A call of a function that is not there, or that does not fit.
    #[error("function {caller:?} calls {callee:?}, which {problem}; verify the module before running passes")]
    BadCall {
        /// The calling function.
        caller: String,
        /// The name that is called.
        callee: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No pass has that name.
    #[error("pass {found:?} is unknown; known are {known}")]
    UnknownPass {
        /// The name as given.
        found: String,
        /// The names that exist.
        known: String,
    },
    /// A pass left IR behind that breaks a rule: a bug of the pass.
    #[error("pass `{pass}` broke the IR: {}; the reproducer holds the IR before it", .diagnostics.join("; "))]
    Broken {
        /// The pass.
        pass: &'static str,
        /// What the verifier says.
        diagnostics: Vec<String>,
        /// The text of the module before the pass.
        reproducer: String,
    },
}
