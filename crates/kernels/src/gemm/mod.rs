//! Matrix products: `D = epilogue(alpha * op(A) * op(B) + beta * C)`.
//!
//! | file | what it says |
//! | --- | --- |
//! | [`problem`](Problem) | which product: extents, types, how matrices lie in memory |
//! | [`footprint`](Footprint) | which part of the memory an operand takes, and whether that meets another's |
//! | [`epilogue`] | what happens to the sums: one expression for device and reference |
//! | [`ampere`] | `mma.sync` and `cp.async`: every chip since Ampere, every type and alignment |
//! | [`hopper`] | kernels of Hopper: `wgmma` and the copy engine |
//! | [`recipe`](Recipe) | the launches that compute it, with everything but the memory |
//! | [`simt`] | kernels for the CUDA cores: f32 and f64 |
//! | [`gemv`] | kernels for few rows: as fast as memory gives the right factor |
//! | [`repack`](repack()) | copies of factors that faster kernels can read |
//! | [`algorithm`](Algorithm) | one way to compute a product: a kernel, and what makes its factors readable |
//! | [`model`] | how long that takes, as far as arithmetic can tell |
//! | [`plan()`] | which algorithm for which problem |
//!
//! This crate knows no driver: a [`Recipe`] is data. The front crate puts in memory and launches, on a GPU or in the simulator.

mod algorithm;
pub mod ampere;
pub mod epilogue;
mod error;
mod factor;
mod footprint;
pub mod gemv;
pub mod hopper;
mod matrix;
pub mod model;
mod plan;
mod problem;
mod recipe;
mod repack;
mod result;
pub mod simt;
mod split;
mod work;

pub use algorithm::{Algorithm, KernelConfig};
pub use error::GemmError;
pub use factor::Side;
pub use footprint::Footprint;
pub use plan::{Candidate, ShapeClass, candidates, plan};
pub use problem::{Accumulation, Batching, Placement, Problem, Storage, Types};
pub use recipe::{Binding, KernelSource, Launch, MapBinding, Operand, Recipe, Stage};
pub use repack::{Contiguous, Repacked, repack};
