//! Bodies of `map`: random code for one element.
//!
//! Everything here is exact: it has the same result wherever it is computed.

use tilewright_ir::{Builder, Cmp, Element, Loc, Op, Opcode, Round, Type, Value};

use super::random::Random;

/// What tiles are made of. The first ones compute and compare, the others do not.
pub(super) const ELEMENTS: [Element; 15] = [
    Element::F32,
    Element::F16,
    Element::BF16,
    Element::F64,
    Element::I32,
    Element::U32,
    Element::I8,
    Element::I64,
    Element::U8,
    Element::I16,
    Element::U16,
    Element::U64,
    Element::E4M3,
    Element::E5M2,
    Element::Bool,
];
/// How many of them are floats that compute, and how many compute.
const FLOATS: usize = 4;
const COMPUTING: usize = 12;

/// Random bits of an element that a kernel may meet: numbers of moderate size, and now and then a special one.
pub(super) fn sample(random: &mut Random, element: Element) -> u64 {
    let special = random.once_in(16);
    let fraction = f64::from(random.between(-4096, 4096)) / 1024.0;
    let float =
        |value: f64| tilewright_passes::float::encode(element, value, Round::Nearest, false).unwrap_or(0);
    match element {
        Element::Bool => u64::from(random.once_in(2)),
        e if e.is_float() && special => {
            float(random.pick(&[0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-7, 300.0]))
        }
        e if e.is_float() => float(fraction),
        e => {
            let bits =
                if special { random.bits() } else { i64::from(random.between(-20, 200)).cast_unsigned() };
            tilewright_ir::canonical(e, bits)
        }
    }
}

/// A small integer as the bits of an element, so small that sums of thousands are exact.
pub(super) fn small(random: &mut Random, element: Element) -> u64 {
    let value = random.between(if element.is_signed() { -8 } else { 0 }, 8);
    if element.is_float() {
        return tilewright_passes::float::encode(element, f64::from(value), Round::Nearest, false)
            .unwrap_or(0);
    }
    if element.is_bool() { u64::from(value > 0) } else { i64::from(value).cast_unsigned() }
}

/// Code for one element, under construction.
pub(super) struct Body<'a> {
    pub(super) b: &'a mut Builder,
    pub(super) random: &'a mut Random,
    /// What can be used here.
    pub(super) pool: Vec<(Value, Element)>,
    /// How deep ifs and loops are nested.
    pub(super) depth: u32,
}

impl Body<'_> {
    fn emit(
        &mut self,
        code: Opcode,
        operands: &[Value],
        attrs: &[tilewright_ir::Attr],
        to: Option<Element>,
    ) -> Value {
        let operands = operands.iter().copied();
        let value = self.b.value(code, operands, attrs.iter().cloned(), to.map(Type::Scalar), Loc::NONE);
        if let Some(element) = self.b.func.ty(value).element() {
            self.pool.push((value, element));
        }
        value
    }

    pub(super) fn constant(&mut self, element: Element, bits: u64) -> Value {
        self.b.constant(Type::Scalar(element), bits, Loc::NONE)
    }

    /// A value of a type: one that is there, a constant, or another one converted.
    pub(super) fn of(&mut self, element: Element) -> Value {
        let there: Vec<Value> = self.pool.iter().filter(|(_, e)| *e == element).map(|(v, _)| *v).collect();
        if !there.is_empty() && !self.random.once_in(8) {
            // The last ones are likely to be unused.
            let recent = there.len().min(4);
            let from = if self.random.once_in(2) { there.len() - recent } else { 0 };
            return there[from + self.random.index(there.len() - from)];
        }
        let others: Vec<(Value, Element)> =
            self.pool.iter().copied().filter(|(_, e)| converts(*e, element)).collect();
        if others.is_empty() || self.random.once_in(2) {
            let bits = sample(self.random, element);
            return self.constant(element, bits);
        }
        let (value, _) = self.random.pick(&others);
        self.emit(Opcode::Cvt, &[value], &[], Some(element))
    }

    /// A few statements.
    pub(super) fn statements(&mut self, count: u32) {
        for _ in 0..count {
            self.statement();
        }
    }

    fn statement(&mut self) {
        let int = self.random.pick(&ELEMENTS[FLOATS..COMPUTING]);
        let float = self.random.pick(&ELEMENTS[..FLOATS]);
        match self.random.below(15) {
            0..=2 => {
                let codes = [
                    Opcode::Add,
                    Opcode::Sub,
                    Opcode::Mul,
                    Opcode::And,
                    Opcode::Or,
                    Opcode::Xor,
                    Opcode::Min,
                    Opcode::Max,
                ];
                let (code, a, b) = (self.random.pick(&codes), self.of(int), self.of(int));
                self.emit(code, &[a, b], &[], None);
            }
            3 => {
                let (a, n) = (self.of(int), self.of(Element::U32));
                let code = self.random.pick(&[Opcode::Shl, Opcode::Shr]);
                self.emit(code, &[a, n], &[], None);
            }
            4 => {
                let a = self.of(int);
                let code =
                    self.random.pick(&[Opcode::Neg, Opcode::Not, Opcode::Popc, Opcode::Clz, Opcode::Abs]);
                // There is no absolute value of what has no sign.
                let code = if code == Opcode::Abs && !int.is_signed() { Opcode::Not } else { code };
                self.emit(code, &[a], &[], None);
            }
            5 => {
                // Also by zero, now and then.
                let (a, b) = (self.of(int), self.of(int));
                let code = self.random.pick(&[Opcode::Div, Opcode::Rem]);
                self.emit(code, &[a, b], &[], None);
            }
            6..=7 => {
                let codes = [Opcode::Add, Opcode::Sub, Opcode::Mul, Opcode::Min, Opcode::Max, Opcode::Div];
                let (code, a, b) = (self.random.pick(&codes), self.of(float), self.of(float));
                self.emit(code, &[a, b], &[], None);
            }
            8 => {
                let ty = if self.random.once_in(2) { float } else { int };
                let (a, b, c) = (self.of(ty), self.of(ty), self.of(ty));
                self.emit(Opcode::Fma, &[a, b, c], &[], None);
            }
            9 => {
                let a = self.of(float);
                let code = self.random.pick(&[Opcode::Neg, Opcode::Abs]);
                self.emit(code, &[a], &[], None);
                let x = self.of(Element::F32);
                if self.random.once_in(2) {
                    let mode = self.random.pick(&[Round::Nearest, Round::Zero, Round::Down, Round::Up]);
                    self.emit(Opcode::RoundInt, &[x], &[mode.into()], None);
                } else {
                    self.emit(Opcode::Sqrt, &[x], &[Round::Nearest.into()], None);
                }
            }
            10 => {
                self.condition();
            }
            11 => {
                let codes = [Opcode::And, Opcode::Or, Opcode::Xor];
                let (code, a, b) = (self.random.pick(&codes), self.of(Element::Bool), self.of(Element::Bool));
                let c = self.emit(code, &[a, b], &[], None);
                self.emit(Opcode::Not, &[c], &[], None);
            }
            12 => {
                let element = self.random.pick(&ELEMENTS);
                let (c, a, b) = (self.of(Element::Bool), self.of(element), self.of(element));
                self.emit(Opcode::Select, &[c, a, b], &[], None);
            }
            _ if self.depth < 2 => self.control(),
            _ => {}
        }
    }

    fn condition(&mut self) -> Value {
        let element = self.random.pick(&ELEMENTS[..COMPUTING]);
        let (a, b, cmp) = (self.of(element), self.of(element), self.random.pick(Cmp::ALL));
        self.emit(Opcode::Cmp, &[a, b], &[cmp.into()], None)
    }

    fn control(&mut self) {
        let carried: Vec<Element> =
            (0..1 + self.random.below(2)).map(|_| self.random.pick(&ELEMENTS)).collect();
        let types: Vec<Type> = carried.iter().map(|&e| Type::Scalar(e)).collect();
        if !self.random.once_in(3) {
            let condition = self.condition();
            let op = self.b.push(Opcode::If, [condition], [], types, Loc::NONE);
            for _ in 0..2 {
                let mark = self.pool.len();
                self.b.open(op);
                self.region(&carried, mark);
            }
            return self.results(op);
        }
        // Elements loop a different number of times, if the bound is one of their own.
        let (zero, one, few) =
            (self.constant(Element::U32, 0), self.constant(Element::U32, 1), self.constant(Element::U32, 3));
        let bound = self.of(Element::U32);
        let bound = self.emit(Opcode::And, &[bound, few], &[], None);
        let mut operands = vec![zero, bound, one];
        for &element in &carried {
            operands.push(self.of(element));
        }
        let op = self.b.push(Opcode::For, operands, [], types, Loc::NONE);
        let mark = self.pool.len();
        let body = self.b.open(op);
        let counter = self.b.func.add_arg(body, Type::U32);
        self.pool.push((counter, Element::U32));
        for &element in &carried {
            let arg = self.b.func.add_arg(body, Type::Scalar(element));
            self.pool.push((arg, element));
        }
        self.region(&carried, mark);
        self.results(op);
    }

    /// Fills the open region, closes it, and forgets its values.
    fn region(&mut self, gives: &[Element], mark: usize) {
        self.depth += 1;
        let count = 1 + self.random.below(3);
        self.statements(count);
        self.depth -= 1;
        let values: Vec<Value> = gives.iter().map(|&element| self.of(element)).collect();
        self.b.push(Opcode::Yield, values, [], [], Loc::NONE);
        self.b.close();
        self.pool.truncate(mark);
    }

    fn results(&mut self, op: Op) {
        for value in self.b.func.op(op).results.clone() {
            if let Some(element) = self.b.func.ty(value).element() {
                self.pool.push((value, element));
            }
        }
    }
}

/// Whether a conversion exists that means the same everywhere.
pub(super) fn converts(from: Element, to: Element) -> bool {
    from != to && !(from.is_float() && to.is_bool())
}

/// Whether it is a float that does nothing but convert.
pub(super) fn only_converts(element: Element) -> bool {
    matches!(element, Element::E4M3 | Element::E5M2)
}
