//! Kernels of the operators through the real assembler, as the operators choose them for rows of many lengths, and attention of the tutorial:
//! registers suffice, but for what [`ALLOWED`] lists. Ignored, visibly, where there is no assembler; `TILEWRIGHT_REQUIRE_PTXAS=1` makes that a failure.
//!
//! Limits: dense matrices of f32 and bf16 with many rows, plain settings, and two chips; the others have the code of one of them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright::device::Recorder;
use tilewright::hardware::{Arch, Element};
use tilewright::kernels::tutorial;
use tilewright::lang::tile::prelude::*;
use tilewright::ops::{CumulativeSum, Error, OPERATORS, Operator, Rows, TopK};
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE};

/// Columns at which operators that hold whole rows choose other threads, clusters, or kernels that go through rows in steps: with clusters, and
/// without.
const LENGTHS: [usize; 6] = [8192, 16384, 32768, 65536, 128_256, 262_144];
const LENGTHS_OF_BLOCKS: [usize; 4] = [4096, 8192, 32768, 65536];

/// Columns of operators that take matrices in parts: these, and 4096 at most, whatever the length of rows is.
const WIDTHS: [usize; 2] = [1536, 4096];
const IN_PARTS: [&str; 9] =
    ["rope", "swiglu", "geglu", "transpose", "permute", "embedding", "dropout", "convert", "quantise"];

/// Bytes that a thread of a kernel may keep in local memory, and why. Norms and softmax have as many threads as were fastest on an H200.
const ALLOWED: [(&str, u32, &str); 8] = [
    ("layer_norm", 8, "masks are more predicates than there are"),
    ("softmax", 44, "logarithms of bf16 take more than the exponentials that threads were chosen for"),
    (
        "softmax_causal",
        24,
        "one block more on a multiprocessor is worth more, 3 % of rows of 65536 on an H200",
    ),
    ("softmax_to_position", 24, "the same"),
    ("rms_norm_adding", 4, "one word of 128 registers, on chips without clusters"),
    ("cumulative_sum", 32, "comparisons with all warps are more predicates than there are"),
    ("glu_backward", 16, "a few words however many registers there are, up to 128"),
    ("permute", 12, "addresses of single elements"),
];

/// The same of blocks of seven warps, which rows of 128256 f32 take, 72 numbers a thread: with nine warps, which spill nothing, softmax took a third
/// longer on an H200.
const ALLOWED_OF_SEVEN_WARPS: [(&str, u32); 5] = [
    ("softmax_masked", 36),
    ("rms_norm_adding", 8),
    ("rms_norm_quantised", 4),
    ("layer_norm", 52),
    ("layer_norm_adding", 40),
];

/// Code that was assembled before: many lengths have the same.
type Known = Arc<Mutex<HashSet<(Arch, Vec<u8>)>>>;

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let known = Known::default();
    let mut trials = Vec::new();
    for arch in [Arch::SM_80, Arch::SM_90A] {
        for element in [Element::F32, Element::BF16] {
            for operator in OPERATORS {
                let (name, known) = (format!("{arch} {element} {}", operator.name), known.clone());
                let lengths = match (IN_PARTS.contains(&operator.name), arch.supports(Arch::SM_90)) {
                    (true, _) => &WIDTHS[..],
                    (false, true) => &LENGTHS[..],
                    (false, false) => &LENGTHS_OF_BLOCKS[..],
                };
                let assemble = move || {
                    let recorder = Recorder::new(arch);
                    lengths
                        .iter()
                        .try_for_each(|&columns| rehearse(&recorder, operator, element, columns))?;
                    registers_suffice(&recorder, &known)
                };
                trials.push(Trial::test(name, assemble).with_ignored_flag(ignored));
            }
        }
        let known = known.clone();
        let scans = move || {
            let recorder = Recorder::new(arch);
            other_scans(&recorder)?;
            registers_suffice(&recorder, &known)
        };
        trials.push(Trial::test(format!("{arch} scans of other kinds"), scans).with_ignored_flag(ignored));
        let attention = move || {
            let recorder = Recorder::new(arch);
            for tile in [[64, 64], [128, 128]] {
                recorder.add(&tutorial::attention::stage(false, tile, 128)?)?;
            }
            registers_suffice(&recorder, &Known::default())
        };
        trials.push(Trial::test(format!("{arch} attention"), attention).with_ignored_flag(ignored));
        let sorts = move || {
            let recorder = Recorder::new(arch);
            rows_in_order(&recorder)?;
            registers_suffice(&recorder, &Known::default())
        };
        trials.push(Trial::test(format!("{arch} rows in order"), sorts).with_ignored_flag(ignored));
        let products = move || {
            let recorder = Recorder::new(arch);
            other_products(&recorder)?;
            registers_suffice(&recorder, &Known::default())
        };
        trials.push(
            Trial::test(format!("{arch} products of other kinds"), products).with_ignored_flag(ignored),
        );
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Asks for the kernels of an operator; some have none for rows as long as these.
fn rehearse(
    recorder: &Recorder,
    operator: &Operator,
    element: Element,
    columns: usize,
) -> Result<(), Failed> {
    match operator.rehearse(recorder.device(), element, columns) {
        Ok(()) | Err(Error::NoKernel { .. }) => Ok(()),
        Err(error) => Err(format!("{columns} columns: {error}").into()),
    }
}

/// Sums without the number itself, whose numbers are read one by one, and those from the end, which have masks.
fn other_scans(recorder: &Recorder) -> Result<(), Failed> {
    let device = recorder.device();
    let (x, y) = (device.alloc::<f32>(64 << 15)?, device.alloc::<f32>(64 << 15)?);
    let (x, y) = (Rows::new(&x, 64, 1 << 15), Rows::new(&y, 64, 1 << 15));
    for scan in [CumulativeSum::new().exclusive(), CumulativeSum::new().reverse()] {
        scan.run(device, x, y)?;
        scan.run(device, x.columns(0..20_000), y.columns(0..20_000))?;
    }
    Ok(())
}

/// Sums in f16, and many matrices at once.
#[kernel]
fn product<T: Factor<T, C>, C: Number>(a: View<T, 2>, b: View<T, 2>, c: View<C, 2>) {
    let own = c.partition([128, 128]);
    let mut acc = Tile::<C>::zeros([128, 128]);
    for step in 0..a.extent(1).div_ceil(64) {
        let left = a.tile([128, 64]).at((own.start(0), step * 64)).load();
        acc = dot(left, b.tile([64, 128]).at((step * 64, own.start(1))).load(), acc);
    }
    own.store(acc);
}

#[kernel]
fn products(a: View<bf16, 3>, b: View<bf16, 3>, c: View<f32, 3>, matrices: u32) {
    let own = c.partition([matrices, 32, 32]);
    let mut acc = Tile::<f32>::zeros([matrices, 32, 32]);
    for step in 0..a.extent(2).div_ceil(32) {
        let left = a.tile([matrices, 32, 32]).at((own.start(0), own.start(1), step * 32)).load();
        acc = dot(left, b.tile([matrices, 32, 32]).at((own.start(0), step * 32, own.start(2))).load(), acc);
    }
    own.store(acc);
}

fn other_products(recorder: &Recorder) -> Result<(), Failed> {
    let device = recorder.device();
    let (a, b, c) =
        (device.alloc::<f16>(1 << 18)?, device.alloc::<f16>(1 << 18)?, device.alloc::<f16>(1 << 18)?);
    let square = [512, 512];
    device.program(&product::stage::<f16, f16>()?)?.run(&[
        &a.view(square),
        &b.view(square),
        &c.view(square),
    ])?;
    let (a, b, c) =
        (device.alloc::<bf16>(1 << 15)?, device.alloc::<bf16>(1 << 15)?, device.alloc::<f32>(1 << 15)?);
    let cube = [32, 32, 32];
    for matrices in [1, 2, 6, 8] {
        let program = device.program(&products::stage(matrices)?)?;
        program.run(&[&a.view(cube), &b.view(cube), &c.view(cube)])?;
    }
    Ok(())
}

#[kernel]
fn best(x: View<bf16, 2>, y: View<bf16, 2>, places: View<u32, 2>, rows: u32, columns: u32) {
    let (values, found) = x.tile([rows, columns]).block((program_id(0), 0)).load().top_k(8, 1);
    y.partition([rows, 8]).store(values);
    places.partition([rows, 8]).store(found);
}

fn rows_in_order(recorder: &Recorder) -> Result<(), Failed> {
    let device = recorder.device();
    for (rows, columns) in [(1, 128), (4, 256), (1, 2048), (3, 100)] {
        let [height, width] = [rows as usize * 32, columns as usize];
        let x = device.alloc::<bf16>(height * width)?;
        let (y, places) = (device.alloc::<bf16>(height * 8)?, device.alloc::<u32>(height * 8)?);
        let program = device.program(&best::stage(rows, columns)?)?;
        program.run(&[&x.view([height, width]), &y.view([height, 8]), &places.view([height, 8])])?;
    }
    // Some of a row, by operators: sorted up to 2048 columns, and in rounds.
    for (columns, k) in [(100, 50), (1000, 1000), (2048, 64), (4096, 64), (131_072, 8), (131_072, 512)] {
        let x = device.alloc::<f32>(64 * columns)?;
        let (y, places) = (device.alloc::<f32>(64 * k)?, device.alloc::<u32>(64 * k)?);
        TopK::new(k).run(
            device,
            Rows::new(&x, 64, columns),
            Rows::new(&y, 64, k),
            Rows::new(&places, 64, k),
        )?;
    }
    Ok(())
}

fn registers_suffice(recorder: &Recorder, known: &Known) -> Result<(), Failed> {
    let (assembler, arch) = (Assembler::find()?, recorder.device().arch());
    let mut failures = Vec::new();
    for kernel in recorder.kernels() {
        let is_new = known.lock().unwrap_or_else(PoisonError::into_inner).insert((arch, kernel.code.clone()));
        if !is_new {
            continue;
        }
        let report = assembler.assemble(&String::from_utf8_lossy(&kernel.code), &arch.to_string())?;
        let (block, cluster) = (kernel.block.unwrap_or_default()[0], kernel.cluster.map_or(1, |c| c[0]));
        let of_seven = ALLOWED_OF_SEVEN_WARPS.iter().filter(|_| block == 7 * 32).copied();
        let of_any = ALLOWED.iter().map(|&(name, bytes, _)| (name, bytes));
        let allowed =
            of_seven.chain(of_any).find(|(name, _)| *name == kernel.name).map_or(0, |(_, bytes)| bytes);
        for entry in &report.entries {
            if entry.spill_store_bytes > allowed {
                failures.push(format!("{cluster} x {block} threads, allowed are {allowed}: {entry:?}"));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}
