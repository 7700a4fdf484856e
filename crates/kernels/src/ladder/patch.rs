//! Step 2, who computes what: a warp takes a patch of `c` instead of a column, so that its lanes share what they load.

use tilewright_lang::prelude::*;

/// `c = a * b^T`. A block computes 16 rows and 16 columns: each warp a patch of 4 rows and 8 columns.
#[kernel(threads = 256)]
pub fn ladder_patch(a: Global<bf16>, b: Global<bf16>, c: Global<bf16>, n: Val<u32>, k: Val<u32>) {
    let (a, b, c) = (a.matrix(k), b.matrix(k), c.matrix(n));
    // Lanes in a row of the patch want the same element of `a`, lanes in a column the same of `b`: one request fetches it for all.
    let row = block_id(1) * 16 + warp_id() / 2 * 4 + lane_id() / 8;
    let column = block_id(0) * 16 + warp_id() % 2 * 8 + lane_id() % 8;

    let mut sum = val(0.0f32);
    for i in 0..k {
        let (x, y) = (a.at(row, i).load(), b.at(column, i).load());
        sum = x.cast::<f32>().mul_add(y.cast::<f32>(), sum);
    }
    c.at(row, column).store(sum.cast::<bf16>());
}
