//! NVIDIA's cuBLASLt, found at run time: what our matrix products are compared with.
//!
//! Only what a benchmark needs: descriptors of a product, the library's own choice of algorithms, and running one of them on a stream and
//! memory of [`tilewright_cuda`]. Nothing is needed to build, and without the library everything is an error that says where it was looked
//! for.
//!
//! ```
//! use tilewright_cublaslt::{Compute, Description, Library, Matrix};
//! use tilewright_hardware::Element;
//!
//! // D (64 x 32) = A^T * B in the column-major view of BLAS.
//! let description = Description::new(
//!     Matrix::dense(Element::BF16, 128, 64),
//!     Matrix::dense(Element::BF16, 128, 32),
//!     Matrix::dense(Element::BF16, 64, 32),
//!     Compute::F32,
//! )
//! .transpose_a();
//! description.check()?;
//! match Library::load() {
//!     Ok(library) => println!("cuBLASLt {}", library.version()),
//!     Err(problem) => println!("{problem}"),
//! }
//! # Ok::<(), tilewright_cublaslt::CublasError>(())
//! ```
//!
//! # Contract
//!
//! * Matrices are described as they lie in memory; the extents are held against each other, and memory against the extents, before the
//!   library sees an address.
//! * [`Matmul::run`] enqueues; it orders itself among all operations on its memory, and can be captured into a graph.
//!
//! # Limits
//!
//! * Linux and Windows names of the library for CUDA 12 and 13.
//! * Real types; no grouped products, no block-scaled formats, no gradients in epilogues.

mod code;
mod description;
mod error;
mod ffi;
mod library;
mod matmul;

pub use code::{Activation, Compute, Order, Scaling};
pub use description::{Description, Matrix};
pub use error::CublasError;
pub use library::{LIBRARY_VARIABLE, Library};
pub use matmul::{Algorithm, Matmul, Operands};
