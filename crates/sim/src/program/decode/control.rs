//! Branches and calls.

use tilewright_ptx::{Instruction, Modifier, Operand, Symbol, Type, Variable};

use super::super::Param;
use super::super::function::Decoder;
use super::super::layout::is_predicate;
use super::super::op::{Access, Address, Callee, Kind, Order, Passed, Scope, Space, Src, Strength};
use super::super::operand::{Decoded, Fault};
use super::super::scope::{Entity, Label, Place, Table};
use super::because;

/// An argument or result as the caller has it.
enum Passing {
    /// Bytes in its frame.
    Bytes { offset: u32, bytes: u32 },
    /// A value.
    Value(Operand),
}

impl<'a> Decoder<'a> {
    fn label(&self, operand: &Operand) -> Decoded<Label<'a>> {
        let Operand::Symbol(name) = operand else { return Err(Fault::Operands) };
        self.scopes.label(*name).ok_or(Fault::Undeclared(*name))
    }

    pub(super) fn branch(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [label] = i.operands.as_slice() else { return Err(Fault::Operands) };
        Ok(Kind::Bra { target: self.label(label)?.id, uniform: i.has(Modifier::Uni) })
    }

    pub(super) fn indexed_branch(&mut self, i: &Instruction) -> Decoded<Kind> {
        let [index, list] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let Some(Table::Branches(labels)) = self.label(list)?.table else {
            return Err(because("expects the label of a `.branchtargets` list"));
        };
        let targets = labels.iter().map(|label| self.label(&Operand::Symbol(*label)).map(|label| label.id));
        let targets = targets.collect::<Decoded<Vec<_>>>()?;
        Ok(Kind::Brx { index: self.src(index, Type::U32)?, targets })
    }

    pub(super) fn call(&mut self, i: &Instruction) -> Decoded<Kind> {
        let group = |operand: &'_ Operand| match operand {
            Operand::Group(parts) => Some(parts.clone()),
            _ => None,
        };
        let (results, rest) = match i.operands.as_slice() {
            [first, rest @ ..] if group(first).is_some() => (group(first).unwrap_or_default(), rest),
            all => (Vec::new(), all),
        };
        let (target, arguments, prototype) = match rest {
            [target] => (target, Vec::new(), None),
            [target, arguments] => match group(arguments) {
                Some(arguments) => (target, arguments, None),
                None => (target, Vec::new(), Some(arguments)),
            },
            [target, arguments, prototype] => {
                (target, group(arguments).ok_or(Fault::Operands)?, Some(prototype))
            }
            _ => return Err(Fault::Operands),
        };
        let Operand::Symbol(name) = target else { return Err(Fault::Operands) };
        let arguments = self.passings(&arguments)?;
        let results = self.passings(&results)?;
        if matches!(self.scopes.resolve(*name), Some(Entity::Register(_))) {
            return self.indirect(target, &arguments, &results, prototype);
        }
        if let Some(&index) = self.layout.index.get(name) {
            return self.direct(index, &arguments, &results);
        }
        self.system(*name, &arguments, &results)
    }

    fn passings(&mut self, operands: &[Operand]) -> Decoded<Vec<Passing>> {
        let passing = |operand: &Operand| {
            if let Operand::Symbol(name) = operand
                && let Some(Entity::Place(Place::Frame { offset, bytes })) = self.scopes.resolve(*name)
            {
                return Ok(Passing::Bytes { offset, bytes });
            }
            // Undeclared names are found here.
            if let Operand::Symbol(name) = operand {
                self.value(*name)?;
            }
            Ok(Passing::Value(operand.clone()))
        };
        operands.iter().map(passing).collect()
    }

    fn direct(&mut self, index: u32, arguments: &[Passing], results: &[Passing]) -> Decoded<Kind> {
        let signature = &self.layout.signatures[index as usize];
        if arguments.len() != signature.params.len() || results.len() > signature.returns.len() {
            return Err(because("passes more or fewer parameters than the function has"));
        }
        if signature.params.iter().chain(&signature.returns).any(is_predicate) {
            return Err(because("passes predicates, which is not supported"));
        }
        if self.layout.functions[index as usize].kind == tilewright_ptx::FunctionKind::Entry {
            return Err(because("calls a kernel"));
        }
        let arguments = arguments
            .iter()
            .zip(&signature.params)
            .map(|(argument, param)| self.argument(argument, param))
            .collect::<Decoded<Vec<_>>>()?;
        let results = results
            .iter()
            .zip(&signature.returns)
            .map(|(result, param)| self.result(result, param))
            .collect::<Decoded<Vec<_>>>()?;
        Ok(Kind::Call { callee: Callee::Direct(index), arguments, results })
    }

    fn argument(&mut self, argument: &Passing, param: &Param) -> Decoded<Passed> {
        match (argument, param.register) {
            (Passing::Value(value), Some(to)) => {
                Ok(Passed::Register { from: self.src(value, param.ty)?, to })
            }
            (Passing::Bytes { offset, bytes }, None) => {
                Ok(Passed::Bytes { from: *offset, to: param.offset, bytes: param.bytes.min(*bytes) })
            }
            (Passing::Value(value), None) => {
                let from = self.spilled(value, param.ty, param.bytes)?;
                Ok(Passed::Bytes { from, to: param.offset, bytes: param.bytes })
            }
            (Passing::Bytes { .. }, Some(_)) => Err(because("passes memory for a register")),
        }
    }

    fn result(&mut self, result: &Passing, param: &Param) -> Decoded<Passed> {
        match (result, param.register) {
            (Passing::Value(value), Some(from)) => {
                Ok(Passed::Register { from: Src::Reg(from), to: self.dst(value)? })
            }
            (Passing::Bytes { offset, bytes }, None) => {
                Ok(Passed::Bytes { from: param.offset, to: *offset, bytes: param.bytes.min(*bytes) })
            }
            (Passing::Value(value), None) => {
                let to = self.reloaded(value, param.ty, param.bytes)?;
                Ok(Passed::Bytes { from: param.offset, to, bytes: param.bytes })
            }
            (Passing::Bytes { .. }, Some(_)) => Err(because("takes a register as memory")),
        }
    }

    /// Stores a value into the frame before the call, for a parameter in memory.
    fn spilled(&mut self, value: &Operand, ty: Type, bytes: u32) -> Decoded<u32> {
        let access = self.spill_slot(ty, bytes)?;
        let src = [self.src(value, ty)?].into_iter().collect();
        self.emit(Kind::Store { access: access.1, src });
        Ok(access.0)
    }

    /// Loads a value from the frame behind the call, for a result in memory.
    fn reloaded(&mut self, value: &Operand, ty: Type, bytes: u32) -> Decoded<u32> {
        let (offset, access) = self.spill_slot(ty, bytes)?;
        let register = self.register(value)?;
        let bits = u8::try_from(register.bits).map_err(|_| Fault::Operands)?;
        self.emit_behind(Kind::Load { access, dst: [Some(register.first)].into_iter().collect(), bits });
        Ok(offset)
    }

    fn spill_slot(&mut self, ty: Type, bytes: u32) -> Decoded<(u32, Access)> {
        if ty.bits() > 64 || bytes != ty.bits().div_ceil(8) {
            return Err(because("passes a register for an array, which is not supported"));
        }
        let offset = self.temporary(bytes).ok_or_else(|| because("needs too large a frame"))?;
        let strength = Strength { order: Order::Weak, scope: Scope::Cta };
        let address = Address { base: Src::Frame(offset), offset: 0 };
        Ok((offset, Access { space: Space::Local, address, ty, count: 1, strength }))
    }

    /// A call through a register: parameters go by position, as the prototype or the possible targets say.
    fn indirect(
        &mut self,
        target: &Operand,
        arguments: &[Passing],
        results: &[Passing],
        prototype: Option<&Operand>,
    ) -> Decoded<Kind> {
        let address = self.src(target, Type::U64)?;
        let table =
            prototype.map(|prototype| self.label(prototype)).transpose()?.and_then(|label| label.table);
        let (params, returns): (&[Variable], &[Variable]) = match table {
            Some(Table::Prototype { params, returns }) => (params, returns),
            Some(Table::Calls(functions)) => {
                let first = functions.iter().find_map(|name| self.layout.index.get(name));
                let first = first.ok_or_else(|| because("has no target that is defined"))?;
                let function = self.layout.functions[*first as usize];
                (&function.params, &function.returns)
            }
            _ => return Err(because("expects the label of a `.callprototype` or `.calltargets`")),
        };
        if arguments.len() != params.len() || results.len() > returns.len() {
            return Err(because("passes more or fewer parameters than its prototype has"));
        }
        let size = |variable: &Variable| {
            let bytes = variable.bytes().and_then(|bytes| u32::try_from(bytes).ok());
            bytes.ok_or_else(|| because("has a prototype with a parameter of unknown size"))
        };
        let mut given = Vec::new();
        for (argument, param) in arguments.iter().zip(params) {
            let bytes = size(param)?;
            given.push(match argument {
                Passing::Bytes { offset, bytes: found } => (*offset, bytes.min(*found)),
                Passing::Value(value) => (self.spilled(value, param.ty, bytes)?, bytes),
            });
        }
        let mut taken = Vec::new();
        for (result, param) in results.iter().zip(returns) {
            let bytes = size(param)?;
            taken.push(match result {
                Passing::Bytes { offset, bytes: found } => (*offset, bytes.min(*found)),
                Passing::Value(value) => (self.reloaded(value, param.ty, bytes)?, bytes),
            });
        }
        let callee = Callee::Indirect { address, arguments: given, results: taken };
        Ok(Kind::Call { callee, arguments: Vec::new(), results: Vec::new() })
    }

    /// The functions that the driver provides.
    fn system(&mut self, name: Symbol, arguments: &[Passing], results: &[Passing]) -> Decoded<Kind> {
        let text = self.layout.names.text(name);
        let offset = |passing: &Passing| match passing {
            Passing::Bytes { offset, .. } => Some(*offset),
            Passing::Value(_) => None,
        };
        let given: Option<Vec<u32>> = arguments.iter().map(offset).collect();
        let taken: Option<Vec<u32>> = results.iter().map(offset).collect();
        let callee = match (text, given.as_deref(), taken.as_deref()) {
            ("vprintf", Some(&[format, arguments]), Some(results)) => {
                Callee::Printf { format, arguments, result: results.first().copied() }
            }
            ("__assertfail", Some(&[message, file, line, function, ..]), _) => {
                Callee::AssertFail([message, file, line, function])
            }
            ("malloc", Some(&[size]), Some(&[result])) => Callee::Malloc(size, result),
            ("free", Some(&[address]), _) => Callee::Free(address),
            _ => return Err(Fault::Because(format!("of undefined function `{text}`"))),
        };
        Ok(Kind::Call { callee, arguments: Vec::new(), results: Vec::new() })
    }
}
