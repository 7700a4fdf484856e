//! The [ladder](crate::kernels::ladder) on a device: every step run, checked, counted and timed on the same matrices.
//!
//! ```
//! use tilewright::device::Device;
//! use tilewright::kernels::ladder;
//! use tilewright::ladder::run_step;
//!
//! let step = ladder::find("shared").ok_or("no such step")?;
//! let report = run_step(&Device::simulator(), step, [64, 32, 64])?; // clean, and every element right
//! assert!(report.findings().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::{Duration, Instant};

use half::bf16;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tilewright_hardware::Gpu;
use tilewright_kernels::gemm::{GemmError, Operand};
use tilewright_kernels::ladder::{Step, Takes};
use tilewright_lang::nearest_bf16;
use tilewright_sim::count::{Counts, estimate};

use crate::device::{Buffer, Device, DeviceError, Report};
use crate::gemm::{Operands, Prepared};

/// Why a step did not run, or not well.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LadderError {
    /// The device cannot run it, or found faults in it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The step does not take such matrices.
    #[error(transparent)]
    Gemm(#[from] GemmError),
    /// The result is wrong.
    #[error("step {step}: c[{row}, {column}] is {found}, expected {expected}")]
    Wrong {
        /// The step's name.
        step: &'static str,
        /// Where.
        row: usize,
        /// Where.
        column: usize,
        /// What the step computed.
        found: bf16,
        /// What it is.
        expected: bf16,
    },
    /// Only the simulator counts, and only if it is told to.
    #[error("{device} counts nothing; use a simulator with `count: true`")]
    NoCounts {
        /// The device.
        device: String,
    },
}

/// Matrices on a device, for all steps.
#[derive(Debug)]
pub struct Workbench {
    device: Device,
    size: [u32; 3],
    multiprocessors: u32,
    a: Vec<bf16>,
    b: Vec<bf16>,
    c: Buffer<bf16>,
    operands: Operands,
}

/// Runs a step once on fresh random matrices of these extents `[m, n, k]`. It must be clean and right.
///
/// # Errors
/// If it is not, or cannot run.
pub fn run_step(device: &Device, step: &Step, size: [u32; 3]) -> Result<Report, LadderError> {
    Workbench::new(device, size, 0)?.run(step)
}

impl Workbench {
    /// Random matrices of these extents `[m, n, k]`.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn new(device: &Device, size: [u32; 3], seed: u64) -> Result<Workbench, LadderError> {
        let [m, n, k] = size.map(|extent| extent as usize);
        let mut random = Random(seed);
        let (a, b) = (random.eighths(m * k), random.eighths(n * k));
        let c = device.alloc::<bf16>(m * n)?;
        let operands = Operands::new()
            .with(Operand::A, &device.upload(&a)?)
            .with(Operand::B, &device.upload(&b)?)
            .with(Operand::D, &c);
        // The simulator and the CPU stand for an H200.
        let chip = device.context().map(|context| context.device().multiprocessors);
        let multiprocessors = chip.unwrap_or(Gpu::ALL[0].multiprocessors);
        Ok(Workbench { device: device.clone(), size, multiprocessors, a, b, c, operands })
    }

    /// With persistent steps on fewer multiprocessors than there are, so that each has more to do.
    #[must_use]
    pub fn with_multiprocessors(self, multiprocessors: u32) -> Workbench {
        Workbench { multiprocessors, ..self }
    }

    /// The step, compiled, with its arguments.
    ///
    /// # Errors
    /// If the device cannot run it, or it does not take these extents.
    pub fn prepare(&self, step: &Step) -> Result<Prepared, LadderError> {
        let recipe = step.recipe(self.size, self.multiprocessors)?;
        Ok(Prepared::new(&self.device, &recipe, &self.operands)?)
    }

    /// Runs a step once. It must be clean, and of a large result a sample of elements right, of a small one all.
    ///
    /// # Errors
    /// If it is not, or cannot run.
    pub fn run(&self, step: &Step) -> Result<Report, LadderError> {
        let prepared = self.prepare(step)?;
        self.c.fill(bf16::NAN)?;
        let reports = prepared.run()?;
        let clean = reports.into_iter().map(Report::expect_clean).collect::<Result<Vec<_>, _>>()?;
        self.check(step)?;
        // A step is one launch.
        clean.into_iter().next_back().ok_or_else(|| GemmError::Kernel("nothing to launch".to_owned()).into())
    }

    /// Sums of multiples of 1/64 are exact in f32 in any order, so there is one right result.
    fn check(&self, step: &Step) -> Result<(), LadderError> {
        /// Multiply-adds that take a moment on a CPU.
        const MOST: usize = 1 << 26;
        let [m, n, k] = self.size.map(|extent| extent as usize);
        let found = self.c.to_vec()?;
        // A stride without factors in common with the extents, so that the sample meets all rows and columns.
        let stride = if m * n * k <= MOST { 1 } else { (m * n * k / MOST) | 0x101 };
        for element in (0..m * n).step_by(stride) {
            let (row, column) = (element / n, element % n);
            let (x, y) = (&self.a[row * k..][..k], &self.b[column * k..][..k]);
            let sum: f64 = x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
            let expected = nearest_bf16(sum);
            // NaN is never equal: whatever was not written is wrong.
            if found[element] != expected {
                return Err(LadderError::Wrong {
                    step: step.name,
                    row,
                    column,
                    found: found[element],
                    expected,
                });
            }
        }
        Ok(())
    }

    /// Runs a step once in the simulator, and says what its counters say.
    ///
    /// # Errors
    /// If it cannot run or is wrong, or the device does not count.
    pub fn count(&self, step: &Step, gpu: &Gpu) -> Result<Counted, LadderError> {
        let report = self.run(step)?;
        let counts = report.simulation().map(|simulation| &simulation.counts);
        match counts.filter(|counts| counts.warp_instructions > 0) {
            Some(counts) => Ok(Counted::new(step, self.size, counts, gpu)),
            None => Err(LadderError::NoCounts { device: self.device.name().to_owned() }),
        }
    }

    /// Times a step: medians of samples over about `budget`, after a run to warm up.
    ///
    /// # Errors
    /// If it cannot run.
    pub fn measure(&self, step: &Step, budget: Duration) -> Result<Measured, LadderError> {
        /// A sample much longer than it takes to begin and end one.
        const SAMPLE: Duration = Duration::from_millis(2);
        let prepared = self.prepare(step)?;
        let launch = |times: u32| -> Result<(), DeviceError> {
            (0..times).try_for_each(|_| prepared.run().map(|_| ()))
        };
        launch(1)?;
        let once = time(&self.device, || launch(1))?;
        let times = u32::try_from(SAMPLE.as_nanos() / once.as_nanos().max(1)).unwrap_or(1).max(1);
        let (start, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < 5 || (start.elapsed() < budget && samples.len() < 1000) {
            samples.push(time(&self.device, || launch(times))?.as_secs_f64() / f64::from(times));
        }
        Ok(Measured::new(step, self.size, &mut samples))
    }
}

/// How long the device takes for what `work` asks of it: on a GPU between two events in its stream, elsewhere by the clock.
fn time(device: &Device, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<Duration, DeviceError> {
    let Some(stream) = device.stream() else {
        let start = Instant::now();
        work()?;
        return Ok(start.elapsed());
    };
    let (start, end) = (stream.context().event()?, stream.context().event()?);
    start.record(stream)?;
    work()?;
    end.record(stream)?;
    end.synchronize()?;
    Ok(end.since(&start)?)
}

/// Sectors that the first-level cache of a multiprocessor serves a clock: 128 bytes. The copy engine goes past it.
const SECTORS_A_CLOCK: f64 = 4.0;

/// Multiply-adds of a product.
fn multiply_adds(size: [u32; 3]) -> f64 {
    size.map(f64::from).iter().product()
}

/// What the simulator counts of a step. Work is given for each 1000 multiply-adds, so that shapes can be compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counted {
    /// The step's number.
    pub number: u32,
    /// The step's name.
    pub name: &'static str,
    /// Extents `[m, n, k]`.
    pub size: [u32; 3],
    /// Instructions that warps issue.
    pub instructions: f64,
    /// Bytes of global memory that are asked for, in whole sectors, as if no cache held any.
    pub global_bytes: f64,
    /// Clocks of a multiprocessor's shared memory.
    pub shared_clocks: f64,
    /// Of these, those that bank conflicts cost.
    pub conflicts: f64,
    /// The part of a multiprocessor that takes longest.
    pub bound: &'static str,
    /// Operations a second, in millions of millions, if that part never waited and every multiprocessor was busy.
    pub at_most: f64,
}

impl Counted {
    #[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn new(step: &Step, size: [u32; 3], counts: &Counts, gpu: &Gpu) -> Counted {
        let per_thousand = |count: u64| count as f64 * 1000.0 / multiply_adds(size);
        let sectors = counts.global_reads.sectors + counts.global_writes.sectors;
        let roofline = estimate(counts, gpu);
        // Caches decide what DRAM has to do. The small grid of a simulation leaves most multiprocessors idle: `balance` takes that out.
        let limit = roofline.limits.iter().find(|limit| limit.name != "DRAM");
        let (bound, seconds) = limit.map_or(("nothing", 0.0), |l| (l.name, l.seconds * roofline.balance));
        let first_level = sectors as f64 / SECTORS_A_CLOCK / gpu.clock / f64::from(gpu.multiprocessors);
        let through_caches = step.takes == Takes::Pointers && first_level > seconds;
        let (bound, seconds) = if through_caches { ("L1 cache", first_level) } else { (bound, seconds) };
        Counted {
            number: step.number,
            name: step.name,
            size,
            instructions: per_thousand(counts.warp_instructions),
            global_bytes: per_thousand(sectors * 32),
            shared_clocks: per_thousand(counts.shared_clocks()),
            conflicts: per_thousand(counts.shared.conflicts),
            bound,
            at_most: 2.0 * multiply_adds(size) / seconds / 1e12,
        }
    }
}

/// The time that a step takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The step's number.
    pub number: u32,
    /// The step's name.
    pub name: String,
    /// Microseconds of a run: the median.
    pub microseconds: f64,
    /// The tenth and the ninetieth percentile.
    pub percentiles: [f64; 2],
    /// Operations a second, in millions of millions.
    pub teraflops: f64,
}

impl Measured {
    fn new(step: &Step, size: [u32; 3], samples: &mut [f64]) -> Measured {
        samples.sort_by(f64::total_cmp);
        let at = |percent: usize| samples[(samples.len() - 1) * percent / 100];
        Measured {
            number: step.number,
            name: step.name.to_owned(),
            microseconds: at(50) * 1e6,
            percentiles: [at(10) * 1e6, at(90) * 1e6],
            teraflops: 2.0 * multiply_adds(size) / at(50) / 1e12,
        }
    }
}

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    /// Multiples of 1/8 between -2 and 2: sums of products are exact in f32, and the bits of the factors are as busy as one can have
    /// them then.
    fn eighths(&mut self, len: usize) -> Vec<bf16> {
        let next = || {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            let eighths = u8::try_from((mixed ^ mixed >> 31) % 33).unwrap_or(0);
            bf16::from_f32(f32::from(eighths) / 8.0 - 2.0)
        };
        std::iter::repeat_with(next).take(len).collect()
    }
}

#[cfg(test)]
mod tests {
    use tilewright_kernels::ladder::find;

    use super::*;

    /// Medians do not mind the odd slow sample.
    #[test]
    fn times_are_medians() {
        let step = find("naive").unwrap();
        let measured = Measured::new(step, [1000, 1000, 1000], &mut [9.0, 1e-3, 2e-3, 3e-3, 1e-3]);
        assert_eq!((measured.microseconds, measured.teraflops), (2000.0, 1.0));
        assert_eq!(measured.percentiles, [1000.0, 3000.0]);
    }

    /// A check that never fails would pass all steps.
    #[test]
    fn wrong_results_are_found() {
        let step = find("naive").unwrap();
        let bench = Workbench::new(&Device::cpu(), [32, 8, 16], 3).unwrap();
        bench.run(step).unwrap();
        bench.c.slice(77..78).unwrap().fill(bf16::from_f32(1024.0)).unwrap();
        let error = bench.check(step).unwrap_err().to_string();
        assert!(error.starts_with("step naive: c[9, 5] is 1024, expected "), "{error}");
    }

    #[test]
    fn only_the_simulator_counts() {
        let step = find("naive").unwrap();
        let bench = Workbench::new(&Device::simulator(), [32, 8, 16], 3).unwrap();
        let error = bench.count(step, &Gpu::ALL[0]).unwrap_err();
        assert!(error.to_string().starts_with("simulator counts nothing"), "{error}");
    }
}
