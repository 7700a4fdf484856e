//! The driver called directly, where the benchmark needs more than one call of it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use tilewright_cuda::Context;
use tilewright_cuda::cudarc::driver::sys::{self, CUresult};

use crate::measure::Outcome;

/// An error unless the driver is content.
#[inline]
pub(crate) fn ok(result: CUresult) -> Outcome<()> {
    if result == CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(format!("a raw call failed: {result:?}").into())
    }
}

/// Lets the pool of the device keep what is freed, so that allocations are measured and not the mapping of memory, which each
/// synchronisation would undo.
pub(crate) fn keep_freed_memory(context: &Context) -> Outcome<()> {
    let ordinal = i32::try_from(context.ordinal())?;
    let (mut device, mut pool, mut all) = (0, ptr::null_mut(), u64::MAX);
    let threshold = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the pointers are valid for the calls; the attribute is a number of 64 bits.
    unsafe {
        ok(sys::cuDeviceGet(&raw mut device, ordinal))?;
        ok(sys::cuDeviceGetDefaultMemPool(&raw mut pool, device))?;
        ok(sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast::<c_void>()))
    }
}

/// Page-locked bytes.
pub(crate) struct Pinned {
    pointer: *mut c_void,
    len: usize,
}

impl Pinned {
    pub(crate) fn new(len: usize) -> Outcome<Pinned> {
        let mut pointer = ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the caller has a context, which is bound to this thread.
        ok(unsafe { sys::cuMemHostAlloc(&raw mut pointer, len, sys::CU_MEMHOSTALLOC_PORTABLE) })?;
        // SAFETY: so many bytes of ours.
        unsafe { ptr::write_bytes(pointer.cast::<u8>(), 1, len) };
        Ok(Pinned { pointer, len })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes of ours, written when they were allocated.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast::<u8>(), self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once; all copies were waited for.
        let _ = unsafe { sys::cuMemFreeHost(self.pointer) };
    }
}

/// A module that the driver itself compiled, unloaded on drop.
pub(crate) struct RawModule(sys::CUmodule);

impl RawModule {
    /// Loads PTX, which must end with a 0, as far as to a kernel that could be launched: the driver puts off what it can.
    pub(crate) fn compile(ptx: &std::ffi::CStr, kernel: &std::ffi::CStr) -> Outcome<RawModule> {
        let (mut module, mut function, mut registers) = (ptr::null_mut(), ptr::null_mut(), 0);
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_NUM_REGS;
        // SAFETY: the pointers are valid for the calls, both texts end with 0.
        unsafe {
            ok(sys::cuModuleLoadData(&raw mut module, ptx.as_ptr().cast::<c_void>()))?;
            let module = RawModule(module);
            ok(sys::cuModuleGetFunction(&raw mut function, module.0, kernel.as_ptr()))?;
            ok(sys::cuFuncGetAttribute(&raw mut registers, attribute, function))?;
            Ok(module)
        }
    }
}

impl Drop for RawModule {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once; none of its kernels was launched.
        let _ = unsafe { sys::cuModuleUnload(self.0) };
    }
}
