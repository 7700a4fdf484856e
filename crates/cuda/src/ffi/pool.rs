//! Pools of memory that is allocated in the order of streams.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::context::Context;
use super::stream::Stream;
use super::{Shared, call, sys};
use crate::error::CudaError;

pub(crate) use sys::CUmemPool_attribute as Attribute;

/// A pool, destroyed on drop unless it is the device's default pool. The driver keeps a destroyed pool until its memory is freed.
#[derive(Debug)]
pub(crate) struct Pool {
    context: Arc<Context>,
    raw: Shared<sys::CUmemoryPool>,
    owned: bool,
}

impl Pool {
    /// The device's default pool, which everybody in the process shares.
    pub(crate) fn default_of(context: Arc<Context>) -> Result<Pool, CudaError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuDeviceGetDefaultMemPool(&raw mut raw, context.device().0)) }?;
        Ok(Pool { context, raw: Shared(raw), owned: false })
    }

    /// A new pool of the device; 0 is no limit.
    pub(crate) fn new(context: Arc<Context>, max_bytes: usize) -> Result<Pool, CudaError> {
        context.bind()?;
        let properties = sys::CUmemPoolProps {
            allocType: sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_NONE,
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
                id: context.device().0,
            },
            win32SecurityAttributes: ptr::null_mut(),
            maxSize: max_bytes,
            usage: 0,
            reserved: [0; 54],
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the pointers are valid for the call.
        unsafe { call!(cuMemPoolCreate(&raw mut raw, &raw const properties)) }?;
        Ok(Pool { context, raw: Shared(raw), owned: true })
    }

    /// Memory of the pool, to be used in the order of the stream.
    pub(crate) fn allocate(&self, stream: &Stream, bytes: usize) -> Result<u64, CudaError> {
        stream.context().bind()?;
        let mut address = 0;
        // SAFETY: the pointer is valid for the call, both handles live.
        unsafe { call!(cuMemAllocFromPoolAsync(&raw mut address, bytes, self.raw.0, stream.raw())) }?;
        Ok(address)
    }

    /// Gives back what is free until at most so many bytes are held.
    pub(crate) fn trim(&self, keep: usize) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the handle lives.
        unsafe { call!(cuMemPoolTrimTo(self.raw.0, keep)) }
    }

    /// A number of the pool; only for attributes that are 64-bit numbers.
    pub(crate) fn get(&self, attribute: Attribute) -> Result<u64, CudaError> {
        self.context.bind()?;
        let mut value = 0u64;
        // SAFETY: the pointer is valid for the call; the driver writes at most 8 bytes.
        unsafe { call!(cuMemPoolGetAttribute(self.raw.0, attribute, (&raw mut value).cast::<c_void>())) }?;
        Ok(value)
    }

    /// Sets a number of the pool.
    pub(crate) fn set(&self, attribute: Attribute, mut value: u64) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the driver reads at most 8 bytes.
        unsafe { call!(cuMemPoolSetAttribute(self.raw.0, attribute, (&raw mut value).cast::<c_void>())) }
    }

    /// Lets a device reach the pool's memory, also what it has given out already; or no longer.
    pub(crate) fn set_access(&self, device: super::device::Device, reach: bool) -> Result<(), CudaError> {
        use sys::CUmemAccess_flags_enum as Flags;
        self.context.bind()?;
        let flags = if reach {
            Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        } else {
            Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE
        };
        let type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
        let access = sys::CUmemAccessDesc { location: sys::CUmemLocation { type_, id: device.0 }, flags };
        // SAFETY: the pointer is to one description, valid for the call.
        unsafe { call!(cuMemPoolSetAccess(self.raw.0, &raw const access, 1)) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: created once, destroyed once.
            let _ = self.context.bind().and_then(|()| unsafe { call!(cuMemPoolDestroy(self.raw.0)) });
        }
    }
}
