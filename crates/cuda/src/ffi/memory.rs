//! Memory: allocation, copies, filling.
//!
//! Addresses are numbers here. Every function that reads or writes through one is `unsafe`: the caller knows that the range lies in live
//! memory of the right kind, and that what else uses it is ordered.

use std::ffi::c_void;
use std::ptr;

use super::context::Context;
use super::stream::Stream;
use super::{call, sys};
use crate::error::CudaError;

/// Memory of the device, ready when the function returns.
pub(crate) fn allocate(context: &Context, bytes: usize) -> Result<u64, CudaError> {
    context.bind()?;
    let mut address = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { call!(cuMemAlloc_v2(&raw mut address, bytes)) }?;
    Ok(address)
}

/// Memory of the device, to be used in the order of the stream.
pub(crate) fn allocate_async(stream: &Stream, bytes: usize) -> Result<u64, CudaError> {
    stream.context().bind()?;
    let mut address = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { call!(cuMemAllocAsync(&raw mut address, bytes, stream.raw())) }?;
    Ok(address)
}

/// # Safety
/// The address came from [`allocate`] (or its pitched or managed kin), nothing uses the memory any more, and it is freed once.
pub(crate) unsafe fn free(context: &Context, address: u64) -> Result<(), CudaError> {
    context.bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemFree_v2(address)) }
}

/// # Safety
/// The address came from [`allocate_async`] or a pool, all uses come before this in the order of the stream, and it is freed once.
pub(crate) unsafe fn free_async(stream: &Stream, address: u64) -> Result<(), CudaError> {
    stream.context().bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemFreeAsync(address, stream.raw())) }
}

/// Page-locked memory of the host that the device can reach. The device's address is the host's (unified addressing).
pub(crate) fn allocate_host(
    context: &Context,
    bytes: usize,
    write_combined: bool,
) -> Result<*mut c_void, CudaError> {
    context.bind()?;
    let portable = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    let flags = portable | if write_combined { sys::CU_MEMHOSTALLOC_WRITECOMBINED } else { 0 };
    let mut pointer = ptr::null_mut();
    // SAFETY: the pointer is valid for the call.
    unsafe { call!(cuMemHostAlloc(&raw mut pointer, bytes, flags)) }?;
    Ok(pointer)
}

/// # Safety
/// The address came from [`allocate_host`], nothing uses the memory any more, and it is freed once.
pub(crate) unsafe fn free_host(context: &Context, pointer: *mut c_void) -> Result<(), CudaError> {
    context.bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemFreeHost(pointer)) }
}

/// Copies from the host in the order of the stream.
///
/// # Safety
/// Both ranges are live until the copy is done, and nothing else touches them out of order.
pub(crate) unsafe fn to_device(
    stream: &Stream,
    to: u64,
    from: *const c_void,
    bytes: usize,
) -> Result<(), CudaError> {
    stream.context().bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemcpyHtoDAsync_v2(to, from, bytes, stream.raw())) }
}

/// Copies to the host in the order of the stream.
///
/// # Safety
/// As for [`to_device`].
pub(crate) unsafe fn to_host(
    stream: &Stream,
    to: *mut c_void,
    from: u64,
    bytes: usize,
) -> Result<(), CudaError> {
    stream.context().bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemcpyDtoHAsync_v2(to, from, bytes, stream.raw())) }
}

/// Copies inside a device in the order of the stream.
///
/// # Safety
/// As for [`to_device`].
pub(crate) unsafe fn on_device(stream: &Stream, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
    stream.context().bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw())) }
}

/// Copies between devices in the order of the stream.
///
/// # Safety
/// As for [`to_device`]; each address belongs to the context given with it.
pub(crate) unsafe fn between(
    stream: &Stream,
    (to, to_context): (u64, &Context),
    (from, from_context): (u64, &Context),
    bytes: usize,
) -> Result<(), CudaError> {
    stream.context().bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemcpyPeerAsync(to, to_context.raw(), from, from_context.raw(), bytes, stream.raw())) }
}

/// Fills with copies of a word of 1, 2 or 4 bytes in the order of the stream.
///
/// # Safety
/// The range is live until then; its address is a multiple of the word's size.
pub(crate) unsafe fn fill(stream: &Stream, to: u64, word: Word, count: usize) -> Result<(), CudaError> {
    stream.context().bind()?;
    let raw = stream.raw();
    // SAFETY: the caller's.
    unsafe {
        match word {
            Word::Byte(value) => call!(cuMemsetD8Async(to, value, count, raw)),
            Word::Half(value) => call!(cuMemsetD16Async(to, value, count, raw)),
            Word::Whole(value) => call!(cuMemsetD32Async(to, value, count, raw)),
        }
    }
}

/// Fills every `pitch` bytes with a word of 4 bytes, `count` times, in the order of the stream.
///
/// # Safety
/// As for [`fill`].
pub(crate) unsafe fn fill_strided(
    stream: &Stream,
    to: u64,
    pitch: usize,
    value: u32,
    count: usize,
) -> Result<(), CudaError> {
    stream.context().bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemsetD2D32Async(to, pitch, value, 1, count, stream.raw())) }
}

/// What memory can be filled with in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Byte(u8),
    Half(u16),
    Whole(u32),
}

/// Copies between any two places that the driver knows (devices, page-locked host memory) in the order of the stream; it finds out by the
/// addresses which they are.
///
/// # Safety
/// As for [`to_device`]; neither range is ordinary host memory.
pub(crate) unsafe fn copy(stream: &Stream, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
    stream.context().bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemcpyAsync(to, from, bytes, stream.raw())) }
}
