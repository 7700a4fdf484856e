//! Kernels of memory-bound operators, at the tile level: each reads like the definition of what it computes.
//!
//! A program takes some whole rows: a tile of `shape`, rows x columns, at least as wide as a row, where rows beyond the matrix and
//! columns beyond the row are padded when loaded and dropped when stored. Rows that no program can hold ([`LONGEST`]) have kernels of
//! their own, `_long`, which go through a row in steps. Numbers are f32 between loads and stores.
//!
//! What special numbers give is the same as on the host; [`ops`](https://docs.rs/tilewright) of the front crate says it for each operator.

mod elementwise;
mod exponential;
mod norm;
mod order;
mod reduce;
mod registry;

pub use elementwise::{
    Activation, Named, convert, dropout, elementwise1, elementwise2, elementwise3, glu, glu_backward,
};
pub use exponential::{
    AxisNumber, Form, cross_entropy, softmax, softmax_backward, softmax_long, softmax_masked,
    softmax_positions,
};
pub use norm::{layer_norm, rms_norm, rms_norm_adding};
pub use order::{embedding, transpose};
pub use reduce::{Kind, arg_rows, cumulative_sum, reduce_rows, top_k};
pub use registry::OPERATORS;

use tilewright_lang::prelude::*;

/// Columns of the longest row that one program holds.
pub const LONGEST: u32 = 32768;

/// Floats that operators take, with the number that pads rows where the largest is looked for.
pub trait Padded: Float {
    /// Minus infinity.
    const LOWEST: Self;
    /// Infinity.
    const HIGHEST: Self;
}

impl Padded for f32 {
    const LOWEST: f32 = f32::NEG_INFINITY;
    const HIGHEST: f32 = f32::INFINITY;
}

impl Padded for f16 {
    const LOWEST: f16 = f16::NEG_INFINITY;
    const HIGHEST: f16 = f16::INFINITY;
}

impl Padded for bf16 {
    const LOWEST: bf16 = bf16::NEG_INFINITY;
    const HIGHEST: bf16 = bf16::INFINITY;
}
