//! Products, quotients and remainders by constants.

use tilewright_ir::{Element, Func, Loc, Op, Opcode, Region, Type, Value, canonical};

use crate::float;
use crate::magic::{self, Unsigned};
use crate::rewrite::{Replacements, constant, new_constant, new_value};

pub(super) fn run(func: &mut Func) -> bool {
    let with = Replacements::of(func);
    let mut divider = Divider { func, with, changed: false };
    divider.region(divider.func.body());
    divider.changed
}

struct Divider<'a> {
    func: &'a mut Func,
    with: Replacements,
    changed: bool,
}

impl Divider<'_> {
    fn region(&mut self, region: Region) {
        let ops = std::mem::take(&mut self.func.region_mut(region).ops);
        let mut out = Vec::with_capacity(ops.len());
        for op in ops {
            if self.changed {
                self.with.apply(self.func, op);
            }
            let data = self.func.op(op);
            if !data.regions.is_empty() {
                for inner in data.regions.clone() {
                    self.region(inner);
                }
            } else if matches!(data.code, Opcode::Mul | Opcode::Div | Opcode::Rem)
                && let Some(value) = self.rewrite(op, &mut out)
            {
                self.changed = true;
                let result = self.func.op(op).results[0];
                self.with.set(result, value);
                continue;
            }
            out.push(op);
        }
        self.func.region_mut(region).ops = out;
    }

    fn rewrite(&mut self, op: Op, out: &mut Vec<Op>) -> Option<Value> {
        let data = self.func.op(op);
        let (x, c) = (data.operands[0], constant(self.func, data.operands[1])?);
        let Type::Scalar(element) = self.func.ty(x) else { return None };
        if !data.attrs.is_empty() {
            return None;
        }
        let (code, loc) = (data.code, data.loc);
        let mut emit = Emit { func: self.func, out, element, loc };
        if element.is_float() {
            return if code == Opcode::Div { emit.float_quotient(x, c) } else { None };
        }
        match code {
            Opcode::Mul if c.is_power_of_two() => Some(emit.shift(Opcode::Shl, x, c.trailing_zeros())),
            Opcode::Mul => None,
            _ if c == 0 => None,
            Opcode::Div => Some(emit.narrow_or(x, |emit, x| emit.quotient(x, c))),
            _ => Some(emit.narrow_or(x, |emit, x| emit.remainder(x, c))),
        }
    }
}

/// Appends ops of one element type.
struct Emit<'a> {
    func: &'a mut Func,
    out: &'a mut Vec<Op>,
    element: Element,
    loc: Loc,
}

impl Emit<'_> {
    fn ty(&self) -> Type {
        Type::Scalar(self.element)
    }

    fn constant(&mut self, bits: u64) -> Value {
        let bits = canonical(self.element, bits);
        new_constant(self.func, self.out, self.ty(), bits, self.loc)
    }

    fn op(&mut self, code: Opcode, operands: &[Value]) -> Value {
        let ty = self.ty();
        new_value(self.func, self.out, code, operands, &[], ty, self.loc)
    }

    fn shift(&mut self, code: Opcode, x: Value, amount: u32) -> Value {
        if amount == 0 {
            return x;
        }
        let amount = new_constant(self.func, self.out, Type::U32, u64::from(amount), self.loc);
        self.op(code, &[x, amount])
    }

    /// There are no wide products of bytes and half words: those are computed in words.
    fn narrow_or(&mut self, x: Value, build: impl FnOnce(&mut Emit<'_>, Value) -> Value) -> Value {
        let narrow = self.element;
        if narrow.bits() >= 32 {
            return build(self, x);
        }
        self.element = if narrow.is_signed() { Element::I32 } else { Element::U32 };
        let wide = self.op(Opcode::Cvt, &[x]);
        let value = build(self, wide);
        self.element = narrow;
        self.op(Opcode::Cvt, &[value])
    }

    fn quotient(&mut self, x: Value, c: u64) -> Value {
        if self.element.is_signed() {
            self.signed_quotient(x, c.cast_signed())
        } else {
            self.unsigned_quotient(x, c)
        }
    }

    fn remainder(&mut self, x: Value, c: u64) -> Value {
        if !self.element.is_signed() && c.is_power_of_two() {
            let mask = self.constant(c - 1);
            return self.op(Opcode::And, &[x, mask]);
        }
        let quotient = self.quotient(x, c);
        let back = if c.is_power_of_two() {
            self.shift(Opcode::Shl, quotient, c.trailing_zeros())
        } else {
            let c = self.constant(c);
            self.op(Opcode::Mul, &[quotient, c])
        };
        self.op(Opcode::Sub, &[x, back])
    }

    fn unsigned_quotient(&mut self, x: Value, d: u64) -> Value {
        if d.is_power_of_two() {
            return self.shift(Opcode::Shr, x, d.trailing_zeros());
        }
        match magic::unsigned(self.element.bits(), d) {
            Unsigned::Multiply { before, multiplier, after } => {
                let x = self.shift(Opcode::Shr, x, before);
                let m = self.constant(multiplier);
                let high = self.op(Opcode::MulHi, &[x, m]);
                self.shift(Opcode::Shr, high, after)
            }
            Unsigned::Add { multiplier, after } => {
                let m = self.constant(multiplier);
                let high = self.op(Opcode::MulHi, &[x, m]);
                let rest = self.op(Opcode::Sub, &[x, high]);
                let half = self.shift(Opcode::Shr, rest, 1);
                let sum = self.op(Opcode::Add, &[half, high]);
                self.shift(Opcode::Shr, sum, after)
            }
        }
    }

    fn signed_quotient(&mut self, x: Value, d: i64) -> Value {
        let width = self.element.bits();
        let divisor = d.unsigned_abs();
        if divisor == 1 {
            return if d < 0 { self.op(Opcode::Neg, &[x]) } else { x };
        }
        let sign = self.shift(Opcode::Shr, x, width - 1);
        let quotient = if divisor.is_power_of_two() {
            // Negative numbers get divisor - 1 added, so that the shift rounds them up.
            let log = divisor.trailing_zeros();
            let signed = self.ty();
            let unsigned = Type::Scalar(if width == 64 { Element::U64 } else { Element::U32 });
            let ones = new_value(self.func, self.out, Opcode::Bitcast, &[sign], &[], unsigned, self.loc);
            let amount = new_constant(self.func, self.out, Type::U32, u64::from(width - log), self.loc);
            let bias = new_value(self.func, self.out, Opcode::Shr, &[ones, amount], &[], unsigned, self.loc);
            let bias = new_value(self.func, self.out, Opcode::Bitcast, &[bias], &[], signed, self.loc);
            let sum = self.op(Opcode::Add, &[x, bias]);
            self.shift(Opcode::Shr, sum, log)
        } else {
            let plan = magic::signed(width, divisor);
            let m = self.constant(plan.multiplier.cast_unsigned());
            let mut high = self.op(Opcode::MulHi, &[x, m]);
            if plan.add {
                high = self.op(Opcode::Add, &[high, x]);
            }
            let down = self.shift(Opcode::Shr, high, plan.after);
            self.op(Opcode::Sub, &[down, sign])
        };
        if d < 0 { self.op(Opcode::Neg, &[quotient]) } else { quotient }
    }

    /// Division by a power of two is a multiplication, if the inverse is a normal number.
    fn float_quotient(&mut self, x: Value, bits: u64) -> Option<Value> {
        if !matches!(self.element, Element::F16 | Element::BF16 | Element::F32 | Element::F64) {
            return None;
        }
        let (mantissa, exponent) = (self.element.mantissa_bits()?, self.element.exponent_bits()?);
        let power = bits >> mantissa & ((1 << exponent) - 1);
        // Biased exponents of a number and its inverse add up to twice the bias.
        let twice = (1 << exponent) - 2;
        if bits & ((1 << mantissa) - 1) != 0 || power == 0 || power >= twice {
            return None;
        }
        let inverse = 1.0 / float::decode(self.element, bits)?;
        let inverse = float::encode(self.element, inverse, tilewright_ir::Round::Nearest, false)?;
        let inverse = self.constant(inverse);
        Some(self.op(Opcode::Mul, &[x, inverse]))
    }
}
