//! NVIDIA's offline assembler `ptxas`, where a machine has it.
//!
//! A development tool: kernels are loaded by the driver, which brings its own assembler, so no program of a user ever
//! calls this. Tests do, to prove that every kernel assembles for every architecture without spills, on machines that
//! have no GPU.
//!
//! ```
//! match tilewright_ptxas::Assembler::find() {
//!     Ok(assembler) => println!("ptxas {}", assembler.version()),
//!     Err(problem) => println!("{problem}"),
//! }
//! ```
//!
//! # Contract
//!
//! * Found by the variable [`VARIABLE`], on `PATH`, or in the toolkit that `CUDA_HOME` or `CUDA_PATH` names, in this order.
//! * A call ends after [`TIME_LIMIT`] at the latest, and leaves no files behind.

mod report;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

pub use report::{Entry, Report};

/// Names the assembler to use.
pub const VARIABLE: &str = "TILEWRIGHT_PTXAS";

/// When this is `1`, tests that need the assembler fail without it instead of being ignored.
pub const REQUIRE_VARIABLE: &str = "TILEWRIGHT_REQUIRE_PTXAS";

/// How long one call may take.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Why there is no assembler, or why it refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AssemblerError {
    /// No assembler on this machine.
    #[error("no ptxas in {searched}")]
    NotFound {
        /// Where it was looked for.
        searched: String,
    },
    /// The program is there but does not behave like an assembler.
    #[error("{path} is not a working ptxas: {reason}")]
    Unusable {
        /// The program.
        path: PathBuf,
        /// What it did.
        reason: String,
    },
    /// The assembler refused the PTX.
    #[error("ptxas refused the PTX for {arch}: {message}")]
    Refused {
        /// The architecture asked for.
        arch: String,
        /// What the assembler printed, all lines.
        message: String,
    },
    /// Files or processes failed.
    #[error("running ptxas: {0}")]
    Io(#[from] io::Error),
}

impl AssemblerError {
    /// What to do about it, in one sentence.
    pub fn remedy(&self) -> String {
        match self {
            AssemblerError::Refused { .. } => "this is a fault of the generated PTX; please report it".into(),
            _ => format!(
                "only tests of kernels and machine code in packs need it: `pip install nvidia-cuda-nvcc` and set {VARIABLE} to the ptxas in it"
            ),
        }
    }
}

/// A working assembler.
#[derive(Clone, Debug)]
pub struct Assembler {
    path: PathBuf,
    version: String,
}

impl Assembler {
    /// Finds the assembler of this machine and asks for its version.
    pub fn find() -> Result<Assembler, AssemblerError> {
        if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
            return Assembler::at(Path::new(&named));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
        let folders = std::env::split_paths(&path)
            .chain(toolkits.map(|toolkit| Path::new(&toolkit).join("bin")))
            .chain([PathBuf::from("/usr/local/cuda/bin")]);
        let name = if cfg!(windows) { "ptxas.exe" } else { "ptxas" };
        match folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file()) {
            Some(path) => Assembler::at(&path),
            None => {
                let searched = format!("{VARIABLE}, PATH, CUDA_HOME and CUDA_PATH");
                Err(AssemblerError::NotFound { searched })
            }
        }
    }

    /// The assembler at a given path.
    pub fn at(path: &Path) -> Result<Assembler, AssemblerError> {
        let unusable = |reason: String| AssemblerError::Unusable { path: path.to_path_buf(), reason };
        let folder = tempfile::tempdir()?;
        let (status, text) = run(Command::new(path).arg("--version"), folder.path())
            .map_err(|error| unusable(error.to_string()))?;
        // The version stands in a line like `Cuda compilation tools, release 13.0, V13.0.88`.
        let version = text.split([' ', ',', '\n']).find_map(|word| word.strip_prefix('V'));
        match version.filter(|_| status.success() && text.contains("assembler")) {
            Some(version) => Ok(Assembler { path: path.to_path_buf(), version: version.to_string() }),
            None => {
                Err(unusable(format!("`--version` printed {:?}", text.lines().next().unwrap_or("nothing"))))
            }
        }
    }

    /// The program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, for example `13.0.88`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Assembles `ptx` for `arch` (such as `sm_90a`) and returns what the assembler says about each kernel.
    ///
    /// ```
    /// let ptx = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    /// if let Ok(assembler) = tilewright_ptxas::Assembler::find() {
    ///     let report = assembler.assemble(ptx, "sm_90a")?;
    ///     assert_eq!((report.entries[0].name.as_str(), report.entries[0].spill_store_bytes), ("nothing", 0));
    /// }
    /// # Ok::<(), tilewright_ptxas::AssemblerError>(())
    /// ```
    pub fn assemble(&self, ptx: &str, arch: &str) -> Result<Report, AssemblerError> {
        let folder = tempfile::tempdir()?;
        let (source, binary) = (folder.path().join("kernel.ptx"), folder.path().join("kernel.cubin"));
        std::fs::write(&source, ptx)?;
        let mut command = Command::new(&self.path);
        command.arg("-v").arg(format!("-arch={arch}")).arg(&source).arg("-o").arg(&binary);
        let (status, text) = run(&mut command, folder.path())?;
        if !status.success() {
            let message = text.replace(&source.display().to_string(), "kernel.ptx").trim_end().to_string();
            return Err(AssemblerError::Refused { arch: arch.to_string(), message });
        }
        Ok(Report::parse(&text, std::fs::read(&binary)?))
    }
}

/// Runs a command to its end or to the time limit; returns all that it printed, in order.
fn run(command: &mut Command, folder: &Path) -> io::Result<(ExitStatus, String)> {
    let log = folder.join("log");
    let output = File::create(&log)?;
    let mut child = command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > TIME_LIMIT {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no end after {TIME_LIMIT:?}")));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Ok((status, String::from_utf8_lossy(&std::fs::read(&log)?).into_owned()))
}
