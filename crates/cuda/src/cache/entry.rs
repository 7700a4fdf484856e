//! One entry: what it holds, and how that lies in a file.
//!
//! ```text
//! magic 8 | version u32 | key 32 | length of meta u64 | length of payload u64 | meta | payload | SHA-256 of all before
//! ```
//!
//! Numbers are little-endian; meta is pairs of length-prefixed texts. A file is believed only as a whole: each part is
//! checked, in the order of the list of [`Problem`], and the key too, so that a file under a wrong name is not served.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use super::key::Key;
use super::trust;
use super::wire::{self, CHECKSUM, Reader};

const MAGIC: &[u8; 8] = b"TWcache\n";
const VERSION: u32 = 1;
const HEADER: usize = 8 + 4 + 32 + 8 + 8;

/// The largest file that is written or read, whatever the cap: a damaged length must not make us ask for more memory.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// What the cache keeps under a [`Key`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Facts about the payload, for people and for the reader: names and values, in order.
    pub meta: Vec<(String, String)>,
    /// The bytes, for example a cubin.
    pub payload: Vec<u8>,
}

impl Entry {
    /// The value of the first fact of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.meta.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Why a file or folder of the cache is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file does not begin like an entry.
    #[error("not a cache entry: the first bytes are wrong")]
    Magic,
    /// The file has another format.
    #[error("format {found}, expected {VERSION}")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// The file is an entry, but of another name.
    #[error("holds the entry {found}, not the one it is named for")]
    Key {
        /// The key in the file.
        found: Key,
    },
    /// The file is shorter or longer than it says.
    #[error("{found} bytes long, expected {expected}")]
    Length {
        /// Bytes in the file.
        found: u64,
        /// What the header says, or the least or most that an entry can have.
        expected: u64,
    },
    /// The bytes are not those that were written.
    #[error("damaged: the checksum does not match")]
    Checksum,
    /// The facts cannot be read.
    #[error("the facts about the entry cannot be read")]
    Meta,
    /// A writer was killed and left this file.
    #[error("left over by a writer that did not finish")]
    Leftover,
    /// The name is not one that the cache gives.
    #[error("not a file of the cache; it is left alone")]
    Stranger,
    /// A link, folder or device where a file should be.
    #[error("not a regular file")]
    NotAFile,
    /// A link or file where a folder should be.
    #[error("not a folder (links are not followed)")]
    NotAFolder,
    /// Somebody else's; code is not loaded from there.
    #[error(
        "belongs to user {found}, expected {expected} or root: refused, since compiled kernels are code; name another folder"
    )]
    Owner {
        /// The owner's number.
        found: u32,
        /// This user's number.
        expected: u32,
    },
    /// Others can write it; code is not loaded from there.
    #[error(
        "others can write it (mode {found:04o}): refused, since compiled kernels are code; run chmod go-w on it"
    )]
    Mode {
        /// The permission bits.
        found: u32,
    },
    /// The system refused.
    #[error("{text}")]
    Io {
        /// The kind of error.
        kind: io::ErrorKind,
        /// The system's words.
        text: String,
    },
}

impl Problem {
    /// Whether the bytes are wrong, so that the file is of no use to anybody.
    pub fn is_damage(&self) -> bool {
        use Problem::{Checksum, Key, Length, Magic, Meta, Version};
        matches!(self, Magic | Version { .. } | Key { .. } | Length { .. } | Checksum | Meta)
    }

    /// Whether the file or folder is there, but must not be trusted.
    pub fn is_refusal(&self) -> bool {
        use Problem::{Mode, NotAFile, NotAFolder, Owner};
        matches!(self, Owner { .. } | Mode { .. } | NotAFile | NotAFolder)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Io { kind: error.kind(), text: error.to_string() }
    }
}

/// The file of an entry.
pub(super) fn encode(key: &Key, entry: &Entry) -> Vec<u8> {
    let mut meta = Vec::new();
    for text in entry.meta.iter().flat_map(|(name, value)| [name, value]) {
        wire::put_field(&mut meta, text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(HEADER + meta.len() + entry.payload.len() + CHECKSUM);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(key.bytes());
    bytes.extend_from_slice(&(meta.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&(entry.payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&meta);
    bytes.extend_from_slice(&entry.payload);
    wire::seal(&mut bytes);
    bytes
}

/// The lengths in a header that fits the name and the length of its file.
struct Header {
    meta: u64,
    payload: u64,
}

impl Header {
    /// Takes the header off the front of a file of this length; its bytes come first in what is returned, which has room
    /// for `more(header)` bytes.
    fn read(
        file: &mut File,
        key: &Key,
        found: u64,
        more: fn(&Header) -> u64,
    ) -> Result<(Header, Vec<u8>), Problem> {
        let least = (HEADER + CHECKSUM) as u64;
        if found < least {
            return Err(Problem::Length { found, expected: least });
        }
        if found > MAX_BYTES {
            return Err(Problem::Length { found, expected: MAX_BYTES });
        }
        let mut bytes = [0; HEADER];
        file.read_exact(&mut bytes)?;
        let header = Header::parse(&bytes, key, found)?;
        let length = HEADER as u64 + more(&header);
        let mut buffer = Vec::new();
        // Asked for in a way that can fail: a file with holes may be larger than the memory.
        let room = usize::try_from(length).ok().and_then(|length| buffer.try_reserve_exact(length).ok());
        let text = || format!("no memory for {length} bytes");
        room.ok_or_else(|| Problem::Io { kind: io::ErrorKind::OutOfMemory, text: text() })?;
        buffer.extend_from_slice(&bytes);
        file.take(more(&header)).read_to_end(&mut buffer)?;
        match buffer.len() as u64 {
            found if found != length => Err(Problem::Length { found, expected: length }),
            _ => Ok((header, buffer)),
        }
    }

    fn parse(bytes: &[u8; HEADER], key: &Key, found: u64) -> Result<Header, Problem> {
        let mut reader = Reader::new(bytes);
        if reader.array() != Some(*MAGIC) {
            return Err(Problem::Magic);
        }
        // The header has a fixed length: from here on nothing can be missing.
        let mut parts = || Some((reader.u32()?, reader.array()?, reader.u64()?, reader.u64()?));
        let (version, name, meta, payload) = parts().ok_or(Problem::Magic)?;
        if version != VERSION {
            return Err(Problem::Version { found: version });
        }
        if name != *key.bytes() {
            return Err(Problem::Key { found: Key::from_bytes(name) });
        }
        let expected = meta.saturating_add(payload).saturating_add((HEADER + CHECKSUM) as u64);
        if found != expected {
            return Err(Problem::Length { found, expected });
        }
        Ok(Header { meta, payload })
    }
}

fn decode_meta(bytes: &[u8]) -> Result<Vec<(String, String)>, Problem> {
    let mut reader = Reader::new(bytes);
    let mut meta = Vec::new();
    while !reader.is_empty() {
        let mut pair = || Some((reader.text()?.to_owned(), reader.text()?.to_owned()));
        meta.push(pair().ok_or(Problem::Meta)?);
    }
    Ok(meta)
}

/// A file that was looked at, so that it can be told from one put in its place since.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    #[cfg(unix)]
    inode: (u64, u64),
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Identity {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Identity {
            #[cfg(unix)]
            inode: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

/// A problem, and of which file if one was opened.
pub(super) struct Bad {
    pub(super) problem: Problem,
    pub(super) file: Option<Identity>,
}

fn read_with<T>(
    path: &Path,
    read: impl FnOnce(&mut File, u64) -> Result<T, Problem>,
) -> Result<Option<(File, T)>, Bad> {
    let opened = trust::open_file(path).map_err(|problem| Bad { problem, file: None })?;
    let Some((mut file, metadata)) = opened else { return Ok(None) };
    match read(&mut file, metadata.len()) {
        Ok(value) => Ok(Some((file, value))),
        Err(problem) => Err(Bad { problem, file: Some(Identity::of(&metadata)) }),
    }
}

/// Reads and checks a whole file; `None` where there is none.
pub(super) fn read(path: &Path, key: &Key) -> Result<Option<(File, Entry)>, Bad> {
    read_with(path, |file, length| {
        let all = |header: &Header| header.meta + header.payload + CHECKSUM as u64;
        let (header, mut bytes) = Header::read(file, key, length, all)?;
        let content = wire::unseal(&bytes).ok_or(Problem::Checksum)?;
        let end = content.len();
        let mut reader = Reader::new(content.get(HEADER..).unwrap_or_default());
        let meta = decode_meta(reader.take(header.meta).ok_or(Problem::Meta)?)?;
        // The payload moves to the front of the buffer: no second allocation for what may be megabytes.
        let payload = end - usize::try_from(header.payload).map_err(|_| Problem::Meta)?;
        bytes.truncate(end);
        bytes.drain(..payload);
        Ok(Entry { meta, payload: bytes })
    })
}

/// Reads and checks header and facts only, without the checksum.
pub(super) fn read_meta(path: &Path, key: &Key) -> Result<Option<Vec<(String, String)>>, Bad> {
    let found = read_with(path, |file, length| {
        let (_, bytes) = Header::read(file, key, length, |header| header.meta)?;
        decode_meta(&bytes[HEADER..])
    });
    Ok(found?.map(|(_, meta)| meta))
}
