//! Runs PTX on the CPU, checks it for races, deadlocks and missing fences, and counts what a profiler would.
//!
//! ```
//! use tilewright_sim::{Arg, Launch, Module, Options, Simulator};
//!
//! let module = Module::parse(
//!     ".version 8.0\n.target sm_90\n.address_size 64\n\
//!      .visible .entry double(.param .u64 data)\n{\n\
//!      .reg .b64 %rd<4>;\n.reg .b32 %r<2>;\n.reg .f32 %f<3>;\n\
//!      ld.param.u64 %rd1, [data];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n\
//!      ld.global.f32 %f1, [%rd3];\nadd.f32 %f2, %f1, %f1;\nst.global.f32 [%rd3], %f2;\nret;\n}\n",
//! )?;
//! let mut sim = Simulator::new(Options::default());
//! let data = sim.upload(&[1.0f32, 2.0, 3.0, 4.0]);
//! let report = sim.launch(&module, "double", &Launch::new(1, 4), &[Arg::Buffer(data)])?;
//! assert!(report.findings.is_empty());
//! assert_eq!(sim.download::<f32>(data)?, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), tilewright_sim::SimError>(())
//! ```
//!
//! # Layers
//!
//! | module | what it is |
//! | --- | --- |
//! | [`program`] | PTX decoded into ops, names resolved |
//! | [`number`] | arithmetic on the 32 lanes of a warp |
//! | [`tensor`] | matrix instructions and TMA addressing, as pure functions |
//! | `memory` | buffers, and the private view that a cluster has of them during a round |
//! | `machine` | executes a grid: rounds, clusters, warps |
//! | [`check`] | vector clocks, shadow memory, findings |
//! | [`count`] | bank conflicts, sectors, instruction mix, roofline |
//!
//! # Contract
//!
//! * The same module, launch, memory and seed give the same run, on any number of cores. Another seed gives another interleaving.
//! * Nothing in a module makes it panic. What it cannot execute is an error that names the line; what a kernel does wrong is a
//!   [`Finding`] with both places.
//! * Without findings, a run is one that the memory model of PTX allows. A clean run under one seed is no proof for all.
//!
//! # Limits
//!
//! Textures, surfaces and Blackwell's tensor memory are not executed. Approximations such as `ex2.approx` are rounded correctly, which
//! is within the error of the hardware but not its bits; sums of tensor cores are those of [`tensor`]. Caches and time are not modelled.

pub mod check;
pub mod count;
mod device;
mod error;
mod machine;
mod memory;
pub mod number;
pub mod program;
pub mod tensor;

pub use check::{Finding, FindingKind, Place};
pub use count::Counts;
pub use device::{Arg, Buffer, Launch, Module, Options, Parameter, Report, Sample, Simulator};
pub use error::SimError;
pub use tensor::tensor_map::TensorMap;
