use tilewright_lang::prelude::*;

#[kernel]
fn sum(x: Global<f32>) -> Val<f32> {
    x.load()
}

fn main() {}
