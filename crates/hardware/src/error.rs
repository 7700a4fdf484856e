//! [`HardwareError`]: everything that can be wrong with a question to the tables.

use tilewright_layout::LayoutError;

use crate::arch::known_numbers;
use crate::element::Element;

/// Why the hardware has no answer; the text is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HardwareError {
    /// The name of an element type that does not exist.
    #[error("`{found}` is not an element type, expected one of {}", names(Element::ALL))]
    UnknownElement {
        /// The text.
        found: String,
    },
    /// The name of an architecture that does not exist.
    #[error(
        "`{found}` is not an architecture, expected `sm_` and one of {}, from 90 on with or without `a`: sm_80, sm_90a",
        names(known_numbers())
    )]
    UnknownArch {
        /// The text.
        found: String,
    },
    /// No tensor-core instruction has these types and this shape.
    #[error("no tensor-core instruction computes {asked}; {nearest}")]
    NoMma {
        /// Types and shape.
        asked: String,
        /// What there is instead.
        nearest: String,
    },
    /// A tile that the pattern of fragments does not cover.
    #[error(
        "no fragment of {rows}x{columns} for {warps} warps with {run} columns a register: rows must be a multiple of 8 for each warp, columns of 4 registers, both at most 65536"
    )]
    NoFragment {
        /// Rows of the tile.
        rows: u32,
        /// Columns of the tile.
        columns: u32,
        /// Neighbouring columns in a register.
        run: u32,
        /// Number of warps.
        warps: u32,
    },
    /// No `ldmatrix` or `stmatrix` moves this fragment.
    #[error("ldmatrix and stmatrix cannot move the fragment {fragment} of {element}: {reason}")]
    NoMatrixCopy {
        /// The fragment.
        fragment: String,
        /// The type of its elements.
        element: Element,
        /// What does not fit.
        reason: String,
    },
    /// A shared-memory tile that has no canonical layout.
    #[error("no {form} tile of {rows}x{k} {element}: {reason}")]
    NoTile {
        /// Swizzle and major-ness.
        form: String,
        /// Rows.
        rows: u32,
        /// Depth.
        k: u32,
        /// The type of the elements.
        element: Element,
        /// What does not fit.
        reason: String,
    },
    /// A shared-memory tile that an engine cannot address.
    #[error(
        "{engine} cannot address the tile {layout} of {element}: {reason}; `smem_tile` builds tiles that fit"
    )]
    Unreadable {
        /// `wgmma` or `TMA`.
        engine: &'static str,
        /// The layout.
        layout: String,
        /// The type of its elements.
        element: Element,
        /// What does not fit.
        reason: String,
    },
    /// A tensor map that breaks a rule of TMA.
    #[error("TMA refuses {what} {found}: expected {expected}")]
    TensorMap {
        /// Which parameter.
        what: String,
        /// Its value.
        found: String,
        /// The rule.
        expected: String,
    },
    /// A number beyond what the hardware counts with.
    #[error(
        "{found} is not a number from 0 to 4294967295, which is what tiles and addresses are counted with"
    )]
    Range {
        /// The number.
        found: String,
    },
    /// An error of the layout algebra.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, HardwareError>;

/// A count or an offset in the width that the hardware uses.
pub(crate) fn to_u32<T: TryInto<u32> + Copy + ToString>(value: T) -> Result<u32> {
    value.try_into().map_err(|_| HardwareError::Range { found: value.to_string() })
}

/// A list for an error message.
pub(crate) fn names<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
