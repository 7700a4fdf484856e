//! Sums of vectors.

use tilewright_lang::tile::prelude::*;

/// out = x + y, `size` elements a program.
#[kernel]
pub fn vector_add(x: View<f32, 1>, y: View<f32, 1>, out: View<f32, 1>, size: u32) {
    let x = x.partition([size]).load();
    let y = y.partition([size]).load();
    out.partition([size]).store(x + y);
}
