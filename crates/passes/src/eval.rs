//! The meaning of every pure scalar op on constants.
//!
//! [`evaluate`] is what folding, the scalar interpreter and CPU evaluators share: one definition of what an op computes, taken from the
//! op table. Integers wrap, shifts clamp, floats round to nearest even. What the table leaves open is not evaluated: division by zero,
//! and anything whose bits depend on the hardware (`approx`, `ftz`, directed rounding of arithmetic), unless the caller asks for
//! [`Approximate::AsExact`].
//!
//! Decisions where the table is silent: a float that becomes an integer is clamped to its range, and NaN becomes 0 (for f64 or 64-bit
//! integers the lowest number), as the hardware does; what is too large for a float of 8 bits or fewer becomes its largest number, never
//! infinity; an integer becomes `true` unless it is zero; `min(-0, +0)` is -0.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the low bits of a wide intermediate are the result of a wrapping op"
)]

use tilewright_ir::{
    Attr, AttrValue, Attribute, Cmp, Constant, Element, Flags, Funnel, Half, Lut, Opcode, Permute, Round,
    Type, canonical,
};

use crate::float;

/// What to do with ops whose last bits are up to the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approximate {
    /// Do not evaluate them: the only choice for code that will run on a GPU.
    Refuse,
    /// Take the exact result, computed in f64 and rounded once; `ftz` flushes as asked. For computing on the CPU.
    AsExact,
}

/// The result of a pure op on scalar constants; `None` if it is not defined, not exact, or not a scalar.
///
/// ```
/// use tilewright_ir::{Constant, Opcode, Type};
/// use tilewright_passes::{Approximate, evaluate};
///
/// let max = (Type::U32, Constant(u64::from(u32::MAX)));
/// let two = (Type::U32, Constant(2));
/// let sum = evaluate(Opcode::Add, &[], &[max, two], Type::U32, Approximate::Refuse);
/// assert_eq!(sum, Some(Constant(1)));
///
/// let x = (Type::F32, Constant(u64::from(3f32.to_bits())));
/// assert_eq!(evaluate(Opcode::Ex2, &[], &[x], Type::F32, Approximate::Refuse), None);
/// let eight = Constant(u64::from(8f32.to_bits()));
/// assert_eq!(evaluate(Opcode::Ex2, &[], &[x], Type::F32, Approximate::AsExact), Some(eight));
/// ```
#[must_use]
pub fn evaluate(
    code: Opcode,
    attrs: &[Attr],
    operands: &[(Type, Constant)],
    result: Type,
    approximate: Approximate,
) -> Option<Constant> {
    let Type::Scalar(to) = result else { return None };
    let op = Scalar { code, attrs, operands, to, approximate };
    let bits = match code {
        Opcode::Const => get::<Constant>(attrs)?.0,
        Opcode::Cmp => u64::from(op.compare()?),
        Opcode::Select => op.bits(if op.bits(0)? == 0 { 2 } else { 1 })?,
        Opcode::Cvt => op.convert()?,
        Opcode::Bitcast => op.low(0)?,
        _ => match op.element(0)? {
            Element::Bool => op.logic()?,
            element if element.is_int() => op.integer(element)?,
            element => op.float(element)?,
        },
    };
    Some(Constant(canonical(to, bits)))
}

/// A typed attribute of a list.
fn get<A: Attribute>(attrs: &[Attr]) -> Option<A> {
    attrs.iter().find(|attr| attr.kind == A::KIND).and_then(|attr| match attr.value {
        AttrValue::Word(word) => Some(A::decode(word)),
        AttrValue::Text(_) => None,
    })
}

struct Scalar<'a> {
    code: Opcode,
    attrs: &'a [Attr],
    operands: &'a [(Type, Constant)],
    to: Element,
    approximate: Approximate,
}

impl Scalar<'_> {
    fn element(&self, i: usize) -> Option<Element> {
        match self.operands.get(i)?.0 {
            Type::Scalar(element) => Some(element),
            _ => None,
        }
    }

    fn bits(&self, i: usize) -> Option<u64> {
        self.element(i)?;
        Some(self.operands.get(i)?.1.0)
    }

    /// The bits of an operand without the extension to 64.
    fn low(&self, i: usize) -> Option<u64> {
        let width = self.element(i)?.bits();
        Some(self.bits(i)? & mask(width))
    }

    fn int(&self, i: usize) -> Option<i128> {
        let (element, bits) = (self.element(i)?, self.bits(i)?);
        Some(if element.is_signed() { i128::from(bits.cast_signed()) } else { i128::from(bits) })
    }

    /// An operand of type u32.
    fn word(&self, i: usize) -> Option<u32> {
        Some(self.bits(i)? as u32)
    }

    fn flags(&self) -> Flags {
        get(self.attrs).unwrap_or_default()
    }

    fn logic(&self) -> Option<u64> {
        let a = self.bits(0)?;
        Some(match self.code {
            Opcode::And => a & self.bits(1)?,
            Opcode::Or => a | self.bits(1)?,
            Opcode::Xor => a ^ self.bits(1)?,
            Opcode::Not => a ^ 1,
            _ => return None,
        })
    }

    fn compare(&self) -> Option<bool> {
        let element = self.element(0)?;
        let flags = self.flags();
        if !(flags.is_empty() || (self.approximate == Approximate::AsExact && flags == Flags::FTZ)) {
            return None;
        }
        let order = if element.is_float() {
            let flush = flags.has(Flags::FTZ);
            self.value(0, flush)?.partial_cmp(&self.value(1, flush)?)
        } else {
            Some(self.int(0)?.cmp(&self.int(1)?))
        };
        let cmp = get::<Cmp>(self.attrs)?;
        Some(match order {
            None => cmp == Cmp::Ne,
            Some(order) => match cmp {
                Cmp::Eq => order.is_eq(),
                Cmp::Ne => order.is_ne(),
                Cmp::Lt => order.is_lt(),
                Cmp::Le => order.is_le(),
                Cmp::Gt => order.is_gt(),
                Cmp::Ge => order.is_ge(),
            },
        })
    }

    fn integer(&self, element: Element) -> Option<u64> {
        let width = element.bits();
        let a = self.int(0)?;
        let saturates = matches!(self.code, Opcode::Add | Opcode::Sub) && self.flags() == Flags::SAT;
        let positions = self.code == Opcode::Bfind && self.flags() == Flags::SHIFT_AMOUNT;
        if !(self.flags().is_empty() || saturates || positions) {
            return None;
        }
        let wide = match self.code {
            Opcode::Add => a + self.int(1)?,
            Opcode::Sub => a - self.int(1)?,
            Opcode::Mul | Opcode::MulWide => a.wrapping_mul(self.int(1)?),
            // The product modulo 2^128 is right for both signs; the shift must then fill as the sign asks, which does not matter
            // in the bits that are kept.
            Opcode::MulHi => a.wrapping_mul(self.int(1)?) >> width,
            Opcode::Div | Opcode::Rem => {
                let b = self.int(1)?;
                if b == 0 {
                    return None;
                }
                if self.code == Opcode::Div { a / b } else { a % b }
            }
            Opcode::Fma => a.wrapping_mul(self.int(1)?).wrapping_add(self.int(2)?),
            Opcode::Neg => -a,
            Opcode::Abs => a.abs(),
            Opcode::Min => a.min(self.int(1)?),
            Opcode::Max => a.max(self.int(1)?),
            Opcode::And => a & self.int(1)?,
            Opcode::Or => a | self.int(1)?,
            Opcode::Xor => a ^ self.int(1)?,
            Opcode::Not => !a,
            Opcode::Shl => match self.word(1)? {
                n if n >= width => 0,
                n => a << n,
            },
            Opcode::Shr => a >> self.word(1)?.min(127),
            _ => return self.bit_op(element),
        };
        Some(if saturates { clamp(element, wide) } else { wide as u64 })
    }

    fn bit_op(&self, element: Element) -> Option<u64> {
        let width = element.bits();
        let a = self.low(0)?;
        Some(match self.code {
            Opcode::FunnelShift => {
                let pair = a | self.low(1)? << 32;
                let n = self.word(2)?;
                match get::<Funnel>(self.attrs)? {
                    Funnel::LeftWrap => (pair << (n & 31)) >> 32,
                    Funnel::LeftClamp => (pair << n.min(32)) >> 32,
                    Funnel::RightWrap => pair >> (n & 31),
                    Funnel::RightClamp => pair >> n.min(32),
                }
            }
            Opcode::Bfe if width >= 32 => {
                let (position, length) = (self.word(1)? & 0xff, self.word(2)? & 0xff);
                let top = width - 1;
                let fill =
                    element.is_signed() && length > 0 && a >> (position + length - 1).min(top) & 1 == 1;
                let taken = length.min(width.saturating_sub(position));
                let field = if taken == 0 { 0 } else { (a >> position) & mask(taken) };
                if fill { field | !mask(taken) } else { field }
            }
            Opcode::Bfi if width >= 32 => {
                let (position, length) = (self.word(2)? & 0xff, self.word(3)? & 0xff);
                let base = self.low(1)?;
                if position >= width || length == 0 {
                    base
                } else {
                    let window = mask(length.min(width - position)) << position;
                    (base & !window) | ((a << position) & window)
                }
            }
            Opcode::Prmt => u64::from(permute(a as u32, self.word(1)?, self.word(2)?, get(self.attrs))),
            Opcode::Lop3 => {
                let (b, c, Lut(lut)) = (self.low(1)?, self.low(2)?, get(self.attrs)?);
                let term = |i: u32| {
                    let pick = |value: u64, bit: u32| if i >> bit & 1 == 1 { value } else { !value };
                    if lut >> i & 1 == 1 { pick(a, 2) & pick(b, 1) & pick(c, 0) } else { 0 }
                };
                (0..8).fold(0, |sum, i| sum | term(i))
            }
            Opcode::Popc => u64::from(a.count_ones()),
            Opcode::Clz => u64::from(a.leading_zeros() - (64 - width)),
            Opcode::Brev => a.reverse_bits() >> (64 - width),
            Opcode::Bfind => {
                let negative = element.is_signed() && a >> (width - 1) == 1;
                let digits = if negative { !a & mask(width) } else { a };
                match digits.checked_ilog2() {
                    None => u64::from(u32::MAX),
                    Some(bit) if self.flags().has(Flags::SHIFT_AMOUNT) => u64::from(width - 1 - bit),
                    Some(bit) => u64::from(bit),
                }
            }
            Opcode::Dp4a => {
                let products = (0..4).map(|i| self.piece(0, 8 * i, 8).zip(self.piece(1, 8 * i, 8)));
                self.dot(products)?
            }
            Opcode::Dp2a => {
                let from = if get::<Half>(self.attrs)? == Half::Low { 0 } else { 16 };
                let products = (0..2).map(|i| self.piece(0, 16 * i, 16).zip(self.piece(1, from + 8 * i, 8)));
                self.dot(products)?
            }
            _ => return None,
        })
    }

    /// A field of an operand as a number, with the operand's signedness.
    fn piece(&self, i: usize, at: u32, width: u32) -> Option<i128> {
        let field = (self.low(i)? >> at) & mask(width);
        let negative = self.element(i)?.is_signed() && field >> (width - 1) == 1;
        Some(i128::from(field) - if negative { 1 << width } else { 0 })
    }

    fn dot(&self, products: impl Iterator<Item = Option<(i128, i128)>>) -> Option<u64> {
        let mut sum = self.int(2)?;
        for pair in products {
            let (a, b) = pair?;
            sum += a * b;
        }
        Some(sum as u64)
    }

    /// A float operand, flushed if asked.
    fn value(&self, i: usize, flush: bool) -> Option<f64> {
        let element = self.element(i)?;
        let value = float::decode(element, self.low(i)?)?;
        Some(if flush { flushed(element, value) } else { value })
    }

    fn float(&self, element: Element) -> Option<u64> {
        let exact = self.approximate == Approximate::AsExact;
        let flags = self.flags();
        let mode = get::<Round>(self.attrs);
        let sign = 1 << (element.bits() - 1);
        // Ops on the encoding: nothing is rounded.
        match self.code {
            Opcode::Neg if flags.is_empty() => return Some(self.low(0)? ^ sign),
            Opcode::Abs if flags.is_empty() => return Some(self.low(0)? & !sign),
            Opcode::CopySign => return Some((self.low(0)? & !sign) | (self.low(1)? & sign)),
            Opcode::RoundInt if flags.is_empty() || exact => {
                let value = self.value(0, flags.has(Flags::FTZ))?;
                return float::encode(element, integral(value, mode?), Round::Nearest, false);
            }
            _ => {}
        }
        let handled = if exact {
            Flags::FTZ
                .with(Flags::APPROX)
                .with(Flags::FULL)
                .with(Flags::SAT)
                .with(Flags::RELU)
                .with(Flags::NAN)
        } else {
            Flags::NAN
        };
        if !flags.without(handled).is_empty() || mode.is_some_and(|mode| mode != Round::Nearest) {
            return None;
        }
        let flush = flags.has(Flags::FTZ);
        let a = self.value(0, flush)?;
        let b = || self.value(1, flush);
        let value = match self.code {
            Opcode::Add => self.sum(element, a, b()?),
            Opcode::Sub => self.sum(element, a, -b()?),
            Opcode::Mul => a * b()?,
            Opcode::Div => a / b()?,
            Opcode::Fma => {
                let (b, c) = (b()?, self.value(2, flush)?);
                match element {
                    Element::F64 => a.mul_add(b, c),
                    // The product is exact in f64, the sum is rounded to odd.
                    _ => float::add_odd(a * b, c),
                }
            }
            Opcode::Min | Opcode::Max => extremum(self.code == Opcode::Min, flags.has(Flags::NAN), a, b()?),
            // Without a rounding mode these are the hardware's approximations.
            Opcode::Rcp if exact || mode.is_some() => 1.0 / a,
            Opcode::Sqrt if exact || mode.is_some() => a.sqrt(),
            Opcode::Rsqrt if exact => 1.0 / a.sqrt(),
            Opcode::Sin if exact => a.sin(),
            Opcode::Cos if exact => a.cos(),
            Opcode::Ex2 if exact => a.exp2(),
            Opcode::Lg2 if exact => a.log2(),
            Opcode::Tanh if exact => a.tanh(),
            _ => return None,
        };
        let value = if flags.has(Flags::RELU) && value < 0.0 { 0.0 } else { value };
        let value =
            if flags.has(Flags::SAT) { if value > 0.0 { value.min(1.0) } else { 0.0 } } else { value };
        let bits = float::encode(element, value, Round::Nearest, false)?;
        if flush {
            let value = flushed(element, float::decode(element, bits)?);
            return float::encode(element, value, Round::Nearest, false);
        }
        Some(bits)
    }

    /// A sum that one rounding to the element makes right.
    fn sum(&self, element: Element, a: f64, b: f64) -> f64 {
        if element == Element::F64 { a + b } else { float::add_odd(a, b) }
    }

    fn convert(&self) -> Option<u64> {
        let (from, to) = (self.element(0)?, self.to);
        let flags = self.flags();
        let mode = get::<Round>(self.attrs);
        let flush = flags.has(Flags::FTZ);
        if flush && self.approximate == Approximate::Refuse {
            return None;
        }
        let flags = flags.without(Flags::FTZ);
        if !from.is_float() {
            let value = self.int(0)?;
            if to.is_bool() {
                return flags.is_empty().then_some(u64::from(value != 0));
            }
            if to.is_int() {
                return match flags {
                    Flags::NONE => Some(value as u64),
                    Flags::SAT => Some(clamp(to, value)),
                    _ => None,
                };
            }
            if to == Element::F64 && value.unsigned_abs() > 1 << 53 {
                // f64 has no wider type to round from.
                return if flags.is_empty() {
                    double_of(value, mode.unwrap_or(Round::Nearest))
                } else {
                    None
                };
            }
            return self.narrow(float::from_int(value), flags, mode);
        }
        let value = self.value(0, flush)?;
        if to.is_int() {
            if !flags.without(Flags::SAT).is_empty() {
                return None;
            }
            if value.is_nan() {
                let lowest = from == Element::F64 || to.bits() == 64;
                return Some(if lowest { 1 << (to.bits() - 1) } else { 0 });
            }
            // `as` clamps to i128, which is wider than any target.
            return Some(clamp(to, integral(value, mode.unwrap_or(Round::Zero)) as i128));
        }
        if to.is_bool() {
            return (flags.is_empty() && mode.is_none()).then_some(u64::from(value != 0.0));
        }
        if from == to {
            return (flags.is_empty() && mode.is_none() && !flush).then(|| self.low(0))?;
        }
        self.narrow(value, flags, mode)
    }

    fn narrow(&self, value: f64, flags: Flags, mode: Option<Round>) -> Option<u64> {
        if !(flags.is_empty() || flags == Flags::SATFINITE) {
            return None;
        }
        // To 8 bits and fewer there is no instruction that does not clamp.
        let finite = flags == Flags::SATFINITE || self.to.bits() <= 8;
        float::encode(self.to, value, mode.unwrap_or(Round::Nearest), finite)
    }
}

/// The bits of an integer as f64. None for ties away from zero, which no instruction rounds like.
fn double_of(value: i128, mode: Round) -> Option<u64> {
    // `as` rounds to nearest.
    let near = value as f64;
    let (below, above) = ((near as i128) < value, (near as i128) > value);
    let up = mode == Round::Up || mode == Round::Zero && value < 0;
    let down = mode == Round::Down || mode == Round::Zero && value >= 0;
    let rounded = match mode {
        Round::Away => return None,
        _ if up && below => near.next_up(),
        _ if down && above => near.next_down(),
        _ => near,
    };
    Some(rounded.to_bits())
}

fn mask(width: u32) -> u64 {
    if width >= 64 { !0 } else { (1 << width) - 1 }
}

fn clamp(element: Element, value: i128) -> u64 {
    let width = element.bits();
    let (low, high) = if element.is_signed() {
        (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
    } else {
        (0, (1i128 << width) - 1)
    };
    value.clamp(low, high) as u64
}

fn flushed(element: Element, value: f64) -> f64 {
    // Only f32 and f16 arithmetic flushes.
    let least = match element {
        Element::F32 => f64::from(f32::MIN_POSITIVE),
        Element::F16 => 2f64.powi(-14),
        _ => return value,
    };
    if value.abs() < least { 0f64.copysign(value) } else { value }
}

fn integral(value: f64, mode: Round) -> f64 {
    match mode {
        Round::Nearest => value.round_ties_even(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
        Round::Away => value.round(),
    }
}

fn extremum(smaller: bool, keep_nan: bool, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return if keep_nan || (a.is_nan() && b.is_nan()) {
            f64::NAN
        } else if a.is_nan() {
            b
        } else {
            a
        };
    }
    // The order of the bits tells -0 from +0.
    if a.total_cmp(&b).is_lt() == smaller { a } else { b }
}

fn permute(low: u32, high: u32, selector: u32, mode: Option<Permute>) -> u32 {
    let bytes = u64::from(low) | u64::from(high) << 32;
    let byte = |i: u32| (bytes >> (8 * (i & 7)) & 0xff) as u32;
    let s = selector & 3;
    let pick = |i: u32| match mode {
        None => {
            let nibble = selector >> (4 * i) & 0xf;
            let chosen = byte(nibble);
            if nibble < 8 {
                chosen
            } else if chosen & 0x80 != 0 {
                0xff
            } else {
                0
            }
        }
        Some(Permute::F4e) => byte(s + i),
        Some(Permute::B4e) => byte(s.wrapping_sub(i)),
        Some(Permute::Rc8) => byte(s),
        Some(Permute::Ecl) => byte(i.max(s)),
        Some(Permute::Ecr) => byte(i.min(s)),
        Some(Permute::Rc16) => byte(2 * (s & 1) + (i & 1)),
    };
    (0..4).fold(0, |word, i| word | pick(i) << (8 * i))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(code: Opcode, attrs: &[Attr], operands: &[(Type, u64)], to: Type) -> Option<u64> {
        let operands: Vec<_> = operands.iter().map(|&(ty, bits)| (ty, Constant(bits))).collect();
        evaluate(code, attrs, &operands, to, Approximate::Refuse).map(|c| c.0)
    }

    const I8: Type = Type::Scalar(Element::I8);
    const U8: Type = Type::Scalar(Element::U8);
    const F16: Type = Type::Scalar(Element::F16);

    fn signed(value: i64) -> u64 {
        value.cast_unsigned()
    }

    #[test]
    fn integers_wrap_and_keep_their_extension() {
        assert_eq!(eval(Opcode::Add, &[], &[(I8, 127), (I8, 1)], I8), Some(signed(-128)));
        assert_eq!(eval(Opcode::Add, &[Flags::SAT.into()], &[(I8, 127), (I8, 1)], I8), Some(127));
        assert_eq!(eval(Opcode::Neg, &[], &[(I8, signed(-128))], I8), Some(signed(-128)));
        assert_eq!(eval(Opcode::Div, &[], &[(I8, signed(-128)), (I8, signed(-1))], I8), Some(signed(-128)));
        assert_eq!(eval(Opcode::Div, &[], &[(I8, 1), (I8, 0)], I8), None);
        assert_eq!(eval(Opcode::Rem, &[], &[(I8, signed(-7)), (I8, 2)], I8), Some(signed(-1)));
        assert_eq!(eval(Opcode::MulHi, &[], &[(Type::U64, !0), (Type::U64, !0)], Type::U64), Some(!0 - 1));
        assert_eq!(eval(Opcode::MulHi, &[], &[(Type::I64, !0), (Type::I64, 5)], Type::I64), Some(!0));
        assert_eq!(
            eval(Opcode::MulWide, &[], &[(Type::I32, !0), (Type::I32, 5)], Type::I64),
            Some(signed(-5))
        );
        assert_eq!(eval(Opcode::Shr, &[], &[(I8, signed(-128)), (Type::U32, 200)], I8), Some(!0));
        assert_eq!(eval(Opcode::Shl, &[], &[(U8, 255), (Type::U32, 8)], U8), Some(0));
        assert_eq!(eval(Opcode::Shl, &[], &[(U8, 255), (Type::U32, 4)], U8), Some(0xf0));
    }

    #[test]
    fn bit_ops_follow_their_definition() {
        let word = |bits| (Type::U32, bits);
        assert_eq!(eval(Opcode::Bfe, &[], &[word(0xabcd_1234), word(8), word(8)], Type::U32), Some(0x12));
        assert_eq!(eval(Opcode::Bfe, &[], &[(Type::I32, 0xf00), word(8), word(4)], Type::I32), Some(!0));
        assert_eq!(
            eval(Opcode::Bfe, &[], &[(Type::I32, signed(-5)), word(40), word(4)], Type::I32),
            Some(!0)
        );
        assert_eq!(
            eval(Opcode::Bfi, &[], &[word(0xff), word(0), word(28), word(8)], Type::U32),
            Some(0xf000_0000)
        );
        assert_eq!(
            eval(Opcode::Prmt, &[], &[word(0x3322_1180), word(0x7766_5544), word(0x8740)], Type::U32),
            Some(0xff77_4480)
        );
        let funnel = |mode: Funnel, n| {
            eval(Opcode::FunnelShift, &[mode.into()], &[word(0x8000_0001), word(2), word(n)], Type::U32)
        };
        assert_eq!(funnel(Funnel::LeftWrap, 33), Some(5));
        assert_eq!(funnel(Funnel::LeftClamp, 33), Some(0x8000_0001));
        assert_eq!(funnel(Funnel::RightClamp, 99), Some(2));
        let lut = |n| {
            eval(Opcode::Lop3, &[Lut(n).into()], &[word(0xf0), word(0xcc), word(0xaa)], Type::U32)
                .map(|v| v & 0xff)
        };
        for n in [0x00, 0x96, 0xe8, 0x3c, 0xff] {
            assert_eq!(lut(n), Some(u64::from(n)));
        }
        assert_eq!(eval(Opcode::Clz, &[], &[(I8, 1)], Type::U32), Some(7));
        assert_eq!(eval(Opcode::Brev, &[], &[(U8, 1)], U8), Some(0x80));
        assert_eq!(eval(Opcode::Bfind, &[], &[(I8, signed(-3))], Type::U32), Some(1));
        assert_eq!(eval(Opcode::Bfind, &[], &[(I8, signed(-1))], Type::U32), Some(u64::from(u32::MAX)));
        assert_eq!(
            eval(
                Opcode::Dp4a,
                &[],
                &[(Type::I32, 0x01ff_0203), word(0x0101_0101), (Type::I32, 10)],
                Type::I32
            ),
            Some(15)
        );
    }

    #[test]
    fn floats_round_once() {
        let f16 = |value: f64| (F16, float::encode(Element::F16, value, Round::Nearest, false).unwrap());
        assert_eq!(eval(Opcode::Add, &[], &[f16(2048.0), f16(1.0)], F16), Some(f16(2048.0).1));
        assert_eq!(eval(Opcode::Fma, &[], &[f16(1.5), f16(3.0), f16(0.25)], F16), Some(f16(4.75).1));
        let f32 = |value: f32| (Type::F32, u64::from(value.to_bits()));
        assert_eq!(eval(Opcode::Div, &[], &[f32(1.0), f32(3.0)], Type::F32), Some(f32(1.0 / 3.0).1));
        assert_eq!(eval(Opcode::Div, &[Flags::APPROX.into()], &[f32(1.0), f32(3.0)], Type::F32), None);
        assert_eq!(eval(Opcode::Add, &[Round::Up.into()], &[f32(1.0), f32(3.0)], Type::F32), None);
        assert_eq!(eval(Opcode::Min, &[], &[f32(f32::NAN), f32(3.0)], Type::F32), Some(f32(3.0).1));
        assert_eq!(eval(Opcode::Min, &[], &[f32(0.0), f32(-0.0)], Type::F32), Some(f32(-0.0).1));
        assert_eq!(
            eval(Opcode::Max, &[Flags::NAN.into()], &[f32(f32::NAN), f32(3.0)], Type::F32),
            Some(0x7fff_ffff)
        );
    }

    #[test]
    fn conversions_clamp_as_the_hardware_does() {
        let f32 = |value: f32| (Type::F32, u64::from(value.to_bits()));
        assert_eq!(eval(Opcode::Cvt, &[], &[f32(-3.7)], Type::I32), Some(signed(-3)));
        assert_eq!(eval(Opcode::Cvt, &[Round::Nearest.into()], &[f32(2.5)], Type::I32), Some(2));
        assert_eq!(eval(Opcode::Cvt, &[], &[f32(1e20)], Type::I32), Some(0x7fff_ffff));
        assert_eq!(eval(Opcode::Cvt, &[], &[f32(f32::NAN)], Type::I32), Some(0));
        assert_eq!(eval(Opcode::Cvt, &[], &[f32(f32::NAN)], Type::I64), Some(1 << 63));
        assert_eq!(eval(Opcode::Cvt, &[], &[f32(-1.0)], U8), Some(0));
        assert_eq!(eval(Opcode::Cvt, &[], &[(Type::I32, signed(-1))], U8), Some(255));
        assert_eq!(eval(Opcode::Cvt, &[Flags::SAT.into()], &[(Type::I32, signed(-1))], U8), Some(0));
        assert_eq!(
            eval(Opcode::Cvt, &[], &[(Type::I64, (1 << 60) + 1)], Type::F32),
            Some(f32(1.152_921_5e18).1)
        );
        assert_eq!(eval(Opcode::Cvt, &[], &[(Type::BOOL, 1)], Type::F32), Some(f32(1.0).1));
    }

    #[test]
    fn approximations_only_on_request() {
        let x = |value: f32| (Type::F32, Constant(u64::from(value.to_bits())));
        let both = |code, attrs: &[Attr], operands: &[(Type, Constant)]| {
            [Approximate::Refuse, Approximate::AsExact].map(|how| {
                evaluate(code, attrs, operands, Type::F32, how).map(|c| f32::from_bits(c.0 as u32))
            })
        };
        assert_eq!(both(Opcode::Rsqrt, &[], &[x(4.0)]), [None, Some(0.5)]);
        assert_eq!(both(Opcode::Lg2, &[], &[x(8.0)]), [None, Some(3.0)]);
        assert_eq!(both(Opcode::Rcp, &[Flags::APPROX.into()], &[x(8.0)]), [None, Some(0.125)]);
        assert_eq!(both(Opcode::Rcp, &[Round::Nearest.into()], &[x(3.0)]), [Some(1.0 / 3.0); 2]);
        assert_eq!(both(Opcode::Sqrt, &[Round::Nearest.into()], &[x(2.0)]), [Some(2f32.sqrt()); 2]);
        assert_eq!(both(Opcode::Sin, &[], &[x(1.0)]), [None, Some(1f32.sin())]);
        assert_eq!(both(Opcode::Tanh, &[], &[x(-0.0)]), [None, Some(-0.0)]);
        // A subnormal times two is normal; flushed it is zero.
        let tiny = x(f32::MIN_POSITIVE / 2.0);
        assert_eq!(both(Opcode::Add, &[Flags::FTZ.into()], &[tiny, tiny]), [None, Some(0.0)]);
        assert_eq!(both(Opcode::Add, &[Flags::SAT.into()], &[x(3.0), x(4.0)]), [None, Some(1.0)]);
    }
}
