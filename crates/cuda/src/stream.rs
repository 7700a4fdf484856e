//! Streams: work in order.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::context::{Context, lock};
use crate::error::CudaError;
use crate::event::{Event, EventOptions};
use crate::ffi;
use crate::graph::Capture;
use crate::launch::{History, Name, Pending};

/// How a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StreamOptions {
    /// Whether it waits for the default stream, and that for it.
    pub blocking: bool,
    /// Its priority; a smaller number is a greater priority, 0 is the least. See [`Context::stream_priorities`].
    pub priority: i32,
}

/// Work in order: each operation begins when the one before it is done. Clones are the same stream.
///
/// Memory knows which streams used it: an operation on one stream that needs what another stream wrote waits for it, without being
/// told, and memory is not freed before everybody is done with it. A program with one stream pays nothing for that.
///
/// ```no_run
/// # use tilewright_cuda::Context;
/// let context = Context::new(0)?;
/// let (a, b) = (context.stream()?, context.stream()?);
/// let mut data = a.upload(&[1u32, 2, 3])?;
/// b.fill(&mut data, 7)?; // begins when the upload is done
/// drop(b); // the stream ends when its work is done
/// assert_eq!(a.download(&data)?, [7, 7, 7]);
/// # Ok::<(), tilewright_cuda::CudaError>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    context: Context,
    raw: ffi::stream::Stream,
    id: u64,
    history: History,
    /// Held by [`Turn`].
    turn: Mutex<()>,
    /// Whether `capture` has something; looked at before every operation.
    capturing: AtomicBool,
    capture: Mutex<Option<Capturing>>,
}

/// A stream that is being captured.
struct Capturing {
    capture: Arc<Capture>,
    /// The end of what the stream did before.
    before: Arc<ffi::event::Event>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} of device {})", self.inner.id, self.context().ordinal())
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.inner.id == other.inner.id
    }
}

impl Eq for Stream {}

impl Stream {
    pub(crate) fn new(context: &Context, options: &StreamOptions) -> Result<Stream, CudaError> {
        if options.priority != 0 {
            let (least, greatest) = context.stream_priorities()?;
            if !(greatest..=least).contains(&options.priority) {
                return Err(CudaError::Priority { found: options.priority, least, greatest });
            }
        }
        let raw = ffi::stream::Stream::new(context.raw().clone(), !options.blocking, options.priority);
        Ok(Stream::adopt(context, context.guard(raw)?))
    }

    pub(crate) fn default_of(context: &Context) -> Stream {
        Stream::adopt(context, ffi::stream::Stream::default_of(context.raw().clone()))
    }

    pub(crate) fn adopt(context: &Context, raw: ffi::stream::Stream) -> Stream {
        // Numbers are never given twice, so that memory cannot take one stream for another.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let inner = Arc::new(Inner {
            context: context.clone(),
            raw,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            history: History::default(),
            turn: Mutex::default(),
            capturing: AtomicBool::new(false),
            capture: Mutex::default(),
        });
        context.adopt(&inner);
        Stream { inner }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// A number that no other stream of the process has; faults name it.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Its priority.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn priority(&self) -> Result<i32, CudaError> {
        self.context().guard(self.raw().priority())
    }

    /// Waits until all its work is done.
    ///
    /// # Errors
    /// If any of that work failed, or the stream is being captured.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.expect_live("waiting for a stream")?;
        // What is enqueued by others while we wait may not be done when we return.
        let mark = self.inner.history.mark();
        self.context().guard(self.raw().synchronize())?;
        self.inner.history.forget_until(mark);
        Ok(())
    }

    /// Whether all its work is done.
    ///
    /// # Errors
    /// If any of that work failed, or the stream is being captured.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.expect_live("asking a stream whether it is done")?;
        self.context().guard(self.raw().is_idle())
    }

    /// An event (without timing) at the end of its work.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn record(&self) -> Result<Event, CudaError> {
        let event = self.context().event_with(&EventOptions { timing: false, blocking: false })?;
        event.record(self)?;
        Ok(event)
    }

    /// What comes on this stream begins after the event, also one of another device. An event of a stream that is being captured makes
    /// this one part of the capture.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        let turn = self.turn();
        let capture = event.capture().filter(|capture| !capture.is_over());
        match capture.filter(|_| turn.capture().is_none()) {
            Some(capture) => {
                self.enter_capture(&capture, || self.context().guard(self.raw().wait(event.raw())))
            }
            None => self.context().guard(self.raw().wait(event.raw())),
        }
    }

    /// In a capture: adds a wait, at every launch of the graph, for what the event was last recorded for by then.
    ///
    /// # Errors
    /// If the stream is not being captured, or the driver refuses.
    pub fn wait_in_graph(&self, event: &Event) -> Result<(), CudaError> {
        let turn = self.turn();
        let Some(capture) = turn.capture() else {
            return Err(CudaError::Capture {
                what: "waiting for an event at every launch of a graph",
                capturing: false,
                hint: "use `wait`",
            });
        };
        self.context().guard(self.raw().wait_external(event.raw()))?;
        capture.with_resources(|resources| resources.add_event(event.raw().clone()));
        Ok(())
    }

    /// What comes on this stream begins after all that the other one has by now.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn wait_for(&self, other: &Stream) -> Result<(), CudaError> {
        if self == other { Ok(()) } else { self.wait(&other.record()?) }
    }

    /// Calls a function on a thread of the driver when all work before it is done; work after it waits until it returns. It must not
    /// call the driver, so nothing of this crate, not even drop a buffer. What it panics with is lost.
    ///
    /// # Errors
    /// If the stream is being captured: a graph calls again and again, see [`Stream::host_call_in_graph`].
    pub fn host_call(&self, function: impl FnOnce() + Send + 'static) -> Result<(), CudaError> {
        let turn = self.turn();
        if turn.capture().is_some() {
            return Err(CudaError::Capture {
                what: "a host function that can be called once",
                capturing: true,
                hint: "use `host_call_in_graph`",
            });
        }
        self.context().guard(self.raw().host_call(Box::new(function)))
    }

    /// The driver's handle, for calls that this crate lacks. Whoever uses it must keep the stream, and order what is done.
    pub fn raw_handle(&self) -> ffi::sys::CUstream {
        self.inner.raw.raw()
    }

    pub(crate) fn raw(&self) -> &ffi::stream::Stream {
        &self.inner.raw
    }

    /// Remembers a launch.
    #[inline]
    pub(crate) fn note_launch(&self, kernel: Name, grid: [u32; 3], block: [u32; 3]) {
        self.inner.history.push(kernel, grid, block);
    }

    /// Whether the stream is being captured into a graph.
    #[inline]
    pub fn is_capturing(&self) -> bool {
        self.inner.capturing.load(Ordering::Acquire)
    }

    /// Takes the stream for an operation.
    #[inline]
    pub(crate) fn turn(&self) -> Turn<'_> {
        let held = lock(&self.inner.turn);
        Turn { stream: self, capture: self.current_capture(), _held: held }
    }

    /// The capture that the stream is part of.
    #[inline]
    fn current_capture(&self) -> Option<Arc<Capture>> {
        if !self.is_capturing() {
            return None;
        }
        lock(&self.inner.capture).as_ref().map(|capturing| capturing.capture.clone())
    }

    /// Refuses what cannot be captured.
    pub(crate) fn expect_live(&self, what: &'static str) -> Result<(), CudaError> {
        if self.is_capturing() {
            return Err(CudaError::Capture { what, capturing: true, hint: "end the capture first" });
        }
        Ok(())
    }

    /// Puts the stream, which the caller has the turn of, into a capture by doing what the driver takes for that.
    pub(crate) fn enter_capture(
        &self,
        capture: &Arc<Capture>,
        enter: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        // Held all the while: those who come by `precede` see the stream before or after.
        let mut slot = lock(&self.inner.capture);
        let before = self.context().take_event()?;
        self.context().guard(before.record(self.raw()))?;
        enter()?;
        *slot = Some(Capturing { capture: capture.clone(), before: Arc::new(before) });
        self.inner.capturing.store(true, Ordering::Release);
        capture.add_stream(self);
        Ok(())
    }

    /// The capture is over; the caller has the turn.
    pub(crate) fn leave_capture(&self) {
        *lock(&self.inner.capture) = None;
        self.inner.capturing.store(false, Ordering::Release);
    }

    /// Makes another stream's operations wait for all live work of this one.
    pub(crate) fn precede(&self, other: &ffi::stream::Stream) -> Result<(), CudaError> {
        // Held all the while, so that the event is not recorded into a capture that begins.
        let slot = lock(&self.inner.capture);
        if let Some(capturing) = slot.as_ref() {
            return self.context().guard(other.wait(&capturing.before));
        }
        let event = self.context().take_event()?;
        self.context().guard(event.record(self.raw()).and_then(|()| other.wait(&event)))?;
        self.context().return_event(event);
        Ok(())
    }

    /// Frees memory after all live work of this stream, which is where it came from, and of `others`.
    #[allow(unsafe_code)]
    pub(crate) fn free(&self, address: u64, others: &[Stream]) -> Result<(), CudaError> {
        let context = self.context();
        // With the turn, no capture begins. Memory can go in the middle of an operation, so the turn may be taken, by this very thread.
        let turn = self.inner.turn.try_lock().ok().filter(|_| !self.is_capturing());
        let target = match &turn {
            Some(_) => self.raw(),
            None => {
                let janitor = context.janitor()?;
                self.precede(janitor)?;
                janitor
            }
        };
        for other in others.iter().filter(|other| *other != self) {
            other.precede(target)?;
        }
        // SAFETY: the caller's memory was allocated in the order of a stream, and is freed once: when it goes; `target` comes after all
        // operations on it.
        context.guard(unsafe { ffi::memory::free_async(target, address) })
    }

    /// Makes another stream of the same capture wait for this one.
    pub(crate) fn precede_in_capture(&self, other: &Stream) -> Result<(), CudaError> {
        let event = ffi::event::Event::new(self.context().raw().clone(), false, false);
        let ordered = event.and_then(|event| {
            event.record(self.raw())?;
            other.raw().wait(&event)
        });
        self.context().guard(ordered)
    }

    /// Waits on this thread for all live work.
    pub(crate) fn finish(&self) -> Result<(), CudaError> {
        let before = lock(&self.inner.capture).as_ref().map(|capturing| capturing.before.clone());
        match before {
            Some(before) => self.context().guard(before.synchronize()),
            None => self.synchronize(),
        }
    }
}

/// A stream during an operation: nobody else enqueues on it, and no capture of it begins or ends. Held from the ordering of the
/// operation to the call of the driver. Nobody takes a second turn meanwhile, but the end of a capture, which takes those of all its
/// streams.
pub(crate) struct Turn<'a> {
    stream: &'a Stream,
    capture: Option<Arc<Capture>>,
    _held: MutexGuard<'a, ()>,
}

impl Turn<'_> {
    #[inline]
    pub(crate) fn stream(&self) -> &Stream {
        self.stream
    }

    /// The capture that the operation becomes part of.
    #[inline]
    pub(crate) fn capture(&self) -> Option<&Arc<Capture>> {
        self.capture.as_ref()
    }

    /// Refuses what cannot be captured.
    pub(crate) fn expect_live(&self, what: &'static str) -> Result<(), CudaError> {
        self.stream.expect_live(what)
    }
}

impl From<Arc<Inner>> for Stream {
    fn from(inner: Arc<Inner>) -> Stream {
        Stream { inner }
    }
}

impl Inner {
    pub(crate) fn pending_launches(&self) -> Pending {
        self.history.pending(self.id)
    }

    pub(crate) fn forget_launches(&self) {
        self.history.forget_until(self.history.mark());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let pending = self.pending_launches();
        // Launches without an end are those of a lost context, or none.
        if !pending.0.is_empty()
            && self.context.fault().is_none()
            && let Ok(end) = self.context.take_event()
            && end.record(&self.raw).is_ok()
        {
            self.context.bequeath(end, pending);
        }
    }
}
