//! Floating-point formats: scalar conversions with every rounding mode.
//!
//! `f64` holds every value of the smaller formats, so it is the common ground: [`Small::decode`] is exact, and
//! [`Small::encode`] rounds once. A value that itself is a rounded one must have been rounded *to odd* ([`odd`]): its last
//! bit then tells that something was cut off, and rounding it again gives what rounding the exact value would have given.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "taking numbers apart into their fields"
)]

use tilewright_ptx::Modifier;

/// A rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To nearest, ties to even: `.rn`, `.rni`
    Nearest,
    /// To nearest, ties away from zero: `.rna`
    Away,
    /// Towards zero: `.rz`, `.rzi`
    Zero,
    /// Towards negative infinity: `.rm`, `.rmi`
    Down,
    /// Towards positive infinity: `.rp`, `.rpi`
    Up,
}

impl Rounding {
    /// The mode of `.rn` and the like; `None` for other words.
    pub fn of(word: Modifier) -> Option<Rounding> {
        Some(match word {
            Modifier::Rn => Rounding::Nearest,
            Modifier::Rna => Rounding::Away,
            Modifier::Rz => Rounding::Zero,
            Modifier::Rm => Rounding::Down,
            Modifier::Rp => Rounding::Up,
            _ => return None,
        })
    }

    /// The mode of `.rni` and the like, which round to an integer.
    pub fn of_integral(word: Modifier) -> Option<Rounding> {
        Some(match word {
            Modifier::Rni => Rounding::Nearest,
            Modifier::Rzi => Rounding::Zero,
            Modifier::Rmi => Rounding::Down,
            Modifier::Rpi => Rounding::Up,
            _ => return None,
        })
    }
}

/// What a format has besides finite numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// Infinities and NaNs, as IEEE 754 has them.
    Ieee,
    /// One NaN for each sign, all ones, and no infinity.
    Nan,
    /// Nothing.
    Nothing,
}

/// A format of at most 19 bits.
///
/// ```
/// use tilewright_sim::number::{Rounding, Small};
/// assert_eq!(Small::E4M3.decode(0x7e), 448.0);
/// assert_eq!(Small::E4M3.encode(1000.0, Rounding::Nearest, true), 0x7e);
/// assert_eq!(Small::F16.encode(1.0, Rounding::Nearest, false), 0x3c00);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small {
    exponent: u32,
    mantissa: u32,
    special: Special,
    /// The NaN that arithmetic gives.
    nan: u32,
}

impl Small {
    /// `f16`
    pub const F16: Small = Small::new(5, 10, Special::Ieee, 0x7fff);
    /// `bf16`
    pub const BF16: Small = Small::new(8, 7, Special::Ieee, 0x7fff);
    /// `tf32` in 19 bits; in a register it sits 13 bits higher.
    pub const TF32: Small = Small::new(8, 10, Special::Ieee, 0x3ffff);
    /// `e4m3`
    pub const E4M3: Small = Small::new(4, 3, Special::Nan, 0x7f);
    /// `e5m2`
    pub const E5M2: Small = Small::new(5, 2, Special::Ieee, 0x7f);
    /// `e2m3`
    pub const E2M3: Small = Small::new(2, 3, Special::Nothing, 0x1f);
    /// `e3m2`
    pub const E3M2: Small = Small::new(3, 2, Special::Nothing, 0x1f);
    /// `e2m1`
    pub const E2M1: Small = Small::new(2, 1, Special::Nothing, 0x7);

    const fn new(exponent: u32, mantissa: u32, special: Special, nan: u32) -> Small {
        Small { exponent, mantissa, special, nan }
    }

    /// The bits of the NaN that conversions give; formats without NaN give their largest number.
    pub const fn nan(self) -> u32 {
        self.nan
    }

    const fn sign(self) -> u32 {
        1 << (self.exponent + self.mantissa)
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The bits of the largest finite number.
    pub const fn largest(self) -> u32 {
        match self.special {
            Special::Ieee => self.infinity() - 1,
            Special::Nan => self.sign() - 2,
            Special::Nothing => self.sign() - 1,
        }
    }

    const fn infinity(self) -> u32 {
        ((1 << self.exponent) - 1) << self.mantissa
    }

    /// The sign, and the fraction where that of an `f64` would be.
    pub(super) fn fields(self, bits: u32) -> (u64, u64) {
        let sign = bits & self.sign() != 0;
        let fraction = bits & ((1 << self.mantissa) - 1);
        (u64::from(sign), u64::from(fraction) << (52 - self.mantissa))
    }

    /// A NaN with this sign and the upper bits of an `f64`'s fraction, for formats that have infinities.
    pub(super) fn with_payload(self, sign: u64, fraction: u64) -> u64 {
        (sign * u64::from(self.sign())) | u64::from(self.infinity()) | fraction >> (52 - self.mantissa)
    }

    /// The value of an encoding; bits above the format are ignored.
    pub fn decode(self, bits: u32) -> f64 {
        let magnitude = bits & (self.sign() - 1);
        let fraction = magnitude & ((1 << self.mantissa) - 1);
        let exponent = (magnitude >> self.mantissa) as i32;
        let value = if self.special == Special::Ieee && magnitude >= self.infinity() {
            if fraction == 0 { f64::INFINITY } else { f64::NAN }
        } else if self.special == Special::Nan && magnitude == self.sign() - 1 {
            f64::NAN
        } else {
            let (whole, exponent) = if exponent == 0 { (0, 1) } else { (1 << self.mantissa, exponent) };
            f64::from(whole + fraction) * power(exponent - self.bias() - self.mantissa as i32)
        };
        if bits & self.sign() == 0 { value } else { -value }
    }

    /// The encoding nearest to a value in the given direction. With `saturate` (`.satfinite`) what is too large becomes
    /// the largest finite number.
    pub fn encode(self, value: f64, rounding: Rounding, saturate: bool) -> u32 {
        if value.is_nan() {
            return self.nan;
        }
        let negative = value.is_sign_negative();
        let sign = if negative { self.sign() } else { 0 };
        let too_large = match (self.special, rounding) {
            _ if saturate => self.largest(),
            (Special::Nothing, _) => self.largest(),
            (Special::Nan, _) => self.nan,
            (_, Rounding::Zero) => self.largest(),
            (_, Rounding::Down) if !negative => self.largest(),
            (_, Rounding::Up) if negative => self.largest(),
            _ => self.infinity(),
        };
        if value.is_infinite() {
            // Rounding does not move an infinity, saturation does.
            let exact = if self.special == Special::Ieee && !saturate { self.infinity() } else { too_large };
            return sign | exact;
        }
        let bits = value.abs().to_bits();
        if bits == 0 {
            return sign;
        }
        let (whole, field) = if bits >> 52 == 0 { (0, 1) } else { (1 << 52, (bits >> 52) as i32) };
        let significand = whole | (bits & ((1 << 52) - 1));
        let lowest = 1 - self.bias();
        let exponent = (field - 1023).max(lowest);
        // How far the last bit of the result lies above that of the significand.
        let shift = (exponent - self.mantissa as i32 - (field - 1075)) as u32;
        let (kept, cut, half) = match shift {
            0..=62 => (significand >> shift, significand & ((1 << shift) - 1), 1 << (shift - 1)),
            _ => (0, 1, 2),
        };
        let up = match rounding {
            Rounding::Nearest => cut > half || (cut == half && kept & 1 == 1),
            Rounding::Away => cut >= half,
            Rounding::Zero => false,
            Rounding::Down => cut != 0 && negative,
            Rounding::Up => cut != 0 && !negative,
        };
        // A carry out of the fraction runs into the exponent, as it should.
        let code = (((exponent - lowest) as u32) << self.mantissa) + kept as u32 + u32::from(up);
        sign | if code > self.largest() { too_large } else { code }
    }
}

/// 2 to a power between -1022 and 1023.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// `f16` to `f32`; NaNs become the canonical one.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let (sign, magnitude) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
    // The exponent moves from bias 15 to 127; numbers without leading bit get one and lose it again.
    let normal = magnitude + (112 << 23);
    let subnormal = (f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let special = if magnitude == 0x1f << 23 { 0x7f80_0000 } else { 0x7fff_ffff };
    let value = if magnitude < 1 << 23 { subnormal } else { normal };
    let value = if magnitude >= 0x1f << 23 { special } else { value };
    f32::from_bits(if value == 0x7fff_ffff { value } else { value | sign })
}

/// `f32` to `f16`, to nearest even.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    // Adding one half rounds at its last bit, which is the last bit of subnormal results.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    let result = if magnitude >= 143 << 23 { 0x7c00 } else { finite };
    (if magnitude > 0x7f80_0000 { 0x7fff } else { result | sign }) as u16
}

/// `bf16` to `f32`: the upper half; NaNs keep their bits.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `f32` to `bf16`, to nearest even.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded }) as u16
}

/// `f64`, exact or rounded to odd, to `f32`. A NaN becomes the canonical one.
pub fn f64_to_f32(value: f64, rounding: Rounding) -> f32 {
    if value.is_nan() {
        return CANONICAL;
    }
    let nearest = value as f32;
    let back = f64::from(nearest);
    let away = (nearest.to_bits() & 0x7fff_ffff).wrapping_add(1);
    let closer = (nearest.to_bits() & 0x7fff_ffff).wrapping_sub(1);
    let with_sign = |magnitude: u32| f32::from_bits(magnitude | (nearest.to_bits() & 0x8000_0000));
    let (too_high, too_low) = (back > value, back < value);
    let negative = value < 0.0;
    match rounding {
        Rounding::Nearest => nearest,
        Rounding::Away => {
            // A tie that went to the even neighbour towards zero goes to the other one.
            let other = with_sign(away);
            let tie = (f64::from(other) - value).abs() == (value - back).abs();
            if back.abs() < value.abs() && tie { other } else { nearest }
        }
        Rounding::Zero => {
            if back.abs() > value.abs() {
                with_sign(closer)
            } else {
                nearest
            }
        }
        Rounding::Down => match (too_high, negative) {
            (false, _) => nearest,
            (true, true) => with_sign(away),
            (true, false) => with_sign(closer),
        },
        Rounding::Up => match (too_low, negative) {
            (false, _) => nearest,
            (true, true) => with_sign(closer),
            (true, false) => with_sign(away),
        },
    }
}

/// A result, with the canonical NaN for any NaN. It goes by the bits: a compiler may take one NaN of arithmetic for another.
#[inline(always)]
pub(super) fn canonical(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits })
}

/// The NaN that single-precision arithmetic gives.
pub(super) const CANONICAL: f32 = f32::from_bits(0x7fff_ffff);

/// Whether `.ftz` makes a zero of an `f32` result, given as exact or rounded to odd. The hardware decides it by the result
/// rounded to 24 bits as if exponents had no end: what rounds up to the smallest normal number stays.
#[inline(always)]
pub(super) fn flushes(value: f64, rounding: Rounding) -> bool {
    // 2^-126, and that less half a unit and a unit of the last place below it.
    const NORMAL: f64 = f64::from_bits(0x3810_0000_0000_0000);
    const HALF: f64 = f64::from_bits(0x380f_ffff_f000_0000);
    const UNIT: f64 = f64::from_bits(0x380f_ffff_e000_0000);
    let magnitude = value.abs();
    match rounding {
        Rounding::Nearest | Rounding::Away => magnitude < HALF,
        Rounding::Down if value < 0.0 => magnitude <= UNIT,
        Rounding::Up if value > 0.0 => magnitude <= UNIT,
        _ => magnitude < NORMAL,
    }
}

/// The sum of two numbers and what rounding took from it.
#[inline(always)]
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// A rounded value and the rest that was cut off (only its sign counts), rounded to odd instead.
#[inline(always)]
pub(super) fn odd(value: f64, rest: f64) -> f64 {
    let bits = value.to_bits();
    // A rest that is NaN, as of infinities, is none.
    let inexact = rest.abs() > 0.0;
    let outwards = (rest > 0.0) == (value > 0.0);
    let moved = if outwards { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    f64::from_bits(if inexact && bits & 1 == 0 { moved } else { bits })
}

/// An integer to `f64`, rounded to odd.
pub(super) fn integer_to_odd(value: i128) -> f64 {
    let near = value as f64;
    let rest = value - near as i128;
    odd(near, rest as f64)
}

/// A number rounded to an integer.
#[inline(always)]
pub fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Away => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}
