//! `tilewright bench`: our products beside those of cuBLASLt, in one process, by turns; the steps of the ladder; and pictures.

mod case;
mod check;
mod data;
mod gemm;
mod ladder;
mod memory;
mod ours;
mod page;
mod peer;
mod plot;
mod results;
mod shape;
mod showcase;
mod statistics;
mod timing;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Failure;
use results::Results;
pub(super) use showcase::Showcase;

/// Options of `bench`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure matrix products, beside those of cuBLASLt where it is installed
    Gemm(Box<gemm::Options>),
    /// Run every step of the ladder of matrix products: timed on a GPU, counted in the simulator
    Ladder(ladder::Options),
    /// Draw what was kept by `bench gemm --json`
    Plot(PlotOptions),
}

#[derive(Debug, Args)]
struct PlotOptions {
    /// Results of `bench gemm --json`
    results: PathBuf,
    /// The picture, an SVG
    #[arg(long, value_name = "FILE.svg")]
    out: PathBuf,
    /// Put a table of the results, and the picture, into a page, between its marks
    #[arg(long, value_name = "FILE.md")]
    doc: Option<PathBuf>,
}

impl PlotOptions {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let results = Results::read(&self.results)?;
        if let Some(path) = &self.doc {
            let text =
                std::fs::read_to_string(path).map_err(|error| Failure::file("reading", path, &error))?;
            let text = page::replaced(&text, &results, &self.out).ok_or_else(|| {
                Failure::Input(format!(
                    "{}: found no lines `{}` and `{}`, expected both: the table goes between them",
                    path.display(),
                    page::MARK,
                    page::END
                ))
            })?;
            results::write_whole(path, text.as_bytes())?;
        }
        results::write_whole(&self.out, plot::draw(&results).as_bytes())?;
        Ok(writeln!(out, "{}", self.out.display())?)
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    match &options.command {
        Command::Gemm(options) => gemm::run(options, out),
        Command::Ladder(options) => ladder::run(options, out),
        Command::Plot(options) => options.run(out),
    }
}
