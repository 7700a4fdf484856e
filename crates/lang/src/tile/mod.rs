//! The tile level: kernels that say what a whole program does to tiles, and leave threads to the compiler.
//!
//! A [`Tile`] is a small array of elements that the program holds: operators work on all of its elements, with the broadcasting of
//! numpy; reductions keep their axis, so that their result broadcasts back. A [`View`] is a tensor in memory with extents and
//! strides; loads of tiles that reach beyond it are padded there, and stores dropped. A grid of programs runs, each of which asks for its
//! [`program_id`]. One import has all names:
//!
//! ```
//! use tilewright_lang::tile::prelude::*;
//!
//! /// Softmax of each row. `columns` is the width of a tile: at least the length of a row.
//! #[kernel]
//! fn softmax(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
//!     let row = program_id(0);
//!     let x = x.tile([1, columns]).at((row, 0)).load_or(f32::NEG_INFINITY);
//!     let e = (x - x.max(1)).exp();
//!     out.tile([1, columns]).at((row, 0)).store(e / e.sum(1));
//! }
//!
//! /// c = a * b, by programs that compute `m` x `n` elements each, `k` columns of a at a time.
//! #[kernel]
//! fn matmul(a: View<bf16, 2>, b: View<bf16, 2>, c: View<bf16, 2>, m: u32, n: u32, k: u32) {
//!     let (i, j) = (program_id(0), program_id(1));
//!     let mut acc = Tile::<f32>::zeros([m, n]);
//!     for step in 0..a.extent(1).div_ceil(k) {
//!         acc = dot(a.tile([m, k]).block((i, step)).load(), b.tile([k, n]).block((step, j)).load(), acc);
//!     }
//!     c.tile([m, n]).block((i, j)).store(acc.cast());
//! }
//!
//! let kernel = matmul::stage(128, 128, 64)?;
//! assert!(kernel.func().is_tile_level() && softmax::stage(1024)?.ir().contains("tile_reduce"));
//! # Ok::<(), tilewright_lang::Error>(())
//! ```
//!
//! | written | means |
//! | --- | --- |
//! | `Tile::<f32>::zeros([4, 8])`, `full`, `ones`, `iota`, [`arange`] | tiles of constants and positions |
//! | `a + b`, `-a`, `a < b`, `a & b`, `a << 2u32` | element by element; tiles, `Val`s and constants mix |
//! | `a.exp()`, `a.maximum(b)`, `a.cast::<bf16>()`, [`select`](crate::select)`(c, a, b)` | likewise |
//! | `a.map(\|x\| ..)`, `(a, b).map(\|(x, y)\| ..)` | any code on [`Val`](crate::Val)s, `if` and loops included, for each element ([`Tiles`]) |
//! | `a.sum(1)`, `a.max(-1)`, `a.argmax(0)`, `a.sum_all()`, `a.bit_xor(0)` | reductions; the axis stays, with extent 1 |
//! | `a.reduce(1, \|x, y\| ..)`, `(a, i).reduce(..)`, `a.scan(..)`, `a.cumsum(0)` | with a function of one's own; running ones |
//! | `a.sort(1)`, `a.argsort(1)`, `a.sort_with_places(1)`, `a.top_k(8, 1)`, `a.sort_descending(1)` | in order ([`Sorted`]) |
//! | `a.histogram(256)` | how often each number occurs |
//! | `reshape`, `transpose`, `permute`, `broadcast_to`, `squeeze`, `unsqueeze`, `cat`, `join`, `split`, `halves`, `interleave`, `part`, `take`, `flip`, `item` | shapes |
//! | [`dot`]`(a, b, acc)`, [`dot_tf32`] | matrix product |
//! | `x.tile(extents).at(position)`, `.block(index)`, then `.load()`, `.load_or(pad)`, `.store(tile)`, `.prefetch()` | boxes of a tensor |
//! | `x.partition(extents)`, `x.partition_grouped(extents, group)` | the box that is this program's own, by which the host knows the grid |
//! | `x.load_scalar(position)`, `x.store_scalar(position, value)` | one element; zero and dropped outside |
//! | `x.points((rows, columns))`, `pointer.points(distances)`, `.only(mask)`, then `.load()`, `.store(tile)`, `.atomic_add(tile)`, `.atomic_cas(expected, tile)` | gather, scatter, atomics |
//! | [`fence`](crate::fence)`(Order::AcqRel, Scope::Gpu)` | orders what the program did to memory with what it does next, as others see it |
//! | [`assert_with`](crate::assert_with)`(condition, message)` | stops all programs with an error unless it holds |
//! | [`program_id`], [`num_programs`], [`swizzle2d`] | which program this is |
//! | [`philox`], [`uniform`], [`normal`] | random numbers by position |
//!
//! Axes are numbers that may count from the end, as in `x.sum(-1)`. Shapes are decided while staging: a tile that does not fit is
//! reported with the line that uses it, together with all other mistakes of the kernel.
//!
//! Contract: everything here appends one op of the IR for each thing said, nothing is fused or moved. Scalars ([`Val`](crate::Val)) are
//! the same for the whole program. What threads do (`thread_id`, barriers, shared memory) does not exist beside tiles, and the verifier
//! says so.
//!
//! Limits: five dimensions; extents are fixed while staging.

mod dot;
mod elementwise;
mod points;
mod position;
mod program;
mod random;
mod reduce;
mod shape;
mod sort;
mod value;
mod view;

pub use dot::{Factor, dot, dot_tf32};
pub use elementwise::{Elements, Tiles};
pub use points::{Distance, Points, TileIndex, TilePosition};
pub use position::{Position, TileCoordinate};
pub use program::{grouped_order, num_programs, program_id, swizzle2d};
pub use random::{RandomOffset, normal, normal4, philox, philox4, philox4x32, uniform, uniform4};
pub use sort::Sorted;
pub use value::{Extents, Tile, TileOperand, arange};
pub use view::{Place, TileRef, View};

pub(crate) use elementwise::{binary, unary};

/// Everything a kernel of the tile level needs.
pub mod prelude {
    pub use super::{
        Distance, Elements, Extents, Factor, Place, Points, Position, RandomOffset, Sorted, Tile,
        TileCoordinate, TileIndex, TileOperand, TilePosition, TileRef, Tiles, View, arange, dot, dot_tf32,
        grouped_order, normal, normal4, num_programs, philox, philox4, philox4x32, program_id, swizzle2d,
        uniform, uniform4,
    };
    pub use crate::prelude::{
        Argument, Cache, Carry, Combine, E2m1, E4m3, E5m2, Element, Error, Evict, Float, Global, Integer,
        Kernel, Logic, Number, Operand, Order, Round, Scope, StagedRange, Tf32, Ue8m0, Val, Widen, Word,
        assert_with, bf16, device, div_ceil, f16, fence, grid_launch_dependents, grid_wait, kernel, max, min,
        select, unroll, val,
    };
}
