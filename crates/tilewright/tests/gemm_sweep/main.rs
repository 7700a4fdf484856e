//! Products drawn at random through the public API, on every device: types, storages, extents, gaps, misaligned memory, batches,
//! epilogues; by the algorithm that the plan chooses, and by any other of its candidates. One test for a device and a family of kernels.
//!
//! Every failure is a line: the reason, the variables that repeat it, the case. `TILEWRIGHT_TEST_SEED` is the seed of the first case
//! (those of the following count up from it), or `random`; without it the cases are always the same, so that a change is blamed for what it
//! did. `TILEWRIGHT_SWEEP` is the number of cases of a test. Slower devices draw smaller cases; with `TILEWRIGHT_SWEEP_AS_GPU=1` they draw
//! what a GPU does, so that one that fails there is looked at in the simulator. GPU tests are ignored, visibly, where there is none;
//! `TILEWRIGHT_REQUIRE_GPU=1` makes that a failure.

mod case;
mod memory;
mod oracle;
mod random;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libtest_mimic::{Arguments as Command, Failed, Trial};
use tilewright::cuda::Driver;
use tilewright::device::{Device, DynBuffer, Options};
use tilewright::gemm::{Arguments, Planner};
use tilewright::hardware::{Arch, Element};
use tilewright::kernels::gemm::KernelConfig;
use tilewright::kernels::gemm::epilogue::Access;

use case::{ALL_TYPES, Case, Limits, Matrix};
use memory::{Contents, Uploaded};
use oracle::{Absolutes, Oracle};
use random::Random;

/// Where a test runs.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Simulator(Arch),
    Cpu,
    Gpu(u32),
}

/// Who decides how a product is computed.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// The library: a plan, or a planner.
    Choice,
    /// The dice, among the candidates of a family.
    Family(&'static str),
    /// The library, for products that are large.
    ChoiceOfLarge,
}

/// A test: some cases.
#[derive(Clone, Copy)]
struct Sweep {
    place: Place,
    by: By,
    count: usize,
    /// Whether cases are as large as those of a GPU.
    large: bool,
}

/// Extents of large products: those of models, and what is just beyond a multiple of everything.
const LARGE: &[[usize; 3]] = &[
    [4097, 4096, 513],
    [8192, 128, 1024],
    [128, 8192, 8192],
    [1, 14336, 4096],
    [16, 6144, 4096],
    [3001, 2999, 3000],
    [257, 8191, 129],
    [64, 65, 65_536],
];

/// Types of the families that do not have all.
const HOPPER: &[(Element, Element)] = &[
    (Element::BF16, Element::BF16),
    (Element::F16, Element::F16),
    (Element::TF32, Element::TF32),
    (Element::I8, Element::I8),
    (Element::U8, Element::U8),
    (Element::E4M3, Element::E4M3),
    (Element::E5M2, Element::E5M2),
    (Element::E4M3, Element::E5M2),
    (Element::E5M2, Element::E4M3),
];
/// Types of chips that do not have all.
const AMPERE: &[(Element, Element)] = &[
    (Element::BF16, Element::BF16),
    (Element::F16, Element::F16),
    (Element::TF32, Element::TF32),
    (Element::F32, Element::F32),
    (Element::F64, Element::F64),
    (Element::I8, Element::I8),
    (Element::U8, Element::I8),
];
const SIMT: &[(Element, Element)] = &[(Element::F32, Element::F32), (Element::F64, Element::F64)];

fn main() {
    let arguments = Command::from_args();
    let seed = match std::env::var("TILEWRIGHT_TEST_SEED").as_deref() {
        Ok("random") => RandomState::new().build_hasher().finish(),
        Ok(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("TILEWRIGHT_TEST_SEED: found `{text}`, expected a number, or `random`");
            std::process::exit(2)
        }),
        Err(_) => 1,
    };
    if !arguments.list {
        println!("cases by TILEWRIGHT_TEST_SEED={seed}");
    }
    let gpus = Driver::load().and_then(|driver| driver.device_count()).unwrap_or(0);
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
    let (required, as_gpu) = (is_set("TILEWRIGHT_REQUIRE_GPU"), is_set("TILEWRIGHT_SWEEP_AS_GPU"));
    let count = std::env::var("TILEWRIGHT_SWEEP").ok().and_then(|text| text.parse().ok());
    let mut trials = vec![Trial::test("mistakes_are_noticed", mistakes_are_noticed)];
    trials.extend(sweeps(gpus).into_iter().map(|sweep| {
        let sweep = Sweep { count: count.unwrap_or(sweep.count), large: sweep.large || as_gpu, ..sweep };
        let trial = Trial::test(sweep.name(), move || sweep.run(seed));
        trial.with_ignored_flag(matches!(sweep.place, Place::Gpu(_)) && gpus == 0 && !required)
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

fn sweeps(gpus: u32) -> Vec<Sweep> {
    let ways = || [By::Choice].into_iter().chain(KernelConfig::FAMILIES.iter().copied().map(By::Family));
    let mut all = vec![Sweep { place: Place::Cpu, by: By::Choice, count: 40, large: false }];
    let hopper = Place::Simulator(Arch::SM_90A);
    all.extend(ways().map(|by| Sweep { place: hopper, by, count: 5, large: false }));
    for arch in [Arch::SM_80, Arch::SM_89, Arch::SM_120A] {
        all.push(Sweep { place: Place::Simulator(arch), by: By::Choice, count: 5, large: false });
    }
    for ordinal in 0..gpus.max(1) {
        let place = Place::Gpu(ordinal);
        all.extend(ways().map(|by| Sweep { place, by, count: 60, large: true }));
        all.push(Sweep { place, by: By::ChoiceOfLarge, count: 3 * LARGE.len(), large: true });
    }
    all
}

impl Sweep {
    fn name(&self) -> String {
        let place = match self.place {
            Place::Simulator(Arch::SM_90A) => "simulator".to_owned(),
            Place::Simulator(arch) => format!("simulator-{arch}"),
            Place::Cpu => "cpu".to_owned(),
            Place::Gpu(ordinal) => format!("cuda-{ordinal}"),
        };
        match self.by {
            By::Choice => format!("{place}/choice"),
            By::Family(family) => format!("{place}/{family}"),
            By::ChoiceOfLarge => format!("{place}/large"),
        }
    }

    fn limits(&self) -> Limits {
        let types = match self.by {
            By::Family("hopper") => HOPPER,
            By::Family("simt") => SIMT,
            _ if self.place == Place::Simulator(Arch::SM_80) => AMPERE,
            _ => ALL_TYPES,
        };
        let [m, n, k] = match self.place {
            _ if self.large => [1500, 1500, 1500],
            Place::Cpu => [200, 200, 200],
            _ => [72, 72, 96],
        };
        let m = if self.by == By::Family("gemv") { 16 } else { m };
        Limits { extents: [m, n, k], types }
    }

    /// All cases; those that fail are reported together.
    fn run(&self, seed: u64) -> Result<(), Failed> {
        // One device, so that kernels are compiled once; in the simulator each case has an order of threads of its own.
        let device = match self.place {
            Place::Gpu(ordinal) => Some(Device::cuda(ordinal)?),
            Place::Cpu => Some(Device::cpu()),
            Place::Simulator(_) => None,
        };
        let mut failures = Vec::new();
        for i in 0..self.count {
            let seed = seed.wrapping_add(i as u64);
            let chip = if let Place::Simulator(arch) = self.place { Some(arch) } else { None };
            let simulator = || Device::simulator_with(Options { seed, chip, ..Options::default() });
            let device = device.clone().unwrap_or_else(simulator);
            let mut what = "drawing a case".to_owned();
            let outcome = catch_unwind(AssertUnwindSafe(|| self.one(&device, seed, &mut what)));
            let outcome = outcome.unwrap_or_else(|panic| Err(format!("panic: {}", message(&*panic))));
            if let Err(error) = outcome {
                // Where lines are cut off, what matters most is left.
                failures.push(format!(
                    "{error}; TILEWRIGHT_TEST_SEED={seed} TILEWRIGHT_SWEEP=1 {}: {what}",
                    self.name()
                ));
            }
        }
        if failures.is_empty() {
            return Ok(());
        }
        Err(format!("{} of {} cases failed\n{}", failures.len(), self.count, failures.join("\n")).into())
    }

    /// One case. `what` says which, as soon as that is known.
    fn one(&self, device: &Device, seed: u64, what: &mut String) -> Result<(), String> {
        let random = &mut Random::new(seed);
        let (case, by) = self.draw(device, seed, random, what)?;
        let gemm = match &by {
            Some(text) => case.gemm.clone().configuration(text),
            None => case.gemm.clone(),
        };
        *what = case.to_string();
        let plan = gemm.plan(device).map_err(|error| format!("no plan: {error}"))?;
        if let Some(algorithm) = plan.algorithm() {
            *what = format!("{case}, by {algorithm}");
        }
        let planner = (self.by == By::Choice && random.once_in(3)).then(|| Planner::new(device));
        let left = execute(device, &case, |arguments| match &planner {
            Some(planner) => planner.run(&gemm, arguments),
            None => plan.run(arguments),
        })?;
        let rows = (self.by == By::ChoiceOfLarge).then(|| some_rows(random, case.d.lies.rows));
        judge(&case, &left, rows.as_deref())
    }

    /// A case, and the algorithm if it is not the plan's choice.
    fn draw(
        &self,
        device: &Device,
        seed: u64,
        random: &mut Random,
        what: &mut String,
    ) -> Result<(Case, Option<String>), String> {
        match self.by {
            By::Choice => Ok((Case::draw(random, &self.limits())?, None)),
            By::ChoiceOfLarge => {
                // Seeds count up, so that each has its turn.
                let turn = usize::try_from(seed % LARGE.len() as u64).unwrap_or(0);
                let extents = LARGE[turn];
                Ok((Case::draw_with(random, extents, ALL_TYPES, false)?, None))
            }
            By::Family(family) => {
                // Not every family has something for every case.
                for _ in 0..100 {
                    let case = Case::draw(random, &self.limits())?;
                    *what = case.to_string();
                    let plan = case.gemm.plan(device).map_err(|error| format!("no plan: {error}"))?;
                    let texts = plan.candidates().iter().map(|candidate| candidate.algorithm.to_string());
                    let of_family: Vec<String> =
                        texts.filter(|text| text.split_whitespace().next() == Some(family)).collect();
                    if !of_family.is_empty() {
                        let chosen = random.below(of_family.len());
                        return Ok((case, of_family.get(chosen).cloned()));
                    }
                }
                Err(format!("100 cases, and none has a candidate of {family}"))
            }
        }
    }
}

/// What a run has left on the device.
struct Left {
    d: Contents,
    extras: Vec<Contents>,
}

/// Runs a case, twice: the second time scratch memory is as the first run has left it, and the bits must be the same.
fn execute(
    device: &Device,
    case: &Case,
    run: impl Fn(&Arguments) -> Result<(), tilewright::gemm::Error>,
) -> Result<Left, String> {
    let matrix = |matrix: &Matrix| matrix.contents.upload(device, matrix.offset);
    let (a, b, d) = (matrix(&case.a)?, matrix(&case.b)?, matrix(&case.d)?);
    let c = case.c.as_ref().filter(|_| !case.in_place).map(&matrix).transpose()?;
    let given = |uploaded: &Uploaded, matrix: &Matrix| given(device, case, uploaded, matrix);
    let mut arguments = Arguments::new(&given(&a, &case.a)?, &given(&b, &case.b)?, &given(&d, &case.d)?);
    if let Some(matrix) = &case.c {
        arguments = arguments.c(&given(c.as_ref().unwrap_or(&d), matrix)?);
    }
    let mut extras = Vec::new();
    for extra in &case.extras {
        let uploaded = extra.contents.upload(device, extra.offset)?;
        arguments = arguments.extra(&extra.operand.name, &uploaded.part);
        extras.push(uploaded);
    }
    for (name, value) in &case.scalars {
        arguments = arguments.scalar(name, *value);
    }
    let all = || {
        let extras = extras.iter().map(Uploaded::download).collect::<Result<Vec<_>, _>>()?;
        Ok::<_, String>(Left { d: d.download()?, extras })
    };
    run(&arguments).map_err(|error| error.to_string())?;
    let left = all()?;
    if !case.in_place {
        run(&arguments).map_err(|error| format!("the second time: {error}"))?;
        let again = all()?;
        let same = |(x, y): (&Contents, &Contents)| x.bytes() == y.bytes();
        if !same((&left.d, &again.d)) || !left.extras.iter().zip(&again.extras).all(same) {
            return Err("the second run gives other bits".to_owned());
        }
    }
    Ok(left)
}

/// Whether a run has left what it must: results where they belong, and nothing anywhere else.
fn judge(case: &Case, left: &Left, rows: Option<&[usize]>) -> Result<(), String> {
    let absolutes = Absolutes::of(case);
    Oracle::new(case, &absolutes)?.check(&left.d, &left.extras, rows)?;
    let mut written = vec![false; case.d.contents.len()];
    for (member, row, column) in case.d.lies.places() {
        written[case.d.lies.at(member, row, column)] = true;
    }
    if let Some(index) = case.d.contents.touched(&left.d, &written) {
        return Err(format!("element {index} of D's buffer is none of D's and was written"));
    }
    for (extra, found) in case.extras.iter().zip(&left.extras) {
        let mut written = extra.written(&case.problem);
        if extra.operand.access == Access::Read {
            written.fill(false);
        }
        if let Some(index) = extra.contents.touched(found, &written) {
            return Err(format!("element {index} of the buffer of {} was written", extra.operand.name));
        }
    }
    Ok(())
}

/// Bounds that let mistakes through prove nothing: a product without its last step of k must not pass, nor one that writes too much.
fn mistakes_are_noticed() -> Result<(), Failed> {
    let device = Device::cpu();
    let limits = Limits { extents: [60, 60, 60], types: ALL_TYPES };
    let execute = |case: &Case| {
        execute(&device, case, |arguments| case.gemm.plan(&device)?.run(arguments))
            .map_err(|error| format!("{case}: {error}"))
    };
    let mut tried = 0;
    for seed in 0..200 {
        let draw = || Case::draw(&mut Random::new(seed), &limits);
        let (case, mut wrong) = (draw()?, draw()?);
        let lies = case.a.lies.clone();
        if lies.columns == 0 || case.d.lies.rows * case.d.lies.columns < 32 || lies.starts.is_empty() {
            continue;
        }
        // Rounded to whole numbers, small sums may well be what they are without a step.
        let types = case.problem.types;
        if types.d.is_int() && types.accumulate.is_float() {
            continue;
        }
        tried += 1;
        for (member, row) in
            (0..lies.starts.len()).flat_map(|member| (0..lies.rows).map(move |row| (member, row)))
        {
            wrong.a.contents.set(lies.at(member, row, lies.columns - 1), 0.0);
        }
        if judge(&case, &execute(&wrong)?, None).is_ok() {
            return Err(format!("seed {seed}: a lost step is not noticed: {case}").into());
        }
        let mut left = execute(&case)?;
        judge(&case, &left, None).map_err(|error| format!("seed {seed}: {case}: {error}"))?;
        let behind = left.d.len() - 1;
        left.d.set(behind, 1.0);
        if judge(&case, &left, None).is_ok() {
            return Err(format!("seed {seed}: an element behind D is not noticed: {case}").into());
        }
    }
    if tried < 50 { Err(format!("{tried} cases are too few").into()) } else { Ok(()) }
}

/// The buffer of a matrix, or the list of its members' addresses.
fn given(device: &Device, case: &Case, uploaded: &Uploaded, matrix: &Matrix) -> Result<DynBuffer, String> {
    if !case.pointers {
        return Ok(uploaded.part.clone());
    }
    let width = u64::from(uploaded.whole.element().bytes());
    let list: Vec<u64> =
        matrix.lies.starts.iter().map(|&start| uploaded.whole.address() + start as u64 * width).collect();
    Ok(DynBuffer::from(&device.upload(&list).map_err(|error| error.to_string())?))
}

/// The first and the last row, and some in between.
fn some_rows(random: &mut Random, rows: usize) -> Vec<usize> {
    let mut some: Vec<usize> = (0..22.min(rows)).map(|_| random.below(rows)).collect();
    some.extend([0, rows.saturating_sub(1)].into_iter().filter(|&row| row < rows));
    some.sort_unstable();
    some.dedup();
    some
}

/// What a panic says.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}
