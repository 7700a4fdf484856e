//! `tilewright demo`, the program's main job when it is called without a command.
//!
//! Describes the machine, then does what the library is for and checks every result: matrix products on the best device of this machine,
//! timed beside cuBLASLt where it is installed; the kernel of Hopper in the simulator, with what checker and counters say; and
//! the layers beneath, from layouts to the kernels of the registry. A check that fails ends the program with exit code 1.

mod hopper;
mod runs;

use std::io::Write;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use tilewright::compiler::Compiler;
use tilewright::device::{Device, DeviceKind};
use tilewright::kernels::{Entry, KERNELS};
use tilewright::layout::analysis;
use tilewright::layout::{Composed, Layout, LayoutError, Swizzle, TiledCopy, Tiler, TvLayout};
use tilewright::ptx;

use super::bench::Showcase;
use super::machine::Machine;
use super::{Failure, table};
use hopper::Simulated;

/// Options of `demo`.
#[derive(Debug, Default, Args)]
pub(super) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One thing that was computed and checked.
#[derive(Debug, Serialize)]
struct Step {
    what: String,
    result: String,
    /// How many values were compared with plain evaluation, or lines of PTX read back.
    compared: u64,
    ok: bool,
}

#[derive(Serialize)]
struct Outcome<'a> {
    machine: &'a Machine,
    /// Where the products and the kernels ran.
    device: &'a str,
    products: &'a Showcase,
    simulated: &'a Simulated,
    steps: &'a [Step],
    microseconds: u128,
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let machine = Machine::look();
    let start = Instant::now();
    let device = Device::best();
    let broken = |error: &dyn std::fmt::Display| Failure::Machine(format!("a step failed: {error}"));
    if !options.json {
        // What comes now takes seconds.
        write_machine(&machine, &device, out)?;
        out.flush()?;
    }
    let products = Showcase::measure(&device)?;
    if !options.json {
        products.write(out)?;
        out.flush()?;
    }
    let simulated = Simulated::run().map_err(|error| broken(&error))?;
    let steps = steps(&device).map_err(|error| broken(&error))?;
    let elapsed = start.elapsed();
    if options.json {
        let (device, microseconds) = (device.name(), elapsed.as_micros());
        let outcome = Outcome {
            machine: &machine,
            device,
            products: &products,
            simulated: &simulated,
            steps: &steps,
            microseconds,
        };
        serde_json::to_writer_pretty(&mut *out, &outcome)?;
        writeln!(out)?;
    } else {
        simulated.write(out)?;
        let compared = products.compared() + simulated.compared;
        write_steps(&steps, compared, elapsed.as_secs_f64(), out)?;
    }
    let step = steps.iter().find(|step| !step.ok).map(|step| format!("the check of `{}`", step.what));
    match products.failure().or_else(|| simulated.failure()).or(step) {
        None => Ok(()),
        Some(failure) => {
            out.flush()?;
            Err(Failure::Machine(format!("found a failure, expected none: {failure}")))
        }
    }
}

fn write_machine(machine: &Machine, device: &Device, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "tilewright {} on {}", machine.tilewright, machine.processor.describe())?;
    match &machine.driver {
        Some(driver) => writeln!(out, "driver: CUDA {}", driver.cuda)?,
        None => writeln!(out, "driver: none")?,
    }
    if machine.gpus.is_empty() {
        writeln!(out, "GPU: none; everything below runs on the CPU")?;
    }
    for gpu in &machine.gpus {
        let (name, capability) = (&gpu.name, &gpu.compute_capability);
        writeln!(out, "GPU {}: {name}, compute capability {capability} ({})", gpu.ordinal, gpu.architecture)?;
    }
    let how = match device.kind() {
        DeviceKind::Cuda => "medians, operands outside of the cache",
        _ => "medians, all cores",
    };
    Ok(writeln!(out, "\nMatrix products on {}, A row-major, B column-major ({how}):\n", device.name())?)
}

fn write_steps(steps: &[Step], compared: u64, seconds: f64, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "\nThe layers beneath, each held against plain evaluation:\n")?;
    let mut rows = table(&["what", "result", "compared", "check"]);
    for step in steps {
        let check = if step.ok { "ok" } else { "FAILED" };
        rows.add_row([&step.what, &step.result, &step.compared.to_string(), &check.to_owned()]);
    }
    writeln!(out, "{rows}")?;
    let compared = compared + steps.iter().map(|step| step.compared).sum::<u64>();
    let failed = steps.iter().filter(|step| !step.ok).count();
    writeln!(
        out,
        "\n{} steps, {compared} values and lines compared in all, {failed} failed, {seconds:.1} s",
        steps.len()
    )?;
    Ok(())
}

fn steps(device: &Device) -> Result<Vec<Step>, LayoutError> {
    let mut steps = vec![tiles()?, fragment()?, copy()?, swizzle()?, refusals(), compositions()?];
    steps.push(kernels());
    steps.push(runs::step(device));
    if device.kind() != DeviceKind::Simulator {
        steps.push(runs::step(&Device::simulator()));
    }
    steps.push(runs::race());
    Ok(steps)
}

/// All kernels of the registry from Rust to PTX for each chip they claim.
fn kernels() -> Step {
    let start = Instant::now();
    let outcomes: Vec<(usize, u64, bool)> = KERNELS.iter().map(compiled).collect();
    let failed = KERNELS.iter().zip(&outcomes).find(|(_, (.., ok))| !ok);
    let result = match failed {
        Some((entry, _)) => format!("{} does not become PTX that reads back as itself", entry.name),
        None => {
            let builds: usize = outcomes.iter().map(|(builds, ..)| builds).sum();
            let milliseconds = start.elapsed().as_secs_f64() * 1e3;
            format!("{builds} builds in {milliseconds:.0} ms, read back and legal")
        }
    };
    let compared = outcomes.iter().map(|(_, lines, _)| lines).sum();
    let ok = failed.is_none() && compared > 0;
    Step { what: format!("{} kernels to PTX", KERNELS.len()), result, compared, ok }
}

/// How many times a kernel was compiled, into how many lines, and whether they read back as the tree they were printed from, every
/// instruction legal for version and target.
fn compiled(entry: &Entry) -> (usize, u64, bool) {
    let (mut builds, mut lines, mut ok) = (0, 0, true);
    let kernel = (entry.stage)();
    for arch in entry.architectures() {
        let build = kernel.as_ref().ok().and_then(|kernel| Compiler::new(arch).compile(kernel.func()).ok());
        builds += 1;
        ok &= build.is_some_and(|build| {
            lines += build.code.text.lines().count() as u64;
            ptx::parse(&build.code.text)
                .is_ok_and(|read| read == build.code.module && ptx::check(&read).is_empty())
        });
    }
    (builds, lines, ok)
}

/// A row-major matrix cut into tiles: every tile starts where it should and nothing is lost.
fn tiles() -> Result<Step, LayoutError> {
    let matrix = Layout::row_major((512, 256))?;
    let tiled = matrix.zipped_divide(&Tiler::shape((128, 64))?)?;
    let (mut ok, mut compared) = (true, 0);
    for i in 0..tiled.size() {
        let (element, tile) = (i % (128 * 64), i / (128 * 64));
        let (row, column) = (tile % 4 * 128 + element % 128, tile / 4 * 64 + element / 128);
        ok &= tiled.at(i)? == row * 256 + column;
        compared += 1;
    }
    Ok(Step { what: "512x256 matrix in 128x64 tiles".to_owned(), result: tiled.to_string(), compared, ok })
}

/// The accumulator of mma.m16n8k16, against the formula in the PTX manual.
fn fragment() -> Result<Step, LayoutError> {
    let tv = TvLayout::new("((4,8),(2,2)):((32,1),(16,8))".parse()?, (16, 8))?;
    let (mut ok, mut compared) = (tv.is_partition()?, 0);
    for thread in 0..32 {
        for value in 0..4 {
            let (row, column) = (thread / 4 + value / 2 * 8, thread % 4 * 2 + value % 2);
            ok &= tv.coordinate(thread, value)? == (row, column).into();
            ok &= tv.owner(&(row, column).into())? == Some((thread, value));
            compared += 2;
        }
    }
    let result = format!("(thread,value) = {tv}, a partition of 16x8");
    Ok(Step { what: "accumulator of mma.m16n8k16".to_owned(), result, compared, ok })
}

/// 128 threads copy a 128x64 bf16 tile in 16-byte pieces: no byte is fetched in vain.
fn copy() -> Result<Step, LayoutError> {
    let copy = TiledCopy::new(&"(16,8):(8,1)".parse()?, &"(1,8):(8,1)".parse()?, 8)?;
    let memory: Layout = "(16,64):(4096,1)".parse()?;
    let sectors = copy.sectors(&memory, 2)?;
    let seen = copy.tv().partition(&memory)?;
    let (mut ok, mut compared) = (sectors.touched == sectors.ideal, 0);
    for thread in 0..128 {
        for value in 0..8 {
            ok &= seen.at(thread + 128 * value)? == thread / 8 * 4096 + thread % 8 * 8 + value;
            compared += 1;
        }
    }
    let result =
        format!("{} sectors in {} requests, {} needed", sectors.touched, sectors.requests, sectors.ideal);
    Ok(Step { what: "copy by 128 threads, 16 bytes each".to_owned(), result, compared, ok })
}

/// The 128-byte swizzle makes ldmatrix free of bank conflicts, and stays a permutation.
fn swizzle() -> Result<Step, LayoutError> {
    let plain: Layout = "(128,64):(64,1)".parse()?;
    let swizzled = Composed::new(Swizzle::new(3, 4, 3)?.upcast(2)?, 0, plain.clone())?;
    let before = analysis::ldmatrix_conflicts(&plain, (128, 64), 2)?;
    let after = analysis::ldmatrix_conflicts(&swizzled, (128, 64), 2)?;
    let inverse = swizzled.right_inverse()?;
    let (mut ok, mut compared) = (before == 8 && after == 1 && analysis::is_bijective(&swizzled)?, 0);
    for i in 0..plain.size() {
        // The formula of the TMA manual: the 16-byte piece is combined with the row modulo 8.
        let (row, column) = (i % 128, i / 128);
        let expected = row * 64 + ((column / 8) ^ (row % 8)) * 8 + column % 8;
        ok &= swizzled.at(i)? == expected && inverse.at(expected)? == i;
        compared += 2;
    }
    let result = format!("{swizzled}: ldmatrix conflicts {before} -> {after}");
    Ok(Step { what: "128-byte swizzle of a bf16 tile".to_owned(), result, compared, ok })
}

/// Compositions that other implementations get wrong must be refused.
fn refusals() -> Step {
    let unsound = [("(4,6,8):(2,3,5)", "6:3"), ("(6,2):(1,7)", "(3,2):(2,3)")];
    let refused = |(a, b): &(&str, &str)| -> Result<bool, LayoutError> {
        Ok(matches!(a.parse::<Layout>()?.compose(&b.parse()?), Err(LayoutError::Compose { .. })))
    };
    let ok = unsound.iter().all(|pair| refused(pair) == Ok(true));
    let result = "refused, with the reason".to_string();
    Step { what: "compositions that are not layouts".to_owned(), result, compared: 0, ok }
}

/// Random compositions, each compared with evaluating one layout after the other.
fn compositions() -> Result<Step, LayoutError> {
    const PAIRS: usize = 5000;
    let mut random = Random(0x7469_6c65);
    let (mut composed, mut refused, mut compared, mut ok) = (0, 0, 0, true);
    for _ in 0..PAIRS {
        let (a, b) = (random.layout(4)?, random.layout(3)?);
        match a.compose(&b) {
            Err(_) => refused += 1,
            Ok(result) => {
                composed += 1;
                for i in 0..b.size() {
                    ok &= result.at(i)? == a.at(b.at(i)?)?;
                    compared += 1;
                }
            }
        }
    }
    let result = format!("{composed} composed, {refused} refused");
    Ok(Step { what: "random compositions".to_owned(), result, compared, ok })
}

/// A small generator, the same on every machine (Numerical Recipes' 64-bit constants).
struct Random(u64);

impl Random {
    fn below(&mut self, end: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::from((self.0 >> 33) as u32 & 0x7fff_ffff) % end
    }

    fn layout(&mut self, rank: usize) -> Result<Layout, LayoutError> {
        let modes = (0..rank).map(|_| {
            let (extent, stride) = (
                1 + self.below(6),
                [0, 1, 2, 3, 4, 6, 8, 12, 16][usize::try_from(self.below(9)).unwrap_or(0)],
            );
            Layout::new(extent, stride)
        });
        let modes = modes.collect::<Result<Vec<_>, _>>()?;
        Layout::tuple(modes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_passes_and_compares() {
        let steps = steps(&Device::cpu()).unwrap();
        assert!(steps.iter().all(|step| step.ok), "{steps:?}");
        assert!(steps.iter().map(|step| step.compared).sum::<u64>() > 100_000);
    }
}
