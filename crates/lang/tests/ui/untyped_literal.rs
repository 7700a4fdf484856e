use tilewright_lang::prelude::*;

#[kernel]
fn literal(x: Global<f32>, n: Val<u32>) {
    x.store(x.load() * 2);
    x.at(n + 1.0).store(0);
}

fn main() {}
