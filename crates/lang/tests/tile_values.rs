//! What kernels of the tile level compute, in the interpreter and, compiled, in the simulator, compared with plain Rust.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use tilewright_compiler::Compiler;
use tilewright_hardware::Arch;
use tilewright_ir::Constant;
use tilewright_lang::tile::prelude::*;
use tilewright_sim::{Arg, Launch, Module, Options, Sample, Simulator};
use tilewright_tile::interp::{self, Program};

/// What a kernel is given.
enum Given {
    Memory(Vec<u8>),
    Scalar(Arg, u64),
}

/// Memory that was passed: the number of its argument.
#[derive(Clone, Copy)]
struct Buffer(usize);

/// A kernel and its arguments.
struct Run {
    kernel: Kernel,
    arguments: Vec<Given>,
}

/// The arguments after a run.
struct After(Vec<Vec<u8>>);

impl After {
    fn read<T: Sample>(&self, Buffer(at): Buffer) -> Vec<T> {
        self.0[at].chunks(T::BYTES).map(T::read).collect()
    }
}

impl Run {
    fn new(staged: Result<Kernel, Error>) -> Run {
        Run { kernel: staged.unwrap_or_else(|error| panic!("{error}")), arguments: Vec::new() }
    }

    fn memory<T: Sample>(&mut self, data: &[T]) -> Buffer {
        let mut bytes = Vec::new();
        data.iter().for_each(|&value| value.write(&mut bytes));
        self.arguments.push(Given::Memory(bytes));
        Buffer(self.arguments.len() - 1)
    }

    /// Passes a tensor whose elements lie as the strides say.
    fn view<T: Sample>(&mut self, data: &[T], extents: &[u32], strides: &[i64]) -> Buffer {
        let buffer = self.memory(data);
        extents.iter().for_each(|&extent| self.scalar(Arg::U32(extent), extent.into()));
        strides.iter().for_each(|&stride| self.scalar(Arg::I64(stride), stride.cast_unsigned()));
        buffer
    }

    fn scalar(&mut self, argument: Arg, bits: u64) {
        self.arguments.push(Given::Scalar(argument, bits));
    }

    /// Runs the programs of a grid, by the meaning of the ops and as PTX, and checks what either leaves in memory.
    fn check(&self, programs: u32, check: impl Fn(&After)) {
        check(&self.interpreted(programs));
        check(&self.simulated(programs));
    }

    fn interpreted(&self, programs: u32) -> After {
        let memory = |given: &Given| match given {
            Given::Memory(bytes) => bytes.clone(),
            Given::Scalar(..) => Vec::new(),
        };
        let mut after: Vec<Vec<u8>> = self.arguments.iter().map(memory).collect();
        let mut arguments = Vec::new();
        for (given, bytes) in self.arguments.iter().zip(&mut after) {
            arguments.push(match given {
                &Given::Scalar(_, bits) => interp::Argument::Scalar(Constant(bits)),
                Given::Memory(_) => interp::Argument::Memory(bytes),
            });
        }
        Program::new(self.kernel.func()).unwrap().run([programs, 1, 1], &mut arguments).unwrap();
        drop(arguments);
        After(after)
    }

    /// Nothing may be found wrong.
    fn simulated(&self, programs: u32) -> After {
        let build = Compiler::new(Arch::SM_90A).compile(self.kernel.func()).unwrap();
        let module = Module::parse(&build.code.text).unwrap();
        let launch = build.func.launch;
        let cluster = launch.cluster.map_or(1, |cluster| cluster[0]);
        let shape = Launch::new(programs * cluster, launch.total_threads().unwrap());
        let shape = shape.shared(build.code.shared.dynamic);
        let mut simulator =
            Simulator::new(Options { seed: 3, chip: Some(Arch::SM_90A), ..Options::default() });
        let mut pass = |given: &Given| match given {
            Given::Memory(bytes) => Arg::Buffer(simulator.upload(bytes)),
            Given::Scalar(argument, _) => argument.clone(),
        };
        let arguments: Vec<Arg> = self.arguments.iter().map(&mut pass).collect();
        let report = simulator.launch(&module, &build.code.entry, &shape, &arguments).unwrap();
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        let memory = |argument: &Arg| match *argument {
            Arg::Buffer(buffer) => simulator.download(buffer).unwrap(),
            _ => Vec::new(),
        };
        After(arguments.iter().map(memory).collect())
    }
}

/// Numbers that are easy to tell apart, and exact in sums.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + 11) % 64) as f32 / 4.0 - 6.0).collect()
}

#[kernel]
fn softmax(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    let row = program_id(0);
    let x = x.tile([1, columns]).at((row, 0)).load_or(f32::NEG_INFINITY);
    let e = (x - x.max(1)).exp();
    out.tile([1, columns]).at((row, 0)).store(e / e.sum(1));
}

#[test]
fn softmax_of_rows_that_are_shorter_than_the_tile() {
    let (rows, columns, stride) = (5, 37, 41);
    let mut data = numbers(rows * stride);
    data[2 * stride + 3] = f32::NAN;
    let mut run = Run::new(softmax::stage(64));
    run.view(&data, &[rows as u32, columns as u32], &[stride as i64, 1]);
    let out = run.view(&vec![-1.0f32; rows * 64], &[rows as u32, columns as u32], &[64, 1]);
    run.check(rows as u32, |after| {
        let found = after.read::<f32>(out);
        for row in 0..rows {
            let x: Vec<f64> = data[row * stride..][..columns].iter().map(|&x| f64::from(x)).collect();
            let sum: f64 = x.iter().map(|x| x.exp()).sum();
            for (column, x) in x.iter().enumerate() {
                let (found, expected) = (f64::from(found[row * 64 + column]), x.exp() / sum);
                // A NaN anywhere makes its row NaN.
                assert!(
                    (found - expected).abs() <= 1e-6 * expected || row == 2 && found.is_nan(),
                    "{found} {expected}"
                );
            }
            // What is outside of the view is not written.
            assert!(found[row * 64 + columns..][..64 - columns].iter().all(|&x| x == -1.0));
        }
    });
}

#[kernel]
fn arithmetic(x: View<f32, 2>, row: View<f32, 1>, out: View<f32, 2>, s: Val<f32>) {
    let place = out.tile([4, 8]).at((0, 0));
    let x = x.tile([4, 8]).at((0, 0)).load();
    let row = row.tile([8]).at(0).load();
    let column = x.part(1, 2..3);
    let i = Tile::iota(0, [4, 1]);
    let mut y = 1.0 - x * row + s / (column + 20.0) - (s - row);
    y += select((i % 2 == 1) & (x > row), x.maximum(row).clamp(-1.0, 2.0), i.cast::<f32>());
    place.store(y);
}

#[test]
fn operators_compute_what_numpy_would() {
    let (x, row, s) = (numbers(32), numbers(8), 3.5);
    let mut run = Run::new(arithmetic::stage());
    run.view(&x, &[4, 8], &[8, 1]);
    run.view(&row, &[8], &[1]);
    let out = run.view(&[0f32; 32], &[4, 8], &[8, 1]);
    run.scalar(Arg::F32(s), s.to_bits().into());
    run.check(1, |after| {
        let found = after.read::<f32>(out);
        for i in 0..4 {
            for j in 0..8 {
                let (x, column, row) = (x[i * 8 + j], x[i * 8 + 2], row[j]);
                let chosen = if i % 2 == 1 && x > row { x.max(row).clamp(-1.0, 2.0) } else { i as f32 };
                let expected = 1.0 - x * row + s / (column + 20.0) - (s - row) + chosen;
                assert!((found[i * 8 + j] - expected).abs() < 1e-4, "{i} {j}");
            }
        }
    });
}

#[kernel]
fn extremes(x: View<f32, 2>, places: View<u32, 2>, values: View<f32, 2>) {
    let x = x.tile([8, 16]).at((0, 0)).load();
    let (largest, place) = x.max_with_place(1);
    places.tile([8, 1]).at((0, 0)).store(place);
    places.tile([8, 1]).at((0, 1)).store(x.argmin(1));
    values.tile([8, 1]).at((0, 0)).store(largest);
    values.tile([8, 1]).at((0, 1)).store(x.min(1));
}

#[test]
fn the_first_of_equals_wins_and_nan_before_all() {
    let mut x: Vec<f32> = (0..8 * 16).map(|i| ((i * 5) % 7) as f32).collect();
    x[3 * 16 + 9] = f32::NAN;
    x[3 * 16 + 11] = f32::NAN;
    x[5 * 16..6 * 16].fill(f32::NEG_INFINITY);
    let mut run = Run::new(extremes::stage());
    run.view(&x, &[8, 16], &[16, 1]);
    let places = run.view(&[9u32; 16], &[8, 2], &[2, 1]);
    let values = run.view(&[9f32; 16], &[8, 2], &[2, 1]);
    run.check(1, |after| {
        let (places, values) = (after.read::<u32>(places), after.read::<f32>(values));
        for row in 0..8 {
            let x = &x[row * 16..][..16];
            let found = (places[2 * row] as usize, places[2 * row + 1] as usize);
            if row == 3 {
                assert!(found == (9, 9) && values[2 * row].is_nan() && values[2 * row + 1].is_nan());
                continue;
            }
            let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let smallest = x.iter().copied().fold(f32::INFINITY, f32::min);
            let first = |value: f32| x.iter().position(|&x| x == value).unwrap();
            assert_eq!(found, (first(largest), first(smallest)), "row {row}");
            assert_eq!((values[2 * row], values[2 * row + 1]), (largest, smallest));
        }
    });
}

#[kernel]
fn extremes_of_doubles(x: View<f64, 2>, values: View<f64, 2>, clamped: View<f64, 2>) {
    let x = x.tile([8, 16]).at((0, 0)).load();
    values.tile([8, 1]).at((0, 0)).store(x.max(1));
    values.tile([8, 1]).at((0, 1)).store(x.min(1));
    clamped.tile([8, 16]).at((0, 0)).store(x.clamp(-1.0, 3.0));
}

/// There is no instruction for them that keeps NaN.
#[test]
fn extremes_of_doubles_are_nan_if_one_is() {
    let mut x: Vec<f64> = (0..8 * 16).map(|i| f64::from((i * 5) % 7) - 2.0).collect();
    x[3 * 16 + 9] = f64::NAN;
    let mut run = Run::new(extremes_of_doubles::stage());
    run.view(&x, &[8, 16], &[16, 1]);
    let values = run.view(&[9f64; 16], &[8, 2], &[2, 1]);
    let clamped = run.view(&[9f64; 128], &[8, 16], &[16, 1]);
    run.check(1, |after| {
        let (values, clamped) = (after.read::<f64>(values), after.read::<f64>(clamped));
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        for row in 0..8 {
            let expected = if row == 3 { [f64::NAN; 2] } else { [4.0, -2.0] };
            assert!(
                same(values[2 * row], expected[0]) && same(values[2 * row + 1], expected[1]),
                "row {row}"
            );
        }
        // `clamp` of a number keeps NaN.
        assert!(clamped.iter().zip(&x).all(|(&found, x)| same(found, x.clamp(-1.0, 3.0))));
    });
}

#[kernel]
fn lengths(x: View<f64, 2>, out: View<f64, 2>) {
    let x = x.tile([8, 16]).at((0, 0)).load();
    out.tile([8, 1]).at((0, 0)).store((x * x).sum(1).sqrt());
}

#[test]
fn roots_of_doubles_are_rounded_once() {
    let x: Vec<f64> = (0..8 * 16).map(|i| f64::from((i * 29) % 23) - 11.0).collect();
    let mut run = Run::new(lengths::stage());
    run.view(&x, &[8, 16], &[16, 1]);
    let out = run.view(&[9f64; 8], &[8, 1], &[1, 1]);
    // The sums are exact.
    let expected: Vec<f64> = x.chunks(16).map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt()).collect();
    run.check(1, |after| assert_eq!(after.read::<f64>(out), expected));
}

#[kernel]
fn running(x: View<i32, 2>, out: View<i32, 2>) {
    let x = x.tile([4, 32]).at((0, 0)).load();
    let store = |row: u32, tile: Tile<i32>| out.tile([4, 32]).block((row, 0)).store(tile);
    store(0, x.cumsum(1));
    store(1, x.cumsum_reverse(1));
    store(2, x.cummax(0));
    // Not commutative: the last that is not a multiple of three.
    store(3, x.scan(1, |before, x| select(x % 3 == 0, before, x)));
    store(4, x.scan_reverse(1, |after, x| select(x % 3 == 0, after, x)));
}

#[test]
fn scans_combine_in_order() {
    let x: Vec<i32> = (0..128).map(|i| (i * 29 + 3) % 17 - 5).collect();
    let mut run = Run::new(running::stage());
    run.view(&x, &[4, 32], &[32, 1]);
    let out = run.view(&[0i32; 5 * 128], &[20, 32], &[32, 1]);
    run.check(1, |after| {
        let found = after.read::<i32>(out);
        let last = |a: i32, b: i32| if b % 3 == 0 { a } else { b };
        for i in 0..4 {
            for j in 0..32 {
                let row = &x[i * 32..][..32];
                let expected = [
                    row[..=j].iter().sum(),
                    row[j..].iter().sum(),
                    (0..=i).map(|i| x[i * 32 + j]).max().unwrap(),
                    row[..=j].iter().copied().reduce(last).unwrap(),
                    row[j..].iter().rev().copied().reduce(last).unwrap(),
                ];
                let found: Vec<i32> = (0..5).map(|part| found[(part * 4 + i) * 32 + j]).collect();
                assert_eq!(found, expected, "{i} {j}");
            }
        }
    });
}

#[kernel]
fn rearranged(x: View<u32, 2>, out: View<u32, 2>) {
    let x = x.tile([4, 8]).at((0, 0)).load();
    let (even, odd) = x.reshape([4, 4, 2]).split();
    let (left, right) = x.halves(-1);
    out.tile([4, 8]).block((0, 0)).store(odd.join(even).reshape([4, 8]));
    out.tile([4, 8]).block((1, 0)).store(right.cat(left, 1));
    out.tile([8, 4]).block((1, 2)).store(x.transpose());
    out.tile([4, 8]).block((2, 0)).store(x.reshape([2, 2, 8]).permute([1, 0, 2]).reshape([4, 8]));
    out.tile([4, 8]).block((3, 0)).store(x.part(0, 1..2));
}

#[test]
fn shapes_keep_their_elements() {
    let x: Vec<u32> = (0..32).collect();
    let mut run = Run::new(rearranged::stage());
    run.view(&x, &[4, 8], &[8, 1]);
    let out = run.view(&[0u32; 16 * 12], &[16, 12], &[12, 1]);
    run.check(1, |after| {
        let found = after.read::<u32>(out);
        for i in 0..4u32 {
            for j in 0..8u32 {
                let at = |row: u32, column: u32| found[(row * 12 + column) as usize];
                let x = |i: u32, j: u32| i * 8 + j;
                assert_eq!(at(i, j), x(i, j ^ 1));
                assert_eq!(at(4 + i, j), x(i, (j + 4) % 8));
                assert_eq!(at(8 + j, 8 + i), x(i, j));
                assert_eq!(at(8 + i, j), x(i % 2 * 2 + i / 2, j));
                assert_eq!(at(12 + i, j), x(1, j));
            }
        }
    });
}

#[kernel]
fn parts(x: View<u32, 3>, out: View<u32, 2>, start: Val<i32>) {
    let m = x.row(1u32).transpose(); // 5x4
    out.tile([4, 4]).block((0, 0)).store(m.tile([4, 4]).at((start, -1)).load_or(99));
    out.tile([4, 4]).block((1, 0)).store(m.shift((3, 1)).tile([4, 4]).at((0, 0)).load_or(99));
    out.tile([4, 4]).block((2, 0)).store(m.slice(0, 1, 2u32).tile([4, 4]).at((0, 0)).load_or(99));
    out.tile([4, 4]).block((3, 0)).store(x.select(-1, 4).tile([4, 4]).at((0, 0)).load_or(99));
    out.store_scalar((16, 3), x.permute([2, 1, 0]).load_scalar((4, 3, 2)) * 1000);
    // Outside: dropped.
    out.tile([4, 4]).at((16, 4)).store(7);
    out.store_scalar((-1, 0), 7);
}

#[test]
fn views_of_views_know_their_ends() {
    let x: Vec<u32> = (0..60).collect();
    let at = |i: i32, j: i32, k: i32| {
        let inside = (0..3).contains(&i) && (0..4).contains(&j) && (0..5).contains(&k);
        if inside { (i * 20 + j * 5 + k) as u32 } else { 99 }
    };
    let mut run = Run::new(parts::stage());
    run.view(&x, &[3, 4, 5], &[20, 5, 1]);
    let out = run.view(&[0u32; 17 * 5], &[17, 4], &[5, 1]);
    run.scalar(Arg::I32(-2), (-2i64).cast_unsigned());
    run.check(1, |after| {
        let found = after.read::<u32>(out);
        for i in 0..4 {
            for j in 0..4 {
                let found = |block: i32| found[((block * 4 + i) * 5 + j) as usize];
                assert_eq!(found(0), at(1, j - 1, i - 2));
                assert_eq!(found(1), at(1, j + 1, i + 3));
                assert_eq!(found(2), if i < 2 { at(1, j, i + 1) } else { 99 });
                assert_eq!(found(3), at(i, j, 4));
            }
        }
        assert_eq!(found[16 * 5..], [0, 0, 0, 59_000, 0]);
        assert!(found.chunks(5).all(|row| row[4] == 0), "{found:?}");
    });
}

#[kernel]
fn scattered(table: View<f32, 2>, ids: View<i64, 1>, out: View<f32, 2>, counts: Global<u32>) {
    let id = ids.tile([8]).at(0).load_or(-1);
    out.tile([8, 4]).at((0, 0)).store(table.points((id.unsqueeze(1), arange(4))).load_or(-1.0));
    let known = (id >= 0) & (id < 6);
    let _ = counts.points(id).only(known).atomic_add(1);
    let marks = out.points((arange(8), 4));
    marks.only(known).store(id.cast::<f32>());
}

#[test]
fn what_is_not_in_the_table_is_padded_and_not_counted() {
    let (table, ids) = (numbers(24), [5i64, 0, -1, 6, 5, 5, 1 << 40, 2]);
    let mut run = Run::new(scattered::stage());
    run.view(&table, &[6, 4], &[4, 1]);
    run.view(&ids, &[8], &[1]);
    let out = run.view(&[0f32; 40], &[8, 5], &[5, 1]);
    let counts = run.memory(&[10u32; 6]);
    run.check(1, |after| {
        let found = after.read::<f32>(out);
        for (row, id) in found.chunks(5).zip(ids) {
            let expected = usize::try_from(id).ok().filter(|&id| id < 6);
            match expected {
                Some(id) => assert_eq!((&row[..4], row[4]), (&table[id * 4..][..4], id as f32)),
                None => assert_eq!(row, [-1.0, -1.0, -1.0, -1.0, 0.0]),
            }
        }
        assert_eq!(after.read::<u32>(counts), [11, 10, 11, 10, 10, 13]);
    });
}

#[kernel]
fn halved(x: View<f32, 1>, rounds: View<u32, 1>, flag: Val<u32>) {
    let place = x.tile([32]).block(program_id(0));
    let (mut x, mut n) = (place.load(), val(0u32));
    while x.max_all() > 1.0 {
        x *= 0.5;
        n += 1;
    }
    let steps = x.map(|x| if x > 0.5 { x.floor() } else { -x });
    place.store(if flag > 0 { steps } else { x });
    rounds.store_scalar(program_id(0), n);
}

#[test]
fn loops_and_branches_of_programs_and_of_elements() {
    for flag in [0, 1] {
        let data: Vec<f32> =
            numbers(64).into_iter().enumerate().map(|(i, x)| if i < 32 { x } else { x * 0.1 }).collect();
        let mut run = Run::new(halved::stage());
        let x = run.view(&data, &[64], &[1]);
        let rounds = run.view(&[0u32; 2], &[2], &[1]);
        run.scalar(Arg::U32(flag), flag.into());
        run.check(2, |after| {
            let found = after.read::<f32>(x);
            for (program, before) in data.chunks(32).enumerate() {
                let mut expected = before.to_vec();
                let mut n = 0;
                while expected.iter().copied().fold(f32::NEG_INFINITY, f32::max) > 1.0 {
                    expected.iter_mut().for_each(|x| *x *= 0.5);
                    n += 1;
                }
                if flag > 0 {
                    expected.iter_mut().for_each(|x| *x = if *x > 0.5 { x.floor() } else { -*x });
                }
                assert_eq!(found[program * 32..][..32], expected);
                assert_eq!(after.read::<u32>(rounds)[program], n);
            }
        });
    }
}

#[kernel]
fn drawn(out: View<f32, 2>, seed: Val<u64>) {
    let i = arange(64) + program_id(0) * 64u32;
    let [a, b, c, d] = uniform4(seed, i.cast::<u64>() << 32u32);
    let row = |n: u32, tile: Tile<f32>| out.tile([1, 64]).at((n, program_id(0) * 64u32)).store(tile);
    row(0, uniform(seed, i));
    row(1, a);
    row(2, b);
    row(3, c);
    row(4, d);
}

/// The generator as its paper writes it.
fn philox(counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    for _ in 0..10 {
        let (x, y) = (u64::from(c[0]) * 0xd251_1f53, u64::from(c[2]) * 0xcd9e_8d57);
        let (high_x, high_y) = ((x >> 32) as u32, (y >> 32) as u32);
        c = [high_y ^ c[1] ^ key[0], y as u32, high_x ^ c[3] ^ key[1], x as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

#[test]
fn random_numbers_depend_on_seed_and_position_only() {
    let seed = 0x0123_4567_89ab_cdef_u64;
    let mut run = Run::new(drawn::stage());
    let out = run.view(&[0f32; 5 * 128], &[5, 128], &[128, 1]);
    run.scalar(Arg::U64(seed), seed);
    run.check(2, |after| {
        let found = after.read::<f32>(out);
        let unit = |word: u32| (word >> 8) as f32 / 16_777_216.0;
        for i in 0..128u32 {
            let key = [seed as u32, (seed >> 32) as u32];
            let expected = philox([0, i, 0, 0], key).map(unit);
            assert_eq!(found[i as usize], unit(philox([i, 0, 0, 0], key)[0]));
            for (n, expected) in (1..).zip(expected) {
                assert_eq!(found[n * 128 + i as usize], expected);
            }
        }
    });
}

#[kernel]
fn matmul(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, m: u32, n: u32, k: u32) {
    let (rows, columns) = (c.tile([m, n]).blocks(0), c.tile([m, n]).blocks(1));
    let (i, j) = grouped_order(program_id(0), rows, columns, 2);
    let mut acc = Tile::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        acc = dot(a.tile([m, k]).block((i, step)).load(), b.tile([k, n]).block((step, j)).load(), acc);
    }
    c.tile([m, n]).block((i, j)).store(acc);
}

/// Products of as many matrices as there are heads, of a tensor in the order of attention: tokens, then heads.
#[kernel]
fn scores(q: View<bf16, 3>, k: View<bf16, 3>, c: View<f32, 3>, heads: u32, rows: u32, depth: u32) {
    let mut acc = Tile::zeros([heads, rows, rows]);
    for step in 0..q.extent(2).div_ceil(depth) {
        let q = q.permute([1, 0, 2]).tile([heads, rows, depth]).block((0, 0, step)).load();
        let k = k.permute([1, 0, 2]).tile([heads, rows, depth]).block((0, 0, step)).load();
        acc = dot(q, k.permute([0, 2, 1]), acc);
    }
    c.tile([heads, rows, rows]).at((0, 0, 0)).store(acc);
}

#[test]
fn products_of_many_matrices() {
    // More heads than warps, as many, and a number that warps cannot share; rows for tensor cores, and not.
    for (heads, rows, depth) in
        [(8usize, 16usize, 32usize), (4, 32, 48), (3, 48, 16), (2, 7, 16), (1, 16, 16), (5, 64, 16)]
    {
        let data = |n: usize| numbers(n).into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        let (tokens, width) = (rows - 2, depth * 2 - 3);
        let (q, k) = (data(tokens * heads * width), data(tokens * heads * width + 5)[5..].to_vec());
        let [h, r, d, t, w] = [heads, rows, depth, tokens, width].map(|n| u32::try_from(n).unwrap());
        let mut run = Run::new(scores::stage(h, r, d));
        for side in [&q, &k] {
            run.view(side, &[t, h, w], &[i64::from(h * w), w.into(), 1]);
        }
        let c = run.view(&vec![0f32; heads * tokens * tokens], &[h, t, t], &[i64::from(t * t), t.into(), 1]);
        run.check(1, |after| {
            for (at, found) in after.read::<f32>(c).into_iter().enumerate() {
                let (head, i, j) = (at / tokens / tokens, at / tokens % tokens, at % tokens);
                let of =
                    |side: &[bf16], token: usize, l: usize| side[(token * heads + head) * width + l].to_f32();
                let expected: f32 = (0..width).map(|l| of(&q, i, l) * of(&k, j, l)).sum();
                assert_eq!(found, expected, "{heads} heads, {head} {i} {j}");
            }
        });
    }
}

/// Matrices along several axes are matrices along one.
#[kernel]
fn squares(x: View<i8, 4>, y: View<i32, 4>) {
    let x = x.tile([2, 3, 16, 32]).at((0, 0, 0, 0)).load();
    y.tile([2, 3, 16, 16]).at((0, 0, 0, 0)).store(dot(
        x,
        x.permute([0, 1, 3, 2]),
        Tile::full([2, 3, 16, 16], 7),
    ));
}

#[test]
fn products_of_matrices_along_several_axes() {
    let x: Vec<i8> = (0..6 * 16 * 32).map(|i| i8::try_from(i * 37 % 255 - 127).unwrap()).collect();
    let mut run = Run::new(squares::stage());
    run.view(&x, &[2, 3, 16, 32], &[3 * 512, 512, 32, 1]);
    let y = run.view(&[0i32; 6 * 256], &[2, 3, 16, 16], &[3 * 256, 256, 16, 1]);
    run.check(1, |after| {
        for (at, found) in after.read::<i32>(y).into_iter().enumerate() {
            let (row, column) = (at / 16 * 32, at / 256 * 512 + at % 16 * 32);
            let expected: i32 = (0..32).map(|l| i32::from(x[row + l]) * i32::from(x[column + l])).sum();
            assert_eq!(found, expected + 7, "{at}");
        }
    });
}

/// Extents that no tile divides, b with its columns side by side.
#[test]
fn products_of_matrices_that_do_not_fit_into_tiles() {
    let (m, n, k) = (45usize, 23, 37);
    let data = |n: usize| numbers(n).into_iter().map(bf16::from_f32).collect::<Vec<_>>();
    let (a, b) = (data(m * k), data(k * n));
    let mut run = Run::new(matmul::stage(16, 16, 16));
    run.view(&a, &[m as u32, k as u32], &[k as i64, 1]);
    run.view(&b, &[k as u32, n as u32], &[1, k as i64]);
    let c = run.view(&vec![0f32; m * n], &[m as u32, n as u32], &[n as i64, 1]);
    run.check(6, |after| {
        for (at, found) in after.read::<f32>(c).into_iter().enumerate() {
            let (i, j) = (at / n, at % n);
            // Quarters with few digits: products and sums are exact.
            let expected: f32 = (0..k).map(|l| a[i * k + l].to_f32() * b[j * k + l].to_f32()).sum();
            assert_eq!(found, expected, "{i} {j}");
        }
    });
}
