//! Kernels on tiles, launched with tensors on every device that there is: the CPU, the simulator, and the GPU of this machine if it has one.
//! What compares builds for several chips has the simulator alone. `TILEWRIGHT_REQUIRE_GPU=1` makes it a failure that there is no GPU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod atomics;
mod clusters;
mod gradients;
mod guards;
mod order;
mod pipelines;
mod products;
mod results;
mod sort;
mod take;
mod types;

use tilewright::compiler::Compiler;
use tilewright::device::{self, BufferView, Device, DeviceError, DeviceKind, Fact, Options, Report};
use tilewright::hardware::Arch;
use tilewright::lang::tile::prelude::*;

#[kernel]
fn softmax(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    let x = x.partition([1, columns]).load_or(f32::NEG_INFINITY);
    let e = (x - x.max(1)).exp();
    out.partition([1, columns]).store(e / e.sum(1));
}

#[kernel]
fn add(x: View<f32, 2>, y: View<f32, 2>, out: View<f32, 2>) {
    let [x, y] = [x, y].map(|view| view.partition([4, 32]).load());
    out.partition([4, 32]).store(x + y);
}

#[kernel]
fn matmul(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, m: u32, n: u32, k: u32) {
    let own = c.partition_grouped([m, n], 2);
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        let left = a.tile([m, k]).at((own.start(0), step * k)).load();
        acc = dot(left, b.tile([k, n]).at((step * k, own.start(1))).load(), acc);
    }
    own.store(acc);
}

/// Numbers between -2 and 2 that bf16 holds.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 11) % 33) as f32 / 8.0 - 2.0).collect()
}

fn near(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (i, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= tolerance * (1.0 + y.abs()), "element {i}: found {x}, expected {y}");
    }
}

/// What there is. A sanitizer of GPUs has nothing to look at in the simulator.
fn devices() -> Vec<Device> {
    let sanitized = std::env::var_os("TILEWRIGHT_SANITIZED").is_some();
    let looked_at = |device: &Device| !sanitized || device.kind() != DeviceKind::Simulator;
    device::available().into_iter().filter(looked_at).collect()
}

fn everywhere(work: impl Fn(&Device)) {
    devices().iter().for_each(work);
}

/// Every device, the CPU first, and the simulator of a chip without copy engine and `wgmma` besides.
fn chips() -> Vec<Device> {
    let mut chips = devices();
    if chips.iter().any(|device| device.kind() == DeviceKind::Simulator) {
        chips.push(Device::simulator_with(Options { chip: Some(Arch::SM_80), ..Options::default() }));
    }
    chips.sort_by_key(|device| device.kind() != DeviceKind::Cpu);
    chips
}

/// Whoever asks for a GPU does not want these tests to pass without.
#[test]
fn a_gpu_is_there_if_it_is_required() {
    let required = std::env::var_os("TILEWRIGHT_REQUIRE_GPU").is_some_and(|value| value == "1");
    let found = device::available().iter().any(|device| device.kind() == DeviceKind::Cuda);
    assert!(found || !required, "TILEWRIGHT_REQUIRE_GPU is 1, and no GPU was found");
}

#[test]
fn rows_of_any_length_and_stride() {
    everywhere(|device| {
        let program = device.program(&softmax::stage(64).unwrap()).unwrap();
        let stage = numbers(8 * 80, 3);
        let x = device.upload(&stage).unwrap();
        for (rows, columns, stride) in [(5, 64, 64), (5, 50, 50), (3, 1, 1), (8, 33, 80), (1, 64, 64)] {
            let out = device.upload(&[7.0f32; 8 * 80]).unwrap();
            let (from, to) =
                (x.strided([rows, columns], [stride, 1]), out.strided([rows, columns], [stride, 1]));
            program.run(&[&from, &to]).unwrap().expect_clean().unwrap();
            let mut expected = vec![7.0; 8 * 80];
            for row in 0..rows {
                let row = row * stride..row * stride + columns;
                let max = stage[row.clone()].iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let e: Vec<f32> = stage[row.clone()].iter().map(|x| (x - max).exp()).collect();
                let sum: f32 = e.iter().sum();
                expected[row].iter_mut().zip(&e).for_each(|(y, e)| *y = e / sum);
            }
            near(&out.to_vec().unwrap(), &expected, 1e-5);
        }
    });
}

#[test]
fn a_variant_for_each_set_of_facts() {
    let device = Device::simulator();
    let program = device.program(&softmax::stage(64).unwrap()).unwrap();
    let x = device.upload(&[1.0f32; 3 * 64 + 1]).unwrap();
    let out = device.alloc::<f32>(3 * 64 + 1).unwrap();
    let run = |columns: usize| program.run(&[&x.view([3, columns]), &out.view([3, columns])]).unwrap();
    let fact = |name: &str, variant: usize| {
        let variants = program.variants();
        variants[variant].facts().iter().find(|(of, _)| of == name).map(|&(_, fact)| fact)
    };
    run(48);
    run(60); // the same facts
    assert_eq!(program.variants().len(), 1);
    assert_eq!(fact("x", 0), Some(Fact::MultipleOf(16)));
    assert_eq!(fact("x_extent1", 0), Some(Fact::MultipleOf(4)));
    assert_eq!((fact("x_stride0", 0), fact("x_stride1", 0)), (Some(Fact::MultipleOf(4)), Some(Fact::Is(1))));
    run(50); // rows that are not aligned
    assert_eq!((fact("x_extent1", 1), fact("x_stride0", 1)), (None, None));
    run(64); // the width of the tile
    assert_eq!(fact("out_extent1", 2), Some(Fact::Is(64)));
    assert_eq!(program.variants().len(), 3);
    // A pointer that is not aligned.
    let shifted = x.slice(1..).unwrap();
    program.run(&[&shifted.view([3, 48]), &out.view([3, 48])]).unwrap();
    assert_eq!(fact("x", 3), None);
    assert!(program.variants()[3].to_string().starts_with("x_extent1 is a multiple of 4, "));

    // What is true is used: aligned rows are read 16 bytes at a time.
    let wide = program
        .variants()
        .iter()
        .map(|v| v.build().unwrap().code.text.contains("ld.global.v4"))
        .collect::<Vec<_>>();
    assert_eq!(wide, [true, false, true, false]);
    // A tile that is the whole row needs no look at where the row ends.
    let checks =
        |variant: usize| program.variants()[variant].build().unwrap().code.text.matches("setp.lt").count();
    assert_eq!((checks(0), checks(2)), (4, 2));

    // Extents that are compiled in make a variant each.
    let exact = program.exact("x", 1).unwrap();
    assert_eq!(exact.variants().len(), 0);
    for columns in [48, 60, 48] {
        exact.run(&[&x.view([3, columns]), &out.view([3, columns])]).unwrap();
    }
    assert_eq!(exact.variants().len(), 2);
    let error = program.exact("x", 2).unwrap_err().to_string();
    assert_eq!(
        error,
        "axis 2 of view `x` of kernel `softmax`: found no such axis, expected one of 0, 1 of `x`, 0, 1 of `out` (at most 8 in all)"
    );
}

#[test]
fn the_least_recently_used_variant_goes() {
    let device = Device::simulator();
    let program = device.program(&add::stage().unwrap()).unwrap().exact("x", 1).unwrap();
    let x = device.upload(&[1.0f32; 400]).unwrap();
    let out = device.alloc::<f32>(400).unwrap();
    let view = |columns| (x.view([1, columns]), out.view([1, columns]));
    let run = |columns| {
        let (x, out) = view(columns);
        program.run(&[&x, &x, &out]).unwrap();
    };
    (1..=32).for_each(run);
    let has = |columns| {
        let fact = ("x_extent1".to_owned(), Fact::Is(columns));
        program.variants().iter().any(|variant| variant.facts().contains(&fact))
    };
    assert_eq!(program.variants().len(), 32);
    run(1);
    run(100);
    assert_eq!(program.variants().len(), 32);
    assert!(has(1) && !has(2) && has(3) && has(100));
}

#[test]
fn products_of_transposed_views() {
    let (m, n, k) = (40usize, 24usize, 36usize);
    let (a, b) = (numbers(m * k, 1), numbers(n * k, 2));
    let narrow = |numbers: &[f32]| numbers.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let expected: Vec<f32> =
        (0..m * n).map(|at| (0..k).map(|i| a[at / n * k + i] * b[at % n * k + i]).sum()).collect();
    everywhere(|device| {
        let program = device.program(&matmul::stage(16, 16, 16).unwrap()).unwrap();
        let (a, b) = (device.upload(&narrow(&a)).unwrap(), device.upload(&narrow(&b)).unwrap());
        let c = device.upload(&vec![f32::NAN; m * n]).unwrap();
        // b is stored by columns.
        let (a, b, c_view) = (a.view([m, k]), b.view([n, k]).transpose(), c.view([m, n]));
        assert_eq!(program.grid_for(&[&a, &b, &c_view]).unwrap(), [3, 2, 1]);
        program.run(&[&a, &b, &c_view]).unwrap().expect_clean().unwrap();
        near(&c.to_vec().unwrap(), &expected, 1e-5);
    });
}

#[kernel]
fn large<T: Factor<T, C>, C: Number>(a: View<T, 2>, b: View<T, 2>, c: View<C, 2>) {
    let own = c.partition([64, 64]);
    let mut acc = Tile::<C>::zeros([64, 64]);
    for step in 0..a.extent(1).div_ceil(64) {
        let left = a.tile([64, 64]).at((own.start(0), step * 64)).load();
        acc = dot(left, b.tile([64, 64]).at((step * 64, own.start(1))).load(), acc);
    }
    own.store(acc);
}

#[test]
fn factors_through_tensor_maps() {
    let (m, n, k) = (100, 72, 136);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let narrow = |numbers: &[f32]| numbers.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let product = |k: usize| {
        let sum = |at: usize| (0..k).map(|i| a[at / n * 136 + i] * b[i * n + at % n]).sum::<f32>();
        (0..m * n).map(sum).collect::<Vec<f32>>()
    };
    everywhere(|device| {
        let program = device.program(&large::stage::<bf16, f32>().unwrap()).unwrap();
        let (a, b) = (device.upload(&narrow(&a)).unwrap(), device.upload(&narrow(&b)).unwrap());
        let c = device.upload(&vec![f32::NAN; m * n]).unwrap();
        // All of it by tensor maps, rows that do not begin at multiples of 16 bytes without, and nothing at all.
        for (depth, maps) in [(136, 3), (80, 3), (0, 0)] {
            let (a, b) = (a.strided([m, depth], [k, 1]), b.view([depth, n]));
            program.run(&[&a, &b, &c.view([m, n])]).unwrap().expect_clean().unwrap();
            near(&c.to_vec().unwrap(), &product(depth), 1e-5);
            let build = program.build_for(&[&a, &b, &c.view([m, n])]).unwrap();
            assert_eq!(build.maps().len(), maps, "{depth}");
        }
        let column = a.slice(1..).unwrap();
        let (a, b) = (column.strided([m - 1, 64], [k, 1]), b.view([64, n]));
        let to = c.slice(..(m - 1) * n).unwrap();
        let build = program.build_for(&[&a, &b, &to.view([m - 1, n])]).unwrap();
        assert!(build.maps().len() < 2);
    });
}

/// Sums in f16, in the accumulators of warpgroups and of warps, and on the CPU. Some are too large: they become infinite everywhere.
#[test]
fn sums_in_halves() {
    let (m, n, k) = (128, 72, 136);
    let narrow = |numbers: Vec<f32>| numbers.into_iter().map(f16::from_f32).collect::<Vec<_>>();
    let (mut a, mut b) = (narrow(numbers(m * k, 1)), narrow(numbers(k * n, 2)));
    a[..k].fill(f16::from_f32(1024.0));
    b.iter_mut().step_by(n).for_each(|first| *first = f16::from_f32(2.0));
    let exact = |at: usize| (0..k).map(|i| a[at / n * k + i].to_f64() * b[i * n + at % n].to_f64()).sum();
    let expected: Vec<f64> = (0..m * n).map(exact).collect();
    assert!(expected.iter().any(|sum: &f64| sum.abs() > 66_000.0));
    for device in chips() {
        let program = device.program(&large::stage::<f16, f16>().unwrap()).unwrap();
        let (a, b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        let c = device.upload(&vec![f16::NAN; m * n]).unwrap();
        let tensors: [&dyn tilewright::device::Argument; 3] =
            [&a.view([m, k]), &b.view([k, n]), &c.view([m, n])];
        program.run(&tensors).unwrap().expect_clean().unwrap();
        for (at, (found, expected)) in c.to_vec().unwrap().into_iter().zip(&expected).enumerate() {
            // Rounded as often as something is added, which is after 16 products at the earliest.
            let bound = 512.0 / 2048.0;
            let fits = match expected.abs() {
                66_000.0.. => found.is_infinite(),
                1024.0.. => true,
                _ => (found.to_f64() - expected).abs() <= bound,
            };
            assert!(fits, "{device:?}, element {at}: found {found}, expected {expected}");
        }
    }
}

#[test]
fn parts_of_one_buffer() {
    everywhere(|device| {
        let program = device.program(&add::stage().unwrap()).unwrap();
        let all = device.upload(&numbers(6 * 30, 5)).unwrap();
        let before = all.to_vec().unwrap();
        let whole = all.view([6, 30]);
        let columns = |from: usize| whole.slice(1, from..from + 10).unwrap();
        // The first ten columns and the next ten, into the last ten.
        program.run(&[&columns(0), &columns(10), &columns(20)]).unwrap().expect_clean().unwrap();
        let sum = |at: usize| before[at - 20] + before[at - 10];
        let expected: Vec<f32> = (0..180).map(|i| if i % 30 < 20 { before[i] } else { sum(i) }).collect();
        assert_eq!(all.to_vec().unwrap(), expected);
        // In place, and one row for all.
        let row = whole.slice(0, 0..1).unwrap().slice(1, 0..10).unwrap();
        let repeated = all.strided([6, 10], [0, 1]);
        assert_eq!(row.extents(), [1, 10]);
        program.run(&[&columns(10), &repeated, &columns(10)]).unwrap().expect_clean().unwrap();
        let expected: Vec<f32> = (0..180)
            .map(|i| expected[i] + if (10..20).contains(&(i % 30)) { before[i % 30 - 10] } else { 0.0 })
            .collect();
        assert_eq!(all.to_vec().unwrap(), expected);
    });
}

#[test]
fn nothing_to_do() {
    everywhere(|device| {
        let program = device.program(&add::stage().unwrap()).unwrap();
        let x = device.alloc_zeroed::<f32>(10).unwrap();
        program.run(&[&x.view([0, 10]), &x.view([0, 10]), &x.view([0, 10])]).unwrap().expect_clean().unwrap();
        let none = x.view([1, 10]).slice(0, 1..1).unwrap();
        program.launch(0, &[&none, &none, &none]).unwrap().expect_clean().unwrap();
    });
}

fn refused(outcome: Result<Report, DeviceError>, expected: &str) {
    assert_eq!(outcome.unwrap_err().to_string(), expected);
}

#[test]
fn arguments_are_checked() {
    everywhere(|device| {
        let program = device.program(&add::stage().unwrap()).unwrap();
        let x = device.upload(&[1.0f32; 100]).unwrap();
        let out = device.alloc::<f32>(100).unwrap();
        let (a, b) = (x.view([10, 10]), out.view([10, 10]));
        let argument = |number: usize, name: &str, found: &str, expected: &str| {
            format!(
                "argument {number} of kernel `add` (parameter `{name}`): found {found}, expected {expected}"
            )
        };
        let view = "a view of f32 in 2 dimensions, as in `buffer.view([rows, columns])`";
        refused(
            program.run(&[&a, &b]),
            &format!(
                "kernel `add` was given 2 arguments, expected 3: `x`, {view}; `y`, {view}; `out`, {view}"
            ),
        );
        refused(program.run(&[&x, &a, &b]), &argument(1, "x", "a buffer of f32", view));
        refused(program.run(&[&a, &1.0f32, &b]), &argument(2, "y", "a number of type f32", view));
        let doubles = device.alloc::<f64>(4).unwrap();
        refused(
            program.run(&[&a, &doubles.view([2, 2]), &b]),
            &argument(2, "y", "a view of f64 2x2 with strides [2, 1]", view),
        );
        refused(
            program.run(&[&a, &x.view([100]), &b]),
            &argument(2, "y", "a view of f32 100 with strides [1]", view),
        );
        refused(
            program.run(&[&a, &x.view([10, 11]), &b]),
            &argument(
                2,
                "y",
                "a view of f32 10x11 with strides [11, 1], which needs 110 elements of the buffer",
                "at most its 100; check extents and strides",
            ),
        );
        refused(
            program.run(&[&a, &x.strided([2, 2], [usize::MAX / 2, 1]), &b]),
            &argument(
                2,
                "y",
                "a view of f32 2x2 with strides [9223372036854775807, 1], which needs 9223372036854775809 elements of the buffer",
                "at most its 100; check extents and strides",
            ),
        );
        refused(
            program.run(&[&a, &x.strided([1, 2], [usize::MAX, 1]), &b]),
            &argument(2, "y", "a stride of 18446744073709551615 along axis 0", "less than 2^63"),
        );
        refused(
            program.run(&[&a, &x.strided([1 << 31, 1], [0, 1]), &b]),
            &argument(
                2,
                "y",
                "an extent of 2147483648 along axis 0",
                "less than 2^31; split the tensor, or view it in more dimensions",
            ),
        );
        let other = Device::cpu().upload(&[1.0f32; 100]).unwrap();
        refused(
            program.run(&[&a, &other.view([10, 10]), &b]),
            &argument(
                2,
                "y",
                "a view of f32 10x10 with strides [10, 1] of another device",
                "memory of the device that the program runs on; upload the data there",
            ),
        );
        // Shapes that do not go together.
        refused(
            program.run(&[&a, &x.view([5, 10]), &b]),
            "the grid of kernel `add`: found [3, 1, 1] tiles of `x` and [2, 1, 1] of `y`, expected as many of each view that the kernel partitions",
        );
        refused(
            program.launch((1, 65536), &[&a, &a, &b]),
            "the grid of kernel `add`: found [1, 65536, 1] programs, expected at most 2147483647 along the first axis and 65535 \
             along the others; take larger tiles, or the long axis first",
        );
    });
}

#[test]
fn overlaps_are_refused() {
    everywhere(|device| {
        let program = device.program(&add::stage().unwrap()).unwrap();
        let x = device.upload(&[1.0f32; 200]).unwrap();
        let out = device.alloc::<f32>(200).unwrap();
        let refuse = |first: &BufferView<'_, f32, 2>,
                      second: &BufferView<'_, f32, 2>,
                      names: &str,
                      found: &str| {
            refused(
                program.launch(1, &[first, &x.view([10, 10]), second]),
                &format!(
                    "arguments {names} of kernel `add` overlap in memory: found {found}, expected views that share no element, \
                     or for a kernel in place the very same view twice, once to read and once to write"
                ),
            );
        };
        let a = x.view([10, 10]);
        for strides in [[0, 1], [9, 1]] {
            refused(
                program.launch(1, &[&a, &a, &out.strided([10, 10], strides)]),
                &format!(
                    "argument 3 of kernel `add` (parameter `out`): found a view of f32 10x10 with strides {strides:?}, which has elements \
                     twice, expected each element once, since the kernel writes them; check strides"
                ),
            );
        }
        refuse(
            &out.slice(10..).unwrap().view([10, 10]),
            &out.view([10, 10]),
            "`out` and `x`",
            "f32 10x10 with strides [10, 1] from byte 0 on and f32 10x10 with strides [10, 1] from byte 40 on",
        );
        refuse(
            &out.view([10, 10]).transpose(),
            &out.view([10, 10]),
            "`out` and `x`",
            "f32 10x10 with strides [10, 1] from byte 0 on and f32 10x10 with strides [1, 10] from byte 0 on",
        );
    });
}

/// Copies the row `ahead` of the program's own to the one as far behind, along either axis.
#[kernel]
fn moved(x: View<f32, 2>, out: View<f32, 2>, ahead: Val<i32>, columns: bool) {
    let own = program_id(0).cast::<i32>();
    let at =
        |view: View<f32, 2>, index: Val<i32>| if columns { view.select(1, index) } else { view.row(index) };
    at(out, own - ahead).tile([8]).at(0).store(at(x, own + ahead).tile([8]).at(0).load_or(-1.0f32));
}

/// Rows and columns outside of a view are padded when they are loaded and dropped when they are stored, though there is memory.
#[test]
fn rows_outside_are_padded_and_dropped() {
    everywhere(|device| {
        let x: Vec<f32> = (0..64u8).map(f32::from).collect();
        let from = device.upload(&x).unwrap();
        for (columns, ahead) in [(false, 1i32), (false, -1), (false, 5), (true, 1), (true, -2), (true, 0)] {
            // Four rows, or columns, in the middle of others.
            let (to, axis) = (device.upload(&[-7.0f32; 64]).unwrap(), usize::from(columns));
            let [x_view, out] = [&from, &to].map(|buffer| buffer.view([8, 8]).slice(axis, 2..6).unwrap());
            let program = device.program(&moved::stage(columns).unwrap()).unwrap();
            program.launch(4, &[&x_view, &out, &ahead]).unwrap().expect_clean().unwrap();
            let mut expected = [-7.0f32; 64];
            for own in 0..4 {
                let inside = |line: i32| usize::try_from(line).ok().filter(|line| *line < 4);
                let place =
                    |line: usize, i: usize| if columns { i * 8 + line + 2 } else { (line + 2) * 8 + i };
                let Some(line) = inside(own - ahead) else { continue };
                for i in 0..8 {
                    expected[place(line, i)] = inside(own + ahead).map_or(-1.0, |line| x[place(line, i)]);
                }
            }
            assert_eq!(to.to_vec().unwrap(), expected, "{columns} {ahead} on {}", device.name());
        }
    });
}

/// Fetches one element for each program, and one of a row that may not be there.
#[kernel]
fn picked(x: View<f32, 2>, rows: View<i32, 1>, out: View<f32, 1>) {
    let row = rows.load_scalar(program_id(0));
    let both = x.load_scalar((row, 1)) + x.row(row).load_scalar(0) * 100.0f32;
    out.partition([1]).store(Tile::full([1], both));
}

#[test]
fn elements_outside_are_zero() {
    everywhere(|device| {
        let memory = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
        let x = memory.view([4, 2]).slice(0, 1..3).unwrap();
        // There is one more program than numbers of rows, though there is memory: it takes row 0.
        let rows = device.upload(&[-1i32, 0, 1, 2, i32::MIN, i32::MAX, 9]).unwrap();
        let out = device.alloc::<f32>(7).unwrap();
        let program = device.program(&picked::stage().unwrap()).unwrap();
        let rows = rows.view([7]).slice(0, ..6).unwrap();
        program.run(&[&x, &rows, &out.view([7])]).unwrap().expect_clean().unwrap();
        assert_eq!(out.to_vec().unwrap(), [0.0, 304.0, 506.0, 0.0, 0.0, 0.0, 304.0], "{}", device.name());
    });
}

/// Relies on what it is told.
#[kernel]
fn promising(x: View<f32, 2>, out: View<f32, 1>, n: Val<u32>) {
    let x = x.unit_stride(1).aligned(16).stride_multiple(0, 4).extent_multiple(1, 8);
    let row = x.row(program_id(0)).tile([64]).at(0).load();
    out.partition([1]).store(row.sum(0) + n.cast::<f32>());
}

#[test]
fn promises_are_kept() {
    everywhere(|device| {
        let program = device.program(&promising::stage().unwrap()).unwrap();
        let x = device.upload(&[1.0f32; 200]).unwrap();
        let out = device.alloc::<f32>(4).unwrap();
        let to = out.view([4]);
        program.run(&[&x.view([4, 40]), &to, &2u32]).unwrap().expect_clean().unwrap();
        assert_eq!(out.to_vec().unwrap(), [42.0; 4]);
        let argument = |found: &str, expected: &str| {
            format!("argument 1 of kernel `promising` (parameter `x`): found {found}, expected {expected}")
        };
        refused(
            program.run(&[&x.strided([4, 8], [16, 2]), &to, &2u32]),
            &argument(
                "a stride of 2 along axis 1",
                "a stride of 1, which the kernel relies on; copy the data to a dense buffer",
            ),
        );
        refused(
            program.run(&[&x.strided([4, 8], [10, 1]), &to, &2u32]),
            &argument("a stride of 10 along axis 0", "a multiple of 4, which the kernel relies on"),
        );
        refused(
            program.run(&[&x.view([4, 12]), &to, &2u32]),
            &argument("an extent of 12 along axis 1", "a multiple of 8, which the kernel relies on"),
        );
        let shifted = x.slice(1..).unwrap();
        let error = program.run(&[&shifted.view([4, 8]), &to, &2u32]).unwrap_err().to_string();
        assert!(error.contains("found memory at address 0x"), "{error}");
        assert!(error.ends_with(
            "expected a multiple of 16, which the kernel relies on; begin elsewhere in the buffer"
        ));
        refused(
            program.run(&[&x.view([4, 8]), &to, &2i32]),
            "argument 3 of kernel `promising` (parameter `n`): found a number of type i32, expected a number of type u32",
        );
    });
}

/// Writes where it was not told to be.
#[kernel]
fn stray(x: Global<f32>, n: Val<u32>) {
    View::new(x, [n], [1]).tile([16]).at(0).store(1f32);
}

#[kernel(threads = 32)]
fn for_threads(x: Global<f32>) {
    x.at(0).store(1f32);
}

#[test]
fn each_kind_of_kernel_has_its_door() {
    everywhere(|device| {
        let tiles = add::stage().unwrap();
        for error in [device.compile(&tiles).unwrap_err(), device.cached(&"add", add::stage).unwrap_err()] {
            assert_eq!(
                error.to_string(),
                "kernel `add` works on tiles: found `Device::compile` or `cached`, expected `Device::program` or `cached_program`"
            );
        }
        let error = device.program(&for_threads::stage().unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kernel `for_threads` has no tiles: found `Device::program` or `cached_program`, expected `Device::compile` or `cached`"
        );
        // A kernel for threads takes no views.
        let x = device.alloc::<f32>(1).unwrap();
        let kernel = device.compile(&for_threads::stage().unwrap()).unwrap();
        refused(
            kernel.launch(1, &[&x.view([1])]),
            "argument 1 of kernel `for_threads` (parameter `x`): found a view of f32 1 with strides [1], expected a buffer of f32",
        );
        // The one of the cache is the same with its variants.
        let program = device.cached_program(&"add", add::stage).unwrap();
        let y = device.alloc_zeroed::<f32>(10).unwrap();
        let again = device.cached_program(&"add", || panic!("is there already")).unwrap();
        again.run(&[&y.view([1, 10]), &y.view([1, 10]), &y.view([1, 10])]).unwrap();
        assert_eq!(program.variants().len(), again.variants().len());
        assert!(again.launch(1, &[]).is_err());
    });
}

#[test]
fn pointers_and_no_grid() {
    everywhere(|device| {
        let program = device.program(&stray::stage().unwrap()).unwrap();
        let x = device.alloc_zeroed::<f32>(8).unwrap();
        program.launch(1, &[&x, &8u32]).unwrap().expect_clean().unwrap();
        assert_eq!(x.to_vec().unwrap(), [1.0; 8]);
        refused(
            program.run(&[&x, &8u32]),
            "the grid of kernel `stray`: found no view with a partition, expected `View::partition` in the kernel, or the grid given with `launch`",
        );
        // Beyond the buffer: found out by all but a GPU, which would write there.
        if device.kind() == DeviceKind::Cuda {
            return;
        }
        let outcome = program.launch(1, &[&x, &16u32]).and_then(Report::expect_clean);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("program/main.rs:"), "{error}");
    });
}

#[test]
fn what_was_compiled_can_be_looked_at() {
    everywhere(|device| {
        let program = device.program(&softmax::stage(64).unwrap()).unwrap();
        let x = device.alloc_zeroed::<f32>(128).unwrap();
        let out = device.alloc::<f32>(128).unwrap();
        let variant = program.build_for(&[&x.view([2, 64]), &out.view([2, 64])]).unwrap();
        assert!(variant.threads().is_some_and(|threads| threads % 32 == 0));
        assert!(variant.build().unwrap().code.text.contains("st.global"));
        assert_eq!(program.variants().len(), 1);
    });
    let device = Device::simulator();
    let plain = Compiler::new(Arch::SM_80).optimise(false);
    let plain = device.program_with(&add::stage().unwrap(), plain).unwrap();
    let x = device.alloc_zeroed::<f32>(128).unwrap();
    let view = x.view([2, 64]);
    assert!(plain.build_for(&[&view, &view, &view]).unwrap().build().unwrap().report.timings.is_empty());
}

#[kernel]
fn deep(x: View<i32, 5>) {
    let own = x.partition([1, 2, 1, 2, 4]);
    let place = own.positions(0) * 10000 + own.positions(1) * 1000 + own.positions(2) * 100;
    own.store(place + own.positions(3) * 10 + own.positions(4));
}

#[test]
fn five_dimensions() {
    everywhere(|device| {
        let program = device.program(&deep::stage().unwrap()).unwrap();
        let extents = [2, 3, 2, 3, 5];
        let x = device.alloc_zeroed::<i32>(180).unwrap();
        assert_eq!(program.grid_for(&[&x.view(extents)]).unwrap(), [8, 2, 2]);
        program.run(&[&x.view(extents)]).unwrap().expect_clean().unwrap();
        let expected = (0..180).map(|i| {
            let digits = [i / 90, i / 30 % 3, i / 15 % 2, i / 5 % 3, i % 5];
            digits.iter().fold(0, |number, digit| number * 10 + digit)
        });
        assert_eq!(x.to_vec().unwrap(), expected.collect::<Vec<i32>>());
    });
}

#[kernel]
fn to_small<Q: Element>(x: View<f32, 1>, given: View<Q, 1>, folded: View<Q, 1>) {
    given.partition([8]).store(x.partition([8]).load().cast());
    folded.tile([1]).at(0).store(Tile::full([1], 70000f32).cast());
    folded.tile([1]).at(1).store(Tile::full([1], -1e30f32).cast());
    folded.tile([1]).at(2).store(Tile::full([1], f32::INFINITY).cast());
    folded.tile([1]).at(3).store(Tile::full([1], 100000i32).cast());
}

/// What is too large for 8 bits becomes the largest number, wherever it is computed.
#[test]
fn casts_to_eight_bits_clamp_on_every_device() {
    use tilewright::lang::{E4m3, E5m2};
    everywhere(|device| {
        let far = f32::INFINITY;
        let x = device.upload(&[1.0f32, 465.0, -70000.0, 1e30, far, -far, 448.0, 57344.0]).unwrap();
        let (a, b) = (device.alloc::<E4m3>(8).unwrap(), device.alloc::<E4m3>(4).unwrap());
        let program = device.program(&to_small::stage::<E4m3>().unwrap()).unwrap();
        program.run(&[&x.view([8]), &a.view([8]), &b.view([4])]).unwrap().expect_clean().unwrap();
        let bits = |x: &[E4m3]| x.iter().map(|x| x.0).collect::<Vec<_>>();
        assert_eq!(bits(&a.to_vec().unwrap()), [0x38, 0x7e, 0xfe, 0x7e, 0x7e, 0xfe, 0x7e, 0x7e]);
        assert_eq!(bits(&b.to_vec().unwrap()), [0x7e, 0xfe, 0x7e, 0x7e]);
        let (a, b) = (device.alloc::<E5m2>(8).unwrap(), device.alloc::<E5m2>(4).unwrap());
        let program = device.program(&to_small::stage::<E5m2>().unwrap()).unwrap();
        program.run(&[&x.view([8]), &a.view([8]), &b.view([4])]).unwrap().expect_clean().unwrap();
        let bits = |x: &[E5m2]| x.iter().map(|x| x.0).collect::<Vec<_>>();
        assert_eq!(bits(&a.to_vec().unwrap()), [0x3c, 0x5f, 0xfb, 0x7b, 0x7b, 0xfb, 0x5f, 0x7b]);
        assert_eq!(bits(&b.to_vec().unwrap()), [0x7b, 0xfb, 0x7b, 0x7b]);
    });
}

#[kernel]
fn convert<T: Element, U: Element>(x: View<T, 1>, out: View<U, 1>, round: Option<Round>) {
    let x = x.partition([8]).load();
    let converted = match round {
        Some(round) => x.cast_rounded(round),
        None => x.cast_saturating(),
    };
    out.partition([8]).store(converted);
}

/// Casts that clamp, casts to bool and casts with a rounding of their own.
#[test]
fn casts_are_the_same_on_every_device() {
    use tilewright::device::Item;
    use tilewright::lang::E4m3;
    fn cast<T: Item + Element, U: Item + Element>(device: &Device, x: &[T], how: Option<Round>) -> Vec<U> {
        let kernel = convert::stage::<T, U>(how).unwrap();
        let (x, out) = (device.upload(x).unwrap(), device.alloc::<U>(x.len()).unwrap());
        let views = (x.view([x.len()]), out.view([x.len()]));
        device.program(&kernel).unwrap().run(&[&views.0, &views.1]).unwrap().expect_clean().unwrap();
        out.to_vec().unwrap()
    }
    everywhere(|device| {
        let far = [1.5f32, 7e4, -1e38, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX, f32::NAN];
        // The largest finite number of the type, and NaN as it is.
        let halves: Vec<f32> = cast::<f32, f16>(device, &far, None).iter().map(|x| x.to_f32()).collect();
        assert_eq!(halves[..7], [1.5, 65504.0, -65504.0, 65504.0, -65504.0, 0.0, 65504.0]);
        let short = cast::<f32, bf16>(device, &far, None);
        let (low, high) = (bf16::MIN, bf16::MAX);
        assert_eq!(short[2..7], [bf16::from_f32(-1e38), high, low, bf16::NEG_ZERO, high]);
        let single: Vec<f32> = cast::<f64, f32>(device, &[1e300, -1e300, 0.25, f64::NAN], None);
        assert_eq!(single[..3], [f32::MAX, f32::MIN, 0.25]);
        assert!(halves[7].is_nan() && short[7].is_nan() && single[3].is_nan());
        assert_eq!(cast::<f32, f32>(device, &far[3..5], None), [f32::MAX, f32::MIN]);
        // Integers, also where there is nothing to clamp.
        assert_eq!(cast::<f32, i8>(device, &[300.0, -300.0, 3.9], None), [127, -128, 3]);
        assert_eq!(cast::<i32, u8>(device, &[300, -3, 200], None), [255, 0, 200]);
        assert_eq!(cast::<i8, i32>(device, &[-128, 127, 5], None), [-128, 127, 5]);
        assert_eq!(cast::<u8, i64>(device, &[255, 0], None), [255, 0]);
        assert_eq!(cast::<i8, u16>(device, &[-128, 127], None), [0, 127]);
        assert_eq!(cast::<u64, f16>(device, &[u64::MAX, 2], None), [f16::MAX, f16::from_f32(2.0)]);
        // Whatever is not zero is true.
        assert_eq!(
            cast::<f32, bool>(device, &[0.0, -0.0, f32::NAN, 1e-40], None),
            [false, false, true, true]
        );
        let small = [0.0, -0.0, 0.5, 3.75, -0.375].map(E4m3::from_f32);
        assert_eq!(cast::<E4m3, bool>(device, &small, None), [false, false, true, true, true]);
        // Small floats are rounded as they are told to, and what fits is not rounded.
        assert_eq!(cast::<E4m3, i8>(device, &small, Some(Round::Nearest)), [0, 0, 0, 4, 0]);
        assert_eq!(cast::<E4m3, i32>(device, &small, Some(Round::Up)), [0, 0, 1, 4, 0]);
        assert_eq!(cast::<E4m3, i64>(device, &small, Some(Round::Down)), [0, 0, 0, 3, -1]);
        assert_eq!(cast::<f32, f32>(device, &[0.75, 1e38], Some(Round::Zero)), [0.75, 1e38]);
        let odd = [(1i64 << 60) + 1, -(1 << 60) - 1];
        let near = 2f64.powi(60);
        assert_eq!(cast::<i64, f64>(device, &odd, Some(Round::Zero)), [near, -near]);
        assert_eq!(cast::<i64, f64>(device, &odd, Some(Round::Up)), [near.next_up(), -near]);
        assert_eq!(cast::<i64, f64>(device, &odd, Some(Round::Down)), [near, -near.next_up()]);
    });
}

#[kernel]
fn divide<T: Integer>(x: View<T, 1>, y: View<T, 1>, quotients: View<T, 1>, remainders: View<T, 1>) {
    let [x, y] = [x, y].map(|view| view.partition([4]).load());
    quotients.partition([4]).store(x / y);
    remainders.partition([4]).store(x % y);
}

/// All bits are set, as quotient and as remainder.
#[test]
fn integers_divided_by_zero_are_the_same_on_every_device() {
    fn of<T: tilewright::device::Item + Integer + std::fmt::Debug>(device: &Device, [x, one, ones]: [T; 3]) {
        let zero = T::ZERO;
        let (x, y) =
            (device.upload(&[x, zero, one, ones]).unwrap(), device.upload(&[zero, zero, one, zero]).unwrap());
        let (q, r) = (device.alloc::<T>(4).unwrap(), device.alloc::<T>(4).unwrap());
        let program = device.program(&divide::stage::<T>().unwrap()).unwrap();
        let [x, y, to, rest] = [&x, &y, &q, &r].map(|buffer| buffer.view([4]));
        program.run(&[&x, &y, &to, &rest]).unwrap().expect_clean().unwrap();
        assert_eq!(q.to_vec().unwrap(), [ones, ones, one, ones], "{device:?} {}", T::ELEMENT);
        assert_eq!(r.to_vec().unwrap(), [ones, ones, zero, ones], "{device:?} {}", T::ELEMENT);
    }
    everywhere(|device| {
        of(device, [5u8, 1, !0]);
        of(device, [5u16, 1, !0]);
        of(device, [5u32, 1, !0]);
        of(device, [5u64, 1, !0]);
        of(device, [-5i8, 1, -1]);
        of(device, [5i16, 1, -1]);
        of(device, [-5i32, 1, -1]);
        of(device, [5i64, 1, -1]);
    });
}

/// Several programs that own the same tile would write it at the same time.
#[test]
fn a_grid_that_is_not_that_of_the_partition_is_refused() {
    everywhere(|device| {
        let program = device.program(&add::stage().unwrap()).unwrap();
        let (x, out) = (device.upload(&[1.0f32; 10 * 40]).unwrap(), device.alloc::<f32>(10 * 40).unwrap());
        let (from, to) = (x.view([10, 40]), out.view([10, 40]));
        let arguments: [&dyn tilewright::device::Argument; 3] = [&from, &from, &to];
        program.launch([3, 2, 1], &arguments).unwrap().expect_clean().unwrap();
        assert_eq!(out.to_vec().unwrap(), [2.0; 400]);
        program.launch([0, 2, 1], &arguments).unwrap();
        for grid in [[3, 2, 2], [3, 1, 1], [4, 2, 1]] {
            let error = program.launch(grid, &arguments).unwrap_err().to_string();
            let expected = format!(
                "found {grid:?} programs, expected [3, 2, 1], one for each tile of [4, 32] of `out`, \
                 which the kernel partitions; `run` takes that grid by itself"
            );
            assert!(error.contains(&expected), "{error}");
        }
    });
}
