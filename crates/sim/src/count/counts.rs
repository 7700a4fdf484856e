//! [`Counts`]: the report of what was counted.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tilewright_hardware::{Arch, Limiter, occupancy};

use super::pattern::WAVEFRONT;
use super::sites::{Issue, Work};
use super::{OpClass, Sites, TensorKind, Traffic};

/// What the report says about an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// Line of the PTX.
    pub line: u32,
    /// The instruction.
    pub text: String,
    /// File, line and column of the source, if the PTX says.
    pub source: Option<(String, u32, u32)>,
    /// Which kind of work it is; [`OpClass::of`] tells.
    pub class: OpClass,
}

/// What was launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaunchFacts {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of shared memory that the kernel declares.
    pub static_shared_bytes: u32,
    /// Bytes of shared memory that the launch asks for.
    pub dynamic_shared_bytes: u32,
    /// Registers of a thread: the most that live at once, which the assembler usually exceeds a little.
    pub registers: u32,
    /// The chip the PTX is for.
    #[serde(serialize_with = "as_text")]
    pub target: Arch,
}

impl Default for LaunchFacts {
    fn default() -> LaunchFacts {
        LaunchFacts {
            grid: [1; 3],
            block: [1; 3],
            cluster: None,
            static_shared_bytes: 0,
            dynamic_shared_bytes: 0,
            registers: 0,
            target: Arch::SM_90,
        }
    }
}

impl LaunchFacts {
    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul)
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().copied().fold(1, u32::saturating_mul)
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> u32 {
        self.static_shared_bytes.saturating_add(self.dynamic_shared_bytes)
    }
}

fn as_text<S: Serializer>(arch: &Arch, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(arch)
}

/// How full a multiprocessor is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// The chip in question: the target, or the oldest whose limits are known if that is older.
    #[serde(serialize_with = "as_text")]
    pub arch: Arch,
    /// Blocks at once; 0 if the block does not fit at all.
    pub blocks_per_multiprocessor: u32,
    /// Warps at once.
    pub warps_per_multiprocessor: u32,
    /// Warps that a multiprocessor could hold.
    pub most_warps: u32,
    /// What keeps one more block out.
    pub limited_by: &'static str,
}

impl Residency {
    /// Of a launch on a chip.
    pub(super) fn new(launch: &LaunchFacts, arch: Arch) -> Residency {
        let arch = arch.max(Arch::SM_80);
        let limits = arch.limits();
        // A launch that asks for more shared memory than `u32` arithmetic of sizes allows for does not fit anyway.
        let shared = launch.shared_bytes().min(limits.shared_per_block + 1);
        // Blocks that do not exist on the chip have no warps.
        let threads = launch.threads().min(limits.threads_per_block + 1);
        let found = occupancy(arch, threads, launch.registers.min(limits.max_registers_per_thread), shared);
        let limited_by = match found.limited_by {
            Limiter::Blocks => "blocks",
            Limiter::Threads => "threads",
            Limiter::Registers => "registers",
            Limiter::SharedMemory => "shared memory",
        };
        Residency {
            arch,
            blocks_per_multiprocessor: found.blocks_per_sm,
            warps_per_multiprocessor: found.warps,
            most_warps: limits.threads_per_sm / tilewright_hardware::WARP,
            limited_by,
        }
    }
}

/// A class of instructions and its share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MixRow {
    /// The class.
    pub class: OpClass,
    /// Warp instructions.
    pub warp_instructions: u64,
    /// Of all warp instructions.
    pub percent: f64,
}

/// Requests to shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shared {
    /// Warp instructions that asked.
    pub requests: u64,
    /// Wavefronts they took.
    pub wavefronts: u64,
    /// Of these, those that bank conflicts added.
    pub conflicts: u64,
    /// Bytes that lanes read.
    pub bytes_read: u64,
    /// Bytes that lanes wrote.
    pub bytes_written: u64,
    /// Bytes that copy engines and tensor cores moved by themselves.
    pub bytes_copied: u64,
}

/// Control flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    /// Share of the lanes of the issued instructions that were idle although their threads were still running.
    pub divergence: f64,
    /// Branches that warps executed.
    pub branches: u64,
    /// Branches at which the lanes of a warp parted.
    pub diverged_branches: u64,
    /// Times that a warp had to wait: at barriers, for copies, for tensor cores.
    pub waits: u64,
}

/// Work of the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TensorRow {
    /// The type.
    #[serde(serialize_with = "by_name")]
    pub kind: TensorKind,
    /// Operations, a multiply-add being two.
    pub operations: u64,
}

/// In small letters, as the name of the variant.
fn by_name<S: serde::Serializer>(kind: &TensorKind, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{kind:?}").to_string().to_lowercase())
}

/// A memory access of the program, over all its executions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteRow {
    /// Line of the PTX.
    pub line: u32,
    /// The instruction.
    pub instruction: String,
    /// File, line and column of the source.
    pub source: Option<(String, u32, u32)>,
    /// Warp instructions, or copies.
    pub requests: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Sectors of global memory for each request; 0 for shared memory.
    pub sectors_per_request: f64,
    /// What that would be if the bytes lay side by side.
    pub ideal_sectors_per_request: f64,
    /// Wavefronts of shared memory for each request; 0 for global memory.
    pub wavefronts_per_request: f64,
    /// Sectors beyond the ideal, all requests together.
    pub excess_sectors: u64,
    /// Wavefronts beyond the ideal, all requests together: bank conflicts.
    pub bank_conflicts: u64,
}

impl SiteRow {
    fn new(info: OpInfo, work: &Work) -> Option<SiteRow> {
        let mut global = work.global_read;
        global.join(&work.global_written);
        let requests = work.shared_requests.max(global.requests).max(work.copies);
        if requests == 0 {
            return None;
        }
        let sectors = global.sectors + work.copied_sectors;
        let copied_ideal = work.copied_global.div_ceil(32).min(work.copied_sectors);
        let ideal = global.ideal_sectors + copied_ideal;
        // An instruction that copies has bytes on both sides; they are the same ones.
        let copied = (global.bytes + work.copied_global).max(work.copied_shared);
        Some(SiteRow {
            line: info.line,
            instruction: info.text,
            source: info.source,
            requests,
            bytes: work.shared_read + work.shared_written + copied,
            sectors_per_request: ratio(sectors, requests),
            ideal_sectors_per_request: ratio(ideal, requests),
            wavefronts_per_request: ratio(work.wavefronts, requests),
            excess_sectors: sectors.saturating_sub(ideal),
            bank_conflicts: work.wavefronts.saturating_sub(work.ideal_wavefronts),
        })
    }

    /// Larger is worse: first what is wasted, then what is used. A multiprocessor moves a wavefront of 128 bytes and two sectors
    /// of 32 bytes a clock, so a wavefront weighs as much as two sectors.
    fn badness(&self) -> (u64, u64) {
        (2 * self.bank_conflicts + self.excess_sectors, self.bytes)
    }
}

/// What a run did: a report for people ([`Counts::totals`], [`Counts::sites`]) and for programs (it serialises).
///
/// ```
/// use tilewright_sim::count::{Counts, LaunchFacts, OpClass, OpInfo, Sites};
/// let mut sites = Sites::new(1);
/// sites.executed(0, u32::MAX, u32::MAX);
/// sites.shared(0, &std::array::from_fn(|lane| 1024 + lane as u64 * 8), u32::MAX, 4, false);
/// let text = "ld.shared.f32 %f1, [%r1];";
/// let info = OpInfo { line: 12, text: text.into(), source: None, class: OpClass::of(text) };
/// let counts = Counts::new(&sites, [info].into_iter(), LaunchFacts::default());
/// assert_eq!(counts.shared.conflicts, 1);
/// assert_eq!(counts.sites()[0].wavefronts_per_request, 2.0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// What was launched.
    pub launch: LaunchFacts,
    /// Instructions that warps issued.
    pub warp_instructions: u64,
    /// Instructions that threads executed.
    pub thread_instructions: u64,
    /// Warp instructions by class, most frequent first.
    pub mix: Vec<MixRow>,
    /// Divergence and waiting.
    pub flow: Flow,
    /// Reads of global memory, copies included.
    pub global_reads: Traffic,
    /// Writes of global memory, copies included.
    pub global_writes: Traffic,
    /// Shared memory.
    pub shared: Shared,
    /// Tensor cores; kinds that were used.
    pub tensor: Vec<TensorRow>,
    /// How full a multiprocessor of the target is.
    pub residency: Option<Residency>,
    sites: Vec<SiteRow>,
}

impl Counts {
    /// The report of what was counted, with the op of each entry in order.
    pub fn new(sites: &Sites, ops: impl Iterator<Item = OpInfo>, launch: LaunchFacts) -> Counts {
        let mut counts =
            Counts { residency: Some(Residency::new(&launch, launch.target)), ..Counts::default() };
        let (mut live, mut by_class, mut tensor) = (0, BTreeMap::new(), BTreeMap::new());
        for ((issue, work), info) in sites.entries().zip(ops) {
            counts.add(info.class, issue, work);
            live += issue.live;
            *by_class.entry(info.class).or_insert(0) += issue.warps;
            *tensor.entry(work.tensor_kind).or_insert(0) += work.tensor;
            counts.sites.extend(SiteRow::new(info, work));
        }
        counts.flow.divergence = if live == 0 { 0.0 } else { 1.0 - ratio(counts.thread_instructions, live) };
        let all = counts.warp_instructions;
        let row = |(class, warp_instructions)| MixRow {
            class,
            warp_instructions,
            percent: 100.0 * ratio(warp_instructions, all),
        };
        counts.mix = by_class.into_iter().filter(|(_, warps)| *warps > 0).map(row).collect();
        counts.mix.sort_by_key(|row| std::cmp::Reverse(row.warp_instructions));
        let used = tensor.into_iter().filter(|(_, operations)| *operations > 0);
        counts.tensor = used.map(|(kind, operations)| TensorRow { kind, operations }).collect();
        // Stable, so that equally bad ones stay in the order of the program.
        counts.sites.sort_by_key(|row| std::cmp::Reverse(row.badness()));
        counts.launch = launch;
        counts
    }

    fn add(&mut self, class: OpClass, issue: &Issue, work: &Work) {
        self.warp_instructions += issue.warps;
        self.thread_instructions += issue.active;
        self.flow.waits += issue.waits;
        self.flow.branches += work.branches;
        self.flow.diverged_branches += work.diverged;
        self.global_reads.join(&work.global_read);
        self.global_writes.join(&work.global_written);
        let copies = Traffic {
            requests: work.copies,
            sectors: work.copied_sectors,
            ideal_sectors: work.copied_global.div_ceil(32).min(work.copied_sectors),
            bytes: work.copied_global,
        };
        // Operands that tensor cores fetch are copies on the shared side only.
        if work.copied_global > 0 || work.copied_sectors > 0 {
            (if class == OpClass::CopyOut { &mut self.global_writes } else { &mut self.global_reads })
                .join(&copies);
        }
        self.shared.requests += work.shared_requests;
        self.shared.wavefronts += work.wavefronts;
        self.shared.conflicts += work.wavefronts.saturating_sub(work.ideal_wavefronts);
        self.shared.bytes_read += work.shared_read;
        self.shared.bytes_written += work.shared_written;
        self.shared.bytes_copied += work.copied_shared;
    }

    /// Memory accesses that were executed, the most wasteful first.
    pub fn sites(&self) -> &[SiteRow] {
        &self.sites
    }

    /// Clocks that the shared memory of one multiprocessor would need for all: wavefronts of requests, and copies at full width.
    pub fn shared_clocks(&self) -> u64 {
        self.shared.wavefronts + self.shared.bytes_copied.div_ceil(u64::from(WAVEFRONT))
    }

    /// Warp instructions of a class.
    pub fn of_class(&self, class: OpClass) -> u64 {
        self.mix.iter().find(|row| row.class == class).map_or(0, |row| row.warp_instructions)
    }

    /// The sums as pairs of name and value, for a table.
    pub fn totals(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row("warp instructions", self.warp_instructions.to_string());
        row("thread instructions", self.thread_instructions.to_string());
        let mix = self.mix.iter().map(|row| format!("{} {:.1}%", row.class.name(), row.percent));
        row("instruction mix", mix.collect::<Vec<_>>().join(", "));
        row("idle lanes (divergence)", format!("{:.1}%", 100.0 * self.flow.divergence));
        if self.flow.branches > 0 {
            let (diverged, all) = (self.flow.diverged_branches, self.flow.branches);
            row("diverged branches", format!("{diverged} of {all} ({:.1}%)", 100.0 * ratio(diverged, all)));
        }
        row("waits", self.flow.waits.to_string());
        for (name, traffic) in [("global reads", &self.global_reads), ("global writes", &self.global_writes)]
        {
            if traffic.requests > 0 {
                row(name, describe(traffic));
            }
        }
        let shared = &self.shared;
        if shared.requests > 0 {
            row(
                "shared requests",
                format!(
                    "{} in {} wavefronts, {} of them bank conflicts",
                    shared.requests, shared.wavefronts, shared.conflicts
                ),
            );
            row("shared bytes", format!("{} read, {} written", shared.bytes_read, shared.bytes_written));
        }
        if shared.bytes_copied > 0 {
            row("shared bytes, asynchronous", shared.bytes_copied.to_string());
        }
        for tensor in &self.tensor {
            row(&format!("tensor operations, {}", tensor.kind.name()), tensor.operations.to_string());
        }
        let launch = &self.launch;
        row(
            "shared memory of a block",
            format!(
                "{} bytes declared, {} asked for",
                launch.static_shared_bytes, launch.dynamic_shared_bytes
            ),
        );
        row("registers of a thread", format!("about {}", launch.registers));
        if let Some(found) = &self.residency {
            row(
                "occupancy",
                format!(
                    "{} blocks, {} of {} warps a multiprocessor of {}, limited by {}",
                    found.blocks_per_multiprocessor,
                    found.warps_per_multiprocessor,
                    found.most_warps,
                    found.arch,
                    found.limited_by
                ),
            );
        }
        rows
    }
}

fn describe(traffic: &Traffic) -> String {
    format!(
        "{} bytes in {} requests, {} sectors ({:.1} a request, {:.1} would do)",
        traffic.bytes,
        traffic.requests,
        traffic.sectors,
        ratio(traffic.sectors, traffic.requests),
        ratio(traffic.ideal_sectors, traffic.requests)
    )
}

/// For display and estimates; 0 of 0 is 0.
#[allow(clippy::cast_precision_loss, reason = "counts above 2^53 lose digits that nobody reads")]
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(line: u32, text: &str) -> OpInfo {
        OpInfo { line, text: text.into(), source: None, class: OpClass::of(text) }
    }

    fn strided(stride: u64) -> [u64; 32] {
        std::array::from_fn(|lane| 4096 + lane as u64 * stride)
    }

    /// A small program with one site of each sort.
    fn program() -> Vec<OpInfo> {
        [
            "ld.global.f32 %f1, [%rd1];",
            "st.shared.f32 [%r1], %f1;",
            "bar.sync 0;",
            "ld.shared.f32 %f2, [%r2];",
            "@%p1 bra $L;",
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r2, %r3}], [%r4];",
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {..};",
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];",
        ]
        .iter()
        .zip(10..)
        .map(|(text, line)| info(line, text))
        .collect()
    }

    fn run() -> Sites {
        let mut sites = Sites::new(program().len());
        for op in 0..8 {
            sites.executed(op, u32::MAX, u32::MAX);
        }
        sites.executed(4, 0xffff, u32::MAX);
        sites.global(0, &strided(8), u32::MAX, 4, false);
        sites.shared(1, &strided(4), u32::MAX, 4, true);
        sites.waited(2);
        sites.shared(3, &strided(128), u32::MAX, 4, false);
        sites.branched(4, 0xff, u32::MAX);
        sites.branched(4, 0xffff, 0xffff);
        sites.copied(5, 8192, 8192, 256);
        sites.tensor(6, 4096, TensorKind::F16);
        let rows: Vec<u32> = (0..32).map(|row| 1024 + 16 * row).collect();
        sites.matrix(7, &rows.try_into().unwrap(), 4, false);
        sites
    }

    #[test]
    fn sums_and_shares() {
        let counts = Counts::new(&run(), program().into_iter(), LaunchFacts::default());
        assert_eq!((counts.warp_instructions, counts.thread_instructions), (9, 8 * 32 + 16));
        assert!((counts.flow.divergence - 16.0 / 288.0).abs() < 1e-12);
        assert_eq!((counts.flow.branches, counts.flow.diverged_branches, counts.flow.waits), (2, 1, 1));
        assert_eq!(counts.global_reads, Traffic { requests: 1, sectors: 8, ideal_sectors: 4, bytes: 128 });
        assert_eq!(
            counts.global_writes,
            Traffic { requests: 1, sectors: 256, ideal_sectors: 256, bytes: 8192 }
        );
        let shared = Shared {
            requests: 3,
            wavefronts: 1 + 32 + 4,
            conflicts: 31,
            bytes_read: 128 + 512,
            bytes_written: 128,
            bytes_copied: 8192,
        };
        assert_eq!(counts.shared, shared);
        assert_eq!(counts.shared_clocks(), 37 + 64);
        assert_eq!(counts.tensor, [TensorRow { kind: TensorKind::F16, operations: 4096 }]);
        let percent: f64 = counts.mix.iter().map(|row| row.percent).sum();
        assert!((percent - 100.0).abs() < 1e-9);
        assert_eq!(counts.of_class(OpClass::Control), 2);
    }

    #[test]
    fn the_worst_site_comes_first_and_only_memory_has_rows() {
        let counts = Counts::new(&run(), program().into_iter(), LaunchFacts::default());
        let lines: Vec<u32> = counts.sites().iter().map(|row| row.line).collect();
        assert_eq!(lines, [13, 10, 15, 17, 11]);
        let worst = &counts.sites()[0];
        assert_eq!((worst.bank_conflicts, worst.wavefronts_per_request, worst.bytes), (31, 32.0, 128));
        let global = &counts.sites()[1];
        assert_eq!((global.sectors_per_request, global.ideal_sectors_per_request), (8.0, 4.0));
    }

    #[test]
    fn merging_is_adding() {
        let mut twice = Sites::default();
        twice.merge(&run());
        twice.merge(&run());
        let once = Counts::new(&run(), program().into_iter(), LaunchFacts::default());
        let both = Counts::new(&twice, program().into_iter(), LaunchFacts::default());
        assert_eq!(both.warp_instructions, 2 * once.warp_instructions);
        assert_eq!(both.shared.conflicts, 2 * once.shared.conflicts);
        assert_eq!(both.tensor[0].operations, 2 * once.tensor[0].operations);
        assert_eq!(both.flow.diverged_branches, 2 * once.flow.diverged_branches);
        assert_eq!(both.sites()[0].wavefronts_per_request, once.sites()[0].wavefronts_per_request);
    }

    #[test]
    fn ops_out_of_range_and_empty_runs_are_harmless() {
        let mut sites = Sites::new(1);
        for op in [1, u32::MAX] {
            sites.executed(op, 1, 1);
            sites.branched(op, 1, 1);
            sites.shared(op, &[0; 32], 1, 4, true);
            sites.global(op, &[0; 32], 1, 4, true);
            sites.matrix(op, &[0; 32], 9, true);
            sites.copied(op, 1, 1, 1);
            sites.tensor(op, 1, TensorKind::B1);
            sites.waited(op);
        }
        sites.shared(0, &[0; 32], 0, 4, true);
        let huge = LaunchFacts {
            grid: [u32::MAX; 3],
            block: [u32::MAX; 3],
            static_shared_bytes: u32::MAX,
            dynamic_shared_bytes: u32::MAX,
            registers: u32::MAX,
            ..LaunchFacts::default()
        };
        let counts = Counts::new(&sites, [info(1, "ret;")].into_iter(), huge);
        let ancient = LaunchFacts { target: Arch { number: 50, specific: false }, ..LaunchFacts::default() };
        assert_eq!(Residency::new(&ancient, ancient.target).arch, Arch::SM_80);
        assert_eq!((counts.warp_instructions, counts.sites().len()), (0, 0));
        assert_eq!(counts.residency.as_ref().unwrap().blocks_per_multiprocessor, 0);
        assert!(!counts.totals().is_empty());
    }

    #[test]
    fn the_report_serialises() {
        let counts = Counts::new(&run(), program().into_iter(), LaunchFacts::default());
        let value = serde_json::to_value(&counts).unwrap();
        assert_eq!(value["launch"]["target"], "sm_90");
        assert_eq!(value["tensor"][0]["kind"], "f16");
        assert_eq!(value["sites"][0]["line"], 13);
        let totals = counts.totals();
        let find = |name: &str| totals.iter().find(|row| row.0 == name).unwrap().1.clone();
        assert_eq!(find("shared requests"), "3 in 37 wavefronts, 31 of them bank conflicts");
        assert_eq!(find("diverged branches"), "1 of 2 (50.0%)");
    }
}
