//! Guard clauses: kernels, functions and closures that return early, and loops that skip rounds.

use tilewright::device::DeviceKind;
use tilewright::lang::prelude as threads;
use tilewright::lang::tile::prelude::*;

use super::chips;

/// One for numbers above zero, minus one for those below, and zero and NaN themselves.
#[device]
fn sign(x: Val<f32>) -> Val<f32> {
    if x > 0.0 {
        return val(1.0f32);
    }
    if x < 0.0 {
        return val(-1.0f32);
    }
    x
}

/// Of the first `count` rows, the signs of sums over every other part of the columns.
#[kernel]
fn of_some(x: View<f32, 2>, out: View<f32, 2>, count: Val<u32>, width: u32) {
    let row = program_id(0);
    if row >= count {
        return;
    }
    let mut sum = Tile::<f32>::zeros([1, width]);
    for part in 0..x.extent(1).div_ceil(width) {
        if part % 2 == 1 {
            continue;
        }
        sum += x.tile([1, width]).block((row, part)).load();
    }
    if width > 8 {
        // Decided while staging.
        out.tile([1, width]).block((row, 0)).store(sum.map(|x| {
            if x == 3.0 {
                return val(7.0f32);
            }
            sign(x)
        }));
        return;
    }
    out.tile([1, width]).block((row, 0)).store(sum);
}

#[test]
fn rows_and_rounds_are_skipped() {
    for width in [8usize, 16] {
        let kernel = of_some::stage(u32::try_from(width).unwrap()).unwrap();
        let (rows, columns, count) = (5, 50, 3);
        let x: Vec<f32> = (0..rows * columns).map(|i| (i * 7 % 5) as f32 - 2.0).collect();
        let mut expected = vec![9.0f32; rows * width];
        for row in 0..count {
            for column in 0..width {
                let parts = (0..columns.div_ceil(width)).step_by(2).map(|part| part * width + column);
                let sum: f32 = parts.filter(|j| *j < columns).map(|j| x[row * columns + j]).sum();
                expected[row * width + column] = match sum {
                    _ if width <= 8 => sum,
                    3.0 => 7.0,
                    0.0 => 0.0,
                    _ => sum.signum(),
                };
            }
        }
        for device in chips() {
            let (from, out) =
                (device.upload(&x).unwrap(), device.upload(&vec![9.0f32; rows * width]).unwrap());
            let program = device.program(&kernel).unwrap();
            let (from, to) = (from.view([rows, columns]), out.view([rows, width]));
            let report = program.launch([5, 1, 1], &[&from, &to, &3u32]).unwrap();
            report.expect_clean().unwrap();
            assert_eq!(out.to_vec().unwrap(), expected, "{width} {:?}", device.kind());
        }
    }
}

/// Threads beyond the end leave; the others meet, and read what their neighbours wrote.
#[threads::kernel(threads = 128)]
fn turned(x: threads::Global<f32>, n: Val<u32>) {
    let i = threads::thread_id(0);
    if i >= n {
        return;
    }
    let tile = threads::Shared::<f32>::new("128:1");
    tile.at([i]).store(x.at(i).load());
    threads::barrier();
    x.at(i).store(tile.at([n - 1 - i]).load());
}

#[test]
fn threads_that_return_are_not_waited_for() {
    let kernel = turned::stage().unwrap();
    for device in chips().iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        for n in [128u16, 64, 40, 1] {
            let x = device.upload(&(0..128u16).map(f32::from).collect::<Vec<_>>()).unwrap();
            let kernel = device.compile(&kernel).unwrap();
            kernel.launch(1, &[&x, &u32::from(n)]).unwrap().expect_clean().unwrap();
            let expected = (0..128).map(|i| if i < n { n - 1 - i } else { i }).map(f32::from);
            assert_eq!(x.to_vec().unwrap(), expected.collect::<Vec<_>>());
        }
    }
}
