//! Copies and memsets.
//!
//! * From pageable host memory, the source is read when the call is made; from pinned memory, when the copy runs.
//! * A copy to pageable host memory is done when the call returns, as is every call without `Async` that has an end on
//!   the host.
//! * Copies inside devices and memsets do not wait, even those without `Async`: they are work of the legacy stream.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUmemorytype, CUresult,
    CUstream,
};

use crate::entry::{Driver, Outcome, api};
use crate::execution::{Action, Copy, Endpoint, Fill, Place};

/// Whether the call returns before the copy is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Waits,
    Async,
}

/// A copy between contexts as one inside of one: addresses are the same in all.
fn without_contexts(copy: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
    }
}

impl Driver {
    fn place(&self, address: u64) -> Place {
        if self.memory.alive(address).is_err() || self.memory.range_of(address).is_some() {
            Place::Device
        } else {
            Place::Host
        }
    }

    fn line(&mut self, from: (Place, u64), to: (Place, u64), bytes: usize) -> Copy {
        let across = from.0 == Place::Device && to.0 == Place::Device;
        let (from, to) = (Endpoint::line(from.0, from.1), Endpoint::line(to.0, to.1));
        Copy { from, to, width: bytes as u64, height: 1, depth: 1, across, staged: None }
    }

    fn copy(&mut self, mut copy: Copy, stream: CUstream, mode: Mode) -> Outcome {
        let stream = self.stream(stream)?;
        if copy.width == 0 || copy.height == 0 || copy.depth == 0 {
            return Ok(());
        }
        if (copy.from.place == Place::Host && copy.from.address == 0)
            || (copy.to.place == Place::Host && copy.to.address == 0)
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let pageable = |end: Endpoint| end.place == Place::Host && !self.memory.is_pinned(end.address);
        let lands_pageable = pageable(copy.to);
        if self.capture_of(stream)?.is_none() && pageable(copy.from) {
            // SAFETY: the caller of a copy gives a source that is readable now.
            unsafe { copy.stage() };
        }
        let touches_host = copy.from.place == Place::Host || copy.to.place == Place::Host;
        if let Some(operation) = self.issue(stream, Action::Copy(Box::new(copy)))?
            && (lands_pageable || (mode == Mode::Waits && touches_host))
        {
            self.drain([operation]);
        }
        Ok(())
    }

    fn fill(&mut self, fill: Fill, stream: CUstream) -> Outcome {
        let stream = self.stream(stream)?;
        if !fill.address.is_multiple_of(fill.element)
            || (fill.height > 1 && !fill.pitch.is_multiple_of(fill.element))
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.issue(stream, Action::Fill(fill)).map(drop)
    }

    /// One end of a copy of rows: its kind of memory, its addresses by kind, and where in it the box begins.
    fn end(
        &self,
        kind: CUmemorytype,
        (host, device): (u64, u64),
        (x, y, z): (usize, usize, usize),
        (pitch, rows): (usize, usize),
    ) -> Outcome<Endpoint> {
        let (place, start) = match kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => (Place::Host, host),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => (Place::Device, device),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (self.place(device), device),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        };
        let (pitch, plane) = (pitch as u64, (pitch * rows) as u64);
        let address = start + x as u64 + y as u64 * pitch + z as u64 * plane;
        Ok(Endpoint { place, address, pitch, plane })
    }

    fn rows(&self, copy: &CUDA_MEMCPY2D) -> Outcome<Copy> {
        let pitch = |given: usize| if given == 0 { copy.WidthInBytes } else { given };
        if copy.WidthInBytes > pitch(copy.srcPitch) || copy.WidthInBytes > pitch(copy.dstPitch) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let source = (copy.srcHost as u64, copy.srcDevice);
        let target = (copy.dstHost as u64, copy.dstDevice);
        let from = self.end(
            copy.srcMemoryType,
            source,
            (copy.srcXInBytes, copy.srcY, 0),
            (pitch(copy.srcPitch), 0),
        )?;
        let to = self.end(
            copy.dstMemoryType,
            target,
            (copy.dstXInBytes, copy.dstY, 0),
            (pitch(copy.dstPitch), 0),
        )?;
        let across = from.place == to.place && from.place == Place::Device;
        let (width, height) = (copy.WidthInBytes as u64, copy.Height as u64);
        Ok(Copy { from, to, width, height, depth: 1, across, staged: None })
    }

    /// The copy of a graph node.
    pub(crate) fn boxes(&self, copy: &CUDA_MEMCPY3D) -> Outcome<Copy> {
        let shape = |pitch: usize, rows: usize| {
            (if pitch == 0 { copy.WidthInBytes } else { pitch }, if rows == 0 { copy.Height } else { rows })
        };
        let source = (copy.srcHost as u64, copy.srcDevice);
        let target = (copy.dstHost as u64, copy.dstDevice);
        let (from_at, to_at) =
            ((copy.srcXInBytes, copy.srcY, copy.srcZ), (copy.dstXInBytes, copy.dstY, copy.dstZ));
        let from = self.end(copy.srcMemoryType, source, from_at, shape(copy.srcPitch, copy.srcHeight))?;
        let to = self.end(copy.dstMemoryType, target, to_at, shape(copy.dstPitch, copy.dstHeight))?;
        let across = from.place == to.place && from.place == Place::Device;
        let (width, height, depth) = (copy.WidthInBytes as u64, copy.Height as u64, copy.Depth as u64);
        Ok(Copy { from, to, width, height, depth, across, staged: None })
    }
}

/// The legacy stream of the current context.
const LEGACY: CUstream = std::ptr::null_mut();

fn set(address: u64, value: u32, element: u64, width: usize) -> Fill {
    Fill { address, pitch: 0, value, element, width: width as u64, height: 1 }
}

fn set_rows(address: u64, pitch: usize, value: u32, element: u64, (width, height): (usize, usize)) -> Fill {
    Fill { address, pitch: pitch as u64, value, element, width: width as u64, height: height as u64 }
}

api! {
    Context fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) |driver| {
        let copy = driver.line((Place::Host, from as u64), (Place::Device, to), bytes);
        driver.copy(copy, LEGACY, Mode::Waits)
    }

    Context fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) |driver| {
        let copy = driver.line((Place::Host, from as u64), (Place::Device, to), bytes);
        driver.copy(copy, stream, Mode::Async)
    }

    Context fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) |driver| {
        let copy = driver.line((Place::Device, from), (Place::Host, to as u64), bytes);
        driver.copy(copy, LEGACY, Mode::Waits)
    }

    Context fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) |driver| {
        let copy = driver.line((Place::Device, from), (Place::Host, to as u64), bytes);
        driver.copy(copy, stream, Mode::Async)
    }

    Context fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) |driver| {
        let copy = driver.line((Place::Device, from), (Place::Device, to), bytes);
        driver.copy(copy, LEGACY, Mode::Waits)
    }

    Context fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) |driver| {
        let copy = driver.line((Place::Device, from), (Place::Device, to), bytes);
        driver.copy(copy, stream, Mode::Async)
    }

    Context fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) |driver| {
        let (from, to) = ((driver.place(from), from), (driver.place(to), to));
        let copy = driver.line(from, to, bytes);
        driver.copy(copy, LEGACY, Mode::Waits)
    }

    Context fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) |driver| {
        let (from, to) = ((driver.place(from), from), (driver.place(to), to));
        let copy = driver.line(from, to, bytes);
        driver.copy(copy, stream, Mode::Async)
    }

    Context fn cuMemcpyPeer(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
    ) |driver| {
        driver.device_of_context(to_context as usize)?;
        driver.device_of_context(from_context as usize)?;
        let copy = driver.line((Place::Device, from), (Place::Device, to), bytes);
        driver.copy(copy, LEGACY, Mode::Waits)
    }

    Context fn cuMemcpyPeerAsync(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) |driver| {
        driver.device_of_context(to_context as usize)?;
        driver.device_of_context(from_context as usize)?;
        let copy = driver.line((Place::Device, from), (Place::Device, to), bytes);
        driver.copy(copy, stream, Mode::Async)
    }

    Context fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) |driver| {
        let copy = driver.rows(copy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)?;
        driver.copy(copy, LEGACY, Mode::Waits)
    }

    Context fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) |driver| {
        let copy = driver.rows(copy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)?;
        driver.copy(copy, LEGACY, Mode::Waits)
    }

    Context fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) |driver| {
        let copy = driver.rows(copy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)?;
        driver.copy(copy, stream, Mode::Async)
    }

    Context fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) |driver| {
        let peer = copy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        driver.device_of_context(peer.dstContext as usize)?;
        driver.device_of_context(peer.srcContext as usize)?;
        let copy = driver.boxes(&without_contexts(peer))?;
        driver.copy(copy, stream, Mode::Async)
    }

    Context fn cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize) |driver| {
        driver.fill(set(to, value.into(), 1, count), LEGACY)
    }

    Context fn cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize) |driver| {
        driver.fill(set(to, value.into(), 2, count), LEGACY)
    }

    Context fn cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) |driver| {
        driver.fill(set(to, value, 4, count), LEGACY)
    }

    Context fn cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) |driver| {
        driver.fill(set(to, value.into(), 1, count), stream)
    }

    Context fn cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) |driver| {
        driver.fill(set(to, value.into(), 2, count), stream)
    }

    Context fn cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) |driver| {
        driver.fill(set(to, value, 4, count), stream)
    }

    Context fn cuMemsetD2D8_v2(to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize) |driver| {
        driver.fill(set_rows(to, pitch, value.into(), 1, (width, height)), LEGACY)
    }

    Context fn cuMemsetD2D16_v2(to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize) |driver| {
        driver.fill(set_rows(to, pitch, value.into(), 2, (width, height)), LEGACY)
    }

    Context fn cuMemsetD2D32_v2(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) |driver| {
        driver.fill(set_rows(to, pitch, value, 4, (width, height)), LEGACY)
    }

    Context fn cuMemsetD2D8Async(
        to: CUdeviceptr,
        pitch: usize,
        value: c_uchar,
        width: usize,
        height: usize,
        stream: CUstream,
    ) |driver| {
        driver.fill(set_rows(to, pitch, value.into(), 1, (width, height)), stream)
    }

    Context fn cuMemsetD2D16Async(
        to: CUdeviceptr,
        pitch: usize,
        value: c_ushort,
        width: usize,
        height: usize,
        stream: CUstream,
    ) |driver| {
        driver.fill(set_rows(to, pitch, value.into(), 2, (width, height)), stream)
    }

    Context fn cuMemsetD2D32Async(
        to: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
        stream: CUstream,
    ) |driver| {
        driver.fill(set_rows(to, pitch, value, 4, (width, height)), stream)
    }
}
