//! What passes share: the list of remarks.

use tilewright_ir::{Func, Loc};

/// Whether a remark tells of something done or of something that could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemarkKind {
    /// The pass did this.
    Applied,
    /// The pass would have done this; the message says what it lacked.
    Missed,
}

/// What a pass has to say about a place in the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The pass.
    pub pass: &'static str,
    /// The function.
    pub func: String,
    /// The place, as an index into the function's locations.
    pub loc: Loc,
    /// The place as `file:line:column`, if known.
    pub location: Option<String>,
    /// Done, or missed.
    pub kind: RemarkKind,
    /// One line for people.
    pub message: String,
}

/// What a pass is given besides the function.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The remarks so far.
    pub remarks: Vec<Remark>,
}

impl Context {
    /// Adds a remark.
    pub fn remark(&mut self, pass: &'static str, func: &Func, loc: Loc, kind: RemarkKind, message: String) {
        let location = func.locations.get(loc).map(|at| at.to_string());
        self.remarks.push(Remark { pass, func: func.name.clone(), loc, location, kind, message });
    }
}
