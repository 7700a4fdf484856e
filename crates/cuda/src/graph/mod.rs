//! Graphs: work that is described once and launched many times.

mod capture;

use std::sync::Arc;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::ffi::stream::Repeated;
use crate::stream::Stream;

pub(crate) use capture::{Capture, Resources};

/// Work as a graph of operations, not yet ready to run; see [`Stream::capture`]. It keeps what its operations need.
#[derive(Debug)]
pub struct Graph {
    context: Context,
    raw: ffi::graph::Graph,
    resources: Resources,
}

/// A graph that is ready to run, again and again. It keeps what its operations need.
#[derive(Debug)]
pub struct GraphExec {
    context: Context,
    raw: ffi::graph::Exec,
    resources: Resources,
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
        self.expect_live("capturing")?;
        let capture = Capture::new();
        self.enter_capture(&capture)?;
        self.context().raw().enter_capture();
        if let Err(error) = self.context().guard(self.raw().begin_capture()) {
            capture.finish();
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
        let Some(capture) = self.current_capture() else {
            return Err(CudaError::Capture {
                what: "a host function for graphs",
                capturing: false,
                hint: "use `host_call`",
            });
        };
        let function = Arc::new(Repeated(Box::new(function)));
        // SAFETY: the capture keeps the function, and so do the graphs that come of it.
        self.context().guard(unsafe { self.raw().host_call_shared(&function) })?;
        capture.add_function(function);
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
        let context = self.stream.context();
        let ended = context.guard(self.stream.raw().end_capture());
        let resources = self.capture.finish();
        context.raw().leave_capture();
        Ok(Graph { context: context.clone(), raw: ended?, resources })
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.capture.is_over() {
            let _ = self.stream.raw().end_capture();
            self.capture.finish();
            self.stream.context().raw().leave_capture();
        }
    }
}

impl Graph {
    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Operations in it.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn node_count(&self) -> Result<usize, CudaError> {
        self.context.guard(self.raw.len())
    }

    /// Makes it ready to run.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn instantiate(&self) -> Result<GraphExec, CudaError> {
        let raw = self.context.guard(self.raw.instantiate())?;
        Ok(GraphExec { context: self.context.clone(), raw, resources: self.resources.clone() })
    }
}

impl GraphExec {
    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The driver's handle, for calls that this crate lacks. Whoever uses it must keep the graph, and order what is done.
    pub fn raw_handle(&self) -> ffi::sys::CUgraphExec {
        self.raw.raw()
    }

    /// Runs it once, in the order of the stream. It waits for other streams' operations on the memory that it uses.
    ///
    /// # Errors
    /// If the stream is another device's, or the driver refuses.
    #[allow(unsafe_code)]
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.expect("the stream", stream.context())?;
        self.resources.before(stream)?;
        // SAFETY: the resources of all nodes live until all operations on them are done, and were ordered.
        self.context.guard(unsafe { self.raw.launch(stream.raw()) })
    }

    /// Sends it to the device ahead of the first launch.
    ///
    /// # Errors
    /// If the stream is another device's, or the driver refuses.
    pub fn upload(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.expect("the stream", stream.context())?;
        self.context.guard(self.raw.upload(stream.raw()))
    }
}
