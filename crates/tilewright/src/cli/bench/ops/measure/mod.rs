//! One op: made ready on both sides, checked, and measured by turns.

use tilewright::device::Device;
use tilewright::hardware::Element;

use super::super::super::Failure;
use super::super::super::product;
use super::super::super::shape::Shape;
use super::super::check::{self, Inputs, Verdict};
use super::super::peer::{Absence, Clock as Kind, Name, Peer};
use super::super::statistics::{Spread, paired_ratio, rounded};
use super::super::timing::{Clock, Contestant, Effort, Sampled, broken, turns};
use super::case::{Case, Tensor};
use super::memory::Memory;
use super::reference;
use super::row::Row;
use super::subject::Subject;

/// What all cases of a command share.
pub(super) struct Bench {
    pub(super) device: Device,
    pub(super) subjects: Vec<Box<dyn Subject>>,
    pub(super) peers: Vec<Peer>,
    pub(super) effort: Effort,
    pub(super) copies: Option<u32>,
    pub(super) seed: u64,
    pub(super) check: bool,
    /// The speed of a large copy.
    pub(super) copy_gbps: Option<f64>,
}

/// The largest error of a peer that is no error: its arithmetic is in f32, or in tf32 where a product is asked for in f32, and its
/// results are rounded once. What it says of quantised rows is without their rounding.
fn bearable(case: &Case) -> f64 {
    let short = |element| matches!(element, Element::F16 | Element::BF16);
    let outputs = case.tensors().into_iter().filter(Tensor::is_output);
    if short(case.element) || outputs.into_iter().any(|output| short(output.element)) { 1e-2 } else { 1e-3 }
}

impl Bench {
    /// What goes wrong is in the row.
    pub(super) fn measure(&mut self, case: &Case) -> Row {
        let of = |number: u32| (number > 0).then_some(number);
        let mut row = Row {
            op: case.op.name.to_owned(),
            dtype: case.element.to_string(),
            rows: case.rows,
            columns: case.columns,
            depth: of(case.depth),
            k: of(case.k),
            clock: if case.clock == Kind::Host { "host" } else { "device" }.to_owned(),
            ..Row::default()
        };
        if let Err(failure) = self.fill(&mut row, case) {
            row.failure = Some(failure.message().to_owned());
        }
        row
    }

    fn fill(&mut self, row: &mut Row, case: &Case) -> Result<(), Failure> {
        // Where the host's part is what counts, caches do not.
        let copies = if case.clock == Kind::Host { self.copies.or(Some(1)) } else { self.copies };
        let memory = Memory::new(&self.device, case, self.seed, copies)?;
        let mut ours = None;
        for subject in &self.subjects {
            if let Some(contestant) = subject.prepare(&self.device, case, &memory)? {
                row.subject = Some(subject.name(&self.device, case));
                ours = Some(contestant);
                break;
            }
        }
        if let (true, Some(ours)) = (self.check, &ours) {
            let verdict = judged(&self.device, case, self.seed, &memory, ours.as_ref())?;
            (row.error, row.compared) = (Some(rounded(verdict.error)), Some(verdict.compared));
            if let Some(wrong) = verdict.wrong {
                return Err(Failure::Machine(format!("the result is wrong: {wrong}")));
            }
        }
        let work = case.work(memory.copies(), self.seed);
        let mut ready: Vec<&mut Peer> = Vec::new();
        for peer in &mut self.peers {
            let theirs = row.theirs_mut(peer.name());
            let checked =
                peer.prepare(work).and_then(|()| if self.check { peer.check().map(Some) } else { Ok(None) });
            match checked {
                Ok(error) => {
                    theirs.relative_error = error.map(rounded);
                    match error {
                        Some(error) if error.is_nan() || error > bearable(case) => {
                            theirs.failure =
                                Some(format!("its result is wrong: the relative error is {error:.1e}"));
                        }
                        _ => ready.push(peer),
                    }
                }
                Err(Absence::Unsupported(why)) => theirs.unsupported = Some(why),
                Err(Absence::Failed(why)) => theirs.failure = Some(why),
            }
        }
        let clock = match case.clock {
            Kind::Device => Clock::of(&self.device)?,
            Kind::Host => Clock::Host(self.device.clone()),
        };
        let mut lap = match &ours {
            Some(ours) => Some(clock.prepare(ours.as_ref(), memory.copies(), self.effort.sample)?),
            None => None,
        };
        let names: Vec<Name> = ready.iter().map(|peer| peer.name()).collect();
        let mut theirs: Vec<_> = ready.into_iter().map(|peer| peer.entrant(self.effort.sample)).collect();
        let mut entrants: Vec<&mut dyn Sampled> = Vec::new();
        entrants.extend(lap.iter_mut().map(|lap| lap as &mut dyn Sampled));
        entrants.extend(theirs.iter_mut().map(|peer| peer as &mut dyn Sampled));
        let mut times = turns(&mut entrants, self.effort.rounds).into_iter();
        let ours = if lap.is_some() { times.next().transpose()? } else { None };
        let rate = |us: f64| rounded(case.bytes() / us * 1e-3);
        if let Some(spread) = ours.as_deref().and_then(microseconds) {
            row.ours_us = Some(spread.median);
            row.ours_10_to_90_percent = Some([spread.low, spread.high]);
            row.gbps = Some(rate(spread.median));
            row.tflops = case.flops().map(|flops| rounded(flops / spread.median * 1e-6));
            // Calls are held against no copy, nor are products.
            let comparable = case.clock == Kind::Device && !case.op.product;
            let copy = self.copy_gbps.filter(|_| comparable);
            row.of_copy = copy.map(|copy| rounded(case.bytes() / spread.median * 1e-3 / copy));
        }
        for (name, times) in names.into_iter().zip(times) {
            let theirs = row.theirs_mut(name);
            match times {
                Ok(times) => {
                    if let Some(spread) = microseconds(&times) {
                        theirs.us = Some(spread.median);
                        theirs.us_10_to_90_percent = Some([spread.low, spread.high]);
                        theirs.gbps = Some(rate(spread.median));
                    }
                    theirs.ratio = ours.as_ref().and_then(|ours| paired_ratio(&times, ours)).map(rounded);
                }
                Err(failure) => theirs.failure = Some(failure.message().to_owned()),
            }
        }
        Ok(())
    }

    /// The speed of a copy of so many bytes inside of the device, by the runtime.
    pub(super) fn yardstick(&mut self, case: &Case) -> Result<Option<f64>, Failure> {
        let peers = std::mem::take(&mut self.peers);
        let row = self.measure(case);
        self.peers = peers;
        match row.failure {
            Some(failure) => Err(Failure::Machine(format!("measuring a copy: {failure}"))),
            None => Ok(row.gbps),
        }
    }
}

fn microseconds(seconds: &[f64]) -> Option<Spread> {
    Spread::of(seconds).map(|spread| spread.map(|seconds| rounded(seconds * 1e6)))
}

/// Runs ours on spoiled memory and looks at the result.
fn judged(
    device: &Device,
    case: &Case,
    seed: u64,
    memory: &Memory,
    ours: &dyn Contestant,
) -> Result<Verdict, Failure> {
    memory.spoil()?;
    ours.launch(0)?;
    device.synchronize().map_err(broken)?;
    if !case.op.product {
        return reference::check(case, memory);
    }
    // A product is one of `bench gemm`, of the same numbers.
    let Case { rows: m, columns: n, depth: k, element, .. } = *case;
    let product = product::Case {
        shape: Shape { m, n, k, ..Shape::default() },
        element,
        layout: "tt".parse().map_err(Failure::Input)?,
        finish: product::Finish::default(),
    };
    let problem = product.problem()?;
    let inputs = Inputs::new(&problem, seed);
    let Some(d) = memory.outputs(0).first() else {
        return Err(Failure::Machine("found no result of a product, expected one".to_owned()));
    };
    check::check(&product, &problem, &inputs, d).map_err(broken)
}

#[cfg(test)]
mod tests;
