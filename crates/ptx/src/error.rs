//! What can be wrong with PTX text.

use thiserror::Error;

/// Why a text is not PTX. Whether well-formed PTX is legal is told by [`check`](crate::check), not by an error.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PtxError {
    /// The text does not follow the grammar.
    #[error("{line}:{column}: found {found}, expected {expected}")]
    Syntax {
        /// Line, from 1.
        line: u32,
        /// Column in bytes, from 1.
        column: u32,
        /// What stands there.
        found: String,
        /// What could stand there.
        expected: String,
    },
    /// Not a version.
    #[error("found `{found}`, expected a version such as `8.0`")]
    Version {
        /// What was given.
        found: String,
    },
    /// Not a target.
    #[error("found `{found}`, expected a target such as `sm_80` or `sm_90a`")]
    Target {
        /// What was given.
        found: String,
    },
}
