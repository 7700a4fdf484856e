//! Random numbers by position: Philox4x32-10, which turns a seed and a counter into four words.
//!
//! The same seed and position give the same number on every device and in every kernel, in any order. The counter of position `p` is
//! `[p, 0, 0, 0]` (for 64-bit positions `[low, high, 0, 0]`), the key is the seed, low word first.

use super::elementwise::Tiles;
use super::value::Tile;
use crate::element::Integer;
use crate::trace;
use crate::value::{Operand, Val};

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: u32 = 10;

/// Philox4x32-10 of a counter and a key.
///
/// ```
/// use tilewright_lang::tile::prelude::*;
/// #[kernel]
/// fn k(seed: Val<u64>, out: View<u32, 1>) {
///     let key = [seed.cast::<u32>(), (seed >> 32u32).cast::<u32>()];
///     let words = arange(64).map(|i| philox4x32([i, val(7), val(0), val(0)], key)[0]);
///     out.tile([64]).at(0).store(words);
/// }
/// k::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[must_use]
#[track_caller]
pub fn philox4x32(counter: [Val<u32>; 4], key: [Val<u32>; 2]) -> [Val<u32>; 4] {
    trace::here();
    let [mut a, mut b, mut c, mut d] = counter;
    let [mut low, mut high] = key;
    for round in 0..ROUNDS {
        if round > 0 {
            (low, high) = (low + WEYL[0], high + WEYL[1]);
        }
        let (x, y) = (a.mul_hi(MULTIPLIERS[0]), c.mul_hi(MULTIPLIERS[1]));
        (a, b, c, d) = (y ^ b ^ low, c * MULTIPLIERS[1], x ^ d ^ high, a * MULTIPLIERS[0]);
    }
    [a, b, c, d]
}

/// Integers that number positions of random numbers: `u32` and `u64`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not number random numbers",
    note = "positions are tiles of `u32` or `u64`"
)]
pub trait RandomOffset: Integer {
    /// The words, low and high.
    #[doc(hidden)]
    #[track_caller]
    fn words(position: Val<Self>) -> [Val<u32>; 2];
}

impl RandomOffset for u32 {
    #[track_caller]
    fn words(position: Val<u32>) -> [Val<u32>; 2] {
        [position, 0.val()]
    }
}

impl RandomOffset for u64 {
    #[track_caller]
    fn words(position: Val<u64>) -> [Val<u32>; 2] {
        [position.cast(), (position >> 32u32).cast()]
    }
}

#[track_caller]
fn key(seed: impl Operand<u64>) -> [Val<u32>; 2] {
    u64::words(seed.val())
}

#[track_caller]
fn words<T: RandomOffset>(position: Val<T>, key: [Val<u32>; 2]) -> [Val<u32>; 4] {
    let [low, high] = T::words(position);
    philox4x32([low, high, 0.val(), 0.val()], key)
}

/// A number in [0, 1) from the upper 24 bits of a word.
#[track_caller]
fn unit(word: Val<u32>) -> Val<f32> {
    (word >> 8u32).cast::<f32>() * 2f32.powi(-24)
}

/// Four random words for each position.
#[must_use]
#[track_caller]
pub fn philox4<T: RandomOffset>(seed: impl Operand<u64>, positions: Tile<T>) -> [Tile<u32>; 4] {
    trace::here();
    let key = key(seed);
    positions.map(|p| words(p, key))
}

/// A random word for each position: the first of [`philox4`].
#[must_use]
#[track_caller]
pub fn philox<T: RandomOffset>(seed: impl Operand<u64>, positions: Tile<T>) -> Tile<u32> {
    trace::here();
    let key = key(seed);
    positions.map(|p| words(p, key)[0])
}

/// A random number from 0 up to, but without, 1 for each position: the upper 24 bits of [`philox`], times 2^-24.
///
/// ```
/// use tilewright_lang::tile::prelude::*;
/// /// Keeps elements with probability `keep`, scaled so that the mean stays.
/// #[kernel]
/// fn dropout(x: View<f32, 1>, out: View<f32, 1>, keep: Val<f32>, seed: Val<u64>) {
///     let block = program_id(0);
///     let kept = uniform(seed, arange(1024) + block * 1024u32) < keep;
///     let x = x.tile([1024]).block(block).load();
///     out.tile([1024]).block(block).store(select(kept, x / keep, 0.0));
/// }
/// dropout::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[must_use]
#[track_caller]
pub fn uniform<T: RandomOffset>(seed: impl Operand<u64>, positions: Tile<T>) -> Tile<f32> {
    trace::here();
    let key = key(seed);
    positions.map(|p| unit(words(p, key)[0]))
}

/// A normally distributed random number, of mean 0 and variance 1, for each position: of the first two words of [`philox4`].
///
/// ```
/// use tilewright_lang::tile::prelude::*;
/// #[kernel]
/// fn noisy(x: View<f32, 1>, seed: Val<u64>, deviation: Val<f32>) {
///     let own = x.partition([1024]);
///     own.store(own.load() + normal(seed, own.positions(0).cast::<u32>()) * deviation);
/// }
/// noisy::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[must_use]
#[track_caller]
pub fn normal<T: RandomOffset>(seed: impl Operand<u64>, positions: Tile<T>) -> Tile<f32> {
    trace::here();
    let key = key(seed);
    positions.map(|p| {
        let [a, b, ..] = words(p, key);
        normals(a, b)[0]
    })
}

/// Four normally distributed random numbers for each position.
#[must_use]
#[track_caller]
pub fn normal4<T: RandomOffset>(seed: impl Operand<u64>, positions: Tile<T>) -> [Tile<f32>; 4] {
    trace::here();
    let key = key(seed);
    positions.map(|p| {
        let [a, b, c, d] = words(p, key);
        let ([a, b], [c, d]) = (normals(a, b), normals(c, d));
        [a, b, c, d]
    })
}

/// Two normally distributed numbers of two words, by Box and Muller: how far, and in which direction.
#[track_caller]
fn normals(far: Val<u32>, direction: Val<u32>) -> [Val<f32>; 2] {
    // Above 0, up to 1: 0 has no logarithm.
    let far = (unit(far) + 2f32.powi(-24)).log() * -2.0;
    let (sin, cos) = (unit(direction) * std::f32::consts::TAU).sin_cos();
    let far = far.sqrt();
    [far * cos, far * sin]
}

/// Four random numbers from 0 up to 1 for each position.
#[must_use]
#[track_caller]
pub fn uniform4<T: RandomOffset>(seed: impl Operand<u64>, positions: Tile<T>) -> [Tile<f32>; 4] {
    trace::here();
    let key = key(seed);
    positions.map(|p| words(p, key).map(unit))
}
