//! Whose files are read: a compiled kernel is code, so that whoever can write an entry can run code as the user.
//!
//! The rule: the folder that the cache makes for itself inside the named one, every folder in it and every file belong
//! to this user or to root, and nobody else can write them. The *named* folder may be anything, a shared `/scratch`
//! included: others who can write there can take our folder away or put another in its place, but that one is theirs, and
//! is refused. Files are looked at through their open handle, so that nothing can change between the look and the read.
//!
//! On systems without owners and modes nothing is refused; there the user's profile is private.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

use super::entry::Problem;

#[cfg(unix)]
fn check(metadata: &Metadata) -> Result<(), Problem> {
    use std::os::unix::fs::MetadataExt;

    const ROOT: u32 = 0;
    const OTHERS_WRITE: u32 = 0o022;
    let user = rustix::process::geteuid().as_raw();
    match metadata.uid() {
        owner if owner != user && owner != ROOT => Err(Problem::Owner { found: owner, expected: user }),
        _ if metadata.mode() & OTHERS_WRITE != 0 => Err(Problem::Mode { found: metadata.mode() & 0o7777 }),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn check(_: &Metadata) -> Result<(), Problem> {
    Ok(())
}

/// Whether there is a folder, and one to be trusted.
pub(super) fn check_folder(path: &Path) -> Result<bool, Problem> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
        Ok(metadata) if !metadata.is_dir() => Err(Problem::NotAFolder),
        Ok(metadata) => check(&metadata).map(|()| true),
    }
}

/// Makes the folder, for this user only, unless it is there.
pub(super) fn make_folder(path: &Path) -> Result<(), Problem> {
    if !check_folder(path)? {
        private_folder(path)?;
        check_folder(path)?;
    }
    Ok(())
}

/// Makes the folder and those above it, for this user only.
pub(super) fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// A new file, for this user only.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens a file for reading; `None` where there is none.
pub(super) fn open_file(path: &Path) -> Result<Option<(File, Metadata)>, Problem> {
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    // Looked at before it is opened, too: a link is not followed, and opening a pipe would wait for a writer.
    match fs::symlink_metadata(path) {
        Err(error) if absent(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.is_file() => return Err(Problem::NotAFile),
        Ok(_) => {}
    }
    match File::open(path) {
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(file) => {
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(Problem::NotAFile);
            }
            check(&metadata)?;
            Ok(Some((file, metadata)))
        }
    }
}
