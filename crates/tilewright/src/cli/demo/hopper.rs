//! The kernel that an H200 would use for a large product, on a small one in the simulator: what the checker and the counters say.

use std::io::Write;
use std::time::Instant;

use half::bf16;
use serde::Serialize;
use tilewright::device::{Device, Options, Report};
use tilewright::gemm::{Arguments, Gemm};
use tilewright::kernels::gemm::Storage;
use tilewright::sim::count::{Counts, Roofline, estimate};

use super::super::Failure;

/// The product that the algorithm is chosen for.
const LARGE: usize = 4096;
/// The product that is simulated: m, n and k.
const SMALL: [usize; 3] = [256, 256, 256];

/// What the simulator says.
#[derive(Debug, Serialize)]
pub(super) struct Simulated {
    product: [usize; 3],
    gpu: &'static str,
    algorithm: String,
    /// What the checker found, one line each.
    findings: Vec<String>,
    pub(super) compared: u64,
    /// Elements that are not what they should be.
    wrong: u64,
    seconds: f64,
    counts: Counts,
    roofline: Roofline,
}

/// A column of whole numbers from -8 to 8, so that sums are exact.
fn numbers(count: usize, factor: usize) -> Vec<i32> {
    (0..count).map(|i| i32::try_from(i * factor % 17).unwrap_or(0) - 8).collect()
}

#[allow(clippy::cast_precision_loss, reason = "whole numbers far below 2^24")]
fn round(value: i32) -> bf16 {
    bf16::from_f32(value as f32)
}

impl Simulated {
    pub(super) fn run() -> Result<Simulated, Box<dyn std::error::Error>> {
        let device = Device::simulator_with(Options { count: true, ..Options::default() });
        let product = |m, n, k| Gemm::new(m, n, k).element::<bf16>().b(Storage::ColumnMajor);
        let chosen = product(LARGE, LARGE, LARGE).plan(&device)?.algorithm();
        let algorithm = chosen.ok_or("the simulator's plans have algorithms")?;

        let [m, n, k] = SMALL;
        let (a, b) = (numbers(m * k, 5), numbers(n * k, 3));
        let upload =
            |values: &[i32]| device.upload(&values.iter().map(|&value| round(value)).collect::<Vec<_>>());
        let (a_memory, b_memory, d) = (upload(&a)?, upload(&b)?, device.alloc::<bf16>(m * n)?);
        let plan = product(m, n, k).algorithm(algorithm).plan(&device)?;
        let start = Instant::now();
        let reports = plan.run_reported(&Arguments::new(&a_memory, &b_memory, &d))?;
        let seconds = start.elapsed().as_secs_f64();

        let dot = |a: &[i32], b: &[i32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<i32>();
        let expected = a.chunks(k).flat_map(|a| b.chunks(k).map(move |b| round(dot(a, b))));
        let wrong =
            d.to_vec()?.into_iter().zip(expected).filter(|(found, expected)| found != expected).count();
        let findings = reports.iter().flat_map(Report::findings).map(ToString::to_string).collect();
        // Copies of factors come first, if there are any; the product itself is last.
        let last = reports.last().and_then(Report::simulation);
        let counts = last.ok_or("the simulator reports on launches")?.counts.clone();
        let chip = device.chip();
        Ok(Simulated {
            product: SMALL,
            gpu: chip.title,
            algorithm: algorithm.to_string(),
            findings,
            compared: (m * n) as u64,
            wrong: wrong as u64,
            seconds,
            roofline: estimate(&counts, &chip),
            counts,
        })
    }

    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        let what = match (self.findings.first(), self.wrong) {
            (Some(finding), _) => finding.clone(),
            (None, 0) => return None,
            (None, wrong) => format!("{wrong} elements are wrong"),
        };
        Some(format!("the simulated product: {what}"))
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let Simulated { product: [m, n, k], counts, .. } = self;
        writeln!(
            out,
            "\nThe kernel that an {} would use for {LARGE}x{LARGE}x{LARGE}, executed here at {m}x{n}x{k} ({:.1} s):\n",
            self.gpu, self.seconds
        )?;
        let tensor: u64 = counts.tensor.iter().map(|row| row.operations).sum();
        let (reads, writes) = (&counts.global_reads, &counts.global_writes);
        let (launch, shared) = (&counts.launch, &counts.shared);
        let found = match self.findings.len() {
            0 => "none: no race, missing fence, misused barrier or read of what nobody wrote".to_owned(),
            some => format!("{some}, the first: {}", self.findings[0]),
        };
        let lines = [
            ("algorithm", self.algorithm.clone()),
            ("findings", found),
            ("result", format!("{} elements compared, {} wrong", self.compared, self.wrong)),
            (
                "blocks",
                format!(
                    "{} of {} threads, {} bytes of shared memory",
                    launch.blocks(),
                    launch.threads(),
                    launch.shared_bytes()
                ),
            ),
            (
                "instructions",
                format!("{} of warps, {} of threads", counts.warp_instructions, counts.thread_instructions),
            ),
            ("tensor cores", format!("{tensor} operations; the product has {}", 2 * m * n * k)),
            (
                "global memory",
                format!(
                    "{} bytes read, {} written; the matrices have {} and {}",
                    reads.bytes,
                    writes.bytes,
                    2 * (m + n) * k,
                    2 * m * n
                ),
            ),
            (
                "shared memory",
                format!(
                    "{} clocks, of which bank conflicts cost {}",
                    counts.shared_clocks(),
                    shared.conflicts
                ),
            ),
            ("roofline", self.roofline.text.clone()),
        ];
        for (name, value) in lines {
            writeln!(out, "  {name:14} {value}")?;
        }
        Ok(())
    }
}
