//! Elements at places that a kernel computes, within tiles: take, flip, interleave, and histograms.

use tilewright::lang::tile::prelude::*;

use super::everywhere;

/// Elements of x at indices along an axis, of types of all widths.
#[kernel]
fn taken(
    x: View<f32, 3>,
    indices: View<u32, 3>,
    out: View<f32, 3>,
    small: View<u8, 3>,
    axis: i32,
    to: [u32; 3],
) {
    let tile = x.tile([3, 5, 7]).at((0, 0, 0)).load();
    let indices = indices.tile(to).at((0, 0, 0)).load();
    out.tile(to).at((0, 0, 0)).store(tile.take(indices, axis));
    let (negative, wide) = (tile < 0.0, tile.cast::<f64>());
    let same = wide.take(indices, axis).cast::<f32>() == tile.take(indices, axis);
    small.tile(to).at((0, 0, 0)).store(negative.take(indices, axis).cast::<u8>() + same.cast::<u8>() * 2);
}

#[test]
fn elements_are_taken_along_every_axis() {
    let x: Vec<f32> = (0..105u16).map(|i| f32::from(i * 37 % 105) - 50.0).collect();
    let from = [3usize, 5, 7];
    for (axis, count) in [(0, 4), (1, 9), (2, 6), (0, 1), (1, 130)] {
        let mut to = from;
        to[axis] = count;
        // Some are outside.
        let index = |i: usize| {
            u32::try_from(i * 11 % (from[axis] + 1)).unwrap() + if i % 13 == 5 { 1 << 31 } else { 0 }
        };
        let indices: Vec<u32> = (0..to.iter().product()).map(index).collect();
        let expected: Vec<f32> = (0..indices.len())
            .map(|i| {
                let mut at = [i / (to[1] * to[2]), i / to[2] % to[1], i % to[2]];
                at[axis] = indices[i] as usize;
                if at[axis] < from[axis] { x[(at[0] * 5 + at[1]) * 7 + at[2]] } else { 0.0 }
            })
            .collect();
        let small: Vec<u8> = expected.iter().map(|&x| 2 + u8::from(x < 0.0)).collect();
        everywhere(|device| {
            let tile = to.map(|extent| u32::try_from(extent).unwrap());
            let kernel = taken::stage(i32::try_from(axis).unwrap(), tile).unwrap();
            let (x, at) = (device.upload(&x).unwrap(), device.upload(&indices).unwrap());
            let (out, bytes) =
                (device.alloc::<f32>(indices.len()).unwrap(), device.alloc::<u8>(indices.len()).unwrap());
            let program = device.program(&kernel).unwrap();
            program
                .launch([1, 1, 1], &[&x.view(from), &at.view(to), &out.view(to), &bytes.view(to)])
                .unwrap()
                .expect_clean()
                .unwrap();
            assert_eq!(out.to_vec().unwrap(), expected, "along {axis}");
            assert_eq!(bytes.to_vec().unwrap(), small, "along {axis}");
        });
    }
}

/// A row in the order of its keys, its reverse, and both by turns; long rows are shared by blocks.
#[kernel]
fn reordered(keys: View<i32, 2>, x: View<bf16, 2>, out: View<bf16, 2>, columns: u32) {
    let order = keys.partition([1, columns]).load().argsort(1);
    let sorted = x.partition([1, columns]).load().take(order, 1);
    out.partition([1, 2 * columns]).store(sorted.interleave(sorted.flip(-1)));
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "small integers")]
fn rows_go_into_the_order_of_others() {
    for columns in [1usize, 24, 300] {
        let key = |i: usize| (i * 7919 % 1009) as i32 - 500;
        let keys: Vec<i32> = (0..2 * columns).map(key).collect();
        let x: Vec<bf16> = (0..2 * columns).map(|i| bf16::from_f32((i % 256) as f32)).collect();
        let mut expected = Vec::new();
        for row in 0..2 {
            let mut order: Vec<usize> = (row * columns..(row + 1) * columns).collect();
            order.sort_by_key(|&i| keys[i]);
            let pairs = order.iter().zip(order.iter().rev());
            expected.extend(pairs.flat_map(|(&a, &b)| [x[a], x[b]]));
        }
        everywhere(|device| {
            let program = device.program(&reordered::stage(columns as u32).unwrap()).unwrap();
            let (keys, x) = (device.upload(&keys).unwrap(), device.upload(&x).unwrap());
            let out = device.alloc::<bf16>(4 * columns).unwrap();
            let shape = [2, columns];
            let views = (keys.view(shape), x.view(shape), out.view([2, 2 * columns]));
            program.run(&[&views.0, &views.1, &views.2]).unwrap().expect_clean().unwrap();
            assert_eq!(out.to_vec().unwrap(), expected, "{columns} columns");
        });
    }
}

/// Numbers of 4 bits become values of a table; and which bits all, some and an odd number of the codes have.
#[kernel]
fn decoded(codes: View<u8, 2>, table: View<f32, 1>, out: View<f32, 2>, bits: View<u32, 2>) {
    let codes = codes.partition([4, 20]).load().cast::<u32>();
    let each = (codes & 15u32).interleave(codes >> 4u32);
    out.partition([4, 40]).store(table.tile([16]).at(0).load().take(each, 0));
    let all = codes.bit_and(1).cat(codes.bit_or(1), 1).cat(codes.bit_xor(1), 1);
    bits.partition([4, 3]).store(all);
}

#[test]
fn codes_are_looked_up_in_a_table() {
    let codes: Vec<u8> = (0..80u8).map(|i| i.wrapping_mul(89).wrapping_add(17) | 1).collect();
    let table: Vec<f32> = (0..16u8).map(|i| f32::from(i) * 1.5 - 9.0).collect();
    let value = |code: u8| table[usize::from(code)];
    let expected: Vec<f32> = codes.iter().flat_map(|&code| [value(code & 15), value(code >> 4)]).collect();
    let fold = |row: &[u8], f: fn(u8, u8) -> u8| u32::from(row.iter().copied().reduce(f).unwrap());
    let bits: Vec<u32> = codes
        .chunks(20)
        .flat_map(|row| [fold(row, |a, b| a & b), fold(row, |a, b| a | b), fold(row, |a, b| a ^ b)])
        .collect();
    everywhere(|device| {
        let program = device.program(&decoded::stage().unwrap()).unwrap();
        let (codes, table) = (device.upload(&codes).unwrap(), device.upload(&table).unwrap());
        let (out, found) = (device.alloc::<f32>(160).unwrap(), device.alloc::<u32>(12).unwrap());
        let views = (codes.view([4, 20]), table.view([16]), out.view([4, 40]), found.view([4, 3]));
        program.run(&[&views.0, &views.1, &views.2, &views.3]).unwrap().expect_clean().unwrap();
        assert_eq!(out.to_vec().unwrap(), expected);
        assert_eq!(found.to_vec().unwrap(), bits);
    });
}

/// How often each number occurs, and how many are below each: where a sort by digits puts them.
#[kernel]
fn counted(x: View<u32, 1>, counts: View<u32, 2>, starts: View<u32, 2>, size: u32, bins: u32) {
    let place = x.tile([size]).block(program_id(0));
    let counted = place.load_or(u32::MAX).histogram(bins);
    counts.partition([1, bins]).store(counted.unsqueeze(0));
    starts.partition([1, bins]).store((counted.cumsum(0) - counted).unsqueeze(0));
}

#[test]
fn numbers_are_counted() {
    for (size, bins, n) in
        [(64usize, 16usize, 150usize), (100, 7, 230), (1, 1, 2), (512, 256, 1000), (8, 40, 20)]
    {
        // One more than there are bins is not counted.
        let x: Vec<u32> = (0..n).map(|i| u32::try_from((i * i + 3 * i) % (bins + 1)).unwrap()).collect();
        let programs = n.div_ceil(size);
        let mut counts = vec![0u32; programs * bins];
        for (i, &x) in x.iter().enumerate().filter(|&(_, &x)| (x as usize) < bins) {
            counts[i / size * bins + x as usize] += 1;
        }
        let sum = |i: usize| counts[i / bins * bins..i].iter().sum();
        let starts: Vec<u32> = (0..counts.len()).map(sum).collect();
        everywhere(|device| {
            let (size, width) = (u32::try_from(size).unwrap(), u32::try_from(bins).unwrap());
            let program = device.program(&counted::stage(size, width).unwrap()).unwrap();
            let x = device.upload(&x).unwrap();
            let [found, before] = [0; 2].map(|_| device.alloc::<u32>(counts.len()).unwrap());
            let shape = [programs, bins];
            program
                .run(&[&x.view([n]), &found.view(shape), &before.view(shape)])
                .unwrap()
                .expect_clean()
                .unwrap();
            assert_eq!(found.to_vec().unwrap(), counts, "{size} of {bins}");
            assert_eq!(before.to_vec().unwrap(), starts, "{size} of {bins}");
        });
    }
}

#[kernel]
fn noise(one: View<f32, 1>, four: View<f32, 2>, seed: Val<u64>) {
    let own = one.partition([512]);
    let at = own.positions(0).cast::<u64>();
    own.store(normal(seed, at));
    let [a, b, c, d] = normal4(seed, at).map(|numbers| numbers.unsqueeze(0));
    four.tile([4, 512]).at((0, own.start(0))).store(a.cat(b, 0).cat(c.cat(d, 0), 0));
}

#[test]
fn random_numbers_are_normally_distributed() {
    let n = 4096usize;
    everywhere(|device| {
        let program = device.program(&noise::stage().unwrap()).unwrap();
        let (one, four) = (device.alloc::<f32>(n).unwrap(), device.alloc::<f32>(4 * n).unwrap());
        program.run(&[&one.view([n]), &four.view([4, n]), &7u64]).unwrap().expect_clean().unwrap();
        let (one, four) = (one.to_vec().unwrap(), four.to_vec().unwrap());
        assert_eq!(one, four[..n]);
        for numbers in four.chunks(n) {
            let moment = |k: i32| numbers.iter().map(|&x| f64::from(x).powi(k)).sum::<f64>() / n as f64;
            let moments = [1, 2, 3, 4].map(moment);
            // Within four standard deviations of these means.
            for (found, (expected, deviation)) in
                moments.iter().zip([(0.0, 1.0f64), (1.0, 1.42), (0.0, 3.88), (3.0, 9.8)])
            {
                assert!(
                    (found - expected).abs() < 4.0 * deviation / (n as f64).sqrt(),
                    "moments {moments:?}"
                );
            }
            let inside = numbers.iter().filter(|x| x.abs() < 1.0).count() as f64 / n as f64;
            assert!((inside - 0.6827).abs() < 0.03, "{inside} within one deviation");
        }
    });
}
