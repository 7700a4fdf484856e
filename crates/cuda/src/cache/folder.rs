//! The folder where compiled kernels are kept.
//!
//! Nothing is ever lost with it: the worst outcome of a missing, full or unreadable folder is that kernels are compiled
//! again.

use std::path::{Path, PathBuf};
use std::{fs, io};

use etcetera::BaseStrategy;

use super::trust;

/// Names the cache folder; `off` or an empty value turns the cache off.
pub const CACHE_VARIABLE: &str = "TILEWRIGHT_CACHE_DIR";

/// Where the cache is. It may not exist yet.
///
/// ```
/// if let Some(folder) = tilewright_cuda::CacheFolder::locate() {
///     println!("{}", folder.path().display());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFolder {
    path: PathBuf,
}

/// What is in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Number of files.
    pub files: u64,
    /// Their sizes added up.
    pub bytes: u64,
}

impl CacheFolder {
    /// The folder named by [`CACHE_VARIABLE`], else `tilewright` in the user's cache folder; `None` where the cache is
    /// turned off or the user has no home.
    pub fn locate() -> Option<CacheFolder> {
        let named = std::env::var_os(CACHE_VARIABLE);
        CacheFolder::from_setting(named.as_deref().map(Path::new), || {
            etcetera::choose_base_strategy().ok().map(|base| base.cache_dir())
        })
    }

    fn from_setting(named: Option<&Path>, user_cache: impl Fn() -> Option<PathBuf>) -> Option<CacheFolder> {
        match named {
            Some(off) if off.as_os_str().is_empty() || off == Path::new("off") => None,
            Some(path) => Some(CacheFolder { path: path.to_path_buf() }),
            None => user_cache().map(|base| CacheFolder { path: base.join("tilewright") }),
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts what is in the folder; a folder that does not exist yet holds nothing.
    pub fn usage(&self) -> io::Result<CacheUsage> {
        let mut usage = CacheUsage::default();
        let mut folders = vec![self.path.clone()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                // Other processes may remove files while we look; links are not followed, so there are no loops.
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                    Ok(metadata) => {
                        usage.files += 1;
                        usage.bytes += metadata.len();
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(usage)
    }

    /// Tries to create the folder and a file in it, as the cache would, and leaves nothing behind.
    pub fn check_writable(&self) -> io::Result<()> {
        let existed = self.path.is_dir();
        trust::private_folder(&self.path)?;
        let probe = self.path.join(format!(".probe-{}", std::process::id()));
        fs::write(&probe, b"probe")?;
        fs::remove_file(&probe)?;
        if !existed {
            // Somebody else may have begun to use it: then it stays.
            let _ = fs::remove_dir(&self.path);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_wins_and_can_turn_the_cache_off() {
        let home = || Some(PathBuf::from("home"));
        let folder = |named: Option<&str>| CacheFolder::from_setting(named.map(Path::new), home);
        assert_eq!(folder(None).unwrap().path(), Path::new("home/tilewright"));
        assert_eq!(folder(Some("elsewhere")).unwrap().path(), Path::new("elsewhere"));
        assert_eq!(folder(Some("off")), None);
        assert_eq!(folder(Some("")), None);
        assert_eq!(CacheFolder::from_setting(None, || None), None);
    }

    #[test]
    fn usage_counts_nested_files() {
        let root = tempfile::tempdir().unwrap();
        let folder = CacheFolder { path: root.path().join("cache") };
        assert_eq!(folder.usage().unwrap(), CacheUsage::default());
        folder.check_writable().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/kernel"), [0; 100]).unwrap();
        fs::write(folder.path().join("other"), [0; 20]).unwrap();
        assert_eq!(folder.usage().unwrap(), CacheUsage { files: 2, bytes: 120 });
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let folder = CacheFolder { path: root.path().join("cache") };
        fs::write(folder.path(), b"not a folder").unwrap();
        assert!(folder.check_writable().is_err());
        assert!(folder.usage().is_err());
    }
}
