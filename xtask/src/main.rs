//! Chores of this repository, as `cargo xtask`. Nothing here is part of what users get.
//!
//! | file | what |
//! | --- | --- |
//! | `targets.rs` | which programs go to a machine with a GPU, and what each of them proves: one table |
//! | `cargo.rs` | what cargo knows of the workspace, and the programs that it builds |
//! | `pack.rs` | `gpu-pack`: build, strip, compress, report |
//! | `runner.rs`, `run.sh` | what runs them there, without Rust |

mod cargo;
mod pack;
mod runner;
mod targets;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Collects the programs that need a GPU in one folder, for a machine that has one and no Rust.
    ///
    /// Copy the folder there and call its `run.sh`.
    GpuPack(pack::Options),
}

/// Why a chore was not done.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// A program did not start, or did not end well.
    #[error("`{command}` failed: {what}")]
    Command { command: String, what: String },
    /// A file could not be read or written.
    #[error("{path}: {cause}", path = path.display())]
    File { path: PathBuf, cause: io::Error },
    /// cargo said something unexpected.
    #[error("cargo's answer could not be read: {0}; is this a newer cargo?")]
    Json(#[from] serde_json::Error),
    /// A row of the table stands for nothing.
    #[error("the table of xtask/src/targets.rs names {0}, which the workspace does not have; remove the row")]
    Stale(String),
    /// Nothing is left to do.
    #[error("no program for a GPU matches `{pattern}`; there are: {known}")]
    NoMatch { pattern: String, known: String },
    /// cargo built something else.
    #[error("cargo built no program {0}")]
    NotBuilt(String),
}

impl Failure {
    /// What happened to a file.
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Failure {
        let path = path.into();
        move |cause| Failure::File { path, cause }
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::GpuPack(options) => pack::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
