//! Tensor-core instructions, matrix copies and the addressing of TMA, as pure functions without machine state.
//!
//! | instruction | module |
//! | --- | --- |
//! | `mma.sync`, `mma.sp.sync` | [`mma`] |
//! | `wmma.load`, `wmma.mma`, `wmma.store` | [`wmma`] |
//! | `wgmma.mma_async` | [`wgmma`] |
//! | `ldmatrix`, `stmatrix`, `movmatrix` | [`copy`] |
//! | tensor maps: `cp.async.bulk.tensor`, `tensormap.replace` | [`tensor_map`] |
//!
//! # How sums are rounded
//!
//! The hardware aligns all products of an instruction and the accumulator to the largest of them, drops the bits that
//! fall off, and rounds towards zero; how many bits it keeps differs between chips and types and is not documented.
//! Here the order is fixed instead, the same for every instruction and on every computer:
//!
//! * `f32` accumulators: one `f32` fused multiply-add for each k, in the order of k, beginning with the accumulator. A
//!   sum whose partial sums are all `f32` numbers is exact. Any other differs from the exact sum by at most half a unit
//!   in the last place of the largest partial sum for each k, an error of the order of the hardware's. (8-bit floats on
//!   Hopper are an exception: the hardware keeps about 14 bits of a sum, these are more exact.)
//! * `f16` accumulators: the same in `f32`, rounded to nearest at the end.
//! * `f64`: one fused multiply-add for each k, in the order of k, in the rounding mode of the instruction.
//! * integers: exact, then wrapped or, with `.satfinite`, clamped once.
//!
//! Subnormal numbers count. Of `tf32` factors the low 13 bits are ignored. A NaN comes out as the one that the hardware
//! writes, with all bits below the sign set (`f64`: `0xfff8000000000000`).

pub mod copy;
mod dense;
mod error;
mod format;
pub mod mma;
mod product;
pub mod tensor_map;
#[cfg(test)]
mod testing;
pub mod wgmma;
pub mod wmma;

pub use crate::number::Lanes;
pub use error::{Result, TensorError};
pub use format::{Accumulator, Format};
pub use tensor_map::{Run, TensorMap};
