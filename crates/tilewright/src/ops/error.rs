//! Why an operator is refused.

use crate::device::{Device, DeviceError};

/// Why an operator is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refuses, or a kernel has done something wrong.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An argument is not what the operator takes.
    #[error("`{argument}`: found {found}, expected {expected}; {remedy}")]
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
    /// There is no kernel for this case on this device.
    #[error("{operator}: found {device}, expected a device that has it; `Device::cpu` has all operators")]
    NoKernel {
        /// What was asked for.
        operator: &'static str,
        /// The device.
        device: String,
    },
}

impl Error {
    pub(super) fn no_kernel(operator: &'static str, device: &Device) -> Error {
        Error::NoKernel { operator, device: device.name().to_owned() }
    }

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
