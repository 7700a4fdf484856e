//! Text as a tree: a recursive-descent parser without backtracking.
//!
//! Comments are dropped. Everything else survives, in canonical form: numbers lose their base, a list of variables
//! becomes one declaration each, missing extents of `.maxntid` become 1. Constant expressions are not evaluated beyond
//! the sign of a number and sums in addresses; the compilers at hand emit none.

mod body;
mod lex;
mod operand;

use crate::ast::{
    Attribute, Directive, Function, FunctionKind, Initializer, Item, Line, Linkage, Module, Names, Pointer,
    Space, Symbol, Variable, VectorLength,
};
use crate::error::PtxError;
use crate::target::{Target, TargetOption, Version};
use crate::words::Type;
use lex::{Lexer, Place, Token};

/// How deeply blocks and lists may be nested.
const MAX_NESTING: usize = 64;

type Result<T> = std::result::Result<T, PtxError>;

/// Reads a PTX module.
///
/// ```
/// let error = tilewright_ptx::parse(".version 7.0\n.target sm_80\n.entry k() { ad.u32 %r1, %r2; }").unwrap_err();
/// assert_eq!(error.to_string(), "3:14: found `ad`, expected an instruction");
/// ```
pub fn parse(text: &str) -> Result<Module> {
    let mut parser = Parser::new(text)?;
    parser.module()
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// Where the token starts.
    place: Place,
    /// Where it ends.
    end: usize,
    names: Names,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>> {
        let mut lexer = Lexer::new(text);
        let (token, place, end) = lexer.next()?;
        Ok(Parser { lexer, token, place, end, names: Names::default(), depth: 0 })
    }

    fn advance(&mut self) -> Result<Token<'a>> {
        let token = self.token;
        (self.token, self.place, self.end) = self.lexer.next()?;
        Ok(token)
    }

    fn line(&self) -> Line {
        Line(self.place.line)
    }

    fn error<T>(&self, expected: &str) -> Result<T> {
        Err(self.place.error(self.token.describe(), expected))
    }

    fn is(&self, punct: u8) -> bool {
        self.token == Token::Punct(punct)
    }

    fn eat(&mut self, punct: u8) -> Result<bool> {
        let found = self.is(punct);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, punct: u8, expected: &str) -> Result<()> {
        if self.eat(punct)? { Ok(()) } else { self.error(expected) }
    }

    fn eat_dotted(&mut self, word: &str) -> Result<bool> {
        let found = self.token == Token::Dotted(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn eat_word(&mut self, word: &str) -> Result<bool> {
        let found = self.token == Token::Word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// A name, interned.
    fn name(&mut self, expected: &str) -> Result<Symbol> {
        let Token::Word(text) = self.token else { return self.error(expected) };
        self.advance()?;
        Ok(self.names.intern(text))
    }

    fn string(&mut self) -> Result<String> {
        let Token::Text(text) = self.token else { return self.error("a string") };
        self.advance()?;
        Ok(text.into())
    }

    fn unsigned(&mut self) -> Result<u64> {
        let place = self.place;
        let found = self.token.describe();
        match self.immediate()? {
            crate::Immediate::Int(value) if value >= 0 => Ok(value.unsigned_abs()),
            crate::Immediate::Unsigned(value) => Ok(value),
            _ => Err(place.error(found, "a number that is not negative")),
        }
    }

    fn small(&mut self) -> Result<u32> {
        let (place, found) = (self.place, self.token.describe());
        u32::try_from(self.unsigned()?).map_err(|_| place.error(found, "a number below 2^32"))
    }

    /// Items separated by commas, up to `close`, which is consumed.
    fn list<T>(
        &mut self,
        close: u8,
        expected: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        if self.eat(close)? {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close)? {
                return Ok(items);
            }
            self.expect(b',', expected)?;
        }
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_NESTING {
            return self.error(&format!("at most {MAX_NESTING} levels of nesting"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn module(&mut self) -> Result<Module> {
        if !self.eat_dotted("version")? {
            return self.error("`.version`, with which a module begins");
        }
        let version = self.version()?;
        if !self.eat_dotted("target")? {
            return self.error("`.target`");
        }
        let (target, options) = self.target()?;
        let address_size = if self.eat_dotted("address_size")? { self.small()? } else { 64 };
        let mut items = Vec::new();
        while self.token != Token::End {
            self.item(&mut items)?;
        }
        let names = std::mem::take(&mut self.names);
        Ok(Module { version, target, options, address_size, names, items })
    }

    fn version(&mut self) -> Result<Version> {
        let version = match self.token {
            Token::Number(text) => text.parse().ok(),
            _ => None,
        };
        let Some(version) = version else { return self.error("a version such as `8.0`") };
        self.advance()?;
        Ok(version)
    }

    fn target(&mut self) -> Result<(Target, Vec<TargetOption>)> {
        let mut target = None;
        let mut options = Vec::new();
        loop {
            let Token::Word(text) = self.token else { return self.error("a target such as `sm_80`") };
            if let Some(option) = TargetOption::from_text(text) {
                options.push(option);
            } else if let (Ok(found), None) = (text.parse(), target) {
                target = Some(found);
            } else {
                return self.error("a target such as `sm_80`, or `debug`");
            }
            self.advance()?;
            if !self.eat(b',')? {
                break;
            }
        }
        match target {
            Some(target) => Ok((target, options)),
            None => self.error("a target such as `sm_80`"),
        }
    }

    fn item(&mut self, items: &mut Vec<Item>) -> Result<()> {
        const EXPECTED: &str = "a variable, a function or another directive";
        let line = self.line();
        let Token::Dotted(word) = self.token else { return self.error(EXPECTED) };
        match word {
            "file" => {
                self.advance()?;
                let index = self.small()?;
                let path = self.string()?;
                let stamp = if self.eat(b',')? {
                    let time = self.unsigned()?;
                    self.expect(b',', "`,` and the size of the file")?;
                    Some((time, self.unsigned()?))
                } else {
                    None
                };
                items.push(Item::File { index, path, stamp });
            }
            "section" => {
                self.advance()?;
                let Token::Dotted(name) = self.token else { return self.error("the name of a section") };
                self.advance()?;
                if !self.is(b'{') {
                    return self.error("`{`");
                }
                let text = self.lexer.raw_until_brace(self.end)?.to_string();
                self.advance()?;
                items.push(Item::Section { name: format!(".{name}"), text });
            }
            "pragma" => {
                self.advance()?;
                items.push(Item::Pragma(self.pragma()?));
            }
            "alias" => {
                self.advance()?;
                let alias = self.name("the name of an alias")?;
                self.expect(b',', "`,` and the function that the alias stands for")?;
                let aliasee = self.name("the name of a function")?;
                self.expect(b';', "`;`")?;
                items.push(Item::Alias { alias, aliasee });
            }
            _ => {
                let linkage = self.linkage()?;
                match self.token {
                    Token::Dotted("entry" | "func") => {
                        items.push(Item::Function(self.function(line, linkage)?));
                    }
                    Token::Dotted(word) if space(word).is_some() => {
                        self.variables(linkage, |variable| items.push(Item::Variable(variable)))?;
                    }
                    _ => return self.error(EXPECTED),
                }
            }
        }
        Ok(())
    }

    fn linkage(&mut self) -> Result<Option<Linkage>> {
        let linkage = match self.token {
            Token::Dotted("visible") => Linkage::Visible,
            Token::Dotted("extern") => Linkage::Extern,
            Token::Dotted("weak") => Linkage::Weak,
            Token::Dotted("common") => Linkage::Common,
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(linkage))
    }

    /// The strings of `.pragma` and the semicolon.
    fn pragma(&mut self) -> Result<Vec<String>> {
        let mut strings = vec![self.string()?];
        while self.eat(b',')? {
            strings.push(self.string()?);
        }
        self.expect(b';', "`;`")?;
        Ok(strings)
    }

    /// A declaration of one or more variables with the semicolon.
    fn variables(&mut self, linkage: Option<Linkage>, mut emit: impl FnMut(Variable)) -> Result<()> {
        let mut variable = self.variable()?;
        variable.linkage = linkage;
        loop {
            if self.eat(b'=')? {
                variable.initializer = Some(self.initializer()?);
            }
            emit(variable.clone());
            if self.eat(b';')? {
                return Ok(());
            }
            self.expect(b',', "`;`, `,` or `=`")?;
            variable.initializer = None;
            self.declarator(&mut variable)?;
        }
    }

    /// A variable or parameter up to its extents: `.param .u64 .ptr .global .align 16 x[4]`.
    fn variable(&mut self) -> Result<Variable> {
        const EXPECTED: &str = "a state space, `.align`, a type, and a name";
        let line = self.line();
        let state_space = match self.token {
            Token::Dotted(word) => space(word),
            _ => None,
        };
        let Some(state_space) = state_space else { return self.error("a state space such as `.param`") };
        self.advance()?;
        let mut variable = Variable::new(state_space, Type::B8, Symbol(0));
        let mut ty = None;
        while let Token::Dotted(word) = self.token {
            match word {
                "align" => {
                    self.advance()?;
                    let align = Some(self.small()?);
                    match &mut variable.pointer {
                        Some(pointer) => pointer.align = align,
                        None => variable.align = align,
                    }
                    continue;
                }
                "v2" => variable.vector = Some(VectorLength::V2),
                "v4" => variable.vector = Some(VectorLength::V4),
                "ptr" => variable.pointer = Some(Pointer { space: None, align: None }),
                "attribute" => {
                    self.advance()?;
                    self.attributes(&mut variable.attributes)?;
                    continue;
                }
                _ => match (Type::from_text(word), &mut variable.pointer, space(word)) {
                    (Some(found), _, _) if ty.is_none() => ty = Some(found),
                    (None, Some(pointer), Some(target)) => pointer.space = Some(target),
                    _ => return self.error(EXPECTED),
                },
            }
            self.advance()?;
        }
        match ty {
            Some(ty) => variable.ty = ty,
            None => return self.error("a type such as `.u64`"),
        }
        variable.line = line;
        self.declarator(&mut variable)?;
        Ok(variable)
    }

    /// The name and the extents of a variable.
    fn declarator(&mut self, variable: &mut Variable) -> Result<()> {
        variable.name = self.name("the name of a variable")?;
        variable.dims.clear();
        while self.eat(b'[')? {
            let extent = if self.is(b']') { None } else { Some(self.unsigned()?) };
            variable.dims.push(extent);
            self.expect(b']', "`]`")?;
        }
        Ok(())
    }

    fn attributes(&mut self, attributes: &mut Vec<Attribute>) -> Result<()> {
        self.expect(b'(', "`(`")?;
        let found = self.list(b')', "`,` or `)`", |parser| {
            if parser.eat_dotted("managed")? {
                return Ok(Attribute::Managed);
            }
            if !parser.eat_dotted("unified")? {
                return parser.error("`.managed` or `.unified`");
            }
            parser.expect(b'(', "`(`")?;
            let high = parser.unsigned()?;
            parser.expect(b',', "`,`")?;
            let low = parser.unsigned()?;
            parser.expect(b')', "`)`")?;
            Ok(Attribute::Unified(high, low))
        })?;
        attributes.extend(found);
        Ok(())
    }

    fn initializer(&mut self) -> Result<Initializer> {
        if self.eat(b'{')? {
            let list = self.nested(|parser| parser.list(b'}', "`,` or `}`", Parser::initializer))?;
            return Ok(Initializer::List(list));
        }
        if let Token::Word(word) = self.token
            && word != "WARP_SZ"
        {
            return self.initial_address(None);
        }
        let place = self.place;
        let value = self.immediate()?;
        if !self.eat(b'(')? {
            return Ok(Initializer::Value(value));
        }
        let mask = match value {
            crate::Immediate::Int(value) if value >= 0 => value.unsigned_abs(),
            crate::Immediate::Unsigned(value) => value,
            _ => {
                return Err(
                    place.error("a mask that is not an unsigned integer".into(), "one such as `0xFF`")
                );
            }
        };
        let address = self.initial_address(Some(mask))?;
        self.expect(b')', "`)`")?;
        Ok(address)
    }

    fn initial_address(&mut self, mask: Option<u64>) -> Result<Initializer> {
        let mut symbol = self.name("the name of a variable")?;
        let generic = self.names.text(symbol) == "generic" && self.eat(b'(')?;
        if generic {
            symbol = self.name("the name of a variable")?;
            self.expect(b')', "`)`")?;
        }
        Ok(Initializer::Address { generic, mask, symbol, offset: self.offset()? })
    }

    fn function(&mut self, line: Line, linkage: Option<Linkage>) -> Result<Function> {
        let kind = match self.advance()? {
            Token::Dotted("entry") => FunctionKind::Entry,
            _ => FunctionKind::Func,
        };
        let returns = if kind == FunctionKind::Func { self.params()? } else { Vec::new() };
        let name = self.name("the name of a function")?;
        let params = self.params()?;
        let directives = self.directives()?;
        let body = if self.eat(b';')? {
            None
        } else {
            self.expect(b'{', "`{`, `;` or a directive")?;
            Some(self.block()?)
        };
        Ok(Function { line, linkage, kind, returns, name, params, directives, body })
    }

    /// A list of parameters in parentheses, or nothing.
    fn params(&mut self) -> Result<Vec<Variable>> {
        if self.eat(b'(')? { self.list(b')', "`,` or `)`", Parser::variable) } else { Ok(Vec::new()) }
    }

    fn directives(&mut self) -> Result<Vec<Directive>> {
        let mut directives = Vec::new();
        while let Token::Dotted(word) = self.token {
            directives.push(match word {
                "maxntid" => Directive::MaxThreads(self.extents()?),
                "reqntid" => Directive::RequiredThreads(self.extents()?),
                "reqnctapercluster" => Directive::RequiredCluster(self.extents()?),
                "minnctapersm" => Directive::MinBlocks(self.directive_number()?),
                "maxnctapersm" => Directive::MaxBlocks(self.directive_number()?),
                "maxnreg" => Directive::MaxRegisters(self.directive_number()?),
                "maxclusterrank" => Directive::MaxClusterRank(self.directive_number()?),
                "abi_preserve" => Directive::AbiPreserve(self.directive_number()?),
                "abi_preserve_control" => Directive::AbiPreserveControl(self.directive_number()?),
                "explicitcluster" | "blocksareclusters" | "noreturn" => {
                    self.advance()?;
                    match word {
                        "explicitcluster" => Directive::ExplicitCluster,
                        "blocksareclusters" => Directive::BlocksAreClusters,
                        _ => Directive::NoReturn,
                    }
                }
                "pragma" => {
                    self.advance()?;
                    Directive::Pragma(self.pragma()?)
                }
                _ => return self.error("`{` or a directive such as `.maxntid`"),
            });
        }
        Ok(directives)
    }

    fn directive_number(&mut self) -> Result<u32> {
        self.advance()?;
        self.small()
    }

    fn extents(&mut self) -> Result<[u32; 3]> {
        self.advance()?;
        let mut extents = [self.small()?, 1, 1];
        for extent in &mut extents[1..] {
            if !self.eat(b',')? {
                break;
            }
            *extent = self.small()?;
        }
        Ok(extents)
    }
}

fn space(word: &str) -> Option<Space> {
    Some(match word {
        "reg" => Space::Reg,
        "const" => Space::Const,
        "global" => Space::Global,
        "local" => Space::Local,
        "param" => Space::Param,
        "shared" => Space::Shared,
        "tex" => Space::Tex,
        _ => return None,
    })
}
