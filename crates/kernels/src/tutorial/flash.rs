//! Attention in one pass over the keys.

use tilewright_lang::tile::prelude::*;

/// out = softmax(q * transpose of k * scale) * v for each head (axis 0), `tile[0]` rows of q a program, `tile[1]` keys at a time; with `causal`
/// a row sees no keys behind its own position. Heads are `width` wide, and there are as many in all four.
#[kernel]
pub fn attention(
    q: View<bf16, 3>,
    k: View<bf16, 3>,
    v: View<bf16, 3>,
    out: View<bf16, 3>,
    scale: Val<f32>,
    causal: bool,
    tile: [u32; 2],
    width: u32,
) {
    let [rows, columns] = tile;
    let own = out.partition([1, rows, width]);
    let [q, k, v] = [q, k, v].map(|view| view.select_unchecked(0, program_id(0)));
    let first = program_id(1) * rows;
    let q = q.tile([rows, width]).at((first, 0)).load();
    let row = Tile::<u32>::iota(0, [rows, columns]) + first;
    let scale = scale * std::f32::consts::LOG2_E;

    let mut largest = Tile::<f32>::full([rows, 1], f32::NEG_INFINITY);
    let mut sum = Tile::<f32>::zeros([rows, 1]);
    let mut acc = Tile::<f32>::zeros([rows, width]);
    let keys = if causal { min(k.extent(0), first + rows) } else { k.extent(0) };
    for step in 0..keys.div_ceil(columns) {
        let start = step * columns;
        let transposed = k.transpose().tile([width, columns]).at((0, start)).load();
        let column = Tile::<u32>::iota(1, [rows, columns]) + start;
        let seen = if causal { (column < keys) & (column <= row) } else { column < keys };
        let scores = dot(q, transposed, Tile::<f32>::zeros([rows, columns])) * scale;
        let scores = select(seen, scores, f32::NEG_INFINITY);

        let higher = largest.maximum(scores.max(1));
        let p = (scores - higher).exp2();
        let shrink = (largest - higher).exp2();
        sum = sum * shrink + p.sum(1);
        let values = v.tile([columns, width]).at((start, 0)).load();
        acc = dot(p.cast::<bf16>(), values, acc * shrink);
        largest = higher;
    }
    own.store((acc / sum).cast::<bf16>().unsqueeze(0));
}
