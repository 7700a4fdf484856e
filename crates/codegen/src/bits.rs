//! Ops on bits and bytes.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{Flags, Funnel, Half, Lut, OpData, Opcode as Ir, Permute, Type, Value};
use tilewright_ptx::{self as ptx, Modifier as M, Modifiers, Opcode, Operand};

use crate::emit::{Emitter, Lowered};
use crate::registers::{Width, Word, arithmetic, exact, shape};

impl Emitter<'_> {
    /// `and`, `or`, `xor`, `not`: whole words, whatever they hold.
    pub(crate) fn logic(&mut self, data: &OpData) -> Lowered {
        let opcode = match data.code {
            Ir::And => Opcode::And,
            Ir::Or => Opcode::Or,
            Ir::Xor => Opcode::Xor,
            _ => Opcode::Not,
        };
        let (width, _) = shape(self.func.ty(data.results[0]));
        let inputs: SmallVec<[_; 2]> = data.operands.iter().map(|&value| self.words(value)).collect();
        for (i, to) in self.define(data.results[0]).into_iter().enumerate() {
            let mut operands: SmallVec<[Operand; 4]> = SmallVec::from_elem(to.into(), 1);
            for words in &inputs {
                operands.push(self.operand(words[i], width.bits_type()));
            }
            self.push(opcode, &[width.modifier()], operands);
        }
        Ok(())
    }

    /// `shl`, `shr`. PTX clamps amounts at the width; a byte is shifted in 16 bits, which gives the same.
    pub(crate) fn shift(&mut self, data: &OpData) -> Lowered {
        let left = data.code == Ir::Shl;
        let amount = self.u32_operand(data.operands[1]);
        self.elementwise(data, false, &mut |this, lane, args, to| {
            let (opcode, ty, arg) = if left {
                (Opcode::Shl, Width::of(lane.ty).bits_type(), args[0])
            } else {
                (Opcode::Shr, lane.ty, this.normal(args[0], lane.element))
            };
            let arg = this.operand(arg, ty);
            this.push(opcode, &[ty.into()], [to.into(), arg, amount.clone()]);
            Ok(())
        })
    }

    /// The three 32-bit operands of an op, and where its result goes.
    fn three_words(&mut self, data: &OpData) -> SmallVec<[Operand; 4]> {
        let mut operands: SmallVec<[Operand; 4]> = SmallVec::new();
        for &value in &data.operands {
            operands.push(self.scalar(value, ptx::Type::B32));
        }
        operands.insert(0, self.define_one(data.results[0]).into());
        operands
    }

    pub(crate) fn funnel_shift(&mut self, data: &OpData) -> Lowered {
        let (direction, mode) = match data.get::<Funnel>().unwrap_or(Funnel::LeftWrap) {
            Funnel::LeftWrap => (M::Left, M::Wrap),
            Funnel::LeftClamp => (M::Left, M::Clamp),
            Funnel::RightWrap => (M::Right, M::Wrap),
            Funnel::RightClamp => (M::Right, M::Clamp),
        };
        let operands = self.three_words(data);
        self.push(Opcode::Shf, &[direction, mode, M::B32], operands);
        Ok(())
    }

    pub(crate) fn prmt(&mut self, data: &OpData) -> Lowered {
        let mode = data.get::<Permute>().map(|mode| match mode {
            Permute::F4e => M::F4e,
            Permute::B4e => M::B4e,
            Permute::Rc8 => M::Rc8,
            Permute::Ecl => M::Ecl,
            Permute::Ecr => M::Ecr,
            Permute::Rc16 => M::Rc16,
        });
        let modifiers: Modifiers = [M::B32].into_iter().chain(mode).collect();
        let operands = self.three_words(data);
        self.push(Opcode::Prmt, &modifiers, operands);
        Ok(())
    }

    pub(crate) fn lop3(&mut self, data: &OpData) -> Lowered {
        let Lut(table) = data.get().unwrap_or(Lut(0));
        let mut operands = self.three_words(data);
        operands.push(i64::from(table).into());
        self.push(Opcode::Lop3, &[M::B32], operands);
        Ok(())
    }

    /// A scalar integer of at least 32 bits with the same number in it, and its type. `signed` says how to widen.
    fn widened(&mut self, value: Value, signed: bool) -> Result<(Word, ptx::Type), crate::CodegenError> {
        let element = self.element(value);
        if !matches!(self.func.ty(value), Type::Scalar(_)) {
            return Err(self
                .unsupported(format!("takes a scalar, not {}; extract the elements", self.func.ty(value))));
        }
        let word = self.word(value);
        if element.bits() >= 32 {
            return Ok((word, arithmetic(element)));
        }
        let from = if signed { element } else { unsigned(element) };
        let to = if signed { ptx::Type::S32 } else { ptx::Type::U32 };
        let word = match word {
            Word::Imm(bits) => Word::Imm(tilewright_ir::canonical(from, bits)),
            Word::Reg(register) => {
                let wide = self.new_reg(Width::B32);
                self.push(Opcode::Cvt, &[to.into(), exact(from).into()], [wide.into(), register.into()]);
                Word::Reg(wide)
            }
        };
        Ok((word, to))
    }

    /// `popc`, `clz`
    pub(crate) fn count_bits(&mut self, data: &OpData) -> Lowered {
        let bits = self.element(data.operands[0]).bits();
        let (word, ty) = self.widened(data.operands[0], false)?;
        let untyped = Width::of(ty).bits_type();
        let arg = self.operand(word, untyped);
        let to = self.define_one(data.results[0]);
        let opcode = if data.code == Ir::Popc { Opcode::Popc } else { Opcode::Clz };
        if opcode == Opcode::Clz && bits < 32 {
            let zeros = self.new_reg(Width::B32);
            self.push(opcode, &[untyped.into()], [zeros.into(), arg]);
            self.push(Opcode::Sub, &[M::U32], [to.into(), zeros.into(), (32 - bits).into()]);
        } else {
            self.push(opcode, &[untyped.into()], [to.into(), arg]);
        }
        Ok(())
    }

    pub(crate) fn brev(&mut self, data: &OpData) -> Lowered {
        self.elementwise(data, false, &mut |this, lane, args, to| {
            let bits = lane.element.bits();
            if bits >= 32 {
                let ty = Width::of(lane.ty).bits_type();
                let arg = this.operand(args[0], ty);
                this.push(Opcode::Brev, &[ty.into()], [to.into(), arg]);
                return Ok(());
            }
            // Reversed in 32 bits, the bits of interest are on top; whatever was above them falls out.
            let arg = this.in_reg(args[0], Width::B16);
            let [wide, reversed, low] = [0; 3].map(|_| this.new_reg(Width::B32));
            this.push(Opcode::Cvt, &[M::U32, M::U16], [wide.into(), arg.into()]);
            this.push(Opcode::Brev, &[M::B32], [reversed.into(), wide.into()]);
            this.push(Opcode::Shr, &[M::U32], [low.into(), reversed.into(), (32 - bits).into()]);
            this.push(Opcode::Cvt, &[M::U16, M::U32], [to.into(), low.into()]);
            Ok(())
        })
    }

    pub(crate) fn bfind(&mut self, data: &OpData) -> Lowered {
        let element = self.element(data.operands[0]);
        let as_shift = data.flags().has(Flags::SHIFT_AMOUNT);
        let (word, ty) = self.widened(data.operands[0], element.is_signed())?;
        let arg = self.operand(word, ty);
        let to = self.define_one(data.results[0]);
        if !as_shift {
            self.push(Opcode::Bfind, &[ty.into()], [to.into(), arg]);
            return Ok(());
        }
        let modifiers = [M::Shiftamt, ty.into()];
        if element.bits() >= 32 {
            self.push(Opcode::Bfind, &modifiers, [to.into(), arg]);
            return Ok(());
        }
        // The amount counts from the top of 32 bits; "none" stays all ones.
        let (amount, less) = (self.new_reg(Width::B32), self.new_reg(Width::B32));
        let none = self.new_reg(Width::Pred);
        self.push(Opcode::Bfind, &modifiers, [amount.into(), arg]);
        self.push(Opcode::Sub, &[M::U32], [less.into(), amount.into(), (32 - element.bits()).into()]);
        self.push(Opcode::Setp, &[M::Eq, M::S32], [none.into(), amount.into(), (-1).into()]);
        self.push(Opcode::Selp, &[M::B32], [to.into(), amount.into(), less.into(), none.into()]);
        Ok(())
    }

    /// `bfe`, `bfi`: elements below 32 bits go through 32 bits.
    pub(crate) fn bit_field(&mut self, data: &OpData) -> Lowered {
        let extract = data.code == Ir::Bfe;
        let fields = if extract { 1 } else { 2 };
        let element = self.element(data.operands[0]);
        let mut operands: SmallVec<[Operand; 5]> = SmallVec::new();
        let mut ty = ptx::Type::U32;
        for &value in &data.operands[..fields] {
            let (word, wide) = self.widened(value, extract && element.is_signed())?;
            ty = if extract { wide } else { Width::of(wide).bits_type() };
            operands.push(self.operand(word, ty));
        }
        for &value in &data.operands[fields..] {
            operands.push(self.u32_operand(value));
        }
        let result = self.define_one(data.results[0]);
        let narrow = element.bits() < 32;
        let to = if narrow { self.new_reg(Width::B32) } else { result };
        operands.insert(0, to.into());
        self.push(if extract { Opcode::Bfe } else { Opcode::Bfi }, &[ty.into()], operands);
        if narrow {
            self.push(Opcode::Cvt, &[M::U16, M::U32], [result.into(), to.into()]);
        }
        Ok(())
    }

    /// `dp4a`, `dp2a`
    pub(crate) fn dot(&mut self, data: &OpData) -> Lowered {
        let sign = |value: Value| -> M { arithmetic(self.element(value)).into() };
        let (a, b) = (sign(data.operands[0]), sign(data.operands[1]));
        let half = data.get::<Half>().map(|half| if half == Half::Low { M::Lo } else { M::Hi });
        let modifiers: Modifiers = half.into_iter().chain([a, b]).collect();
        let operands = self.three_words(data);
        self.push(if data.code == Ir::Dp4a { Opcode::Dp4a } else { Opcode::Dp2a }, &modifiers, operands);
        Ok(())
    }
}

fn unsigned(element: Element) -> Element {
    match element {
        Element::I8 => Element::U8,
        Element::I16 => Element::U16,
        other => other,
    }
}
