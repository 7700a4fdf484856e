//! Integer arithmetic, logic, shifts and byte permutation.
//!
//! What PTX leaves undefined is what sm_90 does. Division by zero gives all ones, as quotient and as remainder. The
//! smallest signed number divided by -1 is itself, with remainder 0.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "PTX integer arithmetic wraps, and reads the same bits as signed or unsigned"
)]

use std::ops::{BitAnd, BitOr, BitXor, Not};

use tilewright_ptx::{Modifier, Opcode, Type};

use super::Lanes;
use super::decode::Words;
use super::word::{Word, map1, map2, map3, map4};

/// An operation on integers; the type it works on is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    AddSat,
    Sub,
    SubSat,
    MulLo,
    MulHi,
    MulWide,
    MadLo,
    MadHi,
    MadHiSat,
    MadWide,
    Mul24Lo,
    Mul24Hi,
    Mad24Lo,
    Mad24Hi,
    Mad24HiSat,
    Sad,
    Div,
    Rem,
    Abs,
    Neg,
    Min,
    Max,
    MinRelu,
    MaxRelu,
    Popc,
    Clz,
    Bfind,
    BfindShift,
    Fns,
    Brev,
    Bfe,
    Bfi,
    SzextClamp,
    SzextWrap,
    BmskClamp,
    BmskWrap,
    /// Whether the second source is signed; the type tells it of the first.
    Dp4a(bool),
    /// Whether the second source is signed, and whether its upper half counts.
    Dp2a(bool, bool),
    And,
    Or,
    Xor,
    Not,
    Cnot,
    Lop3,
    ShfLeftClamp,
    ShfLeftWrap,
    ShfRightClamp,
    ShfRightWrap,
    Shl,
    Shr,
    Prmt(Permute),
}

/// The modes of `prmt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permute {
    Any,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

/// The type that the lanes are read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    U16x2,
    S16x2,
}

impl Kind {
    fn of(ty: Type) -> Option<Kind> {
        Some(match ty {
            Type::U16 | Type::B16 => Kind::U16,
            Type::S16 => Kind::S16,
            Type::U32 | Type::B32 => Kind::U32,
            Type::S32 => Kind::S32,
            Type::U64 | Type::B64 => Kind::U64,
            Type::S64 => Kind::S64,
            Type::U16x2 => Kind::U16x2,
            Type::S16x2 => Kind::S16x2,
            _ => return None,
        })
    }
}

/// An integer instruction: what it does, on what, and the types of its operands.
pub(super) struct Decoded {
    pub(super) operation: Operation,
    pub(super) kind: Kind,
    pub(super) sources: [Type; 4],
    pub(super) count: usize,
    pub(super) destination: Type,
}

fn wide(ty: Type) -> Option<Type> {
    Some(match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}

/// The instruction, if it is one of this module.
#[allow(clippy::too_many_lines, reason = "one table")]
pub(super) fn decode(opcode: Opcode, words: &Words) -> Option<Decoded> {
    use Operation as O;
    let ty = words.first()?;
    let kind = Kind::of(ty)?;
    let (b16, b32, b64) = (ty == Type::B16, ty == Type::B32, ty == Type::B64);
    let bits = b16 || b32 || b64;
    let narrow = matches!(ty, Type::U32 | Type::S32);
    let large = narrow || matches!(ty, Type::U64 | Type::S64);
    let plain = large || matches!(ty, Type::U16 | Type::S16);
    let pair = matches!(kind, Kind::U16x2 | Kind::S16x2);
    let signed = matches!(ty, Type::S16 | Type::S32 | Type::S64);
    let sat = words.has(Modifier::Sat);
    let hi = words.has(Modifier::Hi);
    let same = |operation, count| Some((operation, [ty; 4], count, ty));
    // Which types an operation has, which words it may carry besides, and what it is.
    let (fits, allowed, found): (bool, &[Modifier], _) = match opcode {
        Opcode::Add if sat => (ty == Type::S32, &[Modifier::Sat], same(O::AddSat, 2)),
        Opcode::Add => (plain || pair, &[], same(O::Add, 2)),
        Opcode::Sub if sat => (ty == Type::S32, &[Modifier::Sat], same(O::SubSat, 2)),
        Opcode::Sub => (plain, &[], same(O::Sub, 2)),
        Opcode::Mul if words.has(Modifier::Wide) => {
            (plain, &[Modifier::Wide], wide(ty).map(|double| (O::MulWide, [ty; 4], 2, double)))
        }
        Opcode::Mul if hi => (plain, &[Modifier::Hi], same(O::MulHi, 2)),
        Opcode::Mul => (plain && words.has(Modifier::Lo), &[Modifier::Lo], same(O::MulLo, 2)),
        Opcode::Mad if words.has(Modifier::Wide) => (
            plain,
            &[Modifier::Wide],
            wide(ty).map(|double| (O::MadWide, [ty, ty, double, double], 3, double)),
        ),
        Opcode::Mad if hi && sat => (ty == Type::S32, &[Modifier::Hi, Modifier::Sat], same(O::MadHiSat, 3)),
        Opcode::Mad if hi => (plain, &[Modifier::Hi], same(O::MadHi, 3)),
        Opcode::Mad => (plain && words.has(Modifier::Lo), &[Modifier::Lo], same(O::MadLo, 3)),
        Opcode::Mul24 if hi => (narrow, &[Modifier::Hi], same(O::Mul24Hi, 2)),
        Opcode::Mul24 => (narrow && words.has(Modifier::Lo), &[Modifier::Lo], same(O::Mul24Lo, 2)),
        Opcode::Mad24 if hi && sat => {
            (ty == Type::S32, &[Modifier::Hi, Modifier::Sat], same(O::Mad24HiSat, 3))
        }
        Opcode::Mad24 if hi => (narrow, &[Modifier::Hi], same(O::Mad24Hi, 3)),
        Opcode::Mad24 => (narrow && words.has(Modifier::Lo), &[Modifier::Lo], same(O::Mad24Lo, 3)),
        Opcode::Sad => (plain, &[], same(O::Sad, 3)),
        Opcode::Div => (plain, &[], same(O::Div, 2)),
        Opcode::Rem => (plain, &[], same(O::Rem, 2)),
        Opcode::Abs => (signed, &[], same(O::Abs, 1)),
        Opcode::Neg => (signed, &[], same(O::Neg, 1)),
        Opcode::Min | Opcode::Max => {
            let relu = words.has(Modifier::Relu);
            let operation = match (opcode == Opcode::Min, relu) {
                (true, false) => O::Min,
                (true, true) => O::MinRelu,
                (false, false) => O::Max,
                (false, true) => O::MaxRelu,
            };
            let fits = if relu { matches!(ty, Type::S32 | Type::S16x2) } else { plain || pair };
            (fits, &[Modifier::Relu], same(operation, 2))
        }
        Opcode::Popc => (b32 || b64, &[], Some((O::Popc, [ty; 4], 1, Type::U32))),
        Opcode::Clz => (b32 || b64, &[], Some((O::Clz, [ty; 4], 1, Type::U32))),
        Opcode::Bfind => {
            let operation = if words.has(Modifier::Shiftamt) { O::BfindShift } else { O::Bfind };
            (large, &[Modifier::Shiftamt], Some((operation, [ty; 4], 1, Type::U32)))
        }
        Opcode::Fns => (b32, &[], Some((O::Fns, [ty, ty, Type::S32, ty], 3, ty))),
        Opcode::Brev => (b32 || b64, &[], same(O::Brev, 1)),
        Opcode::Bfe => (large, &[], Some((O::Bfe, [ty, Type::U32, Type::U32, ty], 3, ty))),
        Opcode::Bfi => (b32 || b64, &[], Some((O::Bfi, [ty, ty, Type::U32, Type::U32], 4, ty))),
        Opcode::Szext => {
            let (word, operation) = clamp_or_wrap(words, O::SzextClamp, O::SzextWrap)?;
            (narrow, word, Some((operation, [ty, Type::U32, ty, ty], 2, ty)))
        }
        Opcode::Bmsk => {
            let (word, operation) = clamp_or_wrap(words, O::BmskClamp, O::BmskWrap)?;
            (b32, word, Some((operation, [Type::U32; 4], 2, ty)))
        }
        Opcode::Dp4a | Opcode::Dp2a => {
            let second = words.types.get(1).copied().filter(|ty| matches!(ty, Type::U32 | Type::S32))?;
            let signed = second == Type::S32;
            // The sum is signed as soon as one of the sources is, which does not change its bits.
            let sum = if signed || ty == Type::S32 { Type::S32 } else { Type::U32 };
            let sources = [ty, second, sum, sum];
            if opcode == Opcode::Dp4a {
                (narrow, &[], Some((O::Dp4a(signed), sources, 3, sum)))
            } else {
                let mode = if hi { &[Modifier::Hi] } else { &[Modifier::Lo] };
                (narrow && words.has(mode[0]), mode, Some((O::Dp2a(signed, hi), sources, 3, sum)))
            }
        }
        Opcode::And => (bits, &[], same(O::And, 2)),
        Opcode::Or => (bits, &[], same(O::Or, 2)),
        Opcode::Xor => (bits, &[], same(O::Xor, 2)),
        Opcode::Not => (bits, &[], same(O::Not, 1)),
        Opcode::Cnot => (bits, &[], same(O::Cnot, 1)),
        Opcode::Lop3 => (b32, &[Modifier::AndOp, Modifier::OrOp], same(O::Lop3, 4)),
        Opcode::Shf => {
            let left = words.has(Modifier::Left);
            let (clamp, wrap) = match left {
                true => (O::ShfLeftClamp, O::ShfLeftWrap),
                false => (O::ShfRightClamp, O::ShfRightWrap),
            };
            let (_, operation) = clamp_or_wrap(words, clamp, wrap)?;
            let allowed = &[Modifier::Left, Modifier::Right, Modifier::Clamp, Modifier::Wrap];
            let fits = b32 && left != words.has(Modifier::Right);
            (fits, allowed, Some((operation, [ty, ty, Type::U32, ty], 3, ty)))
        }
        Opcode::Shl => (bits, &[], Some((O::Shl, [ty, Type::U32, ty, ty], 2, ty))),
        Opcode::Shr => (bits || plain, &[], Some((O::Shr, [ty, Type::U32, ty, ty], 2, ty))),
        Opcode::Prmt => {
            let modes = [
                (Modifier::F4e, Permute::F4e),
                (Modifier::B4e, Permute::B4e),
                (Modifier::Rc8, Permute::Rc8),
                (Modifier::Ecl, Permute::Ecl),
                (Modifier::Ecr, Permute::Ecr),
                (Modifier::Rc16, Permute::Rc16),
            ];
            let mode =
                modes.iter().find(|(word, _)| words.has(*word)).map_or(Permute::Any, |(_, mode)| *mode);
            let allowed =
                &[Modifier::F4e, Modifier::B4e, Modifier::Rc8, Modifier::Ecl, Modifier::Ecr, Modifier::Rc16];
            (b32 && words.rest.len() <= 1, allowed, same(O::Prmt(mode), 3))
        }
        _ => return None,
    };
    let types = if matches!(opcode, Opcode::Dp4a | Opcode::Dp2a) { 2 } else { 1 };
    if !fits || !words.only(allowed) || words.types.len() != types {
        return None;
    }
    let (operation, sources, count, destination) = found?;
    Some(Decoded { operation, kind, sources, count, destination })
}

fn clamp_or_wrap(
    words: &Words,
    clamp: Operation,
    wrap: Operation,
) -> Option<(&'static [Modifier], Operation)> {
    match (words.has(Modifier::Clamp), words.has(Modifier::Wrap)) {
        (true, false) => Some((&[Modifier::Clamp], clamp)),
        (false, true) => Some((&[Modifier::Wrap], wrap)),
        _ => None,
    }
}

/// Arithmetic that differs between the integer types.
trait Integer:
    Word + PartialOrd + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    const BITS: u32;
    const SIGNED: bool;
    const ZERO: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    /// Quotient. By zero: all ones.
    fn divide(self, other: Self) -> Self;
    /// Remainder. By zero: all ones.
    fn remainder(self, other: Self) -> Self;
    /// Shifted right by any amount, filled with zeros or the sign.
    fn right(self, amount: u32) -> Self;
    /// Shifted left by any amount.
    fn left(self, amount: u32) -> Self;
    fn widen(self) -> i128;
}

macro_rules! integers {
    ($($ty:ident $double:ident $signed:literal;)*) => {$(
        impl Integer for $ty {
            const BITS: u32 = $ty::BITS;
            const SIGNED: bool = $signed;
            const ZERO: $ty = 0;
            #[inline(always)]
            fn add(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: $ty) -> $ty {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: $ty) -> $ty {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn mul_high(self, other: $ty) -> $ty {
                ($double::from(self).wrapping_mul($double::from(other)) >> $ty::BITS) as $ty
            }
            #[inline(always)]
            fn divide(self, other: $ty) -> $ty {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn remainder(self, other: $ty) -> $ty {
                if other == 0 { !0 } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn right(self, amount: u32) -> $ty {
                let fill = if $signed { self >> ($ty::BITS - 1) } else { 0 };
                if amount < $ty::BITS { self >> (amount & ($ty::BITS - 1)) } else { fill }
            }
            #[inline(always)]
            fn left(self, amount: u32) -> $ty {
                if amount < $ty::BITS { self << (amount & ($ty::BITS - 1)) } else { 0 }
            }
            #[inline(always)]
            fn widen(self) -> i128 {
                i128::from(self)
            }
        }
    )*};
}

integers! { u16 u32 false; i16 i32 true; u32 u64 false; i32 i64 true; u64 u128 false; i64 i128 true; }

/// The smaller of two.
#[inline(always)]
fn least<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// The larger of two.
#[inline(always)]
fn most<T: PartialOrd>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Runs an operation.
#[inline(always)]
pub(super) fn apply(operation: Operation, kind: Kind, src: [&Lanes; 4]) -> Lanes {
    match kind {
        Kind::U16 => common::<u16>(operation, src),
        Kind::S16 => common::<i16>(operation, src),
        Kind::U32 => narrow::<u32>(operation, src),
        Kind::S32 => narrow::<i32>(operation, src),
        Kind::U64 => common::<u64>(operation, src),
        Kind::S64 => common::<i64>(operation, src),
        Kind::U16x2 => pair::<u16>(operation, src),
        Kind::S16x2 => pair::<i16>(operation, src),
    }
}

/// Two 16-bit integers in a lane.
#[inline(always)]
fn pair<T: Integer>(operation: Operation, [a, b, ..]: [&Lanes; 4]) -> Lanes {
    #[inline(always)]
    fn both<T: Integer>(a: &Lanes, b: &Lanes, f: impl Fn(T, T) -> T) -> Lanes {
        map2(a, b, |a: u32, b: u32| {
            let low = f(T::of(u64::from(a)), T::of(u64::from(b))).lane();
            let high = f(T::of(u64::from(a >> 16)), T::of(u64::from(b >> 16))).lane();
            (low | high << 16) as u32
        })
    }
    match operation {
        Operation::Add => both(a, b, T::add),
        Operation::Min => both(a, b, least::<T>),
        Operation::Max => both(a, b, most::<T>),
        Operation::MinRelu => both(a, b, |a: T, b: T| most(least(a, b), T::ZERO)),
        Operation::MaxRelu => both(a, b, |a: T, b: T| most(most(a, b), T::ZERO)),
        _ => *a,
    }
}

/// The operations that 32-bit integers have besides those of all.
#[inline(always)]
fn narrow<T: Integer>(operation: Operation, src: [&Lanes; 4]) -> Lanes {
    use Operation as O;
    let [a, b, c, d] = src;
    let three = [a, b, c];
    let clamp = |value: i64| value.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    // 24 bits, sign-extended where the type is signed.
    let low24 = |value: T| (T::of(value.lane() << 8).right(8)).widen() as i64;
    match operation {
        O::AddSat => map2(a, b, i32::saturating_add),
        O::SubSat => map2(a, b, i32::saturating_sub),
        O::MadHiSat => map3(three, |a: i32, b: i32, c: i32| clamp(i64::from(a.mul_high(b)) + i64::from(c))),
        O::Mul24Lo => map2(a, b, |a: T, b: T| low24(a).wrapping_mul(low24(b)) as u32),
        O::Mul24Hi => map2(a, b, |a: T, b: T| (low24(a).wrapping_mul(low24(b)) >> 16) as u32),
        O::Mad24Lo => {
            map3(three, |a: T, b: T, c: u32| (low24(a).wrapping_mul(low24(b)) as u32).wrapping_add(c))
        }
        O::Mad24Hi => {
            map3(three, |a: T, b: T, c: u32| ((low24(a).wrapping_mul(low24(b)) >> 16) as u32).wrapping_add(c))
        }
        O::Mad24HiSat => map3(three, |a: T, b: T, c: i32| {
            clamp(i64::from((low24(a).wrapping_mul(low24(b)) >> 16) as i32) + i64::from(c))
        }),
        O::MinRelu => map2(a, b, |a: i32, b: i32| a.min(b).max(0)),
        O::MaxRelu => map2(a, b, |a: i32, b: i32| a.max(b).max(0)),
        O::Fns => map3(three, find_nth),
        O::SzextClamp => map2(a, b, |a: T, n: u32| if n >= 32 { a } else { extend(a, n) }),
        O::SzextWrap => map2(a, b, |a: T, n: u32| extend(a, n & 31)),
        O::BmskClamp => map2(a, b, |at: u32, width: u32| match (at, width) {
            (32.., _) => 0,
            _ => mask(width).wrapping_shl(at),
        }),
        O::BmskWrap => map2(a, b, |at: u32, width: u32| mask(width & 31).wrapping_shl(at & 31)),
        O::Dp4a(signed) => map3(three, |a: u32, b: u32, c: u32| dot4(a, b, c, T::SIGNED, signed)),
        O::Dp2a(signed, upper) => map3(three, |a: u32, b: u32, c: u32| {
            dot2(a, if upper { b >> 16 } else { b }, c, T::SIGNED, signed)
        }),
        O::Lop3 => lop3(src),
        O::ShfLeftClamp => map3(three, |a: u32, b: u32, n: u32| ((joined(a, b) << n.min(32)) >> 32) as u32),
        O::ShfLeftWrap => map3(three, |a: u32, b: u32, n: u32| ((joined(a, b) << (n & 31)) >> 32) as u32),
        O::ShfRightClamp => map3(three, |a: u32, b: u32, n: u32| (joined(a, b) >> n.min(32)) as u32),
        O::ShfRightWrap => map3(three, |a: u32, b: u32, n: u32| (joined(a, b) >> (n & 31)) as u32),
        O::Prmt(mode) => map3(three, |a: u32, b: u32, c: u32| permute(mode, joined(a, b), c)),
        O::MulWide if T::SIGNED => map2(a, b, |a: i32, b: i32| i64::from(a) * i64::from(b)),
        O::MulWide => map2(a, b, |a: u32, b: u32| u64::from(a) * u64::from(b)),
        O::MadWide if T::SIGNED => {
            map3(three, |a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c))
        }
        O::MadWide => map3(three, |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
        other => common::<T>(other, [a, b, c, d]),
    }
}

/// The operations of all integer types but pairs.
#[inline(always)]
fn common<T: Integer>(operation: Operation, [a, b, c, d]: [&Lanes; 4]) -> Lanes {
    use Operation as O;
    let three = [a, b, c];
    match operation {
        O::Add => map2(a, b, T::add),
        O::Sub => map2(a, b, T::sub),
        O::MulLo => map2(a, b, T::mul),
        O::MulHi => map2(a, b, T::mul_high),
        O::MulWide => map2(a, b, |a: T, b: T| a.widen().wrapping_mul(b.widen()) as u32),
        O::MadLo => map3(three, |a: T, b: T, c: T| a.mul(b).add(c)),
        O::MadHi => map3(three, |a: T, b: T, c: T| a.mul_high(b).add(c)),
        O::MadWide => {
            map3(three, |a: T, b: T, c: u32| (a.widen().wrapping_mul(b.widen()) as u32).wrapping_add(c))
        }
        O::Sad => map3(three, |a: T, b: T, c: T| c.add(if a < b { b.sub(a) } else { a.sub(b) })),
        O::Div => map2(a, b, T::divide),
        O::Rem => map2(a, b, T::remainder),
        O::Abs => map1(a, |a: T| if a < T::ZERO { T::ZERO.sub(a) } else { a }),
        O::Neg => map1(a, |a: T| T::ZERO.sub(a)),
        O::Min => map2(a, b, least::<T>),
        O::Max => map2(a, b, most::<T>),
        O::Popc => map1(a, |a: T| a.lane().count_ones()),
        O::Clz => map1(a, |a: T| a.lane().leading_zeros() - (64 - T::BITS)),
        O::Bfind => map1(a, |a: T| top_bit(a).map_or(u32::MAX, |at| at)),
        O::BfindShift => map1(a, |a: T| top_bit(a).map_or(u32::MAX, |at| T::BITS - 1 - at)),
        O::Brev => map1(a, |a: T| T::of(a.lane().reverse_bits() >> (64 - T::BITS))),
        O::Bfe => {
            map3(three, |a: T, at: u32, width: u32| extract(a, field(T::BITS, at), field(T::BITS, width)))
        }
        O::Bfi => map4([a, b, c, d], |a: T, b: T, at: u32, width: u32| {
            T::of(insert(a.lane(), b.lane(), field(T::BITS, at), field(T::BITS, width)))
        }),
        O::And => map2(a, b, |a: T, b: T| a & b),
        O::Or => map2(a, b, |a: T, b: T| a | b),
        O::Xor => map2(a, b, |a: T, b: T| a ^ b),
        O::Not => map1(a, |a: T| !a),
        O::Cnot => map1(a, |a: T| T::of(u64::from(a == T::ZERO))),
        O::Shl => map2(a, b, T::left),
        O::Shr => map2(a, b, T::right),
        // Decoding gives the others to 32-bit types only.
        _ => *a,
    }
}

/// The position of the highest bit that differs from the sign.
#[inline(always)]
fn top_bit<T: Integer>(value: T) -> Option<u32> {
    let value = if value < T::ZERO { !value } else { value };
    value.lane().checked_ilog2()
}

/// `width` ones from bit 0 on.
#[inline(always)]
fn mask(width: u32) -> u32 {
    if width >= 32 { u32::MAX } else { (1 << width) - 1 }
}

/// The low `width` bits, fewer than 32, zero- or sign-extended.
#[inline(always)]
fn extend<T: Integer>(value: T, width: u32) -> T {
    let gap = 32 - width;
    // A shift by 32 gives 0 to the left, and stays 0 to the right.
    value.left(gap).right(gap)
}

/// A position or width of a bit field. PTX says that its low 8 bits count; with 64-bit types all of them do.
#[inline(always)]
fn field(bits: u32, value: u32) -> u32 {
    if bits == 64 { value } else { value & 0xff }
}

#[inline(always)]
fn extract<T: Integer>(value: T, at: u32, width: u32) -> T {
    let shifted = value.right(at);
    // Cut from the right end of what is there; the sign is then the last bit of the field or of the value.
    let gap = T::BITS.saturating_sub(width);
    if width == 0 { T::ZERO } else { shifted.left(gap).right(gap) }
}

#[inline(always)]
fn insert(field: u64, base: u64, at: u32, width: u32) -> u64 {
    let ones = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
    let (ones, field) = if at >= 64 { (0, 0) } else { (ones << at, field << at) };
    (base & !ones) | (field & ones)
}

fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == 0 {
        return if base < 32 && mask >> base & 1 == 1 { base } else { u32::MAX };
    }
    let found = |at: &u32| mask >> at & 1 == 1;
    let nth = offset.unsigned_abs() as usize - 1;
    // PTX leaves a base above 31 undefined; nothing is found there.
    let hit = match (offset > 0, base) {
        (_, 32..) => None,
        (true, _) => (base..32).filter(found).nth(nth),
        (false, _) => (0..=base).rev().filter(found).nth(nth),
    };
    hit.unwrap_or(u32::MAX)
}

#[inline(always)]
fn joined(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Byte `at` of a word, as a number.
#[inline(always)]
fn byte(word: u32, at: u32, signed: bool) -> i32 {
    let value = (word >> (8 * at)) & 0xff;
    if signed { i32::from(value as u8 as i8) } else { value as i32 }
}

/// Half `at` of a word, as a number.
#[inline(always)]
fn half(word: u32, at: u32, signed: bool) -> i32 {
    let value = (word >> (16 * at)) & 0xffff;
    if signed { i32::from(value as u16 as i16) } else { value as i32 }
}

#[inline(always)]
fn dot4(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    (0..4).fold(c as i32, |sum, i| sum.wrapping_add(byte(a, i, a_signed) * byte(b, i, b_signed))) as u32
}

#[inline(always)]
fn dot2(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    (0..2).fold(c as i32, |sum, i| sum.wrapping_add(half(a, i, a_signed) * byte(b, i, b_signed))) as u32
}

/// The table is the fourth source. It is the same in all lanes of an instruction, so the products that it names are
/// chosen once.
#[inline(always)]
fn lop3([a, b, c, table]: [&Lanes; 4]) -> Lanes {
    let table = table[0];
    let when = |row: u32| 0u64.wrapping_sub(table >> row & 1);
    let rows: [u64; 8] = std::array::from_fn(|row| when(row as u32));
    map3([a, b, c], |a: u64, b: u64, c: u64| {
        let low = (!a & !b & ((!c & rows[0]) | (c & rows[1]))) | (!a & b & ((!c & rows[2]) | (c & rows[3])));
        let high = (a & !b & ((!c & rows[4]) | (c & rows[5]))) | (a & b & ((!c & rows[6]) | (c & rows[7])));
        (low | high) & 0xffff_ffff
    })
}

/// The selectors of the special modes, for `c` of 0 to 3, as the generic mode would be given them.
fn selectors(mode: Permute) -> Option<[u32; 4]> {
    Some(match mode {
        Permute::Any => return None,
        Permute::F4e => [0x3210, 0x4321, 0x5432, 0x6543],
        Permute::B4e => [0x5670, 0x6701, 0x7012, 0x0123],
        Permute::Rc8 => [0x0000, 0x1111, 0x2222, 0x3333],
        Permute::Ecl => [0x3210, 0x3211, 0x3222, 0x3333],
        Permute::Ecr => [0x0000, 0x1110, 0x2210, 0x3210],
        Permute::Rc16 => [0x1010, 0x3232, 0x1010, 0x3232],
    })
}

#[inline(always)]
fn permute(mode: Permute, bytes: u64, control: u32) -> u32 {
    let control = selectors(mode).map_or(control, |table| table[(control & 3) as usize]);
    let mut out = 0;
    for place in 0..4 {
        let selector = control >> (4 * place);
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let sign = ((byte as i8) >> 7) as u8;
        out |= u32::from(if selector & 8 == 0 { byte } else { sign }) << (8 * place);
    }
    out
}
