use tilewright_lang::prelude::*;

#[kernel]
fn small(x: Global<E4m3>, n: Val<f32>) {
    let a = x.load();
    x.store(a * a);
    x.store(-a);
    let bits = n & 1.0;
    n.count_ones();
}

fn main() {}
