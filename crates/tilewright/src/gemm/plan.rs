//! [`Plan`]: a product with everything decided but its memory.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_kernels::gemm::{Algorithm, Candidate, Operand, Problem, Recipe};

use super::arguments::{Arguments, check, other_device};
use super::run::{Launches, Operands};
use super::workspace::{Taken, User};
use super::{Error, Workspace, cpu};
use crate::device::{Device, DynBuffer, Identity, Report};

/// Sets of arguments whose launches a plan remembers.
const REMEMBERED: usize = 8;

/// A product with everything decided but its memory; made by [`Gemm::plan`](super::Gemm::plan). Clones share what is prepared.
///
/// A plan can be run any number of times, by any number of threads. The first run with some memory compiles kernels (once a device)
/// and encodes tensor maps; later runs with the same memory launch and do nothing else.
///
/// ```
/// use tilewright::gemm::{Arguments, Gemm};
/// use tilewright::prelude::*;
///
/// let device = Device::simulator();
/// let plan = Gemm::new(3, 2, 4).element::<f32>().plan(&device)?;
/// println!("{}", plan.explain());
/// assert!(plan.deterministic());
///
/// let (a, b) = (device.upload(&[1.0f32; 12])?, device.upload(&[0.5f32; 8])?);
/// let d = device.alloc::<f32>(6)?;
/// plan.run(&Arguments::new(&a, &b, &d))?;
/// assert_eq!(d.to_vec()?, [2.0; 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: Device,
    problem: Problem,
    method: Method,
    workspace: Workspace,
    /// Who the launches are to a workspace.
    user: User,
    remembered: Mutex<VecDeque<Remembered>>,
}

/// How a product is computed.
#[derive(Debug)]
pub(super) enum Method {
    /// By this computer's own instructions.
    Cpu,
    /// By kernels.
    Kernels(Kernels),
}

/// An algorithm and its launches.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) chosen: Candidate,
    pub(super) recipe: Recipe,
    /// All that were considered.
    pub(super) candidates: Vec<Candidate>,
}

/// Launches with memory, for as long as others hold that memory.
#[derive(Debug)]
struct Remembered {
    memory: Vec<Identity>,
    /// The names of the operands of the epilogue, in the order of their memory: the caller's.
    names: Vec<String>,
    scalars: Vec<(String, f64)>,
    launches: Arc<Launches>,
}

/// A number by its bits: 0 and -0 are not the same factor.
fn bits((name, value): &(String, f64)) -> (&str, u64) {
    (name, value.to_bits())
}

/// Everything that launches are bound to.
fn memory<'a>(
    arguments: &'a Arguments,
    workspace: &'a Option<DynBuffer>,
) -> impl Iterator<Item = &'a DynBuffer> + Clone {
    arguments.memory().chain(workspace)
}

impl Plan {
    pub(super) fn new(device: &Device, problem: Problem, method: Method, workspace: Workspace) -> Plan {
        let (device, remembered) = (device.clone(), Mutex::default());
        Plan { inner: Arc::new(Inner { device, problem, method, workspace, user: User::new(), remembered }) }
    }

    /// Where it runs.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// What it computes.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.inner.problem
    }

    fn kernels(&self) -> Option<&Kernels> {
        match &self.inner.method {
            Method::Cpu => None,
            Method::Kernels(kernels) => Some(kernels),
        }
    }

    /// The algorithm; none on the CPU, which needs no kernels.
    #[must_use]
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.kernels().map(|kernels| kernels.chosen.algorithm)
    }

    /// The launches; none on the CPU.
    #[must_use]
    pub fn recipe(&self) -> Option<&Recipe> {
        self.kernels().map(|kernels| &kernels.recipe)
    }

    /// All algorithms that were considered, by their predicted times; only the chosen one if the caller has chosen, none on the CPU.
    ///
    /// ```
    /// use tilewright::gemm::Gemm;
    /// use tilewright::prelude::*;
    ///
    /// let plan = Gemm::new(64, 64, 64).element::<f32>().plan(&Device::simulator())?;
    /// assert!(plan.candidates().iter().any(|candidate| Some(candidate.algorithm) == plan.algorithm()));
    /// # Ok::<(), tilewright::gemm::Error>(())
    /// ```
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        self.kernels().map_or(&[], |kernels| &kernels.candidates)
    }

    /// Bytes of scratch memory that a run takes.
    #[must_use]
    pub fn workspace_bytes(&self) -> u64 {
        self.kernels().map_or(0, |kernels| kernels.recipe.workspace)
    }

    /// Whether runs with the same numbers give the same bits. On the CPU they do on the same computer.
    #[must_use]
    pub fn deterministic(&self) -> bool {
        self.algorithm().is_none_or(|algorithm| algorithm.deterministic())
    }

    /// What is computed, how, why, and what else there was: for people.
    #[must_use]
    pub fn explain(&self) -> String {
        let problem = &self.inner.problem;
        let mut text = format!(
            "{} x {} x {} ({} * {} -> {}, sums in {}), batch {}, on {}\n",
            problem.m,
            problem.n,
            problem.k,
            problem.types.a,
            problem.types.b,
            problem.types.d,
            problem.types.accumulate,
            problem.batch,
            self.inner.device.name(),
        );
        // Writing to a string does not fail.
        let _ = match &self.inner.method {
            Method::Cpu => writeln!(text, "by the instructions of this computer's processor"),
            Method::Kernels(kernels) => kernels.explain(&mut text, problem),
        };
        text
    }

    /// Computes the product. On a GPU it is enqueued: whoever reads D waits for it.
    ///
    /// # Errors
    /// If an argument is not what the product takes, or a kernel does not compile, or the simulator finds a mistake.
    pub fn run(&self, arguments: &Arguments) -> Result<(), Error> {
        for report in self.run_reported(arguments)? {
            // A GPU has nothing to say yet, and must not be waited for.
            if report.simulation().is_some() {
                report.expect_clean()?;
            }
        }
        Ok(())
    }

    /// The same with a report for each launch, in which findings are not errors yet.
    ///
    /// ```
    /// use tilewright::gemm::{Arguments, Gemm};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::simulator();
    /// let [a, b] = [device.upload(&[1.0f32; 16 * 16])?, device.upload(&[2.0f32; 16 * 16])?];
    /// let d = device.alloc::<f32>(16 * 16)?;
    /// let plan = Gemm::new(16, 16, 16).element::<f32>().plan(&device)?;
    /// for report in plan.run_reported(&Arguments::new(&a, &b, &d))? {
    ///     println!("{}: {} findings", report.kernel(), report.findings().len());
    /// }
    /// assert_eq!(d.to_vec()?, [32.0; 16 * 16]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If an argument is not what the product takes, or a kernel does not compile.
    pub fn run_reported(&self, arguments: &Arguments) -> Result<Vec<Report>, Error> {
        let Inner { device, problem, method, user, .. } = &*self.inner;
        let Method::Kernels(Kernels { recipe, .. }) = method else {
            check(device, problem, arguments)?;
            cpu::run(device, problem, arguments)?;
            return Ok(Vec::new());
        };
        let workspace = arguments.workspace.as_ref().unwrap_or(&self.inner.workspace);
        // Nothing is allocated for a product that is none.
        if workspace.bytes() < recipe.workspace {
            check(device, problem, arguments)?;
        }
        let taken = match recipe.workspace {
            0 => None,
            _ if workspace.device() != device => return Err(other_device("the workspace", device)),
            _ => Some(workspace.take(*user, recipe)?),
        };
        let scratch = taken.as_ref().and_then(Taken::buffer);
        let launches = match self.known(arguments, &scratch) {
            Some(launches) => launches,
            None => self.prepare(recipe, arguments, &scratch)?,
        };
        let reports = launches.run()?;
        // After a mistake nobody knows what lies there.
        if let Some(taken) = taken.filter(|_| reports.iter().all(|report| report.findings().is_empty())) {
            taken.done();
        }
        Ok(reports)
    }

    fn known(&self, arguments: &Arguments, scratch: &Option<DynBuffer>) -> Option<Arc<Launches>> {
        let remembered = self.inner.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let all = memory(arguments, scratch);
        let same = |entry: &&Remembered| {
            entry.scalars.iter().map(bits).eq(arguments.scalars.iter().map(bits))
                && entry.names.iter().eq(arguments.names())
                && entry.memory.len() == all.clone().count()
                && entry.memory.iter().zip(all.clone()).all(|(known, buffer)| known.is(buffer))
        };
        remembered.iter().find(same).map(|entry| entry.launches.clone())
    }

    fn prepare(
        &self,
        recipe: &Recipe,
        arguments: &Arguments,
        scratch: &Option<DynBuffer>,
    ) -> Result<Arc<Launches>, Error> {
        let Inner { device, problem, .. } = &*self.inner;
        check(device, problem, arguments)?;
        let launches = Arc::new(Launches::new(device, recipe, &operands(problem, arguments, scratch))?);
        let entry = Remembered {
            memory: memory(arguments, scratch).map(DynBuffer::identity).collect(),
            names: arguments.names().cloned().collect(),
            scalars: arguments.scalars.clone(),
            launches: launches.clone(),
        };
        let mut remembered = self.inner.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.retain(|entry| entry.memory.iter().all(Identity::lives));
        remembered.truncate(REMEMBERED - 1);
        remembered.push_front(entry);
        Ok(launches)
    }
}

/// The memory and the numbers by the names that recipes use.
fn operands(problem: &Problem, arguments: &Arguments, scratch: &Option<DynBuffer>) -> Operands {
    let mut operands = Operands::new()
        .with(Operand::A, &arguments.a)
        .with(Operand::B, &arguments.b)
        .with(Operand::D, &arguments.d);
    for (operand, buffer) in [(Operand::C, &arguments.c), (Operand::Workspace, scratch)] {
        if let Some(buffer) = buffer {
            operands = operands.with(operand, buffer);
        }
    }
    for (name, buffer) in &arguments.extras {
        operands = operands.with(Operand::Extra(name.clone()), buffer);
    }
    for name in problem.epilogue.scalars() {
        if let Some(value) = arguments.number(&name) {
            operands = operands.with_scalar(&name, value);
        }
    }
    operands
}

/// Candidates that an explanation lists.
const LISTED: usize = 5;

impl Kernels {
    fn explain(&self, text: &mut String, problem: &Problem) -> std::fmt::Result {
        writeln!(text, "algorithm: {}", self.chosen.algorithm)?;
        for (number, launch) in (1..).zip(&self.recipe.launches) {
            let [x, y, z] = launch.grid;
            writeln!(text, "launch {number}: {x} x {y} x {z} blocks")?;
        }
        if self.recipe.workspace > 0 {
            writeln!(text, "scratch memory: {} bytes", self.recipe.workspace)?;
        }
        writeln!(text, "predicted:\n{}", self.chosen.predicted)?;
        let rate = |candidate: &Candidate| problem.flops() / candidate.predicted.seconds().max(1e-12) * 1e-12;
        writeln!(text, "that is {:.1} TFLOP/s", rate(&self.chosen))?;
        let others: Vec<&Candidate> =
            self.candidates.iter().filter(|other| other.algorithm != self.chosen.algorithm).collect();
        for other in others.iter().take(LISTED) {
            let (seconds, binding) = (other.predicted.seconds() * 1e6, other.predicted.binding().name);
            writeln!(text, "or: {:>10.2} us  {} ({binding})", seconds, other.algorithm)?;
        }
        if others.len() > LISTED {
            writeln!(text, "and {} more", others.len() - LISTED)?;
        }
        Ok(())
    }
}
