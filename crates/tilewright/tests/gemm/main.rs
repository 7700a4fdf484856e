//! Every kernel of the library of matrix products, on small problems in the simulator, against sums in f64.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod algorithm;
mod ampere;
mod common;
mod counts;
mod epilogue;
mod fused;
mod gemv;
mod hopper;
mod repack;
mod simt;
