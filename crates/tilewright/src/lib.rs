//! GPU kernels in Rust without a toolchain.
//!
//! This crate is the front door: it gathers the layers of the workspace under one name. What runs on a GPU runs on the CPU and, with every check, in
//! the simulator, so this works on any machine:
//!
//! ```
//! use tilewright::gemm::{Arguments, Epilogue, Gemm};
//! use tilewright::ops::{Rows, Softmax};
//! use tilewright::prelude::*;
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
//! let device = Device::best(); // a GPU if there is one, else the CPU
//! let (a, b) = (device.upload(&[1.0f32; 16 * 32])?, device.upload(&[0.5f32; 32 * 8])?);
//! let d = device.alloc::<f32>(16 * 8)?;
//!
//! // A kernel of your own, a product of matrices, an operator.
//! device.compile(&scale::stage()?)?.launch(2, &[&0.25f32, &a, &512u32])?.expect_clean()?;
//! let product = Gemm::new(16, 8, 32).element::<f32>().epilogue(Epilogue::new().relu()).plan(&device)?;
//! product.run(&Arguments::new(&a, &b, &d))?;
//! assert_eq!(d.to_vec()?, [4.0; 16 * 8]);
//! let rows = Rows::new(&d, 16, 8);
//! Softmax::new().run(&device, rows, rows)?;
//! assert_eq!(d.to_vec()?, [0.125; 16 * 8]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it is |
//! | --- | --- |
//! | [`prelude`] | what a program with kernels needs, in one `use` |
//! | [`device`] | memory and launches on GPU, CPU and simulator under the same names |
//! | [`gemm`] | matrix products, planned and computed with one call |
//! | [`ops`] | softmax, norms and the other operators between matrix products |
//! | [`lang`], [`compiler`] | the kernel language, for threads and on tiles, and what makes PTX of kernels |
//! | [`kernels`], [`ladder`] | the kernels that exist, by name; the way from a naive product to a fast one, step by step |
//! | [`ir`], [`tile`], [`passes`], [`codegen`], [`ptx`] | the stages of the compiler, each usable on its own |
//! | [`layout`], [`hardware`] | CuTe's layout algebra; tensor cores, copy engines and chips as data |
//! | [`cuda`] | a CUDA runtime that needs only the driver, found at run time |
//! | [`sim`] | runs PTX on the CPU, checks it and counts |
//!
//! The program `tilewright` of this package has the command line. In the repository, `docs/kernels.md` and `docs/tiles.md` introduce the language,
//! `docs/matrix-products.md` and `docs/operators.md` the library, `docs/runtime.md` devices and packs; `ARCHITECTURE.md` has the map.

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
