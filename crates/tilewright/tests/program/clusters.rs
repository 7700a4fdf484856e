//! Rows that several blocks share: what they send each other comes after what they had there before, and in loops after it was read.

use tilewright::lang::tile::prelude::*;

use super::{chips, everywhere};

/// Elements change places through shared memory, and then are reduced through the same.
#[kernel]
fn shuffled(x: View<i32, 2>, out: View<i32, 2>, columns: u32, way: u32) {
    let row = x.tile([1, columns]).at((program_id(0), 0)).load();
    let places = (Tile::<u32>::iota(1, [1, columns]) * 7 + 3) % columns;
    let row = match way {
        0 => row.take(places, 1),
        1 => row.flip(1),
        _ => {
            let (left, right) = row.halves(1);
            left.interleave(right)
        }
    };
    out.tile([1, columns]).at((program_id(0), 0)).store(row + row.min(1));
}

#[test]
fn shared_memory_is_used_again_in_order() {
    for columns in [8192u32, 20_000] {
        for way in 0..3 {
            let count = columns as usize;
            let data: Vec<i32> = (0..columns.cast_signed()).map(|i| i.wrapping_mul(77_777)).collect();
            let mut results = chips().into_iter().map(|device| {
                let (x, out) = (device.upload(&data).unwrap(), device.alloc::<i32>(count).unwrap());
                let program = device.program(&shuffled::stage(columns, way).unwrap()).unwrap();
                let report = program.launch(1, &[&x.view([1, count]), &out.view([1, count])]).unwrap();
                report.expect_clean().unwrap();
                out.to_vec().unwrap()
            });
            let expected = results.next().unwrap();
            assert!(results.all(|found| found == expected), "{columns} columns, way {way}");
        }
    }
}

/// A sum that goes through a loop and nowhere else: no barrier of the cluster stands between its rounds.
#[kernel]
fn sum_of_rows(x: View<f32, 2>, out: View<f32, 1>, columns: u32) {
    let mut sum = Tile::<f32>::zeros([1, 1]);
    for i in 0..x.extent(0) {
        sum += x.tile([1, columns]).at((i, 0)).load().sum(1);
    }
    out.tile([1]).at(0).store(sum.squeeze(1));
}

#[test]
fn loops_that_only_carry_a_sum_are_in_order() {
    for (rows, columns) in [(1, 8192), (3, 8192), (7, 16_384), (5, 65_536)] {
        everywhere(|device| {
            let kernel = sum_of_rows::stage(u32::try_from(columns).unwrap()).unwrap();
            let program = device.program(&kernel).unwrap();
            let x = device.upload(&vec![1.0f32; rows * columns]).unwrap();
            let out = device.alloc::<f32>(1).unwrap();
            program.launch(1, &[&x.view([rows, columns]), &out.view([1])]).unwrap().expect_clean().unwrap();
            assert_eq!(out.to_vec().unwrap(), [(rows * columns) as f32]);
        });
    }
}
