//! RMSNorm and LayerNorm of rows, and their gradients.
//!
//! A gradient of weights is a sum over all rows. Programs add up some of them each, always the same ones in the same order, and leave the sums
//! as rows of `parts`, which [`sum_columns`] adds up.

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

/// What a row is divided by, from a running sum of squares for each column of a step.
#[device]
fn inverse_of(squares: Tile<f32>, columns: Val<u32>, epsilon: Val<f32>) -> Tile<f32> {
    (squares.sum(1) / columns.cast::<f32>() + epsilon).rsqrt()
}

/// [`rms_norm()`] of rows of any length, one by a program, `width` columns at a time: once through the row for the squares, and once more for
/// the results.
#[kernel]
pub fn rms_norm_long<T: Float, W: Float, U: Float>(
    x: View<T, 2>,
    weight: View<W, 2>,
    y: View<U, 2>,
    epsilon: Val<f32>,
    offset: Val<f32>,
    weighted: bool,
    width: u32,
) {
    let (row, shape) = (program_id(0), [1, width]);
    let steps = x.extent(1).div_ceil(width);
    let mut squares = Tile::<f32>::zeros(shape);
    for step in 0..steps {
        let x = x.tile(shape).block((row, step)).load().cast::<f32>();
        squares += x * x;
    }
    let inverse = inverse_of(squares, x.extent(1), epsilon);
    for step in 0..steps {
        let mut normal = x.tile(shape).block((row, step)).load().cast::<f32>() * inverse;
        if weighted {
            normal *= weight.tile(shape).block((0, step)).load().cast::<f32>() + offset;
        }
        y.tile(shape).block((row, step)).store(normal.cast());
    }
}

/// The same of `sum = x + residual`. Nothing is stored before all is read, so that results can take the place of inputs.
#[kernel]
pub fn rms_norm_adding_long<T: Float, W: Float, U: Float>(
    x: View<T, 2>,
    residual: View<T, 2>,
    weight: View<W, 2>,
    sum: View<T, 2>,
    y: View<U, 2>,
    epsilon: Val<f32>,
    offset: Val<f32>,
    weighted: bool,
    width: u32,
) {
    let (row, shape) = (program_id(0), [1, width]);
    let steps = x.extent(1).div_ceil(width);
    let added = |step: Val<u32>| {
        let [x, residual] =
            [x, residual].map(|view| view.tile(shape).block((row, step)).load().cast::<f32>());
        x + residual
    };
    let mut squares = Tile::<f32>::zeros(shape);
    for step in 0..steps {
        let x = added(step);
        squares += x * x;
    }
    let inverse = inverse_of(squares, x.extent(1), epsilon);
    for step in 0..steps {
        let x = added(step);
        sum.tile(shape).block((row, step)).store(x.cast());
        let mut normal = x * inverse;
        if weighted {
            normal *= weight.tile(shape).block((0, step)).load().cast::<f32>() + offset;
        }
        y.tile(shape).block((row, step)).store(normal.cast());
    }
}

/// [`layer_norm()`] of rows of any length, one by a program, `width` columns at a time: once through the row for its mean, once for the
/// squares of the distances from it, and once for the results.
#[kernel]
pub fn layer_norm_long<T: Float, W: Float, U: Float>(
    x: View<T, 2>,
    weight: View<W, 2>,
    bias: View<W, 2>,
    y: View<U, 2>,
    epsilon: Val<f32>,
    weighted: bool,
    biased: bool,
    width: u32,
) {
    let (row, shape) = (program_id(0), [1, width]);
    let (columns, steps) = (x.extent(1), x.extent(1).div_ceil(width));
    let mut sum = Tile::<f32>::zeros(shape);
    for step in 0..steps {
        sum += x.tile(shape).block((row, step)).load().cast::<f32>();
    }
    let mean = sum.sum(1) / columns.cast::<f32>();
    let mut squares = Tile::<f32>::zeros(shape);
    for step in 0..steps {
        let from = x.tile(shape).block((row, step));
        let inside = from.positions(1).bitcast::<u32>() < columns;
        let centred = select(inside, from.load().cast::<f32>() - mean, 0.0f32);
        squares += centred * centred;
    }
    let inverse = inverse_of(squares, columns, epsilon);
    for step in 0..steps {
        let mut result = (x.tile(shape).block((row, step)).load().cast::<f32>() - mean) * inverse;
        if weighted {
            result *= weight.tile(shape).block((0, step)).load().cast::<f32>();
        }
        if biased {
            result += bias.tile(shape).block((0, step)).load().cast::<f32>();
        }
        y.tile(shape).block((row, step)).store(result.cast());
    }
}

/// The gradient of RMSNorm: each program takes every so many-th row, and adds up its part of the gradient of the weights.
#[kernel]
pub fn rms_norm_backward<T: Float, W: Float, U: Float>(
    x: View<T, 2>,
    dy: View<T, 2>,
    weight: View<W, 2>,
    dx: View<U, 2>,
    parts: View<f32, 2>,
    epsilon: Val<f32>,
    offset: Val<f32>,
    weighted: bool,
    width: u32,
) {
    let (first, apart, shape) = (program_id(0), num_programs(0), [1, width]);
    let columns = x.extent(1);
    let factor = if weighted {
        weight.tile(shape).at((0, 0)).load().cast::<f32>() + offset
    } else {
        Tile::ones(shape)
    };
    let mut part = Tile::<f32>::zeros(shape);
    for step in 0..(x.extent(0) - first).div_ceil(apart) {
        let row = step * apart + first;
        let [x, dy] = [x, dy].map(|view| view.tile(shape).block((row, 0)).load().cast::<f32>());
        let inverse = inverse(x, columns, epsilon);
        let (normal, g) = (x * inverse, dy * factor);
        let mean = (g * normal).sum(1) / columns.cast::<f32>();
        dx.tile(shape).block((row, 0)).store(((g - normal * mean) * inverse).cast());
        part += dy * normal;
    }
    parts.tile(shape).block((first, 0)).store(part);
}

/// The gradient of LayerNorm, in the same way.
#[kernel]
pub fn layer_norm_backward<T: Float, W: Float, U: Float>(
    x: View<T, 2>,
    dy: View<T, 2>,
    weight: View<W, 2>,
    dx: View<U, 2>,
    weights: View<f32, 2>,
    biases: View<f32, 2>,
    epsilon: Val<f32>,
    weighted: bool,
    width: u32,
) {
    let (first, apart, shape) = (program_id(0), num_programs(0), [1, width]);
    let columns = x.extent(1);
    let factor =
        if weighted { weight.tile(shape).at((0, 0)).load().cast::<f32>() } else { Tile::ones(shape) };
    let (mut of_weights, mut of_biases) = (Tile::<f32>::zeros(shape), Tile::<f32>::zeros(shape));
    for step in 0..(x.extent(0) - first).div_ceil(apart) {
        let row = step * apart + first;
        let from = x.tile(shape).block((row, 0));
        let numbers = from.load().cast::<f32>();
        let dy = dy.tile(shape).block((row, 0)).load().cast::<f32>();
        let inside = from.positions(1).bitcast::<u32>() < columns;
        let mean = numbers.sum(1) / columns.cast::<f32>();
        let centred = select(inside, numbers - mean, 0.0f32);
        let inverse = inverse(centred, columns, epsilon);
        let (normal, g) = (centred * inverse, dy * factor);
        let along = (g * normal).sum(1) / columns.cast::<f32>();
        let level = g.sum(1) / columns.cast::<f32>();
        dx.tile(shape).block((row, 0)).store(((g - level - normal * along) * inverse).cast());
        of_weights += dy * normal;
        of_biases += dy;
    }
    weights.tile(shape).block((first, 0)).store(of_weights);
    biases.tile(shape).block((first, 0)).store(of_biases);
}

/// The sum of each column, `shape[0]` rows at a time, `shape[1]` columns by a program.
#[kernel]
pub fn sum_columns(x: View<f32, 2>, sums: View<f32, 2>, shape: [u32; 2]) {
    let mut sum = Tile::<f32>::zeros(shape);
    for step in 0..x.extent(0).div_ceil(shape[0]) {
        sum += x.tile(shape).block((step, program_id(0))).load();
    }
    sums.tile([1, shape[1]]).block((0, program_id(0))).store(sum.sum(0));
}
