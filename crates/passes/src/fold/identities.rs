//! Identities of single ops: each is exact for all operands, floats included.

use tilewright_ir::{Attr, Cmp, Element, Op, Opcode, Round, Type, Value, canonical};

use super::{Folder, Step, ones};
use crate::rewrite::{constant, definition};

impl Folder<'_> {
    /// Tries every identity of a pure op with one result. `constants` are the operands that are known.
    pub(super) fn identity(
        &mut self,
        op: Op,
        ty: Type,
        constants: &[Option<u64>],
        out: &mut Vec<Op>,
    ) -> Step {
        if let [Some(_), None, ..] = constants
            && self.swap(op)
        {
            return Step::Again;
        }
        let code = self.func.op(op).code;
        match code {
            Opcode::Select => self.select(op, constants),
            Opcode::Cmp => self.cmp(op, constants),
            Opcode::Cvt | Opcode::Bitcast | Opcode::PtrToInt | Opcode::IntToPtr | Opcode::CastSpace => {
                self.conversion(op, ty)
            }
            Opcode::PtrAdd => self.ptr_add(op, constants, out),
            Opcode::Extract | Opcode::Insert | Opcode::Slice | Opcode::Concat | Opcode::Pack => {
                self.vector(op, ty)
            }
            Opcode::Neg | Opcode::Not | Opcode::Abs => self.unary(op),
            Opcode::Prmt => match (constants[2], self.func.op(op).attrs.is_empty()) {
                (Some(0x3210), true) => Step::Is(self.func.op(op).operands[0]),
                (Some(0x7654), true) => Step::Is(self.func.op(op).operands[1]),
                _ => Step::Keep,
            },
            _ => match ty.element() {
                Some(element) if element.is_int() || element.is_bool() => {
                    self.integer(op, ty, element, constants, out)
                }
                Some(element) if element.is_float() => self.float(op, element, constants),
                _ => Step::Keep,
            },
        }
    }

    /// Puts a constant to the right of a commutative op.
    fn swap(&mut self, op: Op) -> bool {
        let data = self.func.op_mut(op);
        match data.code {
            Opcode::Add
            | Opcode::Mul
            | Opcode::MulHi
            | Opcode::MulWide
            | Opcode::Fma
            | Opcode::And
            | Opcode::Or
            | Opcode::Xor
            | Opcode::Min
            | Opcode::Max => {}
            Opcode::Cmp => match data.get::<Cmp>() {
                Some(cmp) => data.set(mirrored(cmp)),
                None => return false,
            },
            _ => return false,
        }
        data.operands.swap(0, 1);
        true
    }

    fn integer(
        &mut self,
        op: Op,
        ty: Type,
        element: Element,
        constants: &[Option<u64>],
        out: &mut Vec<Op>,
    ) -> Step {
        let data = self.func.op(op);
        let (code, loc) = (data.code, data.loc);
        if !data.flags().is_empty() || data.operands.len() < 2 {
            return Step::Keep;
        }
        let (a, b) = (data.operands[0], data.operands[1]);
        let scalar = matches!(ty, Type::Scalar(_));
        let minus_one = ones(element);
        let zero = || if scalar { Step::Constant(0) } else { Step::Keep };
        let known = constants[1];
        match (code, known) {
            (Opcode::Add | Opcode::Or | Opcode::Xor | Opcode::Shl | Opcode::Shr, Some(0)) => Step::Is(a),
            (Opcode::Mul | Opcode::Div, Some(1)) => Step::Is(a),
            (Opcode::Mul | Opcode::MulHi | Opcode::MulWide | Opcode::And, Some(0)) => Step::Constant(0),
            (Opcode::MulHi, Some(1)) if !element.is_signed() => Step::Constant(0),
            (Opcode::Rem, Some(1)) => Step::Constant(0),
            (Opcode::Mul, Some(c)) if c == minus_one => self.become_(op, Opcode::Neg, &[a]),
            (Opcode::MulWide, Some(1)) => self.become_(op, Opcode::Cvt, &[a]),
            (Opcode::And, Some(c)) if c == minus_one => Step::Is(a),
            (Opcode::Or, Some(c)) if c == minus_one => Step::Constant(c),
            (Opcode::Xor, Some(c)) if c == minus_one => self.become_(op, Opcode::Not, &[a]),
            (Opcode::And | Opcode::Or | Opcode::Min | Opcode::Max, None) if a == b => Step::Is(a),
            (Opcode::Sub | Opcode::Xor, None) if a == b => zero(),
            (Opcode::Sub, None) if constants[0] == Some(0) => self.become_(op, Opcode::Neg, &[b]),
            (Opcode::Sub, Some(c)) if scalar => {
                let negated = self.constant(out, ty, c.wrapping_neg(), loc);
                self.become_(op, Opcode::Add, &[a, negated])
            }
            (Opcode::Shl, Some(n)) if n >= u64::from(element.bits()) => zero(),
            (Opcode::Shr, Some(n)) if n >= u64::from(element.bits()) && !element.is_signed() => zero(),
            (Opcode::Shl | Opcode::Shr, None) if constants[0] == Some(0) => zero(),
            (Opcode::Fma, _) => match (known, constants[2]) {
                (Some(0), _) => Step::Is(data.operands[2]),
                (Some(1), _) => {
                    let c = data.operands[2];
                    self.become_(op, Opcode::Add, &[a, c])
                }
                (_, Some(0)) => self.become_(op, Opcode::Mul, &[a, b]),
                _ => Step::Keep,
            },
            (_, Some(c)) => self.chain(op, ty, element, c, out),
            _ => Step::Keep,
        }
    }

    /// `(x op c1) op c2` is `x op (c1 op c2)`.
    fn chain(&mut self, op: Op, ty: Type, element: Element, outer: u64, out: &mut Vec<Op>) -> Step {
        let data = self.func.op(op);
        let (code, loc) = (data.code, data.loc);
        let Some(inner) =
            definition(self.func, data.operands[0]).filter(|d| d.code == code && d.flags().is_empty())
        else {
            return Step::Keep;
        };
        let (x, Some(first)) =
            (inner.operands[0], inner.operands.get(1).and_then(|&v| constant(self.func, v)))
        else {
            return Step::Keep;
        };
        let width = u64::from(element.bits());
        let (ty, both) = match code {
            Opcode::Add => (ty, first.wrapping_add(outer)),
            Opcode::Mul => (ty, first.wrapping_mul(outer)),
            Opcode::And => (ty, first & outer),
            Opcode::Or => (ty, first | outer),
            Opcode::Xor => (ty, first ^ outer),
            // Amounts beyond the width mean the same as the width, so the sum may be cut there.
            Opcode::Shl | Opcode::Shr => (Type::U32, first.min(width) + outer.min(width)),
            _ => return Step::Keep,
        };
        let both = self.constant(out, ty, both, loc);
        self.func.op_mut(op).operands = [x, both].into_iter().collect();
        Step::Again
    }

    fn float(&mut self, op: Op, element: Element, constants: &[Option<u64>]) -> Step {
        let data = self.func.op(op);
        let rounds = data.get::<Round>().is_none_or(|mode| mode == Round::Nearest);
        if !data.flags().is_empty()
            || !rounds
            || !matches!(element, Element::F16 | Element::BF16 | Element::F32 | Element::F64)
        {
            return Step::Keep;
        }
        let one = match element {
            Element::F16 => 0x3c00,
            Element::BF16 => 0x3f80,
            Element::F32 => 0x3f80_0000,
            _ => 0x3ff0_0000_0000_0000,
        };
        let minus_zero = 1 << (element.bits() - 1);
        let a = data.operands[0];
        match (data.code, constants.get(1).copied().flatten()) {
            (Opcode::Mul | Opcode::Div, Some(c)) if c == one => Step::Is(a),
            // x + +0 is not x for x = -0.
            (Opcode::Add, Some(c)) if c == minus_zero => Step::Is(a),
            (Opcode::Sub, Some(0)) => Step::Is(a),
            (Opcode::Min | Opcode::Max, None) if a == data.operands[1] => Step::Is(a),
            _ => Step::Keep,
        }
    }

    fn unary(&mut self, op: Op) -> Step {
        let data = self.func.op(op);
        let Some(inner) = definition(self.func, data.operands[0]) else { return Step::Keep };
        if !data.flags().is_empty() || !inner.flags().is_empty() {
            return Step::Keep;
        }
        match (data.code, inner.code) {
            (Opcode::Neg, Opcode::Neg) | (Opcode::Not, Opcode::Not) => Step::Is(inner.operands[0]),
            (Opcode::Abs, Opcode::Abs) => Step::Is(data.operands[0]),
            (Opcode::Not, Opcode::Cmp) => {
                let float = self.func.ty(inner.operands[0]).element().is_some_and(Element::is_float);
                match inner.get::<Cmp>() {
                    Some(cmp) if !float || matches!(cmp, Cmp::Eq | Cmp::Ne) => {
                        let operands = inner.operands.clone();
                        self.become_with(op, Opcode::Cmp, &operands, &[inverted(cmp).into()])
                    }
                    _ => Step::Keep,
                }
            }
            _ => Step::Keep,
        }
    }

    fn select(&mut self, op: Op, constants: &[Option<u64>]) -> Step {
        let operands = &self.func.op(op).operands;
        let (condition, a, b) = (operands[0], operands[1], operands[2]);
        match constants {
            [Some(0), ..] => return Step::Is(b),
            [Some(_), ..] => return Step::Is(a),
            [_, Some(x), Some(y)] if x == y => return Step::Is(a),
            _ if a == b => return Step::Is(a),
            [_, Some(1), Some(0)] if self.func.ty(a) == Type::BOOL => return Step::Is(condition),
            [_, Some(0), Some(1)] if self.func.ty(a) == Type::BOOL => {
                return self.become_(op, Opcode::Not, &[condition]);
            }
            _ => {}
        }
        match definition(self.func, condition) {
            Some(inner) if inner.code == Opcode::Not => {
                let inner = inner.operands[0];
                self.become_(op, Opcode::Select, &[inner, b, a])
            }
            _ => Step::Keep,
        }
    }

    fn cmp(&mut self, op: Op, constants: &[Option<u64>]) -> Step {
        let data = self.func.op(op);
        let Some(cmp) = data.get::<Cmp>() else { return Step::Keep };
        let (a, b) = (data.operands[0], data.operands[1]);
        let element = self.func.ty(a).element();
        if element.is_none_or(Element::is_float) {
            return Step::Keep;
        }
        let unsigned = element.is_some_and(|e| !e.is_signed());
        match (cmp, constants[1]) {
            _ if a == b => Step::Constant(u64::from(matches!(cmp, Cmp::Eq | Cmp::Le | Cmp::Ge))),
            (Cmp::Eq, Some(1)) | (Cmp::Ne, Some(0)) if element == Some(Element::Bool) => Step::Is(a),
            (Cmp::Eq, Some(0)) | (Cmp::Ne, Some(1)) if element == Some(Element::Bool) => {
                self.become_(op, Opcode::Not, &[a])
            }
            (Cmp::Lt, Some(0)) if unsigned => Step::Constant(0),
            (Cmp::Ge, Some(0)) if unsigned => Step::Constant(1),
            _ => Step::Keep,
        }
    }

    fn conversion(&mut self, op: Op, ty: Type) -> Step {
        let data = self.func.op(op);
        let (code, x) = (data.code, data.operands[0]);
        if !data.attrs.is_empty() {
            return Step::Keep;
        }
        let from = self.func.ty(x);
        if from == ty {
            return Step::Is(x);
        }
        if code == Opcode::Bitcast
            && let Some(bits) = self.packed_bits(x)
            && matches!(ty, Type::Scalar(_))
        {
            return Step::Constant(ty.element().map_or(bits, |e| canonical(e, bits)));
        }
        let Some(inner) =
            definition(self.func, x).filter(|inner| inner.attrs.is_empty() && inner.operands.len() == 1)
        else {
            return Step::Keep;
        };
        let origin = inner.operands[0];
        let source = self.func.ty(origin);
        match (code, inner.code) {
            (Opcode::Bitcast, Opcode::Bitcast) => self.become_(op, Opcode::Bitcast, &[origin]),
            (Opcode::PtrToInt, Opcode::IntToPtr) | (Opcode::IntToPtr, Opcode::PtrToInt) if source == ty => {
                Step::Is(origin)
            }
            (Opcode::Cvt, Opcode::Cvt) => {
                let (Some(s), Some(m), Some(t)) = (source.element(), from.element(), ty.element()) else {
                    return Step::Keep;
                };
                if !(s.is_int() && m.is_int() && t.is_int()) {
                    return Step::Keep;
                }
                // Cut to no more than the middle, only the low bits matter; beyond it, the middle must have kept the value.
                let keeps_value = m.bits() > s.bits() && (!s.is_signed() || m.is_signed());
                if t.bits() <= m.bits() || keeps_value {
                    self.become_(op, Opcode::Cvt, &[origin])
                } else {
                    Step::Keep
                }
            }
            _ => Step::Keep,
        }
    }

    fn ptr_add(&mut self, op: Op, constants: &[Option<u64>], out: &mut Vec<Op>) -> Step {
        let data = self.func.op(op);
        let (pointer, offset, loc) = (data.operands[0], data.operands[1], data.loc);
        let ty = self.func.ty(offset);
        if let Some(outer) = constants[1] {
            if outer == 0 {
                return Step::Is(pointer);
            }
            let Some(inner) = definition(self.func, pointer).filter(|d| d.code == Opcode::PtrAdd) else {
                return Step::Keep;
            };
            let base = inner.operands[0];
            let Some(first) = constant(self.func, inner.operands[1]) else { return Step::Keep };
            let both = self.constant(out, ty, first.wrapping_add(outer), loc);
            return self.become_(op, Opcode::PtrAdd, &[base, both]);
        }
        // The constant part goes outermost: accesses take it as an immediate.
        let Some(sum) =
            definition(self.func, offset).filter(|d| d.code == Opcode::Add && d.flags().is_empty())
        else {
            return Step::Keep;
        };
        let (x, c) = (sum.operands[0], sum.operands[1]);
        if constant(self.func, c).is_none() {
            return Step::Keep;
        }
        let base_ty = self.func.ty(pointer);
        let base = self.emit(out, Opcode::PtrAdd, &[pointer, x], &[], base_ty, loc);
        self.become_(op, Opcode::PtrAdd, &[base, c])
    }

    /// Turns an op into another with the same result.
    pub(super) fn become_(&mut self, op: Op, code: Opcode, operands: &[Value]) -> Step {
        self.become_with(op, code, operands, &[])
    }

    pub(super) fn become_with(&mut self, op: Op, code: Opcode, operands: &[Value], attrs: &[Attr]) -> Step {
        let data = self.func.op_mut(op);
        data.code = code;
        data.operands = operands.iter().copied().collect();
        data.attrs = attrs.iter().cloned().collect();
        Step::Again
    }
}

fn mirrored(cmp: Cmp) -> Cmp {
    match cmp {
        Cmp::Eq => Cmp::Eq,
        Cmp::Ne => Cmp::Ne,
        Cmp::Lt => Cmp::Gt,
        Cmp::Le => Cmp::Ge,
        Cmp::Gt => Cmp::Lt,
        Cmp::Ge => Cmp::Le,
    }
}

fn inverted(cmp: Cmp) -> Cmp {
    match cmp {
        Cmp::Eq => Cmp::Ne,
        Cmp::Ne => Cmp::Eq,
        Cmp::Lt => Cmp::Ge,
        Cmp::Le => Cmp::Gt,
        Cmp::Gt => Cmp::Le,
        Cmp::Ge => Cmp::Lt,
    }
}
