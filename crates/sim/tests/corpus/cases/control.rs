//! Divergence, jump tables, loops left early, calls of every sort.

use crate::case::Case;
use crate::numbers::Random;

const FILES: [&str; 3] = ["control_sm70", "control_sm80", "control_sm90_debug"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(4);
    let case = |entry| Case::new(&FILES, entry).grid(2, 1).block(96, 1);

    let starts: Vec<u32> = (0..150).map(|i| i * 7 + 1).collect();
    let steps: Vec<u32> = starts.iter().map(|&v| collatz(v)).collect();
    let seeds = random.i32s(150, 0, 256);
    let sums: Vec<i32> = seeds.iter().map(|&v| nested(v)).collect();

    let ops = random.i32s(600, 0, 12);
    let reals = random.f32s(150, -6.0, 6.0);
    let (finals, noted): (Vec<_>, Vec<_>) =
        reals.iter().zip(ops.chunks(4)).map(|(&v, ops)| switches(v, ops)).unzip();
    let switched: Vec<Option<f32>> = finals.into_iter().map(Some).chain(noted).collect();

    let fibonacci: Vec<u32> = (0..32).map(|i| (0..i & 15).fold((0, 1), |(a, b), _| (b, a + b)).0).collect();
    let numbers = random.i32s(150, -500, 500);
    let chosen: Vec<i32> = numbers
        .iter()
        .zip(0..)
        .map(|(&x, i)| match x & 3 {
            0 => x + i,
            1 => x - i,
            2 => x * i,
            _ => x ^ (i << 3),
        })
        .collect();
    let weights: Vec<f64> = reals
        .iter()
        .enumerate()
        .map(|(i, &x)| {
            let weigh = |which: usize| f64::from(x) * 2.0 + [4.0, 3.0][which];
            weigh(i % 2) + weigh(i / 2 % 2)
        })
        .collect();

    let (a, b) = (random.f32s(450, -2.0, 2.0), random.f32s(450, -2.0, 2.0));
    let crossed: Vec<f64> = (0..450)
        .map(|i| {
            let at = |v: &[f32], axis: usize| f64::from(v[i / 3 * 3 + (i + axis) % 3]);
            // Coordinates count from the one computed: y z for x, z x for y, x y for z.
            at(&a, 1) * at(&b, 2) - at(&a, 2) * at(&b, 1)
        })
        .collect();

    let unsorted = random.i32s(192 * 16, -1000, 1000);
    let sorted: Vec<i32> = unsorted
        .chunks(16)
        .flat_map(|row| {
            let mut row = row.to_vec();
            row.sort_unstable();
            row
        })
        .collect();
    let lengths = random.i32s(64, 1, 40);
    let stacked: Vec<i32> =
        lengths.iter().zip(0..).map(|(&n, i)| (0..n).rev().step_by(2).map(|k| k * i).sum()).collect();
    let which = random.i32s(192, 0, 3);
    let branched: Vec<i32> = which.iter().zip(0..).map(|(&w, i)| choose(w, i) + choose(2 - w, i)).collect();

    vec![
        case("collatz").input(&starts).exact(&steps).u32(150),
        case("nested").input(&seeds).exact(&sums).u32(150),
        case("switches").input(&ops).input(&reals).exact_where(&switched).u32(150),
        Case::new(&FILES, "recursion").exact(&fibonacci),
        case("function_pointers").input(&numbers).exact(&chosen).u32(150),
        case("virtual_calls").input(&reals).near::<f32>(&weights, 1e-6, 1e-6).u32(150),
        case("struct_arguments").input(&a).input(&b).near::<f32>(&crossed, 1e-6, 1e-6).u32(150),
        case("local_sort").input(&unsorted).exact(&sorted),
        Case::new(&FILES, "stack_allocation").block(64, 1).input(&lengths).exact(&stacked),
        case("branch_targets").input(&which).exact(&branched),
    ]
}

fn collatz(mut v: u32) -> u32 {
    let mut count = 0;
    while v != 1 && count < 300 {
        v = if v & 1 == 1 { 3 * v + 1 } else { v / 2 };
        count += 1;
    }
    count
}

fn nested(v: i32) -> i32 {
    let mut sum = 0;
    for j in 0..v & 15 {
        if j % 3 == 0 {
            if v & 32 == 0 {
                sum += (j..10).take_while(|&k| k != v & 7).map(|k| k * j + 1).sum::<i32>();
            }
        } else if v & 64 != 0 {
            sum ^= j;
            if sum > 40 {
                return -sum;
            }
        } else {
            sum -= v & 3;
        }
    }
    sum
}

/// The final value, and what was noted on the way.
fn switches(mut v: f32, ops: &[i32]) -> (f32, Option<f32>) {
    let (mut step, mut noted) = (0, None);
    while step < 4 {
        match ops[step] {
            0 => v += 1.0,
            1 => v *= 0.5,
            2 | 3 => v *= v,
            4 => v = v.abs() - 3.0,
            5 => noted = Some(v),
            6 => v = v.min(2.0),
            7 => step += 1,
            8 => v = v.trunc(),
            9 => break,
            _ => v = 0.25,
        }
        step += 1;
    }
    (v, noted)
}

fn choose(which: i32, v: i32) -> i32 {
    match which {
        0 => v + 1,
        1 => v * 3,
        _ => -v,
    }
}
