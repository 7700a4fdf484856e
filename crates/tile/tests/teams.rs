//! Products of which two programs take turns in a block, in the simulator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

mod common;

use tilewright_codegen::Options as Codegen;
use tilewright_hardware::Arch;
use tilewright_ir::{Module, verify};
use tilewright_lang::Kernel;
use tilewright_lang::tile::prelude::*;
use tilewright_passes::{Pipeline, Remark};
use tilewright_ptx::Type;
use tilewright_sim::{Arg, Launch, Options, Simulator, TensorMap};
use tilewright_tile::{Fact, Lowered, Number, lower, specialise};

/// c = a * b; a and b may each be given by columns.
#[kernel]
fn product<T: Float + Factor<T, f32>, R: Float>(
    a: View<T, 2>,
    b: View<T, 2>,
    c: View<R, 2>,
    steps: Val<u32>,
    tile: [u32; 3],
    turned: [bool; 2],
) {
    let [m, n, k] = tile;
    let own = c.partition_grouped([m, n], 2);
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..steps {
        let left = if turned[0] {
            a.tile([k, m]).at((step * k, own.start(0))).load().transpose()
        } else {
            a.tile([m, k]).at((own.start(0), step * k)).load()
        };
        let right = if turned[1] {
            b.tile([n, k]).at((own.start(1), step * k)).load().transpose()
        } else {
            b.tile([k, n]).at((step * k, own.start(1))).load()
        };
        acc = dot(left, right, acc);
    }
    own.store(acc.cast());
}

/// The same, from the sum of products of halves: loops in a loop, and a second loop after it.
#[kernel]
fn twice(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, steps: Val<u32>) {
    let own = c.partition_grouped([64, 128], 2);
    let mut acc = Tile::<f32>::zeros([64, 128]);
    for half in 0..val(2u32) {
        for step in 0..steps / 2 {
            let k = (half * (steps / 2) + step) * 64;
            let left = a.tile([64, 64]).at((own.start(0), k)).load();
            let right = b.tile([64, 128]).at((k, own.start(1))).load();
            acc = dot(left, right, acc);
        }
    }
    for step in (steps / 2 * 2)..steps {
        let left = a.tile([64, 64]).at((own.start(0), step * 64)).load();
        let right = b.tile([64, 128]).at((step * 64, own.start(1))).load();
        acc = dot(left, right, acc);
    }
    own.store(acc);
}

/// What is true of tensors that lie as they should.
fn compiled(kernel: &Kernel) -> Lowered {
    let mut facts = common::facts(&["a", "b", "c"]);
    // Whole pieces of what the copy engine stores.
    facts.push(("c_extent1".to_owned(), Fact::MultipleOf(8)));
    let facts: Vec<(&str, Fact)> = facts.iter().map(|(name, fact)| (name.as_str(), *fact)).collect();
    lower(&specialise(kernel.func(), &facts), Arch::SM_90A).unwrap()
}

/// Slots of the ring, if two programs take turns in a block.
fn slots(lowered: &Lowered) -> Option<u32> {
    let turns = lowered.remarks.iter().find(|remark| remark.message.contains("two programs take turns"))?;
    let (_, rest) = turns.message.split_once("a ring of ")?;
    rest.split(' ').next()?.parse().ok()
}

/// A type of matrices in memory.
trait Stored: tilewright_sim::Sample {
    const TYPE: Type;
    fn stored(value: f32) -> Self;
}

impl Stored for f32 {
    const TYPE: Type = Type::F32;
    fn stored(value: f32) -> f32 {
        value
    }
}

impl Stored for f16 {
    const TYPE: Type = Type::F16;
    fn stored(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

impl Stored for bf16 {
    const TYPE: Type = Type::Bf16;
    fn stored(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
}

struct Case {
    /// Of the sums, and of the summed axis; how far the sums go along that.
    extents: [usize; 3],
    steps: u32,
    tile: [u32; 3],
    turned: [bool; 2],
    /// Whether each step counts as often as its number says.
    counted: bool,
}

/// Computes with few and with many blocks, and finds what sums one after the other give; with `row`, as `beside` does with one.
fn check<T: Stored, R: Stored + PartialEq + std::fmt::Debug>(lowered: &Lowered, case: &Case, row: bool) {
    let problems = verify(&Module::from(lowered.func.clone()));
    assert!(problems.is_empty(), "{problems:?}\n{}", lowered.func);
    assert_eq!(lowered.func.launch.threads, Some([384, 1, 1]));
    let [m, n, k] = case.extents;
    let depth = k.min((case.steps * case.tile[2]) as usize);
    let left: Vec<f32> = (0..m * k).map(|i| ((i * 7) % 5) as f32 - 2.0).collect();
    let right: Vec<f32> = (0..k * n).map(|i| ((i * 11) % 7) as f32 - 3.0).collect();
    let of_a = |i: usize, l: usize| if case.turned[0] { left[l * m + i] } else { left[i * k + l] };
    let of_b = |l: usize, j: usize| if case.turned[1] { right[j * k + l] } else { right[l * n + j] };
    let of_row = |j: usize| ((j * 3) % 11) as f32 - 5.0;
    let mut expected = Vec::new();
    for i in 0..m {
        for j in 0..n {
            let times = |l: usize| if case.counted { (l / case.tile[2] as usize) as f32 } else { 1.0 };
            let mut sum: f32 = (0..depth).map(|l| times(l) * of_a(i, l) * of_b(l, j)).sum();
            if row {
                sum += of_row(j);
                sum = if sum >= 0.0 { 2.0 * sum } else { sum - 1.0 };
            }
            expected.push(R::stored(sum));
        }
    }
    let shapes =
        [if case.turned[0] { [k, m] } else { [m, k] }, if case.turned[1] { [n, k] } else { [k, n] }, [m, n]];
    let programs = [(m as u32).div_ceil(case.tile[0]) * (n as u32).div_ceil(case.tile[1]), 1, 1];
    for (seed, pipeline) in [(1, Pipeline::standard()), (2, Pipeline::standard()), (3, Pipeline::of(&[]))] {
        let mut module = Module::from(lowered.func.clone());
        pipeline.run(&mut module).unwrap();
        let code = tilewright_codegen::compile(&module.funcs[0], &Codegen::new(Arch::SM_90A)).unwrap();
        let ptx = tilewright_sim::Module::parse(&code.text).unwrap();
        let mut sim = Simulator::new(Options { seed, chip: Some(Arch::SM_90A), ..Options::default() });
        let stored = |data: &[f32]| data.iter().map(|&value| T::stored(value)).collect::<Vec<T>>();
        let result = vec![R::stored(-1.0); m * n];
        let buffers = [sim.upload(&stored(&left)), sim.upload(&stored(&right)), sim.upload(&result)];
        let mut args = Vec::new();
        for (buffer, [rows, columns]) in buffers.iter().zip(shapes) {
            args.push(Arg::Buffer(*buffer));
            args.extend([Arg::U32(rows as u32), Arg::U32(columns as u32)]);
            args.extend([Arg::I64(columns as i64), Arg::I64(1)]);
        }
        args.push(Arg::U32(case.steps));
        if row {
            let of_row: Vec<f32> = (0..n).map(of_row).collect();
            args.push(Arg::Buffer(sim.upload(&of_row)));
            args.extend([Arg::U32(1), Arg::U32(n as u32), Arg::I64(n as i64), Arg::I64(1)]);
        }
        for map in &lowered.maps {
            let view = ["a", "b", "c"].iter().position(|name| *name == map.pointer).unwrap();
            let [rows, columns] = shapes[view];
            let named = |number: &Number| match number {
                Number::Constant(value) => value.cast_unsigned(),
                Number::All => panic!("no matrix is one of many"),
                Number::Parameter(name) => (if name.ends_with("extent0") { rows } else { columns }) as u64,
            };
            let dims: Vec<u64> = map.extents.iter().map(named).collect();
            let (ty, bytes) = if view == 2 { (R::TYPE, size_of::<R>()) } else { (T::TYPE, size_of::<T>()) };
            let strides: Vec<u64> = map.strides[1..].iter().map(|s| bytes as u64 * named(s)).collect();
            let (address, spec) = (buffers[view].address(), &map.spec);
            let made = TensorMap::tiled(ty, address, &dims, &strides, spec.box_dims(), spec.swizzle());
            args.push(Arg::TensorMap(made.unwrap()));
        }
        args.extend(programs.map(Arg::U32));
        // One block for all; more blocks than programs; or some, whose warpgroups have different numbers of them.
        let blocks = [1, programs[0] + 1, programs[0].div_ceil(2)][seed as usize - 1];
        let mut launch = Launch::new(1, 384).shared(code.shared.dynamic);
        launch.grid = [blocks, 1, 1];
        let report = sim.launch(&ptx, &code.entry, &launch, &args).unwrap();
        assert!(report.findings.is_empty(), "{:#?}\n{}", report.findings, code.text);
        assert_eq!(sim.download::<R>(buffers[2]).unwrap(), expected, "seed {seed}");
    }
}

const SQUARE: [u32; 3] = [128, 128, 64];
const PLAIN: [bool; 2] = [false, false];

fn squares<T, R>(extents: [usize; 3], turned: [bool; 2])
where
    T: Stored + Float + Factor<T, f32>,
    R: Stored + Float + PartialEq + std::fmt::Debug,
{
    rounds::<T, R>(extents, extents[2].div_ceil(64) as u32, turned);
}

fn rounds<T, R>(extents: [usize; 3], steps: u32, turned: [bool; 2])
where
    T: Stored + Float + Factor<T, f32>,
    R: Stored + Float + PartialEq + std::fmt::Debug,
{
    let lowered = compiled(&product::stage::<T, R>(SQUARE, turned).unwrap());
    assert_eq!(slots(&lowered), Some(6));
    check::<T, R>(&lowered, &Case { extents, steps, tile: SQUARE, turned, counted: false }, false);
}

/// One program, an odd number of them, and an even one; edges everywhere.
#[test]
fn any_number_of_programs() {
    squares::<bf16, bf16>([128, 128, 192], PLAIN);
    squares::<bf16, bf16>([200, 264, 136], PLAIN);
    squares::<f16, f32>([384, 128, 64], PLAIN);
}

/// Rounds that end in the middle of the ring, at its end, after it and after twice as many slots; and none at all.
#[test]
fn any_number_of_rounds() {
    for steps in [0usize, 5, 6, 7, 12, 13] {
        rounds::<bf16, bf16>([384, 128, 64 * steps.max(1)], steps as u32, PLAIN);
    }
}

/// Factors by columns.
#[test]
fn factors_that_are_turned() {
    squares::<f16, f16>([256, 136, 128], [true, false]);
    squares::<bf16, f32>([136, 256, 128], [false, true]);
    squares::<bf16, bf16>([256, 128, 72], [true, true]);
}

/// What else one warpgroup has registers for.
#[test]
fn other_shapes() {
    for tile in [[64, 256, 64], [192, 64, 32], [128, 96, 64]] {
        let lowered = compiled(&product::stage::<bf16, f32>(tile, PLAIN).unwrap());
        assert!(slots(&lowered).is_some(), "{tile:?}");
        let [m, n, k] = tile;
        let extents = [2 * m as usize + 8, n as usize, 320];
        check::<bf16, f32>(
            &lowered,
            &Case { extents, steps: 320 / k, tile, turned: PLAIN, counted: false },
            false,
        );
    }
}

/// Both warpgroups have one program, and a warp of its own stores its results: of any number of rounds, and none.
#[test]
fn a_warp_stores() {
    for (tile, all_steps) in
        [([128, 256, 64], &[0, 1, 3, 4, 7][..]), ([256, 128, 64], &[3]), ([128, 192, 64], &[2])]
    {
        let lowered = compiled(&product::stage::<bf16, bf16>(tile, PLAIN).unwrap());
        assert_eq!(slots(&lowered), None, "{tile:?}");
        let says = |remark: &Remark| remark.message.starts_with("stored by a warp of its own");
        assert!(lowered.remarks.iter().any(says), "{tile:?}: {:#?}", lowered.remarks);
        for &steps in all_steps {
            let extents = [tile[0] as usize + 72, tile[1] as usize + 8, 64 * steps.max(1) as usize];
            let case = Case { extents, steps, tile, turned: PLAIN, counted: false };
            check::<bf16, bf16>(&lowered, &case, false);
        }
    }
}

/// Slots are counted through loops in loops, and from loop to loop.
#[test]
fn many_loops() {
    let lowered = compiled(&twice::stage().unwrap());
    assert!(slots(&lowered).is_some(), "{:#?}", lowered.remarks);
    for steps in [3, 8] {
        let extents = [320, 128, 64 * steps as usize];
        check::<bf16, f32>(
            &lowered,
            &Case { extents, steps, tile: [64, 128, 64], turned: PLAIN, counted: false },
            false,
        );
    }
}

/// As `product`, with something beside the sums.
#[kernel]
fn beside(
    a: View<bf16, 2>,
    b: View<bf16, 2>,
    c: View<f32, 2>,
    steps: Val<u32>,
    d: View<f32, 2>,
    tile: [u32; 3],
    what: u32,
) {
    let [m, n, k] = tile;
    let own = c.partition_grouped([m, n], 2);
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..steps {
        let left = a.tile([m, k]).at((own.start(0), step * k)).load();
        let right = b.tile([k, n]).at((step * k, own.start(1))).load();
        acc = if what == 1 { dot(left, right, acc * 0.5) } else { dot(left, right, acc) };
    }
    if what == 2 {
        acc += d.tile([m, n]).at((own.start(0), own.start(1))).load();
    }
    if what == 3 {
        acc += d.tile([1, n]).at((val(0u32), own.start(1))).load();
        acc = select(acc >= 0.0, acc * 2.0, acc - 1.0);
    }
    if what == 4 {
        acc = acc.cumsum(0);
    }
    own.store(acc);
}

/// A row is added to the sums, and more is computed with them.
#[test]
fn what_comes_after_the_sums() {
    let lowered = compiled(&beside::stage(SQUARE, 3).unwrap());
    let case = Case { extents: [264, 136, 200], steps: 4, tile: SQUARE, turned: PLAIN, counted: false };
    check::<bf16, f32>(&lowered, &case, true);
}

/// Who stays together: sums too many for one warpgroup or so few that blocks take turns, sums that do not stay, large tiles beside them, and
/// what goes through shared memory. A row that is added does not matter.
#[test]
fn programs_that_stay_together() {
    for (tile, what, apart) in [
        (SQUARE, 0, true),
        (SQUARE, 3, true),
        ([128, 256, 64], 0, false),
        ([128, 64, 64], 0, false),
        (SQUARE, 1, false),
        (SQUARE, 2, false),
        (SQUARE, 4, false),
    ] {
        let lowered = compiled(&beside::stage(tile, what).unwrap());
        assert_eq!(slots(&lowered).is_some(), apart, "{tile:?} {what}: {:#?}", lowered.remarks);
        assert!(lowered.resident.is_some());
    }
}

/// Every step counts as often as its number says: the left factor is made in registers.
#[kernel]
fn counted(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, steps: Val<u32>) {
    let [m, n, k] = SQUARE;
    let own = c.partition_grouped([m, n], 2);
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..steps {
        let left = a.tile([m, k]).at((own.start(0), step * k)).load();
        let right = b.tile([k, n]).at((step * k, own.start(1))).load();
        acc = dot((left.cast::<f32>() * step.cast::<f32>()).cast::<bf16>(), right, acc);
    }
    own.store(acc);
}

/// A loader that goes through a program from its end does so only if nobody can tell: here the factors would meet the wrong numbers.
#[test]
fn what_depends_on_the_step_comes_in_order() {
    let sums = compiled(&product::stage::<bf16, bf16>(SQUARE, PLAIN).unwrap());
    let counts = compiled(&counted::stage().unwrap());
    let turns_back = |lowered: &Lowered| lowered.func.to_string().matches("select").count();
    let case = Case { extents: [264, 136, 200], steps: 4, tile: SQUARE, turned: PLAIN, counted: false };
    check::<bf16, f32>(&counts, &Case { counted: true, ..case }, false);
    assert!(turns_back(&sums) > turns_back(&counts), "{}", sums.func);
}

/// Halves leave registers as matrices, other results element by element.
#[test]
fn how_results_leave() {
    let text = |kernel: &Kernel| compiled(kernel).func.to_string();
    let [halves, words] =
        [product::stage::<bf16, bf16>(SQUARE, PLAIN), product::stage::<bf16, f32>(SQUARE, PLAIN)];
    assert!(text(&halves.unwrap()).contains("stmatrix"));
    assert!(!text(&words.unwrap()).contains("stmatrix"));
}

/// A product that is stored some rows further up or down.
#[kernel]
fn shifted(a: View<bf16, 2>, b: View<bf16, 2>, c: View<bf16, 2>, steps: Val<u32>, by: Val<i32>, back: u32) {
    let [m, n, k] = SQUARE;
    let (row, column) = (program_id(0) * m, program_id(1) * n);
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..steps {
        let left = a.tile([m, k]).at((row, step * k)).load();
        let right = b.tile([k, n]).at((step * k, column)).load();
        acc = dot(left, right, acc);
    }
    let to = if back > 0 { row.bitcast::<i32>() - back.cast_signed() } else { row.bitcast::<i32>() + by };
    c.tile([m, n]).at((to, column)).store(acc.cast());
}

/// The copy engine must not start before a tensor: threads store what may.
#[test]
fn stores_that_may_start_before_their_tensor() {
    let by_engine = |kernel: &Kernel| compiled(kernel).func.to_string().contains("tma_store");
    assert!(by_engine(&product::stage::<bf16, bf16>(SQUARE, PLAIN).unwrap()));
    assert!(!by_engine(&shifted::stage(0).unwrap()));
    assert!(!by_engine(&shifted::stage(3).unwrap()));
}
