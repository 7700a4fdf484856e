//! From a staged kernel to PTX in one call.
//!
//! A [`Compiler`] lowers tiles to threads if the kernel has any, runs the standard passes and the code generator, and keeps what they have to tell in a [`Build`]: remarks,
//! times, the IR after each pass if asked for. When an assembler refuses the PTX, [`Build::blame`] finds the line of Rust.
//!
//! ```
//! use tilewright_compiler::Compiler;
//! use tilewright_hardware::Arch;
//! use tilewright_lang::prelude::*;
//!
//! #[kernel(threads = 128)]
//! fn negate(x: Global<f32>, n: Val<u32>) {
//!     let i = block_id(0) * 128 + thread_id(0);
//!     if i < n {
//!         x.at(i).store(-x.at(i).load());
//!     }
//! }
//!
//! let build = Compiler::new(Arch::SM_80).compile(negate::stage()?.func())?;
//! assert!(build.code.text.contains("neg.f32"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Contract: no I/O. The same kernel and options give the same text.

use tilewright_codegen::{CodegenError, Compiled, Options};
use tilewright_hardware::Arch;
use tilewright_ir::{Diagnostic, Func, Module, PrintOptions};
use tilewright_passes::{PassError, Pipeline, Report};
use tilewright_tile::{LowerError, MapParameter};

/// How to compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compiler {
    options: Options,
    optimise: bool,
    dumps: bool,
}

/// A compiled kernel and how it came about.
#[derive(Debug, Clone)]
pub struct Build {
    /// The PTX and what a launcher must know.
    pub code: Compiled,
    /// The IR that the PTX was made from.
    pub func: Func,
    /// Tensor maps that a launch must make and pass after the author's parameters: kernels on tiles can have some.
    pub maps: Vec<MapParameter>,
    /// If programs take turns: of how many blocks on each multiprocessor. A launch passes their numbers along x, y and z
    /// after the maps.
    pub resident: Option<u32>,
    /// What the passes did.
    pub report: Report,
}

/// Why there is no PTX.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A tile has no code.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A pass failed.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The code generator failed.
    #[error(transparent)]
    Codegen(#[from] CodegenError),
}

impl Compiler {
    /// For a chip, with all passes.
    #[must_use]
    pub fn new(arch: Arch) -> Compiler {
        Compiler { options: Options::new(arch), optimise: true, dumps: false }
    }

    /// Whether instructions say which line of Rust they come from.
    #[must_use]
    pub fn line_info(mut self, on: bool) -> Compiler {
        self.options.line_info = on;
        self
    }

    /// Whether the passes run.
    #[must_use]
    pub fn optimise(self, on: bool) -> Compiler {
        Compiler { optimise: on, ..self }
    }

    /// Whether the text after each pass is kept.
    #[must_use]
    pub fn dumps(self, on: bool) -> Compiler {
        Compiler { dumps: on, ..self }
    }

    /// Compiles a kernel.
    ///
    /// # Errors
    /// What the code generator cannot express on this chip, with its place in the source.
    pub fn compile(&self, func: &Func) -> Result<Build, CompileError> {
        let (mut remarks, mut maps, mut resident) = (Vec::new(), Vec::new(), None);
        let mut module = Module::from(if func.is_tile_level() {
            let lowered = tilewright_tile::lower(func, self.options.arch)?;
            (remarks, maps, resident) = (lowered.remarks, lowered.maps, lowered.resident);
            lowered.func
        } else {
            func.clone()
        });
        let pipeline = if self.optimise { Pipeline::standard() } else { Pipeline::of(&[]) };
        let options = tilewright_passes::Options { dump: self.dumps, ..Default::default() };
        let mut report = pipeline.with(options).run(&mut module)?;
        report.remarks.splice(0..0, remarks);
        let func = module.funcs.swap_remove(0);
        let code = tilewright_codegen::compile(&func, &self.options)?;
        Ok(Build { code, func, maps, resident, report })
    }
}

impl Build {
    /// The messages of an assembler about our PTX, each with the line of Rust it is about. `log` is what `ptxas` or the driver
    /// printed; lines that name no line of PTX are left out.
    ///
    /// That an assembler refuses our PTX is a fault of this compiler, never of the kernel's author; each message says so.
    #[must_use]
    pub fn blame(&self, log: &str) -> Vec<Diagnostic> {
        log.lines()
            .filter_map(|message| {
                let (_, rest) = message.split_once(", line ")?;
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                let line: u32 = digits.parse().ok()?;
                let what = rest.split_once("; ").map_or(rest, |(_, what)| what).trim();
                let ptx = self.code.text.lines().nth(line.checked_sub(1)? as usize).unwrap_or("").trim();
                let loc = self.code.origin(line).map(|origin| origin.loc).unwrap_or_default();
                let diagnostic = Diagnostic::new(
                    format!("the assembler refused generated code: {what}"),
                    loc,
                    &self.func.locations,
                );
                Some(
                    diagnostic
                        .note(format!("line {line} of the PTX: {ptx}"))
                        .note("this is a fault of the compiler; please report it with the reproducer"),
                )
            })
            .collect()
    }

    /// What a report of a fault should contain: the IR and the PTX, as text that the tools read.
    #[must_use]
    pub fn reproducer(&self, log: &str) -> String {
        let quote = |text: &str| text.lines().map(|line| format!("; {line}\n")).collect::<String>();
        let ir = Module::from(self.func.clone()).to_text(PrintOptions { locations: true });
        format!(
            "; tilewright reproducer\n{}\n{ir}\n; the PTX that was made from it\n{}",
            quote(log),
            quote(&self.code.text)
        )
    }
}
