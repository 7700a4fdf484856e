//! What a GPU is: name, architecture and the sizes that kernels are planned by.

use std::fmt;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::error::CudaError;
use crate::ffi::device as ffi;

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
    /// What identifies the chip whatever number it has; none on drivers before CUDA 11.4.
    pub uuid: Option<[u8; 16]>,
    /// What its multiprocessors can do.
    pub compute_capability: ComputeCapability,
    /// Bytes of global memory.
    pub memory_bytes: u64,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Threads that a multiprocessor holds at once.
    pub threads_per_multiprocessor: u32,
    /// Threads that a block can have.
    pub threads_per_block: u32,
    /// The largest block along x, y and z.
    pub largest_block: [u32; 3],
    /// The largest grid along x, y and z.
    pub largest_grid: [u32; 3],
    /// Bytes of shared memory that one block can opt in to.
    pub shared_bytes_per_block: u64,
    /// Bytes of shared memory that a block has without opting in.
    pub shared_bytes_without_opt_in: u64,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes_per_multiprocessor: u64,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// Boost clock of the multiprocessors.
    pub clock_khz: u32,
    /// Whether blocks can form clusters.
    pub clusters: bool,
    /// Whether all blocks of a launch can wait for each other.
    pub cooperative: bool,
    /// Whether memory can be allocated in the order of a stream.
    pub memory_pools: bool,
    /// Whether host and device may use managed memory at the same time.
    pub concurrent_managed: bool,
}

impl Device {
    pub(crate) fn describe(ordinal: u32) -> Result<Device, CudaError> {
        let handle = ffi::Device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
        // The driver reports counts and sizes as signed integers; none is ever negative.
        let number = |which| handle.attribute(which).map(i32::unsigned_abs);
        let long = |which| number(which).map(u64::from);
        // What an older driver does not know of, its devices do not have.
        let flag = |which| handle.attribute(which).is_ok_and(|value| value != 0);
        Ok(Device {
            ordinal,
            name: handle.name()?,
            uuid: handle.uuid().ok(),
            compute_capability: ComputeCapability {
                major: number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                minor: number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            },
            memory_bytes: handle.total_memory()?,
            multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            threads_per_multiprocessor: number(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            )?,
            threads_per_block: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            largest_block: [
                number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            largest_grid: [
                number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            shared_bytes_per_block: long(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            shared_bytes_without_opt_in: long(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            shared_bytes_per_multiprocessor: long(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?,
            registers_per_multiprocessor: number(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
            )?,
            l2_bytes: long(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            clock_khz: number(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            clusters: flag(Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH),
            cooperative: flag(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
            memory_pools: flag(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
            concurrent_managed: flag(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
        })
    }

    /// Any number that the driver knows of the device, by the driver's name for it.
    ///
    /// # Errors
    /// If the driver does not know the attribute.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32, CudaError> {
        ffi::Device::get(i32::try_from(self.ordinal).unwrap_or(i32::MAX))?.attribute(attribute)
    }

    /// Whether kernels on this device can reach memory of the other.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn can_access(&self, other: &Device) -> Result<bool, CudaError> {
        let handle = |device: &Device| ffi::Device::get(i32::try_from(device.ordinal).unwrap_or(i32::MAX));
        handle(self)?.can_access(handle(other)?)
    }
}
