//! `tilewright bench`: our products beside those of cuBLASLt, in one process, by turns; the steps of the ladder; and pictures.

mod case;
mod check;
mod data;
mod gemm;
mod ladder;
mod memory;
mod ours;
mod peer;
mod plot;
mod results;
mod shape;
mod statistics;
mod timing;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Failure;
use results::Results;

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
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    match &options.command {
        Command::Gemm(options) => gemm::run(options, out),
        Command::Ladder(options) => ladder::run(options, out),
        Command::Plot(PlotOptions { results, out: picture }) => {
            let drawn = plot::draw(&Results::read(results)?);
            results::write_whole(picture, drawn.as_bytes())?;
            Ok(writeln!(out, "{}", picture.display())?)
        }
    }
}
