//! [`Driver`]: the way in.

use crate::device::Device;
use crate::error::CudaError;
use crate::ffi::device as ffi;
use crate::version::{CudaVersion, PtxVersion};

/// The NVIDIA driver of this machine, loaded and initialised.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: CudaVersion,
}

impl Driver {
    /// Finds, loads and initialises the driver.
    ///
    /// # Errors
    /// A machine without driver, with a stub, or without a GPU gives an error that says so.
    pub fn load() -> Result<Driver, CudaError> {
        ffi::init()?;
        Ok(Driver { version: Driver::installed_version()? })
    }

    /// The newest CUDA version that the installed driver supports, asked without initialising it: known even where
    /// [`Driver::load`] fails because no GPU is visible.
    ///
    /// # Errors
    /// If there is no driver.
    pub fn installed_version() -> Result<CudaVersion, CudaError> {
        Ok(CudaVersion::from_driver(ffi::driver_version()?))
    }

    /// The newest CUDA version that the driver supports.
    pub fn version(&self) -> CudaVersion {
        self.version
    }

    /// The newest PTX version that the driver loads; `None` for drivers before CUDA 10.
    pub fn ptx_version(&self) -> Option<PtxVersion> {
        PtxVersion::newest_for(self.version)
    }

    /// How many GPUs the driver shows to this process.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn device_count(&self) -> Result<u32, CudaError> {
        Ok(ffi::count()?.unsigned_abs())
    }

    /// One of the GPUs.
    ///
    /// # Errors
    /// If there is none of that number.
    pub fn device(&self, ordinal: u32) -> Result<Device, CudaError> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        Device::describe(ordinal)
    }

    /// All GPUs that the driver shows to this process.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn devices(&self) -> Result<Vec<Device>, CudaError> {
        (0..self.device_count()?).map(Device::describe).collect()
    }
}
