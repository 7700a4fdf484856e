//! `mma.sync` and `mma.sp.sync`: matrix products of a warp with all operands in registers.
//!
//! Fragments are those of [`tilewright_hardware::mma::fragment`], one pattern for all types and shapes; only the quad
//! pairs of Volta's `m8n8k4` have their own. Block-scaled products and `kind::f8f6f4`, which came after sm_90, are not
//! decoded.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustc_apfloat::Round;
use tilewright_ptx::{Instruction, Modifier, Opcode, Shape, Type};

use super::format::{Accumulator, Format, word};
use super::product::{Places, Product};
use crate::number::Lanes;

/// One form of `mma`, decoded.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier as M, Opcode, Shape};
/// use tilewright_sim::tensor::mma::Mma;
/// let shape = M::Shape(Shape { m: 16, n: 8, k: 16 });
/// let words = [M::Sync, M::Aligned, shape, M::Row, M::Col, M::F32, M::BF16, M::BF16, M::F32];
/// let mma = Mma::decode(&Instruction::new(Opcode::Mma, &words, [])).expect("Ampere has it");
/// assert_eq!(mma.registers(), [4, 2, 4, 4]);
/// let ones = [0x3f80_3f80; 32];
/// let d = mma.apply(&[ones; 4], &[ones; 2], &[[0; 32]; 4], None);
/// assert_eq!(d, [[u64::from(16f32.to_bits()); 32]; 4]);
/// ```
#[derive(Clone, Debug)]
pub struct Mma {
    product: Product,
    sparse: bool,
}

/// Factors, accumulators, shapes of dense A and shapes of sparse A.
type Row = (&'static [Format], &'static [Accumulator], &'static [(u16, u16)], &'static [(u16, u16)]);

/// All that sm_70 to sm_90 have but `m8n8k4` of Volta. Shapes are `(m, k)`; n is 8.
const ROWS: &[Row] = &[
    (&[Format::F16], &[Accumulator::F16, Accumulator::F32], &[(16, 8), (16, 16)], &[(16, 16), (16, 32)]),
    (&[Format::Bf16], &[Accumulator::F32], &[(16, 8), (16, 16)], &[(16, 16), (16, 32)]),
    (&[Format::Tf32], &[Accumulator::F32], &[(16, 4), (16, 8)], &[(16, 8), (16, 16)]),
    (&[Format::F64], &[Accumulator::F64], &[(8, 4), (16, 4), (16, 8), (16, 16)], &[]),
    (&[Format::S8, Format::U8], &[Accumulator::S32], &[(8, 16), (16, 16), (16, 32)], &[(16, 32), (16, 64)]),
    (&[Format::S4, Format::U4], &[Accumulator::S32], &[(8, 32), (16, 32), (16, 64)], &[]),
    (&[Format::B1], &[Accumulator::S32], &[(8, 128), (16, 128), (16, 256)], &[]),
    (&[Format::E4m3, Format::E5m2], &[Accumulator::F32], &[(16, 16), (16, 32)], &[(16, 64)]),
    (&[Format::E4m3, Format::E5m2], &[Accumulator::F16], &[(16, 16), (16, 32)], &[]),
];

/// What the modifiers of an instruction say, in any order.
#[derive(Default)]
struct Words {
    shape: Option<Shape>,
    types: Vec<Type>,
    columns: Vec<bool>,
    saturate: bool,
    sparse: bool,
    logic: Option<Modifier>,
    popc: bool,
    rounding: Option<Round>,
}

impl Words {
    fn read(modifiers: &[Modifier]) -> Option<Words> {
        let mut words = Words::default();
        for &modifier in modifiers {
            match modifier {
                Modifier::Sync | Modifier::Aligned => {}
                Modifier::Shape(shape) => words.shape = Some(shape),
                Modifier::Type(ty) => words.types.push(ty),
                Modifier::Row => words.columns.push(false),
                Modifier::Col => words.columns.push(true),
                Modifier::Satfinite => words.saturate = true,
                Modifier::Sp | Modifier::SpOrderedMetadata => words.sparse = true,
                Modifier::XorOp | Modifier::AndOp => words.logic = Some(modifier),
                Modifier::PopcOp => words.popc = true,
                Modifier::Rn => words.rounding = Some(Round::NearestTiesToEven),
                Modifier::Rz => words.rounding = Some(Round::TowardZero),
                Modifier::Rm => words.rounding = Some(Round::TowardNegative),
                Modifier::Rp => words.rounding = Some(Round::TowardPositive),
                _ => return None,
            }
        }
        Some(words)
    }
}

impl Mma {
    /// The form of an instruction; `None` if it is none of sm_70 to sm_90.
    pub fn decode(instruction: &Instruction) -> Option<Mma> {
        if instruction.opcode != Opcode::Mma {
            return None;
        }
        let words = Words::read(&instruction.modifiers)?;
        let &[d, a, b, c] = &words.types[..] else { return None };
        let (a, b) = (Format::of(a)?, Format::of(b)?);
        let (c, d) = (Accumulator::of(c)?, Accumulator::of(d)?);
        let Shape { m, n, k } = words.shape?;
        let &[a_column, b_column] = &words.columns[..] else { return None };
        let bits = a == Format::B1;
        let wrong = n != 8
            || bits != words.logic.is_some()
            || bits != words.popc
            || (words.saturate && (bits || !a.is_integer()))
            || (words.rounding.is_some() && a != Format::F64);
        if wrong {
            return None;
        }
        let volta = (m, k) == (8, 4) && a == Format::F16;
        let places = if volta {
            let known = b == Format::F16
                && !words.sparse
                && matches!(c, Accumulator::F16 | Accumulator::F32)
                && (d == c || (d, c) == (Accumulator::F32, Accumulator::F16));
            known.then(|| {
                let accumulator =
                    |ty| quad_pairs(8, |l, i| if ty == Accumulator::F16 { half(l, i) } else { single(l, i) });
                let a =
                    quad_pairs(4, |l, i| if a_column { (i + high(l), l % 4) } else { (l % 4 + high(l), i) });
                let b =
                    quad_pairs(4, |l, i| if b_column { (l % 4 + high(l), i) } else { (i + high(l), l % 4) });
                [a, b, accumulator(c), accumulator(d)]
            })?
        } else {
            let known = ROWS.iter().any(|(factors, accumulators, dense, sparse)| {
                let shapes = if words.sparse { sparse } else { dense };
                factors.contains(&a)
                    && factors.contains(&b)
                    && accumulators.contains(&c)
                    && c == d
                    && shapes.contains(&(m, k))
            });
            if !known || a_column || !b_column {
                return None;
            }
            let stored = if words.sparse { k / 2 } else { k };
            let run = |format: Format| u32::try_from(format.per_register()).ok();
            let accumulator = pattern(m, n, 2)?;
            [pattern(m, stored, run(a)?)?, pattern(n, k, run(b)?)?, accumulator.clone(), accumulator]
        };
        let [a_places, b_places, c_places, d_places] = places;
        let product = Product {
            m: m.into(),
            n: n.into(),
            k: k.into(),
            blocks: if volta { 4 } else { 1 },
            a,
            b,
            c,
            d,
            a_places,
            b_places,
            c_places,
            d_places,
            saturate: words.saturate,
            xor: words.logic == Some(Modifier::XorOp),
            rounding: words.rounding.unwrap_or(Round::NearestTiesToEven),
        };
        Some(Mma { product, sparse: words.sparse })
    }

    /// Registers of A, B, C and D in each lane: 64-bit ones of `f64`, else 32-bit ones.
    pub fn registers(&self) -> [usize; 4] {
        self.product.registers()
    }

    /// The types of A and B.
    pub fn factors(&self) -> (Format, Format) {
        (self.product.a, self.product.b)
    }

    /// Operations of the tensor cores, a multiply-add being two; a sparse A counts as if it were dense.
    pub fn operations(&self) -> u64 {
        self.product.operations()
    }

    /// Whether A is sparse, so that the instruction has metadata and a selector.
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// The largest selector of a sparse A; 0 with a dense one.
    pub fn last_selector(&self) -> u32 {
        match self.metadata_threads() {
            1 if self.sparse => 3,
            2 if self.sparse => 1,
            _ => 0,
        }
    }

    /// Of four neighbouring threads, how many give metadata: each has the indices of eight groups.
    fn metadata_threads(&self) -> usize {
        2 * (self.product.k / self.group()) / 8
    }

    /// Elements of a row of a sparse A of which half are stored.
    fn group(&self) -> usize {
        if self.product.a == Format::Tf32 { 2 } else { 4 }
    }

    /// The registers of D. Of a sparse A, `sparse` is the metadata and the selector.
    ///
    /// Registers beyond [`Mma::registers`] are ignored and missing ones hold zeros; so does A without its metadata.
    pub fn apply(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes], sparse: Option<(&Lanes, u32)>) -> Vec<Lanes> {
        self.product.apply(a, b, c, |left| match (self.sparse, sparse) {
            (false, _) => left,
            (true, Some((metadata, selector))) => self.expand(&left, metadata, selector),
            (true, None) => vec![0.0; left.len()],
        })
    }

    /// A dense A of one that has the stored elements only. An index of a group is 4 bits: two of 2 bits for its two
    /// stored elements or, of `tf32`, for the two halves of the one.
    ///
    /// With 8-bit elements, a thread has the eight groups of a row; with wider ones, four groups of a row in its low
    /// half and those of the row eight further down in the high half.
    fn expand(&self, stored: &[f32], metadata: &Lanes, selector: u32) -> Vec<f32> {
        let &Product { m, k, a, .. } = &self.product;
        let group = self.group();
        let first = self.metadata_threads() * (selector & 3) as usize % 4;
        let mut dense = vec![0f32; m * k];
        for row in 0..m {
            for index in 0..k / group {
                let (thread, nibble) = match a.bits() {
                    8 => (2 * (index / 8) + row / 8, index % 8),
                    _ => (index / 4, 4 * (row / 8) + index % 4),
                };
                let lane = 4 * (row % 8) + (first + thread) % 4;
                let indices = word(metadata[lane]) >> (4 * nibble);
                for element in 0..group / 2 {
                    let within = (indices >> (2 * element) & 3) as usize * group / 4;
                    let from = (index * group / 2 + element) * m + row;
                    dense[(index * group + within) * m + row] = stored[from];
                }
            }
        }
        dense
    }
}

/// The pattern of a fragment in which `run` neighbouring columns are in a register: where its elements lie in a dense
/// matrix stored by columns.
fn pattern(rows: u16, columns: u16, run: u32) -> Option<Places> {
    type Known = HashMap<(u16, u16, u32), Places>;
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(places) = known.get(&(rows, columns, run)) {
        return Some(places.clone());
    }
    let fragment = tilewright_hardware::mma::fragment(rows.into(), columns.into(), run, 1).ok()?;
    let mut places = Vec::new();
    for value in 0..fragment.values() {
        for lane in 0..32 {
            places.push(u16::try_from(fragment.index(lane, value).ok()?).ok()?);
        }
    }
    let places = Places::from(places);
    known.insert((rows, columns, run), places.clone());
    Some(places)
}

/// The four products of Volta, one for lanes 0-3 and 16-19, one for the next four of both, and so on: where the
/// elements that `place` gives row and column of lie, each product a matrix of 8 rows stored by columns.
fn quad_pairs(elements: u16, place: impl Fn(u16, u16) -> (u16, u16)) -> Places {
    let at = |lane: u16, element: u16| {
        let (row, column) = place(lane, element);
        let block = lane % 16 / 4;
        block * 8 * elements + column * 8 + row
    };
    let places: Vec<u16> =
        (0..elements).flat_map(|i| (0..32).map(move |l| (l, i))).map(|(l, i)| at(l, i)).collect();
    Arc::from(places)
}

/// The lanes of the upper half have the lower four rows or columns.
fn high(lane: u16) -> u16 {
    lane / 16 * 4
}

/// Row and column of an `f16` accumulator of Volta.
fn half(lane: u16, element: u16) -> (u16, u16) {
    (lane % 4 + high(lane), element)
}

/// Row and column of an `f32` accumulator of Volta.
fn single(lane: u16, element: u16) -> (u16, u16) {
    ((lane & 1) + (element & 2) + high(lane), (element & 4) + (lane & 2) + (element & 1))
}

#[cfg(test)]
mod tests;
