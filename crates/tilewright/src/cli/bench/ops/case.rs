//! An op of one size: its arrays, and how many bytes must move.

use tilewright::hardware::Element;

use super::super::super::Failure;
use super::super::peer::{Clock, Work};
use super::table::Op;

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

/// One op of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) op: &'static Op,
    pub(super) element: Element,
    pub(super) rows: u32,
    pub(super) columns: u32,
    /// Of a product: the extent that is summed over. Else 0.
    pub(super) depth: u32,
    /// Of a top-k: how many. Else 0.
    pub(super) k: u32,
    pub(super) clock: Clock,
}

/// An array that an op reads or writes: rows without gaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    /// For messages.
    pub(super) name: &'static str,
    pub(super) element: Element,
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) role: Role,
}

/// What an array is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Random numbers.
    Numbers,
    /// Random numbers of rows or columns, all below this.
    Places(u32),
    /// What this says for each place.
    Computed(fn(&Case, u64) -> f64),
    /// A result, whose rows are known one by one.
    Output(Reading),
    /// A result that adds up something over all rows. These come last.
    Sums,
}

/// What the elements of a result stand for, and are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Numbers,
    /// Columns of the first input: what is there.
    Places,
    /// Numbers times the scale of the row, which is in the result of this number.
    Scaled(usize),
    /// Numbers, of which dropout has made some zero.
    Dropped,
}

impl Tensor {
    /// The same, of another type.
    pub(super) fn of(self, element: Element) -> Tensor {
        Tensor { element, ..self }
    }

    pub(super) fn with(self, role: Role) -> Tensor {
        Tensor { role, ..self }
    }

    /// As a result.
    pub(super) fn output(self) -> Tensor {
        self.with(Role::Output(Reading::Numbers))
    }

    pub(super) fn is_output(&self) -> bool {
        matches!(self.role, Role::Output(_) | Role::Sums)
    }

    pub(super) fn elements(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.columns)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.element.bytes().into())
    }
}

/// Elements of a matrix that any machine has room for.
const MOST: u64 = 1 << 40;

impl Case {
    /// What makes no sense, in words.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.rows == 0 || self.columns == 0 {
            return Err(Failure::Input(format!(
                "found {} x {} elements, expected at least one",
                self.rows, self.columns
            )));
        }
        if self.elements() > MOST {
            return Err(Failure::Input(format!(
                "found {} x {} elements, expected at most 2^40 in all",
                self.rows, self.columns
            )));
        }
        (self.op.fits)(self).map_err(Failure::Input)
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

    /// An input as large as the case.
    pub(super) fn matrix(&self, name: &'static str) -> Tensor {
        let Case { element, rows, columns, .. } = *self;
        Tensor { name, element, rows, columns, role: Role::Numbers }
    }

    /// An input with a number for each column.
    pub(super) fn for_columns(&self, name: &'static str) -> Tensor {
        Tensor { rows: 1, ..self.matrix(name) }
    }

    /// An input with a number for each row.
    pub(super) fn for_rows(&self, name: &'static str) -> Tensor {
        Tensor { columns: 1, ..self.matrix(name) }
    }

    /// All arrays: inputs, then outputs.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        (self.op.tensors)(self)
    }

    /// The fewest bytes that must be moved: every input that matters read once, every output written once.
    #[allow(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(super) fn bytes(&self) -> f64 {
        (self.op.bytes)(self) as f64
    }

    /// Multiplications and additions of a product.
    pub(super) fn flops(&self) -> Option<f64> {
        let product = 2.0 * f64::from(self.rows) * f64::from(self.columns) * f64::from(self.depth);
        self.op.product.then_some(product)
    }

    /// The same to a peer.
    pub(super) fn work(&self, copies: usize, seed: u64) -> Work {
        let dtype = TYPES.iter().find(|(_, element)| *element == self.element).map_or("", |(name, _)| name);
        Work {
            op: self.op.name,
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

#[cfg(test)]
mod tests {
    use super::super::table::{ALL, exponentials, gated, moves, norms, order, quantised};
    use super::*;

    fn case(op: &'static Op, rows: u32, columns: u32) -> Case {
        Case { op, element: Element::BF16, rows, columns, depth: 0, k: 0, clock: Clock::Device }
    }

    #[test]
    fn bytes_are_those_that_must_move() {
        for (op, bytes) in [
            (&exponentials::SOFTMAX, 4000),
            (&exponentials::MASKED_SOFTMAX, 5000),
            // Targets and losses are of 4 bytes.
            (&exponentials::CROSS_ENTROPY, 2080),
            (&exponentials::CROSS_ENTROPY_BACKWARD, 4080),
            (&exponentials::SOFTMAX_BACKWARD, 6000),
            (&norms::LAYERNORM, 4400),
            (&norms::ADD_RMSNORM, 8200),
            (&norms::ADD_LAYERNORM, 8400),
            (&quantised::RMSNORM_QUANTISE_I8, 3240),
            // Gradients of weights are f32.
            (&norms::RMSNORM_BACKWARD, 6000 + 200 + 400),
            (&norms::LAYERNORM_BACKWARD, 6000 + 200 + 800),
            (&gated::SWIGLU, 6000),
            (&gated::SWIGLU_BACKWARD, 10_000),
            (&gated::BIAS_GELU, 4200),
            (&moves::TRANSPOSE, 4000),
            (&moves::CONVERT, 6000),
            (&quantised::QUANTISE_E4M3, 3040),
            (&quantised::DEQUANTISE_I8, 3040),
            (&moves::EMBEDDING, 4040), // not the whole table
        ] {
            assert_eq!(case(op, 10, 100).bytes(), f64::from(bytes), "{}", op.name);
        }
        assert_eq!(case(&exponentials::CAUSAL_SOFTMAX, 4, 4).bytes(), f64::from(2 * (10 + 16)));
        assert_eq!(case(&moves::ROPE, 10, 256).bytes(), f64::from(2 * 5120 + 2 * 10 * 64 * 4));
        let top = Case { k: 8, ..case(&order::TOPK, 10, 100) };
        assert_eq!(top.bytes(), f64::from(2000 + 80 * 2 + 80 * 4));
        let product = Case { depth: 3, ..case(&moves::MATMUL_TILE, 2, 4) };
        assert_eq!((product.flops(), product.bytes()), (Some(48.0), f64::from(2 * (6 + 12 + 8))));
        assert_eq!(product.size(), "2x4x3");
    }

    /// Memory takes inputs to be first, and checks results that add up over rows to be last.
    #[test]
    fn arrays_are_in_order() {
        for op in ALL {
            let tensors = Case { depth: 9, k: 3, ..case(op, 6, 128) }.tensors();
            let ranks = tensors.iter().map(|tensor| match tensor.role {
                Role::Output(_) => 1,
                Role::Sums => 2,
                _ => 0,
            });
            assert!(ranks.is_sorted() && tensors.iter().any(Tensor::is_output), "{}", op.name);
        }
    }
}
