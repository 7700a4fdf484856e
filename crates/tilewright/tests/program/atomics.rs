//! Memory that programs change in one step: extremes of floats, exchanges, and what is replaced if it is as expected.

use tilewright::lang::tile::prelude::*;

use super::both;

/// The largest and the smallest of every so many-th number, and whether they were below 1 before.
#[kernel]
fn extremes<T: Float>(x: View<T, 1>, most: View<T, 1>, least: View<T, 1>, seen: View<u32, 1>, classes: u32) {
    let place = x.tile([256]).block(program_id(0));
    let (numbers, position) = (place.load(), place.positions(0));
    let inside = position < x.extent(0).bitcast::<i32>();
    let class = position.bitcast::<u32>() % classes;
    let before = most.points(class).only(inside).atomic_max(numbers);
    let _ = least.points(class).only(inside).atomic_min(numbers);
    seen.tile([256]).block(program_id(0)).store((before.cast::<f32>() < 1.0f32).cast::<u32>());
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "small integers")]
fn extremes_of_floats_meet_in_memory() {
    fn check<T: Float + tilewright::device::Item + PartialOrd + std::fmt::Debug>(
        of: impl Fn(f64) -> T,
        number: impl Fn(T) -> f64,
    ) {
        let classes = 7;
        // Class 0 has negative numbers only, class 1 a NaN without and class 2 one with a sign, class 3 infinities, class 4 zeros of both signs.
        let value = |i: usize| match (i % classes, i / classes) {
            (0, k) => -1.0 - (k * 31 % 17) as f64,
            (1, 5) => f64::NAN,
            (2, 9) => -f64::NAN,
            (3, 3) => f64::INFINITY,
            (3, 8) => f64::NEG_INFINITY,
            (4, k) => {
                if k % 2 == 0 {
                    0.0
                } else {
                    -0.0
                }
            }
            (_, k) => (k * 29 % 23) as f64 - 11.0,
        };
        let numbers: Vec<T> = (0..600).map(|i| of(value(i))).collect();
        both(|device| {
            let program = device.program(&extremes::stage::<T>(7).unwrap()).unwrap();
            let x = device.upload(&numbers).unwrap();
            let most = device.upload(&vec![of(f64::NEG_INFINITY); classes]).unwrap();
            let least = device.upload(&vec![of(f64::INFINITY); classes]).unwrap();
            let seen = device.alloc::<u32>(600).unwrap();
            let views = (x.view([600]), most.view([classes]), least.view([classes]), seen.view([600]));
            program
                .launch([3, 1, 1], &[&views.0, &views.1, &views.2, &views.3])
                .unwrap()
                .expect_clean()
                .unwrap();
            for class in 0..classes {
                let all = (0..600).filter(|i| i % classes == class).map(value);
                let found = [number(most.to_vec().unwrap()[class]), number(least.to_vec().unwrap()[class])];
                if class == 1 || class == 2 {
                    assert!(found.iter().all(|x| x.is_nan()), "class {class}: {found:?}");
                    continue;
                }
                let expected = all
                    .fold([f64::NEG_INFINITY, f64::INFINITY], |[most, least], x| [most.max(x), least.min(x)]);
                assert_eq!(found, expected, "class {class}");
            }
            // Somebody came first to each class.
            let first = (0..classes)
                .all(|class| (0..600).any(|i| i % classes == class && seen.to_vec().unwrap()[i] == 1));
            assert!(first);
        });
    }
    check::<f32>(|x| x as f32, f64::from);
    check::<f64>(|x| x, |x| x);
}

/// Whoever comes first to a place takes it; all leave their number at another one, and keep what was there.
#[kernel]
fn claims(
    wanted: View<u32, 1>,
    owners: View<u32, 1>,
    left: View<f32, 1>,
    won: View<u32, 1>,
    kept: View<f32, 1>,
) {
    let tile = |view: View<u32, 1>| view.tile([128]).block(program_id(0));
    let me = program_id(0) * 128 + arange(128) + 1;
    let before = owners.points(tile(wanted).load()).atomic_cas(0, me);
    tile(won).store((before == 0).cast::<u32>());
    let old = left.points(0).only(arange(128) < 127).atomic_exchange(me.cast::<f32>());
    kept.tile([128]).block(program_id(0)).store(old);
}

#[test]
fn places_are_taken_once_and_what_is_exchanged_is_not_lost() {
    both(|device| {
        let program = device.program(&claims::stage().unwrap()).unwrap();
        let wanted: Vec<u32> = (0..512u32).map(|i| i * 7 % 40).collect();
        let wanted = device.upload(&wanted).unwrap();
        let owners = device.upload(&[0u32; 40]).unwrap();
        let left = device.upload(&[-5.0f32]).unwrap();
        let (won, kept) = (device.alloc::<u32>(512).unwrap(), device.alloc::<f32>(512).unwrap());
        let all = (wanted.view([512]), owners.view([40]), left.view([1]), won.view([512]), kept.view([512]));
        program.launch([4, 1, 1], &[&all.0, &all.1, &all.2, &all.3, &all.4]).unwrap().expect_clean().unwrap();
        let (wanted, owners, won) =
            (wanted.to_vec().unwrap(), owners.to_vec().unwrap(), won.to_vec().unwrap());
        for place in 0..40 {
            let winners: Vec<u32> =
                (0..512).filter(|&i| wanted[i as usize] == place && won[i as usize] == 1).collect();
            assert_eq!(winners.len(), 1, "place {place}: {winners:?}");
            assert_eq!(owners[place as usize], winners[0] + 1);
        }
        // All numbers but those of whoever was left out go from hand to hand; those keep their own.
        let mut found: Vec<f32> = kept.to_vec().unwrap();
        found.push(left.to_vec().unwrap()[0]);
        found.sort_by(f32::total_cmp);
        let expected: Vec<f32> = std::iter::once(-5.0).chain((1..=512u16).map(f32::from)).collect();
        assert_eq!(found, expected);
    });
}
