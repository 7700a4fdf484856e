//! Starting the driver, and devices: so many H200s.
//!
//! What launches are checked against is the documented limit of compute capability 9.0. Clocks, sizes of caches and the
//! like are of the right order and not measured.

use std::ffi::{c_char, c_int, c_uint};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUresult, CUuuid};

use crate::entry::{api, put};

/// Limits that other modules check against.
pub(crate) mod limit {
    pub(crate) const SMS: u32 = 132;
    pub(crate) const THREADS_PER_BLOCK: u32 = 1024;
    pub(crate) const THREADS_PER_SM: u32 = 2048;
    pub(crate) const BLOCKS_PER_SM: u32 = 32;
    pub(crate) const BLOCK: [u32; 3] = [1024, 1024, 64];
    pub(crate) const GRID: [u32; 3] = [0x7FFF_FFFF, 65535, 65535];
    /// Shared memory of a block, without and with asking for more.
    pub(crate) const SHARED: u32 = 48 << 10;
    pub(crate) const SHARED_OPT_IN: u32 = 227 << 10;
    pub(crate) const SHARED_PER_SM: u32 = 228 << 10;
    pub(crate) const SHARED_RESERVED: u32 = 1 << 10;
    pub(crate) const CLUSTER: u32 = 8;
    pub(crate) const CLUSTER_NON_PORTABLE: u32 = 16;
    pub(crate) const CAPABILITY: (u32, u32) = (9, 0);
}

const NAME: &str = "NVIDIA H200 (fake)";
const VERSION: i32 = 13000;

/// The value of an attribute. Those of textures and of what this driver does not have are 0.
fn attribute(attribute: CUdevice_attribute, device: usize) -> i64 {
    use CUdevice_attribute::*;
    match attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => limit::THREADS_PER_BLOCK.into(),
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X => limit::BLOCK[0].into(),
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => limit::BLOCK[1].into(),
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => limit::BLOCK[2].into(),
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => limit::GRID[0].into(),
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y => limit::GRID[1].into(),
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => limit::GRID[2].into(),
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => limit::SHARED.into(),
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => limit::SHARED_OPT_IN.into(),
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => limit::SHARED_PER_SM.into(),
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => limit::SHARED_RESERVED.into(),
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 64 << 10,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX.into(),
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 64 << 10,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_980_000,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 3_201_000,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 6144,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 60 << 20,
        CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE => 32 << 20,
        CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE => 128 << 20,
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT | CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT => 512,
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => 32,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => limit::SMS.into(),
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => limit::THREADS_PER_SM.into(),
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => limit::BLOCKS_PER_SM.into(),
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => device as i64 + 1,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => limit::CAPABILITY.0.into(),
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => limit::CAPABILITY.1.into(),
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT => 4,
        CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => 1,
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID | CU_DEVICE_ATTRIBUTE_NUMA_ID => -1,
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_ECC_ENABLED
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
        | CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS => 1,
        _ => 0,
    }
}

api! {
    Always fn cuInit(flags: c_uint) |driver| {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        driver.initialise()
    }

    Always fn cuDriverGetVersion(version: *mut c_int) |_| {
        put(version, VERSION)
    }

    Driver fn cuDeviceGetCount(count: *mut c_int) |driver| {
        put(count, driver.devices.len() as c_int)
    }

    Driver fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) |driver| {
        driver.ordinal(ordinal)?;
        put(device, ordinal)
    }

    Driver fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: CUdevice) |driver| {
        driver.ordinal(device)?;
        let room = usize::try_from(bytes).unwrap_or(0);
        if name.is_null() || room == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        for (at, &byte) in NAME.as_bytes().iter().take(room - 1).chain([&0]).enumerate() {
            name.add(at).write(byte as c_char);
        }
        Ok(())
    }

    Driver fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) |driver| {
        let device = driver.ordinal(device)?;
        let mut bytes = [0x5A; 16];
        bytes[15] = device as c_char;
        put(uuid, CUuuid { bytes })
    }

    Driver fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) |driver| {
        driver.ordinal(device)?;
        put(bytes, driver.config.memory as usize)
    }

    Driver fn cuDeviceGetAttribute(value: *mut c_int, which: CUdevice_attribute, device: CUdevice) |driver| {
        let device = driver.ordinal(device)?;
        put(value, attribute(which, device) as c_int)
    }

    Driver fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) |driver| {
        let (device, peer) = (driver.ordinal(device)?, driver.ordinal(peer)?);
        put(can, c_int::from(device != peer))
    }
}
