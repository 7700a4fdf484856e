//! A device in use: its primary context, shared by everybody in the process.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::cache::DiskCache;
use crate::device::Device;
use crate::driver::Driver;
use crate::error::{CudaError, Fault, is_sticky};
use crate::event::{Event, EventOptions};
use crate::ffi;
use crate::launch::Pending;
use crate::stream::{self, Stream, StreamOptions};

pub use cudarc::driver::sys::CUlimit as Limit;

/// A device in use. Clones, and everybody who asks for the same device, share the device's primary context, as do other libraries in
/// the process (cudarc, candle, the CUDA runtime); the last one to let go releases it.
///
/// It can be used from any number of threads.
///
/// ```no_run
/// use tilewright_cuda::Context;
/// let context = Context::new(0)?;
/// let stream = context.stream()?;
/// let numbers = stream.upload(&[1.0f32, 2.0, 3.0])?;
/// assert_eq!(stream.download(&numbers)?, [1.0, 2.0, 3.0]);
/// # Ok::<(), tilewright_cuda::CudaError>(())
/// ```
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

/// How many streams that are gone are remembered for the launches that were pending on them.
const MOST_ORPHANS: usize = 16;

struct Inner {
    raw: Arc<ffi::context::Context>,
    device: Device,
    driver: Driver,
    /// Recycled events for ordering between streams.
    events: Mutex<Vec<ffi::event::Event>>,
    /// All streams, so that a fault can name what was pending on them.
    streams: Mutex<Vec<Weak<stream::Inner>>>,
    /// What was pending on streams that are gone, each with its end.
    orphans: Mutex<Vec<(ffi::event::Event, Pending)>>,
    /// Where memory is freed whose own stream is being captured.
    janitor: OnceLock<ffi::stream::Stream>,
    /// The first fault: nothing works after it.
    lost: OnceLock<Arc<Fault>>,
    cache: Mutex<Arc<DiskCache>>,
    /// Devices that reach the memory of this one.
    peers: Mutex<HashSet<u32>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(device {}, {})", self.ordinal(), self.device().name)
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Context {}

impl Context {
    /// The context of a device, by the number that the driver gives it.
    ///
    /// # Errors
    /// If there is no driver or no such device.
    pub fn new(ordinal: u32) -> Result<Context, CudaError> {
        static LIVE: OnceLock<Mutex<HashMap<u32, Weak<Inner>>>> = OnceLock::new();
        let mut live = lock(LIVE.get_or_init(Mutex::default));
        if let Some(inner) = live.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(Context { inner });
        }
        let driver = Driver::load()?;
        let device = driver.device(ordinal)?;
        let handle = ffi::device::Device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
        let inner = Arc::new(Inner {
            raw: Arc::new(ffi::context::Context::retain(handle)?),
            device,
            driver,
            events: Mutex::default(),
            streams: Mutex::default(),
            orphans: Mutex::default(),
            janitor: OnceLock::new(),
            lost: OnceLock::new(),
            cache: Mutex::new(Arc::new(DiskCache::from_environment())),
            peers: Mutex::default(),
        });
        live.insert(ordinal, Arc::downgrade(&inner));
        Ok(Context { inner })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The number of the device.
    pub fn ordinal(&self) -> u32 {
        self.inner.device.ordinal
    }

    /// The driver.
    pub fn driver(&self) -> Driver {
        self.inner.driver
    }

    /// Where compiled kernels are kept on disk.
    pub fn cache(&self) -> Arc<DiskCache> {
        lock(&self.inner.cache).clone()
    }

    /// Keeps compiled kernels elsewhere from now on, or nowhere.
    pub fn set_cache(&self, cache: DiskCache) {
        *lock(&self.inner.cache) = Arc::new(cache);
    }

    /// A new stream that does not wait for the default stream.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn stream(&self) -> Result<Stream, CudaError> {
        self.stream_with(&StreamOptions::default())
    }

    /// A new stream.
    ///
    /// # Errors
    /// If the priority is out of range or the driver refuses.
    pub fn stream_with(&self, options: &StreamOptions) -> Result<Stream, CudaError> {
        Stream::new(self, options)
    }

    /// The default stream: it waits for all streams that are not non-blocking, and they wait for it.
    pub fn default_stream(&self) -> Stream {
        Stream::default_of(self)
    }

    /// The least and the greatest priority that a stream can have; a smaller number is a greater priority.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn stream_priorities(&self) -> Result<(i32, i32), CudaError> {
        self.guard(self.inner.raw.priorities())
    }

    /// A new event that measures time.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn event(&self) -> Result<Event, CudaError> {
        self.event_with(&EventOptions::default())
    }

    /// A new event.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn event_with(&self, options: &EventOptions) -> Result<Event, CudaError> {
        Event::new(self, options)
    }

    /// Waits until everything on the device that this process asked for is done. While a stream is being captured, by whatever thread, the
    /// driver cannot wait for the work of other libraries: then it is everything that was asked for through this crate.
    ///
    /// # Errors
    /// If anything of that failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let streams = self.live_streams();
        if self.guard(self.inner.raw.synchronize())? {
            streams.iter().for_each(|stream| stream.forget_launches());
            lock(&self.inner.orphans).clear();
            return Ok(());
        }
        streams.into_iter().map(Stream::from).try_for_each(|stream| stream.finish())
    }

    /// Free and total bytes of the device.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.guard(self.inner.raw.memory())
    }

    /// Lets kernels on this device reach memory of the other, that of its default pool included, until both contexts are released.
    /// Nothing happens if they already can. Launches that need it do it by themselves; memory of other pools is shared by
    /// [`MemoryPool::share_with`](crate::MemoryPool::share_with).
    ///
    /// # Errors
    /// If there is no way between the devices.
    pub fn enable_peer_access(&self, other: &Context) -> Result<(), CudaError> {
        let mut peers = lock(&other.inner.peers);
        if self == other || peers.contains(&self.ordinal()) {
            return Ok(());
        }
        if !self.device().can_access(other.device())? {
            return Err(CudaError::NoPeerAccess { from: self.ordinal(), to: other.ordinal() });
        }
        self.guard(self.inner.raw.enable_peer(&other.inner.raw))?;
        // Memory of pools does not follow what contexts agree on.
        if other.device().memory_pools {
            other.default_pool()?.share_with(self)?;
        }
        peers.insert(self.ordinal());
        Ok(())
    }

    /// Takes back [`Context::enable_peer_access`].
    ///
    /// # Errors
    /// If it was not given.
    pub fn disable_peer_access(&self, other: &Context) -> Result<(), CudaError> {
        lock(&other.inner.peers).remove(&self.ordinal());
        self.guard(self.inner.raw.disable_peer(&other.inner.raw))?;
        if other.device().memory_pools { other.default_pool()?.stop_sharing_with(self) } else { Ok(()) }
    }

    /// A limit of the context, such as the stack of a thread or the heap of `malloc` in kernels.
    ///
    /// # Errors
    /// If the driver does not know it.
    pub fn limit(&self, limit: Limit) -> Result<usize, CudaError> {
        self.guard(self.inner.raw.limit(limit))
    }

    /// Sets a limit of the context.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn set_limit(&self, limit: Limit, value: usize) -> Result<(), CudaError> {
        self.guard(self.inner.raw.set_limit(limit, value))
    }

    /// Makes it the current context of the calling thread. Everything of this crate does so by itself; other libraries (cuBLAS, the CUDA
    /// runtime) use whatever is current.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn make_current(&self) -> Result<(), CudaError> {
        self.guard(self.inner.raw.bind())
    }

    /// The fault that lost this context, if one did.
    pub fn fault(&self) -> Option<Arc<Fault>> {
        self.inner.lost.get().cloned()
    }

    pub(crate) fn raw(&self) -> &Arc<ffi::context::Context> {
        &self.inner.raw
    }

    /// Tells faults of earlier work from failures of this call.
    #[inline]
    pub(crate) fn guard<T>(&self, result: Result<T, CudaError>) -> Result<T, CudaError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.explain(error)),
        }
    }

    #[cold]
    fn explain(&self, error: CudaError) -> CudaError {
        let CudaError::Call { call, code, name, text } = error else { return error };
        if !is_sticky(code) {
            return CudaError::Call { call, code, name, text };
        }
        let mut first = false;
        let fault = self.inner.lost.get_or_init(|| {
            first = true;
            let orphans =
                std::mem::take(&mut *lock(&self.inner.orphans)).into_iter().map(|(_, pending)| pending);
            let streams = self.live_streams();
            let (mut launches, mut forgotten) = (Vec::new(), 0);
            for (pending, more) in streams.iter().map(|stream| stream.pending_launches()).chain(orphans) {
                launches.extend(pending);
                forgotten += more;
            }
            launches.sort_by_key(|(order, _)| *order);
            let launches = launches.into_iter().map(|(_, launch)| launch).collect();
            Arc::new(Fault { call, code, name, text, launches, forgotten })
        });
        if first {
            CudaError::Fault(fault.clone())
        } else {
            CudaError::ContextLost { call, first: fault.clone() }
        }
    }

    pub(crate) fn adopt(&self, stream: &Arc<stream::Inner>) {
        let mut streams = lock(&self.inner.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// A stream goes while launches are pending on it: they stay suspects until its end, an event, is reached.
    pub(crate) fn bequeath(&self, end: ffi::event::Event, pending: Pending) {
        let mut orphans = lock(&self.inner.orphans);
        // Those that are done make room; of the others the latest are enough.
        orphans.retain(|(end, _)| !end.is_done().unwrap_or(false));
        if orphans.len() == MOST_ORPHANS {
            orphans.remove(0);
        }
        orphans.push((end, pending));
    }

    fn live_streams(&self) -> Vec<Arc<stream::Inner>> {
        lock(&self.inner.streams).iter().filter_map(Weak::upgrade).collect()
    }

    /// An event for ordering, used before or new.
    pub(crate) fn take_event(&self) -> Result<ffi::event::Event, CudaError> {
        match lock(&self.inner.events).pop() {
            Some(event) => Ok(event),
            None => self.guard(ffi::event::Event::new(self.inner.raw.clone(), false, false)),
        }
    }

    /// Gives an event back. Waits that were asked for keep what they need.
    pub(crate) fn return_event(&self, event: ffi::event::Event) {
        lock(&self.inner.events).push(event);
    }

    pub(crate) fn janitor(&self) -> Result<&ffi::stream::Stream, CudaError> {
        if let Some(janitor) = self.inner.janitor.get() {
            return Ok(janitor);
        }
        let stream = ffi::stream::Stream::new(self.inner.raw.clone(), true, 0)?;
        Ok(self.inner.janitor.get_or_init(|| stream))
    }

    /// An error unless `other` is this context.
    pub(crate) fn expect(&self, what: &'static str, other: &Context) -> Result<(), CudaError> {
        if self == other {
            Ok(())
        } else {
            Err(CudaError::OtherDevice { what, found: other.ordinal(), expected: self.ordinal() })
        }
    }
}

/// Locks; a panic elsewhere leaves nothing half done under any of our locks.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
