//! Memory and streams shared with other libraries, without copies.
//!
//! | with | look at |
//! | --- | --- |
//! | Rust that uses cudarc (candle and others) | [`Context::from_cudarc`](crate::Context::from_cudarc), [`Buffer::from_cudarc`](crate::Buffer::from_cudarc), [`Buffer::into_cudarc`](crate::Buffer::into_cudarc), [`Context::with_cudarc`](crate::Context::with_cudarc) |
//! | everything that speaks DLPack (PyTorch, JAX, CuPy, NumPy) | [`dlpack`] |
//! | libraries that take a stream and addresses (cuBLAS and others) | [`Stream::enqueue_foreign`](crate::Stream::enqueue_foreign) |

mod cudarc;
pub mod dlpack;
mod foreign;
