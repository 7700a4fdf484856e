//! Signatures as lines of text, for caches; what is printed parses back.

use std::fmt;
use std::str::FromStr;

use super::{Access, Parameter, ParameterKind, PointerSpace, Signature};
use crate::error::PtxError;
use crate::words::Type;

const SPACES: [(PointerSpace, &str); 5] = [
    (PointerSpace::Global, "global"),
    (PointerSpace::Shared, "shared"),
    (PointerSpace::Local, "local"),
    (PointerSpace::Const, "const"),
    (PointerSpace::Generic, "generic"),
];

const ACCESSES: [(Access, &str); 5] = [
    (Access::Unused, "unused"),
    (Access::Read, "read"),
    (Access::Write, "write"),
    (Access::ReadWrite, "read-write"),
    (Access::Unknown, "unknown"),
];

fn word<T: PartialEq>(table: &[(T, &'static str)], of: &T) -> &'static str {
    table.iter().find(|(value, _)| value == of).map_or("?", |(_, text)| text)
}

fn value<T: Copy>(table: &[(T, &str)], of: &str) -> Option<T> {
    table.iter().find(|(_, text)| *text == of).map(|(value, _)| *value)
}

impl fmt::Display for PointerSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(&SPACES, self))
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(&ACCESSES, self))
    }
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterKind::Scalar(ty) => write!(f, "scalar:{ty}"),
            ParameterKind::Pointer(space) => write!(f, "pointer:{space}"),
            ParameterKind::Either(ty) => write!(f, "either:{ty}"),
            ParameterKind::TensorMap => f.write_str("tensor-map"),
            ParameterKind::Bytes => f.write_str("bytes"),
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameter { name, bytes, align, kind, access } = self;
        write!(f, "param {name} {bytes} {align} {kind} {access}")
    }
}

/// Prints what may be missing, as `-`.
struct Maybe<T>(Option<T>);

impl fmt::Display for Maybe<[u32; 3]> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some([x, y, z]) => write!(f, "{x},{y},{z}"),
            None => f.write_str("-"),
        }
    }
}

impl fmt::Display for Maybe<u32> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("-"),
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "kernel {} block {} max-block {} cluster {} max-cluster {} shared {} dynamic {}",
            self.name,
            Maybe(self.required_block),
            Maybe(self.max_block),
            Maybe(self.required_cluster),
            Maybe(self.max_cluster),
            self.shared_bytes,
            u8::from(self.dynamic_shared)
        )?;
        self.parameters.iter().try_for_each(|parameter| writeln!(f, "{parameter}"))
    }
}

impl FromStr for Signature {
    type Err = PtxError;

    fn from_str(text: &str) -> Result<Signature, PtxError> {
        let mut signatures = signatures_from_text(text)?;
        match (signatures.pop(), signatures.len()) {
            (Some(signature), 0) => Ok(signature),
            (_, others) => {
                let found = if others == 0 { "no kernel" } else { "several kernels" };
                Err(error(1, 1, found.to_owned(), "one line that begins with `kernel`"))
            }
        }
    }
}

/// The signatures of a module as text, one behind the other.
#[must_use]
pub fn signatures_to_text(signatures: &[Signature]) -> String {
    signatures.iter().map(Signature::to_string).collect()
}

/// Reads what [`signatures_to_text`] wrote. Empty lines do not count.
///
/// ```
/// use tilewright_ptx::{signatures_from_text, signatures_to_text};
/// let text = "kernel k block - max-block - cluster - max-cluster - shared 0 dynamic 1\n";
/// assert_eq!(signatures_to_text(&signatures_from_text(text)?), text);
/// assert_eq!(
///     signatures_from_text("kernel k block 1,2").unwrap_err().to_string(),
///     "1:16: found `1,2`, expected `-` or three numbers `x,y,z`"
/// );
/// # Ok::<(), tilewright_ptx::PtxError>(())
/// ```
///
/// # Errors
/// [`PtxError::Syntax`] with the first place that is not as printed.
pub fn signatures_from_text(text: &str) -> Result<Vec<Signature>, PtxError> {
    let mut signatures: Vec<Signature> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = Words { number, line, at: 0 };
        match words.next() {
            None => continue,
            Some((_, "kernel")) => signatures.push(words.signature()?),
            Some((at, found @ "param")) => {
                let Some(signature) = signatures.last_mut() else {
                    return Err(words.error(at, found, "`kernel` before the first `param`"));
                };
                signature.parameters.push(words.parameter()?);
            }
            Some((at, found)) => return Err(words.error(at, found, "`kernel` or `param`")),
        }
        if let Some((at, found)) = words.next() {
            return Err(words.error(at, found, "the end of the line"));
        }
    }
    Ok(signatures)
}

fn error(line: u32, column: u32, found: String, expected: &str) -> PtxError {
    PtxError::Syntax { line, column, found, expected: expected.to_owned() }
}

/// The words of a line.
struct Words<'t> {
    number: u32,
    line: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    /// The next word and where it begins.
    fn next(&mut self) -> Option<(usize, &'t str)> {
        let rest = &self.line[self.at..];
        let start = self.at + rest.find(|c: char| !c.is_whitespace())?;
        let word = self.line[start..].split_whitespace().next()?;
        self.at = start + word.len();
        Some((start, word))
    }

    fn error(&self, at: usize, found: &str, expected: &str) -> PtxError {
        let column = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
        error(self.number, column, format!("`{found}`"), expected)
    }

    /// The next word, read by `read`.
    fn read<T>(&mut self, expected: &str, read: impl Fn(&'t str) -> Option<T>) -> Result<T, PtxError> {
        let Some((at, word)) = self.next() else {
            let column = u32::try_from(self.line.len()).unwrap_or(u32::MAX).saturating_add(1);
            return Err(error(self.number, column, "the end of the line".to_owned(), expected));
        };
        read(word).ok_or_else(|| self.error(at, word, expected))
    }

    fn label(&mut self, label: &str) -> Result<(), PtxError> {
        self.read(&format!("`{label}`"), |word| (word == label).then_some(()))
    }

    fn name(&mut self) -> Result<String, PtxError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
        self.read("a name", |word| word.chars().all(legal).then(|| word.to_owned()))
    }

    fn number(&mut self) -> Result<u32, PtxError> {
        self.read("a number", number)
    }

    fn extents(&mut self, label: &str) -> Result<Option<[u32; 3]>, PtxError> {
        self.label(label)?;
        self.read("`-` or three numbers `x,y,z`", |word| {
            if word == "-" {
                return Some(None);
            }
            let mut parts = word.split(',').map(number);
            let extents = [parts.next()??, parts.next()??, parts.next()??];
            parts.next().is_none().then_some(Some(extents))
        })
    }

    fn signature(&mut self) -> Result<Signature, PtxError> {
        let name = self.name()?;
        let required_block = self.extents("block")?;
        let max_block = self.extents("max-block")?;
        let required_cluster = self.extents("cluster")?;
        self.label("max-cluster")?;
        let max_cluster = self
            .read("`-` or a number", |word| if word == "-" { Some(None) } else { number(word).map(Some) })?;
        self.label("shared")?;
        let shared_bytes = self.number()?;
        self.label("dynamic")?;
        let dynamic_shared = self.read("`0` or `1`", |word| value(&[(false, "0"), (true, "1")], word))?;
        let parameters = Vec::new();
        Ok(Signature {
            name,
            parameters,
            required_block,
            max_block,
            required_cluster,
            max_cluster,
            shared_bytes,
            dynamic_shared,
        })
    }

    fn parameter(&mut self) -> Result<Parameter, PtxError> {
        Ok(Parameter {
            name: self.name()?,
            bytes: self.number()?,
            align: self.number()?,
            kind: self
                .read("`scalar:TYPE`, `pointer:SPACE`, `either:TYPE`, `tensor-map` or `bytes`", kind)?,
            access: self.read("`unused`, `read`, `write`, `read-write` or `unknown`", |word| {
                value(&ACCESSES, word)
            })?,
        })
    }
}

/// A number as it is printed: no sign, no leading zero.
fn number(word: &str) -> Option<u32> {
    let number: u32 = word.parse().ok()?;
    (number.to_string() == word).then_some(number)
}

fn kind(word: &str) -> Option<ParameterKind> {
    match word.split_once(':') {
        Some(("scalar", ty)) => Type::from_text(ty).map(ParameterKind::Scalar),
        Some(("pointer", space)) => value(&SPACES, space).map(ParameterKind::Pointer),
        Some(("either", ty)) => Type::from_text(ty).map(ParameterKind::Either),
        None if word == "tensor-map" => Some(ParameterKind::TensorMap),
        None if word == "bytes" => Some(ParameterKind::Bytes),
        _ => None,
    }
}
