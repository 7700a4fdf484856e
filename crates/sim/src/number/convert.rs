//! `cvt` and `cvt.pack`.
//!
//! A source is read in its own type: higher bits of the register do not count. The result has the width of the type that
//! is converted to; what a wider register gets is [`Map::into_register`](super::Map::into_register)'s business.
//!
//! A float that becomes an integer is clamped to the range of the integer; NaN becomes 0, or the integer with only its
//! first bit set where the source is `f64` or the result has 64 bits (PTX 9.7.9.21, integer notes).
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "conversions are what this module is about"
)]

use tilewright_ptx::{Modifier, Type};

use super::Lanes;
use super::decode::Words;
use super::float::saturate;
use super::format::{
    Rounding, Small, bf16_to_f32, canonical, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_f32, flushes,
    integer_to_odd, integral,
};
use super::word::{map1, map2};

/// What one element is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Element {
    Integer {
        bits: u32,
        signed: bool,
    },
    Single,
    Double,
    /// A small format, and how far from bit 0 it sits.
    Small(Small, u32),
}

impl Element {
    /// The element of a type, and how many bits lie between two of them in a packed type.
    fn of(ty: Type) -> Option<(Element, Option<u32>)> {
        let integer = |signed| Element::Integer { bits: ty.bits(), signed };
        Some(match ty {
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => (integer(false), None),
            Type::S8 | Type::S16 | Type::S32 | Type::S64 => (integer(true), None),
            Type::F32 => (Element::Single, None),
            Type::F64 => (Element::Double, None),
            Type::F16 => (Element::Small(Small::F16, 0), None),
            Type::Bf16 => (Element::Small(Small::BF16, 0), None),
            Type::Tf32 => (Element::Small(Small::TF32, 13), None),
            Type::F16x2 => (Element::Small(Small::F16, 0), Some(16)),
            Type::Bf16x2 => (Element::Small(Small::BF16, 0), Some(16)),
            Type::E4m3x2 => (Element::Small(Small::E4M3, 0), Some(8)),
            Type::E5m2x2 => (Element::Small(Small::E5M2, 0), Some(8)),
            Type::E2m3x2 => (Element::Small(Small::E2M3, 0), Some(8)),
            Type::E3m2x2 => (Element::Small(Small::E3M2, 0), Some(8)),
            Type::E2m1x2 => (Element::Small(Small::E2M1, 0), Some(4)),
            _ => return None,
        })
    }
}

/// How elements lie in sources and result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// One in, one out.
    One,
    /// Two sources; the first becomes the upper element, this many bits up.
    Join(u32),
    /// A pair in one source, so many bits apart, becomes a pair so many bits apart.
    Pair(u32, u32),
    /// `cvt.pack`: like `Join`, and a third source is shifted in above.
    Pack(u32),
}

/// A conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Convert {
    from: Element,
    to: Element,
    layout: Layout,
    rounding: Rounding,
    /// Whether a float is rounded to an integer, of whatever type.
    integral: bool,
    ftz: bool,
    sat: bool,
    relu: bool,
    satfinite: bool,
}

/// A number between its two types.
#[derive(Clone, Copy)]
enum Number {
    Integer(i128),
    Real(f64),
}

/// The conversion, the types of its sources, and that of its result.
pub(super) fn decode(words: &Words) -> Option<(Convert, [Type; 4], usize, Type)> {
    use Modifier as M;
    if words.has(M::Pack) {
        return decode_pack(words);
    }
    let &[to_type, from_type] = &words.types[..] else { return None };
    let allowed = [
        M::Rn,
        M::Rna,
        M::Rz,
        M::Rm,
        M::Rp,
        M::Rni,
        M::Rzi,
        M::Rmi,
        M::Rpi,
        M::Ftz,
        M::Sat,
        M::Relu,
        M::Satfinite,
    ];
    if !words.only(&allowed) {
        return None;
    }
    let rounding = words.one(Rounding::of).ok()?;
    let to_integer = words.one(Rounding::of_integral).ok()?;
    let ((to, to_apart), (from, from_apart)) = (Element::of(to_type)?, Element::of(from_type)?);
    let layout = match (to_apart, from_apart) {
        (None, None) => Layout::One,
        (Some(apart), None) if from == Element::Single => Layout::Join(apart),
        (Some(apart), Some(from_apart)) => Layout::Pair(from_apart, apart),
        _ => return None,
    };
    let integer = |element: Element| matches!(element, Element::Integer { .. });
    let width = |element: Element| match element {
        Element::Double => 3,
        Element::Single => 2,
        _ => 1,
    };
    let fits = match (integer(to), integer(from)) {
        (true, true) => rounding.is_none() && to_integer.is_none(),
        (true, false) => rounding.is_none() && to_integer.is_some(),
        (false, true) => rounding.is_some() && to_integer.is_none(),
        (false, false) if to_integer.is_some() => rounding.is_none() && to == from,
        (false, false) => rounding.is_some() || width(to) > width(from) || width(to) == width(from),
    };
    let single = from == Element::Single || to == Element::Single;
    let convert = Convert {
        from,
        to,
        layout,
        rounding: rounding.or(to_integer).unwrap_or(Rounding::Nearest),
        integral: to_integer.is_some(),
        ftz: words.has(M::Ftz),
        sat: words.has(M::Sat),
        relu: words.has(M::Relu),
        satfinite: words.has(M::Satfinite),
    };
    let small = matches!(to, Element::Small(..));
    let modified = (convert.relu || convert.satfinite) && !small;
    let away = rounding == Some(Rounding::Away) && to_type != Type::Tf32;
    if !fits
        || (convert.ftz && !single)
        || modified
        || away
        || (convert.sat && (convert.relu || convert.satfinite))
    {
        return None;
    }
    let count = if matches!(layout, Layout::Join(_)) { 2 } else { 1 };
    Some((convert, [from_type; 4], count, to_type))
}

fn decode_pack(words: &Words) -> Option<(Convert, [Type; 4], usize, Type)> {
    let (bits, signed) = match words.first()? {
        Type::U16 => (16, false),
        Type::S16 => (16, true),
        Type::U8 => (8, false),
        Type::S8 => (8, true),
        Type::U4 => (4, false),
        Type::S4 => (4, true),
        Type::U2 => (2, false),
        Type::S2 => (2, true),
        _ => return None,
    };
    let third = match words.types[1..] {
        [Type::S32] if bits == 16 => false,
        [Type::S32, Type::B32] if bits < 16 => true,
        _ => return None,
    };
    if !words.has(Modifier::Sat) || !words.only(&[Modifier::Pack, Modifier::Sat]) {
        return None;
    }
    let convert = Convert {
        from: Element::Integer { bits: 32, signed: true },
        to: Element::Integer { bits, signed },
        layout: Layout::Pack(bits),
        rounding: Rounding::Nearest,
        integral: false,
        ftz: false,
        sat: true,
        relu: false,
        satfinite: false,
    };
    let sources = [Type::S32, Type::S32, Type::B32, Type::B32];
    Some((convert, sources, if third { 3 } else { 2 }, Type::U32))
}

impl Convert {
    /// Converts. What kernels do all the time has loops of its own; the rest goes number by number.
    #[inline(always)]
    pub(super) fn apply(&self, src: [&Lanes; 4]) -> Lanes {
        let [a, b, c, _] = src;
        let plain = !self.ftz && !self.sat && !self.relu && !self.satfinite;
        let nearest = self.rounding == Rounding::Nearest;
        let word = |element: Element, wanted: bool| element == Element::Integer { bits: 32, signed: wanted };
        let small = |element: Element, wanted: Small| element == Element::Small(wanted, 0);
        match self.layout {
            Layout::One if plain => match (self.from, self.to) {
                (Element::Integer { bits, signed }, Element::Integer { bits: to, .. }) => {
                    resize(a, bits, signed, to)
                }
                (Element::Single, to) if nearest && small(to, Small::F16) => map1(a, f32_to_f16),
                (Element::Single, to) if nearest && small(to, Small::BF16) => map1(a, f32_to_bf16),
                (from, Element::Single) if small(from, Small::F16) => map1(a, f16_to_f32),
                (from, Element::Single) if small(from, Small::BF16) => map1(a, bf16_to_f32),
                (from, Element::Single) if nearest && word(from, true) => map1(a, |a: i32| a as f32),
                (from, Element::Single) if nearest && word(from, false) => map1(a, |a: u32| a as f32),
                (Element::Single, to) if self.rounding == Rounding::Zero && word(to, true) => {
                    map1(a, |a: f32| a as i32)
                }
                (Element::Single, to) if self.rounding == Rounding::Zero && word(to, false) => {
                    map1(a, |a: f32| a as u32)
                }
                _ => self.one_by_one(a),
            },
            Layout::One => self.one_by_one(a),
            Layout::Join(16) if plain && nearest && small(self.to, Small::BF16) => {
                join(a, b, |value| u32::from(f32_to_bf16(value)))
            }
            Layout::Join(16) if plain && nearest && small(self.to, Small::F16) => {
                join(a, b, |value| u32::from(f32_to_f16(value)))
            }
            Layout::Join(apart) => self.joined(a, b, apart),
            Layout::Pair(from, to) => self.paired(a, from, to),
            Layout::Pack(bits) => {
                let pair = self.joined(a, b, bits);
                match bits {
                    16 => pair,
                    _ => map2(&pair, c, |pair: u32, c: u32| pair | c << (2 * bits)),
                }
            }
        }
    }

    #[inline(never)]
    fn one_by_one(&self, a: &Lanes) -> Lanes {
        map1(a, |lane: u64| self.nan(lane).unwrap_or_else(|| self.write(self.read(lane))))
    }

    #[inline(never)]
    fn joined(&self, a: &Lanes, b: &Lanes, apart: u32) -> Lanes {
        map2(a, b, |high: u64, low: u64| self.write(self.read(high)) << apart | self.write(self.read(low)))
    }

    #[inline(never)]
    fn paired(&self, a: &Lanes, from: u32, to: u32) -> Lanes {
        map1(a, |lane: u64| {
            let low = lane & ((1 << from) - 1);
            self.write(self.read(lane >> from)) << to | self.write(self.read(low))
        })
    }

    /// What becomes of a NaN where that is neither the canonical NaN of the result nor an integer: the hardware passes
    /// it on as it is or made quiet, to and from `f64` with as much of its payload as fits.
    fn nan(&self, lane: u64) -> Option<u64> {
        let (sign, payload) = match self.from {
            Element::Single => (lane >> 31 & 1, (lane << 29) & PAYLOAD),
            Element::Double => (lane >> 63, lane & PAYLOAD),
            Element::Small(format, _) => format.fields(lane as u32),
            Element::Integer { .. } => return None,
        };
        let Number::Real(value) = self.read(lane) else { return None };
        if !value.is_nan() || self.sat {
            return None;
        }
        let quiet = payload | 1 << 51;
        Some(match (self.from, self.to) {
            (Element::Single, Element::Single) if !self.ftz && !self.integral => lane & 0xffff_ffff,
            (Element::Double, Element::Double) if !self.integral => lane,
            (Element::Single, Element::Double) if self.ftz => 0x7fff_ffff_e000_0000,
            (_, Element::Double) => sign << 63 | 0x7ff << 52 | quiet,
            (Element::Double, Element::Single) => sign << 31 | 0xff << 23 | quiet >> 29,
            (Element::Double, Element::Small(format, at)) => format.with_payload(sign, quiet) << at,
            // Cut off like a number, which can make an infinity of it; saturation then subtracts one more.
            (Element::Single, Element::Small(_, at)) if self.rounding == Rounding::Away => {
                let cut = ((lane & 0xffff_ffff) >> at) << at;
                if self.satfinite { cut - (1 << at) } else { cut }
            }
            _ => return None,
        })
    }

    /// The number in the low bits of a lane.
    fn read(&self, lane: u64) -> Number {
        match self.from {
            Element::Integer { bits, signed } => Number::Integer(integer(lane, bits, signed)),
            Element::Single => {
                let bits = lane as u32;
                // The hardware does not flush on the way to `f16`.
                let tiny = bits & 0x7f80_0000 == 0 && !matches!(self.to, Element::Small(..));
                let bits = if self.ftz && tiny { bits & 0x8000_0000 } else { bits };
                Number::Real(f64::from(f32::from_bits(bits)))
            }
            Element::Double => Number::Real(f64::from_bits(lane)),
            Element::Small(format, at) => Number::Real(format.decode((lane >> at) as u32)),
        }
    }

    /// The bits of a number in the type that it becomes.
    fn write(&self, number: Number) -> u64 {
        match self.to {
            Element::Integer { bits, signed } => {
                let (least, most) = range(bits, signed);
                let value = match number {
                    Number::Integer(value) if self.sat => value.clamp(least, most),
                    Number::Integer(value) => value,
                    Number::Real(value) if value.is_nan() => {
                        let zero = self.from != Element::Double && bits != 64;
                        if zero { 0 } else { 1 << (bits - 1) }
                    }
                    Number::Real(value) => (integral(value, self.rounding) as i128).clamp(least, most),
                };
                value as u64 & (u64::MAX >> (64 - bits))
            }
            Element::Single => {
                let value = match number {
                    Number::Integer(value) => f64_to_f32(integer_to_odd(value), self.rounding),
                    Number::Real(value) if self.integral => {
                        f64_to_f32(integral(value, self.rounding), Rounding::Zero)
                    }
                    Number::Real(value) => f64_to_f32(value, self.rounding),
                };
                let tiny = match number {
                    Number::Integer(_) => false,
                    Number::Real(exact) => !self.integral && flushes(exact, self.rounding),
                };
                let value = if self.ftz && tiny { 0f32.copysign(value) } else { value };
                let value = if self.sat { saturate(f64::from(value)) as f32 } else { value };
                u64::from(canonical(value).to_bits())
            }
            Element::Double => {
                let value = match number {
                    Number::Integer(value) => integer_to_f64(value, self.rounding),
                    Number::Real(value) if self.integral => integral(value, self.rounding),
                    Number::Real(value) => value,
                };
                let value = if self.sat { saturate(value) } else { value };
                value.to_bits()
            }
            Element::Small(format, at) => {
                let value = match number {
                    Number::Integer(value) => integer_to_odd(value),
                    Number::Real(value) if self.integral => integral(value, self.rounding),
                    Number::Real(value) => value,
                };
                let value = if self.sat { saturate(value) } else { value };
                let value = if self.relu && value <= 0.0 { 0.0 } else { value };
                u64::from(format.encode(value, self.rounding, self.satfinite)) << at
            }
        }
    }
}

/// The fraction of an `f64`.
const PAYLOAD: u64 = (1 << 52) - 1;

/// Integers without saturation: read in one width, kept in another.
#[inline(always)]
fn resize(a: &Lanes, from: u32, signed: bool, to: u32) -> Lanes {
    let (gap, keep) = (64 - from, u64::MAX >> (64 - to));
    if signed {
        map1(a, |lane: u64| (((lane << gap) as i64) >> gap) as u64 & keep)
    } else {
        map1(a, |lane: u64| ((lane << gap) >> gap) & keep)
    }
}

#[inline(always)]
fn join(a: &Lanes, b: &Lanes, f: impl Fn(f32) -> u32) -> Lanes {
    map2(a, b, |high: f32, low: f32| f(high) << 16 | f(low))
}

fn integer(lane: u64, bits: u32, signed: bool) -> i128 {
    let gap = 64 - bits;
    if signed { i128::from(((lane << gap) as i64) >> gap) } else { i128::from((lane << gap) >> gap) }
}

fn range(bits: u32, signed: bool) -> (i128, i128) {
    if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// An integer of at most 64 bits to `f64`.
fn integer_to_f64(value: i128, rounding: Rounding) -> f64 {
    let near = value as f64;
    let rest = value - near as i128;
    let up = match rounding {
        Rounding::Nearest | Rounding::Away => return near,
        Rounding::Zero => value < 0,
        Rounding::Down => false,
        Rounding::Up => true,
    };
    // One step towards the exact value where the nearest lies on the wrong side.
    match (rest > 0 && up, rest < 0 && !up) {
        (true, _) => near.next_up(),
        (_, true) => near.next_down(),
        _ => near,
    }
}
