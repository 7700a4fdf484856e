//! A device in a few words, for the tests.
#![allow(dead_code, reason = "every test file uses another part")]

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUcontext, CUevent, CUfunction, CUmodule, CUresult, CUstream};

/// The kernels with an effect, and one without.
pub(crate) const PTX: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .entry poke(.param .u64 to, .param .u32 value, .param .u32 count) { ret; }
.visible .entry copy_words(.param .u64 to, .param .u64 from, .param .u32 count) { ret; }
.visible .entry other(.param .u64 to, .param .u32 value, .param .u32 count) { ret; }
.visible .entry crash() { ret; }
";

pub(crate) fn code(result: CUresult) -> u32 {
    result as u32
}

#[track_caller]
pub(crate) fn check(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

/// A retained and current context; released when dropped.
pub(crate) struct Gpu {
    device: i32,
    pub(crate) context: CUcontext,
}

impl Gpu {
    pub(crate) fn new(device: i32) -> Gpu {
        let mut context = null_mut();
        // SAFETY: valid pointers.
        unsafe {
            check(sys::cuInit(0));
            check(sys::cuDevicePrimaryCtxRetain(&raw mut context, device));
        }
        let gpu = Gpu { device, context };
        gpu.make_current();
        gpu
    }

    pub(crate) fn make_current(&self) {
        // SAFETY: the context is retained.
        check(unsafe { sys::cuCtxSetCurrent(self.context) });
    }

    /// A non-blocking stream.
    pub(crate) fn stream(&self) -> CUstream {
        let mut stream = null_mut();
        // SAFETY: valid pointer.
        check(unsafe { sys::cuStreamCreate(&raw mut stream, 1) });
        stream
    }

    pub(crate) fn event(&self) -> CUevent {
        let mut event = null_mut();
        // SAFETY: valid pointer.
        check(unsafe { sys::cuEventCreate(&raw mut event, 0) });
        event
    }

    pub(crate) fn alloc(&self, bytes: usize) -> u64 {
        let mut address = 0;
        // SAFETY: valid pointer.
        check(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) });
        address
    }

    pub(crate) fn load(&self, ptx: &str) -> CUmodule {
        let image = CString::new(ptx).unwrap();
        let mut module = null_mut();
        // SAFETY: valid pointer and text.
        check(unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) });
        module
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once in `new`.
        check(unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) });
    }
}

pub(crate) fn kernel(module: CUmodule, name: &str) -> CUfunction {
    let name = CString::new(name).unwrap();
    let mut function = null_mut();
    // SAFETY: valid pointer, handle and text.
    check(unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) });
    function
}

/// Launches a kernel with the parameters of `poke`.
pub(crate) fn poke(function: CUfunction, stream: CUstream, mut to: u64, mut value: u32, mut count: u32) {
    let mut params: [*mut c_void; 3] =
        [(&raw mut to).cast(), (&raw mut value).cast(), (&raw mut count).cast()];
    // SAFETY: as many arguments as the kernel has parameters.
    check(unsafe {
        sys::cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, params.as_mut_ptr(), null_mut())
    });
}

/// Words of device memory, in the order of a stream.
pub(crate) fn words(from: u64, count: usize, stream: CUstream) -> Vec<u32> {
    let mut found = vec![0u32; count];
    // SAFETY: room for as many bytes.
    check(unsafe { sys::cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), from, 4 * count, stream) });
    found
}
