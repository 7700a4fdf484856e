//! What an address is, and hints about managed memory, which change nothing here.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUmem_advise, CUmemLocation, CUmemoryPool, CUmemorytype,
    CUpointer_attribute, CUresult, CUstream,
};

use crate::entry::{Driver, Outcome, api, elements, put};
use crate::execution::Action;
use crate::memory::Kind;
use crate::state::State;

impl Driver {
    /// # Safety
    /// `data` is null or can hold the attribute.
    unsafe fn attribute(&self, data: *mut c_void, attribute: CUpointer_attribute, address: u64) -> Outcome {
        use CUpointer_attribute as A;
        let range = self.memory.range_of(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let on_host = matches!(range.kind, Kind::Pinned | Kind::Registered);
        // SAFETY: every attribute is written with the type that the driver documents for it.
        unsafe {
            match attribute {
                A::CU_POINTER_ATTRIBUTE_CONTEXT => {
                    put(data.cast(), State::context_of_device(range.device) as CUcontext)
                }
                A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
                    let host = CUmemorytype::CU_MEMORYTYPE_HOST;
                    put(data.cast(), if on_host { host } else { CUmemorytype::CU_MEMORYTYPE_DEVICE })
                }
                A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => put(data.cast::<CUdeviceptr>(), address),
                A::CU_POINTER_ATTRIBUTE_HOST_POINTER if range.kind != Kind::Device => {
                    put(data.cast::<u64>(), address)
                }
                A::CU_POINTER_ATTRIBUTE_IS_MANAGED => {
                    put(data.cast(), c_uint::from(range.kind == Kind::Managed))
                }
                A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(data.cast(), range.device as c_int),
                A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => put(data.cast::<CUdeviceptr>(), range.base),
                A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => put(data.cast(), range.bytes as usize),
                A::CU_POINTER_ATTRIBUTE_MAPPED => put(data.cast::<c_uint>(), 1),
                A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
                    put(data.cast(), range.pool.unwrap_or_default() as CUmemoryPool)
                }
                A::CU_POINTER_ATTRIBUTE_BUFFER_ID => put(data.cast::<u64>(), range.base),
                _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
    }

    fn managed(&self, address: u64, bytes: usize) -> Outcome {
        let range = self.memory.range_of(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let inside = (bytes as u64).checked_add(address).is_some_and(|end| end <= range.base + range.bytes);
        if range.kind != Kind::Managed || !inside || bytes == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    fn prefetch(&mut self, address: u64, bytes: usize, stream: CUstream) -> Outcome {
        self.managed(address, bytes)?;
        let stream = self.stream(stream)?;
        self.issue(stream, Action::Empty).map(drop)
    }
}

api! {
    Driver fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr) |driver| {
        driver.attribute(data, attribute, address)
    }

    Driver fn cuPointerGetAttributes(
        count: c_uint,
        attributes: *mut CUpointer_attribute,
        data: *mut *mut c_void,
        address: CUdeviceptr,
    ) |driver| {
        let attributes = elements(attributes, count as usize)?;
        for (attribute, data) in attributes.into_iter().zip(elements(data, count as usize)?) {
            // An unknown address is no error here; its attributes are zero, which for a type means "none".
            if driver.attribute(data, attribute, address).is_err() && !data.is_null() {
                data.cast::<u32>().write_unaligned(0);
            }
        }
        Ok(())
    }

    Context fn cuMemPrefetchAsync(address: CUdeviceptr, bytes: usize, _to: CUdevice, stream: CUstream) |driver| {
        driver.prefetch(address, bytes, stream)
    }

    Context fn cuMemPrefetchAsync_v2(
        address: CUdeviceptr,
        bytes: usize,
        _to: CUmemLocation,
        flags: c_uint,
        stream: CUstream,
    ) |driver| {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        driver.prefetch(address, bytes, stream)
    }

    Context fn cuMemAdvise(address: CUdeviceptr, bytes: usize, _advice: CUmem_advise, _device: CUdevice) |driver| {
        driver.managed(address, bytes)
    }

    Context fn cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, _advice: CUmem_advise, _at: CUmemLocation) |driver| {
        driver.managed(address, bytes)
    }
}
