//! Numbers in other places, of other types, turned, dropped; and the product at tile level.

use tilewright::hardware::Element;
use tilewright::lang::bf16;
use tilewright::ops::{Dropout, Error, FloatItem, Rope, convert, embedding, permute, transpose};

use super::super::case::{Case, Reading, Role, Tensor};
use super::super::library::Call;
use super::super::reference::{DROPPED, Expected, FEW, of_row};
use super::{Op, calls};

/// Numbers of a head; `peers.py` has the same, as it has the two below.
const HEAD: u32 = 128;
/// The slowest pair of a head turns by about one over this from one position to the next.
const BASE: f64 = 10_000.0;
/// Rows of the table that an embedding is looked up in.
const VOCABULARY: u32 = 32_768;

pub(in super::super) static ROPE: Op = Op {
    name: "rope",
    about: "Measure rotary position embedding of heads of 128",
    fits: whole_heads,
    tensors: |case| {
        let pairs = |name| Tensor { columns: HEAD / 2, ..case.matrix(name).of(Element::F32) };
        let cos = pairs("cos").with(Role::Computed(|_, place| angle(place).cos()));
        let sin = pairs("sin").with(Role::Computed(|_, place| angle(place).sin()));
        vec![case.matrix("x"), cos, sin, case.matrix("y").output()]
    },
    rows: |case, at, row| {
        let (x, half) = (of_row(case, at, 0, row), HEAD as usize / 2);
        let turned = |(column, number): (usize, &f64)| {
            let pair = column % half;
            let place = u64::from(row) * u64::from(HEAD / 2) + (pair as u64);
            let (cos, sin) = (at(1, place), at(2, place));
            // The other of the pair, and the way it is turned.
            let (other, sin) =
                if column % (2 * half) < half { (column + half, -sin) } else { (column - half, sin) };
            let other = x.get(other).copied().unwrap_or(f64::NAN);
            Expected {
                value: number * cos + other * sin,
                slack: FEW / 8.0 * ((number * cos).abs() + (other * sin).abs()),
            }
        };
        vec![x.iter().enumerate().map(turned).collect()]
    },
    calls: calls!(rope),
    ..Op::PLAIN
};

fn whole_heads(case: &Case) -> Result<(), String> {
    match case.columns.is_multiple_of(HEAD) {
        true => Ok(()),
        false => Err(format!("--columns: found {}, expected whole heads of {HEAD}", case.columns)),
    }
}

fn rope<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (cos, sin) = (call.rows::<f32>(1)?, call.rows::<f32>(2)?);
    Rope::new(HEAD as usize).run(call.device, call.rows::<T>(0)?, cos, sin, call.rows::<T>(3)?)
}

/// The angle at a place of the tables, which have a row for each position and a column for each pair.
#[allow(clippy::cast_precision_loss, reason = "positions are 32 bits")]
fn angle(place: u64) -> f64 {
    let pairs = u64::from(HEAD / 2);
    let (position, pair) = ((place / pairs) as f64, (place % pairs) as f64);
    position * BASE.powf(-2.0 * pair / f64::from(HEAD))
}

pub(in super::super) static EMBEDDING: Op = Op {
    name: "embedding",
    about: "Measure the lookup of rows in a table",
    tensors: |case| {
        let rows = case.for_rows("rows").of(Element::I32).with(Role::Places(VOCABULARY));
        vec![rows, Tensor { rows: VOCABULARY, ..case.matrix("table") }, case.matrix("y").output()]
    },
    // Not the whole table.
    bytes: |case| case.for_rows("rows").of(Element::I32).bytes() + 2 * case.matrix("y").bytes(),
    rows: |case, at, row| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the vocabulary")]
        let found = at(0, row.into()) as u32;
        vec![of_row(case, at, 1, found).into_iter().map(Expected::exact).collect()]
    },
    calls: calls!(lookup),
    ..Op::PLAIN
};

fn lookup<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    embedding(call.device, call.rows::<T>(1)?, call.rows::<i32>(0)?, call.rows::<T>(2)?)
}

pub(in super::super) static DROPOUT: Op = Op {
    name: "dropout",
    about: "Measure dropout",
    tensors: |case| vec![case.matrix("x"), case.matrix("y").with(Role::Output(Reading::Dropped))],
    rows: |case, at, row| {
        let x = of_row(case, at, 0, row);
        vec![x.into_iter().map(|x| Expected::exact(x / (1.0 - DROPPED))).collect()]
    },
    calls: calls!(dropout),
    ..Op::PLAIN
};

#[allow(clippy::cast_possible_truncation, reason = "a constant that f32 holds")]
fn dropout<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    Dropout::new(DROPPED as f32, 1).run(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?)
}

pub(in super::super) static CONVERT: Op = Op {
    name: "convert",
    about: "Measure numbers changing their type: f32 to bf16, 16 bits to f32",
    tensors: |case| vec![case.matrix("x"), case.matrix("y").of(converted(case.element)).output()],
    rows: |case, at, row| vec![of_row(case, at, 0, row).into_iter().map(Expected::exact).collect()],
    calls: calls!(change),
    ..Op::PLAIN
};

/// What numbers of a type become.
fn converted(element: Element) -> Element {
    if element == Element::F32 { Element::BF16 } else { Element::F32 }
}

fn change<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    match converted(T::ELEMENT) {
        Element::BF16 => convert(call.device, call.rows::<T>(0)?, call.rows::<bf16>(1)?),
        _ => convert(call.device, call.rows::<T>(0)?, call.rows::<f32>(1)?),
    }
}

pub(in super::super) static TRANSPOSE: Op = Op {
    name: "transpose",
    about: "Measure rows becoming columns",
    tensors: |case| {
        let turned = Tensor { rows: case.columns, columns: case.rows, ..case.matrix("y") };
        vec![case.matrix("x"), turned.output()]
    },
    // A row of the result is a column.
    rows: |case, at, column| {
        let place = |row: u32| u64::from(row) * u64::from(case.columns) + u64::from(column);
        vec![(0..case.rows).map(|row| Expected::exact(at(0, place(row)))).collect()]
    },
    calls: calls!(turn),
    ..Op::PLAIN
};

fn turn<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    transpose(call.device, call.rows::<T>(0)?, call.rows::<T>(1)?)
}

pub(in super::super) static PERMUTE: Op = Op {
    name: "permute",
    about: "Measure heads of tokens becoming tokens of heads, of 128 numbers each",
    fits: whole_heads,
    tensors: |case| {
        let heads = case.columns / HEAD;
        // A head after the other, a row for each token.
        let turned = Tensor { rows: heads.saturating_mul(case.rows), columns: HEAD, ..case.matrix("y") };
        vec![case.matrix("x"), turned.output()]
    },
    rows: |case, at, row| {
        let (head, token) = (row / case.rows, row % case.rows);
        let first = u64::from(token) * u64::from(case.columns) + u64::from(head * HEAD);
        vec![(first..first + u64::from(HEAD)).map(|place| Expected::exact(at(0, place))).collect()]
    },
    calls: calls!(permuted),
    ..Op::PLAIN
};

fn permuted<T: FloatItem>(call: &Call<'_>) -> Result<(), Error> {
    let (rows, heads) = (call.case.rows as usize, (call.case.columns / HEAD) as usize);
    let extents = [rows, heads, HEAD as usize];
    permute(call.device, call.buffer::<T>(0)?, &extents, &[1, 0, 2], call.buffer::<T>(1)?)
}

/// Computed by [`Matmul`](super::super::matmul::Matmul).
pub(in super::super) static MATMUL_TILE: Op = Op {
    name: "matmul-tile",
    about: "Measure the matrix product that is written at tile level",
    types: &[Element::BF16],
    bars: |_| [4096, 8192].map(|n| (n, n, n)).to_vec(),
    quick: &[(64, 64, 64), (96, 80, 48)],
    fits: |case| match case.depth {
        0 => Err("--depth: found 0, expected at least 1".to_owned()),
        _ => Ok(()),
    },
    tensors: |case| {
        let (a, b) = (
            Tensor { columns: case.depth, ..case.matrix("a") },
            Tensor { rows: case.depth, ..case.matrix("b") },
        );
        vec![a, b, case.matrix("c").output()]
    },
    rows: |case, at, row| {
        let (columns, depth) = (u64::from(case.columns), u64::from(case.depth));
        let sum = |column| {
            (0..depth).map(|k| at(0, u64::from(row) * depth + k) * at(1, k * columns + column)).sum()
        };
        vec![(0..columns).map(sum).map(Expected::exact).collect()]
    },
    product: true,
    ..Op::PLAIN
};

/// Computed by the runtime.
pub(in super::super) static COPY: Op = Op {
    name: "copy",
    about: "Measure copies inside of the device, which other speeds are held against",
    types: &[Element::F32],
    bars: |element| [128, 512, 1024].map(|mebibytes| (mebibytes, (1 << 20) / element.bytes(), 0)).to_vec(),
    rows: |case, at, row| vec![of_row(case, at, 0, row).into_iter().map(Expected::exact).collect()],
    ..Op::PLAIN
};
