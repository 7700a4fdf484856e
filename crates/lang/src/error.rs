//! What staging reports.

use std::fmt;

use tilewright_ir::Diagnostic;

/// A kernel that could not be staged: everything that is wrong with it, each with its place in the source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The kernel.
    pub kernel: String,
    /// All that is wrong.
    pub diagnostics: Vec<Diagnostic>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{diagnostic}")?;
        }
        let n = self.diagnostics.len();
        write!(
            f,
            "error: kernel `{}` was not staged: {n} error{}",
            self.kernel,
            if n == 1 { "" } else { "s" }
        )
    }
}
