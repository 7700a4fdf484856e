//! What a thread knows of itself: its numbers, and where its elements stand.
//!
//! All of it is made once, before everything else in the function.

use std::collections::HashMap;
use std::rc::Rc;

use tilewright_ir::{Cmp, Opcode, Special, Type, Value};

use super::Lowering;
use super::layout::{Digit, Holder, LANES, Layout};

/// What has been made so far.
#[derive(Debug, Default)]
pub(super) struct Positions {
    numbers: HashMap<Holder, Value>,
    sums: HashMap<Vec<(Holder, u32, u32, u32)>, Value>,
    inside: HashMap<(Value, u32, u32), Value>,
    first: HashMap<Vec<(Holder, u32, u32)>, Value>,
}

impl Lowering<'_> {
    /// The number of this lane, warp or block.
    pub(super) fn number(&mut self, holder: Holder) -> Value {
        if let Some(&known) = self.positions.numbers.get(&holder) {
            return known;
        }
        let special = if holder == Holder::Block { Special::ClusterCtarank } else { Special::TidX };
        let thread = self.early(Opcode::Special, [], [special.into()], Type::U32);
        let number = match holder {
            Holder::Block => thread,
            Holder::Lane => {
                let mask = self.u32(LANES - 1);
                self.early(Opcode::And, [thread, mask], [], Type::U32)
            }
            Holder::Warp => {
                let five = self.u32(5);
                let warp = self.early(Opcode::Shr, [thread, five], [], Type::U32);
                if self.teams() == 1 {
                    warp
                } else {
                    // Its number in its team.
                    let mask = self.u32(self.team().warps - 1);
                    self.early(Opcode::And, [warp, mask], [], Type::U32)
                }
            }
        };
        self.positions.numbers.insert(holder, number);
        number
    }

    /// The value of one digit of this thread.
    pub(super) fn digit(&mut self, holder: Holder, weight: u32, digit: Digit, digits: &[Digit]) -> Value {
        let number = self.number(holder);
        let total: u32 = digits.iter().map(|d| d.extent).product();
        let shifted = if weight == 1 {
            number
        } else {
            let weight = self.u32(weight);
            self.early(Opcode::Div, [number, weight], [], Type::U32)
        };
        if weight * digit.extent == total {
            return shifted;
        }
        let extent = self.u32(digit.extent);
        self.early(Opcode::Rem, [shifted, extent], [], Type::U32)
    }

    /// Where this thread's first register stands along an axis.
    pub(super) fn base(&mut self, layout: &Layout, axis: usize) -> Value {
        let own: Vec<(Holder, u32, Digit)> =
            layout.thread_digits().filter(|(.., digit)| digit.axis == Some(axis)).collect();
        let key: Vec<_> =
            own.iter().map(|&(holder, weight, d)| (holder, weight, d.extent, d.stride)).collect();
        if let Some(&known) = self.positions.sums.get(&key) {
            return known;
        }
        let mut sum = None;
        for (holder, weight, digit) in own {
            let value = self.digit(holder, weight, digit, layout.digits(holder));
            let stride = self.u32(digit.stride);
            let moved = self.early(Opcode::Mul, [value, stride], [], Type::U32);
            sum = Some(match sum {
                None => moved,
                Some(sum) => self.early(Opcode::Add, [sum, moved], [], Type::U32),
            });
        }
        let sum = sum.unwrap_or_else(|| self.u32(0));
        self.positions.sums.insert(key, sum);
        sum
    }

    /// The coordinates of all registers along an axis.
    pub(super) fn coordinates(&mut self, layout: &Rc<Layout>, axis: usize) -> Vec<Value> {
        let base = self.base(layout, axis);
        let mut known: HashMap<u32, Value> = HashMap::from([(0, base)]);
        let mut out = Vec::with_capacity(layout.count());
        for offset in layout.offsets() {
            let value = match known.get(&offset[axis]) {
                Some(&value) => value,
                None => {
                    let further = self.u32(offset[axis]);
                    let value = self.early(Opcode::Add, [base, further], [], Type::U32);
                    known.insert(offset[axis], value);
                    value
                }
            };
            out.push(value);
        }
        out
    }

    /// Whether the element of a register is one of the tile; none if all are.
    pub(super) fn is_inside(&mut self, layout: &Layout, offset: &[u32]) -> Option<Value> {
        let mut all = None;
        for (axis, &further) in offset.iter().enumerate() {
            if !layout.is_padded(axis) {
                continue;
            }
            let extent = layout.shape.extents()[axis];
            let base = self.base(layout, axis);
            let key = (base, further, extent);
            let inside = match self.positions.inside.get(&key) {
                Some(&known) => known,
                None => {
                    let (further, end) = (self.u32(further), self.u32(extent));
                    let at = self.early(Opcode::Add, [base, further], [], Type::U32);
                    let inside = self.early(Opcode::Cmp, [at, end], [Cmp::Lt.into()], Type::BOOL);
                    self.positions.inside.insert(key, inside);
                    inside
                }
            };
            all = Some(match all {
                None => inside,
                Some(all) => self.early(Opcode::And, [all, inside], [], Type::BOOL),
            });
        }
        all
    }

    /// Whether this thread is the first of those that hold the same elements; none if nobody holds copies.
    pub(super) fn is_first(&mut self, layout: &Layout) -> Option<Value> {
        let copies = layout.thread_digits().filter(|(.., digit)| digit.axis.is_none() && digit.extent > 1);
        let copies: Vec<(Holder, u32, Digit)> = copies.collect();
        self.are_zero(layout, &copies)
    }

    /// Whether these digits of the thread are all zero; none if there are none.
    pub(super) fn are_zero(&mut self, layout: &Layout, digits: &[(Holder, u32, Digit)]) -> Option<Value> {
        let key: Vec<_> = digits.iter().map(|&(holder, weight, d)| (holder, weight, d.extent)).collect();
        if let Some(&known) = self.positions.first.get(&key) {
            return Some(known);
        }
        let mut all = None;
        for &(holder, weight, digit) in digits {
            let value = self.digit(holder, weight, digit, layout.digits(holder));
            let zero = self.u32(0);
            let first = self.early(Opcode::Cmp, [value, zero], [Cmp::Eq.into()], Type::BOOL);
            all = Some(match all {
                None => first,
                Some(all) => self.early(Opcode::And, [all, first], [], Type::BOOL),
            });
        }
        if let Some(all) = all {
            self.positions.first.insert(key, all);
        }
        all
    }

    /// Both, where there are both.
    pub(super) fn both(&mut self, a: Option<Value>, b: Option<Value>) -> Option<Value> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.value(Opcode::And, [a, b], [], Type::BOOL)),
            (one, other) => one.or(other),
        }
    }
}
