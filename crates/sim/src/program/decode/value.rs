//! Arithmetic, comparisons, moves, and conversions of addresses.

use tilewright_ptx::{Class, Instruction, Modifier, Opcode, Operand, SpecialRegister, Type};

use super::super::function::Decoder;
use super::super::op::{Kind, PredSrc, Sources, Space, Src};
use super::super::operand::{Decoded, Fault, Value, spaces, special_components};
use crate::number::{Carry, Map, Set, Test};

impl Decoder<'_> {
    /// Whatever has values as sources and a value as result.
    pub(super) fn arithmetic(&mut self, i: &Instruction) -> Decoded<Kind> {
        if i.types().next() == Some(Type::Pred) {
            return self.predicate_logic(i);
        }
        if i.opcode == Opcode::Lop3 && (i.has(Modifier::OrOp) || i.has(Modifier::AndOp)) {
            return self.lop3_test(i);
        }
        let Some((d, sources)) = i.operands.split_first() else { return Err(Fault::Operands) };
        if let Some(map) = Map::decode(i) {
            let src = self.typed(sources, map.sources())?;
            let dst = self.register(d)?;
            if dst.lanes != 1 || dst.bits < map.destination().bits() {
                return Err(Fault::Operands);
            }
            return Ok(Kind::Map { map: map.into_register(dst.bits), dst: dst.first, src });
        }
        if let Some(carry) = Carry::decode(i) {
            let src = self.typed(sources, carry.sources())?;
            return Ok(Kind::Carry { dst: self.dst(d)?, carry, src });
        }
        Err(Fault::Modifiers)
    }

    fn typed(&mut self, operands: &[Operand], types: &[Type]) -> Decoded<Sources> {
        if operands.len() != types.len() {
            return Err(Fault::Operands);
        }
        operands.iter().zip(types).map(|(operand, ty)| self.src(operand, *ty)).collect()
    }

    fn predicate_logic(&mut self, i: &Instruction) -> Decoded<Kind> {
        // Bit a + 2 b tells the result for a and b.
        let table = match i.opcode {
            Opcode::And => 0b1000,
            Opcode::Or => 0b1110,
            Opcode::Xor => 0b0110,
            Opcode::Not => {
                let [d, a] = i.operands.as_slice() else { return Err(Fault::Operands) };
                let src = match self.pred_src(a)? {
                    PredSrc::Reg { index, negated } => PredSrc::Reg { index, negated: !negated },
                    PredSrc::Imm(value) => PredSrc::Imm(!value),
                };
                return Ok(Kind::MovPred { dst: self.pred_dst(d)?, src });
            }
            _ => return Err(Fault::Modifiers),
        };
        let [d, a, b] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let (a, b) = (self.pred_src(a)?, self.pred_src(b)?);
        Ok(Kind::PredLogic { dst: self.pred_dst(d)?, table, a, b })
    }

    fn lop3_test(&mut self, i: &Instruction) -> Decoded<Kind> {
        let plain = Instruction::new(Opcode::Lop3, &[Modifier::B32], []);
        let map = Map::decode(&plain).ok_or(Fault::Modifiers)?;
        let [d, sources @ .., q] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let src = self.typed(sources, map.sources())?;
        let q = self.pred_src(q)?;
        let (dst, p) = self.pair(d)?;
        Ok(Kind::Lop3Test { map, dst, p: p.ok_or(Fault::Operands)?, and: i.has(Modifier::AndOp), src, q })
    }

    pub(super) fn test(&mut self, i: &Instruction) -> Decoded<Kind> {
        let test = Test::decode(i).ok_or(Fault::Modifiers)?;
        let Some((d, sources)) = i.operands.split_first() else { return Err(Fault::Operands) };
        let types = test.sources();
        if sources.len() < types.len() || sources.len() > types.len() + 1 {
            return Err(Fault::Operands);
        }
        let (values, c) = sources.split_at(types.len());
        let src = self.typed(values, types)?;
        let c = c.first().map_or(Ok(PredSrc::Imm(true)), |c| self.pred_src(c))?;
        let (p, q) = match d {
            Operand::Pair(p, q) => {
                (p.map(|p| self.pred(p)).transpose()?, q.map(|q| self.pred(q)).transpose()?)
            }
            Operand::Sink => (None, None),
            _ => (Some(self.pred_dst(d)?), None),
        };
        let a = src.first().copied().ok_or(Fault::Operands)?;
        Ok(Kind::Test { test, p, q, a, b: src.get(1).copied().unwrap_or(Src::Imm(0)), c })
    }

    pub(super) fn set(&mut self, i: &Instruction) -> Decoded<Kind> {
        let set = Set::decode(i).ok_or(Fault::Modifiers)?;
        let (d, a, b, c) = match i.operands.as_slice() {
            [d, a, b] => (d, a, b, None),
            [d, a, b, c] => (d, a, b, Some(c)),
            _ => return Err(Fault::Operands),
        };
        let &[ta, tb, ..] = set.sources() else { return Err(Fault::Operands) };
        let (a, b) = (self.src(a, ta)?, self.src(b, tb)?);
        let c = c.map_or(Ok(PredSrc::Imm(true)), |c| self.pred_src(c))?;
        Ok(Kind::Set { set, dst: self.dst(d)?, a, b, c })
    }

    pub(super) fn selp(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, a, b, c] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let ty = i.types().next().ok_or(Fault::Modifiers)?;
        let (a, b, c) = (self.src(a, ty)?, self.src(b, ty)?, self.pred_src(c)?);
        Ok(Kind::Select { dst: self.dst(d)?, a, b, c })
    }

    pub(super) fn mov(&mut self, i: &Instruction) -> Decoded<Kind> {
        let ty = i.types().next().ok_or(Fault::Modifiers)?;
        let [d, a] = i.operands.as_slice() else { return Err(Fault::Operands) };
        if ty == Type::Pred {
            return self.mov_predicate(d, a);
        }
        if i.modifiers.iter().any(|modifier| matches!(modifier, Modifier::V2 | Modifier::V4)) {
            return self.mov_vector(d, a, ty);
        }
        if let Operand::List(parts) = d {
            let bits = part_bits(ty, parts.len())?;
            let (dst, _) = self.dsts(d)?;
            let src = if ty.bits() == 128 { Src::Reg(self.halves(a)?[0]) } else { self.src(a, ty)? };
            return Ok(Kind::Unpack { dst, src, bits });
        }
        if let Operand::List(parts) = a {
            let bits = part_bits(ty, parts.len())?;
            let part = match bits {
                8 => Type::B8,
                16 => Type::B16,
                32 => Type::B32,
                _ => Type::B64,
            };
            let dst = if ty.bits() == 128 { self.halves(d)?[0] } else { self.dst(d)? };
            return Ok(Kind::Pack { dst, parts: self.srcs(a, part)?, bits });
        }
        if ty.bits() == 128 {
            let ([low, high], [src_low, src_high]) = (self.halves(d)?, self.halves(a)?);
            self.emit(Kind::Mov { dst: low, src: Src::Reg(src_low) });
            return Ok(Kind::Mov { dst: high, src: Src::Reg(src_high) });
        }
        let src = self.src(a, ty)?;
        Ok(Kind::Mov { dst: self.dst(d)?, src })
    }

    fn mov_predicate(&mut self, d: &Operand, a: &Operand) -> Decoded<Kind> {
        let dst = self.pred_dst(d)?;
        let Operand::Special(special) = a else { return Ok(Kind::MovPred { dst, src: self.pred_src(a)? }) };
        if *special != SpecialRegister::IsExplicitCluster {
            return Err(Fault::Operands);
        }
        // The one special register that is a predicate, read as a number that is not zero.
        let not_zero = Instruction::new(Opcode::Setp, &[Modifier::Ne, Modifier::U32], []);
        let test = Test::decode(&not_zero).ok_or(Fault::Modifiers)?;
        let (a, b) = (Src::Special(*special), Src::Imm(0));
        Ok(Kind::Test { test, p: Some(dst), q: None, a, b, c: PredSrc::Imm(true) })
    }

    /// A vector is moved one element at a time.
    fn mov_vector(&mut self, d: &Operand, a: &Operand, ty: Type) -> Decoded<Kind> {
        let (dst, _) = self.dsts(d)?;
        let src: Sources = match a {
            Operand::Special(special) => {
                special_components(*special).ok_or(Fault::Operands)?.map(Src::Special).into_iter().collect()
            }
            _ => self.srcs(a, ty)?,
        };
        if dst.is_empty() || dst.len() > src.len() || ty.bits() > 64 {
            return Err(Fault::Operands);
        }
        let moves: Vec<(u32, Src)> =
            dst.iter().zip(src).filter_map(|(dst, src)| Some(((*dst)?, src))).collect();
        let overwritten = moves
            .iter()
            .enumerate()
            .any(|(at, (dst, _))| moves[at + 1..].iter().any(|(_, src)| *src == Src::Reg(*dst)));
        if overwritten {
            return Err(Fault::Because("writes elements that it still reads, which is not supported".into()));
        }
        let mut kinds = moves.into_iter().map(|(dst, src)| Kind::Mov { dst, src });
        let last = kinds.next_back();
        kinds.for_each(|kind| self.emit(kind));
        Ok(last.unwrap_or(Kind::Nop))
    }

    pub(super) fn cvta(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, a] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let mut space = spaces(i).next().ok_or(Fault::Modifiers)?;
        let ty = i.types().next().unwrap_or(Type::U64);
        let is_param = space == Space::Param;
        if is_param && !self.entry {
            space = Space::Local;
        }
        if let Operand::Symbol(name) | Operand::Offset(name, _) = a
            && let Value::Address(_, found) = self.value(*name)?
            && is_param
        {
            space = found;
        }
        let src = self.src(a, ty)?;
        Ok(Kind::Cvta { dst: self.dst(d)?, src, space, to_space: i.has(Modifier::To) })
    }

    pub(super) fn isspacep(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, a] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let space = spaces(i).next().ok_or(Fault::Modifiers)?;
        let src = self.src(a, Type::U64)?;
        Ok(Kind::Isspacep { dst: self.pred_dst(d)?, src, space })
    }

    pub(super) fn mapa(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, a, b] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let ty = i.types().next().ok_or(Fault::Modifiers)?;
        let (address, rank) = (self.src(a, ty)?, self.src(b, Type::U32)?);
        // The address of a variable is one in the window of shared memory, also where no space is named.
        let generic = spaces(i).next().is_none() && !matches!(address, Src::Shared(_));
        Ok(Kind::Mapa { dst: self.dst(d)?, address, rank, generic })
    }

    pub(super) fn getctarank(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, a] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let ty = i.types().next().ok_or(Fault::Modifiers)?;
        let address = self.src(a, ty)?;
        let generic = spaces(i).next().is_none() && !matches!(address, Src::Shared(_));
        Ok(Kind::Getctarank { dst: self.dst(d)?, address, generic })
    }

    /// Cache policies have no effect here; any value will do.
    pub(super) fn createpolicy(&mut self, i: &Instruction) -> Decoded<Kind> {
        let d = i.operands.first().ok_or(Fault::Operands)?;
        Ok(Kind::Mov { dst: self.dst(d)?, src: Src::Imm(0) })
    }
}

/// The width of each part of a register that is packed or unpacked.
fn part_bits(ty: Type, parts: usize) -> Decoded<u8> {
    let parts = u32::try_from(parts).ok().filter(|parts| matches!(parts, 2 | 4)).ok_or(Fault::Operands)?;
    let bits = ty.bits() / parts;
    if !matches!(bits, 8 | 16 | 32 | 64) || ty.class() == Class::Opaque {
        return Err(Fault::Operands);
    }
    u8::try_from(bits).map_err(|_| Fault::Operands)
}
