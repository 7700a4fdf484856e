//! Messages for a simulator, as labels that nothing jumps to.
//!
//! The assembler drops such labels without a word, whereas it warns about a `.pragma` that it does not know. A label reads
//! `$trace3$x_20_3D_20_7B_7D$$u32$r5`: the kind and a number that makes it unique; the text with everything but ASCII letters
//! and digits as `_XX`, byte by byte; then for each value its type, escaped likewise, and its registers without `%`.

use std::fmt::Write as _;

/// What a label says.
///
/// ```
/// use tilewright_ptx::{Note, NoteKind};
/// let note = Note::from_label("$trace3$x_20_3D_20_7B_7D$$u32$r5").ok_or("no note")?;
/// assert_eq!((note.kind, &*note.text), (NoteKind::Trace, "x = {}"));
/// assert_eq!(note.values, [("u32".to_owned(), vec!["%r5".to_owned()])]);
/// assert_eq!(note.label(3), "$trace3$x_20_3D_20_7B_7D$$u32$r5");
/// assert!(Note::from_label("$L3").is_none());
/// # Ok::<(), &'static str>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// The text, with one `{}` a value.
    pub text: String,
    /// Type and registers of each value. A type is an element such as `f32`, or a vector of them such as `4xf16`, whose elements
    /// lie in the registers one after the other, low bits first.
    pub values: Vec<(String, Vec<String>)>,
}

/// What a [`Note`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoteKind {
    /// A report of values.
    Trace,
    /// The message of the conditional `trap` behind the label.
    Assert,
}

impl NoteKind {
    fn name(self) -> &'static str {
        match self {
            NoteKind::Trace => "trace",
            NoteKind::Assert => "assert",
        }
    }
}

impl Note {
    /// Reads a label; `None` if it is an ordinary one.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Note> {
        let label = label.strip_prefix('$')?;
        let kind =
            [NoteKind::Trace, NoteKind::Assert].into_iter().find(|kind| label.starts_with(kind.name()))?;
        let (number, rest) = label[kind.name().len()..].split_once('$')?;
        number.parse::<u32>().ok()?;
        let mut parts = rest.split("$$");
        let text = unescaped(parts.next()?)?;
        let values = parts.map(|part| {
            let mut words = part.split('$');
            let ty = unescaped(words.next()?).filter(|ty| !ty.is_empty())?;
            Some((ty, words.map(|register| format!("%{register}")).collect()))
        });
        Some(Note { kind, text, values: values.collect::<Option<_>>()? })
    }

    /// The label; the number makes it unique in its function.
    #[must_use]
    pub fn label(&self, number: u32) -> String {
        let mut out = format!("${}{number}${}", self.kind.name(), escaped(&self.text));
        for (ty, registers) in &self.values {
            out.push_str("$$");
            out.push_str(&escaped(ty));
            for register in registers {
                out.push('$');
                out.push_str(register.trim_start_matches('%'));
            }
        }
        out
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "_{byte:02X}");
        }
    }
    out
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'_' {
            let code = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(code, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["", "x = {}", "a_b$c \"é\" \n", "{} {}"] {
            let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
            let values =
                vec![("f32".to_owned(), strings(&["%r1"])), ("4xf16".to_owned(), strings(&["%r2", "%r3"]))];
            let note = Note { kind: NoteKind::Trace, text: text.to_owned(), values };
            let label = note.label(12);
            assert!(label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$'), "{label}");
            assert_eq!(Note::from_label(&label), Some(note));
        }
        for label in ["$L1", "$tracex$a", "$trace1", "trace1$a", "$trace1$_9", "$trace1$a$$$r1"] {
            assert_eq!(Note::from_label(label), None, "{label}");
        }
    }
}
