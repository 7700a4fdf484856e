//! Events.

use std::ptr;
use std::sync::Arc;

use super::context::Context;
use super::stream::Stream;
use super::{Shared, call, sys};
use crate::error::CudaError;

/// An event, destroyed on drop.
#[derive(Debug)]
pub(crate) struct Event {
    context: Arc<Context>,
    raw: Shared<sys::CUevent>,
}

impl Event {
    pub(crate) fn new(context: Arc<Context>, timing: bool, blocking: bool) -> Result<Event, CudaError> {
        use sys::CUevent_flags_enum as Flag;
        context.bind()?;
        let mut flags = Flag::CU_EVENT_DEFAULT as u32;
        if !timing {
            flags |= Flag::CU_EVENT_DISABLE_TIMING as u32;
        }
        if blocking {
            flags |= Flag::CU_EVENT_BLOCKING_SYNC as u32;
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuEventCreate(&raw mut raw, flags)) }?;
        Ok(Event { context, raw: Shared(raw) })
    }

    pub(crate) fn raw(&self) -> sys::CUevent {
        self.raw.0
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: both handles live.
        unsafe { call!(cuEventRecord(self.raw.0, stream.raw())) }
    }

    /// In a capture: a node that records the event at every launch.
    pub(crate) fn record_external(&self, stream: &Stream) -> Result<(), CudaError> {
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        self.context.bind()?;
        // SAFETY: both handles live.
        unsafe { call!(cuEventRecordWithFlags(self.raw.0, stream.raw(), external)) }
    }

    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the handle lives.
        unsafe { call!(cuEventSynchronize(self.raw.0)) }
    }

    pub(crate) fn is_done(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the handle lives.
        match unsafe { call!(cuEventQuery(self.raw.0)) } {
            Ok(()) => Ok(true),
            Err(CudaError::Call { code: 600, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Milliseconds from this to a later one.
    pub(crate) fn elapsed_ms(&self, later: &Event) -> Result<f32, CudaError> {
        self.context.bind()?;
        let mut ms = 0.0;
        // SAFETY: the pointer is valid for the call, both handles live.
        unsafe { call!(cuEventElapsedTime(&raw mut ms, self.raw.0, later.raw.0)) }?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; the driver keeps what pending waits need. Refused only by a driver that shuts down or a
        // context that is lost.
        let _ = self.context.bind().and_then(|()| unsafe { call!(cuEventDestroy_v2(self.raw.0)) });
    }
}
