//! Graphs of what is done on streams, and what such a graph will need to keep.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::Graph;
use super::resources::Resources;
use crate::context::lock;
use crate::error::CudaError;
use crate::ffi;
use crate::ffi::stream::Repeated;
use crate::memory::allocation::Allocation;
use crate::memory::order::{Access, Uses};
use crate::stream::{Stream, Turn};

/// A capture that has begun. Operations on its streams are not executed but become nodes.
pub(crate) struct Capture {
    over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    resources: Resources,
    /// What the nodes do, in the same terms in which memory remembers live operations.
    uses: HashMap<usize, Uses<Stream>>,
    streams: Vec<Stream>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capture(over: {})", self.is_over())
    }
}

impl Capture {
    pub(crate) fn new() -> Arc<Capture> {
        Arc::new(Capture { over: AtomicBool::new(false), state: Mutex::default() })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn add_stream(&self, stream: &Stream) {
        lock(&self.state).streams.push(stream.clone());
    }

    /// Adds to what the graph will keep.
    pub(crate) fn with_resources(&self, add: impl FnOnce(&mut Resources)) {
        add(&mut lock(&self.state).resources);
    }

    /// An operation is about to be captured: keeps its memory, and orders it after those it conflicts with.
    pub(crate) fn note(
        &self,
        memory: &Arc<Allocation>,
        stream: &Stream,
        access: Access,
    ) -> Result<(), CudaError> {
        let mut state = lock(&self.state);
        state.resources.add_memory(memory, access);
        let uses = state.uses.entry(Arc::as_ptr(memory).addr()).or_default();
        for other in uses.before(stream, access) {
            other.precede_in_capture(stream)?;
        }
        uses.enter(stream, access);
        Ok(())
    }

    /// Ends it on the stream on which it began: all streams are live again.
    fn end(&self, stream: &Stream) -> (Result<ffi::graph::Graph, CudaError>, Resources) {
        // Nobody joins any more; the driver would not let it end well if somebody did.
        self.over.store(true, Ordering::Release);
        let mut streams = lock(&self.state).streams.clone();
        streams.sort_by_key(Stream::id);
        // No operation of them is between its ordering and its enqueueing: it would become live halfway.
        let turns: Vec<Turn<'_>> = streams.iter().map(Stream::turn).collect();
        let ended = stream.raw().end_capture();
        let State { resources, .. } = std::mem::take(&mut *lock(&self.state));
        streams.iter().for_each(Stream::leave_capture);
        drop(turns);
        stream.context().raw().leave_capture();
        (ended, resources)
    }
}

impl Stream {
    /// Makes a graph of what `work` does on this stream, and on streams that wait for an event of it (and that it waits for again before
    /// the end), instead of doing it.
    ///
    /// Memory cannot be allocated, and ordinary host memory not be copied, while a stream is being captured; memory that is dropped
    /// meanwhile stays with the graph that uses it. Operations of different streams on the same memory are ordered here as everywhere.
    ///
    /// ```no_run
    /// # use tilewright_cuda::{Context, CudaError};
    /// let context = Context::new(0)?;
    /// let stream = context.stream()?;
    /// let from = stream.upload(&[1u32, 2, 3])?;
    /// let mut to = stream.alloc_zeroed::<u32>(3)?;
    /// let graph = stream.capture(|| stream.copy(&from, &mut to))?;
    /// let ready = graph.instantiate()?;
    /// ready.launch(&stream)?;
    /// assert_eq!(stream.download(&to)?, [1, 2, 3]);
    /// # Ok::<(), CudaError>(())
    /// ```
    ///
    /// # Errors
    /// What `work` returns; or if it did something that cannot be captured, or did not join a stream again.
    pub fn capture<E: From<CudaError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        let capture = Capture::new();
        // From here on nobody waits for the whole context.
        self.context().raw().enter_capture();
        let begun = {
            let turn = self.turn();
            turn.expect_live("capturing").and_then(|()| {
                self.enter_capture(&capture, || self.context().guard(self.raw().begin_capture()))
            })
        };
        if let Err(error) = begun {
            self.context().raw().leave_capture();
            return Err(error.into());
        }
        // Also if `work` panics, the stream must be usable afterwards.
        let ending = Ending { stream: self, capture };
        let done = work();
        let ended = ending.end();
        done?;
        Ok(ended?)
    }

    /// In a capture: adds a function that is called on a thread of the driver at every launch of the graph. The same rules as for
    /// [`Stream::host_call`].
    ///
    /// # Errors
    /// If the stream is not being captured.
    #[allow(unsafe_code)]
    pub fn host_call_in_graph(&self, function: impl Fn() + Send + Sync + 'static) -> Result<(), CudaError> {
        let turn = self.turn();
        let Some(capture) = turn.capture() else {
            return Err(CudaError::Capture {
                what: "a host function for graphs",
                capturing: false,
                hint: "use `host_call`",
            });
        };
        let function = Arc::new(Repeated(Box::new(function)));
        // SAFETY: the capture keeps the function, and so do the graphs that come of it.
        self.context().guard(unsafe { self.raw().host_call_shared(&function) })?;
        capture.with_resources(|resources| resources.add_function(self.context(), function));
        Ok(())
    }
}

/// Ends a capture, at the latest when it is dropped.
struct Ending<'a> {
    stream: &'a Stream,
    capture: Arc<Capture>,
}

impl Ending<'_> {
    fn end(self) -> Result<Graph, CudaError> {
        let (ended, resources) = self.capture.end(self.stream);
        let context = self.stream.context();
        Ok(Graph::captured(context.clone(), context.guard(ended)?, resources))
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.capture.is_over() {
            let _ = self.capture.end(self.stream);
        }
    }
}
