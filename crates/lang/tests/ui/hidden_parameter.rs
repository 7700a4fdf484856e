use tilewright_lang::prelude::*;

type Scalar = Val<f32>;

#[kernel]
fn hidden(x: Global<f32>, scale: Scalar) {
    x.store(x.load() * scale);
}

fn main() {}
