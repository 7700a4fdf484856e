//! Ops on scalars, for all elements of a column at once.
//!
//! What an op means is defined by [`evaluate`], once. The loops here are copies of it for the common ops, one a type, because most of the
//! time of a kernel is spent in them; a test compares each with `evaluate` on random and special bits. Everything else goes through
//! `evaluate` element by element.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "words hold narrower numbers, which are cut out of them and put back"
)]

use half::{bf16, f16};
use smallvec::SmallVec;
use tilewright_ir::{
    AttrKind, Attribute, Cmp, Combine, Constant, Element, Func, Index, OpData, Opcode, Round, Type, canonical,
};
use tilewright_passes::{Approximate, evaluate, float};

use super::column::{Column, zip1, zip2, zip3};

/// A loop over columns that does what an op does; of two operands also the function that it repeats.
#[derive(Clone, Copy)]
pub(super) enum Fast {
    /// There is none.
    None,
    /// Of one operand.
    One(fn(&Column) -> Column),
    /// Of two operands.
    Two(fn(u64, u64) -> u64, fn(&Column, &Column) -> Column),
    /// Of three operands.
    Three(fn([&Column; 3]) -> Column),
}

macro_rules! one {
    ($f:expr) => {
        Fast::One(|a| zip1(a, $f))
    };
}

macro_rules! two {
    ($f:expr) => {
        Fast::Two($f, |a, b| zip2(a, b, $f))
    };
}

macro_rules! three {
    ($f:expr) => {
        Fast::Three(|columns| zip3(columns, $f))
    };
}

/// Comparisons of what `$get` makes of words.
macro_rules! compare {
    ($cmp:expr, $get:expr) => {
        match $cmp {
            Cmp::Eq => two!(|a, b| u64::from($get(a) == $get(b))),
            Cmp::Ne => two!(|a, b| u64::from($get(a) != $get(b))),
            Cmp::Lt => two!(|a, b| u64::from($get(a) < $get(b))),
            Cmp::Le => two!(|a, b| u64::from($get(a) <= $get(b))),
            Cmp::Gt => two!(|a, b| u64::from($get(a) > $get(b))),
            Cmp::Ge => two!(|a, b| u64::from($get(a) >= $get(b))),
        }
    };
}

/// Arithmetic on integers of type `$ty`; `$wide` has its sign and 64 bits.
macro_rules! integers {
    ($code:expr, $cmp:expr, $ty:ty, $wide:ty) => {{
        fn put(value: $ty) -> u64 {
            <$wide>::from(value) as u64
        }
        match $code {
            Opcode::Add => two!(|a, b| put((a as $ty).wrapping_add(b as $ty))),
            Opcode::Sub => two!(|a, b| put((a as $ty).wrapping_sub(b as $ty))),
            Opcode::Mul => two!(|a, b| put((a as $ty).wrapping_mul(b as $ty))),
            Opcode::Fma => three!(|a, b, c| put((a as $ty).wrapping_mul(b as $ty).wrapping_add(c as $ty))),
            Opcode::Min => two!(|a, b| put((a as $ty).min(b as $ty))),
            Opcode::Max => two!(|a, b| put((a as $ty).max(b as $ty))),
            Opcode::Neg => one!(|a| put((a as $ty).wrapping_neg())),
            Opcode::And => two!(|a, b| a & b),
            Opcode::Or => two!(|a, b| a | b),
            Opcode::Xor => two!(|a, b| a ^ b),
            Opcode::Not => one!(|a| put(!(a as $ty))),
            Opcode::Shl => two!(|a, b| put((a as $ty).checked_shl(b as u32).unwrap_or(0))),
            Opcode::Shr => two!(|a, b| put((a as $ty)
                >> (b as u32).min(<$ty>::BITS - 1)
                >> u32::from(b as u32 >= <$ty>::BITS))),
            Opcode::Cmp => compare!($cmp, |a: u64| a as $ty),
            _ => Fast::None,
        }
    }};
}

/// Arithmetic on floats: `$get` makes a number of a word, and `$put` rounds one to a word.
macro_rules! floats {
    ($code:expr, $cmp:expr, $get:expr, $put:expr, $add:expr, $fma:expr) => {
        match $code {
            Opcode::Add => two!(|a, b| $put($add($get(a), $get(b)))),
            Opcode::Sub => two!(|a, b| $put($add($get(a), -$get(b)))),
            Opcode::Mul => two!(|a, b| $put($get(a) * $get(b))),
            Opcode::Div => two!(|a, b| $put($get(a) / $get(b))),
            Opcode::Fma => three!(|a, b, c| $put($fma($get(a), $get(b), $get(c)))),
            Opcode::Min => two!(|a, b| $put(lesser($get(a), $get(b)))),
            Opcode::Max => two!(|a, b| $put(-lesser(-$get(a), -$get(b)))),
            Opcode::Rcp => one!(|a| $put($get(a).recip())),
            Opcode::Sqrt => one!(|a| $put($get(a).sqrt())),
            Opcode::Cmp => compare!($cmp, $get),
            _ => Fast::None,
        }
    };
}

/// A number that can be told from NaN and ordered with its sign of zero.
trait Real: Copy {
    fn is_nan(self) -> bool;
    fn is_below(self, other: Self) -> bool;
}

impl Real for f32 {
    fn is_nan(self) -> bool {
        self.is_nan()
    }
    fn is_below(self, other: f32) -> bool {
        self.total_cmp(&other).is_lt()
    }
}

impl Real for f64 {
    fn is_nan(self) -> bool {
        self.is_nan()
    }
    fn is_below(self, other: f64) -> bool {
        self.total_cmp(&other).is_lt()
    }
}

/// The smaller, or the one that is a number.
fn lesser<T: Real>(a: T, b: T) -> T {
    if a.is_nan() {
        b
    } else if b.is_nan() || a.is_below(b) {
        a
    } else {
        b
    }
}

fn single(word: u64) -> f32 {
    f32::from_bits(word as u32)
}

fn put_single(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { u64::from(value.to_bits()) }
}

fn put_double(value: f64) -> u64 {
    if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() }
}

fn from_half(word: u64) -> f32 {
    f16::from_bits(word as u16).to_f32()
}

fn from_brain(word: u64) -> f32 {
    f32::from_bits((word as u32) << 16)
}

fn half(word: u64) -> f64 {
    f64::from(from_half(word))
}

fn brain(word: u64) -> f64 {
    f64::from(from_brain(word))
}

fn put_half(value: f64) -> u64 {
    float::encode(Element::F16, value, Round::Nearest, false).unwrap_or(0)
}

fn put_brain(value: f64) -> u64 {
    float::encode(Element::BF16, value, Round::Nearest, false).unwrap_or(0)
}

fn narrow_half(value: f32) -> u64 {
    if value.is_nan() { 0x7fff } else { u64::from(f16::from_f32(value).to_bits()) }
}

fn narrow_brain(value: f32) -> u64 {
    if value.is_nan() { 0x7fff } else { u64::from(bf16::from_f32(value).to_bits()) }
}

/// The loop for an op on these operands, if there is one.
pub(super) fn fast(func: &Func, data: &OpData) -> Fast {
    let plain = data.attrs.iter().all(|attr| match attr.kind {
        AttrKind::Cmp => true,
        AttrKind::Round => data.get::<Round>() == Some(Round::Nearest) && data.code != Opcode::RoundInt,
        _ => false,
    });
    let (Some(&first), [result]) = (data.operands.first(), &data.results[..]) else { return Fast::None };
    let (Type::Scalar(from), Type::Scalar(to), true) = (func.ty(first), func.ty(*result), plain) else {
        return Fast::None;
    };
    match data.code {
        Opcode::Select => Fast::None,
        Opcode::Cvt => {
            if to.is_float() || from.is_float() || data.get::<Round>().is_none() {
                conversion(from, to)
            } else {
                Fast::None
            }
        }
        code => element_loop(code, from, data.get::<Cmp>().unwrap_or(Cmp::Eq)),
    }
}

/// The loop that combines two elements, if there is one.
pub(super) fn combine(combine: Combine, element: Element) -> Option<Opcode> {
    let code = match combine {
        Combine::Add => Opcode::Add,
        Combine::Min => Opcode::Min,
        Combine::Max => Opcode::Max,
        Combine::And => Opcode::And,
        Combine::Or => Opcode::Or,
        Combine::Xor => Opcode::Xor,
        _ => return None,
    };
    let bitwise = matches!(combine, Combine::And | Combine::Or | Combine::Xor);
    let works =
        if bitwise { element.is_int() || element.is_bool() } else { element.is_int() || computes(element) };
    works.then_some(code)
}

/// Floats that arithmetic is defined on.
fn computes(element: Element) -> bool {
    matches!(element, Element::F16 | Element::BF16 | Element::F32 | Element::F64)
}

/// The loop for an op whose operands are all of one type.
pub(super) fn element_loop(code: Opcode, element: Element, cmp: Cmp) -> Fast {
    match element {
        Element::Bool => match code {
            Opcode::And => two!(|a, b| a & b),
            Opcode::Or => two!(|a, b| a | b),
            Opcode::Xor => two!(|a, b| a ^ b),
            Opcode::Not => one!(|a| a ^ 1),
            _ => Fast::None,
        },
        Element::I8 => integers!(code, cmp, i8, i64),
        Element::I16 => integers!(code, cmp, i16, i64),
        Element::I32 => integers!(code, cmp, i32, i64),
        Element::I64 => integers!(code, cmp, i64, i64),
        Element::U8 => integers!(code, cmp, u8, u64),
        Element::U16 => integers!(code, cmp, u16, u64),
        Element::U32 => integers!(code, cmp, u32, u64),
        Element::U64 => integers!(code, cmp, u64, u64),
        Element::F32 => match code {
            Opcode::Neg => one!(|a| a ^ 0x8000_0000),
            Opcode::Abs => one!(|a| a & 0x7fff_ffff),
            Opcode::Ex2 => one!(|a| put_single(f64::from(single(a)).exp2() as f32)),
            Opcode::Lg2 => one!(|a| put_single(f64::from(single(a)).log2() as f32)),
            Opcode::Rsqrt => one!(|a| put_single(f64::from(single(a)).sqrt().recip() as f32)),
            Opcode::Tanh => one!(|a| put_single(f64::from(single(a)).tanh() as f32)),
            _ => floats!(code, cmp, single, put_single, |a, b| a + b, f32::mul_add),
        },
        Element::F64 => {
            floats!(code, cmp, f64::from_bits, put_double, |a, b| a + b, f64::mul_add)
        }
        Element::F16 => match code {
            Opcode::Neg => one!(|a| a ^ 0x8000),
            Opcode::Abs => one!(|a| a & 0x7fff),
            _ => floats!(code, cmp, half, put_half, float::add_odd, |a, b, c| float::add_odd(a * b, c)),
        },
        Element::BF16 => match code {
            Opcode::Neg => one!(|a| a ^ 0x8000),
            Opcode::Abs => one!(|a| a & 0x7fff),
            _ => floats!(code, cmp, brain, put_brain, float::add_odd, |a, b, c| float::add_odd(a * b, c)),
        },
        _ => Fast::None,
    }
}

fn conversion(from: Element, to: Element) -> Fast {
    match (from, to) {
        (Element::F16, Element::F32) => one!(|a| put_single(from_half(a))),
        (Element::BF16, Element::F32) => one!(|a| put_single(from_brain(a))),
        (Element::F32, Element::F16) => one!(|a| narrow_half(single(a))),
        (Element::F32, Element::BF16) => one!(|a| narrow_brain(single(a))),
        (Element::U32, Element::F32) => one!(|a| put_single(a as u32 as f32)),
        (Element::I32, Element::F32) => one!(|a| put_single(a as i32 as f32)),
        (Element::Bool, Element::U32 | Element::I32 | Element::I64 | Element::U64) => one!(|a| a),
        (Element::U32 | Element::I32, Element::I64 | Element::U64) => one!(|a| a),
        (Element::U32 | Element::I32 | Element::I64 | Element::U64, Element::I32) => {
            one!(|a| i64::from(a as i32) as u64)
        }
        (Element::U32 | Element::I32 | Element::I64 | Element::U64, Element::U32) => {
            one!(|a| u64::from(a as u32))
        }
        _ => Fast::None,
    }
}

/// Why a column could not be computed: the op has no meaning here.
pub(super) struct NoMeaning;

/// The result of a pure op of one thread, for `n` elements.
pub(super) fn compute(
    func: &Func,
    data: &OpData,
    fast: Fast,
    n: usize,
    operand: impl Fn(usize) -> Column,
) -> Result<Column, NoMeaning> {
    match fast {
        Fast::One(all) => return Ok(all(&operand(0))),
        Fast::Two(_, all) => return Ok(all(&operand(0), &operand(1))),
        Fast::Three(all) => return Ok(all([&operand(0), &operand(1), &operand(2)])),
        Fast::None => {}
    }
    let [result] = data.results[..] else { return Err(NoMeaning) };
    let ty = func.ty(result);
    match data.code {
        // Nobody may depend on these; the same for everybody is the least surprising.
        Opcode::Poison => return Ok(Column::Same(SmallVec::from_elem(0, width(ty)))),
        Opcode::MakePolicy => return Ok(Column::one(0)),
        Opcode::Const => return Ok(Column::one(data.get::<Constant>().map_or(0, Attribute::encode))),
        Opcode::Select if width(ty) == 1 => {
            let columns = [operand(0), operand(1), operand(2)];
            return Ok(zip3([&columns[0], &columns[1], &columns[2]], |c, a, b| if c == 0 { b } else { a }));
        }
        _ => {}
    }
    let operands: SmallVec<[(Type, Column); 4]> =
        data.operands.iter().enumerate().map(|(i, &v)| (func.ty(v), operand(i))).collect();
    let at = |element: usize| {
        let lanes: SmallVec<[(Type, &[u64]); 4]> =
            operands.iter().map(|(ty, column)| (*ty, column.lanes(element, width(*ty)))).collect();
        lanes_of(data, &lanes, ty)
    };
    if operands.iter().all(|(_, column)| column.is_same()) {
        return Ok(Column::Same(at(0)?));
    }
    let mut words = Vec::with_capacity(n * width(ty));
    for element in 0..n {
        words.extend(at(element)?);
    }
    Ok(Column::tile(words))
}

/// Words that a value of one element takes.
pub(super) fn width(ty: Type) -> usize {
    ty.lanes().max(1) as usize
}

type Lanes = SmallVec<[u64; 1]>;

/// An op on one element: what becomes of the lanes of its operands.
fn lanes_of(data: &OpData, operands: &[(Type, &[u64])], ty: Type) -> Result<Lanes, NoMeaning> {
    let count = width(ty);
    let index = data.get::<Index>().map_or(0, |Index(i)| i as usize);
    let lanes = |i: usize| operands.get(i).map_or(&[][..], |(_, lanes)| *lanes);
    let fit = |bits: u64| match ty {
        Type::Pointer(space) if space.bits() == 32 => bits & u64::from(u32::MAX),
        _ => ty.element().map_or(bits, |element| canonical(element, bits)),
    };
    Ok(match data.code {
        Opcode::Pack | Opcode::Concat => operands.iter().flat_map(|(_, lanes)| *lanes).copied().collect(),
        Opcode::Extract | Opcode::Slice => lanes(0)[index..index + count].iter().copied().collect(),
        Opcode::Insert => {
            let mut all: Lanes = lanes(0).into();
            all[index] = lanes(1)[0];
            all
        }
        Opcode::Select => lanes(if lanes(0)[0] == 0 { 2 } else { 1 }).into(),
        Opcode::PtrAdd => Lanes::from_elem(fit(lanes(0)[0].wrapping_add(lanes(1)[0])), 1),
        Opcode::CastSpace | Opcode::PtrToInt | Opcode::IntToPtr => Lanes::from_elem(fit(lanes(0)[0]), 1),
        Opcode::Bitcast => recut(operands[0], ty),
        _ => (0..count).map(|lane| element_of(data, operands, ty, lane)).collect::<Result<_, _>>()?,
    })
}

fn element_of(data: &OpData, operands: &[(Type, &[u64])], ty: Type, lane: usize) -> Result<u64, NoMeaning> {
    let mut scalars: SmallVec<[(Type, Constant); 4]> = SmallVec::new();
    for (ty, lanes) in operands {
        let element = ty.element().ok_or(NoMeaning)?;
        let bits = lanes.get(lane).or(lanes.first()).copied().ok_or(NoMeaning)?;
        scalars.push((Type::Scalar(element), Constant(bits)));
    }
    let to = ty.element().ok_or(NoMeaning)?;
    let zero_divisor = matches!(data.code, Opcode::Div | Opcode::Rem)
        && to.is_int()
        && scalars.get(1).is_some_and(|(_, divisor)| divisor.0 == 0);
    // As the hardware does, quotient and remainder alike.
    if zero_divisor {
        return Ok(canonical(to, u64::MAX));
    }
    evaluate(data.code, &data.attrs, &scalars, Type::Scalar(to), Approximate::AsExact)
        .map(|Constant(bits)| bits)
        .ok_or(NoMeaning)
}

/// The same bits in lanes of another width.
fn recut((from, lanes): (Type, &[u64]), to: Type) -> Lanes {
    let bits = |ty: Type| ty.bits() as usize / width(ty);
    let (from_bits, to_bits) = (bits(from), bits(to));
    let bit = |at: usize| lanes[at / from_bits] >> (at % from_bits) & 1;
    let lane = |i: usize| {
        let word = (0..to_bits).fold(0, |word, b| word | bit(i * to_bits + b) << b);
        to.element().map_or(word, |element| canonical(element, word))
    };
    if from_bits == to_bits {
        return lanes.iter().map(|&word| recanonical(word, to_bits, to)).collect();
    }
    (0..width(to)).map(lane).collect()
}

fn recanonical(word: u64, bits: usize, to: Type) -> u64 {
    let low = if bits >= 64 { word } else { word & ((1 << bits) - 1) };
    to.element().map_or(low, |element| canonical(element, low))
}

/// An element of a type computed by an op of two operands, such as a step of an atomic.
pub(super) fn step(code: Opcode, element: Element, a: u64, b: u64) -> Option<u64> {
    if let Fast::Two(one, _) = element_loop(code, element, Cmp::Eq) {
        return Some(one(a, b));
    }
    let ty = Type::Scalar(element);
    evaluate(code, &[], &[(ty, Constant(a)), (ty, Constant(b))], ty, Approximate::AsExact).map(|c| c.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits that are likely to be treated wrongly, and random ones.
    fn samples(element: Element) -> Vec<u64> {
        let special =
            [0, 1, 2, 3, 0x7f, 0x80, 0xff, 0x7f80, 0x7f81, 0x7fff, 0x8000, 0x7c00, 0x3c00, 0xbf80, 0xffff];
        let wide = [
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0x8000_0000,
            0x3f80_0000,
            0xbf80_0000,
            0x7fff_ffff,
            0xffff_ffff,
            1 << 63,
            !0,
        ];
        let mut state = 7u64;
        let random = std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 31
        });
        special.into_iter().chain(wide).chain(random.take(40)).map(|bits| canonical(element, bits)).collect()
    }

    fn agree(
        code: Opcode,
        attrs: &[tilewright_ir::Attr],
        operands: &[(Element, u64)],
        to: Element,
        found: u64,
    ) {
        let typed: Vec<_> = operands.iter().map(|&(e, bits)| (Type::Scalar(e), Constant(bits))).collect();
        let expected = evaluate(code, attrs, &typed, Type::Scalar(to), Approximate::AsExact);
        assert_eq!(Some(Constant(found)), expected, "{code:?} {attrs:?} {operands:x?} : {to}");
    }

    const COMPUTING: [Element; 13] = [
        Element::Bool,
        Element::I8,
        Element::I16,
        Element::I32,
        Element::I64,
        Element::U8,
        Element::U16,
        Element::U32,
        Element::U64,
        Element::F16,
        Element::BF16,
        Element::F32,
        Element::F64,
    ];

    #[test]
    fn loops_do_what_the_evaluator_does() {
        let codes = [
            Opcode::Add,
            Opcode::Sub,
            Opcode::Mul,
            Opcode::Div,
            Opcode::Fma,
            Opcode::Min,
            Opcode::Max,
            Opcode::Neg,
            Opcode::Abs,
            Opcode::And,
            Opcode::Or,
            Opcode::Xor,
            Opcode::Not,
            Opcode::Shl,
            Opcode::Shr,
            Opcode::Rcp,
            Opcode::Sqrt,
            Opcode::Ex2,
            Opcode::Lg2,
            Opcode::Rsqrt,
            Opcode::Tanh,
        ];
        let mut seen = 0;
        for element in COMPUTING {
            for code in codes {
                let samples = samples(element);
                let shifts = matches!(code, Opcode::Shl | Opcode::Shr);
                let second = if shifts { Element::U32 } else { element };
                match element_loop(code, element, Cmp::Eq) {
                    Fast::None => continue,
                    Fast::One(all) => {
                        for &a in &samples {
                            agree(code, &[], &[(element, a)], element, all(&Column::one(a)).first());
                        }
                    }
                    Fast::Two(two, _) => {
                        for &a in &samples {
                            for &b in &samples {
                                let b = if shifts { b & 0xff } else { b };
                                agree(code, &[], &[(element, a), (second, b)], element, two(a, b));
                            }
                        }
                    }
                    Fast::Three(all) => {
                        for (i, &a) in samples.iter().enumerate() {
                            for (j, &b) in samples.iter().enumerate() {
                                let c = samples[(i * 7 + j * 3) % samples.len()];
                                let found = all([&Column::one(a), &Column::one(b), &Column::one(c)]).first();
                                agree(code, &[], &[(element, a), (element, b), (element, c)], element, found);
                            }
                        }
                    }
                }
                seen += 1;
            }
        }
        assert!(seen > 120, "{seen} loops");
    }

    #[test]
    fn comparisons_and_conversions_too() {
        for element in COMPUTING {
            for &cmp in Cmp::ALL {
                let Fast::Two(two, _) = element_loop(Opcode::Cmp, element, cmp) else { continue };
                for a in samples(element) {
                    for b in samples(element) {
                        let operands = [(element, a), (element, b)];
                        agree(Opcode::Cmp, &[cmp.into()], &operands, Element::Bool, two(a, b));
                    }
                }
            }
            for to in COMPUTING {
                let Fast::One(all) = conversion(element, to) else { continue };
                for a in samples(element) {
                    agree(Opcode::Cvt, &[], &[(element, a)], to, all(&Column::one(a)).first());
                }
            }
        }
    }
}
