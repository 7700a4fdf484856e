//! What is known of a run.

use std::sync::Arc;

use tilewright_sim::Finding;

use super::DeviceError;
use super::gpu::Gpu;

/// What is known of a launch. The simulator and the CPU have run the kernel to its end and report on it; a GPU has only been told to.
#[derive(Clone, Debug)]
pub struct Report {
    kernel: Arc<str>,
    outcome: Outcome,
}

#[derive(Clone, Debug)]
enum Outcome {
    Simulated(Box<tilewright_sim::Report>),
    Enqueued(Arc<Gpu>),
    /// Done, and nothing to tell.
    Done,
}

impl Report {
    pub(super) fn simulated(kernel: Arc<str>, report: tilewright_sim::Report) -> Report {
        Report { kernel, outcome: Outcome::Simulated(Box::new(report)) }
    }

    pub(super) fn enqueued(kernel: Arc<str>, gpu: Arc<Gpu>) -> Report {
        Report { kernel, outcome: Outcome::Enqueued(gpu) }
    }

    pub(super) fn done(kernel: Arc<str>) -> Report {
        Report { kernel, outcome: Outcome::Done }
    }

    /// The kernel.
    #[must_use]
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// All that the simulator's engine says: findings, counts, what was printed. Nothing on a GPU, or of a program on the CPU.
    #[must_use]
    pub fn simulation(&self) -> Option<&tilewright_sim::Report> {
        match &self.outcome {
            Outcome::Simulated(report) => Some(report),
            Outcome::Enqueued(_) | Outcome::Done => None,
        }
    }

    /// What the kernel does wrong. Empty where nobody looks: a GPU, and on the CPU all but what would end the kernel on a GPU.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.simulation().map_or(&[], |report| &report.findings)
    }

    /// The report if nothing was found, else an error with the findings. On a GPU this waits for all that the device was told to do.
    ///
    /// # Errors
    /// If something was found, or the GPU reports a fault: of this kernel, or of one that was launched before and not asked about.
    pub fn expect_clean(self) -> Result<Report, DeviceError> {
        match self.outcome {
            Outcome::Simulated(report) if !report.findings.is_empty() => {
                Err(DeviceError::Findings { kernel: self.kernel.to_string(), findings: report.findings })
            }
            Outcome::Enqueued(ref gpu) => {
                gpu.synchronize()?;
                Ok(self)
            }
            Outcome::Simulated(_) | Outcome::Done => Ok(self),
        }
    }
}
