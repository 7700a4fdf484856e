//! DLPack: how array libraries hand tensors to each other without copies (<https://dmlc.github.io/dlpack>).
//!
//! Both forms are spoken: `DLManagedTensorVersioned` of DLPack 1 and the `DLManagedTensor` before it, which PyTorch still takes and gives
//! by default.
//!
//! Who exchanges a tensor must agree on order, since DLPack does not know streams:
//!
//! * [`Export::for_stream`] says on which stream the consumer will work. It then waits for all pending operations, and the memory is freed
//!   after what is on that stream when the consumer lets go. Without it, exporting waits on the host, and so does letting go, for the
//!   whole device.
//! * [`Tensor::from_raw`] takes the stream that the producer made its work precede: in Python that is what `__dlpack__(stream=...)` is given.
//!
//! Only memory of CUDA devices is exchanged, in elements of whole bytes.
//!
//! ```no_run
//! use tilewright_cuda::{Context, interop::dlpack::{Export, Tensor}};
//! let context = Context::new(0)?;
//! let stream = context.stream()?;
//! let numbers = stream.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let raw = Export::new(numbers, &[2, 3])?.for_stream(&stream)?.into_raw()?;
//! // ... what another library would do with it:
//! // SAFETY: made just above, and used by nobody else.
//! let tensor = unsafe { Tensor::from_raw(&stream, raw) }?;
//! assert_eq!(tensor.shape(), [2, 3]);
//! assert_eq!(stream.download(tensor.as_slice::<f32>()?)?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! # Ok::<(), tilewright_cuda::CudaError>(())
//! ```

mod abi;
mod export;
mod import;

pub use abi::{DataType, Element, ManagedTensor, ManagedTensorVersioned, RawDevice, RawTensor};
pub use export::Export;
pub use import::Tensor;
