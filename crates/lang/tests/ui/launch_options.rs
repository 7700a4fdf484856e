use tilewright_lang::prelude::*;

#[kernel(threads = "many", min_blocks = -1)]
fn launched(x: Global<f32>) {
    x.store(0.0);
}

fn main() {}
