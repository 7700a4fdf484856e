//! Tensor cores: fragments, `mma`, and the warpgroup multiplications with their accumulators.
//!
//! An accumulator is one fixed set of registers for its whole life: the assembler serialises multiplications whose registers
//! are copied around. A vector read from it stays in those registers if nothing writes them while it is in use.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{Bits, Count, Flags, Mma, Op, OpData, Opcode as Ir, Type, Value};
use tilewright_ptx::{self as ptx, Modifier as M, Modifiers, Opcode, Operand, Shape, Symbol};

use crate::emit::{Emitter, Lowered};
use crate::error::CodegenError;
use crate::registers::{Width, Word, shape};

/// An element as matrix instructions name it.
fn matrix_type(element: Element) -> ptx::Type {
    use ptx::Type as T;
    match element {
        Element::Bool => T::B1,
        Element::I8 => T::S8,
        Element::U8 => T::U8,
        Element::TF32 => T::Tf32,
        Element::E4M3 => T::E4m3,
        Element::E5M2 => T::E5m2,
        Element::E2M1 => T::E2m1,
        Element::UE8M0 => T::Ue8m0,
        other => crate::registers::arithmetic(other),
    }
}

fn matrix_shape(id: Mma) -> M {
    M::Shape(Shape { m: id.m, n: id.n, k: id.k })
}

impl Emitter<'_> {
    /// `ldmatrix`, `stmatrix`
    pub(crate) fn matrix_move(&mut self, data: &OpData) -> Lowered {
        let load = data.code == Ir::LdMatrix;
        let Count(count) = data.get().unwrap_or(Count(1));
        let number = match count {
            1 => M::X1,
            2 => M::X2,
            _ => M::X4,
        };
        let value = if load { data.results[0] } else { data.operands[1] };
        let ty = self.func.ty(value);
        if shape(ty).0 != Width::B32 {
            return Err(self.unsupported(format!("moves 32-bit registers, not {ty}")));
        }
        let trans = data.flags().has(Flags::TRANS).then_some(M::Trans);
        let matrix = M::Shape(Shape { m: 8, n: 8, k: 0 });
        let modifiers: Modifiers = [M::Sync, M::Aligned, matrix, number]
            .into_iter()
            .chain(trans)
            .chain([M::Shared, M::B16])
            .collect();
        let address = self.address(data.operands[0]);
        if load {
            let list = Operand::list(self.define(value));
            self.push(Opcode::Ldmatrix, &modifiers, [list, address]);
        } else {
            let list = self.register_list(value);
            self.push(Opcode::Stmatrix, &modifiers, [address, list]);
        }
        Ok(())
    }

    pub(crate) fn mma(&mut self, data: &OpData) -> Lowered {
        let Some(id) = data.get::<Mma>() else { return Ok(()) };
        let lists: SmallVec<[Operand; 3]> =
            data.operands.iter().map(|&value| self.register_list(value)).collect();
        let (c, a, b): (M, M, M) =
            (matrix_type(id.c).into(), matrix_type(id.a).into(), matrix_type(id.b).into());
        let saturate = data.flags().has(Flags::SATFINITE).then_some(M::Satfinite);
        let modifiers: Modifiers = [M::Sync, M::Aligned, matrix_shape(id), M::Row, M::Col]
            .into_iter()
            .chain(saturate)
            .chain([c, a, b, c])
            .collect();
        let to = Operand::list(self.define(data.results[0]));
        self.push(Opcode::Mma, &modifiers, [to].into_iter().chain(lists));
        Ok(())
    }

    pub(crate) fn accumulator(&mut self, data: &OpData) -> Lowered {
        self.define(data.results[0]);
        Ok(())
    }

    /// The registers of an accumulator.
    fn accumulator_registers(&mut self, value: Value) -> SmallVec<[Symbol; 4]> {
        let words = self.words(value);
        words
            .iter()
            .filter_map(|word| if let Word::Reg(register) = word { Some(*register) } else { None })
            .collect()
    }

    pub(crate) fn wgmma(&mut self, data: &OpData) -> Lowered {
        let [accumulator, a, b, add] = data.operands[..] else { return Ok(()) };
        let Some(id) = data.get::<Mma>() else { return Ok(()) };
        let flags = data.flags();
        let from_registers = matches!(self.func.ty(a), Type::Vector(..));
        if from_registers && flags.has(Flags::TRANS_A) {
            return Err(self.unsupported("with A in registers cannot transpose it; load it transposed"));
        }
        let integer = id.c == Element::I32;
        if integer && (flags.has(Flags::NEG_A) || flags.has(Flags::NEG_B)) {
            return Err(self.unsupported("of integers cannot negate an operand"));
        }
        let registers = self.accumulator_registers(accumulator);
        let mut operands: SmallVec<[Operand; 8]> = SmallVec::new();
        operands.push(Operand::list(registers));
        operands.push(if from_registers { self.register_list(a) } else { self.reg(a).into() });
        operands.push(self.reg(b).into());
        operands.push(match self.constant(add) {
            Some(bits) => i64::from(bits & 1 == 1).into(),
            None => self.reg(add).into(),
        });
        if !integer {
            let sign = |flag| Operand::from(if flags.has(flag) { -1 } else { 1 });
            operands.extend([sign(Flags::NEG_A), sign(Flags::NEG_B)]);
        }
        // Only 16-bit elements can be transposed, and A only where it is in memory.
        if id.a.bits() == 16 {
            let transposed = |flag| Operand::from(i64::from(flags.has(flag)));
            if !from_registers {
                operands.push(transposed(Flags::TRANS_A));
            }
            operands.push(transposed(Flags::TRANS_B));
        }
        let saturate = flags.has(Flags::SATFINITE).then_some(M::Satfinite);
        let (c, a, b): (M, M, M) =
            (matrix_type(id.c).into(), matrix_type(id.a).into(), matrix_type(id.b).into());
        let modifiers: Modifiers = [M::MmaAsync, M::Sync, M::Aligned, matrix_shape(id), c, a, b]
            .into_iter()
            .chain(saturate)
            .collect();
        self.push(Opcode::Wgmma, &modifiers, operands);
        Ok(())
    }

    /// `wgmma_fence`, `wgmma_commit`
    pub(crate) fn wgmma_order(&mut self, data: &OpData) -> Lowered {
        let action = if data.code == Ir::WgmmaFence { M::Fence } else { M::CommitGroup };
        self.push(Opcode::Wgmma, &[action, M::Sync, M::Aligned], []);
        Ok(())
    }

    pub(crate) fn wgmma_wait(&mut self, data: &OpData) -> Lowered {
        let Count(count) = data.get().unwrap_or(Count(0));
        self.push(Opcode::Wgmma, &[M::WaitGroup, M::Sync, M::Aligned], [count.into()]);
        Ok(())
    }

    pub(crate) fn acc_read(&mut self, op: Op, data: &OpData) -> Lowered {
        let words = self.words(data.operands[0]);
        if self.analysis.can_stay(self.func, op) {
            self.bind(data.results[0], words);
            return Ok(());
        }
        let (width, _) = shape(self.func.ty(data.results[0]));
        for (to, from) in self.define(data.results[0]).into_iter().zip(words) {
            self.copy(width, to, from);
        }
        Ok(())
    }

    pub(crate) fn acc_write(&mut self, data: &OpData) -> Lowered {
        let words = self.words(data.operands[1]);
        let (width, _) = shape(self.func.ty(data.operands[1]));
        let moves: Vec<(Symbol, Word)> =
            self.accumulator_registers(data.operands[0]).into_iter().zip(words).collect();
        self.parallel_move(width, &moves);
        Ok(())
    }

    /// Bits 4 to 17 of the address at the bottom, joined with the constant: the low word by `or`, the high word as it is.
    pub(crate) fn descriptor(&mut self, data: &OpData) -> Result<(), CodegenError> {
        let Bits(bits) = data.get().unwrap_or(Bits(0));
        let address = self.reg(data.operands[0]);
        let mut low = self.new_reg(Width::B32);
        self.push(Opcode::Bfe, &[M::U32], [low.into(), address.into(), 4.into(), 14.into()]);
        if bits & 0xffff_ffff != 0 {
            let joined = self.new_reg(Width::B32);
            let constant = crate::emit::immediate(ptx::Type::B32, bits & 0xffff_ffff);
            self.push(Opcode::Or, &[M::B32], [joined.into(), low.into(), constant]);
            low = joined;
        }
        let to = self.define_one(data.results[0]);
        self.join64_into(to, Word::Reg(low), Word::Imm(bits >> 32));
        Ok(())
    }
}
