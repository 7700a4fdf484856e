//! Memory-bound operators on a device: what stands between the matrix products of a model.
//!
//! | operator | what it computes | gradient |
//! | --- | --- | --- |
//! | [`Softmax`] | softmax and log-softmax of rows, causal, masked, scaled | yes |
//! | [`CrossEntropy`] | the loss of rows of logits, with smoothing and z-loss | yes |
//! | [`RmsNorm`] | RMSNorm, with residual and quantised results | yes |
//! | [`LayerNorm`] | LayerNorm, with residual | yes |
//! | [`Rope`] | rotary position embedding | by its inverse |
//! | [`Glu`] | SwiGLU and GeGLU | yes |
//! | [`Elementwise`] | any formula of matrices, rows, columns and numbers | |
//! | [`Reduce`], [`Arg`] | sums, means, extremes and where they are, of rows and of all | |
//! | [`TopK`] | the largest of each row, in order | |
//! | [`CumulativeSum`] | sums of the beginnings of rows | |
//! | [`transpose`], [`permute`] | other orders | by themselves |
//! | [`embedding`] | rows of a table by index | |
//! | [`Dropout`] | dropout with Philox4x32-10 | by itself |
//! | [`convert`], [`Quantise`], [`dequantise`] | other types | |
//!
//! ```
//! use tilewright::ops::{RmsNorm, Rows, Softmax};
//! use tilewright::prelude::*;
//!
//! let device = Device::cpu();
//! let (rows, columns) = (4, 1536);
//! let x = device.upload(&vec![0.5f32; rows * columns])?;
//! let y = device.alloc::<bf16>(rows * columns)?;
//! let (x, y) = (Rows::new(&x, rows, columns), Rows::new(&y, rows, columns));
//! RmsNorm::new(1e-6).run(&device, x, y)?;
//! Softmax::new().scale(0.125).run(&device, x, x)?; // in place
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contract
//!
//! * Operands are [`Rows`]: any number of rows and columns, zero included, any strides. What does not fit together is an error that names
//!   the operand before anything runs, and nothing is written.
//! * Inputs and results are f32, f16 or bf16, each on its own. Everything is computed in f32 or better, and rounded once to the type of
//!   the result; [`BOUNDS`] says how far from the exact result that can be.
//! * What infinities, NaN, masked rows and empty matrices give is in the head of each operator.
//! * Which operators work in place is said there, too: then a result may be *exactly* an input. Any other overlap is refused.
//!
//! # Devices
//!
//! The [CPU](crate::device::Device::cpu) computes with its own instructions, on all cores, with sums in f64.
//!
//! GPUs, and the [simulator](crate::device::Device::simulator), run the kernels of `tilewright_kernels::ops`, which are written on tiles. A
//! kernel is staged when an operator is first used with its types, settings and length of rows, compiled for what is true of the operands
//! (aligned, without gaps, exactly as long as a tile is wide), and kept with the device: later calls only launch it. On a GPU
//! they return at once, as all launches do, and reading a buffer waits.
//!
//! * A program takes some whole rows and holds them in registers, so that memory is read once and written once. Up to 32768 columns a program
//!   is one block of threads; where the chip has clusters (Hopper and newer), up to 262144 columns it is as many as eight. Kernels that hold
//!   several numbers for each column, as those of gradients do, hold rows that are as much shorter.
//! * Longer rows are read in steps of 4096 columns, twice or more often: there is no limit but that of a view, 2^31 - 1 columns.
//! * What is added up over few long rows, or over all elements, is shared by up to 1024 programs; so are sums over all rows by up to 528.
//!   Nothing is added up atomically: a result has the same bits each time, on one kind of chip.
//! * Causal softmax reads of a row what its query sees, and no more.
//! * [`NoKernel`](Error::NoKernel) is the answer where a kernel is missing: functions of more than three matrices, and RoPE of heads of more
//!   than 4096 numbers.

mod convert;
mod cpu;
mod cross_entropy;
mod cumulative;
mod dropout;
mod elementwise;
mod embedding;
mod error;
mod glu;
mod item;
mod launch;
mod layer_norm;
mod numerics;
mod quantise;
mod reduce;
mod rehearse;
mod rms_norm;
mod rope;
mod rows;
mod softmax;
mod top_k;
mod transpose;

pub use convert::convert;
pub use cross_entropy::CrossEntropy;
pub use cumulative::CumulativeSum;
pub use dropout::{Dropout, philox};
pub use elementwise::Elementwise;
pub use embedding::embedding;
pub use error::Error;
pub use glu::Glu;
pub use item::{FloatItem, IndexItem, NumberItem, QuantItem};
pub use layer_norm::{Affine, LayerNorm, Plain};
pub use numerics::{BOUNDS, Bound, Scale, bounds_table};
pub use quantise::{Quantise, dequantise};
pub use reduce::{Arg, Reduce};
pub use rehearse::{OPERATORS, Operator};
pub use rms_norm::RmsNorm;
pub use rope::Rope;
pub use rows::Rows;
pub use softmax::Softmax;
pub use top_k::TopK;
pub use transpose::{permute, transpose};
