//! [`Driver`]: the way in.

use crate::device::Device;
use crate::error::DriverError;
use crate::ffi::{self, Library};
use crate::version::{CudaVersion, PtxVersion};

/// The NVIDIA driver of this machine, loaded and initialised.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    library: Library,
    version: CudaVersion,
}

impl Driver {
    /// Finds, loads and initialises the driver.
    ///
    /// A machine without driver, with a stub, or without a GPU gives an error that says so.
    pub fn load() -> Result<Driver, DriverError> {
        let library = ffi::library()?;
        ffi::init(library)?;
        let version = CudaVersion::from_driver(ffi::driver_version(library)?);
        Ok(Driver { library, version })
    }

    /// The newest CUDA version that the installed driver supports, asked without initialising it: known even where
    /// [`Driver::load`] fails because no GPU is visible.
    pub fn installed_version() -> Result<CudaVersion, DriverError> {
        Ok(CudaVersion::from_driver(ffi::driver_version(ffi::library()?)?))
    }

    /// The newest CUDA version that the driver supports.
    pub fn version(&self) -> CudaVersion {
        self.version
    }

    /// The newest PTX version that the driver loads; `None` for drivers before CUDA 10.
    pub fn ptx_version(&self) -> Option<PtxVersion> {
        PtxVersion::newest_for(self.version)
    }

    /// All GPUs that the driver shows to this process.
    pub fn devices(&self) -> Result<Vec<Device>, DriverError> {
        (0..ffi::device_count(self.library)?).map(|ordinal| Device::describe(self.library, ordinal)).collect()
    }
}
