//! Holds the model of matrix products against times that were measured, and fits its constants to them.
//!
//! ```console
//! $ cargo run --release -p tilewright-kernels --example fit_model -- results/h200/candidates.json
//! $ cargo run --release -p tilewright-kernels --example fit_model -- results/h200/candidates.json --steps 3000 --vary engine
//! $ cargo run --release -p tilewright-kernels --example fit_model -- results/h200/candidates.json --steps 1000 --vary engine --folds 5
//! ```
//!
//! A file of times is made by `tilewright bench gemm --candidates N --kinds N`. What counts is the *regret* of a product: how much longer the
//! algorithm takes that the model likes best than the fastest that was tried. It jumps when a choice changes, so the climb looks at a
//! mean over algorithms by how near their predictions are to the best one. `--folds` fits to all products but every fifth (say), and
//! tells the regret of those left out: what is to be expected of products that nobody measured.
//!
//! Constants are changed by hand afterwards, in `src/gemm/model/constants.rs`: what comes out depends on what was measured, and on luck.

use std::error::Error;

use serde_json::Value;
use tilewright_hardware::Gpu;
use tilewright_kernels::gemm::epilogue::Epilogue;
use tilewright_kernels::gemm::model::{Constants, Model};
use tilewright_kernels::gemm::{Algorithm, Placement, Problem, Storage, Types, candidates};

/// How near the best prediction an algorithm must be to count in the mean: its part of a time.
const NEAR: f64 = 0.01;
/// How much a constant is changed at a time, at most: its part of itself.
const CHANGE: f64 = 0.1;

/// An algorithm that was tried, and the problem as its kernel sees it.
struct Tried {
    algorithm: Algorithm,
    seen: Problem,
    us: f64,
}

struct Product {
    name: String,
    tried: Vec<Tried>,
    fastest: f64,
}

impl Product {
    /// A product of the file; none if fewer than two of its algorithms are candidates today.
    fn read(entry: &Value, gpu: &Gpu) -> Result<Option<Product>, Box<dyn Error>> {
        let text = |key: &str| entry[key].as_str().ok_or(format!("an entry without `{key}`"));
        let extents: Vec<u32> = text("shape")?.split('x').map(str::parse).collect::<Result<_, _>>()?;
        let &[m, n, k] = &extents[..] else { return Err("a shape is m x n x k".into()) };
        let layout = text("layout")?;
        let (a, b) = Storage::of_blas(layout).ok_or(format!("layout {layout}, expected tn, nn, nt or tt"))?;
        let problem = Problem::new(m, n, k, Types::of(text("dtype")?.parse()?));
        let epilogue = match text("epilogue")? {
            "none" => Epilogue::identity(),
            "bias+gelu" => Epilogue::identity().bias_per_column("bias", problem.types.d).gelu_tanh(),
            other => return Err(format!("epilogue {other}, expected none or bias+gelu").into()),
        };
        let problem = Problem {
            a: Placement::dense(a, m as usize, k as usize),
            b: Placement::dense(b, k as usize, n as usize),
            epilogue,
            ..problem
        };
        let known = candidates(&problem, gpu)?;
        let mut tried = Vec::new();
        for one in entry["tried"].as_array().ok_or("an entry without `tried`")? {
            let algorithm: Algorithm =
                one["algorithm"].as_str().ok_or("a time without `algorithm`")?.parse()?;
            let us = one["us"].as_f64().ok_or("a time without `us`")?;
            if known.iter().any(|candidate| candidate.algorithm == algorithm) {
                tried.push(Tried { algorithm, seen: algorithm.seen(&problem), us });
            }
        }
        let fastest = tried.iter().map(|tried| tried.us).fold(f64::INFINITY, f64::min);
        let name = format!("{} {} {} {}", text("shape")?, text("dtype")?, text("layout")?, text("epilogue")?);
        Ok((tried.len() > 1).then_some(Product { name, tried, fastest }))
    }

    /// The regret, and the logarithm of what the mean takes longer.
    fn regret(&self, model: &Model, gpu: &Gpu) -> (f64, f64) {
        let predict = |tried: &Tried| tried.algorithm.predict_by(model, &tried.seen, gpu).seconds();
        let predicted: Vec<f64> = self.tried.iter().map(predict).collect();
        let best = predicted.iter().copied().fold(f64::INFINITY, f64::min);
        let (mut weights, mut mean, mut choice) = (0.0, 0.0, f64::INFINITY);
        for (tried, predicted) in self.tried.iter().zip(predicted) {
            let weight = (-(predicted / best - 1.0) / NEAR).exp();
            weights += weight;
            mean += weight * tried.us;
            if predicted <= best {
                choice = choice.min(tried.us);
            }
        }
        (choice / self.fastest, (mean / weights / self.fastest).ln())
    }
}

/// What the climb makes as small as it can: in the mean of all products.
fn cost(products: &[&Product], model: &Model, gpu: &Gpu) -> f64 {
    products.iter().map(|product| product.regret(model, gpu).1).sum::<f64>() / products.len().max(1) as f64
}

/// The geometric mean of regrets, and the worst with its product.
fn summary(products: &[&Product], model: &Model, gpu: &Gpu) -> String {
    let regrets: Vec<(f64, &str)> =
        products.iter().map(|product| (product.regret(model, gpu).0, product.name.as_str())).collect();
    let mean = regrets.iter().map(|(regret, _)| regret.ln()).sum::<f64>() / regrets.len().max(1) as f64;
    let worst = regrets.iter().copied().fold((1.0, "none"), |x, y| if y.0 > x.0 { y } else { x });
    format!(
        "{} products, regret {:.4} in the mean, {:.3} at worst ({})",
        regrets.len(),
        mean.exp(),
        worst.0,
        worst.1
    )
}

/// The next random word: splitmix64, so that a run can be repeated.
fn word(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A random number from -1 up to 1.
fn number(state: &mut u64) -> f64 {
    (word(state) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Which constants may change: those of one kind of kernels.
fn of_kind<'m>(model: &'m mut Model, kind: &str) -> Option<&'m mut Constants> {
    match kind {
        "engine" => Some(&mut model.engine),
        "threads" => Some(&mut model.threads),
        "streamed" => Some(&mut model.streamed),
        _ => None,
    }
}

/// Changes one constant after the other at random, and keeps what makes things better.
fn climb(
    products: &[&Product],
    kind: &str,
    steps: u32,
    mut seed: u64,
    gpu: &Gpu,
) -> Result<Model, Box<dyn Error>> {
    let mut best = Model::FITTED;
    let mut least = cost(products, &best, gpu);
    // Contention is a whole number, and shared memory what its banks give.
    let names: Vec<&str> =
        Constants::NAMES.iter().copied().filter(|name| !["contention", "shared"].contains(name)).collect();
    for step in 0..steps {
        let mut other = best;
        let constants = of_kind(&mut other, kind)
            .ok_or(format!("--vary {kind}, expected engine, threads or streamed"))?;
        let Some(name) = names.get(usize::try_from(word(&mut seed) % names.len() as u64)?) else { continue };
        let old = constants.get(name).filter(|old| old.is_finite()).unwrap_or(0.0);
        constants.set(name, old * (1.0 + CHANGE * number(&mut seed)));
        let found = cost(products, &other, gpu);
        if found < least {
            (best, least) = (other, found);
            eprint!("\r{step:>6} {least:.6} {name:<24}");
        }
    }
    eprintln!();
    Ok(best)
}

/// The value of `--name`, if it is there.
fn option<T: std::str::FromStr>(arguments: &[String], name: &str) -> Result<Option<T>, String> {
    let Some(at) = arguments.iter().position(|argument| argument == name) else { return Ok(None) };
    let value = arguments.get(at + 1).ok_or(format!("{name} needs a value"))?;
    value.parse().map(Some).map_err(|_| format!("{name} {value} is not understood"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("give the file of times, such as results/h200/candidates.json")?;
    let steps = option(&arguments, "--steps")?.unwrap_or(0);
    let kind: String = option(&arguments, "--vary")?.unwrap_or_else(|| "engine".to_owned());
    let folds = option(&arguments, "--folds")?.unwrap_or(1usize);
    let seed = option(&arguments, "--seed")?.unwrap_or(1);
    let gpu: String = option(&arguments, "--gpu")?.unwrap_or_else(|| "h200".to_owned());
    let gpu = Gpu::named(&gpu).ok_or(format!("{gpu} is not in the table of GPUs"))?;

    let file: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let mut products = Vec::new();
    for entry in file["entries"].as_array().ok_or("a file without `entries`")? {
        products.extend(Product::read(entry, gpu)?);
    }
    let all: Vec<&Product> = products.iter().collect();
    println!("as it is    {}", summary(&all, &Model::FITTED, gpu));
    if steps == 0 {
        return Ok(());
    }
    if folds > 1 {
        for fold in 0..folds {
            let part = |left_out: bool| -> Vec<&Product> {
                all.iter()
                    .enumerate()
                    .filter(|(i, _)| (i % folds == fold) == left_out)
                    .map(|(_, &p)| p)
                    .collect()
            };
            let (seen, unseen) = (part(false), part(true));
            let model = climb(&seen, &kind, steps, seed, gpu)?;
            println!("fold {fold}      {}", summary(&seen, &model, gpu));
            println!("  left out  {}", summary(&unseen, &model, gpu));
            println!("  before    {}", summary(&unseen, &Model::FITTED, gpu));
        }
        return Ok(());
    }
    let mut model = climb(&all, &kind, steps, seed, gpu)?;
    println!("fitted      {}", summary(&all, &model, gpu));
    let mut before = Model::FITTED;
    let (now, then) = (of_kind(&mut model, &kind), of_kind(&mut before, &kind));
    for (name, now, then) in Constants::NAMES
        .iter()
        .filter_map(|name| Some((name, now.as_ref()?.get(name)?, then.as_ref()?.get(name)?)))
    {
        if now != then {
            println!("    {name}: {now:.4e}, // {then:.4e}");
        }
    }
    Ok(())
}
