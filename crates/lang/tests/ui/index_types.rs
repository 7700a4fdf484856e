use tilewright_lang::prelude::*;

#[kernel]
fn indices(x: Global<f32>, m: TensorMap<f32>, n: Val<u64>) {
    x.at(2.0f32).store(0.0);
    x.at(3usize).store(0.0);
    let tile = Shared::<f32>::new("(8,4):(4,1)");
    tile.at((n, 0u32)).store(0.0);
    m.load(n, 0, tile, Mbarrier::array(1, "bar"));
}

fn main() {}
