//! Graphs: made by capture or by hand, then instantiated and launched.

mod build;
mod capture;
mod exec;
mod node;
mod object;

pub(crate) use capture::{Capture, Participation};
pub(crate) use exec::Exec;
pub(crate) use node::{Graph, Node};
pub(crate) use object::UserObject;
