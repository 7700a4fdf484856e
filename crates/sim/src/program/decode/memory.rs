//! Loads, stores, atomics, and the stack.

use smallvec::SmallVec;
use tilewright_ptx::{Instruction, Modifier, Opcode, Operand, Type};

use super::super::function::Decoder;
use super::super::op::{Access, Bulk, Kind, Order, Scope, Sources, Src, Strength};
use super::super::operand::{Decoded, Fault, order, scope, spaces, strength};
use super::{because, combine};
use crate::number::Combine;

impl Decoder<'_> {
    pub(super) fn load(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [d, address, ..] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let mut access = self.access(i, address)?;
        if access.ty.bits() == 128 {
            let dst: SmallVec<[_; 4]> = self.halves(d)?.map(Some).into_iter().collect();
            (access.ty, access.count) = (Type::B64, 2);
            return Ok(Kind::Load { access, dst, bits: 64 });
        }
        let (dst, bits) = self.dsts(d)?;
        if bits < access.ty.bits() {
            return Err(Fault::Operands);
        }
        access.count = count(i, dst.len())?;
        Ok(Kind::Load { access, dst, bits: u8::try_from(bits).map_err(|_| Fault::Operands)? })
    }

    pub(super) fn store(&mut self, i: &Instruction) -> Decoded<Kind> {
        if i.has(Modifier::Async) {
            return self.element_async(i, None);
        }
        if i.has(Modifier::Bulk) {
            return Err(because("is an instruction of Blackwell, which is not supported yet"));
        }
        let [address, value, ..] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let mut access = self.access(i, address)?;
        if access.ty.bits() == 128 {
            let src: Sources = self.halves(value)?.map(Src::Reg).into_iter().collect();
            (access.ty, access.count) = (Type::B64, 2);
            return Ok(Kind::Store { access, src });
        }
        let src = self.srcs(value, access.ty)?;
        access.count = count(i, src.len())?;
        Ok(Kind::Store { access, src })
    }

    /// `st.async [dst], value, [mbarrier]` and `red.async`.
    fn element_async(&mut self, i: &Instruction, combine: Option<Combine>) -> Decoded<Kind> {
        let [dst, value, mbarrier] = i.operands.as_slice() else {
            return Err(because("is supported with an mbarrier only"));
        };
        let access = self.access(i, dst)?;
        let src = self.srcs(value, access.ty)?;
        let (dst, mbarrier) = (access.address, self.address(mbarrier)?.0);
        Ok(Kind::Bulk(Bulk::Element { dst, src, ty: access.ty, mbarrier, combine }))
    }

    /// Type and place; how many elements is for the caller to say.
    fn access(&mut self, i: &Instruction, address: &Operand) -> Decoded<Access> {
        let ty = only_type(i)?;
        if !matches!(address, Operand::Address(_) | Operand::Tuple(_)) {
            return Err(Fault::Operands);
        }
        let (address, space) = self.address_in(address, spaces(i).next())?;
        let strength = if i.has(Modifier::Volatile) {
            Strength { order: Order::Relaxed, scope: Scope::Sys }
        } else {
            strength(i, Order::Weak, Scope::Cta)
        };
        Ok(Access { space, address, ty, count: 1, strength })
    }

    pub(super) fn atomic(&mut self, i: &Instruction) -> Decoded<Kind> {
        let combine = combine(i)?;
        if i.has(Modifier::Async) {
            return self.element_async(i, Some(combine));
        }
        let (d, operands) = match (i.opcode, i.operands.as_slice()) {
            (Opcode::Atom, [d, rest @ ..]) => (Some(d), rest),
            (_, operands) => (None, operands),
        };
        let (address, compare, value) = match (combine, operands) {
            (Combine::Cas, [address, compare, value, ..]) => (address, Some(compare), value),
            (Combine::Cas, _) => return Err(Fault::Operands),
            (_, [address, value, ..]) => (address, None, value),
            _ => return Err(Fault::Operands),
        };
        let mut access = self.access(i, address)?;
        access.strength =
            Strength { order: order(i).unwrap_or(Order::Relaxed), scope: scope(i).unwrap_or(Scope::Gpu) };
        if access.ty.bits() == 128 {
            let value = self.halves(value)?.map(Src::Reg).into_iter().collect();
            let compare = compare.map(|compare| self.halves(compare)).transpose()?;
            let dst = match d {
                None | Some(Operand::Sink) => None,
                Some(d) => Some(self.halves(d)?.into_iter().collect()),
            };
            return Ok(Kind::Atomic {
                access,
                combine,
                dst,
                value,
                compare: compare.map(|[low, _]| Src::Reg(low)),
            });
        }
        let value = self.srcs(value, access.ty)?;
        access.count = count(i, value.len())?;
        let compare = compare.map(|compare| self.src(compare, access.ty)).transpose()?;
        let dst: Option<SmallVec<[_; 4]>> = match d {
            None | Some(Operand::Sink) => None,
            Some(d) => Some(self.all_dsts(d)?),
        };
        if dst.as_ref().is_some_and(|dst| dst.len() != value.len()) {
            return Err(Fault::Operands);
        }
        Ok(Kind::Atomic { access, combine, dst, value, compare })
    }

    pub(super) fn stack(&mut self, i: &Instruction) -> Decoded<Kind> {
        let ty = only_type(i)?;
        match (i.opcode, i.operands.as_slice()) {
            (Opcode::Alloca, [d, bytes] | [d, bytes, _]) => {
                let bytes = self.src(bytes, ty)?;
                Ok(Kind::Alloca { dst: self.dst(d)?, bytes })
            }
            (Opcode::Stacksave, [d]) => Ok(Kind::StackSave { dst: self.dst(d)? }),
            (Opcode::Stackrestore, [a]) => Ok(Kind::StackRestore { src: self.src(a, ty)? }),
            _ => Err(Fault::Operands),
        }
    }
}

fn only_type(i: &Instruction) -> Decoded<Type> {
    let mut types = i.types();
    match (types.next(), types.next()) {
        (Some(ty), None) if ty.bits() >= 8 && ty.bits() <= 128 => Ok(ty),
        _ => Err(Fault::Modifiers),
    }
}

/// How many elements the vector modifier promises; the operand must have as many.
fn count(i: &Instruction, found: usize) -> Decoded<u8> {
    let vector = i.modifiers.iter().find(|word| matches!(word, Modifier::V2 | Modifier::V4 | Modifier::V8));
    let promised = vector.and_then(|word| word.count()).unwrap_or(1);
    if promised == found { u8::try_from(found).map_err(|_| Fault::Operands) } else { Err(Fault::Operands) }
}
