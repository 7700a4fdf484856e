//! Products one after the other, whose factors take turns in shared memory.

use tilewright::device::Item;
use tilewright::lang::tile::prelude::*;

use super::chips;

/// Four products without a loop: two that sum up 32, or 16, and two with twice as many.
#[kernel]
fn four<T: Factor<T, f32>>(a: View<T, 2>, b: View<T, 2>, c: View<f32, 2>, step: u32) {
    let own = c.partition([64, 64]);
    let mut sum = Tile::<f32>::zeros([64, 64]);
    for (depth, at) in [(step, 0), (step, step), (2 * step, 0), (2 * step, 2 * step)] {
        let left = a.tile([64, depth]).at((0, at)).load();
        sum = dot(left, b.tile([depth, 64]).at((at, 0)).load(), sum);
    }
    own.store(sum);
}

#[test]
fn factors_are_replaced_when_they_were_read() {
    fn check<T: Item + Factor<T, f32>>(step: u32, of: impl Fn(f32) -> T) {
        let number = |i: usize| ((i * 7 + i / 13) % 5) as f32 - 2.0;
        let numbers: Vec<T> = (0..64 * 128).map(|i| of(number(i))).collect();
        let depths = || [(0..2 * step), (0..4 * step)].into_iter().flatten().map(|k| k as usize);
        let sum =
            |i: usize| depths().map(|k| number(i / 64 * 128 + k) * number(k * 64 + i % 64)).sum::<f32>();
        let expected: Vec<f32> = (0..64 * 64).map(sum).collect();
        for device in chips() {
            let program = device.program(&four::stage::<T>(step).unwrap()).unwrap();
            let (a, b) = (device.upload(&numbers).unwrap(), device.upload(&numbers).unwrap());
            let c = device.upload(&vec![f32::NAN; 64 * 64]).unwrap();
            let (a, b, c_view) = (a.view([64, 128]), b.view([128, 64]), c.view([64, 64]));
            program.run(&[&a, &b, &c_view]).unwrap().expect_clean().unwrap();
            assert!(c.to_vec().unwrap() == expected, "{} {step} {device:?}", T::ELEMENT);
        }
    }
    for step in [16, 32] {
        check(step, bf16::from_f32);
        check(step, |x| x);
    }
}
