//! A matrix product: which kernels compute it on a chip, by what prediction, what else there was, and these kernels themselves.
//!
//! The chip is a row of the table of GPUs, so none is needed.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::model::{self, Counts, Prediction};
use tilewright::kernels::gemm::{self, Algorithm, Candidate, Problem, Recipe, candidates};

use super::super::product::{self, Case, Finish, Layout};
use super::super::shape::Shape;
use super::super::{Failure, bytes, table};
use super::kernel::{Compiled, Explanation};

/// What stands for the kernel's name.
pub(super) const NAME: &str = "gemm";

/// Options of `explain gemm`.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Options {
    /// Extents MxNxK, with *BATCH for batches and +PAD for gaps between lines
    #[arg(long, value_name = "MxNxK")]
    shape: Option<Shape>,
    /// Type of the factors: bf16, f16, tf32, f32, f64, i8, e4m3, e5m2
    #[arg(long, default_value = "bf16", value_parser = product::element, requires = "shape")]
    dtype: Element,
    /// How the factors lie, as BLAS says it: tn, nn, tt, nt
    #[arg(long, default_value = "tn", requires = "shape")]
    layout: Layout,
    /// What happens to the sums: none, bias, relu, gelu, bias+relu, bias+gelu
    #[arg(long, default_value = "none", requires = "shape")]
    epilogue: Finish,
    /// The GPU, by name, such as h100 or a100; none has to be there
    #[arg(long, value_name = "NAME", default_value = "h200", value_parser = gpu, requires = "shape")]
    gpu: &'static Gpu,
    /// The algorithm, as `bench gemm` and this command write it [default: the one that the model likes best]
    #[arg(long, value_name = "TEXT", requires = "shape")]
    algorithm: Option<Algorithm>,
    /// How many algorithms to list
    #[arg(long, value_name = "N", default_value_t = 6, requires = "shape")]
    candidates: usize,
    /// Which of the algorithm's launches to show, from 1 on [default: all]
    #[arg(long, value_name = "N", requires = "shape", value_parser = clap::value_parser!(u32).range(1..))]
    launch: Option<u32>,
}

fn gpu(name: &str) -> Result<&'static Gpu, String> {
    Gpu::named(name).ok_or_else(|| {
        let known: Vec<&str> = Gpu::ALL.iter().map(|gpu| gpu.name).collect();
        format!("found the GPU `{name}`, expected one of {}", known.join(", "))
    })
}

impl Options {
    /// A kernel of the registry is no product.
    pub(super) fn refuse(&self, kernel: &str) -> Result<(), Failure> {
        self.shape.map_or(Ok(()), |shape| {
            Err(Failure::input(format!(
                "--shape {shape} of the kernel `{kernel}`, expected `tilewright explain {NAME} --shape {shape}`"
            )))
        })
    }
}

/// How a product is computed.
#[derive(Serialize)]
struct Product {
    product: Asked,
    gpu: &'static str,
    algorithm: String,
    predicted_us: f64,
    predicted_tflops: f64,
    terms: Vec<Term>,
    workspace_bytes: u64,
    /// What else there was, the best first.
    others: Vec<Other>,
    /// Algorithms in all.
    algorithms: usize,
    launches: Vec<Launch>,
}

#[derive(Serialize)]
struct Asked {
    shape: Shape,
    dtype: String,
    layout: String,
    epilogue: String,
}

/// Something that takes time.
#[derive(Serialize)]
struct Term {
    name: &'static str,
    us: f64,
    /// Whether it happens beside the other terms of the main part, or before or after it.
    at_once: bool,
    binds: bool,
}

#[derive(Serialize)]
struct Other {
    algorithm: String,
    predicted_us: f64,
    binding: &'static str,
}

#[derive(Serialize)]
struct Launch {
    number: usize,
    /// Everything that decides the kernel's code.
    key: String,
    grid: [u32; 3],
    #[serde(flatten)]
    explanation: Explanation,
}

pub(super) fn run(options: &super::Options, out: &mut dyn Write) -> Result<(), Failure> {
    let asked = &options.product;
    let Some(shape) = asked.shape else {
        return Err(Failure::input(format!(
            "`{NAME}` stands for many kernels, and which product is meant was not said; add --shape, such as \
             --shape 4096x4096x4096"
        )));
    };
    if let Some(arch) = options.arch {
        return Err(Failure::input(format!(
            "--arch {arch}: products are planned for a whole GPU, expected --gpu NAME in its place"
        )));
    }
    let case = Case { shape, element: asked.dtype, layout: asked.layout, finish: asked.epilogue };
    let (problem, gpu) = (case.problem()?, asked.gpu);
    let all = candidates(&problem, gpu).map_err(Failure::input)?;
    let chosen = choose(&problem, gpu, asked.algorithm, &all)?;
    let recipe = chosen.algorithm.recipe(&problem, gpu).map_err(Failure::input)?;
    let shown = numbers(asked.launch, recipe.launches.len())?;

    if options.only_stages() {
        if shown.is_empty() {
            return Err(Failure::input(
                "this product has no elements, so nothing is launched, and there are no stages",
            ));
        }
        if options.html.is_some() && shown.len() != 1 {
            let count = shown.len();
            return Err(Failure::input(format!(
                "{count} launches do not go to one page; say which with --launch N, from 1 to {count}"
            )));
        }
        for (i, &number) in shown.iter().enumerate() {
            if shown.len() > 1 {
                writeln!(out, "{}=== launch {number} ===", if i > 0 { "\n" } else { "" })?;
            }
            launched(&recipe, number, gpu, options, |compiled, _| compiled.show_stages(options, out))?;
        }
        return Ok(());
    }
    let launches = shown.iter().map(|&number| {
        launched(&recipe, number, gpu, options, |compiled, launch| {
            let (key, grid) = (launch.kernel.key.clone(), launch.grid);
            Ok(Launch { number, key, grid, explanation: compiled.explanation(options)? })
        })
    });
    let product = Product {
        product: Asked {
            shape,
            dtype: case.element.to_string(),
            layout: case.layout.to_string(),
            epilogue: case.finish.to_string(),
        },
        gpu: gpu.title,
        algorithm: chosen.algorithm.to_string(),
        predicted_us: microseconds(&chosen.predicted),
        predicted_tflops: problem.flops() / chosen.predicted.seconds().max(f64::MIN_POSITIVE) * 1e-12,
        terms: terms(&chosen.predicted),
        workspace_bytes: recipe.workspace,
        others: others(&all, &chosen, asked.candidates),
        algorithms: all.len(),
        launches: launches.collect::<Result<_, Failure>>()?,
    };
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &product)?;
        return Ok(writeln!(out)?);
    }
    product.write(out)
}

/// The algorithm that was asked for, or the best.
fn choose(
    problem: &Problem,
    gpu: &Gpu,
    asked: Option<Algorithm>,
    all: &[Candidate],
) -> Result<Candidate, Failure> {
    let Some(algorithm) = asked else {
        return all.first().cloned().ok_or_else(|| Failure::input("no algorithm computes this product"));
    };
    let predicted = algorithm.predict(problem, gpu).map_err(Failure::input)?;
    Ok(Candidate { algorithm, predicted })
}

/// The launches to show, from 1 on.
fn numbers(asked: Option<u32>, count: usize) -> Result<Vec<usize>, Failure> {
    match asked.map(|number| number as usize) {
        None => Ok((1..=count).collect()),
        Some(number) if number <= count => Ok(vec![number]),
        Some(number) => Err(Failure::input(format!(
            "--launch {number}: the algorithm has {count} launches, expected a number up to that"
        ))),
    }
}

/// Compiles the kernel of a launch, and does something with it.
fn launched<T>(
    recipe: &Recipe,
    number: usize,
    gpu: &Gpu,
    options: &super::Options,
    then: impl FnOnce(&Compiled<'_>, &gemm::Launch) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let launch = &recipe.launches[number - 1];
    let kernel = (launch.kernel.stage)().map_err(|error| Failure::Machine(error.to_string()))?;
    then(&Compiled::new(kernel.name(), &kernel, gpu.arch, options)?, launch)
}

fn microseconds(predicted: &Prediction) -> f64 {
    predicted.seconds() * 1e6
}

fn terms(predicted: &Prediction) -> Vec<Term> {
    let binding = predicted.binding();
    let term = |term: &model::Term| Term {
        name: term.name,
        us: term.seconds * 1e6,
        at_once: term.counts == Counts::Together,
        binds: *term == binding,
    };
    predicted.terms.iter().map(term).collect()
}

fn others(all: &[Candidate], chosen: &Candidate, listed: usize) -> Vec<Other> {
    let others = all.iter().filter(|other| other.algorithm != chosen.algorithm);
    let other = |other: &Candidate| Other {
        algorithm: other.algorithm.to_string(),
        predicted_us: microseconds(&other.predicted),
        binding: other.predicted.binding().name,
    };
    others.take(listed.saturating_sub(1)).map(other).collect()
}

impl Product {
    fn write(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let Asked { shape, dtype, layout, epilogue } = &self.product;
        writeln!(out, "{shape}, {dtype}, {layout}, epilogue {epilogue}, on {}\n", self.gpu)?;
        let mut ways = table(&["algorithm", "predicted", "most of it"]);
        let binding = self.terms.iter().find(|term| term.binds).map_or("nothing", |term| term.name);
        ways.add_row([&self.algorithm, &format!("{:.2} us", self.predicted_us), binding]);
        for other in &self.others {
            ways.add_row([&other.algorithm, &format!("{:.2} us", other.predicted_us), other.binding]);
        }
        writeln!(out, "{ways}")?;
        let more = self.algorithms.saturating_sub(1 + self.others.len());
        if more > 0 {
            writeln!(out, "and {more} more; --candidates lists them, --algorithm takes one")?;
        }

        let mut why = table(&["what takes time", "", ""]);
        for term in &self.terms {
            let how = if term.at_once { "at once" } else { "added" };
            let name = if term.binds { format!("{} (binds)", term.name) } else { term.name.to_owned() };
            why.add_row([name, format!("{:.2} us", term.us), how.to_owned()]);
        }
        let rate = format!("{:.1} TFLOP/s", self.predicted_tflops);
        why.add_row(["in all", &format!("{:.2} us", self.predicted_us), &rate]);
        writeln!(out, "\n{why}")?;
        if self.workspace_bytes > 0 {
            writeln!(out, "scratch memory: {}", bytes(self.workspace_bytes))?;
        }
        for Launch { number, grid: [x, y, z], explanation, .. } in &self.launches {
            writeln!(out, "\nlaunch {number}: {x} x {y} x {z} blocks\n")?;
            explanation.write(out)?;
        }
        Ok(())
    }
}
