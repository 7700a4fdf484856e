use tilewright_lang::prelude::*;

#[kernel]
fn logic(x: Global<f32>, n: Val<u32>) {
    if n > 3 && n {
        x.store(1.0);
    }
    if n || n > 3 {
        x.store(2.0);
    }
}

fn main() {}
