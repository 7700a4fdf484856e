//! Softmax of rows, with all its masks, and its gradient.

use tilewright_lang::tile::prelude::*;

use super::ahead::ask_ahead;
use super::exponential::{Known, LOG2_E, exponential, known_of, quick_exponential};
use super::{InParts, Padded, Tiling};

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

/// Rows of scaled numbers become probabilities, exact enough for results of type `U`, and whether they have: they have not where there is NaN
/// or an infinity. Rows of nothing but -inf become zeros.
#[device]
fn normalised<U: Float>(x: Tile<f32>, form: Form) -> (Tile<f32>, Tile<bool>) {
    let most = x.max(1);
    let most = select(most == f32::NEG_INFINITY, 0.0f32, most);
    let shifted = x - most;
    let e = if U::ELEMENT.bits() == 16 { quick_exponential(shifted, val(1.0)) } else { exponential(shifted) };
    let sum = e.sum(1);
    let sum = select(sum == 0.0f32, 1.0f32, sum);
    let result = match form {
        Form::Probabilities => e * sum.recip(),
        Form::Logarithms => shifted - sum.log(),
    };
    (result, sum == sum)
}

/// The same, over the columns that count, and those only.
#[device]
fn normalised_where<U: Float>(counts: Tile<bool>, x: Tile<f32>, form: Form) -> Tile<f32> {
    let (result, is_number) = normalised::<U>(select(counts, x, f32::NEG_INFINITY), form);
    if is_number.shape().elements() > 1 {
        select(counts, result, form.nothing())
    } else if is_number.item() {
        // Columns that do not count have become nothing by themselves.
        result
    } else {
        select(counts, result, form.nothing())
    }
}

/// How many columns a query of a matrix sees, if there are `queries` and the last one sees all.
#[device]
fn seen_at(query: Val<u32>, queries: Val<u32>, columns: Val<u32>) -> Val<u32> {
    let more = query + columns + 1;
    more - more.min(queries)
}

/// The same, where the queries of all matrices follow each other.
#[device]
fn seen_by(row: Val<u32>, queries: Val<u32>, columns: Val<u32>) -> Val<u32> {
    seen_at(row % queries, queries, columns)
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
    ask_ahead(x, program_id(0), shape);
    let from = x.tile(shape).block((program_id(0), 0));
    let y = y.tile(shape).block((program_id(0), 0));
    let numbers = from.load_or(T::LOWEST).cast::<f32>() * scale;
    if causal {
        let last = from.positions(0).bitcast::<u32>() % queries + x.extent(1);
        let counts = from.positions(1).bitcast::<u32>() + queries <= last;
        y.store(normalised_where::<U>(counts, numbers, form).cast());
    } else {
        y.store(normalised::<U>(numbers, form).0.cast());
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
    let from = x.tile(shape).block((i, 0));
    let numbers = from.load_or(T::LOWEST).cast::<f32>() * scale;
    let seen = normalised_where::<U>(from.positions(1) <= position, numbers, form);
    y.tile(shape).block((i, 0)).store(seen.cast());
}

/// [`softmax()`] that is causal, `row.rows` rows of a matrix by a program; `falls` says whether the scale is negative. Groups of rows are
/// numbered along the first axis of the grid and matrices along the second, or the other way round if they are `turned`, so that nobody has to
/// divide. Programs ask for the rows of the group so many matrices and groups later.
#[kernel(threads = row.threads * row.rows, cluster = (row.blocks, 1, 1), min_blocks = row.resident())]
pub fn softmax_causal<T: Padded, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    queries: Val<u32>,
    matrices_later: Val<u32>,
    groups_later: Val<u32>,
    form: Form,
    falls: bool,
    turned: bool,
    row: InParts,
) {
    let columns = x.extent(1);
    let (number, matrix) = Tiling { shape: [row.rows, 1], turned }.place();
    let groups = num_programs(u32::from(turned));
    // Rows that take clusters stay in order: 65536 columns lost 1 to 3 percent by turns.
    let group = |number: Val<u32>| if row.blocks == 1 { by_turns(number, groups) } else { number };
    let seen = |group: Val<u32>| -> Vec<Val<u32>> {
        (0..row.rows).map(|r| seen_at(group * row.rows + r, queries, columns)).collect()
    };
    let i = group(number);

    let later = number + groups_later;
    let (of_next, next) = (later >= groups, matrix + matrices_later);
    let j = group(select(of_next, later - groups, later));
    let from = x.slice(0, select(of_next, next + 1, next) * queries, queries);
    for (r, seen) in (0u32..).zip(seen(j)) {
        up_to(from, seen).tile([1, row.parts * row.width]).block((j * row.rows + r, 0)).prefetch();
    }
    let x = x.slice(0, matrix * queries, queries);
    let y = y.slice(0, matrix * queries, queries);
    of_seen(x, y, (i, seen(i)), (scale, falls), form, row);
}

/// The groups of rows of a matrix, if those that see little and those that see much take turns. What programs that run together read and write
/// is then the same at all times: in order, long spans of little but writing take turns with long spans of much to compute, which cost up to
/// 5 percent of the speed of a copy on an H200.
#[device]
fn by_turns(number: Val<u32>, groups: Val<u32>) -> Val<u32> {
    select(number % 2 == 0, number / 2, groups - 1 - number / 2)
}

/// [`softmax_positions()`], `row.rows` rows by a program; `falls` says whether the scale is negative.
#[kernel(threads = row.threads * row.rows, cluster = (row.blocks, 1, 1), min_blocks = row.resident())]
pub fn softmax_to_position<T: Padded, U: Float>(
    x: View<T, 2>,
    positions: View<i32, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    form: Form,
    falls: bool,
    row: InParts,
) {
    let (i, last) = (program_id(0), x.extent(0) - 1);
    let position = |r: u32| positions.load_scalar_unchecked(((i * row.rows + r).min(last), 0));
    let seen = (0..row.rows).map(|r| columns_to(position(r))).collect();
    of_seen(x, y, (i, seen), (scale, falls), form, row);
}

/// Softmax of the rows of group `i` over the columns that each of them sees. Long rows are seen up to somewhere in their last part more often
/// than not: then no other part has to be asked for. Of short ones, code for both would take registers that more rows are worth.
#[device]
fn of_seen<T: Padded, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    (i, seen): (Val<u32>, Vec<Val<u32>>),
    scale: (Val<f32>, bool),
    form: Form,
    row: InParts,
) {
    let before_last = row.parts - 1;
    if row.blocks == 1 {
        of_first(x, y, (i, &seen), scale, form, (row, 0));
    } else if seen[0] > before_last * row.width {
        of_first(x, y, (i, &seen), scale, form, (row, before_last));
    } else {
        of_first(x, y, (i, &seen), scale, form, (row, 0));
    }
}

/// Softmax of the rows of group `i` over their first columns. Parts that none of them sees are not read and cost next to nothing, and only
/// parts where the last column of one is seen ask for each column whether it is. So many parts as `surely` says are seen.
#[device]
fn of_first<T: Padded, U: Float>(
    x: View<T, 2>,
    y: View<U, 2>,
    (i, seen): (Val<u32>, &[Val<u32>]),
    (scale, falls): (Val<f32>, bool),
    form: Form,
    (row, surely): (InParts, u32),
) {
    let shape = [row.rows, row.width];
    let of_all = |choose: fn(Val<u32>, Val<u32>) -> Val<u32>| {
        seen[1..].iter().fold(seen[0], |chosen, &one| choose(chosen, one))
    };
    let (fewest, most_seen) = (of_all(min), of_all(max));
    let (x, y) = (up_to(x, most_seen).tile(shape), y.tile(shape));
    let parts = 0..row.parts;
    let is_seen = |part: u32| if part < surely { val(true) } else { most_seen > part * row.width };
    let ends_here = |part: u32| if part < surely { val(false) } else { fewest < (part + 1) * row.width };
    let counts = |part: u32| {
        let place = x.block((i, part));
        let number = place.positions(0).bitcast::<u32>() - i * row.rows;
        let first = Tile::full([1, 1], seen[0]);
        let of_row = (1u32..).zip(&seen[1..]).fold(first, |of, (r, &one)| select(number == r, one, of));
        place.positions(1).bitcast::<u32>() < of_row
    };
    // The number that counts least: the scale may turn large numbers into small ones.
    let least = if falls { T::HIGHEST } else { T::LOWEST };

    // All that is read is asked for first.
    let numbers: Vec<Tile<T>> = parts.clone().map(|part| x.block((i, part)).load_or(least)).collect();
    let mut most = Tile::<T>::full(shape, least);
    let more = |most: Tile<T>, x: Tile<T>| if falls { most.minimum(x) } else { most.maximum(x) };
    for (part, &x) in parts.clone().zip(&numbers) {
        if is_seen(part) {
            if ends_here(part) {
                most = more(most, select(counts(part), x, least));
            } else {
                most = more(most, x);
            }
        }
    }
    let most = most.cast::<f32>();
    let most = if falls { most.min(1) } else { most.max(1) };
    let most = select((most * scale) == f32::NEG_INFINITY, 0.0f32, most);
    // The largest is taken away before the scale rounds: what is left of numbers near it is exact, however large they are.
    let shifted = |x: Tile<T>| x.cast::<f32>() - most;

    // Results of 16 bits do not show how exact exponentials are: those are quick, and made a second time rather than kept.
    let quick = U::ELEMENT.bits() == 16;
    let mut sum = Tile::<f32>::zeros(shape);
    let mut exponentials = Vec::new();
    for (part, &x) in parts.clone().zip(&numbers) {
        let mut e = x.cast::<f32>();
        if is_seen(part) {
            e = if quick { quick_exponential(shifted(x), scale) } else { exponential(shifted(x) * scale) };
            if ends_here(part) {
                e = select(counts(part), e, 0.0f32);
            }
            sum += e;
        }
        exponentials.push(e);
    }
    let sum = sum.sum(1);
    let sum = select(sum == 0.0f32, 1.0f32, sum);

    let (inverse, log) = (sum.recip(), sum.log());
    for (part, (x, e)) in parts.zip(numbers.into_iter().zip(exponentials)) {
        let mut result = Tile::full(shape, form.nothing());
        if is_seen(part) {
            result = match form {
                Form::Probabilities if quick => {
                    let power = shifted(x).mul_add(scale * LOG2_E, -log * LOG2_E);
                    power.map(|power: Val<f32>| power.exp2_fast())
                }
                Form::Probabilities => e * inverse,
                Form::Logarithms => shifted(x).mul_add(scale, -log),
            };
            if ends_here(part) {
                result = select(counts(part), result, form.nothing());
            }
        }
        y.block((i, part)).store(result.cast());
    }
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
#[kernel(min_blocks = 2)]
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
    in_steps(first_of(x, seen, scale, width), seen.min(columns), y, form, width);
}

/// The same with a position for each row.
#[kernel(min_blocks = 2)]
pub fn softmax_positions_long<T: Padded, U: Float>(
    x: View<T, 2>,
    positions: View<i32, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    form: Form,
    width: u32,
) {
    let seen = columns_to(positions.load_scalar_unchecked((program_id(0), 0)));
    in_steps(first_of(x, seen, scale, width), seen.min(x.extent(1)), y, form, width);
}

/// The same over the columns where a mask is true.
#[kernel(min_blocks = 2)]
pub fn softmax_masked_long<T: Padded, U: Float>(
    x: View<T, 2>,
    mask: View<bool, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    form: Form,
    width: u32,
) {
    let numbers = move |step: Val<u32>| {
        let at = (program_id(0), step);
        let counts = mask.tile([1, width]).block(at).load();
        let x = x.tile([1, width]).block(at).load_or(T::LOWEST).cast::<f32>() * scale;
        (counts, select(counts, x, f32::NEG_INFINITY))
    };
    in_steps(numbers, x.extent(1), y, form, width);
}

/// The same over the columns of those where a mask is true that a query sees: causal as [`softmax()`] is.
#[kernel(min_blocks = 2)]
pub fn softmax_masked_causal<T: Padded, U: Float>(
    x: View<T, 2>,
    mask: View<bool, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    queries: Val<u32>,
    form: Form,
    width: u32,
) {
    let seen = seen_by(program_id(0), queries, x.extent(1));
    in_steps(shown_of(x, mask, seen, scale, width), seen.min(x.extent(1)), y, form, width);
}

/// The same with a position for each row.
#[kernel(min_blocks = 2)]
pub fn softmax_masked_positions<T: Padded, U: Float>(
    x: View<T, 2>,
    mask: View<bool, 2>,
    positions: View<i32, 2>,
    y: View<U, 2>,
    scale: Val<f32>,
    form: Form,
    width: u32,
) {
    let seen = columns_to(positions.load_scalar_unchecked((program_id(0), 0)));
    in_steps(shown_of(x, mask, seen, scale, width), seen.min(x.extent(1)), y, form, width);
}

/// [`first_of`] a row, and of those where a mask is true.
#[device]
fn shown_of<T: Padded>(
    x: View<T, 2>,
    mask: View<bool, 2>,
    seen: Val<u32>,
    scale: Val<f32>,
    width: u32,
) -> impl Fn(Val<u32>) -> (Tile<bool>, Tile<f32>) + Copy {
    let first = first_of(x, seen, scale, width);
    move |step: Val<u32>| {
        let (counts, x) = first(step);
        let counts = counts & mask.tile([1, width]).block((program_id(0), step)).load();
        (counts, select(counts, x, f32::NEG_INFINITY))
    }
}

/// The numbers of the row of this program, step by step, which sees its first columns, perhaps all: which count, and -inf for the others.
#[device]
fn first_of<T: Padded>(
    x: View<T, 2>,
    seen: Val<u32>,
    scale: Val<f32>,
    width: u32,
) -> impl Fn(Val<u32>) -> (Tile<bool>, Tile<f32>) + Copy {
    let (row, x) = (program_id(0), up_to(x, seen));
    move |step: Val<u32>| {
        let from = x.tile([1, width]).block((row, step));
        let counts = from.positions(1).bitcast::<u32>() < seen;
        (counts, select(counts, from.load_or(T::LOWEST).cast::<f32>() * scale, f32::NEG_INFINITY))
    }
}

/// Softmax of the row of this program, of which columns behind the first so many do not count: once through the row for its largest number
/// and the sum of exponentials, and once more for the results.
#[device]
fn in_steps<U: Float>(
    numbers: impl Fn(Val<u32>) -> (Tile<bool>, Tile<f32>) + Copy,
    columns: Val<u32>,
    y: View<U, 2>,
    form: Form,
    width: u32,
) {
    let Known { most, sum, .. } =
        known_of(move |start, behind| numbers((start + behind) / width).1, columns, (width, 1), false);
    let shift = select(most == f32::NEG_INFINITY, 0.0f32, most);
    let sum = select(sum == 0.0f32, 1.0f32, sum);
    let (inverse, log) = (sum.recip(), sum.log());
    for step in 0..y.extent(1).div_ceil(width) {
        let (counts, x) = numbers(step);
        let result = match form {
            Form::Probabilities => exponential(x - shift) * inverse,
            Form::Logarithms => x - shift - log,
        };
        let result = select(counts, result, form.nothing());
        y.tile([1, width]).block((program_id(0), step)).store(result.cast());
    }
}

/// Results and their gradients, with zeros where columns do not count, and which do.
#[device]
fn slopes<T: Padded>(y: Place<T, 2>, dy: Place<T, 2>, form: Form) -> (Tile<f32>, Tile<f32>, Tile<bool>) {
    let y = match form {
        Form::Probabilities => y.load(),
        Form::Logarithms => y.load_or(T::LOWEST),
    };
    let (y, dy) = (y.cast::<f32>(), dy.load().cast::<f32>());
    let counts = y != form.nothing();
    (y, select(counts, dy, 0.0f32), counts)
}

/// What is added up over a row for its gradient.
fn terms((y, dy, _): (Tile<f32>, Tile<f32>, Tile<bool>), form: Form) -> Tile<f32> {
    match form {
        Form::Probabilities => y * dy,
        Form::Logarithms => dy,
    }
}

/// The gradient, from that sum.
fn gradient((y, dy, counts): (Tile<f32>, Tile<f32>, Tile<bool>), sum: Tile<f32>, form: Form) -> Tile<f32> {
    let result = match form {
        Form::Probabilities => y * (dy - sum),
        Form::Logarithms => dy - y.exp() * sum,
    };
    select(counts, result, 0.0f32)
}

/// The gradient of softmax, from its results; causal as [`softmax()`] is.
#[kernel(min_blocks = 1)]
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
    let [y, dy] = [y, dy].map(|view| {
        let seen = seen_by(i, queries, view.extent(1));
        let read = if causal && shape[0] == 1 { up_to(view, seen) } else { view };
        read.tile(shape).block((i, 0))
    });
    let slopes = slopes(y, dy, form);
    let result = gradient(slopes, terms(slopes, form).sum(1), form);
    dx.tile(shape).block((i, 0)).store((result * scale).cast());
}

/// The same of rows of any length, one by a program, `width` columns at a time: once through the row for the sum, and once more for the results.
#[kernel(min_blocks = 2)]
pub fn softmax_backward_long<T: Padded, U: Float>(
    y: View<T, 2>,
    dy: View<T, 2>,
    dx: View<U, 2>,
    scale: Val<f32>,
    queries: Val<u32>,
    form: Form,
    causal: bool,
    width: u32,
) {
    let (i, shape) = (program_id(0), [1, width]);
    let seen = if causal { seen_by(i, queries, y.extent(1)) } else { y.extent(1) };
    let [y, dy] = [y, dy].map(|view| up_to(view, seen).tile(shape));
    let slopes = |step: Val<u32>| slopes(y.block((i, step)), dy.block((i, step)), form);
    let mut sum = Tile::<f32>::zeros(shape);
    for step in 0..y.blocks(1) {
        sum += terms(slopes(step), form);
    }
    let sum = sum.sum(1);
    for step in 0..dx.extent(1).div_ceil(width) {
        dx.tile(shape).block((i, step)).store((gradient(slopes(step), sum, form) * scale).cast());
    }
}
