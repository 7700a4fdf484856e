//! Values that change their shape and not their bits: packing, slicing, bit casts.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{Index, OpData, Type};
use tilewright_ptx::{Modifier, Opcode, Operand, Symbol};

use crate::emit::{Emitter, Lowered};
use crate::registers::{Width, Word, Words, element_width, shape};

/// Takes four bytes at even positions of two words: the low bytes of four 16-bit registers.
const EVEN_BYTES: i64 = 0x6420;

impl Emitter<'_> {
    /// The elements of a value, each as a scalar of its own.
    pub(crate) fn lanes(&mut self, words: &[Word], ty: Type) -> Words {
        let (Some(element), lanes) = (ty.element(), ty.lanes() as usize) else { return words.into() };
        let bits = element.bits();
        if matches!(ty, Type::Scalar(_)) || bits >= 32 || bits == 1 {
            return words.into();
        }
        let (width, _) = shape(ty);
        let mut out = Words::new();
        for word in words {
            let mut halves: SmallVec<[Word; 2]> = SmallVec::new();
            match width {
                Width::B32 => halves.extend(self.halves(*word)),
                _ => halves.push(*word),
            }
            for half in halves {
                for shift in (0..16).step_by(bits as usize) {
                    if out.len() < lanes {
                        let lane = self.shifted_down(half, shift, element);
                        out.push(lane);
                    }
                }
            }
        }
        out
    }

    /// The element at bit `shift` of a 16-bit word, at the bottom of a register; bits above it mean nothing.
    fn shifted_down(&mut self, half: Word, shift: u32, element: Element) -> Word {
        match half {
            Word::Imm(bits) => Word::Imm(tilewright_ir::canonical(element, bits >> shift)),
            half if shift == 0 => half,
            Word::Reg(register) => {
                let lane = self.new_reg(Width::B16);
                self.push(Opcode::Shr, &[Modifier::U16], [lane.into(), register.into(), shift.into()]);
                Word::Reg(lane)
            }
        }
    }

    /// The words of a vector made of these elements. Nothing is emitted where elements already lie as the vector wants them.
    pub(crate) fn packed(&mut self, lanes: &[Word], ty: Type) -> Words {
        let Some(element) = ty.element() else { return lanes.into() };
        let (width, count) = shape(ty);
        match element.bits() {
            1 | 32 | 64 => lanes.into(),
            _ if matches!(ty, Type::Scalar(_)) => lanes.into(),
            bits => {
                let per_word = if width == Width::B16 { 16 / bits } else { 32 / bits } as usize;
                (0..count)
                    .map(|i| {
                        let end = lanes.len().min((i + 1) * per_word);
                        self.packed_word(&lanes[i * per_word..end], bits, width)
                    })
                    .collect()
            }
        }
    }

    fn packed_word(&mut self, lanes: &[Word], bits: u32, width: Width) -> Word {
        let constant = lanes.iter().enumerate().try_fold(0, |sum, (i, lane)| match lane {
            Word::Imm(value) => Some(sum | (value & ((1 << bits) - 1)) << (i * bits as usize)),
            Word::Reg(_) => None,
        });
        if let Some(value) = constant {
            return Word::Imm(value);
        }
        let to = self.new_reg(width);
        match (bits, width) {
            (16, Width::B32) => self.join(to, lanes),
            (8, Width::B32) => {
                let (low, high) = (self.new_reg(Width::B32), self.new_reg(Width::B32));
                let split = lanes.len().min(2);
                self.join(low, &lanes[..split]);
                let high = if lanes.len() > 2 {
                    self.join(high, &lanes[2..]);
                    Operand::from(high)
                } else {
                    0.into()
                };
                self.push(Opcode::Prmt, &[Modifier::B32], [to.into(), low.into(), high, EVEN_BYTES.into()]);
            }
            (_, Width::B32) => {
                let half = 16 / bits as usize;
                let split = lanes.len().min(half);
                let parts = [&lanes[..split], &lanes[split..]];
                let halves: Words =
                    parts.iter().map(|part| self.packed_word(part, bits, Width::B16)).collect();
                self.join(to, &halves);
            }
            _ => self.join_bits(to, lanes, bits),
        }
        Word::Reg(to)
    }

    /// `to` is two 16-bit words, low one first; a missing one is zero.
    fn join(&mut self, to: Symbol, halves: &[Word]) {
        let part = |word: Option<&Word>| match word {
            Some(Word::Reg(register)) => (*register).into(),
            Some(Word::Imm(bits)) => Operand::from(i64::from((*bits & 0xffff) as u16)),
            None => 0.into(),
        };
        let list = Operand::List(vec![part(halves.first()), part(halves.get(1))]);
        self.push(Opcode::Mov, &[Modifier::B32], [to.into(), list]);
    }

    /// `to` is a 16-bit word of elements below 16 bits.
    fn join_bits(&mut self, to: Symbol, lanes: &[Word], bits: u32) {
        let mut sum: Option<Symbol> = None;
        for (i, lane) in lanes.iter().enumerate() {
            let lane = self.in_reg(*lane, Width::B16);
            let last = i + 1 == lanes.len();
            let shift = i64::from(bits) * i64::try_from(i).unwrap_or(0);
            let place = self.new_reg(Width::B16);
            // The topmost element needs no mask: what lies above it falls out of the word.
            if shift + i64::from(bits) < 16 {
                self.push(
                    Opcode::And,
                    &[Modifier::B16],
                    [place.into(), lane.into(), ((1_i64 << bits) - 1).into()],
                );
                if shift > 0 {
                    self.push(Opcode::Shl, &[Modifier::B16], [place.into(), place.into(), shift.into()]);
                }
            } else {
                self.push(Opcode::Shl, &[Modifier::B16], [place.into(), lane.into(), shift.into()]);
            }
            sum = Some(match sum {
                None => place,
                Some(low) => {
                    let both = if last { to } else { self.new_reg(Width::B16) };
                    self.push(Opcode::Or, &[Modifier::B16], [both.into(), low.into(), place.into()]);
                    both
                }
            });
        }
        if let Some(sum) = sum.filter(|sum| *sum != to) {
            self.copy(Width::B16, to, Word::Reg(sum));
        }
    }

    /// The same bits in words of another shape.
    pub(crate) fn recast(&mut self, words: &[Word], from: Type, to: Type) -> Words {
        let (source, target) = (shape(from), shape(to));
        if source == target {
            return words.into();
        }
        match (source.0, target.0) {
            (Width::B64, Width::B32) => words.iter().flat_map(|word| self.split64(*word)).collect(),
            (Width::B32, Width::B64) => words.chunks(2).map(|pair| self.join64(pair)).collect(),
            (Width::B16, Width::Pred) => words.iter().map(|word| self.as_predicate(*word)).collect(),
            (Width::Pred, Width::B16) => words.iter().map(|word| self.as_byte(*word)).collect(),
            _ => words.into(),
        }
    }

    /// Low and high half of a 64-bit word.
    pub(crate) fn split64(&mut self, word: Word) -> [Word; 2] {
        match word {
            Word::Imm(bits) => [Word::Imm(bits & 0xffff_ffff), Word::Imm(bits >> 32)],
            Word::Reg(register) => {
                let (low, high) = (self.new_reg(Width::B32), self.new_reg(Width::B32));
                self.push(Opcode::Mov, &[Modifier::B64], [Operand::list([low, high]), register.into()]);
                [Word::Reg(low), Word::Reg(high)]
            }
        }
    }

    /// A 64-bit word of two halves.
    pub(crate) fn join64(&mut self, halves: &[Word]) -> Word {
        let half = |i: usize| halves.get(i).copied().unwrap_or(Word::Imm(0));
        match (half(0), half(1)) {
            (Word::Imm(low), Word::Imm(high)) => Word::Imm(low & 0xffff_ffff | high << 32),
            (low, high) => {
                let to = self.new_reg(Width::B64);
                self.join64_into(to, low, high);
                Word::Reg(to)
            }
        }
    }

    pub(crate) fn join64_into(&mut self, to: Symbol, low: Word, high: Word) {
        let list = Operand::List(
            [low, high].into_iter().map(|half| self.operand(half, tilewright_ptx::Type::B32)).collect(),
        );
        self.push(Opcode::Mov, &[Modifier::B64], [to.into(), list]);
    }

    /// Is the 16-bit word not zero?
    pub(crate) fn as_predicate(&mut self, word: Word) -> Word {
        match word {
            Word::Imm(bits) => Word::Imm(u64::from(bits & 0xff != 0)),
            Word::Reg(register) => {
                let predicate = self.new_reg(Width::Pred);
                self.push(
                    Opcode::Setp,
                    &[Modifier::Ne, Modifier::U16],
                    [predicate.into(), register.into(), 0.into()],
                );
                Word::Reg(predicate)
            }
        }
    }

    /// A truth value as 0 or 1 in 16 bits.
    pub(crate) fn as_byte(&mut self, word: Word) -> Word {
        match word {
            Word::Imm(bits) => Word::Imm(bits),
            Word::Reg(predicate) => {
                let byte = self.new_reg(Width::B16);
                self.push(
                    Opcode::Selp,
                    &[Modifier::B16],
                    [byte.into(), 1.into(), 0.into(), predicate.into()],
                );
                Word::Reg(byte)
            }
        }
    }

    pub(crate) fn bitcast(&mut self, data: &OpData) -> Lowered {
        let (from, to) = (self.func.ty(data.operands[0]), self.func.ty(data.results[0]));
        if from.element() == Some(Element::Bool) || to.element() == Some(Element::Bool) {
            return Err(self.unsupported(format!(
                "from {from} to {to}: truth values have no bits; compare or select instead"
            )));
        }
        let words = self.words(data.operands[0]);
        let words = self.recast(&words, from, to);
        self.bind(data.results[0], words);
        Ok(())
    }

    pub(crate) fn pack(&mut self, data: &OpData) -> Lowered {
        let lanes: Words = data.operands.iter().map(|&value| self.word(value)).collect();
        let words = self.packed(&lanes, self.func.ty(data.results[0]));
        self.bind(data.results[0], words);
        Ok(())
    }

    pub(crate) fn extract(&mut self, data: &OpData, index: usize) -> Lowered {
        let lane = self.lane(data, index);
        self.bind(data.results[0], SmallVec::from_elem(lane, 1));
        Ok(())
    }

    /// One element; only the word that holds it is taken apart.
    fn lane(&mut self, data: &OpData, index: usize) -> Word {
        let element = self.element(data.operands[0]);
        let words = self.words(data.operands[0]);
        let (width, _) = shape(self.func.ty(data.operands[0]));
        let word = |at: usize| words.get(at).copied().unwrap_or(Word::Imm(0));
        let bits = element.bits() as usize;
        if matches!(bits, 1 | 32 | 64) {
            return word(index);
        }
        let at = index * bits;
        let half = match width {
            Width::B16 => word(0),
            _ => self.halves(word(at / 32))[at % 32 / 16],
        };
        self.shifted_down(half, u32::try_from(at % 16).unwrap_or(0), element)
    }

    /// The two 16-bit halves of a 32-bit word.
    fn halves(&mut self, word: Word) -> [Word; 2] {
        match word {
            Word::Imm(value) => [Word::Imm(value & 0xffff), Word::Imm(value >> 16 & 0xffff)],
            Word::Reg(register) => {
                let (low, high) = (self.new_reg(Width::B16), self.new_reg(Width::B16));
                self.push(Opcode::Mov, &[Modifier::B32], [Operand::list([low, high]), register.into()]);
                [Word::Reg(low), Word::Reg(high)]
            }
        }
    }

    pub(crate) fn insert(&mut self, data: &OpData, Index(index): Index) -> Lowered {
        let ty = self.func.ty(data.operands[0]);
        let words = self.words(data.operands[0]);
        let new = self.word(data.operands[1]);
        let mut lanes = self.lanes(&words, ty);
        if let Some(lane) = lanes.get_mut(index as usize) {
            *lane = new;
        }
        let words = self.packed(&lanes, ty);
        self.bind(data.results[0], words);
        Ok(())
    }

    pub(crate) fn slice(&mut self, data: &OpData, Index(index): Index) -> Lowered {
        let (from, to) = (self.func.ty(data.operands[0]), self.func.ty(data.results[0]));
        let bits = self.element(data.operands[0]).bits() as usize;
        let (index, lanes) = (index as usize, to.lanes() as usize);
        let words = self.words(data.operands[0]);
        let (width, _) = shape(from);
        let word_bits = match width {
            Width::Pred => 1,
            Width::B8 => 8,
            Width::B16 => 16,
            Width::B32 => 32,
            Width::B64 => 64,
        };
        // Whole words move as they are; anything else goes element by element.
        let whole = shape(to).0 == width
            && (index * bits).is_multiple_of(word_bits)
            && (lanes * bits).is_multiple_of(word_bits);
        let words = if whole {
            let start = index * bits / word_bits;
            words[start..start + lanes * bits / word_bits].into()
        } else {
            let all = self.lanes(&words, from);
            self.packed(&all[index..index + lanes], to)
        };
        self.bind(data.results[0], words);
        Ok(())
    }

    pub(crate) fn concat(&mut self, data: &OpData) -> Lowered {
        let to = self.func.ty(data.results[0]);
        let (width, _) = shape(to);
        let bits = self.element(data.results[0]).bits();
        let whole = data.operands.iter().all(|&v| {
            let ty = self.func.ty(v);
            shape(ty).0 == width && (bits >= 32 || bits == 1 || ty.bits().is_multiple_of(32))
        });
        let mut parts = Words::new();
        for &value in &data.operands {
            let words = self.words(value);
            let part = if whole { words } else { self.lanes(&words, self.func.ty(value)) };
            parts.extend(part);
        }
        let words = if whole { parts } else { self.packed(&parts, to) };
        self.bind(data.results[0], words);
        Ok(())
    }

    /// The result is in these words, or a copy of them where it has to be in particular registers.
    pub(crate) fn finish(&mut self, data: &OpData, words: Words) {
        let value = data.results[0];
        if !self.is_wanted(value) {
            self.bind(value, words);
            return;
        }
        self.copy_result(value, &words);
    }

    /// Copies words to the registers of a result, for ops that are not known to share registers with their operands.
    pub(crate) fn copy_result(&mut self, value: tilewright_ir::Value, words: &[Word]) {
        let (width, _) = shape(self.func.ty(value));
        let moves: Vec<(Symbol, Word)> = self.define(value).into_iter().zip(words.iter().copied()).collect();
        self.parallel_move(width, &moves);
    }

    /// The register class of one element of a value.
    pub(crate) fn lane_width(&self, value: tilewright_ir::Value) -> Width {
        element_width(self.element(value))
    }
}
