//! Memory that programs change in one step: extremes of floats, exchanges, and what is replaced if it is as expected; and memory that they hand
//! to each other with it.

use tilewright::lang::tile::prelude::*;

use tilewright::device::Device;

use super::{chips, everywhere, near, numbers};

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
        everywhere(|device| {
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
    everywhere(|device| {
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

/// Rows are added to `groups` sums, one at a time: whoever has the lock of a sum reads, adds and writes.
#[kernel]
fn locked(x: View<f32, 2>, sums: View<f32, 2>, locks: View<i32, 1>, groups: u32, columns: u32) {
    let group = program_id(0) % groups;
    let x = x.tile([1, columns]).at((program_id(0), 0)).load();
    let lock = locks.points(group);
    while lock.atomic_cas(0, 1).item() != 0 {}
    fence(Order::AcqRel, Scope::Gpu);
    let own = sums.tile([1, columns]).at((group, 0));
    own.store(own.load() + x);
    fence(Order::AcqRel, Scope::Gpu);
    let _ = lock.atomic_exchange(0);
}

#[test]
fn who_has_the_lock_sees_what_those_before_did() {
    let (rows, columns, groups) = (13, 300, 3);
    let stage = numbers(rows * columns, 1);
    let mut expected = vec![0.0; groups * columns];
    for (i, x) in stage.iter().enumerate() {
        expected[i / columns % groups * columns + i % columns] += x;
    }
    everywhere(|device| {
        let program = device.program(&locked::stage(3, 512).unwrap()).unwrap();
        let x = device.upload(&stage).unwrap();
        let sums = device.upload(&vec![0.0f32; groups * columns]).unwrap();
        let locks = device.upload(&vec![0i32; groups]).unwrap();
        let views = (x.view([rows, columns]), sums.view([groups, columns]), locks.view([groups]));
        program.launch([13, 1, 1], &[&views.0, &views.1, &views.2]).unwrap().expect_clean().unwrap();
        near(&sums.to_vec().unwrap(), &expected, 1e-5);
    });
}

/// Each row plus all before it: a program waits for the one before. `before` and `sums` are the same memory, which the compiler does not know.
#[kernel]
fn chained(x: View<f32, 2>, before: View<f32, 2>, sums: View<f32, 2>, flags: View<u32, 1>, columns: u32) {
    let row = program_id(0).cast::<i32>();
    let x = x.tile([1, columns]).at((row, 0)).load();
    let scaled = x / x.abs().max(1);
    if row > 0 {
        while flags.points(row - 1).atomic_add(0).item() == 0 {}
    }
    fence(Order::AcqRel, Scope::Gpu);
    let last = before.tile([1, columns]).at((row - 1, 0)).load();
    sums.tile([1, columns]).at((row, 0)).store(scaled + last);
    fence(Order::AcqRel, Scope::Gpu);
    let _ = flags.points(row).atomic_exchange(1);
}

#[test]
fn nothing_is_loaded_before_the_fence_that_stands_before_it() {
    let (rows, columns) = (5, 4096);
    let stage = numbers(rows * columns, 1);
    let mut expected = stage.clone();
    for row in 0..rows {
        let own = row * columns..(row + 1) * columns;
        let most = stage[own.clone()].iter().fold(0.0f32, |most, x| most.max(x.abs()));
        for at in own {
            expected[at] = stage[at] / most + if row > 0 { expected[at - columns] } else { 0.0 };
        }
    }
    everywhere(|device| {
        let program = device.program(&chained::stage(4096).unwrap()).unwrap();
        let x = device.upload(&stage).unwrap();
        let sums = device.upload(&vec![0.0f32; rows * columns]).unwrap();
        let flags = device.upload(&vec![0u32; rows]).unwrap();
        let shape = [rows, columns];
        let views = (x.view(shape), sums.view(shape), flags.view([rows]));
        program.launch([5, 1, 1], &[&views.0, &views.1, &views.1, &views.2]).unwrap().expect_clean().unwrap();
        near(&sums.to_vec().unwrap(), &expected, 1e-5);
    });
}

/// A product whose sum over k is shared by programs; the last of those of a tile adds up what all of them have left.
#[kernel]
fn split_product(
    a: View<bf16, 2>,
    b: View<bf16, 2>,
    parts: View<f32, 3>,
    done: View<u32, 2>,
    c: View<f32, 2>,
    tile: [u32; 3],
) {
    let [m, n, k] = tile;
    let (i, j, split) = (program_id(0), program_id(1), program_id(2));
    let steps = a.extent(1).div_ceil(k).div_ceil(num_programs(2));
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in split * steps..(split + 1) * steps {
        acc = dot(a.tile([m, k]).block((i, step)).load(), b.tile([k, n]).block((step, j)).load(), acc);
    }
    parts.select(0, split).tile([m, n]).block((i, j)).store(acc);
    fence(Order::AcqRel, Scope::Gpu);
    if done.points((i, j)).atomic_add(1).item() == num_programs(2) - 1 {
        fence(Order::AcqRel, Scope::Gpu);
        let mut sum = Tile::<f32>::zeros([m, n]);
        for part in 0..num_programs(2) {
            sum += parts.select(0, part).tile([m, n]).block((i, j)).load();
        }
        c.tile([m, n]).block((i, j)).store(sum);
        // For the next launch.
        let _ = done.points((i, j)).atomic_exchange(0);
    }
}

#[test]
fn the_last_to_be_done_adds_up_what_all_have_left() {
    let (m, n, k, splits) = (100usize, 72usize, 264usize, 3usize);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let narrow = |numbers: &[f32]| numbers.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let sum = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum::<f32>();
    let expected: Vec<f32> = (0..m * n).map(sum).collect();
    for device in chips() {
        let program = device.program(&split_product::stage([64, 64, 32]).unwrap()).unwrap();
        let (a, b) = (device.upload(&narrow(&a)).unwrap(), device.upload(&narrow(&b)).unwrap());
        let (parts, c) = (device.alloc::<f32>(splits * m * n).unwrap(), device.alloc::<f32>(m * n).unwrap());
        let done = device.upload(&[0u32; 4]).unwrap();
        let (a, b, c_view) = (a.view([m, k]), b.view([k, n]), c.view([m, n]));
        let (parts, done) = (parts.view([splits, m, n]), done.view([2, 2]));
        for _ in 0..2 {
            c.fill(0.0).unwrap();
            program.launch([2, 2, 3], &[&a, &b, &parts, &done, &c_view]).unwrap().expect_clean().unwrap();
            near(&c.to_vec().unwrap(), &expected, 1e-5);
        }
    }
}

/// A product that is announced when it is there.
#[kernel]
fn announced(a: View<bf16, 2>, b: View<bf16, 2>, c: View<bf16, 2>, done: View<u32, 1>) {
    let own = c.partition([128, 128]);
    let mut acc = Tile::<f32>::zeros([128, 128]);
    for step in 0..a.extent(1).div_ceil(64) {
        let left = a.tile([128, 64]).at((own.start(0), step * 64)).load();
        acc = dot(left, b.tile([64, 128]).at((step * 64, own.start(1))).load(), acc);
    }
    own.store(acc.cast());
    fence(Order::AcqRel, Scope::Gpu);
    let _ = done.points(program_id(0)).atomic_add(1);
}

/// Results that leave through the copy engine are stored when nobody knows, and warps that load ahead do not come to a fence.
#[test]
fn what_is_announced_was_stored_by_those_who_announce_it() {
    let device = Device::simulator();
    let program = device.program(&announced::stage().unwrap()).unwrap();
    let a = device.upload(&vec![bf16::from_f32(0.5); 128 * 128]).unwrap();
    let c = device.alloc::<bf16>(128 * 128).unwrap();
    let done = device.upload(&[0u32]).unwrap();
    let (a, c_view) = (a.view([128, 128]), c.view([128, 128]));
    program.run(&[&a, &a, &c_view, &done.view([1])]).unwrap().expect_clean().unwrap();
    assert!(c.to_vec().unwrap().iter().all(|c| c.to_f32() == 32.0) && done.to_vec().unwrap() == [1]);
    let variants = program.variants();
    let text = &variants[0].build().unwrap().code.text;
    assert!(text.contains("st.global") && !text.contains("cp.async.bulk"));
    let why = "`fence` is for all threads, and those that load ahead do not come there";
    assert!(variants[0].remarks().iter().any(|remark| remark.to_string().contains(why)));
}
