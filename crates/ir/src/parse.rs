//! The text form, read. The grammar is what [`print`](crate::print) writes; `;` starts a comment that ends with the line. Line
//! ends count as blanks, except that the operands of an op start on its line.

use std::collections::HashMap;

use crate::Element;
use crate::IrError;
use crate::attr::{Attr, AttrKind, AttrValue, unquote};
use crate::func::{Func, Launch, Module, Op, Region, Value};
use crate::loc::{Frame, Loc};
use crate::table::{Opcode, TABLE};
use crate::types::Type;

/// Reads a module.
///
/// # Errors
/// [`IrError`] with line and column of the first thing that is not IR. What the text means is the
/// [verifier](crate::verify)'s concern.
pub fn parse(text: &str) -> Result<Module, IrError> {
    let mut parser = Parser { text, at: 0 };
    let mut module = Module::default();
    parser.space();
    while parser.at < text.len() {
        module.funcs.push(FuncParser::new(&mut parser).func()?);
        parser.space();
    }
    Ok(module)
}

/// Characters and positions.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips blanks, line ends and comments.
    fn space(&mut self) {
        loop {
            let trimmed = self.rest().trim_start();
            self.at = self.text.len() - trimmed.len();
            if !trimmed.starts_with(';') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), IrError> {
        if self.eat(token) { Ok(()) } else { Err(self.error(&format!("`{token}`"))) }
    }

    /// Is there anything but a comment before the end of the line?
    fn on_this_line(&self) -> bool {
        let line = self.rest().lines().next().unwrap_or("").trim_start();
        !line.is_empty() && !line.starts_with(';')
    }

    fn peek(&mut self, token: &str) -> bool {
        self.space();
        self.rest().starts_with(token)
    }

    /// The longest run of characters that satisfy `inside`; `None` if empty.
    fn run(&mut self, inside: impl Fn(char) -> bool) -> Option<&'a str> {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
        self.at += end;
        (end > 0).then(|| &rest[..end])
    }

    fn word(&mut self, what: &str) -> Result<&'a str, IrError> {
        self.space();
        let start = self.at;
        self.run(|c| c.is_alphanumeric() || c == '_').ok_or_else(|| {
            self.at = start;
            self.error(what)
        })
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, IrError> {
        self.space();
        let start = self.at;
        let text = self.run(|c| c.is_ascii_digit() || c == '-').unwrap_or("");
        text.parse().map_err(|_| {
            self.at = start;
            self.error("a number")
        })
    }

    /// A string as Rust writes it, unescaped.
    fn string(&mut self) -> Result<String, IrError> {
        let start = self.at;
        let text = self.quoted()?;
        unquote(text).ok_or_else(|| {
            self.at = start;
            self.error("a string")
        })
    }

    /// A string as Rust writes it, quotes included.
    fn quoted(&mut self) -> Result<&'a str, IrError> {
        self.space();
        let rest = self.rest();
        let mut escaped = false;
        for (i, c) in rest.char_indices().skip(1) {
            match c {
                '"' if !escaped => {
                    self.at += i + 1;
                    return if rest.starts_with('"') { Ok(&rest[..=i]) } else { Err(self.error("a string")) };
                }
                _ => escaped = c == '\\' && !escaped,
            }
        }
        Err(self.error("a string"))
    }

    /// What stands between the parentheses that open here, balanced, strings respected.
    fn parenthesised(&mut self) -> Result<&'a str, IrError> {
        self.expect("(")?;
        let start = self.at;
        let mut depth = 1;
        while depth > 0 {
            let Some(c) = self.rest().chars().next() else { return Err(self.error("`)`")) };
            match c {
                '"' => {
                    self.quoted()?;
                    continue;
                }
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            self.at += c.len_utf8();
        }
        Ok(&self.text[start..self.at - 1])
    }

    fn ty(&mut self) -> Result<Type, IrError> {
        self.space();
        let start = self.at;
        let text = self.run(|c| c.is_alphanumeric() || matches!(c, '_' | '<' | '>')).unwrap_or("");
        text.parse().map_err(|_| {
            self.at = start;
            self.error("a type")
        })
    }

    fn error(&self, expected: &str) -> IrError {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        let token: String =
            self.rest().trim_start().chars().take_while(|c| !c.is_whitespace()).take(24).collect();
        IrError::Syntax {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
            found: if token.is_empty() { "the end".to_owned() } else { format!("`{token}`") },
            expected: expected.to_owned(),
        }
    }
}

struct FuncParser<'p, 'a> {
    p: &'p mut Parser<'a>,
    func: Func,
    names: HashMap<&'a str, Value>,
    frames: HashMap<(String, Loc), Frame>,
}

impl<'p, 'a> FuncParser<'p, 'a> {
    fn new(p: &'p mut Parser<'a>) -> Self {
        FuncParser { p, func: Func::new(""), names: HashMap::new(), frames: HashMap::new() }
    }

    fn func(mut self) -> Result<Func, IrError> {
        self.p.expect("func")?;
        self.p.expect("@")?;
        self.p.word("the name of a function")?.clone_into(&mut self.func.name);
        self.func.launch = self.launch()?;
        self.p.expect("(")?;
        while !self.p.eat(")") {
            self.p.expect("%")?;
            let name = self.p.word("the name of a parameter")?;
            self.p.expect(":")?;
            let ty = self.p.ty()?;
            let align = if self.p.eat("align(") {
                let n = self.p.number()?;
                self.p.expect(")")?;
                n
            } else {
                0
            };
            let value = self.func.add_param(name, ty, align);
            self.define(name, value)?;
            if !self.p.peek(")") {
                self.p.expect(",")?;
            }
        }
        if self.p.eat("->") {
            self.func.results = self.types()?;
        }
        self.p.expect("{")?;
        self.ops(self.func.body())?;
        Ok(self.func)
    }

    fn launch(&mut self) -> Result<Launch, IrError> {
        let mut launch = Launch::default();
        while !self.p.peek("(") {
            let word = self.p.word("`(`")?;
            self.p.expect("(")?;
            match word {
                "threads" => launch.threads = Some(self.three()?),
                "cluster" => launch.cluster = Some(self.three()?),
                "min_blocks" => launch.min_blocks = Some(self.p.number()?),
                "registers" => launch.max_registers = Some(self.p.number()?),
                _ => return Err(self.p.error("threads, min_blocks, cluster or registers")),
            }
            self.p.expect(")")?;
        }
        Ok(launch)
    }

    fn three(&mut self) -> Result<[u32; 3], IrError> {
        let x = self.p.number()?;
        self.p.expect(",")?;
        let y = self.p.number()?;
        self.p.expect(",")?;
        Ok([x, y, self.p.number()?])
    }

    fn types(&mut self) -> Result<Vec<Type>, IrError> {
        let mut types = vec![self.p.ty()?];
        while self.p.eat(",") {
            types.push(self.p.ty()?);
        }
        Ok(types)
    }

    fn define(&mut self, name: &'a str, value: Value) -> Result<(), IrError> {
        match self.names.insert(name, value) {
            None => Ok(()),
            Some(_) => Err(self.p.error(&format!("a name other than `%{name}`, which is taken"))),
        }
    }

    fn operand(&mut self) -> Result<Value, IrError> {
        self.p.space();
        let start = self.p.at;
        self.p.expect("%")?;
        let name = self.p.word("the name of a value")?;
        self.names.get(name).copied().ok_or_else(|| {
            self.p.at = start;
            self.p.error("a value that is defined above")
        })
    }

    /// Ops up to the closing brace.
    fn ops(&mut self, region: Region) -> Result<(), IrError> {
        while !self.p.eat("}") {
            let op = self.op()?;
            self.func.region_mut(region).ops.push(op);
        }
        // The empty `yield` is not written.
        if self.func.terminator(region).is_none() && self.func.region(region).parent.is_some() {
            let op = self.func.new_op(Opcode::Yield, [], [], [], Loc::NONE);
            self.func.region_mut(region).ops.push(op);
        }
        Ok(())
    }

    fn op(&mut self) -> Result<Op, IrError> {
        let mut results = Vec::new();
        while self.p.eat("%") {
            results.push(self.p.word("the name of a result")?);
            if !self.p.eat(",") {
                self.p.expect("=")?;
                break;
            }
        }
        self.p.space();
        let start = self.p.at;
        let mnemonic = self.p.word("an op")?;
        let Some(code) = Opcode::from_mnemonic(mnemonic) else {
            self.p.at = start;
            let close =
                TABLE.iter().map(|row| row.mnemonic).filter(|m| m.chars().next() == mnemonic.chars().next());
            return Err(self.p.error(&format!("an op; near are {}", close.collect::<Vec<_>>().join(", "))));
        };
        let mut operands = Vec::new();
        // An op without operands ends with its line: what follows on the next may be the results of another.
        while self.p.on_this_line() && self.p.peek("%") {
            operands.push(self.operand()?);
            if !self.p.eat(",") {
                break;
            }
            self.p.space();
        }
        let (attrs, constant) = self.attrs()?;
        let types = if self.p.eat(":") { self.types()? } else { Vec::new() };
        if types.len() != results.len() {
            return Err(self.p.error(&format!("{} result types, one for each result", results.len())));
        }
        let attrs = match constant {
            None => attrs,
            Some(text) => {
                let bits = types.first().and_then(|&ty| constant_bits(ty, text));
                let bits = bits.ok_or_else(|| self.p.error(&format!("a value of that type, not {text}")))?;
                vec![Attr { kind: AttrKind::Value, value: AttrValue::Word(bits) }]
            }
        };
        let loc = if self.p.eat("loc(") { self.loc()? } else { Loc::NONE };
        let op = self.func.new_op(code, operands, attrs, types, loc);
        for name in code.info().regions {
            self.p.expect(name)?;
            self.p.expect("{")?;
            self.region(op)?;
        }
        for (name, value) in results.into_iter().zip(self.func.op(op).results.clone()) {
            self.define(name, value)?;
        }
        Ok(op)
    }

    fn region(&mut self, op: Op) -> Result<(), IrError> {
        let region = self.func.new_region(op);
        if self.p.eat("(") {
            while !self.p.eat(")") {
                self.p.expect("%")?;
                let name = self.p.word("the name of an argument")?;
                self.p.expect(":")?;
                let ty = self.p.ty()?;
                let value = self.func.add_arg(region, ty);
                self.define(name, value)?;
                if !self.p.peek(")") {
                    self.p.expect(",")?;
                }
            }
        }
        self.ops(region)
    }

    /// Attributes, and the text of a constant, which waits for its type.
    fn attrs(&mut self) -> Result<(Vec<Attr>, Option<&'a str>), IrError> {
        let (mut attrs, mut constant) = (Vec::new(), None);
        loop {
            self.p.space();
            let start = self.p.at;
            let word = self.p.run(|c| c.is_alphanumeric() || c == '_').unwrap_or("");
            let kind = AttrKind::ALL.iter().find(|kind| kind.name() == word);
            let (Some(&kind), true) = (kind, self.p.rest().starts_with('(')) else {
                self.p.at = start;
                return Ok((attrs, constant));
            };
            let text = self.p.parenthesised()?;
            if kind == AttrKind::Value {
                constant = Some(text);
            } else {
                let attr = Attr::parse(kind, text);
                attrs.push(
                    attr.ok_or_else(|| self.p.error(&format!("another value of `{word}` than {text}")))?,
                );
            }
        }
    }

    /// `"file":line:column in "helper" at "file":line:column … )`, the opening being read.
    fn loc(&mut self) -> Result<Loc, IrError> {
        let mut places = vec![self.place()?];
        let mut names = Vec::new();
        while self.p.eat("in") {
            names.push(self.p.string()?);
            if self.p.eat("at") {
                places.push(self.place()?);
            }
        }
        self.p.expect(")")?;
        // Outermost first: each call is a frame for the place inside it.
        let mut frame = Frame::KERNEL;
        let mut call = Loc::NONE;
        for (i, (file, line, column)) in places.iter().enumerate().rev() {
            if let Some(name) = names.get(i) {
                let locations = &mut self.func.locations;
                frame = *self
                    .frames
                    .entry((name.clone(), call))
                    .or_insert_with(|| locations.add_frame(name, call));
            }
            call = self.func.locations.add(file, *line, *column, frame);
        }
        Ok(call)
    }

    fn place(&mut self) -> Result<(String, u32, u32), IrError> {
        let file = self.p.string()?;
        self.p.expect(":")?;
        let line = self.p.number()?;
        self.p.expect(":")?;
        Ok((file, line, self.p.number()?))
    }
}

/// The bits of a constant: the reverse of `constant_text`.
fn constant_bits(ty: Type, text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    match ty {
        Type::Scalar(Element::F32) => text.parse::<f32>().ok().map(|v| u64::from(v.to_bits())),
        Type::Scalar(Element::F64) => text.parse::<f64>().ok().map(f64::to_bits),
        Type::Scalar(element) if element.is_int() || element.is_bool() => {
            text.parse::<i64>().map(i64::cast_unsigned).or_else(|_| text.parse::<u64>()).ok()
        }
        _ => None,
    }
}
