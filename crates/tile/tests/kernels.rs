//! Kernels of the tile level in the simulator: right, and without a finding.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

use tilewright_codegen::Options as Codegen;
use tilewright_hardware::Arch;
use tilewright_ir::{Module, parse, verify};
use tilewright_passes::Pipeline;
use tilewright_sim::{Arg, Launch, Options, Simulator};

/// Lowers, compiles with and without passes, runs `programs` programs, and gives the output of `out` elements.
fn run(text: &str, arch: Arch, programs: u32, inputs: &[&[f32]], scalars: &[u32], out: usize) -> Vec<f32> {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(verify(&module), []);
    let lowered = tilewright_tile::lower(&module.funcs[0], arch).unwrap();
    let problems = verify(&Module::from(lowered.func.clone()));
    assert!(problems.is_empty(), "{problems:?}\n{}", lowered.func);
    let mut outputs = Vec::new();
    for pipeline in [Pipeline::standard(), Pipeline::of(&[])] {
        let mut module = Module::from(lowered.func.clone());
        pipeline.run(&mut module).unwrap();
        let code = tilewright_codegen::compile(&module.funcs[0], &Codegen::new(arch)).unwrap();
        let ptx = tilewright_sim::Module::parse(&code.text)
            .unwrap_or_else(|error| panic!("{error}\n{}", code.text));
        let launch = module.funcs[0].launch;
        let cluster = launch.cluster.map_or(1, |c| c[0]);
        let mut sim = Simulator::new(Options { seed: 7, chip: Some(arch), ..Options::default() });
        let buffers: Vec<_> = inputs.iter().map(|data| sim.upload(data)).collect();
        let result = sim.alloc(4 * out);
        let mut args: Vec<Arg> = buffers.iter().map(|&b| Arg::Buffer(b)).collect();
        args.push(Arg::Buffer(result));
        args.extend(scalars.iter().map(|&s| Arg::U32(s)));
        let shape =
            Launch::new(programs * cluster, launch.total_threads().unwrap()).shared(code.shared.dynamic);
        let report = sim.launch(&ptx, &code.entry, &shape, &args).unwrap();
        assert!(report.findings.is_empty(), "{:#?}\n{}", report.findings, code.text);
        outputs.push(sim.download::<f32>(result).unwrap());
    }
    assert_eq!(outputs[0], outputs[1], "passes change results");
    outputs.swap_remove(0)
}

fn softmax_text(columns: u32) -> String {
    format!(
        "func @softmax (%x: ptr<global> align(16), %out: ptr<global> align(16), %rows: u32, %columns: u32) {{
           %0 = special reg(ctaid.x) : u32
           %1 = bitcast %0 : i32
           %2 = const value(0) : i32
           %3 = const value(1) : i64
           %4 = const value(0xff800000) : f32
           %30 = cvt %columns : i64
           %5 = tile_load %x, %1, %2, %rows, %columns, %30, %3, %4 : tile<1x{columns}xf32>
           %6 = tile_reduce %5 axis(1) : tile<1x1xf32> do {{
             (%7: f32, %8: f32)
             %9 = max %7, %8 : f32
             yield %9
           }}
           %10 = broadcast %6 : tile<1x{columns}xf32>
           %11 = map %5, %10 : tile<1x{columns}xf32> do {{
             (%12: f32, %13: f32)
             %14 = sub %12, %13 : f32
             %15 = ex2 %14 : f32
             yield %15
           }}
           %16 = tile_reduce %11 axis(1) : tile<1x1xf32> do {{
             (%17: f32, %18: f32)
             %19 = add %17, %18 : f32
             yield %19
           }}
           %20 = broadcast %16 : tile<1x{columns}xf32>
           %21 = map %11, %20 : tile<1x{columns}xf32> do {{
             (%22: f32, %23: f32)
             %24 = div %22, %23 : f32
             yield %24
           }}
           tile_store %out, %21, %1, %2, %rows, %columns, %30, %3
         }}"
    )
}

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as f32 / 6553.6 - 5.0
        })
        .collect()
}

#[test]
fn softmax_of_any_width() {
    for (tile, columns) in
        [(1, 1), (32, 20), (100, 100), (256, 256), (1536, 1536), (1000, 997), (40000, 40000)]
    {
        for arch in [Arch::SM_80, Arch::SM_90A] {
            if arch == Arch::SM_80 && tile > 16384 {
                continue;
            }
            let rows = 3;
            let x = noise(rows * columns, 1);
            let found =
                run(&softmax_text(tile), arch, rows as u32, &[&x], &[rows as u32, columns as u32], x.len());
            for row in 0..rows {
                let line = &x[row * columns..(row + 1) * columns];
                let most = line.iter().copied().fold(f32::MIN, f32::max);
                let sum: f64 = line.iter().map(|&v| f64::from(v - most).exp2()).sum();
                for (i, &v) in line.iter().enumerate() {
                    let expected = f64::from(v - most).exp2() / sum;
                    let got = f64::from(found[row * columns + i]);
                    let near = (got - expected).abs() <= 1e-5 * expected + 1e-30;
                    assert!(near, "{tile} {columns} {row} {i}: {got} {expected}");
                }
            }
        }
    }
}

/// `body` turns `%x`, a tile of `shape` from row-major memory, into `%y` of `after`.
fn whole(shape: &str, after: &str, body: &str) -> String {
    let mut consts = String::new();
    let mut access = |name: &str, shape: &str| {
        let e: Vec<u32> = shape.split('x').map(|e| e.parse().unwrap()).collect();
        for (i, extent) in e.iter().enumerate() {
            let stride: u32 = e[i + 1..].iter().product();
            consts +=
                &format!("%{name}s{i} = const value(0) : i32\n%{name}e{i} = const value({extent}) : u32\n");
            consts += &format!("%{name}t{i} = const value({stride}) : i64\n");
        }
        let part = |part: &str| (0..e.len()).map(|i| format!("%{name}{part}{i}")).collect::<Vec<_>>();
        [part("s"), part("e"), part("t")].concat().join(", ")
    };
    let (from, to) = (access("a", shape), access("b", after));
    format!(
        "func @k (%p: ptr<global> align(16), %q: ptr<global> align(16)) {{
           {consts}
           %pad = const value(0) : f32
           %x = tile_load %p, {from}, %pad : tile<{shape}xf32>
           {body}
           tile_store %q, %y, {to}
         }}"
    )
}

const SUM: &str = "do {
  (%u: f32, %v: f32)
  %w = add %u, %v : f32
  yield %w
}";

/// Composition of affine maps `x -> m x + c`, which does not commute.
const AFFINE: &str = "do {
  (%m1: f32, %c1: f32, %m2: f32, %c2: f32)
  %m3 = mul %m1, %m2 : f32
  %c3 = fma %m2, %c1, %c2 : f32
  yield %m3, %c3
}";

fn extents(shape: &str) -> Vec<usize> {
    shape.split('x').map(|e| e.parse().unwrap()).collect()
}

#[test]
fn sums_along_every_axis() {
    for (shape, axis, after) in [
        ("7x33", 0, "1x33"),
        ("7x33", 1, "7x1"),
        ("64x64", 0, "1x64"),
        ("5x6x70", 1, "5x1x70"),
        ("300", 0, "1"),
        ("2x5000", 1, "2x1"),
    ] {
        let text =
            whole(shape, after, &format!("%y = tile_reduce %x axis({axis}) : tile<{after}xf32> {SUM}"));
        let e = extents(shape);
        let n: usize = e.iter().product();
        let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32).collect();
        let (inner, along): (usize, usize) = (e[axis + 1..].iter().product(), e[axis]);
        let mut expected = vec![0.0; n / along];
        for (i, v) in x.iter().enumerate() {
            expected[i / (inner * along) * inner + i % inner] += v;
        }
        for arch in [Arch::SM_80, Arch::SM_90A] {
            assert_eq!(run(&text, arch, 1, &[&x], &[], expected.len()), expected, "{shape} {axis}");
        }
    }
}

#[test]
fn scans_along_every_axis_and_both_ways() {
    let shapes = [
        ("7x33", 0),
        ("7x33", 1),
        ("4x4096", 1),
        ("1x1536", 1),
        ("33x5", 0),
        ("3x50x7", 1),
        ("1000", 0),
        ("1", 0),
        // Shared by a cluster, with a block that has less, and with several lines.
        ("1x40000", 1),
        ("3x20000", 1),
        ("20000x3", 0),
    ];
    for (shape, axis) in shapes {
        for flags in ["", "flags(reverse)"] {
            let affine = whole(
                shape,
                shape,
                &format!(
                    "%one = const value(1) : f32
                     %ones = splat %one : tile<{shape}xf32>
                     %m, %y = tile_scan %ones, %x axis({axis}) {flags} : tile<{shape}xf32>, tile<{shape}xf32> {AFFINE}"
                ),
            );
            let plain = whole(
                shape,
                shape,
                &format!("%y = tile_scan %x axis({axis}) {flags} : tile<{shape}xf32> {SUM}"),
            );
            let e = extents(shape);
            let n: usize = e.iter().product();
            let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 11) as f32).collect();
            let (inner, along): (usize, usize) = (e[axis + 1..].iter().product(), e[axis]);
            let mut expected = x.clone();
            for i in 0..n {
                let j = if flags.is_empty() { i } else { n - 1 - i };
                let position = j / inner % along;
                let first = if flags.is_empty() { position == 0 } else { position == along - 1 };
                if !first {
                    let before = if flags.is_empty() { j - inner } else { j + inner };
                    expected[j] += expected[before];
                }
            }
            for text in [&affine, &plain] {
                assert_eq!(run(text, Arch::SM_90A, 1, &[&x], &[], n), expected, "{shape} {axis} {flags}");
            }
        }
    }
}

#[test]
fn shapes_change() {
    let transposed = |x: &[f32], rows: usize, columns: usize| -> Vec<f32> {
        (0..columns).flat_map(|c| (0..rows).map(move |r| (r, c))).map(|(r, c)| x[r * columns + c]).collect()
    };
    for (rows, columns) in [(7, 33), (64, 64), (128, 16)] {
        let x = noise(rows * columns, 3);
        let text = whole(
            &format!("{rows}x{columns}"),
            &format!("{columns}x{rows}"),
            &format!("%y = transpose %x axes(1,0) : tile<{columns}x{rows}xf32>"),
        );
        assert_eq!(run(&text, Arch::SM_90A, 1, &[&x], &[], x.len()), transposed(&x, rows, columns));
    }
    let x = noise(24 * 10, 4);
    let text = whole("24x10", "2x12x10", "%y = reshape %x : tile<2x12x10xf32>");
    assert_eq!(run(&text, Arch::SM_90A, 1, &[&x], &[], x.len()), x);
    let text = whole("24x10", "24x20", "%y = cat %x, %x axis(1) : tile<24x20xf32>");
    let twice: Vec<f32> = x.chunks(10).flat_map(|row| [row, row].concat()).collect();
    assert_eq!(run(&text, Arch::SM_90A, 1, &[&x], &[], twice.len()), twice);
    let text = whole("24x10", "24x3", "%y = part %x axis(1) index(6) : tile<24x3xf32>");
    let parts: Vec<f32> = x.chunks(10).flat_map(|row| row[6..9].to_vec()).collect();
    assert_eq!(run(&text, Arch::SM_90A, 1, &[&x], &[], parts.len()), parts);
}

/// `c = a * b` of whole matrices in one program, factors and sums of these types, small integers so that all sums are exact.
fn product(m: usize, n: usize, k: usize, (element, sum): (&str, &str), flags: &str, transposed: bool) {
    let b_shape = if transposed { (n, k) } else { (k, n) };
    let turn = |cast: &str, from: &str, to: &str, shape: (usize, usize)| {
        format!(
            "%{to} = map %{from} : tile<{}x{}x{element}> do {{\n (%v{to}: f32)\n %w{to} = {cast} %v{to} : {element}\n yield %w{to}\n }}",
            shape.0, shape.1
        )
    };
    let cast = |from: &str, to: &str, shape| {
        if element == "f32" {
            (String::new(), from.to_owned())
        } else {
            (turn("cvt", from, to, shape), to.to_owned())
        }
    };
    let (cast_a, a) = cast("x", "xa", (m, k));
    let (cast_b, b) = cast("z", "zb", b_shape);
    let (flip, b) = if transposed {
        (format!("%t = transpose %{b} axes(1,0) : tile<{k}x{n}x{element}>"), "t".to_owned())
    } else {
        (String::new(), b)
    };
    let back = if sum == "f32" {
        "".to_owned()
    } else {
        format!(
            "%y = map %yy : tile<{m}x{n}xf32> do {{\n (%vs: {sum})\n %ws = cvt %vs : f32\n yield %ws\n }}"
        )
    };
    let result = if sum == "f32" { "y" } else { "yy" };
    // Halves are written as bits.
    let zero = if sum == "f16" { "0x0000" } else { "0" };
    let text = format!(
        "func @k (%p: ptr<global> align(16), %r: ptr<global> align(16), %q: ptr<global> align(16)) {{
           %s = const value(0) : i32
           %one = const value(1) : i64
           %m = const value({m}) : u32\n %n = const value({n}) : u32\n %k = const value({k}) : u32
           %b0 = const value({}) : u32\n %b1 = const value({}) : u32\n %bs = const value({}) : i64
           %ks = const value({k}) : i64\n %ns = const value({n}) : i64
           %pad = const value(0) : f32
           %x = tile_load %p, %s, %s, %m, %k, %ks, %one, %pad : tile<{m}x{k}xf32>
           %z = tile_load %r, %s, %s, %b0, %b1, %bs, %one, %pad : tile<{}x{}xf32>
           {cast_a}
           {cast_b}
           {flip}
           %zero = const value({zero}) : {sum}
           %c = splat %zero : tile<{m}x{n}x{sum}>
           %{result} = dot %{a}, %{b}, %c {flags} : tile<{m}x{n}x{sum}>
           {back}
           tile_store %q, %y, %s, %s, %m, %n, %ns, %one
         }}",
        b_shape.0, b_shape.1, b_shape.1, b_shape.0, b_shape.1
    );
    let x: Vec<f32> = (0..m * k).map(|i| ((i * 7) % 5) as f32 - 2.0).collect();
    let z: Vec<f32> = (0..n * k).map(|i| ((i * 11) % 7) as f32 - 3.0).collect();
    let mut expected = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            expected[i * n + j] =
                (0..k).map(|l| x[i * k + l] * if transposed { z[j * k + l] } else { z[l * n + j] }).sum();
        }
    }
    for arch in [Arch::SM_80, Arch::SM_90A] {
        if element.starts_with('e') && arch == Arch::SM_80 {
            continue;
        }
        let found = run(&text, arch, 1, &[&x, &z], &[], m * n);
        assert_eq!(found, expected, "{m} {n} {k} {element} {sum} {flags} {transposed} {arch}");
    }
}

#[test]
fn products_of_all_types() {
    for transposed in [false, true] {
        product(64, 64, 64, ("bf16", "f32"), "", transposed);
        product(16, 24, 32, ("f16", "f32"), "", transposed);
        product(32, 16, 64, ("i8", "i32"), "", transposed);
        product(32, 16, 32, ("f32", "f32"), "flags(tf32)", transposed);
        product(32, 48, 16, ("f32", "f32"), "", transposed);
        product(16, 16, 64, ("e4m3", "f32"), "", transposed);
        product(16, 24, 32, ("f16", "f16"), "", transposed);
        product(16, 16, 64, ("e5m2", "f16"), "", transposed);
        product(7, 5, 3, ("f16", "f16"), "", transposed);
        product(7, 5, 3, ("bf16", "f32"), "", transposed);
        product(128, 128, 32, ("bf16", "f32"), "", transposed);
    }
}
