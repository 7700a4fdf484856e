//! What passes share: the list of remarks.

use std::fmt;

use tilewright_ir::{Func, Loc};

/// Whether a remark tells of something done or of something that could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemarkKind {
    /// The pass did this.
    Applied,
    /// The pass would have done this; the message says what it lacked.
    Missed,
}

impl fmt::Display for RemarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemarkKind::Applied => "applied",
            RemarkKind::Missed => "missed",
        })
    }
}

/// What a pass has to say about a place in the program. It prints as one line.
///
/// ```
/// use tilewright_ir::Loc;
/// use tilewright_passes::{Remark, RemarkKind};
///
/// let remark = Remark {
///     pass: "licm",
///     func: "softmax".to_owned(),
///     loc: Loc::NONE,
///     location: Some("src/softmax.rs:7:9".to_owned()),
///     kind: RemarkKind::Missed,
///     message: "a load stays in the loop, which stores".to_owned(),
/// };
/// assert_eq!(
///     remark.to_string(),
///     "src/softmax.rs:7:9: licm of `softmax`, missed: a load stays in the loop, which stores"
/// );
/// ```
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

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        write!(f, "{} of `{}`, {}: {}", self.pass, self.func, self.kind, self.message)
    }
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
