//! The same memory and streams for this crate and for the safe part of cudarc.
//!
//! Both use a device's primary context, so addresses and streams mean the same to both. What they do not share is their knowledge of what
//! is pending: cudarc keeps events in each `CudaSlice`, this crate knows the streams that used each allocation. Each function here
//! translates one into the other where memory changes hands, so that
//!
//! * what this crate does with memory comes after all that cudarc was told to do with it before, and
//! * what cudarc does with it afterwards, freeing it included, comes after all that this crate was told to do with it,
//!
//! on whatever streams that is. Nothing waits on the host.
//!
//! Limits: contexts that are not a device's primary one are refused. Where cudarc's own tracking was turned off
//! (`CudaContext::disable_event_tracking`, which is `unsafe`), only what is on the slice's own stream is known. A stream that cudarc is
//! capturing cannot be waited for: hand memory over before or after.

use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr,
    DeviceSlice, DriverError,
};

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::memory::allocation::{Allocation, Home};
use crate::memory::order::Access;
use crate::memory::{Buffer, Slice, SliceMut};
use crate::stream::Stream;

/// CUDA's name for the default stream of whatever thread uses it.
const PER_THREAD: usize = 2;

impl Context {
    /// The context of the same device. cudarc's and this one are the same to the driver.
    ///
    /// # Errors
    /// If cudarc's is not the device's primary context.
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Context, CudaError> {
        if !context.is_primary() {
            return Err(CudaError::Handover {
                what: "a context of cudarc",
                found: "one of its own".to_owned(),
                expected: "the primary context of the device, from `CudaContext::new`".to_owned(),
            });
        }
        Context::new(u32::try_from(context.ordinal()).unwrap_or(u32::MAX))
    }

    /// The context of the same device for cudarc.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn to_cudarc(&self) -> Result<Arc<CudaContext>, CudaError> {
        self.guard(
            CudaContext::new(self.ordinal() as usize).map_err(|error| failed("CudaContext::new", error)),
        )
    }

    /// Lends memory of cudarc for a time, to be read. What `work` enqueues begins after what cudarc wrote; what cudarc writes later, and
    /// freeing, comes after it. Operations may be pending when this returns.
    ///
    /// A graph or a tensor map of this memory is refused afterwards.
    ///
    /// ```no_run
    /// # use tilewright_cuda::{Context, cudarc::driver::CudaContext};
    /// let theirs = CudaContext::new(0)?;
    /// let numbers = theirs.default_stream().clone_htod(&[1.0f32, 2.0])?;
    /// let context = Context::from_cudarc(&theirs)?;
    /// let stream = context.stream()?;
    /// let seen = context.with_cudarc(&numbers.as_view(), |slice| stream.download(slice))??;
    /// assert_eq!(seen, [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the memory is another device's, or the driver refuses.
    pub fn with_cudarc<T: Pod + DeviceRepr, R>(
        &self,
        memory: &CudaView<'_, T>,
        work: impl FnOnce(Slice<'_, T>) -> R,
    ) -> Result<R, CudaError> {
        let owner = DeviceSlice::stream(memory);
        let lent = Lent::new(self, owner, memory.len() * size_of::<T>(), || {
            let (address, recorded) = memory.device_ptr(owner);
            drop(recorded);
            address
        })?;
        Ok(work(Slice::over(&lent.memory, 0, memory.len())))
    }

    /// Lends memory of cudarc for a time, to be written. What `work` enqueues begins after all that cudarc does with it; what cudarc does
    /// later comes after it. Operations may be pending when this returns.
    ///
    /// A graph or a tensor map of this memory is refused afterwards.
    ///
    /// # Errors
    /// If the memory is another device's, or the driver refuses.
    pub fn with_cudarc_mut<T: Pod + DeviceRepr, R>(
        &self,
        memory: &mut CudaViewMut<'_, T>,
        work: impl FnOnce(SliceMut<'_, T>) -> R,
    ) -> Result<R, CudaError> {
        let owner = DeviceSlice::stream(memory).clone();
        let len = memory.len();
        let lent = Lent::new(self, &owner, len * size_of::<T>(), || {
            let (address, recorded) = memory.device_ptr_mut(&owner);
            drop(recorded);
            address
        })?;
        Ok(work(SliceMut::over(Slice::over(&lent.memory, 0, len))))
    }
}

/// Memory of cudarc in our hands; it goes back on drop, also when the work panics. Never given out, so never leaked.
struct Lent<F: FnMut() -> u64> {
    memory: Arc<Allocation>,
    owner: Stream,
    /// Orders cudarc's stream after what cudarc did, and records in the memory what that stream has by now.
    sync: F,
}

impl<F: FnMut() -> u64> Lent<F> {
    fn new(
        context: &Context,
        owner: &Arc<CudaStream>,
        bytes: usize,
        mut sync: F,
    ) -> Result<Lent<F>, CudaError> {
        context.expect("memory of cudarc", &Context::from_cudarc(owner.context())?)?;
        let owner = shared_stream(context, owner)?;
        let memory = Allocation::own(context, sync(), bytes, Home::Lent);
        // Whoever uses it waits for cudarc's stream, which was just made to wait for all that matters.
        memory.order().before(&owner, Access::Write)?;
        Ok(Lent { memory, owner, sync })
    }
}

impl<F: FnMut() -> u64> Drop for Lent<F> {
    fn drop(&mut self) {
        let users = self.memory.order().revoke();
        let ordered = users
            .iter()
            .filter(|user| **user != self.owner)
            .try_for_each(|user| user.precede(self.owner.raw()));
        if ordered.is_err() {
            // Then wait here; where that fails too, the context is lost, and nothing runs any more.
            let _ = users.iter().try_for_each(Stream::finish);
        }
        (self.sync)();
    }
}

impl Stream {
    /// The same stream for this crate: what both enqueue there is in order.
    ///
    /// # Errors
    /// If it is of a context that is not primary, or the default stream of whatever thread uses it, which is not one stream.
    ///
    /// # Safety
    /// While cudarc captures the stream into a graph, nothing of this crate is enqueued on it: that graph would not keep the memory.
    #[allow(unsafe_code)]
    pub unsafe fn from_cudarc(stream: &Arc<CudaStream>) -> Result<Stream, CudaError> {
        shared_stream(&Context::from_cudarc(stream.context())?, stream)
    }
}

impl<T: Pod + DeviceRepr> Buffer<T> {
    /// Takes over memory of cudarc. It is freed on the stream that it was allocated on, after all operations on it.
    ///
    /// # Errors
    /// If it is of a context that is not primary, or the driver refuses; the memory is freed by cudarc then.
    pub fn from_cudarc(slice: CudaSlice<T>) -> Result<Buffer<T>, CudaError> {
        let context = Context::from_cudarc(slice.context())?;
        let (len, bytes) = (slice.len(), slice.num_bytes());
        if bytes == 0 {
            return Ok(Buffer::over(Allocation::own(&context, 0, 0, Home::Empty), len));
        }
        let stream = if is_per_thread(slice.stream()) {
            slice.stream().synchronize().map_err(|error| failed("cuStreamSynchronize", error))?;
            context.default_stream()
        } else {
            shared_stream(&context, slice.stream())?
        };
        let in_order = slice.context().has_async_alloc();
        // Makes the slice's stream wait for all that cudarc does with it.
        let address = slice.leak();
        let home = if in_order { Home::Stream(stream.clone()) } else { Home::Device };
        let memory = Allocation::own(&context, address, bytes, home);
        memory.order().before(&stream, Access::Write)?;
        Ok(Buffer::over(memory, len))
    }

    /// Gives the memory to cudarc, which will free it on that stream. What is enqueued there comes after all operations on it.
    ///
    /// # Errors
    /// If a graph or a tensor map still uses the memory, or it is not of [`Stream::alloc`] and its kin (cudarc could not free it), or the
    /// stream is another device's. The memory is freed then.
    #[allow(unsafe_code)]
    pub fn into_cudarc(self, stream: &Arc<CudaStream>) -> Result<CudaSlice<T>, CudaError> {
        let context = self.context().clone();
        context.expect("the stream of cudarc", &Context::from_cudarc(stream.context())?)?;
        let len = self.len();
        // cudarc panics where it cannot make the events of a slice: better fail here.
        stream.context().new_event(None).map_err(|error| failed("cuEventCreate", error))?;
        let theirs = shared_stream(&context, stream)?;
        // cudarc frees also what is empty, so there must be something.
        let mut memory =
            if self.bytes() == 0 { Allocation::in_order(&theirs, 1)? } else { self.into_memory() };
        let address = memory.address();
        let Some(alone) = Arc::get_mut(&mut memory) else {
            return Err(refused(
                "a graph or a tensor map that still uses it",
                "memory that nothing else uses",
            ));
        };
        let freed_by_cudarc = match alone.home() {
            Home::Stream(_) => stream.context().has_async_alloc(),
            Home::Device => !stream.context().has_async_alloc(),
            Home::Empty | Home::Host(_) | Home::Lent | Home::Foreign(_) => false,
        };
        if !freed_by_cudarc {
            return Err(refused("memory that cudarc cannot free", "memory from `Stream::alloc` or a pool"));
        }
        alone.disown(Some(theirs.raw()))?;
        // SAFETY: an allocation of so many bytes that is nobody else's any more, and that cudarc frees in the way it was made for.
        let mut slice = unsafe { stream.upgrade_device_ptr::<T>(address, len) };
        // Records in the slice that its stream has written it: other streams of cudarc will wait.
        let (_, recorded) = slice.device_ptr_mut(stream);
        drop(recorded);
        Ok(slice)
    }
}

fn is_per_thread(stream: &CudaStream) -> bool {
    stream.cu_stream().addr() == PER_THREAD
}

/// cudarc's stream as one of ours, which keeps it.
#[allow(unsafe_code)]
fn shared_stream(context: &Context, stream: &Arc<CudaStream>) -> Result<Stream, CudaError> {
    if is_per_thread(stream) {
        return Err(CudaError::Handover {
            what: "a stream of cudarc",
            found: "the default stream of the thread".to_owned(),
            expected: "a stream that is the same for all threads".to_owned(),
        });
    }
    let owner = Box::new(stream.clone());
    // SAFETY: callers know that the stream is of this context; its owner keeps it.
    let raw = unsafe { ffi::stream::Stream::of_other(context.raw().clone(), stream.cu_stream(), owner) };
    Ok(Stream::adopt(context, raw))
}

fn refused(found: &str, expected: &str) -> CudaError {
    CudaError::Handover { what: "memory for cudarc", found: found.to_owned(), expected: expected.to_owned() }
}

/// An error of cudarc's in our words.
fn failed(call: &'static str, error: DriverError) -> CudaError {
    match ffi::check(call, error.0) {
        Err(error) => error,
        Ok(()) => CudaError::MissingSymbol { symbol: call },
    }
}
