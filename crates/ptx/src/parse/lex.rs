//! Words, numbers and punctuation of PTX text, one at a time.

use crate::error::PtxError;

/// A piece of the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// An identifier: `%r1`, `add`, `$L__BB0_1`, `_`.
    Word(&'a str),
    /// A word behind a dot, without the dot: `f32`, `shared::cta`.
    Dotted(&'a str),
    /// Anything that starts with a digit.
    Number(&'a str),
    /// What stands between quotes.
    Text(&'a str),
    /// One character of punctuation.
    Punct(u8),
    /// The end of the text.
    End,
}

impl Token<'_> {
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Word(text) | Token::Number(text) => format!("`{text}`"),
            Token::Dotted(text) => format!("`.{text}`"),
            Token::Text(text) => format!("\"{text}\""),
            Token::Punct(c) => format!("`{}`", char::from(*c).escape_default()),
            Token::End => "the end of the text".into(),
        }
    }
}

/// A place in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) line: u32,
    line_start: usize,
}

impl Place {
    pub(super) fn error(self, found: String, expected: &str) -> PtxError {
        let column = u32::try_from(self.offset - self.line_start).unwrap_or(u32::MAX).saturating_add(1);
        PtxError::Syntax { line: self.line, column, found, expected: expected.into() }
    }
}

/// Reads tokens from a text.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0, line: 1, line_start: 0 }
    }

    /// The next token, where it starts, and where it ends.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, Place, usize), PtxError> {
        self.skip_blanks()?;
        let place = self.place();
        let rest = &self.text.as_bytes()[self.at..];
        let Some(&first) = rest.first() else { return Ok((Token::End, place, self.at)) };
        let token = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | b'%' => {
                Token::Word(self.take(1 + rest[1..].iter().take_while(|c| is_word(**c)).count()))
            }
            b'0'..=b'9' => Token::Number(self.take(number_length(rest))),
            b'.' if rest.get(1).is_some_and(|c| is_word(*c)) => {
                let mut length = 1;
                while rest.get(length).is_some_and(|c| is_word(*c)) {
                    length += 1;
                    let colons = rest[length..].starts_with(b"::");
                    if colons && rest.get(length + 2).is_some_and(|c| is_word(*c)) {
                        length += 2;
                    }
                }
                Token::Dotted(&self.take(length)[1..])
            }
            b'"' => {
                let inner = self.string(place)?;
                Token::Text(inner)
            }
            other if other.is_ascii() => {
                self.at += 1;
                Token::Punct(other)
            }
            _ => {
                let character = self.text[self.at..].chars().next().unwrap_or_default();
                return Err(place.error(format!("`{}`", character.escape_default()), "PTX, which is ASCII"));
            }
        };
        Ok((token, place, self.at))
    }

    /// What stands between the offset `start` and the next `}`, which is consumed.
    pub(super) fn raw_until_brace(&mut self, start: usize) -> Result<&'a str, PtxError> {
        let begin = self.place();
        match self.text[start..].find('}') {
            Some(length) => {
                let raw = &self.text[start..start + length];
                for (i, _) in raw.match_indices('\n').filter(|(i, _)| start + i >= self.at) {
                    self.line += 1;
                    self.line_start = start + i + 1;
                }
                self.at = start + length + 1;
                Ok(raw)
            }
            None => Err(begin.error("the end of the text".into(), "`}` to end the section")),
        }
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> &'a str {
        &self.text[start..end]
    }

    fn place(&self) -> Place {
        Place { offset: self.at, line: self.line, line_start: self.line_start }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let taken = &self.text[self.at..self.at + length];
        self.at += length;
        taken
    }

    fn string(&mut self, place: Place) -> Result<&'a str, PtxError> {
        let body = &self.text[self.at + 1..];
        let mut escaped = false;
        for (i, c) in body.bytes().enumerate() {
            match c {
                b'"' if !escaped => {
                    self.at += i + 2;
                    return Ok(&body[..i]);
                }
                b'\n' => break,
                _ => escaped = c == b'\\' && !escaped,
            }
        }
        Err(place.error("a string without an end".into(), "`\"` on the same line"))
    }

    fn skip_blanks(&mut self) -> Result<(), PtxError> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at) {
                Some(b'\n') => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                }
                // Some compilers end a module that they hand over in memory with a zero byte.
                Some(b' ' | b'\t' | b'\r' | 0) => self.at += 1,
                Some(b'/') if bytes.get(self.at + 1) == Some(&b'/') => {
                    self.at = self.text[self.at..].find('\n').map_or(bytes.len(), |length| self.at + length);
                }
                Some(b'/') if bytes.get(self.at + 1) == Some(&b'*') => {
                    let place = self.place();
                    let Some(length) = self.text[self.at + 2..].find("*/") else {
                        return Err(place.error("a comment without an end".into(), "`*/`"));
                    };
                    let end = self.at + 2 + length + 2;
                    for (i, _) in self.text[self.at..end].match_indices('\n') {
                        self.line += 1;
                        self.line_start = self.at + i + 1;
                    }
                    self.at = end;
                }
                _ => return Ok(()),
            }
        }
    }
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$'
}

/// The length of the number that the bytes start with, fraction and exponent included.
fn number_length(bytes: &[u8]) -> usize {
    let digits = |from: usize| bytes[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let whole = digits(0);
    if bytes.get(whole) != Some(&b'.') || digits(whole + 1) == 0 {
        return bytes.iter().take_while(|c| is_word(**c)).count();
    }
    let length = whole + 1 + digits(whole + 1);
    let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
    let exponent = matches!(bytes.get(length), Some(b'e' | b'E'));
    if exponent && bytes.len() > length + 1 + sign && digits(length + 1 + sign) > 0 {
        return length + 1 + sign + digits(length + 1 + sign);
    }
    length
}
