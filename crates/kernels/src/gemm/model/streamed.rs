//! How long a product takes that reads one factor once.

use tilewright_hardware::{Arch, Gpu};

use super::{Counts, Model, Prediction, Streamed, Traffic, Unit, chip, dram};
use crate::gemm::problem::{Problem, Types};

impl Streamed {
    /// Blocks come in rounds: as many as the chip holds at a time, and what is left. A multiprocessor whose blocks have ended waits for the first
    /// weights of the next, unless it holds others meanwhile.
    pub(super) fn predict(&self, model: &Model, problem: &Problem, gpu: &Gpu) -> Prediction {
        let constants = if gpu.arch.supports(Arch::SM_90A) { &model.streamed } else { &model.threads };
        let blocks = f64::from(problem.n.div_ceil(self.columns.max(1)))
            * f64::from(problem.batch)
            * f64::from(self.parts.max(1));
        let multiprocessors = f64::from(gpu.multiprocessors);
        let resident = f64::from(self.resident.max(1));
        let at_a_time = multiprocessors * resident;
        let (rounds, last) = ((blocks / at_a_time).ceil(), blocks % at_a_time);
        let seconds = |clocks: f64| clocks / gpu.clock;

        // If few blocks are left for the last round, they do not keep memory busy.
        let traffic = Traffic::of(problem);
        let bytes = (traffic.a + traffic.b + traffic.results) / blocks;
        let of_round = |blocks: f64| bytes * blocks / dram(gpu, constants, blocks, constants.askers);
        let from_dram =
            (blocks - last) / at_a_time * of_round(at_a_time) + if last > 0.0 { of_round(last) } else { 0.0 };

        let width = f64::from(Types::in_memory(problem.types.b).bytes());
        let elements = f64::from(problem.k) * f64::from(problem.n) * f64::from(problem.batch);
        let multiply = match self.unit {
            Unit::Tensor(_) | Unit::Warps(_) => {
                problem.flops() * 16.0 / f64::from(problem.m.clamp(1, 16)) / self.unit.rate(gpu, constants)
            }
            Unit::Floats | Unit::Doubles => {
                elements * f64::from(problem.m) * self.per_element * 2.0 / self.unit.rate(gpu, constants)
            }
        };
        // The busiest multiprocessor does a whole number of blocks.
        let busiest = (blocks / multiprocessors).ceil() / blocks;
        // Each block reads all of the few rows for its columns.
        let rows_again = if problem.m > 1 {
            elements * width * f64::from(problem.m) / f64::from(self.columns.max(1))
        } else {
            0.0
        };
        let under_way = blocks.min(at_a_time) * f64::from(self.in_flight.max(1));
        let sums = if self.parts > 1 { rounds * constants.shared_sums } else { 0.0 };
        Prediction::of(constants)
            .with(Counts::Together, "DRAM", from_dram)
            .with(Counts::Together, "arithmetic", seconds(multiply * busiest))
            .with(
                Counts::Together,
                "latency of loads",
                seconds(elements * width * constants.latency / under_way),
            )
            .with(
                Counts::Together,
                "steps of k, one after the other",
                rounds * f64::from(self.steps) * constants.step,
            )
            .with(Counts::Together, "rows again for other columns", rows_again / chip(gpu, constants.l1))
            .with(Counts::Added, "first load", seconds(2.0 * constants.latency))
            .with(Counts::Added, "rounds of blocks", (rounds - 1.0) * constants.round / resident)
            .with(Counts::Added, "reduction of partial sums", sums)
            .with(Counts::Added, "launch", constants.launch)
    }
}
