//! Known factors of two: of integers, and of addresses.
//!
//! For every value the largest `k` such that it is known to be a multiple of `2^k`. Alignment comes from what parameters promise and
//! what `shared` and `local` ask for; offsets add to it by their own factors.

use tilewright_ir::{Align, Element, Func, OpData, Opcode, Region, Value};

use crate::rewrite::constant;

/// Zero is a multiple of everything; more than this nobody asks for.
const MOST: u8 = 63;

/// What is known of the values of a function.
#[derive(Debug, Clone)]
pub struct Alignment(Vec<u8>);

impl Alignment {
    /// Analyses a function.
    #[must_use]
    pub fn of(func: &Func) -> Alignment {
        let mut analysis = Analysis { func, known: vec![MOST; func.value_count()], changed: true };
        for (param, &value) in func.params.iter().zip(&func.region(func.body()).args) {
            analysis.set(value, if param.align > 0 { log(param.align) } else { 0 });
        }
        // From the assumption that everything is aligned down to what loops confirm. Factors only shrink, so this ends.
        while std::mem::replace(&mut analysis.changed, false) {
            analysis.region(func.body());
        }
        Alignment(analysis.known)
    }

    /// The alignment in bytes of an address `offset` bytes from `value`; of an integer the power of two that it is a multiple of.
    #[must_use]
    pub fn at(&self, value: Value, offset: i64) -> u64 {
        let own = self.0.get(value.index()).copied().unwrap_or(0);
        1 << own.min(factors(offset.cast_unsigned())).min(62)
    }
}

fn log(n: u32) -> u8 {
    factors(u64::from(n))
}

fn factors(bits: u64) -> u8 {
    u8::try_from(bits.trailing_zeros()).unwrap_or(0).min(MOST)
}

struct Analysis<'a> {
    func: &'a Func,
    known: Vec<u8>,
    changed: bool,
}

impl Analysis<'_> {
    fn get(&self, value: Value) -> u8 {
        self.known[value.index()]
    }

    fn set(&mut self, value: Value, factors: u8) {
        let known = &mut self.known[value.index()];
        if factors < *known {
            *known = factors;
            self.changed = true;
        }
    }

    fn region(&mut self, region: Region) {
        let func = self.func;
        for &op in &func.region(region).ops {
            let data = func.op(op);
            for (i, &inner) in data.regions.iter().enumerate() {
                self.enter(data, i);
                self.region(inner);
            }
            if data.regions.is_empty() {
                if let [result] = data.results[..] {
                    self.set(result, self.result(data, result));
                } else {
                    data.results.iter().for_each(|&result| self.set(result, 0));
                }
            } else {
                self.leave(data);
            }
        }
    }

    fn handed_over(&self, region: Region, i: usize) -> u8 {
        let end = self.func.terminator(region);
        end.and_then(|end| self.func.op(end).operands.get(i)).map_or(0, |&v| self.get(v))
    }

    /// Arguments of a region, from what enters it.
    fn enter(&mut self, data: &OpData, which: usize) {
        let func = self.func;
        for (i, &arg) in func.region(data.regions[which]).args.iter().enumerate() {
            let factors = match (data.code, which) {
                (Opcode::For, _) if i == 0 => self.get(data.operands[0]).min(self.get(data.operands[2])),
                (Opcode::For, _) => {
                    self.get(data.operands[2 + i]).min(self.handed_over(data.regions[0], i - 1))
                }
                (Opcode::While, 0) => self.get(data.operands[i]).min(self.handed_over(data.regions[1], i)),
                (Opcode::While, _) => self.handed_over(data.regions[0], i + 1),
                _ => 0,
            };
            self.set(arg, factors);
        }
    }

    fn leave(&mut self, data: &OpData) {
        for (i, &result) in data.results.iter().enumerate() {
            let factors = match data.code {
                Opcode::If => self.handed_over(data.regions[0], i).min(self.handed_over(data.regions[1], i)),
                Opcode::For => self.get(data.operands[3 + i]).min(self.handed_over(data.regions[0], i)),
                Opcode::While => self.handed_over(data.regions[0], i + 1),
                _ => 0,
            };
            self.set(result, factors);
        }
    }

    fn result(&self, data: &OpData, result: Value) -> u8 {
        let of = |i: usize| data.operands.get(i).map_or(0, |&v| self.get(v));
        match data.code {
            Opcode::Const => constant(self.func, result).map_or(0, factors),
            Opcode::Shared | Opcode::Local => {
                data.get::<Align>().map_or(0, |Align(n)| if n > 0 { log(n) } else { 0 })
            }
            Opcode::Add
            | Opcode::Sub
            | Opcode::Or
            | Opcode::Xor
            | Opcode::PtrAdd
            | Opcode::Min
            | Opcode::Max => of(0).min(of(1)),
            Opcode::And => of(0).max(of(1)),
            Opcode::Mul | Opcode::MulWide => (of(0) + of(1)).min(MOST),
            Opcode::Fma => (of(0) + of(1)).min(MOST).min(of(2)),
            Opcode::Shl => {
                let by = data.operands.get(1).and_then(|&v| constant(self.func, v)).unwrap_or(0);
                of(0).saturating_add(u8::try_from(by).unwrap_or(MOST)).min(MOST)
            }
            Opcode::Select => of(1).min(of(2)),
            Opcode::Neg | Opcode::CastSpace | Opcode::PtrToInt | Opcode::IntToPtr => of(0),
            Opcode::Cvt | Opcode::Bitcast => {
                let integer = |v: Value| self.func.ty(v).element().is_some_and(Element::is_int);
                let plain = data.attrs.is_empty() && data.operands.first().is_some_and(|&v| integer(v));
                if plain && integer(result) && self.func.ty(result).lanes() == 1 { of(0) } else { 0 }
            }
            _ => 0,
        }
    }
}
