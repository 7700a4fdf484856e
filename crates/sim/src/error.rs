//! What the simulator cannot do, or was asked wrongly.

use tilewright_ptx::PtxError;

use crate::program::ProgramError;
use crate::tensor::TensorError;

/// Why a module cannot be loaded or a kernel cannot be run. What a kernel does wrong is a [`Finding`](crate::Finding) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The text is no PTX.
    #[error(transparent)]
    Parse(#[from] PtxError),
    /// The module cannot be understood.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A tensor map breaks a rule.
    #[error(transparent)]
    TensorMap(#[from] TensorError),
    /// No kernel has the name.
    #[error("the module has no kernel `{name}`; it has {known}")]
    NoKernel {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// An instruction that the simulator does not execute.
    #[error("line {line}: not supported by the simulator: {what}")]
    Unsupported {
        /// Line of the PTX.
        line: u32,
        /// What it is.
        what: String,
    },
    /// The number of arguments is wrong.
    #[error(
        "kernel `{kernel}` takes {expected} arguments, but {found} were given; give one for each parameter, in order"
    )]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// Parameters.
        expected: usize,
        /// Arguments.
        found: usize,
    },
    /// An argument does not fit its parameter.
    #[error(
        "argument {index} of kernel `{kernel}` (parameter `{name}`) has {found} bytes, but the parameter has {expected}"
    )]
    ArgumentSize {
        /// The kernel.
        kernel: String,
        /// Position, from 0.
        index: usize,
        /// Name of the parameter.
        name: String,
        /// Bytes of the argument.
        found: usize,
        /// Bytes of the parameter.
        expected: usize,
    },
    /// The grid, block or cluster is none.
    #[error("{what} is {found:?}, but {expected}")]
    Geometry {
        /// Grid, block or cluster.
        what: &'static str,
        /// What was given.
        found: [u32; 3],
        /// What would do.
        expected: String,
    },
    /// A buffer of another simulator, or one that has been freed.
    #[error("there is no buffer at address {address:#x}; use the device that made it, before it is freed")]
    NoBuffer {
        /// Its address.
        address: u64,
    },
    /// Contents that are not as long as their buffer.
    #[error("{found} bytes for a buffer, expected {expected}, all that it has")]
    Length {
        /// What was given.
        found: usize,
        /// Size of the buffer.
        expected: usize,
    },
    /// A buffer cannot be read as this type.
    #[error("a buffer of {bytes} bytes cannot be read as elements of {element} bytes; read it as bytes")]
    ElementSize {
        /// Size of the buffer.
        bytes: usize,
        /// Size of an element.
        element: usize,
    },
}
