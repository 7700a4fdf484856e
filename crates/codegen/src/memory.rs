//! Loads, stores, prefetches and atomics.
//!
//! A value moves in pieces of the largest power of two that divides its size, up to 16 bytes, so a pointer needs the alignment
//! of its value's size and not more than 16. A truth value is a byte of 0 or 1.
//!
//! Without an order a load or store is weak. Sequentially consistent accesses are a `fence.sc` and the access with acquire or
//! release, as the PTX memory model maps them. Atomics are relaxed at the scope of the GPU unless told otherwise.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{
    Cache, Combine, Evict, Level, OpData, Opcode as Ir, Order, Policy, Prefetch, Scope, Space, Type, Value,
};
use tilewright_ptx::{self as ptx, Guard, Modifier as M, Modifiers, Opcode, Operand, Symbol};

use crate::emit::{Emitter, Lowered, immediate};
use crate::error::CodegenError;
use crate::pointers::space_modifier;
use crate::registers::{Width, Word, Words, shape};

/// Words that move in one instruction, and the byte at which they start.
struct Piece {
    offset: i64,
    first: usize,
    count: usize,
}

impl Emitter<'_> {
    pub(crate) fn load(&mut self, data: &OpData) -> Lowered {
        let (policy, fallback) = match data.code {
            Ir::LoadIf => (data.operands.get(3).copied(), Some((data.operands[1], data.operands[2]))),
            _ => (data.operands.get(1).copied(), None),
        };
        let mut modifiers = self.access_modifiers(data, true)?;
        if policy.is_some() {
            modifiers.push(M::L2CacheHint);
        }
        modifiers.extend(data.get::<Prefetch>().map(prefetch_size));
        let fallback = match fallback {
            None => None,
            Some((condition, other)) => match self.constant(condition) {
                Some(bits) if bits & 1 == 1 => None,
                Some(_) => {
                    let words = self.words(other);
                    self.copy_result(data.results[0], &words);
                    return Ok(());
                }
                None => {
                    let words = self.words(other);
                    Some((Guard { negated: false, register: self.reg(condition) }, words))
                }
            },
        };
        let policy = policy.map(|policy| self.reg(policy));
        self.load_value(data, &modifiers, policy, fallback)
    }

    fn load_value(
        &mut self,
        data: &OpData,
        modifiers: &[M],
        policy: Option<Symbol>,
        fallback: Option<(Guard, Words)>,
    ) -> Lowered {
        let result = data.results[0];
        let ty = self.func.ty(result);
        let (base, offset) = self.base_and_offset(data.operands[0]);
        let bytes = memory_bytes(self, ty)?;
        let (width, _) = shape(ty);
        let unit = chunk(bytes);
        let guard = fallback.as_ref().map(|(guard, _)| *guard);
        // Whole words go straight to the registers of the result; the rest is loaded in small pieces and put together.
        if width != Width::Pred && (unit >= 4 || bytes == unit) {
            let registers = self.define(result);
            if let Some((_, words)) = fallback {
                let moves: Vec<(Symbol, Word)> = registers.iter().copied().zip(words).collect();
                self.parallel_move(width, &moves);
            }
            let memory = if unit == 1 { ptx::Type::B8 } else { width.bits_type() };
            for piece in pieces(registers.len(), width, unit) {
                let part = &registers[piece.first..piece.first + piece.count];
                self.load_piece(modifiers, memory, part, (base, offset + piece.offset), policy, guard);
            }
            return Ok(());
        }
        let part_ty = if unit == 1 { Element::U8 } else { Element::U16 };
        let parts = bytes / unit;
        let memory = if unit == 1 { ptx::Type::U8 } else { ptx::Type::B16 };
        let as_parts = if parts == 1 {
            Type::Scalar(part_ty)
        } else {
            Type::Vector(part_ty, u16::try_from(parts).unwrap_or(u16::MAX))
        };
        let old: Option<Words> = fallback.map(|(_, words)| {
            let words = if width == Width::Pred {
                words.iter().map(|&word| self.as_byte(word)).collect()
            } else {
                words
            };
            self.lanes(&words, as_parts)
        });
        let mut loaded = Words::new();
        for i in 0..parts {
            let register = self.new_reg(Width::B16);
            if let Some(old) = &old {
                self.copy(Width::B16, register, old[i as usize]);
            }
            let at = offset + i64::from(i * unit);
            self.load_piece(modifiers, memory, &[register], (base, at), policy, guard);
            loaded.push(Word::Reg(register));
        }
        let words = if width == Width::Pred {
            loaded.iter().map(|&word| self.as_predicate(word)).collect()
        } else {
            self.packed(&loaded, as_parts)
        };
        self.finish(data, words);
        Ok(())
    }

    fn load_piece(
        &mut self,
        modifiers: &[M],
        ty: ptx::Type,
        registers: &[Symbol],
        (base, offset): (Symbol, i64),
        policy: Option<Symbol>,
        guard: Option<Guard>,
    ) {
        let modifiers = with_vector(modifiers, registers.len(), ty);
        let target =
            if registers.len() == 1 { registers[0].into() } else { Operand::list(registers.iter().copied()) };
        let operands: SmallVec<[Operand; 3]> = [target, Operand::address_at(base, offset)]
            .into_iter()
            .chain(policy.map(Operand::from))
            .collect();
        match guard {
            Some(guard) => self.guarded(guard, |this| this.push(Opcode::Ld, &modifiers, operands)),
            None => self.push(Opcode::Ld, &modifiers, operands),
        }
    }

    pub(crate) fn store(&mut self, data: &OpData) -> Lowered {
        let (policy, condition) = match data.code {
            Ir::StoreIf => (data.operands.get(3).copied(), Some(data.operands[2])),
            _ => (data.operands.get(2).copied(), None),
        };
        let mut modifiers = self.access_modifiers(data, false)?;
        if policy.is_some() {
            modifiers.push(M::L2CacheHint);
        }
        let guard = match condition.map(|condition| (self.constant(condition), condition)) {
            Some((Some(bits), _)) if bits & 1 == 0 => return Ok(()),
            Some((None, condition)) => Some(Guard { negated: false, register: self.reg(condition) }),
            _ => None,
        };
        let policy = policy.map(|policy| self.reg(policy));
        let (pointer, value) = (data.operands[0], data.operands[1]);
        let ty = self.func.ty(value);
        let bytes = memory_bytes(self, ty)?;
        let (width, _) = shape(ty);
        let unit = chunk(bytes);
        let (base, offset) = self.base_and_offset(pointer);
        let mut words = self.words(value);
        let memory;
        if width == Width::Pred {
            words = words.iter().map(|&word| self.as_byte(word)).collect();
            memory = ptx::Type::U8;
        } else if unit >= 4 || bytes == unit {
            memory = if unit == 1 { ptx::Type::B8 } else { width.bits_type() };
        } else {
            let (element, ty) =
                if unit == 1 { (Element::U8, ptx::Type::B8) } else { (Element::U16, ptx::Type::B16) };
            words =
                self.lanes(&words, Type::Vector(element, u16::try_from(bytes / unit).unwrap_or(u16::MAX)));
            memory = ty;
        }
        let piece_width = Width::of(memory);
        for piece in pieces(words.len(), piece_width, unit) {
            let part = &words[piece.first..piece.first + piece.count];
            let modifiers = with_vector(&modifiers, part.len(), memory);
            let values: Vec<Operand> = part.iter().map(|&word| store_operand(word, memory)).collect();
            let source = match &values[..] {
                [one] => one.clone(),
                _ => Operand::List(values),
            };
            let operands: SmallVec<[Operand; 3]> = [Operand::address_at(base, offset + piece.offset), source]
                .into_iter()
                .chain(policy.map(Operand::from))
                .collect();
            match guard {
                Some(guard) => self.guarded(guard, |this| this.push(Opcode::St, &modifiers, operands)),
                None => self.push(Opcode::St, &modifiers, operands),
            }
        }
        Ok(())
    }

    /// Order, scope, space, caching: what stands before the vector length.
    fn access_modifiers(&mut self, data: &OpData, load: bool) -> Result<Modifiers, CodegenError> {
        let scope = scope_modifier(data.get().unwrap_or(Scope::Gpu));
        let mut modifiers = Modifiers::new();
        match data.get::<Order>() {
            None | Some(Order::Weak) => {}
            Some(Order::Volatile) => modifiers.push(M::Volatile),
            Some(Order::Relaxed) => modifiers.extend([M::Relaxed, scope]),
            Some(Order::Acquire) if load => modifiers.extend([M::Acquire, scope]),
            Some(Order::Release) if !load => modifiers.extend([M::Release, scope]),
            Some(Order::SeqCst) => {
                self.push(Opcode::Fence, &[M::Sc, scope], []);
                modifiers.extend([if load { M::Acquire } else { M::Release }, scope]);
            }
            Some(other) => return Err(self.unsupported(format!("cannot have order({})", other.name()))),
        }
        modifiers.extend(space_modifier(self.space(data.operands[0])));
        modifiers.extend(data.get::<Cache>().map(|cache| match cache {
            Cache::All => M::Ca,
            Cache::Global => M::Cg,
            Cache::Streaming => M::Cs,
            Cache::LastUse => M::Lu,
            Cache::Volatile => M::Cv,
            Cache::WriteBack => M::Wb,
            Cache::WriteThrough => M::Wt,
            Cache::ReadOnly => M::Nc,
        }));
        modifiers.extend(data.get::<Evict>().map(|evict| match evict {
            Evict::Normal => M::L1EvictNormal,
            Evict::First => M::L1EvictFirst,
            Evict::Last => M::L1EvictLast,
            Evict::Unchanged => M::L1EvictUnchanged,
            Evict::NoAllocate => M::L1NoAllocate,
        }));
        Ok(modifiers)
    }

    pub(crate) fn prefetch(&mut self, data: &OpData) -> Lowered {
        let mut modifiers = Modifiers::new();
        modifiers.extend(space_modifier(self.space(data.operands[0])));
        let level = data.get::<Level>().unwrap_or(Level::L2);
        modifiers.push(match (level, data.get::<Evict>()) {
            (Level::L1, None) => M::L1,
            (Level::L2, None) => M::L2,
            (Level::L2, Some(Evict::Normal)) => M::L2EvictNormal,
            (Level::L2, Some(Evict::Last)) => M::L2EvictLast,
            (_, Some(evict)) => {
                return Err(self.unsupported(format!(
                    "to {} cannot have evict({})",
                    level.name(),
                    evict.name()
                )));
            }
        });
        let address = self.address(data.operands[0]);
        self.push(Opcode::Prefetch, &modifiers, [address]);
        Ok(())
    }

    pub(crate) fn make_policy(&mut self, data: &OpData) -> Lowered {
        let priority = match data.get::<Policy>().unwrap_or(Policy::Normal) {
            Policy::First => M::L2EvictFirst,
            Policy::Last => M::L2EvictLast,
            Policy::Normal => M::L2EvictNormal,
            Policy::Unchanged => M::L2EvictUnchanged,
        };
        let to = self.define_one(data.results[0]);
        self.push(Opcode::Createpolicy, &[M::Fractional, priority, M::B64], [to.into()]);
        Ok(())
    }

    /// Order and scope of an atomic, and the fence before it that sequential consistency needs.
    fn atomic_order(&mut self, data: &OpData) -> Result<[M; 2], CodegenError> {
        let scope = scope_modifier(data.get().unwrap_or(Scope::Gpu));
        let reduce = data.code == Ir::Reduce;
        let order = match data.get::<Order>().unwrap_or(Order::Relaxed) {
            Order::Relaxed => M::Relaxed,
            Order::Release => M::Release,
            Order::Acquire if !reduce => M::Acquire,
            Order::AcqRel if !reduce => M::AcqRel,
            Order::SeqCst => {
                self.push(Opcode::Fence, &[M::Sc, scope], []);
                if reduce { M::Release } else { M::AcqRel }
            }
            other => return Err(self.unsupported(format!("cannot have order({})", other.name()))),
        };
        Ok([order, scope])
    }

    pub(crate) fn atomic_cas(&mut self, data: &OpData) -> Lowered {
        let ty = self.func.ty(data.operands[1]);
        let (width, count) = shape(ty);
        if count != 1 || width == Width::Pred || ty.bits() < 16 {
            return Err(self.unsupported(format!("works on 16, 32 or 64 bits, not {ty}")));
        }
        let order = self.atomic_order(data)?;
        let mut modifiers = Modifiers::from_slice(&order);
        modifiers.extend(space_modifier(self.space(data.operands[0])));
        modifiers.extend([M::Cas, width.modifier()]);
        let address = self.address(data.operands[0]);
        let (old, new) = (self.word(data.operands[1]), self.word(data.operands[2]));
        let (old, new) = (self.operand(old, width.bits_type()), self.operand(new, width.bits_type()));
        let to = self.define_one(data.results[0]);
        self.push(Opcode::Atom, &modifiers, [to.into(), address, old, new]);
        Ok(())
    }

    /// `atomic`, `reduce`
    pub(crate) fn atomic(&mut self, data: &OpData) -> Lowered {
        let value = data.operands[1];
        let ty = self.func.ty(value);
        let combine = data.get::<Combine>().unwrap_or(Combine::Add);
        let order = self.atomic_order(data)?;
        let (operation, kind, noftz) = self.atomic_type(combine, ty)?;
        let words = self.words(value);
        let registers: SmallVec<[Symbol; 4]> = match data.code {
            Ir::Atomic => self.define(data.results[0]),
            _ => SmallVec::new(),
        };
        let (base, offset) = self.base_and_offset(data.operands[0]);
        let space = self.space(data.operands[0]);
        // Vectors of 32-bit words go in one piece where the hardware can; elements are atomic one by one either way.
        let together = match words.len() {
            1 => 1,
            n if self.arch.number >= 90 && matches!(space, Space::Global | Space::Generic) => {
                if n % 4 == 0 {
                    4
                } else if n % 2 == 0 {
                    2
                } else {
                    1
                }
            }
            _ => 1,
        };
        let (width, _) = shape(ty);
        let word_bytes: i64 = if width == Width::B64 { 8 } else { 4 };
        for (i, part) in words.chunks(together).enumerate() {
            let mut modifiers = Modifiers::from_slice(&order);
            modifiers.extend(space_modifier(space));
            modifiers.push(operation);
            if noftz {
                modifiers.push(M::Noftz);
            }
            match together {
                2 => modifiers.push(M::V2),
                4 => modifiers.push(M::V4),
                _ => {}
            }
            modifiers.push(kind.into());
            let values: Vec<Operand> =
                part.iter()
                    .map(|&word| {
                        if together == 1 { self.operand(word, kind) } else { self.in_reg(word, width).into() }
                    })
                    .collect();
            let source = if together == 1 { values[0].clone() } else { Operand::List(values) };
            let at = offset + word_bytes * i64::try_from(i * together).unwrap_or(0);
            let address = Operand::address_at(base, at);
            if data.code == Ir::Reduce {
                self.push(Opcode::Red, &modifiers, [address, source]);
            } else {
                let part = &registers[i * together..(i + 1) * together];
                let to = if together == 1 { part[0].into() } else { Operand::list(part.iter().copied()) };
                self.push(Opcode::Atom, &modifiers, [to, address, source]);
            }
        }
        Ok(())
    }

    /// The operation and type of an atomic, and whether it keeps subnormals.
    fn atomic_type(&self, combine: Combine, ty: Type) -> Result<(M, ptx::Type, bool), CodegenError> {
        use ptx::Type as T;
        let element = ty.element().unwrap_or(Element::Bool);
        let scalar = matches!(ty, Type::Scalar(_));
        let refuse = || {
            self.unsupported(format!("op({}) does not exist for {ty}; atomics take 32-bit and 64-bit integers, and add also floats", combine.name()))
        };
        let found = match (combine, element) {
            (Combine::Add, Element::F16) if scalar => (M::AddOp, T::F16, true),
            (Combine::Add, Element::BF16) if scalar => (M::AddOp, T::Bf16, true),
            (Combine::Add, Element::F16) if ty.lanes().is_multiple_of(2) => (M::AddOp, T::F16x2, true),
            (Combine::Add, Element::BF16) if ty.lanes().is_multiple_of(2) => (M::AddOp, T::Bf16x2, true),
            (Combine::Add, Element::F32) => (M::AddOp, T::F32, false),
            (Combine::Exchange, _) if matches!(shape(ty), (Width::B32 | Width::B64, 1)) => {
                (M::Exch, shape(ty).0.bits_type(), false)
            }
            _ if !scalar => return Err(refuse()),
            (Combine::Add, Element::F64) => (M::AddOp, T::F64, false),
            (Combine::Add, Element::I32) => (M::AddOp, T::S32, false),
            (Combine::Add, Element::U32) => (M::AddOp, T::U32, false),
            (Combine::Add, Element::I64 | Element::U64) => (M::AddOp, T::U64, false),
            (Combine::Min | Combine::Max, Element::I32 | Element::U32 | Element::I64 | Element::U64) => {
                let operation = if combine == Combine::Min { M::MinOp } else { M::MaxOp };
                (operation, crate::registers::arithmetic(element), false)
            }
            (Combine::And | Combine::Or | Combine::Xor, e) if e.is_int() && e.bits() >= 32 => {
                let operation = match combine {
                    Combine::And => M::AndOp,
                    Combine::Or => M::OrOp,
                    _ => M::XorOp,
                };
                (operation, shape(ty).0.bits_type(), false)
            }
            (Combine::Inc, Element::U32) => (M::Inc, T::U32, false),
            (Combine::Dec, Element::U32) => (M::Dec, T::U32, false),
            _ => return Err(refuse()),
        };
        Ok(found)
    }

    /// A value in a register or as the immediate that fits `ty`; for operands of any scalar type.
    pub(crate) fn scalar_or_immediate(&mut self, value: Value) -> Operand {
        let (width, _) = shape(self.func.ty(value));
        self.scalar(value, width.bits_type())
    }
}

/// Bytes of a type in memory. Each truth value takes one.
fn memory_bytes(emitter: &Emitter<'_>, ty: Type) -> Result<u32, CodegenError> {
    match ty {
        Type::Scalar(Element::Bool) => Ok(1),
        Type::Vector(Element::Bool, _) | Type::TensorMap | Type::Accumulator(..) => {
            Err(emitter.unsupported(format!("cannot move {ty} between registers and memory")))
        }
        _ => Ok(ty.bytes()),
    }
}

/// The largest power of two up to 16 that divides a size.
fn chunk(bytes: u32) -> u32 {
    1 << bytes.trailing_zeros().min(4)
}

/// How `count` words of a width move in accesses of at most `unit` bytes.
fn pieces(count: usize, width: Width, unit: u32) -> Vec<Piece> {
    let word = match width {
        Width::B64 => 8,
        Width::B32 => 4,
        _ => unit.min(2),
    };
    let together = ((unit / word).max(1) as usize).min(4);
    let pieces = (0..count).step_by(together).map(|first| Piece {
        offset: i64::try_from(first).unwrap_or(0) * i64::from(word),
        first,
        count: together.min(count - first),
    });
    pieces.collect()
}

pub(crate) fn with_vector(modifiers: &[M], count: usize, ty: ptx::Type) -> Modifiers {
    let vector = match count {
        2 => Some(M::V2),
        4 => Some(M::V4),
        _ => None,
    };
    modifiers.iter().copied().chain(vector).chain([ty.into()]).collect()
}

fn store_operand(word: Word, ty: ptx::Type) -> Operand {
    match word {
        Word::Reg(register) => register.into(),
        Word::Imm(bits) => immediate(ty, bits),
    }
}

pub(crate) fn prefetch_size(prefetch: Prefetch) -> M {
    match prefetch {
        Prefetch::B64 => M::L2Prefetch64,
        Prefetch::B128 => M::L2Prefetch128,
        Prefetch::B256 => M::L2Prefetch256,
    }
}

/// The scope as PTX spells it.
pub(crate) fn scope_modifier(scope: Scope) -> M {
    match scope {
        Scope::Block => M::Cta,
        Scope::Cluster => M::Cluster,
        Scope::Gpu => M::Gpu,
        Scope::System => M::Sys,
    }
}
