//! Kernels written in the language, found by name in one [registry](KERNELS).
//!
//! [`examples`] is a ladder from the first kernel to a warp-specialised matrix product; the tutorial in `docs/` walks up it.
//! [`gemm`] is the library of matrix products.

pub mod examples;
pub mod gemm;
mod registry;

pub use registry::{Entry, KERNELS, find};
