//! Operands and constants.

use super::lex::Token;
use super::{Parser, Result};
use crate::ast::{Address, Component, Immediate, Operand, Symbol};
use crate::words::SpecialRegister;

impl Parser<'_> {
    pub(super) fn operand(&mut self) -> Result<Operand> {
        match self.token {
            Token::Word("WARP_SZ") | Token::Number(_) | Token::Punct(b'-' | b'+') => {
                Ok(Operand::Immediate(self.immediate()?))
            }
            Token::Word(_) => self.named(),
            Token::Punct(b'!') => {
                self.advance()?;
                Ok(Operand::Not(self.name("a predicate register")?))
            }
            Token::Punct(b'[') => self.nested(Parser::bracket),
            Token::Punct(b'{') => {
                self.advance()?;
                let parts = self.nested(|parser| parser.list(b'}', "`,` or `}`", Parser::operand))?;
                Ok(Operand::List(parts))
            }
            Token::Punct(b'(') => {
                self.advance()?;
                let parts = self.nested(|parser| parser.list(b')', "`,` or `)`", Parser::operand))?;
                Ok(Operand::Group(parts))
            }
            _ => self.error("an operand"),
        }
    }

    /// An operand that starts with a name.
    fn named(&mut self) -> Result<Operand> {
        let Token::Word(word) = self.token else { return self.error("a name") };
        let start = self.place.offset;
        self.advance()?;
        if let Token::Dotted(component) = self.token {
            let register = SpecialRegister::from_text(self.lexer.slice(start, self.end));
            let operand = match (register, Component::from_text(component)) {
                (Some(register), _) => Operand::Special(register),
                (None, Some(component)) => Operand::Element(self.names.intern(word), component),
                (None, None) => return self.error("a component such as `.x`"),
            };
            self.advance()?;
            return Ok(operand);
        }
        if let Some(register) = SpecialRegister::from_text(word) {
            return Ok(Operand::Special(register));
        }
        let first = self.symbol_or_sink(word);
        if self.eat(b'|')? {
            let Token::Word(second) = self.token else { return self.error("a register or `_` behind `|`") };
            self.advance()?;
            return Ok(Operand::Pair(first, self.symbol_or_sink(second)));
        }
        let Some(symbol) = first else { return Ok(Operand::Sink) };
        match self.offset()? {
            0 => Ok(Operand::Symbol(symbol)),
            offset => Ok(Operand::Offset(symbol, offset)),
        }
    }

    fn symbol_or_sink(&mut self, word: &str) -> Option<Symbol> {
        if word == "_" { None } else { Some(self.names.intern(word)) }
    }

    /// `[base+offset]`, `[offset]`, or several operands in brackets.
    fn bracket(&mut self) -> Result<Operand> {
        self.advance()?;
        let mut parts = self.list(b']', "`,`, `+` or `]`", Parser::operand)?;
        let only = if parts.len() == 1 { parts.pop() } else { None };
        let address = match only {
            Some(Operand::Symbol(base)) => Address { base: Some(base), offset: 0 },
            Some(Operand::Offset(base, offset)) => Address { base: Some(base), offset },
            Some(Operand::Immediate(Immediate::Int(offset))) => Address { base: None, offset },
            Some(Operand::Immediate(Immediate::Unsigned(offset))) => {
                Address { base: None, offset: offset.cast_signed() }
            }
            Some(other) => return Ok(Operand::Tuple(vec![other])),
            None => return Ok(Operand::Tuple(parts)),
        };
        Ok(Operand::Address(address))
    }

    /// `+4`, `-4`, `+-4`, `+4+8` or nothing.
    pub(super) fn offset(&mut self) -> Result<i64> {
        let mut sum = 0i64;
        loop {
            let negative = match self.token {
                Token::Punct(b'+') => false,
                Token::Punct(b'-') => true,
                _ => return Ok(sum),
            };
            self.advance()?;
            let (place, found) = (self.place, self.token.describe());
            let value = match self.immediate()? {
                Immediate::Int(value) => value,
                Immediate::Unsigned(value) => value.cast_signed(),
                _ => return Err(place.error(found, "an integer offset")),
            };
            sum = if negative { sum.wrapping_sub(value) } else { sum.wrapping_add(value) };
        }
    }

    /// A number with an optional sign, or `WARP_SZ`.
    pub(super) fn immediate(&mut self) -> Result<Immediate> {
        if self.eat(b'-')? {
            return Ok(match self.immediate_without_sign()? {
                Immediate::Int(value) => Immediate::Int(value.wrapping_neg()),
                Immediate::Unsigned(value) if value == 1 << 63 => Immediate::Int(i64::MIN),
                Immediate::Unsigned(value) => Immediate::Unsigned(value.wrapping_neg()),
                Immediate::F32(bits) => Immediate::F32(bits ^ (1 << 31)),
                Immediate::F64(bits) => Immediate::F64(bits ^ (1 << 63)),
                Immediate::WarpSize => return self.error("a number behind `-`"),
            });
        }
        self.eat(b'+')?;
        self.immediate_without_sign()
    }

    fn immediate_without_sign(&mut self) -> Result<Immediate> {
        let value = match self.token {
            Token::Word("WARP_SZ") => Some(Immediate::WarpSize),
            Token::Number(text) => number(text),
            _ => None,
        };
        let Some(value) = value else { return self.error("a number") };
        self.advance()?;
        Ok(value)
    }
}

/// Integers in four bases with an optional `U`, `0f` and `0d` with the bits in hexadecimal, decimal fractions.
fn number(text: &str) -> Option<Immediate> {
    let prefixed = |letters: [char; 2]| text.strip_prefix('0').and_then(|rest| rest.strip_prefix(letters));
    if let Some(bits) = prefixed(['f', 'F']) {
        let bits = (bits.len() == 8).then(|| u32::from_str_radix(bits, 16).ok())??;
        return Some(Immediate::F32(bits));
    }
    if let Some(bits) = prefixed(['d', 'D']) {
        let bits = (bits.len() == 16).then(|| u64::from_str_radix(bits, 16).ok())??;
        return Some(Immediate::F64(bits));
    }
    if text.contains('.') {
        return text.parse::<f64>().ok().map(|value| Immediate::F64(value.to_bits()));
    }
    let digits = text.strip_suffix('U');
    let body = digits.unwrap_or(text);
    let value = if let Some(hex) = body.strip_prefix("0x").or_else(|| body.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = body.strip_prefix("0b").or_else(|| body.strip_prefix("0B")) {
        u64::from_str_radix(binary, 2)
    } else if body.len() > 1 && body.starts_with('0') {
        u64::from_str_radix(body, 8)
    } else {
        body.parse()
    };
    let value = value.ok()?;
    Some(match i64::try_from(value) {
        Ok(signed) if digits.is_none() => Immediate::Int(signed),
        _ => Immediate::Unsigned(value),
    })
}
