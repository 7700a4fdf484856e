//! Conversions between element types.
//!
//! A conversion goes along a path of instructions, chosen by the two elements:
//!
//! * pairs of 16-bit and 8-bit floats convert two at a time where the instruction exists, which is also how single 8-bit and
//!   smaller floats convert: in a pair with zero;
//! * 8-bit floats and bf16 widen through f16 and f32, which is exact;
//! * before sm_89 nothing converts 8-bit floats, and their bits are put together from those of f16 and f32;
//! * to bf16 from f64 and from integers of more than 24 bits there is no instruction before sm_90, and to 8-bit floats there never is.
//!   Then the value is first rounded *to odd* in f32: towards zero, with the last bit set if anything was lost. Rounding that to the
//!   narrow type gives the result of rounding once, since f32 has more than two bits to spare.
//!
//! To tf32, ties round away from zero (`rna`, which every chip since sm_80 has) unless the op asks for ties to even.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{Flags, OpData, Round, Type};
use tilewright_ptx::{self as ptx, Modifier as M, Modifiers, Opcode, Operand, Symbol};

use crate::arith::rounding;
use crate::emit::{Emitter, Lowered};
use crate::error::CodegenError;
use crate::registers::{Width, Word, Words, element_width, exact};

/// The PTX type of two elements in one register, for those that only convert in pairs.
fn small_pair(element: Element) -> Option<ptx::Type> {
    match element {
        Element::E4M3 => Some(ptx::Type::E4m3x2),
        Element::E5M2 => Some(ptx::Type::E5m2x2),
        Element::E2M1 => Some(ptx::Type::E2m1x2),
        Element::UE8M0 => Some(ptx::Type::Ue8m0x2),
        _ => None,
    }
}

/// Where the bits of an 8-bit float are, as those who convert without an instruction must know.
struct Small {
    mantissa_bits: u32,
    bias: u32,
    /// The largest number, as f32.
    largest: f32,
}

impl Small {
    fn of(ty: ptx::Type) -> Option<Small> {
        match ty {
            ptx::Type::E4m3x2 => Some(Small { mantissa_bits: 3, bias: 7, largest: 448.0 }),
            ptx::Type::E5m2x2 => Some(Small { mantissa_bits: 2, bias: 15, largest: 57344.0 }),
            _ => None,
        }
    }

    /// The bits of a power of two as f32, from the exponent that stands in the 8-bit float.
    fn power(&self, exponent: u32) -> u32 {
        (exponent + 127 - self.bias) << 23
    }
}

impl Emitter<'_> {
    pub(crate) fn convert(&mut self, data: &OpData) -> Lowered {
        let (from, to) = (self.func.ty(data.operands[0]), self.func.ty(data.results[0]));
        let (Some(source), Some(target)) = (from.element(), to.element()) else {
            return Err(
                self.unsupported(format!("from {from} to {to}; use cast_space or ptr_to_int for pointers"))
            );
        };
        let flags = data.flags();
        let round = data.get::<Round>();
        let words = self.words(data.operands[0]);
        if self.is_renaming(source, target, flags) {
            self.finish(data, words);
            return Ok(());
        }
        // From one format below 16 bits to another: the wider float in between holds every value of the first.
        let (lanes, source) = match (small_pair(source), small_pair(target)) {
            (Some(_), Some(_)) => {
                let middle = if source == Element::UE8M0 { Element::F32 } else { Element::F16 };
                (self.widen_small(source, &words, from, middle, (None, Flags::NONE))?, middle)
            }
            (Some(_), None) => (Words::new(), source),
            _ => (self.lanes(&words, from), source),
        };
        let paired = !matches!(to, Type::Scalar(_)) && lanes.len() % 2 == 0;
        let words = if let Some(ty) = small_pair(target) {
            let halves = self.shrink(source, ty, &lanes, round, flags)?;
            self.assemble_small(target, &halves, to)
        } else if small_pair(source).is_some() {
            // Every float that is wider holds what these are; only integers have something to round.
            let round = round.filter(|_| target.is_int());
            let wide = self.widen_small(source, &words, from, target, (round, flags))?;
            self.packed(&wide, to)
        } else if paired && source == Element::F32 && matches!(target, Element::F16 | Element::BF16) {
            let pair = if target == Element::F16 { M::F16X2 } else { M::BF16X2 };
            let mut modifiers = self.narrowing(round, flags)?;
            modifiers.extend([pair, M::F32]);
            let mut out = Words::new();
            for two in lanes.chunks(2) {
                out.push(Word::Reg(self.narrow_pair(&modifiers, two)));
            }
            out
        } else if paired
            && source == Element::BF16
            && matches!(target, Element::F32 | Element::TF32)
            && flags.is_empty()
        {
            words.iter().flat_map(|&word| self.split_bf16(word)).collect()
        } else {
            let mut out = Words::new();
            for lane in lanes {
                out.push(self.convert_lane(lane, source, target, round, flags)?);
            }
            self.packed(&out, to)
        };
        self.finish(data, words);
        Ok(())
    }

    /// Do both types have the same bits for every value that can occur?
    fn is_renaming(&self, from: Element, to: Element, flags: Flags) -> bool {
        let plain = flags.without(Flags::FTZ).is_empty();
        let same_integer = from.is_int() && to.is_int() && from.bits() == to.bits();
        plain && (from == to || same_integer || (from == Element::TF32 && to == Element::F32))
    }

    /// Rounding and clamping of a conversion to a narrower float.
    fn narrowing(&self, round: Option<Round>, flags: Flags) -> Result<Modifiers, CodegenError> {
        let round = round.unwrap_or(Round::Nearest);
        if !matches!(round, Round::Nearest | Round::Zero) {
            return Err(
                self.unsupported(format!("cannot round {} to a 16-bit float; rn and rz exist", round.name()))
            );
        }
        let mut modifiers: Modifiers = SmallVec::from_elem(rounding(round), 1);
        if flags.has(Flags::RELU) {
            modifiers.push(M::Relu);
        }
        if flags.has(Flags::SATFINITE) {
            modifiers.push(M::Satfinite);
        }
        Ok(modifiers)
    }

    /// Two f32 words into one register; the instruction takes the upper one first.
    fn narrow_pair(&mut self, modifiers: &[M], lanes: &[Word]) -> Symbol {
        let to = self.new_reg(Width::B32);
        let (low, high) = (self.operand(lanes[0], ptx::Type::F32), self.operand(lanes[1], ptx::Type::F32));
        self.push(Opcode::Cvt, modifiers, [to.into(), high, low]);
        to
    }

    /// Two bf16 in a word are the upper halves of two f32.
    fn split_bf16(&mut self, word: Word) -> [Word; 2] {
        match word {
            Word::Imm(bits) => [Word::Imm((bits & 0xffff) << 16), Word::Imm(bits & 0xffff_0000)],
            Word::Reg(register) => {
                let (low, high) = (self.new_reg(Width::B32), self.new_reg(Width::B32));
                self.push(Opcode::Shl, &[M::B32], [low.into(), register.into(), 16.into()]);
                self.push(Opcode::And, &[M::B32], [high.into(), register.into(), 0xffff_0000_u32.into()]);
                [Word::Reg(low), Word::Reg(high)]
            }
        }
    }

    /// A 16-bit float (or a 32-bit one, unchanged) as f32.
    pub(crate) fn as_f32(&mut self, word: Word, element: Element) -> Word {
        match element {
            Element::F16 => {
                let (to, from) = (self.new_reg(Width::B32), self.in_reg(word, Width::B16));
                self.push(Opcode::Cvt, &[M::F32, M::F16], [to.into(), from.into()]);
                Word::Reg(to)
            }
            Element::BF16 => match word {
                Word::Imm(bits) => Word::Imm((bits & 0xffff) << 16),
                Word::Reg(register) => {
                    let to = self.new_reg(Width::B32);
                    let halves = Operand::List(vec![0.into(), register.into()]);
                    self.push(Opcode::Mov, &[M::B32], [to.into(), halves]);
                    Word::Reg(to)
                }
            },
            _ => word,
        }
    }

    /// Pairs of 8-bit or smaller floats from elements of `source`, each in a register of its own.
    fn shrink(
        &mut self,
        source: Element,
        ty: ptx::Type,
        lanes: &[Word],
        round: Option<Round>,
        flags: Flags,
    ) -> Result<Words, CodegenError> {
        if flags.has(Flags::FTZ) || flags.has(Flags::SAT) {
            return Err(self.unsupported(format!("to {ty} takes the flags satfinite and relu, not {flags}")));
        }
        let scale = ty == ptx::Type::Ue8m0x2;
        let round = match round.unwrap_or(if scale { Round::Up } else { Round::Nearest }) {
            Round::Nearest if !scale => M::Rn,
            Round::Zero if scale => M::Rz,
            Round::Up if scale => M::Rp,
            other => return Err(self.unsupported(format!("to {ty} cannot round {}", other.name()))),
        };
        let mut modifiers: Modifiers = SmallVec::from_slice(&[round, M::Satfinite]);
        if flags.has(Flags::RELU) {
            modifiers.push(M::Relu);
        }
        modifiers.push(ty.into());
        let mut out = Words::new();
        for two in lanes.chunks(2) {
            let high = two.get(1).copied();
            if let Some(small) = Small::of(ty).filter(|_| self.arch.number < 89) {
                let relu = flags.has(Flags::RELU);
                let low = self.lane_to_small(two[0], source, &small, relu)?;
                let high = high.map(|high| self.lane_to_small(high, source, &small, relu)).transpose()?;
                out.push(Word::Reg(self.bytes_to_half(low, high)));
                continue;
            }
            if source == Element::F16 && matches!(ty, ptx::Type::E4m3x2 | ptx::Type::E5m2x2) {
                let pair =
                    self.packed(&[two[0], high.unwrap_or(Word::Imm(0))], Type::Vector(Element::F16, 2));
                let (to, pair) = (self.new_reg(Width::B16), self.in_reg(pair[0], Width::B32));
                let modifiers: Modifiers = modifiers.iter().copied().chain([M::F16X2]).collect();
                self.push(Opcode::Cvt, &modifiers, [to.into(), pair.into()]);
                out.push(Word::Reg(to));
                continue;
            }
            let low = self.lane_as_near_f32(two[0], source)?;
            let high = match high {
                Some(high) => self.lane_as_near_f32(high, source)?,
                None => Word::Imm(0),
            };
            let width = if ty == ptx::Type::E2m1x2 { Width::B8 } else { Width::B16 };
            let to = self.new_reg(width);
            let (low, high) = (self.operand(low, ptx::Type::F32), self.operand(high, ptx::Type::F32));
            let modifiers: Modifiers = modifiers.iter().copied().chain([M::F32]).collect();
            self.push(Opcode::Cvt, &modifiers, [to.into(), high, low]);
            out.push(Word::Reg(to));
        }
        Ok(out)
    }

    /// The words of a vector from registers that hold two 8-bit or 4-bit elements each.
    fn assemble_small(&mut self, element: Element, pairs: &[Word], to: Type) -> Words {
        if element == Element::E2M1 {
            // Two elements fill a byte, which has a register class of its own.
            let bytes: Words = pairs
                .chunks(2)
                .map(|two| {
                    let half = self.new_reg(Width::B16);
                    let byte = |word: Option<&Word>| match word {
                        Some(Word::Reg(register)) => (*register).into(),
                        _ => Operand::from(0),
                    };
                    let list = Operand::List(vec![byte(two.first()), byte(two.get(1))]);
                    self.push(Opcode::Mov, &[M::B16], [half.into(), list]);
                    Word::Reg(half)
                })
                .collect();
            return self.halves_to_words(&bytes, to);
        }
        self.halves_to_words(pairs, to)
    }

    fn halves_to_words(&mut self, halves: &[Word], to: Type) -> Words {
        let (width, _) = crate::registers::shape(to);
        if width == Width::B16 {
            return halves.into();
        }
        // Packed like a vector of 16-bit elements.
        self.packed(halves, Type::Vector(Element::U16, u16::try_from(halves.len()).unwrap_or(u16::MAX)))
    }

    /// Elements of `target` from 8-bit or smaller floats.
    fn widen_small(
        &mut self,
        source: Element,
        words: &[Word],
        from: Type,
        target: Element,
        (round, flags): (Option<Round>, Flags),
    ) -> Result<Words, CodegenError> {
        let count = from.lanes() as usize;
        let as_halves =
            Type::Vector(Element::U16, u16::try_from(from.bits().div_ceil(16)).unwrap_or(u16::MAX));
        let halves = self.lanes(words, as_halves);
        let via = if source == Element::UE8M0 { Element::BF16 } else { Element::F16 };
        let (Some(small), Some(wide)) = (small_pair(source), crate::registers::pair(via)) else {
            return Ok(halves);
        };
        let mut out = Words::new();
        for half in halves {
            let half = self.in_reg(half, Width::B16);
            let mut pairs: SmallVec<[Symbol; 2]> = SmallVec::from_elem(half, 1);
            if source == Element::E2M1 {
                let bytes = [self.new_reg(Width::B8), self.new_reg(Width::B8)];
                self.push(Opcode::Mov, &[M::B16], [Operand::list(bytes), half.into()]);
                pairs = bytes.into();
            }
            for pair in pairs {
                if out.len() >= count {
                    break;
                }
                let word = if self.arch.number < 89 && Small::of(small).is_some() {
                    self.halves_of_small(small, pair)
                } else {
                    let word = self.new_reg(Width::B32);
                    self.push(Opcode::Cvt, &[M::Rn, wide.into(), small.into()], [word.into(), pair.into()]);
                    word
                };
                for lane in self.lanes(&[Word::Reg(word)], Type::Vector(via, 2)) {
                    if out.len() < count {
                        out.push(self.convert_lane(lane, via, target, round, flags)?);
                    }
                }
            }
        }
        Ok(out)
    }

    /// Two f16 in a word from two 8-bit floats, by their bits.
    fn halves_of_small(&mut self, ty: ptx::Type, pair: Symbol) -> Symbol {
        let [bytes, spread] = [0; 2].map(|_| self.new_reg(Width::B32));
        self.push(Opcode::Cvt, &[M::U32, M::U16], [bytes.into(), pair.into()]);
        // Each byte becomes the upper one of a half. That is all for e5m2, which is an f16 with less mantissa.
        self.push(Opcode::Prmt, &[M::B32], [spread.into(), bytes.into(), 0.into(), 0x1404.into()]);
        if ty == ptx::Type::E5m2x2 {
            return spread;
        }
        // e4m3 has one bit of exponent less, and a bias that is smaller by 8: shifted by that bit, it is a 256th of itself as an f16. The
        // carry of its NaN, all ones, sets the bit that makes it one of f16.
        let [sign, size, carry, nan, joined, bits] = [0; 6].map(|_| self.new_reg(Width::B32));
        self.push(Opcode::And, &[M::B32], [sign.into(), spread.into(), 0x8000_8000_u32.into()]);
        self.push(Opcode::And, &[M::B32], [size.into(), spread.into(), 0x7f00_7f00_u32.into()]);
        let shifted = self.new_reg(Width::B32);
        self.push(Opcode::Shr, &[M::U32], [shifted.into(), size.into(), 1.into()]);
        self.push(Opcode::Add, &[M::U32], [carry.into(), shifted.into(), 0x0080_0080_u32.into()]);
        self.push(Opcode::And, &[M::B32], [nan.into(), carry.into(), 0x4000_4000_u32.into()]);
        self.push(Opcode::Or, &[M::B32], [joined.into(), shifted.into(), nan.into()]);
        self.push(Opcode::Or, &[M::B32], [bits.into(), joined.into(), sign.into()]);
        let [scale, value] = [0; 2].map(|_| self.new_reg(Width::B32));
        self.push(Opcode::Mov, &[M::B32], [scale.into(), 0x5c00_5c00_u32.into()]);
        self.push(Opcode::Mul, &[M::Rn, M::F16X2], [value.into(), bits.into(), scale.into()]);
        value
    }

    /// The bits of the nearest 8-bit float, in the lowest byte of a word: the largest number instead of one beyond it.
    fn lane_to_small(
        &mut self,
        word: Word,
        source: Element,
        small: &Small,
        relu: bool,
    ) -> Result<Symbol, CodegenError> {
        let value = self.lane_as_near_f32(word, source)?;
        let mut value = self.in_reg(value, Width::B32);
        if relu {
            let positive = self.new_reg(Width::B32);
            self.push(Opcode::Max, &[M::Nan, M::F32], [positive.into(), value.into(), 0.0f32.into()]);
            value = positive;
        }
        let [magnitude, size] = [0; 2].map(|_| self.new_reg(Width::B32));
        self.push(Opcode::Abs, &[M::F32], [magnitude.into(), value.into()]);
        self.push(Opcode::Min, &[M::F32], [size.into(), magnitude.into(), small.largest.into()]);
        // Rounded where the mantissa ends, ties to even: a carry goes on to the exponent, which then only has the wrong bias.
        let cut = 23 - small.mantissa_bits;
        let [odd, last, up, rounded, kept, normal] = [0; 6].map(|_| self.new_reg(Width::B32));
        self.push(Opcode::Shr, &[M::U32], [odd.into(), size.into(), cut.into()]);
        self.push(Opcode::And, &[M::B32], [last.into(), odd.into(), 1.into()]);
        self.push(Opcode::Add, &[M::U32], [up.into(), size.into(), ((1u32 << (cut - 1)) - 1).into()]);
        self.push(Opcode::Add, &[M::U32], [rounded.into(), up.into(), last.into()]);
        self.push(Opcode::Shr, &[M::U32], [kept.into(), rounded.into(), cut.into()]);
        self.push(Opcode::Sub, &[M::U32], [normal.into(), kept.into(), (small.power(0) >> cut).into()]);
        // Below the least normal number, an addition rounds: the sum's last bit is worth what the last of the 8-bit float is.
        let [sum, tiny, bits, sign, signed, result] = [0; 6].map(|_| self.new_reg(Width::B32));
        let large = small.power(1 + cut);
        self.push(Opcode::Add, &[M::Rn, M::F32], [sum.into(), size.into(), f32::from_bits(large).into()]);
        self.push(Opcode::Sub, &[M::U32], [tiny.into(), sum.into(), large.into()]);
        let [is_tiny, is_nan] = [0; 2].map(|_| self.new_reg(Width::Pred));
        let least = f32::from_bits(small.power(1));
        self.push(Opcode::Setp, &[M::Lt, M::F32], [is_tiny.into(), size.into(), least.into()]);
        self.push(Opcode::Selp, &[M::B32], [bits.into(), tiny.into(), normal.into(), is_tiny.into()]);
        let byte = self.new_reg(Width::B32);
        self.push(Opcode::Shr, &[M::U32], [byte.into(), value.into(), 24.into()]);
        self.push(Opcode::And, &[M::B32], [sign.into(), byte.into(), 0x80.into()]);
        self.push(Opcode::Or, &[M::B32], [signed.into(), bits.into(), sign.into()]);
        self.push(Opcode::Setp, &[M::NanTest, M::F32], [is_nan.into(), value.into(), value.into()]);
        self.push(Opcode::Selp, &[M::B32], [result.into(), 0x7f.into(), signed.into(), is_nan.into()]);
        Ok(result)
    }

    /// A register of 16 bits from the lowest bytes of two words, or of one.
    fn bytes_to_half(&mut self, low: Symbol, high: Option<Symbol>) -> Symbol {
        let mut both = low;
        if let Some(high) = high {
            both = self.new_reg(Width::B32);
            self.push(Opcode::Prmt, &[M::B32], [both.into(), low.into(), high.into(), 0x0040.into()]);
        }
        let half = self.new_reg(Width::B16);
        self.push(Opcode::Cvt, &[M::U16, M::U32], [half.into(), both.into()]);
        half
    }

    /// f32 that rounds to any float of at most 22 bits as the value itself would.
    fn lane_as_near_f32(&mut self, word: Word, from: Element) -> Result<Word, CodegenError> {
        if from == Element::F64 || (from.is_int() && from.bits() > 16) {
            return Ok(self.rounded_to_odd(word, from));
        }
        self.lane_as_f32(word, from)
    }

    fn lane_as_f32(&mut self, word: Word, from: Element) -> Result<Word, CodegenError> {
        match from {
            Element::F32 | Element::TF32 => Ok(word),
            _ => self.convert_lane(word, from, Element::F32, None, Flags::NONE),
        }
    }

    /// One element, neither side smaller than 16 bits if it is a float.
    fn convert_lane(
        &mut self,
        word: Word,
        from: Element,
        to: Element,
        round: Option<Round>,
        flags: Flags,
    ) -> Result<Word, CodegenError> {
        if self.is_renaming(from, to, flags) {
            return Ok(word);
        }
        let target = self.new_reg(element_width(to));
        match (from, to) {
            (Element::Bool, _) => {
                let one = self.one(to)?;
                let ty = element_width(to).bits_type();
                let (one, zero) = (self.operand(Word::Imm(one), ty), self.operand(Word::Imm(0), ty));
                let condition = self.in_reg(word, Width::Pred);
                self.push(Opcode::Selp, &[ty.into()], [target.into(), one, zero, condition.into()]);
            }
            (_, Element::Bool) => {
                let (word, ty) = match from {
                    Element::BF16 => (self.as_f32(word, from), ptx::Type::F32),
                    _ => (self.normal(word, from), crate::registers::arithmetic(from)),
                };
                let differs = if from.is_float() { M::Neu } else { M::Ne };
                let (word, zero) = (self.operand(word, ty), self.operand(Word::Imm(0), ty));
                self.push(Opcode::Setp, &[differs, ty.into()], [target.into(), word, zero]);
            }
            (_, Element::TF32) => {
                let wide = self.lane_as_f32(word, from)?;
                if matches!(from, Element::F16 | Element::BF16) {
                    return Ok(wide);
                }
                let mode = match round {
                    None | Some(Round::Away) => M::Rna,
                    Some(other) => rounding(other),
                };
                let wide = self.operand(wide, ptx::Type::F32);
                let mut modifiers: Modifiers = SmallVec::from_elem(mode, 1);
                for (flag, modifier) in [(Flags::RELU, M::Relu), (Flags::SATFINITE, M::Satfinite)] {
                    if flags.has(flag) {
                        modifiers.push(modifier);
                    }
                }
                modifiers.extend([M::TF32, M::F32]);
                self.push(Opcode::Cvt, &modifiers, [target.into(), wide]);
            }
            (Element::TF32, _) => return self.convert_lane(word, Element::F32, to, round, flags),
            (Element::BF16, _) => {
                let wide = self.as_f32(word, from);
                return match to {
                    Element::F32 if flags.is_empty() => Ok(wide),
                    _ => self.convert_lane(wide, Element::F32, to, round, flags),
                };
            }
            (Element::F16, Element::BF16) => {
                let wide = self.as_f32(word, from);
                return self.convert_lane(wide, Element::F32, to, round, flags);
            }
            (_, Element::BF16) if from != Element::F32 => {
                let source = self.lane_as_near_f32(word, from)?;
                return self.convert_lane(source, Element::F32, to, round, flags);
            }
            (Element::F32, Element::F16 | Element::BF16) => {
                let mut modifiers = self.narrowing(round, flags)?;
                if flags.has(Flags::FTZ) && to == Element::F16 {
                    modifiers.push(M::Ftz);
                }
                if flags.has(Flags::SAT) {
                    modifiers.push(M::Sat);
                }
                modifiers.extend([exact(to).into(), M::F32]);
                let word = self.operand(word, ptx::Type::F32);
                self.push(Opcode::Cvt, &modifiers, [target.into(), word]);
            }
            _ => {
                let modifiers = self.plain_modifiers(from, to, round, flags)?;
                let word = self.in_reg(word, element_width(from));
                self.push(Opcode::Cvt, &modifiers, [target.into(), word.into()]);
            }
        }
        Ok(Word::Reg(target))
    }

    /// `cvt` between integers, f16, f32 and f64.
    fn plain_modifiers(
        &self,
        from: Element,
        to: Element,
        round: Option<Round>,
        flags: Flags,
    ) -> Result<Modifiers, CodegenError> {
        let mut modifiers = Modifiers::new();
        let widens = from.is_float() && to.is_float() && to.bits() >= from.bits();
        if from.is_float() && to.is_int() {
            modifiers.push(match round.unwrap_or(Round::Zero) {
                Round::Nearest => M::Rni,
                Round::Zero => M::Rzi,
                Round::Down => M::Rmi,
                Round::Up => M::Rpi,
                Round::Away => {
                    return Err(self.unsupported("to an integer cannot round rna; use round_int first"));
                }
            });
        } else if to.is_float() && !widens {
            match round.unwrap_or(Round::Nearest) {
                Round::Away => return Err(self.unsupported(format!("to {to} cannot round rna"))),
                other => modifiers.push(rounding(other)),
            }
        }
        let has_f32 = [from, to].contains(&Element::F32);
        if flags.has(Flags::FTZ) && has_f32 {
            modifiers.push(M::Ftz);
        }
        // Where nothing can be clamped, the instruction does not take it.
        if flags.has(Flags::SAT) && !(from.is_float() && to.is_int()) && !holds_all(to, from) {
            modifiers.push(M::Sat);
        }
        if flags.has(Flags::RELU) || flags.has(Flags::SATFINITE) {
            return Err(self.unsupported(format!("from {from} to {to} does not take flags({flags})")));
        }
        // The upper byte of a byte's register means nothing, so cutting off needs no more than the 16-bit form.
        let saturates = flags.has(Flags::SAT) || from.is_float();
        let target = match to {
            Element::I8 if !saturates && from.bits() > 8 => ptx::Type::S16,
            Element::U8 if !saturates && from.bits() > 8 => ptx::Type::U16,
            _ => exact(to),
        };
        modifiers.extend([target.into(), exact(from).into()]);
        Ok(modifiers)
    }

    /// f32 that rounds to any float of at most 22 bits as the value itself would: towards zero, last bit set if inexact.
    fn rounded_to_odd(&mut self, word: Word, from: Element) -> Word {
        let ty = exact(from);
        let word = self.in_reg(word, element_width(from));
        let [short, odd, result] = [0; 3].map(|_| self.new_reg(Width::B32));
        let back = self.new_reg(element_width(from));
        let lost = self.new_reg(Width::Pred);
        self.push(Opcode::Cvt, &[M::Rz, M::F32, ty.into()], [short.into(), word.into()]);
        if from.is_float() {
            self.push(Opcode::Cvt, &[ty.into(), M::F32], [back.into(), short.into()]);
        } else {
            self.push(Opcode::Cvt, &[M::Rzi, ty.into(), M::F32], [back.into(), short.into()]);
        }
        let differs = if from.is_float() { M::Neu } else { M::Ne };
        self.push(Opcode::Setp, &[differs, ty.into()], [lost.into(), back.into(), word.into()]);
        self.push(Opcode::Or, &[M::B32], [odd.into(), short.into(), 1.into()]);
        self.push(Opcode::Selp, &[M::B32], [result.into(), odd.into(), short.into(), lost.into()]);
        Word::Reg(result)
    }

    /// The bits of one.
    fn one(&self, element: Element) -> Result<u64, CodegenError> {
        Ok(match element {
            Element::F16 => 0x3c00,
            Element::BF16 => 0x3f80,
            Element::F32 | Element::TF32 => 0x3f80_0000,
            Element::F64 => 0x3ff0_0000_0000_0000,
            element if element.is_int() => 1,
            _ => return Err(self.unsupported(format!("from bool to {element}; convert to f32 first"))),
        })
    }
}

/// Whether an integer type has all numbers of another.
fn holds_all(to: Element, from: Element) -> bool {
    let wider = to.bits() > from.bits() && (to.is_signed() || !from.is_signed());
    to.is_int() && from.is_int() && (wider || to == from)
}
