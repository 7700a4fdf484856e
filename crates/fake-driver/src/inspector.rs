//! The test's side of [`inspect`](crate::inspect): asks the library that cudarc has loaded.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};

use cudarc::driver::sys;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A kernel launch that ran.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LaunchRecord {
    /// Ordinal of the device.
    pub device: usize,
    /// What `cuStreamGetId` gives for the stream.
    pub stream: u64,
    /// Name of the kernel.
    pub name: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; 1 by 1 by 1 without clusters.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Whether all blocks had to be resident.
    pub cooperative: bool,
    /// Number and first bytes of every launch attribute.
    pub attributes: Vec<(u32, [u8; 16])>,
    /// All arguments, laid out as the kernel declares them.
    pub params: Vec<u8>,
}

/// A look into the fake driver that this process has loaded.
///
/// ```
/// // Without the fake driver in the process there is nothing to look into.
/// assert!(tilewright_fake_driver::Inspector::attach().is_none());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Inspector(());

type Text = unsafe extern "C" fn() -> *const c_char;

impl Inspector {
    /// Finds the fake driver in this process; `None` if there is no driver, or a real one.
    pub fn attach() -> Option<Inspector> {
        // SAFETY: loads the driver library, as every use of cudarc would.
        let found = unsafe { sys::is_culib_present() && sys::culib().get::<Text>(b"fake_cuda_live").is_ok() };
        found.then_some(Inspector(()))
    }

    fn function<F: Copy>(self, name: &str) -> Option<F> {
        // SAFETY: `F` is the type of the function as this crate exports it, and `attach` has found this crate's
        // library, which is never unloaded.
        unsafe { sys::culib().get::<F>(name.as_bytes()).ok().map(|function| *function) }
    }

    fn ask<T: DeserializeOwned + Default>(self, name: &str) -> T {
        let Some(function) = self.function::<Text>(name) else { return T::default() };
        // SAFETY: the function takes nothing and returns a C string that lives until the next question.
        let text = unsafe { CStr::from_ptr(function()) };
        serde_json::from_slice(text.to_bytes()).unwrap_or_default()
    }

    /// Objects that were made and not destroyed, by kind, including those that a context took with it.
    ///
    /// The kinds: `contexts` (retained), `streams`, `events`, `modules`, `links`, `pools`, `graphs`, `execs`,
    /// `user_objects`, `captures`, `device_memory`, `host_memory`, `registered_memory`.
    pub fn live(self) -> BTreeMap<String, usize> {
        self.ask("fake_cuda_live")
    }

    /// The kinds of which something was not destroyed, such as `"streams: 1"`; empty when nothing leaks.
    pub fn leaks(self) -> Vec<String> {
        let leaks = self.live().into_iter().filter(|(_, count)| *count > 0);
        leaks.map(|(kind, count)| format!("{kind}: {count}")).collect()
    }

    /// How often a function of the driver API was called.
    pub fn calls(self, name: &str) -> u64 {
        self.all_calls().get(name).copied().unwrap_or(0)
    }

    /// All functions of the driver API that were called, and how often.
    pub fn all_calls(self) -> BTreeMap<String, u64> {
        self.ask("fake_cuda_calls")
    }

    /// The launches that ran, in the order in which they ran.
    pub fn launches(self) -> Vec<LaunchRecord> {
        self.ask("fake_cuda_launches")
    }

    /// Why contexts were lost: one sentence for every 700.
    pub fn faults(self) -> Vec<String> {
        self.ask("fake_cuda_faults")
    }

    /// How many operations were given to streams and have not run.
    pub fn pending(self) -> u64 {
        // SAFETY: takes nothing, returns a number.
        self.function::<unsafe extern "C" fn() -> u64>("fake_cuda_pending")
            .map_or(0, |function| unsafe { function() })
    }

    /// Makes the `nth` next call of a function fail with a code, counted from 1; with 0 every call fails.
    ///
    /// A code after which a context is lost, such as 700, also makes the current context sticky.
    pub fn fail(self, name: &str, nth: u64, code: u32) {
        let function = self.function::<unsafe extern "C" fn(*const c_char, u64, u32)>("fake_cuda_fail");
        if let (Some(function), Ok(name)) = (function, CString::new(name)) {
            // SAFETY: the name is a C string.
            unsafe { function(name.as_ptr(), nth, code) };
        }
    }

    /// Forgets calls, launches, faults and failures to come. Objects and sticky errors stay.
    pub fn reset(self) {
        if let Some(function) = self.function::<unsafe extern "C" fn()>("fake_cuda_reset") {
            // SAFETY: takes nothing.
            unsafe { function() };
        }
    }
}
