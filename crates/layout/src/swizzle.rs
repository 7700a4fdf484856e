//! [`Swizzle`]: exclusive-or of one group of address bits into another.
//!
//! ```text
//! 0bxxxxxxxxxxxxxxxYYYxxxxxxxZZZxxxx
//!                                ^--^  base: bits left alone
//!                             ^-^      bits: how many are changed
//!                   ^---------^        shift: from Z up to Y (down, if negative)
//! ```
//! `Z ^= Y`. Where the address is in bytes, `S<3,4,3>` is the 128-byte swizzle of TMA and wgmma, `S<2,4,3>` the
//! 64-byte and `S<1,4,3>` the 32-byte one.

use std::fmt;

use crate::error::{LayoutError, Result, argument};

/// The bijection `S<bits,base,shift>` on non-negative integers; it is its own inverse.
///
/// ```
/// use tilewright_layout::Swizzle;
/// let s = Swizzle::new(3, 4, 3)?;
/// let rows: Vec<i64> = (0..8).map(|row| s.apply(128 * row)).collect::<Result<_, _>>()?;
/// assert_eq!(rows, [0, 144, 288, 432, 576, 720, 864, 1008]);
/// assert_eq!(s.to_string(), "S<3,4,3>");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swizzle {
    bits: u8,
    base: u8,
    shift: i8,
}

impl Swizzle {
    /// The swizzle `S<bits,base,shift>`; the two bit groups must not overlap and must lie in the low 62 bits.
    pub fn new(bits: i64, base: i64, shift: i64) -> Result<Swizzle> {
        let error = |reason| LayoutError::Swizzle { bits, base, shift, reason };
        let range = 0..=62;
        match (u8::try_from(bits), u8::try_from(base), i8::try_from(shift)) {
            _ if bits < 0 => Err(error("the number of bits is negative")),
            _ if base < 0 => Err(error("the base is negative")),
            (Ok(b), Ok(m), Ok(s)) if range.contains(&(i64::from(b) + i64::from(m) + i64::from(s).abs())) => {
                if s.unsigned_abs() < b {
                    return Err(error("the shift is smaller than the number of bits, so the masks overlap"));
                }
                Ok(Swizzle { bits: b, base: m, shift: s })
            }
            _ => Err(error("bits, base and shift together exceed 62")),
        }
    }

    /// Number of bits changed.
    pub fn bits(&self) -> i64 {
        self.bits.into()
    }

    /// Number of least-significant bits left alone.
    pub fn base(&self) -> i64 {
        self.base.into()
    }

    /// Distance from the changed bits to the bits they are combined with.
    pub fn shift(&self) -> i64 {
        self.shift.into()
    }

    /// Whether no value is changed.
    pub fn is_identity(&self) -> bool {
        self.bits == 0
    }

    /// The swizzled value; negative ones have no bits to swizzle and are refused.
    pub fn apply(&self, value: i64) -> Result<i64> {
        if value < 0 {
            return Err(argument(
                "swizzle",
                format!("{self} of {value}: a negative value cannot be swizzled"),
            ));
        }
        let mask = (1i64 << self.bits) - 1;
        let distance = self.shift.unsigned_abs();
        Ok(if self.shift >= 0 {
            let source = mask << (self.base + distance);
            value ^ ((value & source) >> distance)
        } else {
            let source = mask << self.base;
            value ^ ((value & source) << distance)
        })
    }

    /// Whether the values below `end` are permuted among themselves.
    pub fn permutes_below(&self, end: i64) -> bool {
        let distance = self.shift.unsigned_abs();
        // Below the source bits nothing changes; otherwise whole blocks of the changed bits are needed.
        let (source, changed) = match self.shift >= 0 {
            true => (self.base + distance, self.base + self.bits),
            false => (self.base, self.base + distance + self.bits),
        };
        self.is_identity() || end <= 1i64 << source || end % (1i64 << changed) == 0
    }

    /// The same permutation in units of `n` values; `n` must be a power of two that the base leaves alone.
    ///
    /// ```
    /// use tilewright_layout::Swizzle;
    /// // The 128-byte swizzle, counted in 2-byte elements.
    /// assert_eq!(Swizzle::new(3, 4, 3)?.upcast(2)?, Swizzle::new(3, 3, 3)?);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn upcast(&self, n: i64) -> Result<Swizzle> {
        let base = self.base() - log2("upcast", n)?;
        if base < 0 && !self.is_identity() {
            return Err(argument("upcast", format!("{self} moves parts of units of {n}")));
        }
        Swizzle::new(self.bits(), base.max(0), self.shift())
    }

    /// The same permutation in units of `1/n` value; `n` must be a power of two.
    pub fn downcast(&self, n: i64) -> Result<Swizzle> {
        Swizzle::new(self.bits(), self.base() + log2("downcast", n)?, self.shift())
    }
}

fn log2(op: &'static str, n: i64) -> Result<i64> {
    if n < 1 || n.count_ones() != 1 {
        return Err(argument(op, format!("the factor of a swizzle is {n}, expected a power of two")));
    }
    Ok(n.trailing_zeros().into())
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S<{},{},{}>", self.bits, self.base, self.shift)
    }
}
