//! Floating-point arithmetic in `f32`, `f64`, `f16`, `bf16`, and packed pairs of them.
//!
//! Everything that IEEE 754 defines is exact to the bit, in every rounding mode, as compared with an H200. What IEEE 754
//! leaves open is what that does:
//!
//! * A NaN result of `f32`, `f16` and `bf16` is the canonical one, 0x7fffffff or 0x7fff, also of `abs` and `neg`. `f64`
//!   passes the NaN of a source on, quiet, and makes 0xfff8000000000000 where there is none ([`quiet`]).
//! * With `.ftz`, subnormal sources and results become zeros of their sign. Whether a result is subnormal is decided by what
//!   it is after rounding to full precision ([`flushes`]).
//! * `.sat` turns NaN and -0 into +0, `.relu` turns -0 into +0.
//!
//! The approximations (`ex2`, `lg2`, `sin`, `cos`, `tanh`, `rsqrt`, `.approx`, `.full`) are computed in `f64` and rounded
//! once, so they are closer to the true value than the hardware's, within the error that PTX allows.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "taking numbers apart, and rounding on purpose"
)]

use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float as _, Round};
use tilewright_ptx::{Modifier, Opcode, Type};

use super::Lanes;
use super::decode::Words;
use super::format::{
    CANONICAL, Rounding, bf16_to_f32, canonical, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_f32, flushes,
    odd, two_sum,
};
use super::word::{map1, map2, map3};

/// The NaN that double-precision arithmetic makes of numbers.
const NAN64: u64 = 0xfff8_0000_0000_0000;

/// A double-precision result: where it is NaN, the first NaN among the sources, made quiet.
#[inline(always)]
pub(super) fn quiet<const N: usize>(result: f64, sources: [f64; N]) -> f64 {
    // By the bits, like `canonical`.
    let is_nan = |bits: u64| bits & !(1 << 63) > 0x7ff0_0000_0000_0000;
    let mut nan = NAN64;
    for source in sources.iter().rev() {
        let bits = source.to_bits();
        nan = if is_nan(bits) { bits | 1 << 51 } else { nan };
    }
    let bits = result.to_bits();
    f64::from_bits(if is_nan(bits) { nan } else { bits })
}

/// What to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    DivApprox,
    DivFull,
    Abs,
    Neg,
    Min,
    Max,
    Rcp,
    RcpApprox,
    Sqrt,
    SqrtApprox,
    Rsqrt,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
    Copysign,
}

/// The format that lanes are read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    F32,
    F64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32x2,
}

/// A floating-point instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Float {
    pub(super) operation: Operation,
    pub(super) format: Format,
    pub(super) rounding: Rounding,
    pub(super) ftz: bool,
    pub(super) sat: bool,
    pub(super) relu: bool,
    /// `.NaN`
    pub(super) nan: bool,
    pub(super) xorsign: bool,
    pub(super) abs: bool,
    pub(super) oob: bool,
    /// `min` and `max` with three sources.
    pub(super) three: bool,
}

/// The instruction, with the number of its sources, if it is one of this module.
pub(super) fn decode(opcode: Opcode, words: &Words, operands: usize) -> Option<(Float, usize)> {
    use Modifier as M;
    use Operation as O;
    let &[ty] = &words.types[..] else { return None };
    let format = match ty {
        Type::F32 => Format::F32,
        Type::F64 => Format::F64,
        Type::F16 => Format::F16,
        Type::F16x2 => Format::F16x2,
        Type::Bf16 => Format::Bf16,
        Type::Bf16x2 => Format::Bf16x2,
        Type::F32x2 => Format::F32x2,
        _ => return None,
    };
    let single = format == Format::F32;
    let double = format == Format::F64;
    let half = matches!(format, Format::F16 | Format::F16x2);
    let brain = matches!(format, Format::Bf16 | Format::Bf16x2);
    let real = single || double;
    let approx = words.has(M::Approx);
    let rounding = words.one(Rounding::of).ok()?;
    let three = matches!(opcode, Opcode::Min | Opcode::Max) && operands == 4;
    let rounded = rounding.is_some();
    let sum: &[M] = match format {
        Format::F32 => &[M::Rn, M::Rz, M::Rm, M::Rp, M::Ftz, M::Sat],
        Format::F64 => &[M::Rn, M::Rz, M::Rm, M::Rp],
        Format::F16 | Format::F16x2 => &[M::Rn, M::Ftz, M::Sat],
        Format::Bf16 | Format::Bf16x2 => &[M::Rn],
        Format::F32x2 => &[M::Rn, M::Rz, M::Rm, M::Rp, M::Ftz],
    };
    let ftz: &[M] = if single || half { &[M::Ftz] } else { &[] };
    let function: &[M] = if single || double { &[M::Approx, M::Ftz] } else { &[M::Approx] };
    let exact: &[M] =
        if single { &[M::Rn, M::Rz, M::Rm, M::Rp, M::Ftz] } else { &[M::Rn, M::Rz, M::Rm, M::Rp] };
    let (operation, sources, fits, allowed): (O, usize, bool, &[M]) = match opcode {
        Opcode::Add => (O::Add, 2, true, sum),
        Opcode::Sub => (O::Sub, 2, true, sum),
        Opcode::Mul => (O::Mul, 2, true, sum),
        Opcode::Fma if half => (O::Fma, 3, rounded, &[M::Rn, M::Ftz, M::Sat, M::Relu, M::Oob]),
        Opcode::Fma if brain => (O::Fma, 3, rounded, &[M::Rn, M::Relu, M::Oob]),
        Opcode::Fma => (O::Fma, 3, rounded, sum),
        Opcode::Mad => (O::Fma, 3, real && rounded, sum),
        Opcode::Div if approx => (O::DivApprox, 2, single, &[M::Approx, M::Ftz]),
        Opcode::Div if words.has(M::Full) => (O::DivFull, 2, single, &[M::Full, M::Ftz]),
        Opcode::Div => (O::Div, 2, real && rounded, exact),
        Opcode::Abs => (O::Abs, 1, format != Format::F32x2, ftz),
        Opcode::Neg => (O::Neg, 1, format != Format::F32x2, ftz),
        Opcode::Min | Opcode::Max => {
            let operation = if opcode == Opcode::Min { O::Min } else { O::Max };
            let allowed: &[M] = match (double, brain) {
                (true, _) => &[],
                (_, true) => &[M::Nan, M::Xorsign, M::AbsModifier],
                _ => &[M::Ftz, M::Nan, M::Xorsign, M::AbsModifier],
            };
            let fits = match three {
                true => single && !words.has(M::Xorsign),
                false => words.has(M::Xorsign) == words.has(M::AbsModifier) && format != Format::F32x2,
            };
            (operation, if three { 3 } else { 2 }, fits, allowed)
        }
        Opcode::Rcp if approx => {
            (O::RcpApprox, 1, single || (double && words.has(M::Ftz)), &[M::Approx, M::Ftz])
        }
        Opcode::Rcp => (O::Rcp, 1, real && rounded, exact),
        Opcode::Sqrt if approx => (O::SqrtApprox, 1, single, &[M::Approx, M::Ftz]),
        Opcode::Sqrt => (O::Sqrt, 1, real && rounded, exact),
        Opcode::Rsqrt => (O::Rsqrt, 1, real && approx, function),
        Opcode::Sin => (O::Sin, 1, single && approx, function),
        Opcode::Cos => (O::Cos, 1, single && approx, function),
        Opcode::Lg2 => (O::Lg2, 1, single && approx, function),
        Opcode::Ex2 if brain => (O::Ex2, 1, approx && words.has(M::Ftz), &[M::Approx, M::Ftz]),
        Opcode::Ex2 => (O::Ex2, 1, approx && (single || half), function),
        Opcode::Tanh => (O::Tanh, 1, approx && (single || half || brain), &[M::Approx]),
        Opcode::Copysign => (O::Copysign, 2, real, &[]),
        _ => return None,
    };
    if !fits || !words.only(allowed) {
        return None;
    }
    let float = Float {
        operation,
        format,
        rounding: rounding.unwrap_or(Rounding::Nearest),
        ftz: words.has(M::Ftz),
        sat: words.has(M::Sat),
        relu: words.has(M::Relu),
        nan: words.has(M::Nan),
        xorsign: words.has(M::Xorsign),
        abs: words.has(M::AbsModifier),
        oob: words.has(M::Oob),
        three,
    };
    Some((float, sources))
}

impl Float {
    /// Runs the operation. `FMA` says that `mul_add` is one instruction here.
    #[inline(always)]
    pub(super) fn apply<const FMA: bool>(&self, src: [&Lanes; 4]) -> Lanes {
        match self.format {
            Format::F32 => self.single::<FMA>(src),
            Format::F64 => self.double(src),
            Format::F16 => self.halves::<Binary16, false>(src),
            Format::F16x2 => self.halves::<Binary16, true>(src),
            Format::Bf16 => self.halves::<Brain16, false>(src),
            Format::Bf16x2 => self.halves::<Brain16, true>(src),
            Format::F32x2 => {
                let upper = src.map(|lanes| map1(lanes, |lane: u64| lane >> 32));
                let low = self.single::<FMA>(src);
                let high = self.single::<FMA>([&upper[0], &upper[1], &upper[2], &upper[3]]);
                map2(&low, &high, |low: u64, high: u64| low | high << 32)
            }
        }
    }

    #[inline(always)]
    fn single<const FMA: bool>(&self, src: [&Lanes; 4]) -> Lanes {
        match (self.ftz, self.sat) {
            (false, false) => self.single_as::<FMA, false, false>(src),
            (true, false) => self.single_as::<FMA, true, false>(src),
            (false, true) => self.single_as::<FMA, false, true>(src),
            (true, true) => self.single_as::<FMA, true, true>(src),
        }
    }

    #[inline(always)]
    fn single_as<const FMA: bool, const FTZ: bool, const SAT: bool>(&self, src: [&Lanes; 4]) -> Lanes {
        use Operation as O;
        let [a, b, c, _] = src;
        let of = flush::<FTZ>;
        let end = finish::<FTZ, SAT>;
        if self.rounding != Rounding::Nearest {
            return self.directed::<FTZ, SAT>(src);
        }
        let inexact = matches!(self.operation, O::Mul | O::Fma | O::Div | O::Rcp);
        let out = match self.operation {
            O::Add => map2(a, b, |a, b| end(of(a) + of(b))),
            O::Sub => map2(a, b, |a, b| end(of(a) - of(b))),
            O::Mul => map2(a, b, |a, b| end(of(a) * of(b))),
            O::Fma => map3([a, b, c], |a, b, c| end(fused::<FMA>(of(a), of(b), of(c)))),
            O::Div => map2(a, b, |a, b| end(of(a) / of(b))),
            O::Rcp => map1(a, |a| end(1.0 / of(a))),
            O::Sqrt => map1(a, |a| end(of(a).sqrt())),
            O::Abs => map1(a, |a: f32| end(of(a).abs())),
            O::Neg => map1(a, |a: f32| end(-of(a))),
            O::Copysign => map2(a, b, |sign: f32, value: f32| value.copysign(sign)),
            O::Min | O::Max if self.three => map3([a, b, c], |a: f32, b: f32, c: f32| {
                let first = self.extreme(of(a), of(b), CANONICAL);
                self.extreme(first, of(c), CANONICAL)
            }),
            O::Min | O::Max => map2(a, b, |a: f32, b: f32| self.extreme(of(a), of(b), CANONICAL)),
            O::DivApprox => map2(a, b, |a, b| end(divide_approximately(of(a), of(b)))),
            O::DivFull => map2(a, b, |a, b| end((f64::from(of(a)) / f64::from(of(b))) as f32)),
            O::RcpApprox => map1(a, |a| end((1.0 / f64::from(of(a))) as f32)),
            O::SqrtApprox => map1(a, |a| end(f64::from(of(a)).sqrt() as f32)),
            O::Rsqrt => map1(a, |a| end((1.0 / f64::from(of(a)).sqrt()) as f32)),
            O::Sin => map1(a, |a| end(f64::from(of(a)).sin() as f32)),
            O::Cos => map1(a, |a| end(f64::from(of(a)).cos() as f32)),
            O::Lg2 => map1(a, |a| end(f64::from(of(a)).log2() as f32)),
            O::Ex2 => {
                let powers = exp2(&map1(a, of));
                map1(&powers, end)
            }
            O::Tanh => map1(a, |a| end(f64::from(of(a)).tanh() as f32)),
        };
        // The smallest normal number may have been rounded up from one that is flushed; that takes a closer look.
        let smallest = |found: bool, lane: &u64| found | (lane & 0x7fff_ffff == 0x80_0000);
        if FTZ && inexact && out.iter().fold(false, smallest) { self.directed::<FTZ, SAT>(src) } else { out }
    }

    /// Single precision in the modes that the host does not have: computed in `f64`, rounded to odd, then as asked.
    ///
    /// Quotients and square roots need no rounding to odd: one that is not exact differs from every `f32`, and from every
    /// point half way between two, by more than the rounding of `f64` can bridge.
    fn directed<const FTZ: bool, const SAT: bool>(&self, [a, b, c, _]: [&Lanes; 4]) -> Lanes {
        use Operation as O;
        let rounding = self.rounding;
        let of = |value: f32| f64::from(flush::<FTZ>(value));
        let end = |value: f64| {
            let value = if FTZ && flushes(value, rounding) { 0f64.copysign(value) } else { value };
            finish::<FTZ, SAT>(f64_to_f32(value, rounding))
        };
        let sum = |a: f64, b: f64| match two_sum(a, b) {
            // Opposite numbers: the zero is negative when rounding down.
            (sum, _) if sum == 0.0 && (a != 0.0 || a.is_sign_negative() != b.is_sign_negative()) => {
                if rounding == Rounding::Down {
                    -0.0
                } else {
                    0.0
                }
            }
            (sum, rest) => odd(sum, rest),
        };
        match self.operation {
            O::Add => map2(a, b, |a, b| end(sum(of(a), of(b)))),
            O::Sub => map2(a, b, |a, b| end(sum(of(a), -of(b)))),
            O::Mul => map2(a, b, |a, b| end(of(a) * of(b))),
            O::Fma => map3([a, b, c], |a, b, c| end(sum(of(a) * of(b), of(c)))),
            O::Div => map2(a, b, |a, b| end(of(a) / of(b))),
            O::Rcp => map1(a, |a| end(1.0 / of(a))),
            // Only these take a rounding mode; the last is the square root.
            _ => map1(a, |a| end(of(a).sqrt())),
        }
    }

    #[inline(always)]
    fn double(&self, [a, b, c, _]: [&Lanes; 4]) -> Lanes {
        use Operation as O;
        if self.rounding != Rounding::Nearest {
            return self.double_directed([a, b, c]);
        }
        match self.operation {
            O::Add => map2(a, b, |a: f64, b: f64| quiet(a + b, [b, a])),
            O::Sub => map2(a, b, |a: f64, b: f64| quiet(a - b, [b, a])),
            O::Mul => map2(a, b, |a: f64, b: f64| quiet(a * b, [b, a])),
            O::Fma => map3([a, b, c], |a: f64, b: f64, c: f64| quiet(a.mul_add(b, c), [b, c, a])),
            O::Div => map2(a, b, |a: f64, b: f64| quiet(a / b, [a, b])),
            O::Rcp => map1(a, |a: f64| quiet(1.0 / a, [a])),
            O::Sqrt => map1(a, |a: f64| quiet(a.sqrt(), [a])),
            O::Abs => map1(a, |a: f64| quiet(a.abs(), [a])),
            O::Neg => map1(a, |a: f64| quiet(-a, [a])),
            O::Copysign => map2(a, b, |sign: f64, value: f64| value.copysign(sign)),
            O::Min | O::Max => map2(a, b, |a: f64, b: f64| self.extreme(a, b, quiet(f64::NAN, [b, a]))),
            O::RcpApprox => map1(a, |a: f64| upper_word(a, |a| 1.0 / a)),
            O::Rsqrt if self.ftz => map1(a, |a: f64| upper_word(a, |a| 1.0 / a.sqrt())),
            O::Rsqrt => map1(a, |a: f64| quiet(1.0 / a.sqrt(), [a])),
            // Decoding gives the others to single precision only.
            _ => *a,
        }
    }

    fn double_directed(&self, [a, b, c]: [&Lanes; 3]) -> Lanes {
        use Operation as O;
        let rounding = self.rounding;
        let mode = match rounding {
            Rounding::Nearest | Rounding::Away => Round::NearestTiesToEven,
            Rounding::Zero => Round::TowardZero,
            Rounding::Down => Round::TowardNegative,
            Rounding::Up => Round::TowardPositive,
        };
        let of = |value: f64| Double::from_bits(u128::from(value.to_bits()));
        let to = |value: Double| f64::from_bits(value.to_bits() as u64);
        let one = of(1.0);
        match self.operation {
            O::Add => map2(a, b, |a, b| quiet(to(of(a).add_r(of(b), mode).value), [b, a])),
            O::Sub => map2(a, b, |a, b| quiet(to(of(a).sub_r(of(b), mode).value), [b, a])),
            O::Mul => map2(a, b, |a, b| quiet(to(of(a).mul_r(of(b), mode).value), [b, a])),
            O::Fma => {
                map3([a, b, c], |a, b, c| quiet(to(of(a).mul_add_r(of(b), of(c), mode).value), [b, c, a]))
            }
            O::Div => map2(a, b, |a, b| quiet(to(of(a).div_r(of(b), mode).value), [a, b])),
            O::Rcp => map1(a, |a| quiet(to(one.div_r(of(a), mode).value), [a])),
            _ => map1(a, |a: f64| quiet(square_root(a, rounding), [a])),
        }
    }

    /// The smaller or the larger, after PTX 9.7.3.11; -0 is below +0.
    #[inline(always)]
    fn extreme<T: Real>(&self, a: T, b: T, nan: T) -> T {
        self.extreme_signed(a, b, nan, a.negative() != b.negative())
    }

    /// The same with the exclusive or of the signs, which a NaN may have lost on its way here.
    #[inline(always)]
    fn extreme_signed<T: Real>(&self, a: T, b: T, nan: T, signs: bool) -> T {
        let flip = self.xorsign && signs;
        let (a, b) = if self.abs { (a.magnitude(), b.magnitude()) } else { (a, b) };
        let first = if self.operation == Operation::Min { a.below(b) } else { b.below(a) };
        let chosen = if first { a } else { b };
        let chosen = if a.not_a_number() { b } else { chosen };
        let chosen = if b.not_a_number() { a } else { chosen };
        let chosen = if flip { chosen.opposite() } else { chosen };
        let none = a.not_a_number() && b.not_a_number();
        let any = a.not_a_number() || b.not_a_number();
        if none || (self.nan && any) { nan } else { chosen }
    }

    #[inline(always)]
    fn halves<H: Half, const PAIR: bool>(&self, [a, b, c, _]: [&Lanes; 4]) -> Lanes {
        use Operation as O;
        if self.ftz || self.sat || self.relu || self.oob {
            return self.halves_modified::<H, PAIR>([a, b, c]);
        }
        match self.operation {
            O::Add => pair2::<PAIR>(a, b, |a, b| H::down(H::up(a) + H::up(b))),
            O::Sub => pair2::<PAIR>(a, b, |a, b| H::down(H::up(a) - H::up(b))),
            O::Mul => pair2::<PAIR>(a, b, |a, b| H::down(H::up(a) * H::up(b))),
            O::Fma => pair3::<PAIR>([a, b, c], |a, b, c| H::down(H::fused(a, b, c))),
            _ => self.halves_modified::<H, PAIR>([a, b, c]),
        }
    }

    #[inline(always)]
    fn halves_modified<H: Half, const PAIR: bool>(&self, [a, b, c]: [&Lanes; 3]) -> Lanes {
        use Operation as O;
        let of = |bits: u16| if self.ftz { H::flush(bits) } else { bits };
        let end = |bits: u16| {
            let bits = of(bits);
            let negative = bits & 0x8000 != 0;
            let nan = bits & 0x7fff > H::INFINITY;
            let bits = if self.sat && (negative || nan) { 0 } else { bits };
            let bits = if self.sat && bits > H::ONE { H::ONE } else { bits };
            if self.relu && negative && !nan { 0 } else { bits }
        };
        let canonical = |bits: u16| if bits & 0x7fff > H::INFINITY { 0x7fff } else { bits };
        // As `flushes` has it for `f32`.
        let round = |value: f32| {
            let tiny = self.ftz && value.abs() < H::FLUSHED;
            end(H::down(if tiny { 0f32.copysign(value) } else { value }))
        };
        let approximate =
            |f: fn(f64) -> f64| pair1::<PAIR>(a, move |a| end(H::down(f(f64::from(H::up(of(a)))) as f32)));
        match self.operation {
            O::Add => pair2::<PAIR>(a, b, |a, b| end(H::down(H::up(of(a)) + H::up(of(b))))),
            O::Sub => pair2::<PAIR>(a, b, |a, b| end(H::down(H::up(of(a)) - H::up(of(b))))),
            O::Mul => pair2::<PAIR>(a, b, |a, b| round(H::up(of(a)) * H::up(of(b)))),
            O::Fma => pair3::<PAIR>([a, b, c], |a, b, c| {
                let outside = |bits: u16| self.oob && bits & 0x7fff == OUTSIDE;
                if outside(a) || outside(b) { 0 } else { round(H::fused(of(a), of(b), of(c))) }
            }),
            O::Abs => pair1::<PAIR>(a, |a| canonical(of(a) & 0x7fff)),
            O::Neg => pair1::<PAIR>(a, |a| canonical(of(a) ^ 0x8000)),
            O::Min | O::Max => pair2::<PAIR>(a, b, |a, b| {
                let signs = (a ^ b) & 0x8000 != 0;
                H::down(self.extreme_signed(H::up(of(a)), H::up(of(b)), CANONICAL, signs))
            }),
            O::Ex2 => approximate(f64::exp2),
            O::Tanh => approximate(f64::tanh),
            // Decoding gives the others to wider formats only.
            _ => *a,
        }
    }
}

/// With `.ftz`, a subnormal number becomes a zero of its sign.
#[inline(always)]
fn flush<const FTZ: bool>(value: f32) -> f32 {
    let bits = value.to_bits();
    let tiny = bits & 0x7f80_0000 == 0;
    f32::from_bits(if FTZ && tiny { bits & 0x8000_0000 } else { bits })
}

/// What happens to every result.
#[inline(always)]
fn finish<const FTZ: bool, const SAT: bool>(value: f32) -> f32 {
    let value = flush::<FTZ>(value);
    if SAT {
        let low = if value > 0.0 { value } else { 0.0 };
        return if low < 1.0 { low } else { 1.0 };
    }
    canonical(value)
}

/// The saturation of `.sat`.
#[inline(always)]
pub(super) fn saturate(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// `a * b + c`, rounded once.
///
/// Where `mul_add` is a call of a library function, the product is taken in `f64`, where it is exact, the sum is rounded
/// to odd, and that is rounded to nearest.
#[inline(always)]
pub(super) fn fused<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA {
        return a.mul_add(b, c);
    }
    let (sum, rest) = two_sum(f64::from(a) * f64::from(b), f64::from(c));
    odd(sum, rest) as f32
}

/// `div.approx.f32` works as a times the reciprocal of b, whose reciprocal is a subnormal number that is lost.
#[inline(always)]
fn divide_approximately(a: f32, b: f32) -> f32 {
    let lost = b.abs() > f32::from_bits(0x7e80_0000) && b.abs() < f32::INFINITY;
    let zero = 0f32.copysign(b);
    if lost { a * zero } else { (f64::from(a) / f64::from(b)) as f32 }
}

/// 2 to the power of `f32` lanes: the fraction by a polynomial of degree 10, which is exact to 2^-44, the integer in the
/// exponent. One short loop a step: the compiler does not take lanes together in a loop as long as all of them.
#[inline(always)]
fn exp2(x: &Lanes) -> Lanes {
    // ln(2)^n / n!
    const TERMS: [f64; 11] = [
        1.0,
        std::f64::consts::LN_2,
        0.240_226_506_959_100_71,
        0.055_504_108_664_821_58,
        0.009_618_129_107_628_477,
        0.001_333_355_814_642_844_4,
        0.000_154_035_303_933_816_1,
        0.000_015_252_733_804_059_841,
        0.000_001_321_548_679_014_431,
        0.000_000_101_780_860_092_396_99,
        0.000_000_007_054_911_620_801_121,
    ];
    // Adding this moves the integer part into the low bits, rounded to nearest.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let bounded = map1(x, |x: f32| {
        let x = if x < -200.0 { -200.0 } else { x };
        f64::from(if x > 200.0 { 200.0 } else { x })
    });
    let shifted = map1(&bounded, |x: f64| x + SHIFT);
    let fraction = map2(&bounded, &shifted, |x: f64, shifted: f64| x - (shifted - SHIFT));
    let mut sum = map1(&fraction, |x: f64| x * TERMS[10] + TERMS[9]);
    for term in TERMS[..9].iter().rev() {
        sum = map2(&sum, &fraction, |sum: f64, x: f64| sum * x + term);
    }
    let scale = map1(&shifted, |bits: u64| bits.wrapping_add(1023) << 52);
    map3([&sum, &scale, x], |sum: f64, scale: f64, x: f32| {
        let result = (sum * scale) as f32;
        if x.is_nan() { x } else { result }
    })
}

/// The approximations that look at and give the upper word of a double only.
#[inline(always)]
fn upper_word(a: f64, f: impl Fn(f64) -> f64) -> f64 {
    let upper = |value: f64| {
        let bits = value.to_bits() & 0xffff_ffff_0000_0000;
        let tiny = bits & 0x7ff0_0000_0000_0000 == 0;
        f64::from_bits(if tiny { bits & 0x8000_0000_0000_0000 } else { bits })
    };
    let result = f(upper(a));
    if result.is_nan() { f64::from_bits(0x7fff_ffff_0000_0000) } else { upper(result) }
}

/// The square root in the modes that the host does not have.
fn square_root(a: f64, rounding: Rounding) -> f64 {
    let near = a.sqrt();
    if near == 0.0 || !near.is_finite() {
        return near;
    }
    // Scaled so that the square of the root is a normal number to the last bit.
    let (a, root) = if a < 1e-200 { (a * SCALE * SCALE, near * SCALE) } else { (a, near) };
    let rest = root.mul_add(-root, a);
    let step = match rounding {
        Rounding::Zero | Rounding::Down if rest < 0.0 => -1,
        Rounding::Up if rest > 0.0 => 1,
        _ => 0,
    };
    f64::from_bits(near.to_bits().wrapping_add_signed(step))
}

const SCALE: f64 = f64::from_bits((1023 + 200) << 52);

/// What `min` and `max` need to know of a number.
trait Real: Copy {
    fn negative(self) -> bool;
    fn magnitude(self) -> Self;
    fn opposite(self) -> Self;
    fn not_a_number(self) -> bool;
    /// Whether it is smaller, with -0 below +0.
    fn below(self, other: Self) -> bool;
}

macro_rules! reals {
    ($($ty:ty)*) => {$(
        impl Real for $ty {
            #[inline(always)]
            fn negative(self) -> bool {
                self.is_sign_negative()
            }
            #[inline(always)]
            fn magnitude(self) -> $ty {
                self.abs()
            }
            #[inline(always)]
            fn opposite(self) -> $ty {
                -self
            }
            #[inline(always)]
            fn not_a_number(self) -> bool {
                self.is_nan()
            }
            #[inline(always)]
            fn below(self, other: $ty) -> bool {
                self < other || (self == other && self.is_sign_negative())
            }
        }
    )*};
}

reals! { f32 f64 }

/// The NaN, of either sign, that marks what lies outside of a tensor, in both 16-bit formats.
const OUTSIDE: u16 = 0x7ff7;

/// A 16-bit format, computed in `f32`: rounding twice gives the same as rounding once for sums and products, since `f32`
/// has more than twice the bits.
pub(super) trait Half {
    const INFINITY: u16;
    const ONE: u16;
    /// Products below this are flushed to zero.
    const FLUSHED: f32;
    fn up(bits: u16) -> f32;
    fn down(value: f32) -> u16;
    /// `a * b + c`, rounded to odd.
    fn fused(a: u16, b: u16, c: u16) -> f32;
    /// A subnormal number as a zero of its sign.
    #[inline(always)]
    fn flush(bits: u16) -> u16 {
        // The smallest normal number is the last bit of the exponent field.
        if bits & Self::INFINITY == 0 { bits & 0x8000 } else { bits }
    }
}

/// `f16`
pub(super) struct Binary16;

impl Half for Binary16 {
    const INFINITY: u16 = 0x7c00;
    const ONE: u16 = 0x3c00;
    // 2^-14 less half a unit of the last place below it.
    const FLUSHED: f32 = f32::from_bits(0x387f_f000);
    #[inline(always)]
    fn up(bits: u16) -> f32 {
        f16_to_f32(bits)
    }
    #[inline(always)]
    fn down(value: f32) -> u16 {
        f32_to_f16(value)
    }
    #[inline(always)]
    fn fused(a: u16, b: u16, c: u16) -> f32 {
        // The product has 22 bits and is exact; the sum is rounded to odd.
        let (product, c) = (f16_to_f32(a) * f16_to_f32(b), f16_to_f32(c));
        let sum = product + c;
        let part = sum - product;
        let rest = (product - (sum - part)) + (c - part);
        let bits = sum.to_bits();
        let moved = if (rest > 0.0) == (sum > 0.0) { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
        // A rest that is NaN, as of infinities, is none.
        let inexact = rest.abs() > 0.0;
        f32::from_bits(if inexact && bits & 1 == 0 { moved } else { bits })
    }
}

/// `bf16`
pub(super) struct Brain16;

impl Half for Brain16 {
    const INFINITY: u16 = 0x7f80;
    const ONE: u16 = 0x3f80;
    // Only `ex2` flushes, whose results are never near.
    const FLUSHED: f32 = f32::MIN_POSITIVE;
    #[inline(always)]
    fn up(bits: u16) -> f32 {
        bf16_to_f32(bits)
    }
    #[inline(always)]
    fn down(value: f32) -> u16 {
        f32_to_bf16(value)
    }
    #[inline(always)]
    fn fused(a: u16, b: u16, c: u16) -> f32 {
        // The exponents need `f64`: a product beyond `f32` can come back with the sum.
        let (a, b, c) = (bf16_to_f32(a), bf16_to_f32(b), bf16_to_f32(c));
        let (sum, rest) = two_sum(f64::from(a) * f64::from(b), f64::from(c));
        let sum = odd(sum, rest);
        let near = sum as f32;
        let (back, bits) = (f64::from(near), near.to_bits());
        let outwards = (sum > back) == (sum > 0.0);
        let moved = if outwards { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
        // What overflows `f32` has overflowed `bf16` as well.
        let odd = if back != sum && bits & 1 == 0 && near.is_finite() { moved } else { bits };
        f32::from_bits(odd)
    }
}

/// The low half, and with `PAIR` the high half as well: one loop each, which vectorises better than both in one.
#[inline(always)]
fn pair1<const PAIR: bool>(a: &Lanes, f: impl Fn(u16) -> u16) -> Lanes {
    pair3::<PAIR>([a; 3], |a, _, _| f(a))
}

#[inline(always)]
fn pair2<const PAIR: bool>(a: &Lanes, b: &Lanes, f: impl Fn(u16, u16) -> u16) -> Lanes {
    pair3::<PAIR>([a, b, b], |a, b, _| f(a, b))
}

#[inline(always)]
fn pair3<const PAIR: bool>([a, b, c]: [&Lanes; 3], f: impl Fn(u16, u16, u16) -> u16) -> Lanes {
    let mut out = [0; 32];
    for i in 0..32 {
        out[i] = u64::from(f(a[i] as u16, b[i] as u16, c[i] as u16));
    }
    if PAIR {
        for i in 0..32 {
            let high = |lanes: &Lanes| (lanes[i] >> 16) as u16;
            out[i] |= u64::from(f(high(a), high(b), high(c))) << 16;
        }
    }
    out
}
