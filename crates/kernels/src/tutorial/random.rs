//! Dropout without a mask in memory.

use tilewright_lang::tile::prelude::*;

/// Keeps each element with probability `keep`, and divides it by that, so that the mean stays; all others become 0.
#[kernel]
pub fn dropout(x: View<f32, 1>, out: View<f32, 1>, keep: Val<f32>, seed: Val<u64>, size: u32) {
    let own = out.partition([size]);
    let kept = uniform(seed, own.positions(0).cast::<u32>()) < keep;
    let x = x.partition([size]).load();
    own.store(select(kept, x / keep, 0.0));
}
