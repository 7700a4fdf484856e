//! Triton's kernels. Every one of them has two more arguments than its source: pointers to workspaces, mostly unused.

use half::{bf16, f16};
use tilewright_hardware::SwizzleMode;
use tilewright_sim::FindingKind::{OutOfBounds, Race};
use tilewright_sim::tensor::tensor_map::DataType;

use crate::case::Case;
use crate::numbers::{Random, bfloats, eight_bit_code, eight_bit_value, halves, narrow, product, wide};

fn case(files: &[&'static str], entry: &str) -> Case {
    Case::new(files, entry).block(128, 1)
}

/// The two workspaces, none needed.
fn end(case: Case) -> Case {
    case.u64(0).u64(0)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(15);
    let mut cases = vec![];
    cases.extend(elementwise(&mut random));
    cases.extend(rows(&mut random));
    cases.extend(memory(&mut random));
    cases.extend(products(&mut random));
    cases.push(attention(&mut random));
    cases
}

fn elementwise(random: &mut Random) -> Vec<Case> {
    let (x, y) = (random.f32s(1000, -5.0, 5.0), random.f32s(1000, -5.0, 5.0));
    let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
    let add = case(&["triton_vector_add_sm80", "triton_vector_add_sm90"], "vector_add").grid(2, 1);

    let dropped: Vec<f32> =
        x.iter().zip(0..).map(|(&v, i)| if uniform(1234, i) < 0.7 { v / 0.7 } else { 0.0 }).collect();
    let dropout = case(&["triton_dropout_sm80"], "dropout").grid(4, 1);

    let bf: Vec<bf16> = x.iter().map(|&v| bf16::from_f32(v)).collect();
    let half: Vec<f16> = x.iter().map(|&v| f16::from_f32(v)).collect();
    let eight: Vec<u8> = x.iter().map(|&v| eight_bit_code(v, 2)).collect();
    let back: Vec<f32> = bf.iter().map(|v| v.to_f32() * 0.5).collect();
    let conversions =
        case(&["triton_conversions_sm80", "triton_conversions_sm90"], "conversions").grid(4, 1).input(&x);
    vec![
        end(add.input(&x).input(&y).exact(&sums).u32(1000)),
        end(dropout.input(&x).near::<f32>(&wide(&dropped), 1e-6, 0.0).u32(1000).f32(0.7).u32(1234)),
        end(conversions.exact(&bf).exact(&half).exact(&eight).exact(&back).u32(1000)),
        end(case(&["triton_scale_unmasked_sm80"], "scale_unmasked")
            .grid(4, 1)
            .input(&x)
            .poison(4000)
            .f32(3.0))
        .finds(&[OutOfBounds]),
    ]
}

/// Philox with ten rounds, the counter in the first of four words, as a number in 0..1.
fn uniform(seed: u32, counter: u32) -> f32 {
    let (mut c, mut key) = ([counter, 0, 0, 0], [seed, 0]);
    for _ in 0..10 {
        let wide = |a: u32, b: u32| u64::from(a) * u64::from(b);
        let (a, b) = (wide(0xd251_1f53, c[0]), wide(0xcd9e_8d57, c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    let signed = c[0] as i32;
    (if signed < 0 { -signed - 1 } else { signed }) as f32 * 4.656_612_7e-10
}

fn rows(random: &mut Random) -> Vec<Case> {
    let x = random.f32s(800, -6.0, 6.0);
    let soft: Vec<f64> = wide(&x)
        .chunks(200)
        .flat_map(|row| {
            let total: f64 = row.iter().map(|v| v.exp()).sum();
            row.iter().map(|v| v.exp() / total).collect::<Vec<_>>()
        })
        .collect();
    let sums: Vec<f64> = wide(&x).chunks(40).map(|row| row.iter().sum()).collect();
    let best: Vec<(usize, f32)> = x
        .chunks(200)
        .map(|row| {
            row.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).expect("rows are not empty")
        })
        .collect();
    let (places, values): (Vec<i32>, Vec<f32>) = best.into_iter().map(|(place, v)| (place as i32, v)).unzip();

    let normal: Vec<f16> = random.f32s(900, -3.0, 3.0).into_iter().map(f16::from_f32).collect();
    let (weight, bias) = (random.f32s(300, 0.5, 1.5), random.f32s(300, -1.0, 1.0));
    let normed: Vec<f64> = normal
        .chunks(300)
        .flat_map(|row| {
            let row: Vec<f64> = row.iter().map(|v| v.to_f64()).collect();
            let mean = row.iter().sum::<f64>() / 300.0;
            let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 300.0;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            (0..300)
                .map(|i| (row[i] - mean) * scale * f64::from(weight[i]) + f64::from(bias[i]))
                .collect::<Vec<_>>()
        })
        .collect();

    let numbers = random.i32s(1024, -50, 50);
    let forward: Vec<i32> =
        numbers.chunks(512).flat_map(|row| (0..512).map(|i| row[..=i].iter().sum())).collect();
    let backward: Vec<i32> =
        numbers.chunks(512).flat_map(|row| (0..512).map(|i| row[i..].iter().map(|v| v * v).sum())).collect();
    let mut sorted = numbers[..256].to_vec();
    sorted.chunks_mut(128).for_each(<[i32]>::sort_unstable);

    let norm =
        case(&["triton_layer_norm_sm80", "triton_layer_norm_sm90"], "layer_norm").shared(1024).grid(3, 1);
    vec![
        end(case(&["triton_softmax_sm80", "triton_softmax_sm90"], "softmax")
            .shared(16)
            .grid(4, 1)
            .input(&x)
            .near::<f32>(&soft, 1e-5, 1e-7)
            .u32(200)),
        end(norm
            .input(&normal)
            .input(&weight)
            .input(&bias)
            .near::<bf16>(&normed, 5e-3, 1e-3)
            .u32(300)
            .f32(1e-5)),
        end(case(&["triton_row_sums_sm80"], "row_sums")
            .shared(64)
            .grid(3, 1)
            .input(&x)
            .near::<f32>(&sums, 1e-5, 1e-4)
            .u32(20)
            .u32(40)),
        end(case(&["triton_arg_max_sm80"], "arg_max")
            .shared(32)
            .grid(4, 1)
            .input(&x)
            .exact(&values)
            .exact(&places)
            .u32(200)),
        end(case(&["triton_cumulative_sm80"], "cumulative")
            .shared(16)
            .grid(2, 1)
            .input(&numbers)
            .exact(&forward)
            .exact(&backward)),
        end(Case::new(&["triton_sort_rows_sm80"], "sort_rows")
            .shared(512)
            .grid(2, 1)
            .block(64, 1)
            .input(&numbers[..256])
            .exact(&sorted)),
    ]
}

fn memory(random: &mut Random) -> Vec<Case> {
    let x = random.i32s(1000, 0, 500);
    let mut bins = [0i32; 16];
    x.iter().for_each(|v| bins[(v % 16) as usize] += 1);
    let (total, largest) = (x.iter().sum(), *x.iter().max().expect("not empty"));
    let atomics = case(&["triton_atomics_sm80"], "atomics").shared(2048).grid(4, 1).input(&x);

    let y = random.f32s(512, -1.0, 1.0);
    let sums: Vec<f64> = (0..128).map(|i| (0..4).map(|b| f64::from(y[b * 128 + i])).sum()).collect();
    let locked = case(&["triton_locked_sum_sm80"], "locked_sum").shared(4).grid(4, 1).input(&y);
    let unlocked = case(&["triton_unlocked_sum_sm80"], "unlocked_sum").grid(4, 1).input(&y);
    vec![
        end(atomics.update(&[0], &[total]).update(&[0], &[largest]).update(&[0; 16], &bins).u32(1000)),
        end(locked.update_near(&[0f32; 128], &sums, 1e-5, 1e-5).update(&[0], &[0])),
        end(unlocked.scratch(&[0f32; 128])).finds(&[Race]),
    ]
}

fn products(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes = |case: Case, [m, n, k]: [usize; 3]| end(case.u32(m as u32).u32(n as u32).u32(k as u32));

    let [m, n, k] = [128, 128, 96];
    let (a, b) = (random.quarters(m * k), random.quarters(k * n));
    let c = product(&a, |l, j| b[l * n + j], [m, n, k]);
    let matmul = case(&["triton_matmul_sm80", "triton_matmul_sm90"], "matmul").grid(2, 2);
    let shared = matmul.shared(24576).input(&halves(&a)).input(&halves(&b)).near::<f16>(&c, 1e-3, 0.0);
    cases.push(sizes(shared, [m, n, k]));

    let [m, n, k] = [64, 64, 64];
    let (a, b) = (random.quarters(m * k), random.quarters(k * n));
    let c = product(&a, |l, j| b[l * n + j], [m, n, k]);
    let tf32 = case(&["triton_matmul_tf32_sm80"], "matmul").named("tf32").grid(2, 2).shared(8192);
    cases.push(sizes(tf32.input(&narrow(&a)).input(&narrow(&b)).near::<f32>(&c, 0.0, 0.0), [m, n, k]));

    let bytes = |random: &mut Random| -> Vec<i8> {
        random.i32s(64 * 64, -128, 128).into_iter().map(|v| v as i8).collect()
    };
    let (p, q) = (bytes(random), bytes(random));
    let cell =
        |i: usize| (0..64).map(|l| i32::from(p[i / 64 * 64 + l]) * i32::from(q[l * 64 + i % 64])).sum();
    let c: Vec<i32> = (0..64 * 64).map(cell).collect();
    let whole = case(&["triton_matmul_bytes_sm80"], "matmul").named("bytes").grid(2, 2).shared(4096);
    cases.push(sizes(whole.input(&p).input(&q).exact(&c), [m, n, k]));

    let [m, n, k] = [64, 64, 128];
    let codes =
        |values: Vec<f64>| -> Vec<u8> { values.into_iter().map(|v| eight_bit_code(v as f32, 3)).collect() };
    let (a, b) = (codes(random.quarters(m * k)), codes(random.quarters(k * n)));
    let value = |code: u8| eight_bit_value(code, 3);
    let left: Vec<f64> = a.iter().map(|&code| value(code)).collect();
    let c = product(&left, |l, j| value(b[l * n + j]), [m, n, k]);
    let fp8 = case(&["triton_matmul_fp8_sm90"], "matmul").named("fp8").shared(16384);
    cases.push(sizes(fp8.input(&a).input(&b).near::<f32>(&c, 0.0, 0.0), [m, n, k]));

    let [m, n, k] = [128, 192, 64];
    let (a, b) = (random.quarters(m * k), random.quarters(k * n));
    let c = product(&a, |l, j| b[l * n + j], [m, n, k]);
    let persistent = case(&["triton_matmul_persistent_sm90"], "matmul_persistent").grid(4, 1).shared(16384);
    cases
        .push(sizes(persistent.input(&bfloats(&a)).input(&bfloats(&b)).near::<f32>(&c, 0.0, 0.0), [m, n, k]));

    // The right operand lies row by row of n for the descriptors.
    let [m, n, k] = [128, 128, 192];
    let (a, b) = (random.quarters(m * k), random.quarters(n * k));
    let c = product(&a, |l, j| b[j * k + l], [m, n, k]);
    let on_device = case(&["triton_matmul_device_descriptors_sm90"], "matmul_device_descriptors")
        .grid(2, 2)
        .shared(32784);
    let on_device = on_device.input(&halves(&a)).input(&halves(&b)).near::<f16>(&c, 1e-3, 0.0);
    let on_device = on_device.u32(m as u32).u32(n as u32).u32(k as u32);
    // 384 bytes of workspace a program: its three descriptors.
    cases.push(on_device.poison(4 * 384).u64(0));

    let by_host =
        case(&["triton_matmul_host_descriptors_sm90"], "matmul_host_descriptors").grid(2, 2).shared(49176);
    let by_host =
        by_host.input(&halves(&a)).held().input(&halves(&b)).held().near::<f16>(&c, 1e-3, 0.0).held();
    let described =
        [[m, k], [n, k], [m, n]].into_iter().enumerate().fold(by_host, |case, (of, [rows, columns])| {
            // The map, then shape and strides in elements, outermost first.
            case.matrix_map(
                of,
                DataType::F16,
                [columns as u64, rows as u64],
                columns as u64 * 2,
                [64, 64],
                SwizzleMode::B128,
            )
            .u32(rows as u32)
            .u32(columns as u32)
            .u64(columns as u64)
            .u64(1)
        });
    cases.push(end(described.u32(k as u32)));
    cases
}

fn attention(random: &mut Random) -> Case {
    let (heads, length, depth) = (2, 128, 32);
    let mut tensor = || halves(&random.f64s(heads * length * depth, -1.0, 1.0));
    let (q, k, v) = (tensor(), tensor(), tensor());
    let row = |x: &[f16], head: usize, i: usize| -> Vec<f64> {
        x[(head * length + i) * depth..][..depth].iter().map(|v| v.to_f64()).collect()
    };
    let mut expected = Vec::new();
    for head in 0..heads {
        for i in 0..length {
            let query = row(&q, head, i);
            let score = |j| query.iter().zip(row(&k, head, j)).map(|(x, y)| x * y).sum::<f64>() * 0.25;
            let weights: Vec<f64> = (0..=i).map(|j| score(j).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sum = vec![0.0; depth];
            for (j, weight) in weights.iter().enumerate() {
                sum.iter_mut().zip(row(&v, head, j)).for_each(|(sum, v)| *sum += weight / total * v);
            }
            expected.extend(sum);
        }
    }
    let case =
        case(&["triton_attention_sm80", "triton_attention_sm90"], "attention").grid(2, 2).shared(12288);
    let case = case.input(&q).input(&k).input(&v).near::<f16>(&expected, 5e-3, 2e-3);
    end(case.u32(length as u32).f32(0.25))
}
