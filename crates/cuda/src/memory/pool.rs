//! Pools: where memory that is allocated in the order of a stream comes from.
//!
//! Each device has a default pool, which [`Stream::alloc`] uses, and with it every other library in the process that allocates by stream.
//! By CUDA's default a pool gives all free memory back to the device whenever the host waits for a stream, so the next allocation is slow.
//! This crate leaves that setting of the default pool alone, because it is everybody's: what one holds, the others do not have.
//! [`Context::keep_freed_memory`] changes it for programs that have the device to themselves; own pools are set as their owner likes.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi::pool::{Attribute, Pool};
use crate::memory::allocation::Allocation;
use crate::memory::buffer::{Buffer, bytes_of};
use crate::stream::Stream;
use crate::version::CudaVersion;

/// How a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolOptions {
    /// The most bytes that it takes from the device; none is no limit. Needs a driver of CUDA 12.2 or newer.
    pub max_bytes: Option<usize>,
    /// Bytes that it keeps although they are free, instead of giving them back whenever the host waits for a stream.
    pub keep_bytes: u64,
}

/// What a pool holds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolUsage {
    /// Given out now.
    pub used: u64,
    /// The most that was given out since the start or [`MemoryPool::reset_peaks`].
    pub used_peak: u64,
    /// Taken from the device now.
    pub reserved: u64,
    /// The most that was taken from the device since the start or [`MemoryPool::reset_peaks`].
    pub reserved_peak: u64,
}

/// A pool of device memory. Clones are the same pool; it lives until the last of them and all of its memory are dropped.
///
/// ```no_run
/// use tilewright_cuda::{Context, PoolOptions};
/// let context = Context::new(0)?;
/// let stream = context.stream()?;
/// let pool = context.pool(&PoolOptions { keep_bytes: u64::MAX, ..PoolOptions::default() })?;
/// for _ in 0..100 {
///     let scratch = pool.alloc::<f32>(&stream, 1 << 20)?; // the same memory each time
///     // ... work ...
///     stream.synchronize()?;
/// }
/// pool.trim(0)?;
/// # Ok::<(), tilewright_cuda::CudaError>(())
/// ```
#[derive(Clone)]
pub struct MemoryPool {
    context: Context,
    raw: Arc<Pool>,
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryPool(device {})", self.context.ordinal())
    }
}

impl MemoryPool {
    fn over(context: &Context, raw: Result<Pool, CudaError>) -> Result<MemoryPool, CudaError> {
        Ok(MemoryPool { context: context.clone(), raw: Arc::new(context.guard(raw)?) })
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// An array with unspecified contents, in the order of the stream.
    ///
    /// # Errors
    /// If there is no room, the stream is another device's, or is being captured.
    pub fn alloc<T: Pod>(&self, stream: &Stream, len: usize) -> Result<Buffer<T>, CudaError> {
        self.context.expect("the stream", stream.context())?;
        let bytes = bytes_of::<T>(&self.context, len)?;
        let memory = Allocation::in_order_with(stream, bytes, |stream| self.raw.allocate(stream, bytes))?;
        Ok(Buffer::over(memory, len))
    }

    /// Bytes that it keeps although they are free.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn keep_bytes(&self) -> Result<u64, CudaError> {
        self.context.guard(self.raw.get(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD))
    }

    /// Sets how many bytes it keeps although they are free; `u64::MAX` is all.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn set_keep_bytes(&self, bytes: u64) -> Result<(), CudaError> {
        self.context.guard(self.raw.set(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes))
    }

    /// What it holds.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn usage(&self) -> Result<PoolUsage, CudaError> {
        let get = |attribute| self.context.guard(self.raw.get(attribute));
        Ok(PoolUsage {
            used: get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            used_peak: get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            reserved: get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_peak: get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
        })
    }

    /// Lets the peaks of [`MemoryPool::usage`] begin again at what is held now.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn reset_peaks(&self) -> Result<(), CudaError> {
        for attribute in
            [Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH]
        {
            self.context.guard(self.raw.set(attribute, 0))?;
        }
        Ok(())
    }

    /// Gives free memory back to the device until at most so many bytes are held. Memory whose last operations are not done is not free
    /// yet.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn trim(&self, keep_bytes: usize) -> Result<(), CudaError> {
        self.context.guard(self.raw.trim(keep_bytes))
    }

    /// Lets kernels on another device reach memory of this pool, also what was given out already.
    ///
    /// # Errors
    /// If there is no way between the devices.
    pub fn share_with(&self, peer: &Context) -> Result<(), CudaError> {
        self.set_access(peer, true)
    }

    /// Takes back [`MemoryPool::share_with`].
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn stop_sharing_with(&self, peer: &Context) -> Result<(), CudaError> {
        self.set_access(peer, false)
    }

    fn set_access(&self, peer: &Context, reach: bool) -> Result<(), CudaError> {
        if *peer == self.context {
            return Ok(());
        }
        if reach && !peer.device().can_access(self.context.device())? {
            return Err(CudaError::NoPeerAccess { from: peer.ordinal(), to: self.context.ordinal() });
        }
        self.context.guard(self.raw.set_access(peer.raw().device(), reach))
    }
}

impl Context {
    /// The pool that [`Stream::alloc`] takes memory from, shared with every other library in the process.
    ///
    /// # Errors
    /// If the device has no pools.
    pub fn default_pool(&self) -> Result<MemoryPool, CudaError> {
        self.expect_pools()?;
        MemoryPool::over(self, Pool::default_of(self.raw().clone()))
    }

    /// A new pool.
    ///
    /// # Errors
    /// If the device has no pools, or the driver refuses.
    pub fn pool(&self, options: &PoolOptions) -> Result<MemoryPool, CudaError> {
        self.expect_pools()?;
        if options.max_bytes.is_some() && self.driver().version() < (CudaVersion { major: 12, minor: 2 }) {
            return Err(CudaError::Unsupported {
                device: self.ordinal(),
                what: "a pool with a limit, which needs a driver of CUDA 12.2",
            });
        }
        let pool = MemoryPool::over(self, Pool::new(self.raw().clone(), options.max_bytes.unwrap_or(0)))?;
        pool.set_keep_bytes(options.keep_bytes)?;
        Ok(pool)
    }

    /// Lets the default pool keep so many free bytes, so that the next allocations are fast although the host waited in between;
    /// `u64::MAX` is all, 0 is CUDA's default. Other libraries in the process share that pool, other processes do without the memory.
    ///
    /// # Errors
    /// If the device has no pools.
    pub fn keep_freed_memory(&self, bytes: u64) -> Result<(), CudaError> {
        self.default_pool()?.set_keep_bytes(bytes)
    }

    /// Waits for all work, then gives all free memory of the default pool back to the device.
    ///
    /// # Errors
    /// If any of the work failed, or a stream is being captured.
    pub fn trim(&self) -> Result<(), CudaError> {
        self.synchronize()?;
        if self.device().memory_pools { self.default_pool()?.trim(0) } else { Ok(()) }
    }

    fn expect_pools(&self) -> Result<(), CudaError> {
        if self.device().memory_pools {
            return Ok(());
        }
        Err(CudaError::Unsupported { device: self.ordinal(), what: "memory in the order of a stream" })
    }
}
