//! Step 1, the definition: one thread computes one element of `c`, and asks global memory for all it needs.

use tilewright_lang::prelude::*;

/// `c = a * b^T`. A block computes 32 rows and 8 columns: each warp 32 rows of one column.
#[kernel(threads = 256)]
pub fn ladder_naive(a: Global<bf16>, b: Global<bf16>, c: Global<bf16>, n: Val<u32>, k: Val<u32>) {
    let (a, b, c) = (a.matrix(k), b.matrix(k), c.matrix(n));
    let row = block_id(1) * 32 + thread_id(0) % 32;
    let column = block_id(0) * 8 + thread_id(0) / 32;

    let mut sum = val(0.0f32);
    for i in 0..k {
        let (x, y) = (a.at(row, i).load(), b.at(column, i).load());
        sum = x.cast::<f32>().mul_add(y.cast::<f32>(), sum);
    }
    c.at(row, column).store(sum.cast::<bf16>());
}
