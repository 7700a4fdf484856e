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

/// Page-locked memory of the host that all devices can reach, and where they find it.
pub(crate) fn allocate_host(
    context: &Context,
    bytes: usize,
    write_combined: bool,
) -> Result<(*mut c_void, u64), CudaError> {
    context.bind()?;
    let portable = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    let flags = portable | if write_combined { sys::CU_MEMHOSTALLOC_WRITECOMBINED } else { 0 };
    let mut pointer = ptr::null_mut();
    // SAFETY: the pointer is valid for the call.
    unsafe { call!(cuMemHostAlloc(&raw mut pointer, bytes, flags)) }?;
    let mut address = 0;
    // The same number as the host's, but for write-combined memory, where it need not be.
    // SAFETY: the pointer is valid for the call, the memory was just allocated.
    let found = unsafe { call!(cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0)) };
    if let Err(error) = found {
        // SAFETY: allocated above, used by nobody.
        let _ = unsafe { free_host(context, pointer) };
        return Err(error);
    }
    Ok((pointer, address))
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
/// As for [`to_device`]; both are memory of the device.
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

/// Page-locks memory of the host that is already there, and says where the device finds it.
///
/// # Safety
/// The range is live until [`unlock_host`].
pub(crate) unsafe fn lock_host(
    context: &Context,
    pointer: *mut c_void,
    bytes: usize,
) -> Result<u64, CudaError> {
    context.bind()?;
    let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
    // SAFETY: the caller's.
    unsafe { call!(cuMemHostRegister_v2(pointer, bytes, flags)) }?;
    let mut address = 0;
    // SAFETY: the pointer is valid for the call, the memory was just registered.
    let found = unsafe { call!(cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0)) };
    if let Err(error) = found {
        // SAFETY: registered above, used by nobody.
        let _ = unsafe { unlock_host(context, pointer) };
        return Err(error);
    }
    Ok(address)
}

/// # Safety
/// The range was locked by [`lock_host`], and no device uses it any more.
pub(crate) unsafe fn unlock_host(context: &Context, pointer: *mut c_void) -> Result<(), CudaError> {
    context.bind()?;
    // SAFETY: the caller's.
    unsafe { call!(cuMemHostUnregister(pointer)) }
}

/// Memory that moves between host and devices by itself; one address for all.
pub(crate) fn allocate_managed(context: &Context, bytes: usize) -> Result<u64, CudaError> {
    context.bind()?;
    let flags = sys::CUmemAttach_flags_enum::CU_MEM_ATTACH_GLOBAL as u32;
    let mut address = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { call!(cuMemAllocManaged(&raw mut address, bytes, flags)) }?;
    Ok(address)
}

/// Memory of the device with padded rows: address, and bytes from row to row.
pub(crate) fn allocate_pitched(
    context: &Context,
    width: usize,
    height: usize,
    element: u32,
) -> Result<(u64, usize), CudaError> {
    context.bind()?;
    let (mut address, mut pitch) = (0, 0);
    // SAFETY: the pointers are valid for the call.
    unsafe { call!(cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, width, height, element)) }?;
    Ok((address, pitch))
}

/// Where managed memory can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Host,
    Device(super::device::Device),
}

impl Location {
    fn place(self) -> sys::CUmemLocation {
        use sys::CUmemLocationType_enum as Type;
        match self {
            Location::Host => sys::CUmemLocation { type_: Type::CU_MEM_LOCATION_TYPE_HOST, id: 0 },
            Location::Device(device) => {
                sys::CUmemLocation { type_: Type::CU_MEM_LOCATION_TYPE_DEVICE, id: device.0 }
            }
        }
    }

    /// As drivers before CUDA 12.2 take it.
    fn number(self) -> sys::CUdevice {
        match self {
            Location::Host => -1,
            Location::Device(device) => device.0,
        }
    }
}

/// Moves managed memory in the order of the stream.
///
/// # Safety
/// The range is managed memory and live until then.
pub(crate) unsafe fn prefetch(
    stream: &Stream,
    address: u64,
    bytes: usize,
    to: Location,
) -> Result<(), CudaError> {
    stream.context().bind()?;
    // SAFETY: the caller's.
    match unsafe { call!(cuMemPrefetchAsync_v2(address, bytes, to.place(), 0, stream.raw())) } {
        Err(CudaError::MissingSymbol { .. }) => {
            // SAFETY: the caller's.
            unsafe { call!(cuMemPrefetchAsync(address, bytes, to.number(), stream.raw())) }
        }
        done => done,
    }
}

/// Says how managed memory will be used.
///
/// # Safety
/// The range is live managed memory.
pub(crate) unsafe fn advise(
    context: &Context,
    address: u64,
    bytes: usize,
    advice: sys::CUmem_advise,
    location: Location,
) -> Result<(), CudaError> {
    context.bind()?;
    // SAFETY: the caller's.
    match unsafe { call!(cuMemAdvise_v2(address, bytes, advice, location.place())) } {
        Err(CudaError::MissingSymbol { .. }) => {
            // SAFETY: the caller's.
            unsafe { call!(cuMemAdvise(address, bytes, advice, location.number())) }
        }
        done => done,
    }
}

/// One side of a copy of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Memory that the driver knows, by its address.
    Memory(u64),
    /// Ordinary memory of the host.
    Host(*mut c_void),
}

impl Place {
    fn parts(self) -> (sys::CUmemorytype, *mut c_void, u64) {
        use sys::CUmemorytype_enum as Type;
        match self {
            Place::Memory(address) => (Type::CU_MEMORYTYPE_UNIFIED, ptr::null_mut(), address),
            Place::Host(pointer) => (Type::CU_MEMORYTYPE_HOST, pointer, 0),
        }
    }
}

/// Copies `height` rows of `width` bytes in the order of the stream; places come with the bytes from row to row.
///
/// # Safety
/// As for [`to_device`], for all rows.
pub(crate) unsafe fn copy_rows(
    stream: &Stream,
    (to, to_pitch): (Place, usize),
    (from, from_pitch): (Place, usize),
    width: usize,
    height: usize,
) -> Result<(), CudaError> {
    stream.context().bind()?;
    let (from_type, from_host, from_device) = from.parts();
    let (to_type, to_host, to_device) = to.parts();
    let copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: from_type,
        srcHost: from_host,
        srcDevice: from_device,
        srcArray: ptr::null_mut(),
        srcPitch: from_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: to_type,
        dstHost: to_host,
        dstDevice: to_device,
        dstArray: ptr::null_mut(),
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: height,
    };
    // SAFETY: the caller's.
    unsafe { call!(cuMemcpy2DAsync_v2(&raw const copy, stream.raw())) }
}

/// Copies `height` rows of `width` bytes between devices in the order of the stream.
///
/// # Safety
/// As for [`copy_rows`]; each address belongs to the context given with it.
pub(crate) unsafe fn copy_rows_between(
    stream: &Stream,
    (to, to_pitch, to_context): (u64, usize, &Context),
    (from, from_pitch, from_context): (u64, usize, &Context),
    width: usize,
    height: usize,
) -> Result<(), CudaError> {
    stream.context().bind()?;
    let device = sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE;
    let copy = sys::CUDA_MEMCPY3D_PEER {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: device,
        srcHost: ptr::null(),
        srcDevice: from,
        srcArray: ptr::null_mut(),
        srcContext: from_context.raw(),
        srcPitch: from_pitch,
        srcHeight: height,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: device,
        dstHost: ptr::null_mut(),
        dstDevice: to,
        dstArray: ptr::null_mut(),
        dstContext: to_context.raw(),
        dstPitch: to_pitch,
        dstHeight: height,
        WidthInBytes: width,
        Height: height,
        Depth: 1,
    };
    // SAFETY: the caller's.
    unsafe { call!(cuMemcpy3DPeerAsync(&raw const copy, stream.raw())) }
}

/// Fills `height` rows of `width` words in the order of the stream.
///
/// # Safety
/// As for [`fill`], for all rows.
pub(crate) unsafe fn fill_rows(
    stream: &Stream,
    (to, pitch): (u64, usize),
    word: Word,
    width: usize,
    height: usize,
) -> Result<(), CudaError> {
    stream.context().bind()?;
    let raw = stream.raw();
    // SAFETY: the caller's.
    unsafe {
        match word {
            Word::Byte(value) => call!(cuMemsetD2D8Async(to, pitch, value, width, height, raw)),
            Word::Half(value) => call!(cuMemsetD2D16Async(to, pitch, value, width, height, raw)),
            Word::Whole(value) => call!(cuMemsetD2D32Async(to, pitch, value, width, height, raw)),
        }
    }
}
