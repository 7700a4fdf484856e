//! Statements.

use super::lex::Token;
use super::{Parser, Result, space};
use crate::ast::{
    Guard, Inlined, Instruction, Location, Modifiers, Operands, RegisterName, Registers, Statement,
    StatementKind, VectorLength,
};
use crate::words::{Modifier, Opcode, Type};

impl Parser<'_> {
    /// Statements up to the closing brace, which is consumed.
    pub(super) fn block(&mut self) -> Result<Vec<Statement>> {
        self.nested(|parser| {
            let mut statements = Vec::new();
            while !parser.eat(b'}')? {
                parser.statement(&mut statements)?;
            }
            Ok(statements)
        })
    }

    fn statement(&mut self, statements: &mut Vec<Statement>) -> Result<()> {
        let line = self.line();
        let kind = match self.token {
            Token::Punct(b'{') => {
                self.advance()?;
                StatementKind::Block(self.block()?)
            }
            Token::Punct(b'@') => {
                self.advance()?;
                let negated = self.eat(b'!')?;
                let register = self.name("a predicate register")?;
                let Token::Word(word) = self.token else { return self.error("an instruction") };
                let Some(opcode) = Opcode::from_text(word) else { return self.error("an instruction") };
                self.advance()?;
                StatementKind::Instruction(self.instruction(Some(Guard { negated, register }), opcode)?)
            }
            Token::Word(word) => {
                let place = self.place;
                self.advance()?;
                if self.eat(b':')? {
                    StatementKind::Label(self.names.intern(word))
                } else if let Some(opcode) = Opcode::from_text(word) {
                    StatementKind::Instruction(self.instruction(None, opcode)?)
                } else {
                    return Err(place.error(format!("`{word}`"), "an instruction"));
                }
            }
            Token::Dotted("reg") => StatementKind::Registers(self.registers()?),
            Token::Dotted("loc") => StatementKind::Location(self.location()?),
            Token::Dotted("pragma") => {
                self.advance()?;
                StatementKind::Pragma(self.pragma()?)
            }
            Token::Dotted(word @ ("branchtargets" | "calltargets")) => {
                self.advance()?;
                let names = self.list(b';', "`,` or `;`", |parser| parser.name("a label or function"))?;
                match word {
                    "branchtargets" => StatementKind::BranchTargets(names),
                    _ => StatementKind::CallTargets(names),
                }
            }
            Token::Dotted("callprototype") => {
                self.advance()?;
                let returns = self.params()?;
                if !self.eat_word("_")? {
                    return self.error("`_` and a list of parameters");
                }
                let params = self.params()?;
                let directives = self.directives()?;
                self.expect(b';', "`;`")?;
                StatementKind::CallPrototype { returns, params, directives }
            }
            Token::Dotted(_) => {
                let linkage = self.linkage()?;
                if !matches!(self.token, Token::Dotted(word) if space(word).is_some()) {
                    return self.error("a declaration such as `.reg` or `.shared`");
                }
                return self.variables(linkage, |variable| {
                    statements
                        .push(Statement { line: variable.line, kind: StatementKind::Variable(variable) });
                });
            }
            _ => return self.error("a statement or `}`"),
        };
        statements.push(Statement { line, kind });
        Ok(())
    }

    fn registers(&mut self) -> Result<Registers> {
        self.advance()?;
        let mut vector = None;
        let mut ty = None;
        while let Token::Dotted(word) = self.token {
            match (word, Type::from_text(word)) {
                ("v2", _) => vector = Some(VectorLength::V2),
                ("v4", _) => vector = Some(VectorLength::V4),
                (_, Some(found)) if ty.is_none() => ty = Some(found),
                _ => return self.error("the type of a register"),
            }
            self.advance()?;
        }
        let Some(ty) = ty else { return self.error("the type of a register") };
        let names = self.list(b';', "`,` or `;`", |parser| {
            let name = parser.name("the name of a register")?;
            let count = if parser.eat(b'<')? {
                let count = parser.small()?;
                parser.expect(b'>', "`>`")?;
                Some(count)
            } else {
                None
            };
            Ok(RegisterName { name, count })
        })?;
        Ok(Registers { vector, ty, names })
    }

    fn location(&mut self) -> Result<Location> {
        self.advance()?;
        let (file, line, column) = (self.small()?, self.small()?, self.small()?);
        let mut inlined = None;
        if self.eat(b',')? {
            if !self.eat_word("function_name")? {
                return self.error("`function_name`");
            }
            let function = self.name("the label of a name")?;
            let offset = if self.eat(b'+')? { self.unsigned()? } else { 0 };
            self.expect(b',', "`,` and `inlined_at`")?;
            if !self.eat_word("inlined_at")? {
                return self.error("`inlined_at`");
            }
            let (file, line, column) = (self.small()?, self.small()?, self.small()?);
            inlined = Some(Inlined { function, offset, file, line, column });
        }
        Ok(Location { file, line, column, inlined })
    }

    /// The modifiers and operands behind an opcode, with the semicolon.
    fn instruction(&mut self, guard: Option<Guard>, opcode: Opcode) -> Result<Instruction> {
        let mut modifiers = Modifiers::new();
        while let Token::Dotted(word) = self.token {
            let Some(modifier) = Modifier::from_text(word) else { return self.error("a modifier of PTX") };
            modifiers.push(modifier);
            self.advance()?;
        }
        let mut operands = Operands::new();
        if !self.eat(b';')? {
            loop {
                operands.push(self.operand()?);
                if self.eat(b';')? {
                    break;
                }
                self.expect(b',', "`,` or `;`")?;
            }
        }
        Ok(Instruction { guard, opcode, modifiers, operands })
    }
}
