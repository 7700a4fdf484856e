//! Why a module has no meaning as a program.

/// What is wrong with a module; single instructions that cannot be executed are [`Kind::Unsupported`](super::Kind::Unsupported) ops
/// instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A name that is declared nowhere.
    #[error(
        "line {line}: `{name}` is not declared here; expected a register, variable, label or function that is in scope"
    )]
    Undeclared {
        /// Line of the use.
        line: u32,
        /// The name.
        name: String,
    },
    /// A variable of another module.
    #[error(
        "line {line}: `{name}` is declared but not defined in this module; link the module that defines it"
    )]
    Undefined {
        /// Line of the use.
        line: u32,
        /// The name.
        name: String,
    },
    /// A function, variable or label twice.
    #[error("line {line}: `{name}` is defined a second time; remove one definition")]
    Twice {
        /// Line of the second definition.
        line: u32,
        /// The name.
        name: String,
    },
    /// A variable whose size is unknown or beyond what a device could hold.
    #[error(
        "line {line}: variable `{name}` has no size that fits its memory; expected at most {limit} bytes"
    )]
    Size {
        /// Line of the declaration.
        line: u32,
        /// The name.
        name: String,
        /// The most that all variables of its space may have together.
        limit: u64,
    },
    /// An alignment that is not one.
    #[error("line {line}: variable `{name}` has alignment {align}; expected a power of two up to 65536")]
    Alignment {
        /// Line of the declaration.
        line: u32,
        /// The name.
        name: String,
        /// As written.
        align: u32,
    },
    /// An initial value that does not fit its variable.
    #[error("line {line}: the initial value of `{name}` {problem}")]
    Initializer {
        /// Line of the declaration.
        line: u32,
        /// The name.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
}
