//! The machine: executes a grid.
//!
//! ```text
//! grid     rounds: clusters run in parallel against the memory of the last round, then their writes are committed in order
//! cluster  a seeded scheduler over the warps of its blocks, and the asynchronous work they start
//! warp     paths of lanes through the program
//! exec     one op for the lanes of a path: values here; control, access, atomic, collective, barrier, mbarrier, cp_async, bulk and
//!          matrix have the others
//! asynchronous  what is under way, and when it happens
//! sync     ordering through memory, for the checker
//! report   from what went wrong to a finding
//! ```
//!
//! # Contract
//!
//! * A run is a function of module, launch, memory and seed: neither the number of cores nor their speed has an influence.
//! * Everything a kernel does wrong is a finding; an error is only what the simulator cannot do, or what was wrong before the start.

mod access;
mod asynchronous;
mod atomic;
mod barrier;
mod bulk;
mod cluster;
mod collective;
mod control;
mod cp_async;
mod exec;
mod grid;
mod matrix;
mod mbarrier;
mod printf;
mod report;
mod shared;
mod sync;
mod tensor_map;
mod warp;

pub(crate) use grid::{Geometry, capacity, refused, run};
