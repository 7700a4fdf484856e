use tilewright_lang::prelude::*;

#[kernel]
fn ranges(x: Global<u32>, n: Val<u32>, m: Val<i32>) {
    for i in m..n {
        x.store(i);
    }
    for i in 0u64..n {
        x.store(i);
    }
    for i in 0..=n {
        x.store(i);
    }
}

fn main() {}
