//! Why a matrix product is refused.

use tilewright_kernels::gemm::GemmError;

use crate::device::DeviceError;

/// Why a matrix product is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The product as described makes no sense, or nothing computes it.
    #[error(transparent)]
    Problem(#[from] GemmError),
    /// The device refuses, or a kernel has done something wrong.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An argument is not what the product takes.
    #[error("{argument}: found {found}, expected {expected}; {remedy}")]
    Argument {
        /// Which.
        argument: String,
        /// What was given.
        found: String,
        /// What would do.
        expected: String,
        /// What to do about it.
        remedy: String,
    },
}

impl Error {
    pub(super) fn argument(
        argument: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Error {
        Error::Argument {
            argument: argument.into(),
            found: found.into(),
            expected: expected.into(),
            remedy: remedy.into(),
        }
    }
}
