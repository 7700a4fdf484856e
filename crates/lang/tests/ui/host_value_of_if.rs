use tilewright_lang::prelude::*;

#[kernel]
fn chosen(x: Global<f32>, n: Val<u32>) {
    let scale = if n > 3 { 2.0f32 } else { 0.5 };
    x.store(scale);
}

fn main() {}
