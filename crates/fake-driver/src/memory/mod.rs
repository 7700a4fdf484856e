//! Memory: what is allocated, and the functions that allocate, copy and ask.

mod allocate;
mod copy;
mod pointer;
mod pool;
mod space;

pub(crate) use pool::Pool;
pub(crate) use space::{AddressSpace, Kind};
