//! Tiles in order along an axis, against the standard library.

use std::cmp::Ordering;

use tilewright::compiler::Compiler;
use tilewright::device::Item;
use tilewright::hardware::Arch;
use tilewright::lang::tile::prelude::*;

use super::everywhere;

#[kernel]
fn sorted<T: Sorted>(x: View<T, 3>, up: View<T, 3>, down: View<T, 3>, shape: [u32; 3], axis: i32) {
    let at = |view: View<T, 3>| view.tile(shape).at((0, 0, 0));
    let x = at(x).load();
    at(up).store(x.sort(axis));
    at(down).store(x.sort_descending(axis));
}

#[kernel]
fn placed<T: Sorted<Key = u32>>(
    x: View<T, 3>,
    up: View<T, 3>,
    places: View<u32, 3>,
    best: View<T, 3>,
    first: View<u32, 3>,
    shape: [u32; 3],
    axis: i32,
    k: u32,
) {
    let x = x.tile(shape).at((0, 0, 0)).load();
    let (values, from) = x.sort_with_places(axis);
    up.tile(shape).at((0, 0, 0)).store(values);
    places.tile(shape).at((0, 0, 0)).store(from);
    let (values, from) = x.top_k(k, axis);
    let some = values.shape();
    let some = [some.extents()[0], some.extents()[1], some.extents()[2]];
    best.tile(some).at((0, 0, 0)).store(values);
    first.tile(some).at((0, 0, 0)).store(from);
}

/// Lines of a tensor along an axis, each with the places of its elements.
fn lines(shape: [usize; 3], axis: usize) -> Vec<Vec<usize>> {
    let stride = shape[axis + 1..].iter().product::<usize>();
    let starts = (0..shape.iter().product()).filter(|at| at / stride % shape[axis] == 0);
    starts.map(|start| (0..shape[axis]).map(|i| start + i * stride).collect()).collect()
}

const SHAPES: [([usize; 3], usize); 8] = [
    ([1, 1, 128], 2),
    ([1, 3, 33], 2),
    ([2, 16, 5], 1),
    ([7, 2, 3], 0),
    ([1, 1, 1], 1),
    ([4, 1, 2], 2),
    ([1, 2, 300], 2),
    ([1, 64, 32], 1),
];

/// Sorts tensors of these elements, in some order, and compares with `order`, which says which of two comes first.
fn check<T: Item + Sorted + PartialEq + std::fmt::Debug>(
    elements: impl Fn(usize) -> T,
    order: impl Fn(&T, &T) -> Ordering,
) {
    everywhere(|device| {
        for (shape, axis) in SHAPES {
            let count = shape.iter().product::<usize>();
            let data: Vec<T> = (0..count).map(&elements).collect();
            let x = device.upload(&data).unwrap();
            let [up, down] = [(); 2].map(|()| device.upload(&data).unwrap());
            let extents = shape.map(|extent| u32::try_from(extent).unwrap());
            let program =
                device.program(&sorted::stage::<T>(extents, i32::try_from(axis).unwrap()).unwrap()).unwrap();
            let views = [&x.view(shape), &up.view(shape), &down.view(shape)];
            program.launch(1, &views.map(|view| view as _)).unwrap().expect_clean().unwrap();
            let (up, down) = (up.to_vec().unwrap(), down.to_vec().unwrap());
            for line in lines(shape, axis) {
                let mut expected: Vec<T> = line.iter().map(|&at| data[at]).collect();
                expected.sort_by(&order);
                let same = |found: &[T], (i, at): (usize, &usize)| {
                    order(&found[*at], &expected[i]) == Ordering::Equal
                };
                assert!(line.iter().enumerate().all(|each| same(&up, each)), "{shape:?}: {up:?}");
                let back = line.iter().rev().enumerate();
                assert!(back.into_iter().all(|each| same(&down, each)), "{shape:?}: {down:?}");
            }
        }
    });
}

/// A permutation of many numbers, some of them twice.
fn mixed(i: usize) -> i64 {
    i64::try_from(i * 7919 % 211).unwrap() - 100
}

#[test]
fn integers_in_order() {
    check(|i| i8::try_from(mixed(i)).unwrap(), Ord::cmp);
    check(|i| u16::try_from(mixed(i) + 65_424).unwrap(), Ord::cmp);
    check(|i| i32::try_from(mixed(i)).unwrap() * 19_000_000, Ord::cmp);
    check(|i| u64::MAX / 256 * u64::try_from(mixed(i) + 101).unwrap(), Ord::cmp);
    check(|i| i64::MAX / 110 * mixed(i).clamp(-105, 105), Ord::cmp);
}

/// Infinities, zeros of both signs, and NaN of both.
fn special(i: usize) -> f32 {
    match i % 23 {
        3 => f32::INFINITY,
        5 => f32::NEG_INFINITY,
        8 => 0.0,
        13 => -0.0,
        17 if i.is_multiple_of(2) => f32::NAN,
        17 => -f32::NAN,
        _ => f32::from(i16::try_from(mixed(i)).unwrap()) / 8.0,
    }
}

/// The order of all numbers, and all NaN behind.
fn total(a: f64, b: f64) -> Ordering {
    a.is_nan().cmp(&b.is_nan()).then_with(|| if a.is_nan() { Ordering::Equal } else { a.total_cmp(&b) })
}

#[test]
fn floats_in_order() {
    check(|i| f64::from(special(i)), |a, b| total(*a, *b));
    check(special, |a, b| total(f64::from(*a), f64::from(*b)));
    check(|i| f16::from_f32(special(i)), |a, b| total(a.to_f64(), b.to_f64()));
    check(|i| bf16::from_f32(special(i)), |a, b| total(a.to_f64(), b.to_f64()));
}

/// With places, and the largest ones: equal elements in their order.
#[test]
fn places_of_what_is_in_order() {
    everywhere(|device| {
        for (shape, axis) in SHAPES {
            let k = shape[axis].min(3);
            let count = shape.iter().product::<usize>();
            let data: Vec<f32> = (0..count).map(|i| special(i * 3 / 2)).collect();
            let x = device.upload(&data).unwrap();
            let (up, places) = (device.alloc::<f32>(count).unwrap(), device.alloc::<u32>(count).unwrap());
            let some: [usize; 3] = std::array::from_fn(|i| if i == axis { k } else { shape[i] });
            let few = some.iter().product::<usize>();
            let (best, first) = (device.alloc::<f32>(few).unwrap(), device.alloc::<u32>(few).unwrap());
            let extents = shape.map(|extent| u32::try_from(extent).unwrap());
            let (along, number) = (i32::try_from(axis).unwrap(), u32::try_from(k).unwrap());
            let program = device.program(&placed::stage::<f32>(extents, along, number).unwrap()).unwrap();
            let tensors: [&dyn tilewright::device::Argument; 5] =
                [&x.view(shape), &up.view(shape), &places.view(shape), &best.view(some), &first.view(some)];
            program.launch(1, &tensors).unwrap().expect_clean().unwrap();
            let (up, places) = (up.to_vec().unwrap(), places.to_vec().unwrap());
            let (best, first) = (best.to_vec().unwrap(), first.to_vec().unwrap());
            let order = |a: f32, b: f32| total(a.into(), b.into());
            for (line, few) in lines(shape, axis).into_iter().zip(lines(some, axis)) {
                let mut expected: Vec<usize> = (0..line.len()).collect();
                expected.sort_by(|&i, &j| order(data[line[i]], data[line[j]]));
                for (&at, &place) in line.iter().zip(&expected) {
                    assert_eq!(places[at] as usize, place, "{shape:?}");
                    assert_eq!(order(up[at], data[line[place]]), Ordering::Equal, "{shape:?}");
                }
                expected.sort_by(|&i, &j| order(data[line[j]], data[line[i]]).then(i.cmp(&j)));
                for (&at, &place) in few.iter().zip(&expected) {
                    assert_eq!(first[at] as usize, place, "{shape:?}");
                    assert_eq!(order(best[at], data[line[place]]), Ordering::Equal, "{shape:?}");
                }
            }
        }
    });
}

/// Rows that a warp holds are put in order by shuffles and registers.
#[test]
fn rows_of_a_warp_stay_in_registers() {
    let kernel = sorted::stage::<f32>([1, 1, 128], 2).unwrap();
    let text = Compiler::new(Arch::SM_90A).compile(kernel.func()).unwrap().code.text;
    assert!(text.contains("shfl") && !text.contains(".shared"), "{text}");
}
