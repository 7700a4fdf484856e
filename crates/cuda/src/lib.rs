//! CUDA from Rust, safely, with nothing but the driver.
//!
//! Nothing here is needed to build, and nothing panics when the driver is missing: every function that needs it returns an error that
//! says what is absent and what to do about it.
//!
//! ```
//! match tilewright_cuda::Driver::load() {
//!     Ok(driver) => println!("CUDA {}, {} GPUs", driver.version(), driver.devices()?.len()),
//!     Err(problem) => println!("{problem}; {}", problem.remedy()),
//! }
//! # Ok::<(), tilewright_cuda::CudaError>(())
//! ```
//!
//! | you want | look at |
//! | --- | --- |
//! | is there a driver, how new is it, which GPUs | [`Driver`], [`Device`], [`PtxVersion`] |
//! | to use a GPU | [`Context`], [`Stream`], [`Event`] |
//! | memory of a device | [`Buffer`], [`Slice`], [`SliceMut`]; [`Stream::copy`], [`Stream::fill`]; [`MemoryPool`] |
//! | memory with padded rows | [`Pitched`], [`Rect`]; [`Stream::copy_2d`] |
//! | memory that the host sees too | [`Pinned`], [`Managed`] |
//! | to share with other libraries | [`interop`] |
//! | code | [`Code`], [`Context::load`], [`Module`], [`Kernel`], [`LaunchConfig`], [`TensorMap`] |
//! | work that repeats | [`Stream::capture`], [`GraphBuilder`], [`Graph`], [`GraphExec`] |
//! | kernels compiled once | [`DiskCache`], [`KernelCache`], [`Pack`] |
//! | CUDA C++, where NVRTC is installed (feature `nvrtc`) | `CudaSource`, `Context::load_cuda` |
//!
//! # What is safe
//!
//! Loading code is `unsafe`: whoever does it vouches for the kernels. Everything else is safe: launches are checked against what
//! the kernel is, memory lives until all operations on it are done, and operations of different streams on the same memory wait for
//! each other.

mod cache;
mod code;
mod context;
mod device;
mod driver;
mod error;
mod event;
mod ffi;
mod graph;
pub mod interop;
mod launch;
mod memory;
#[cfg(feature = "nvrtc")]
mod nvrtc;
mod pack;
mod stream;
mod tensor_map;
mod version;

pub use bytemuck::Pod;
pub use cache::{
    CACHE_SIZE_VARIABLE, CACHE_VARIABLE, CacheFolder, CacheStats, CacheUsage, DEFAULT_CAP, DiskCache, Entry,
    EntryInfo, EntryState, KernelCache, Key, KeyBuilder, KeyError, Problem, Put,
};
pub use code::{Code, Kernel, KernelAttributes, Module, Origin};
pub use context::{Context, Limit};
pub use cudarc;
pub use cudarc::driver::sys::CUdevice_attribute as DeviceAttribute;
pub use device::{ComputeCapability, Device};
pub use driver::Driver;
pub use error::{CudaError, Fault, LaunchRecord};
pub use event::{Event, EventOptions};
pub use graph::{Graph, GraphBuilder, GraphExec, InstantiateOptions, Node, NodeKind};
pub use launch::{Arg, Arguments, ByValue, Dim3, LaunchConfig};
pub use memory::{
    Advice, Buffer, HostMut, HostRect, HostRectMut, HostRef, Managed, MemoryPool, Pinned, Pitched, Place,
    PoolOptions, PoolUsage, Rect, RectMut, Slice, SliceMut, Source, Source2d, Target, Target2d,
};
#[cfg(feature = "nvrtc")]
pub use nvrtc::{CompiledSource, CudaSource, nvrtc_version};
pub use pack::{
    Form, Pack, PackBuilder, PackError, PackedKernel, PackedKernelRef, PackedVariant, PackedVariantRef,
};
pub use stream::{Stream, StreamOptions};
pub use tensor_map::TensorMap;
pub use tilewright_ptx::{Access, Parameter, ParameterKind, PointerSpace, Signature};
pub use version::{CudaVersion, PtxVersion};
