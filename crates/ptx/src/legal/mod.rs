//! What is legal where: the table of forms, and modules judged by it.

mod check;
mod form;
mod kind;
mod matching;
mod sample;
mod table;

pub use check::{Fault, Problem, Requirement, check, requirements};
pub use form::{Form, Need, forms};
pub use sample::Sample;
