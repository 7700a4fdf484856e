//! `setp`, `set` and `testp`.
#![allow(clippy::cast_possible_truncation, reason = "reading a lane means taking its low bits")]

use tilewright_ptx::{Instruction, Modifier, Opcode, Type};

use super::Lanes;
use super::decode::Words;
use super::dispatch::fast;
use super::float::{Binary16, Brain16, Half};
use super::word::{Word, map1, test2};

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Both are numbers.
    Num,
    /// One is not a number.
    Nan,
}

/// How a result is combined with a predicate: `.and`, `.or`, `.xor` of `setp`, `set` and `lop3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Logic {
    /// `.and`
    And,
    /// `.or`
    Or,
    /// `.xor`
    Xor,
}

impl Logic {
    pub(super) fn of(word: Modifier) -> Option<Logic> {
        Some(match word {
            Modifier::AndOp => Logic::And,
            Modifier::OrOp => Logic::Or,
            Modifier::XorOp => Logic::Xor,
            _ => return None,
        })
    }

    /// Lane by lane.
    pub fn apply(self, a: u32, b: u32) -> u32 {
        match self {
            Logic::And => a & b,
            Logic::Or => a | b,
            Logic::Xor => a ^ b,
        }
    }
}

/// A comparison of two sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compare {
    relation: Relation,
    /// True where one is not a number: `.equ` and the like.
    unordered: bool,
    ty: Type,
    ftz: bool,
    logic: Option<Logic>,
}

impl Compare {
    /// The comparison among the words; `ty` is the type of its sources.
    fn decode(words: &Words, ty: Type) -> Option<Compare> {
        use Modifier as M;
        let float = matches!(ty, Type::F16 | Type::F16x2 | Type::F32 | Type::F64 | Type::Bf16 | Type::Bf16x2);
        let unsigned = matches!(ty, Type::U16 | Type::U32 | Type::U64);
        let signed = matches!(ty, Type::S16 | Type::S32 | Type::S64);
        let bits = matches!(ty, Type::B16 | Type::B32 | Type::B64);
        if !(float || unsigned || signed || bits) {
            return None;
        }
        let relation = words.one(|word| {
            Some(match word {
                M::Eq => (Relation::Eq, false),
                M::Ne => (Relation::Ne, false),
                M::Lt | M::Lo => (Relation::Lt, false),
                M::Le | M::Ls => (Relation::Le, false),
                M::Gt | M::Hi => (Relation::Gt, false),
                M::Ge | M::Hs => (Relation::Ge, false),
                M::Equ => (Relation::Eq, true),
                M::Neu => (Relation::Ne, true),
                M::Ltu => (Relation::Lt, true),
                M::Leu => (Relation::Le, true),
                M::Gtu => (Relation::Gt, true),
                M::Geu => (Relation::Ge, true),
                M::Num => (Relation::Num, false),
                M::NanTest => (Relation::Nan, true),
                _ => return None,
            })
        });
        let (relation, unordered) = relation.ok()??;
        let logic = words.one(Logic::of).ok()?;
        let ftz = words.has(M::Ftz);
        let words_of_sign = [M::Lo, M::Ls, M::Hi, M::Hs];
        let fits = match (float, bits) {
            (true, _) => !words.rest.iter().any(|word| words_of_sign.contains(word)),
            (_, true) => matches!(relation, Relation::Eq | Relation::Ne) && !unordered,
            _ if signed => !words.rest.iter().any(|word| words_of_sign.contains(word)) && !unordered,
            _ => !unordered,
        };
        let number = matches!(relation, Relation::Num | Relation::Nan) && !float;
        let flushed = ftz && !matches!(ty, Type::F32 | Type::F16 | Type::F16x2);
        let count = 1 + usize::from(logic.is_some()) + usize::from(ftz);
        if !fits || number || flushed || words.rest.len() != count {
            return None;
        }
        Some(Compare { relation, unordered, ty, ftz, logic })
    }

    fn packed(&self) -> bool {
        matches!(self.ty, Type::F16x2 | Type::Bf16x2)
    }

    /// The plain outcome, of the low half and the high half where there are two; else the second is empty.
    #[inline(always)]
    fn outcome(&self, a: &Lanes, b: &Lanes) -> (u32, u32) {
        let alone = match self.ty {
            Type::U16 | Type::B16 => self.ordered::<u16>(a, b, |value| value),
            Type::S16 => self.ordered::<i16>(a, b, |value| value),
            Type::U32 | Type::B32 => self.ordered::<u32>(a, b, |value| value),
            Type::S32 => self.ordered::<i32>(a, b, |value| value),
            Type::U64 | Type::B64 => self.ordered::<u64>(a, b, |value| value),
            Type::S64 => self.ordered::<i64>(a, b, |value| value),
            Type::F32 if self.ftz => self.ordered(a, b, |value: f32| {
                let tiny = value.to_bits() & 0x7f80_0000 == 0;
                if tiny { 0.0 } else { value }
            }),
            Type::F32 => self.ordered(a, b, |value: f32| value),
            Type::F64 => self.ordered(a, b, |value: f64| value),
            Type::F16 | Type::F16x2 => self.halves::<Binary16>(a, b),
            _ => self.halves::<Brain16>(a, b),
        };
        let upper = |lanes: &Lanes| map1(lanes, |lane: u32| lane >> 16);
        let high = match self.ty {
            Type::F16x2 => self.halves::<Binary16>(&upper(a), &upper(b)),
            Type::Bf16x2 => self.halves::<Brain16>(&upper(a), &upper(b)),
            _ => 0,
        };
        (alone, high)
    }

    #[inline(always)]
    fn halves<H: Half>(&self, a: &Lanes, b: &Lanes) -> u32 {
        let up = |lanes: &Lanes| {
            map1(lanes, |lane: u32| {
                let bits = lane as u16;
                H::up(if self.ftz { H::flush(bits) } else { bits })
            })
        };
        self.ordered(&up(a), &up(b), |value: f32| value)
    }

    #[inline(always)]
    fn ordered<T: Word + PartialOrd>(&self, a: &Lanes, b: &Lanes, of: impl Fn(T) -> T) -> u32 {
        #[allow(clippy::eq_op, reason = "a NaN is what differs from itself; integers never do")]
        let nan = |a: T, b: T| a != a || b != b;
        match (self.relation, self.unordered) {
            (Relation::Eq, false) => test2(a, b, |a, b| of(a) == of(b)),
            (Relation::Ne, false) => test2(a, b, |a, b| of(a) < of(b) || of(a) > of(b)),
            (Relation::Lt, false) => test2(a, b, |a, b| of(a) < of(b)),
            (Relation::Le, false) => test2(a, b, |a, b| of(a) <= of(b)),
            (Relation::Gt, false) => test2(a, b, |a, b| of(a) > of(b)),
            (Relation::Ge, false) => test2(a, b, |a, b| of(a) >= of(b)),
            (Relation::Eq, true) => test2(a, b, |a, b| of(a) == of(b) || nan(a, b)),
            (Relation::Ne, true) => test2(a, b, |a, b| of(a) != of(b)),
            (Relation::Lt, true) => test2(a, b, |a, b| of(a) < of(b) || nan(a, b)),
            (Relation::Le, true) => test2(a, b, |a, b| of(a) <= of(b) || nan(a, b)),
            (Relation::Gt, true) => test2(a, b, |a, b| of(a) > of(b) || nan(a, b)),
            (Relation::Ge, true) => test2(a, b, |a, b| of(a) >= of(b) || nan(a, b)),
            (Relation::Num, _) => test2(a, b, |a, b| !nan(a, b)),
            (Relation::Nan, _) => test2(a, b, nan),
        }
    }

    fn combine(&self, outcome: u32, c: u32) -> u32 {
        self.logic.map_or(outcome, |logic| logic.apply(outcome, c))
    }
}

/// The properties that `testp` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    Finite,
    Infinite,
    Number,
    Notanumber,
    Normal,
    Subnormal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Compare(Compare),
    Property(Property),
}

/// `setp` and `testp`: lanes to predicates.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier, Opcode};
/// use tilewright_sim::number::Test;
/// let less = Instruction::new(Opcode::Setp, &[Modifier::Lt, Modifier::U32], []);
/// let lanes: [u64; 32] = std::array::from_fn(|lane| lane as u64);
/// let (p, q) = Test::decode(&less).unwrap().apply(&lanes, &[2; 32], 0);
/// assert_eq!((p, q), (0b11, !0b11));
/// ```
#[derive(Clone, Debug)]
pub struct Test {
    question: Question,
    sources: [Type; 2],
}

impl Test {
    /// From opcode and modifiers; `None` for everything but `setp` and `testp`, and for modifiers that they do not have.
    pub fn decode(instruction: &Instruction) -> Option<Test> {
        use Modifier as M;
        let words = Words::of(instruction);
        let &[ty] = &words.types[..] else { return None };
        let question = match instruction.opcode {
            Opcode::Setp => Question::Compare(Compare::decode(&words, ty)?),
            Opcode::Testp if matches!(ty, Type::F32 | Type::F64) => {
                Question::Property(match words.rest[..] {
                    [M::Finite] => Property::Finite,
                    [M::Infinite] => Property::Infinite,
                    [M::Number] => Property::Number,
                    [M::Notanumber] => Property::Notanumber,
                    [M::Normal] => Property::Normal,
                    [M::Subnormal] => Property::Subnormal,
                    _ => return None,
                })
            }
            _ => return None,
        };
        Some(Test { question, sources: [ty; 2] })
    }

    /// The types in which the sources are read: two, or one for `testp`.
    pub fn sources(&self) -> &[Type] {
        match self.question {
            Question::Compare(_) => &self.sources,
            Question::Property(_) => &self.sources[..1],
        }
    }

    /// How the predicate source takes part; `None` where the instruction has no such source.
    pub fn logic(&self) -> Option<Logic> {
        match self.question {
            Question::Compare(compare) => compare.logic,
            Question::Property(_) => None,
        }
    }

    /// The two predicates. `c` is the predicate source, already negated where it was written `!c`; without `.BoolOp` it
    /// does not count. For packed pairs the first result is that of the low halves and the second that of the high ones;
    /// otherwise the second is that of the opposite comparison.
    pub fn apply(&self, a: &Lanes, b: &Lanes, c: u32) -> (u32, u32) {
        match self.question {
            Question::Compare(compare) => {
                let (low, high) =
                    fast!(compare.outcome(a, b); compare: Compare, a: &Lanes, b: &Lanes => (u32, u32));
                let second = if compare.packed() { high } else { !low };
                (compare.combine(low, c), compare.combine(second, c))
            }
            Question::Property(property) => {
                let mask = if self.sources[0] == Type::F32 {
                    classify(a, |value: f32| property.of(value.classify()))
                } else {
                    classify(a, |value: f64| property.of(value.classify()))
                };
                (mask, !mask)
            }
        }
    }
}

impl Property {
    /// Zeros count as normal numbers.
    fn of(self, category: std::num::FpCategory) -> bool {
        use std::num::FpCategory as C;
        match self {
            Property::Finite => !matches!(category, C::Infinite | C::Nan),
            Property::Infinite => category == C::Infinite,
            Property::Number => category != C::Nan,
            Property::Notanumber => category == C::Nan,
            Property::Normal => matches!(category, C::Normal | C::Zero),
            Property::Subnormal => category == C::Subnormal,
        }
    }
}

fn classify<T: Word>(a: &Lanes, f: impl Fn(T) -> bool) -> u32 {
    test2(a, a, |value, _| f(value))
}

/// `set`: like `setp`, with a number as result; all ones or 1.0 where true, 0 where false.
///
/// It is not a [`Map`](super::Map) because of its predicate source.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier, Opcode};
/// use tilewright_sim::number::Set;
/// let equal = Instruction::new(Opcode::Set, &[Modifier::Eq, Modifier::F32, Modifier::S32], []);
/// let result = Set::decode(&equal).unwrap().apply(&[5; 32], &[5; 32], 0);
/// assert_eq!(result[0], u64::from(1f32.to_bits()));
/// ```
#[derive(Clone, Debug)]
pub struct Set {
    compare: Compare,
    sources: [Type; 2],
    destination: Type,
}

impl Set {
    /// From opcode and modifiers; `None` for everything but `set`, and for modifiers that it does not have.
    pub fn decode(instruction: &Instruction) -> Option<Set> {
        let words = Words::of(instruction);
        let &[destination, ty] = &words.types[..] else { return None };
        let allowed: &[Type] = match ty {
            Type::F16 => &[Type::F16, Type::U16, Type::S16, Type::U32, Type::S32],
            Type::Bf16 => &[Type::Bf16, Type::U16, Type::S16, Type::U32, Type::S32],
            Type::F16x2 => &[Type::F16x2, Type::U32, Type::S32],
            Type::Bf16x2 => &[Type::Bf16x2, Type::U32, Type::S32],
            _ => &[Type::U32, Type::S32, Type::F32],
        };
        if instruction.opcode != Opcode::Set || !allowed.contains(&destination) {
            return None;
        }
        Some(Set { compare: Compare::decode(&words, ty)?, sources: [ty; 2], destination })
    }

    /// The types in which the sources are read.
    pub fn sources(&self) -> &[Type] {
        &self.sources
    }

    /// How the predicate source takes part; `None` where the instruction has no such source.
    pub fn logic(&self) -> Option<Logic> {
        self.compare.logic
    }

    /// The type of the result.
    pub fn destination(&self) -> Type {
        self.destination
    }

    /// The result; `c` as for [`Test::apply`].
    pub fn apply(&self, a: &Lanes, b: &Lanes, c: u32) -> Lanes {
        let compare = self.compare;
        let (low, high) = fast!(compare.outcome(a, b); compare: Compare, a: &Lanes, b: &Lanes => (u32, u32));
        let (low, high) = (compare.combine(low, c), compare.combine(high, c));
        let one: u64 = match self.destination {
            Type::F32 => u64::from(1f32.to_bits()),
            Type::F16 | Type::F16x2 => u64::from(Binary16::ONE),
            Type::Bf16 | Type::Bf16x2 => u64::from(Brain16::ONE),
            Type::U16 | Type::S16 => 0xffff,
            _ if compare.packed() => 0xffff,
            _ => 0xffff_ffff,
        };
        let bit = |mask: u32, lane: usize| 0u64.wrapping_sub(u64::from(mask >> lane & 1)) & one;
        std::array::from_fn(|lane| match compare.packed() {
            true => bit(low, lane) | bit(high, lane) << 16,
            false => bit(low, lane),
        })
    }
}
