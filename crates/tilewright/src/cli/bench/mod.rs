//! `tilewright bench`: our products beside those of cuBLASLt, in one process, by turns; ops beside those of torch and Triton; the steps of
//! the ladder; and pictures.

mod check;
mod cublas;
mod data;
mod gemm;
mod ladder;
mod measuring;
mod memory;
mod ops;
mod ours;
mod page;
mod peer;
mod plot;
mod results;
mod showcase;
mod statistics;
mod svg;
mod timing;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{Failure, whole};
use results::{Results, Row};
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
    #[command(flatten)]
    Ops(ops::Command),
    /// Draw what was kept by `--json` of products or ops
    Plot(PlotOptions),
}

#[derive(Debug, Args)]
struct PlotOptions {
    /// Results of `--json`
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
        let path = &self.results;
        let text = std::fs::read_to_string(path).map_err(|error| Failure::file("reading", path, &error))?;
        let picture = if ops::are_ops(&text) {
            let results = Results::<ops::Row>::parse(path, &text)?;
            self.put(ops::MARK, |page| ops::replaced(page, &results, self.picture()))?;
            ops::draw(&results)
        } else {
            let results = Results::<Row>::parse(path, &text)?;
            self.put(page::MARK, |page| page::replaced(page, &results, self.picture()))?;
            plot::draw(&results)
        };
        whole::write(&self.out, picture.as_bytes())?;
        Ok(writeln!(out, "{}", self.out.display())?)
    }

    /// The picture as the page names it: from the page's own folder, if it lies there.
    fn picture(&self) -> &Path {
        let folder = self.doc.as_deref().and_then(Path::parent);
        folder.and_then(|folder| self.out.strip_prefix(folder).ok()).unwrap_or(&self.out)
    }

    /// Changes the page, if there is one, which must have this mark.
    fn put(&self, mark: &str, change: impl FnOnce(&str) -> Option<String>) -> Result<(), Failure> {
        let Some(path) = &self.doc else { return Ok(()) };
        let text = std::fs::read_to_string(path).map_err(|error| Failure::file("reading", path, &error))?;
        let text = change(&text).ok_or_else(|| {
            Failure::Input(format!(
                "{}: found no lines `{mark}` and `{}`, expected both: the table goes between them",
                path.display(),
                page::END
            ))
        })?;
        whole::write(path, text.as_bytes())
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    match &options.command {
        Command::Gemm(options) => gemm::run(options, out),
        Command::Ops(command) => ops::run(command, out),
        Command::Ladder(options) => ladder::run(options, out),
        Command::Plot(options) => options.run(out),
    }
}
