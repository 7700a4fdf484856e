//! A matrix product of one warp: fragments in registers are gathered into dense matrices, multiplied, and scattered.
//!
//! Which lane holds which element is a table for each operand, so that `mma` with its documented fragments and `wmma`
//! with ours are the same code. The dense matrices are stored by k: `A(k, m)`, `B(k, n)`; and the accumulator as `C(n,
//! m)`, because the loop over the longer m is the one that is vectorised.

use std::sync::Arc;

use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float, Round};

use super::dense::{Extents, accelerated, multiply, multiply_f64};
use super::format::{self, Accumulator, Format, with_decoder};
use crate::number::Lanes;

/// Where each element of a fragment lies in its dense matrix: element `i` of lane `l` at `32 * i + l`.
pub(super) type Places = Arc<[u16]>;

/// A product of one warp.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Independent products side by side: 4 on Volta's quad pairs, else 1.
    pub(super) blocks: usize,
    pub(super) a: Format,
    pub(super) b: Format,
    pub(super) c: Accumulator,
    pub(super) d: Accumulator,
    pub(super) a_places: Places,
    pub(super) b_places: Places,
    pub(super) c_places: Places,
    pub(super) d_places: Places,
    /// Whether integers are clamped instead of wrapped.
    pub(super) saturate: bool,
    /// Whether bits are compared instead of multiplied.
    pub(super) xor: bool,
    /// How `f64` is rounded.
    pub(super) rounding: Round,
}

impl Product {
    /// Registers of A, B, C and D in each lane.
    pub(super) fn registers(&self) -> [usize; 4] {
        [
            self.a_places.len() / 32 / self.a.per_register(),
            self.b_places.len() / 32 / self.b.per_register(),
            self.c_places.len() / 32 / self.c.per_register(),
            self.d_places.len() / 32 / self.d.per_register(),
        ]
    }

    /// Operations of the tensor cores, a multiply-add being two.
    pub(super) fn operations(&self) -> u64 {
        2 * (self.m * self.n * self.k * self.blocks) as u64
    }

    /// The registers of D. `expand` makes a dense A of what the registers hold; missing registers hold zeros.
    pub(super) fn apply(
        &self,
        a: &[Lanes],
        b: &[Lanes],
        c: &[Lanes],
        expand: impl FnOnce(Vec<f32>) -> Vec<f32>,
    ) -> Vec<Lanes> {
        if self.a == Format::F64 {
            return self.apply_f64(a, b, c);
        }
        let &Product { m, n, k, blocks, .. } = self;
        // A compressed A has half as many elements.
        let mut left = vec![0f32; blocks * m * k];
        let mut right = vec![0f32; blocks * n * k];
        gather(self.a, a, &self.a_places, &mut left);
        gather(self.b, b, &self.b_places, &mut right);
        let mut left = expand(left);
        if self.xor {
            // Of bits as signs, the product is 1 where they agree and -1 where they do not.
            left.iter_mut().chain(&mut right).for_each(|bit| *bit = 1.0 - 2.0 * *bit);
        }
        let mut sums = vec![0f32; blocks * m * n];
        match self.c {
            Accumulator::F16 => gather(Format::F16, c, &self.c_places, &mut sums),
            Accumulator::F32 => place::<32>(c, &self.c_places, &mut sums, f32::from_bits),
            Accumulator::S32 | Accumulator::F64 => {}
        }
        let extents = Extents { rows: n, columns: m, depth: k };
        let operands =
            left.chunks_exact(m * k).zip(right.chunks_exact(n * k)).zip(sums.chunks_exact_mut(m * n));
        for ((left, right), sums) in operands {
            multiply(right, n, left, sums, extents);
        }
        self.scatter(&sums, c)
    }

    fn scatter(&self, sums: &[f32], c: &[Lanes]) -> Vec<Lanes> {
        let rows = self.d_places.chunks_exact(32).enumerate();
        let mut d = vec![[0u64; 32]; self.registers()[3]];
        match self.d {
            Accumulator::F16 => {
                for (element, places) in rows {
                    for (out, place) in d[element / 2].iter_mut().zip(places) {
                        let bits = u64::from(format::f16_bits(sums[usize::from(*place)]));
                        *out |= bits << (16 * (element % 2));
                    }
                }
            }
            Accumulator::F32 => {
                for (element, places) in rows {
                    for (out, place) in d[element].iter_mut().zip(places) {
                        *out = format::f32_bits(sums[usize::from(*place)]).into();
                    }
                }
            }
            Accumulator::S32 | Accumulator::F64 => {
                for (element, places) in rows {
                    let old = c.get(element).unwrap_or(&[0; 32]);
                    for ((out, place), old) in d[element].iter_mut().zip(places).zip(old) {
                        let dot = format::integer(sums[usize::from(*place)]);
                        *out = self.add(format::word(*old), dot).into();
                    }
                }
            }
        }
        d
    }

    /// The sum of an accumulator and a dot product, which is of signs if bits are compared.
    fn add(&self, old: u32, dot: i32) -> u32 {
        let depth = i32::try_from(self.k).unwrap_or(i32::MAX);
        let dot = if self.xor { (depth - dot) / 2 } else { dot };
        let old = old.cast_signed();
        (if self.saturate { old.saturating_add(dot) } else { old.wrapping_add(dot) }).cast_unsigned()
    }

    fn apply_f64(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> Vec<Lanes> {
        let &Product { m, n, k, .. } = self;
        let dense = |registers: &[Lanes], places: &Places, size: usize| {
            let mut out = vec![0f64; size];
            for (register, places) in registers.iter().zip(places.chunks_exact(32)) {
                for (bits, place) in register.iter().zip(places) {
                    out[usize::from(*place)] = f64::from_bits(*bits);
                }
            }
            out
        };
        let (left, right) = (dense(a, &self.a_places, m * k), dense(b, &self.b_places, n * k));
        let mut sums = dense(c, &self.c_places, m * n);
        if self.rounding == Round::NearestTiesToEven {
            multiply_f64(&right, &left, &mut sums, Extents { rows: n, columns: m, depth: k });
        } else {
            for (index, sum) in sums.iter_mut().enumerate() {
                let (row, column) = (index % m, index / m);
                let exact = |value: f64| Double::from_bits(value.to_bits().into());
                for k in 0..k {
                    let (x, y) = (left[k * m + row], right[k * n + column]);
                    let next = exact(x).mul_add_r(exact(y), exact(*sum), self.rounding).value;
                    // A double has 64 bits.
                    *sum = u64::try_from(next.to_bits()).map_or(f64::NAN, f64::from_bits);
                }
            }
        }
        let bits = |place: &u16| {
            let sum = sums[usize::from(*place)];
            if sum.is_nan() { 0xfff8_0000_0000_0000 } else { sum.to_bits() }
        };
        let rows = self.d_places.chunks_exact(32);
        rows.map(|places| {
            let mut register = [0; 32];
            register.iter_mut().zip(places).for_each(|(out, place)| *out = bits(place));
            register
        })
        .collect()
    }
}

accelerated! {
    /// Takes the elements out of registers and puts them in their places.
    fn gather(format: Format, registers: &[Lanes], places: &[u16], out: &mut [f32]) {
        with_decoder!(format, place(registers, places, out));
    }
}

/// [`gather`] of elements of `BITS` bits: their bits one by one, and then the numbers in one go over neighbours.
#[inline(always)]
fn place<const BITS: usize>(
    registers: &[Lanes],
    places: &[u16],
    out: &mut [f32],
    decode: impl Fn(u32) -> f32,
) {
    let per = 32 / BITS;
    let mask = u32::MAX >> (32 - BITS);
    for (register, places) in registers.iter().zip(places.chunks_exact(32 * per)) {
        for (element, places) in places.chunks_exact(32).enumerate() {
            for (value, place) in register.iter().zip(places) {
                out[usize::from(*place)] = f32::from_bits(format::word(*value) >> (element * BITS) & mask);
            }
        }
    }
    out.iter_mut().for_each(|value| *value = decode(value.to_bits()));
}
