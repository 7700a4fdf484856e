//! `tilewright bench`: measurements, one module each.

mod ladder;

use std::io::Write;

use clap::{Args, Subcommand};

use super::Failure;

/// Options of `bench`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every step of the ladder of matrix products: timed on a GPU, counted in the simulator
    Ladder(ladder::Options),
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    match &options.command {
        Command::Ladder(options) => ladder::run(options, out),
    }
}
