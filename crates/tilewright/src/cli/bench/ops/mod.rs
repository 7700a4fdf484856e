//! `tilewright bench softmax` and its like: ops that move memory, and the product at tile level, beside torch and Triton where these are
//! installed. Ours and theirs take turns in rounds, on the same GPU. What there is stands in one [`table`].

mod case;
mod chart;
mod command;
mod library;
mod matmul;
mod measure;
mod memory;
mod reference;
mod row;
mod show;
mod sizes;
mod subject;
mod table;

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tilewright::device::{Device, DeviceKind};
use tilewright::hardware::Element;

use super::super::Failure;
use super::gemm::machine;
use super::ladder::extents;
use super::measuring::{Measuring, progress};
use super::peer::{Clock, Name, Peer};
use super::results::Results;
use case::Case;
pub(super) use chart::draw;
pub(super) use command::Command;
use measure::Bench;
pub(super) use row::{Row, are_ops};
pub(super) use show::{MARK, replaced};
use sizes::{SETS, Size};
use table::{Op, moves, order};

/// Options of all of these.
#[derive(Debug, Args)]
#[command(after_long_help = sets_help())]
pub(super) struct Options {
    /// Types of the elements: f32, f16, bf16; several with commas [default: those that are promised to be fast]
    #[arg(long, value_delimiter = ',', value_parser = case::element)]
    dtype: Vec<Element>,
    /// Rows; several with commas
    #[arg(long, value_delimiter = ',', value_name = "N")]
    rows: Vec<u32>,
    /// Columns; several with commas
    #[arg(long, value_delimiter = ',', value_name = "N")]
    columns: Vec<u32>,
    /// The extent that a product sums over [default: its columns]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// The tile of a program of the product, and the depth of a step [default: 128x256x64, or 128x192x64 where
    /// that leaves less of the chip idle in the last round]
    #[arg(long, value_name = "MxNxK", value_parser = extents)]
    tile: Option<[u32; 3]>,
    /// How many of each row are the largest [default: 8]
    #[arg(long, value_name = "N")]
    k: Option<u32>,
    /// Sizes that have a name (see the end of --help); several with commas
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    set: Vec<String>,
    /// Whom to compare with; who is not installed is left out
    #[arg(long, value_delimiter = ',', default_values = ["torch", "triton"])]
    peer: Vec<PeerChoice>,
    /// Seconds that a peer may take to answer, also to compile and to tune
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    peer_timeout: u64,
    /// Compare results with a reference in f64
    #[arg(long)]
    check: bool,
    /// Mebibytes of the copy that speeds are held against
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    yardstick: u32,
    #[command(flatten)]
    measuring: Measuring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerChoice {
    Torch,
    Triton,
    None,
}

fn sets_help() -> String {
    let lines: Vec<String> = SETS.iter().map(|set| format!("  {:8} {}", set.name, set.what)).collect();
    format!("Sets of sizes:\n{}", lines.join("\n"))
}

const WHAT: &str = "Times of ops, ours and those of torch and Triton by turns on the same GPU, operands outside of the cache: medians in \
    microseconds. Speeds count every byte that must be moved once. A ratio is the peer's time over ours in the same round, and the median of \
    these: above 1 ours is faster.";
const WHAT_CALLS: &str = "Times of calls, ours from Rust and those of torch and Triton from Python, many one after the other, until the \
    last is done, by turns on the same GPU: medians in microseconds of one call. A ratio is the peer's time over ours in the same round, and \
    the median of these: above 1 ours is faster.";

pub(super) fn run(command: &Command, out: &mut dyn Write) -> Result<(), Failure> {
    let (ops, clock, options) = (&command.ops[..], command.clock, &command.options);
    let wanted = options.peers()?;
    let cases = |gpu: bool| options.cases(ops, clock, gpu);
    // What makes no sense is said before a device is looked for.
    cases(false)?;
    let device = options.measuring.device()?;
    let cases = cases(device.kind() == DeviceKind::Cuda)?;
    let what = if clock == Clock::Host { WHAT_CALLS } else { WHAT };
    let mut journal = options.measuring.begin(Results::<Row>::head(what, &device))?;
    let head = &mut journal.results;
    let mut missing = Vec::new();
    let peers = start(&device, &wanted, Duration::from_secs(options.peer_timeout), &mut missing);
    for peer in &peers {
        let version = match peer.name() {
            Name::Torch => &mut head.torch,
            Name::Triton => &mut head.triton,
        };
        *version = Some(peer.version().to_owned());
    }
    let mut bench = Bench {
        device: device.clone(),
        subjects: subject::all(options.tile),
        peers,
        effort: options.measuring.effort(),
        copies: options.measuring.copies,
        seed: options.measuring.seed,
        check: options.check,
        copy_gbps: None,
    };
    if device.kind() == DeviceKind::Cuda {
        bench.copy_gbps = bench.yardstick(&yardstick(options.yardstick))?;
        head.copy_gbps = bench.copy_gbps;
    }
    let facts = head.facts().into_iter().chain(missing).collect();
    writeln!(options.measuring.tables(out), "{}", machine(facts, &device))?;
    if let Some(gbps) = head.copy_gbps {
        writeln!(
            options.measuring.tables(out),
            "a copy of {} MiB inside of the device: {gbps:.0} GB/s",
            options.yardstick
        )?;
    }
    let bar = progress(cases.len());
    for case in &cases {
        bar.set_message(format!("{} {} {}", case.op.name, case.element, case.size()));
        journal.add(bench.measure(case));
        bar.inc(1);
    }
    bar.finish_and_clear();
    show::write(&journal.results.entries, &mut options.measuring.tables(out))?;
    let results = options.measuring.finish(journal, draw, out)?;
    let mut failures = results.entries.iter().filter_map(|row| Some((row, row.failure.as_ref()?)));
    match failures.next() {
        None => Ok(()),
        Some((row, first)) => Err(Failure::Machine(format!(
            "{} of {} ops failed; the first, {} {} {}: {first}",
            1 + failures.count(),
            cases.len(),
            row.op,
            row.dtype,
            row.size()
        ))),
    }
}

/// The peers that are installed; of the others, why they are missing.
fn start(device: &Device, wanted: &[Name], patience: Duration, missing: &mut Vec<String>) -> Vec<Peer> {
    let ordinal = device.context().map(|context| context.device().ordinal);
    let mut peers = Vec::new();
    for &name in wanted {
        match Peer::start(name, ordinal, patience) {
            Ok(peer) => peers.push(peer),
            Err(why) => missing.push(format!("{} not installed ({why})", name.as_str())),
        }
    }
    peers
}

/// The copy that speeds are held against.
fn yardstick(mebibytes: u32) -> Case {
    let columns = (1 << 20) / Element::F32.bytes();
    Case {
        op: &moves::COPY,
        element: Element::F32,
        rows: mebibytes,
        columns,
        depth: 0,
        k: 0,
        clock: Clock::Device,
    }
}

impl Options {
    fn peers(&self) -> Result<Vec<Name>, Failure> {
        match &self.peer[..] {
            [PeerChoice::None] => Ok(Vec::new()),
            some if some.contains(&PeerChoice::None) => {
                Err(Failure::Input("--peer: found none beside others, expected none alone".to_owned()))
            }
            some => Ok(Name::ALL
                .into_iter()
                .filter(|name| {
                    some.contains(&match name {
                        Name::Torch => PeerChoice::Torch,
                        Name::Triton => PeerChoice::Triton,
                    })
                })
                .collect()),
        }
    }

    /// Everything that was asked for: all ops and types in all sizes.
    fn cases(&self, ops: &[&'static Op], clock: Clock, gpu: bool) -> Result<Vec<Case>, Failure> {
        for (name, what, given, op) in [
            ("--depth", "a number", self.depth.is_some(), &moves::MATMUL_TILE),
            ("--tile", "a tile", self.tile.is_some(), &moves::MATMUL_TILE),
            ("--k", "a number", self.k.is_some(), &order::TOPK),
        ] {
            if given && !ops.contains(&op) {
                return Err(Failure::Input(format!(
                    "{name}: found {what}, expected none but for {}",
                    op.name
                )));
            }
        }
        let mut cases = Vec::new();
        for &op in ops {
            let types = if self.dtype.is_empty() { op.types } else { &self.dtype[..] };
            for &element in types {
                for (rows, columns, depth) in self.sizes(op, element, clock, gpu)? {
                    let k = if op == &order::TOPK { self.k.unwrap_or(8) } else { 0 };
                    let case = Case { op, element, rows, columns, depth, k, clock };
                    case.check()?;
                    cases.push(case);
                }
            }
        }
        Ok(cases)
    }

    fn sizes(&self, op: &Op, element: Element, clock: Clock, gpu: bool) -> Result<Vec<Size>, Failure> {
        let mut sizes = Vec::new();
        for &rows in &self.rows {
            for &columns in &self.columns {
                let depth = if op.product { self.depth.unwrap_or(columns) } else { 0 };
                sizes.push((rows, columns, depth));
            }
        }
        if self.rows.is_empty() != self.columns.is_empty() {
            return Err(Failure::Input("found --rows or --columns alone, expected both".to_owned()));
        }
        let default = [if gpu { "bars" } else { "quick" }.to_owned()];
        let sets = if sizes.is_empty() && self.set.is_empty() { &default[..] } else { &self.set[..] };
        for name in sets {
            sizes.extend(sizes::set(name, op, element, clock).map_err(Failure::Input)?);
        }
        Ok(sizes)
    }
}
