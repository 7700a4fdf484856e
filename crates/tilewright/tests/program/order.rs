//! What a program has stored it sees when it loads, however early the load begins.

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
