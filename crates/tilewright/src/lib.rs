//! GPU kernels in Rust without a toolchain.
//!
//! This crate is the front door: it gathers the layers of the workspace under one name. Today these are
//!
//! * [`layout`]: CuTe's layout algebra, the foundation of tiles, swizzles and tensor-core fragments;
//! * [`cuda`]: the NVIDIA driver, found at run time.
//!
//! ```
//! use tilewright::layout::{Layout, Tiler};
//! let matrix: Layout = "(8,16):(16,1)".parse()?;
//! let tiles = matrix.zipped_divide(&Tiler::shape((4, 8))?)?;
//! assert_eq!(tiles.to_string(), "((4,8),(2,2)):((16,1),(64,8))");
//! # Ok::<(), tilewright::layout::LayoutError>(())
//! ```
//!
//! The program `tilewright` of this package has the command line; `ARCHITECTURE.md` in the repository has the map.

pub use tilewright_cuda as cuda;
pub use tilewright_layout as layout;

// The examples in the README and in the chapters are tests.
#[cfg(doctest)]
mod chapters {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/layouts.md")]
    mod layouts {}
}
