//! `tilewright bench gemm`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tilewright::device::{Device, DeviceKind};
use tilewright::hardware::Element;
use tilewright::kernels::gemm::{Algorithm, Problem};
use tilewright_cublaslt::Library;

use super::super::product::{self, Case, Finish, Layout};
use super::super::shape::{self, SETS, Shape};
use super::super::{Failure, table};
use super::check::{Inputs, check};
use super::cublas::Peer;
use super::measuring::{Measuring, progress};
use super::memory::Memory;
use super::ours::{Choice, Ours};
use super::plot;
use super::results::{Results, Row, Tried};
use super::statistics::{Spread, geometric_mean, paired_ratio, rounded};
use super::timing::{Contestant, Effort, race};

/// Options of `bench gemm`.
#[derive(Debug, Args)]
#[command(after_long_help = sets_help())]
pub(super) struct Options {
    /// Type of the factors: bf16, f16, tf32, f32, f64, i8, e4m3, e5m2; several with commas
    #[arg(long, value_delimiter = ',', default_value = "bf16", value_parser = product::element)]
    dtype: Vec<Element>,
    /// How the factors lie, as BLAS says it: tn, nn, tt, nt; several with commas
    #[arg(long, value_delimiter = ',', default_value = "tn")]
    layout: Vec<Layout>,
    /// What happens to the sums: none, bias, relu, gelu (by tanh, as cuBLASLt has it), bias+relu, bias+gelu; several with commas
    #[arg(long, value_delimiter = ',', default_value = "none")]
    epilogue: Vec<Finish>,
    /// Extents MxNxK, with *BATCH for batches and +PAD for gaps between lines; several with commas
    #[arg(long, value_delimiter = ',', value_name = "MxNxK")]
    shape: Vec<Shape>,
    /// A file of shapes, one a line
    #[arg(long, value_name = "FILE")]
    shapes: Option<PathBuf>,
    /// Shapes that have a name (see the end of --help); several with commas
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    set: Vec<String>,
    /// Whom to compare with; by default cuBLASLt where it is found
    #[arg(long)]
    peer: Option<PeerChoice>,
    /// MiB of scratch memory that cuBLASLt may use; it chooses other algorithms if it gets none, as from PyTorch for i8
    #[arg(long, value_name = "MIB", default_value_t = PEER_WORKSPACE, value_parser = clap::value_parser!(u32).range(0..=1024))]
    peer_workspace: u32,
    /// Compare results with sums in f64
    #[arg(long)]
    check: bool,
    /// The algorithm to use, as the column `algorithm` shows it; of several the fastest counts
    #[arg(long, value_name = "TEXT", conflicts_with = "candidates")]
    algorithm: Vec<Algorithm>,
    /// Measure so many of the algorithms that the model likes best, and take the fastest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    candidates: u32,
    /// Measure the best of so many further kinds as well: other tiles, clusters, ways to divide the work
    #[arg(long, value_name = "N", default_value_t = 0)]
    kinds: u32,
    #[command(flatten)]
    measuring: Measuring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerChoice {
    Cublas,
    None,
}

fn sets_help() -> String {
    let lines: Vec<String> = SETS.iter().map(|set| format!("  {:8} {}", set.name, set.what)).collect();
    format!("Sets of shapes:\n{}", lines.join("\n"))
}

/// What NVIDIA advises for Hopper.
const PEER_WORKSPACE: u32 = 32;
/// Algorithms of the library that are measured to find its best.
const PEER_ALGORITHMS: usize = 8;

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let cases = options.cases()?;
    let device = options.measuring.device()?;
    options.check_choice(&device)?;
    let library = options.library(&device)?;
    let head = head(&device, library);
    write_head(&head, &device, &mut options.measuring.tables(out))?;
    let mut journal = options.measuring.begin(head)?;
    let bar = progress(cases.len());
    for case in &cases {
        bar.set_message(format!("{} {} {}", case.shape, case.element, case.layout));
        journal.add(measure(options, &device, library, case));
        bar.inc(1);
    }
    bar.finish_and_clear();
    write_table(&journal.results.entries, &mut options.measuring.tables(out))?;
    let results = options.measuring.finish(journal, plot::draw, out)?;
    let mut failures = results.entries.iter().filter_map(|row| Some((row, row.failure.as_ref()?)));
    match failures.next() {
        None => Ok(()),
        Some((row, first)) => Err(Failure::Machine(format!(
            "{} of {} products failed; the first, {} {} {}: {first}",
            1 + failures.count(),
            cases.len(),
            row.shape,
            row.dtype,
            row.layout
        ))),
    }
}

impl Options {
    /// The processor has no algorithms to choose from.
    fn check_choice(&self, device: &Device) -> Result<(), Failure> {
        let asked = [("--candidates", self.candidates, 1), ("--kinds", self.kinds, 0)];
        match asked.into_iter().find(|(_, found, usual)| found != usual) {
            Some((option, found, _)) if device.kind() == DeviceKind::Cpu => Err(Failure::Input(format!(
                "{option}: found {found} on {}, expected a GPU, which has algorithms to choose from; \
                 leave it out, or name a GPU with --device",
                device.name()
            ))),
            _ => Ok(()),
        }
    }

    /// What cases of somebody else are measured by: all are checked, beside the peer where it is found.
    pub(super) fn checked(rounds: u32) -> Options {
        Options {
            dtype: Vec::new(),
            layout: Vec::new(),
            epilogue: Vec::new(),
            shape: Vec::new(),
            shapes: None,
            set: Vec::new(),
            peer: None,
            peer_workspace: PEER_WORKSPACE,
            check: true,
            algorithm: Vec::new(),
            candidates: 1,
            kinds: 0,
            measuring: Measuring::for_rounds(rounds),
        }
    }

    /// Everything that was asked for: all types, layouts and epilogues of all shapes.
    fn cases(&self) -> Result<Vec<Case>, Failure> {
        let mut shapes = self.shape.clone();
        if let Some(path) = &self.shapes {
            let text =
                std::fs::read_to_string(path).map_err(|error| Failure::file("reading", path, &error))?;
            let named = |error| Failure::Input(format!("{}: {error}", path.display()));
            shapes.extend(shape::parse_file(&text).map_err(named)?);
        }
        for name in &self.set {
            shapes.extend(shape::set(name).map_err(Failure::Input)?);
        }
        if shapes.is_empty() {
            return Err(Failure::Input("found no shape, expected --shape, --shapes or --set".to_owned()));
        }
        let mut cases = Vec::new();
        for &element in &self.dtype {
            for &layout in &self.layout {
                for &finish in &self.epilogue {
                    cases.extend(shapes.iter().map(|&shape| Case { shape, element, layout, finish }));
                }
            }
        }
        // What makes no sense is said before anything is measured.
        for case in &cases {
            let named = |failure: Failure| {
                let Case { shape, element, layout, finish } = case;
                Failure::Input(format!("{shape} {element} {layout} {finish}: {}", failure.message()))
            };
            case.problem().map_err(named)?;
        }
        Ok(cases)
    }

    /// The peer, where it can be had. That it cannot is an error only if it was asked for.
    pub(super) fn library(&self, device: &Device) -> Result<Option<Library>, Failure> {
        let missing = match (self.peer, device.kind()) {
            (Some(PeerChoice::None), _) => return Ok(None),
            (_, DeviceKind::Cuda) => match Library::load() {
                Ok(library) => return Ok(Some(library)),
                Err(error) => error.to_string(),
            },
            _ => format!("cuBLASLt needs a GPU, found {}", device.name()),
        };
        match self.peer {
            Some(_) => Err(Failure::Machine(missing)),
            None => {
                if device.kind() == DeviceKind::Cuda {
                    eprintln!("warning: {missing}");
                }
                Ok(None)
            }
        }
    }

    /// Enough to tell algorithms apart.
    fn quick(&self) -> Effort {
        let effort = self.measuring.effort();
        Effort { rounds: effort.rounds.min(5), ..effort }
    }
}

/// The facts of the machine.
pub(super) fn head(device: &Device, library: Option<Library>) -> Results {
    let what = "Times of matrix products, ours and those of cuBLASLt by turns in one process, operands outside of the cache: medians in \
                microseconds. A ratio is the peer's time over ours in the same round, and the median of these.";
    Results { cublaslt: library.map(|library| library.version()), ..Results::head(what, device) }
}

/// One product. What goes wrong is in the row.
pub(super) fn measure(options: &Options, device: &Device, library: Option<Library>, case: &Case) -> Row {
    let mut row = Row {
        shape: case.shape,
        dtype: case.element.to_string(),
        layout: case.layout.to_string(),
        epilogue: case.finish.to_string(),
        ..Row::default()
    };
    if let Err(failure) = fill(&mut row, options, device, library, case) {
        row.failure = Some(failure.message().to_owned());
    }
    row
}

fn fill(
    row: &mut Row,
    options: &Options,
    device: &Device,
    library: Option<Library>,
    case: &Case,
) -> Result<(), Failure> {
    let problem = case.problem()?;
    let inputs = Inputs::new(&problem, options.measuring.seed);
    if device.kind() == DeviceKind::Cuda {
        let roofline = case.roofline(&problem, &device.chip());
        row.roofline_us = Some(rounded(roofline.seconds() * 1e6));
        row.memory_bound = Some(roofline.is_of_memory());
    }
    let memory = Memory::new(device, &problem, &inputs, options.measuring.copies)?;
    let choice = Choice {
        algorithms: &options.algorithm,
        most: options.candidates as usize,
        kinds: options.kinds as usize,
    };
    let ours = Ours::choose(device, &problem, &memory, choice)?;
    let ours = fastest(options, device, &memory, ours, &mut row.tried)?;
    row.algorithm = Some(ours.name().to_owned());
    if options.check {
        let verdict = judged(device, case, &problem, &inputs, &memory, &ours)?;
        (row.error, row.compared) = (Some(rounded(verdict.error)), Some(verdict.compared));
        if let Some(wrong) = verdict.wrong {
            return Err(Failure::Machine(format!("the result is wrong: {wrong}")));
        }
    }
    let workspace = (options.peer_workspace as usize) << 20;
    let peer =
        library.map(|library| Peer::new(library, device, case, &problem, &memory, workspace)).transpose();
    let entrants = match &peer {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(peer)) => peer.entrants(PEER_ALGORITHMS),
        Err(failure) => Err(Failure::Machine(failure.message().to_owned())),
    };
    let mut entrants = entrants.unwrap_or_else(|failure| {
        row.peer_failure = Some(failure.message().to_owned());
        Vec::new()
    });
    let first = (!entrants.is_empty()).then(|| entrants.remove(0));
    if let (true, Some(first)) = (options.check, &first) {
        let verdict = judged(device, case, &problem, &inputs, &memory, first)?;
        row.peer_error = Some(rounded(verdict.error));
    }
    // The best of the others, if it is better than the first.
    let best = match &first {
        Some(first) if !entrants.is_empty() => {
            let all: Vec<&dyn Contestant> = std::iter::once(first as &dyn Contestant)
                .chain(entrants.iter().map(|entrant| entrant as _))
                .collect();
            let winner = winner(&race(device, &all, memory.copies(), options.quick())?);
            winner.checked_sub(1).map(|other| entrants.remove(other))
        }
        _ => None,
    };
    let mut contestants: Vec<&dyn Contestant> = vec![&ours];
    contestants.extend(first.iter().map(|entrant| entrant as &dyn Contestant));
    contestants.extend(best.iter().map(|entrant| entrant as &dyn Contestant));
    let times = race(device, &contestants, memory.copies(), options.measuring.effort())?;
    let spread =
        |times: &Vec<f64>| Spread::of(times).map(|spread| spread.map(|seconds| rounded(seconds * 1e6)));
    if let Some(spread) = times.first().and_then(spread) {
        row.ours_us = Some(spread.median);
        row.ours_10_to_90_percent = Some([spread.low, spread.high]);
        row.tflops = Some(rounded(row.rate(spread.median)));
        row.gbps = Some(rounded(problem.bytes() / spread.median * 1e-3));
    }
    let (Some(ours), Some(theirs)) = (times.first(), times.get(1)) else { return Ok(()) };
    if let Some(spread) = spread(theirs) {
        row.peer_us = Some(spread.median);
        row.peer_10_to_90_percent = Some([spread.low, spread.high]);
    }
    row.ratio = paired_ratio(theirs, ours).map(rounded);
    // The first may be the best, also after all that it lost to.
    let best_times =
        times.get(2).filter(|best| spread(best).map(|s| s.median) < row.peer_us).unwrap_or(theirs);
    row.peer_best_us = spread(best_times).map(|spread| spread.median);
    row.ratio_best = paired_ratio(best_times, ours).map(rounded);
    row.peer_algorithm = first.map(|first| first.algorithm.to_string());
    row.peer_best_algorithm =
        best.map(|best| best.algorithm.to_string()).or_else(|| row.peer_algorithm.clone());
    Ok(())
}

/// The fastest of some algorithms of ours; there is one. Notes all that were tried, if it is not the only one.
fn fastest(
    options: &Options,
    device: &Device,
    memory: &Memory,
    mut ours: Vec<Ours>,
    tried: &mut Vec<Tried>,
) -> Result<Ours, Failure> {
    let place = match ours.len() {
        0 => return Err(Failure::Machine("found no algorithm for this product, expected one".to_owned())),
        1 => 0,
        _ => {
            let all: Vec<&dyn Contestant> = ours.iter().map(|one| one as _).collect();
            let times = race(device, &all, memory.copies(), options.quick())?;
            let us = |seconds: f64| rounded(seconds * 1e6);
            tried.extend(ours.iter().zip(&times).map(|(one, times)| Tried {
                algorithm: one.name().to_owned(),
                predicted_us: one.predicted().map(us),
                us: Spread::of(times).map(|spread| us(spread.median)),
            }));
            winner(&times)
        }
    };
    Ok(ours.swap_remove(place))
}

/// Who has the smallest median.
fn winner(times: &[Vec<f64>]) -> usize {
    let median = |times: &Vec<f64>| Spread::of(times).map_or(f64::INFINITY, |spread| spread.median);
    let medians = times.iter().map(median).enumerate();
    medians.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(place, _)| place)
}

/// Runs a contestant on spoiled memory and looks at the result.
fn judged(
    device: &Device,
    case: &Case,
    problem: &Problem,
    inputs: &Inputs,
    memory: &Memory,
    contestant: &dyn Contestant,
) -> Result<super::check::Verdict, Failure> {
    memory.spoil(problem)?;
    contestant.launch(0)?;
    device.synchronize().map_err(super::timing::broken)?;
    check(case, problem, inputs, &memory.copy(0).d).map_err(super::timing::broken)
}

fn write_head(head: &Results, device: &Device, out: &mut dyn Write) -> Result<(), Failure> {
    Ok(writeln!(out, "{}", machine(head.facts(), device))?)
}

/// The facts in one line.
pub(super) fn machine(mut facts: Vec<String>, device: &Device) -> String {
    if device.kind() != DeviceKind::Cuda {
        facts.push("no GPU: times are this computer's".to_owned());
    }
    facts.join(", ")
}

/// A number with so many digits behind the point.
pub(super) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Three digits that mean something, for GPUs and for slower machines.
pub(super) fn digits(value: Option<f64>) -> String {
    match value {
        Some(value) if value < 0.1 => format!("{value:.1e}"),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        other => number(other, 0),
    }
}

fn write_table(rows: &[Row], out: &mut dyn Write) -> Result<(), Failure> {
    let mut shown = table(&[
        "shape",
        "type",
        "layout",
        "epilogue",
        "us",
        "TFLOP/s",
        "GB/s",
        "peer us",
        "best us",
        "ratio",
        "to best",
        "error",
        "algorithm",
    ]);
    for row in rows {
        let algorithm =
            row.failure.as_ref().map(|failure| format!("failed: {failure}")).or(row.algorithm.clone());
        shown.add_row([
            row.shape.to_string(),
            row.dtype.clone(),
            row.layout.clone(),
            row.epilogue.clone(),
            number(row.ours_us, 2),
            digits(row.tflops),
            digits(row.gbps),
            number(row.peer_us, 2),
            number(row.peer_best_us, 2),
            number(row.ratio, 3),
            number(row.ratio_best, 3),
            number(row.error, 3),
            algorithm.unwrap_or_default(),
        ]);
    }
    writeln!(out, "{shown}")?;
    let mean = |pick: fn(&Row) -> Option<f64>| geometric_mean(rows.iter().filter_map(pick));
    if let (Some(first), Some(best)) = (mean(|row| row.ratio), mean(|row| row.ratio_best)) {
        writeln!(
            out,
            "geometric mean of the ratios: {first:.3} to cuBLASLt's choice, {best:.3} to its best"
        )?;
    }
    Ok(())
}
