//! GPU kernels in Rust without a toolchain.
//!
//! This crate is the front door: it gathers the layers of the workspace under one name. Today these are
//!
//! * [`gemm`]: matrix products, planned and computed with one call on GPU, CPU and simulator;
//! * [`ops`]: softmax, norms and the other operators between matrix products;
//! * [`lang`]: the kernel language, with [`compiler`], which makes PTX of kernels, and [`kernels`], the registry of those that exist;
//! * [`ir`], [`tile`], [`passes`], [`codegen`], [`ptx`]: the stages of the compiler, each usable on its own;
//! * [`layout`] and [`hardware`]: CuTe's layout algebra, and the tensor cores, copy engines and chips as data;
//! * [`device`]: memory and launches on GPU, CPU and simulator under the same names;
//! * [`cuda`]: a CUDA runtime that needs only the driver, found at run time; [`sim`], which runs PTX on the CPU, checks it and counts.
//!
//! ```
//! use tilewright::{compiler::Compiler, hardware::Arch, lang::prelude::*};
//!
//! /// x = a * x
//! #[kernel(threads = 256)]
//! fn scale(a: Val<f32>, x: Global<f32>, n: Val<u32>) {
//!     let i = block_id(0) * 256 + thread_id(0);
//!     if i < n {
//!         x.at(i).store(a * x.at(i).load());
//!     }
//! }
//!
//! let build = Compiler::new(Arch::SM_80).compile(scale::stage()?.func())?;
//! assert!(build.code.text.contains("mul.rn.f32"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```
//! use tilewright::layout::{Layout, Tiler};
//! let matrix: Layout = "(8,16):(16,1)".parse()?;
//! let tiles = matrix.zipped_divide(&Tiler::shape((4, 8))?)?;
//! assert_eq!(tiles.to_string(), "((4,8),(2,2)):((16,1),(64,8))");
//! # Ok::<(), tilewright::layout::LayoutError>(())
//! ```
//!
//! The program `tilewright` of this package has the command line; `ARCHITECTURE.md` in the repository has the map.

#[allow(unused_extern_crates, reason = "kernels written inside this crate expand to this name")]
extern crate self as tilewright;

pub mod device;
pub mod gemm;
pub mod ladder;
pub mod ops;

pub use tilewright_codegen as codegen;
pub use tilewright_compiler as compiler;
pub use tilewright_cuda as cuda;
pub use tilewright_hardware as hardware;
pub use tilewright_ir as ir;
pub use tilewright_kernels as kernels;
pub use tilewright_lang as lang;
pub use tilewright_layout as layout;
pub use tilewright_passes as passes;
pub use tilewright_ptx as ptx;
pub use tilewright_sim as sim;
pub use tilewright_tile as tile;

/// Everything that a program with kernels needs: the language, the compiler, the chips and the device.
pub mod prelude {
    pub use crate::compiler::Compiler;
    pub use crate::device::{Buffer, Device};
    pub use crate::hardware::Arch;
    pub use crate::lang::prelude::*;
}

// The examples in the README and in the chapters are tests.
#[cfg(doctest)]
mod chapters {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/layouts.md")]
    mod layouts {}
    #[doc = include_str!("../../../docs/kernels.md")]
    mod kernels {}
    #[doc = include_str!("../../../docs/simulator.md")]
    mod simulator {}
    #[doc = include_str!("../../../docs/runtime.md")]
    mod runtime {}
    #[doc = include_str!("../../../docs/matrix-products.md")]
    mod matrix_products {}
}
