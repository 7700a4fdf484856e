//! Results of products that leave through the copy engine: only where they belong, and seen by whoever reads them again.

use tilewright::lang::tile::prelude::*;

use super::chips;

#[kernel]
fn product(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>) {
    let own = c.partition([64, 64]);
    own.store(of_rows(a, b, own.start(0), own.start(1)));
}

/// The product of 64 rows and 64 columns.
#[device]
fn of_rows(a: View<bf16, 2>, b: View<bf16, 2>, row: Val<i32>, column: Val<i32>) -> Tile<f32> {
    let mut sum = Tile::<f32>::zeros([64, 64]);
    for step in 0..a.extent(1).div_ceil(64) {
        let left = a.tile([64, 64]).at((row, step * 64)).load();
        sum = dot(left, b.tile([64, 64]).at((step * 64, column)).load(), sum);
    }
    sum
}

/// What lies between elements of the result, or behind its rows, stays as it is.
#[test]
fn nothing_is_stored_beside_the_view() {
    for (extents, strides) in [
        ([64, 64], [128, 2]),
        ([64, 49], [64, 1]),
        ([128, 49], [64, 1]),
        ([64, 97], [128, 1]),
        ([64, 100], [128, 1]),
    ] {
        for device in chips() {
            let [rows, columns] = extents;
            let program = device.program(&product::stage().unwrap()).unwrap();
            let ones = device.upload(&vec![bf16::ONE; 128 * 128]).unwrap();
            let mut expected = vec![7.0f32; 128 * 130];
            let c = device.upload(&expected).unwrap();
            let (a, b) = (ones.view([rows, 128]), ones.strided([128, columns], [128, 1]));
            program.run(&[&a, &b, &c.strided(extents, strides)]).unwrap().expect_clean().unwrap();
            for i in 0..rows {
                for j in 0..columns {
                    expected[i * strides[0] + j * strides[1]] = 128.0;
                }
            }
            assert!(c.to_vec().unwrap() == expected, "{extents:?} {strides:?} on {}", device.name());
        }
    }
}

/// Twice the result, read again in several ways.
#[kernel]
fn read_again(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, twice: View<f32, 2>, way: u32) {
    let own = c.partition([64, 64]);
    own.store(of_rows(a, b, own.start(0), own.start(1)));
    let (row, column) = (own.start(0), own.start(1));
    let again = match way {
        0 => own.load(),
        1 => c.slice(0, row, 64).tile([64, 64]).at((0, column)).load(),
        2 => c.row(row).tile([64]).at(column).load().unsqueeze(0).broadcast_to([64, 64]),
        _ => Tile::full([64, 64], c.load_scalar((row + 5, column + 3))),
    };
    twice.partition([64, 64]).store(again * 2.0);
}

#[test]
fn results_that_are_read_again_have_arrived() {
    for way in 0..4 {
        let mut results = chips().into_iter().map(|device| {
            let some = |by: usize| -> Vec<bf16> {
                (0..128 * 128).map(|i| bf16::from_f64((i % by) as f64 - 2.0)).collect()
            };
            let (a, b) = (device.upload(&some(5)).unwrap(), device.upload(&some(7)).unwrap());
            let [c, twice] = [(); 2].map(|()| device.upload(&vec![1e6f32; 128 * 64]).unwrap());
            let program = device.program(&read_again::stage(way).unwrap()).unwrap();
            let arguments = (a.view([128, 128]), b.view([128, 64]), c.view([128, 64]), twice.view([128, 64]));
            let (a, b, to, again) = arguments;
            program.run(&[&a, &b, &to, &again]).unwrap().expect_clean().unwrap();
            (c.to_vec().unwrap(), twice.to_vec().unwrap())
        });
        let expected = results.next().unwrap();
        assert!(results.all(|found| found == expected), "way {way}");
    }
}
