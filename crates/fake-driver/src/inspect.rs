//! What a test can ask and order: counts, launches, faults, and failures to inject.
//!
//! The functions are exported as `fake_cuda_*`; [`Inspector`](crate::Inspector) calls them. Texts that they return are
//! JSON, and are valid until the same thread asks for the next.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};

use cudarc::driver::sys::CUresult;
use serde::Serialize;

use crate::entry::{Driver, text};
use crate::execution::Launch;

/// A failure to come.
#[derive(Clone, Debug)]
struct Failure {
    name: String,
    /// Calls to let pass; `None` when every call fails.
    pass: Option<u64>,
    code: CUresult,
}

/// A launch that ran.
#[derive(Clone, Debug, Serialize)]
struct Launched {
    device: usize,
    stream: u64,
    #[serde(flatten)]
    launch: Launch,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    calls: BTreeMap<&'static str, u64>,
    launches: Vec<Launched>,
    failures: Vec<Failure>,
    /// Why contexts were lost.
    pub(crate) faults: Vec<String>,
}

/// The error of a number; numbers that are no error become "unknown".
fn error(code: u32) -> CUresult {
    let known = ERRORS.iter().find(|known| **known as u32 == code);
    known.copied().unwrap_or(CUresult::CUDA_ERROR_UNKNOWN)
}

/// What can be injected.
const ERRORS: &[CUresult] = {
    use CUresult::*;
    &[
        CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_NOT_INITIALIZED,
        CUDA_ERROR_DEINITIALIZED,
        CUDA_ERROR_STUB_LIBRARY,
        CUDA_ERROR_DEVICE_UNAVAILABLE,
        CUDA_ERROR_NO_DEVICE,
        CUDA_ERROR_INVALID_DEVICE,
        CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_INVALID_CONTEXT,
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
        CUDA_ERROR_INVALID_PTX,
        CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CUDA_ERROR_OPERATING_SYSTEM,
        CUDA_ERROR_INVALID_HANDLE,
        CUDA_ERROR_ILLEGAL_STATE,
        CUDA_ERROR_NOT_FOUND,
        CUDA_ERROR_NOT_READY,
        CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED,
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        CUDA_ERROR_NOT_PERMITTED,
        CUDA_ERROR_NOT_SUPPORTED,
        CUDA_ERROR_SYSTEM_NOT_READY,
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        CUDA_ERROR_INVALID_CLUSTER_SIZE,
        CUDA_ERROR_UNKNOWN,
    ]
};

impl Record {
    pub(crate) fn from_environment() -> Record {
        let mut record = Record::default();
        // Name, which call, code; several with commas between.
        for entry in std::env::var("FAKE_CUDA_FAIL").unwrap_or_default().split(',') {
            let mut parts = entry.trim().split(':');
            let number = |part: Option<&str>| part.and_then(|part| part.parse::<u64>().ok());
            if let (Some(name), nth, Some(code)) = (parts.next(), number(parts.next()), number(parts.next()))
            {
                record.fail(name.into(), nth.unwrap_or(1), error(code as u32));
            }
        }
        record
    }

    fn fail(&mut self, name: String, nth: u64, code: CUresult) {
        self.failures.push(Failure { name, pass: nth.checked_sub(1), code });
    }

    /// Counts a call; the code, if it is to fail.
    pub(crate) fn call(&mut self, name: &'static str) -> Option<CUresult> {
        *self.calls.entry(name).or_default() += 1;
        let mut hit = None;
        for (at, failure) in self.failures.iter_mut().enumerate().filter(|(_, failure)| failure.name == name)
        {
            match &mut failure.pass {
                None => hit = hit.or(Some((at, failure.code, false))),
                Some(0) => hit = hit.or(Some((at, failure.code, true))),
                Some(pass) => *pass -= 1,
            }
        }
        let (at, code, once) = hit?;
        if once {
            self.failures.remove(at);
        }
        Some(code)
    }

    pub(crate) fn launched(&mut self, device: usize, stream: u64, launch: &Launch) {
        self.launches.push(Launched { device, stream, launch: launch.clone() });
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

fn json(value: &impl Serialize) -> *const c_char {
    let text = serde_json::to_string(value).unwrap_or_default();
    TEXT.with_borrow_mut(|kept| {
        *kept = CString::new(text).unwrap_or_default();
        kept.as_ptr()
    })
}

/// Objects not destroyed, by kind: an object of numbers.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "reached by its symbol")]
pub extern "C" fn fake_cuda_live() -> *const c_char {
    json(&Driver::lock().live())
}

/// How often every function was called: an object of numbers.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "reached by its symbol")]
pub extern "C" fn fake_cuda_calls() -> *const c_char {
    json(&Driver::lock().record.calls)
}

/// The launches that ran, in that order: a list of objects.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "reached by its symbol")]
pub extern "C" fn fake_cuda_launches() -> *const c_char {
    json(&Driver::lock().record.launches)
}

/// Why contexts were lost: a list of sentences.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "reached by its symbol")]
pub extern "C" fn fake_cuda_faults() -> *const c_char {
    json(&Driver::lock().record.faults)
}

/// How many operations wait to run.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "reached by its symbol")]
pub extern "C" fn fake_cuda_pending() -> u64 {
    Driver::lock().schedule.pending() as u64
}

/// Makes the `nth` next call of a function fail, counted from 1; with 0 every call.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "reached by its symbol")]
pub unsafe extern "C" fn fake_cuda_fail(name: *const c_char, nth: u64, code: u32) {
    // SAFETY: as this function's contract says.
    if let Ok(name) = unsafe { text(name) } {
        Driver::lock().record.fail(name, nth, error(code));
    }
}

/// Forgets calls, launches, faults and failures to come. Objects and sticky errors stay.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "reached by its symbol")]
pub extern "C" fn fake_cuda_reset() {
    Driver::lock().record = Record::default();
}
