//! What the runtime costs on a GPU, against the driver called directly in the same run.
//!
//! Each measurement takes turns between ours and raw, many times, and reports medians with the tenth and the ninetieth percentile, of
//! both and of the ratios of the rounds. A bar that is missed makes the program end with 1, a machine without a GPU with 2.
//!
//! `--json FILE` keeps the results, `--quick` is a look in seconds, `--only WORD` leaves out sections whose name does not contain it.

mod copies;
mod graphs;
mod launches;
mod loading;
mod measure;
mod objects;
mod raw;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use tilewright_cuda::{Context, CudaError};

use measure::{Entry, Outcome, Settings, report};

type Section = fn(&Context, &Settings) -> Outcome<Vec<Entry>>;

/// What is measured, in this order.
const SECTIONS: &[(&str, Section)] = &[
    ("launch", launches::run),
    ("graph", graphs::run),
    ("objects", objects::run),
    ("copy", copies::run),
    ("load", loading::run),
];

/// Switches off the cache that the driver itself has, so that what is called a compilation is one. Read when the driver starts.
const NO_DRIVER_CACHE: (&str, &str) = ("CUDA_CACHE_DISABLE", "1");

#[derive(Default)]
struct Options {
    json: Option<PathBuf>,
    quick: bool,
    only: Option<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--json" => options.json = Some(value()?.into()),
                "--only" => options.only = Some(value()?),
                "--quick" => options.quick = true,
                // What `cargo bench` adds.
                "--bench" => {}
                _ => {
                    return Err(format!(
                        "unknown option `{argument}`; there are --json FILE, --quick, --only WORD"
                    ));
                }
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("error: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let (variable, value) = NO_DRIVER_CACHE;
    if std::env::var_os(variable).is_none_or(|found| found != value) {
        return again();
    }
    let context = match Context::new(0) {
        Ok(context) => context,
        Err(problem) => {
            eprintln!("{problem}; {}", problem.remedy());
            return ExitCode::from(2);
        }
    };
    match measure_all(&context, &options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("error: {problem}");
            if let Some(problem) = problem.downcast_ref::<CudaError>() {
                eprintln!("{}", problem.remedy());
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs this program once more, with what must be set before it starts.
fn again() -> ExitCode {
    let (variable, value) = NO_DRIVER_CACHE;
    let status = std::env::current_exe()
        .and_then(|me| Command::new(me).args(std::env::args_os().skip(1)).env(variable, value).status());
    match status.map(|status| status.code().and_then(|code| u8::try_from(code).ok())) {
        Ok(Some(code)) => ExitCode::from(code),
        Ok(None) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("error: this program could not be started again with {variable}={value}: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all bars were met.
fn measure_all(context: &Context, options: &Options) -> Outcome<bool> {
    raw::keep_freed_memory(context)?;
    let settings = Settings { quick: options.quick };
    let wanted =
        |name: &&(&str, Section)| options.only.as_ref().is_none_or(|only| name.0.contains(only.as_str()));
    let mut entries = Vec::new();
    println!("{:48} {:28} {:28}", context.device().name, "ours (10 to 90 %)", "raw (10 to 90 %)");
    for (_, section) in SECTIONS.iter().filter(wanted) {
        for entry in section(context, &settings)? {
            println!("{entry}");
            entries.push(entry);
        }
    }
    if let Some(path) = &options.json {
        std::fs::write(path, report(context, options.quick, &entries))?;
        println!("written to {}", path.display());
    }
    Ok(!entries.is_empty() && entries.iter().all(|entry| entry.passes() != Some(false)))
}
