//! `tilewright bench ladder`: every step of the ladder on the same matrices.
//!
//! On a GPU the steps are timed. Without one, or with `--simulator`, the simulator runs them at a small size and says what its counters
//! say: how many instructions, bytes and clocks of shared memory a thousand multiply-adds cost, and what that allows at most.

mod chart;
mod page;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::{Deserialize, Serialize};
use tilewright::device::{Device, DeviceKind};
use tilewright::hardware::Gpu;
use tilewright::kernels::ladder::{LADDER, Step, find};
use tilewright::ladder::{Counted, LadderError, Measured, Workbench};
use tilewright::sim;

use super::super::{Failure, table, whole};
use super::results::{is_stdout, tables, today};

/// Options of `bench ladder`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tilewright bench ladder --shape 8192x8192x8192 --check --json results/ladder.json\n  \
    tilewright bench ladder --simulator --step tensor --step async\n  \
    tilewright bench ladder --from results/h200/ladder.json --plot docs/images/ladder.svg --doc docs/gemm.md")]
pub(super) struct Options {
    /// Extents of the product [default: 4096x4096x4096 on a GPU, 256x256x512 in the simulator]
    #[arg(long, value_name = "MxNxK", value_parser = extents)]
    shape: Option<[u32; 3]>,

    /// Only this step, by name or number; can be repeated [default: all that the device can run]
    #[arg(long = "step", value_name = "STEP", value_parser = step)]
    steps: Vec<&'static Step>,

    /// Count in the simulator although there is a GPU
    #[arg(long)]
    simulator: bool,

    /// Compare results with a reference before measuring; the simulator always does
    #[arg(long)]
    check: bool,

    /// Measure each step for about so long
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,

    /// Measure nothing, but take what was measured before
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shape", "steps", "simulator", "check", "json"])]
    from: Option<PathBuf>,

    /// Write the results as JSON; `-` writes them instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw the results
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// Put the table of the results into the chapter, between its marks
    #[arg(long, value_name = "FILE.md")]
    doc: Option<PathBuf>,
}

pub(super) fn extents(text: &str) -> Result<[u32; 3], String> {
    let extents: Option<Vec<u32>> = text.split('x').map(|extent| extent.parse().ok()).collect();
    let extents = extents.and_then(|extents| <[u32; 3]>::try_from(extents).ok());
    extents
        .filter(|extents| !extents.contains(&0))
        .ok_or_else(|| "expected M x N x K such as 256x256x128".into())
}

fn step(text: &str) -> Result<&'static Step, String> {
    let known = || LADDER.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    find(text).ok_or_else(|| format!("expected one of {}, or its number", known()))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected a number of seconds up to 3600".into())
}

/// What was found out, as it is kept in `results/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Results {
    what: String,
    gpu: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    date: String,
    command: String,
    shape: [u32; 3],
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    times: Vec<Measured>,
    #[serde(skip_serializing_if = "Vec::is_empty", skip_deserializing)]
    counts: Vec<Counted>,
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let results = match &options.from {
        Some(path) => read(path)?,
        None => measure(options)?,
    };
    if let Some(path) = &options.json {
        let mut json = serde_json::to_vec_pretty(&results)?;
        json.push(b'\n');
        if is_stdout(Some(path)) {
            out.write_all(&json)?;
        } else {
            whole::write(path, &json)?;
        }
    }
    if let Some(path) = &options.plot {
        whole::write(path, chart::draw(&results).as_bytes())?;
    }
    if let Some(path) = &options.doc {
        let text = fs::read_to_string(path).map_err(|error| Failure::file("reading", path, &error))?;
        let text = page::replaced(&text, &results).map_err(|mark| {
            Failure::Input(format!(
                "{}: found no lines `{mark}` and `<!-- end -->`, which the table goes between",
                path.display()
            ))
        })?;
        whole::write(path, text.as_bytes())?;
    }
    show(&results, &mut tables(options.json.as_deref(), out))
}

fn read(path: &Path) -> Result<Results, Failure> {
    let text = fs::read(path).map_err(|error| Failure::file("reading", path, &error))?;
    let results: Results = serde_json::from_slice(&text).map_err(|error| {
        Failure::Input(format!(
            "{}: {error}; expected what `tilewright bench ladder --json` writes",
            path.display()
        ))
    })?;
    match results.times.is_empty() {
        true => Err(Failure::Input(format!("{}: found no times, expected those of a GPU", path.display()))),
        false => Ok(results),
    }
}

impl From<LadderError> for Failure {
    fn from(error: LadderError) -> Failure {
        match error {
            LadderError::Gemm(error) => Failure::Input(error.to_string()),
            error => Failure::Machine(error.to_string()),
        }
    }
}

fn measure(options: &Options) -> Result<Results, Failure> {
    let gpu = if options.simulator { None } else { Device::cuda(0).ok() };
    let device = gpu
        .unwrap_or_else(|| Device::simulator_with(sim::Options { count: true, ..sim::Options::default() }));
    let simulated = device.kind() == DeviceKind::Simulator;
    let shape = options.shape.unwrap_or(if simulated { [256, 256, 512] } else { [4096; 3] });
    let chip = Gpu::ALL.iter().find(|gpu| gpu.name == "h200").unwrap_or(&Gpu::ALL[0]);
    let steps: Vec<&Step> = match &options.steps[..] {
        [] => LADDER.iter().filter(|step| device.arch().supports(step.kernel.needs)).collect(),
        some => some.to_vec(),
    };
    // All at once, before anything takes time.
    for step in &steps {
        step.recipe(shape, chip.multiprocessors).map_err(LadderError::from)?;
    }
    let bench = Workbench::new(&device, shape, seed())?;
    let mut results = Results {
        what: if simulated { page::COUNTED } else { page::MEASURED }.to_owned(),
        gpu: if simulated { format!("{}, simulated", chip.title) } else { device.name().to_owned() },
        driver: device.context().map(|context| context.driver().version().to_string()),
        date: today(),
        command: format!("tilewright bench ladder --shape {}", page::extents(shape)),
        shape,
        times: Vec::new(),
        counts: Vec::new(),
    };
    for step in steps {
        if simulated {
            results.counts.push(bench.count(step, chip)?);
            continue;
        }
        if options.check {
            bench.run(step)?;
        }
        results.times.push(bench.measure(step, Duration::from_secs_f64(options.seconds))?);
    }
    Ok(results)
}

/// Matrices are different each time.
fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn show(results: &Results, out: &mut dyn Write) -> Result<(), Failure> {
    let (header, rows) = page::rows(results);
    let mut shown = table(&header);
    for row in rows {
        shown.add_row(row);
    }
    writeln!(out, "{}, {}\n{shown}\n{}", page::extents(results.shape), results.gpu, results.what)?;
    Ok(())
}
