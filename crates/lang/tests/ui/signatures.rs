use tilewright_lang::prelude::*;

struct Body;

impl Body {
    #[kernel]
    fn method(&self, x: Global<f32>) {
        x.store(0.0);
    }
}

#[kernel]
fn patterns((x, y): (Global<f32>, Global<f32>), f: impl Fn(u32) -> u32) {
    x.at(f(1)).store(y.load());
}

#[kernel(thread = 32, cluster = 2)]
fn options(x: Global<f32>) {
    x.store(0.0);
}

fn main() {}
