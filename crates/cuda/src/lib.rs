//! The NVIDIA driver, found at run time.
//!
//! Nothing here is needed to build, and nothing panics when the driver is missing: [`Driver::load`] says what is
//! absent and what to do about it.
//!
//! ```
//! match tilewright_cuda::Driver::load() {
//!     Ok(driver) => println!("CUDA {}, {} GPUs", driver.version(), driver.devices()?.len()),
//!     Err(problem) => println!("{problem}; {}", problem.remedy()),
//! }
//! # Ok::<(), tilewright_cuda::DriverError>(())
//! ```
//!
//! | you want | look at |
//! | --- | --- |
//! | is there a driver, how new is it, which GPUs | [`Driver`], [`Device`] |
//! | which PTX the driver takes | [`PtxVersion`] |
//! | where compiled kernels are kept | [`CacheFolder`] |
//!
//! # Limits
//!
//! This crate describes the machine; it does not run anything on the GPU.

mod cache;
mod device;
mod driver;
mod error;
mod ffi;
mod version;

pub use cache::{CACHE_VARIABLE, CacheFolder, CacheUsage};
pub use device::{ComputeCapability, Device};
pub use driver::Driver;
pub use error::DriverError;
pub use version::{CudaVersion, PtxVersion};
