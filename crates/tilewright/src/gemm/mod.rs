//! Matrix products on a device: `D = epilogue(alpha * op(A) * op(B) + beta * C)`.
//!
//! [`Gemm`] says which product; a [`Plan`] of it has chosen the kernels, and runs with memory ([`Arguments`]) as often as wanted; a
//! [`Planner`] keeps plans for programs with many shapes. All shapes, storages, leading dimensions and alignments work; those that
//! tensor cores and copy engine like are faster.
//!
//! ```
//! use tilewright::gemm::{Arguments, Gemm};
//! use tilewright::prelude::*;
//!
//! let device = Device::best(); // a GPU if there is one
//! let (m, n, k) = (64, 48, 32);
//! let a = device.upload(&vec![0.5f32; m * k])?;
//! let b = device.upload(&vec![2.0f32; k * n])?;
//!
//! // Once:
//! let d = Gemm::new(m, n, k).run(&device, &a, &b)?;
//! assert_eq!(d.to_vec::<f32>()?, vec![32.0; m * n]);
//!
//! // Many times, into memory that is there:
//! let plan = Gemm::new(m, n, k).element::<f32>().plan(&device)?;
//! let d = device.alloc::<f32>(m * n)?;
//! plan.run(&Arguments::new(&a, &b, &d))?;
//! assert_eq!(d.to_vec()?, vec![32.0; m * n]);
//!
//! // What is wrong is said, with what to do about it:
//! let error = plan.run(&Arguments::new(&a, &b, &b)).unwrap_err();
//! assert!(error.to_string().starts_with("D: found 1536 elements, expected at least 3072"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`kernels::gemm`](crate::kernels::gemm) describes products and makes [recipes](crate::kernels::gemm::Recipe) for them; here they get
//! memory and run. [`Prepared`] runs a recipe of any origin.
//!
//! # Devices
//!
//! On a GPU and in the simulator the same kernels run. The [CPU](crate::device::Device::cpu) multiplies with its own instructions.

mod arguments;
mod builder;
mod cpu;
mod error;
mod plan;
mod planner;
mod run;
mod workspace;

pub use arguments::Arguments;
pub use builder::Gemm;
pub use error::Error;
pub use plan::Plan;
pub use planner::Planner;
pub use run::{Operands, Prepared};
pub use workspace::Workspace;

// What descriptions of products are made of, under the name under which they are used.
pub use tilewright_kernels::gemm::epilogue::{
    Access, Epilogue, Expr, ExtraOperand, Formula, How, Real, Shape,
};
pub use tilewright_kernels::gemm::{
    Accumulation, Algorithm, Batching, Candidate, GemmError, Placement, Problem, Storage, Types,
};
