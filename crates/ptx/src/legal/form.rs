//! The rows of the table as data.
//!
//! The text is read once, when it is first asked for. A row that does not follow the notation would be left out; a test
//! sees to it that there is none.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use super::table::TABLE;
use crate::target::{Target, Version};
use crate::words::{Modifier, Opcode, Shape, Type};

/// A version and a target that together are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Need {
    /// The lowest version.
    pub version: Version,
    /// The plainest target.
    pub target: Target,
}

impl Need {
    /// What every instruction needs: the table does not tell older versions and targets apart.
    pub const BASE: Need = Need { version: Version::new(6, 0), target: Target::plain(50) };

    /// Need of a version and a plain target.
    pub(crate) const fn plain(major: u8, minor: u8, sm: u16) -> Need {
        Need { version: Version::new(major, minor), target: Target::plain(sm) }
    }

    /// Whether a module with this version and target may use it.
    pub fn is_met_by(self, version: Version, target: Target) -> bool {
        version >= self.version && target.includes(self.target)
    }

    /// What is enough for both; `None` if no target is.
    pub(crate) fn and(self, other: Need) -> Option<Need> {
        let target = match (self.target.includes(other.target), other.target.includes(self.target)) {
            (true, _) => self.target,
            (_, true) => other.target,
            _ => return None,
        };
        Some(Need { version: self.version.max(other.version), target })
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, ".version {} and .target {}", self.version, self.target)
    }
}

/// One form of an instruction: a row of the table.
#[derive(Debug)]
pub struct Form {
    /// The row as it stands in the table, without what it needs.
    pub(crate) text: String,
    pub(crate) opcode: Opcode,
    pub(crate) elements: Vec<Element>,
    /// How many elements at the front name the operation: words without a choice, which have a fixed place.
    pub(crate) fixed: usize,
    pub(crate) operands: Vec<OperandPattern>,
    /// Any of these is enough.
    pub(crate) needs: Vec<Need>,
    /// Whether the assembler refuses it where less is given.
    pub(crate) enforced: bool,
}

impl Form {
    /// The row in the notation of the table.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The opcode.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }
}

/// A place in the list of modifiers.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub(crate) optional: bool,
    pub(crate) variable: Option<char>,
    pub(crate) choices: Vec<Choice>,
}

#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) word: Word,
    pub(crate) raise: Option<Need>,
    /// Whether the assembler refuses it where less is given.
    pub(crate) enforced: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    Plain(Modifier),
    /// A shape with a range for `n`.
    Shapes {
        m: u16,
        from: u16,
        to: u16,
        step: u16,
        k: u16,
    },
}

impl Word {
    pub(crate) fn matches(&self, modifier: Modifier) -> bool {
        match (self, modifier) {
            (Word::Plain(word), _) => *word == modifier,
            (Word::Shapes { m, from, to, step, k }, Modifier::Shape(shape)) => {
                shape.m == *m
                    && shape.k == *k
                    && (*from..=*to).contains(&shape.n)
                    && (shape.n - from).is_multiple_of(*step)
            }
            _ => false,
        }
    }

    /// Every modifier that it stands for.
    pub(crate) fn modifiers(&self) -> Vec<Modifier> {
        match *self {
            Word::Plain(word) => vec![word],
            Word::Shapes { m, from, to, step, k } => {
                (from..=to).step_by(step.into()).map(|n| Modifier::Shape(Shape { m, n, k })).collect()
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct OperandPattern {
    pub(crate) presence: Presence,
    pub(crate) alternatives: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Presence {
    Always,
    Optional,
    With(Modifier),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Value(Value),
    /// The values it may have; any if there are none.
    Immediate(Vec<RangeInclusive<i64>>),
    Address,
    /// An address in tensor memory, which has 32 bits.
    TensorMemory,
    Tensor(TypeRef, Count),
    Variable,
    Special,
    Label,
    Function,
    Group,
    Sink,
}

/// A register, number, or list of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) ty: TypeRef,
    pub(crate) destination: bool,
    /// The register may be wider than the type.
    pub(crate) wider: bool,
    /// `_` may stand in its place.
    pub(crate) sink: bool,
    /// Whether a predicate follows behind `|`.
    pub(crate) pair: Pair,
    /// No number in its place.
    pub(crate) register_only: bool,
    /// `!` may stand before it.
    pub(crate) negatable: bool,
    pub(crate) count: Option<Count>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pair {
    None,
    Optional,
    Required,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TypeRef {
    Fixed(Type),
    Bound(char),
    /// Twice as wide as the bound type.
    Double(char),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count {
    Fixed(usize),
    /// The number in the bound word, less something; one without braces if nothing is bound and nothing taken away.
    Bound(char, usize),
    /// The number in the bound word times something.
    Times(char, usize),
    /// The `n` of the shape divided by something.
    Columns(usize),
}

/// All rows.
pub fn forms() -> &'static [Form] {
    &table().forms
}

/// The rows of an opcode.
pub(crate) fn forms_of(opcode: Opcode) -> impl Iterator<Item = &'static Form> {
    let table = table();
    table.index.get(&opcode).into_iter().flatten().map(|&at| &table.forms[at])
}

struct Table {
    forms: Vec<Form>,
    index: HashMap<Opcode, Vec<usize>>,
    #[cfg_attr(not(test), allow(dead_code, reason = "a test asks for it"))]
    bad: Vec<String>,
}

fn table() -> &'static Table {
    static FORMS: OnceLock<Table> = OnceLock::new();
    FORMS.get_or_init(|| {
        let mut table = Table { forms: Vec::new(), index: HashMap::new(), bad: Vec::new() };
        let mut definitions: Vec<(&str, String)> = Vec::new();
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some((name, text)) = line.strip_prefix("let ").and_then(|rest| rest.split_once(" = ")) {
                definitions.push((name, substitute(text, &definitions)));
                // `$to` must not be taken for the start of `$tocache`.
                definitions.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
                continue;
            }
            for row in variants(substitute(line, &definitions)) {
                match Form::read(&row) {
                    Some(form) => {
                        table.index.entry(form.opcode).or_default().push(table.forms.len());
                        table.forms.push(form);
                    }
                    None => table.bad.push(row),
                }
            }
        }
        table
    })
}

fn substitute(text: &str, definitions: &[(&str, String)]) -> String {
    definitions
        .iter()
        .fold(text.to_string(), |text, (name, meaning)| text.replace(&format!("${name}"), meaning))
}

/// A group of several words, such as `{.relaxed.cluster}`, is there or not: two rows.
fn variants(row: String) -> Vec<String> {
    let modifiers = row.find(char::is_whitespace).unwrap_or(row.len());
    let mut from = 0;
    while let Some(open) = row[from..modifiers].find('{').map(|at| from + at) {
        let Some(close) = row[open..modifiers].find('}').map(|at| open + at) else { break };
        let inner = &row[open + 1..close];
        // Versions contain dots too, but no letter follows those.
        let words = inner.match_indices('.').filter(|(at, _)| {
            !inner[..*at].ends_with(|c: char| c.is_ascii_digit() && is_version(inner, *at))
        });
        if words.count() > 1 {
            let with = format!("{}{inner}{}", &row[..open], &row[close + 1..]);
            let without = format!("{}{}", &row[..open], &row[close + 1..]);
            return [with, without].into_iter().flat_map(variants).collect();
        }
        from = close + 1;
    }
    vec![row]
}

/// Whether the dot at `at` belongs to a version: `@7.4`.
fn is_version(text: &str, at: usize) -> bool {
    text[..at].rfind('@').is_some_and(|start| text[start + 1..at].bytes().all(|c| c.is_ascii_digit()))
}

impl Form {
    fn read(row: &str) -> Option<Form> {
        let (pattern, needs) = row.split_once(';').unwrap_or((row, "6.0 sm_50"));
        let enforced = !needs.contains('~');
        let needs =
            needs.split('/').map(|need| read_need(need.trim(), ' ')).collect::<Option<Vec<Need>>>()?;
        let pattern = pattern.trim();
        let (words, operands) = pattern.split_once(char::is_whitespace).unwrap_or((pattern, ""));
        let start = words.find(['.', '{']).unwrap_or(words.len());
        let opcode = Opcode::from_text(&words[..start])?;
        let elements = read_elements(&words[start..])?;
        let fixed =
            elements.iter().take_while(|element| !element.optional && element.choices.len() == 1).count();
        let operands = split(operands, ',').into_iter().map(|text| read_operand(text.trim()));
        let text = pattern.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(Form {
            text,
            opcode,
            elements,
            fixed,
            operands: operands.collect::<Option<_>>()?,
            needs,
            enforced,
        })
    }
}

/// `7.4 sm_80` or `7.4/sm_80`, with or without `~`
fn read_need(text: &str, separator: char) -> Option<Need> {
    let (version, target) = text.split_once(separator)?;
    let version = version.strip_suffix('~').unwrap_or(version);
    Some(Need { version: version.parse().ok()?, target: target.trim().parse().ok()? })
}

fn read_elements(mut text: &str) -> Option<Vec<Element>> {
    let mut elements = Vec::new();
    while !text.is_empty() {
        let (optional, body, rest) = match text.strip_prefix("{.") {
            Some(inner) => {
                let (body, rest) = inner.split_once('}')?;
                (true, body, rest)
            }
            None => {
                let inner = text.strip_prefix('.')?;
                let end = inner
                    .match_indices(['.', '{'])
                    .map(|(at, _)| at)
                    .find(|&at| !is_version(inner, at))
                    .unwrap_or(inner.len());
                (false, &inner[..end], &inner[end..])
            }
        };
        text = rest;
        let mut characters = body.chars();
        let (variable, body) = match (characters.next(), characters.next()) {
            (Some(letter), Some('=')) => (Some(letter), &body[2..]),
            _ => (None, body),
        };
        let choices = body.split('|').map(read_choice).collect::<Option<Vec<Choice>>>()?;
        elements.push(Element { optional, variable, choices });
    }
    Some(elements)
}

fn read_choice(text: &str) -> Option<Choice> {
    let (word, raise) = match text.split_once('@') {
        Some((word, need)) => (word, Some(read_need(need, '/')?)),
        None => (text, None),
    };
    let word = match word.split_once('[') {
        Some((m, rest)) => {
            let (range, k) = rest.split_once("]k")?;
            let (range, step) = range.split_once('/')?;
            let (from, to) = range.split_once('-')?;
            let m = m.strip_prefix('m')?.strip_suffix('n')?;
            let number = |text: &str| text.parse().ok();
            Word::Shapes {
                m: number(m)?,
                from: number(from)?,
                to: number(to)?,
                step: number(step)?,
                k: number(k)?,
            }
        }
        None => Word::Plain(Modifier::from_text(word)?),
    };
    Some(Choice { word, raise, enforced: !text.contains('~') })
}

/// Splits at a separator that stands in no bracket; no parts for no text.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            _ if c == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

fn read_operand(text: &str) -> Option<OperandPattern> {
    let (body, presence) = if let Some(body) = text.strip_suffix('?') {
        (body, Presence::Optional)
    } else if let Some((body, word)) = text.strip_suffix('>').and_then(|inner| inner.split_once('<')) {
        (body, Presence::With(Modifier::from_text(word)?))
    } else {
        (text, Presence::Always)
    };
    let alternatives = split(body, '/').into_iter().map(read_kind).collect::<Option<Vec<Kind>>>()?;
    Some(OperandPattern { presence, alternatives })
}

fn read_kind(text: &str) -> Option<Kind> {
    Some(match text {
        "[]" => Kind::Address,
        "[t]" => Kind::TensorMemory,
        "_" => Kind::Sink,
        "var" => Kind::Variable,
        "sreg" => Kind::Special,
        "label" => Kind::Label,
        "func" => Kind::Function,
        "group" => Kind::Group,
        "imm" => Kind::Immediate(Vec::new()),
        _ => {
            if let Some(values) = text.strip_prefix("imm(").and_then(|rest| rest.strip_suffix(')')) {
                let range = |part: &str| match part.split_once("..") {
                    Some((from, to)) => Some(from.parse().ok()?..=to.parse().ok()?),
                    None => part.parse().ok().map(|value| value..=value),
                };
                return Some(Kind::Immediate(values.split(',').map(range).collect::<Option<_>>()?));
            }
            if let Some(list) = text.strip_prefix("[{").and_then(|rest| rest.strip_suffix("}]")) {
                let (ty, count) = list.split_once('*')?;
                return Some(Kind::Tensor(read_type(ty)?, read_count(count)?));
            }
            Kind::Value(read_value(text)?)
        }
    })
}

fn read_value(text: &str) -> Option<Value> {
    let (destination, text) = text.strip_prefix('=').map_or((false, text), |rest| (true, rest));
    let (negatable, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let (pair, text) = match (text.strip_suffix("|p"), text.strip_suffix("&p")) {
        (Some(rest), _) => (Pair::Optional, rest),
        (_, Some(rest)) => (Pair::Required, rest),
        _ => (Pair::None, text),
    };
    let list = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let (text, count) = match list.unwrap_or(text).split_once('*') {
        Some((text, count)) => (text, Some(read_count(count)?)),
        None => (text, None),
    };
    let (sink, text) = text.strip_suffix('_').map_or((false, text), |rest| (true, rest));
    let (register_only, text) = text.strip_suffix('#').map_or((false, text), |rest| (true, rest));
    let (wider, text) = text.strip_suffix('+').map_or((false, text), |rest| (true, rest));
    Some(Value { ty: read_type(text)?, destination, wider, sink, pair, register_only, negatable, count })
}

fn read_type(text: &str) -> Option<TypeRef> {
    let letter = |text: &str| text.chars().next().filter(|c| c.is_ascii_uppercase() && text.len() == 1);
    if let Some(variable) = letter(text) {
        return Some(TypeRef::Bound(variable));
    }
    if let Some(variable) = text.strip_prefix('2').and_then(letter) {
        return Some(TypeRef::Double(variable));
    }
    Type::from_text(if text == "p" { "pred" } else { text }).map(TypeRef::Fixed)
}

fn read_count(text: &str) -> Option<Count> {
    if let Ok(count) = text.parse() {
        return Some(Count::Fixed(count));
    }
    if let Some(divisor) = text.strip_prefix("n/") {
        return divisor.parse().ok().map(Count::Columns);
    }
    if let Some((variable, factor)) = text.split_once('*') {
        return Some(Count::Times(variable.chars().next()?, factor.parse().ok()?));
    }
    let (variable, less) = text.split_once('-').unwrap_or((text, "0"));
    Some(Count::Bound(variable.chars().next()?, less.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_follows_the_notation() {
        assert_eq!(table().bad, Vec::<String>::new());
        assert!(forms().len() > 400, "{}", forms().len());
        for form in forms() {
            assert!(!form.text.contains('$'), "{}", form.text);
        }
    }

    #[test]
    fn a_group_of_words_becomes_two_rows() {
        assert_eq!(variants("a{.b|c@7.4/sm_80}.d x".into()), ["a{.b|c@7.4/sm_80}.d x"]);
        assert_eq!(variants("a{.b.c|d} x".into()), ["a.b.c|d x", "a x"]);
    }
}
