//! LayerNorm and its gradients.

use tilewright_lang::tile::prelude::*;

/// out = (x - mean) * rstd * weight + bias for each row, a row a program; `mean` and `rstd` (one over the standard deviation) are kept for
/// the gradients. `columns` is at least the length of a row.
#[kernel]
pub fn layer_norm(
    x: View<f32, 2>,
    weight: View<f32, 1>,
    bias: View<f32, 1>,
    out: View<f32, 2>,
    mean: View<f32, 1>,
    rstd: View<f32, 1>,
    epsilon: Val<f32>,
    columns: u32,
) {
    let length = x.extent(1).cast::<f32>();
    let inside = Tile::<u32>::iota(1, [1, columns]) < x.extent(1);
    let x = x.partition([1, columns]).load();
    let average = x.sum(1) / length;
    // What pads the row is not part of the variance.
    let centred = select(inside, x - average, 0.0);
    let scale = ((centred * centred).sum(1) / length + epsilon).rsqrt();
    let [weight, bias] = [weight, bias].map(|view| view.tile([columns]).at(0).load());
    out.partition([1, columns]).store(centred * scale * weight + bias);
    mean.partition([1]).store(average.squeeze(1));
    rstd.partition([1]).store(scale.squeeze(1));
}

/// The gradients: `dx` of `rows` rows a program, and of these rows' parts of the gradients of weight and bias the sums, a row of `dweight` and
/// `dbias` a program. `column_sums` adds the rows up.
#[kernel]
pub fn layer_norm_backward(
    dout: View<f32, 2>,
    x: View<f32, 2>,
    weight: View<f32, 1>,
    mean: View<f32, 1>,
    rstd: View<f32, 1>,
    dx: View<f32, 2>,
    dweight: View<f32, 2>,
    dbias: View<f32, 2>,
    rows: u32,
    columns: u32,
) {
    let length = x.extent(1).cast::<f32>();
    let weight = weight.tile([columns]).at(0).load();
    let mut weight_sum = Tile::<f32>::zeros([1, columns]);
    let mut bias_sum = Tile::<f32>::zeros([1, columns]);
    let first = program_id(0) * rows;
    for row in first..min(first + rows, x.extent(0)) {
        let [x, dout] = [x, dout].map(|view| view.tile([1, columns]).at((row, 0)).load());
        let [mean, rstd] = [mean, rstd].map(|view| view.load_scalar(row));
        let normal = (x - mean) * rstd;
        let gradient = dout * weight;
        let along = (gradient * normal).sum(1) / length;
        let average = gradient.sum(1) / length;
        dx.tile([1, columns]).at((row, 0)).store((gradient - normal * along - average) * rstd);
        weight_sum += dout * normal;
        bias_sum += dout;
    }
    dweight.partition([1, columns]).store(weight_sum);
    dbias.partition([1, columns]).store(bias_sum);
}

/// The sum of each column, always added in the same order.
#[kernel]
pub fn column_sums(x: View<f32, 2>, out: View<f32, 1>, tile: [u32; 2]) {
    let [rows, columns] = tile;
    let own = out.partition([columns]);
    let mut sum = Tile::<f32>::zeros([rows, columns]);
    for step in 0..x.extent(0).div_ceil(rows) {
        sum += x.tile([rows, columns]).at((step * rows, own.start(0))).load();
    }
    own.store(sum.sum(0).squeeze(0));
}
