//! The least time that a run takes on a GPU, by each of its peaks.
//!
//! Every part of the chip is taken alone and at its peak, so that the largest of the times is a bound from below, and which it is
//! says what to improve. The exception is DRAM: caches are not modelled and all sectors that warps asked for are charged, so that
//! its time is a bound from above where data is used again. The parts of a multiprocessor are shared by the blocks that run on
//! it: a grid that does not divide evenly leaves some idle, and its time is that of the fullest.

use serde::Serialize;

use super::counts::{Residency, ratio};
use super::{Counts, Gpu, OpClass};

/// Lanes of 32-bit integer arithmetic a clock of a multiprocessor: the same for all since compute capability 8.0, as are the two
/// below (CUDA C++ Programming Guide, table of arithmetic throughput).
const INTEGER_LANES: u32 = 64;
/// Lanes of the special function unit.
const SPECIAL_LANES: u32 = 16;
/// Warp instructions a clock: one of each of the four schedulers of a multiprocessor.
const ISSUE: u32 = 4;
/// Lanes of a warp.
const WARP: u32 = 32;
/// Bytes of a sector.
const SECTOR: u64 = 32;

/// One part of the chip and the time it needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Which part.
    pub name: &'static str,
    /// What it has to do.
    pub work: String,
    /// Seconds at its peak.
    pub seconds: f64,
}

impl Limit {
    /// The time as people say it.
    pub fn time(&self) -> String {
        match self.seconds {
            s if s >= 1.0 => format!("{s:.2} s"),
            s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
            s if s >= 1e-6 => format!("{:.2} us", s * 1e6),
            s => format!("{:.2} ns", s * 1e9),
        }
    }
}

/// The times of all parts, and the largest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// The GPU.
    pub gpu: &'static str,
    /// Parts with something to do, slowest first.
    pub limits: Vec<Limit>,
    /// Which binds; none if the run did nothing.
    pub bound: Option<&'static str>,
    /// Its time.
    pub seconds: f64,
    /// Rounds of blocks: the grid divided by the blocks that the GPU holds at once; 0 if a block does not fit.
    pub waves: f64,
    /// Share of the multiprocessors' time that the grid can use; the rest is lost to the last round.
    pub balance: f64,
    /// All of it in a sentence or two.
    pub text: String,
}

/// Holds a run against the peaks of a GPU; the module head says what the result means.
///
/// ```
/// use tilewright_sim::count::{Counts, Gpu, LaunchFacts, Sites, estimate};
/// let counts = Counts::new(&Sites::new(0), std::iter::empty(), LaunchFacts::default());
/// let roofline = estimate(&counts, Gpu::named("h200").unwrap());
/// assert_eq!((roofline.bound, roofline.seconds), (None, 0.0));
/// ```
pub fn estimate(counts: &Counts, gpu: &Gpu) -> Roofline {
    let blocks = counts.launch.blocks();
    let sms = u64::from(gpu.multiprocessors);
    // The fullest multiprocessor has this many blocks; the grid takes as long as if all had them.
    let balance = ratio(blocks, blocks.div_ceil(sms).saturating_mul(sms));
    let clocks =
        |clocks: f64| clocks / (gpu.clock * f64::from(gpu.multiprocessors) * balance.max(f64::MIN_POSITIVE));
    let warps = |class| ratio(counts.of_class(class), 1);

    let (mut limits, mut without_rate) = (Vec::new(), Vec::new());
    let sectors = counts.global_reads.sectors + counts.global_writes.sectors;
    limits.push(Limit {
        name: "DRAM",
        work: format!("{sectors} sectors of {SECTOR} bytes, as if no cache held any"),
        seconds: ratio(sectors.saturating_mul(SECTOR), 1) / gpu.dram,
    });
    let shared = counts.shared_clocks();
    limits.push(Limit {
        name: "shared memory",
        work: format!("{shared} wavefronts, one a clock"),
        seconds: clocks(ratio(shared, 1)),
    });
    for tensor in &counts.tensor {
        let rate = gpu.tensor_rate(tensor.kind);
        if rate == 0 {
            without_rate.push(tensor.kind.name());
            continue;
        }
        limits.push(Limit {
            name: "tensor cores",
            work: format!("{} operations of {}, {rate} a clock", tensor.operations, tensor.kind.name()),
            seconds: clocks(ratio(tensor.operations, u64::from(rate))),
        });
    }
    limits.push(Limit {
        name: "instruction issue",
        work: format!("{} warp instructions, {ISSUE} a clock", counts.warp_instructions),
        seconds: clocks(ratio(counts.warp_instructions, u64::from(ISSUE))),
    });
    for (name, class, lanes) in [
        ("f32 arithmetic", OpClass::Float, gpu.float_lanes),
        ("f64 arithmetic", OpClass::Double, gpu.double_lanes),
        ("integer arithmetic", OpClass::Integer, INTEGER_LANES),
        ("special functions", OpClass::Special, SPECIAL_LANES),
    ] {
        limits.push(Limit {
            name,
            work: format!("{} warp instructions, {lanes} lanes a clock", counts.of_class(class)),
            seconds: clocks(warps(class) * f64::from(WARP) / f64::from(lanes)),
        });
    }
    limits.retain(|limit| limit.seconds > 0.0);
    limits.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));

    let resident = u64::from(Residency::new(&counts.launch, gpu.arch).blocks_per_multiprocessor);
    let waves = ratio(blocks, resident * sms);
    let bound = limits.first().map(|limit| limit.name);
    let seconds = limits.first().map_or(0.0, |limit| limit.seconds);
    let mut text = sentence(gpu, &limits, waves, balance, resident);
    if !without_rate.is_empty() {
        text +=
            &format!(" Tensor operations of {} are left out: no rate is published.", without_rate.join(", "));
    }
    Roofline { gpu: gpu.title, limits, bound, seconds, waves, balance, text }
}

fn sentence(gpu: &Gpu, limits: &[Limit], waves: f64, balance: f64, resident: u64) -> String {
    let title = gpu.title;
    if resident == 0 {
        return format!("A block does not fit on a multiprocessor of {title}.");
    }
    let Some(first) = limits.first() else { return format!("Nothing to do on {title}.") };
    let mut text = format!("On {title} {} binds: {}", first.name, first.time());
    match limits.get(1) {
        Some(second) => text += &format!("; next is {} with {}.", second.name, second.time()),
        None => text += ".",
    }
    if first.name == "DRAM" {
        text += " Caches are not modelled: data that is used again costs less.";
    }
    if balance < 0.9 {
        text += &format!(
            " The grid fills {waves:.2} rounds of resident blocks and uses {:.0}% of the multiprocessors' time.",
            100.0 * balance
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::{LaunchFacts, OpInfo, Sites, TensorKind};

    fn gpu(name: &str) -> &'static Gpu {
        Gpu::named(name).unwrap()
    }

    /// Counts of one op with this text, filled by the closure.
    fn counts(text: &str, grid: u32, fill: impl Fn(&mut Sites)) -> Counts {
        let mut sites = Sites::new(1);
        fill(&mut sites);
        let info = OpInfo { line: 1, text: text.into(), source: None, class: OpClass::of(text) };
        let launch = LaunchFacts { grid: [grid, 1, 1], block: [128, 1, 1], ..LaunchFacts::default() };
        Counts::new(&sites, [info].into_iter(), launch)
    }

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 0.02
    }

    /// The table against what the data sheets say, in TFLOP/s.
    #[test]
    fn published_peaks() {
        let peak = |name: &str, kind: TensorKind| {
            let gpu = gpu(name);
            f64::from(gpu.multiprocessors) * gpu.clock * f64::from(gpu.tensor_rate(kind)) / 1e12
        };
        for (name, kind, published) in [
            ("h200", TensorKind::F16, 989.4),
            ("h100", TensorKind::Fp8, 1979.0),
            ("h100", TensorKind::Tf32, 494.7),
            ("a100", TensorKind::F16, 312.0),
            ("a100", TensorKind::Int8, 624.0),
            ("a100", TensorKind::F64, 19.5),
            ("a100", TensorKind::B1, 4992.0),
            ("l40s", TensorKind::F16, 362.05),
            ("l40s", TensorKind::Fp8, 733.0),
            ("l4", TensorKind::F16, 121.0),
            ("l4", TensorKind::Int8, 242.5),
            ("rtx4090", TensorKind::F16, 165.2),
            ("rtx4090", TensorKind::Int8, 660.6),
        ] {
            assert!(
                close(peak(name, kind), published),
                "{name} {kind:?}: {} is not {published}",
                peak(name, kind)
            );
        }
        let vector = |name: &str| {
            let gpu = gpu(name);
            f64::from(gpu.multiprocessors * gpu.float_lanes) * 2.0 * gpu.clock / 1e12
        };
        assert!(close(vector("a100"), 19.5) && close(vector("rtx4090"), 82.6) && close(vector("l40s"), 91.6));
    }

    #[test]
    fn each_limit_can_bind() {
        let h200 = gpu("h200");
        let bound = |text: &str, fill: &dyn Fn(&mut Sites)| {
            let roofline = estimate(&counts(text, 132, fill), h200);
            (roofline.bound.unwrap(), roofline.seconds)
        };
        let run =
            |sites: &mut Sites, times: u64| (0..times).for_each(|_| sites.executed(0, u32::MAX, u32::MAX));
        let sm_clocks = 1.83e9 * 132.0;

        let (name, seconds) =
            bound("cp.async.bulk.shared::cluster.global [%r1], [%rd1], %r2, [%r3];", &|s| {
                s.copied(0, 0, 3200, 100);
            });
        assert!(name == "DRAM" && close(seconds, 3200.0 / 4.8e12), "{name} {seconds}");
        let (name, seconds) = bound("ld.shared.f32 %f1, [%r1];", &|s| {
            s.shared(0, &std::array::from_fn(|lane| lane as u64 * 128), u32::MAX, 4, false);
        });
        assert!(name == "shared memory" && close(seconds, 32.0 / sm_clocks), "{name} {seconds}");
        let (name, seconds) = bound("mma.sync;", &|s| s.tensor(0, 4096 * 50, TensorKind::F16));
        assert!(name == "tensor cores" && close(seconds, 50.0 / sm_clocks), "{name} {seconds}");
        let (name, seconds) = bound("mov.b32 %r1, %r2;", &|s| run(s, 400));
        assert!(name == "instruction issue" && close(seconds, 100.0 / sm_clocks), "{name} {seconds}");
        let (name, seconds) = bound("mad.lo.s32 %r1, %r2, %r3, %r4;", &|s| run(s, 400));
        assert!(name == "integer arithmetic" && close(seconds, 200.0 / sm_clocks), "{name} {seconds}");
        assert_eq!(bound("ex2.approx.f32 %f1, %f2;", &|s| run(s, 4)).0, "special functions");
    }

    /// 133 blocks on 132 multiprocessors take as long as 264; one block has one multiprocessor.
    #[test]
    fn the_last_round_costs_a_round() {
        let h200 = gpu("h200");
        let seconds = |grid: u32| {
            let work = u64::from(grid) * 1000;
            estimate(&counts("mma.sync;", grid, |s| s.tensor(0, 4096 * work, TensorKind::F16)), h200)
        };
        assert!(close(seconds(1).seconds, 1000.0 / 1.83e9));
        assert!(close(seconds(132).seconds, 1000.0 / 1.83e9));
        assert!(close(seconds(133).seconds, 2000.0 / 1.83e9));
        assert!(close(seconds(264).seconds, 2000.0 / 1.83e9));
        assert!(seconds(133).text.contains("50%"), "{}", seconds(133).text);
        assert!(!seconds(132).text.contains('%'));
    }

    #[test]
    fn tensor_operations_without_a_rate_are_said() {
        let fp8 = counts("mma.sync;", 1, |s| s.tensor(0, 4096, TensorKind::Fp8));
        assert!(estimate(&fp8, gpu("a100")).text.contains("fp8 are left out"));
        assert!(!estimate(&fp8, gpu("h100")).text.contains("left out"));
    }

    #[test]
    fn a_block_that_does_not_fit_is_said() {
        let launch = LaunchFacts { dynamic_shared_bytes: 200 * 1024, ..LaunchFacts::default() };
        let counts = Counts::new(&Sites::new(0), std::iter::empty(), launch);
        assert!(estimate(&counts, gpu("l4")).text.contains("does not fit"));
        assert_eq!(estimate(&counts, gpu("l4")).waves, 0.0);
        assert!(!estimate(&counts, gpu("h200")).text.contains("does not fit"));
    }
}
