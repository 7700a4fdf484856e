use tilewright_lang::prelude::*;

#[kernel]
fn counted(x: Global<f32>, n: Val<u32>) {
    let mut count = 0u32;
    for i in 0..n {
        x.at(i).store(0.0);
        count += 1;
    }
    x.at(count).store(1.0);
}

fn main() {}
