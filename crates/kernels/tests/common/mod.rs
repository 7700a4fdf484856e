//! Kernels with small inputs and their results, computed in f64: what the tests of this folder run.
#![allow(dead_code, reason = "each test uses a part")]

use half::bf16;
use tilewright_compiler::Compiler;
use tilewright_hardware::{Arch, OobFill, SwizzleMode, TensorMapSpec};
use tilewright_lang::Kernel;
use tilewright_sim::tensor::tensor_map::{Access, DataType, Spec};
use tilewright_sim::{Arg, Buffer, Launch, Module, Options, Report, Simulator, TensorMap};

/// How a buffer must look in the end.
pub(crate) struct Expected {
    buffer: Buffer,
    element: Element,
    values: Vec<f64>,
    /// Largest difference, relative to the largest of the values.
    tolerance: f64,
}

#[derive(Clone, Copy)]
enum Element {
    F32,
    Bf16,
}

/// What a kernel is run with.
pub(crate) struct Inputs {
    pub(crate) arguments: Vec<Arg>,
    pub(crate) expected: Expected,
}

/// A kernel with inputs.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) launch: Launch,
    pub(crate) prepare: Box<dyn Fn(&mut Simulator) -> Inputs + Sync>,
}

/// What became of a run.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    /// What is wrong with the result, if anything.
    pub(crate) wrong: Option<String>,
}

impl Case {
    /// A kernel of our own; `grid` blocks.
    fn compiled(
        name: &'static str,
        kernel: &Kernel,
        arch: Arch,
        grid: [u32; 3],
        prepare: impl Fn(&mut Simulator) -> Inputs + Sync + 'static,
    ) -> Case {
        let code = Compiler::new(arch).compile(kernel.func()).unwrap().code;
        let block = code.launch.threads.unwrap();
        let launch = Launch { grid, block, cluster: None, shared_bytes: code.shared.dynamic };
        Case { name, text: code.text, launch, prepare: Box::new(prepare) }
    }

    /// Runs a text in place of the kernel's own, which may be broken.
    pub(crate) fn run(&self, text: &str, options: Options) -> Result<Outcome, String> {
        let module = Module::parse(text).map_err(|error| error.to_string())?;
        let mut sim = Simulator::new(options);
        let inputs = (self.prepare)(&mut sim);
        let entry = module.entries()[0].to_owned();
        let report = sim
            .launch(&module, &entry, &self.launch, &inputs.arguments)
            .map_err(|error| error.to_string())?;
        let wrong = compare(&sim, &inputs.expected);
        Ok(Outcome { report, wrong })
    }
}

fn compare(sim: &Simulator, expected: &Expected) -> Option<String> {
    let found: Vec<f64> = match expected.element {
        Element::F32 => sim.download::<f32>(expected.buffer).unwrap().into_iter().map(f64::from).collect(),
        Element::Bf16 => sim.download::<bf16>(expected.buffer).unwrap().into_iter().map(f64::from).collect(),
    };
    let largest = expected.values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let close = |(x, y): (&f64, &f64)| (x - y).abs() <= expected.tolerance * largest;
    let at = found.iter().zip(&expected.values).position(|pair| !close(pair))?;
    Some(format!("element {at} is {}, expected {}", found[at], expected.values[at]))
}

/// Numbers that are neither all the same nor in a pattern of powers of two: small multiples of 1/8, so that they are exact.
pub(crate) fn numbers(count: usize, salt: u32) -> Vec<f32> {
    let step = |i: usize| {
        (u32::try_from(i).unwrap().wrapping_mul(2_654_435_761) ^ salt.wrapping_mul(0x9E37_79B9)) >> 16
    };
    (0..count).map(|i| f32::from(i16::try_from(step(i) % 33).unwrap() - 16) / 8.0).collect()
}

/// `out = x + y`
pub(crate) fn vector_add(kernel: &Kernel, arch: Arch) -> Case {
    Case::compiled("vector_add", kernel, arch, [4, 1, 1], |sim| {
        let count = 1000;
        let (x, y) = (numbers(count, 1), numbers(count, 2));
        let values = x.iter().zip(&y).map(|(x, y)| f64::from(x + y)).collect();
        let (x, y, out) = (sim.upload(&x), sim.upload(&y), sim.alloc_named("out", count * 4));
        let arguments = vec![Arg::Buffer(x), Arg::Buffer(y), Arg::Buffer(out), Arg::U32(1000)];
        Inputs {
            arguments,
            expected: Expected { buffer: out, element: Element::F32, values, tolerance: 0.0 },
        }
    })
}

/// The transpose of a matrix whose extents are no multiples of the tile's.
pub(crate) fn transpose(kernel: &Kernel, arch: Arch) -> Case {
    Case::compiled("transpose", kernel, arch, [3, 2, 1], |sim| {
        let (rows, columns) = (40, 70);
        let x = numbers(rows * columns, 3);
        let values = (0..rows * columns).map(|i| f64::from(x[i % rows * columns + i / rows])).collect();
        let (x, out) = (sim.upload(&x), sim.alloc_named("out", rows * columns * 4));
        let arguments = vec![Arg::Buffer(x), Arg::Buffer(out), Arg::U32(40), Arg::U32(70)];
        Inputs {
            arguments,
            expected: Expected { buffer: out, element: Element::F32, values, tolerance: 0.0 },
        }
    })
}

/// Sums, which are exact because the numbers are.
pub(crate) fn sum(name: &'static str, kernel: &Kernel, arch: Arch, blocks: u32) -> Case {
    Case::compiled(name, kernel, arch, [blocks, 1, 1], |sim| {
        let x = numbers(4103, 4);
        let values = vec![5.0 + x.iter().map(|&x| f64::from(x)).sum::<f64>()];
        let (x, out) = (sim.upload(&x), sim.upload(&[5.0f32]));
        let arguments = vec![Arg::Buffer(x), Arg::Buffer(out), Arg::U32(4103)];
        Inputs {
            arguments,
            expected: Expected { buffer: out, element: Element::F32, values, tolerance: 0.0 },
        }
    })
}

/// Extents of a matrix product.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// The factors, and what `c = a * b^T` must be, computed once for all runs.
struct Matrices {
    size: Product,
    a: Vec<u8>,
    b: Vec<u8>,
    values: Vec<f64>,
}

impl Product {
    /// `a` (m, k), `b` (n, k) and their product.
    fn matrices(self) -> Matrices {
        let Product { m, n, k } = self;
        let (a, b) = (numbers(m * k, 5), numbers(n * k, 6));
        let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(&x, &y)| f64::from(x * y)).sum::<f64>();
        let values = a.chunks(k).flat_map(|x| b.chunks(k).map(move |y| dot(x, y))).collect();
        let bytes = |x: &[f32]| x.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
        Matrices { size: self, a: bytes(&a), b: bytes(&b), values }
    }
}

impl Matrices {
    /// Buffers of `a`, `b` and `c`, and how `c` must look in the end.
    fn upload(&self, sim: &mut Simulator) -> ([Buffer; 3], Expected) {
        let (a, b) = (sim.upload_bytes("a", &self.a), sim.upload_bytes("b", &self.b));
        let c = sim.alloc_named("c", self.size.m * self.size.n * 2);
        let values = self.values.clone();
        let expected = Expected { buffer: c, element: Element::Bf16, values, tolerance: 1.0 / 256.0 };
        ([a, b, c], expected)
    }
}

/// A product through pointers.
pub(crate) fn product_by_pointers(
    name: &'static str,
    kernel: &Kernel,
    arch: Arch,
    tile: (usize, usize),
    size: Product,
) -> Case {
    let grid = [u32::try_from(size.n / tile.1).unwrap(), u32::try_from(size.m / tile.0).unwrap(), 1];
    let matrices = size.matrices();
    Case::compiled(name, kernel, arch, grid, move |sim| {
        let ([a, b, c], expected) = matrices.upload(sim);
        let (n, k) = (u32::try_from(size.n).unwrap(), u32::try_from(size.k).unwrap());
        let arguments = vec![Arg::Buffer(a), Arg::Buffer(b), Arg::Buffer(c), Arg::U32(n), Arg::U32(k)];
        Inputs { arguments, expected }
    })
}

/// A product through tensor maps; the last argument is the number of steps.
pub(crate) fn product_by_maps(
    name: &'static str,
    kernel: &Kernel,
    arch: Arch,
    tile: (usize, usize, usize),
    size: Product,
) -> Case {
    let grid = [u32::try_from(size.n / tile.1).unwrap(), u32::try_from(size.m / tile.0).unwrap(), 1];
    product_with(name, kernel, arch, grid, size, vec![size.k / tile.2])
}

/// A product through tensor maps by one cluster of so many blocks, which walks over tiles; the last arguments are rows and columns of
/// what it computes at a time, and the number of steps.
pub(crate) fn product_by_tiles(
    name: &'static str,
    kernel: &Kernel,
    blocks: u32,
    tile: (usize, usize, usize),
    size: Product,
) -> Case {
    let numbers = vec![size.m / tile.0 / blocks as usize, size.n / tile.1, size.k / tile.2];
    product_with(name, kernel, Arch::SM_90A, [blocks, 1, 1], size, numbers)
}

fn product_with(
    name: &'static str,
    kernel: &Kernel,
    arch: Arch,
    grid: [u32; 3],
    size: Product,
    numbers: Vec<usize>,
) -> Case {
    let spec = |name: &str| kernel.tensor_map(name).unwrap().clone();
    let (map_a, map_b, map_c) = (spec("a"), spec("b"), spec("c"));
    let matrices = size.matrices();
    Case::compiled(name, kernel, arch, grid, move |sim| {
        let ([a, b, c], expected) = matrices.upload(sim);
        let mut arguments = vec![
            map(&map_a, a, size.k, size.m),
            map(&map_b, b, size.k, size.n),
            map(&map_c, c, size.n, size.m),
        ];
        arguments.extend(numbers.iter().map(|&number| Arg::U32(u32::try_from(number).unwrap())));
        Inputs { arguments, expected }
    })
}

/// The tensor map of a matrix of bf16 with `rows` of `columns`.
fn map(spec: &TensorMapSpec, buffer: Buffer, columns: usize, rows: usize) -> Arg {
    let mut extents = [1; 5];
    extents[..spec.rank()].copy_from_slice(spec.box_dims());
    // Boxes of more than two dimensions split the columns: (inner, rows, outer).
    let (columns, rows) = (columns as u64, rows as u64);
    let inner = u64::from(spec.box_dims()[0]);
    let (dims, strides) = match spec.rank() {
        2 => (vec![columns, rows], vec![columns * 2]),
        _ => (vec![inner, rows, columns / inner], vec![columns * 2, inner * 2]),
    };
    let map = TensorMap::new(&Spec {
        data_type: DataType::Bf16,
        address: buffer.address(),
        dims: &dims,
        strides: &strides,
        access: Access::Tile { extents },
        element_strides: &vec![1; dims.len()],
        interleave: 0,
        swizzle: spec.swizzle(),
        fill: OobFill::Zeros,
    });
    Arg::TensorMap(map.unwrap())
}

/// The product in hand-written PTX, with clusters of `blocks`; `size` in tiles of `128 * blocks` by 64 by 64.
pub(crate) fn hopper_proof(name: &'static str, blocks: u32, grid: u32, size: Product) -> Case {
    let file = format!("{}/../sim/tests/scenarios/hopper_proof_cl{blocks}.ptx", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).unwrap();
    let launch = Launch::new(grid, 384).shared(66592);
    let matrices = size.matrices();
    let prepare = move |sim: &mut Simulator| {
        let ([a, b, c], expected) = matrices.upload(sim);
        let spec = |rows: u32| {
            TensorMapSpec::new(tilewright_hardware::Element::BF16, &[64, rows], SwizzleMode::B128).unwrap()
        };
        let number = |x: usize| Arg::U32(u32::try_from(x).unwrap());
        let arguments = vec![
            map(&spec(128), a, size.k, size.m),
            map(&spec(64 / blocks), b, size.k, size.n),
            map(&spec(64), c, size.n, size.m),
            number(size.m),
            number(size.n),
            number(size.k),
        ];
        Inputs { arguments, expected }
    };
    Case { name, text, launch, prepare: Box::new(prepare) }
}
