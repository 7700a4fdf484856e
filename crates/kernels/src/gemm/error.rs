//! [`GemmError`]: why a matrix product cannot be computed as asked.

use thiserror::Error;

/// Why a matrix product cannot be computed as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GemmError {
    /// Types that no kernel multiplies.
    #[error("there is no product of {a} and {b} that accumulates in {accumulate} and gives {d}; {expected}")]
    Types {
        /// Left factor.
        a: &'static str,
        /// Right factor.
        b: &'static str,
        /// Accumulator.
        accumulate: &'static str,
        /// Result.
        d: &'static str,
        /// What there is.
        expected: String,
    },
    /// A matrix of elements that no kernel reads.
    #[error("matrix {matrix} has elements of {found}; expected {expected}")]
    Elements {
        /// Which matrix.
        matrix: &'static str,
        /// Of what it is.
        found: &'static str,
        /// What there is.
        expected: &'static str,
    },
    /// A description of a matrix that contradicts the problem.
    #[error("{matrix}: {what} is {found}, expected {expected}")]
    Matrix {
        /// Which matrix.
        matrix: String,
        /// Which of its properties.
        what: &'static str,
        /// What was given.
        found: u64,
        /// What is possible.
        expected: String,
    },
    /// Extents beyond what kernels can index.
    #[error("{what} is {found}, expected at most {limit}; compute it in parts")]
    TooLarge {
        /// Which extent.
        what: &'static str,
        /// What was given.
        found: u64,
        /// The largest that works.
        limit: u64,
    },
    /// Extents of which each is possible, but not all together.
    #[error(
        "{m} x {n} x {k} in a batch of {batch} has more tiles than kernels can number with 32 bits; compute it in parts"
    )]
    TooManyTiles {
        /// Rows of the result.
        m: u32,
        /// Columns of the product.
        n: u32,
        /// Steps of the sums.
        k: u32,
        /// Members of the batch.
        batch: u32,
    },
    /// An epilogue that cannot be computed, or not with these types or this configuration.
    #[error("the epilogue cannot be computed: {reason}")]
    Epilogue {
        /// Why.
        reason: String,
    },
    /// A configuration that the chip or the problem does not allow.
    #[error("configuration {config}: {reason}")]
    Config {
        /// The configuration.
        config: String,
        /// Why not.
        reason: String,
    },
    /// A kernel that could not be built: a mistake of this library.
    #[error("the kernel could not be built: {0}")]
    Kernel(String),
}

impl From<tilewright_lang::Error> for GemmError {
    fn from(error: tilewright_lang::Error) -> GemmError {
        GemmError::Kernel(error.to_string())
    }
}
