//! Memory pools: accounting and access. Memory goes back at once, so trimming has nothing to do.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;

use cudarc::driver::sys::{
    CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool, CUresult,
};

use crate::entry::{Outcome, api, elements, put};
use crate::state::Owned;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    implicit: bool,
    /// Devices besides its own that may use its memory.
    pub(crate) access: BTreeSet<usize>,
    pub(crate) used: u64,
    used_high: u64,
    limit: Option<u64>,
    settings: BTreeMap<u32, u64>,
}

impl Pool {
    fn new(device: usize, implicit: bool, limit: Option<u64>) -> Pool {
        use CUmemPool_attribute as A;
        let on = [
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        ];
        let mut settings: BTreeMap<u32, u64> =
            on.into_iter().map(|attribute| (attribute as u32, 1)).collect();
        settings.insert(A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32, 0);
        Pool { device, implicit, access: BTreeSet::new(), used: 0, used_high: 0, limit, settings }
    }

    pub(crate) fn default_of(device: usize) -> Pool {
        Pool::new(device, true, None)
    }

    pub(crate) fn charge(&mut self, bytes: u64) -> Outcome {
        let used = self.used + bytes;
        if self.limit.is_some_and(|limit| used > limit) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.used = used;
        self.used_high = self.used_high.max(used);
        Ok(())
    }
}

impl Owned for Pool {
    fn device(&self) -> usize {
        self.device
    }

    fn counted(&self) -> bool {
        !self.implicit
    }
}

/// Whether an attribute is an `int`; the others are 64 bits.
fn is_flag(attribute: CUmemPool_attribute) -> bool {
    (attribute as u32) < CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32
}

api! {
    Driver fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) |driver| {
        let device = driver.ordinal(device)?;
        put(pool, driver.devices[device].default_pool as CUmemoryPool)
    }

    Driver fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) |driver| {
        let device = driver.ordinal(device)?;
        put(pool, driver.devices[device].pool as CUmemoryPool)
    }

    Driver fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) |driver| {
        let device = driver.ordinal(device)?;
        if driver.pools.get(pool as usize)?.device != device {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        driver.devices[device].pool = pool as usize;
        Ok(())
    }

    Driver fn cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) |driver| {
        let properties = properties.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if properties.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let device = driver.ordinal(properties.location.id)?;
        let limit = Some(properties.maxSize as u64).filter(|&limit| limit > 0);
        let handle = driver.handle();
        put(pool, handle as CUmemoryPool)?;
        driver.pools.insert(handle, Pool::new(device, false, limit));
        Ok(())
    }

    Release fn cuMemPoolDestroy(pool: CUmemoryPool) |driver| {
        let handle = pool as usize;
        if driver.pools.get(handle)?.implicit {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let pool = driver.pools.remove(handle)?;
        let device = &mut driver.devices[pool.device];
        if device.pool == handle {
            device.pool = device.default_pool;
        }
        Ok(())
    }

    Driver fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) |driver| {
        use CUmemPool_attribute as A;
        let pool = driver.pools.get_mut(pool as usize)?;
        if value.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let value = if is_flag(attribute) {
            u64::from(value.cast::<u32>().read_unaligned())
        } else {
            value.cast::<u64>().read_unaligned()
        };
        match attribute {
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH | A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value == 0 => {
                pool.used_high = pool.used;
                Ok(())
            }
            _ => match pool.settings.get_mut(&(attribute as u32)) {
                Some(setting) => {
                    *setting = value;
                    Ok(())
                }
                None => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            },
        }
    }

    Driver fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) |driver| {
        use CUmemPool_attribute as A;
        let pool = driver.pools.get(pool as usize)?;
        let number = match attribute {
            A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT | A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => pool.used,
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH | A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.used_high,
            _ => pool.settings.get(&(attribute as u32)).copied().unwrap_or(0),
        };
        if is_flag(attribute) { put(value.cast::<u32>(), number as u32) } else { put(value.cast::<u64>(), number) }
    }

    Driver fn cuMemPoolTrimTo(pool: CUmemoryPool, _keep: usize) |driver| {
        driver.pools.get(pool as usize).map(drop)
    }

    Driver fn cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) |driver| {
        for entry in elements(access, count)? {
            if entry.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            let device = driver.ordinal(entry.location.id)?;
            let pool = driver.pools.get_mut(pool as usize)?;
            if entry.flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE {
                if device == pool.device {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                pool.access.remove(&device);
            } else {
                pool.access.insert(device);
            }
        }
        Ok(())
    }
}
