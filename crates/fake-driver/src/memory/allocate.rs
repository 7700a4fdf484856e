//! Allocating and freeing.
//!
//! `cuMemFree` and `cuMemFreeHost` wait for nothing: the documentation only says that they may, so a program that
//! frees what pending work still uses is wrong, and its work fails.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{CUdeviceptr, CUmemoryPool, CUresult, CUstream};

use crate::entry::{Driver, Outcome, api, put, put_if_wanted};
use crate::execution::Action;
use crate::memory::Kind;

impl Driver {
    /// Memory in the order of a stream; inside a capture it belongs to the graph.
    fn allocate_in_order(&mut self, bytes: usize, pool: Option<usize>, stream: CUstream) -> Outcome<u64> {
        let stream = self.stream(stream)?;
        let of_graph = self.capture_of(stream)?.is_some();
        let device = self.streams.get(stream)?.device;
        let pool = pool.unwrap_or(self.devices[device].pool);
        let owner = self.pools.get(pool)?.device;
        let base = self.reserve(owner, bytes as u64, Some(pool), of_graph)?;
        if let Err(code) = self.issue(stream, Action::Allocate(base)) {
            self.release(base);
            return Err(code);
        }
        Ok(base)
    }

    /// Frees an allocation of one of these kinds now.
    fn free_now(&mut self, base: u64, kinds: &[Kind]) -> Outcome {
        let range = self.memory.starting_at(base).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if !kinds.contains(&range.kind) || range.free.is_some() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // The caller holds the address, so the allocation counts as done even where the schedule is behind.
        let allocation = range.allocation;
        self.drain(allocation);
        self.release(base);
        Ok(())
    }
}

api! {
    Context fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |driver| {
        let device = driver.current()?;
        put(free, (driver.config.memory - driver.devices[device].used) as usize)?;
        put(total, driver.config.memory as usize)
    }

    Context fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) |driver| {
        driver.refuse_in_capture()?;
        let device = driver.current()?;
        let base = driver.allocate(device, bytes as u64, Kind::Device)?;
        put(address, base)
    }

    Context fn cuMemAllocPitch_v2(
        address: *mut CUdeviceptr,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: c_uint,
    ) |driver| {
        driver.refuse_in_capture()?;
        if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver.current()?;
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let row = width.checked_next_multiple_of(512).ok_or(out_of_memory)?;
        let bytes = row.checked_mul(height).ok_or(out_of_memory)?;
        let base = driver.allocate(device, bytes as u64, Kind::Device)?;
        put(pitch, row)?;
        put(address, base)
    }

    Context fn cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) |driver| {
        driver.refuse_in_capture()?;
        // Attached to every stream, or to the host at first.
        if !matches!(flags, 1 | 2) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver.current()?;
        let base = driver.allocate(device, bytes as u64, Kind::Managed)?;
        put(address, base)
    }

    Release fn cuMemFree_v2(address: CUdeviceptr) |driver| {
        driver.current()?;
        if address == 0 {
            return Ok(());
        }
        driver.refuse_in_capture()?;
        driver.free_now(address, &[Kind::Device, Kind::Managed])
    }

    Context fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) |driver| {
        let base = driver.allocate_in_order(bytes, None, stream)?;
        put(address, base)
    }

    Context fn cuMemAllocFromPoolAsync(
        address: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) |driver| {
        let base = driver.allocate_in_order(bytes, Some(pool as usize), stream)?;
        put(address, base)
    }

    Release fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) |driver| {
        let stream = driver.stream(stream)?;
        let range = driver.memory.starting_at(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if range.kind != Kind::Device || range.free.is_some() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        driver.issue(stream, Action::Free(address)).map(drop)
    }

    Context fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) |driver| {
        driver.refuse_in_capture()?;
        if flags & !7 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver.current()?;
        let base = driver.allocate(device, bytes as u64, Kind::Pinned)?;
        put(address, base as *mut c_void)
    }

    Release fn cuMemFreeHost(address: *mut c_void) |driver| {
        driver.current()?;
        driver.refuse_in_capture()?;
        driver.free_now(address as u64, &[Kind::Pinned])
    }

    Context fn cuMemHostGetDevicePointer_v2(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint) |driver| {
        let known = driver.memory.range_of(host as u64);
        let known = known.is_some_and(|range| matches!(range.kind, Kind::Pinned | Kind::Registered));
        if !known || flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        put(device, host as u64)
    }

    Context fn cuMemHostGetFlags(flags: *mut c_uint, host: *mut c_void) |driver| {
        let range = driver.memory.range_of(host as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        put(flags, range.flags)
    }

    Context fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint) |driver| {
        driver.refuse_in_capture()?;
        if address.is_null() || bytes == 0 || flags & !15 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver.current()?;
        driver.memory.register(device, address as u64, bytes as u64, flags)
    }

    Release fn cuMemHostUnregister(address: *mut c_void) |driver| {
        driver.current()?;
        driver.refuse_in_capture()?;
        driver.memory.unregister(address as u64)
    }

    Context fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) |driver| {
        let range = driver.memory.range_of(address).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        put_if_wanted(base, range.base);
        put_if_wanted(bytes, range.bytes as usize);
        Ok(())
    }
}
