//! Pointers: offsets, casts between spaces, shared and local memory.

use smallvec::SmallVec;
use tilewright_ir::{Align, Bytes, Op, OpData, Space};
use tilewright_ptx::{self as ptx, Modifier as M, Modifiers, Opcode, Operand, Variable};

use crate::emit::{Emitter, Lowered, Place};
use crate::registers::{Width, shape};

/// Offsets that every address takes.
const OFFSETS: std::ops::RangeInclusive<i64> = -(1 << 30)..=(1 << 30);

impl Emitter<'_> {
    /// A constant offset stays one, for the addresses that are made of the pointer.
    pub(crate) fn ptr_add(&mut self, data: &OpData) -> Lowered {
        let [pointer, by] = data.operands[..] else { return Ok(()) };
        let result = data.results[0];
        let (width, _) = shape(self.func.ty(result));
        let (base, offset) = self.base_and_offset(pointer);
        let constant = self.constant(by).map(|bits| match width {
            Width::B32 => i64::from((bits & 0xffff_ffff) as u32 as i32),
            _ => bits.cast_signed(),
        });
        let sum = constant.and_then(|by| offset.checked_add(by)).filter(|sum| OFFSETS.contains(sum));
        // A value that only the end of the region reads is wanted in a register of its own.
        let final_register = self.is_wanted(result) || self.analysis.only_yielded(result);
        match sum {
            Some(offset) if !final_register => self.bind_place(result, Place::Pointer { base, offset }),
            Some(offset) => {
                let to = self.define_one(result);
                self.add_offset(width, to, base, offset);
            }
            None => {
                let ty = if width == Width::B32 { ptx::Type::U32 } else { ptx::Type::U64 };
                let by = self.scalar(by, ty);
                if final_register && offset != 0 {
                    let sum = self.new_reg(width);
                    self.push(Opcode::Add, &[ty.into()], [sum.into(), base.into(), by]);
                    let to = self.define_one(result);
                    self.add_offset(width, to, sum, offset);
                    return Ok(());
                }
                let to = self.define_one(result);
                self.push(Opcode::Add, &[ty.into()], [to.into(), base.into(), by]);
                if offset != 0 {
                    self.bind_place(result, Place::Pointer { base: to, offset });
                }
            }
        }
        Ok(())
    }

    /// `ptr_to_int`, `int_to_ptr`: the same bits.
    pub(crate) fn reinterpret(&mut self, data: &OpData) -> Lowered {
        let (from, to) = (self.func.ty(data.operands[0]), self.func.ty(data.results[0]));
        if shape(from) != shape(to) {
            return Err(self.unsupported(format!(
                "from {from} to {to} changes the width; convert the integer with cvt"
            )));
        }
        let words = self.words(data.operands[0]);
        self.bind(data.results[0], words);
        Ok(())
    }

    pub(crate) fn cast_space(&mut self, data: &OpData) -> Lowered {
        let (pointer, result) = (data.operands[0], data.results[0]);
        let (from, to) = (self.space(pointer), self.space(result));
        // An address of this block's shared memory is also one of the cluster's.
        if from == to || (from == Space::Shared && to == Space::Cluster) {
            let place = self.place(pointer);
            self.bind_place(result, place);
            return Ok(());
        }
        let generic = Space::Generic;
        if from != generic && to != generic {
            return Err(self.unsupported(format!(
                "from {from} to {to}: these memories do not overlap; go through generic only if they do"
            )));
        }
        let reg = self.reg(pointer);
        let named = if from == generic { to } else { from };
        let mut modifiers: Modifiers = SmallVec::new();
        if from == generic {
            modifiers.push(M::To);
        }
        modifiers.extend(space_modifier(named));
        modifiers.push(M::U64);
        let target = self.define_one(result);
        // The instruction works on 64 bits; shared addresses have 32.
        if named.bits() == 64 {
            self.push(Opcode::Cvta, &modifiers, [target.into(), reg.into()]);
        } else if from == generic {
            let wide = self.new_reg(Width::B64);
            self.push(Opcode::Cvta, &modifiers, [wide.into(), reg.into()]);
            self.push(Opcode::Cvt, &[M::U32, M::U64], [target.into(), wide.into()]);
        } else {
            let wide = self.new_reg(Width::B64);
            self.push(Opcode::Cvt, &[M::U64, M::U32], [wide.into(), reg.into()]);
            self.push(Opcode::Cvta, &modifiers, [target.into(), wide.into()]);
        }
        Ok(())
    }

    pub(crate) fn map_cluster(&mut self, data: &OpData) -> Lowered {
        let pointer = self.reg(data.operands[0]);
        let rank = self.u32_operand(data.operands[1]);
        let to = self.define_one(data.results[0]);
        self.push(Opcode::Mapa, &[M::SharedCluster, M::U32], [to.into(), pointer.into(), rank]);
        Ok(())
    }

    pub(crate) fn shared(&mut self, op: Op, data: &OpData) -> Lowered {
        let offset = self.shared.get(&op).copied().unwrap_or(0);
        if let Some(base) = self.shared_base {
            self.bind_place(data.results[0], Place::Pointer { base, offset: i64::from(offset) });
        }
        Ok(())
    }

    pub(crate) fn local(&mut self, data: &OpData) -> Lowered {
        let (Bytes(bytes), Align(align)) = (data.get().unwrap_or(Bytes(1)), data.get().unwrap_or(Align(1)));
        let number = u32::try_from(self.locals.len()).unwrap_or(u32::MAX);
        let name = self.names.numbered("$local", number);
        self.locals.push(Variable::array(
            ptx::Space::Local,
            align,
            ptx::Type::B8,
            name,
            Some(u64::from(bytes)),
        ));
        let to = self.define_one(data.results[0]);
        self.push(Opcode::Mov, &[M::U64], [to.into(), Operand::Symbol(name)]);
        Ok(())
    }

    /// A tensor map as the generic address that instructions take.
    pub(crate) fn tensor_map(&mut self, map: tilewright_ir::Value) -> ptx::Symbol {
        let reg = self.reg(map);
        if self.func.ty(map).space() != Some(Space::Global) {
            return reg;
        }
        let generic = self.new_reg(Width::B64);
        self.push(Opcode::Cvta, &[M::Global, M::U64], [generic.into(), reg.into()]);
        generic
    }
}

/// The space as ordinary accesses name it; generic addresses name none.
pub(crate) fn space_modifier(space: Space) -> Option<M> {
    match space {
        Space::Global => Some(M::Global),
        Space::Shared => Some(M::Shared),
        Space::Cluster => Some(M::SharedCluster),
        Space::Local => Some(M::Local),
        Space::Constant => Some(M::Const),
        Space::Generic => None,
    }
}
