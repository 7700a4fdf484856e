//! Problems with inputs: runs a recipe and compares D, and what lies between the rows of D, with what must be there.

use std::sync::LazyLock;

use tilewright::device::{Device, DeviceKind, DynBuffer, Options};
use tilewright::gemm::{Operands, Prepared};
use tilewright::hardware::{Arch, Element};
use tilewright::kernels::gemm::{Batching, Operand, Placement, Problem, Recipe, Storage};
use tilewright::lang::{bf16, f16};

/// Bytes of D before a run: no number that a product gives.
const POISON: u8 = 0xA5;

/// A problem with its numbers.
pub(crate) struct Case {
    pub(crate) problem: Problem,
    /// Numbers of the run.
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    /// Elements are whole numbers from minus this to this; small ones give exact sums in every type.
    pub(crate) largest: i32,
    /// Largest difference, relative to the largest element of the result; 0 compares exactly.
    pub(crate) tolerance: f64,
}

impl Case {
    pub(crate) fn new(problem: Problem) -> Case {
        Case { problem, alpha: 1.0, beta: 0.0, largest: 3, tolerance: 0.0 }
    }

    /// Runs a recipe for the problem in the simulator with some seeds, and on a GPU if there is one of the kind that recipes are made
    /// for here; panics if anything is found or wrong.
    pub(crate) fn check(&self, recipe: &Recipe) {
        for seed in [1, 2] {
            let device = Device::simulator_with(Options { seed, ..Options::default() });
            self.check_on(&device, recipe, u64::from(seed == 2));
        }
        static HOPPER: LazyLock<Option<Device>> =
            LazyLock::new(|| Device::cuda(0).ok().filter(|device| device.arch() == Arch::SM_90A));
        if let Some(device) = &*HOPPER {
            self.check_on(device, recipe, 2);
        }
    }

    /// The same on any device.
    pub(crate) fn check_on(&self, device: &Device, recipe: &Recipe, salt: u64) {
        let problem = &self.problem;
        let (rows, columns, depth) = (problem.m as usize, problem.n as usize, problem.k as usize);
        let batch = problem.batch.max(1) as usize;
        let a = Filled::new(self, &problem.a, problem.types.a, (rows, depth), 2 * salt + 1);
        let b = Filled::new(self, &problem.b, problem.types.b, (depth, columns), 2 * salt + 100);
        let c = Filled::new(self, &problem.c, problem.types.c, (rows, columns), 2 * salt + 1000);
        let d_bytes = footprint(&problem.d, (rows, columns), batch) * problem.types.d.bytes() as usize;
        let d = device.upload(&vec![POISON; d_bytes]).unwrap();

        let workspace = device.upload(&workspace(recipe)).unwrap();
        let mut operands = Operands::new()
            .with(Operand::Workspace, &workspace)
            .with_scalar("alpha", self.alpha)
            .with_scalar("beta", self.beta);
        let mut keep = Vec::new();
        for (operand, filled) in [(Operand::A, &a), (Operand::B, &b), (Operand::C, &c)] {
            let memory = device.upload(&filled.for_device(device)).unwrap();
            operands =
                operands.with(operand, self.batched(device, &memory, filled.placement, filled.element));
            keep.push(memory);
        }
        operands = operands.with(Operand::D, self.batched(device, &d, &problem.d, problem.types.d));

        let prepared = Prepared::new(device, recipe, &operands).unwrap_or_else(|error| panic!("{error}"));
        // Twice: the second run finds the workspace as the first has left it.
        for _ in 0..2 {
            for report in prepared.run().unwrap_or_else(|error| panic!("{error}")) {
                report.expect_clean().unwrap_or_else(|error| panic!("{error}"));
            }
        }
        self.compare(&a, &b, &c, &d.to_vec().unwrap());
    }

    /// The operand itself, or the addresses of its members.
    fn batched(
        &self,
        device: &Device,
        memory: &tilewright::device::Buffer<u8>,
        placement: &Placement,
        element: Element,
    ) -> DynBuffer {
        match self.problem.batching {
            Batching::Strided => memory.into(),
            Batching::Pointers => {
                let first = DynBuffer::from(memory).address();
                let step = placement.batch_stride * u64::from(element.bytes());
                let table: Vec<u64> = (0..u64::from(self.problem.batch)).map(|i| first + i * step).collect();
                (&device.upload(&table).unwrap()).into()
            }
        }
    }

    fn compare(&self, a: &Filled<'_>, b: &Filled<'_>, c: &Filled<'_>, found: &[u8]) {
        let problem = &self.problem;
        let (rows, columns, depth) = (problem.m as usize, problem.n as usize, problem.k as usize);
        let width = problem.types.d.bytes() as usize;
        let mut expected = vec![None; found.len() / width];
        for member in 0..problem.batch as usize {
            for row in 0..rows {
                for column in 0..columns {
                    let product = |k| a.at(member, row, k) * b.at(member, k, column);
                    let sum: f64 = (0..depth).map(product).sum();
                    let value = if problem.epilogue.is_identity() {
                        sum
                    } else {
                        self.alpha * sum + self.beta * c.at(member, row, column)
                    };
                    expected[index(&problem.d, member, row, column)] = Some(value);
                }
            }
        }
        let largest = expected.iter().flatten().fold(0.0f64, |most, value| most.max(value.abs()));
        for (i, expected) in expected.iter().enumerate() {
            let bytes = &found[i * width..(i + 1) * width];
            let Some(expected) = *expected else {
                assert!(
                    bytes.iter().all(|&byte| byte == POISON),
                    "element {i} lies between rows and was written"
                );
                continue;
            };
            let value = decode(problem.types.d, bytes);
            let rounded = decode(problem.types.d, &encode(problem.types.d, expected));
            let close = (value - rounded).abs() <= self.tolerance * largest;
            assert!(close, "element {i} of D is {value}, expected {rounded}; {problem:?}");
        }
    }
}

/// Scratch memory as a recipe wants it: zero where it says so, and otherwise anything.
fn workspace(recipe: &Recipe) -> Vec<u8> {
    let (all, zeroed) = (usize::try_from(recipe.workspace).unwrap(), usize::try_from(recipe.zeroed).unwrap());
    (0..all.max(1)).map(|i| if i < zeroed { 0 } else { 0x7f }).collect()
}

/// Where an element lies, in elements.
fn index(placement: &Placement, member: usize, row: usize, column: usize) -> usize {
    let (slow, fast) = match placement.storage {
        Storage::RowMajor => (row, column),
        Storage::ColumnMajor => (column, row),
    };
    let (leading, stride) =
        (usize::try_from(placement.leading).unwrap(), usize::try_from(placement.batch_stride).unwrap());
    member * stride + slow * leading + fast
}

/// Elements from the first to the last of a batch of matrices, and no further: what comes after is not theirs.
fn footprint(placement: &Placement, (rows, columns): (usize, usize), batch: usize) -> usize {
    if rows == 0 || columns == 0 { 0 } else { index(placement, batch - 1, rows - 1, columns - 1) + 1 }
}

/// A batch of matrices.
struct Filled<'a> {
    placement: &'a Placement,
    element: Element,
    bytes: Vec<u8>,
}

impl<'a> Filled<'a> {
    fn new(
        case: &Case,
        placement: &'a Placement,
        element: Element,
        extents: (usize, usize),
        salt: u64,
    ) -> Filled<'a> {
        let count = footprint(placement, extents, case.problem.batch.max(1) as usize);
        let span = u64::from(case.largest.unsigned_abs()) * 2 + 1;
        let number = |i: usize| {
            let mixed = (i as u64 + 1)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .wrapping_add(salt.wrapping_mul(0xD134_2543_DE82_EF95));
            let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let value = i32::try_from((mixed >> 33) % span).unwrap() - case.largest;
            f64::from(if element == Element::U8 { value.abs() } else { value })
        };
        Filled { placement, element, bytes: (0..count).flat_map(|i| encode(element, number(i))).collect() }
    }

    /// The bytes to upload: exactly these for the simulator. compute-sanitizer takes a `cp.async` of the first few bytes of 16 (which the
    /// hardware encodes in the low bits of the address) for one of all 16, so a GPU gets the rest of the last 16, too.
    fn for_device(&self, device: &Device) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if device.kind() == DeviceKind::Cuda {
            bytes.resize(bytes.len().next_multiple_of(16), POISON);
        }
        bytes
    }

    fn at(&self, member: usize, row: usize, column: usize) -> f64 {
        let (i, width) = (index(self.placement, member, row, column), self.element.bytes() as usize);
        decode(self.element, &self.bytes[i * width..(i + 1) * width])
    }
}

/// The bytes of the element nearest to a number.
pub(crate) fn encode(element: Element, value: f64) -> Vec<u8> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded to the type, as kernels do"
    )]
    match element {
        Element::BF16 => bf16::from_f64(value).to_bits().to_le_bytes().to_vec(),
        Element::F16 => f16::from_f64(value).to_bits().to_le_bytes().to_vec(),
        Element::F32 | Element::TF32 => (value as f32).to_le_bytes().to_vec(),
        Element::F64 => value.to_le_bytes().to_vec(),
        Element::I32 => (value as i32).to_le_bytes().to_vec(),
        Element::I8 => (value.round_ties_even() as i8).to_le_bytes().to_vec(),
        Element::U8 => (value.round_ties_even() as u8).to_le_bytes().to_vec(),
        Element::E4M3 | Element::E5M2 => vec![nearest_small(element, value)],
        other => panic!("no test has elements of {other}"),
    }
}

/// The number that an element stands for.
pub(crate) fn decode(element: Element, bytes: &[u8]) -> f64 {
    match element {
        Element::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        Element::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        Element::F32 | Element::TF32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        Element::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        Element::I32 => f64::from(i32::from_le_bytes(bytes.try_into().unwrap())),
        Element::I8 => f64::from(i8::from_le_bytes([bytes[0]])),
        Element::U8 => f64::from(bytes[0]),
        Element::E4M3 | Element::E5M2 => small(element, bytes[0]),
        other => panic!("no test has elements of {other}"),
    }
}

/// The value of an 8-bit float.
fn small(element: Element, bits: u8) -> f64 {
    let (mantissa_bits, bias) = if element == Element::E4M3 { (3, 7) } else { (2, 15) };
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from((bits & 0x7f) >> mantissa_bits), bits & ((1 << mantissa_bits) - 1));
    let fraction = f64::from(mantissa) / f64::from(1 << mantissa_bits);
    match (element, exponent, bits & 0x7f) {
        (Element::E4M3, _, 0x7f) => f64::NAN,
        (Element::E5M2, 31, magnitude) => {
            if magnitude == 0x7c {
                sign * f64::INFINITY
            } else {
                f64::NAN
            }
        }
        (_, 0, _) => sign * fraction * f64::from(1 - bias).exp2(),
        _ => sign * (1.0 + fraction) * f64::from(exponent - bias).exp2(),
    }
}

/// The 8-bit float nearest to a number; beyond the largest, the largest.
fn nearest_small(element: Element, value: f64) -> u8 {
    let finite = (0..=255u8).filter(|&bits| small(element, bits).is_finite());
    finite
        .min_by(|&x, &y| {
            let distance = |bits| (small(element, bits) - value).abs();
            // Of two at the same distance the even one, and of the zeros the one with the right sign.
            let order = |bits: u8| (bits & 1, (bits >= 0x80) != value.is_sign_negative());
            distance(x).total_cmp(&distance(y)).then(order(x).cmp(&order(y)))
        })
        .unwrap()
}

#[test]
fn eight_bit_floats_are_read_and_written() {
    for (element, value, bits) in [
        (Element::E4M3, 1.0, 0x38),
        (Element::E4M3, -448.0, 0xfe),
        (Element::E4M3, 1000.0, 0x7e),
        (Element::E5M2, 3.0, 0x42),
        (Element::E5M2, 57344.0, 0x7b),
    ] {
        assert_eq!(nearest_small(element, value), bits, "{value} as {element}");
    }
    assert_eq!(small(Element::E4M3, 0xfe), -448.0);
}
