//! Events: points in the order of a stream, to wait for and to measure time between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::context::{Context, lock};
use crate::error::CudaError;
use crate::ffi;
use crate::graph::Capture;
use crate::stream::Stream;

/// How an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Whether it takes the time; without, it is cheaper.
    pub timing: bool,
    /// Whether a thread that waits for it sleeps rather than spins.
    pub blocking: bool,
}

impl Default for EventOptions {
    fn default() -> EventOptions {
        EventOptions { timing: true, blocking: false }
    }
}

/// A point in the order of a stream.
///
/// ```no_run
/// # use tilewright_cuda::Context;
/// let context = Context::new(0)?;
/// let (stream, other) = (context.stream()?, context.stream()?);
/// let (start, end) = (context.event()?, context.event()?);
/// start.record(&stream)?;
/// // ... work ...
/// end.record(&stream)?;
/// other.wait(&end)?; // what comes on `other` begins after that
/// println!("{:?}", end.since(&start)?);
/// # Ok::<(), tilewright_cuda::CudaError>(())
/// ```
#[derive(Debug)]
pub struct Event {
    context: Context,
    /// Graphs keep it, too.
    raw: Arc<ffi::event::Event>,
    timing: bool,
    /// The capture that it was last recorded in.
    capture: Mutex<Option<Arc<Capture>>>,
}

impl Event {
    pub(crate) fn new(context: &Context, options: &EventOptions) -> Result<Event, CudaError> {
        let raw =
            context.guard(ffi::event::Event::new(context.raw().clone(), options.timing, options.blocking))?;
        Ok(Event {
            context: context.clone(),
            raw: Arc::new(raw),
            timing: options.timing,
            capture: Mutex::default(),
        })
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Marks the end of all work that the stream has by now.
    ///
    /// # Errors
    /// If the stream is another device's, or the driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.expect("the stream", stream.context())?;
        let turn = stream.turn();
        self.context.guard(self.raw.record(stream.raw()))?;
        *lock(&self.capture) = turn.capture().cloned();
        Ok(())
    }

    /// In a capture: adds a record that is made at every launch of the graph, for those outside of it: [`Event::synchronize`],
    /// [`Event::since`], and streams that wait for it. ([`Event::record`] in a capture only orders what is captured.)
    ///
    /// # Errors
    /// If the stream is another device's or not being captured, or the driver refuses.
    pub fn record_in_graph(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.expect("the stream", stream.context())?;
        let turn = stream.turn();
        let Some(capture) = turn.capture() else {
            return Err(CudaError::Capture {
                what: "recording an event at every launch of a graph",
                capturing: false,
                hint: "use `record`",
            });
        };
        self.context.guard(self.raw.record_external(stream.raw()))?;
        capture.with_resources(|resources| resources.add_event(self.raw.clone()));
        Ok(())
    }

    /// Whether all work before it is done; true also for an event that was never recorded.
    ///
    /// # Errors
    /// If that work failed.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.context.guard(self.raw.is_done())
    }

    /// Waits until all work before it is done.
    ///
    /// # Errors
    /// If that work failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.guard(self.raw.synchronize())
    }

    /// The time from an earlier event to this one; waits for neither.
    ///
    /// # Errors
    /// If one of them takes no time, was not recorded, or is not done.
    pub fn since(&self, earlier: &Event) -> Result<Duration, CudaError> {
        self.context.expect("the earlier event", &earlier.context)?;
        if !self.timing || !earlier.timing {
            return Err(CudaError::Unsupported {
                device: self.context.ordinal(),
                what: "time between events that were made without timing",
            });
        }
        let ms = self.context.guard(earlier.raw.elapsed_ms(&self.raw))?;
        Ok(Duration::try_from_secs_f64(f64::from(ms) * 1e-3).unwrap_or_default())
    }

    pub(crate) fn raw(&self) -> &Arc<ffi::event::Event> {
        &self.raw
    }

    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        lock(&self.capture).clone()
    }
}
