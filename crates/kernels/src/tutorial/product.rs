//! Matrix products.

use tilewright_lang::tile::prelude::*;

/// c = a * b, or the leaky ReLU of that, a tile of m x n a program, k columns of a and rows of b at a time.
#[kernel]
pub fn matmul(a: View<bf16, 2>, b: View<bf16, 2>, c: View<bf16, 2>, leaky: bool, tile: [u32; 3]) {
    let [m, n, k] = tile;
    let own = c.partition_grouped([m, n], 8);
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        let left = a.tile([m, k]).at((own.start(0), step * k)).load();
        let right = b.tile([k, n]).at((step * k, own.start(1))).load();
        acc = dot(left, right, acc);
    }
    if leaky {
        acc = select(acc >= 0.0, acc, acc * 0.01);
    }
    own.store(acc.cast());
}
