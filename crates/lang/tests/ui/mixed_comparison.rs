use tilewright_lang::prelude::*;

#[kernel]
fn compared(x: Global<f32>, n: Val<u32>, m: Val<i32>) {
    if n < m {
        x.store(1.0);
    }
    if n == 0i64 {
        x.store(2.0);
    }
}

fn main() {}
