//! Runs PTX on the CPU, checks it, and counts what a profiler would.

pub mod check;
pub mod number;
pub mod program;
pub mod tensor;
