//! Stream capture: work given to a stream becomes nodes of a graph.
//!
//! A stream joins a capture by waiting for an event recorded in it. A call that cannot be captured invalidates the
//! capture, whose streams then answer 901 until it is ended.

use std::cell::Cell;
use std::thread::ThreadId;

use cudarc::driver::sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
    cuuint64_t,
};

use crate::entry::{Driver, Outcome, api, put, put_if_wanted};
use crate::execution::Action;
use crate::graph::Graph;

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

thread_local! {
    static THREAD_MODE: Cell<CUstreamCaptureMode> = const { Cell::new(GLOBAL) };
}

/// A capture that was begun and not ended.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) device: usize,
    graph: usize,
    /// The stream in which it began.
    origin: usize,
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    valid: bool,
}

/// A stream's part in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Participation {
    pub(crate) capture: u64,
    /// What the next node of the stream follows. `cuStreamGetCaptureInfo` gives a pointer to it.
    nodes: Vec<usize>,
}

impl Driver {
    /// The capture that a stream takes part in, and what its next node follows.
    pub(crate) fn capture_of(&self, stream: usize) -> Outcome<Option<(u64, Vec<usize>)>> {
        let Some(part) = &self.streams.get(stream)?.capture else { return Ok(None) };
        if self.captures.get(&part.capture).is_none_or(|capture| !capture.valid) {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        Ok(Some((part.capture, part.nodes.clone())))
    }

    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.valid = false;
        }
    }

    /// For calls that no stream in a capture allows.
    pub(crate) fn refuse_capturing(&mut self, stream: usize) -> Outcome {
        match self.capture_of(stream)? {
            None => Ok(()),
            Some((capture, _)) => {
                self.invalidate(capture);
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// For calls that wait for a whole device.
    pub(crate) fn refuse_captures_of(&mut self, device: usize) -> Outcome {
        let captures: Vec<u64> =
            self.captures.iter().filter(|(_, capture)| capture.device == device).map(|(&id, _)| id).collect();
        self.refuse(&captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// For calls that may wait for any stream, unless the thread or the capture is relaxed about them.
    pub(crate) fn refuse_in_capture(&mut self) -> Outcome {
        let (mode, thread) = (THREAD_MODE.get(), std::thread::current().id());
        let forbids = |capture: &Capture| {
            mode != RELAXED
                && capture.mode != RELAXED
                && ((mode == GLOBAL && capture.mode == GLOBAL) || capture.thread == thread)
        };
        let captures: Vec<u64> =
            self.captures.iter().filter(|(_, capture)| forbids(capture)).map(|(&id, _)| id).collect();
        self.refuse(&captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// The legacy stream would follow the blocking streams that are being captured.
    pub(crate) fn refuse_legacy_in_capture(&mut self, stream: usize) -> Outcome {
        let device = self.streams.get(stream)?.device;
        if stream != self.devices[device].legacy_stream {
            return Ok(());
        }
        let blocking = self.streams.iter().filter(|(_, other)| other.device == device && other.blocking());
        let captures: Vec<u64> =
            blocking.filter_map(|(_, other)| other.capture.as_ref()).map(|part| part.capture).collect();
        self.refuse(&captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    fn refuse(&mut self, captures: &[u64], code: CUresult) -> Outcome {
        captures.iter().for_each(|&capture| self.invalidate(capture));
        if captures.is_empty() { Ok(()) } else { Err(code) }
    }

    /// Work for a stream in a capture.
    pub(crate) fn issue_to_capture(
        &mut self,
        stream: usize,
        capture: u64,
        after: Vec<usize>,
        action: Action,
    ) -> Outcome {
        let graph = self.captures[&capture].graph;
        let node = self.add_node(graph, after, action)?;
        self.set_nodes(stream, capture, vec![node])
    }

    fn set_nodes(&mut self, stream: usize, capture: u64, nodes: Vec<usize>) -> Outcome {
        self.streams.get_mut(stream)?.capture = Some(Participation { capture, nodes });
        Ok(())
    }

    /// A stream waits for a point in a capture, and so becomes part of it.
    pub(crate) fn join_capture(
        &mut self,
        stream: usize,
        ours: Option<u64>,
        theirs: u64,
        nodes: Vec<usize>,
    ) -> Outcome {
        if !self.captures.get(&theirs).is_some_and(|capture| capture.valid) {
            // The capture is over, so its points can be waited for by nobody.
            ours.into_iter().for_each(|ours| self.invalidate(ours));
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        }
        let device = self.streams.get(stream)?.device;
        if stream == self.devices[device].legacy_stream {
            self.invalidate(theirs);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        if let Some(ours) = ours.filter(|&ours| ours != theirs) {
            self.invalidate(ours);
            self.invalidate(theirs);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
        let mut joined = self.capture_of(stream)?.map(|(_, nodes)| nodes).unwrap_or_default();
        joined.extend(nodes);
        joined.sort_unstable();
        joined.dedup();
        self.set_nodes(stream, theirs, joined)
    }

    fn begin_capture(&mut self, stream: CUstream, mode: CUstreamCaptureMode) -> Outcome {
        let stream = self.stream(stream)?;
        let device = self.streams.get(stream)?.device;
        if stream == self.devices[device].legacy_stream {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.capture_of(stream)?.is_some() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        let graph = self.handle();
        self.graphs.insert(graph, Graph::new(device, true));
        let id = self.handle() as u64;
        let thread = std::thread::current().id();
        self.captures.insert(id, Capture { device, graph, origin: stream, mode, thread, valid: true });
        self.set_nodes(stream, id, Vec::new())
    }

    /// Ends the capture of its first stream, and gives its graph to the caller.
    fn end_capture(&mut self, stream: CUstream) -> Outcome<usize> {
        let stream = self.stream(stream)?;
        let Some(Participation { capture: id, nodes }) = self.streams.get(stream)?.capture.clone() else {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        };
        let capture = self.captures.get(&id).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        if capture.origin != stream {
            self.invalidate(id);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let (graph, valid) = (capture.graph, capture.valid);
        self.captures.remove(&id);
        let joined = self.graphs.get(graph)?.closure(&nodes);
        let mut unjoined = false;
        for (_, other) in self.streams.iter_mut() {
            if let Some(part) = other.capture.take_if(|part| part.capture == id) {
                unjoined |= part.nodes.iter().any(|node| !joined.contains(node));
            }
        }
        let outcome = match (valid, unjoined) {
            (false, _) => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            (true, true) => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
            (true, false) => Ok(graph),
        };
        match outcome {
            Ok(_) => self.graphs.get_mut(graph)?.capturing = false,
            Err(_) => drop(self.graphs.remove(graph)),
        }
        outcome
    }
}

/// The outputs of `cuStreamGetCaptureInfo`, of which the caller may leave out any.
struct Wanted {
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    count: *mut usize,
}

impl Driver {
    fn status(&mut self, stream: CUstream) -> Outcome<CUstreamCaptureStatus> {
        let stream = self.stream(stream)?;
        Ok(match self.capture_of(stream) {
            Ok(None) => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
            Ok(Some(_)) => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE,
            Err(_) => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        })
    }

    /// # Safety
    /// Every pointer is null or valid for writing.
    unsafe fn capture_info(&mut self, stream: CUstream, wanted: &Wanted) -> Outcome {
        let status = self.status(stream)?;
        let stream = self.stream(stream)?;
        // SAFETY: as this function's contract says.
        unsafe {
            put(wanted.status, status)?;
            if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
                return Ok(());
            }
            let Some(part) = &self.streams.get(stream)?.capture else { return Ok(()) };
            put_if_wanted(wanted.id, part.capture);
            put_if_wanted(wanted.graph, self.captures[&part.capture].graph as CUgraph);
            // Handles are numbers of the size of a pointer.
            put_if_wanted(wanted.nodes, part.nodes.as_ptr().cast::<CUgraphNode>());
            put_if_wanted(wanted.count, part.nodes.len());
        }
        Ok(())
    }
}

api! {
    Context fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) |driver| {
        driver.begin_capture(stream, mode)
    }

    Context fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) |driver| {
        put(graph, std::ptr::null_mut())?;
        let handle = driver.end_capture(stream)?;
        put(graph, handle as CUgraph)
    }

    Context fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) |driver| {
        put(status, driver.status(stream)?)
    }

    Context fn cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        count: *mut usize,
    ) |driver| {
        driver.capture_info(stream, &Wanted { status, id, graph, nodes, count })
    }

    Context fn cuStreamGetCaptureInfo_v3(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) |driver| {
        put_if_wanted(edges, std::ptr::null());
        driver.capture_info(stream, &Wanted { status, id, graph, nodes, count })
    }

    Driver fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) |_| {
        if mode.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        mode.write(THREAD_MODE.replace(mode.read()));
        Ok(())
    }
}
