//! The command line `tilewright`.
//!
//! Every command prints for people, or JSON with `--json`. Exit codes: 0 done, 1 the machine failed us (a file, a
//! check), 2 the input was wrong. `sim` differs, so that scripts can tell a kernel's faults from everything else: 2 means findings, 1
//! whatever kept it from running. Errors are one line on standard error.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
