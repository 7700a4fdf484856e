//! Additions with carry: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.
#![allow(clippy::cast_possible_truncation, reason = "taking the halves of products")]

use tilewright_ptx::{Instruction, Modifier, Opcode, Type};

use super::Lanes;
use super::decode::Words;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Sub,
    MadLo,
    MadHi,
}

/// An instruction of extended-precision arithmetic.
///
/// The carry is a mask of lanes. For subtraction it is the borrow, as PTX 9.7.2.3 names it: set where the subtrahend,
/// with the borrow that comes in, is larger.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier, Opcode};
/// use tilewright_sim::number::Carry;
/// let add = Instruction::new(Opcode::Add, &[Modifier::Cc, Modifier::U32], []);
/// let (sum, carry) = Carry::decode(&add).unwrap().apply([&[u64::from(u32::MAX); 32], &[1; 32], &[0; 32], &[0; 32]], 0);
/// assert_eq!((sum[0], carry), (0, u32::MAX));
/// ```
#[derive(Clone, Debug)]
pub struct Carry {
    operation: Operation,
    /// Whether the carry counts, and whether it is written.
    reads: bool,
    writes: bool,
    types: [Type; 3],
}

impl Carry {
    /// From opcode and modifiers; `None` for everything that neither reads nor writes the carry.
    pub fn decode(instruction: &Instruction) -> Option<Carry> {
        use Modifier as M;
        let words = Words::of(instruction);
        let &[ty] = &words.types[..] else { return None };
        let writes = words.has(M::Cc);
        let half = words.one(|word| match word {
            M::Lo => Some(Operation::MadLo),
            M::Hi => Some(Operation::MadHi),
            _ => None,
        });
        let half = half.ok()?;
        let (operation, reads) = match (instruction.opcode, half) {
            (Opcode::Add, None) => (Operation::Add, false),
            (Opcode::Addc, None) => (Operation::Add, true),
            (Opcode::Sub, None) => (Operation::Sub, false),
            (Opcode::Subc, None) => (Operation::Sub, true),
            (Opcode::Mad, Some(half)) => (half, false),
            (Opcode::Madc, Some(half)) => (half, true),
            _ => return None,
        };
        let fits = matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64);
        if !fits || !(reads || writes) || !words.only(&[M::Cc, M::Lo, M::Hi]) {
            return None;
        }
        Some(Carry { operation, reads, writes, types: [ty; 3] })
    }

    /// The types in which the sources are read.
    pub fn sources(&self) -> &[Type] {
        match self.operation {
            Operation::Add | Operation::Sub => &self.types[..2],
            Operation::MadLo | Operation::MadHi => &self.types,
        }
    }

    /// The type of the result.
    pub fn destination(&self) -> Type {
        self.types[0]
    }

    /// The result and the carry; an operation without `.cc` gives the carry back as it was.
    pub fn apply(&self, src: [&Lanes; 4], carry: u32) -> (Lanes, u32) {
        let [a, b, c, _] = src;
        let ty = self.types[0];
        let bits = ty.bits();
        let keep = u64::MAX >> (64 - bits);
        let (mut out, mut mask) = ([0; 32], 0);
        for lane in 0..32 {
            let carried = u128::from(self.reads && carry >> lane & 1 == 1);
            let (a, b) = (a[lane] & keep, b[lane] & keep);
            let total = match self.operation {
                Operation::Add => u128::from(a) + u128::from(b) + carried,
                Operation::Sub => u128::from(a).wrapping_sub(u128::from(b) + carried),
                Operation::MadLo => {
                    u128::from(a.wrapping_mul(b) & keep) + u128::from(c[lane] & keep) + carried
                }
                Operation::MadHi => u128::from(high(a, b, ty)) + u128::from(c[lane] & keep) + carried,
            };
            out[lane] = total as u64 & keep;
            mask |= (((total >> bits) & 1) as u32) << lane;
        }
        (out, if self.writes { mask } else { carry })
    }
}

/// The upper half of a product.
#[allow(clippy::cast_sign_loss, reason = "only the bits count")]
fn high(a: u64, b: u64, ty: Type) -> u64 {
    let (bits, signed) = (ty.bits(), matches!(ty, Type::S32 | Type::S64));
    let wide = |value: u64| {
        let gap = 128 - bits;
        if signed {
            ((u128::from(value) << gap).cast_signed() >> gap).cast_unsigned()
        } else {
            u128::from(value)
        }
    };
    let product = wide(a).wrapping_mul(wide(b));
    (product >> bits) as u64 & (u64::MAX >> (64 - bits))
}
