//! What the names in the body of a kernel stand for, block by block.

use std::collections::HashMap;

use crate::ast::{Function, Names, Registers, Symbol};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A register, numbered through the kernel.
    Register(u32),
    /// A parameter of the kernel.
    Param(u32),
    /// A variable, function or label.
    Elsewhere,
}

/// The scopes around a statement, innermost last.
pub(super) struct Scopes<'m> {
    names: &'m Names,
    scopes: Vec<Scope>,
    /// How many registers there are so far.
    pub(super) registers: u32,
}

#[derive(Default)]
struct Scope {
    named: HashMap<Symbol, Place>,
    /// `%r<8>`: prefix and count.
    counted: Vec<(Symbol, u32)>,
}

impl<'m> Scopes<'m> {
    pub(super) fn new(names: &'m Names, kernel: &Function) -> Scopes<'m> {
        let named = (0..).zip(&kernel.params).map(|(i, param)| (param.name, Place::Param(i))).collect();
        Scopes { names, scopes: vec![Scope { named, counted: Vec::new() }], registers: 0 }
    }

    pub(super) fn enter(&mut self) {
        self.scopes.push(Scope::default());
    }

    pub(super) fn leave(&mut self) {
        self.scopes.pop();
    }

    pub(super) fn declare_variable(&mut self, name: Symbol) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.named.insert(name, Place::Elsewhere);
        }
    }

    pub(super) fn declare_registers(&mut self, registers: &Registers) {
        let Some(scope) = self.scopes.last_mut() else { return };
        for register in &registers.names {
            if let Some(count) = register.count {
                scope.counted.push((register.name, count));
            } else {
                scope.named.insert(register.name, Place::Register(self.registers));
                self.registers += 1;
            }
        }
    }

    /// A name that is declared nowhere in the kernel belongs to the module.
    pub(super) fn resolve(&mut self, symbol: Symbol) -> Place {
        for scope in self.scopes.iter_mut().rev() {
            if let Some(place) = scope.named.get(&symbol) {
                return *place;
            }
            let text = self.names.text(symbol);
            let counts = |&(prefix, count): &(Symbol, u32)| {
                let number = text.strip_prefix(self.names.text(prefix)).and_then(|rest| rest.parse().ok());
                number.is_some_and(|number: u32| number < count)
            };
            if scope.counted.iter().any(counts) {
                let place = Place::Register(self.registers);
                self.registers += 1;
                scope.named.insert(symbol, place);
                return place;
            }
        }
        Place::Elsewhere
    }
}
