//! Matrix products: `D = epilogue(alpha * op(A) * op(B) + beta * C)`.
//!
//! | file | what it says |
//! | --- | --- |
//! | [`problem`](Problem) | which product: extents, types, how matrices lie in memory |
//! | [`footprint`](Footprint) | which part of the memory an operand takes, and whether that meets another's |
//! | [`epilogue`] | what happens to the sums: one expression for device and reference |
//! | [`hopper`] | kernels of Hopper: `wgmma` and the copy engine |
//! | [`ampere`] | `mma.sync` and `cp.async`: every chip since Ampere, every type and alignment |
//! | [`simt`] | kernels for the CUDA cores: f32 and f64 |
//! | [`gemv`] | kernels for few rows: as fast as memory gives the right factor |
//! | [`repack`](repack()) | copies of factors that faster kernels can read |
//! | `factor`, `matrix`, `result`, `split` | what the families share: how they see factors and matrices, how sums become D, and sums of several blocks |
//! | [`algorithm`](Algorithm) | one way to compute a product: a kernel, and what makes its factors readable |
//! | [`model`], `work` | how long that takes, as far as arithmetic can tell, from what the hardware sees of a configuration |
//! | [`plan()`] | which algorithm for which problem |
//! | [`recipe`](Recipe) | the launches that compute it, with everything but the memory |
//! | [`error`](GemmError) | what is wrong with a problem or a configuration |
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
