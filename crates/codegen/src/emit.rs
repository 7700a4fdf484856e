//! The emitter: the function under compilation, the PTX that exists so far, and where every value lies.

use std::collections::HashMap;

use smallvec::SmallVec;
use tilewright_hardware::{Arch, Element};
use tilewright_ir::{Func, Loc, Op, Space, Type, Value};
use tilewright_ptx::{
    self as ptx, Guard, Immediate, Instruction, Location, Modifier, Names, Note, Opcode, Operand, Statement,
    StatementKind, Symbol, Variable,
};

use crate::analysis::Analysis;
use crate::error::CodegenError;
use crate::registers::{Width, Word, Words, shape};

/// What lowering gives back: nothing, or the reason why there is no code.
pub(crate) type Lowered = Result<(), CodegenError>;

/// Where a value lies.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In registers, or known at compile time.
    Words(Words),
    /// A pointer that is a register and a constant offset; addresses take both as they are.
    Pointer { base: Symbol, offset: i64 },
}

/// State of the compilation of one function.
pub(crate) struct Emitter<'a> {
    pub(crate) func: &'a Func,
    pub(crate) arch: Arch,
    pub(crate) analysis: Analysis,
    pub(crate) names: Names,
    /// The statements so far, and beside each the op that it comes from.
    pub(crate) body: Vec<Statement>,
    pub(crate) origins: Vec<Option<Op>>,
    /// Declarations that precede the statements.
    pub(crate) locals: Vec<Variable>,
    pub(crate) counts: [u32; 5],
    pub(crate) shared: HashMap<Op, u32>,
    pub(crate) shared_base: Option<Symbol>,
    pub(crate) warp_index: Option<Symbol>,
    places: Vec<Option<Place>>,
    /// Registers that a value shall be computed into, because a loop or an `if` expects it there.
    wanted: Vec<Option<Box<Words>>>,
    /// Constants that already have a register where we are, and the order in which they got one.
    constants: HashMap<(Width, u64), Symbol>,
    constant_order: Vec<(Width, u64)>,
    guard: Option<Guard>,
    op: Option<Op>,
    line_info: bool,
    loc: Loc,
    labels: u32,
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(func: &'a Func, arch: Arch, line_info: bool) -> Emitter<'a> {
        Emitter {
            func,
            arch,
            analysis: Analysis::of(func),
            names: Names::default(),
            body: Vec::with_capacity(func.op_count() * 2),
            origins: Vec::with_capacity(func.op_count() * 2),
            locals: Vec::new(),
            counts: [0; 5],
            shared: HashMap::new(),
            shared_base: None,
            warp_index: None,
            places: vec![None; func.value_count()],
            wanted: vec![None; func.value_count()],
            constants: HashMap::new(),
            constant_order: Vec::new(),
            guard: None,
            op: None,
            line_info,
            loc: Loc::NONE,
            labels: 0,
        }
    }

    // ---- Statements ---------------------------------------------------------------------------------------------------

    /// From now on statements come from `op`.
    pub(crate) fn enter(&mut self, op: Op) {
        self.op = Some(op);
        let loc = self.func.op(op).loc;
        if self.line_info && loc != self.loc && loc != Loc::NONE {
            self.loc = loc;
            if let (Some(at), Some(file)) =
                (self.func.locations.get(loc), self.func.locations.file_index(loc))
            {
                let location = Location { file: file + 1, line: at.line, column: at.column, inlined: None };
                self.statement(StatementKind::Location(location));
            }
        }
    }

    fn statement(&mut self, kind: StatementKind) {
        self.body.push(Statement { line: ptx::Line::default(), kind });
        self.origins.push(self.op);
    }

    /// An instruction, under the guard that is in force.
    pub(crate) fn push(
        &mut self,
        opcode: Opcode,
        modifiers: &[Modifier],
        operands: impl IntoIterator<Item = Operand>,
    ) {
        let mut instruction = Instruction::new(opcode, modifiers, operands);
        instruction.guard = self.guard;
        self.statement(StatementKind::Instruction(instruction));
    }

    /// A branch; `guard` says for which predicate it is taken.
    pub(crate) fn branch(&mut self, guard: Option<Guard>, uniform: bool, label: Symbol) {
        let modifiers: &[Modifier] = if uniform { &[Modifier::Uni] } else { &[] };
        let mut instruction = Instruction::new(Opcode::Bra, modifiers, [label.into()]);
        instruction.guard = guard;
        self.statement(StatementKind::Instruction(instruction));
    }

    /// A label that no other has the name of.
    pub(crate) fn new_label(&mut self) -> Symbol {
        self.labels += 1;
        self.names.numbered("$L", self.labels - 1)
    }

    /// A label with a meaning.
    pub(crate) fn note(&mut self, note: &Note) {
        self.labels += 1;
        let label = self.names.intern(&note.label(self.labels - 1));
        self.label(label);
    }

    pub(crate) fn label(&mut self, label: Symbol) {
        self.statement(StatementKind::Label(label));
    }

    /// Emits what `f` emits under a predicate. Constants made there are not valid afterwards. Guards do not nest: an arm that is
    /// lowered under one holds no op that needs another.
    pub(crate) fn guarded<T>(&mut self, guard: Guard, f: impl FnOnce(&mut Emitter<'a>) -> T) -> T {
        let outer = self.guard.replace(guard);
        let scope = self.open_scope();
        let result = f(self);
        self.close_scope(scope);
        self.guard = outer;
        result
    }

    // ---- Errors -------------------------------------------------------------------------------------------------------

    /// The op under compilation cannot be expressed.
    pub(crate) fn unsupported(&self, problem: impl Into<String>) -> CodegenError {
        let data = self.op.map(|op| self.func.op(op));
        CodegenError::Unsupported {
            op: data.map_or("function", |data| data.info().mnemonic),
            problem: problem.into(),
            location: data.and_then(|data| self.func.locations.get(data.loc)).map(|at| at.to_string()),
        }
    }

    // ---- Registers ----------------------------------------------------------------------------------------------------

    /// A register of its own.
    pub(crate) fn new_reg(&mut self, width: Width) -> Symbol {
        let count = &mut self.counts[width as usize];
        *count += 1;
        let number = *count - 1;
        self.names.numbered(width.prefix(), number)
    }

    /// Registers for a value of a type.
    pub(crate) fn new_words(&mut self, ty: Type) -> Words {
        let (width, count) = shape(ty);
        (0..count).map(|_| Word::Reg(self.new_reg(width))).collect()
    }

    /// The registers that the result `value` is to be computed into.
    pub(crate) fn define(&mut self, value: Value) -> SmallVec<[Symbol; 4]> {
        let words = match self.wanted[value.index()].take() {
            Some(words) => *words,
            None => self.new_words(self.func.ty(value)),
        };
        let registers = words.iter().filter_map(|word| match word {
            Word::Reg(register) => Some(*register),
            Word::Imm(_) => None,
        });
        let registers = registers.collect();
        self.places[value.index()] = Some(Place::Words(words));
        registers
    }

    /// [`Emitter::define`] for a value of one register.
    pub(crate) fn define_one(&mut self, value: Value) -> Symbol {
        self.define(value)[0]
    }

    /// The value is where these words are; nothing is copied.
    pub(crate) fn bind(&mut self, value: Value, words: Words) {
        self.places[value.index()] = Some(Place::Words(words));
    }

    pub(crate) fn bind_place(&mut self, value: Value, place: Place) {
        self.places[value.index()] = Some(place);
    }

    /// Asks that a value be computed into these registers.
    pub(crate) fn want(&mut self, value: Value, words: Words) {
        self.wanted[value.index()] = Some(Box::new(words));
    }

    pub(crate) fn is_wanted(&self, value: Value) -> bool {
        self.wanted[value.index()].is_some()
    }

    /// Where a value lies. Poison and whatever was never defined read as zero.
    pub(crate) fn place(&self, value: Value) -> Place {
        match &self.places[value.index()] {
            Some(place) => place.clone(),
            None => {
                let (_, count) = shape(self.func.ty(value));
                Place::Words(SmallVec::from_elem(Word::Imm(0), count))
            }
        }
    }

    /// The words of a value; a pointer with an offset is added up.
    pub(crate) fn words(&mut self, value: Value) -> Words {
        match self.place(value) {
            Place::Words(words) => words,
            Place::Pointer { base, offset: 0 } => SmallVec::from_elem(Word::Reg(base), 1),
            Place::Pointer { base, offset } => {
                let (width, _) = shape(self.func.ty(value));
                let sum = self.new_reg(width);
                self.add_offset(width, sum, base, offset);
                SmallVec::from_elem(Word::Reg(sum), 1)
            }
        }
    }

    /// `to = base + offset`
    pub(crate) fn add_offset(&mut self, width: Width, to: Symbol, base: Symbol, offset: i64) {
        let ty = if width == Width::B32 { Modifier::S32 } else { Modifier::S64 };
        self.push(Opcode::Add, &[ty], [to.into(), base.into(), offset.into()]);
    }

    /// The only word of a value.
    pub(crate) fn word(&mut self, value: Value) -> Word {
        self.words(value).first().copied().unwrap_or(Word::Imm(0))
    }

    /// The bits of a value that is known at compile time and has one word.
    pub(crate) fn constant(&self, value: Value) -> Option<u64> {
        match &self.places[value.index()] {
            Some(Place::Words(words)) => match words[..] {
                [Word::Imm(bits)] => Some(bits),
                _ => None,
            },
            _ => None,
        }
    }

    /// The only word of a value, in a register.
    pub(crate) fn reg(&mut self, value: Value) -> Symbol {
        let word = self.word(value);
        let (width, _) = shape(self.func.ty(value));
        self.in_reg(word, width)
    }

    /// A word in a register; a constant gets one, which serves until the region ends.
    pub(crate) fn in_reg(&mut self, word: Word, width: Width) -> Symbol {
        match word {
            Word::Reg(register) => register,
            Word::Imm(bits) => {
                let bits = mask(width, bits);
                if let Some(&register) = self.constants.get(&(width, bits)) {
                    return register;
                }
                let register = self.new_reg(width);
                self.push(
                    Opcode::Mov,
                    &[width.modifier()],
                    [register.into(), immediate(width.bits_type(), bits)],
                );
                self.constants.insert((width, bits), register);
                self.constant_order.push((width, bits));
                register
            }
        }
    }

    /// Opens a region for constants; the result goes to [`Emitter::close_scope`].
    pub(crate) fn open_scope(&mut self) -> usize {
        self.constant_order.len()
    }

    pub(crate) fn close_scope(&mut self, scope: usize) {
        for key in self.constant_order.drain(scope..) {
            self.constants.remove(&key);
        }
    }

    /// A word as the operand of an instruction of type `ty`. There are no immediates of 16-bit floats.
    pub(crate) fn operand(&mut self, word: Word, ty: ptx::Type) -> Operand {
        use ptx::Type as T;
        match word {
            Word::Reg(register) => register.into(),
            Word::Imm(_) if matches!(ty, T::F16 | T::F16x2 | T::Bf16 | T::Bf16x2 | T::Pred) => {
                self.in_reg(word, Width::of(ty)).into()
            }
            Word::Imm(bits) => immediate(ty, bits),
        }
    }

    /// A scalar as the operand of an instruction of type `ty`.
    pub(crate) fn scalar(&mut self, value: Value, ty: ptx::Type) -> Operand {
        let word = self.word(value);
        self.operand(word, ty)
    }

    /// An unsigned 32-bit scalar as operand.
    pub(crate) fn u32_operand(&mut self, value: Value) -> Operand {
        self.scalar(value, ptx::Type::U32)
    }

    /// The words of a value in registers, as a list in braces.
    pub(crate) fn register_list(&mut self, value: Value) -> Operand {
        let (width, _) = shape(self.func.ty(value));
        let words = self.words(value);
        let list: Vec<Symbol> = words.into_iter().map(|word| self.in_reg(word, width)).collect();
        Operand::list(list)
    }

    /// A pointer as an address in brackets.
    pub(crate) fn address(&mut self, pointer: Value) -> Operand {
        let (base, offset) = self.base_and_offset(pointer);
        Operand::address_at(base, offset)
    }

    pub(crate) fn base_and_offset(&mut self, pointer: Value) -> (Symbol, i64) {
        match self.place(pointer) {
            Place::Pointer { base, offset } => (base, offset),
            Place::Words(_) => (self.reg(pointer), 0),
        }
    }

    /// A byte in a 16-bit register with its upper half right: sign or zeros. Other elements are as they are.
    pub(crate) fn normal(&mut self, word: Word, element: Element) -> Word {
        let (to, from) = match element {
            Element::I8 => (Modifier::S16, Modifier::S8),
            Element::U8 => (Modifier::U16, Modifier::U8),
            _ => return word,
        };
        match word {
            Word::Imm(bits) => Word::Imm(tilewright_ir::canonical(element, bits)),
            Word::Reg(register) => {
                let clean = self.new_reg(Width::B16);
                self.push(Opcode::Cvt, &[to, from], [clean.into(), register.into()]);
                Word::Reg(clean)
            }
        }
    }

    /// Copies many words at once: every source is read before its register is written.
    pub(crate) fn parallel_move(&mut self, width: Width, moves: &[(Symbol, Word)]) {
        let mut pending: Vec<(Symbol, Word)> =
            moves.iter().copied().filter(|(to, from)| *from != Word::Reg(*to)).collect();
        // Few registers move at a time but for whole accumulators, whose moves do not depend on each other: keep those linear.
        let mut reads: HashMap<Symbol, u32> = HashMap::with_capacity(pending.len());
        for (_, from) in &pending {
            if let Word::Reg(from) = from {
                *reads.entry(*from).or_default() += 1;
            }
        }
        while !pending.is_empty() {
            let before = pending.len();
            let mut blocked = Vec::new();
            for (to, from) in pending {
                if reads.get(&to).copied().unwrap_or(0) > 0 {
                    blocked.push((to, from));
                    continue;
                }
                self.copy(width, to, from);
                if let Word::Reg(from) = from
                    && let Some(count) = reads.get_mut(&from)
                {
                    *count -= 1;
                }
            }
            // Everything left is in cycles: one register steps aside.
            if blocked.len() == before
                && let Some(&(to, _)) = blocked.first()
            {
                let aside = self.new_reg(width);
                self.copy(width, aside, Word::Reg(to));
                for (_, from) in &mut blocked {
                    if *from == Word::Reg(to) {
                        *from = Word::Reg(aside);
                    }
                }
                reads.insert(to, 0);
            }
            pending = blocked;
        }
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, width: Width, to: Symbol, from: Word) {
        let from = match from {
            Word::Reg(register) => register.into(),
            Word::Imm(bits) => immediate(width.bits_type(), mask(width, bits)),
        };
        self.push(Opcode::Mov, &[width.modifier()], [to.into(), from]);
    }

    /// The element of an op's operand.
    pub(crate) fn element(&self, value: Value) -> Element {
        self.func.ty(value).element().unwrap_or(Element::U64)
    }

    /// The space of an op's pointer.
    pub(crate) fn space(&self, pointer: Value) -> Space {
        self.func.ty(pointer).space().unwrap_or(Space::Generic)
    }
}

/// The bits that a register of a class holds.
fn mask(width: Width, bits: u64) -> u64 {
    match width {
        Width::Pred => bits & 1,
        Width::B8 => bits & 0xff,
        Width::B16 => bits & 0xffff,
        Width::B32 => bits & 0xffff_ffff,
        Width::B64 => bits,
    }
}

/// Constant bits as an operand of type `ty`: floats as floats, signed integers with their sign.
pub(crate) fn immediate(ty: ptx::Type, bits: u64) -> Operand {
    use ptx::Type as T;
    let low = |width: u32| if width >= 64 { bits } else { bits & ((1 << width) - 1) };
    let signed = |width: u32| low(width).cast_signed() << (64 - width) >> (64 - width);
    Operand::Immediate(match ty {
        T::F32 => Immediate::F32(u32::try_from(low(32)).unwrap_or(0)),
        T::F64 => Immediate::F64(bits),
        T::S8 | T::S16 | T::S32 | T::S64 => Immediate::Int(signed(ty.bits())),
        _ => match i64::try_from(low(ty.bits())) {
            Ok(value) => Immediate::Int(value),
            Err(_) => Immediate::Unsigned(bits),
        },
    })
}
