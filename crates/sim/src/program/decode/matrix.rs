//! Matrix instructions of warps and warpgroups.

use tilewright_ptx::{Instruction, Modifier, Operand, Shape, Type};

use super::super::function::Decoder;
use super::super::op::{Kind, PredSrc, Reg, Src, WgmmaA};
use super::super::operand::{Decoded, Fault, spaces};
use super::because;
use crate::tensor::mma::Mma;
use crate::tensor::wgmma::Wgmma;
use crate::tensor::wmma::Wmma;

/// The shape that `ldmatrix`, `stmatrix` and `movmatrix` have up to Hopper.
const M8N8: Modifier = Modifier::Shape(Shape { m: 8, n: 8, k: 0 });

fn only_b16(i: &Instruction) -> Decoded<()> {
    if i.has(M8N8) && i.has(Modifier::B16) {
        return Ok(());
    }
    Err(because("is supported with shape m8n8 and type b16 only"))
}

/// How many matrices `x1`, `x2`, `x4` mean.
fn matrices(i: &Instruction) -> Decoded<usize> {
    let found = i.modifiers.iter().find(|word| matches!(word, Modifier::X1 | Modifier::X2 | Modifier::X4));
    found.and_then(|word| word.count()).ok_or(Fault::Modifiers)
}

impl Decoder<'_> {
    pub(super) fn ldmatrix(&mut self, i: &Instruction) -> Decoded<Kind> {
        only_b16(i)?;
        let [d, address] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let (address, space) = self.address_in(address, spaces(i).next())?;
        let dst: smallvec::SmallVec<[_; 4]> = self.all_dsts(d)?;
        if dst.len() != matrices(i)? {
            return Err(Fault::Operands);
        }
        Ok(Kind::Ldmatrix { dst, address, space, transposed: i.has(Modifier::Trans) })
    }

    pub(super) fn stmatrix(&mut self, i: &Instruction) -> Decoded<Kind> {
        only_b16(i)?;
        let [address, value] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let (address, space) = self.address_in(address, spaces(i).next())?;
        let src = self.srcs(value, Type::B32)?;
        if src.len() != matrices(i)? {
            return Err(Fault::Operands);
        }
        Ok(Kind::Stmatrix { address, space, src, transposed: i.has(Modifier::Trans) })
    }

    pub(super) fn movmatrix(&mut self, i: &Instruction) -> Decoded<Kind> {
        only_b16(i)?;
        let [d, a] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let src = self.src(a, Type::B32)?;
        Ok(Kind::Movmatrix { dst: self.dst(d)?, src })
    }

    fn fragment(&mut self, operand: &Operand) -> Decoded<Vec<Src>> {
        self.srcs(operand, Type::B32).map(|sources| sources.to_vec())
    }

    pub(super) fn mma(&mut self, i: &Instruction) -> Decoded<Kind> {
        let mma = Mma::decode(i).ok_or(Fault::Modifiers)?;
        let (matrices, sparse) = match i.operands.as_slice() {
            [matrices @ .., metadata, selector] if mma.is_sparse() => {
                let selector = Self::number(selector)?;
                if selector > mma.last_selector() {
                    return Err(because("has a selector that no thread has"));
                }
                (matrices, Some((self.src(metadata, Type::B32)?, selector)))
            }
            matrices => (matrices, None),
        };
        let ([a, b, c], d) = self.product(matrices, mma.registers())?;
        Ok(Kind::Mma { mma, d, a, b, c, sparse })
    }

    /// The operands `d, a, b, c` of a product, whose registers must be as many as expected for A, B, C and D.
    fn product(&mut self, operands: &[Operand], expected: [usize; 4]) -> Decoded<([Vec<Src>; 3], Vec<Reg>)> {
        let [d, a, b, c] = operands else { return Err(Fault::Operands) };
        let sources = [self.fragment(a)?, self.fragment(b)?, self.fragment(c)?];
        let d: Vec<Reg> = self.all_dsts(d)?;
        let found = [sources[0].len(), sources[1].len(), sources[2].len(), d.len()];
        if found == expected { Ok((sources, d)) } else { Err(Fault::Operands) }
    }

    pub(super) fn wmma(&mut self, i: &Instruction) -> Decoded<Kind> {
        let wmma = Wmma::decode(i).ok_or(Fault::Modifiers)?;
        let (first, second, stride) = match (&wmma, i.operands.as_slice()) {
            (Wmma::Multiply(multiply), operands) => {
                let ([a, b, c], d) = self.product(operands, multiply.registers())?;
                return Ok(Kind::WmmaMma { wmma, d, a, b, c });
            }
            (_, [first, second]) => (first, second, None),
            (_, [first, second, stride]) => (first, second, Some(self.src(stride, Type::U32)?)),
            _ => return Err(Fault::Operands),
        };
        let space = spaces(i).next();
        if let Wmma::Load(transfer) = &wmma {
            let (address, space) = self.address_in(second, space)?;
            let dst: Vec<Reg> = self.all_dsts(first)?;
            if dst.len() != transfer.registers() {
                return Err(Fault::Operands);
            }
            return Ok(Kind::WmmaLoad { wmma, dst, address, space, stride });
        }
        let (address, space) = self.address_in(first, space)?;
        let src = self.fragment(second)?;
        if matches!(&wmma, Wmma::Store(transfer) if src.len() != transfer.registers()) {
            return Err(Fault::Operands);
        }
        Ok(Kind::WmmaStore { wmma, address, space, src, stride })
    }

    pub(super) fn wgmma(&mut self, i: &Instruction) -> Decoded<Kind> {
        match i.operands.as_slice() {
            [] if i.has(Modifier::Fence) => return Ok(Kind::WgmmaFence),
            [] if i.has(Modifier::CommitGroup) => return Ok(Kind::WgmmaCommit),
            [pending] if i.has(Modifier::WaitGroup) => {
                return Ok(Kind::WgmmaWait { pending: Self::number(pending)? });
            }
            _ => {}
        }
        if !i.has(Modifier::MmaAsync) || i.has(Modifier::Sp) {
            return Err(because("is not supported yet"));
        }
        let wgmma = Wgmma::decode(i).ok_or(Fault::Modifiers)?;
        let [d, a, b, rest @ ..] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let d: Vec<Reg> = self.all_dsts(d)?;
        if d.len() != wgmma.registers() {
            return Err(Fault::Operands);
        }
        let a = match a {
            Operand::List(_) => {
                let registers: [Src; 4] = self.fragment(a)?.try_into().map_err(|_| Fault::Operands)?;
                WgmmaA::Registers(registers)
            }
            _ => WgmmaA::Descriptor(self.src(a, Type::B64)?),
        };
        let b = self.src(b, Type::B64)?;
        let (scale_d, constants) = match rest {
            [] => (PredSrc::Imm(true), rest),
            [scale, constants @ ..] => (self.pred_src(scale)?, constants),
        };
        let constants = constants.iter().map(Self::signed).collect::<Decoded<Vec<_>>>()?;
        let in_registers = matches!(a, WgmmaA::Registers(_));
        let (signs, transposed) = match constants.as_slice() {
            [] => ([1, 1], [0, 0]),
            &[a, b] => ([a, b], [0, 0]),
            &[a, b, trans_b] if in_registers => ([a, b], [0, trans_b]),
            &[a, b, trans_a, trans_b] if !in_registers => ([a, b], [trans_a, trans_b]),
            _ => return Err(Fault::Operands),
        };
        if signs.iter().any(|sign| sign.abs() != 1) || transposed.iter().any(|bit| !matches!(bit, 0 | 1)) {
            return Err(because("scales by 1 or -1 and transposes with 0 or 1"));
        }
        Ok(Kind::Wgmma {
            wgmma,
            d,
            a,
            b,
            scale_d,
            negate_a: signs[0] < 0,
            negate_b: signs[1] < 0,
            transpose_a: transposed[0] == 1,
            transpose_b: transposed[1] == 1,
        })
    }

    pub(super) fn setmaxnreg(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [registers] = i.operands.as_slice() else { return Err(Fault::Operands) };
        Ok(Kind::Setmaxnreg { increase: i.has(Modifier::Inc), registers: Self::number(registers)? })
    }
}
