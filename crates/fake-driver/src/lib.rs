//! A libcuda for tests: the CUDA driver API over host memory, for machines without a GPU.
//!
//! The package is a shared library that exports the functions of `libcuda.so.1`, and a Rust library with which a test
//! runs itself under it:
//!
//! ```
//! use tilewright_fake_driver::Fake;
//!
//! // In a test function called `streams_are_destroyed`:
//! # fn streams_are_destroyed() {
//! Fake::new().run("streams_are_destroyed", |driver| {
//!     // ... use the runtime ...
//!     assert_eq!(driver.leaks(), [""; 0]);
//! });
//! # }
//! ```
//!
//! It is a test double, not a GPU. Kernels do not run: launches are checked, ordered and recorded. What it is good for
//! is everything around kernels: who owns what and for how long, what follows what between streams, captures and
//! graphs, errors, leaks.
//!
//! # What it does
//!
//! * **Late.** Work given to a stream runs when somebody synchronises, and then only what must. Unordered work runs
//!   youngest first. A missing dependency gives wrong data; pinned memory changed too early is seen as it is then. A
//!   query answers "not ready" once and then does the work; a host function runs after a short time by itself.
//! * **Strict.** Every access is checked against live allocations, and device addresses are never given out twice. Use
//!   after free, out of bounds, use on a device without access, memory used before its stream-ordered allocation or
//!   freed without following its last use: all are error 700, from then on returned by every call that uses the
//!   context. [`Inspector::faults`] says why. An argument of 8 bytes that is a dead device address counts as a use, as
//!   does the address in a tensor map.
//! * **Kernels with an effect**, recognised by name, for data to follow: `poke(u64 to, u32 value, u32 count)` writes
//!   words, `copy_words(u64 to, u64 from, u32 count)` copies words, `crash()` is error 700.
//! * **cuBLASLt**: [`library_path`] also exports the functions of it that this project calls. They compute.
//! * **Old drivers**: [`Fake::without`] hides functions.
//!
//! # Environment
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `FAKE_CUDA_DEVICES` | number of devices | 2 |
//! | `FAKE_CUDA_MEMORY` | bytes of memory of a device | as an H200 |
//! | `FAKE_CUDA_LAZY` | 0: work runs when given | 1 |
//! | `FAKE_CUDA_PATIENCE_MS` | when a host function runs unasked | 100 |
//! | `FAKE_CUDA_FAIL` | failures: `function:nth:code`, with commas between | none |
//!
//! # Limits
//!
//! * Linux, 64 bits. Contexts are primary contexts; there are no arrays, textures, IPC, virtual memory management,
//!   `cuLibrary*` functions, conditional or memory nodes added by hand, or batched memory operations.
//! * The functions are those of driver 13.0 that this project calls; a call of any other is a missing symbol.
//! * `cuGetProcAddress` finds nothing: functions are found by their symbols, as cudarc does.
//! * Cubins are what its own linker made. Variables of modules start as zero. Occupancy ignores registers.
//! * `cuMemFree`, `cuMemFreeHost`, `cuModuleUnload` wait for nothing, where real drivers often do without promising it.
//! * A copy or memset with a bad address is error 700 when it runs; real drivers may refuse it at once.
//! * Races between unordered accesses to live memory show in the data only, not as an error.
//! * Times of events count operations. Memory that a capture allocates counts as used for good.
#![allow(unsafe_code, reason = "the C interface of a driver, all pointers and promises of the caller")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "addresses, sizes and handles change between C types of the same 64 bits"
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the fake driver needs a 64-bit host: device addresses and handles are pointers there");

mod code;
mod context;
mod cublaslt;
mod device;
mod entry;
mod errors;
mod execution;
mod graph;
mod harness;
mod inspect;
mod inspector;
mod memory;
mod state;
mod tensor_map;

pub use harness::{Fake, HarnessError, install, install_without, library_path, with_driver};
pub use inspector::{Inspector, LaunchRecord};
