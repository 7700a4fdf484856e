//! Kernels written in the language, found by name in one [registry](KERNELS).
//!
//! [`examples`] goes from the first kernel to a warp-specialised matrix product, with the tutorial in `docs/`. [`ladder`] is one matrix
//! product in eleven steps, from the definition to the speed of light. [`gemm`] is the library of matrix products,
//! [`ops`] that of the operators between them. [`tutorial`] has the first kernels on tiles, with their chapter in `docs/`.

pub mod examples;
pub mod gemm;
pub mod ladder;
pub mod ops;
mod registry;
pub mod tutorial;

pub use registry::{Entry, KERNELS, TESTED, find, named};
