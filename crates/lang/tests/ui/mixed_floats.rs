use tilewright_lang::prelude::*;

#[kernel]
fn mixed(x: Global<f32>, y: Global<bf16>) {
    x.store(x.load() + y.load());
}

fn main() {}
