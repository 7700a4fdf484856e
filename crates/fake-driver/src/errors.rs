//! Names and descriptions of errors, and looking up functions.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use cudarc::driver::sys::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t};

use crate::entry::{api, put, put_if_wanted};

/// Descriptions of the errors that this driver gives by itself.
const DESCRIPTIONS: &[(CUresult, &str)] = &[
    (CUresult::CUDA_SUCCESS, "no error"),
    (CUresult::CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    (CUresult::CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    (CUresult::CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    (CUresult::CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    (CUresult::CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    (CUresult::CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    (CUresult::CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    (CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    (CUresult::CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    (
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        "the provided PTX was compiled with an unsupported toolchain.",
    ),
    (CUresult::CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    (CUresult::CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    (CUresult::CUDA_ERROR_NOT_READY, "device not ready"),
    (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    (CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    (CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    (CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    (CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    (CUresult::CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    (CUresult::CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        "operation failed due to a previous error during capture",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE,
        "operation would result in a merge of separate capture sequences",
    ),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        "dependency created on uncaptured work in another stream",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        "operation would make the legacy stream depend on a capturing blocking stream",
    ),
    (
        CUresult::CUDA_ERROR_CAPTURED_EVENT,
        "operation not permitted on an event last recorded in a capturing stream",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        "attempt to terminate a thread-local capture sequence from another thread",
    ),
];

/// Text that lives as long as the process, as the callers expect, made once.
fn forever(text: String) -> *const c_char {
    static TEXTS: LazyLock<Mutex<BTreeMap<String, CString>>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    // The bytes of a C string do not move with it.
    texts.entry(text).or_insert_with_key(|text| CString::new(text.as_str()).unwrap_or_default()).as_ptr()
}

api! {
    Always fn cuGetErrorName(error: CUresult, name: *mut *const c_char) |_| {
        put(name, forever(format!("{error:?}")))
    }

    Always fn cuGetErrorString(error: CUresult, description: *mut *const c_char) |_| {
        let known = DESCRIPTIONS.iter().find(|(code, _)| *code == error);
        let text = known.map_or_else(|| format!("{error:?}").to_lowercase().replace('_', " "), |(_, text)| (*text).into());
        put(description, forever(text))
    }

    Always fn cuGetProcAddress_v2(
        _symbol: *const c_char,
        address: *mut *mut c_void,
        _version: c_int,
        _flags: cuuint64_t,
        status: *mut CUdriverProcAddressQueryResult,
    ) |_| {
        put(address, std::ptr::null_mut())?;
        let none = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        put_if_wanted(status, none);
        Err(CUresult::CUDA_ERROR_NOT_FOUND)
    }
}
