//! Cross entropy of rows of logits, and its gradient.

use tilewright_lang::tile::prelude::*;

use super::ahead::ask_ahead;
use super::exponential::{Known, LOG2_E, exponential, known_of, quick_exponential};
use super::{AxisNumber, InParts, Padded};

/// The numbers of rows, and what they should have chosen.
struct Logits {
    x: Tile<f32>,
    /// At most one column of a row is.
    hit: Tile<bool>,
    inside: Tile<bool>,
}

#[device]
fn logits<T: Padded>(from: Place<T, 2>, target: Tile<i64>, columns: Val<u32>) -> Logits {
    let column = from.positions(1).bitcast::<u32>();
    let x = from.load_or(T::LOWEST).cast::<f32>();
    // One that is no column is none in 32 bits, either.
    let none = (target < 0i64) | (target >= columns.cast::<i64>());
    let target = select(none, i64::from(u32::MAX), target).cast::<u32>();
    Logits { x, hit: column == target, inside: column < columns }
}

/// What belongs to rows: NaN where the target is no column, zero where it is the one to ignore.
#[device]
fn known(x: Tile<f32>, target: Tile<i64>, columns: Val<u32>, ignore: Val<i64>) -> Tile<f32> {
    let known = (target >= 0i64) & (target < columns.cast::<i64>());
    select(target == ignore, 0.0f32, select(known, x, f32::NAN))
}

/// Whether the target of a row is one of its columns.
#[device]
fn is_column(target: Val<i64>, columns: Val<u32>) -> Val<bool> {
    (target >= 0i64) & (target < columns.cast::<i64>())
}

/// By how much the square of `lse` makes the loss steeper.
#[device]
fn steepness(lse: Tile<f32>, z_loss: Val<f32>) -> Tile<f32> {
    lse * (z_loss * 2.0f32) + 1.0f32
}

/// The loss of rows from the largest number, the logarithm of the sum of exponentials relative to it, by how much the number of the target is
/// smaller, and by how much all are together; smoothing and the squares of `lse` only if they are wanted. Sums of terms that are not negative
/// keep their digits, and are +inf rather than NaN where one is.
#[device]
fn loss(
    [most, log, chosen, sum]: [Tile<f32>; 4],
    columns: Val<u32>,
    smoothing: Option<Val<f32>>,
    z_loss: Option<Val<f32>>,
) -> Tile<f32> {
    let mut loss = log + chosen;
    if let Some(smoothing) = smoothing {
        // Finite, as nothing of it must be nothing: where it is not, the sum is not, either.
        let chosen = chosen.minimum(f32::MAX) * (-smoothing + 1.0f32);
        loss = log + chosen + sum / columns.cast::<f32>() * smoothing;
    }
    if let Some(z_loss) = z_loss {
        let lse = most + log;
        loss += lse * lse * z_loss;
    }
    loss
}

/// Cross entropy of each row with its target; `smooth` and `squares` say whether smoothing and the squares of `lse` are wanted.
#[kernel(min_blocks = 1)]
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
    let (i, columns) = (program_id(0), x.extent(1));
    let target = targets.tile([shape[0], 1]).block((i, 0)).load().cast::<i64>();
    let Logits { x, hit, inside } = logits(x.tile(shape).block((i, 0)), target, columns);
    let most = x.max(1);
    // As exact as their sum needs.
    let log = quick_exponential(x - most, val(1.0)).sum(1).log();
    let chosen = select(hit, most - x, 0.0f32).sum(1);
    let sum = if smooth { select(inside, most - x, 0.0f32).sum(1) } else { chosen };
    let loss =
        loss([most, log, chosen, sum], columns, smooth.then_some(smoothing), squares.then_some(z_loss));
    losses.tile([shape[0], 1]).block((i, 0)).store(known(loss, target, columns, ignore));
}

/// The same of rows of any length, one by a program, step by step in one go. The number of the target is asked for by itself.
#[kernel(threads = step.threads, cluster = (step.blocks, 1, 1), min_blocks = step.resident_in_steps(smooth))]
pub fn cross_entropy_long<T: Padded, I: AxisNumber>(
    x: View<T, 2>,
    targets: View<I, 2>,
    losses: View<f32, 2>,
    ignore: Val<i64>,
    smoothing: Val<f32>,
    z_loss: Val<f32>,
    smooth: bool,
    squares: bool,
    step: InParts,
) {
    let (i, columns, shape) = (program_id(0), x.extent(1), [1, step.width]);
    let target = targets.load_scalar_unchecked((i, 0)).cast::<i64>();
    let is_column = is_column(target, columns);
    let chosen = x.load_scalar((i, select(is_column, target, 0i64).cast::<u32>())).cast::<f32>();
    let numbers = |start, behind| x.shift((0, behind)).tile(shape).at((i, start)).load_or(T::LOWEST);
    let Known { most, sum, below } = known_of(numbers, columns, (step.width, step.parts), smooth);
    let loss = loss(
        [most, sum.log(), most - chosen, below],
        columns,
        smooth.then_some(smoothing),
        squares.then_some(z_loss),
    );
    let target = Tile::full([1, 1], target);
    losses.tile([1, 1]).block((i, 0)).store(known(loss, target, columns, ignore));
}

/// The gradient of cross entropy from those of the losses.
#[kernel(min_blocks = 1)]
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
    let (i, columns) = (program_id(0), x.extent(1));
    let target = targets.tile([shape[0], 1]).block((i, 0)).load().cast::<i64>();
    let given = dlosses.tile([shape[0], 1]).block((i, 0)).load();
    let Logits { x, hit, .. } = logits(x.tile(shape).block((i, 0)), target, columns);
    let most = x.max(1);
    let e = exponential(x - most);
    let slope = slope(e, hit, [most, e.sum(1)], columns, [smoothing, z_loss]) * given;
    dx.tile(shape).block((i, 0)).store(known(slope, target, columns, ignore).cast());
}

/// The slope of the loss, from exponentials relative to the largest number, that number, and their sum.
#[device]
fn slope(
    e: Tile<f32>,
    hit: Tile<bool>,
    [most, sum]: [Tile<f32>; 2],
    columns: Val<u32>,
    [smoothing, z_loss]: [Val<f32>; 2],
) -> Tile<f32> {
    let weight = steepness(most + sum.log(), z_loss);
    let hit = select(hit, -smoothing + 1.0f32, 0.0f32);
    e / sum * weight - hit - smoothing / columns.cast::<f32>()
}

/// The same of rows that take a cluster, one by a program, which holds their numbers as they are. Rows without a column to choose are not read.
#[kernel(threads = row.threads, cluster = (row.blocks, 1, 1), min_blocks = row.resident())]
pub fn cross_entropy_backward_in_parts<T: Padded, I: AxisNumber, U: Float>(
    x: View<T, 2>,
    targets: View<I, 2>,
    dlosses: View<f32, 2>,
    dx: View<U, 2>,
    ignore: Val<i64>,
    smoothing: Val<f32>,
    z_loss: Val<f32>,
    row: InParts,
) {
    let (i, columns, shape) = (program_id(0), x.extent(1), [1, row.width]);
    ask_ahead(x, i, [1, row.parts * row.width]);
    let target = targets.load_scalar_unchecked((i, 0)).cast::<i64>();
    let is_column = is_column(target, columns);
    let (x, dx) = (x.tile(shape), dx.tile(shape));
    if is_column & (target != ignore) {
        let target = target.cast::<u32>();
        // All that is read is asked for first.
        let numbers: Vec<Tile<T>> =
            (0..row.parts).map(|part| x.block((i, part)).load_or(T::LOWEST)).collect();
        let most = numbers.iter().fold(Tile::full(shape, T::LEAST), |most: Tile<T>, &x| most.maximum(x));
        let most = most.cast::<f32>().max(1);
        let lower = |x: Tile<T>| x.cast::<f32>() - most;
        // Exponentials for 16 bits are made a second time rather than kept.
        let quick = U::ELEMENT.bits() == 16;
        let mut sum = Tile::<f32>::zeros(shape);
        let mut exponentials = Vec::new();
        for &x in &numbers {
            let e = if quick { quick_exponential(lower(x), val(1.0)) } else { exponential(lower(x)) };
            sum += e;
            exponentials.push(e);
        }
        let sum = sum.sum(1);
        let (log, inverse, given) = (sum.log(), sum.recip(), dlosses.load_scalar_unchecked((i, 0)));
        let weight = steepness(most + log, z_loss);
        let share = smoothing / columns.cast::<f32>();
        for (part, (x, e)) in (0..row.parts).zip(numbers.into_iter().zip(exponentials)) {
            let mut slope = if quick {
                let power = lower(x).mul_add(LOG2_E, -log * LOG2_E);
                power.map(|power: Val<f32>| power.exp2_fast()).mul_add(weight, -share)
            } else {
                e.mul_add(weight * inverse, -share)
            };
            let hit = target - part * row.width;
            if hit < row.width {
                let hit = Tile::<u32>::iota(1, shape) == hit;
                slope -= select(hit, -smoothing + 1.0f32, 0.0f32);
            }
            dx.block((i, part)).streaming().store((slope * given).cast::<U>());
        }
    } else {
        let nothing = Tile::full([1, 1], select(target == ignore, 0.0f32, f32::NAN));
        for part in 0..row.parts {
            dx.block((i, part)).streaming().store(nothing.cast());
        }
    }
}

/// The same of rows of any length, one by a program: once through the row for the largest and the sum, and once more for the results, from the
/// end on, as what was read last is most likely to be in a cache still. Rows without a column to choose are not read.
#[kernel(threads = step.threads, cluster = (step.blocks, 1, 1), min_blocks = step.resident_in_steps(T::ELEMENT.bits() == 16))]
pub fn cross_entropy_backward_long<T: Padded, I: AxisNumber, U: Float>(
    x: View<T, 2>,
    targets: View<I, 2>,
    dlosses: View<f32, 2>,
    dx: View<U, 2>,
    ignore: Val<i64>,
    smoothing: Val<f32>,
    z_loss: Val<f32>,
    step: InParts,
) {
    /// Results come in steps that are so many times longer: threads meet at each, as nothing shows that steps lie apart, but not within it.
    const TIMES: u32 = 2;
    let (i, columns, shape) = (program_id(0), x.extent(1), [1, step.width]);
    let stride = TIMES * step.parts * step.width;
    let target = targets.load_scalar_unchecked((i, 0)).cast::<i64>();
    let is_column = is_column(target, columns);
    // The last step ends with the row, and most rows have no other.
    let before_last = (columns.max(1) - 1) / stride;
    if is_column & (target != ignore) {
        let target = target.cast::<u32>();
        let numbers = |start, behind| x.shift((0, behind)).tile(shape).at((i, start)).load_or(T::LOWEST);
        let Known { most, sum, .. } = known_of(numbers, columns, (step.width, step.parts), false);
        let weight = steepness(most + sum.log(), z_loss) / sum;
        let share = smoothing / columns.cast::<f32>();
        // Not earlier: it would take a register all the way.
        let given = dlosses.load_scalar_unchecked((i, 0));
        let result = |x: Tile<T>, hit: Val<u32>| {
            let lower = x.cast::<f32>() - most;
            let quick = U::ELEMENT.bits() == 16;
            let e = if quick { quick_exponential(lower, val(1.0)) } else { exponential(lower) };
            let mut slope = e.mul_add(weight, -share);
            if hit < step.width {
                let hit = Tile::<u32>::iota(1, shape) == hit;
                slope -= select(hit, -smoothing + 1.0f32, 0.0f32);
            }
            (slope * given).cast::<U>()
        };
        let results = |start: Val<u32>| {
            let (x, dx) = (x.shift((0, start)).tile(shape), dx.shift((0, start)).tile(shape));
            for time in (0..TIMES).rev() {
                let parts = time * step.parts..(time + 1) * step.parts;
                let any = if time == 0 { val(true) } else { start + parts.start * step.width < columns };
                if any {
                    // All that is read is asked for first.
                    let read: Vec<Tile<T>> =
                        parts.clone().map(|part| x.block((i, part)).load_or(T::LOWEST)).collect();
                    for (part, x) in parts.clone().zip(read) {
                        let result = result(x, target - start - part * step.width);
                        dx.block((i, part)).streaming().store(result);
                    }
                }
            }
        };
        results(before_last * stride);
        for done in 0..before_last {
            results((before_last - 1 - done) * stride);
        }
    } else {
        let nothing = Tile::full([1, 1], select(target == ignore, 0.0f32, f32::NAN));
        for number in 0..before_last + 1 {
            let dx = dx.shift((0, number * stride)).tile(shape);
            for part in 0..TIMES * step.parts {
                dx.block((i, part)).streaming().store(nothing.cast());
            }
        }
    }
}
