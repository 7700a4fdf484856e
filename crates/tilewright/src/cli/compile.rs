//! `tilewright compile`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tilewright::compiler::{Build, Compiler};
use tilewright::hardware::Arch;
use tilewright::kernels::{Entry, KERNELS, find};
use tilewright::lang::Kernel;

use super::{Failure, table};

/// Options of `compile`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tilewright compile --list\n  \
    tilewright compile vector_add --emit ptx\n  \
    tilewright compile gemm_hopper --arch sm_90a --emit ir -o gemm.tw\n  \
    tilewright compile transpose --arch sm_80 --line-info -o transpose.ptx")]
pub(super) struct Options {
    /// The kernel, by its name in the registry
    #[arg(required_unless_present = "list")]
    kernel: Option<String>,

    /// The chip, such as sm_80 or sm_90a [default: the plainest that runs the kernel]
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,

    /// What to print
    #[arg(long, value_enum, default_value = "ptx")]
    emit: Emit,

    /// Leave the code as it was staged
    #[arg(long)]
    no_passes: bool,

    /// Say in the PTX which line of Rust each instruction comes from
    #[arg(long)]
    line_info: bool,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// List the kernels
    #[arg(long, conflicts_with_all = ["kernel", "arch", "no_passes", "line_info", "output"])]
    list: bool,

    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Emit {
    /// The compiler's intermediate representation
    Ir,
    /// PTX
    Ptx,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    summary: &'static str,
    needs: String,
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let Some(name) = options.kernel.as_deref().filter(|_| !options.list) else {
        return list(options.json, out);
    };
    let (entry, arch) = choose(name, options.arch)?;
    let (_, build) =
        build(entry, Compiler::new(arch).optimise(!options.no_passes).line_info(options.line_info))?;
    let text = match options.emit {
        Emit::Ir => build.func.to_string(),
        Emit::Ptx => build.code.text,
    };
    match &options.output {
        None => out.write_all(text.as_bytes())?,
        Some(path) => fs::write(path, text).map_err(|error| Failure::file("writing", path, &error))?,
    }
    Ok(())
}

/// The kernel of that name, and the chip to compile it for.
pub(super) fn choose(name: &str, arch: Option<Arch>) -> Result<(&'static Entry, Arch), Failure> {
    let Some(entry) = find(name) else {
        let known: Vec<&str> = KERNELS.iter().map(|entry| entry.name).collect();
        return Err(Failure::input(format!("no kernel is named `{name}`; there are {}", known.join(", "))));
    };
    let arch = arch.unwrap_or(entry.needs);
    if !arch.supports(entry.needs) {
        let needs = entry.needs;
        return Err(Failure::input(format!(
            "`{name}` needs {needs}, and {arch} is not that; use --arch {needs}"
        )));
    }
    Ok((entry, arch))
}

/// Stages and compiles. A kernel of the registry that fails is our fault, not the user's.
pub(super) fn build(entry: &Entry, compiler: Compiler) -> Result<(Kernel, Build), Failure> {
    let kernel = (entry.stage)().map_err(|error| Failure::Machine(error.to_string()))?;
    let build = compiler.compile(kernel.func()).map_err(|error| Failure::Machine(error.to_string()))?;
    Ok((kernel, build))
}

fn list(json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let rows: Vec<Listed> = KERNELS
        .iter()
        .map(|entry| Listed { name: entry.name, summary: entry.summary, needs: entry.needs.to_string() })
        .collect();
    if json {
        serde_json::to_writer_pretty(&mut *out, &rows)?;
        writeln!(out)?;
        return Ok(());
    }
    let mut table = table(&["kernel", "needs", "what it computes"]);
    for row in &rows {
        table.add_row([row.name, &row.needs, row.summary]);
    }
    writeln!(out, "{table}")?;
    Ok(())
}
