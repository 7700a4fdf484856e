use tilewright_lang::prelude::*;

#[kernel]
fn jumps(x: Global<f32>, n: Val<u32>) {
    for i in 0..n {
        if i > 3 {
            break;
        }
        if i > 1 {
            if i == 2 {
                continue;
            }
            x.at(i).store(1.0);
        }
        x.at(i).store(0.0);
    }
    if n == 0 {
        return;
    } else {
        x.store(2.0);
    }
    x.store(1.0);
}

fn main() {}
