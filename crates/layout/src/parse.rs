//! CuTe's notation, read.
//!
//! ```text
//! expr    = part { "o" part }                      A o offset o B, outermost first
//! part    = name "(" [ expr { "," expr } ] ")"     a function call, see `expr`
//!         | ("S" | "Sw") "<" int "," int "," int ">"
//!         | "<" tiler { "," tiler } ">"            by-mode tiler; CuTe IR's "[" tiler { ";" tiler } "]" too
//!         | tuple [ ":" tuple ]                    integer, shape or coordinate; with ":" a layout
//! tiler   = "_" | part
//! tuple   = leaf | "(" [ tuple { "," tuple } ] ")"
//! leaf    = int { "@" int } | "_"
//! ```
//! Integers may carry the `_` with which CuTe C++ prints static ones (`_4`). White space is free. Nesting is
//! limited so that no text can exhaust the stack.

use std::str::FromStr;

use crate::composed::{Composed, Map};
use crate::error::{LayoutError, Result};
use crate::int_tuple::{Coord, Index, IntTuple};
use crate::layout::Layout;
use crate::stride::{Stride, StrideTuple};
use crate::swizzle::Swizzle;
use crate::tiler::Tiler;
use crate::tree::Tree;

/// How deeply tuples, tilers and calls may be nested in text.
pub(crate) const MAX_NESTING: usize = 64;

/// A parsed expression, each node with the column where it starts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ast {
    pub(crate) column: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Tuple(Tree<Leaf>),
    Layout(Layout),
    Swizzle(Swizzle),
    Tiler(Vec<Ast>),
    Chain(Vec<Ast>),
    Call(String, Vec<Ast>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Leaf {
    Number(Stride),
    All,
}

pub(crate) fn parse(text: &str) -> Result<Ast> {
    let mut parser = Parser::new(text)?;
    let ast = parser.expression()?;
    parser.expect(&Token::End, "the end of the text")?;
    Ok(ast)
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Int(i64),
    Name(String),
    Punct(char),
    End,
}

impl Token {
    fn describe(&self) -> String {
        match self {
            Token::Int(value) => format!("`{value}`"),
            Token::Name(name) => format!("`{name}`"),
            Token::Punct(c) => format!("`{c}`"),
            Token::End => "the end".into(),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>> {
        let tokens = tokenize(text)?;
        Ok(Parser { text, tokens, at: 0, depth: 0 })
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn column(&self) -> usize {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn eat(&mut self, c: char) -> bool {
        let found = *self.peek() == Token::Punct(c);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect(&mut self, token: &Token, what: &str) -> Result<()> {
        if self.peek() == token {
            self.next();
            return Ok(());
        }
        Err(self.error(format!("found {}, expected {what}", self.peek().describe())))
    }

    fn error(&self, reason: String) -> LayoutError {
        error_at(self.text, self.column(), reason)
    }

    /// Runs `f` one level deeper.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_NESTING {
            return Err(self.error(format!("more than {MAX_NESTING} levels of nesting")));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    fn expression(&mut self) -> Result<Ast> {
        let column = self.column();
        let first = self.part()?;
        let mut chain = vec![first];
        while *self.peek() == Token::Name("o".into()) {
            self.next();
            chain.push(self.part()?);
        }
        match (chain.len(), chain.pop()) {
            (1, Some(only)) => Ok(only),
            (n, Some(last)) if n % 2 == 1 => {
                chain.push(last);
                Ok(Ast { column, kind: Kind::Chain(chain) })
            }
            _ => Err(error_at(
                self.text,
                column,
                "a composed layout is written `outer o offset o inner`".into(),
            )),
        }
    }

    fn part(&mut self) -> Result<Ast> {
        let column = self.column();
        let kind = match self.peek().clone() {
            Token::Name(name) if name == "S" || name == "Sw" => self.swizzle()?,
            Token::Name(name) => {
                self.next();
                self.expect(&Token::Punct('('), &format!("`(` after `{name}`"))?;
                Kind::Call(name, self.list(')', &[','], Self::expression)?)
            }
            Token::Punct('<') => {
                self.next();
                Kind::Tiler(self.list('>', &[','], Self::expression)?)
            }
            Token::Punct('[') => {
                self.next();
                Kind::Tiler(self.list(']', &[';', ','], Self::expression)?)
            }
            _ => {
                let tuple = self.tuple()?;
                if self.eat(':') { self.layout(&tuple, column)? } else { Kind::Tuple(tuple) }
            }
        };
        Ok(Ast { column, kind })
    }

    /// What follows an opening bracket, up to and including `close`.
    fn list<T>(
        &mut self,
        close: char,
        separators: &[char],
        item: impl Fn(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.nested(|parser| {
            let mut items = Vec::new();
            if parser.eat(close) {
                return Ok(items);
            }
            loop {
                items.push(item(parser)?);
                if parser.eat(close) {
                    return Ok(items);
                }
                if !separators.iter().any(|&separator| parser.eat(separator)) {
                    let found = parser.peek().describe();
                    return Err(
                        parser.error(format!("found {found}, expected `{}` or `{close}`", separators[0]))
                    );
                }
            }
        })
    }

    fn swizzle(&mut self) -> Result<Kind> {
        self.next();
        self.expect(&Token::Punct('<'), "`<` after `S`")?;
        let column = self.column();
        let numbers = self.list('>', &[','], Self::int)?;
        match numbers[..] {
            [bits, base, shift] => Ok(Kind::Swizzle(Swizzle::new(bits, base, shift)?)),
            _ => Err(error_at(
                self.text,
                column,
                format!("a swizzle has three numbers, `S<bits,base,shift>`, found {}", numbers.len()),
            )),
        }
    }

    fn int(&mut self) -> Result<i64> {
        let Token::Int(value) = *self.peek() else {
            return Err(self.error(format!("found {}, expected an integer", self.peek().describe())));
        };
        self.next();
        Ok(value)
    }

    fn tuple(&mut self) -> Result<Tree<Leaf>> {
        match self.peek() {
            Token::Punct('(') => {
                self.next();
                Ok(Tree::Tuple(self.list(')', &[','], Self::tuple)?))
            }
            Token::Punct('_') => {
                self.next();
                Ok(Tree::Leaf(Leaf::All))
            }
            Token::Int(_) => {
                let value = self.int()?;
                let mut path = Vec::new();
                while self.eat('@') {
                    let column = self.column();
                    let mode = self.int()?;
                    path.insert(
                        0,
                        usize::try_from(mode)
                            .map_err(|_| error_at(self.text, column, format!("mode {mode} is negative")))?,
                    );
                }
                Ok(Tree::Leaf(Leaf::Number(Stride::basis(value, &path)?)))
            }
            Token::Punct('?') => Err(self.error("dynamic `?` is not supported, give a number".into())),
            other => {
                let found = other.describe();
                Err(self.error(format!("found {found}, expected a number, `(`, `<`, `S<` or a function")))
            }
        }
    }

    fn layout(&mut self, shape: &Tree<Leaf>, column: usize) -> Result<Kind> {
        let shape = int_tuple(shape)
            .ok_or_else(|| error_at(self.text, column, "a shape consists of integers".into()))?;
        let column = self.column();
        let stride = self.tuple()?;
        let stride: StrideTuple = stride.try_graft(&mut |leaf| match leaf {
            Leaf::Number(stride) => Ok(Tree::Leaf(*stride)),
            Leaf::All => Err(error_at(self.text, column, "`_` is not a stride".into())),
        })?;
        Ok(Kind::Layout(Layout::new(shape, stride)?))
    }
}

fn tokenize(text: &str) -> Result<Vec<(Token, usize)>> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let (c, start) = (chars[at], at);
        let digit_at = |i: usize| chars.get(i).is_some_and(char::is_ascii_digit);
        at += 1;
        let token = match c {
            _ if c.is_whitespace() => continue,
            '_' if digit_at(at) || (chars.get(at) == Some(&'-') && digit_at(at + 1)) => continue, // `_4` is 4
            '-' | '0'..='9' => {
                while digit_at(at) {
                    at += 1;
                }
                let number: String = chars[start..at].iter().collect();
                let value = number.parse().map_err(|_| {
                    let reason = if number == "-" {
                        "expected digits after `-`"
                    } else {
                        "the number does not fit in 64 bits"
                    };
                    error_at(text, start + 1, reason.into())
                })?;
                Token::Int(value)
            }
            _ if c.is_ascii_alphabetic() => {
                while chars.get(at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    at += 1;
                }
                Token::Name(chars[start..at].iter().collect())
            }
            '(' | ')' | '<' | '>' | '[' | ']' | ',' | ';' | ':' | '@' | '_' | '?' => Token::Punct(c),
            _ => {
                return Err(error_at(text, start + 1, format!("`{}` has no meaning here", c.escape_debug())));
            }
        };
        tokens.push((token, start + 1));
    }
    tokens.push((Token::End, chars.len() + 1));
    Ok(tokens)
}

pub(crate) fn error_at(text: &str, column: usize, reason: String) -> LayoutError {
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().count() > SHOWN {
        shown.push('…');
    }
    LayoutError::Parse { text: shown, column, reason }
}

/// A tuple without underscores and basis elements.
pub(crate) fn int_tuple(tuple: &Tree<Leaf>) -> Option<IntTuple> {
    tuple
        .try_graft(&mut |leaf| match leaf {
            Leaf::Number(stride) if stride.along_basis().is_none() => Ok(Tree::Leaf(stride.value())),
            _ => Err(()),
        })
        .ok()
}

pub(crate) fn coord(tuple: &Tree<Leaf>) -> Option<Coord> {
    tuple
        .try_graft(&mut |leaf| match leaf {
            Leaf::Number(stride) if stride.along_basis().is_none() => {
                Ok(Tree::Leaf(Index::At(stride.value())))
            }
            Leaf::Number(_) => Err(()),
            Leaf::All => Ok(Tree::Leaf(Index::All)),
        })
        .ok()
}

/// Implements `FromStr` through the parser and a conversion of the syntax tree.
macro_rules! from_str {
    ($type:ty, $what:literal, $convert:expr) => {
        impl FromStr for $type {
            type Err = LayoutError;

            fn from_str(text: &str) -> Result<Self> {
                let ast = parse(text)?;
                let convert: fn(&str, &Ast) -> Result<Option<$type>> = $convert;
                convert(text, &ast)?
                    .ok_or_else(|| error_at(text, ast.column, concat!("expected ", $what).into()))
            }
        }
    };
}

from_str!(Layout, "a layout such as `(4,2):(1,16)`", |_, ast| match &ast.kind {
    Kind::Layout(layout) => Ok(Some(layout.clone())),
    _ => Ok(None),
});

from_str!(IntTuple, "integers such as `(4,2)`", |_, ast| match &ast.kind {
    Kind::Tuple(tuple) => Ok(int_tuple(tuple)),
    _ => Ok(None),
});

from_str!(Coord, "a coordinate such as `(1,_)`", |_, ast| match &ast.kind {
    Kind::Tuple(tuple) => Ok(coord(tuple)),
    _ => Ok(None),
});

from_str!(Swizzle, "a swizzle such as `S<3,4,3>`", |_, ast| match &ast.kind {
    Kind::Swizzle(swizzle) => Ok(Some(*swizzle)),
    _ => Ok(None),
});

from_str!(Tiler, "a tiler such as `<3:3, 4>`", tiler);

from_str!(
    Composed,
    "a composed layout such as `S<3,4,3> o 0 o (8,64):(64,1)`",
    |text, ast| match &ast.kind {
        Kind::Chain(parts) => composed(text, parts, &mut literal_map).map(Some),
        _ => Ok(None),
    }
);

/// A tiler from its syntax; `None` for what cannot be one.
pub(crate) fn tiler(text: &str, ast: &Ast) -> Result<Option<Tiler>> {
    match &ast.kind {
        Kind::Layout(layout) => Ok(Some(layout.clone().into())),
        Kind::Tuple(Tree::Leaf(Leaf::All)) => Ok(Some(Tiler::Keep)),
        Kind::Tuple(tuple) => int_tuple(tuple).map(Tiler::shape).transpose(),
        Kind::Tiler(modes) => {
            let modes = modes.iter().map(|mode| {
                tiler(text, mode)?
                    .ok_or_else(|| error_at(text, mode.column, "expected a tiler for a mode".into()))
            });
            Ok(Some(Tiler::Modes(modes.collect::<Result<_>>()?)))
        }
        _ => Ok(None),
    }
}

fn literal_map(text: &str, ast: &Ast) -> Result<Map> {
    match &ast.kind {
        Kind::Layout(layout) => Ok(layout.clone().into()),
        Kind::Swizzle(swizzle) => Ok((*swizzle).into()),
        _ => Err(error_at(text, ast.column, "expected a layout or a swizzle".into())),
    }
}

/// `outer o offset o ... o inner`, the maps read by `map`.
pub(crate) fn composed(
    text: &str,
    parts: &[Ast],
    map: &mut dyn FnMut(&str, &Ast) -> Result<Map>,
) -> Result<Composed> {
    let mut rest = parts.iter().rev();
    let error =
        |column| error_at(text, column, "a composed layout is written `outer o offset o inner`".into());
    let inner = map(text, rest.next().ok_or_else(|| error(1))?)?;
    let mut composed: Option<Composed> = None;
    while let Some(offset) = rest.next() {
        let Kind::Tuple(tuple) = &offset.kind else {
            return Err(error_at(text, offset.column, "the offset is an integer or a coordinate".into()));
        };
        let offset = int_tuple(tuple)
            .ok_or_else(|| error_at(text, offset.column, "the offset consists of integers".into()))?;
        let outer = map(text, rest.next().ok_or_else(|| error(parts[0].column))?)?;
        composed = Some(match composed {
            None => Composed::new(outer, offset, inner.clone())?,
            Some(composed) => composed.after(outer, offset)?,
        });
    }
    composed.ok_or_else(|| error(parts[0].column))
}
