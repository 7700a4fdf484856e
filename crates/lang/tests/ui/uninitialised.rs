use tilewright_lang::prelude::*;

#[kernel]
fn uninitialised(x: Global<f32>, n: Val<u32>) {
    let sign;
    if n > 3 {
        sign = val(1.0f32);
    } else {
        sign = val(-1.0f32);
    }
    x.store(sign);
}

fn main() {}
