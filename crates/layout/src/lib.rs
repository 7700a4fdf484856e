//! CuTe's layout algebra in Rust: exact, checked, and free of any GPU or compiler.
//!
//! A [`Layout`] is a function from nested coordinates to integers, written `shape:stride`:
//!
//! ```
//! use tilewright_layout::{Layout, Tiler};
//!
//! // A row-major 8x16 matrix, cut into 4x8 tiles: mode 0 walks inside a tile, mode 1 from tile to tile.
//! let matrix: Layout = "(8,16):(16,1)".parse()?;
//! let tiles = matrix.zipped_divide(&Tiler::shape((4, 8))?)?;
//! assert_eq!(tiles.to_string(), "((4,8),(2,2)):((16,1),(64,8))");
//! # Ok::<(), tilewright_layout::LayoutError>(())
//! ```
//!
//! # Where to look
//!
//! | you want | look at |
//! | --- | --- |
//! | shapes, strides, evaluation, slicing, regrouping | [`Layout`] |
//! | coalesce, compose, complement, inverses, divides, products, recast | methods of [`Layout`], one file each in `algebra/` |
//! | tiles by mode, `<3:3, (2,4):(1,8)>` | [`Tiler`] |
//! | bank swizzles, `S<3,4,3> o 0 o (8,64):(64,1)` | [`Swizzle`], [`Composed`] |
//! | coordinates as values, `1@0`, for TMA | [`Stride`] |
//! | who holds what: fragments, tiled copies | [`TvLayout`], [`TiledCopy`] |
//! | bank conflicts, sectors, vector width, injectivity | [`analysis`] |
//! | text in, text out: `compose((4,3):(3,1), 6:2)` | [`expr`] |
//! | pictures | [`draw`] |
//! | layouts in constants | [`FlatLayout`] |
//!
//! # Contract
//!
//! * Nothing panics on any input; what cannot be answered is a [`LayoutError`] that says why.
//! * [`Layout::compose`] returns a layout only when it is proved equal to the composition.
//! * [`Layout::at`] and, for integer strides, [`Layout::eval`] never allocate.
//! * `Display` and `FromStr` use CuTe's notation and round-trip exactly.
//! * Where pycute, CuTe C++ and CuTe IR disagree, CuTe IR is followed: the last mode goes on past the end, extents of
//!   1 keep their stride, left inverses fill holes with stride 0.
//!
//! # Limits
//!
//! Extents are positive: there is no empty layout but `():()`, which has one coordinate. Leaves are numbers; CuTe's
//! dynamic `?` has no counterpart, because here everything is evaluated on the host.
//!
//! The idea, the notation and the names come from CuTe (NVIDIA CUTLASS).

mod algebra;
pub mod analysis;
mod composed;
pub mod draw;
mod error;
pub mod expr;
mod flat;
mod int_tuple;
mod layout;
mod parse;
mod stride;
mod swizzle;
mod tiler;
mod tree;
mod tv;

pub use composed::{Composed, Map};
pub use error::{LayoutError, Result};
pub use flat::FlatLayout;
pub use int_tuple::{Coord, Index, IntTuple};
pub use layout::{Layout, Mode};
pub use stride::{Basis, Stride, StrideTuple};
pub use swizzle::Swizzle;
pub use tiler::Tiler;
pub use tree::{Leaves, Tree};
pub use tv::{TiledCopy, TvLayout};
