//! [`CublasError`]: why cuBLASLt cannot do what was asked.

use thiserror::Error;
use tilewright_cuda::CudaError;
use tilewright_hardware::Element;

/// Why cuBLASLt cannot do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CublasError {
    /// The library is not on this machine.
    #[error(
        "no cuBLASLt: found none of {}; install it (the toolkit, or the Python package `nvidia-cublas`) or name it with {}",
        tried.join(", "),
        crate::LIBRARY_VARIABLE
    )]
    NoLibrary {
        /// What was looked for.
        tried: Vec<String>,
    },
    /// The library lacks a function.
    #[error("`{library}` has no function `{symbol}`: found another library, expected cuBLASLt 12 or newer")]
    MissingSymbol {
        /// What was loaded.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// A call failed.
    #[error("{call} failed: {status} ({code})")]
    Call {
        /// The function.
        call: &'static str,
        /// Its name of the status.
        status: String,
        /// Its number.
        code: u32,
    },
    /// The library has no kernel for the product.
    #[error(
        "cuBLASLt has no algorithm for this product ({status}); it takes fewer types and layouts than it describes"
    )]
    NoAlgorithm {
        /// What it said.
        status: String,
    },
    /// An element type that it does not have.
    #[error("{what}: found elements of {found}, expected a type that cuBLASLt multiplies")]
    Type {
        /// Which matrix.
        what: &'static str,
        /// Its type.
        found: Element,
    },
    /// Something that does not fit.
    #[error("{what}: found {found}, expected {expected}")]
    Argument {
        /// What it is about.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        expected: String,
    },
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl CublasError {
    /// Whether the library is there and works, but does not do this product.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, CublasError::NoAlgorithm { .. } | CublasError::Type { .. })
    }
}
