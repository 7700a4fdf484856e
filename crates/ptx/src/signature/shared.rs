//! How much shared memory a kernel declares, and whether it uses memory whose size the launch decides.

use std::collections::{HashMap, HashSet};

use crate::ast::{
    Function, Initializer, Instruction, Item, Module, Operand, Space, Statement, StatementKind, Symbol,
    Variable,
};
use crate::words::Opcode;

/// The shared memory of a kernel.
pub(super) struct Shared {
    pub(super) bytes: u32,
    pub(super) dynamic: bool,
}

/// The shared variables that the kernel or what it may call refers to, laid out in the order of the text.
pub(super) fn of(module: &Module, kernel: &Function) -> Shared {
    let mut reach = Reach::new(module);
    reach.body(kernel);
    while let Some(function) = reach.pending.pop() {
        reach.body(function);
    }
    let (mut bytes, mut dynamic) = (0u64, false);
    for variable in reach.variables.iter().filter(|variable| reach.seen.contains(&variable.name)) {
        match variable.bytes() {
            None | Some(0) => dynamic = true,
            Some(size) => {
                let natural = variable.ty.bits().div_ceil(8);
                let align = u64::from(variable.align.unwrap_or(natural).max(1));
                bytes = bytes.next_multiple_of(align).saturating_add(size).min(u64::from(u32::MAX));
            }
        }
    }
    Shared { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), dynamic }
}

/// What can be reached from a kernel by name.
struct Reach<'m> {
    functions: HashMap<Symbol, &'m Function>,
    initializers: HashMap<Symbol, &'m Initializer>,
    aliases: HashMap<Symbol, Symbol>,
    /// Shared variables of the module and of the bodies seen so far.
    variables: Vec<&'m Variable>,
    seen: HashSet<Symbol>,
    pending: Vec<&'m Function>,
}

impl<'m> Reach<'m> {
    fn new(module: &'m Module) -> Reach<'m> {
        let mut reach = Reach {
            functions: HashMap::new(),
            initializers: HashMap::new(),
            aliases: HashMap::new(),
            variables: Vec::new(),
            seen: HashSet::new(),
            pending: Vec::new(),
        };
        for item in &module.items {
            match item {
                // A declaration must not hide the definition.
                Item::Function(function) if function.body.is_some() => {
                    reach.functions.insert(function.name, function);
                }
                Item::Function(function) => {
                    reach.functions.entry(function.name).or_insert(function);
                }
                Item::Variable(variable) => {
                    if variable.space == Space::Shared {
                        reach.variables.push(variable);
                    }
                    if let Some(value) = &variable.initializer {
                        reach.initializers.insert(variable.name, value);
                    }
                }
                Item::Alias { alias, aliasee } => {
                    reach.aliases.insert(*alias, *aliasee);
                }
                Item::File { .. } | Item::Section { .. } | Item::Pragma(_) => {}
            }
        }
        reach
    }

    fn body(&mut self, function: &'m Function) {
        self.statements(function.body.as_deref().unwrap_or_default());
    }

    fn statements(&mut self, statements: &'m [Statement]) {
        for statement in statements {
            match &statement.kind {
                StatementKind::Block(inner) => self.statements(inner),
                StatementKind::Variable(variable) if variable.space == Space::Shared => {
                    self.variables.push(variable);
                }
                StatementKind::Instruction(instruction) => self.instruction(instruction),
                _ => {}
            }
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        instruction.operands.iter().for_each(|operand| self.operand(operand));
        let callee = instruction.operands.iter().find(|operand| !matches!(operand, Operand::Group(_)));
        if let (Opcode::Call, Some(Operand::Symbol(callee))) = (instruction.opcode, callee)
            && !self.functions.contains_key(callee)
            && !self.aliases.contains_key(callee)
        {
            // Called through a register: it can be any function.
            let all: Vec<Symbol> = self.functions.keys().copied().collect();
            all.into_iter().for_each(|name| self.symbol(name));
        }
    }

    fn operand(&mut self, operand: &Operand) {
        match operand {
            Operand::Symbol(symbol)
            | Operand::Element(symbol, _)
            | Operand::Offset(symbol, _)
            | Operand::Not(symbol) => self.symbol(*symbol),
            Operand::Address(address) => address.base.iter().for_each(|symbol| self.symbol(*symbol)),
            Operand::Tuple(parts) | Operand::List(parts) | Operand::Group(parts) => {
                parts.iter().for_each(|part| self.operand(part));
            }
            Operand::Special(_) | Operand::Immediate(_) | Operand::Sink | Operand::Pair(..) => {}
        }
    }

    fn symbol(&mut self, symbol: Symbol) {
        if !self.seen.insert(symbol) {
            return;
        }
        if let Some(function) = self.functions.get(&symbol) {
            self.pending.push(function);
        }
        if let Some(aliasee) = self.aliases.get(&symbol) {
            self.symbol(*aliasee);
        }
        if let Some(value) = self.initializers.get(&symbol) {
            self.initializer(value);
        }
    }

    fn initializer(&mut self, value: &Initializer) {
        match value {
            Initializer::Value(_) => {}
            Initializer::Address { symbol, .. } => self.symbol(*symbol),
            Initializer::List(list) => list.iter().for_each(|value| self.initializer(value)),
        }
    }
}
