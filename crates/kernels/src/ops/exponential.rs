//! Softmax of rows, with all its masks, its gradient, and the cross entropy that is made of it.

use tilewright_lang::tile::prelude::*;

use super::Padded;

/// What is made of the exponentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Probabilities.
    Probabilities,
    /// Their logarithms.
    Logarithms,
}

impl Form {
    /// What a column that does not count gets.
    fn nothing(self) -> f32 {
        match self {
            Form::Probabilities => 0.0,
            Form::Logarithms => f32::NEG_INFINITY,
        }
    }
}

/// Exponentials of what is not above zero, in seven instructions: the hardware's power of two of the rounded product with log2(e), corrected
/// by what rounding left out. Within 3 ulp, and zero below the normal numbers.
#[device]
fn exponential(x: Tile<f32>) -> Tile<f32> {
    /// log2(e) is the sum of these two.
    const HIGH: f32 = std::f32::consts::LOG2_E;
    const LOW: f32 = 1.925_963e-8;
    x.map(|x: Val<f32>| {
        // Far below, and at -inf, there is nothing left to correct.
        let x = x.max_nan(-150.0);
        let power = x * HIGH;
        let rest = x.mul_add(HIGH, -power) + x * LOW;
        let e = power.exp2_fast();
        e.mul_add(rest * std::f32::consts::LN_2, e)
    })
}

/// Exponentials of `x - most` for results of 16 bits, in two instructions: a few parts in a million off where they count, which such results
/// do not show.
#[device]
fn quick_exponential(x: Tile<f32>, most: Tile<f32>) -> Tile<f32> {
    let power = x.mul_add(std::f32::consts::LOG2_E, -most * std::f32::consts::LOG2_E);
    power.map(|power: Val<f32>| power.exp2_fast())
}

/// Rows of scaled numbers become probabilities, exact enough for results of type `U`. Rows of nothing but -inf become zeros.
#[device]
fn normalised<U: Float>(x: Tile<f32>, form: Form) -> Tile<f32> {
    let most = x.max(1);
    let most = select(most == f32::NEG_INFINITY, 0.0f32, most);
    let shifted = x - most;
    let e = if U::ELEMENT.bits() == 16 { quick_exponential(x, most) } else { exponential(shifted) };
    let sum = e.sum(1);
    let sum = select(sum == 0.0f32, 1.0f32, sum);
    match form {
        Form::Probabilities => e * sum.recip(),
        Form::Logarithms => shifted - sum.log(),
    }
}

/// The same, over the columns that count.
#[device]
fn normalised_where<U: Float>(counts: Tile<bool>, x: Tile<f32>, form: Form) -> Tile<f32> {
    let y = normalised::<U>(select(counts, x, f32::NEG_INFINITY), form);
    select(counts, y, form.nothing())
}

/// How many columns a query sees, if there are `queries` for each matrix and the last one sees all.
#[device]
fn seen_by(row: Val<u32>, queries: Val<u32>, columns: Val<u32>) -> Val<u32> {
    let more = row % queries + columns + 1;
    more - more.min(queries)
}

/// How many columns there are up to and including a position, which may be negative.
#[device]
fn columns_to(position: Val<i32>) -> Val<u32> {
    (position.max(-1) + 1).bitcast()
}

/// The columns that are seen, up to the next multiple of eight, so that as many are read at a time as of the whole row. Those behind them are
/// not read.
#[device]
fn up_to<T: Float>(x: View<T, 2>, seen: Val<u32>) -> View<T, 2> {
    x.slice(1, 0, seen.div_ceil(8) * 8)
}

/// Softmax of each row, `shape[0]` of them by a program; `shape[1]` is at least the length of a row. If it is causal, the rows are queries,
/// `queries` for each matrix, of which the last sees all columns.
#[kernel]
pub fn softmax<T: Padded, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    queries: Val<u32>,
    form: Form,
    causal: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let y = y.tile(shape).block((i, 0));
    if causal {
        // Several rows together are short: nobody would gain by reading less of them.
        let read = if shape[0] == 1 { up_to(x, seen_by(i, queries, x.extent(1))) } else { x };
        let from = read.tile(shape).block((i, 0));
        let numbers = from.load_or(T::LOWEST).cast::<f32>() * scale;
        let last = from.positions(0).bitcast::<u32>() % queries + x.extent(1);
        let counts = from.positions(1).bitcast::<u32>() + queries <= last;
        y.store(normalised_where::<U>(counts, numbers, form).cast());
    } else {
        let numbers = x.tile(shape).block((i, 0)).load_or(T::LOWEST).cast::<f32>() * scale;
        y.store(normalised::<U>(numbers, form).cast());
    }
}

/// Softmax with a position for each row, which sees the columns up to and including that one.
#[kernel]
pub fn softmax_positions<T: Padded, U: Float>(
    x: View<T, 2>,
    positions: View<i32, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    form: Form,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let position = positions.tile([shape[0], 1]).block((i, 0)).load();
    let x = if shape[0] == 1 { up_to(x, columns_to(position.item())) } else { x };
    let from = x.tile(shape).block((i, 0));
    let numbers = from.load_or(T::LOWEST).cast::<f32>() * scale;
    let seen = normalised_where::<U>(from.positions(1) <= position, numbers, form);
    y.tile(shape).block((i, 0)).store(seen.cast());
}

/// Softmax over the columns where a mask is true.
#[kernel]
pub fn softmax_masked<T: Padded, U: Float>(
    x: View<T, 2>,
    mask: View<bool, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    form: Form,
    shape: [u32; 2],
) {
    let counts = mask.tile(shape).block((program_id(0), 0)).load();
    let numbers = x.tile(shape).block((program_id(0), 0)).load_or(T::LOWEST).cast::<f32>() * scale;
    y.tile(shape).block((program_id(0), 0)).store(normalised_where::<U>(counts, numbers, form).cast());
}

/// Softmax of rows of any length, one by a program, `width` columns at a time.
#[kernel]
pub fn softmax_long<T: Padded, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    queries: Val<u32>,
    form: Form,
    causal: bool,
    width: u32,
) {
    let columns = x.extent(1);
    let seen = if causal { seen_by(program_id(0), queries, columns) } else { columns };
    in_steps(x, y, seen, scale, form, width);
}

/// The same with a position for each row.
#[kernel]
pub fn softmax_positions_long<T: Padded, U: Float>(
    x: View<T, 2>,
    positions: View<i32, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    form: Form,
    width: u32,
) {
    let position = positions.load_scalar((program_id(0), 0));
    in_steps(x, y, columns_to(position), scale, form, width);
}

/// Softmax of the row of this program, which sees its first columns, perhaps all: once through the row for its largest number and the
/// sum of exponentials, which are corrected when a larger one comes, and once more for the results.
#[device]
fn in_steps<T: Padded, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    seen: Val<u32>,
    scale: Val<f32>,
    form: Form,
    width: u32,
) {
    let row = program_id(0);
    let x = up_to(x, seen);
    let numbers = |step: Val<u32>| {
        let from = x.tile([1, width]).block((row, step));
        let counts = from.positions(1).bitcast::<u32>() < seen;
        (counts, select(counts, from.load_or(T::LOWEST).cast::<f32>() * scale, f32::NEG_INFINITY))
    };
    let mut most = Tile::<f32>::full([1, 1], f32::NEG_INFINITY);
    let mut sum = Tile::<f32>::zeros([1, 1]);
    for step in 0..x.extent(1).div_ceil(width) {
        let (_, x) = numbers(step);
        let larger = most.maximum(x.max(1));
        // Before the first number there is nothing to correct.
        let shift = select(larger == f32::NEG_INFINITY, 0.0f32, larger);
        sum = sum * exponential(most - shift) + exponential(x - shift).sum(1);
        most = larger;
    }
    let shift = select(most == f32::NEG_INFINITY, 0.0f32, most);
    let sum = select(sum == 0.0f32, 1.0f32, sum);
    let (inverse, log) = (sum.recip(), sum.log());
    for step in 0..y.extent(1).div_ceil(width) {
        let (counts, x) = numbers(step);
        let result = match form {
            Form::Probabilities => exponential(x - shift) * inverse,
            Form::Logarithms => x - shift - log,
        };
        y.tile([1, width]).block((row, step)).store(select(counts, result, form.nothing()).cast());
    }
}

/// The gradient of softmax, from its results; causal as [`softmax()`] is.
#[kernel]
pub fn softmax_backward<T: Padded, U: Float>(
    y: View<T, 2>,
    dy: View<T, 2>,
    dx: View<U, 2>,
    scale: Val<f32>,
    queries: Val<u32>,
    form: Form,
    causal: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let [y, dy] = if causal && shape[0] == 1 {
        [y, dy].map(|view| up_to(view, seen_by(i, queries, view.extent(1))))
    } else {
        [y, dy]
    };
    let dy = dy.tile(shape).block((i, 0)).load().cast::<f32>();
    let result = match form {
        Form::Probabilities => {
            let y = y.tile(shape).block((i, 0)).load().cast::<f32>();
            let counts = y != 0.0f32;
            let dy = select(counts, dy, 0.0f32);
            select(counts, y * (dy - (y * dy).sum(1)), 0.0f32)
        }
        Form::Logarithms => {
            let y = y.tile(shape).block((i, 0)).load_or(T::LOWEST).cast::<f32>();
            let counts = y != f32::NEG_INFINITY;
            let dy = select(counts, dy, 0.0f32);
            select(counts, dy - y.exp() * dy.sum(1), 0.0f32)
        }
    };
    dx.tile(shape).block((i, 0)).store((result * scale).cast());
}

/// Cross entropy of each row with its target; `smooth` and `squares` say whether smoothing and the squares of `lse` are wanted.
#[kernel]
pub fn cross_entropy<T: Padded, I: AxisNumber>(
    x: View<T, 2>,
    targets: View<I, 2>,
    losses: View<f32, 2>,
    ignore: Val<i64>,
    smoothing: Val<f32>,
    z_loss: Val<f32>,
    smooth: bool,
    squares: bool,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let from = x.tile(shape).block((i, 0));
    let target = targets.tile([shape[0], 1]).block((i, 0)).load().cast::<i64>();
    let numbers = from.load_or(T::LOWEST).cast::<f32>();
    let most = numbers.max(1);
    let lse = most + exponential(numbers - most).sum(1).log();
    let column = from.positions(1).cast::<i64>();
    // At most one column is the target: the sum is its number. Where no column is, the loss is NaN.
    let known = (target >= 0i64) & (target < x.extent(1).cast::<i64>());
    let chosen = select(column == target, numbers, 0.0f32).sum(1);
    let mut loss = lse - chosen;
    if smooth {
        let inside = select(column < x.extent(1).cast::<i64>(), numbers, 0.0f32);
        let mean = inside.sum(1) / x.extent(1).cast::<f32>();
        loss += (chosen - mean) * smoothing;
    }
    if squares {
        loss += lse * lse * z_loss;
    }
    let loss = select(known, loss, f32::NAN);
    losses.tile([shape[0], 1]).block((i, 0)).store(select(target == ignore, 0.0f32, loss));
}

/// The gradient of cross entropy from those of the losses.
#[kernel]
pub fn cross_entropy_backward<T: Padded, I: AxisNumber, U: Float>(
    x: View<T, 2>,
    targets: View<I, 2>,
    dlosses: View<f32, 2>,
    dx: View<U, 2>,
    ignore: Val<i64>,
    smoothing: Val<f32>,
    z_loss: Val<f32>,
    shape: [u32; 2],
) {
    let i = program_id(0);
    let from = x.tile(shape).block((i, 0));
    let target = targets.tile([shape[0], 1]).block((i, 0)).load().cast::<i64>();
    let given = dlosses.tile([shape[0], 1]).block((i, 0)).load();
    let numbers = from.load_or(T::LOWEST).cast::<f32>();
    let most = numbers.max(1);
    let e = exponential(numbers - most);
    let sum = e.sum(1);
    let weight = (most + sum.log()) * (z_loss * 2.0f32) + 1.0f32;
    let hit = select(from.positions(1).cast::<i64>() == target, -smoothing + 1.0f32, 0.0f32);
    let slope = (e / sum * weight - hit - smoothing / x.extent(1).cast::<f32>()) * given;
    let known = (target >= 0i64) & (target < x.extent(1).cast::<i64>());
    let slope = select(target == ignore, 0.0f32, select(known, slope, f32::NAN));
    dx.tile(shape).block((i, 0)).store(slope.cast());
}

/// Integers that say which column is meant.
pub trait AxisNumber: Integer {}

impl AxisNumber for i32 {}
impl AxisNumber for i64 {}
impl AxisNumber for u32 {}
