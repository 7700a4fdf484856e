//! Every call to the driver, each made safe, or given a contract, by what is checked around it.
//!
//! cudarc loads the library on first use and panics if it, or a function, is missing. The macro `call!` asks first, once for each
//! function, so that an absent driver and a function that an old driver does not have are error values at the call that needs them.
//!
//! One file for each chapter of the driver's documentation. Handles are owned: what is created here is destroyed on drop, with its
//! context bound. Where the driver takes addresses, nothing here can know whether they are valid: those functions are `unsafe` and say
//! what the caller must know.
//!
//! Limit: cudarc's `CUresult` is an enumeration; a driver that answers with a code newer than CUDA 12.8 is outside of what it can hold.
#![allow(unsafe_code)]

pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
#[cfg(feature = "nvrtc")]
pub(crate) mod nvrtc;
pub(crate) mod pool;
pub(crate) mod stream;

use std::ffi::CStr;
use std::sync::OnceLock;

pub(crate) use cudarc::driver::sys;

use crate::error::CudaError;

/// Calls a function of the driver by its name; an error value where library or function are missing. To be used in an `unsafe` block.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        static PRESENT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        match $crate::ffi::require(&PRESENT, stringify!($name)) {
            Ok(()) => $crate::ffi::check(stringify!($name), $crate::ffi::sys::$name($($argument),*)),
            Err(missing) => Err(missing),
        }
    }};
}
pub(crate) use call;

/// Whether the driver's library can be loaded.
fn library() -> Result<(), CudaError> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: loads the driver library, whose initialisers are trusted as every CUDA program trusts them.
    if *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        Ok(())
    } else {
        Err(CudaError::NoDriver { library: if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" } })
    }
}

#[inline]
pub(crate) fn require(present: &OnceLock<bool>, symbol: &'static str) -> Result<(), CudaError> {
    if present.get() == Some(&true) { Ok(()) } else { look_up(present, symbol) }
}

#[cold]
fn look_up(present: &OnceLock<bool>, symbol: &'static str) -> Result<(), CudaError> {
    library()?;
    // SAFETY: the symbol is only looked up, never called through this pointer.
    let found = *present.get_or_init(|| unsafe { sys::culib().get::<*const ()>(symbol.as_bytes()).is_ok() });
    if found { Ok(()) } else { Err(CudaError::MissingSymbol { symbol }) }
}

#[inline]
pub(crate) fn check(call: &'static str, result: sys::CUresult) -> Result<(), CudaError> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(call, result)) }
}

#[cold]
fn failed(call: &'static str, result: sys::CUresult) -> CudaError {
    let text = |which: &'static str,
                get: unsafe fn(sys::CUresult, *mut *const std::ffi::c_char) -> sys::CUresult| {
        let present = OnceLock::new();
        let mut text = std::ptr::null();
        // SAFETY: the function is there, and answers with a static text, or leaves null for codes it does not know.
        let known = require(&present, which).is_ok()
            && unsafe { get(result, &raw mut text) } == sys::CUresult::CUDA_SUCCESS;
        if known && !text.is_null() {
            // SAFETY: as above; the driver's texts are static and end with 0.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        } else {
            "unknown error".to_owned()
        }
    };
    CudaError::Call {
        call,
        code: result as u32,
        name: text("cuGetErrorName", sys::cuGetErrorName),
        text: text("cuGetErrorString", sys::cuGetErrorString),
    }
}

/// Whether the driver has a function, for those who can do without it.
pub(crate) fn has(symbol: &'static str) -> bool {
    require(&OnceLock::new(), symbol).is_ok()
}

/// Says that a raw handle of the driver may move between threads: the driver's API is thread-safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shared<T>(pub(crate) T);

// SAFETY: the driver's functions may be called with any handle from any thread (CUDA C++ Programming Guide, driver API); what is not
// thread-safe there, such as destroying what another thread uses, is excluded by ownership.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}
