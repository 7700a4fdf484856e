use tilewright_lang::prelude::*;

#[kernel]
fn search(x: Global<u32>, n: Val<u32>, last: u32) {
    for i in 0..n {
        #[host]
        if last == 3 {
            break;
        }
        x.at(i).store(i);
    }
}

fn main() {}
