//! RMSNorm and LayerNorm of rows.

use tilewright_lang::tile::prelude::*;

/// One over the root of the mean of squares; columns beyond the row are zero.
#[device]
fn inverse(x: Tile<f32>, columns: Val<u32>, epsilon: Val<f32>) -> Tile<f32> {
    ((x * x).sum(1) / columns.cast::<f32>() + epsilon).rsqrt()
}

/// `y = x * rsqrt(mean(x^2) + epsilon) * (weight + offset)`; without weights if `weighted` is false.
#[kernel]
pub fn rms_norm<T: Float, W: Float, U: Float>(
    x: View<T, 2>,
    weight: View<W, 2>,
    y: View<U, 2>,
    epsilon: Val<f32>,
    offset: Val<f32>,
    weighted: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let numbers = x.tile(shape).block((i, 0)).load().cast::<f32>();
    let normal = numbers * inverse(numbers, x.extent(1), epsilon);
    let y = y.tile(shape).block((i, 0));
    if weighted {
        let weight = weight.tile([1, shape[1]]).at((0, 0)).load().cast::<f32>() + offset;
        y.store((normal * weight).cast());
    } else {
        y.store(normal.cast());
    }
}

/// The same of `sum = x + residual`, which is stored, too.
#[kernel]
pub fn rms_norm_adding<T: Float, W: Float, U: Float>(
    x: View<T, 2>,
    residual: View<T, 2>,
    weight: View<W, 2>,
    sum: View<T, 2>,
    y: View<U, 2>,
    epsilon: Val<f32>,
    offset: Val<f32>,
    weighted: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let added = x.tile(shape).block((i, 0)).load().cast::<f32>()
        + residual.tile(shape).block((i, 0)).load().cast::<f32>();
    sum.tile(shape).block((i, 0)).store(added.cast());
    let normal = added * inverse(added, x.extent(1), epsilon);
    let y = y.tile(shape).block((i, 0));
    if weighted {
        let weight = weight.tile([1, shape[1]]).at((0, 0)).load().cast::<f32>() + offset;
        y.store((normal * weight).cast());
    } else {
        y.store(normal.cast());
    }
}

/// `y = (x - mean) * rsqrt(variance + epsilon) * weight + bias`; each of the last two only if it is asked for.
#[kernel]
pub fn layer_norm<T: Float, W: Float, U: Float>(
    x: View<T, 2>,
    weight: View<W, 2>,
    bias: View<W, 2>,
    y: View<U, 2>,
    epsilon: Val<f32>,
    weighted: bool,
    biased: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let from = x.tile(shape).block((i, 0));
    let numbers = from.load().cast::<f32>();
    let mean = numbers.sum(1) / x.extent(1).cast::<f32>();
    // Columns beyond the row are zero again, as their squares are added.
    let inside = from.positions(1).bitcast::<u32>() < x.extent(1);
    let centred = select(inside, numbers - mean, 0.0f32);
    let mut result = centred * inverse(centred, x.extent(1), epsilon);
    if weighted {
        result *= weight.tile([1, shape[1]]).at((0, 0)).load().cast::<f32>();
    }
    if biased {
        result += bias.tile([1, shape[1]]).at((0, 0)).load().cast::<f32>();
    }
    y.tile(shape).block((i, 0)).store(result.cast());
}
