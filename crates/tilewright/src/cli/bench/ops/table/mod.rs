//! What can be measured: one table, [`ALL`], which the command line, its help, the checks and the tests read.
//!
//! An op is a constant in the file of its family, with everything about it: what the help says, its arrays, what it computes in f64, and how
//! the library is called. To add one, write such a constant beside one that is like it, put it into [`ALL`], and give `peers.py` the same op
//! under the same name. Who is left out there is measured alone.

pub(super) mod exponentials;
pub(super) mod gated;
pub(super) mod moves;
pub(super) mod norms;
pub(super) mod order;
pub(super) mod quantised;

use std::fmt;

use tilewright::hardware::Element;
use tilewright::ops::Error;

use super::case::{Case, Tensor};
use super::library::Call;
use super::reference::{At, Expected};
use super::sizes::{Size, large};

/// Everything that can be measured, in the order of the help.
pub(super) static ALL: &[&Op] = &[
    &exponentials::SOFTMAX,
    &exponentials::LOG_SOFTMAX,
    &exponentials::CAUSAL_SOFTMAX,
    &exponentials::MASKED_SOFTMAX,
    &exponentials::SOFTMAX_BACKWARD,
    &exponentials::LOG_SOFTMAX_BACKWARD,
    &exponentials::CROSS_ENTROPY,
    &exponentials::CROSS_ENTROPY_BACKWARD,
    &norms::RMSNORM,
    &norms::ADD_RMSNORM,
    &quantised::RMSNORM_QUANTISE_E4M3,
    &quantised::RMSNORM_QUANTISE_I8,
    &norms::RMSNORM_BACKWARD,
    &norms::LAYERNORM,
    &norms::ADD_LAYERNORM,
    &norms::LAYERNORM_BACKWARD,
    &gated::SWIGLU,
    &gated::SWIGLU_BACKWARD,
    &gated::GEGLU,
    &gated::GEGLU_BACKWARD,
    &gated::BIAS_GELU,
    &moves::ROPE,
    &order::REDUCE,
    &order::SCAN,
    &order::TOPK,
    &order::ARGMAX,
    &moves::EMBEDDING,
    &moves::DROPOUT,
    &quantised::QUANTISE_E4M3,
    &quantised::QUANTISE_I8,
    &quantised::DEQUANTISE_E4M3,
    &quantised::DEQUANTISE_I8,
    &moves::CONVERT,
    &moves::TRANSPOSE,
    &moves::PERMUTE,
    &moves::MATMUL_TILE,
    &moves::COPY,
];

/// An op. What the plain one has is what most have.
pub(super) struct Op {
    /// As the command line and the peers call it.
    pub(super) name: &'static str,
    /// For the help.
    pub(super) about: &'static str,
    /// The types that are measured if none are named.
    pub(super) types: &'static [Element],
    /// The sizes of the set `bars`.
    pub(super) bars: fn(Element) -> Vec<Size>,
    /// Those of the set `quick`.
    pub(super) quick: &'static [Size],
    /// Says what a size must have for this op, if it does not.
    pub(super) fits: fn(&Case) -> Result<(), String>,
    /// What it reads, then what it writes.
    pub(super) tensors: fn(&Case) -> Vec<Tensor>,
    /// The fewest bytes that must move.
    pub(super) bytes: fn(&Case) -> u64,
    /// In f64: this row of every output that has rows.
    pub(super) rows: fn(&Case, At<'_>, u32) -> Vec<Vec<Expected>>,
    /// In f64: these columns of every output that adds up over rows.
    pub(super) sums: fn(&Case, At<'_>, &[u32]) -> Vec<Vec<Expected>>,
    /// The library's operator on f32, f16 and bf16, unless somebody else computes it.
    pub(super) calls: Option<[Function; 3]>,
    /// Whether it is a product, whose measure are multiplications.
    pub(super) product: bool,
}

/// Calls the library.
pub(super) type Function = fn(&Call<'_>) -> Result<(), Error>;

impl Op {
    /// A matrix to a matrix.
    const PLAIN: Op = Op {
        name: "",
        about: "",
        types: &[Element::F32, Element::BF16],
        bars: |element| large(&[4096], element),
        quick: &[(128, 256, 0), (33, 1536, 0)],
        fits: |_| Ok(()),
        tensors: |case| vec![case.matrix("x"), case.matrix("y").output()],
        bytes: |case| case.tensors().iter().map(Tensor::bytes).fold(0, u64::saturating_add),
        rows: |_, _, _| Vec::new(),
        sums: |_, _, _| Vec::new(),
        calls: None,
        product: false,
    };

    /// The op of this name.
    pub(super) fn named(name: &str) -> Option<&'static Op> {
        ALL.iter().copied().find(|op| op.name == name)
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A function for each type.
macro_rules! calls {
    ($call:ident $(, $more:ty)?) => {
        Some([
            $call::<f32 $(, $more)?>,
            $call::<tilewright::lang::f16 $(, $more)?>,
            $call::<tilewright::lang::bf16 $(, $more)?>,
        ])
    };
}
use calls;

#[cfg(test)]
mod tests {
    use super::*;

    /// Who adds an op here and forgets the peers would measure it alone, and not notice.
    #[test]
    fn peers_know_all_ops_and_no_others() {
        let peers = include_str!("../../peer/peers.py");
        let (_, arrays) = peers.split_once("ARRAYS = {\n").unwrap();
        let (arrays, _) = arrays.split_once("\n}\n").unwrap();
        let named = |line: &'static str| line.trim().trim_start_matches('"').split('"').next();
        let found: Vec<&str> = arrays.lines().filter_map(named).collect();
        let expected: Vec<&str> = ALL.iter().map(|op| op.name).collect();
        assert_eq!(found, expected, "in the same order");
        let (_, torch) = peers.split_once("def torch_ops():").unwrap();
        let (torch, _) = torch.split_once("\n\n\n").unwrap();
        assert!(expected.iter().all(|name| torch.contains(&format!("\"{name}\": "))), "torch has them all");
    }

    #[test]
    fn the_documentation_lists_all_ops() {
        let page = include_str!("../../../../../../../docs/operators.md");
        for op in ALL {
            assert!(page.contains(&format!("`{}`", op.name)), "{}", op.name);
        }
    }

    #[test]
    fn names_are_those_of_commands_and_nobody_has_the_same() {
        for (place, op) in ALL.iter().enumerate() {
            assert!(op.name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{op:?}");
            assert!(op.about.starts_with("Measure ") && !op.about.ends_with('.'), "{op:?}: {}", op.about);
            assert_eq!(Op::named(op.name).map(|found| found.about), Some(op.about));
            assert!(ALL[..place].iter().all(|before| before != op), "{op:?}");
        }
    }
}
