//! `tilewright explain`: what becomes of a kernel, stage by stage; of a matrix product, which kernels compute it on a chip, and why these.
//!
//! A kernel on tiles is explained as it is compiled for dense, aligned tensors, unless told otherwise: that is what launches mostly get.

mod columns;
mod kernel;
mod product;
mod sass;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tilewright::hardware::Arch;

use super::Failure;
use super::compile::choose;
use kernel::Compiled;

/// Options of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tilewright explain gemm_hopper\n  \
    tilewright explain transpose --arch sm_80 --diff\n  \
    tilewright explain gemm_ampere --diff=licm --json\n  \
    tilewright explain tutorial/softmax --arch sm_90a\n  \
    tilewright explain ops/rms_norm --stage tile,ptx\n  \
    tilewright explain tutorial/softmax --side-by-side --width 200\n  \
    tilewright explain ops/softmax --stage tile,ptx --html softmax.html\n  \
    tilewright explain gemm --shape 16x6144x4096\n  \
    tilewright explain gemm --shape 4096x4096x4096 --dtype f32 --gpu a100 --launch 1 --stage ptx")]
pub(super) struct Options {
    /// The kernel, by its name in the registry; `gemm` for the kernels of a matrix product
    kernel: String,

    /// The chip, such as sm_80 or sm_90a [default: the plainest that runs the kernel]
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,

    /// Show what each pass changed, or what the named one did
    #[arg(long, value_name = "PASS", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    diff: Option<String>,

    /// Print the kernel in these stages and nothing else [default: tables, and for a kernel on tiles all of its stages]
    #[arg(long, value_enum, value_name = "STAGE", value_delimiter = ',', conflicts_with = "diff")]
    stage: Vec<Stage>,

    /// Show the stages side by side, line by line of the kernel's source, and nothing else
    #[arg(long, conflicts_with_all = ["diff", "json"])]
    side_by_side: bool,

    /// Characters of a line of --side-by-side [default: those of the terminal, else 160]
    #[arg(long, value_name = "N", requires = "side_by_side")]
    width: Option<usize>,

    /// Write the stages side by side to a page of HTML
    #[arg(long, value_name = "FILE", conflicts_with_all = ["diff", "json", "side_by_side"])]
    html: Option<PathBuf>,

    /// Compile a kernel on tiles for tensors of any strides and alignment, not for dense ones
    #[arg(long)]
    any_tensor: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten, next_help_heading = "Matrix products")]
    product: product::Options,
}

/// A form that a kernel has on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    /// The IR of tiles
    Tile,
    /// The IR of threads, after all passes
    Threads,
    /// PTX
    Ptx,
    /// The GPU's instructions, where there are NVIDIA's assembler and disassembler
    Sass,
}

impl Stage {
    fn title(self) -> &'static str {
        match self {
            Stage::Tile => "tile IR",
            Stage::Threads => "thread IR",
            Stage::Ptx => "PTX",
            Stage::Sass => "SASS",
        }
    }
}

impl Options {
    /// Whether stages are all that was asked for, as text or as a page.
    fn only_stages(&self) -> bool {
        self.side_by_side || self.html.is_some() || !(self.stage.is_empty() || self.json)
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(pass) = options.diff.as_deref().filter(|pass| !pass.is_empty()) {
        tilewright::passes::Pass::named(pass).map_err(Failure::input)?;
    }
    if options.kernel == product::NAME {
        return product::run(options, out);
    }
    options.product.refuse(&options.kernel)?;
    let (entry, arch) = choose(&options.kernel, options.arch)?;
    let kernel = (entry.stage)().map_err(|error| Failure::Machine(error.to_string()))?;
    let compiled = Compiled::new(&options.kernel, &kernel, arch, options)?;
    if options.only_stages() {
        return compiled.show_stages(options, out);
    }
    let explanation = compiled.explanation(options)?;
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &explanation)?;
        return Ok(writeln!(out)?);
    }
    explanation.write(out)
}
