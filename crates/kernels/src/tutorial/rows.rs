//! Softmax of rows.

use tilewright_lang::tile::prelude::*;

/// Softmax of each row, a row a program. `columns` is the width of a tile: at least the length of a row.
#[kernel]
pub fn softmax(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    let x = x.partition([1, columns]).load_or(f32::NEG_INFINITY);
    let e = (x - x.max(1)).exp();
    out.partition([1, columns]).store(e / e.sum(1));
}

/// Divides each row by its sum, a row a program.
#[kernel]
pub fn normalise(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    let x = x.partition([1, columns]).load();
    out.partition([1, columns]).store(x / x.sum(1));
}
