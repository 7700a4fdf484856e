//! `tilewright compile`.

mod pack;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tilewright::compiler::Compiler;
use tilewright::hardware::{Arch, Element};
use tilewright::kernels::{Entry, find, named};
use tilewright::lang::Kernel;

use super::{Failure, table, whole};

/// Options of `compile`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tilewright compile --list\n  \
    tilewright compile vector_add --emit ptx\n  \
    tilewright compile gemm_hopper --arch sm_90a --emit ir -o gemm.tw\n  \
    tilewright compile transpose --arch sm_80 --line-info -o transpose.ptx\n  \
    tilewright compile --pack kernels.pack --arch sm_80,sm_90a vector_add transpose\n  \
    tilewright compile --pack ops.pack --arch sm_80,sm_90a --ops softmax,rmsnorm --columns 4096 --types bf16\n  \
    tilewright compile --pack-info kernels.pack")]
pub(super) struct Options {
    /// The kernel, by its name in the registry; several for a pack
    #[arg(value_name = "KERNEL", required_unless_present_any = ["list", "pack_info", "ops"])]
    kernels: Vec<String>,

    /// The chip, such as sm_80 or sm_90a; several for a pack [default: the plainest that runs the kernel; for a pack, all]
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<Arch>,

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

    /// Write the kernels, compiled for each chip, to a pack that programs carry with `include_bytes!`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["emit", "output"])]
    pack: Option<PathBuf>,

    /// Put machine code into the pack beside the PTX, which needs the assembler; where there is none, `auto` does without
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", default_missing_value = "always",
          num_args = 0..=1, require_equals = true, requires = "pack")]
    cubin: Cubin,

    /// Put operators of the library into the pack, as `tilewright::ops` launches them on dense matrices; `all` are all that
    /// there are for such columns and types
    #[arg(long, value_name = "OPERATOR", value_delimiter = ',', requires_all = ["pack", "columns"])]
    ops: Vec<String>,

    /// Columns of the matrices that the operators are for
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "ops")]
    columns: Vec<usize>,

    /// Types of the matrices that the operators are for: f32, f16, bf16
    #[arg(long, value_name = "TYPE", value_delimiter = ',', requires = "ops", default_value = "f32,bf16")]
    types: Vec<Element>,

    /// Put each kernel on tiles into the pack a second time, for tensors of any strides and alignment
    #[arg(long, requires = "pack")]
    any_tensor: bool,

    /// Say what is in a pack
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["kernels", "arch", "emit", "no_passes", "line_info", "output", "pack", "list", "ops"])]
    pack_info: Option<PathBuf>,

    /// List the kernels
    #[arg(long, conflicts_with_all = ["kernels", "arch", "no_passes", "line_info", "output", "pack"])]
    list: bool,

    /// Print the list, or what is in a pack, as JSON
    #[arg(long, conflicts_with_all = ["kernels"])]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Emit {
    /// The compiler's intermediate representation
    Ir,
    /// PTX
    Ptx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cubin {
    /// Where an assembler is found
    Auto,
    /// Without an assembler, fail
    Always,
    /// Only PTX
    Never,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    summary: &'static str,
    needs: String,
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    if options.list {
        return list(options.json, out);
    }
    if let Some(path) = &options.pack_info {
        return pack::info(path, options.json, out);
    }
    let compiler = |arch| Compiler::new(arch).optimise(!options.no_passes).line_info(options.line_info);
    if let Some(path) = &options.pack {
        if options.columns.contains(&0) {
            return Err(Failure::input("--columns: found 0, expected at least 1; give the lengths of rows"));
        }
        let wishes = pack::Wishes {
            kernels: &options.kernels,
            operators: pack::operators(&options.ops)?,
            all_operators: options.ops.iter().any(|name| name == "all"),
            columns: &options.columns,
            types: &options.types,
            any_tensor: options.any_tensor,
            archs: &options.arch,
            cubin: options.cubin,
        };
        return pack::write(&wishes, compiler, path, out);
    }
    let ([name], [] | [_]) = (options.kernels.as_slice(), options.arch.as_slice()) else {
        return Err(Failure::input(format!(
            "found {} kernels for {} chips, expected one of each; several go into a pack (--pack FILE)",
            options.kernels.len(),
            options.arch.len()
        )));
    };
    let (entry, arch) = choose(name, options.arch.first().copied())?;
    let build = compiler(arch).compile(stage(entry)?.func());
    let build = build.map_err(|error| Failure::Machine(error.to_string()))?;
    let text = match options.emit {
        Emit::Ir => build.func.to_string(),
        Emit::Ptx => build.code.text,
    };
    match &options.output {
        None => out.write_all(text.as_bytes())?,
        Some(path) => whole::write(path, text)?,
    }
    Ok(())
}

/// The kernel of that name, and the chip to compile it for.
pub(super) fn choose(name: &str, arch: Option<Arch>) -> Result<(&'static Entry, Arch), Failure> {
    let Some(entry) = find(name) else {
        return Err(Failure::input(unknown(name)));
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

/// What to say to whoever names a kernel that there is none of.
fn unknown(name: &str) -> String {
    let plain = name.rsplit('/').next().unwrap_or(name);
    let alike =
        |known: &String| !plain.is_empty() && (known.contains(plain) || name.contains(known.as_str()));
    let alike: Vec<String> = named().map(|(known, _)| known).filter(alike).collect();
    let hint = if alike.is_empty() { String::new() } else { format!(" there are {}, and", alike.join(", ")) };
    format!("no kernel is named `{name}`;{hint} `tilewright compile --list` lists all")
}

/// A kernel of the registry, staged. One that fails is our fault, not the user's.
fn stage(entry: &Entry) -> Result<Kernel, Failure> {
    (entry.stage)().map_err(|error| Failure::Machine(error.to_string()))
}

fn list(json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let rows: Vec<Listed> = named()
        .map(|(name, entry)| Listed { name, summary: entry.summary, needs: entry.needs.to_string() })
        .collect();
    if json {
        serde_json::to_writer_pretty(&mut *out, &rows)?;
        writeln!(out)?;
        return Ok(());
    }
    let mut table = table(&["kernel", "needs", "what it computes"]);
    for row in &rows {
        table.add_row([&row.name, &row.needs, row.summary]);
    }
    writeln!(out, "{table}")?;
    Ok(())
}
