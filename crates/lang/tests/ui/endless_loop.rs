use tilewright_lang::prelude::*;

#[kernel]
fn endless(x: Global<u32>, n: Val<u32>) {
    let mut i = val(0u32);
    loop {
        x.at(i).store(i);
        i += 1;
        if i >= n {
            break;
        }
    }
}

fn main() {}
