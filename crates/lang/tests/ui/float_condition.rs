use tilewright_lang::prelude::*;

#[kernel]
fn condition(x: Global<f32>, n: Val<u32>) {
    if x.load() {
        x.store(1.0);
    }
    while n {
        x.store(2.0);
    }
}

fn main() {}
