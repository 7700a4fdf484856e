//! The text form, written.
//!
//! ```text
//! func @name threads(128,1,1) (%x: ptr<global> align(16), %n: u32) {
//!   %0 = special reg(tid.x) : u32
//!   %1, %2 = for %lo, %hi, %step, %a, %b : f32, u32 do {
//!     (%3: u32, %4: f32, %5: u32)
//!     yield %4, %5
//!   }
//! }
//! ```
//!
//! An op is `results = mnemonic operands attributes : result types regions`; a region starts with its arguments if it has any, and an
//! empty `yield` at its end is left out. Values are numbered in the order of their definition, parameters keep their names.

use std::fmt::{self, Write};

use crate::Element;
use crate::attr::{AttrKind, Constant};
use crate::func::{Func, Launch, Module, Op, Region, Value};
use crate::loc::Loc;
use crate::table::Opcode;
use crate::types::Type;

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrintOptions {
    /// Write `loc(...)` after each op. Without, the text is the same for the same code wherever it was written: the form to hash.
    pub locations: bool,
}

impl Module {
    /// The text of all functions.
    #[must_use]
    pub fn to_text(&self, options: PrintOptions) -> String {
        let mut out = String::new();
        for (i, func) in self.funcs.iter().enumerate() {
            if i > 0 {
                out.push('\n');
            }
            out.push_str(&func.to_text(options));
        }
        out
    }
}

impl Func {
    /// The text of the function.
    #[must_use]
    pub fn to_text(&self, options: PrintOptions) -> String {
        let mut printer = Printer {
            func: self,
            options,
            names: vec![None; self.value_count()],
            next: 0,
            out: String::new(),
        };
        // Writing to a string does not fail.
        let _ = printer.func();
        printer.out
    }
}

impl fmt::Display for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(PrintOptions { locations: false }))
    }
}

/// Prints with locations if there are any, so that nothing is lost.
impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(PrintOptions { locations: true }))
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([x, y, z]) = self.threads {
            write!(f, "threads({x},{y},{z}) ")?;
        }
        if let Some(n) = self.min_blocks {
            write!(f, "min_blocks({n}) ")?;
        }
        if let Some([x, y, z]) = self.cluster {
            write!(f, "cluster({x},{y},{z}) ")?;
        }
        if let Some(n) = self.max_registers {
            write!(f, "registers({n}) ")?;
        }
        Ok(())
    }
}

/// A constant as text: decimal where that is exact, the bits otherwise.
pub(crate) fn constant_text(ty: Type, bits: u64) -> String {
    match ty {
        Type::Scalar(Element::F32) => {
            let value = f32::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap_or(0));
            if value.is_finite() { format!("{value:?}") } else { format!("{bits:#x}") }
        }
        Type::Scalar(Element::F64) => {
            let value = f64::from_bits(bits);
            if value.is_finite() { format!("{value:?}") } else { format!("{bits:#x}") }
        }
        Type::Scalar(element) if element.is_int() && element.is_signed() => bits.cast_signed().to_string(),
        Type::Scalar(element) if element.is_int() || element.is_bool() => bits.to_string(),
        _ => format!("{bits:#x}"),
    }
}

struct Printer<'a> {
    func: &'a Func,
    options: PrintOptions,
    names: Vec<Option<u32>>,
    next: u32,
    out: String,
}

impl Printer<'_> {
    fn func(&mut self) -> fmt::Result {
        let func = self.func;
        write!(self.out, "func @{} {}(", func.name, func.launch)?;
        for (i, (param, &value)) in func.params.iter().zip(&func.region(func.body()).args).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(self.out, "{comma}%{}: {}", param.name, func.ty(value))?;
            if param.align > 0 {
                write!(self.out, " align({})", param.align)?;
            }
        }
        self.out.push(')');
        if !func.results.is_empty() {
            let types: Vec<String> = func.results.iter().map(Type::to_string).collect();
            write!(self.out, " -> {}", types.join(", "))?;
        }
        self.out.push_str(" {\n");
        self.ops(func.body(), 1)?;
        self.out.push_str("}\n");
        Ok(())
    }

    fn ops(&mut self, region: Region, depth: usize) -> fmt::Result {
        let func = self.func;
        for &op in &func.region(region).ops {
            let data = func.op(op);
            let silent = !self.options.locations || func.locations.get(data.loc).is_none();
            if data.code == Opcode::Yield && data.operands.is_empty() && silent {
                continue;
            }
            self.op(op, depth)?;
        }
        Ok(())
    }

    fn op(&mut self, op: Op, depth: usize) -> fmt::Result {
        let data = self.func.op(op);
        self.indent(depth);
        for (i, &result) in data.results.iter().enumerate() {
            self.names[result.index()] = Some(self.next);
            write!(self.out, "{}%{}", if i > 0 { ", " } else { "" }, self.next)?;
            self.next += 1;
        }
        if !data.results.is_empty() {
            self.out.push_str(" = ");
        }
        self.out.push_str(data.info().mnemonic);
        for (i, &operand) in data.operands.iter().enumerate() {
            self.out.push_str(if i > 0 { ", " } else { " " });
            self.value(operand)?;
        }
        for attr in &data.attrs {
            match (attr.kind, data.get::<Constant>(), data.results.first()) {
                (AttrKind::Value, Some(Constant(bits)), Some(&result)) => {
                    write!(self.out, " value({})", constant_text(self.func.ty(result), bits))?;
                }
                _ => write!(self.out, " {attr}")?,
            }
        }
        for (i, &result) in data.results.iter().enumerate() {
            write!(self.out, "{}{}", if i > 0 { ", " } else { " : " }, self.func.ty(result))?;
        }
        if self.options.locations {
            self.loc(data.loc)?;
        }
        for (name, &region) in data.info().regions.iter().zip(&data.regions) {
            self.region(name, region, depth)?;
        }
        self.out.push('\n');
        Ok(())
    }

    fn region(&mut self, name: &str, region: Region, depth: usize) -> fmt::Result {
        write!(self.out, " {name} {{")?;
        let args = &self.func.region(region).args;
        if !args.is_empty() {
            self.out.push('\n');
            self.indent(depth + 1);
            self.out.push('(');
            for (i, &arg) in args.iter().enumerate() {
                self.names[arg.index()] = Some(self.next);
                let comma = if i > 0 { ", " } else { "" };
                write!(self.out, "{comma}%{}: {}", self.next, self.func.ty(arg))?;
                self.next += 1;
            }
            self.out.push(')');
        }
        self.out.push('\n');
        self.ops(region, depth + 1)?;
        self.indent(depth);
        self.out.push('}');
        Ok(())
    }

    fn value(&mut self, value: Value) -> fmt::Result {
        let func = self.func;
        if let Some(name) = self.names[value.index()] {
            return write!(self.out, "%{name}");
        }
        match func.region(func.body()).args.iter().position(|&arg| arg == value) {
            Some(i) => write!(self.out, "%{}", func.params[i].name),
            // Not defined before its use: the verifier reports it, and the text shows it.
            None => write!(self.out, "%undefined{}", value.0),
        }
    }

    fn loc(&mut self, loc: Loc) -> fmt::Result {
        let locations = &self.func.locations;
        let Some(at) = locations.get(loc) else { return Ok(()) };
        write!(self.out, " loc({:?}:{}:{}", at.file, at.line, at.column)?;
        for (name, call) in locations.chain(loc) {
            write!(self.out, " in {name:?}")?;
            if let Some(call) = call {
                write!(self.out, " at {:?}:{}:{}", call.file, call.line, call.column)?;
            }
        }
        self.out.push(')');
        Ok(())
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.out.push_str("  ");
        }
    }
}
