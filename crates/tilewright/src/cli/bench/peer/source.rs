//! The peer's program as a file, which goes when nobody needs it any more. The program also removes it itself when it ends, since a
//! benchmark that is stopped with Ctrl-C removes nothing.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The program.
pub(super) const PEERS: &str = include_str!("peers.py");

/// A file with it.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
}

impl Source {
    /// A new file in the folder for temporary ones. Its name is nobody else's: one that exists is never opened.
    pub(super) fn write() -> io::Result<Source> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
            let name = format!("tilewright-peers-{}-{time}-{number}.py", std::process::id());
            let path = std::env::temp_dir().join(name);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    let source = Source { path };
                    file.write_all(PEERS.as_bytes())?;
                    return Ok(source);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // The program may have done it.
        let _ = fs::remove_file(&self.path);
    }
}
