//! Files that are written whole or not at all: what lay there is kept if the disk is full or the program is ended.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Failure;

/// Writes a file such that everybody sees all of it or what was there before.
pub(super) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    replace(path, &[bytes.as_ref()]).map_err(|error| Failure::file("writing", path, &error))
}

/// Writes these pieces to a file beside it and gives it the name when it is complete, so that nobody ever sees half of it. What is there
/// and is no file (a device, a pipe) stays what it is and is written to.
pub(super) fn replace(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let mut whole = OpenOptions::new();
    whole.write(true);
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let mut device = whole.open(path)?;
        return pieces.iter().try_for_each(|piece| device.write_all(piece));
    }
    let path = &end_of_links(path);
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file name"));
    };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(hidden);
    let mut write = || {
        let mut file = whole.create(true).truncate(true).open(&temporary)?;
        // Before anything is in it.
        if let Ok(replaced) = fs::metadata(path) {
            file.set_permissions(replaced.permissions())?;
        }
        pieces.iter().try_for_each(|piece| file.write_all(piece))?;
        drop(file);
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    })
}

/// Whether two names are those of one file, which need not be there yet.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let path = end_of_links(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
        Some((folder, path.file_name()?.to_owned()))
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// A link stays a link: what it leads to is written, whether it is there or not.
fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many as systems follow.
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who may read a file stays as it was.
    #[test]
    #[cfg(unix)]
    fn permissions_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        fs::write(&own, "old").unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).unwrap();
        replace(&own, &[b"new"]).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// What is written to a device does not take its place.
    #[test]
    #[cfg(unix)]
    fn only_files_are_replaced() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let null = folder.path().join("null");
        symlink("/dev/null", &null).unwrap();
        replace(&null, &[b"gone"]).unwrap();
        assert!(fs::metadata(&null).unwrap().file_type().is_char_device());
        assert!(fs::symlink_metadata(&null).unwrap().is_symlink());

        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, &[b"n", b"ew"]).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());

        let missing = folder.path().join("missing");
        let dangling = folder.path().join("dangling");
        symlink("missing", &dangling).unwrap();
        assert!(is_same(&missing, &dangling) && !is_same(&missing, &file));
        replace(&dangling, &[b"there"]).unwrap();
        assert_eq!(fs::read(&missing).unwrap(), b"there");
        assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
        assert!(replace(folder.path(), &[b"x"]).is_err());
    }
}
