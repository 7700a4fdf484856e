//! Every symbol of a tree, in the order of the text; and equality of modules, which rests on it.

use crate::ast::{
    Function, Initializer, Instruction, Item, Location, Module, Names, Operand, Statement, StatementKind,
    Symbol, Variable,
};

impl Module {
    /// Calls `f` with every use of a symbol, in the order of the text. Declarations `%r<8>` name their prefix only.
    pub fn for_each_symbol(&mut self, mut f: impl FnMut(&mut Symbol)) {
        items(&mut self.items, &mut f);
    }

    /// The same module with its symbols numbered in the order in which they appear, and without unused names.
    #[must_use]
    pub fn renumbered(&self) -> Module {
        let mut module = self.clone();
        let old = std::mem::take(&mut module.names);
        let mut names = Names::default();
        let mut new = vec![None; old.len()];
        module.for_each_symbol(|symbol| match new.get_mut(symbol.0 as usize) {
            Some(slot) => *symbol = *slot.get_or_insert_with(|| names.intern(old.text(*symbol))),
            None => *symbol = names.intern(old.text(*symbol)),
        });
        module.names = names;
        module
    }
}

/// Equal text of names, equal structure; lines and the numbering of symbols do not count.
impl PartialEq for Module {
    fn eq(&self, other: &Module) -> bool {
        let head = |module: &Module| (module.version, module.target, module.address_size);
        if head(self) != head(other) || self.options != other.options || self.items.len() != other.items.len()
        {
            return false;
        }
        let (a, b) = (self.renumbered(), other.renumbered());
        a.names.texts == b.names.texts && a.items == b.items
    }
}

fn items(items: &mut [Item], f: &mut impl FnMut(&mut Symbol)) {
    for item in items {
        match item {
            Item::Variable(declared) => variable(declared, f),
            Item::Function(defined) => function(defined, f),
            Item::Alias { alias, aliasee } => {
                f(alias);
                f(aliasee);
            }
            Item::File { .. } | Item::Section { .. } | Item::Pragma(_) => {}
        }
    }
}

fn variable(declared: &mut Variable, f: &mut impl FnMut(&mut Symbol)) {
    f(&mut declared.name);
    if let Some(value) = &mut declared.initializer {
        initializer(value, f);
    }
}

fn initializer(value: &mut Initializer, f: &mut impl FnMut(&mut Symbol)) {
    match value {
        Initializer::Value(_) => {}
        Initializer::Address { symbol, .. } => f(symbol),
        Initializer::List(list) => list.iter_mut().for_each(|value| initializer(value, f)),
    }
}

fn function(defined: &mut Function, f: &mut impl FnMut(&mut Symbol)) {
    defined.returns.iter_mut().for_each(|param| variable(param, f));
    f(&mut defined.name);
    defined.params.iter_mut().for_each(|param| variable(param, f));
    statements(defined.body.as_deref_mut().unwrap_or_default(), f);
}

fn statements(body: &mut [Statement], f: &mut impl FnMut(&mut Symbol)) {
    for statement in body {
        match &mut statement.kind {
            StatementKind::Label(name) => f(name),
            StatementKind::Registers(registers) => {
                registers.names.iter_mut().for_each(|register| f(&mut register.name));
            }
            StatementKind::Variable(declared) => variable(declared, f),
            StatementKind::Block(inner) => statements(inner, f),
            StatementKind::Location(Location { inlined, .. }) => {
                if let Some(inlined) = inlined {
                    f(&mut inlined.function);
                }
            }
            StatementKind::Pragma(_) => {}
            StatementKind::BranchTargets(names) | StatementKind::CallTargets(names) => {
                names.iter_mut().for_each(&mut *f);
            }
            StatementKind::CallPrototype { returns, params, .. } => {
                returns.iter_mut().chain(params).for_each(|param| variable(param, f));
            }
            StatementKind::Instruction(Instruction { guard, operands, .. }) => {
                if let Some(guard) = guard {
                    f(&mut guard.register);
                }
                operands.iter_mut().for_each(|part| operand(part, f));
            }
        }
    }
}

fn operand(part: &mut Operand, f: &mut impl FnMut(&mut Symbol)) {
    match part {
        Operand::Symbol(symbol)
        | Operand::Element(symbol, _)
        | Operand::Offset(symbol, _)
        | Operand::Not(symbol) => f(symbol),
        Operand::Special(_) | Operand::Immediate(_) | Operand::Sink => {}
        Operand::Address(address) => address.base.iter_mut().for_each(f),
        Operand::Tuple(parts) | Operand::List(parts) | Operand::Group(parts) => {
            parts.iter_mut().for_each(|part| operand(part, f));
        }
        Operand::Pair(first, second) => first.iter_mut().chain(second).for_each(f),
    }
}
