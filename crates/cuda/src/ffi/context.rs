//! Primary contexts.

use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;

use super::device::Device;
use super::{Shared, call, sys};
use crate::context::lock;
use crate::error::CudaError;

/// A primary context, retained until dropped.
#[derive(Debug)]
pub(crate) struct Context {
    device: Device,
    raw: Shared<sys::CUcontext>,
    captures: Mutex<Captures>,
}

/// Streams that are being captured: waiting for the whole context would end their captures.
#[derive(Debug, Default)]
struct Captures {
    under_way: usize,
    /// Modules to unload when none is.
    modules: Vec<Shared<sys::CUmodule>>,
}

impl Context {
    pub(crate) fn retain(device: Device) -> Result<Context, CudaError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call, and a `Device` only comes from the driver.
        unsafe { call!(cuDevicePrimaryCtxRetain(&raw mut raw, device.0)) }?;
        Ok(Context { device, raw: Shared(raw), captures: Mutex::default() })
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn raw(&self) -> sys::CUcontext {
        self.raw.0
    }

    /// Makes it the context of this thread, if it is not: other libraries may have set theirs.
    #[inline]
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        let mut current = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuCtxGetCurrent(&raw mut current)) }?;
        if current == self.raw.0 {
            return Ok(());
        }
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { call!(cuCtxSetCurrent(self.raw.0)) }
    }

    /// Waits for all work of the context; `false` if it cannot because a stream of it is being captured.
    pub(crate) fn synchronize(&self) -> Result<bool, CudaError> {
        self.bind()?;
        // Held while waiting, so that no capture begins.
        let captures = lock(&self.captures);
        if captures.under_way > 0 {
            return Ok(false);
        }
        // SAFETY: the context is bound.
        unsafe { call!(cuCtxSynchronize()) }.map(|()| true)
    }

    /// A capture is about to begin.
    pub(crate) fn enter_capture(&self) {
        lock(&self.captures).under_way += 1;
    }

    /// A capture is over.
    pub(crate) fn leave_capture(&self) {
        let mut captures = lock(&self.captures);
        captures.under_way -= 1;
        if captures.under_way == 0 && self.bind().is_ok() {
            for module in std::mem::take(&mut captures.modules) {
                unload(module);
            }
        }
    }

    /// Unloads a module when what was launched of it is done.
    pub(super) fn unload(&self, module: Shared<sys::CUmodule>) {
        let mut captures = lock(&self.captures);
        if captures.under_way > 0 {
            captures.modules.push(module);
        } else if self.bind().is_ok() {
            unload(module);
        }
    }

    /// Free and total bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the pointers are valid for the call.
        unsafe { call!(cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok((free as u64, total as u64))
    }

    /// The least and the greatest priority of streams; the greatest is the smaller number.
    pub(crate) fn priorities(&self) -> Result<(i32, i32), CudaError> {
        self.bind()?;
        let (mut least, mut greatest): (c_int, c_int) = (0, 0);
        // SAFETY: the pointers are valid for the call.
        unsafe { call!(cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
        Ok((least, greatest))
    }

    /// Lets kernels of this context reach memory of the other. `false` if they already could.
    pub(crate) fn enable_peer(&self, other: &Context) -> Result<bool, CudaError> {
        self.bind()?;
        // SAFETY: both contexts are retained.
        match unsafe { call!(cuCtxEnablePeerAccess(other.raw.0, 0)) } {
            Ok(()) => Ok(true),
            Err(CudaError::Call { code: 704, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn disable_peer(&self, other: &Context) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: both contexts are retained.
        unsafe { call!(cuCtxDisablePeerAccess(other.raw.0)) }
    }

    pub(crate) fn limit(&self, limit: sys::CUlimit) -> Result<usize, CudaError> {
        self.bind()?;
        let mut value = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuCtxGetLimit(&raw mut value, limit)) }?;
        Ok(value)
    }

    pub(crate) fn set_limit(&self, limit: sys::CUlimit, value: usize) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: the context is bound; the driver checks the value.
        unsafe { call!(cuCtxSetLimit(limit, value)) }
    }
}

/// With the context bound, no capture under way, and each module once.
fn unload(module: Shared<sys::CUmodule>) {
    // Kernels of it may still run. If that cannot be waited for, the context is lost, and everything with it.
    // SAFETY: the context is bound, the module is loaded, and nothing of it runs.
    let _ = unsafe { call!(cuCtxSynchronize()).and_then(|()| call!(cuModuleUnload(module.0))) };
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once. A driver that is shutting down refuses; there is nothing left to release then.
        let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device.0)) };
    }
}
