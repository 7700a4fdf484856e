//! Streams, and [`Driver::issue`], through which all work passes on its way into a stream or into a capture.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{CUcontext, CUevent, CUhostFn, CUresult, CUstream};

use crate::entry::{Driver, Outcome, api, put};
use crate::execution::{Action, Recorded};
use crate::graph::Participation;
use crate::state::{Owned, State};

/// The lowest and the highest priority.
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);

const NON_BLOCKING: u32 = 1;
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

thread_local! {
    static PER_THREAD_STREAMS: RefCell<BTreeMap<usize, usize>> = const { RefCell::new(BTreeMap::new()) };
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    flags: u32,
    priority: i32,
    /// A number for reports and for `cuStreamGetId`.
    pub(crate) id: u64,
    /// Made by the driver, not by the caller.
    implicit: bool,
    pub(crate) tail: Option<u64>,
    pub(crate) capture: Option<Participation>,
}

impl Stream {
    pub(crate) fn implicit(device: usize, id: u64) -> Stream {
        Stream { device, flags: 0, priority: 0, id, implicit: true, tail: None, capture: None }
    }

    pub(crate) fn blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }
}

impl Owned for Stream {
    fn device(&self) -> usize {
        self.device
    }

    fn counted(&self) -> bool {
        !self.implicit
    }
}

impl Driver {
    /// The stream of a handle, which may be one of the special values.
    pub(crate) fn stream(&mut self, stream: CUstream) -> Outcome<usize> {
        let device = self.current()?;
        match stream as usize {
            0 | LEGACY => Ok(self.devices[device].legacy_stream),
            PER_THREAD => {
                let known = PER_THREAD_STREAMS.with_borrow(|streams| streams.get(&device).copied());
                if let Some(handle) = known.filter(|&handle| self.streams.get(handle).is_ok()) {
                    return Ok(handle);
                }
                let handle = self.handle();
                self.streams.insert(handle, Stream::implicit(device, handle as u64));
                PER_THREAD_STREAMS.with_borrow_mut(|streams| streams.insert(device, handle));
                Ok(handle)
            }
            handle => self.streams.get(handle).map(|_| handle),
        }
    }

    /// Gives an action to a stream: to its capture, or to the schedule. Returns the operation in the latter case.
    pub(crate) fn issue(&mut self, stream: usize, action: Action) -> Outcome<Option<u64>> {
        if let Some((capture, nodes)) = self.capture_of(stream)? {
            self.issue_to_capture(stream, capture, nodes, action)?;
            return Ok(None);
        }
        self.refuse_legacy_in_capture(stream)?;
        self.not_lost(self.streams.get(stream)?.device)?;
        let after = self.order(stream)?;
        let (device, id) = self.streams.get(stream).map(|stream| (stream.device, stream.id))?;
        let operation = self.enqueue(device, id, after, action);
        self.streams.get_mut(stream)?.tail = Some(operation);
        Ok(Some(operation))
    }

    /// What the next operation of a stream has to follow.
    pub(crate) fn order(&self, handle: usize) -> Outcome<Vec<u64>> {
        let stream = self.streams.get(handle)?;
        let device = &self.devices[stream.device];
        let mut after: Vec<u64> = stream.tail.into_iter().collect();
        if handle == device.legacy_stream {
            let blocking = self.streams.iter().map(|(_, other)| other);
            let blocking = blocking.filter(|other| other.device == stream.device && other.blocking());
            after.extend(blocking.filter_map(|other| other.tail));
            after.extend(&device.orphans);
        } else if stream.blocking() {
            after.extend(self.streams.get(device.legacy_stream)?.tail);
        }
        Ok(after)
    }

    fn create_stream(&mut self, flags: u32, priority: i32) -> Outcome<usize> {
        if flags & !NON_BLOCKING != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = self.current()?;
        let handle = self.handle();
        let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
        let id = handle as u64;
        let stream = Stream { device, flags, priority, id, implicit: false, tail: None, capture: None };
        self.streams.insert(handle, stream);
        Ok(handle)
    }

    fn wait_event(&mut self, stream: CUstream, event: usize, flags: u32) -> Outcome {
        let stream = self.stream(stream)?;
        let recorded = self.events.get(event)?.recorded.clone();
        let external = match flags {
            0 => false,
            1 => true,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let capture = self.capture_of(stream)?;
        match (capture, recorded) {
            (Some(_), _) | (None, Recorded::By(_)) if external => {
                self.issue(stream, Action::WaitEvent(event)).map(drop)
            }
            (capture, Recorded::InCapture { capture: theirs, nodes }) => {
                self.join_capture(stream, capture.map(|(ours, _)| ours), theirs, nodes)
            }
            (Some((capture, _)), _) => {
                self.invalidate(capture);
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
            }
            (None, Recorded::By(_)) => self.issue(stream, Action::WaitEvent(event)).map(drop),
            (None, Recorded::Never) => Ok(()),
        }
    }
}

api! {
    Context fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) |driver| {
        let handle = driver.create_stream(flags, 0)?;
        put(stream, handle as CUstream)
    }

    Context fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) |driver| {
        let handle = driver.create_stream(flags, priority)?;
        put(stream, handle as CUstream)
    }

    Release fn cuStreamDestroy_v2(stream: CUstream) |driver| {
        let handle = stream as usize;
        if driver.streams.get(handle)?.implicit {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let stream = driver.streams.remove(handle)?;
        if let Some(part) = &stream.capture {
            driver.invalidate(part.capture);
        }
        if stream.blocking() {
            let mut orphans = std::mem::take(&mut driver.devices[stream.device].orphans);
            orphans.extend(stream.tail);
            orphans.retain(|&operation| driver.schedule.is_pending(operation));
            driver.devices[stream.device].orphans = orphans;
        }
        Ok(())
    }

    Context fn cuStreamSynchronize(stream: CUstream) |driver| {
        let stream = driver.stream(stream)?;
        driver.refuse_capturing(stream)?;
        let order = driver.order(stream)?;
        driver.drain(order);
        driver.not_lost(driver.streams.get(stream)?.device)
    }

    Context fn cuStreamQuery(stream: CUstream) |driver| {
        let stream = driver.stream(stream)?;
        driver.refuse_capturing(stream)?;
        let (tail, device) = driver.streams.get(stream).map(|stream| (stream.tail, stream.device))?;
        driver.poll(device, tail)
    }

    Context fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) |driver| {
        driver.wait_event(stream, event as usize, flags)
    }

    Context fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) |driver| {
        let stream = driver.stream(stream)?;
        put(priority, driver.streams.get(stream)?.priority)
    }

    Context fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) |driver| {
        let stream = driver.stream(stream)?;
        put(flags, driver.streams.get(stream)?.flags)
    }

    Context fn cuStreamGetId(stream: CUstream, id: *mut c_ulonglong) |driver| {
        let stream = driver.stream(stream)?;
        put(id, driver.streams.get(stream)?.id)
    }

    Context fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) |driver| {
        let stream = driver.stream(stream)?;
        put(context, State::context_of_device(driver.streams.get(stream)?.device) as CUcontext)
    }

    Context fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) |driver| {
        if function.is_none() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let stream = driver.stream(stream)?;
        driver.issue(stream, Action::Host { function, data: data as usize }).map(drop)
    }
}
