use tilewright_lang::prelude::*;

#[kernel]
fn captured(x: Global<f32>, n: Val<u32>) {
    let mut sum = val(0.0f32);
    let add = |i: Val<u32>| sum += x.at(i).load();
    for i in 0..n {
        add(i);
    }
    x.store(sum);
}

fn main() {}
