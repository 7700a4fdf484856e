//! [`Library`]: cuBLASLt, if it is there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::description::Description;
use crate::error::CublasError;
use crate::ffi::Table;
use crate::matmul;

/// Names a copy of the library to use, or a folder that has one.
pub const LIBRARY_VARIABLE: &str = "TILEWRIGHT_CUBLASLT";

const NAMES: &[&str] = if cfg!(windows) {
    &["cublasLt64_13.dll", "cublasLt64_12.dll"]
} else {
    &["libcublasLt.so.13", "libcublasLt.so.12"]
};

/// cuBLASLt, loaded once for the process. It is looked for where [`LIBRARY_VARIABLE`] says, or else where the loader looks, in the folders
/// of toolkits (`CUDA_PATH`, `CUDA_HOME`, `/usr/local/cuda`), and among the packages of the Python on the path.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    pub(crate) table: &'static Table,
}

impl Library {
    /// The library.
    ///
    /// # Errors
    /// If it cannot be found, or is too old.
    pub fn load() -> Result<Library, CublasError> {
        static TABLE: OnceLock<Result<Table, CublasError>> = OnceLock::new();
        let table = TABLE.get_or_init(|| find(&places(std::env::var_os(LIBRARY_VARIABLE)))).as_ref();
        Ok(Library { table: table.map_err(Clone::clone)? })
    }

    /// Its version, such as 13.8.2.
    #[must_use]
    pub fn version(&self) -> String {
        version_text(self.table.version())
    }

    /// Describes a product to the library, without a GPU: whether this version of it knows all that the description mentions.
    ///
    /// # Errors
    /// If the description makes no sense, or the library refuses it.
    pub fn describe(&self, description: &Description) -> Result<(), CublasError> {
        description.check()?;
        matmul::layouts(*self, description)?;
        matmul::descriptor(*self, description)?;
        Ok(())
    }
}

/// Numbers are 10000 times the major version (1000 times in times long past), 100 times the minor one, and the patch.
fn version_text(number: usize) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

/// Where the library may be. The last place is asked for only if all others fail: it takes a process.
fn places(named: Option<OsString>) -> Vec<Place> {
    if let Some(named) = named {
        let path = PathBuf::from(&named);
        let inside = NAMES.iter().map(|name| Place::File(path.join(name).into()));
        return if path.is_dir() { inside.collect() } else { vec![Place::File(named)] };
    }
    let toolkits = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders: Vec<PathBuf> = toolkits.chain([PathBuf::from("/usr/local/cuda")]).collect();
    let in_folders = folders.iter().flat_map(|folder| {
        let inside = |sub: &'static str| NAMES.iter().map(move |name| folder.join(sub).join(name));
        inside("lib64").chain(inside("bin"))
    });
    let plain = NAMES.iter().map(OsString::from).chain(in_folders.map(OsString::from));
    plain.map(Place::File).chain([Place::Python]).collect()
}

/// A place to look.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// A file, by a path or by a name that the loader knows.
    File(OsString),
    /// The packages of Python.
    Python,
}

impl Place {
    fn files(&self) -> Vec<OsString> {
        match self {
            Place::File(file) => vec![file.clone()],
            Place::Python => python_packages().iter().flat_map(|folder| in_packages(folder)).collect(),
        }
    }

    fn describe(&self) -> String {
        match self {
            Place::File(file) => file.to_string_lossy().into_owned(),
            Place::Python => "the packages of Python".to_owned(),
        }
    }
}

fn find(places: &[Place]) -> Result<Table, CublasError> {
    let files = places.iter().flat_map(Place::files);
    // Lazily: what comes later is not looked for.
    match files.into_iter().find_map(|file| Table::open(&file)) {
        Some(table) => table,
        None => Err(CublasError::NoLibrary { tried: places.iter().map(Place::describe).collect() }),
    }
}

/// Folders that the Python on the path imports from.
fn python_packages() -> Vec<PathBuf> {
    let program = if cfg!(windows) { "python" } else { "python3" };
    let asked = Command::new(program)
        .args(["-c", "import sys; print('\\n'.join(sys.path))"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(PathBuf::from).collect()
}

/// Where NVIDIA's packages put it: `nvidia-cublas` for CUDA 13, `nvidia-cublas-cu12` before.
fn in_packages(folder: &Path) -> Vec<OsString> {
    let inside = ["cu13/lib", "cublas/lib", "cu13/bin", "cublas/bin"];
    let all = inside.iter().flat_map(|sub| NAMES.iter().map(move |name| Path::new(sub).join(name)));
    let found = all.map(|path| folder.join("nvidia").join(path)).filter(|path| path.is_file());
    found.map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_readable() {
        assert_eq!([130_802, 120_800].map(version_text), ["13.8.2", "12.8.0"]);
    }

    #[test]
    fn the_variable_is_the_only_place_if_it_is_set() {
        assert_eq!(places(Some("no/such/file".into())), [Place::File("no/such/file".into())]);
        let inside = places(Some(env!("CARGO_MANIFEST_DIR").into()));
        assert_eq!(inside.len(), NAMES.len());
        assert!(places(None).contains(&Place::Python));
    }

    #[test]
    fn without_the_library_the_error_says_where_it_was_looked_for() {
        let error = find(&places(Some("no/such/file".into()))).unwrap_err();
        let text = "no cuBLASLt: found none of no/such/file; install it (the toolkit, or the Python package `nvidia-cublas`) or \
                    name it with TILEWRIGHT_CUBLASLT";
        assert_eq!(error.to_string(), text);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn another_library_is_refused_by_what_it_lacks() {
        let Err(error) = find(&[Place::File("libc.so.6".into())]) else { panic!("libc is no cuBLASLt") };
        assert!(error.to_string().starts_with("`libc.so.6` has no function `cublasLt"), "{error}");
    }

    #[test]
    fn packages_without_the_library_are_passed_over() {
        assert_eq!(in_packages(Path::new(env!("CARGO_MANIFEST_DIR"))), [""; 0].map(OsString::from));
    }
}
