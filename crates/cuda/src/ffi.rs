//! Every unsafe call to the driver in this crate, each made safe by what is checked around it.
//!
//! cudarc loads the library on first use and panics if it, or a function, is missing. [`library`] asks first, so no
//! function below can be reached without a library that has it: they all take the proof, a [`Library`].
#![allow(unsafe_code)]

use std::ffi::c_int;

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute};

use crate::error::DriverError;

/// The functions that this crate calls, directly or for error texts.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuGetErrorName",
    "cuGetErrorString",
];

/// Proof that the driver library is loaded and has all functions used here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(());

/// A device handle that came from the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle(CUdevice);

pub(crate) fn library() -> Result<Library, DriverError> {
    // SAFETY: loads the driver library, whose initialisers are trusted as every CUDA program trusts them.
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::NotFound {
            library: if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" },
        });
    }
    for symbol in SYMBOLS {
        // SAFETY: the symbol is only looked up, never called through this pointer.
        let found = unsafe { sys::culib().get::<*const ()>(symbol.as_bytes()).is_ok() };
        if !found {
            return Err(DriverError::MissingSymbol { symbol });
        }
    }
    Ok(Library(()))
}

pub(crate) fn init(_: Library) -> Result<(), DriverError> {
    result::init().map_err(|error| failed("cuInit", error))
}

pub(crate) fn driver_version(_: Library) -> Result<i32, DriverError> {
    let mut version: c_int = 0;
    // SAFETY: the pointer is valid for the call, which needs no initialised driver.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(|error| failed("cuDriverGetVersion", error))?;
    Ok(version)
}

pub(crate) fn device_count(_: Library) -> Result<i32, DriverError> {
    result::device::get_count().map_err(|error| failed("cuDeviceGetCount", error))
}

pub(crate) fn device(_: Library, ordinal: i32) -> Result<Handle, DriverError> {
    result::device::get(ordinal).map(Handle).map_err(|error| failed("cuDeviceGet", error))
}

pub(crate) fn name(device: Handle) -> Result<String, DriverError> {
    result::device::get_name(device.0).map_err(|error| failed("cuDeviceGetName", error))
}

pub(crate) fn total_memory(device: Handle) -> Result<u64, DriverError> {
    // SAFETY: a `Handle` only comes from `device`.
    let bytes = unsafe { result::device::total_mem(device.0) };
    bytes.map(|bytes| bytes as u64).map_err(|error| failed("cuDeviceTotalMem", error))
}

pub(crate) fn attribute(device: Handle, attribute: CUdevice_attribute) -> Result<i32, DriverError> {
    // SAFETY: a `Handle` only comes from `device`.
    unsafe { result::device::get_attribute(device.0, attribute) }
        .map_err(|error| failed("cuDeviceGetAttribute", error))
}

fn failed(call: &'static str, error: result::DriverError) -> DriverError {
    let text = |text: Result<&std::ffi::CStr, result::DriverError>| {
        text.map_or_else(|_| "unknown error".to_string(), |text| text.to_string_lossy().into_owned())
    };
    DriverError::Call {
        call,
        code: error.0 as u32,
        name: text(error.error_name()),
        text: text(error.error_string()),
    }
}
