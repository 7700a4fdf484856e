//! Types where chips have no instruction for them: other instructions do it, or it is refused in words. And constants of any type as indices.

use tilewright::lang::tile::prelude::*;

use super::*;

/// Which elements of one type are less than a number, and which of another are themselves: all but NaN.
#[kernel]
fn compared(x: View<E4m3, 1>, y: View<E5m2, 1>, less: View<bool, 1>, same: View<bool, 1>, edge: Val<E4m3>) {
    less.tile([256]).at(0).store(x.tile([256]).at(0).load() < edge);
    let y = y.tile([256]).at(0).load();
    same.tile([256]).at(0).store(y == y);
}

#[test]
fn floats_of_8_bits_are_compared() {
    let bits: Vec<u8> = (0..=255).collect();
    let (x, y): (Vec<E4m3>, Vec<E5m2>) = bits.iter().map(|&bits| (E4m3(bits), E5m2(bits))).unzip();
    let edge = E4m3::from_f64(0.75);
    everywhere(|device| {
        let program = device.program(&compared::stage().unwrap()).unwrap();
        let (from, also) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
        let [less, same] = [(); 2].map(|()| device.alloc::<bool>(256).unwrap());
        let arguments: &[&dyn device::Argument] =
            &[&from.view([256]), &also.view([256]), &less.view([256]), &same.view([256]), &edge];
        program.launch(1, arguments).unwrap().expect_clean().unwrap();
        let expected: Vec<bool> = x.iter().map(|x| x.to_f32() < 0.75).collect();
        assert!(less.to_vec().unwrap() == expected, "{device:?}");
        let expected: Vec<bool> = y.iter().map(|y| !y.to_f32().is_nan()).collect();
        assert!(same.to_vec().unwrap() == expected, "{device:?}");
    });
}

#[kernel]
fn summed(x: View<bf16, 1>, sum: Global<bf16>) {
    sum.points(Tile::<i64>::zeros([64])).atomic_add(x.tile([64]).at(0).load());
}

#[test]
fn sums_of_bf16_in_memory_take_sm_90() {
    for device in chips() {
        let program = device.program(&summed::stage().unwrap()).unwrap();
        let (x, sum) = (device.upload(&[bf16::ONE; 64]).unwrap(), device.upload(&[bf16::ZERO]).unwrap());
        let outcome = program.launch(1, &[&x.view([64]), &sum]);
        match outcome {
            Ok(report) => {
                report.expect_clean().unwrap();
                assert_eq!(sum.to_vec().unwrap(), [bf16::from_f32(64.0)]);
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("bf16") && text.contains("takes sm_90; add f16 or f32"), "{text}");
                assert!(!device.name().contains("sm_90"), "{device:?}: {text}");
            }
        }
    }
}

/// A constant of 64 bits is an index as well.
#[kernel(threads = 1)]
fn before(x: Global<f32>, out: Global<f32>, by: u32) {
    out.store(x.at(4u64).at(-(i64::from(by))).load());
}

#[test]
fn constants_of_64_bits_are_indices() {
    let kernel = before::stage(3).unwrap();
    let device = Device::simulator();
    let kernel = device.compile(&kernel).unwrap();
    let (x, out) = (device.upload(&[0f32, 1.0, 2.0, 3.0, 4.0]).unwrap(), device.alloc::<f32>(1).unwrap());
    kernel.launch(1, &[&x, &out]).unwrap().expect_clean().unwrap();
    assert_eq!(out.to_vec().unwrap(), [1.0]);
}
