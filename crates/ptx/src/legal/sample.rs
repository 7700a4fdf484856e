//! Instructions that are instances of a form: examples for readers, and cases for tests.
//!
//! A sample is a walk along the form with a decision wherever the form leaves one: which word, whether an operand is
//! there, a register or a number. Decision 0 is always the simplest.

use super::check::judge;
use super::form::{Count, Form, Kind, Need, Pair, Presence, TypeRef, Value};
use super::matching::{Scope, match_form, special_bits};
use crate::ast::{Address, Immediate, Instruction, Modifiers, Names, Operand, Operands, Symbol};
use crate::words::{Class, Modifier, Opcode, SpecialRegister, Type};

/// An instance of a form.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The instruction. Its registers are named by type, `%b32_0`; see [`Form::sample`] for the other names.
    pub instruction: Instruction,
    /// What it needs; any of these is enough.
    pub needs: Vec<Need>,
    /// Whether the assembler refuses it where less is given; a few rows rest on the documentation alone.
    pub enforced: bool,
}

impl Form {
    /// Samples in which everything that the form allows appears at least once: the first takes decision 0 everywhere,
    /// each further one differs from it in one place.
    pub fn samples(&self, names: &mut Names) -> Vec<Sample> {
        let mut options = Vec::new();
        let first = self.sample(names, &mut |count| {
            options.push(count);
            0
        });
        let mut samples: Vec<Sample> = first.into_iter().collect();
        for (place, &count) in options.iter().enumerate() {
            for decision in 1..count {
                let mut at = 0;
                samples.extend(self.sample(names, &mut |_| {
                    at += 1;
                    if at == place + 1 { decision } else { 0 }
                }));
            }
        }
        samples
    }

    /// The sample that the decisions lead to; `choose` is called with the number of options and answers with one below
    /// it. `None` where the decisions contradict each other, and for calls and indexed branches, which refer to more
    /// than an instruction.
    ///
    /// Names other than registers: `parameter` and `argument` in `.param` space, `variable` in `.global` and
    /// `shared_variable` in `.shared` space, the label `sample_label`, and the address registers `%b64_address`
    /// and `%b32_address`.
    pub fn sample(&self, names: &mut Names, choose: &mut dyn FnMut(usize) -> usize) -> Option<Sample> {
        let instruction = Builder { form: self, names, choose, registers: 0 }.instruction()?;
        let scope = SampleScope(names);
        match_form(self, &instruction, &scope)?;
        let needs = judge(&instruction, &scope).ok()?;
        let mut chosen = self.elements.iter().flat_map(|element| {
            let given = element.choices.iter();
            given.filter(|choice| instruction.modifiers.iter().any(|word| choice.word.matches(*word)))
        });
        let enforced = self.enforced && chosen.all(|choice| choice.enforced);
        Some(Sample { instruction, needs, enforced })
    }
}

/// What can stand in the place of a single value.
#[derive(Clone, Copy, PartialEq)]
enum Variety {
    Register,
    Constant,
    Negated,
    Pair,
    /// `_`, or `_|p`
    Sink,
}

struct Builder<'a> {
    form: &'a Form,
    names: &'a mut Names,
    choose: &'a mut dyn FnMut(usize) -> usize,
    registers: u32,
}

impl Builder<'_> {
    /// One of the options; the first where there is nothing to decide.
    fn pick<T: Clone>(&mut self, options: &[T]) -> Option<T> {
        let at = if options.len() > 1 { (self.choose)(options.len()) } else { 0 };
        options.get(at).cloned()
    }

    fn instruction(&mut self) -> Option<Instruction> {
        let mut modifiers = Modifiers::new();
        let mut bound = Vec::new();
        for element in &self.form.elements {
            let words = element.choices.iter().flat_map(|choice| choice.word.modifiers()).map(Some);
            let options: Vec<Option<Modifier>> =
                element.optional.then_some(None).into_iter().chain(words).collect();
            if let Some(modifier) = self.pick(&options)? {
                bound.extend(element.variable.map(|variable| (variable, modifier)));
                modifiers.push(modifier);
            }
        }
        let mut operands = Operands::new();
        for (at, operand) in self.form.operands.iter().enumerate() {
            let present = match operand.presence {
                Presence::Always => true,
                Presence::Optional => self.pick(&[false, true])?,
                Presence::With(word) => modifiers.contains(&word),
            };
            if present {
                let kind = self.pick(&operand.alternatives)?;
                operands.push(self.operand(at, &kind, &modifiers, &bound)?);
            }
        }
        Some(Instruction { guard: None, opcode: self.form.opcode, modifiers, operands })
    }

    fn operand(
        &mut self,
        at: usize,
        kind: &Kind,
        modifiers: &Modifiers,
        bound: &[(char, Modifier)],
    ) -> Option<Operand> {
        Some(match kind {
            Kind::Value(value) => self.value(at, value, modifiers, bound)?,
            Kind::Immediate(values) => {
                let ends: Vec<i64> = values.iter().flat_map(|range| [*range.start(), *range.end()]).collect();
                let value = match self.pick(&ends) {
                    Some(value) => value,
                    None if self.form.opcode == Opcode::Setmaxnreg => 64,
                    None => 0,
                };
                Operand::Immediate(Immediate::Int(value))
            }
            Kind::Address => self.address(modifiers),
            Kind::TensorMemory => {
                Operand::Address(Address { base: Some(self.names.intern("%b32_address")), offset: 0 })
            }
            Kind::Tensor(ty, count) => {
                let count = counted(*count, modifiers, bound).unwrap_or(1);
                let ty = resolve(*ty, bound)?;
                let coordinates = (0..count).map(|_| Operand::Symbol(self.register(ty))).collect();
                Operand::Tuple(vec![
                    Operand::Symbol(self.names.intern("%b64_address")),
                    Operand::List(coordinates),
                ])
            }
            Kind::Variable => {
                let shared =
                    modifiers.iter().any(|word| matches!(word, Modifier::Shared | Modifier::SharedCta));
                let name = match self.form.opcode {
                    Opcode::Mapa | Opcode::Getctarank => "shared_variable",
                    Opcode::Cvta if shared => "shared_variable",
                    Opcode::Cvta if !modifiers.contains(&Modifier::Global) => return None,
                    _ => "variable",
                };
                Operand::Symbol(self.names.intern(name))
            }
            Kind::Special => {
                let bits = modifiers.iter().find_map(|modifier| modifier.ty()).map_or(0, Type::bits);
                let registers = [SpecialRegister::TidX, SpecialRegister::Clock64];
                Operand::Special(registers.into_iter().find(|register| special_bits(*register) == bits)?)
            }
            Kind::Label if self.form.opcode == Opcode::Bra => {
                Operand::Symbol(self.names.intern("sample_label"))
            }
            Kind::Label | Kind::Function | Kind::Group => return None,
            Kind::Sink => Operand::Sink,
        })
    }

    fn value(
        &mut self,
        at: usize,
        value: &Value,
        modifiers: &Modifiers,
        bound: &[(char, Modifier)],
    ) -> Option<Operand> {
        let ty = resolve(value.ty, bound)?;
        if let Some(count) = value.count.and_then(|count| counted(count, modifiers, bound)) {
            return Some(Operand::List((0..count).map(|_| Operand::Symbol(self.register(ty))).collect()));
        }
        let mut varieties = vec![Variety::Register];
        let constant = !value.destination && !value.register_only;
        let possible = [
            (value.pair == Pair::Required, Variety::Pair),
            (value.pair == Pair::Optional, Variety::Pair),
            (constant, Variety::Constant),
            (value.negatable, Variety::Negated),
            (value.sink, Variety::Sink),
        ];
        varieties.extend(possible.into_iter().filter(|(possible, _)| *possible).map(|(_, variety)| variety));
        if value.pair == Pair::Required {
            varieties.remove(0);
        }
        let register = self.register(ty);
        Some(match self.pick(&varieties)? {
            Variety::Register => Operand::Symbol(register),
            Variety::Constant => Operand::Immediate(match (ty.class(), ty) {
                (Class::Float, Type::F32) => Immediate::F32(1f32.to_bits()),
                (Class::Float, Type::F64) => Immediate::F64(1f64.to_bits()),
                (Class::Float | Class::Packed | Class::Opaque, _) => return None,
                // Threads take part in a barrier by the warp; bulk copies go by 16 bytes; tensor memory goes by 32 columns.
                _ if self.form.opcode == Opcode::Tcgen05 => Immediate::Int(32),
                _ if modifiers.contains(&Modifier::Bulk) => Immediate::Int(16),
                _ if matches!(self.form.opcode, Opcode::Bar | Opcode::Barrier) && self.counts_threads(at) => {
                    Immediate::Int(32)
                }
                _ => Immediate::Int(1),
            }),
            Variety::Negated => Operand::Not(register),
            Variety::Pair => Operand::Pair(Some(register), Some(self.register(Type::Pred))),
            Variety::Sink if value.pair != Pair::None => Operand::Pair(None, Some(self.register(Type::Pred))),
            Variety::Sink => Operand::Sink,
        })
    }

    /// Whether an operand of a barrier is a number of threads: the one behind the barrier's own number.
    fn counts_threads(&self, at: usize) -> bool {
        let is_number = |at: usize| match self.form.operands.get(at).map(|operand| &operand.alternatives[..])
        {
            Some([Kind::Value(value)]) => value.ty == TypeRef::Fixed(Type::U32) && !value.destination,
            _ => false,
        };
        at > 0 && is_number(at) && is_number(at - 1)
    }

    fn address(&mut self, modifiers: &Modifiers) -> Operand {
        let param = modifiers
            .iter()
            .find(|word| matches!(word, Modifier::Param | Modifier::ParamEntry | Modifier::ParamFunc));
        let base = match (param, self.form.opcode) {
            (Some(Modifier::ParamFunc), _) | (Some(_), Opcode::St) => "argument",
            (Some(_), _) => "parameter",
            (None, _) => "%b64_address",
        };
        Operand::Address(Address { base: Some(self.names.intern(base)), offset: 0 })
    }

    /// The next register of a type; formats without registers of their own live in untyped ones.
    fn register(&mut self, ty: Type) -> Symbol {
        let ty = match (ty.class(), ty.bits()) {
            (Class::Packed, 8) => Type::B8,
            (Class::Packed, 16) => Type::B16,
            (Class::Packed, 32) => Type::B32,
            (Class::Packed, 64) => Type::B64,
            _ => ty,
        };
        let number = self.registers;
        self.registers += 1;
        self.names.numbered(&format!("%{ty}_"), number)
    }
}

fn resolve(ty: TypeRef, bound: &[(char, Modifier)]) -> Option<Type> {
    let of =
        |variable: char| bound.iter().find(|(name, _)| *name == variable).and_then(|(_, word)| word.ty());
    match ty {
        TypeRef::Fixed(ty) => Some(ty),
        TypeRef::Bound(variable) => of(variable),
        TypeRef::Double(variable) => of(variable).map(|narrow| match narrow {
            Type::U16 => Type::U32,
            Type::S16 => Type::S32,
            Type::U32 => Type::U64,
            _ => Type::S64,
        }),
    }
}

fn counted(count: Count, modifiers: &Modifiers, bound: &[(char, Modifier)]) -> Option<usize> {
    let number = |variable: char| {
        let word = bound.iter().find(|(name, _)| *name == variable).map(|(_, word)| *word);
        word.and_then(Modifier::count)
    };
    match count {
        Count::Fixed(count) => Some(count),
        Count::Columns(divisor) => modifiers.iter().find_map(|modifier| match modifier {
            Modifier::Shape(shape) => Some(usize::from(shape.n) / divisor),
            _ => None,
        }),
        Count::Times(variable, factor) => number(variable).map(|count| count * factor),
        Count::Bound(variable, less) => number(variable).map(|count| count.saturating_sub(less)),
    }
}

/// Registers of samples carry their type in their name.
struct SampleScope<'a>(&'a Names);

impl Scope for SampleScope<'_> {
    fn register(&self, symbol: Symbol) -> Option<(Type, usize)> {
        let (ty, _) = self.0.text(symbol).strip_prefix('%')?.split_once('_')?;
        Some((Type::from_text(ty)?, 1))
    }

    fn names(&self) -> &Names {
        self.0
    }
}
