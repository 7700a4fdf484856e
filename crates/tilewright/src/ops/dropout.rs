//! [`Dropout`]: some numbers become zero by chance, and the others grow to make up for it.
//!
//! Which ones is decided by a counter-based generator, Philox4x32-10, of the seed, the [stream](Dropout::stream) and the place of the
//! number alone: the same on every device, whatever strides, type and launch are, and again for the gradient, which is the same operator on
//! the gradient of the result. Number `j` of row `i` is the number `n = i * columns + j`; it takes word `n % 4` of the generator at the counter
//! `(n / 4, stream)`, and is dropped if the word is below `p * 2^32`.
//!
//! What is dropped is 0, NaN and infinity included; what is kept is `x / (1 - p)`. No rows, no columns: nothing is written.
//!
//! Works in place: `y` may be exactly `x`.

use tilewright_kernels::ops as kernels;

use super::cpu::on_cpu;
use super::launch::{key, launch, parts, programs};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// Dropout of each number.
///
/// ```
/// use tilewright::ops::Dropout;
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let (x, y) = (device.upload(&[1.0f32; 1000])?, device.alloc::<f32>(1000)?);
/// Dropout::new(0.5, 42).run(&device, &x, &y)?;
/// let kept = y.to_vec()?.iter().filter(|y| **y == 2.0).count();
/// assert!((400..600).contains(&kept));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    p: f32,
    seed: u64,
    stream: u64,
}

impl Dropout {
    /// Each number is dropped with probability `p`.
    #[must_use]
    pub fn new(p: f32, seed: u64) -> Dropout {
        Dropout { p, seed, stream: 0 }
    }

    /// With other decisions for the same seed: one stream for each use.
    #[must_use]
    pub fn stream(self, stream: u64) -> Dropout {
        Dropout { stream, ..self }
    }

    /// Computes `y` from `x`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        x: impl Into<Rows<'r, T>>,
        y: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let (x, y) = (x.into(), y.into());
        if !(0.0..=1.0).contains(&self.p) {
            return Err(Error::argument(
                "p",
                self.p.to_string(),
                "a probability",
                "give a number from 0 to 1",
            ));
        }
        let mut operands = Operands::on(device);
        operands.input("x", &x)?;
        expect_extents("y", &y, x.extents(), "as `x` has")?;
        operands.result("y", &y)?;
        if device.kind() != DeviceKind::Cpu {
            let shape = parts(x.extents());
            let key = key("dropout", &[T::ELEMENT, U::ELEMENT], &[], shape);
            let arguments: &[&dyn Argument] =
                &[&x.tensor(), &y.tensor(), &self.factor(), &self.threshold(), &self.seed, &self.stream];
            return launch(device, &key, programs(x.extents(), shape), arguments, || {
                kernels::dropout::stage::<T, U>(shape)
            });
        }
        on_cpu(device, |mut host| {
            let mut grid = host.numbers(&x)?;
            let (columns, factor) = (grid.columns, self.factor());
            grid.each_row(|row, values| {
                let first = row as u64 * columns as u64;
                for (n, value) in (first..).zip(values) {
                    *value = if self.keeps(n) { *value * factor } else { 0.0 };
                }
            });
            host.write_numbers(&y, &grid)
        })
    }

    /// What is kept is multiplied by this.
    fn factor(&self) -> f32 {
        1.0 / (1.0 - self.p)
    }

    /// Words below this drop their number.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2^32")]
    fn threshold(&self) -> u64 {
        (f64::from(self.p) * 4_294_967_296.0) as u64
    }

    fn keeps(&self, n: u64) -> bool {
        let counter = [low(n / 4), high(n / 4), low(self.stream), high(self.stream)];
        let words = philox(counter, [low(self.seed), high(self.seed)]);
        u64::from(words[(low(n) % 4) as usize]) >= self.threshold()
    }
}

#[allow(clippy::cast_possible_truncation, reason = "half of it")]
fn low(n: u64) -> u32 {
    n as u32
}

fn high(n: u64) -> u32 {
    low(n >> 32)
}

/// Philox4x32-10: four random words of a counter and a key.
///
/// ```
/// use tilewright::ops::philox;
/// assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
/// ```
#[must_use]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k, mut l]) = (counter, key);
    for _ in 0..10 {
        let (first, second) = (u64::from(a) * 0xd251_1f53, u64::from(c) * 0xcd9e_8d57);
        (a, b, c, d) = (high(second) ^ b ^ k, low(second), high(first) ^ d ^ l, low(first));
        (k, l) = (k.wrapping_add(0x9e37_79b9), l.wrapping_add(0xbb67_ae85));
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the generator's authors.
    #[test]
    fn philox_gives_the_known_answers() {
        let ones = u32::MAX;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = ([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(philox(pi.0, pi.1), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }
}
