//! Initialisation, version, devices.

use std::ffi::{CStr, c_char, c_int};

use super::{call, sys};
use crate::error::CudaError;

/// A device that the driver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device(pub(super) sys::CUdevice);

pub(crate) fn init() -> Result<(), CudaError> {
    // SAFETY: no preconditions; may be called any number of times.
    unsafe { call!(cuInit(0)) }
}

pub(crate) fn driver_version() -> Result<i32, CudaError> {
    let mut version: c_int = 0;
    // SAFETY: the pointer is valid for the call, which needs no initialised driver.
    unsafe { call!(cuDriverGetVersion(&raw mut version)) }?;
    Ok(version)
}

pub(crate) fn count() -> Result<i32, CudaError> {
    let mut count: c_int = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { call!(cuDeviceGetCount(&raw mut count)) }?;
    Ok(count)
}

impl Device {
    pub(crate) fn get(ordinal: i32) -> Result<Device, CudaError> {
        let mut device = 0;
        // SAFETY: the pointer is valid for the call; the driver checks the number.
        unsafe { call!(cuDeviceGet(&raw mut device, ordinal)) }?;
        Ok(Device(device))
    }

    pub(crate) fn name(self) -> Result<String, CudaError> {
        let mut name = [0 as c_char; 256];
        // SAFETY: the driver writes at most so many bytes, the last of them 0.
        unsafe { call!(cuDeviceGetName(name.as_mut_ptr(), 256, self.0)) }?;
        name[255] = 0;
        // SAFETY: there is a 0 in the array.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    pub(crate) fn uuid(self) -> Result<[u8; 16], CudaError> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuDeviceGetUuid_v2(&raw mut uuid, self.0)) }?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    pub(crate) fn total_memory(self) -> Result<u64, CudaError> {
        let mut bytes = 0usize;
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuDeviceTotalMem_v2(&raw mut bytes, self.0)) }?;
        Ok(bytes as u64)
    }

    pub(crate) fn attribute(self, attribute: sys::CUdevice_attribute) -> Result<i32, CudaError> {
        let mut value: c_int = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuDeviceGetAttribute(&raw mut value, attribute, self.0)) }?;
        Ok(value)
    }

    pub(crate) fn can_access(self, other: Device) -> Result<bool, CudaError> {
        let mut able: c_int = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuDeviceCanAccessPeer(&raw mut able, self.0, other.0)) }?;
        Ok(able != 0)
    }
}
