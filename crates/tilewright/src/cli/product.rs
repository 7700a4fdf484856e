//! A matrix product as users ask for it, and as a problem of the library.

use std::fmt;
use std::str::FromStr;

use tilewright::hardware::{Element, Gpu, TensorKind};
use tilewright::kernels::gemm::epilogue::Epilogue;
use tilewright::kernels::gemm::{Placement, Problem, Storage, Types};

use super::Failure;
use super::shape::Shape;

/// The types that can be asked for, by the type of the factors.
pub(super) const TYPES: [Element; 8] = [
    Element::BF16,
    Element::F16,
    Element::TF32,
    Element::F32,
    Element::F64,
    Element::I8,
    Element::E4M3,
    Element::E5M2,
];

/// A type, by its name.
pub(super) fn element(text: &str) -> Result<Element, String> {
    TYPES.into_iter().find(|element| element.to_string() == text).ok_or_else(|| {
        let known: Vec<String> = TYPES.iter().map(Element::to_string).collect();
        format!("found the type `{text}`, expected one of {}", known.join(", "))
    })
}

/// How the factors lie, in the [two letters of BLAS](Storage::of_blas).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    a: Storage,
    b: Storage,
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        let (a, b) = Storage::of_blas(text)
            .ok_or_else(|| format!("found the layout `{text}`, expected tn, nn, tt or nt"))?;
        Ok(Layout { a, b })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let a = if self.a == Storage::RowMajor { "t" } else { "n" };
        let b = if self.b == Storage::ColumnMajor { "n" } else { "t" };
        write!(f, "{a}{b}")
    }
}

/// What is applied to the sums after the bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Activation {
    #[default]
    None,
    Relu,
    Gelu,
}

/// What happens to the sums: a bias for each column, then an activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) bias: bool,
    pub(super) activation: Activation,
}

/// The operand of the epilogue that holds the bias.
pub(super) const BIAS: &str = "bias";

/// Its type: that of the result, but f32 for integers, to whose sums epilogues apply in f32.
pub(super) fn bias_element(result: Element) -> Element {
    if result.is_int() { Element::F32 } else { result }
}

/// Every finish with its name.
const FINISHES: [(&str, Finish); 6] = [
    ("none", Finish { bias: false, activation: Activation::None }),
    ("bias", Finish { bias: true, activation: Activation::None }),
    ("relu", Finish { bias: false, activation: Activation::Relu }),
    ("gelu", Finish { bias: false, activation: Activation::Gelu }),
    ("bias+relu", Finish { bias: true, activation: Activation::Relu }),
    ("bias+gelu", Finish { bias: true, activation: Activation::Gelu }),
];

impl FromStr for Finish {
    type Err = String;

    fn from_str(text: &str) -> Result<Finish, String> {
        FINISHES.iter().find(|(name, _)| *name == text).map(|(_, finish)| *finish).ok_or_else(|| {
            let known: Vec<&str> = FINISHES.iter().map(|(name, _)| *name).collect();
            format!("found the epilogue `{text}`, expected one of {}", known.join(", "))
        })
    }
}

impl fmt::Display for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = FINISHES.iter().find(|(_, finish)| finish == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

impl Finish {
    /// The same to the library, for results of this type.
    fn epilogue(self, result: Element) -> Epilogue {
        let epilogue = Epilogue::identity();
        let epilogue =
            if self.bias { epilogue.bias_per_column(BIAS, bias_element(result)) } else { epilogue };
        match self.activation {
            Activation::None => epilogue,
            Activation::Relu => epilogue.relu(),
            // As cuBLASLt computes it.
            Activation::Gelu => epilogue.gelu_tanh(),
        }
    }

    /// How far a kernel may be off with what it applies to a sum, as a part of that sum: the GPU's own tanh is right to about 2^-11.
    pub(super) fn slack(self) -> f64 {
        match self.activation {
            Activation::None | Activation::Relu => 0.0,
            Activation::Gelu => f64::exp2(-10.0),
        }
    }

    /// What becomes of a sum, in f64.
    pub(super) fn apply(self, sum: f64, bias: f64) -> f64 {
        let x = if self.bias { sum + bias } else { sum };
        match self.activation {
            Activation::None => x,
            Activation::Relu => x.max(0.0),
            Activation::Gelu => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
        }
    }
}

/// One product to measure. D is row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) shape: Shape,
    pub(super) element: Element,
    pub(super) layout: Layout,
    pub(super) finish: Finish,
}

impl Case {
    /// As the library sees it.
    pub(super) fn problem(&self) -> Result<Problem, Failure> {
        let Shape { m, n, k, batch, pad } = self.shape;
        let placed = |storage, rows, columns| {
            let dense = Placement::dense(storage, rows as usize, columns as usize);
            let lines = if storage == Storage::RowMajor { rows } else { columns };
            let leading = dense.leading + u64::from(pad);
            Placement { leading, batch_stride: leading * u64::from(lines), ..dense }
        };
        let (d, types) = (placed(Storage::RowMajor, m, n), Types::of(self.element));
        let problem = Problem {
            batch,
            a: placed(self.layout.a, m, k),
            b: placed(self.layout.b, k, n),
            c: d,
            d,
            epilogue: self.finish.epilogue(types.d),
            ..Problem::new(m, n, k, types)
        };
        problem.check().map_err(Failure::input)?;
        problem.epilogue.check(&problem).map_err(Failure::input)?;
        Ok(problem)
    }

    /// Seconds that the published peaks of a GPU allow: for the arithmetic, and for every byte once.
    pub(super) fn roofline(&self, problem: &Problem, gpu: &Gpu) -> Roofline {
        let lanes = match self.element {
            Element::F32 => 2 * gpu.float_lanes,
            Element::F64 => (2 * gpu.double_lanes).max(gpu.tensor_rate(TensorKind::F64)),
            other => TensorKind::of(other).map_or(0, |kind| gpu.tensor_rate(kind)),
        };
        let peak = f64::from(lanes) * f64::from(gpu.multiprocessors) * gpu.clock;
        let arithmetic = if peak > 0.0 { problem.flops() / peak } else { 0.0 };
        Roofline { arithmetic, memory: problem.bytes() / gpu.dram }
    }
}

/// The least seconds that a product takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Roofline {
    arithmetic: f64,
    memory: f64,
}

impl Roofline {
    pub(super) fn seconds(self) -> f64 {
        self.arithmetic.max(self.memory)
    }

    pub(super) fn is_of_memory(self) -> bool {
        self.memory > self.arithmetic
    }
}

/// Where an element of a member of a batch lies, in elements.
pub(super) fn index(placement: &Placement, member: u32, row: u32, column: u32) -> u64 {
    let (slow, fast) = match placement.storage {
        Storage::RowMajor => (row, column),
        Storage::ColumnMajor => (column, row),
    };
    let members = u64::from(member).saturating_mul(placement.batch_stride);
    let lines = u64::from(slow).saturating_mul(placement.leading);
    members.saturating_add(lines).saturating_add(fast.into())
}

/// Elements from the first to the last of a batch of matrices: as many as a number of 64 bits can say, if there are more.
pub(super) fn footprint(placement: &Placement, rows: u32, columns: u32, batch: u32) -> u64 {
    match (rows.checked_sub(1), columns.checked_sub(1), batch.checked_sub(1)) {
        (Some(row), Some(column), Some(member)) => index(placement, member, row, column).saturating_add(1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(shape: &str, layout: &str) -> Case {
        Case {
            shape: shape.parse().unwrap(),
            element: Element::BF16,
            layout: layout.parse().unwrap(),
            finish: Finish::default(),
        }
    }

    #[test]
    fn letters_say_what_is_contiguous() {
        for (layout, k_major) in
            [("tn", (true, true)), ("nn", (false, true)), ("tt", (true, false)), ("nt", (false, false))]
        {
            let case = case("8x16x32", layout);
            assert_eq!(case.problem().unwrap().k_major(), k_major, "{layout}");
            assert_eq!(case.layout.to_string(), layout);
        }
        assert!("xy".parse::<Layout>().unwrap_err().contains("expected tn, nn, tt or nt"));
    }

    #[test]
    fn padding_is_between_lines_and_members() {
        let problem = case("8x16x32*3+5", "tn").problem().unwrap();
        assert_eq!((problem.a.leading, problem.b.leading, problem.d.leading), (37, 37, 21));
        assert_eq!((problem.a.batch_stride, problem.d.batch_stride), (8 * 37, 8 * 21));
        assert_eq!(footprint(&problem.d, 8, 16, 3), 2 * 8 * 21 + 7 * 21 + 16);
        assert_eq!(footprint(&problem.d, 0, 16, 3), 0);
    }

    #[test]
    fn names_of_types_and_epilogues_are_read_and_written() {
        assert!(TYPES.iter().all(|known| element(&known.to_string()) == Ok(*known)));
        assert!(element("u64").unwrap_err().starts_with("found the type `u64`, expected one of bf16, f16"));
        for (name, finish) in FINISHES {
            assert_eq!(name.parse::<Finish>().unwrap(), finish);
            assert_eq!(finish.to_string(), name);
        }
    }

    #[test]
    fn epilogues_compute_what_their_names_say() {
        let apply = |name: &str, sum, bias| name.parse::<Finish>().unwrap().apply(sum, bias);
        assert_eq!(apply("none", -2.0, 5.0), -2.0);
        assert_eq!(apply("bias+relu", -2.0, 5.0), 3.0);
        assert_eq!(apply("relu", -2.0, 5.0), 0.0);
        assert!((apply("gelu", 1.0, 0.0) - 0.841_192).abs() < 1e-6);
        assert!((apply("bias+gelu", 100.0, 1.0) - 101.0).abs() < 1e-9);
    }

    #[test]
    fn a_large_square_is_bound_by_arithmetic_and_a_row_by_memory() {
        let gpu = Gpu::named("h200").unwrap();
        let roofline = |shape| {
            let case = case(shape, "tn");
            case.roofline(&case.problem().unwrap(), gpu)
        };
        let (square, row) = (roofline("8192x8192x8192"), roofline("1x8192x8192"));
        assert!((square.seconds() / (2.0 * 8192f64.powi(3) / 989e12) - 1.0).abs() < 0.01);
        assert!((row.seconds() / (2.0 * 8192.0 * 8192.0 / 4.8e12) - 1.0).abs() < 0.01);
        assert!(!square.is_of_memory() && row.is_of_memory());
    }
}
