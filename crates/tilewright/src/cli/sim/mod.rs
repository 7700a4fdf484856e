//! `tilewright sim`: a kernel in PTX on the CPU, checked and counted.
//!
//! Exit codes: 0 nothing was found, 2 findings, 1 anything that kept the kernel from running.

mod argument;

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::ContentArrangement;
use serde::Serialize;
use tilewright::sim::count::{Counts, Gpu, Roofline, estimate};
use tilewright::sim::{Finding, Launch, Module, Parameter, Report, Simulator};

use super::{Failure, table, whole};
use argument::{Kept, Ready, Written};

/// Options of `sim`.
#[derive(Debug, Args)]
#[command(after_help = "Arguments of the kernel, in order, one --arg each:\n  \
    in:FILE.npy                          the address of an array\n  \
    out:FILE.npy:DTYPE:SHAPE             a fresh array such as f32:64x32, written to the file after the run\n  \
    inout:IN.npy:OUT.npy                 both\n  \
    i32:7 u64:0xff f32:-0.5 f64:nan      a number; also i64, u32, i16, u16, i8, u8, f16, bf16\n  \
    tmap:IN.npy:BOX:SWIZZLE[:TYPE]       a tensor map; BOX innermost first such as 64x128, SWIZZLE none, 32B, 64B or 128B\n  \
    tmapout:OUT.npy:DTYPE:SHAPE:BOX:SWIZZLE[:TYPE]\n\n\
    Exit codes: 0 nothing found, 2 findings, 1 bad usage or something that cannot be simulated.\n\n\
    Examples:\n  \
    tilewright sim add.ptx --grid 4 --block 256 --arg in:x.npy --arg in:y.npy --arg out:z.npy:f32:1000 --arg u32:1000\n  \
    tilewright sim reduce.ptx --entry sum --grid 8 --block 128 --seeds 20 --arg in:x.npy --arg out:s.npy:f32:1\n  \
    tilewright sim gemm.ptx --grid 1,1 --smem 213040 --counts --arg tmap:a.npy:64x128:128B:bf16 ...")]
pub(super) struct Options {
    /// The kernel, as PTX text
    #[arg(value_name = "KERNEL.ptx")]
    kernel: PathBuf,

    /// Which entry of the file [default: the only one]
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,

    /// Blocks of the grid
    #[arg(long, value_name = "X,Y,Z", value_parser = dimensions)]
    grid: [u32; 3],

    /// Threads of a block [default: what the kernel requires, if it says so]
    #[arg(long, value_name = "X,Y,Z", value_parser = dimensions)]
    block: Option<[u32; 3]>,

    /// Blocks of a cluster [default: what the kernel requires]
    #[arg(long, value_name = "X,Y,Z", value_parser = dimensions)]
    cluster: Option<[u32; 3]>,

    /// Bytes of dynamic shared memory
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    smem: u32,

    /// An argument of the kernel; repeat it for each, in order
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    arguments: Vec<String>,

    /// The first seed: decides the order in which warps run and copies finish
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Run this many seeds, each on fresh copies of the arrays, and compare what they write
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,

    /// Only run: look for no races, fences or uninitialised reads
    #[arg(long)]
    no_check: bool,

    /// Show instructions, bank conflicts, sectors and the roofline
    #[arg(long)]
    counts: bool,

    /// The GPU of the roofline; implies --counts [default: h200]
    #[arg(long, value_name = "GPU", value_parser = gpu)]
    gpu: Option<&'static Gpu>,

    /// Stop a kernel that runs for more than N instructions of warps [default: 1000000000, and 30000000 a warp]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,

    /// Cores to use [default: all]; the results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// Write the results as JSON to FILE; `-`: to standard output instead of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn dimensions(text: &str) -> Result<[u32; 3], String> {
    let mut dimensions = [1; 3];
    let given: Vec<&str> = text.split(',').collect();
    if given.len() > dimensions.len() {
        return Err("expected one to three numbers such as 4,2".into());
    }
    for (dimension, text) in dimensions.iter_mut().zip(given) {
        let parsed = text.trim().parse().ok().filter(|n| *n > 0);
        *dimension = parsed.ok_or("expected one to three positive numbers such as 4,2")?;
    }
    Ok(dimensions)
}

fn gpu(name: &str) -> Result<&'static Gpu, String> {
    let known = || Gpu::ALL.iter().map(|gpu| gpu.name).collect::<Vec<_>>().join(", ");
    Gpu::named(name).ok_or_else(|| format!("expected one of {}", known()))
}

/// The results for programs.
#[derive(Serialize)]
struct Results<'a> {
    ok: bool,
    kernel: &'a str,
    seed: u64,
    seeds: Vec<u64>,
    /// Whether all seeds wrote the same; nothing with one seed.
    outputs_agree: Option<bool>,
    findings: &'a [Finding],
    counts: &'a Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    roofline: Option<Roofline>,
    /// What the kernel printed with the first seed.
    output: &'a str,
    elapsed_s: f64,
    instructions_per_second: f64,
}

/// All runs together.
#[derive(Default)]
struct Runs {
    findings: Vec<Finding>,
    /// Of the first seed.
    first: Option<(Report, Vec<Kept>)>,
    /// Seeds whose arrays differ from those of the first.
    different: Vec<u64>,
    elapsed: Duration,
    instructions: u64,
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let path = options.kernel.display();
    let failed = |error: &dyn std::fmt::Display| Failure::Machine(format!("{path}: {error}"));
    let text = text(&options.kernel).map_err(|error| failed(&error))?;
    let module = Module::parse(&text).map_err(|error| failed(&error))?;
    let entry = entry(&module, options.entry.as_deref()).map_err(|error| failed(&error))?;
    let launch = launch(options, &module, entry).map_err(|error| failed(&error))?;
    let parameters = module.parameters(entry).unwrap_or_default();
    let arguments = arguments(&options.arguments, &parameters).map_err(Failure::Machine)?;
    argument::outputs(&arguments, options.json.as_deref()).map_err(Failure::Machine)?;

    let mut runs = Runs::default();
    for seed in seeds(options) {
        let progress = Progress::start(format!("{entry}, seed {seed}"));
        let result = once(options, &module, entry, &launch, &arguments, seed, &mut runs);
        drop(progress);
        result.map_err(|error| failed(&error))?;
    }
    let Some((report, kept)) = &runs.first else { return Ok(()) };
    for Kept { path, array } in kept {
        array.write(path).map_err(|error| Failure::Machine(format!("writing {error}")))?;
    }

    let shown = show(options, &launch, entry, &runs, report, kept, out);
    match (runs.findings.len(), shown) {
        // That nobody reads the tables changes nothing about the kernel.
        (0, shown) | (_, shown @ Err(Failure::Machine(_))) => shown,
        (1, _) => Err(Failure::Findings(format!("1 finding in `{entry}`"))),
        (n, _) => Err(Failure::Findings(format!("{n} findings in `{entry}`"))),
    }
}

/// Writes the results, as JSON or as tables or as both.
fn show(
    options: &Options,
    launch: &Launch,
    entry: &str,
    runs: &Runs,
    report: &Report,
    kept: &[Kept],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let to_stdout = options.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if let Some(path) = &options.json {
        let mut json = serde_json::to_vec_pretty(&results(options, entry, runs, report))?;
        json.push(b'\n');
        if to_stdout {
            out.write_all(&json)?;
        } else {
            whole::write(path, &json)?;
        }
    }
    if !to_stdout {
        write(options, launch, entry, runs, report, kept, out)?;
    }
    Ok(out.flush()?)
}

fn seeds(options: &Options) -> impl Iterator<Item = u64> {
    let first = options.seed;
    (0..options.seeds).map(move |i| first.wrapping_add(i))
}

/// The PTX.
fn text(path: &Path) -> Result<String, String> {
    /// More than any compiler writes; a device that never ends is more.
    const MOST: u64 = 1 << 28;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST {
        return Err("found more than 256 MiB, expected a module of PTX".into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("found a byte at {at} that is no text, expected PTX; a cubin or fatbin cannot be simulated")
    })
}

/// The shape of the launch: what was given, else what the kernel requires.
fn launch(options: &Options, module: &Module, entry: &str) -> Result<Launch, String> {
    let block = options.block.or_else(|| module.required_block(entry));
    let block = block.ok_or("found no block size in the kernel (.reqntid), expected --block")?;
    Ok(Launch { grid: options.grid, block, cluster: options.cluster, shared_bytes: options.smem })
}

fn entry<'a>(module: &'a Module, name: Option<&str>) -> Result<&'a str, String> {
    let entries = module.entries();
    let all = || entries.join(", ");
    match (name, entries.as_slice()) {
        (_, []) => Err("found no entry, expected a kernel (`.visible .entry`)".into()),
        (None, [only]) => Ok(*only),
        (None, _) => {
            Err(format!("found {} entries ({}), expected one; choose with --entry", entries.len(), all()))
        }
        (Some(name), _) => {
            let found = entries.iter().find(|entry| **entry == name);
            found.copied().ok_or_else(|| format!("no entry is named `{name}`; there are {}", all()))
        }
    }
}

/// Reads all arguments, checked against the parameters.
fn arguments(given: &[String], parameters: &[Parameter]) -> Result<Vec<Ready>, String> {
    let mut written = Vec::new();
    for (text, number) in given.iter().zip(1..) {
        let argument: Written =
            text.parse().map_err(|error| format!("argument {number}, `{text}`: {error}"))?;
        written.push((number, text, argument));
    }
    if written.len() != parameters.len() {
        let names: Vec<String> =
            parameters.iter().map(|p| format!("{} ({} bytes)", p.name, p.bytes)).collect();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        return Err(format!("found {} arguments, expected {}: {names}", written.len(), parameters.len()));
    }
    let ready = written.into_iter().zip(parameters).map(|((number, text, argument), parameter)| {
        let name = &parameter.name;
        argument
            .prepare(parameter)
            .map_err(|error| format!("argument {number}, `{text}`, for `{name}`: {error}"))
    });
    ready.collect()
}

/// Runs one seed on fresh copies of everything.
fn once(
    options: &Options,
    module: &Module,
    entry: &str,
    launch: &Launch,
    arguments: &[Ready],
    seed: u64,
    runs: &mut Runs,
) -> Result<(), String> {
    let defaults = tilewright::sim::Options::default();
    let mut sim = Simulator::new(tilewright::sim::Options {
        seed,
        check: !options.no_check,
        count: options.counts || options.gpu.is_some() || options.json.is_some(),
        threads: options.threads.map(usize::from),
        budget: options.budget.unwrap_or(defaults.budget),
        warp_budget: options.budget.unwrap_or(defaults.warp_budget),
        ..defaults
    });
    let (mut passed, mut arrays) = (Vec::new(), Vec::new());
    for (argument, number) in arguments.iter().zip(1..) {
        let (arg, array) = argument.bind(&mut sim).map_err(|error| format!("argument {number}: {error}"))?;
        passed.push(arg);
        arrays.extend(array);
    }
    let start = Instant::now();
    let mut report = sim.launch(module, entry, launch, &passed).map_err(|error| error.to_string())?;
    runs.elapsed += start.elapsed();
    runs.instructions += report.thread_instructions;
    let file = options.kernel.to_string_lossy();
    runs.findings.extend(report.findings.drain(..).map(|finding| finding.in_file(file.as_ref())));
    // A launch that was refused has written nothing.
    let ran = report.warp_instructions > 0;
    let kept: Vec<Kept> = arrays.iter().filter(|_| ran).filter_map(|array| array.read(&sim)).collect();
    match &runs.first {
        None => runs.first = Some((report, kept)),
        Some((_, first)) if *first != kept => runs.different.push(seed),
        Some(_) => {}
    }
    Ok(())
}

impl Runs {
    fn per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
        let instructions = self.instructions as f64;
        if seconds > 0.0 { instructions / seconds } else { 0.0 }
    }
}

fn roofline(options: &Options, counts: &Counts) -> Option<Roofline> {
    let gpu = options.gpu.or_else(|| options.counts.then(|| Gpu::ALL.first()).flatten())?;
    Some(estimate(counts, gpu))
}

fn results<'a>(options: &Options, entry: &'a str, runs: &'a Runs, report: &'a Report) -> Results<'a> {
    Results {
        ok: runs.findings.is_empty(),
        kernel: entry,
        seed: options.seed,
        seeds: seeds(options).collect(),
        outputs_agree: (options.seeds > 1).then_some(runs.different.is_empty()),
        findings: &runs.findings,
        counts: &report.counts,
        roofline: roofline(options, &report.counts),
        output: &report.output,
        elapsed_s: runs.elapsed.as_secs_f64(),
        instructions_per_second: runs.per_second(),
    }
}

fn write(
    options: &Options,
    launch: &Launch,
    entry: &str,
    runs: &Runs,
    report: &Report,
    kept: &[Kept],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if !report.output.is_empty() {
        let end = if report.output.ends_with('\n') { "" } else { "\n" };
        writeln!(out, "{}{end}", report.output)?;
    }
    for (finding, again) in grouped(&runs.findings) {
        writeln!(out, "{finding}")?;
        if !again.is_empty() {
            writeln!(out, "  = also with seed {}", list(&again))?;
        }
        writeln!(out)?;
    }
    let mut rows = table(&["run", ""]);
    let [grid, block] = [launch.grid, launch.block].map(|[x, y, z]| format!("{x}x{y}x{z}"));
    rows.add_row(["kernel".to_owned(), format!("{entry}, {grid} blocks of {block} threads")]);
    rows.add_row(["findings".to_owned(), findings(options, runs)]);
    if options.seeds > 1 {
        let last = options.seed.wrapping_add(options.seeds - 1);
        rows.add_row(["seeds".to_owned(), format!("{} to {last}: {}", options.seed, agreement(runs))]);
    } else {
        rows.add_row(["seed".to_owned(), options.seed.to_string()]);
    }
    rows.add_row(["thread instructions".to_owned(), runs.instructions.to_string()]);
    rows.add_row(["time".to_owned(), format!("{:.3} s", runs.elapsed.as_secs_f64())]);
    rows.add_row(["speed".to_owned(), format!("{:.1} million a second", runs.per_second() / 1e6)]);
    for Kept { path, array } in kept {
        let shape: Vec<String> = array.shape.iter().map(u64::to_string).collect();
        let what = format!("{} {}", array.element.name(), shape.join("x"));
        rows.add_row(["written".to_owned(), format!("{}: {what}", path.display())]);
    }
    writeln!(out, "{rows}")?;
    match roofline(options, &report.counts) {
        Some(roofline) => counts(&report.counts, &roofline, out),
        None => Ok(()),
    }
}

fn findings(options: &Options, runs: &Runs) -> String {
    match (runs.findings.len(), options.no_check) {
        (0, false) => "none".into(),
        (0, true) => "none; memory accesses were not checked".into(),
        (n, _) => n.to_string(),
    }
}

/// Whether the seeds wrote the same, and if not, which did not.
fn agreement(runs: &Runs) -> String {
    match runs.different.as_slice() {
        [] => "all wrote the same".into(),
        seeds => format!("{} wrote something else than the first: {}", seeds.len(), list(seeds)),
    }
}

/// The first of all findings of the same kind at the same place, and the seeds of the others.
fn grouped(findings: &[Finding]) -> Vec<(&Finding, Vec<u64>)> {
    let place = |f: &Finding| (f.kind, f.first.line, f.second.as_ref().map(|second| second.line));
    let mut groups: Vec<(&Finding, Vec<u64>)> = Vec::new();
    for finding in findings {
        match groups.iter_mut().find(|(first, _)| place(first) == place(finding)) {
            Some((_, again)) => again.push(finding.seed),
            None => groups.push((finding, Vec::new())),
        }
    }
    groups
}

/// The first few of a list.
fn list(seeds: &[u64]) -> String {
    let shown: Vec<String> = seeds.iter().take(8).map(u64::to_string).collect();
    let more = if seeds.len() > shown.len() { " and more" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn counts(counts: &Counts, roofline: &Roofline, out: &mut dyn Write) -> Result<(), Failure> {
    /// Sites in the table; JSON has all.
    const SHOWN: usize = 20;
    let mut totals = table(&["counts", ""]);
    totals.set_content_arrangement(ContentArrangement::Dynamic).set_width(120);
    for (name, value) in counts.totals() {
        totals.add_row([name, value]);
    }
    writeln!(out, "\n{totals}")?;

    let sites = counts.sites();
    if !sites.is_empty() {
        let header = [
            "line",
            "memory access",
            "requests",
            "bytes",
            "sectors/request",
            "ideal",
            "wavefronts/request",
            "conflicts",
        ];
        let mut rows = table(&header);
        for site in sites.iter().take(SHOWN) {
            let instruction = short(&site.instruction);
            let place = match &site.source {
                Some((file, line, _)) => format!("{instruction}\n{file}:{line}"),
                None => instruction,
            };
            rows.add_row([
                site.line.to_string(),
                place,
                site.requests.to_string(),
                site.bytes.to_string(),
                ratio(site.sectors_per_request),
                ratio(site.ideal_sectors_per_request),
                ratio(site.wavefronts_per_request),
                if site.bank_conflicts == 0 { String::new() } else { site.bank_conflicts.to_string() },
            ]);
        }
        writeln!(out, "\n{rows}")?;
        if sites.len() > SHOWN {
            writeln!(out, "{} more accesses; --json has all", sites.len() - SHOWN)?;
        }
    }

    let mut limits = table(&["limit", "work", "at least"]);
    for limit in &roofline.limits {
        limits.add_row([limit.name.to_owned(), limit.work.clone(), limit.time()]);
    }
    Ok(writeln!(out, "\n{limits}\n{}", roofline.text)?)
}

/// An instruction that fits into a table: some name a hundred registers.
fn short(instruction: &str) -> String {
    const MOST: usize = 60;
    match instruction.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &instruction[..end]),
        None => instruction.to_owned(),
    }
}

/// Empty where it says nothing.
fn ratio(value: f64) -> String {
    if value == 0.0 { String::new() } else { format!("{value:.2}") }
}

/// A line on the terminal for runs that take longer than a second; gone when dropped.
struct Progress {
    worker: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    fn start(what: String) -> Progress {
        if !io::stderr().is_terminal() {
            return Progress { worker: None };
        }
        let (stop, stopped) = mpsc::channel();
        let worker = std::thread::spawn(move || {
            let start = Instant::now();
            let mut shown = false;
            while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                shown = true;
                // A terminal that went away is no reason to stop.
                let _ = write!(io::stderr(), "\r{what}: {} s ", start.elapsed().as_secs());
            }
            if shown {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        Progress { worker: Some((stop, worker)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, worker)) = self.worker.take() {
            drop(stop);
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_instructions_are_cut() {
        assert_eq!(short("trap;"), "trap;");
        assert_eq!(short(&"é".repeat(61)).chars().count(), 63);
    }

    #[test]
    fn dimensions_are_one_to_three_numbers() {
        assert_eq!(dimensions("4"), Ok([4, 1, 1]));
        assert_eq!(dimensions("4,2"), Ok([4, 2, 1]));
        assert_eq!(dimensions("4, 2,3"), Ok([4, 2, 3]));
        for text in ["", "0", "4,", "4,0", "1,2,3,4", "-1", "4x2", "5000000000"] {
            assert!(dimensions(text).is_err(), "{text}");
        }
    }
}
