//! An op to measure: what it reads and writes, and the sizes that have a name.

use tilewright::hardware::Element;

use super::super::super::Failure;
use super::super::peer::{Clock, Work};

/// What can be measured. Rows are independent of each other in all but the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Softmax,
    CausalSoftmax,
    RmsNorm,
    LayerNorm,
    Reduce,
    Scan,
    TopK,
    ArgMax,
    Embedding,
    Dropout,
    MatmulTile,
    Copy,
}

/// Rows of the table that an embedding is looked up in; `peers.py` has the same, as it has the two below.
pub(super) const VOCABULARY: u32 = 32_768;
/// What norms add to the mean of squares.
pub(super) const EPS: f64 = 1e-5;
/// How many elements dropout makes zero.
pub(super) const DROPPED: f64 = 0.5;

/// The types that can be asked for.
pub(super) const TYPES: [(&str, Element); 3] =
    [("f32", Element::F32), ("f16", Element::F16), ("bf16", Element::BF16)];

/// A type, by its name.
pub(super) fn element(text: &str) -> Result<Element, String> {
    let found = TYPES.iter().find(|(name, _)| *name == text).map(|(_, element)| *element);
    found.ok_or_else(|| {
        let known = TYPES.map(|(name, _)| name).join(", ");
        format!("found the type `{text}`, expected one of {known}")
    })
}

impl Op {
    /// As the command line and the peers call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Softmax => "softmax",
            Op::CausalSoftmax => "causal-softmax",
            Op::RmsNorm => "rmsnorm",
            Op::LayerNorm => "layernorm",
            Op::Reduce => "reduce",
            Op::Scan => "scan",
            Op::TopK => "topk",
            Op::ArgMax => "argmax",
            Op::Embedding => "embedding",
            Op::Dropout => "dropout",
            Op::MatmulTile => "matmul-tile",
            Op::Copy => "copy",
        }
    }

    /// The types that are measured if none are named.
    pub(super) fn types(self) -> &'static [Element] {
        match self {
            Op::Reduce | Op::Scan | Op::TopK | Op::Copy => &[Element::F32],
            Op::MatmulTile => &[Element::BF16],
            _ => &[Element::F32, Element::BF16],
        }
    }
}

/// One op of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) op: Op,
    pub(super) element: Element,
    pub(super) rows: u32,
    pub(super) columns: u32,
    /// Of a product: the extent that is summed over. Else 0.
    pub(super) depth: u32,
    /// Of a top-k: how many. Else 0.
    pub(super) k: u32,
    pub(super) clock: Clock,
}

/// An array that an op reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) element: Element,
    pub(super) elements: u64,
    pub(super) role: Role,
}

/// What an array is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Random numbers.
    Numbers,
    /// Random numbers of rows, all below this.
    Places(u32),
    Output,
}

impl Case {
    /// What makes no sense, in words.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let wrong = |text: String| Err(Failure::Input(text));
        if self.rows == 0 || self.columns == 0 {
            return wrong(format!("found {} x {} elements, expected at least one", self.rows, self.columns));
        }
        if self.op == Op::MatmulTile && self.depth == 0 {
            return wrong("--depth: found 0, expected at least 1".to_owned());
        }
        if self.op == Op::TopK && !(1..=self.columns).contains(&self.k) {
            return wrong(format!("--k: found {}, expected 1 to the {} columns", self.k, self.columns));
        }
        Ok(())
    }

    /// Its extents, as people write them.
    pub(super) fn size(&self) -> String {
        match self.depth {
            0 => format!("{}x{}", self.rows, self.columns),
            depth => format!("{}x{}x{depth}", self.rows, self.columns),
        }
    }

    /// Elements of the first input, or of what rows are looked up in it.
    pub(super) fn elements(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.columns)
    }

    /// All arrays: inputs, then outputs.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let (rows, columns, element) = (u64::from(self.rows), u64::from(self.columns), self.element);
        let numbers = |elements| Tensor { element, elements, role: Role::Numbers };
        let output = |elements| Tensor { element, elements, role: Role::Output };
        let places = |elements, role| Tensor { element: Element::I32, elements, role };
        let all = rows * columns;
        match self.op {
            Op::Softmax | Op::CausalSoftmax | Op::Scan | Op::Dropout | Op::Copy => {
                vec![numbers(all), output(all)]
            }
            Op::RmsNorm => vec![numbers(all), numbers(columns), output(all)],
            Op::LayerNorm => vec![numbers(all), numbers(columns), numbers(columns), output(all)],
            Op::Reduce => vec![numbers(all), output(rows)],
            Op::TopK => {
                let some = rows * u64::from(self.k);
                vec![numbers(all), output(some), places(some, Role::Output)]
            }
            Op::ArgMax => vec![numbers(all), places(rows, Role::Output)],
            Op::Embedding => vec![
                places(rows, Role::Places(VOCABULARY)),
                numbers(u64::from(VOCABULARY) * columns),
                output(all),
            ],
            Op::MatmulTile => {
                let depth = u64::from(self.depth);
                vec![numbers(rows * depth), numbers(depth * columns), output(all)]
            }
        }
    }

    /// How many columns a row of a causal softmax sees: the rows are the last ones of squares that are stacked.
    pub(super) fn valid(&self, row: u32) -> u32 {
        let (rows, columns) = (u64::from(self.rows), u64::from(self.columns.max(1)));
        let first = rows.next_multiple_of(columns) - rows;
        u32::try_from((u64::from(row) + first) % columns + 1).unwrap_or(self.columns)
    }

    /// The fewest bytes that must be moved: every input that matters read once, every output written once.
    #[allow(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(super) fn bytes(&self) -> f64 {
        let all = |tensor: &Tensor| tensor.elements * u64::from(tensor.element.bytes());
        let tensors = self.tensors();
        let bytes: u64 = match self.op {
            Op::CausalSoftmax => {
                let seen: u64 = (0..self.rows).map(|row| u64::from(self.valid(row))).sum();
                (seen + self.elements()) * u64::from(self.element.bytes())
            }
            // Not the whole table.
            Op::Embedding => all(&tensors[0]) + 2 * all(&tensors[2]),
            _ => tensors.iter().map(all).sum(),
        };
        bytes as f64
    }

    /// Multiplications and additions of a product.
    pub(super) fn flops(&self) -> Option<f64> {
        let product = 2.0 * f64::from(self.rows) * f64::from(self.columns) * f64::from(self.depth);
        (self.op == Op::MatmulTile).then_some(product)
    }

    /// The same to a peer.
    pub(super) fn work(&self, copies: usize, seed: u64) -> Work {
        let dtype = TYPES.iter().find(|(_, element)| *element == self.element).map_or("", |(name, _)| name);
        Work {
            op: self.op.name(),
            dtype,
            rows: self.rows.into(),
            columns: self.columns.into(),
            depth: self.depth.into(),
            k: self.k.into(),
            copies,
            clock: self.clock,
            seed,
        }
    }
}

/// Rows, columns and depth.
pub(super) type Size = (u32, u32, u32);

/// Sizes that have a name.
pub(super) struct Set {
    pub(super) name: &'static str,
    /// What is in it, for the help.
    pub(super) what: &'static str,
    sizes: fn(Op, Element, Clock) -> Vec<Size>,
}

/// Every set; the command line, its help and its errors read this table.
pub(super) const SETS: [Set; 2] = [
    Set {
        name: "bars",
        what: "what is promised: rows of 1536 to 65536 in 256 MiB (default on a GPU)",
        sizes: bars,
    },
    Set { name: "quick", what: "a few small sizes (default without a GPU)", sizes: quick },
];

/// The sizes of the set of that name, for an op.
pub(super) fn set(name: &str, op: Op, element: Element, clock: Clock) -> Result<Vec<Size>, String> {
    let found = SETS.iter().find(|set| set.name == name);
    found.map(|set| (set.sizes)(op, element, clock)).ok_or_else(|| {
        let known = SETS.iter().map(|set| set.name).collect::<Vec<_>>().join(", ");
        format!("found the set `{name}`, expected one of {known}")
    })
}

/// Bytes of the first input: more than any cache, and enough that launches cost nothing.
const LARGE: u32 = 256 << 20;

fn bars(op: Op, element: Element, clock: Clock) -> Vec<Size> {
    let large = |columns: u32| (LARGE.div_ceil(columns * element.bytes()), columns, 0);
    if clock == Clock::Host {
        return [1024, 4096].map(|columns| (128, columns, 0)).to_vec();
    }
    match op {
        Op::Softmax | Op::CausalSoftmax | Op::RmsNorm | Op::LayerNorm => {
            let whole = |(rows, columns, depth): Size| match op {
                // Whole squares, or the last rows of one.
                Op::CausalSoftmax if rows > columns => (rows.next_multiple_of(columns), columns, depth),
                _ => (rows, columns, depth),
            };
            [1536, 2048, 4096, 8192, 16_384, 65_536].map(large).map(whole).to_vec()
        }
        Op::Reduce => vec![(1, 1 << 28, 0), large(4096)],
        Op::Scan => [1024, 4096, 16_384, 65_536].map(large).to_vec(),
        Op::TopK => vec![(16_384, 256, 0)],
        Op::ArgMax | Op::Embedding | Op::Dropout => vec![large(4096)],
        Op::MatmulTile => [4096, 8192].map(|n| (n, n, n)).to_vec(),
        Op::Copy => [128, 512, 1024].map(|mebibytes| (mebibytes, (1 << 20) / element.bytes(), 0)).to_vec(),
    }
}

fn quick(op: Op, _: Element, _: Clock) -> Vec<Size> {
    match op {
        Op::MatmulTile => vec![(64, 64, 64), (96, 80, 48)],
        _ => vec![(128, 256, 0), (33, 1536, 0)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(op: Op, rows: u32, columns: u32) -> Case {
        Case { op, element: Element::BF16, rows, columns, depth: 0, k: 0, clock: Clock::Device }
    }

    #[test]
    fn causal_rows_are_the_last_of_squares() {
        let valid = |rows, columns| {
            let case = case(Op::CausalSoftmax, rows, columns);
            (0..rows).map(|row| case.valid(row)).collect::<Vec<_>>()
        };
        assert_eq!(valid(4, 4), [1, 2, 3, 4]);
        assert_eq!(valid(2, 4), [3, 4]);
        assert_eq!(valid(6, 4), [3, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn bytes_are_those_that_must_move() {
        assert_eq!(case(Op::Softmax, 10, 100).bytes(), 4000.0);
        assert_eq!(case(Op::LayerNorm, 10, 100).bytes(), 4400.0);
        assert_eq!(case(Op::CausalSoftmax, 4, 4).bytes(), f64::from(2 * (10 + 16)));
        assert_eq!(case(Op::Embedding, 10, 100).bytes(), 4040.0, "not the whole table");
        assert_eq!(Case { k: 8, ..case(Op::TopK, 10, 100) }.bytes(), f64::from(2000 + 80 * 2 + 80 * 4));
        let product = Case { depth: 3, ..case(Op::MatmulTile, 2, 4) };
        assert_eq!((product.flops(), product.bytes()), (Some(48.0), f64::from(2 * (6 + 12 + 8))));
        assert_eq!(product.size(), "2x4x3");
    }

    #[test]
    fn bars_are_large_and_every_set_makes_sense() {
        for op in [Op::Softmax, Op::CausalSoftmax, Op::RmsNorm, Op::LayerNorm] {
            for element in [Element::F32, Element::BF16] {
                let sizes = set("bars", op, element, Clock::Device).unwrap();
                assert_eq!(sizes.len(), 6);
                for (rows, columns, _) in sizes {
                    let bytes = u64::from(rows) * u64::from(columns) * u64::from(element.bytes());
                    assert!((128_000_000..300_000_000).contains(&bytes), "{rows}x{columns}");
                }
            }
        }
        for (set, op) in SETS.iter().flat_map(|set| [Op::Copy, Op::TopK, Op::MatmulTile].map(|op| (set, op)))
        {
            for (rows, columns, depth) in (set.sizes)(op, Element::BF16, Clock::Device) {
                Case { depth, k: 8, ..case(op, rows, columns) }.check().unwrap();
            }
        }
        assert!(set("round", Op::Scan, Element::F32, Clock::Device).unwrap_err().ends_with("bars, quick"));
    }
}
