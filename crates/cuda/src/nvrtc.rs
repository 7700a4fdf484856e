//! CUDA C++ compiled at run time by NVIDIA's library, where it is installed (feature `nvrtc`).
//!
//! The library is looked for when it is first needed: where the variable `TILEWRIGHT_NVRTC` says, where the loader looks, and in the
//! folders of toolkits (`CUDA_PATH`, `CUDA_HOME`, `/usr/local/cuda`). Without it, compiling is an error that says so; nothing else
//! changes. What comes out is PTX, which is loaded, cached, checked and launched as any other.

use tilewright_ptx::Signature;

use crate::cache::{Entry, Key};
use crate::code::{Code, Module};
use crate::context::Context;
use crate::error::CudaError;
use crate::ffi::nvrtc::{Input, Table, table};
use crate::version::CudaVersion;

/// A program in CUDA C++.
///
/// ```
/// use tilewright_cuda::CudaSource;
/// let source = CudaSource::new("scale.cu", "template <class T> __global__ void scale(T* x, T a) { x[threadIdx.x] *= a; }")
///     .option("--use_fast_math")
///     .kernel("scale<float>");
/// match source.compile("compute_80") {
///     Ok(compiled) => assert!(compiled.ptx().contains(".target sm_80")),
///     Err(problem) => println!("{problem}; {}", problem.remedy()),
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CudaSource<'a> {
    name: &'a str,
    text: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    options: Vec<String>,
    kernels: Vec<&'a str>,
}

/// What became of a [`CudaSource`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledSource {
    ptx: String,
    log: String,
    /// Names as asked for, and as they are in the PTX.
    names: Vec<(String, String)>,
}

/// The version of the library, if it can be found.
///
/// # Errors
/// If it cannot.
pub fn nvrtc_version() -> Result<CudaVersion, CudaError> {
    let (major, minor) = table()?.version()?;
    Ok(CudaVersion { major, minor })
}

impl<'a> CudaSource<'a> {
    /// A program, with the name that messages call it by.
    #[must_use]
    pub fn new(name: &'a str, text: &'a str) -> CudaSource<'a> {
        CudaSource { name, text, headers: Vec::new(), options: Vec::new(), kernels: Vec::new() }
    }

    /// With a header that `#include` finds by its name.
    #[must_use]
    pub fn header(mut self, name: &'a str, text: &'a str) -> CudaSource<'a> {
        self.headers.push((name, text));
        self
    }

    /// With an option of the compiler. Files that options such as `-I` bring in are not part of the cache's key, so such programs are
    /// compiled anew each time.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> CudaSource<'a> {
        self.options.push(option.into());
        self
    }

    /// With a kernel to be found by its name in C++, such as `scale<float>`; those declared `extern "C"` need no mention.
    #[must_use]
    pub fn kernel(mut self, name: &'a str) -> CudaSource<'a> {
        self.kernels.push(name);
        self
    }

    /// Compiles it for a virtual architecture such as `compute_90a`.
    ///
    /// # Errors
    /// If the library is missing, or the program is wrong: then the error has the compiler's log.
    pub fn compile(&self, architecture: &str) -> Result<CompiledSource, CudaError> {
        self.compile_with(table()?, architecture)
    }

    fn compile_with(&self, table: &Table, architecture: &str) -> Result<CompiledSource, CudaError> {
        let mut options = vec![format!("--gpu-architecture={architecture}")];
        options.extend(self.options.iter().cloned());
        let input = Input {
            name: self.name,
            text: self.text,
            headers: &self.headers,
            options: &options,
            names: &self.kernels,
        };
        let output = table.compile(&input)?;
        let names = self.kernels.iter().map(|&name| name.to_owned()).zip(output.lowered).collect();
        Ok(CompiledSource { ptx: output.ptx, log: output.log, names })
    }

    /// Whether its text, headers and options are all that the result depends on.
    fn is_closed(&self) -> bool {
        let brings_files =
            ["-I", "--include-path", "-include", "--pre-include", "--pch", "-pch", "-use-pch", "--use-pch"];
        !self.options.iter().any(|option| brings_files.iter().any(|prefix| option.starts_with(prefix)))
    }

    fn key(&self, version: (u32, u32), architecture: &str) -> Key {
        let mut key = Key::builder()
            .field("cuda c++", self.text)
            .field("name", self.name)
            .field("nvrtc", format!("{}.{}", version.0, version.1))
            .field("architecture", architecture);
        for (name, text) in &self.headers {
            key = key.field("header name", name).field("header", text);
        }
        for option in &self.options {
            key = key.field("option", option);
        }
        for name in &self.kernels {
            key = key.field("kernel", name);
        }
        key.finish()
    }
}

impl CompiledSource {
    /// The PTX.
    pub fn ptx(&self) -> &str {
        &self.ptx
    }

    /// The compiler's warnings.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// A kernel's name in the PTX, by the name it was asked for with [`CudaSource::kernel`].
    pub fn lowered_name(&self, name: &str) -> Option<&str> {
        self.names.iter().find(|(asked, _)| asked == name).map(|(_, lowered)| lowered.as_str())
    }

    /// As an entry of the cache on disk.
    fn to_entry(&self) -> Entry {
        let mut meta = vec![("form".to_owned(), "ptx".to_owned()), ("log".to_owned(), self.log.clone())];
        for (asked, lowered) in &self.names {
            meta.push((format!("kernel {asked}"), lowered.clone()));
        }
        Entry { meta, payload: self.ptx.clone().into_bytes() }
    }

    fn from_entry(entry: Entry, kernels: &[&str]) -> Option<CompiledSource> {
        let names = kernels
            .iter()
            .map(|&asked| Some((asked.to_owned(), entry.get(&format!("kernel {asked}"))?.to_owned())))
            .collect::<Option<_>>()?;
        let log = entry.get("log").unwrap_or_default().to_owned();
        Some(CompiledSource { ptx: String::from_utf8(entry.payload).ok()?, log, names })
    }
}

impl Context {
    /// Compiles a program in CUDA C++ for this device and loads it. [`Module::kernel`] finds kernels by the names given to
    /// [`CudaSource::kernel`], too. PTX and machine code are kept in the cache on disk.
    ///
    /// # Safety
    /// As for [`Context::load`].
    ///
    /// # Errors
    /// If the library is missing, the program is wrong, or the driver refuses the code.
    #[allow(unsafe_code)]
    pub unsafe fn load_cuda(&self, source: &CudaSource<'_>) -> Result<Module, CudaError> {
        let table = table()?;
        let chip = self.device().compute_capability;
        // From Hopper on, the features of the chip itself, not only those that later chips keep.
        let suffix = if chip.major >= 9 { "a" } else { "" };
        let architecture = format!("compute_{}{}{suffix}", chip.major, chip.minor);
        let cache = self.cache();
        let key = if source.is_closed() { Some(source.key(table.version()?, &architecture)) } else { None };
        let known = key.as_ref().and_then(|key| cache.get(key));
        let compiled = match known.and_then(|entry| CompiledSource::from_entry(entry, &source.kernels)) {
            Some(compiled) => compiled,
            None => {
                let compiled = source.compile_with(table, &architecture)?;
                if let Some(key) = &key {
                    // The cache is an extra.
                    let _ = cache.put(key, &compiled.to_entry());
                }
                compiled
            }
        };
        // SAFETY: the caller's.
        let module = unsafe { self.load(&Code::ptx(&compiled.ptx)) }?;
        Ok(module.with_names(compiled.names))
    }
}

/// What is known of the kernels of a compiled program, without loading it.
impl CompiledSource {
    /// The signatures of its kernels.
    ///
    /// # Errors
    /// If the PTX cannot be read.
    pub fn signatures(&self) -> Result<Vec<Signature>, CudaError> {
        let module = tilewright_ptx::parse(&self.ptx).map_err(|error| CudaError::Code {
            what: "PTX",
            found: error.to_string(),
            expected: "PTX that this crate can read",
        })?;
        Ok(module.signatures())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_bring_in_files_are_not_cached() {
        let source = CudaSource::new("a.cu", "").option("--use_fast_math");
        assert!(source.is_closed());
        assert!(!source.clone().option("-I/usr/include").is_closed());
        assert!(!source.option("--include-path=/usr/include").is_closed());
    }

    #[test]
    fn everything_is_part_of_the_key() {
        let source = CudaSource::new("a.cu", "text");
        let key = |source: &CudaSource<'_>| source.key((12, 8), "compute_90a");
        let plain = key(&source);
        assert_eq!(plain, key(&CudaSource::new("a.cu", "text")));
        let others = [
            key(&source.clone().header("h", "text")),
            key(&source.clone().option("-G")),
            key(&source.clone().kernel("k")),
            key(&CudaSource::new("b.cu", "text")),
            key(&CudaSource::new("a.cu", "other")),
            source.key((12, 9), "compute_90a"),
            source.key((12, 8), "compute_90"),
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(plain, *other, "{i}");
            assert!(!others[..i].contains(other), "{i}");
        }
    }

    #[test]
    fn entries_of_the_cache_give_the_same_back() {
        let compiled = CompiledSource {
            ptx: ".version 8.0".to_owned(),
            log: "a warning".to_owned(),
            names: vec![("scale<float>".to_owned(), "_Z5scaleIfEvPT_S0_".to_owned())],
        };
        let again = CompiledSource::from_entry(compiled.to_entry(), &["scale<float>"]);
        assert_eq!(again, Some(compiled.clone()));
        assert_eq!(CompiledSource::from_entry(compiled.to_entry(), &["other"]), None);
    }
}
