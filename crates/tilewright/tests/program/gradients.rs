//! Gradients of attention: a loop with four products, of which some are factors of others, transposed.

use tilewright::lang::tile::prelude::*;

use super::everywhere;

/// Gradients of keys and values, `tile[1]` of them a program, from all queries that see them, `tile[0]` at a time: causal attention of each head
/// (axis 0). `lse` has the logarithms of the sums of exponentials, `delta` the sums of gradient times result.
#[kernel]
fn keys_and_values(
    q: View<f16, 3>,
    k: View<f16, 3>,
    v: View<f16, 3>,
    dout: View<f16, 3>,
    lse: View<f32, 2>,
    delta: View<f32, 2>,
    dk: View<f32, 3>,
    dv: View<f32, 3>,
    scale: Val<f32>,
    tile: [u32; 3],
) {
    let [m, n, d] = tile;
    let (head, start) = (program_id(1), program_id(0) * n);
    let [q, k, v, dout] = [q, k, v, dout].map(|view| view.select_unchecked(0, head));
    let [lse, delta] = [lse, delta].map(|view| view.row(head));
    let [k, v] = [k, v].map(|view| view.tile([n, d]).at((start, 0)).load().transpose());
    let column = Tile::iota(1, [1, n]) + start;
    let mut key_sum = Tile::<f32>::zeros([n, d]);
    let mut value_sum = Tile::<f32>::zeros([n, d]);
    for step in start / m..q.extent(0).div_ceil(m) {
        let at = step * m;
        let row = Tile::iota(0, [m, 1]) + at;
        let [rows, gradient] = [q, dout].map(|view| view.tile([m, d]).at((at, 0)).load());
        let [lse, delta] = [lse, delta].map(|view| view.tile([m]).at(at).load().unsqueeze(1));
        let scores = dot(rows, k, Tile::<f32>::zeros([m, n])) * scale;
        let p = select((column <= row) & (row < q.extent(0)), (scores - lse).exp(), 0.0f32);
        value_sum = dot(p.cast::<f16>().transpose(), gradient, value_sum);
        let ds = p * (dot(gradient, v, Tile::<f32>::zeros([m, n])) - delta);
        key_sum = dot(ds.cast::<f16>().transpose(), rows, key_sum);
    }
    dk.select(0, head).tile([n, d]).at((start, 0)).store(key_sum * scale);
    dv.select(0, head).tile([n, d]).at((start, 0)).store(value_sum);
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "what the kernel gets is f32")]
fn gradients_of_attention() {
    let (heads, rows, d, scale) = (2usize, 45usize, 64usize, 0.25f32);
    let count = heads * rows * d;
    let number = |i: usize, seed: usize| f16::from_f32(((i * 37 + seed * 101) % 61) as f32 / 40.0 - 0.75);
    let [q, k, v, dout] = [1, 2, 3, 4].map(|seed| (0..count).map(|i| number(i, seed)).collect::<Vec<f16>>());
    let (mut lse, mut delta) = (Vec::new(), Vec::new());
    let (mut dk, mut dv) = (vec![0.0; count], vec![0.0; count]);
    for head in 0..heads {
        let row = |x: &[f16], i: usize| -> Vec<f64> {
            x[(head * rows + i) * d..][..d].iter().map(|x| x.to_f64()).collect()
        };
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for i in 0..rows {
            let (query, gradient) = (row(&q, i), row(&dout, i));
            let e: Vec<f64> =
                (0..=i).map(|j| (product(&query, &row(&k, j)) * f64::from(scale)).exp()).collect();
            let sum: f64 = e.iter().sum();
            let dp: Vec<f64> = (0..=i).map(|j| product(&gradient, &row(&v, j))).collect();
            let mean = e.iter().zip(&dp).map(|(e, dp)| e / sum * dp).sum::<f64>();
            lse.push(sum.ln() as f32);
            delta.push(mean as f32);
            for j in 0..=i {
                let (p, at) = (e[j] / sum, (head * rows + j) * d);
                for x in 0..d {
                    dv[at + x] += p * gradient[x];
                    dk[at + x] += p * (dp[j] - mean) * f64::from(scale) * query[x];
                }
            }
        }
    }
    everywhere(|device| {
        let program = device.program(&keys_and_values::stage([32, 64, 64]).unwrap()).unwrap();
        let [q, k, v, dout] = [&q, &k, &v, &dout].map(|x| device.upload(x).unwrap());
        let [lse, delta] = [&lse, &delta].map(|x| device.upload(x).unwrap());
        let [keys, values] = [0; 2].map(|_| device.alloc::<f32>(count).unwrap());
        let [q, k, v, dout] = [&q, &k, &v, &dout].map(|x| x.view([heads, rows, d]));
        let [lse, delta] = [&lse, &delta].map(|x| x.view([heads, rows]));
        let [to_keys, to_values] = [&keys, &values].map(|x| x.view([heads, rows, d]));
        program
            .launch([1, 2, 1], &[&q, &k, &v, &dout, &lse, &delta, &to_keys, &to_values, &scale])
            .unwrap()
            .expect_clean()
            .unwrap();
        for (found, expected) in [(keys.to_vec().unwrap(), &dk), (values.to_vec().unwrap(), &dv)] {
            for (found, expected) in found.iter().zip(expected) {
                // Weights and their gradients are rounded to f16.
                assert!((f64::from(*found) - expected).abs() <= 3e-3 * (1.0 + expected.abs()));
            }
        }
        // Four tiles of sums and their factors are more than half of the registers that a thread can have.
        for variant in program.variants() {
            let text = &variant.build().unwrap().code.text;
            let resident = text.lines().find_map(|line| line.trim().strip_prefix(".minnctapersm "));
            assert!(resident.unwrap().parse::<u32>().unwrap() <= 2);
        }
    });
}
