//! How every function of the driver API begins and ends: counting, injected failures, the checks that all share.
//!
//! [`api!`] writes the exported function around a body. At compile time it also compares the signature with cudarc's
//! binding of the same name, so a wrong argument type does not compile.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUresult;

use crate::state::State;

/// What a driver function returns, before it becomes a number.
pub(crate) type Outcome<T = ()> = Result<T, CUresult>;

/// What has to be there for a function to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nothing, not even `cuInit`.
    Always,
    /// `cuInit`.
    Driver,
    /// A current context without a sticky error.
    Context,
    /// `cuInit`. The object is released even if the context has a sticky error, which is then returned.
    Release,
}

macro_rules! api {
    ($($scope:ident fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$driver:pat_param| $body:block)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of the driver API.")]
        ///
        /// # Safety
        /// Every pointer is what the driver API asks for.
        #[allow(unreachable_pub, reason = "reached by its symbol")]
        #[allow(clippy::too_many_arguments, reason = "given by the driver API")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> cudarc::driver::sys::CUresult {
            const _: unsafe fn($($ty),*) -> cudarc::driver::sys::CUresult = cudarc::driver::sys::$name;
            $crate::entry::enter(stringify!($name), $crate::entry::Scope::$scope, |$driver| {
                // SAFETY: the caller vouches for its pointers, as every caller of the driver does.
                #[allow(unused_unsafe, reason = "some bodies follow no pointer")]
                unsafe { $body }
            })
        }
    )* };
}
pub(crate) use api;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::from_environment()));
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The one state of the driver, locked; [`Driver::unlocked`] lets go of it while foreign code runs.
pub(crate) struct Driver(Option<MutexGuard<'static, State>>);

impl Driver {
    pub(crate) fn lock() -> Driver {
        Driver(Some(STATE.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Runs a function of the caller's. Calls that it makes into the driver are refused, as on the hardware.
    pub(crate) fn unlocked(&mut self, body: impl FnOnce()) {
        self.0 = None;
        let before = IN_HOST_FUNCTION.replace(true);
        body();
        IN_HOST_FUNCTION.set(before);
        *self = Driver::lock();
        CHANGED.notify_all();
    }

    /// Waits until another thread has finished a function that ran [`unlocked`](Driver::unlocked).
    pub(crate) fn wait(&mut self) {
        if let Some(guard) = self.0.take() {
            self.0 = Some(CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The device of the current context.
    pub(crate) fn current(&self) -> Outcome<usize> {
        let handle = current_handle().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        let device = self.device_of_context(handle)?;
        if self.devices[device].retained == 0 {
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        Ok(device)
    }

    fn sticky(&self) -> Option<CUresult> {
        self.current().ok().and_then(|device| self.devices[device].sticky)
    }

    /// For work of a device that need not be the current one.
    pub(crate) fn not_lost(&self, device: usize) -> Outcome {
        self.devices[device].sticky.map_or(Ok(()), Err)
    }

    fn admit(&self, scope: Scope) -> Outcome {
        if scope != Scope::Always && !self.initialised {
            return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
        }
        if scope == Scope::Context {
            return self.not_lost(self.current()?);
        }
        Ok(())
    }
}

impl Deref for Driver {
    type Target = State;

    fn deref(&self) -> &State {
        let Some(state) = &self.0 else { unreachable!("only None inside `unlocked` and `wait`") };
        state
    }
}

impl DerefMut for Driver {
    fn deref_mut(&mut self) -> &mut State {
        let Some(state) = &mut self.0 else { unreachable!("only None inside `unlocked` and `wait`") };
        state
    }
}

/// The handle of the thread's current context.
pub(crate) fn current_handle() -> Option<usize> {
    CURRENT.with_borrow(|stack| stack.last().copied()).filter(|&handle| handle != 0)
}

/// Replaces the top of the thread's stack of contexts.
pub(crate) fn set_current(handle: usize) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
}

pub(crate) fn push_current(handle: usize) {
    CURRENT.with_borrow_mut(|stack| stack.push(handle));
}

pub(crate) fn pop_current() -> Option<usize> {
    CURRENT.with_borrow_mut(Vec::pop)
}

/// The frame around the body of a driver function.
pub(crate) fn enter(name: &'static str, scope: Scope, body: impl FnOnce(&mut Driver) -> Outcome) -> CUresult {
    if IN_HOST_FUNCTION.get() && scope != Scope::Always {
        return CUresult::CUDA_ERROR_NOT_PERMITTED;
    }
    let mut driver = Driver::lock();
    if let Some(code) = driver.record.call(name) {
        if is_sticky(code)
            && let Ok(device) = driver.current()
        {
            driver.devices[device].sticky = Some(code);
        }
        return code;
    }
    let outcome = driver.admit(scope).and_then(|()| body(&mut driver));
    // Work that a call runs may fail; the caller hears of that first.
    let sticky = if matches!(scope, Scope::Context | Scope::Release) { driver.sticky() } else { None };
    match (sticky, outcome) {
        (Some(code), _) | (None, Err(code)) => code,
        (None, Ok(())) => CUresult::CUDA_SUCCESS,
    }
}

/// Errors after which a context is lost.
fn is_sticky(code: CUresult) -> bool {
    use CUresult as C;
    matches!(
        code,
        C::CUDA_ERROR_ILLEGAL_ADDRESS
            | C::CUDA_ERROR_LAUNCH_TIMEOUT
            | C::CUDA_ERROR_ASSERT
            | C::CUDA_ERROR_HARDWARE_STACK_ERROR
            | C::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | C::CUDA_ERROR_MISALIGNED_ADDRESS
            | C::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | C::CUDA_ERROR_INVALID_PC
            | C::CUDA_ERROR_LAUNCH_FAILED
            | C::CUDA_ERROR_ECC_UNCORRECTABLE
    )
}

/// Writes a result through a pointer of the caller's.
///
/// # Safety
/// `target` is null or valid for writing a `T`.
pub(crate) unsafe fn put<T>(target: *mut T, value: T) -> Outcome {
    if target.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so valid by this function's contract. Fields of C structures may be less aligned than `T`.
    unsafe { target.write_unaligned(value) };
    Ok(())
}

/// As [`put`], for results that the caller may leave out.
///
/// # Safety
/// `target` is null or valid for writing a `T`.
pub(crate) unsafe fn put_if_wanted<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: not null, so valid by this function's contract.
        unsafe { target.write_unaligned(value) };
    }
}

/// The elements behind a pointer and a count.
///
/// # Safety
/// `first` is null or valid for reading `count` elements.
pub(crate) unsafe fn elements<T: Copy>(first: *const T, count: usize) -> Outcome<Vec<T>> {
    match (first.is_null(), count) {
        (_, 0) => Ok(Vec::new()),
        (true, _) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        // SAFETY: not null, so valid by this function's contract.
        (false, _) => Ok((0..count).map(|i| unsafe { first.add(i).read_unaligned() }).collect()),
    }
}

/// The text behind a C string.
///
/// # Safety
/// `text` is null or points to a string that ends with a zero.
pub(crate) unsafe fn text(text: *const std::ffi::c_char) -> Outcome<String> {
    if text.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so a C string by this function's contract.
    Ok(unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
