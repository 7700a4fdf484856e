//! Kernels of memory-bound operators, at the tile level: each reads like the definition of what it computes.
//!
//! A program takes some whole rows: a tile of `shape`, rows x columns, at least as wide as a row, where rows beyond the matrix and
//! columns beyond the row are padded when loaded and dropped when stored. Rows of which only the first columns are needed are taken in parts
//! ([`InParts`]). Rows that no program can hold ([`LONGEST`]) have kernels of
//! their own, `_long`, which go through a row in steps. Numbers are f32 between loads and stores.
//!
//! What special numbers give is the same as on the host; the module `ops` of the crate `tilewright` says it for each operator.

mod ahead;
mod elementwise;
mod exponential;
mod in_parts;
mod loss;
mod norm;
mod order;
mod probabilities;
mod quantise;
mod rank;
mod reduce;
mod registry;
mod rotary;
mod tiling;

pub use elementwise::{
    Activation, SharedFormula, convert, dropout, elementwise1, elementwise2, elementwise3, glu, glu_backward,
};
pub use in_parts::InParts;
pub use loss::{
    cross_entropy, cross_entropy_backward, cross_entropy_backward_in_parts, cross_entropy_backward_long,
    cross_entropy_long,
};
pub use norm::{
    layer_norm, layer_norm_adding, layer_norm_adding_long, layer_norm_backward, layer_norm_backward_long,
    layer_norm_long, rms_norm, rms_norm_adding, rms_norm_adding_long, rms_norm_backward,
    rms_norm_backward_long, rms_norm_long, rms_norm_quantised, rms_norm_quantised_long, sum_columns,
};
pub use order::{embedding, permute, transpose};
pub use probabilities::{
    Form, softmax, softmax_backward, softmax_backward_long, softmax_causal, softmax_long, softmax_masked,
    softmax_masked_causal, softmax_masked_long, softmax_masked_positions, softmax_positions,
    softmax_positions_long, softmax_to_position,
};
pub use quantise::{dequantise, quantise_by, quantise_rows, scale_of};
pub use rank::{
    FEW, LONGEST_PART, MOST_SORTED, arg_of_ranks, arg_rows, arg_steps, order_bits, top_k, top_k_at_last,
    top_k_long, top_k_of_parts, top_k_of_ranks, top_k_sorted,
};
pub use reduce::{Kind, cumulative_sum, cumulative_sum_long, reduce_rows, reduce_steps};
pub use registry::OPERATORS;
pub use rotary::{Pairs, rope, rope_positions};
pub use tiling::Tiling;

use tilewright_lang::prelude::*;

/// Columns of the longest row that one program holds where it is one block of threads.
pub const LONGEST: u32 = 32768;

/// The same where a program can be a cluster of eight blocks.
pub const LONGEST_OF_CLUSTER: u32 = 8 * LONGEST;

/// Floats that operators take, with the number that pads rows where the largest is looked for.
pub trait Padded: Float {
    /// Minus infinity.
    const LOWEST: Self;
    /// Infinity.
    const HIGHEST: Self;
    /// The lowest finite number.
    const LEAST: Self;
}

impl Padded for f32 {
    const LOWEST: f32 = f32::NEG_INFINITY;
    const HIGHEST: f32 = f32::INFINITY;
    const LEAST: f32 = f32::MIN;
}

impl Padded for f16 {
    const LOWEST: f16 = f16::NEG_INFINITY;
    const HIGHEST: f16 = f16::INFINITY;
    const LEAST: f16 = f16::MIN;
}

impl Padded for bf16 {
    const LOWEST: bf16 = bf16::NEG_INFINITY;
    const HIGHEST: bf16 = bf16::INFINITY;
    const LEAST: bf16 = bf16::MIN;
}

/// Integers that say which column is meant.
pub trait AxisNumber: Integer {}

impl AxisNumber for i32 {}
impl AxisNumber for i64 {}
impl AxisNumber for u32 {}
