//! The hardware as data: element types, architectures, and the atoms of tensor cores and copy engines.
//!
//! The bottom of the compiler. Nothing here knows an intermediate representation or writes PTX: these are the tables and
//! the few derivations that the language, the passes, the code generator and a simulator read, so that a fact about the
//! hardware is written down once.
//!
//! ```
//! use tilewright_hardware::{Arch, Element, Group, Major, MatrixDescriptor, SwizzleMode, TensorMapSpec, mma, smem_tile};
//!
//! // A 128x64 operand of bf16 in shared memory: TMA writes it with one box, wgmma reads it in four steps.
//! let tile = smem_tile(Major::K, 128, 64, Element::BF16, SwizzleMode::B128)?;
//! assert_eq!(TensorMapSpec::for_tile(&tile, Element::BF16)?.boxes.len(), 1);
//! let atom = mma::best(Arch::SM_90A, Group::Warpgroup, Element::BF16, Element::BF16, Element::F32, (128, 256, 64))?;
//! let a = MatrixDescriptor::for_operand(&tile, atom.a, atom.shape.m)?;
//! assert_eq!((a.row_offsets.len(), a.k_offsets.len()), (2, 4));
//! # Ok::<(), tilewright_hardware::HardwareError>(())
//! ```
//!
//! # Where to look
//!
//! | you want | look at |
//! | --- | --- |
//! | number types | [`Element`] |
//! | chips, what they hold, how many blocks fit | [`Arch`], [`Limits`], [`occupancy`] |
//! | GPUs that are sold, and their peaks | [`Gpu`], [`TensorKind`] |
//! | tensor-core instructions and who holds what | [`mma`], [`Mma`] |
//! | `ldmatrix` and `stmatrix` | [`matrix_copy`], [`MatrixCopy`] |
//! | tiles in shared memory | [`smem_tile`], [`SwizzleMode`] |
//! | how wgmma reads such a tile | [`MatrixDescriptor`] |
//! | how TMA writes such a tile | [`TensorMapSpec`] |
//!
//! # Contract
//!
//! * Layouts are the hardware's, proved by enumeration in the tests against the formulas of the instruction set.
//! * Descriptors and boxes are derived from what a layout does, never from how it is written.
//! * Nothing panics on any input; what the hardware cannot do is a [`HardwareError`] that says why.

mod arch;
mod descriptor;
mod element;
mod error;
mod gpu;
pub mod matrix_copy;
pub mod mma;
mod swizzle;
mod tile;
mod tma;

pub use arch::{Arch, Limiter, Limits, Occupancy, WARP, WARPGROUP, occupancy};
pub use descriptor::MatrixDescriptor;
pub use element::Element;
pub use error::{HardwareError, Result};
pub use gpu::{Gpu, TensorKind};
pub use matrix_copy::{Direction, FragmentCopy, MatrixCopy};
pub use mma::{Group, Mma, Operand, Shape};
pub use swizzle::{Major, SwizzleMode, smem_tile};
pub use tma::{L2Promotion, OobFill, TensorMapSpec, TileBox, TileBoxes};
