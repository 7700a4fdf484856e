//! The kernels of `docs/tiles.md` and `docs/triton.md` on the simulator and on the CPU against plain Rust, the listings of these pages
//! against the files, and the stages that `docs/triton.md` shows against the compiler.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::process::Command;

use tilewright::compiler::Compiler;
use tilewright::device::{self, Device};
use tilewright::hardware::Arch;
use tilewright::kernels::tutorial::{self, TUTORIAL};
use tilewright::lang::tile::prelude::*;

const TILES: &str = include_str!("../../../docs/tiles.md");
const TRITON: &str = include_str!("../../../docs/triton.md");

/// Numbers between -2 and 2 that bf16 holds.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + i / 33 * 5 + seed * 11) % 33) as f32 / 8.0 - 2.0).collect()
}

fn narrow(numbers: &[f32]) -> Vec<bf16> {
    numbers.iter().map(|&x| bf16::from_f32(x)).collect()
}

fn wide(numbers: &[bf16]) -> Vec<f64> {
    numbers.iter().map(|x| f64::from(x.to_f32())).collect()
}

#[track_caller]
fn near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= tolerance * (1.0 + y.abs()), "element {i}: found {x}, expected {y}");
    }
}

#[track_caller]
fn near_f32(found: &[f32], expected: &[f64]) {
    near(&found.iter().copied().map(f64::from).collect::<Vec<_>>(), expected, 2e-5);
}

fn both(work: impl Fn(&Device)) {
    work(&Device::simulator());
    work(&Device::cpu());
}

/// Runs a kernel that says how many programs it needs; races and reads of what nobody wrote are failures.
fn run(device: &Device, kernel: &Kernel, arguments: &[&dyn device::Argument]) {
    device.program(kernel).unwrap().run(arguments).unwrap().expect_clean().unwrap();
}

#[test]
fn vectors_of_any_length() -> Result<(), Box<dyn std::error::Error>> {
    for device in [Device::simulator(), Device::cpu()] {
        let add = device.program(&tutorial::vector_add::stage(1024)?)?;
        let x = device.upload(&[1.5f32; 5000])?;
        let y = device.upload(&[2.0f32; 5000])?;
        let out = device.alloc::<f32>(5000)?;
        add.run(&[&x.view([5000]), &y.view([5000]), &out.view([5000])])?.expect_clean()?;
        assert_eq!(out.to_vec()?, [3.5; 5000]);
    }
    for length in [0, 1, 1023, 1024, 4097] {
        both(|device| {
            let (x, y) = (numbers(length, 1), numbers(length, 2));
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            let [x, y] = [x, y].map(|data| device.upload(&data).unwrap());
            let out = device.alloc::<f32>(length).unwrap();
            let kernel = tutorial::vector_add::stage(1024).unwrap();
            run(device, &kernel, &[&x.view([length]), &y.view([length]), &out.view([length])]);
            assert_eq!(out.to_vec().unwrap(), expected);
        });
    }
    Ok(())
}

#[test]
fn rows() {
    for (rows, columns) in [(5, 781), (3, 1024), (4, 1), (2, 100)] {
        let x: Vec<f32> = numbers(rows * columns, 3).iter().map(|x| x + 2.5).collect();
        let each = |of: fn(f64) -> f64| {
            let row = |row: &[f32]| {
                let row: Vec<f64> = row.iter().map(|&x| of(f64::from(x))).collect();
                let sum: f64 = row.iter().sum();
                row.into_iter().map(|x| x / sum).collect::<Vec<f64>>()
            };
            x.chunks(columns).flat_map(row).collect::<Vec<f64>>()
        };
        let kernels = [
            (tutorial::softmax::stage(1024).unwrap(), each(f64::exp)),
            (tutorial::normalise::stage(1024).unwrap(), each(|x| x)),
        ];
        both(|device| {
            for (kernel, expected) in &kernels {
                let from = device.upload(&x).unwrap();
                let out = device.alloc::<f32>(x.len()).unwrap();
                run(device, kernel, &[&from.view([rows, columns]), &out.view([rows, columns])]);
                near_f32(&out.to_vec().unwrap(), expected);
            }
        });
    }
}

#[test]
fn products() {
    for (leaky, tile, [m, n, k]) in [
        (false, [32, 64, 32], [70, 90, 50]),
        (true, [64, 64, 64], [128, 72, 136]),
        (false, [16, 16, 16], [33, 8, 1]),
    ] {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let mut expected: Vec<f64> = (0..m * n)
            .map(|at| (0..k).map(|i| f64::from(a[at / n * k + i]) * f64::from(b[i * n + at % n])).sum())
            .collect();
        if leaky {
            expected.iter_mut().filter(|c| **c < 0.0).for_each(|c| *c *= 0.01);
        }
        both(|device| {
            let [a, b] = [&a, &b].map(|data| device.upload(&narrow(data)).unwrap());
            let c = device.alloc::<bf16>(m * n).unwrap();
            let kernel = tutorial::matmul::stage(leaky, tile).unwrap();
            run(device, &kernel, &[&a.view([m, k]), &b.view([k, n]), &c.view([m, n])]);
            near(&wide(&c.to_vec().unwrap()), &expected, 0.005);
        });
    }
}

#[test]
fn dropout_keeps_what_the_seed_says() {
    let x: Vec<f32> = (1..=3000u16).map(f32::from).collect();
    let results = std::cell::RefCell::new(Vec::new());
    both(|device| {
        let from = device.upload(&x).unwrap();
        let out = device.alloc::<f32>(x.len()).unwrap();
        let kernel = tutorial::dropout::stage(1024).unwrap();
        for seed in [7u64, 8] {
            run(device, &kernel, &[&from.view([3000]), &out.view([3000]), &0.75f32, &seed]);
            results.borrow_mut().push(out.to_vec().unwrap());
        }
    });
    let results = results.into_inner();
    for found in &results {
        assert!(found.iter().zip(&x).all(|(y, x)| *y == 0.0 || *y == x / 0.75));
        let kept = found.iter().filter(|y| **y != 0.0).count();
        // 2250 on average, with a standard deviation of 24.
        assert!((2150..2350).contains(&kept), "{kept} of 3000 were kept");
    }
    assert_eq!(results[..2], results[2..], "the simulator and the CPU keep the same");
    assert_ne!(results[0], results[1], "another seed keeps others");
}

#[test]
fn layer_norm_and_its_gradients() {
    let (rows, columns, stripe) = (21, 300, 8usize);
    let (x, dout) = (numbers(rows * columns, 1), numbers(rows * columns, 2));
    let (weight, bias) = (numbers(columns, 3), numbers(columns, 4));
    let number = |x: f32| f64::from(x);
    let epsilon = 1e-5f32;

    let (mut out, mut dx) = (vec![0.0; rows * columns], vec![0.0; rows * columns]);
    let (mut dweight, mut dbias) = (vec![0.0; columns], vec![0.0; columns]);
    for row in 0..rows {
        let at = |column: usize| row * columns + column;
        let average = |of: &dyn Fn(usize) -> f64| (0..columns).map(of).sum::<f64>() / columns as f64;
        let mean = average(&|c| number(x[at(c)]));
        let rstd = 1.0 / (average(&|c| (number(x[at(c)]) - mean).powi(2)) + number(epsilon)).sqrt();
        let normal = |c: usize| (number(x[at(c)]) - mean) * rstd;
        let gradient = |c: usize| number(dout[at(c)]) * number(weight[c]);
        let (along, across) = (average(&|c| gradient(c) * normal(c)), average(&gradient));
        for c in 0..columns {
            out[at(c)] = normal(c) * number(weight[c]) + number(bias[c]);
            dx[at(c)] = (gradient(c) - normal(c) * along - across) * rstd;
            dweight[c] += number(dout[at(c)]) * normal(c);
            dbias[c] += number(dout[at(c)]);
        }
    }

    both(|device| {
        let [x, dout, weight, bias] = [&x, &dout, &weight, &bias].map(|data| device.upload(data).unwrap());
        let [y, gradient] = [(); 2].map(|()| device.alloc::<f32>(rows * columns).unwrap());
        let [mean, rstd] = [(); 2].map(|()| device.alloc::<f32>(rows).unwrap());
        let matrix = [rows, columns];
        let kernel = tutorial::layer_norm::stage(512).unwrap();
        let (mean, rstd) = (mean.view([rows]), rstd.view([rows]));
        let (weight, bias) = (weight.view([columns]), bias.view([columns]));
        run(device, &kernel, &[&x.view(matrix), &weight, &bias, &y.view(matrix), &mean, &rstd, &epsilon]);
        near_f32(&y.to_vec().unwrap(), &out);

        let parts = rows.div_ceil(stripe);
        let partial = [(); 2].map(|()| device.alloc::<f32>(parts * columns).unwrap());
        let [weights, biases] = partial.each_ref().map(|part| part.view([parts, columns]));
        let kernel = tutorial::layer_norm_backward::stage(8, 512).unwrap();
        let (dout, x, dx_view) = (dout.view(matrix), x.view(matrix), gradient.view(matrix));
        run(device, &kernel, &[&dout, &x, &weight, &mean, &rstd, &dx_view, &weights, &biases]);
        near_f32(&gradient.to_vec().unwrap(), &dx);
        for (part, expected) in [(weights, &dweight), (biases, &dbias)] {
            let sums = device.alloc::<f32>(columns).unwrap();
            let kernel = tutorial::column_sums::stage([2, 128]).unwrap();
            run(device, &kernel, &[&part, &sums.view([columns])]);
            near_f32(&sums.to_vec().unwrap(), expected);
        }
    });
}

#[test]
fn attention_of_several_heads() {
    let heads = 2;
    // The second tile is one for warpgroups.
    for (causal, queries, keys, tile, width) in [
        (false, 40, 50, [32, 16], 32),
        (true, 72, 72, [32, 16], 32),
        (false, 72, 50, [64, 32], 64),
        (true, 136, 136, [128, 32], 64),
    ] {
        let q = numbers(heads * queries * width, 1);
        let (k, v) = (numbers(heads * keys * width, 2), numbers(heads * keys * width, 3));
        let scale = 1.0 / (width as f32).sqrt();
        let mut expected = Vec::new();
        for (head, row) in (0..heads).flat_map(|head| (0..queries).map(move |row| (head, row))) {
            let of = |data: &[f32], rows: usize, row: usize, i: usize| {
                f64::from(data[(head * rows + row) * width + i])
            };
            let seen = if causal { row + 1 } else { keys };
            let score = |key: usize| -> f64 {
                let sum: f64 = (0..width).map(|i| of(&q, queries, row, i) * of(&k, keys, key, i)).sum();
                (sum * f64::from(scale)).exp()
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let sum: f64 = scores.iter().sum();
            expected.extend((0..width).map(|i| {
                scores.iter().enumerate().map(|(key, e)| e * of(&v, keys, key, i)).sum::<f64>() / sum
            }));
        }
        both(|device| {
            let [q, k, v] = [&q, &k, &v].map(|data| device.upload(&narrow(data)).unwrap());
            let out = device.alloc::<bf16>(heads * queries * width).unwrap();
            let kernel = tutorial::attention::stage(causal, tile, u32::try_from(width).unwrap()).unwrap();
            let (q, out_view) = (q.view([heads, queries, width]), out.view([heads, queries, width]));
            let (k, v) = (k.view([heads, keys, width]), v.view([heads, keys, width]));
            run(device, &kernel, &[&q, &k, &v, &out_view, &scale]);
            near(&wide(&out.to_vec().unwrap()), &expected, 0.01);
        });
    }
}

/// Says everything that the table of `docs/triton.md` lists and no kernel of the tutorial says.
#[kernel(threads = 256)]
fn words(x: View<f32, 2>, out: View<f32, 2>, counts: Global<i32>, n: Val<u32>) {
    let x = x.aligned(16).unit_stride(1);
    let place = x.tile([16, 16]).block((program_id(0), num_programs(1) - 1));
    let a = place.cache(Cache::Global).streaming().load() + place.evict(Evict::First).load();
    assert_with(n > 0, "n is positive");
    let (rows, columns) = (Tile::<u32>::iota(0, [16, 16]), arange(16));
    let mask = rows < n;
    let b = x.points((rows, columns)).only(mask).load_or(1.0);
    counts.points(rows.cast::<i64>()).only(mask).atomic_add(Tile::<i32>::full([16, 16], 1));
    let c = columns.cast::<f32>().unsqueeze(1).broadcast_to([16, 16]).transpose().permute([1, 0]);
    let joined = a.join(b).reshape([16, 32]).cat(Tile::zeros([16, 32]), 1).part(1, 0..32);
    let (left, right) = joined.reshape([16, 16, 2]).split();
    let d = select(left.bitcast::<u32>() > 3u32, left.maximum(right), left.minimum(right).fmax(c).fmin(c));
    let (best, _) = (d.exp_fast(), d.argmax(1).broadcast_to([16, 16]))
        .reduce(1, |(a, i), (b, j)| (select(a > b, a, b), select(a > b, i, j)));
    let e =
        best + d.reduce(1, |a, b| a * b) + d.scan(1, |a, b| a + b) + d.cumsum(1) + d.cumprod(0) + d.sum_all();
    let e = (e, d).map(|(e, d)| e * d).map(|e| e + 1.0);
    let random = uniform(7u64, rows) + philox(7u64, rows).cast::<f32>();
    out.tile([16, 16]).block((0, 0)).store(dot_tf32(e, random, dot(e, d, c)));
}

#[test]
fn the_words_of_the_page_exist() {
    let kernel = words::stage().unwrap_or_else(|error| panic!("{error}"));
    let build = Compiler::new(Arch::SM_80).compile(kernel.func()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(build.func.launch.threads, Some([256, 1, 1]));
}

/// What the chapter says about the compiler.
#[test]
fn the_chapter_knows_the_compiler() {
    let explain = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_tilewright")).arg("explain").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let hopper = explain(&["tutorial/matmul", "--arch", "sm_90a"]);
    assert!(hopper.contains("tensor map of `a`") && hopper.contains("tensor map of `b`"));
    assert!(hopper.contains("cp.async.bulk.tensor") && hopper.contains("wgmma.mma_async"));
    let ampere = explain(&["tutorial/matmul", "--arch", "sm_80", "--stage", "ptx"]);
    assert!(ampere.contains("mma.sync") && !ampere.contains("wgmma"));
    assert!(ampere.contains("cp.async.cg.shared.global") && !ampere.contains("ld.global"));
    let any = explain(&["tutorial/vector_add", "--any-tensor", "--stage", "ptx"]);
    let dense = explain(&["tutorial/vector_add", "--stage", "ptx"]);
    assert!(dense.contains("ld.global.v4") && !any.contains("ld.global.v4"));
    let attention = explain(&["tutorial/attention", "--arch", "sm_90a", "--stage", "ptx"]);
    assert!(attention.contains("wgmma.mma_async") && attention.contains("cp.async.bulk.tensor.3d"));
    assert!(!attention.contains("mma.sync."));

    let launch = |columns: u32, arch: Arch| {
        let kernel = tutorial::softmax::stage(columns).unwrap();
        let build = Compiler::new(arch).compile(kernel.func()).unwrap();
        (build.func.launch.threads, build.func.launch.cluster)
    };
    // No lane is idle, though 1536 is no power of two.
    let (threads, cluster) = launch(1536, Arch::SM_90A);
    assert_eq!((1536 % threads.unwrap()[0], cluster), (0, None));
    assert!(launch(65536, Arch::SM_90A).1.is_some());
}

/// The blocks of code of a page: what stands behind the fence, and the lines.
fn blocks(page: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix("```") {
            blocks.push((words, lines.by_ref().take_while(|line| *line != "```").collect()));
        }
    }
    blocks
}

/// What the pages show as Rust is in the files that they name, line by line; all kernels of the tutorial are shown.
#[test]
fn the_pages_show_the_code() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/");
    let mut shown = Vec::new();
    for (words, listing) in blocks(TILES).into_iter().chain(blocks(TRITON)) {
        let Some(file) = words.strip_prefix("rust ") else {
            assert!(!words.starts_with("rust"), "a listing of Rust without its file: {listing:#?}");
            continue;
        };
        let text = std::fs::read_to_string(format!("{root}{file}")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let found = lines.windows(listing.len()).any(|window| window == &listing[..]);
        assert!(found, "{file} has no {listing:#?}");
        shown.extend(listing);
    }
    for entry in TUTORIAL {
        let head = format!("pub fn {}(", entry.name);
        assert!(shown.iter().any(|line| line.starts_with(&head)), "no page shows `{}`", entry.name);
    }
}

/// The stages of a kernel are what the compiler makes of it today. `BLESS=1` writes them into the page.
#[test]
fn the_page_shows_the_stages() {
    let mut page = TRITON.to_owned();
    for stage in ["tile", "threads", "ptx"] {
        let arguments = ["explain", "tutorial/normalise", "--arch", "sm_90a", "--stage", stage];
        let output = Command::new(env!("CARGO_BIN_EXE_tilewright")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        // Of PTX the instructions alone: directives and the loading of parameters are the same in every kernel.
        let shown: String = match stage {
            "ptx" => {
                let mut lines: Vec<&str> = text.lines().collect();
                let is_head = |line: &&str| line.trim().starts_with('.') || line.contains("ld.param");
                lines.drain(..=lines.iter().rposition(is_head).unwrap());
                lines.iter().map(|line| format!("{line}\n")).collect()
            }
            _ => text,
        };
        let marker = format!("<!-- stage {stage} -->\n");
        let start = page.find(&marker).expect(&marker) + marker.len();
        let end = start + page[start..].find("<!-- end -->").unwrap();
        page.replace_range(start..end, &format!("```text\n{shown}```\n"));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/triton.md"), &page).unwrap();
    } else {
        assert!(
            page == TRITON,
            "docs/triton.md is behind: run `BLESS=1 cargo test -p tilewright --test tutorial`"
        );
    }
}
