use tilewright_lang::prelude::*;

#[derive(Clone, Copy)]
struct Config {
    width: u32,
}

#[kernel]
fn configured(x: Global<f32>, config: Config) {
    x.at(config.width).store(0.0);
}

#[kernel]
fn not_an_argument(x: Global<f32>, #[runtime] config: Config) {
    x.at(config.width).store(0.0);
}

fn main() {}
