use tilewright_lang::prelude::*;

#[kernel]
fn over(x: Global<u32>, n: Val<u32>) {
    for i in n {
        x.store(i);
    }
}

fn main() {}
