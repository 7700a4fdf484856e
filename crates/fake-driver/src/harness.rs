//! Running a test under the fake driver.
//!
//! The dynamic loader reads `LD_LIBRARY_PATH` when a process starts, so a test runs itself again as a child that finds
//! the fake first. Nothing else in the process or on the machine sees it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Inspector;

/// What can go wrong before a test under the fake driver runs.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The library was not built.
    #[error("no {file} next to {executable}: build the package `tilewright-fake-driver` with the tests")]
    NotBuilt {
        /// The file looked for.
        file: String,
        /// The test executable.
        executable: PathBuf,
    },
    /// A symbol to remove is not there.
    #[error("the fake driver has no symbol `{0}`: give the name of an exported function")]
    NoSymbol(String),
    /// Only Linux finds libraries by `LD_LIBRARY_PATH`.
    #[error("the fake driver runs on Linux only: skip the test elsewhere")]
    NotLinux,
    /// Files could not be read or written.
    #[error("the fake driver could not be installed: {0}")]
    Io(#[from] std::io::Error),
}

/// Set in the child that runs a test under the fake driver.
const INSIDE: &str = "FAKE_CUDA_INSIDE";

/// Where this project's crate `cublaslt` looks for the library.
const CUBLASLT: &str = "TILEWRIGHT_CUBLASLT";

/// The fake driver as it was built with this test.
pub fn library_path() -> Result<PathBuf, HarnessError> {
    if !cfg!(target_os = "linux") {
        return Err(HarnessError::NotLinux);
    }
    let file =
        format!("{}tilewright_fake_driver{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let executable = std::env::current_exe()?;
    // Test executables are in `deps`, examples in `examples`, both one below the profile's folder.
    let folders =
        executable.ancestors().skip(1).take(2).flat_map(|folder| [folder.join("deps"), folder.to_path_buf()]);
    let found = folders.map(|folder| folder.join(&file)).find(|path| path.is_file());
    found.ok_or(HarnessError::NotBuilt { file, executable })
}

/// Puts the fake driver into a folder under the names of the real one; returns the path of the library.
pub fn install(folder: &Path) -> Result<PathBuf, HarnessError> {
    let path = folder.join("libcuda.so.1");
    link(&library_path()?, &path)?;
    link(&path, &folder.join("libcuda.so"))?;
    Ok(path)
}

/// As [`install`], but like an older driver: without some functions.
///
/// The names are changed in the table of symbols of a copy, so that no lookup finds them.
pub fn install_without(folder: &Path, symbols: &[&str]) -> Result<PathBuf, HarnessError> {
    let mut library = std::fs::read(library_path()?)?;
    let names = symbol_names(&mut library).unwrap_or_default();
    for symbol in symbols {
        let name = [b"\0", symbol.as_bytes(), b"\0"].concat();
        let at = names.windows(name.len()).position(|part| part == name);
        let at = at.ok_or_else(|| HarnessError::NoSymbol((*symbol).into()))?;
        // The loader finds a name by its hash and then compares, so one other letter hides it.
        names[at + name.len() - 2] = b'!';
    }
    let path = folder.join("libcuda.so.1");
    std::fs::write(&path, library)?;
    link(&path, &folder.join("libcuda.so"))?;
    Ok(path)
}

/// The names of the dynamic symbols in a 64-bit ELF file.
fn symbol_names(library: &mut [u8]) -> Option<&mut [u8]> {
    const DYNAMIC_SYMBOLS: usize = 11;
    let number = |at: usize, bytes: usize| -> Option<usize> {
        Some(library.get(at..at + bytes)?.iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte)))
    };
    let (sections, size, count) = (number(0x28, 8)?, number(0x3A, 2)?, number(0x3C, 2)?);
    let symbols =
        (0..count).map(|at| sections + at * size).find(|&at| number(at + 4, 4) == Some(DYNAMIC_SYMBOLS))?;
    let names = sections + number(symbols + 0x28, 4)? * size;
    let (start, length) = (number(names + 0x18, 8)?, number(names + 0x20, 8)?);
    library.get_mut(start..start + length)
}

/// A second name for a file; to the loader both are one library, whichever it is asked for.
fn link(file: &Path, name: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(file, name);
    #[cfg(not(unix))]
    std::fs::copy(file, name).map(drop)
}

/// Makes a command find the driver that was installed in a folder.
pub fn with_driver<'c>(command: &'c mut Command, folder: &Path) -> &'c mut Command {
    let mut path = OsString::from(folder);
    if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    command.env("LD_LIBRARY_PATH", path)
}

/// How the fake driver is to behave in one test.
///
/// ```
/// use tilewright_fake_driver::Fake;
///
/// let one_small_device = Fake::new().devices(1).memory(1 << 20).fail("cuMemAllocAsync", 2, 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fake {
    variables: Vec<(&'static str, String)>,
    failures: Vec<String>,
    missing: Vec<&'static str>,
    cublaslt: bool,
}

impl Fake {
    /// Two devices, lazy, with all functions.
    pub fn new() -> Fake {
        Fake::default()
    }

    /// So many devices.
    #[must_use]
    pub fn devices(self, count: u32) -> Fake {
        self.variable("FAKE_CUDA_DEVICES", count.to_string())
    }

    /// So many bytes of memory on every device.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Fake {
        self.variable("FAKE_CUDA_MEMORY", bytes.to_string())
    }

    /// Work runs when it is given, not as late as possible.
    #[must_use]
    pub fn eager(self) -> Fake {
        self.variable("FAKE_CUDA_LAZY", "0".into())
    }

    /// A host function runs by itself after so many milliseconds.
    #[must_use]
    pub fn patience(self, milliseconds: u64) -> Fake {
        self.variable("FAKE_CUDA_PATIENCE_MS", milliseconds.to_string())
    }

    /// The `nth` call of a function fails with a code, counted from 1; with 0 every call.
    #[must_use]
    pub fn fail(mut self, function: &str, nth: u64, code: u32) -> Fake {
        self.failures.push(format!("{function}:{nth}:{code}"));
        self
    }

    /// Like an older driver, without some functions.
    #[must_use]
    pub fn without(mut self, symbols: &[&'static str]) -> Fake {
        self.missing.extend(symbols);
        self
    }

    /// Also takes the place of cuBLASLt.
    #[must_use]
    pub fn with_cublaslt(self) -> Fake {
        Fake { cublaslt: true, ..self }
    }

    fn variable(mut self, name: &'static str, value: String) -> Fake {
        self.variables.push((name, value));
        self
    }

    /// Prepares a command to run under this driver. The folder must outlive the command's process.
    pub fn prepare(&self, command: &mut Command) -> Result<TempDir, HarnessError> {
        let folder = TempDir::new()?;
        if self.missing.is_empty() {
            install(folder.path())?;
        } else {
            install_without(folder.path(), &self.missing)?;
        }
        with_driver(command, folder.path()).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.cublaslt {
            // By the name that the driver has: it is one library with one state.
            command.env(CUBLASLT, folder.path().join("libcuda.so.1"));
        }
        if !self.failures.is_empty() {
            command.env("FAKE_CUDA_FAIL", self.failures.join(","));
        }
        Ok(folder)
    }

    /// Runs the body of a `#[test]` in a process of its own that has this driver.
    ///
    /// `test` is the full name of the test function that calls this, as `cargo test` lists it.
    ///
    /// # Panics
    /// If the body panics, or the process cannot be started: it is for tests.
    #[allow(clippy::panic, reason = "the way in which a test fails")]
    pub fn run(&self, test: &str, body: impl FnOnce(Inspector)) {
        if std::env::var_os(INSIDE).is_some() {
            let Some(inspector) = Inspector::attach() else {
                panic!("{test}: the fake driver was not loaded")
            };
            return body(inspector);
        }
        let started = std::env::current_exe().map_err(HarnessError::from).and_then(|executable| {
            let mut command = Command::new(executable);
            command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
            let _folder = self.prepare(&mut command)?;
            Ok(command.output()?)
        });
        match started {
            Ok(output) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (out, err) = (text(&output.stdout), text(&output.stderr));
                let ran = out.contains("1 passed");
                assert!(output.status.success() && ran, "{test} failed under the fake driver:\n{out}\n{err}");
            }
            Err(error) => panic!("{test}: {error}"),
        }
    }
}
