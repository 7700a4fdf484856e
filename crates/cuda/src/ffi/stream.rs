//! Streams: creation, waiting, host functions, capture.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use super::context::Context;
use super::event::Event;
use super::graph::Graph;
use super::{Shared, call, sys};
use crate::error::CudaError;

/// A stream, destroyed on drop unless it is the context's default stream or somebody else's.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<Context>,
    raw: Shared<sys::CUstream>,
    owner: Owner,
}

/// Who destroys a stream.
enum Owner {
    /// We do, on drop.
    Us,
    /// Nobody: it is a context's default stream.
    Nobody,
    /// Somebody else, not before this is dropped.
    Other(#[allow(dead_code, reason = "kept, never looked at")] Box<dyn Any + Send + Sync>),
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Owner::Us => "ours",
            Owner::Nobody => "default",
            Owner::Other(_) => "another library's",
        })
    }
}

impl Stream {
    pub(crate) fn new(context: Arc<Context>, non_blocking: bool, priority: i32) -> Result<Stream, CudaError> {
        use sys::CUstream_flags_enum as Flag;
        context.bind()?;
        let flags = if non_blocking { Flag::CU_STREAM_NON_BLOCKING } else { Flag::CU_STREAM_DEFAULT } as u32;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the driver clamps the priority.
        unsafe { call!(cuStreamCreateWithPriority(&raw mut raw, flags, priority)) }?;
        Ok(Stream { context, raw: Shared(raw), owner: Owner::Us })
    }

    /// The context's default stream, which waits for all blocking streams and they for it.
    pub(crate) fn default_of(context: Arc<Context>) -> Stream {
        Stream { context, raw: Shared(ptr::null_mut()), owner: Owner::Nobody }
    }

    /// Somebody else's stream, and who keeps it.
    ///
    /// # Safety
    /// It is a stream of this context, and not destroyed before the owner is dropped.
    pub(crate) unsafe fn of_other(
        context: Arc<Context>,
        raw: sys::CUstream,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Stream {
        Stream { context, raw: Shared(raw), owner: Owner::Other(owner) }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw.0
    }

    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the handle lives.
        unsafe { call!(cuStreamSynchronize(self.raw.0)) }
    }

    pub(crate) fn is_idle(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the handle lives.
        match unsafe { call!(cuStreamQuery(self.raw.0)) } {
            Ok(()) => Ok(true),
            Err(CudaError::Call { code: 600, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn priority(&self) -> Result<i32, CudaError> {
        self.context.bind()?;
        let mut priority: c_int = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuStreamGetPriority(self.raw.0, &raw mut priority)) }?;
        Ok(priority)
    }

    pub(crate) fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: both handles live; the event may be another context's.
        unsafe { call!(cuStreamWaitEvent(self.raw.0, event.raw(), 0)) }
    }

    /// In a capture: a node that waits, at every launch, for what was recorded last by then.
    pub(crate) fn wait_external(&self, event: &Event) -> Result<(), CudaError> {
        let external = sys::CUevent_wait_flags_enum::CU_EVENT_WAIT_EXTERNAL as u32;
        self.context.bind()?;
        // SAFETY: both handles live.
        unsafe { call!(cuStreamWaitEvent(self.raw.0, event.raw(), external)) }
    }

    /// Runs a function on a thread of the driver when all work before it is done. What it panics with is lost.
    pub(crate) fn host_call(&self, function: Box<dyn FnOnce() + Send>) -> Result<(), CudaError> {
        unsafe extern "C" fn run(data: *mut c_void) {
            // SAFETY: made by `Box::into_raw` below; the driver calls once for each call of `cuLaunchHostFunc`.
            let function = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
            // A panic must not reach the driver.
            let _ = catch_unwind(AssertUnwindSafe(*function));
        }
        self.context.bind()?;
        let data = Box::into_raw(Box::new(function)).cast::<c_void>();
        // SAFETY: the function and its data fit together; the caller makes sure that the stream is not being captured, where it would be
        // called once for each launch of the graph.
        let called = unsafe { call!(cuLaunchHostFunc(self.raw.0, Some(run), data)) };
        if called.is_err() {
            // SAFETY: refused, so the driver will not call it.
            drop(unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) });
        }
        called
    }

    /// Enqueues a function that graphs call again and again.
    ///
    /// # Safety
    /// `function` outlives every graph that this call is captured into.
    pub(crate) unsafe fn host_call_shared(&self, function: &Arc<Repeated>) -> Result<(), CudaError> {
        self.context.bind()?;
        let data = Arc::as_ptr(function).cast_mut().cast::<c_void>();
        // SAFETY: the caller keeps it alive.
        unsafe { call!(cuLaunchHostFunc(self.raw.0, Some(run_repeated), data)) }
    }

    pub(crate) fn begin_capture(&self) -> Result<(), CudaError> {
        use sys::CUstreamCaptureMode_enum as Mode;
        self.context.bind()?;
        // SAFETY: the handle lives.
        unsafe { call!(cuStreamBeginCapture_v2(self.raw.0, Mode::CU_STREAM_CAPTURE_MODE_RELAXED)) }
    }

    /// Ends a capture. On failure the stream is no longer being captured either.
    pub(crate) fn end_capture(&self) -> Result<Graph, CudaError> {
        self.context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuStreamEndCapture(self.raw.0, &raw mut raw)) }?;
        Ok(Graph::own(self.context.clone(), raw))
    }
}

/// A function that a graph calls at every launch.
pub(crate) struct Repeated(pub(crate) Box<dyn Fn() + Send + Sync>);

/// Calls a [`Repeated`].
pub(crate) unsafe extern "C" fn run_repeated(data: *mut c_void) {
    // SAFETY: those who give this function to the driver keep its data alive.
    let function = unsafe { &*data.cast::<Repeated>() };
    // A panic must not reach the driver.
    let _ = catch_unwind(AssertUnwindSafe(|| (function.0)()));
}

impl Drop for Stream {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Us) {
            // SAFETY: created once, destroyed once; the driver finishes what is pending.
            let _ = self.context.bind().and_then(|()| unsafe { call!(cuStreamDestroy_v2(self.raw.0)) });
        }
    }
}
