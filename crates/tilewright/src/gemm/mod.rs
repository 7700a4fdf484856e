//! Matrix products on a device.
//!
//! [`kernels::gemm`](crate::kernels::gemm) describes products and makes [recipes](crate::kernels::gemm::Recipe) for them; here they get
//! memory and run.

mod run;

pub use run::{Operands, Prepared};
