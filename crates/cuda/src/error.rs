//! What can be wrong with the driver, and what to do about it.

use thiserror::Error;

/// Why the driver cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The driver library is not on this machine.
    #[error("no NVIDIA driver: the library `{library}` was not found or cannot be loaded")]
    NotFound {
        /// The name that the loader looked for.
        library: &'static str,
    },
    /// The library was found, but a function is missing from it.
    #[error("the NVIDIA driver has no function `{symbol}`")]
    MissingSymbol {
        /// The function.
        symbol: &'static str,
    },
    /// A call failed.
    #[error("{call} failed: {name} ({code}), {text}")]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// CUDA's number of the error.
        code: u32,
        /// CUDA's name of the error.
        name: String,
        /// CUDA's text for it.
        text: String,
    },
}

impl DriverError {
    /// What to do about it, in one sentence.
    pub fn remedy(&self) -> String {
        match self {
            DriverError::NotFound { .. } => {
                "install the NVIDIA driver, or go on without: work runs on the CPU".into()
            }
            DriverError::MissingSymbol { .. } => {
                "update the driver; a stub library from a CUDA toolkit on the library path gives this too".into()
            }
            DriverError::Call { code, .. } => match code {
                34 => "a stub of the CUDA toolkit was loaded; remove its `stubs` folder from the library path".into(),
                100 => "no GPU is visible; check CUDA_VISIBLE_DEVICES, the container's GPU option and `nvidia-smi`".into(),
                802 | 803 | 999 => "driver and kernel module do not match or are not ready; reload the module or restart".into(),
                _ => "run `nvidia-smi`; if that fails too, the driver installation is at fault".into(),
            },
        }
    }
}
