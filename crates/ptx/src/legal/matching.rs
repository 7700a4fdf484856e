//! Whether an instruction is an instance of a form, and if not, where it stops to be.

use super::form::{Count, Form, Kind, Need, OperandPattern, Pair, Presence, TypeRef, Value};
use crate::ast::{Immediate, Instruction, Names, Operand, Symbol};
use crate::words::{Class, Modifier, SpecialRegister, Type};

/// The type of a register and the length of its vector (1 for scalars); `None` if a name is no register.
pub(crate) type Register = Option<(Type, usize)>;

/// What is known about the names that an instruction uses.
pub(crate) trait Scope {
    /// What a name stands for.
    fn register(&self, symbol: Symbol) -> Register;
    /// The spelling of names, for messages.
    fn names(&self) -> &Names;
}

/// Why an instruction is no instance of a form.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// How far it is one: modifiers that fit, then operands that fit. Larger is nearer.
    pub(crate) progress: (usize, usize),
    pub(crate) reason: String,
}

/// What an instruction needs as an instance of the form; any of the answers is enough. `None` if it is no instance.
pub(crate) fn match_form(form: &Form, instruction: &Instruction, scope: &impl Scope) -> Option<Vec<Need>> {
    let mut matcher = Matcher::new(form, instruction, scope, false);
    matcher.modifiers(0, 0).then(|| {
        let raised = |need: &Need| matcher.raises.iter().try_fold(*need, |need, raise| need.and(*raise));
        form.needs.iter().filter_map(raised).collect()
    })
}

/// Why an instruction is no instance of the form.
pub(crate) fn explain(form: &Form, instruction: &Instruction, scope: &impl Scope) -> Mismatch {
    let mut matcher = Matcher::new(form, instruction, scope, true);
    matcher.modifiers(0, 0);
    matcher.nearest.unwrap_or(Mismatch { progress: (0, 0), reason: "it does not fit".into() })
}

/// The largest vector that is moved at once, but for forms that say otherwise.
const VECTOR_BITS: usize = 128;

/// The size and class that a register must have.
#[derive(Clone, Copy)]
struct Wanted {
    bits: u32,
    class: Class,
    name: Type,
}

struct Matcher<'a, S: Scope> {
    form: &'a Form,
    instruction: &'a Instruction,
    scope: &'a S,
    bound: Vec<(char, Modifier)>,
    raises: Vec<Need>,
    /// Whether reasons are wanted; they cost more than the match.
    explain: bool,
    nearest: Option<Mismatch>,
}

impl<'a, S: Scope> Matcher<'a, S> {
    fn new(form: &'a Form, instruction: &'a Instruction, scope: &'a S, explain: bool) -> Matcher<'a, S> {
        Matcher { form, instruction, scope, bound: Vec::new(), raises: Vec::new(), explain, nearest: None }
    }

    fn fail(&mut self, progress: (usize, usize), reason: impl FnOnce(&Self) -> String) -> bool {
        if self.explain && self.nearest.as_ref().is_none_or(|nearest| nearest.progress < progress) {
            let reason = reason(self);
            self.nearest = Some(Mismatch { progress, reason });
        }
        false
    }

    /// Matches the elements from `element` on with the modifiers that are not in `used`, a set of bits.
    ///
    /// The assembler wants the words that name the operation in their order, and takes the others in any; words of the
    /// same kind, such as the types of `cvt`, have their meaning by order.
    fn modifiers(&mut self, element: usize, used: u64) -> bool {
        let words = &self.instruction.modifiers;
        let progress = (used.count_ones() as usize, 0);
        let first_unused =
            words.iter().enumerate().find(|(at, _)| used & bit(*at) == 0).map(|(_, word)| *word);
        let Some(pattern) = self.form.elements.get(element) else {
            return match first_unused {
                None => self.operands(0, 0),
                Some(extra) => self.fail(progress, |_| format!("`.{extra}` does not fit")),
            };
        };
        let found = words.iter().enumerate().find_map(|(at, word)| {
            let choice = pattern.choices.iter().find(|choice| choice.word.matches(*word));
            choice
                .filter(|_| used & bit(at) == 0 && (at == element || element >= self.form.fixed))
                .map(|choice| (at, *word, choice))
        });
        if let Some((at, word, choice)) = found {
            let (bound, raises) = (self.bound.len(), self.raises.len());
            self.bound.extend(pattern.variable.map(|variable| (variable, word)));
            self.raises.extend(choice.raise);
            if self.modifiers(element + 1, used | bit(at)) {
                return true;
            }
            self.bound.truncate(bound);
            self.raises.truncate(raises);
        }
        if pattern.optional {
            return self.modifiers(element + 1, used);
        }
        if found.is_some() {
            return false;
        }
        self.fail(progress, |_| match first_unused {
            Some(word) => format!("`.{word}` does not fit"),
            None => "a modifier is missing".into(),
        })
    }

    fn operands(&mut self, pattern: usize, at: usize) -> bool {
        let progress = (self.instruction.modifiers.len(), at + 1);
        let given = self.instruction.operands.get(at);
        let form = self.form;
        let Some(wanted) = form.operands.get(pattern) else {
            return match given {
                None => true,
                Some(_) => self.fail(progress, |m| {
                    format!("{} operands are given, {} fit", m.instruction.operands.len(), at)
                }),
            };
        };
        if let Presence::With(word) = wanted.presence
            && !self.instruction.has(word)
        {
            return self.operands(pattern + 1, at);
        }
        if let Some(given) = given {
            match self.alternatives(wanted, given) {
                Ok(()) => {
                    if self.operands(pattern + 1, at + 1) {
                        return true;
                    }
                }
                Err(reason) => {
                    self.fail(progress, |_| format!("operand {}: {reason}", at + 1));
                }
            }
        } else if wanted.presence != Presence::Optional {
            return self.fail(progress, |_| format!("operand {} is missing", at + 1));
        }
        wanted.presence == Presence::Optional && self.operands(pattern + 1, at)
    }

    fn alternatives(&self, wanted: &OperandPattern, given: &Operand) -> Result<(), String> {
        let mut reason = String::new();
        for kind in &wanted.alternatives {
            match self.kind(kind, given) {
                Ok(()) => return Ok(()),
                // The reason of the alternative that is of the kind of the operand says the most.
                Err(why) => {
                    let same = matches!(
                        (kind, given),
                        (Kind::Special, Operand::Special(_)) | (Kind::Immediate(_), Operand::Immediate(_))
                    );
                    if same || reason.is_empty() {
                        reason = why;
                    }
                }
            }
        }
        Err(reason)
    }

    fn kind(&self, kind: &Kind, given: &Operand) -> Result<(), String> {
        let need = |fits: bool, what: &str| if fits { Ok(()) } else { Err(format!("expected {what}")) };
        let is_variable = |symbol: &Symbol| self.scope.register(*symbol).is_none();
        match kind {
            Kind::Value(value) => self.value(value, given),
            Kind::Immediate(values) => match given {
                Operand::Immediate(Immediate::Int(value)) => {
                    let fits = values.is_empty() || values.iter().any(|range| range.contains(value));
                    need(fits, "another constant")
                }
                Operand::Immediate(Immediate::Unsigned(value)) => {
                    let value = i64::try_from(*value).ok();
                    let fits = value.is_some_and(|value| values.iter().any(|range| range.contains(&value)));
                    need(values.is_empty() || fits, "another constant")
                }
                _ => Err("expected an integer constant".into()),
            },
            Kind::Address => match given {
                Operand::Address(address) => match address.base.and_then(|base| self.scope.register(base)) {
                    Some((ty, _)) => need(
                        matches!(ty.bits(), 32 | 64) && matches!(ty.class(), Class::Bits | Class::Integer),
                        "an address in an integer register",
                    ),
                    None => Ok(()),
                },
                _ => Err("expected an address".into()),
            },
            Kind::TensorMemory => match given {
                Operand::Address(address) => match address.base.and_then(|base| self.scope.register(base)) {
                    Some((ty, _)) => need(
                        ty.bits() == 32 && matches!(ty.class(), Class::Bits | Class::Integer),
                        "an address in a register of 32 bits",
                    ),
                    None => Ok(()),
                },
                _ => Err("expected an address".into()),
            },
            Kind::Tensor(ty, count) => match given {
                Operand::Tuple(parts) => match &parts[..] {
                    [Operand::Symbol(_) | Operand::Offset(..), list] => {
                        let coordinates = Value { count: Some(*count), ..source(*ty) };
                        self.value(&coordinates, list)
                    }
                    _ => Err("expected an address and coordinates".into()),
                },
                _ => Err("expected an address and coordinates".into()),
            },
            Kind::Variable => match given {
                Operand::Symbol(symbol) => need(is_variable(symbol), "a variable"),
                Operand::Offset(symbol, _) => need(is_variable(symbol), "a variable"),
                _ => Err("expected a variable".into()),
            },
            Kind::Special => match given {
                Operand::Special(register) => {
                    let bits = self.instruction.types().next().map_or(0, Type::bits);
                    let own = special_bits(*register);
                    need(bits == own || (bits, own) == (16, 32), "a special register of this size")
                }
                _ => Err("expected a special register".into()),
            },
            Kind::Label | Kind::Function => match given {
                Operand::Symbol(symbol) => need(is_variable(symbol), "a name that is no register"),
                _ => Err("expected a name".into()),
            },
            Kind::Group => need(matches!(given, Operand::Group(_)), "operands in parentheses"),
            Kind::Sink => need(matches!(given, Operand::Sink), "`_`"),
        }
    }

    fn value(&self, value: &Value, given: &Operand) -> Result<(), String> {
        let wanted = self.wanted(value.ty)?;
        let count = match value.count {
            None => None,
            Some(Count::Fixed(count)) => Some(count),
            Some(Count::Columns(divisor)) => {
                let columns = self.instruction.modifiers.iter().find_map(|modifier| match modifier {
                    Modifier::Shape(shape) => Some(usize::from(shape.n)),
                    _ => None,
                });
                Some(columns.unwrap_or(0) / divisor)
            }
            Some(Count::Times(variable, factor)) => {
                self.bound(variable).and_then(Modifier::count).map(|count| count * factor)
            }
            Some(Count::Bound(variable, less)) => {
                let word = self.bound(variable);
                let count = word.and_then(Modifier::count).map(|count| count.saturating_sub(less));
                let vector = matches!(word, Some(Modifier::V2 | Modifier::V4 | Modifier::V8));
                if vector && count.unwrap_or(1) * wanted.bits as usize > VECTOR_BITS {
                    return Err(format!("a vector has more than {VECTOR_BITS} bits"));
                }
                count
            }
        };
        let Some(count) = count else {
            return match given {
                // Without a vector, `ld` and `st` take a list of one like its only element.
                Operand::List(parts) if value.count.is_some() && parts.len() == 1 => {
                    self.single(value, wanted, &parts[0])
                }
                _ => self.single(value, wanted, given),
            };
        };
        match given {
            Operand::List(parts) if parts.len() == count => parts.iter().try_for_each(|part| match part {
                Operand::Sink if value.destination => Ok(()),
                _ => self.single(value, wanted, part),
            }),
            Operand::List(parts) => Err(format!("{} elements are given, {count} fit", parts.len())),
            Operand::Symbol(symbol) => match self.scope.register(*symbol) {
                Some((ty, length)) if length == count && length > 1 => fits(ty, wanted, value.wider),
                _ => Err(format!("expected a list of {count}")),
            },
            _ => Err(format!("expected a list of {count}")),
        }
    }

    fn single(&self, value: &Value, wanted: Wanted, given: &Operand) -> Result<(), String> {
        let register = |symbol: Symbol, wanted: Wanted| match self.scope.register(symbol) {
            Some((ty, _)) => fits(ty, wanted, value.wider),
            None => Err(format!("`{}` is not a declared register", self.scope.names().text(symbol))),
        };
        let predicate = Wanted { bits: 1, class: Class::Predicate, name: Type::Pred };
        match given {
            Operand::Symbol(_) | Operand::Sink if value.pair == Pair::Required => {
                Err("a predicate behind `|` is missing".into())
            }
            Operand::Symbol(symbol) | Operand::Element(symbol, _) => register(*symbol, wanted),
            Operand::Sink if value.sink => Ok(()),
            Operand::Pair(first, second) if value.pair != Pair::None => {
                match first {
                    Some(first) => register(*first, wanted)?,
                    None if value.sink || wanted.class == Class::Predicate => {}
                    None => return Err("`_` does not fit".into()),
                }
                second.map_or(Ok(()), |second| register(second, predicate))
            }
            Operand::Not(symbol) if !value.destination && wanted.class == Class::Predicate => {
                if value.negatable { register(*symbol, wanted) } else { Err("`!` does not fit".into()) }
            }
            Operand::Immediate(immediate) if !value.destination && !value.register_only => {
                constant(*immediate, wanted)
            }
            _ => Err(format!("expected a register of type {}", wanted.name)),
        }
    }

    fn bound(&self, variable: char) -> Option<Modifier> {
        self.bound.iter().rev().find(|(name, _)| *name == variable).map(|(_, modifier)| *modifier)
    }

    fn wanted(&self, ty: TypeRef) -> Result<Wanted, String> {
        let resolve = |variable: char| {
            self.bound(variable).and_then(Modifier::ty).ok_or_else(|| "the type is missing".to_string())
        };
        let plain = |ty: Type| Wanted { bits: ty.bits(), class: ty.class(), name: ty };
        Ok(match ty {
            TypeRef::Fixed(ty) => plain(ty),
            TypeRef::Bound(variable) => plain(resolve(variable)?),
            TypeRef::Double(variable) => {
                let narrow = resolve(variable)?;
                let wide = match narrow {
                    Type::U16 => Type::U32,
                    Type::S16 => Type::S32,
                    Type::U32 => Type::U64,
                    _ => Type::S64,
                };
                plain(wide)
            }
        })
    }
}

/// More modifiers than bits fit no form.
fn bit(at: usize) -> u64 {
    u32::try_from(at).ok().and_then(|at| 1u64.checked_shl(at)).unwrap_or(0)
}

fn source(ty: TypeRef) -> Value {
    Value {
        ty,
        destination: false,
        wider: false,
        sink: false,
        pair: Pair::None,
        register_only: false,
        negatable: false,
        count: None,
    }
}

/// Whether a register of type `ty` can hold what is wanted.
fn fits(ty: Type, wanted: Wanted, wider: bool) -> Result<(), String> {
    let size = if wider { ty.bits() >= wanted.bits } else { ty.bits() == wanted.bits };
    let class = match (wanted.class, ty.class()) {
        (Class::Predicate, own) | (own, Class::Predicate) => own == Class::Predicate && wanted.class == own,
        (Class::Bits, _) | (_, Class::Bits) => true,
        (Class::Packed, own) => own == Class::Packed,
        (wanted, own) => wanted == own,
    };
    if size && class {
        Ok(())
    } else {
        Err(format!("a register of type {ty} does not fit type {}", wanted.name))
    }
}

/// Whether a constant can stand for what is wanted.
fn constant(immediate: Immediate, wanted: Wanted) -> Result<(), String> {
    let integer = matches!(immediate, Immediate::Int(_) | Immediate::Unsigned(_) | Immediate::WarpSize);
    let ok = match wanted.class {
        Class::Float => !integer && wanted.bits >= 32 && wanted.name != Type::F16x2,
        Class::Integer | Class::Predicate => integer,
        Class::Bits => match immediate {
            Immediate::F32(_) => wanted.bits == 32,
            Immediate::F64(_) => wanted.bits == 64,
            _ => wanted.bits <= 64,
        },
        Class::Packed | Class::Opaque => false,
    };
    if ok { Ok(()) } else { Err(format!("this constant does not fit type {}", wanted.name)) }
}

/// The size of a special register.
pub(crate) fn special_bits(register: SpecialRegister) -> u32 {
    use SpecialRegister::{
        Clock64, CurrentGraphExec, Globaltimer, Gridid, IsExplicitCluster, Pm0Wide, Pm1Wide, Pm2Wide,
        Pm3Wide, Pm4Wide, Pm5Wide, Pm6Wide, Pm7Wide,
    };
    match register {
        IsExplicitCluster => 1,
        Clock64 | CurrentGraphExec | Globaltimer | Gridid | Pm0Wide | Pm1Wide | Pm2Wide | Pm3Wide
        | Pm4Wide | Pm5Wide | Pm6Wide | Pm7Wide => 64,
        _ => 32,
    }
}
