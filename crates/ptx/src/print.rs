//! The tree as text: one statement a line, tabs for nesting, labels one step to the left.
//!
//! The text is canonical: equal modules print equally, whatever the text they were read from looked like. It is written
//! into one string; nothing is allocated for a word.

use std::fmt::{self, Write as _};

use crate::ast::{
    Address, Attribute, Component, Directive, Function, FunctionKind, Immediate, Initializer, Instruction,
    Item, Line, Linkage, Location, Module, Names, Operand, Registers, Space, Statement, StatementKind,
    Symbol, Variable, VectorLength,
};
use crate::words::{Modifier, Shape};

/// A module as text, with the line of every statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// The text.
    pub text: String,
    /// The line, from 1, of each statement in the order of [`Module::statements`]; a block has the line of its `{`.
    pub lines: Vec<u32>,
}

impl Printed {
    /// The index, in [`Module::statements`], of the statement on a line.
    ///
    /// ```
    /// use tilewright_ptx::{Opcode, StatementKind, parse};
    /// let module = parse(".version 7.0 .target sm_80 .entry k() { trap; exit; }")?;
    /// let printed = module.print();
    /// let line = printed.text.lines().position(|line| line.contains("exit")).unwrap_or_default() + 1;
    /// let index = printed.statement_at(line as u32).ok_or("no statement")?;
    /// let statement = module.statements().nth(index).ok_or("no statement")?;
    /// assert!(matches!(&statement.kind, StatementKind::Instruction(i) if i.opcode == Opcode::Exit));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn statement_at(&self, line: u32) -> Option<usize> {
        self.lines.binary_search(&line).ok()
    }
}

impl Module {
    /// The text, and where in it each statement stands.
    pub fn print(&self) -> Printed {
        let mut printer = Printer::new(&self.names);
        printer.module(self);
        Printed { text: printer.out, lines: printer.lines }
    }

    /// Sets the line of every statement, function and variable to its line in the printed text.
    pub fn number_lines(&mut self) {
        let mut printer = Printer::new(&self.names);
        printer.module(self);
        let Printer { lines, item_lines, .. } = printer;
        let mut lines = lines.into_iter().map(Line);
        for (item, line) in self.items.iter_mut().zip(item_lines) {
            match item {
                Item::Variable(variable) => variable.line = Line(line),
                Item::Function(function) => {
                    function.line = Line(line);
                    number(function.body.as_deref_mut().unwrap_or_default(), &mut lines);
                }
                _ => {}
            }
        }
    }

    /// All statements of all functions; the statements of a block follow the block.
    pub fn statements(&self) -> impl Iterator<Item = &Statement> {
        let mut stack: Vec<std::slice::Iter<'_, Statement>> = Vec::new();
        let bodies = self.items.iter().rev().filter_map(|item| match item {
            Item::Function(function) => function.body.as_deref(),
            _ => None,
        });
        stack.extend(bodies.map(<[Statement]>::iter));
        std::iter::from_fn(move || {
            while let Some(top) = stack.last_mut() {
                let Some(statement) = top.next() else {
                    stack.pop();
                    continue;
                };
                if let StatementKind::Block(inner) = &statement.kind {
                    stack.push(inner.iter());
                }
                return Some(statement);
            }
            None
        })
    }
}

fn number(statements: &mut [Statement], lines: &mut impl Iterator<Item = Line>) {
    for statement in statements {
        statement.line = lines.next().unwrap_or_default();
        match &mut statement.kind {
            StatementKind::Block(inner) => number(inner, lines),
            StatementKind::Variable(variable) => variable.line = statement.line,
            _ => {}
        }
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.print().text)
    }
}

impl Instruction {
    /// The instruction as text, with its semicolon.
    pub fn display<'a>(&'a self, names: &'a Names) -> impl fmt::Display + 'a {
        struct Shown<'a>(&'a Instruction, &'a Names);
        impl fmt::Display for Shown<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut printer = Printer::new(self.1);
                printer.instruction(self.0);
                f.write_str(&printer.out)
            }
        }
        Shown(self, names)
    }
}

struct Printer<'a> {
    names: &'a Names,
    out: String,
    /// Tabs before a statement.
    depth: usize,
    /// The line that is being written.
    line: u32,
    lines: Vec<u32>,
    item_lines: Vec<u32>,
}

impl<'a> Printer<'a> {
    fn new(names: &'a Names) -> Printer<'a> {
        Printer { names, out: String::new(), depth: 0, line: 1, lines: Vec::new(), item_lines: Vec::new() }
    }

    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Formatting into a string cannot fail.
    fn value(&mut self, value: impl fmt::Display) {
        let _ = write!(self.out, "{value}");
    }

    fn symbol(&mut self, symbol: Symbol) {
        self.out.push_str(self.names.text(symbol));
    }

    fn newline(&mut self) {
        self.out.push('\n');
        self.line += 1;
    }

    fn indent(&mut self) {
        for _ in 0..self.depth {
            self.out.push('\t');
        }
    }

    fn separated<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.text(", ");
            }
            each(self, item);
        }
    }

    fn module(&mut self, module: &Module) {
        // A line of a kernel is rarely longer than this; a wrong guess costs one more copy of the text.
        self.out.reserve(32 * module.statements().count());
        self.text(".version ");
        self.value(module.version);
        self.newline();
        self.text(".target ");
        self.value(module.target);
        for option in &module.options {
            self.text(", ");
            self.text(option.text());
        }
        self.newline();
        self.text(".address_size ");
        self.value(module.address_size);
        self.newline();
        for item in &module.items {
            if matches!(item, Item::Function(_)) {
                self.newline();
            }
            self.item_lines.push(self.line);
            self.item(item);
            self.newline();
        }
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Variable(variable) => {
                self.variable(variable);
                self.text(";");
            }
            Item::Function(function) => self.function(function),
            Item::File { index, path, stamp } => {
                self.text(".file ");
                self.value(index);
                self.text(" \"");
                self.text(path);
                self.text("\"");
                if let Some((time, size)) = stamp {
                    self.value(format_args!(", {time}, {size}"));
                }
            }
            Item::Section { name, text } => {
                self.text(".section ");
                self.text(name);
                self.newline();
                self.text("{");
                self.text(text);
                self.text("}");
                self.line += u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX);
            }
            Item::Pragma(strings) => self.pragma(strings),
            Item::Alias { alias, aliasee } => {
                self.text(".alias ");
                self.symbol(*alias);
                self.text(", ");
                self.symbol(*aliasee);
                self.text(";");
            }
        }
    }

    fn pragma(&mut self, strings: &[String]) {
        self.text(".pragma ");
        self.separated(strings, |printer, string| {
            printer.text("\"");
            printer.text(string);
            printer.text("\"");
        });
        self.text(";");
    }

    fn linkage(&mut self, linkage: Option<Linkage>) {
        self.text(match linkage {
            None => "",
            Some(Linkage::Visible) => ".visible ",
            Some(Linkage::Extern) => ".extern ",
            Some(Linkage::Weak) => ".weak ",
            Some(Linkage::Common) => ".common ",
        });
    }

    fn space(&mut self, space: Space) {
        self.text(match space {
            Space::Reg => ".reg",
            Space::Const => ".const",
            Space::Global => ".global",
            Space::Local => ".local",
            Space::Param => ".param",
            Space::Shared => ".shared",
            Space::Tex => ".tex",
        });
    }

    fn vector(&mut self, vector: Option<VectorLength>) {
        self.text(match vector {
            None => "",
            Some(VectorLength::V2) => " .v2",
            Some(VectorLength::V4) => " .v4",
        });
    }

    fn variable(&mut self, variable: &Variable) {
        self.linkage(variable.linkage);
        self.space(variable.space);
        for attribute in &variable.attributes {
            match attribute {
                Attribute::Managed => self.text(" .attribute(.managed)"),
                Attribute::Unified(high, low) => {
                    self.value(format_args!(" .attribute(.unified({high}, {low}))"));
                }
            }
        }
        if let Some(align) = variable.align {
            self.value(format_args!(" .align {align}"));
        }
        self.vector(variable.vector);
        self.text(" .");
        self.text(variable.ty.text());
        if let Some(pointer) = variable.pointer {
            self.text(" .ptr");
            if let Some(space) = pointer.space {
                self.text(" ");
                self.space(space);
            }
            if let Some(align) = pointer.align {
                self.value(format_args!(" .align {align}"));
            }
        }
        self.text(" ");
        self.symbol(variable.name);
        for extent in &variable.dims {
            self.text("[");
            if let Some(extent) = extent {
                self.value(extent);
            }
            self.text("]");
        }
        if let Some(initializer) = &variable.initializer {
            self.text(" = ");
            self.initializer(initializer);
        }
    }

    fn initializer(&mut self, initializer: &Initializer) {
        match initializer {
            Initializer::Value(value) => self.immediate(*value),
            Initializer::Address { generic, mask, symbol, offset } => {
                if let Some(mask) = mask {
                    self.value(format_args!("{mask}("));
                }
                self.text(if *generic { "generic(" } else { "" });
                self.symbol(*symbol);
                self.text(if *generic { ")" } else { "" });
                self.offset(*offset);
                self.text(if mask.is_some() { ")" } else { "" });
            }
            Initializer::List(list) => {
                self.text("{");
                self.separated(list, Printer::initializer);
                self.text("}");
            }
        }
    }

    fn function(&mut self, function: &Function) {
        self.linkage(function.linkage);
        match function.kind {
            FunctionKind::Entry => self.text(".entry "),
            FunctionKind::Func => {
                self.text(".func ");
                if !function.returns.is_empty() {
                    self.text("(");
                    self.separated(&function.returns, Printer::variable);
                    self.text(") ");
                }
            }
        }
        self.symbol(function.name);
        self.text("(");
        for (i, param) in function.params.iter().enumerate() {
            self.text(if i > 0 { "," } else { "" });
            self.newline();
            self.text("\t");
            self.variable(param);
        }
        if !function.params.is_empty() {
            self.newline();
        }
        self.text(")");
        for directive in &function.directives {
            self.newline();
            self.directive(directive);
        }
        let Some(body) = &function.body else {
            self.text(if function.directives.is_empty() { ";" } else { "\n;" });
            self.line += u32::from(!function.directives.is_empty());
            return;
        };
        self.newline();
        self.block(body);
    }

    fn directive(&mut self, directive: &Directive) {
        match directive {
            Directive::MaxThreads([x, y, z]) => self.value(format_args!(".maxntid {x}, {y}, {z}")),
            Directive::RequiredThreads([x, y, z]) => self.value(format_args!(".reqntid {x}, {y}, {z}")),
            Directive::MinBlocks(n) => self.value(format_args!(".minnctapersm {n}")),
            Directive::MaxBlocks(n) => self.value(format_args!(".maxnctapersm {n}")),
            Directive::MaxRegisters(n) => self.value(format_args!(".maxnreg {n}")),
            Directive::RequiredCluster([x, y, z]) => {
                self.value(format_args!(".reqnctapercluster {x}, {y}, {z}"));
            }
            Directive::ExplicitCluster => self.text(".explicitcluster"),
            Directive::MaxClusterRank(n) => self.value(format_args!(".maxclusterrank {n}")),
            Directive::BlocksAreClusters => self.text(".blocksareclusters"),
            Directive::NoReturn => self.text(".noreturn"),
            Directive::AbiPreserve(n) => self.value(format_args!(".abi_preserve {n}")),
            Directive::AbiPreserveControl(n) => self.value(format_args!(".abi_preserve_control {n}")),
            Directive::Pragma(strings) => self.pragma(strings),
        }
    }

    /// `{`, the statements one step deeper, `}`.
    fn block(&mut self, statements: &[Statement]) {
        self.text("{");
        self.newline();
        self.depth += 1;
        for statement in statements {
            self.lines.push(self.line);
            if matches!(statement.kind, StatementKind::Label(_)) {
                self.depth -= 1;
                self.indent();
                self.depth += 1;
            } else {
                self.indent();
            }
            self.statement(&statement.kind);
            self.newline();
        }
        self.depth -= 1;
        self.indent();
        self.text("}");
    }

    fn statement(&mut self, statement: &StatementKind) {
        match statement {
            StatementKind::Label(name) => {
                self.symbol(*name);
                self.text(":");
            }
            StatementKind::Registers(registers) => self.registers(registers),
            StatementKind::Variable(variable) => {
                self.variable(variable);
                self.text(";");
            }
            StatementKind::Block(statements) => self.block(statements),
            StatementKind::Location(location) => self.location(location),
            StatementKind::Pragma(strings) => self.pragma(strings),
            StatementKind::BranchTargets(labels) => {
                self.text(".branchtargets ");
                self.separated(labels, |printer, label| printer.symbol(*label));
                self.text(";");
            }
            StatementKind::CallTargets(functions) => {
                self.text(".calltargets ");
                self.separated(functions, |printer, function| printer.symbol(*function));
                self.text(";");
            }
            StatementKind::CallPrototype { returns, params, directives } => {
                self.text(".callprototype ");
                if !returns.is_empty() {
                    self.text("(");
                    self.separated(returns, Printer::variable);
                    self.text(") ");
                }
                self.text("_ (");
                self.separated(params, Printer::variable);
                self.text(")");
                for directive in directives {
                    self.text(" ");
                    self.directive(directive);
                }
                self.text(";");
            }
            StatementKind::Instruction(instruction) => self.instruction(instruction),
        }
    }

    fn registers(&mut self, registers: &Registers) {
        self.text(".reg");
        self.vector(registers.vector);
        self.text(" .");
        self.text(registers.ty.text());
        self.text(" ");
        self.separated(&registers.names, |printer, register| {
            printer.symbol(register.name);
            if let Some(count) = register.count {
                printer.value(format_args!("<{count}>"));
            }
        });
        self.text(";");
    }

    fn location(&mut self, location: &Location) {
        let Location { file, line, column, inlined } = location;
        self.value(format_args!(".loc {file} {line} {column}"));
        if let Some(inlined) = inlined {
            self.text(", function_name ");
            self.symbol(inlined.function);
            if inlined.offset != 0 {
                self.value(format_args!("+{}", inlined.offset));
            }
            self.value(format_args!(", inlined_at {} {} {}", inlined.file, inlined.line, inlined.column));
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        if let Some(guard) = instruction.guard {
            self.text(if guard.negated { "@!" } else { "@" });
            self.symbol(guard.register);
            self.text(" ");
        }
        self.text(instruction.opcode.text());
        for modifier in &instruction.modifiers {
            self.text(".");
            match modifier {
                Modifier::Shape(Shape { m, n, k }) => {
                    for (letter, extent) in [("m", m), ("n", n), ("k", k)] {
                        if *extent != 0 {
                            self.text(letter);
                            self.decimal((*extent).into());
                        }
                    }
                }
                word => self.text(word.text().unwrap_or_default()),
            }
        }
        if !instruction.operands.is_empty() {
            self.text(" ");
            self.separated(&instruction.operands, Printer::operand);
        }
        self.text(";");
    }

    fn operand(&mut self, operand: &Operand) {
        match operand {
            Operand::Symbol(symbol) => self.symbol(*symbol),
            Operand::Element(symbol, component) => {
                self.symbol(*symbol);
                self.text(component.suffix());
            }
            Operand::Offset(symbol, offset) => {
                self.symbol(*symbol);
                self.text("+");
                self.integer(*offset);
            }
            Operand::Special(register) => self.text(register.text()),
            Operand::Immediate(immediate) => self.immediate(*immediate),
            Operand::Address(Address { base, offset }) => {
                self.text("[");
                match base {
                    Some(base) => {
                        self.symbol(*base);
                        self.offset(*offset);
                    }
                    None => self.integer(*offset),
                }
                self.text("]");
            }
            Operand::Tuple(parts) => {
                self.text("[");
                self.separated(parts, Printer::operand);
                self.text("]");
            }
            Operand::List(parts) => {
                self.text("{");
                self.separated(parts, Printer::operand);
                self.text("}");
            }
            Operand::Not(symbol) => {
                self.text("!");
                self.symbol(*symbol);
            }
            Operand::Pair(first, second) => {
                self.symbol_or_sink(*first);
                self.text("|");
                self.symbol_or_sink(*second);
            }
            Operand::Sink => self.text("_"),
            Operand::Group(parts) => {
                self.text("(");
                self.separated(parts, Printer::operand);
                self.text(")");
            }
        }
    }

    fn symbol_or_sink(&mut self, symbol: Option<Symbol>) {
        match symbol {
            Some(symbol) => self.symbol(symbol),
            None => self.text("_"),
        }
    }

    // Numbers are a good part of a kernel, and the machinery of `fmt` takes several times as long as these.

    fn integer(&mut self, value: i64) {
        if value < 0 {
            self.text("-");
        }
        self.decimal(value.unsigned_abs());
    }

    fn decimal(&mut self, value: u64) {
        let mut digits = 1;
        let mut power = 1u64;
        while value / power >= 10 {
            power *= 10;
            digits += 1;
        }
        let mut rest = value;
        for _ in 0..digits {
            self.digit(rest / power);
            rest %= power;
            power = (power / 10).max(1);
        }
    }

    fn hexadecimal(&mut self, bits: u64, digits: u32) {
        for place in (0..digits).rev() {
            self.digit(bits >> (4 * place) & 15);
        }
    }

    fn digit(&mut self, digit: u64) {
        self.out.push(char::from(b"0123456789ABCDEF"[(digit & 15) as usize]));
    }

    fn offset(&mut self, offset: i64) {
        if offset != 0 {
            self.text("+");
            self.integer(offset);
        }
    }

    fn immediate(&mut self, immediate: Immediate) {
        match immediate {
            Immediate::Int(value) => self.integer(value),
            Immediate::Unsigned(value) => {
                self.decimal(value);
                self.text("U");
            }
            Immediate::F32(bits) => {
                self.text("0f");
                self.hexadecimal(bits.into(), 8);
            }
            Immediate::F64(bits) => {
                self.text("0d");
                self.hexadecimal(bits, 16);
            }
            Immediate::WarpSize => self.text("WARP_SZ"),
        }
    }
}

impl Component {
    const TABLE: [(Component, &'static str); 14] = [
        (Component::X, ".x"),
        (Component::Y, ".y"),
        (Component::Z, ".z"),
        (Component::W, ".w"),
        (Component::R, ".r"),
        (Component::G, ".g"),
        (Component::B, ".b"),
        (Component::A, ".a"),
        (Component::B0, ".b0"),
        (Component::B1, ".b1"),
        (Component::B2, ".b2"),
        (Component::B3, ".b3"),
        (Component::H0, ".h0"),
        (Component::H1, ".h1"),
    ];

    fn suffix(self) -> &'static str {
        Component::TABLE.iter().find(|(component, _)| *component == self).map_or("", |(_, text)| text)
    }

    /// The component with this spelling, given without its dot.
    pub fn from_text(text: &str) -> Option<Component> {
        let found = Component::TABLE.iter().find(|(_, suffix)| suffix.strip_prefix('.') == Some(text));
        found.map(|(component, _)| *component)
    }
}
