//! The kernels of the tutorial, each a step further than the one before.

mod ampere;
mod elementwise;
mod hopper;
mod reduction;
mod swizzle;

pub use ampere::gemm_ampere;
pub use elementwise::vector_add;
pub use hopper::gemm_hopper;
pub use reduction::{block_sum, cluster_sum};
pub use swizzle::transpose;

/// The tile of a matrix product that one block computes, and how many steps of `k` are under way at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GemmTile {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
    /// Depth of a step.
    pub k: u32,
    /// Buffers in shared memory.
    pub stages: u32,
}
