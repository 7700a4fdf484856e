//! Everything that can be refused, as one enum whose variants carry the data and form the sentence.

use thiserror::Error;

/// Why a layout operation was refused.
///
/// Every message is one line, names the operation and the argument, and says what was found and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    // --- values that are not layouts ---
    /// An extent was zero or negative.
    #[error("extent {extent} in shape {shape} is not positive; every extent must be at least 1")]
    Extent {
        /// The offending extent.
        extent: i64,
        /// The whole shape, as text.
        shape: String,
    },
    /// Shape and stride are not nested alike.
    #[error("shape {shape} and stride {stride} are not congruent; both must be nested in the same way")]
    NotCongruent {
        /// The shape, as text.
        shape: String,
        /// The stride, as text.
        stride: String,
    },
    /// Strides mix integers and basis elements, or basis paths of different depth.
    #[error(
        "strides {stride} mix codomains; use integers only or basis elements (`1@0`) only, no path a prefix of another"
    )]
    MixedStrides {
        /// The stride, as text.
        stride: String,
    },
    /// A number left the range of 64-bit arithmetic.
    #[error("{what} does not fit in 64 bits")]
    Overflow {
        /// What was being computed.
        what: String,
    },
    /// The three numbers do not describe a swizzle.
    #[error("S<{bits},{base},{shift}> is not a swizzle: {reason}")]
    Swizzle {
        /// Number of bits in the mask.
        bits: i64,
        /// Number of least-significant bits left alone.
        base: i64,
        /// Distance between the two masks.
        shift: i64,
        /// Which rule is broken.
        reason: &'static str,
    },

    // --- arguments that do not fit each other ---
    /// A coordinate, profile, tiler or order has the wrong number of modes.
    #[error("{op}: {what} has rank {found}, expected {expected}")]
    Rank {
        /// The operation.
        op: &'static str,
        /// The argument.
        what: String,
        /// Its rank.
        found: usize,
        /// What would have been right, in words.
        expected: String,
    },
    /// An argument is outside of what the operation is defined for.
    #[error("{op}: {reason}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What is wrong and what was expected.
        reason: String,
    },

    // --- operations without a result ---
    /// `A ∘ B` is not a layout, or cannot be proved to be one.
    #[error("compose: {a} o {b} is not a layout: {reason}")]
    Compose {
        /// The outer layout, as text.
        a: String,
        /// The inner layout, as text.
        b: String,
        /// Which step of `B` leaves a mode of `A`.
        reason: String,
    },
    /// The complement does not exist.
    #[error("complement: {layout} has no complement: {reason}")]
    Complement {
        /// The layout, as text.
        layout: String,
        /// Why not.
        reason: String,
    },
    /// The inverse is not a layout.
    #[error("{op}: {layout} has no inverse that is a layout: {reason}")]
    Inverse {
        /// `left_inverse` or `right_inverse`.
        op: &'static str,
        /// The layout, as text.
        layout: String,
        /// Why not.
        reason: String,
    },
    /// An exact analysis would have to enumerate too many points.
    #[error("{op}: {size} points are too many to enumerate, at most {limit} are")]
    TooLarge {
        /// The analysis.
        op: &'static str,
        /// Points asked for.
        size: i64,
        /// Points allowed.
        limit: i64,
    },

    // --- text ---
    /// The text is not in CuTe's notation.
    #[error("cannot read `{text}` at column {column}: {reason}")]
    Parse {
        /// The whole text, shortened if long.
        text: String,
        /// 1-based column in characters.
        column: usize,
        /// What was found and what was expected.
        reason: String,
    },
}

/// A result with this crate's error.
pub type Result<T, E = LayoutError> = std::result::Result<T, E>;

pub(crate) fn overflow(what: impl Into<String>) -> LayoutError {
    LayoutError::Overflow { what: what.into() }
}

pub(crate) fn argument(op: &'static str, reason: impl Into<String>) -> LayoutError {
    LayoutError::Argument { op, reason: reason.into() }
}
