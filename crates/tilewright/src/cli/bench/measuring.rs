//! What the benchmarks of products and of operators have in common on the command line: where and how long to measure, and what becomes of the results.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tilewright::device::Device;

use super::super::{Failure, whole};
use super::results::{Journal, Results, check_writable, is_stdout, tables};
use super::timing::Effort;

/// Options that are the same for all of them.
#[derive(Clone, Debug, Args)]
pub(super) struct Measuring {
    /// Where to measure: a number of a GPU, or cpu; by default the first GPU, else the CPU
    #[arg(long)]
    pub(super) device: Option<String>,
    /// Rounds of measuring that count
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Milliseconds of a sample, which is as many launches as fit
    #[arg(long, value_name = "MS", default_value_t = 3)]
    pub(super) sample: u64,
    /// Copies of the operands, which launches go through; by default as many as fill the GPU's cache three times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) copies: Option<u32>,
    /// Random numbers of the inputs
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Keep the results; rows that are done are kept in FILE.partial until all are. `-` writes them instead of the table
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Draw the results
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
}

impl Measuring {
    /// So many rounds on whatever device there is, and nothing kept.
    pub(super) fn for_rounds(rounds: u32) -> Measuring {
        Measuring { device: None, rounds, sample: 3, copies: None, seed: 1, json: None, plot: None }
    }

    /// The device of `--device`.
    pub(super) fn device(&self) -> Result<Device, Failure> {
        match self.device.as_deref() {
            None => Ok(Device::best()),
            Some("cpu") => Ok(Device::cpu()),
            Some(text) => {
                let wrong = || Failure::Input(format!("--device: found `{text}`, expected cpu or a number"));
                let ordinal = text.parse::<u32>().map_err(|_| wrong())?;
                Device::cuda(ordinal).map_err(|error| Failure::Machine(error.to_string()))
            }
        }
    }

    pub(super) fn effort(&self) -> Effort {
        Effort { rounds: self.rounds as usize, sample: Duration::from_millis(self.sample) }
    }

    /// Where tables go.
    pub(super) fn tables<'o>(&self, out: &'o mut dyn Write) -> Box<dyn Write + 'o> {
        tables(self.json.as_deref(), out)
    }

    /// Begins to keep results. Files that cannot be written are noticed here, before anything is measured.
    pub(super) fn begin<R: Clone + Serialize>(&self, head: Results<R>) -> Result<Journal<R>, Failure> {
        if let Some(path) = &self.plot {
            if is_stdout(Some(path)) {
                let why =
                    "--plot: found `-`, expected the name of a file; --json has `-` for standard output";
                return Err(Failure::Input(why.to_owned()));
            }
            check_writable(path)?;
            if self.json.as_ref().is_some_and(|json| whole::is_same(json, path)) {
                let why = format!("--json and --plot: found {} twice, expected two files", path.display());
                return Err(Failure::Input(why));
            }
        }
        Journal::begin(self.json.clone(), head)
    }

    /// All is measured: results and picture go where they were wanted.
    pub(super) fn finish<R: Clone + Serialize>(
        &self,
        journal: Journal<R>,
        draw: impl Fn(&Results<R>) -> String,
        out: &mut dyn Write,
    ) -> Result<Results<R>, Failure> {
        out.flush()?;
        let results = journal.finish()?;
        if is_stdout(self.json.as_deref()) {
            out.write_all(results.to_json()?.as_bytes())?;
            out.flush()?;
        }
        if let Some(path) = &self.plot {
            whole::write(path, draw(&results).as_bytes())?;
        }
        Ok(results)
    }
}

/// A bar on standard error, if somebody looks at it.
pub(super) fn progress(cases: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(cases as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}
