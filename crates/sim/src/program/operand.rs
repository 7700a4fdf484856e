//! Operands: names and numbers as sources, destinations, predicates and addresses.

use smallvec::SmallVec;
use tilewright_ptx::{Component, Immediate, Instruction, Modifier, Operand, SpecialRegister, Symbol, Type};

use super::function::Decoder;
use super::op::{Address, Order, Pred, PredSrc, Reg, Scope, Sources, Space, Src, Strength};
use super::scope::{Entity, Place, Register};
use super::window;
use crate::number::immediate;

/// Why an instruction did not become an op.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// The module makes no sense.
    Undeclared(Symbol),
    /// The module makes no sense alone.
    Undefined(Symbol),
    /// Not the operands that it has.
    Operands,
    /// Modifiers that are not known, or not executed.
    Modifiers,
    /// Some other reason, in words.
    Because(String),
}

pub(super) type Decoded<T> = Result<T, Fault>;

/// What a symbol of an operand is.
pub(super) enum Value {
    Register(Register),
    Predicate(Pred),
    /// An address in a space.
    Address(Src, Space),
}

impl Decoder<'_> {
    pub(super) fn value(&mut self, name: Symbol) -> Decoded<Value> {
        let place = match self.scopes.resolve(name) {
            Some(Entity::Register(register)) => return Ok(Value::Register(register)),
            Some(Entity::Predicate(predicate)) => return Ok(Value::Predicate(predicate)),
            Some(Entity::Place(place)) => place,
            None => *self.layout.places.get(&name).ok_or(Fault::Undeclared(name))?,
        };
        Ok(match place {
            Place::Shared(id) => {
                Value::Address(Src::Shared(self.layout.shared.offset(self.index, id)), Space::SharedCta)
            }
            Place::Memory { address, constant } => {
                Value::Address(Src::Imm(address), if constant { Space::Const } else { Space::Global })
            }
            Place::Param(offset) => Value::Address(Src::Imm(u64::from(offset)), Space::Param),
            Place::Frame { offset, .. } => Value::Address(Src::Frame(offset), Space::Local),
            Place::Elsewhere => return Err(Fault::Undefined(name)),
        })
    }

    /// The register of an operand, with its width; an element of a vector counts as a scalar.
    pub(super) fn register(&mut self, operand: &Operand) -> Decoded<Register> {
        let (name, lane) = match operand {
            Operand::Symbol(name) => (*name, None),
            Operand::Element(name, component) => (*name, Some(lane_of(*component)?)),
            _ => return Err(Fault::Operands),
        };
        let Value::Register(register) = self.value(name)? else { return Err(Fault::Operands) };
        match lane {
            None => Ok(register),
            Some(lane) => {
                let first = register.lane(lane).ok_or(Fault::Operands)?;
                Ok(Register { first, bits: register.bits, lanes: 1 })
            }
        }
    }

    /// A destination that is one register.
    pub(super) fn dst(&mut self, operand: &Operand) -> Decoded<Reg> {
        let register = self.register(operand)?;
        if register.lanes == 1 { Ok(register.first) } else { Err(Fault::Operands) }
    }

    /// A destination that may be `_`.
    pub(super) fn dst_or_sink(&mut self, operand: &Operand) -> Decoded<Option<Reg>> {
        if *operand == Operand::Sink { Ok(None) } else { self.dst(operand).map(Some) }
    }

    /// The registers of `{a, _, b}`, of a vector register, or of a single register; with the width of the first.
    pub(super) fn dsts(&mut self, operand: &Operand) -> Decoded<(SmallVec<[Option<Reg>; 4]>, u32)> {
        let mut bits = None;
        let mut found = SmallVec::new();
        match operand {
            Operand::List(parts) => {
                for part in parts {
                    if *part == Operand::Sink {
                        found.push(None);
                        continue;
                    }
                    let register = self.register(part)?;
                    if register.lanes != 1 {
                        return Err(Fault::Operands);
                    }
                    bits.get_or_insert(register.bits);
                    found.push(Some(register.first));
                }
            }
            Operand::Sink => found.push(None),
            _ => {
                let register = self.register(operand)?;
                bits = Some(register.bits);
                found.extend((0..register.lanes).map(|lane| register.lane(lane)));
            }
        }
        Ok((found, bits.unwrap_or(64)))
    }

    /// Destinations of which none may be `_`.
    pub(super) fn all_dsts<C: FromIterator<Reg>>(&mut self, operand: &Operand) -> Decoded<C> {
        self.dsts(operand)?.0.into_iter().collect::<Option<C>>().ok_or(Fault::Operands)
    }

    /// A source of a type.
    pub(super) fn src(&mut self, operand: &Operand, ty: Type) -> Decoded<Src> {
        let (name, offset) = match operand {
            Operand::Symbol(name) => (*name, 0),
            Operand::Offset(name, offset) => (*name, *offset),
            Operand::Special(special) => return Ok(Src::Special(scalar_special(*special))),
            Operand::Immediate(value) => return Ok(Src::Imm(immediate(*value, ty))),
            Operand::Element(..) => return Ok(Src::Reg(self.dst(operand)?)),
            _ => return Err(Fault::Operands),
        };
        match self.value(name)? {
            Value::Register(register) if offset == 0 && register.lanes == 1 => Ok(Src::Reg(register.first)),
            Value::Address(base, _) => moved(base, offset).ok_or(Fault::Operands),
            _ => Err(Fault::Operands),
        }
    }

    /// The sources of `{a, b}`, of a vector register, or of a single operand.
    pub(super) fn srcs(&mut self, operand: &Operand, ty: Type) -> Decoded<Sources> {
        match operand {
            Operand::List(parts) => parts.iter().map(|part| self.src(part, ty)).collect(),
            Operand::Symbol(name) => match self.value(*name)? {
                Value::Register(register) => {
                    Ok((0..register.lanes).filter_map(|lane| register.lane(lane)).map(Src::Reg).collect())
                }
                _ => Ok([self.src(operand, ty)?].into_iter().collect()),
            },
            _ => Ok([self.src(operand, ty)?].into_iter().collect()),
        }
    }

    /// The two halves of a register of 128 bits.
    pub(super) fn halves(&mut self, operand: &Operand) -> Decoded<[Reg; 2]> {
        let register = self.register(operand)?;
        if register.bits != 128 || register.lanes != 1 {
            return Err(Fault::Operands);
        }
        Ok([register.first, register.first + 1])
    }

    /// A predicate as destination.
    pub(super) fn pred(&mut self, name: Symbol) -> Decoded<Pred> {
        match self.value(name)? {
            Value::Predicate(predicate) => Ok(predicate),
            _ => Err(Fault::Operands),
        }
    }

    pub(super) fn pred_dst(&mut self, operand: &Operand) -> Decoded<Pred> {
        match operand {
            Operand::Symbol(name) => self.pred(*name),
            _ => Err(Fault::Operands),
        }
    }

    /// `p`, `!p`, or a number.
    pub(super) fn pred_src(&mut self, operand: &Operand) -> Decoded<PredSrc> {
        match operand {
            Operand::Symbol(name) => Ok(PredSrc::Reg { index: self.pred(*name)?, negated: false }),
            Operand::Not(name) => Ok(PredSrc::Reg { index: self.pred(*name)?, negated: true }),
            Operand::Immediate(value) => Ok(PredSrc::Imm(integer(*value)? != 0)),
            _ => Err(Fault::Operands),
        }
    }

    /// `d|p`, or `d` alone. Either may be `_`.
    pub(super) fn pair(&mut self, operand: &Operand) -> Decoded<(Option<Reg>, Option<Pred>)> {
        let Operand::Pair(first, second) = operand else { return Ok((self.dst_or_sink(operand)?, None)) };
        let first = first.map(|name| self.dst(&Operand::Symbol(name))).transpose()?;
        Ok((first, second.map(|name| self.pred(name)).transpose()?))
    }

    /// `[base+offset]`, with the space of the base if it is a variable.
    pub(super) fn address(&mut self, operand: &Operand) -> Decoded<(Address, Option<Space>)> {
        let (base, offset) = match operand {
            Operand::Address(address) => match address.base {
                Some(base) => (base, address.offset),
                None => {
                    return Ok((Address { base: Src::Imm(address.offset.cast_unsigned()), offset: 0 }, None));
                }
            },
            Operand::Tuple(parts) => match parts.as_slice() {
                [element @ Operand::Element(..)] => {
                    return Ok((Address { base: Src::Reg(self.dst(element)?), offset: 0 }, None));
                }
                _ => return Err(Fault::Operands),
            },
            Operand::Symbol(name) => (*name, 0),
            Operand::Offset(name, offset) => (*name, *offset),
            _ => return Err(Fault::Operands),
        };
        match self.value(base)? {
            Value::Register(register) if register.lanes == 1 => {
                Ok((Address { base: Src::Reg(register.first), offset }, None))
            }
            Value::Address(base, space) => Ok((Address { base, offset }, Some(space))),
            _ => Err(Fault::Operands),
        }
    }

    /// An address in the space that the instruction names, or else in that of the variable.
    pub(super) fn address_in(
        &mut self,
        operand: &Operand,
        space: Option<Space>,
    ) -> Decoded<(Address, Space)> {
        let (address, variable) = self.address(operand)?;
        let space = match (space, variable) {
            (Some(Space::Param), Some(found)) => found,
            (Some(Space::Param), None) if !self.entry => Space::Local,
            (Some(space), _) => space,
            (None, found) => found.unwrap_or(Space::Generic),
        };
        Ok((address, space))
    }

    /// A generic address: that of a variable is moved into its window.
    pub(super) fn generic_address(&mut self, operand: &Operand) -> Decoded<Address> {
        let (mut address, variable) = self.address(operand)?;
        match (address.base, variable) {
            (Src::Imm(base), Some(space)) => address.base = Src::Imm(base.wrapping_add(window::base(space))),
            (_, Some(_)) => return Err(Fault::Because("expects a generic address; use `cvta` first".into())),
            (_, None) => {}
        }
        Ok(address)
    }

    /// A small constant.
    pub(super) fn number(operand: &Operand) -> Decoded<u32> {
        match operand {
            Operand::Immediate(value) => u32::try_from(integer(*value)?).map_err(|_| Fault::Operands),
            _ => Err(Fault::Operands),
        }
    }

    /// A constant that may be negative.
    pub(super) fn signed(operand: &Operand) -> Decoded<i64> {
        match operand {
            Operand::Immediate(value) => integer(*value),
            _ => Err(Fault::Operands),
        }
    }
}

/// A variable's address plus an offset, as a source.
fn moved(base: Src, offset: i64) -> Option<Src> {
    let small = |at: u32| Some(at.wrapping_add_signed(i32::try_from(offset).ok()?));
    Some(match base {
        Src::Imm(address) => Src::Imm(address.wrapping_add_signed(offset)),
        Src::Shared(at) => Src::Shared(small(at)?),
        Src::Frame(at) => Src::Frame(small(at)?),
        other => other,
    })
}

fn integer(value: Immediate) -> Decoded<i64> {
    match value {
        Immediate::Int(value) => Ok(value),
        Immediate::Unsigned(value) => i64::try_from(value).map_err(|_| Fault::Operands),
        Immediate::WarpSize => Ok(32),
        Immediate::F32(_) | Immediate::F64(_) => Err(Fault::Operands),
    }
}

fn lane_of(component: Component) -> Decoded<u32> {
    Ok(match component {
        Component::X | Component::R => 0,
        Component::Y | Component::G => 1,
        Component::Z | Component::B => 2,
        Component::W | Component::A => 3,
        _ => return Err(Fault::Operands),
    })
}

/// The components of a special register that is a vector; none for a scalar.
pub(super) fn special_components(special: SpecialRegister) -> Option<[SpecialRegister; 4]> {
    use SpecialRegister as R;
    Some(match special {
        R::Tid => [R::TidX, R::TidY, R::TidZ, R::TidW],
        R::Ntid => [R::NtidX, R::NtidY, R::NtidZ, R::NtidW],
        R::Ctaid => [R::CtaidX, R::CtaidY, R::CtaidZ, R::CtaidW],
        R::Nctaid => [R::NctaidX, R::NctaidY, R::NctaidZ, R::NctaidW],
        R::Clusterid => [R::ClusteridX, R::ClusteridY, R::ClusteridZ, R::ClusteridW],
        R::Nclusterid => [R::NclusteridX, R::NclusteridY, R::NclusteridZ, R::NclusteridW],
        R::ClusterCtaid => [R::ClusterCtaidX, R::ClusterCtaidY, R::ClusterCtaidZ, R::ClusterCtaidW],
        R::ClusterNctaid => [R::ClusterNctaidX, R::ClusterNctaidY, R::ClusterNctaidZ, R::ClusterNctaidW],
        _ => return None,
    })
}

/// A vector read as a scalar gives its first component.
fn scalar_special(special: SpecialRegister) -> SpecialRegister {
    special_components(special).map_or(special, |[x, ..]| x)
}

/// The state spaces among the modifiers, in order.
pub(super) fn spaces(instruction: &Instruction) -> impl Iterator<Item = Space> + '_ {
    instruction.modifiers.iter().filter_map(|modifier| {
        Some(match modifier {
            Modifier::Const => Space::Const,
            Modifier::Global => Space::Global,
            Modifier::Local => Space::Local,
            Modifier::Param | Modifier::ParamEntry | Modifier::ParamFunc => Space::Param,
            Modifier::Shared | Modifier::SharedCta => Space::SharedCta,
            Modifier::SharedCluster => Space::SharedCluster,
            _ => return None,
        })
    })
}

/// The scope among the modifiers.
pub(super) fn scope(instruction: &Instruction) -> Option<Scope> {
    instruction.modifiers.iter().find_map(|modifier| {
        Some(match modifier {
            Modifier::Cta => Scope::Cta,
            Modifier::Cluster => Scope::Cluster,
            Modifier::Gpu | Modifier::Gl => Scope::Gpu,
            Modifier::Sys => Scope::Sys,
            _ => return None,
        })
    })
}

/// The memory order among the modifiers.
pub(super) fn order(instruction: &Instruction) -> Option<Order> {
    instruction.modifiers.iter().find_map(|modifier| {
        Some(match modifier {
            Modifier::Weak => Order::Weak,
            Modifier::Relaxed => Order::Relaxed,
            Modifier::Acquire => Order::Acquire,
            Modifier::Release => Order::Release,
            Modifier::AcqRel => Order::AcqRel,
            Modifier::Sc => Order::Sc,
            _ => return None,
        })
    })
}

/// Order and scope, with what holds where they are not written.
pub(super) fn strength(instruction: &Instruction, order_default: Order, scope_default: Scope) -> Strength {
    Strength {
        order: order(instruction).unwrap_or(order_default),
        scope: scope(instruction).unwrap_or(scope_default),
    }
}
