//! Messages that point at source: one format for staging, the verifier and the assembler.

use std::fmt;

use crate::loc::{Loc, Locations};

/// A message with its place in the user's source.
///
/// Displayed over several lines, as rustc does:
///
/// ```text
/// error: operand 1 of `add` is f32, expected i32, the type of operand 0
///   --> src/kernels.rs:31:19
///    |     let sum = x + y;
///    = note: in `load_tile`, called at src/kernels.rs:58:9
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong.
    pub message: String,
    /// `file:line:column`, if known.
    pub location: Option<String>,
    /// The line of source, if the file can be read.
    pub source: Option<String>,
    /// Further lines: the call chain, what to do.
    pub notes: Vec<String>,
}

impl Diagnostic {
    /// A message at a place. The source line is read if the file is there.
    #[must_use]
    pub fn new(message: impl Into<String>, loc: Loc, locations: &Locations) -> Diagnostic {
        let at = locations.get(loc);
        let source = at.and_then(|at| source_line(at.file, at.line));
        let notes = locations.chain(loc).map(|(name, call)| match call {
            Some(call) => format!("in `{name}`, called at {call}"),
            None => format!("in `{name}`"),
        });
        Diagnostic {
            message: message.into(),
            location: at.map(|at| at.to_string()),
            source,
            notes: notes.collect(),
        }
    }

    /// With one more note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Diagnostic {
        self.notes.push(note.into());
        self
    }
}

/// A line of a file. rustc names files relative to the workspace; tests run in the folder of their package, so the folders around are
/// tried as well.
fn source_line(file: &str, line: u32) -> Option<String> {
    let here = std::env::current_dir().ok();
    let folders = here.iter().flat_map(|folder| folder.ancestors());
    let text = folders.map(|folder| folder.join(file)).find_map(|path| std::fs::read_to_string(path).ok())?;
    text.lines().nth(line.checked_sub(1)? as usize).map(str::to_owned)
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        if let Some(location) = &self.location {
            write!(f, "\n  --> {location}")?;
        }
        if let Some(source) = &self.source {
            write!(f, "\n   | {}", source.trim_end())?;
        }
        for note in &self.notes {
            write!(f, "\n   = note: {note}")?;
        }
        Ok(())
    }
}
