//! Every kernel of the registry in several shapes on every kind of device: one test each, written once.
//!
//! Inputs are random and fresh each time (`TILEWRIGHT_TEST_SEED` repeats a run), references are computed in f64, outputs hold poison
//! before the kernel runs and lie in longer buffers whose ends must stay as they were. The simulator runs each under several seeds and
//! for the oldest chip as well, and must find nothing. GPU tests are ignored, visibly, where there is none; `TILEWRIGHT_REQUIRE_GPU=1`
//! makes that a failure.

use std::hash::{BuildHasher, Hasher, RandomState};

use half::bf16;
use libtest_mimic::{Arguments, Failed, Trial};
use tilewright::compiler::Compiler;
use tilewright::cuda::Driver;
use tilewright::device::{Argument, Buffer, Device, DeviceKind, Item, Kernel, Options};
use tilewright::hardware::Arch;
use tilewright::kernels::ladder::{LADDER, Step, Takes};
use tilewright::kernels::{Entry, KERNELS};

/// A kernel that is to be run.
struct Run<'a> {
    device: &'a Device,
    staged: &'a tilewright::lang::Kernel,
    kernel: Kernel,
    random: Random,
}

/// The extents of a problem; how many there are depends on the kernel.
type Extents = &'static [usize];
type Test = fn(&mut Run<'_>, Extents) -> Result<(), Failed>;

/// How each kernel is tested, and with which extents.
const TESTS: &[(&str, Test, &[Extents])] = &[
    ("vector_add", vector_add, &[&[1], &[255], &[1000], &[4096]]),
    ("transpose", transpose, &[&[1, 1], &[32, 32], &[40, 70], &[129, 33]]),
    ("block_sum", sum, &[&[1, 1], &[4103, 3], &[10_001, 8]]),
    ("cluster_sum", sum, &[&[1, 4], &[4103, 8], &[10_001, 8]]),
    ("ladder_naive", by_pointers, &[&[64, 16, 40]]),
    ("ladder_patch", by_pointers, &[&[32, 32, 40]]),
    ("ladder_shared", by_pointers, &[&[64, 32, 64]]),
    ("ladder_registers", by_pointers, &[&[128, 128, 64]]),
    ("ladder_vectors", by_pointers, &[&[128, 128, 64]]),
    ("ladder_tensor", by_pointers, &[&[128, 256, 96]]),
    ("gemm_ampere", by_pointers, &[&[128, 256, 96], &[128, 128, 192], &[256, 128, 32]]),
    ("ladder_wgmma", by_maps, &[&[128, 128, 256]]),
    ("gemm_hopper", by_maps, &[&[128, 256, 192], &[128, 256, 320], &[256, 512, 64]]),
    ("ladder_persistent", by_maps, &[&[128, 512, 256]]),
    ("ladder_cluster", by_maps, &[&[256, 512, 256]]),
];

/// Where a test runs.
#[derive(Clone, Copy)]
enum Place {
    Simulator(Arch),
    Cpu,
    Gpu(u32),
}

fn main() {
    let arguments = Arguments::from_args();
    let seed = match std::env::var("TILEWRIGHT_TEST_SEED") {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| text.bytes().fold(0, |sum, byte| sum * 31 + u64::from(byte)))
        }
        Err(_) => RandomState::new().build_hasher().finish(),
    };
    if !arguments.list {
        println!("inputs by TILEWRIGHT_TEST_SEED={seed}");
    }
    let gpus = Driver::load().and_then(|driver| driver.device_count()).unwrap_or(0);
    let required = std::env::var_os("TILEWRIGHT_REQUIRE_GPU").is_some_and(|value| value == "1");
    let mut trials = vec![Trial::test("every_kernel_has_a_test", every_kernel_has_a_test)];
    for entry in KERNELS {
        for &(_, test, shapes) in TESTS.iter().filter(|(name, ..)| *name == entry.name) {
            for &shape in shapes {
                for place in places(entry, gpus) {
                    let name = format!("{}/{}/{}", entry.name, extents(shape), place.name());
                    let absent = matches!(place, Place::Gpu(_)) && gpus == 0 && !required;
                    let unable = place.arch().is_some_and(|arch| !arch.supports(entry.needs));
                    let trial = Trial::test(name, move || run(entry, test, shape, place, seed));
                    trials.push(trial.with_ignored_flag(absent || unable));
                }
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A kernel without an entry in the table would be tested nowhere.
fn every_kernel_has_a_test() -> Result<(), Failed> {
    let tested: Vec<&str> = TESTS.iter().map(|(name, ..)| *name).collect();
    let known: Vec<&str> = KERNELS.iter().map(|entry| entry.name).collect();
    ensure(tested == known, || format!("the registry has {known:?}, tested are {tested:?}"))
}

/// The simulator stands for the oldest chip that the kernel claims and for Hopper: what the compiler may use differs.
fn places(entry: &Entry, gpus: u32) -> Vec<Place> {
    let simulated = entry.architectures().filter(|arch| [Arch::SM_80, Arch::SM_90A].contains(arch));
    simulated.map(Place::Simulator).chain([Place::Cpu]).chain((0..gpus.max(1)).map(Place::Gpu)).collect()
}

impl Place {
    fn name(self) -> String {
        match self {
            Place::Simulator(arch) => format!("simulator-{arch}"),
            Place::Cpu => "cpu".to_owned(),
            Place::Gpu(ordinal) => format!("cuda-{ordinal}"),
        }
    }

    /// The chip, as far as it is there.
    fn arch(self) -> Option<Arch> {
        match self {
            Place::Simulator(arch) => Some(arch),
            Place::Cpu => Some(Device::cpu().arch()),
            Place::Gpu(ordinal) => Device::cuda(ordinal).ok().map(|device| device.arch()),
        }
    }

    fn devices(self) -> Result<Vec<(Device, Arch)>, Failed> {
        Ok(match self {
            Place::Simulator(arch) => {
                let seeded = |seed| (Device::simulator_with(Options::with_seed(seed)), arch);
                [0, 1, 99].map(seeded).into()
            }
            Place::Cpu => vec![(Device::cpu(), Device::cpu().arch())],
            Place::Gpu(ordinal) => {
                let device = Device::cuda(ordinal)?;
                let arch = device.arch();
                vec![(device, arch)]
            }
        })
    }
}

fn run(entry: &Entry, test: Test, shape: Extents, place: Place, seed: u64) -> Result<(), Failed> {
    for (device, arch) in place.devices()? {
        let staged = (entry.stage)()?;
        // Lines, so that a finding says where.
        let kernel = device.compile_with(&staged, Compiler::new(arch).line_info(true))?;
        let random = Random(seed);
        test(&mut Run { device: &device, staged: &staged, kernel, random }, shape).map_err(|failed| {
            format!("TILEWRIGHT_TEST_SEED={seed}: {}", failed.message().unwrap_or("failed"))
        })?;
    }
    Ok(())
}

fn extents(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

fn ensure(condition: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(what().into()) }
}

fn number(extent: usize) -> Result<u32, Failed> {
    Ok(u32::try_from(extent)?)
}

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Between -2 and 2, all bits of the fraction in use.
    fn reals(&mut self, len: usize) -> Vec<f32> {
        let real = |bits: u64| f32::from_bits(0x3F80_0000 | (bits >> 41) as u32) * 4.0 - 6.0;
        (0..len).map(|_| real(self.next())).collect()
    }

    /// Multiples of 1/8 between -2 and 2, so that sums of a few thousand are exact in f32 in any order.
    fn eighths(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| f32::from(u8::try_from(self.next() % 33).unwrap_or(0)) / 8.0 - 2.0).collect()
    }

    fn halves(&mut self, len: usize) -> Vec<bf16> {
        self.reals(len).into_iter().map(bf16::from_f32).collect()
    }
}

/// What lies behind every output.
const MARGIN: usize = 64;

/// An output: nothing that the kernel could be right by accident with, and a margin that it must not touch.
struct Output<T> {
    buffer: Buffer<T>,
    before: Vec<T>,
    len: usize,
}

impl<T: Item> Output<T> {
    fn new(run: &Run<'_>, len: usize, poison: T) -> Result<Output<T>, Failed> {
        let buffer = run.device.alloc::<T>(len + MARGIN)?;
        // The simulator poisons what nobody has written, and reports who reads it; elsewhere it could hold the right result.
        if run.device.kind() != DeviceKind::Simulator {
            buffer.fill(poison)?;
        }
        let before = buffer.to_vec()?;
        Ok(Output { buffer, before, len })
    }

    /// The result, if the margin is as it was. Bits are compared: poison is no number.
    fn result(&self) -> Result<Vec<T>, Failed> {
        let mut after = self.buffer.to_vec()?;
        let margin = after[self.len..].iter().zip(&self.before[self.len..]);
        let touched = margin.into_iter().position(|(after, before)| after.to_bits() != before.to_bits());
        ensure(touched.is_none(), || format!("wrote {touched:?} elements behind the end"))?;
        after.truncate(self.len);
        Ok(after)
    }
}

impl Run<'_> {
    fn launch(&self, grid: (u32, u32), arguments: &[&dyn Argument]) -> Result<(), Failed> {
        self.kernel.launch(grid, arguments)?.expect_clean()?;
        Ok(())
    }
}

/// Every element as close as it must be; NaN is close to nothing.
fn compare(found: &[f64], expected: &[f64], tolerance: impl Fn(usize) -> f64) -> Result<(), Failed> {
    ensure(found.len() == expected.len(), || format!("{} elements of {}", found.len(), expected.len()))?;
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= tolerance(i);
        ensure(close, || format!("element {i} is {found}, expected {expected} within {:e}", tolerance(i)))?;
    }
    Ok(())
}

fn widened<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

fn vector_add(run: &mut Run<'_>, shape: Extents) -> Result<(), Failed> {
    let len = shape[0];
    let (x, y) = (run.random.reals(len), run.random.reals(len));
    let out = Output::new(run, len, f32::NAN)?;
    let (on_x, on_y, n) = (run.device.upload(&x)?, run.device.upload(&y)?, number(len)?);
    run.launch((n.div_ceil(256), 1), &[&on_x, &on_y, &out.buffer, &n])?;
    // The sum in f64 is exact, and f32 rounds it once.
    let expected: Vec<f64> = x.iter().zip(&y).map(|(&x, &y)| f64::from(x) + f64::from(y)).collect();
    compare(&widened(&out.result()?), &expected, |i| expected[i].abs() * f64::from(f32::EPSILON) / 2.0)
}

fn transpose(run: &mut Run<'_>, shape: Extents) -> Result<(), Failed> {
    let (rows, columns) = (shape[0], shape[1]);
    let x = run.random.reals(rows * columns);
    let out = Output::new(run, x.len(), f32::NAN)?;
    let (m, n) = (number(rows)?, number(columns)?);
    run.launch((n.div_ceil(32), m.div_ceil(32)), &[&run.device.upload(&x)?, &out.buffer, &m, &n])?;
    let expected: Vec<f64> = (0..x.len()).map(|i| f64::from(x[i % rows * columns + i / rows])).collect();
    compare(&widened(&out.result()?), &expected, |_| 0.0)
}

/// Adds to what is there, so there is a number instead of poison.
fn sum(run: &mut Run<'_>, shape: Extents) -> Result<(), Failed> {
    let x = run.random.eighths(shape[0]);
    let out = run.device.upload(&[5.0f32, 7.0])?;
    run.launch((number(shape[1])?, 1), &[&run.device.upload(&x)?, &out, &number(shape[0])?])?;
    let expected = 5.0 + x.iter().map(|&x| f64::from(x)).sum::<f64>();
    compare(&widened(&out.to_vec()?), &[expected, 7.0], |_| 0.0)
}

/// `c = a * b^T` in f64, and for each element the sum of the magnitudes that its rounding errors scale with.
fn product(a: &[bf16], b: &[bf16], depth: usize) -> (Vec<f64>, Vec<f64>) {
    let (a, b) = (widened(a), widened(b));
    let dot = |x: &[f64], y: &[f64]| {
        let terms = x.iter().zip(y).map(|(x, y)| x * y);
        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
    };
    a.chunks(depth).flat_map(|x| b.chunks(depth).map(move |y| dot(x, y))).unzip()
}

/// Accumulated in f32 by tensor cores, which keep at least 20 bits of each term, and rounded to bf16 once.
fn compare_product(found: &[bf16], a: &[bf16], b: &[bf16], depth: usize) -> Result<(), Failed> {
    let (expected, sizes) = product(a, b, depth);
    let tolerance = |i: usize| expected[i].abs() / 256.0 + sizes[i] / f64::from(1 << 20);
    compare(&widened(found), &expected, tolerance)
}

/// The step of the ladder that a kernel is.
fn step(run: &Run<'_>) -> Result<&'static Step, Failed> {
    let step = LADDER.iter().find(|step| step.kernel.name == run.kernel.name());
    step.ok_or_else(|| format!("`{}` is no step of the ladder", run.kernel.name()).into())
}

/// The grid of a product on two multiprocessors, so that persistent blocks have several tiles to do.
fn grid(step: &Step, m: usize, n: usize, k: usize) -> Result<(u32, u32), Failed> {
    let recipe = step.recipe([number(m)?, number(n)?, number(k)?], 2).map_err(|error| error.to_string())?;
    let [x, y, _] = recipe.launches[0].grid;
    Ok((x, y))
}

fn by_pointers(run: &mut Run<'_>, shape: Extents) -> Result<(), Failed> {
    let &[m, n, k] = shape else { return Err("three extents".into()) };
    let (a, b) = (run.random.halves(m * k), run.random.halves(n * k));
    let c = Output::new(run, m * n, bf16::NAN)?;
    let (on_a, on_b) = (run.device.upload(&a)?, run.device.upload(&b)?);
    run.launch(grid(step(run)?, m, n, k)?, &[&on_a, &on_b, &c.buffer, &number(n)?, &number(k)?])?;
    compare_product(&c.result()?, &a, &b, k)
}

fn by_maps(run: &mut Run<'_>, shape: Extents) -> Result<(), Failed> {
    let &[m, n, k] = shape else { return Err("three extents".into()) };
    let (a, b) = (run.random.halves(m * k), run.random.halves(n * k));
    let c = Output::new(run, m * n, bf16::NAN)?;
    let map = |name: &str, buffer: &Buffer<bf16>, dims: [usize; 2]| {
        let spec = run.staged.tensor_map(name).ok_or_else(|| format!("`{name}` is no tensor map"))?;
        Ok::<_, Failed>(run.device.tensor_map(spec, buffer, &dims.map(|extent| extent as u64))?)
    };
    let (on_a, on_b) = (run.device.upload(&a)?, run.device.upload(&b)?);
    let (map_a, map_b, map_c) =
        (map("a", &on_a, [k, m])?, map("b", &on_b, [k, n])?, map("c", &c.buffer, [n, m])?);
    let step = step(run)?;
    let [rows, columns, steps] = step.multiples();
    let (rows, columns, steps) = (number(m)? / rows, number(n)? / columns, number(k)? / steps);
    let mut arguments: Vec<&dyn Argument> = vec![&map_a, &map_b, &map_c];
    if let Takes::Tiles { .. } = step.takes {
        arguments.extend([&rows as &dyn Argument, &columns]);
    }
    arguments.push(&steps);
    run.launch(grid(step, m, n, k)?, &arguments)?;
    compare_product(&c.result()?, &a, &b, k)
}
