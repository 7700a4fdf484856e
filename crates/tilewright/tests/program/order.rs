//! What a program has stored it sees when it loads, however early the load begins; what it reads before it stores, in place, it reads as it was.

use tilewright::lang::tile::prelude::*;

use super::chips;

/// Stores a row, adds it up, and loads what other threads have stored of it. The load begins before the sum, if it can.
#[kernel]
fn stored_then_loaded(x: View<f32, 2>, y: View<f32, 2>, out: View<f32, 2>, columns: u32, ahead: u32) {
    let row = x.tile([1, columns]).at((program_id(0), 0)).load();
    y.tile([1, columns]).at((program_id(0), 0)).store(row * 2.0);
    let sum = row.sum(1);
    let again = y.tile([1, columns]).at((program_id(0), ahead)).load();
    out.partition([1, columns]).store(again + sum);
}

#[test]
fn loads_that_begin_early_begin_after_stores() {
    for (columns, ahead) in [(512u32, 0u32), (512, 4), (1024, 64), (16_384, 4)] {
        let (width, rows) = (columns as usize, 3);
        let data: Vec<f32> = (0..rows * width).map(|i| (i % 11) as f32 - 5.0).collect();
        let sum = |row: usize| data[row * width..][..width].iter().sum::<f32>();
        let element = |at: usize| {
            let (row, column) = (at / width, at % width + ahead as usize);
            sum(row) + if column < width { 2.0 * data[row * width + column] } else { 0.0 }
        };
        let expected: Vec<f32> = (0..rows * width).map(element).collect();
        for device in chips() {
            let program = device.program(&stored_then_loaded::stage(columns, ahead).unwrap()).unwrap();
            let x = device.upload(&data).unwrap();
            let [y, out] = [(); 2].map(|()| device.upload(&vec![f32::NAN; rows * width]).unwrap());
            let [x, to, result] = [&x, &y, &out].map(|buffer| buffer.view([rows, width]));
            program.run(&[&x, &to, &result]).unwrap().expect_clean().unwrap();
            assert!(out.to_vec().unwrap() == expected, "{columns} columns, {ahead} ahead, {device:?}");
        }
    }
}

/// Each row, and itself further on or turned: all of it is read before any is written.
#[kernel]
fn shifted(x: View<f32, 2>, y: View<f32, 2>, rows: u32, columns: u32, way: u32) {
    let first = program_id(0) * rows;
    let own = x.tile([rows, columns]).at((first, 0)).load();
    let other = match way {
        0 => x.tile([rows, columns]).at((first, 33)).load(),
        1 => x.tile([rows, columns]).at((first + 1, 0)).load(),
        2 => x.transpose().tile([rows, columns]).at((first, 0)).load(),
        _ => x.tile([rows, columns]).at((first, 0)).load(),
    };
    y.tile([rows, columns]).at((first, 0)).store(own + other * 4.0);
}

#[test]
fn what_is_replaced_was_read_before() {
    // A program of one row of 512, of a square.
    for (rows, columns, ways) in [(1usize, 512usize, [0, 3]), (64, 64, [1, 2]), (64, 64, [3, 0])] {
        for way in ways {
            let data: Vec<f32> = (0..rows * columns).map(|i| (i % 13) as f32 - 6.0).collect();
            let at = |row: usize, column: usize| {
                if row < rows && column < columns { data[row * columns + column] } else { 0.0 }
            };
            let element = |i: usize| {
                let (row, column) = (i / columns, i % columns);
                let other = match way {
                    0 => at(row, column + 33),
                    1 => at(row + 1, column),
                    2 => at(column, row),
                    _ => at(row, column),
                };
                at(row, column) + 4.0 * other
            };
            let expected: Vec<f32> = (0..rows * columns).map(element).collect();
            for device in chips() {
                let (height, width) = (u32::try_from(rows).unwrap(), u32::try_from(columns).unwrap());
                let program = device.program(&shifted::stage(height, width, way).unwrap()).unwrap();
                let x = device.upload(&data).unwrap();
                let view = x.view([rows, columns]);
                program.launch(1, &[&view, &view]).unwrap().expect_clean().unwrap();
                assert!(x.to_vec().unwrap() == expected, "{rows} x {columns}, way {way}, {device:?}");
            }
        }
    }
}

/// A vector in place, whose results go elsewhere: by a number, or because the view it is read through begins elsewhere.
#[kernel]
fn moved(x: View<f32, 1>, from: Val<u32>, y: View<f32, 1>, to: Val<u32>, size: u32, way: u32) {
    let read = match way {
        0 => x.tile([size]).at(0),
        1 => x.tile([size]).at(from),
        2 => x.shift(from).tile([size]).at(0),
        _ => x.slice(0, from, size).tile([size]).at(0),
    };
    y.tile([size]).at(to).store(read.load() + 1.0);
}

#[test]
fn what_goes_elsewhere_was_read_before() {
    // `from` and `to` are as far behind their views as each other.
    for (size, way, from, to) in
        [(4096u32, 0u32, 0u32, 1000u32), (256, 1, 0, 60), (256, 1, 200, 0), (256, 2, 7, 0), (256, 3, 7, 0)]
    {
        let data: Vec<f32> = (0..6000).map(|i| i as f32).collect();
        let mut expected = data.clone();
        for i in 0..size as usize {
            expected[i + to as usize] = data[i + from as usize] + 1.0;
        }
        for device in chips() {
            let program = device.program(&moved::stage(size, way).unwrap()).unwrap();
            let x = device.upload(&data).unwrap();
            program
                .launch(1, &[&x.view([6000]), &from, &x.view([6000]), &to])
                .unwrap()
                .expect_clean()
                .unwrap();
            assert!(x.to_vec().unwrap() == expected, "{size}, way {way}, from {from} to {to}, {device:?}");
        }
    }
}

/// A square and itself, turned: its program's own is that of the only one.
#[kernel]
fn symmetric(x: View<f32, 2>, y: View<f32, 2>, n: u32) {
    let [own, turned] = [x, x.transpose()].map(|x| x.tile([n, n]).at((0, 0)).load());
    y.partition([n, n]).store(own + turned);
}

#[test]
fn what_is_turned_in_place_was_read_before() {
    for n in [16usize, 64] {
        let data: Vec<f32> = (0..n * n).map(|i| (i % 37) as f32).collect();
        let expected: Vec<f32> = (0..n * n).map(|i| data[i] + data[i % n * n + i / n]).collect();
        for device in chips() {
            let x = device.upload(&data).unwrap();
            let program = device.program(&symmetric::stage(u32::try_from(n).unwrap()).unwrap()).unwrap();
            program.run(&[&x.view([n, n]), &x.view([n, n])]).unwrap().expect_clean().unwrap();
            assert!(x.to_vec().unwrap() == expected, "{n}, {device:?}");
        }
    }
}

/// What a loop of either kind adds up goes elsewhere. The numbers have names as parts of views have.
#[kernel]
fn gathered(
    x: View<f32, 1>,
    y: View<f32, 1>,
    x_extent1: Val<u32>,
    y_extent1: Val<u32>,
    rounds: Val<u32>,
    size: u32,
    way: u32,
) {
    let mut sum = Tile::<f32>::zeros([size]);
    match way {
        0 => {
            let mut i = val(0u32);
            while i < rounds {
                sum += x.tile([size]).at(x_extent1 + i).load();
                i += 1u32;
            }
        }
        1 => sum = x.tile([size]).at(x_extent1).load(),
        _ => {
            for i in 0..rounds {
                sum += x.tile([size]).at(x_extent1 + i).load();
            }
        }
    }
    y.tile([size]).at(y_extent1).store(sum);
}

#[test]
fn what_loops_add_up_was_read_before() {
    let data: Vec<f32> = (0..3000).map(|i| (i % 101) as f32).collect();
    for (size, way, rounds, to) in
        [(1024usize, 0, 1u32, 100u32), (64, 0, 3, 1), (1024, 1, 1, 100), (1024, 2, 2, 100), (256, 0, 0, 5)]
    {
        let mut expected = data.clone();
        for i in 0..size {
            expected[i + to as usize] = (0..rounds as usize).map(|round| data[i + round]).sum();
        }
        for device in chips() {
            let program =
                device.program(&gathered::stage(u32::try_from(size).unwrap(), way).unwrap()).unwrap();
            let x = device.upload(&data).unwrap();
            let view = x.view([3000]);
            program.launch(1, &[&view, &view, &0u32, &to, &rounds]).unwrap().expect_clean().unwrap();
            assert!(x.to_vec().unwrap() == expected, "{size}, way {way}, {rounds} rounds, {device:?}");
        }
    }
}
