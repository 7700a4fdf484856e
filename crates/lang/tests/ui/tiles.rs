use tilewright_lang::tile::prelude::*;

#[kernel]
fn logic(x: View<f32, 1>) {
    let x = x.tile([8]).at(0).load();
    let _ = x > 0.0 && x < 1.0;
    if x > 0.0 {}
}

#[kernel]
fn types(x: View<f32, 2>, h: View<bf16, 2>) {
    let (x, h) = (x.tile([8, 8]).at((0, 0)), h.tile([8, 8]).at((0, 0)));
    x.store(x.load() + h.load());
    x.store(h.load());
    let _ = dot(h.load(), h.load(), Tile::<i32>::zeros([8, 8]));
    x.store(x.load().map(|_| 1.0));
    x.store(select(x.load() > 0.0, h.load(), 0.0));
}

#[kernel]
fn positions(x: View<f32, 2>) {
    let _ = x.tile([8, 8]).at(0);
    let _ = x.tile([8]);
    let _ = x.points((arange(8), x.tile([8, 8]).at((0, 0)).load()));
}

fn main() {}
