//! The first kernel: one element a thread.

use tilewright_lang::prelude::*;

/// `out = x + y`, element by element. Any element type with arithmetic; `block` threads a block.
#[kernel(threads = block)]
pub fn vector_add<T: Number>(x: Global<T>, y: Global<T>, out: Global<T>, n: Val<u32>, block: u32) {
    let i = block_id(0) * block + thread_id(0);
    if i < n {
        out.at(i).store(x.at(i).load() + y.at(i).load());
    }
}
