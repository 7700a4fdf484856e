//! Primary contexts, the only ones there are.

use std::ffi::{c_int, c_uint, c_ulonglong};

use cudarc::driver::sys::{CUcontext, CUdevice, CUlimit, CUresult};

use crate::entry::{
    Driver, Outcome, api, current_handle, pop_current, push_current, put, put_if_wanted, set_current,
};
use crate::execution::PRIORITIES;
use crate::state::State;

/// Limits a context starts with.
fn default_limit(limit: CUlimit) -> Outcome<usize> {
    match limit {
        CUlimit::CU_LIMIT_STACK_SIZE => Ok(1024),
        CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => Ok(6_750_208),
        CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => Ok(8 << 20),
        CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY => Ok(64),
        CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE => Ok(0),
        _ => Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT),
    }
}

impl Driver {
    /// A context that somebody retains.
    fn context(&self, context: CUcontext) -> Outcome<usize> {
        let device = self.device_of_context(context as usize)?;
        if self.devices[device].retained == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        Ok(device)
    }
}

api! {
    Driver fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) |driver| {
        let device = driver.ordinal(device)?;
        put(context, State::context_of_device(device) as CUcontext)?;
        if driver.devices[device].retained == 0 {
            driver.begin_context(device);
        }
        driver.devices[device].retained += 1;
        Ok(())
    }

    Driver fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) |driver| {
        let device = driver.ordinal(device)?;
        match driver.devices[device].retained {
            0 => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            1 => {
                driver.drain_device(device);
                driver.end_context(device);
                Ok(())
            }
            _ => {
                driver.devices[device].retained -= 1;
                Ok(())
            }
        }
    }

    Driver fn cuDevicePrimaryCtxReset_v2(device: CUdevice) |driver| {
        let device = driver.ordinal(device)?;
        let retained = driver.devices[device].retained;
        if retained > 0 {
            driver.drain_device(device);
            driver.end_context(device);
            driver.begin_context(device);
            driver.devices[device].retained = retained;
        }
        Ok(())
    }

    Driver fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) |driver| {
        let device = driver.ordinal(device)?;
        put(flags, 0)?;
        put(active, c_int::from(driver.devices[device].retained > 0))
    }

    Driver fn cuCtxGetCurrent(context: *mut CUcontext) |_| {
        put(context, current_handle().unwrap_or_default() as CUcontext)
    }

    Driver fn cuCtxSetCurrent(context: CUcontext) |driver| {
        if !context.is_null() {
            driver.context(context)?;
        }
        set_current(context as usize);
        Ok(())
    }

    Driver fn cuCtxPushCurrent_v2(context: CUcontext) |driver| {
        driver.context(context)?;
        push_current(context as usize);
        Ok(())
    }

    Driver fn cuCtxPopCurrent_v2(context: *mut CUcontext) |_| {
        let handle = pop_current().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        put_if_wanted(context, handle as CUcontext);
        Ok(())
    }

    Driver fn cuCtxGetDevice(device: *mut CUdevice) |driver| {
        let current = driver.current()?;
        put(device, current as CUdevice)
    }

    Driver fn cuCtxGetId(context: CUcontext, id: *mut c_ulonglong) |driver| {
        let device = if context.is_null() { driver.current()? } else { driver.context(context)? };
        put(id, device as u64 + 1)
    }

    Context fn cuCtxGetFlags(flags: *mut c_uint) |_| {
        put(flags, 0)
    }

    Context fn cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) |driver| {
        if !context.is_null() {
            driver.context(context)?;
        }
        put(version, 13000)
    }

    Context fn cuCtxSynchronize() |driver| {
        let device = driver.current()?;
        driver.refuse_captures_of(device)?;
        driver.drain_device(device);
        Ok(())
    }

    Context fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) |_| {
        put_if_wanted(least, PRIORITIES.0);
        put_if_wanted(greatest, PRIORITIES.1);
        Ok(())
    }

    Context fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) |driver| {
        let (device, peer) = (driver.current()?, driver.context(peer)?);
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if device == peer {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        if !driver.devices[device].peers.insert(peer) {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        Ok(())
    }

    Context fn cuCtxDisablePeerAccess(peer: CUcontext) |driver| {
        let (device, peer) = (driver.current()?, driver.context(peer)?);
        if !driver.devices[device].peers.remove(&peer) {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        }
        Ok(())
    }

    Context fn cuCtxGetLimit(value: *mut usize, limit: CUlimit) |driver| {
        let device = driver.current()?;
        let default = default_limit(limit)?;
        put(value, driver.devices[device].limits.get(&(limit as u32)).copied().unwrap_or(default))
    }

    Context fn cuCtxSetLimit(limit: CUlimit, value: usize) |driver| {
        let device = driver.current()?;
        default_limit(limit)?;
        driver.devices[device].limits.insert(limit as u32, value);
        Ok(())
    }
}
