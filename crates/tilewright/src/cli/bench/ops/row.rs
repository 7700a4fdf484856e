//! What is kept of one op.

use serde::{Deserialize, Serialize};

use super::super::peer::Name;
use super::super::results::Results;

/// One op of one size. Times in microseconds. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::cli::bench) struct Row {
    pub(super) op: String,
    pub(super) dtype: String,
    pub(super) rows: u32,
    pub(super) columns: u32,
    /// Of a product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) depth: Option<u32>,
    /// Of a top-k.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) k: Option<u32>,
    /// `device`: of launches; `host`: of calls, with the host's part.
    pub(super) clock: String,
    /// Who computed ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ours_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ours_10_to_90_percent: Option<[f64; 2]>,
    /// The fewest bytes that must be moved, a second, in 10^9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gbps: Option<f64>,
    /// That as a part of the speed of a large copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of_copy: Option<f64>,
    /// Multiplications and additions of a product a second, in 10^12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tflops: Option<f64>,
    /// The largest difference from a reference in f64, as a part of what rounding explains: below 1 is right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<f64>,
    /// Elements that were compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) compared: Option<usize>,
    /// Why there is no time of ours, if there should be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) torch: Option<Theirs>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) triton: Option<Theirs>,
}

/// The same of a peer that is installed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Theirs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) us_10_to_90_percent: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gbps: Option<f64>,
    /// Its time over ours in the same round, and the median of these: above 1 ours is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    /// The norm of its difference from a result in f64, as a part of the norm of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) relative_error: Option<f64>,
    /// That it does not have this op.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unsupported: Option<String>,
    /// Why there is no time of it, if there should be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
}

impl Row {
    pub(super) fn theirs(&self, name: Name) -> Option<&Theirs> {
        match name {
            Name::Torch => self.torch.as_ref(),
            Name::Triton => self.triton.as_ref(),
        }
    }

    pub(super) fn theirs_mut(&mut self, name: Name) -> &mut Theirs {
        let theirs = match name {
            Name::Torch => &mut self.torch,
            Name::Triton => &mut self.triton,
        };
        theirs.get_or_insert_default()
    }

    /// Its extents, as people write them.
    pub(super) fn size(&self) -> String {
        let depth = self.depth.map_or(String::new(), |depth| format!("x{depth}"));
        let top = self.k.map_or(String::new(), |k| format!(" top {k}"));
        format!("{}x{}{depth}{top}", self.rows, self.columns)
    }
}

/// Whether these are results of ops, by the first of their rows.
pub(in crate::cli::bench) fn are_ops(text: &str) -> bool {
    serde_json::from_str::<Results<serde_json::Value>>(text)
        .is_ok_and(|results| results.entries.first().is_some_and(|row| row.get("op").is_some()))
}
