//! Sizes that have a name.

use tilewright::hardware::Element;

use super::super::peer::Clock;
use super::table::Op;

/// Rows, columns and depth.
pub(super) type Size = (u32, u32, u32);

/// Sizes that have a name.
pub(super) struct Set {
    pub(super) name: &'static str,
    /// What is in it, for the help.
    pub(super) what: &'static str,
    sizes: fn(&Op, Element, Clock) -> Vec<Size>,
}

/// Every set; the command line, its help and its errors read this table.
pub(super) const SETS: [Set; 2] = [
    Set {
        name: "bars",
        what: "what is promised: rows of 1536 to 128256 in 256 MiB (default on a GPU)",
        sizes: bars,
    },
    Set {
        name: "quick",
        what: "a few small sizes (default without a GPU)",
        sizes: |op, _, _| op.quick.to_vec(),
    },
];

/// The sizes of the set of that name, for an op.
pub(super) fn set(name: &str, op: &Op, element: Element, clock: Clock) -> Result<Vec<Size>, String> {
    let found = SETS.iter().find(|set| set.name == name);
    found.map(|set| (set.sizes)(op, element, clock)).ok_or_else(|| {
        let known = SETS.iter().map(|set| set.name).collect::<Vec<_>>().join(", ");
        format!("found the set `{name}`, expected one of {known}")
    })
}

fn bars(op: &Op, element: Element, clock: Clock) -> Vec<Size> {
    match clock {
        Clock::Device => (op.bars)(element),
        Clock::Host => [1024, 4096].map(|columns| (128, columns, 0)).to_vec(),
    }
}

/// Bytes of the first input: more than any cache, and enough that launches cost nothing.
const LARGE: u32 = 256 << 20;

/// Lengths of rows that are promised to be fast.
pub(super) const PROMISED: &[u32] = &[1536, 2048, 4096, 8192, 16_384, 65_536];
/// Some of them, for gradients and what is like what is promised.
pub(super) const SOME: &[u32] = &[1536, 4096, 16_384];

/// A large matrix with rows of each of these lengths.
pub(super) fn large(lengths: &[u32], element: Element) -> Vec<Size> {
    lengths.iter().map(|&columns| (LARGE.div_ceil(columns * element.bytes()), columns, 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::super::table::{ALL, exponentials, norms, order};
    use super::*;

    #[test]
    fn bars_are_large_and_every_set_makes_sense() {
        for op in [&exponentials::SOFTMAX, &exponentials::CAUSAL_SOFTMAX, &norms::RMSNORM, &norms::LAYERNORM]
        {
            for element in [Element::F32, Element::BF16] {
                let sizes = set("bars", op, element, Clock::Device).unwrap();
                assert_eq!(sizes.len(), 6);
                for (rows, columns, _) in sizes {
                    let bytes = u64::from(rows) * u64::from(columns) * u64::from(element.bytes());
                    assert!((128_000_000..300_000_000).contains(&bytes), "{rows}x{columns}");
                }
            }
        }
        for op in ALL {
            for element in [Element::F32, Element::F16, Element::BF16] {
                for set in &SETS {
                    let sizes = (set.sizes)(op, element, Clock::Device);
                    assert!(!sizes.is_empty(), "{}", op.name);
                    for (rows, columns, depth) in sizes {
                        let clock = Clock::Device;
                        Case { op, element, rows, columns, depth, k: 8, clock }.check().unwrap();
                    }
                }
            }
        }
        let error = set("round", &order::SCAN, Element::F32, Clock::Device).unwrap_err();
        assert!(error.ends_with("bars, quick"));
    }
}
