//! The few encodings that cache entries and packs share: little-endian numbers, length-prefixed fields, a checksum at
//! the end.
//!
//! Reading checks every length against what is left before anything is sliced, and never allocates.

use sha2::{Digest, Sha256};

/// Bytes of the checksum that [`seal`] appends.
pub(crate) const CHECKSUM: usize = 32;

/// Appends a length and the bytes.
pub(crate) fn put_field(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    to.extend_from_slice(bytes);
}

/// Appends the checksum of all that is there.
pub(crate) fn seal(bytes: &mut Vec<u8>) {
    let checksum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&checksum);
}

/// What [`seal`] was given, if the checksum is right.
pub(crate) fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>()?;
    (Sha256::digest(content)[..] == checksum[..]).then_some(content)
}

/// Reads from the front of a slice; `None` where too little is left.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader { rest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// What [`put_field`] was given.
    pub(crate) fn field(&mut self) -> Option<&'a [u8]> {
        let length = self.u64()?;
        self.take(length)
    }

    /// A field that is text.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.field()?).ok()
    }
}
