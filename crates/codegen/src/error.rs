//! What can keep a function from becoming PTX.

use thiserror::Error;
use tilewright_hardware::Arch;

/// Why a function has no PTX. Every message is one line: what was found, what was expected, what to do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodegenError {
    /// The function as a whole is not a kernel that can be compiled.
    #[error("function `{function}` {problem}")]
    Function {
        /// Its name.
        function: String,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// An op has no instruction for its types or attributes.
    #[error("{}`{op}` {problem}", at(location))]
    Unsupported {
        /// The op's name in the IR.
        op: &'static str,
        /// What it asked for and what to do instead.
        problem: String,
        /// `file:line:column` in the Rust source, if known.
        location: Option<String>,
    },
    /// The code needs more than the architecture that it is compiled for.
    #[error(
        "{}`{instruction}` needs {needs}, the kernel is compiled for {arch}; compile for {needs} or avoid the operation",
        at(location)
    )]
    Arch {
        /// The instruction as PTX.
        instruction: String,
        /// The target that it needs.
        needs: String,
        /// The architecture that was asked for.
        arch: Arch,
        /// `file:line:column` in the Rust source, if known.
        location: Option<String>,
    },
    /// The code is not PTX: a mistake in this crate, which debug builds look for.
    #[error(
        "function `{function}` became PTX that no chip takes ({problem}); please report this with the kernel"
    )]
    Illegal {
        /// The function.
        function: String,
        /// What is wrong.
        problem: String,
    },
}

fn at(location: &Option<String>) -> String {
    location.as_ref().map(|place| format!("{place}: ")).unwrap_or_default()
}
