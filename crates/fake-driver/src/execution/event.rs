//! Events. Times are of a clock that advances a microsecond with every operation.

use std::ffi::c_uint;

use cudarc::driver::sys::{CUevent, CUresult, CUstream};

use crate::entry::{Driver, Outcome, api, put};
use crate::execution::Action;
use crate::state::Owned;

const DISABLE_TIMING: u32 = 2;
const KNOWN_FLAGS: u32 = 1 | DISABLE_TIMING | 4;
const EXTERNAL: u32 = 1;

/// Where an event was recorded last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Never,
    /// This operation, perhaps done.
    By(u64),
    /// A point in a capture: what comes next would follow these nodes.
    InCapture {
        capture: u64,
        nodes: Vec<usize>,
    },
}

#[derive(Debug)]
pub(crate) struct Event {
    device: usize,
    flags: u32,
    pub(crate) recorded: Recorded,
    /// When its operation ran.
    pub(crate) time: Option<u64>,
}

impl Event {
    /// The operation to wait for.
    pub(crate) fn operation(&self) -> Option<u64> {
        match self.recorded {
            Recorded::By(operation) => Some(operation),
            Recorded::Never | Recorded::InCapture { .. } => None,
        }
    }

    fn outside_capture(&self) -> Outcome<Option<u64>> {
        match self.recorded {
            Recorded::InCapture { .. } => Err(CUresult::CUDA_ERROR_CAPTURED_EVENT),
            Recorded::Never | Recorded::By(_) => Ok(self.operation()),
        }
    }
}

impl Owned for Event {
    fn device(&self) -> usize {
        self.device
    }
}

impl Driver {
    fn record_event(&mut self, event: usize, stream: CUstream, flags: u32) -> Outcome {
        let stream = self.stream(stream)?;
        if self.events.get(event)?.device != self.streams.get(stream)?.device {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        match (self.capture_of(stream)?, flags) {
            (Some((capture, nodes)), 0) => {
                self.events.get_mut(event)?.recorded = Recorded::InCapture { capture, nodes };
                Ok(())
            }
            (None, 0 | EXTERNAL) | (Some(_), EXTERNAL) => {
                self.issue(stream, Action::RecordEvent(event)).map(drop)
            }
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn elapsed(&self, start: usize, end: usize) -> Outcome<f32> {
        let mut times = [0; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            let event = self.events.get(event)?;
            if event.flags & DISABLE_TIMING != 0 || event.outside_capture()?.is_none() {
                return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
            }
            *time = event.time.ok_or(CUresult::CUDA_ERROR_NOT_READY)?;
        }
        Ok((times[1] as f32 - times[0] as f32) / 1e6)
    }
}

api! {
    Context fn cuEventCreate(event: *mut CUevent, flags: c_uint) |driver| {
        if flags & !KNOWN_FLAGS != 0 || (flags & 4 != 0 && flags & DISABLE_TIMING == 0) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver.current()?;
        let handle = driver.handle();
        put(event, handle as CUevent)?;
        driver.events.insert(handle, Event { device, flags, recorded: Recorded::Never, time: None });
        Ok(())
    }

    Release fn cuEventDestroy_v2(event: CUevent) |driver| {
        driver.events.remove(event as usize).map(drop)
    }

    Context fn cuEventRecord(event: CUevent, stream: CUstream) |driver| {
        driver.record_event(event as usize, stream, 0)
    }

    Context fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) |driver| {
        driver.record_event(event as usize, stream, flags)
    }

    Context fn cuEventQuery(event: CUevent) |driver| {
        driver.refuse_in_capture()?;
        let event = driver.events.get(event as usize)?;
        let (device, operation) = (event.device, event.outside_capture()?);
        driver.poll(device, operation)
    }

    Context fn cuEventSynchronize(event: CUevent) |driver| {
        driver.refuse_in_capture()?;
        let event = driver.events.get(event as usize)?;
        let (device, operation) = (event.device, event.outside_capture()?);
        driver.drain(operation);
        driver.not_lost(device)
    }

    Context fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) |driver| {
        put(milliseconds, driver.elapsed(start as usize, end as usize)?)
    }

    Context fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) |driver| {
        put(milliseconds, driver.elapsed(start as usize, end as usize)?)
    }
}
