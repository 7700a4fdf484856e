//! Parts of vectors whose making is known.

use smallvec::SmallVec;
use tilewright_ir::{Index, Op, Opcode, Type, Value};

use super::{Folder, Step};
use crate::rewrite::{constant, definition};

impl Folder<'_> {
    pub(super) fn vector(&mut self, op: Op, ty: Type) -> Step {
        match self.func.op(op).code {
            Opcode::Extract => self.extract(op),
            Opcode::Slice => self.slice(op, ty),
            Opcode::Pack => self.pack(op, ty),
            Opcode::Concat => self.concat(op),
            _ => Step::Keep,
        }
    }

    fn index(&self, op: Op) -> Option<u32> {
        self.func.op(op).get::<Index>().map(|Index(i)| i)
    }

    fn extract(&mut self, op: Op) -> Step {
        let vector = self.func.op(op).operands[0];
        let (Some(at), Some(inner)) = (self.index(op), definition(self.func, vector)) else {
            return Step::Keep;
        };
        let inner_at = inner.get::<Index>().map_or(0, |Index(i)| i);
        let source = inner.operands.first().copied();
        match (inner.code, source) {
            (Opcode::Pack, _) => inner.operands.get(at as usize).map_or(Step::Keep, |&v| Step::Is(v)),
            (Opcode::Insert, _) if inner_at == at => Step::Is(inner.operands[1]),
            (Opcode::Insert, Some(source)) => self.part_of(op, source, at),
            (Opcode::Slice, Some(source)) => self.part_of(op, source, at + inner_at),
            (Opcode::Concat, _) => match self.piece(vector, at) {
                Some((piece, at)) => self.part_of(op, piece, at),
                None => Step::Keep,
            },
            _ => Step::Keep,
        }
    }

    fn slice(&mut self, op: Op, ty: Type) -> Step {
        let vector = self.func.op(op).operands[0];
        if self.func.ty(vector) == ty {
            return Step::Is(vector);
        }
        let (Some(at), Some(inner)) = (self.index(op), definition(self.func, vector)) else {
            return Step::Keep;
        };
        let inner_at = inner.get::<Index>().map_or(0, |Index(i)| i);
        match inner.code {
            Opcode::Slice => {
                let source = inner.operands[0];
                self.part_of(op, source, at + inner_at)
            }
            Opcode::Pack => {
                let parts = inner.operands.get(at as usize..(at + ty.lanes()) as usize);
                let Some(parts) = parts.map(SmallVec::<[Value; 8]>::from_slice) else { return Step::Keep };
                self.become_(op, Opcode::Pack, &parts)
            }
            Opcode::Concat => match self.piece(vector, at) {
                Some((piece, at)) if at + ty.lanes() <= self.func.ty(piece).lanes() => {
                    self.part_of(op, piece, at)
                }
                _ => Step::Keep,
            },
            _ => Step::Keep,
        }
    }

    /// The operand of a `concat` that an element lies in, and where in it.
    fn piece(&self, concat: Value, at: u32) -> Option<(Value, u32)> {
        let mut start = 0;
        for &piece in &definition(self.func, concat)?.operands {
            let lanes = self.func.ty(piece).lanes();
            if at < start + lanes {
                return Some((piece, at - start));
            }
            start += lanes;
        }
        None
    }

    fn part_of(&mut self, op: Op, vector: Value, at: u32) -> Step {
        let data = self.func.op_mut(op);
        data.operands[0] = vector;
        data.set(Index(at));
        Step::Again
    }

    /// The bits of a vector of constants, if a register holds them.
    pub(super) fn packed_bits(&self, vector: Value) -> Option<u64> {
        let data = definition(self.func, vector).filter(|data| data.code == Opcode::Pack)?;
        let width = self.func.ty(*data.operands.first()?).bits();
        if self.func.ty(vector).bits() > 64 || width == 64 {
            return None;
        }
        data.operands.iter().rev().try_fold(0, |bits, &part| {
            let low = constant(self.func, part)? & ((1 << width) - 1);
            Some(bits << width | low)
        })
    }

    /// A pack of all elements of one vector in order is that vector.
    fn pack(&self, op: Op, ty: Type) -> Step {
        let mut whole = None;
        for (i, &element) in self.func.op(op).operands.iter().enumerate() {
            let Some(inner) = definition(self.func, element).filter(|d| d.code == Opcode::Extract) else {
                return Step::Keep;
            };
            let at = inner.get::<Index>().map(|Index(i)| i as usize);
            let vector = inner.operands[0];
            if at != Some(i) || self.func.ty(vector) != ty || whole.is_some_and(|w| w != vector) {
                return Step::Keep;
            }
            whole = Some(vector);
        }
        whole.map_or(Step::Keep, Step::Is)
    }

    fn concat(&mut self, op: Op) -> Step {
        let operands = &self.func.op(op).operands;
        if let [only] = operands[..] {
            return Step::Is(only);
        }
        let mut parts: SmallVec<[Value; 16]> = SmallVec::new();
        for &piece in operands {
            match definition(self.func, piece) {
                Some(inner) if inner.code == Opcode::Pack => parts.extend_from_slice(&inner.operands),
                _ => return Step::Keep,
            }
        }
        self.become_(op, Opcode::Pack, &parts)
    }
}
