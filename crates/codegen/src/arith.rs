//! Arithmetic, comparison and selection.
//!
//! Rounding is always written out (`add.rn.f32`), which keeps the assembler from fusing a product and a sum: what the IR says
//! is what the GPU computes, bit for bit.
//!
//! What has no instruction:
//!
//! * bf16 sums and products exist from sm_90. Before, they are one `fma`: `a*1 + b`, `a*b + (-0)`, `b*(-1) + a`. Each is exact
//!   before its single rounding, and adding -0 changes no value, so the results are those of the sm_90 instruction.
//! * Division, square root and the like on 16-bit floats compute in f32 and round back. For quotients and roots f32 has more
//!   than twice the bits plus two, so rounding twice gives what rounding once does.
//! * Bytes compute in 16 bits.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{Cmp, Flags, OpData, Opcode as Ir, Round, Type};
use tilewright_ptx::{self as ptx, Modifier as M, Modifiers, Opcode, Operand, Symbol};

use crate::emit::{Emitter, Lowered};
use crate::error::CodegenError;
use crate::registers::{Width, Word, Words, arithmetic, pair, shape};

/// One element, or a pair of 16-bit elements in one register, of an op that works element by element.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) element: Element,
    /// The PTX type: of the pair if it is one.
    pub(crate) ty: ptx::Type,
}

/// Writes the code for one lane: its arguments, and where the result goes.
type EmitLane<'f, E> = dyn FnMut(&mut E, Lane, &[Word], Symbol) -> Lowered + 'f;

impl Lane {
    fn width(self) -> Width {
        Width::of(self.ty)
    }

    fn is_float(self) -> bool {
        self.element.is_float()
    }

    fn is_half(self) -> bool {
        matches!(self.element, Element::F16 | Element::BF16)
    }
}

impl Emitter<'_> {
    /// Lowers an op element by element; `emit` writes one result. Pairs of 16-bit floats go together if `pairs`. Operands that
    /// are scalars where the first is a vector are the same for all elements.
    pub(crate) fn elementwise(
        &mut self,
        data: &OpData,
        pairs: bool,
        emit: &mut EmitLane<'_, Self>,
    ) -> Lowered {
        let ty = self.func.ty(data.operands[0]);
        let element = self.element(data.operands[0]);
        let result = data.results[0];
        let out = self.func.ty(result);
        let one = Lane { element, ty: arithmetic(element) };
        let inputs: SmallVec<[Words; 3]> = data.operands.iter().map(|&value| self.words(value)).collect();
        let Type::Vector(..) = ty else {
            let args: Words = inputs.iter().map(|words| words[0]).collect();
            let to = self.define_one(result);
            return emit(self, one, &args, to);
        };
        let is_vector: SmallVec<[bool; 3]> =
            data.operands.iter().map(|&value| matches!(self.func.ty(value), Type::Vector(..))).collect();
        let pick = |inputs: &[Words], i: usize| -> Words {
            inputs.iter().zip(&is_vector).map(|(words, vector)| words[if *vector { i } else { 0 }]).collect()
        };
        let paired =
            pair(element).filter(|_| pairs && ty.lanes().is_multiple_of(2) && shape(ty).0 == Width::B32);
        if matches!(element.bits(), 1 | 32 | 64) || paired.is_some() {
            let lane = Lane { element, ty: paired.unwrap_or(one.ty) };
            for (i, to) in self.define(result).into_iter().enumerate() {
                let args = pick(&inputs, i);
                emit(self, lane, &args, to)?;
            }
            return Ok(());
        }
        let inputs: SmallVec<[Words; 3]> = inputs
            .iter()
            .zip(&data.operands)
            .map(|(words, &value)| self.lanes(words, self.func.ty(value)))
            .collect();
        let mut lanes = Words::new();
        for i in 0..ty.lanes() as usize {
            let args = pick(&inputs, i);
            let to = self.new_reg(self.lane_width(result));
            emit(self, one, &args, to)?;
            lanes.push(Word::Reg(to));
        }
        let words = self.packed(&lanes, out);
        self.finish(data, words);
        Ok(())
    }

    /// An instruction on words of one type.
    fn compute(&mut self, opcode: Opcode, modifiers: &[M], ty: ptx::Type, to: Symbol, args: &[Word]) {
        let mut all: Modifiers = modifiers.into();
        all.push(ty.into());
        let mut operands: SmallVec<[Operand; 4]> = SmallVec::from_elem(to.into(), 1);
        for &arg in args {
            operands.push(self.operand(arg, ty));
        }
        self.push(opcode, &all, operands);
    }

    /// Computes in f32 on a 16-bit float and rounds back.
    fn through_f32(
        &mut self,
        lane: Lane,
        args: &[Word],
        to: Symbol,
        emit: &mut dyn FnMut(&mut Self, &[Word], Symbol) -> Lowered,
    ) -> Lowered {
        let wide: Words = args.iter().map(|&arg| self.as_f32(arg, lane.element)).collect();
        let result = self.new_reg(Width::B32);
        emit(self, &wide, result)?;
        self.push(Opcode::Cvt, &[M::Rn, lane.ty.into(), M::F32], [to.into(), result.into()]);
        Ok(())
    }

    /// Rounding, `.ftz` and `.sat` as an instruction of floats writes them.
    fn float_modifiers(&self, data: &OpData, lane: Lane, directed: bool) -> Result<Modifiers, CodegenError> {
        let flags = data.flags();
        let mut modifiers = Modifiers::new();
        let round = data.get::<Round>().unwrap_or(Round::Nearest);
        let allowed = round == Round::Nearest || (directed && !lane.is_half() && round != Round::Away);
        if !allowed {
            return Err(self.unsupported(format!(
                "on {} cannot round {}; convert to f32 first",
                lane.element,
                round.name()
            )));
        }
        modifiers.push(rounding(round));
        self.extra(flags, Flags::FTZ, M::Ftz, lane, &[Element::F16, Element::F32], &mut modifiers)?;
        self.extra(flags, Flags::SAT, M::Sat, lane, &[Element::F16, Element::F32], &mut modifiers)?;
        Ok(modifiers)
    }

    fn extra(
        &self,
        flags: Flags,
        flag: Flags,
        modifier: M,
        lane: Lane,
        elements: &[Element],
        out: &mut Modifiers,
    ) -> Lowered {
        if flags.has(flag) {
            if !elements.contains(&lane.element) {
                return Err(
                    self.unsupported(format!("with flags({flag}) does not exist for {}", lane.element))
                );
            }
            out.push(modifier);
        }
        Ok(())
    }

    /// `add`, `sub`, `mul`
    pub(crate) fn sum_or_product(&mut self, data: &OpData) -> Lowered {
        let opcode = match data.code {
            Ir::Add => Opcode::Add,
            Ir::Sub => Opcode::Sub,
            _ => Opcode::Mul,
        };
        self.elementwise(data, true, &mut |this, lane, args, to| {
            if !lane.is_float() {
                let mut modifiers = Modifiers::new();
                if opcode == Opcode::Mul {
                    modifiers.push(M::Lo);
                }
                if data.flags().has(Flags::SAT) {
                    if lane.element != Element::I32 || opcode == Opcode::Mul {
                        return Err(this.unsupported(format!(
                            "with flags(sat) does not exist for {}; only sums of i32 saturate",
                            lane.element
                        )));
                    }
                    modifiers.push(M::Sat);
                }
                this.compute(opcode, &modifiers, lane.ty, to, args);
                return Ok(());
            }
            let modifiers = this.float_modifiers(data, lane, true)?;
            if lane.element == Element::BF16 && this.arch.number < 90 {
                this.bf16_through_fma(data.code, lane, args, to);
                return Ok(());
            }
            this.compute(opcode, &modifiers, lane.ty, to, args);
            Ok(())
        })
    }

    fn bf16_through_fma(&mut self, code: Ir, lane: Lane, args: &[Word], to: Symbol) {
        let splat =
            |bits: u64| Word::Imm(if lane.ty == ptx::Type::Bf16x2 { bits | bits << 16 } else { bits });
        const ONE: u64 = 0x3f80;
        const MINUS_ONE: u64 = 0xbf80;
        const MINUS_ZERO: u64 = 0x8000;
        let [a, b] = [args[0], args[1]];
        let args = match code {
            Ir::Add => [a, splat(ONE), b],
            Ir::Sub => [b, splat(MINUS_ONE), a],
            _ => [a, b, splat(MINUS_ZERO)],
        };
        self.compute(Opcode::Fma, &[M::Rn], lane.ty, to, &args);
    }

    pub(crate) fn fma(&mut self, data: &OpData) -> Lowered {
        self.elementwise(data, true, &mut |this, lane, args, to| {
            if !lane.is_float() {
                this.compute(Opcode::Mad, &[M::Lo], lane.ty, to, args);
                return Ok(());
            }
            let mut modifiers = this.float_modifiers(data, lane, true)?;
            this.extra(
                data.flags(),
                Flags::RELU,
                M::Relu,
                lane,
                &[Element::F16, Element::BF16],
                &mut modifiers,
            )?;
            this.compute(Opcode::Fma, &modifiers, lane.ty, to, args);
            Ok(())
        })
    }

    pub(crate) fn mul_hi(&mut self, data: &OpData) -> Lowered {
        self.elementwise(data, false, &mut |this, lane, args, to| {
            if lane.element.bits() == 8 {
                let product = this.new_reg(Width::B16);
                let args: Words = args.iter().map(|&arg| this.normal(arg, lane.element)).collect();
                this.compute(Opcode::Mul, &[M::Lo], lane.ty, product, &args);
                this.push(Opcode::Shr, &[lane.ty.into()], [to.into(), product.into(), 8.into()]);
            } else {
                this.compute(Opcode::Mul, &[M::Hi], lane.ty, to, args);
            }
            Ok(())
        })
    }

    pub(crate) fn mul_wide(&mut self, data: &OpData) -> Lowered {
        let from = self.func.ty(data.operands[0]);
        let element = self.element(data.operands[0]);
        let out = self.func.ty(data.results[0]);
        if element.bits() == 64 {
            return Err(self.unsupported(format!("of {from} has no type for its result; use mul and mul_hi")));
        }
        let (a, b) = (self.words(data.operands[0]), self.words(data.operands[1]));
        let (a, b) = (self.lanes(&a, from), self.lanes(&b, from));
        let scalar = matches!(out, Type::Scalar(_));
        let scalar_to = if scalar { Some(self.define_one(data.results[0])) } else { None };
        let mut lanes = Words::new();
        for (a, b) in a.into_iter().zip(b) {
            let to = scalar_to.unwrap_or_else(|| self.new_reg(self.lane_width(data.results[0])));
            let ty = arithmetic(element);
            if element.bits() == 8 {
                let (a, b) = (self.normal(a, element), self.normal(b, element));
                self.compute(Opcode::Mul, &[M::Lo], ty, to, &[a, b]);
            } else {
                self.compute(Opcode::Mul, &[M::Wide], ty, to, &[a, b]);
            }
            lanes.push(Word::Reg(to));
        }
        if !scalar {
            let words = self.packed(&lanes, out);
            self.finish(data, words);
        }
        Ok(())
    }

    pub(crate) fn div(&mut self, data: &OpData) -> Lowered {
        let flags = data.flags();
        self.elementwise(data, false, &mut |this, lane, args, to| {
            if !lane.is_float() {
                let args: Words = args.iter().map(|&arg| this.normal(arg, lane.element)).collect();
                this.compute(Opcode::Div, &[], lane.ty, to, &args);
                return Ok(());
            }
            let exact = !flags.has(Flags::APPROX) && !flags.has(Flags::FULL);
            if lane.is_half() {
                this.float_modifiers(data, lane, false)?;
                return this.through_f32(lane, args, to, &mut |this, args, to| {
                    let modifiers: &[M] = if exact { &[M::Rn] } else { &[M::Approx] };
                    this.compute(Opcode::Div, modifiers, ptx::Type::F32, to, args);
                    Ok(())
                });
            }
            let mut modifiers = this.float_modifiers(data, lane, true)?;
            if !exact {
                if lane.element != Element::F32 {
                    return Err(this.unsupported(format!(
                        "with flags({flags}) exists for f32 only, not {}",
                        lane.element
                    )));
                }
                modifiers[0] = if flags.has(Flags::FULL) { M::Full } else { M::Approx };
            }
            this.compute(Opcode::Div, &modifiers, lane.ty, to, args);
            Ok(())
        })
    }

    pub(crate) fn rem(&mut self, data: &OpData) -> Lowered {
        self.elementwise(data, false, &mut |this, lane, args, to| {
            let args: Words = args.iter().map(|&arg| this.normal(arg, lane.element)).collect();
            this.compute(Opcode::Rem, &[], lane.ty, to, &args);
            Ok(())
        })
    }

    /// `neg`, `abs`
    pub(crate) fn sign(&mut self, data: &OpData) -> Lowered {
        let opcode = if data.code == Ir::Neg { Opcode::Neg } else { Opcode::Abs };
        if opcode == Opcode::Abs && !self.element(data.operands[0]).is_signed() {
            let words = self.words(data.operands[0]);
            self.finish(data, words);
            return Ok(());
        }
        self.elementwise(data, true, &mut |this, lane, args, to| {
            let mut modifiers = Modifiers::new();
            this.extra(
                data.flags(),
                Flags::FTZ,
                M::Ftz,
                lane,
                &[Element::F16, Element::F32],
                &mut modifiers,
            )?;
            let ty = match lane.ty {
                ptx::Type::U16 => ptx::Type::S16,
                ptx::Type::U32 => ptx::Type::S32,
                ptx::Type::U64 => ptx::Type::S64,
                other => other,
            };
            let arg = if opcode == Opcode::Abs { this.normal(args[0], lane.element) } else { args[0] };
            this.compute(opcode, &modifiers, ty, to, &[arg]);
            Ok(())
        })
    }

    /// `min`, `max`
    pub(crate) fn extremum(&mut self, data: &OpData) -> Lowered {
        let opcode = if data.code == Ir::Min { Opcode::Min } else { Opcode::Max };
        let flags = data.flags();
        self.elementwise(data, true, &mut |this, lane, args, to| {
            let mut modifiers = Modifiers::new();
            let floats = [Element::F16, Element::BF16, Element::F32];
            this.extra(flags, Flags::FTZ, M::Ftz, lane, &[Element::F16, Element::F32], &mut modifiers)?;
            if lane.element != Element::F64 {
                this.extra(flags, Flags::NAN, M::Nan, lane, &floats, &mut modifiers)?;
            }
            if flags.has(Flags::XORSIGN_ABS) {
                this.extra(flags, Flags::XORSIGN_ABS, M::Xorsign, lane, &floats, &mut modifiers)?;
                modifiers.push(M::AbsModifier);
            }
            let args: Words = args.iter().map(|&arg| this.normal(arg, lane.element)).collect();
            if flags.has(Flags::NAN) && lane.element == Element::F64 {
                this.double_extremum_or_nan(opcode, &args, to);
                return Ok(());
            }
            this.compute(opcode, &modifiers, lane.ty, to, &args);
            Ok(())
        })
    }

    /// The instructions for f64 have no `.NaN`: they prefer the number.
    fn double_extremum_or_nan(&mut self, opcode: Opcode, args: &[Word], to: Symbol) {
        const NAN: u64 = 0x7ff8_0000_0000_0000;
        let (number, none) = (self.new_reg(Width::B64), self.new_reg(Width::Pred));
        self.compute(opcode, &[], ptx::Type::F64, number, args);
        self.compute(Opcode::Setp, &[M::NanTest], ptx::Type::F64, none, args);
        let nan = self.operand(Word::Imm(NAN), ptx::Type::B64);
        self.push(Opcode::Selp, &[M::B64], [to.into(), nan, number.into(), none.into()]);
    }

    pub(crate) fn copysign(&mut self, data: &OpData) -> Lowered {
        self.elementwise(data, true, &mut |this, lane, args, to| {
            if !lane.is_half() {
                // The instruction takes the sign first.
                this.compute(Opcode::Copysign, &[], lane.ty, to, &[args[1], args[0]]);
                return Ok(());
            }
            let width = lane.width();
            let twice = |bits: u64| if width == Width::B32 { bits | bits << 16 } else { bits };
            let (value, sign) = (this.new_reg(width), this.new_reg(width));
            let bits = width.bits_type();
            this.compute(Opcode::And, &[], bits, value, &[args[0], Word::Imm(twice(0x7fff))]);
            this.compute(Opcode::And, &[], bits, sign, &[args[1], Word::Imm(twice(0x8000))]);
            this.compute(Opcode::Or, &[], bits, to, &[Word::Reg(value), Word::Reg(sign)]);
            Ok(())
        })
    }

    pub(crate) fn round_int(&mut self, data: &OpData) -> Lowered {
        let round = data.get::<Round>().unwrap_or(Round::Nearest);
        let ftz = data.flags().has(Flags::FTZ);
        self.elementwise(data, false, &mut |this, lane, args, to| {
            if lane.element == Element::BF16 || (round == Round::Away && lane.is_half()) {
                let narrow = Lane { element: Element::F32, ty: ptx::Type::F32 };
                return this.through_f32(lane, args, to, &mut |this, args, to| {
                    this.round_lane(round, ftz, narrow, args[0], to);
                    Ok(())
                });
            }
            this.round_lane(round, ftz, lane, args[0], to);
            Ok(())
        })
    }

    fn round_lane(&mut self, round: Round, ftz: bool, lane: Lane, arg: Word, to: Symbol) {
        let mut arg = self.operand(arg, lane.ty);
        let mode = match round {
            Round::Nearest => M::Rni,
            Round::Zero | Round::Away => M::Rzi,
            Round::Down => M::Rmi,
            Round::Up => M::Rpi,
        };
        if round == Round::Away {
            // Adding the largest number below one half, with the sign of the value, then truncating: one half itself would carry
            // 0.49999997 over to 1.
            let below = if lane.ty == ptx::Type::F64 {
                Word::Imm(0x3fdf_ffff_ffff_ffff)
            } else {
                Word::Imm(0x3eff_ffff)
            };
            let below = self.operand(below, lane.ty);
            let (bias, sum) = (self.new_reg(lane.width()), self.new_reg(lane.width()));
            self.push(Opcode::Copysign, &[lane.ty.into()], [bias.into(), arg.clone(), below]);
            self.push(Opcode::Add, &[M::Rn, lane.ty.into()], [sum.into(), arg, bias.into()]);
            arg = sum.into();
        }
        let mut modifiers: Modifiers = SmallVec::from_elem(mode, 1);
        if ftz && lane.ty != ptx::Type::F64 {
            modifiers.push(M::Ftz);
        }
        modifiers.extend([lane.ty.into(), lane.ty.into()]);
        self.push(Opcode::Cvt, &modifiers, [to.into(), arg]);
    }

    /// `rcp`, `sqrt`, `rsqrt`, `sin`, `cos`, `ex2`, `lg2`, `tanh`
    pub(crate) fn function(&mut self, data: &OpData) -> Lowered {
        let opcode = match data.code {
            Ir::Rcp => Opcode::Rcp,
            Ir::Sqrt => Opcode::Sqrt,
            Ir::Rsqrt => Opcode::Rsqrt,
            Ir::Sin => Opcode::Sin,
            Ir::Cos => Opcode::Cos,
            Ir::Ex2 => Opcode::Ex2,
            Ir::Lg2 => Opcode::Lg2,
            _ => Opcode::Tanh,
        };
        let can_be_exact = matches!(opcode, Opcode::Rcp | Opcode::Sqrt);
        let exact = can_be_exact && !data.flags().has(Flags::APPROX);
        let has_halves = matches!(opcode, Opcode::Ex2 | Opcode::Tanh);
        let newer = self.arch.number >= 90;
        let native = |element: Element| has_halves && (element == Element::F16 || newer);
        self.elementwise(data, native(self.element(data.operands[0])), &mut |this, lane, args, to| {
            let ftz = data.flags().has(Flags::FTZ);
            if lane.is_half() && native(lane.element) {
                let mut modifiers: Modifiers = SmallVec::from_elem(M::Approx, 1);
                // The exponential of bf16 flushes in any case.
                if opcode == Opcode::Ex2 && lane.element == Element::BF16 {
                    modifiers.push(M::Ftz);
                }
                this.compute(opcode, &modifiers, lane.ty, to, args);
                return Ok(());
            }
            let mut modifiers: Modifiers = SmallVec::new();
            if exact {
                let wide = Lane { element: Element::F32, ty: ptx::Type::F32 };
                modifiers
                    .push(this.float_modifiers(data, if lane.is_half() { wide } else { lane }, true)?[0]);
            } else {
                modifiers.push(M::Approx);
            }
            if ftz {
                modifiers.push(M::Ftz);
            }
            if lane.is_half() {
                return this.through_f32(lane, args, to, &mut |this, args, to| {
                    this.compute(opcode, &modifiers, ptx::Type::F32, to, args);
                    Ok(())
                });
            }
            if lane.element == Element::F64 && !exact && !(opcode == Opcode::Rsqrt || opcode == Opcode::Rcp) {
                return Err(this.unsupported("has no approximation for f64; convert to f32"));
            }
            if lane.element == Element::F64 && opcode == Opcode::Rcp && !exact && !ftz {
                modifiers.push(M::Ftz);
            }
            this.compute(opcode, &modifiers, lane.ty, to, args);
            Ok(())
        })
    }

    pub(crate) fn compare(&mut self, data: &OpData) -> Lowered {
        let cmp = data.get::<Cmp>().unwrap_or(Cmp::Eq);
        let element = self.element(data.operands[0]);
        let (a, b) = (self.word(data.operands[0]), self.word(data.operands[1]));
        if element == Element::Bool {
            return self.compare_bools(data, cmp, a, b);
        }
        let mut ty = arithmetic(element);
        let (a, b) = match element {
            Element::E4M3 | Element::E5M2 | Element::E2M1 | Element::UE8M0 => {
                return Err(self.unsupported(format!("does not compare {element}; convert to f32 first")));
            }
            Element::BF16 if self.arch.number < 90 => {
                ty = ptx::Type::F32;
                (self.as_f32(a, element), self.as_f32(b, element))
            }
            _ => (self.normal(a, element), self.normal(b, element)),
        };
        let mut modifiers: Modifiers = SmallVec::from_elem(comparison(cmp, element.is_float()), 1);
        if data.flags().has(Flags::FTZ) && matches!(ty, ptx::Type::F32 | ptx::Type::F16) {
            modifiers.push(M::Ftz);
        }
        let to = self.define_one(data.results[0]);
        self.compute(Opcode::Setp, &modifiers, ty, to, &[a, b]);
        Ok(())
    }

    /// Truth values order as 0 and 1.
    fn compare_bools(&mut self, data: &OpData, cmp: Cmp, a: Word, b: Word) -> Lowered {
        let (a, b) = (self.in_reg(a, Width::Pred), self.in_reg(b, Width::Pred));
        let (opcode, negate, a, b) = match cmp {
            Cmp::Ne => (Opcode::Xor, None, a, b),
            Cmp::Eq => (Opcode::Xor, Some(a), a, b),
            Cmp::Lt => (Opcode::And, Some(a), a, b),
            Cmp::Le => (Opcode::Or, Some(a), a, b),
            Cmp::Gt => (Opcode::And, Some(b), b, a),
            Cmp::Ge => (Opcode::Or, Some(b), b, a),
        };
        let first = match negate {
            None => a,
            Some(side) => {
                let not = self.new_reg(Width::Pred);
                self.push(Opcode::Not, &[M::PRED], [not.into(), side.into()]);
                not
            }
        };
        let to = self.define_one(data.results[0]);
        self.push(opcode, &[M::PRED], [to.into(), first.into(), b.into()]);
        Ok(())
    }

    pub(crate) fn select(&mut self, data: &OpData) -> Lowered {
        let [condition, yes, no] = data.operands[..] else { return Ok(()) };
        let result = data.results[0];
        let (width, _) = shape(self.func.ty(result));
        let (yes, no) = (self.words(yes), self.words(no));
        if let Some(bits) = self.constant(condition) {
            self.copy_result(result, if bits & 1 == 1 { &yes } else { &no });
            return Ok(());
        }
        let condition = self.reg(condition);
        let to = self.define(result);
        for ((to, yes), no) in to.into_iter().zip(yes).zip(no) {
            if width == Width::Pred {
                self.select_bool(to, condition, yes, no);
                continue;
            }
            let ty = width.bits_type();
            let (yes, no) = (self.operand(yes, ty), self.operand(no, ty));
            self.push(Opcode::Selp, &[ty.into()], [to.into(), yes, no, condition.into()]);
        }
        Ok(())
    }

    fn select_bool(&mut self, to: Symbol, condition: Symbol, yes: Word, no: Word) {
        let (yes, no) = (self.in_reg(yes, Width::Pred), self.in_reg(no, Width::Pred));
        let [left, not, right] = [0; 3].map(|_| self.new_reg(Width::Pred));
        self.push(Opcode::And, &[M::PRED], [left.into(), condition.into(), yes.into()]);
        self.push(Opcode::Not, &[M::PRED], [not.into(), condition.into()]);
        self.push(Opcode::And, &[M::PRED], [right.into(), not.into(), no.into()]);
        self.push(Opcode::Or, &[M::PRED], [to.into(), left.into(), right.into()]);
    }
}

/// The comparison as PTX spells it. Floats differ when one is no number.
pub(crate) fn comparison(cmp: Cmp, float: bool) -> M {
    match cmp {
        Cmp::Eq => M::Eq,
        Cmp::Ne if float => M::Neu,
        Cmp::Ne => M::Ne,
        Cmp::Lt => M::Lt,
        Cmp::Le => M::Le,
        Cmp::Gt => M::Gt,
        Cmp::Ge => M::Ge,
    }
}

/// The rounding of floats as PTX spells it.
pub(crate) fn rounding(round: Round) -> M {
    match round {
        Round::Nearest => M::Rn,
        Round::Zero => M::Rz,
        Round::Down => M::Rm,
        Round::Up => M::Rp,
        Round::Away => M::Rna,
    }
}
