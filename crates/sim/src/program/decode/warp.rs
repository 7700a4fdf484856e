//! Instructions between the threads of a warp.

use tilewright_ptx::{Instruction, Modifier, Operand, Type};

use super::super::function::Decoder;
use super::super::op::{Kind, Shuffle, Src, Vote};
use super::super::operand::{Decoded, Fault};
use super::combine;

/// The forms before Volta have no mask: they are for all threads of the warp.
const ALL: Src = Src::Imm(0xFFFF_FFFF);

impl Decoder<'_> {
    fn mask(&mut self, mask: Option<&Operand>) -> Decoded<Src> {
        mask.map_or(Ok(ALL), |mask| self.src(mask, Type::B32))
    }

    pub(super) fn shfl(&mut self, i: &Instruction) -> Decoded<Kind> {
        let mode = i.modifiers.iter().find_map(|modifier| {
            Some(match modifier {
                Modifier::Up => Shuffle::Up,
                Modifier::Down => Shuffle::Down,
                Modifier::Bfly => Shuffle::Bfly,
                Modifier::Idx => Shuffle::Idx,
                _ => return None,
            })
        });
        let mode = mode.ok_or(Fault::Modifiers)?;
        let (d, a, b, c, mask) = match (i.has(Modifier::Sync), i.operands.as_slice()) {
            (true, [d, a, b, c, mask]) => (d, a, b, c, Some(mask)),
            (false, [d, a, b, c]) => (d, a, b, c, None),
            _ => return Err(Fault::Operands),
        };
        let mask = self.mask(mask)?;
        let [a, b, c] = [self.src(a, Type::B32)?, self.src(b, Type::B32)?, self.src(c, Type::B32)?];
        let (dst, p) = self.pair(d)?;
        Ok(Kind::Shfl { mode, dst: dst.ok_or(Fault::Operands)?, p, a, b, c, mask })
    }

    pub(super) fn vote(&mut self, i: &Instruction) -> Decoded<Kind> {
        let (d, a, mask) = match (i.has(Modifier::Sync), i.operands.as_slice()) {
            (true, [d, a, mask]) => (d, a, Some(mask)),
            (false, [d, a]) => (d, a, None),
            _ => return Err(Fault::Operands),
        };
        let (a, mask) = (self.pred_src(a)?, self.mask(mask)?);
        let vote = if i.has(Modifier::Ballot) {
            Vote::Ballot(self.dst(d)?)
        } else if i.has(Modifier::All) {
            Vote::All(self.pred_dst(d)?)
        } else if i.has(Modifier::Any) {
            Vote::Any(self.pred_dst(d)?)
        } else if i.has(Modifier::Uni) {
            Vote::Uni(self.pred_dst(d)?)
        } else {
            return Err(Fault::Modifiers);
        };
        Ok(Kind::Vote { vote, a, mask })
    }

    pub(super) fn match_lanes(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, a, mask] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let ty = i.types().next().filter(|ty| matches!(ty.bits(), 32 | 64)).ok_or(Fault::Modifiers)?;
        let (a, mask) = (self.src(a, ty)?, self.src(mask, Type::B32)?);
        let (dst, p) = self.pair(d)?;
        let bits = if ty.bits() == 64 { 64 } else { 32 };
        Ok(Kind::Match { all: i.has(Modifier::All), dst: dst.ok_or(Fault::Operands)?, p, a, bits, mask })
    }

    pub(super) fn redux(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, a, mask] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let ty = i.types().next().ok_or(Fault::Modifiers)?;
        if !matches!(ty, Type::U32 | Type::S32 | Type::B32) {
            return Err(Fault::Modifiers);
        }
        let (a, mask) = (self.src(a, ty)?, self.src(mask, Type::B32)?);
        Ok(Kind::Redux { combine: combine(i)?, ty, dst: self.dst(d)?, a, mask })
    }

    pub(super) fn activemask(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d] = i.operands.as_slice() else { return Err(Fault::Operands) };
        Ok(Kind::Activemask { dst: self.dst(d)? })
    }

    pub(super) fn elect(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, mask] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let mask = self.src(mask, Type::B32)?;
        let (dst, p) = self.pair(d)?;
        Ok(Kind::Elect { dst, p: p.ok_or(Fault::Operands)?, mask })
    }
}
