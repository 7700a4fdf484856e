//! Names of cache entries: the hash of everything that decides their content.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// Goes into every key: a change of what fields mean makes all older entries unreachable.
const SCHEME: &[u8] = b"tilewright cache key 1";

/// The name of an entry: a SHA-256 over named fields.
///
/// ```
/// use tilewright_cuda::Key;
///
/// let key = |target: &str| Key::builder().field("ptx", ".version 8.0").field("target", target).finish();
/// assert_eq!(key("sm_90a"), key("sm_90a"));
/// assert_ne!(key("sm_90a"), key("sm_80"));
/// assert_eq!(key("sm_80").to_string().parse(), Ok(key("sm_80")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

/// Collects the fields of a [`Key`]. Their order counts.
#[derive(Clone, Debug)]
#[must_use]
pub struct KeyBuilder {
    hash: Sha256,
}

impl Key {
    /// Begins a key.
    pub fn builder() -> KeyBuilder {
        KeyBuilder { hash: Sha256::new_with_prefix(SCHEME) }
    }

    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl KeyBuilder {
    /// Adds a field. Name and value are hashed with their lengths, so that no two lists of fields read alike.
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> KeyBuilder {
        for part in [name.as_bytes(), value.as_ref()] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
        self
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key(self.hash.finalize().into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Not the 64 lower-case hexadecimal digits of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not a cache key: expected 64 hexadecimal digits in lower case")]
pub struct KeyError {
    found: String,
}

impl FromStr for Key {
    type Err = KeyError;

    /// One spelling only, because file names are read with this: an upper-case digit would name a second file.
    fn from_str(text: &str) -> Result<Key, KeyError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let parse = || {
            let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
            let mut bytes = [0; 32];
            for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
                *byte = digit(pair[0])? << 4 | digit(pair[1])?;
            }
            Some(Key(bytes))
        };
        parse().ok_or_else(|| KeyError { found: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stable_across_processes_and_versions() {
        // Written down once: a change here means that every user's cache is forgotten.
        let key = Key::builder().field("ptx", "text").field("target", "sm_90a").finish();
        assert_eq!(key.to_string(), "8707f71adf15af3fd1897fe738d55f77432714c23b8914791b30035e44f4ba06");
    }

    #[test]
    fn fields_cannot_run_into_each_other() {
        let key = |fields: &[(&str, &str)]| {
            let builder = fields.iter().fold(Key::builder(), |key, (name, value)| key.field(name, value));
            builder.finish()
        };
        let lists: [&[(&str, &str)]; 7] = [
            &[],
            &[("", "")],
            &[("a", "bc")],
            &[("ab", "c")],
            &[("a", "b"), ("c", "")],
            &[("a", ""), ("b", "c")],
            &[("a", "b"), ("", "c")],
        ];
        for (index, one) in lists.iter().enumerate() {
            for other in &lists[..index] {
                assert_ne!(key(one), key(other), "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn only_one_spelling_is_read() {
        let text = Key::builder().finish().to_string();
        assert!(text.parse::<Key>().is_ok());
        for wrong in [
            &text[1..],
            &text.to_uppercase(),
            &format!("{text}0"),
            &text.replacen(char::is_numeric, "g", 1),
            "",
        ] {
            let error = wrong.parse::<Key>().unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
    }
}
