//! Every arithmetic instruction of PTX as a function on the 32 lanes of a warp.
//!
//! There is no machine and no memory here. An instruction is decoded once, from its opcode and modifiers, and applied as
//! often as it is executed. [`Map`] takes lanes to lanes; [`Carry`] is what also reads or writes the carry; [`Test`] and
//! [`Set`] compare; [`Combine`] is what atomics do to an element; [`immediate`] reads constants, and [`Small`] and the
//! functions beside it convert numbers.
//!
//! # Contract
//!
//! * Values sit in the low bits of a lane. Sources may have anything above the width of their type; results are
//!   zero-extended.
//! * All IEEE operations are exact to the bit in all rounding modes, with the NaNs of sm_90. The approximations (`ex2`,
//!   `sin`, `.approx`, ...) are the correctly rounded values or one beside them, not the hardware's digits.
//! * Decoding knows the instructions up to sm_90 and a few beyond (`f32x2`, `min` of three). It does not check whether a
//!   form is legal for a target. `mov`, `selp` and predicate logic are not arithmetic and not here.
//! * Nothing panics, whatever the lanes hold.
//!
//! The loops are compiled for AVX2 and FMA and once more for any processor; both give the same bits.

mod carry;
mod combine;
mod compare;
mod convert;
mod decode;
mod dispatch;
mod float;
mod format;
mod immediate;
mod integer;
#[cfg(test)]
mod tests;
mod word;

use tilewright_ptx::{Instruction, Modifier, Opcode, Type};

pub use carry::Carry;
pub use combine::Combine;
pub use compare::{Logic, Set, Test};
pub use format::{Rounding, Small, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_f32, integral};
pub use immediate::immediate;

use convert::Convert;
use decode::Words;
use dispatch::fast;
use float::Float;
use word::map3;

/// A register of all lanes of a warp: values in the low bits, zeros above.
pub type Lanes = [u64; 32];

/// One to four lane sources to lanes.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier, Opcode, Type};
/// use tilewright_sim::number::Map;
/// let multiply = Instruction::new(Opcode::Mul, &[Modifier::Wide, Modifier::U32], []);
/// let map = Map::decode(&multiply).unwrap();
/// assert_eq!((map.sources(), map.destination()), (&[Type::U32, Type::U32][..], Type::U64));
/// let (a, b, none) = ([1 << 31; 32], [6; 32], [0; 32]);
/// assert_eq!(map.apply([&a, &b, &none, &none])[0], 3 << 32);
/// ```
#[derive(Clone, Debug)]
pub struct Map {
    operation: Operation,
    sources: [Type; 4],
    count: usize,
    destination: Type,
    /// `lop3.and` and `lop3.or`.
    logic: Option<Logic>,
    /// The width to which a narrower signed result is extended.
    extended: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Integer(integer::Operation, integer::Kind),
    Float(Float),
    Convert(Convert),
    /// `slct`: its width, whether the third source is a float, and whether that is flushed.
    Select {
        bits: u32,
        float: bool,
        ftz: bool,
    },
}

impl Map {
    /// From opcode and modifiers; `None` when it is no such instruction, or one of its modifiers is not understood.
    /// Operands count only in `min` and `max`, which may have three sources.
    pub fn decode(instruction: &Instruction) -> Option<Map> {
        let words = Words::of(instruction);
        let opcode = instruction.opcode;
        let map = |operation, sources, count: usize, destination| Map {
            operation,
            sources,
            count,
            destination,
            logic: None,
            extended: None,
        };
        match opcode {
            Opcode::Cvt => {
                let (convert, sources, count, destination) = convert::decode(&words)?;
                return Some(map(Operation::Convert(convert), sources, count, destination));
            }
            Opcode::Slct => {
                return decode_select(&words).map(|(operation, sources, ty)| map(operation, sources, 3, ty));
            }
            _ => {}
        }
        if let Some(found) = integer::decode(opcode, &words) {
            let operation = Operation::Integer(found.operation, found.kind);
            let logic = words.one(Logic::of).ok()?;
            return Some(Map { logic, ..map(operation, found.sources, found.count, found.destination) });
        }
        let (float, count) = float::decode(opcode, &words, instruction.operands.len())?;
        let ty = words.first()?;
        Some(map(Operation::Float(float), [ty; 4], count, ty))
    }

    /// The type in which each source is read: how wide the value is, and how a constant is converted.
    pub fn sources(&self) -> &[Type] {
        &self.sources[..self.count]
    }

    /// The type of the result, which is zero-extended to 64 bits from its width.
    pub fn destination(&self) -> Type {
        self.destination
    }

    /// For `lop3.and` and `lop3.or`, how the second result comes about: the lanes in which the first is not 0, combined
    /// with the predicate source.
    pub fn logic(&self) -> Option<Logic> {
        self.logic
    }

    /// The same with the result in a register of so many bits. Where the register is wider than the result, which
    /// happens with `cvt` only, signed integers are sign-extended to its width, and
    /// [`destination`](Map::destination) is a type of that width.
    ///
    /// ```
    /// use tilewright_ptx::{Instruction, Modifier, Opcode, Type};
    /// use tilewright_sim::number::Map;
    /// let narrow = Instruction::new(Opcode::Cvt, &[Modifier::S8, Modifier::S32], []);
    /// let map = Map::decode(&narrow).unwrap();
    /// let a = [0x1ff; 32];
    /// assert_eq!(map.apply([&a; 4])[0], 0xff);
    /// assert_eq!(map.into_register(32).apply([&a; 4])[0], 0xffff_ffff);
    /// ```
    #[must_use]
    pub fn into_register(self, bits: u32) -> Map {
        let (from, to) = (self.destination.bits(), bits);
        if to <= from {
            return self;
        }
        let wider = match (self.destination, bits) {
            (Type::S8, 16) => Type::S16,
            (Type::S8 | Type::S16, 32) => Type::S32,
            (Type::S8 | Type::S16 | Type::S32, 64) => Type::S64,
            _ => return self,
        };
        Map { destination: wider, extended: Some((from, to)), ..self }
    }

    /// The result. Sources beyond [`sources`](Map::sources) do not count.
    pub fn apply(&self, src: [&Lanes; 4]) -> Lanes {
        let mut out = match self.operation {
            Operation::Integer(operation, kind) => {
                fast!(integer::apply(operation, kind, src);
                    operation: integer::Operation, kind: integer::Kind, src: [&Lanes; 4] => Lanes)
            }
            Operation::Float(float) => {
                fast!(float.apply::<FMA>(src); float: Float, src: [&Lanes; 4] => Lanes)
            }
            Operation::Convert(convert) => {
                fast!(convert.apply(src); convert: Convert, src: [&Lanes; 4] => Lanes)
            }
            Operation::Select { bits, float, ftz } => select([src[0], src[1], src[2]], bits, float, ftz),
        };
        if let Some((from, to)) = self.extended {
            let keep = u64::MAX >> (64 - to);
            for lane in &mut out {
                *lane = (((*lane << (64 - from)).cast_signed()) >> (64 - from)).cast_unsigned() & keep;
            }
        }
        out
    }
}

fn decode_select(words: &Words) -> Option<(Operation, [Type; 4], Type)> {
    let &[ty, third] = &words.types[..] else { return None };
    let float = match third {
        Type::S32 => false,
        Type::F32 => true,
        _ => return None,
    };
    let ftz = words.has(Modifier::Ftz);
    let fits = matches!(ty.bits(), 16 | 32 | 64) && words.only(&[Modifier::Ftz]) && (float || !ftz);
    fits.then_some((Operation::Select { bits: ty.bits(), float, ftz }, [ty, ty, third, third], ty))
}

/// `slct`: the first where the third is 0 or more; NaN is not.
fn select(src: [&Lanes; 3], bits: u32, float: bool, ftz: bool) -> Lanes {
    let keep = u64::MAX >> (64 - bits);
    if float {
        map3(src, |a: u64, b: u64, c: f32| {
            let tiny = ftz && c.is_subnormal();
            (if c >= 0.0 || tiny { a } else { b }) & keep
        })
    } else {
        map3(src, |a: u64, b: u64, c: i32| (if c >= 0 { a } else { b }) & keep)
    }
}
