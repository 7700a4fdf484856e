//! What a GPU is: name, architecture and the sizes that kernels are planned by.

use std::fmt;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::error::DriverError;
use crate::ffi::{self, Library};

/// A compute capability such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// The number before the point.
    pub major: u32,
    /// The number after the point.
    pub minor: u32,
}

impl ComputeCapability {
    /// The architecture's name, for example Hopper.
    pub fn architecture(&self) -> &'static str {
        match (self.major, self.minor) {
            (7, 0 | 2) => "Volta",
            (7, _) => "Turing",
            (8, 9) => "Ada",
            (8, _) => "Ampere",
            (9, _) => "Hopper",
            (10..=12, _) => "Blackwell",
            (0..7, _) => "before Volta",
            _ => "newer than this program knows",
        }
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// Its number, from 0.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// What its multiprocessors can do.
    pub compute_capability: ComputeCapability,
    /// Bytes of global memory.
    pub memory_bytes: u64,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory that one block can opt in to.
    pub shared_bytes_per_block: u64,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// Boost clock of the multiprocessors.
    pub clock_khz: u32,
}

impl Device {
    pub(crate) fn describe(library: Library, ordinal: i32) -> Result<Device, DriverError> {
        let handle = ffi::device(library, ordinal)?;
        // The driver reports counts and sizes as signed integers; none is ever negative.
        let attribute = |which| ffi::attribute(handle, which).map(i32::unsigned_abs);
        Ok(Device {
            ordinal: ordinal.unsigned_abs(),
            name: ffi::name(handle)?,
            compute_capability: ComputeCapability {
                major: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                minor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            },
            memory_bytes: ffi::total_memory(handle)?,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_bytes_per_block: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?
            .into(),
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        })
    }
}
